//! From ids to slots. Look-ups only: it is never iterated, so its order cannot matter.
//!
//! Linear hashing (Litwin: "Linear hashing: a new tool for file and table addressing", 1980): many
//! small tables; when they fill up on average, one of them is split in two, and when they run
//! empty, the last one is merged into its origin. So no insertion ever moves more than one small
//! table, however many jobs there are, and memory is given back. An entry is a slot; the id itself
//! is read from the job.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::job::Slot;
use super::serial::Id;

/// Entries of a table, on average, above which one is split.
const LOAD_MAX: usize = 192;
/// Entries of a table, on average, below which one is merged.
const LOAD_MIN: usize = 64;

/// A hash index of slots. All operations are O(1).
#[derive(Clone, Debug)]
pub(super) struct Index {
    tables: Vec<HashTable<Slot>>,
    /// Number of hash bits that address the tables not yet split in this round.
    bits: u32,
    len: usize,
    hasher: DefaultHashBuilder,
}

impl Default for Index {
    fn default() -> Self {
        Self { tables: vec![HashTable::new()], bits: 0, len: 0, hasher: DefaultHashBuilder::default() }
    }
}

/// The low bits of a hash.
const fn low(hash: u64, bits: u32) -> usize {
    (hash & !(u64::MAX << bits)) as usize
}

impl Index {
    fn hash(&self, id: Id<'_>) -> u64 {
        match id {
            Id::Serial(serial) => self.hasher.hash_one(serial.0),
            Id::Custom(bytes) => self.hasher.hash_one(bytes),
        }
    }

    /// Which table a hash belongs to: the tables before the split point have one more bit.
    fn table(&self, hash: u64) -> usize {
        // The table's own look-ups use the other end of the hash; the address takes its middle.
        let hash = hash.rotate_left(24);
        let long = low(hash, self.bits.saturating_add(1));
        if long < self.tables.len() { long } else { low(hash, self.bits) }
    }

    /// The slot with this id; `is_it` says whether a slot's job has it.
    pub fn find(&self, id: Id<'_>, is_it: impl Fn(Slot) -> bool) -> Option<Slot> {
        let hash = self.hash(id);
        self.tables.get(self.table(hash))?.find(hash, |&slot| is_it(slot)).copied()
    }

    /// Adds a slot under an id that no other slot has. `id_of` gives the id of a slot's job.
    pub fn insert<'a>(&mut self, id: Id<'_>, slot: Slot, id_of: impl Fn(Slot) -> Option<Id<'a>>) {
        let hash = self.hash(id);
        let table = self.table(hash);
        let hasher = self.hasher.clone();
        let rehash = |slot: &Slot| match id_of(*slot) {
            Some(Id::Serial(serial)) => hasher.hash_one(serial.0),
            Some(Id::Custom(bytes)) => hasher.hash_one(bytes),
            None => 0,
        };
        if let Some(table) = self.tables.get_mut(table) {
            table.insert_unique(hash, slot, rehash);
            self.len = self.len.saturating_add(1);
        }
        if self.len > self.tables.len().saturating_mul(LOAD_MAX) {
            self.split(rehash);
        }
    }

    /// Takes a slot out. `id` is still the id of its job.
    pub fn remove<'a>(&mut self, id: Id<'_>, slot: Slot, id_of: impl Fn(Slot) -> Option<Id<'a>>) {
        let hash = self.hash(id);
        let number = self.table(hash);
        if let Some(table) = self.tables.get_mut(number)
            && let Ok(entry) = table.find_entry(hash, |&other| other == slot)
        {
            entry.remove();
            self.len = self.len.saturating_sub(1);
        }
        if self.tables.len() > 1 && self.len < self.tables.len().saturating_mul(LOAD_MIN) {
            let hasher = self.hasher.clone();
            self.merge(|slot: &Slot| match id_of(*slot) {
                Some(Id::Serial(serial)) => hasher.hash_one(serial.0),
                Some(Id::Custom(bytes)) => hasher.hash_one(bytes),
                None => 0,
            });
        }
    }

    /// Splits the table at the split point.
    fn split(&mut self, rehash: impl Fn(&Slot) -> u64) {
        let from = self.tables.len().saturating_sub(1 << self.bits);
        let to = self.tables.len();
        let Some(old) = self.tables.get_mut(from) else { return };
        let old = std::mem::take(old);
        self.tables.push(HashTable::new());
        if self.tables.len() >> self.bits.saturating_add(1) > 0 {
            self.bits = self.bits.saturating_add(1);
        }
        let (mut stay, mut go) = (Vec::new(), Vec::new());
        for slot in old {
            let hash = rehash(&slot);
            if self.table(hash) == to { go.push((hash, slot)) } else { stay.push((hash, slot)) }
        }
        for (number, entries) in [(from, stay), (to, go)] {
            let mut table = HashTable::with_capacity(entries.len());
            for (hash, slot) in entries {
                table.insert_unique(hash, slot, &rehash);
            }
            if let Some(place) = self.tables.get_mut(number) {
                *place = table;
            }
        }
    }

    /// Merges the last table into the one it was split from.
    fn merge(&mut self, rehash: impl Fn(&Slot) -> u64) {
        let Some(last) = self.tables.pop() else { return };
        if self.tables.len() >> self.bits == 0 {
            self.bits = self.bits.saturating_sub(1);
        }
        for slot in last {
            let hash = rehash(&slot);
            let number = self.table(hash);
            if let Some(table) = self.tables.get_mut(number) {
                table.insert_unique(hash, slot, &rehash);
            }
        }
        if self.tables.capacity() > 1_024 && self.tables.len() < self.tables.capacity() / 4 {
            self.tables.shrink_to(self.tables.len().saturating_mul(2));
        }
    }

    /// Bytes on the heap, about: a table has its buckets between 44 and 88 percent full.
    pub fn bytes(&self) -> usize {
        let entry = size_of::<Slot>().saturating_add(1);
        self.tables
            .capacity()
            .saturating_mul(size_of::<HashTable<Slot>>())
            .saturating_add(self.len.saturating_mul(entry).saturating_mul(3) / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::super::serial::Serial;
    use super::*;

    #[test]
    fn finds_what_is_there_while_it_grows_and_shrinks() {
        let id_of = |slot: Slot| Some(Id::Serial(Serial(u64::from(slot.0) * 7)));
        let mut index = Index::default();
        let size = 20_000;
        for round in 0..2 {
            for n in 0..size {
                let slot = Slot(n);
                index.insert(id_of(slot).unwrap(), slot, id_of);
            }
            assert!(index.tables.len() > size as usize / LOAD_MAX, "{} tables", index.tables.len());
            let longest = index.tables.iter().map(HashTable::len).max().unwrap();
            assert!(longest < 3 * LOAD_MAX, "a table of {longest}");
            for n in 0..size {
                let id = id_of(Slot(n)).unwrap();
                assert_eq!(index.find(id, |slot| id_of(slot) == Some(id)), Some(Slot(n)), "round {round}");
            }
            for n in (0..size).rev() {
                let id = id_of(Slot(n)).unwrap();
                index.remove(id, Slot(n), id_of);
                assert_eq!(index.find(id, |slot| id_of(slot) == Some(id)), None);
                if let Some(before) = n.checked_sub(1) {
                    let id = id_of(Slot(before)).unwrap();
                    assert_eq!(index.find(id, |slot| id_of(slot) == Some(id)), Some(Slot(before)));
                }
            }
            assert_eq!((index.len, index.tables.len(), index.bits), (0, 1, 0));
        }
    }
}

//! From ids, and from keys of unique jobs, to slots. Look-ups only: it is never iterated, so its order
//! cannot matter.
//!
//! Ids that the queue gave grow, and are looked up about in that order: they stand in a sorted
//! list, where neighbours lie side by side. Ids that clients gave stand in a hash index, keys in
//! another one.
//!
//! Linear hashing (Litwin: "Linear hashing: a new tool for file and table addressing", 1980): many
//! small tables; when they fill up on average, one of them is split in two, and when they run
//! empty, the last one is merged into its origin. So no insertion ever moves more than one small
//! table, however many jobs there are, and memory is given back. An entry is a slot and a tag, 32
//! bits of the name's hash, so that moving it does not look at the job; the name itself is read from
//! the job.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::job::{Job, Slot};
use super::serial::{Id, Serial};
use super::store::Store;
use super::timeline::Sorted;

/// All ids and keys of a queue.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    serials: Sorted<Serial, Slot>,
    customs: Names,
    keys: Names,
}

impl Index {
    /// The slot of the job with this id. O(log n).
    pub fn find(&self, id: Id<'_>, jobs: &Store) -> Option<Slot> {
        match id {
            Id::Serial(serial) => self.serials.get(serial, jobs.arrival_of()),
            Id::Custom(bytes) => {
                let is_it = |slot| jobs.get(slot).is_some_and(|job| job.custom_id() == Some(bytes));
                self.customs.find(bytes, is_it)
            }
        }
    }

    /// The slot of the job with this key, whether it still locks it or not. O(1).
    pub fn holder(&self, key: &[u8], jobs: &Store) -> Option<Slot> {
        let is_it = |slot| jobs.get(slot).and_then(|job| job.lock()).is_some_and(|lock| *lock.key == *key);
        self.keys.find(key, is_it)
    }

    /// Adds a job under its id and its key, which no other has.
    pub fn insert(&mut self, job: &Job<'_>, slot: Slot, jobs: &Store) {
        match job.id() {
            Id::Serial(serial) => self.insert_serial(serial, slot, jobs),
            Id::Custom(bytes) => self.customs.insert(bytes, slot),
        }
        if let Some(lock) = job.lock() {
            self.keys.insert(&lock.key, slot);
        }
    }

    /// As [`Self::insert`], of a job without an id of its client's and without a key.
    pub fn insert_serial(&mut self, serial: Serial, slot: Slot, jobs: &Store) {
        self.serials.insert(serial, slot, jobs.arrival_of());
    }

    /// Takes a job out again.
    pub fn remove(&mut self, job: &Job<'_>, slot: Slot, jobs: &Store) {
        match job.id() {
            Id::Serial(serial) => {
                self.serials.remove(serial, slot, jobs.arrival_of());
            }
            Id::Custom(bytes) => self.customs.remove(bytes, slot),
        }
        self.remove_key(job, slot);
    }

    /// Takes a job's key out.
    pub fn remove_key(&mut self, job: &Job<'_>, slot: Slot) {
        if let Some(lock) = job.lock() {
            self.keys.remove(&lock.key, slot);
        }
    }

    /// Entries by client's ids and by keys.
    pub const fn named(&self) -> [usize; 2] {
        [self.customs.len, self.keys.len]
    }

    /// Bytes on the heap. O(1).
    pub fn bytes(&self) -> usize {
        self.serials.bytes().saturating_add(self.customs.bytes()).saturating_add(self.keys.bytes())
    }
}

/// Entries of a table, on average, above which one is split.
const LOAD_MAX: usize = 192;
/// Entries of a table, on average, below which one is merged.
const LOAD_MIN: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Entry {
    tag: u32,
    slot: Slot,
}

type Table = HashTable<Entry>;

/// A hash index of slots by names, which are bytes that clients gave. All operations are O(1).
#[derive(Clone, Debug, Default)]
struct Names {
    /// None before the first name.
    tables: Vec<Table>,
    /// Number of tag bits that address the tables not yet split in this round.
    bits: u32,
    len: usize,
    hasher: DefaultHashBuilder,
}

/// The hash by which a table places a tag: other bits than those that address the table.
const fn spread(tag: u32) -> u64 {
    (tag as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32)
}

const fn rehash(entry: &Entry) -> u64 {
    spread(entry.tag)
}

impl Names {
    fn tag(&self, name: &[u8]) -> u32 {
        // The upper half: the better mixed one.
        (self.hasher.hash_one(name) >> 32) as u32
    }

    /// Which table a tag belongs to: the tables before the split point have one more bit.
    fn table(&self, tag: u32) -> usize {
        let low = |bits: u32| (u64::from(tag) & !(u64::MAX << bits)) as usize;
        let long = low(self.bits.saturating_add(1));
        if long < self.tables.len() { long } else { low(self.bits) }
    }

    /// The slot with this name; `is_it` says whether a slot's job has it.
    fn find(&self, name: &[u8], is_it: impl Fn(Slot) -> bool) -> Option<Slot> {
        let tag = self.tag(name);
        let table = self.tables.get(self.table(tag))?;
        table.find(spread(tag), |entry| entry.tag == tag && is_it(entry.slot)).map(|entry| entry.slot)
    }

    /// Adds a slot under a name that no other slot has.
    fn insert(&mut self, name: &[u8], slot: Slot) {
        if self.tables.is_empty() {
            self.tables.push(Table::new());
        }
        let tag = self.tag(name);
        self.put(Entry { tag, slot });
        self.len = self.len.saturating_add(1);
        if self.len > self.tables.len().saturating_mul(LOAD_MAX) {
            self.split();
        }
    }

    /// Takes a slot out that was put in under this name.
    fn remove(&mut self, name: &[u8], slot: Slot) {
        let tag = self.tag(name);
        let number = self.table(tag);
        if let Some(table) = self.tables.get_mut(number)
            && let Ok(entry) = table.find_entry(spread(tag), |entry| entry.slot == slot)
        {
            entry.remove();
            self.len = self.len.saturating_sub(1);
        }
        if self.tables.len() > 1 && self.len < self.tables.len().saturating_mul(LOAD_MIN) {
            self.merge();
        }
    }

    fn put(&mut self, entry: Entry) {
        let number = self.table(entry.tag);
        if let Some(table) = self.tables.get_mut(number) {
            table.insert_unique(rehash(&entry), entry, rehash);
        }
    }

    /// Splits the table at the split point.
    fn split(&mut self) {
        let from = self.tables.len().saturating_sub(1 << self.bits);
        let Some(old) = self.tables.get_mut(from) else { return };
        // Both halves get room for what they will hold when it is their turn again.
        let old = std::mem::replace(old, Table::with_capacity(LOAD_MAX));
        self.tables.push(Table::with_capacity(LOAD_MAX));
        if self.tables.len() >> self.bits.saturating_add(1) > 0 {
            self.bits = self.bits.saturating_add(1);
        }
        for entry in old {
            self.put(entry);
        }
    }

    /// Merges the last table into the one it was split from.
    fn merge(&mut self) {
        let Some(last) = self.tables.pop() else { return };
        if self.tables.len() >> self.bits == 0 {
            self.bits = self.bits.saturating_sub(1);
        }
        for entry in last {
            self.put(entry);
        }
        if self.tables.capacity() > 64 && self.tables.len() < self.tables.capacity() / 4 {
            self.tables.shrink_to(self.tables.len().saturating_mul(2));
        }
    }

    /// Bytes on the heap. O(1): tables have about the same size.
    fn bytes(&self) -> usize {
        let sample = self.tables.last().map_or(0, |table| table.capacity().saturating_mul(8) / 7);
        let table = sample.saturating_mul(size_of::<Entry>().saturating_add(1));
        let tables = self.tables.len().saturating_mul(table);
        tables.saturating_add(self.tables.capacity().saturating_mul(size_of::<Table>()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_is_there_while_it_grows_and_shrinks() {
        let ids: Vec<Vec<u8>> = (0..20_000u32).map(|n| format!("order-{n}").into_bytes()).collect();
        let is = |id: &[u8]| {
            let id = id.to_vec();
            move |slot: Slot| format!("order-{}", slot.0).into_bytes() == id
        };
        let mut index = Names::default();
        for round in 0..2 {
            for (id, n) in ids.iter().zip(0..) {
                index.insert(id, Slot(n));
            }
            assert!(index.tables.len() > ids.len() / LOAD_MAX, "{} tables", index.tables.len());
            let longest = index.tables.iter().map(HashTable::len).max().unwrap();
            assert!(longest < 3 * LOAD_MAX, "a table of {longest}");
            for (id, n) in ids.iter().zip(0..) {
                assert_eq!(index.find(id, is(id)), Some(Slot(n)), "round {round}");
            }
            for (id, n) in ids.iter().zip(0..20_000).rev() {
                index.remove(id, Slot(n));
                assert_eq!(index.find(id, is(id)), None);
                if let Some(before) = n.checked_sub(1) {
                    let id = &ids[before as usize];
                    assert_eq!(index.find(id, is(id)), Some(Slot(before)));
                }
            }
            assert_eq!((index.len, index.tables.len(), index.bits), (0, 1, 0));
        }
    }
}

//! Numbered slots: chunks that come and go, so that growth never copies and memory is given back.
//!
//! Which slot a value gets is an accident of history: it never decides an order.

use std::collections::BTreeSet;
use std::marker::PhantomData;

/// What a slab's entries are numbered with.
pub(super) trait Number: Copy + Eq {
    fn new(number: u32) -> Self;
    fn number(self) -> u32;
}

/// Entries of one chunk: 2^8.
const CHUNK_BITS: u32 = 8;
const CHUNK: usize = 1 << CHUNK_BITS;

/// Entries that a chunk keeps room for, so that a queue that hovers around empty allocates little, and
/// one that stays empty keeps little.
const KEPT: usize = 16;

/// Values in numbered slots. All operations are O(1), or O(log n) in the number of chunks.
#[derive(Clone, Debug)]
pub(super) struct Slab<N, T> {
    chunks: Vec<Option<Chunk<T>>>,
    /// Chunks with a free entry, present or not. The lowest is filled first, so that high ones
    /// empty and go.
    open: BTreeSet<u32>,
    present: usize,
    len: usize,
    /// Entries that there is room for.
    room: usize,
    numbers: PhantomData<fn() -> N>,
}

#[derive(Debug)]
struct Chunk<T> {
    /// Grows up to [`CHUNK`].
    entries: Vec<Option<T>>,
    used: usize,
    /// No entry below this one is free.
    lowest_free: usize,
}

/// With the same room.
impl<T: Clone> Clone for Chunk<T> {
    fn clone(&self) -> Self {
        let mut entries = Vec::with_capacity(self.entries.capacity());
        entries.extend_from_slice(&self.entries);
        Self { entries, ..*self }
    }
}

impl<N, T> Default for Slab<N, T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), open: BTreeSet::new(), present: 0, len: 0, room: 0, numbers: PhantomData }
    }
}

impl<T> Chunk<T> {
    /// Puts a value into the lowest free entry. `None`: there is none.
    #[inline]
    fn insert(&mut self, value: T) -> Option<usize> {
        let from = self.lowest_free;
        let free = self.entries.iter().skip(from).position(Option::is_none).map(|at| at.saturating_add(from));
        let entry = free.unwrap_or(self.entries.len());
        match self.entries.get_mut(entry) {
            Some(place) => *place = Some(value),
            None if entry < CHUNK => self.entries.push(Some(value)),
            None => return None,
        }
        self.lowest_free = entry.saturating_add(1);
        self.used = self.used.saturating_add(1);
        Some(entry)
    }

    #[inline]
    fn remove(&mut self, entry: usize) -> Option<T> {
        let value = self.entries.get_mut(entry)?.take()?;
        self.used = self.used.saturating_sub(1);
        self.lowest_free = self.lowest_free.min(entry);
        while self.entries.last().is_some_and(Option::is_none) {
            self.entries.pop();
        }
        if self.entries.len() < self.entries.capacity() / 4 {
            self.entries.shrink_to(self.entries.len().saturating_mul(2).max(KEPT));
        }
        Some(value)
    }
}

impl<N: Number, T> Slab<N, T> {
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Bytes of its chunks.
    pub fn bytes(&self) -> usize {
        self.room
            .saturating_mul(size_of::<Option<T>>())
            .saturating_add(self.chunks.capacity().saturating_mul(size_of::<Option<Chunk<T>>>()))
    }

    fn place(slot: N) -> (usize, usize) {
        ((slot.number() >> CHUNK_BITS) as usize, slot.number() as usize % CHUNK)
    }

    #[inline]
    pub fn get(&self, slot: N) -> Option<&T> {
        let (chunk, entry) = Self::place(slot);
        self.chunks.get(chunk)?.as_ref()?.entries.get(entry)?.as_ref()
    }

    #[inline]
    pub fn get_mut(&mut self, slot: N) -> Option<&mut T> {
        let (chunk, entry) = Self::place(slot);
        self.chunks.get_mut(chunk)?.as_mut()?.entries.get_mut(entry)?.as_mut()
    }

    /// Where the value is now; `None` when all 2^32 slots are taken.
    #[inline]
    pub fn insert(&mut self, value: T) -> Option<N> {
        let number = match self.open.first() {
            Some(&number) => number,
            None => {
                let number =
                    u32::try_from(self.chunks.len()).ok().filter(|n| n.leading_zeros() >= CHUNK_BITS)?;
                self.chunks.push(None);
                self.open.insert(number);
                number
            }
        };
        let place = self.chunks.get_mut(number as usize)?;
        let is_new = place.is_none();
        self.present = self.present.saturating_add(usize::from(is_new));
        let chunk = place.get_or_insert_with(|| {
            // The first one grows with its queue; where there are more, they fill up anyway.
            let entries = if number == 0 { Vec::new() } else { Vec::with_capacity(CHUNK) };
            Chunk { entries, used: 0, lowest_free: 0 }
        });
        let room = if is_new { 0 } else { chunk.entries.capacity() };
        let entry = chunk.insert(value)?;
        self.room = self.room.saturating_add(chunk.entries.capacity()).saturating_sub(room);
        if chunk.used == CHUNK {
            self.open.remove(&number);
        }
        self.len = self.len.saturating_add(1);
        u32::try_from(entry).ok().map(|entry| N::new(number << CHUNK_BITS | entry))
    }

    #[inline]
    pub fn remove(&mut self, slot: N) -> Option<T> {
        let (number, entry) = Self::place(slot);
        let place = self.chunks.get_mut(number)?;
        let chunk = place.as_mut()?;
        let room = chunk.entries.capacity();
        let value = chunk.remove(entry)?;
        let (used, left) = (chunk.used, chunk.entries.capacity());
        self.len = self.len.saturating_sub(1);
        if used == CHUNK.saturating_sub(1) {
            self.open.insert(slot.number() >> CHUNK_BITS);
        }
        // Of empty chunks, at most the first is kept.
        let goes = used == 0 && (self.present > 1 || number > 0);
        self.room = self.room.saturating_sub(room).saturating_add(if goes { 0 } else { left });
        if goes {
            *place = None;
            self.present = self.present.saturating_sub(1);
            self.shrink();
        }
        Some(value)
    }

    fn shrink(&mut self) {
        while self.chunks.last().is_some_and(Option::is_none) {
            self.chunks.pop();
            if let Ok(number) = u32::try_from(self.chunks.len()) {
                self.open.remove(&number);
            }
        }
        if self.chunks.capacity() > 64 && self.chunks.len() < self.chunks.capacity() / 4 {
            self.chunks.shrink_to(self.chunks.len().saturating_mul(2));
        }
    }

    /// All values, in no order that may matter.
    pub fn iter(&self) -> impl Iterator<Item = (N, &T)> {
        self.chunks.iter().enumerate().flat_map(|(number, chunk)| {
            chunk.iter().flat_map(move |chunk| {
                chunk.entries.iter().enumerate().filter_map(move |(entry, value)| {
                    let slot = u32::try_from(number << CHUNK_BITS | entry).ok()?;
                    Some((N::new(slot), value.as_ref()?))
                })
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::job::Slot;
    use super::*;

    #[test]
    fn agrees_with_a_hash_map_and_gives_memory_back() {
        let mut slab = Slab::<Slot, u64>::default();
        let mut model = HashMap::new();
        let mut random = 1u64;
        for round in 0..60_000u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let growing = (round / 10_000).is_multiple_of(2);
            if (random >> 33) % 10 < if growing { 7 } else { 3 } {
                let slot = slab.insert(round).unwrap();
                assert!(model.insert(slot, round).is_none(), "slot was in use");
            } else if let Some(&slot) = model.keys().next() {
                assert_eq!(slab.remove(slot), model.remove(&slot));
                assert_eq!(slab.get(slot), None);
                assert_eq!(slab.remove(slot), None);
            }
            assert_eq!(slab.len(), model.len());
        }
        let mut seen: Vec<_> = slab.iter().map(|(slot, value)| (slot.0, *value)).collect();
        let mut expected: Vec<_> = model.iter().map(|(slot, value)| (slot.0, *value)).collect();
        seen.sort_unstable();
        expected.sort_unstable();
        assert_eq!(seen, expected);
        for slot in model.into_keys() {
            slab.remove(slot);
        }
        let held: usize = slab.chunks.iter().flatten().map(|chunk| chunk.entries.capacity()).sum();
        assert_eq!((slab.room, slab.chunks.len()), (held, slab.present));
        assert!(slab.bytes() < 50 * size_of::<Chunk<u64>>(), "{} bytes left", slab.bytes());
    }
}

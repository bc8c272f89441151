//! The ordered containers: by instant and arrival, and by priority, instant and arrival.
//!
//! They hold slots, 4 bytes each, and are told what these stand for.

use std::cell::Cell;
use std::collections::VecDeque;

use smallvec::SmallVec;

use super::job::Slot;
use super::serial::Serial;

/// What a timeline is ordered by: an instant in ms, then the arrival number, which is unique.
pub(super) type Key = (u64, Serial);

/// Slots ordered by instant, then by arrival.
pub(super) type Timeline = Sorted<Key, Slot>;

/// Entries of a full chunk.
const CHUNK: usize = 128;

/// Small entries ordered by a unique key, which is looked up by a function that is always given
/// along: a slot's key stands in its job.
///
/// A list of sorted chunks: what queues do nearly always, appending at the end, taking from the
/// front, and finding neighbours of what was found before, touches one chunk and moves nothing.
/// Elsewhere it is two binary searches and a move within a chunk; now and then the list of chunks
/// moves by one, some 48 bytes for each 128 entries.
#[derive(Clone, Debug)]
pub(super) struct Sorted<K, E> {
    /// None is empty, but for a single one that is kept.
    chunks: VecDeque<Chunk<K, E>>,
    len: usize,
    /// Entries that the chunks have room for.
    room: usize,
    /// No key is above this one. `None`: there is none.
    end: Option<K>,
    /// Chunk and place of what was located last: a guess where the next one is, which is looked at like any other.
    finger: Cell<(usize, usize)>,
}

#[derive(Debug)]
struct Chunk<K, E> {
    /// Not above its first key, and above the last one of the chunk before.
    from: K,
    entries: VecDeque<E>,
}

/// With the same room.
impl<K: Clone, E: Clone> Clone for Chunk<K, E> {
    fn clone(&self) -> Self {
        let mut entries = VecDeque::with_capacity(self.entries.capacity());
        entries.extend(self.entries.iter().cloned());
        Self { from: self.from.clone(), entries }
    }
}

impl<K, E> Default for Sorted<K, E> {
    fn default() -> Self {
        Self { chunks: VecDeque::new(), len: 0, room: 0, end: None, finger: Cell::default() }
    }
}

impl<K: Copy + Ord, E: Copy + PartialEq> Sorted<K, E> {
    /// The chunk in which a key is or would be.
    fn chunk_of(&self, key: K) -> usize {
        self.chunks.partition_point(|chunk| chunk.from <= key).saturating_sub(1)
    }

    /// The chunk and the place in it of an entry.
    fn locate(&self, key: K, key_of: impl Fn(E) -> K) -> Option<(usize, usize)> {
        // What went out before left its place to its neighbour.
        let is_it = |&(number, place): &(usize, usize)| {
            self.chunks
                .get(number)
                .and_then(|chunk| chunk.entries.get(place))
                .is_some_and(|&entry| key_of(entry) == key)
        };
        if let Some(place) = [self.finger.get(), (0, 0)].into_iter().find(is_it) {
            return Some(place);
        }
        let number = self.chunk_of(key);
        let entries = &self.chunks.get(number)?.entries;
        let place = entries.binary_search_by_key(&key, |&entry| key_of(entry)).ok()?;
        self.finger.set((number, place));
        Some((number, place))
    }

    /// Adds an entry under its key, which is not there.
    #[inline]
    pub fn insert(&mut self, key: K, entry: E, key_of: impl Fn(E) -> K) {
        self.len = self.len.saturating_add(1);
        // What is done nearly always: a later one, and there is room.
        if self.end < Some(key) {
            self.end = Some(key);
            if let Some(chunk) = self.chunks.back_mut()
                && !chunk.entries.is_empty()
                && chunk.entries.len() < chunk.entries.capacity().min(CHUNK)
            {
                chunk.entries.push_back(entry);
                return;
            }
        }
        self.insert_anywhere(key, entry, key_of);
    }

    fn insert_anywhere(&mut self, key: K, entry: E, key_of: impl Fn(E) -> K) {
        let last = self.chunks.back().and_then(|chunk| chunk.entries.back());
        let number = if last.is_none_or(|&last| key_of(last) < key) {
            if self.chunks.back().is_none_or(|chunk| chunk.entries.len() >= CHUNK) {
                // The first chunk grows with what it holds; behind a full one, another will fill up.
                let room = if self.chunks.is_empty() { 1 } else { CHUNK };
                self.chunks.reserve_exact(usize::from(self.chunks.is_empty()));
                let entries = VecDeque::with_capacity(room);
                self.room = self.room.saturating_add(entries.capacity());
                self.chunks.push_back(Chunk { from: key, entries });
            }
            self.chunks.len().saturating_sub(1)
        } else {
            self.chunk_for(key, &key_of)
        };
        let Some(chunk) = self.chunks.get_mut(number) else { return };
        let before = chunk.entries.capacity();
        if chunk.entries.is_empty() || key < chunk.from {
            chunk.from = key;
        }
        match chunk.entries.back() {
            Some(&last) if key < key_of(last) => {
                let place = chunk.entries.partition_point(|&other| key_of(other) < key);
                chunk.entries.insert(place, entry);
            }
            _ => chunk.entries.push_back(entry),
        }
        self.room = self.room.saturating_add(chunk.entries.capacity()).saturating_sub(before);
    }

    /// The chunk that a key belongs to, with room for it: a full one is split in two.
    fn chunk_for(&mut self, key: K, key_of: impl Fn(E) -> K) -> usize {
        let number = self.chunk_of(key);
        let Some(chunk) = self.chunks.get_mut(number).filter(|chunk| chunk.entries.len() >= CHUNK) else {
            return number;
        };
        let entries = chunk.entries.split_off(CHUNK / 2);
        let Some(&first) = entries.front() else { return number };
        let (next, from) = (number.saturating_add(1), key_of(first));
        self.room = self.room.saturating_add(entries.capacity());
        self.chunks.insert(next, Chunk { from, entries });
        if key < from { number } else { next }
    }

    /// Takes an entry out that is under this key. Whether it was there.
    pub fn remove(&mut self, key: K, entry: E, key_of: impl Fn(E) -> K) -> bool {
        let is_first = self.first() == Some(entry);
        let place = if is_first { Some((0, 0)) } else { self.locate(key, key_of) };
        place.and_then(|(number, place)| self.remove_at(number, place)).is_some()
    }

    fn remove_at(&mut self, number: usize, place: usize) -> Option<E> {
        let chunk = self.chunks.get_mut(number)?;
        let entry = if place == 0 { chunk.entries.pop_front() } else { chunk.entries.remove(place) }?;
        self.len = self.len.saturating_sub(1);
        if self.len == 0 {
            self.end = None;
        }
        let left = chunk.entries.len();
        // Looked at now and then: a first chunk that is used up passes through all of these.
        if left < CHUNK / 4 && left.is_multiple_of(8) && self.chunks.len() > 1 {
            self.tidy(number, left);
        }
        Some(entry)
    }

    /// Gives back the room of a chunk that has become small.
    fn tidy(&mut self, number: usize, left: usize) {
        let room = |chunk: Option<&Chunk<K, E>>| chunk.map_or(0, |chunk| chunk.entries.capacity());
        let next = number.saturating_add(1);
        let before = room(self.chunks.get(number)).saturating_add(room(self.chunks.get(next)));
        let mut after = before;
        if left == 0 {
            after = room(self.chunks.get(next));
            self.chunks.remove(number);
        } else if self.chunks.get(next).is_some_and(|next| next.entries.len() < CHUNK / 2)
            && let Some(mut emptied) = self.chunks.remove(next)
            && let Some(chunk) = self.chunks.get_mut(number)
        {
            chunk.entries.append(&mut emptied.entries);
            after = chunk.entries.capacity();
        } else if let Some(chunk) = self.chunks.get_mut(number)
            && number > 0
            && chunk.entries.capacity() > left.saturating_mul(4)
        {
            let full = chunk.entries.capacity();
            chunk.entries.shrink_to(left.saturating_mul(2));
            after = before.saturating_sub(full).saturating_add(chunk.entries.capacity());
        }
        self.room = self.room.saturating_add(after).saturating_sub(before);
        if self.chunks.capacity() > 64 && self.chunks.len() < self.chunks.capacity() / 4 {
            self.chunks.shrink_to(self.chunks.len().saturating_mul(2));
        }
    }

    pub fn first(&self) -> Option<E> {
        self.chunks.front()?.entries.front().copied()
    }

    pub const fn len(&self) -> usize {
        self.len
    }

    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes on the heap. O(1).
    #[inline]
    pub fn bytes(&self) -> usize {
        let chunks = self.chunks.capacity().saturating_mul(size_of::<Chunk<K, E>>());
        self.room.saturating_mul(size_of::<E>()).saturating_add(chunks)
    }

    pub fn get(&self, key: K, key_of: impl Fn(E) -> K) -> Option<E> {
        let (number, place) = self.locate(key, key_of)?;
        self.chunks.get(number)?.entries.get(place).copied()
    }

    pub fn iter(&self) -> impl Iterator<Item = E> {
        self.chunks.iter().flat_map(|chunk| &chunk.entries).copied()
    }

    pub fn iter_after(&self, key: Option<K>, key_of: impl Fn(E) -> K) -> impl Iterator<Item = E> {
        let number = key.map_or(0, |key| self.chunk_of(key));
        let place = key.map_or(0, |key| {
            let chunk = self.chunks.get(number);
            chunk.map_or(0, |chunk| chunk.entries.partition_point(|&other| key_of(other) <= key))
        });
        let head =
            self.chunks.get(number).into_iter().flat_map(move |chunk| chunk.entries.iter().skip(place));
        let tail = self.chunks.iter().skip(number.saturating_add(1)).flat_map(|chunk| &chunk.entries);
        head.chain(tail).copied()
    }
}

impl Timeline {
    /// The first entry, if its instant is not after `now`.
    pub fn due(&self, now: u64, key_of: impl Fn(Slot) -> Key) -> Option<Slot> {
        self.first().filter(|&slot| key_of(slot).0 <= now)
    }
}

/// Ready jobs of a group: higher priority first, then by the instant from which they could run, then
/// by arrival.
#[derive(Clone, Debug, Default)]
pub(super) struct Ready {
    /// By rank, which is 255 - priority. Most groups use one. None is empty, but for one that was
    /// the last and is kept.
    ranks: SmallVec<[(u8, Timeline); 1]>,
    len: usize,
    /// Bytes of the timelines on the heap.
    bytes: usize,
}

impl Ready {
    /// Where the timeline of a priority is, or would be.
    fn place(&self, priority: u8) -> Result<usize, usize> {
        let rank = u8::MAX.saturating_sub(priority);
        self.ranks.binary_search_by_key(&rank, |&(rank, _)| rank)
    }

    #[inline]
    pub fn insert(&mut self, priority: u8, key: Key, slot: Slot, since_of: impl Fn(Slot) -> Key) {
        let place = self.place(priority).unwrap_or_else(|place| {
            self.ranks.insert(place, (u8::MAX.saturating_sub(priority), Timeline::default()));
            place
        });
        if let Some((_, timeline)) = self.ranks.get_mut(place) {
            let before = timeline.bytes();
            timeline.insert(key, slot, since_of);
            self.len = self.len.saturating_add(1);
            self.bytes = self.bytes.saturating_add(timeline.bytes()).saturating_sub(before);
        }
    }

    /// Whether the entry was there.
    #[inline]
    pub fn remove(&mut self, priority: u8, key: Key, slot: Slot, since_of: impl Fn(Slot) -> Key) -> bool {
        let Ok(place) = self.place(priority) else { return false };
        let Some((_, timeline)) = self.ranks.get_mut(place) else { return false };
        let before = timeline.bytes();
        let removed = timeline.remove(key, slot, since_of);
        let mut after = timeline.bytes();
        if timeline.is_empty() && self.ranks.len() > 1 {
            self.ranks.remove(place);
            after = 0;
        }
        self.bytes = self.bytes.saturating_add(after).saturating_sub(before);
        self.len = self.len.saturating_sub(usize::from(removed));
        removed
    }

    pub fn contains(&self, priority: u8, key: Key, slot: Slot, since_of: impl Fn(Slot) -> Key) -> bool {
        let timeline = self.place(priority).ok().and_then(|place| self.ranks.get(place));
        timeline.is_some_and(|(_, timeline)| timeline.get(key, since_of) == Some(slot))
    }

    pub fn first(&self) -> Option<Slot> {
        self.ranks.iter().find_map(|(_, timeline)| timeline.first())
    }

    /// The least instant over all priorities. O(priorities in use).
    pub fn oldest(&self, since_of: impl Fn(Slot) -> Key) -> Option<u64> {
        self.ranks.iter().filter_map(|(_, timeline)| Some(since_of(timeline.first()?).0)).min()
    }

    pub const fn len(&self) -> usize {
        self.len
    }

    /// Bytes on the heap, but for a list of several priorities. O(1).
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// In the order in which they will be claimed.
    pub fn iter(&self) -> impl Iterator<Item = Slot> {
        self.ranks.iter().flat_map(|(_, timeline)| timeline.iter())
    }

    /// Rank and slot, in the order in which they will be claimed.
    pub fn iter_after(
        &self,
        from: Option<(u8, Key)>,
        since_of: impl Fn(Slot) -> Key + Copy,
    ) -> impl Iterator<Item = (u8, Slot)> {
        let least = from.map_or(0, |(rank, _)| rank);
        let ranks = self.ranks.iter().filter(move |&&(rank, _)| rank >= least);
        ranks.flat_map(move |&(rank, ref timeline)| {
            let key = from.filter(|&(first, _)| first == rank).map(|(_, key)| key);
            timeline.iter_after(key, since_of).map(move |slot| (rank, slot))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// A slot whose number tells its key.
    fn slot(at: u64, arrival: u64) -> Slot {
        Slot((at << 16 | arrival) as u32)
    }

    fn key_of(slot: Slot) -> Key {
        (u64::from(slot.0 >> 16), Serial(u64::from(slot.0 & 0xFFFF)))
    }

    #[test]
    fn agrees_with_a_tree_and_gives_memory_back() {
        let mut timeline = Timeline::default();
        let mut model = BTreeMap::<Key, Slot>::new();
        let mut random = 7u64;
        let mut dice = move |sides: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % sides
        };
        for round in 0..60_000u64 {
            let growing = (round / 12_000).is_multiple_of(2);
            if dice(10) < if growing { 7 } else { 2 } {
                // Mostly at the end, sometimes anywhere.
                let at = if dice(4) == 0 { dice(round + 1) } else { round };
                timeline.insert((at, Serial(round)), slot(at, round), key_of);
                model.insert((at, Serial(round)), slot(at, round));
            } else {
                let nth = if dice(3) == 0 { dice(model.len() as u64 + 1) as usize } else { 0 };
                let key = model.keys().nth(nth).copied().unwrap_or((round, Serial(0)));
                assert_eq!(timeline.get(key, key_of), model.get(&key).copied());
                let entry = slot(key.0, key.1.0);
                assert_eq!(timeline.remove(key, entry, key_of), model.remove(&key).is_some());
                assert!(!timeline.remove(key, entry, key_of));
            }
            assert_eq!(timeline.len(), model.len());
            assert_eq!(timeline.first(), model.first_key_value().map(|(_, &slot)| slot));
            if round % 500 == 0 {
                assert!(timeline.iter().eq(model.values().copied()));
                let from = (dice(round + 1), Serial(dice(round + 1)));
                let behind = model.range((std::ops::Bound::Excluded(from), std::ops::Bound::Unbounded));
                assert!(timeline.iter_after(Some(from), key_of).eq(behind.map(|(_, &slot)| slot)));
                assert!(
                    timeline.chunks.len() == 1
                        || timeline.chunks.iter().all(|chunk| !chunk.entries.is_empty())
                );
                let fill = timeline.len() / timeline.chunks.len().max(1);
                assert!(fill >= CHUNK / 8 || timeline.len() < CHUNK, "{fill} entries in a chunk");
            }
        }
        while let Some(slot) = timeline.first() {
            timeline.remove(key_of(slot), slot, key_of);
        }
        let room: usize = timeline.chunks.iter().map(|chunk| chunk.entries.capacity()).sum();
        assert_eq!((timeline.len(), timeline.chunks.len(), timeline.room), (0, 1, room));
    }

    #[test]
    fn ready_order_is_priority_then_instant_then_arrival() {
        let mut ready = Ready::default();
        let entries = [(0, 5, 1), (9, 7, 2), (0, 4, 3), (9, 7, 4), (255, 9, 5), (0, 5, 0)];
        for (priority, at, arrival) in entries {
            ready.insert(priority, (at, Serial(arrival)), slot(at, arrival), key_of);
        }
        let order: Vec<u32> = ready.iter_after(None, key_of).map(|(_, slot)| slot.0 & 0xFFFF).collect();
        assert_eq!(order, [5, 2, 4, 3, 0, 1]);
        assert_eq!((ready.first(), ready.oldest(key_of), ready.len()), (Some(slot(9, 5)), Some(4), 6));
        let behind: Vec<u32> =
            ready.iter_after(Some((246, (7, Serial(2)))), key_of).map(|(_, slot)| slot.0 & 0xFFFF).collect();
        assert_eq!(behind, [4, 3, 0, 1]);
        assert!(
            ready.remove(255, (9, Serial(5)), slot(9, 5), key_of)
                && !ready.remove(255, (9, Serial(5)), slot(9, 5), key_of)
        );
        assert_eq!((ready.first(), ready.len()), (Some(slot(7, 2)), 5));
    }
}

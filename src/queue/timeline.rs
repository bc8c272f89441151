//! The ordered containers: by instant and arrival, and by priority, instant and arrival.
//!
//! They hold slots and know nothing of what is in them.

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

/// Small values ordered by a unique key.
///
/// A list of sorted chunks: what queues do nearly always, appending at the end, taking from the
/// front, and finding neighbours of what was found before, touches one chunk and moves nothing.
/// Elsewhere it is two binary searches and a move within a chunk; now and then the list of chunks
/// moves by one, some 48 bytes for each 128 entries.
#[derive(Clone, Debug)]
pub(super) struct Sorted<K, V> {
    /// None is empty, but for a single one that is kept.
    chunks: VecDeque<Chunk<K, V>>,
    len: usize,
}

#[derive(Clone, Debug)]
struct Chunk<K, V> {
    /// Not above its first key, and above the last one of the chunk before.
    from: K,
    entries: VecDeque<(K, V)>,
}

impl<K, V> Default for Sorted<K, V> {
    fn default() -> Self {
        Self { chunks: VecDeque::new(), len: 0 }
    }
}

impl<K: Copy + Ord, V: Copy + PartialEq> Sorted<K, V> {
    /// Bytes that one entry takes, about: chunks are full, but for those split or shrunk.
    pub const ENTRY_BYTES: usize = size_of::<(K, V)>() + size_of::<(K, V)>() / 6;

    /// The chunk in which a key is or would be.
    fn chunk_of(&self, key: K) -> usize {
        self.chunks.partition_point(|chunk| chunk.from <= key).saturating_sub(1)
    }

    /// The chunk and the place in it of an entry.
    fn locate(&self, key: K) -> Option<(usize, usize)> {
        if self.first().is_some_and(|(first, _)| first == key) {
            return Some((0, 0));
        }
        let number = self.chunk_of(key);
        let place = self.chunks.get(number)?.entries.binary_search_by_key(&key, |&(key, _)| key).ok()?;
        Some((number, place))
    }

    /// Adds an entry under a key that is not there.
    pub fn insert(&mut self, key: K, value: V) {
        self.len = self.len.saturating_add(1);
        let last = self.chunks.back().and_then(|chunk| chunk.entries.back());
        if last.is_none_or(|&(last, _)| last < key) {
            match self.chunks.back_mut() {
                Some(chunk) if chunk.entries.is_empty() => {
                    chunk.from = key;
                    chunk.entries.push_back((key, value));
                }
                Some(chunk) if chunk.entries.len() < CHUNK => chunk.entries.push_back((key, value)),
                last => {
                    // The first chunk grows with what it holds; behind a full one, another will fill up.
                    let room = if last.is_some() { CHUNK } else { 1 };
                    let mut entries = VecDeque::with_capacity(room);
                    entries.push_back((key, value));
                    self.chunks.push_back(Chunk { from: key, entries });
                }
            }
            return;
        }
        let number = self.chunk_of(key);
        let Some(chunk) = self.chunks.get_mut(number) else { return };
        let place = chunk.entries.partition_point(|&(other, _)| other < key);
        chunk.from = chunk.from.min(key);
        chunk.entries.insert(place, (key, value));
        if chunk.entries.len() > CHUNK {
            let entries = chunk.entries.split_off(CHUNK / 2);
            if let Some(&(from, _)) = entries.front() {
                self.chunks.insert(number.saturating_add(1), Chunk { from, entries });
            }
        }
    }

    /// The value that was under the key.
    pub fn remove(&mut self, key: K) -> Option<V> {
        let (number, place) = self.locate(key)?;
        let chunk = self.chunks.get_mut(number)?;
        let (_, value) = chunk.entries.remove(place)?;
        self.len = self.len.saturating_sub(1);
        let left = chunk.entries.len();
        if left < CHUNK / 4 && self.chunks.len() > 1 {
            self.tidy(number, left);
        }
        Some(value)
    }

    /// Gives back the room of a chunk that has become small.
    fn tidy(&mut self, number: usize, left: usize) {
        if left == 0 {
            self.chunks.remove(number);
        } else if let Some(next) = self.chunks.get(number.saturating_add(1))
            && next.entries.len() < CHUNK / 2
            && let Some(mut next) = self.chunks.remove(number.saturating_add(1))
            && let Some(chunk) = self.chunks.get_mut(number)
        {
            chunk.entries.append(&mut next.entries);
        } else if let Some(chunk) = self.chunks.get_mut(number)
            && number > 0
            && chunk.entries.capacity() > left.saturating_mul(4)
        {
            chunk.entries.shrink_to(left.saturating_mul(2));
        }
        if self.chunks.capacity() > 64 && self.chunks.len() < self.chunks.capacity() / 4 {
            self.chunks.shrink_to(self.chunks.len().saturating_mul(2));
        }
    }

    pub fn first(&self) -> Option<(K, V)> {
        self.chunks.front()?.entries.front().copied()
    }

    pub const fn len(&self) -> usize {
        self.len
    }

    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub const fn bytes(&self) -> usize {
        self.len.saturating_mul(Self::ENTRY_BYTES)
    }

    pub fn get(&self, key: K) -> Option<V> {
        let (number, place) = self.locate(key)?;
        self.chunks.get(number)?.entries.get(place).map(|&(_, value)| value)
    }

    pub fn contains(&self, key: K, value: V) -> bool {
        self.get(key) == Some(value)
    }

    pub fn iter(&self) -> impl Iterator<Item = (K, V)> {
        self.iter_after(None)
    }

    pub fn iter_after(&self, key: Option<K>) -> impl Iterator<Item = (K, V)> {
        let number = key.map_or(0, |key| self.chunk_of(key));
        let place = key.map_or(0, |key| {
            let chunk = self.chunks.get(number);
            chunk.map_or(0, |chunk| chunk.entries.partition_point(|&(other, _)| other <= key))
        });
        let head =
            self.chunks.get(number).into_iter().flat_map(move |chunk| chunk.entries.iter().skip(place));
        let tail = self.chunks.iter().skip(number.saturating_add(1)).flat_map(|chunk| &chunk.entries);
        head.chain(tail).copied()
    }
}

impl Timeline {
    /// The first entry, if its instant is not after `now`.
    pub fn due(&self, now: u64) -> Option<Slot> {
        self.first().filter(|&((at, _), _)| at <= now).map(|(_, slot)| slot)
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
}

impl Ready {
    /// Where the timeline of a priority is, or would be.
    fn place(&self, priority: u8) -> Result<usize, usize> {
        let rank = u8::MAX.saturating_sub(priority);
        self.ranks.binary_search_by_key(&rank, |&(rank, _)| rank)
    }

    pub fn insert(&mut self, priority: u8, key: Key, slot: Slot) {
        let place = self.place(priority).unwrap_or_else(|place| {
            self.ranks.insert(place, (u8::MAX.saturating_sub(priority), Timeline::default()));
            place
        });
        if let Some((_, timeline)) = self.ranks.get_mut(place) {
            timeline.insert(key, slot);
            self.len = self.len.saturating_add(1);
        }
    }

    /// Whether the entry was there.
    pub fn remove(&mut self, priority: u8, key: Key) -> bool {
        let Ok(place) = self.place(priority) else { return false };
        let Some((_, timeline)) = self.ranks.get_mut(place) else { return false };
        let removed = timeline.remove(key).is_some();
        if timeline.is_empty() && self.ranks.len() > 1 {
            self.ranks.remove(place);
        }
        self.len = self.len.saturating_sub(usize::from(removed));
        removed
    }

    pub fn contains(&self, priority: u8, key: Key, slot: Slot) -> bool {
        let timeline = self.place(priority).ok().and_then(|place| self.ranks.get(place));
        timeline.is_some_and(|(_, timeline)| timeline.contains(key, slot))
    }

    pub fn first(&self) -> Option<Slot> {
        self.ranks.iter().find_map(|(_, timeline)| timeline.first()).map(|(_, slot)| slot)
    }

    /// The least instant over all priorities. O(priorities in use).
    pub fn oldest(&self) -> Option<u64> {
        self.ranks.iter().filter_map(|(_, timeline)| Some(timeline.first()?.0.0)).min()
    }

    pub const fn len(&self) -> usize {
        self.len
    }

    /// Rank, key and slot, in the order in which they will be claimed.
    pub fn iter_after(&self, from: Option<(u8, Key)>) -> impl Iterator<Item = (u8, Key, Slot)> {
        let least = from.map_or(0, |(rank, _)| rank);
        let ranks = self.ranks.iter().filter(move |&&(rank, _)| rank >= least);
        ranks.flat_map(move |&(rank, ref timeline)| {
            let key = from.filter(|&(first, _)| first == rank).map(|(_, key)| key);
            timeline.iter_after(key).map(move |(key, slot)| (rank, key, slot))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

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
                timeline.insert((at, Serial(round)), Slot(round as u32));
                model.insert((at, Serial(round)), Slot(round as u32));
            } else {
                let nth = if dice(3) == 0 { dice(model.len() as u64 + 1) as usize } else { 0 };
                let key = model.keys().nth(nth).copied().unwrap_or((round, Serial(0)));
                assert_eq!(timeline.get(key), model.get(&key).copied());
                assert_eq!(timeline.remove(key), model.remove(&key));
                assert_eq!(timeline.remove(key), None);
            }
            assert_eq!(timeline.len(), model.len());
            assert_eq!(timeline.first(), model.first_key_value().map(|(&key, &slot)| (key, slot)));
            if round % 500 == 0 {
                assert!(timeline.iter().eq(model.iter().map(|(&key, &slot)| (key, slot))));
                let from = (dice(round + 1), Serial(dice(round + 1)));
                let behind = model.range((std::ops::Bound::Excluded(from), std::ops::Bound::Unbounded));
                assert!(timeline.iter_after(Some(from)).eq(behind.map(|(&key, &slot)| (key, slot))));
                assert!(
                    timeline.chunks.len() == 1
                        || timeline.chunks.iter().all(|chunk| !chunk.entries.is_empty())
                );
                let fill = timeline.len() / timeline.chunks.len().max(1);
                assert!(fill >= CHUNK / 8 || timeline.len() < CHUNK, "{fill} entries in a chunk");
            }
        }
        while let Some((key, _)) = timeline.first() {
            timeline.remove(key);
        }
        assert_eq!((timeline.len(), timeline.chunks.len()), (0, 1));
    }

    #[test]
    fn ready_order_is_priority_then_instant_then_arrival() {
        let mut ready = Ready::default();
        let entries = [(0, 5, 1), (9, 7, 2), (0, 4, 3), (9, 7, 4), (255, 9, 5), (0, 5, 0)];
        for (priority, at, arrival) in entries {
            ready.insert(priority, (at, Serial(arrival)), Slot(arrival as u32));
        }
        let order: Vec<u32> = ready.iter_after(None).map(|(_, _, slot)| slot.0).collect();
        assert_eq!(order, [5, 2, 4, 3, 0, 1]);
        assert_eq!((ready.first(), ready.oldest(), ready.len()), (Some(Slot(5)), Some(4), 6));
        let behind: Vec<u32> =
            ready.iter_after(Some((246, (7, Serial(2))))).map(|(_, _, slot)| slot.0).collect();
        assert_eq!(behind, [4, 3, 0, 1]);
        assert!(ready.remove(255, (9, Serial(5))) && !ready.remove(255, (9, Serial(5))));
        assert_eq!((ready.first(), ready.len()), (Some(Slot(2)), 5));
    }
}

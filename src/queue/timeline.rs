//! The ordered containers: by instant and arrival, and by priority, instant and arrival.
//!
//! They hold slots and know nothing of what is in them.

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};

use super::job::Slot;
use super::serial::Serial;

/// What a timeline is ordered by: an instant in ms, then the arrival number, which is unique.
pub(super) type Key = (u64, Serial);

type Entry = (Key, Slot);

/// Entries of a full chunk.
const CHUNK: usize = 128;

/// Slots ordered by instant, then by arrival.
///
/// A list of sorted chunks: what queues do nearly always, appending at the end and taking from the
/// front, touches one chunk and moves nothing. Elsewhere it is two binary searches and a move
/// within a chunk; now and then the list of chunks moves by one, 32 bytes for each 128 entries.
#[derive(Clone, Debug, Default)]
pub(super) struct Timeline {
    /// None is empty, but for a single one that is kept.
    chunks: VecDeque<VecDeque<Entry>>,
    len: usize,
}

/// Bytes that one entry takes, about: chunks are full, but for those split or shrunk.
pub(super) const ENTRY_BYTES: usize = 28;

impl Timeline {
    /// The chunk in which a key is or would be.
    fn chunk_of(&self, key: Key) -> usize {
        let starts_behind = |chunk: &VecDeque<Entry>| chunk.front().is_some_and(|&(first, _)| first <= key);
        self.chunks.partition_point(starts_behind).saturating_sub(1)
    }

    /// The chunk and the place in it of an entry.
    fn locate(&self, key: Key) -> Option<(usize, usize)> {
        let is_first = self.first().is_some_and(|(first, _)| first == key);
        let number = if is_first { 0 } else { self.chunk_of(key) };
        let chunk = self.chunks.get(number)?;
        let place = if is_first { 0 } else { chunk.binary_search_by_key(&key, |&(key, _)| key).ok()? };
        Some((number, place))
    }

    /// Adds an entry under a key that is not there.
    pub fn insert(&mut self, key: Key, slot: Slot) {
        self.len = self.len.saturating_add(1);
        let is_last = self.chunks.back().and_then(VecDeque::back).is_none_or(|&(last, _)| last < key);
        if is_last {
            match self.chunks.back_mut() {
                Some(chunk) if chunk.len() < CHUNK => chunk.push_back((key, slot)),
                _ => self.chunks.push_back(VecDeque::from([(key, slot)])),
            }
            return;
        }
        let number = self.chunk_of(key);
        let Some(chunk) = self.chunks.get_mut(number) else { return };
        let place = chunk.partition_point(|&(other, _)| other < key);
        chunk.insert(place, (key, slot));
        if chunk.len() > CHUNK {
            let rest = chunk.split_off(CHUNK / 2);
            self.chunks.insert(number.saturating_add(1), rest);
        }
    }

    /// Whether the entry was there.
    pub fn remove(&mut self, key: Key) -> bool {
        let Some((number, place)) = self.locate(key) else { return false };
        let Some(chunk) = self.chunks.get_mut(number) else { return false };
        chunk.remove(place);
        self.len = self.len.saturating_sub(1);
        let left = chunk.len();
        if left < CHUNK / 4 && self.chunks.len() > 1 {
            self.tidy(number, left);
        }
        true
    }

    /// Gives back the room of a chunk that has become small.
    fn tidy(&mut self, number: usize, left: usize) {
        if left == 0 {
            self.chunks.remove(number);
        } else if let Some(next) = self.chunks.get(number.saturating_add(1))
            && next.len() < CHUNK / 2
            && let Some(mut next) = self.chunks.remove(number.saturating_add(1))
            && let Some(chunk) = self.chunks.get_mut(number)
        {
            chunk.append(&mut next);
        } else if let Some(chunk) = self.chunks.get_mut(number)
            && number > 0
            && chunk.capacity() > left.saturating_mul(4)
        {
            chunk.shrink_to(left.saturating_mul(2));
        }
        if self.chunks.capacity() > 1_024 && self.chunks.len() < self.chunks.capacity() / 4 {
            self.chunks.shrink_to(self.chunks.len().saturating_mul(2));
        }
    }

    pub fn first(&self) -> Option<Entry> {
        self.chunks.front()?.front().copied()
    }

    /// The first entry, if its instant is not after `now`.
    pub fn due(&self, now: u64) -> Option<Slot> {
        self.first().filter(|&((at, _), _)| at <= now).map(|(_, slot)| slot)
    }

    pub const fn len(&self) -> usize {
        self.len
    }

    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn bytes(&self) -> usize {
        self.len.saturating_mul(ENTRY_BYTES)
    }

    pub fn get(&self, key: Key) -> Option<Slot> {
        let (number, place) = self.locate(key)?;
        self.chunks.get(number)?.get(place).map(|&(_, slot)| slot)
    }

    pub fn contains(&self, key: Key, slot: Slot) -> bool {
        self.get(key) == Some(slot)
    }

    pub fn iter(&self) -> impl Iterator<Item = Entry> {
        self.iter_after(None)
    }

    pub fn iter_after(&self, key: Option<Key>) -> impl Iterator<Item = Entry> {
        let number = key.map_or(0, |key| self.chunk_of(key));
        let place = key.map_or(0, |key| {
            self.chunks
                .get(number)
                .map_or(0, |chunk| chunk.partition_point(|&(other, _)| other.cmp(&key) != Ordering::Greater))
        });
        let head = self.chunks.get(number).into_iter().flat_map(move |chunk| chunk.iter().skip(place));
        let tail = self.chunks.iter().skip(number.saturating_add(1)).flatten();
        head.chain(tail).copied()
    }
}

/// Ready jobs: higher priority first, then by the instant from which they could run, then by
/// arrival. This is the one place that ready jobs are taken from.
#[derive(Clone, Debug, Default)]
pub(super) struct Ready {
    /// By rank, which is 255 - priority. None is empty, but for one that was the last and is kept.
    ranks: BTreeMap<u8, Timeline>,
    len: usize,
}

impl Ready {
    const fn rank(priority: u8) -> u8 {
        u8::MAX.saturating_sub(priority)
    }

    pub fn insert(&mut self, priority: u8, key: Key, slot: Slot) {
        self.ranks.entry(Self::rank(priority)).or_default().insert(key, slot);
        self.len = self.len.saturating_add(1);
    }

    /// Whether the entry was there.
    pub fn remove(&mut self, priority: u8, key: Key) -> bool {
        let rank = Self::rank(priority);
        let Some(timeline) = self.ranks.get_mut(&rank) else { return false };
        let removed = timeline.remove(key);
        if timeline.is_empty() && self.ranks.len() > 1 {
            self.ranks.remove(&rank);
        }
        self.len = self.len.saturating_sub(usize::from(removed));
        removed
    }

    pub fn contains(&self, rank: u8, key: Key, slot: Slot) -> bool {
        self.ranks.get(&rank).is_some_and(|timeline| timeline.contains(key, slot))
    }

    pub fn first(&self) -> Option<Slot> {
        self.ranks.values().find_map(Timeline::first).map(|(_, slot)| slot)
    }

    /// The least instant over all priorities. O(priorities in use).
    pub fn oldest(&self) -> Option<u64> {
        self.ranks.values().filter_map(|timeline| Some(timeline.first()?.0.0)).min()
    }

    pub const fn len(&self) -> usize {
        self.len
    }

    /// Rank, key and slot, in the order in which they will be claimed.
    pub fn iter_after(&self, from: Option<(u8, Key)>) -> impl Iterator<Item = (u8, Key, Slot)> {
        self.ranks.range(from.map_or(0, |(rank, _)| rank)..).flat_map(move |(&rank, timeline)| {
            let key = from.filter(|&(first, _)| first == rank).map(|(_, key)| key);
            timeline.iter_after(key).map(move |(key, slot)| (rank, key, slot))
        })
    }
}

#[cfg(test)]
mod tests {
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
                assert_eq!(timeline.remove(key), model.remove(&key).is_some());
                assert!(!timeline.remove(key));
            }
            assert_eq!(timeline.len(), model.len());
            assert_eq!(timeline.first(), model.first_key_value().map(|(&key, &slot)| (key, slot)));
            if round % 500 == 0 {
                assert!(timeline.iter().eq(model.iter().map(|(&key, &slot)| (key, slot))));
                let from = (dice(round + 1), Serial(dice(round + 1)));
                let behind = model.range((std::ops::Bound::Excluded(from), std::ops::Bound::Unbounded));
                assert!(timeline.iter_after(Some(from)).eq(behind.map(|(&key, &slot)| (key, slot))));
                assert!(timeline.chunks.len() == 1 || timeline.chunks.iter().all(|chunk| !chunk.is_empty()));
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

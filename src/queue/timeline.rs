//! The ordered containers: by instant and arrival, and by priority, instant and arrival.
//!
//! They hold slots and know nothing of what is in them.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::job::Slot;
use super::serial::Serial;

/// What a timeline is ordered by: an instant in ms, then the arrival number, which is unique.
pub(super) type Key = (u64, Serial);

/// Slots ordered by instant, then by arrival. All operations are O(log n).
#[derive(Clone, Debug, Default)]
pub(super) struct Timeline {
    slots: BTreeMap<Key, Slot>,
}

/// Bytes that one entry takes in the tree, about: key, slot, and nodes two thirds full.
pub(super) const ENTRY_BYTES: usize = 40;

impl Timeline {
    pub fn insert(&mut self, key: Key, slot: Slot) {
        self.slots.insert(key, slot);
    }

    /// Whether the entry was there.
    pub fn remove(&mut self, key: Key) -> bool {
        self.slots.remove(&key).is_some()
    }

    pub fn first(&self) -> Option<(Key, Slot)> {
        self.slots.first_key_value().map(|(&key, &slot)| (key, slot))
    }

    /// The first entry, if its instant is not after `now`.
    pub fn due(&self, now: u64) -> Option<Slot> {
        self.first().filter(|&((at, _), _)| at <= now).map(|(_, slot)| slot)
    }

    pub fn len(&self) -> usize {
        self.slots.len()
    }

    pub fn bytes(&self) -> usize {
        self.slots.len().saturating_mul(ENTRY_BYTES)
    }

    pub fn contains(&self, key: Key, slot: Slot) -> bool {
        self.slots.get(&key) == Some(&slot)
    }

    pub fn iter(&self) -> impl Iterator<Item = (Key, Slot)> {
        self.iter_after(None)
    }

    pub fn iter_after(&self, key: Option<Key>) -> impl Iterator<Item = (Key, Slot)> {
        let from = key.map_or(Bound::Unbounded, Bound::Excluded);
        self.slots.range((from, Bound::Unbounded)).map(|(&key, &slot)| (key, slot))
    }
}

/// Ready jobs: higher priority first, then by the instant from which they could run, then by
/// arrival. This is the one place that ready jobs are taken from.
#[derive(Clone, Debug, Default)]
pub(super) struct Ready {
    /// By rank, which is 255 - priority. No timeline in it is empty.
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
        if timeline.len() == 0 {
            self.ranks.remove(&rank);
        }
        self.len = self.len.saturating_sub(usize::from(removed));
        removed
    }

    pub fn contains(&self, rank: u8, key: Key, slot: Slot) -> bool {
        self.ranks.get(&rank).is_some_and(|timeline| timeline.contains(key, slot))
    }

    pub fn first(&self) -> Option<Slot> {
        Some(self.ranks.first_key_value()?.1.first()?.1)
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

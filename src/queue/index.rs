//! From ids to slots. Look-ups only: it is never iterated, so its order cannot matter.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::job::Slot;
use super::serial::{Id, Serial};

#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    serials: HashMap<Serial, Slot>,
    customs: HashMap<Box<[u8]>, Slot>,
    custom_bytes: usize,
}

impl Index {
    pub fn find(&self, id: Id<'_>) -> Option<Slot> {
        match id {
            Id::Serial(serial) => self.serials.get(&serial).copied(),
            Id::Custom(bytes) => self.customs.get(bytes).copied(),
        }
    }

    /// Whether the id was free.
    pub fn insert(&mut self, id: Id<'_>, slot: Slot) -> bool {
        match id {
            Id::Serial(serial) => match self.serials.entry(serial) {
                Entry::Occupied(_) => false,
                Entry::Vacant(free) => {
                    free.insert(slot);
                    true
                }
            },
            Id::Custom(bytes) => {
                if self.customs.contains_key(bytes) {
                    return false;
                }
                self.custom_bytes = self.custom_bytes.saturating_add(bytes.len());
                self.customs.insert(bytes.into(), slot);
                true
            }
        }
    }

    pub fn remove(&mut self, id: Id<'_>) {
        match id {
            Id::Serial(serial) => {
                self.serials.remove(&serial);
                if has_slack(self.serials.len(), self.serials.capacity()) {
                    self.serials.shrink_to(self.serials.len().saturating_mul(2));
                }
            }
            Id::Custom(bytes) => {
                if self.customs.remove(bytes).is_some() {
                    self.custom_bytes = self.custom_bytes.saturating_sub(bytes.len());
                }
                if has_slack(self.customs.len(), self.customs.capacity()) {
                    self.customs.shrink_to(self.customs.len().saturating_mul(2));
                }
            }
        }
    }

    pub fn bytes(&self) -> usize {
        let serial = size_of::<(Serial, Slot)>().saturating_add(1);
        let custom = size_of::<(Box<[u8]>, Slot)>().saturating_add(1);
        self.serials
            .capacity()
            .saturating_mul(serial)
            .saturating_add(self.customs.capacity().saturating_mul(custom))
            .saturating_add(self.custom_bytes)
    }
}

/// Whether a table is so empty that moving to a smaller one pays.
const fn has_slack(len: usize, capacity: usize) -> bool {
    capacity > 4_096 && len < capacity / 8
}

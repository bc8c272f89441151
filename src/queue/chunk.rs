//! How jobs lie in a chunk: entries of one size, each a head of 32 bytes and room for a payload.

use super::group::GroupNo;
use super::job::State;
use super::serial::Serial;

/// Bytes of a full chunk: the largest piece that jemalloc does not pad with a page of its own.
pub(super) const CHUNK_BYTES: usize = 14 * 1024;
/// Bytes of an entry before its payload.
pub(super) const HEAD: usize = 32;
/// Bits of a slot that number the entry in its chunk.
pub(super) const ENTRY_BITS: u32 = 9;
const _: () = assert!(CHUNK_BYTES / HEAD <= 1 << ENTRY_BITS);

/// Bytes that a chunk keeps room for, so that a queue that hovers around empty allocates little, and
/// one that stays empty keeps little.
const KEPT_BYTES: usize = 1_024;

/// Longest payload kept in an entry, in bytes.
const INLINE_MAX: usize = 1_024;
/// Bytes in an entry for the number of a payload that is kept aside.
pub(super) const LARGE_ROOM: usize = 4;

#[derive(Debug)]
pub(super) struct Chunk {
    /// The entries, one behind the other.
    pub bytes: Vec<u8>,
    /// Room for the payload in each.
    pub room: u16,
    /// Entries of a full chunk. Kept, as is their number now: a division is dear.
    max: u16,
    len: u16,
    pub used: u16,
    /// No entry below this one is free.
    lowest_free: u16,
}

/// The head of an entry.
#[derive(Clone, Copy)]
pub(super) struct Head {
    pub arrival: Serial,
    pub enqueued: u64,
    pub life: u32,
    pub more: u32,
    pub group: GroupNo,
    /// The state's number, or [`FREE`]; [`WALL`] and the other flags.
    pub kind: u8,
    pub priority: u8,
    /// Of the payload, if it is in the entry.
    pub len: u16,
}

pub(super) const STATE: u8 = 0b111;
pub(super) const FREE: u8 = 0b111;
pub(super) const WALL: u8 = 1 << 3;
pub(super) const PLACE: u8 = 1 << 4;
pub(super) const CANCELLING: u8 = 1 << 5;
pub(super) const ACKED: u8 = 1 << 6;
/// The payload is kept aside; the entry has its number.
pub(super) const LARGE: u8 = 1 << 7;

/// Where in an entry [`Head::kind`] is.
const KIND: usize = 28;

impl Head {
    #[inline(always)]
    pub fn read(entry: &[u8]) -> Option<Self> {
        let (words, _) = entry.as_chunks::<8>();
        let &[arrival, enqueued, aside, rest, ..] = words else { return None };
        let (aside, rest) = (u64::from_le_bytes(aside), u64::from_le_bytes(rest));
        Some(Self {
            arrival: Serial(u64::from_le_bytes(arrival)),
            enqueued: u64::from_le_bytes(enqueued),
            life: aside as u32,
            more: (aside >> 32) as u32,
            group: GroupNo(rest as u32),
            kind: (rest >> 32) as u8,
            priority: (rest >> 40) as u8,
            len: (rest >> 48) as u16,
        })
    }

    #[inline(always)]
    pub fn write(&self, entry: &mut [u8]) {
        let (words, _) = entry.as_chunks_mut::<8>();
        let [arrival, enqueued, aside, rest, ..] = words else { return };
        *arrival = self.arrival.0.to_le_bytes();
        *enqueued = self.enqueued.to_le_bytes();
        *aside = (u64::from(self.life) | u64::from(self.more) << 32).to_le_bytes();
        let flags = u64::from(self.kind) << 32 | u64::from(self.priority) << 40;
        *rest = (u64::from(self.group.0) | flags | u64::from(self.len) << 48).to_le_bytes();
    }

    pub fn state(&self) -> Option<State> {
        State::ALL.get(usize::from(self.kind & STATE)).copied()
    }
}

/// The room in an entry for a payload of so many bytes: steps of 4 bytes up to 128, of 8 up to 256, of
/// 16 and of 32 beyond. `None`: it is kept aside.
pub(super) const fn room_for(len: usize) -> Option<usize> {
    Some(len.next_multiple_of(match len {
        0..=128 => 4,
        129..=256 => 8,
        257..=512 => 16,
        513..=INLINE_MAX => 32,
        _ => return None,
    }))
}

/// With the same room.
impl Clone for Chunk {
    fn clone(&self) -> Self {
        let mut bytes = Vec::with_capacity(self.bytes.capacity());
        bytes.extend_from_slice(&self.bytes);
        Self { bytes, ..*self }
    }
}

impl Chunk {
    /// Without entries yet.
    pub const fn new(room: u16) -> Self {
        let max = match CHUNK_BYTES.checked_div((room as usize).saturating_add(HEAD)) {
            Some(entries) => entries as u16,
            None => 0,
        };
        Self { bytes: Vec::new(), room, max, len: 0, used: 0, lowest_free: 0 }
    }

    pub const fn stride(&self) -> usize {
        (self.room as usize).saturating_add(HEAD)
    }

    /// Entries of a full chunk.
    pub const fn entries_max(&self) -> usize {
        self.max as usize
    }

    #[inline(always)]
    pub fn entry(&self, number: usize) -> Option<&[u8]> {
        let start = number.saturating_mul(self.stride());
        self.bytes.get(start..start.saturating_add(self.stride()))
    }

    pub fn entry_mut(&mut self, number: usize) -> Option<&mut [u8]> {
        let (start, stride) = (number.saturating_mul(self.stride()), self.stride());
        self.bytes.get_mut(start..start.saturating_add(stride))
    }

    pub const fn len(&self) -> usize {
        self.len as usize
    }

    fn is_free(&self, number: usize) -> bool {
        self.entry(number).and_then(|entry| entry.get(KIND)).is_some_and(|kind| kind & STATE == FREE)
    }

    /// A free entry, zeroed or not. `None`: there is none.
    #[inline]
    pub fn take(&mut self) -> Option<usize> {
        let len = self.len();
        let number = (usize::from(self.lowest_free)..len).find(|&number| self.is_free(number)).unwrap_or(len);
        if number == len {
            if len >= self.entries_max() {
                return None;
            }
            let filled = self.bytes.len().saturating_add(self.stride());
            if filled > self.bytes.capacity() {
                let entries = len.saturating_mul(2).clamp(1, self.entries_max());
                let bytes = entries.saturating_mul(self.stride());
                self.bytes.reserve_exact(bytes.saturating_sub(self.bytes.len()));
            }
            self.bytes.resize(filled, 0);
            self.len = self.len.saturating_add(1);
        }
        self.used = self.used.saturating_add(1);
        self.lowest_free = u16::try_from(number.saturating_add(1)).unwrap_or(u16::MAX);
        Some(number)
    }

    pub fn give_back(&mut self, number: usize) {
        if let Some(kind) = self.entry_mut(number).and_then(|entry| entry.get_mut(KIND)) {
            *kind = FREE;
        }
        self.used = self.used.saturating_sub(1);
        self.lowest_free = self.lowest_free.min(u16::try_from(number).unwrap_or(u16::MAX));
        while self.len > 0 && self.is_free(self.len().saturating_sub(1)) {
            self.len = self.len.saturating_sub(1);
        }
        self.bytes.truncate(self.len().saturating_mul(self.stride()));
        if self.bytes.len() < self.bytes.capacity() / 4 {
            self.bytes.shrink_to(self.bytes.len().saturating_mul(2).max(KEPT_BYTES));
        }
    }
}

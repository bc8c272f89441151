//! The jobs, packed.
//!
//! Most jobs are small, and most of them wait: each is an entry of 32 bytes with its payload right
//! behind it, in chunks of 14 KiB whose entries all have the same size (`chunk.rs`), so that a job
//! that came and never ran takes one copy and no allocation. What only some jobs have lies aside, in
//! slabs, and is found by number: what its deliveries left (its *life*), what its client asked for or said (*more*),
//! and payloads too large for an entry.
//!
//! Which slot a job gets is an accident of history: it never decides an order.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

use smallvec::SmallVec;

use super::chunk::{
    ACKED, CANCELLING, Chunk, ENTRY_BITS, FREE, HEAD, Head, LARGE, LARGE_ROOM, PLACE, STATE, WALL, room_for,
};
use super::job::{Draft, Fields, Job, More, Slot, Spent, allocated};
use super::registry::Holder;
use super::serial::Serial;
use super::slab::{Number, Slab};
use super::timeline::Key;

/// Deliveries are counted up to here.
pub(super) const DELIVERIES_MAX: u32 = (1 << DELIVERY_BITS) - 1;
const DELIVERY_BITS: u32 = 24;
/// Worker numbers are below this one, and so are slots.
pub(super) const WORKERS_MAX: u64 = 1 << 39;

/// All jobs of a queue. Operations are O(1), or O(log n) in the number of chunks.
#[derive(Clone, Debug, Default)]
pub(super) struct Store {
    chunks: Vec<Option<Chunk>>,
    /// Numbers below `chunks.len()` of chunks that are not there.
    holes: BTreeSet<u32>,
    /// By the room for the payload.
    classes: BTreeMap<u16, Class>,
    lives: Slab<LifeNo, Life>,
    mores: Slab<MoreNo, More>,
    larges: Slab<LargeNo, Box<[u8]>>,
    len: usize,
    /// Bytes that the chunks have room for.
    room: usize,
    /// Bytes on the heap of what lies aside, beyond the slabs.
    heap_bytes: usize,
    /// Classes that were sparse when a job was last taken from them.
    sparse: BTreeSet<u16>,
}

/// The chunks of one entry size.
#[derive(Clone, Debug, Default)]
struct Class {
    /// Those with a free entry. The lowest is filled first, so that high ones empty and go.
    open: BTreeSet<u32>,
    chunks: u32,
    jobs: u32,
}

/// A class is sparse when less than one in so many of its entries is used.
const SPARSE: usize = 4;
/// Entries of which an only chunk makes no fuss.
const FEW: usize = 16;

impl Class {
    /// Whether few of its entries are used, as seen from one of its chunks.
    fn is_sparse(&self, chunk: &Chunk) -> bool {
        let entries = match self.chunks {
            1 => chunk.len().saturating_sub(FEW),
            chunks => chunk.entries_max().saturating_mul(chunks as usize),
        };
        (self.jobs as usize).saturating_mul(SPARSE) < entries
    }
}

/// What deliveries, delays and the end leave on a job.
#[derive(Clone, Copy, Debug)]
struct Life {
    since: u64,
    at: u64,
    touched: u64,
    token: Serial,
    /// The worker and the deliveries, all bits turned: never 0, as workers have fewer.
    run: NonZeroU64,
}

macro_rules! numbers {
    ($($name:ident)+) => {$(
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        struct $name(u32);
        impl Number for $name {
            fn new(number: u32) -> Self {
                Self(number)
            }
            fn number(self) -> u32 {
                self.0
            }
        }
    )+};
}
numbers! { LifeNo MoreNo LargeNo }

/// Stands for "not there" among the numbers of what lies aside; in an entry 0 does.
const fn number_of(stored: u32) -> Option<u32> {
    stored.checked_sub(1)
}

impl Life {
    /// Of a job that came and has waited since.
    const fn unborn(enqueued: u64) -> Self {
        Self { since: enqueued, at: 0, touched: 0, token: Serial::NONE, run: NonZeroU64::MAX }
    }

    fn of(fields: &Fields) -> Self {
        let run = fields.worker.0 << DELIVERY_BITS | u64::from(fields.deliveries.min(DELIVERIES_MAX));
        let run = NonZeroU64::new(!run).unwrap_or(NonZeroU64::MAX);
        Self { since: fields.since, at: fields.at, touched: fields.touched, token: fields.token, run }
    }

    /// The worker and the number of deliveries.
    const fn run(&self) -> (Holder, u32) {
        let run = !self.run.get();
        (Holder(run >> DELIVERY_BITS), (run & DELIVERIES_MAX as u64) as u32)
    }

    const fn is_unborn(fields: &Fields) -> bool {
        fields.since == fields.enqueued
            && fields.at | fields.touched | fields.token.0 | fields.worker.0 | fields.deliveries as u64 == 0
    }
}

/// How an entry tells a job's state and flags.
fn kind_of(fields: &Fields) -> u8 {
    let flags = [
        (fields.follows_wall, WALL),
        (fields.keeps_place, PLACE),
        (fields.cancelling, CANCELLING),
        (fields.acked, ACKED),
    ];
    flags.into_iter().fold(fields.state as u8, |kind, (is_set, flag)| if is_set { kind | flag } else { kind })
}

impl Store {
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Bytes on the heap. O(1).
    pub fn bytes(&self) -> usize {
        self.room
            .saturating_add(self.lives.bytes())
            .saturating_add(self.mores.bytes())
            .saturating_add(self.larges.bytes())
            .saturating_add(self.heap_bytes)
            .saturating_add(self.chunks.capacity().saturating_mul(size_of::<Option<Chunk>>()))
    }

    fn place(slot: Slot) -> (u32, usize) {
        (slot.0 >> ENTRY_BITS, (slot.0 & !(u32::MAX << ENTRY_BITS)) as usize)
    }

    #[inline(always)]
    fn entry(&self, slot: Slot) -> Option<&[u8]> {
        let (chunk, number) = Self::place(slot);
        self.chunks.get(chunk as usize)?.as_ref()?.entry(number)
    }

    #[inline(always)]
    fn head(&self, slot: Slot) -> Option<Head> {
        Head::read(self.entry(slot)?)
    }

    #[inline(always)]
    fn life(&self, head: &Head) -> Life {
        let life = number_of(head.life).and_then(|number| self.lives.get(LifeNo(number)));
        life.copied().unwrap_or(Life::unborn(head.enqueued))
    }

    #[inline(always)]
    fn more(&self, head: &Head) -> Option<&More> {
        self.mores.get(MoreNo(number_of(head.more)?))
    }

    #[inline(always)]
    fn fields(&self, head: &Head, more: Option<&More>) -> Option<Fields> {
        let life = self.life(head);
        let (worker, deliveries) = life.run();
        Some(Fields {
            arrival: head.arrival,
            group: head.group,
            since: life.since,
            at: life.at,
            enqueued: head.enqueued,
            touched: life.touched,
            token: life.token,
            worker,
            deliveries,
            spent: more.map_or(Spent::default(), |more| more.spent),
            state: head.state()?,
            priority: head.priority,
            follows_wall: head.kind & WALL != 0,
            keeps_place: head.kind & PLACE != 0,
            cancelling: head.kind & CANCELLING != 0,
            acked: head.kind & ACKED != 0,
        })
    }

    /// Always inlined: callers look at a few values, and what they do not look at is not unpacked.
    #[inline(always)]
    pub fn get(&self, slot: Slot) -> Option<Job<'_>> {
        let entry = self.entry(slot)?;
        let head = Head::read(entry)?;
        let more = self.more(&head);
        let fields = self.fields(&head, more)?;
        let behind = entry.get(HEAD..)?;
        let payload = if head.kind & LARGE == 0 {
            behind.get(..usize::from(head.len))?
        } else {
            self.larges.get(LargeNo(u32::from_le_bytes(*behind.first_chunk()?)))?
        };
        Some(Job { fields, payload, more })
    }

    /// What a job is found by; `NONE` of what is not there.
    pub fn arrival_of(&self) -> impl Fn(Slot) -> Serial {
        |slot| self.head(slot).map_or(Serial::NONE, |head| head.arrival)
    }

    /// What timelines order a job by.
    pub fn at_of(&self) -> impl Fn(Slot) -> Key {
        |slot| self.head(slot).map_or((0, Serial::NONE), |head| (self.life(&head).at, head.arrival))
    }

    /// What ready jobs of a priority are ordered by.
    pub fn since_of(&self) -> impl Fn(Slot) -> Key {
        |slot| self.head(slot).map_or((0, Serial::NONE), |head| (self.life(&head).since, head.arrival))
    }

    /// What jobs that must be claimed by an instant are ordered by.
    pub fn deadline_of(&self) -> impl Fn(Slot) -> Key {
        |slot| {
            let deadline = |head: &Head| self.more(head).and_then(|more| more.deadline).unwrap_or(0);
            self.head(slot).map_or((0, Serial::NONE), |head| (deadline(&head), head.arrival))
        }
    }

    /// What a worker's jobs are ordered by.
    pub fn token_of(&self) -> impl Fn(Slot) -> Serial {
        |slot| self.head(slot).map_or(Serial::NONE, |head| self.life(&head).token)
    }

    /// Where the job is now; `None` when all slots are taken.
    #[inline]
    pub fn insert(&mut self, fields: &Fields, more: Option<More>, payload: &[u8]) -> Option<Slot> {
        let inline = room_for(payload.len());
        let (chunk_no, number) = self.take(u16::try_from(inline.unwrap_or(LARGE_ROOM)).ok()?)?;
        let slot = Slot(chunk_no << ENTRY_BITS | u32::try_from(number).ok()?);
        let (large, flag, len) = if inline.is_some() {
            (None, 0, u16::try_from(payload.len()).ok()?)
        } else {
            self.heap_bytes = self.heap_bytes.saturating_add(allocated(payload.len()));
            (Some(self.larges.insert(payload.into())?.0.to_le_bytes()), LARGE, 0)
        };
        let stored = large.as_ref().map_or(payload, |number| number.as_slice());
        let (life, more) = (self.keep_life(0, fields), self.keep_more(0, fields, more));
        let entry = self.chunks.get_mut(chunk_no as usize)?.as_mut()?.entry_mut(number)?;
        let head = Head {
            arrival: fields.arrival,
            enqueued: fields.enqueued,
            life,
            more,
            group: fields.group,
            kind: kind_of(fields) | flag,
            priority: fields.priority,
            len,
        };
        head.write(entry);
        entry.get_mut(HEAD..HEAD.checked_add(stored.len())?)?.copy_from_slice(stored);
        self.len = self.len.saturating_add(1);
        Some(slot)
    }

    /// Changes a job. What it is then, and its pending deadline; `None`: it is not there.
    #[inline]
    pub fn edit(&mut self, slot: Slot, change: impl FnOnce(&mut Draft)) -> Option<(Fields, Option<u64>)> {
        let head = self.head(slot)?;
        let more = number_of(head.more).and_then(|number| self.mores.get_mut(MoreNo(number)));
        let more = more.map(std::mem::take);
        let fields = self.fields(&head, more.as_ref())?;
        let mut draft = Draft { fields, more };
        let before = draft.more.as_ref().map_or(0, More::heap_bytes);
        self.heap_bytes = self.heap_bytes.saturating_sub(before);
        change(&mut draft);
        let deadline = draft.pending_deadline();
        let Draft { fields, more } = draft;
        let after = Head {
            life: self.keep_life(head.life, &fields),
            more: self.keep_more(head.more, &fields, more),
            kind: kind_of(&fields) | head.kind & LARGE,
            priority: fields.priority,
            ..head
        };
        let (chunk, number) = Self::place(slot);
        after.write(self.chunks.get_mut(chunk as usize)?.as_mut()?.entry_mut(number)?);
        Some((fields, deadline))
    }

    /// Whether the job was there. What it was is to be looked at before.
    pub fn remove(&mut self, slot: Slot) -> bool {
        let (chunk_no, number) = Self::place(slot);
        let Some(entry) = self.entry(slot) else { return false };
        let Some(head) = Head::read(entry).filter(|head| head.kind & STATE != FREE) else { return false };
        if head.kind & LARGE != 0
            && let Some(large) = entry.get(HEAD..).and_then(<[u8]>::first_chunk)
            && let Some(payload) = self.larges.remove(LargeNo(u32::from_le_bytes(*large)))
        {
            self.heap_bytes = self.heap_bytes.saturating_sub(allocated(payload.len()));
        }
        if let Some(life) = number_of(head.life) {
            self.lives.remove(LifeNo(life));
        }
        if let Some(more) = number_of(head.more).and_then(|more| self.mores.remove(MoreNo(more))) {
            self.heap_bytes = self.heap_bytes.saturating_sub(more.heap_bytes());
        }
        self.len = self.len.saturating_sub(1);
        self.give_back(chunk_no, number);
        true
    }

    /// A job that had better lie elsewhere: many of its size have gone, and those left are strewn over
    /// room that could be given back.
    pub fn stray(&mut self) -> Option<Slot> {
        while let Some(&room) = self.sparse.first() {
            let class = self.classes.get(&room);
            let last = class.and_then(|class| class.open.last()).copied();
            let chunk = last.and_then(|last| self.chunks.get(last as usize)?.as_ref());
            if let (Some(class), Some(last), Some(chunk)) = (class, last, chunk)
                && class.is_sparse(chunk)
                && (class.open.len() > 1 || class.chunks == 1)
            {
                // The last entry is never free.
                let entry = u32::try_from(chunk.len().checked_sub(1)?).ok()?;
                return Some(Slot(last << ENTRY_BITS | entry));
            }
            self.sparse.remove(&room);
        }
        None
    }

    /// Moves a job, which is in no container, to the lowest free entry of its size. Where it is now.
    pub fn settle(&mut self, slot: Slot) -> Option<Slot> {
        let (from, number) = Self::place(slot);
        let chunk = self.chunks.get(from as usize)?.as_ref()?;
        let room = chunk.room;
        let bytes: SmallVec<[u8; 256]> = SmallVec::from_slice(chunk.entry(number)?);
        let mut head = Head::read(&bytes)?;
        // What lies aside moves down too.
        if let Some(life) = number_of(head.life).and_then(|life| self.lives.remove(LifeNo(life))) {
            head.life = self.lives.insert(life)?.0.saturating_add(1);
        }
        if let Some(more) = number_of(head.more).and_then(|more| self.mores.remove(MoreNo(more))) {
            head.more = self.mores.insert(more)?.0.saturating_add(1);
        }
        self.give_back(from, number);
        let (to, number) = self.take(room)?;
        let entry = self.chunks.get_mut(to as usize)?.as_mut()?.entry_mut(number)?;
        entry.copy_from_slice(&bytes);
        head.write(entry);
        Some(Slot(to << ENTRY_BITS | u32::try_from(number).ok()?))
    }

    /// Puts what deliveries left where it belongs. What the entry says of it, then and now.
    #[inline]
    fn keep_life(&mut self, life: u32, fields: &Fields) -> u32 {
        match (number_of(life), Life::is_unborn(fields)) {
            (None, true) => 0,
            (Some(number), true) => {
                self.lives.remove(LifeNo(number));
                0
            }
            (Some(number), false) => {
                if let Some(place) = self.lives.get_mut(LifeNo(number)) {
                    *place = Life::of(fields);
                }
                life
            }
            (None, false) => self.lives.insert(Life::of(fields)).map_or(0, |life| life.0.saturating_add(1)),
        }
    }

    /// As [`Self::keep_life`], of what few jobs have.
    #[inline]
    fn keep_more(&mut self, before: u32, fields: &Fields, mut more: Option<More>) -> u32 {
        if more.is_some() || fields.spent != Spent::default() {
            more.get_or_insert_default().spent = fields.spent;
            more = more.filter(|more| !more.is_empty());
        }
        self.heap_bytes = self.heap_bytes.saturating_add(more.as_ref().map_or(0, More::heap_bytes));
        match (number_of(before), more) {
            (None, None) => 0,
            (Some(number), None) => {
                self.mores.remove(MoreNo(number));
                0
            }
            (Some(number), Some(more)) => {
                if let Some(place) = self.mores.get_mut(MoreNo(number)) {
                    *place = more;
                }
                before
            }
            (None, Some(more)) => self.mores.insert(more).map_or(0, |more| more.0.saturating_add(1)),
        }
    }

    /// A free entry with so much room: its chunk and its number there.
    #[inline]
    fn take(&mut self, room: u16) -> Option<(u32, usize)> {
        let class = self.classes.entry(room).or_default();
        let number = match class.open.first() {
            Some(&number) => number,
            None => {
                let number = match self.holes.pop_first() {
                    Some(number) => number,
                    None => {
                        let number = u32::try_from(self.chunks.len()).ok();
                        let number = number.filter(|number| number.leading_zeros() >= ENTRY_BITS)?;
                        self.chunks.push(None);
                        number
                    }
                };
                let mut chunk = Chunk::new(room);
                if class.chunks > 0 {
                    // The first one grows with its queue; where there are more, they fill up anyway.
                    let bytes = chunk.entries_max().saturating_mul(chunk.stride());
                    chunk.bytes.reserve_exact(bytes);
                    self.room = self.room.saturating_add(bytes);
                }
                *self.chunks.get_mut(number as usize)? = Some(chunk);
                class.chunks = class.chunks.saturating_add(1);
                class.open.insert(number);
                number
            }
        };
        class.jobs = class.jobs.saturating_add(1);
        let chunk = self.chunks.get_mut(number as usize)?.as_mut()?;
        let before = chunk.bytes.capacity();
        let entry = chunk.take()?;
        self.room = self.room.saturating_add(chunk.bytes.capacity()).saturating_sub(before);
        if usize::from(chunk.used) == chunk.entries_max() {
            class.open.remove(&number);
        }
        Some((number, entry))
    }

    fn give_back(&mut self, chunk_no: u32, number: usize) {
        let Some(place) = self.chunks.get_mut(chunk_no as usize) else { return };
        let Some(chunk) = place else { return };
        let others = self.classes.len().saturating_sub(1);
        let Some(class) = self.classes.get_mut(&chunk.room) else { return };
        class.jobs = class.jobs.saturating_sub(1);
        let before = chunk.bytes.capacity();
        chunk.give_back(number);
        if class.is_sparse(chunk) {
            self.sparse.insert(chunk.room);
        }
        let left = chunk.bytes.capacity();
        if usize::from(chunk.used).saturating_add(1) == chunk.entries_max() {
            class.open.insert(chunk_no);
        }
        let is_last = class.chunks == 1;
        // An only chunk is kept, empty or not, unless its number keeps room for those below it.
        let is_kept = is_last && others == 0 && chunk_no == 0;
        if chunk.used > 0 || is_kept {
            self.room = self.room.saturating_add(left).saturating_sub(before);
            return;
        }
        class.open.remove(&chunk_no);
        class.chunks = class.chunks.saturating_sub(1);
        if is_last {
            let room = chunk.room;
            self.classes.remove(&room);
        }
        *place = None;
        self.room = self.room.saturating_sub(before);
        self.holes.insert(chunk_no);
        while self.chunks.last().is_some_and(Option::is_none) {
            self.chunks.pop();
            if let Ok(number) = u32::try_from(self.chunks.len()) {
                self.holes.remove(&number);
            }
        }
        if self.chunks.capacity() > 64 && self.chunks.len() < self.chunks.capacity() / 4 {
            self.chunks.shrink_to(self.chunks.len().saturating_mul(2));
        }
    }

    /// Whether the books agree with the entries.
    ///
    /// # Errors
    /// What does not.
    pub fn audit(&self) -> Result<(), String> {
        let chunks = || self.chunks.iter().flatten();
        let room = chunks().fold(0usize, |sum, chunk| sum.saturating_add(chunk.bytes.capacity()));
        let used = chunks().fold(0usize, |sum, chunk| sum.saturating_add(usize::from(chunk.used)));
        let (mut lives, mut mores, mut larges, mut heap_bytes) = (0usize, 0usize, 0usize, 0usize);
        let count =
            |counter: &mut usize, counts: bool| *counter = counter.saturating_add(usize::from(counts));
        let mut len = 0usize;
        for (slot, job) in self.iter() {
            let head = self.head(slot).ok_or("a job without a head")?;
            count(&mut len, true);
            count(&mut lives, head.life > 0);
            count(&mut mores, head.more > 0);
            count(&mut larges, head.kind & LARGE != 0);
            let payload = if head.kind & LARGE != 0 { allocated(job.payload.len()) } else { 0 };
            heap_bytes = heap_bytes.saturating_add(payload);
            heap_bytes = heap_bytes.saturating_add(job.more.map_or(0, More::heap_bytes));
        }
        let jobs = self.classes.values().fold(0usize, |sum, class| sum.saturating_add(class.jobs as usize));
        if jobs != len {
            return Err(format!("I2: {jobs} jobs in classes, found {len}"));
        }
        let kept =
            [self.room, self.len, self.lives.len(), self.mores.len(), self.larges.len(), self.heap_bytes];
        let found = [room, len, lives, mores, larges, heap_bytes];
        if kept != found || used != len {
            return Err(format!("I2: the store keeps {kept:?}, found {found:?} and {used} used"));
        }
        Ok(())
    }

    /// All jobs, in no order that may matter.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, Job<'_>)> {
        self.chunks.iter().enumerate().flat_map(move |(chunk_no, chunk)| {
            let len = chunk.as_ref().map_or(0, Chunk::len);
            (0..len).filter_map(move |number| {
                let slot = Slot(u32::try_from(chunk_no << ENTRY_BITS | number).ok()?);
                Some((slot, self.get(slot)?))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::JobOptions;
    use super::super::chunk::CHUNK_BYTES;
    use super::super::group::GroupNo;
    use super::super::job::State;
    use super::*;

    /// What a job must still be.
    type Known = (Fields, Option<More>, Vec<u8>);

    fn same(store: &Store, slot: Slot, (fields, more, payload): &Known) {
        let job = store.get(slot).expect("the job is there");
        assert_eq!((&job.fields, job.more, job.payload), (fields, more.as_ref(), payload.as_slice()));
    }

    /// A change of every kind of field, and back again.
    fn change(draft: &mut Draft, kind: u64) {
        match kind {
            0 => draft.at = u64::MAX,
            1 => draft.worker = Holder(WORKERS_MAX - 1),
            2 => draft.deliveries = DELIVERIES_MAX,
            3 => draft.spent.crashes = u32::MAX,
            4 => draft.more().error = Some(Box::from(&b"text"[..])),
            5 => {
                draft.more().options = Some(Box::new(JobOptions { lease: Some(1), ..JobOptions::default() }))
            }
            6 => draft.state = State::Cancelled,
            7 => (draft.follows_wall, draft.acked) = (!draft.follows_wall, !draft.acked),
            8 => (draft.keeps_place, draft.cancelling) = (!draft.keeps_place, !draft.cancelling),
            9 => draft.more = None,
            10 => (draft.touched, draft.token) = (u64::MAX, Serial::MAX),
            _ => {
                let (arrival, group, enqueued) = (draft.arrival, draft.group, draft.enqueued);
                *draft = Draft { fields: Fields::new(arrival, group, enqueued), more: None };
            }
        }
    }

    #[test]
    fn agrees_with_a_hash_map_and_gives_memory_back() {
        let mut store = Store::default();
        let mut model = HashMap::<Slot, Known>::new();
        let mut random = 1u64;
        let mut dice = move |sides: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % sides
        };
        let lengths = [0, 1, 4, 5, 100, 128, 129, 255, 256, 257, 512, 513, 1_024, 1_025, 5_000];
        for round in 0..40_000u64 {
            let growing = (round / 8_000).is_multiple_of(2);
            let pick = |model: &HashMap<Slot, Known>| model.keys().next().copied();
            match dice(12) {
                0..5 if growing || model.is_empty() => {
                    let length = if dice(3) > 0 { 100 } else { lengths[dice(15) as usize] };
                    let payload: Vec<u8> = (0..length).map(|at| (at as u64 ^ round) as u8).collect();
                    let fields = Fields::new(Serial(round), GroupNo(dice(1 << 32) as u32), dice(1 << 40));
                    let draft = Draft { fields, more: None };
                    let slot = store.insert(&draft.fields, draft.more, &payload).expect("there is room");
                    assert!(model.insert(slot, (fields, None, payload)).is_none(), "the slot was in use");
                }
                0..9 => {
                    let Some(slot) = pick(&model) else { continue };
                    if dice(3) == 0 {
                        assert!(store.remove(slot) && !store.remove(slot));
                        assert!(store.get(slot).is_none());
                        model.remove(&slot);
                        continue;
                    }
                    let kind = dice(12);
                    assert!(store.edit(slot, |draft| change(draft, kind)).is_some());
                    let job = store.get(slot).expect("the job is there");
                    let mut draft = Draft { fields: model[&slot].0, more: model[&slot].1.clone() };
                    change(&mut draft, kind);
                    // What is used up stands in `more`, where an empty one is none.
                    if draft.fields.spent != Spent::default() || draft.more.is_some() {
                        draft.more().spent = draft.fields.spent;
                    }
                    draft.more = draft.more.filter(|more| !more.is_empty());
                    assert_eq!((job.fields, job.more), (draft.fields, draft.more.as_ref()), "change {kind}");
                    model.insert(slot, (draft.fields, draft.more, model[&slot].2.clone()));
                }
                _ => {
                    if let Some(from) = store.stray() {
                        let known = model.remove(&from).expect("a stray is a job");
                        let to = store.settle(from).expect("it finds a place");
                        assert!(to.0 < from.0 && !model.contains_key(&to));
                        same(&store, to, &known);
                        model.insert(to, known);
                    }
                }
            }
            assert_eq!(store.len(), model.len());
            if round % 1_000 == 0 {
                store.audit().unwrap();
                model.iter().for_each(|(&slot, known)| same(&store, slot, known));
                assert_eq!(store.iter().count(), model.len());
            }
        }
        for slot in model.into_keys() {
            store.remove(slot);
        }
        store.audit().unwrap();
        assert!(store.bytes() < 3 * CHUNK_BYTES, "{} bytes left", store.bytes());
    }
}

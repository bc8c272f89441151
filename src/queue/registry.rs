//! The workers that a queue knows, and what each of them holds.

use std::collections::BTreeMap;
use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::job::{Fields, Slot, State};
use super::serial::Serial;
use super::slab::{Number, Slab};
use super::store::{Store, WORKERS_MAX};
use super::timeline::Sorted;
use super::view::WorkerView;

/// Number of a worker: given in order of registration, never reused in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct WorkerNo(pub u64);

/// Where a worker lies as long as it is registered. Says nothing about order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WorkerSlot(u32);

impl Number for WorkerSlot {
    fn new(number: u32) -> Self {
        Self(number)
    }
    fn number(self) -> u32 {
        self.0
    }
}

/// What a job knows its worker by. An active one is found by its slot, which stays while it holds a job. Of the last
/// worker, which may be forgotten, the number is left; nothing but the persisted form shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holder(pub u64);

impl Holder {
    pub const fn active(slot: WorkerSlot) -> Self {
        Self(slot.0 as u64)
    }

    pub const fn last(number: WorkerNo) -> Self {
        Self(number.0)
    }

    /// Of an active job.
    pub const fn slot(self) -> WorkerSlot {
        WorkerSlot(self.0 as u32)
    }

    /// Of a job that is not active.
    pub const fn number(self) -> WorkerNo {
        WorkerNo(self.0)
    }
}

/// A worker.
#[derive(Clone, Debug)]
pub(super) struct Worker {
    pub number: WorkerNo,
    pub name: Box<[u8]>,
    /// Duration clock, ms.
    pub first_seen: u64,
    /// Duration clock, ms. This server's own knowledge: not persisted, not compared.
    pub last_seen: u64,
    pub done: u64,
    pub failed: u64,
    pub crashed: u64,
    /// What it holds, oldest token first.
    pub held: Sorted<Serial, Slot>,
}

impl Worker {
    /// Notes a sign of life.
    pub fn seen(&mut self, now: u64) {
        self.last_seen = self.last_seen.max(now);
    }

    pub fn view(&self) -> WorkerView<'_> {
        WorkerView {
            name: &self.name,
            first_seen: self.first_seen,
            last_seen: self.last_seen,
            active: self.held.len(),
            done: self.done,
            failed: self.failed,
            crashed: self.crashed,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Registry {
    workers: Slab<WorkerSlot, Worker>,
    /// By name. Look-ups only: its order cannot matter.
    names: HashTable<WorkerSlot>,
    hasher: DefaultHashBuilder,
    /// In order of registration. Looked at when a worker comes or goes, and by those who want that order.
    order: BTreeMap<WorkerNo, WorkerSlot>,
    /// Number of the next to register.
    next: u64,
    name_bytes: usize,
}

impl Registry {
    pub const fn len(&self) -> usize {
        self.workers.len()
    }

    /// Bytes on the heap, about: a worker's place in the order takes some 32, what it holds 64 or more. O(1).
    pub fn bytes(&self) -> usize {
        self.workers
            .bytes()
            .saturating_add(self.name_bytes)
            .saturating_add(self.names.allocation_size())
            .saturating_add(self.len().saturating_mul(96))
    }

    /// The number that the next worker will get. Part of what is persisted.
    pub const fn next_number(&self) -> u64 {
        self.next
    }

    pub const fn set_next_number(&mut self, next: u64) {
        self.next = next;
    }

    pub fn find(&self, name: &[u8]) -> Option<WorkerSlot> {
        let is_it = |&slot: &WorkerSlot| self.get(slot).is_some_and(|worker| *worker.name == *name);
        self.names.find(self.hasher.hash_one(name), is_it).copied()
    }

    pub fn numbered(&self, number: WorkerNo) -> Option<WorkerSlot> {
        self.order.get(&number).copied()
    }

    #[inline]
    pub fn get(&self, slot: WorkerSlot) -> Option<&Worker> {
        self.workers.get(slot)
    }

    #[inline]
    pub fn get_mut(&mut self, slot: WorkerSlot) -> Option<&mut Worker> {
        self.workers.get_mut(slot)
    }

    /// Number of the worker that holds a job, or held it last.
    pub fn number_of(&self, job: &Fields) -> WorkerNo {
        let owner = if job.state == State::Active { self.get(job.worker.slot()) } else { None };
        owner.map_or(job.worker.number(), |owner| owner.number)
    }

    pub fn named(&self, name: &[u8]) -> Option<&Worker> {
        self.get(self.find(name)?)
    }

    /// In order of registration.
    pub fn iter(&self) -> impl Iterator<Item = (WorkerSlot, &Worker)> {
        self.iter_from(WorkerNo(0))
    }

    /// Those registered under this number or a later one, in that order.
    pub fn iter_from(&self, number: WorkerNo) -> impl Iterator<Item = (WorkerSlot, &Worker)> {
        self.order.range(number..).filter_map(|(_, &slot)| Some((slot, self.get(slot)?)))
    }

    /// Adds a worker. `None` if its name or its number is taken.
    pub fn add(&mut self, worker: Worker) -> Option<WorkerSlot> {
        let (number, length) = (worker.number, worker.name.len());
        if self.order.contains_key(&number) || self.find(&worker.name).is_some() {
            return None;
        }
        let hash = self.hasher.hash_one(&*worker.name);
        let slot = self.workers.insert(worker)?;
        let (workers, hasher) = (&self.workers, &self.hasher);
        let rehash =
            |&slot: &WorkerSlot| workers.get(slot).map_or(0, |worker| hasher.hash_one(&*worker.name));
        self.names.insert_unique(hash, slot, rehash);
        self.order.insert(number, slot);
        self.next = self.next.max(number.0.saturating_add(1));
        self.name_bytes = self.name_bytes.saturating_add(length);
        Some(slot)
    }

    /// Notes a sign of life; registers a worker that is new, and says whether it was. `None`: the
    /// numbers are used up.
    pub fn seen(&mut self, name: &[u8], now: u64) -> Option<(WorkerSlot, bool)> {
        if let Some(slot) = self.find(name) {
            self.get_mut(slot)?.seen(now);
            return Some((slot, false));
        }
        let worker = Worker {
            number: WorkerNo(Some(self.next).filter(|&next| next < WORKERS_MAX)?),
            name: name.into(),
            first_seen: now,
            last_seen: now,
            done: 0,
            failed: 0,
            crashed: 0,
            held: Sorted::default(),
        };
        self.add(worker).map(|slot| (slot, true))
    }

    /// Counts every worker as just seen.
    pub fn all_seen(&mut self, now: u64) {
        for &slot in self.order.values() {
            if let Some(worker) = self.workers.get_mut(slot) {
                worker.last_seen = now;
            }
        }
    }

    /// Forgets a worker that holds nothing. Whether it was there and did.
    pub fn forget(&mut self, name: &[u8]) -> bool {
        let Some(slot) = self.find(name) else { return false };
        let idle = self.get(slot).filter(|worker| worker.held.is_empty());
        let Some(number) = idle.map(|worker| worker.number) else { return false };
        self.order.remove(&number);
        if let Ok(entry) = self.names.find_entry(self.hasher.hash_one(name), |&other| other == slot) {
            entry.remove();
        }
        self.workers.remove(slot);
        self.name_bytes = self.name_bytes.saturating_sub(name.len());
        true
    }

    /// What a worker holds, oldest token first, behind `after`.
    pub fn held_by(&self, name: &[u8], after: Option<Serial>, jobs: &Store) -> impl Iterator<Item = Slot> {
        self.named(name).into_iter().flat_map(move |worker| worker.held.iter_after(after, jobs.token_of()))
    }
}

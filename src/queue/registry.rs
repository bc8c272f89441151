//! The workers that a queue knows, and what each of them holds.

use std::collections::BTreeMap;

use hashbrown::HashMap;

use super::job::Slot;
use super::serial::Serial;
use super::store::{Store, WORKERS_MAX};
use super::timeline::Sorted;
use super::view::WorkerView;

/// Number of a worker: given in order of registration, never reused in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct WorkerNo(pub u64);

/// A worker.
#[derive(Clone, Debug)]
pub(super) struct Worker {
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
    fn view(&self) -> WorkerView<'_> {
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
    workers: BTreeMap<WorkerNo, Worker>,
    numbers: HashMap<Box<[u8]>, WorkerNo>,
    /// Number of the next to register.
    next: u64,
    name_bytes: usize,
}

impl Registry {
    pub fn len(&self) -> usize {
        self.workers.len()
    }

    pub fn bytes(&self) -> usize {
        self.name_bytes
            .saturating_mul(2)
            .saturating_add(self.len().saturating_mul(size_of::<Worker>().saturating_add(64)))
    }

    /// The number that the next worker will get. Part of what is persisted.
    pub const fn next_number(&self) -> u64 {
        self.next
    }

    pub const fn set_next_number(&mut self, next: u64) {
        self.next = next;
    }

    pub fn number(&self, name: &[u8]) -> Option<WorkerNo> {
        self.numbers.get(name).copied()
    }

    pub fn get(&self, number: WorkerNo) -> Option<&Worker> {
        self.workers.get(&number)
    }

    pub fn get_mut(&mut self, number: WorkerNo) -> Option<&mut Worker> {
        self.workers.get_mut(&number)
    }

    pub fn name(&self, number: WorkerNo) -> Option<&[u8]> {
        self.get(number).map(|worker| &*worker.name)
    }

    pub fn view(&self, name: &[u8]) -> Option<WorkerView<'_>> {
        self.get(self.number(name)?).map(Worker::view)
    }

    pub fn iter(&self) -> impl Iterator<Item = WorkerView<'_>> {
        self.workers.values().map(Worker::view)
    }

    /// Those registered under this number or a later one.
    pub fn iter_from(&self, number: u64) -> impl Iterator<Item = (WorkerNo, WorkerView<'_>)> {
        self.workers.range(WorkerNo(number)..).map(|(&number, worker)| (number, worker.view()))
    }

    pub fn numbered_from(&self, from: WorkerNo) -> impl Iterator<Item = (WorkerNo, &Worker)> {
        self.workers.range(from..).map(|(&number, worker)| (number, worker))
    }

    pub fn numbered(&self) -> impl Iterator<Item = (WorkerNo, &Worker)> {
        self.workers.iter().map(|(&number, worker)| (number, worker))
    }

    /// Adds a worker under a number of its own. `None` if the name or the number is taken.
    pub fn add(&mut self, number: WorkerNo, worker: Worker) -> Option<()> {
        if self.numbers.contains_key(&worker.name) || self.workers.contains_key(&number) {
            return None;
        }
        self.next = self.next.max(number.0.saturating_add(1));
        self.name_bytes = self.name_bytes.saturating_add(worker.name.len());
        self.numbers.insert(worker.name.clone(), number);
        self.workers.insert(number, worker);
        Some(())
    }

    /// Notes a sign of life; registers a worker that is new, and says whether it was. `None`: the
    /// numbers are used up.
    pub fn seen(&mut self, name: &[u8], now: u64) -> Option<(WorkerNo, bool)> {
        if let Some(number) = self.number(name) {
            self.seen_number(number, now);
            return Some((number, false));
        }
        let number = WorkerNo(Some(self.next).filter(|&next| next < WORKERS_MAX)?);
        let worker = Worker {
            name: name.into(),
            first_seen: now,
            last_seen: now,
            done: 0,
            failed: 0,
            crashed: 0,
            held: Sorted::default(),
        };
        self.add(number, worker).map(|()| (number, true))
    }

    pub fn seen_number(&mut self, number: WorkerNo, now: u64) {
        if let Some(worker) = self.get_mut(number) {
            worker.last_seen = worker.last_seen.max(now);
        }
    }

    /// Counts every worker as just seen.
    pub fn all_seen(&mut self, now: u64) {
        for worker in self.workers.values_mut() {
            worker.last_seen = now;
        }
    }

    /// Forgets a worker that holds nothing. Whether it was there and did.
    pub fn forget(&mut self, name: &[u8]) -> bool {
        let Some(number) = self.number(name) else { return false };
        if self.get(number).is_none_or(|worker| !worker.held.is_empty()) {
            return false;
        }
        self.numbers.remove(name);
        self.workers.remove(&number);
        self.name_bytes = self.name_bytes.saturating_sub(name.len());
        true
    }

    /// What a worker holds, oldest token first, behind `after`.
    pub fn held_by(&self, name: &[u8], after: Option<Serial>, jobs: &Store) -> impl Iterator<Item = Slot> {
        let worker = self.number(name).and_then(|number| self.get(number));
        worker.into_iter().flat_map(move |worker| worker.held.iter_after(after, jobs.token_of()))
    }
}

//! The audit: recomputes from the jobs alone what the containers, counters and limits claim, and
//! says what does not agree. O(n log n); for tests, debug builds, and what comes from bytes.

use std::collections::{BTreeMap, BTreeSet};

use super::job::{Job, State};
use super::limits::{CLOCK_MS_MAX, INSTANT_MS_MAX, NAME_BYTES_MAX, OUTPUT_BYTES_MAX};
use super::serial::{Id, Serial};
use super::{Counts, Queue};

/// Fails the audit with a text when a condition does not hold.
macro_rules! hold {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err(format!($($text)+));
        }
    };
}

impl Queue {
    /// Checks every invariant that can be seen in one state.
    ///
    /// # Errors
    /// The first violation found, with the invariant's number.
    pub fn audit(&self) -> Result<(), String> {
        let mut counts = Counts::default();
        let mut deadlines = 0;
        let mut named = [0usize; 2];
        let mut arrivals = BTreeSet::new();
        let mut by_group = BTreeMap::<u32, Counts>::new();
        for (slot, job) in self.jobs.iter() {
            let of_group = by_group.entry(job.group.0).or_default();
            if let Some(count) = of_group.of(job.state) {
                *count = count.saturating_add(1);
            }
            let id = job.id();
            hold!(arrivals.insert(job.arrival), "I3: arrival number {} is used twice", job.arrival);
            hold!(self.find(id) == Some(slot), "I1: {id:?} is not found by its id");
            let key = job.lock().map(|lock| &*lock.key);
            let holder = key.and_then(|key| self.index.holder(key, &self.jobs));
            hold!(key.is_none() || holder == Some(slot), "I14: {id:?} is not found by its key");
            for (count, counts) in named.iter_mut().zip([job.custom_id().is_some(), key.is_some()]) {
                *count = count.saturating_add(usize::from(counts));
            }
            self.audit_container(slot, &job)?;
            self.audit_job(&job).map_err(|text| format!("{text}: {id:?}"))?;
            deadlines = usize::from(job.pending_deadline().is_some()).saturating_add(deadlines);
            if let Some(count) = counts.of(job.state) {
                *count = count.saturating_add(1);
            }
        }
        hold!(counts == self.counts, "I2: counts are {:?}, found {counts:?}", self.counts);
        let kept = self.index.named();
        hold!(kept == named, "I2: {kept:?} entries for {named:?} ids of clients and keys");
        self.jobs.audit()?;
        for (state, len) in [
            (State::Delayed, self.timed.delayed.len().saturating_add(self.timed.delayed_wall.len())),
            (State::Active, self.timed.leases.len()),
            (State::Done, self.timed.done.len()),
            (State::Dead, self.timed.dead.len()),
            (State::Cancelled, self.timed.cancelled.len()),
        ] {
            hold!(
                len == counts.get(state),
                "I1: {len} entries for {} {} jobs",
                counts.get(state),
                state.name()
            );
        }
        hold!(
            self.timed.deadlines.len() == deadlines,
            "I1: {} deadlines for {deadlines} jobs",
            self.timed.deadlines.len()
        );
        for (number, group) in self.groups.iter_after(None) {
            let found = by_group.remove(&number.0).unwrap_or_default();
            hold!(group.counts == found, "I2: a group counts {:?}, found {found:?}", group.counts);
        }
        hold!(by_group.is_empty(), "I1: a job belongs to a group that is not there");
        hold!(
            self.gate.active as usize == counts.get(State::Active),
            "I8: {} active in all",
            self.gate.active
        );
        self.groups.audit(self.terms())?;
        self.audit_registry(counts.get(State::Active))?;
        self.audit_totals()?;
        hold!(self.clock.now <= CLOCK_MS_MAX && self.clock.wall <= CLOCK_MS_MAX, "the clock is out of range");
        hold!(
            self.gate.paused_until.is_none_or(|until| until <= INSTANT_MS_MAX || until == u64::MAX),
            "pause is out of range"
        );
        Ok(())
    }

    /// I1, I6, I7: the job is in the container of its state under the key of its fields.
    fn audit_container(&self, slot: super::Slot, job: &Job<'_>) -> Result<(), String> {
        let (jobs, timed) = (&self.jobs, &self.timed);
        let timeline = match job.state {
            State::Ready => None,
            State::Delayed if job.follows_wall => Some(&timed.delayed_wall),
            State::Delayed => Some(&timed.delayed),
            State::Active => Some(&timed.leases),
            State::Done => Some(&timed.done),
            State::Dead => Some(&timed.dead),
            State::Cancelled => Some(&timed.cancelled),
        };
        let found = match timeline {
            Some(timeline) => timeline.get((job.at, job.arrival), jobs.at_of()) == Some(slot),
            None => self.groups.get(job.group).is_some_and(|group| {
                group.ready.contains(job.priority, (job.since, job.arrival), slot, jobs.since_of())
            }),
        };
        hold!(found, "I1: {:?} is not in the container of {}", job.id(), job.state.name());
        if let Some(deadline) = job.pending_deadline() {
            let found = timed.deadlines.get((deadline, job.arrival), jobs.deadline_of()) == Some(slot);
            hold!(found, "I1: {:?} is not among the deadlines", job.id());
        }
        Ok(())
    }

    /// What must be true of one job in its state.
    fn audit_job(&self, job: &Job<'_>) -> Result<(), String> {
        let is_final = job.state.is_final();
        hold!(
            job.arrival > Serial::NONE && job.arrival <= self.clock.serial,
            "I3: arrival number out of range"
        );
        hold!(job.token <= self.clock.serial, "I3: token out of range");
        hold!(job.custom_id().is_none_or(Id::is_allowed), "custom id is not allowed");
        let lock_bytes = job.lock().map_or(1, |lock| lock.key.len());
        hold!((1..=NAME_BYTES_MAX).contains(&lock_bytes), "the length of a key is out of range");
        hold!(!is_final || job.at >= job.window_end(), "I14: it would go before its window is over");
        hold!(job.since <= self.clock.now, "I6: its place is in the future");
        hold!(job.enqueued <= self.clock.now && job.touched <= self.clock.now, "instant in the future");
        hold!(job.at <= INSTANT_MS_MAX || (is_final && job.at == u64::MAX), "instant out of range");
        hold!(
            job.state != State::Active || (job.token > Serial::NONE && job.deliveries > 0),
            "I4: active without a token"
        );
        let deadline = job.more.and_then(|more| more.deadline);
        hold!(deadline.is_none() || !is_final, "a deadline on a job that ended");
        hold!(deadline.is_none_or(|at| at <= INSTANT_MS_MAX), "deadline out of range");
        hold!(!job.follows_wall || job.state == State::Delayed, "follows the wall clock without a delay");
        hold!(!job.keeps_place || job.state == State::Delayed, "keeps a place without a delay");
        hold!(!job.cancelling || job.state == State::Active, "cancelling, but not active");
        hold!(!job.acked || matches!(job.state, State::Done | State::Cancelled), "acked, but not done");
        hold!(job.state != State::Done || job.acked, "done, but not acked");
        let reason = job.more.and_then(|more| more.reason);
        hold!(reason.is_some() == (job.state == State::Dead), "I5: a reason goes with dead jobs only");
        if let Some(more) = job.more {
            if let Some(failures) = more.failures() {
                let instants = failures.0;
                hold!(instants.is_sorted() && instants.last() > Some(&0), "false instants of failures");
                hold!(instants.last() <= Some(&self.clock.now), "it failed in the future");
            }
            hold!(!more.is_empty(), "an empty record is kept");
            hold!(more.past.as_ref().is_none_or(|past| !past.is_empty()), "an empty past is kept");
            if let Some(output) = more.output() {
                hold!(output.is_sound(), "I2: an output does not agree with its books");
                hold!(job.state == State::Active || is_final, "an output of a job that waits");
                hold!(job.deliveries > 0, "an output of a job that never ran");
                hold!(output.bytes() as u64 <= OUTPUT_BYTES_MAX, "an output is too large");
            }
            hold!(
                more.last_worker.is_none() || job.state == State::Dead,
                "last worker on a job that is not dead"
            );
        }
        Ok(())
    }

    /// I4: what workers hold is what is active, each with its own token.
    fn audit_registry(&self, active: usize) -> Result<(), String> {
        let mut held = 0usize;
        for (place, worker) in self.registry.iter() {
            hold!(
                self.registry.find(&worker.name) == Some(place)
                    && self.registry.numbered(worker.number) == Some(place),
                "I2: a worker is not found by its name or its number"
            );
            hold!(worker.first_seen <= self.clock.now, "a worker was first seen in the future");
            let mut last = Serial::NONE;
            for slot in worker.held.iter() {
                let job = self.jobs.get(slot).filter(|job| job.state == State::Active);
                let token =
                    job.filter(|job| job.worker.slot() == place && job.token > last).map(|job| job.token);
                last =
                    token.ok_or_else(|| format!("I4: behind {last}, a worker holds what is not its own"))?;
            }
            held = held.saturating_add(worker.held.len());
        }
        hold!(held == active, "I4: workers hold {held} of {active} active jobs");
        Ok(())
    }

    /// I9.
    fn audit_totals(&self) -> Result<(), String> {
        let here = self.jobs.len() as u64;
        hold!(
            here.wrapping_add(self.totals.removed) == self.totals.enqueued,
            "I9: {} enqueued, but {here} here and {} removed",
            self.totals.enqueued,
            self.totals.removed
        );
        Ok(())
    }
}

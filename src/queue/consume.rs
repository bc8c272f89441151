//! What workers do: claim, ack, fail, release, extend, progress.

use super::circuit::Throttle;
use super::group::{Group, GroupNo, Terms};
use super::job::{Draft, Fields, Job, Reason, Slot, State};
use super::limits::{self, clip};
use super::mover::Ending;
use super::op::{Claim, Delivery, Effects, Failure, Held, Outcome};
use super::registry::{Holder, Worker, WorkerSlot};
use super::serial::Serial;
use super::store::DELIVERIES_MAX;
use super::{Error, Queue, backoff};

/// What a group needs to know when it is told something.
pub(super) struct Told {
    pub terms: Terms,
    /// The last serial taken.
    pub last: Serial,
    /// The group's effective settings.
    pub of_group: super::GroupDefaults,
}

impl Told {
    /// How long the circuit stays open at this level, ms.
    pub fn wait(&self, level: u32) -> u64 {
        backoff::wait(self.of_group.backoff, self.last, level)
    }
}

impl Queue {
    /// The job that is active with this token.
    fn delivery(&self, delivery: Delivery<'_>) -> Result<Slot, Error> {
        match self.lookup(delivery.id) {
            Some((slot, job)) if job.state == State::Active && job.token == delivery.token => Ok(slot),
            Some(_) => Err(Error::Stale),
            None => Err(Error::NoJob),
        }
    }

    /// As [`Self::delivery`], and a sign of life of its owner.
    pub(super) fn current(&mut self, delivery: Delivery<'_>) -> Result<Slot, Error> {
        let slot = self.delivery(delivery)?;
        let now = self.clock.now;
        if let Some(worker) = self.owner(slot) {
            worker.seen(now);
        }
        Ok(slot)
    }

    fn is_cancelling(&self, slot: Slot) -> bool {
        self.jobs.get(slot).is_some_and(|job| job.cancelling)
    }

    /// Tells a job's group what became of the delivery with the token that it is given, and looks
    /// at the group anew.
    pub(super) fn tell_group(&mut self, slot: Slot, tell: impl FnOnce(&mut Group, Told, Serial)) {
        let Some(job) = self.jobs.get(slot) else { return };
        let (number, token) = (job.group, job.token);
        let (terms, last) = (self.terms(), self.clock.serial);
        let Some(group) = self.groups.get_mut(number) else { return };
        let told = Told { terms, last, of_group: group.terms(&terms.defaults) };
        tell(group, told, token);
        self.refresh_group(number);
    }

    /// As [`Self::tell_group`], of what matters only while the group's endpoint is in trouble.
    pub(super) fn tell_troubled(&mut self, slot: Slot, tell: impl FnOnce(&mut Group, Told, Serial)) {
        let group = self.jobs.get(slot).and_then(|job| self.groups.get(job.group));
        if group.is_some_and(|group| !group.is_calm()) {
            self.tell_group(slot, tell);
        }
    }

    /// Whether the job's group is ordered.
    pub(super) fn is_ordered(&self, fields: &Fields) -> bool {
        let group = self.groups.get(fields.group);
        group.is_some_and(|group| group.terms(&self.settings.group).ordered)
    }

    pub(super) fn claim(&mut self, claim: &Claim<'_>, fx: &mut Effects<'_>) -> Outcome {
        let Some((worker, is_new)) = self.registry.seen(claim.worker, self.clock.now) else {
            return Outcome::Claimed;
        };
        // While a changed default is being applied, even a look may move groups out of line.
        fx.changed |= is_new || self.groups.review.is_some();
        // Jobs past their deadline that no sweep has met yet are settled here, a slice at most.
        let mut expired = 0;
        while fx.claimed.len() < claim.count && expired < limits::SWEEP_SLICE && self.has_serials(1) {
            let Some(slot) = self.take_ready() else { break };
            let Some(job) = self.jobs.get(slot) else { break };
            fx.changed = true;
            if job.pending_deadline().is_some_and(|at| at <= self.clock.now) {
                self.bury(slot, Reason::Deadline, fx);
                expired = expired.saturating_add(1);
            } else {
                self.recent.waited(self.clock.now.saturating_sub(job.since.max(job.touched)));
                self.deliver(slot, job.group, worker, claim.lease);
                fx.claimed.push(slot);
            }
        }
        Outcome::Claimed
    }

    /// The job that is next in line: the one place where ready jobs are chosen.
    fn take_ready(&mut self) -> Option<Slot> {
        if self.hold().is_some() {
            return None;
        }
        let group = self.groups.take(self.terms(), limits::SWEEP_SLICE)?;
        self.groups.get(group)?.ready.first()
    }

    fn deliver(&mut self, slot: Slot, group: GroupNo, worker: WorkerSlot, lease: Option<u64>) {
        let token = self.take_serial();
        let now = self.clock.now;
        self.gate.pass(self.settings.rate, now);
        self.groups.served(group, token, self.terms());
        let queue_lease = self.settings.lease;
        self.shift(slot, |job| {
            let lease = lease.or_else(|| job.options().lease).unwrap_or(queue_lease);
            job.state = State::Active;
            job.at = now.saturating_add(lease);
            job.touched = now;
            job.token = token;
            job.worker = Holder::active(worker);
            job.deliveries = job.deliveries.saturating_add(1).min(DELIVERIES_MAX);
        });
        self.totals.delivered = self.totals.delivered.wrapping_add(1);
    }

    /// Puts an active job back in its place, or ends it if it was cancelled meanwhile.
    pub(super) fn give_back(&mut self, slot: Slot, fx: &mut Effects<'_>) {
        if self.jobs.get(slot).and_then(|job| job.more?.deadline).is_some() {
            self.edit(slot, Draft::clear_deadline);
        }
        self.take_back(slot, fx);
    }

    /// As [`Self::give_back`], of a delivery that never happened: a deadline still holds.
    fn take_back(&mut self, slot: Slot, fx: &mut Effects<'_>) {
        fx.changed = true;
        if self.is_cancelling(slot) {
            self.finish_cancelled(slot, false, fx);
            return;
        }
        let now = self.clock.now;
        self.shift(slot, |job| {
            job.state = State::Ready;
            job.at = 0;
            job.touched = now;
            job.drop_output();
        });
        self.tell_restart(slot, fx);
    }

    /// The worker of an active job says how it went.
    fn note_run(&mut self, slot: Slot) {
        let claimed = self.jobs.get(slot).map_or(0, |job| job.touched);
        self.recent.ran(self.clock.now.saturating_sub(claimed));
    }

    pub(super) fn undo(&mut self, grants: &[Delivery<'_>], fx: &mut Effects<'_>) -> Outcome {
        for &grant in grants {
            if let Ok(slot) = self.delivery(grant) {
                let (terms, group) = (self.terms(), self.jobs.get(slot).map(|job| job.group));
                self.gate.refund(self.settings.rate);
                self.groups.refund(group.unwrap_or_default(), grant.token, terms);
                self.edit(slot, |job| {
                    job.deliveries = job.deliveries.saturating_sub(1);
                    job.drop_output();
                });
                self.totals.delivered = self.totals.delivered.wrapping_sub(1);
                self.take_back(slot, fx);
            }
        }
        Outcome::Done
    }

    pub(super) fn ack(
        &mut self,
        delivery: Delivery<'_>,
        result: Option<&[u8]>,
        ttl: Option<Option<u64>>,
        fx: &mut Effects<'_>,
    ) -> Result<Outcome, Error> {
        let Some(slot) = self.find(delivery.id) else { return Ok(Outcome::Acked(false)) };
        let Some(job) = self.jobs.get(slot) else { return Ok(Outcome::Acked(false)) };
        if job.state != State::Active || job.token != delivery.token {
            let is_repeated = job.acked && job.token == delivery.token;
            return if is_repeated { Ok(Outcome::Acked(false)) } else { Err(Error::Stale) };
        }
        let (cancelling, of_job) = (job.cancelling, job.options().ttl);
        let has_result = result.is_some() || job.output().is_some();
        fx.changed = true;
        self.recent.ran(self.clock.now.saturating_sub(job.touched));
        if let Some(worker) = self.registry.get_mut(job.worker.slot()) {
            worker.seen(self.clock.now);
            worker.done = worker.done.saturating_add(1);
        }
        self.tell_troubled(slot, |group, told, token| {
            group.circuit.answered(token, told.last);
            group.throttle = group.throttle.and_then(|throttle| throttle.succeeded(token, told.terms.now));
        });
        if cancelling {
            self.finish_cancelled(slot, true, fx);
        } else {
            let of_queue = if has_result { self.settings.result_ttl } else { self.settings.ttl };
            let ttl = ttl.or(of_job).unwrap_or(of_queue);
            self.finish(slot, &Ending { state: State::Done, ttl, result, reason: None, acked: true }, fx);
        }
        Ok(Outcome::Acked(true))
    }

    /// The worker that holds an active job.
    pub(super) fn owner(&mut self, slot: Slot) -> Option<&mut Worker> {
        let job = self.jobs.get(slot).filter(|job| job.state == State::Active)?;
        self.registry.get_mut(job.worker.slot())
    }

    pub(super) fn fail(
        &mut self,
        delivery: Delivery<'_>,
        error: Option<&[u8]>,
        how: Failure,
        fx: &mut Effects<'_>,
    ) -> Result<Outcome, Error> {
        let slot = self.current(delivery)?;
        fx.changed = true;
        self.note_run(slot);
        if matches!(how, Failure::Unavailable | Failure::Throttled(_)) {
            return Ok(Outcome::State(self.refuse(slot, error, how, fx)));
        }
        self.tell_troubled(slot, |group, told, token| group.circuit.answered(token, told.last));
        self.totals.failed = self.totals.failed.wrapping_add(1);
        if let Some(worker) = self.owner(slot) {
            worker.failed = worker.failed.saturating_add(1);
        }
        let now = self.clock.now;
        self.edit(slot, |job| {
            job.spent.attempts = job.spent.attempts.saturating_add(1);
            job.note_failure(now);
            job.spent.refusals = 0;
            job.more().error = error.map(clip);
        });
        let Some(job) = self.jobs.get(slot) else { return Err(Error::NoJob) };
        let allowed = job.options().attempts.unwrap_or(self.settings.attempts);
        if job.cancelling {
            self.finish_cancelled(slot, false, fx);
            return Ok(Outcome::State(State::Cancelled));
        }
        if how == Failure::Dead {
            self.bury(slot, Reason::Failed, fx);
            return Ok(Outcome::State(State::Dead));
        }
        if allowed.is_some_and(|allowed| job.spent.attempts >= allowed) {
            self.bury(slot, Reason::Attempts, fx);
            return Ok(Outcome::State(State::Dead));
        }
        let wait = match how {
            Failure::RetryAfter(wait) => wait,
            _ => self.backoff_of(&job, job.spent.attempts),
        };
        Ok(Outcome::State(self.put_off(slot, wait, false, fx)))
    }

    /// The endpoint, not the job, failed: the group is told, and the job keeps its place.
    fn refuse(&mut self, slot: Slot, error: Option<&[u8]>, how: Failure, fx: &mut Effects<'_>) -> State {
        self.totals.refused = self.totals.refused.wrapping_add(1);
        self.edit(slot, |job| {
            job.spent.refusals = job.spent.refusals.saturating_add(u32::from(how == Failure::Unavailable));
            job.more().error = error.map(clip);
        });
        let mut alone = false;
        self.tell_group(slot, |group, told, token| {
            let (now, last) = (told.terms.now, told.last);
            alone = group.name.is_empty();
            match how {
                _ if alone => {}
                Failure::Throttled(length) => {
                    // If it was the probe, it says no more than that: another one goes after the rest.
                    group.circuit.withdrawn(token);
                    let goal = told.of_group.concurrency.unwrap_or(group.gate.active);
                    group.throttle =
                        Some(Throttle::throttled(group.throttle, token, now, last, length, goal));
                }
                _ => group.circuit.unavailable(token, now, last, |level| told.wait(level)),
            }
        });
        if self.is_cancelling(slot) {
            self.finish_cancelled(slot, false, fx);
            return State::Cancelled;
        }
        let Some(job) = self.jobs.get(slot).filter(|_| alone) else {
            self.give_back(slot, fx);
            return State::Ready;
        };
        // Without a group, the job backs off by itself.
        let wait = match how {
            Failure::Throttled(length) => length,
            _ => self.backoff_of(&job, job.spent.refusals),
        };
        self.put_off(slot, wait, true, fx)
    }

    /// The job's back-off number `n`, ms.
    pub(super) fn backoff_of(&self, job: &Job<'_>, n: u32) -> u64 {
        let backoff = job.options().backoff.unwrap_or(self.settings.backoff);
        backoff::wait(backoff, job.arrival, n)
    }

    /// An active job waits before it can run again. Then it has its old place if `keeps_place`,
    /// else the place of the instant at which the wait was over. The state it is in now.
    pub(super) fn put_off(
        &mut self,
        slot: Slot,
        wait: u64,
        keeps_place: bool,
        fx: &mut Effects<'_>,
    ) -> State {
        let now = self.clock.now;
        let state = if wait == 0 { State::Ready } else { State::Delayed };
        let ordered = self.jobs.get(slot).is_some_and(|job| self.is_ordered(&job));
        self.shift(slot, |job| {
            job.state = state;
            job.touched = if state == State::Ready { now } else { 0 };
            job.clear_deadline();
            job.drop_output();
            if !keeps_place {
                job.since = if ordered { job.enqueued } else { now };
            }
            job.keeps_place = keeps_place && state == State::Delayed;
            job.at = if state == State::Delayed { now.saturating_add(wait) } else { 0 };
        });
        self.tell_restart(slot, fx);
        state
    }

    /// Ends a job dead.
    pub(super) fn bury(&mut self, slot: Slot, reason: Reason, fx: &mut Effects<'_>) {
        let ending = Ending {
            state: State::Dead,
            ttl: self.settings.dead_ttl,
            result: None,
            reason: Some(reason),
            acked: false,
        };
        self.finish(slot, &ending, fx);
    }

    pub(super) fn release(&mut self, deliveries: &[Delivery<'_>], fx: &mut Effects<'_>) -> Outcome {
        let outcomes = deliveries.iter().map(|&delivery| match self.current(delivery) {
            Ok(slot) => {
                self.totals.released = self.totals.released.wrapping_add(1);
                self.tell_troubled(slot, |group, _, token| group.circuit.withdrawn(token));
                self.give_back(slot, fx);
                Held::Ok
            }
            Err(_) => Held::Lost,
        });
        Outcome::Held(outcomes.collect())
    }

    pub(super) fn extend(
        &mut self,
        worker: &[u8],
        lease: u64,
        deliveries: &[Delivery<'_>],
        fx: &mut Effects<'_>,
    ) -> Outcome {
        self.note_seen(worker, self.clock.now);
        let until = self.clock.now.saturating_add(lease);
        let outcomes = deliveries.iter().map(|&delivery| match self.current(delivery) {
            Ok(slot) => {
                if self.jobs.get(slot).is_some_and(|job| job.at != until) {
                    self.shift(slot, |job| job.at = until);
                    fx.changed = true;
                }
                self.held(slot)
            }
            Err(_) => Held::Lost,
        });
        Outcome::Held(outcomes.collect())
    }

    /// What the holder of a valid token is told.
    pub(super) fn held(&self, slot: Slot) -> Held {
        if self.is_cancelling(slot) { Held::Cancel } else { Held::Ok }
    }

    pub(super) fn progress(
        &mut self,
        delivery: Delivery<'_>,
        value: &[u8],
        fx: &mut Effects<'_>,
    ) -> Result<Outcome, Error> {
        let slot = self.current(delivery)?;
        let value = clip(value);
        if self.jobs.get(slot).and_then(|job| job.value()) != Some(&*value) {
            self.edit(slot, |job| job.more().value = Some(value));
            fx.changed = true;
        }
        Ok(Outcome::Progressed(self.held(slot)))
    }
}

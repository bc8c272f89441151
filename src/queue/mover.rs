//! The one mover: whatever changes a job's state, container and counters does it here, together.

use super::group::GroupNo;
use super::job::{Draft, Fields, Reason, Slot, State};
use super::op::{Effects, Ended};
use super::registry::Holder;
use super::{Error, Queue, limits};

/// How a job ends.
pub(super) struct Ending<'a> {
    /// A final state.
    pub state: State,
    /// How long it stays, ms; `None`: for ever.
    pub ttl: Option<u64>,
    /// Result of a done job.
    pub result: Option<&'a [u8]>,
    /// Why it is dead.
    pub reason: Option<Reason>,
    /// By an `Ack`.
    pub acked: bool,
}

impl Queue {
    /// Takes a new job in. Its id and its key must be free. Its group is to be refreshed then.
    #[inline]
    pub(super) fn admit(&mut self, draft: Draft, payload: &[u8]) -> Result<Slot, Error> {
        let (deadline, may_be_named) = (draft.pending_deadline(), draft.more.is_some());
        let Draft { fields, more } = draft;
        let slot = self.jobs.insert(&fields, more, payload).ok_or(Error::TooMany)?;
        let named = if may_be_named { self.jobs.get(slot) } else { None };
        match named {
            Some(job) => self.index.insert(&job, slot, &self.jobs),
            None => self.index.insert_serial(fields.arrival, slot, &self.jobs),
        }
        self.link(slot, &fields, deadline);
        self.count_as(None, Some(&fields));
        Ok(slot)
    }

    /// Looks anew at the group of a job that came, went or changed.
    pub(super) fn refresh_group(&mut self, group: GroupNo) {
        let terms = self.terms();
        self.groups.refresh(group, terms);
    }

    /// Changes a job in any way but its ids and its key, and moves it to where it then belongs.
    pub(super) fn shift(&mut self, slot: Slot, change: impl FnOnce(&mut Draft)) {
        let Some(job) = self.jobs.get(slot) else { return };
        let (before, deadline) = (job.fields, job.pending_deadline());
        self.unlink(slot, &before, deadline);
        let owner = self.registry.number_of(&before);
        let after = self.jobs.edit(slot, |job| {
            change(job);
            if job.state != State::Active {
                job.worker = Holder::last(owner);
            }
        });
        if let Some((after, deadline)) = after {
            self.link(slot, &after, deadline);
            self.count_as(Some(&before), Some(&after));
        }
        self.refresh_group(before.group);
    }

    /// Changes what no container is ordered by.
    pub(super) fn edit(&mut self, slot: Slot, change: impl FnOnce(&mut Draft)) {
        self.jobs.edit(slot, change);
    }

    /// Takes its key from a job, for another to have it.
    pub(super) fn free_key(&mut self, slot: Slot) {
        if let Some(job) = self.jobs.get(slot) {
            self.index.remove_key(&job, slot);
        }
        self.edit(slot, |job| job.more().unique = None);
    }

    /// Ends a job: reports it, and retains it or not.
    pub(super) fn finish(&mut self, slot: Slot, ending: &Ending<'_>, fx: &mut Effects<'_>) {
        let Some(job) = self.jobs.get(slot) else { return };
        let now = self.clock.now;
        // A job that locks its key for a time stays that long.
        let least = job.window_end().saturating_sub(now);
        let ttl = ending.ttl.map(|ttl| ttl.max(least));
        if let Some(observer) = &mut fx.observer {
            let value = match ending.state {
                State::Done => ending.result,
                State::Dead => job.error(),
                _ => None,
            };
            let run = u64::from(job.deliveries);
            let (id, state) = (job.id(), Some(ending.state));
            observer.ended(&Ended { id, run, state, value, ttl });
        }
        let total = match ending.state {
            State::Done => &mut self.totals.done,
            State::Dead => &mut self.totals.dead,
            _ => &mut self.totals.cancelled,
        };
        *total = total.wrapping_add(1);
        if ttl == Some(0) {
            self.discard(slot);
            return;
        }
        let is_lost = job.state == State::Active && ending.state == State::Dead;
        let last_worker =
            is_lost.then(|| self.registry.get(job.worker.slot())).flatten().map(|worker| worker.name.clone());
        let expires = ttl.map_or(u64::MAX, |ttl| now.saturating_add(ttl));
        self.shift(slot, |job| {
            job.state = ending.state;
            job.at = expires;
            job.touched = now;
            job.follows_wall = false;
            job.keeps_place = false;
            job.cancelling = false;
            job.acked = ending.acked;
            let more = job.more();
            more.value = ending.result.map(Box::from);
            more.reason = ending.reason;
            more.deadline = None;
            if last_worker.is_some() {
                more.last_worker = last_worker;
            }
        });
        // One more came, so one goes; two, so that a lowered limit is reached in the end even if
        // no sweep comes between.
        for _ in 0..2 {
            self.evict_over_keep(fx);
        }
    }

    /// Removes a job that is not to be seen again, reporting it to whoever waits for its end.
    pub(super) fn remove(&mut self, slot: Slot, fx: &mut Effects<'_>) {
        if let (Some(job), Some(observer)) = (self.jobs.get(slot), &mut fx.observer)
            && !job.state.is_final()
        {
            let run = u64::from(job.deliveries);
            observer.ended(&Ended { id: job.id(), run, state: None, value: None, ttl: Some(0) });
        }
        self.discard(slot);
    }

    /// As [`Self::remove`], and nobody is told.
    pub(super) fn discard(&mut self, slot: Slot) {
        let Some(job) = self.jobs.get(slot) else { return };
        let (before, deadline) = (job.fields, job.pending_deadline());
        self.index.remove(&job, slot, &self.jobs);
        self.unlink(slot, &before, deadline);
        self.jobs.remove(slot);
        self.count_as(Some(&before), None);
        self.totals.removed = self.totals.removed.wrapping_add(1);
        self.refresh_group(before.group);
    }

    /// After jobs have gone, moves some of those left to where their room can be shared: four for each,
    /// which keeps a quarter of the room used whichever go, and no more than a slice. No slot that
    /// somebody still holds may be used after that.
    pub(super) fn draw_together(&mut self, gone: u64) {
        for _ in 0..gone.saturating_mul(4).min(limits::SWEEP_SLICE as u64) {
            let Some(from) = self.jobs.stray() else { return };
            let Some(job) = self.jobs.get(from) else { return };
            let (fields, deadline) = (job.fields, job.pending_deadline());
            self.index.remove(&job, from, &self.jobs);
            self.unlink(from, &fields, deadline);
            let Some(to) = self.jobs.settle(from) else { return };
            if let Some(job) = self.jobs.get(to) {
                self.index.insert(&job, to, &self.jobs);
            }
            self.link(to, &fields, deadline);
        }
    }

    /// Evicts one job if more are retained than the settings allow. Whether it did.
    pub(super) fn evict_over_keep(&mut self, fx: &mut Effects<'_>) -> bool {
        let victim = if self.over_keep_done() {
            // Of both, the one that would expire first.
            let both = [self.timed.done.first(), self.timed.cancelled.first()];
            both.into_iter().flatten().min_by_key(|&slot| self.jobs.at_of()(slot))
        } else if self.over_keep_dead() {
            self.timed.dead.first()
        } else {
            None
        };
        let Some(slot) = victim else { return false };
        self.remove(slot, fx);
        true
    }

    pub(super) fn over_keep_done(&self) -> bool {
        let kept = self.count(State::Done).saturating_add(self.count(State::Cancelled));
        self.settings.keep_done.is_some_and(|limit| kept as u64 > limit)
    }

    pub(super) fn over_keep_dead(&self) -> bool {
        self.settings.keep_dead.is_some_and(|limit| self.count(State::Dead) as u64 > limit)
    }

    /// Takes a job out of its containers. `deadline` is the pending one.
    #[inline]
    fn unlink(&mut self, slot: Slot, job: &Fields, deadline: Option<u64>) {
        let jobs = &self.jobs;
        if let Some(deadline) = deadline {
            self.timed.deadlines.remove((deadline, job.arrival), slot, jobs.deadline_of());
        }
        if job.state == State::Active
            && let Some(worker) = self.registry.get_mut(job.worker.slot())
        {
            worker.held.remove(job.token, slot, jobs.token_of());
        }
        match self.timed.of(job.state, job.follows_wall) {
            Some(timeline) => {
                timeline.remove((job.at, job.arrival), slot, jobs.at_of());
            }
            None => {
                let key = (job.since, job.arrival);
                self.groups
                    .change_ready(job.group, |ready| ready.remove(job.priority, key, slot, jobs.since_of()));
            }
        }
    }

    /// Puts a job into the containers where it belongs. `deadline` is the pending one.
    #[inline]
    fn link(&mut self, slot: Slot, job: &Fields, deadline: Option<u64>) {
        let jobs = &self.jobs;
        if let Some(deadline) = deadline {
            self.timed.deadlines.insert((deadline, job.arrival), slot, jobs.deadline_of());
            self.soonest = self.soonest.min(deadline);
        }
        if job.state == State::Active
            && let Some(worker) = self.registry.get_mut(job.worker.slot())
        {
            worker.held.insert(job.token, slot, jobs.token_of());
        }
        match self.timed.of(job.state, job.follows_wall) {
            Some(timeline) => {
                timeline.insert((job.at, job.arrival), slot, jobs.at_of());
                self.soonest = self.soonest.min(job.at);
            }
            None => {
                self.groups.change_ready(job.group, |ready| {
                    ready.insert(job.priority, (job.since, job.arrival), slot, jobs.since_of())
                });
            }
        }
    }

    /// Counts a job that came, went or changed: in the queue, its group and its tenant.
    fn count_as(&mut self, before: Option<&Fields>, after: Option<&Fields>) {
        for (counted, comes) in [(before, false), (after, true)] {
            let Some(job) = counted else { continue };
            if let Some(count) = self.counts.of(job.state) {
                *count = if comes { count.saturating_add(1) } else { count.saturating_sub(1) };
            }
        }
        let active = |counted: Option<&Fields>| counted.is_some_and(|job| job.state == State::Active);
        let change = i32::from(active(after)).saturating_sub(i32::from(active(before)));
        self.gate.active = self.gate.active.saturating_add_signed(change);
        if let Some(job) = after.or(before) {
            self.groups.count_as(job.group, before, after, change);
        }
    }

    /// Whether `more` jobs still fit.
    pub(super) const fn has_room(&self, more: usize) -> bool {
        self.jobs.len().saturating_add(more) <= limits::JOBS_MAX
    }
}

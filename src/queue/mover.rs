//! The one mover: whatever changes a job's state, container and counters does it here, together.

use super::group::GroupNo;
use super::job::{Job, Reason, Slot, State};
use super::op::{Effects, Ended};
use super::registry::held_key;
use super::timeline::Timeline;
use super::{Error, Queue, limits};

/// What a job is counted as in its group.
#[derive(Clone, Copy)]
pub(super) struct Counted {
    pub group: GroupNo,
    pub state: State,
    /// It waits to be handed out again.
    pub is_retry: bool,
}

impl Counted {
    fn of(job: &Job) -> Self {
        Self { group: job.group, state: job.state, is_retry: job.is_retry() }
    }
}

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
    /// Takes a new job in. Its id must be free. Its group is to be refreshed then.
    #[inline]
    pub(super) fn admit(&mut self, job: Job) -> Result<Slot, Error> {
        let bytes = job.heap_bytes();
        let slot = self.jobs.insert(job).ok_or(Error::TooMany)?;
        if let Some(job) = self.jobs.get(slot) {
            self.index.insert(job.id(), slot);
        }
        self.heap_bytes = self.heap_bytes.saturating_add(bytes);
        let after = self.link(slot);
        self.count_as(None, after);
        Ok(slot)
    }

    /// Looks anew at the group of a job that came, went or changed.
    pub(super) fn refresh_group(&mut self, group: GroupNo) {
        let terms = self.terms();
        self.groups.refresh(group, terms);
    }

    /// Changes a job in any way but its ids, and moves it to where it then belongs.
    pub(super) fn shift(&mut self, slot: Slot, change: impl FnOnce(&mut Job)) {
        let Some(before) = self.unlink(slot) else { return };
        self.edit(slot, change);
        let after = self.link(slot);
        self.count_as(Some(before), after);
        self.refresh_group(before.group);
    }

    /// Changes what no container is ordered by.
    pub(super) fn edit(&mut self, slot: Slot, change: impl FnOnce(&mut Job)) {
        if let Some(job) = self.jobs.get_mut(slot) {
            let before = job.heap_bytes();
            change(job);
            job.trim();
            self.heap_bytes = self.heap_bytes.saturating_add(job.heap_bytes()).saturating_sub(before);
        }
    }

    /// Ends a job: reports it, and retains it or not.
    pub(super) fn finish(&mut self, slot: Slot, ending: &Ending<'_>, fx: &mut Effects<'_>) {
        let Some(job) = self.jobs.get(slot) else { return };
        if let Some(observer) = &mut fx.observer {
            let value = match ending.state {
                State::Done => ending.result,
                State::Dead => job.error(),
                _ => None,
            };
            observer.ended(&Ended { id: job.id(), state: Some(ending.state), value, ttl: ending.ttl });
        }
        let total = match ending.state {
            State::Done => &mut self.totals.done,
            State::Dead => &mut self.totals.dead,
            _ => &mut self.totals.cancelled,
        };
        *total = total.wrapping_add(1);
        if ending.ttl == Some(0) {
            self.discard(slot);
            return;
        }
        let now = self.clock.now;
        let last_worker = (ending.state == State::Dead && job.state == State::Active)
            .then(|| self.registry.name(job.worker).map(Box::from))
            .flatten();
        let expires = ending.ttl.map_or(u64::MAX, |ttl| now.saturating_add(ttl));
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
            observer.ended(&Ended { id: job.id(), state: None, value: None, ttl: Some(0) });
        }
        self.discard(slot);
    }

    fn discard(&mut self, slot: Slot) {
        let Some(before) = self.unlink(slot) else { return };
        self.count_as(Some(before), None);
        if let Some(job) = self.jobs.remove(slot) {
            self.index.remove(job.id(), slot);
            self.heap_bytes = self.heap_bytes.saturating_sub(job.heap_bytes());
            self.totals.removed = self.totals.removed.wrapping_add(1);
        }
        self.refresh_group(before.group);
    }

    /// Evicts one job if more are retained than the settings allow. Whether it did.
    pub(super) fn evict_over_keep(&mut self, fx: &mut Effects<'_>) -> bool {
        let victim = if self.over_keep_done() {
            // Of both, the one that would expire first.
            [self.done.first(), self.cancelled.first()].into_iter().flatten().min_by_key(|&(key, _)| key)
        } else if self.over_keep_dead() {
            self.dead.first()
        } else {
            None
        };
        let Some((_, slot)) = victim else { return false };
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

    /// The container ordered by instant that a job in this state is in.
    fn timeline(&mut self, state: State, follows_wall: bool) -> Option<&mut Timeline> {
        match state {
            State::Delayed if follows_wall => Some(&mut self.delayed_wall),
            State::Delayed => Some(&mut self.delayed),
            State::Ready => None,
            State::Active => Some(&mut self.leases),
            State::Done => Some(&mut self.done),
            State::Dead => Some(&mut self.dead),
            State::Cancelled => Some(&mut self.cancelled),
        }
    }

    /// Takes a job out of its containers. What it was counted as.
    #[inline]
    fn unlink(&mut self, slot: Slot) -> Option<Counted> {
        let job = self.jobs.get(slot)?;
        let (counted, follows_wall, priority) = (Counted::of(job), job.follows_wall, job.priority);
        let (arrival, since, at) = (job.arrival, job.since, job.at);
        if let Some(deadline) = job.pending_deadline() {
            self.deadlines.remove((deadline, arrival));
        }
        if counted.state == State::Active {
            let (worker, token) = (job.worker, job.token);
            if let Some(worker) = self.registry.get_mut(worker) {
                worker.held.remove(held_key(token));
            }
        }
        match self.timeline(counted.state, follows_wall) {
            Some(timeline) => drop(timeline.remove((at, arrival))),
            None => {
                if let Some(group) = self.groups.get_mut(counted.group) {
                    group.ready.remove(priority, (since, arrival));
                }
            }
        }
        Some(counted)
    }

    /// Puts a job into the containers where it belongs. What it is to be counted as.
    #[inline]
    fn link(&mut self, slot: Slot) -> Option<Counted> {
        let job = self.jobs.get(slot)?;
        let (counted, follows_wall, priority) = (Counted::of(job), job.follows_wall, job.priority);
        let (arrival, since, at) = (job.arrival, job.since, job.at);
        if let Some(deadline) = job.pending_deadline() {
            self.deadlines.insert((deadline, arrival), slot);
        }
        if counted.state == State::Active {
            let (worker, token) = (job.worker, job.token);
            if let Some(worker) = self.registry.get_mut(worker) {
                worker.held.insert(held_key(token), slot);
            }
        }
        match self.timeline(counted.state, follows_wall) {
            Some(timeline) => timeline.insert((at, arrival), slot),
            None => {
                if let Some(group) = self.groups.get_mut(counted.group) {
                    group.ready.insert(priority, (since, arrival), slot);
                }
            }
        }
        Some(counted)
    }

    /// Counts a job that came, went or changed: in the queue, its group and its tenant.
    fn count_as(&mut self, before: Option<Counted>, after: Option<Counted>) {
        for (counted, comes) in [(before, false), (after, true)] {
            let Some(Counted { state, .. }) = counted else { continue };
            if let Some(count) = self.counts.of(state) {
                *count = if comes { count.saturating_add(1) } else { count.saturating_sub(1) };
            }
        }
        let active = |counted: Option<Counted>| counted.is_some_and(|counted| counted.state == State::Active);
        let change = i32::from(active(after)).saturating_sub(i32::from(active(before)));
        self.gate.active = self.gate.active.saturating_add_signed(change);
        if let Some(Counted { group, .. }) = after.or(before) {
            self.groups.count_as(group, before, after, change);
        }
    }

    /// Whether `more` jobs still fit.
    pub(super) const fn has_room(&self, more: usize) -> bool {
        self.jobs.len().saturating_add(more) <= limits::JOBS_MAX
    }
}

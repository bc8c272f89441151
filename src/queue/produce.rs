//! What producers do: enqueue, cancel, reschedule.

use super::job::{Draft, Fields, Job, Lock, More, Slot, State};
use super::mover::Ending;
use super::op::{Cancel, Effects, Enqueue, IfExists, Outcome, Unique, When};
use super::serial::{Id, SHOWN_BYTES_MAX, Serial};
use super::{Error, JobOptions, Queue};

/// Where a job that may run from some instant on goes.
struct Due {
    /// Instant to be keyed by: Unix ms if `follows_wall`, else on the duration clock.
    at: u64,
    follows_wall: bool,
    /// That instant on the duration clock, as things stand.
    instant: u64,
}

/// The job that locks the key that another one is to have.
struct Holder {
    slot: Slot,
    /// As shown.
    id: Box<[u8]>,
    /// What the other one has of it, if it takes its place.
    arrival: Serial,
    custom_id: Option<Box<[u8]>>,
    /// Whether it does.
    is_replaced: bool,
}

impl Queue {
    /// `None`: it may run now.
    fn due(&self, when: Option<When>) -> Option<Due> {
        match when? {
            When::Delay(0) => None,
            When::Delay(delay) => {
                let instant = self.clock.now.saturating_add(delay);
                Some(Due { at: instant, follows_wall: false, instant })
            }
            When::At(wall) if wall <= self.clock.wall => None,
            When::At(wall) => Some(Due { at: wall, follows_wall: true, instant: self.wall_to_now(wall) }),
        }
    }

    pub(super) fn enqueue(&mut self, op: &Enqueue<'_>, fx: &mut Effects<'_>) -> Result<Outcome, Error> {
        let payloads = op.payloads.as_slice();
        let now = self.clock.now;
        let mut replaced = None;
        let locked = if let Some(unique) = &op.unique { self.locked(unique) } else { None };
        if let Some(holder) = &locked {
            if !holder.is_replaced {
                return Ok(Outcome::Duplicate { id: holder.id.clone(), replaced: false });
            }
            replaced = Some(holder.slot);
        } else if let Some((id, if_exists)) = op.id
            && let Some((slot, job)) = self.lookup(Id::Custom(id))
        {
            match if_exists {
                IfExists::Keep => return Ok(Outcome::Existed),
                IfExists::Replace if job.state.is_final() => replaced = Some(slot),
                _ => return Err(Error::Exists(job.state)),
            }
        }
        let due = self.due(op.when);
        let deadline = op.options.deadline.map(|length| now.saturating_add(length));
        check_deadline(deadline, due.as_ref(), now)?;
        let waiting = self.waiting().saturating_add(payloads.len());
        if locked.is_none() && self.settings.max_len.is_some_and(|limit| waiting as u64 > limit) {
            return Err(Error::Full);
        }
        if !self.has_room(payloads.len()) || !self.has_serials(payloads.len()) {
            return Err(Error::TooMany);
        }

        if let Some(slot) = replaced {
            self.discard(slot);
        }
        if let Some(unique) = &op.unique
            && let Some(slot) = self.index.holder(unique.key, &self.jobs)
        {
            self.free_key(slot);
        }
        let group = self.groups.group_or_new(op.group).ok_or(Error::TooMany)?;
        let has_options = op.options != JobOptions::default();
        let has_more = has_options || op.id.is_some() || op.unique.is_some();
        let mut first = Serial::NONE;
        for payload in payloads {
            let arrival = match &locked {
                Some(replaced) => replaced.arrival,
                None => self.take_serial(),
            };
            if first == Serial::NONE {
                first = arrival;
            }
            let mut fields = Fields::new(arrival, group, now);
            fields.priority = op.priority;
            if let Some(due) = &due {
                fields.state = State::Delayed;
                fields.at = due.at;
                fields.follows_wall = due.follows_wall;
            }
            let more = has_more.then(|| More {
                custom_id: match &locked {
                    Some(replaced) => replaced.custom_id.clone(),
                    None => op.id.map(|(id, _)| id.into()),
                },
                options: has_options.then(|| Box::new(op.options)),
                deadline,
                unique: op.unique.as_deref().map(|unique| {
                    Box::new(Lock { key: unique.key.into(), until: unique.until, window: unique.window })
                }),
                ..More::default()
            });
            self.admit(Draft { fields, more }, payload)?;
        }
        if !self.groups.goes_on_standing(group) {
            self.refresh_group(group);
        }
        self.totals.enqueued = self.totals.enqueued.wrapping_add(payloads.len() as u64);
        fx.changed |= !payloads.is_empty();
        Ok(match locked {
            Some(Holder { id, .. }) => Outcome::Duplicate { id, replaced: true },
            None => Outcome::Enqueued { first, count: payloads.len() },
        })
    }

    /// The job that locks a key, if one does.
    #[inline(never)]
    fn locked(&self, unique: &Unique<'_>) -> Option<Holder> {
        let slot = self.index.holder(unique.key, &self.jobs)?;
        let job = self.jobs.get(slot).filter(|job| job.locks(self.clock.now))?;
        Some(Holder {
            slot,
            id: job.id().write(&mut [0; SHOWN_BYTES_MAX]).into(),
            arrival: job.arrival,
            custom_id: job.custom_id().map(Box::from),
            is_replaced: unique.debounce && job.deliveries == 0 && !job.state.is_final(),
        })
    }

    pub(super) fn cancel(&mut self, ids: &[Id<'_>], fx: &mut Effects<'_>) -> Outcome {
        let outcomes = ids.iter().map(|&id| {
            let Some((slot, job)) = self.lookup(id) else { return Cancel::Unknown };
            match job.state {
                State::Delayed | State::Ready => {
                    self.finish_cancelled(slot, false, fx);
                    fx.changed = true;
                    Cancel::Cancelled
                }
                State::Active => {
                    if !job.cancelling {
                        // Its worker may give it up without a word: another probe may go.
                        self.tell_troubled(slot, |group, _, token| group.circuit.withdrawn(token));
                        self.edit(slot, |job| job.cancelling = true);
                        fx.changed = true;
                    }
                    Cancel::Cancelling
                }
                state => Cancel::Ended(state),
            }
        });
        Outcome::Cancelled(outcomes.collect())
    }

    /// Ends a job cancelled: its own TTL, else that of results.
    pub(super) fn finish_cancelled(&mut self, slot: Slot, acked: bool, fx: &mut Effects<'_>) {
        let options = self.jobs.get(slot).map(|job| job.options()).unwrap_or_default();
        let ttl = options.ttl.unwrap_or(self.settings.result_ttl);
        self.finish(slot, &Ending { state: State::Cancelled, ttl, result: None, reason: None, acked }, fx);
    }

    pub(super) fn reschedule(
        &mut self,
        id: Id<'_>,
        when: Option<When>,
        priority: Option<u8>,
        fx: &mut Effects<'_>,
    ) -> Result<Outcome, Error> {
        let (slot, job) = self.lookup(id).ok_or(Error::NoJob)?;
        if !matches!(job.state, State::Delayed | State::Ready) {
            return Err(Error::BadState(job.state));
        }
        let now = self.clock.now;
        let due = self.due(when);
        let ordered = self.is_ordered(&job);
        if when.is_some() {
            check_deadline(job.pending_deadline(), due.as_ref(), now)?;
        }
        let before = (job.state, job.priority, job.since, job.at, job.follows_wall, job.keeps_place);
        let mut after = before;
        if let Some(priority) = priority {
            after.1 = priority;
        }
        if when.is_some() {
            after.0 = if due.is_some() { State::Delayed } else { State::Ready };
            after.2 = if ordered { job.enqueued } else { now };
            after.3 = due.as_ref().map_or(0, |due| due.at);
            after.4 = due.as_ref().is_some_and(|due| due.follows_wall);
            after.5 = false;
        }
        // Not even looked at if nothing changes: a look may move its group.
        if before != after {
            self.shift(slot, |job| {
                (job.state, job.priority, job.since, job.at, job.follows_wall, job.keeps_place) = after;
                if before.0 != after.0 {
                    job.touched = if job.state == State::Ready { now } else { 0 };
                } else if after.2 < before.2 && job.state == State::Ready {
                    // An earlier place does not mean that it could run earlier.
                    job.touched = job.touched.max(before.2);
                }
            });
            fx.changed = true;
        }
        Ok(Outcome::State(after.0))
    }

    /// The job with this id, and where it lies.
    #[inline]
    pub(super) fn lookup(&self, id: Id<'_>) -> Option<(Slot, Job<'_>)> {
        let slot = self.find(id)?;
        Some((slot, self.jobs.get(slot)?))
    }
}

/// A job must be able to run before its deadline.
fn check_deadline(deadline: Option<u64>, due: Option<&Due>, now: u64) -> Result<(), Error> {
    let instant = due.map_or(now, |due| due.instant);
    match deadline {
        Some(deadline) if instant >= deadline => Err(Error::BeyondDeadline(deadline.saturating_sub(now))),
        _ => Ok(()),
    }
}

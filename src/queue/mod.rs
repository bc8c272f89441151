//! The queue: a pure, deterministic state machine.
//!
//! ```text
//! ENQUEUE ─► delayed ──due──► ready ──CLAIM──► active ──ACK──► done ──TTL──► gone
//!               ▲               ▲                │ │ └─ended or lapsed after CANCEL─► cancelled ─TTL─► gone
//!               │               └──RELEASE, RECOVER, first lapse, undone grant
//!               └──FAIL with attempts left, further lapses (back-off)
//!                                                └──FAIL without, too many crashes──► dead ──REDRIVE──► ready
//! ```
//!
//! The contract:
//! - Every change is an [`Op`] given to [`Queue::apply`]. An error changes nothing.
//! - Time is an op too: [`Op::Clock`] alone moves the queue's clock; all else happens "at the
//!   queue's clock". There is no other clock here, and no randomness: the same ops make the same
//!   bytes on every node.
//! - Work is bounded by what the op names (ids, counts, limits), never by the size of the queue.
//! - [`Queue::next_wakeup`] says when something is due; [`Op::Sweep`] settles it, in slices.
//!
//! Invariants, audited by `check.rs`: I1 a job is in exactly one container, that of its state.
//! I2 every counter equals what it counts. I3 serials only grow. I4 an active job, and no other,
//! has a live token, a deadline and an owner in the registry. I5 the last allowed failure, or one
//! lapse more than is forgiven, leads to dead. I6 ready order is (priority, since, arrival). I7
//! `next_wakeup` is the least of all due instants. I9 enqueued = delayed + ready + active + done +
//! dead + cancelled + removed. I10 decode(encode(q)) = q. I11 an error changes nothing. I12 the
//! same ops, the same bytes. I14 no two jobs have the same key, and none that is final goes before its
//! window is over by time. I8 what is active under queue, tenant and
//! group equals the leases it covers. I13 a group is in the rotation iff it is eligible.

mod admin;
pub mod backoff;
mod check;
mod chunk;
mod circuit;
mod consume;
mod digits;
mod error;
mod gate;
mod group;
mod index;
mod job;
pub mod limits;
mod mover;
mod op;
mod output;
mod produce;
mod rate;
mod registry;
mod serial;
mod settings;
mod slab;
pub mod snapshot;
mod stats;
mod store;
mod sweep;
#[cfg(test)]
mod tests;
mod timeline;
mod view;

pub use circuit::{Circuit, Throttle};
pub use error::Error;
pub use gate::{Gate, Hold};
pub use group::GroupName;
pub use job::{Reason, Slot, State};
pub use op::{
    Cancel, Claim, Delivery, Effects, Emitted, Ended, Enqueue, Failure, Held, IfExists, Observer, Op,
    Outcome, Payloads, Recover, Recovered, Scope, Slots, Stamp, Unique, Until, When, Who,
};
pub use output::{Place, Reading, Start};
pub use rate::{Bucket, FULL_AT_MAX, Rate};
pub use serial::{Id, SHOWN_BYTES_MAX, Serial};
pub use settings::{
    Backoff, GroupDefaults, GroupPatch, GroupSettings, JobOptions, Settings, SettingsPatch, TenantPatch,
    TenantSettings,
};
pub use stats::{EVENTS, Histogram, MINUTE_MS, Minute, PerEvent, SPAN_MINUTES, Span};
pub use view::{Census, Cursor, Filter, GroupView, Holder, JobView, Next, Page, TenantView, WorkerView};

use group::{Groups, Terms};
use index::Index;
use registry::Registry;
use stats::Recent;
use store::Store;
use timeline::Timeline;

/// A queue: jobs in their containers, a registry of workers, settings, and a clock.
///
/// It owns all of its bytes and is `Send`: it may be freed by any thread.
#[derive(Clone, Debug)]
pub struct Queue {
    settings: Settings,
    clock: Stamp,
    /// The pause and limits of the whole queue.
    gate: Gate,
    totals: Totals,
    recent: Recent,
    registry: Registry,

    // What follows is written by the mover alone.
    jobs: Store,
    index: Index,
    counts: Counts,
    /// Groups and tenants, with the ready jobs of each.
    groups: Groups,
    timed: Timed,
    /// See [`Self::take_soonest`]; of the jobs alone. Not part of what is persisted.
    soonest: u64,
}

/// The containers ordered by instant.
#[derive(Clone, Debug, Default)]
struct Timed {
    /// Delayed by duration, by due instant.
    delayed: Timeline,
    /// Delayed until a wall clock instant, by that.
    delayed_wall: Timeline,
    /// Active, by the lease's deadline.
    leases: Timeline,
    /// Final, by expiry.
    done: Timeline,
    dead: Timeline,
    cancelled: Timeline,
    /// Jobs, delayed or ready, that are dead if not claimed by then.
    deadlines: Timeline,
}

impl Timed {
    /// Where a job in this state is; ready ones are in their groups.
    const fn of(&mut self, state: State, follows_wall: bool) -> Option<&mut Timeline> {
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

    /// Those of a state other than ready, each with its rank in a listing's cursor.
    fn all_of(&self, state: State) -> impl Iterator<Item = (u8, &Timeline)> {
        let (first, second) = match state {
            State::Delayed => (Some(&self.delayed), Some(&self.delayed_wall)),
            State::Ready => (None, None),
            State::Active => (Some(&self.leases), None),
            State::Done => (Some(&self.done), None),
            State::Dead => (Some(&self.dead), None),
            State::Cancelled => (Some(&self.cancelled), None),
        };
        [first, second].into_iter().zip([0, 1]).filter_map(|(timeline, rank)| Some((rank, timeline?)))
    }

    /// All that hold jobs by state, in the order in which they are persisted.
    fn by_state(&self) -> impl Iterator<Item = &Timeline> {
        [&self.delayed, &self.delayed_wall, &self.leases, &self.done, &self.dead, &self.cancelled].into_iter()
    }

    fn bytes(&self) -> usize {
        self.by_state().chain([&self.deadlines]).fold(0, |sum, timeline| sum.saturating_add(timeline.bytes()))
    }
}

/// How often each thing has happened since the queue was made; modulo 2^64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Jobs that arrived.
    pub enqueued: u64,
    /// Deliveries handed out; an undone one is taken off again.
    pub delivered: u64,
    /// Jobs that ended done.
    pub done: u64,
    /// Failures reported.
    pub failed: u64,
    /// Leases that lapsed.
    pub lapsed: u64,
    /// Deliveries taken from their workers by `RECOVER` with a selector.
    pub recovered: u64,
    /// Deliveries given back by `RELEASE`.
    pub released: u64,
    /// Jobs that ended dead.
    pub dead: u64,
    /// Jobs that ended cancelled.
    pub cancelled: u64,
    /// Dead jobs that were given a new life.
    pub redriven: u64,
    /// `UNAVAILABLE` and `THROTTLED` reported.
    pub refused: u64,
    /// Jobs that are gone: expired, purged, replaced, evicted, or never retained.
    pub removed: u64,
}

impl Totals {
    /// All of them, by name.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, u64); 12] {
        let Self {
            enqueued,
            delivered,
            done,
            failed,
            lapsed,
            recovered,
            released,
            dead,
            cancelled,
            redriven,
            refused,
            removed,
        } = *self;
        [
            ("enqueued", enqueued),
            ("delivered", delivered),
            ("done", done),
            ("failed", failed),
            ("lapsed", lapsed),
            ("recovered", recovered),
            ("released", released),
            ("dead", dead),
            ("cancelled", cancelled),
            ("redriven", redriven),
            ("refused", refused),
            ("removed", removed),
        ]
    }

    /// Those that are counted per minute too.
    const fn events(&self) -> PerEvent<u64> {
        let Self { enqueued, delivered, done, failed, lapsed, dead, cancelled, refused, .. } = *self;
        [enqueued, delivered, done, failed, lapsed, dead, cancelled, refused]
    }
}

/// Jobs per state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts([u32; State::ALL.len()]);

impl Counts {
    fn get(&self, state: State) -> usize {
        self.0.get(state as usize).map_or(0, |&count| count as usize)
    }

    fn of(&mut self, state: State) -> Option<&mut u32> {
        self.0.get_mut(state as usize)
    }
}

impl Queue {
    /// An empty queue.
    #[must_use]
    pub fn new(settings: Settings, stamp: Stamp) -> Self {
        Self {
            settings,
            clock: stamp,
            gate: Gate::default(),
            totals: Totals::default(),
            recent: Recent::default(),
            registry: Registry::default(),
            jobs: Store::default(),
            index: Index::default(),
            counts: Counts::default(),
            groups: Groups::default(),
            timed: Timed::default(),
            soonest: 0,
        }
    }

    /// Applies one op at the queue's clock.
    ///
    /// # Errors
    /// See [`Error`]; then nothing has changed.
    pub fn apply(&mut self, op: &Op<'_>, fx: &mut Effects<'_>) -> Result<Outcome, Error> {
        if self.recent.is_over(self.clock.now) {
            self.recent.turn(self.clock.now, &self.totals);
        }
        if !matches!(op, Op::Enqueue(_) | Op::Claim(_) | Op::Ack { .. }) {
            // Whatever else it does: it is looked at anew.
            self.soonest = 0;
        }
        let removed = self.totals.removed;
        let outcome = self.dispatch(op, fx);
        // The slots of claimed jobs are still wanted.
        if removed != self.totals.removed && fx.claimed.is_empty() {
            self.draw_together(self.totals.removed.wrapping_sub(removed));
        }
        outcome
    }

    fn dispatch(&mut self, op: &Op<'_>, fx: &mut Effects<'_>) -> Result<Outcome, Error> {
        match op {
            Op::Clock(stamp) => {
                self.set_clock(*stamp, fx);
                Ok(Outcome::Done)
            }
            Op::Enqueue(enqueue) => self.enqueue(enqueue, fx),
            Op::Cancel { ids } => Ok(self.cancel(ids, fx)),
            Op::Reschedule { id, when, priority } => self.reschedule(*id, *when, *priority, fx),
            Op::Claim(claim) => Ok(self.claim(claim, fx)),
            Op::Register { worker } => {
                let is_new = self.registry.seen(worker, self.clock.now).is_some_and(|(_, is_new)| is_new);
                fx.changed |= is_new;
                Ok(Outcome::Done)
            }
            Op::Undo { grants } => Ok(self.undo(grants, fx)),
            Op::Ack { delivery, result, ttl } => self.ack(*delivery, *result, *ttl, fx),
            Op::Fail { delivery, error, how } => self.fail(*delivery, *error, *how, fx),
            Op::Release { deliveries } => Ok(self.release(deliveries, fx)),
            Op::Extend { worker, lease, deliveries } => Ok(self.extend(worker, *lease, deliveries, fx)),
            Op::Progress { delivery, value } => self.progress(*delivery, value, fx),
            Op::Emit { delivery, chunk } => self.emit(*delivery, chunk, fx),
            Op::Recover(recover) => Ok(self.recover(recover, fx)),
            Op::Redrive { ids } => Ok(self.redrive(ids, fx)),
            Op::RedriveAll { count } => Ok(self.redrive_all(*count, fx)),
            Op::Purge { state, count } => self.purge(*state, *count, fx),
            Op::Pause { scope, length } => self.pause(*scope, *length, fx),
            Op::Resume { scope } => Ok(self.resume(*scope, fx)),
            Op::Set(patch) => Ok(self.set(patch, fx)),
            Op::SetGroup { name, patch } => self.set_group(*name, patch, fx),
            Op::SetTenant { name, patch } => self.set_tenant(name, patch, fx),
            Op::Sweep { limit } => Ok(self.sweep(*limit, fx)),
            Op::Forget { workers } => Ok(self.forget(workers, fx)),
        }
    }

    /// Applies one op at the clock of `stamp`. Says whether that moved the queue's clock; if so, a
    /// replica needs the `Clock` before the op. The clock is taken back when the op fails or
    /// changes nothing.
    ///
    /// # Errors
    /// See [`Error`]; then nothing has changed.
    pub fn apply_at(
        &mut self,
        stamp: Stamp,
        op: &Op<'_>,
        fx: &mut Effects<'_>,
    ) -> Result<(Outcome, bool), Error> {
        let before = self.clock;
        self.set_clock(stamp, fx);
        let moved = self.clock != before;
        fx.changed = false;
        let outcome = self.apply(op, fx);
        if !fx.changed {
            self.clock = before;
        }
        outcome.map(|outcome| (outcome, moved && fx.changed))
    }

    /// The duration clock and the serials never go back; the wall clock is what the stamp says.
    fn set_clock(&mut self, stamp: Stamp, fx: &mut Effects<'_>) {
        let clock = Stamp {
            now: self.clock.now.max(stamp.now.min(limits::CLOCK_MS_MAX)),
            wall: stamp.wall.min(limits::CLOCK_MS_MAX),
            serial: self.clock.serial.max(stamp.serial),
        };
        fx.changed |= clock != self.clock;
        self.clock = clock;
    }

    /// Whether so many serials can still be taken. They can, for 100 years; but a queue may come
    /// from hostile bytes, and what it goes on to must still be loadable.
    fn has_serials(&self, count: usize) -> bool {
        let last = self.clock.serial.next(self.clock.wall);
        last.0.saturating_add(count as u64) <= Serial::LIMIT.0
    }

    fn take_serial(&mut self) -> Serial {
        self.clock.serial = self.clock.serial.next(self.clock.wall);
        self.clock.serial
    }

    /// The instant, on the duration clock in ms, at which a sweep has something to do; `None` if
    /// nothing is timed. It may have passed. O(log n).
    #[must_use]
    pub fn next_wakeup(&self) -> Option<u64> {
        self.next_wakeup_at(self.clock.now, self.clock.wall)
    }

    /// As [`Self::next_wakeup`], when the duration clock stands at `now` and the wall clock at
    /// `wall`: it may have stepped since the queue's last change.
    #[must_use]
    pub fn next_wakeup_at(&self, now: u64, wall: u64) -> Option<u64> {
        let now = now.max(self.clock.now);
        if self.over_keep_done() || self.over_keep_dead() || self.groups.review.is_some() {
            return Some(self.clock.now);
        }
        // When the queue itself is out of rate, nothing changes at that instant but what may be
        // handed out: whoever waits for work is to be served then.
        let rate = match self.gate.hold(self.settings.concurrency, self.settings.rate, now) {
            Some(Hold::Rate(at)) if self.groups.first().is_some() => Some(at),
            _ => None,
        };
        let timed = &self.timed;
        let mut next = u64::MAX;
        let mut see = |at: Option<u64>| next = next.min(at.unwrap_or(u64::MAX));
        see(self.gate.paused_until);
        see(rate);
        see(self.groups.next_wake());
        see(timed.deadlines.first().map(|slot| self.jobs.deadline_of()(slot).0));
        let at_of = self.jobs.at_of();
        see(timed.delayed_wall.first().map(|slot| now.saturating_add(at_of(slot).0).saturating_sub(wall)));
        for timeline in [&timed.delayed, &timed.leases, &timed.done, &timed.dead, &timed.cancelled] {
            see(timeline.first().map(|slot| at_of(slot).0));
        }
        Some(next).filter(|&next| next != u64::MAX)
    }

    /// A bound, on the duration clock in ms, for what changed since the last call: if [`Self::next_wakeup`]
    /// is earlier than it was then, it is not before this. What ops do nearly always gives the timer
    /// nothing earlier to do, and this tells so without looking. O(1).
    pub fn take_soonest(&mut self) -> u64 {
        let of_groups = std::mem::replace(&mut self.groups.soonest_wake, u64::MAX);
        let of_jobs = std::mem::replace(&mut self.soonest, u64::MAX);
        // What depends on more than instants that were set.
        let is_uncertain = self.settings.rate.is_some()
            || self.groups.review.is_some()
            || self.over_keep_done()
            || self.over_keep_dead()
            || !self.timed.delayed_wall.is_empty();
        if is_uncertain { 0 } else { of_jobs.min(of_groups) }
    }

    /// Notes that a worker asked for work. This server's own knowledge, not part of the queue's
    /// persisted state: an idle claim is no write.
    pub fn note_seen(&mut self, worker: &[u8], now: u64) {
        if let Some(slot) = self.registry.find(worker)
            && let Some(worker) = self.registry.get_mut(slot)
        {
            worker.seen(now);
        }
    }

    /// Counts every worker as just seen: after a restart or a promotion nothing else is known.
    pub fn all_seen(&mut self, now: u64) {
        self.registry.all_seen(now);
    }

    /// What the eligibility of groups depends on now.
    const fn terms(&self) -> Terms {
        Terms { now: self.clock.now, defaults: self.settings.group }
    }
}

const _: fn() = || {
    const fn assert_send<T: Send>() {}
    assert_send::<Queue>();
};

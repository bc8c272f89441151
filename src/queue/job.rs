//! One job.

use std::ops::{Deref, DerefMut};

use super::group::GroupNo;
use super::limits::{FAILURES_KEPT, NAME_BYTES_MAX};
use super::op::Until;
use super::output::Output;
use super::registry::Holder;
use super::serial::{Id, Serial};
use super::settings::JobOptions;
use super::slab::Number;

/// Where a job lies in its queue. Valid until the next op; says nothing about order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot(pub(super) u32);

impl Number for Slot {
    fn new(number: u32) -> Self {
        Self(number)
    }
    fn number(self) -> u32 {
        self.0
    }
}

/// The states of a job. The numbers are persisted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum State {
    /// Waits for an instant: a delay, or a back-off.
    Delayed = 0,
    /// Can be claimed.
    Ready = 1,
    /// Handed out: has an owner, a deadline and a token.
    Active = 2,
    /// Acknowledged, retained.
    Done = 3,
    /// Given up, retained; can be redriven.
    Dead = 4,
    /// Cancelled, retained.
    Cancelled = 5,
}

impl State {
    /// All states, in the order of their numbers.
    pub const ALL: [Self; 6] =
        [Self::Delayed, Self::Ready, Self::Active, Self::Done, Self::Dead, Self::Cancelled];

    /// The word for it in commands and replies.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Delayed => "delayed",
            Self::Ready => "ready",
            Self::Active => "active",
            Self::Done => "done",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether nothing more happens to it but its removal (and, if dead, a redrive).
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Dead | Self::Cancelled)
    }
}

/// Why a job is dead. The numbers are persisted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    /// Failed as often as it may.
    Attempts = 0,
    /// Its leases lapsed, or it was recovered, more often than is forgiven.
    Crashes = 1,
    /// Its worker said so.
    Failed = 2,
    /// It was not claimed within its deadline.
    Deadline = 3,
}

impl Reason {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Attempts, Self::Crashes, Self::Failed, Self::Deadline];

    /// The word for it in replies.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Attempts => "attempts",
            Self::Crashes => "crashes",
            Self::Failed => "failed",
            Self::Deadline => "deadline",
        }
    }
}

/// The plain values of a job. Instants are on the queue's duration clock, in ms, unless said
/// otherwise. How they are kept, see `store.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fields {
    /// Unique, growing; breaks every tie. The id too, unless the client gave one.
    pub arrival: Serial,
    pub group: GroupNo,
    /// Ready order: the instant from which it could run. A returned job keeps it.
    pub since: u64,
    /// By state: the due instant (delayed; Unix ms if `follows_wall`), the lease's deadline
    /// (active), the expiry (final; `u64::MAX` for never). Unused when ready.
    pub at: u64,
    /// When it was enqueued.
    pub enqueued: u64,
    /// When it was last claimed (active), or ended (final), or when it came to be ready, if it did not
    /// come so (then, `since`); else 0.
    pub touched: u64,
    /// Token of the current delivery (active) or the last one; `NONE` before the first.
    pub token: Serial,
    /// Its owner, when active, or the last one.
    pub worker: Holder,
    /// How often it was handed out, over all its lives; at most [`DELIVERIES_MAX`].
    pub deliveries: u32,
    pub spent: Spent,
    pub state: State,
    pub priority: u8,
    /// Delayed: `at` is a wall clock instant.
    pub follows_wall: bool,
    /// Delayed: when due, it returns to the place `since` says (a lapse's back-off).
    pub keeps_place: bool,
    /// Active: cancelled in mid-work.
    pub cancelling: bool,
    /// Final: it ended by an `Ack` of `token`, so repeating that is no error.
    pub acked: bool,
}

/// What a job has used up in this life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Spent {
    /// Failures used up.
    pub attempts: u32,
    /// Lapses and counted recoveries used up.
    pub crashes: u32,
    /// Without a group: how often in a row its endpoint was unavailable.
    pub refusals: u32,
}

/// What few jobs have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct More {
    pub custom_id: Option<Box<[u8]>>,
    /// None of them is all default.
    pub options: Option<Box<JobOptions>>,
    /// The instant at which it is dead if it was never claimed in this life. Kept during the first
    /// delivery, which may turn out not to have reached its worker.
    pub deadline: Option<u64>,
    /// Progress (waiting, active), result (done).
    pub value: Option<Box<[u8]>>,
    /// The error text of the last failure.
    pub error: Option<Box<[u8]>>,
    /// Name of the worker of the last delivery, kept for dead jobs.
    pub last_worker: Option<Box<[u8]>>,
    /// What its runs left. Not empty.
    pub past: Option<Box<Past>>,
    /// The key that it locks, or that no other job has taken over since.
    pub unique: Option<Box<Lock>>,
    pub spent: Spent,
    pub reason: Option<Reason>,
}

/// What the runs of few jobs leave, in one piece of memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Past {
    pub failures: Failures,
    /// What the present or last run put out.
    pub output: Option<Box<Output>>,
}

impl Past {
    pub fn is_empty(&self) -> bool {
        self.failures == Failures::default() && self.output.is_none()
    }
}

/// A job's key, which no other job of the queue has, and until when it locks it: as long as the job is
/// not final, or not handed out; and in any case for `window` ms after it was enqueued. That is a
/// matter of looking at the job: nothing is kept in step with it, and nothing is done when it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lock {
    pub key: Box<[u8]>,
    pub until: Until,
    pub window: Option<u64>,
}

/// The instants at which the last deliveries of a job failed or were lost in this life, oldest first;
/// before them, 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Failures(pub [u64; FAILURES_KEPT]);

impl Failures {
    pub fn iter(&self) -> impl Iterator<Item = u64> {
        self.0.into_iter().filter(|&at| at > 0)
    }
}

impl More {
    /// Whether there is nothing to keep.
    pub fn is_empty(&self) -> bool {
        let texts = [&self.custom_id, &self.value, &self.error, &self.last_worker];
        self.spent == Spent::default()
            && self.options.is_none()
            && self.deadline.is_none()
            && self.reason.is_none()
            && self.past.is_none()
            && self.unique.is_none()
            && texts.into_iter().all(Option::is_none)
    }

    /// When its last deliveries failed or were lost.
    pub fn failures(&self) -> Option<&Failures> {
        self.past.as_deref().map(|past| &past.failures).filter(|failures| **failures != Failures::default())
    }

    /// What its present or last run put out.
    pub fn output(&self) -> Option<&Output> {
        self.past.as_deref()?.output.as_deref()
    }

    /// Bytes on the heap beyond itself.
    pub fn heap_bytes(&self) -> usize {
        let bytes = |bytes: &Option<Box<[u8]>>| bytes.as_ref().map_or(0, |bytes| allocated(bytes.len()));
        let options = self.options.as_ref().map_or(0, |_| allocated(size_of::<JobOptions>()));
        let past = self.past.as_ref().map_or(0, |_| allocated(size_of::<Past>()));
        let output = self.output().map_or(0, Output::heap_bytes);
        [&self.custom_id, &self.value, &self.error, &self.last_worker]
            .into_iter()
            .fold(options.saturating_add(past).saturating_add(output), |sum, text| {
                sum.saturating_add(bytes(text))
            })
            .saturating_add(
                self.unique
                    .as_ref()
                    .map_or(0, |lock| allocated(size_of::<Lock>()).saturating_add(allocated(lock.key.len()))),
            )
    }
}

/// A job to look at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job<'q> {
    pub fields: Fields,
    pub payload: &'q [u8],
    pub more: Option<&'q More>,
}

/// A job to be changed: all but its payload. What its containers are ordered by changes only while
/// it is in none of them, its arrival and its id never.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    pub fields: Fields,
    /// `None` or not all default, once it is kept.
    pub more: Option<More>,
}

impl Deref for Job<'_> {
    type Target = Fields;
    fn deref(&self) -> &Fields {
        &self.fields
    }
}

impl Deref for Draft {
    type Target = Fields;
    fn deref(&self) -> &Fields {
        &self.fields
    }
}

impl DerefMut for Draft {
    fn deref_mut(&mut self) -> &mut Fields {
        &mut self.fields
    }
}

impl Fields {
    /// A new job: enqueued at `now`, ready since then.
    pub const fn new(arrival: Serial, group: GroupNo, now: u64) -> Self {
        Self {
            arrival,
            group,
            since: now,
            at: 0,
            enqueued: now,
            touched: 0,
            token: Serial::NONE,
            worker: Holder(0),
            deliveries: 0,
            spent: Spent { attempts: 0, crashes: 0, refusals: 0 },
            state: State::Ready,
            priority: 0,
            follows_wall: false,
            keeps_place: false,
            cancelling: false,
            acked: false,
        }
    }

    /// Whether it waits to be claimed.
    const fn is_waiting(&self) -> bool {
        matches!(self.state, State::Delayed | State::Ready)
    }

    /// Whether it waits to be handed out again, which holds up an ordered group.
    pub fn is_retry(&self) -> bool {
        self.state == State::Delayed && self.deliveries > 0
    }
}

impl<'q> Job<'q> {
    pub fn id(&self) -> Id<'q> {
        self.custom_id().map_or(Id::Serial(self.arrival), Id::Custom)
    }

    pub fn custom_id(&self) -> Option<&'q [u8]> {
        self.more?.custom_id.as_deref()
    }

    pub fn options(&self) -> JobOptions {
        self.more.and_then(|more| more.options.as_deref()).copied().unwrap_or_default()
    }

    /// Its key.
    pub fn lock(&self) -> Option<&'q Lock> {
        self.more?.unique.as_deref()
    }

    /// Whether nobody else may have its key at the instant `now`.
    pub fn locks(&self, now: u64) -> bool {
        self.lock().is_some_and(|lock| {
            let holds = match lock.until {
                Until::Started => self.deliveries == 0,
                Until::Finished => true,
            };
            holds && !self.state.is_final() || now < self.window_end()
        })
    }

    /// The instant until which it locks its key in any case, and stays; 0 if there is none.
    pub fn window_end(&self) -> u64 {
        let window = self.lock().and_then(|lock| lock.window);
        window.map_or(0, |window| self.enqueued.saturating_add(window))
    }

    pub fn value(&self) -> Option<&'q [u8]> {
        self.more?.value.as_deref()
    }

    pub fn error(&self) -> Option<&'q [u8]> {
        self.more?.error.as_deref()
    }

    /// The instant at which it is dead if it still waits for its first claim.
    pub fn pending_deadline(&self) -> Option<u64> {
        if self.is_waiting() { self.more?.deadline } else { None }
    }
}

impl Draft {
    /// As [`Job::pending_deadline`].
    pub fn pending_deadline(&self) -> Option<u64> {
        if self.is_waiting() { self.more.as_ref()?.deadline } else { None }
    }

    pub fn more(&mut self) -> &mut More {
        self.more.get_or_insert_default()
    }

    pub fn options(&self) -> JobOptions {
        self.more.as_ref().and_then(|more| more.options.as_deref()).copied().unwrap_or_default()
    }

    /// A delivery failed or was lost.
    pub fn note_failure(&mut self, now: u64) {
        let Failures(instants) = &mut self.more().past.get_or_insert_default().failures;
        instants.rotate_left(1);
        if let Some(last) = instants.last_mut() {
            *last = now;
        }
    }

    /// It goes back to waiting: its next run begins anew.
    pub fn drop_output(&mut self) {
        if let Some(more) = &mut self.more
            && let Some(past) = &mut more.past
        {
            past.output = None;
            if past.is_empty() {
                more.past = None;
            }
        }
    }

    /// It was claimed: its deadline was kept.
    pub fn clear_deadline(&mut self) {
        if let Some(more) = &mut self.more {
            more.deadline = None;
        }
    }
}

/// Bytes that the server's allocator takes for so many: size classes of 16 bytes up to 128, then four
/// to each power of two.
pub(super) const fn allocated(bytes: usize) -> usize {
    let spacing_bits = match bytes {
        0 => return 0,
        1..=8 => 3,
        9..=128 => 4,
        _ => bytes.saturating_sub(1).ilog2().saturating_sub(2),
    };
    bytes.next_multiple_of(1 << spacing_bits)
}

const _: () = assert!(NAME_BYTES_MAX <= u16::MAX as usize);
const _: () = assert!(allocated(129) == 160 && allocated(160) == 160 && allocated(4_000) == 4_096);

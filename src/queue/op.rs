//! Everything that can happen to a queue, and what comes of it.

use smallvec::SmallVec;

use super::group::GroupName;
use super::job::{Slot, State};
use super::output::Place;
use super::serial::{Id, Serial};
use super::settings::{GroupPatch, JobOptions, SettingsPatch, TenantPatch};

/// A change of a queue. All of them go through [`super::Queue::apply`].
///
/// Borrowed bytes are copied into the queue once, by the op that keeps them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op<'a> {
    /// Time passes. The only op that moves the queue's clock.
    Clock(Stamp),
    /// One or many jobs arrive (`RQ.ENQUEUE`, `RQ.MENQUEUE`).
    Enqueue(Enqueue<'a>),
    /// `RQ.CANCEL`.
    Cancel {
        /// The jobs, in the order of the reply.
        ids: Vec<Id<'a>>,
    },
    /// `RQ.RESCHEDULE`.
    Reschedule {
        /// The job.
        id: Id<'a>,
        /// From when it may run; `None` keeps its instant.
        when: Option<When>,
        /// New priority; `None` keeps it.
        priority: Option<u8>,
    },
    /// Jobs are handed to a worker: `RQ.CLAIM`, or a grant to one that waits.
    Claim(Claim<'a>),
    /// A worker is noted that found nothing to claim.
    Register {
        /// Its name.
        worker: &'a [u8],
    },
    /// Deliveries that never reached their worker are taken back: no crash, no delivery counted.
    Undo {
        /// What was granted.
        grants: Vec<Delivery<'a>>,
    },
    /// `RQ.ACK`.
    Ack {
        /// The delivery.
        delivery: Delivery<'a>,
        /// Its result.
        result: Option<&'a [u8]>,
        /// How long it stays, ms (`Some(None)`: for ever); `None`: as job or queue say.
        ttl: Option<Option<u64>>,
    },
    /// `RQ.FAIL`.
    Fail {
        /// The delivery.
        delivery: Delivery<'a>,
        /// What went wrong; cut to the limit for texts.
        error: Option<&'a [u8]>,
        /// What is to become of the job.
        how: Failure,
    },
    /// `RQ.RELEASE`.
    Release {
        /// The deliveries, in the order of the reply.
        deliveries: Vec<Delivery<'a>>,
    },
    /// `RQ.EXTEND`.
    Extend {
        /// Who says so; a sign of its life.
        worker: &'a [u8],
        /// New lease from now, ms.
        lease: u64,
        /// The deliveries, in the order of the reply.
        deliveries: Vec<Delivery<'a>>,
    },
    /// `RQ.PROGRESS`.
    Progress {
        /// The delivery.
        delivery: Delivery<'a>,
        /// The value; cut to the limit for texts.
        value: &'a [u8],
    },
    /// `RQ.EMIT`.
    Emit {
        /// The delivery.
        delivery: Delivery<'a>,
        /// What is added to the output of the run.
        chunk: &'a [u8],
    },
    /// `RQ.RECOVER`.
    Recover(Recover<'a>),
    /// `RQ.REDRIVE queue id …`.
    Redrive {
        /// The jobs, in the order of the reply.
        ids: Vec<Id<'a>>,
    },
    /// `RQ.REDRIVE queue ALL`: oldest dead first.
    RedriveAll {
        /// At most so many.
        count: usize,
    },
    /// `RQ.PURGE`.
    Purge {
        /// Jobs in this state; not `active`.
        state: State,
        /// At most so many.
        count: usize,
    },
    /// `RQ.PAUSE`: nothing is handed out.
    Pause {
        /// Of what.
        scope: Scope<'a>,
        /// For so many ms from now; `None`: until `Resume`.
        length: Option<u64>,
    },
    /// `RQ.RESUME`. A group's circuit and throttle are cleared too.
    Resume {
        /// Of what.
        scope: Scope<'a>,
    },
    /// `RQ.QUEUE.SET`.
    Set(SettingsPatch),
    /// `RQ.GROUP.SET`.
    SetGroup {
        /// The group; made if need be.
        name: GroupName<'a>,
        /// What changes.
        patch: GroupPatch,
    },
    /// `RQ.TENANT.SET`.
    SetTenant {
        /// The tenant; made if need be.
        name: &'a [u8],
        /// What changes.
        patch: TenantPatch,
    },
    /// Settle what is due at the queue's clock: delays, leases, deadlines, retention, pause.
    Sweep {
        /// At most so many items.
        limit: usize,
    },
    /// Workers that hold nothing are forgotten; others stay.
    Forget {
        /// Their names.
        workers: Vec<&'a [u8]>,
    },
}

/// The primary's clocks and counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Duration clock, ms. A queue never goes back on it.
    pub now: u64,
    /// Wall clock, Unix ms. May step.
    pub wall: u64,
    /// The last serial taken on this server, so that serials grow over all of its queues.
    pub serial: Serial,
}

/// From when a job may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// So many ms from now, whatever the wall clock does.
    Delay(u64),
    /// From this Unix ms on, following the wall clock.
    At(u64),
}

/// See [`Op::Enqueue`]. With `id` or `unique`, there is exactly one payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enqueue<'a> {
    /// One job each, in this order.
    pub payloads: Payloads<'a>,
    /// The client's own id, and what to do when a job with that id exists.
    pub id: Option<(&'a [u8], IfExists)>,
    /// The key that the job is to lock. Looked at before `id`.
    pub unique: Option<Box<Unique<'a>>>,
    /// Where they belong.
    pub group: GroupName<'a>,
    /// From when the jobs may run.
    pub when: Option<When>,
    /// Higher first.
    pub priority: u8,
    /// What the job has of its own.
    pub options: JobOptions,
}

/// One payload without an allocation, or many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payloads<'a> {
    /// One job.
    One(&'a [u8]),
    /// So many jobs, all or none.
    Many(Vec<&'a [u8]>),
}

impl<'a> Payloads<'a> {
    /// The payloads in order.
    #[must_use]
    pub fn as_slice(&self) -> &[&'a [u8]] {
        match self {
            Self::One(payload) => std::slice::from_ref(payload),
            Self::Many(payloads) => payloads,
        }
    }
}

/// What `RQ.ENQUEUE` does when a job with the given id exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfExists {
    /// Refuses.
    Refuse,
    /// `IFNEW`: answers with its id and changes nothing.
    Keep,
    /// `REPLACE`: a done, dead or cancelled job makes way; others refuse.
    Replace,
}

/// `UNIQUE`: of the jobs with a key, one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unique<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Until when the new job is to lock it.
    pub until: Until,
    /// For how long after it was enqueued it is to lock it in any case, ms.
    pub window: Option<u64>,
    /// What becomes of the call when a job that was not handed out yet locks the key: it replaces that.
    pub debounce: bool,
}

/// Until when a job locks its key. The numbers are persisted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Until {
    /// Until it is handed out.
    Started = 0,
    /// Until it is final.
    Finished = 1,
}

impl Until {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 2] = [Self::Started, Self::Finished];

    /// The word for it in commands and replies.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Finished => "finished",
        }
    }
}

/// See [`Op::Claim`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim<'a> {
    /// Who takes them.
    pub worker: &'a [u8],
    /// At most so many.
    pub count: usize,
    /// Lease, ms; `None`: as job or queue say.
    pub lease: Option<u64>,
}

/// A job handed out: which job, and the token that says which hand-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery<'a> {
    /// The job.
    pub id: Id<'a>,
    /// The token. [`Serial::NONE`] (also what a malformed one is read as) fits no delivery.
    pub token: Serial,
}

/// What `RQ.FAIL` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Back-off, or dead when attempts are used up.
    Retry,
    /// As `Retry`, with this delay in ms.
    RetryAfter(u64),
    /// Dead at once.
    Dead,
    /// The endpoint failed, not the job: no attempt is used up, and the group backs off.
    Unavailable,
    /// The endpoint asked for so many ms of rest: no attempt is used up.
    Throttled(u64),
}

/// What a pause is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope<'a> {
    /// The whole queue.
    Queue,
    /// A tenant.
    Tenant(&'a [u8]),
    /// A group.
    Group(GroupName<'a>),
}

/// See [`Op::Recover`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recover<'a> {
    /// Whose jobs.
    pub who: Who<'a>,
    /// Only jobs claimed before this Unix ms, as the clocks stand now.
    pub before: Option<u64>,
    /// At most so many.
    pub count: usize,
    /// Whether a crash is used up. Not looked at for [`Who::Lapsed`], where it always is.
    pub counted: bool,
}

/// The selector of a recovery. `IDLE` is resolved to names by the primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who<'a> {
    /// Deliveries whose lease has lapsed, by the rules of a lapse.
    Lapsed,
    /// These workers.
    Named(Vec<&'a [u8]>),
    /// All but these workers.
    Except(Vec<&'a [u8]>),
}

/// What came of an op; by op, see the variants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// `Clock`, `Register`, `Undo`, `Pause`, `Resume`, `Set…`, `Forget`.
    Done,
    /// `Enqueue`: `count` jobs with consecutive serials from `first` on. (A custom id is the id
    /// of the one job then.)
    Enqueued {
        /// Serial of the first.
        first: Serial,
        /// How many.
        count: usize,
    },
    /// `Enqueue` with [`IfExists::Keep`], and it does.
    Existed,
    /// `Enqueue` with a key that a job locks.
    Duplicate {
        /// That job's id, as it is shown.
        id: Box<[u8]>,
        /// Whether the call replaced it, under its id.
        replaced: bool,
    },
    /// `Claim`: the jobs are in [`Effects::claimed`].
    Claimed,
    /// `Cancel`: per id.
    Cancelled(Vec<Cancel>),
    /// `Reschedule`, `Fail`: the state that the job is in now.
    State(State),
    /// `Ack`: whether this call finished the job (otherwise there was nothing left to do).
    Acked(bool),
    /// `Release`, `Extend`: per delivery.
    Held(Vec<Held>),
    /// `Progress`, `Emit`.
    Progressed(Held),
    /// `Recover`.
    Recovered(Recovered),
    /// `Redrive`: per id its state now, `None` for an unknown one.
    Redriven(Vec<Option<State>>),
    /// `RedriveAll`, `Purge`: how many were taken, and how many remain.
    Bulk {
        /// Taken by this call.
        taken: usize,
        /// Left in that state.
        remaining: usize,
    },
    /// `Sweep`: how many items were settled.
    Swept(usize),
}

/// What became of one id of a `Cancel`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancel {
    /// It was waiting and is cancelled now.
    Cancelled,
    /// It is active; its worker will be told.
    Cancelling,
    /// It had ended before, in this state.
    Ended(State),
    /// There is no such job.
    Unknown,
}

/// What became of one delivery of an `Extend`, `Release`, `Progress` or `Emit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// Done as asked.
    Ok,
    /// The token is not the current one: nothing changed.
    Lost,
    /// Done as asked, and the job is to be given up.
    Cancel,
}

/// What a `Recover` took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Jobs taken by this call.
    pub taken: usize,
    /// Jobs that still match. With `before`, or of [`Who::Lapsed`], counted up to
    /// [`super::limits::COUNT_MAX`] only.
    pub remaining: usize,
    /// Per worker that lost some: its name and how many.
    pub by_worker: Vec<(Box<[u8]>, usize)>,
}

/// Slots of jobs; a few of them without an allocation.
pub type Slots = SmallVec<[Slot; 4]>;

/// What an op did, for the shell. One value can be used for many ops, after [`Effects::clear`].
#[derive(Default)]
pub struct Effects<'o> {
    /// Whether anything changed that is persisted. If not, nothing is propagated.
    pub changed: bool,
    /// The jobs of a `Claim`, best first. Valid until the next op.
    pub claimed: Slots,
    /// Told of every job that ends, and of outputs, if somebody wants to know.
    pub observer: Option<&'o mut dyn Observer>,
}

impl Effects<'_> {
    /// Forgets what was done; keeps the observer.
    pub fn clear(&mut self) {
        self.changed = false;
        self.claimed.clear();
    }
}

/// Is told of jobs that end or put something out, in the middle of an op: it must not fail and cannot look at the queue.
pub trait Observer {
    /// A job reached a final state, or is gone.
    fn ended(&mut self, ended: &Ended<'_>);
    /// A job's run put out a chunk.
    fn emitted(&mut self, emitted: &Emitted<'_>);
    /// A job went back to waiting: what its run put out is gone, and this is the number of the next.
    fn restarted(&mut self, id: Id<'_>, run: u64);
}

/// See [`Observer::ended`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended<'a> {
    /// The job.
    pub id: Id<'a>,
    /// The number of the run that its output belongs to.
    pub run: u64,
    /// Its final state; `None`: it is gone without one (purged while it waited).
    pub state: Option<State>,
    /// Result of a done job, error text of a dead one.
    pub value: Option<&'a [u8]>,
    /// How long it stays, ms; `None`: for ever; 0: gone already.
    pub ttl: Option<u64>,
}

/// See [`Observer::emitted`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Emitted<'a> {
    /// The job.
    pub id: Id<'a>,
    /// Where in its output the chunk stands.
    pub place: Place,
    /// The chunk.
    pub chunk: &'a [u8],
}

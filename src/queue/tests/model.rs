//! A second queue, slow and obvious, written from the promises and not from the code.
//!
//! Jobs lie in one list. Whatever is asked is answered by looking at all of them and sorting.
//! There are no containers to keep in step, no counters to forget, nothing to index: where this
//! model and the queue differ, one of them breaks a promise, and the model is the one that a
//! person can read. It uses the op and outcome types of the queue, its settings, its back-off
//! arithmetic and its token bucket (which have their own tests), and nothing else of it.
//!
//! Groups and tenants stand in line or they do not. That is decided when somebody looks, and who looks
//! when is part of the promise, as it decides about turns: a group is looked at whenever one of its jobs
//! comes, goes or moves, when its endpoint was reported on, when it was set, paused or resumed, and by a
//! sweep at the instant at which time lifts what holds it; its tenant is looked at whenever it is.

use crate::queue::{
    Backoff, Bucket, Cancel, Claim, Delivery, Enqueue, Error, Failure, GroupDefaults, GroupName,
    GroupSettings, Held, Hold, Holder, Id, IfExists, JobOptions, Op, Outcome, Place, Rate, Reason, Recover,
    Recovered, Scope, Serial, Settings, Stamp, State, TenantSettings, Totals, Until, When, Who, backoff,
    limits,
};

/// What one claim moves a tenant of weight 1 along.
const STRIDE: u64 = 1 << 20;

/// Tenant and group.
pub type Name = (Vec<u8>, Vec<u8>);

/// When a delayed job is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// At this instant of the duration clock.
    Duration(u64),
    /// When the wall clock shows this.
    Wall(u64),
}

/// What a job is doing, with exactly what belongs to that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    Delayed { due: Due, keeps_place: bool },
    Ready,
    Active { worker: Vec<u8>, until: u64, claimed: u64, cancelling: bool },
    Final { state: State, ended: u64, until: Option<u64>, acked: bool },
}

/// Of the jobs with this key, only one at a time: until it was handed out or ended, and so long at least.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unique {
    pub key: Vec<u8>,
    pub until: Until,
    pub at_least: Option<u64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    pub arrival: u64,
    pub custom_id: Option<Vec<u8>>,
    /// `UNIQUE`, unless a later job took the key over.
    pub unique: Option<Unique>,
    pub payload: Vec<u8>,
    pub group: Name,
    pub priority: u8,
    pub options: JobOptions,
    pub phase: Phase,
    /// Its place among ready jobs.
    pub since: u64,
    /// When it came to be ready.
    ready_since: u64,
    /// When this life began.
    pub enqueued: u64,
    /// When it was enqueued or redriven: its deadline counts from there.
    life_began: u64,
    pub token: u64,
    pub deliveries: u32,
    /// Deliveries of this life; the deadline is about the first of them.
    pub deliveries_of_life: u32,
    pub attempts: u32,
    pub crashes: u32,
    /// Reports that its endpoint was out of reach or overloaded, in a row.
    pub refusals: u32,
    pub progress: Option<Vec<u8>>,
    pub result: Option<Vec<u8>>,
    /// What its present or last run put out.
    pub output: Vec<Vec<u8>>,
    pub error: Option<Vec<u8>>,
    pub reason: Option<Reason>,
    pub last_worker: Option<Vec<u8>>,
    /// When it failed or was lost to its worker, in this life.
    pub failures: Vec<u64>,
}

impl Job {
    pub fn id(&self) -> Id<'_> {
        match &self.custom_id {
            Some(bytes) => Id::Custom(bytes),
            None => Id::Serial(Serial(self.arrival)),
        }
    }

    pub fn state(&self) -> State {
        match self.phase {
            Phase::Delayed { .. } => State::Delayed,
            Phase::Ready => State::Ready,
            Phase::Active { .. } => State::Active,
            Phase::Final { state, .. } => state,
        }
    }

    /// The run that its output belongs to: the present or last one, or the next.
    pub fn run(&self) -> u64 {
        u64::from(self.deliveries) + u64::from(self.is_waiting())
    }

    pub fn is_waiting(&self) -> bool {
        matches!(self.phase, Phase::Delayed { .. } | Phase::Ready)
    }

    /// The instant at which it is dead unless it was claimed in this life.
    pub fn deadline(&self) -> Option<u64> {
        (self.is_waiting() && self.deliveries_of_life == 0)
            .then_some(self.options.deadline.map(|length| self.life_began + length))
            .flatten()
    }

    /// When the time is over for which it has its key in any case.
    pub fn window_end(&self) -> Option<u64> {
        Some(self.enqueued + self.unique.as_ref()?.at_least?)
    }

    /// Whether another job with its key is a duplicate.
    pub fn locks(&self, now: u64) -> bool {
        let Some(unique) = &self.unique else { return false };
        let is_over = match unique.until {
            Until::Started => !self.is_untouched(),
            Until::Finished => self.state().is_final(),
        };
        !is_over || self.window_end().is_some_and(|end| now < end)
    }

    /// Whether no worker has ever seen it, and it still waits for one.
    fn is_untouched(&self) -> bool {
        self.is_waiting() && self.deliveries == 0
    }

    pub fn is_cancelling(&self) -> bool {
        matches!(self.phase, Phase::Active { cancelling: true, .. })
    }

    /// Ready jobs: smallest first.
    pub fn place(&self) -> (u8, u64, u64) {
        (255 - self.priority, self.since, self.arrival)
    }

    fn until(&self) -> Option<u64> {
        match self.phase {
            Phase::Active { until, .. } => Some(until),
            Phase::Final { until, .. } => until,
            _ => None,
        }
    }

    pub fn value(&self) -> Option<&[u8]> {
        match self.state() {
            State::Done => self.result.as_deref(),
            State::Dead => self.error.as_deref(),
            State::Cancelled => None,
            _ => self.progress.as_deref(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worker {
    pub name: Vec<u8>,
    pub first_seen: u64,
    pub done: u64,
    pub failed: u64,
    pub crashed: u64,
}

/// What a group remembers of an endpoint that was down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Circuit {
    /// Openings in a row; 0: closed.
    pub level: u32,
    /// Open: until when nothing is tried.
    pub until: u64,
    /// The last serial when it opened: larger tokens were handed out since.
    opened: u64,
    /// The token of the one job that tries whether the endpoint is back.
    pub probe: Option<u64>,
    /// The last serial when it closed.
    closed: u64,
}

/// What a group remembers of an endpoint that asked for less.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Throttle {
    /// The end of the rest.
    pub until: u64,
    /// The last serial when the rest began.
    since: u64,
    pub limit: u32,
    pub goal: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub name: Name,
    pub born: u64,
    pub own: GroupSettings,
    pub paused_until: Option<u64>,
    pub bucket: Bucket,
    pub circuit: Circuit,
    pub throttle: Option<Throttle>,
    /// Since which turn it stands in its tenant's line, if it does.
    pub turn: Option<u64>,
    /// When a sweep is to look at it.
    wake: Option<u64>,
}

impl Group {
    /// Whether what is reported about its endpoint may matter.
    fn is_troubled(&self) -> bool {
        self.circuit.level > 0 || self.throttle.is_some()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    pub name: Vec<u8>,
    born: u64,
    pub settings: TenantSettings,
    pub paused_until: Option<u64>,
    pub bucket: Bucket,
    pass: u64,
    turn: Option<u64>,
    wake: Option<u64>,
}

/// What statistics are made of. The numbers are those of [`crate::queue::EVENTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Enqueued = 0,
    Delivered = 1,
    Done = 2,
    Failed = 3,
    Lapsed = 4,
    Dead = 5,
    Cancelled = 6,
    Refused = 7,
}

/// What an observer is told of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    Ended { id: Vec<u8>, run: u64, state: Option<State>, value: Option<Vec<u8>>, ttl: Option<u64> },
    Emitted { id: Vec<u8>, place: Place, chunk: Vec<u8> },
    Restarted { id: Vec<u8>, run: u64 },
}

#[derive(Clone)]
pub struct Model {
    pub now: u64,
    pub wall: u64,
    pub serial: u64,
    pub settings: Settings,
    pub jobs: Vec<Job>,
    /// In order of registration.
    pub workers: Vec<Worker>,
    pub paused_until: Option<u64>,
    bucket: Bucket,
    /// Both in order of birth. The nameless group of the nameless tenant is always there.
    pub groups: Vec<Group>,
    pub tenants: Vec<Tenant>,
    births: u64,
    turns: u64,
    /// The pass that the tenant had that was served last while others stood in line.
    last_pass: u64,
    /// The defaults for groups changed: those born from here on are still to be looked at by sweeps.
    pub review: Option<u64>,
    pub totals: Totals,
    /// All that ever happened: when, what, and whether it happened (1) or was undone (-1).
    events: Vec<(u64, Event, i64)>,
    /// How long each job waited that was ever claimed: when that was, and for how long.
    waits: Vec<(u64, u64)>,
    /// The same of the time that workers had them.
    runs: Vec<(u64, u64)>,
    /// What the last op handed out: arrival numbers, best first.
    pub claimed: Vec<u64>,
    /// What an observer of the last op is told.
    pub notes: Vec<Note>,
}

/// How a delivery ended other than by finishing the job.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Return {
    /// Its lease lapsed.
    Lapse,
    /// It was recovered, using up a crash.
    Counted,
    /// It was recovered without.
    Uncounted,
}

impl Model {
    pub fn new(settings: Settings, stamp: Stamp) -> Self {
        let mut model = Self {
            now: stamp.now,
            wall: stamp.wall,
            serial: stamp.serial.0,
            settings,
            jobs: Vec::new(),
            workers: Vec::new(),
            paused_until: None,
            bucket: Bucket::default(),
            groups: Vec::new(),
            tenants: Vec::new(),
            births: 0,
            turns: 0,
            last_pass: 0,
            review: None,
            totals: Totals::default(),
            events: Vec::new(),
            waits: Vec::new(),
            runs: Vec::new(),
            claimed: Vec::new(),
            notes: Vec::new(),
        };
        model.make_group(GroupName::default());
        model
    }

    pub fn apply(&mut self, op: &Op<'_>) -> Result<Outcome, Error> {
        self.claimed.clear();
        self.notes.clear();
        match op {
            Op::Clock(stamp) => {
                self.now = self.now.max(stamp.now);
                self.wall = stamp.wall;
                self.serial = self.serial.max(stamp.serial.0);
                Ok(Outcome::Done)
            }
            Op::Enqueue(enqueue) => self.enqueue(enqueue),
            Op::Cancel { ids } => Ok(Outcome::Cancelled(ids.iter().map(|&id| self.cancel(id)).collect())),
            Op::Reschedule { id, when, priority } => self.reschedule(*id, *when, *priority),
            Op::Claim(claim) => {
                self.claim(claim);
                Ok(Outcome::Claimed)
            }
            Op::Register { worker } => {
                self.register(worker);
                Ok(Outcome::Done)
            }
            Op::Undo { grants } => {
                for &grant in grants {
                    self.undo(grant);
                }
                Ok(Outcome::Done)
            }
            Op::Ack { delivery, result, ttl } => self.ack(*delivery, *result, *ttl),
            Op::Fail { delivery, error, how } => self.fail(*delivery, *error, *how),
            Op::Release { deliveries } => {
                Ok(Outcome::Held(deliveries.iter().map(|&delivery| self.release(delivery)).collect()))
            }
            Op::Extend { lease, deliveries, .. } => {
                Ok(Outcome::Held(deliveries.iter().map(|&delivery| self.extend(delivery, *lease)).collect()))
            }
            Op::Progress { delivery, value } => {
                let at = self.held(*delivery)?;
                self.jobs[at].progress = Some(limits::clip(value).into());
                let cancelling = self.jobs[at].is_cancelling();
                Ok(Outcome::Progressed(if cancelling { Held::Cancel } else { Held::Ok }))
            }
            Op::Emit { delivery, chunk } => self.emit(*delivery, chunk),
            Op::Recover(recover) => Ok(Outcome::Recovered(self.recover(recover))),
            Op::Redrive { ids } => Ok(Outcome::Redriven(
                ids.iter()
                    .map(|&id| {
                        let at = self.find(id)?;
                        if self.jobs[at].state() == State::Dead && self.has_room(1) {
                            self.redrive(at);
                        }
                        Some(self.jobs[at].state())
                    })
                    .collect(),
            )),
            Op::RedriveAll { count } => {
                let mut taken = 0;
                while taken < *count && self.has_room(1) {
                    let Some(at) = self.first_to_expire(&[State::Dead]) else { break };
                    self.redrive(at);
                    taken += 1;
                }
                Ok(Outcome::Bulk { taken, remaining: self.count(State::Dead) })
            }
            Op::Purge { state, count } => self.purge(*state, *count),
            Op::Pause { scope, length } => {
                self.pause(*scope, *length);
                Ok(Outcome::Done)
            }
            Op::Resume { scope } => {
                self.resume(*scope);
                Ok(Outcome::Done)
            }
            Op::Set(patch) => {
                let before = self.settings.group;
                self.settings = self.settings.patched(patch);
                if self.settings.group != before {
                    self.review = Some(0);
                }
                Ok(Outcome::Done)
            }
            Op::SetGroup { name, patch } => {
                let before = self.group_at(*name).map(|at| self.groups[at].own).unwrap_or_default();
                let own = before.patched(patch);
                if own != before {
                    let at = self.make_group(*name);
                    self.groups[at].own = own;
                    self.look(&owned(*name));
                }
                Ok(Outcome::Done)
            }
            Op::SetTenant { name, patch } => {
                let before = self.tenant_at(name).map(|at| self.tenants[at].settings).unwrap_or_default();
                let settings = before.patched(patch);
                if settings != before {
                    let at = self.make_tenant(name);
                    self.tenants[at].settings = settings;
                    self.look_at_tenant(name);
                }
                Ok(Outcome::Done)
            }
            Op::Sweep { limit } => Ok(Outcome::Swept((0..*limit).take_while(|_| self.settle_one()).count())),
            Op::Forget { workers } => {
                for name in workers {
                    if self.held_by(name).is_empty() {
                        self.workers.retain(|worker| worker.name != *name);
                    }
                }
                Ok(Outcome::Done)
            }
        }
    }

    pub fn clock(&self) -> Stamp {
        Stamp { now: self.now, wall: self.wall, serial: Serial(self.serial) }
    }

    pub fn set_clock(&mut self, clock: Stamp) {
        (self.now, self.wall, self.serial) = (clock.now, clock.wall, clock.serial.0);
    }

    /// Whether all that is kept of two queues is the same.
    pub fn is_same_as(&self, other: &Self) -> bool {
        self.clock() == other.clock()
            && self.settings == other.settings
            && self.jobs == other.jobs
            && self.workers == other.workers
            && self.paused_until == other.paused_until
            && self.bucket == other.bucket
            && self.groups == other.groups
            && self.tenants == other.tenants
            && self.births == other.births
            && self.turns == other.turns
            && self.last_pass == other.last_pass
            && self.review == other.review
            && self.totals == other.totals
    }

    // ---- looking ----

    pub fn find(&self, id: Id<'_>) -> Option<usize> {
        self.jobs.iter().position(|job| job.id() == id)
    }

    /// The job that has this key, whether it still locks it or not.
    pub fn owner(&self, key: &[u8]) -> Option<usize> {
        self.jobs.iter().position(|job| job.unique.as_ref().is_some_and(|unique| unique.key == key))
    }

    pub fn count(&self, state: State) -> usize {
        self.jobs.iter().filter(|job| job.state() == state).count()
    }

    pub fn waiting(&self) -> usize {
        self.jobs.iter().filter(|job| job.is_waiting()).count()
    }

    fn has_room(&self, jobs: usize) -> bool {
        self.settings.max_len.is_none_or(|max| (self.waiting() + jobs) as u64 <= max)
    }

    pub fn group_at(&self, name: GroupName<'_>) -> Option<usize> {
        self.groups.iter().position(|group| group.name.0 == name.tenant && group.name.1 == name.group)
    }

    pub fn tenant_at(&self, name: &[u8]) -> Option<usize> {
        self.tenants.iter().position(|tenant| tenant.name == name)
    }

    fn group_of(&self, at: usize) -> usize {
        let name = &self.jobs[at].group;
        self.groups.iter().position(|group| group.name == *name).expect("a job has a group")
    }

    /// Positions of a group's jobs in a state.
    pub fn jobs_of(&self, group: &Name, state: State) -> Vec<usize> {
        let of_group = |&at: &usize| self.jobs[at].group == *group && self.jobs[at].state() == state;
        (0..self.jobs.len()).filter(of_group).collect()
    }

    pub fn active_of_tenant(&self, tenant: &[u8]) -> usize {
        let is_active = |job: &&Job| job.group.0 == tenant && job.state() == State::Active;
        self.jobs.iter().filter(is_active).count()
    }

    /// What a group goes by. Jobs without a group share no fate, so the defaults are not for them.
    pub fn terms(&self, group: &Group) -> GroupDefaults {
        let defaults = if group.name.1.is_empty() { GroupDefaults::default() } else { self.settings.group };
        GroupDefaults {
            concurrency: group.own.concurrency.unwrap_or(defaults.concurrency),
            rate: group.own.rate.unwrap_or(defaults.rate),
            backoff: group.own.backoff.unwrap_or(defaults.backoff),
            ordered: group.own.ordered.unwrap_or(defaults.ordered),
        }
    }

    /// The least of what is set, what a throttle leaves, and the one that an ordered group has at once.
    pub fn concurrency(&self, group: &Group) -> Option<u32> {
        let terms = self.terms(group);
        let mut limits: Vec<u32> = terms.concurrency.into_iter().collect();
        limits.extend(group.throttle.as_ref().map(|throttle| throttle.limit));
        if terms.ordered {
            limits.push(1);
        }
        limits.into_iter().min()
    }

    /// Why a group would not be served, for reasons of its own.
    pub fn hold_of_group(&self, group: &Group, now: u64) -> Option<Hold> {
        let (terms, circuit) = (self.terms(group), &group.circuit);
        let retries = self.jobs_of(&group.name, State::Delayed);
        if let Some(until) = group.paused_until.filter(|&until| now < until) {
            return Some(Hold::Paused(until));
        }
        if circuit.level > 0 && now < circuit.until {
            return Some(Hold::Backoff(circuit.until));
        }
        if circuit.level > 0 && circuit.probe.is_some() {
            return Some(Hold::Probe);
        }
        if let Some(throttle) = group.throttle.as_ref().filter(|throttle| now < throttle.until) {
            return Some(Hold::Throttled(throttle.until));
        }
        if terms.ordered && retries.iter().any(|&at| self.jobs[at].deliveries > 0) {
            return Some(Hold::Ordered);
        }
        let active = self.jobs_of(&group.name, State::Active).len();
        limited(active, self.concurrency(group), group.bucket, terms.rate, now)
    }

    pub fn hold_of_tenant(&self, tenant: &Tenant, now: u64) -> Option<Hold> {
        if let Some(until) = tenant.paused_until.filter(|&until| now < until) {
            return Some(Hold::Paused(until));
        }
        let TenantSettings { concurrency, rate, .. } = tenant.settings;
        limited(self.active_of_tenant(&tenant.name), concurrency, tenant.bucket, rate, now)
    }

    pub fn hold_of_queue(&self, now: u64) -> Option<Hold> {
        if let Some(until) = self.paused_until.filter(|&until| now < until) {
            return Some(Hold::Paused(until));
        }
        limited(self.count(State::Active), self.settings.concurrency, self.bucket, self.settings.rate, now)
    }

    /// Why a group would not be served, and who stands in the way.
    pub fn hold_of(&self, group: &Group, now: u64) -> Option<(Hold, Holder)> {
        let tenant = &self.tenants[self.tenant_at(&group.name.0).expect("a group has a tenant")];
        self.hold_of_group(group, now)
            .map(|hold| (hold, Holder::Group))
            .or_else(|| self.hold_of_tenant(tenant, now).map(|hold| (hold, Holder::Tenant)))
            .or_else(|| self.hold_of_queue(now).map(|hold| (hold, Holder::Queue)))
    }

    /// The groups of a tenant that stand in line.
    fn line(&self, tenant: &[u8]) -> Vec<&Group> {
        let mut line: Vec<&Group> =
            self.groups.iter().filter(|group| group.name.0 == tenant && group.turn.is_some()).collect();
        line.sort_by_key(|group| group.turn);
        line
    }

    /// The tenants that stand in line.
    fn line_of_tenants(&self) -> Vec<&Tenant> {
        let mut line: Vec<&Tenant> = self.tenants.iter().filter(|tenant| tenant.turn.is_some()).collect();
        line.sort_by_key(|tenant| (tenant.pass, tenant.turn));
        line
    }

    pub fn groups_in_line(&self) -> usize {
        self.line_of_tenants().iter().map(|tenant| self.line(&tenant.name).len()).sum()
    }

    /// The job that is first in line.
    pub fn first_in_line(&self) -> Option<usize> {
        let tenant = *self.line_of_tenants().first()?;
        let group = *self.line(&tenant.name).first()?;
        self.jobs_of(&group.name, State::Ready).into_iter().min_by_key(|&at| self.jobs[at].place())
    }

    pub fn due(&self, job: &Job) -> Option<u64> {
        match job.phase {
            Phase::Delayed { due: Due::Duration(at), .. } => Some(at),
            Phase::Delayed { due: Due::Wall(at), .. } => Some(self.wall_to_now(at)),
            _ => None,
        }
    }

    fn wall_to_now(&self, wall: u64) -> u64 {
        (self.now + wall).saturating_sub(self.wall)
    }

    /// Positions of the jobs in a state, in the order in which they are listed.
    pub fn list(&self, state: State) -> Vec<usize> {
        let mut found: Vec<usize> =
            (0..self.jobs.len()).filter(|&at| self.jobs[at].state() == state).collect();
        found.sort_by_key(|&at| {
            let job = &self.jobs[at];
            match job.phase {
                // Group by group, the oldest first.
                Phase::Ready => (self.groups[self.group_of(at)].born, job.place()),
                Phase::Delayed { due: Due::Duration(due), .. } => (0, (0, due, job.arrival)),
                Phase::Delayed { due: Due::Wall(due), .. } => (0, (1, due, job.arrival)),
                // Worker by worker, each by token.
                Phase::Active { ref worker, .. } => {
                    let number = self.workers.iter().position(|known| known.name == *worker);
                    (number.expect("a job has an owner") as u64, (0, job.token, 0))
                }
                Phase::Final { until, .. } => (0, (0, until.unwrap_or(u64::MAX), job.arrival)),
            }
        });
        found
    }

    /// Positions of the active jobs, the first to lapse first.
    fn by_lease(&self) -> Vec<usize> {
        let mut found = self.list(State::Active);
        found.sort_by_key(|&at| (self.jobs[at].until(), self.jobs[at].arrival));
        found
    }

    /// Positions of the jobs that a worker holds, oldest token first.
    pub fn held_by(&self, name: &[u8]) -> Vec<usize> {
        let mut found: Vec<usize> = (0..self.jobs.len())
            .filter(|&at| matches!(&self.jobs[at].phase, Phase::Active { worker, .. } if worker == name))
            .collect();
        found.sort_by_key(|&at| self.jobs[at].token);
        found
    }

    fn held_by_each(&self, wanted: impl Fn(&[u8]) -> bool) -> Vec<usize> {
        let workers = self.workers.iter().filter(|worker| wanted(&worker.name));
        workers.flat_map(|worker| self.held_by(&worker.name)).collect()
    }

    /// The job of a delivery that is still on.
    fn held(&self, delivery: Delivery<'_>) -> Result<usize, Error> {
        let at = self.find(delivery.id).ok_or(Error::NoJob)?;
        let job = &self.jobs[at];
        if job.state() == State::Active && job.token == delivery.token.0 { Ok(at) } else { Err(Error::Stale) }
    }

    fn backoff_of(&self, at: usize) -> Backoff {
        self.jobs[at].options.backoff.unwrap_or(self.settings.backoff)
    }

    pub fn attempts_allowed(&self, job: &Job) -> Option<u32> {
        job.options.attempts.unwrap_or(self.settings.attempts)
    }

    pub fn crashes_allowed(&self, job: &Job) -> Option<u32> {
        job.options.crashes.unwrap_or(self.settings.crashes)
    }

    fn first_to_expire(&self, states: &[State]) -> Option<usize> {
        (0..self.jobs.len())
            .filter(|&at| states.contains(&self.jobs[at].state()))
            .min_by_key(|&at| (self.jobs[at].until().unwrap_or(u64::MAX), self.jobs[at].arrival))
    }

    /// The first job to go because too many done and cancelled, or too many dead ones are kept.
    fn surplus(&self) -> Option<usize> {
        let over = |states: &[State], keep: Option<u64>| {
            let kept: usize = states.iter().map(|&state| self.count(state)).sum();
            if kept as u64 > keep? { self.first_to_expire(states) } else { None }
        };
        over(&[State::Done, State::Cancelled], self.settings.keep_done)
            .or_else(|| over(&[State::Dead], self.settings.keep_dead))
    }

    /// The least instant at which something is to be done, on the duration clock.
    pub fn next_wakeup(&self) -> Option<u64> {
        self.next_wakeup_at(self.now, self.wall)
    }

    /// The same when the clocks show something else.
    pub fn next_wakeup_at(&self, now: u64, wall: u64) -> Option<u64> {
        let mut instants: Vec<u64> = Vec::new();
        instants.extend(self.paused_until.filter(|&until| until != u64::MAX));
        // Out of rate as a whole, the queue serves again at that instant, if somebody stands in line.
        if let Some(Hold::Rate(at)) = self.hold_of_queue(now)
            && self.first_in_line().is_some()
        {
            instants.push(at);
        }
        instants.extend(self.groups.iter().filter_map(|group| group.wake));
        instants.extend(self.tenants.iter().filter_map(|tenant| tenant.wake));
        for job in &self.jobs {
            instants.extend(job.deadline());
            instants.extend(match job.phase {
                Phase::Delayed { due: Due::Duration(at), .. } => Some(at),
                Phase::Delayed { due: Due::Wall(at), .. } => Some((now + at).saturating_sub(wall)),
                _ => job.until(),
            });
        }
        if self.surplus().is_some() || self.review.is_some() {
            instants.push(self.now);
        }
        instants.into_iter().min()
    }

    fn worker(&mut self, name: &[u8]) -> Option<&mut Worker> {
        self.workers.iter_mut().find(|worker| worker.name == name)
    }

    fn worker_of(&mut self, at: usize) -> Option<&mut Worker> {
        let Phase::Active { worker, .. } = &self.jobs[at].phase else { return None };
        let name = worker.clone();
        self.worker(&name)
    }

    /// How often each event occurred in the last minutes, the share of the first one taken that lies in
    /// them.
    pub fn events_in(&self, now: u64, minutes: u64) -> [u64; 8] {
        let mut sums = [0.0; 8];
        for &(at, event, times) in &self.events {
            let age = now / 60_000 - at / 60_000;
            let inside = if age < minutes {
                1.0
            } else if age == minutes {
                1.0 - (now % 60_000) as f64 / 60_000.0
            } else {
                0.0
            };
            sums[event as usize] += times as f64 * inside;
        }
        sums.map(|sum: f64| (sum + 1e-9).round().max(0.0) as u64)
    }

    /// Of (when, how long) what counts at `now`, sorted.
    fn lately(samples: &[(u64, u64)], now: u64) -> Vec<u64> {
        let mut lengths: Vec<u64> = (samples.iter())
            .filter(|(at, _)| at / 60_000 + 5 > now / 60_000)
            .map(|&(_, length)| length)
            .collect();
        lengths.sort_unstable();
        lengths
    }

    /// How long jobs waited, and how long workers had them, in the last five minutes; sorted.
    pub fn waits_and_runs(&self, now: u64) -> [Vec<u64>; 2] {
        [&self.waits, &self.runs].map(|samples| Self::lately(samples, now))
    }

    // ---- changing ----

    fn happened(&mut self, event: Event) {
        self.events.push((self.now, event, 1));
    }

    fn ran(&mut self, at: usize) {
        if let Phase::Active { claimed, .. } = self.jobs[at].phase {
            self.runs.push((self.now, self.now - claimed));
        }
    }

    fn next_serial(&mut self) -> u64 {
        self.serial = (self.serial + 1).max(self.wall << 20);
        self.serial
    }

    fn register(&mut self, name: &[u8]) {
        if self.worker(name).is_none() {
            let (name, first_seen) = (name.to_vec(), self.now);
            self.workers.push(Worker { name, first_seen, done: 0, failed: 0, crashed: 0 });
        }
    }

    /// How long a job would wait, and how it would do so. `None`: not at all.
    fn wait(&self, when: Option<When>) -> Option<(u64, Due)> {
        match when? {
            When::Delay(0) => None,
            When::Delay(length) => Some((length, Due::Duration(self.now + length))),
            When::At(at) if at <= self.wall => None,
            When::At(at) => Some((at - self.wall, Due::Wall(at))),
        }
    }

    fn enqueue(&mut self, enqueue: &Enqueue<'_>) -> Result<Outcome, Error> {
        let mut replaced = None;
        let mut successor_of = None;
        let owner = enqueue.unique.as_ref().and_then(|unique| self.owner(unique.key));
        if let Some(at) = owner
            && self.jobs[at].locks(self.now)
        {
            if !(enqueue.unique.as_ref().is_some_and(|unique| unique.debounce)
                && self.jobs[at].is_untouched())
            {
                return Ok(Outcome::Duplicate { id: self.shown_id(at).into(), replaced: false });
            }
            replaced = Some(at);
            successor_of = Some((self.shown_id(at).into(), self.jobs[at].clone()));
        } else if let Some((bytes, if_exists)) = enqueue.id
            && let Some(at) = self.find(Id::Custom(bytes))
        {
            let state = self.jobs[at].state();
            match if_exists {
                IfExists::Keep => return Ok(Outcome::Existed),
                IfExists::Replace if state.is_final() => replaced = Some(at),
                _ => return Err(Error::Exists(state)),
            }
        }
        let wait = self.wait(enqueue.when);
        if let Some(length) = enqueue.options.deadline
            && wait.map_or(0, |(wait, _)| wait) >= length
        {
            return Err(Error::BeyondDeadline(length));
        }
        let payloads = enqueue.payloads.as_slice();
        if successor_of.is_none() && !self.has_room(payloads.len()) {
            return Err(Error::Full);
        }
        if let Some(at) = owner {
            self.jobs[at].unique = None;
        }
        if let Some(at) = replaced {
            self.remove(at);
        }
        self.make_group(enqueue.group);
        let mut first = None;
        for payload in payloads {
            let (arrival, custom_id) = match &successor_of {
                Some((_, before)) => (before.arrival, before.custom_id.clone()),
                None => (self.next_serial(), enqueue.id.map(|(bytes, _)| bytes.to_vec())),
            };
            first.get_or_insert(arrival);
            self.totals.enqueued += 1;
            self.happened(Event::Enqueued);
            self.jobs.push(Job {
                arrival,
                custom_id,
                unique: enqueue.unique.as_ref().map(|unique| Unique {
                    key: unique.key.to_vec(),
                    until: unique.until,
                    at_least: unique.window,
                }),
                payload: payload.to_vec(),
                group: owned(enqueue.group),
                priority: enqueue.priority,
                options: enqueue.options,
                phase: wait.map_or(Phase::Ready, |(_, due)| Phase::Delayed { due, keeps_place: false }),
                since: self.now,
                ready_since: self.now,
                enqueued: self.now,
                life_began: self.now,
                token: 0,
                deliveries: 0,
                deliveries_of_life: 0,
                attempts: 0,
                crashes: 0,
                refusals: 0,
                progress: None,
                output: Vec::new(),
                result: None,
                error: None,
                reason: None,
                last_worker: None,
                failures: Vec::new(),
            });
        }
        self.look(&owned(enqueue.group));
        Ok(match successor_of {
            Some((id, _)) => Outcome::Duplicate { id, replaced: true },
            None => Outcome::Enqueued { first: Serial(first.unwrap_or(0)), count: payloads.len() },
        })
    }

    fn cancel(&mut self, id: Id<'_>) -> Cancel {
        let Some(at) = self.find(id) else { return Cancel::Unknown };
        match &mut self.jobs[at].phase {
            Phase::Final { state, .. } => Cancel::Ended(*state),
            Phase::Active { cancelling: true, .. } => Cancel::Cancelling,
            Phase::Active { cancelling, .. } => {
                *cancelling = true;
                // Its worker may never say what it found: it does not count as the probe any more.
                self.report(at, Self::withdrawn);
                Cancel::Cancelling
            }
            _ => {
                self.end_cancelled(at);
                Cancel::Cancelled
            }
        }
    }

    fn reschedule(&mut self, id: Id<'_>, when: Option<When>, priority: Option<u8>) -> Result<Outcome, Error> {
        let at = self.find(id).ok_or(Error::NoJob)?;
        let before = self.jobs[at].clone();
        if !self.jobs[at].is_waiting() {
            return Err(Error::BadState(self.jobs[at].state()));
        }
        if when.is_some() {
            let wait = self.wait(when);
            if let Some(deadline) = self.jobs[at].deadline()
                && self.now + wait.map_or(0, |(wait, _)| wait) >= deadline
            {
                return Err(Error::BeyondDeadline(deadline.saturating_sub(self.now)));
            }
            self.jobs[at].since = self.fresh_place(at, self.now);
            self.jobs[at].phase =
                wait.map_or(Phase::Ready, |(_, due)| Phase::Delayed { due, keeps_place: false });
            let is_ready = self.jobs[at].phase == Phase::Ready;
            if is_ready && (self.jobs[at].since == self.now || before.phase != Phase::Ready) {
                self.jobs[at].ready_since = self.now;
            }
        }
        if let Some(priority) = priority {
            self.jobs[at].priority = priority;
        }
        if self.jobs[at] != before {
            self.look_at_group_of(at);
        }
        Ok(Outcome::State(self.jobs[at].state()))
    }

    fn claim(&mut self, claim: &Claim<'_>) {
        self.register(claim.worker);
        while self.hold_of_queue(self.now).is_none() && self.claimed.len() < claim.count {
            let Some(at) = self.first_in_line() else { break };
            let group = &self.groups[self.group_of(at)];
            if self.hold_of_group(group, self.now).is_some() {
                // The defaults changed and no sweep came here yet: it steps out of line.
                self.look_at_group_of(at);
                continue;
            }
            if self.jobs[at].deadline().is_some_and(|deadline| deadline <= self.now) {
                self.end_dead(at, Reason::Deadline);
                continue;
            }
            let token = self.next_serial();
            self.serve(at, token);
            let lease = claim.lease.or(self.jobs[at].options.lease).unwrap_or(self.settings.lease);
            let (worker, until, claimed) = (claim.worker.to_vec(), self.now + lease, self.now);
            let job = &mut self.jobs[at];
            job.phase = Phase::Active { worker, until, claimed, cancelling: false };
            job.token = token;
            job.deliveries += 1;
            job.deliveries_of_life += 1;
            self.claimed.push(job.arrival);
            self.waits.push((claimed, claimed - job.ready_since));
            self.totals.delivered += 1;
            self.happened(Event::Delivered);
            self.look_at_group_of(at);
        }
    }

    /// Whoever is handed out a job pays for it, and goes to the end of the line if others stand there.
    fn serve(&mut self, at: usize, token: u64) {
        let (now, group) = (self.now, self.group_of(at));
        let rate = self.terms(&self.groups[group]).rate;
        let of_tenant = self.groups[group].name.0.clone();
        let tenant = self.tenant_at(&of_tenant).expect("a group has a tenant");
        let groups = self.line(&of_tenant).len();
        let tenants = self.line_of_tenants().len();
        pay(&mut self.bucket, self.settings.rate, now);
        pay(&mut self.groups[group].bucket, rate, now);
        let group = &mut self.groups[group];
        let tenant = &mut self.tenants[tenant];
        pay(&mut tenant.bucket, tenant.settings.rate, now);
        if group.circuit.level > 0 {
            group.circuit.probe = Some(token);
        }
        if groups > 1 {
            group.turn = None;
        }
        if tenants > 1 {
            self.last_pass = tenant.pass;
            tenant.pass += STRIDE / u64::from(tenant.settings.weight);
            tenant.turn = None;
        }
    }

    fn undo(&mut self, grant: Delivery<'_>) {
        let Ok(at) = self.held(grant) else { return };
        let group = self.group_of(at);
        let rate = self.terms(&self.groups[group]).rate;
        let tenant = self.tenant_at(&self.jobs[at].group.0).expect("a group has a tenant");
        pay_back(&mut self.bucket, self.settings.rate);
        pay_back(&mut self.groups[group].bucket, rate);
        let tenant = &mut self.tenants[tenant];
        pay_back(&mut tenant.bucket, tenant.settings.rate);
        self.withdrawn(group, grant.token.0);
        self.totals.delivered -= 1;
        self.events.push((self.now, Event::Delivered, -1));
        self.jobs[at].deliveries -= 1;
        self.jobs[at].deliveries_of_life -= 1;
        self.jobs[at].output.clear();
        self.give_back(at);
    }

    fn ack(
        &mut self,
        delivery: Delivery<'_>,
        result: Option<&[u8]>,
        ttl: Option<Option<u64>>,
    ) -> Result<Outcome, Error> {
        let Some(at) = self.find(delivery.id) else { return Ok(Outcome::Acked(false)) };
        let job = &self.jobs[at];
        if matches!(job.phase, Phase::Final { acked: true, .. }) && job.token == delivery.token.0 {
            return Ok(Outcome::Acked(false));
        }
        let at = self.held(delivery)?;
        self.ran(at);
        if let Some(worker) = self.worker_of(at) {
            worker.done += 1;
        }
        self.report(at, |model, group, token| {
            model.answered(group, token);
            model.succeeded(group, token);
        });
        if self.jobs[at].is_cancelling() {
            self.end(at, State::Cancelled, true);
            return Ok(Outcome::Acked(true));
        }
        let has_result = result.is_some() || !self.jobs[at].output.is_empty();
        let of_queue = if has_result { self.settings.result_ttl } else { self.settings.ttl };
        let ttl = ttl.or(self.jobs[at].options.ttl).unwrap_or(of_queue);
        self.jobs[at].result = result.map(<[u8]>::to_vec);
        self.end_for(at, State::Done, ttl, true);
        Ok(Outcome::Acked(true))
    }

    fn fail(&mut self, delivery: Delivery<'_>, error: Option<&[u8]>, how: Failure) -> Result<Outcome, Error> {
        let at = self.held(delivery)?;
        self.ran(at);
        if matches!(how, Failure::Unavailable | Failure::Throttled(_)) {
            return Ok(Outcome::State(self.refuse(at, error, how)));
        }
        self.report(at, Self::answered);
        self.jobs[at].refusals = 0;
        if let Some(worker) = self.worker_of(at) {
            worker.failed += 1;
        }
        self.totals.failed += 1;
        self.happened(Event::Failed);
        self.jobs[at].attempts += 1;
        self.jobs[at].failures.push(self.now);
        self.jobs[at].error = error.map(|error| limits::clip(error).into());
        if self.jobs[at].is_cancelling() {
            self.end_cancelled(at);
            return Ok(Outcome::State(State::Cancelled));
        }
        let attempts = self.jobs[at].attempts;
        let used_up = self.attempts_allowed(&self.jobs[at]).is_some_and(|allowed| attempts >= allowed);
        if how == Failure::Dead || used_up {
            self.end_dead(at, if how == Failure::Dead { Reason::Failed } else { Reason::Attempts });
            return Ok(Outcome::State(State::Dead));
        }
        let wait = match how {
            Failure::RetryAfter(wait) => wait,
            _ => backoff::wait(self.backoff_of(at), Serial(self.jobs[at].arrival), attempts),
        };
        self.jobs[at].since = self.fresh_place(at, self.now);
        self.wait_or_ready(at, wait, false);
        Ok(Outcome::State(self.jobs[at].state()))
    }

    /// The endpoint failed, not the job: no attempt is used up, and the place is kept.
    fn refuse(&mut self, at: usize, error: Option<&[u8]>, how: Failure) -> State {
        self.totals.refused += 1;
        self.happened(Event::Refused);
        self.jobs[at].refusals += u32::from(how == Failure::Unavailable);
        self.jobs[at].error = error.map(|error| limits::clip(error).into());
        let (token, group) = (self.jobs[at].token, self.group_of(at));
        let has_group = !self.jobs[at].group.1.is_empty();
        match how {
            Failure::Throttled(length) if has_group => self.throttled(group, token, length),
            _ if has_group => self.unavailable(group, token),
            _ => {}
        }
        self.look_at_group_of(at);
        if self.jobs[at].is_cancelling() {
            self.end_cancelled(at);
            return State::Cancelled;
        }
        if has_group {
            self.give_back(at);
            return State::Ready;
        }
        let wait = match how {
            Failure::Throttled(length) => length,
            _ => {
                let job = &self.jobs[at];
                backoff::wait(self.backoff_of(at), Serial(job.arrival), job.refusals)
            }
        };
        self.wait_or_ready(at, wait, true);
        self.jobs[at].state()
    }

    fn release(&mut self, delivery: Delivery<'_>) -> Held {
        let Ok(at) = self.held(delivery) else { return Held::Lost };
        self.totals.released += 1;
        self.report(at, Self::withdrawn);
        self.give_back(at);
        Held::Ok
    }

    fn extend(&mut self, delivery: Delivery<'_>, lease: u64) -> Held {
        let Ok(at) = self.held(delivery) else { return Held::Lost };
        let deadline = self.now + lease;
        let Phase::Active { until, cancelling, .. } = &mut self.jobs[at].phase else { return Held::Lost };
        let (moved, cancelling) = (*until != deadline, *cancelling);
        *until = deadline;
        if moved {
            self.look_at_group_of(at);
        }
        if cancelling { Held::Cancel } else { Held::Ok }
    }

    fn recover(&mut self, recover: &Recover<'_>) -> Recovered {
        let matching = |model: &Self| -> Vec<usize> {
            let mut found: Vec<usize> = match &recover.who {
                Who::Lapsed => model
                    .by_lease()
                    .into_iter()
                    .filter(|&at| model.jobs[at].until().is_some_and(|until| until <= model.now))
                    .collect(),
                // Worker by worker, in order of registration; of each its oldest delivery first.
                Who::Named(names) => model.held_by_each(|name| names.contains(&name)),
                Who::Except(names) => model.held_by_each(|name| !names.contains(&name)),
            };
            found.retain(|&at| {
                let Phase::Active { claimed, .. } = model.jobs[at].phase else { unreachable!() };
                recover.before.is_none_or(|before| claimed < model.wall_to_now(before))
            });
            found
        };
        let how = match (&recover.who, recover.counted) {
            (Who::Lapsed, _) => Return::Lapse,
            (_, true) => Return::Counted,
            (_, false) => Return::Uncounted,
        };
        let mut recovered = Recovered::default();
        while recovered.taken < recover.count {
            let Some(&at) = matching(self).first() else { break };
            let Phase::Active { worker, .. } = &self.jobs[at].phase else { unreachable!() };
            let worker = worker.clone().into_boxed_slice();
            match recovered.by_worker.iter_mut().find(|(name, _)| *name == worker) {
                Some((_, taken)) => *taken += 1,
                None => recovered.by_worker.push((worker, 1)),
            }
            recovered.taken += 1;
            self.take_back(at, how);
        }
        let registered = |name: &[u8]| self.workers.iter().position(|worker| worker.name == name);
        recovered.by_worker.sort_by_key(|(name, _)| registered(name));
        recovered.remaining = matching(self).len();
        if recover.before.is_some() {
            recovered.remaining = recovered.remaining.min(limits::COUNT_MAX);
        }
        recovered
    }

    /// Takes a job from a worker that went away.
    fn take_back(&mut self, at: usize, how: Return) {
        match how {
            Return::Lapse => {
                self.totals.lapsed += 1;
                self.happened(Event::Lapsed);
            }
            _ => self.totals.recovered += 1,
        }
        self.report(at, Self::vanished);
        if how != Return::Uncounted {
            self.jobs[at].crashes += 1;
            self.jobs[at].failures.push(self.now);
            if let Some(worker) = self.worker_of(at) {
                worker.crashed += 1;
            }
        }
        let crashes = self.jobs[at].crashes;
        if self.jobs[at].is_cancelling() {
            self.end_cancelled(at);
        } else if how != Return::Uncounted
            && self.crashes_allowed(&self.jobs[at]).is_some_and(|allowed| crashes > allowed)
        {
            self.end_dead(at, Reason::Crashes);
        } else if how == Return::Lapse && crashes > 1 {
            let wait = backoff::wait(self.backoff_of(at), Serial(self.jobs[at].arrival), crashes - 1);
            self.wait_or_ready(at, wait, true);
        } else {
            self.give_back(at);
        }
    }

    /// To its place among the ready; a job that was cancelled meanwhile ends instead.
    fn give_back(&mut self, at: usize) {
        if self.jobs[at].is_cancelling() {
            self.end_cancelled(at);
        } else {
            self.jobs[at].phase = Phase::Ready;
            self.jobs[at].ready_since = self.now;
            self.look_at_group_of(at);
            self.restart(at);
        }
    }

    /// The place of a job that can run from `instant` on.
    fn fresh_place(&self, at: usize, instant: u64) -> u64 {
        let is_ordered = self.terms(&self.groups[self.group_of(at)]).ordered;
        if is_ordered { self.jobs[at].enqueued } else { instant }
    }

    fn wait_or_ready(&mut self, at: usize, wait: u64, keeps_place: bool) {
        self.jobs[at].phase = if wait == 0 {
            Phase::Ready
        } else {
            Phase::Delayed { due: Due::Duration(self.now + wait), keeps_place }
        };
        self.jobs[at].ready_since = self.now;
        self.look_at_group_of(at);
        self.restart(at);
    }

    /// An output belongs to a run, and this one is over.
    fn restart(&mut self, at: usize) {
        self.jobs[at].output.clear();
        let (id, run) = (self.shown_id(at), self.jobs[at].run());
        self.notes.push(Note::Restarted { id, run });
    }

    fn emit(&mut self, delivery: Delivery<'_>, chunk: &[u8]) -> Result<Outcome, Error> {
        let at = self.held(delivery)?;
        let output = &self.jobs[at].output;
        let bytes = output.iter().map(Vec::len).sum::<usize>() + chunk.len();
        if bytes as u64 > self.settings.max_output || output.len() == limits::OUTPUT_CHUNKS_MAX {
            return Err(Error::OutputFull);
        }
        let place = Place { run: self.jobs[at].run(), number: output.len() as u64 };
        self.notes.push(Note::Emitted { id: self.shown_id(at), place, chunk: chunk.to_vec() });
        self.jobs[at].output.push(chunk.to_vec());
        Ok(Outcome::Progressed(if self.jobs[at].is_cancelling() { Held::Cancel } else { Held::Ok }))
    }

    fn redrive(&mut self, at: usize) {
        self.totals.redriven += 1;
        let now = self.now;
        let since = self.fresh_place(at, now);
        let job = &mut self.jobs[at];
        job.phase = Phase::Ready;
        job.since = since;
        job.ready_since = now;
        job.life_began = now;
        job.deliveries_of_life = 0;
        job.attempts = 0;
        job.crashes = 0;
        job.refusals = 0;
        job.progress = None;
        job.output.clear();
        job.error = None;
        job.reason = None;
        job.last_worker = None;
        job.failures.clear();
        self.look_at_group_of(at);
    }

    fn purge(&mut self, state: State, count: usize) -> Result<Outcome, Error> {
        if state == State::Active {
            return Err(Error::BadState(state));
        }
        let mut taken = 0;
        while taken < count {
            // Of ready jobs the first in line goes first, as long as somebody stands in line.
            let in_line = if state == State::Ready { self.first_in_line() } else { None };
            let Some(at) = in_line.or_else(|| self.list(state).first().copied()) else { break };
            if !state.is_final() {
                self.note(at, None, None, Some(0));
            }
            self.remove(at);
            taken += 1;
        }
        Ok(Outcome::Bulk { taken, remaining: self.count(state) })
    }

    // ---- ending ----

    fn end_cancelled(&mut self, at: usize) {
        self.end(at, State::Cancelled, false);
    }

    fn end_dead(&mut self, at: usize, reason: Reason) {
        self.jobs[at].reason = Some(reason);
        if let Phase::Active { worker, .. } = &self.jobs[at].phase {
            self.jobs[at].last_worker = Some(worker.clone());
        }
        self.end_for(at, State::Dead, self.settings.dead_ttl, false);
    }

    fn end(&mut self, at: usize, state: State, acked: bool) {
        let ttl = self.jobs[at].options.ttl.unwrap_or(self.settings.result_ttl);
        self.end_for(at, state, ttl, acked);
    }

    fn end_for(&mut self, at: usize, state: State, ttl: Option<u64>, acked: bool) {
        let (total, event) = match state {
            State::Done => (&mut self.totals.done, Event::Done),
            State::Dead => (&mut self.totals.dead, Event::Dead),
            _ => (&mut self.totals.cancelled, Event::Cancelled),
        };
        *total += 1;
        self.happened(event);
        // It stays as long as it may be asked whose key that is.
        let window = self.jobs[at].window_end().map_or(0, |end| end.saturating_sub(self.now));
        let ttl = ttl.map(|ttl| ttl.max(window));
        self.jobs[at].progress = None;
        self.jobs[at].phase =
            Phase::Final { state, ended: self.now, until: ttl.map(|ttl| self.now + ttl), acked };
        let value = self.jobs[at].value().map(<[u8]>::to_vec);
        self.note(at, Some(state), value, ttl);
        if ttl == Some(0) {
            self.remove(at);
            return;
        }
        self.look_at_group_of(at);
        for _ in 0..2 {
            if let Some(at) = self.surplus() {
                self.remove(at);
            }
        }
    }

    fn note(&mut self, at: usize, state: Option<State>, value: Option<Vec<u8>>, ttl: Option<u64>) {
        // A job that ends, or is gone, has no next run.
        let (id, run) = (self.shown_id(at), u64::from(self.jobs[at].deliveries));
        self.notes.push(Note::Ended { id, run, state, value, ttl });
    }

    fn shown_id(&self, at: usize) -> Vec<u8> {
        self.jobs[at].id().write(&mut [0; crate::queue::SHOWN_BYTES_MAX]).to_vec()
    }

    fn remove(&mut self, at: usize) {
        self.totals.removed += 1;
        let job = self.jobs.remove(at);
        self.look(&job.group);
    }

    // ---- groups and tenants ----

    fn make_tenant(&mut self, name: &[u8]) -> usize {
        self.tenant_at(name).unwrap_or_else(|| {
            self.tenants.push(Tenant {
                name: name.to_vec(),
                born: self.births,
                settings: TenantSettings::default(),
                paused_until: None,
                bucket: Bucket::default(),
                pass: 0,
                turn: None,
                wake: None,
            });
            self.births += 1;
            self.tenants.len() - 1
        })
    }

    fn make_group(&mut self, name: GroupName<'_>) -> usize {
        self.make_tenant(name.tenant);
        self.group_at(name).unwrap_or_else(|| {
            self.groups.push(Group {
                name: owned(name),
                born: self.births,
                own: GroupSettings::default(),
                paused_until: None,
                bucket: Bucket::default(),
                circuit: Circuit::default(),
                throttle: None,
                turn: None,
                wake: None,
            });
            self.births += 1;
            self.groups.len() - 1
        })
    }

    fn next_turn(&mut self) -> u64 {
        self.turns += 1;
        self.turns
    }

    fn look_at_group_of(&mut self, at: usize) {
        let name = self.jobs[at].group.clone();
        self.look(&name);
    }

    /// Decides whether a group stands in line, when it is to be looked at again, and whether there is
    /// anything left to remember of it.
    fn look(&mut self, name: &Name) {
        let Some(at) = self.groups.iter().position(|group| group.name == *name) else { return };
        let group = &self.groups[at];
        let hold = self.hold_of_group(group, self.now);
        let has_ready = !self.jobs_of(name, State::Ready).is_empty();
        let forgotten = self.group_forgotten_at(group);
        if !has_ready || hold.is_some() {
            self.groups[at].turn = None;
        } else if group.turn.is_none() {
            self.groups[at].turn = Some(self.next_turn());
        }
        self.groups[at].wake = if has_ready { hold.and_then(Hold::until) } else { forgotten };
        if forgotten.is_some_and(|instant| instant <= self.now) {
            self.groups.remove(at);
        }
        self.look_at_tenant(&name.0);
    }

    fn look_at_tenant(&mut self, name: &[u8]) {
        let Some(at) = self.tenant_at(name) else { return };
        let tenant = &self.tenants[at];
        let hold = self.hold_of_tenant(tenant, self.now);
        let has_line = !self.line(name).is_empty();
        let forgotten = self.tenant_forgotten_at(tenant);
        if !has_line || hold.is_some() {
            self.tenants[at].turn = None;
        } else if tenant.turn.is_none() {
            self.tenants[at].turn = Some(self.next_turn());
            // What it did not use while it was away is not saved up.
            self.tenants[at].pass = self.tenants[at].pass.max(self.last_pass);
        }
        self.tenants[at].wake = if has_line { hold.and_then(Hold::until) } else { forgotten };
        if forgotten.is_some_and(|instant| instant <= self.now) {
            self.tenants.remove(at);
        }
    }

    /// When nothing of a group is left to remember; `None`: not by time alone.
    fn group_forgotten_at(&self, group: &Group) -> Option<u64> {
        let is_nameless = group.name == Name::default();
        let has_jobs = self.jobs.iter().any(|job| job.group == group.name);
        if is_nameless || has_jobs || group.own != GroupSettings::default() || group.circuit.level > 0 {
            return None;
        }
        let rested = group.throttle.as_ref().map_or(0, |throttle| throttle.until);
        idle_at(group.paused_until, group.bucket).map(|idle| idle.max(rested))
    }

    fn tenant_forgotten_at(&self, tenant: &Tenant) -> Option<u64> {
        let has_groups = self.groups.iter().any(|group| group.name.0 == tenant.name);
        if tenant.name.is_empty() || has_groups || tenant.settings != TenantSettings::default() {
            return None;
        }
        idle_at(tenant.paused_until, tenant.bucket)
    }

    fn pause(&mut self, scope: Scope<'_>, length: Option<u64>) {
        let until = Some(length.map_or(u64::MAX, |length| self.now + length));
        match scope {
            Scope::Queue => self.paused_until = until,
            Scope::Tenant(name) => {
                let at = self.make_tenant(name);
                if self.tenants[at].paused_until != until {
                    self.tenants[at].paused_until = until;
                    self.look_at_tenant(name);
                }
            }
            Scope::Group(name) => {
                let at = self.make_group(name);
                if self.groups[at].paused_until != until {
                    self.groups[at].paused_until = until;
                    self.look(&owned(name));
                }
            }
        }
    }

    fn resume(&mut self, scope: Scope<'_>) {
        match scope {
            Scope::Queue => self.paused_until = None,
            Scope::Tenant(name) => {
                if let Some(at) = self.tenant_at(name)
                    && self.tenants[at].paused_until.take().is_some()
                {
                    self.look_at_tenant(name);
                }
            }
            Scope::Group(name) => {
                let Some(at) = self.group_at(name) else { return };
                let was_troubled = self.groups[at].is_troubled();
                if was_troubled {
                    self.groups[at].circuit = Circuit { closed: self.serial, ..Circuit::default() };
                    self.groups[at].throttle = None;
                }
                if self.groups[at].paused_until.take().is_some() || was_troubled {
                    self.look(&owned(name));
                }
            }
        }
    }

    // What workers tell about an endpoint, or what their going away tells. `group` is a position, `token`
    // that of the delivery.

    /// Passes on what matters only to a group in trouble.
    fn report(&mut self, at: usize, what: impl FnOnce(&mut Self, usize, u64)) {
        let (group, token) = (self.group_of(at), self.jobs[at].token);
        if self.groups[group].is_troubled() {
            what(self, group, token);
            self.look_at_group_of(at);
        }
    }

    /// Opens the circuit, at the next level or at the same one once more.
    fn open(&mut self, group: usize, level: u32) {
        let terms = self.terms(&self.groups[group]);
        let wait = backoff::wait(terms.backoff, Serial(self.serial), level);
        let closed = self.groups[group].circuit.closed;
        let (until, opened) = (self.now + wait, self.serial);
        self.groups[group].circuit = Circuit { level, until, opened, probe: None, closed };
    }

    fn unavailable(&mut self, group: usize, token: u64) {
        let circuit = &self.groups[group].circuit;
        let level = circuit.level;
        // Of an open one only the probe knows anything new.
        let counts = if level == 0 { token > circuit.closed } else { circuit.probe == Some(token) };
        if counts {
            self.open(group, level + 1);
        }
    }

    fn vanished(&mut self, group: usize, token: u64) {
        let circuit = &self.groups[group].circuit;
        if circuit.level > 0 && circuit.probe == Some(token) {
            self.open(group, circuit.level);
        }
    }

    fn withdrawn(&mut self, group: usize, token: u64) {
        let circuit = &mut self.groups[group].circuit;
        if circuit.probe == Some(token) {
            circuit.probe = None;
        }
    }

    fn answered(&mut self, group: usize, token: u64) {
        let circuit = &mut self.groups[group].circuit;
        if circuit.level > 0 && token > circuit.opened {
            *circuit = Circuit { closed: self.serial, ..Circuit::default() };
        }
    }

    /// Only what was handed out since the rest, and only when that is over, tells that more is welcome.
    fn succeeded(&mut self, group: usize, token: u64) {
        let now = self.now;
        if let Some(throttle) = &mut self.groups[group].throttle
            && token > throttle.since
            && now >= throttle.until
        {
            throttle.limit += 1;
            if throttle.limit >= throttle.goal {
                self.groups[group].throttle = None;
            }
        }
    }

    fn throttled(&mut self, group: usize, token: u64, length: u64) {
        self.withdrawn(group, token);
        let active = self.jobs_of(&self.groups[group].name, State::Active).len() as u32;
        let set = self.terms(&self.groups[group]).concurrency;
        let (now, until, since) = (self.now, self.now + length, self.serial);
        let throttle = &mut self.groups[group].throttle;
        match throttle {
            // Within the rest: longer at most.
            Some(throttle) if now < throttle.until => throttle.until = throttle.until.max(until),
            // Of a job from before the last rest.
            Some(throttle) if token <= throttle.since => {}
            Some(throttle) => {
                throttle.limit = (throttle.limit / 2).max(1);
                (throttle.until, throttle.since) = (until, since);
            }
            None => {
                let goal = set.unwrap_or(active);
                *throttle = Some(Throttle { until, since, limit: (goal / 2).max(1), goal });
            }
        }
    }

    /// A sweep looks at one group or tenant whose instant has come. Whether there was one.
    fn wake_one(&mut self) -> bool {
        let groups = self.groups.iter().map(|group| (group.wake, group.born, true));
        let tenants = self.tenants.iter().map(|tenant| (tenant.wake, tenant.born, false));
        let due = groups.chain(tenants).filter(|&(wake, ..)| wake.is_some_and(|at| at <= self.now));
        let Some((_, born, is_group)) = due.min() else { return false };
        if is_group {
            let group = self.groups.iter().find(|group| group.born == born).expect("just seen");
            self.look(&group.name.clone());
        } else {
            let tenant = self.tenants.iter().find(|tenant| tenant.born == born).expect("just seen");
            self.look_at_tenant(&tenant.name.clone());
        }
        true
    }

    /// A sweep looks at the next group after the defaults changed; the last of these finds that none is left.
    fn review_one(&mut self) -> bool {
        let Some(from) = self.review else { return false };
        match self.groups.iter().find(|group| group.born >= from) {
            Some(group) => {
                self.review = Some(group.born + 1);
                self.look(&group.name.clone());
            }
            None => self.review = None,
        }
        true
    }

    // ---- time ----

    /// Settles one thing that is due, of the first kind of which something is. Whether there was.
    fn settle_one(&mut self) -> bool {
        if self.paused_until.is_some_and(|until| until <= self.now) {
            self.paused_until = None;
            return true;
        }
        if self.wake_one() {
            return true;
        }
        let (now, wall) = (self.now, self.wall);
        let all = 0..self.jobs.len();
        let expired =
            all.clone().filter(|&at| self.jobs[at].deadline().is_some_and(|deadline| deadline <= now));
        if let Some(at) = expired.min_by_key(|&at| (self.jobs[at].deadline(), self.jobs[at].arrival)) {
            self.end_dead(at, Reason::Deadline);
            return true;
        }
        let due = all.filter_map(|at| {
            let job = &self.jobs[at];
            let Phase::Delayed { due, keeps_place } = job.phase else { return None };
            let (rank, instant, since) = match due {
                Due::Duration(due) if due <= now => (0, due, due),
                Due::Wall(due) if due <= wall => (1, due, self.wall_to_now(due).max(job.enqueued)),
                _ => return None,
            };
            let place = if keeps_place { job.since } else { self.fresh_place(at, since) };
            Some(((rank, instant, job.arrival), at, since, place))
        });
        if let Some((_, at, since, place)) = due.min() {
            self.jobs[at].since = place;
            self.jobs[at].ready_since = since;
            self.jobs[at].phase = Phase::Ready;
            self.look_at_group_of(at);
            return true;
        }
        if let Some(&at) = self.by_lease().first()
            && self.jobs[at].until().is_some_and(|until| until <= now)
        {
            self.take_back(at, Return::Lapse);
            return true;
        }
        for state in [State::Done, State::Dead, State::Cancelled] {
            if let Some(at) = self.first_to_expire(&[state])
                && self.jobs[at].until().is_some_and(|until| until <= now)
            {
                self.remove(at);
                return true;
            }
        }
        if let Some(at) = self.surplus() {
            self.remove(at);
            return true;
        }
        self.review_one()
    }
}

fn owned(name: GroupName<'_>) -> Name {
    (name.tenant.to_vec(), name.group.to_vec())
}

/// Whether a limit is reached: of jobs at once, else of jobs per time.
fn limited(
    active: usize,
    concurrency: Option<u32>,
    bucket: Bucket,
    rate: Option<Rate>,
    now: u64,
) -> Option<Hold> {
    if concurrency.is_some_and(|limit| active >= limit as usize) {
        return Some(Hold::Concurrency);
    }
    let at = bucket.ready_at(rate?);
    (now < at).then_some(Hold::Rate(at))
}

fn pay(bucket: &mut Bucket, rate: Option<Rate>, now: u64) {
    if let Some(rate) = rate {
        bucket.take(rate, now);
    }
}

fn pay_back(bucket: &mut Bucket, rate: Option<Rate>) {
    if let Some(rate) = rate {
        bucket.refund(rate);
    }
}

/// When pause and rate of a group or tenant have nothing left to remember.
fn idle_at(paused_until: Option<u64>, bucket: Bucket) -> Option<u64> {
    match paused_until {
        Some(u64::MAX) => None,
        paused_until => Some(paused_until.unwrap_or(0).max(bucket.idle_at())),
    }
}

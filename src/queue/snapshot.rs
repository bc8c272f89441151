//! A queue as plain values, for the persisted form: taken out in a fixed order, so that equal
//! queues give equal sequences, and put back with every value checked.

use super::circuit::{Circuit, Throttle};
use super::gate::Gate;
use super::group::{GroupName, Groups};
use super::job::{Draft, Failures, Fields, Job, Lock, More, Past, Reason, Spent, State};
use super::limits::{
    CLOCK_MS_MAX, FAILURES_KEPT, INSTANT_MS_MAX, NAME_BYTES_MAX, OUTPUT_CHUNKS_MAX, TEXT_BYTES_MAX,
};
use super::output::Output;
use super::rate::Bucket;
use super::registry::{Holder, Worker, WorkerNo};
use super::serial::{Id, Serial};
use super::settings::{GroupSettings, TenantSettings};
use super::stats::{Minute, Recent, Span};
use super::store::{DELIVERIES_MAX, WORKERS_MAX};
use super::{JobOptions, Queue, Settings, Stamp, Totals, Until};

/// Everything of a queue but its jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Settings.
    pub settings: Settings,
    /// The queue's clock.
    pub clock: Stamp,
    /// See [`Queue::paused_until`].
    pub paused_until: Option<u64>,
    /// What the queue's rate has left.
    pub bucket: Bucket,
    /// Totals.
    pub totals: Totals,
    /// What happened lately; see `stats.rs`.
    pub minutes: Vec<Minute>,
    /// See `minutes`.
    pub spans: Vec<Span>,
    /// How many job records follow.
    pub jobs: u64,
    /// Number of the next worker to register.
    pub next_worker: u64,
    /// The registry, by number.
    pub workers: Vec<WorkerRecord>,
    /// How many tenant and group records follow.
    pub tenants: u64,
    /// See `tenants`.
    pub groups: u64,
    /// Counters of the rotations; see `group.rs`.
    pub next_birth: u64,
    /// See `next_birth`.
    pub next_turn: u64,
    /// See `next_birth`.
    pub pass_floor: u64,
    /// See `next_birth`.
    pub review: Option<u64>,
}

/// A tenant. Named as its fields; see `group.rs`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct TenantRecord<'a> {
    pub born: u64,
    pub name: &'a [u8],
    pub settings: TenantSettings,
    pub paused_until: Option<u64>,
    pub bucket: Bucket,
    pub pass: u64,
    pub turn: Option<u64>,
    pub wake: Option<u64>,
}

/// A group. Named as its fields; see `group.rs`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct GroupRecord<'a> {
    pub born: u64,
    /// The tenant's birth.
    pub tenant: u64,
    pub name: &'a [u8],
    pub own: GroupSettings,
    pub paused_until: Option<u64>,
    pub bucket: Bucket,
    pub circuit: Circuit,
    pub throttle: Option<Throttle>,
    pub turn: Option<u64>,
    pub wake: Option<u64>,
}

/// A worker.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // named as in the registry
pub struct WorkerRecord {
    pub number: u64,
    pub name: Box<[u8]>,
    pub first_seen: u64,
    pub done: u64,
    pub failed: u64,
    pub crashed: u64,
}

/// A job. Named as its fields; see `job.rs`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct JobRecord<'a> {
    pub arrival: Serial,
    pub payload: &'a [u8],
    /// The group's birth.
    pub group: u64,
    pub since: u64,
    pub at: u64,
    pub enqueued: u64,
    pub touched: u64,
    pub token: Serial,
    pub worker: u64,
    pub deliveries: u32,
    pub attempts: u32,
    pub crashes: u32,
    pub refusals: u32,
    pub state: State,
    pub priority: u8,
    pub follows_wall: bool,
    pub keeps_place: bool,
    pub cancelling: bool,
    pub acked: bool,
    pub more: Option<MoreRecord<'a>>,
}

/// The seldom used parts of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct MoreRecord<'a> {
    pub custom_id: Option<&'a [u8]>,
    pub options: JobOptions,
    pub deadline: Option<u64>,
    pub value: Option<&'a [u8]>,
    pub error: Option<&'a [u8]>,
    pub reason: Option<Reason>,
    pub last_worker: Option<&'a [u8]>,
    /// See [`super::view::JobView::failures`]; before them, 0.
    pub failures: Option<[u64; FAILURES_KEPT]>,
    /// The chunks of the output.
    pub output: Vec<&'a [u8]>,
    pub unique: Option<LockRecord<'a>>,
}

/// A job's key, and until when it locks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // named as in `job.rs`
pub struct LockRecord<'a> {
    pub key: &'a [u8],
    pub until: Until,
    pub window: Option<u64>,
}

impl Queue {
    /// Everything but the jobs.
    #[must_use]
    pub fn header(&self) -> Header {
        let workers = self.registry.iter().map(|(_, worker)| WorkerRecord {
            number: worker.number.0,
            name: worker.name.clone(),
            first_seen: worker.first_seen,
            done: worker.done,
            failed: worker.failed,
            crashed: worker.crashed,
        });
        Header {
            settings: self.settings,
            clock: self.clock,
            paused_until: self.gate.paused_until,
            bucket: self.gate.bucket,
            totals: self.totals,
            minutes: self.recent.minutes(self.clock.now, &self.totals),
            spans: self.recent.spans(self.clock.now).cloned().collect(),
            jobs: self.jobs.len() as u64,
            next_worker: self.registry.next_number(),
            workers: workers.collect(),
            tenants: self.groups.tenant_count() as u64,
            groups: self.groups.len() as u64,
            next_birth: self.groups.next_birth,
            next_turn: self.groups.next_turn,
            pass_floor: self.groups.pass_floor,
            review: self.groups.review,
        }
    }

    /// The tenants, by birth.
    pub fn tenant_records(&self) -> impl Iterator<Item = TenantRecord<'_>> {
        self.groups.tenants().map(|(_, tenant)| TenantRecord {
            born: tenant.born,
            name: &tenant.name,
            settings: tenant.settings,
            paused_until: tenant.gate.paused_until,
            bucket: tenant.gate.bucket,
            pass: tenant.pass,
            turn: tenant.turn,
            wake: tenant.wake,
        })
    }

    /// The groups, by birth.
    pub fn group_records(&self) -> impl Iterator<Item = GroupRecord<'_>> {
        self.groups.iter_after(None).map(|(_, group)| GroupRecord {
            born: group.born,
            tenant: self.groups.tenant(group.tenant).map_or(0, |tenant| tenant.born),
            name: &group.name,
            own: group.own,
            paused_until: group.gate.paused_until,
            bucket: group.gate.bucket,
            circuit: group.circuit,
            throttle: group.throttle,
            turn: group.turn,
            wake: group.wake,
        })
    }

    /// The jobs, container by container, each in its order.
    pub fn records(&self) -> impl Iterator<Item = JobRecord<'_>> {
        let timed = self.timed.by_state().flat_map(|timeline| timeline.iter());
        let groups = self.groups.iter_after(None);
        let ready = groups.flat_map(|(_, group)| group.ready.iter());
        ready.chain(timed).filter_map(|slot| self.jobs.get(slot)).map(|job| self.record(&job))
    }

    fn record<'q>(&'q self, job: &Job<'q>) -> JobRecord<'q> {
        JobRecord {
            group: self.groups.get(job.group).map_or(0, |group| group.born),
            refusals: job.spent.refusals,
            arrival: job.arrival,
            payload: job.payload,
            since: job.since,
            at: job.at,
            enqueued: job.enqueued,
            touched: job.touched,
            token: job.token,
            worker: self.registry.number_of(job).0,
            deliveries: job.deliveries,
            attempts: job.spent.attempts,
            crashes: job.spent.crashes,
            state: job.state,
            priority: job.priority,
            follows_wall: job.follows_wall,
            keeps_place: job.keeps_place,
            cancelling: job.cancelling,
            acked: job.acked,
            more: job.more.map(|more| MoreRecord {
                custom_id: more.custom_id.as_deref(),
                options: job.options(),
                deadline: more.deadline,
                value: more.value.as_deref(),
                error: more.error.as_deref(),
                reason: more.reason,
                last_worker: more.last_worker.as_deref(),
                failures: more.failures().map(|failures| failures.0),
                output: more.output().into_iter().flat_map(|output| output.iter_from(0)).collect(),
                unique: more.unique.as_deref().map(|lock| LockRecord {
                    key: &lock.key,
                    until: lock.until,
                    window: lock.window,
                }),
            }),
        }
    }
}

/// A gate as it was, nobody counted yet.
fn gate(paused_until: Option<u64>, bucket: Bucket) -> Result<Gate, String> {
    if paused_until.is_some_and(|until| until > INSTANT_MS_MAX && until != u64::MAX) {
        return Err("a pause is out of range".into());
    }
    Ok(Gate { active: 0, paused_until, bucket })
}

/// Puts a queue together again.
#[derive(Debug)]
pub struct Builder {
    queue: Queue,
    jobs: u64,
    tenants: u64,
    groups: u64,
}

impl Builder {
    /// Begins with a header.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(header: Header) -> Result<Self, String> {
        if header.clock.now > CLOCK_MS_MAX || header.clock.wall > CLOCK_MS_MAX {
            return Err("the clock is out of range".into());
        }
        if header.clock.serial > Serial::LIMIT {
            return Err("the serial is out of range".into());
        }
        let mut queue = Queue::new(header.settings, header.clock);
        queue.gate = gate(header.paused_until, header.bucket)?;
        queue.groups = Groups::empty();
        queue.groups.next_birth = header.next_birth;
        queue.groups.next_turn = header.next_turn;
        queue.groups.pass_floor = header.pass_floor;
        queue.groups.review = header.review;
        queue.totals = header.totals;
        queue.recent = Recent::from_parts(header.clock.now, header.minutes, header.spans)?;
        for worker in header.workers {
            let number = worker.number;
            if worker.name.len() > NAME_BYTES_MAX || number >= header.next_worker {
                return Err("a worker is out of range".into());
            }
            let worker = Worker {
                number: WorkerNo(number),
                name: worker.name,
                first_seen: worker.first_seen,
                last_seen: header.clock.now,
                done: worker.done,
                failed: worker.failed,
                crashed: worker.crashed,
                held: Default::default(),
            };
            queue.registry.add(worker).ok_or("a worker is there twice")?;
        }
        queue.registry.set_next_number(header.next_worker);
        Ok(Self { queue, jobs: header.jobs, tenants: header.tenants, groups: header.groups })
    }

    /// Adds a tenant.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn push_tenant(&mut self, record: &TenantRecord<'_>) -> Result<(), String> {
        let groups = &mut self.queue.groups;
        if record.name.len() > NAME_BYTES_MAX || record.settings.weight == 0 {
            return Err("a tenant is out of range".into());
        }
        let number = groups.add_tenant(record.born, record.name).ok_or("a tenant is there twice")?;
        if let Some(tenant) = groups.tenant_mut(number) {
            tenant.settings = record.settings;
            tenant.gate = gate(record.paused_until, record.bucket)?;
            tenant.pass = record.pass;
        }
        if let Some(turn) = record.turn {
            groups.tenant_joins(number, turn);
        }
        groups.set_tenant_wake(number, record.wake);
        Ok(())
    }

    /// Adds a group, after its tenant.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn push_group(&mut self, record: &GroupRecord<'_>) -> Result<(), String> {
        let groups = &mut self.queue.groups;
        let tenant = groups.tenant_born(record.tenant).ok_or("a group without a tenant")?;
        if record.name.len() > NAME_BYTES_MAX {
            return Err("a group's name is too long".into());
        }
        let number = groups.add_group(record.born, tenant, record.name).ok_or("a group is there twice")?;
        if let Some(group) = groups.get_mut(number) {
            group.own = record.own;
            group.gate = gate(record.paused_until, record.bucket)?;
            group.circuit = record.circuit;
            group.throttle = record.throttle;
        }
        if let Some(turn) = record.turn {
            groups.join_rotation(number, turn);
        }
        groups.set_wake(number, record.wake);
        Ok(())
    }

    /// Adds a job.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn push(&mut self, record: &JobRecord<'_>) -> Result<(), String> {
        let mut worker = Holder::last(WorkerNo(record.worker));
        if record.state == State::Active {
            let registry = &self.queue.registry;
            let owner = registry.numbered(worker.number()).ok_or("an active job without a worker")?;
            worker = Holder::active(owner);
            let held = registry.get(owner).map(|owner| &owner.held);
            if held.is_some_and(|held| held.get(record.token, self.queue.jobs.token_of()).is_some()) {
                return Err(format!("token {} is there twice", record.token));
            }
        }
        if let Some(more) = &record.more {
            let longest = [more.error, more.last_worker].into_iter().flatten().map(<[u8]>::len).max();
            if longest > Some(TEXT_BYTES_MAX) {
                return Err("a text is too long".into());
            }
            if more.output.len() > OUTPUT_CHUNKS_MAX {
                return Err("an output has too many chunks".into());
            }
        }
        if record.deliveries > DELIVERIES_MAX || record.worker >= WORKERS_MAX {
            return Err("a delivery is out of range".into());
        }
        let fields = Fields {
            arrival: record.arrival,
            group: self.queue.groups.born(record.group).ok_or("a job without a group")?,
            since: record.since,
            at: record.at,
            enqueued: record.enqueued,
            touched: record.touched,
            token: record.token,
            worker,
            deliveries: record.deliveries,
            spent: Spent { attempts: record.attempts, crashes: record.crashes, refusals: record.refusals },
            state: record.state,
            priority: record.priority,
            follows_wall: record.follows_wall,
            keeps_place: record.keeps_place,
            cancelling: record.cancelling,
            acked: record.acked,
        };
        let more = record.more.as_ref().map(|more| More {
            custom_id: more.custom_id.map(Box::from),
            options: (more.options != JobOptions::default()).then(|| Box::new(more.options)),
            deadline: more.deadline,
            value: more.value.map(Box::from),
            error: more.error.map(Box::from),
            last_worker: more.last_worker.map(Box::from),
            past: Some(Past {
                failures: more.failures.map(Failures).unwrap_or_default(),
                output: Output::of(&more.output),
            })
            .filter(|past| !past.is_empty())
            .map(Box::new),
            unique: more
                .unique
                .map(|lock| Box::new(Lock { key: lock.key.into(), until: lock.until, window: lock.window })),
            spent: Spent::default(),
            reason: more.reason,
        });
        let id = more.as_ref().and_then(|more| more.custom_id.as_deref());
        if self.queue.find(id.map_or(Id::Serial(record.arrival), Id::Custom)).is_some() {
            return Err("an id is there twice".into());
        }
        let lock = more.as_ref().and_then(|more| more.unique.as_deref());
        if lock.is_some_and(|lock| self.queue.index.holder(&lock.key, &self.queue.jobs).is_some()) {
            return Err("a key is there twice".into());
        }
        let admitted = self.queue.admit(Draft { fields, more }, record.payload);
        admitted.map(drop).map_err(|error| format!("a job is refused: {error:?}"))
    }

    /// The whole queue, audited.
    ///
    /// # Errors
    /// What does not agree.
    pub fn finish(self) -> Result<Queue, String> {
        let queue = &self.queue;
        let found = [queue.jobs.len(), queue.groups.tenant_count(), queue.groups.len()].map(|len| len as u64);
        if found != [self.jobs, self.tenants, self.groups] {
            return Err(format!("{found:?} jobs, tenants and groups, not as many as announced"));
        }
        // The nameless tenant and its nameless group are there from the start, and stay.
        let nameless = queue.groups.find(GroupName::default());
        if queue.groups.tenant_born(0) != queue.groups.find_tenant(b"")
            || nameless != queue.groups.born(1)
            || nameless.is_none()
        {
            return Err("the nameless group is missing".into());
        }
        self.queue.audit()?;
        Ok(self.queue)
    }
}

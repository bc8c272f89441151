//! Version 1 of everything that is persisted or travels. Frozen at release: do not change a field,
//! its order, or a number in here; make a `v2.rs` and a conversion instead.

use serde::{Deserialize, Serialize};

use super::Corrupt;
use crate::queue::limits::{
    BUDGET_MAX, CLOCK_MS_MAX, CONCURRENCY_MAX, COUNT_MAX, DURATION_MS_MAX, INSTANT_MS_MAX, KEEP_MAX,
    NAME_BYTES_MAX, OUTPUT_BYTES_MAX, RATE_COUNT_MAX, RATE_PERIOD_MAX,
};
use crate::queue::snapshot::{
    GroupRecord, Header as LiveHeader, JobRecord, LockRecord, MoreRecord, TenantRecord, WorkerRecord,
};
use crate::queue::{self as live, Id, Minute, Reason, Serial, Span, Stamp, State, Until};

/// Bytes that are borrowed from the input.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Bytes<'a>(#[serde(borrow, with = "raw")] &'a [u8]);

/// Byte slices as byte strings, not as sequences of numbers.
mod raw {
    use serde::{Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(bytes)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<&'de [u8], D::Error> {
        serde::Deserialize::deserialize(deserializer)
    }
}

#[derive(Clone, Copy, Serialize, Deserialize)]
pub(super) struct Clock {
    now: u64,
    wall: u64,
    serial: u64,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Settings {
    lease: u64,
    attempts: Option<u32>,
    crashes: Option<u32>,
    backoff: (u64, u64),
    ttl: Option<u64>,
    result_ttl: Option<u64>,
    dead_ttl: Option<u64>,
    keep_done: Option<u64>,
    keep_dead: Option<u64>,
    max_len: Option<u64>,
    max_output: u64,
    worker_ttl: Option<u64>,
    concurrency: Option<u32>,
    rate: Option<Rate>,
    group_concurrency: Option<u32>,
    group_rate: Option<Rate>,
    group_backoff: (u64, u64),
    group_ordered: bool,
}

/// Maximum (ms), first bucket, counts from there on.
type Histogram = (u64, u8, Vec<u32>);

/// Count, period (ms), burst.
type Rate = (u64, u64, u64);

#[derive(Serialize, Deserialize)]
pub(super) struct Create {
    pub settings: Settings,
    pub clock: Clock,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Header<'a> {
    settings: Settings,
    clock: Clock,
    paused_until: Option<u64>,
    bucket: (u64, u64),
    totals: [u64; 12],
    /// Number, and events as in the totals but without recovered, released, redriven and removed.
    minutes: Vec<(u64, [i32; 8])>,
    /// Number, waits, runs.
    spans: Vec<(u64, Histogram, Histogram)>,
    jobs: u64,
    next_worker: u64,
    #[serde(borrow)]
    workers: Vec<Worker<'a>>,
    tenants: u64,
    groups: u64,
    next_birth: u64,
    next_turn: u64,
    pass_floor: u64,
    review: Option<u64>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Tenant<'a> {
    born: u64,
    #[serde(borrow)]
    name: Bytes<'a>,
    weight: u32,
    concurrency: Option<u32>,
    rate: Option<Rate>,
    paused_until: Option<u64>,
    bucket: (u64, u64),
    pass: u64,
    turn: Option<u64>,
    wake: Option<u64>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Group<'a> {
    born: u64,
    tenant: u64,
    #[serde(borrow)]
    name: Bytes<'a>,
    concurrency: Option<Option<u32>>,
    rate: Option<Option<Rate>>,
    backoff: Option<(u64, u64)>,
    ordered: Option<bool>,
    paused_until: Option<u64>,
    bucket: (u64, u64),
    /// Level, until, opened, probe, closed.
    circuit: (u32, u64, u64, u64, u64),
    /// Until, since, limit, goal.
    throttle: Option<(u64, u64, u32, u32)>,
    turn: Option<u64>,
    wake: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct Worker<'a> {
    number: u64,
    #[serde(borrow)]
    name: Bytes<'a>,
    first_seen: u64,
    done: u64,
    failed: u64,
    crashed: u64,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Job<'a> {
    arrival: u64,
    #[serde(borrow)]
    payload: Bytes<'a>,
    group: u64,
    since: u64,
    at: u64,
    enqueued: u64,
    touched: u64,
    token: u64,
    worker: u64,
    deliveries: u32,
    attempts: u32,
    crashes: u32,
    refusals: u32,
    state: u8,
    priority: u8,
    /// Bits: 1 follows_wall, 2 keeps_place, 4 cancelling, 8 acked.
    flags: u8,
    #[serde(borrow)]
    more: Option<More<'a>>,
}

#[derive(Serialize, Deserialize)]
struct More<'a> {
    #[serde(borrow)]
    custom_id: Option<Bytes<'a>>,
    attempts: Option<Option<u32>>,
    crashes: Option<Option<u32>>,
    backoff: Option<(u64, u64)>,
    lease: Option<u64>,
    ttl: Option<Option<u64>>,
    deadline_length: Option<u64>,
    deadline: Option<u64>,
    #[serde(borrow)]
    value: Option<Bytes<'a>>,
    #[serde(borrow)]
    error: Option<Bytes<'a>>,
    reason: Option<u8>,
    #[serde(borrow)]
    last_worker: Option<Bytes<'a>>,
    failures: Option<[u64; 5]>,
    #[serde(borrow)]
    output: Vec<Bytes<'a>>,
    #[serde(borrow)]
    unique: Option<Lock<'a>>,
}

#[derive(Serialize, Deserialize)]
struct Lock<'a> {
    #[serde(borrow)]
    key: Bytes<'a>,
    until: u8,
    window: Option<u64>,
}

/// The ops that travel in `RQ.APPLY`. The order of the variants is their number: append only.
#[derive(Serialize, Deserialize)]
pub(super) enum Op<'a> {
    Clock(Clock),
    Sweep {
        limit: u64,
    },
    Claim {
        #[serde(borrow)]
        worker: Bytes<'a>,
        count: u64,
        lease: Option<u64>,
    },
    Register {
        #[serde(borrow)]
        worker: Bytes<'a>,
    },
    Undo {
        #[serde(borrow)]
        grants: Vec<(JobId<'a>, u64)>,
    },
    Recover {
        #[serde(borrow)]
        workers: Vec<Bytes<'a>>,
        before: Option<u64>,
        count: u64,
        counted: bool,
    },
    Forget {
        #[serde(borrow)]
        workers: Vec<Bytes<'a>>,
    },
}

#[derive(Serialize, Deserialize)]
pub(super) enum JobId<'a> {
    Serial(u64),
    #[serde(borrow)]
    Custom(Bytes<'a>),
}

// ---- live → version 1 ----

impl From<Stamp> for Clock {
    fn from(stamp: Stamp) -> Self {
        Self { now: stamp.now, wall: stamp.wall, serial: stamp.serial.0 }
    }
}

impl From<&live::Settings> for Settings {
    fn from(settings: &live::Settings) -> Self {
        Self {
            lease: settings.lease,
            attempts: settings.attempts,
            crashes: settings.crashes,
            backoff: (settings.backoff.base, settings.backoff.max),
            ttl: settings.ttl,
            result_ttl: settings.result_ttl,
            dead_ttl: settings.dead_ttl,
            keep_done: settings.keep_done,
            keep_dead: settings.keep_dead,
            max_len: settings.max_len,
            max_output: settings.max_output,
            worker_ttl: settings.worker_ttl,
            concurrency: settings.concurrency,
            rate: settings.rate.map(rate_parts),
            group_concurrency: settings.group.concurrency,
            group_rate: settings.group.rate.map(rate_parts),
            group_backoff: (settings.group.backoff.base, settings.group.backoff.max),
            group_ordered: settings.group.ordered,
        }
    }
}

fn histogram_parts(histogram: &live::Histogram) -> Histogram {
    let (max, first, counts) = histogram.parts();
    (max, first, counts.to_vec())
}

const fn rate_parts(rate: live::Rate) -> Rate {
    (rate.count, rate.period, rate.burst)
}

impl<'a> From<&TenantRecord<'a>> for Tenant<'a> {
    fn from(tenant: &TenantRecord<'a>) -> Self {
        Self {
            born: tenant.born,
            name: Bytes(tenant.name),
            weight: tenant.settings.weight,
            concurrency: tenant.settings.concurrency,
            rate: tenant.settings.rate.map(rate_parts),
            paused_until: tenant.paused_until,
            bucket: tenant.bucket.parts(),
            pass: tenant.pass,
            turn: tenant.turn,
            wake: tenant.wake,
        }
    }
}

impl<'a> From<&GroupRecord<'a>> for Group<'a> {
    fn from(group: &GroupRecord<'a>) -> Self {
        let circuit = &group.circuit;
        Self {
            born: group.born,
            tenant: group.tenant,
            name: Bytes(group.name),
            concurrency: group.own.concurrency,
            rate: group.own.rate.map(|rate| rate.map(rate_parts)),
            backoff: group.own.backoff.map(|backoff| (backoff.base, backoff.max)),
            ordered: group.own.ordered,
            paused_until: group.paused_until,
            bucket: group.bucket.parts(),
            circuit: (circuit.level, circuit.until, circuit.opened.0, circuit.probe.0, circuit.closed.0),
            throttle: group.throttle.map(|rest| (rest.until, rest.since.0, rest.limit, rest.goal)),
            turn: group.turn,
            wake: group.wake,
        }
    }
}

impl<'a> From<&'a LiveHeader> for Header<'a> {
    fn from(header: &'a LiveHeader) -> Self {
        let totals = &header.totals;
        let workers = header.workers.iter().map(|worker| Worker {
            number: worker.number,
            name: Bytes(&worker.name),
            first_seen: worker.first_seen,
            done: worker.done,
            failed: worker.failed,
            crashed: worker.crashed,
        });
        Self {
            settings: (&header.settings).into(),
            clock: header.clock.into(),
            paused_until: header.paused_until,
            bucket: header.bucket.parts(),
            totals: [
                totals.enqueued,
                totals.delivered,
                totals.done,
                totals.failed,
                totals.lapsed,
                totals.recovered,
                totals.released,
                totals.dead,
                totals.cancelled,
                totals.redriven,
                totals.refused,
                totals.removed,
            ],
            minutes: header.minutes.iter().map(|minute| (minute.number, minute.events)).collect(),
            spans: header
                .spans
                .iter()
                .map(|span| (span.number, histogram_parts(&span.waits), histogram_parts(&span.runs)))
                .collect(),
            jobs: header.jobs,
            next_worker: header.next_worker,
            workers: workers.collect(),
            tenants: header.tenants,
            groups: header.groups,
            next_birth: header.next_birth,
            next_turn: header.next_turn,
            pass_floor: header.pass_floor,
            review: header.review,
        }
    }
}

impl<'a> From<&JobRecord<'a>> for Job<'a> {
    fn from(job: &JobRecord<'a>) -> Self {
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        Self {
            arrival: job.arrival.0,
            payload: Bytes(job.payload),
            group: job.group,
            since: job.since,
            at: job.at,
            enqueued: job.enqueued,
            touched: job.touched,
            token: job.token.0,
            worker: job.worker,
            deliveries: job.deliveries,
            attempts: job.attempts,
            crashes: job.crashes,
            refusals: job.refusals,
            state: job.state as u8,
            priority: job.priority,
            flags: bit(job.follows_wall, 1)
                | bit(job.keeps_place, 2)
                | bit(job.cancelling, 4)
                | bit(job.acked, 8),
            more: job.more.as_ref().map(|more| More {
                custom_id: more.custom_id.map(Bytes),
                attempts: more.options.attempts,
                crashes: more.options.crashes,
                backoff: more.options.backoff.map(|backoff| (backoff.base, backoff.max)),
                lease: more.options.lease,
                ttl: more.options.ttl,
                deadline_length: more.options.deadline,
                deadline: more.deadline,
                value: more.value.map(Bytes),
                error: more.error.map(Bytes),
                reason: more.reason.map(|reason| reason as u8),
                last_worker: more.last_worker.map(Bytes),
                failures: more.failures,
                output: more.output.iter().copied().map(Bytes).collect(),
                unique: more.unique.map(|lock| Lock {
                    key: Bytes(lock.key),
                    until: lock.until as u8,
                    window: lock.window,
                }),
            }),
        }
    }
}

impl<'a> Op<'a> {
    /// `None` for the ops that travel as the user's own command.
    pub(super) fn of(op: &live::Op<'a>) -> Option<Self> {
        let names = |names: &[&'a [u8]]| names.iter().copied().map(Bytes).collect();
        Some(match op {
            live::Op::Clock(stamp) => Self::Clock((*stamp).into()),
            live::Op::Sweep { limit } => Self::Sweep { limit: *limit as u64 },
            live::Op::Claim(claim) => {
                Self::Claim { worker: Bytes(claim.worker), count: claim.count as u64, lease: claim.lease }
            }
            live::Op::Register { worker } => Self::Register { worker: Bytes(worker) },
            live::Op::Undo { grants } => {
                Self::Undo { grants: grants.iter().map(|grant| (grant.id.into(), grant.token.0)).collect() }
            }
            live::Op::Recover(live::Recover { who: live::Who::Named(workers), before, count, counted }) => {
                Self::Recover {
                    workers: names(workers),
                    before: *before,
                    count: *count as u64,
                    counted: *counted,
                }
            }
            live::Op::Forget { workers } => Self::Forget { workers: names(workers) },
            _ => return None,
        })
    }
}

impl<'a> From<Id<'a>> for JobId<'a> {
    fn from(id: Id<'a>) -> Self {
        match id {
            Id::Serial(serial) => Self::Serial(serial.0),
            Id::Custom(bytes) => Self::Custom(Bytes(bytes)),
        }
    }
}

// ---- version 1 → live, checked ----

fn at_most(value: u64, limit: u64, what: &str) -> Result<u64, Corrupt> {
    if value <= limit { Ok(value) } else { Err(format!("{what} {value} is out of range").into()) }
}

fn duration(value: Option<u64>) -> Result<Option<u64>, Corrupt> {
    value.map(|value| at_most(value, DURATION_MS_MAX, "duration")).transpose()
}

fn budget(value: Option<u32>) -> Result<Option<u32>, Corrupt> {
    match value {
        Some(value) if value > BUDGET_MAX => Err("a budget is out of range".into()),
        value => Ok(value),
    }
}

fn keep(value: Option<u64>) -> Result<Option<u64>, Corrupt> {
    value.map(|value| at_most(value, KEEP_MAX, "count")).transpose()
}

fn backoff((base, max): (u64, u64)) -> Result<live::Backoff, Corrupt> {
    Ok(live::Backoff {
        base: at_most(base, DURATION_MS_MAX, "back-off")?,
        max: at_most(max, DURATION_MS_MAX, "back-off")?,
    })
}

fn concurrency(value: Option<u32>) -> Result<Option<u32>, Corrupt> {
    match value {
        Some(value) if value > CONCURRENCY_MAX => Err("a concurrency is out of range".into()),
        value => Ok(value),
    }
}

fn rate((count, period, burst): Rate) -> Result<live::Rate, Corrupt> {
    if count == 0 || period == 0 || burst == 0 {
        return Err("a rate of nothing".into());
    }
    Ok(live::Rate {
        count: at_most(count, RATE_COUNT_MAX, "rate")?,
        period: at_most(period, RATE_PERIOD_MAX, "period")?,
        burst: at_most(burst, RATE_COUNT_MAX, "burst")?,
    })
}

fn bucket((full_at, count): (u64, u64)) -> Result<live::Bucket, Corrupt> {
    at_most(count, RATE_COUNT_MAX, "rate")?;
    Ok(live::Bucket::from_parts(at_most(full_at, live::FULL_AT_MAX, "bucket")?, count))
}

fn histogram((max, first, counts): Histogram) -> Result<live::Histogram, String> {
    live::Histogram::from_parts(max, first, counts)
}

fn name(bytes: Bytes<'_>) -> Result<&[u8], Corrupt> {
    if bytes.0.len() > NAME_BYTES_MAX { Err("a name is too long".into()) } else { Ok(bytes.0) }
}

fn count(value: u64, limit: usize) -> Result<usize, Corrupt> {
    let value = at_most(value, limit as u64, "count")?;
    usize::try_from(value).map_err(|_| "a count is out of range".into())
}

impl TryFrom<Clock> for Stamp {
    type Error = Corrupt;

    fn try_from(clock: Clock) -> Result<Self, Corrupt> {
        Ok(Self {
            now: at_most(clock.now, CLOCK_MS_MAX, "clock")?,
            wall: at_most(clock.wall, CLOCK_MS_MAX, "wall clock")?,
            serial: Serial(at_most(clock.serial, Serial::LIMIT.0, "serial")?),
        })
    }
}

impl TryFrom<Settings> for live::Settings {
    type Error = Corrupt;

    fn try_from(settings: Settings) -> Result<Self, Corrupt> {
        Ok(Self {
            lease: at_most(settings.lease, DURATION_MS_MAX, "lease")?,
            attempts: budget(settings.attempts)?,
            crashes: budget(settings.crashes)?,
            backoff: backoff(settings.backoff)?,
            ttl: duration(settings.ttl)?,
            result_ttl: duration(settings.result_ttl)?,
            dead_ttl: duration(settings.dead_ttl)?,
            keep_done: keep(settings.keep_done)?,
            keep_dead: keep(settings.keep_dead)?,
            max_len: keep(settings.max_len)?,
            max_output: at_most(settings.max_output, OUTPUT_BYTES_MAX, "output")?,
            worker_ttl: duration(settings.worker_ttl)?,
            concurrency: concurrency(settings.concurrency)?,
            rate: settings.rate.map(rate).transpose()?,
            group: live::GroupDefaults {
                concurrency: concurrency(settings.group_concurrency)?,
                rate: settings.group_rate.map(rate).transpose()?,
                backoff: backoff(settings.group_backoff)?,
                ordered: settings.group_ordered,
            },
        })
    }
}

impl<'a> TryFrom<Tenant<'a>> for TenantRecord<'a> {
    type Error = Corrupt;

    fn try_from(tenant: Tenant<'a>) -> Result<Self, Corrupt> {
        Ok(Self {
            born: tenant.born,
            name: name(tenant.name)?,
            settings: live::TenantSettings {
                weight: concurrency(Some(tenant.weight))?.unwrap_or(1),
                concurrency: concurrency(tenant.concurrency)?,
                rate: tenant.rate.map(rate).transpose()?,
            },
            paused_until: tenant.paused_until,
            bucket: bucket(tenant.bucket)?,
            pass: tenant.pass,
            turn: tenant.turn,
            wake: tenant.wake,
        })
    }
}

impl<'a> TryFrom<Group<'a>> for GroupRecord<'a> {
    type Error = Corrupt;

    fn try_from(group: Group<'a>) -> Result<Self, Corrupt> {
        let (level, until, opened, probe, closed) = group.circuit;
        let throttle = group.throttle.map(|(until, since, limit, goal)| {
            Ok::<_, Corrupt>(live::Throttle {
                until: at_most(until, INSTANT_MS_MAX, "throttle")?,
                since: Serial(since),
                limit,
                goal,
            })
        });
        Ok(Self {
            born: group.born,
            tenant: group.tenant,
            name: name(group.name)?,
            own: live::GroupSettings {
                concurrency: group.concurrency.map(concurrency).transpose()?,
                rate: group.rate.map(|own| own.map(rate).transpose()).transpose()?,
                backoff: group.backoff.map(backoff).transpose()?,
                ordered: group.ordered,
            },
            paused_until: group.paused_until,
            bucket: bucket(group.bucket)?,
            circuit: live::Circuit {
                level,
                until: at_most(until, INSTANT_MS_MAX, "circuit")?,
                opened: Serial(opened),
                probe: Serial(probe),
                closed: Serial(closed),
            },
            throttle: throttle.transpose()?,
            turn: group.turn,
            wake: group.wake,
        })
    }
}

impl TryFrom<Header<'_>> for LiveHeader {
    type Error = Corrupt;

    fn try_from(header: Header<'_>) -> Result<Self, Corrupt> {
        let [
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
        ] = header.totals;
        let workers = header.workers.into_iter().map(|worker| {
            Ok(WorkerRecord {
                number: worker.number,
                name: name(worker.name)?.into(),
                first_seen: worker.first_seen,
                done: worker.done,
                failed: worker.failed,
                crashed: worker.crashed,
            })
        });
        let minutes = header.minutes.into_iter().map(|(number, events)| Minute { number, events });
        let spans = header.spans.into_iter().map(|(number, waits, runs)| {
            Ok(Span { number, waits: histogram(waits)?, runs: histogram(runs)? })
        });
        Ok(Self {
            settings: header.settings.try_into()?,
            clock: header.clock.try_into()?,
            paused_until: header.paused_until,
            bucket: bucket(header.bucket)?,
            totals: live::Totals {
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
            },
            minutes: minutes.collect(),
            spans: spans.collect::<Result<_, String>>()?,
            jobs: header.jobs,
            next_worker: header.next_worker,
            workers: workers.collect::<Result<_, Corrupt>>()?,
            tenants: header.tenants,
            groups: header.groups,
            next_birth: header.next_birth,
            next_turn: header.next_turn,
            pass_floor: header.pass_floor,
            review: header.review,
        })
    }
}

impl<'a> TryFrom<&Job<'a>> for JobRecord<'a> {
    type Error = Corrupt;

    fn try_from(job: &Job<'a>) -> Result<Self, Corrupt> {
        if job.flags > 15 {
            return Err("unknown flags".into());
        }
        let more = job.more.as_ref().map(|more| {
            let reason = more.reason.map(|reason| {
                Reason::ALL.get(usize::from(reason)).copied().ok_or(Corrupt::from("an unknown reason"))
            });
            let unique = more.unique.as_ref().map(|lock| {
                let until = Until::ALL.get(usize::from(lock.until)).copied();
                Ok::<_, Corrupt>(LockRecord {
                    key: lock.key.0,
                    until: until.ok_or("an unknown end of a lock")?,
                    window: duration(lock.window)?,
                })
            });
            Ok::<_, Corrupt>(MoreRecord {
                custom_id: more.custom_id.as_ref().map(|bytes| bytes.0),
                options: live::JobOptions {
                    attempts: more.attempts.map(budget).transpose()?,
                    crashes: more.crashes.map(budget).transpose()?,
                    backoff: more.backoff.map(backoff).transpose()?,
                    lease: duration(more.lease)?,
                    ttl: more.ttl.map(duration).transpose()?,
                    deadline: duration(more.deadline_length)?,
                },
                deadline: more.deadline,
                value: more.value.as_ref().map(|bytes| bytes.0),
                error: more.error.as_ref().map(|bytes| bytes.0),
                reason: reason.transpose()?,
                last_worker: more.last_worker.as_ref().map(|bytes| bytes.0),
                failures: more.failures,
                output: more.output.iter().map(|bytes| bytes.0).collect(),
                unique: unique.transpose()?,
            })
        });
        Ok(Self {
            arrival: Serial(job.arrival),
            payload: job.payload.0,
            group: job.group,
            since: job.since,
            at: job.at,
            enqueued: job.enqueued,
            touched: job.touched,
            token: Serial(job.token),
            worker: job.worker,
            deliveries: job.deliveries,
            attempts: job.attempts,
            crashes: job.crashes,
            refusals: job.refusals,
            state: State::ALL.get(usize::from(job.state)).copied().ok_or("an unknown state")?,
            priority: job.priority,
            follows_wall: job.flags & 1 != 0,
            keeps_place: job.flags & 2 != 0,
            cancelling: job.flags & 4 != 0,
            acked: job.flags & 8 != 0,
            more: more.transpose()?,
        })
    }
}

impl<'a> TryFrom<Op<'a>> for live::Op<'a> {
    type Error = Corrupt;

    fn try_from(op: Op<'a>) -> Result<Self, Corrupt> {
        let names = |names: Vec<Bytes<'a>>| names.into_iter().map(name).collect::<Result<Vec<_>, _>>();
        Ok(match op {
            Op::Clock(clock) => Self::Clock(clock.try_into()?),
            Op::Sweep { limit } => Self::Sweep { limit: count(limit, SWEEP_MAX)? },
            Op::Claim { worker, count: most, lease } => Self::Claim(live::Claim {
                worker: name(worker)?,
                count: count(most, COUNT_MAX)?,
                lease: duration(lease)?,
            }),
            Op::Register { worker } => Self::Register { worker: name(worker)? },
            Op::Undo { grants } => Self::Undo {
                grants: grants
                    .into_iter()
                    .map(|(id, token)| live::Delivery {
                        id: match id {
                            JobId::Serial(serial) => Id::Serial(Serial(serial)),
                            JobId::Custom(bytes) => Id::Custom(bytes.0),
                        },
                        token: Serial(token),
                    })
                    .collect(),
            },
            Op::Recover { workers, before, count: most, counted } => Self::Recover(live::Recover {
                who: live::Who::Named(names(workers)?),
                before,
                count: count(most, COUNT_MAX)?,
                counted,
            }),
            Op::Forget { workers } => Self::Forget { workers: names(workers)? },
        })
    }
}

/// Most items that one sweep in a message may settle.
const SWEEP_MAX: usize = 1_000_000;

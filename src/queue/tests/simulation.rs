//! Random histories: the queue against its model, reloaded from its bytes at random instants,
//! with a replica that is fed by ops only and now and then becomes the primary.
//!
//! A seed decides everything, the settings and how often each call occurs included; some calls do
//! not occur at all in a run, because what is rare beside them is then common. A failure prints the
//! command that replays it.
//!
//! - `RQ_SEED`: the first seed (0). `RQ_SEEDS`: how many (the fixed part; 1 if `RQ_SEED` is given).
//! - `RQ_STEPS`: steps of each.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::harness::{Answer, Twin, apply_shipped, save, show};
use super::model::{Model, Note, Phase};
use super::random::Random;
use crate::queue::limits::DURATION_MS_MAX;
use crate::queue::{
    Backoff, Cancel, Claim, Delivery, Effects, Enqueue, Error, Failure, GroupName, GroupPatch, Held, Hold,
    Id, IfExists, JobOptions, Op, Outcome, Payloads, Queue, Rate, Reason, Recover, Scope, Serial, Settings,
    SettingsPatch, Stamp, State, TenantPatch, Unique, Until, When, Who,
};

const FIXED_SEEDS: u64 = 1_000;
const FIXED_STEPS: u64 = 250;

const HOUR: u64 = 3_600_000;
const DAY: u64 = 24 * HOUR;

const WORKERS: [&[u8]; 5] = [b"w1", b"w2", b"w3", b"\0\xff\r\n", b"nobody"];
const CUSTOM_IDS: [&[u8]; 8] = [
    b"a",
    b"b",
    b"order-17",
    b"\0",
    b"\xff\xfe\r\n",
    b"1-",
    b"1-1-1",
    &[b'x'; crate::queue::limits::NAME_BYTES_MAX],
];
const KEYS: [&[u8]; 4] = [b"k", b"\0\xff", b"order-17", &[b'k'; crate::queue::limits::NAME_BYTES_MAX]];
/// The nameless ones come first.
const TENANTS: [&[u8]; 3] = [b"", b"t", b"\xff\0"];
const GROUPS: [&[u8]; 4] = [b"", b"g", b"h", &[b'g'; crate::queue::limits::NAME_BYTES_MAX]];
const PAYLOADS: [&[u8]; 5] = [b"", b"p", b"payload", b"\0\x01\x02\xff\xfe\r\n", &[7; 300]];
const TEXTS: [&[u8]; 4] = [b"", b"text", b"\xf0\x9f\x92\xa5 broke", &[0; 100]];

/// The calls of the simulation. Reading and restarting are calls too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Enqueue,
    EnqueueMany,
    Cancel,
    Reschedule,
    Claim,
    Register,
    Undo,
    Ack,
    Fail,
    Release,
    Extend,
    Progress,
    Emit,
    Recover,
    Redrive,
    RedriveAll,
    Purge,
    Pause,
    Resume,
    Set,
    SetGroup,
    SetTenant,
    Sweep,
    Forget,
    Clock,
    Pages,
    Reload,
    Promote,
}

/// Each call with its usual weight.
const CALLS: [(Call, u64); 28] = [
    (Call::Enqueue, 20),
    (Call::EnqueueMany, 6),
    (Call::Cancel, 5),
    (Call::Reschedule, 5),
    (Call::Claim, 25),
    (Call::Register, 2),
    (Call::Undo, 3),
    (Call::Ack, 12),
    (Call::Fail, 12),
    (Call::Release, 5),
    (Call::Extend, 5),
    (Call::Progress, 3),
    (Call::Emit, 8),
    (Call::Recover, 5),
    (Call::Redrive, 3),
    (Call::RedriveAll, 1),
    (Call::Purge, 1),
    (Call::Pause, 2),
    (Call::Resume, 6),
    (Call::Set, 2),
    (Call::SetGroup, 3),
    (Call::SetTenant, 2),
    (Call::Sweep, 25),
    (Call::Forget, 2),
    (Call::Clock, 4),
    (Call::Pages, 2),
    (Call::Reload, 2),
    (Call::Promote, 1),
];

/// How often each kind of outcome was seen, over all seeds.
type Tally = BTreeMap<String, u64>;

struct Simulation {
    random: Random,
    twin: Twin,
    replica: Queue,
    /// What the primary's clocks show, and its counter.
    clock: Stamp,
    weights: Vec<u64>,
    /// Jobs beyond which nothing is enqueued: a run is about many steps, not about many jobs.
    jobs_max: usize,
    /// How many of the tenants and of the groups there are in this run.
    names: (usize, usize),
    /// How many of the keys.
    keys: usize,
    /// Whether workers complain of endpoints rather than of jobs.
    stormy: bool,
    /// Whether a timer settles at once whatever is due, as on a healthy server.
    prompt: bool,
    /// Every delivery there was.
    deliveries: Vec<Delivery<'static>>,
    /// Arrival numbers of those whose keys others took over.
    lost: BTreeSet<u64>,
    /// Ids of the queue's own making.
    ids: Vec<Id<'static>>,
    tally: Tally,
    /// The last ops, for the report.
    history: Vec<String>,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let wall = 1_700_000_000_000 + random.below(DAY);
        let now = random.below(10 * DAY);
        let clock = Stamp { now, wall, serial: Serial(random.below(1_000)) };
        let settings = Settings::default().patched(&patch(&mut random, 2));
        let weights = CALLS
            .iter()
            .map(|&(call, usual)| match random.below(8) {
                // Without these a run goes nowhere.
                0 if !matches!(call, Call::Enqueue | Call::Claim | Call::Sweep) => 0,
                1 => usual * 5,
                2 => usual.div_ceil(3),
                _ => usual,
            })
            .collect();
        let stormy = random.one_in(2);
        let weights = if stormy { stormy_weights(weights) } else { weights };
        Self {
            weights,
            jobs_max: *random.pick(&[3, 8, 8, 20, 40]),
            names: *random.pick(&[(1, 1), (1, 2), (1, 4), (2, 2), (3, 2), (3, 4), (3, 4)]),
            keys: *random.pick(&[1, 2, KEYS.len()]),
            stormy,
            prompt: random.one_in(2),
            twin: Twin::new(settings, clock),
            replica: Queue::new(settings, clock),
            clock,
            deliveries: Vec::new(),
            lost: BTreeSet::new(),
            ids: Vec::new(),
            tally: Tally::new(),
            history: Vec::new(),
            random,
        }
    }

    fn step(&mut self) -> Result<(), String> {
        self.pass_time();
        if self.prompt {
            // As the timer does: when something is due, in slices.
            while self.twin.model.next_wakeup().is_some_and(|at| at <= self.clock.now) {
                let limit = *self.random.pick(&[1, 3, 1_000]);
                let answer = self.run(Op::Sweep { limit }, true)?;
                if answer.result == Ok(Outcome::Swept(0)) {
                    break;
                }
            }
        }
        let call = CALLS[self.random.weighted(&self.weights)].0;
        match call {
            Call::Pages => {
                let size = self.random.between(1, 4) as usize;
                self.twin.check_pages(size)
            }
            Call::Reload => {
                self.history.push("reload".into());
                self.twin.reload()
            }
            Call::Promote => {
                self.history.push("promote".into());
                std::mem::swap(&mut self.twin.queue, &mut self.replica);
                self.twin.queue.all_seen(self.clock.now);
                self.twin.check()
            }
            _ => {
                let at_stamp = !self.random.one_in(5);
                let Some(op) = self.op(call) else { return Ok(()) };
                self.run(op, at_stamp).map(|_| ())
            }
        }
    }

    /// Applies an op to queue and model, and ships what changed to the replica.
    fn run(&mut self, op: Op<'static>, at_stamp: bool) -> Result<Answer, String> {
        let Stamp { now, wall, serial } = self.clock;
        let at = if at_stamp { format!("at {now} (wall {wall}, last {serial})") } else { "as it is:".into() };
        self.history.push(format!("{at} {}", show(&op)));
        let stamp = self.clock;
        let before = self.twin.model.clone();
        let answer = if at_stamp { self.twin.apply_at(stamp, &op)? } else { self.twin.apply(&op)? };
        self.note(&op, &answer);
        self.note_keys(&before, &op, &answer);
        for &slot in &answer.claimed {
            let job = self.twin.queue.job(slot).ok_or("a claimed job is not there")?;
            self.deliveries.push(Delivery { id: own(job.id()), token: job.token() });
        }
        if let Ok(Outcome::Enqueued { first, count }) = answer.result {
            self.ids.extend((0..count as u64).map(|n| Id::Serial(Serial(first.0 + n))));
        }
        // Another queue of the server takes its serials from the same counter.
        self.clock.serial = self.clock.serial.max(self.twin.queue.last_serial());
        if answer.changed {
            let mut fx = Effects::default();
            if answer.moved_clock {
                apply_shipped(&mut self.replica, &Op::Clock(stamp), &mut fx)?;
            }
            apply_shipped(&mut self.replica, &op, &mut fx)?;
        }
        if save(&self.replica) != self.twin.bytes {
            return Err("the replica holds something else".into());
        }
        Ok(answer)
    }

    /// Between two calls time passes: mostly a little, or just up to what is due next.
    fn pass_time(&mut self) {
        let random = &mut self.random;
        let wakeup = self.twin.model.next_wakeup().filter(|&at| at < self.clock.now + 400 * DAY);
        let to_wakeup = wakeup.map_or(0, |at| at.saturating_sub(self.clock.now));
        let passed = match random.below(20) {
            0..8 => 0,
            8..12 => random.between(1, 5),
            12..14 => random.between(1, 2_000),
            14 => to_wakeup.saturating_sub(1),
            15 | 16 => to_wakeup,
            17 => to_wakeup + 1,
            18 => random.between(1, HOUR),
            _ if random.one_in(10) => random.between(1, 40 * DAY),
            _ => 0,
        };
        self.clock.now += passed;
        self.clock.wall += passed;
        if random.one_in(30) {
            // The wall clock steps; the duration clock does not notice.
            let step = *random.pick(&[1, 1_000, HOUR, 5 * HOUR]);
            if random.one_in(2) {
                self.clock.wall += step;
            } else {
                self.clock.wall = self.clock.wall.saturating_sub(step);
            }
        }
        if random.one_in(20) {
            self.clock.serial = Serial(self.clock.serial.0 + random.below(50));
        }
    }

    fn worker(&mut self) -> &'static [u8] {
        // The last one is hardly ever known.
        if self.random.one_in(20) { WORKERS[4] } else { WORKERS[self.random.index(4)] }
    }

    fn workers(&mut self) -> Vec<&'static [u8]> {
        (0..self.random.below(4)).map(|_| self.worker()).collect()
    }

    /// Mostly one that is there.
    fn id(&mut self) -> Id<'static> {
        let jobs = &self.twin.model.jobs;
        match self.random.below(20) {
            0..15 if !jobs.is_empty() => {
                let at = self.random.index(jobs.len());
                own(self.twin.model.jobs[at].id())
            }
            15..17 => Id::Custom(CUSTOM_IDS[self.random.index(CUSTOM_IDS.len())]),
            17 | 18 if !self.ids.is_empty() => *self.random.pick(&self.ids),
            _ => Id::Serial(Serial(self.random.below(3) + self.clock.serial.0)),
        }
    }

    fn ids(&mut self) -> Vec<Id<'static>> {
        (0..self.random.between(1, 4)).map(|_| self.id()).collect()
    }

    /// Mostly one that is on; else one that is over, or forged.
    fn delivery(&mut self) -> Delivery<'static> {
        let active = self.twin.model.jobs.iter().filter(|job| job.state() == State::Active);
        let live: Vec<Delivery<'static>> =
            active.map(|job| Delivery { id: own(job.id()), token: Serial(job.token) }).collect();
        match self.random.below(20) {
            0..14 if !live.is_empty() => *self.random.pick(&live),
            14..17 if !self.deliveries.is_empty() => {
                let from = self.deliveries.len().saturating_sub(8);
                *self.random.pick(&self.deliveries[from..])
            }
            17 => Delivery { id: self.id(), token: Serial::NONE },
            18 if !live.is_empty() => Delivery { id: self.id(), token: self.random.pick(&live).token },
            _ => {
                let token =
                    Serial(self.clock.serial.0.saturating_sub(self.random.below(4)).saturating_add(1));
                Delivery { id: self.id(), token }
            }
        }
    }

    fn deliveries(&mut self) -> Vec<Delivery<'static>> {
        (0..self.random.between(1, 4)).map(|_| self.delivery()).collect()
    }

    fn count(&mut self) -> usize {
        *self.random.pick(&[1, 1, 2, 3, 1_000])
    }

    fn when(&mut self) -> When {
        match self.random.below(8) {
            0 => When::Delay(0),
            1..3 => When::Delay(self.random.between(1, 10)),
            3 => When::Delay(self.random.between(1, 20_000)),
            4 => When::Delay(*self.random.pick(&[HOUR, 30 * DAY, 1 << 31, DURATION_MS_MAX])),
            5 => When::At(self.clock.wall.saturating_sub(self.random.below(3_000))),
            6 => When::At(self.clock.wall + self.random.below(5_000)),
            _ => When::At(*self.random.pick(&[0, 1, self.clock.wall + 2 * HOUR, DURATION_MS_MAX])),
        }
    }

    fn group(&mut self) -> GroupName<'static> {
        let (tenants, groups) = self.names;
        GroupName {
            tenant: TENANTS[self.random.index(tenants)],
            group: GROUPS[groups - 1 - self.random.index(groups)],
        }
    }

    fn scope(&mut self) -> Scope<'static> {
        match self.random.below(3) {
            1 if self.names != (1, 1) => Scope::Group(self.group()),
            2 if self.names != (1, 1) => Scope::Tenant(TENANTS[self.random.index(self.names.0)]),
            _ => Scope::Queue,
        }
    }

    fn text(&mut self) -> &'static [u8] {
        TEXTS[self.random.index(TEXTS.len())]
    }

    fn unique(&mut self) -> Unique<'static> {
        let keys = self.keys;
        let random = &mut self.random;
        Unique {
            key: KEYS[random.index(keys)],
            until: *random.pick(&Until::ALL),
            window: random.one_in(3).then(|| *random.pick(&[1, 10, 500, HOUR, DURATION_MS_MAX])),
            debounce: random.one_in(2),
        }
    }

    fn enqueue(&mut self, payloads: Payloads<'static>, id: Option<(&'static [u8], IfExists)>) -> Op<'static> {
        let one = matches!(payloads, Payloads::One(_));
        let unique = (one && self.random.one_in(2)).then(|| Box::new(self.unique()));
        let when = (!self.random.one_in(3)).then(|| self.when()).filter(|_| self.random.one_in(2));
        let priority = *self.random.pick(&[0, 0, 0, 1, 7, 255]);
        let random = &mut self.random;
        let options = if random.one_in(2) {
            JobOptions::default()
        } else {
            JobOptions {
                attempts: random.one_in(4).then(|| *random.pick(&[None, Some(1), Some(2), Some(5)])),
                crashes: random.one_in(4).then(|| *random.pick(&[None, Some(0), Some(1), Some(3)])),
                backoff: random.one_in(4).then(|| backoff(random)),
                lease: random.one_in(4).then(|| lease(random)),
                ttl: random.one_in(4).then(|| ttl(random)),
                deadline: random
                    .one_in(3)
                    .then(|| *random.pick(&[0, 1, 5, 100, 5_000, HOUR, DURATION_MS_MAX])),
            }
        };
        Op::Enqueue(Enqueue { payloads, id, unique, group: self.group(), when, priority, options })
    }

    fn op(&mut self, call: Call) -> Option<Op<'static>> {
        Some(match call {
            Call::Enqueue | Call::EnqueueMany if self.twin.model.jobs.len() >= self.jobs_max => return None,
            Call::Enqueue => {
                let if_exists = *self.random.pick(&[IfExists::Refuse, IfExists::Keep, IfExists::Replace]);
                let id = self.random.one_in(3).then(|| (*self.random.pick(&CUSTOM_IDS), if_exists));
                let payload = self.random.pick(&PAYLOADS);
                self.enqueue(Payloads::One(payload), id)
            }
            Call::EnqueueMany => {
                let payloads = (0..self.random.between(1, 5)).map(|_| *self.random.pick(&PAYLOADS)).collect();
                self.enqueue(Payloads::Many(payloads), None)
            }
            Call::Cancel => Op::Cancel { ids: self.ids() },
            Call::Reschedule => {
                let when = (!self.random.one_in(3)).then(|| self.when());
                let priority = if when.is_none() || self.random.one_in(3) {
                    Some(self.random.below(3) as u8)
                } else {
                    None
                };
                Op::Reschedule { id: self.id(), when, priority }
            }
            Call::Claim => {
                let worker = self.worker();
                let lease = self.random.one_in(3).then(|| lease(&mut self.random));
                Op::Claim(Claim { worker, count: self.count(), lease })
            }
            Call::Register => Op::Register { worker: self.worker() },
            Call::Undo => Op::Undo { grants: self.deliveries() },
            Call::Ack => {
                let result = self.random.one_in(2).then(|| self.text());
                let ttl = self.random.one_in(4).then(|| ttl(&mut self.random));
                Op::Ack { delivery: self.delivery(), result, ttl }
            }
            Call::Fail => {
                let how = match self.random.below(if self.stormy { 14 } else { 8 }) {
                    0 => Failure::Dead,
                    6 | 8..11 => Failure::Unavailable,
                    7 | 11..14 => Failure::Throttled(*self.random.pick(&[0, 1, 5, 20, 100, 1_000, HOUR])),
                    1 => Failure::RetryAfter(*self.random.pick(&[0, 1, 5, 1_000, HOUR, DURATION_MS_MAX])),
                    _ => Failure::Retry,
                };
                let error = self.random.one_in(2).then(|| self.text());
                Op::Fail { delivery: self.delivery(), error, how }
            }
            Call::Release => Op::Release { deliveries: self.deliveries() },
            Call::Extend => {
                let (worker, lease) = (self.worker(), lease(&mut self.random));
                Op::Extend { worker, lease, deliveries: self.deliveries() }
            }
            Call::Progress => Op::Progress { delivery: self.delivery(), value: self.text() },
            Call::Emit => Op::Emit { delivery: self.delivery(), chunk: self.text() },
            Call::Recover => {
                let who = match self.random.below(3) {
                    0 => Who::Lapsed,
                    1 => Who::Named(self.workers()),
                    _ => Who::Except(self.workers()),
                };
                let before = self
                    .random
                    .one_in(3)
                    .then(|| (self.clock.wall + 1).saturating_sub(self.random.below(2_000)));
                Op::Recover(Recover { who, before, count: self.count(), counted: !self.random.one_in(3) })
            }
            Call::Redrive => Op::Redrive { ids: self.ids() },
            Call::RedriveAll => Op::RedriveAll { count: self.count() },
            Call::Purge => Op::Purge { state: *self.random.pick(&State::ALL), count: self.count() },
            Call::Pause => Op::Pause {
                scope: self.scope(),
                length: (!self.random.one_in(3))
                    .then(|| *self.random.pick(&[0, 1, 100, HOUR, DURATION_MS_MAX])),
            },
            Call::Resume => Op::Resume { scope: self.scope() },
            Call::Set => Op::Set(patch(&mut self.random, 6)),
            Call::SetGroup => {
                let name = self.group();
                let random = &mut self.random;
                // Half of them give it back to the defaults.
                let patch = GroupPatch {
                    concurrency: random.one_in(3).then(|| random.one_in(2).then(|| concurrency(random))),
                    rate: random.one_in(3).then(|| random.one_in(2).then(|| rate(random))),
                    backoff: random.one_in(3).then(|| random.one_in(2).then(|| group_backoff(random))),
                    ordered: random.one_in(3).then(|| random.one_in(2).then(|| random.one_in(2))),
                };
                Op::SetGroup { name, patch }
            }
            Call::SetTenant => {
                let name = TENANTS[self.random.index(self.names.0)];
                let random = &mut self.random;
                let patch = TenantPatch {
                    weight: random.one_in(3).then(|| *random.pick(&[1, 1, 2, 3, 1_000_000])),
                    concurrency: random.one_in(3).then(|| concurrency(random)),
                    rate: random.one_in(3).then(|| rate(random)),
                };
                Op::SetTenant { name, patch }
            }
            Call::Sweep => Op::Sweep { limit: *self.random.pick(&[0, 1, 2, 5, 1_000, 1_000]) },
            Call::Forget => Op::Forget { workers: self.workers() },
            Call::Clock => {
                let mut stamp = self.clock;
                if self.random.one_in(4) {
                    // A stamp from behind: the queue never goes back on it.
                    stamp.now = stamp.now.saturating_sub(self.random.below(5_000));
                    stamp.serial = Serial(stamp.serial.0 / 2);
                }
                Op::Clock(stamp)
            }
            Call::Pages | Call::Reload | Call::Promote => return None,
        })
    }

    /// Notes what became of keys.
    fn note_keys(&mut self, before: &Model, op: &Op<'_>, answer: &Answer) {
        let after = &self.twin.model;
        let mut see = |what: &str| *self.tally.entry(what.into()).or_default() += 1;
        if let Ok(Outcome::Duplicate { id, .. }) = &answer.result
            && let Some(at) = after.find(Id::parse(id))
        {
            see(&format!("Duplicate of: {}", after.jobs[at].state().name()));
        }
        for job in &after.jobs {
            let Some(was) = before.jobs.iter().find(|was| was.arrival == job.arrival) else { continue };
            if was.unique.is_some() && job.unique.is_none() {
                see("key: taken over");
                self.lost.insert(job.arrival);
            }
            if matches!(op, Op::Redrive { .. } | Op::RedriveAll { .. }) && was.state() != job.state() {
                if job.locks(after.now) {
                    see("key: locked again by a redrive");
                } else if self.lost.contains(&job.arrival) {
                    see("key: taken over, then redriven");
                }
            }
        }
    }

    /// Notes what was seen, so that a test can tell whether everything was.
    fn note(&mut self, op: &Op<'_>, answer: &Answer) {
        let name = format!("{op:?}");
        let name = name.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        let mut see = |what: String| *self.tally.entry(format!("{name}: {what}")).or_default() += 1;
        match &answer.result {
            Err(error) => see(format!("{error:?}").split('(').next().unwrap_or_default().into()),
            Ok(Outcome::Cancelled(answers)) => answers.iter().for_each(|answer| see(format!("{answer:?}"))),
            Ok(Outcome::Held(answers)) => answers.iter().for_each(|answer| see(format!("{answer:?}"))),
            Ok(Outcome::Redriven(answers)) => answers.iter().for_each(|answer| see(format!("{answer:?}"))),
            Ok(Outcome::Recovered(recovered)) => see(format!("taken {}", recovered.taken.min(2))),
            Ok(Outcome::Bulk { taken, .. }) => see(format!("taken {}", (*taken).min(2))),
            Ok(Outcome::Swept(count)) => see(format!("{}", (*count).min(2))),
            Ok(Outcome::Enqueued { .. }) => see("Enqueued".into()),
            Ok(Outcome::Duplicate { replaced: true, .. }) => see("Replaced".into()),
            Ok(Outcome::Duplicate { .. }) => see("Duplicate".into()),
            Ok(Outcome::Claimed) => see(format!("{}", answer.claimed.len().min(2))),
            Ok(outcome) => see(format!("{outcome:?}")),
        }
        if let Op::Fail { how: how @ (Failure::Unavailable | Failure::Throttled(_)), .. } = op
            && let Ok(Outcome::State(state)) = answer.result
        {
            see(format!("{} {state:?}", format!("{how:?}").split('(').next().unwrap_or_default()));
        }
        for note in &answer.notes {
            match note {
                Note::Ended { state, .. } => see(format!("ended {state:?}")),
                Note::Emitted { place, .. } => see(format!("emitted {}", place.number.min(2))),
                Note::Restarted { .. } => see("restarted".into()),
            }
        }
        let model = &self.twin.model;
        for group in &model.groups {
            if !model.jobs_of(&group.name, State::Ready).is_empty()
                && let Some((hold, holder)) = model.hold_of(group, model.now)
            {
                *self.tally.entry(format!("held: {} by {}", hold.name(), holder.name())).or_default() += 1;
            }
        }
        let mut see = |what: String| *self.tally.entry(what).or_default() += 1;
        for group in &model.groups {
            if group.circuit.level > 0 {
                see(format!("circuit: level {}", group.circuit.level.min(3)));
            }
            if let Some(throttle) = &group.throttle {
                see(format!("throttle: {}", if throttle.limit < throttle.goal { "less" } else { "rest" }));
            }
        }
        if matches!(op, Op::Claim(_)) && answer.claimed.len() > 1 {
            let mut names: Vec<_> = (model.claimed.iter())
                .filter_map(|&arrival| model.jobs.iter().find(|job| job.arrival == arrival))
                .map(|job| &job.group)
                .collect();
            names.sort();
            names.dedup();
            let groups = names.len();
            names.dedup_by_key(|name| &name.0);
            see(format!("turns: of {} tenants", names.len()));
            see(format!("turns: of {groups} groups"));
        }
        if model.review.is_some() {
            see(format!("review: {name}"));
        }
        for job in &self.twin.model.jobs {
            if let (Phase::Final { .. }, Some(reason)) = (&job.phase, job.reason)
                && answer
                    .notes
                    .iter()
                    .any(|note| matches!(note, Note::Ended { state: Some(State::Dead), .. }))
            {
                *self.tally.entry(format!("dead: {reason:?}")).or_default() += 1;
            }
        }
    }
}

/// The same id from the pool, which outlives all queues.
fn own(id: Id<'_>) -> Id<'static> {
    match id {
        Id::Serial(serial) => Id::Serial(serial),
        Id::Custom(bytes) => {
            Id::Custom(CUSTOM_IDS.iter().find(|id| **id == bytes).expect("an id from the pool"))
        }
    }
}

fn lease(random: &mut Random) -> u64 {
    *random.pick(&[1, 2, 10, 500, 30_000, DURATION_MS_MAX])
}

fn ttl(random: &mut Random) -> Option<u64> {
    *random.pick(&[None, Some(0), Some(1), Some(50), Some(HOUR), Some(DURATION_MS_MAX)])
}

fn backoff(random: &mut Random) -> Backoff {
    Backoff {
        base: *random.pick(&[0, 1, 3, 100, 1_000, DURATION_MS_MAX]),
        max: *random.pick(&[0, 10, 1_000, HOUR, DURATION_MS_MAX]),
    }
}

/// As many reports as claims, or the groups never get into trouble.
fn stormy_weights(mut weights: Vec<u64>) -> Vec<u64> {
    for (weight, (call, usual)) in weights.iter_mut().zip(CALLS) {
        match call {
            Call::Fail => *weight = usual * 3,
            Call::Pause => *weight = (*weight).min(1),
            _ => {}
        }
    }
    weights
}

fn concurrency(random: &mut Random) -> Option<u32> {
    match random.below(12) {
        0 => Some(0),
        1..4 => Some(1),
        4..6 => Some(2),
        6 => Some(5),
        7 => Some(1_000_000),
        _ => None,
    }
}

/// Of a group's circuit: mostly such that it ends within a run.
fn group_backoff(random: &mut Random) -> Backoff {
    match random.below(4) {
        0 => backoff(random),
        _ => Backoff { base: *random.pick(&[0, 1, 20, 500]), max: *random.pick(&[100, 1_000, HOUR]) },
    }
}

fn rate(random: &mut Random) -> Option<Rate> {
    (!random.one_in(3)).then(|| Rate {
        count: *random.pick(&[1, 2, 3, 7, 1_000_000]),
        period: if random.one_in(12) { u64::from(u32::MAX) } else { *random.pick(&[1, 7, 100, 3_000]) },
        burst: *random.pick(&[1, 1, 2, 5, 1_000_000]),
    })
}

/// Changes one of `n` settings in the mean.
fn patch(random: &mut Random, n: u64) -> SettingsPatch {
    SettingsPatch {
        lease: random.one_in(n).then(|| lease(random)),
        attempts: random.one_in(n).then(|| *random.pick(&[None, Some(1), Some(2), Some(3)])),
        crashes: random.one_in(n).then(|| *random.pick(&[None, Some(0), Some(1), Some(2)])),
        backoff: random.one_in(n).then(|| backoff(random)),
        ttl: random.one_in(n).then(|| ttl(random)),
        result_ttl: random.one_in(n).then(|| ttl(random)),
        dead_ttl: random.one_in(n).then(|| ttl(random)),
        keep_done: random.one_in(n).then(|| *random.pick(&[None, Some(0), Some(1), Some(3)])),
        keep_dead: random.one_in(n).then(|| *random.pick(&[None, Some(0), Some(1), Some(3)])),
        max_len: random
            .one_in(n)
            .then(|| *random.pick(&[None, None, None, None, Some(0), Some(2), Some(6), Some(20)])),
        max_output: random.one_in(n).then(|| *random.pick(&[0, 10, 100, 1_000_000])),
        worker_ttl: random.one_in(n).then(|| *random.pick(&[None, Some(1_000)])),
        concurrency: random.one_in(4 * n).then(|| concurrency(random)),
        rate: random.one_in(4 * n).then(|| rate(random)),
        group_concurrency: random.one_in(n).then(|| concurrency(random)),
        group_rate: random.one_in(n).then(|| rate(random)),
        group_backoff: random.one_in(n).then(|| group_backoff(random)),
        group_ordered: random.one_in(n).then(|| random.one_in(2)),
    }
}

/// Runs one seed. The error is a report.
fn run_seed(seed: u64, steps: u64) -> Result<Tally, String> {
    let mut simulation = Simulation::new(seed);
    for step in 0..steps {
        // A panic of queue or model is a finding like any other.
        let outcome = catch_unwind(AssertUnwindSafe(|| simulation.step()))
            .unwrap_or_else(|panic| Err(format!("panic: {:?}", panic.downcast_ref::<String>())));
        if let Err(error) = outcome {
            let from = simulation.history.len().saturating_sub(15);
            return Err(format!(
                "seed {seed}, step {step}: {error}\n\nlast ops:\n  {}\n\nreplay: RQ_SEED={seed} RQ_STEPS={} cargo test --lib simulation\n",
                simulation.history[from..].join("\n  "),
                step + 1,
            ));
        }
    }
    Ok(simulation.tally)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is to be a number")))
}

#[test]
fn queue_model_reloaded_queue_and_replica_never_differ() {
    let first = number("RQ_SEED");
    let count = number("RQ_SEEDS").unwrap_or(if first.is_some() { 1 } else { FIXED_SEEDS });
    let steps = number("RQ_STEPS").unwrap_or(FIXED_STEPS);
    let (first, next) = (first.unwrap_or(0), AtomicU64::new(0));
    let (tally, failure) = (Mutex::new(Tally::new()), Mutex::new(None::<(u64, String)>));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = first + next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count || failure.lock().unwrap().is_some() {
                        return;
                    }
                    match run_seed(seed, steps) {
                        Ok(seen) => {
                            let mut tally = tally.lock().unwrap();
                            seen.into_iter()
                                .for_each(|(what, times)| *tally.entry(what).or_default() += times);
                        }
                        Err(report) => {
                            let mut failure = failure.lock().unwrap();
                            if failure.as_ref().is_none_or(|&(other, _)| seed < other) {
                                *failure = Some((seed, report));
                            }
                        }
                    }
                }
            });
        }
    });
    if let Some((_, report)) = failure.into_inner().unwrap() {
        panic!("{report}");
    }
    let tally = tally.into_inner().unwrap();
    for (what, times) in &tally {
        println!("{times:>9} {what}");
    }
    println!("{count} seeds of {steps} steps");
    if count >= FIXED_SEEDS {
        for what in everything() {
            assert!(tally.contains_key(&what), "never seen: {what}");
        }
    }
}

/// What must have been seen, or the simulation is blind there.
fn everything() -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut add = |call: &str, outcomes: &[String]| {
        all.extend(outcomes.iter().map(|outcome| format!("{call}: {outcome}")))
    };
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_string()).collect::<Vec<_>>();
    let debug = |errors: &[Error]| {
        errors
            .iter()
            .map(|error| format!("{error:?}").split('(').next().unwrap().into())
            .collect::<Vec<String>>()
    };
    let held = [Held::Ok, Held::Lost, Held::Cancel].map(|held| format!("{held:?}"));
    let final_states = [State::Done, State::Dead, State::Cancelled];
    add("Enqueue", &words(&["Enqueued", "Existed", "Duplicate", "Replaced"]));
    add("Duplicate of", &State::ALL.map(|state| state.name().to_string()));
    add("key", &words(&["taken over", "taken over, then redriven", "locked again by a redrive"]));
    add("Enqueue", &debug(&[Error::Exists(State::Done), Error::Full, Error::BeyondDeadline(0)]));
    add(
        "Cancel",
        &[Cancel::Cancelled, Cancel::Cancelling, Cancel::Unknown].map(|answer| format!("{answer:?}")),
    );
    add("Cancel", &final_states.map(|state| format!("{:?}", Cancel::Ended(state))));
    add("Cancel", &[format!("ended {:?}", Some(State::Cancelled))]);
    add("Reschedule", &[State::Delayed, State::Ready].map(|state| format!("{:?}", Outcome::State(state))));
    add("Reschedule", &debug(&[Error::NoJob, Error::BadState(State::Dead), Error::BeyondDeadline(0)]));
    add("Claim", &words(&["0", "1", "2", "ended Some(Dead)"]));
    add("Undo", &words(&["Done", "ended Some(Cancelled)"]));
    add("Ack", &[true, false].map(|finished| format!("{:?}", Outcome::Acked(finished))));
    add("Ack", &debug(&[Error::Stale]));
    add("Ack", &words(&["ended Some(Done)", "ended Some(Cancelled)"]));
    add(
        "Fail",
        &[State::Delayed, State::Ready, State::Dead, State::Cancelled]
            .map(|state| format!("{:?}", Outcome::State(state))),
    );
    add("Fail", &debug(&[Error::NoJob, Error::Stale]));
    add("Release", &held[..2]);
    add("Release", &words(&["ended Some(Cancelled)"]));
    add("Extend", &held);
    add("Progress", &[Held::Ok, Held::Cancel].map(|held| format!("{:?}", Outcome::Progressed(held))));
    add("Progress", &debug(&[Error::NoJob, Error::Stale]));
    add("Emit", &[Held::Ok, Held::Cancel].map(|held| format!("{:?}", Outcome::Progressed(held))));
    add("Emit", &debug(&[Error::NoJob, Error::Stale, Error::OutputFull]));
    add("Emit", &words(&["emitted 0", "emitted 1", "emitted 2"]));
    for call in ["Undo", "Fail", "Release", "Recover", "Sweep"] {
        add(call, &words(&["restarted"]));
    }
    add("Recover", &words(&["taken 0", "taken 1", "taken 2", "ended Some(Dead)", "ended Some(Cancelled)"]));
    add("Redrive", &State::ALL.map(|state| format!("{:?}", Some(state))));
    add("Redrive", &words(&["None"]));
    add("RedriveAll", &words(&["taken 0", "taken 1", "taken 2"]));
    add("Purge", &words(&["BadState", "taken 0", "taken 1", "taken 2", "ended None"]));
    add("Sweep", &words(&["0", "1", "2", "ended Some(Dead)", "ended Some(Cancelled)"]));
    add(
        "Fail",
        &words(&[
            "Unavailable Ready",
            "Unavailable Delayed",
            "Unavailable Cancelled",
            "Throttled Ready",
            "Throttled Delayed",
            "Throttled Cancelled",
        ]),
    );
    let of_all = [Hold::Paused(0), Hold::Concurrency, Hold::Rate(0)].map(Hold::name);
    let of_groups = [Hold::Backoff(0), Hold::Probe, Hold::Throttled(0), Hold::Ordered].map(Hold::name);
    for holder in ["group", "tenant", "queue"] {
        add("held", &of_all.map(|hold| format!("{hold} by {holder}")));
    }
    add("circuit", &words(&["level 1", "level 2", "level 3"]));
    add("throttle", &words(&["less", "rest"]));
    add("turns", &words(&["of 2 tenants", "of 3 tenants", "of 3 groups", "of 6 groups"]));
    add("review", &words(&["Claim", "Sweep", "Enqueue"]));
    add("held", &of_groups.map(|hold| format!("{hold} by group")));
    add("dead", &Reason::ALL.map(|reason| format!("{reason:?}")));
    all
}

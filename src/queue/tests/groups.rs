//! Groups and tenants under seeded random ops: limits are never exceeded, nobody is held without a reason, no ending of an
//! active job leaves a slot taken, and replica and reloaded queue are the same queue. What is asserted here is taken from
//! the views, before and after each op; the audit looks inside.
//!
//! A seed replays a failure: `RQ_SEED=7 cargo test --lib groups`. `RQ_SEEDS` and `RQ_STEPS` make it longer.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::harness::{apply_shipped, load, save, show};
use super::random::Random;
use crate::queue::*;

const TENANTS: [&[u8]; 3] = [b"", b"x", b"y"];
const GROUPS: [&[u8]; 4] = [b"", b"a", b"b", b"c"];
const WORKERS: [&[u8]; 3] = [b"w1", b"w2", b"w3"];

/// What a claim may not change the wrong way: of a queue, a tenant or a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limited {
    active: u32,
    limit: Option<u32>,
    hold: Option<Hold>,
}

struct World {
    queue: Queue,
    replica: Queue,
    stamp: Stamp,
    random: Random,
    /// Deliveries that were handed out, some of them over by now.
    handed_out: Vec<(Serial, Serial)>,
}

fn one_of(random: &mut Random, from: &[&'static [u8]]) -> &'static [u8] {
    from[random.index(from.len())]
}

fn name(random: &mut Random) -> GroupName<'static> {
    GroupName { tenant: one_of(random, &TENANTS), group: one_of(random, &GROUPS) }
}

fn rate(random: &mut Random) -> Option<Rate> {
    (!random.one_in(3)).then(|| Rate {
        count: random.between(1, 3),
        period: random.between(1, 2_000),
        burst: random.between(1, 3),
    })
}

fn concurrency(random: &mut Random) -> Option<u32> {
    (!random.one_in(3)).then(|| random.below(4) as u32)
}

fn own<T>(random: &mut Random, value: impl FnOnce(&mut Random) -> T) -> Option<Option<T>> {
    random.one_in(2).then(|| (!random.one_in(3)).then(|| value(random)))
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let settings = Settings {
            lease: random.between(1, 5_000),
            backoff: Backoff { base: random.below(2_000), max: 10_000 },
            attempts: Some(random.between(1, 4) as u32),
            crashes: Some(random.below(4) as u32),
            ..Settings::default()
        };
        let stamp = Stamp { now: 1_000_000, wall: 1_000_000, serial: Serial::NONE };
        let queue = Queue::new(settings, stamp);
        Self { replica: queue.clone(), queue, stamp, random, handed_out: Vec::new() }
    }

    fn delivery(&mut self) -> Delivery<'static> {
        match self.handed_out.len() {
            0 => Delivery { id: Id::Serial(Serial(1)), token: Serial(1) },
            // Mostly one of the latest: they are alive.
            len => {
                let back = if self.random.one_in(4) {
                    self.random.index(len)
                } else {
                    self.random.index(len.min(6))
                };
                let (id, token) = self.handed_out[len - 1 - back];
                Delivery { id: Id::Serial(id), token }
            }
        }
    }

    fn op(&mut self) -> Op<'static> {
        match self.random.below(34) {
            0..7 => {
                let group = name(&mut self.random);
                let when = self.random.one_in(6).then(|| When::Delay(self.random.between(0, 3_000)));
                Op::Enqueue(Enqueue {
                    payloads: Payloads::Many(vec![b"p".as_slice(); self.random.between(1, 3) as usize]),
                    id: None,
                    unique: None,
                    group,
                    when,
                    priority: self.random.below(2) as u8,
                    options: JobOptions::default(),
                })
            }
            7..14 => Op::Claim(Claim {
                worker: one_of(&mut self.random, &WORKERS),
                count: self.random.between(1, 6) as usize,
                lease: None,
            }),
            14..17 => Op::Ack { delivery: self.delivery(), result: None, ttl: None },
            17..22 => {
                let how = match self.random.below(6) {
                    0 => Failure::Retry,
                    1 => Failure::RetryAfter(self.random.below(1_000)),
                    2 => Failure::Dead,
                    3 => Failure::Throttled(self.random.below(3_000)),
                    _ => Failure::Unavailable,
                };
                Op::Fail { delivery: self.delivery(), error: None, how }
            }
            22 => Op::Release { deliveries: vec![self.delivery()] },
            23 => Op::Undo { grants: vec![self.delivery()] },
            24 => Op::Cancel { ids: vec![self.delivery().id] },
            25 => Op::Recover(Recover {
                who: Who::Named(vec![one_of(&mut self.random, &WORKERS)]),
                before: None,
                count: self.random.between(1, 3) as usize,
                counted: self.random.one_in(2),
            }),
            26 => match self.random.below(4) {
                0 => Op::RedriveAll { count: 2 },
                1 => Op::Purge {
                    state: *self.random.pick(&[State::Ready, State::Dead, State::Delayed]),
                    count: 2,
                },
                2 => Op::Reschedule {
                    id: self.delivery().id,
                    when: Some(When::Delay(self.random.below(1_000))),
                    priority: None,
                },
                _ => Op::Extend { worker: b"w1", lease: 2_000, deliveries: vec![self.delivery()] },
            },
            27 | 28 => {
                let scope = self.scope();
                if self.random.one_in(3) {
                    let length = self.random.one_in(2).then(|| self.random.between(1, 3_000));
                    Op::Pause { scope, length }
                } else {
                    Op::Resume { scope }
                }
            }
            29 => Op::SetGroup {
                name: name(&mut self.random),
                patch: GroupPatch {
                    concurrency: own(&mut self.random, concurrency),
                    rate: own(&mut self.random, rate),
                    backoff: own(&mut self.random, |random| Backoff {
                        base: random.below(2_000),
                        max: 4_000,
                    }),
                    ordered: own(&mut self.random, |random| random.one_in(2)),
                },
            },
            30 => Op::SetTenant {
                name: one_of(&mut self.random, &TENANTS),
                patch: TenantPatch {
                    weight: Some(self.random.between(1, 3) as u32),
                    concurrency: self.random.one_in(2).then(|| concurrency(&mut self.random)),
                    rate: self.random.one_in(2).then(|| rate(&mut self.random)),
                },
            },
            31 => Op::Set(SettingsPatch {
                concurrency: self.random.one_in(3).then(|| concurrency(&mut self.random)),
                rate: self.random.one_in(3).then(|| rate(&mut self.random)),
                group_concurrency: self.random.one_in(3).then(|| concurrency(&mut self.random)),
                group_rate: self.random.one_in(3).then(|| rate(&mut self.random)),
                group_backoff: None,
                group_ordered: self.random.one_in(3).then(|| self.random.one_in(4)),
                ..SettingsPatch::default()
            }),
            _ => Op::Sweep { limit: self.random.between(1, 50) as usize },
        }
    }

    fn scope(&mut self) -> Scope<'static> {
        match self.random.below(5) {
            0 => Scope::Queue,
            1 => Scope::Tenant(one_of(&mut self.random, &TENANTS)),
            _ => Scope::Group(name(&mut self.random)),
        }
    }

    /// As the shell does it: stamp, apply, propagate if anything changed.
    fn apply(&mut self, op: &Op<'_>) {
        self.stamp.serial = self.queue.last_serial();
        let bytes = save(&self.queue);
        let before = self.limited();
        let mut fx = Effects::default();
        let result = self.queue.apply_at(self.stamp, op, &mut fx);
        self.queue.audit().unwrap_or_else(|error| panic!("{error}\nafter {}", show(op)));
        if !fx.changed {
            assert!(bytes == save(&self.queue), "nothing was to change by {}", show(op));
            return;
        }
        let (_, moved) = result.expect("an error changes nothing");
        let mut shipped = Effects::default();
        if moved {
            apply_shipped(&mut self.replica, &Op::Clock(self.stamp), &mut shipped).unwrap();
        }
        apply_shipped(&mut self.replica, op, &mut shipped).unwrap();
        assert!(save(&self.queue) == save(&self.replica), "the replica differs after {}", show(op));
        for &slot in &fx.claimed {
            let job = self.queue.job(slot).unwrap();
            self.handed_out.push((job.arrival(), job.token()));
        }
        if matches!(op, Op::Claim(_)) {
            self.check_claim(&before, fx.claimed.len());
        }
    }

    /// Whatever limits claims, by name, at the world's clock.
    fn limited(&self) -> BTreeMap<String, Limited> {
        let mut all = BTreeMap::new();
        let now = self.stamp.now.max(self.queue.now());
        for group in self.queue.groups_after(None) {
            let GroupName { tenant, group: name } = group.name();
            let circuit = group.circuit();
            let hold = match group.gate().paused_until {
                Some(until) if until > now => Some(Hold::Paused(until)),
                _ if !circuit.is_closed() && circuit.until > now => Some(Hold::Backoff(circuit.until)),
                _ if !circuit.is_closed() && circuit.probe != Serial::NONE => Some(Hold::Probe),
                _ => group.throttle().filter(|rest| rest.until > now).map(|rest| Hold::Throttled(rest.until)),
            };
            let limit = group.concurrency();
            let key = format!("{}/{}", String::from_utf8_lossy(tenant), String::from_utf8_lossy(name));
            all.insert(key, Limited { active: group.gate().active, limit, hold });
            let tenant = self.queue.tenant(tenant).unwrap();
            let hold = tenant.gate().paused_until.filter(|&until| until > now).map(Hold::Paused);
            let key = format!("tenant {}", String::from_utf8_lossy(tenant.name()));
            let limit = tenant.settings().concurrency;
            all.insert(key, Limited { active: tenant.gate().active, limit, hold });
        }
        let hold = self.queue.paused_until().filter(|&until| until > now).map(Hold::Paused);
        let active = self.queue.count(State::Active) as u32;
        let limit = self.queue.settings().concurrency;
        all.insert("queue".into(), Limited { active, limit, hold });
        all
    }

    fn check_claim(&self, before: &BTreeMap<String, Limited>, claimed: usize) {
        for (name, after) in self.limited() {
            let Some(before) = before.get(&name) else { continue };
            let more = after.active.saturating_sub(before.active);
            assert!(more as usize <= claimed, "{name}: {before:?} {after:?}");
            if more > 0 {
                assert!(
                    after.limit.is_none_or(|limit| after.active <= limit),
                    "{name}: {before:?} {after:?}"
                );
                assert_eq!(before.hold, None, "{name}: {before:?} {after:?}");
                if let Some(Hold::Probe) = after.hold {
                    assert_eq!(more, 1, "{name}: more than one probe");
                }
            }
        }
    }

    /// Who has something ready and is not served is held for a reason that will end, or that somebody set.
    fn check_holds(&self) {
        let served = self.queue.next_at(self.queue.now()).is_some();
        for group in self.queue.groups_after(None) {
            if group.count(State::Ready) == 0 || served {
                continue;
            }
            let active = self.queue.count(State::Active);
            match group.hold() {
                None => assert!(
                    self.queue.next_wakeup().is_some_and(|at| at <= self.queue.now()),
                    "held for nothing"
                ),
                Some(Hold::Concurrency) => {
                    let zero = [group.concurrency(), self.queue.settings().concurrency];
                    let of_tenant = self.queue.tenant(group.name().tenant).unwrap().settings().concurrency;
                    assert!(active > 0 || zero.contains(&Some(0)) || of_tenant == Some(0));
                }
                Some(Hold::Probe) => assert!(group.count(State::Active) > 0, "a probe that nobody has"),
                Some(Hold::Ordered) => {
                    assert!(group.count(State::Delayed) > 0, "ordered, but nothing is retried")
                }
                Some(hold) => {
                    let until = hold.until();
                    assert!(
                        until.is_none() || self.queue.next_wakeup() <= until,
                        "{hold:?} and nobody wakes"
                    );
                }
            }
        }
    }

    fn step(&mut self) {
        match self.random.below(10) {
            0 => self.stamp.now += self.random.below(5_000),
            1 => {
                if let Some(at) = self.queue.next_wakeup() {
                    self.stamp.now = self.stamp.now.max(at);
                    self.apply(&Op::Sweep { limit: 100 });
                }
            }
            _ => self.stamp.now += self.random.below(3),
        }
        self.stamp.wall = self.stamp.now;
        let op = self.op();
        self.apply(&op);
        if self.random.one_in(4) {
            self.apply(&Op::Sweep { limit: 1_000 });
            self.check_holds();
        }
        if self.random.one_in(25) {
            let bytes = save(&self.queue);
            let loaded = load(&bytes).unwrap();
            assert!(save(&loaded) == bytes, "reloaded, it is another queue");
            self.queue = loaded;
        }
        if self.random.one_in(50) {
            // The replica takes over.
            std::mem::swap(&mut self.queue, &mut self.replica);
        }
    }

    /// Takes all limits away and works everything off: nothing may be left, neither job nor slot nor group.
    fn drain(&mut self) {
        self.apply(&Op::Set(SettingsPatch {
            concurrency: Some(None),
            rate: Some(None),
            group_concurrency: Some(None),
            group_rate: Some(None),
            group_ordered: Some(false),
            dead_ttl: Some(Some(0)),
            result_ttl: Some(Some(0)),
            ..SettingsPatch::default()
        }));
        self.apply(&Op::Resume { scope: Scope::Queue });
        for tenant in TENANTS {
            self.apply(&Op::Resume { scope: Scope::Tenant(tenant) });
            let patch = TenantPatch { weight: Some(1), concurrency: Some(None), rate: Some(None) };
            self.apply(&Op::SetTenant { name: tenant, patch });
            for group in GROUPS {
                let name = GroupName { tenant, group };
                self.apply(&Op::Resume { scope: Scope::Group(name) });
                let patch = GroupPatch {
                    concurrency: Some(None),
                    rate: Some(None),
                    backoff: Some(None),
                    ordered: Some(None),
                };
                self.apply(&Op::SetGroup { name, patch });
            }
        }
        for _ in 0..2_000 {
            self.stamp.now += 1_000;
            self.stamp.wall = self.stamp.now;
            self.apply(&Op::Sweep { limit: 1_000 });
            self.apply(&Op::Claim(Claim { worker: b"w1", count: 1_000, lease: Some(100_000) }));
            for (id, token) in std::mem::take(&mut self.handed_out) {
                self.apply(&Op::Ack {
                    delivery: Delivery { id: Id::Serial(id), token },
                    result: None,
                    ttl: Some(Some(0)),
                });
            }
            if self.queue.waiting() + self.queue.count(State::Active) == 0 {
                break;
            }
        }
        self.stamp.now += 100_000_000;
        self.stamp.wall = self.stamp.now;
        while self.queue.count(State::Dead) + self.queue.count(State::Cancelled) > 0 {
            self.apply(&Op::Purge { state: State::Dead, count: 1_000 });
            self.apply(&Op::Purge { state: State::Cancelled, count: 1_000 });
        }
        self.apply(&Op::Sweep { limit: 1_000 });
        assert_eq!(self.queue.waiting() + self.queue.count(State::Active), 0, "jobs are stuck");
        for (name, limited) in self.limited() {
            assert_eq!(limited.active, 0, "{name}: a slot is left taken");
        }
        assert_eq!(self.queue.group_count(), 1, "a group is left that nobody needs");
    }
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn limits_hold_and_no_slot_is_left_taken() {
    let steps = number("RQ_STEPS", 200);
    let seeds = match number("RQ_SEED", u64::MAX) {
        u64::MAX => 0..number("RQ_SEEDS", 300),
        seed => seed..seed + 1,
    };
    for seed in seeds {
        let run = catch_unwind(AssertUnwindSafe(|| {
            let mut world = World::new(seed);
            for _ in 0..steps {
                world.step();
            }
            world.drain();
        }));
        if let Err(panic) = run {
            eprintln!("replay: RQ_SEED={seed} RQ_STEPS={steps} cargo test --lib groups");
            resume_unwind(panic);
        }
    }
}

//! Small worlds: every sequence of a few calls, over two jobs, two workers and a few instants, against
//! the model and the audit. Most mistakes show in some very short history, if one tries them all.
//!
//! A state that was met before is not explored again, unless there is a longer way to go from it now:
//! what follows depends on the state alone. `RQ_DEPTH` changes how far to go.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::harness::{Twin, show};
use crate::queue::{
    Backoff, Claim, Delivery, Enqueue, Failure, GroupDefaults, GroupName, GroupPatch, Id, IfExists,
    JobOptions, Op, Payloads, Rate, Recover, Scope, Serial, Settings, Stamp, State, TenantPatch, Unique,
    Until, When, Who,
};

/// The distance of two instants, ms. Leases, delays and the like are multiples of it.
const INSTANT: u64 = 10;
const START: u64 = 1_000;
const WALL: u64 = 1_700_000_000_000;

const A: &[u8] = b"a";
const B: &[u8] = b"b";
const W1: &[u8] = b"w1";
const W2: &[u8] = b"w2";

/// What can be called in a world. `Last` is the latest delivery of a job, whether it is on or
/// over; `Former` is the one before it.
#[derive(Clone, Copy, Debug)]
enum Call {
    Enqueue(&'static [u8], Option<When>, u8, Option<u64>),
    /// With the one key that there is: until when, its window, and whether it replaces what waits.
    Keyed(&'static [u8], Until, Option<u64>, bool),
    Claim(&'static [u8], usize),
    Ack(Which, &'static [u8], bool),
    Fail(Which, &'static [u8], Failure),
    Release(Which, &'static [u8]),
    Extend(Which, &'static [u8]),
    Undo(Which, &'static [u8]),
    Progress(Which, &'static [u8]),
    Emit(Which, &'static [u8]),
    Cancel(&'static [u8]),
    Reschedule(&'static [u8], When),
    Recover(&'static [u8], bool),
    RecoverLapsed,
    Redrive(&'static [u8]),
    RedriveAll,
    Purge(State),
    Pause(Option<u64>),
    Resume,
    /// Of the group of the first job.
    PauseGroup(Option<u64>),
    ResumeGroup,
    SetGroup(GroupPatch),
    /// Of its tenant.
    SetTenant(TenantPatch),
    Sweep(usize),
    /// The clock goes to the next instant; nothing is settled by that.
    Tick,
    /// The wall clock alone steps, back or forward.
    WallStep(i64),
}

#[derive(Clone, Copy, Debug)]
enum Which {
    Last,
    Former,
}

struct World {
    settings: Settings,
    calls: Vec<Call>,
    /// The groups of the two jobs.
    groups: [GroupName<'static>; 2],
    /// How often the clock may tick.
    ticks: u64,
    depth: usize,
}

#[derive(Clone)]
struct Node {
    twin: Twin,
    groups: [GroupName<'static>; 2],
    ticks: u64,
    /// Tokens of the last two deliveries of each job, the latest first.
    tokens: HashMap<&'static [u8], [Serial; 2]>,
}

impl Node {
    fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.twin.bytes.hash(&mut hasher);
        self.ticks.hash(&mut hasher);
        for job in [A, B] {
            self.tokens.get(job).hash(&mut hasher);
        }
        hasher.finish()
    }

    fn delivery(&self, which: Which, job: &'static [u8]) -> Delivery<'static> {
        let [last, former] = self.tokens.get(job).copied().unwrap_or_default();
        Delivery {
            id: Id::Custom(job),
            token: match which {
                Which::Last => last,
                Which::Former => former,
            },
        }
    }

    fn op(&self, call: Call) -> Op<'static> {
        let clock = self.twin.model.clock();
        match call {
            Call::Enqueue(id, when, priority, deadline) => Op::Enqueue(Enqueue {
                group: self.groups[usize::from(id == B)],
                payloads: Payloads::One(b"payload"),
                id: Some((id, IfExists::Replace)),
                unique: None,
                when,
                priority,
                options: JobOptions { deadline, ..JobOptions::default() },
            }),
            Call::Keyed(id, until, window, debounce) => {
                let Op::Enqueue(plain) = self.op(Call::Enqueue(id, None, 0, None)) else { unreachable!() };
                let unique = Some(Box::new(Unique { key: b"k", until, window, debounce }));
                Op::Enqueue(Enqueue { unique, ..plain })
            }
            Call::Claim(worker, count) => Op::Claim(Claim { worker, count, lease: None }),
            Call::Ack(which, job, result) => Op::Ack {
                delivery: self.delivery(which, job),
                result: result.then_some(b"result"),
                ttl: None,
            },
            Call::Fail(which, job, how) => {
                Op::Fail { delivery: self.delivery(which, job), error: Some(b"error"), how }
            }
            Call::Release(which, job) => Op::Release { deliveries: vec![self.delivery(which, job)] },
            Call::Extend(which, job) => {
                Op::Extend { worker: W1, lease: 2 * INSTANT, deliveries: vec![self.delivery(which, job)] }
            }
            Call::Undo(which, job) => Op::Undo { grants: vec![self.delivery(which, job)] },
            Call::Progress(which, job) => {
                Op::Progress { delivery: self.delivery(which, job), value: b"half" }
            }
            Call::Emit(which, job) => Op::Emit { delivery: self.delivery(which, job), chunk: b"ab" },
            Call::Cancel(id) => Op::Cancel { ids: vec![Id::Custom(id)] },
            Call::Reschedule(id, when) => {
                Op::Reschedule { id: Id::Custom(id), when: Some(when), priority: None }
            }
            Call::Recover(name, counted) => {
                Op::Recover(Recover { who: Who::Named(vec![name]), before: None, count: 10, counted })
            }
            Call::RecoverLapsed => {
                Op::Recover(Recover { who: Who::Lapsed, before: None, count: 1, counted: true })
            }
            Call::Redrive(id) => Op::Redrive { ids: vec![Id::Custom(id)] },
            Call::RedriveAll => Op::RedriveAll { count: 10 },
            Call::Purge(state) => Op::Purge { state, count: 1 },
            Call::Pause(length) => Op::Pause { scope: Scope::Queue, length },
            Call::Resume => Op::Resume { scope: Scope::Queue },
            Call::PauseGroup(length) => Op::Pause { scope: Scope::Group(self.groups[0]), length },
            Call::ResumeGroup => Op::Resume { scope: Scope::Group(self.groups[0]) },
            Call::SetGroup(patch) => Op::SetGroup { name: self.groups[0], patch },
            Call::SetTenant(patch) => Op::SetTenant { name: self.groups[0].tenant, patch },
            Call::Sweep(limit) => Op::Sweep { limit },
            Call::Tick => Op::Clock(Stamp { now: clock.now + INSTANT, wall: clock.wall + INSTANT, ..clock }),
            Call::WallStep(step) => {
                Op::Clock(Stamp { wall: clock.wall.saturating_add_signed(step), ..clock })
            }
        }
    }

    /// Whether there was anything to do.
    fn apply(&mut self, call: Call) -> Result<bool, String> {
        let answer = self.twin.apply(&self.op(call))?;
        if matches!(call, Call::Tick) {
            self.ticks += 1;
        }
        for &slot in &answer.claimed {
            let job = self.twin.queue.job(slot).ok_or("a claimed job is not there")?;
            let name =
                [A, B].into_iter().find(|&name| job.id() == Id::Custom(name)).ok_or("an id from nowhere")?;
            let tokens = self.tokens.entry(name).or_default();
            *tokens = [job.token(), tokens[0]];
        }
        Ok(answer.changed)
    }
}

struct Explorer<'w> {
    world: &'w World,
    /// Hash of a state, and how far it was explored.
    met: HashMap<u64, usize>,
    path: Vec<Call>,
    steps: u64,
}

impl Explorer<'_> {
    fn explore(&mut self, node: &Node, depth: usize) -> Result<(), String> {
        let explored = self.met.entry(node.hash()).or_default();
        if *explored >= depth {
            return Ok(());
        }
        *explored = depth;
        let mut spare: Option<Node> = None;
        for &call in &self.world.calls {
            if matches!(call, Call::Tick) && node.ticks == self.world.ticks {
                continue;
            }
            // A call that changes nothing leaves the node's own state behind: good for the next call.
            let mut next = spare.take().unwrap_or_else(|| node.clone());
            self.path.push(call);
            self.steps += 1;
            if next.apply(call).map_err(|error| format!("{error}\n\nop: {}", show(&node.op(call))))? {
                self.explore(&next, depth - 1)?;
            } else {
                spare = Some(next);
            }
            self.path.pop();
        }
        Ok(())
    }
}

fn explore(world: &World) {
    let clock = Stamp { now: START, wall: WALL, serial: Serial::NONE };
    let (twin, groups) = (Twin::new(world.settings, clock), world.groups);
    let root = Node { twin, groups, ticks: 0, tokens: HashMap::new() };
    let depth =
        std::env::var("RQ_DEPTH").map_or(world.depth, |depth| depth.parse().expect("RQ_DEPTH is a number"));
    let mut explorer = Explorer { world, met: HashMap::new(), path: Vec::new(), steps: 0 };
    if let Err(error) = explorer.explore(&root, depth) {
        panic!("after {:#?}: {error}", explorer.path);
    }
    println!(
        "{} calls, every sequence of {depth}: {} states, {} steps",
        world.calls.len(),
        explorer.met.len(),
        explorer.steps
    );
}

const NAMELESS: [GroupName<'static>; 2] = [GroupName { tenant: b"", group: b"" }; 2];

fn settings() -> Settings {
    Settings {
        lease: INSTANT,
        attempts: Some(2),
        crashes: Some(1),
        backoff: Backoff { base: INSTANT, max: 2 * INSTANT },
        ttl: Some(0),
        result_ttl: Some(INSTANT),
        dead_ttl: Some(2 * INSTANT),
        ..Settings::default()
    }
}

#[test]
fn leases_tokens_and_budgets() {
    use Call::*;
    use Which::*;
    explore(&World {
        settings: settings(),
        calls: vec![
            Enqueue(A, None, 0, None),
            Enqueue(B, None, 0, None),
            Claim(W1, 1),
            Claim(W2, 2),
            Ack(Last, A, true),
            Ack(Former, A, true),
            Fail(Last, A, Failure::Retry),
            Release(Last, A),
            Extend(Last, A),
            Recover(W1, true),
            Sweep(1),
            Tick,
        ],
        groups: NAMELESS,
        ticks: 3,
        depth: 8,
    });
}

#[test]
fn one_job_with_a_key() {
    use Call::*;
    use Which::*;
    explore(&World {
        settings: Settings { crashes: Some(0), attempts: Some(1), ..settings() },
        calls: vec![
            Keyed(A, Until::Finished, Some(2 * INSTANT), false),
            Keyed(B, Until::Started, None, false),
            Keyed(B, Until::Started, Some(INSTANT), true),
            Claim(W1, 1),
            Ack(Last, A, false),
            Fail(Last, B, Failure::Retry),
            Undo(Last, B),
            Cancel(A),
            RedriveAll,
            Purge(State::Done),
            Sweep(1),
            Tick,
        ],
        groups: NAMELESS,
        ticks: 3,
        depth: 8,
    });
}

#[test]
fn delays_deadlines_and_pause() {
    use Call::*;
    use Which::*;
    explore(&World {
        settings: settings(),
        calls: vec![
            Enqueue(A, Some(When::Delay(INSTANT)), 0, Some(2 * INSTANT)),
            Enqueue(B, Some(When::At(WALL + INSTANT)), 1, None),
            Claim(W1, 2),
            Undo(Last, A),
            Reschedule(A, When::Delay(0)),
            Reschedule(B, When::Delay(INSTANT)),
            Reschedule(A, When::At(WALL + 2 * INSTANT)),
            Pause(Some(INSTANT)),
            Resume,
            WallStep(-(INSTANT as i64)),
            Sweep(1),
            Tick,
        ],
        groups: NAMELESS,
        ticks: 3,
        depth: 7,
    });
}

#[test]
fn cancelling_whatever_comes() {
    use Call::*;
    use Which::*;
    explore(&World {
        settings: Settings { crashes: Some(0), attempts: Some(1), ..settings() },
        calls: vec![
            Enqueue(A, None, 0, None),
            Claim(W1, 1),
            Cancel(A),
            Ack(Last, A, true),
            Fail(Last, A, Failure::RetryAfter(0)),
            Release(Last, A),
            Undo(Last, A),
            Progress(Last, A),
            Emit(Last, A),
            Extend(Last, A),
            Recover(W1, false),
            RecoverLapsed,
            Sweep(1),
            Tick,
        ],
        groups: NAMELESS,
        ticks: 3,
        depth: 9,
    });
}

#[test]
fn retention_eviction_and_redrive() {
    use Call::*;
    use Which::*;
    explore(&World {
        settings: Settings { keep_done: Some(1), keep_dead: Some(1), max_len: Some(1), ..settings() },
        calls: vec![
            Enqueue(A, None, 0, None),
            Enqueue(B, None, 7, None),
            Claim(W1, 2),
            Ack(Last, A, true),
            Ack(Last, B, false),
            Fail(Last, A, Failure::Dead),
            Fail(Last, B, Failure::Dead),
            Cancel(B),
            Redrive(A),
            RedriveAll,
            Purge(State::Ready),
            Purge(State::Dead),
            Sweep(2),
            Tick,
        ],
        groups: NAMELESS,
        ticks: 3,
        depth: 8,
    });
}

#[test]
fn crashes_and_their_back_off() {
    use Call::*;
    use Which::*;
    explore(&World {
        settings: Settings { crashes: Some(2), ..settings() },
        calls: vec![
            Enqueue(A, None, 0, None),
            Enqueue(B, None, 0, None),
            Claim(W1, 1),
            Recover(W1, true),
            Cancel(A),
            Redrive(A),
            Fail(Former, A, Failure::Retry),
            Sweep(9),
            Tick,
        ],
        groups: NAMELESS,
        ticks: 8,
        depth: 9,
    });
}

#[test]
fn an_endpoint_that_is_down() {
    use Call::*;
    use Which::*;
    let backoff = Backoff { base: INSTANT, max: 2 * INSTANT };
    explore(&World {
        settings: Settings { group: GroupDefaults { backoff, ..GroupDefaults::default() }, ..settings() },
        calls: vec![
            Enqueue(A, None, 0, None),
            Enqueue(B, None, 0, None),
            Claim(W1, 2),
            Claim(W2, 1),
            Ack(Last, B, true),
            Fail(Last, A, Failure::Unavailable),
            Fail(Last, B, Failure::Unavailable),
            Fail(Last, B, Failure::RetryAfter(0)),
            Release(Last, A),
            Cancel(A),
            Recover(W1, false),
            ResumeGroup,
            Sweep(1),
            Tick,
        ],
        groups: [GroupName { tenant: b"t", group: b"g" }; 2],
        ticks: 4,
        depth: 7,
    });
}

#[test]
fn an_endpoint_that_asks_for_less() {
    use Call::*;
    use Which::*;
    explore(&World {
        settings: settings(),
        calls: vec![
            Enqueue(A, None, 0, None),
            Enqueue(B, None, 0, None),
            Claim(W1, 2),
            Ack(Last, A, true),
            Fail(Last, A, Failure::Throttled(INSTANT)),
            Fail(Last, B, Failure::Throttled(2 * INSTANT)),
            Fail(Last, B, Failure::Throttled(0)),
            Undo(Last, B),
            ResumeGroup,
            Sweep(1),
            Tick,
        ],
        groups: [GroupName { tenant: b"", group: b"g" }; 2],
        ticks: 4,
        depth: 7,
    });
}

#[test]
fn two_tenants_with_limits() {
    use Call::*;
    use Which::*;
    let rate = Rate { count: 1, period: INSTANT, burst: 1 };
    let plain = GroupPatch::default();
    explore(&World {
        settings: settings(),
        calls: vec![
            Enqueue(A, None, 0, None),
            Enqueue(B, None, 0, None),
            Claim(W1, 1),
            Ack(Last, A, true),
            Fail(Last, A, Failure::Retry),
            Undo(Last, A),
            PauseGroup(Some(INSTANT)),
            ResumeGroup,
            SetGroup(GroupPatch { rate: Some(Some(Some(rate))), ..plain }),
            SetGroup(GroupPatch { rate: Some(None), concurrency: Some(None), ..plain }),
            SetGroup(GroupPatch { concurrency: Some(Some(Some(0))), ..plain }),
            SetTenant(TenantPatch { weight: Some(2), rate: Some(Some(rate)), ..TenantPatch::default() }),
            Sweep(1),
            Tick,
        ],
        groups: [GroupName { tenant: b"t", group: b"g" }, GroupName { tenant: b"u", group: b"" }],
        ticks: 3,
        depth: 6,
    });
}

#[test]
fn one_at_a_time_in_order() {
    use Call::*;
    use Which::*;
    let order = |yes| GroupPatch { ordered: Some(yes), ..GroupPatch::default() };
    explore(&World {
        settings: Settings { crashes: None, ..settings() },
        calls: vec![
            Enqueue(A, Some(When::Delay(INSTANT)), 0, None),
            Enqueue(B, None, 0, None),
            Claim(W1, 2),
            Fail(Last, A, Failure::Retry),
            Fail(Last, B, Failure::RetryAfter(0)),
            Release(Last, B),
            Recover(W1, true),
            Redrive(B),
            Reschedule(B, When::Delay(INSTANT)),
            SetGroup(order(Some(true))),
            SetGroup(order(None)),
            Sweep(1),
            Tick,
        ],
        groups: [GroupName { tenant: b"", group: b"g" }; 2],
        ticks: 3,
        depth: 7,
    });
}

//! What is done with bytes from anywhere: the targets of the fuzzer (`fuzz/`, `make fuzz`), and of the tests that run
//! its corpus and their own mangled bytes through them.
//!
//! A target returns, or it panics: that is a finding. None of them takes more memory than [`allowance`].

use super::memory::peak_of;
use crate::persist::{self, Message};
use crate::queue::limits::DURATION_MS_MAX;
use crate::queue::*;

/// The persisted form of a queue, chunk by chunk.
pub type Chunks = Vec<Vec<u8>>;

/// What bytes of this length may take while they are read: the queue they become (its slots come by
/// the 256, and a short record becomes a whole slot), and some room to work in.
pub fn allowance(length: usize) -> usize {
    (4 << 20) + 200 * length
}

fn save(queue: &Queue) -> Chunks {
    let mut chunks = Chunks::new();
    persist::save(queue, &mut |chunk: &[u8]| chunks.push(chunk.to_vec()));
    chunks
}

fn load<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Result<Queue, String> {
    let mut loader = persist::Loader::default();
    for chunk in chunks {
        loader.push(chunk).map_err(|error| error.to_string())?;
    }
    loader.finish().map_err(|error| error.to_string())
}

fn slices(chunks: &Chunks) -> impl Iterator<Item = &[u8]> {
    chunks.iter().map(Vec::as_slice)
}

/// Pieces that lie in one file, each behind its length as four bytes, little endian; a length that is too large means
/// the rest.
pub fn split(mut file: &[u8]) -> Vec<&[u8]> {
    let mut pieces = Vec::new();
    while let Some((length, rest)) = file.split_first_chunk::<4>() {
        let (piece, rest) = rest.split_at(rest.len().min(u32::from_le_bytes(*length) as usize));
        pieces.push(piece);
        file = rest;
    }
    pieces
}

/// The file of [`split`].
pub fn join<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let pieces = pieces.into_iter();
    pieces.flat_map(|piece| [&(piece.len() as u32).to_le_bytes(), piece].concat()).collect()
}

/// A value as `RESTORE` or an RDB file brings it. Whether it was taken for a queue.
pub fn value(file: &[u8]) -> bool {
    let (loaded, peak) = peak_of(|| load(split(file)));
    assert!(peak <= allowance(file.len()), "{} bytes took {peak}", file.len());
    let Ok(mut queue) = loaded else { return false };
    check(&queue);
    use_all_over(&mut queue);
    run_dry(&mut queue);
    true
}

/// Messages as `RQ.APPLY` brings them, for a queue that the first byte chooses. How many of them changed something.
pub fn messages(file: &[u8]) -> usize {
    let Some((first, rest)) = file.split_first() else { return 0 };
    let mut queue = match first % 4 {
        0 => None,
        1 => Some(Queue::new(Settings::default(), START)),
        _ => Some(busy()),
    };
    let mut loader = None::<persist::Loader>;
    let mut taken = 0;
    for bytes in split(rest) {
        let (message, peak) = peak_of(|| persist::decode(bytes));
        assert!(peak <= allowance(bytes.len()), "{} bytes took {peak}", bytes.len());
        match message {
            Err(_) => {}
            Ok(Message::Create { settings, stamp }) => queue = Some(Queue::new(settings, stamp)),
            Ok(Message::Chunk(chunk)) => drop(loader.get_or_insert_default().push(chunk)),
            Ok(Message::End) => {
                if let Ok(loaded) = loader.take().unwrap_or_default().finish() {
                    queue = Some(loaded);
                }
            }
            Ok(Message::Op(op)) => {
                if let Some(queue) = &mut queue {
                    let mut fx = Effects::default();
                    taken += usize::from(queue.apply(&op, &mut fx).is_ok() && fx.changed);
                }
            }
        }
        if let Some(queue) = &queue {
            audit(queue);
        }
    }
    if let Some(queue) = &mut queue {
        check(queue);
        run_dry(queue);
    }
    taken
}

/// Calls that clients could make, one after the other. How many of them changed something.
pub fn ops(script: &[u8]) -> usize {
    let (mut queue, taken) = play(script);
    check(&queue);
    run_dry(&mut queue);
    taken
}

/// Plays a script on a primary; its replica and its file hold the same.
pub fn play(script: &[u8]) -> (Queue, usize) {
    let mut script = Script(script);
    let mut queue = Queue::new(Settings::default(), START);
    let mut replica = queue.clone();
    let mut bytes = save(&queue);
    let mut world = World { stamp: START, known: Vec::new() };
    let mut taken = 0;
    while let Some(kind) = script.byte() {
        world.pass(&mut script);
        let known = world.known.clone();
        let op = script.op(kind, &known);
        let mut fx = Effects::default();
        let result = queue.apply_at(world.stamp, &op, &mut fx);
        audit(&queue);
        let saved = save(&queue);
        if let (Ok((_, moved)), true) = (&result, fx.changed) {
            taken += 1;
            // A claim may look at groups that it does not hand out of, which is a change without a trace.
            if *moved {
                ship(&mut replica, &Op::Clock(world.stamp_of(&queue)));
            }
            ship(&mut replica, &op);
        } else {
            assert!(saved == bytes, "{op:?} changed something and says it did not: {result:?}");
        }
        bytes = saved;
        world.note(&queue, &op, &result.map(|(outcome, _)| outcome), &fx);
        if kind == u8::MAX {
            queue = load(slices(&bytes)).expect("own bytes load");
        }
    }
    assert!(save(&replica) == bytes, "the replica holds something else");
    (queue, taken)
}

#[track_caller]
fn audit(queue: &Queue) {
    if let Err(error) = queue.audit() {
        panic!("audit: {error}");
    }
}

/// The invariants hold, and what it saves loads and is saved the same.
#[track_caller]
fn check(queue: &Queue) {
    audit(queue);
    let bytes = save(queue);
    match load(slices(&bytes)) {
        Ok(again) => assert!(save(&again) == bytes, "other bytes when saved, loaded and saved again"),
        Err(error) => panic!("what it saves does not load: {error}"),
    }
}

/// Lets the time pass as the timer would. Each sweep must get on: one that settles nothing while something is due would
/// keep the server busy for ever.
fn run_dry(queue: &mut Queue) {
    for _ in 0..200 {
        let Some(at) = queue.next_wakeup() else { return };
        let now = at.max(queue.now());
        if now > limits::CLOCK_MS_MAX {
            return;
        }
        let wall = queue.wall().saturating_add(now - queue.now());
        let stamp = Stamp { now, wall, serial: queue.last_serial() };
        let mut fx = Effects::default();
        let swept = queue.apply_at(stamp, &Op::Sweep { limit: 100 }, &mut fx);
        audit(queue);
        let is_due = queue.next_wakeup_at(now, wall).is_some_and(|at| at <= now);
        let is_idle = matches!(swept, Ok((Outcome::Swept(0), _)) | Err(_));
        assert!(!(is_due && is_idle), "due at {at}, it is {now}, and a sweep finds nothing");
        if is_idle {
            // A rate has something again: for whoever waits.
            let claim = Claim { worker: b"w", count: 10, lease: None };
            let _ = queue.apply_at(stamp, &Op::Claim(claim), &mut fx);
        }
    }
    check(queue);
}

/// Calls about everything on a queue from anywhere; the audit must hold after each.
fn use_all_over(queue: &mut Queue) {
    let mut tokens: Vec<(Option<Vec<u8>>, Serial, Serial)> = Vec::new();
    for state in State::ALL {
        let all = Filter { state, worker: None, scope: Scope::Queue };
        for slot in queue.list_some(&all, None, 1_000).jobs {
            let job = queue.job(slot).expect("a listed job is there");
            let custom = match job.id() {
                Id::Custom(bytes) => Some(bytes.to_vec()),
                Id::Serial(_) => None,
            };
            tokens.push((custom, job.arrival(), job.token()));
            let _ = (
                job.due(),
                job.ttl(),
                job.value(),
                job.worker(),
                job.since(),
                job.deadline(),
                job.lease_until(),
                job.read(Start::Number(0), 10),
            );
        }
    }
    let deliveries: Vec<Delivery<'_>> = tokens
        .iter()
        .map(|(custom, arrival, token)| Delivery {
            id: custom.as_deref().map_or(Id::Serial(*arrival), Id::Custom),
            token: *token,
        })
        .collect();
    let ids = || deliveries.iter().map(|delivery| delivery.id).collect::<Vec<_>>();
    let hour_on =
        Stamp { now: queue.now() + 3_600_000, wall: queue.wall() + 3_600_000, serial: queue.last_serial() };
    let group = GroupName { tenant: b"t", group: b"g" };
    let mut ops = vec![
        Op::Extend { worker: b"w1", lease: 1_000, deliveries: deliveries.clone() },
        Op::Resume { scope: Scope::Queue },
        Op::Claim(Claim { worker: b"w9", count: 1_000, lease: None }),
        Op::Redrive { ids: ids() },
    ];
    ops.extend(deliveries.iter().map(|&delivery| Op::Emit { delivery, chunk: b"more" }));
    ops.extend(deliveries.iter().step_by(3).map(|&delivery| Op::Fail {
        delivery,
        error: None,
        how: Failure::Retry,
    }));
    ops.extend(deliveries.iter().step_by(2).map(|&delivery| Op::Ack {
        delivery,
        result: Some(b"r"),
        ttl: None,
    }));
    ops.extend([
        Op::Clock(hour_on),
        Op::Sweep { limit: 1_000 },
        Op::Claim(Claim { worker: b"w1", count: 3, lease: Some(DURATION_MS_MAX) }),
        Op::Recover(Recover { who: Who::Except(vec![]), before: None, count: 1_000, counted: true }),
        Op::Undo { grants: deliveries.clone() },
        Op::Cancel { ids: ids() },
        Op::RedriveAll { count: 1_000 },
        Op::Set(SettingsPatch {
            keep_done: Some(Some(0)),
            keep_dead: Some(Some(0)),
            ..SettingsPatch::default()
        }),
        Op::SetGroup {
            name: group,
            patch: GroupPatch { ordered: Some(Some(true)), ..GroupPatch::default() },
        },
        Op::Sweep { limit: 1_000 },
        Op::Purge { state: State::Ready, count: 1_000 },
        Op::Enqueue(Enqueue {
            payloads: Payloads::One(b"new"),
            id: None,
            unique: None,
            group,
            when: None,
            priority: 0,
            options: JobOptions::default(),
        }),
    ]);
    for op in &ops {
        let _ = queue.apply(op, &mut Effects::default());
        let _ = (queue.next_wakeup(), queue.next_at(queue.now()), queue.oldest_ready(), queue.memory());
        if let Err(error) = queue.audit() {
            panic!("after {op:?}: {error}");
        }
    }
    check(queue);
}

/// Where the clocks stand when a queue is made here.
const START: Stamp =
    Stamp { now: 1_000_000, wall: 1_700_000_000_000, serial: Serial(1_700_000_000_000 << 20) };

/// A queue with something in most states.
fn busy() -> Queue {
    let mut queue = Queue::new(Settings::default(), START);
    let mut run = |op: &Op<'_>| {
        let mut fx = Effects::default();
        queue.apply(op, &mut fx).expect("a call in order");
        fx.claimed.first().and_then(|&slot| queue.job(slot)).map_or(Serial::NONE, |job| job.token())
    };
    for (number, id) in IDS.iter().enumerate() {
        let when = (number == 1).then_some(When::Delay(5_000));
        let group = GROUPS[number % GROUPS.len()];
        let payloads = Payloads::One(id);
        let id = Some((*id, IfExists::Refuse));
        let options = JobOptions { ttl: Some(Some(60_000)), ..JobOptions::default() };
        run(&Op::Enqueue(Enqueue { payloads, id, unique: None, group, when, priority: 0, options }));
        if number == 1 || number > 5 {
            continue;
        }
        let token = run(&Op::Claim(Claim { worker: WORKERS[number % 3], count: 1, lease: None }));
        let delivery = Delivery { id: Id::Custom(IDS[number]), token };
        run(&Op::Emit { delivery, chunk: b"chunk" });
        match number {
            0 => drop(run(&Op::Ack { delivery, result: Some(b"result"), ttl: None })),
            2 => drop(run(&Op::Fail { delivery, error: Some(b"error"), how: Failure::Dead })),
            3 => drop(run(&Op::Fail { delivery, error: None, how: Failure::Unavailable })),
            _ => {}
        }
    }
    queue
}

/// Applies an op to a replica as it gets there: what has a form for it comes as bytes.
fn ship(replica: &mut Queue, op: &Op<'_>) {
    let bytes = persist::encode_op(op);
    let op = match bytes.as_deref().map(persist::decode) {
        Some(Ok(Message::Op(decoded))) => decoded,
        Some(other) => panic!("{op:?} is read as {other:?}"),
        None => op.clone(),
    };
    if let Err(error) = replica.apply(&op, &mut Effects::default()) {
        panic!("the replica refuses {op:?}: {error:?}");
    }
}

const WORKERS: [&[u8]; 4] = [b"w1", b"w2", b"w3", b"\0\xff"];
const KEYS: [&[u8]; 3] = [b"k", b"l", b"\0\xff"];
const IDS: [&[u8]; 8] = [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h"];
const GROUPS: [GroupName<'static>; 6] = [
    GroupName { tenant: b"", group: b"" },
    GroupName { tenant: b"", group: b"g1" },
    GroupName { tenant: b"t1", group: b"" },
    GroupName { tenant: b"t1", group: b"g1" },
    GroupName { tenant: b"t1", group: b"g2" },
    GroupName { tenant: b"t2", group: b"g1" },
];
const DURATIONS: [u64; 12] =
    [0, 1, 2, 10, 250, 1_000, 30_000, 60_000, 3_600_000, 86_400_000, 1 << 40, DURATION_MS_MAX];

/// A delivery that was seen once.
#[derive(Clone)]
struct Known {
    custom: Option<&'static [u8]>,
    arrival: Serial,
    token: Serial,
}

impl Known {
    fn id(&self) -> Id<'static> {
        self.custom.map_or(Id::Serial(self.arrival), Id::Custom)
    }
}

/// What the clients know, and the clocks of the server.
struct World {
    stamp: Stamp,
    known: Vec<Known>,
}

impl World {
    /// Time passes: mostly none, mostly on both clocks alike.
    fn pass(&mut self, script: &mut Script<'_>) {
        let step = script.byte().unwrap_or(0);
        let length = DURATIONS[usize::from(step & 15) % 10];
        if step & 0x80 != 0 {
            self.stamp.now += length;
            self.stamp.wall += length;
        }
        match step >> 4 & 7 {
            6 => self.stamp.wall = self.stamp.wall.saturating_sub(3_600_000),
            7 => self.stamp.wall += 3_600_000,
            _ => {}
        }
    }

    /// The clock as the write path ships it.
    fn stamp_of(&self, queue: &Queue) -> Stamp {
        Stamp { now: queue.now(), wall: queue.wall(), serial: self.stamp.serial }
    }

    fn note(&mut self, queue: &Queue, op: &Op<'_>, result: &Result<Outcome, Error>, fx: &Effects<'_>) {
        self.stamp.serial = self.stamp.serial.max(queue.last_serial());
        if let (Op::Enqueue(enqueue), Ok(Outcome::Enqueued { first, .. })) = (op, result) {
            let custom = enqueue.id.and_then(|(id, _)| IDS.iter().copied().find(|&known| known == id));
            self.known.push(Known { custom, arrival: *first, token: Serial::NONE });
        }
        for &slot in &fx.claimed {
            let Some(job) = queue.job(slot) else { continue };
            let (custom, arrival, token) = match job.id() {
                Id::Custom(id) => {
                    (IDS.iter().copied().find(|&known| known == id), job.arrival(), job.token())
                }
                Id::Serial(arrival) => (None, arrival, job.token()),
            };
            self.known.push(Known { custom, arrival, token });
        }
    }
}

/// Bytes that say what happens.
struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// The next byte; 0 behind the end.
    fn next(&mut self) -> usize {
        usize::from(self.byte().unwrap_or(0))
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.next() % from.len()]
    }

    fn duration(&mut self) -> u64 {
        self.pick(&DURATIONS)
    }

    fn some<T>(&mut self, give: impl FnOnce(&mut Self) -> T) -> Option<T> {
        (self.next() % 2 == 1).then(|| give(self))
    }

    fn bytes(&mut self) -> &'a [u8] {
        let length = self.next().min(self.0.len());
        let (bytes, rest) = self.0.split_at(length);
        self.0 = rest;
        bytes
    }

    fn small(&mut self) -> u32 {
        self.next() as u32 % 6
    }

    fn rate(&mut self) -> Rate {
        let (count, period) =
            self.pick(&[(1, 1), (1, 1_000), (3, 1_000), (1_000_000, 1), (1, 4_294_967_295)]);
        Rate { count, period, burst: self.pick(&[1, 2, 5, 1_000_000]) }
    }

    fn backoff(&mut self) -> Backoff {
        Backoff { base: self.duration(), max: self.duration() }
    }

    fn delivery(&mut self, known: &[Known]) -> Delivery<'static> {
        let at = self.next();
        match known.get(known.len().wrapping_sub(1 + at % 32)) {
            Some(known) => Delivery { id: known.id(), token: known.token },
            None => Delivery { id: Id::Custom(IDS[at % IDS.len()]), token: Serial(at as u64) },
        }
    }

    fn deliveries(&mut self, known: &[Known]) -> Vec<Delivery<'static>> {
        (0..=self.next() % 4).map(|_| self.delivery(known)).collect()
    }

    fn ids(&mut self, known: &[Known]) -> Vec<Id<'static>> {
        self.deliveries(known).iter().map(|delivery| delivery.id).collect()
    }

    fn workers(&mut self) -> Vec<&'static [u8]> {
        (0..self.next() % 4).map(|_| self.pick(&WORKERS)).collect()
    }

    fn when(&mut self) -> When {
        match self.next() % 2 {
            0 => When::Delay(self.duration()),
            _ => When::At(self.pick(&[
                0,
                START.wall - 1,
                START.wall + 1_000,
                START.wall + 3_600_000,
                DURATION_MS_MAX,
            ])),
        }
    }

    fn scope(&mut self) -> Scope<'static> {
        match self.next() % 3 {
            0 => Scope::Queue,
            1 => Scope::Tenant(self.pick(&GROUPS).tenant),
            _ => Scope::Group(self.pick(&GROUPS)),
        }
    }

    fn options(&mut self) -> JobOptions {
        JobOptions {
            attempts: self.some(|script| script.some(Self::small).map(|attempts| attempts.max(1))),
            crashes: self.some(|script| script.some(Self::small)),
            backoff: self.some(Self::backoff),
            lease: self.some(|script| script.duration().max(1)),
            ttl: self.some(|script| script.some(Self::duration)),
            deadline: self.some(|script| script.duration().max(1)),
        }
    }

    fn enqueue(&mut self, kind: u8) -> Op<'a> {
        let is_plain = kind < 64;
        let id = self.next();
        let unique = (id >= 160).then(|| {
            Box::new(Unique {
                key: KEYS[id % KEYS.len()],
                until: Until::ALL[id / 2 % 2],
                window: [None, Some(1), Some(3_600_000), Some(DURATION_MS_MAX)][id / 4 % 4],
                debounce: (id / 16).is_multiple_of(2),
            })
        });
        let id = (id < 128).then(|| {
            let if_exists = [IfExists::Refuse, IfExists::Keep, IfExists::Replace][id / 16 % 3];
            (IDS[id % IDS.len()], if_exists)
        });
        let payload = self.bytes();
        let payloads = match (id, is_plain) {
            (None, false) if unique.is_none() => Payloads::Many(vec![payload; self.next() % 4 + 1]),
            _ => Payloads::One(payload),
        };
        Op::Enqueue(Enqueue {
            payloads,
            id,
            unique,
            group: self.pick(&GROUPS),
            when: if is_plain { None } else { self.some(Self::when) },
            priority: if is_plain { 0 } else { self.pick(&[0, 1, 255]) },
            options: if is_plain { JobOptions::default() } else { self.options() },
        })
    }

    fn op(&mut self, kind: u8, known: &[Known]) -> Op<'a> {
        match kind % 25 {
            0 | 1 => self.enqueue(kind),
            2 | 3 => Op::Claim(Claim {
                worker: self.pick(&WORKERS),
                count: self.next() % 4 + 1,
                lease: self.some(|script| script.duration().max(1)),
            }),
            4 | 5 => {
                let delivery = self.delivery(known);
                let result = self.some(Self::bytes);
                Op::Ack { delivery, result, ttl: self.some(|script| script.some(Self::duration)) }
            }
            6 | 7 => {
                let delivery = self.delivery(known);
                let how = match self.next() % 6 {
                    0 | 1 => Failure::Retry,
                    2 => Failure::RetryAfter(self.duration()),
                    3 => Failure::Dead,
                    4 => Failure::Unavailable,
                    _ => Failure::Throttled(self.duration()),
                };
                Op::Fail { delivery, error: self.some(Self::bytes), how }
            }
            8 | 9 => Op::Sweep { limit: self.next() % 8 + 1 },
            10 => Op::Cancel { ids: self.ids(known) },
            11 => Op::Reschedule {
                id: self.delivery(known).id,
                when: self.some(Self::when),
                priority: self.some(|script| script.pick(&[0, 1, 255])),
            },
            12 => Op::Register { worker: self.pick(&WORKERS) },
            13 => Op::Undo { grants: self.deliveries(known) },
            14 => Op::Release { deliveries: self.deliveries(known) },
            15 => Op::Extend {
                worker: self.pick(&WORKERS),
                lease: self.duration().max(1),
                deliveries: self.deliveries(known),
            },
            16 if kind >= 100 => Op::Emit { delivery: self.delivery(known), chunk: self.bytes() },
            16 => Op::Progress { delivery: self.delivery(known), value: self.bytes() },
            17 => {
                let (workers, kind) = (self.workers(), self.next());
                let who = match kind % 3 {
                    0 => Who::Lapsed,
                    1 => Who::Named(workers),
                    _ => Who::Except(workers),
                };
                let before = self.some(|script| START.wall + script.duration() % (1 << 41));
                Op::Recover(Recover { who, before, count: kind % 5 + 1, counted: kind >= 128 })
            }
            18 => match self.next() % 2 {
                0 => Op::Redrive { ids: self.ids(known) },
                _ => Op::RedriveAll { count: self.next() % 4 + 1 },
            },
            19 => Op::Purge { state: self.pick(&State::ALL), count: self.next() % 4 + 1 },
            20 => match self.next() % 2 {
                0 => Op::Pause { scope: self.scope(), length: self.some(|script| script.duration().max(1)) },
                _ => Op::Resume { scope: self.scope() },
            },
            21 => Op::Set(SettingsPatch {
                lease: self.some(|script| script.duration().max(1)),
                attempts: self.some(|script| script.some(Self::small).map(|attempts| attempts.max(1))),
                crashes: self.some(|script| script.some(Self::small)),
                backoff: self.some(Self::backoff),
                ttl: self.some(|script| script.some(Self::duration)),
                result_ttl: self.some(|script| script.some(Self::duration)),
                dead_ttl: self.some(|script| script.some(Self::duration)),
                keep_done: self.some(|script| script.some(Self::small).map(u64::from)),
                keep_dead: self.some(|script| script.some(Self::small).map(u64::from)),
                max_len: self.some(|script| script.some(Self::small).map(u64::from)),
                worker_ttl: self.some(|script| script.some(Self::duration)),
                concurrency: self.some(|script| script.some(Self::small)),
                rate: self.some(|script| script.some(Self::rate)),
                group_concurrency: self.some(|script| script.some(Self::small)),
                group_rate: self.some(|script| script.some(Self::rate)),
                group_backoff: self.some(Self::backoff),
                group_ordered: self.some(|script| script.next() % 2 == 1),
                max_output: self.some(|script| script.pick(&[0, 10, 1_000_000])),
            }),
            22 => Op::SetGroup {
                name: self.pick(&GROUPS),
                patch: GroupPatch {
                    concurrency: self.some(|script| script.some(|script| script.some(Self::small))),
                    rate: self.some(|script| script.some(|script| script.some(Self::rate))),
                    backoff: self.some(|script| script.some(Self::backoff)),
                    ordered: self.some(|script| script.some(|script| script.next() % 2 == 1)),
                },
            },
            23 => Op::SetTenant {
                name: self.pick(&GROUPS).tenant,
                patch: TenantPatch {
                    weight: self.some(|script| script.pick(&[1, 2, 3, 1_000_000])),
                    concurrency: self.some(|script| script.some(Self::small)),
                    rate: self.some(|script| script.some(Self::rate)),
                },
            },
            _ => Op::Forget { workers: self.workers() },
        }
    }
}

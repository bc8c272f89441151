//! Work and memory: every call does what it names and no more, what is gone gives its memory back, and
//! what the queue says of its memory is about true.

use super::memory::{live, peak_of};
use crate::queue::{
    Claim, Delivery, Effects, Enqueue, GroupName, Id, IfExists, JobOptions, Op, Outcome, Payloads, Queue,
    Serial, Settings, Stamp, Start, State, Unique, Until, When,
};

const CLOCK: Stamp = Stamp { now: 1_000_000, wall: 1_700_000_000_000, serial: Serial::NONE };

fn run(queue: &mut Queue, op: &Op<'_>) -> Outcome {
    queue.apply(op, &mut Effects::default()).unwrap()
}

fn enqueue(queue: &mut Queue, count: usize, when: Option<When>) {
    let payload = [7; 100];
    for _ in 0..count / 1_000 {
        let payloads = Payloads::Many(vec![&payload; 1_000]);
        let options = JobOptions::default();
        run(
            queue,
            &Op::Enqueue(Enqueue {
                payloads,
                id: None,
                unique: None,
                group: GroupName::default(),
                when,
                priority: 0,
                options,
            }),
        );
    }
}

fn pass(queue: &mut Queue, ms: u64) {
    let (now, wall, serial) = (queue.now() + ms, queue.wall() + ms, queue.last_serial());
    run(queue, &Op::Clock(Stamp { now, wall, serial }));
}

/// Claims all that is ready, a page at a time.
fn claim_all(queue: &mut Queue) -> Vec<Delivery<'static>> {
    let mut deliveries = Vec::new();
    loop {
        let mut fx = Effects::default();
        queue.apply(&Op::Claim(Claim { worker: b"w1", count: 1_000, lease: None }), &mut fx).unwrap();
        if fx.claimed.is_empty() {
            return deliveries;
        }
        for slot in fx.claimed {
            let job = queue.job(slot).unwrap();
            deliveries.push(Delivery { id: Id::Serial(job.arrival()), token: job.token() });
        }
    }
}

/// However much a job has put out: a chunk more takes its own length, and a page at most.
#[test]
fn a_chunk_costs_its_length() {
    const MORE: usize = 200_000;
    let mut queue = Queue::new(Settings { max_output: 64 << 20, ..Settings::default() }, CLOCK);
    enqueue(&mut queue, 1_000, None);
    let large = vec![1; 1_000_000];
    let delivery = claim_all(&mut queue)[0];
    let before = (queue.memory(), live());
    for number in 0..20_000 {
        let chunk = if number < 60 { large.as_slice() } else { b"a token " };
        run(&mut queue, &Op::Emit { delivery, chunk });
    }
    for chunk in [&b"x"[..], b"", &large] {
        let (_, peak) = peak_of(|| run(&mut queue, &Op::Emit { delivery, chunk }));
        assert!(peak < chunk.len() + MORE, "{peak} bytes for {}", chunk.len());
    }
    let job = queue.job(queue.find(delivery.id).unwrap()).unwrap();
    assert_eq!(job.output(), (20_003, 61_000_000 + 8 * 19_940 + 1));
    let (_, peak) = peak_of(|| job.read(Start::Number(0), 1_000).chunks.len());
    assert!(peak < MORE, "{peak} bytes to read a page");
    // What is told is what is there; and it goes when the run does.
    let (told, is) = (queue.memory() - before.0, live() - before.1);
    assert!(told.abs_diff(is) < is / 20, "{told} bytes are told, {is} are there");
    run(&mut queue, &Op::Release { deliveries: vec![delivery] });
    assert!(live() < before.1 + MORE, "{} bytes are left", live() - before.1);
}

/// C50: results that nobody reads give their memory back, with no traffic but the timer's.
#[test]
fn memory_comes_back_when_results_expire() {
    let mut queue = Queue::new(Settings::default(), CLOCK);
    enqueue(&mut queue, 1_000, None);
    run(&mut queue, &Op::Purge { state: State::Ready, count: 1_000 });
    let (shown_before, live_before) = (queue.memory(), live());
    enqueue(&mut queue, 50_000, None);
    for delivery in claim_all(&mut queue) {
        run(&mut queue, &Op::Ack { delivery, result: Some(&[1; 200]), ttl: Some(Some(2_000)) });
    }
    let (shown_full, live_full) = (queue.memory(), live());
    assert!(live_full - live_before > 50_000 * 300, "{} bytes for 50,000 results", live_full - live_before);
    pass(&mut queue, 2_000);
    while queue.next_wakeup().is_some_and(|at| at <= queue.now()) {
        run(&mut queue, &Op::Sweep { limit: 1_000 });
    }
    assert_eq!((queue.count(State::Done), queue.next_wakeup()), (0, None));
    let (shown_after, live_after) = (queue.memory(), live());
    let slack = (live_full - live_before) / 20;
    assert!(live_after < live_before + slack, "live: {live_before}, full {live_full}, after {live_after}");
    let slack = (shown_full - shown_before) / 20;
    assert!(
        shown_after < shown_before + slack,
        "shown: {shown_before}, full {shown_full}, after {shown_after}"
    );
}

/// Few that stay of many that came do not keep the room of all.
#[test]
fn what_stays_of_a_crowd_takes_little() {
    for result in [None, Some(&[1; 10][..])] {
        let mut queue = Queue::new(Settings::default(), CLOCK);
        let before = live();
        enqueue(&mut queue, 50_000, None);
        let full = live() - before;
        for (number, delivery) in claim_all(&mut queue).into_iter().enumerate() {
            let ttl = if number % 250 == 0 { None } else { Some(0) };
            run(&mut queue, &Op::Ack { delivery, result, ttl: Some(ttl) });
        }
        assert_eq!(queue.count(State::Done), 200);
        let left = live() - before;
        assert!(left < full / 20, "{left} of {full} bytes left for 200 of 50,000");
        assert!(queue.memory() < full / 20, "{} bytes shown", queue.memory());
        queue.audit().unwrap();
    }
}

/// The same when the jobs that go in a call are of several sizes, and when those left lie in one chunk.
#[test]
fn what_stays_of_many_sizes_takes_little() {
    let settings = Settings { result_ttl: Some(0), ..Settings::default() };
    let mut queue = Queue::new(settings, CLOCK);
    let mut ids = [Vec::with_capacity(20_000), Vec::with_capacity(500)];
    let before = live();
    for number in 0..20_000 {
        let length = if number % 40 == 0 { 10 } else { 100 };
        let enqueue = Enqueue {
            payloads: Payloads::One(&[7; 100][..length]),
            id: None,
            unique: None,
            group: GroupName::default(),
            when: None,
            priority: 0,
            options: JobOptions::default(),
        };
        let Outcome::Enqueued { first, .. } = run(&mut queue, &Op::Enqueue(enqueue)) else {
            panic!("refused")
        };
        ids[usize::from(length == 10)].push(Id::Serial(first));
    }
    let full = live() - before;
    let [large, small] = ids;
    for (batch, last) in large.chunks(100).zip(small) {
        // All but one go, and one of the other size goes last.
        let ids = batch[1..].iter().copied().chain([last]).collect();
        run(&mut queue, &Op::Cancel { ids });
    }
    let left = live() - before;
    assert_eq!(queue.count(State::Ready), 195 + 305);
    assert!(left < full / 15, "{left} of {full} bytes left for 500 of 20,000");
    queue.audit().unwrap();
}

/// When most jobs go, those left are moved to where their room can be shared; by id and by key they are found all the same.
#[test]
fn jobs_that_are_moved_keep_their_names() {
    let mut queue = Queue::new(Settings { result_ttl: Some(0), ..Settings::default() }, CLOCK);
    let names: Vec<String> = (0..8_000).map(|number| format!("name {number}")).collect();
    let ask = |queue: &mut Queue, id: Option<usize>, key: usize| {
        let unique =
            Unique { key: names[key].as_bytes(), until: Until::Finished, window: None, debounce: false };
        let enqueue = Enqueue {
            payloads: Payloads::One(&[7; 100]),
            id: id.map(|id| (names[id].as_bytes(), IfExists::Refuse)),
            unique: Some(Box::new(unique)),
            group: GroupName::default(),
            when: None,
            priority: 0,
            options: JobOptions::default(),
        };
        run(queue, &Op::Enqueue(enqueue))
    };
    for number in 0..8_000 {
        ask(&mut queue, Some(number), number);
    }
    let slots = |queue: &Queue| {
        let left = (0..8_000).step_by(40);
        left.map(|number| queue.find(Id::Custom(names[number].as_bytes())).unwrap()).collect::<Vec<_>>()
    };
    let before = slots(&queue);
    for from in (0..8_000).step_by(1_000) {
        let ids = (from..from + 1_000).filter(|number| number % 40 > 0);
        let ids = ids.map(|number| Id::Custom(names[number].as_bytes())).collect();
        run(&mut queue, &Op::Cancel { ids });
    }
    let moved = slots(&queue).iter().zip(&before).filter(|(now, before)| now != before).count();
    assert!(moved > 100, "{moved} jobs were moved");
    for number in (0..8_000).step_by(40) {
        let id = names[number].as_bytes().into();
        assert_eq!(ask(&mut queue, None, number), Outcome::Duplicate { id, replaced: false });
    }
    assert!(matches!(ask(&mut queue, None, 1), Outcome::Enqueued { .. }));
    queue.audit().unwrap();
}

/// Each look at a key, each new one and each that goes takes as much with 100,000 as with few; what keys take is shown, and
/// comes back.
#[test]
fn a_hundred_thousand_keys() {
    const KEYS: u32 = 100_000;
    const EACH: usize = 20_000;
    let mut queue = Queue::new(Settings::default(), CLOCK);
    let with_key = |number: u32, debounce: bool| {
        let key = format!("a key of some length, number {number}").into_bytes();
        move |queue: &mut Queue| {
            let unique = Unique { key: &key, until: Until::Finished, window: None, debounce };
            let enqueue = Enqueue {
                payloads: Payloads::One(&[7; 100]),
                id: None,
                unique: Some(Box::new(unique)),
                group: GroupName::default(),
                when: None,
                priority: 0,
                options: JobOptions::default(),
            };
            run(queue, &Op::Enqueue(enqueue))
        }
    };
    // What a queue keeps that had jobs once.
    enqueue(&mut queue, 1_000, None);
    run(&mut queue, &Op::Purge { state: State::Ready, count: 1_000 });
    let before = live();
    let mut peaks = [0; 3];
    for number in 0..KEYS {
        let kinds = [(false, false), (true, false), (true, true)];
        for (peak, (is_there, debounce)) in peaks.iter_mut().zip(kinds) {
            // Few are looked at again, far from where the last one lies.
            if is_there && number % 64 > 0 {
                continue;
            }
            let call = with_key(if is_there { number / 2 } else { number }, debounce);
            let (outcome, most) = peak_of(|| call(&mut queue));
            let replaced = matches!(outcome, Outcome::Duplicate { replaced: true, .. });
            assert_eq!((matches!(outcome, Outcome::Enqueued { .. }), replaced), (!is_there, debounce));
            // Chunks of jobs and pages of the slabs are made whole.
            *peak = most.max(*peak);
        }
    }
    assert!(peaks[1] < 1_000 && peaks[0] < EACH * 5 && peaks[2] < EACH * 5, "{peaks:?} bytes at once");
    let (shown, used) = (queue.memory(), live() - before);
    assert!(shown > used * 7 / 10 && shown < used * 13 / 10, "{shown} shown, {used} used");
    // A payload of 100 bytes, a key of 38, and about 200 for having one.
    assert!(used < 400 * KEYS as usize, "{} bytes each", used / KEYS as usize);
    for _ in 0..KEYS / 1_000 {
        let (_, most) = peak_of(|| run(&mut queue, &Op::Purge { state: State::Ready, count: 1_000 }));
        assert!(most < EACH * 10, "{most} bytes at once");
    }
    assert_eq!(queue.count(State::Ready), 0);
    // A chunk is left, and a table.
    assert!(live() - before < 2 * EACH, "{} bytes left of {used}", live() - before);
    queue.audit().unwrap();
}

/// `MEMORY USAGE` and the statistics show this figure; operators plan by it.
#[test]
fn memory_that_is_shown_is_about_what_is_used() {
    for when in [None, Some(When::Delay(1_000)), Some(When::At(CLOCK.wall + 1_000))] {
        let before = live();
        let mut queue = Queue::new(Settings::default(), CLOCK);
        enqueue(&mut queue, 50_000, when);
        let (shown, used) = (queue.memory(), live() - before);
        assert!(shown > used * 7 / 10 && shown < used * 13 / 10, "{when:?}: {shown} shown, {used} used");
        if when.is_none() {
            claim_all(&mut queue);
            let (shown, used) = (queue.memory(), live() - before);
            assert!(shown > used * 6 / 10 && shown < used * 14 / 10, "active: {shown} shown, {used} used");
        }
    }
}

/// The same of workers that hold a job each.
#[test]
fn memory_that_is_shown_includes_workers() {
    const WORKERS: usize = 10_000;
    let mut queue = Queue::new(Settings::default(), CLOCK);
    enqueue(&mut queue, WORKERS, None);
    let before = (queue.memory(), live());
    for number in 0..WORKERS {
        let worker = format!("host-{number:05}-{}", "x".repeat(number % 50));
        run(&mut queue, &Op::Claim(Claim { worker: worker.as_bytes(), count: 1, lease: None }));
    }
    let (shown, used) = (queue.memory() - before.0, live() - before.1);
    assert!(shown > used * 7 / 10 && shown < used * 13 / 10, "{shown} shown, {used} used");
    assert!(used < 500 * WORKERS, "{} bytes each", used / WORKERS);
    queue.audit().unwrap();
}

/// C06, C29: however much is due in the same millisecond, a slice settles what it was told to.
#[test]
fn a_sweep_settles_no_more_than_its_limit() {
    let mut queue = Queue::new(Settings::default(), CLOCK);
    enqueue(&mut queue, 20_000, Some(When::Delay(1_000)));
    enqueue(&mut queue, 5_000, None);
    assert_eq!(claim_all(&mut queue).len(), 5_000);
    pass(&mut queue, 30_000);
    for slice in 1..=25 {
        assert_eq!(run(&mut queue, &Op::Sweep { limit: 1_000 }), Outcome::Swept(1_000));
        assert_eq!(queue.count(State::Ready), slice * 1_000);
        assert_eq!(queue.next_wakeup().is_some_and(|at| at <= queue.now()), slice < 25);
    }
    assert_eq!(run(&mut queue, &Op::Sweep { limit: 1_000 }), Outcome::Swept(0));
    queue.audit().unwrap();
}

/// The same of a claim that meets jobs past their deadline.
#[test]
fn a_claim_settles_no_more_than_a_slice() {
    let mut queue = Queue::new(Settings { keep_dead: None, ..Settings::default() }, CLOCK);
    let options = JobOptions { deadline: Some(1_000), ..JobOptions::default() };
    for _ in 0..3 {
        let payloads = Payloads::Many(vec![b"late"; 1_000]);
        let group = GroupName::default();
        run(
            &mut queue,
            &Op::Enqueue(Enqueue {
                payloads,
                id: None,
                unique: None,
                group,
                when: None,
                priority: 1,
                options,
            }),
        );
    }
    enqueue(&mut queue, 1_000, None);
    pass(&mut queue, 1_000);
    for claim in 1..=3 {
        let mut fx = Effects::default();
        queue.apply(&Op::Claim(Claim { worker: b"w1", count: 1_000, lease: None }), &mut fx).unwrap();
        assert_eq!((fx.claimed.len(), queue.count(State::Dead)), (0, claim * 1_000));
    }
    assert_eq!(claim_all(&mut queue).len(), 1_000);
}

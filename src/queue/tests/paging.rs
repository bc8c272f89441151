//! Listings while the queue changes: a job that is in a state all the while is listed exactly once.

use std::collections::{BTreeMap, BTreeSet};

use super::random::Random;
use crate::queue::{
    Claim, Delivery, Effects, Enqueue, Failure, Filter, GroupName, Id, JobOptions, Op, Payloads, Queue,
    Scope, Serial, Settings, Stamp, State, When,
};

const WORKERS: [&[u8]; 4] = [b"w1", b"w2", b"w3", b"w4"];
const GROUPS: [&[u8]; 3] = [b"", b"g", b"h"];

fn run(queue: &mut Queue, op: &Op<'_>) {
    queue.apply(op, &mut Effects::default()).unwrap();
}

/// One stay of a job in a state: which job, and what tells this stay from an earlier or later one.
type Stay = (Serial, Serial, Option<u64>);

fn stays(queue: &Queue, state: State) -> BTreeSet<Stay> {
    queue.list(state, None, None, usize::MAX).jobs.iter().map(|&slot| stay(queue, slot)).collect()
}

fn stay(queue: &Queue, slot: crate::queue::Slot) -> Stay {
    let job = queue.job(slot).unwrap();
    (job.arrival(), job.token(), job.due().or(job.ended()).or(job.since()))
}

/// Something happens. Nothing but time and its workers move a job.
fn change(queue: &mut Queue, random: &mut Random) {
    let pass = random.below(400);
    let clock = Stamp { now: queue.now() + pass, wall: queue.wall() + pass, serial: queue.last_serial() };
    run(queue, &Op::Clock(clock));
    let active: Vec<Delivery<'static>> = (queue.list(State::Active, None, None, usize::MAX).jobs.iter())
        .map(|&slot| queue.job(slot).unwrap())
        .map(|job| Delivery { id: Id::Serial(job.arrival()), token: job.token() })
        .collect();
    let delivery = if active.is_empty() { None } else { Some(*random.pick(&active)) };
    match (random.below(8), delivery) {
        (0, _) => {
            let payloads = Payloads::Many(vec![b"p"; 1 + random.index(4)]);
            let group = GroupName { tenant: b"", group: GROUPS[random.index(3)] };
            let when = random.one_in(2).then(|| When::Delay(random.below(3_000)));
            let priority = random.below(3) as u8;
            let options = JobOptions::default();
            run(
                queue,
                &Op::Enqueue(Enqueue { payloads, id: None, unique: None, group, when, priority, options }),
            );
        }
        (1, _) => {
            run(queue, &Op::Claim(Claim { worker: WORKERS[random.index(4)], count: 2, lease: None }));
        }
        (2, _) => run(queue, &Op::Sweep { limit: 3 }),
        (3 | 4, Some(_)) => {
            // Most leases end earlier or later than they would have.
            let lease = random.between(1, 60_000);
            let deliveries = active.iter().filter(|_| !random.one_in(4)).copied().collect();
            run(queue, &Op::Extend { worker: WORKERS[0], lease, deliveries });
        }
        (5, Some(delivery)) => run(queue, &Op::Ack { delivery, result: None, ttl: Some(Some(60_000)) }),
        (6, Some(delivery)) => {
            run(
                queue,
                &Op::Fail { delivery, error: None, how: *random.pick(&[Failure::Retry, Failure::Dead]) },
            );
        }
        (7, Some(delivery)) => run(queue, &Op::Release { deliveries: vec![delivery] }),
        _ => {}
    }
}

#[test]
fn what_stays_is_listed_once_whatever_happens_meanwhile() {
    let mut stayed = BTreeMap::<&str, usize>::new();
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let state = State::ALL[random.index(5)];
        let now = 1_700_000_000_000;
        let mut queue = Queue::new(Settings::default(), Stamp { now, wall: now, serial: Serial::NONE });
        for _ in 0..200 {
            change(&mut queue, &mut random);
        }
        let mut present = stays(&queue, state);
        let mut listed = BTreeMap::<Stay, usize>::new();
        let filter = Filter { state, worker: None, scope: Scope::Queue };
        let (mut after, count) = (None, 1 + random.index(4));
        loop {
            let page = queue.list_some(&filter, after, count);
            for slot in page.jobs {
                *listed.entry(stay(&queue, slot)).or_default() += 1;
            }
            after = page.next;
            if after.is_none() {
                break;
            }
            for _ in 0..3 {
                change(&mut queue, &mut random);
                let there = stays(&queue, state);
                present.retain(|stay| there.contains(stay));
            }
        }
        for stay in &present {
            assert_eq!(listed.get(stay), Some(&1), "seed {seed}: a {} job", state.name());
        }
        *stayed.entry(state.name()).or_default() += present.len();
    }
    for state in ["delayed", "ready", "active", "done", "dead"] {
        assert!(stayed.get(state).is_some_and(|&count| count > 50), "too few stayed: {stayed:?}");
    }
}

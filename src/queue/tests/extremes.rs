//! Whatever a queue is loaded from, hostile bytes included: after ordinary ops it can be saved and loaded again. A server
//! that accepts a key which its own saved file is later refused for would never start again.

use super::harness::{load, save};
use super::random::Random;
use crate::queue::snapshot::{Builder, Header};
use crate::queue::*;

const STAMP: Stamp = Stamp { now: 1_000_000, wall: 1_000_000, serial: Serial(1_000_000 << 20) };

/// The numbers of a header that ops count on from.
const FIELDS: [fn(&mut Header) -> &mut u64; 10] = [
    |header| &mut header.clock.now,
    |header| &mut header.clock.wall,
    |header| &mut header.clock.serial.0,
    |header| &mut header.totals.enqueued,
    |header| &mut header.totals.delivered,
    |header| &mut header.totals.removed,
    |header| &mut header.next_worker,
    |header| &mut header.next_birth,
    |header| &mut header.next_turn,
    |header| &mut header.pass_floor,
];

fn build(source: &Queue, header: Header) -> Option<Queue> {
    let mut builder = Builder::new(header).ok()?;
    for tenant in source.tenant_records() {
        builder.push_tenant(&tenant).ok()?;
    }
    for group in source.group_records() {
        builder.push_group(&group).ok()?;
    }
    for job in source.records() {
        builder.push(&job).ok()?;
    }
    builder.finish().ok()
}

/// Some of everything that moves counters on.
fn use_it(queue: &mut Queue, stamp: Stamp) {
    let workers: [&[u8]; 3] = [b"w1", b"w2", b"w3"];
    let mut fx = Effects::default();
    for round in 0..6usize {
        let group = GroupName { tenant: b"t", group: [b"a".as_slice(), b"b", b""][round % 3] };
        let enqueue = Enqueue {
            payloads: Payloads::One(b"x"),
            id: None,
            unique: None,
            group,
            when: None,
            priority: 0,
            options: JobOptions { attempts: Some(None), crashes: Some(None), ..JobOptions::default() },
        };
        let claim = Claim { worker: workers[round % 3], count: 1, lease: Some(10) };
        for op in [Op::Enqueue(enqueue), Op::Claim(claim)] {
            fx.clear();
            let _ = queue.apply_at(stamp, &op, &mut fx);
            queue.audit().unwrap();
        }
        for slot in fx.claimed.clone() {
            let Some(job) = queue.job(slot) else { continue };
            let delivery = Delivery { id: Id::Serial(job.arrival()), token: job.token() };
            let how = [Failure::Retry, Failure::Unavailable, Failure::Throttled(5)][round % 3];
            let _ = queue.apply_at(stamp, &Op::Fail { delivery, error: None, how }, &mut Effects::default());
            queue.audit().unwrap();
        }
    }
    let later = Stamp { now: stamp.now + 10_000, wall: stamp.wall + 10_000, serial: stamp.serial };
    let _ = queue.apply_at(later, &Op::Sweep { limit: 1_000 }, &mut fx);
    let _ = queue.apply_at(later, &Op::Purge { state: State::Ready, count: 1 }, &mut fx);
    queue.audit().unwrap();
}

#[test]
fn what_was_loaded_and_used_can_be_loaded_again() {
    let mut source = Queue::new(Settings::default(), STAMP);
    use_it(&mut source, STAMP);
    let mut random = Random::new(1);
    let edges = [0, 1, 2, 1 << 42, 1 << 43, 1 << 62, 1 << 63, Serial::LIMIT.0, u64::MAX];
    let mut accepted = 0;
    for round in 0..4_000 {
        let mut header = source.header();
        for _ in 0..1 + round % 3 {
            let field = FIELDS[random.index(FIELDS.len())];
            let edge = random.pick(&edges).wrapping_add(random.below(5)).wrapping_sub(2);
            *field(&mut header) = edge;
        }
        if random.one_in(2) {
            // The totals may be anything, as long as they agree.
            header.totals.enqueued = header.totals.removed.wrapping_add(header.jobs);
        }
        let Some(mut queue) = build(&source, header) else { continue };
        accepted += 1;
        use_it(&mut queue, STAMP);
        use_it(&mut queue, Stamp { now: u64::MAX / 2, wall: u64::MAX / 2, ..STAMP });
        let bytes = save(&queue);
        let loaded = load(&bytes).unwrap_or_else(|error| panic!("{error}: {:?}", queue.header()));
        assert!(save(&loaded) == bytes);
    }
    assert!(accepted > 400, "only {accepted} were accepted: this shows nothing");
}

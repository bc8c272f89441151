//! Clocks that step, and processes that stand still (C27): the server's clocks are set from outside, by a small library
//! that is preloaded into it. Durations are exact whatever the wall clock does; `AT` follows the wall clock.
//!
//! What must not happen early is checked to the millisecond, the server's own grain; what must happen at all may take a busy machine its time, but
//! nothing like the hour by which the clocks step.

use std::time::Instant;

use crate::common::*;
use crate::{args, cmd, send, tests};

/// Elsewhere nothing can be preloaded in this way.
#[cfg(target_os = "linux")]
pub const TESTS: &[Test] = tests![
    a_step_leaves_durations_alone,
    a_step_back_under_an_armed_timer_and_silence,
    instants_follow_a_step,
    limits_and_backoffs_go_on_over_a_step,
    ids_and_shown_instants_over_a_step,
    waits_last_as_long_as_they_were_to_over_a_step,
    a_restart_after_a_step,
    promotion_of_a_replica_whose_clock_is_wrong,
    a_suspended_machine,
    a_process_that_stood_still,
];
#[cfg(not(target_os = "linux"))]
pub const TESTS: &[Test] = &[];

const HOUR: i64 = 3_600_000;

/// Within this time a thing happens that is due, ms; generous, and far from an hour.
const SOON: u64 = 8_000;

fn a_step_leaves_durations_alone(lab: &Lab) {
    for step in [HOUR, -HOUR] {
        let clock = lab.clock();
        let server = lab.server_by(&clock, &[]);
        let mut c = server.client();
        let start = Instant::now();
        cmd!(c, "RQ.ENQUEUE", "lease", "x", "LEASE", 1500);
        claim(&mut c, "lease", "w");
        cmd!(c, "RQ.ENQUEUE", "delay", "x", "DELAY", 1500);
        enqueue(&mut c, "result", "x");
        let job = claim(&mut c, "result", "w");
        cmd!(c, "RQ.ACK", "result", job.id, job.token, "RESULT", "r", "TTL", 1500);
        cmd!(c, "RQ.ENQUEUE", "deadline", "x", "DEADLINE", 1500);
        cmd!(c, "RQ.PAUSE", "pause", "FOR", 1500);
        cmd!(c, "RQ.ENQUEUE", "kept", "x", "LEASE", 2 * HOUR);
        claim(&mut c, "kept", "w");
        let mut waiters: Vec<Client> =
            ["lease", "delay"].iter().map(|queue| waiting_claim(&server, queue, "waits", 0)).collect();
        let all = |c: &mut Client| {
            [
                counts(c, "lease").active == 1
                    && cmd!(c, "RQ.STATS", "lease").get("totals").get("lapsed").int() == 1,
                counts(c, "delay").delayed == 0,
                counts(c, "result").done == 0,
                counts(c, "deadline").dead == 1,
                cmd!(c, "RQ.STATS", "pause").get("paused").int() == 0,
            ]
        };
        let mut done = [false; 5];
        clock.set_wall(step);
        let stepped = Instant::now();
        until("everything happens", || {
            let now = all(&mut c);
            for (before, after) in done.iter().zip(now) {
                assert!(*before || !after || start.elapsed() >= ms(1499), "{step}: early: {now:?}");
            }
            done = now;
            done == [true; 5]
        });
        assert!(stepped.elapsed() < ms(SOON), "{step}: {:?}", stepped.elapsed());
        for waiter in &mut waiters {
            assert_eq!(jobs(&waiter.read()).len(), 1);
        }
        assert_eq!(counts(&mut c, "kept").active, 1, "no other lease lapsed");
    }
}

/// The server keeps its timers by the wall clock: set back, they would ring an hour late. Nobody asks anything meanwhile.
fn a_step_back_under_an_armed_timer_and_silence(lab: &Lab) {
    let clock = lab.clock();
    let server = lab.server_by(&clock, &[]);
    for delay in [20, 100, 400] {
        // Back under one timer, and forward under the next.
        for wall in [-HOUR, 0] {
            let mut waiter = waiting_claim(&server, "q", "w", 0);
            let start = Instant::now();
            cmd!(server.client(), "RQ.ENQUEUE", "q", "x", "DELAY", delay);
            clock.set_wall(wall);
            assert_eq!(jobs(&waiter.read()).len(), 1);
            let took = start.elapsed();
            // The server's clocks tick in whole ms: the last part of one may be missing.
            assert!(took > ms(delay - 1) && took < ms(SOON), "{wall}, {delay}: {took:?}");
        }
    }
}

fn instants_follow_a_step(lab: &Lab) {
    let clock = lab.clock();
    let server = lab.server_by(&clock, &[]);
    let mut c = server.client();
    let at = clock.unix_ms() + HOUR as u64 / 2;
    let id = cmd!(c, "RQ.ENQUEUE", "q", "at", "AT", at).text();
    cmd!(c, "RQ.ENQUEUE", "q", "delay", "DELAY", HOUR / 2);
    let mut waiter = waiting_claim(&server, "q", "w", 0);
    assert_eq!(job(&mut c, "q", &id).expect("it exists")["due"].int(), at as i64);
    clock.set_wall(HOUR);
    assert_eq!(jobs(&waiter.read())[0].text(), "at", "its instant has passed");
    assert_eq!(counts(&mut c, "q").delayed, 1, "the delay goes on");
    // Back: what is for an instant in a second is for one in an hour and a second.
    let at = clock.unix_ms() + 1000;
    let id = cmd!(c, "RQ.ENQUEUE", "q", "again", "AT", at).text();
    let mut waiter = waiting_claim(&server, "q", "w", 0);
    clock.set_wall(0);
    holds("it waits for its instant", ms(1500), || {
        !waiter.is_answered() && job(&mut c, "q", &id).expect("it exists")["due"].int() == at as i64
    });
    clock.set_wall(HOUR);
    assert_eq!(jobs(&waiter.read())[0].text(), "again");
    assert!(clock.unix_ms() >= at);
}

fn limits_and_backoffs_go_on_over_a_step(lab: &Lab) {
    for step in [HOUR, -HOUR] {
        let clock = lab.clock();
        let server = lab.server_by(&clock, &[]);
        let mut c = server.client();
        cmd!(c, "RQ.QUEUE.SET", "rate", "RATE", 1, 1000);
        cmd!(c, "RQ.MENQUEUE", "rate", "JOBS", 2, "a", "b");
        cmd!(c, "RQ.ENQUEUE", "retry", "x", "BACKOFF", 1000, 1000);
        cmd!(c, "RQ.QUEUE.SET", "down", "GROUP-BACKOFF", 1000, 1000);
        cmd!(c, "RQ.MENQUEUE", "down", "GROUP", "g", "JOBS", 2, "a", "b");
        cmd!(c, "RQ.MENQUEUE", "throttled", "GROUP", "g", "JOBS", 2, "a", "b");
        let start = Instant::now();
        claim(&mut c, "rate", "w");
        for (queue, how) in
            [("retry", &[][..]), ("down", &["UNAVAILABLE"]), ("throttled", &["THROTTLED", "1000"])]
        {
            let job = claim(&mut c, queue, "w");
            let mut call = args!["RQ.FAIL", queue, job.id, job.token];
            call.extend(how.iter().map(|word| word.as_bytes().to_vec()));
            c.run(call);
        }
        clock.set_wall(step);
        for (queue, least) in [("rate", 899), ("throttled", 999), ("retry", 749), ("down", 749)] {
            // Whoever waits is woken. A back-off is shortened by up to a quarter, a rate counts a late claim as earlier by
            // up to a tenth.
            let mut waiter = waiting_claim(&server, queue, "w2", 0);
            assert_eq!(jobs(&waiter.read()).len(), 1, "{queue}");
            assert!(start.elapsed() >= ms(least), "{step} {queue}: {:?}", start.elapsed());
        }
        assert!(start.elapsed() < ms(SOON), "{step}: {:?}", start.elapsed());
    }
}

fn ids_and_shown_instants_over_a_step(lab: &Lab) {
    let clock = lab.clock();
    let server = lab.server_by(&clock, &[]);
    let mut c = server.client();
    let number = |id: &str| {
        let (millis, seq) = id.split_once('-').expect("an id");
        (millis.parse::<u64>().unwrap(), seq.parse::<u64>().unwrap())
    };
    let mut last = (0, 0);
    for step in [0, HOUR, -HOUR, 0, -HOUR] {
        clock.set_wall(step);
        for queue in ["q", &format!("new{step}")] {
            let id = number(&enqueue(&mut c, queue, "x"));
            assert!(id > last, "ids only grow: {id:?} after {last:?}");
            let token = number(&claim_for(&mut c, queue, "w", 3_600_000).token);
            assert!(token > id);
            last = token;
        }
        let wall = clock.unix_ms() as i64;
        let stats = cmd!(c, "RQ.STATS", "q");
        assert!(
            stats
                .find("oldest-ready-age")
                .is_none_or(|age| age.is_nil() || (0..SOON as i64).contains(&age.int()))
        );
        let worker = workers(&mut c, "q").remove(0);
        assert!((worker.get("last-seen").int() - wall).abs() < SOON as i64, "{step}: {worker:?}");
        let page = cmd!(c, "RQ.LIST", "q", "active", "COUNT", 1000);
        for job in page.list()[1].list() {
            let facts = cmd!(c, "RQ.JOB", "q", job.get("id").text());
            // The hour of its lease, as the wall clock shows it now.
            let left = facts.get("lease-until").int() - wall;
            assert!(left > HOUR - 3 * SOON as i64 && left <= HOUR + 5, "{step}: {left}");
        }
    }
}

fn waits_last_as_long_as_they_were_to_over_a_step(lab: &Lab) {
    for step in [HOUR, -HOUR] {
        let clock = lab.clock();
        let server = lab.server_by(&clock, &[]);
        let mut c = server.client();
        cmd!(c, "RQ.ENQUEUE", "r", "x", "ID", "j");
        let start = Instant::now();
        let mut claim = waiting_claim(&server, "q", "w", 700);
        let mut result = server.client();
        send!(result, "RQ.RESULT", "r", "j", "BLOCK", 700);
        until_blocked(&server, 2);
        clock.set_wall(step);
        assert!(claim.read().is_nil() && result.read().is_nil());
        assert!(start.elapsed() >= ms(700) && start.elapsed() < ms(SOON), "{step}: {:?}", start.elapsed());
    }
}

/// While nobody ran, durations went on by the wall clock; but never back.
fn a_restart_after_a_step(lab: &Lab) {
    for step in [HOUR, -HOUR] {
        let clock = lab.clock();
        let mut server = lab.server_by(&clock, &[("appendonly", "yes"), ("appendfsync", "always")]);
        let mut c = server.client();
        cmd!(c, "RQ.ENQUEUE", "q", "delay", "DELAY", 1500);
        cmd!(c, "RQ.ENQUEUE", "q", "lease", "LEASE", 1500);
        let held = claim(&mut c, "q", "w");
        cmd!(c, "RQ.ENQUEUE", "at", "x", "AT", clock.unix_ms() + HOUR as u64 / 2);
        cmd!(c, "RQ.ENQUEUE", "long", "x", "DELAY", HOUR * 2);
        server.kill9();
        clock.set_wall(step);
        let start = Instant::now();
        server.restart();
        let mut c = server.client();
        if step < 0 {
            // As if no time had passed; so it is not early.
            until_counts(&mut c, "q", Counts { ready: 2, ..Counts::default() });
            assert!(start.elapsed() >= ms(1300), "{:?}", start.elapsed());
            assert_eq!(counts(&mut c, "at").delayed, 1);
        } else {
            // As if the server had been down for an hour.
            until_counts(&mut c, "q", Counts { ready: 2, ..Counts::default() });
            until_counts(&mut c, "at", Counts { ready: 1, ..Counts::default() });
        }
        assert!(start.elapsed() < ms(SOON), "{step}: {:?}", start.elapsed());
        assert_eq!(counts(&mut c, "long").delayed, 1);
        assert!(enqueue(&mut c, "new", "x") > held.token, "ids stay above what was loaded");
    }
}

/// C59: leases neither all lapse nor freeze.
fn promotion_of_a_replica_whose_clock_is_wrong(lab: &Lab) {
    for wrong in [HOUR, -HOUR] {
        let clock = lab.clock();
        let mut primary = lab.server();
        let source = format!("127.0.0.1 {}", primary.port);
        let replica = lab.server_by(&clock, &[("replicaof", &source)]);
        clock.set_wall(wrong);
        primary.wait_for_sync(&replica);
        let mut c = primary.client();
        let start = Instant::now();
        cmd!(c, "RQ.ENQUEUE", "q", "lease", "LEASE", 2000);
        let held = claim(&mut c, "q", "w");
        cmd!(c, "RQ.ENQUEUE", "q", "delay", "DELAY", 2000);
        cmd!(c, "RQ.ENQUEUE", "kept", "x", "LEASE", HOUR / 2);
        claim(&mut c, "kept", "w");
        primary.wait_for_sync(&replica);
        let digest = primary.digest("q");
        primary.kill9();
        let mut r = replica.client();
        cmd!(r, "REPLICAOF", "NO", "ONE");
        assert_eq!(replica.digest("q"), digest, "a promotion alone changes nothing");
        assert!(start.elapsed() < ms(1900), "the machine is too slow for this test");
        until_counts(&mut r, "q", Counts { ready: 2, ..Counts::default() });
        assert!(start.elapsed() >= ms(1999), "{wrong}: {:?}", start.elapsed());
        assert!(start.elapsed() < ms(SOON), "{wrong}: {:?}", start.elapsed());
        assert_eq!(counts(&mut r, "kept").active, 1);
        assert!(enqueue(&mut r, "q", "x") > held.token, "ids go on growing");
        // Tokens may run ahead of the clock now; what was claimed before an instant is not told by them.
        enqueue(&mut r, "before", "x");
        claim_for(&mut r, "before", "w", 3_600_000);
        let recover = |r: &mut Client, before: u64| {
            cmd!(r, "RQ.RECOVER", "before", "WORKERS", 1, "w", "BEFORE", before, "UNCOUNTED").list()[0].int()
        };
        assert_eq!(recover(&mut r, clock.unix_ms() - SOON), 0);
        assert_eq!(recover(&mut r, clock.unix_ms() + 2), 1);
    }
}

/// The time of a suspend counts: who held a lease before it has lost it.
fn a_suspended_machine(lab: &Lab) {
    let clock = lab.clock();
    let server = lab.server_by(&clock, &[]);
    let mut c = server.client();
    cmd!(c, "RQ.ENQUEUE", "q", "delay", "DELAY", HOUR / 2);
    cmd!(c, "RQ.ENQUEUE", "q", "lease", "LEASE", HOUR / 2);
    claim(&mut c, "q", "w");
    cmd!(c, "RQ.ENQUEUE", "long", "x", "DELAY", 2 * HOUR);
    let mut waiter = waiting_claim(&server, "nothing", "w", HOUR as u64 / 2);
    clock.suspend(HOUR);
    until_counts(&mut c, "q", Counts { ready: 2, ..Counts::default() });
    assert!(waiter.read().is_nil());
    assert_eq!(counts(&mut c, "long").delayed, 1);
}

/// SIGSTOP: everything that came due meanwhile happens afterwards, once.
fn a_process_that_stood_still(lab: &Lab) {
    let server = lab.server_with(&[("appendonly", "yes")]);
    let replica = lab.replica_with(&server, &[("repl-timeout", "3600")]);
    cmd!(server.client(), "CONFIG", "SET", "repl-timeout", 3600);
    let mut c = server.client();
    cmd!(c, "RQ.QUEUE.SET", "q", "LEASE", 300, "CRASHES", 1);
    for number in 0..100 {
        cmd!(c, "RQ.ENQUEUE", "q", number, "DELAY", 400 + number * 5);
    }
    cmd!(c, "RQ.ENQUEUE", "q", "held");
    let held = claim(&mut c, "q", "w");
    let mut waiters: Vec<Client> = (0..20)
        .map(|number| waiting_claim_with(&server, "q", &format!("w{number}"), 0, &["LEASE", "600000"]))
        .collect();
    let mut short = waiting_claim(&server, "nothing", "w", 500);
    let mut late = server.client();
    server.signal("STOP");
    // The worker asks while nobody answers: its lease is over by then, but the server cannot have told anybody else.
    send!(late, "RQ.EXTEND", "q", "w", "LEASE", 600_000, held.id, held.token);
    std::thread::sleep(ms(if soak() { 60_000 } else { 1500 }));
    server.signal("CONT");
    let answer = late.read().texts().remove(0);
    assert!(["ok", "lost"].contains(&answer.as_str()), "{answer}");
    assert!(short.read().is_nil());
    let mut seen = std::collections::BTreeSet::new();
    for waiter in &mut waiters {
        let job = jobs(&waiter.read()).remove(0);
        assert!(seen.insert(job.text()), "{} was handed out twice", job.text());
    }
    until("all came due", || counts(&mut c, "q").delayed == 0);
    let held_still = i64::from(answer == "ok");
    assert_eq!(
        counts(&mut c, "q"),
        Counts { active: 20 + held_still, ready: 81 - held_still, ..Counts::default() }
    );
    server.wait_for_sync(&replica);
    assert_eq!(server.digest("q"), replica.digest("q"));
}

//! `RQ.RESULT`: values, waiting for them, and how long they stay.

use std::time::Instant;

use crate::common::*;
use crate::{args, cmd, refused, send, tests};

pub const TESTS: &[Test] = tests![
    each_state_has_its_value,
    waiting_for_done,
    waiting_for_dead_and_cancelled,
    a_job_removed_at_once_answers_its_waiters,
    a_waiter_never_hangs,
    many_wait_for_one,
    a_time_out_tells_the_state,
    waiting_ends_with_a_kill_or_an_unblock,
    results_expire_by_themselves,
    keepdone_bounds_by_count,
    keepdead_bounds_by_count,
    deadttl_decides_for_dead_jobs,
    memory_comes_back,
];

/// `[state, value, ttl]`.
#[track_caller]
fn parts(reply: &Reply) -> (String, Option<String>, i64) {
    let fields = reply.list();
    (fields[0].text(), (!fields[1].is_nil()).then(|| fields[1].text()), fields[2].int())
}

fn each_state_has_its_value(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    assert!(cmd!(c, "RQ.RESULT", "q", "j").is_nil());
    cmd!(c, "RQ.ENQUEUE", "q", "x", "ID", "j", "DELAY", 3_600_000, "ATTEMPTS", 2);
    assert_eq!(parts(&cmd!(c, "RQ.RESULT", "q", "j")), ("delayed".into(), None, -1));
    cmd!(c, "RQ.RESCHEDULE", "q", "j", "DELAY", 0);
    assert_eq!(parts(&cmd!(c, "RQ.RESULT", "q", "j")), ("ready".into(), None, -1));
    let job = claim(&mut c, "q", "w");
    assert_eq!(parts(&cmd!(c, "RQ.RESULT", "q", "j")), ("active".into(), None, -1));
    cmd!(c, "RQ.PROGRESS", "q", "j", job.token, "half");
    assert_eq!(parts(&cmd!(c, "RQ.RESULT", "q", "j")), ("active".into(), Some("half".into()), -1));
    cmd!(c, "RQ.ACK", "q", "j", job.token, "RESULT", "42", "TTL", 60_000);
    let (state, value, ttl) = parts(&cmd!(c, "RQ.RESULT", "q", "j"));
    assert_eq!((state.as_str(), value.as_deref()), ("done", Some("42")));
    assert!(ttl > 50_000 && ttl <= 60_000, "{ttl}");
    // Done without a result.
    let id = cmd!(c, "RQ.ENQUEUE", "q", "x", "TTL", 60_000).text();
    let job = claim(&mut c, "q", "w");
    ack(&mut c, "q", &job);
    assert_eq!(parts(&cmd!(c, "RQ.RESULT", "q", id)).1, None);
    // An empty result is a result.
    let id = cmd!(c, "RQ.ENQUEUE", "q", "x").text();
    let job = claim(&mut c, "q", "w");
    cmd!(c, "RQ.ACK", "q", id, job.token, "RESULT", "");
    assert_eq!(parts(&cmd!(c, "RQ.RESULT", "q", id)).1, Some(String::new()));
}

fn waiting_for_done(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    for mut waiter in [server.client(), server.client3()] {
        let id = enqueue(&mut c, "q", "x");
        send!(waiter, "RQ.RESULT", "q", id, "BLOCK", 0);
        until_blocked(&server, 1);
        let job = claim(&mut c, "q", "w");
        cmd!(c, "RQ.PROGRESS", "q", id, job.token, "half");
        assert!(waiter.read_within(ms(50)).is_none(), "progress is not the end");
        cmd!(c, "RQ.ACK", "q", id, job.token, "RESULT", "r");
        let (state, value, ttl) = parts(&waiter.read());
        assert_eq!((state.as_str(), value.as_deref()), ("done", Some("r")));
        assert!(ttl > 3_590_000);
        // What is final needs no wait.
        assert_eq!(parts(&cmd!(waiter, "RQ.RESULT", "q", id, "BLOCK", 0)).0, "done");
    }
}

fn waiting_for_dead_and_cancelled(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let mut waiter = server.client();
    let id = cmd!(c, "RQ.ENQUEUE", "q", "x", "CRASHES", 0, "LEASE", 100).text();
    send!(waiter, "RQ.RESULT", "q", id, "BLOCK", 0);
    until_blocked(&server, 1);
    claim(&mut c, "q", "w");
    assert_eq!(parts(&waiter.read()).0, "dead", "by a lapse that nobody asked about");
    let id = enqueue(&mut c, "q", "x");
    send!(waiter, "RQ.RESULT", "q", id, "BLOCK", 0);
    until_blocked(&server, 1);
    let job = claim(&mut c, "q", "w");
    cmd!(c, "RQ.FAIL", "q", id, job.token, "DEAD", "ERROR", "why");
    assert_eq!(parts(&waiter.read()), ("dead".into(), Some("why".into()), 2_592_000_000));
    let id = enqueue(&mut c, "q", "x");
    send!(waiter, "RQ.RESULT", "q", id, "BLOCK", 0);
    until_blocked(&server, 1);
    cmd!(c, "RQ.CANCEL", "q", id);
    let (state, value, _) = parts(&waiter.read());
    assert_eq!((state.as_str(), value), ("cancelled", None));
}

fn a_job_removed_at_once_answers_its_waiters(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let mut waiter = server.client();
    let id = enqueue(&mut c, "q", "x");
    send!(waiter, "RQ.RESULT", "q", id, "BLOCK", 0);
    until_blocked(&server, 1);
    let job = claim(&mut c, "q", "w");
    cmd!(c, "RQ.ACK", "q", id, job.token, "RESULT", "r", "TTL", 0);
    assert_eq!(parts(&waiter.read()), ("done".into(), Some("r".into()), 0));
    assert!(cmd!(c, "RQ.RESULT", "q", id, "BLOCK", 0).is_nil(), "gone: no wait");
}

fn a_waiter_never_hangs(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    assert!(cmd!(c, "RQ.RESULT", "none", "j", "BLOCK", 0).is_nil());
    for how in VANISHINGS {
        cmd!(c, "FLUSHALL");
        let id = enqueue(&mut c, "q", "x");
        let mut waiter = server.client();
        send!(waiter, "RQ.RESULT", "q", id, "BLOCK", 0);
        until_blocked(&server, 1);
        vanish(&mut c, how);
        let start = Instant::now();
        let reply = waiter.read();
        assert!(reply.is_nil() || matches!(reply, Reply::Error(_)), "{how}: {reply:?}");
        assert!(start.elapsed() < ms(5000), "{how} took {:?}", start.elapsed());
    }
}

fn many_wait_for_one(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let id = enqueue(&mut c, "q", "x");
    let other = enqueue(&mut c, "q", "y");
    let mut waiters: Vec<Client> = (0..20).map(|_| server.client()).collect();
    for waiter in &mut waiters {
        send!(waiter, "RQ.RESULT", "q", id, "BLOCK", 0);
    }
    let mut patient = server.client();
    send!(patient, "RQ.RESULT", "q", other, "BLOCK", 0);
    until_blocked(&server, 21);
    let job = claim(&mut c, "q", "w");
    cmd!(c, "RQ.ACK", "q", id, job.token, "RESULT", "r");
    for waiter in &mut waiters {
        assert_eq!(parts(&waiter.read()).1.as_deref(), Some("r"));
    }
    assert!(patient.read_within(ms(20)).is_none());
}

fn a_time_out_tells_the_state(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let id = enqueue(&mut c, "q", "x");
    let start = Instant::now();
    let reply = cmd!(c, "RQ.RESULT", "q", id, "BLOCK", 200);
    assert!(start.elapsed() >= ms(199) && start.elapsed() < ms(1000), "{:?}", start.elapsed());
    assert!(reply.is_nil() || parts(&reply) == ("ready".into(), None, -1), "{reply:?}");
    assert_eq!(refused!(c, "RQ.RESULT", "q", id, "BLOCK", "-1"), "ERR");
    assert_eq!(refused!(c, "RQ.RESULT", "q", id, "BLOCK"), "ERR");
}

fn waiting_ends_with_a_kill_or_an_unblock(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let job_id = enqueue(&mut c, "q", "x");
    for how in ["TIMEOUT", "ERROR", "KILL", "DISCONNECT"] {
        let mut waiter = server.client();
        let id = waiter.id();
        send!(waiter, "RQ.RESULT", "q", job_id, "BLOCK", 0);
        until_blocked(&server, 1);
        match how {
            "KILL" => {
                cmd!(c, "CLIENT", "KILL", "ID", id);
            }
            "DISCONNECT" => drop(waiter),
            _ => {
                cmd!(c, "CLIENT", "UNBLOCK", id, how);
                let reply = waiter.read();
                assert_eq!(matches!(reply, Reply::Error(_)), how == "ERROR", "{reply:?}");
                assert_eq!(cmd!(waiter, "PING").text(), "PONG");
            }
        }
        until_blocked(&server, 0);
    }
    // Gone between the end of the job and the reply that tells it.
    let mut waiter = server.client();
    let id = waiter.id();
    send!(waiter, "RQ.RESULT", "q", job_id, "BLOCK", 0);
    until_blocked(&server, 1);
    let job = claim(&mut c, "q", "w");
    let calls = [args!["RQ.ACK", "q", job.id, job.token, "RESULT", "r"], args!["CLIENT", "KILL", "ID", id]];
    c.send_bytes(&calls.iter().flat_map(|call| encode(call)).collect::<Vec<u8>>());
    assert_eq!(c.read().int(), 1);
    c.read();
    assert_eq!(state(&mut c, "q", &job_id), "done");
}

fn results_expire_by_themselves(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let id = enqueue(&mut c, "q", "x");
    let job = claim(&mut c, "q", "w");
    let start = Instant::now();
    cmd!(c, "RQ.ACK", "q", id, job.token, "RESULT", "r", "TTL", 300);
    while !cmd!(c, "RQ.RESULT", "q", id).is_nil() {
        assert!(start.elapsed() < ms(3000), "it never went");
    }
    assert!(start.elapsed() >= ms(299), "{:?}", start.elapsed());
    assert_eq!(counts(&mut c, "q"), Counts::default());
}

fn keepdone_bounds_by_count(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    cmd!(c, "RQ.QUEUE.SET", "q", "KEEPDONE", 3);
    let mut ids = Vec::new();
    for number in 0..6 {
        ids.push(enqueue(&mut c, "q", number));
        if number == 5 {
            // Cancelled jobs count too.
            cmd!(c, "RQ.CANCEL", "q", ids[5]);
        } else {
            let job = claim(&mut c, "q", "w");
            cmd!(c, "RQ.ACK", "q", job.id, job.token, "RESULT", number);
        }
    }
    assert_eq!(counts(&mut c, "q"), Counts { done: 2, cancelled: 1, ..Counts::default() });
    assert!(cmd!(c, "RQ.RESULT", "q", ids[2]).is_nil(), "the oldest goes first");
    assert_eq!(parts(&cmd!(c, "RQ.RESULT", "q", ids[3])).1.as_deref(), Some("3"));
    cmd!(c, "RQ.QUEUE.SET", "q", "KEEPDONE", 0);
    until("none is kept", || counts(&mut c, "q") == Counts::default());
}

fn keepdead_bounds_by_count(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    cmd!(c, "RQ.QUEUE.SET", "q", "KEEPDEAD", 2);
    for number in 0..5 {
        enqueue(&mut c, "q", number);
        let job = claim(&mut c, "q", "w");
        assert_eq!(cmd!(c, "RQ.FAIL", "q", job.id, job.token, "DEAD").text(), "dead");
    }
    assert_eq!(counts(&mut c, "q"), Counts { dead: 2, ..Counts::default() });
    let list = cmd!(c, "RQ.LIST", "q", "dead");
    assert_eq!(list.list()[1].list().len(), 2);
}

fn deadttl_decides_for_dead_jobs(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    cmd!(c, "RQ.QUEUE.SET", "q", "DEADTTL", 200);
    cmd!(c, "RQ.ENQUEUE", "q", "x", "TTL", 3_600_000);
    let job = claim(&mut c, "q", "w");
    assert_eq!(cmd!(c, "RQ.FAIL", "q", job.id, job.token, "DEAD").text(), "dead");
    assert_eq!(counts(&mut c, "q").dead, 1);
    until("the dead job is gone", || counts(&mut c, "q") == Counts::default());
}

/// C50, in small: nobody reads, nothing is sent, and the memory is free again; the keyspace stays one key.
fn memory_comes_back(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    cmd!(c, "RQ.QUEUE.SET", "q", "RESULTTTL", 500);
    let before = server.info_number("used_memory");
    let mut peak = before;
    let mut jobs_left = 5000;
    while jobs_left > 0 {
        let mut args = crate::args!["RQ.MENQUEUE", "q", "JOBS", 1000];
        args.extend((0..1000).map(|_| vec![b'x'; 100]));
        c.run(args);
        for job in jobs(&cmd!(c, "RQ.CLAIM", "q", "w", "COUNT", 1000)) {
            send!(c, "RQ.ACK", "q", job.id, job.token, "RESULT", vec![b'r'; 1000]);
        }
        for _ in 0..1000 {
            assert_eq!(c.read().int(), 1);
        }
        jobs_left -= 1000;
        peak = peak.max(server.info_number("used_memory"));
    }
    drop(c);
    // On a busy machine the first are gone before the last are there.
    assert!(peak > before + 1_000_000, "there was something to give back: {before} then {peak}");
    let allowed = before + (peak - before) / 20;
    until("all but 5 % of the memory is free again", || server.info_number("used_memory") < allowed);
    let mut c = server.client();
    until_counts(&mut c, "q", Counts::default());
    assert_eq!(cmd!(c, "DBSIZE").int(), 1);
}

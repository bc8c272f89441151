//! Primary and replica hold the same queue, and a promoted replica goes on where the primary stopped.

use crate::common::*;
use crate::{args, cmd, refused, send, tests};

use super::persistence::{assert_same, digests, furnish, shown};

pub const TESTS: &[Test] = tests![
    a_replica_has_the_same_from_the_start,
    a_replica_has_the_same_by_the_stream,
    a_replica_decides_nothing,
    a_replica_of_a_replica,
    a_replicas_own_aof,
    waiting_claims_are_replicated_as_what_they_got,
    multi_and_scripts_are_replicated,
    reads_work_on_a_replica_and_writes_do_not,
    waiting_for_a_result_on_a_replica,
    promotion,
    promotion_and_back,
    failover_with_due_timers,
    shutdown_with_a_lagging_replica,
    settings_are_the_primarys,
    mixed_load_leaves_no_difference,
    wait_means_what_it_means,
    partial_resynchronisation,
    commands_are_propagated_as_they_were_sent,
];

fn a_replica_has_the_same_from_the_start(lab: &Lab) {
    let primary = lab.server();
    furnish(&mut primary.client());
    for load in ["on-empty-db", "disabled", "swapdb"] {
        let replica = lab.replica_with(&primary, &[("repl-diskless-load", load)]);
        assert_eq!(digests(&replica), digests(&primary));
        assert_same("on the replica", &shown(&mut primary.client()), &shown(&mut replica.client()));
    }
}

fn a_replica_has_the_same_by_the_stream(lab: &Lab) {
    let primary = lab.server();
    let replica = lab.replica_of(&primary);
    furnish(&mut primary.client());
    primary.wait_for_sync(&replica);
    assert_eq!(digests(&replica), digests(&primary));
    assert_same("on the replica", &shown(&mut primary.client()), &shown(&mut replica.client()));
}

fn a_replica_decides_nothing(lab: &Lab) {
    let primary = lab.server();
    let replica = lab.replica_of(&primary);
    let (mut c, mut r) = (primary.client(), replica.client());
    let still = Counts { delayed: 1, active: 1, ..Counts::default() };
    // Again with more time, if on a busy machine it comes due before the primary could be stopped.
    let mut time = 500;
    let queue = eventually("the primary is stopped in time", || {
        time *= 2;
        let queue = format!("q{time}");
        cmd!(c, "RQ.ENQUEUE", queue, "x", "DELAY", time);
        cmd!(c, "RQ.ENQUEUE", queue, "y", "LEASE", time);
        claim(&mut c, &queue, "w");
        primary.wait_for_sync(&replica);
        primary.signal("STOP");
        if counts(&mut replica.client(), &queue) == still {
            return Some(queue);
        }
        primary.signal("CONT");
        None
    });
    holds("nothing happens on the replica", ms(time + 300), || counts(&mut r, &queue) == still);
    primary.signal("CONT");
    until_counts(&mut r, &queue, Counts { ready: 2, ..Counts::default() });
    assert_eq!(primary.digest(&queue), replica.digest(&queue));
}

fn a_replica_of_a_replica(lab: &Lab) {
    let primary = lab.server();
    let middle = lab.replica_of(&primary);
    let last = lab.replica_of(&middle);
    furnish(&mut primary.client());
    primary.wait_for_sync(&middle);
    middle.wait_for_sync(&last);
    assert_eq!(digests(&last), digests(&primary));
}

fn a_replicas_own_aof(lab: &Lab) {
    let primary = lab.server();
    let mut replica = lab.replica_with(
        &primary,
        &[("appendonly", "yes"), ("appendfsync", "always"), ("aof-use-rdb-preamble", "no")],
    );
    // After the full copy it writes its file anew, and is only then safe against a crash.
    until("its own file is written", || {
        replica.info("aof_rewrite_in_progress") == "0" && replica.info("aof_rewrite_scheduled") == "0"
    });
    furnish(&mut primary.client());
    let mut c = primary.client();
    cmd!(c, "RQ.QUEUE.SET", "quick", "WORKERTTL", 50);
    cmd!(c, "RQ.ENQUEUE", "quick", "x", "DELAY", 50);
    until("due", || counts(&mut c, "quick").ready == 1);
    primary.wait_for_sync(&replica);
    let before = (digests(&replica), replica.digest("quick"));
    assert_eq!(before, (digests(&primary), primary.digest("quick")));
    // Alone it loads from its own file, what the timer of the primary did included.
    replica.kill9();
    replica.configure("replicaof", "no one");
    replica.restart();
    assert_eq!((digests(&replica), replica.digest("quick")), before);
}

fn waiting_claims_are_replicated_as_what_they_got(lab: &Lab) {
    let primary = lab.server();
    let replica = lab.replica_of(&primary);
    let mut c = primary.client();
    let mut waiters: Vec<Client> =
        (0..5).map(|number| waiting_claim(&primary, "q", &format!("w{number}"), 0)).collect();
    enqueue(&mut c, "q", "now");
    cmd!(c, "RQ.ENQUEUE", "q", "later", "DELAY", 50);
    cmd!(c, "MULTI");
    cmd!(c, "RQ.ENQUEUE", "q", "in a transaction");
    cmd!(c, "RQ.ENQUEUE", "q", "in a transaction too");
    cmd!(c, "EXEC");
    cmd!(c, "EVAL", "return redis.call('RQ.ENQUEUE', KEYS[1], 'in a script')", 1, "q");
    for waiter in &mut waiters {
        assert_eq!(jobs(&waiter.read()).len(), 1);
    }
    primary.wait_for_sync(&replica);
    assert_eq!(counts(&mut replica.client(), "q"), Counts { active: 5, ..Counts::default() });
    assert_eq!(primary.digest("q"), replica.digest("q"));
    // And one that is given back because its taker is gone.
    let mut waiter = primary.client();
    let id = waiter.id();
    send!(waiter, "RQ.CLAIM", "q", "w", "BLOCK", 0);
    until_blocked(&primary, 1);
    let calls = [args!["RQ.ENQUEUE", "q", "x"], args!["CLIENT", "KILL", "ID", id]];
    c.send_bytes(&calls.iter().flat_map(|call| encode(call)).collect::<Vec<u8>>());
    c.read();
    c.read();
    until_counts(&mut c, "q", Counts { active: 5, ready: 1, ..Counts::default() });
    primary.wait_for_sync(&replica);
    assert_eq!(primary.digest("q"), replica.digest("q"));
}

fn multi_and_scripts_are_replicated(lab: &Lab) {
    let primary = lab.server();
    let replica = lab.replica_of(&primary);
    let mut c = primary.client();
    cmd!(c, "MULTI");
    cmd!(c, "RQ.ENQUEUE", "a", "1");
    cmd!(c, "RQ.CLAIM", "a", "w");
    cmd!(c, "SET", "k", "v");
    cmd!(c, "RQ.ENQUEUE", "b", "2", "DELAY", 3_600_000);
    send!(c, "RQ.FAIL", "a", "unknown", "1-1");
    c.read();
    cmd!(c, "DEL", "b");
    cmd!(c, "RQ.ENQUEUE", "b", "3");
    cmd!(c, "EXEC");
    let script = "
        local id = redis.call('RQ.ENQUEUE', KEYS[1], 'from lua')
        local jobs = redis.call('RQ.CLAIM', KEYS[1], 'lua', 'COUNT', '10')
        for _, job in ipairs(jobs) do redis.call('RQ.ACK', KEYS[1], job[1], job[2], 'RESULT', 'r') end
        local failed = redis.pcall('RQ.FAIL', KEYS[1], id, '1-1')
        return failed['err']";
    let error = cmd!(c, "EVAL", script, 1, "b").text();
    assert!(error.contains("STALE"), "{error}");
    primary.wait_for_sync(&replica);
    for queue in ["a", "b"] {
        assert_eq!(primary.digest(queue), replica.digest(queue), "{queue}");
    }
    assert_eq!(counts(&mut replica.client(), "b"), Counts { done: 2, ..Counts::default() });
}

fn reads_work_on_a_replica_and_writes_do_not(lab: &Lab) {
    let primary = lab.server();
    let replica = lab.replica_of(&primary);
    furnish(&mut primary.client());
    primary.wait_for_sync(&replica);
    let mut c = replica.client();
    let before = digests(&replica);
    for write in [
        args!["RQ.ENQUEUE", "q", "x"],
        args!["RQ.MENQUEUE", "q", "JOBS", 1, "x"],
        args!["RQ.CLAIM", "q", "w"],
        args!["RQ.CLAIM", "q", "w", "BLOCK", 0],
        args!["RQ.MCLAIM", 1, "q", "w", "BLOCK", 0],
        args!["RQ.ACK", "q", "j", "1-1"],
        args!["RQ.FAIL", "q", "j", "1-1"],
        args!["RQ.RELEASE", "q", "j", "1-1"],
        args!["RQ.EXTEND", "q", "w", "LEASE", 5, "j", "1-1"],
        args!["RQ.PROGRESS", "q", "j", "1-1", "p"],
        args!["RQ.RECOVER", "q"],
        args!["RQ.CANCEL", "q", "j"],
        args!["RQ.RESCHEDULE", "q", "j", "DELAY", 5],
        args!["RQ.PAUSE", "q"],
        args!["RQ.RESUME", "q"],
        args!["RQ.REDRIVE", "q", "ALL"],
        args!["RQ.PURGE", "q", "ready"],
        args!["RQ.QUEUE.SET", "q", "LEASE", 5],
    ] {
        assert_eq!(c.refused(write), "READONLY");
    }
    for read in [
        args!["RQ.STATS", "q"],
        args!["RQ.WORKERS", "q"],
        args!["RQ.LIST", "q", "ready"],
        args!["RQ.QUEUES"],
        args!["RQ.QUEUE.GET", "q"],
        args!["RQ.JOB", "q", "own id"],
        args!["RQ.RESULT", "q", "own id"],
    ] {
        c.run(read);
    }
    assert_eq!(digests(&replica), before);
}

fn waiting_for_a_result_on_a_replica(lab: &Lab) {
    let primary = lab.server();
    let replica = lab.replica_of(&primary);
    let mut c = primary.client();
    let id = enqueue(&mut c, "q", "x");
    primary.wait_for_sync(&replica);
    let mut waiter = replica.client();
    send!(waiter, "RQ.RESULT", "q", id, "BLOCK", 0);
    until_blocked(&replica, 1);
    let job = claim(&mut c, "q", "w");
    cmd!(c, "RQ.ACK", "q", id, job.token, "RESULT", "r");
    let reply = waiter.read();
    assert_eq!((reply.list()[0].text(), reply.list()[1].text()), ("done".into(), "r".into()));
    let id = enqueue(&mut c, "q", "x");
    primary.wait_for_sync(&replica);
    send!(waiter, "RQ.RESULT", "q", id, "BLOCK", 0);
    until_blocked(&replica, 1);
    cmd!(c, "DEL", "q");
    let reply = waiter.read();
    assert!(reply.is_nil() || matches!(reply, Reply::Error(_)), "{reply:?}");
}

/// C61.
fn promotion(lab: &Lab) {
    let mut primary = lab.server();
    let replica = lab.replica_of(&primary);
    let mut c = primary.client();
    cmd!(c, "RQ.QUEUE.SET", "q", "LEASE", 2500);
    enqueue(&mut c, "q", "active");
    let start = std::time::Instant::now();
    let active = claim(&mut c, "q", "w");
    cmd!(c, "RQ.ENQUEUE", "q", "delayed", "DELAY", 2000);
    primary.wait_for_sync(&replica);
    let digest = primary.digest("q");
    primary.kill9();
    let mut r = replica.client();
    cmd!(r, "REPLICAOF", "NO", "ONE");
    assert_eq!(replica.digest("q"), digest, "a promotion alone changes nothing");
    // Leases and delays go on, neither early nor never.
    let delayed = claim_soon(&mut r, "q", "w2");
    assert_eq!(delayed.payload, b"delayed");
    let again = claim_soon(&mut r, "q", "w2");
    assert_eq!((again.payload.as_slice(), again.delivery), (&b"active"[..], 2));
    assert!(start.elapsed() >= ms(2490), "{:?}", start.elapsed());
    assert_eq!(refused!(r, "RQ.ACK", "q", active.id, active.token), "STALE");
    assert!(enqueue(&mut r, "q", "x") > active.token, "ids go on growing");
}

fn promotion_and_back(lab: &Lab) {
    let one = lab.server();
    let two = lab.replica_of(&one);
    let (mut first, mut second) = (&one, &two);
    for round in 0..4 {
        let mut c = first.client();
        for number in 0..20 {
            cmd!(c, "RQ.ENQUEUE", "q", number, "DELAY", number * 10, "LEASE", 200);
        }
        cmd!(c, "RQ.CLAIM", "q", format!("w{round}"), "COUNT", 5);
        first.wait_for_sync(second);
        cmd!(second.client(), "REPLICAOF", "NO", "ONE");
        cmd!(c, "REPLICAOF", "127.0.0.1", second.port);
        second.wait_for_sync(first);
        std::mem::swap(&mut first, &mut second);
    }
    until("all came due or back", || {
        let now = counts(&mut first.client(), "q");
        now.delayed + now.active == 0
    });
    first.wait_for_sync(second);
    assert_eq!(first.digest("q"), second.digest("q"));
    assert_eq!(counts(&mut first.client(), "q").sum(), 80);
}

/// A coordinated failover pauses writes on the primary while leases lapse and delays come due.
fn failover_with_due_timers(lab: &Lab) {
    let mut primary = lab.server();
    let mut replica = lab.replica_of(&primary);
    let mut c = primary.client();
    for number in 0..100 {
        cmd!(c, "RQ.ENQUEUE", "q", number, "DELAY", number * 10, "LEASE", 100);
    }
    let mut waiters: Vec<Client> =
        (0..20).map(|number| waiting_claim(&primary, "q", &format!("w{number}"), 0)).collect();
    primary.wait_for_sync(&replica);
    // The replica stands still, so the pause lasts; the failover is forced after that time.
    replica.signal("STOP");
    enqueue(&mut c, "other", "the replica lags behind");
    cmd!(c, "FAILOVER", "TO", "127.0.0.1", replica.port, "FORCE", "TIMEOUT", 500);
    until("leases and delays have come due meanwhile", {
        let start = std::time::Instant::now();
        move || start.elapsed() > ms(400)
    });
    replica.signal("CONT");
    until("the roles have changed", || replica.info("role") == "master" && primary.info("role") == "slave");
    assert!(primary.is_running() && replica.is_running());
    for waiter in &mut waiters {
        // Served before, or sent away.
        let _ = waiter.try_read_within(PATIENCE);
    }
    let mut r = replica.client();
    until("everything is ready on the new primary", || {
        let now = counts(&mut r, "q");
        now.delayed + now.active == 0
    });
    replica.wait_for_sync(&primary);
    until("both agree", || primary.digest("q") == replica.digest("q"));
}

/// An orderly end waits for its replicas, with writes paused.
fn shutdown_with_a_lagging_replica(lab: &Lab) {
    let mut primary =
        lab.server_with(&[("shutdown-timeout", "1"), ("appendonly", "yes"), ("appendfsync", "always")]);
    let replica = lab.replica_of(&primary);
    let mut c = primary.client();
    for number in 0..100 {
        cmd!(c, "RQ.ENQUEUE", "q", number, "DELAY", number * 10, "LEASE", 100);
    }
    let _waiting: Vec<Client> =
        (0..20).map(|number| waiting_claim(&primary, "q", &format!("w{number}"), 0)).collect();
    replica.signal("STOP");
    enqueue(&mut c, "other", "the replica lags behind");
    primary.shutdown();
    replica.signal("CONT");
    primary.restart();
    let mut c = primary.client();
    until("everything is ready after the restart", || {
        let now = counts(&mut c, "q");
        now.delayed + now.active == 0
    });
    assert_eq!(counts(&mut c, "q").sum(), 100);
    primary.wait_for_sync(&replica);
    until("both agree", || primary.digest("q") == replica.digest("q"));
}

/// C59: a replica with other settings comes to the same.
fn settings_are_the_primarys(lab: &Lab) {
    let primary = lab.server();
    let replica = lab.replica_with(
        &primary,
        &[
            ("rq.default-attempts", "1"),
            ("rq.default-lease", "1"),
            ("rq.max-payload", "1"),
            ("rq.default-crashes", "0"),
            ("rq.default-maxlen", "0"),
            ("maxmemory", "100mb"),
        ],
    );
    furnish(&mut primary.client());
    primary.wait_for_sync(&replica);
    assert_eq!(digests(&replica), digests(&primary));
}

/// A small pseudo-random sequence, the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

fn mixed_load_leaves_no_difference(lab: &Lab) {
    let primary = lab.server_with(&[("appendonly", "yes")]);
    let replica = lab.replica_with(&primary, &[("appendonly", "yes")]);
    let mut c = primary.client();
    cmd!(
        c,
        "RQ.QUEUE.SET",
        "q",
        "LEASE",
        60,
        "BACKOFF",
        5,
        20,
        "RESULTTTL",
        50,
        "DEADTTL",
        100,
        "WORKERTTL",
        80,
        "MAXLEN",
        400
    );
    let mut dice = Dice(7);
    let mut held: Vec<Job> = Vec::new();
    let steps = if soak() { 100_000 } else { 10_000 };
    for step in 0..steps {
        let worker = format!("w{}", dice.roll(6));
        match dice.roll(14) {
            0..=2 => drop(c.call(args!["RQ.ENQUEUE", "q", step, "PRIORITY", dice.roll(3)])),
            3 => drop(c.call(args![
                "RQ.ENQUEUE",
                "q",
                step,
                "DELAY",
                dice.roll(100),
                "DEADLINE",
                100 + dice.roll(100)
            ])),
            4 | 5 => held.extend(jobs(&cmd!(c, "RQ.CLAIM", "q", worker, "COUNT", 1 + dice.roll(3)))),
            6 => drop(c.call(args![
                "RQ.ENQUEUE",
                "q",
                step,
                "ID",
                format!("own {}", dice.roll(20)),
                if step % 2 == 0 { "IFNEW" } else { "REPLACE" }
            ])),
            7 => drop(cmd!(c, "RQ.RECOVER", "q", "WORKERS", 1, worker, "COUNT", 2)),
            8 => drop(cmd!(c, "RQ.RECOVER", "q", "IDLE", 50, "COUNT", 3)),
            9 if dice.roll(10) == 0 => drop(cmd!(c, "RQ.PURGE", "q", "dead", "COUNT", 2)),
            9 if dice.roll(10) == 0 => drop(cmd!(c, "RQ.REDRIVE", "q", "ALL", "COUNT", 2)),
            9 => {
                if let Some(job) = held.last() {
                    cmd!(c, "RQ.CANCEL", "q", job.id);
                }
            }
            _ => {
                let Some(job) = held.pop() else { continue };
                match dice.roll(6) {
                    0 | 1 => drop(c.call(args!["RQ.ACK", "q", job.id, job.token, "RESULT", step])),
                    2 => drop(c.call(args!["RQ.FAIL", "q", job.id, job.token, "ERROR", step])),
                    3 => drop(c.call(args!["RQ.RELEASE", "q", job.id, job.token])),
                    4 => drop(c.call(args!["RQ.EXTEND", "q", worker, "LEASE", 20, job.id, job.token])),
                    _ => {}
                }
            }
        }
        if step % 2500 == 1250 {
            until("primary and replica agree", || primary.digest("q") == replica.digest("q"));
        }
    }
    until("nothing is active any more", || counts(&mut c, "q").active == 0);
    until("primary and replica agree", || primary.digest("q") == replica.digest("q"));
    let stats = cmd!(c, "RQ.STATS", "q");
    let totals = stats.get("totals");
    assert_eq!(totals.get("enqueued").int(), Counts::of(&stats).sum() + totals.get("removed").int());
}

fn wait_means_what_it_means(lab: &Lab) {
    let primary = lab.server();
    let mut replica = lab.replica_of(&primary);
    let mut c = primary.client();
    let id = enqueue(&mut c, "q", "x");
    assert_eq!(cmd!(c, "WAIT", 1, 5000).int(), 1);
    assert_eq!(state(&mut replica.client(), "q", &id), "ready");
    // Also for what a waiting claim was given.
    let mut waiter = waiting_claim(&primary, "r", "w", 0);
    enqueue(&mut c, "r", "x");
    let job = jobs(&waiter.read()).remove(0);
    assert_eq!(cmd!(waiter, "WAIT", 1, 5000).int(), 1);
    assert_eq!(state(&mut replica.client(), "r", &job.id), "active");
    replica.kill9();
    enqueue(&mut c, "q", "y");
    assert_eq!(cmd!(c, "WAIT", 1, 50).int(), 0);
}

fn partial_resynchronisation(lab: &Lab) {
    let primary = lab.server_with(&[("repl-backlog-size", "64mb"), ("repl-timeout", "3600")]);
    let replica = lab.replica_of(&primary);
    cmd!(primary.client(), "CLIENT", "KILL", "TYPE", "replica");
    furnish(&mut primary.client());
    primary.wait_for_sync(&replica);
    assert_eq!(digests(&replica), digests(&primary));
}

/// ARCHITECTURE rule 4, as a replica sees it.
fn commands_are_propagated_as_they_were_sent(lab: &Lab) {
    let server =
        lab.server_with(&[("appendonly", "yes"), ("appendfsync", "always"), ("aof-use-rdb-preamble", "no")]);
    let mut c = server.client();
    cmd!(c, "RQ.ENQUEUE", "q", "payload to be found once", "ID", "j");
    let job = claim(&mut c, "q", "w");
    ack(&mut c, "q", &job);
    // What changes nothing leaves nothing.
    for _ in 0..50 {
        cmd!(c, "RQ.CLAIM", "q", "w");
        cmd!(c, "RQ.STATS", "q");
        c.call(args!["RQ.FAIL", "q", "unknown", "1-1"]).error();
        ack(&mut c, "q", &job);
        cmd!(c, "RQ.RECOVER", "q");
    }
    let mut text = String::new();
    for entry in std::fs::read_dir(server.dir.join("appendonlydir")).unwrap() {
        text.push_str(&String::from_utf8_lossy(&std::fs::read(entry.unwrap().path()).unwrap()));
    }
    assert_eq!(text.matches("payload to be found once").count(), 1);
    for (command, count) in
        [("RQ.ENQUEUE", 1), ("RQ.CLAIM", 1), ("RQ.ACK", 1), ("RQ.FAIL", 0), ("RQ.RECOVER", 0)]
    {
        assert_eq!(text.to_uppercase().matches(command).count(), count, "{command} in\n{text}");
    }
}

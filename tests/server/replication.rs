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
    a_cut_link_changes_nothing_until_promotion,
    promotion_alone_arms_the_timer,
    ids_are_new_after_a_promotion_and_a_lost_tail,
    a_hundred_waiters_on_a_demoted_primary,
    a_partial_resynchronisation,
    a_full_resynchronisation,
    a_full_copy_is_broken_off,
    loading_beside_what_is_there,
    through_a_channel_of_its_own,
    a_chain_of_replicas_is_promoted_in_its_middle,
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
        args!["RQ.EMIT", "q", "j", "1-1", "p"],
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

/// A queue in which everything comes due by itself `time` ms from now.
fn furnish_due(c: &mut Client, time: u64) {
    cmd!(c, "RQ.QUEUE.SET", "due", "WORKERTTL", time, "KEEPDEAD", 5);
    cmd!(c, "RQ.GROUP.SET", "due", "g", "BACKOFF", time, "RATE", 1, time);
    cmd!(c, "RQ.ENQUEUE", "due", "lease", "LEASE", time);
    cmd!(c, "RQ.ENQUEUE", "due", "result", "TTL", time);
    cmd!(c, "RQ.ENQUEUE", "due", "endpoint", "GROUP", "g");
    let held = jobs(&cmd!(c, "RQ.CLAIM", "due", "w", "COUNT", 3));
    let of = |payload: &[u8]| held.iter().find(|job| job.payload == payload).expect("it was claimed").clone();
    let (result, endpoint) = (of(b"result"), of(b"endpoint"));
    cmd!(c, "RQ.ACK", "due", result.id, result.token, "RESULT", "r");
    cmd!(c, "RQ.FAIL", "due", endpoint.id, endpoint.token, "UNAVAILABLE");
    cmd!(c, "RQ.ENQUEUE", "due", "delay", "DELAY", time);
    cmd!(c, "RQ.ENQUEUE", "due", "wall", "AT", unix_ms() + time);
    cmd!(c, "RQ.ENQUEUE", "due", "deadline", "GROUP", "late", "DEADLINE", time);
    cmd!(c, "RQ.PAUSE", "due", "GROUP", "late");
    cmd!(c, "RQ.PAUSE", "due", "FOR", time);
}

/// How it ends, with the back-off of the endpoint over.
const DUE: Counts = Counts { delayed: 0, ready: 4, active: 0, done: 0, dead: 1, cancelled: 0 };

fn a_cut_link_changes_nothing_until_promotion(lab: &Lab) {
    let mut primary = lab.server();
    let replica = lab.replica_of(&primary);
    let mut c = primary.client();
    // Again with more time, if on a busy machine something comes due before the link could be cut.
    let mut time = 400;
    let before = eventually("the link is cut in time", || {
        time *= 2;
        cmd!(c, "FLUSHALL");
        let start = std::time::Instant::now();
        furnish_due(&mut c, time);
        primary.wait_for_sync(&replica);
        primary.signal("STOP");
        let before = replica.digest("due");
        if start.elapsed() < ms(time) {
            return Some(before);
        }
        primary.signal("CONT");
        None
    });
    primary.kill9();
    until("the link is down", || replica.info("master_link_status") == "down");
    let mut r = replica.client();
    holds("the replica does nothing by itself", ms(time + 400), || replica.digest("due") == before);
    cmd!(r, "REPLICAOF", "NO", "ONE");
    until_counts(&mut r, "due", DUE);
    until("the worker is forgotten", || workers(&mut r, "due").is_empty());
    until("the endpoint is tried again", || {
        jobs(&cmd!(r, "RQ.CLAIM", "due", "w", "COUNT", 9)).iter().any(|job| job.payload == b"endpoint")
    });
}

/// Nobody sends a command after the promotion; the only client waits for a result.
fn promotion_alone_arms_the_timer(lab: &Lab) {
    let mut primary = lab.server();
    let replica = lab.replica_of(&primary);
    let mut c = primary.client();
    let id = cmd!(c, "RQ.ENQUEUE", "q", "x", "CRASHES", 0).text();
    let start = std::time::Instant::now();
    claim_for(&mut c, "q", "w", 1_500);
    primary.wait_for_sync(&replica);
    let mut waiter = replica.client();
    send!(waiter, "RQ.RESULT", "q", id, "BLOCK", 0);
    until_blocked(&replica, 1);
    primary.kill9();
    cmd!(replica.client(), "REPLICAOF", "NO", "ONE");
    assert_eq!(waiter.read().list()[0].text(), "dead");
    assert!(start.elapsed() >= ms(1_490), "not before its lease was over: {:?}", start.elapsed());
}

/// Soon after a promotion ids run ahead of the clock. Those whose jobs did not reach the disk are not given out again.
fn ids_are_new_after_a_promotion_and_a_lost_tail(lab: &Lab) {
    let mut old = lab.server();
    let mut new = lab.replica_with(&old, &[("appendonly", "yes"), ("auto-aof-rewrite-percentage", "0")]);
    until("its own file is written", || {
        new.info("aof_rewrite_in_progress") == "0" && new.info("aof_rewrite_scheduled") == "0"
    });
    old.kill9();
    cmd!(new.client(), "REPLICAOF", "NO", "ONE");
    new.configure("replicaof", "no one");
    let number = |serial: &str| {
        let (time, count) = serial.split_once('-').expect("two numbers");
        (time.parse::<u64>().expect("ms"), count.parse::<u64>().expect("a number"))
    };
    let length = |server: &Server| {
        let files = std::fs::read_dir(server.dir.join("appendonlydir")).expect("the folder").flatten();
        let last =
            files.map(|file| file.path()).filter(|path| path.to_string_lossy().ends_with("incr.aof")).max();
        let last = last.expect("a file");
        let bytes = std::fs::metadata(&last).expect("its facts").len();
        (last, bytes)
    };
    enqueue(&mut new.client(), "q", "kept");
    for _ in 0..3 {
        let (file, bytes) = length(&new);
        let lost = enqueue(&mut new.client(), "q", "lost");
        until("it is written", || length(&new).1 > bytes);
        new.kill9();
        std::fs::File::options()
            .write(true)
            .open(&file)
            .and_then(|file| file.set_len(bytes))
            .expect("it is cut");
        new.restart();
        let mut c = new.client();
        assert_eq!(state(&mut c, "q", &lost), "gone");
        let next = cmd!(c, "RQ.ENQUEUE", "other", "x").text();
        assert!(number(&next) > number(&lost), "{next} after {lost}");
    }
}

/// C61: whoever waits on a primary that becomes a replica is told so, and nothing is handed out on it any more.
fn a_hundred_waiters_on_a_demoted_primary(lab: &Lab) {
    let old = lab.server();
    let new = lab.replica_of(&old);
    let mut c = old.client();
    let id = enqueue(&mut c, "results", "x");
    let mut waiters: Vec<Client> = (0..100).map(|_| old.client()).collect();
    for (number, waiter) in waiters.iter_mut().enumerate() {
        match number % 5 {
            4 => send!(waiter, "RQ.READ", "results", id, "BLOCK", 0),
            0 => send!(waiter, "RQ.RESULT", "results", id, "BLOCK", 0),
            1 => send!(waiter, "RQ.MCLAIM", 2, "q", "r", format!("w{number}"), "BLOCK", 0),
            2 => send!(waiter, "RQ.CLAIM", "q", format!("w{number}"), "BLOCK", 60_000, "FULL"),
            _ => send!(waiter, "RQ.CLAIM", "q", format!("w{number}"), "BLOCK", 0),
        }
    }
    until_blocked(&old, 100);
    old.wait_for_sync(&new);
    cmd!(new.client(), "REPLICAOF", "NO", "ONE");
    cmd!(c, "REPLICAOF", "127.0.0.1", new.port);
    for waiter in &mut waiters {
        assert_eq!(waiter.read().error().word(), "UNBLOCKED");
    }
    new.wait_for_sync(&old);
    let mut n = new.client();
    enqueue(&mut n, "q", "y");
    new.wait_for_sync(&old);
    assert_eq!(old.info_number("blocked_clients"), 0);
    assert_eq!(counts(&mut old.client(), "q"), Counts { ready: 1, ..Counts::default() });
    let mut again = old.client();
    assert_eq!(refused!(again, "RQ.CLAIM", "q", "w", "BLOCK", 0), "READONLY");
    assert_eq!(claim(&mut n, "q", "w").text(), "y");
}

fn a_partial_resynchronisation(lab: &Lab) {
    let primary = lab.server_with(&[("repl-backlog-size", "64mb"), ("repl-timeout", "3600")]);
    let replica = lab.replica_of(&primary);
    let before = (primary.info_number("sync_full"), primary.info_number("sync_partial_ok"));
    let mut waiter = waiting_claim(&primary, "waited", "w", 0);
    for _ in 0..5 {
        cmd!(primary.client(), "CLIENT", "KILL", "TYPE", "replica");
        let mut c = primary.client();
        cmd!(c, "FLUSHALL");
        furnish(&mut c);
        furnish_due(&mut c, 20);
        until_counts(&mut c, "due", DUE);
        primary.wait_for_sync(&replica);
        assert_eq!(digests(&replica), digests(&primary));
        assert_eq!(replica.digest("due"), primary.digest("due"));
    }
    enqueue(&mut primary.client(), "waited", "x");
    assert_eq!(jobs(&waiter.read()).len(), 1);
    primary.wait_for_sync(&replica);
    assert_eq!(replica.digest("waited"), primary.digest("waited"));
    assert_eq!(primary.info_number("sync_full"), before.0);
    assert!(primary.info_number("sync_partial_ok") > before.1, "it was partial");
}

/// The link is down for longer than the backlog reaches.
fn a_full_resynchronisation(lab: &Lab) {
    let primary = lab.server_with(&[("repl-backlog-size", "16kb")]);
    let replica = lab.replica_of(&primary);
    let before = primary.info_number("sync_full");
    let mut c = primary.client();
    let id = enqueue(&mut c, "results", "x");
    primary.wait_for_sync(&replica);
    let mut waiter = replica.client();
    send!(waiter, "RQ.RESULT", "results", id, "BLOCK", 0);
    until_blocked(&replica, 1);
    replica.signal("STOP");
    cmd!(c, "CLIENT", "KILL", "TYPE", "replica");
    for number in 0..3 {
        cmd!(c, "SET", format!("much{number}"), "x".repeat(1 << 20));
    }
    furnish(&mut c);
    furnish_due(&mut c, 20);
    let job = claim(&mut c, "results", "w");
    cmd!(c, "RQ.ACK", "results", job.id, job.token, "RESULT", "r");
    until_counts(&mut c, "due", DUE);
    replica.signal("CONT");
    until("a full copy is made", || primary.info_number("sync_full") > before);
    primary.wait_for_sync(&replica);
    assert_eq!(digests(&replica), digests(&primary));
    assert_eq!(replica.digest("due"), primary.digest("due"));
    // Who waited on the replica is answered from the copy.
    assert_eq!(waiter.read().list()[1].text(), "r");
}

/// A full copy that never comes to its end: what was there before stays, and can be promoted.
fn a_full_copy_is_broken_off(lab: &Lab) {
    let mut primary = lab.server_with(&[("repl-backlog-size", "16kb")]);
    let replica = lab.replica_with(&primary, &[("repl-diskless-load", "swapdb")]);
    let mut c = primary.client();
    furnish(&mut c);
    furnish_due(&mut c, 60_000);
    enqueue(&mut c, "soon", "x");
    for number in 0..500 {
        enqueue(&mut c, &format!("q{number}"), "x");
    }
    let held = claim_for(&mut c, "soon", "w", 1_000);
    primary.wait_for_sync(&replica);
    let before = (digests(&replica), replica.digest("due"), replica.digest("soon"));
    replica.signal("STOP");
    cmd!(c, "CLIENT", "KILL", "TYPE", "replica");
    // More than the backlog holds; and then a copy so slow that it is caught in the middle.
    for number in 0..5 {
        cmd!(c, "SET", format!("much{number}"), "x".repeat(1 << 20));
    }
    cmd!(c, "CONFIG", "SET", "rdb-key-save-delay", 50_000);
    replica.signal("CONT");
    until("it is under way", || replica.info("master_sync_in_progress") == "1");
    primary.kill9();
    until("it was given up", || {
        replica.info("master_link_status") == "down" && replica.info("loading") == "0"
    });
    assert_eq!((digests(&replica), replica.digest("due"), replica.digest("soon")), before);
    let mut r = replica.client();
    cmd!(r, "REPLICAOF", "NO", "ONE");
    assert_eq!(claim_soon(&mut r, "soon", "w2").id, held.id, "its lease lapses");
}

/// A replica that has other queues already, and clients who wait on it, gets a full copy of another primary.
///
/// With `swapdb` the server loads it from its disk too: the module does not say that it could serve one set of queues while
/// another is loaded.
fn loading_beside_what_is_there(lab: &Lab) {
    for load in ["swapdb", "disabled"] {
        let primary = lab.server();
        let other = lab.server_with(&[("repl-diskless-load", load)]);
        let mut o = other.client();
        let gone = cmd!(o, "RQ.ENQUEUE", "old", "x", "DELAY", 200).text();
        cmd!(o, "RQ.ENQUEUE", "q", "other", "DELAY", 200);
        furnish(&mut primary.client());
        let same = cmd!(primary.client(), "RQ.ENQUEUE", "kept", "x", "ID", "kept").text();
        cmd!(o, "RQ.ENQUEUE", "kept", "x", "ID", "kept");
        cmd!(o, "REPLICAOF", "127.0.0.1", primary.port);
        let mut waiters: Vec<Client> = Vec::new();
        for (queue, id) in [("old", &gone), ("kept", &same)] {
            let mut waiter = other.client();
            send!(waiter, "RQ.RESULT", queue, id, "BLOCK", 0);
            waiters.push(waiter);
        }
        primary.wait_for_sync(&other);
        assert_eq!(digests(&other), digests(&primary));
        let reply = waiters[0].read();
        assert!(reply.is_nil() || matches!(reply, Reply::Error(_)), "its queue is gone: {reply:?}");
        let mut c = primary.client();
        let job = claim(&mut c, "kept", "w");
        cmd!(c, "RQ.ACK", "kept", job.id, job.token, "RESULT", "r");
        let reply = waiters[1].read();
        assert!(matches!(reply, Reply::Error(_)) || reply.list()[1].text() == "r", "{reply:?}");
        // Promoted, it does what is due in these queues and knows nothing of the old ones.
        cmd!(c, "RQ.ENQUEUE", "later", "x", "DELAY", 300);
        primary.wait_for_sync(&other);
        cmd!(o, "REPLICAOF", "NO", "ONE");
        assert_eq!(claim_soon(&mut o, "later", "w").text(), "x");
        assert!(cmd!(o, "RQ.QUEUES", "MATCH", "old").list()[1].list().is_empty());
    }
}

/// From 8.0 on a copy can come by a connection of its own, with the stream beside it.
fn through_a_channel_of_its_own(lab: &Lab) {
    let primary = lab.server();
    let mut c = primary.client();
    if cmd!(c, "CONFIG", "GET", "repl-rdb-channel").list().is_empty() {
        return;
    }
    cmd!(c, "CONFIG", "SET", "repl-rdb-channel", "yes");
    furnish(&mut c);
    for number in 0..500 {
        cmd!(c, "RQ.ENQUEUE", format!("q{}", number % 100), number, "DELAY", number);
    }
    cmd!(c, "CONFIG", "SET", "rdb-key-save-delay", 2_000);
    for load in ["on-empty-db", "swapdb"] {
        let source = format!("127.0.0.1 {}", primary.port);
        let replica = lab.server_with(&[
            ("repl-rdb-channel", "yes"),
            ("repl-diskless-load", load),
            ("replicaof", source.as_str()),
        ]);
        // Meanwhile the primary is written to, by clients and by its timer.
        let mut number = 0;
        until("the copy is there", || {
            cmd!(c, "RQ.ENQUEUE", "meanwhile", number, "DELAY", 5);
            number += 1;
            replica.info("master_link_status") == "up"
        });
        until("nothing is delayed", || counts(&mut c, "meanwhile").delayed == 0);
        primary.wait_for_sync(&replica);
        assert_eq!(digests(&replica), digests(&primary));
        assert_eq!(replica.digest("meanwhile"), primary.digest("meanwhile"));
    }
}

fn a_chain_of_replicas_is_promoted_in_its_middle(lab: &Lab) {
    let mut primary = lab.server();
    let middle = lab.replica_of(&primary);
    let mut last = lab.replica_with(&middle, &[("appendonly", "yes"), ("appendfsync", "always")]);
    let mut c = primary.client();
    furnish(&mut c);
    let mut waiter = waiting_claim(&primary, "waited", "w", 0);
    cmd!(c, "RQ.ENQUEUE", "waited", "x", "DELAY", 20);
    waiter.read();
    furnish_due(&mut c, 20);
    until_counts(&mut c, "due", DUE);
    cmd!(c, "RQ.ENQUEUE", "later", "x", "DELAY", 1_000);
    primary.wait_for_sync(&middle);
    middle.wait_for_sync(&last);
    for queue in ["waited", "due", "later"] {
        assert_eq!(last.digest(queue), primary.digest(queue), "{queue}");
    }
    primary.kill9();
    cmd!(middle.client(), "REPLICAOF", "NO", "ONE");
    let mut m = middle.client();
    assert_eq!(claim_soon(&mut m, "later", "w").text(), "x");
    middle.wait_for_sync(&last);
    let now = middle.digest("later");
    assert_eq!(last.digest("later"), now);
    assert_eq!(digests(&last), digests(&middle));
    until("its own file is written", || {
        last.info("aof_rewrite_in_progress") == "0" && last.info("aof_rewrite_scheduled") == "0"
    });
    last.kill9();
    last.configure("replicaof", "no one");
    last.restart();
    assert_eq!(last.digest("later"), now);
    assert_eq!(digests(&last), digests(&middle));
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

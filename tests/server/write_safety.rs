//! Times in which a server must not write by itself: paused clients, a failover or an orderly end under way, a script that
//! does not end, a file being loaded. A write then would end the server or part it from its replica. Nothing is due lost by
//! it: all of it happens afterwards.

use std::time::{Duration, Instant};

use crate::common::*;
use crate::{args, cmd, send, tests};

pub const TESTS: &[Test] = tests![
    nothing_is_written_while_clients_are_paused,
    grants_of_vanished_clients_wait_for_the_end_of_a_pause,
    waits_that_end_in_a_pause_write_nothing,
    nothing_is_written_in_a_failover,
    nothing_is_written_while_shutting_down,
    a_script_that_does_not_end,
    a_busy_server_is_killed,
    nothing_happens_while_loading,
    a_writable_replica_decides_nothing,
];

/// Where everything that comes due by itself comes due `time` ms from now: a delay, a lease, a retention, a deadline, a
/// pause, a back-off, a silent worker. And three clients wait for jobs.
fn furnish_due(server: &Server, time: u64) -> Vec<Client> {
    let mut c = server.client();
    cmd!(c, "RQ.QUEUE.SET", "q", "WORKERTTL", time);
    cmd!(c, "RQ.ENQUEUE", "q", "lease", "LEASE", time);
    claim(&mut c, "q", "w");
    cmd!(c, "RQ.ENQUEUE", "q", "result");
    let job = claim(&mut c, "q", "w2");
    cmd!(c, "RQ.ACK", "q", job.id, job.token, "RESULT", "r", "TTL", time);
    cmd!(c, "RQ.ENQUEUE", "q", "probe", "GROUP", "g");
    cmd!(c, "RQ.GROUP.SET", "q", "g", "BACKOFF", time);
    let job = claim(&mut c, "q", "w2");
    cmd!(c, "RQ.FAIL", "q", job.id, job.token, "UNAVAILABLE");
    cmd!(c, "RQ.ENQUEUE", "q", "delay", "DELAY", time);
    cmd!(c, "RQ.ENQUEUE", "q", "deadline", "GROUP", "late", "DEADLINE", time);
    cmd!(c, "RQ.PAUSE", "q", "GROUP", "late");
    cmd!(c, "RQ.ENQUEUE", "paused", "x");
    cmd!(c, "RQ.PAUSE", "paused", "FOR", time);
    let queues = ["waited", "paused", "waited"];
    let waiters = queues.map(|queue| waiting_claim(server, queue, "w", 0));
    cmd!(c, "RQ.ENQUEUE", "waited", "x", "DELAY", time);
    cmd!(c, "RQ.ENQUEUE", "waited", "y", "DELAY", time);
    waiters.into()
}

const FURNISHED: [&str; 3] = ["q", "paused", "waited"];

/// All of it came due.
fn until_all_is_due(server: &Server, waiters: &mut [Client]) {
    for waiter in waiters {
        assert_eq!(jobs(&waiter.read()).len(), 1);
    }
    let mut c = server.client();
    until_counts(&mut c, "q", Counts { ready: 3, dead: 1, ..Counts::default() });
    until("the worker is forgotten", || workers(&mut c, "q").is_empty());
    let mut taken = 0;
    until("all of them are handed out", || {
        taken += jobs(&cmd!(c, "RQ.CLAIM", "q", "last", "COUNT", 10, "LEASE", 3_600_000)).len();
        taken == 3
    });
}

fn digests(server: &Server) -> Vec<String> {
    FURNISHED.iter().map(|queue| server.digest(queue)).collect()
}

fn agree(primary: &Server, replica: &Server) {
    primary.wait_for_sync(replica);
    until("primary and replica agree", || digests(primary) == digests(replica));
}

/// A primary whose stream holds nothing but writes: no pings.
fn quiet_primary(lab: &Lab) -> (Server, Server) {
    let primary = lab.server_with(&[
        ("appendonly", "yes"),
        ("appendfsync", "always"),
        ("repl-ping-replica-period", "3600"),
    ]);
    let replica = lab.replica_of(&primary);
    (primary, replica)
}

/// Long enough for what is due to be noticed many times.
fn passes(start: Instant, time: u64) -> Duration {
    (start + ms(time)).saturating_duration_since(Instant::now())
}

fn nothing_is_written_while_clients_are_paused(lab: &Lab) {
    let (mut primary, replica) = quiet_primary(lab);
    for mode in ["WRITE", "ALL"] {
        let mut c = primary.client();
        cmd!(c, "FLUSHALL");
        // Again with more time, if on a busy machine something comes due before the pause.
        let mut time = 300;
        let mut waiters = eventually("paused in time", || {
            time *= 2;
            cmd!(c, "FLUSHALL");
            let start = Instant::now();
            let waiters = furnish_due(&primary, time);
            primary.wait_for_sync(&replica);
            // With everything paused, its end cannot be asked for.
            let pause = if mode == "ALL" { time + 1_500 } else { 60_000 };
            cmd!(c, "CLIENT", "PAUSE", pause, mode);
            let in_time = start.elapsed() < ms(time);
            if !in_time {
                cmd!(c, "CLIENT", "UNPAUSE");
            }
            in_time.then_some(waiters)
        });
        // What the replica has is what was written; and with writes alone paused, the primary can be asked too.
        let before = (replica.info_number("slave_repl_offset"), digests(&replica));
        let own = (mode == "WRITE").then(|| (primary.info_number("master_repl_offset"), digests(&primary)));
        holds("nothing is written", ms(time + 400), || {
            before == (replica.info_number("slave_repl_offset"), digests(&replica))
                && waiters.iter_mut().all(|waiter| !waiter.is_answered())
        });
        if let Some(own) = own {
            assert_eq!(own, (primary.info_number("master_repl_offset"), digests(&primary)));
            cmd!(c, "CLIENT", "UNPAUSE");
        }
        until_all_is_due(&primary, &mut waiters);
        agree(&primary, &replica);
        assert!(primary.is_running());
    }
}

/// A job was handed to a client that is gone; that is found out in a pause.
fn grants_of_vanished_clients_wait_for_the_end_of_a_pause(lab: &Lab) {
    let (mut primary, replica) = quiet_primary(lab);
    let mut c = primary.client();
    let mut waiter = primary.client();
    let id = waiter.id();
    send!(waiter, "RQ.CLAIM", "q", "w", "BLOCK", 0, "LEASE", 3_600_000);
    until_blocked(&primary, 1);
    // In one packet, so that all is done before any reply is written.
    let calls = [
        args!["RQ.ENQUEUE", "q", "x"],
        args!["CLIENT", "PAUSE", 60_000, "WRITE"],
        args!["CLIENT", "KILL", "ID", id],
    ];
    c.send_bytes(&calls.iter().flat_map(|call| encode(call)).collect::<Vec<u8>>());
    for _ in &calls {
        assert!(!matches!(c.read(), Reply::Error(_)));
    }
    let before = (primary.info_number("master_repl_offset"), primary.digest("q"));
    assert_eq!(counts(&mut c, "q").active, 1);
    holds("it is not given back yet", ms(300), || {
        before == (primary.info_number("master_repl_offset"), primary.digest("q"))
    });
    cmd!(c, "CLIENT", "UNPAUSE");
    claim_soon(&mut c, "q", "w2");
    primary.wait_for_sync(&replica);
    until("both agree", || primary.digest("q") == replica.digest("q"));
    assert!(primary.is_running());
}

/// Time-outs, CLIENT UNBLOCK, and clients that leave, all in a pause.
fn waits_that_end_in_a_pause_write_nothing(lab: &Lab) {
    let (mut primary, replica) = quiet_primary(lab);
    let mut c = primary.client();
    let id = enqueue(&mut c, "other", "x");
    primary.wait_for_sync(&replica);
    let mut timed = waiting_claim(&primary, "q", "w", 300);
    let mut result = primary.client();
    send!(result, "RQ.RESULT", "other", id, "BLOCK", 300);
    let mut unblocked = primary.client();
    let number = unblocked.id();
    send!(unblocked, "RQ.MCLAIM", 2, "q", "r", "w", "BLOCK", 0);
    let leaving = waiting_claim(&primary, "q", "w3", 0);
    until_blocked(&primary, 4);
    cmd!(c, "CLIENT", "PAUSE", 60_000, "WRITE");
    let before = primary.info_number("master_repl_offset");
    cmd!(c, "CLIENT", "UNBLOCK", number, "ERROR");
    assert_eq!(unblocked.read().error().word(), "UNBLOCKED");
    drop(leaving);
    assert!(timed.read().is_nil());
    assert!(result.read().is_nil());
    until_blocked(&primary, 0);
    assert_eq!(primary.info_number("master_repl_offset"), before);
    cmd!(c, "CLIENT", "UNPAUSE");
    assert_eq!(claim(&mut c, "other", "w").delivery, 1);
    assert!(primary.is_running());
}

/// The primary waits, with writes paused, until the replica has everything; which stands still for the time.
fn nothing_is_written_in_a_failover(lab: &Lab) {
    let (mut primary, mut replica) = quiet_primary(lab);
    let waiters = furnish_due(&primary, 2_000);
    primary.wait_for_sync(&replica);
    let start = Instant::now();
    replica.signal("STOP");
    let mut c = primary.client();
    enqueue(&mut c, "last", "the replica lags behind");
    cmd!(c, "FAILOVER", "TO", "127.0.0.1", replica.port, "TIMEOUT", 60_000);
    assert_eq!(primary.info("master_failover_state"), "waiting-for-sync");
    let before = (primary.info_number("master_repl_offset"), digests(&primary));
    // Nothing is decided in between, however much of it is due.
    holds("nothing is written", passes(start, 2_500).max(ms(300)), || {
        primary.info("master_failover_state") != "waiting-for-sync"
            || before == (primary.info_number("master_repl_offset"), digests(&primary))
    });
    replica.signal("CONT");
    until("the roles have changed", || replica.info("role") == "master" && primary.info("role") == "slave");
    // Who waited is told that this is not the primary any more.
    for mut waiter in waiters {
        assert_eq!(waiter.read().error().word(), "UNBLOCKED");
    }
    let mut waiters: Vec<Client> =
        ["waited", "paused", "waited"].map(|queue| waiting_claim(&replica, queue, "w", 0)).into();
    until_all_is_due(&replica, &mut waiters);
    agree(&replica, &primary);
    assert!(primary.is_running() && replica.is_running());
}

/// An orderly end waits for the replicas, with writes paused; then it is called off.
fn nothing_is_written_while_shutting_down(lab: &Lab) {
    let primary = lab.server_with(&[("shutdown-timeout", "60"), ("repl-ping-replica-period", "3600")]);
    let replica = lab.replica_of(&primary);
    let mut waiters = furnish_due(&primary, 500);
    primary.wait_for_sync(&replica);
    let start = Instant::now();
    replica.signal("STOP");
    let mut c = primary.client();
    enqueue(&mut c, "last", "the replica lags behind");
    let mut stopping = primary.client();
    send!(stopping, "SHUTDOWN");
    until("the end is under way", || {
        let info = cmd!(primary.client(), "INFO", "server");
        String::from_utf8_lossy(info.bytes()).contains("shutdown_in_milliseconds")
    });
    let before = (primary.info_number("master_repl_offset"), digests(&primary));
    holds("nothing is written", passes(start, 1_000).max(ms(300)), || {
        before == (primary.info_number("master_repl_offset"), digests(&primary))
    });
    cmd!(c, "SHUTDOWN", "ABORT");
    replica.signal("CONT");
    until_all_is_due(&primary, &mut waiters);
    agree(&primary, &replica);
}

/// While a script runs for long, other clients are answered BUSY; timers and those who wait must not come in between.
fn a_script_that_does_not_end(lab: &Lab) {
    let (mut primary, replica) = quiet_primary(lab);
    cmd!(primary.client(), "CONFIG", "SET", "busy-reply-threshold", 20);
    let mut waiters = furnish_due(&primary, 1_500);
    primary.wait_for_sync(&replica);
    let mut leaving = primary.client();
    send!(leaving, "RQ.CLAIM", "q2", "w", "BLOCK", 0, "LEASE", 3_600_000);
    until_blocked(&primary, 4);
    let start = Instant::now();
    let mut script = primary.client();
    // It hands a job to one who waits, and then goes on and on; the server may not stop it, for it has written.
    let text = "
        redis.call('RQ.ENQUEUE', 'q2', 'from a script')
        local start = redis.call('TIME')
        while true do
            local now = redis.call('TIME')
            if (now[1] - start[1]) * 1000000 + now[2] - start[2] > tonumber(ARGV[1]) then break end
        end
        return redis.call('RQ.STATS', 'q')";
    send!(script, "EVAL", text, 0, 2_000_000);
    let offset = eventually("the server is busy", || {
        let mut c = primary.client();
        match c.call(args!["PING"]) {
            Reply::Error(error) if error.word() == "BUSY" => Some(replica.info_number("slave_repl_offset")),
            _ => None,
        }
    });
    drop(leaving);
    while start.elapsed() < ms(1_700) && !script.is_answered() {
        assert_eq!(replica.info_number("slave_repl_offset"), offset, "nothing is written in the script");
        assert!(waiters.iter_mut().all(|waiter| !waiter.is_answered()));
    }
    // Inside of the script time stood still for the queue, too.
    let stats = script.read();
    assert_eq!(stats.get("delayed").int(), 1, "{stats:?}");
    until_all_is_due(&primary, &mut waiters);
    assert_eq!(claim_soon(&mut primary.client(), "q2", "other").text(), "from a script");
    agree(&primary, &replica);
    primary.wait_for_sync(&replica);
    until("both agree", || primary.digest("q2") == replica.digest("q2"));
    assert!(primary.is_running());
}

/// A script that only reads is killed, and what came due in it happens then.
fn a_busy_server_is_killed(lab: &Lab) {
    let (primary, replica) = quiet_primary(lab);
    cmd!(primary.client(), "CONFIG", "SET", "busy-reply-threshold", 20);
    let mut waiters = furnish_due(&primary, 300);
    let start = Instant::now();
    let mut script = primary.client();
    send!(script, "EVAL", "while true do redis.call('RQ.STATS', 'q') end", 0);
    until("the server is busy", || matches!(primary.client().call(args!["PING"]), Reply::Error(_)));
    let mut again = primary.client();
    send!(again, "RQ.CLAIM", "q", "w", "BLOCK", 0);
    assert_eq!(again.read().error().word(), "BUSY");
    until("everything is due", || start.elapsed() > ms(500));
    cmd!(primary.client(), "SCRIPT", "KILL");
    assert!(matches!(script.read(), Reply::Error(_)));
    until_all_is_due(&primary, &mut waiters);
    agree(&primary, &replica);
}

/// While a file is loaded nothing is decided, and no timer writes into the file that is being read.
fn nothing_happens_while_loading(lab: &Lab) {
    let mut server = lab.server_with(&[
        ("appendonly", "yes"),
        ("appendfsync", "always"),
        ("auto-aof-rewrite-percentage", "0"),
        ("aof-use-rdb-preamble", "no"),
    ]);
    let mut c = server.client();
    // Little that comes due while much behind it is read.
    cmd!(c, "RQ.ENQUEUE", "q", "lease", "LEASE", 700);
    claim(&mut c, "q", "w");
    cmd!(c, "RQ.ENQUEUE", "q", "delay", "DELAY", 700);
    for number in 0..5_000 {
        send!(c, "RQ.ENQUEUE", "many", number);
    }
    for _ in 0..5_000 {
        c.read();
    }
    let file = server.dir.join("appendonlydir").join("appendonly.aof.1.incr.aof");
    let length = || std::fs::metadata(&file).expect("the file").len();
    server.kill9();
    let before = length();
    // It stops often to hear clients while it loads, and is slow.
    server.configure("key-load-delay", "200");
    server.configure("loading-process-events-interval-bytes", "1024");
    let port = server.port;
    let asking = std::thread::spawn(move || {
        let start = Instant::now();
        let mut refused = 0;
        while start.elapsed() < PATIENCE {
            let Some(mut client) = Client::try_connect(port) else { continue };
            if client.try_send(args!["RQ.CLAIM", "many", "w", "BLOCK", 0]).is_err() {
                continue;
            }
            match client.try_read_within(PATIENCE) {
                Ok(Some(Reply::Error(error))) if error.word() == "LOADING" => refused += 1,
                Ok(Some(reply)) => return (refused, jobs(&reply).len()),
                _ => {}
            }
        }
        (refused, 0)
    });
    server.restart();
    let (refused, taken) = asking.join().expect("the asking thread");
    assert!(refused > 0 && taken == 1, "{refused} claims were refused while it loaded");
    let mut c = server.client();
    assert_eq!(counts(&mut c, "many"), Counts { ready: 4_999, active: 1, ..Counts::default() });
    until_counts(&mut c, "q", Counts { ready: 2, ..Counts::default() });
    assert!(length() > before, "it is written on at its end");
    let digests = (server.digest("many"), server.digest("q"));
    server.kill9();
    server.configure("key-load-delay", "0");
    server.restart();
    assert_eq!((server.digest("many"), server.digest("q")), digests);
}

/// `replica-read-only no`: clients may write on it, for what that is worth; but it decides nothing by itself.
fn a_writable_replica_decides_nothing(lab: &Lab) {
    let primary = lab.server();
    let mut replica = lab.replica_with(&primary, &[("replica-read-only", "no")]);
    let mut c = primary.client();
    let id = cmd!(c, "RQ.ENQUEUE", "q", "x").text();
    primary.wait_for_sync(&replica);
    let mut r = replica.client();
    cmd!(r, "RQ.ENQUEUE", "own", "y", "DELAY", 50);
    send!(r, "RQ.CLAIM", "own", "w", "BLOCK", 300);
    assert!(r.read().is_nil() || replica.is_running());
    holds("its own job stays delayed", ms(300), || counts(&mut r, "own").delayed == 1);
    assert_eq!(ack(&mut c, "q", &claim(&mut primary.client(), "q", "w")), 1);
    primary.wait_for_sync(&replica);
    assert_eq!(state(&mut r, "q", id), "gone");
    cmd!(r, "REPLICAOF", "NO", "ONE");
    assert_eq!(claim_soon(&mut r, "own", "w").text(), "y");
    assert!(replica.is_running());
}

//! RDB, AOF with and without preamble, rewrites, crashes: what comes back is what was there.

use std::collections::{HashMap, HashSet};

use crate::common::*;
use crate::{args, cmd, send, tests};

pub const TESTS: &[Test] = tests![
    debug_reload,
    rdb_restart,
    aof_restart_with_preamble,
    aof_restart_without_preamble,
    aof_rewritten_under_load,
    timers_go_on_after_a_crash,
    delays_are_absolute_across_a_restart,
    ids_stay_above_what_was_loaded,
    a_queue_emptied_leaves_no_trace,
    an_empty_queue_is_kept,
    repeated_reloads_change_nothing,
    many_queues_and_databases,
    what_waiters_were_given_is_in_the_aof,
    half_a_transaction_does_not_come_back,
];

/// Queues in all the states there are, for the round trips: nothing in them comes due by itself.
pub fn furnish(c: &mut Client) {
    cmd!(
        c,
        "RQ.QUEUE.SET",
        "settings",
        "LEASE",
        5,
        "ATTEMPTS",
        "none",
        "MAXLEN",
        7,
        "KEEPDONE",
        2,
        "BACKOFF",
        3,
        9,
        "WORKERTTL",
        86_400_000
    );
    cmd!(c, "RQ.QUEUE.SET", "q", "LEASE", 3_600_000, "WORKERTTL", 86_400_000);
    for number in 0..40 {
        let id = cmd!(
            c,
            "RQ.ENQUEUE",
            "q",
            number,
            "PRIORITY",
            number % 3,
            "ATTEMPTS",
            2,
            "BACKOFF",
            3_600_000,
            7_200_000,
            "TTL",
            3_600_000
        )
        .text();
        let worker = format!("w{}", number % 4);
        match number % 10 {
            0 => {}
            1 => drop(cmd!(c, "RQ.RESCHEDULE", "q", id, "DELAY", 3_600_000)),
            2 => drop(cmd!(c, "RQ.CANCEL", "q", id)),
            _ => {
                let job = claim(c, "q", &worker);
                let (id, token) = (job.id, job.token);
                match number % 10 {
                    3 => drop(cmd!(c, "RQ.PROGRESS", "q", id, token, "half")),
                    4 => drop(cmd!(c, "RQ.ACK", "q", id, token, "RESULT", "r")),
                    5 => drop(cmd!(c, "RQ.ACK", "q", id, token, "TTL", 0)),
                    6 => drop(cmd!(c, "RQ.FAIL", "q", id, token, "ERROR", "e")),
                    7 => drop(cmd!(c, "RQ.FAIL", "q", id, token, "DEAD", "ERROR", "dead")),
                    8 => drop(cmd!(c, "RQ.RELEASE", "q", id, token)),
                    _ => drop(cmd!(c, "RQ.CANCEL", "q", id)),
                }
            }
        }
    }
    cmd!(
        c,
        "RQ.ENQUEUE",
        "q",
        "own",
        "ID",
        "own id",
        "DEADLINE",
        86_400_000,
        "DELAY",
        3_600_000,
        "LEASE",
        5,
        "CRASHES",
        0
    );
    cmd!(c, "RQ.RECOVER", "q", "WORKERS", 1, "w1", "COUNT", 1);
    cmd!(c, "RQ.PURGE", "q", "dead", "COUNT", 1);
    enqueue(c, "paused", "x");
    cmd!(c, "RQ.PAUSE", "paused");
    cmd!(c, "RQ.PAUSE", "paused a while", "FOR", 3_600_000);
    enqueue(c, "emptied", "x");
    let job = claim(c, "emptied", "w");
    ack(c, "emptied", &job);
}

pub const FURNISHED: [&str; 5] = ["q", "settings", "paused", "paused a while", "emptied"];

pub fn digests(server: &Server) -> Vec<String> {
    let all: Vec<String> = FURNISHED.iter().map(|queue| server.digest(queue)).collect();
    assert!(
        all.iter().all(|digest| digest.chars().any(|digit| digit != '0')),
        "digests say something: {all:?}"
    );
    all
}

/// One thing that the commands tell: of what, which, and its value.
pub type Fact = (String, String, Reply);

/// What is shown in Unix ms is reckoned anew each time from two clocks, and on a replica from what it knows of the
/// primary's; so it may differ a little. Whether the queues are the same to the bit is for their digests to tell.
const INSTANTS: [&str; 10] = [
    "enqueued",
    "due",
    "since",
    "claimed",
    "lease-until",
    "deadline",
    "ended",
    "next-wakeup",
    "paused-until",
    "first-seen",
];

/// What the commands show of the furnished queues; without what they show of the clock.
pub fn shown(c: &mut Client) -> Vec<Fact> {
    let mut facts = Vec::new();
    let mut add = |of: &str, entries: Vec<(String, Reply)>, without: &[&str]| {
        let told = entries.into_iter().filter(|(name, _)| !without.contains(&name.as_str()));
        facts.extend(told.map(|(name, value)| (of.to_string(), name, value)));
    };
    for queue in FURNISHED {
        let stats = cmd!(c, "RQ.STATS", queue).entries();
        add(queue, stats, &["oldest-ready-age", "bytes", "waiting-workers", "rates"]);
        add(queue, cmd!(c, "RQ.QUEUE.GET", queue).entries(), &[]);
        for state in ["delayed", "ready", "active", "done", "dead", "cancelled"] {
            for job in cmd!(c, "RQ.LIST", queue, state, "COUNT", 1000).list()[1].list() {
                let id = job.get("id").text();
                add(&format!("{queue} {id}"), cmd!(c, "RQ.JOB", queue, id).entries(), &["ttl"]);
            }
        }
        for worker in workers(c, queue) {
            let name = worker.get("name").text();
            add(&format!("{queue} {name}"), worker.entries(), &["last-seen", "waiting-since", "stale"]);
        }
    }
    facts
}

/// Fails with the facts that differ.
#[track_caller]
pub fn assert_same(what: &str, before: &[Fact], after: &[Fact]) {
    let same = |old: &Fact, new: &Fact| match (&old.2, &new.2) {
        _ if (&old.0, &old.1) != (&new.0, &new.1) => false,
        (Reply::Int(one), Reply::Int(other)) if INSTANTS.contains(&old.1.as_str()) => {
            one.abs_diff(*other) < 500
        }
        (one, other) => one == other,
    };
    let differ: Vec<_> = before.iter().zip(after).filter(|(old, new)| !same(old, new)).take(10).collect();
    assert!(differ.is_empty(), "{what}, before and after: {differ:#?}");
    assert_eq!(before.len(), after.len(), "{what}: more or fewer facts");
}

#[track_caller]
fn same_after(server: &mut Server, what: &str, mut step: impl FnMut(&mut Server)) {
    let before = (digests(server), shown(&mut server.client()));
    step(server);
    assert_same(what, &before.1, &shown(&mut server.client()));
    assert_eq!(digests(server), before.0, "{what}");
}

fn debug_reload(lab: &Lab) {
    let mut server = lab.server();
    furnish(&mut server.client());
    same_after(&mut server, "DEBUG RELOAD", |server| {
        cmd!(server.client(), "DEBUG", "RELOAD");
    });
}

fn rdb_restart(lab: &Lab) {
    let mut server = lab.server();
    furnish(&mut server.client());
    same_after(&mut server, "SHUTDOWN SAVE", |server| {
        server.shutdown_saving();
        server.restart();
    });
    same_after(&mut server, "BGSAVE and a crash", |server| {
        cmd!(server.client(), "BGSAVE");
        until("saved", || server.info("rdb_bgsave_in_progress") == "0");
        assert_eq!(server.info("rdb_last_bgsave_status"), "ok");
        server.kill9();
        server.restart();
    });
}

fn rewrite(server: &Server) {
    cmd!(server.client(), "BGREWRITEAOF");
    until("the AOF is rewritten", || {
        server.info("aof_rewrite_in_progress") == "0" && server.info("aof_rewrite_scheduled") == "0"
    });
    assert_eq!(server.info("aof_last_bgrewrite_status"), "ok");
}

fn aof_restart(lab: &Lab, preamble: &str) {
    let mut server = lab.server_with(&[
        ("appendonly", "yes"),
        ("appendfsync", "always"),
        ("aof-use-rdb-preamble", preamble),
    ]);
    furnish(&mut server.client());
    let restart = |server: &mut Server| {
        server.kill9();
        server.restart();
    };
    same_after(&mut server, "the AOF as it was written", restart);
    same_after(&mut server, "the AOF rewritten", |server| {
        rewrite(server);
        restart(server);
    });
    // Commands on top of the rewritten file.
    let mut c = server.client();
    while let Some(job) = try_claim(&mut c, "q", "late") {
        cmd!(c, "RQ.ACK", "q", job.id, job.token, "RESULT", "late");
    }
    same_after(&mut server, "more behind the rewrite", restart);
    same_after(&mut server, "DEBUG LOADAOF", |server| {
        cmd!(server.client(), "DEBUG", "LOADAOF");
    });
}

fn aof_restart_with_preamble(lab: &Lab) {
    aof_restart(lab, "yes");
}

fn aof_restart_without_preamble(lab: &Lab) {
    aof_restart(lab, "no");
}

/// C17: with rewrites and saves going on, nothing is handed out twice.
fn aof_rewritten_under_load(lab: &Lab) {
    let mut server = lab.server_with(&[
        ("appendonly", "yes"),
        ("appendfsync", "everysec"),
        ("aof-use-rdb-preamble", "no"),
    ]);
    let mut c = server.client();
    let mut worker = server.client();
    let mut seen = HashSet::new();
    let rounds = if soak() { 100 } else { 30 };
    for round in 0..rounds {
        if round % 10 == 2 {
            c.call(args!["BGREWRITEAOF"]);
        }
        if round % 10 == 7 {
            c.call(args!["BGSAVE"]);
        }
        let mut args = args!["RQ.MENQUEUE", "q", "JOBS", 100];
        args.extend((0..100).map(|number| (round * 100 + number).to_arg()));
        c.run(args);
        for job in jobs(&cmd!(worker, "RQ.CLAIM", "q", "w", "COUNT", 100)) {
            assert_eq!(job.delivery, 1);
            assert!(seen.insert(job.text()), "{} twice", job.text());
            if round % 7 != 0 {
                assert_eq!(ack(&mut worker, "q", &job), 1);
            }
        }
    }
    assert_eq!(seen.len(), rounds * 100);
    until("the children are done", || {
        server.info("aof_rewrite_in_progress") == "0" && server.info("rdb_bgsave_in_progress") == "0"
    });
    let digest = server.digest("q");
    server.shutdown();
    server.restart();
    assert_eq!(server.digest("q"), digest);
}

/// C24: nobody sends a command after the restart but the workers who wait.
fn timers_go_on_after_a_crash(lab: &Lab) {
    let mut server = lab.server_with(&[("appendonly", "yes"), ("appendfsync", "always")]);
    let mut c = server.client();
    for number in 0..20 {
        cmd!(c, "RQ.ENQUEUE", "q", format!("delayed {number}"), "DELAY", 1500);
        cmd!(c, "RQ.ENQUEUE", "q", format!("active {number}"), "LEASE", 1500, "PRIORITY", 1);
    }
    assert_eq!(jobs(&cmd!(c, "RQ.CLAIM", "q", "dead", "COUNT", 20)).len(), 20);
    let _waiting: Vec<Client> = (0..20)
        .map(|number| waiting_claim_with(&server, "q", &format!("w{number}"), 0, &["LEASE", "1500"]))
        .collect();
    server.kill9();
    server.restart();
    let mut workers: Vec<Client> = (0..40).map(|_| server.client()).collect();
    for (number, worker) in workers.iter_mut().enumerate() {
        send!(worker, "RQ.CLAIM", "q", format!("w{number}"), "BLOCK", 0, "LEASE", 60_000);
    }
    let mut seen: HashMap<String, i64> = HashMap::new();
    for worker in &mut workers {
        let job = jobs(&worker.read()).remove(0);
        seen.insert(job.text(), job.delivery);
    }
    assert_eq!(seen.len(), 40, "each of them once");
    assert!(
        // More of them, if on a busy machine some came due before the crash.
        seen.iter().all(|(payload, delivery)| *delivery >= if payload.starts_with("active") { 2 } else { 1 }),
        "{seen:?}"
    );
}

fn delays_are_absolute_across_a_restart(lab: &Lab) {
    let mut server = lab.server_with(&[("appendonly", "yes"), ("appendfsync", "always")]);
    let start = unix_ms();
    cmd!(server.client(), "RQ.ENQUEUE", "q", "x", "DELAY", 2500);
    server.kill9();
    server.restart();
    let mut c = server.client();
    assert_eq!(counts(&mut c, "q").delayed, 1);
    until("due", || counts(&mut c, "q").ready == 1);
    let took = unix_ms() - start;
    assert!((2490..3600).contains(&took), "{took} ms");
}

fn ids_stay_above_what_was_loaded(lab: &Lab) {
    let mut server = lab.server_with(&[("appendonly", "yes"), ("appendfsync", "always")]);
    let number = |serial: &str| {
        let (time, count) = serial.split_once('-').unwrap();
        (time.parse::<u64>().unwrap(), count.parse::<u64>().unwrap())
    };
    for _ in 0..3 {
        let mut c = server.client();
        enqueue(&mut c, "q", "x");
        let token = claim(&mut c, "q", "w").token;
        server.kill9();
        server.restart();
        let id = enqueue(&mut server.client(), "other", "x");
        assert!(number(&id) > number(&token), "{id} after {token}");
    }
}

/// C63: the file does not name the module when there is no queue.
fn a_queue_emptied_leaves_no_trace(lab: &Lab) {
    let mut server = lab.server();
    let mut c = server.client();
    enqueue(&mut c, "q", "x");
    cmd!(c, "DEL", "q");
    cmd!(c, "SET", "kept", "x");
    server.shutdown_saving();
    server.without_module();
    server.restart();
    assert_eq!(cmd!(server.client(), "GET", "kept").text(), "x");
}

fn an_empty_queue_is_kept(lab: &Lab) {
    let mut server = lab.server();
    let mut c = server.client();
    cmd!(c, "RQ.QUEUE.SET", "q", "LEASE", 77);
    server.shutdown_saving();
    server.restart();
    assert_eq!(cmd!(server.client(), "RQ.QUEUE.GET", "q").get("lease").int(), 77);
    // Without the module the file is refused and not read wrongly.
    server.shutdown_saving();
    server.without_module();
    server.restart_refused();
}

fn repeated_reloads_change_nothing(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    furnish(&mut c);
    let before = digests(&server);
    let memory = server.info_number("used_memory");
    for _ in 0..30 {
        cmd!(c, "DEBUG", "RELOAD");
    }
    assert_eq!(digests(&server), before);
    let now = server.info_number("used_memory");
    assert!(now < memory + 500_000, "memory grew from {memory} to {now}");
    // It still works.
    until("every ready job can be claimed", || try_claim(&mut c, "q", "w").is_none());
    assert_eq!(counts(&mut c, "q").ready, 0);
}

fn many_queues_and_databases(lab: &Lab) {
    let mut server = lab.server();
    let mut c = server.client();
    for db in 0..16 {
        cmd!(c, "SELECT", db);
        for number in 0..20 {
            cmd!(c, "RQ.ENQUEUE", format!("q{number}"), format!("{db} {number}"), "DELAY", 300);
        }
    }
    server.shutdown_saving();
    server.restart();
    let mut c = server.client();
    for db in 0..16 {
        cmd!(c, "SELECT", db);
        for number in 0..20 {
            let job = claim_soon(&mut c, &format!("q{number}"), "w");
            assert_eq!(job.text(), format!("{db} {number}"));
        }
    }
}

fn what_waiters_were_given_is_in_the_aof(lab: &Lab) {
    let mut server = lab.server_with(&[("appendonly", "yes"), ("appendfsync", "always")]);
    let mut c = server.client();
    let mut waiter = waiting_claim(&server, "q", "waiter", 0);
    let id = enqueue(&mut c, "q", "x");
    let job = jobs(&waiter.read()).remove(0);
    let digest = server.digest("q");
    server.kill9();
    server.restart();
    assert_eq!(server.digest("q"), digest);
    let mut c = server.client();
    assert_eq!(state(&mut c, "q", id), "active");
    assert_eq!(ack(&mut c, "q", &job), 1);
}

/// The file ends inside of a transaction's command, as after a loss of power. Redis cuts it in the middle of the
/// transaction; what was written behind that would bring half of it back with the second restart.
fn half_a_transaction_does_not_come_back(lab: &Lab) {
    for preamble in ["yes", "no"] {
        let mut server = lab.server_with(&[
            ("appendonly", "yes"),
            ("appendfsync", "always"),
            ("aof-use-rdb-preamble", preamble),
            ("auto-aof-rewrite-percentage", "0"),
            // What comes back would else end the server, in this test.
            ("propagation-error-behavior", "ignore"),
        ]);
        let mut c = server.client();
        enqueue(&mut c, "q", "first");
        enqueue(&mut c, "gone", "x");
        cmd!(c, "MULTI");
        cmd!(c, "DEL", "gone");
        cmd!(c, "RQ.ENQUEUE", "q", "half", "PRIORITY", 9);
        cmd!(c, "RQ.ENQUEUE", "q", "the end of the file");
        cmd!(c, "EXEC");
        server.kill9();
        let folder = server.dir.join("appendonlydir");
        let files = std::fs::read_dir(&folder).expect("the folder").flatten().map(|file| file.path());
        let file = files.filter(|path| path.to_string_lossy().ends_with("incr.aof")).max().expect("a file");
        let bytes = std::fs::read(&file).expect("it can be read");
        let words = b"the end of";
        let end = bytes.windows(words.len()).position(|some| some == words).expect("it is there");
        std::fs::write(&file, &bytes[..end]).expect("it can be cut");
        server.restart();
        let mut c = server.client();
        assert_eq!(counts(&mut c, "q").ready, 1);
        until("the file is written anew", || server.info("aof_rewrite_in_progress") == "0" && !file.exists());
        enqueue(&mut c, "gone", "y");
        let job = claim(&mut c, "q", "w");
        assert_eq!(job.text(), "first");
        ack(&mut c, "q", &job);
        let before = (server.digest("q"), server.digest("gone"));
        server.kill9();
        server.restart();
        assert_eq!((server.digest("q"), server.digest("gone")), before);
        assert_eq!(counts(&mut server.client(), "q").sum(), 0);
        assert_eq!(counts(&mut server.client(), "gone").ready, 2);
    }
}

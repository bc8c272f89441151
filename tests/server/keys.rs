//! A queue is a key like any other: it can move, be copied, expire, be refused, and be restored from anything.

use crate::common::*;
use crate::{args, cmd, refused, tests};

pub const TESTS: &[Test] = tests![
    leases_go_on_under_another_name,
    moved_to_another_database,
    copied_with_its_leases,
    dumped_and_restored,
    migrated_to_another_server,
    swapped_databases,
    expires_like_a_key,
    a_gone_key_answers_workers,
    flush_with_timers_armed,
    large_queue_freed_in_the_background,
    watch_sees_every_change,
    keyspace_events,
];

/// A queue `q` with one job of each state; the lease, the delay and the result end in 1.5 s.
fn mixed(c: &mut Client) -> Job {
    cmd!(c, "RQ.ENQUEUE", "q", "delayed", "DELAY", 1500);
    cmd!(c, "RQ.ENQUEUE", "q", "done");
    let job = claim(c, "q", "w");
    cmd!(c, "RQ.ACK", "q", job.id, job.token, "RESULT", "r", "TTL", 1500);
    cmd!(c, "RQ.ENQUEUE", "q", "dead");
    let job = claim(c, "q", "w");
    cmd!(c, "RQ.FAIL", "q", job.id, job.token, "DEAD");
    cmd!(c, "RQ.ENQUEUE", "q", "active", "LEASE", 1500);
    claim(c, "q", "w")
}

#[track_caller]
fn all_came_due(c: &mut Client, queue: &str) {
    until_counts(c, queue, Counts { ready: 2, dead: 1, ..Counts::default() });
}

fn leases_go_on_under_another_name(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let job = mixed(&mut c);
    let digest = server.digest("q");
    cmd!(c, "RENAME", "q", "r");
    assert_eq!(server.digest("r"), digest);
    assert_eq!(cmd!(c, "RQ.EXTEND", "r", "w", "LEASE", 400, job.id, job.token).texts(), ["ok"]);
    all_came_due(&mut c, "r");
    assert_eq!(cmd!(c, "EXISTS", "q").int(), 0);
    // Over another queue.
    cmd!(c, "RQ.ENQUEUE", "s", "x", "DELAY", 50);
    cmd!(c, "RENAME", "r", "s");
    assert_eq!(counts(&mut c, "s"), Counts { ready: 2, dead: 1, ..Counts::default() });
}

fn moved_to_another_database(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let job = mixed(&mut c);
    assert_eq!(cmd!(c, "MOVE", "q", 9).int(), 1);
    assert_eq!(ack(&mut c, "q", &job), 0, "there is no such queue here");
    cmd!(c, "SELECT", 9);
    all_came_due(&mut c, "q");
}

fn copied_with_its_leases(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let job = mixed(&mut c);
    assert_eq!(cmd!(c, "COPY", "q", "copy").int(), 1);
    assert_eq!(server.digest("copy"), server.digest("q"));
    all_came_due(&mut c, "copy");
    all_came_due(&mut c, "q");
    // They are two queues from now on.
    assert_eq!(refused!(c, "RQ.ACK", "q", job.id, job.token), "STALE");
    cmd!(c, "RQ.PURGE", "q", "ready");
    assert_eq!(counts(&mut c, "copy").ready, 2);
    // Ids of both stay apart.
    let mut ids = vec![enqueue(&mut c, "q", "x"), enqueue(&mut c, "copy", "x")];
    ids.dedup();
    assert_eq!(ids.len(), 2);
}

fn dumped_and_restored(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let job = mixed(&mut c);
    let digest = server.digest("q");
    let dump = cmd!(c, "DUMP", "q").bytes().to_vec();
    cmd!(c, "DEL", "q");
    assert_eq!(cmd!(c, "RESTORE", "q", 0, dump).text(), "OK");
    assert_eq!(server.digest("q"), digest);
    assert_eq!(cmd!(c, "RQ.EXTEND", "q", "w", "LEASE", 400, job.id, job.token).texts(), ["ok"]);
    all_came_due(&mut c, "q");
    // Another queue in its place: its own tokens, and nothing of the old one.
    cmd!(c, "RESTORE", "q", 0, dump, "REPLACE");
    assert_eq!(refused!(c, "RESTORE", "q", 0, dump), "BUSYKEY");
    all_came_due(&mut c, "q");
    let last = job.token;
    let id = enqueue(&mut c, "fresh", "x");
    assert!(id > last, "ids stay above every token that was loaded: {id} after {last}");
}

fn migrated_to_another_server(lab: &Lab) {
    let one = lab.server();
    let two = lab.server();
    let mut c = one.client();
    let job = mixed(&mut c);
    let digest = one.digest("q");
    assert_eq!(cmd!(c, "MIGRATE", "127.0.0.1", two.port, "q", 0, 5000).text(), "OK");
    assert_eq!(cmd!(c, "EXISTS", "q").int(), 0);
    let mut c = two.client();
    assert_eq!(two.digest("q"), digest);
    assert_eq!(cmd!(c, "RQ.EXTEND", "q", "w", "LEASE", 400, job.id, job.token).texts(), ["ok"]);
    all_came_due(&mut c, "q");
    let id = enqueue(&mut c, "q", "x");
    assert!(id > job.token, "{id} after {}", job.token);
}

fn swapped_databases(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    mixed(&mut c);
    let mut other = server.client();
    cmd!(other, "SELECT", 1);
    cmd!(other, "RQ.ENQUEUE", "other", "x", "DELAY", 400);
    cmd!(c, "SWAPDB", 0, 1);
    all_came_due(&mut other, "q");
    until_counts(&mut c, "other", Counts { ready: 1, ..Counts::default() });
}

fn expires_like_a_key(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    mixed(&mut c);
    cmd!(c, "PEXPIRE", "q", 150);
    until("it expires, with a lease open", || cmd!(c, "EXISTS", "q").int() == 0);
    enqueue(&mut c, "q", "x");
    assert_eq!(counts(&mut c, "q"), Counts { ready: 1, ..Counts::default() });
    holds("nothing of the old queue comes back", ms(500), || counts(&mut c, "q").sum() == 1);
}

/// C56.
fn a_gone_key_answers_workers(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    for how in ["DEL", "UNLINK", "FLUSHALL", "SET", "RENAME"] {
        cmd!(c, "FLUSHALL");
        enqueue(&mut c, "q", "x");
        let job = claim_for(&mut c, "q", "w", 3_600_000);
        match how {
            "DEL" | "UNLINK" => cmd!(c, how, "q"),
            "FLUSHALL" => cmd!(c, how),
            "RENAME" => cmd!(c, how, "q", "elsewhere"),
            _ => cmd!(c, how, "q", "x"),
        };
        if how == "SET" {
            assert_eq!(refused!(c, "RQ.ACK", "q", job.id, job.token), "WRONGTYPE");
            continue;
        }
        assert_eq!(ack(&mut c, "q", &job), 0);
        assert_eq!(refused!(c, "RQ.FAIL", "q", job.id, job.token), "NOQUEUE");
        assert_eq!(cmd!(c, "RQ.EXTEND", "q", "w", "LEASE", 5, job.id, job.token).texts(), ["lost"]);
        // Made anew, the queue does not know the old delivery.
        enqueue(&mut c, "q", "y");
        assert_eq!(ack(&mut c, "q", &job), 0);
        assert_eq!(refused!(c, "RQ.FAIL", "q", job.id, job.token), "NOJOB");
    }
}

fn flush_with_timers_armed(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    for how in [
        args!["FLUSHALL"],
        args!["FLUSHALL", "ASYNC"],
        args!["FLUSHDB"],
        args!["DEL", "q"],
        args!["UNLINK", "q"],
        args!["SET", "q", "x"],
    ] {
        cmd!(c, "DEL", "q");
        for _ in 0..100 {
            cmd!(c, "RQ.ENQUEUE", "q", "x", "DELAY", 20);
        }
        c.run(how);
    }
    cmd!(c, "FLUSHALL");
    cmd!(c, "RQ.ENQUEUE", "q", "x", "DELAY", 100);
    until_counts(&mut c, "q", Counts { ready: 1, ..Counts::default() });
}

fn large_queue_freed_in_the_background(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let mut args = args!["RQ.MENQUEUE", "q", "JOBS", 1000];
    args.extend((0..1000).map(|_| vec![b'x'; 100]));
    // The best of three: the processor has other tests to run.
    let best = (0..3).map(|_| {
        for _ in 0..100 {
            c.send(args.clone());
        }
        for _ in 0..100 {
            c.read();
        }
        cmd!(c, "CONFIG", "RESETSTAT");
        cmd!(c, "UNLINK", "q");
        let line = server.info("cmdstat_unlink");
        let usec = line.split("usec=").nth(1).and_then(|rest| rest.split(',').next()).unwrap();
        usec.parse::<u64>().unwrap()
    });
    let best = best.min().expect("three");
    assert!(best < 5000, "UNLINK took {best} µs");
    until("it is freed", || {
        server.info("lazyfree_pending_objects") == "0" && server.info_number("lazyfreed_objects") >= 1
    });
}

fn watch_sees_every_change(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let mut other = server.client();
    enqueue(&mut other, "q", "x");
    let job = claim(&mut other, "q", "w");
    for change in [
        args!["RQ.ENQUEUE", "q", "y"],
        args!["RQ.CLAIM", "q", "w"],
        args!["RQ.PAUSE", "q"],
        args!["RQ.ACK", "q", job.id, job.token],
    ] {
        cmd!(c, "WATCH", "q");
        other.run(change.clone());
        cmd!(c, "MULTI");
        cmd!(c, "PING");
        assert!(cmd!(c, "EXEC").is_nil(), "{change:?}");
    }
    for look in
        [args!["RQ.STATS", "q"], args!["RQ.LIST", "q", "ready"], args!["RQ.ACK", "q", job.id, job.token]]
    {
        cmd!(c, "WATCH", "q");
        other.run(look.clone());
        cmd!(c, "MULTI");
        cmd!(c, "PING");
        assert!(!cmd!(c, "EXEC").is_nil(), "{look:?} changes nothing");
    }
}

fn keyspace_events(lab: &Lab) {
    let server = lab.server_with(&[("notify-keyspace-events", "KEA")]);
    let mut listener = server.client();
    cmd!(listener, "SUBSCRIBE", "__keyspace@0__:q");
    let mut c = server.client();
    enqueue(&mut c, "q", "x");
    let event = eventually("an event for the enqueue", || listener.read_within(ms(100)));
    assert_eq!(event.list()[1].text(), "__keyspace@0__:q");
}

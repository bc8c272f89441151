//! `RQ.RECOVER`, and what a lapse does.

use crate::common::*;
use crate::{cmd, refused, tests};

pub const TESTS: &[Test] = tests![
    these_workers,
    every_worker_except,
    except_touches_no_live_lease,
    idle_workers,
    before_an_instant,
    pages,
    uncounted,
    without_selector,
    crashes_run_out,
    crashes_and_attempts_are_counted_apart,
    returned_jobs_are_next,
    a_thousand_calls_take_each_job_once,
    work_is_proportional_to_the_jobs_taken,
    wrong_calls,
];

/// Reads `[taken, remaining, map worker → taken]`.
#[track_caller]
fn recovered(reply: &Reply) -> (i64, i64, Vec<(String, i64)>) {
    let fields = reply.list();
    let mut workers: Vec<(String, i64)> =
        fields[2].entries().iter().map(|(name, taken)| (name.clone(), taken.int())).collect();
    workers.sort();
    (fields[0].int(), fields[1].int(), workers)
}

/// Ten jobs of which `a` holds four, `b` three and `c` two.
fn three_workers(c: &mut Client) {
    cmd!(c, "RQ.MENQUEUE", "q", "LEASE", 3_600_000, "JOBS", 10, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9);
    for (worker, count) in [("a", 4), ("b", 3), ("c", 2)] {
        assert_eq!(jobs(&cmd!(c, "RQ.CLAIM", "q", worker, "COUNT", count)).len(), count);
    }
}

fn these_workers(lab: &Lab) {
    let server = lab.server();
    for mut c in [server.client(), server.client3()] {
        cmd!(c, "FLUSHALL");
        three_workers(&mut c);
        let reply = cmd!(c, "RQ.RECOVER", "q", "WORKERS", 3, "a", "c", "nobody");
        assert_eq!(recovered(&reply), (6, 0, vec![("a".into(), 4), ("c".into(), 2)]));
        assert_eq!(counts(&mut c, "q"), Counts { ready: 7, active: 3, ..Counts::default() });
        // Once is enough.
        let before = fingerprint(&server, "q");
        assert_eq!(recovered(&cmd!(c, "RQ.RECOVER", "q", "WORKERS", 3, "a", "c", "nobody")), (0, 0, vec![]));
        assert_eq!(fingerprint(&server, "q"), before);
        assert_eq!(recovered(&cmd!(c, "RQ.RECOVER", "none", "WORKERS", 1, "a")), (0, 0, vec![]));
        assert_eq!(cmd!(c, "EXISTS", "none").int(), 0);
    }
}

fn every_worker_except(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    three_workers(&mut c);
    assert_eq!(
        recovered(&cmd!(c, "RQ.RECOVER", "q", "EXCEPT", 2, "b", "unknown")),
        (6, 0, vec![("a".into(), 4), ("c".into(), 2)])
    );
    // None are expected at all.
    assert_eq!(recovered(&cmd!(c, "RQ.RECOVER", "q", "EXCEPT", 0)), (3, 0, vec![("b".into(), 3)]));
    assert_eq!(counts(&mut c, "q"), Counts { ready: 10, ..Counts::default() });
}

fn except_touches_no_live_lease(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    three_workers(&mut c);
    let token = |c: &mut Client| cmd!(c, "RQ.LIST", "q", "active", "WORKER", "b");
    let held = token(&mut c);
    cmd!(c, "RQ.RECOVER", "q", "EXCEPT", 1, "b");
    assert_eq!(token(&mut c), held);
}

fn idle_workers(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    cmd!(c, "RQ.MENQUEUE", "q", "LEASE", 3_600_000, "JOBS", 3, 0, 1, 2);
    claim(&mut c, "q", "a");
    let held = claim(&mut c, "q", "b");
    claim(&mut c, "q", "c");
    assert_eq!(recovered(&cmd!(c, "RQ.RECOVER", "q", "IDLE", 3_600_000)), (0, 0, vec![]));
    // `b` keeps giving signs of life, the others do not.
    let mut taken = Vec::new();
    until("a and c have been idle for 800 ms", || {
        assert_eq!(cmd!(c, "RQ.EXTEND", "q", "b", "LEASE", 3_600_000, held.id, held.token).texts(), ["ok"]);
        taken.extend(recovered(&cmd!(c, "RQ.RECOVER", "q", "IDLE", 800)).2);
        taken.len() == 2
    });
    taken.sort();
    assert_eq!(taken, [("a".into(), 1), ("c".into(), 1)]);
    assert_eq!(ack(&mut c, "q", &held), 1);
}

fn before_an_instant(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    cmd!(c, "RQ.MENQUEUE", "q", "JOBS", 2, "old", "new");
    let old = claim(&mut c, "q", "w");
    until("another millisecond", {
        let now = unix_ms();
        move || unix_ms() > now + 2
    });
    let restarted = unix_ms();
    until("another millisecond", move || unix_ms() > restarted + 2);
    claim(&mut c, "q", "w");
    let reply = cmd!(c, "RQ.RECOVER", "q", "WORKERS", 1, "w", "BEFORE", restarted);
    assert_eq!(recovered(&reply), (1, 0, vec![("w".into(), 1)]));
    assert_eq!(state(&mut c, "q", &old.id), "ready");
}

fn pages(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    three_workers(&mut c);
    let mut left = 9;
    while left > 0 {
        let (taken, remaining, _) = recovered(&cmd!(c, "RQ.RECOVER", "q", "EXCEPT", 0, "COUNT", 2));
        assert_eq!(taken, left.min(2));
        left -= taken;
        assert_eq!(remaining, left);
    }
}

fn uncounted(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let id = cmd!(c, "RQ.ENQUEUE", "q", "x", "CRASHES", 0).text();
    for _ in 0..3 {
        claim(&mut c, "q", "w");
        assert_eq!(
            recovered(&cmd!(c, "RQ.RECOVER", "q", "WORKERS", 1, "w", "UNCOUNTED")),
            (1, 0, vec![("w".into(), 1)])
        );
        assert_eq!(job(&mut c, "q", &id).expect("it exists")["crashes"].int(), 0);
    }
    claim(&mut c, "q", "w");
    // Counted, it is dead, and taken all the same.
    assert_eq!(recovered(&cmd!(c, "RQ.RECOVER", "q", "WORKERS", 1, "w")), (1, 0, vec![("w".into(), 1)]));
    let facts = job(&mut c, "q", &id).expect("it is kept");
    assert_eq!((facts["state"].text(), facts["reason"].text()), ("dead".into(), "crashes".into()));
}

fn without_selector(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    three_workers(&mut c);
    let before = fingerprint(&server, "q");
    // Nothing has lapsed.
    assert_eq!(recovered(&cmd!(c, "RQ.RECOVER", "q")), (0, 0, vec![]));
    assert_eq!(fingerprint(&server, "q"), before);
}

fn crashes_run_out(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let id = cmd!(c, "RQ.ENQUEUE", "q", "x", "CRASHES", 2, "BACKOFF", 20, 20, "LEASE", 30).text();
    for delivery in 1..=3 {
        let job = claim_soon(&mut c, "q", "w");
        assert_eq!(job.delivery, delivery);
    }
    until("dead after the third lapse", || state(&mut c, "q", &id) == "dead");
    let facts = job(&mut c, "q", &id).expect("it is kept");
    assert_eq!(
        (facts["reason"].text(), facts["crashes"].int(), facts["attempts"].int()),
        ("crashes".into(), 3, 0)
    );
    assert_eq!(facts["payload"].text(), "x");
    // Redriven it starts anew, and only the deliveries go on counting.
    cmd!(c, "RQ.REDRIVE", "q", id);
    let again = claim(&mut c, "q", "w");
    assert_eq!(again.delivery, 4);
    assert_eq!(job(&mut c, "q", &id).expect("it exists")["crashes"].int(), 0);
}

fn crashes_and_attempts_are_counted_apart(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let id = cmd!(c, "RQ.ENQUEUE", "q", "x", "ATTEMPTS", 1, "CRASHES", 3, "LEASE", 30).text();
    claim(&mut c, "q", "w");
    let again = claim_soon(&mut c, "q", "w");
    cmd!(c, "RQ.EXTEND", "q", "w", "LEASE", 60_000, id, again.token);
    assert_eq!(cmd!(c, "RQ.FAIL", "q", id, again.token).text(), "dead");
    let facts = job(&mut c, "q", &id).expect("it is kept");
    assert_eq!(
        (facts["reason"].text(), facts["attempts"].int(), facts["crashes"].int()),
        ("attempts".into(), 1, 1)
    );
    let id = cmd!(c, "RQ.ENQUEUE", "q", "x", "ATTEMPTS", 3, "CRASHES", 0, "LEASE", 30).text();
    claim(&mut c, "q", "w");
    until("dead at its first lapse", || state(&mut c, "q", &id) == "dead");
    assert_eq!(job(&mut c, "q", &id).expect("it is kept")["reason"].text(), "crashes");
}

fn returned_jobs_are_next(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    three_workers(&mut c);
    cmd!(c, "RQ.RECOVER", "q", "EXCEPT", 0);
    let order: Vec<String> =
        jobs(&cmd!(c, "RQ.CLAIM", "q", "w", "COUNT", 100)).iter().map(Job::text).collect();
    assert_eq!(order, ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
}

fn a_thousand_calls_take_each_job_once(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    three_workers(&mut c);
    let mut machines: Vec<Client> = (0..50).map(|_| server.client()).collect();
    for machine in &mut machines {
        for _ in 0..20 {
            crate::send!(machine, "RQ.RECOVER", "q", "EXCEPT", 1, "b");
        }
    }
    let mut taken = 0;
    for machine in &mut machines {
        for _ in 0..20 {
            taken += machine.read().list()[0].int();
        }
    }
    assert_eq!(taken, 6);
    assert_eq!(counts(&mut c, "q"), Counts { ready: 7, active: 3, ..Counts::default() });
}

/// C22: neither the keyspace nor the queue nor the live workers' jobs are looked through.
fn work_is_proportional_to_the_jobs_taken(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let cost = |c: &mut Client| {
        cmd!(c, "RQ.MENQUEUE", "q", "PRIORITY", 255, "JOBS", 10, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9);
        cmd!(c, "RQ.CLAIM", "q", "gone", "COUNT", 10);
        cmd!(c, "CONFIG", "RESETSTAT");
        assert_eq!(cmd!(c, "RQ.RECOVER", "q", "WORKERS", 1, "gone").list()[0].int(), 10);
        let line = server.info("cmdstat_rq.recover");
        let usec = line
            .split("usec=")
            .nth(1)
            .and_then(|rest| rest.split(',').next())
            .expect("usec")
            .parse::<u64>()
            .unwrap();
        cmd!(c, "RQ.CLAIM", "q", "live", "COUNT", 10, "LEASE", 3_600_000);
        usec
    };
    let small: u64 = (0..5).map(|_| cost(&mut c)).min().expect("five");
    cmd!(c, "DEBUG", "POPULATE", 200_000);
    let mut args = crate::args!["RQ.MENQUEUE", "q", "JOBS", 1000];
    args.extend((0..1000).map(|number| number.to_arg()));
    for _ in 0..50 {
        c.send(args.clone());
    }
    for _ in 0..50 {
        assert_eq!(c.read().list().len(), 1000);
    }
    for worker in 0..10 {
        cmd!(c, "RQ.CLAIM", "q", format!("live{worker}"), "COUNT", 1000, "LEASE", 3_600_000);
    }
    let large: u64 = (0..5).map(|_| cost(&mut c)).min().expect("five");
    assert!(large <= small * 4 + 100, "{large} µs, and {small} µs in a small queue");
}

fn wrong_calls(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    three_workers(&mut c);
    let before = fingerprint(&server, "q");
    for wrong in [
        &["WORKERS"][..],
        &["WORKERS", "2", "a"],
        &["WORKERS", "-1", "a"],
        &["WORKERS", "1001"],
        &["WORKERS", "1", "a", "EXCEPT", "1", "b"],
        &["WORKERS", "1", "a", "IDLE", "5"],
        &["IDLE", "-1"],
        &["IDLE"],
        &["COUNT", "0"],
        &["COUNT", "1001"],
        &["BEFORE", "x"],
        &["SOMETHING"],
        &["UNCOUNTED", "UNCOUNTED"],
    ] {
        let mut args = crate::args!["RQ.RECOVER", "q"];
        args.extend(wrong.iter().map(|arg| arg.as_bytes().to_vec()));
        assert_eq!(c.refused(args), "ERR", "{wrong:?}");
    }
    cmd!(c, "SET", "string", "x");
    assert_eq!(refused!(c, "RQ.RECOVER", "string"), "WRONGTYPE");
    assert_eq!(fingerprint(&server, "q"), before);
}

//! Timers, and what does not depend on anybody asking.

use std::time::Instant;

use crate::common::*;
use crate::{args, cmd, send, tests};

pub const TESTS: &[Test] = tests![
    nothing_polls,
    instants_are_shown_the_same_every_time,
    many_due_in_one_instant,
    killed_while_many_come_due,
    a_long_list_of_delayed_jobs,
    many_queues_due,
    a_delay_longer_than_the_lease,
    order_of_delayed_jobs_is_that_of_their_instants,
    client_pause_write_with_due_timers,
    client_pause_and_waiting_claims,
];

/// A lease, a delay and a result come to their end with no command sent at all: what the server says of itself tells.
fn nothing_polls(lab: &Lab) {
    let primary = lab.server();
    let replica = lab.replica_of(&primary);
    let mut c = primary.client();
    cmd!(c, "RQ.ENQUEUE", "lease", "x", "LEASE", 200);
    claim(&mut c, "lease", "w");
    cmd!(c, "RQ.ENQUEUE", "delay", "x", "DELAY", 200);
    enqueue(&mut c, "result", "x");
    let job = claim(&mut c, "result", "w");
    cmd!(c, "RQ.ACK", "result", job.id, job.token, "RESULT", "r", "TTL", 200);
    // The replica only knows what it was told; asking it does not help the primary.
    let mut r = replica.client();
    primary.wait_for_sync(&replica);
    let all = |r: &mut Client| (counts(r, "lease"), counts(r, "delay"), counts(r, "result"));
    let ready = Counts { ready: 1, ..Counts::default() };
    until("all three came due and were told to the replica", || {
        all(&mut r) == (ready, ready, Counts::default())
    });
    for queue in ["lease", "delay", "result"] {
        assert_eq!(primary.digest(queue), replica.digest(queue));
    }
}

/// Each clock of the server has its own milliseconds: that must not show in what happened once.
fn instants_are_shown_the_same_every_time(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let id = enqueue(&mut c, "q", "x");
    let shown = job(&mut c, "q", &id).expect("it is there")["enqueued"].int();
    for micros in (0..10_000).step_by(97) {
        // Any change brings the queue's clocks up to date, at any moment of a millisecond.
        std::thread::sleep(std::time::Duration::from_micros(micros));
        enqueue(&mut c, "q", "another");
        assert_eq!(job(&mut c, "q", &id).expect("it is there")["enqueued"].int(), shown);
    }
}

/// C06, in small: other clients do not notice.
fn many_due_in_one_instant(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let due = unix_ms() + 3000;
    let mut args = args!["RQ.MENQUEUE", "q", "AT", due, "JOBS", 1000];
    args.extend((0..1000).map(|_| b"x".to_vec()));
    let rounds = 100;
    for _ in 0..rounds {
        c.send(args.clone());
    }
    for _ in 0..rounds {
        c.read();
    }
    let delayed = counts(&mut c, "q");
    assert_eq!(delayed.sum(), rounds * 1000);
    let mut worst = ms(0);
    while counts(&mut c, "q").delayed > 0 {
        let start = Instant::now();
        cmd!(c, "PING");
        worst = worst.max(start.elapsed());
        assert!(unix_ms() < due + 20_000, "they never came due");
    }
    assert_eq!(counts(&mut c, "q").ready, rounds * 1000);
    // Generous, because other tests use the processor at the same time; one slice is meant to take a millisecond.
    assert!(worst < ms(500), "{worst:?}");
}

/// C06: the server dies again and again while delayed jobs and the leases of a lost worker come due, and each job is
/// there once afterwards.
fn killed_while_many_come_due(lab: &Lab) {
    let mut server = lab.server_with(&[("appendonly", "yes"), ("appendfsync", "always")]);
    let mut dice = Dice(unix_ms());
    let (batches, held): (usize, usize) = if soak() { (200, 2_000) } else { (20, 1_000) };
    let mut c = server.client();
    let thousand = |c: &mut Client, from: usize, at: u64| {
        let mut args = args!["RQ.MENQUEUE", "q", "AT", at, "JOBS", 1000];
        args.extend((from..from + 1000).map(|number| number.to_string().into_bytes()));
        assert_eq!(c.run(args).list().len(), 1000);
    };
    for from in (0..held).step_by(1000) {
        thousand(&mut c, from, 0);
    }
    let mut taken = 0;
    while taken < held {
        taken += cmd!(c, "RQ.CLAIM", "q", "lost", "COUNT", 1000, "LEASE", 60_000).list().len();
    }
    let due = unix_ms() + if soak() { 20_000 } else { 3_000 };
    for batch in 0..batches {
        thousand(&mut c, held + batch * 1000, due);
    }
    assert!(unix_ms() < due, "they are all there before the instant");
    until("the instant has come", || unix_ms() >= due);
    for _ in 0..if soak() { 20 } else { 4 } {
        // The leases come due by hand, a slice at a time, so that both go on while the server dies.
        send!(c, "RQ.RECOVER", "q", "WORKERS", 1, "lost", "COUNT", held / 5);
        std::thread::sleep(ms(dice.roll(30)));
        server.kill9();
        server.restart();
        c = server.client();
        assert_eq!(counts(&mut c, "q").sum() as usize, held + batches * 1000);
    }
    until("the rest comes due", || counts(&mut c, "q").delayed == 0);
    while cmd!(c, "RQ.RECOVER", "q", "WORKERS", 1, "lost", "COUNT", 1000).list()[0].int() > 0 {}
    let mut seen = vec![0; held + batches * 1000];
    loop {
        let claimed = cmd!(c, "RQ.CLAIM", "q", "live", "COUNT", 1000);
        if claimed.is_nil() {
            break;
        }
        for job in crate::common::jobs(&claimed) {
            seen[job.text().parse::<usize>().expect("a number")] += 1;
        }
    }
    assert!(seen.iter().all(|&times| times == 1), "each of them once");
}

/// C29: they take little memory each, and looking at them never takes long.
fn a_long_list_of_delayed_jobs(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let rounds: i64 = if soak() { 2000 } else { 50 };
    let mut call = args!["RQ.MENQUEUE", "q", "DELAY", 3_600_000, "JOBS", 1000];
    call.extend((0..1000).map(|_| vec![b'x'; 100]));
    for _ in 0..rounds {
        c.run(call.clone());
    }
    let each = cmd!(c, "MEMORY", "USAGE", "q").int() / (rounds * 1000);
    assert!(each < 400, "{each} bytes per job");
    let page = cmd!(c, "RQ.LIST", "q", "delayed");
    assert_eq!(page.list()[1].list().len(), 100);
    assert_ne!(page.list()[0].text(), "0");
    let mut other = server.client();
    let (mut cursor, mut seen) = ("0".to_string(), std::collections::HashSet::new());
    let mut worst = ms(0);
    loop {
        send!(c, "RQ.LIST", "q", "delayed", "CURSOR", cursor, "COUNT", 1000);
        let start = Instant::now();
        cmd!(other, "PING");
        worst = worst.max(start.elapsed());
        let page = c.read();
        seen.extend(page.list()[1].list().iter().map(|job| job.get("id").text()));
        cursor = page.list()[0].text();
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(seen.len() as i64, rounds * 1000);
    // As above: generous, for a machine that does other things too.
    assert!(worst < ms(500), "{worst:?}");
}

fn many_queues_due(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    for number in 0..500 {
        send!(c, "RQ.ENQUEUE", format!("q{number}"), "x", "DELAY", 200 + number % 7);
    }
    for _ in 0..500 {
        c.read();
    }
    for number in 0..500 {
        let queue = format!("q{number}");
        until("due", || counts(&mut c, &queue).ready == 1);
    }
}

/// C10.
fn a_delay_longer_than_the_lease(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    cmd!(c, "RQ.QUEUE.SET", "q", "LEASE", 300);
    let mut waiters: Vec<Client> =
        (0..8).map(|number| waiting_claim(&server, "q", &format!("w{number}"), 0)).collect();
    let start = Instant::now();
    cmd!(c, "RQ.ENQUEUE", "q", "x", "DELAY", 1200);
    let (index, job) = eventually("one of them gets it", || {
        waiters.iter_mut().enumerate().find_map(|(index, waiter)| {
            waiter.read_within(ms(1)).map(|reply| (index, jobs(&reply).remove(0)))
        })
    });
    assert!(start.elapsed() >= ms(1199), "{:?}", start.elapsed());
    assert_eq!(job.delivery, 1);
    assert_eq!(ack(&mut c, "q", &job), 1);
    for (other, waiter) in waiters.iter_mut().enumerate() {
        assert!(other == index || waiter.read_within(ms(10)).is_none());
    }
}

fn order_of_delayed_jobs_is_that_of_their_instants(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let at = unix_ms() + 200;
    for (payload, due) in [("third", at + 40), ("first", at), ("second", at + 20), ("fourth", at + 40)] {
        cmd!(c, "RQ.ENQUEUE", "q", payload, "AT", due);
    }
    until_counts(&mut c, "q", Counts { ready: 4, ..Counts::default() });
    enqueue(&mut c, "q", "fifth");
    let order: Vec<String> =
        jobs(&cmd!(c, "RQ.CLAIM", "q", "w", "COUNT", 10)).iter().map(Job::text).collect();
    assert_eq!(order, ["first", "second", "third", "fourth", "fifth"]);
}

/// Writing from a timer while writes are paused would end the server.
fn client_pause_write_with_due_timers(lab: &Lab) {
    let mut primary = lab.server_with(&[("appendonly", "yes"), ("appendfsync", "always")]);
    let replica = lab.replica_of(&primary);
    let mut c = primary.client();
    for mode in ["WRITE", "ALL"] {
        cmd!(c, "FLUSHALL");
        cmd!(c, "RQ.QUEUE.SET", "q", "WORKERTTL", 50);
        cmd!(c, "RQ.ENQUEUE", "q", "lease", "LEASE", 300);
        claim(&mut c, "q", "w");
        cmd!(c, "RQ.ENQUEUE", "q", "delay", "DELAY", 300);
        cmd!(c, "RQ.ENQUEUE", "q", "result", "PRIORITY", 9);
        let job = claim(&mut c, "q", "w2");
        cmd!(c, "RQ.ACK", "q", job.id, job.token, "RESULT", "r", "TTL", 300);
        let mut waiter = waiting_claim(&primary, "waited", "w", 0);
        cmd!(c, "RQ.ENQUEUE", "waited", "x", "DELAY", 300);
        let start = Instant::now();
        cmd!(c, "CLIENT", "PAUSE", 1000, mode);
        let was_in_time = !waiter.is_answered();
        if mode == "WRITE" && was_in_time {
            holds("nothing is handed out in the pause", ms(600), || !waiter.is_answered());
        }
        // A write waits until the pause is over.
        cmd!(c, "RQ.ENQUEUE", "q", "after");
        assert!(start.elapsed() >= ms(990), "{:?}", start.elapsed());
        assert_eq!(jobs(&waiter.read()).len(), 1);
        assert!(primary.is_running());
        until("everything has come due", || {
            let now = counts(&mut c, "q");
            now.delayed == 0 && now.done == 0 && now.active == 0
        });
        primary.wait_for_sync(&replica);
        until("primary and replica agree", || primary.digest("q") == replica.digest("q"));
    }
}

fn client_pause_and_waiting_claims(lab: &Lab) {
    let server = lab.server_with(&[("appendonly", "yes")]);
    let _replica = lab.replica_of(&server);
    let mut c = server.client();
    cmd!(c, "RQ.ENQUEUE", "r", "x", "ID", "j");
    let mut clients: Vec<Client> = (0..6).map(|_| server.client()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        match number {
            0 => send!(client, "RQ.RESULT", "r", "j", "BLOCK", 800),
            _ => send!(client, "RQ.CLAIM", "q", format!("w{number}"), "BLOCK", 800),
        }
    }
    cmd!(c, "RQ.ENQUEUE", "q", "x", "DELAY", 400);
    cmd!(c, "CLIENT", "PAUSE", 1500, "WRITE");
    // Their time may run out in the pause, or they are served after it; and a client may leave in it.
    drop(clients.pop());
    for client in &mut clients[1..] {
        let reply = client.read();
        assert!(reply.is_nil() || jobs(&reply).len() == 1, "{reply:?}");
    }
    clients[0].read();
    until("the pause is over", || counts(&mut c, "q").delayed == 0);
    assert_eq!(counts(&mut c, "q").sum(), 1);
}

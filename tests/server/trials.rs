//! Public failures of other queues, as trials for this one. Each stands for a kind of fault; the numbers are those of the
//! collection that the project keeps. Trials that a theme covers better stand there: C06 and C10 in `time`, C17 and C24 in
//! `persistence`, C20 in `workers`, C19 and C22 in `recovery`, C26 in `errors`, C45 in `producers`, C50 in `results` and `outputs`,
//! C52 and C53 in `bytes`, C54 and C56 in `server_settings` and `keys`, C27 in `clocks`, C59 and C61 in
//! `replication`, C62 in `cluster`, C63 in `persistence`.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::common::*;
use crate::{args, cmd, refused, send, tests};

pub const TESTS: &[Test] = tests![
    c01_reply_lost_after_the_grant,
    c02_chain_of_ghosts,
    c04_client_gives_up_before_the_wait_ends,
    c05_worker_on_a_dead_socket_is_seen,
    c08_a_finished_job_stays_finished,
    c11_old_owner_finishes_after_losing_the_lease,
    c12_healthy_long_job_is_left_alone,
    c13_worker_is_told_that_it_lost_the_job,
    c15_quick_restart_of_a_worker,
    c18_crash_loop_does_not_block_the_others,
    c25_a_delayed_job_needs_no_nudge,
    c43_no_claim_after_a_pause,
    c48_a_cancel_is_not_forgotten,
    c57_idle_waits_cost_nothing,
    c66_an_id_per_tick_is_accepted_once,
];

/// A proxy that can stop forwarding what the server sends, without closing anything: a black hole.
struct Proxy {
    port: u16,
    frozen: Arc<AtomicBool>,
}

impl Proxy {
    fn new(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let frozen = Arc::new(AtomicBool::new(false));
        let (target, flag) = (server.port, frozen.clone());
        std::thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else { return };
                let (client_in, server_out) =
                    (client.try_clone().expect("a clone"), server.try_clone().expect("a clone"));
                let flag = flag.clone();
                std::thread::spawn(move || forward(client_in, server_out, None));
                std::thread::spawn(move || forward(server, client, Some(flag)));
            }
        });
        Self { port, frozen }
    }

    fn freeze(&self) {
        self.frozen.store(true, Ordering::SeqCst);
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, frozen: Option<Arc<AtomicBool>>) {
    let mut chunk = [0; 4096];
    while let Ok(count) = from.read(&mut chunk) {
        // What arrives while frozen is swallowed.
        if count == 0
            || (!frozen.as_ref().is_some_and(|flag| flag.load(Ordering::SeqCst))
                && to.write_all(&chunk[..count]).is_err())
        {
            break;
        }
    }
    if !frozen.is_some_and(|flag| flag.load(Ordering::SeqCst)) {
        let _ = to.shutdown(std::net::Shutdown::Write);
    }
}

fn c01_reply_lost_after_the_grant(lab: &Lab) {
    let server = lab.server();
    let proxy = Proxy::new(&server);
    let mut c = server.client();
    let mut lost = Client::connect(proxy.port);
    send!(lost, "RQ.CLAIM", "q", "w1", "BLOCK", 0, "LEASE", 400);
    until_blocked(&server, 1);
    proxy.freeze();
    let start = Instant::now();
    let id = enqueue(&mut c, "q", "payload");
    let facts = job(&mut c, "q", &id).expect("it exists");
    assert_eq!((facts["state"].text(), facts["worker"].text()), ("active".into(), "w1".into()));
    // At no moment are there no copies.
    let again = eventually("it comes back", || {
        assert_eq!(counts(&mut c, "q").sum(), 1);
        try_claim(&mut c, "q", "w2")
    });
    assert!(start.elapsed() >= ms(395));
    assert_eq!(
        (again.id.as_slice(), again.payload.as_slice(), again.delivery),
        (id.as_bytes(), &b"payload"[..], 2)
    );
    assert!(lost.read_within(ms(10)).is_none());
    // The same with a recovery instead of the patience for the lease.
    let mut lost = Client::connect(proxy.port);
    send!(lost, "RQ.CLAIM", "r", "w1", "BLOCK", 0, "LEASE", 3_600_000);
    until_blocked(&server, 1);
    enqueue(&mut c, "r", "payload");
    assert_eq!(counts(&mut c, "r").active, 1);
    assert_eq!(cmd!(c, "RQ.RECOVER", "r", "WORKERS", 1, "w1").list()[0].int(), 1);
    assert_eq!(claim(&mut c, "r", "w2").delivery, 2);
}

fn c02_chain_of_ghosts(lab: &Lab) {
    let server = lab.server();
    let proxy = Proxy::new(&server);
    let mut c = server.client();
    cmd!(c, "RQ.QUEUE.SET", "q", "LEASE", 500, "CRASHES", 100);
    let mut ghosts: Vec<Client> = (0..50).map(|_| Client::connect(proxy.port)).collect();
    for (number, ghost) in ghosts.iter_mut().enumerate() {
        send!(ghost, "RQ.CLAIM", "q", format!("ghost{number}"), "BLOCK", 0);
    }
    until_blocked(&server, 50);
    proxy.freeze();
    let mut alive = waiting_claim(&server, "q", "alive", 0);
    let start = Instant::now();
    enqueue(&mut c, "q", "x");
    let job = jobs(&alive.read()).remove(0);
    assert!(start.elapsed() < ms(5000), "about one lease, not fifty: {:?}", start.elapsed());
    assert_eq!(job.delivery, 2);
}

fn c04_client_gives_up_before_the_wait_ends(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    for _ in 0..20 {
        let mut waiter = waiting_claim_with(&server, "q", "w", 5000, &["LEASE", "300"]);
        assert!(waiter.read_within(ms(5)).is_none());
        drop(waiter);
        enqueue(&mut c, "q", "x");
        let job = claim_soon(&mut c, "q", "other");
        assert!(job.delivery <= 2);
        assert_eq!(ack(&mut c, "q", &job), 1);
        until_blocked(&server, 0);
    }
}

fn c05_worker_on_a_dead_socket_is_seen(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    cmd!(c, "RQ.QUEUE.SET", "q", "LEASE", 60_000);
    let worker = |c: &mut Client, name: &str| {
        workers(c, "q").iter().find(|worker| worker.get("name").text() == name).cloned()
    };
    // Frozen in a wait that nobody ends; and one that comes again and again, as workers should.
    let mut frozen = server.client();
    send!(frozen, "RQ.CLAIM", "q", "frozen", "BLOCK", 0);
    let mut alive = server.client();
    send!(alive, "RQ.CLAIM", "q", "alive", "BLOCK", 50);
    let seen = eventually("both are known", || Some((worker(&mut c, "frozen")?, worker(&mut c, "alive")?)));
    assert!(seen.0.get("waiting-since").int() > 0);
    let alive_now = eventually("the living one is seen to live", || {
        if alive.read_within(ms(1)).is_some() {
            send!(alive, "RQ.CLAIM", "q", "alive", "BLOCK", 50);
        }
        let now = worker(&mut c, "alive").expect("known").get("last-seen").int();
        (now >= seen.1.get("last-seen").int() + 300).then_some(now)
    });
    let frozen_now = worker(&mut c, "frozen").expect("known").get("last-seen").int();
    assert!(frozen_now <= seen.0.get("last-seen").int() + 5, "it gave no sign of life");
    assert!(alive_now > frozen_now + 200);
}

fn c08_a_finished_job_stays_finished(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    cmd!(c, "RQ.QUEUE.SET", "q", "LEASE", 100, "WORKERTTL", 100);
    let id = enqueue(&mut c, "q", "x");
    let job = claim(&mut c, "q", "w");
    cmd!(c, "RQ.ACK", "q", id, job.token, "RESULT", "r");
    let start = Instant::now();
    while start.elapsed() < ms(400) {
        for recover in [
            args!["RQ.RECOVER", "q"],
            args!["RQ.RECOVER", "q", "EXCEPT", 0],
            args!["RQ.RECOVER", "q", "WORKERS", 1, "w"],
            args!["RQ.RECOVER", "q", "IDLE", 1],
        ] {
            assert_eq!(c.run(recover).list()[0].int(), 0);
        }
    }
    let result = cmd!(c, "RQ.RESULT", "q", id);
    assert_eq!((result.list()[0].text(), result.list()[1].text()), ("done".into(), "r".into()));
}

fn c11_old_owner_finishes_after_losing_the_lease(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    for second_name in ["w2", "w1"] {
        let id = cmd!(c, "RQ.ENQUEUE", "q", "x", "LEASE", 100).text();
        let old = claim(&mut c, "q", "w1");
        let new = eventually("it lapses", || {
            jobs(&cmd!(c, "RQ.CLAIM", "q", second_name, "LEASE", 60_000)).into_iter().next()
        });
        let before = fingerprint(&server, "q");
        assert_eq!(refused!(c, "RQ.ACK", "q", id, old.token, "RESULT", "old"), "STALE");
        assert_eq!(refused!(c, "RQ.FAIL", "q", id, old.token), "STALE");
        assert_eq!(refused!(c, "RQ.PROGRESS", "q", id, old.token, "old"), "STALE");
        assert_eq!(cmd!(c, "RQ.EXTEND", "q", "w1", "LEASE", 5, id, old.token).texts(), ["lost"]);
        assert_eq!(fingerprint(&server, "q"), before);
        assert_eq!(cmd!(c, "RQ.ACK", "q", id, new.token, "RESULT", "new").int(), 1);
        assert_eq!(
            refused!(c, "RQ.ACK", "q", id, old.token, "RESULT", "old"),
            "STALE",
            "after it is done too"
        );
        assert_eq!(cmd!(c, "RQ.RESULT", "q", id).list()[1].text(), "new");
    }
}

fn c12_healthy_long_job_is_left_alone(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let id = cmd!(c, "RQ.ENQUEUE", "q", "x", "LEASE", 1500).text();
    let job = claim(&mut c, "q", "busy");
    let mut hungry: Vec<Client> =
        (0..10).map(|number| waiting_claim(&server, "q", &format!("hungry{number}"), 0)).collect();
    let rounds = if soak() { 300 } else { 30 };
    for _ in 0..rounds {
        assert_eq!(cmd!(c, "RQ.EXTEND", "q", "busy", "LEASE", 1500, id, job.token).texts(), ["ok"]);
        cmd!(c, "RQ.RECOVER", "q", "WORKERS", 2, "hungry1", "gone");
        cmd!(c, "RQ.RECOVER", "q", "EXCEPT", 1, "busy");
        cmd!(c, "RQ.RECOVER", "q");
        holds("nobody else gets it", ms(90), || hungry[0].read_within(ms(1)).is_none());
    }
    assert!(hungry.iter_mut().all(|client| client.read_within(ms(1)).is_none()));
    assert_eq!(job_facts(&mut c, &id), (1, "active".into()));
    assert_eq!(ack(&mut c, "q", &job), 1);
}

fn job_facts(c: &mut Client, id: &str) -> (i64, String) {
    let facts = job(c, "q", id).expect("it exists");
    (facts["deliveries"].int(), facts["state"].text())
}

fn c13_worker_is_told_that_it_lost_the_job(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let id = cmd!(c, "RQ.ENQUEUE", "q", "x", "LEASE", 100).text();
    let old = claim(&mut c, "q", "w1");
    let mut next = waiting_claim_with(&server, "q", "w2", 0, &["LEASE", "60000"]);
    assert_eq!(jobs(&next.read())[0].delivery, 2);
    assert_eq!(cmd!(c, "RQ.EXTEND", "q", "w1", "LEASE", 60_000, id, old.token).texts(), ["lost"]);
}

fn c15_quick_restart_of_a_worker(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    cmd!(c, "RQ.QUEUE.SET", "q", "LEASE", 600);
    for number in 0..5 {
        enqueue(&mut c, "q", number);
    }
    let mut first = server.client();
    let start = Instant::now();
    assert_eq!(jobs(&cmd!(first, "RQ.CLAIM", "q", "w:1", "COUNT", 5)).len(), 5);
    drop(first);
    // Its successor waits, and asks for nothing else.
    let mut second = server.client();
    let mut seen = Vec::new();
    while seen.len() < 5 {
        send!(second, "RQ.CLAIM", "q", "w:2", "BLOCK", 0);
        seen.push(jobs(&second.read()).remove(0).text());
    }
    assert!(start.elapsed() >= ms(595) && start.elapsed() < ms(3000), "{:?}", start.elapsed());
    assert_eq!(seen, ["0", "1", "2", "3", "4"]);
}

fn c18_crash_loop_does_not_block_the_others(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    cmd!(c, "RQ.QUEUE.SET", "q", "LEASE", 60, "CRASHES", 3, "BACKOFF", 50, 100);
    let poison = cmd!(c, "RQ.ENQUEUE", "q", "poison \0 raw").text();
    for number in 0..100 {
        enqueue(&mut c, "q", number);
    }
    let mut workers: Vec<Client> = (0..4).map(|_| server.client()).collect();
    let mut finished = 0;
    until("all good jobs are done and the bad one is dead", || {
        for (number, worker) in workers.iter_mut().enumerate() {
            let Some(job) = try_claim(worker, "q", &format!("w{number}")) else { continue };
            if job.payload.starts_with(b"poison") {
                // The worker dies of it: a new connection takes its place.
                *worker = server.client();
            } else {
                finished += ack(worker, "q", &job);
            }
        }
        finished == 100 && state(&mut c, "q", &poison) == "dead"
    });
    let facts = job(&mut c, "q", &poison).expect("it is kept");
    assert_eq!(
        (facts["reason"].text(), facts["crashes"].int(), facts["deliveries"].int()),
        ("crashes".into(), 4, 4)
    );
    assert_eq!(facts["payload"].bytes(), b"poison \0 raw");
    assert_eq!(cmd!(c, "RQ.REDRIVE", "q", poison).texts(), ["ready"]);
    assert_eq!(claim(&mut c, "q", "w").payload, b"poison \0 raw");
}

fn c25_a_delayed_job_needs_no_nudge(lab: &Lab) {
    let server = lab.server();
    let mut waiter = waiting_claim(&server, "q", "w", 0);
    let mut c = server.client();
    let start = Instant::now();
    let id = cmd!(c, "RQ.ENQUEUE", "q", "x", "DELAY", 1000).text();
    drop(c);
    let job = jobs(&waiter.read()).remove(0);
    let took = start.elapsed();
    assert_eq!(job.id, id.as_bytes());
    assert!(took >= ms(999) && took < ms(3000), "{took:?}");
    // Moved to an earlier instant, behind another that is due first in the old order.
    let mut c = server.client();
    cmd!(c, "RQ.ENQUEUE", "q", "soon", "DELAY", 2000);
    let later = cmd!(c, "RQ.ENQUEUE", "q", "later", "DELAY", 3_600_000).text();
    send!(waiter, "RQ.CLAIM", "q", "w", "BLOCK", 0);
    until_blocked(&server, 1);
    cmd!(c, "RQ.RESCHEDULE", "q", later, "DELAY", 200);
    drop(c);
    let start = Instant::now();
    assert_eq!(jobs(&waiter.read())[0].payload, b"later");
    assert!(start.elapsed() < ms(1900), "{:?}", start.elapsed());
}

fn c43_no_claim_after_a_pause(lab: &Lab) {
    let server = lab.server();
    let mut producer = server.client();
    let mut operator = server.client();
    let rounds = if soak() { 10_000 } else { 500 };
    let mut waiter = server.client();
    send!(waiter, "RQ.CLAIM", "q", "w", "BLOCK", 0);
    let mut waiting = true;
    for _ in 0..rounds {
        // Both at once; after the reply to the pause nothing more may be handed out.
        send!(producer, "RQ.ENQUEUE", "q", "x");
        assert_eq!(cmd!(operator, "RQ.PAUSE", "q").text(), "OK");
        let active = counts(&mut operator, "q").active;
        producer.read();
        enqueue(&mut producer, "q", "y");
        assert_eq!(counts(&mut operator, "q").active, active);
        cmd!(operator, "RQ.RESUME", "q");
        if waiting {
            assert_eq!(jobs(&waiter.read()).len(), 1);
            waiting = false;
        }
        let rest = jobs(&cmd!(operator, "RQ.CLAIM", "q", "rest", "COUNT", 100));
        for job in &rest {
            assert_eq!(ack(&mut operator, "q", job), 1);
        }
        if !waiting {
            send!(waiter, "RQ.CLAIM", "q", "w", "BLOCK", 0);
            waiting = true;
        }
    }
}

fn c48_a_cancel_is_not_forgotten(lab: &Lab) {
    let mut server = lab.server_with(&[("appendonly", "yes"), ("appendfsync", "always")]);
    let mut c = server.client();
    let waiting = enqueue(&mut c, "q", "x");
    cmd!(c, "RQ.CANCEL", "q", waiting);
    let active = cmd!(c, "RQ.ENQUEUE", "q", "y", "LEASE", 300).text();
    let job = claim(&mut c, "q", "w");
    assert_eq!(cmd!(c, "RQ.CANCEL", "q", active).texts(), ["cancelling"]);
    server.kill9();
    server.restart();
    let mut c = server.client();
    assert_eq!(cmd!(c, "RQ.EXTEND", "q", "w", "LEASE", 300, active, job.token).texts(), ["cancel"]);
    let mut worker = waiting_claim(&server, "q", "w", 0);
    until("both are cancelled", || counts(&mut c, "q") == Counts { cancelled: 2, ..Counts::default() });
    assert!(worker.read_within(ms(50)).is_none());
    for id in [waiting, active] {
        assert_eq!(cmd!(c, "RQ.RESULT", "q", id).list()[0].text(), "cancelled");
    }
}

fn c57_idle_waits_cost_nothing(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let mut waiters: Vec<Client> = (0..500).map(|_| server.client()).collect();
    for (number, waiter) in waiters.iter_mut().enumerate() {
        send!(waiter, "RQ.CLAIM", "q", format!("w{number}"), "BLOCK", 0);
    }
    until_blocked(&server, 500);
    for number in 0..1000 {
        send!(c, "RQ.QUEUE.SET", format!("empty{number}"), "LEASE", 5000);
    }
    for _ in 0..1000 {
        c.read();
    }
    let measure = |server: &Server| {
        let cpu = server.info("used_cpu_user_main_thread").parse::<f64>().unwrap()
            + server.info("used_cpu_sys_main_thread").parse::<f64>().unwrap();
        (cpu, server.info_number("total_commands_processed"))
    };
    let before = measure(&server);
    let time = ms(if soak() { 60_000 } else { 1500 });
    std::thread::sleep(time);
    let after = measure(&server);
    // INFO itself and the server's own cron are all there is.
    assert!(
        after.0 - before.0 < time.as_secs_f64() * 0.05,
        "{} s of processor time in {time:?}",
        after.0 - before.0
    );
    assert!(after.1 - before.1 <= 4, "{} commands", after.1 - before.1);
    // One job wakes one.
    enqueue(&mut c, "q", "x");
    until_blocked(&server, 499);
    holds("the others wait on", ms(50), || server.info_number("blocked_clients") == 499);
    let woken = waiters.iter_mut().filter_map(|waiter| waiter.read_within(ms(1))).count();
    assert_eq!(woken, 1);
}

fn c66_an_id_per_tick_is_accepted_once(lab: &Lab) {
    let mut server = lab.server_with(&[("appendonly", "yes"), ("appendfsync", "always")]);
    for restart in 0..3 {
        if restart > 0 {
            server.kill9();
            server.restart();
        }
        let mut clients: Vec<Client> = (0..10).map(|_| server.client()).collect();
        for client in &mut clients {
            for tick in 0..100 {
                send!(client, "RQ.ENQUEUE", "q", "x", "ID", format!("report@{tick}"), "IFNEW");
            }
        }
        for client in &mut clients {
            for tick in 0..100 {
                assert_eq!(client.read().text(), format!("report@{tick}"));
            }
        }
    }
    let mut c = server.client();
    let mut deliveries: HashMap<Vec<u8>, i64> = HashMap::new();
    while let Some(job) = try_claim(&mut c, "q", "w") {
        *deliveries.entry(job.id).or_default() += 1;
    }
    assert_eq!(deliveries.len(), 100);
    assert!(deliveries.values().all(|count| *count == 1));
}

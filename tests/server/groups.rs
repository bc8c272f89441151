//! Groups and tenants: who is served next, who is not and why, and that whoever waits is woken when that changes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Instant;

use crate::common::*;
use crate::{args, cmd, refused, send, tests};

pub const TESTS: &[Test] = tests![
    tenants_are_served_in_turn,
    tenants_are_served_by_weight,
    c30_priorities_are_strict_within_a_group,
    c32_a_group_that_is_held_does_not_block_others,
    c33_a_noisy_group_keeps_nobody_waiting,
    c36_a_concurrency_is_never_exceeded,
    c36_a_concurrency_holds_among_fifty_busy_workers,
    a_lowered_concurrency_waits_and_a_raised_one_serves,
    defaults_of_the_queue_reach_groups_and_waiting_workers,
    every_ending_frees_the_slot,
    slots_survive_reload_copy_and_restore,
    c37_an_endpoint_that_is_down,
    one_escalation_however_many_report,
    a_group_of_one_job_backs_off_too,
    probes_that_end_without_a_word,
    without_a_group_only_the_job_waits,
    c38_slow_is_not_down,
    pause_and_resume_of_groups_and_tenants,
    a_pause_ends_by_itself,
    c39_a_pause_holds_and_a_resume_clears_the_back_off,
    ordered_groups,
    throttled_groups,
    rates_wake_waiting_workers,
    c41_waiting_for_a_rate_costs_neither_attempts_nor_order,
    reload_and_restart_change_nothing,
    replicas_have_the_same_groups,
    emptied_groups_leave_no_memory,
    groups_are_shown,
    listings_by_group_and_tenant,
    wrong_calls_change_nothing,
];

/// Adds jobs to a group, whose payloads are `<group>-<number>`. The empty tenant is the nameless one.
fn fill(c: &mut Client, queue: &str, tenant: &str, group: &str, count: usize) {
    for start in (0..count).step_by(1000) {
        let size = (count - start).min(1000);
        let mut args = args!["RQ.MENQUEUE", queue, "GROUP", group];
        if !tenant.is_empty() {
            args.extend(args!["TENANT", tenant]);
        }
        args.extend(args!["JOBS", size]);
        args.extend((start..start + size).map(|number| format!("{group}-{number}").into_bytes()));
        c.run(args);
    }
}

fn take(c: &mut Client, queue: &str, count: usize) -> Vec<Job> {
    jobs(&cmd!(c, "RQ.CLAIM", queue, "w", "COUNT", count, "LEASE", 3_600_000))
}

fn group(c: &mut Client, queue: &str, name: &str) -> Reply {
    cmd!(c, "RQ.GROUP.GET", queue, name)
}

/// Why a group is not served.
fn held(c: &mut Client, queue: &str, name: &str) -> String {
    match group(c, queue, name).get("held") {
        Reply::Nil => "served".into(),
        word => word.text(),
    }
}

fn group_of(job: &Job) -> String {
    job.text().rsplit_once('-').expect("a group").0.to_string()
}

/// Runs many commands, sending some hundreds ahead of their replies.
fn pipeline(c: &mut Client, commands: impl Iterator<Item = Vec<Vec<u8>>>) -> Vec<Reply> {
    let mut replies = Vec::new();
    let mut sent = 0;
    for command in commands {
        c.send(command);
        sent += 1;
        if sent - replies.len() >= 500 {
            while replies.len() < sent {
                replies.push(c.read());
            }
        }
    }
    while replies.len() < sent {
        replies.push(c.read());
    }
    replies
}

fn fail(c: &mut Client, queue: &str, job: &Job, how: &[&str]) -> String {
    let mut args = args!["RQ.FAIL", queue, job.id, job.token];
    args.extend(how.iter().map(|word| word.as_bytes().to_vec()));
    c.run(args).text()
}

fn tenants_are_served_in_turn(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    for number in 0..500 {
        fill(&mut c, "q", "x", &format!("x{number}"), 100);
    }
    fill(&mut c, "q", "y", "y", 400);
    let got: Vec<String> = (0..200).map(|_| group_of(&claim(&mut c, "q", "w"))).collect();
    for pair in got.chunks(2) {
        assert_eq!(pair.iter().filter(|name| *name == "y").count(), 1, "{got:?}");
    }
    // And inside of a tenant each group has one before another has two.
    let of_x: HashSet<&String> = got.iter().filter(|name| *name != "y").collect();
    assert_eq!(of_x.len(), 100);
    // Many at once are no different.
    let got = take(&mut c, "q", 400);
    assert_eq!(got.iter().filter(|job| group_of(job) == "y").count(), 200);
    assert_eq!(got.iter().map(group_of).collect::<HashSet<_>>().len(), 201);
}

fn tenants_are_served_by_weight(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    for tenant in ["a", "b", "c"] {
        fill(&mut c, "q", tenant, tenant, 1000);
    }
    cmd!(c, "RQ.TENANT.SET", "q", "a", "WEIGHT", 5);
    cmd!(c, "RQ.TENANT.SET", "q", "b", "WEIGHT", 3);
    let mut shares = HashMap::new();
    for job in take(&mut c, "q", 900) {
        *shares.entry(group_of(&job)).or_insert(0i64) += 1;
    }
    for (tenant, share) in [("a", 500), ("b", 300), ("c", 100)] {
        assert!((shares[tenant] - share).abs() <= 2, "{shares:?}");
    }
    assert_eq!(cmd!(c, "RQ.TENANT.GET", "q", "a").get("weight").int(), 5);
}

fn c30_priorities_are_strict_within_a_group(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let add = |c: &mut Client, group: &str, priority: i32, payload: &str| {
        cmd!(c, "RQ.ENQUEUE", "q", payload, "GROUP", group, "PRIORITY", priority);
    };
    add(&mut c, "busy", 0, "busy-low");
    add(&mut c, "other", 0, "other-low");
    let mut low = Vec::new();
    for round in 0..200 {
        add(&mut c, "busy", 9, "busy-high");
        let job = claim(&mut c, "q", "w");
        ack(&mut c, "q", &job);
        if job.text().ends_with("low") {
            low.push((round, group_of(&job)));
        }
    }
    // As documented: the low one of the busy group waits for ever; that of another group has its turn at once.
    assert!(low.len() == 1 && low[0].0 <= 1 && low[0].1 == "other", "{low:?}");
}

fn c32_a_group_that_is_held_does_not_block_others(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    for word in ["concurrency", "paused", "rate", "backoff", "throttled", "ordered", "probe"] {
        cmd!(c, "FLUSHALL");
        match word {
            "concurrency" => drop(cmd!(c, "RQ.GROUP.SET", "q", "a", "CONCURRENCY", 1)),
            "rate" => drop(cmd!(c, "RQ.GROUP.SET", "q", "a", "RATE", 1, 3_600_000)),
            "ordered" => drop(cmd!(c, "RQ.GROUP.SET", "q", "a", "ORDERED", "yes")),
            "probe" => drop(cmd!(c, "RQ.GROUP.SET", "q", "a", "BACKOFF", 1)),
            _ => drop(cmd!(c, "RQ.GROUP.SET", "q", "a", "BACKOFF", 3_600_000)),
        }
        fill(&mut c, "q", "", "a", 50_000);
        let job = claim(&mut c, "q", "w");
        match word {
            "paused" => drop(cmd!(c, "RQ.PAUSE", "q", "GROUP", "a")),
            "backoff" => assert_eq!(fail(&mut c, "q", &job, &["UNAVAILABLE"]), "ready"),
            "throttled" => assert_eq!(fail(&mut c, "q", &job, &["THROTTLED", "3600000"]), "ready"),
            "ordered" => assert_eq!(fail(&mut c, "q", &job, &["RETRY", "3600000"]), "delayed"),
            "probe" => {
                assert_eq!(fail(&mut c, "q", &job, &["UNAVAILABLE"]), "ready");
                claim_soon(&mut c, "q", "w");
            }
            _ => {}
        }
        assert_eq!(held(&mut c, "q", "a"), word);
        assert!(try_claim(&mut c, "q", "idle").is_none(), "{word}");
        fill(&mut c, "q", "", "b", 1);
        assert_eq!(claim(&mut c, "q", "idle").text(), "b-0", "{word}");
        assert!(try_claim(&mut c, "q", "idle").is_none(), "{word}");
    }
}

fn c33_a_noisy_group_keeps_nobody_waiting(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    fill(&mut c, "q", "", "noisy", 100_000);
    let small: Vec<String> = (0..10).map(|number| format!("small{number}")).collect();
    for name in &small {
        fill(&mut c, "q", "", name, 5);
    }
    let next: Vec<String> = (0..11).map(|_| group_of(&claim(&mut c, "q", "w"))).collect();
    for name in &small {
        assert!(next.contains(name), "{name} is not in {next:?}");
    }
}

fn c36_a_concurrency_is_never_exceeded(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    for setting in [
        args!["RQ.GROUP.SET", "q", "g", "TENANT", "t", "CONCURRENCY", 1],
        args!["RQ.TENANT.SET", "q", "t", "CONCURRENCY", 1],
        args!["RQ.QUEUE.SET", "q", "CONCURRENCY", 1],
        args!["RQ.QUEUE.SET", "q", "GROUP-CONCURRENCY", 1],
        args!["RQ.GROUP.SET", "q", "g", "TENANT", "t", "ORDERED", "yes"],
    ] {
        cmd!(c, "FLUSHALL");
        c.run(setting.clone());
        fill(&mut c, "q", "t", "g", 50);
        let mut workers: Vec<Client> = (0..50).map(|_| server.client()).collect();
        for round in 0..5 {
            for (number, worker) in workers.iter_mut().enumerate() {
                for _ in 0..3 {
                    send!(worker, "RQ.CLAIM", "q", format!("w{number}"), "COUNT", 10);
                }
            }
            let replies =
                workers.iter_mut().flat_map(|worker| (0..3).map(|_| worker.read()).collect::<Vec<_>>());
            let taken: Vec<Job> = replies.flat_map(|reply| jobs(&reply)).collect();
            assert_eq!(taken.len(), 1, "{round} of {}", taken.len());
            assert_eq!(counts(&mut c, "q").active, 1);
            assert_eq!(ack(&mut c, "q", &taken[0]), 1);
        }
    }
    cmd!(c, "FLUSHALL");
    cmd!(c, "RQ.QUEUE.SET", "q", "CONCURRENCY", 0);
    fill(&mut c, "q", "", "g", 1);
    assert!(try_claim(&mut c, "q", "w").is_none(), "0 means zero");
    assert_eq!(held(&mut c, "q", "g"), "concurrency");
    assert_eq!(group(&mut c, "q", "g").get("held-by").text(), "queue");
    assert_eq!(cmd!(c, "RQ.STATS", "q").get("held").text(), "concurrency");
}

fn c36_a_concurrency_holds_among_fifty_busy_workers(lab: &Lab) {
    const JOBS: usize = 400;
    let server = lab.server();
    let mut c = server.client();
    cmd!(c, "RQ.GROUP.SET", "q", "g", "CONCURRENCY", 1);
    fill(&mut c, "q", "", "g", JOBS);
    let (active, done) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicUsize::new(0)));
    let workers: Vec<_> = (0..50)
        .map(|number| {
            let (active, done) = (active.clone(), done.clone());
            // The one may be waiting for the job that the other is to end.
            let (mut c, mut ender) = (server.client(), server.client());
            std::thread::spawn(move || {
                let name = format!("w{number}");
                let start = Instant::now();
                while done.load(Ordering::SeqCst) < JOBS && start.elapsed() < PATIENCE {
                    send!(c, "RQ.CLAIM", "q", &name, "COUNT", 10);
                    send!(c, "RQ.CLAIM", "q", &name, "COUNT", 10, "BLOCK", 20);
                    for _ in 0..2 {
                        for job in jobs(&c.read()) {
                            assert_eq!(active.fetch_add(1, Ordering::SeqCst), 0, "one at a time");
                            std::thread::yield_now();
                            active.fetch_sub(1, Ordering::SeqCst);
                            assert_eq!(ack(&mut ender, "q", &job), 1);
                            done.fetch_add(1, Ordering::SeqCst);
                        }
                    }
                }
            })
        })
        .collect();
    for worker in workers {
        worker.join().expect("a worker that saw nothing wrong");
    }
    assert_eq!(done.load(Ordering::SeqCst), JOBS);
    assert_eq!(counts(&mut c, "q"), Counts::default());
}

fn a_lowered_concurrency_waits_and_a_raised_one_serves(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let settings: [fn(&mut Client, &str); 4] = [
        |c, limit| drop(cmd!(c, "RQ.GROUP.SET", "q", "g", "TENANT", "t", "CONCURRENCY", limit)),
        |c, limit| drop(cmd!(c, "RQ.TENANT.SET", "q", "t", "CONCURRENCY", limit)),
        |c, limit| drop(cmd!(c, "RQ.QUEUE.SET", "q", "CONCURRENCY", limit)),
        |c, limit| drop(cmd!(c, "RQ.QUEUE.SET", "q", "GROUP-CONCURRENCY", limit)),
    ];
    for set in settings {
        cmd!(c, "FLUSHALL");
        set(&mut c, "5");
        fill(&mut c, "q", "t", "g", 20);
        let taken = take(&mut c, "q", 10);
        assert_eq!(taken.len(), 5);
        set(&mut c, "2");
        assert!(take(&mut c, "q", 10).is_empty());
        for job in &taken[..3] {
            ack(&mut c, "q", job);
            assert!(take(&mut c, "q", 10).is_empty(), "not until fewer than 2 are active");
        }
        ack(&mut c, "q", &taken[3]);
        assert_eq!(take(&mut c, "q", 10).len(), 1);
        // Two are active. Four wait; three of them can be served at once.
        let mut waiting: Vec<Client> =
            (0..4).map(|number| waiting_claim(&server, "q", &format!("v{number}"), 0)).collect();
        set(&mut c, "5");
        for waiter in &mut waiting[..3] {
            assert_eq!(jobs(&waiter.read()).len(), 1);
        }
        assert!(waiting[3].read_within(ms(30)).is_none());
        ack(&mut c, "q", &taken[4]);
        assert_eq!(jobs(&waiting[3].read()).len(), 1);
        set(&mut c, "none");
        assert_eq!(take(&mut c, "q", 100).len(), 10);
    }
}

fn defaults_of_the_queue_reach_groups_and_waiting_workers(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    cmd!(c, "RQ.QUEUE.SET", "q", "GROUP-CONCURRENCY", 0, "GROUP-BACKOFF", 50, 60);
    for number in 0..50 {
        fill(&mut c, "q", "", &format!("g{number}"), 2);
    }
    cmd!(c, "RQ.GROUP.SET", "q", "g7", "CONCURRENCY", 1, "RATE", "none");
    assert_eq!(claim(&mut c, "q", "w").text(), "g7-0", "its own setting goes first");
    assert!(try_claim(&mut c, "q", "w").is_none());
    let facts = group(&mut c, "q", "g7");
    assert_eq!(facts.get("settings").get("backoff").list()[1].int(), 60);
    assert_eq!(facts.get("own").entries().len(), 2);
    let mut waiting: Vec<Client> =
        (0..60).map(|number| waiting_claim(&server, "q", &format!("v{number}"), 0)).collect();
    cmd!(c, "RQ.QUEUE.SET", "q", "GROUP-CONCURRENCY", 1);
    let served: Vec<Job> = waiting[..49].iter_mut().flat_map(|waiter| jobs(&waiter.read())).collect();
    assert_eq!(served.iter().map(group_of).collect::<HashSet<_>>().len(), 49, "one of each but g7");
    assert!(waiting[49..].iter_mut().all(|waiter| !waiter.is_answered()));
    // Given back to the default, a group follows what that becomes.
    cmd!(c, "RQ.GROUP.SET", "q", "g7", "CONCURRENCY", "default");
    cmd!(c, "RQ.QUEUE.SET", "q", "GROUP-CONCURRENCY", "none");
    until_counts(&mut c, "q", Counts { active: 61, ready: 39, ..Counts::default() });
    assert_eq!(group(&mut c, "q", "g7").get("concurrency").text(), "none");
}

fn every_ending_frees_the_slot(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    for ending in [
        "ack",
        "result",
        "fail",
        "dead",
        "release",
        "recover",
        "recover dead",
        "lapse",
        "cancel and ack",
        "cancel and release",
        "cancel and lapse",
        "undo",
    ] {
        cmd!(c, "FLUSHALL");
        for limit in [
            args!["RQ.GROUP.SET", "q", "g", "TENANT", "t", "CONCURRENCY", 1],
            args!["RQ.TENANT.SET", "q", "t", "CONCURRENCY", 1],
            args!["RQ.QUEUE.SET", "q", "CONCURRENCY", 1, "CRASHES", i32::from(!ending.contains("dead"))],
        ] {
            c.run(limit);
        }
        fill(&mut c, "q", "t", "g", 2);
        let lease = if ending.contains("lapse") { 150 } else { 3_600_000 };
        if ending == "undo" {
            // Granted to one who is gone: the job and the slot come back.
            let held = claim_for(&mut c, "q", "w", lease);
            let gone = waiting_claim(&server, "q", "gone", 0);
            drop(gone);
            ack(&mut c, "q", &held);
            let job = claim_soon(&mut c, "q", "v");
            assert_eq!(ack(&mut c, "q", &job), 1);
            continue;
        }
        let job = claim_for(&mut c, "q", "w", lease);
        let mut waiter = waiting_claim(&server, "q", "v", 0);
        let (id, token) = (&job.id, &job.token);
        if ending.starts_with("cancel") {
            assert_eq!(cmd!(c, "RQ.CANCEL", "q", id).texts(), ["cancelling"]);
        }
        match ending {
            "ack" | "cancel and ack" => drop(cmd!(c, "RQ.ACK", "q", id, token)),
            "result" => drop(cmd!(c, "RQ.ACK", "q", id, token, "RESULT", "r")),
            "fail" => drop(cmd!(c, "RQ.FAIL", "q", id, token, "RETRY", 3_600_000)),
            "dead" => drop(cmd!(c, "RQ.FAIL", "q", id, token, "DEAD")),
            "release" | "cancel and release" => drop(cmd!(c, "RQ.RELEASE", "q", id, token)),
            "recover" | "recover dead" => drop(cmd!(c, "RQ.RECOVER", "q", "WORKERS", 1, "w")),
            _ => {}
        }
        let next = jobs(&waiter.read()).remove(0);
        assert_eq!(counts(&mut c, "q").active, 1, "{ending}");
        assert_eq!(ack(&mut c, "q", &next), 1, "{ending}");
    }
}

fn slots_survive_reload_copy_and_restore(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    cmd!(c, "RQ.GROUP.SET", "q", "g", "CONCURRENCY", 1);
    fill(&mut c, "q", "", "g", 6);
    let job = claim(&mut c, "q", "w");
    cmd!(c, "DEBUG", "RELOAD");
    assert!(try_claim(&mut c, "q", "w").is_none());
    cmd!(c, "COPY", "q", "copy");
    let dump = cmd!(c, "DUMP", "q");
    cmd!(c, "RESTORE", "restored", 0, dump.bytes());
    for queue in ["q", "copy", "restored"] {
        assert!(try_claim(&mut c, queue, "w").is_none(), "{queue}");
        assert_eq!(held(&mut c, queue, "g"), "concurrency", "{queue}");
        assert_eq!(ack(&mut c, queue, &job), 1, "{queue}");
        for _ in 0..5 {
            let job = claim(&mut c, queue, "w");
            assert!(try_claim(&mut c, queue, "w").is_none(), "{queue}");
            ack(&mut c, queue, &job);
        }
        assert_eq!(counts(&mut c, queue), Counts::default(), "{queue}");
    }
}

fn c37_an_endpoint_that_is_down(lab: &Lab) {
    /// What the case calls a second, in ms.
    const SECOND: u64 = 200;
    let server = lab.server();
    let mut c = server.client();
    cmd!(c, "RQ.GROUP.SET", "q", "down", "BACKOFF", SECOND, 3_600_000);
    fill(&mut c, "q", "", "down", 1000);
    let mut workers: Vec<Client> = (0..5).map(|_| server.client()).collect();
    for (number, worker) in workers.iter_mut().enumerate() {
        send!(worker, "RQ.CLAIM", "q", format!("w{number}"), "BLOCK", 0);
    }
    // The five that were free from the start find out together; then one probe goes at a time.
    let mut first: Vec<Job> = workers.iter_mut().map(|worker| jobs(&worker.read()).remove(0)).collect();
    let begin = Instant::now();
    let mut since = begin;
    let mut attempts = 0;
    while let Some(job) = first.pop() {
        assert_eq!(fail(&mut c, "q", &job, &["UNAVAILABLE", "ERROR", "refused"]), "ready");
    }
    for (number, worker) in workers.iter_mut().enumerate() {
        send!(worker, "RQ.CLAIM", "q", format!("w{number}"), "BLOCK", 0);
    }
    let mut waits = Vec::new();
    while begin.elapsed() < ms(15 * SECOND) {
        let answered = workers.iter_mut().enumerate().find_map(|(number, worker)| {
            worker.is_answered().then(|| (number, jobs(&worker.read()).remove(0)))
        });
        let Some((number, job)) = answered else { continue };
        attempts += 1;
        waits.push(since.elapsed());
        let facts = group(&mut c, "q", "down");
        assert_eq!((facts.get("held").text(), facts.get("active").int()), ("probe".into(), 1));
        assert_eq!(facts.get("circuit-level").int(), attempts);
        since = Instant::now();
        assert_eq!(fail(&mut c, "q", &job, &["UNAVAILABLE"]), "ready");
        let facts = group(&mut c, "q", "down");
        assert_eq!(
            (facts.get("held").text(), facts.get("circuit-level").int()),
            ("backoff".into(), attempts + 1)
        );
        assert!(facts.get("held-until").int() > i64::try_from(unix_ms()).unwrap_or(0) - 100);
        send!(workers[number], "RQ.CLAIM", "q", format!("w{number}"), "BLOCK", 0);
    }
    assert!((3..=4).contains(&attempts), "{attempts} probes, after {waits:?}");
    for (nth, wait) in waits.iter().enumerate() {
        let whole = SECOND << nth;
        assert!(*wait >= ms(whole * 3 / 4 - 5), "probe {nth} after {wait:?}, too early");
    }
    // Nobody paid for it.
    let page = cmd!(c, "RQ.LIST", "q", "ready", "GROUP", "down", "COUNT", 1000);
    assert_eq!(page.list()[1].list().len(), 1000);
    for job in page.list()[1].list() {
        assert_eq!((job.get("attempts").int(), job.get("crashes").int()), (0, 0));
    }
    let handed_out = page.list()[1].list().iter().filter(|job| job.get("deliveries").int() > 0).count();
    assert_eq!(handed_out, 5, "the first five, one of them again and again: in its place");
    assert_eq!(cmd!(c, "RQ.STATS", "q").get("totals").get("refused").int(), 5 + attempts);
    // One success opens it fully, for all that wait.
    let probe = eventually("the next probe", || {
        let answered = workers.iter_mut().find_map(|worker| worker.is_answered().then_some(worker))?;
        jobs(&answered.read()).pop()
    });
    assert_eq!(ack(&mut c, "q", &probe), 1);
    until_counts(&mut c, "q", Counts { ready: 995, active: 4, ..Counts::default() });
    assert_eq!((take(&mut c, "q", 100).len(), held(&mut c, "q", "down")), (100, "served".into()));
    assert_eq!(group(&mut c, "q", "down").get("circuit-level").int(), 0);
}

fn one_escalation_however_many_report(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    cmd!(c, "RQ.GROUP.SET", "q", "g", "BACKOFF", 3_600_000);
    fill(&mut c, "q", "", "g", 20);
    let taken = take(&mut c, "q", 10);
    for job in &taken[..8] {
        fail(&mut c, "q", job, &["UNAVAILABLE"]);
        assert_eq!(group(&mut c, "q", "g").get("circuit-level").int(), 1);
    }
    // What was handed out before the opening says nothing about now, however it ends.
    ack(&mut c, "q", &taken[8]);
    assert_eq!(held(&mut c, "q", "g"), "backoff");
    // A resume clears it, and a report from before no longer counts.
    let mut waiter = waiting_claim(&server, "q", "v", 0);
    cmd!(c, "RQ.RESUME", "q", "GROUP", "g");
    assert_eq!(jobs(&waiter.read()).remove(0).text(), "g-0");
    fail(&mut c, "q", &taken[9], &["UNAVAILABLE"]);
    assert_eq!((held(&mut c, "q", "g"), take(&mut c, "q", 100).len()), ("served".into(), 18));
}

fn a_group_of_one_job_backs_off_too(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    cmd!(c, "RQ.GROUP.SET", "q", "g", "BACKOFF", 400, 400);
    fill(&mut c, "q", "", "g", 1);
    let mut job = claim(&mut c, "q", "w");
    for round in 2..5 {
        let start = Instant::now();
        assert_eq!(fail(&mut c, "q", &job, &["UNAVAILABLE"]), "ready");
        assert!(try_claim(&mut c, "q", "w").is_none());
        job = jobs(&cmd!(c, "RQ.CLAIM", "q", "w", "BLOCK", 20_000)).remove(0);
        assert!(start.elapsed() >= ms(299), "after {:?}", start.elapsed());
        assert_eq!(job.delivery, round);
    }
    ack(&mut c, "q", &job);
    assert!(group(&mut c, "q", "g").get("own").entries().len() == 1, "its settings are kept");
    // The back-off of an empty group is kept as well.
    fill(&mut c, "q", "", "g", 1);
    cmd!(c, "RQ.GROUP.SET", "q", "g", "BACKOFF", 3_600_000);
    let job = claim(&mut c, "q", "w");
    fail(&mut c, "q", &job, &["UNAVAILABLE"]);
    cmd!(c, "RQ.CANCEL", "q", job.id);
    cmd!(c, "RQ.PURGE", "q", "cancelled");
    fill(&mut c, "q", "", "g", 1);
    assert_eq!((held(&mut c, "q", "g"), try_claim(&mut c, "q", "w")), ("backoff".into(), None));
}

fn probes_that_end_without_a_word(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let level = |c: &mut Client| group(c, "q", "g").get("circuit-level").int();
    for ending in ["release", "cancel", "lapse", "recover"] {
        cmd!(c, "FLUSHALL");
        cmd!(c, "RQ.GROUP.SET", "q", "g", "BACKOFF", 200, 200);
        fill(&mut c, "q", "", "g", 5);
        let job = claim(&mut c, "q", "w");
        let opened = Instant::now();
        fail(&mut c, "q", &job, &["UNAVAILABLE"]);
        let lease = if ending == "lapse" { "400" } else { "60000" };
        let reply = cmd!(c, "RQ.CLAIM", "q", "w", "BLOCK", 20_000, "LEASE", lease);
        let probe = jobs(&reply).remove(0);
        assert_eq!((held(&mut c, "q", "g"), level(&mut c)), ("probe".into(), 1));
        let mut waiter = waiting_claim(&server, "q", "v", 0);
        let start = Instant::now();
        let after = match ending {
            "release" => {
                cmd!(c, "RQ.RELEASE", "q", probe.id, probe.token);
                0
            }
            "cancel" => {
                cmd!(c, "RQ.CANCEL", "q", probe.id);
                0
            }
            "recover" => {
                cmd!(c, "RQ.RECOVER", "q", "WORKERS", 1, "w");
                145
            }
            _ => 0,
        };
        let next = jobs(&waiter.read()).remove(0);
        assert!(start.elapsed() >= ms(after), "{ending}: after {:?}", start.elapsed());
        if ending == "lapse" {
            // The wait, its lease, and the same wait once more.
            assert!(opened.elapsed() >= ms(149 + 400 + 149), "after {:?}", opened.elapsed());
        }
        assert_eq!(level(&mut c), 1, "{ending}");
        assert_eq!(held(&mut c, "q", "g"), "probe", "{ending}");
        // A plain failure is an answer.
        cmd!(c, "RQ.FAIL", "q", next.id, next.token, "RETRY", 3_600_000);
        assert_eq!((level(&mut c), held(&mut c, "q", "g")), (0, "served".into()), "{ending}");
    }
}

fn without_a_group_only_the_job_waits(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    cmd!(c, "RQ.QUEUE.SET", "q", "BACKOFF", 200, 3_600_000, "GROUP-BACKOFF", 1, 1, "GROUP-CONCURRENCY", 0);
    for tenant in ["", "t"] {
        for payload in ["first", "second"] {
            let mut args = args!["RQ.ENQUEUE", "q", payload];
            if !tenant.is_empty() {
                args.extend(args!["TENANT", tenant]);
            }
            c.run(args);
        }
        let first = claim(&mut c, "q", "w");
        assert_eq!(first.text(), "first");
        let start = Instant::now();
        assert_eq!(fail(&mut c, "q", &first, &["UNAVAILABLE"]), "delayed");
        let second = claim(&mut c, "q", "w");
        assert_eq!(second.text(), "second");
        let again = jobs(&cmd!(c, "RQ.CLAIM", "q", "w", "BLOCK", 20_000)).remove(0);
        assert!(again.text() == "first" && start.elapsed() >= ms(148));
        let start = Instant::now();
        assert_eq!(fail(&mut c, "q", &again, &["UNAVAILABLE"]), "delayed");
        let again = jobs(&cmd!(c, "RQ.CLAIM", "q", "w", "BLOCK", 20_000)).remove(0);
        assert!(again.text() == "first" && start.elapsed() >= ms(298), "it grows: {:?}", start.elapsed());
        let start = Instant::now();
        assert_eq!(fail(&mut c, "q", &again, &["THROTTLED", "100"]), "delayed");
        let again = jobs(&cmd!(c, "RQ.CLAIM", "q", "w", "BLOCK", 20_000)).remove(0);
        assert!(again.text() == "first" && start.elapsed() >= ms(99));
        assert_eq!(job(&mut c, "q", &again.id).expect("it exists")["attempts"].int(), 0);
        ack(&mut c, "q", &again);
        ack(&mut c, "q", &second);
    }
}

fn c38_slow_is_not_down(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    cmd!(c, "RQ.QUEUE.SET", "q", "GROUP-BACKOFF", 3_600_000);
    fill(&mut c, "q", "", "slow", 60);
    for round in 0..60 {
        let job = claim(&mut c, "q", "w");
        match round % 4 {
            0 => drop(cmd!(c, "RQ.FAIL", "q", job.id, job.token, "DEAD", "ERROR", "400")),
            1 => drop(cmd!(c, "RQ.FAIL", "q", job.id, job.token, "RETRY", 3_600_000, "ERROR", "500")),
            2 => {
                // Long enough to need a heartbeat.
                cmd!(c, "RQ.EXTEND", "q", "w", "LEASE", 60_000, job.id, job.token);
                ack(&mut c, "q", &job);
            }
            _ => drop(ack(&mut c, "q", &job)),
        }
        let facts = group(&mut c, "q", "slow");
        assert_eq!((facts.get("circuit-level").int(), facts.get("throttled").int()), (0, 0));
    }
    assert_eq!(counts(&mut c, "q"), Counts { delayed: 15, dead: 15, ..Counts::default() });
}

fn pause_and_resume_of_groups_and_tenants(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let of: [&[&str]; 4] =
        [&["GROUP", "g"], &["TENANT", "t"], &["GROUP", "g", "TENANT", "t"], &["TENANT", "t", "GROUP", "g"]];
    for what in of {
        cmd!(c, "FLUSHALL");
        let order = |verb: &str| {
            let mut args = args![verb, "q"];
            args.extend(what.iter().map(|word| word.as_bytes().to_vec()));
            args
        };
        let tenant = if what.contains(&"TENANT") { "t" } else { "" };
        let mut waiter = waiting_claim(&server, "q", "w", 0);
        // Neither queue nor group are there yet.
        assert_eq!(c.run(order("RQ.PAUSE")).text(), "OK");
        assert_eq!(c.run(order("RQ.PAUSE")).text(), "OK");
        fill(&mut c, "q", tenant, "g", 3);
        holds("it is paused", ms(30), || !waiter.is_answered());
        assert!(take(&mut c, "q", 10).is_empty());
        let page = cmd!(c, "RQ.GROUP.LIST", "q");
        let shown =
            page.list()[1].list().iter().find(|group| group.get("group") == Reply::Bulk(b"g".to_vec()));
        let shown = shown.expect("it is listed");
        assert_eq!(shown.get("held").text(), "paused");
        assert_eq!(shown.get("held-by").text(), if what.contains(&"GROUP") { "group" } else { "tenant" });
        assert!(shown.get("held-until").is_nil());
        // Others go on; of the queue only what is paused is not served.
        fill(&mut c, "q", "other", "g", 1);
        assert_eq!(jobs(&waiter.read()).len(), 1);
        let mut waiter = waiting_claim(&server, "q", "w", 0);
        assert_eq!(c.run(order("RQ.RESUME")).text(), "OK");
        assert_eq!(jobs(&waiter.read()).remove(0).text(), "g-0");
        assert_eq!(take(&mut c, "q", 10).len(), 2);
    }
    // Each level holds by itself.
    cmd!(c, "FLUSHALL");
    fill(&mut c, "q", "t", "g", 3);
    cmd!(c, "RQ.PAUSE", "q");
    cmd!(c, "RQ.PAUSE", "q", "TENANT", "t");
    cmd!(c, "RQ.PAUSE", "q", "GROUP", "g", "TENANT", "t");
    for resumed in [args!["RQ.RESUME", "q"], args!["RQ.RESUME", "q", "GROUP", "g", "TENANT", "t"]] {
        c.run(resumed);
        assert!(take(&mut c, "q", 10).is_empty());
    }
    cmd!(c, "RQ.RESUME", "q", "TENANT", "t");
    assert_eq!(take(&mut c, "q", 10).len(), 3);
    assert_eq!(cmd!(c, "RQ.RESUME", "q", "GROUP", "unknown").text(), "OK");
    assert!(cmd!(c, "RQ.GROUP.GET", "q", "unknown").is_nil());
}

fn a_pause_ends_by_itself(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    for what in [&["GROUP", "g", "TENANT", "t"][..], &["TENANT", "t"], &[]] {
        cmd!(c, "FLUSHALL");
        fill(&mut c, "q", "t", "g", 1);
        let mut args = args!["RQ.PAUSE", "q", "FOR", 500];
        args.extend(what.iter().map(|word| word.as_bytes().to_vec()));
        let (start, before) = (Instant::now(), unix_ms());
        c.run(args);
        let after = unix_ms();
        let held = cmd!(c, "RQ.GROUP.GET", "q", "g", "TENANT", "t");
        assert_eq!(held.get("held").text(), "paused");
        let until = u64::try_from(held.get("held-until").int()).expect("after 1970");
        // Shown by the clocks as the last change found them.
        assert!((before + 450..=after + 550).contains(&until), "{before} {until} {after}");
        let job = jobs(&cmd!(c, "RQ.CLAIM", "q", "w", "BLOCK", 20_000)).remove(0);
        assert!(start.elapsed() >= ms(499), "{what:?}");
        ack(&mut c, "q", &job);
        // Nothing is left of a pause that is over.
        if !what.is_empty() {
            assert!(cmd!(c, "RQ.GROUP.GET", "q", "g", "TENANT", "t").is_nil());
            assert!(cmd!(c, "RQ.TENANT.GET", "q", "t").is_nil());
        }
    }
}

fn c39_a_pause_holds_and_a_resume_clears_the_back_off(lab: &Lab) {
    let mut server = lab.server_with(&[("appendonly", "yes"), ("appendfsync", "always")]);
    let mut c = server.client();
    cmd!(c, "RQ.QUEUE.SET", "q", "GROUP-BACKOFF", 3_600_000);
    fill(&mut c, "q", "", "g", 10_000);
    let job = claim(&mut c, "q", "w");
    fail(&mut c, "q", &job, &["UNAVAILABLE"]);
    cmd!(c, "RQ.PAUSE", "q", "GROUP", "g");
    cmd!(c, "RQ.PAUSE", "q", "GROUP", "empty");
    assert!(take(&mut c, "q", 1000).is_empty());
    server.kill9();
    server.restart();
    let mut c = server.client();
    assert!(take(&mut c, "q", 1000).is_empty());
    fill(&mut c, "q", "", "empty", 1);
    assert!(take(&mut c, "q", 1000).is_empty());
    for name in ["g", "empty"] {
        assert_eq!(held(&mut c, "q", name), "paused");
    }
    // A resume of the queue is not one of its groups.
    cmd!(c, "RQ.RESUME", "q");
    assert!(take(&mut c, "q", 1000).is_empty());
    cmd!(c, "RQ.RESUME", "q", "GROUP", "g");
    assert_eq!(group(&mut c, "q", "g").get("circuit-level").int(), 0, "as documented");
    assert_eq!(take(&mut c, "q", 1000).len(), 1000);
}

fn ordered_groups(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    cmd!(c, "RQ.GROUP.SET", "q", "g", "ORDERED", "yes", "CONCURRENCY", 5);
    fill(&mut c, "q", "", "g", 4);
    assert_eq!(group(&mut c, "q", "g").get("concurrency").int(), 1);
    let first = take(&mut c, "q", 10);
    assert_eq!(first.iter().map(Job::text).collect::<Vec<_>>(), ["g-0"]);
    assert_eq!(held(&mut c, "q", "g"), "concurrency");
    let start = Instant::now();
    assert_eq!(fail(&mut c, "q", &first[0], &["RETRY", "400"]), "delayed");
    assert_eq!((take(&mut c, "q", 10).len(), held(&mut c, "q", "g")), (0, "ordered".into()));
    let again = jobs(&cmd!(c, "RQ.CLAIM", "q", "w", "COUNT", 10, "BLOCK", 20_000));
    assert_eq!(again.iter().map(Job::text).collect::<Vec<_>>(), ["g-0"]);
    assert!(start.elapsed() >= ms(399));
    // The slot that an end frees goes to who waits, in order; what is delayed for the first time holds up nobody.
    cmd!(c, "RQ.ENQUEUE", "q", "g-late", "GROUP", "g", "DELAY", 3_600_000);
    let mut waiter = waiting_claim(&server, "q", "v", 0);
    ack(&mut c, "q", &again[0]);
    let second = jobs(&waiter.read()).remove(0);
    assert_eq!(second.text(), "g-1");
    // A retry that is cancelled, or dead, makes way.
    fail(&mut c, "q", &second, &["RETRY", "3600000"]);
    let mut waiter = waiting_claim(&server, "q", "v", 0);
    cmd!(c, "RQ.CANCEL", "q", second.id);
    let third = jobs(&waiter.read()).remove(0);
    assert_eq!(third.text(), "g-2");
    // Given back, it is first again; a higher priority goes before.
    cmd!(c, "RQ.RELEASE", "q", third.id, third.token);
    cmd!(c, "RQ.ENQUEUE", "q", "g-high", "GROUP", "g", "PRIORITY", 1);
    for expected in ["g-high", "g-2", "g-3"] {
        let job = claim(&mut c, "q", "w");
        assert_eq!(job.text(), expected);
        ack(&mut c, "q", &job);
    }
    // A failed one keeps its place before later ones.
    cmd!(c, "RQ.GROUP.SET", "q", "g", "ORDERED", "default");
    assert_eq!(group(&mut c, "q", "g").get("concurrency").int(), 5);
}

fn throttled_groups(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    fill(&mut c, "q", "", "g", 30);
    let taken = take(&mut c, "q", 4);
    let start = Instant::now();
    assert_eq!(fail(&mut c, "q", &taken[0], &["THROTTLED", "100"]), "ready");
    // Another report in the same rest only lengthens it.
    assert_eq!(fail(&mut c, "q", &taken[1], &["THROTTLED", "500"]), "ready");
    for job in &taken[2..] {
        cmd!(c, "RQ.RELEASE", "q", job.id, job.token);
    }
    let facts = group(&mut c, "q", "g");
    assert_eq!((facts.get("held").text(), facts.get("concurrency").int()), ("throttled".into(), 2));
    assert_eq!(facts.get("throttled-until"), facts.get("held-until"));
    assert!(take(&mut c, "q", 10).is_empty());
    let mut rested = jobs(&cmd!(c, "RQ.CLAIM", "q", "w", "COUNT", 10, "BLOCK", 20_000));
    assert!(start.elapsed() >= ms(499), "after {:?}", start.elapsed());
    let texts: Vec<String> = rested.iter().map(Job::text).collect();
    assert_eq!(texts, ["g-0", "g-1"], "half of what was active, from the front");
    for job in &rested {
        let facts = job_facts(&mut c, job);
        assert_eq!((facts["attempts"].int(), facts["deliveries"].int()), (0, 2));
    }
    // It grows by one per success, back to what was.
    ack(&mut c, "q", &rested.remove(0));
    assert_eq!(group(&mut c, "q", "g").get("concurrency").int(), 3);
    ack(&mut c, "q", &rested.remove(0));
    let facts = group(&mut c, "q", "g");
    assert_eq!((facts.get("concurrency").text(), facts.get("throttled").int()), ("none".into(), 0));
    assert_eq!(take(&mut c, "q", 100).len(), 28);
    // A resume ends the rest at once, for who waits already.
    let job = claim_new(&mut c);
    fail(&mut c, "q", &job, &["THROTTLED", "3600000"]);
    let mut waiter = waiting_claim(&server, "q", "v", 0);
    cmd!(c, "RQ.RESUME", "q", "GROUP", "h");
    assert_eq!(jobs(&waiter.read()).remove(0).id, job.id);
}

fn job_facts(c: &mut Client, delivery: &Job) -> std::collections::BTreeMap<String, Reply> {
    job(c, "q", &delivery.id).expect("it exists")
}

fn claim_new(c: &mut Client) -> Job {
    fill(c, "q", "", "h", 1);
    claim(c, "q", "w")
}

fn rates_wake_waiting_workers(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    for (setting, by) in [
        (args!["RQ.GROUP.SET", "q", "g", "TENANT", "t", "RATE", 1, 100], "group"),
        (args!["RQ.TENANT.SET", "q", "t", "RATE", 1, 100], "tenant"),
        (args!["RQ.QUEUE.SET", "q", "RATE", 1, 100], "queue"),
        (args!["RQ.QUEUE.SET", "q", "GROUP-RATE", 1, 100], "group"),
    ] {
        cmd!(c, "FLUSHALL");
        c.run(setting);
        fill(&mut c, "q", "t", "g", 20);
        let start = Instant::now();
        assert_eq!(take(&mut c, "q", 10).len(), 1, "{by}");
        let facts = cmd!(c, "RQ.GROUP.GET", "q", "g", "TENANT", "t");
        if start.elapsed() < ms(80) {
            assert_eq!((facts.get("held").text(), facts.get("held-by").text()), ("rate".into(), by.into()));
            assert!(facts.get("held-until").int() > 0);
        }
        // Nobody asks again and again: they wait, and are woken.
        let mut waiting: Vec<Client> =
            (0..5).map(|number| waiting_claim(&server, "q", &format!("v{number}"), 0)).collect();
        for (nth, waiter) in waiting.iter_mut().enumerate() {
            assert_eq!(jobs(&waiter.read()).len(), 1);
            // Lateness of up to a tenth is made up for, so it does not add up.
            let least = 100 * (u64::try_from(nth).unwrap_or(0) + 1) - 12;
            assert!(start.elapsed() >= ms(least), "{by}: {nth} after {:?}", start.elapsed());
        }
        assert!(start.elapsed() < ms(5_000), "{by}");
    }
    // A burst, and what is not used is saved up to it.
    cmd!(c, "FLUSHALL");
    cmd!(c, "RQ.GROUP.SET", "q", "g", "RATE", 1, 3_600_000, "BURST", 3);
    fill(&mut c, "q", "", "g", 20);
    assert_eq!((take(&mut c, "q", 10).len(), take(&mut c, "q", 10).len()), (3, 0));
    let mut waiter = waiting_claim(&server, "q", "v", 0);
    cmd!(c, "RQ.GROUP.SET", "q", "g", "RATE", "none");
    assert_eq!(jobs(&waiter.read()).len(), 1);
    // A grant that was undone is not charged.
    cmd!(c, "FLUSHALL");
    cmd!(c, "RQ.GROUP.SET", "q", "g", "RATE", 1, 3_600_000);
    drop(waiting_claim(&server, "q", "gone", 0));
    fill(&mut c, "q", "", "g", 1);
    claim_soon(&mut c, "q", "w");
}

fn c41_waiting_for_a_rate_costs_neither_attempts_nor_order(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    cmd!(c, "RQ.QUEUE.SET", "q", "ATTEMPTS", 1, "CRASHES", 0);
    cmd!(c, "RQ.GROUP.SET", "q", "g", "RATE", 1000, 1000, "BURST", 10, "CONCURRENCY", 3);
    fill(&mut c, "q", "", "g", 1000);
    let start = Instant::now();
    let mut got = Vec::new();
    let mut rested = false;
    while got.len() < 1000 {
        for job in jobs(&cmd!(c, "RQ.CLAIM", "q", "w", "COUNT", 2, "BLOCK", 20_000)) {
            if got.len() == 500 && !rested {
                // "Limit this group for a while": its job goes back to the front, its only attempt not spent.
                rested = true;
                assert_eq!(fail(&mut c, "q", &job, &["THROTTLED", "100"]), "ready");
                continue;
            }
            if got.len() == 500 && job.text() != "g-500" {
                // The other job of the same claim, until the front one is back.
                cmd!(c, "RQ.RELEASE", "q", job.id, job.token);
                continue;
            }
            got.push(job.text());
            ack(&mut c, "q", &job);
        }
    }
    let expected: Vec<String> = (0..1000).map(|number| format!("g-{number}")).collect();
    assert!(got == expected, "in order");
    assert!(start.elapsed() >= ms(900), "1,000 a second: {:?}", start.elapsed());
    let stats = cmd!(c, "RQ.STATS", "q");
    assert_eq!((Counts::of(&stats).dead, stats.get("totals").get("done").int()), (0, 1000));
}

/// Groups in every kind of trouble that lasts, and with every setting; nothing comes due by itself.
fn furnish(c: &mut Client) {
    const HOUR: u64 = 3_600_000;
    cmd!(
        c,
        "RQ.QUEUE.SET",
        "q",
        "GROUP-CONCURRENCY",
        15,
        "GROUP-RATE",
        900,
        HOUR,
        "BURST",
        12,
        "GROUP-BACKOFF",
        HOUR,
        "LEASE",
        HOUR,
        "WORKERTTL",
        24 * HOUR,
        "CONCURRENCY",
        500,
        "RATE",
        1_000_000,
        HOUR
    );
    cmd!(c, "RQ.TENANT.SET", "q", "t", "WEIGHT", 3, "CONCURRENCY", 100, "RATE", 1_000, HOUR, "BURST", 50);
    cmd!(c, "RQ.TENANT.SET", "q", "idle", "WEIGHT", 2);
    cmd!(
        c,
        "RQ.GROUP.SET",
        "q",
        "none",
        "CONCURRENCY",
        "none",
        "RATE",
        "none",
        "BACKOFF",
        5,
        6,
        "ORDERED",
        "no"
    );
    cmd!(c, "RQ.GROUP.SET", "q", "ordered", "TENANT", "t", "ORDERED", "yes");
    cmd!(c, "RQ.GROUP.SET", "q", "rate", "TENANT", "t", "RATE", 2, HOUR);
    for (tenant, name) in [
        ("", "none"),
        ("t", "ordered"),
        ("t", "rate"),
        ("t", "down"),
        ("t", "throttled"),
        ("u", "paused"),
        ("u", "served"),
        ("v", "of paused tenant"),
    ] {
        fill(c, "q", tenant, name, 20);
    }
    cmd!(c, "RQ.ENQUEUE", "q", "x-0", "TENANT", "t");
    cmd!(c, "RQ.PAUSE", "q", "TENANT", "v");
    cmd!(c, "RQ.PAUSE", "q", "GROUP", "paused", "TENANT", "u", "FOR", HOUR);
    cmd!(c, "RQ.PAUSE", "q", "GROUP", "to come");
    for job in take(c, "q", 40) {
        match group_of(&job).as_str() {
            "down" => drop(fail(c, "q", &job, &["UNAVAILABLE", "ERROR", "down"])),
            "throttled" => drop(fail(c, "q", &job, &["THROTTLED", "3600000"])),
            "ordered" => drop(fail(c, "q", &job, &["RETRY", "3600000"])),
            "x" => drop(fail(c, "q", &job, &["THROTTLED", "3600000"])),
            "none" if job.text().ends_with('1') => drop(ack(c, "q", &job)),
            _ => {}
        }
    }
}

const HELD: [(&str, &str, &str); 6] = [
    ("t", "ordered", "ordered"),
    ("t", "rate", "rate"),
    ("t", "down", "backoff"),
    ("t", "throttled", "throttled"),
    ("u", "paused", "paused"),
    ("v", "of paused tenant", "paused"),
];

/// All that is shown of groups, tenants and settings.
fn shown(c: &mut Client) -> Vec<Reply> {
    let mut shown = vec![cmd!(c, "RQ.QUEUE.GET", "q"), cmd!(c, "RQ.GROUP.LIST", "q")];
    for tenant in ["t", "u", "v", "idle"] {
        shown.push(cmd!(c, "RQ.TENANT.GET", "q", tenant));
    }
    for (tenant, name, held) in HELD {
        let facts = cmd!(c, "RQ.GROUP.GET", "q", name, "TENANT", tenant);
        assert_eq!(facts.get("held").text(), held, "{name}");
        shown.push(facts);
    }
    for reply in &mut shown {
        forget_ages(reply);
    }
    shown
}

/// The one thing that time changes.
fn forget_ages(reply: &mut Reply) {
    let Reply::Array(items) = reply else { return };
    let mut was_age = false;
    for item in items {
        if was_age {
            *item = Reply::Nil;
        }
        was_age = matches!(item, Reply::Bulk(name) if name == b"oldest-ready-age")
            || matches!(item, Reply::Status(name) if name == "oldest-ready-age");
        forget_ages(item);
    }
}

fn reload_and_restart_change_nothing(lab: &Lab) {
    for preamble in ["yes", "no"] {
        let mut server = lab.server_with(&[
            ("appendonly", "yes"),
            ("appendfsync", "always"),
            ("aof-use-rdb-preamble", preamble),
        ]);
        let mut c = server.client();
        furnish(&mut c);
        let (digest, before) = (server.digest("q"), shown(&mut c));
        cmd!(c, "DEBUG", "RELOAD");
        assert_eq!(server.digest("q"), digest);
        assert_eq!(shown(&mut c), before);
        // From the log of commands, then from a rewritten one.
        for rewrite in [false, true] {
            if rewrite {
                cmd!(c, "BGREWRITEAOF");
                until("it is rewritten", || {
                    server.info_number("aof_rewrite_in_progress") == 0
                        && server.info_number("aof_rewrite_scheduled") == 0
                });
            }
            server.kill9();
            server.restart();
            c = server.client();
            assert_eq!(server.digest("q"), digest, "preamble {preamble}, rewritten {rewrite}");
            let after = shown(&mut c);
            for (before, after) in before.iter().zip(&after) {
                assert_eq!(before, after, "preamble {preamble}, rewritten {rewrite}");
            }
        }
        // It goes on where it stopped: what is held stays so, what is not is served in turn.
        let next: Vec<String> = take(&mut c, "q", 200).iter().map(group_of).collect();
        for (_, name, _) in HELD {
            assert!(!next.iter().any(|group| group == name), "{name}");
        }
        assert!(next.iter().any(|group| group == "served") && next.iter().any(|group| group == "none"));
    }
}

fn replicas_have_the_same_groups(lab: &Lab) {
    let primary = lab.server();
    let replica = lab.replica_of(&primary);
    let mut c = primary.client();
    furnish(&mut c);
    // Calls that change nothing are not propagated, so they must leave nothing.
    cmd!(c, "RQ.GROUP.SET", "q", "unknown", "CONCURRENCY", "default");
    cmd!(c, "RQ.TENANT.SET", "q", "unknown", "WEIGHT", 1);
    cmd!(c, "RQ.RESUME", "q", "GROUP", "unknown", "TENANT", "unknown");
    primary.wait_for_sync(&replica);
    assert_eq!(replica.digest("q"), primary.digest("q"));
    assert_eq!(shown(&mut replica.client()), shown(&mut c));
    let late = lab.replica_of(&primary);
    assert_eq!(late.digest("q"), primary.digest("q"));
    assert_eq!(shown(&mut late.client()), shown(&mut c));
    // Under load with everything at once: limits, rates, circuits and pauses that come and go by themselves.
    for number in 0..20 {
        let name = format!("g{number}");
        fill(&mut c, "busy", ["a", "b"][number % 2], &name, 50);
    }
    cmd!(
        c,
        "RQ.QUEUE.SET",
        "busy",
        "GROUP-BACKOFF",
        5,
        40,
        "GROUP-CONCURRENCY",
        3,
        "GROUP-RATE",
        2,
        3,
        "BACKOFF",
        1,
        5
    );
    cmd!(c, "RQ.TENANT.SET", "busy", "a", "WEIGHT", 2, "RATE", 5, 2, "BURST", 20, "CONCURRENCY", 20);
    let start = Instant::now();
    let mut round = 0;
    while start.elapsed() < ms(1_500) {
        let reply =
            cmd!(c, "RQ.CLAIM", "busy", format!("w{}", round % 3), "COUNT", 5, "BLOCK", 10, "LEASE", 20_000);
        for job in jobs(&reply) {
            round += 1;
            match round % 7 {
                0 => drop(fail(&mut c, "busy", &job, &["UNAVAILABLE"])),
                1 => drop(fail(&mut c, "busy", &job, &["THROTTLED", "20"])),
                2 => drop(fail(&mut c, "busy", &job, &[])),
                3 => drop(cmd!(c, "RQ.RELEASE", "busy", job.id, job.token)),
                // Lapses, and no other does, however busy the machine is.
                4 => drop(cmd!(c, "RQ.EXTEND", "busy", "w", "LEASE", 1, job.id, job.token)),
                _ => drop(ack(&mut c, "busy", &job)),
            }
            if round % 31 == 0 {
                cmd!(c, "RQ.PAUSE", "busy", "GROUP", group_of(&job), "TENANT", "a", "FOR", 10);
            }
            if round % 37 == 0 {
                cmd!(c, "RQ.RESUME", "busy", "GROUP", group_of(&job), "TENANT", "b");
                cmd!(c, "RQ.QUEUE.SET", "busy", "GROUP-CONCURRENCY", 1 + round % 5);
            }
        }
    }
    assert!(round > 50, "{round}");
    // Held still, so that both can be looked at.
    cmd!(c, "CLIENT", "PAUSE", 60_000, "WRITE");
    primary.wait_for_sync(&replica);
    assert_eq!(replica.digest("busy"), primary.digest("busy"));
    cmd!(c, "CLIENT", "UNPAUSE");
    // Promoted, it goes on with the same limits and serves who waits.
    let mut r = replica.client();
    cmd!(r, "REPLICAOF", "NO", "ONE");
    for (tenant, name, held) in HELD {
        assert_eq!(cmd!(r, "RQ.GROUP.GET", "q", name, "TENANT", tenant).get("held").text(), held, "{name}");
    }
    let mut waiter = server_waiter(&replica);
    cmd!(r, "RQ.RESUME", "q", "GROUP", "down", "TENANT", "t");
    assert_eq!(group_of(&jobs(&waiter.read()).remove(0)), "down");
}

/// One that waits when nothing of `q` can be claimed any more.
fn server_waiter(server: &Server) -> Client {
    let mut c = server.client();
    while !take(&mut c, "q", 100).is_empty() {}
    waiting_claim(server, "q", "v", 0)
}

fn emptied_groups_leave_no_memory(lab: &Lab) {
    const GROUPS: usize = 100_000;
    let server = lab.server();
    let mut c = server.client();
    // Something that stays, so that a share of it can be told.
    for _ in 0..20 {
        let mut args = args!["RQ.MENQUEUE", "q", "DELAY", 3_600_000, "JOBS", 1000];
        args.extend((0..1000).map(|_| vec![b'x'; 1000]));
        c.run(args);
    }
    let measure = |c: &mut Client| (cmd!(c, "MEMORY", "USAGE", "q").int(), server.info_number("used_memory"));
    let mut rounds = Vec::new();
    for round in 0..2 {
        // Twice: what a first crowd leaves for a second is not a leak.
        rounds.push(measure(&mut c));
        let enqueues = (0..GROUPS).map(|number| {
            args!["RQ.ENQUEUE", "q", "x", "GROUP", format!("group {number}"), "TENANT", number % 50]
        });
        assert!(pipeline(&mut c, enqueues).iter().all(|reply| !matches!(reply, Reply::Error(_))));
        assert_eq!(cmd!(c, "RQ.STATS", "q").get("groups").get("count").int(), 1 + 100_000, "{round}");
        assert_eq!(cmd!(c, "RQ.STATS", "q").get("groups").get("eligible").int(), 100_000, "{round}");
        assert!(measure(&mut c).0 > rounds[0].0 + 10_000_000);
        loop {
            let taken = take(&mut c, "q", 1000);
            if taken.is_empty() {
                break;
            }
            let acks = taken.iter().map(|job| args!["RQ.ACK", "q", job.id, job.token]);
            assert!(pipeline(&mut c, acks).iter().all(|reply| *reply == Reply::Int(1)));
        }
        assert_eq!(cmd!(c, "RQ.STATS", "q").get("groups").get("count").int(), 1);
    }
    rounds.push(measure(&mut c));
    let within = |now: i64, before: i64| (now - before).abs() * 100 <= before * 3;
    for round in &rounds[1..] {
        assert!(within(round.0, rounds[0].0) && within(round.1, rounds[0].1), "{rounds:?}");
    }
}

fn groups_are_shown(lab: &Lab) {
    let server = lab.server();
    for mut c in [server.client(), server.client3()] {
        cmd!(c, "FLUSHALL");
        assert!(cmd!(c, "RQ.GROUP.GET", "q", "g").is_nil() && cmd!(c, "RQ.TENANT.GET", "q", "t").is_nil());
        assert_eq!(cmd!(c, "RQ.GROUP.LIST", "q").list()[1].list().len(), 0);
        for number in 0..25 {
            fill(&mut c, "q", ["a", "b"][number % 2], &format!("g{number}"), 1 + number);
        }
        let stats = cmd!(c, "RQ.STATS", "q");
        let groups = stats.get("groups");
        assert_eq!((groups.get("count").int(), groups.get("eligible").int()), (26, 25));
        assert!(stats.get("held").is_nil() && stats.get("held-until").is_nil());
        // Pages of any size show each once, oldest first.
        for (tenant, expected) in [("", 26), ("a", 13), ("b", 12), ("nobody", 0)] {
            for size in [1, 4, 100] {
                let (mut cursor, mut names) = (String::from("0"), Vec::new());
                loop {
                    let mut args = args!["RQ.GROUP.LIST", "q", "CURSOR", cursor, "COUNT", size];
                    if !tenant.is_empty() {
                        args.extend(args!["TENANT", tenant]);
                    }
                    let page = c.run(args);
                    for group in page.list()[1].list() {
                        if !group.get("group").is_nil() {
                            let name = group.get("group").text();
                            assert_eq!(group.get("ready").int(), 1 + name[1..].parse::<i64>().unwrap());
                        }
                        names.push(group.get("group"));
                    }
                    cursor = page.list()[0].text();
                    if cursor == "0" {
                        break;
                    }
                }
                assert_eq!(names.len(), expected, "{tenant} by {size}");
                let order: Vec<_> = names
                    .iter()
                    .filter(|name| !name.is_nil())
                    .map(|name| name.text()[1..].parse::<i64>().unwrap())
                    .collect();
                assert!(order.is_sorted(), "{order:?}");
            }
        }
        let facts = cmd!(c, "RQ.TENANT.GET", "q", "a");
        assert_eq!(
            (facts.get("tenant").text(), facts.get("groups").int(), facts.get("weight").int()),
            ("a".into(), 13, 1)
        );
        assert!(facts.get("rate").text() == "none" && facts.get("held").is_nil());
        let text = cmd!(c, "RQ.GROUP.GET", "q", "g1", "JSON", "TENANT", "b").text();
        assert!(text.starts_with(r#"{"group":"g1","tenant":"b","delayed":0,"ready":2,"#), "{text}");
        assert!(cmd!(c, "RQ.TENANT.GET", "q", "a", "JSON").text().contains(r#""held":null"#));
        // Jobs say where they belong.
        let full = cmd!(c, "RQ.CLAIM", "q", "w", "FULL");
        let claimed = &full.list()[0];
        assert_eq!((claimed.get("group").text(), claimed.get("tenant").text()), ("g0".into(), "a".into()));
        let listed = cmd!(c, "RQ.LIST", "q", "active");
        assert_eq!(listed.list()[1].list()[0].get("group").text(), "g0");
        let facts = cmd!(c, "RQ.GROUP.GET", "q", "g0", "TENANT", "a");
        assert_eq!((facts.get("active").int(), facts.get("held").text()), (1, "empty".into()));
        enqueue(&mut c, "q", "x");
        let plain = cmd!(c, "RQ.ENQUEUE", "q", "x").text();
        let facts = job(&mut c, "q", plain).expect("it exists");
        assert!(facts["group"].is_nil() && facts["tenant"].is_nil());
        // Names are bytes.
        let odd: Vec<u8> = (0..=255).collect();
        cmd!(c, "RQ.ENQUEUE", "q", "x", "GROUP", odd, "TENANT", "\r\n", "ID", "odd");
        let facts = job(&mut c, "q", "odd").expect("it exists");
        assert_eq!((facts["group"].bytes(), facts["tenant"].bytes()), (odd.as_slice(), &b"\r\n"[..]));
        assert_eq!(cmd!(c, "RQ.GROUP.GET", "q", odd, "TENANT", "\r\n").get("ready").int(), 1);
        let settings = cmd!(c, "RQ.QUEUE.GET", "q");
        for (name, value) in
            [("concurrency", "none"), ("rate", "none"), ("group-rate", "none"), ("group-ordered", "no")]
        {
            assert_eq!(settings.get(name).text(), value);
        }
        assert_eq!(
            settings.get("group-backoff").list().iter().map(Reply::int).collect::<Vec<_>>(),
            [5_000, 3_600_000]
        );
        cmd!(
            c,
            "RQ.QUEUE.SET",
            "q",
            "RATE",
            5,
            1000,
            "GROUP-RATE",
            6,
            2000,
            "BURST",
            7,
            "GROUP-ORDERED",
            "yes"
        );
        let settings = cmd!(c, "RQ.QUEUE.GET", "q");
        let numbers = |name| settings.get(name).list().iter().map(Reply::int).collect::<Vec<_>>();
        assert_eq!((numbers("rate"), numbers("group-rate")), (vec![5, 1000, 5], vec![6, 2000, 7]));
        assert_eq!(settings.get("group-ordered").text(), "yes");
    }
}

fn listings_by_group_and_tenant(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    for (tenant, name, count) in [("", "g", 3), ("t", "g", 4), ("t", "h", 5), ("u", "g", 6)] {
        fill(&mut c, "q", tenant, name, count);
    }
    enqueue(&mut c, "q", "plain");
    let walk = |c: &mut Client, state: &str, what: &[&str], size: usize| {
        let (mut cursor, mut found) = (String::from("0"), 0);
        loop {
            let mut args = args!["RQ.LIST", "q", state, "CURSOR", cursor, "COUNT", size];
            args.extend(what.iter().map(|word| word.as_bytes().to_vec()));
            let page = c.run(args);
            found += page.list()[1].list().len();
            cursor = page.list()[0].text();
            if cursor == "0" {
                return found;
            }
        }
    };
    let expected: [(&[&str], usize); 6] = [
        (&[], 19),
        (&["GROUP", "g"], 3),
        (&["GROUP", "g", "TENANT", "t"], 4),
        (&["TENANT", "t"], 9),
        (&["TENANT", "u"], 6),
        (&["GROUP", "nobody"], 0),
    ];
    for size in [1, 2, 100] {
        for (what, count) in expected {
            assert_eq!(walk(&mut c, "ready", what, size), count, "{what:?} by {size}");
        }
    }
    let taken = take(&mut c, "q", 100);
    for size in [1, 2, 100] {
        for (what, count) in expected {
            assert_eq!(walk(&mut c, "active", what, size), count, "{what:?} by {size}");
            let of_worker: Vec<&str> = [what, &["WORKER", "w"]].concat();
            assert_eq!(walk(&mut c, "active", &of_worker, size), count, "{what:?} by {size}");
            let of_other: Vec<&str> = [what, &["WORKER", "v"]].concat();
            assert_eq!(walk(&mut c, "active", &of_other, size), 0);
        }
    }
    for job in &taken {
        cmd!(c, "RQ.FAIL", "q", job.id, job.token, "DEAD");
    }
    for (what, count) in expected {
        assert_eq!(walk(&mut c, "dead", what, 3), count, "{what:?}");
    }
}

fn wrong_calls_change_nothing(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    fill(&mut c, "q", "t", "g", 2);
    cmd!(c, "RQ.GROUP.SET", "q", "g", "TENANT", "t", "CONCURRENCY", 5);
    cmd!(c, "SET", "string", "x");
    let active = claim(&mut c, "q", "w");
    let before = fingerprint(&server, "q");
    let long = "x".repeat(513);
    let wrong: [&[&str]; 40] = [
        &["RQ.GROUP.SET", "q", "g"],
        &["RQ.GROUP.SET", "q", "g", "TENANT", "t"],
        &["RQ.GROUP.SET", "q", "g", "CONCURRENCY"],
        &["RQ.GROUP.SET", "q", "g", "CONCURRENCY", "-1"],
        &["RQ.GROUP.SET", "q", "g", "CONCURRENCY", "1000001"],
        &["RQ.GROUP.SET", "q", "g", "CONCURRENCY", "18446744073709551617"],
        &["RQ.GROUP.SET", "q", "g", "CONCURRENCY", "1", "CONCURRENCY", "2"],
        &["RQ.GROUP.SET", "q", "g", "RATE", "0", "1000"],
        &["RQ.GROUP.SET", "q", "g", "RATE", "1", "0"],
        &["RQ.GROUP.SET", "q", "g", "RATE", "1"],
        &["RQ.GROUP.SET", "q", "g", "RATE", "1", "4294967296"],
        &["RQ.GROUP.SET", "q", "g", "RATE", "1", "1000", "BURST", "0"],
        &["RQ.GROUP.SET", "q", "g", "BURST", "5"],
        &["RQ.GROUP.SET", "q", "g", "ORDERED", "1"],
        &["RQ.GROUP.SET", "q", "g", "BACKOFF", "none"],
        &["RQ.GROUP.SET", "q", "g", "BACKOFF", "10", "5"],
        &["RQ.GROUP.SET", "q", "g", "ORDERED", "yes", "NONSENSE", "1"],
        &["RQ.GROUP.SET", "q", "", "ORDERED", "yes"],
        &["RQ.GROUP.SET", "q", &long, "ORDERED", "yes"],
        &["RQ.GROUP.SET", "q", "g", "TENANT", "", "ORDERED", "yes"],
        &["RQ.TENANT.SET", "q", "t"],
        &["RQ.TENANT.SET", "q", "t", "WEIGHT", "0"],
        &["RQ.TENANT.SET", "q", "t", "WEIGHT", "1.5"],
        &["RQ.TENANT.SET", "q", "t", "CONCURRENCY", "default"],
        &["RQ.TENANT.SET", "q", "", "WEIGHT", "1"],
        &["RQ.QUEUE.SET", "q", "CONCURRENCY", "x"],
        &["RQ.QUEUE.SET", "q", "GROUP-RATE", "1"],
        &["RQ.QUEUE.SET", "q", "GROUP-ORDERED", "default"],
        &["RQ.QUEUE.SET", "q", "LEASE", "5", "BURST", "1"],
        &["RQ.PAUSE", "q", "GROUP"],
        &["RQ.PAUSE", "q", "GROUP", "g", "FOR", "0"],
        &["RQ.PAUSE", "q", "TENANT", &long],
        &["RQ.RESUME", "q", "FOR", "5"],
        &["RQ.RESUME", "q", "GROUP", "g", "GROUP", "g"],
        &["RQ.GROUP.GET", "q", "g", "XML"],
        &["RQ.GROUP.GET", "q", ""],
        &["RQ.GROUP.LIST", "q", "CURSOR", "x"],
        &["RQ.GROUP.LIST", "q", "COUNT", "1001"],
        &["RQ.TENANT.GET", "q", "t", "JSON", "JSON"],
        &["RQ.LIST", "q", "ready", "TENANT"],
    ];
    for call in wrong {
        for queue in ["q", "never"] {
            let args: Vec<Vec<u8>> = call
                .iter()
                .enumerate()
                .map(|(number, word)| if number == 1 { queue.to_arg() } else { word.to_arg() })
                .collect();
            assert_eq!(c.refused(args), "ERR", "{call:?}");
        }
        assert_eq!(fingerprint(&server, "q"), before, "{call:?}");
    }
    assert_eq!(cmd!(c, "EXISTS", "never").int(), 0);
    for how in [
        &["UNAVAILABLE", "DEAD"][..],
        &["THROTTLED"],
        &["THROTTLED", "-1"],
        &["RETRY", "1", "THROTTLED", "1"],
    ] {
        let mut args = args!["RQ.FAIL", "q", active.id, active.token];
        args.extend(how.iter().map(|word| word.as_bytes().to_vec()));
        assert_eq!(c.refused(args), "ERR", "{how:?}");
        assert_eq!(fingerprint(&server, "q"), before, "{how:?}");
    }
    for how in ["UNAVAILABLE", "DEAD"] {
        assert_eq!(refused!(c, "RQ.FAIL", "q", active.id, "1-1", how), "STALE");
        assert_eq!(refused!(c, "RQ.FAIL", "never", active.id, "1-1", how), "NOQUEUE");
    }
    assert_eq!(fingerprint(&server, "q"), before);
    for call in [
        args!["RQ.GROUP.SET", "string", "g", "ORDERED", "yes"],
        args!["RQ.GROUP.GET", "string", "g"],
        args!["RQ.GROUP.LIST", "string"],
        args!["RQ.TENANT.SET", "string", "t", "WEIGHT", 2],
        args!["RQ.TENANT.GET", "string", "t"],
        args!["RQ.PAUSE", "string", "GROUP", "g"],
        args!["RQ.RESUME", "string", "TENANT", "t"],
    ] {
        assert_eq!(c.refused(call), "WRONGTYPE");
    }
    // On a missing queue the `SET`s make it; a resume finds nothing to do.
    assert_eq!(cmd!(c, "RQ.RESUME", "never", "GROUP", "g").text(), "OK");
    assert_eq!(cmd!(c, "EXISTS", "never").int(), 0);
    cmd!(c, "RQ.GROUP.SET", "made1", "g", "ORDERED", "yes");
    cmd!(c, "RQ.TENANT.SET", "made2", "t", "WEIGHT", 2);
    assert_eq!(cmd!(c, "EXISTS", "made1", "made2").int(), 2);
}

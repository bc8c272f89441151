//! `RQ.CLAIM`, `RQ.MCLAIM`, `RQ.ACK`, `RQ.FAIL`, `RQ.RELEASE`, `RQ.EXTEND`, `RQ.PROGRESS`, without waiting.

use std::time::Instant;

use crate::common::*;
use crate::{cmd, refused, tests};

pub const TESTS: &[Test] = tests![
    a_claim_hands_out_with_owner_deadline_and_token,
    an_empty_claim_is_nil_and_no_write,
    claim_many,
    claim_full_is_a_map,
    mclaim_takes_from_the_first_queue_with_work,
    ack_twice_is_no_error,
    ack_without_ttl_removes_the_job,
    an_old_token_changes_nothing,
    a_forged_token_is_stale,
    fail_retries_after_the_backoff,
    backoff_grows_to_its_maximum,
    fail_with_its_own_delay,
    fail_for_good,
    fail_keeps_the_error_text,
    release_gives_back_in_place,
    extend_keeps_the_job,
    extend_by_token_not_by_name,
    lapsed_job_comes_back,
    progress_is_shown,
    retry_for_ever_ends_dead,
    a_retry_goes_behind_a_release_keeps_its_place,
    workers_are_registered,
    workers_are_forgotten,
    a_silent_worker_is_stale,
    a_stock_client_library_works,
];

fn a_claim_hands_out_with_owner_deadline_and_token(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let id = enqueue(&mut c, "q", "x");
    let before = unix_ms();
    let delivery = claim_for(&mut c, "q", "host:1:abc", 60_000);
    assert_eq!(
        (delivery.id.clone(), delivery.payload.as_slice(), delivery.delivery),
        (id.clone().into_bytes(), &b"x"[..], 1)
    );
    let job = job(&mut c, "q", &id).expect("it exists");
    assert_eq!(job["state"].text(), "active");
    assert_eq!(job["worker"].text(), "host:1:abc");
    assert_eq!(job["token"].text(), delivery.token);
    let deadline = u64::try_from(job["lease-until"].int()).unwrap();
    assert!(deadline >= before + 59_990 && deadline <= unix_ms() + 60_010, "{deadline} after {before}");
    // It is nobody else's.
    assert!(try_claim(&mut c, "q", "other").is_none());
    assert_eq!(counts(&mut c, "q"), Counts { active: 1, ..Counts::default() });
}

fn an_empty_claim_is_nil_and_no_write(lab: &Lab) {
    let primary = lab.server();
    let replica = lab.replica_of(&primary);
    let mut c = primary.client();
    assert!(cmd!(c, "RQ.CLAIM", "none", "w").is_nil());
    assert_eq!(cmd!(c, "EXISTS", "none").int(), 0, "a claim makes no queue");
    // The first claim of a worker registers it; from then on it is no write.
    cmd!(c, "RQ.QUEUE.SET", "q", "LEASE", 1000);
    assert!(cmd!(c, "RQ.CLAIM", "q", "w").is_nil());
    primary.wait_for_sync(&replica);
    let digest = primary.digest("q");
    cmd!(c, "WATCH", "q");
    let mut other = primary.client();
    let before = primary.info("total_net_repl_output_bytes");
    for _ in 0..100 {
        assert!(cmd!(other, "RQ.CLAIM", "q", "w").is_nil());
    }
    cmd!(c, "MULTI");
    cmd!(c, "PING");
    assert!(!cmd!(c, "EXEC").is_nil(), "an empty claim does not touch a watched key");
    assert_eq!(primary.digest("q"), digest);
    // Pings to the replica are all that may have been sent in the meantime.
    let sent = primary.info_number("total_net_repl_output_bytes") - before.parse::<i64>().unwrap();
    assert!(sent < 2000, "{sent} bytes");
}

fn claim_many(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    for number in 0..10 {
        enqueue(&mut c, "q", number);
    }
    let taken = jobs(&cmd!(c, "RQ.CLAIM", "q", "w", "COUNT", 4));
    assert_eq!(taken.iter().map(Job::text).collect::<Vec<_>>(), ["0", "1", "2", "3"]);
    let mut tokens: Vec<&String> = taken.iter().map(|job| &job.token).collect();
    tokens.dedup();
    assert_eq!(tokens.len(), 4, "a token for each delivery");
    assert_eq!(jobs(&cmd!(c, "RQ.CLAIM", "q", "w", "COUNT", 1000)).len(), 6);
}

fn claim_full_is_a_map(lab: &Lab) {
    let server = lab.server();
    for mut c in [server.client(), server.client3()] {
        let id = cmd!(c, "RQ.ENQUEUE", "q", "x", "PRIORITY", 4).text();
        let reply = cmd!(c, "RQ.CLAIM", "q", "w", "FULL");
        let map = &reply.list()[0];
        assert_eq!(map.get("id").text(), id);
        assert_eq!(map.get("payload").text(), "x");
        assert_eq!(map.get("priority").int(), 4);
        cmd!(c, "RQ.ACK", "q", id, map.get("token").text());
    }
}

fn mclaim_takes_from_the_first_queue_with_work(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    assert!(cmd!(c, "RQ.MCLAIM", 2, "a", "b", "w").is_nil());
    enqueue(&mut c, "b", "1");
    enqueue(&mut c, "b", "2");
    let reply = cmd!(c, "RQ.MCLAIM", 3, "a", "b", "c", "w", "COUNT", 5);
    assert_eq!(reply.list()[0].text(), "b");
    assert_eq!(jobs(&reply.list()[1]).len(), 2);
    enqueue(&mut c, "c", "3");
    enqueue(&mut c, "a", "4");
    let reply = cmd!(c, "RQ.MCLAIM", 3, "a", "b", "c", "w", "COUNT", 5);
    assert_eq!((reply.list()[0].text(), jobs(&reply.list()[1])[0].text()), ("a".into(), "4".into()));
    for wrong in ["0", "-1", "9", "x", "99999999999999999999"] {
        assert_eq!(refused!(c, "RQ.MCLAIM", wrong, "a", "w"), "ERR");
    }
    let keys = cmd!(c, "COMMAND", "GETKEYS", "RQ.MCLAIM", 2, "a", "b", "w", "COUNT", 2);
    assert_eq!(keys.texts(), ["a", "b"]);
}

fn ack_twice_is_no_error(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    cmd!(c, "RQ.ENQUEUE", "q", "x", "ID", "j");
    let job = claim(&mut c, "q", "w");
    assert_eq!(cmd!(c, "RQ.ACK", "q", "j", job.token, "RESULT", "r").int(), 1);
    let before = fingerprint(&server, "q");
    assert_eq!(cmd!(c, "RQ.ACK", "q", "j", job.token, "RESULT", "other").int(), 0);
    assert_eq!(fingerprint(&server, "q"), before);
    assert_eq!(cmd!(c, "RQ.RESULT", "q", "j").list()[1].text(), "r");
    // Neither when the job or the whole queue is gone.
    assert_eq!(cmd!(c, "RQ.PURGE", "q", "done").list()[0].int(), 1);
    assert_eq!(ack(&mut c, "q", &job), 0);
    cmd!(c, "DEL", "q");
    assert_eq!(ack(&mut c, "q", &job), 0);
    assert_eq!(cmd!(c, "EXISTS", "q").int(), 0);
}

fn ack_without_ttl_removes_the_job(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    enqueue(&mut c, "q", "x");
    let job = claim(&mut c, "q", "w");
    assert_eq!(ack(&mut c, "q", &job), 1);
    assert_eq!(counts(&mut c, "q"), Counts::default());
    assert_eq!(ack(&mut c, "q", &job), 0);
    assert_eq!(cmd!(c, "EXISTS", "q").int(), 1, "an empty queue stays");
    // The retention of ACK wins over that of ENQUEUE.
    let id = cmd!(c, "RQ.ENQUEUE", "q", "x", "TTL", 3_600_000).text();
    let job = claim(&mut c, "q", "w");
    cmd!(c, "RQ.ACK", "q", id, job.token, "RESULT", "r", "TTL", 0);
    assert_eq!(counts(&mut c, "q"), Counts::default());
}

/// Runs everything that a worker can do with a token and checks that each is refused, and nothing changes.
fn all_refused(server: &Server, c: &mut Client, queue: &str, id: &[u8], token: &str, worker: &str) {
    let before = fingerprint(server, queue);
    assert_eq!(refused!(c, "RQ.ACK", queue, id, token), "STALE");
    assert_eq!(refused!(c, "RQ.ACK", queue, id, token, "RESULT", "r", "TTL", 5), "STALE");
    for more in [&[][..], &["DEAD"], &["RETRY", "5"], &["ERROR", "e"]] {
        let mut args = crate::args!["RQ.FAIL", queue, id, token];
        args.extend(more.iter().map(|arg| arg.as_bytes().to_vec()));
        assert_eq!(c.refused(args), "STALE");
    }
    assert_eq!(refused!(c, "RQ.PROGRESS", queue, id, token, "p"), "STALE");
    assert_eq!(cmd!(c, "RQ.EXTEND", queue, worker, "LEASE", 5000, id, token).texts(), ["lost"]);
    assert_eq!(cmd!(c, "RQ.RELEASE", queue, id, token).texts(), ["lost"]);
    assert_eq!(fingerprint(server, queue), before);
}

fn an_old_token_changes_nothing(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let id = enqueue(&mut c, "q", "x");
    let first = claim_for(&mut c, "q", "w", 100);
    until("the lease lapses", || state(&mut c, "q", &id) == "ready");
    all_refused(&server, &mut c, "q", &first.id, &first.token, "w");
    // Also when the next owner has the same name.
    let second = claim_for(&mut c, "q", "w", 60_000);
    assert_eq!(second.delivery, 2);
    assert_ne!(second.token, first.token);
    all_refused(&server, &mut c, "q", &first.id, &first.token, "w");
    assert_eq!(ack(&mut c, "q", &second), 1);
    // The job is gone, and with it the reason to refuse.
    assert_eq!(ack(&mut c, "q", &first), 0);
}

fn a_forged_token_is_stale(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let id = enqueue(&mut c, "q", "x");
    // No delivery yet, so there is no valid token.
    all_refused(&server, &mut c, "q", id.as_bytes(), "1-1", "w");
    let job = claim(&mut c, "q", "w");
    let (time, number) = job.token.split_once('-').unwrap();
    let next = format!("{time}-{}", number.parse::<u64>().unwrap() + 1);
    for token in ["0-0", "18446744073709551615-18446744073709551615", &next, &id] {
        all_refused(&server, &mut c, "q", &job.id, token, "w");
    }
    // What is no token at all is a mistake in the program.
    for token in ["", "x", "1", "1-", "-1", "1-2-3", "99999999999999999999999-1"] {
        let before = fingerprint(&server, "q");
        let word = refused!(c, "RQ.ACK", "q", job.id, token);
        assert!(word == "ERR" || word == "STALE", "{token}: {word}");
        assert_eq!(fingerprint(&server, "q"), before);
    }
    assert_eq!(refused!(c, "RQ.FAIL", "q", "unknown", job.token), "NOJOB");
    assert_eq!(refused!(c, "RQ.PROGRESS", "q", "unknown", job.token, "p"), "NOJOB");
    assert_eq!(refused!(c, "RQ.FAIL", "none", "j", job.token), "NOQUEUE");
    assert_eq!(refused!(c, "RQ.PROGRESS", "none", "j", job.token, "p"), "NOQUEUE");
    assert_eq!(cmd!(c, "RQ.EXTEND", "none", "w", "LEASE", 5, "j", job.token).texts(), ["lost"]);
    assert_eq!(cmd!(c, "RQ.RELEASE", "none", "j", job.token, "k", job.token).texts(), ["lost", "lost"]);
}

fn fail_retries_after_the_backoff(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let id = cmd!(c, "RQ.ENQUEUE", "q", "x", "BACKOFF", 400, 400).text();
    let job = claim(&mut c, "q", "w");
    let start = Instant::now();
    assert_eq!(cmd!(c, "RQ.FAIL", "q", id, job.token).text(), "delayed");
    let again = claim_soon(&mut c, "q", "w");
    // Up to a quarter less than the base.
    assert!(start.elapsed() >= ms(299), "{:?}", start.elapsed());
    assert_eq!((again.id, again.delivery), (job.id, 2));
}

fn backoff_grows_to_its_maximum(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let id = cmd!(c, "RQ.ENQUEUE", "q", "x", "BACKOFF", 60_000, 1_000_000, "ATTEMPTS", 1000).text();
    for attempt in 1..=70_u32 {
        let job = claim(&mut c, "q", "w");
        let before = unix_ms();
        assert_eq!(cmd!(c, "RQ.FAIL", "q", id, job.token).text(), "delayed");
        let due = job_due(&mut c, &id);
        let full =
            60_000_u64.saturating_mul(1_u64.checked_shl(attempt - 1).unwrap_or(u64::MAX)).min(1_000_000);
        let wait = due.checked_sub(before).expect("never in the past");
        assert!(wait + 5 >= full - full / 4 && wait <= full + 1000, "attempt {attempt}: {wait} of {full}");
        cmd!(c, "RQ.RESCHEDULE", "q", id, "DELAY", 0);
    }
}

fn job_due(c: &mut Client, id: &str) -> u64 {
    u64::try_from(job(c, "q", id).expect("it exists")["due"].int()).expect("after 1970")
}

fn fail_with_its_own_delay(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let id = cmd!(c, "RQ.ENQUEUE", "q", "x", "ATTEMPTS", 3).text();
    let first = claim(&mut c, "q", "w");
    assert_eq!(cmd!(c, "RQ.FAIL", "q", id, first.token, "RETRY", 0).text(), "ready");
    let second = claim(&mut c, "q", "w");
    let start = Instant::now();
    assert_eq!(cmd!(c, "RQ.FAIL", "q", id, second.token, "RETRY", 200).text(), "delayed");
    let third = claim_soon(&mut c, "q", "w");
    assert!(start.elapsed() >= ms(199), "exactly its own delay, not less: {:?}", start.elapsed());
    // Attempts are used up by it.
    assert_eq!(cmd!(c, "RQ.FAIL", "q", id, third.token, "RETRY", 0).text(), "dead");
}

fn fail_for_good(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let id = cmd!(c, "RQ.ENQUEUE", "q", "x", "ATTEMPTS", 100).text();
    let job = claim(&mut c, "q", "w");
    assert_eq!(cmd!(c, "RQ.FAIL", "q", id, job.token, "DEAD", "ERROR", "no such user").text(), "dead");
    let result = cmd!(c, "RQ.RESULT", "q", id);
    assert_eq!((result.list()[0].text(), result.list()[1].text()), ("dead".into(), "no such user".into()));
    assert!(try_claim(&mut c, "q", "w").is_none());
    for wrong in [&["DEAD", "RETRY", "5"][..], &["DEAD", "DEAD"], &["RETRY"], &["RETRY", "-1"], &["ERROR"]] {
        let id = enqueue(&mut c, "w", "x");
        let job = claim(&mut c, "w", "w");
        let before = fingerprint(&server, "w");
        let mut args = crate::args!["RQ.FAIL", "w", id, job.token];
        args.extend(wrong.iter().map(|arg| arg.as_bytes().to_vec()));
        assert_eq!(c.refused(args), "ERR", "{wrong:?}");
        assert_eq!(fingerprint(&server, "w"), before);
        ack(&mut c, "w", &job);
    }
}

fn fail_keeps_the_error_text(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let id = cmd!(c, "RQ.ENQUEUE", "q", "x", "ATTEMPTS", 1).text();
    let job = claim(&mut c, "q", "w");
    // 10 MB of a two-byte character: cut at a whole one, and marked.
    let text = "é".repeat(5_000_000);
    assert_eq!(cmd!(c, "RQ.FAIL", "q", id, job.token, "ERROR", text).text(), "dead");
    let kept = cmd!(c, "RQ.RESULT", "q", id).list()[1].text();
    assert!(kept.len() <= 65_536 && kept.len() > 65_000, "{} bytes", kept.len());
    assert!(kept.starts_with("éééé") && !kept.ends_with('é'), "marked as cut");
}

fn release_gives_back_in_place(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    for payload in ["1", "2", "3"] {
        cmd!(c, "RQ.ENQUEUE", "q", payload, "ATTEMPTS", 1, "CRASHES", 0);
    }
    for round in 1..=10 {
        let taken = jobs(&cmd!(c, "RQ.CLAIM", "q", "w", "COUNT", 2));
        assert_eq!(taken.iter().map(Job::text).collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(taken[0].delivery, round, "deliveries go on counting");
        // In whatever order they are released.
        let reply = cmd!(
            c,
            "RQ.RELEASE",
            "q",
            taken[1].id,
            taken[1].token,
            taken[0].id,
            taken[0].token,
            "unknown",
            "1-1"
        );
        assert_eq!(reply.texts(), ["ok", "ok", "lost"]);
    }
    assert_eq!(counts(&mut c, "q"), Counts { ready: 3, ..Counts::default() });
    assert_eq!(refused!(c, "RQ.RELEASE", "q", "j"), "ERR");
}

fn extend_keeps_the_job(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let id = enqueue(&mut c, "q", "x");
    let job = claim_for(&mut c, "q", "w", 1500);
    for _ in 0..6 {
        assert_eq!(
            cmd!(c, "RQ.EXTEND", "q", "w", "LEASE", 1500, id, job.token, "unknown", job.token).texts(),
            ["ok", "lost"]
        );
        holds("it is kept", ms(400), || try_claim(&mut c, "q", "other").is_none());
    }
    // It can be shortened too.
    assert_eq!(cmd!(c, "RQ.EXTEND", "q", "w", "LEASE", 1, id, job.token).texts(), ["ok"]);
    let again = claim_soon(&mut c, "q", "other");
    assert_eq!(again.delivery, 2);
    assert_eq!(cmd!(c, "RQ.EXTEND", "q", "w", "LEASE", 400, id, job.token).texts(), ["lost"]);
}

fn extend_by_token_not_by_name(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    enqueue(&mut c, "q", "1");
    enqueue(&mut c, "q", "2");
    let dead = claim_for(&mut c, "q", "w", 150);
    let alive = claim_for(&mut c, "q", "w", 60_000);
    // The newcomer with the same name extends only what it holds the token of.
    assert_eq!(cmd!(c, "RQ.EXTEND", "q", "w", "LEASE", 60_000, alive.id, alive.token).texts(), ["ok"]);
    let again = claim_soon(&mut c, "q", "other");
    assert_eq!(again.id, dead.id);
}

fn lapsed_job_comes_back(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    cmd!(c, "RQ.QUEUE.SET", "q", "LEASE", 150);
    enqueue(&mut c, "q", "x");
    let start = Instant::now();
    let first = claim(&mut c, "q", "w1");
    let second = claim_soon(&mut c, "q", "w2");
    assert!(start.elapsed() >= ms(149), "not before its deadline: {:?}", start.elapsed());
    assert_eq!((second.id, second.payload, second.delivery), (first.id, first.payload, 2));
}

fn progress_is_shown(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let id = enqueue(&mut c, "q", "x");
    assert!(cmd!(c, "RQ.RESULT", "q", id).list()[1].is_nil());
    let job = claim(&mut c, "q", "w");
    assert_eq!(cmd!(c, "RQ.PROGRESS", "q", id, job.token, "10 %").text(), "ok");
    assert_eq!(cmd!(c, "RQ.PROGRESS", "q", id, job.token, "20 %").text(), "ok");
    let result = cmd!(c, "RQ.RESULT", "q", id);
    assert_eq!(
        (result.list()[0].text(), result.list()[1].text(), result.list()[2].int()),
        ("active".into(), "20 %".into(), -1)
    );
    assert_eq!(cmd!(c, "RQ.PROGRESS", "q", id, job.token, "é".repeat(100_000)).text(), "ok");
    assert!(cmd!(c, "RQ.RESULT", "q", id).list()[1].text().len() <= 65_536);
}

fn retry_for_ever_ends_dead(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let id = cmd!(c, "RQ.ENQUEUE", "q", "x", "ATTEMPTS", 50).text();
    for attempt in 1..=50 {
        let job = claim(&mut c, "q", "w");
        assert_eq!(job.delivery, attempt);
        let end = cmd!(c, "RQ.FAIL", "q", id, job.token, "RETRY", 0).text();
        assert_eq!(end, if attempt == 50 { "dead" } else { "ready" });
    }
    let job = job(&mut c, "q", &id).expect("it is kept");
    assert_eq!(
        (job["reason"].text(), job["attempts"].int(), job["crashes"].int()),
        ("attempts".into(), 50, 0)
    );
}

fn a_retry_goes_behind_a_release_keeps_its_place(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    enqueue(&mut c, "q", "failing");
    let job = claim(&mut c, "q", "w");
    enqueue(&mut c, "q", "fresh");
    // The retry is due at this instant or later, which is after the other job could run.
    until("another millisecond", {
        let now = unix_ms();
        move || unix_ms() > now + 1
    });
    cmd!(c, "RQ.FAIL", "q", job.id, job.token, "RETRY", 0);
    assert_eq!(
        jobs(&cmd!(c, "RQ.CLAIM", "q", "w", "COUNT", 2)).iter().map(Job::text).collect::<Vec<_>>(),
        ["fresh", "failing"]
    );
}

fn workers_are_registered(lab: &Lab) {
    let server = lab.server();
    for mut c in [server.client(), server.client3()] {
        cmd!(c, "FLUSHALL");
        assert_eq!(workers(&mut c, "q").len(), 0);
        cmd!(c, "RQ.MENQUEUE", "q", "ATTEMPTS", 1, "JOBS", 3, "a", "b", "c");
        let before = i64::try_from(unix_ms()).unwrap();
        let one = claim(&mut c, "q", "w1");
        let two = claim(&mut c, "q", "w1");
        claim(&mut c, "q", "w2");
        ack(&mut c, "q", &one);
        cmd!(c, "RQ.FAIL", "q", two.id, two.token);
        let workers: Vec<_> =
            workers(&mut c, "q").iter().map(|worker| (worker.get("name").text(), worker.clone())).collect();
        assert_eq!(workers.len(), 2);
        let w1 = &workers.iter().find(|(name, _)| name == "w1").expect("w1").1;
        assert_eq!(
            (w1.get("active").int(), w1.get("done").int(), w1.get("failed").int(), w1.get("crashed").int()),
            (0, 1, 1, 0)
        );
        assert!(
            w1.get("first-seen").int() + 5 >= before
                && w1.get("last-seen").int() >= w1.get("first-seen").int()
        );
        let w2 = &workers.iter().find(|(name, _)| name == "w2").expect("w2").1;
        assert_eq!((w2.get("active").int(), w2.get("done").int()), (1, 0));
    }
}

fn workers_are_forgotten(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    cmd!(c, "RQ.QUEUE.SET", "q", "WORKERTTL", 200);
    enqueue(&mut c, "q", "x");
    claim(&mut c, "q", "holding");
    cmd!(c, "RQ.CLAIM", "q", "idle");
    until("the idle worker is forgotten, not the one that holds a job", || {
        workers(&mut c, "q").iter().map(|worker| worker.get("name").text()).collect::<Vec<_>>() == ["holding"]
    });
}

fn a_silent_worker_is_stale(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    cmd!(c, "RQ.QUEUE.SET", "q", "WORKERTTL", 300);
    enqueue(&mut c, "q", "x");
    let job = claim_for(&mut c, "q", "w", 3_600_000);
    let is_stale = |c: &mut Client| workers(c, "q")[0].get("stale").int() == 1;
    assert!(!is_stale(&mut c));
    until("it holds a job and gives no sign of life", || is_stale(&mut c));
    cmd!(c, "RQ.EXTEND", "q", "w", "LEASE", 3_600_000, job.id, job.token);
    assert!(!is_stale(&mut c));
}

/// As a program would: a client library that knows nothing of this module, in both protocols.
fn a_stock_client_library_works(lab: &Lab) {
    let server = lab.server();
    for protocol in ["", "?protocol=resp3"] {
        let client = redis::Client::open(format!("redis://127.0.0.1:{}/{protocol}", server.port)).unwrap();
        let mut connection = client.get_connection().unwrap();
        let id: String = redis::cmd("RQ.ENQUEUE").arg("q").arg("x").query(&mut connection).unwrap();
        type Delivery = (String, String, Vec<u8>, u64);
        let jobs: Option<Vec<Delivery>> =
            redis::cmd("RQ.CLAIM").arg("q").arg("w").query(&mut connection).unwrap();
        let (claimed, token, payload, delivery) = jobs.unwrap().remove(0);
        assert_eq!((&claimed, payload.as_slice(), delivery), (&id, &b"x"[..], 1));
        let done: i64 = redis::cmd("RQ.ACK")
            .arg("q")
            .arg(&id)
            .arg(&token)
            .arg("RESULT")
            .arg("r")
            .query(&mut connection)
            .unwrap();
        assert_eq!(done, 1);
        let (state, result, ttl): (String, String, i64) =
            redis::cmd("RQ.RESULT").arg("q").arg(&id).query(&mut connection).unwrap();
        assert_eq!((state.as_str(), result.as_str()), ("done", "r"));
        assert!(ttl > 3_590_000);
        let none: Option<Vec<Delivery>> =
            redis::cmd("RQ.CLAIM").arg("q").arg("w").query(&mut connection).unwrap();
        assert!(none.is_none());
        let stats: std::collections::HashMap<String, redis::Value> =
            redis::cmd("RQ.STATS").arg("q").query(&mut connection).unwrap();
        assert!(stats.contains_key("ready"));
        let error =
            redis::cmd("RQ.FAIL").arg("q").arg(&id).arg(&token).query::<String>(&mut connection).unwrap_err();
        assert_eq!(error.code(), Some("STALE"));
    }
}

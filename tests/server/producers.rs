//! `RQ.ENQUEUE`, `RQ.MENQUEUE`, `RQ.CANCEL`, `RQ.RESCHEDULE`.

use std::collections::HashSet;
use std::time::Instant;

use crate::common::*;
use crate::{args, cmd, refused, tests};

pub const TESTS: &[Test] = tests![
    an_id_is_a_time_and_a_number,
    ids_grow_over_all_queues,
    ids_grow_when_the_queue_is_made_again,
    own_id_is_the_reply_and_the_job,
    existing_id_is_refused_in_every_state,
    ifnew_replies_the_id_and_adds_nothing,
    replace_begins_a_new_life,
    higher_priority_first_then_arrival,
    options_in_any_order,
    delayed_until_due,
    at_an_instant,
    at_in_the_past_is_ready,
    many_at_once,
    many_all_or_none,
    a_full_queue_refuses,
    deadline_passes_unclaimed,
    deadline_does_not_touch_a_claimed_job,
    cancel_waiting_jobs,
    cancel_an_active_job,
    cancel_of_a_final_job_tells_its_state,
    reschedule_delayed_and_ready,
    reschedule_priority_alone_keeps_the_instant,
    attempts_of_the_job_win_over_the_queue,
];

fn an_id_is_a_time_and_a_number(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let before = unix_ms();
    let id = enqueue(&mut c, "q", "x");
    let (time, number) = id.split_once('-').expect("two parts");
    let time: u64 = time.parse().expect("a number");
    let _: u64 = number.parse().expect("a number");
    assert!(time + 2 >= before && time <= unix_ms() + 2, "{id}");
    assert_eq!(cmd!(c, "EXISTS", "q").int(), 1);
}

fn ids_grow_over_all_queues(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let mut last = (0, 0);
    for round in 0..200 {
        let id = enqueue(&mut c, &format!("q{}", round % 3), "x");
        let id = parts(&id);
        assert!(id > last, "{id:?} after {last:?}");
        last = id;
    }
}

fn parts(id: &str) -> (u64, u64) {
    let (time, number) = id.split_once('-').expect("two parts");
    (time.parse().unwrap(), number.parse().unwrap())
}

fn ids_grow_when_the_queue_is_made_again(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let mut last = (0, 0);
    for _ in 0..20 {
        let id = parts(&enqueue(&mut c, "q", "x"));
        assert!(id > last, "{id:?} after {last:?}");
        let token = parts(&claim(&mut c, "q", "w").token);
        assert!(token > id, "tokens come from the same counter: {token:?} after {id:?}");
        last = token;
        cmd!(c, "DEL", "q");
    }
}

fn own_id_is_the_reply_and_the_job(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    assert_eq!(cmd!(c, "RQ.ENQUEUE", "q", "x", "ID", "user:17").text(), "user:17");
    assert_eq!(claim(&mut c, "q", "w").id, b"user:17");
    let longest = vec![b'i'; 512];
    assert_eq!(cmd!(c, "RQ.ENQUEUE", "q", "x", "ID", longest).bytes(), longest);
    // Almost what the server's own ids look like.
    for id in ["1-", "-1", "1-2-3", "1-x", " 1-2", "+1-2", "1_2"] {
        assert_eq!(cmd!(c, "RQ.ENQUEUE", "q", "x", "ID", id).text(), id);
    }
}

fn existing_id_is_refused_in_every_state(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let expect = |c: &mut Client, state: &str| {
        let before = fingerprint(&server, "q");
        let error = c.call(args!["RQ.ENQUEUE", "q", "new", "ID", "j"]);
        assert!(error.error().text().starts_with(&format!("EXISTS {state}")), "{error:?}");
        assert_eq!(fingerprint(&server, "q"), before);
    };
    cmd!(c, "RQ.ENQUEUE", "q", "x", "ID", "j", "DELAY", 3_600_000, "ATTEMPTS", 1);
    expect(&mut c, "delayed");
    cmd!(c, "RQ.RESCHEDULE", "q", "j", "DELAY", 0);
    expect(&mut c, "ready");
    let delivery = claim(&mut c, "q", "w");
    expect(&mut c, "active");
    cmd!(c, "RQ.FAIL", "q", "j", delivery.token);
    expect(&mut c, "dead");
    cmd!(c, "RQ.REDRIVE", "q", "j");
    expect(&mut c, "ready");
    let delivery = claim(&mut c, "q", "w");
    cmd!(c, "RQ.ACK", "q", "j", delivery.token, "TTL", 3_600_000);
    expect(&mut c, "done");
    cmd!(c, "RQ.ENQUEUE", "q", "x", "ID", "j", "REPLACE");
    cmd!(c, "RQ.CANCEL", "q", "j");
    expect(&mut c, "cancelled");
    // Free again once its retention is over.
    cmd!(c, "RQ.PURGE", "q", "cancelled");
    assert_eq!(cmd!(c, "RQ.ENQUEUE", "q", "x", "ID", "j").text(), "j");
}

fn ifnew_replies_the_id_and_adds_nothing(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    assert_eq!(cmd!(c, "RQ.ENQUEUE", "q", "first", "ID", "j", "IFNEW").text(), "j");
    let before = fingerprint(&server, "q");
    let offset = server.info_number("master_repl_offset");
    assert_eq!(cmd!(c, "RQ.ENQUEUE", "q", "second", "IFNEW", "ID", "j").text(), "j");
    assert_eq!(fingerprint(&server, "q"), before);
    assert_eq!(server.info_number("master_repl_offset"), offset);
    assert_eq!(claim(&mut c, "q", "w").payload, b"first");
    assert_eq!(cmd!(c, "RQ.ENQUEUE", "q", "third", "ID", "j", "IFNEW").text(), "j");
    assert_eq!(counts(&mut c, "q").sum(), 1);
}

fn replace_begins_a_new_life(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    // A waiting or active job is never replaced.
    cmd!(c, "RQ.ENQUEUE", "q", "old", "ID", "j", "ATTEMPTS", 1);
    assert_eq!(refused!(c, "RQ.ENQUEUE", "q", "new", "ID", "j", "REPLACE"), "EXISTS");
    let delivery = claim(&mut c, "q", "w");
    assert_eq!(refused!(c, "RQ.ENQUEUE", "q", "new", "ID", "j", "REPLACE"), "EXISTS");
    cmd!(c, "RQ.FAIL", "q", "j", delivery.token, "ERROR", "broken");
    assert_eq!(cmd!(c, "RQ.RESULT", "q", "j").list()[1].text(), "broken");
    assert_eq!(cmd!(c, "RQ.ENQUEUE", "q", "new", "ID", "j", "REPLACE").text(), "j");
    let result = cmd!(c, "RQ.RESULT", "q", "j");
    assert_eq!((result.list()[0].text().as_str(), result.list()[1].is_nil()), ("ready", true));
    let again = claim(&mut c, "q", "w");
    assert_eq!((again.payload.as_slice(), again.delivery), (&b"new"[..], 1));
    // The token of the first life is worthless.
    assert_eq!(refused!(c, "RQ.ACK", "q", "j", delivery.token), "STALE");
    assert_eq!(counts(&mut c, "q").sum(), 1);
    assert_eq!(ack(&mut c, "q", &again), 1);
}

fn higher_priority_first_then_arrival(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    for (payload, priority) in [("a", 0), ("b", 5), ("c", 255), ("d", 5), ("e", 0)] {
        cmd!(c, "RQ.ENQUEUE", "q", payload, "PRIORITY", priority);
    }
    enqueue(&mut c, "q", "f");
    let order: Vec<String> =
        jobs(&cmd!(c, "RQ.CLAIM", "q", "w", "COUNT", 10)).iter().map(Job::text).collect();
    assert_eq!(order, ["c", "b", "d", "a", "e", "f"]);
}

fn options_in_any_order(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let id = cmd!(
        c,
        "rq.enqueue",
        "q",
        "x",
        "ttl",
        5000,
        "Priority",
        7,
        "LEASE",
        9000,
        "id",
        "j",
        "backoff",
        10,
        100,
        "ifnew",
        "DEADLINE",
        60_000,
        "crashes",
        0,
        "ATTEMPTS",
        9,
        "DELAY",
        5
    );
    assert_eq!(id.text(), "j");
    claim_soon(&mut c, "q", "w");
    let job = job(&mut c, "q", "j").expect("it exists");
    assert_eq!(job["priority"].int(), 7);
    assert_eq!(job["state"].text(), "active");
}

fn delayed_until_due(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let start = Instant::now();
    let id = cmd!(c, "RQ.ENQUEUE", "q", "x", "DELAY", 300).text();
    assert_eq!(state(&mut c, "q", &id), "delayed");
    assert!(try_claim(&mut c, "q", "w").is_none());
    let job = claim_soon(&mut c, "q", "w");
    assert!(start.elapsed() >= ms(299), "handed out after {:?}", start.elapsed());
    assert_eq!((job.id, job.delivery), (id.into_bytes(), 1));
}

fn at_an_instant(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let due = unix_ms() + 300;
    let id = cmd!(c, "RQ.ENQUEUE", "q", "x", "AT", due).text();
    assert_eq!(state(&mut c, "q", &id), "delayed");
    claim_soon(&mut c, "q", "w");
    assert!(unix_ms() + 2 >= due, "handed out {} ms early", due - unix_ms());
}

fn at_in_the_past_is_ready(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    for at in [0, 1, unix_ms() - 1] {
        let id = cmd!(c, "RQ.ENQUEUE", "q", "x", "AT", at).text();
        assert_eq!(state(&mut c, "q", &id), "ready", "AT {at}");
    }
}

fn many_at_once(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let mut args = args!["RQ.MENQUEUE", "q", "PRIORITY", 3, "JOBS", 1000];
    args.extend((0..1000).map(|number| number.to_arg()));
    let ids = c.run(args).texts();
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 1000);
    assert!(ids.windows(2).all(|pair| parts(&pair[0]) < parts(&pair[1])), "in order");
    let all = jobs(&cmd!(c, "RQ.CLAIM", "q", "w", "COUNT", 1000));
    let payloads: Vec<String> = all.iter().map(Job::text).collect();
    assert_eq!(payloads, (0..1000).map(|number| number.to_string()).collect::<Vec<_>>());
    assert_eq!(all.iter().map(|job| String::from_utf8_lossy(&job.id).into_owned()).collect::<Vec<_>>(), ids);
    // Payloads that look like options are payloads.
    assert_eq!(cmd!(c, "RQ.MENQUEUE", "q", "JOBS", 3, "JOBS", "DELAY", "5").list().len(), 3);
}

fn many_all_or_none(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    cmd!(c, "RQ.QUEUE.SET", "q", "MAXLEN", 3);
    enqueue(&mut c, "q", "x");
    let before = fingerprint(&server, "q");
    assert_eq!(refused!(c, "RQ.MENQUEUE", "q", "JOBS", 3, "a", "b", "c"), "FULL");
    assert_eq!(fingerprint(&server, "q"), before);
    assert_eq!(cmd!(c, "RQ.MENQUEUE", "q", "JOBS", 2, "a", "b").list().len(), 2);
    for wrong in [
        args!["RQ.MENQUEUE", "q", "JOBS", 2, "a"],
        args!["RQ.MENQUEUE", "q", "JOBS", 2, "a", "b", "c"],
        args!["RQ.MENQUEUE", "q", "JOBS", 0],
        args!["RQ.MENQUEUE", "q", "ID", "j", "JOBS", 1, "a"],
    ] {
        assert_eq!(c.refused(wrong), "ERR");
    }
    let mut args = args!["RQ.MENQUEUE", "other", "JOBS", 1001];
    args.extend((0..1001).map(|number| number.to_arg()));
    assert_eq!(c.refused(args), "ERR");
    assert_eq!(cmd!(c, "EXISTS", "other").int(), 0);
}

fn a_full_queue_refuses(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    cmd!(c, "RQ.QUEUE.SET", "q", "MAXLEN", 2);
    enqueue(&mut c, "q", "a");
    // Delayed jobs wait too.
    cmd!(c, "RQ.ENQUEUE", "q", "b", "DELAY", 3_600_000);
    assert_eq!(refused!(c, "RQ.ENQUEUE", "q", "c"), "FULL");
    // An active job does not wait, and one that comes back is never refused.
    let job = claim(&mut c, "q", "w");
    enqueue(&mut c, "q", "c");
    assert_eq!(refused!(c, "RQ.ENQUEUE", "q", "d"), "FULL");
    assert_eq!(cmd!(c, "RQ.RELEASE", "q", job.id, job.token).texts(), ["ok"]);
    assert_eq!(counts(&mut c, "q"), Counts { ready: 2, delayed: 1, ..Counts::default() });
    assert_eq!(refused!(c, "RQ.ENQUEUE", "q", "d"), "FULL");
    cmd!(c, "RQ.QUEUE.SET", "q", "MAXLEN", "none");
    enqueue(&mut c, "q", "d");
}

fn deadline_passes_unclaimed(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let id = cmd!(c, "RQ.ENQUEUE", "q", "x", "DEADLINE", 100).text();
    until_counts(&mut c, "q", Counts { dead: 1, ..Counts::default() });
    let job = job(&mut c, "q", &id).expect("it is kept");
    assert_eq!(job["reason"].text(), "deadline");
    assert!(try_claim(&mut c, "q", "w").is_none());
    // Redriving begins the deadline anew.
    assert_eq!(cmd!(c, "RQ.REDRIVE", "q", id).texts(), ["ready"]);
    until_counts(&mut c, "q", Counts { dead: 1, ..Counts::default() });
    // The delay must be shorter.
    assert_eq!(refused!(c, "RQ.ENQUEUE", "q", "x", "DELAY", 100, "DEADLINE", 100), "ERR");
    assert_eq!(refused!(c, "RQ.ENQUEUE", "q", "x", "AT", unix_ms() + 60_000, "DEADLINE", 100), "ERR");
}

fn deadline_does_not_touch_a_claimed_job(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    cmd!(c, "RQ.ENQUEUE", "q", "x", "DEADLINE", 600, "BACKOFF", 0);
    let job = claim(&mut c, "q", "w");
    holds("it stays active", ms(800), || counts(&mut c, "q").active == 1);
    // Not even when it waits a second time.
    cmd!(c, "RQ.RELEASE", "q", job.id, job.token);
    holds("it stays ready", ms(200), || counts(&mut c, "q").ready == 1);
}

fn cancel_waiting_jobs(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let ready = enqueue(&mut c, "q", "x");
    let delayed = cmd!(c, "RQ.ENQUEUE", "q", "x", "DELAY", 3_600_000).text();
    let reply = cmd!(c, "RQ.CANCEL", "q", ready, "nothing", delayed);
    assert_eq!(reply.list()[0].text(), "cancelled");
    assert!(reply.list()[1].is_nil());
    assert_eq!(reply.list()[2].text(), "cancelled");
    assert!(try_claim(&mut c, "q", "w").is_none());
    let result = cmd!(c, "RQ.RESULT", "q", ready);
    assert_eq!((result.list()[0].text().as_str(), result.list()[1].is_nil()), ("cancelled", true));
    assert!(result.list()[2].int() > 3_500_000, "kept for RESULTTTL: {result:?}");
    // On a queue that does not exist there is nothing to do.
    assert!(cmd!(c, "RQ.CANCEL", "none", "j").list()[0].is_nil());
    assert_eq!(cmd!(c, "EXISTS", "none").int(), 0);
}

fn cancel_an_active_job(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    for end in ["ack", "fail", "release", "lapse"] {
        let id = enqueue(&mut c, "q", "x");
        let job = claim_for(&mut c, "q", "w", if end == "lapse" { 100 } else { 60_000 });
        assert_eq!(cmd!(c, "RQ.CANCEL", "q", id).texts(), ["cancelling"]);
        assert_eq!(cmd!(c, "RQ.CANCEL", "q", id).texts(), ["cancelling"], "a second time");
        assert_eq!(state(&mut c, "q", &id), "active");
        match end {
            "ack" => {
                assert_eq!(cmd!(c, "RQ.PROGRESS", "q", id, job.token, "half").text(), "cancel");
                assert_eq!(
                    cmd!(c, "RQ.EXTEND", "q", "w", "LEASE", 60_000, id, job.token).texts(),
                    ["cancel"]
                );
                assert_eq!(cmd!(c, "RQ.ACK", "q", id, job.token, "RESULT", "r").int(), 1);
            }
            "fail" => assert_eq!(cmd!(c, "RQ.FAIL", "q", id, job.token).text(), "cancelled"),
            "release" => assert_eq!(cmd!(c, "RQ.RELEASE", "q", id, job.token).texts(), ["ok"]),
            _ => {}
        }
        until(&format!("cancelled after {end}"), || state(&mut c, "q", &id) == "cancelled");
        let result = cmd!(c, "RQ.RESULT", "q", id);
        assert!(result.list()[1].is_nil(), "a result is dropped: {result:?}");
        assert!(try_claim(&mut c, "q", "w").is_none());
    }
}

fn cancel_of_a_final_job_tells_its_state(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let done = enqueue(&mut c, "q", "x");
    let job = claim(&mut c, "q", "w");
    cmd!(c, "RQ.ACK", "q", job.id, job.token, "RESULT", "r");
    let dead = enqueue(&mut c, "q", "x");
    let job = claim(&mut c, "q", "w");
    cmd!(c, "RQ.FAIL", "q", job.id, job.token, "DEAD");
    let cancelled = enqueue(&mut c, "q", "x");
    cmd!(c, "RQ.CANCEL", "q", cancelled);
    let before = fingerprint(&server, "q");
    assert_eq!(cmd!(c, "RQ.CANCEL", "q", done, dead, cancelled).texts(), ["done", "dead", "cancelled"]);
    assert_eq!(fingerprint(&server, "q"), before);
}

fn reschedule_delayed_and_ready(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let id = cmd!(c, "RQ.ENQUEUE", "q", "x", "DELAY", 3_600_000).text();
    assert_eq!(cmd!(c, "RQ.RESCHEDULE", "q", id, "DELAY", 0).text(), "ready");
    assert_eq!(cmd!(c, "RQ.RESCHEDULE", "q", id, "AT", unix_ms() + 3_600_000).text(), "delayed");
    assert_eq!(cmd!(c, "RQ.RESCHEDULE", "q", id, "DELAY", 50).text(), "delayed");
    let job = claim_soon(&mut c, "q", "w");
    assert_eq!(refused!(c, "RQ.RESCHEDULE", "q", id, "DELAY", 0), "BADSTATE");
    cmd!(c, "RQ.ACK", "q", job.id, job.token, "RESULT", "r");
    assert_eq!(refused!(c, "RQ.RESCHEDULE", "q", id, "DELAY", 0), "BADSTATE");
    assert_eq!(refused!(c, "RQ.RESCHEDULE", "q", "unknown", "DELAY", 0), "NOJOB");
    assert_eq!(refused!(c, "RQ.RESCHEDULE", "none", "unknown", "DELAY", 0), "NOQUEUE");
    // Not beyond the deadline.
    let id = cmd!(c, "RQ.ENQUEUE", "q", "x", "DEADLINE", 60_000).text();
    assert_eq!(refused!(c, "RQ.RESCHEDULE", "q", id, "DELAY", 120_000), "ERR");
    assert_eq!(state(&mut c, "q", &id), "ready");
}

fn reschedule_priority_alone_keeps_the_instant(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let first = enqueue(&mut c, "q", "first");
    let second = enqueue(&mut c, "q", "second");
    assert_eq!(cmd!(c, "RQ.RESCHEDULE", "q", second, "PRIORITY", 1).text(), "ready");
    assert_eq!(claim(&mut c, "q", "w").payload, b"second");
    let later = cmd!(c, "RQ.ENQUEUE", "q", "later", "DELAY", 3_600_000).text();
    assert_eq!(cmd!(c, "RQ.RESCHEDULE", "q", later, "PRIORITY", 9).text(), "delayed");
    assert_eq!(state(&mut c, "q", &first), "ready");
    assert_eq!(claim(&mut c, "q", "w").payload, b"first");
}

fn attempts_of_the_job_win_over_the_queue(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    cmd!(c, "RQ.QUEUE.SET", "q", "ATTEMPTS", 2, "BACKOFF", 0, 0);
    cmd!(c, "RQ.ENQUEUE", "q", "of the queue");
    let mut failures = 0;
    while let Some(job) = try_claim(&mut c, "q", "w") {
        cmd!(c, "RQ.FAIL", "q", job.id, job.token);
        failures += 1;
    }
    assert_eq!(failures, 2);
    cmd!(c, "RQ.ENQUEUE", "q", "of the job", "ATTEMPTS", 4);
    while let Some(job) = try_claim(&mut c, "q", "w") {
        cmd!(c, "RQ.FAIL", "q", job.id, job.token);
        failures += 1;
    }
    assert_eq!(failures, 6);
}

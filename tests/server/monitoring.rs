//! What an operator can watch: times and rates, metrics, key events, and lines in the log.

use crate::common::*;
use crate::{args, cmd, refused, tests};

pub const TESTS: &[Test] = tests![
    waits_and_runs_are_told,
    what_is_told_survives_and_travels,
    a_dead_job_tells_when_it_failed,
    dead_jobs_are_listed_with_their_errors,
    metrics_are_of_those_named_or_of_all,
    every_transition_raises_its_event,
    a_replica_raises_the_same_events,
    nobody_listening_hears_nothing,
    tenants_are_listed,
    the_log_tells_of_the_configuration_once,
    the_log_tells_of_a_full_queue_once,
    the_log_tells_of_dead_jobs_as_they_double,
    words_nearly_right_are_suggested,
    info_tells_what_is_documented,
];

fn waits_and_runs_are_told(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    enqueue(&mut c, "q", "x");
    let stats = cmd!(c, "RQ.STATS", "q");
    assert_eq!(stats.get("wait-time").get("count").int(), 0);
    assert!(stats.get("wait-time").get("max").is_nil());
    // Time passes; how much is for the server to say.
    until("it has waited", || cmd!(c, "RQ.STATS", "q").get("oldest-ready-age").int() >= 40);
    let job = claim(&mut c, "q", "w");
    until("it has run", || {
        let claimed = cmd!(c, "RQ.JOB", "q", job.id.clone()).get("claimed").int();
        u64::try_from(claimed).unwrap() + 40 <= unix_ms()
    });
    // C12: of a job that ended, wait and run can be told apart.
    cmd!(c, "RQ.ACK", "q", job.id.clone(), job.token.clone(), "RESULT", "r");
    let ended = cmd!(c, "RQ.JOB", "q", job.id.clone());
    let instants = ["enqueued", "claimed", "ended"].map(|name| ended.get(name).int());
    assert!(instants[1] - instants[0] >= 38 && instants[2] - instants[1] >= 36, "{instants:?}");
    let stats = cmd!(c, "RQ.STATS", "q");
    for (name, least) in [("wait-time", 40), ("run-time", 38)] {
        let times = stats.get(name);
        assert_eq!(times.get("count").int(), 1, "{name}");
        let max = times.get("max").int();
        assert!(max >= least, "{name}: {max}");
        for percentile in ["p50", "p90", "p99"] {
            assert_eq!(times.get(percentile).int(), max, "{name} {percentile}");
        }
    }
    let rates = stats.get("rates");
    for (event, count) in [("enqueued", 1), ("delivered", 1), ("done", 1), ("failed", 0), ("dead", 0)] {
        let counts: Vec<i64> = rates.get(event).list().iter().map(Reply::int).collect();
        // At the turn of a minute the first may be less.
        assert!(
            counts.len() == 3 && counts[0] <= count && counts[1..] == [count, count],
            "{event}: {counts:?}"
        );
    }
    assert_eq!(
        (stats.get("workers").int(), stats.get("live-workers").int(), stats.get("stale-workers").int()),
        (1, 1, 0)
    );
}

fn what_is_told_survives_and_travels(lab: &Lab) {
    let mut primary = lab.server_with(&[("appendonly", "yes"), ("appendfsync", "always")]);
    let replica = lab.replica_of(&primary);
    let mut c = primary.client();
    for number in 0..20 {
        enqueue(&mut c, "q", number);
        let job = claim(&mut c, "q", "w");
        if number % 2 == 0 {
            ack(&mut c, "q", &job);
        } else {
            cmd!(c, "RQ.FAIL", "q", job.id, job.token, "DEAD");
        }
    }
    primary.wait_for_sync(&replica);
    let told = |server: &Server| {
        let stats = cmd!(server.client(), "RQ.STATS", "q");
        format!("{:?} {:?}", stats.get("wait-time"), stats.get("run-time"))
    };
    let (digest, before) = (primary.digest("q"), told(&primary));
    assert_eq!((replica.digest("q"), told(&replica)), (digest.clone(), before.clone()));
    primary.kill9();
    primary.restart();
    assert_eq!((primary.digest("q"), told(&primary)), (digest, before));
}

fn a_dead_job_tells_when_it_failed(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    cmd!(c, "RQ.ENQUEUE", "q", "x", "ID", "j", "ATTEMPTS", 7, "BACKOFF", 0);
    let before = i64::try_from(unix_ms()).unwrap();
    for _ in 0..7 {
        let job = claim(&mut c, "q", "worker-9");
        cmd!(c, "RQ.FAIL", "q", "j", job.token, "ERROR", "why");
    }
    let job = cmd!(c, "RQ.JOB", "q", "j");
    assert_eq!(job.get("reason").text(), "attempts");
    assert_eq!(job.get("worker").text(), "worker-9");
    assert_eq!(job.get("error").text(), "why");
    let instants: Vec<i64> = job.get("failed-at").list().iter().map(Reply::int).collect();
    assert_eq!(instants.len(), 5, "{instants:?}");
    assert!(instants.is_sorted() && instants[0] > before - 5_000, "{instants:?}, {before}");
    cmd!(c, "RQ.REDRIVE", "q", "j");
    assert_eq!(cmd!(c, "RQ.JOB", "q", "j").get("failed-at").list().len(), 0);
}

fn dead_jobs_are_listed_with_their_errors(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let long = "\u{e9}".repeat(40_000);
    for error in ["short", &long] {
        enqueue(&mut c, "q", "x");
        let job = claim(&mut c, "q", "w");
        cmd!(c, "RQ.FAIL", "q", job.id, job.token, "ERROR", error, "DEAD");
    }
    let page = cmd!(c, "RQ.LIST", "q", "dead");
    let errors: Vec<String> = page.list()[1].list().iter().map(|job| job.get("error").text()).collect();
    assert!(errors.contains(&"short".into()) && errors.contains(&"\u{e9}".repeat(128)), "{errors:?}");
}

fn metrics_are_of_those_named_or_of_all(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let text = |c: &mut Client, words: &[&str]| {
        let mut args = args!["RQ.METRICS"];
        args.extend(words.iter().map(|word| word.as_bytes().to_vec()));
        c.run(args).text()
    };
    let has = |text: &str, line: &str| text.lines().any(|found| found == line);
    let none = text(&mut c, &[]);
    assert!(has(&none, "rq_queues{db=\"0\"} 0") && none.ends_with("# EOF\n"), "{none}");
    enqueue(&mut c, "a", "x");
    enqueue(&mut c, "groups", "x");
    cmd!(c, "SET", "other", "x");
    cmd!(c, "SELECT", 5);
    enqueue(&mut c, "elsewhere", "x");
    cmd!(c, "SELECT", 0);
    let all = text(&mut c, &[]);
    assert!(has(&all, "rq_queues{db=\"0\"} 2") && !all.contains("elsewhere"), "{all}");
    assert!(has(&all, "rq_jobs{db=\"0\",queue=\"a\",state=\"ready\"} 1"), "{all}");
    let some = text(&mut c, &["a", "none", "other", "a"]);
    assert!(has(&some, "rq_queues{db=\"0\"} 1") && has(&some, "rq_queues_omitted{db=\"0\"} 0"), "{some}");
    assert!(!some.contains("queue=\"groups\"") && !some.contains("rq_group_jobs"), "{some}");
    // The last word is the option; before it, it is a queue.
    let named = text(&mut c, &["groups", "GROUPS"]);
    assert!(named.contains("rq_group_jobs{db=\"0\",queue=\"groups\","), "{named}");
    // As many queues as there may be: the reply stays bounded, and says what it leaves out.
    for number in 0..400 {
        enqueue(&mut c, &format!("many-{number}"), "x");
    }
    let many = text(&mut c, &["GROUPS"]);
    assert!(has(&many, "rq_queues{db=\"0\"} 402") && has(&many, "rq_queues_omitted{db=\"0\"} 202"), "{many}");
    assert_eq!(many.lines().filter(|line| line.starts_with("rq_paused{")).count(), 200);
}

/// Collects what was raised up to now; `marker` is a key of its own, set last.
fn heard(listener: &mut Client, c: &mut Client) -> Vec<String> {
    cmd!(c, "SET", "marker", "x");
    let mut events = Vec::new();
    loop {
        let message = eventually("an event", || listener.read_within(ms(100)));
        let message = message.list();
        let (channel, key) = (message[2].text(), message[3].text());
        if key == "marker" {
            return events;
        }
        assert_eq!(key, "q", "{channel}");
        events.push(channel.rsplit(':').next().unwrap().to_string());
    }
}

fn listener(server: &Server) -> Client {
    let mut listener = server.client();
    cmd!(listener, "PSUBSCRIBE", "__keyevent@0__:*");
    listener
}

fn every_transition_raises_its_event(lab: &Lab) {
    let server = lab.server_with(&[("notify-keyspace-events", "EA")]);
    let (mut c, mut ears) = (server.client(), listener(&server));
    let mut expect = |c: &mut Client, events: &[&str]| assert_eq!(heard(&mut ears, c), events);
    cmd!(c, "RQ.MENQUEUE", "q", "JOBS", 3, "a", "b", "c");
    expect(&mut c, &["rq.enqueue", "rq.enqueued", "rq.ready"]);
    let job = claim(&mut c, "q", "w");
    expect(&mut c, &["rq.claim", "rq.claimed"]);
    cmd!(c, "RQ.EXTEND", "q", "w", "LEASE", 40_000, job.id.clone(), job.token.clone());
    expect(&mut c, &["rq.extend"]);
    cmd!(c, "RQ.ACK", "q", job.id, job.token, "RESULT", "r");
    expect(&mut c, &["rq.ack", "rq.done"]);
    let job = claim(&mut c, "q", "w");
    cmd!(c, "RQ.RELEASE", "q", job.id, job.token);
    expect(&mut c, &["rq.claim", "rq.claimed", "rq.release", "rq.released", "rq.ready"]);
    let job = claim(&mut c, "q", "w");
    cmd!(c, "RQ.FAIL", "q", job.id.clone(), job.token, "DEAD");
    expect(&mut c, &["rq.claim", "rq.claimed", "rq.fail", "rq.failed", "rq.dead"]);
    cmd!(c, "RQ.REDRIVE", "q", job.id.clone());
    expect(&mut c, &["rq.redrive", "rq.redriven", "rq.ready"]);
    cmd!(c, "RQ.CANCEL", "q", job.id);
    expect(&mut c, &["rq.cancel", "rq.cancelled"]);
    cmd!(c, "RQ.PAUSE", "q");
    expect(&mut c, &["rq.pause"]);
    cmd!(c, "RQ.RESUME", "q");
    expect(&mut c, &["rq.resume"]);
    cmd!(c, "RQ.PURGE", "q", "cancelled");
    expect(&mut c, &["rq.purge", "rq.removed"]);
    // What changes nothing raises nothing.
    cmd!(c, "RQ.PURGE", "q", "cancelled");
    cmd!(c, "RQ.STATS", "q");
    expect(&mut c, &[]);
    // The last of the three: a lapse, found by the server alone, and the job handed to one who waits.
    let job = claim_for(&mut c, "q", "w", 30);
    let mut waiting = waiting_claim(&server, "q", "w2", 0);
    assert_eq!(jobs(&waiting.read())[0].id, job.id);
    let events: Vec<String> =
        heard(&mut ears, &mut c).into_iter().filter(|event| event != "rq.claim").collect();
    assert_eq!(events, ["rq.claimed", "rq.claimed", "rq.lapsed", "rq.ready"]);
}

fn a_replica_raises_the_same_events(lab: &Lab) {
    let primary = lab.server();
    let replica = lab.replica_with(&primary, &[("notify-keyspace-events", "EA")]);
    let (mut c, mut ears) = (primary.client(), listener(&replica));
    cmd!(c, "RQ.ENQUEUE", "q", "x", "DELAY", 30);
    let mut waiting = waiting_claim(&primary, "q", "w", 0);
    let job = jobs(&waiting.read()).remove(0);
    ack(&mut c, "q", &job);
    cmd!(c, "SET", "marker", "x");
    primary.wait_for_sync(&replica);
    let mut events = Vec::new();
    loop {
        let message = eventually("an event", || ears.read_within(ms(100)));
        let message = message.list();
        if message[3].text() == "marker" {
            break;
        }
        events.push(message[2].text().rsplit(':').next().unwrap().to_string());
    }
    for event in ["rq.enqueue", "rq.enqueued", "rq.ready", "rq.claimed", "rq.ack", "rq.done", "rq.removed"] {
        assert!(events.iter().any(|heard| heard == event), "{event} in {events:?}");
    }
    assert!(!events.contains(&"rq.apply".to_string()), "{events:?}");
}

fn nobody_listening_hears_nothing(lab: &Lab) {
    // All classes but that of modules.
    let server = lab.server_with(&[("notify-keyspace-events", "Eg$lshzxet")]);
    let (mut c, mut ears) = (server.client(), listener(&server));
    enqueue(&mut c, "q", "x");
    let job = claim(&mut c, "q", "w");
    ack(&mut c, "q", &job);
    assert_eq!(heard(&mut ears, &mut c), Vec::<String>::new());
    // What happened before somebody listened is not told later.
    cmd!(c, "CONFIG", "SET", "notify-keyspace-events", "EA");
    cmd!(c, "RQ.PAUSE", "q");
    assert_eq!(heard(&mut ears, &mut c), ["rq.pause"]);
}

fn tenants_are_listed(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    assert_eq!(cmd!(c, "RQ.TENANT.LIST", "q").list()[1].list().len(), 0);
    for tenant in ["a", "b", "c", "d"] {
        cmd!(c, "RQ.TENANT.SET", "q", tenant, "WEIGHT", 2);
    }
    cmd!(c, "RQ.PAUSE", "q", "TENANT", "c");
    let (mut names, mut cursor) = (Vec::new(), "0".to_string());
    loop {
        let page = cmd!(c, "RQ.TENANT.LIST", "q", "CURSOR", cursor, "COUNT", 2);
        let tenants = page.list()[1].list();
        assert!(tenants.len() <= 2);
        for tenant in tenants {
            let name = tenant.get("tenant").text();
            assert_eq!(tenant.get("paused").int(), i64::from(name == "c"));
            names.push(name);
        }
        cursor = page.list()[0].text();
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(names, ["", "a", "b", "c", "d"]);
    assert_eq!(refused!(c, "RQ.TENANT.LIST", "q", "CURSOR", "x"), "ERR");
}

fn lines(server: &Server, part: &str) -> usize {
    server.log().lines().filter(|line| line.contains(part)).count()
}

fn the_log_tells_of_the_configuration_once(lab: &Lab) {
    const AOF: &str = "appendonly is off";
    const EVICTS: &str = "may drop whole queues";
    let server = lab.server_with(&[("appendonly", "yes"), ("maxmemory", "1gb")]);
    assert_eq!((lines(&server, AOF), lines(&server, EVICTS)), (0, 0));
    let mut c = server.client();
    cmd!(c, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru");
    until("the line about eviction", || lines(&server, EVICTS) == 1);
    cmd!(c, "CONFIG", "SET", "maxmemory", "2gb");
    cmd!(c, "CONFIG", "SET", "appendonly", "no");
    until("the line about the AOF", || lines(&server, AOF) == 1);
    cmd!(c, "CONFIG", "SET", "maxmemory-policy", "noeviction");
    cmd!(c, "CONFIG", "SET", "timeout", "7");
    assert_eq!((lines(&server, AOF), lines(&server, EVICTS)), (1, 1));
    // It comes to be so again.
    cmd!(c, "CONFIG", "SET", "maxmemory-policy", "allkeys-random");
    until("the second line", || lines(&server, EVICTS) == 2);
    // At the start, too.
    let server = lab.server_with(&[("maxmemory", "1gb"), ("maxmemory-policy", "allkeys-lfu")]);
    assert_eq!((lines(&server, AOF), lines(&server, EVICTS)), (1, 1));
}

fn the_log_tells_of_a_full_queue_once(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    for queue in ["q", "r"] {
        cmd!(c, "RQ.QUEUE.SET", queue, "MAXLEN", 2);
        for _ in 0..2 {
            enqueue(&mut c, queue, "x");
        }
        for _ in 0..5 {
            assert_eq!(refused!(c, "RQ.ENQUEUE", queue, "x"), "FULL");
        }
        assert_eq!(lines(&server, &format!("queue '{queue}': enqueueing is refused, MAXLEN (2)")), 1);
    }
    // However many queues there are, the log is not flooded.
    for number in 0..100 {
        let queue = format!("many\n{number}");
        cmd!(c, "RQ.QUEUE.SET", &queue, "MAXLEN", 0);
        assert_eq!(refused!(c, "RQ.ENQUEUE", &queue, "x"), "FULL");
    }
    let told = lines(&server, "enqueueing is refused");
    assert!((10..30).contains(&told), "{told} lines");
}

fn the_log_tells_of_dead_jobs_as_they_double(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let die = |c: &mut Client, jobs: usize| {
        for _ in 0..jobs {
            enqueue(c, "q", "x");
            let job = claim(c, "q", "w");
            cmd!(c, "RQ.FAIL", "q", job.id, job.token, "DEAD");
        }
    };
    die(&mut c, 127);
    assert_eq!(lines(&server, "jobs are dead"), 0);
    die(&mut c, 100);
    assert_eq!(lines(&server, "jobs are dead"), 1);
    assert_eq!(lines(&server, "queue 'q': 128 jobs are dead"), 1);
    die(&mut c, 100);
    assert_eq!(lines(&server, "queue 'q': 256 jobs are dead"), 1);
    // Once they are gone, it begins anew.
    cmd!(c, "RQ.PURGE", "q", "dead");
    die(&mut c, 128);
    assert_eq!(lines(&server, "queue 'q': 128 jobs are dead"), 2);
    assert_eq!(lines(&server, "jobs are dead"), 3);
}

fn words_nearly_right_are_suggested(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let mut text = |args: Vec<Vec<u8>>| c.call(args).error().text();
    for (args, part) in [
        (args!["RQ.ENQUEUE", "q", "x", "DEALY", 1], "did you mean DELAY?"),
        (args!["RQ.ENQUEUE", "q", "x", "TLT", 1], "did you mean TTL?"),
        (args!["RQ.CLAIM", "q", "w", "BLOK", 1], "did you mean BLOCK?"),
        (args!["RQ.LIST", "q", "raedy"], "did you mean ready?"),
        (args!["RQ.PURGE", "q", "active"], "BADSTATE active jobs are with their workers"),
        (args!["RQ.QUEUE.SET", "q", "RATE", 5], "RATE takes n ms [BURST n]"),
        (
            args!["RQ.ENQUEUE", "q", "x", "ID", "i".repeat(513)],
            "ID must be a name of 1 to 512 bytes; it has 513",
        ),
        (args!["RQ.ENQUEUE", "q", "x", "ID", "1-1"], "ID must not look like <digits>-<digits>"),
    ] {
        let text = text(args);
        assert!(text.contains(part), "{text}");
    }
    cmd!(c, "CONFIG", "SET", "rq.default-backoff", "5000");
    assert_eq!(cmd!(c, "CONFIG", "GET", "rq.default-backoff").list()[1].text(), "5000 3600000");
    let help = cmd!(c, "RQ.HELP", "group.set").texts().join("\n");
    assert!(help.contains("[CONCURRENCY n | none | default]"), "{help}");
}

fn info_tells_what_is_documented(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let info = cmd!(c, "INFO", "rq").text();
    let shown: Vec<&str> =
        info.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name).collect();
    assert!(!shown.is_empty() && shown.iter().all(|name| name.starts_with("rq_")), "{info}");
    let reference = include_str!("../../docs/monitoring.md");
    for name in shown {
        assert!(reference.contains(&format!("`{name}`")), "{name} is not documented");
    }
}

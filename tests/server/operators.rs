//! `RQ.STATS`, `RQ.JOB`, `RQ.LIST`, `RQ.QUEUES`, `RQ.PAUSE`, `RQ.REDRIVE`, `RQ.PURGE`, settings, and what the server
//! tells about the commands.

use std::collections::HashSet;

use crate::common::*;
use crate::{args, cmd, refused, tests};

pub const TESTS: &[Test] = tests![
    stats_count_every_state,
    stats_add_up,
    job_tells_everything,
    json_replies,
    list_pages_through_a_state,
    list_by_worker,
    queues_from_the_index,
    pause_and_resume,
    pause_survives_a_restart,
    redrive_some_and_all,
    purge_each_state,
    settings_are_kept_and_shown,
    settings_all_or_none,
    configs_make_new_queues,
    the_example_configuration_names_every_option,
    commands_are_described,
    info_has_a_section,
    keyspace_stays_one_key,
    memory_usage_counts,
];

fn stats_count_every_state(lab: &Lab) {
    let server = lab.server();
    for mut c in [server.client(), server.client3()] {
        cmd!(c, "FLUSHALL");
        cmd!(c, "RQ.ENQUEUE", "q", "x", "DELAY", 3_600_000);
        let cancelled = enqueue(&mut c, "q", "x");
        cmd!(c, "RQ.CANCEL", "q", cancelled);
        for end in ["RESULT", "DEAD", "active"] {
            enqueue(&mut c, "q", "x");
            let job = claim(&mut c, "q", "w");
            match end {
                "RESULT" => drop(cmd!(c, "RQ.ACK", "q", job.id, job.token, "RESULT", "r")),
                "DEAD" => drop(cmd!(c, "RQ.FAIL", "q", job.id, job.token, "DEAD")),
                _ => {}
            }
        }
        enqueue(&mut c, "q", "x");
        enqueue(&mut c, "q", "x");
        let all = Counts { delayed: 1, ready: 2, active: 1, done: 1, dead: 1, cancelled: 1 };
        assert_eq!(counts(&mut c, "q"), all);
        let stats = cmd!(c, "RQ.STATS", "q");
        assert_eq!(stats.get("workers").int(), 1);
        assert!(stats.get("bytes").int() > 0);
        assert_eq!(stats.get("paused").int(), 0);
        assert_eq!(refused!(c, "RQ.STATS", "none"), "NOQUEUE");
    }
}

/// Invariant I9 from outside.
fn stats_add_up(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    for number in 0..50 {
        cmd!(c, "RQ.ENQUEUE", "q", number, "ATTEMPTS", 1);
        match number % 5 {
            0 => {}
            1 => drop(claim(&mut c, "q", "w")),
            2 => {
                let job = claim(&mut c, "q", "w");
                ack(&mut c, "q", &job);
            }
            3 => {
                let job = claim(&mut c, "q", "w");
                cmd!(c, "RQ.FAIL", "q", job.id, job.token);
            }
            _ => {
                let job = claim(&mut c, "q", "w");
                cmd!(c, "RQ.ACK", "q", job.id, job.token, "RESULT", "r");
            }
        }
    }
    cmd!(c, "RQ.PURGE", "q", "dead", "COUNT", 3);
    let stats = cmd!(c, "RQ.STATS", "q");
    let totals = stats.get("totals");
    assert_eq!(totals.get("enqueued").int(), 50);
    assert_eq!(totals.get("enqueued").int(), Counts::of(&stats).sum() + totals.get("removed").int());
}

fn job_tells_everything(lab: &Lab) {
    let server = lab.server();
    for mut c in [server.client(), server.client3()] {
        cmd!(c, "FLUSHALL");
        assert!(cmd!(c, "RQ.JOB", "none", "j").is_nil());
        cmd!(c, "RQ.ENQUEUE", "q", "payload", "ID", "j", "PRIORITY", 9, "DELAY", 3_600_000);
        assert!(cmd!(c, "RQ.JOB", "q", "unknown").is_nil());
        let map = cmd!(c, "RQ.JOB", "q", "j");
        assert_eq!(map.get("id").text(), "j");
        assert_eq!(map.get("state").text(), "delayed");
        assert_eq!(map.get("payload").text(), "payload");
        assert_eq!(map.get("priority").int(), 9);
        assert_eq!(map.get("deliveries").int(), 0);
        assert_eq!(map.get("attempts").int(), 0);
        assert_eq!(map.get("crashes").int(), 0);
        let due = map.get("due").int();
        assert!((due - i64::try_from(unix_ms()).unwrap() - 3_600_000).abs() < 5000, "{due}");
    }
}

fn json_replies(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    cmd!(c, "RQ.ENQUEUE", "q", b"quote \" and \xff and \n", "ID", "j");
    for command in [
        args!["RQ.STATS", "q", "JSON"],
        args!["RQ.JOB", "q", "j", "JSON"],
        args!["RQ.QUEUE.GET", "q", "JSON"],
    ] {
        let text = c.run(command.clone()).text();
        assert!(text.starts_with('{') && text.ends_with('}'), "{text}");
        // One text of valid JSON: python is surely there where the tests run.
        let mut python = std::process::Command::new("python3");
        let mut child = python
            .args(["-c", "import json, sys; json.load(sys.stdin)"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(child.stdin.as_mut().unwrap(), text.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success(), "{text}");
    }
    assert!(cmd!(c, "RQ.JOB", "q", "unknown", "JSON").is_nil());
    assert_eq!(refused!(c, "RQ.STATS", "none", "JSON"), "NOQUEUE");
}

/// All jobs of a state, by as many calls as it takes.
fn list_all(c: &mut Client, state: &str, count: usize) -> Vec<String> {
    let mut ids = Vec::new();
    let mut cursor = "0".to_string();
    loop {
        let reply = cmd!(c, "RQ.LIST", "q", state, "CURSOR", cursor, "COUNT", count);
        let page = reply.list()[1].list();
        assert!(page.len() <= count);
        ids.extend(page.iter().map(|job| job.get("id").text()));
        cursor = reply.list()[0].text();
        if cursor == "0" {
            return ids;
        }
    }
}

fn list_pages_through_a_state(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let empty = cmd!(c, "RQ.LIST", "none", "ready");
    assert_eq!((empty.list()[0].text(), empty.list()[1].list().len()), ("0".into(), 0));
    let mut args = args!["RQ.MENQUEUE", "q", "TTL", 3_600_000, "JOBS", 250];
    args.extend((0..250).map(|number| number.to_arg()));
    let ids: HashSet<String> = c.run(args).texts().into_iter().collect();
    for state in ["ready", "active", "done", "dead", "cancelled", "delayed"] {
        match state {
            "active" => drop(cmd!(c, "RQ.CLAIM", "q", "w", "COUNT", 250)),
            "done" => {
                cmd!(c, "RQ.RECOVER", "q", "EXCEPT", 0, "UNCOUNTED");
                for job in jobs(&cmd!(c, "RQ.CLAIM", "q", "w", "COUNT", 250)) {
                    assert_eq!(ack(&mut c, "q", &job), 1);
                }
            }
            "ready" => {}
            _ => {
                cmd!(c, "DEL", "q");
                for id in &ids {
                    let id = format!("own {id}");
                    cmd!(c, "RQ.ENQUEUE", "q", "x", "ID", id, "DELAY", 3_600_000);
                    match state {
                        "dead" => {
                            cmd!(c, "RQ.RESCHEDULE", "q", id, "DELAY", 0);
                            let job = claim(&mut c, "q", "w");
                            cmd!(c, "RQ.FAIL", "q", job.id, job.token, "DEAD");
                        }
                        "cancelled" => drop(cmd!(c, "RQ.CANCEL", "q", id)),
                        _ => {}
                    }
                }
            }
        }
        for count in [1, 7, 1000] {
            let listed = list_all(&mut c, state, count);
            assert_eq!(listed.len(), 250, "{state} by {count}");
            assert_eq!(listed.iter().collect::<HashSet<_>>().len(), 250, "{state} by {count}");
        }
    }
    // Without COUNT a page is bounded all the same.
    assert!(cmd!(c, "RQ.LIST", "q", "delayed").list()[1].list().len() <= 1000);
    for wrong in [
        &["nonsense"][..],
        &[],
        &["ready", "CURSOR"],
        &["ready", "CURSOR", "x y"],
        &["ready", "COUNT", "0"],
        &["ready", "COUNT", "1001"],
        &["ready", "ready"],
    ] {
        let mut args = args!["RQ.LIST", "q"];
        args.extend(wrong.iter().map(|arg| arg.as_bytes().to_vec()));
        assert_eq!(c.refused(args), "ERR", "{wrong:?}");
    }
}

fn list_by_worker(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    cmd!(c, "RQ.MENQUEUE", "q", "JOBS", 5, 0, 1, 2, 3, 4);
    cmd!(c, "RQ.CLAIM", "q", "a", "COUNT", 2);
    cmd!(c, "RQ.CLAIM", "q", "b", "COUNT", 3);
    for (worker, count) in [("a", 2), ("b", 3), ("nobody", 0)] {
        let mut cursor = "0".to_string();
        let mut seen = 0;
        loop {
            let reply = cmd!(c, "RQ.LIST", "q", "active", "WORKER", worker, "CURSOR", cursor);
            for job in reply.list()[1].list() {
                assert_eq!(job.get("worker").text(), worker);
                seen += 1;
            }
            cursor = reply.list()[0].text();
            if cursor == "0" {
                break;
            }
        }
        assert_eq!(seen, count);
    }
}

fn queues_from_the_index(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let all = |c: &mut Client, more: &[&str]| {
        let mut names = Vec::new();
        let mut cursor = "0".to_string();
        loop {
            let mut args = args!["RQ.QUEUES", "CURSOR", cursor];
            args.extend(more.iter().map(|arg| arg.as_bytes().to_vec()));
            let reply = c.run(args);
            names.extend(reply.list()[1].texts());
            cursor = reply.list()[0].text();
            if cursor == "0" {
                names.sort();
                return names;
            }
        }
    };
    assert!(all(&mut c, &[]).is_empty());
    cmd!(c, "DEBUG", "POPULATE", 1000);
    for number in 0..30 {
        enqueue(&mut c, &format!("queue:{number:02}"), "x");
    }
    assert_eq!(all(&mut c, &["COUNT", "7"]).len(), 30);
    assert_eq!(all(&mut c, &["MATCH", "queue:1?"]).len(), 10);
    cmd!(c, "DEL", "queue:00");
    cmd!(c, "SET", "queue:01", "x");
    cmd!(c, "RENAME", "queue:02", "renamed");
    cmd!(c, "MOVE", "queue:03", 1);
    cmd!(c, "COPY", "queue:04", "copied");
    let names = all(&mut c, &[]);
    assert_eq!(names.len(), 28, "{names:?}");
    assert!(names.contains(&"renamed".to_string()) && names.contains(&"copied".to_string()), "{names:?}");
    cmd!(c, "SELECT", 1);
    assert_eq!(all(&mut c, &[]), ["queue:03"]);
    cmd!(c, "SWAPDB", 0, 1);
    assert_eq!(all(&mut c, &[]).len(), 28);
    cmd!(c, "DEBUG", "RELOAD");
    assert_eq!(all(&mut c, &[]).len(), 28);
    cmd!(c, "FLUSHDB");
    assert!(all(&mut c, &[]).is_empty());
}

fn pause_and_resume(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    assert_eq!(cmd!(c, "RQ.PAUSE", "q").text(), "OK");
    assert_eq!(cmd!(c, "EXISTS", "q").int(), 1, "a pause makes the queue");
    enqueue(&mut c, "q", "x");
    assert!(try_claim(&mut c, "q", "w").is_none());
    let stats = cmd!(c, "RQ.STATS", "q");
    assert_eq!((stats.get("ready").int(), stats.get("paused").int()), (1, 1));
    assert_eq!(cmd!(c, "RQ.PAUSE", "q").text(), "OK", "again");
    assert_eq!(cmd!(c, "RQ.RESUME", "q").text(), "OK");
    let job = claim(&mut c, "q", "w");
    // What is active goes on.
    cmd!(c, "RQ.PAUSE", "q");
    assert_eq!(cmd!(c, "RQ.EXTEND", "q", "w", "LEASE", 5000, job.id, job.token).texts(), ["ok"]);
    assert_eq!(cmd!(c, "RQ.FAIL", "q", job.id, job.token, "RETRY", 0).text(), "ready");
    assert!(try_claim(&mut c, "q", "w").is_none());
    cmd!(c, "RQ.PAUSE", "q", "FOR", 100);
    claim_soon(&mut c, "q", "w");
    assert_eq!(cmd!(c, "RQ.RESUME", "none").text(), "OK");
    for wrong in [&["FOR"][..], &["FOR", "-1"], &["FOR", "x"], &["WHATEVER"]] {
        let mut args = args!["RQ.PAUSE", "q"];
        args.extend(wrong.iter().map(|arg| arg.as_bytes().to_vec()));
        assert_eq!(c.refused(args), "ERR", "{wrong:?}");
    }
}

fn pause_survives_a_restart(lab: &Lab) {
    let mut server = lab.server_with(&[("appendonly", "yes"), ("appendfsync", "always")]);
    let mut c = server.client();
    enqueue(&mut c, "q", "x");
    cmd!(c, "RQ.PAUSE", "q");
    server.kill9();
    server.restart();
    let mut c = server.client();
    assert!(try_claim(&mut c, "q", "w").is_none());
    cmd!(c, "RQ.RESUME", "q");
    claim(&mut c, "q", "w");
}

fn redrive_some_and_all(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let mut ids = Vec::new();
    for number in 0..10 {
        ids.push(cmd!(c, "RQ.ENQUEUE", "q", number, "ATTEMPTS", 1).text());
        let job = claim(&mut c, "q", "w");
        cmd!(c, "RQ.FAIL", "q", job.id, job.token, "ERROR", "e");
    }
    let reply = cmd!(c, "RQ.REDRIVE", "q", ids[0], "unknown", ids[0]);
    assert_eq!(reply.list()[0].text(), "ready");
    assert!(reply.list()[1].is_nil());
    assert_eq!(reply.list()[2].text(), "ready");
    let reply = cmd!(c, "RQ.REDRIVE", "q", "ALL", "COUNT", 4);
    assert_eq!((reply.list()[0].int(), reply.list()[1].int()), (4, 5));
    cmd!(c, "RQ.QUEUE.SET", "q", "MAXLEN", 7);
    let reply = cmd!(c, "RQ.REDRIVE", "q", "ALL");
    assert_eq!((reply.list()[0].int(), reply.list()[1].int()), (2, 3), "it stops at MAXLEN");
    let again = claim(&mut c, "q", "w");
    assert_eq!(again.delivery, 2);
    let facts = job(&mut c, "q", &again.id).expect("it exists");
    assert_eq!((facts["attempts"].int(), facts["crashes"].int()), (0, 0));
}

fn purge_each_state(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let reply = cmd!(c, "RQ.PURGE", "none", "ready");
    assert_eq!((reply.list()[0].int(), reply.list()[1].int()), (0, 0));
    cmd!(c, "RQ.MENQUEUE", "q", "JOBS", 5, 0, 1, 2, 3, 4);
    let active = claim(&mut c, "q", "w");
    cmd!(c, "RQ.MENQUEUE", "q", "DELAY", 3_600_000, "JOBS", 2, 0, 1);
    let before = fingerprint(&server, "q");
    assert_eq!(refused!(c, "RQ.PURGE", "q", "active"), "BADSTATE");
    assert_eq!(refused!(c, "RQ.PURGE", "q", "nonsense"), "ERR");
    assert_eq!(refused!(c, "RQ.PURGE", "q"), "ERR");
    assert_eq!(fingerprint(&server, "q"), before);
    let reply = cmd!(c, "RQ.PURGE", "q", "ready", "COUNT", 3);
    assert_eq!((reply.list()[0].int(), reply.list()[1].int()), (3, 1));
    let reply = cmd!(c, "RQ.PURGE", "q", "delayed");
    assert_eq!((reply.list()[0].int(), reply.list()[1].int()), (2, 0));
    assert_eq!(counts(&mut c, "q"), Counts { ready: 1, active: 1, ..Counts::default() });
    assert_eq!(ack(&mut c, "q", &active), 1);
}

fn settings_are_kept_and_shown(lab: &Lab) {
    let mut server = lab.server_with(&[("appendonly", "yes"), ("appendfsync", "always")]);
    let mut c = server.client();
    assert_eq!(refused!(c, "RQ.QUEUE.GET", "q"), "NOQUEUE");
    cmd!(
        c,
        "RQ.QUEUE.SET",
        "q",
        "LEASE",
        1,
        "ATTEMPTS",
        2,
        "CRASHES",
        3,
        "BACKOFF",
        4,
        5,
        "TTL",
        6,
        "RESULTTTL",
        7,
        "DEADTTL",
        8,
        "KEEPDONE",
        9,
        "KEEPDEAD",
        10,
        "MAXLEN",
        11,
        "WORKERTTL",
        12_000
    );
    let check = |c: &mut Client| {
        let settings = cmd!(c, "RQ.QUEUE.GET", "q");
        for (name, value) in [
            ("lease", 1),
            ("attempts", 2),
            ("crashes", 3),
            ("ttl", 6),
            ("resultttl", 7),
            ("deadttl", 8),
            ("keepdone", 9),
            ("keepdead", 10),
            ("maxlen", 11),
            ("workerttl", 12_000),
        ] {
            assert_eq!(settings.get(name).int(), value, "{name}");
        }
        let backoff = settings.get("backoff");
        assert_eq!(backoff.list().iter().map(Reply::int).collect::<Vec<_>>(), [4, 5]);
    };
    check(&mut c);
    server.kill9();
    server.restart();
    let mut c = server.client();
    check(&mut c);
    cmd!(
        c,
        "RQ.QUEUE.SET",
        "q",
        "MAXLEN",
        "none",
        "KEEPDEAD",
        "none",
        "KEEPDONE",
        "none",
        "ATTEMPTS",
        "none",
        "CRASHES",
        "none"
    );
    let settings = cmd!(c, "RQ.QUEUE.GET", "q");
    for name in ["maxlen", "keepdead", "keepdone", "attempts", "crashes"] {
        assert_eq!(settings.get(name).text(), "none", "{name}");
    }
}

fn settings_all_or_none(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    cmd!(c, "RQ.QUEUE.SET", "q", "LEASE", 1000);
    let before = fingerprint(&server, "q");
    for wrong in [
        &["LEASE", "5", "ATTEMPTS", "0"][..],
        &["LEASE", "0"],
        &["LEASE", "none"],
        &["LEASE", "-1"],
        &["LEASE"],
        &["LEASE", "5", "LEASE", "6"],
        &["NONSENSE", "5"],
        &["BACKOFF"],
        &["BACKOFF", "-1"],
        &["BACKOFF", "10", "5"],
        &["TTL", "9223372036854775808"],
        &["KEEPDONE", "-1"],
        &["MAXLEN", "1.5"],
        &[],
    ] {
        let mut args = args!["RQ.QUEUE.SET", "q"];
        args.extend(wrong.iter().map(|arg| arg.as_bytes().to_vec()));
        assert_eq!(c.refused(args), "ERR", "{wrong:?}");
        assert_eq!(fingerprint(&server, "q"), before, "{wrong:?}");
        let mut args = args!["RQ.QUEUE.SET", "never"];
        args.extend(wrong.iter().map(|arg| arg.as_bytes().to_vec()));
        assert_eq!(c.refused(args), "ERR", "{wrong:?}");
        assert_eq!(cmd!(c, "EXISTS", "never").int(), 0, "{wrong:?}");
    }
}

fn configs_make_new_queues(lab: &Lab) {
    let server = lab.server_with(&[("rq.default-attempts", "7"), ("rq.default-lease", "1234")]);
    let mut c = server.client();
    enqueue(&mut c, "old", "x");
    for (name, value) in
        [("rq.default-attempts", "9"), ("rq.default-maxlen", "5"), ("rq.default-backoff", "1 2")]
    {
        cmd!(c, "CONFIG", "SET", name, value);
    }
    enqueue(&mut c, "new", "x");
    let old = cmd!(c, "RQ.QUEUE.GET", "old");
    assert_eq!(
        (old.get("attempts").int(), old.get("lease").int(), old.get("maxlen").text()),
        (7, 1234, "none".into())
    );
    let new = cmd!(c, "RQ.QUEUE.GET", "new");
    assert_eq!((new.get("attempts").int(), new.get("lease").int(), new.get("maxlen").int()), (9, 1234, 5));
    assert_eq!(new.get("backoff").list().iter().map(Reply::int).collect::<Vec<_>>(), [1, 2]);
    for (name, wrong) in [
        ("rq.default-attempts", "0"),
        ("rq.default-lease", "0"),
        ("rq.default-lease", "x"),
        ("rq.default-backoff", "5 1"),
        ("rq.default-backoff", ""),
        ("rq.default-maxlen", "-1"),
        ("rq.max-payload", "-1"),
    ] {
        c.call(args!["CONFIG", "SET", name, wrong]).error();
    }
    assert_eq!(cmd!(c, "CONFIG", "GET", "rq.default-attempts").list()[1].text(), "9");
}

/// Every option of the module is in `redis.conf.example`, with its default, and nothing else is.
fn the_example_configuration_names_every_option(lab: &Lab) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("redis.conf.example");
    let text = std::fs::read_to_string(path).unwrap();
    let mut example: Vec<(String, String)> = text
        .lines()
        .filter_map(|line| line.trim_start_matches(['#', ' ']).split_once(' '))
        .filter(|(name, _)| name.starts_with("rq.") && !name.ends_with([':', ',', '.']))
        .map(|(name, value)| (name.to_string(), value.trim().trim_matches('"').to_string()))
        .collect();
    example.sort();
    let server = lab.server();
    let mut options = cmd!(server.client(), "CONFIG", "GET", "rq.*")
        .entries()
        .iter()
        .map(|(name, value)| (name.clone(), value.text()))
        .collect::<Vec<_>>();
    options.sort();
    assert_eq!(example, options);
    // And it loads as it stands.
    let lines: Vec<(String, String)> = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
        .filter_map(|line| line.split_once(' '))
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect();
    let lines: Vec<(&str, &str)> =
        lines.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let server = lab.server_with(&lines);
    let mut c = server.client();
    assert_eq!(cmd!(c, "CONFIG", "GET", "appendonly").list()[1].text(), "yes");
    assert_eq!(cmd!(c, "CONFIG", "GET", "maxmemory-policy").list()[1].text(), "noeviction");
    enqueue(&mut c, "q", "x");
}

fn commands_are_described(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let modules = cmd!(c, "MODULE", "LIST");
    assert!(modules.list().iter().any(|module| module.get("name").text() == "rq"), "{modules:?}");
    let names: Vec<String> = cmd!(c, "COMMAND", "LIST", "FILTERBY", "MODULE", "rq").texts();
    for name in [
        "enqueue",
        "menqueue",
        "cancel",
        "reschedule",
        "result",
        "claim",
        "mclaim",
        "ack",
        "fail",
        "release",
        "extend",
        "progress",
        "recover",
        "workers",
        "stats",
        "job",
        "list",
        "queues",
        "pause",
        "resume",
        "redrive",
        "purge",
        "queue.set",
        "queue.get",
        "group.set",
        "group.get",
        "group.list",
        "tenant.set",
        "tenant.get",
        "tenant.list",
        "metrics",
    ] {
        let name = format!("rq.{name}");
        assert!(
            names.iter().any(|known| known.eq_ignore_ascii_case(&name)),
            "{name} is missing in {names:?}"
        );
        let docs = cmd!(c, "COMMAND", "DOCS", name);
        let docs = &docs.entries()[0].1;
        assert!(!docs.get("summary").text().is_empty(), "{name}");
        if name != "rq.queues" {
            assert!(!docs.get("arguments").list().is_empty(), "{name}");
        }
        let info = cmd!(c, "COMMAND", "INFO", name);
        let info = info.list()[0].list();
        let has_no_key = name == "rq.queues" || name == "rq.metrics";
        assert!(info[1].int() != -1 || has_no_key, "{name} has an arity");
        let flags: Vec<String> = info[2].texts();
        let denied = flags.contains(&"denyoom".to_string());
        assert_eq!(denied, name == "rq.enqueue" || name == "rq.menqueue", "{name}: {flags:?}");
        let reads = ["result", "workers", "stats", "job", "list", "queues", "queue.get"]
            .into_iter()
            .chain(["group.get", "group.list", "tenant.get", "tenant.list", "metrics"])
            .any(|read| name == format!("rq.{read}"));
        assert_eq!(flags.contains(&"readonly".to_string()), reads, "{name}: {flags:?}");
        assert_eq!(flags.contains(&"write".to_string()), !reads, "{name}: {flags:?}");
        if !has_no_key && name != "rq.mclaim" {
            assert_eq!(
                (info[3].int(), info[4].int(), info[5].int()),
                (1, 1, 1),
                "{name}: the queue is the key"
            );
        }
    }
    assert_eq!(cmd!(c, "COMMAND", "GETKEYS", "RQ.ENQUEUE", "q", "x").texts(), ["q"]);
    // Too few arguments are refused by every command that needs some.
    let needs_some =
        |name: &&String| !["rq.queues", "rq.metrics", "rq.help"].contains(&name.to_lowercase().as_str());
    for name in names.iter().filter(needs_some) {
        assert_eq!(refused!(c, name), "ERR", "{name}");
    }
}

fn info_has_a_section(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    enqueue(&mut c, "q", "x");
    let reply = cmd!(c, "INFO", "rq");
    let text = String::from_utf8_lossy(reply.bytes()).into_owned();
    assert!(text.contains("rq_"), "{text}");
    assert!(!String::from_utf8_lossy(cmd!(c, "INFO", "modules").bytes()).is_empty());
}

fn keyspace_stays_one_key(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    for number in 0..100 {
        enqueue(&mut c, "q", number);
    }
    let job = claim(&mut c, "q", "w");
    cmd!(c, "RQ.ACK", "q", job.id, job.token, "RESULT", "r");
    assert_eq!(cmd!(c, "DBSIZE").int(), 1);
    assert_eq!(cmd!(c, "SCAN", 0, "COUNT", 1000).list()[1].texts(), ["q"]);
}

fn memory_usage_counts(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    enqueue(&mut c, "q", "x");
    let before = cmd!(c, "MEMORY", "USAGE", "q").int();
    let mut args = args!["RQ.MENQUEUE", "q", "JOBS", 1000];
    args.extend((0..1000).map(|_| vec![b'x'; 1000]));
    c.run(args);
    let after = cmd!(c, "MEMORY", "USAGE", "q").int();
    assert!(after > before + 1_000_000 && after < before + 1_500_000, "{before} then {after}");
    cmd!(c, "RQ.PURGE", "q", "ready");
    assert!(cmd!(c, "MEMORY", "USAGE", "q").int() < before + 100_000);
}

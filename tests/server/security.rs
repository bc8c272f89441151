//! Who can do what: every command of the module under users with all kinds of key permissions, the roles that the README
//! proposes, and that nobody gets more work or memory out of the server than the bytes they send are worth.

use std::collections::BTreeSet;

use crate::common::*;
use crate::{args, cmd, send, tests};

pub const TESTS: &[Test] = tests![
    every_command_has_a_sample,
    key_permissions_of_every_command,
    keys_of_every_command,
    categories_of_every_command,
    selectors,
    roles_of_the_readme,
    ids_and_names_are_bounded,
    workers_are_bounded_and_paged,
    few_bytes_make_little_memory,
    a_wrong_number_of_arguments_is_explained,
];

/// What a command does with its keys, as access control sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    /// Has no key.
    Nothing,
    /// Tells what is stored, changes nothing.
    Reads,
    /// Changes, and tells nothing of what is stored.
    Writes,
    /// Both.
    Both,
}
use Does::{Both, Nothing, Reads, Writes};

/// A call of every command; `K` stands for the key, `L` for another one.
const SAMPLES: &[(Does, &str)] = &[
    (Writes, "RQ.ENQUEUE K payload"),
    (Writes, "RQ.MENQUEUE K JOBS 1 payload"),
    (Writes, "RQ.CANCEL K j"),
    (Writes, "RQ.RESCHEDULE K j DELAY 5"),
    (Reads, "RQ.RESULT K j"),
    (Reads, "RQ.READ K j"),
    (Both, "RQ.CLAIM K w"),
    (Both, "RQ.MCLAIM 2 K L w"),
    (Writes, "RQ.ACK K j 1-1"),
    (Writes, "RQ.FAIL K j 1-1"),
    (Writes, "RQ.RELEASE K j 1-1"),
    (Writes, "RQ.EXTEND K w LEASE 5 j 1-1"),
    (Writes, "RQ.PROGRESS K j 1-1 half"),
    (Writes, "RQ.EMIT K j 1-1 chunk"),
    (Both, "RQ.RECOVER K"),
    (Reads, "RQ.WORKERS K"),
    (Reads, "RQ.STATS K"),
    (Reads, "RQ.JOB K j"),
    (Reads, "RQ.LIST K ready"),
    (Nothing, "RQ.QUEUES"),
    (Nothing, "RQ.METRICS"),
    (Writes, "RQ.PAUSE K"),
    (Writes, "RQ.RESUME K"),
    (Writes, "RQ.REDRIVE K j"),
    (Writes, "RQ.PURGE K ready"),
    (Writes, "RQ.QUEUE.SET K LEASE 5"),
    (Reads, "RQ.QUEUE.GET K"),
    (Writes, "RQ.GROUP.SET K g CONCURRENCY 5"),
    (Reads, "RQ.GROUP.GET K g"),
    (Reads, "RQ.GROUP.LIST K"),
    (Writes, "RQ.TENANT.SET K t WEIGHT 5"),
    (Reads, "RQ.TENANT.GET K t"),
    (Reads, "RQ.TENANT.LIST K"),
    (Nothing, "RQ.HELP"),
    (Both, "RQ.APPLY K message"),
];

/// A sample as a call for these keys.
fn call(sample: &str, key: &str, other: &str) -> Vec<Vec<u8>> {
    let word = |word| match word {
        "K" => key,
        "L" => other,
        word => word,
    };
    sample.split(' ').map(|part| word(part).as_bytes().to_vec()).collect()
}

fn name_of(sample: &str) -> &str {
    sample.split(' ').next().unwrap_or_default()
}

/// A connection of a user with these rules.
fn user(server: &Server, rules: &str) -> Client {
    let mut c = server.client();
    let mut set = args!["ACL", "SETUSER", "somebody", "reset", "on", ">pw"];
    set.extend(rules_of(rules).into_iter().map(String::into_bytes));
    c.run(set);
    cmd!(c, "AUTH", "somebody", "pw");
    c
}

/// Rules, separated by blanks; what stands in parentheses is one.
fn rules_of(text: &str) -> Vec<String> {
    let mut rules: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match rules.last_mut().filter(|last| last.starts_with('(') && !last.ends_with(')')) {
            Some(last) => {
                last.push(' ');
                last.push_str(word);
            }
            None => rules.push(word.into()),
        }
    }
    rules
}

/// Whether access control lets the call through, whatever comes of it then.
#[track_caller]
fn may(client: &mut Client, call: Vec<Vec<u8>>) -> bool {
    match client.call(call) {
        Reply::Error(error) if error.word() == "NOPERM" => false,
        Reply::Error(error) => {
            assert!(!error.text().contains("unknown"), "{error:?}");
            true
        }
        _ => true,
    }
}

fn every_command_has_a_sample(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let there: BTreeSet<String> = cmd!(c, "COMMAND", "LIST", "FILTERBY", "MODULE", "rq")
        .texts()
        .iter()
        .map(|name| name.to_uppercase())
        .collect();
    let samples: BTreeSet<String> = SAMPLES.iter().map(|(_, sample)| name_of(sample).into()).collect();
    assert_eq!(samples, there);
}

fn key_permissions_of_every_command(lab: &Lab) {
    let server = lab.server();
    for (rules, allows) in [
        ("+@all ~a:*", &[Reads, Writes, Both][..]),
        ("+@all %RW~a:*", &[Reads, Writes, Both]),
        ("+@all %R~a:* %W~a:*", &[Reads, Writes, Both]),
        ("+@all %R~a:*", &[Reads]),
        ("+@all %W~a:*", &[Writes]),
        ("+@all %R~a:* %W~b:*", &[Reads]),
        ("+@all", &[]),
    ] {
        let mut c = user(&server, rules);
        for (does, sample) in SAMPLES {
            let expected = *does == Nothing || allows.contains(does);
            assert_eq!(may(&mut c, call(sample, "a:q", "a:r")), expected, "{rules}: {sample}");
            if *does != Nothing {
                assert!(!may(&mut c, call(sample, "c:q", "c:r")), "{rules}: {sample} of another's key");
                assert!(
                    !sample.contains(" L ") || !may(&mut c, call(sample, "a:q", "c:r")),
                    "{rules}: {sample}"
                );
            }
        }
    }
    assert_eq!(cmd!(server.client(), "EXISTS", "c:q").int(), 0);
}

/// What cluster clients and access control go by.
fn keys_of_every_command(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    for (does, sample) in SAMPLES {
        let mut get = args!["COMMAND", "GETKEYS"];
        get.extend(call(sample, "one", "two"));
        match does {
            Nothing => drop(c.refused(get)),
            _ if sample.contains(" L ") => assert_eq!(c.run(get).texts(), ["one", "two"], "{sample}"),
            _ => assert_eq!(c.run(get).texts(), ["one"], "{sample}"),
        }
    }
    // Numbers of keys that cannot be. (Larger than 32 bits, Redis 7.0 itself takes the rest of them.)
    for count in ["0", "-1", "3", "1001", "18446744073709551617", "x", ""] {
        c.refused(args!["COMMAND", "GETKEYS", "RQ.MCLAIM", count, "one", "w"]);
    }
}

/// Redis 7.0 has no categories for the commands of modules: what takes one away takes none of them.
fn categories_of_every_command(lab: &Lab) {
    let server = lab.server();
    let has_categories = !server.info("redis_version").starts_with("7.0.");
    if !has_categories {
        let mut c = user(&server, "~* +@all -@write -@read -@blocking");
        assert!(SAMPLES.iter().all(|(_, sample)| may(&mut c, call(sample, "q", "r"))));
        return;
    }
    for (rules, allows) in [
        ("~* +@all -@write", &[Reads, Nothing][..]),
        ("~* -@all +@read", &[Reads, Nothing]),
        ("~* -@all +@write", &[Writes, Both]),
    ] {
        let mut c = user(&server, rules);
        for (does, sample) in SAMPLES {
            assert_eq!(may(&mut c, call(sample, "q", "r")), allows.contains(does), "{rules}: {sample}");
        }
    }
    // A user that may not wait may still ask.
    let mut c = user(&server, "~* +@all -@blocking");
    for (_, sample) in SAMPLES {
        let blocks = ["RQ.CLAIM", "RQ.MCLAIM", "RQ.RESULT", "RQ.READ"].contains(&name_of(sample));
        assert_eq!(may(&mut c, call(sample, "q", "r")), !blocks, "{sample}");
    }
}

fn selectors(lab: &Lab) {
    let server = lab.server();
    let mut c = user(&server, "-@all ~a:* +rq.enqueue (+rq.stats +rq.result %R~*) (~b:* +rq.claim)");
    for (call, expected) in [
        (args!["RQ.ENQUEUE", "a:q", "x"], true),
        (args!["RQ.ENQUEUE", "b:q", "x"], false),
        (args!["RQ.STATS", "a:q"], true),
        (args!["RQ.STATS", "b:q"], true),
        (args!["RQ.RESULT", "c:q", "j"], true),
        (args!["RQ.CLAIM", "b:q", "w"], true),
        (args!["RQ.CLAIM", "a:q", "w"], false),
        (args!["RQ.PURGE", "a:q", "ready"], false),
    ] {
        assert_eq!(may(&mut c, call.clone()), expected, "{}", call[0].escape_ascii());
    }
}

/// The lines of the README, as they stand there, give what it says.
fn roles_of_the_readme(lab: &Lab) {
    let readme = include_str!("../../README.md");
    let section = readme.split("\n## Security\n").nth(1).and_then(|rest| rest.split("\n## ").next());
    let lines: Vec<&str> = section
        .expect("a section on security")
        .lines()
        .filter(|line| line.starts_with("ACL SETUSER "))
        .collect();
    let all: Vec<&str> =
        SAMPLES.iter().map(|(_, sample)| name_of(sample)).filter(|name| *name != "RQ.APPLY").collect();
    let viewer: Vec<&str> = SAMPLES
        .iter()
        .filter(|(does, _)| matches!(does, Reads | Nothing))
        .map(|(_, sample)| name_of(sample))
        .collect();
    let roles: &[(&str, &[&str])] = &[
        ("producer", &["RQ.ENQUEUE", "RQ.MENQUEUE"]),
        ("requester", &["RQ.ENQUEUE", "RQ.CANCEL", "RQ.RESULT", "RQ.READ"]),
        (
            "worker",
            &[
                "RQ.CLAIM",
                "RQ.MCLAIM",
                "RQ.ACK",
                "RQ.FAIL",
                "RQ.RELEASE",
                "RQ.EXTEND",
                "RQ.PROGRESS",
                "RQ.EMIT",
            ],
        ),
        ("rescuer", &["RQ.RECOVER", "RQ.WORKERS"]),
        ("viewer", &viewer),
        ("exporter", &["RQ.METRICS"]),
        ("operator", &all),
        ("listener", &[]),
    ];
    assert_eq!(lines.len(), roles.len(), "{lines:?}");
    let server = lab.server();
    let mut c = server.client();
    for (line, (role, allowed)) in lines.iter().zip(roles) {
        let words: Vec<String> = rules_of(line);
        assert_eq!(words[2], *role, "{line}");
        c.run(words.iter().map(|word| word.as_bytes().to_vec()).collect());
        let mut client = server.client();
        cmd!(client, "AUTH", role, "secret");
        cmd!(client, "PING");
        for (does, sample) in SAMPLES {
            let name = name_of(sample);
            let expected = allowed.contains(&name);
            assert_eq!(may(&mut client, call(sample, "mail", "mail:2")), expected, "{role}: {sample}");
            // Only who looks after all of them may touch other keys.
            let elsewhere = may(&mut client, call(sample, "other", "other:2"));
            let reaches = expected && (["viewer", "operator"].contains(role) || *does == Nothing);
            assert_eq!(elsewhere, reaches, "{role}: {sample} elsewhere");
        }
        for foreign in [args!["GET", "mail"], args!["RESTORE", "mail", 0, "x"], args!["DEL", "mail"]] {
            assert!(!may(&mut client, foreign), "{role}");
        }
        let looks_around = ["viewer", "operator"].contains(role);
        assert_eq!(may(&mut client, args!["INFO", "rq"]), looks_around || *role == "exporter", "{role}");
        assert_eq!(may(&mut client, args!["TIME"]), looks_around, "{role}");
        assert!(!may(&mut client, args!["PSUBSCRIBE", "*"]), "{role}");
        let listens = may(&mut client, args!["PSUBSCRIBE", "__keyevent@0__:rq.*"]);
        assert_eq!(listens, *role == "listener", "{role}");
    }
}

fn ids_and_names_are_bounded(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    enqueue(&mut c, "q", "x");
    let before = fingerprint(&server, "q");
    let with = |mut call: Vec<Vec<u8>>, count: usize, words: &[&str]| {
        for _ in 0..count {
            call.extend(words.iter().map(|word| word.as_bytes().to_vec()));
        }
        call
    };
    for (call, words) in [
        (args!["RQ.CANCEL", "q"], &["j"][..]),
        (args!["RQ.REDRIVE", "q"], &["j"]),
        (args!["RQ.RELEASE", "q"], &["j", "1-1"]),
        (args!["RQ.EXTEND", "q", "w", "LEASE", 5], &["j", "1-1"]),
    ] {
        assert_eq!(c.run(with(call.clone(), 1000, words)).list().len(), 1000);
        let reply = c.call(with(call, 1001, words));
        let text = reply.error().text();
        assert!(text.starts_with("ERR at most 1000 ") && text.ends_with(", not 1001"), "{text}");
    }
    for selector in ["WORKERS", "EXCEPT"] {
        c.run(with(args!["RQ.RECOVER", "q", selector, 10_000], 10_000, &["w"]));
        let reply = c.call(with(args!["RQ.RECOVER", "q", selector, 10_001], 10_001, &["w"]));
        assert!(
            reply.error().text().starts_with(&format!("ERR {selector} must be an integer from 0 to 10000"))
        );
    }
    assert_eq!(fingerprint(&server, "q"), before);
}

fn workers_are_bounded_and_paged(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    enqueue(&mut c, "q", "x");
    const MOST: usize = 50_000;
    for chunk in (0..MOST).collect::<Vec<_>>().chunks(5_000) {
        chunk.iter().for_each(|number| send!(c, "RQ.CLAIM", "q", format!("w{number}")));
        for _ in chunk {
            c.read();
        }
    }
    let before = server.digest("q");
    for claim in [
        args!["RQ.CLAIM", "q", "one too many"],
        args!["RQ.CLAIM", "q", "one too many", "BLOCK", 0],
        args!["RQ.MCLAIM", 2, "none", "q", "one too many"],
        args!["RQ.MCLAIM", 1, "q", "one too many", "BLOCK", 0],
    ] {
        assert_eq!(c.refused(claim), "FULL");
    }
    assert_eq!(server.digest("q"), before);
    // Those that are known are served, and others elsewhere.
    enqueue(&mut c, "q", "y");
    assert_eq!(claim(&mut c, "q", "w7").text(), "y");
    assert!(try_claim(&mut c, "another", "one too many").is_none());
    // A page is short unless asked for; each worker is in exactly one.
    assert_eq!(cmd!(c, "RQ.WORKERS", "q").list()[1].list().len(), 100);
    let names: BTreeSet<String> =
        workers(&mut c, "q").iter().map(|worker| worker.get("name").text()).collect();
    assert_eq!(names.len(), MOST);
    for wrong in [
        args!["RQ.WORKERS", "q", "CURSOR", "x"],
        args!["RQ.WORKERS", "q", "COUNT", 0],
        args!["RQ.WORKERS", "q", "COUNT", 1001],
        args!["RQ.WORKERS", "q", "MATCH", "x"],
    ] {
        assert_eq!(c.refused(wrong), "ERR");
    }
    assert!(cmd!(c, "RQ.WORKERS", "q", "CURSOR", u64::MAX).list()[1].list().is_empty());
    // Once some are forgotten there is room again.
    cmd!(c, "RQ.QUEUE.SET", "q", "WORKERTTL", 1);
    until("they are forgotten", || workers(&mut c, "q").len() < 10);
    cmd!(c, "RQ.CLAIM", "q", "one too many");
}

/// Numbers alone make the server reserve nothing: memory comes with the bytes that are sent.
fn few_bytes_make_little_memory(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    cmd!(c, "RQ.ENQUEUE", "q", "x", "ID", "j");
    let peak = || {
        // The most address space that the process ever had, kB: what was reserved for a moment shows too.
        let status = format!("/proc/{}/status", server.info("process_id"));
        let text = std::fs::read_to_string(status).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with("VmPeak"));
        line.and_then(|line| line.split_whitespace().nth(1)?.parse::<i64>().ok()).unwrap_or(0)
    };
    let mut before = (0, 0);
    // With the first, the server sets up its statistics of each command.
    for number in [
        "1",
        "1000",
        "1001",
        "10000",
        "65536",
        "2147483647",
        "4294967295",
        "4294967296",
        "9007199254740991",
        "18446744073709551615",
    ] {
        if number == "1000" {
            before = (server.info_number("used_memory"), peak());
        }
        for call in [
            args!["RQ.MENQUEUE", "q", "JOBS", number, "x"],
            args!["RQ.CLAIM", "none", "w", "COUNT", number],
            args!["RQ.MCLAIM", number, "none", "w"],
            args!["RQ.MCLAIM", number, "q"],
            args!["RQ.RECOVER", "q", "WORKERS", number, "w"],
            args!["RQ.RECOVER", "q", "EXCEPT", number, "w"],
            args!["RQ.RECOVER", "q", "COUNT", number],
            args!["RQ.LIST", "q", "dead", "COUNT", number],
            args!["RQ.READ", "q", "j", "COUNT", number],
            args!["RQ.READ", "q", "j", "FROM", number],
            args!["RQ.QUEUE.SET", "q", "MAXOUTPUT", number],
            args!["RQ.QUEUES", "COUNT", number],
            args!["RQ.QUEUES", "CURSOR", number, "COUNT", number],
            args!["RQ.WORKERS", "q", "CURSOR", number, "COUNT", number],
            args!["RQ.GROUP.LIST", "q", "CURSOR", number, "COUNT", number],
            args!["RQ.PURGE", "q", "dead", "COUNT", number],
            args!["RQ.REDRIVE", "q", "ALL", "COUNT", number],
            args!["RQ.EXTEND", "q", "w", "LEASE", number, "j", "1-1"],
            args!["RQ.QUEUE.SET", "q", "KEEPDEAD", number],
            args!["RQ.QUEUE.SET", "q", "CONCURRENCY", number, "RATE", number, number, "BURST", number],
            args!["RQ.APPLY", "q", number],
        ] {
            c.call(call);
        }
    }
    let after = (server.info_number("used_memory"), peak());
    assert!(after.0 - before.0 < 200_000, "{} bytes more are in use", after.0 - before.0);
    // Each thread of the server may reserve an arena of 64 MB the first time it needs memory, whenever that is; the numbers
    // above would be gigabytes.
    assert!(after.1 - before.1 < 600_000, "{} kB more were reserved for a moment", after.1 - before.1);
}

/// Nobody is told that something is wrong without what would be right.
fn a_wrong_number_of_arguments_is_explained(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    // By the server, which counts first, and by the module in the same words.
    for (call, name, usage) in [
        (args!["RQ.CLAIM", "q"], "rq.claim", ""),
        (args!["RQ.PROGRESS", "q", "j", "1-1"], "rq.progress", ""),
        (args!["Rq.Help", "claim", "ack"], "rq.help", "; it is RQ.HELP [command]"),
    ] {
        let text = c.call(call).error().text();
        let expected = format!("ERR wrong number of arguments for '{name}' command{usage}");
        assert_eq!(text.to_lowercase(), expected.to_lowercase());
    }
    let script = "return redis.call('RQ.HELP', 'a', 'b')";
    let reply = c.call(args!["EVAL", script, 0]);
    assert!(reply.error().text().contains("it is RQ.HELP [command]"), "{reply:?}");
}

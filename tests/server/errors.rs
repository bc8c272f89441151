//! Wrong calls: the first word of the error, and that nothing changes.

use crate::common::*;
use crate::{args, cmd, refused, tests};

pub const TESTS: &[Test] = tests![
    every_wrong_option_of_enqueue,
    the_error_names_the_option,
    numbers_never_wrap,
    numbers_of_every_option,
    priorities_and_counts,
    wrong_names_and_ids,
    wrong_claims,
    wrong_acks_and_extends,
    a_key_of_another_type,
    too_big,
    internal_commands_are_refused,
    nothing_is_made_by_a_refused_call,
    garbage_on_the_socket,
    group_options_are_not_silently_ignored,
];

/// Runs each call and checks the word, and that neither the queue nor the keyspace changed.
#[track_caller]
fn all_wrong(server: &Server, prefix: &[&str], calls: &[&[&str]], word: &str) {
    let mut c = server.client();
    if cmd!(c, "EXISTS", "q").int() == 0 {
        enqueue(&mut c, "q", "x");
    }
    let before = (fingerprint(server, "q"), cmd!(c, "DBSIZE").int());
    for call in calls {
        let line: Vec<Vec<u8>> = prefix.iter().chain(*call).map(|arg| arg.as_bytes().to_vec()).collect();
        let reply = c.call(line);
        assert!(
            matches!(&reply, Reply::Error(error) if error.word() == word),
            "{prefix:?} {call:?} should be refused with {word}: {reply:?}"
        );
        assert_eq!(
            (fingerprint(server, "q"), cmd!(c, "DBSIZE").int()),
            before,
            "{prefix:?} {call:?} changed something"
        );
    }
}

fn every_wrong_option_of_enqueue(lab: &Lab) {
    let server = lab.server();
    let calls: &[&[&str]] = &[
        &["NONSENSE"],
        &["NONSENSE", "5"],
        &["ID"],
        &["IFNEW"],
        &["REPLACE"],
        &["ID", "a", "IFNEW", "REPLACE"],
        &["ID", "a", "ID", "b"],
        &["DELAY"],
        &["DELAY", "5", "DELAY", "5"],
        &["DELAY", "5", "AT", "5"],
        &["AT", "-1"],
        &["AT", "x"],
        &["ATTEMPTS", "0"],
        &["ATTEMPTS", "-1"],
        &["CRASHES", "-1"],
        &["BACKOFF"],
        &["BACKOFF", "x"],
        &["BACKOFF", "10", "5"],
        &["LEASE", "0"],
        &["LEASE", "none"],
        &["TTL", "-1"],
        &["DEADLINE", "0"],
        &["DELAY", "5", "DEADLINE", "5"],
        &["5"],
        &[""],
    ];
    all_wrong(&server, &["RQ.ENQUEUE", "q", "x"], calls, "ERR");
    all_wrong(&server, &["RQ.ENQUEUE"], &[&[], &["q"]], "ERR");
}

fn the_error_names_the_option(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    for (call, option) in [
        (args!["RQ.ENQUEUE", "q", "x", "DELAY", "-1"], "DELAY"),
        (args!["RQ.ENQUEUE", "q", "x", "PRIORITY", 256], "PRIORITY"),
        (args!["RQ.ENQUEUE", "q", "x", "FOO", 256], "FOO"),
        (args!["RQ.ENQUEUE", "q", "x", "TTL"], "TTL"),
        (args!["RQ.CLAIM", "q", "w", "COUNT", 0], "COUNT"),
        (args!["RQ.CLAIM", "q", "w", "LEASE", 1, "LEASE", 1], "LEASE"),
        (args!["RQ.QUEUE.SET", "q", "MAXLEN", "x"], "MAXLEN"),
        (args!["RQ.RECOVER", "q", "IDLE", "x"], "IDLE"),
    ] {
        let reply = c.call(call);
        let text = reply.error().text();
        assert!(text.starts_with("ERR ") && text.to_uppercase().contains(option), "{text}");
    }
}

/// C26: what is out of range is refused; what is in range is never early.
fn numbers_never_wrap(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let wrong: &[&str] = &[
        "-9223372036854775808",
        "-1",
        "-0.5",
        "9223372036854775808",
        "18446744073709551616",
        "99999999999999999999999999",
        "1e9",
        "",
        " 1",
        "1 ",
        "+1",
        "0x10",
        "1.0",
        "nan",
        "inf",
        "none",
    ];
    for option in ["DELAY", "LEASE", "TTL", "DEADLINE"] {
        for value in wrong {
            if option == "TTL" && *value == "none" {
                continue; // for ever
            }
            let reply = c.call(args!["RQ.ENQUEUE", "q", "x", option, value]);
            assert!(
                matches!(&reply, Reply::Error(error) if error.word() == "ERR"),
                "{option} {value}: {reply:?}"
            );
        }
    }
    for value in wrong {
        assert_eq!(refused!(c, "RQ.CLAIM", "q", "w", "BLOCK", value), "ERR", "BLOCK {value}");
        assert_eq!(refused!(c, "RQ.CLAIM", "q", "w", "LEASE", value), "ERR", "LEASE {value}");
    }
    assert_eq!(cmd!(c, "EXISTS", "q").int(), 0);
    for delay in
        ["1000000", "2147483647", "2147483648", "4294967296", "9007199254740992", "9223372036854775807"]
    {
        for option in ["DELAY", "AT"] {
            let value = if option == "AT" {
                (unix_ms() + 1_000_000).max(delay.parse().unwrap()).to_string()
            } else {
                delay.to_string()
            };
            // The largest may be refused; accepted they must wait.
            if let Reply::Bulk(id) = c.call(args!["RQ.ENQUEUE", "q", "x", option, value]) {
                assert_eq!(state(&mut c, "q", &id), "delayed", "{option} {value}");
            }
        }
    }
    assert!(try_claim(&mut c, "q", "w").is_none());
    // Enormous leases and retentions do not lapse at once.
    for value in ["2147483648", "9007199254740992", "9223372036854775807"] {
        let reply = c.call(args!["RQ.ENQUEUE", "r", "x", "LEASE", value, "TTL", value]);
        if let Reply::Bulk(id) = reply {
            let job = claim(&mut c, "r", "w");
            assert_eq!(state(&mut c, "r", &id), "active");
            assert_eq!(ack(&mut c, "r", &job), 1);
            assert_eq!(state(&mut c, "r", &id), "done", "TTL {value}");
        }
    }
    // Nothing spins: a second of an idle server costs next to no processor time.
    let cpu = || {
        server.info("used_cpu_user").parse::<f64>().unwrap()
            + server.info("used_cpu_sys").parse::<f64>().unwrap()
    };
    let before = cpu();
    holds("it idles", ms(1000), || {
        std::thread::sleep(ms(200));
        true
    });
    assert!(cpu() - before < 0.3, "{} s of processor time in one second", cpu() - before);
}

/// C26, for all the other numbers.
fn numbers_of_every_option(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    enqueue(&mut c, "q", "x");
    let job = claim_for(&mut c, "q", "w", 3_600_000);
    let id = String::from_utf8(job.id.clone()).expect("an id of the server's own");
    let held = [id.as_str(), job.token.as_str()];
    let wrong = [
        "-9223372036854775808",
        "-1",
        "9007199254740992",
        "9223372036854775808",
        "18446744073709551616",
        "1e9",
        "",
        " 1",
        "+1",
        "01",
        "0x10",
        "1.0",
        "inf",
    ];
    for prefix in [
        &["RQ.ENQUEUE", "q", "x", "AT"][..],
        &["RQ.ENQUEUE", "q", "x", "ATTEMPTS"],
        &["RQ.ENQUEUE", "q", "x", "CRASHES"],
        &["RQ.ENQUEUE", "q", "x", "BACKOFF"],
        &["RQ.ENQUEUE", "q", "x", "BACKOFF", "1"],
        &["RQ.MENQUEUE", "q", "DELAY"],
        &["RQ.RESCHEDULE", "q", "j", "DELAY"],
        &["RQ.RESCHEDULE", "q", "j", "AT"],
        &["RQ.RESCHEDULE", "q", "j", "PRIORITY"],
        &["RQ.RESULT", "q", "j", "BLOCK"],
        &["RQ.MCLAIM"],
        &["RQ.MCLAIM", "1", "q", "w", "BLOCK"],
        &["RQ.MCLAIM", "1", "q", "w", "LEASE"],
        &["RQ.ACK", "q", held[0], held[1], "TTL"],
        &["RQ.FAIL", "q", held[0], held[1], "RETRY"],
        &["RQ.FAIL", "q", held[0], held[1], "THROTTLED"],
        &["RQ.RECOVER", "q", "IDLE"],
        &["RQ.RECOVER", "q", "BEFORE"],
        &["RQ.RECOVER", "q", "WORKERS"],
        &["RQ.RECOVER", "q", "EXCEPT"],
        &["RQ.PAUSE", "q", "FOR"],
        &["RQ.QUEUE.SET", "q", "LEASE"],
        &["RQ.QUEUE.SET", "q", "ATTEMPTS"],
        &["RQ.QUEUE.SET", "q", "CRASHES"],
        &["RQ.QUEUE.SET", "q", "TTL"],
        &["RQ.QUEUE.SET", "q", "KEEPDEAD"],
        &["RQ.QUEUE.SET", "q", "MAXLEN"],
        &["RQ.QUEUE.SET", "q", "WORKERTTL"],
        &["RQ.QUEUE.SET", "q", "CONCURRENCY"],
        &["RQ.QUEUE.SET", "q", "RATE"],
        &["RQ.QUEUE.SET", "q", "RATE", "1"],
        &["RQ.GROUP.SET", "q", "g", "CONCURRENCY"],
        &["RQ.TENANT.SET", "q", "t", "WEIGHT"],
    ] {
        let calls: Vec<Vec<&str>> = wrong.iter().map(|value| vec![*value]).collect();
        let calls: Vec<&[&str]> = calls.iter().map(Vec::as_slice).collect();
        all_wrong(&server, prefix, &calls, "ERR");
    }
    let extend = ["RQ.EXTEND", "q", "w", "LEASE"];
    let calls: Vec<Vec<&str>> = wrong.iter().map(|value| vec![*value, held[0], held[1]]).collect();
    let calls: Vec<&[&str]> = calls.iter().map(Vec::as_slice).collect();
    all_wrong(&server, &extend, &calls, "ERR");
    // The largest that are taken come due in 285,000 years, and not at once.
    let most = "9007199254740991";
    assert_eq!(cmd!(c, "RQ.EXTEND", "q", "w", "LEASE", most, held[0], held[1]).texts(), ["ok"]);
    assert_eq!(cmd!(c, "RQ.FAIL", "q", held[0], held[1], "RETRY", most).text(), "delayed");
    assert_eq!(cmd!(c, "RQ.RESCHEDULE", "q", id, "AT", most).text(), "delayed");
    let mut waiter = server.client();
    waiter.send(args!["RQ.CLAIM", "q", "w", "BLOCK", most]);
    until_blocked(&server, 1);
    cmd!(c, "RQ.PAUSE", "q", "FOR", most);
    assert_eq!(counts(&mut c, "q"), Counts { delayed: 1, ..Counts::default() });
    assert!(!waiter.is_answered());
}

fn priorities_and_counts(lab: &Lab) {
    let server = lab.server();
    let wrong: Vec<Vec<&str>> = ["-1", "256", "1.5", "x", "", "4294967296", "9223372036854775808"]
        .iter()
        .map(|value| vec!["PRIORITY", value])
        .collect();
    let calls: Vec<&[&str]> = wrong.iter().map(Vec::as_slice).collect();
    all_wrong(&server, &["RQ.ENQUEUE", "q", "x"], &calls, "ERR");
    let wrong: Vec<Vec<&str>> = ["-1", "0", "1001", "x", "", "4294967297", "9223372036854775808"]
        .iter()
        .map(|value| vec!["COUNT", value])
        .collect();
    let calls: Vec<&[&str]> = wrong.iter().map(Vec::as_slice).collect();
    for prefix in [
        &["RQ.CLAIM", "q", "w"][..],
        &["RQ.RECOVER", "q"],
        &["RQ.LIST", "q", "ready"],
        &["RQ.PURGE", "q", "ready"],
        &["RQ.REDRIVE", "q", "ALL"],
        &["RQ.QUEUES"],
        &["RQ.MCLAIM", "1", "q", "w"],
    ] {
        all_wrong(&server, prefix, &calls, "ERR");
    }
}

fn wrong_names_and_ids(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let long = vec![b'n'; 513];
    for id in [&b""[..], b"1-1", b"0-0", b"99999999999999999999-1", &long] {
        assert_eq!(refused!(c, "RQ.ENQUEUE", "q", "x", "ID", id), "ERR", "{}", id.escape_ascii());
    }
    enqueue(&mut c, "q", "x");
    let before = fingerprint(&server, "q");
    assert_eq!(refused!(c, "RQ.CLAIM", "q", long), "ERR");
    assert_eq!(refused!(c, "RQ.CLAIM", "q", ""), "ERR", "a worker has a name");
    assert_eq!(fingerprint(&server, "q"), before);
    cmd!(c, "RQ.CLAIM", "q", vec![b'n'; 512]);
}

fn wrong_claims(lab: &Lab) {
    let server = lab.server();
    let calls: &[&[&str]] = &[
        &["COUNT"],
        &["COUNT", "1", "COUNT", "1"],
        &["FULL", "FULL"],
        &["BLOCK"],
        &["LEASE", "0"],
        &["NONSENSE"],
        &["BLOCK", "1", "BLOCK", "1"],
    ];
    all_wrong(&server, &["RQ.CLAIM", "q", "w"], calls, "ERR");
    all_wrong(&server, &["RQ.MCLAIM", "1", "q", "w"], calls, "ERR");
    all_wrong(&server, &["RQ.CLAIM"], &[&[], &["q"]], "ERR");
    all_wrong(&server, &["RQ.MCLAIM"], &[&[], &["1"], &["1", "q"], &["2", "q", "w"], &["0", "w"]], "ERR");
}

fn wrong_acks_and_extends(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    enqueue(&mut c, "q", "x");
    let job = claim_for(&mut c, "q", "w", 3_600_000);
    let id = String::from_utf8(job.id.clone()).unwrap();
    let both = [id.as_str(), job.token.as_str()];
    let prefix = |command: &'static str| [command, "q", both[0], both[1]];
    all_wrong(
        &server,
        &prefix("RQ.ACK"),
        &[
            &["RESULT"],
            &["TTL"],
            &["TTL", "-1"],
            &["TTL", "x"],
            &["RESULT", "r", "RESULT", "r"],
            &["NONSENSE", "5"],
            &["r"],
        ],
        "ERR",
    );
    all_wrong(&server, &prefix("RQ.RELEASE"), &[&["only an id"]], "ERR");
    all_wrong(
        &server,
        &["RQ.EXTEND", "q", "w"],
        &[
            &["LEASE", "5", both[0]],
            &["LEASE", "0", both[0], both[1]],
            &["LEASE", "-1", both[0], both[1]],
            &["LEASE", "5"],
            &["5", both[0], both[1]],
            &["LEASE", "x", both[0], both[1]],
        ],
        "ERR",
    );
    all_wrong(&server, &prefix("RQ.PROGRESS"), &[&[], &["a", "b"]], "ERR");
    all_wrong(&server, &prefix("RQ.EMIT"), &[&[], &["a", "b"]], "ERR");
    all_wrong(&server, &["RQ.READ", "q", "j"], &[&["FROM"], &["1"], &["FROM", "1", "FROM", "1"]], "ERR");
    all_wrong(
        &server,
        &["RQ.RESCHEDULE", "q", "unknown"],
        &[&[], &["DELAY"], &["DELAY", "5", "AT", "5"]],
        "ERR",
    );
    assert_eq!(ack(&mut c, "q", &job), 1);
}

fn a_key_of_another_type(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    for (make, check) in [
        (args!["SET", "k", "v"], args!["GET", "k"]),
        (args!["RPUSH", "k", "v"], args!["LRANGE", "k", 0, -1]),
        (args!["XADD", "k", "1-1", "f", "v"], args!["XRANGE", "k", "-", "+"]),
    ] {
        cmd!(c, "DEL", "k");
        c.run(make);
        let value = c.run(check.clone());
        for call in [
            args!["RQ.ENQUEUE", "k", "x"],
            args!["RQ.ENQUEUE", "k", "x", "ID", "j", "IFNEW"],
            args!["RQ.MENQUEUE", "k", "JOBS", 1, "x"],
            args!["RQ.CANCEL", "k", "j"],
            args!["RQ.RESCHEDULE", "k", "j", "DELAY", 5],
            args!["RQ.RESULT", "k", "j"],
            args!["RQ.RESULT", "k", "j", "BLOCK", 0],
            args!["RQ.CLAIM", "k", "w"],
            args!["RQ.CLAIM", "k", "w", "BLOCK", 0],
            args!["RQ.MCLAIM", 2, "none", "k", "w", "BLOCK", 0],
            args!["RQ.ACK", "k", "j", "1-1"],
            args!["RQ.FAIL", "k", "j", "1-1"],
            args!["RQ.RELEASE", "k", "j", "1-1"],
            args!["RQ.EXTEND", "k", "w", "LEASE", 5, "j", "1-1"],
            args!["RQ.PROGRESS", "k", "j", "1-1", "p"],
            args!["RQ.EMIT", "k", "j", "1-1", "p"],
            args!["RQ.READ", "k", "j", "BLOCK", 0],
            args!["RQ.RECOVER", "k"],
            args!["RQ.WORKERS", "k"],
            args!["RQ.STATS", "k"],
            args!["RQ.JOB", "k", "j"],
            args!["RQ.LIST", "k", "ready"],
            args!["RQ.PAUSE", "k"],
            args!["RQ.RESUME", "k"],
            args!["RQ.REDRIVE", "k", "ALL"],
            args!["RQ.PURGE", "k", "ready"],
            args!["RQ.QUEUE.SET", "k", "LEASE", 5],
            args!["RQ.QUEUE.GET", "k"],
        ] {
            assert_eq!(c.refused(call.clone()), "WRONGTYPE", "{}", String::from_utf8_lossy(&call[0]));
        }
        assert_eq!(c.run(check), value);
    }
    // And the other way round.
    enqueue(&mut c, "q", "x");
    assert_eq!(refused!(c, "LPUSH", "q", "x"), "WRONGTYPE");
    assert_eq!(refused!(c, "GET", "q"), "WRONGTYPE");
}

fn too_big(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    cmd!(c, "CONFIG", "SET", "rq.max-payload", 1000);
    enqueue(&mut c, "q", vec![b'x'; 1000]);
    let before = fingerprint(&server, "q");
    assert_eq!(refused!(c, "RQ.ENQUEUE", "q", vec![b'x'; 1001]), "TOOBIG");
    assert_eq!(refused!(c, "RQ.MENQUEUE", "q", "JOBS", 2, "small", vec![b'x'; 1001]), "TOOBIG");
    assert_eq!(fingerprint(&server, "q"), before);
    let job = claim(&mut c, "q", "w");
    let before = fingerprint(&server, "q");
    assert_eq!(refused!(c, "RQ.ACK", "q", job.id, job.token, "RESULT", vec![b'x'; 1001]), "TOOBIG");
    assert_eq!(fingerprint(&server, "q"), before);
    assert_eq!(ack(&mut c, "q", &job), 1);
}

fn internal_commands_are_refused(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    enqueue(&mut c, "q", "x");
    let before = fingerprint(&server, "q");
    for args in [
        args!["RQ.APPLY"],
        args!["RQ.APPLY", "q"],
        args!["RQ.APPLY", "q", ""],
        args!["RQ.APPLY", "q", "nonsense"],
        args!["RQ.APPLY", "q", vec![0xff_u8; 1000]],
    ] {
        c.call(args).error();
    }
    c.call(args!["EVAL", "return redis.call('RQ.APPLY', KEYS[1], 'x')", 1, "q"]).error();
    cmd!(c, "MULTI");
    let queued = c.call(args!["RQ.APPLY", "q", "x"]);
    let outcome = c.call(args!["EXEC"]);
    assert!(matches!(queued, Reply::Error(_)) || matches!(outcome.list()[0], Reply::Error(_)));
    assert_eq!(fingerprint(&server, "q"), before);
}

fn nothing_is_made_by_a_refused_call(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    for call in [
        args!["RQ.ENQUEUE", "q", "x", "DELAY", -1],
        args!["RQ.MENQUEUE", "q", "JOBS", 2, "x"],
        args!["RQ.QUEUE.SET", "q", "LEASE", 0],
        args!["RQ.PAUSE", "q", "FOR", -1],
        args!["RQ.FAIL", "q", "j", "1-1"],
        args!["RQ.STATS", "q"],
        args!["RQ.QUEUE.GET", "q"],
        args!["RQ.ENQUEUE", "q", "x", "ID", "1-1"],
    ] {
        c.call(call).error();
        assert_eq!(cmd!(c, "DBSIZE").int(), 0);
    }
    for call in [
        args!["RQ.CLAIM", "q", "w"],
        args!["RQ.CANCEL", "q", "j"],
        args!["RQ.RECOVER", "q"],
        args!["RQ.RELEASE", "q", "j", "1-1"],
        args!["RQ.EXTEND", "q", "w", "LEASE", 5, "j", "1-1"],
        args!["RQ.ACK", "q", "j", "1-1"],
        args!["RQ.REDRIVE", "q", "j"],
        args!["RQ.REDRIVE", "q", "ALL"],
        args!["RQ.PURGE", "q", "ready"],
        args!["RQ.RESUME", "q"],
        args!["RQ.WORKERS", "q"],
        args!["RQ.LIST", "q", "ready"],
        args!["RQ.JOB", "q", "j"],
        args!["RQ.RESULT", "q", "j"],
    ] {
        c.run(call);
        assert_eq!(cmd!(c, "DBSIZE").int(), 0);
    }
}

fn garbage_on_the_socket(lab: &Lab) {
    let server = lab.server();
    // Half a command, then gone; and a claim whose reply nobody will ever read.
    for bytes in [
        &b"*3\r\n$10\r\nRQ.ENQUEUE\r\n$1\r\nq\r\n$100\r\nhalf"[..],
        b"*5\r\n$8\r\nRQ.CLAIM\r\n$1\r\nq\r\n$1\r\nw\r\n$5\r\nBLOCK\r\n$1\r\n0\r\n",
        b"\xff\xfe\x00\r\n",
    ] {
        let mut c = server.client();
        c.send_bytes(bytes);
    }
    let mut c = server.client();
    until("they are all gone", || server.info_number("connected_clients") <= 2);
    enqueue(&mut c, "q", "x");
    assert_eq!(claim(&mut c, "q", "w").delivery, 1);
}

fn group_options_are_not_silently_ignored(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    for option in ["GROUP", "TENANT"] {
        cmd!(c, "RQ.ENQUEUE", "q", "x", option, "g", "ID", option);
        let facts = job(&mut c, "q", option).expect("it exists");
        assert_eq!(facts[&option.to_lowercase()].text(), "g");
        for wrong in [
            args!["RQ.ENQUEUE", "q", "x", option],
            args!["RQ.ENQUEUE", "q", "x", option, ""],
            args!["RQ.ENQUEUE", "q", "x", option, vec![b'x'; 513]],
            args!["RQ.MENQUEUE", "q", option, "", "JOBS", 1, "x"],
            args!["RQ.PAUSE", "q", option, ""],
            args!["RQ.LIST", "q", "ready", option, ""],
        ] {
            let before = fingerprint(&server, "q");
            assert_eq!(c.refused(wrong), "ERR");
            assert_eq!(fingerprint(&server, "q"), before);
        }
    }
}

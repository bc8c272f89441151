//! Files of every release, `tests/golden`: they load on every server, and hold what they held. `RQ_GOLDEN=1` writes those
//! of this release anew, by the first server of version 7.0; once it is out they are never changed.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use super::hostile::{
    DUMP_HEAD, dump_body, dump_head, golden, golden_chunks, lay_aof, server_before_its_aof, sign,
};
use crate::common::*;
use crate::{args, cmd, refused, send, tests};

pub const TESTS: &[Test] = tests![
    golden_files_load,
    a_later_version_is_refused,
    a_later_version_in_a_file_is_refused,
    the_module_can_be_removed,
    drained_and_removed_with_an_aof,
];

/// Releases with files of their own.
const RELEASES: [&str; 1] = ["0.1.0"];

/// Longer than any release will be around, ms (more than 100,000 years).
const FOREVER: u64 = 4_000_000_000_000_000;

fn path(release: &str, name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "golden", release, name].iter().collect()
}

fn read(release: &str, name: &str) -> Vec<u8> {
    let path = path(release, name);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}; RQ_GOLDEN=1 writes it", path.display()))
}

/// Queues with something of everything, in which nothing ever comes due: what loads in ten years is the same.
fn first_half(server: &Server, c: &mut Client) {
    cmd!(
        c,
        "RQ.QUEUE.SET",
        "mail",
        "LEASE",
        FOREVER,
        "ATTEMPTS",
        2,
        "BACKOFF",
        FOREVER,
        FOREVER,
        "TTL",
        "none",
        "RESULTTTL",
        "none",
        "DEADTTL",
        "none",
        "KEEPDEAD",
        50,
        "WORKERTTL",
        "none",
        "MAXLEN",
        1000
    );
    for number in 0..13 {
        let id = format!("job {number}");
        cmd!(c, "RQ.ENQUEUE", "mail", format!("payload {number}"), "ID", id, "PRIORITY", number % 3);
    }
    for number in 0..8 {
        let Job { id, token, .. } = claim(c, "mail", &format!("w{}", number % 3));
        if number < 2 {
            cmd!(c, "RQ.EMIT", "mail", id, token, vec![b'x'; 5_000]);
        }
        match number {
            0 => drop(cmd!(c, "RQ.ACK", "mail", id, token, "RESULT", vec![0_u8, 13, 10, 255])),
            1 => drop(cmd!(c, "RQ.ACK", "mail", id, token)),
            2 => drop(cmd!(c, "RQ.FAIL", "mail", id, token, "ERROR", "no route")),
            3 => drop(cmd!(c, "RQ.FAIL", "mail", id, token, "ERROR", "no such user", "DEAD")),
            4 => drop(cmd!(c, "RQ.RELEASE", "mail", id, token)),
            5 => {
                cmd!(c, "RQ.PROGRESS", "mail", id, token, "half");
                for chunk in ["one", "", "three"] {
                    cmd!(c, "RQ.EMIT", "mail", id, token, chunk);
                }
            }
            6 => drop(cmd!(c, "RQ.CANCEL", "mail", id)),
            _ => drop(cmd!(c, "RQ.EXTEND", "mail", "w1", "LEASE", FOREVER / 2, id, token)),
        }
    }
    cmd!(c, "RQ.CANCEL", "mail", "job 12");
    cmd!(c, "RQ.RESCHEDULE", "mail", "job 9", "DELAY", FOREVER);
    cmd!(
        c,
        "RQ.ENQUEUE",
        "mail",
        "with everything",
        "DEADLINE",
        FOREVER,
        "DELAY",
        FOREVER / 2,
        "LEASE",
        FOREVER,
        "CRASHES",
        3,
        "ATTEMPTS",
        "none",
        "BACKOFF",
        1,
        2,
        "TTL",
        FOREVER
    );
    cmd!(c, "RQ.ENQUEUE", "mail", "at", "AT", FOREVER);
    let delay = FOREVER / 2;
    cmd!(c, "RQ.ENQUEUE", "mail", "v1", "UNIQUE", "user:7", "DELAY", delay, "ID", "once", "FOR", FOREVER);
    for payload in ["v1", "v2"] {
        cmd!(c, "RQ.ENQUEUE", "mail", payload, "UNIQUE", vec![0_u8, 255], "DEBOUNCE", "DELAY", delay);
    }

    let group = |c: &mut Client, name: &str, tenant: &str| {
        cmd!(
            c,
            "RQ.GROUP.SET",
            "hooks",
            name,
            "TENANT",
            tenant,
            "CONCURRENCY",
            2,
            "BACKOFF",
            FOREVER,
            FOREVER
        );
        for number in 0..3 {
            cmd!(c, "RQ.ENQUEUE", "hooks", number, "GROUP", name, "TENANT", tenant);
        }
    };
    group(c, "up", "acme");
    group(c, "down", "acme");
    group(c, "busy", "zenith");
    cmd!(c, "RQ.QUEUE.SET", "hooks", "LEASE", FOREVER, "WORKERTTL", "none", "GROUP-ORDERED", "no");
    cmd!(c, "RQ.TENANT.SET", "hooks", "acme", "WEIGHT", 3, "CONCURRENCY", 5);
    for _ in 0..3 {
        let job = claim(c, "hooks", "w");
        let map = cmd!(c, "RQ.JOB", "hooks", job.id);
        match map.get("group").text().as_str() {
            "down" => drop(cmd!(c, "RQ.FAIL", "hooks", job.id, job.token, "UNAVAILABLE", "ERROR", "503")),
            "busy" => drop(cmd!(c, "RQ.FAIL", "hooks", job.id, job.token, "THROTTLED", FOREVER)),
            _ => {}
        }
    }
    cmd!(c, "RQ.PAUSE", "hooks", "GROUP", "up", "TENANT", "acme");
    enqueue(c, "paused", "x");
    cmd!(c, "RQ.PAUSE", "paused");
    // Ops that no client sends: a grant to one that waits, a delay that came due, a worker that was forgotten.
    cmd!(c, "RQ.QUEUE.SET", "timed", "LEASE", FOREVER, "WORKERTTL", "none");
    cmd!(c, "RQ.ENQUEUE", "timed", "soon", "DELAY", 5);
    let mut waiter = waiting_claim(server, "timed", "waits", 0);
    assert_eq!(jobs(&waiter.read()).len(), 1);
    cmd!(c, "RQ.ENQUEUE", "timed", "later", "DELAY", 5);
    until_counts(c, "timed", Counts { active: 1, ready: 1, ..Counts::default() });
    assert_eq!(cmd!(c, "RQ.RECOVER", "timed", "IDLE", 0, "UNCOUNTED").list()[0].int(), 1);
}

/// The same again on top, so that an AOF holds it both in chunks and as it was said.
fn second_half(server: &Server, c: &mut Client) {
    for name in ["mail", "hooks", "paused", "timed"] {
        cmd!(c, "RENAME", name, format!("{name} in chunks"));
    }
    first_half(server, c);
    let more = claim(c, "mail in chunks", "later");
    cmd!(c, "RQ.FAIL", "mail in chunks", more.id, more.token, "ERROR", "after the rewrite", "DEAD");
}

/// Of a reply, one line for each thing it tells; of a map, one for each key.
fn lines(of: &str, reply: &Reply, only: &[&str], all: &mut BTreeSet<String>) {
    match reply {
        Reply::Map(entries) => {
            for (key, value) in entries {
                let key = key.text();
                if only.is_empty() || only.contains(&key.as_str()) {
                    lines(&format!("{of} {key}"), value, &[], all);
                }
            }
        }
        Reply::Array(items) => {
            for (number, item) in items.iter().enumerate() {
                lines(&format!("{of}[{number}]"), item, &[], all);
            }
        }
        Reply::Bulk(bytes) => drop(all.insert(format!("{of} = \"{}\"", bytes.escape_ascii()))),
        other => drop(all.insert(format!("{of} = {other:?}"))),
    }
}

/// What commands tell of all queues, but for what depends on the time of day.
fn listing(server: &Server) -> BTreeSet<String> {
    let mut c = server.client3();
    let mut all = BTreeSet::new();
    let queues = cmd!(c, "RQ.QUEUES").list()[1].texts();
    for queue in queues {
        let states = ["delayed", "ready", "active", "done", "dead", "cancelled"];
        let stats = [&states[..], &["paused", "held", "workers", "totals"]].concat();
        lines(&queue, &cmd!(c, "RQ.STATS", queue), &stats, &mut all);
        lines(&format!("{queue}: set"), &cmd!(c, "RQ.QUEUE.GET", queue), &[], &mut all);
        for state in states {
            for (place, job) in
                cmd!(c, "RQ.LIST", queue, state, "COUNT", 1000).list()[1].list().iter().enumerate()
            {
                let id = job.get("id").bytes().to_vec();
                let only = [
                    "state",
                    "priority",
                    "group",
                    "tenant",
                    "deliveries",
                    "attempts",
                    "attempts-allowed",
                    "crashes",
                    "crashes-allowed",
                    "worker",
                    "token",
                    "cancelling",
                    "reason",
                    "error",
                    "progress",
                    "result",
                    "output",
                    "output-bytes",
                    "unique",
                    "unique-until",
                    "locked",
                    "options",
                    "payload",
                ];
                let of = format!("{queue}: {state} {place}");
                lines(&format!("{of} id"), &Reply::Bulk(id.clone()), &[], &mut all);
                lines(&of, &cmd!(c, "RQ.JOB", queue, id), &only, &mut all);
                let output = cmd!(c, "RQ.READ", queue, id).list()[1].clone();
                lines(&format!("{of} output"), &output, &[], &mut all);
            }
        }
        for worker in workers(&mut c, &queue) {
            let of = format!("{queue}: worker {}", worker.get("name").text());
            lines(&of, &worker, &["active", "done", "failed", "crashed"], &mut all);
        }
        for (place, group) in cmd!(c, "RQ.GROUP.LIST", queue).list()[1].list().iter().enumerate() {
            lines(
                &format!("{queue}: group {place}"),
                group,
                &["group", "tenant", "held", "held-by", "circuit-level", "throttled"],
                &mut all,
            );
        }
    }
    all
}

/// Writes the files of this release.
fn write(lab: &Lab, release: &str) {
    let server = lab.server_with(&[("appendonly", "yes"), ("aof-use-rdb-preamble", "no")]);
    let mut c = server.client();
    first_half(&server, &mut c);
    cmd!(c, "BGREWRITEAOF");
    until("the rewrite is done", || {
        server.info("aof_rewrite_in_progress") == "0" && server.info("aof_rewrite_scheduled") == "0"
    });
    second_half(&server, &mut c);
    cmd!(c, "SAVE");
    fs::create_dir_all(path(release, "")).unwrap();
    fs::copy(server.dir.join("dump.rdb"), path(release, "queues.rdb")).unwrap();
    let files = fs::read_dir(server.dir.join("appendonlydir")).unwrap().map(|file| file.unwrap().path());
    let mut parts: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|is| is == "aof")).collect();
    // The base, then what was added to it.
    parts.sort();
    fs::write(
        path(release, "queues.aof"),
        parts.iter().flat_map(|path| fs::read(path).unwrap()).collect::<Vec<u8>>(),
    )
    .unwrap();
    let text = listing(&server).into_iter().collect::<Vec<_>>().join("\n");
    fs::write(path(release, "queues.txt"), text + "\n").unwrap();
}

fn golden_files_load(lab: &Lab) {
    let plain = lab.server();
    if std::env::var_os("RQ_GOLDEN").is_some() && plain.info("redis_version").starts_with("7.0.") {
        write(lab, RELEASES[RELEASES.len() - 1]);
    }
    for release in RELEASES {
        let wanted = String::from_utf8(read(release, "queues.txt")).unwrap();
        let mut digests = Vec::new();
        for kind in ["rdb", "aof"] {
            let mut server = lab.server();
            server.kill9();
            if kind == "rdb" {
                fs::write(server.dir.join("dump.rdb"), read(release, "queues.rdb")).unwrap();
            } else {
                server.configure("appendonly", "yes");
                fs::write(server.dir.join("appendonly.aof"), read(release, "queues.aof")).unwrap();
            }
            server.try_restart().unwrap_or_else(|log| panic!("{release} {kind}: {log}"));
            let now = listing(&server);
            // Later releases may tell more.
            let gone: Vec<&str> = wanted.lines().filter(|line| !now.contains(*line)).collect();
            assert!(gone.is_empty(), "{release} {kind}: it no longer says {gone:#?}");
            let queues = cmd!(server.client(), "RQ.QUEUES").list()[1].texts();
            digests.push(
                queues.iter().map(|queue| (queue.clone(), server.digest(queue))).collect::<BTreeSet<_>>(),
            );
            // They are in use again, with the tokens of then.
            let mut c = server.client();
            let active = cmd!(c, "RQ.LIST", "mail", "active").list()[1].list()[0].get("id").bytes().to_vec();
            let token = cmd!(c, "RQ.JOB", "mail", active).get("token").text();
            assert_eq!(cmd!(c, "RQ.ACK", "mail", active, token).int(), 1);
        }
        assert_eq!(digests[0], digests[1], "{release}: the same from both files");
    }
}

/// What a later release saved is refused in plain words, and does no harm.
fn a_later_version_is_refused(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    enqueue(&mut c, "q", "x");
    let digest = server.digest("q");
    let (head, chunks) = (dump_head(&mut c), golden_chunks());
    let whole = [head.clone(), dump_body(&chunks)].concat();
    assert_eq!(cmd!(c, "RESTORE", "copy", 0, sign(whole.clone())).text(), "OK");
    // The version of the frame is in the last ten bits of the head; that of a chunk is its first byte.
    let mut frame = whole;
    frame[DUMP_HEAD - 1] += 1;
    let mut later = chunks;
    later[0][0] = 99;
    let chunk = [head, dump_body(&later)].concat();
    for (bytes, says) in [(frame, "saved by a later version of this module"), (chunk, "a chunk of kind 99")] {
        assert_eq!(refused!(c, "RESTORE", "other", 0, sign(bytes.clone())), "ERR");
        assert_eq!(refused!(c, "RESTORE", "q", 0, sign(bytes), "REPLACE"), "ERR");
        assert!(server.log().contains(says), "{says}: {}", server.log());
        assert_eq!(cmd!(c, "EXISTS", "other").int(), 0);
    }
    assert_eq!(server.digest("q"), digest);
}

/// The same at a start: the server says why and does not start, and the file is as it was.
fn a_later_version_in_a_file_is_refused(lab: &Lab) {
    let mut server = lab.server_with(&[("rdbchecksum", "no"), ("rdbcompression", "no")]);
    let mut c = server.client();
    let head = dump_head(&mut c);
    enqueue(&mut c, "q", "x");
    server.shutdown_saving();
    let file = server.dir.join("dump.rdb");
    let bytes = fs::read(&file).unwrap();
    // The type without its kind, which stands in front of the key.
    let places: Vec<usize> = (0..bytes.len() - 9).filter(|&at| bytes[at..at + 9] == head[1..]).collect();
    assert_eq!(places.len(), 1);
    let mut later = bytes.clone();
    later[places[0] + 8] += 1;
    fs::write(&file, &later).unwrap();
    let log = server.try_restart().expect_err("the server started");
    assert!(log.contains("a queue was saved by a later version of this module"), "{log}");
    assert!(fs::read(&file).unwrap() == later, "the file is untouched");
    fs::write(&file, &bytes).unwrap();
    server.restart();
    assert_eq!(counts(&mut server.client(), "q").ready, 1);

    // A message of a later version in an AOF.
    let mut server = server_before_its_aof(lab);
    for message in [vec![20_u8], vec![16, 7]] {
        let create = golden("create_v1.bin");
        lay_aof(&server, &[args!["RQ.APPLY", "q", create], args!["RQ.APPLY", "q", message]]);
        let log = server.try_restart().expect_err("the server started");
        assert!(log.contains("the AOF is damaged: not starting"), "{log}");
    }
}

/// How the module is removed, as the documentation has it: workers empty the queues, the keys are deleted, and the files
/// are written anew. A server without the module starts from them.
fn drain(server: &Server) {
    let mut c = server.client();
    enqueue(&mut c, "mail", "x");
    cmd!(c, "RQ.ENQUEUE", "hooks", "x", "GROUP", "g");
    cmd!(c, "SET", "kept", "x");
    let mut cursor = "0".to_string();
    loop {
        let page = cmd!(c, "RQ.QUEUES", "CURSOR", cursor);
        for queue in page.list()[1].texts() {
            while let Some(job) = try_claim(&mut c, &queue, "drain") {
                ack(&mut c, &queue, &job);
            }
            assert_eq!(counts(&mut c, &queue).sum(), 0);
            cmd!(c, "UNLINK", queue);
        }
        cursor = page.list()[0].text();
        if cursor == "0" {
            break;
        }
    }
}

/// C63: an RDB file without queues names no module.
fn the_module_can_be_removed(lab: &Lab) {
    let mut server = lab.server();
    drain(&server);
    // A server that holds a type cannot unload its module while it runs.
    assert_eq!(refused!(server.client(), "MODULE", "UNLOAD", "rq"), "ERR");
    server.shutdown_saving();
    server.without_module();
    server.restart();
    assert_eq!(cmd!(server.client(), "GET", "kept").text(), "x");
    assert_eq!(cmd!(server.client(), "DBSIZE").int(), 1);
}

fn drained_and_removed_with_an_aof(lab: &Lab) {
    let mut server = lab.server_with(&[("appendonly", "yes"), ("appendfsync", "always")]);
    drain(&server);
    server.kill9();
    // What was said about queues is still in the file.
    server.without_module();
    assert!(server.try_restart().is_err(), "commands of the module were taken by a server without it");
    server.configure("loadmodule", &lab.module().display().to_string());
    server.restart();
    send!(server.client(), "BGREWRITEAOF");
    until("the rewrite is done", || {
        server.info_number("aof_rewrites") > 0 && server.info("aof_rewrite_in_progress") == "0"
    });
    server.kill9();
    server.without_module();
    server.restart();
    assert_eq!(cmd!(server.client(), "GET", "kept").text(), "x");
}

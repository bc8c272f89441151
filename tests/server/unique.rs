//! `UNIQUE`: one job with a key at a time.

use std::collections::BTreeSet;
use std::thread;

use crate::common::*;
use crate::{args, cmd, refused, send, tests};

pub const TESTS: &[Test] = tests![
    replies_and_what_is_shown,
    errors_change_nothing,
    free_however_the_job_ends,
    a_duplicate_leaves_no_trace,
    a_replacement_is_told_as_one,
    the_window_ends_by_itself,
    many_clients_one_key,
    many_clients_debounce,
    a_waiting_worker_gets_the_newest_payload,
    who_waits_for_a_result_goes_on_waiting,
    in_transactions_and_scripts,
    keys_follow_their_queue,
    replicas_files_and_promotion,
    many_keys,
];

/// The id and the word of a reply.
#[track_caller]
fn said(reply: &Reply) -> (String, String) {
    let [id, word] = reply.list() else { panic!("an id and a word: {reply:?}") };
    (id.text(), word.text())
}

/// Enqueues with a key, and more options.
#[track_caller]
fn unique(c: &mut Client, queue: &str, payload: &str, key: &str, more: &[&str]) -> (String, String) {
    let mut command = args!["RQ.ENQUEUE", queue, payload, "UNIQUE", key];
    command.extend(more.iter().map(|word| word.as_bytes().to_vec()));
    said(&c.run(command))
}

fn pair(id: &str, word: &str) -> (String, String) {
    (id.into(), word.into())
}

fn replies_and_what_is_shown(lab: &Lab) {
    let server = lab.server();
    let (mut c, mut c3) = (server.client(), server.client3());
    let (id, word) = unique(&mut c, "q", "first", "user:7", &[]);
    assert_eq!(word, "added");
    assert_eq!(unique(&mut c3, "q", "second", "user:7", &["DELAY", "5000"]), pair(&id, "duplicate"));
    assert_eq!(unique(&mut c, "q", "second", "user:7", &["DEBOUNCE"]), pair(&id, "replaced"));
    // Any bytes, as long as an id; and case matters.
    let longest = vec![255; 512];
    for key in [&b"USER:7"[..], b"\0", b"\r\n \xff", &longest] {
        assert_eq!(said(&cmd!(c, "RQ.ENQUEUE", "q", "x", "unique", key)).1, "added");
        assert_eq!(said(&cmd!(c, "RQ.ENQUEUE", "q", "x", "Unique", key)).1, "duplicate");
    }
    // Queues know nothing of each other's.
    assert_eq!(unique(&mut c, "other", "x", "user:7", &[]).1, "added");
    // With an id of its own; without a key, the reply is what it was.
    assert_eq!(unique(&mut c, "q", "x", "k", &["ID", "own"]), pair("own", "added"));
    assert_eq!(unique(&mut c, "q", "x", "k", &["ID", "another"]), pair("own", "duplicate"));
    assert_eq!(unique(&mut c, "q", "x", "l", &["ID", "own", "IFNEW"]), pair("own", "duplicate"));
    assert_eq!(cmd!(c, "RQ.ENQUEUE", "q", "x", "ID", "plain").text(), "plain");

    let before = unix_ms();
    let (id, _) = unique(&mut c, "shown", "x", "k", &["UNTIL", "started", "FOR", "60000"]);
    let shown = job(&mut c, "shown", &id).unwrap();
    assert_eq!((shown["unique"].text(), shown["unique-until"].text()), ("k".into(), "started".into()));
    let end = u64::try_from(shown["unique-for"].int()).unwrap();
    assert!((before + 59_000..unix_ms() + 61_000).contains(&end), "{end}");
    assert_eq!(shown["locked"].int(), 1);
    let text = cmd!(c, "RQ.JOB", "shown", &id, "JSON").text();
    let wanted = format!(r#""unique":"k","unique-until":"started","unique-for":{end},"locked":1,"#);
    assert!(text.contains(&wanted), "{wanted} in {text}");
    let plain = enqueue(&mut c, "shown", "x");
    let shown = job(&mut c, "shown", &plain).unwrap();
    assert!(["unique", "unique-until", "unique-for"].iter().all(|field| shown[*field].is_nil()));
    assert_eq!(shown["locked"].int(), 0);
    // A key is no key of the server's.
    assert_eq!(cmd!(c, "COMMAND", "GETKEYS", "RQ.ENQUEUE", "q", "x", "UNIQUE", "k").texts(), ["q"]);
}

fn errors_change_nothing(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    unique(&mut c, "q", "x", "k", &["ID", "own"]);
    let before = fingerprint(&server, "q");
    let too_long = "k".repeat(513);
    for (options, says) in [
        (&["UNIQUE"][..], "option UNIQUE needs a value"),
        (&["UNIQUE", ""], "UNIQUE must be a name of 1 to 512 bytes"),
        (&["UNIQUE", &too_long], "it has 513"),
        (&["UNIQUE", "l", "UNTIL", "done"], "UNTIL must be one of started, finished"),
        (&["UNIQUE", "l", "FOR", "0"], "FOR must be an integer from 1"),
        (&["UNIQUE", "l", "FOR", "-1"], "FOR must be an integer from 1"),
        (&["UNIQUE", "l", "FOR", "9007199254740992"], "FOR must be an integer from 1"),
        (&["UNIQUE", "l", "DEBOUNCE", "DEBOUNCE"], "option DEBOUNCE is given twice"),
        (&["DEBOUNCE"], "DEBOUNCE can only be given together with UNIQUE"),
        (&["UNIQE", "l"], "did you mean UNIQUE?"),
        (&["UNIQUE", "l", "DEBOUNC"], "did you mean DEBOUNCE?"),
        (&["UNIQUE", "l", "ID", "own"], "EXISTS ready"),
        (&["UNIQUE", "k", "DEBOUNCE", "DELAY", "9", "DEADLINE", "9"], "deadline"),
    ] {
        let mut command = args!["RQ.ENQUEUE", "q", "new"];
        command.extend(options.iter().map(|word| word.as_bytes().to_vec()));
        let error = c.call(command).error().text();
        assert!(error.contains(says), "{options:?}: {error}");
        assert_eq!(fingerprint(&server, "q"), before, "{options:?}");
    }
    assert_eq!(refused!(c, "RQ.MENQUEUE", "q", "UNIQUE", "l", "JOBS", 1, "x"), "ERR");
    // Refused, it has taken nobody's key.
    cmd!(c, "RQ.QUEUE.SET", "q", "TTL", "none", "MAXLEN", 1);
    let first = claim(&mut c, "q", "w");
    ack(&mut c, "q", &first);
    enqueue(&mut c, "q", "fills it");
    assert_eq!(refused!(c, "RQ.ENQUEUE", "q", "x", "UNIQUE", "k"), "FULL");
    assert_eq!(job(&mut c, "q", "own").unwrap()["unique"].text(), "k");
}

/// Each ending that a client or the server's timer can bring about; a late word of the old job's worker is about that.
fn free_however_the_job_ends(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    cmd!(c, "RQ.QUEUE.SET", "q", "ATTEMPTS", 1, "CRASHES", 0, "RESULTTTL", "none");
    let endings: [(&str, &[&str], &[&str]); 9] = [
        ("done", &[], &["RQ.ACK", "q", "{id}", "{token}", "RESULT", "r"]),
        ("gone", &[], &["RQ.ACK", "q", "{id}", "{token}"]),
        ("dead", &[], &["RQ.FAIL", "q", "{id}", "{token}"]),
        ("dead", &[], &["RQ.FAIL", "q", "{id}", "{token}", "DEAD"]),
        ("dead", &[], &["RQ.RECOVER", "q", "WORKERS", "1", "w"]),
        ("dead", &["LEASE", "30"], &["PING"]),
        ("cancelled", &["DELAY", "3600000"], &["RQ.CANCEL", "q", "{id}"]),
        ("dead", &["DELAY", "30", "DEADLINE", "31"], &["PING"]),
        ("gone", &["DELAY", "3600000"], &["RQ.PURGE", "q", "delayed"]),
    ];
    for (ends, options, command) in endings {
        let (id, word) = unique(&mut c, "q", "x", "k", options);
        assert_eq!(word, "added", "{command:?}");
        // Of the others, time may have ended it already.
        let stays = !command.contains(&"PING");
        if stays {
            assert_eq!(unique(&mut c, "q", "y", "k", &[]), pair(&id, "duplicate"));
        }
        let token = if options.contains(&"DELAY") { "1-1".into() } else { claim(&mut c, "q", "w").token };
        let fill = |word: &&str| word.replace("{id}", &id).replace("{token}", &token).into_bytes();
        if stays {
            assert_eq!(unique(&mut c, "q", "y", "k", &[]), pair(&id, "duplicate"), "{command:?}");
        }
        c.run(command.iter().map(fill).collect());
        until("it has ended", || state(&mut c, "q", &id) == ends);
        let (newer, word) = unique(&mut c, "q", "z", "k", &[]);
        assert_eq!(word, "added", "after {command:?}");
        // What the old one's worker says late frees nothing.
        for late in ["RQ.ACK", "RQ.FAIL", "RQ.RELEASE"] {
            c.call(args![late, "q", &id, &token]);
        }
        assert_eq!(unique(&mut c, "q", "z", "k", &[]), pair(&newer, "duplicate"), "after {command:?}");
        assert_eq!(cmd!(c, "RQ.CANCEL", "q", &newer).texts(), ["cancelled"]);
    }
    // Who is cancelled while it runs has its key until its worker has let go.
    let (id, _) = unique(&mut c, "q", "x", "k", &[]);
    let held = claim(&mut c, "q", "w");
    cmd!(c, "RQ.CANCEL", "q", &id);
    assert_eq!(unique(&mut c, "q", "y", "k", &[]), pair(&id, "duplicate"));
    cmd!(c, "RQ.FAIL", "q", &id, held.token);
    assert_eq!(state(&mut c, "q", &id), "cancelled");
    assert_eq!(unique(&mut c, "q", "y", "k", &[]).1, "added");
}

/// It is no write: nothing to save, to replicate, or to tell.
fn a_duplicate_leaves_no_trace(lab: &Lab) {
    let server = lab.server_with(&[("notify-keyspace-events", "EA"), ("appendonly", "yes")]);
    let mut c = server.client();
    let (id, _) = unique(&mut c, "q", "x", "k", &[]);
    let before = (server.info("rdb_changes_since_last_save"), fingerprint(&server, "q"));
    let mut ears = server.client();
    cmd!(ears, "PSUBSCRIBE", "__keyevent@0__:*");
    for payload in ["a", "b", "c"] {
        assert_eq!(unique(&mut c, "q", payload, "k", &["DELAY", "1"]), pair(&id, "duplicate"));
    }
    assert_eq!((server.info("rdb_changes_since_last_save"), fingerprint(&server, "q")), before);
    cmd!(c, "SET", "marker", "x");
    assert_eq!(ears.read().list()[3].text(), "marker", "nothing was to be heard before");
}

fn a_replacement_is_told_as_one(lab: &Lab) {
    let server = lab.server_with(&[("notify-keyspace-events", "EA")]);
    let mut c = server.client();
    let (id, _) = unique(&mut c, "q", "v1", "k", &["DEBOUNCE", "DELAY", "3600000", "ATTEMPTS", "7"]);
    let mut ears = server.client();
    cmd!(ears, "PSUBSCRIBE", "__keyevent@0__:*");
    let options = ["DEBOUNCE", "GROUP", "g", "TENANT", "t", "PRIORITY", "9", "LEASE", "77"];
    assert_eq!(unique(&mut c, "q", "v2", "k", &options), pair(&id, "replaced"));
    let heard = (0..4).map(|_| ears.read().list()[2].text().rsplit(':').next().unwrap().to_string());
    assert_eq!(heard.collect::<Vec<_>>(), ["rq.enqueue", "rq.enqueued", "rq.removed", "rq.ready"]);
    let shown = job(&mut c, "q", &id).unwrap();
    let told = ["state", "group", "tenant", "payload"].map(|field| shown[field].text());
    assert_eq!(told, ["ready", "g", "t", "v2"]);
    assert_eq!(shown["priority"].int(), 9);
    // Its options are those of the call, not a mixture.
    assert_eq!(shown["options"].entries().len(), 1);
    assert_eq!(shown["options"].get("lease").int(), 77);
    assert_eq!(counts(&mut c, "q").sum(), 1);
}

fn the_window_ends_by_itself(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let (id, _) = unique(&mut c, "q", "x", "k", &["FOR", "300", "TTL", "0"]);
    let held = claim(&mut c, "q", "w");
    assert_eq!(ack(&mut c, "q", &held), 1);
    // Kept although its TTL is 0: if time enough was left to see it.
    let again = unique(&mut c, "q", "y", "k", &["DELAY", "3600000"]);
    assert!(again == pair(&id, "duplicate") || again.1 == "added", "{again:?}");
    // Nobody asks, and it is gone.
    until("it is gone", || state(&mut c, "q", &id) == "gone");
    if again.1 == "duplicate" {
        assert_eq!(unique(&mut c, "q", "y", "k", &[]).1, "added");
    }
    // One that does not end for long is there as long.
    let (id, _) = unique(&mut c, "q", "x", "l", &["FOR", "3600000", "TTL", "0", "PRIORITY", "9"]);
    let held = claim(&mut c, "q", "w");
    assert_eq!(held.id, id.as_bytes());
    ack(&mut c, "q", &held);
    assert_eq!(unique(&mut c, "q", "y", "l", &["DEBOUNCE"]), pair(&id, "duplicate"));
    let ttl = cmd!(c, "RQ.RESULT", "q", &id).list()[2].int();
    assert!((3_590_000..=3_600_000).contains(&ttl), "{ttl}");
    cmd!(c, "RQ.PURGE", "q", "done");
    assert_eq!(unique(&mut c, "q", "y", "l", &[]).1, "added");
}

/// However many ask at once: one job, and all others are told which.
fn many_clients_one_key(lab: &Lab) {
    const CLIENTS: usize = 24;
    const ROUNDS: usize = 20;
    let server = lab.server();
    let mut c = server.client();
    for round in 0..ROUNDS {
        let replies: Vec<(String, String)> = thread::scope(|scope| {
            let ask = |number: usize| {
                let server = &server;
                scope.spawn(move || {
                    let mut c = server.client();
                    let payload = format!("{round} {number}");
                    (0..5).map(|_| unique(&mut c, "q", &payload, "k", &[])).collect::<Vec<_>>()
                })
            };
            let asking: Vec<_> = (0..CLIENTS).map(ask).collect();
            asking.into_iter().flat_map(|client| client.join().unwrap()).collect()
        });
        let ids: BTreeSet<&String> = replies.iter().map(|(id, _)| id).collect();
        assert_eq!(ids.len(), 1, "round {round}");
        let added = replies.iter().filter(|(_, word)| word == "added").count();
        assert_eq!((added, replies.len()), (1, 5 * CLIENTS), "round {round}");
        assert_eq!(counts(&mut c, "q"), Counts { ready: 1, ..Counts::default() });
        let held = claim(&mut c, "q", "w");
        assert_eq!(try_claim(&mut c, "q", "w"), None);
        ack(&mut c, "q", &held);
    }
    let totals = cmd!(server.client3(), "RQ.STATS", "q").get("totals");
    assert_eq!(totals.get("enqueued").int(), ROUNDS as i64);
}

/// While workers take what is there, the newest payload always runs, and no two jobs wait.
fn many_clients_debounce(lab: &Lab) {
    const CLIENTS: usize = 8;
    let server = lab.server();
    cmd!(server.client(), "RQ.QUEUE.SET", "q", "TTL", 0);
    let mut ran = Vec::new();
    thread::scope(|scope| {
        let asking: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let server = &server;
                scope.spawn(move || {
                    let mut c = server.client();
                    for change in 0..200 {
                        unique(&mut c, "q", &format!("{number} {change}"), "k", &["DEBOUNCE"]);
                    }
                })
            })
            .collect();
        let mut c = server.client();
        loop {
            let is_over = asking.iter().all(thread::ScopedJoinHandle::is_finished);
            assert!(counts(&mut c, "q").ready <= 1);
            match try_claim(&mut c, "q", "w") {
                Some(held) => {
                    ack(&mut c, "q", &held);
                    ran.push(held.text());
                }
                None if is_over => break,
                None => {}
            }
        }
    });
    // Of each client's changes those that ran are in order, and the last job had the last payload of one of them.
    for number in 0..CLIENTS {
        let prefix = format!("{number} ");
        let changes = ran.iter().filter_map(|text| text.strip_prefix(&prefix)?.parse().ok());
        let changes: Vec<u32> = changes.collect();
        assert!(changes.is_sorted_by(|one, next| one < next), "{changes:?}");
    }
    assert!(ran.last().is_some_and(|text| text.ends_with(" 199")), "{:?}", ran.last());
}

fn a_waiting_worker_gets_the_newest_payload(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let options = ["DEBOUNCE", "DELAY", "3600000"];
    let (id, _) = unique(&mut c, "q", "v1", "k", &options);
    let mut waiting = waiting_claim(&server, "q", "w", 0);
    assert_eq!(unique(&mut c, "q", "v2", "k", &options), pair(&id, "replaced"));
    assert_eq!(server.info_number("blocked_clients"), 1, "nothing to do yet");
    assert_eq!(unique(&mut c, "q", "v3", "k", &["DEBOUNCE"]), pair(&id, "replaced"));
    let held = jobs(&waiting.read()).remove(0);
    assert_eq!((held.text().as_str(), held.id.as_slice(), held.delivery), ("v3", id.as_bytes(), 1));
    // The timer comes as the delay of the last call says, which began anew with it.
    let (next, word) = unique(&mut c, "q", "v4", "k", &["DEBOUNCE", "DELAY", "3600000"]);
    assert_eq!(word, "added");
    unique(&mut c, "q", "v5", "k", &["DEBOUNCE", "DELAY", "50"]);
    let mut waiting = waiting_claim(&server, "q", "w2", 0);
    let held = jobs(&waiting.read()).remove(0);
    assert_eq!((held.text().as_str(), held.id.as_slice()), ("v5", next.as_bytes()));
}

fn who_waits_for_a_result_goes_on_waiting(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let (id, _) = unique(&mut c, "q", "v1", "k", &["DEBOUNCE"]);
    let mut waits = server.client();
    send!(waits, "RQ.RESULT", "q", &id, "BLOCK", 0);
    until_blocked(&server, 1);
    unique(&mut c, "q", "v2", "k", &["DEBOUNCE"]);
    let held = claim(&mut c, "q", "w");
    cmd!(c, "RQ.ACK", "q", held.id, held.token, "RESULT", "of v2");
    assert_eq!(waits.read().list()[1].text(), "of v2");
}

fn in_transactions_and_scripts(lab: &Lab) {
    let server = lab.server();
    let replica = lab.replica_of(&server);
    let mut c = server.client();
    cmd!(c, "MULTI");
    for payload in ["a", "b"] {
        cmd!(c, "RQ.ENQUEUE", "q", payload, "UNIQUE", "k");
    }
    cmd!(c, "RQ.ENQUEUE", "q", "c", "UNIQUE", "k", "DEBOUNCE");
    let replies: Vec<String> = cmd!(c, "EXEC").list().iter().map(|reply| said(reply).1).collect();
    assert_eq!(replies, ["added", "duplicate", "replaced"]);
    let script = "local added = redis.call('RQ.ENQUEUE', KEYS[1], 'x', 'UNIQUE', ARGV[1]); return added[2]";
    assert_eq!(cmd!(c, "EVAL", script, 1, "q", "k").text(), "duplicate");
    assert_eq!(cmd!(c, "EVAL", script, 1, "q", "l").text(), "added");
    server.wait_for_sync(&replica);
    assert_eq!(server.digest("q"), replica.digest("q"));
}

/// A queue with something of every kind that has to do with keys; keys and the ids that they are locked by.
fn sample(c: &mut Client, queue: &str) -> Vec<(&'static str, String)> {
    cmd!(c, "RQ.QUEUE.SET", queue, "TTL", "none", "RESULTTTL", "none", "LEASE", 3_600_000);
    let mut locked = Vec::new();
    let (id, _) = unique(c, queue, "x", "taken over", &[]);
    let held = claim(c, queue, "w");
    cmd!(c, "RQ.ACK", queue, &id, held.token);
    locked.push(("taken over", unique(c, queue, "x", "taken over", &["DELAY", "3600000"]).0));
    locked.push(("window", unique(c, queue, "x", "window", &["FOR", "3600000", "ID", "own"]).0));
    let held = claim(c, queue, "w");
    cmd!(c, "RQ.ACK", queue, held.id, held.token);
    unique(c, queue, "x", "started", &["UNTIL", "started"]);
    claim(c, queue, "w");
    locked.push(("active", unique(c, queue, "x", "active", &[]).0));
    claim(c, queue, "w");
    unique(c, queue, "v1", "debounced", &["DEBOUNCE", "DELAY", "3600000"]);
    locked.push(("debounced", unique(c, queue, "v2", "debounced", &["DEBOUNCE", "PRIORITY", "9"]).0));
    let (id, _) = unique(c, queue, "x", "cancelled", &[]);
    cmd!(c, "RQ.CANCEL", queue, id);
    locked
}

/// Whether exactly those keys are locked, and by those jobs. Takes the others.
#[track_caller]
fn check_sample(c: &mut Client, queue: &str, locked: &[(&str, String)]) {
    for (key, id) in locked {
        assert_eq!(unique(c, queue, "y", key, &[]), pair(id, "duplicate"), "{key} of {queue}");
    }
    for key in ["started", "cancelled"] {
        assert_eq!(unique(c, queue, "y", key, &[]).1, "added", "{key} of {queue}");
        assert_eq!(unique(c, queue, "y", key, &[]).1, "duplicate", "{key} of {queue}");
    }
}

fn keys_follow_their_queue(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    for way in ["RENAME", "COPY", "MOVE", "SWAPDB", "RESTORE", "RELOAD", "NOTHING"] {
        cmd!(c, "FLUSHALL");
        cmd!(c, "SELECT", 0);
        let locked = sample(&mut c, "q");
        match way {
            "RENAME" => drop((cmd!(c, "RENAME", "q", "p"), cmd!(c, "RENAME", "p", "q"))),
            "COPY" => {
                cmd!(c, "COPY", "q", "copy");
                check_sample(&mut c, "copy", &locked);
                // Each has its own from then on.
                cmd!(c, "RQ.PURGE", "copy", "delayed");
                assert_eq!(unique(&mut c, "copy", "y", "taken over", &[]).1, "added");
            }
            "MOVE" => drop((cmd!(c, "MOVE", "q", 1), cmd!(c, "SELECT", 1))),
            "SWAPDB" => drop((cmd!(c, "SWAPDB", 0, 1), cmd!(c, "SELECT", 1))),
            "RESTORE" => {
                let dump = cmd!(c, "DUMP", "q");
                cmd!(c, "RESTORE", "q", 0, dump.bytes(), "REPLACE");
            }
            "RELOAD" => drop(cmd!(c, "DEBUG", "RELOAD")),
            _ => {}
        }
        check_sample(&mut c, "q", &locked);
    }
    cmd!(c, "DEL", "q");
    assert_eq!(unique(&mut c, "q", "y", "active", &[]).1, "added");
}

fn replicas_files_and_promotion(lab: &Lab) {
    for preamble in ["yes", "no"] {
        let config = [("appendonly", "yes"), ("aof-use-rdb-preamble", preamble)];
        let mut server = lab.server_with(&config);
        let (early, mut c) = (lab.replica_of(&server), server.client());
        let locked = sample(&mut c, "q");
        let late = lab.replica_of(&server);
        for replica in [&early, &late] {
            server.wait_for_sync(replica);
            assert_eq!(replica.digest("q"), server.digest("q"), "preamble {preamble}");
        }
        // From the commands alone, then from a rewrite and what followed it.
        for rewrite in [false, true] {
            if rewrite {
                cmd!(server.client(), "BGREWRITEAOF");
                until("the rewrite is done", || {
                    server.info("aof_rewrite_in_progress") == "0"
                        && server.info("aof_rewrite_scheduled") == "0"
                });
                unique(&mut server.client(), "q", "after it", "debounced", &["DEBOUNCE"]);
            }
            let digest = server.digest("q");
            server.kill9();
            server.restart();
            assert_eq!(server.digest("q"), digest, "preamble {preamble}, rewrite {rewrite}");
        }
        check_sample(&mut server.client(), "q", &locked);
        let mut c = late.client();
        cmd!(c, "REPLICAOF", "NO", "ONE");
        check_sample(&mut c, "q", &locked);
    }
}

fn many_keys(lab: &Lab) {
    const KEYS: usize = 100_000;
    let server = lab.server();
    let mut c = server.client();
    let fill = "for n = 1, ARGV[1] do redis.call('RQ.ENQUEUE', KEYS[1], 'p', 'UNIQUE', 'user:' .. (ARGV[2] + n)) end";
    for from in (0..KEYS).step_by(1_000) {
        cmd!(c, "EVAL", fill, 1, "q", 1_000, from);
    }
    assert_eq!(counts(&mut c, "q").ready, KEYS as i64);
    let before = fingerprint(&server, "q");
    for number in [1, KEYS / 2, KEYS] {
        assert_eq!(unique(&mut c, "q", "x", &format!("user:{number}"), &[]).1, "duplicate");
    }
    cmd!(c, "DEBUG", "RELOAD");
    assert_eq!(fingerprint(&server, "q"), before);
    for number in [1, KEYS / 2, KEYS] {
        assert_eq!(unique(&mut c, "q", "x", &format!("user:{number}"), &[]).1, "duplicate");
    }
    let used = cmd!(c, "MEMORY", "USAGE", "q").int();
    while cmd!(c, "RQ.PURGE", "q", "ready").list()[1].int() > 0 {}
    let left = cmd!(c, "MEMORY", "USAGE", "q").int();
    assert!(left < used / 100, "{left} of {used} bytes left");
}

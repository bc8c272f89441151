//! What the server's own settings mean for queues: access control, memory, disk errors, cluster mode, the module's loading.

use crate::common::*;
use crate::{args, cmd, refused, send, tests};

pub const TESTS: &[Test] = tests![
    acl_by_key_pattern,
    acl_read_only_user,
    acl_by_command,
    memory_is_full,
    timers_at_the_memory_limit,
    eviction_of_a_queue,
    cluster_single_node,
    cluster_slot_moves_with_waiters,
    io_threads,
    active_defragmentation,
    wrong_module_options,
    loading_twice,
    resp3_and_resp2_tell_the_same,
];

fn acl_by_key_pattern(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    cmd!(c, "ACL", "SETUSER", "alice", "on", ">pw", "~alice:*", "+@all");
    enqueue(&mut c, "bob:q", "x");
    let mut alice = server.client();
    cmd!(alice, "AUTH", "alice", "pw");
    enqueue(&mut alice, "alice:q", "x");
    claim(&mut alice, "alice:q", "w");
    for call in [
        args!["RQ.ENQUEUE", "bob:q", "x"],
        args!["RQ.CLAIM", "bob:q", "w"],
        args!["RQ.CLAIM", "bob:q", "w", "BLOCK", 0],
        args!["RQ.MCLAIM", 2, "alice:q", "bob:q", "w"],
        args!["RQ.STATS", "bob:q"],
        args!["RQ.RESULT", "bob:q", "j", "BLOCK", 0],
        args!["RQ.QUEUE.SET", "bob:q", "LEASE", 5],
        args!["RQ.PURGE", "bob:q", "ready"],
    ] {
        assert_eq!(alice.refused(call), "NOPERM");
    }
    assert_eq!(counts(&mut c, "bob:q"), Counts { ready: 1, ..Counts::default() });
}

fn acl_read_only_user(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    enqueue(&mut c, "q", "x");
    cmd!(c, "ACL", "SETUSER", "viewer", "on", ">pw", "%R~*", "+@all");
    let mut viewer = server.client();
    cmd!(viewer, "AUTH", "viewer", "pw");
    for read in [
        args!["RQ.STATS", "q"],
        args!["RQ.LIST", "q", "ready"],
        args!["RQ.WORKERS", "q"],
        args!["RQ.QUEUE.GET", "q"],
        args!["RQ.JOB", "q", "j"],
        args!["RQ.RESULT", "q", "j"],
    ] {
        viewer.run(read);
    }
    for write in [
        args!["RQ.ENQUEUE", "q", "x"],
        args!["RQ.CLAIM", "q", "w"],
        args!["RQ.PAUSE", "q"],
        args!["RQ.PURGE", "q", "ready"],
    ] {
        assert_eq!(viewer.refused(write), "NOPERM");
    }
}

fn acl_by_command(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    cmd!(c, "ACL", "SETUSER", "producer", "on", ">pw", "~*", "+rq.enqueue", "+rq.result");
    let mut producer = server.client();
    cmd!(producer, "AUTH", "producer", "pw");
    let id = enqueue(&mut producer, "q", "x");
    cmd!(producer, "RQ.RESULT", "q", id);
    assert_eq!(refused!(producer, "RQ.CLAIM", "q", "w"), "NOPERM");
    // What a waiting worker is given needs no rights of the producer.
    let mut waiter = waiting_claim(&server, "r", "w", 0);
    enqueue(&mut producer, "r", "x");
    assert_eq!(jobs(&waiter.read()).len(), 1);
}

/// C54: only new work is refused; finishing goes on and makes room.
fn memory_is_full(lab: &Lab) {
    let server = lab.server_with(&[("maxmemory-policy", "noeviction")]);
    let mut c = server.client();
    for number in 0..30 {
        cmd!(
            c,
            "RQ.ENQUEUE",
            "q",
            format!("{number} {}", "x".repeat(10_000)),
            "ATTEMPTS",
            1,
            "TTL",
            3_600_000
        );
    }
    let held = jobs(&cmd!(c, "RQ.CLAIM", "q", "w", "COUNT", 10));
    cmd!(c, "CONFIG", "SET", "maxmemory", 1_000_000);
    for refused in
        [args!["RQ.ENQUEUE", "q", "x"], args!["RQ.MENQUEUE", "q", "JOBS", 1, "x"], args!["SET", "k", "v"]]
    {
        assert_eq!(c.refused(refused), "OOM");
    }
    assert_eq!(cmd!(c, "RQ.EXTEND", "q", "w", "LEASE", 60_000, held[0].id, held[0].token).texts(), ["ok"]);
    assert_eq!(cmd!(c, "RQ.PROGRESS", "q", held[0].id, held[0].token, "half").text(), "ok");
    assert_eq!(cmd!(c, "RQ.ACK", "q", held[0].id, held[0].token, "RESULT", "r").int(), 1);
    assert_eq!(cmd!(c, "RQ.FAIL", "q", held[1].id, held[1].token).text(), "dead");
    assert_eq!(cmd!(c, "RQ.RELEASE", "q", held[2].id, held[2].token).texts(), ["ok"]);
    assert_eq!(cmd!(c, "RQ.RECOVER", "q", "EXCEPT", 0).list()[0].int(), 7);
    assert_eq!(jobs(&cmd!(c, "RQ.CLAIM", "q", "w", "COUNT", 2)).len(), 2);
    cmd!(c, "RQ.CANCEL", "q", held[3].id);
    cmd!(c, "RQ.PAUSE", "q");
    cmd!(c, "RQ.RESUME", "q");
    cmd!(c, "RQ.REDRIVE", "q", "ALL");
    cmd!(c, "RQ.QUEUE.SET", "q", "LEASE", 5);
    assert!(cmd!(c, "RQ.PURGE", "q", "ready").list()[0].int() > 10);
    // A script that only finishes is not refused either.
    let script = "return redis.call('RQ.PURGE', KEYS[1], 'done')";
    cmd!(c, "EVAL", format!("#!lua flags=allow-oom\n{script}"), 1, "q");
    cmd!(c, "CONFIG", "SET", "maxmemory", 0);
    enqueue(&mut c, "q", "x");
}

fn timers_at_the_memory_limit(lab: &Lab) {
    let server = lab.server_with(&[("maxmemory-policy", "noeviction")]);
    let mut c = server.client();
    cmd!(c, "RQ.ENQUEUE", "q", "x", "DELAY", 200);
    cmd!(c, "RQ.ENQUEUE", "q", "y", "LEASE", 200);
    claim(&mut c, "q", "w");
    let mut waiter = waiting_claim(&server, "q", "w", 0);
    cmd!(c, "CONFIG", "SET", "maxmemory", 1);
    assert_eq!(jobs(&waiter.read()).len(), 1);
    until("both came back", || counts(&mut c, "q").delayed == 0 && counts(&mut c, "q").sum() == 2);
}

/// C56: a queue that the server throws away must not take the server with it.
fn eviction_of_a_queue(lab: &Lab) {
    let mut server = lab.server_with(&[("maxmemory-policy", "allkeys-random")]);
    let mut c = server.client();
    for number in 0..10 {
        cmd!(c, "RQ.ENQUEUE", format!("q{number}"), vec![b'x'; 100_000], "LEASE", 100);
        claim(&mut c, &format!("q{number}"), "w");
    }
    let mut result = server.client();
    let mut waiter = waiting_claim(&server, "waited", "w", 0);
    cmd!(c, "RQ.ENQUEUE", "r", "x", "ID", "j");
    send!(result, "RQ.RESULT", "r", "j", "BLOCK", 0);
    until_blocked(&server, 2);
    cmd!(c, "CONFIG", "SET", "maxmemory", 1_000_000);
    until("something is evicted", || {
        c.call(args!["SET", "k", vec![b'x'; 50_000]]);
        server.info_number("evicted_keys") > 3
    });
    cmd!(c, "CONFIG", "SET", "maxmemory", 0);
    cmd!(c, "FLUSHALL");
    let reply = result.read();
    assert!(reply.is_nil() || matches!(reply, Reply::Error(_)), "{reply:?}");
    enqueue(&mut c, "waited", "x");
    assert_eq!(jobs(&waiter.read()).len(), 1);
    assert!(server.is_running());
}

/// A cluster of one node that owns all slots.
fn cluster(lab: &Lab) -> Server {
    let server = lab.server_with(&[
        ("cluster-enabled", "yes"),
        ("cluster-config-file", "nodes.conf"),
        ("cluster-require-full-coverage", "no"),
    ]);
    let mut c = server.client();
    cmd!(c, "CLUSTER", "ADDSLOTSRANGE", 0, 16_383);
    until("the cluster is up", || {
        String::from_utf8_lossy(cmd!(c, "CLUSTER", "INFO").bytes()).contains("cluster_state:ok")
    });
    server
}

/// C62, on one node: no hash tags are needed, and a claim over queues of different slots is refused.
fn cluster_single_node(lab: &Lab) {
    let server = cluster(lab);
    let mut c = server.client();
    for queue in ["a", "b", "some queue", "{tag}1", "{tag}2"] {
        let id = cmd!(c, "RQ.ENQUEUE", queue, "x", "LEASE", 100).text();
        claim(&mut c, queue, "w");
        let again = claim_soon(&mut c, queue, "w");
        assert_eq!((again.id.as_slice(), again.delivery), (id.as_bytes(), 2));
        cmd!(c, "RQ.STATS", queue);
        assert_eq!(ack(&mut c, queue, &again), 1);
    }
    let mut waiter = waiting_claim(&server, "b", "w", 0);
    enqueue(&mut c, "b", "x");
    assert_eq!(jobs(&waiter.read()).len(), 1);
    assert_eq!(refused!(c, "RQ.MCLAIM", 2, "a", "b", "w"), "CROSSSLOT");
    assert!(cmd!(c, "RQ.MCLAIM", 2, "{tag}1", "{tag}2", "w").is_nil());
}

fn cluster_slot_moves_with_waiters(lab: &Lab) {
    let server = cluster(lab);
    let mut c = server.client();
    let mut waiter = waiting_claim(&server, "q", "w", 0);
    let slot = cmd!(c, "CLUSTER", "KEYSLOT", "q").int();
    cmd!(c, "CLUSTER", "DELSLOTS", slot);
    // The wait ends, so that the client asks again and is sent to where the queue is now.
    let reply = waiter.read();
    assert!(reply.is_nil() || matches!(reply, Reply::Error(_)), "{reply:?}");
    let word = refused!(waiter, "RQ.CLAIM", "q", "w", "BLOCK", 0);
    assert!(["CLUSTERDOWN", "MOVED"].contains(&word.as_str()), "{word}");
    cmd!(c, "CLUSTER", "ADDSLOTS", slot);
    until("the slot is back", || matches!(c.call(args!["RQ.ENQUEUE", "q", "x"]), Reply::Bulk(_)));
    claim(&mut c, "q", "w");
}

fn io_threads(lab: &Lab) {
    let server = lab.server_with(&[("io-threads", "2"), ("io-threads-do-reads", "yes")]);
    let mut c = server.client();
    let mut workers: Vec<Client> = (0..50).map(|_| server.client()).collect();
    let mut seen = std::collections::HashSet::new();
    for round in 0..5 {
        for (number, worker) in workers.iter_mut().enumerate() {
            send!(worker, "RQ.CLAIM", "q", format!("w{number}"), "BLOCK", 0);
        }
        for number in 0..50 {
            send!(c, "RQ.ENQUEUE", "q", format!("{round} {number}"));
        }
        for _ in 0..50 {
            c.read();
        }
        for worker in &mut workers {
            let job = jobs(&worker.read()).remove(0);
            assert_eq!(job.delivery, 1);
            assert!(seen.insert(job.text()));
            assert_eq!(ack(worker, "q", &job), 1);
        }
    }
    assert_eq!(counts(&mut c, "q"), Counts::default());
}

fn active_defragmentation(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    for (name, value) in [
        ("active-defrag-ignore-bytes", "1"),
        ("active-defrag-threshold-lower", "0"),
        ("active-defrag-cycle-min", "50"),
        ("active-defrag-cycle-max", "90"),
        ("active-defrag-max-scan-fields", "10"),
    ] {
        cmd!(c, "CONFIG", "SET", name, value);
    }
    if let Reply::Error(error) = c.call(args!["CONFIG", "SET", "activedefrag", "yes"]) {
        // A server built with another allocator cannot do it at all.
        assert!(error.text().contains("efrag"), "{error:?}");
        return;
    }
    super::persistence::furnish(&mut c);
    for round in 0..20 {
        let mut call = args!["RQ.MENQUEUE", "q", "JOBS", 1000];
        call.extend((0..1000).map(|number| vec![b'x'; number % 300]));
        c.run(call);
        // Holes for it to close.
        cmd!(c, "SET", format!("k{round}"), vec![b'y'; 1000]);
        let taken = jobs(&cmd!(c, "RQ.CLAIM", "q", "w", "COUNT", 500));
        for job in taken.iter().step_by(2) {
            assert_eq!(ack(&mut c, "q", job), 1);
        }
        cmd!(c, "DEL", format!("k{}", round / 2));
    }
    let digest = server.digest("q");
    holds("the queue stays what it is", ms(1000), || server.digest("q") == digest);
    cmd!(c, "DEBUG", "RELOAD");
    assert_eq!(server.digest("q"), digest);
}

fn wrong_module_options(lab: &Lab) {
    for (name, value) in [
        ("rq.default-attempts", "0"),
        ("rq.default-lease", "-5"),
        ("rq.default-backoff", "x"),
        ("rq.nonsense", "1"),
        ("rq.max-payload", "lots"),
    ] {
        let mut server = lab.server();
        server.shutdown();
        server.configure(name, value);
        server.restart_refused();
        let log = server.log();
        assert!(crash_free(&log), "{log}");
    }
}

fn crash_free(log: &str) -> bool {
    !log.contains("BUG REPORT") && !log.contains("panicked")
}

fn loading_twice(lab: &Lab) {
    let server = lab.server_with(&[("enable-module-command", "yes")]);
    let mut c = server.client();
    enqueue(&mut c, "q", "x");
    c.call(args!["MODULE", "LOAD", lab.module().display().to_string()]).error();
    // There are queues, so it cannot be unloaded.
    c.call(args!["MODULE", "UNLOAD", "rq"]).error();
    claim(&mut c, "q", "w");
    // Into a server that is already running.
    let server = lab.plain_server();
    let mut c = server.client();
    let reply = c.call(args!["MODULE", "LOAD", lab.module().display().to_string()]);
    assert!(matches!(reply, Reply::Error(_)), "the server's own setting forbids it: {reply:?}");
}

fn resp3_and_resp2_tell_the_same(lab: &Lab) {
    let server = lab.server();
    let mut two = server.client();
    let mut three = server.client3();
    super::persistence::furnish(&mut two);
    for call in [
        args!["RQ.JOB", "q", "own id"],
        args!["RQ.RESULT", "q", "own id"],
        args!["RQ.QUEUE.GET", "q"],
        args!["RQ.WORKERS", "q"],
        args!["RQ.LIST", "q", "ready"],
        args!["RQ.QUEUES"],
        args!["RQ.STATS", "settings"],
        args!["RQ.JOB", "q", "own id", "JSON"],
    ] {
        // Instants may be shown a millisecond apart from one call to the next; so until both fall into the same one.
        until("both protocols tell the same", || {
            flat(&two.run(call.clone())) == flat(&three.run(call.clone()))
        });
    }
}

/// A reply without what only RESP3 can say.
fn flat(reply: &Reply) -> Reply {
    match reply {
        Reply::Map(entries) => {
            Reply::Array(entries.iter().flat_map(|(key, value)| [flat(key), flat(value)]).collect())
        }
        Reply::Array(items) => Reply::Array(items.iter().map(flat).collect()),
        Reply::Status(text) => Reply::Bulk(text.clone().into_bytes()),
        Reply::Bool(value) => Reply::Int(i64::from(*value)),
        other => other.clone(),
    }
}

//! C52, C53: names, payloads, results and errors are bytes; none is ever interpreted, on whatever way they travel.

use super::persistence::{Fact, assert_same};
use crate::common::*;
use crate::{args, cmd, refused, tests};

pub const TESTS: &[Test] = tests![
    all_bytes_everywhere,
    bytes_survive_every_way_of_moving,
    queue_names_are_bytes,
    sixty_four_megabytes,
    many_sizes,
    large_replies_to_waiting_claims,
];

/// What has broken queues before, and everything at once.
fn samples() -> Vec<Vec<u8>> {
    let all: Vec<u8> = (0..=255).collect();
    vec![
        all.clone(),
        all.iter().rev().copied().collect(),
        b"\0".to_vec(),
        b"a\0b".to_vec(),
        b"\r\n".to_vec(),
        b"+OK\r\n$-1\r\n*0\r\n".to_vec(),
        vec![0xff],
        vec![0xc3, 0x28],
        vec![0xed, 0xa0, 0x80],
        vec![0xf0, 0x9f, 0x98, 0x80],
        "é日本\u{1f600}\u{202e}".as_bytes().to_vec(),
        b"%s%n%d%%".to_vec(),
        b" ".to_vec(),
        b"-1".to_vec(),
        b"none".to_vec(),
        b"RESULT".to_vec(),
        b"{\"json\": \"\\u0000\"}".to_vec(),
        b"12345".to_vec(),
        vec![b'x'; 500],
    ]
}

fn all_bytes_everywhere(lab: &Lab) {
    let server = lab.server();
    for mut c in [server.client(), server.client3()] {
        for bytes in samples() {
            cmd!(c, "FLUSHALL");
            assert_eq!(cmd!(c, "RQ.ENQUEUE", "q", bytes, "ID", bytes, "ATTEMPTS", 1).bytes(), bytes);
            let job = jobs(&cmd!(c, "RQ.CLAIM", "q", bytes)).remove(0);
            assert_eq!((&job.id, &job.payload), (&bytes, &bytes));
            assert_eq!(cmd!(c, "RQ.PROGRESS", "q", bytes, job.token, bytes).text(), "ok");
            assert_eq!(cmd!(c, "RQ.RESULT", "q", bytes).list()[1].bytes(), bytes);
            let map = cmd!(c, "RQ.JOB", "q", bytes);
            for field in ["id", "payload", "worker", "progress"] {
                assert_eq!(map.get(field).bytes(), bytes, "{field}");
            }
            assert_eq!(workers(&mut c, "q")[0].get("name").bytes(), bytes);
            let listed = cmd!(c, "RQ.LIST", "q", "active", "WORKER", bytes);
            assert_eq!(listed.list()[1].list()[0].get("id").bytes(), bytes);
            assert!(cmd!(c, "RQ.JOB", "q", bytes, "JSON").bytes().starts_with(b"{"));
            let recovered = cmd!(c, "RQ.RECOVER", "q", "WORKERS", 1, bytes);
            assert_eq!(recovered.list()[0].int(), 1);
            let job = jobs(&cmd!(c, "RQ.CLAIM", "q", bytes)).remove(0);
            assert_eq!(cmd!(c, "RQ.FAIL", "q", bytes, job.token, "ERROR", bytes).text(), "dead");
            assert_eq!(cmd!(c, "RQ.RESULT", "q", bytes).list()[1].bytes(), bytes);
            assert_eq!(cmd!(c, "RQ.REDRIVE", "q", bytes).texts(), ["ready"]);
            let job = jobs(&cmd!(c, "RQ.CLAIM", "q", bytes)).remove(0);
            assert_eq!(cmd!(c, "RQ.ACK", "q", bytes, job.token, "RESULT", bytes).int(), 1);
            assert_eq!(cmd!(c, "RQ.RESULT", "q", bytes).list()[1].bytes(), bytes);
        }
        // An empty payload, result and error.
        cmd!(c, "FLUSHALL");
        let id = enqueue(&mut c, "q", "");
        let job = claim(&mut c, "q", "w");
        assert!(job.payload.is_empty());
        assert_eq!(cmd!(c, "RQ.ACK", "q", id, job.token, "RESULT", "").int(), 1);
        assert!(cmd!(c, "RQ.RESULT", "q", id).list()[1].bytes().is_empty());
    }
}

/// Fills `q` with jobs of every kind, full of strange bytes.
fn fill(c: &mut Client) {
    for (number, bytes) in samples().into_iter().enumerate() {
        cmd!(c, "RQ.ENQUEUE", "q", bytes, "ID", bytes, "ATTEMPTS", 1, "TTL", 3_600_000, "LEASE", 3_600_000);
        if number % 5 > 0 {
            let job = jobs(&cmd!(c, "RQ.CLAIM", "q", bytes)).remove(0);
            match number % 5 {
                1 => drop(cmd!(c, "RQ.PROGRESS", "q", job.id, job.token, bytes)),
                2 => drop(cmd!(c, "RQ.ACK", "q", job.id, job.token, "RESULT", bytes)),
                3 => drop(cmd!(c, "RQ.FAIL", "q", job.id, job.token, "ERROR", bytes)),
                _ => drop(cmd!(c, "RQ.ACK", "q", job.id, job.token)),
            }
        }
    }
}

fn seen(c: &mut Client) -> Vec<Fact> {
    let mut facts = Vec::new();
    for bytes in samples() {
        let map = cmd!(c, "RQ.JOB", "q", bytes);
        if !map.is_nil() {
            let told = map.entries().into_iter().filter(|(name, _)| name != "ttl");
            facts.extend(told.map(|(name, value)| (bytes.escape_ascii().to_string(), name, value)));
        }
    }
    facts
}

#[track_caller]
fn same(server: &Server, wanted: &(Vec<Fact>, String), what: &str) {
    assert_same(what, &wanted.0, &seen(&mut server.client()));
    assert_eq!(server.digest("q"), wanted.1, "{what}");
}

fn bytes_survive_every_way_of_moving(lab: &Lab) {
    let mut primary =
        lab.server_with(&[("appendonly", "yes"), ("appendfsync", "always"), ("aof-use-rdb-preamble", "no")]);
    let mut c = primary.client();
    fill(&mut c);
    let wanted = seen(&mut c);
    let digest = primary.digest("q");
    let replica = lab.replica_of(&primary);
    // Once more, so that the replica gets it as a stream too.
    cmd!(c, "DEL", "q");
    fill(&mut c);
    let streamed = (seen(&mut c), primary.digest("q"));
    primary.wait_for_sync(&replica);
    same(&replica, &streamed, "on the replica");
    assert_ne!(wanted, streamed.0, "other tokens, so it was really written anew");
    assert_ne!(digest, streamed.1);
    drop(replica);
    cmd!(c, "DEBUG", "RELOAD");
    same(&primary, &streamed, "RDB");
    let dump = cmd!(c, "DUMP", "q").bytes().to_vec();
    cmd!(c, "DEL", "q");
    cmd!(c, "RESTORE", "q", 0, dump);
    same(&primary, &streamed, "DUMP and RESTORE");
    primary.kill9();
    primary.restart();
    let mut c = primary.client();
    same(&primary, &streamed, "AOF of commands");
    cmd!(c, "BGREWRITEAOF");
    until("the rewrite is done", || {
        primary.info("aof_rewrite_in_progress") == "0" && primary.info("aof_rewrite_scheduled") == "0"
    });
    primary.kill9();
    primary.restart();
    same(&primary, &streamed, "rewritten AOF");
}

fn queue_names_are_bytes(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    for name in samples() {
        cmd!(c, "FLUSHALL");
        let mut waiter = server.client();
        crate::send!(waiter, "RQ.CLAIM", name, "w", "BLOCK", 0, "LEASE", 50);
        until_blocked(&server, 1);
        cmd!(c, "RQ.ENQUEUE", name, "x");
        assert_eq!(jobs(&waiter.read()).len(), 1);
        // Its lease lapses, found through the index of names.
        eventually("the job is back", || jobs(&cmd!(c, "RQ.CLAIM", name, "w")).into_iter().next());
        assert_eq!(cmd!(c, "RQ.QUEUES").list()[1].list()[0].bytes(), name);
        cmd!(c, "DEBUG", "RELOAD");
        assert_eq!(cmd!(c, "RQ.QUEUES").list()[1].list()[0].bytes(), name);
    }
    // Even the empty one.
    cmd!(c, "RQ.ENQUEUE", "", "x");
    assert_eq!(jobs(&cmd!(c, "RQ.CLAIM", "", "w")).len(), 1);
}

fn sixty_four_megabytes(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let mut large: Vec<u8> = (0..67_108_864_u32).map(|number| number.to_le_bytes()[0]).collect();
    cmd!(c, "CONFIG", "SET", "rq.max-payload", 67_108_864);
    let before = server.info_number("used_memory");
    let id = enqueue(&mut c, "q", &large);
    let used = server.info_number("used_memory") - before;
    // The client's buffers come and go; the payload itself must be there once.
    until("no second copy is kept", || server.info_number("used_memory") - before < 100 << 20);
    let job = claim(&mut c, "q", "w");
    assert!(job.payload == large, "unchanged; {used} bytes used");
    assert_eq!(cmd!(c, "RQ.ACK", "q", id, job.token, "RESULT", large).int(), 1);
    assert!(cmd!(c, "RQ.RESULT", "q", id).list()[1].bytes() == large);
    let digest = server.digest("q");
    cmd!(c, "DEBUG", "RELOAD");
    assert_eq!(server.digest("q"), digest);
    large.push(0);
    assert_eq!(refused!(c, "RQ.ENQUEUE", "q", large), "TOOBIG");
    assert_eq!(counts(&mut c, "q"), Counts { done: 1, ..Counts::default() });
}

fn many_sizes(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let sizes: Vec<usize> = [
        0,
        1,
        10,
        11,
        12,
        13,
        20,
        43,
        44,
        45,
        63,
        64,
        65,
        127,
        128,
        254,
        255,
        256,
        257,
        1023,
        1024,
        4095,
        4096,
        16_383,
        16_384,
        16_385,
        32_767,
        32_768,
        65_535,
        65_536,
        1 << 20,
    ]
    .to_vec();
    for size in &sizes {
        enqueue(&mut c, "q", vec![b'0'; *size]);
    }
    let digest = server.digest("q");
    cmd!(c, "DEBUG", "RELOAD");
    assert_eq!(server.digest("q"), digest);
    for size in &sizes {
        let job = claim(&mut c, "q", "w");
        assert_eq!(job.payload, vec![b'0'; *size]);
        ack(&mut c, "q", &job);
    }
}

fn large_replies_to_waiting_claims(lab: &Lab) {
    let server = lab.server();
    let mut waiter = waiting_claim_with(&server, "q", "w", 0, &["COUNT", "50"]);
    let mut args = args!["RQ.MENQUEUE", "q", "JOBS", 50];
    args.extend((0..50_u8).map(|number| vec![number; 200_000]));
    server.client().run(args);
    let all = jobs(&waiter.read());
    assert_eq!(all.len(), 50);
    for (number, job) in all.iter().enumerate() {
        assert!(job.payload.len() == 200_000 && job.payload.iter().all(|byte| usize::from(*byte) == number));
    }
}

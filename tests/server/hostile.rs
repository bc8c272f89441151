//! Bytes that mean harm: through `RESTORE`, through an AOF, and by clients that say `RQ.APPLY`. What is taken is a whole
//! queue, what is not is an error, and neither takes much more memory than it has bytes.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use crate::common::*;
use crate::{args, cmd, refused, tests};

pub const TESTS: &[Test] = tests![
    hostile_restores,
    false_lengths_take_no_memory,
    hostile_aofs,
    an_aof_that_ends_early,
    apply_is_not_for_clients
];

/// What a test of the core wrote: see `src/queue/tests/formats.rs`.
pub fn golden(name: &str) -> Vec<u8> {
    let path: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "src", "queue", "tests", "golden", name].iter().collect();
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The chunks of a golden queue, each behind its length as four bytes.
pub fn golden_chunks() -> Vec<Vec<u8>> {
    let file = golden("queue_v1.bin");
    let mut rest = file.as_slice();
    let mut chunks = Vec::new();
    while let Some((length, behind)) = rest.split_first_chunk::<4>() {
        let (chunk, behind) = behind.split_at(u32::from_le_bytes(*length) as usize);
        chunks.push(chunk.to_vec());
        rest = behind;
    }
    chunks
}

/// A message for `RQ.APPLY` that carries a chunk; without one, the message that ends them.
fn chunk_message(chunk: Option<&[u8]>) -> Vec<u8> {
    chunk.map_or(vec![19], |chunk| [&[18], chunk].concat())
}

/// How a dump of a queue begins: what it is (7: a module's value), and the name and version of the type in nine bytes.
pub const DUMP_HEAD: usize = 10;

/// What `DUMP` gives for these chunks, but for the head: each a string, an empty one behind them, the end.
pub fn dump_body(chunks: &[Vec<u8>]) -> Vec<u8> {
    let mut body = Vec::new();
    for chunk in chunks.iter().map(Vec::as_slice).chain([[].as_slice()]) {
        // A string of this length follows.
        body.extend([5, 0x80]);
        body.extend(u32::try_from(chunk.len()).unwrap().to_be_bytes());
        body.extend(chunk);
    }
    body.push(0);
    body
}

/// With the version of RDB that every server since 7.0 reads, and a checksum that is right whatever it is the sum of: so
/// the bytes reach the module.
pub fn sign(mut dump: Vec<u8>) -> Vec<u8> {
    dump.extend(10_u16.to_le_bytes());
    let sum = crc64(&dump);
    dump.extend(sum.to_le_bytes());
    dump
}

/// The CRC-64 of Redis (Jones), bit by bit.
fn crc64(bytes: &[u8]) -> u64 {
    let mut crc = 0_u64;
    for byte in bytes {
        crc ^= u64::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x95ac_9329_ac4b_c9b5 } else { crc >> 1 };
        }
    }
    crc
}

/// The head of a dump, as this server writes it.
pub fn dump_head(c: &mut Client) -> Vec<u8> {
    cmd!(c, "RQ.QUEUE.SET", "head", "LEASE", 1);
    let head = cmd!(c, "DUMP", "head").bytes()[..DUMP_HEAD].to_vec();
    cmd!(c, "DEL", "head");
    head
}

/// What `length` bytes may take while they become a queue, on top of those bytes themselves.
const fn allowance(length: usize) -> i64 {
    (4 << 20) + 200 * length as i64
}

/// Fails if the process had more memory at once, since it had `before`, than it may for values of this length.
fn assert_within(server: &Server, before: Option<(i64, i64)>, length: usize) {
    let (Some((_, before)), Some((peak, _))) = (before, server.resident()) else { return };
    // The commands of one round wait in buffers, twice at most; and the allocator gives back what it likes.
    let bound = allowance(length) + 2 * 50 * (length as i64 + 400) + (8 << 20);
    assert!(peak - before < bound, "{} bytes were taken at once, not {bound} at most", peak - before);
}

/// Restores everything there is to try and uses what is taken; how much was refused, and how much was taken.
fn restore_all(c: &mut Client, dumps: impl Iterator<Item = Vec<u8>>) -> (usize, usize) {
    let (mut refused, mut taken) = (0, 0);
    let mut dumps = dumps.peekable();
    while dumps.peek().is_some() {
        let mut sent = 0;
        for dump in dumps.by_ref().take(50) {
            c.send(args!["RESTORE", "hostile", 0, sign(dump), "REPLACE"]);
            c.send(args!["RQ.CLAIM", "hostile", "w", "COUNT", 3]);
            c.send(args!["RQ.RECOVER", "hostile", "EXCEPT", 0]);
            c.send(args!["RQ.ENQUEUE", "hostile", "x"]);
            c.send(args!["RQ.STATS", "hostile"]);
            c.send(args!["DEL", "hostile"]);
            sent += 1;
        }
        for _ in 0..sent {
            match c.read() {
                Reply::Error(error) => {
                    assert_eq!(error.word(), "ERR", "{error:?}");
                    refused += 1;
                }
                _ => taken += 1,
            }
            for _ in 0..3 {
                c.read();
            }
            // There is a queue in any case, and it is whole.
            assert!(c.read().get("ready").int() >= 0);
            assert_eq!(c.read(), Reply::Int(1));
        }
    }
    (refused, taken)
}

/// Promise 10: each prefix of a golden queue, and each of its bytes flipped.
fn hostile_restores(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let head = dump_head(&mut c);
    let body = dump_body(&golden_chunks());
    let whole = [head, body].concat();
    assert_eq!(restore_all(&mut c, [whole.clone()].into_iter()), (0, 1), "unharmed, it is a queue");
    server.forget_peak();
    let before = server.resident();

    let prefixes = (0..whole.len()).map(|length| whole[..length].to_vec());
    assert_eq!(restore_all(&mut c, prefixes), (whole.len(), 0));
    let flips = (0..whole.len()).flat_map(|at| {
        [0x01, 0x80, 0xff].map(|flip| {
            let mut bytes = whole.clone();
            bytes[at] ^= flip;
            bytes
        })
    });
    let (refused, taken) = restore_all(&mut c, flips);
    // Payloads and most counters may be anything; what must agree with something else may not.
    assert!(refused > 2_000 && taken > 500, "{refused} refused, {taken} taken");
    assert_within(&server, before, whole.len());
}

/// A number that says how much follows, and is a lie, makes nobody set room aside.
fn false_lengths_take_no_memory(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let head = dump_head(&mut c);
    let chunks = golden_chunks();
    server.forget_peak();
    let before = server.resident();
    let mut lies = Vec::new();
    for (number, chunk) in chunks.iter().enumerate() {
        // 2^63 - 1, 2^32 - 1, and 2^24, as the codec writes numbers.
        for lie in [
            &[253, 255, 255, 255, 255, 255, 255, 255, 127][..],
            &[252, 255, 255, 255, 255],
            &[252, 0, 0, 0, 1],
        ] {
            for at in 1..chunk.len() {
                let mut chunks = chunks.clone();
                chunks[number] = [&chunk[..at], lie, &chunk[at + 1..]].concat();
                lies.push([head.clone(), dump_body(&chunks)].concat());
            }
        }
    }
    let length = lies.iter().map(Vec::len).max().unwrap();
    let (refused, taken) = restore_all(&mut c, lies.into_iter());
    assert!(refused > 2_000, "{refused} refused, {taken} taken");
    assert_within(&server, before, length);
}

/// Lets the server's own tool look at an AOF, as operators do before they trust one.
fn assert_clean(server: &Server, path: &std::path::Path) {
    // The server is the tool too, if it is called so.
    let tool = server.binary().with_file_name("redis-check-aof");
    let binary = if tool.exists() { &tool } else { server.binary() };
    let output = Command::new(binary).arg0("redis-check-aof").arg(path).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("is valid"), "{text}");
}

/// Makes these commands the server's AOF.
pub fn lay_aof(server: &Server, commands: &[Vec<Vec<u8>>]) {
    let _ = fs::remove_dir_all(server.dir.join("appendonlydir"));
    let path = server.dir.join("appendonly.aof");
    fs::write(&path, commands.iter().flat_map(|command| encode(command)).collect::<Vec<u8>>()).unwrap();
    assert_clean(server, &path);
}

/// A server that was never started with an AOF and is about to be.
pub fn server_before_its_aof(lab: &Lab) -> Server {
    // As it is outside of tests: what goes wrong while the AOF is loaded does not end the server by itself.
    let mut server = lab.server_with(&[("propagation-error-behavior", "ignore")]);
    server.kill9();
    server.configure("appendonly", "yes");
    server
}

fn hostile_aofs(lab: &Lab) {
    let mut server = server_before_its_aof(lab);
    let create = golden("create_v1.bin");
    let apply = |message: &[u8]| args!["RQ.APPLY", "q", message];
    let set = args!["SET", "other", "kept"];

    // In order: the server starts, and the queue is there.
    let ops =
        ["clock", "sweep", "claim", "claim_lease", "register", "undo", "recover", "recover_before", "forget"];
    let mut commands = vec![set.clone(), apply(&create)];
    commands.extend(ops.map(|op| apply(&golden(&format!("op_v1_{op}.bin")))));
    lay_aof(&server, &commands);
    server.try_restart().unwrap_or_else(|log| panic!("golden ops were refused:\n{log}"));
    let mut c = server.client();
    assert_eq!(cmd!(c, "RQ.STATS", "q").get("ready").int(), 0);
    let names: Vec<_> =
        workers(&mut c, "q").iter().map(|worker| worker.get("name").bytes().to_vec()).collect();
    assert_eq!(names, [b"\0\xff".to_vec(), b"host:7:x".to_vec()], "the others were forgotten");
    server.kill9();

    // A queue in chunks, as a rewritten AOF has it.
    let chunks = golden_chunks();
    let whole: Vec<Vec<u8>> = chunks.iter().map(|chunk| chunk_message(Some(chunk))).collect();
    let end = chunk_message(None);
    let mut commands = vec![set.clone()];
    commands.extend(whole.iter().map(|message| apply(message)));
    commands.push(apply(&end));
    lay_aof(&server, &commands);
    server.try_restart().unwrap_or_else(|log| panic!("golden chunks were refused:\n{log}"));
    assert!(cmd!(server.client(), "RQ.STATS", "q").get("done").int() > 0);
    server.kill9();

    let huge = [253, 255, 255, 255, 255, 255, 255, 255, 127];
    let mut later = chunks[0].clone();
    later[0] = 99;
    let mut cut_record = whole.last().unwrap().clone();
    cut_record.truncate(cut_record.len() - 1);
    let cases: Vec<(&str, Vec<Vec<u8>>)> = vec![
        ("nothing", vec![vec![]]),
        ("a message of a later version", vec![vec![20]]),
        ("noise", vec![vec![0xff; 1_000]]),
        ("half a creation", vec![create[..create.len() / 2].to_vec()]),
        ("a creation with more behind it", vec![[create.as_slice(), &[0]].concat()]),
        ("an op without a queue", vec![golden("op_v1_sweep.bin")]),
        ("an op of a later version", vec![create.clone(), vec![16, 99]]),
        ("a huge count", vec![create.clone(), [&[16, 1], huge.as_slice()].concat()]),
        ("names without end", vec![create.clone(), [&[16, 6], huge.as_slice()].concat()]),
        ("an empty chunk", vec![chunk_message(Some(b""))]),
        ("a chunk of a later version", vec![chunk_message(Some(&later))]),
        ("an end without a beginning", vec![end.clone()]),
        ("an end too early", vec![whole[0].clone(), end.clone()]),
        ("a chunk twice", [whole.as_slice(), &[whole.last().unwrap().clone(), end.clone()]].concat()),
        ("half a record", [&whole[..whole.len() - 1], &[cut_record, end.clone()]].concat()),
    ];
    for (what, messages) in cases {
        let mut commands = vec![set.clone()];
        commands.extend(messages.iter().map(|message| apply(message)));
        lay_aof(&server, &commands);
        let before = server.log().len();
        assert!(server.try_restart().is_err(), "{what}: the server started, as if nothing was amiss");
        let log = server.log()[before..].to_string();
        assert!(log.contains("the AOF is damaged: not starting"), "{what}:\n{log}");
    }
}

/// The last file of an AOF may end anywhere: what is there is loaded. A queue of which the end is missing is not, and the
/// log says so.
fn an_aof_that_ends_early(lab: &Lab) {
    let mut server = server_before_its_aof(lab);
    let mut commands = vec![args!["SET", "other", "kept"]];
    commands.extend(golden_chunks().iter().map(|chunk| args!["RQ.APPLY", "q", chunk_message(Some(chunk))]));
    lay_aof(&server, &commands);
    server.try_restart().unwrap_or_else(|log| panic!("the AOF was refused:\n{log}"));
    let mut c = server.client();
    assert_eq!(cmd!(c, "GET", "other").text(), "kept");
    assert_eq!(cmd!(c, "EXISTS", "q").int(), 0);
    assert!(server.log().contains("the AOF ends in the middle of a queue"), "{}", server.log());
}

/// `RQ.APPLY` carries what a primary decided. A client that says it is refused, whatever it says and wherever.
fn apply_is_not_for_clients(lab: &Lab) {
    let primary = lab.server();
    let replica = lab.replica_with(&primary, &[("replica-read-only", "no")]);
    let mut c = primary.client();
    enqueue(&mut c, "q", "x");
    primary.wait_for_sync(&replica);
    cmd!(
        c,
        "FUNCTION",
        "LOAD",
        "#!lua name=f\nredis.register_function('f', function(k, a) return redis.call('RQ.APPLY', k[1], a[1]) end)"
    );
    primary.wait_for_sync(&replica);
    let before = primary.digest("q");
    // All of them would do, from the right mouth.
    let messages = ["create_v1.bin", "op_v1_clock.bin", "op_v1_claim.bin", "op_v1_register.bin"].map(golden);
    let try_all = |server: &Server| {
        for mut c in [server.client(), server.client3()] {
            for message in &messages {
                for queue in ["q", "none"] {
                    assert_eq!(refused!(c, "RQ.APPLY", queue, message), "ERR");
                    let script = "return redis.call('RQ.APPLY', KEYS[1], ARGV[1])";
                    assert_eq!(refused!(c, "EVAL", script, 1, queue, message), "ERR");
                    assert_eq!(refused!(c, "FCALL", "f", 1, queue, message), "ERR");
                    cmd!(c, "MULTI");
                    cmd!(c, "RQ.APPLY", queue, message);
                    cmd!(c, "PING");
                    let outcome = cmd!(c, "EXEC");
                    assert_eq!(outcome.list()[0].error().word(), "ERR");
                    assert_eq!(cmd!(c, "EXISTS", "none").int(), 0);
                    assert_eq!(server.digest("q"), before);
                }
            }
        }
    };
    try_all(&primary);
    // On a replica, with its primary and without, even if clients may write there.
    try_all(&replica);
    drop(primary);
    until("the link is down", || replica.info("master_link_status") == "down");
    try_all(&replica);
    cmd!(replica.client(), "REPLICAOF", "NO", "ONE");
    try_all(&replica);
}

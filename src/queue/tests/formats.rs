//! Bytes: what is written can be read for ever, and nothing that is read does harm.
//!
//! `golden/` holds what each version wrote. `RQ_GOLDEN=1` writes the files anew. That is for a version that
//! is not released yet; the files of one that is are never changed, what differs is a new version.

use std::panic::catch_unwind;
use std::path::PathBuf;

use super::harness::{Chunks, load, save};
use super::memory::peak_of;
use super::random::Random;
use super::targets::{self, allowance};
use crate::persist::{self, Message};
use crate::queue::limits::{CHUNK_JOBS_MAX, DURATION_MS_MAX};
use crate::queue::{
    Backoff, Claim, Delivery, Effects, Enqueue, Failure, GroupDefaults, GroupName, GroupPatch, Id, IfExists,
    JobOptions, Op, Outcome, Payloads, Queue, Rate, Recover, Scope, Serial, Settings, SettingsPatch, Stamp,
    State, TenantPatch, Unique, Until, When, Who,
};

const CLOCK: Stamp =
    Stamp { now: 1_000_000, wall: 1_700_000_000_000, serial: Serial(1_700_000_000_000 << 20) };

fn settings() -> Settings {
    Settings {
        lease: 30_000,
        attempts: Some(3),
        crashes: None,
        backoff: Backoff { base: 250, max: 65_536 },
        ttl: Some(0),
        result_ttl: Some(DURATION_MS_MAX),
        dead_ttl: None,
        keep_done: Some(100),
        keep_dead: Some(u64::from(u32::MAX)),
        max_len: Some(1_000_000),
        max_output: 65_536,
        worker_ttl: Some(251),
        concurrency: Some(1_000),
        rate: Some(Rate { count: 1_000, period: 1_000, burst: 2_000 }),
        group: GroupDefaults { concurrency: Some(70_000), ..GroupDefaults::default() },
    }
}

fn run(queue: &mut Queue, op: &Op<'_>) -> Outcome {
    queue.apply(op, &mut Effects::default()).unwrap()
}

fn enqueue<'a>(payload: &'a [u8], id: Option<&'a [u8]>, when: Option<When>, options: JobOptions) -> Op<'a> {
    let id = id.map(|id| (id, IfExists::Refuse));
    Op::Enqueue(Enqueue {
        payloads: Payloads::One(payload),
        id,
        unique: None,
        group: GroupName::default(),
        when,
        priority: 0,
        options,
    })
}

/// A queue with jobs in every state, and in each with little and with much to keep.
fn sample() -> Queue {
    let mut queue = Queue::new(settings(), CLOCK);
    let queue_ref = &mut queue;
    let all_options = JobOptions {
        attempts: Some(Some(5)),
        crashes: Some(None),
        backoff: Some(Backoff { base: 0, max: DURATION_MS_MAX }),
        lease: Some(70_000),
        ttl: Some(Some(5_000)),
        deadline: Some(1 << 32),
    };
    let plain = JobOptions::default();
    let every_byte: Vec<u8> = (0..=255).collect();
    let claim = |queue: &mut Queue, worker: &'static [u8]| {
        let mut fx = Effects::default();
        queue.apply(&Op::Claim(Claim { worker, count: 1, lease: None }), &mut fx).unwrap();
        queue.job(fx.claimed[0]).unwrap().token()
    };

    // An endpoint that is down, one that rests, and one that is paused.
    let group = |group: &'static [u8]| GroupName { tenant: b"tenant", group };
    let (down, resting, paused) = (group(b"down"), group(b"resting"), group(b"\0\xff"));
    let patch = TenantPatch { weight: Some(300), concurrency: Some(Some(50)), rate: None };
    run(queue_ref, &Op::SetTenant { name: b"tenant", patch });
    let patch = GroupPatch {
        concurrency: Some(Some(Some(4))),
        rate: Some(Some(Some(Rate { count: 5, period: 60_000, burst: 9 }))),
        backoff: Some(Some(Backoff { base: 3_600_000, max: DURATION_MS_MAX })),
        ordered: Some(Some(false)),
    };
    run(queue_ref, &Op::SetGroup { name: down, patch });
    for (group, how) in [(down, Failure::Unavailable), (resting, Failure::Throttled(3_600_000))] {
        let Op::Enqueue(enqueue) = enqueue(b"request", None, None, plain) else { unreachable!() };
        let outcome = run(queue_ref, &Op::Enqueue(Enqueue { group, ..enqueue }));
        let Outcome::Enqueued { first, .. } = outcome else { panic!("{outcome:?}") };
        let delivery = Delivery { id: Id::Serial(first), token: claim(queue_ref, b"w1") };
        run(queue_ref, &Op::Fail { delivery, error: Some(b"503"), how });
    }
    run(queue_ref, &Op::Pause { scope: Scope::Group(paused), length: None });
    run(queue_ref, &Op::Pause { scope: Scope::Tenant(b"another"), length: Some(1 << 20) });

    // Seven lives that ended, or go on, in as many ways.
    let fates: [(&[u8], JobOptions); 7] = [
        // The first, since time passes in it.
        (b"lapsed", JobOptions { crashes: Some(Some(3)), ..plain }),
        (b"done", plain),
        (b"done with nothing", JobOptions { ttl: Some(None), ..plain }),
        (b"dead", all_options),
        (b"cancelled", all_options),
        (b"retry", all_options),
        (b"told to stop", plain),
    ];
    for (name, options) in fates {
        run(queue_ref, &enqueue(name, Some(name), None, options));
        let delivery = Delivery { id: Id::Custom(name), token: claim(queue_ref, b"w1") };
        match name {
            b"done" => {
                for chunk in [&every_byte[..], b"", &[b'x'; 300], b"a", b"b"] {
                    run(queue_ref, &Op::Emit { delivery, chunk });
                }
                run(queue_ref, &Op::Ack { delivery, result: Some(&every_byte), ttl: None })
            }
            b"done with nothing" => run(queue_ref, &Op::Ack { delivery, result: None, ttl: None }),
            b"dead" => {
                run(queue_ref, &Op::Fail { delivery, error: Some(b"no such file"), how: Failure::Dead })
            }
            b"cancelled" => {
                run(queue_ref, &Op::Cancel { ids: vec![delivery.id] });
                run(queue_ref, &Op::Ack { delivery, result: Some(b"dropped"), ttl: None })
            }
            b"retry" => {
                run(queue_ref, &Op::Progress { delivery, value: b"half" });
                run(queue_ref, &Op::Fail { delivery, error: Some(b"busy"), how: Failure::RetryAfter(60_000) })
            }
            b"lapsed" => {
                // Twice, so that it waits for its back-off and keeps its place.
                run(
                    queue_ref,
                    &Op::Recover(Recover {
                        who: Who::Named(vec![b"w1"]),
                        before: None,
                        count: 9,
                        counted: true,
                    }),
                );
                claim(queue_ref, b"w2");
                let clock = Stamp {
                    now: CLOCK.now + 40_000,
                    wall: CLOCK.wall + 40_001,
                    serial: queue_ref.last_serial(),
                };
                run(queue_ref, &Op::Clock(clock));
                run(queue_ref, &Op::Sweep { limit: 10 })
            }
            _ => {
                run(queue_ref, &Op::Emit { delivery, chunk: b"half" });
                run(queue_ref, &Op::Cancel { ids: vec![delivery.id] })
            }
        };
    }
    run(queue_ref, &enqueue(b"", None, None, plain));
    let token = claim(queue_ref, b"\0\xff\r\n");
    assert!(token > Serial::NONE);
    run(queue_ref, &enqueue(&every_byte, Some(&[b'x'; 512]), None, all_options));
    run(queue_ref, &enqueue(b"later", None, Some(When::Delay(250)), plain));
    run(queue_ref, &enqueue(b"much later", None, Some(When::Delay(DURATION_MS_MAX)), plain));
    run(queue_ref, &enqueue(b"at", None, Some(When::At(CLOCK.wall + (1 << 33))), plain));
    let urgent = Enqueue {
        payloads: Payloads::Many(vec![b"urgent", b"urgent too"]),
        id: None,
        unique: None,
        group: GroupName { tenant: b"", group: b"endpoint" },
        when: None,
        priority: 255,
        options: plain,
    };
    run(queue_ref, &Op::Enqueue(urgent));
    for (key, until, window) in [
        (&b"user:7"[..], Until::Finished, None),
        (b"\0\xff", Until::Started, Some(60_000)),
        (&[b'k'; 512], Until::Finished, Some(DURATION_MS_MAX)),
    ] {
        let unique = Some(Box::new(Unique { key, until, window, debounce: false }));
        let Op::Enqueue(plain) = enqueue(b"one at a time", None, None, plain) else { unreachable!() };
        run(queue_ref, &Op::Enqueue(Enqueue { unique, ..plain }));
    }
    run(queue_ref, &Op::Pause { scope: Scope::Queue, length: Some(65_535) });
    for state in State::ALL {
        assert!(queue.count(state) > 0, "a sample without {}", state.name());
    }
    queue
}

/// Every kind of op that travels, small and large.
fn ops() -> Vec<(&'static str, Op<'static>)> {
    let custom = Delivery { id: Id::Custom(b"\0order"), token: Serial(1_700_000_000_000 << 20 | 3) };
    let serial = Delivery { id: Id::Serial(Serial(1_700_000_000_000 << 20 | 1)), token: Serial(252) };
    vec![
        ("clock", Op::Clock(CLOCK)),
        ("sweep", Op::Sweep { limit: 1_000 }),
        ("claim", Op::Claim(Claim { worker: b"w1", count: 1, lease: None })),
        ("claim_lease", Op::Claim(Claim { worker: b"\0\xff", count: 1_000, lease: Some(DURATION_MS_MAX) })),
        ("register", Op::Register { worker: b"host:7:x" }),
        ("undo", Op::Undo { grants: vec![custom, serial] }),
        (
            "recover",
            Op::Recover(Recover {
                who: Who::Named(vec![b"w1", b"w2"]),
                before: None,
                count: 1_000,
                counted: true,
            }),
        ),
        (
            "recover_before",
            Op::Recover(Recover {
                who: Who::Named(vec![b"w1"]),
                before: Some(CLOCK.wall),
                count: 1,
                counted: false,
            }),
        ),
        ("forget", Op::Forget { workers: vec![b"w1", b"", b"w2"] }),
    ]
}

fn golden(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "src", "queue", "tests", "golden", name].iter().collect()
}

/// The golden bytes of that name; writes `bytes` first if that is wanted.
fn golden_bytes(name: &str, bytes: &[u8]) -> Vec<u8> {
    let path = golden(name);
    if std::env::var_os("RQ_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
    }
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}; RQ_GOLDEN=1 writes it", path.display()))
}

/// Chunks in one file.
fn join(chunks: &Chunks) -> Vec<u8> {
    targets::join(chunks.iter().map(Vec::as_slice))
}

fn split(file: &[u8]) -> Chunks {
    targets::split(file).into_iter().map(<[u8]>::to_vec).collect()
}

#[test]
fn golden_queues_load_and_are_written_the_same() {
    for (name, queue) in
        [("queue_v1.bin", sample()), ("empty_queue_v1.bin", Queue::new(Settings::default(), CLOCK))]
    {
        let written = save(&queue);
        let file = golden_bytes(name, &join(&written));
        let loaded = load(&split(&file)).unwrap_or_else(|error| panic!("{name} does not load: {error}"));
        assert!(save(&loaded) == written, "{name}: what was loaded is not the queue that was saved");
        assert!(join(&written) == file, "{name}: other bytes are written today");
    }
}

#[test]
fn golden_ops_are_read_and_written_the_same() {
    for (name, op) in ops() {
        let written = persist::encode_op(&op).unwrap_or_else(|| panic!("{name} does not travel"));
        let file = golden_bytes(&format!("op_v1_{name}.bin"), &written);
        match persist::decode(&file) {
            Ok(Message::Op(read)) => assert_eq!(read, op, "{name}"),
            other => panic!("{name} is read as {other:?}"),
        }
        assert_eq!(written, file, "{name}: other bytes are written today");
    }
    let written = persist::encode_create(&settings(), CLOCK);
    let file = golden_bytes("create_v1.bin", &written);
    assert_eq!(written, file);
    match persist::decode(&file) {
        Ok(Message::Create { settings: read, stamp }) => assert_eq!((read, stamp), (settings(), CLOCK)),
        other => panic!("a creation is read as {other:?}"),
    }
}

#[test]
fn chunks_travel_as_messages() {
    for chunk in save(&sample()) {
        let message = persist::encode_chunk(&chunk);
        assert!(matches!(persist::decode(&message), Ok(Message::Chunk(read)) if read == chunk));
    }
    assert!(matches!(persist::decode(&persist::encode_end()), Ok(Message::End)));
}

#[test]
fn user_commands_travel_as_themselves() {
    let delivery = Delivery { id: Id::Serial(Serial(7)), token: Serial(8) };
    for op in [
        enqueue(b"", None, None, JobOptions::default()),
        Op::Ack { delivery, result: None, ttl: None },
        Op::Fail { delivery, error: None, how: Failure::Retry },
        Op::Set(SettingsPatch::default()),
        Op::Resume { scope: Scope::Queue },
    ] {
        assert_eq!(persist::encode_op(&op), None, "{op:?}");
    }
}

/// A queue's jobs as they are saved, with some bytes of them put in place of others.
fn forged(queue: &Queue, bytes: &[u8], by: &[u8]) -> Result<Queue, String> {
    let mut chunks = save(queue);
    let jobs = chunks.last_mut().unwrap();
    let at = jobs.windows(bytes.len()).position(|window| window == bytes).expect("it is there");
    jobs.splice(at..at + bytes.len(), by.iter().copied());
    load(&chunks)
}

#[test]
fn no_two_jobs_have_the_same_key() {
    let mut queue = Queue::new(Settings::default(), CLOCK);
    for (key, window) in [(&b"key-1"[..], None), (b"key-2", Some(60_000))] {
        let unique = Some(Box::new(Unique { key, until: Until::Finished, window, debounce: false }));
        let Op::Enqueue(plain) = enqueue(b"p", None, None, JobOptions::default()) else { unreachable!() };
        run(&mut queue, &Op::Enqueue(Enqueue { unique, ..plain }));
    }
    let says = |bytes: &[u8], by: &[u8]| forged(&queue, bytes, by).map(|_| ());
    assert_eq!(says(b"key-1", b"key-3"), Ok(()));
    for (bytes, by, text) in [
        (&b"\x05key-1"[..], &b"\x05key-2"[..], "a key is there twice"),
        (b"\x05key-1", b"\0", "the length of a key"),
        (b"\x05key-1\x01", b"\x05key-1\x02", "an unknown end of a lock"),
        // 2^62: longer than any duration.
        (b"key-2\x01\x01\xfb\x60\xea", b"key-2\x01\x01\xfd\0\0\0\0\0\0\0\x40", "duration"),
    ] {
        let error = says(bytes, by).unwrap_err();
        assert!(error.contains(text), "{} for {}: {error}", by.escape_ascii(), bytes.escape_ascii());
    }
    // Ended, and it would be gone within its window.
    let last = Id::Serial(queue.last_serial());
    run(&mut queue, &Op::Cancel { ids: vec![last] });
    let window = |ms: u16| [&b"key-2\x01\x01\xfb"[..], &ms.to_le_bytes()].concat();
    assert!(forged(&queue, &window(60_000), &window(59_999)).is_ok());
    let longer = [&b"key-2\x01\x01\xfc"[..], &4_000_000_u32.to_le_bytes()].concat();
    let error = forged(&queue, &window(60_000), &longer).unwrap_err();
    assert!(error.contains("I14"), "{error}");
}

#[test]
fn many_and_large_jobs_take_several_chunks() {
    let mut queue = Queue::new(Settings::default(), CLOCK);
    let payload = vec![0xA5; 1_000_000];
    for n in 0..CHUNK_JOBS_MAX as u64 * 2 + 500 {
        let priority = (n % 7) as u8;
        let payloads = Payloads::One(if n % 900 == 0 { &payload } else { b"small" });
        let id = format!("job {n}");
        let id = (n % 3 == 0).then_some((id.as_bytes(), IfExists::Refuse));
        run(
            &mut queue,
            &Op::Enqueue(Enqueue {
                payloads,
                id,
                unique: None,
                group: GroupName::default(),
                when: None,
                priority,
                options: JobOptions::default(),
            }),
        );
    }
    let chunks = save(&queue);
    assert!(chunks.len() > 3, "{} chunks", chunks.len());
    let loaded = load(&chunks).unwrap();
    assert!(save(&loaded) == chunks);
    assert_eq!(loaded.waiting(), queue.waiting());
}

#[test]
fn every_prefix_is_refused() {
    let chunks = save(&sample());
    for last in 0..chunks.len() {
        for length in 0..chunks[last].len() {
            let mut cut = chunks[..=last].to_vec();
            cut[last].truncate(length);
            assert!(load(&cut).is_err(), "chunk {last} cut to {length} bytes was taken");
        }
        assert!(load(&chunks[..last].to_vec()).is_err(), "{last} of {} chunks were taken", chunks.len());
    }
    for (name, op) in ops() {
        let message = persist::encode_op(&op).unwrap();
        for length in 0..message.len() {
            assert!(persist::decode(&message[..length]).is_err(), "{name} cut to {length} bytes was read");
        }
    }
    let message = persist::encode_create(&settings(), CLOCK);
    for length in 0..message.len() {
        assert!(persist::decode(&message[..length]).is_err(), "a creation cut to {length} bytes was read");
    }
}

#[test]
fn bytes_behind_the_end_are_refused() {
    let mut chunks = save(&sample());
    let whole = chunks.clone();
    for at in 0..chunks.len() {
        chunks[at].push(0);
        assert!(load(&chunks).is_err(), "a byte behind chunk {at} was taken");
        chunks[at].pop();
        let mut twice = whole.clone();
        twice.insert(at, whole[at].clone());
        assert!(load(&twice).is_err(), "chunk {at} was taken twice");
    }
    chunks.reverse();
    assert!(load(&chunks).is_err(), "chunks were taken in the wrong order");
    for (name, op) in ops() {
        let mut message = persist::encode_op(&op).unwrap();
        message.push(0);
        assert!(persist::decode(&message).is_err(), "{name} with a byte behind it was read");
    }
}

/// Loads what may be anything. What loads is used as if it were a good queue.
fn survive(chunks: &Chunks, what: &str) -> bool {
    let file = targets::join(chunks.iter().map(Vec::as_slice));
    match catch_unwind(|| targets::value(&file)) {
        Ok(loaded) => loaded,
        Err(_) => panic!("{what}: see above"),
    }
}

#[test]
fn every_flipped_byte_is_refused_or_harmless() {
    let chunks = save(&sample());
    let (mut refused, mut loaded) = (0, 0);
    for chunk in 0..chunks.len() {
        for byte in 0..chunks[chunk].len() {
            for value in [1, 2, 4, 8, 16, 32, 64, 128, 255].map(|mask| chunks[chunk][byte] ^ mask) {
                let mut flipped = chunks.clone();
                flipped[chunk][byte] = value;
                if survive(&flipped, &format!("chunk {chunk}, byte {byte} set to {value}")) {
                    loaded += 1
                } else {
                    refused += 1
                }
            }
        }
    }
    // Payloads, values and most counters may be anything; what must agree with something else may not.
    assert!(refused > 2_000 && loaded > 2_000, "{refused} refused, {loaded} loaded");
}

#[test]
fn mangled_bytes_are_refused_or_harmless() {
    let chunks = save(&sample());
    let mut random = Random::new(7);
    for round in 0..6_000 {
        let mut mangled = chunks.clone();
        for _ in 0..random.between(1, 3) {
            let chunk = random.index(mangled.len());
            let bytes = &mut mangled[chunk];
            let at = random.index(bytes.len() + 1);
            match random.below(5) {
                0 => bytes.truncate(at),
                1 => bytes.insert(at, random.next() as u8),
                // The prefixes of numbers of 2, 4 and 8 bytes: lengths and instants out of all bounds.
                2 => drop(bytes.splice(at..at, [253, 255, 255, 255, 255, 255, 255, 255, 255])),
                3 if at + 9 <= bytes.len() => {
                    bytes[at..at + 9].copy_from_slice(&[253, 255, 255, 255, 255, 255, 255, 255, 127])
                }
                _ if at < bytes.len() => bytes[at] = *random.pick(&[0, 1, 250, 251, 252, 253, 254, 255]),
                _ => {}
            }
        }
        survive(&mangled, &format!("round {round}"));
    }
}

#[test]
fn false_lengths_take_no_memory() {
    // An empty queue ends with the number of its workers.
    let mut header = save(&Queue::new(Settings::default(), CLOCK));
    assert_eq!(header[0].pop(), Some(0));
    header[0].extend([253, 255, 255, 255, 255, 255, 255, 255, 127]);
    assert!(!survive(&header, "more workers than there are atoms"));
    let huge = [253, 255, 255, 255, 255, 255, 255, 255, 127];
    for (name, op) in ops() {
        let message = persist::encode_op(&op).unwrap();
        for at in 1..message.len() {
            let mangled = [&message[..at], &huge, &message[at + 1..]].concat();
            let (_, peak) = peak_of(|| persist::decode(&mangled).map(drop));
            assert!(peak <= allowance(mangled.len()), "{name}: {} bytes took {peak}", mangled.len());
        }
    }
}

#[test]
fn flipped_messages_are_refused_or_harmless() {
    for (name, op) in ops() {
        let message = persist::encode_op(&op).unwrap();
        for byte in 0..message.len() {
            for value in 0..=255 {
                let mut flipped = message.clone();
                flipped[byte] = value;
                let (decoded, peak) = peak_of(|| persist::decode(&flipped));
                assert!(peak <= allowance(flipped.len()), "{name}: {} bytes took {peak}", flipped.len());
                if let Ok(Message::Op(op)) = decoded {
                    let mut queue = sample();
                    let _ = queue.apply(&op, &mut Effects::default());
                    let _ = queue.next_wakeup();
                    queue.audit().unwrap_or_else(|error| panic!("{name}: after {op:?}: {error}"));
                    let saved = save(&queue);
                    load(&saved)
                        .unwrap_or_else(|error| panic!("{name}: after {op:?} it does not load: {error}"));
                }
            }
        }
    }
}

#[test]
fn nothing_is_not_a_queue() {
    assert!(load(&vec![]).is_err());
    assert!(load(&vec![vec![]]).is_err());
    assert!(persist::decode(&[]).is_err());
    for first in 0..=255 {
        assert!(load(&vec![vec![first]]).is_err(), "a chunk of the one byte {first}");
        let _ = persist::decode(&[first]);
    }
}

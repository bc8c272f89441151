//! `RQ.EMIT` and `RQ.READ`: what a worker puts out, followed live and from the start.

use std::time::Instant;

use crate::common::*;
use crate::{args, cmd, refused, send, tests};

pub const TESTS: &[Test] = tests![
    chunks_come_live,
    who_comes_late_reads_from_the_start,
    many_readers_each_at_its_place,
    a_crowd_is_told_in_slices,
    a_slow_reader_goes_page_by_page,
    large_chunks_come_in_bounded_replies,
    readers_are_told_of_the_next_run,
    a_killed_worker_ends_its_run,
    a_reader_never_hangs,
    every_end_is_told,
    waits_end_in_time,
    no_waits_inside_of_a_unit,
    a_reader_of_a_restored_queue_reads_on,
    what_is_refused,
    outputs_are_capped_exactly,
    chunks_are_capped_exactly,
    at_maxmemory_jobs_end_without_output,
    a_large_result_after_many_chunks,
    bytes_of_any_value,
    the_same_on_every_server,
    a_replica_is_read_and_promoted,
    memory_comes_back,
];

/// A lease that no test outlasts.
const LONG: u64 = 3_600_000;

/// What `RQ.READ` replies.
#[derive(Clone, Debug, PartialEq)]
struct Part {
    next: String,
    chunks: Vec<Vec<u8>>,
    run: i64,
    ended: Option<String>,
}

impl Part {
    #[track_caller]
    fn of(reply: &Reply) -> Self {
        let parts = reply.list();
        assert_eq!(parts.len(), 4, "{reply:?}");
        Self {
            next: parts[0].text(),
            chunks: parts[1].list().iter().map(|chunk| chunk.bytes().to_vec()).collect(),
            run: parts[2].int(),
            ended: (!parts[3].is_nil()).then(|| parts[3].text()),
        }
    }

    fn new(next: &str, chunks: &[&str], run: i64, ended: Option<&str>) -> Self {
        let chunks = chunks.iter().map(|chunk| chunk.as_bytes().to_vec()).collect();
        Self { next: next.into(), chunks, run, ended: ended.map(String::from) }
    }
}

/// What is there from a position on.
#[track_caller]
fn read(c: &mut Client, id: impl ToArg, from: &str) -> Part {
    Part::of(&cmd!(c, "RQ.READ", "q", id, "FROM", from))
}

#[track_caller]
fn emit(c: &mut Client, job: &Job, chunk: impl ToArg) {
    assert_eq!(cmd!(c, "RQ.EMIT", "q", job.id, job.token, chunk).text(), "ok");
}

/// Makes a job and claims it.
#[track_caller]
fn running(c: &mut Client) -> Job {
    enqueue(c, "q", "x");
    claim_for(c, "q", "w", LONG)
}

/// A reader that waits behind a position.
#[track_caller]
fn reader(server: &Server, id: impl ToArg, from: &str) -> Client {
    let before = server.info_number("blocked_clients");
    let mut client = server.client();
    send!(client, "RQ.READ", "q", id, "FROM", from, "BLOCK", 0);
    until("the reader waits", || server.info_number("blocked_clients") > before);
    client
}

fn chunks_come_live(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    for mut reader in [server.client(), server.client3()] {
        let id = enqueue(&mut c, "q", "x");
        // Before it runs, and before it has put out anything.
        assert_eq!(read(&mut c, &id, "0"), Part::new("1-0", &[], 1, None));
        send!(reader, "RQ.READ", "q", id, "BLOCK", 0);
        until_blocked(&server, 1);
        let job = claim_for(&mut c, "q", "w", LONG);
        cmd!(c, "RQ.PROGRESS", "q", id, job.token, "half");
        assert!(reader.read_within(ms(50)).is_none(), "neither is output");
        emit(&mut c, &job, "Once");
        assert_eq!(Part::of(&reader.read()), Part::new("1-1", &["Once"], 1, None));
        emit(&mut c, &job, " upon");
        // What is there needs no wait.
        let part = Part::of(&cmd!(reader, "RQ.READ", "q", id, "FROM", "1-1", "BLOCK", 0));
        assert_eq!(part, Part::new("1-2", &[" upon"], 1, None));
        for (number, chunk) in [" a", "", " time"].into_iter().enumerate() {
            send!(reader, "RQ.READ", "q", id, "FROM", format!("1-{}", number + 2), "BLOCK", 60_000);
            until_blocked(&server, 1);
            emit(&mut c, &job, chunk);
            let next = format!("1-{}", number + 3);
            assert_eq!(Part::of(&reader.read()), Part::new(&next, &[chunk], 1, None));
        }
        send!(reader, "RQ.READ", "q", id, "FROM", "1-5", "BLOCK", 0);
        until_blocked(&server, 1);
        cmd!(c, "RQ.ACK", "q", id, job.token, "RESULT", "r");
        assert_eq!(Part::of(&reader.read()), Part::new("1-5", &[], 1, Some("done")));
        // The end is there for whoever asks again.
        let part = Part::of(&cmd!(reader, "RQ.READ", "q", id, "FROM", "1-5", "BLOCK", 0));
        assert_eq!(part, Part::new("1-5", &[], 1, Some("done")));
        let map = crate::common::job(&mut c, "q", &id).unwrap();
        assert_eq!((map["output"].int(), map["output-bytes"].int()), (5, 16));
    }
}

fn who_comes_late_reads_from_the_start(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let job = running(&mut c);
    for chunk in ["a", "b", "c"] {
        emit(&mut c, &job, chunk);
    }
    let all = Part::new("1-3", &["a", "b", "c"], 1, None);
    assert_eq!(Part::of(&cmd!(c, "RQ.READ", "q", job.id, "BLOCK", 0)), all);
    assert_eq!(read(&mut c, &job.id, "2"), Part::new("1-3", &["c"], 1, None));
    // Done, without a result: kept like one.
    assert_eq!(ack(&mut c, "q", &job), 1);
    let all = Part { ended: Some("done".into()), ..all };
    assert_eq!(Part::of(&cmd!(c, "RQ.READ", "q", job.id)), all);
    let ttl = cmd!(c, "RQ.RESULT", "q", job.id).list()[2].int();
    assert!(ttl > 3_590_000, "RESULTTTL, an hour: {ttl}");
    // A place of a run that never was is the start.
    for from in ["0-1", "2-1", "9-99"] {
        assert_eq!(read(&mut c, &job.id, from), all);
    }
    assert_eq!(read(&mut c, &job.id, "1-99"), Part::new("1-99", &[], 1, Some("done")));
}

fn many_readers_each_at_its_place(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let (job, other) = (running(&mut c), running(&mut c));
    emit(&mut c, &job, "a");
    let mut readers: Vec<Client> = (0..50).map(|_| reader(&server, &job.id, "1-1")).collect();
    let mut ahead = reader(&server, &job.id, "1-2");
    let mut of_other = reader(&server, &other.id, "0");
    let mut result = server.client();
    send!(result, "RQ.RESULT", "q", job.id, "BLOCK", 0);
    until_blocked(&server, 53);
    emit(&mut c, &job, "b");
    for reader in &mut readers {
        assert_eq!(Part::of(&reader.read()), Part::new("1-2", &["b"], 1, None));
    }
    assert!(ahead.read_within(ms(20)).is_none() && of_other.read_within(ms(20)).is_none());
    emit(&mut c, &job, "c");
    assert_eq!(Part::of(&ahead.read()), Part::new("1-3", &["c"], 1, None));
    emit(&mut c, &other, "z");
    assert_eq!(Part::of(&of_other.read()), Part::new("1-1", &["z"], 1, None));
    assert!(result.read_within(ms(20)).is_none(), "chunks are not the end");
    ack(&mut c, "q", &job);
    assert_eq!(result.read().list()[0].text(), "done");
    until_blocked(&server, 0);
}

fn a_crowd_is_told_in_slices(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let job = running(&mut c);
    let mut crowd: Vec<Client> = (0..350).map(|_| server.client()).collect();
    for reader in &mut crowd {
        send!(reader, "RQ.READ", "q", job.id, "BLOCK", 0);
    }
    until_blocked(&server, 350);
    let calls = ["a", "b", "c"].map(|chunk| encode(&args!["RQ.EMIT", "q", job.id, job.token, chunk]));
    c.send_bytes(&calls.concat());
    for _ in 0..3 {
        assert_eq!(c.read().text(), "ok");
    }
    // Who is told later is told more, and nobody waits for ever or misses anything.
    for reader in &mut crowd {
        let part = Part::of(&reader.read());
        assert_eq!(part.chunks, [b"a", b"b", b"c"][..part.chunks.len()]);
        assert_eq!(part.next, format!("1-{}", part.chunks.len()));
        send!(reader, "RQ.READ", "q", job.id, "FROM", "1-3", "BLOCK", 0);
    }
    until_blocked(&server, 350);
    cmd!(c, "RQ.RELEASE", "q", job.id, job.token);
    for reader in &mut crowd {
        assert_eq!(Part::of(&reader.read()), Part::new("2-0", &[], 2, None));
        send!(reader, "RQ.READ", "q", job.id, "FROM", "2-0", "BLOCK", 0);
    }
    until_blocked(&server, 350);
    cmd!(c, "RENAME", "q", "r");
    for reader in &mut crowd {
        assert!(reader.read().is_nil());
    }
}

/// Ten thousand chunks, put out faster than they are read.
fn a_slow_reader_goes_page_by_page(lab: &Lab) {
    const CHUNKS: usize = 10_000;
    let server = lab.server();
    let (mut c, mut slow) = (server.client(), server.client());
    let job = running(&mut c);
    let (mut from, mut seen) = ("0".to_string(), Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..CHUNKS {
                emit(&mut c, &job, number);
            }
        });
        while seen.len() < CHUNKS {
            let reply = cmd!(slow, "RQ.READ", "q", job.id, "FROM", from, "COUNT", 300, "BLOCK", 0);
            let part = Part::of(&reply);
            assert!((1..=300).contains(&part.chunks.len()) && part.run == 1 && part.ended.is_none());
            from = part.next;
            seen.extend(part.chunks);
        }
    });
    let wanted: Vec<Vec<u8>> = (0..CHUNKS).map(|number| number.to_string().into_bytes()).collect();
    assert_eq!(seen, wanted);
    assert_eq!(Part::of(&cmd!(slow, "RQ.READ", "q", job.id)).chunks, wanted[..100], "100 if nothing is said");
    let page = Part::of(&cmd!(slow, "RQ.READ", "q", job.id, "FROM", 9_500, "COUNT", 1_000));
    assert_eq!((page.chunks.as_slice(), page.next.as_str()), (&wanted[9_500..], "1-10000"));
}

fn large_chunks_come_in_bounded_replies(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    cmd!(c, "RQ.QUEUE.SET", "q", "MAXOUTPUT", 64 << 20);
    let job = running(&mut c);
    for size in [300_000, 300_000, 300_000, 300_000, 5 << 20, 1] {
        emit(&mut c, &job, vec![b'x'; size]);
    }
    let mut from = "0".to_string();
    for wanted in [&[300_000; 3][..], &[300_000], &[5 << 20], &[1]] {
        let part = read(&mut c, &job.id, &from);
        assert_eq!(part.chunks.iter().map(Vec::len).collect::<Vec<_>>(), wanted);
        from = part.next;
    }
}

fn readers_are_told_of_the_next_run(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let id = cmd!(c, "RQ.ENQUEUE", "q", "x", "ATTEMPTS", 9, "CRASHES", 9).text();
    let mut run = 0;
    for how in ["FAIL", "RETRY", "RELEASE", "UNAVAILABLE", "RECOVER"] {
        run += 1;
        let job = claim_for(&mut c, "q", "w", LONG);
        assert_eq!(job.delivery, run);
        emit(&mut c, &job, how);
        // Two that wait, one of them before anything that it has not seen, and one that does not.
        let mut readers = [1, 7].map(|number| reader(&server, &id, &format!("{run}-{number}")));
        match how {
            "FAIL" => cmd!(c, "RQ.FAIL", "q", id, job.token),
            "RETRY" => cmd!(c, "RQ.FAIL", "q", id, job.token, "RETRY", 0),
            "UNAVAILABLE" => cmd!(c, "RQ.FAIL", "q", id, job.token, "UNAVAILABLE"),
            "RELEASE" => cmd!(c, "RQ.RELEASE", "q", id, job.token),
            _ => cmd!(c, "RQ.RECOVER", "q", "WORKERS", 1, "w"),
        };
        let anew = Part::new(&format!("{}-0", run + 1), &[], run + 1, None);
        for reader in &mut readers {
            assert_eq!(Part::of(&reader.read()), anew, "{how}");
        }
        let late = Part::of(&cmd!(c, "RQ.READ", "q", id, "FROM", format!("{run}-1"), "BLOCK", 0));
        assert_eq!(late, anew, "{how}");
        assert_eq!(refused!(c, "RQ.EMIT", "q", id, job.token, "late"), "STALE");
        if state(&mut c, "q", &id) == "delayed" {
            cmd!(c, "RQ.RESCHEDULE", "q", id, "DELAY", 0);
        }
    }
    // Dead with its output, which a redrive drops.
    let job = claim_for(&mut c, "q", "w", LONG);
    emit(&mut c, &job, "last");
    cmd!(c, "RQ.FAIL", "q", id, job.token, "DEAD");
    assert_eq!(read(&mut c, &id, "6-0"), Part::new("6-1", &["last"], 6, Some("dead")));
    cmd!(c, "RQ.REDRIVE", "q", id);
    let mut reader = reader(&server, &id, "7-0");
    assert_eq!(read(&mut c, &id, "6-1"), Part::new("7-0", &[], 7, None));
    let job = claim_for(&mut c, "q", "w", LONG);
    emit(&mut c, &job, "anew");
    assert_eq!(Part::of(&reader.read()), Part::new("7-1", &["anew"], 7, None));
}

fn a_killed_worker_ends_its_run(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let id = enqueue(&mut c, "q", "x");
    let mut worker = server.client();
    let job = claim_for(&mut worker, "q", "doomed", 150);
    emit(&mut worker, &job, "half a sen");
    let mut follower = reader(&server, &id, "1-1");
    let mut next = waiting_claim(&server, "q", "heir", 0);
    drop(worker);
    // The lease lapses by itself, and the next worker has the job.
    assert_eq!(Part::of(&follower.read()), Part::new("2-0", &[], 2, None));
    let job = jobs(&next.read()).remove(0);
    assert_eq!(job.delivery, 2);
    send!(follower, "RQ.READ", "q", id, "FROM", "2-0", "BLOCK", 0);
    until_blocked(&server, 1);
    emit(&mut c, &job, "a sentence");
    assert_eq!(Part::of(&follower.read()), Part::new("2-1", &["a sentence"], 2, None));
}

fn a_reader_never_hangs(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    assert!(cmd!(c, "RQ.READ", "none", "j", "BLOCK", 0).is_nil());
    for how in VANISHINGS {
        cmd!(c, "FLUSHALL");
        let id = enqueue(&mut c, "q", "x");
        assert!(cmd!(c, "RQ.READ", "q", "unknown", "BLOCK", 0).is_nil());
        let mut reader = reader(&server, &id, "0");
        vanish(&mut c, how);
        let reply = reader.read();
        assert!(reply.is_nil() || (how == "SET" && matches!(reply, Reply::Error(_))), "{how}: {reply:?}");
    }
}

fn every_end_is_told(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    for (how, ended) in [
        ("ACK", Some("done")),
        ("ACK at once", Some("done")),
        ("DEAD", Some("dead")),
        ("CANCEL", Some("cancelled")),
        ("LAPSE", Some("dead")),
    ] {
        let id = cmd!(c, "RQ.ENQUEUE", "q", "x", "CRASHES", 0).text();
        let job = claim_for(&mut c, "q", "w", if how == "LAPSE" { 150 } else { LONG });
        emit(&mut c, &job, how);
        let mut reader = reader(&server, &id, "1-1");
        match how {
            "ACK" => drop(cmd!(c, "RQ.ACK", "q", id, job.token, "RESULT", "r")),
            "ACK at once" => drop(cmd!(c, "RQ.ACK", "q", id, job.token, "TTL", 0)),
            "DEAD" => drop(cmd!(c, "RQ.FAIL", "q", id, job.token, "DEAD")),
            "CANCEL" => {
                cmd!(c, "RQ.CANCEL", "q", id);
                assert_eq!(cmd!(c, "RQ.EMIT", "q", id, job.token, "more").text(), "cancel");
                assert_eq!(Part::of(&reader.read()), Part::new("1-2", &["more"], 1, None));
                send!(reader, "RQ.READ", "q", id, "FROM", "1-2", "BLOCK", 0);
                until_blocked(&server, 1);
                cmd!(c, "RQ.RELEASE", "q", id, job.token);
            }
            _ => {}
        }
        let next = if how == "CANCEL" { "1-2" } else { "1-1" };
        assert_eq!(Part::of(&reader.read()), Part::new(next, &[], 1, ended), "{how}");
        let kept = cmd!(c, "RQ.READ", "q", id);
        match how {
            "ACK at once" => assert!(kept.is_nil()),
            _ => assert_eq!(
                (Part::of(&kept).chunks[0].as_slice(), Part::of(&kept).ended.as_deref()),
                (how.as_bytes(), ended)
            ),
        }
    }
    // Ended without a run: cancelled while it waits.
    let id = enqueue(&mut c, "q", "x");
    let mut reader = reader(&server, &id, "0");
    cmd!(c, "RQ.CANCEL", "q", id);
    let part = Part::of(&reader.read());
    assert_eq!((part.chunks.len(), part.ended.as_deref()), (0, Some("cancelled")));
    assert_eq!(read(&mut c, &id, "0"), part, "told the same as whoever asks later");
}

fn waits_end_in_time(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let job = running(&mut c);
    emit(&mut c, &job, "a");
    let start = Instant::now();
    let part = Part::of(&cmd!(c, "RQ.READ", "q", job.id, "FROM", "1-1", "BLOCK", 200));
    assert!(start.elapsed() >= ms(199), "{:?}", start.elapsed());
    assert_eq!(part, Part::new("1-1", &[], 1, None));
    for how in ["TIMEOUT", "ERROR", "KILL", "DISCONNECT"] {
        let mut reader = server.client();
        let id = reader.id();
        send!(reader, "RQ.READ", "q", job.id, "FROM", "1-1", "BLOCK", 0);
        until_blocked(&server, 1);
        match how {
            "DISCONNECT" => drop(reader),
            "KILL" => drop(cmd!(c, "CLIENT", "KILL", "ID", id)),
            _ => {
                cmd!(c, "CLIENT", "UNBLOCK", id, how);
                match reader.read() {
                    Reply::Error(error) => assert_eq!((error.word().as_str(), how), ("UNBLOCKED", "ERROR")),
                    // As when its time is over: nil is for a job that is gone.
                    reply => assert_eq!((Part::of(&reply), how), (Part::new("1-1", &[], 1, None), "TIMEOUT")),
                }
                assert_eq!(cmd!(reader, "PING").text(), "PONG");
            }
        }
        until_blocked(&server, 0);
    }
    emit(&mut c, &job, "nobody listens");
    // Gone between a chunk and the reply that tells it: nothing is lost, as nothing is taken.
    let mut reader = server.client();
    let id = reader.id();
    send!(reader, "RQ.READ", "q", job.id, "FROM", "1-2", "BLOCK", 0);
    until_blocked(&server, 1);
    let calls = [args!["RQ.EMIT", "q", job.id, job.token, "b"], args!["CLIENT", "KILL", "ID", id]];
    c.send_bytes(&calls.iter().flat_map(|call| encode(call)).collect::<Vec<u8>>());
    assert_eq!(c.read().text(), "ok");
    c.read();
    assert_eq!(read(&mut c, &job.id, "1-2"), Part::new("1-3", &["b"], 1, None));
}

fn no_waits_inside_of_a_unit(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let job = running(&mut c);
    let nothing = Part::new("1-0", &[], 1, None);
    cmd!(c, "MULTI");
    cmd!(c, "RQ.READ", "q", job.id, "BLOCK", 0);
    cmd!(c, "RQ.EMIT", "q", job.id, job.token, "a");
    cmd!(c, "RQ.READ", "q", job.id, "BLOCK", 0);
    let replies = cmd!(c, "EXEC");
    assert_eq!(Part::of(&replies.list()[0]), nothing);
    assert_eq!(Part::of(&replies.list()[2]), Part::new("1-1", &["a"], 1, None));
    let script = "return redis.call('RQ.READ', KEYS[1], ARGV[1], 'FROM', '1-1', 'BLOCK', '0')";
    assert_eq!(Part::of(&cmd!(c, "EVAL", script, 1, "q", job.id)), Part::new("1-1", &[], 1, None));
    // What a unit emits is told.
    let mut follower = reader(&server, &job.id, "1-1");
    cmd!(c, "MULTI");
    cmd!(c, "RQ.EMIT", "q", job.id, job.token, "b");
    cmd!(c, "RQ.EMIT", "q", job.id, job.token, "c");
    cmd!(c, "EXEC");
    assert_eq!(Part::of(&follower.read()), Part::new("1-2", &["b"], 1, None));
    let script = "return redis.call('RQ.EMIT', KEYS[1], ARGV[1], ARGV[2], 'd')";
    let mut follower = reader(&server, &job.id, "1-3");
    cmd!(c, "EVAL", script, 1, "q", job.id, job.token);
    assert_eq!(Part::of(&follower.read()), Part::new("1-4", &["d"], 1, None));
}

/// The key is replaced under the reader by one that holds more of the same.
fn a_reader_of_a_restored_queue_reads_on(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let job = running(&mut c);
    emit(&mut c, &job, "a");
    let little = cmd!(c, "DUMP", "q").bytes().to_vec();
    emit(&mut c, &job, "b");
    emit(&mut c, &job, "c");
    let more = cmd!(c, "DUMP", "q").bytes().to_vec();
    cmd!(c, "RESTORE", "q", 0, little, "REPLACE");
    let mut follower = reader(&server, &job.id, "1-1");
    cmd!(c, "RESTORE", "q", 0, more, "REPLACE");
    assert_eq!(Part::of(&follower.read()), Part::new("1-3", &["b", "c"], 1, None));
    // And goes on in what was loaded.
    emit(&mut c, &job, "d");
    assert_eq!(read(&mut c, &job.id, "1-3"), Part::new("1-4", &["d"], 1, None));
    cmd!(c, "COPY", "q", "copy");
    assert_eq!(server.digest("copy"), server.digest("q"));
}

fn what_is_refused(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let job = running(&mut c);
    emit(&mut c, &job, "a");
    let before = fingerprint(&server, "q");
    assert_eq!(refused!(c, "RQ.EMIT", "q", job.id, "1-1", "x"), "STALE");
    assert_eq!(refused!(c, "RQ.EMIT", "q", job.id, "rubbish", "x"), "STALE");
    assert_eq!(refused!(c, "RQ.EMIT", "q", "unknown", job.token, "x"), "NOJOB");
    assert_eq!(refused!(c, "RQ.EMIT", "none", job.id, job.token, "x"), "NOQUEUE");
    cmd!(c, "CONFIG", "SET", "rq.max-payload", 3);
    assert_eq!(refused!(c, "RQ.EMIT", "q", job.id, job.token, "four"), "TOOBIG");
    for from in ["", "x", "-", "1-", "-1", "1-2-3", "01", "+1", "1-18446744073709551616"] {
        assert_eq!(refused!(c, "RQ.READ", "q", job.id, "FROM", from), "ERR");
    }
    assert_eq!(refused!(c, "RQ.READ", "q", job.id, "COUNT", 1_001), "ERR");
    assert_eq!(refused!(c, "RQ.READ", "q", job.id, "BLOCK", "-1"), "ERR");
    assert_eq!(refused!(c, "RQ.QUEUE.SET", "q", "MAXOUTPUT", (64 << 20) + 1), "ERR");
    assert_eq!(fingerprint(&server, "q"), before);
    ack(&mut c, "q", &job);
    assert_eq!(refused!(c, "RQ.EMIT", "q", job.id, job.token, "x"), "STALE");
}

/// C50, its second half.
fn outputs_are_capped_exactly(lab: &Lab) {
    let server = lab.server_with(&[("rq.default-maxoutput", "1kb")]);
    let mut c = server.client();
    let job = running(&mut c);
    let mut put_out = 0;
    for size in (1..=100).rev() {
        let reply = c.call(args!["RQ.EMIT", "q", job.id, job.token, vec![b'x'; size]]);
        if put_out + size <= 1024 {
            assert_eq!(reply.text(), "ok");
            put_out += size;
        } else {
            assert_eq!(reply.error().word(), "FULL");
        }
    }
    assert_eq!(put_out, 1024);
    let before = server.digest("q");
    assert_eq!(refused!(c, "RQ.EMIT", "q", job.id, job.token, "x"), "FULL");
    assert_eq!(server.digest("q"), before);
    emit(&mut c, &job, "");
    // The job goes on without; the next run has as much again.
    cmd!(c, "RQ.RELEASE", "q", job.id, job.token);
    let job = claim(&mut c, "q", "w");
    emit(&mut c, &job, vec![b'y'; 1024]);
    // A lower limit takes nothing away.
    cmd!(c, "RQ.QUEUE.SET", "q", "MAXOUTPUT", 0);
    assert_eq!(refused!(c, "RQ.EMIT", "q", job.id, job.token, "x"), "FULL");
    assert_eq!(read(&mut c, &job.id, "0").chunks[0].len(), 1024);
    cmd!(c, "RQ.QUEUE.SET", "q", "MAXOUTPUT", 1025);
    emit(&mut c, &job, "x");
    assert_eq!(ack(&mut c, "q", &job), 1);
}

fn chunks_are_capped_exactly(lab: &Lab) {
    const CHUNKS: usize = 65_536;
    let server = lab.server();
    let mut c = server.client();
    let job = running(&mut c);
    let call = encode(&args!["RQ.EMIT", "q", job.id, job.token, "token "]);
    for _ in 0..CHUNKS / 1024 {
        c.send_bytes(&call.repeat(1024));
        for _ in 0..1024 {
            assert_eq!(c.read().text(), "ok");
        }
    }
    assert_eq!(refused!(c, "RQ.EMIT", "q", job.id, job.token, ""), "FULL");
    let map = crate::common::job(&mut c, "q", &job.id).unwrap();
    assert_eq!((map["output"].int(), map["output-bytes"].int()), (65_536, 6 * 65_536));
    // Many small ones take little more than their bytes.
    let bytes = cmd!(c, "MEMORY", "USAGE", "q").int();
    assert!(bytes < 2 * 6 * 65_536, "{bytes}");
    let mut follower = reader(&server, &job.id, "1-65536");
    assert_eq!(read(&mut c, &job.id, "65535").chunks, [b"token "]);
    ack(&mut c, "q", &job);
    assert_eq!(Part::of(&follower.read()), Part::new("1-65536", &[], 1, Some("done")));
}

fn at_maxmemory_jobs_end_without_output(lab: &Lab) {
    let server = lab.server_with(&[("maxmemory-policy", "noeviction")]);
    let mut c = server.client();
    let job = running(&mut c);
    emit(&mut c, &job, "a");
    cmd!(c, "CONFIG", "SET", "maxmemory", 1);
    assert_eq!(refused!(c, "RQ.EMIT", "q", job.id, job.token, "b"), "OOM");
    assert_eq!(read(&mut c, &job.id, "0"), Part::new("1-1", &["a"], 1, None));
    assert_eq!(cmd!(c, "RQ.ACK", "q", job.id, job.token, "RESULT", "r").int(), 1);
}

/// System C: words for minutes, and then a picture.
fn a_large_result_after_many_chunks(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let job = running(&mut c);
    let mut follower = server.client();
    let (mut result, mut seen, mut from) = (server.client(), Vec::new(), "0".to_string());
    send!(result, "RQ.RESULT", "q", job.id, "BLOCK", 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..2_000 {
                emit(&mut c, &job, format!("word {number} "));
            }
            assert_eq!(cmd!(c, "RQ.ACK", "q", job.id, job.token, "RESULT", vec![7_u8; 7 << 20]).int(), 1);
        });
        loop {
            let part = Part::of(&cmd!(follower, "RQ.READ", "q", job.id, "FROM", from, "BLOCK", 0));
            seen.extend(part.chunks);
            from = part.next;
            if let Some(ended) = part.ended {
                assert_eq!(ended, "done");
                break;
            }
        }
    });
    let wanted: Vec<Vec<u8>> = (0..2_000).map(|number| format!("word {number} ").into_bytes()).collect();
    assert_eq!(seen, wanted);
    assert_eq!(result.read().list()[1].bytes().len(), 7 << 20);
    assert_eq!(cmd!(c, "RQ.RESULT", "q", job.id).list()[1].bytes(), vec![7_u8; 7 << 20]);
    assert_eq!(cmd!(c, "DBSIZE").int(), 1);
}

fn bytes_of_any_value(lab: &Lab) {
    let server = lab.server();
    for mut c in [server.client(), server.client3()] {
        let job = running(&mut c);
        let all: Vec<u8> = (0..=255).collect();
        let chunks =
            [&all[..], b"", b"\r\n", b"*1\r\n$4\r\nPING\r\n", b"\0", b"\xff\xfe", "\u{1f511}".as_bytes()];
        let mut follower = reader(&server, &job.id, "1-0");
        for chunk in chunks {
            emit(&mut c, &job, chunk);
        }
        assert_eq!(Part::of(&follower.read()).chunks, chunks[..1]);
        assert_eq!(read(&mut c, &job.id, "0").chunks, chunks);
        ack(&mut c, "q", &job);
        assert_eq!(read(&mut c, &job.id, "0").chunks, chunks);
    }
}

/// Outputs of every fate, in RDB, AOF, and on a replica that came before and one that came after.
fn the_same_on_every_server(lab: &Lab) {
    for preamble in ["yes", "no"] {
        let mut server = lab.server_with(&[("appendonly", "yes"), ("aof-use-rdb-preamble", preamble)]);
        let early = lab.replica_of(&server);
        let mut c = server.client();
        let mut ids = some_of_every_fate(&mut c);
        cmd!(c, "BGREWRITEAOF");
        until("the rewrite is done", || {
            server.info("aof_rewrite_in_progress") == "0" && server.info("aof_rewrite_scheduled") == "0"
        });
        ids.extend(some_of_every_fate(&mut c));
        let late = lab.replica_of(&server);
        let shown = |server: &Server| {
            let mut c = server.client();
            let parts = ids.iter().map(|id| Part::of(&cmd!(c, "RQ.READ", "q", id, "COUNT", 1_000)));
            (server.digest("q"), parts.collect::<Vec<_>>())
        };
        let wanted = shown(&server);
        assert_eq!(wanted.1.iter().filter(|part| part.chunks.len() == 301).count(), 8);
        for replica in [&early, &late] {
            server.wait_for_sync(replica);
            assert_eq!(shown(replica), wanted);
        }
        server.shutdown();
        server.restart();
        assert_eq!(shown(&server), wanted, "AOF");
        let mut c = server.client();
        cmd!(c, "SAVE");
        cmd!(c, "DEBUG", "RELOAD");
        assert_eq!(shown(&server), wanted, "RDB");
    }
}

/// Jobs that put something out and ended, or go on, in as many ways; their ids.
fn some_of_every_fate(c: &mut Client) -> Vec<String> {
    let fates = ["run", "done", "dead", "cancelled", "again", "lapsed"];
    let run = |how: &str| {
        let id = cmd!(c, "RQ.ENQUEUE", "q", how, "CRASHES", 9).text();
        let job = claim_for(c, "q", "w", if how == "lapsed" { 100 } else { LONG });
        let chunks: Vec<u8> = (0..300)
            .flat_map(|number| encode(&args!["RQ.EMIT", "q", id, job.token, format!("{how} {number}")]))
            .collect();
        c.send_bytes(&chunks);
        for _ in 0..300 {
            assert!(matches!(c.read().text().as_str(), "ok"), "{how}");
        }
        emit(c, &job, vec![b'x'; 10_000]);
        match how {
            "done" => drop(ack(c, "q", &job)),
            "dead" => drop(cmd!(c, "RQ.FAIL", "q", id, job.token, "DEAD")),
            "cancelled" => {
                cmd!(c, "RQ.CANCEL", "q", id);
                cmd!(c, "RQ.ACK", "q", id, job.token);
            }
            "again" => {
                cmd!(c, "RQ.RELEASE", "q", id, job.token);
                let job = claim_for(c, "q", "w", LONG);
                emit(c, &job, "again");
            }
            "lapsed" => {
                until("it lapsed", || state(c, "q", &id) == "ready");
                let job = claim_for(c, "q", "w", LONG);
                cmd!(c, "RQ.FAIL", "q", id, job.token, "RETRY", LONG);
            }
            _ => {}
        }
        id
    };
    fates.map(run).to_vec()
}

fn a_replica_is_read_and_promoted(lab: &Lab) {
    let primary = lab.server();
    let replica = lab.replica_of(&primary);
    let (mut c, mut r) = (primary.client(), replica.client());
    let job = running(&mut c);
    primary.wait_for_sync(&replica);
    let mut follower = reader(&replica, &job.id, "0");
    emit(&mut c, &job, "a");
    assert_eq!(Part::of(&follower.read()), Part::new("1-1", &["a"], 1, None));
    assert_eq!(refused!(r, "RQ.EMIT", "q", job.id, job.token, "b"), "READONLY");
    let mut follower = reader(&replica, &job.id, "1-1");
    let mut on_primary = reader(&primary, &job.id, "1-1");
    cmd!(r, "REPLICAOF", "NO", "ONE");
    // The worker goes on there, and so do those who wait.
    emit(&mut r, &job, "b");
    assert_eq!(Part::of(&follower.read()), Part::new("1-2", &["b"], 1, None));
    cmd!(c, "REPLICAOF", "127.0.0.1", replica.port);
    assert_eq!(on_primary.read().error().word(), "UNBLOCKED");
    replica.wait_for_sync(&primary);
    let mut follower = reader(&primary, &job.id, "1-2");
    cmd!(r, "RQ.ACK", "q", job.id, job.token);
    assert_eq!(Part::of(&follower.read()), Part::new("1-2", &[], 1, Some("done")));
    replica.wait_for_sync(&primary);
    assert_eq!(primary.digest("q"), replica.digest("q"));
}

fn memory_comes_back(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    cmd!(c, "RQ.QUEUE.SET", "q", "RESULTTTL", 500, "LEASE", LONG);
    let small = cmd!(c, "MEMORY", "USAGE", "q").int();
    let before = server.info_number("used_memory");
    let mut held = Vec::new();
    for _ in 0..40 {
        let job = running(&mut c);
        let call = encode(&args!["RQ.EMIT", "q", job.id, job.token, vec![b'x'; 500]]);
        c.send_bytes(&call.repeat(1_000));
        for _ in 0..1_000 {
            assert_eq!(c.read().text(), "ok");
        }
        held.push(job);
    }
    // All of it is accounted for.
    let used = server.info_number("used_memory") - before;
    let told = cmd!(c, "MEMORY", "USAGE", "q").int() - small;
    assert!(told > 20_000_000 && used.abs_diff(told) < 2_000_000, "{used} bytes are used, {told} are told");
    // Half of the jobs end, the others run anew and put out nothing.
    for (number, job) in held.iter().enumerate() {
        if number % 2 == 0 {
            ack(&mut c, "q", job);
            continue;
        }
        cmd!(c, "RQ.RELEASE", "q", job.id, job.token);
        let job = claim(&mut c, "q", "w");
        ack(&mut c, "q", &job);
    }
    until_counts(&mut c, "q", Counts::default());
    let left = cmd!(c, "MEMORY", "USAGE", "q").int();
    assert!(left < small + 20_000, "{left} bytes left, {small} before");
    until("all but 1 MB of 20 is free again", || server.info_number("used_memory") < before + 1_000_000);
}

//! Waits that end in many ways at once. Whatever comes first: nobody waits for ever, nobody gets two answers, and each job
//! is leased to one.

use std::collections::HashSet;

use crate::common::*;
use crate::{args, cmd, send, tests};

pub const TESTS: &[Test] = tests![waits_that_end_in_many_ways_at_once, memory_comes_back];

/// Clients that wait at a time.
const WAITERS: usize = 8;

/// SplitMix64: the same seed, the same storms, though not the same weather.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % end as u64) as usize
    }
}

struct Waiter {
    client: Client,
    id: i64,
    /// Killed, or left by its user.
    told_to_go: bool,
}

impl Waiter {
    fn new(server: &Server) -> Self {
        let mut client = server.client();
        let id = client.id();
        Self { client, id, told_to_go: false }
    }

    /// The one answer; none if the connection was closed before it came.
    fn answer(&mut self, what: &str) -> Option<Reply> {
        match self.client.try_read_within(PATIENCE) {
            Ok(Some(reply)) => Some(reply),
            Ok(None) => panic!("{what}: client {} never got an answer", self.id),
            Err(_) => None,
        }
    }
}

/// Waits served, timed out, unblocked, killed, and left by their clients, while the queue is deleted and filled: 10,000
/// of them with `SOAK=1`.
fn waits_that_end_in_many_ways_at_once(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let mut storms: Vec<Client> = (0..3).map(|_| server.client()).collect();
    let mut waiters: Vec<Waiter> = (0..WAITERS).map(|_| Waiter::new(&server)).collect();
    let mut random = Random(7);
    // Before 7.4, the server may drop an answer that is not written yet when the client is told to stop waiting. The module
    // closes the connection then: better than silence.
    let closes =
        server.info("redis_version").starts_with("7.0") || server.info("redis_version").starts_with("7.2");
    let (mut served, mut unblocked, mut closed) = (0, 0, 0);
    let rounds = if soak() { 10_000 } else { 150 };
    for round in 0..rounds {
        let what = format!("round {round}");
        cmd!(c, "DEL", "q", "r");
        let result_of = enqueue(&mut c, "r", "x");
        let job = claim_for(&mut c, "r", "w", 3_600_000);
        for (number, waiter) in waiters.iter_mut().enumerate() {
            let block = [0, 0, 0, 1, 2, 30_000][random.below(6)];
            if number < 2 {
                send!(waiter.client, "RQ.RESULT", "r", result_of, "BLOCK", block);
            } else {
                send!(
                    waiter.client,
                    "RQ.CLAIM",
                    "q",
                    format!("w{number}"),
                    "BLOCK",
                    block,
                    "LEASE",
                    3_600_000
                );
            }
        }
        if random.below(2) == 0 {
            until("some wait", || {
                server.info_number("blocked_clients") > 0
                    || waiters.iter_mut().all(|waiter| waiter.client.is_answered())
            });
        }
        // What happens, in one piece on each of three connections: each piece is read by the server at once.
        let (mut enqueued, mut is_deleted) = (0, false);
        let mut pieces = [const { (Vec::new(), 0) }; 3];
        for _ in 0..4 + random.below(12) {
            let (bytes, commands) = &mut pieces[random.below(3)];
            let mut say = |args: Vec<Vec<u8>>| {
                bytes.extend(encode(&args));
                *commands += 1;
            };
            let target = random.below(WAITERS);
            let id = waiters[target].id;
            match random.below(14) {
                0..5 => {
                    say(args!["RQ.ENQUEUE", "q", format!("{round} {enqueued}")]);
                    enqueued += 1;
                }
                5 | 6 => say(args!["CLIENT", "UNBLOCK", id, "TIMEOUT"]),
                7 | 8 => say(args!["CLIENT", "UNBLOCK", id, "ERROR"]),
                9 => {
                    say(args!["CLIENT", "KILL", "ID", id]);
                    waiters[target].told_to_go = true;
                }
                10 => {
                    say(args!["MULTI"]);
                    say(args!["RQ.ENQUEUE", "q", format!("{round} {enqueued}")]);
                    say(args!["CLIENT", "UNBLOCK", id, "TIMEOUT"]);
                    say(args!["EXEC"]);
                    enqueued += 1;
                }
                11 => say(args!["RQ.ACK", "r", job.id, job.token, "RESULT", "done"]),
                12 if !waiters[target].told_to_go => {
                    waiters[target].client.close_sending_half();
                    waiters[target].told_to_go = true;
                }
                _ if round % 4 == 0 => {
                    say(args!["DEL", ["q", "r"][random.below(2)]]);
                    is_deleted = true;
                }
                _ => {}
            }
        }
        for (storm, (bytes, _)) in storms.iter_mut().zip(&pieces) {
            storm.send_bytes(bytes);
        }
        for (storm, (_, commands)) in storms.iter_mut().zip(&pieces) {
            for _ in 0..*commands {
                storm.read();
            }
        }
        // Those who still wait have waited long enough.
        for waiter in &waiters {
            send!(c, "CLIENT", "UNBLOCK", waiter.id, "TIMEOUT");
        }
        for _ in &waiters {
            c.read();
        }

        let mut leased = Vec::new();
        let mut lost = 0;
        for (number, waiter) in waiters.iter_mut().enumerate() {
            match waiter.answer(&what) {
                Some(Reply::Error(error)) => {
                    assert_eq!(error.word(), "UNBLOCKED", "{what}");
                    unblocked += 1;
                }
                Some(reply) if number < 2 => {
                    assert!(reply.is_nil() || reply.list().len() == 3, "{what}: {reply:?}")
                }
                Some(reply) => leased.extend(jobs(&reply)),
                None => {
                    closed += 1;
                    lost += 1;
                }
            }
            let pong = waiter.client.try_send(args!["PING"]).ok().and_then(|()| waiter.answer(&what));
            match &pong {
                Some(pong) => assert_eq!(pong.text(), "PONG", "{what}: an answer too many"),
                None => assert!(
                    waiter.told_to_go || closes,
                    "{what}: client {} was closed for nothing",
                    waiter.id
                ),
            }
            if pong.is_none() || waiter.told_to_go {
                *waiter = Waiter::new(&server);
            }
        }
        until_blocked(&server, 0);
        let payloads: HashSet<_> = leased.iter().map(|job| &job.payload).collect();
        let tokens: HashSet<_> = leased.iter().map(|job| &job.token).collect();
        assert!(
            payloads.len() == leased.len() && tokens.len() == leased.len(),
            "{what}: leased twice: {leased:?}"
        );
        assert!(leased.iter().all(|job| job.delivery == 1), "{what}: {leased:?}");
        served += leased.len();
        if is_deleted {
            continue;
        }
        // Jobs of which the answer was lost are leased, if it was written, or back in line.
        let found = eventually("every job is leased or in line", || {
            let found = if enqueued == 0 { Counts::default() } else { counts(&mut c, "q") };
            let taken = leased.len() as i64;
            (found.active >= taken && found.active <= taken + lost).then_some(found)
        });
        assert_eq!(found.ready + found.active, enqueued, "{what}: {found:?}");
        for job in &leased {
            assert_eq!(ack(&mut c, "q", job), 1, "{what}");
        }
    }
    assert!(
        served > rounds && unblocked > rounds / 10 && closed > rounds / 10,
        "{served} served, {unblocked} unblocked, {closed} closed"
    );
    println!(
        "{rounds} rounds of {WAITERS} waits: {served} served, {unblocked} unblocked by an error, {closed} closed"
    );
}

/// A queue made, filled and deleted a thousand times, in every way there is to fill it, leaves nothing behind.
fn memory_comes_back(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let mut waiter = server.client();
    let mut round = |how: usize| {
        send!(waiter, "RQ.CLAIM", "q", "waits", "BLOCK", 0);
        cmd!(c, "RQ.QUEUE.SET", "q", "WORKERTTL", 86_400_000, "RESULTTTL", 3_600_000);
        for number in 0..10 {
            cmd!(
                c,
                "RQ.ENQUEUE",
                "q",
                vec![b'x'; 300],
                "GROUP",
                format!("g{number}"),
                "TENANT",
                format!("t{}", number % 3)
            );
        }
        assert_eq!(jobs(&waiter.read()).len(), 1);
        cmd!(c, "RQ.ENQUEUE", "q", "x", "DELAY", 3_600_000, "ID", "own");
        for number in 0..4 {
            let job = claim(&mut c, "q", "w");
            match number {
                0 => drop(cmd!(c, "RQ.ACK", "q", job.id, job.token, "RESULT", vec![b'r'; 300])),
                1 => drop(cmd!(c, "RQ.FAIL", "q", job.id, job.token, "ERROR", "e", "DEAD")),
                2 => drop(cmd!(c, "RQ.FAIL", "q", job.id, job.token, "UNAVAILABLE")),
                _ => drop(cmd!(c, "RQ.PROGRESS", "q", job.id, job.token, "half")),
            }
        }
        match how % 4 {
            0 => drop(cmd!(c, "DEL", "q")),
            1 => drop(cmd!(c, "UNLINK", "q")),
            2 => drop(cmd!(c, "FLUSHALL")),
            _ => {
                let dump = cmd!(c, "DUMP", "q").bytes().to_vec();
                cmd!(c, "RESTORE", "q", 0, dump, "REPLACE");
                cmd!(c, "COPY", "q", "other");
                cmd!(c, "SET", "q", "x");
                cmd!(c, "DEL", "q", "other");
            }
        }
    };
    (0..100).for_each(&mut round);
    let before = server.info_number("used_memory");
    (0..1_000).for_each(&mut round);
    until("the memory of a thousand queues is back", || server.info_number("used_memory") - before < 50_000);
}

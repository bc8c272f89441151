//! Every way in which a key can move, be copied, be replaced or vanish, while everything about its queue is open:
//! workers wait (for it, and for where it may go), results are awaited, leases are held, delays and leases are about to
//! come due. A table; what is done for each row is the same.

use std::time::{Duration, Instant};

use crate::common::*;
use crate::{args, cmd, send, tests};

pub const TESTS: &[Test] = tests![
    every_way_by_itself,
    every_way_in_a_transaction,
    every_way_in_a_script,
    an_undone_grant_follows_its_queue,
];

/// What a name holds afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holds {
    /// The queue that the table is about.
    Queue,
    /// Another queue.
    Other,
    /// A string.
    Text,
}
use Holds::{Other, Queue, Text};

/// A name in a database.
type Place = (i64, &'static str);

/// Where things can be. The queue begins at the first of them.
const PLACES: [Place; 3] = [Q, T, MOVED];
const Q: Place = (0, "q");
const T: Place = (0, "t");
const MOVED: Place = (1, "q");

struct Way {
    /// What else there is before.
    before: &'static [(Place, Holds)],
    /// Commands, words separated by blanks; `@dump` and `@other` stand for dumps, `@port` for that of another server.
    how: &'static str,
    /// What is where afterwards; nothing at the other places.
    after: &'static [(Place, Holds)],
    /// Whether the queue is on the other server too.
    far: bool,
}

const fn way(before: &'static [(Place, Holds)], how: &'static str, after: &'static [(Place, Holds)]) -> Way {
    Way { before, how, after, far: false }
}

const WAYS: &[Way] = &[
    way(&[], "DEL q", &[]),
    way(&[], "UNLINK q", &[]),
    way(&[], "SET q x", &[(Q, Text)]),
    way(&[(T, Text)], "BITOP NOT q t", &[(Q, Text), (T, Text)]),
    way(&[], "SUNIONSTORE q nothing", &[]),
    way(&[], "RENAME q t", &[(T, Queue)]),
    way(&[(T, Other)], "RENAME q t", &[(T, Queue)]),
    way(&[(T, Text)], "RENAME q t", &[(T, Queue)]),
    way(&[], "RENAMENX q t", &[(T, Queue)]),
    way(&[(T, Other)], "RENAMENX q t", &[(Q, Queue), (T, Other)]),
    way(&[(T, Other)], "RENAME t q", &[(Q, Other)]),
    way(&[(T, Text)], "RENAME t q", &[(Q, Text)]),
    way(&[], "RENAME q q", &[(Q, Queue)]),
    way(&[(T, Other)], "RENAME q u, RENAME t q, RENAME u t", &[(Q, Other), (T, Queue)]),
    way(&[], "MOVE q 1", &[(MOVED, Queue)]),
    way(&[(MOVED, Other)], "MOVE q 1", &[(Q, Queue), (MOVED, Other)]),
    way(&[], "COPY q t", &[(Q, Queue), (T, Queue)]),
    way(&[], "COPY q q DB 1", &[(Q, Queue), (MOVED, Queue)]),
    way(&[(T, Other)], "COPY q t", &[(Q, Queue), (T, Other)]),
    way(&[(T, Other)], "COPY q t REPLACE", &[(Q, Queue), (T, Queue)]),
    way(&[(T, Other)], "COPY t q REPLACE", &[(Q, Other), (T, Other)]),
    way(&[], "RESTORE t 0 @dump", &[(Q, Queue), (T, Queue)]),
    way(&[(T, Other)], "RESTORE t 0 @dump REPLACE", &[(Q, Queue), (T, Queue)]),
    way(&[], "RESTORE q 0 @dump REPLACE", &[(Q, Queue)]),
    way(&[(T, Other)], "RESTORE q 0 @other REPLACE", &[(Q, Other), (T, Other)]),
    way(&[], "SWAPDB 0 1", &[(MOVED, Queue)]),
    way(&[(MOVED, Other)], "SWAPDB 0 1", &[(Q, Other), (MOVED, Queue)]),
    way(&[(MOVED, Other)], "FLUSHDB", &[(MOVED, Other)]),
    way(&[(MOVED, Other)], "FLUSHDB ASYNC", &[(MOVED, Other)]),
    way(&[(MOVED, Other)], "FLUSHDB SYNC", &[(MOVED, Other)]),
    way(&[(T, Other), (MOVED, Other)], "FLUSHALL", &[]),
    way(&[(T, Other), (MOVED, Other)], "FLUSHALL ASYNC", &[]),
    way(&[(T, Other), (MOVED, Other)], "FLUSHALL SYNC", &[]),
    way(&[], "EXPIRE q -1", &[]),
    way(&[(T, Other)], "PEXPIREAT q 1", &[(T, Other)]),
    Way { before: &[], how: "MIGRATE 127.0.0.1 @port q 0 5000", after: &[], far: true },
    Way { before: &[], how: "MIGRATE 127.0.0.1 @port q 0 5000 COPY", after: &[(Q, Queue)], far: true },
    Way {
        before: &[(T, Other)],
        how: "MIGRATE 127.0.0.1 @port q 0 5000 REPLACE, RENAME t q",
        after: &[(Q, Other)],
        far: true,
    },
];

/// What only makes sense by itself: it takes time, or the server refuses it inside of a unit.
const SLOW_WAYS: &[Way] = &[
    way(&[], "PEXPIRE q 1", &[]),
    way(&[], "RENAME q t, PEXPIRE t 1", &[]),
    way(&[], "CONFIG SET maxmemory-policy allkeys-lru, CONFIG SET maxmemory 1", &[]),
    way(&[(T, Other)], "DEBUG RELOAD", &[(Q, Queue), (T, Other)]),
    Way {
        before: &[],
        how: "MIGRATE 127.0.0.1 @port @none 0 5000 COPY REPLACE KEYS q",
        after: &[(Q, Queue)],
        far: true,
    },
];

/// There and back within one unit: nobody who waits need notice.
const ROUND_TRIPS: &[Way] = &[
    way(&[(T, Other)], "SWAPDB 0 1, SWAPDB 1 0", &[(Q, Queue), (T, Other)]),
    way(&[], "RENAME q t, RENAME t q", &[(Q, Queue)]),
    way(&[], "DEL q, RESTORE q 0 @dump", &[(Q, Queue)]),
    way(&[(T, Other)], "FLUSHALL, RESTORE q 0 @dump", &[(Q, Queue)]),
];

/// How the commands of a row are sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    Single,
    Transaction,
    Script,
}

struct Stage {
    one: Server,
    replica: Server,
    far: Server,
}

fn every_way_by_itself(lab: &Lab) {
    let stage = Stage::new(lab);
    for way in WAYS.iter().chain(SLOW_WAYS) {
        stage.play(way, Unit::Single);
    }
}

fn every_way_in_a_transaction(lab: &Lab) {
    let stage = Stage::new(lab);
    for way in WAYS.iter().chain(ROUND_TRIPS) {
        stage.play(way, Unit::Transaction);
    }
}

fn every_way_in_a_script(lab: &Lab) {
    let stage = Stage::new(lab);
    for way in WAYS.iter().chain(ROUND_TRIPS) {
        stage.play(way, Unit::Script);
    }
}

/// Runs the commands in its arguments, each with its number of words before it.
const SCRIPT: &str = "local at = 1
    while at <= #ARGV do
        local words = tonumber(ARGV[at])
        redis.call(unpack(ARGV, at + 1, at + words))
        at = at + words + 1
    end";

/// The delay and the lease that come due after the key has moved.
const DUE_MS: u64 = 150;

/// What waits during a row.
struct Open {
    /// By place: a claim, and a claim of several queues.
    claims: Vec<(Place, [Client; 2])>,
    /// Awaits the result of the job `held`, on the primary and on the replica.
    results: [Client; 2],
    /// Token of the job `held`.
    token: String,
    /// A claim on the other server.
    far: Client,
}

impl Stage {
    fn new(lab: &Lab) -> Self {
        let one = lab.server();
        let replica = lab.replica_of(&one);
        Self { one, replica, far: lab.server() }
    }

    /// Plays a row; if this machine was too slow to move the key before anything came due, again with more time.
    fn play(&self, way: &Way, unit: Unit) {
        let mut due = DUE_MS;
        while !self.try_play(way, unit, due) {
            due *= 2;
        }
    }

    fn client(&self, db: i64) -> Client {
        let mut client = self.one.client();
        cmd!(client, "SELECT", db);
        client
    }

    fn try_play(&self, way: &Way, unit: Unit, due: u64) -> bool {
        let mut c = self.one.client();
        cmd!(c, "CONFIG", "SET", "maxmemory", 0);
        cmd!(c, "FLUSHALL");
        cmd!(self.far.client(), "FLUSHALL");
        let mut open = self.open();
        let begun = Instant::now();
        let held = self.furnish(way, due);
        open.token = held;
        self.one.wait_for_sync(&self.replica);
        for result in &mut open.results {
            send!(result, "RQ.RESULT", "q", "held", "BLOCK", 0);
        }
        until_blocked(&self.replica, 1);
        until("everybody waits", || {
            self.one.info_number("blocked_clients") == 7 || begun.elapsed() > ms(due)
        });
        self.run(way, unit);
        if begun.elapsed() + Duration::from_millis(20) > ms(due) {
            return false;
        }
        self.check(way, open);
        true
    }

    /// Before there is anything to be had.
    fn open(&self) -> Open {
        let mut waiting = 0;
        let claims = PLACES
            .iter()
            .map(|&(db, name)| {
                let (mut one, mut many) = (self.client(db), self.client(db));
                // One behind the other: who has waited longer is served first.
                send!(one, "RQ.CLAIM", name, format!("{db}{name}"), "BLOCK", 0, "LEASE", 3_600_000);
                until_blocked(&self.one, waiting + 1);
                send!(
                    many,
                    "RQ.MCLAIM",
                    2,
                    "nowhere",
                    name,
                    format!("m{db}{name}"),
                    "BLOCK",
                    0,
                    "LEASE",
                    3_600_000
                );
                waiting += 2;
                until_blocked(&self.one, waiting);
                ((db, name), [one, many])
            })
            .collect();
        let mut far = self.far.client();
        send!(far, "RQ.CLAIM", "q", "far", "BLOCK", 0);
        let open =
            Open { claims, results: [self.one.client(), self.replica.client()], token: String::new(), far };
        until_blocked(&self.far, 1);
        open
    }

    /// The queue, and what else there is. In each queue, something comes due after `due` ms. Paused while it is made, so
    /// that who waits gets nothing. Returns the token of a job that is held for long.
    fn furnish(&self, way: &Way, due: u64) -> String {
        let mut c = self.one.client();
        for &((db, name), holds) in way.before {
            cmd!(c, "SELECT", db);
            match holds {
                Text => cmd!(c, "SET", name, "text"),
                _ => cmd!(c, "RQ.ENQUEUE", name, "other", "DELAY", due),
            };
        }
        cmd!(c, "SELECT", 0);
        // The claims of others come after ours only because all of this is one unit.
        cmd!(c, "MULTI");
        cmd!(c, "RQ.ENQUEUE", "q", "result", "ID", "held");
        cmd!(c, "RQ.CLAIM", "q", "w", "LEASE", 3_600_000);
        cmd!(c, "RQ.ENQUEUE", "q", "lapses");
        cmd!(c, "RQ.CLAIM", "q", "w", "LEASE", due);
        cmd!(c, "RQ.ENQUEUE", "q", "delayed", "DELAY", due);
        let replies = cmd!(c, "EXEC");
        Job::from(&replies.list()[1].list()[0]).token
    }

    fn run(&self, way: &Way, unit: Unit) {
        let mut c = self.one.client();
        let dump = cmd!(c, "DUMP", "q");
        let other = c.call(args!["DUMP", "t"]);
        let calls: Vec<Vec<Vec<u8>>> = way
            .how
            .split(", ")
            .map(|call| {
                call.split(' ')
                    .map(|word| match word {
                        "@dump" => dump.bytes().to_vec(),
                        "@other" => other.bytes().to_vec(),
                        "@port" => self.far.port.to_string().into_bytes(),
                        "@none" => Vec::new(),
                        word => word.as_bytes().to_vec(),
                    })
                    .collect()
            })
            .collect();
        // The refusals among the rows are refused in any way that they are sent.
        match unit {
            Unit::Single => calls.into_iter().for_each(|call| drop(c.call(call))),
            Unit::Transaction => {
                cmd!(c, "MULTI");
                for call in calls {
                    c.run(call);
                }
                cmd!(c, "EXEC");
            }
            Unit::Script => {
                let mut call = args!["EVAL", SCRIPT, 0];
                for words in calls {
                    call.push(words.len().to_string().into_bytes());
                    call.extend(words);
                }
                c.call(call);
            }
        }
    }

    fn check(&self, way: &Way, mut open: Open) {
        let what = way.how;
        let holds = |place: Place| way.after.iter().find(|(at, _)| *at == place).map(|&(_, holds)| holds);
        // The keys that are there, and what of them are queues.
        for db in [0, 1] {
            let mut c = self.client(db);
            let names = |holding: &dyn Fn(Holds) -> bool| {
                let here = way.after.iter().filter(|((at, _), holds)| *at == db && holding(*holds));
                let mut names: Vec<&str> = here.map(|((_, name), _)| *name).collect();
                names.sort_unstable();
                names
            };
            until(&format!("{what}: the keys"), || keys(&mut c) == names(&|_| true));
            assert_eq!(queues(&mut c), names(&|holds| holds != Text), "{what}: RQ.QUEUES of {db}");
        }
        // The token is good wherever the queue is, and nowhere else.
        for place in PLACES {
            let mut c = self.client(place.0);
            let call = args!["RQ.EXTEND", place.1, "w", "LEASE", 3_600_000, "held", open.token];
            match holds(place) {
                Some(Queue) => assert_eq!(c.run(call).texts(), ["ok"], "{what}: {place:?}"),
                Some(Text) => assert_eq!(c.refused(call), "WRONGTYPE", "{what}: {place:?}"),
                _ => assert_eq!(c.run(call).texts(), ["lost"], "{what}: {place:?}"),
            }
        }
        // Nobody waits for a result that can never come.
        if holds(Q) == Some(Queue) {
            let mut c = self.one.client();
            assert!(open.results.iter_mut().all(|result| !result.is_answered()), "{what}");
            assert_eq!(cmd!(c, "RQ.ACK", "q", "held", open.token, "RESULT", "r").int(), 1);
            for result in &mut open.results {
                assert_eq!(answer(result, what).list()[1].text(), "r", "{what}");
            }
        } else {
            for result in &mut open.results {
                assert!(answer(result, what).is_nil(), "{what}");
            }
        }
        // What comes due is handed to those who wait where it is now; the others wait on.
        for (place, [one, many]) in &mut open.claims {
            match holds(*place) {
                Some(Queue) => {
                    let many = answer(many, what);
                    assert_eq!(many.list()[0].text(), place.1);
                    let mut got = vec![jobs(&answer(one, what))[0].text(), jobs(&many.list()[1])[0].text()];
                    got.sort_unstable();
                    assert_eq!(got, ["delayed", "lapses"], "{what}: {place:?}");
                }
                Some(Other) => {
                    assert_eq!(jobs(&answer(one, what))[0].text(), "other", "{what}: {place:?}");
                    assert!(!many.is_answered());
                }
                Some(Text) | None => {
                    assert!(!one.is_answered() && !many.is_answered(), "{what}: {place:?}");
                    let mut c = self.client(place.0);
                    cmd!(c, "CONFIG", "SET", "maxmemory", 0);
                    cmd!(c, "DEL", place.1);
                    enqueue(&mut c, place.1, "anew");
                    assert_eq!(jobs(&answer(one, what))[0].text(), "anew", "{what}: {place:?}");
                }
            }
        }
        if way.far {
            let mut c = self.far.client();
            assert_eq!(
                cmd!(c, "RQ.EXTEND", "q", "w", "LEASE", 3_600_000, "held", open.token).texts(),
                ["ok"]
            );
            assert_eq!(jobs(&answer(&mut open.far, what)).len(), 1);
            until_counts(&mut c, "q", Counts { ready: 1, active: 2, ..Counts::default() });
            assert_eq!(queues(&mut c), ["q"]);
        } else {
            assert!(!open.far.is_answered());
        }
        // The replica has it all, and both know every queue by its name and no other.
        let whole = |server: &Server| server.client().run(args!["DEBUG", "DIGEST"]).text();
        until(&format!("{what}: the replica holds the same"), || whole(&self.one) == whole(&self.replica));
        for db in [0, 1] {
            let (mut here, mut there) = (self.client(db), self.replica.client());
            cmd!(there, "SELECT", db);
            assert_eq!(queues(&mut here), queues(&mut there), "{what}");
            assert_eq!(queues(&mut here), keys(&mut here), "{what}");
        }
        for server in [&self.one, &self.replica] {
            let total: usize = [0, 1]
                .map(|db| {
                    let mut c = server.client();
                    cmd!(c, "SELECT", db);
                    queues(&mut c).len()
                })
                .iter()
                .sum();
            until(&format!("{what}: no stale name is kept"), || {
                server.info_number("rq_queues") == total as i64
            });
        }
        drop(open);
        for server in [&self.one, &self.replica, &self.far] {
            until_blocked(server, 0);
            assert_eq!(server.info_number("rq_waiting_clients"), 0, "{what}");
        }
    }
}

/// The next reply, which must come.
#[track_caller]
fn answer(client: &mut Client, what: &str) -> Reply {
    match client.read_within(PATIENCE) {
        Some(reply) => reply,
        None => panic!("{what}: no reply"),
    }
}

fn keys(c: &mut Client) -> Vec<String> {
    let mut keys = cmd!(c, "KEYS", "*").texts();
    keys.sort_unstable();
    keys
}

fn queues(c: &mut Client) -> Vec<String> {
    let mut names = cmd!(c, "RQ.QUEUES").list()[1].texts();
    names.sort_unstable();
    names
}

/// A job is handed to a worker that waits; in the same breath of the server its client is cut off, and the queue moves.
/// The job goes back at once, wherever the queue is by then.
fn an_undone_grant_follows_its_queue(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    for (how, db, name) in [
        ("", 0, "q"),
        ("RENAME q t", 0, "t"),
        ("MOVE q 1", 1, "q"),
        ("SWAPDB 0 1", 1, "q"),
        ("SWAPDB 1 0", 1, "q"),
        ("RENAME q t, MOVE t 1, SWAPDB 1 2", 2, "t"),
        ("RENAME q t, RENAME t q", 0, "q"),
        ("RENAME q t, RENAME o q", 0, "t"),
        ("COPY q t", 0, "q"),
    ] {
        cmd!(c, "FLUSHALL");
        enqueue(&mut c, "o", "other");
        let mut waiter = server.client();
        let id = waiter.id();
        send!(waiter, "RQ.CLAIM", "q", "w", "BLOCK", 0, "LEASE", 3_600_000);
        until_blocked(&server, 1);
        let mut calls = vec![args!["RQ.ENQUEUE", "q", "x", "ID", "j"], args!["CLIENT", "KILL", "ID", id]];
        for call in how.split(", ").filter(|call| !call.is_empty()) {
            calls.push(call.split(' ').map(|word| word.as_bytes().to_vec()).collect());
        }
        c.send_bytes(&calls.iter().flat_map(|call| encode(call)).collect::<Vec<u8>>());
        for _ in calls {
            assert!(!matches!(c.read(), Reply::Error(_)), "{how}");
        }
        let mut there = server.client();
        cmd!(there, "SELECT", db);
        until(&format!("{how}: the job is back"), || state(&mut there, name, "j") == "ready");
        assert_eq!(claim(&mut there, name, "w2").delivery, 1, "{how}: it was never handed out");
        until_blocked(&server, 0);
    }
}

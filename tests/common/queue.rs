//! The few steps that almost every test takes, as short words.

use std::collections::BTreeMap;

use super::{Client, Reply, Server, ToArg, eventually, until};

/// One delivery, as `RQ.CLAIM` replies it.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    pub id: Vec<u8>,
    pub token: String,
    pub payload: Vec<u8>,
    pub delivery: i64,
}

impl Job {
    #[track_caller]
    pub fn from(reply: &Reply) -> Self {
        let fields = reply.list();
        assert!(fields.len() >= 4, "a delivery has id, token, payload and delivery: {reply:?}");
        Self {
            id: fields[0].bytes().to_vec(),
            token: fields[1].text(),
            payload: fields[2].bytes().to_vec(),
            delivery: fields[3].int(),
        }
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.payload).into_owned()
    }
}

/// The deliveries in the reply to a claim; none for nil.
#[track_caller]
pub fn jobs(reply: &Reply) -> Vec<Job> {
    match reply {
        Reply::Nil => Vec::new(),
        reply => reply.list().iter().map(Job::from).collect(),
    }
}

#[track_caller]
pub fn enqueue(client: &mut Client, queue: &str, payload: impl ToArg) -> String {
    crate::cmd!(client, "RQ.ENQUEUE", queue, payload).text()
}

/// The ways in which the waiting job of the queue "q" can be gone, together with its queue or alone: see [`vanish`].
pub const VANISHINGS: [&str; 11] = [
    "PURGE", "DEL", "UNLINK", "SET", "FLUSHALL", "FLUSHDB", "RENAME", "MOVE", "SWAPDB", "PEXPIRE", "RESTORE",
];

/// Makes it go in one of the [`VANISHINGS`].
#[track_caller]
pub fn vanish(c: &mut Client, how: &str) {
    use crate::cmd;
    match how {
        "PURGE" => cmd!(c, "RQ.PURGE", "q", "ready"),
        "DEL" | "UNLINK" => cmd!(c, how, "q"),
        "SET" => cmd!(c, "SET", "q", "x"),
        "FLUSHALL" => cmd!(c, "FLUSHALL"),
        "FLUSHDB" => cmd!(c, "FLUSHDB", "ASYNC"),
        "RENAME" => cmd!(c, "RENAME", "q", "r"),
        "MOVE" => cmd!(c, "MOVE", "q", 1),
        "SWAPDB" => cmd!(c, "SWAPDB", 0, 1),
        "PEXPIRE" => cmd!(c, "PEXPIRE", "q", 1),
        "RESTORE" => {
            enqueue(c, "another", "y");
            let dump = cmd!(c, "DUMP", "another");
            cmd!(c, "RESTORE", "q", 0, dump.bytes(), "REPLACE")
        }
        other => panic!("no way: {other}"),
    };
}

/// Claims one job, which must be there.
#[track_caller]
pub fn claim(client: &mut Client, queue: &str, worker: &str) -> Job {
    try_claim(client, queue, worker).unwrap_or_else(|| panic!("nothing to claim in {queue}"))
}

#[track_caller]
pub fn try_claim(client: &mut Client, queue: &str, worker: &str) -> Option<Job> {
    jobs(&crate::cmd!(client, "RQ.CLAIM", queue, worker)).into_iter().next()
}

/// Claims one job with a lease of its own.
#[track_caller]
pub fn claim_for(client: &mut Client, queue: &str, worker: &str, lease: u64) -> Job {
    let reply = crate::cmd!(client, "RQ.CLAIM", queue, worker, "LEASE", lease);
    jobs(&reply).into_iter().next().unwrap_or_else(|| panic!("nothing to claim in {queue}"))
}

/// Claims until there is a job. Polls, so that what it waits for is not helped by a waiting worker.
#[track_caller]
pub fn claim_soon(client: &mut Client, queue: &str, worker: &str) -> Job {
    eventually("a job can be claimed", || try_claim(client, queue, worker))
}

#[track_caller]
pub fn ack(client: &mut Client, queue: &str, job: &Job) -> i64 {
    crate::cmd!(client, "RQ.ACK", queue, job.id, job.token).int()
}

/// What `RQ.JOB` tells, or nothing for an unknown job.
#[track_caller]
pub fn job(client: &mut Client, queue: &str, id: impl ToArg) -> Option<BTreeMap<String, Reply>> {
    match crate::cmd!(client, "RQ.JOB", queue, id) {
        Reply::Nil => None,
        map => Some(map.entries().into_iter().collect()),
    }
}

/// The state of a job; `gone` if there is no such job.
#[track_caller]
pub fn state(client: &mut Client, queue: &str, id: impl ToArg) -> String {
    job(client, queue, id).map_or("gone".into(), |map| map["state"].text())
}

/// All workers that the queue knows.
#[track_caller]
pub fn workers(client: &mut Client, queue: &str) -> Vec<Reply> {
    let mut workers = Vec::new();
    let mut cursor = "0".to_string();
    loop {
        let page = crate::cmd!(client, "RQ.WORKERS", queue, "CURSOR", cursor, "COUNT", 1000);
        workers.extend_from_slice(page.list()[1].list());
        cursor = page.list()[0].text();
        if cursor == "0" {
            return workers;
        }
    }
}

/// How many jobs are in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub delayed: i64,
    pub ready: i64,
    pub active: i64,
    pub done: i64,
    pub dead: i64,
    pub cancelled: i64,
}

impl Counts {
    /// From what `RQ.STATS` replied.
    #[track_caller]
    pub fn of(stats: &Reply) -> Self {
        let of = |state| stats.get(state).int();
        Self {
            delayed: of("delayed"),
            ready: of("ready"),
            active: of("active"),
            done: of("done"),
            dead: of("dead"),
            cancelled: of("cancelled"),
        }
    }

    pub fn sum(&self) -> i64 {
        self.delayed + self.ready + self.active + self.done + self.dead + self.cancelled
    }
}

#[track_caller]
pub fn counts(client: &mut Client, queue: &str) -> Counts {
    Counts::of(&crate::cmd!(client, "RQ.STATS", queue))
}

/// Waits until the queue has these counts.
#[track_caller]
pub fn until_counts(client: &mut Client, queue: &str, wanted: Counts) {
    let mut last = Counts::default();
    let start = std::time::Instant::now();
    while start.elapsed() < super::PATIENCE {
        last = counts(client, queue);
        if last == wanted {
            return;
        }
        std::thread::sleep(super::ms(5));
    }
    panic!("{queue} should have come to {wanted:?}, but has {last:?}");
}

/// Waits until so many clients wait in commands of this module or others.
#[track_caller]
pub fn until_blocked(server: &Server, clients: i64) {
    until(&format!("{clients} clients wait"), || server.info_number("blocked_clients") == clients);
}

/// Starts a claim on a connection of its own, and returns once the server has it waiting (or has answered it already,
/// if what it waits for came first).
#[track_caller]
pub fn waiting_claim(server: &Server, queue: &str, worker: &str, block: u64) -> Client {
    waiting_claim_with(server, queue, worker, block, &[])
}

#[track_caller]
pub fn waiting_claim_with(server: &Server, queue: &str, worker: &str, block: u64, more: &[&str]) -> Client {
    let before = server.info_number("blocked_clients");
    let mut client = server.client();
    let mut args = crate::args!["RQ.CLAIM", queue, worker, "BLOCK", block];
    args.extend(more.iter().map(|arg| arg.as_bytes().to_vec()));
    client.send(args);
    until("the claim waits", || client.is_answered() || server.info_number("blocked_clients") > before);
    client
}

/// Everything visible of a queue that an error must not change.
#[track_caller]
pub fn fingerprint(server: &Server, queue: &str) -> (String, Counts) {
    (server.digest(queue), counts(&mut server.client(), queue))
}

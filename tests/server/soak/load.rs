//! The clients of a soak: each in a thread of its own, each writing down what it did until its connection breaks. They
//! keep the jobs that they hold from one life of the server to the next, as workers do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::log::{Accepted, Act, Entry, Got, Moment, Order, Own, Said, Span, Tag, What, Who, serial};
use crate::args;
use crate::common::*;

/// The queues that all share.
pub const SHARED: [&str; 2] = ["a", "b"];

/// How many workers there are.
pub const WORKERS: usize = 3;

/// Jobs of one queue beyond which producers rest.
const CROWD: i64 = 250;

/// What the clients of one run share.
#[derive(Clone)]
pub struct World {
    pub start: Instant,
    pub tags: Arc<AtomicU64>,
    pub setup: Setup,
    /// The primary, and what is its replica, by their ports.
    pub port: u16,
    pub replica: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setup {
    AofAlways,
    AofEverySecond,
    RdbOnly,
    Promotion,
}

impl World {
    pub fn now(&self) -> Moment {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(Moment::MAX)
    }

    fn tag(&self) -> Tag {
        self.tags.fetch_add(1, Ordering::Relaxed)
    }
}

/// The payload of a job: its tag, and bytes that follow from it.
pub fn payload(tag: Tag) -> Vec<u8> {
    let mut dice = Dice(tag);
    let length = if dice.roll(60) == 0 { 3000 + dice.roll(9000) } else { dice.roll(120) };
    let mut bytes = format!("{tag}:").into_bytes();
    bytes.extend((0..length).map(|_| u8::try_from(dice.roll(256)).unwrap_or_default()));
    bytes
}

/// Whose payload this is, if not a byte of it has changed.
pub fn tag_of(bytes: &[u8]) -> Option<Tag> {
    let end = bytes.iter().position(|byte| *byte == b':')?;
    let tag = std::str::from_utf8(&bytes[..end]).ok()?.parse().ok()?;
    (payload(tag) == bytes).then_some(tag)
}

#[derive(Clone, Copy, Debug)]
pub enum Role {
    Producer,
    Worker(usize),
    Operator,
    Mover,
    Rude,
}

pub const ROLES: [Role; 8] = [
    Role::Producer,
    Role::Producer,
    Role::Worker(0),
    Role::Worker(1),
    Role::Worker(2),
    Role::Operator,
    Role::Mover,
    Role::Rude,
];

/// A job that a worker holds.
#[derive(Clone, Debug)]
struct Held {
    queue: String,
    tag: Tag,
    id: String,
    token: String,
    /// The queue keeps nothing of the job once it is done: its order said so.
    done_once: bool,
}

/// One client. It outlives its connections.
pub struct Hand {
    pub role: Role,
    dice: Dice,
    held: Vec<Held>,
    recent: Vec<(String, String, Tag)>,
    is_crowded: bool,
}

/// A client that is connected.
struct Line<'a> {
    hand: &'a mut Hand,
    world: &'a World,
    client: Client,
    log: Vec<Entry>,
}

/// The connection broke: the server is gone.
struct Broken;

type Step = Result<(), Broken>;

impl Hand {
    pub fn new(role: Role, seed: u64) -> Self {
        Self { role, dice: Dice(seed), held: Vec::new(), recent: Vec::new(), is_crowded: false }
    }

    /// Works until the server is gone, and gives what was written down.
    pub fn work(&mut self, world: &World) -> Vec<Entry> {
        let Some(client) = Client::try_connect(world.port) else { return Vec::new() };
        let mut line = Line { hand: self, world, client, log: Vec::new() };
        loop {
            let step = match line.hand.role {
                Role::Producer => line.produce(),
                Role::Worker(number) => line.labour(number),
                Role::Operator => line.operate(),
                Role::Mover => line.carry(),
                Role::Rude => line.misbehave(),
            };
            if step.is_err() {
                return line.log;
            }
        }
    }
}

impl Line<'_> {
    fn roll(&mut self, sides: u64) -> u64 {
        self.hand.dice.roll(sides)
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        let sides = u64::try_from(of.len()).unwrap_or_default();
        if sides == 0 {
            return None;
        }
        let at = usize::try_from(self.roll(sides)).unwrap_or_default();
        of.get(at).cloned()
    }

    fn shared(&mut self) -> &'static str {
        if self.roll(3) == 0 { SHARED[1] } else { SHARED[0] }
    }

    fn rest(&mut self, most_us: u64) {
        let time = self.roll(most_us);
        std::thread::sleep(std::time::Duration::from_micros(time));
    }

    /// Runs a call; its reply, unless the connection broke.
    fn call(&mut self, args: Vec<Vec<u8>>) -> (Span, Option<Reply>) {
        let sent = self.world.now();
        let reply = match self.client.try_send(args) {
            Ok(()) => self.client.try_read_within(PATIENCE).unwrap_or_default(),
            Err(_) => None,
        };
        let answered = reply.is_some().then(|| self.world.now());
        (Span { sent, answered, copied: false }, reply)
    }

    fn note(&mut self, span: Span, what: What) {
        self.log.push(Entry { span, what });
    }

    fn odd(&mut self, span: Span, what: &str, reply: &Reply) {
        self.note(span, What::Odd(format!("{what} was answered {reply:?}")));
    }

    /// Runs a call of which nothing need be known but that it is no error of a wrong kind.
    fn plain(&mut self, args: Vec<Vec<u8>>) -> Result<Reply, Broken> {
        let (_, reply) = self.call(args);
        reply.ok_or(Broken)
    }

    // --- producers ---

    fn order(&mut self) -> (Order, Vec<Vec<u8>>) {
        let mut order = Order::default();
        let mut args = Vec::new();
        if self.roll(4) == 0 {
            order.delay = self.roll(400);
            args.extend(args!["DELAY", order.delay]);
        }
        if self.roll(12) == 0 {
            let deadline = order.delay + 50 + self.roll(500);
            order.deadline = Some(deadline);
            args.extend(args!["DEADLINE", deadline]);
        }
        if self.roll(3) == 0 {
            args.extend(args!["PRIORITY", self.roll(4)]);
        }
        if self.roll(6) == 0 {
            let attempts = 1 + self.roll(3);
            order.attempts = Some(attempts);
            args.extend(args!["ATTEMPTS", attempts]);
        }
        if self.roll(6) == 0 {
            let crashes = self.roll(3);
            order.crashes = Some(crashes);
            args.extend(args!["CRASHES", crashes]);
        }
        if self.roll(4) == 0 {
            let lease = 40 + self.roll(500);
            order.lease = Some(lease);
            args.extend(args!["LEASE", lease]);
        }
        if self.roll(8) == 0 {
            let ttl = self.roll(3) * 500;
            order.ttl = Some(ttl);
            args.extend(args!["TTL", ttl]);
        }
        if self.roll(8) == 0 {
            args.extend(args!["BACKOFF", self.roll(20), 60]);
        }
        match self.roll(5) {
            0 => args.extend(args!["GROUP", "limited"]),
            1 => args.extend(args!["GROUP", "ordered", "TENANT", "t1"]),
            2 => args.extend(args![
                "GROUP",
                format!("g{}", self.roll(20)),
                "TENANT",
                format!("t{}", self.roll(3))
            ]),
            _ => {}
        }
        (order, args)
    }

    fn enqueue(&mut self, queue: &str) -> Step {
        let (mut order, options) = self.order();
        let mut args;
        let many = self.roll(5) == 0;
        let jobs: Vec<Tag> = (0..if many { 1 + self.roll(8) } else { 1 }).map(|_| self.world.tag()).collect();
        if many {
            args = args!["RQ.MENQUEUE", queue];
            args.extend(options);
            args.extend(args!["JOBS", jobs.len()]);
            args.extend(jobs.iter().map(|tag| payload(*tag)));
        } else {
            args = args!["RQ.ENQUEUE", queue, payload(jobs[0])];
            args.extend(options);
            if self.roll(10) == 0 {
                // No two queues share these, so that the id alone tells where the job is.
                let id = format!("own {queue} {}", self.roll(30));
                let how = self.pick(&[Own::Plain, Own::IfNew, Own::Replace]).unwrap_or(Own::Plain);
                args.extend(args!["ID", id]);
                match how {
                    Own::Plain => {}
                    Own::IfNew => args.extend(args!["IFNEW"]),
                    Own::Replace => args.extend(args!["REPLACE"]),
                }
                order.own = Some((id, how));
            }
        }
        let (span, reply) = self.call(args);
        let broken = reply.is_none();
        let said = match reply {
            None => Accepted::NoReply,
            Some(Reply::Error(error)) if error.word() == "EXISTS" && order.own.is_some() => Accepted::Refused,
            Some(Reply::Array(ids)) => Accepted::Ids(ids.iter().map(Reply::text).collect()),
            Some(Reply::Bulk(id)) => Accepted::Ids(vec![String::from_utf8_lossy(&id).into_owned()]),
            Some(other) => {
                self.odd(span, "enqueueing", &other);
                Accepted::Refused
            }
        };
        if let Accepted::Ids(ids) = &said {
            for (id, tag) in ids.iter().zip(&jobs) {
                self.hand.recent.push((queue.into(), id.clone(), *tag));
            }
            let surplus = self.hand.recent.len().saturating_sub(60);
            self.hand.recent.drain(..surplus);
        }
        self.note(span, What::Enqueue { queue: queue.into(), order, jobs, said });
        if broken { Err(Broken) } else { Ok(()) }
    }

    fn produce(&mut self) -> Step {
        let queue = self.shared();
        match self.roll(40) {
            0..=4 => {
                let stats = self.plain(args!["RQ.STATS", queue])?;
                if !matches!(stats, Reply::Error(_)) {
                    let now = Counts::of(&stats);
                    self.hand.is_crowded = now.ready + now.delayed > CROWD;
                }
            }
            6 | 7 => self.cancel()?,
            8 => {
                if let Some((queue, id, _)) = self.pick(&self.hand.recent.clone()) {
                    let delay = self.roll(50);
                    let (span, reply) = self.call(args!["RQ.RESCHEDULE", queue, id, "DELAY", delay]);
                    self.note(span, What::Reschedule { id });
                    reply.ok_or(Broken)?;
                }
            }
            9 => {
                if let Some((queue, id, tag)) = self.pick(&self.hand.recent.clone()) {
                    let own = serial(&id).is_none();
                    let block = 1 + self.roll(10);
                    let (span, reply) = self.call(args!["RQ.RESULT", queue, id, "BLOCK", block]);
                    let reply = reply.ok_or(Broken)?;
                    if !own {
                        self.note_result(span, tag, &reply);
                    }
                }
            }
            _ if self.hand.is_crowded => self.rest(10_000),
            _ => self.enqueue(queue)?,
        }
        self.wait_for_copies()?;
        self.rest(1_500);
        Ok(())
    }

    fn cancel(&mut self) -> Step {
        let Some((queue, id, _)) = self.pick(&self.hand.recent.clone()) else { return Ok(()) };
        let (span, reply) = self.call(args!["RQ.CANCEL", queue, id]);
        let said = match &reply {
            None => Said::NoReply,
            Some(Reply::Array(states)) if states.first().is_some_and(Reply::is_nil) => Said::Nothing,
            Some(Reply::Array(states)) if states.len() == 1 => Said::Yes(states[0].text()),
            Some(other) => {
                self.odd(span, "a cancel", other);
                Said::Nothing
            }
        };
        self.note(span, What::Cancel { id, said });
        reply.map(drop).ok_or(Broken)
    }

    fn note_result(&mut self, span: Span, tag: Tag, reply: &Reply) {
        match reply {
            Reply::Nil => {}
            Reply::Array(parts) if parts.len() == 3 => {
                let value = (!parts[1].is_nil()).then(|| parts[1].text());
                self.note(span, What::Result { tag, state: parts[0].text(), value });
            }
            other => self.odd(span, "a look at a result", other),
        }
    }

    /// Now and then, where there is a replica: everything before is on it once this is answered with 1.
    fn wait_for_copies(&mut self) -> Step {
        if self.world.replica.is_none() || self.roll(12) > 0 {
            return Ok(());
        }
        if self.plain(args!["WAIT", 1, 40])?.int() >= 1 {
            for entry in &mut self.log {
                entry.span.copied |= entry.span.answered.is_some();
            }
        }
        Ok(())
    }

    // --- workers ---

    /// Claims, and notes what came.
    fn claim(&mut self, worker: &str, queues: &[&str], options: Vec<Vec<u8>>, lease: Option<u64>) -> Step {
        let mut args = match queues {
            [queue] => args!["RQ.CLAIM", queue, worker],
            _ => {
                let mut args = args!["RQ.MCLAIM", queues.len()];
                args.extend(queues.iter().map(|queue| queue.to_arg()));
                args.extend(args![worker]);
                args
            }
        };
        args.extend(options);
        let (span, reply) = self.call(args);
        let (queue, jobs) = match &reply {
            None | Some(Reply::Nil) => (queues[0].to_string(), Vec::new()),
            Some(Reply::Array(_)) if queues.len() == 1 => {
                (queues[0].to_string(), jobs(reply.as_ref().unwrap()))
            }
            Some(Reply::Array(parts)) if parts.len() == 2 => (parts[0].text(), jobs(&parts[1])),
            Some(other) => {
                self.odd(span, "a claim", other);
                (queues[0].to_string(), Vec::new())
            }
        };
        let mut got = Vec::new();
        for job in jobs {
            let id = String::from_utf8_lossy(&job.id).into_owned();
            let (Some(tag), Some(token)) = (tag_of(&job.payload), serial(&job.token)) else {
                self.note(
                    span,
                    What::Odd(format!("{id} was delivered with another payload or token: {job:?}")),
                );
                continue;
            };
            let held = Held { queue: queue.clone(), tag, id: id.clone(), token: job.token, done_once: false };
            self.hand.held.push(held);
            got.push(Got { queue: queue.clone(), tag, id, token, number: job.delivery });
        }
        self.note(span, What::Claim { worker: worker.into(), lease, got });
        reply.map(drop).ok_or(Broken)
    }

    fn labour(&mut self, number: usize) -> Step {
        let worker = format!("w{number}");
        if self.hand.held.len() < 5 || self.roll(4) == 0 {
            let mut options = args!["COUNT", 1 + self.roll(4)];
            let mut lease = None;
            if self.roll(3) > 0 {
                options.extend(args!["BLOCK", 5 + self.roll(60)]);
            }
            if self.roll(3) == 0 {
                lease = Some(40 + self.roll(700));
                options.extend(args!["LEASE", lease.unwrap_or_default()]);
            }
            let queue = self.shared();
            let queues: &[&str] = if self.roll(4) == 0 { &SHARED } else { &[queue] };
            self.claim(&worker, queues, options, lease)?;
        }
        if !self.hand.held.is_empty() {
            let at = self.roll(u64::try_from(self.hand.held.len()).unwrap_or(1));
            let held = self.hand.held.swap_remove(usize::try_from(at).unwrap_or_default());
            self.treat(&worker, held)?;
        }
        self.wait_for_copies()?;
        self.rest(300);
        Ok(())
    }

    /// Does something with a job; keeps it, if it still has it after that, or does not know.
    fn treat(&mut self, worker: &str, mut held: Held) -> Step {
        let (queue, id, token) = (held.queue.clone(), held.id.clone(), held.token.clone());
        let (act, args) = match self.roll(32) {
            0..=9 => {
                let ttl = (self.roll(3) == 0).then(|| self.roll(1_500));
                let mut args = args!["RQ.ACK", queue, id, token, "RESULT", token];
                if let Some(ttl) = ttl {
                    args.extend(args!["TTL", ttl]);
                }
                (Act::Ack { value: true, ttl }, args)
            }
            10..=14 => (Act::Ack { value: false, ttl: None }, args!["RQ.ACK", queue, id, token]),
            15 | 16 => (Act::Fail { counted: true }, args!["RQ.FAIL", queue, id, token, "ERROR", "soak"]),
            17 => (Act::Fail { counted: true }, args!["RQ.FAIL", queue, id, token, "RETRY", self.roll(80)]),
            18 => (Act::Fail { counted: true }, args!["RQ.FAIL", queue, id, token, "DEAD"]),
            19 => (Act::Fail { counted: false }, args!["RQ.FAIL", queue, id, token, "UNAVAILABLE"]),
            20 => {
                (Act::Fail { counted: false }, args!["RQ.FAIL", queue, id, token, "THROTTLED", self.roll(30)])
            }
            21..=23 => (Act::Release, args!["RQ.RELEASE", queue, id, token]),
            24..=26 => {
                let lease = 30 + self.roll(600);
                (Act::Extend { lease }, args!["RQ.EXTEND", queue, worker, "LEASE", lease, id, token])
            }
            27 | 28 => (Act::Progress, args!["RQ.PROGRESS", queue, id, token, "half"]),
            29 => {
                // Not now; maybe only after its lease.
                self.hand.held.insert(0, held);
                return Ok(());
            }
            // Forgotten: it lapses.
            _ => return Ok(()),
        };
        let (span, reply) = self.call(args);
        let said = self.said(span, &act, reply.as_ref());
        let entry = What::Act {
            tag: held.tag,
            token: serial(&token).unwrap_or_default(),
            act: act.clone(),
            said: said.clone(),
        };
        self.note(span, entry);
        let is_ack = matches!(act, Act::Ack { .. });
        if is_ack && said.is_yes() && !held.done_once && self.roll(3) == 0 {
            let (span, reply) = self.call(args!["RQ.RESULT", queue, id]);
            if let (Some(reply), Some(_)) = (&reply, serial(&id)) {
                self.note_result(span, held.tag, reply);
            }
            if reply.is_none() {
                return Err(Broken);
            }
        }
        // After a broken connection the same is tried again; after a success now and then too, which must do nothing.
        let again =
            said == Said::NoReply || (is_ack && said.is_yes() && !held.done_once && self.roll(6) == 0);
        let still = !act.ends() && said.is_yes() || !said.is_yes() && self.roll(10) == 0;
        if again || still {
            held.done_once |= is_ack && said.is_yes();
            self.hand.held.push(held);
        }
        if said == Said::NoReply { Err(Broken) } else { Ok(()) }
    }

    fn said(&mut self, span: Span, act: &Act, reply: Option<&Reply>) -> Said {
        let odd = |line: &mut Self, reply: &Reply| {
            line.odd(span, &format!("{act:?}"), reply);
            Said::Nothing
        };
        match (act, reply) {
            (_, None) => Said::NoReply,
            (Act::Ack { .. }, Some(Reply::Int(1))) => Said::Yes("1".into()),
            (Act::Ack { .. }, Some(Reply::Int(0))) => Said::Nothing,
            (Act::Fail { .. } | Act::Progress, Some(Reply::Status(word))) => Said::Yes(word.clone()),
            (Act::Release | Act::Extend { .. }, Some(Reply::Array(words))) if words.len() == 1 => {
                match words[0].text().as_str() {
                    "lost" => Said::Stale,
                    word => Said::Yes(word.into()),
                }
            }
            (Act::Ack { .. } | Act::Fail { .. } | Act::Progress, Some(Reply::Error(error))) => {
                match error.word().as_str() {
                    "STALE" => Said::Stale,
                    "NOJOB" | "NOQUEUE" => Said::Nothing,
                    _ => odd(self, &Reply::Error(error.clone())),
                }
            }
            (_, Some(other)) => odd(self, other),
        }
    }

    // --- the operator ---

    fn operate(&mut self) -> Step {
        let queue = self.shared();
        match self.roll(24) {
            0 | 1 => {
                let name = format!("w{}", self.roll(u64::try_from(WORKERS).unwrap_or(1)));
                let (who, mut args) = match self.roll(4) {
                    0 => (Who::Anybody, args!["RQ.RECOVER", queue]),
                    1 => (Who::Except(name.clone()), args!["RQ.RECOVER", queue, "EXCEPT", 1, name]),
                    2 => (Who::Anybody, args!["RQ.RECOVER", queue, "IDLE", 30]),
                    _ => (Who::Worker(name.clone()), args!["RQ.RECOVER", queue, "WORKERS", 1, name]),
                };
                args.extend(args!["COUNT", 1 + self.roll(5)]);
                let (span, reply) = self.call(args);
                self.note(span, What::Recover { queue: queue.into(), who });
                reply.ok_or(Broken)?;
            }
            2 | 3 => {
                let count = 1 + self.roll(10);
                let (span, reply) = self.call(args!["RQ.REDRIVE", queue, "ALL", "COUNT", count]);
                self.note(span, What::Redrive { queue: queue.into() });
                reply.ok_or(Broken)?;
            }
            4..=7 => {
                let state = self.pick(&["done", "cancelled", "dead"]).unwrap_or("done");
                self.purge(queue, state)?;
            }
            8 => {
                let time = 1 + self.roll(25);
                self.plain(args!["RQ.PAUSE", queue, "FOR", time])?;
            }
            9 => drop(self.plain(args!["RQ.RESUME", queue])?),
            10 => drop(self.plain(args!["RQ.RESUME", queue, "GROUP", "limited"])?),
            11 => {
                let span = Span { sent: self.world.now(), answered: None, copied: false };
                let stats = self.plain(args!["RQ.STATS", queue])?;
                if !matches!(stats, Reply::Error(_)) {
                    let totals = stats.get("totals");
                    let sum = Counts::of(&stats).sum() + totals.get("removed").int();
                    if totals.get("enqueued").int() != sum {
                        self.odd(span, "the sum of all jobs", &stats);
                    }
                }
            }
            12 if self.roll(3) == 0 => match self.world.setup {
                Setup::AofAlways | Setup::AofEverySecond => drop(self.plain(args!["BGREWRITEAOF"])?),
                Setup::RdbOnly => {}
                Setup::Promotion => drop(self.plain(args!["CLIENT", "KILL", "TYPE", "replica"])?),
            },
            13..=15 if self.world.setup == Setup::RdbOnly => self.save()?,
            16 if self.roll(8) == 0 => self.compare_with_replica()?,
            _ => {}
        }
        self.rest(20_000);
        Ok(())
    }

    /// In one transaction with a look at what there is to be purged.
    fn purge(&mut self, queue: &str, state: &'static str) -> Step {
        self.plain(args!["MULTI"])?;
        self.plain(args!["RQ.LIST", queue, state, "COUNT", 1_000])?;
        self.plain(args!["RQ.PURGE", queue, state, "COUNT", 1_000])?;
        let (span, reply) = self.call(args!["EXEC"]);
        let listed = reply.as_ref().map(|reply| reply.list()[0].list().to_vec());
        let is_whole = listed.as_ref().is_some_and(|page| page[0].text() == "0");
        let ids = listed
            .filter(|_| is_whole)
            .map(|page| page[1].list().iter().map(|job| job.get("id").text()).collect());
        self.note(span, What::Purge { queue: queue.into(), state, ids });
        reply.map(drop).ok_or(Broken)
    }

    fn info(&mut self, name: &str) -> Result<String, Broken> {
        let reply = self.plain(args!["INFO", "everything"])?;
        let text = String::from_utf8_lossy(reply.bytes()).into_owned();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        Ok(line.unwrap_or_default().trim().to_string())
    }

    fn save(&mut self) -> Step {
        let (span, reply) = self.call(args!["BGSAVE"]);
        self.note(span, What::Save);
        reply.ok_or(Broken)?;
        while self.info("rdb_bgsave_in_progress")? != "0" {
            self.rest(3_000);
        }
        if self.info("rdb_last_bgsave_status")? == "ok" {
            let now = Span { sent: self.world.now(), answered: None, copied: false };
            self.note(now, What::Saved { asked: span.sent });
        }
        Ok(())
    }

    /// With writes held up and the replica up to date, every queue is the same on both.
    fn compare_with_replica(&mut self) -> Step {
        let Some(port) = self.world.replica else { return Ok(()) };
        let Some(mut other) = Client::try_connect(port) else { return Ok(()) };
        let mut ask = |args: Vec<Vec<u8>>| -> Option<Reply> {
            other.try_send(args).ok()?;
            other.try_read_within(PATIENCE).ok()?
        };
        let sent = self.world.now();
        self.plain(args!["CLIENT", "PAUSE", 400, "WRITE"])?;
        let span = Span { sent, answered: None, copied: false };
        // Where both are, if the replica has everything and is a replica still.
        let mut place = |line: &mut Self| -> Result<Option<String>, Broken> {
            let offset = line.info("master_repl_offset")?;
            let Some(Reply::Bulk(info)) = ask(args!["INFO", "replication"]) else { return Ok(None) };
            let info = String::from_utf8_lossy(&info).into_owned();
            let is_there = info.contains(&format!("slave_repl_offset:{offset}\r"));
            Ok((is_there && info.contains("master_link_status:up")).then_some(offset))
        };
        let mut before = None;
        while before.is_none() && self.world.now() < sent + 300_000 {
            before = place(self)?;
            if before.is_none() {
                self.rest(3_000);
            }
        }
        if before.is_some() {
            let names = self.plain(args!["RQ.QUEUES"])?.list()[1].texts();
            let mut args = args!["DEBUG", "DIGEST-VALUE"];
            args.extend(names.iter().map(|name| name.to_arg()));
            let mine = self.plain(args.clone())?;
            let theirs = Client::try_connect(port).and_then(|mut other| {
                other.try_send(args).ok()?;
                other.try_read_within(PATIENCE).ok()?
            });
            // Only if nothing was written meanwhile, and nobody promoted the replica.
            let is_same_place = place(self)? == before && self.world.now() < sent + 390_000;
            if is_same_place && theirs.as_ref().is_some_and(|theirs| *theirs != mine) {
                let text = format!("queues differ: {mine:?} on the primary, {theirs:?} on its replica");
                self.note(span, What::Odd(text));
            }
        }
        self.plain(args!["CLIENT", "UNPAUSE"])?;
        Ok(())
    }

    // --- the one whose queue moves about ---

    /// It works on a queue of its own, so it knows where that is; after a crash it looks.
    fn carry(&mut self) -> Step {
        let names = self.plain(args!["RQ.QUEUES", "MATCH", "m*", "COUNT", 1000])?.list()[1].texts();
        let queue = names.first().cloned().unwrap_or_else(|| "m1".into());
        let span = Span { sent: self.world.now(), answered: None, copied: false };
        if names.len() > 1 {
            self.note(span, What::Odd(format!("the queue is here more than once: {names:?}")));
        }
        for held in &mut self.hand.held {
            held.queue.clone_from(&queue);
        }
        match self.roll(8) {
            0..=2 => self.enqueue(&queue)?,
            3 | 4 => {
                self.claim("mover", &[&queue], args!["COUNT", 2], None)?;
            }
            5 | 6 => {
                if let Some(held) = self.hand.held.pop() {
                    self.treat("mover", held)?;
                }
            }
            _ if !names.is_empty() => self.move_it(&queue)?,
            _ => {}
        }
        self.rest(4_000);
        Ok(())
    }

    fn move_it(&mut self, queue: &str) -> Step {
        let next = format!("m{}", 1 + self.roll(1_000));
        if next == queue {
            return Ok(());
        }
        match self.roll(4) {
            0 => drop(self.plain(args!["RENAME", queue, next])?),
            1 => {
                self.plain(args!["MULTI"])?;
                self.plain(args!["COPY", queue, next])?;
                self.plain(args!["DEBUG", "DIGEST-VALUE", queue, next])?;
                self.plain(args!["DEL", queue])?;
                let reply = self.plain(args!["EXEC"])?;
                let digests = reply.list()[1].texts();
                if digests[0] != digests[1] {
                    let span = Span { sent: self.world.now(), answered: None, copied: false };
                    self.odd(span, "a copy of the same queue", &reply);
                }
            }
            2 => {
                self.plain(args!["MULTI"])?;
                self.plain(args!["MOVE", queue, 1])?;
                self.plain(args!["SELECT", 1])?;
                self.plain(args!["MOVE", queue, 0])?;
                self.plain(args!["SELECT", 0])?;
                self.plain(args!["EXEC"])?;
            }
            _ => {
                let Reply::Bulk(bytes) = self.plain(args!["DUMP", queue])? else { return Ok(()) };
                // What came due meanwhile comes due again in the restored one.
                self.plain(args!["MULTI"])?;
                self.plain(args!["DEL", queue])?;
                self.plain(args!["RESTORE", next, 0, bytes])?;
                self.plain(args!["EXEC"])?;
            }
        }
        Ok(())
    }

    // --- one that goes away without a word ---

    fn misbehave(&mut self) -> Step {
        let Some(mut client) = Client::try_connect(self.world.port) else { return Err(Broken) };
        let queue = self.shared();
        let worker = format!("rude{}", self.roll(3));
        let mut args = args!["RQ.CLAIM", queue, worker, "LEASE", 30 + self.roll(100)];
        args.extend(args!["BLOCK", 1 + self.roll(60)]);
        if client.try_send(args).is_err() {
            return Err(Broken);
        }
        self.rest(25_000);
        if self.roll(2) == 0 {
            // It dies with the reply on its way; otherwise it is still there, and reads nothing.
            drop(client);
        } else {
            let _ = client.try_read_within(ms(1));
        }
        self.rest(25_000);
        Ok(())
    }
}

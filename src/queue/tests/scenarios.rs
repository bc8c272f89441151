//! Stories: text files in `scenarios/`, read by people and run here.
//!
//! A paragraph that has a line `----` in it is a case: commands above, their replies below, one line
//! each. Every other paragraph is prose. `RQ_REWRITE=1` writes what was replied into the files; look
//! at the difference before you believe it.
//!
//! Commands are those of the module, without the name of the queue. Beside them:
//! - `at 5s`: time passes until 5 s after the start, and whatever comes due on the way is settled at
//!   its instant, as the timer does; `late 5s`: time jumps there, and only then all is settled;
//!   `frozen 5s`: time jumps, and nothing is settled (a timer that has not come round yet);
//! - `wall +1h`, `wall -1h`: the wall clock steps; no time passes;
//! - `reload`: the queue is saved and loaded again; `new`: a fresh queue, at the start of time;
//! - `READ` shows `[next [chunks] run ended]`;
//! - `UNDO id token`: a grant never reached its worker; `REGISTER worker`; `FORGET worker`;
//! - `ORDER`: the ready jobs, group by group as they will be claimed; `LINE`: how many groups stand in line;
//!   `WAKEUP`: when the timer is to fire; `SEEN`: when each
//!   worker gave its last sign of life.
//!
//! Jobs that got their id from the queue are called `j1`, `j2` …, tokens `t1`, `t2` …, in the order in
//! which they came. Instants are ms since the start, durations ms; `5s`, `2m`, `1h`, `30d` will do.

use std::collections::HashMap;
use std::fmt::Write;
use std::path::PathBuf;

use super::harness::{Answer, Twin};
use crate::queue::limits;
use crate::queue::{
    Backoff, Cancel, Claim, Delivery, Enqueue, Error, Failure, GroupName, GroupPatch, GroupView, Held, Hold,
    Holder, Id, IfExists, JobOptions, JobView, Op, Outcome, Payloads, Place, Rate, Reading, Recover, Scope,
    Serial, Settings, SettingsPatch, Slot, Stamp, Start, State, TenantPatch, Unique, Until, When, Who,
};

const START: u64 = 1_000_000;
const WALL: u64 = 1_700_000_000_000;

struct Stage {
    twin: Twin,
    clock: Stamp,
    /// Ids of the queue's own making, by the names that the story knows them by; and back.
    jobs: Vec<Serial>,
    tokens: Vec<Serial>,
}

type Words<'w> = std::iter::Peekable<std::slice::Iter<'w, Vec<u8>>>;

impl Stage {
    fn new() -> Self {
        let clock = Stamp { now: START, wall: WALL, serial: Serial::NONE };
        Self { twin: Twin::new(Settings::default(), clock), clock, jobs: Vec::new(), tokens: Vec::new() }
    }

    /// Runs one line. `None`: it has no reply.
    fn line(&mut self, line: &str) -> Result<Option<String>, String> {
        let words = split(line)?;
        let mut words = words.iter().peekable();
        let verb = text(&mut words)?;
        let reply = match verb.as_str() {
            "at" | "late" | "frozen" => {
                self.pass_time(&verb, START + duration(&mut words)?)?;
                None
            }
            "wall" => {
                let step = text(&mut words)?;
                let length = parse_duration(&step[1..])?;
                self.clock.wall =
                    if step.starts_with('-') { self.clock.wall - length } else { self.clock.wall + length };
                self.settle()?;
                None
            }
            "reload" => {
                self.twin.reload()?;
                None
            }
            "new" => {
                *self = Self::new();
                None
            }
            _ => Some(self.command(&verb, &mut words)?),
        };
        match words.next() {
            Some(word) => Err(format!("left over: {}", word.escape_ascii())),
            None => Ok(reply),
        }
    }

    fn pass_time(&mut self, how: &str, until: u64) -> Result<(), String> {
        if until < self.clock.now {
            return Err("time does not go back".into());
        }
        if how == "at" {
            let mut wakeups = 0;
            while let Some(at) = self.twin.queue.next_wakeup().filter(|&at| at <= until) {
                wakeups += 1;
                if wakeups > 10_000 {
                    return Err("the timer spins".into());
                }
                let passed = at.saturating_sub(self.clock.now);
                self.clock.now += passed;
                self.clock.wall += passed;
                self.settle()?;
            }
        }
        let passed = until - self.clock.now;
        self.clock.now += passed;
        self.clock.wall += passed;
        if how == "frozen" { Ok(()) } else { self.settle() }
    }

    fn settle(&mut self) -> Result<(), String> {
        self.twin.apply(&Op::Clock(self.clock))?;
        self.twin.apply(&Op::Sweep { limit: 1_000 }).map(|_| ())
    }

    fn id<'a>(&self, name: &'a [u8]) -> Id<'a> {
        match number_of(b'j', name) {
            Some(number) => Id::Serial(self.jobs.get(number - 1).copied().unwrap_or(Serial(u64::MAX))),
            None => Id::parse(name),
        }
    }

    fn token(&self, name: &[u8]) -> Serial {
        number_of(b't', name).and_then(|number| self.tokens.get(number - 1).copied()).unwrap_or(Serial::NONE)
    }

    fn show_id(&self, id: Id<'_>) -> String {
        match id {
            Id::Serial(serial) => self
                .jobs
                .iter()
                .position(|&job| job == serial)
                .map_or("?".into(), |at| format!("j{}", at + 1)),
            Id::Custom(bytes) => bytes.escape_ascii().to_string(),
        }
    }

    fn show_ids(&self, slots: &[Slot]) -> String {
        let ids: Vec<String> =
            slots.iter().map(|&slot| self.show_id(self.twin.queue.job(slot).unwrap().id())).collect();
        format!("[{}]", ids.join(" "))
    }

    fn deliveries<'a>(&self, words: &mut Words<'a>) -> Result<Vec<Delivery<'a>>, String> {
        let mut deliveries = Vec::new();
        while words.peek().is_some() {
            deliveries.push(self.delivery(words)?);
        }
        Ok(deliveries)
    }

    fn delivery<'a>(&self, words: &mut Words<'a>) -> Result<Delivery<'a>, String> {
        let id = self.id(word(words)?);
        Ok(Delivery { id, token: self.token(word(words)?) })
    }

    fn ids<'a>(&self, words: &mut Words<'a>) -> Vec<Id<'a>> {
        words.by_ref().map(|name| self.id(name)).collect()
    }

    fn command<'a>(&mut self, verb: &str, words: &mut Words<'a>) -> Result<String, String> {
        let op = match verb {
            "ENQUEUE" | "MENQUEUE" => self.parse_enqueue(verb == "MENQUEUE", words)?,
            "CLAIM" => {
                let mut claim = Claim { worker: word(words)?, count: 1, lease: None };
                while words.peek().is_some() {
                    match text(words)?.as_str() {
                        "COUNT" => claim.count = number(words)? as usize,
                        "LEASE" => claim.lease = Some(duration(words)?),
                        other => return Err(format!("no option of CLAIM: {other}")),
                    }
                }
                Op::Claim(claim)
            }
            "REGISTER" => Op::Register { worker: word(words)? },
            "FORGET" => Op::Forget { workers: words.by_ref().map(Vec::as_slice).collect() },
            "UNDO" => Op::Undo { grants: self.deliveries(words)? },
            "RELEASE" => Op::Release { deliveries: self.deliveries(words)? },
            "ACK" => {
                let (delivery, mut result, mut ttl) = (self.delivery(words)?, None, None);
                while words.peek().is_some() {
                    match text(words)?.as_str() {
                        "RESULT" => result = Some(word(words)?),
                        "TTL" => ttl = Some(limit(words)?),
                        other => return Err(format!("no option of ACK: {other}")),
                    }
                }
                Op::Ack { delivery, result, ttl }
            }
            "FAIL" => {
                let (delivery, mut error, mut how) = (self.delivery(words)?, None, Failure::Retry);
                while words.peek().is_some() {
                    match text(words)?.as_str() {
                        "ERROR" => error = Some(word(words)?),
                        "RETRY" => how = Failure::RetryAfter(duration(words)?),
                        "DEAD" => how = Failure::Dead,
                        "UNAVAILABLE" => how = Failure::Unavailable,
                        "THROTTLED" => how = Failure::Throttled(duration(words)?),
                        other => return Err(format!("no option of FAIL: {other}")),
                    }
                }
                Op::Fail { delivery, error, how }
            }
            "EXTEND" => {
                let worker = word(words)?;
                keyword(words, "LEASE")?;
                let lease = duration(words)?;
                Op::Extend { worker, lease, deliveries: self.deliveries(words)? }
            }
            "PROGRESS" => Op::Progress { delivery: self.delivery(words)?, value: word(words)? },
            "EMIT" => Op::Emit { delivery: self.delivery(words)?, chunk: word(words)? },
            "RECOVER" => self.parse_recover(words)?,
            "CANCEL" => Op::Cancel { ids: self.ids(words) },
            "RESCHEDULE" => {
                let (id, mut when, mut priority) = (self.id(word(words)?), None, None);
                while words.peek().is_some() {
                    match text(words)?.as_str() {
                        "DELAY" => when = Some(When::Delay(duration(words)?)),
                        "AT" => when = Some(When::At(WALL + duration(words)?)),
                        "PRIORITY" => priority = Some(number(words)? as u8),
                        other => return Err(format!("no option of RESCHEDULE: {other}")),
                    }
                }
                Op::Reschedule { id, when, priority }
            }
            "REDRIVE" if words.peek().is_some_and(|word| *word == b"ALL") => {
                words.next();
                Op::RedriveAll { count: count(words)? }
            }
            "REDRIVE" => Op::Redrive { ids: self.ids(words) },
            "PURGE" => Op::Purge { state: state(words)?, count: count(words)? },
            "PAUSE" => Op::Pause { scope: scope(words)?, length: optional(words, "FOR", duration)? },
            "RESUME" => Op::Resume { scope: scope(words)? },
            "QUEUE.SET" => Op::Set(parse_settings(words)?),
            "GROUP.SET" => {
                let name = group(words)?;
                Op::SetGroup { name, patch: parse_group(words)? }
            }
            "TENANT.SET" => {
                let name = word(words)?;
                Op::SetTenant { name, patch: parse_tenant(words)? }
            }
            _ => return self.look(verb, words),
        };
        let answer = self.twin.apply_at(self.clock, &op)?;
        if let Ok(Outcome::Enqueued { first, count }) = answer.result {
            // A custom id is the job's id; the number it got all the same is of no use to anybody.
            if !matches!(&op, Op::Enqueue(Enqueue { id: Some(_), .. })) {
                self.jobs.extend((0..count as u64).map(|n| Serial(first.0 + n)));
            }
        }
        for &slot in &answer.claimed {
            self.tokens.push(self.twin.queue.job(slot).unwrap().token());
        }
        Ok(self.show(&op, &answer))
    }

    fn parse_enqueue<'a>(&self, many: bool, words: &mut Words<'a>) -> Result<Op<'a>, String> {
        let mut payloads = Payloads::One(b"");
        if !many {
            payloads = Payloads::One(word(words)?);
        }
        let (mut id, mut group, mut when, mut priority) = (None, GroupName::default(), None, 0);
        let (mut options, mut unique) = (JobOptions::default(), None);
        while words.peek().is_some() {
            match text(words)?.as_str() {
                "UNIQUE" => unique = Some(Box::new(parse_unique(words)?)),
                "ID" => id = Some((word(words)?, IfExists::Refuse)),
                "GROUP" => group.group = word(words)?,
                "TENANT" => group.tenant = word(words)?,
                "IFNEW" => id = id.map(|(id, _)| (id, IfExists::Keep)),
                "REPLACE" => id = id.map(|(id, _)| (id, IfExists::Replace)),
                "DELAY" => when = Some(When::Delay(duration(words)?)),
                "AT" => when = Some(When::At(WALL + duration(words)?)),
                "PRIORITY" => priority = number(words)? as u8,
                "ATTEMPTS" => options.attempts = Some(limit(words)?.map(|n| n as u32)),
                "CRASHES" => options.crashes = Some(limit(words)?.map(|n| n as u32)),
                "BACKOFF" => options.backoff = Some(backoff(words)?),
                "LEASE" => options.lease = Some(duration(words)?),
                "TTL" => options.ttl = Some(limit(words)?),
                "DEADLINE" => options.deadline = Some(duration(words)?),
                "JOBS" if many => {
                    let jobs = number(words)?;
                    payloads = Payloads::Many((0..jobs).map(|_| word(words)).collect::<Result<_, _>>()?);
                }
                other => return Err(format!("no option of ENQUEUE: {other}")),
            }
        }
        Ok(Op::Enqueue(Enqueue { payloads, id, unique, group, when, priority, options }))
    }

    fn parse_recover<'a>(&self, words: &mut Words<'a>) -> Result<Op<'a>, String> {
        let mut recover = Recover { who: Who::Lapsed, before: None, count: 1_000, counted: true };
        while words.peek().is_some() {
            let option = text(words)?;
            match option.as_str() {
                "WORKERS" | "EXCEPT" => {
                    let names = number(words)?;
                    let names = (0..names).map(|_| word(words)).collect::<Result<Vec<_>, _>>()?;
                    recover.who = if option == "EXCEPT" { Who::Except(names) } else { Who::Named(names) };
                }
                "BEFORE" => recover.before = Some(WALL + duration(words)?),
                "COUNT" => recover.count = number(words)? as usize,
                "UNCOUNTED" => recover.counted = false,
                other => return Err(format!("no option of RECOVER: {other}")),
            }
        }
        Ok(Op::Recover(recover))
    }

    fn show(&self, op: &Op<'_>, answer: &Answer) -> String {
        let words = |words: Vec<String>| words.join(" ");
        let queue = &self.twin.queue;
        match &answer.result {
            Err(Error::NoJob) => "NOJOB".into(),
            Err(Error::Stale) => "STALE".into(),
            Err(Error::Full | Error::OutputFull) => "FULL".into(),
            Err(Error::Exists(state)) => format!("EXISTS {}", state.name()),
            Err(Error::BadState(state)) => format!("BADSTATE {}", state.name()),
            Err(Error::BeyondDeadline(length)) => format!("ERR not within the deadline in {length}"),
            Err(Error::TooMany) => "ERR too many".into(),
            Ok(Outcome::Done) => "OK".into(),
            Ok(Outcome::Enqueued { first, count }) => match op {
                Op::Enqueue(Enqueue { id: Some((id, _)), .. }) => self.show_id(Id::Custom(id)),
                Op::Enqueue(Enqueue { payloads: Payloads::One(_), .. }) => self.show_id(Id::Serial(*first)),
                _ => {
                    let ids = (0..*count as u64).map(|n| self.show_id(Id::Serial(Serial(first.0 + n))));
                    format!("[{}]", words(ids.collect()))
                }
            },
            Ok(Outcome::Existed) => match op {
                Op::Enqueue(Enqueue { id: Some((id, _)), .. }) => self.show_id(Id::Custom(id)),
                _ => "?".into(),
            },
            Ok(Outcome::Duplicate { id, replaced }) => {
                let word = if *replaced { "replaced" } else { "duplicate" };
                format!("{} {word}", self.show_id(Id::parse(id)))
            }
            Ok(Outcome::Claimed) if answer.claimed.is_empty() => "nil".into(),
            Ok(Outcome::Claimed) => words(
                answer
                    .claimed
                    .iter()
                    .map(|&slot| {
                        let job = queue.job(slot).unwrap();
                        let token = self.tokens.iter().position(|&token| token == job.token()).unwrap() + 1;
                        let payload = job.payload().escape_ascii();
                        format!("[{} t{token} \"{payload}\" {}]", self.show_id(job.id()), job.deliveries())
                    })
                    .collect(),
            ),
            Ok(Outcome::Cancelled(answers)) => words(
                answers
                    .iter()
                    .map(|answer| match answer {
                        Cancel::Cancelled => "cancelled".into(),
                        Cancel::Cancelling => "cancelling".into(),
                        Cancel::Ended(state) => state.name().into(),
                        Cancel::Unknown => "nil".into(),
                    })
                    .collect(),
            ),
            Ok(Outcome::State(state)) => state.name().into(),
            Ok(Outcome::Acked(finished)) => u8::from(*finished).to_string(),
            Ok(Outcome::Held(answers)) => words(answers.iter().map(|&held| show_held(held).into()).collect()),
            Ok(Outcome::Progressed(held)) => show_held(*held).into(),
            Ok(Outcome::Recovered(recovered)) => {
                let by_worker = recovered
                    .by_worker
                    .iter()
                    .map(|(name, taken)| format!("{}:{taken}", name.escape_ascii()));
                format!("[{} {} {{{}}}]", recovered.taken, recovered.remaining, words(by_worker.collect()))
            }
            Ok(Outcome::Redriven(states)) => {
                words(states.iter().map(|state| state.map_or("nil", State::name).into()).collect())
            }
            Ok(Outcome::Bulk { taken, remaining }) => format!("[{taken} {remaining}]"),
            Ok(Outcome::Swept(_)) => "OK".into(),
        }
    }

    /// Commands that only look.
    fn look(&self, verb: &str, words: &mut Words<'_>) -> Result<String, String> {
        let queue = &self.twin.queue;
        Ok(match verb {
            "RESULT" => match queue.find(self.id(word(words)?)).and_then(|slot| queue.job(slot)) {
                None => "nil".into(),
                Some(job) => {
                    let value =
                        job.value().map_or("nil".into(), |value| format!("\"{}\"", value.escape_ascii()));
                    let ttl = job.ttl().map_or("-1".into(), |ttl| ttl.to_string());
                    format!("[{} {value} {ttl}]", job.state().name())
                }
            },
            "READ" => match queue.find(self.id(word(words)?)).and_then(|slot| queue.job(slot)) {
                None => "nil".into(),
                Some(job) => {
                    let (mut start, mut count) = (Start::Number(0), limits::READ_COUNT_DEFAULT);
                    while words.peek().is_some() {
                        match text(words)?.as_str() {
                            "FROM" => start = position(&text(words)?)?,
                            "COUNT" => count = number(words)? as usize,
                            other => return Err(format!("no option of READ: {other}")),
                        }
                    }
                    show_reading(&job.read(start, count))
                }
            },
            "JOB" => match queue.find(self.id(word(words)?)).and_then(|slot| queue.job(slot)) {
                None => "nil".into(),
                Some(job) => show_job(&job),
            },
            "GROUP.GET" => queue.group(group(words)?).map_or("nil".into(), |group| show_group(&group)),
            "TENANT.GET" => match queue.tenant(word(words)?) {
                None => "nil".into(),
                Some(tenant) => {
                    let mut shown = format!("active={}", tenant.gate().active);
                    if let Some(hold) = tenant.hold_at(queue.now()) {
                        write!(shown, " {}", show_hold(hold, Holder::Tenant)).unwrap();
                    }
                    shown
                }
            },
            "GROUPS" => (queue.group_count() - 1).to_string(),
            "LINE" => queue.eligible_groups().to_string(),
            "ORDER" => self.show_ids(&queue.list(State::Ready, None, None, 1_000).jobs),
            "LIST" => {
                let state = state(words)?;
                let worker = optional(words, "WORKER", word)?;
                self.show_ids(&queue.list(state, worker, None, 1_000).jobs)
            }
            "STATS" => {
                let counts = State::ALL.map(|state| (state, queue.count(state)));
                let mut shown = String::new();
                for (state, count) in counts.into_iter().filter(|&(_, count)| count > 0) {
                    write!(shown, "{}={count} ", state.name()).unwrap();
                }
                let totals = queue.totals();
                write!(
                    shown,
                    "enqueued={} delivered={} removed={}",
                    totals.enqueued, totals.delivered, totals.removed
                )
                .unwrap();
                if let Some(until) = queue.paused_until() {
                    write!(
                        shown,
                        " paused={}",
                        if until == u64::MAX { "yes".into() } else { (until - START).to_string() }
                    )
                    .unwrap();
                }
                shown
            }
            "WORKERS" => {
                let workers = queue.workers().map(|worker| {
                    format!(
                        "[{} active={} done={} failed={} crashed={}]",
                        worker.name.escape_ascii(),
                        worker.active,
                        worker.done,
                        worker.failed,
                        worker.crashed
                    )
                });
                let workers: Vec<String> = workers.collect();
                if workers.is_empty() { "nil".into() } else { workers.join(" ") }
            }
            "SEEN" => {
                let seen = queue.workers().map(|worker| {
                    format!("{}={}", worker.name.escape_ascii(), worker.last_seen.saturating_sub(START))
                });
                seen.collect::<Vec<_>>().join(" ")
            }
            "WAKEUP" => queue.next_wakeup().map_or("none".into(), |at| (at - START).to_string()),
            other => return Err(format!("no command: {other}")),
        })
    }
}

/// `n`, or `run-n`.
fn position(text: &str) -> Result<Start, String> {
    let number = |text: &str| text.parse().map_err(|_| format!("no position: {text}"));
    Ok(match text.split_once('-') {
        None => Start::Number(number(text)?),
        Some((run, n)) => Start::Place(Place { run: number(run)?, number: number(n)? }),
    })
}

fn show_reading(reading: &Reading<'_>) -> String {
    let chunks: Vec<String> =
        reading.chunks.iter().map(|chunk| format!("\"{}\"", chunk.escape_ascii())).collect();
    let Place { run, number } = reading.next();
    let ended = reading.ended.map_or("nil", State::name);
    format!("[{run}-{number} [{}] {run} {ended}]", chunks.join(" "))
}

fn show_held(held: Held) -> &'static str {
    match held {
        Held::Ok => "ok",
        Held::Lost => "lost",
        Held::Cancel => "cancel",
    }
}

/// Why nothing is handed out; whose limit it is, unless it is `own`; and until when.
fn show_hold((hold, holder): (Hold, Holder), own: Holder) -> String {
    let mut shown = format!("held={}", hold.name());
    if holder != own {
        write!(shown, " by={}", holder.name()).unwrap();
    }
    if let Some(until) = hold.until() {
        write!(shown, " until={}", until - START).unwrap();
    }
    shown
}

fn show_group(group: &GroupView<'_>) -> String {
    let mut shown = String::new();
    for state in [State::Delayed, State::Ready, State::Active] {
        if group.count(state) > 0 {
            write!(shown, "{}={} ", state.name(), group.count(state)).unwrap();
        }
    }
    let limit = group.concurrency().map_or("none".into(), |limit| limit.to_string());
    write!(shown, "concurrency={limit}").unwrap();
    if group.circuit().level > 0 {
        write!(shown, " level={}", group.circuit().level).unwrap();
    }
    if let Some(throttle) = group.throttle() {
        write!(shown, " throttled={}/{}", throttle.limit, throttle.goal).unwrap();
    }
    if let Some(hold) = group.hold_at(0) {
        write!(shown, " {}", show_hold(hold, Holder::Group)).unwrap();
    }
    shown
}

fn show_job(job: &JobView<'_>) -> String {
    let mut shown = format!(
        "{} deliveries={} attempts={} crashes={}",
        job.state().name(),
        job.deliveries(),
        job.attempts(),
        job.crashes()
    );
    let mut put = |name: &str, at: Option<u64>| {
        if let Some(at) = at {
            write!(shown, " {name}={}", at.saturating_sub(START)).unwrap();
        }
    };
    put("since", job.since());
    put("due", job.due());
    put("deadline", job.deadline());
    put("claimed", job.claimed());
    put("lapses", job.lease_until());
    put("ended", job.ended());
    if job.is_cancelling() {
        shown.push_str(" cancelling");
    }
    if let (Some(key), Some(until)) = (job.key(), job.locks_until()) {
        write!(shown, " unique={} until={}", key.escape_ascii(), until.name()).unwrap();
        if let Some(window) = job.locks_for() {
            write!(shown, " for={}", window - START).unwrap();
        }
    }
    if let Some(worker) = job.worker() {
        write!(shown, " worker={}", worker.escape_ascii()).unwrap();
    }
    if let Some(reason) = job.reason() {
        write!(shown, " reason={}", reason.name()).unwrap();
    }
    if let Some(error) = job.error() {
        write!(shown, " error=\"{}\"", error.escape_ascii()).unwrap();
    }
    shown
}

/// The number of a name like `j7`.
fn number_of(letter: u8, name: &[u8]) -> Option<usize> {
    let digits = name.strip_prefix(&[letter])?;
    std::str::from_utf8(digits).ok()?.parse().ok().filter(|&number| number > 0)
}

/// Words are separated by spaces; one in quotes may hold anything, with `\n`, `\r`, `\t`, `\"`, `\\`
/// and `\x41` for bytes.
fn split(line: &str) -> Result<Vec<Vec<u8>>, String> {
    let mut words = Vec::new();
    let mut bytes = line.bytes().peekable();
    while let Some(byte) = bytes.next() {
        let mut word = Vec::new();
        match byte {
            b' ' => continue,
            b'"' => loop {
                match bytes.next().ok_or("a quote is not closed")? {
                    b'"' => break,
                    b'\\' => word.push(match bytes.next().ok_or("a backslash at the end")? {
                        b'n' => b'\n',
                        b'r' => b'\r',
                        b't' => b'\t',
                        b'x' => {
                            let digits: Vec<u8> = bytes.by_ref().take(2).collect();
                            let digits = String::from_utf8(digits).map_err(|error| error.to_string())?;
                            u8::from_str_radix(&digits, 16).map_err(|error| error.to_string())?
                        }
                        other => other,
                    }),
                    other => word.push(other),
                }
            },
            first => {
                word.push(first);
                while let Some(byte) = bytes.next_if(|&byte| byte != b' ') {
                    word.push(byte);
                }
            }
        }
        words.push(word);
    }
    Ok(words)
}

fn word<'a>(words: &mut Words<'a>) -> Result<&'a [u8], String> {
    words.next().map(Vec::as_slice).ok_or_else(|| "a word is missing".into())
}

fn text(words: &mut Words<'_>) -> Result<String, String> {
    String::from_utf8(word(words)?.to_vec()).map_err(|error| error.to_string())
}

fn keyword(words: &mut Words<'_>, wanted: &str) -> Result<(), String> {
    let found = text(words)?;
    if found == wanted { Ok(()) } else { Err(format!("{wanted} is missing before {found}")) }
}

fn optional<'a, T>(
    words: &mut Words<'a>,
    keyword: &str,
    parse: impl FnOnce(&mut Words<'a>) -> Result<T, String>,
) -> Result<Option<T>, String> {
    if words.next_if(|word| *word == keyword.as_bytes()).is_none() {
        return Ok(None);
    }
    parse(words).map(Some)
}

fn number(words: &mut Words<'_>) -> Result<u64, String> {
    text(words)?.parse().map_err(|error| format!("{error}"))
}

fn count(words: &mut Words<'_>) -> Result<usize, String> {
    Ok(optional(words, "COUNT", number)?.unwrap_or(1_000) as usize)
}

fn state(words: &mut Words<'_>) -> Result<State, String> {
    let name = text(words)?;
    State::ALL.into_iter().find(|state| state.name() == name).ok_or_else(|| format!("no state: {name}"))
}

fn parse_duration(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(char::is_alphabetic);
    let number: u64 = digits.parse().map_err(|error| format!("{text}: {error}"))?;
    let units =
        HashMap::from([("", 1), ("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)]);
    let unit = units.get(&text[digits.len()..]).ok_or_else(|| format!("no unit of time: {text}"))?;
    Ok(number * unit)
}

fn duration(words: &mut Words<'_>) -> Result<u64, String> {
    parse_duration(&text(words)?)
}

/// A number or duration, or `none`.
fn limit(words: &mut Words<'_>) -> Result<Option<u64>, String> {
    let text = text(words)?;
    if text == "none" { Ok(None) } else { parse_duration(&text).map(Some) }
}

fn backoff(words: &mut Words<'_>) -> Result<Backoff, String> {
    Ok(Backoff { base: duration(words)?, max: duration(words)? })
}

/// `name [TENANT tenant]`.
/// The key, and behind it, in this order, what there is of the options that belong to it.
fn parse_unique<'a>(words: &mut Words<'a>) -> Result<Unique<'a>, String> {
    let key = word(words)?;
    let until = optional(words, "UNTIL", text)?;
    let window = optional(words, "FOR", duration)?;
    let debounce = words.next_if(|word| *word == b"DEBOUNCE").is_some();
    let until = match until.as_deref() {
        None if debounce => Until::Started,
        None => Until::Finished,
        Some(name) => {
            let named = Until::ALL.into_iter().find(|until| until.name() == name);
            named.ok_or(format!("not a time: {name}"))?
        }
    };
    Ok(Unique { key, until, window, debounce })
}

fn group<'a>(words: &mut Words<'a>) -> Result<GroupName<'a>, String> {
    let group = word(words)?;
    Ok(GroupName { tenant: optional(words, "TENANT", word)?.unwrap_or_default(), group })
}

/// `[GROUP name] [TENANT name]`.
fn scope<'a>(words: &mut Words<'a>) -> Result<Scope<'a>, String> {
    let of_group = optional(words, "GROUP", group)?;
    let tenant = optional(words, "TENANT", word)?;
    Ok(of_group.map(Scope::Group).or(tenant.map(Scope::Tenant)).unwrap_or(Scope::Queue))
}

/// `n ms [BURST n]`, or `none`.
fn rate(words: &mut Words<'_>) -> Result<Option<Rate>, String> {
    let Some(count) = limit(words)? else { return Ok(None) };
    let period = duration(words)?;
    Ok(Some(Rate { count, period, burst: optional(words, "BURST", number)?.unwrap_or(count) }))
}

fn concurrency(words: &mut Words<'_>) -> Result<Option<u32>, String> {
    Ok(limit(words)?.map(|n| n as u32))
}

fn yes(words: &mut Words<'_>) -> Result<bool, String> {
    Ok(text(words)? == "yes")
}

/// What `parse` reads, or `default`, which gives the option back.
fn own<T>(
    words: &mut Words<'_>,
    parse: impl FnOnce(&mut Words<'_>) -> Result<T, String>,
) -> Result<Option<Option<T>>, String> {
    if words.next_if(|word| *word == b"default").is_some() {
        return Ok(Some(None));
    }
    parse(words).map(|value| Some(Some(value)))
}

fn parse_group(words: &mut Words<'_>) -> Result<GroupPatch, String> {
    let mut patch = GroupPatch::default();
    while words.peek().is_some() {
        match text(words)?.as_str() {
            "CONCURRENCY" => patch.concurrency = own(words, concurrency)?,
            "RATE" => patch.rate = own(words, rate)?,
            "BACKOFF" => patch.backoff = own(words, backoff)?,
            "ORDERED" => patch.ordered = own(words, yes)?,
            other => return Err(format!("no setting of a group: {other}")),
        }
    }
    Ok(patch)
}

fn parse_tenant(words: &mut Words<'_>) -> Result<TenantPatch, String> {
    let mut patch = TenantPatch::default();
    while words.peek().is_some() {
        match text(words)?.as_str() {
            "WEIGHT" => patch.weight = Some(number(words)? as u32),
            "CONCURRENCY" => patch.concurrency = Some(concurrency(words)?),
            "RATE" => patch.rate = Some(rate(words)?),
            other => return Err(format!("no setting of a tenant: {other}")),
        }
    }
    Ok(patch)
}

fn parse_settings(words: &mut Words<'_>) -> Result<SettingsPatch, String> {
    let mut patch = SettingsPatch::default();
    while words.peek().is_some() {
        match text(words)?.as_str() {
            "LEASE" => patch.lease = Some(duration(words)?),
            "ATTEMPTS" => patch.attempts = Some(limit(words)?.map(|n| n as u32)),
            "CRASHES" => patch.crashes = Some(limit(words)?.map(|n| n as u32)),
            "BACKOFF" => patch.backoff = Some(backoff(words)?),
            "TTL" => patch.ttl = Some(limit(words)?),
            "RESULTTTL" => patch.result_ttl = Some(limit(words)?),
            "DEADTTL" => patch.dead_ttl = Some(limit(words)?),
            "KEEPDONE" => patch.keep_done = Some(limit(words)?),
            "KEEPDEAD" => patch.keep_dead = Some(limit(words)?),
            "MAXOUTPUT" => patch.max_output = Some(number(words)?),
            "MAXLEN" => patch.max_len = Some(limit(words)?),
            "CONCURRENCY" => patch.concurrency = Some(concurrency(words)?),
            "RATE" => patch.rate = Some(rate(words)?),
            "GROUP-CONCURRENCY" => patch.group_concurrency = Some(concurrency(words)?),
            "GROUP-RATE" => patch.group_rate = Some(rate(words)?),
            "GROUP-BACKOFF" => patch.group_backoff = Some(backoff(words)?),
            "GROUP-ORDERED" => patch.group_ordered = Some(yes(words)?),
            "WORKERTTL" => patch.worker_ttl = Some(limit(words)?),
            other => return Err(format!("no setting: {other}")),
        }
    }
    Ok(patch)
}

fn folder() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "src", "queue", "tests", "scenarios"].iter().collect()
}

fn run(name: &str) {
    let path = folder().join(name).with_extension("txt");
    let script = std::fs::read_to_string(&path).unwrap();
    let mut stage = Stage::new();
    let mut played = Vec::new();
    let mut line_number = 1;
    for paragraph in script.split("\n\n") {
        match paragraph.trim_end().split_once("\n----") {
            None => played.push(paragraph.trim_end().to_string()),
            Some((commands, _)) => {
                let mut shown = format!("{commands}\n----");
                for (at, command) in commands.lines().enumerate() {
                    match stage.line(command) {
                        Ok(None) => {}
                        Ok(Some(reply)) => write!(shown, "\n{reply}").unwrap(),
                        Err(error) => panic!("{}:{}: {command}\n{error}", path.display(), line_number + at),
                    }
                }
                if std::env::var_os("RQ_REWRITE").is_none() {
                    let at = format!("{}:{line_number}", path.display());
                    let expected = paragraph.trim_end();
                    assert!(shown == expected, "{at}: replied is\n\n{shown}\n\nexpected was\n\n{expected}\n");
                }
                played.push(shown);
            }
        }
        line_number += paragraph.lines().count() + 1;
    }
    let played = played.join("\n\n") + "\n";
    if std::env::var_os("RQ_REWRITE").is_some() && played != script {
        std::fs::write(&path, played).unwrap();
    }
}

/// One test per file, under its name; and none is forgotten.
macro_rules! scenarios {
    ($($name:ident)*) => {
        $(#[test] fn $name() { run(stringify!($name)); })*

        #[test]
        fn every_file_is_run() {
            let mut files: Vec<String> = std::fs::read_dir(folder())
                .unwrap()
                .map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_string())
                .collect();
            files.sort();
            let mut named = vec![$(stringify!($name).to_string()),*];
            named.sort();
            assert_eq!(files, named);
        }
    };
}

scenarios! {
    p1_accepted_is_kept
    p2_owner_deadline_token
    p3_a_lost_lease_is_final
    p5_order
    budgets
    cancel
    circuit
    deadline
    forgotten_groups
    group_limits
    group_pause
    groups_in_turn
    ids
    ordered
    output
    pause
    progress_and_results
    recovery
    redrive_purge_reschedule
    retention
    settings
    signs_of_life
    slots
    throttle
    time
    unique vanished_takers
}

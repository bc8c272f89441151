//! Crash torture: servers under the mixed load of several clients are killed at random instants, in four set-ups, and
//! after each crash a checker that knows only what the clients were told proves that nothing was lost beyond what the
//! set-up allows, and nothing done twice. `make soak` runs many rounds, `make test` a few.
//!
//! - `aof_always`: nothing that was answered may be lost.
//! - `aof_everysec`: nothing older than two seconds; in every other round the machine loses power too, so that the end of
//!   the file is cut off somewhere.
//! - `rdb_only`: nothing that was answered before the last save was asked for.
//! - `promotion`: the replica takes over, sometimes before the primary is dead; nothing that `WAIT` vouched for. The old
//!   primary comes back as the replica, and both hold the same. Now and then the primary comes back as such, short of the
//!   end of its file, and the replica, which may know more, follows it all the same.

mod checker;
mod load;
mod log;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use self::checker::{Audit, Bounds, Checker, Seen, Totals};
use self::load::{Hand, ROLES, SHARED, Setup, World, tag_of};
use self::log::{Entry, Moment, NEVER, What, family, serial};
use crate::common::*;
use crate::{args, cmd, tests};

pub const TESTS: &[Test] = tests![
    aof_always,
    aof_everysec,
    rdb_only,
    promotion,
    the_checker_sees_a_lost_tail,
    the_checker_sees_a_forgotten_save,
];

/// The settings of the queues that the checker reckons with, in ms.
const DEFAULT_LEASE: u64 = 400;
const DEFAULT_RESULT_TTL: u64 = 1_500;

/// What `appendfsync everysec` may lose.
const EVERYSEC_US: Moment = 2_000_000;

fn aof_always(lab: &Lab) {
    run(lab, Setup::AofAlways, "aof_always");
}

fn aof_everysec(lab: &Lab) {
    run(lab, Setup::AofEverySecond, "aof_everysec");
}

fn rdb_only(lab: &Lab) {
    run(lab, Setup::RdbOnly, "rdb_only");
}

fn promotion(lab: &Lab) {
    run(lab, Setup::Promotion, "promotion");
}

/// How many rounds, and from which seed: `RQ_ROUNDS` are shared out among the set-ups and the servers.
fn plan() -> (u64, u64) {
    let number = |name| std::env::var(name).ok().and_then(|text: String| text.parse::<u64>().ok());
    let servers =
        std::env::var("RQ_SERVERS").map_or(1, |list| list.split(':').filter(|path| !path.is_empty()).count());
    let shares = u64::try_from(servers.max(1) * 4).unwrap_or(4);
    let rounds = number("RQ_ROUNDS").unwrap_or(if soak() { 1_000 } else { 0 }).div_ceil(shares);
    (if rounds == 0 { 4 } else { rounds }, number("RQ_SEED").unwrap_or_else(unix_ms))
}

#[track_caller]
fn run(lab: &Lab, setup: Setup, name: &str) {
    let (rounds, seed) = plan();
    let mut torture = Torture::new(lab, setup, seed);
    let begin = Instant::now();
    for round in 1..=rounds {
        torture.round();
        let faults = &torture.checker.faults;
        assert!(faults.is_empty(), "{name}, RQ_SEED={seed}, round {round}:\n{}", faults.join("\n"));
        if round.is_multiple_of(25) {
            eprintln!("soak {name}: {round} of {rounds} rounds, {}", torture.told(begin));
        }
    }
    torture.finish();
    let faults = &torture.checker.faults;
    assert!(faults.is_empty(), "{name}, RQ_SEED={seed}, at the end:\n{}", faults.join("\n"));
    let figures = torture.checker.figures;
    assert!(figures.acknowledged > rounds && figures.deliveries > rounds, "there was load: {figures:?}");
    eprintln!("soak {name}: done, RQ_SEED={seed}, {rounds} rounds, {}", torture.told(begin));
}

/// One run: the servers, the clients, and the checker.
struct Torture {
    world: World,
    dice: Dice,
    /// The primary.
    server: Server,
    replica: Option<Server>,
    hands: Vec<Hand>,
    checker: Checker,
    kills: u64,
    /// Where the audit before found that the loaded AOF ended.
    loaded: Option<(PathBuf, u64)>,
    sabotage: Option<Sabotage>,
}

/// What the checker must find out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sabotage {
    /// The end of the AOF is cut off, and the checker is told that everything was written to the disk at once.
    Tail,
    /// The checker is told of a save that there was not.
    Save,
}

impl Torture {
    fn new(lab: &Lab, setup: Setup, seed: u64) -> Self {
        let mut dice = Dice(seed ^ (setup as u64) << 20);
        let aof = |fsync| {
            vec![
                ("appendonly", "yes"),
                ("appendfsync", fsync),
                ("aof-use-rdb-preamble", if seed.is_multiple_of(2) { "yes" } else { "no" }),
                ("auto-aof-rewrite-min-size", "256kb"),
                ("auto-aof-rewrite-percentage", "100"),
            ]
        };
        let config = match setup {
            Setup::AofAlways => aof("always"),
            Setup::AofEverySecond => aof("everysec"),
            Setup::RdbOnly => Vec::new(),
            Setup::Promotion => {
                let mut lines = aof("everysec");
                lines
                    .push(("repl-diskless-load", if seed.is_multiple_of(3) { "swapdb" } else { "disabled" }));
                lines
            }
        };
        let server = lab.server_with(&config);
        let replica = (setup == Setup::Promotion).then(|| lab.replica_with(&server, &config));
        let mut c = server.client();
        for queue in SHARED.into_iter().chain(["m1"]) {
            cmd!(
                c,
                "RQ.QUEUE.SET",
                queue,
                "LEASE",
                DEFAULT_LEASE,
                "ATTEMPTS",
                3,
                "CRASHES",
                3,
                "BACKOFF",
                5,
                50,
                "TTL",
                0,
                "RESULTTTL",
                DEFAULT_RESULT_TTL,
                "WORKERTTL",
                700,
                "GROUP-BACKOFF",
                10,
                50
            );
            cmd!(c, "RQ.GROUP.SET", queue, "limited", "CONCURRENCY", 2);
            cmd!(c, "RQ.GROUP.SET", queue, "ordered", "TENANT", "t1", "ORDERED", "yes");
            cmd!(c, "RQ.GROUP.SET", queue, "g1", "TENANT", "t2", "RATE", 20, 100);
            cmd!(c, "RQ.TENANT.SET", queue, "t1", "WEIGHT", 3, "CONCURRENCY", 5);
        }
        if setup == Setup::RdbOnly {
            cmd!(c, "SAVE");
        }
        let world = World {
            start: Instant::now(),
            tags: Arc::new(AtomicU64::new(1)),
            setup,
            port: server.port,
            replica: replica.as_ref().map(|replica| replica.port),
        };
        let hands = ROLES.iter().map(|role| Hand::new(*role, dice.roll(1 << 31))).collect();
        let mut torture = Self {
            world,
            dice,
            server,
            replica,
            hands,
            checker: Checker::default(),
            kills: 0,
            loaded: None,
            sabotage: None,
        };
        torture.audit(0, Bounds { kept_before: NEVER, kept_until: NEVER });
        torture
    }

    fn told(&self, begin: Instant) -> String {
        let figures = self.checker.figures;
        format!(
            "{} kills in {:.0} s: {} calls, {} jobs, {} deliveries, {} acknowledged; after {} crashes something was gone, \
             of {:.2} s at most; no violation",
            self.kills,
            begin.elapsed().as_secs_f64(),
            figures.calls,
            figures.jobs,
            figures.deliveries,
            figures.acknowledged,
            figures.rolled_back,
            figures.longest_loss as f64 / 1e6,
        )
    }

    /// Load, a crash, what comes back, and a look at it.
    fn round(&mut self) {
        let setup = self.world.setup;
        let loses_power = setup == Setup::AofEverySecond && self.dice.roll(2) == 0;
        // The primary itself comes back, without the end of its file; its replica, which may be ahead of it, follows it.
        let returns = setup == Setup::Promotion && self.dice.roll(4) == 0;
        let takes_over_early = setup == Setup::Promotion && !returns && self.dice.roll(3) == 0;
        let mut time = 250 + self.dice.roll(600);
        if loses_power && soak() {
            time += EVERYSEC_US / 1_000;
        }
        let sizes = (loses_power || returns || self.sabotage == Some(Sabotage::Tail))
            .then(|| Sizes::watch(self.world.clone(), self.server.dir.clone()));
        let threads: Vec<_> = std::mem::take(&mut self.hands)
            .into_iter()
            .map(|mut hand| {
                let world = self.world.clone();
                std::thread::spawn(move || {
                    let log = hand.work(&world);
                    (hand, log)
                })
            })
            .collect();
        std::thread::sleep(ms(time));
        let mut kept_until = NEVER;
        if takes_over_early {
            let replica = self.replica.as_ref().expect("a replica");
            cmd!(replica.client(), "REPLICAOF", "NO", "ONE");
            kept_until = self.world.now();
            std::thread::sleep(ms(self.dice.roll(250)));
        }
        let before = self.world.now();
        self.server.kill9();
        self.kills += 1;
        let sizes = sizes.map(Sizes::stop);
        let mut entries: Vec<Entry> = Vec::new();
        for thread in threads {
            let (hand, log) = thread.join().expect("the client's thread");
            self.hands.push(hand);
            entries.extend(log);
        }
        let mut bounds = match setup {
            Setup::AofAlways => Bounds { kept_before: NEVER, kept_until },
            Setup::AofEverySecond => Bounds { kept_before: before.saturating_sub(EVERYSEC_US), kept_until },
            Setup::RdbOnly => saves(&entries),
            Setup::Promotion => Bounds { kept_before: 0, kept_until },
        };
        if self.sabotage == Some(Sabotage::Save) {
            bounds.kept_before = before;
        }
        if let Some(sizes) = sizes {
            let from = self.cut_the_tail(&sizes, before);
            let told = self.sabotage == Some(Sabotage::Tail);
            bounds.kept_before = if told { NEVER } else { from.saturating_sub(EVERYSEC_US) };
        }
        mend(&self.server.dir);
        if returns {
            // What a replica has does not count if it does not take over.
            entries.iter_mut().for_each(|entry| entry.span.copied = false);
        }
        self.checker.take(entries);
        self.come_back(returns);
        self.audit(before, bounds);
    }

    fn come_back(&mut self, returns: bool) {
        let replica = if returns { None } else { self.replica.take() };
        match replica {
            None => {
                // A child that was saving is not killed with its parent.
                let is_saving = |dir: &PathBuf| {
                    let files = fs::read_dir(dir).into_iter().flatten().flatten();
                    files.filter(|file| file.file_name().to_string_lossy().starts_with("temp-")).count() > 0
                };
                let patience = Instant::now();
                while is_saving(&self.server.dir) && patience.elapsed() < ms(300) {
                    std::thread::sleep(ms(2));
                }
                self.server.restart();
            }
            Some(replica) => {
                let mut old = std::mem::replace(&mut self.server, replica);
                cmd!(self.server.client(), "REPLICAOF", "NO", "ONE");
                self.server.configure("replicaof", "no one");
                old.configure("replicaof", &format!("127.0.0.1 {}", self.server.port));
                old.restart();
                self.replica = Some(old);
            }
        }
        self.world.port = self.server.port;
        self.world.replica = self.replica.as_ref().map(|replica| replica.port);
    }

    /// As a loss of power does to a file that is not on the disk yet: its end, at most of a second or so, is missing.
    /// Gives from when on what was written may be gone.
    fn cut_the_tail(&mut self, sizes: &[Size], crash: Moment) -> Moment {
        let Some(last) = sizes.last() else { return crash };
        let file = last.file.clone();
        if newest_aof(&self.server.dir).is_none_or(|(newest, _)| newest != file) {
            // A rewrite began another one in the last moment: Redis mends only the end of the newest.
            return crash;
        }
        let now = fs::metadata(&file).map_or(last.bytes, |facts| facts.len());
        // Nothing of what the server has loaded: that is on the disk.
        let loaded = self.loaded.as_ref().filter(|(known, _)| *known == file).map_or(0, |(_, bytes)| *bytes);
        let recent = sizes
            .iter()
            .filter(|size| size.at + 1_000_000 < crash && size.file == file)
            .map(|size| size.bytes);
        let least = recent.max().unwrap_or(loaded).max(loaded).min(now);
        let keep = mendable(&file, least + self.dice.roll(now - least + 1));
        fs::File::options()
            .write(true)
            .open(&file)
            .and_then(|file| file.set_len(keep))
            .expect("the file can be cut");
        let before = sizes.iter().rev().find(|size| size.file != file || size.bytes <= keep);
        before.map_or(0, |size| size.at)
    }

    /// Holds up all writes, looks at everything, and lets the checker compare.
    fn audit(&mut self, crash: Moment, bounds: Bounds) {
        let mut c = self.server.client();
        // What came due while the server was down, or was gone already before an older state came back.
        until("everything overdue is settled", || {
            cmd!(c, "RQ.QUEUES").list()[1].texts().iter().all(|queue| {
                let next = cmd!(c, "RQ.STATS", queue).get("next-wakeup");
                next.is_nil() || next.int() > i64::try_from(unix_ms()).unwrap_or_default()
            })
        });
        cmd!(c, "CLIENT", "PAUSE", 60_000, "WRITE");
        let audit = look(&self.world, &mut c);
        let listed = i64::try_from(audit.jobs.len()).unwrap_or_default();
        let counted: i64 = audit.totals.values().map(|totals| totals.enqueued - totals.removed).sum();
        if listed != counted {
            self.checker.fault(format!("{listed} jobs are listed, but there must be {counted}"));
        }
        self.checker.audit(&audit, crash, bounds);
        if let Some(replica) = &self.replica {
            self.server.wait_for_sync(replica);
            // After a full copy its own file is written anew, and is good for nothing before.
            until("the replica has a file of its own", || {
                replica.info("aof_rewrite_in_progress") == "0" && replica.info("aof_rewrite_scheduled") == "0"
            });
            for queue in cmd!(c, "RQ.QUEUES").list()[1].texts() {
                let (mine, theirs) = (self.server.digest(&queue), replica.digest(&queue));
                if mine != theirs {
                    self.checker
                        .fault(format!("{queue} differs: {mine} on the primary, {theirs} on its replica"));
                }
            }
        }
        self.loaded = newest_aof(&self.server.dir);
        cmd!(c, "CLIENT", "UNPAUSE");
    }

    /// What is left comes to its end: nothing is stuck, nothing is handed out twice.
    fn finish(&mut self) {
        let mut c = self.server.client();
        let queues = cmd!(c, "RQ.QUEUES").list()[1].texts();
        for queue in &queues {
            cmd!(c, "RQ.RESUME", queue);
            // Without these it would take long, one by one.
            cmd!(c, "RQ.GROUP.SET", queue, "limited", "CONCURRENCY", "none");
            cmd!(c, "RQ.GROUP.SET", queue, "ordered", "TENANT", "t1", "ORDERED", "no");
            cmd!(c, "RQ.GROUP.SET", queue, "g1", "TENANT", "t2", "RATE", "none");
            cmd!(c, "RQ.TENANT.SET", queue, "t1", "CONCURRENCY", "none");
            until_finished(&mut c, queue);
        }
        let open = self.checker.unfinished();
        eprintln!("soak: {open} jobs were open after the last crash, and came to their end");
    }
}

#[track_caller]
fn until_finished(c: &mut Client, queue: &str) {
    let start = Instant::now();
    loop {
        let jobs = jobs(&cmd!(c, "RQ.CLAIM", queue, "last", "COUNT", 1000, "LEASE", 60_000));
        for job in &jobs {
            assert_eq!(ack(c, queue, job), 1, "{job:?}");
        }
        let now = counts(c, queue);
        if now.ready + now.delayed + now.active == 0 {
            return;
        }
        if jobs.is_empty() {
            let groups = cmd!(c, "RQ.GROUP.LIST", queue);
            assert!(start.elapsed() < PATIENCE * 2, "something is stuck: {now:?}, {groups:?}");
            std::thread::sleep(ms(5));
        }
    }
}

/// What the set-up without an AOF has on its disk.
fn saves(entries: &[Entry]) -> Bounds {
    let mut bounds = Bounds { kept_before: 0, kept_until: 0 };
    for entry in entries {
        match &entry.what {
            What::Save => bounds.kept_until = bounds.kept_until.max(entry.span.end()),
            What::Saved { asked } => bounds.kept_before = bounds.kept_before.max(*asked),
            _ => {}
        }
    }
    bounds
}

/// How long a file was at some moment.
struct Size {
    at: Moment,
    file: PathBuf,
    bytes: u64,
}

/// Watches the AOF grow.
struct Sizes {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Vec<Size>>,
}

impl Sizes {
    fn watch(world: World, dir: PathBuf) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let flag = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut sizes = Vec::new();
            while !flag.load(Ordering::Relaxed) {
                let at = world.now();
                if let Some((file, bytes)) = newest_aof(&dir) {
                    sizes.push(Size { at, file, bytes });
                }
                std::thread::sleep(ms(10));
            }
            sizes
        });
        Self { stop, thread }
    }

    fn stop(self) -> Vec<Size> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the watching thread")
    }
}

/// The file at whose end commands are written now, and its length.
fn newest_aof(dir: &std::path::Path) -> Option<(PathBuf, u64)> {
    let dir = dir.join("appendonlydir");
    let files = fs::read_dir(dir).ok()?.flatten();
    let numbered = files.filter_map(|file| {
        let name = file.file_name().to_string_lossy().into_owned();
        let number = name.strip_suffix(".incr.aof")?.rsplit('.').next()?.parse::<u64>().ok()?;
        Some((number, file.path()))
    });
    let (_, path) = numbered.max()?;
    let bytes = fs::metadata(&path).ok()?.len();
    Some((path, bytes))
}

/// As `redis-check-aof --fix` does it, if the server was killed in the middle of a write.
fn mend(dir: &std::path::Path) {
    let Some((file, bytes)) = newest_aof(dir) else { return };
    let keep = mendable(&file, bytes);
    if keep < bytes {
        fs::File::options()
            .write(true)
            .open(&file)
            .and_then(|file| file.set_len(keep))
            .expect("the file can be cut");
    }
}

/// The place before `end` at which Redis can mend a file that is cut off there: not inside of a command of a transaction.
///
/// There Redis 7.0 to 8.2 cut the file behind the last whole command, and so in the middle of the transaction; with the
/// next restart half of that comes back. `redis-check-aof --fix` does it right.
fn mendable(file: &std::path::Path, end: u64) -> u64 {
    let bytes = fs::read(file).expect("the file can be read");
    let end = usize::try_from(end).expect("a small file").min(bytes.len());
    let (mut at, mut is_inside) = (0, false);
    loop {
        let Some((name, next)) = command_at(&bytes, at).filter(|(_, next)| *next <= end) else {
            // The command that is cut off.
            return u64::try_from(if is_inside { at } else { end }).unwrap_or_default();
        };
        is_inside = match name {
            b"MULTI" => true,
            b"EXEC" => false,
            _ => is_inside,
        };
        at = next;
    }
}

/// The name of the command at a place of a file, and where it ends.
fn command_at(bytes: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let line = |at: usize| -> Option<(usize, usize)> {
        let length = bytes.get(at..)?.windows(2).position(|pair| pair == b"\r\n")?;
        Some((std::str::from_utf8(bytes.get(at + 1..at + length)?).ok()?.parse().ok()?, at + length + 2))
    };
    let (count, mut next) = line(at)?;
    let mut name: &[u8] = b"";
    for number in 0..count {
        let (length, begin) = line(next)?;
        let word = bytes.get(begin..begin + length)?;
        if number == 0 {
            name = word;
        }
        next = begin + length + 2;
    }
    (next <= bytes.len()).then_some((name, next))
}

/// Everything that the server shows.
fn look(world: &World, c: &mut Client) -> Audit {
    let from = world.now();
    let unix = i64::try_from(unix_ms()).unwrap_or_default();
    let mut jobs = Vec::new();
    let mut totals: BTreeMap<char, Totals> = BTreeMap::new();
    for queue in cmd!(c, "RQ.QUEUES").list()[1].texts() {
        let told = cmd!(c, "RQ.STATS", queue).get("totals");
        let sum = totals.entry(family(&queue)).or_default();
        sum.enqueued += told.get("enqueued").int();
        sum.delivered += told.get("delivered").int();
        sum.done += told.get("done").int();
        sum.removed += told.get("removed").int();
        let mut ids = Vec::new();
        for state in ["delayed", "ready", "active", "done", "dead", "cancelled"] {
            let mut cursor = "0".to_string();
            loop {
                let page = cmd!(c, "RQ.LIST", queue, state, "CURSOR", cursor, "COUNT", 1000);
                ids.extend(page.list()[1].list().iter().map(|job| job.get("id").bytes().to_vec()));
                cursor = page.list()[0].text();
                if cursor == "0" {
                    break;
                }
            }
        }
        for some in ids.chunks(100) {
            let calls = some.iter().map(|id| encode(&args!["RQ.JOB", queue, id]));
            c.send_bytes(&calls.flatten().collect::<Vec<u8>>());
            for _ in some {
                let job = c.read();
                if !job.is_nil() {
                    jobs.push(seen(&job));
                }
            }
        }
    }
    Audit { from, to: world.now(), unix_ms: unix, jobs, totals }
}

fn seen(job: &Reply) -> Seen {
    let facts: BTreeMap<String, Reply> = job.entries().into_iter().collect();
    let text = |name: &str| (!facts[name].is_nil()).then(|| facts[name].text());
    let number = |name: &str| (!facts[name].is_nil()).then(|| facts[name].int());
    let state = facts["state"].text();
    Seen {
        id: facts["id"].text(),
        tag: tag_of(facts["payload"].bytes()),
        deliveries: facts["deliveries"].int(),
        attempts: facts["attempts"].int(),
        attempts_allowed: facts["attempts-allowed"].int(),
        crashes: facts["crashes"].int(),
        crashes_allowed: facts["crashes-allowed"].int(),
        token: text("token").as_deref().and_then(serial),
        cancelling: facts["cancelling"].int() == 1,
        reason: text("reason"),
        result: text("result"),
        ttl: number("ttl").unwrap_or(-1),
        due: number(if state == "active" { "lease-until" } else { "due" }),
        state,
    }
}

/// A checker that finds nothing proves nothing: here it is told that everything is written to the disk at once, and the
/// end of the file is cut off.
fn the_checker_sees_a_lost_tail(lab: &Lab) {
    must_be_seen(lab, Setup::AofEverySecond, Sabotage::Tail);
}

fn the_checker_sees_a_forgotten_save(lab: &Lab) {
    must_be_seen(lab, Setup::RdbOnly, Sabotage::Save);
}

#[track_caller]
fn must_be_seen(lab: &Lab, setup: Setup, sabotage: Sabotage) {
    let mut torture = Torture::new(lab, setup, unix_ms());
    torture.sabotage = Some(sabotage);
    for _ in 0..10 {
        torture.round();
        if torture.checker.faults.iter().any(|fault| fault.starts_with("lost, answered")) {
            return;
        }
        assert!(torture.checker.faults.is_empty(), "something else was found: {:?}", torture.checker.faults);
    }
    panic!("nothing was found in ten rounds");
}

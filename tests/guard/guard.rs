//! Guards the speed of the core without a clock: how many instructions an op takes, counted by
//! valgrind's callgrind, against the figures in `instructions.txt`. `make test-guard` runs it;
//! `RQ_GUARD=1 make test-guard` stores what it counts instead.
//!
//! The program runs itself under valgrind, once per op. Counting begins and ends with
//! [`measured`], so nothing but the ops is counted. Memory comes from a heap that costs next to
//! nothing, since the server brings its own.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    dead_code,
    unused_imports,
    missing_docs
)]

#[path = "../../src/queue/mod.rs"]
mod queue;

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hint::black_box;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicUsize, Ordering};

use queue::{
    Claim, Delivery, Effects, Enqueue, GroupName, Id, JobOptions, Op, Outcome, Payloads, Queue, Serial,
    Settings, Stamp, When,
};

/// Ops of each kind that are counted, after as many that are not.
const OPS: usize = 10_000;

/// What a count may differ from the stored one, in percent.
const TOLERANCE: f64 = 5.0;

/// The same if the stored one was made by another compiler.
const TOLERANCE_COMPILER: f64 = 25.0;

const STORED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/guard/instructions.txt");

/// Hands out memory from one piece after the other and takes none back; moves nothing that can grow in place.
struct Bump(AtomicUsize, AtomicUsize);

/// What is taken from the system at a time, in bytes.
const PIECE: usize = 64 << 20;

// SAFETY: every piece is fresh from the system and used once; the program has one thread.
unsafe impl GlobalAlloc for Bump {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() > PIECE / 2 {
            // SAFETY: as the caller says.
            return unsafe { System.alloc(layout) };
        }
        let mut start = self.0.load(Ordering::Relaxed).next_multiple_of(layout.align());
        if start + layout.size() > self.1.load(Ordering::Relaxed) {
            // SAFETY: a size above zero, and an alignment that is a power of two.
            start = unsafe { System.alloc(Layout::from_size_align_unchecked(PIECE, 4_096)) } as usize;
            self.1.store(start + PIECE, Ordering::Relaxed);
        }
        self.0.store(start + layout.size(), Ordering::Relaxed);
        start as *mut u8
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static HEAP: Bump = Bump(AtomicUsize::new(0), AtomicUsize::new(0));

/// All that is counted.
#[unsafe(no_mangle)]
#[inline(never)]
fn measured(queue: &mut Queue, op: &Op<'_>, fx: &mut Effects<'_>) -> Outcome {
    fx.clear();
    black_box(queue.apply(black_box(op), fx)).unwrap()
}

const PAYLOAD: [u8; 100] = [7; 100];
const CLOCK: Stamp = Stamp { now: 1_000_000, wall: 1_700_000_000_000, serial: Serial::NONE };

struct Script {
    queue: Queue,
    fx: Effects<'static>,
}

impl Script {
    fn new() -> Self {
        Self { queue: Queue::new(Settings::default(), CLOCK), fx: Effects::default() }
    }

    fn enqueue(group: &[u8], when: Option<When>) -> Op<'_> {
        Op::Enqueue(Enqueue {
            payloads: Payloads::One(&PAYLOAD),
            id: None,
            unique: None,
            group: GroupName { tenant: b"", group },
            when,
            priority: 0,
            options: JobOptions::default(),
        })
    }

    fn claim<'a>() -> Op<'a> {
        Op::Claim(Claim { worker: b"host-1234-abcd", count: 1, lease: None })
    }

    /// Applies the op of each number, without counting.
    fn quietly<'a>(&mut self, count: usize, op: impl Fn(usize) -> Op<'a>) {
        for number in 0..count {
            self.fx.clear();
            self.queue.apply(&op(number), &mut self.fx).unwrap();
        }
    }

    /// Claims so many, without counting.
    fn claimed(&mut self, count: usize) -> Vec<Delivery<'static>> {
        let claim = |_| {
            self.fx.clear();
            self.queue.apply(&Self::claim(), &mut self.fx).unwrap();
            let job = self.queue.job(self.fx.claimed[0]).unwrap();
            Delivery { id: Id::Serial(job.arrival()), token: job.token() }
        };
        (0..count).map(claim).collect()
    }

    fn counted<'a>(&mut self, op: &Op<'a>) -> Outcome {
        measured(&mut self.queue, op, &mut self.fx)
    }

    /// Settles all that is due after so many ms, counting.
    fn sweep(&mut self, ms: u64) {
        let stamp = Stamp { now: CLOCK.now + ms, wall: CLOCK.wall + ms, serial: self.queue.last_serial() };
        self.quietly(1, |_| Op::Clock(stamp));
        let mut settled = 0;
        while let Outcome::Swept(some @ 1..) = self.counted(&Op::Sweep { limit: 1_000 }) {
            settled += some;
        }
        assert_eq!(settled, OPS);
    }
}

fn enqueue() {
    let mut script = Script::new();
    script.quietly(OPS, |_| Script::enqueue(b"", None));
    for _ in 0..OPS {
        script.counted(&Script::enqueue(b"", None));
    }
}

fn enqueue_delayed() {
    let mut script = Script::new();
    let op =
        |number: usize| Script::enqueue(b"", Some(When::Delay(1_000 + (number as u64 * 7_919) % 60_000)));
    script.quietly(OPS, op);
    for number in OPS..2 * OPS {
        script.counted(&op(number));
    }
}

/// One that adds a job, and one that finds its key locked, among many others.
fn enqueue_unique() {
    let mut script = Script::new();
    let keys: Vec<_> = (0..3 * OPS).map(|number| format!("user:{number}")).collect();
    let op = |number: usize| {
        let Op::Enqueue(plain) = Script::enqueue(b"", None) else { unreachable!() };
        let key = keys[number].as_bytes();
        let unique = queue::Unique { key, until: queue::Until::Finished, window: None, debounce: false };
        Op::Enqueue(Enqueue { unique: Some(Box::new(unique)), ..plain })
    };
    script.quietly(2 * OPS, op);
    for number in (0..OPS).step_by(2) {
        script.counted(&op(2 * OPS + number));
        script.counted(&op(number));
    }
}

fn claim() {
    let mut script = Script::new();
    script.quietly(2 * OPS, |_| Script::enqueue(b"", None));
    script.claimed(OPS);
    for _ in 0..OPS {
        script.counted(&Script::claim());
        assert_eq!(script.fx.claimed.len(), 1);
    }
}

/// From a thousand groups in turn.
fn claim_in_turn() {
    let mut script = Script::new();
    let names: Vec<_> = (0..1_000).map(|group| format!("group-{group}")).collect();
    script.quietly(2 * OPS, |number| Script::enqueue(names[number % names.len()].as_bytes(), None));
    script.claimed(OPS);
    for _ in 0..OPS {
        script.counted(&Script::claim());
        assert_eq!(script.fx.claimed.len(), 1);
    }
}

fn ack_with(result: Option<&[u8]>) {
    let mut script = Script::new();
    script.quietly(2 * OPS, |_| Script::enqueue(b"", None));
    let deliveries = script.claimed(2 * OPS);
    let ack = |number: usize| Op::Ack { delivery: deliveries[number], result, ttl: None };
    script.quietly(OPS, ack);
    for number in OPS..2 * OPS {
        assert_eq!(script.counted(&ack(number)), Outcome::Acked(true));
    }
}

fn ack() {
    ack_with(None);
}

fn ack_with_result() {
    ack_with(Some(&PAYLOAD));
}

/// Into the output of one job, which grows.
fn emit() {
    let mut script = Script::new();
    script.quietly(1, |_| Script::enqueue(b"", None));
    let delivery = script.claimed(1)[0];
    let op = |_| Op::Emit { delivery, chunk: b"a token " };
    script.quietly(4 * OPS, op);
    for number in 0..OPS {
        script.counted(&op(number));
    }
}

fn fail() {
    let mut script = Script::new();
    script.quietly(2 * OPS, |_| Script::enqueue(b"", None));
    let deliveries = script.claimed(2 * OPS);
    let op = |number: usize| Op::Fail {
        delivery: deliveries[number],
        error: Some(b"no such mailbox"),
        how: queue::Failure::Retry,
    };
    script.quietly(OPS, op);
    for number in OPS..2 * OPS {
        script.counted(&op(number));
    }
}

fn sweep_due() {
    let mut script = Script::new();
    script.quietly(OPS, |_| Script::enqueue(b"", Some(When::Delay(1_000))));
    script.sweep(1_000);
}

fn sweep_lapsed() {
    let mut script = Script::new();
    script.quietly(OPS, |_| Script::enqueue(b"", None));
    script.claimed(OPS);
    script.sweep(Settings::default().lease);
}

fn sweep_expired() {
    let mut script = Script::new();
    script.quietly(OPS, |_| Script::enqueue(b"", None));
    let deliveries = script.claimed(OPS);
    script.quietly(OPS, |number| Op::Ack {
        delivery: deliveries[number],
        result: Some(&PAYLOAD),
        ttl: Some(Some(1_000)),
    });
    script.sweep(1_000);
}

const SCRIPTS: [(&str, fn()); 12] = [
    ("enqueue", enqueue),
    ("enqueue-delayed", enqueue_delayed),
    ("enqueue-unique", enqueue_unique),
    ("claim", claim),
    ("claim-from-1000-groups", claim_in_turn),
    ("ack", ack),
    ("ack-with-result", ack_with_result),
    ("emit", emit),
    ("fail", fail),
    ("sweep-due", sweep_due),
    ("sweep-lapsed", sweep_lapsed),
    ("sweep-expired", sweep_expired),
];

/// Runs a script under valgrind: instructions per op.
fn count(name: &str) -> Result<u64, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--toggle-collect=measured", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .arg(name)
        .output()
        .map_err(|error| format!("valgrind: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let collected =
        said.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse::<u64>().ok());
    match collected {
        Some(collected) if output.status.success() && collected > OPS as u64 => Ok(collected / OPS as u64),
        _ => Err(format!("{name} was not counted:\n{said}")),
    }
}

fn compiler() -> String {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let version =
        Command::new(rustc).arg("--version").output().map(|output| output.stdout).unwrap_or_default();
    format!("{} {}", String::from_utf8_lossy(&version).trim(), std::env::consts::ARCH)
}

fn guard() -> Result<(), String> {
    let compiler = compiler();
    let stored = std::fs::read_to_string(STORED).unwrap_or_default();
    let figures: BTreeMap<&str, u64> = stored
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(name, figure)| Some((name, figure.trim().parse().ok()?)))
        .collect();
    let is_rewrite = std::env::var_os("RQ_GUARD").is_some();
    let is_same =
        stored.lines().any(|line| line.strip_prefix("# ").is_some_and(|made_by| made_by == compiler));
    let tolerance = if is_same { TOLERANCE } else { TOLERANCE_COMPILER };
    if !is_same && !is_rewrite {
        println!(
            "*** the stored figures are of another compiler than {compiler}: {tolerance} % are let pass"
        );
    }
    let (mut text, mut wrong) =
        (format!("# {compiler}\n# instructions per op, written by RQ_GUARD=1 make test-guard\n"), Vec::new());
    for (name, _) in SCRIPTS {
        let now = count(name)?;
        writeln!(text, "{name} {now}").map_err(|error| error.to_string())?;
        let Some(&before) = figures.get(name) else {
            wrong.push(format!("{name}: {now} instructions, and nothing is stored"));
            continue;
        };
        let change = (now as f64 / before as f64 - 1.0) * 100.0;
        println!("{name:24} {now:6} instructions, {change:+.1} %");
        if change.abs() > tolerance {
            let more = if change > 0.0 { "more" } else { "fewer" };
            wrong.push(format!(
                "{name}: {now} instructions, {:.1} % {more} than the stored {before}",
                change.abs()
            ));
        }
    }
    if is_rewrite {
        std::fs::write(STORED, &text).map_err(|error| error.to_string())?;
        println!("stored in {STORED}:\n{text}");
        return Ok(());
    }
    if wrong.is_empty() {
        return Ok(());
    }
    Err(format!("{}\nIf that is meant, store what is so now: RQ_GUARD=1 make test-guard", wrong.join("\n")))
}

fn main() -> ExitCode {
    if let Some(name) = std::env::args().nth(1) {
        let (_, script) = SCRIPTS.iter().find(|(script, _)| *script == name).expect("a script of that name");
        script();
        return ExitCode::SUCCESS;
    }
    match guard() {
        Ok(()) => {
            println!("{} passed, 0 failed", SCRIPTS.len());
            ExitCode::SUCCESS
        }
        Err(text) => {
            eprintln!("{text}");
            ExitCode::FAILURE
        }
    }
}

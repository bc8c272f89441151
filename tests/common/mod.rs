//! What the server tests share: real servers with the module loaded ([`Lab`], [`Server`]), connections that can also
//! misbehave ([`Client`]), and waiting for conditions ([`eventually`]).
//!
//! A test is a plain function `fn name(lab: &Lab)`, listed in its module's `TESTS`; it runs once for every server binary
//! in `RQ_SERVERS`. Nothing here links the crate: whatever is known of the module came over a socket.

mod client;
mod clock;
mod cluster;
mod lab;
mod queue;
mod server;

pub use client::{Client, Reply, ToArg, encode};
pub use clock::Clock;
pub use cluster::Cluster;
pub use lab::{Lab, Test, run, soak};
pub use queue::*;
pub use server::Server;

use std::time::{Duration, Instant};

/// How long a condition may take before a test gives up. Only failing tests ever wait this long.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The list of a module's tests: `pub const TESTS: &[Test] = tests![first, second];`
#[macro_export]
macro_rules! tests {
    ($($name:ident),* $(,)?) => { &[$((stringify!($name), $name)),*] };
}

/// The arguments of one command, each of any type that a command line can hold.
#[macro_export]
macro_rules! args {
    ($($arg:expr),* $(,)?) => { $crate::common::pack(&[$(&$arg as &dyn $crate::common::ToArg),*]) };
}

/// Runs a command and gives its reply; an error reply fails the test.
#[macro_export]
macro_rules! cmd {
    ($client:expr, $($arg:expr),* $(,)?) => { $client.run($crate::args![$($arg),*]) };
}

/// Runs a command that is expected to be refused and gives the first word of the error.
#[macro_export]
macro_rules! refused {
    ($client:expr, $($arg:expr),* $(,)?) => { $client.refused($crate::args![$($arg),*]) };
}

/// Sends a command without waiting for its reply.
#[macro_export]
macro_rules! send {
    ($client:expr, $($arg:expr),* $(,)?) => { $client.send($crate::args![$($arg),*]) };
}

/// Polls until `check` gives something, and fails the test naming `what` if it does not within [`PATIENCE`].
#[track_caller]
pub fn eventually<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = check() {
            return value;
        }
        assert!(start.elapsed() < PATIENCE, "waited {PATIENCE:?} in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// [`eventually`] for a condition without a value.
#[track_caller]
pub fn until(what: &str, mut check: impl FnMut() -> bool) {
    eventually(what, || check().then_some(()));
}

/// Fails the test unless `check` holds all through `time`. For what must not happen; there is no event to wait for.
#[track_caller]
pub fn holds(what: &str, time: Duration, mut check: impl FnMut() -> bool) {
    let start = Instant::now();
    loop {
        assert!(check(), "did not hold for {time:?}, broke after {:?}: {what}", start.elapsed());
        if start.elapsed() >= time {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What `args!` makes of its arguments; not generic, so that two thousand command lines compile quickly.
pub fn pack(args: &[&dyn ToArg]) -> Vec<Vec<u8>> {
    args.iter().map(|arg| arg.to_arg()).collect()
}

pub fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The wall clock in Unix milliseconds, as `AT` and `BEFORE` take it.
pub fn unix_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    u64::try_from(now.expect("a clock after 1970").as_millis()).expect("a clock before the year 500 million")
}

/// A small pseudo-random sequence, the same for the same seed.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

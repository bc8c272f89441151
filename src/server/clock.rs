//! The two clocks of the machine, and what a replica learns of its primary's.
//!
//! The only file that reads a clock.

use super::ffi::{Main, MainCell};

/// Ms since the machine was started, suspend included. No step of the wall clock touches it.
#[must_use]
pub fn boot_ms() -> u64 {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: libc::clockid_t = libc::CLOCK_BOOTTIME;
    // On macOS the monotonic clock goes on during suspend.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: libc::clockid_t = libc::CLOCK_MONOTONIC;
    read_ms(CLOCK)
}

/// Unix ms. May step.
#[must_use]
pub fn wall_ms() -> u64 {
    read_ms(libc::CLOCK_REALTIME)
}

fn read_ms(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the result. Both clocks exist on every supported system;
    // if one did not, `time` would stay 0.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000).saturating_add(nanos / 1_000_000)
}

/// The wall clock of the primary less this machine's boot clock, ms, as its stamps showed it.
static PRIMARY_WALL: MainCell<Option<i64>> = MainCell::new(None);

/// A sample may be this much older than the newest one without meaning that the primary's clock
/// was set back: stamps wait in buffers and sockets. In ms.
const LAG_MS: i64 = 5_000;

/// Notes what a stamp says of the primary's wall clock. The least delayed sample is the best.
pub fn note_primary_wall(main: Main, wall: u64) {
    let sample = difference(wall, boot_ms());
    let best = match PRIMARY_WALL.get(main) {
        Some(known) if sample <= known && sample > known.saturating_sub(LAG_MS) => known,
        _ => sample,
    };
    PRIMARY_WALL.set(main, Some(best));
}

/// The wall clock as the primary has it, if a stamp has shown it; else this machine's. Unix ms.
#[must_use]
pub fn primary_wall_ms(main: Main) -> u64 {
    PRIMARY_WALL.get(main).map_or_else(wall_ms, |offset| boot_ms().saturating_add_signed(offset))
}

/// `a - b` for instants, which are far below 2^63.
#[must_use]
pub fn difference(a: u64, b: u64) -> i64 {
    let clamp = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    clamp(a).saturating_sub(clamp(b))
}

//! The two clocks of the machine, and what a replica learns of its primary's.
//!
//! The only file that reads a clock.

use super::ffi::{Main, MainCell};

#[cfg(any(target_os = "linux", target_os = "android"))]
const BOOT: libc::clockid_t = libc::CLOCK_BOOTTIME;
// On macOS the monotonic clock goes on during suspend.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const BOOT: libc::clockid_t = libc::CLOCK_MONOTONIC;

/// Nanoseconds in a millisecond.
const MS: i64 = 1_000_000;

/// Ms since the machine was started, suspend included. No step of the wall clock touches it.
#[must_use]
pub fn boot_ms() -> u64 {
    u64::try_from(read(BOOT) / MS).unwrap_or(0)
}

/// As [`boot_ms`], in microseconds: to see how long something takes.
#[must_use]
pub fn boot_us() -> u64 {
    u64::try_from(read(BOOT) / 1_000).unwrap_or(0)
}

/// Unix ms. May step.
#[must_use]
pub fn wall_ms() -> u64 {
    wall_at(boot_ms())
}

/// Unix ms when the boot clock shows `boot` ms, as the clocks stand now.
///
/// Each clock begins its milliseconds at moments of its own, so the difference of two that were rounded down is now
/// this, now one more. Here it is rounded once, and the same until the wall clock steps.
#[must_use]
pub fn wall_at(boot: u64) -> u64 {
    boot.saturating_add_signed(read(libc::CLOCK_REALTIME).saturating_sub(read(BOOT)).div_euclid(MS))
}

/// What a clock shows, in nanoseconds, for 292 years.
fn read(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the result. Both clocks exist on every supported system;
    // if one did not, `time` would stay 0.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec.saturating_mul(1_000 * MS).saturating_add(time.tv_nsec)
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

//! What an operator must know, said in the server's log: once when it comes to be so, not per job.

use super::clock;
use super::ffi::{Ctx, Main, MainCell, Str, log};
use crate::queue::{Queue, State};

/// What is amiss with the server's configuration, as bits; of the last look.
static AMISS: MainCell<u8> = MainCell::new(0);

const EVICTS: u8 = 1;
const NO_AOF: u8 = 2;

/// A queue's lines come no more often than this, ms.
const QUIET_MS: u64 = 3_600_000;
/// So many lines about queues may come in a row, and one more each [`LINE_MS`].
const LINES_MAX: u64 = 10;
/// See [`LINES_MAX`]. In ms.
const LINE_MS: u64 = 10_000;
/// Dead jobs of a queue below which nothing is said.
const DEAD_MIN: usize = 128;

/// What was said of a queue.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    /// When it was said last that it is full, boot clock, ms; 0: never.
    full: u64,
    /// How many dead jobs are the next to be told of; when there are fewer than a quarter of those told
    /// of last, it begins anew.
    dead: usize,
    few: usize,
}

impl Default for Told {
    fn default() -> Self {
        Self { full: 0, dead: DEAD_MIN, few: 0 }
    }
}

/// Looks at the configuration: when the module is loaded, and when the configuration changes.
pub fn look_at_server(ctx: Ctx<'_>) {
    let main = ctx.main();
    let flags = ctx.flags();
    let bits = if flags.may_evict() { EVICTS } else { 0 } | if flags.has_aof() { 0 } else { NO_AOF };
    let news = bits & !AMISS.get(main);
    AMISS.set(main, bits);
    if news & EVICTS != 0 {
        log(
            c"warning",
            "maxmemory-policy may drop whole queues: set it to noeviction (or to a volatile-… policy, and no TTL on queues)",
        );
    }
    if news & NO_AOF != 0 {
        log(
            c"warning",
            "appendonly is off: what queues took since the last snapshot is lost when this server ends unexpectedly",
        );
    }
}

/// Enqueueing was refused, since the queue has as many waiting jobs as it may.
#[cold]
pub fn queue_is_full(main: Main, name: Str<'_>, told: &mut Told, queue: &Queue) {
    let now = clock::boot_ms();
    if told.full != 0 && now.saturating_sub(told.full) < QUIET_MS {
        return;
    }
    if may_say(main, now) {
        told.full = now.max(1);
        let limit = queue.settings().max_len.unwrap_or(0);
        log(
            c"warning",
            &format!("queue {}: enqueueing is refused, MAXLEN ({limit}) jobs are waiting", shown(name)),
        );
    }
}

/// To be called after a change: says it if the dead jobs of a queue are twice as many as when it was
/// said last.
#[inline]
pub fn count_dead(main: Main, name: Str<'_>, told: &mut Told, queue: &Queue) {
    let dead = queue.count(State::Dead);
    if dead >= told.dead {
        dead_have_grown(main, name, told, dead);
    } else if dead < told.few {
        (told.dead, told.few) = (DEAD_MIN, 0);
    }
}

#[cold]
fn dead_have_grown(main: Main, name: Str<'_>, told: &mut Told, dead: usize) {
    if may_say(main, clock::boot_ms()) {
        log(
            c"warning",
            &format!("queue {}: {dead} jobs are dead; RQ.LIST … dead and RQ.JOB tell why", shown(name)),
        );
        (told.dead, told.few) = (dead.saturating_mul(2), dead / 4);
    }
}

/// When the bucket of lines is full again, boot clock, ms.
static LINES_FULL_AT: MainCell<u64> = MainCell::new(0);

/// Whether another line may be written now; if so, it counts.
fn may_say(main: Main, now: u64) -> bool {
    let full_at = LINES_FULL_AT.get(main).max(now).saturating_add(LINE_MS);
    if full_at.saturating_sub(now) > LINES_MAX.saturating_mul(LINE_MS) {
        return false;
    }
    LINES_FULL_AT.set(main, full_at);
    true
}

/// A name for the log.
fn shown(name: Str<'_>) -> String {
    const LONGEST: usize = 100;
    let bytes = name.bytes();
    let cut = if bytes.len() > LONGEST { "…" } else { "" };
    format!("'{}'{cut}", bytes.get(..LONGEST).unwrap_or(bytes).escape_ascii())
}

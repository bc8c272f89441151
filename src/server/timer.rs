//! The one timer: armed for the next instant at which anything is due, over all queues and waits.
//!
//! A run of it is bounded and changes at most one queue, so that what it propagates is one small
//! unit. What is left is taken up a millisecond later, by several runs if many queues are due.
//! Nothing is written while this server is a replica or loads, nor while clients are paused or a
//! failover runs: a write then would end the server. In that case it looks again soon.

use super::clock;
use super::events;
use super::ffi::{self, Access, Ctx, Held, Key, Main, MainCell, OwnStr, Str, TimerId};
use super::notices;
use super::run::{self, Travel};
use super::state::{STATE, WAITING};
use super::torn;
use super::value::Value;
use super::waiters;
use crate::queue::limits::SWEEP_SLICE;
use crate::queue::{Delivery, Id, Op};

/// What the timer is at.
#[derive(Debug, Default)]
pub struct Timers {
    armed: Option<Armed>,
    /// Number of the last armed one.
    last: usize,
    /// Runs under way beside the armed one, because many queues are due.
    extra: usize,
    /// When to see whether awaited keys live elsewhere now, boot clock, ms; only in a cluster.
    slots_due: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Armed {
    /// Boot clock, ms.
    at: u64,
    id: TimerId,
    number: usize,
}

/// Tells an extra run.
const EXTRA: usize = 0;

/// Most runs in one millisecond.
const RUNS_MAX: usize = 16;

/// Smallest slice of a sweep.
const SLICE_MIN: usize = 64;

/// A slice is settled in pieces of so many items...
const PIECE: usize = 16;

/// ... and no further piece is begun after so many microseconds: items that nobody has touched for long may take many times
/// as long as others.
const PIECES_US: u64 = 500;

/// How often a state is looked at again in which nothing may be written, in ms.
const RETRY_MS: u64 = 50;

/// How often a cluster's slots are compared with those who wait, in ms.
const SLOTS_MS: u64 = 1_000;

/// Names compared at a time.
const SLOTS_NAMES_MAX: usize = 1_000;

/// Then so many ms until the next of them.
const SLOTS_SLICE_MS: u64 = 20;

/// Names looked at in one run, when they turn out not to be due.
const LOOKS_MAX: usize = 100;

/// Workers forgotten in one unit.
const FORGET_MAX: usize = 1_000;

/// A timer that is late by so much hangs: the wall clock, by which the server keeps its timers, was
/// set back. In ms.
const LATE_MS: u64 = 20;

/// The wall clock less the boot clock at the last look, ms.
static OFFSET: MainCell<Option<i64>> = MainCell::new(None);

/// A change of the offset by more than this is a step of the wall clock, in ms.
const STEP_MS: u64 = 20;

/// Whether this server is part of a cluster; set at load.
pub static IS_CLUSTER: MainCell<bool> = MainCell::new(false);

/// Makes sure that the timer runs at `at` (boot clock, ms) or before.
pub fn arm(main: Main, at: u64) {
    if at == u64::MAX || events::is_loading(main) {
        return;
    }
    let old = STATE.with(main, |state| match state.timers.armed {
        Some(armed) if armed.at <= at => Some(None),
        old => {
            state.timers.armed = None;
            old.map(Some)
        }
    });
    match old {
        Some(None) => return,
        // Not running: a run begins with taking itself out of `armed`.
        Some(Some(armed)) => ffi::stop_timer(main, armed.id),
        None => {}
    }
    STATE.with(main, |state| {
        let number = state.timers.last.checked_add(1).unwrap_or(1);
        let id = ffi::set_timer(main, at.saturating_sub(clock::boot_ms()), number);
        state.timers.last = number;
        state.timers.armed = Some(Armed { at, id, number });
    });
}

/// Somebody waits: in a cluster, see once a second whether their keys are still here.
pub fn watch_slots(main: Main) {
    if !IS_CLUSTER.get(main) {
        return;
    }
    let due = STATE.with(main, |state| {
        *state.timers.slots_due.get_or_insert_with(|| clock::boot_ms().saturating_add(SLOTS_MS))
    });
    arm(main, due);
}

/// A backstop, several times a second.
pub fn cron(main: Main) {
    let now = clock::boot_ms();
    let offset = clock::difference(clock::wall_at(now), now);
    let has_stepped = OFFSET.get(main).is_some_and(|old| old.abs_diff(offset) > STEP_MS);
    OFFSET.set(main, Some(offset));
    if has_stepped {
        // Jobs that follow the wall clock are due at other instants now.
        STATE.with(main, |state| state.index.all_due());
        arm(main, 0);
    }
    let hangs = STATE.with(main, |state| {
        let armed = state.timers.armed.filter(|armed| armed.at.saturating_add(LATE_MS) < now);
        if armed.is_some() {
            state.timers.armed = None;
        }
        armed
    });
    if let Some(armed) = hangs {
        ffi::stop_timer(main, armed.id);
        arm(main, 0);
    }
}

/// A run of the timer.
pub fn tick(ctx: Ctx<'_>, number: usize) {
    let main = ctx.main();
    let now = clock::boot_ms();
    let (is_main_run, share) = STATE.with(main, |state| {
        state.stats.ticks = state.stats.ticks.saturating_add(1);
        let timers = &mut state.timers;
        let share = timers.extra.saturating_add(1);
        if number == EXTRA {
            timers.extra = timers.extra.saturating_sub(1);
        } else if timers.armed.is_some_and(|armed| armed.number == number) {
            timers.armed = None;
        }
        (number != EXTRA, share)
    });
    if events::is_loading(main) {
        return;
    }
    torn::mend(ctx);
    let flags = ctx.flags();
    let is_primary = flags.is_primary();
    let may_write = is_primary && !ctx.must_not_write();
    for client in STATE.with(main, |state| std::mem::take(&mut state.unanswered)) {
        ctx.close(client);
    }
    if is_main_run {
        waiters::pace(main);
        waiters::expire(main, now);
        look_at_slots(ctx, now, is_primary);
    }
    // A replica only answers those who wait for results.
    if may_write || !is_primary {
        unit(ctx, now, is_primary, SWEEP_SLICE.checked_div(share).unwrap_or(0).max(SLICE_MIN));
    }
    rearm(main, now, is_primary, may_write, is_main_run);
}

fn rearm(main: Main, now: u64, is_primary: bool, may_write: bool, is_main_run: bool) {
    let (next, more) = STATE.with(main, |state| {
        let mut next = u64::MAX;
        let mut more = 0;
        if is_primary && !may_write {
            let has_work = !state.pending.is_empty()
                || !state.undo.is_empty()
                || state.index.next_due().is_some_and(|due| due <= now);
            if has_work {
                next = now.saturating_add(RETRY_MS);
            } else if let Some(due) = state.index.next_due() {
                next = due;
            }
        } else {
            let left = state.pending.len().saturating_add(state.undo.len());
            if left > 0 {
                next = now;
            }
            if is_primary {
                next = next.min(state.index.next_due().unwrap_or(u64::MAX));
                let backlog = state.index.backlog(now, RUNS_MAX).saturating_add(left);
                more = backlog.min(RUNS_MAX).saturating_sub(1).saturating_sub(state.timers.extra);
            }
        }
        next = next.min(state.waits.next_deadline().unwrap_or(u64::MAX));
        next = next.min(state.timers.slots_due.unwrap_or(u64::MAX));
        if !is_main_run {
            more = 0;
        }
        state.timers.extra = state.timers.extra.saturating_add(more);
        (next, more)
    });
    arm(main, next);
    for _ in 0..more {
        let _ = ffi::set_timer(main, 0, EXTRA);
    }
}

fn look_at_slots(ctx: Ctx<'_>, now: u64, is_primary: bool) {
    let main = ctx.main();
    let is_due = STATE.with(main, |state| state.timers.slots_due.is_some_and(|due| due <= now));
    if !is_due {
        return;
    }
    let has_more = is_primary && waiters::dismiss_strangers(ctx, SLOTS_NAMES_MAX);
    let wait = if has_more { SLOTS_SLICE_MS } else { SLOTS_MS };
    let next = (WAITING.get(main) > 0).then(|| now.saturating_add(wait));
    STATE.with(main, |state| state.timers.slots_due = next);
}

/// One unit of work: at most one queue is changed.
fn unit(ctx: Ctx<'_>, now: u64, is_primary: bool, slice: usize) {
    let main = ctx.main();
    if !is_primary {
        // Whoever is the primary now sees these leases lapse.
        STATE.with(main, |state| {
            for _ in state.undo.drain(..) {
                state.moves.arrive();
            }
        });
    } else if let Some(grant) = STATE.with(main, |state| state.undo.pop_front()) {
        return undo(ctx, &grant);
    }
    if let Some((db, name)) = STATE.with(main, |state| state.pending.pop_first()) {
        return look(ctx, db, &name, is_primary);
    }
    if !is_primary {
        return;
    }
    for _ in 0..LOOKS_MAX {
        let Some((db, name)) = STATE.with(main, |state| state.index.due(now)) else { return };
        if settle(ctx, db, &name, slice) {
            return;
        }
    }
}

/// Takes a grant back whose client never got it.
fn undo(ctx: Ctx<'_>, grant: &waiters::Grant) {
    let main = ctx.main();
    let (db, name) = STATE.with(main, |state| {
        let place = state.moves.follow(grant.mark, (grant.db, grant.name.clone()));
        state.moves.arrive();
        place
    });
    ctx.select(db);
    let name = OwnStr::new(main, &name);
    let mut key = Key::open(ctx, name.get(), Access::Settle);
    let Held::Queue(value) = key.held() else { return };
    let grants =
        grant.deliveries.iter().map(|(id, token)| Delivery { id: Id::parse(id), token: *token }).collect();
    let result = run::apply(ctx, name.get(), value, &Op::Undo { grants }, Travel::Op);
    if result.is_ok_and(|done| done.changed) {
        STATE.with(main, |state| state.stats.undone = state.stats.undone.saturating_add(1));
        serve_and_note(ctx, &name, value);
        drop(key);
        ctx.signal_modified(name.get());
        notices::raise(ctx, name.get(), None);
    }
}

/// Looks at a queue that somebody waits for.
fn look(ctx: Ctx<'_>, db: i32, name: &[u8], is_primary: bool) {
    let main = ctx.main();
    ctx.select(db);
    let own = OwnStr::new(main, name);
    let access = if is_primary { Access::Settle } else { Access::Peek };
    let mut key = Key::open(ctx, own.get(), access);
    let Held::Queue(value) = key.held() else {
        waiters::look(ctx, db, name, None);
        return;
    };
    waiters::look(ctx, db, name, Some(value));
    let served = is_primary && serve_and_note(ctx, &own, value);
    drop(key);
    if served {
        ctx.signal_modified(own.get());
    }
    notices::raise(ctx, own.get(), None);
}

/// `true` if somebody was served.
fn serve_and_note(ctx: Ctx<'_>, name: &OwnStr, value: &mut Value) -> bool {
    let main = ctx.main();
    let db = ctx.db();
    let (served, is_more) = waiters::serve(ctx, name.get(), value);
    if is_more {
        waiters::look_later(main, db, name.get().bytes());
    }
    if let Some(due) = value.news() {
        STATE.with(main, |state| state.index.set(db, name.get().bytes(), due));
    }
    served
}

/// Settles what is due in a queue. `true` if that changed it.
fn settle(ctx: Ctx<'_>, db: i32, name: &[u8], slice: usize) -> bool {
    let main = ctx.main();
    ctx.select(db);
    let own = OwnStr::new(main, name);
    if IS_CLUSTER.get(main) && !ctx.may_settle(own.get()) {
        let later = clock::boot_ms().saturating_add(SLOTS_MS);
        STATE.with(main, |state| state.index.set(db, name, later));
        return false;
    }
    let mut key = Key::open(ctx, own.get(), Access::Settle);
    let Held::Queue(value) = key.held() else {
        STATE.with(main, |state| state.index.remove(db, name));
        return false;
    };
    value.prepare(main);
    let swept = sweep_in_pieces(ctx, own.get(), value, slice);
    let forgot = forget(ctx, db, own.get(), value);
    // Also when nothing was swept: a rate may allow more now.
    let (served, is_more) = waiters::serve(ctx, own.get(), value);
    if is_more {
        waiters::look_later(main, db, name);
    }
    let now = clock::boot_ms();
    let due = match (swept, value.due_now()) {
        // It says that something is due, but nothing was: not at once again.
        (Swept::NothingButDue, due) if due <= now => now.saturating_add(RETRY_MS),
        // More is left: behind the others that are due.
        (_, due) => due.max(now),
    };
    value.set_indexed(due);
    STATE.with(main, |state| state.index.set(db, name, due));
    drop(key);
    let has_changed = swept == Swept::Something || forgot || served;
    if has_changed {
        ctx.signal_modified(own.get());
    }
    notices::raise(ctx, own.get(), None);
    has_changed
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Swept {
    NotDue,
    NothingButDue,
    Something,
}

fn sweep_in_pieces(ctx: Ctx<'_>, name: Str<'_>, value: &mut Value, limit: usize) -> Swept {
    let begin = clock::boot_us();
    let swept = sweep(ctx, name, value, limit.min(PIECE));
    let (mut last, mut left) = (swept, limit.saturating_sub(PIECE));
    while last == Swept::Something && left > 0 && clock::boot_us().saturating_sub(begin) < PIECES_US {
        last = sweep(ctx, name, value, left.min(PIECE));
        left = left.saturating_sub(PIECE);
    }
    swept
}

fn sweep(ctx: Ctx<'_>, name: Str<'_>, value: &mut Value, limit: usize) -> Swept {
    let main = ctx.main();
    if !value.is_due() {
        return Swept::NotDue;
    }
    let result = run::apply(ctx, name, value, &Op::Sweep { limit }, Travel::Op);
    if !result.is_ok_and(|done| done.changed) {
        return Swept::NothingButDue;
    }
    STATE.with(main, |state| state.stats.sweeps = state.stats.sweeps.saturating_add(1));
    Swept::Something
}

/// Forgets workers that have not been seen for long. `true` if there were some.
fn forget(ctx: Ctx<'_>, db: i32, name: Str<'_>, value: &mut Value) -> bool {
    let main = ctx.main();
    if !value.looks_for_workers() {
        return false;
    }
    let waiting = super::call::waiting(main, db, name.bytes());
    let gone = value.forgettable(FORGET_MAX, |worker| waiting.contains_key(worker));
    if gone.is_empty() {
        return false;
    }
    let workers = gone.iter().map(|name| &**name).collect();
    let result = run::apply(ctx, name, value, &Op::Forget { workers }, Travel::Op);
    let has_changed = result.is_ok_and(|done| done.changed);
    if has_changed {
        let count = u64::try_from(gone.len()).unwrap_or(0);
        STATE.with(main, |state| state.stats.forgotten = state.stats.forgotten.saturating_add(count));
    }
    has_changed
}

/// Settles some of what is due in a queue that a claim finds empty, so that a claim at the instant at
/// which a delay ends does not miss the job because the timer runs a moment later.
pub fn settle_for_claim(ctx: Ctx<'_>, name: Str<'_>, value: &mut Value) {
    value.prepare(ctx.main());
    if sweep(ctx, name, value, SLICE_MIN) == Swept::Something {
        ctx.signal_modified(name);
    }
}

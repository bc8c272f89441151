//! A queue as it lies in the keyspace, with what only this server knows of it.

use super::clock;
use super::ffi::{Main, MainCell};
use super::warnings::Told;
use crate::queue::{Op, Queue, Serial, Stamp};

/// The last serial taken on this server, over all queues.
pub static SERIAL: MainCell<u64> = MainCell::new(0);

/// How often this server became a primary; begins at 1. A queue whose number is older has not been
/// looked at since.
static EPOCH: MainCell<u32> = MainCell::new(1);

/// Serials that a lost primary may have taken without this server knowing are taken to end so many
/// ms after the clock of the last of its stamps.
const SERIAL_MARGIN_MS: u64 = 10_000;

/// Serials that run ahead of the clock are of the second half of a millisecond, those that follow it
/// of the first: so the latter do not meet lost ones of the former when the clock gets there.
const SECOND_HALF: u64 = 1 << 19;

/// A queue, and what is not persisted of it. `Send`, and without anything of the server: it is
/// freed by any thread and saved by forked children.
#[derive(Debug)]
pub struct Value {
    /// The queue.
    pub queue: Queue,
    /// The queue's duration clock less this machine's boot clock, ms. `None`: not known yet.
    anchor: Option<i64>,
    /// The [`EPOCH`] in which it was made or loaded.
    born: u32,
    /// The [`EPOCH`] in which it was last used as a primary uses it.
    used: u32,
    /// What the index was told: when there may be something to do, boot clock, ms; `u64::MAX`:
    /// never. May be too early, never too late. `None`: the index was told nothing.
    indexed: Option<u64>,
    /// When to look for workers to be forgotten, boot clock, ms; `u64::MAX`: never.
    forget: u64,
    /// What the log was told of it.
    pub told: Told,
}

const _: fn() = || {
    const fn assert_send<T: Send>() {}
    assert_send::<Value>();
};

impl Value {
    /// A queue made on this server when the boot clock showed `boot` ms, at the stamp's clock.
    #[must_use]
    pub fn made(main: Main, queue: Queue, boot: u64) -> Self {
        let anchor = clock::difference(queue.now(), boot);
        let epoch = EPOCH.get(main);
        Self {
            queue,
            anchor: Some(anchor),
            born: epoch,
            used: epoch,
            indexed: None,
            forget: u64::MAX,
            told: Told::default(),
        }
    }

    /// A queue that came from bytes.
    #[must_use]
    pub fn loaded(main: Main, queue: Queue) -> Self {
        raise_serial(main, queue.last_serial(), clock::wall_ms());
        Self {
            queue,
            anchor: None,
            born: EPOCH.get(main),
            used: 0,
            indexed: None,
            forget: u64::MAX,
            told: Told::default(),
        }
    }

    /// For COPY: the same queue, going on by the same clock.
    #[must_use]
    pub fn duplicate(&self) -> Self {
        Self {
            queue: self.queue.clone(),
            anchor: self.anchor,
            born: self.born,
            used: self.used,
            indexed: None,
            forget: u64::MAX,
            told: self.told,
        }
    }

    /// Approximate bytes on the heap.
    #[must_use]
    pub fn memory(&self) -> usize {
        size_of::<Self>().saturating_sub(size_of::<Queue>()).saturating_add(self.queue.memory())
    }

    /// To be called before a primary uses the queue: gives it its clock, and counts all workers as
    /// just seen, if that is the first use since it was loaded or since this server was promoted.
    #[inline]
    pub fn prepare(&mut self, main: Main) {
        if self.used != EPOCH.get(main) {
            self.adopt(main);
        }
    }

    #[cold]
    fn adopt(&mut self, main: Main) {
        if self.anchor.is_none() {
            // While nobody kept its clock, it went on by the wall clock: of the primary, if this
            // server was its replica then.
            let was_replica = self.born < EPOCH.get(main);
            let wall = if was_replica { clock::primary_wall_ms(main) } else { clock::wall_ms() };
            let now = self.queue.now().saturating_add(wall.saturating_sub(self.queue.wall()));
            self.anchor = Some(clock::difference(now, clock::boot_ms()));
        }
        self.queue.all_seen(self.now());
        // Nothing else may ever happen to the queue.
        self.watch_workers();
        self.used = EPOCH.get(main);
    }

    /// Whether it is known what the queue's duration clock is now. On a replica it is not until the
    /// first stamp arrives.
    #[must_use]
    pub const fn has_clock(&self) -> bool {
        self.anchor.is_some()
    }

    /// The duration clock as it is now, ms; never behind the queue's.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now_at(clock::boot_ms())
    }

    /// As [`Self::now`], when the boot clock shows `boot` ms.
    fn now_at(&self, boot: u64) -> u64 {
        self.anchor.map_or(0, |anchor| boot.saturating_add_signed(anchor)).max(self.queue.now())
    }

    /// An instant of the duration clock on the boot clock, ms.
    #[must_use]
    pub fn to_boot(&self, instant: u64) -> u64 {
        if instant == u64::MAX {
            return u64::MAX;
        }
        instant.saturating_add_signed(self.anchor.unwrap_or(0).saturating_neg())
    }

    /// The stamp that an op needs before it, on a primary: if the millisecond changed, or if
    /// another queue has taken serials and the op takes some too.
    #[must_use]
    #[inline]
    pub fn stamp(&self, main: Main, op: &Op<'_>) -> Option<Stamp> {
        let serial = SERIAL.get(main);
        let boot = clock::boot_ms();
        let now = self.now_at(boot);
        let takes_serials = matches!(op, Op::Enqueue(_) | Op::Claim(_));
        if now <= self.queue.now() && !(takes_serials && serial > self.queue.last_serial().0) {
            return None;
        }
        Some(Stamp { now, wall: clock::wall_at(boot), serial: Serial(serial) })
    }

    /// Notes what a stamp of the primary, applied just now, says of its clock.
    pub fn follow(&mut self, main: Main, stamp: Stamp) {
        clock::note_primary_wall(main, stamp.wall);
        let sample = clock::difference(stamp.now, clock::boot_ms());
        // The least delayed sample is the best.
        self.anchor = Some(self.anchor.map_or(sample, |known| known.max(sample)));
    }

    /// When there is something to do for the timer, boot clock, ms; `u64::MAX`: never.
    #[must_use]
    pub fn due(&self) -> u64 {
        self.queue.next_wakeup().map_or(u64::MAX, |at| self.to_boot(at)).min(self.forget)
    }

    /// Whether a sweep has something to do now.
    #[must_use]
    pub fn is_due(&self) -> bool {
        let now = self.now();
        self.queue.next_wakeup_at(now, clock::wall_ms()).is_some_and(|at| at <= now)
    }

    /// As [`Self::due`], by the clocks as they stand now instead of at the last change.
    #[must_use]
    pub fn due_now(&self) -> u64 {
        let at = self.queue.next_wakeup_at(self.now(), clock::wall_ms());
        at.map_or(u64::MAX, |at| self.to_boot(at)).min(self.forget)
    }

    /// Whether it is time to look for workers to be forgotten.
    #[must_use]
    pub fn looks_for_workers(&self) -> bool {
        self.forget != u64::MAX && self.forget <= clock::boot_ms()
    }

    /// What is to be told to the index, if anything: only what is earlier than it knows.
    #[inline]
    pub fn news(&mut self) -> Option<u64> {
        self.watch_workers();
        let soonest = self.queue.take_soonest();
        if self.indexed.is_some_and(|known| known <= self.to_boot(soonest).min(self.forget)) {
            return None;
        }
        let due = self.due();
        if self.indexed.is_some_and(|known| known <= due) {
            return None;
        }
        self.indexed = Some(due);
        Some(due)
    }

    /// As [`Self::news`], on a server that only obeys: it has nothing to do, but the index is to
    /// know the name.
    pub fn first_news(&mut self) -> Option<u64> {
        if self.indexed.is_some() {
            return None;
        }
        // Looked at when this server becomes a primary.
        self.indexed = Some(0);
        Some(0)
    }

    /// Notes what the index was told by the timer.
    pub const fn set_indexed(&mut self, due: u64) {
        self.indexed = Some(due);
    }

    /// Workers are looked after once there are any.
    #[inline]
    fn watch_workers(&mut self) {
        if self.forget == u64::MAX
            && self.queue.worker_count() > 0
            && let Some(ttl) = self.queue.settings().worker_ttl
        {
            self.forget = clock::boot_ms().saturating_add(ttl);
        }
    }

    /// The settings changed: what was reckoned from them is reckoned anew.
    pub fn settings_changed(&mut self) {
        if self.queue.worker_count() > 0 {
            self.forget = clock::boot_ms();
        }
    }

    /// Workers that are to be forgotten now, at most `limit`; and sets when to look again.
    /// `is_waiting` tells of those that wait at this moment.
    pub fn forgettable(&mut self, limit: usize, is_waiting: impl Fn(&[u8]) -> bool) -> Vec<Box<[u8]>> {
        let boot = clock::boot_ms();
        if self.forget > boot {
            return Vec::new();
        }
        let Some(ttl) = self.queue.settings().worker_ttl else {
            self.forget = u64::MAX;
            return Vec::new();
        };
        let now = self.now();
        let mut next = u64::MAX;
        let mut gone = Vec::new();
        for worker in self.queue.workers() {
            if worker.active > 0 {
                // The end of its hold is a change of the queue, and sets a time to look again.
                continue;
            }
            let is_waiting = is_waiting(worker.name);
            let due = if is_waiting { now } else { worker.last_seen }.saturating_add(ttl);
            if is_waiting || due > now {
                next = next.min(due);
            } else if gone.len() < limit {
                gone.push(worker.name.into());
            } else {
                // The rest is for the next run, at once.
                self.forget = boot;
                return gone;
            }
        }
        // One look settles many: not more than ten looks a second, at most a second late.
        let grain = (ttl / 16).clamp(100, 1_000);
        self.forget =
            if next == u64::MAX { u64::MAX } else { self.to_boot(next.max(now.saturating_add(grain))) };
        gone
    }
}

/// A queue may be ahead of the wall clock by so much, in ms (a year), before its serials are taken
/// for made up.
const SERIAL_AHEAD_MS: u64 = 31_536_000_000;

/// Serials taken from now on are larger than this one. `wall` is the wall clock, Unix ms.
///
/// A queue from hostile bytes must not spoil the ids of all others: serials from a far future stay
/// with the queue that brought them.
#[inline]
pub fn raise_serial(main: Main, serial: Serial, wall: u64) {
    if serial.0 > SERIAL.get(main) && serial.millis() <= wall.saturating_add(SERIAL_AHEAD_MS) {
        SERIAL.set(main, serial.0);
    }
}

/// This server became a primary: every queue is to be prepared anew, and no serial of the old
/// primary may be taken again.
pub fn promoted(main: Main) {
    EPOCH.set(main, EPOCH.get(main).saturating_add(1));
    let wall = clock::primary_wall_ms(main).max(clock::wall_ms());
    leap(main, wall.saturating_add(SERIAL_MARGIN_MS));
}

/// Files were read. If serials run ahead of the clock, because of a promotion before the restart,
/// some may have been taken of which the end of the file did not reach the disk: the clock, which
/// else keeps serials apart, does not do so then.
pub fn restarted(main: Main) {
    let (known, wall) = (Serial(SERIAL.get(main)).millis(), clock::wall_ms());
    if known > wall {
        leap(main, wall.saturating_add(SERIAL_MARGIN_MS).max(known.saturating_add(1)));
    }
}

/// Serials taken from now on are of this instant (Unix ms) or later.
fn leap(main: Main, to: u64) {
    raise_serial(main, Serial(Serial::first_of(to).0 | SECOND_HALF), to);
}

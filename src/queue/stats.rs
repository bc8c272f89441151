//! What happened lately: events per minute, and how long jobs waited and ran.
//!
//! Time is the queue's own clock, cut into minutes. Of the last [`RATE_MINUTES`] it is kept how often
//! each kind of event occurred, of the last [`SPAN_MINUTES`] histograms of waits and runs; a minute in
//! which nothing happened takes no room. Events cost nothing here, as they are in the totals anyway:
//! those of a minute are the totals at its end less those at its beginning. A wait or a run costs one
//! increment.
//!
//! The minute is turned when an op comes, before it is applied. An op that changes nothing takes the
//! clock back ([`Queue::apply_at`](super::Queue::apply_at)), but not the turn. That is not seen: no view
//! and no persisted form looks further than the clock, and nothing is dropped before the clock has
//! really got there.

use std::cmp::Ordering;

use super::Totals;

/// A minute, ms.
pub const MINUTE_MS: u64 = 60_000;
/// Minutes over which events are counted, besides the current one.
pub const RATE_MINUTES: u64 = 15;
/// Minutes over which waits and runs are collected, the current one included.
pub const SPAN_MINUTES: u64 = 5;

/// The kinds of events that are counted per minute, by the names of their totals.
pub const EVENTS: [&str; 8] =
    ["enqueued", "delivered", "done", "failed", "lapsed", "dead", "cancelled", "refused"];

/// Something for each of [`EVENTS`].
pub type PerEvent<T> = [T; EVENTS.len()];

/// Values below 2^SUB_BITS are told apart; above, each power of two has so many buckets.
const SUB_BITS: u32 = 3;
/// Buckets of a histogram.
const BUCKETS: usize = 256;
/// The largest value with a bucket of its own kind, ms (198 days); larger ones share the last.
const LARGEST: u64 = (1 << 34) - 1;

/// How many durations, in ms, fell into each of a fixed set of ranges. A range is at most an eighth
/// as wide as its lower end; the maximum is exact. It takes room from the first to the last bucket used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    max: u64,
    /// The bucket of `counts[0]`.
    first: u8,
    /// The first and the last of them are not 0.
    counts: Vec<u32>,
}

fn bucket_of(value: u64) -> u8 {
    let value = value.min(LARGEST);
    // The highest bit and the SUB_BITS behind it are kept.
    let shift = (u64::BITS - 1 - SUB_BITS).saturating_sub(value.leading_zeros());
    let bucket = (u64::from(shift) << SUB_BITS).saturating_add(value >> shift);
    u8::try_from(bucket).unwrap_or(u8::MAX)
}

/// The largest value in a bucket.
const fn end_of(bucket: u8) -> u64 {
    if bucket == u8::MAX {
        return u64::MAX;
    }
    let shift = (bucket >> SUB_BITS).saturating_sub(1);
    let next = (bucket as u64).saturating_sub((shift as u64) << SUB_BITS).saturating_add(1);
    (next << shift).saturating_sub(1)
}

impl Histogram {
    /// From its persisted parts.
    ///
    /// # Errors
    /// They are none.
    pub fn from_parts(max: u64, first: u8, counts: Vec<u32>) -> Result<Self, String> {
        let last = counts.len().checked_sub(1).and_then(|len| usize::from(first).checked_add(len));
        let is_tight = counts.first() != Some(&0) && counts.last() != Some(&0);
        let max_fits = match last {
            None => max == 0 && first == 0,
            Some(last) => last < BUCKETS && usize::from(bucket_of(max)) == last,
        };
        if is_tight && max_fits { Ok(Self { max, first, counts }) } else { Err("a false histogram".into()) }
    }

    /// Maximum, first bucket, and the counts of the buckets from there on: to be persisted.
    #[must_use]
    pub fn parts(&self) -> (u64, u8, &[u32]) {
        (self.max, self.first, &self.counts)
    }

    #[inline]
    fn record(&mut self, value: u64) {
        self.max = self.max.max(value);
        let bucket = bucket_of(value);
        let at = usize::from(bucket).wrapping_sub(self.first.into());
        match self.counts.get_mut(at) {
            Some(count) => *count = count.saturating_add(1),
            None => self.add(bucket, 1),
        }
    }

    /// Adds to a bucket, making room for it if it lies outside.
    fn add(&mut self, bucket: u8, count: u32) {
        if self.counts.is_empty() {
            self.first = bucket;
        }
        if bucket < self.first {
            let missing = usize::from(self.first.wrapping_sub(bucket));
            self.counts.splice(..0, std::iter::repeat_n(0, missing));
            self.first = bucket;
        }
        let at = usize::from(bucket.wrapping_sub(self.first));
        if at >= self.counts.len() {
            self.counts.resize(at.saturating_add(1), 0);
        }
        if let Some(sum) = self.counts.get_mut(at) {
            *sum = sum.saturating_add(count);
        }
    }

    /// Adds what another one counted.
    pub fn merge(&mut self, other: &Self) {
        self.max = self.max.max(other.max);
        for (bucket, &count) in (other.first..=u8::MAX).zip(&other.counts) {
            if count > 0 {
                self.add(bucket, count);
            }
        }
    }

    /// Whether nothing was counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// How many were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|&count| u64::from(count)).fold(0, u64::saturating_add)
    }

    /// The largest value, ms; `None`: there is none.
    #[must_use]
    pub fn max(&self) -> Option<u64> {
        (!self.is_empty()).then_some(self.max)
    }

    /// The value, ms, that `percent` of a hundred do not exceed: not less than the true one, and at most
    /// an eighth more. `None`: there is none.
    #[must_use]
    pub fn percentile(&self, percent: u64) -> Option<u64> {
        let rank = self.count().saturating_mul(percent.min(100)).div_ceil(100).max(1);
        let mut seen: u64 = 0;
        let found = (self.first..=u8::MAX).zip(&self.counts).find(|(_, count)| {
            seen = seen.saturating_add(u64::from(**count));
            seen >= rank
        });
        found.map(|(bucket, _)| end_of(bucket).min(self.max))
    }

    fn bytes(&self) -> usize {
        self.counts.capacity().saturating_mul(size_of::<u32>())
    }
}

/// The events of one minute in which there were some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Minute {
    /// Its number: the clock divided by [`MINUTE_MS`].
    pub number: u64,
    /// How often each occurred. Undone deliveries are taken off in the minute in which that happened;
    /// so it may be negative.
    pub events: PerEvent<i32>,
}

/// The waits and runs of one minute in which there were some.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Its number: the clock divided by [`MINUTE_MS`].
    pub number: u64,
    /// From the instant from which a job could run (this time) until it was claimed.
    pub waits: Histogram,
    /// From the claim until the worker said how it went: `Ack` or `Fail`.
    pub runs: Histogram,
}

impl Span {
    fn is_empty(&self) -> bool {
        self.waits.is_empty() && self.runs.is_empty()
    }
}

/// Before the first op; no clock is within a minute of it, so that turns.
const NEVER: u64 = u64::MAX / 2;

/// What happened lately.
#[derive(Clone, Debug)]
pub(super) struct Recent {
    /// Begin of the minute that is open, duration clock, ms.
    begins: u64,
    /// Made with the first op.
    book: Option<Box<Book>>,
}

#[derive(Clone, Debug)]
struct Book {
    /// The totals at the beginning of the open minute.
    base: PerEvent<u64>,
    /// The open minute.
    open: Span,
    /// Earlier ones, oldest first.
    minutes: Vec<Minute>,
    spans: Vec<Span>,
}

/// Whether these are some of the `length` minutes up to the current one, in order.
fn fit(numbers: impl Iterator<Item = u64>, length: u64, current: u64) -> bool {
    let mut next = current.saturating_add(1).saturating_sub(length);
    for number in numbers {
        if number < next || number > current {
            return false;
        }
        next = number.saturating_add(1);
    }
    true
}

impl Default for Recent {
    fn default() -> Self {
        Self::closed(None)
    }
}

impl Recent {
    const fn closed(book: Option<Box<Book>>) -> Self {
        Self { begins: NEVER, book }
    }

    /// From its persisted parts, at the clock `now`.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn from_parts(now: u64, minutes: Vec<Minute>, spans: Vec<Span>) -> Result<Self, String> {
        let current = now / MINUTE_MS;
        let is_sound =
            fit(minutes.iter().map(|minute| minute.number), RATE_MINUTES.saturating_add(1), current)
                && fit(spans.iter().map(|span| span.number), SPAN_MINUTES, current)
                && minutes.iter().all(|minute| minute.events != [0; EVENTS.len()])
                && spans.iter().all(|span| !span.is_empty());
        if !is_sound {
            return Err("false statistics".into());
        }
        if minutes.is_empty() && spans.is_empty() {
            return Ok(Self::default());
        }
        let open = Span { number: current, ..Span::default() };
        // The base is set at the first turn, before anything happens.
        Ok(Self::closed(Some(Box::new(Book { base: [0; EVENTS.len()], open, minutes, spans }))))
    }

    /// Whether the open minute is not that of the clock.
    #[inline]
    pub const fn is_over(&self, now: u64) -> bool {
        now.wrapping_sub(self.begins) >= MINUTE_MS
    }

    /// Closes the open minute and opens that of the clock.
    #[cold]
    pub fn turn(&mut self, now: u64, totals: &Totals) {
        let number = now / MINUTE_MS;
        let totals = totals.events();
        let was_open = self.begins != NEVER;
        let book = self.book.get_or_insert_with(|| {
            Box::new(Book { base: totals, open: Span::default(), minutes: Vec::new(), spans: Vec::new() })
        });
        if !was_open {
            book.base = totals;
        }
        book.close(totals);
        book.reopen(number, totals);
        self.begins = number.saturating_mul(MINUTE_MS);
    }

    /// A job was claimed that could run `wait` ms ago.
    #[inline]
    pub fn waited(&mut self, wait: u64) {
        if let Some(book) = &mut self.book {
            book.open.waits.record(wait);
        }
    }

    /// A worker is through with a job that it claimed `run` ms ago.
    #[inline]
    pub fn ran(&mut self, run: u64) {
        if let Some(book) = &mut self.book {
            book.open.runs.record(run);
        }
    }

    /// The minutes with events that matter at `now`, oldest first.
    pub fn minutes(&self, now: u64, totals: &Totals) -> Vec<Minute> {
        let Some(book) = &self.book else { return Vec::new() };
        let mut minutes = book.minutes.clone();
        if self.begins != NEVER {
            minutes.extend(book.open_events(totals.events()));
        }
        let from = (now / MINUTE_MS).saturating_sub(RATE_MINUTES);
        minutes.retain(|minute| minute.number >= from);
        minutes
    }

    /// The minutes with waits and runs that matter at `now`, oldest first.
    pub fn spans(&self, now: u64) -> impl Iterator<Item = &Span> {
        let from = (now / MINUTE_MS).saturating_sub(SPAN_MINUTES.saturating_sub(1));
        let spans = self.book.iter().flat_map(|book| book.spans.iter().chain([&book.open]));
        spans.filter(move |span| !span.is_empty() && span.number >= from)
    }

    pub fn bytes(&self) -> usize {
        self.book.as_ref().map_or(0, |book| {
            let spans = book.spans.iter().chain([&book.open]);
            spans
                .map(|span| span.waits.bytes().saturating_add(span.runs.bytes()))
                .fold(size_of::<Book>(), usize::saturating_add)
                .saturating_add(book.minutes.capacity().saturating_mul(size_of::<Minute>()))
                .saturating_add(book.spans.capacity().saturating_mul(size_of::<Span>()))
        })
    }
}

impl Book {
    /// The events of the open minute, if there were any.
    fn open_events(&self, totals: PerEvent<u64>) -> Option<Minute> {
        let mut events = [0; EVENTS.len()];
        for ((event, now), before) in events.iter_mut().zip(totals).zip(self.base) {
            // Modulo 2^32, and with a sign: an undone delivery may be one of an earlier minute.
            *event = now.wrapping_sub(before) as i32;
        }
        (events != [0; EVENTS.len()]).then_some(Minute { number: self.open.number, events })
    }

    fn close(&mut self, totals: PerEvent<u64>) {
        let number = self.open.number;
        if let Some(minute) = self.open_events(totals) {
            self.minutes.retain(|minute| minute.number.saturating_add(RATE_MINUTES) >= number);
            self.minutes.reserve_exact(1);
            self.minutes.push(minute);
        }
        let mut open = std::mem::take(&mut self.open);
        if !open.is_empty() {
            self.spans.retain(|span| span.number.saturating_add(SPAN_MINUTES) > number);
            open.waits.counts.shrink_to_fit();
            open.runs.counts.shrink_to_fit();
            self.spans.reserve_exact(1);
            self.spans.push(open);
        }
    }

    /// Opens a minute, which may have been the last to be closed.
    fn reopen(&mut self, number: u64, totals: PerEvent<u64>) {
        self.base = totals;
        if let Some(minute) = self.minutes.pop_if(|minute| minute.number == number) {
            for (before, event) in self.base.iter_mut().zip(minute.events) {
                *before = before.wrapping_sub(event as u64);
            }
        }
        self.open = self.spans.pop_if(|span| span.number == number).unwrap_or_default();
        self.open.number = number;
    }
}

/// How often each event occurred in the last `length` minutes before `now`. Of the minute in which that
/// time began, the share of it that lies inside is taken.
#[must_use]
pub(super) fn events_in(minutes: &[Minute], now: u64, length: u64) -> PerEvent<u64> {
    let current = now / MINUTE_MS;
    let share = MINUTE_MS.saturating_sub(now % MINUTE_MS);
    let mut sums = [0i64; EVENTS.len()];
    for minute in minutes {
        let share = match current.saturating_sub(minute.number).cmp(&length) {
            Ordering::Less => MINUTE_MS as i64,
            Ordering::Equal => share as i64,
            Ordering::Greater => continue,
        };
        for (sum, &events) in sums.iter_mut().zip(&minute.events) {
            *sum = sum.saturating_add(i64::from(events).saturating_mul(share));
        }
    }
    sums.map(|sum| u64::try_from(sum).unwrap_or(0).saturating_add(MINUTE_MS / 2) / MINUTE_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_seamless_and_an_eighth_wide() {
        let mut begin = 0;
        for bucket in 0..=254 {
            let end = end_of(bucket);
            assert!(end >= begin, "bucket {bucket}");
            assert_eq!((bucket_of(begin), bucket_of(end)), (bucket, bucket));
            assert!(end - begin <= begin / 8, "bucket {bucket}: {begin} to {end}");
            begin = end + 1;
        }
        for value in [begin, LARGEST, LARGEST + 1, u64::MAX] {
            assert_eq!(bucket_of(value), 255);
        }
    }

    #[test]
    fn percentiles_of_known_values() {
        let mut histogram = Histogram::default();
        assert_eq!((histogram.percentile(50), histogram.max(), histogram.count()), (None, None, 0));
        histogram.record(1_000_000);
        histogram.record(0);
        for value in 1..=98 {
            histogram.record(value % 7);
        }
        assert_eq!(histogram.count(), 100);
        assert_eq!([50, 90, 99, 100].map(|p| histogram.percentile(p)), [3, 6, 6, 1_000_000].map(Some));
        histogram.record(u64::MAX);
        assert_eq!((histogram.max(), histogram.percentile(100)), (Some(u64::MAX), Some(u64::MAX)));
    }

    #[test]
    fn merged_is_as_recorded_together() {
        let (mut one, mut other, mut both) =
            (Histogram::default(), Histogram::default(), Histogram::default());
        for value in [5, 70_000, 3, 3, 800] {
            one.record(value);
            both.record(value);
        }
        for value in [1, 2, 900_000, u64::MAX / 3] {
            other.record(value);
            both.record(value);
        }
        other.merge(&one);
        assert_eq!(other, both);
        let (max, first, counts) = both.parts();
        assert_eq!(Histogram::from_parts(max, first, counts.to_vec()), Ok(both));
    }

    #[test]
    fn false_parts_are_refused() {
        for (max, first, counts) in [
            (0, 1, vec![]),
            (1, 0, vec![]),
            (1, 0, vec![0, 1]),
            (1, 0, vec![1, 0]),
            (2, 0, vec![1, 1]),
            (0, 255, vec![1, 1]),
            (u64::MAX, 0, vec![1; 257]),
        ] {
            assert!(Histogram::from_parts(max, first, counts).is_err());
        }
        let minute = |number| Minute { number, events: [1; EVENTS.len()] };
        let empty = Minute { number: 90, events: [0; EVENTS.len()] };
        let now = 100 * MINUTE_MS;
        for minutes in [vec![minute(84)], vec![minute(101)], vec![minute(90), minute(90)], vec![empty]] {
            assert!(Recent::from_parts(now, minutes, Vec::new()).is_err());
        }
        assert!(Recent::from_parts(now, vec![minute(85), minute(100)], Vec::new()).is_ok());
        assert!(Recent::from_parts(now, Vec::new(), vec![Span { number: 100, ..Span::default() }]).is_err());
    }

    #[test]
    fn a_turn_that_is_taken_back_is_not_seen() {
        let totals = |enqueued| Totals { enqueued, ..Totals::default() };
        let mut recent = Recent::default();
        let mut plain = Recent::default();
        for recent in [&mut recent, &mut plain] {
            recent.turn(0, &totals(0));
            recent.waited(7);
        }
        // Far ahead and back, with nothing between.
        recent.turn(60 * MINUTE_MS, &totals(3));
        recent.turn(1, &totals(3));
        for recent in [&mut recent, &mut plain] {
            recent.waited(9);
        }
        assert_eq!(recent.minutes(2, &totals(5)), plain.minutes(2, &totals(5)));
        assert_eq!(recent.minutes(2, &totals(5)).len(), 1);
        assert!(recent.spans(2).eq(plain.spans(2)));
        assert!(recent.spans(2).all(|span| span.waits.count() == 2));
    }

    #[test]
    fn events_of_the_last_minutes() {
        let minute = |number, n| Minute { number, events: [n; EVENTS.len()] };
        let minutes = [minute(8, 100), minute(9, 60), minute(10, 5)];
        let of = |now, length| events_in(&minutes, now, length)[0];
        assert_eq!(of(10 * MINUTE_MS, 1), 65);
        assert_eq!(of(10 * MINUTE_MS + 30_000, 1), 35);
        assert_eq!(of(10 * MINUTE_MS + 30_000, 2), 115);
        assert_eq!(of(10 * MINUTE_MS + 30_000, 15), 165);
        assert_eq!(of(11 * MINUTE_MS, 1), 5);
        assert_eq!(of(13 * MINUTE_MS, 1), 0);
        assert_eq!(events_in(&[minute(10, -1)], 10 * MINUTE_MS, 1), [0; EVENTS.len()]);
    }
}

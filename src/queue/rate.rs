//! Token buckets, in integers.
//!
//! The generic cell rate algorithm (ITU-T I.371, "virtual scheduling"): instead of counting
//! tokens, it keeps the instant at which the bucket will be full again. Time is counted in units
//! of `1/count` ms, so that a token is worth exactly `period` units whatever the numbers are:
//! nothing is rounded, and nothing drifts over any length of time.

/// `count` claims per `period` ms, at most `burst` of them at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Claims per period, 1 to [`super::limits::RATE_COUNT_MAX`].
    pub count: u64,
    /// The period, ms, 1 to [`super::limits::RATE_PERIOD_MAX`].
    pub period: u64,
    /// Claims that an unused bucket holds, 1 to [`super::limits::RATE_COUNT_MAX`].
    pub burst: u64,
}

/// Largest `full_at`: beyond any clock, and safe to add to.
pub const FULL_AT_MAX: u64 = u64::MAX / 2;

/// What has been taken. The default is a full bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    /// When it is full again, in units of `1/count` ms on the duration clock.
    full_at: u64,
    /// The `count` that `full_at` is counted in; 0: never used.
    count: u64,
}

impl Bucket {
    /// From its persisted parts.
    #[must_use]
    pub const fn from_parts(full_at: u64, count: u64) -> Self {
        Self { full_at, count }
    }

    /// `full_at` and `count`, to be persisted.
    #[must_use]
    pub const fn parts(self) -> (u64, u64) {
        (self.full_at, self.count)
    }

    /// When it is full again, in the units of `rate`, which may have changed since.
    fn full_at(self, rate: Rate) -> u64 {
        if self.count == rate.count || self.count == 0 {
            return self.full_at;
        }
        let scaled = u128::from(self.full_at).saturating_mul(u128::from(rate.count));
        scaled.checked_div(u128::from(self.count)).map_or(0, |units| u64::try_from(units).unwrap_or(u64::MAX))
    }

    /// The instant, ms, from which a token can be taken. In the past: there is one.
    #[must_use]
    pub fn ready_at(self, rate: Rate) -> u64 {
        let reserve = rate.burst.saturating_sub(1).saturating_mul(rate.period);
        self.full_at(rate).saturating_sub(reserve).div_ceil(rate.count.max(1))
    }

    /// The instant, ms, from which the bucket is full and need not be remembered.
    #[must_use]
    pub const fn idle_at(self) -> u64 {
        if self.count == 0 { 0 } else { self.full_at.div_ceil(self.count) }
    }

    /// Takes a token at `now`, which is not before [`Self::ready_at`].
    ///
    /// A token taken a little late (the timer fires in whole ms, the server was busy) counts as
    /// taken when it was due, up to a tenth of the time between tokens: so lateness does not add
    /// up, and 1 per 200 ms is 18,000 in an hour.
    pub fn take(&mut self, rate: Rate, now: u64) {
        let late = now.saturating_mul(rate.count).saturating_sub(rate.period / 10);
        self.full_at = self.full_at(rate).max(late).saturating_add(rate.period).min(FULL_AT_MAX);
        self.count = rate.count;
    }

    /// Gives a token back that was taken for nothing.
    pub fn refund(&mut self, rate: Rate) {
        if self.count != 0 {
            self.full_at = self.full_at(rate).saturating_sub(rate.period);
            self.count = rate.count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000;

    /// Claims in `length` ms by a worker that is woken `late` ms after each token is due.
    fn served(rate: Rate, length: u64, late: u64) -> u64 {
        let (mut bucket, mut now, mut count) = (Bucket::default(), 1_000_000, 0);
        let end = now + length;
        loop {
            now = now.max(bucket.ready_at(rate) + late);
            if now >= end {
                return count;
            }
            bucket.take(rate, now);
            count += 1;
        }
    }

    #[test]
    fn is_exact_over_an_hour_even_if_served_a_little_late() {
        for (count, period) in [(1, 200), (3, 1_000), (7, 1_000), (1_000, 60_000), (1, 7)] {
            let rate = Rate { count, period, burst: 1 };
            let exact = HOUR * count / period;
            for late in [0, period / count / 20] {
                let served = served(rate, HOUR, late);
                assert!(served.abs_diff(exact) <= 1, "{rate:?} late {late}: {served} instead of {exact}");
            }
        }
    }

    #[test]
    fn bursts_and_no_more_after_idling() {
        let rate = Rate { count: 10, period: 1_000, burst: 4 };
        let mut bucket = Bucket::default();
        for start in [5_000, 5_000 + HOUR] {
            let mut burst = 0;
            while bucket.ready_at(rate) <= start {
                bucket.take(rate, start);
                burst += 1;
            }
            assert_eq!(burst, 4);
            assert!((90..=100).contains(&(bucket.ready_at(rate) - start)));
            assert!(bucket.idle_at() - start <= 400);
        }
    }

    #[test]
    fn a_refund_makes_room_for_exactly_one_more() {
        let rate = Rate { count: 1, period: 500, burst: 1 };
        let mut bucket = Bucket::default();
        bucket.take(rate, 10_000);
        assert!(bucket.ready_at(rate) > 10_000);
        bucket.refund(rate);
        assert!(bucket.ready_at(rate) <= 10_000);
        bucket.take(rate, 10_000);
        assert!(bucket.ready_at(rate) > 10_000);
    }

    #[test]
    fn a_changed_rate_goes_on_from_the_same_instant() {
        let (slow, fast) =
            (Rate { count: 1, period: 1_000, burst: 1 }, Rate { count: 1_000, period: 1_000, burst: 1 });
        let mut bucket = Bucket::default();
        bucket.take(slow, 50_000);
        assert_eq!(bucket.ready_at(slow), bucket.ready_at(fast));
        let huge = Rate {
            count: super::super::limits::RATE_COUNT_MAX,
            period: super::super::limits::RATE_PERIOD_MAX,
            burst: super::super::limits::RATE_COUNT_MAX,
        };
        for _ in 0..3 {
            bucket.take(huge, super::super::limits::CLOCK_MS_MAX);
        }
        assert!(bucket.idle_at() > super::super::limits::CLOCK_MS_MAX);
    }
}

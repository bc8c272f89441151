//! What queue, tenant and group have in common: a pause, a concurrency, a rate.

use super::rate::{Bucket, Rate};

/// The state behind the limits of a queue, a tenant or a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    /// Jobs that are handed out under it. Recounted when a queue is loaded.
    pub active: u32,
    /// Until when it is paused, duration clock, ms; `u64::MAX`: until resumed.
    pub paused_until: Option<u64>,
    /// What its rate has left.
    pub bucket: Bucket,
}

/// Why nothing is handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Paused until this instant (`u64::MAX`: until resumed).
    Paused(u64),
    /// As many jobs are active as may be.
    Concurrency,
    /// Out of rate until this instant.
    Rate(u64),
    /// Its endpoint is down: until this instant.
    Backoff(u64),
    /// Its endpoint was down, and the probe is out.
    Probe,
    /// It was throttled: until this instant.
    Throttled(u64),
    /// Ordered, and a job waits for its retry.
    Ordered,
}

impl Hold {
    /// The words for all of them, by [`Self::index`].
    pub const NAMES: [&'static str; 7] =
        ["paused", "concurrency", "rate", "backoff", "probe", "throttled", "ordered"];

    /// Which of [`Self::NAMES`] it is.
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::Paused(_) => 0,
            Self::Concurrency => 1,
            Self::Rate(_) => 2,
            Self::Backoff(_) => 3,
            Self::Probe => 4,
            Self::Throttled(_) => 5,
            Self::Ordered => 6,
        }
    }

    /// The word for it in replies.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES.get(self.index()).copied().unwrap_or_default()
    }

    /// The instant at which time alone lifts it.
    #[must_use]
    pub const fn until(self) -> Option<u64> {
        match self {
            Self::Paused(u64::MAX) | Self::Concurrency | Self::Probe | Self::Ordered => None,
            Self::Paused(at) | Self::Rate(at) | Self::Backoff(at) | Self::Throttled(at) => Some(at),
        }
    }
}

impl Gate {
    /// Why it is shut at `now`, if it is.
    #[must_use]
    pub fn hold(&self, concurrency: Option<u32>, rate: Option<Rate>, now: u64) -> Option<Hold> {
        if let Some(until) = self.paused_until.filter(|&until| until > now) {
            return Some(Hold::Paused(until));
        }
        if concurrency.is_some_and(|limit| self.active >= limit) {
            return Some(Hold::Concurrency);
        }
        let at = self.bucket.ready_at(rate?);
        (at > now).then_some(Hold::Rate(at))
    }

    /// A job passes.
    pub fn pass(&mut self, rate: Option<Rate>, now: u64) {
        if let Some(rate) = rate {
            self.bucket.take(rate, now);
        }
    }

    /// A job passed for nothing.
    pub fn refund(&mut self, rate: Option<Rate>) {
        if let Some(rate) = rate {
            self.bucket.refund(rate);
        }
    }

    /// The instant from which nothing need be remembered of it; `None`: it is paused for good.
    #[must_use]
    pub fn idle_at(&self) -> Option<u64> {
        let paused_until = self.paused_until.unwrap_or(0);
        (paused_until != u64::MAX).then(|| paused_until.max(self.bucket.idle_at()))
    }
}

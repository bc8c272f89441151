//! What a group remembers of its endpoint: is it down (circuit), is it overloaded (throttle)?
//! State machines without containers; `group.rs` asks them, `consume.rs` tells them.

use super::serial::Serial;

/// A circuit breaker. Closed at level 0. An opening at level n keeps the group back for
/// `backoff(n)`; then exactly one job, the probe, is handed out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Circuit {
    /// Openings in a row; 0: closed.
    pub level: u32,
    /// Open: until when nothing is handed out, duration clock, ms.
    pub until: u64,
    /// The last serial at the opening: tokens above it were handed out since.
    pub opened: Serial,
    /// The token of the probe that is out.
    pub probe: Serial,
    /// The last serial at the last closing: reports about older deliveries no longer count.
    pub closed: Serial,
}

impl Circuit {
    /// Whether all is well and nothing need be remembered of it.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.level == 0
    }

    /// A job was handed out. If the circuit is not closed, it is the probe.
    pub fn handed_out(&mut self, token: Serial) {
        if !self.is_closed() {
            self.probe = token;
        }
    }

    /// The worker with `token` found the endpoint unavailable. Opens the circuit, or keeps it open
    /// one level longer, for `wait(level)` ms from `now`: once per opening, however many report.
    pub fn unavailable(&mut self, token: Serial, now: u64, last: Serial, wait: impl FnOnce(u32) -> u64) {
        let counts = if self.is_closed() { token > self.closed } else { token == self.probe };
        if counts {
            self.level = self.level.saturating_add(1);
            self.open(now, last, wait(self.level));
        }
    }

    fn open(&mut self, now: u64, last: Serial, wait: u64) {
        self.until = now.saturating_add(wait);
        self.opened = last;
        self.probe = Serial::NONE;
    }

    /// The endpoint answered the worker with `token`: well or not, it is there.
    pub fn answered(&mut self, token: Serial, last: Serial) {
        if !self.is_closed() && token > self.opened {
            *self = Self { closed: last, ..Self::default() };
        }
    }

    /// The delivery with `token` ended without a word about the endpoint: if it was the probe,
    /// another may go at once.
    pub fn withdrawn(&mut self, token: Serial) {
        if self.probe == token {
            self.probe = Serial::NONE;
        }
    }

    /// The worker with `token` went away. If it held the probe, the same level once more.
    pub fn vanished(&mut self, token: Serial, now: u64, last: Serial, wait: impl FnOnce(u32) -> u64) {
        if !self.is_closed() && self.probe == token {
            self.open(now, last, wait(self.level));
        }
    }
}

/// A concurrency that a 429 lowered and successes raise again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttle {
    /// Until when the group rests, duration clock, ms.
    pub until: u64,
    /// The last serial when the rest began.
    pub since: Serial,
    /// The concurrency now; at least 1.
    pub limit: u32,
    /// The concurrency at which the throttle is forgotten.
    pub goal: u32,
}

impl Throttle {
    /// The worker with `token` was told to wait `length` ms. `goal` is the concurrency that the
    /// group has without a throttle: its setting, or what is active.
    #[must_use]
    pub fn throttled(
        old: Option<Self>,
        token: Serial,
        now: u64,
        last: Serial,
        length: u64,
        goal: u32,
    ) -> Self {
        let until = now.saturating_add(length);
        match old {
            Some(old) if now < old.until => Self { until: old.until.max(until), ..old },
            Some(old) if token <= old.since => old,
            old => {
                let (limit, goal) = old.map_or((goal, goal), |old| (old.limit, old.goal));
                Self { until, since: last, limit: (limit / 2).max(1), goal }
            }
        }
    }

    /// The worker with `token` acknowledged its job. That counts if it was handed out since the rest
    /// began, and the rest is over. `None`: the throttle is forgotten.
    #[must_use]
    pub fn succeeded(self, token: Serial, now: u64) -> Option<Self> {
        if token <= self.since || now < self.until {
            return Some(self);
        }
        let limit = self.limit.saturating_add(1);
        (limit < self.goal).then_some(Self { limit, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn serial(n: u64) -> Serial {
        Serial(n)
    }

    #[test]
    fn one_escalation_per_opening_and_one_probe() {
        let mut circuit = Circuit::default();
        // Five deliveries are out when the endpoint goes down: one escalation.
        for token in 1..=5 {
            circuit.unavailable(serial(token), 1_000, serial(5), |_| 100);
        }
        assert_eq!((circuit.level, circuit.until), (1, 1_100));
        circuit.handed_out(serial(6));
        assert_eq!(circuit.probe, serial(6));
        circuit.unavailable(serial(3), 1_150, serial(6), |_| 100);
        assert_eq!(circuit.level, 1, "an old delivery does not speak for the probe");
        circuit.unavailable(serial(6), 1_150, serial(6), |level| u64::from(level) * 100);
        assert_eq!((circuit.level, circuit.until, circuit.probe), (2, 1_350, Serial::NONE));
        circuit.answered(serial(4), serial(6));
        assert_eq!(circuit.level, 2, "an old delivery says nothing about the endpoint now");
        circuit.handed_out(serial(7));
        circuit.answered(serial(7), serial(8));
        assert!(circuit.is_closed());
        circuit.unavailable(serial(2), 1_400, serial(8), |_| 100);
        circuit.unavailable(serial(8), 1_400, serial(8), |_| 100);
        assert!(circuit.is_closed(), "deliveries from before the closing no longer count");
    }

    #[test]
    fn a_probe_that_says_nothing_makes_way_and_one_that_vanishes_waits() {
        let mut circuit = Circuit::default();
        circuit.unavailable(serial(1), 0, serial(1), |_| 100);
        circuit.handed_out(serial(2));
        circuit.withdrawn(serial(2));
        assert_eq!((circuit.level, circuit.probe, circuit.until), (1, Serial::NONE, 100));
        circuit.handed_out(serial(3));
        circuit.vanished(serial(3), 500, serial(3), |_| 100);
        assert_eq!((circuit.level, circuit.probe, circuit.until), (1, Serial::NONE, 600));
    }

    #[test]
    fn a_throttle_halves_once_per_rest_and_grows_back() {
        let first = Throttle::throttled(None, serial(1), 0, serial(8), 100, 8);
        assert_eq!((first.limit, first.until), (4, 100));
        let same_rest = Throttle::throttled(Some(first), serial(2), 50, serial(8), 100, 8);
        assert_eq!((same_rest.limit, same_rest.until), (4, 150));
        let old_delivery = Throttle::throttled(Some(same_rest), serial(3), 200, serial(9), 100, 8);
        assert_eq!(old_delivery, same_rest);
        let next = Throttle::throttled(Some(same_rest), serial(9), 200, serial(9), 100, 8);
        assert_eq!((next.limit, next.until, next.goal), (2, 300, 8));
        assert_eq!(next.succeeded(serial(10), 250), Some(next), "it rests");
        assert_eq!(
            next.succeeded(serial(9), 300),
            Some(next),
            "an old delivery says nothing about the new limit"
        );
        let mut grown = Some(next);
        let steps = std::iter::from_fn(|| {
            grown = grown?.succeeded(serial(10), 300);
            grown.map(|throttle| throttle.limit)
        });
        assert_eq!(steps.collect::<Vec<_>>(), [3, 4, 5, 6, 7]);
        assert_eq!(Throttle::throttled(None, serial(1), 0, serial(1), 5, 1).limit, 1);
    }
}

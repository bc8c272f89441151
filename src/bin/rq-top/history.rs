//! How often things happened, second by second, from the totals that a queue counts.

use std::collections::VecDeque;
use std::time::Duration;

/// Seconds that are kept.
const LENGTH: usize = 240;

/// The course of one total.
#[derive(Clone, Debug, Default)]
pub struct History {
    last: Option<(Duration, u64)>,
    rates: VecDeque<f64>,
}

impl History {
    /// Notes what the total was at a time since the start of the program.
    pub fn note(&mut self, at: Duration, total: u64) {
        if let Some((before, last)) = self.last {
            let seconds = at.saturating_sub(before).as_secs_f64();
            if seconds <= 0.0 {
                return;
            }
            // A smaller total is that of another queue of this name.
            #[expect(clippy::cast_precision_loss, reason = "it is a rate")]
            let new = total.saturating_sub(last) as f64;
            if self.rates.len() >= LENGTH {
                self.rates.pop_front();
            }
            self.rates.push_back(new / seconds);
        }
        self.last = Some((at, total));
    }

    /// Forgets the last total, so that the time until the next is not taken for one long second.
    pub fn interrupt(&mut self) {
        self.last = None;
    }

    /// The last rate per second.
    pub fn rate(&self) -> Option<f64> {
        self.rates.back().copied()
    }

    /// The last `width` rates, the newest last, rounded up: what happened at all is seen.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rates are positive, and saturate"
    )]
    pub fn course(&self, width: usize) -> Vec<u64> {
        let skipped = self.rates.len().saturating_sub(width);
        self.rates.iter().skip(skipped).map(|rate| rate.ceil() as u64).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::float_cmp)]
    use super::*;

    #[test]
    fn rates_are_per_second_whatever_the_pace() {
        let mut history = History::default();
        history.note(Duration::from_secs(1), 100);
        assert_eq!(history.rate(), None);
        history.note(Duration::from_secs(3), 110);
        assert_eq!(history.rate(), Some(5.0));
        history.note(Duration::from_millis(3500), 112);
        history.note(Duration::from_secs(5), 3);
        assert_eq!(history.course(9), [5, 4, 0]);
        assert_eq!(history.course(2), [4, 0]);
        history.interrupt();
        history.note(Duration::from_secs(99), 50);
        assert_eq!(history.course(9), [5, 4, 0]);
    }

    #[test]
    fn it_does_not_grow() {
        let mut history = History::default();
        for second in 0..1000 {
            history.note(Duration::from_secs(second), second);
        }
        assert_eq!(history.course(usize::MAX).len(), LENGTH);
    }
}

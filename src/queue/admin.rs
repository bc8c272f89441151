//! What operators do: redrive, purge, pause, settings; and forgetting workers.

use super::job::{Slot, State};
use super::op::{Effects, Outcome};
use super::serial::Id;
use super::settings::SettingsPatch;
use super::{Error, Queue};

impl Queue {
    /// Gives a dead job a new life, unless there is no room. Whether it did.
    fn revive(&mut self, slot: Slot) -> bool {
        if self.settings.max_len.is_some_and(|limit| self.waiting() as u64 >= limit) {
            return false;
        }
        let now = self.clock.now;
        self.shift(slot, |job| {
            job.state = State::Ready;
            job.since = now;
            job.at = 0;
            job.enqueued = now;
            job.touched = 0;
            job.attempts = 0;
            job.crashes = 0;
            if let Some(more) = &mut job.more {
                more.deadline = more.options.deadline.map(|length| now.saturating_add(length));
                more.value = None;
                more.error = None;
                more.reason = None;
                more.last_worker = None;
            }
        });
        self.totals.redriven = self.totals.redriven.saturating_add(1);
        true
    }

    pub(super) fn redrive(&mut self, ids: &[Id<'_>], fx: &mut Effects<'_>) -> Outcome {
        let states = ids.iter().map(|&id| {
            let (slot, job) = self.lookup(id)?;
            let state = job.state;
            if state == State::Dead && self.revive(slot) {
                fx.changed = true;
                return Some(State::Ready);
            }
            Some(state)
        });
        Outcome::Redriven(states.collect())
    }

    pub(super) fn redrive_all(&mut self, count: usize, fx: &mut Effects<'_>) -> Outcome {
        let mut taken: usize = 0;
        while taken < count {
            let Some((_, slot)) = self.dead.first() else { break };
            if !self.revive(slot) {
                break;
            }
            taken = taken.saturating_add(1);
        }
        fx.changed |= taken > 0;
        Outcome::Bulk { taken, remaining: self.count(State::Dead) }
    }

    pub(super) fn purge(
        &mut self,
        state: State,
        count: usize,
        fx: &mut Effects<'_>,
    ) -> Result<Outcome, Error> {
        if state == State::Active {
            return Err(Error::BadState(state));
        }
        let mut taken: usize = 0;
        while taken < count {
            let first = match state {
                State::Ready => self.ready.first(),
                _ => {
                    self.timelines_of(state).find_map(|(_, timeline)| timeline.first()).map(|(_, slot)| slot)
                }
            };
            let Some(slot) = first else { break };
            self.remove(slot, fx);
            taken = taken.saturating_add(1);
        }
        fx.changed |= taken > 0;
        Ok(Outcome::Bulk { taken, remaining: self.count(state) })
    }

    pub(super) fn pause(&mut self, length: Option<u64>, fx: &mut Effects<'_>) -> Outcome {
        let until = Some(length.map_or(u64::MAX, |length| self.clock.now.saturating_add(length)));
        fx.changed |= self.paused_until != until;
        self.paused_until = until;
        Outcome::Done
    }

    pub(super) fn resume(&mut self, fx: &mut Effects<'_>) -> Outcome {
        fx.changed |= self.paused_until.is_some();
        self.paused_until = None;
        Outcome::Done
    }

    pub(super) fn set(&mut self, patch: &SettingsPatch, fx: &mut Effects<'_>) -> Outcome {
        let settings = self.settings.patched(patch);
        fx.changed |= settings != self.settings;
        self.settings = settings;
        Outcome::Done
    }

    pub(super) fn forget(&mut self, workers: &[&[u8]], fx: &mut Effects<'_>) -> Outcome {
        for name in workers {
            fx.changed |= self.registry.forget(name);
        }
        Outcome::Done
    }
}

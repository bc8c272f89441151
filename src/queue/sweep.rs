//! What comes by itself: due delays, lapsed leases, deadlines, expiry; and recovery, which is a
//! lapse by request.

use std::collections::BTreeMap;

use super::job::{Reason, Slot, State};
use super::op::{Effects, Outcome, Recover, Recovered, Who};
use super::registry::{WorkerNo, WorkerSlot};
use super::{Queue, limits};

impl Queue {
    pub(super) fn sweep(&mut self, limit: usize, fx: &mut Effects<'_>) -> Outcome {
        let mut settled: usize = 0;
        while settled < limit && self.settle_one(fx) {
            settled = settled.saturating_add(1);
        }
        fx.changed |= settled > 0;
        Outcome::Swept(settled)
    }

    /// Settles one due item, in a fixed order of kinds. Whether there was one.
    fn settle_one(&mut self, fx: &mut Effects<'_>) -> bool {
        let now = self.clock.now;
        let terms = self.terms();
        if self.gate.paused_until.is_some_and(|until| until <= now) {
            self.gate.paused_until = None;
        } else if self.groups.wake_one(terms) {
            // It is in line now, or forgotten.
        } else if let Some(slot) = self.timed.deadlines.due(now, self.jobs.deadline_of()) {
            self.bury(slot, Reason::Deadline, fx);
        } else if let Some(slot) = self.due_delay() {
            self.come_due(slot);
        } else if let Some(slot) = self.timed.leases.due(now, self.jobs.at_of()) {
            self.lapse(slot, fx);
        } else if let Some(slot) = self.expired() {
            self.remove(slot, fx);
        } else {
            return self.evict_over_keep(fx) || self.groups.review_one(terms);
        }
        true
    }

    fn due_delay(&self) -> Option<Slot> {
        let at_of = || self.jobs.at_of();
        let by_duration = self.timed.delayed.due(self.clock.now, at_of());
        by_duration.or_else(|| self.timed.delayed_wall.due(self.clock.wall, at_of()))
    }

    fn expired(&self) -> Option<Slot> {
        let timed = &self.timed;
        let retained = [&timed.done, &timed.dead, &timed.cancelled].into_iter();
        retained.filter_map(|timeline| timeline.due(self.clock.now, self.jobs.at_of())).next()
    }

    /// A delayed job can run from the instant on at which it was due.
    fn come_due(&mut self, slot: Slot) {
        let Some(job) = self.jobs.get(slot) else { return };
        let due = if job.follows_wall { self.wall_to_now(job.at) } else { job.at };
        let due = due.max(job.enqueued).min(self.clock.now);
        let since = if job.keeps_place {
            job.since
        } else if self.is_ordered(&job) {
            job.enqueued
        } else {
            due
        };
        self.shift(slot, |job| {
            job.state = State::Ready;
            job.since = since;
            job.touched = due;
            job.at = 0;
            job.follows_wall = false;
            job.keeps_place = false;
        });
    }

    /// Its lease ran out: a crash is used up.
    fn lapse(&mut self, slot: Slot, fx: &mut Effects<'_>) {
        self.totals.lapsed = self.totals.lapsed.wrapping_add(1);
        self.vanish(slot);
        if self.crash(slot, fx) {
            return;
        }
        let Some(job) = self.jobs.get(slot) else { return };
        // The first lapse is forgiven at once; later ones wait, so that a job that kills its
        // workers does not stand in front of everybody.
        match job.spent.crashes.saturating_sub(1) {
            0 => self.give_back(slot, fx),
            further => {
                let wait = self.backoff_of(&job, further);
                self.put_off(slot, wait, true, fx);
            }
        }
    }

    /// Its worker went away without a word: if it was a probe, its group waits once more.
    fn vanish(&mut self, slot: Slot) {
        self.tell_troubled(slot, |group, told, token| {
            group.circuit.vanished(token, told.terms.now, told.last, |level| told.wait(level));
        });
    }

    /// Uses up a crash of an active job. Whether that ended it.
    fn crash(&mut self, slot: Slot, fx: &mut Effects<'_>) -> bool {
        fx.changed = true;
        if let Some(worker) = self.owner(slot) {
            worker.crashed = worker.crashed.saturating_add(1);
        }
        let now = self.clock.now;
        self.edit(slot, |job| {
            job.spent.crashes = job.spent.crashes.saturating_add(1);
            job.note_failure(now);
        });
        let Some(job) = self.jobs.get(slot) else { return true };
        let allowed = job.options().crashes.unwrap_or(self.settings.crashes);
        if job.cancelling {
            self.finish_cancelled(slot, false, fx);
            true
        } else if allowed.is_some_and(|allowed| job.spent.crashes > allowed) {
            self.bury(slot, Reason::Crashes, fx);
            true
        } else {
            false
        }
    }

    pub(super) fn recover(&mut self, recover: &Recover<'_>, fx: &mut Effects<'_>) -> Outcome {
        let named = |names: &[&[u8]]| {
            let slots = names.iter().filter_map(|name| self.registry.find(name));
            slots.filter_map(|slot| Some((self.registry.get(slot)?.number, slot))).collect()
        };
        // By order of their registration.
        let workers: BTreeMap<WorkerNo, WorkerSlot> = match &recover.who {
            Who::Lapsed => return self.recover_lapsed(recover, fx),
            Who::Named(names) => named(names),
            Who::Except(names) => {
                let spared: BTreeMap<WorkerNo, WorkerSlot> = named(names);
                let others = self
                    .registry
                    .iter()
                    .filter(|(_, worker)| !worker.held.is_empty() && !spared.contains_key(&worker.number));
                others.map(|(slot, worker)| (worker.number, slot)).collect()
            }
        };
        let mut recovered = Recovered::default();
        for &place in workers.values() {
            let left = recover.count.saturating_sub(recovered.taken);
            let Some(worker) = self.registry.get(place) else { continue };
            let held = worker.held.iter().take_while(|&slot| self.is_older(slot, recover));
            let slots: Vec<Slot> = held.take(left).collect();
            if !slots.is_empty() {
                recovered.by_worker.push((worker.name.clone(), slots.len()));
                recovered.taken = recovered.taken.saturating_add(slots.len());
            }
            for slot in slots {
                self.totals.recovered = self.totals.recovered.wrapping_add(1);
                self.vanish(slot);
                if !recover.counted || !self.crash(slot, fx) {
                    self.give_back(slot, fx);
                }
            }
            let Some(worker) = self.registry.get(place) else { continue };
            let remaining = match recover.before {
                None => worker.held.len(),
                // They have to be looked at one by one: a page of them is enough to say "more".
                Some(_) => {
                    let held = worker.held.iter().take(limits::COUNT_MAX);
                    held.take_while(|&slot| self.is_older(slot, recover)).count()
                }
            };
            recovered.remaining = recovered.remaining.saturating_add(remaining);
        }
        Outcome::Recovered(recovered)
    }

    /// Whether an active job was claimed before the instant that `recover` names, if it names one. Of a worker's jobs,
    /// those are the first: tokens and claims are in the same order.
    fn is_older(&self, slot: Slot, recover: &Recover<'_>) -> bool {
        let claimed = self.jobs.get(slot).map_or(u64::MAX, |job| job.touched);
        recover.before.is_none_or(|before| claimed < self.wall_to_now(before))
    }

    fn recover_lapsed(&mut self, recover: &Recover<'_>, fx: &mut Effects<'_>) -> Outcome {
        let now = self.clock.now;
        let mut recovered = Recovered::default();
        // Lapsed leases are few, as sweeps take them; yet no more are looked at than for a page.
        let due = self.timed.leases.iter().take_while(|&slot| self.jobs.at_of()(slot).0 <= now);
        let due = due.take(limits::LIST_SCAN_MAX);
        let mut matching = due
            .filter(|&slot| self.is_older(slot, recover))
            .take(recover.count.saturating_add(limits::COUNT_MAX))
            .collect::<Vec<_>>();
        recovered.remaining = matching.len().saturating_sub(recover.count);
        matching.truncate(recover.count);
        recovered.taken = matching.len();
        let mut by_worker = BTreeMap::<WorkerNo, (Box<[u8]>, usize)>::new();
        for slot in matching {
            if let Some(worker) = self.owner(slot) {
                let entry = by_worker.entry(worker.number);
                let (_, taken) = entry.or_insert_with(|| (worker.name.clone(), 0));
                *taken = taken.saturating_add(1);
            }
            self.lapse(slot, fx);
        }
        recovered.by_worker = by_worker.into_values().collect();
        Outcome::Recovered(recovered)
    }
}

//! What operators do: redrive, purge, pause, settings; and forgetting workers.

use super::circuit::Circuit;
use super::group::GroupName;
use super::job::{Slot, Spent, State};
use super::op::{Effects, Outcome, Scope};
use super::serial::Id;
use super::settings::{GroupPatch, SettingsPatch, TenantPatch};
use super::{Error, Queue};

impl Queue {
    /// Gives a dead job a new life, unless there is no room. Whether it did.
    fn revive(&mut self, slot: Slot) -> bool {
        if self.settings.max_len.is_some_and(|limit| self.waiting() as u64 >= limit) {
            return false;
        }
        let now = self.clock.now;
        let ordered = self.jobs.get(slot).is_some_and(|job| self.is_ordered(&job));
        self.shift(slot, |job| {
            job.state = State::Ready;
            job.since = if ordered { job.enqueued } else { now };
            job.at = 0;
            job.touched = now;
            job.spent = Spent::default();
            if let Some(more) = &mut job.more {
                let deadline = more.options.as_ref().and_then(|options| options.deadline);
                more.deadline = deadline.map(|length| now.saturating_add(length));
                more.value = None;
                more.error = None;
                more.reason = None;
                more.last_worker = None;
                more.past = None;
            }
        });
        self.totals.redriven = self.totals.redriven.wrapping_add(1);
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
            let Some(slot) = self.timed.dead.first() else { break };
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
                State::Ready => self.first_ready(),
                _ => self.timed.all_of(state).find_map(|(_, timeline)| timeline.first()),
            };
            let Some(slot) = first else { break };
            self.remove(slot, fx);
            taken = taken.saturating_add(1);
        }
        fx.changed |= taken > 0;
        Ok(Outcome::Bulk { taken, remaining: self.count(state) })
    }

    /// A ready job: of the oldest group that has some, the first in line.
    fn first_ready(&self) -> Option<Slot> {
        // Groups that can be served are found at once; others are looked for by age, as many as a
        // page may look at.
        let in_turn = self.groups.first().and_then(|group| self.groups.get(group)?.ready.first());
        in_turn.or_else(|| {
            let groups = self.groups.iter_after(None).take(super::limits::LIST_SCAN_MAX);
            groups.map(|(_, group)| group).find_map(|group| group.ready.first())
        })
    }

    pub(super) fn pause(
        &mut self,
        scope: Scope<'_>,
        length: Option<u64>,
        fx: &mut Effects<'_>,
    ) -> Result<Outcome, Error> {
        let until = Some(length.map_or(u64::MAX, |length| self.clock.now.saturating_add(length)));
        let gate = match scope {
            Scope::Queue => Some(&mut self.gate),
            Scope::Tenant(name) => {
                let tenant = self.groups.tenant_or_new(name).ok_or(Error::TooMany)?;
                self.groups.tenant_mut(tenant).map(|tenant| &mut tenant.gate)
            }
            Scope::Group(name) => {
                let group = self.groups.group_or_new(name).ok_or(Error::TooMany)?;
                self.groups.get_mut(group).map(|group| &mut group.gate)
            }
        };
        if let Some(gate) = gate.filter(|gate| gate.paused_until != until) {
            gate.paused_until = until;
            fx.changed = true;
            self.refresh_scope(scope);
        }
        Ok(Outcome::Done)
    }

    pub(super) fn resume(&mut self, scope: Scope<'_>, fx: &mut Effects<'_>) -> Outcome {
        let last = self.clock.serial;
        let mut changed = false;
        let gate = match scope {
            Scope::Queue => Some(&mut self.gate),
            Scope::Tenant(name) => {
                let tenant = self.groups.find_tenant(name);
                tenant.and_then(|tenant| self.groups.tenant_mut(tenant)).map(|tenant| &mut tenant.gate)
            }
            Scope::Group(name) => {
                let group = self.groups.find(name).and_then(|group| self.groups.get_mut(group));
                group.map(|group| {
                    if !group.circuit.is_closed() || group.throttle.is_some() {
                        group.circuit = Circuit { closed: last, ..Circuit::default() };
                        group.throttle = None;
                        changed = true;
                    }
                    &mut group.gate
                })
            }
        };
        if let Some(gate) = gate {
            changed |= gate.paused_until.take().is_some();
        }
        if changed {
            fx.changed = true;
            self.refresh_scope(scope);
        }
        Outcome::Done
    }

    /// Looks anew at what a pause or a setting changed. Not to be called when nothing did: a look
    /// may move a group whose instant has come, and that must not happen unnoticed by replicas.
    fn refresh_scope(&mut self, scope: Scope<'_>) {
        let terms = self.terms();
        match scope {
            Scope::Queue => {}
            Scope::Tenant(name) => {
                if let Some(tenant) = self.groups.find_tenant(name) {
                    self.groups.refresh_tenant(tenant, terms);
                }
            }
            Scope::Group(name) => {
                if let Some(group) = self.groups.find(name) {
                    self.groups.refresh(group, terms);
                }
            }
        }
    }

    pub(super) fn set(&mut self, patch: &SettingsPatch, fx: &mut Effects<'_>) -> Outcome {
        let settings = self.settings.patched(patch);
        if settings.group != self.settings.group {
            // Every group may be concerned: sweeps look at them one by one.
            self.groups.review = Some(0);
        }
        fx.changed |= settings != self.settings;
        self.settings = settings;
        Outcome::Done
    }

    pub(super) fn set_group(
        &mut self,
        name: GroupName<'_>,
        patch: &GroupPatch,
        fx: &mut Effects<'_>,
    ) -> Result<Outcome, Error> {
        let known = self.groups.find(name).and_then(|group| self.groups.get(group));
        let before = known.map(|group| group.own).unwrap_or_default();
        let own = before.patched(patch);
        if own == before {
            return Ok(Outcome::Done);
        }
        let group = self.groups.group_or_new(name).ok_or(Error::TooMany)?;
        if let Some(group) = self.groups.get_mut(group) {
            group.own = own;
        }
        fx.changed = true;
        self.refresh_scope(Scope::Group(name));
        Ok(Outcome::Done)
    }

    pub(super) fn set_tenant(
        &mut self,
        name: &[u8],
        patch: &TenantPatch,
        fx: &mut Effects<'_>,
    ) -> Result<Outcome, Error> {
        let known = self.groups.find_tenant(name).and_then(|tenant| self.groups.tenant(tenant));
        let before = known.map(|tenant| tenant.settings).unwrap_or_default();
        let settings = before.patched(patch);
        if settings == before {
            return Ok(Outcome::Done);
        }
        let tenant = self.groups.tenant_or_new(name).ok_or(Error::TooMany)?;
        if let Some(tenant) = self.groups.tenant_mut(tenant) {
            tenant.settings = settings;
        }
        fx.changed = true;
        self.refresh_scope(Scope::Tenant(name));
        Ok(Outcome::Done)
    }

    pub(super) fn forget(&mut self, workers: &[&[u8]], fx: &mut Effects<'_>) -> Outcome {
        for name in workers {
            fx.changed |= self.registry.forget(name);
        }
        Outcome::Done
    }
}

#[cfg(test)]
mod tests {
    use super::super::{
        Claim, Enqueue, IfExists, JobOptions, Op, Payloads, Rate, Serial, Settings, Stamp, When,
    };
    use super::*;

    fn queue() -> Queue {
        Queue::new(Settings::default(), Stamp { now: 1_000, wall: 1_000, serial: Serial(1_000 << 20) })
    }

    fn apply(queue: &mut Queue, at: u64, op: &Op<'_>) -> bool {
        let stamp = Stamp { now: at, wall: at, serial: Serial::NONE };
        queue.apply_at(stamp, op, &mut Effects::default()).unwrap().1
    }

    /// What a replica would not hear of must not happen.
    #[test]
    fn what_changes_nothing_leaves_no_trace() {
        const GROUP: GroupName<'static> = GroupName { tenant: b"t", group: b"g" };
        let mut queue = queue();
        let rate = Some(Rate { count: 1, period: 100, burst: 1 });
        let limited = GroupPatch { rate: Some(Some(rate)), ..GroupPatch::default() };
        apply(&mut queue, 1_000, &Op::SetGroup { name: GROUP, patch: limited });
        for id in [b"a", b"b"] {
            let enqueue = Enqueue {
                payloads: Payloads::One(b"p"),
                id: Some((id, IfExists::Refuse)),
                unique: None,
                group: GROUP,
                when: None,
                priority: 0,
                options: JobOptions::default(),
            };
            apply(&mut queue, 1_000, &Op::Enqueue(enqueue));
        }
        apply(&mut queue, 1_000, &Op::Claim(Claim { worker: b"w", count: 1, lease: None }));
        let before = format!("{queue:?}");
        let default = GroupPatch { concurrency: Some(None), ..GroupPatch::default() };
        let weight = TenantPatch { weight: Some(1), ..TenantPatch::default() };
        let unknown = GroupName { tenant: b"t", group: b"unknown" };
        // The rate would let the group pass by then, but no sweep has looked at it yet.
        for op in [
            Op::SetGroup { name: GROUP, patch: limited },
            Op::SetGroup { name: unknown, patch: default },
            Op::SetTenant { name: b"t", patch: weight },
            Op::SetTenant { name: b"unknown", patch: weight },
            Op::Resume { scope: Scope::Group(GROUP) },
            Op::Resume { scope: Scope::Group(unknown) },
            Op::Resume { scope: Scope::Tenant(b"t") },
            Op::Reschedule { id: Id::Custom(b"b"), when: None, priority: Some(0) },
            Op::Reschedule { id: Id::Custom(b"b"), when: Some(When::Delay(0)), priority: None },
        ] {
            let at = if matches!(op, Op::Reschedule { when: Some(_), .. }) { 1_000 } else { 5_000 };
            assert!(!apply(&mut queue, at, &op), "{op:?}");
            assert_eq!(format!("{queue:?}"), before, "{op:?}");
        }
        queue.audit().unwrap();
    }
}

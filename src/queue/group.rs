//! Groups and tenants: who is next, and why somebody is not.
//!
//! Two levels of rotation. Tenants that have something to hand out stand in the queue's rotation
//! in the order of their *pass*, a count of what they got divided by their weight (stride
//! scheduling: Waldspurger and Weihl, 1995); groups that have something to hand out stand in their
//! tenant's rotation in the order of their *turn*. Who has nothing, or is held back, does not
//! stand there at all, and comes back by the event that changes that: a job, a freed slot, a
//! setting, a resume; or an instant, for which it is among the *wakes*.
//!
//! All operations are O(log n) in the number of groups and tenants.

use std::collections::BTreeMap;

use hashbrown::HashMap;

use super::Counts;
use super::circuit::{Circuit, Throttle};
use super::gate::{Gate, Hold};
use super::job::{Fields, State};
use super::serial::Serial;
use super::settings::{GroupDefaults, GroupSettings, TenantSettings};
use super::slab::{Number, Slab};
use super::timeline::{Ready, Sorted};

/// Where a group lies. Says nothing about order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct GroupNo(pub(super) u32);

/// Where a tenant lies. Says nothing about order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TenantNo(pub(super) u32);

impl Number for GroupNo {
    fn new(number: u32) -> Self {
        Self(number)
    }
    fn number(self) -> u32 {
        self.0
    }
}

impl Number for TenantNo {
    fn new(number: u32) -> Self {
        Self(number)
    }
    fn number(self) -> u32 {
        self.0
    }
}

/// How a client names a group. The empty name is the nameless one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupName<'a> {
    /// The tenant.
    pub tenant: &'a [u8],
    /// The group.
    pub group: &'a [u8],
}

/// What one claim moves a tenant of weight 1 along.
const STRIDE: u64 = 1 << 20;

/// What eligibility depends on beyond the groups themselves.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    /// The queue's duration clock.
    pub now: u64,
    /// The queue's defaults for groups.
    pub defaults: GroupDefaults,
}

/// Jobs that share a fate.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub tenant: TenantNo,
    pub name: Box<[u8]>,
    /// Number of its birth: unique among groups and tenants, growing, persisted.
    pub born: u64,
    pub own: GroupSettings,
    pub gate: Gate,
    pub circuit: Circuit,
    pub throttle: Option<Throttle>,
    pub ready: Ready,
    /// Its jobs, by state.
    pub counts: Counts,
    /// Its jobs that were handed out before and are delayed.
    pub retrying: u32,
    /// Its place in the tenant's rotation, while it stands there.
    pub turn: Option<u64>,
    /// When it is to be looked at again.
    pub wake: Option<u64>,
}

/// The owner of groups.
#[derive(Clone, Debug)]
pub(super) struct Tenant {
    pub name: Box<[u8]>,
    pub born: u64,
    pub settings: TenantSettings,
    pub gate: Gate,
    /// By turn.
    rotation: Sorted<u64, (u64, GroupNo)>,
    names: HashMap<Box<[u8]>, GroupNo>,
    /// What it got, times [`STRIDE`], divided by its weight.
    pub pass: u64,
    /// Its place in the queue's rotation among those with the same pass, while it stands there.
    pub turn: Option<u64>,
    pub wake: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sleeper {
    Group(GroupNo),
    Tenant(TenantNo),
}

/// What a list of groups is ordered by: turn, or birth.
const fn number_of(entry: (u64, GroupNo)) -> u64 {
    entry.0
}

/// All groups and tenants of a queue. The nameless group of the nameless tenant is always there.
#[derive(Clone, Debug)]
pub(super) struct Groups {
    groups: Slab<GroupNo, Group>,
    tenants: Slab<TenantNo, Tenant>,
    tenant_names: HashMap<Box<[u8]>, TenantNo>,
    by_birth: Sorted<u64, (u64, GroupNo)>,
    tenants_by_birth: BTreeMap<u64, TenantNo>,
    /// By pass, then turn.
    rotation: BTreeMap<(u64, u64), TenantNo>,
    /// By instant, then birth.
    wakes: BTreeMap<(u64, u64), Sleeper>,
    /// The earliest instant that was put there since the queue last took this.
    pub soonest_wake: u64,
    /// Counters that are persisted.
    pub next_birth: u64,
    pub next_turn: u64,
    /// The pass of the tenant served last: who joins begins there.
    pub pass_floor: u64,
    /// The queue's defaults changed: groups born from here on are still to be looked at.
    pub review: Option<u64>,
    name_bytes: usize,
    /// Bytes on the heap of the containers of ready jobs.
    ready_bytes: usize,
    /// Groups that stand in the rotation of a tenant that stands in the queue's.
    eligible: usize,
    /// The nameless group of the nameless tenant, which most jobs belong to.
    nameless: Option<GroupNo>,
}

impl Group {
    /// Whether nothing that a delivery tells about its endpoint would change anything.
    pub const fn is_calm(&self) -> bool {
        self.circuit.is_closed() && self.throttle.is_none()
    }

    /// The group's effective settings. A job without a group shares no fate with others, so the
    /// defaults for groups are not for the nameless ones.
    pub fn terms(&self, defaults: &GroupDefaults) -> GroupDefaults {
        if self.name.is_empty() { self.own.over(&GroupDefaults::default()) } else { self.own.over(defaults) }
    }

    /// The concurrency that it has now.
    pub fn concurrency(&self, terms: &GroupDefaults) -> Option<u32> {
        let limits =
            [terms.concurrency, self.throttle.map(|throttle| throttle.limit), terms.ordered.then_some(1)];
        limits.into_iter().flatten().min()
    }

    /// Why nothing of it is handed out, if it has something.
    pub fn hold(&self, terms: Terms) -> Option<Hold> {
        let now = terms.now;
        let of_group = self.terms(&terms.defaults);
        let gate = |concurrency, rate| self.gate.hold(concurrency, rate, now);
        if let Some(paused) = gate(None, None) {
            return Some(paused);
        }
        if !self.circuit.is_closed() {
            if self.circuit.until > now {
                return Some(Hold::Backoff(self.circuit.until));
            }
            if self.circuit.probe != Serial::NONE {
                return Some(Hold::Probe);
            }
        }
        if let Some(throttle) = self.throttle.filter(|throttle| throttle.until > now) {
            return Some(Hold::Throttled(throttle.until));
        }
        if of_group.ordered && self.retrying > 0 {
            return Some(Hold::Ordered);
        }
        gate(self.concurrency(&of_group), of_group.rate)
    }

    fn is_empty(&self) -> bool {
        self.counts == Counts::default()
    }

    /// When nothing is left to remember of it; `None`: it is to stay.
    fn forgotten_at(&self) -> Option<u64> {
        if self.name.is_empty() && self.born <= 1 {
            return None;
        }
        let plain = self.is_empty() && self.own == GroupSettings::default() && self.circuit.is_closed();
        let rested = self.throttle.map_or(0, |throttle| throttle.until);
        plain.then(|| self.gate.idle_at()).flatten().map(|idle| idle.max(rested))
    }
}

impl Tenant {
    pub fn group_count(&self) -> usize {
        self.names.len()
    }

    pub fn hold(&self, now: u64) -> Option<Hold> {
        self.gate.hold(self.settings.concurrency, self.settings.rate, now)
    }

    /// Whether a look at it would change nothing: it has no limits, and stands in line if it has
    /// something to hand out.
    fn is_settled(&self) -> bool {
        let is_free = self.settings.concurrency.is_none()
            && self.settings.rate.is_none()
            && self.gate.paused_until.is_none();
        is_free
            && self.wake.is_none()
            && !self.names.is_empty()
            && self.turn.is_some() != self.rotation.is_empty()
    }

    fn forgotten_at(&self) -> Option<u64> {
        let plain = self.names.is_empty() && self.settings == TenantSettings::default() && self.born > 0;
        plain.then(|| self.gate.idle_at()).flatten()
    }
}

impl Default for Groups {
    fn default() -> Self {
        let mut groups = Self::empty();
        groups.group_or_new(GroupName::default());
        groups
    }
}

impl Groups {
    /// Without even the nameless group: to be filled from what is persisted.
    pub fn empty() -> Self {
        Self {
            groups: Slab::default(),
            tenants: Slab::default(),
            tenant_names: HashMap::new(),
            by_birth: Sorted::default(),
            tenants_by_birth: BTreeMap::new(),
            rotation: BTreeMap::new(),
            wakes: BTreeMap::new(),
            soonest_wake: 0,
            next_birth: 0,
            next_turn: 0,
            pass_floor: 0,
            review: None,
            name_bytes: 0,
            ready_bytes: 0,
            eligible: 0,
            nameless: None,
        }
    }

    pub fn get(&self, number: GroupNo) -> Option<&Group> {
        self.groups.get(number)
    }

    pub fn get_mut(&mut self, number: GroupNo) -> Option<&mut Group> {
        self.groups.get_mut(number)
    }

    pub fn tenant(&self, number: TenantNo) -> Option<&Tenant> {
        self.tenants.get(number)
    }

    pub fn tenant_mut(&mut self, number: TenantNo) -> Option<&mut Tenant> {
        self.tenants.get_mut(number)
    }

    pub fn tenant_of(&mut self, number: GroupNo) -> Option<&mut Tenant> {
        let tenant = self.groups.get(number)?.tenant;
        self.tenants.get_mut(tenant)
    }

    pub fn find_tenant(&self, name: &[u8]) -> Option<TenantNo> {
        self.tenant_names.get(name).copied()
    }

    pub fn find(&self, name: GroupName<'_>) -> Option<GroupNo> {
        let tenant = self.tenants.get(self.find_tenant(name.tenant)?)?;
        tenant.names.get(name.group).copied()
    }

    /// Groups, behind the one with this birth.
    pub fn iter_after(&self, born: Option<u64>) -> impl Iterator<Item = (GroupNo, &Group)> {
        let numbers = self.by_birth.iter_after(born, number_of);
        numbers.filter_map(|(_, number)| Some((number, self.groups.get(number)?)))
    }

    pub fn tenants_from(&self, born: u64) -> impl Iterator<Item = &Tenant> {
        self.tenants_by_birth.range(born..).filter_map(|(_, &number)| self.tenants.get(number))
    }

    pub fn tenants(&self) -> impl Iterator<Item = (TenantNo, &Tenant)> {
        self.tenants_by_birth.values().filter_map(|&number| Some((number, self.tenants.get(number)?)))
    }

    pub fn len(&self) -> usize {
        self.groups.len()
    }

    pub fn tenant_count(&self) -> usize {
        self.tenants.len()
    }

    /// How many groups could be served, as far as they and their tenants are concerned.
    pub const fn eligible(&self) -> usize {
        self.eligible
    }

    pub fn bytes(&self) -> usize {
        let names = self.groups.len().saturating_add(self.tenants.len()).saturating_mul(96);
        self.groups
            .bytes()
            .saturating_add(self.tenants.bytes())
            .saturating_add(self.name_bytes.saturating_mul(2))
            .saturating_add(names)
            .saturating_add(self.ready_bytes)
    }

    fn birth(&mut self) -> u64 {
        let born = self.next_birth;
        self.next_birth = born.saturating_add(1);
        born
    }

    fn take_turn(&mut self) -> u64 {
        if self.next_turn == u64::MAX {
            self.number_turns_anew();
        }
        self.next_turn = self.next_turn.saturating_add(1);
        self.next_turn
    }

    /// Turns last for ever, unless hostile bytes put them to an end: then the lines begin again with
    /// small ones. Once in 2^64 turns, work proportional to the groups in line is no matter.
    #[cold]
    fn number_turns_anew(&mut self) {
        self.next_turn = 0;
        let tenants = std::mem::take(&mut self.rotation);
        for ((pass, _), number) in tenants {
            self.next_turn = self.next_turn.saturating_add(1);
            self.rotation.insert((pass, self.next_turn), number);
            if let Some(tenant) = self.tenants.get_mut(number) {
                tenant.turn = Some(self.next_turn);
            }
        }
        for &number in self.tenants_by_birth.values() {
            let Some(tenant) = self.tenants.get_mut(number) else { continue };
            for (_, number) in std::mem::take(&mut tenant.rotation).iter() {
                self.next_turn = self.next_turn.saturating_add(1);
                tenant.rotation.insert(self.next_turn, (self.next_turn, number), number_of);
                if let Some(group) = self.groups.get_mut(number) {
                    group.turn = Some(self.next_turn);
                }
            }
        }
    }

    pub fn tenant_or_new(&mut self, name: &[u8]) -> Option<TenantNo> {
        if let Some(number) = self.find_tenant(name) {
            return Some(number);
        }
        let born = self.birth();
        self.add_tenant(born, name)
    }

    /// `None` if the name or the birth is taken.
    pub fn add_tenant(&mut self, born: u64, name: &[u8]) -> Option<TenantNo> {
        if self.tenant_names.contains_key(name) || self.is_born(born) {
            return None;
        }
        let number = self.tenants.insert(Tenant {
            name: name.into(),
            born,
            settings: TenantSettings::default(),
            gate: Gate::default(),
            rotation: Sorted::default(),
            names: HashMap::new(),
            pass: self.pass_floor,
            turn: None,
            wake: None,
        })?;
        self.tenant_names.insert(name.into(), number);
        self.tenants_by_birth.insert(born, number);
        self.name_bytes = self.name_bytes.saturating_add(name.len());
        Some(number)
    }

    pub fn group_or_new(&mut self, name: GroupName<'_>) -> Option<GroupNo> {
        if let Some(nameless) = self.nameless.filter(|_| name == GroupName::default()) {
            return Some(nameless);
        }
        let tenant = self.tenant_or_new(name.tenant)?;
        if let Some(&number) = self.tenants.get(tenant)?.names.get(name.group) {
            return Some(number);
        }
        let born = self.birth();
        self.add_group(born, tenant, name.group)
    }

    /// `None` if the name or the birth is taken, or the tenant unknown.
    pub fn add_group(&mut self, born: u64, tenant: TenantNo, name: &[u8]) -> Option<GroupNo> {
        if self.tenants.get(tenant)?.names.contains_key(name) || self.is_born(born) {
            return None;
        }
        let number = self.groups.insert(Group {
            tenant,
            name: name.into(),
            born,
            own: GroupSettings::default(),
            gate: Gate::default(),
            circuit: Circuit::default(),
            throttle: None,
            ready: Ready::default(),
            counts: Counts::default(),
            retrying: 0,
            turn: None,
            wake: None,
        })?;
        let of_tenant = self.tenants.get_mut(tenant)?;
        of_tenant.names.insert(name.into(), number);
        if name.is_empty() && of_tenant.name.is_empty() {
            self.nameless = Some(number);
        }
        self.by_birth.insert(born, (born, number), number_of);
        self.name_bytes = self.name_bytes.saturating_add(name.len());
        Some(number)
    }

    fn is_born(&self, born: u64) -> bool {
        self.by_birth.get(born, number_of).is_some() || self.tenants_by_birth.contains_key(&born)
    }

    pub fn born(&self, born: u64) -> Option<GroupNo> {
        self.by_birth.get(born, number_of).map(|(_, number)| number)
    }

    pub fn tenant_born(&self, born: u64) -> Option<TenantNo> {
        self.tenants_by_birth.get(&born).copied()
    }

    /// The group that is next in turn, as things were when it was last looked at.
    pub fn first(&self) -> Option<GroupNo> {
        let (_, tenant) = self.rotation.first_key_value()?;
        self.tenants.get(*tenant)?.rotation.first().map(|(_, group)| group)
    }

    /// The group that is next in turn and really eligible. Those that are not, because a default
    /// changed, step out; at most `budget` of them.
    pub fn take(&mut self, terms: Terms, budget: usize) -> Option<GroupNo> {
        for _ in 0..budget {
            let number = self.first()?;
            if self.get(number)?.hold(terms).is_none() {
                return Some(number);
            }
            self.refresh(number, terms);
        }
        None
    }

    /// A job of the group is handed out: it and its tenant go to the end of their lines.
    pub fn served(&mut self, number: GroupNo, token: Serial, terms: Terms) {
        let Some(group) = self.groups.get_mut(number) else { return };
        let rate = group.terms(&terms.defaults).rate;
        group.gate.pass(rate, terms.now);
        group.circuit.handed_out(token);
        let tenant = group.tenant;
        let is_alone = self.rotation.len() == 1;
        let Some(of_tenant) = self.tenants.get_mut(tenant) else { return };
        of_tenant.gate.pass(of_tenant.settings.rate, terms.now);
        if of_tenant.rotation.len() > 1 {
            self.leave_rotation(number);
        }
        if is_alone {
            // Nobody to let pass.
            return;
        }
        let Some(of_tenant) = self.tenants.get_mut(tenant) else { return };
        let step = STRIDE.checked_div(u64::from(of_tenant.settings.weight)).unwrap_or(STRIDE);
        self.pass_floor = of_tenant.pass;
        let pass = of_tenant.pass.saturating_add(step);
        self.tenant_leaves(tenant);
        if let Some(of_tenant) = self.tenants.get_mut(tenant) {
            of_tenant.pass = pass;
        }
    }

    /// Puts a ready job in, or takes one out.
    #[inline]
    pub fn change_ready<T>(&mut self, number: GroupNo, change: impl FnOnce(&mut Ready) -> T) {
        let Some(group) = self.groups.get_mut(number) else { return };
        let before = group.ready.bytes();
        change(&mut group.ready);
        self.ready_bytes = self.ready_bytes.saturating_add(group.ready.bytes()).saturating_sub(before);
    }

    /// A grant was undone: its slots in the rates are free again.
    pub fn refund(&mut self, number: GroupNo, token: Serial, terms: Terms) {
        let Some(group) = self.groups.get_mut(number) else { return };
        let rate = group.terms(&terms.defaults).rate;
        group.gate.refund(rate);
        group.circuit.withdrawn(token);
        if let Some(tenant) = self.tenant_of(number) {
            tenant.gate.refund(tenant.settings.rate);
        }
    }

    /// Counts a job that came, went or changed; `active` is the change in active ones.
    pub fn count_as(
        &mut self,
        number: GroupNo,
        before: Option<&Fields>,
        after: Option<&Fields>,
        active: i32,
    ) {
        let Some(group) = self.groups.get_mut(number) else { return };
        for (counted, comes) in [(before, false), (after, true)] {
            let Some(job) = counted else { continue };
            let step = |count: &mut u32| {
                *count = if comes { count.saturating_add(1) } else { count.saturating_sub(1) };
            };
            if let Some(count) = group.counts.of(job.state) {
                step(count);
            }
            if job.is_retry() {
                step(&mut group.retrying);
            }
        }
        if active != 0 {
            group.gate.active = group.gate.active.saturating_add_signed(active);
            let tenant = group.tenant;
            if let Some(tenant) = self.tenants.get_mut(tenant) {
                tenant.gate.active = tenant.gate.active.saturating_add_signed(active);
            }
        }
    }

    /// Whether it would change nothing to look anew at a group to which jobs came: it stands in line already, and by
    /// the defaults as they are.
    pub fn goes_on_standing(&self, number: GroupNo) -> bool {
        let stands = |group: &&Group| group.turn.is_some() && group.wake.is_none() && self.review.is_none();
        let group = self.groups.get(number).filter(stands);
        group.and_then(|group| self.tenants.get(group.tenant)).is_some_and(Tenant::is_settled)
    }

    /// Looks at a group anew: puts it into its tenant's rotation or takes it out, notes when to
    /// look again, forgets it if nothing is left of it.
    pub fn refresh(&mut self, number: GroupNo, terms: Terms) {
        let Some(group) = self.groups.get(number) else { return };
        let has_work = group.ready.len() > 0;
        let hold = if has_work { group.hold(terms) } else { None };
        let eligible = has_work && hold.is_none();
        let forgotten_at = if has_work { None } else { group.forgotten_at() };
        let wake = hold.and_then(Hold::until).or(forgotten_at);
        let tenant = group.tenant;
        // What is so nearly always: it stays where it stands, and its tenant has no limits.
        let stays = eligible == group.turn.is_some() && wake.is_none() && group.wake.is_none();
        if stays && self.tenants.get(tenant).is_some_and(Tenant::is_settled) {
            return;
        }
        if eligible && group.turn.is_none() {
            let turn = self.take_turn();
            self.join_rotation(number, turn);
        } else if !eligible {
            self.leave_rotation(number);
        }
        if forgotten_at.is_some_and(|at| at <= terms.now) {
            self.set_wake(number, None);
            self.forget(number);
        } else {
            self.set_wake(number, wake);
        }
        self.refresh_tenant(tenant, terms);
    }

    /// Looks at a tenant anew.
    pub fn refresh_tenant(&mut self, number: TenantNo, terms: Terms) {
        let Some(tenant) = self.tenants.get(number) else { return };
        let hold = tenant.hold(terms.now);
        let has_work = !tenant.rotation.is_empty();
        let eligible = has_work && hold.is_none();
        let forgotten_at = tenant.forgotten_at();
        let wake = if has_work { hold.and_then(Hold::until) } else { forgotten_at };
        if eligible && tenant.turn.is_none() {
            let turn = self.take_turn();
            let floor = self.pass_floor;
            if let Some(tenant) = self.tenants.get_mut(number) {
                // What it did not use while it was away is not saved up.
                tenant.pass = tenant.pass.max(floor);
            }
            self.tenant_joins(number, turn);
        } else if !eligible {
            self.tenant_leaves(number);
        }
        if forgotten_at.is_some_and(|at| at <= terms.now) {
            self.set_tenant_wake(number, None);
            self.forget_tenant(number);
        } else {
            self.set_tenant_wake(number, wake);
        }
    }

    pub fn join_rotation(&mut self, number: GroupNo, turn: u64) {
        let Some(group) = self.groups.get_mut(number) else { return };
        group.turn = Some(turn);
        if let Some(tenant) = self.tenants.get_mut(group.tenant) {
            tenant.rotation.insert(turn, (turn, number), number_of);
            self.eligible = self.eligible.saturating_add(usize::from(tenant.turn.is_some()));
        }
    }

    fn leave_rotation(&mut self, number: GroupNo) {
        let Some(group) = self.groups.get_mut(number) else { return };
        if let Some(turn) = group.turn.take()
            && let Some(tenant) = self.tenants.get_mut(group.tenant)
        {
            tenant.rotation.remove(turn, (turn, number), number_of);
            self.eligible = self.eligible.saturating_sub(usize::from(tenant.turn.is_some()));
        }
    }

    pub fn tenant_joins(&mut self, number: TenantNo, turn: u64) {
        let Some(tenant) = self.tenants.get_mut(number) else { return };
        tenant.turn = Some(turn);
        self.rotation.insert((tenant.pass, turn), number);
        self.eligible = self.eligible.saturating_add(tenant.rotation.len());
    }

    fn tenant_leaves(&mut self, number: TenantNo) {
        let Some(tenant) = self.tenants.get_mut(number) else { return };
        if let Some(turn) = tenant.turn.take() {
            self.rotation.remove(&(tenant.pass, turn));
            self.eligible = self.eligible.saturating_sub(tenant.rotation.len());
        }
    }

    pub fn set_wake(&mut self, number: GroupNo, wake: Option<u64>) {
        let Some(group) = self.groups.get_mut(number) else { return };
        let (old, born) = (std::mem::replace(&mut group.wake, wake), group.born);
        self.rearm(born, old, wake, Sleeper::Group(number));
    }

    pub fn set_tenant_wake(&mut self, number: TenantNo, wake: Option<u64>) {
        let Some(tenant) = self.tenants.get_mut(number) else { return };
        let (old, born) = (std::mem::replace(&mut tenant.wake, wake), tenant.born);
        self.rearm(born, old, wake, Sleeper::Tenant(number));
    }

    fn rearm(&mut self, born: u64, old: Option<u64>, new: Option<u64>, sleeper: Sleeper) {
        if old == new {
            return;
        }
        if let Some(at) = old {
            self.wakes.remove(&(at, born));
        }
        if let Some(at) = new {
            self.wakes.insert((at, born), sleeper);
            self.soonest_wake = self.soonest_wake.min(at);
        }
    }

    /// The least instant at which a group or tenant is to be looked at.
    pub fn next_wake(&self) -> Option<u64> {
        self.wakes.first_key_value().map(|(&(at, _), _)| at)
    }

    /// Looks at one group or tenant whose instant has come. Whether there was one.
    pub fn wake_one(&mut self, terms: Terms) -> bool {
        let Some((&(at, _), &sleeper)) = self.wakes.first_key_value() else { return false };
        if at > terms.now {
            return false;
        }
        // Looking at it sets a later wake, or none; to be sure that it goes on, clear it first.
        match sleeper {
            Sleeper::Group(number) => {
                self.set_wake(number, None);
                self.refresh(number, terms);
            }
            Sleeper::Tenant(number) => {
                self.set_tenant_wake(number, None);
                self.refresh_tenant(number, terms);
            }
        }
        true
    }

    /// Looks at the next group after a default changed. Whether there was one.
    pub fn review_one(&mut self, terms: Terms) -> bool {
        let Some(from) = self.review else { return false };
        let next = self.by_birth.iter_after(from.checked_sub(1), number_of).next();
        match next {
            Some((born, number)) => {
                self.review = Some(born.saturating_add(1));
                self.refresh(number, terms);
            }
            None => self.review = None,
        }
        true
    }

    fn forget(&mut self, number: GroupNo) {
        let Some(group) = self.groups.remove(number) else { return };
        self.by_birth.remove(group.born, (group.born, number), number_of);
        self.ready_bytes = self.ready_bytes.saturating_sub(group.ready.bytes());
        self.name_bytes = self.name_bytes.saturating_sub(group.name.len());
        if let Some(tenant) = self.tenants.get_mut(group.tenant) {
            tenant.names.remove(&group.name);
            if tenant.names.capacity() > 64 && tenant.names.len() < tenant.names.capacity() / 8 {
                tenant.names.shrink_to(tenant.names.len().saturating_mul(2));
            }
        }
    }

    fn forget_tenant(&mut self, number: TenantNo) {
        let Some(tenant) = self.tenants.remove(number) else { return };
        self.tenants_by_birth.remove(&tenant.born);
        self.tenant_names.remove(&tenant.name);
        if self.tenant_names.capacity() > 64 && self.tenant_names.len() < self.tenant_names.capacity() / 8 {
            self.tenant_names.shrink_to(self.tenant_names.len().saturating_mul(2));
        }
        self.name_bytes = self.name_bytes.saturating_sub(tenant.name.len());
    }

    /// I8, I13: who stands in a rotation is eligible, and who is eligible stands there, unless it
    /// is about to be looked at anyway.
    pub fn audit(&self, terms: Terms) -> Result<(), String> {
        let mut standing = 0usize;
        for (born, number) in self.by_birth.iter() {
            let group = self.get(number).ok_or("a group is missing")?;
            let name = format!("group {:?}", String::from_utf8_lossy(&group.name));
            let tenant = self.tenant(group.tenant).ok_or("a tenant is missing")?;
            let known = group.born == born && tenant.names.get(&group.name) == Some(&number);
            if !known {
                return Err(format!("I2: {name} is not found"));
            }
            if group.ready.len() != group.counts.get(State::Ready) {
                return Err(format!("I2: {name}: ready jobs miscounted"));
            }
            if group.gate.active as usize != group.counts.get(State::Active) {
                return Err(format!("I8: {name}: active jobs miscounted"));
            }
            let eligible = group.ready.len() > 0 && group.hold(terms).is_none();
            let is_due = group.wake.is_some_and(|at| at <= terms.now);
            let in_review = self.review.is_some_and(|from| from <= born);
            if group.turn.is_some() != eligible && !is_due && !in_review {
                return Err(format!("I13: {name}: turn {:?}, eligible {eligible}", group.turn));
            }
            let until = group.hold(terms).and_then(Hold::until).filter(|_| group.ready.len() > 0);
            if !in_review && until.is_some_and(|until| group.wake.is_none_or(|at| at > until)) {
                return Err(format!("I7: {name} is held until {until:?}, but wakes at {:?}", group.wake));
            }
            if let Some(turn) = group.turn {
                standing = standing.saturating_add(1);
                if tenant.rotation.get(turn, number_of) != Some((turn, number)) || turn > self.next_turn {
                    return Err(format!("I13: {name} is not in the rotation"));
                }
            }
            if let Some(at) = group.wake
                && self.wakes.get(&(at, born)) != Some(&Sleeper::Group(number))
            {
                return Err(format!("I7: {name} is not among the wakes"));
            }
            if born >= self.next_birth {
                return Err(format!("I3: {name} is born in the future"));
            }
        }
        self.audit_tenants(terms, standing)
    }

    fn audit_tenants(&self, terms: Terms, standing: usize) -> Result<(), String> {
        let mut in_rotations = 0usize;
        let mut in_queue = 0usize;
        let mut eligible_groups = 0usize;
        for (&born, &number) in &self.tenants_by_birth {
            let tenant = self.tenant(number).ok_or("a tenant is missing")?;
            let name = format!("tenant {:?}", String::from_utf8_lossy(&tenant.name));
            if tenant.born != born
                || self.find_tenant(&tenant.name) != Some(number)
                || born >= self.next_birth
            {
                return Err(format!("I2: {name} is not found"));
            }
            in_rotations = in_rotations.saturating_add(tenant.rotation.len());
            let groups = tenant.names.values().filter_map(|&group| self.get(group));
            let active = groups.fold(0u32, |sum, group| sum.saturating_add(group.gate.active));
            if active != tenant.gate.active {
                return Err(format!("I8: {name}: {} active, found {active}", tenant.gate.active));
            }
            let eligible = !tenant.rotation.is_empty() && tenant.hold(terms.now).is_none();
            let is_due = tenant.wake.is_some_and(|at| at <= terms.now);
            if tenant.turn.is_some() != eligible && !is_due {
                return Err(format!("I13: {name}: turn {:?}, eligible {eligible}", tenant.turn));
            }
            let until = tenant.hold(terms.now).and_then(Hold::until);
            let until = until.filter(|_| !tenant.rotation.is_empty());
            if until.is_some_and(|until| tenant.wake.is_none_or(|at| at > until)) {
                return Err(format!("I7: {name} is held until {until:?}, but wakes at {:?}", tenant.wake));
            }
            if let Some(turn) = tenant.turn {
                in_queue = in_queue.saturating_add(1);
                eligible_groups = eligible_groups.saturating_add(tenant.rotation.len());
                if self.rotation.get(&(tenant.pass, turn)) != Some(&number) {
                    return Err(format!("I13: {name} is not in the rotation"));
                }
            }
            if let Some(at) = tenant.wake
                && self.wakes.get(&(at, born)) != Some(&Sleeper::Tenant(number))
            {
                return Err(format!("I7: {name} is not among the wakes"));
            }
        }
        let sleepers = self.groups.iter().filter(|(_, group)| group.wake.is_some()).count();
        let sleepers =
            sleepers.saturating_add(self.tenants.iter().filter(|(_, tenant)| tenant.wake.is_some()).count());
        if in_rotations != standing || in_queue != self.rotation.len() || sleepers != self.wakes.len() {
            return Err("I13: rotations or wakes hold what is not there".into());
        }
        let ready_bytes =
            self.groups.iter().fold(0usize, |sum, (_, group)| sum.saturating_add(group.ready.bytes()));
        if ready_bytes != self.ready_bytes {
            return Err(format!("I2: {ready_bytes} bytes of ready jobs, kept {}", self.ready_bytes));
        }
        if eligible_groups != self.eligible {
            return Err(format!("I2: {} groups eligible, found {eligible_groups}", self.eligible));
        }
        if self.by_birth.len() != self.groups.len() || self.tenants_by_birth.len() != self.tenants.len() {
            return Err("I2: groups are not all listed".into());
        }
        Ok(())
    }
}

//! Read views: what may be seen of a queue from outside. Nothing here changes anything.

use super::circuit::{Circuit, Throttle};
use super::gate::{Gate, Hold};
use super::group::{Group, GroupName, Tenant};
use super::job::{Job, Reason, Slot, State};
use super::serial::{Id, Serial};
use super::settings::{GroupDefaults, GroupSettings, JobOptions, Settings, TenantSettings};
use super::{Queue, limits};

/// Everything about one job. Instants are on the queue's duration clock, in ms;
/// [`Queue::to_wall`] makes Unix ms of them.
#[derive(Clone, Copy)]
pub struct JobView<'q> {
    job: &'q Job,
    queue: &'q Queue,
}

impl<'q> JobView<'q> {
    pub(super) const fn new(queue: &'q Queue, job: &'q Job) -> Self {
        Self { job, queue }
    }

    /// The id a client knows it by.
    #[must_use]
    pub fn id(&self) -> Id<'q> {
        self.job.id()
    }

    /// Its arrival number; its id too unless the client gave one.
    #[must_use]
    pub const fn arrival(&self) -> Serial {
        self.job.arrival
    }

    /// Its group.
    #[must_use]
    pub fn group(&self) -> GroupName<'q> {
        let group = self.queue.groups.get(self.job.group);
        let tenant = group.and_then(|group| self.queue.groups.tenant(group.tenant));
        GroupName {
            tenant: tenant.map_or(&[], |tenant| &tenant.name),
            group: group.map_or(&[], |group| &group.name),
        }
    }

    /// State.
    #[must_use]
    pub const fn state(&self) -> State {
        self.job.state
    }

    /// Payload.
    #[must_use]
    pub fn payload(&self) -> &'q [u8] {
        &self.job.payload
    }

    /// Higher first.
    #[must_use]
    pub const fn priority(&self) -> u8 {
        self.job.priority
    }

    /// Token of the current or last delivery; [`Serial::NONE`] before the first.
    #[must_use]
    pub const fn token(&self) -> Serial {
        self.job.token
    }

    /// How often it was handed out.
    #[must_use]
    pub const fn deliveries(&self) -> u32 {
        self.job.deliveries
    }

    /// Failures used up.
    #[must_use]
    pub const fn attempts(&self) -> u32 {
        self.job.attempts
    }

    /// Lapses and counted recoveries used up.
    #[must_use]
    pub const fn crashes(&self) -> u32 {
        self.job.crashes
    }

    /// Failures allowed, by its own option or the queue's setting; `None`: no limit.
    #[must_use]
    pub fn attempts_allowed(&self) -> Option<u32> {
        self.job.options().attempts.unwrap_or(self.queue.settings.attempts)
    }

    /// Crashes forgiven; `None`: no limit.
    #[must_use]
    pub fn crashes_allowed(&self) -> Option<u32> {
        self.job.options().crashes.unwrap_or(self.queue.settings.crashes)
    }

    /// What was said of it at enqueue.
    #[must_use]
    pub fn options(&self) -> JobOptions {
        self.job.options()
    }

    /// When it was enqueued.
    #[must_use]
    pub const fn enqueued(&self) -> u64 {
        self.job.enqueued
    }

    /// Not final: the instant from which it could, can or could first run (its place in the
    /// ready order). `None` when delayed for the first time or by a retry: see [`Self::due`].
    #[must_use]
    pub fn since(&self) -> Option<u64> {
        (!self.job.state.is_final() && (self.job.state != State::Delayed || self.job.keeps_place))
            .then_some(self.job.since)
    }

    /// Delayed: when it is due.
    #[must_use]
    pub fn due(&self) -> Option<u64> {
        (self.job.state == State::Delayed)
            .then(|| if self.job.follows_wall { self.queue.wall_to_now(self.job.at) } else { self.job.at })
    }

    /// Active: when its lease lapses.
    #[must_use]
    pub fn lease_until(&self) -> Option<u64> {
        (self.job.state == State::Active).then_some(self.job.at)
    }

    /// Active: when it was claimed.
    #[must_use]
    pub fn claimed(&self) -> Option<u64> {
        (self.job.state == State::Active).then_some(self.job.touched)
    }

    /// Final: when it ended.
    #[must_use]
    pub fn ended(&self) -> Option<u64> {
        self.job.state.is_final().then_some(self.job.touched)
    }

    /// Final: how many ms it will still be kept; `None` if for ever or not final.
    #[must_use]
    pub fn ttl(&self) -> Option<u64> {
        (self.job.state.is_final() && self.job.at != u64::MAX)
            .then(|| self.job.at.saturating_sub(self.queue.clock.now))
    }

    /// The instant at which it is dead if never claimed.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        self.job.pending_deadline()
    }

    /// Active: whether its worker is to give it up.
    #[must_use]
    pub const fn is_cancelling(&self) -> bool {
        self.job.cancelling
    }

    /// Result of a done job, error text of a dead one, else the last progress.
    #[must_use]
    pub fn value(&self) -> Option<&'q [u8]> {
        if self.job.state == State::Dead { self.job.error() } else { self.job.value() }
    }

    /// The error text of its last failure.
    #[must_use]
    pub fn error(&self) -> Option<&'q [u8]> {
        self.job.error()
    }

    /// Why it is dead.
    #[must_use]
    pub fn reason(&self) -> Option<Reason> {
        self.job.more.as_ref()?.reason
    }

    /// The worker of the current delivery, or of the last one of a dead job.
    #[must_use]
    pub fn worker(&self) -> Option<&'q [u8]> {
        if self.job.state == State::Active {
            return self.queue.registry.name(self.job.worker);
        }
        self.job.more.as_ref()?.last_worker.as_deref()
    }
}

/// A worker as the registry knows it. Instants on the queue's duration clock, ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerView<'q> {
    /// Its name.
    pub name: &'q [u8],
    /// When it was registered.
    pub first_seen: u64,
    /// Its last sign of life that this server saw. Not persisted.
    pub last_seen: u64,
    /// Jobs it holds.
    pub active: usize,
    /// Jobs it acknowledged.
    pub done: u64,
    /// Failures it reported.
    pub failed: u64,
    /// Jobs it lost by lapse or counted recovery.
    pub crashed: u64,
}

/// A group as operators see it.
#[derive(Clone, Copy)]
pub struct GroupView<'q> {
    group: &'q Group,
    queue: &'q Queue,
}

impl<'q> GroupView<'q> {
    /// Its names.
    #[must_use]
    pub fn name(&self) -> GroupName<'q> {
        let tenant = self.queue.groups.tenant(self.group.tenant);
        GroupName { tenant: tenant.map_or(&[], |tenant| &tenant.name), group: &self.group.name }
    }

    /// Number of its birth: the order of listings, and their cursor.
    #[must_use]
    pub const fn born(&self) -> u64 {
        self.group.born
    }

    /// What was set on it.
    #[must_use]
    pub const fn own_settings(&self) -> &'q GroupSettings {
        &self.group.own
    }

    /// What it goes by.
    #[must_use]
    pub fn settings(&self) -> GroupDefaults {
        self.group.terms(&self.queue.settings.group)
    }

    /// The concurrency that it has now, throttled or not; `None`: no limit.
    #[must_use]
    pub fn concurrency(&self) -> Option<u32> {
        self.group.concurrency(&self.settings())
    }

    /// Its jobs in a state.
    #[must_use]
    pub fn count(&self, state: State) -> usize {
        self.group.counts.get(state)
    }

    /// Its pause, active jobs and rate.
    #[must_use]
    pub const fn gate(&self) -> &'q Gate {
        &self.group.gate
    }

    /// Its circuit.
    #[must_use]
    pub const fn circuit(&self) -> &'q Circuit {
        &self.group.circuit
    }

    /// Its throttle, if it was throttled lately.
    #[must_use]
    pub const fn throttle(&self) -> Option<&'q Throttle> {
        self.group.throttle.as_ref()
    }

    /// Since when its first job in line could run.
    #[must_use]
    pub fn oldest_ready(&self) -> Option<u64> {
        self.group.ready.oldest()
    }

    /// Why none of its jobs is handed out: by itself, its tenant, or the queue. `None`: they are,
    /// or it has none ready.
    #[must_use]
    pub fn hold(&self) -> Option<Hold> {
        let tenant = self.queue.groups.tenant(self.group.tenant);
        let of_tenant = tenant.and_then(|tenant| tenant.hold(self.queue.clock.now));
        self.group.hold(self.queue.terms()).or(of_tenant).or_else(|| self.queue.hold())
    }
}

/// A tenant as operators see it.
#[derive(Clone, Copy)]
pub struct TenantView<'q> {
    tenant: &'q Tenant,
    queue: &'q Queue,
}

impl<'q> TenantView<'q> {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'q [u8] {
        &self.tenant.name
    }

    /// Its settings.
    #[must_use]
    pub const fn settings(&self) -> &'q TenantSettings {
        &self.tenant.settings
    }

    /// Its pause, active jobs and rate.
    #[must_use]
    pub const fn gate(&self) -> &'q Gate {
        &self.tenant.gate
    }

    /// Why none of its jobs is handed out, by itself or the queue.
    #[must_use]
    pub fn hold(&self) -> Option<Hold> {
        self.tenant.hold(self.queue.clock.now).or_else(|| self.queue.hold())
    }
}

/// A page of [`Queue::list`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Where to go on; `None`: this was the last page.
    pub next: Option<Cursor>,
    /// The jobs, in the order of their state.
    pub jobs: Vec<Slot>,
}

/// A place in a listing: just behind the job with this key. Shown as `<group>.<rank>.<at>.<serial>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// Ready jobs: the birth of their group; else 0.
    pub born: u64,
    /// 255 - priority, for ready jobs; else 0.
    pub rank: u8,
    /// First part of the key.
    pub at: u64,
    /// Arrival number or token.
    pub serial: Serial,
}

/// What the next claim would be handed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next {
    /// It comes back from a lapse: so it is for the worker that asked last (see DESIGN, ghosts).
    pub lapsed_before: bool,
}

impl Queue {
    /// The queue's duration clock, ms.
    #[must_use]
    pub const fn now(&self) -> u64 {
        self.clock.now
    }

    /// The wall clock as last stamped, Unix ms.
    #[must_use]
    pub const fn wall(&self) -> u64 {
        self.clock.wall
    }

    /// The last serial taken.
    #[must_use]
    pub const fn last_serial(&self) -> Serial {
        self.clock.serial
    }

    /// An instant of the duration clock as Unix ms.
    #[must_use]
    pub fn to_wall(&self, instant: u64) -> u64 {
        if instant == u64::MAX {
            return u64::MAX;
        }
        self.clock.wall.saturating_add(instant).saturating_sub(self.clock.now)
    }

    /// A Unix ms as an instant of the duration clock, as things stand.
    #[must_use]
    pub fn wall_to_now(&self, wall: u64) -> u64 {
        self.clock.now.saturating_add(wall).saturating_sub(self.clock.wall)
    }

    /// Settings.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Jobs in a state. O(1).
    #[must_use]
    pub fn count(&self, state: State) -> usize {
        self.counts.get(state)
    }

    /// Jobs waiting: delayed and ready. O(1).
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.count(State::Delayed).saturating_add(self.count(State::Ready))
    }

    /// Transitions since the queue was made.
    #[must_use]
    pub const fn totals(&self) -> &super::Totals {
        &self.totals
    }

    /// Until when nothing is handed out: `None`: not paused; `u64::MAX`: until resumed.
    #[must_use]
    pub fn paused_until(&self) -> Option<u64> {
        self.gate.paused_until.filter(|&until| until > self.clock.now)
    }

    /// Why nothing at all is handed out, if so.
    #[must_use]
    pub fn hold(&self) -> Option<Hold> {
        self.gate.hold(self.settings.concurrency, self.settings.rate, self.clock.now)
    }

    /// One group.
    #[must_use]
    pub fn group(&self, name: GroupName<'_>) -> Option<GroupView<'_>> {
        let group = self.groups.get(self.groups.find(name)?)?;
        Some(GroupView { group, queue: self })
    }

    /// Groups by age, behind the one with this birth.
    pub fn groups_after(&self, born: Option<u64>) -> impl Iterator<Item = GroupView<'_>> {
        self.groups.iter_after(born).map(|(_, group)| GroupView { group, queue: self })
    }

    /// How many groups there are, the nameless one included.
    #[must_use]
    pub fn group_count(&self) -> usize {
        self.groups.len()
    }

    /// How many groups could be served now, as far as they and their tenants are concerned.
    #[must_use]
    pub fn eligible_groups(&self) -> usize {
        self.groups.eligible()
    }

    /// One tenant.
    #[must_use]
    pub fn tenant(&self, name: &[u8]) -> Option<TenantView<'_>> {
        let tenant = self.groups.tenant(self.groups.find_tenant(name)?)?;
        Some(TenantView { tenant, queue: self })
    }

    /// The job with this id. O(1).
    #[must_use]
    pub fn find(&self, id: Id<'_>) -> Option<Slot> {
        self.index.find(id, |slot| self.jobs.get(slot).is_some_and(|job| job.id() == id))
    }

    /// The job in a slot that an op or a look-up gave, if it is still there.
    #[must_use]
    pub fn job(&self, slot: Slot) -> Option<JobView<'_>> {
        self.jobs.get(slot).map(|job| JobView::new(self, job))
    }

    /// What a claim would be handed now, if anything.
    #[must_use]
    pub fn next(&self) -> Option<Next> {
        self.next_at(self.clock.now)
    }

    /// What a claim would be handed at `now` on the duration clock, if anything. A rate may have
    /// been used up at the queue's clock, and be free again by then.
    #[must_use]
    pub fn next_at(&self, now: u64) -> Option<Next> {
        if self.gate.hold(self.settings.concurrency, self.settings.rate, now.max(self.clock.now)).is_some() {
            return None;
        }
        let group = self.groups.get(self.groups.first()?)?;
        let job = self.jobs.get(group.ready.first()?)?;
        Some(Next { lapsed_before: job.crashes > 0 })
    }

    /// Since when the longest waiting ready job could run, over the first groups by age that a
    /// page may look at; the age of the queue is `now` less this.
    #[must_use]
    pub fn oldest_ready(&self) -> Option<u64> {
        let groups = self.groups.iter_after(None).take(limits::LIST_SCAN_MAX);
        groups.filter_map(|(_, group)| group.ready.oldest()).min()
    }

    /// Workers by order of their registration.
    pub fn workers(&self) -> impl Iterator<Item = WorkerView<'_>> {
        self.registry.iter()
    }

    /// How many workers are registered.
    #[must_use]
    pub fn worker_count(&self) -> usize {
        self.registry.len()
    }

    /// One worker.
    #[must_use]
    pub fn worker(&self, name: &[u8]) -> Option<WorkerView<'_>> {
        self.registry.view(name)
    }

    /// Approximate bytes on the heap. O(1).
    #[must_use]
    pub fn memory(&self) -> usize {
        size_of::<Self>()
            .saturating_add(self.heap_bytes)
            .saturating_add(self.jobs.bytes())
            .saturating_add(self.index.bytes())
            .saturating_add(self.registry.bytes())
            .saturating_add(self.container_bytes())
    }

    /// Number of allocations to free, roughly: what freeing it costs.
    #[must_use]
    pub fn free_effort(&self) -> usize {
        self.jobs.len().saturating_add(self.registry.len())
    }

    /// A page of the jobs in a state, behind `after`, optionally only those a worker holds. The
    /// order is that of the state: ready: group by group, oldest group first, each as it will be claimed; delayed: by due instant, first
    /// those that follow the duration clock, then those that follow the wall clock; active: by the
    /// lease's deadline (of one worker: by token); final: by expiry.
    /// At most `count` jobs (and never more than the limit for pages).
    #[must_use]
    pub fn list(&self, state: State, worker: Option<&[u8]>, after: Option<Cursor>, count: usize) -> Page {
        let count = count.min(limits::LIST_SCAN_MAX);
        let mut page = Page::default();
        let mut last = None;
        let mut take = |cursor: Cursor, slot: Slot| {
            if page.jobs.len() == count {
                page.next = last;
                return false;
            }
            page.jobs.push(slot);
            last = Some(cursor);
            true
        };
        match (state, worker) {
            (State::Active, Some(worker)) => {
                for (token, slot) in self.registry.held_by(worker, after.map(|cursor| cursor.serial)) {
                    if !take(Cursor { born: 0, rank: 0, at: 0, serial: token }, slot) {
                        break;
                    }
                }
            }
            (_, Some(_)) => {}
            (State::Ready, None) => {
                // The cursor's own group is gone on with behind its place, later ones from the start.
                let from = after.and_then(|cursor| cursor.born.checked_sub(1));
                for (_, group) in self.groups.iter_after(from) {
                    let born = group.born;
                    let place = after.filter(|cursor| cursor.born == born);
                    let place = place.map(|cursor| (cursor.rank, (cursor.at, cursor.serial)));
                    for (rank, (at, serial), slot) in group.ready.iter_after(place) {
                        if !take(Cursor { born, rank, at, serial }, slot) {
                            return page;
                        }
                    }
                }
            }
            (state, None) => {
                for (rank, timeline) in self.timelines_of(state) {
                    let from = match after {
                        Some(cursor) if cursor.rank > rank => continue,
                        Some(cursor) if cursor.rank == rank => Some((cursor.at, cursor.serial)),
                        _ => None,
                    };
                    for ((at, serial), slot) in timeline.iter_after(from) {
                        if !take(Cursor { born: 0, rank, at, serial }, slot) {
                            return page;
                        }
                    }
                }
            }
        }
        page
    }
}

//! Read views: what may be seen of a queue from outside. Nothing here changes anything.

use super::circuit::{Circuit, Throttle};
use super::gate::{Gate, Hold};
use super::group::{Group, GroupName, GroupNo, Tenant, TenantNo, Terms};
use super::job::{Failures, Job, Reason, Slot, State};
use super::op::{Scope, Until};
use super::registry::{Worker, WorkerNo};
use super::serial::{Id, Serial};
use super::settings::{GroupDefaults, GroupSettings, JobOptions, Settings, TenantSettings};
use super::stats::{self, Histogram, PerEvent};
use super::{Queue, limits};

/// Everything about one job. Instants are on the queue's duration clock, in ms;
/// [`Queue::to_wall`] makes Unix ms of them.
#[derive(Clone, Copy)]
pub struct JobView<'q> {
    job: Job<'q>,
    queue: &'q Queue,
}

impl<'q> JobView<'q> {
    pub(super) const fn new(queue: &'q Queue, job: Job<'q>) -> Self {
        Self { job, queue }
    }

    pub(super) const fn job(&self) -> &Job<'q> {
        &self.job
    }

    /// The id a client knows it by.
    #[must_use]
    pub fn id(&self) -> Id<'q> {
        self.job.id()
    }

    /// Its arrival number; its id too unless the client gave one.
    #[must_use]
    pub fn arrival(&self) -> Serial {
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
    pub fn state(&self) -> State {
        self.job.state
    }

    /// Payload.
    #[must_use]
    pub fn payload(&self) -> &'q [u8] {
        self.job.payload
    }

    /// Higher first.
    #[must_use]
    pub fn priority(&self) -> u8 {
        self.job.priority
    }

    /// Token of the current or last delivery; [`Serial::NONE`] before the first.
    #[must_use]
    pub fn token(&self) -> Serial {
        self.job.token
    }

    /// How often it was handed out.
    #[must_use]
    pub fn deliveries(&self) -> u32 {
        self.job.deliveries
    }

    /// Failures used up.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.job.spent.attempts
    }

    /// Lapses and counted recoveries used up.
    #[must_use]
    pub fn crashes(&self) -> u32 {
        self.job.spent.crashes
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

    /// The key that it locks, or did and nobody else has taken since.
    #[must_use]
    pub fn key(&self) -> Option<&'q [u8]> {
        self.job.lock().map(|lock| &*lock.key)
    }

    /// Until when it locks its key.
    #[must_use]
    pub fn locks_until(&self) -> Option<Until> {
        self.job.lock().map(|lock| lock.until)
    }

    /// The instant until which it locks its key in any case.
    #[must_use]
    pub fn locks_for(&self) -> Option<u64> {
        self.job.lock()?.window.map(|_| self.job.window_end())
    }

    /// Whether it locks its key at the instant `now`.
    #[must_use]
    pub fn locks(&self, now: u64) -> bool {
        self.job.locks(now)
    }

    /// When it was enqueued.
    #[must_use]
    pub fn enqueued(&self) -> u64 {
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

    /// Delayed until an instant of the wall clock, and follows that: the instant, Unix ms.
    #[must_use]
    pub fn due_wall(&self) -> Option<u64> {
        (self.job.state == State::Delayed && self.job.follows_wall).then_some(self.job.at)
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
    pub fn is_cancelling(&self) -> bool {
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

    /// When its last deliveries failed or were lost, oldest first; at most
    /// [`limits::FAILURES_KEPT`] of this life.
    pub fn failures(&self) -> impl Iterator<Item = u64> {
        self.job.more.iter().filter_map(|more| more.failures()).flat_map(Failures::iter)
    }

    /// Why it is dead.
    #[must_use]
    pub fn reason(&self) -> Option<Reason> {
        self.job.more?.reason
    }

    /// The worker of the current delivery, or of the last one of a dead job.
    #[must_use]
    pub fn worker(&self) -> Option<&'q [u8]> {
        if self.job.state == State::Active {
            return self.queue.registry.get(self.job.worker.slot()).map(|worker| &*worker.name);
        }
        self.job.more?.last_worker.as_deref()
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
        self.group.ready.oldest(self.queue.jobs.since_of())
    }

    /// Why none of its jobs is handed out at the queue's clock.
    #[must_use]
    pub fn hold(&self) -> Option<Hold> {
        self.hold_at(self.queue.clock.now).map(|(hold, _)| hold)
    }

    /// Why none of its jobs is handed out at `now` on the duration clock, and who stands in the
    /// way: itself, its tenant, or the queue. `None`: nobody does; it may have none ready.
    #[must_use]
    pub fn hold_at(&self, now: u64) -> Option<(Hold, Holder)> {
        let terms = Terms { now: now.max(self.queue.clock.now), ..self.queue.terms() };
        let tenant = self.queue.groups.tenant(self.group.tenant);
        let of_tenant = || tenant.and_then(|tenant| tenant.hold(terms.now));
        let by = |holder| move |hold| (hold, holder);
        let of_group = self.group.hold(terms).map(by(Holder::Group));
        of_group
            .or_else(|| of_tenant().map(by(Holder::Tenant)))
            .or_else(|| self.queue.hold_at(terms.now).map(by(Holder::Queue)))
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

    /// How many groups it has.
    #[must_use]
    pub fn group_count(&self) -> usize {
        self.tenant.group_count()
    }

    /// Why none of its jobs is handed out at the queue's clock.
    #[must_use]
    pub fn hold(&self) -> Option<Hold> {
        self.hold_at(self.queue.clock.now).map(|(hold, _)| hold)
    }

    /// Why none of its jobs is handed out at `now` on the duration clock, and who stands in the
    /// way: itself or the queue.
    #[must_use]
    pub fn hold_at(&self, now: u64) -> Option<(Hold, Holder)> {
        let now = now.max(self.queue.clock.now);
        let of_tenant = self.tenant.hold(now).map(|hold| (hold, Holder::Tenant));
        of_tenant.or_else(|| self.queue.hold_at(now).map(|hold| (hold, Holder::Queue)))
    }
}

/// See [`Queue::census`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Groups looked at.
    pub looked_at: usize,
    /// Of them, those that would be served, as far as they and their tenants are concerned.
    pub eligible: usize,
    /// Those without a ready job.
    pub empty: usize,
    /// Those that have one, and are held back or their tenants are: by [`Hold::index`].
    pub held: [usize; Hold::NAMES.len()],
    /// Since when the longest waiting of their ready jobs could run.
    pub oldest_ready: Option<u64>,
}

/// Whose limit, pause or trouble it is that holds something back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// The group's own.
    Group,
    /// Its tenant's.
    Tenant,
    /// The queue's.
    Queue,
}

impl Holder {
    /// The word for it in replies.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Group => "group",
            Self::Tenant => "tenant",
            Self::Queue => "queue",
        }
    }
}

/// What [`Queue::list_some`] shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter<'a> {
    /// Jobs in this state.
    pub state: State,
    /// Only those that this worker holds.
    pub worker: Option<&'a [u8]>,
    /// Only those of this tenant or group.
    pub scope: Scope<'a>,
}

/// A page of [`Queue::list_some`].
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
    /// Ready jobs: the birth of their group; active ones: the number of their worker; else 0.
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

    /// How often each event occurred in the last `minutes` (at most [`stats::RATE_MINUTES`]) before
    /// `now` on the duration clock.
    #[must_use]
    pub fn events_in(&self, now: u64, minutes: u64) -> PerEvent<u64> {
        let now = now.max(self.clock.now);
        stats::events_in(&self.recent.minutes(now, &self.totals), now, minutes)
    }

    /// How long jobs waited to be claimed, and how long they were with their workers, in the last
    /// [`stats::SPAN_MINUTES`] at `now` on the duration clock, the current one included. Waits are
    /// counted from the instant from which a job could run (this time) to the claim; runs from the
    /// claim to `Ack` or `Fail`.
    #[must_use]
    pub fn waits_and_runs(&self, now: u64) -> (Histogram, Histogram) {
        let mut sums = (Histogram::default(), Histogram::default());
        for span in self.recent.spans(now.max(self.clock.now)) {
            sums.0.merge(&span.waits);
            sums.1.merge(&span.runs);
        }
        sums
    }

    /// Until when nothing is handed out: `None`: not paused; `u64::MAX`: until resumed.
    #[must_use]
    pub fn paused_until(&self) -> Option<u64> {
        self.gate.paused_until.filter(|&until| until > self.clock.now)
    }

    /// Why nothing at all is handed out, if so.
    #[must_use]
    pub fn hold(&self) -> Option<Hold> {
        self.hold_at(self.clock.now)
    }

    /// As [`Self::hold`], at `now` on the duration clock.
    #[must_use]
    pub fn hold_at(&self, now: u64) -> Option<Hold> {
        self.gate.hold(self.settings.concurrency, self.settings.rate, now.max(self.clock.now))
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

    /// A page of the groups, of all tenants or of one, by age, behind the one with this birth; and
    /// the birth to go on from, `None` if this was the last page. At most `count` groups, and those
    /// among the first [`limits::LIST_SCAN_MAX`] looked at.
    #[must_use]
    pub fn list_groups(
        &self,
        tenant: Option<&[u8]>,
        after: Option<u64>,
        count: usize,
    ) -> (Option<u64>, Vec<GroupView<'_>>) {
        let (mut page, mut last) = (Vec::new(), None);
        let wanted = tenant.map(|name| self.groups.find_tenant(name));
        if wanted == Some(None) {
            return (None, page);
        }
        for (looked, view) in self.groups_after(after).enumerate() {
            let is_wanted = wanted.is_none_or(|tenant| tenant == Some(view.group.tenant));
            if (is_wanted && page.len() >= count) || looked >= limits::LIST_SCAN_MAX {
                return (last, page);
            }
            last = Some(view.born());
            if is_wanted {
                page.push(view);
            }
        }
        (None, page)
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

    /// A page of the tenants by age, from the one with this birth on; and the birth to go on from, `None`
    /// if this was the last page.
    #[must_use]
    pub fn list_tenants(&self, from: u64, count: usize) -> (Option<u64>, Vec<TenantView<'_>>) {
        let mut tenants = self.groups.tenants_from(from);
        let page = tenants.by_ref().take(count).map(|tenant| TenantView { tenant, queue: self }).collect();
        (tenants.next().map(|tenant| tenant.born), page)
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
        self.index.find(id, &self.jobs)
    }

    /// The job in a slot that an op or a look-up gave, if it is still there.
    #[must_use]
    #[inline(always)] // what its caller does not look at is not unpacked
    pub fn job(&self, slot: Slot) -> Option<JobView<'_>> {
        self.jobs.get(slot).map(|job| JobView::new(self, job))
    }

    /// What a claim would be handed at `now` on the duration clock, if anything. A rate may have
    /// been used up at the queue's clock, and be free again by then.
    #[must_use]
    pub fn next_at(&self, now: u64) -> Option<Next> {
        if self.hold_at(now).is_some() {
            return None;
        }
        let group = self.groups.get(self.groups.first()?)?;
        let job = self.jobs.get(group.ready.first()?)?;
        Some(Next { lapsed_before: job.spent.crashes > 0 })
    }

    /// Since when the longest waiting ready job could run, over the first groups by age that a
    /// page may look at; the age of the queue is `now` less this.
    #[must_use]
    pub fn oldest_ready(&self) -> Option<u64> {
        let groups = self.groups.iter_after(None).take(limits::LIST_SCAN_MAX);
        groups.filter_map(|(_, group)| group.ready.oldest(self.jobs.since_of())).min()
    }

    /// How the groups fare at `now` on the duration clock: the first `most` of them by age, and no more
    /// than a page may look at.
    #[must_use]
    pub fn census(&self, now: u64, most: usize) -> Census {
        let terms = Terms { now: now.max(self.clock.now), ..self.terms() };
        let mut census = Census::default();
        for (_, group) in self.groups.iter_after(None).take(most.min(limits::LIST_SCAN_MAX)) {
            census.looked_at = census.looked_at.saturating_add(1);
            let Some(oldest) = group.ready.oldest(self.jobs.since_of()) else {
                census.empty = census.empty.saturating_add(1);
                continue;
            };
            census.oldest_ready = Some(census.oldest_ready.map_or(oldest, |known| known.min(oldest)));
            let of_tenant = || self.groups.tenant(group.tenant).and_then(|tenant| tenant.hold(terms.now));
            let count = match group.hold(terms).or_else(of_tenant) {
                None => Some(&mut census.eligible),
                Some(hold) => census.held.get_mut(hold.index()),
            };
            if let Some(count) = count {
                *count = count.saturating_add(1);
            }
        }
        census
    }

    /// Workers by order of their registration.
    pub fn workers(&self) -> impl Iterator<Item = WorkerView<'_>> {
        self.registry.iter().map(|(_, worker)| worker.view())
    }

    /// Up to `count` workers by order of their registration, from a number on (0: the first), and
    /// the number to go on from, if there may be more. Who stays is listed exactly once, whoever
    /// comes and goes.
    #[must_use]
    pub fn list_workers(&self, from: u64, count: usize) -> (Option<u64>, Vec<WorkerView<'_>>) {
        let page: Vec<_> = self.registry.iter_from(WorkerNo(from)).take(count).collect();
        let last = page.last().filter(|_| page.len() == count);
        let next = last.map(|(_, worker)| worker.number.0.saturating_add(1));
        (next, page.into_iter().map(|(_, worker)| worker.view()).collect())
    }

    /// How many workers are registered.
    #[must_use]
    pub fn worker_count(&self) -> usize {
        self.registry.len()
    }

    /// One worker.
    #[must_use]
    pub fn worker(&self, name: &[u8]) -> Option<WorkerView<'_>> {
        self.registry.named(name).map(Worker::view)
    }

    /// Approximate bytes on the heap. O(1).
    #[must_use]
    pub fn memory(&self) -> usize {
        size_of::<Self>()
            .saturating_add(self.jobs.bytes())
            .saturating_add(self.index.bytes())
            .saturating_add(self.registry.bytes())
            .saturating_add(self.recent.bytes())
            .saturating_add(self.timed.bytes())
            .saturating_add(self.groups.bytes())
    }

    /// Number of allocations to free, roughly: what freeing it costs.
    #[must_use]
    pub fn free_effort(&self) -> usize {
        self.jobs.len().saturating_add(self.registry.len())
    }

    /// A page of all the jobs in a state, or of those a worker holds: see [`Self::list_some`].
    #[cfg(test)]
    #[must_use]
    pub fn list(&self, state: State, worker: Option<&[u8]>, after: Option<Cursor>, count: usize) -> Page {
        self.list_some(&Filter { state, worker, scope: Scope::Queue }, after, count)
    }

    /// A page of the jobs that a filter lets pass, behind `after`. The order is that of the state:
    /// ready: group by group, oldest group first, each as it will be claimed; delayed: by due
    /// instant, first those that follow the duration clock, then those that follow the wall clock;
    /// active: worker by worker, oldest first, each by token; final: by expiry. A job has the same place
    /// for as long as it stays in a state, unless `Reschedule` moves it: so it is not missed by one who
    /// goes from page to page meanwhile.
    ///
    /// At most `count` jobs, and those among the first [`limits::LIST_SCAN_MAX`] jobs and groups
    /// looked at: a page may be empty and not the last.
    #[must_use]
    pub fn list_some(&self, filter: &Filter<'_>, after: Option<Cursor>, count: usize) -> Page {
        let mut scan = Scan::new(count.min(limits::LIST_SCAN_MAX));
        let only = match filter.scope {
            Scope::Queue => Only::All,
            Scope::Tenant(name) => match self.groups.find_tenant(name) {
                Some(tenant) => Only::Tenant(tenant),
                None => return scan.page,
            },
            Scope::Group(name) => match self.groups.find(name) {
                Some(group) => Only::Group(group),
                None => return scan.page,
            },
        };
        match (filter.state, filter.worker) {
            (State::Active, Some(worker)) => {
                let after = after.map(|cursor| cursor.serial);
                for slot in self.registry.held_by(worker, after, &self.jobs) {
                    let cursor = Cursor { born: 0, rank: 0, at: 0, serial: self.jobs.token_of()(slot) };
                    if !scan.look(cursor, self.passes(slot, only)) {
                        break;
                    }
                }
            }
            (_, Some(_)) => {}
            (State::Ready, None) => self.list_ready(only, after, &mut scan),
            (State::Active, None) => self.list_active(only, after, &mut scan),
            (state, None) => {
                for (rank, timeline) in self.timed.all_of(state) {
                    let from = match after {
                        Some(cursor) if cursor.rank > rank => continue,
                        Some(cursor) if cursor.rank == rank => Some((cursor.at, cursor.serial)),
                        _ => None,
                    };
                    for slot in timeline.iter_after(from, self.jobs.at_of()) {
                        let (at, serial) = self.jobs.at_of()(slot);
                        if !scan.look(Cursor { born: 0, rank, at, serial }, self.passes(slot, only)) {
                            return scan.page;
                        }
                    }
                }
            }
        }
        scan.page
    }

    /// The slot, if its job is of a group that is wanted.
    fn passes(&self, slot: Slot, only: Only) -> Option<Slot> {
        let passes = match only {
            Only::All => true,
            Only::Group(group) => self.jobs.get(slot)?.group == group,
            Only::Tenant(tenant) => self.groups.get(self.jobs.get(slot)?.group)?.tenant == tenant,
        };
        passes.then_some(slot)
    }

    /// Active jobs are listed by who holds them, since an extended lease moves them where they lie by that.
    fn list_active(&self, only: Only, after: Option<Cursor>, scan: &mut Scan) {
        let from = WorkerNo(after.map_or(0, |cursor| cursor.born));
        for (_, worker) in self.registry.iter_from(from) {
            let number = worker.number;
            // Behind the cursor's place among what its own worker holds.
            let place = after.filter(|cursor| cursor.born == number.0);
            let place = place.map(|cursor| cursor.serial);
            for slot in worker.held.iter_after(place, self.jobs.token_of()) {
                let serial = self.jobs.token_of()(slot);
                let cursor = Cursor { born: number.0, rank: 0, at: 0, serial };
                if !scan.look(cursor, self.passes(slot, only)) {
                    return;
                }
            }
            // Workers without a job count too.
            let end = Cursor { born: number.0, rank: 0, at: 0, serial: Serial::MAX };
            if !scan.look(end, None) {
                return;
            }
        }
    }

    /// Ready jobs lie in their groups, so of one group only its own are looked at.
    fn list_ready(&self, only: Only, after: Option<Cursor>, scan: &mut Scan) {
        let behind = |group: &Group| {
            // The cursor's own group is gone on with behind its place, later ones from the start.
            let place = after.filter(|cursor| cursor.born == group.born);
            place.map(|cursor| (cursor.rank, (cursor.at, cursor.serial)))
        };
        if let Only::Group(number) = only {
            let Some(group) = self.groups.get(number) else { return };
            for (rank, slot) in group.ready.iter_after(behind(group), &self.jobs.since_of()) {
                let (at, serial) = self.jobs.since_of()(slot);
                if !scan.look(Cursor { born: group.born, rank, at, serial }, Some(slot)) {
                    return;
                }
            }
            return;
        }
        let from = after.and_then(|cursor| cursor.born.checked_sub(1));
        for (_, group) in self.groups.iter_after(from) {
            if !matches!(only, Only::Tenant(tenant) if group.tenant != tenant) {
                for (rank, slot) in group.ready.iter_after(behind(group), &self.jobs.since_of()) {
                    let (at, serial) = self.jobs.since_of()(slot);
                    if !scan.look(Cursor { born: group.born, rank, at, serial }, Some(slot)) {
                        return;
                    }
                }
            }
            // Behind all of its jobs: groups without any count too.
            let end = Cursor { born: group.born, rank: u8::MAX, at: u64::MAX, serial: Serial::MAX };
            if !scan.look(end, None) {
                return;
            }
        }
    }
}

/// Which groups' jobs are wanted.
#[derive(Clone, Copy)]
enum Only {
    All,
    Tenant(TenantNo),
    Group(GroupNo),
}

/// A page in the making.
struct Scan {
    page: Page,
    count: usize,
    looked: usize,
    /// Where what was looked at last stands.
    last: Option<Cursor>,
}

impl Scan {
    const fn new(count: usize) -> Self {
        Self { page: Page { next: None, jobs: Vec::new() }, count, looked: 0, last: None }
    }

    /// Looks at what stands at `cursor`, which is a job that is wanted or something else. `false`:
    /// the page ended before it, and goes on from there.
    fn look(&mut self, cursor: Cursor, job: Option<Slot>) -> bool {
        let is_full = job.is_some() && self.page.jobs.len() >= self.count;
        if is_full || self.looked >= limits::LIST_SCAN_MAX {
            self.page.next = self.last;
            return false;
        }
        self.looked = self.looked.saturating_add(1);
        self.last = Some(cursor);
        self.page.jobs.extend(job);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Effects, Enqueue, JobOptions, Op, Payloads, Stamp, When};
    use super::*;

    fn filled(groups: &[(&[u8], &[u8], usize)], when: Option<When>) -> Queue {
        let mut queue = Queue::new(Settings::default(), Stamp::default());
        for &(tenant, group, jobs) in groups {
            let enqueue = Enqueue {
                payloads: Payloads::Many(vec![b"p"; jobs]),
                id: None,
                unique: None,
                group: GroupName { tenant, group },
                when,
                priority: 0,
                options: JobOptions::default(),
            };
            queue.apply(&Op::Enqueue(enqueue), &mut Effects::default()).unwrap();
        }
        queue
    }

    /// The names of the groups of all jobs that pass, page by page, and how many pages it took.
    fn listed(queue: &Queue, state: State, scope: Scope<'_>, count: usize) -> (Vec<String>, usize) {
        let (mut names, mut after, mut pages) = (Vec::new(), None, 0);
        loop {
            let page = queue.list_some(&Filter { state, worker: None, scope }, after, count);
            assert!(page.jobs.len() <= count);
            pages += 1;
            for slot in page.jobs {
                let name = queue.job(slot).unwrap().group();
                names.push([name.tenant, b"/", name.group].concat().escape_ascii().to_string());
            }
            after = page.next;
            if after.is_none() {
                return (names, pages);
            }
        }
    }

    #[test]
    fn listings_of_groups_and_tenants() {
        let groups: &[(&[u8], &[u8], usize)] =
            &[(b"", b"", 1), (b"t", b"a", 3), (b"u", b"a", 2), (b"t", b"b", 2)];
        for when in [None, Some(When::Delay(5)), Some(When::At(5))] {
            let queue = filled(groups, when);
            let state = if when.is_some() { State::Delayed } else { State::Ready };
            for count in [1, 2, 3, 100] {
                let names = |scope| listed(&queue, state, scope, count).0;
                let group = |tenant, group| Scope::Group(GroupName { tenant, group });
                assert_eq!(names(Scope::Queue).len(), 8);
                assert_eq!(names(Scope::Tenant(b"t")), ["t/a", "t/a", "t/a", "t/b", "t/b"]);
                assert_eq!(names(group(b"u", b"a")), ["u/a", "u/a"]);
                assert_eq!(names(group(b"", b"")), ["/"]);
                assert!(names(group(b"", b"a")).is_empty() && names(Scope::Tenant(b"x")).is_empty());
            }
        }
    }

    #[test]
    fn a_page_looks_at_no_more_than_it_may() {
        let crowd = limits::LIST_SCAN_MAX * 2;
        let groups: &[(&[u8], &[u8], usize)] = &[(b"t", b"crowd", crowd), (b"t", b"few", 3)];
        let few = Scope::Group(GroupName { tenant: b"t", group: b"few" });
        let queue = filled(groups, Some(When::Delay(5)));
        let (names, pages) = listed(&queue, State::Delayed, few, 100);
        assert_eq!((names.len(), pages), (3, 3));
        // Ready ones are found at once.
        let queue = filled(groups, None);
        assert_eq!(listed(&queue, State::Ready, few, 100).1, 1);
        // Groups without jobs are looked at too.
        let names: Vec<String> = (0..crowd).map(|number| format!("g{number}")).collect();
        let mut groups: Vec<(&[u8], &[u8], usize)> =
            names.iter().map(|name| (&b"t"[..], name.as_bytes(), 0)).collect();
        groups.push((b"u", b"g", 1));
        let mut queue = filled(&groups, None);
        for name in &names {
            let scope = Scope::Group(GroupName { tenant: b"t", group: name.as_bytes() });
            queue.apply(&Op::Pause { scope, length: None }, &mut Effects::default()).unwrap();
        }
        let (found, pages) = listed(&queue, State::Ready, Scope::Tenant(b"u"), 100);
        assert_eq!((found.len(), pages), (1, 3));
        let (mut after, mut pages, mut seen) = (None, 0, 0);
        loop {
            let (next, page) = queue.list_groups(Some(b"u"), after, 100);
            (after, pages, seen) = (next, pages + 1, seen + page.len());
            if after.is_none() {
                break;
            }
        }
        assert_eq!((seen, pages), (1, 3));
        assert_eq!(queue.list_groups(Some(b"nobody"), None, 100).1.len(), 0);
    }
}

//! A second queue, slow and obvious, written from the promises and not from the code.
//!
//! Jobs lie in one list. Whatever is asked is answered by looking at all of them and sorting.
//! There are no containers to keep in step, no counters to forget, nothing to index: where this
//! model and the queue differ, one of them breaks a promise, and the model is the one that a
//! person can read. It uses the op and outcome types of the queue, its settings, and its back-off
//! arithmetic (which has its own tests), and nothing else of it.

use crate::queue::{
    Backoff, Cancel, Claim, Delivery, Enqueue, Error, Failure, Held, Id, IfExists, JobOptions, Op, Outcome,
    Reason, Recover, Recovered, Serial, Settings, Stamp, State, Totals, When, Who, backoff, limits,
};

/// When a delayed job is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// At this instant of the duration clock.
    Duration(u64),
    /// When the wall clock shows this.
    Wall(u64),
}

/// What a job is doing, with exactly what belongs to that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    Delayed { due: Due, keeps_place: bool },
    Ready,
    Active { worker: Vec<u8>, until: u64, claimed: u64, cancelling: bool },
    Final { state: State, ended: u64, until: Option<u64>, acked: bool },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    pub arrival: u64,
    pub custom_id: Option<Vec<u8>>,
    pub payload: Vec<u8>,
    pub priority: u8,
    pub options: JobOptions,
    pub phase: Phase,
    /// Its place among ready jobs.
    pub since: u64,
    /// When this life began.
    pub enqueued: u64,
    /// When it was enqueued or redriven: its deadline counts from there.
    life_began: u64,
    pub token: u64,
    pub deliveries: u32,
    /// Deliveries of this life; the deadline is about the first of them.
    pub deliveries_of_life: u32,
    pub attempts: u32,
    pub crashes: u32,
    pub progress: Option<Vec<u8>>,
    pub result: Option<Vec<u8>>,
    pub error: Option<Vec<u8>>,
    pub reason: Option<Reason>,
    pub last_worker: Option<Vec<u8>>,
}

impl Job {
    pub fn id(&self) -> Id<'_> {
        match &self.custom_id {
            Some(bytes) => Id::Custom(bytes),
            None => Id::Serial(Serial(self.arrival)),
        }
    }

    pub fn state(&self) -> State {
        match self.phase {
            Phase::Delayed { .. } => State::Delayed,
            Phase::Ready => State::Ready,
            Phase::Active { .. } => State::Active,
            Phase::Final { state, .. } => state,
        }
    }

    pub fn is_waiting(&self) -> bool {
        matches!(self.phase, Phase::Delayed { .. } | Phase::Ready)
    }

    /// The instant at which it is dead unless it was claimed in this life.
    pub fn deadline(&self) -> Option<u64> {
        (self.is_waiting() && self.deliveries_of_life == 0)
            .then_some(self.options.deadline.map(|length| self.life_began + length))
            .flatten()
    }

    pub fn is_cancelling(&self) -> bool {
        matches!(self.phase, Phase::Active { cancelling: true, .. })
    }

    /// Ready jobs: smallest first.
    pub fn place(&self) -> (u8, u64, u64) {
        (255 - self.priority, self.since, self.arrival)
    }

    fn until(&self) -> Option<u64> {
        match self.phase {
            Phase::Active { until, .. } => Some(until),
            Phase::Final { until, .. } => until,
            _ => None,
        }
    }

    pub fn value(&self) -> Option<&[u8]> {
        match self.state() {
            State::Done => self.result.as_deref(),
            State::Dead => self.error.as_deref(),
            State::Cancelled => None,
            _ => self.progress.as_deref(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worker {
    pub name: Vec<u8>,
    pub first_seen: u64,
    pub done: u64,
    pub failed: u64,
    pub crashed: u64,
}

/// A job that ended, as an observer is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub id: Vec<u8>,
    pub state: Option<State>,
    pub value: Option<Vec<u8>>,
    pub ttl: Option<u64>,
}

#[derive(Clone)]
pub struct Model {
    pub now: u64,
    pub wall: u64,
    pub serial: u64,
    pub settings: Settings,
    pub jobs: Vec<Job>,
    /// In order of registration.
    pub workers: Vec<Worker>,
    pub paused_until: Option<u64>,
    pub totals: Totals,
    /// What the last op handed out: arrival numbers, best first.
    pub claimed: Vec<u64>,
    /// What the last op ended.
    pub notes: Vec<Note>,
}

/// How a delivery ended other than by finishing the job.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Return {
    /// Its lease lapsed.
    Lapse,
    /// It was recovered, using up a crash.
    Counted,
    /// It was recovered without.
    Uncounted,
}

impl Model {
    pub fn new(settings: Settings, stamp: Stamp) -> Self {
        Self {
            now: stamp.now,
            wall: stamp.wall,
            serial: stamp.serial.0,
            settings,
            jobs: Vec::new(),
            workers: Vec::new(),
            paused_until: None,
            totals: Totals::default(),
            claimed: Vec::new(),
            notes: Vec::new(),
        }
    }

    pub fn apply(&mut self, op: &Op<'_>) -> Result<Outcome, Error> {
        self.claimed.clear();
        self.notes.clear();
        match op {
            Op::Clock(stamp) => {
                self.now = self.now.max(stamp.now);
                self.wall = stamp.wall;
                self.serial = self.serial.max(stamp.serial.0);
                Ok(Outcome::Done)
            }
            Op::Enqueue(enqueue) => self.enqueue(enqueue),
            Op::Cancel { ids } => Ok(Outcome::Cancelled(ids.iter().map(|&id| self.cancel(id)).collect())),
            Op::Reschedule { id, when, priority } => self.reschedule(*id, *when, *priority),
            Op::Claim(claim) => {
                self.claim(claim);
                Ok(Outcome::Claimed)
            }
            Op::Register { worker } => {
                self.register(worker);
                Ok(Outcome::Done)
            }
            Op::Undo { grants } => {
                for &grant in grants {
                    self.undo(grant);
                }
                Ok(Outcome::Done)
            }
            Op::Ack { delivery, result, ttl } => self.ack(*delivery, *result, *ttl),
            Op::Fail { delivery, error, how } => self.fail(*delivery, *error, *how),
            Op::Release { deliveries } => {
                Ok(Outcome::Held(deliveries.iter().map(|&delivery| self.release(delivery)).collect()))
            }
            Op::Extend { lease, deliveries, .. } => {
                Ok(Outcome::Held(deliveries.iter().map(|&delivery| self.extend(delivery, *lease)).collect()))
            }
            Op::Progress { delivery, value } => {
                let at = self.held(*delivery)?;
                self.jobs[at].progress = Some(limits::clip(value).into());
                let cancelling = self.jobs[at].is_cancelling();
                Ok(Outcome::Progressed(if cancelling { Held::Cancel } else { Held::Ok }))
            }
            Op::Recover(recover) => Ok(Outcome::Recovered(self.recover(recover))),
            Op::Redrive { ids } => Ok(Outcome::Redriven(
                ids.iter()
                    .map(|&id| {
                        let at = self.find(id)?;
                        if self.jobs[at].state() == State::Dead && self.has_room(1) {
                            self.redrive(at);
                        }
                        Some(self.jobs[at].state())
                    })
                    .collect(),
            )),
            Op::RedriveAll { count } => {
                let mut taken = 0;
                while taken < *count && self.has_room(1) {
                    let Some(at) = self.first_to_expire(&[State::Dead]) else { break };
                    self.redrive(at);
                    taken += 1;
                }
                Ok(Outcome::Bulk { taken, remaining: self.count(State::Dead) })
            }
            Op::Purge { state, count } => self.purge(*state, *count),
            Op::Pause { length, .. } => {
                self.paused_until = Some(length.map_or(u64::MAX, |length| self.now + length));
                Ok(Outcome::Done)
            }
            Op::SetGroup { .. } | Op::SetTenant { .. } => unreachable!("not in the model yet"),
            Op::Resume { .. } => {
                self.paused_until = None;
                Ok(Outcome::Done)
            }
            Op::Set(patch) => {
                self.settings = self.settings.patched(patch);
                Ok(Outcome::Done)
            }
            Op::Sweep { limit } => Ok(Outcome::Swept((0..*limit).take_while(|_| self.settle_one()).count())),
            Op::Forget { workers } => {
                for name in workers {
                    if self.held_by(name).is_empty() {
                        self.workers.retain(|worker| worker.name != *name);
                    }
                }
                Ok(Outcome::Done)
            }
        }
    }

    pub fn clock(&self) -> Stamp {
        Stamp { now: self.now, wall: self.wall, serial: Serial(self.serial) }
    }

    pub fn set_clock(&mut self, clock: Stamp) {
        (self.now, self.wall, self.serial) = (clock.now, clock.wall, clock.serial.0);
    }

    /// Whether all that is kept of two queues is the same.
    pub fn is_same_as(&self, other: &Self) -> bool {
        self.clock() == other.clock()
            && self.settings == other.settings
            && self.jobs == other.jobs
            && self.workers == other.workers
            && self.paused_until == other.paused_until
            && self.totals == other.totals
    }

    // ---- looking ----

    pub fn find(&self, id: Id<'_>) -> Option<usize> {
        self.jobs.iter().position(|job| job.id() == id)
    }

    pub fn count(&self, state: State) -> usize {
        self.jobs.iter().filter(|job| job.state() == state).count()
    }

    pub fn waiting(&self) -> usize {
        self.jobs.iter().filter(|job| job.is_waiting()).count()
    }

    fn has_room(&self, jobs: usize) -> bool {
        self.settings.max_len.is_none_or(|max| (self.waiting() + jobs) as u64 <= max)
    }

    pub fn is_paused(&self) -> bool {
        self.paused_until.is_some_and(|until| until > self.now)
    }

    pub fn due(&self, job: &Job) -> Option<u64> {
        match job.phase {
            Phase::Delayed { due: Due::Duration(at), .. } => Some(at),
            Phase::Delayed { due: Due::Wall(at), .. } => Some(self.wall_to_now(at)),
            _ => None,
        }
    }

    fn wall_to_now(&self, wall: u64) -> u64 {
        (self.now + wall).saturating_sub(self.wall)
    }

    /// Positions of the jobs in a state, in the order in which they are listed.
    pub fn list(&self, state: State) -> Vec<usize> {
        let mut found: Vec<usize> =
            (0..self.jobs.len()).filter(|&at| self.jobs[at].state() == state).collect();
        found.sort_by_key(|&at| {
            let job = &self.jobs[at];
            match job.phase {
                Phase::Ready => job.place(),
                Phase::Delayed { due: Due::Duration(due), .. } => (0, due, job.arrival),
                Phase::Delayed { due: Due::Wall(due), .. } => (1, due, job.arrival),
                Phase::Active { until, .. } => (0, until, job.arrival),
                Phase::Final { until, .. } => (0, until.unwrap_or(u64::MAX), job.arrival),
            }
        });
        found
    }

    /// Positions of the jobs that a worker holds, oldest token first.
    pub fn held_by(&self, name: &[u8]) -> Vec<usize> {
        let mut found: Vec<usize> = (0..self.jobs.len())
            .filter(|&at| matches!(&self.jobs[at].phase, Phase::Active { worker, .. } if worker == name))
            .collect();
        found.sort_by_key(|&at| self.jobs[at].token);
        found
    }

    fn held_by_each(&self, wanted: impl Fn(&[u8]) -> bool) -> Vec<usize> {
        let workers = self.workers.iter().filter(|worker| wanted(&worker.name));
        workers.flat_map(|worker| self.held_by(&worker.name)).collect()
    }

    /// The job of a delivery that is still on.
    fn held(&self, delivery: Delivery<'_>) -> Result<usize, Error> {
        let at = self.find(delivery.id).ok_or(Error::NoJob)?;
        let job = &self.jobs[at];
        if job.state() == State::Active && job.token == delivery.token.0 { Ok(at) } else { Err(Error::Stale) }
    }

    fn backoff_of(&self, at: usize) -> Backoff {
        self.jobs[at].options.backoff.unwrap_or(self.settings.backoff)
    }

    pub fn attempts_allowed(&self, job: &Job) -> Option<u32> {
        job.options.attempts.unwrap_or(self.settings.attempts)
    }

    pub fn crashes_allowed(&self, job: &Job) -> Option<u32> {
        job.options.crashes.unwrap_or(self.settings.crashes)
    }

    fn first_to_expire(&self, states: &[State]) -> Option<usize> {
        (0..self.jobs.len())
            .filter(|&at| states.contains(&self.jobs[at].state()))
            .min_by_key(|&at| (self.jobs[at].until().unwrap_or(u64::MAX), self.jobs[at].arrival))
    }

    /// The first job to go because too many done and cancelled, or too many dead ones are kept.
    fn surplus(&self) -> Option<usize> {
        let over = |states: &[State], keep: Option<u64>| {
            let kept: usize = states.iter().map(|&state| self.count(state)).sum();
            if kept as u64 > keep? { self.first_to_expire(states) } else { None }
        };
        over(&[State::Done, State::Cancelled], self.settings.keep_done)
            .or_else(|| over(&[State::Dead], self.settings.keep_dead))
    }

    /// The least instant at which something is to be done, on the duration clock.
    pub fn next_wakeup(&self) -> Option<u64> {
        self.next_wakeup_at(self.now, self.wall)
    }

    /// The same when the clocks show something else.
    pub fn next_wakeup_at(&self, now: u64, wall: u64) -> Option<u64> {
        let mut instants: Vec<u64> = Vec::new();
        instants.extend(self.paused_until.filter(|&until| until != u64::MAX));
        for job in &self.jobs {
            instants.extend(job.deadline());
            instants.extend(match job.phase {
                Phase::Delayed { due: Due::Duration(at), .. } => Some(at),
                Phase::Delayed { due: Due::Wall(at), .. } => Some((now + at).saturating_sub(wall)),
                _ => job.until(),
            });
        }
        if self.surplus().is_some() {
            instants.push(self.now);
        }
        instants.into_iter().min()
    }

    fn worker(&mut self, name: &[u8]) -> Option<&mut Worker> {
        self.workers.iter_mut().find(|worker| worker.name == name)
    }

    fn worker_of(&mut self, at: usize) -> Option<&mut Worker> {
        let Phase::Active { worker, .. } = &self.jobs[at].phase else { return None };
        let name = worker.clone();
        self.worker(&name)
    }

    // ---- changing ----

    fn next_serial(&mut self) -> u64 {
        self.serial = (self.serial + 1).max(self.wall << 20);
        self.serial
    }

    fn register(&mut self, name: &[u8]) {
        if self.worker(name).is_none() {
            let (name, first_seen) = (name.to_vec(), self.now);
            self.workers.push(Worker { name, first_seen, done: 0, failed: 0, crashed: 0 });
        }
    }

    /// How long a job would wait, and how it would do so. `None`: not at all.
    fn wait(&self, when: Option<When>) -> Option<(u64, Due)> {
        match when? {
            When::Delay(0) => None,
            When::Delay(length) => Some((length, Due::Duration(self.now + length))),
            When::At(at) if at <= self.wall => None,
            When::At(at) => Some((at - self.wall, Due::Wall(at))),
        }
    }

    fn enqueue(&mut self, enqueue: &Enqueue<'_>) -> Result<Outcome, Error> {
        let mut replaced = None;
        if let Some((bytes, if_exists)) = enqueue.id
            && let Some(at) = self.find(Id::Custom(bytes))
        {
            let state = self.jobs[at].state();
            match if_exists {
                IfExists::Keep => return Ok(Outcome::Existed),
                IfExists::Replace if state.is_final() => replaced = Some(at),
                _ => return Err(Error::Exists(state)),
            }
        }
        let wait = self.wait(enqueue.when);
        if let Some(length) = enqueue.options.deadline
            && wait.map_or(0, |(wait, _)| wait) >= length
        {
            return Err(Error::BeyondDeadline(length));
        }
        let payloads = enqueue.payloads.as_slice();
        if !self.has_room(payloads.len()) {
            return Err(Error::Full);
        }
        if let Some(at) = replaced {
            self.remove(at);
        }
        let mut first = None;
        for payload in payloads {
            let arrival = self.next_serial();
            first.get_or_insert(arrival);
            self.totals.enqueued += 1;
            self.jobs.push(Job {
                arrival,
                custom_id: enqueue.id.map(|(bytes, _)| bytes.to_vec()),
                payload: payload.to_vec(),
                priority: enqueue.priority,
                options: enqueue.options,
                phase: wait.map_or(Phase::Ready, |(_, due)| Phase::Delayed { due, keeps_place: false }),
                since: self.now,
                enqueued: self.now,
                life_began: self.now,
                token: 0,
                deliveries: 0,
                deliveries_of_life: 0,
                attempts: 0,
                crashes: 0,
                progress: None,
                result: None,
                error: None,
                reason: None,
                last_worker: None,
            });
        }
        Ok(Outcome::Enqueued { first: Serial(first.unwrap_or(0)), count: payloads.len() })
    }

    fn cancel(&mut self, id: Id<'_>) -> Cancel {
        let Some(at) = self.find(id) else { return Cancel::Unknown };
        match &mut self.jobs[at].phase {
            Phase::Final { state, .. } => Cancel::Ended(*state),
            Phase::Active { cancelling, .. } => {
                *cancelling = true;
                Cancel::Cancelling
            }
            _ => {
                self.end_cancelled(at);
                Cancel::Cancelled
            }
        }
    }

    fn reschedule(&mut self, id: Id<'_>, when: Option<When>, priority: Option<u8>) -> Result<Outcome, Error> {
        let at = self.find(id).ok_or(Error::NoJob)?;
        if !self.jobs[at].is_waiting() {
            return Err(Error::BadState(self.jobs[at].state()));
        }
        if when.is_some() {
            let wait = self.wait(when);
            if let Some(deadline) = self.jobs[at].deadline()
                && self.now + wait.map_or(0, |(wait, _)| wait) >= deadline
            {
                return Err(Error::BeyondDeadline(deadline.saturating_sub(self.now)));
            }
            self.jobs[at].since = self.now;
            self.jobs[at].phase =
                wait.map_or(Phase::Ready, |(_, due)| Phase::Delayed { due, keeps_place: false });
        }
        if let Some(priority) = priority {
            self.jobs[at].priority = priority;
        }
        Ok(Outcome::State(self.jobs[at].state()))
    }

    fn claim(&mut self, claim: &Claim<'_>) {
        self.register(claim.worker);
        while !self.is_paused() && self.claimed.len() < claim.count {
            let ready = (0..self.jobs.len()).filter(|&at| self.jobs[at].phase == Phase::Ready);
            let Some(at) = ready.min_by_key(|&at| self.jobs[at].place()) else { break };
            if self.jobs[at].deadline().is_some_and(|deadline| deadline <= self.now) {
                self.end_dead(at, Reason::Deadline);
                continue;
            }
            let token = self.next_serial();
            let lease = claim.lease.or(self.jobs[at].options.lease).unwrap_or(self.settings.lease);
            let (worker, until, claimed) = (claim.worker.to_vec(), self.now + lease, self.now);
            let job = &mut self.jobs[at];
            job.phase = Phase::Active { worker, until, claimed, cancelling: false };
            job.token = token;
            job.deliveries += 1;
            job.deliveries_of_life += 1;
            self.claimed.push(job.arrival);
            self.totals.delivered += 1;
        }
    }

    fn undo(&mut self, grant: Delivery<'_>) {
        let Ok(at) = self.held(grant) else { return };
        self.totals.delivered -= 1;
        self.jobs[at].deliveries -= 1;
        self.jobs[at].deliveries_of_life -= 1;
        self.give_back(at);
    }

    fn ack(
        &mut self,
        delivery: Delivery<'_>,
        result: Option<&[u8]>,
        ttl: Option<Option<u64>>,
    ) -> Result<Outcome, Error> {
        let Some(at) = self.find(delivery.id) else { return Ok(Outcome::Acked(false)) };
        let job = &self.jobs[at];
        if matches!(job.phase, Phase::Final { acked: true, .. }) && job.token == delivery.token.0 {
            return Ok(Outcome::Acked(false));
        }
        let at = self.held(delivery)?;
        if let Some(worker) = self.worker_of(at) {
            worker.done += 1;
        }
        if self.jobs[at].is_cancelling() {
            self.end(at, State::Cancelled, true);
            return Ok(Outcome::Acked(true));
        }
        let of_queue = if result.is_some() { self.settings.result_ttl } else { self.settings.ttl };
        let ttl = ttl.or(self.jobs[at].options.ttl).unwrap_or(of_queue);
        self.jobs[at].result = result.map(<[u8]>::to_vec);
        self.end_for(at, State::Done, ttl, true);
        Ok(Outcome::Acked(true))
    }

    fn fail(&mut self, delivery: Delivery<'_>, error: Option<&[u8]>, how: Failure) -> Result<Outcome, Error> {
        let at = self.held(delivery)?;
        if let Some(worker) = self.worker_of(at) {
            worker.failed += 1;
        }
        self.totals.failed += 1;
        self.jobs[at].attempts += 1;
        self.jobs[at].error = error.map(|error| limits::clip(error).into());
        if self.jobs[at].is_cancelling() {
            self.end_cancelled(at);
            return Ok(Outcome::State(State::Cancelled));
        }
        let attempts = self.jobs[at].attempts;
        let used_up = self.attempts_allowed(&self.jobs[at]).is_some_and(|allowed| attempts >= allowed);
        if how == Failure::Dead || used_up {
            self.end_dead(at, if how == Failure::Dead { Reason::Failed } else { Reason::Attempts });
            return Ok(Outcome::State(State::Dead));
        }
        let wait = match how {
            Failure::RetryAfter(wait) => wait,
            _ => backoff::wait(self.backoff_of(at), Serial(self.jobs[at].arrival), attempts),
        };
        self.jobs[at].since = self.now;
        self.wait_or_ready(at, wait, false);
        Ok(Outcome::State(self.jobs[at].state()))
    }

    fn release(&mut self, delivery: Delivery<'_>) -> Held {
        let Ok(at) = self.held(delivery) else { return Held::Lost };
        self.totals.released += 1;
        self.give_back(at);
        Held::Ok
    }

    fn extend(&mut self, delivery: Delivery<'_>, lease: u64) -> Held {
        let Ok(at) = self.held(delivery) else { return Held::Lost };
        let deadline = self.now + lease;
        let Phase::Active { until, cancelling, .. } = &mut self.jobs[at].phase else { return Held::Lost };
        *until = deadline;
        if *cancelling { Held::Cancel } else { Held::Ok }
    }

    fn recover(&mut self, recover: &Recover<'_>) -> Recovered {
        let matching = |model: &Self| -> Vec<usize> {
            let mut found: Vec<usize> = match &recover.who {
                Who::Lapsed => model
                    .list(State::Active)
                    .into_iter()
                    .filter(|&at| model.jobs[at].until().is_some_and(|until| until <= model.now))
                    .collect(),
                // Worker by worker, in order of registration; of each its oldest delivery first.
                Who::Named(names) => model.held_by_each(|name| names.contains(&name)),
                Who::Except(names) => model.held_by_each(|name| !names.contains(&name)),
            };
            found.retain(|&at| recover.before.is_none_or(|before| model.jobs[at].token < before << 20));
            found
        };
        let how = match (&recover.who, recover.counted) {
            (Who::Lapsed, _) => Return::Lapse,
            (_, true) => Return::Counted,
            (_, false) => Return::Uncounted,
        };
        let mut recovered = Recovered::default();
        while recovered.taken < recover.count {
            let Some(&at) = matching(self).first() else { break };
            let Phase::Active { worker, .. } = &self.jobs[at].phase else { unreachable!() };
            let worker = worker.clone().into_boxed_slice();
            match recovered.by_worker.iter_mut().find(|(name, _)| *name == worker) {
                Some((_, taken)) => *taken += 1,
                None => recovered.by_worker.push((worker, 1)),
            }
            recovered.taken += 1;
            self.take_back(at, how);
        }
        let registered = |name: &[u8]| self.workers.iter().position(|worker| worker.name == name);
        recovered.by_worker.sort_by_key(|(name, _)| registered(name));
        recovered.remaining = matching(self).len();
        if recover.before.is_some() {
            recovered.remaining = recovered.remaining.min(limits::COUNT_MAX);
        }
        recovered
    }

    /// Takes a job from a worker that went away.
    fn take_back(&mut self, at: usize, how: Return) {
        match how {
            Return::Lapse => self.totals.lapsed += 1,
            _ => self.totals.recovered += 1,
        }
        if how != Return::Uncounted {
            self.jobs[at].crashes += 1;
            if let Some(worker) = self.worker_of(at) {
                worker.crashed += 1;
            }
        }
        let crashes = self.jobs[at].crashes;
        if self.jobs[at].is_cancelling() {
            self.end_cancelled(at);
        } else if how != Return::Uncounted
            && self.crashes_allowed(&self.jobs[at]).is_some_and(|allowed| crashes > allowed)
        {
            self.end_dead(at, Reason::Crashes);
        } else if how == Return::Lapse && crashes > 1 {
            let wait = backoff::wait(self.backoff_of(at), Serial(self.jobs[at].arrival), crashes - 1);
            self.wait_or_ready(at, wait, true);
        } else {
            self.give_back(at);
        }
    }

    /// To its place among the ready; a job that was cancelled meanwhile ends instead.
    fn give_back(&mut self, at: usize) {
        if self.jobs[at].is_cancelling() {
            self.end_cancelled(at);
        } else {
            self.jobs[at].phase = Phase::Ready;
        }
    }

    fn wait_or_ready(&mut self, at: usize, wait: u64, keeps_place: bool) {
        self.jobs[at].phase = if wait == 0 {
            Phase::Ready
        } else {
            Phase::Delayed { due: Due::Duration(self.now + wait), keeps_place }
        };
    }

    fn redrive(&mut self, at: usize) {
        self.totals.redriven += 1;
        let now = self.now;
        let job = &mut self.jobs[at];
        job.phase = Phase::Ready;
        job.since = now;
        job.life_began = now;
        job.deliveries_of_life = 0;
        job.attempts = 0;
        job.crashes = 0;
        job.progress = None;
        job.error = None;
        job.reason = None;
        job.last_worker = None;
    }

    fn purge(&mut self, state: State, count: usize) -> Result<Outcome, Error> {
        if state == State::Active {
            return Err(Error::BadState(state));
        }
        let mut taken = 0;
        while taken < count {
            let Some(&at) = self.list(state).first() else { break };
            if !state.is_final() {
                self.note(at, None, None, Some(0));
            }
            self.remove(at);
            taken += 1;
        }
        Ok(Outcome::Bulk { taken, remaining: self.count(state) })
    }

    // ---- ending ----

    fn end_cancelled(&mut self, at: usize) {
        self.end(at, State::Cancelled, false);
    }

    fn end_dead(&mut self, at: usize, reason: Reason) {
        self.jobs[at].reason = Some(reason);
        if let Phase::Active { worker, .. } = &self.jobs[at].phase {
            self.jobs[at].last_worker = Some(worker.clone());
        }
        self.end_for(at, State::Dead, self.settings.dead_ttl, false);
    }

    fn end(&mut self, at: usize, state: State, acked: bool) {
        let ttl = self.jobs[at].options.ttl.unwrap_or(self.settings.result_ttl);
        self.end_for(at, state, ttl, acked);
    }

    fn end_for(&mut self, at: usize, state: State, ttl: Option<u64>, acked: bool) {
        match state {
            State::Done => self.totals.done += 1,
            State::Dead => self.totals.dead += 1,
            _ => self.totals.cancelled += 1,
        }
        self.jobs[at].progress = None;
        self.jobs[at].phase =
            Phase::Final { state, ended: self.now, until: ttl.map(|ttl| self.now + ttl), acked };
        let value = self.jobs[at].value().map(<[u8]>::to_vec);
        self.note(at, Some(state), value, ttl);
        if ttl == Some(0) {
            self.remove(at);
            return;
        }
        for _ in 0..2 {
            if let Some(at) = self.surplus() {
                self.remove(at);
            }
        }
    }

    fn note(&mut self, at: usize, state: Option<State>, value: Option<Vec<u8>>, ttl: Option<u64>) {
        let mut buffer = [0; crate::queue::SHOWN_BYTES_MAX];
        let id = self.jobs[at].id().write(&mut buffer).to_vec();
        self.notes.push(Note { id, state, value, ttl });
    }

    fn remove(&mut self, at: usize) {
        self.totals.removed += 1;
        self.jobs.remove(at);
    }

    // ---- time ----

    /// Settles one thing that is due, of the first kind of which something is. Whether there was.
    fn settle_one(&mut self) -> bool {
        if self.paused_until.is_some_and(|until| until <= self.now) {
            self.paused_until = None;
            return true;
        }
        let (now, wall) = (self.now, self.wall);
        let all = 0..self.jobs.len();
        let expired =
            all.clone().filter(|&at| self.jobs[at].deadline().is_some_and(|deadline| deadline <= now));
        if let Some(at) = expired.min_by_key(|&at| (self.jobs[at].deadline(), self.jobs[at].arrival)) {
            self.end_dead(at, Reason::Deadline);
            return true;
        }
        let due = all.filter_map(|at| {
            let job = &self.jobs[at];
            let Phase::Delayed { due, keeps_place } = job.phase else { return None };
            let (rank, instant, since) = match due {
                Due::Duration(due) if due <= now => (0, due, due),
                Due::Wall(due) if due <= wall => (1, due, self.wall_to_now(due).max(job.enqueued)),
                _ => return None,
            };
            Some(((rank, instant, job.arrival), at, if keeps_place { job.since } else { since }))
        });
        if let Some((_, at, since)) = due.min() {
            self.jobs[at].since = since;
            self.jobs[at].phase = Phase::Ready;
            return true;
        }
        if let Some(&at) = self.list(State::Active).first()
            && self.jobs[at].until().is_some_and(|until| until <= now)
        {
            self.take_back(at, Return::Lapse);
            return true;
        }
        for state in [State::Done, State::Dead, State::Cancelled] {
            if let Some(at) = self.first_to_expire(&[state])
                && self.jobs[at].until().is_some_and(|until| until <= now)
            {
                self.remove(at);
                return true;
            }
        }
        if let Some(at) = self.surplus() {
            self.remove(at);
            return true;
        }
        false
    }
}

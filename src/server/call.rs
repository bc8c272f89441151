//! One call of a command: its arguments, and the ways in which a command may work on queues.
//!
//! - [`Call::read`] hands out [`Seen`]: the queue, with the time as it is now. The queue's own clock
//!   is that of its last change and may lie behind; reads must not move it. So what "is left" or "has
//!   lasted" is reckoned from `Seen::now`, and shown instants go through `Seen::to_wall`.
//! - What `WORKERS` and `RECOVER … IDLE` need beyond the queue: [`Call::waiting`],
//!   [`Call::idle_workers`].
//! - [`Call::write_resolved`] is [`Call::write`] for ops made from what only this server knows: the
//!   op travels, not the command.

use std::collections::HashMap;
use std::ffi::CStr;

use super::ffi::{Access, Ctx, CtxOut, Flags, Held, Key, Main, OwnStr, Str, changing};
use super::reply::{Out, Refusal};
use super::run::{self, Done, Travel};
use super::state::{RENDERERS, STATE, WAITING};
use super::value::Value;
pub use super::waitlist::News;
use super::waitlist::{Want, WantClaim, WantJob};
use super::{clock, config, info, notices, timer, waiters};
use crate::persist::Message;
use crate::queue::limits::WORKERS_MAX;
use crate::queue::{Claim, Ended, Id, JobView, Op, Outcome, Queue, Reading, Slot};

/// A call in progress.
pub struct Call<'a> {
    ctx: Ctx<'a>,
    args: Args<'a>,
    out: CtxOut<'a>,
    /// Name of the key event.
    event: &'static CStr,
    flags: Option<Flags>,
}

/// The arguments; number 0 is the name of the command.
#[derive(Clone, Copy)]
pub struct Args<'a>(&'a [Str<'a>]);

/// What a write does without a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Makes it, with the `rq.default-…` settings.
    Create,
    /// Changes nothing; the reply is told `None`.
    Nothing,
    /// Answers `NOQUEUE`.
    Refuse,
}

/// What a write did, while its slots are valid.
#[derive(Clone, Copy)]
pub struct Applied<'q> {
    /// The queue.
    pub queue: &'q Queue,
    /// What came of the op.
    pub outcome: &'q Outcome,
    /// The jobs of a claim.
    pub claimed: &'q [Slot],
}

/// A queue as a reader sees it.
#[derive(Clone, Copy)]
pub struct Seen<'q> {
    /// The queue. Its own clock may lie behind.
    pub queue: &'q Queue,
    /// The duration clock as it is now, ms; never behind `queue.now()`.
    pub now: u64,
    /// The wall clock as it is now, Unix ms.
    pub wall: u64,
}

/// Instants are shown by the clocks as the last change found them unless the wall clock has moved
/// against the boot clock by more than this since, in ms. So what is shown does not flicker, and is
/// the same on a replica.
const STEP_MS: u64 = 1_000;

impl<'q> Seen<'q> {
    fn new(value: &'q Value, wall: u64) -> Self {
        let (queue, now) = (&value.queue, value.now());
        let steady = queue.wall().saturating_add(now.saturating_sub(queue.now()));
        let is_steady = !value.has_clock() || steady.abs_diff(wall) <= STEP_MS;
        Self { queue, now, wall: if is_steady { steady } else { wall } }
    }

    /// An instant of the duration clock as Unix ms, as the clocks stand now.
    #[must_use]
    pub fn to_wall(&self, instant: u64) -> u64 {
        if instant == u64::MAX {
            return u64::MAX;
        }
        self.wall.saturating_add(instant).saturating_sub(self.now)
    }
}

/// A claim that may wait, for one of several queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimRequest<'a> {
    /// Number of the argument that names the first queue.
    pub first_queue: usize,
    /// How many queues there are, one behind the other.
    pub queues: usize,
    /// What is claimed of the first of them that has something.
    pub claim: Claim<'a>,
    /// How long to wait, ms, when there is nothing; 0: for ever; `None`: not at all.
    pub block: Option<u64>,
    /// Whether the reply shows each job as a map.
    pub full: bool,
    /// Whether the reply is `[queue, jobs]` (`RQ.MCLAIM`) or only the jobs.
    pub named: bool,
}

/// How replies are written that are given later than the call, by the shell. Set once at load.
#[derive(Clone, Copy)]
pub struct Renderers {
    /// `commands::workers::reply_jobs(queue, slots, full, out)`.
    pub jobs: fn(&Queue, &[Slot], bool, &mut dyn Out),
    /// `commands::results::reply_result(queue, job, now, out)`.
    pub result: fn(&Queue, JobView<'_>, u64, &mut dyn Out),
    /// `commands::results::reply_ended(ended, out)`.
    pub ended: fn(&Ended<'_>, &mut dyn Out),
    /// `commands::outputs::reply_output(reading, out)`.
    pub output: fn(&Reading<'_>, &mut dyn Out),
    /// `commands::help::usage(name)`.
    pub usage: fn(&[u8]) -> Option<String>,
}

/// The workers that wait for a queue now: name, and for how many ms they have.
pub type Waiting = HashMap<Box<[u8]>, u64>;

impl<'a> Args<'a> {
    /// How many there are, the name of the command included.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // a call is never without its name
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// One of them.
    #[must_use]
    #[inline]
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.0.get(index).map(|string| string.bytes())
    }

    fn string(&self, index: usize) -> Result<Str<'a>, Refusal> {
        self.0.get(index).copied().ok_or(Refusal::Arity)
    }
}

/// Number of the argument that names the queue, but for `RQ.MCLAIM`.
const QUEUE: usize = 1;

impl<'a> Call<'a> {
    /// A call that begins.
    #[must_use]
    #[inline]
    pub const fn new(ctx: Ctx<'a>, args: &'a [Str<'a>], event: &'static CStr) -> Self {
        Self { ctx, args: Args(args), out: ctx.out(), event, flags: None }
    }

    /// The arguments.
    #[must_use]
    pub const fn args(&self) -> Args<'a> {
        self.args
    }

    fn flags(&mut self) -> Flags {
        *self.flags.get_or_insert_with(|| self.ctx.flags())
    }

    /// Whether this executes what a primary or the AOF decided: no limits, no blocking, no stamping.
    #[must_use]
    pub fn obeys(&mut self) -> bool {
        self.flags().is_obeying() || self.ctx.is_aof()
    }

    /// Most bytes in a payload or result; `None` when obeying.
    #[must_use]
    pub fn max_payload(&mut self) -> Option<u64> {
        (!self.obeys()).then(|| config::max_payload(self.ctx.main()))
    }

    /// Where a reply goes that needs no queue.
    pub fn out(&mut self) -> &mut dyn Out {
        &mut self.out
    }

    /// The one write path, on the queue that the first argument names.
    ///
    /// # Errors
    /// See [`Refusal`]; nothing has changed then.
    #[inline]
    pub fn write(
        &mut self,
        op: &Op<'_>,
        missing: Missing,
        reply: impl FnOnce(Option<Applied<'_>>, &mut dyn Out),
    ) -> Result<(), Refusal> {
        self.write_as(Travel::Command, op, missing, reply)
    }

    /// As `write`, for an op made from what only this server knows: the op travels, not the command.
    ///
    /// # Errors
    /// See [`Refusal`]; nothing has changed then.
    pub fn write_resolved(
        &mut self,
        op: &Op<'_>,
        missing: Missing,
        reply: impl FnOnce(Option<Applied<'_>>, &mut dyn Out),
    ) -> Result<(), Refusal> {
        self.write_as(Travel::Op, op, missing, reply)
    }

    fn write_as(
        &mut self,
        travel: Travel,
        op: &Op<'_>,
        missing: Missing,
        reply: impl FnOnce(Option<Applied<'_>>, &mut dyn Out),
    ) -> Result<(), Refusal> {
        let name = self.args.string(QUEUE)?;
        let obeys = self.obeys();
        let ctx = self.ctx;
        let mut key = Key::open(ctx, name, Access::Write);
        let changed = match key.held() {
            Held::Queue(value) => {
                let done = if obeys {
                    // Whatever comes of it here: the AOF and the replicas of this server see what it saw.
                    ctx.replicate_verbatim();
                    run::obey(ctx, name, value, op)?
                } else {
                    run::apply(ctx, name, value, op, travel)?
                };
                self.finish(name, value, op, &done, reply)
            }
            Held::Other => return Err(Refusal::WrongType),
            Held::Nothing => match missing {
                Missing::Refuse => return Err(Refusal::NoQueue),
                Missing::Nothing => {
                    // What obeys passes on everything it is given.
                    if obeys {
                        ctx.replicate_verbatim();
                    }
                    reply(None, &mut self.out);
                    false
                }
                // The primary's creation comes before: something is amiss.
                Missing::Create if obeys => return Err(Refusal::NoQueue),
                Missing::Create => {
                    let (value, done, stamp) = run::make(ctx, op)?;
                    changing(true);
                    key.put(value);
                    run::propagate_creation(ctx, name, stamp);
                    run::propagate(ctx, name, op, travel, None);
                    changing(false);
                    let Held::Queue(value) = key.held() else { return Err(Refusal::Internal) };
                    self.finish(name, value, op, &done, reply)
                }
            },
        };
        drop(key);
        if changed {
            self.announce(name);
        }
        Ok(())
    }

    /// After an op: its reply, and what follows from a change. Whether there was one.
    #[inline]
    fn finish(
        &mut self,
        name: Str<'a>,
        value: &mut Value,
        op: &Op<'_>,
        done: &Done,
        reply: impl FnOnce(Option<Applied<'_>>, &mut dyn Out),
    ) -> bool {
        if matches!(op, Op::Set(_)) {
            value.settings_changed();
        }
        let applied = Applied { queue: &value.queue, outcome: &done.outcome, claimed: &done.claimed };
        reply(Some(applied), &mut self.out);
        if done.changed {
            let obeys = self.obeys();
            self.settled(name, value, obeys);
        }
        done.changed
    }

    /// After a change: those who wait are served, and the index learns when to look at the queue.
    #[inline]
    fn settled(&mut self, name: Str<'a>, value: &mut Value, obeys: bool) {
        let (ctx, main) = (self.ctx, self.ctx.main());
        if WAITING.get(main) > 0 && waiters::has_claims(ctx, name.bytes()) {
            // Inside of a larger unit, what was enqueued may yet be cancelled or claimed by itself.
            if obeys || self.flags().is_inside_unit() || waiters::serve(ctx, name, value).1 {
                waiters::look_later(main, ctx.db(), name.bytes());
            }
        }
        let news = if obeys { value.first_news() } else { value.news() };
        if let Some(due) = news {
            let db = ctx.db();
            STATE.with(main, |state| state.index.set(db, name.bytes(), due));
            if !obeys {
                timer::arm(main, due);
            }
        }
    }

    /// Tells clients that watch or track the key, and whoever listens to key events.
    #[inline]
    fn announce(&self, name: Str<'_>) {
        self.ctx.signal_modified(name);
        notices::raise(self.ctx, name, (!self.event.is_empty()).then_some(self.event));
    }

    /// Looks at the queue that the first argument names.
    ///
    /// # Errors
    /// `WRONGTYPE`.
    pub fn read<R>(&mut self, f: impl FnOnce(Option<Seen<'_>>, &mut dyn Out) -> R) -> Result<R, Refusal> {
        let name = self.args.string(QUEUE)?;
        let is_primary = self.flags().is_primary();
        let main = self.ctx.main();
        let mut key = Key::open(self.ctx, name, Access::Read);
        match key.held() {
            Held::Other => Err(Refusal::WrongType),
            Held::Nothing => Ok(f(None, &mut self.out)),
            Held::Queue(value) => {
                if is_primary {
                    value.prepare(main);
                }
                let wall = if is_primary { clock::wall_ms() } else { clock::primary_wall_ms(main) };
                Ok(f(Some(Seen::new(value, wall)), &mut self.out))
            }
        }
    }

    /// `RQ.CLAIM` and `RQ.MCLAIM`: claims, waits if asked to and allowed, and replies.
    ///
    /// # Errors
    /// See [`Refusal`]; nothing has changed then.
    pub fn claim(&mut self, request: ClaimRequest<'_>) -> Result<(), Refusal> {
        let obeys = self.obeys();
        if request.queues > 1 && !obeys {
            // An error changes nothing: no key of another type may be met after a queue was changed.
            for at in request.first_queue..request.first_queue.saturating_add(request.queues) {
                match Key::open(self.ctx, self.args.string(at)?, Access::Read).held() {
                    Held::Nothing => {}
                    Held::Other => return Err(Refusal::WrongType),
                    Held::Queue(value) => check_registry(value, request.claim.worker)?,
                }
            }
        }
        for at in request.first_queue..request.first_queue.saturating_add(request.queues) {
            if self.claim_of(at, &request, obeys)? {
                return Ok(());
            }
        }
        if let Some(ms) = request.block.filter(|_| self.may_block()) {
            let mut names = Vec::with_capacity(request.queues);
            for at in request.first_queue..request.first_queue.saturating_add(request.queues) {
                names.push(self.args.get(at).ok_or(Refusal::Arity)?.into());
            }
            let want = Want::Claim(WantClaim {
                worker: request.claim.worker.into(),
                count: request.claim.count,
                lease: request.claim.lease,
                full: request.full,
                named: request.named,
            });
            if waiters::block(self.ctx, names, want, ms) {
                return Ok(());
            }
        }
        self.out.null();
        Ok(())
    }

    /// Whether the AOF is being loaded by this call.
    #[must_use]
    pub fn loads_aof(&self) -> bool {
        self.ctx.is_aof()
    }

    /// Counts a message that was refused.
    pub fn count_refused(&self) {
        STATE.with(self.ctx.main(), |state| state.stats.refused = state.stats.refused.saturating_add(1));
    }

    /// Claims of one queue and replies. `false`: it has nothing; then the asking is noted.
    fn claim_of(&mut self, at: usize, request: &ClaimRequest<'_>, obeys: bool) -> Result<bool, Refusal> {
        let name = self.args.string(at)?;
        let (ctx, main) = (self.ctx, self.ctx.main());
        let mut key = Key::open(ctx, name, Access::Write);
        let value = match key.held() {
            Held::Nothing => return Ok(false),
            Held::Other => return Err(Refusal::WrongType),
            Held::Queue(value) => value,
        };
        let op = Op::Claim(request.claim);
        let done = if obeys {
            ctx.replicate_verbatim();
            run::obey(ctx, name, value, &op)?
        } else {
            check_registry(value, request.claim.worker)?;
            // Which of several queues it was is known here only.
            let travel = if request.named { Travel::Op } else { Travel::Command };
            // Also when there is nothing: a worker that is new is registered by that.
            let done = run::apply(ctx, name, value, &op, travel)?;
            if done.claimed.is_empty() && value.is_due() {
                timer::settle_for_claim(ctx, name, value);
                let again = run::apply(ctx, name, value, &op, travel)?;
                Done { changed: done.changed || again.changed, ..again }
            } else {
                done
            }
        };
        let has_claimed = !done.claimed.is_empty();
        if has_claimed {
            if request.named {
                self.out.array(2);
                self.out.bulk(name.bytes());
            }
            if let Some(renderers) = RENDERERS.get(main) {
                (renderers.jobs)(&value.queue, &done.claimed, request.full, &mut self.out);
            }
        }
        if done.changed {
            self.settled(name, value, obeys);
            drop(key);
            self.announce(name);
        } else {
            // Something may have come due.
            drop(key);
            notices::raise(ctx, name, None);
        }
        Ok(has_claimed)
    }

    /// Whether the caller can be made to wait.
    fn may_block(&mut self) -> bool {
        let flags = self.flags();
        !flags.is_inside_unit() && !self.obeys()
    }

    /// Looks at a job of the queue that the first argument names, and waits for news of it if asked to and
    /// allowed. `look` replies, or says what is to be waited for; a job that is not there is nil.
    ///
    /// # Errors
    /// See [`Refusal`]; nothing has changed then.
    pub fn watch(
        &mut self,
        id: Id<'_>,
        block: Option<u64>,
        look: impl FnOnce(Seen<'_>, JobView<'_>, &mut dyn Out, bool) -> Option<News>,
    ) -> Result<(), Refusal> {
        let block = block.filter(|_| self.may_block());
        let news = self.read(|seen, out| {
            let found = seen.and_then(|seen| Some((seen, seen.queue.job(seen.queue.find(id)?)?)));
            match found {
                None => {
                    out.null();
                    None
                }
                Some((seen, job)) => look(seen, job, out, block.is_some()),
            }
        })?;
        if let (Some(ms), Some(news)) = (block, news) {
            let name = self.args.string(QUEUE)?.bytes();
            let want = Want::Job(WantJob { id: waiters::shown(id), news });
            if !waiters::block(self.ctx, vec![name.into()], want, ms) {
                self.out.null();
            }
        }
        Ok(())
    }

    /// The workers that wait for the queue that the first argument names.
    #[must_use]
    pub fn waiting(&self) -> Waiting {
        waiting(self.ctx.main(), self.ctx.db(), self.args.get(QUEUE).unwrap_or_default())
    }

    /// Workers of the queue that the first argument names that neither wait now nor gave a sign of
    /// life for at least `ms`.
    ///
    /// # Errors
    /// `WRONGTYPE`.
    pub fn idle_workers(&mut self, ms: u64) -> Result<Vec<Box<[u8]>>, Refusal> {
        let waiting = self.waiting();
        self.read(|seen, _| {
            let Some(seen) = seen else { return Vec::new() };
            let is_idle = |last: u64| seen.now.saturating_sub(last) >= ms;
            // Of one that holds nothing, nothing can be taken.
            let holders = seen.queue.workers().filter(|worker| worker.active > 0);
            holders
                .filter(|worker| is_idle(worker.last_seen) && !waiting.contains_key(worker.name))
                .map(|worker| worker.name.into())
                .collect()
        })
    }

    /// Names of the queues of the selected database behind `cursor` (0: from the start), and the
    /// next cursor (0: that was the last). Looks at up to `count` names and gives those that match.
    #[must_use]
    pub fn queues(
        &mut self,
        cursor: u64,
        count: usize,
        matches: &dyn Fn(&[u8]) -> bool,
    ) -> (u64, Vec<Box<[u8]>>) {
        let (main, db) = (self.ctx.main(), self.ctx.db());
        let page = STATE.with(main, |state| state.index.page(db, cursor, count));
        let next = if page.len() < count { 0 } else { page.last().map_or(0, |&(number, _)| number) };
        let mut names = Vec::new();
        for (_, name) in page {
            if !matches(&name) {
                continue;
            }
            // The index may know names that are gone.
            let string = OwnStr::new(main, &name);
            if matches!(Key::open(self.ctx, string.get(), Access::Read).held(), Held::Queue(_)) {
                names.push(name);
            }
        }
        (next, names)
    }

    /// The selected database.
    #[must_use]
    pub fn db(&self) -> i32 {
        self.ctx.db()
    }

    /// Shows `f` queues of the selected database, and tells how many are still to come, this one
    /// included: those of these names that there are, or without names the oldest; at most `count`. The answer is how many there are in all, or how
    /// many names were given.
    pub fn look_at(
        &mut self,
        names: &[&[u8]],
        count: usize,
        mut f: impl FnMut(&[u8], Seen<'_>, &Waiting, usize),
    ) -> usize {
        let (main, db) = (self.ctx.main(), self.ctx.db());
        let (total, page): (usize, Vec<Box<[u8]>>) = if names.is_empty() {
            STATE.with(main, |state| {
                let page = state.index.page(db, 0, count).into_iter().map(|(_, name)| name);
                (state.index.len_of(db), page.collect())
            })
        } else {
            // Given twice, it is still one.
            let unique: std::collections::BTreeSet<&[u8]> = names.iter().copied().collect();
            (unique.len(), unique.into_iter().take(count).map(Box::from).collect())
        };
        let is_primary = self.flags().is_primary();
        let mut missing: usize = 0;
        let left = page.len();
        for (number, name) in page.into_iter().enumerate() {
            let own = OwnStr::new(main, &name);
            let mut key = Key::open(self.ctx, own.get(), Access::Read);
            let Held::Queue(value) = key.held() else {
                missing = missing.saturating_add(1);
                continue;
            };
            if is_primary {
                value.prepare(main);
            }
            let wall = if is_primary { clock::wall_ms() } else { clock::primary_wall_ms(main) };
            f(&name, Seen::new(value, wall), &waiting(main, db, &name), left.saturating_sub(number));
        }
        total.saturating_sub(missing)
    }

    /// What the module counted since the server was started, for metrics: name, help, value.
    #[must_use]
    pub fn counted(&self) -> Vec<(&'static str, &'static str, u64)> {
        info::fields(self.ctx.main())
            .into_iter()
            .map(|field| (field.metric, field.help, field.value))
            .collect()
    }

    /// `RQ.APPLY`: executes one message for the queue that the first argument names.
    ///
    /// # Errors
    /// Why the message does not fit the queue.
    pub fn execute(&mut self, message: Message<'_>) -> Result<(), String> {
        let (ctx, main, db) = (self.ctx, self.ctx.main(), self.ctx.db());
        let name = self.args.string(QUEUE).map_err(|refusal| refusal.to_string())?;
        let place = || (db, Box::from(name.bytes()));
        let queue = match message {
            Message::Op(op) => return self.execute_op(name, &op),
            Message::Create { settings, stamp } => {
                let mut value = Value::loaded(main, Queue::new(settings, stamp));
                if !self.flags().is_loading() {
                    value.follow(main, stamp);
                }
                value
            }
            Message::Chunk(chunk) => {
                return STATE.with(main, |state| {
                    let loader = state.loaders.entry(place()).or_default();
                    loader.push(chunk).map_err(|corrupt| corrupt.to_string())
                });
            }
            Message::End => {
                let loader = STATE.with(main, |state| state.loaders.remove(&place()));
                let queue = loader.unwrap_or_default().finish().map_err(|corrupt| corrupt.to_string())?;
                Value::loaded(main, queue)
            }
        };
        let mut key = Key::open(ctx, name, Access::Write);
        key.put(Box::new(queue));
        if let Held::Queue(value) = key.held() {
            self.settled(name, value, true);
        }
        drop(key);
        self.announce(name);
        Ok(())
    }

    fn execute_op(&mut self, name: Str<'a>, op: &Op<'_>) -> Result<(), String> {
        let (ctx, main) = (self.ctx, self.ctx.main());
        let mut key = Key::open(ctx, name, Access::Write);
        let Held::Queue(value) = key.held() else { return Err("there is no queue".into()) };
        let done = run::obey(ctx, name, value, op).map_err(|error| Refusal::from(error).to_string())?;
        if let Op::Clock(stamp) = op {
            // The AOF tells when something was, not what time it is.
            if !self.flags().is_loading() {
                value.follow(main, *stamp);
            }
        }
        if done.changed {
            self.settled(name, value, true);
            drop(key);
            self.announce(name);
        }
        Ok(())
    }

    /// Passes the command on as it is.
    pub fn pass_on(&self) {
        self.ctx.replicate_verbatim();
    }
}

/// A claim registers its worker: not any number of them.
fn check_registry(value: &Value, worker: &[u8]) -> Result<(), Refusal> {
    let queue = &value.queue;
    let is_full = queue.worker_count() >= WORKERS_MAX && queue.worker(worker).is_none();
    if is_full { Err(Refusal::WorkersFull) } else { Ok(()) }
}

/// The workers that wait for a queue now.
#[must_use]
pub fn waiting(main: Main, db: i32, name: &[u8]) -> Waiting {
    if WAITING.get(main) == 0 {
        return Waiting::new();
    }
    let now = clock::boot_ms();
    STATE.with(main, |state| {
        state
            .waits
            .workers(db, name)
            .map(|(worker, since)| (worker.into(), now.saturating_sub(since)))
            .collect()
    })
}

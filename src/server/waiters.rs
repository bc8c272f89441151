//! Clients that wait: for jobs (`RQ.CLAIM`, `RQ.MCLAIM`), for the end of a job (`RQ.RESULT`), and for what
//! it puts out (`RQ.READ`).
//!
//! They stand in a list of our own, so that one job wakes one worker, whatever the number of those
//! that wait. A handle is ours from [`block`] until exactly one of: the wait is served or has ended
//! ([`super::timer`]), `CLIENT UNBLOCK`, or the client is gone, which includes that this server
//! became a replica (both [`ended`]). The server's own timeouts are not used: waits run on the boot
//! clock, which no step of the wall clock touches.

use super::clock;
use super::ffi::{Blocked, BlockedId, ClientId, Ctx, Main, MainCell, Str};
use super::reply::{Out, Refusal};
use super::run::{self, Done, Travel};
use super::state::{RENDERERS, STATE, WAITING};
use super::timer;
use super::value::Value;
use super::waitlist::{News, Waiter, Want, WantJob};
use crate::queue::{
    Claim, Emitted, Ended, Id, JobView, Observer, Op, Place, Reading, SHOWN_BYTES_MAX, Serial, Start,
};

/// Jobs that were handed to a client that waited, until its reply is written.
#[derive(Debug)]
pub struct Grant {
    /// Database of the queue.
    pub db: i32,
    /// The queue.
    pub name: Box<[u8]>,
    /// Ids in their shown form, and tokens.
    pub deliveries: Vec<(Box<[u8]>, Serial)>,
    /// From where on to follow the queue.
    pub mark: usize,
}

/// Most waits that end in one unit; the rest follows a millisecond later. To unblock a client and to
/// write its reply takes the server some 15 µs, and all who are unblocked in a unit are written to
/// before anybody else has a turn.
const ENDED_MAX: usize = 50;

/// Where clients have waited for long, all that belongs to them may have to be fetched from far away first, which takes
/// many times as long. So it begins with so many, and goes on to [`ENDED_MAX`] by doubling ...
const ENDED_MIN: usize = 8;

/// ... as long as the timer comes round within so many microseconds.
const SLOW_US: u64 = 3_000;

/// See [`ENDED_MIN`].
#[derive(Clone, Copy)]
struct Pace {
    /// How many waits may end in a unit now.
    most: usize,
    /// When the timer ran last, boot clock, µs.
    at: u64,
    /// Whether some ended since.
    has_ended: bool,
}

static PACE: MainCell<Pace> = MainCell::new(Pace { most: ENDED_MIN, at: 0, has_ended: false });

/// The timer comes round: how many waits may end in a unit from here on.
pub fn pace(main: Main) {
    let Pace { most, at, has_ended } = PACE.get(main);
    let now = clock::boot_us();
    let most = match now.saturating_sub(at) {
        ..=SLOW_US if has_ended => most.saturating_mul(2).min(ENDED_MAX),
        ..=SLOW_US => most,
        _ => ENDED_MIN,
    };
    PACE.set(main, Pace { most, at: now, has_ended: false });
}

/// An id in its shown form.
#[must_use]
pub fn shown(id: Id<'_>) -> Box<[u8]> {
    id.write(&mut [0; SHOWN_BYTES_MAX]).into()
}

/// Makes the client of a call wait. `false`: the server does not let it.
#[must_use]
pub fn block(ctx: Ctx<'_>, names: Vec<Box<[u8]>>, want: Want, ms: u64) -> bool {
    let main = ctx.main();
    let Some(handle) = Blocked::new(ctx) else { return false };
    let since = clock::boot_ms();
    // One more: the millisecond of now has begun already, and a wait must not end early.
    let deadline = (ms > 0).then(|| since.saturating_add(ms).saturating_add(1));
    let waiter = Waiter { db: ctx.db(), names, want, since, deadline, handle };
    STATE.with(main, |state| {
        state.waits.add(waiter.handle.id(), waiter);
        WAITING.set(main, state.waits.len());
    });
    if let Some(deadline) = deadline {
        timer::arm(main, deadline);
    }
    timer::watch_slots(main);
    true
}

/// The server ends the wait of a client that still waits. `out`: its reply, as if its time were over; `None` if the server
/// gives one itself, or there is nobody to have it.
pub fn ended(main: Main, key: BlockedId, out: Option<&mut dyn Out>) {
    let waiter = STATE.with(main, |state| {
        let number = state.waits.number(key)?;
        state.waits.take(number)
    });
    match (&waiter, out) {
        (Some(waiter), Some(out)) => write_nothing(main, &waiter.want, out),
        (None, Some(out)) => out.null(),
        (_, None) => {}
    }
    if let Some(waiter) = waiter {
        forget(main, &waiter.handle);
        waiter.handle.let_go(main);
    }
}

fn forget(main: Main, handle: &Blocked) {
    STATE.with(main, |state| {
        state.waits.forget(handle.id());
        WAITING.set(main, state.waits.len());
    });
    PACE.set(main, Pace { has_ended: true, ..PACE.get(main) });
}

/// Gives the handle of a client that was answered back to the server.
fn release(main: Main, handle: Blocked) {
    forget(main, &handle);
    handle.unblock(main, None);
}

/// The answer to a client that waited was dropped by the server, and it may have got no other. It must not wait for ever:
/// its connection is closed, if it is still there.
pub fn unanswered(main: Main, client: ClientId) {
    STATE.with(main, |state| state.unanswered.push(client));
    timer::arm(main, 0);
}

/// The wait is over without anything.
fn answer_nothing(main: Main, waiter: Waiter<Blocked>) {
    waiter.handle.reply(main, |out| write_nothing(main, &waiter.want, out));
    release(main, waiter.handle);
}

/// What one is told who waited in vain.
fn write_nothing(main: Main, want: &Want, out: &mut dyn Out) {
    match want {
        Want::Job(WantJob { news: News::Output { place, .. }, .. }) => {
            write_output(main, &still(*place), out);
        }
        Want::Job(_) | Want::Claim(_) => out.null(),
    }
}

/// Ends the wait of one, if it still waits, for a queue that lives elsewhere now. Who wants work asks again anyway; who
/// awaits news of a job must not take nothing for an answer.
fn send_away(main: Main, number: u64) {
    let Some(waiter) = STATE.with(main, |state| state.waits.take(number)) else { return };
    match waiter.want {
        Want::Claim(_) => answer_nothing(main, waiter),
        Want::Job(_) => {
            waiter.handle.refuse(main, &Refusal::Elsewhere);
            release(main, waiter.handle);
        }
    }
}

/// Everybody who waits for a queue that lives elsewhere now.
fn send_all_away(main: Main, db: i32, name: &[u8]) {
    for number in STATE.with(main, |state| state.waits.numbers_at(db, name)) {
        send_away(main, number);
    }
}

/// Ends waits whose time is over, as many as may end in a unit.
pub fn expire(main: Main, now: u64) {
    for _ in 0..PACE.get(main).most {
        let waiter = STATE.with(main, |state| {
            let number = state.waits.overdue(now)?;
            state.stats.timeouts = state.stats.timeouts.saturating_add(1);
            state.waits.take(number)
        });
        let Some(waiter) = waiter else { return };
        answer_nothing(main, waiter);
    }
}

/// A client that jobs were granted to has its reply.
pub fn arrived(main: Main) {
    STATE.with(main, |state| state.moves.arrive());
}

/// A client that jobs were granted to was gone before its reply could be written.
pub fn vanished(main: Main, grant: Grant) {
    STATE.with(main, |state| state.undo.push_back(grant));
    timer::arm(main, 0);
}

/// Whether anybody waits for jobs of this queue.
#[must_use]
#[inline]
pub fn has_claims(ctx: Ctx<'_>, name: &[u8]) -> bool {
    let main = ctx.main();
    WAITING.get(main) > 0 && {
        let db = ctx.db();
        STATE.with(main, |state| state.waits.has_claims(db, name))
    }
}

/// The queue is to be looked at by the timer, if anybody waits for it.
pub fn look_later(main: Main, db: i32, name: &[u8]) {
    let is_awaited = WAITING.get(main) > 0
        && STATE.with(main, |state| {
            let is_awaited = state.waits.is_awaited(db, name);
            if is_awaited {
                state.pending.insert((db, name.into()));
            }
            is_awaited
        });
    if is_awaited {
        timer::arm(main, 0);
    }
}

/// The same for all awaited queues of a database, or of all databases.
pub fn look_at_all_later(main: Main, db: Option<i32>) {
    if WAITING.get(main) == 0 {
        return;
    }
    STATE.with(main, |state| {
        let names = state.waits.names(db);
        state.pending.extend(names);
    });
    timer::arm(main, 0);
}

/// Hands the jobs of a queue to those who wait for them, as many as may end in a unit. Says whether
/// somebody was served, and whether there is more to do.
pub fn serve(ctx: Ctx<'_>, name: Str<'_>, value: &mut Value) -> (bool, bool) {
    if !has_claims(ctx, name.bytes()) {
        return (false, false);
    }
    let (main, db) = (ctx.main(), ctx.db());
    value.prepare(main);
    let mut served = false;
    for _ in 0..PACE.get(main).most {
        let Some(next) = value.queue.next_at(value.now()) else { return (served, false) };
        let taken = STATE.with(main, |state| {
            // A job that comes back from a lapse may have been swallowed by a frozen client that
            // still stands at the head of the line.
            let number = state.waits.claimer(db, name.bytes(), next.lapsed_before)?;
            Some((number, state.waits.take(number)?))
        });
        let Some((number, waiter)) = taken else { return (served, false) };
        if let Err(waiter) = grant(ctx, db, name, value, waiter) {
            // The queue has something, but not for this one.
            STATE.with(main, |state| state.waits.put_back(number, waiter));
            return (served, false);
        }
        served = true;
    }
    (served, has_claims(ctx, name.bytes()))
}

/// Hands jobs to one that waits; gives it back if there was nothing for it.
fn grant(
    ctx: Ctx<'_>,
    db: i32,
    name: Str<'_>,
    value: &mut Value,
    waiter: Waiter<Blocked>,
) -> Result<(), Waiter<Blocked>> {
    let Want::Claim(want) = &waiter.want else { return Err(waiter) };
    let main = ctx.main();
    let claim = Claim { worker: &want.worker, count: want.count, lease: want.lease };
    let done = match run::apply(ctx, name, value, &Op::Claim(claim), Travel::Op) {
        Ok(done) if !done.claimed.is_empty() => done,
        _ => return Err(waiter),
    };
    let deliveries = done
        .claimed
        .iter()
        .filter_map(|&slot| value.queue.job(slot))
        .map(|job| (shown(job.id()), job.token()))
        .collect();
    let mark = STATE.with(main, |state| state.moves.depart());
    let grant = Grant { db, name: name.bytes().into(), deliveries, mark };
    waiter.handle.reply(main, |out| {
        if want.named {
            out.array(2);
            out.bulk(name.bytes());
        }
        write_jobs(main, value, &done, want.full, out);
    });
    STATE.with(main, |state| {
        let count = u64::try_from(done.claimed.len()).unwrap_or(0);
        state.stats.granted = state.stats.granted.saturating_add(count);
    });
    forget(main, &waiter.handle);
    waiter.handle.unblock(main, Some(grant));
    Ok(())
}

fn write_jobs(main: Main, value: &Value, done: &Done, full: bool, out: &mut dyn Out) {
    match RENDERERS.get(main) {
        Some(renderers) => (renderers.jobs)(&value.queue, &done.claimed, full, out),
        None => out.null(),
    }
}

/// Watches, during an op, for what somebody waits for a job to do. `None`: nobody does.
#[must_use]
#[inline]
pub fn watch<'c>(ctx: Ctx<'c>, name: Str<'c>) -> Option<Watch<'c>> {
    let main = ctx.main();
    if WAITING.get(main) == 0 {
        return None;
    }
    let db = ctx.db();
    STATE.with(main, |state| state.waits.has_watchers(db, name.bytes())).then_some(Watch { main, db, name })
}

/// See [`watch`].
pub struct Watch<'c> {
    main: Main,
    db: i32,
    name: Str<'c>,
}

impl Watch<'_> {
    /// Tells of what is still there to be looked at: some now, others by the timer.
    fn tell_some<'a>(&self, id: Id<'_>, answer: impl Fn(News) -> Option<Answer<'a>>) {
        let name = self.name.bytes();
        if tell(self.main, self.db, name, &shown(id), PACE.get(self.main).most, answer).is_none() {
            look_later(self.main, self.db, name);
        }
    }
}

impl Observer for Watch<'_> {
    fn ended(&mut self, ended: &Ended<'_>) {
        let (name, id) = (self.name.bytes(), shown(ended.id));
        // All of them now: the job may be gone at once.
        tell(self.main, self.db, name, &id, usize::MAX, |news| match (news, ended.state) {
            (_, None) => Some(Answer::Gone),
            (News::End, Some(_)) => Some(Answer::Ended(ended)),
            (News::Output { place, .. }, Some(_)) => {
                let from = if place.run == ended.run { place } else { Place { run: ended.run, number: 0 } };
                Some(Answer::Output(Reading { ended: ended.state, ..still(from) }))
            }
        });
    }

    fn emitted(&mut self, emitted: &Emitted<'_>) {
        self.tell_some(emitted.id, |news| match news {
            News::Output { place, .. } if place == emitted.place => {
                Some(Answer::Output(Reading { chunks: vec![emitted.chunk], ..still(place) }))
            }
            _ => None,
        });
    }

    fn restarted(&mut self, id: Id<'_>, run: u64) {
        self.tell_some(id, |news| match news {
            News::Output { place, .. } if place.run != run => {
                Some(Answer::Output(still(Place { run, number: 0 })))
            }
            _ => None,
        });
    }
}

/// What one is told who waits for news of a job.
enum Answer<'a> {
    /// The job is gone: nobody waits for ever.
    Gone,
    /// It ends this moment.
    Ended(&'a Ended<'a>),
    /// It has ended: the queue it is in, and the clock.
    Result(&'a Value, JobView<'a>),
    /// What it put out.
    Output(Reading<'a>),
}

/// There is nothing behind this place yet.
const fn still(from: Place) -> Reading<'static> {
    Reading { from, chunks: Vec::new(), ended: None }
}

/// Answers those who wait for news of a job and whom there is something to tell, longest first and at most
/// `most`. How many are left of these; `None`: there were more to tell.
fn tell<'a>(
    main: Main,
    db: i32,
    name: &[u8],
    id: &[u8],
    mut most: usize,
    answer: impl Fn(News) -> Option<Answer<'a>>,
) -> Option<usize> {
    for (number, news) in STATE.with(main, |state| state.waits.watchers(db, name, id)) {
        let Some(answer) = answer(news) else { continue };
        most = most.checked_sub(1)?;
        let Some(waiter) = STATE.with(main, |state| state.waits.take(number)) else { continue };
        waiter.handle.reply(main, |out| match (RENDERERS.get(main), &answer) {
            (None, _) | (_, Answer::Gone) => out.null(),
            (Some(renderers), Answer::Ended(ended)) => (renderers.ended)(ended, out),
            (Some(renderers), Answer::Result(value, job)) => {
                (renderers.result)(&value.queue, *job, value.now(), out);
            }
            (Some(_), Answer::Output(reading)) => write_output(main, reading, out),
        });
        release(main, waiter.handle);
    }
    Some(most)
}

fn write_output(main: Main, reading: &Reading<'_>, out: &mut dyn Out) {
    match RENDERERS.get(main) {
        Some(renderers) => (renderers.output)(reading, out),
        None => out.null(),
    }
}

/// Looks at what is awaited of a queue that came, went, or changed unseen. `value`: the queue that
/// is there now.
pub fn look(ctx: Ctx<'_>, db: i32, name: &[u8], value: Option<&Value>) {
    let main = ctx.main();
    if value.is_none() && timer::IS_CLUSTER.get(main) && ctx.is_elsewhere(name) {
        return send_all_away(main, db, name);
    }
    let ids = STATE.with(main, |state| state.waits.awaited_ids(db, name));
    let mut most = PACE.get(main).most;
    for id in ids {
        let found = value.and_then(|value| Some((value, value.queue.find(Id::parse(&id))?)));
        let job = found.and_then(|(value, slot)| Some((value, value.queue.job(slot)?)));
        let left = tell(main, db, name, &id, most, |news| match (job, news) {
            (None, _) => Some(Answer::Gone),
            (Some((value, job)), News::End) => job.state().is_final().then_some(Answer::Result(value, job)),
            (Some((_, job)), News::Output { place, count }) => {
                let reading = job.read(Start::Place(place), count as usize);
                reading.is_news(place).then_some(Answer::Output(reading))
            }
        });
        match left {
            Some(left) => most = left,
            None => return look_later(main, db, name),
        }
    }
}

/// In a cluster: those who wait for keys that live elsewhere now are sent away, so that they ask again and are told
/// where. Looks at up to so many names; says whether there are more.
pub fn dismiss_strangers(ctx: Ctx<'_>, most: usize) -> bool {
    let main = ctx.main();
    STATE.with(main, |state| {
        if state.unchecked.is_empty() {
            state.unchecked = state.waits.names(None);
        }
    });
    for _ in 0..most {
        let Some((db, name)) = STATE.with(main, |state| state.unchecked.pop()) else { return false };
        let is_awaited = STATE.with(main, |state| state.waits.is_awaited(db, &name));
        if is_awaited && ctx.is_elsewhere(&name) {
            send_all_away(main, db, &name);
        }
    }
    STATE.with(main, |state| !state.unchecked.is_empty())
}

//! What is shown of a queue, its jobs, its workers and its settings. Each view exists once; it is
//! written as a reply or as JSON.
//!
//! Names are frozen and their values keep their meaning; more may come. Instants are Unix ms,
//! durations ms. What does not apply is null; a limit that there is not is the word `none`.

use super::fields::{Fields, Value, ms};
use crate::queue::{Backoff, JobOptions, JobView, Queue, Serial, Settings, State, Totals, WorkerView};
use crate::server::call::Seen;

/// Everything about one job.
#[must_use]
pub fn job<'q>(seen: Seen<'q>, job: JobView<'q>) -> Fields<'q> {
    let wall = |instant: Option<u64>| instant.map(|instant| seen.to_wall(instant));
    let state = job.state();
    let mut fields = Fields::with_capacity(26);
    fields.add("id", job.id());
    fields.add("state", Value::Word(state.name()));
    fields.add("priority", job.priority());
    fields.add("enqueued", seen.to_wall(job.enqueued()));
    fields.add("due", wall(job.due()));
    fields.add("since", wall(job.since()));
    fields.add("claimed", wall(job.claimed()));
    fields.add("lease-until", wall(job.lease_until()));
    fields.add("deadline", wall(job.deadline()));
    fields.add("ended", wall(job.ended()));
    fields.add("ttl", state.is_final().then(|| ttl(seen.queue, job, seen.now)));
    fields.add("deliveries", job.deliveries());
    fields.add("attempts", job.attempts());
    fields.add("attempts-allowed", Value::limit(job.attempts_allowed()));
    fields.add("crashes", job.crashes());
    fields.add("crashes-allowed", Value::limit(job.crashes_allowed()));
    fields.add("worker", job.worker());
    fields.add("token", token(job));
    fields.add("cancelling", job.is_cancelling());
    fields.add("reason", job.reason().map(|reason| Value::Word(reason.name())));
    fields.add("error", job.error());
    fields.add("progress", job.value().filter(|_| !state.is_final()));
    fields.add("result", job.value().filter(|_| state == State::Done));
    fields.add("options", options(&job.options()));
    fields.add("payload", job.payload());
    fields
}

/// One job in a listing: what matters in its state, without its bytes.
#[must_use]
pub fn listed<'q>(seen: Seen<'q>, job: JobView<'q>) -> Fields<'q> {
    let wall = |instant: Option<u64>| instant.map(|instant| seen.to_wall(instant));
    let state = job.state();
    let mut fields = Fields::with_capacity(12);
    fields.add("id", job.id());
    fields.add("state", Value::Word(state.name()));
    fields.add("priority", job.priority());
    fields.add("enqueued", seen.to_wall(job.enqueued()));
    match state {
        State::Delayed => fields.add("due", wall(job.due())),
        State::Ready => fields.add("since", wall(job.since())),
        State::Active => {
            fields.add("claimed", wall(job.claimed()));
            fields.add("lease-until", wall(job.lease_until()));
        }
        State::Done | State::Dead | State::Cancelled => {
            fields.add("ended", wall(job.ended()));
            fields.add("ttl", ttl(seen.queue, job, seen.now));
        }
    }
    fields.add("deliveries", job.deliveries());
    fields.add("attempts", job.attempts());
    fields.add("crashes", job.crashes());
    match state {
        State::Active => fields.add("worker", job.worker()),
        State::Dead => {
            fields.add("worker", job.worker());
            fields.add("reason", job.reason().map(|reason| Value::Word(reason.name())));
        }
        _ => {}
    }
    fields
}

/// How many ms a final job will still be kept at `now`; -1: for ever.
#[must_use]
pub fn ttl(queue: &Queue, job: JobView<'_>, now: u64) -> i64 {
    // The view goes by the queue's clock, which may stand behind.
    let behind = now.saturating_sub(queue.now());
    job.ttl().map_or(-1, |ttl| ms(ttl.saturating_sub(behind)))
}

fn token(job: JobView<'_>) -> Option<Value<'static>> {
    (job.token() != Serial::NONE).then(|| Value::Serial(job.token()))
}

/// What was said at enqueue, by the words of `RQ.ENQUEUE`; nothing else.
fn options(options: &JobOptions) -> Fields<'static> {
    let mut fields = Fields::default();
    if let Some(attempts) = options.attempts {
        fields.add("attempts", Value::limit(attempts));
    }
    if let Some(crashes) = options.crashes {
        fields.add("crashes", Value::limit(crashes));
    }
    if let Some(value) = options.backoff {
        fields.add("backoff", backoff(value));
    }
    if let Some(lease) = options.lease {
        fields.add("lease", lease);
    }
    if let Some(ttl) = options.ttl {
        fields.add("ttl", Value::limit(ttl));
    }
    if let Some(deadline) = options.deadline {
        fields.add("deadline", deadline);
    }
    fields
}

/// A queue as a whole.
#[must_use]
pub fn stats(seen: Seen<'_>, waiting_workers: usize) -> Fields<'static> {
    let queue = seen.queue;
    let age = queue.oldest_ready().map(|since| seen.now.saturating_sub(since));
    let paused = queue.paused_until().filter(|&until| until > seen.now);
    let mut fields = Fields::with_capacity(State::ALL.len().saturating_add(9));
    for state in State::ALL {
        fields.add(state.name(), queue.count(state));
    }
    fields.add("oldest-ready-age", age);
    fields.add("paused", paused.is_some());
    fields.add("paused-until", paused.filter(|&until| until != u64::MAX).map(|until| seen.to_wall(until)));
    fields.add("workers", queue.worker_count());
    fields.add("waiting-workers", waiting_workers);
    fields.add("bytes", queue.memory());
    fields.add("next-wakeup", queue.next_wakeup().map(|at| seen.to_wall(at)));
    fields.add("totals", totals(queue.totals()));
    fields
}

fn totals(totals: &Totals) -> Fields<'static> {
    let Totals {
        enqueued,
        delivered,
        done,
        failed,
        lapsed,
        recovered,
        released,
        dead,
        cancelled,
        redriven,
        removed,
    } = *totals;
    let mut fields = Fields::with_capacity(11);
    fields.add("enqueued", enqueued);
    fields.add("delivered", delivered);
    fields.add("done", done);
    fields.add("failed", failed);
    fields.add("lapsed", lapsed);
    fields.add("recovered", recovered);
    fields.add("released", released);
    fields.add("dead", dead);
    fields.add("cancelled", cancelled);
    fields.add("redriven", redriven);
    fields.add("removed", removed);
    fields
}

/// A worker, and for how many ms it has been waiting for a job, if it is.
#[must_use]
pub fn worker<'q>(seen: Seen<'_>, worker: &WorkerView<'q>, waiting: Option<u64>) -> Fields<'q> {
    let silence = seen.now.saturating_sub(worker.last_seen);
    // Did it hold nothing, it would be forgotten.
    let is_stale = waiting.is_none() && seen.queue.settings().worker_ttl.is_some_and(|ttl| silence > ttl);
    let mut fields = Fields::with_capacity(9);
    fields.add("name", worker.name);
    fields.add("first-seen", seen.to_wall(worker.first_seen));
    fields.add("last-seen", seen.to_wall(worker.last_seen));
    fields.add("waiting-since", waiting.map(|waiting| seen.wall.saturating_sub(waiting)));
    fields.add("active", worker.active);
    fields.add("done", worker.done);
    fields.add("failed", worker.failed);
    fields.add("crashed", worker.crashed);
    fields.add("stale", is_stale);
    fields
}

/// The settings of a queue, by the words of `RQ.QUEUE.SET`.
#[must_use]
pub fn settings(settings: &Settings) -> Fields<'static> {
    let Settings {
        lease,
        attempts,
        crashes,
        backoff: wait,
        ttl,
        result_ttl,
        dead_ttl,
        keep_done,
        keep_dead,
        max_len,
        worker_ttl,
    } = *settings;
    let mut fields = Fields::with_capacity(11);
    fields.add("lease", lease);
    fields.add("attempts", Value::limit(attempts));
    fields.add("crashes", Value::limit(crashes));
    fields.add("backoff", backoff(wait));
    fields.add("ttl", Value::limit(ttl));
    fields.add("resultttl", Value::limit(result_ttl));
    fields.add("deadttl", Value::limit(dead_ttl));
    fields.add("keepdone", Value::limit(keep_done));
    fields.add("keepdead", Value::limit(keep_dead));
    fields.add("maxlen", Value::limit(max_len));
    fields.add("workerttl", Value::limit(worker_ttl));
    fields
}

fn backoff(backoff: Backoff) -> Value<'static> {
    Value::Integers(vec![ms(backoff.base), ms(backoff.max)])
}

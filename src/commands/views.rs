//! What is shown of a queue, its jobs, its workers and its settings. Each view exists once; it is
//! written as a reply or as JSON.
//!
//! Names are frozen and their values keep their meaning; more may come. Instants are Unix ms,
//! durations ms. What does not apply is null; a limit that there is not is the word `none`.

use super::fields::{Fields, Value, ms};
use crate::queue::limits::{LIST_SCAN_MAX, LISTED_TEXT_BYTES_MAX, beginning};
use crate::queue::{
    Backoff, EVENTS, GroupDefaults, GroupName, GroupView, Histogram, Hold, Holder, JobOptions, JobView,
    Queue, Rate, Serial, Settings, State, TenantView, Totals, WorkerView,
};
use crate::server::call::{Seen, Waiting};

/// Everything about one job.
#[must_use]
pub fn job<'q>(seen: Seen<'q>, job: JobView<'q>) -> Fields<'q> {
    let wall = |instant: Option<u64>| instant.map(|instant| seen.to_wall(instant));
    let state = job.state();
    let mut fields = Fields::with_capacity(34);
    fields.add("id", job.id());
    fields.add("state", Value::Word(state.name()));
    fields.add("priority", job.priority());
    add_group(&mut fields, job.group());
    fields.add("enqueued", seen.to_wall(job.enqueued()));
    fields.add("due", due(seen, job));
    fields.add("since", wall(job.since()));
    // Of one that ended, the token tells it.
    let last_claim = || (state.is_final() && job.token() != Serial::NONE).then(|| job.token().millis());
    fields.add("claimed", wall(job.claimed()).or_else(last_claim));
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
    fields.add("failed-at", Value::Integers(job.failures().map(|at| ms(seen.to_wall(at))).collect()));
    fields.add("progress", job.value().filter(|_| !state.is_final()));
    fields.add("result", job.value().filter(|_| state == State::Done));
    let (chunks, bytes) = job.output();
    fields.add("output", chunks);
    fields.add("output-bytes", bytes);
    fields.add("unique", job.key());
    fields.add("unique-until", job.locks_until().map(|until| Value::Word(until.name())));
    fields.add("unique-for", wall(job.locks_for()));
    fields.add("locked", job.locks(seen.now));
    fields.add("options", options(&job.options()));
    fields.add("payload", job.payload());
    fields
}

/// When a delayed job is due, Unix ms. One that waits for an instant does so however the wall clock was set since.
fn due(seen: Seen<'_>, job: JobView<'_>) -> Option<u64> {
    job.due_wall().or_else(|| job.due().map(|due| seen.to_wall(due)))
}

/// One job in a listing: what matters in its state, without its bytes.
#[must_use]
pub fn listed<'q>(seen: Seen<'q>, job: JobView<'q>) -> Fields<'q> {
    let wall = |instant: Option<u64>| instant.map(|instant| seen.to_wall(instant));
    let state = job.state();
    let mut fields = Fields::with_capacity(14);
    fields.add("id", job.id());
    fields.add("state", Value::Word(state.name()));
    fields.add("priority", job.priority());
    add_group(&mut fields, job.group());
    fields.add("enqueued", seen.to_wall(job.enqueued()));
    match state {
        State::Delayed => fields.add("due", due(seen, job)),
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
            fields.add("error", job.error().map(|text| beginning(text, LISTED_TEXT_BYTES_MAX)));
        }
        _ => {}
    }
    fields
}

/// The names of a group; null: the nameless one.
fn add_group<'q>(fields: &mut Fields<'q>, name: GroupName<'q>) {
    fields.add("group", Some(name.group).filter(|name| !name.is_empty()));
    fields.add("tenant", Some(name.tenant).filter(|name| !name.is_empty()));
}

/// Whether something is paused, and until when if not until it is resumed.
fn add_pause(fields: &mut Fields<'_>, seen: Seen<'_>, until: Option<u64>) {
    let until = until.filter(|&until| until > seen.now);
    fields.add("paused", until.is_some());
    fields.add("paused-until", until.filter(|&until| until != u64::MAX).map(|until| seen.to_wall(until)));
}

/// Why nothing is handed out, who holds it, and until when if time alone lifts it.
fn add_hold(fields: &mut Fields<'_>, seen: Seen<'_>, hold: Option<(Hold, Holder)>, has_work: bool) {
    let idle = (!has_work).then_some("empty");
    fields.add("held", hold.map(|(hold, _)| hold.name()).or(idle).map(Value::Word));
    fields.add("held-by", hold.map(|(_, holder)| Value::Word(holder.name())));
    fields.add("held-until", hold.and_then(|(hold, _)| hold.until()).map(|until| seen.to_wall(until)));
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

/// How many workers of a queue live and how many are stale, of the first `most`.
#[must_use]
pub fn living_and_stale(seen: Seen<'_>, waiting: &Waiting, most: usize) -> (usize, usize) {
    let workers = seen.queue.workers().take(most);
    let counts = workers.fold([0usize; 2], |mut counts, worker| {
        let stale = is_stale(seen, &worker, waiting.contains_key(worker.name));
        if let Some(count) = counts.get_mut(usize::from(stale)) {
            *count = count.saturating_add(1);
        }
        counts
    });
    counts.into()
}

/// A queue as a whole. `waiting`: the workers that wait for it now.
#[must_use]
pub fn stats(seen: Seen<'_>, waiting: &Waiting) -> Fields<'static> {
    let queue = seen.queue;
    let census = queue.census(seen.now, LIST_SCAN_MAX);
    let age = census.oldest_ready.map(|since| seen.now.saturating_sub(since));
    let (waits, runs) = queue.waits_and_runs(seen.now);
    let (living, stale) = living_and_stale(seen, waiting, usize::MAX);
    let mut fields = Fields::with_capacity(State::ALL.len().saturating_add(18));
    for state in State::ALL {
        fields.add(state.name(), queue.count(state));
    }
    fields.add("oldest-ready-age", age);
    fields.add("wait-time", durations(&waits));
    fields.add("run-time", durations(&runs));
    fields.add("rates", rates(seen));
    add_pause(&mut fields, seen, queue.paused_until());
    let hold = queue.hold_at(seen.now);
    fields.add("held", hold.map(|hold| Value::Word(hold.name())));
    fields.add("held-until", hold.and_then(Hold::until).map(|until| seen.to_wall(until)));
    let mut groups = Fields::with_capacity(Hold::NAMES.len().saturating_add(4));
    groups.add("count", queue.group_count());
    groups.add("looked-at", census.looked_at);
    groups.add("eligible", queue.eligible_groups());
    groups.add("empty", census.empty);
    for (name, count) in Hold::NAMES.into_iter().zip(census.held) {
        groups.add(name, count);
    }
    fields.add("groups", groups);
    fields.add("workers", queue.worker_count());
    fields.add("live-workers", living);
    fields.add("stale-workers", stale);
    fields.add("waiting-workers", waiting.len());
    fields.add("bytes", queue.memory());
    fields.add("next-wakeup", queue.next_wakeup().map(|at| seen.to_wall(at)));
    fields.add("totals", totals(queue.totals()));
    fields
}

/// What is known of durations: how many there were, percentiles, and the longest; null without any.
fn durations(histogram: &Histogram) -> Fields<'static> {
    let mut fields = Fields::with_capacity(5);
    fields.add("count", histogram.count());
    for (name, percent) in [("p50", 50), ("p90", 90), ("p99", 99)] {
        fields.add(name, histogram.percentile(percent));
    }
    fields.add("max", histogram.max());
    fields
}

/// How often each event occurred in the last 1, 5 and 15 minutes.
fn rates(seen: Seen<'_>) -> Fields<'static> {
    let lately = [1, 5, 15].map(|minutes| seen.queue.events_in(seen.now, minutes));
    let mut fields = Fields::with_capacity(EVENTS.len());
    for (index, name) in EVENTS.into_iter().enumerate() {
        let counts = lately.iter().filter_map(|events| events.get(index));
        fields.add(name, Value::Integers(counts.map(|&count| ms(count)).collect()));
    }
    fields
}

fn totals(totals: &Totals) -> Fields<'static> {
    let mut fields = Fields::with_capacity(12);
    for (name, count) in totals.named() {
        fields.add(name, count);
    }
    fields
}

/// Whether nothing was heard of a worker for longer than `WORKERTTL`. Did it hold nothing, it would be
/// forgotten.
fn is_stale(seen: Seen<'_>, worker: &WorkerView<'_>, is_waiting: bool) -> bool {
    let silence = seen.now.saturating_sub(worker.last_seen);
    !is_waiting && seen.queue.settings().worker_ttl.is_some_and(|ttl| silence > ttl)
}

/// A worker, and for how many ms it has been waiting for a job, if it is.
#[must_use]
pub fn worker<'q>(seen: Seen<'_>, worker: &WorkerView<'q>, waiting: Option<u64>) -> Fields<'q> {
    let mut fields = Fields::with_capacity(9);
    fields.add("name", worker.name);
    fields.add("first-seen", seen.to_wall(worker.first_seen));
    fields.add("last-seen", seen.to_wall(worker.last_seen));
    fields.add("waiting-since", waiting.map(|waiting| seen.wall.saturating_sub(waiting)));
    fields.add("active", worker.active);
    fields.add("done", worker.done);
    fields.add("failed", worker.failed);
    fields.add("crashed", worker.crashed);
    fields.add("stale", is_stale(seen, worker, waiting.is_some()));
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
        max_output,
        worker_ttl,
        concurrency,
        rate: claims,
        group,
    } = *settings;
    let mut fields = Fields::with_capacity(18);
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
    fields.add("maxoutput", max_output);
    fields.add("workerttl", Value::limit(worker_ttl));
    fields.add("concurrency", Value::limit(concurrency));
    fields.add("rate", rate(claims));
    fields.add("group-concurrency", Value::limit(group.concurrency));
    fields.add("group-rate", rate(group.rate));
    fields.add("group-backoff", backoff(group.backoff));
    fields.add("group-ordered", ordered(group.ordered));
    fields
}

/// One group: its jobs, its limits as they are now, its endpoint's state, and why it is not served.
#[must_use]
pub fn group<'q>(seen: Seen<'q>, group: GroupView<'q>) -> Fields<'q> {
    let wall = |instant: Option<u64>| instant.filter(|&at| at > seen.now).map(|at| seen.to_wall(at));
    let age = group.oldest_ready().map(|since| seen.now.saturating_sub(since));
    let circuit = group.circuit();
    let mut fields = Fields::with_capacity(State::ALL.len().saturating_add(14));
    add_group(&mut fields, group.name());
    for state in State::ALL {
        fields.add(state.name(), group.count(state));
    }
    fields.add("oldest-ready-age", age);
    fields.add("concurrency", Value::limit(group.concurrency()));
    add_pause(&mut fields, seen, group.gate().paused_until);
    fields.add("circuit-level", circuit.level);
    fields.add("circuit-until", wall((!circuit.is_closed()).then_some(circuit.until)));
    fields.add("throttled", group.throttle().is_some());
    fields.add("throttled-until", wall(group.throttle().map(|throttle| throttle.until)));
    add_hold(&mut fields, seen, group.hold_at(seen.now), group.count(State::Ready) > 0);
    fields
}

/// As [`group`], and what it goes by: what holds, and of that what was set on the group itself.
#[must_use]
pub fn group_with_settings<'q>(seen: Seen<'q>, view: GroupView<'q>) -> Fields<'q> {
    let mut fields = group(seen, view);
    let GroupDefaults { concurrency, rate: claims, backoff: wait, ordered: one_by_one } = view.settings();
    let mut settings = Fields::with_capacity(4);
    settings.add("concurrency", Value::limit(concurrency));
    settings.add("rate", rate(claims));
    settings.add("backoff", backoff(wait));
    settings.add("ordered", ordered(one_by_one));
    fields.add("settings", settings);
    let mut own = Fields::default();
    let set = view.own_settings();
    if let Some(concurrency) = set.concurrency {
        own.add("concurrency", Value::limit(concurrency));
    }
    if let Some(claims) = set.rate {
        own.add("rate", rate(claims));
    }
    if let Some(wait) = set.backoff {
        own.add("backoff", backoff(wait));
    }
    if let Some(one_by_one) = set.ordered {
        own.add("ordered", ordered(one_by_one));
    }
    fields.add("own", own);
    fields
}

/// One tenant.
#[must_use]
pub fn tenant<'q>(seen: Seen<'q>, tenant: TenantView<'q>) -> Fields<'q> {
    let settings = tenant.settings();
    let mut fields = Fields::with_capacity(11);
    fields.add("tenant", tenant.name());
    fields.add("weight", settings.weight);
    fields.add("concurrency", Value::limit(settings.concurrency));
    fields.add("rate", rate(settings.rate));
    fields.add("groups", tenant.group_count());
    fields.add("active", tenant.gate().active);
    add_pause(&mut fields, seen, tenant.gate().paused_until);
    add_hold(&mut fields, seen, tenant.hold_at(seen.now), true);
    fields
}

/// Claims, period, burst; or that there is no limit.
fn rate(rate: Option<Rate>) -> Value<'static> {
    let numbers = |rate: Rate| Value::Integers(vec![ms(rate.count), ms(rate.period), ms(rate.burst)]);
    rate.map_or(Value::Word("none"), numbers)
}

const fn ordered(ordered: bool) -> Value<'static> {
    Value::Word(if ordered { "yes" } else { "no" })
}

fn backoff(backoff: Backoff) -> Value<'static> {
    Value::Integers(vec![ms(backoff.base), ms(backoff.max)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::{
        Claim, Delivery, Effects, Enqueue, Failure, GroupPatch, Id, IfExists, Op, Payloads, Scope,
        SettingsPatch, Stamp, When,
    };

    struct Lab {
        queue: Queue,
        fx: Effects<'static>,
    }

    impl Lab {
        /// Ten seconds after boot, and a million after 1970.
        fn new() -> Self {
            let stamp = Stamp { now: 10_000, wall: 1_000_000_000, serial: Serial(1_000_000_000 << 20) };
            Self { queue: Queue::new(Settings::default(), stamp), fx: Effects::default() }
        }

        fn apply(&mut self, op: &Op<'_>) {
            self.fx.clear();
            self.queue.apply(op, &mut self.fx).unwrap();
        }

        fn enqueue(&mut self, id: &[u8], when: Option<When>, options: JobOptions) {
            let payloads = Payloads::One(b"p");
            let id = Some((id, IfExists::Refuse));
            self.apply(&Op::Enqueue(Enqueue {
                payloads,
                id,
                unique: None,
                group: GroupName::default(),
                when,
                priority: 3,
                options,
            }));
        }

        fn claim(&mut self) -> Serial {
            self.apply(&Op::Claim(Claim { worker: b"w", count: 1, lease: None }));
            self.queue.job(self.fx.claimed[0]).unwrap().token()
        }

        /// As seen a quarter of a second after its last change.
        fn seen(&self) -> Seen<'_> {
            Seen { queue: &self.queue, now: 10_250, wall: 1_000_000_250 }
        }

        fn job(&self, view: fn(Seen<'_>, JobView<'_>) -> String) -> String {
            let slot = self.queue.find(Id::Custom(b"j")).unwrap();
            view(self.seen(), self.queue.job(slot).unwrap())
        }
    }

    fn json(fields: &Fields<'_>) -> String {
        let mut json = super::super::json::Json::default();
        fields.write(&mut json);
        String::from_utf8(json.into_bytes()).unwrap()
    }

    fn full(seen: Seen<'_>, view: JobView<'_>) -> String {
        json(&job(seen, view))
    }

    fn short(seen: Seen<'_>, view: JobView<'_>) -> String {
        json(&listed(seen, view))
    }

    #[test]
    fn a_delayed_job() {
        let mut lab = Lab::new();
        let options = JobOptions {
            attempts: Some(None),
            backoff: Some(Backoff { base: 1, max: 2 }),
            deadline: Some(90_000),
            ..JobOptions::default()
        };
        lab.enqueue(b"j", Some(When::Delay(5_000)), options);
        assert_eq!(
            lab.job(full),
            r#"{"id":"j","state":"delayed","priority":3,"group":null,"tenant":null,"enqueued":1000000000,"due":1000005000,"since":null,"claimed":null,"lease-until":null,"deadline":1000090000,"ended":null,"ttl":null,"deliveries":0,"attempts":0,"attempts-allowed":"none","crashes":0,"crashes-allowed":5,"worker":null,"token":null,"cancelling":0,"reason":null,"error":null,"failed-at":[],"progress":null,"result":null,"output":0,"output-bytes":0,"unique":null,"unique-until":null,"unique-for":null,"locked":0,"options":{"attempts":"none","backoff":[1,2],"deadline":90000},"payload":"p"}"#
        );
        assert_eq!(
            lab.job(short),
            r#"{"id":"j","state":"delayed","priority":3,"group":null,"tenant":null,"enqueued":1000000000,"due":1000005000,"deliveries":0,"attempts":0,"crashes":0}"#
        );
    }

    #[test]
    fn an_active_job_and_its_end() {
        let mut lab = Lab::new();
        lab.enqueue(b"j", None, JobOptions::default());
        let token = lab.claim();
        let delivery = Delivery { id: Id::Custom(b"j"), token };
        lab.apply(&Op::Progress { delivery, value: b"half" });
        let text = lab.job(full);
        for part in [
            r#""since":1000000000,"claimed":1000000000,"lease-until":1000030000"#,
            r#""worker":"w","token":""#,
            r#""progress":"half","result":null,"output":0,"output-bytes":0,"unique":null,"unique-until":null,"unique-for":null,"locked":0,"options":{}"#,
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert_eq!(
            lab.job(short),
            r#"{"id":"j","state":"active","priority":3,"group":null,"tenant":null,"enqueued":1000000000,"claimed":1000000000,"lease-until":1000030000,"deliveries":1,"attempts":0,"crashes":0,"worker":"w"}"#
        );
        lab.apply(&Op::Ack { delivery, result: Some(b"\xff"), ttl: Some(Some(1_000)) });
        let text = lab.job(full);
        for part in [r#""ended":1000000000,"ttl":750"#, r#""progress":null,"result":{"base64":"/w=="}"#] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn a_dead_job() {
        let mut lab = Lab::new();
        lab.apply(&Op::Set(SettingsPatch { dead_ttl: Some(None), ..SettingsPatch::default() }));
        lab.enqueue(b"j", None, JobOptions::default());
        let token = lab.claim();
        let delivery = Delivery { id: Id::Custom(b"j"), token };
        lab.apply(&Op::Fail { delivery, error: Some(b"why"), how: Failure::Dead });
        assert_eq!(
            lab.job(short),
            r#"{"id":"j","state":"dead","priority":3,"group":null,"tenant":null,"enqueued":1000000000,"ended":1000000000,"ttl":-1,"deliveries":1,"attempts":1,"crashes":0,"worker":"w","reason":"failed","error":"why"}"#
        );
        assert!(lab.job(full).contains(
            r#""reason":"failed","error":"why","failed-at":[1000000000],"progress":null,"result":null"#
        ));
    }

    #[test]
    fn a_queue() {
        let mut lab = Lab::new();
        lab.enqueue(b"j", None, JobOptions::default());
        lab.enqueue(b"k", None, JobOptions::default());
        lab.claim();
        let nobody = Waiting::new();
        let waiting = Waiting::from([(b"idle".to_vec().into_boxed_slice(), 7)]);
        let text = json(&stats(lab.seen(), &waiting));
        for part in [
            r#"{"delayed":0,"ready":1,"active":1,"done":0,"dead":0,"cancelled":0,"oldest-ready-age":250,"wait-time":{"count":1,"p50":0,"p90":0,"p99":0,"max":0},"run-time":{"count":0,"p50":null,"p90":null,"p99":null,"max":null},"rates":{"enqueued":[2,2,2],"delivered":[1,1,1],"done":[0,0,0],"failed":[0,0,0],"lapsed":[0,0,0],"dead":[0,0,0],"cancelled":[0,0,0],"refused":[0,0,0]},"paused":0,"paused-until":null,"held":null,"held-until":null,"groups":{"count":1,"looked-at":1,"eligible":1,"empty":0,"paused":0,"concurrency":0,"rate":0,"backoff":0,"probe":0,"throttled":0,"ordered":0},"workers":1,"live-workers":1,"stale-workers":0,"waiting-workers":1,"bytes":"#,
            r#","next-wakeup":1000030000,"totals":{"enqueued":2,"delivered":1,"#,
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        lab.apply(&Op::Pause { scope: Scope::Queue, length: Some(1_000) });
        assert!(
            json(&stats(lab.seen(), &nobody))
                .contains(r#""paused":1,"paused-until":1000001000,"held":"paused","held-until":1000001000"#)
        );
        lab.apply(&Op::Pause { scope: Scope::Queue, length: None });
        assert!(json(&stats(lab.seen(), &nobody)).contains(r#""paused":1,"paused-until":null"#));
        // Over, though nothing has happened to the queue since.
        lab.apply(&Op::Pause { scope: Scope::Queue, length: Some(200) });
        assert!(json(&stats(lab.seen(), &nobody)).contains(r#""paused":0,"paused-until":null"#));
    }

    #[test]
    fn a_worker() {
        let mut lab = Lab::new();
        lab.enqueue(b"j", None, JobOptions::default());
        lab.claim();
        let (seen, view) = (lab.seen(), lab.queue.worker(b"w").unwrap());
        assert_eq!(
            json(&worker(seen, &view, Some(50))),
            r#"{"name":"w","first-seen":1000000000,"last-seen":1000000000,"waiting-since":1000000200,"active":1,"done":0,"failed":0,"crashed":0,"stale":0}"#
        );
        let much_later = Seen { now: 310_001, wall: 1_000_300_001, ..seen };
        assert!(
            json(&worker(much_later, &view, None))
                .ends_with(r#""waiting-since":null,"active":1,"done":0,"failed":0,"crashed":0,"stale":1}"#)
        );
        assert!(json(&worker(much_later, &view, Some(1))).ends_with(r#""stale":0}"#));
    }

    #[test]
    fn groups_and_tenants() {
        const NAME: GroupName<'static> = GroupName { tenant: b"t", group: b"g" };
        let mut lab = Lab::new();
        let enqueue = Enqueue {
            payloads: Payloads::Many(vec![b"p"; 3]),
            id: None,
            unique: None,
            group: NAME,
            when: None,
            priority: 0,
            options: JobOptions::default(),
        };
        lab.apply(&Op::Enqueue(enqueue));
        let served = |lab: &Lab| json(&group(lab.seen(), lab.queue.group(NAME).unwrap()));
        assert_eq!(
            served(&lab),
            r#"{"group":"g","tenant":"t","delayed":0,"ready":3,"active":0,"done":0,"dead":0,"cancelled":0,"oldest-ready-age":250,"concurrency":"none","paused":0,"paused-until":null,"circuit-level":0,"circuit-until":null,"throttled":0,"throttled-until":null,"held":null,"held-by":null,"held-until":null}"#
        );
        let token = lab.claim();
        let id = lab.queue.job(lab.fx.claimed[0]).unwrap().arrival();
        let delivery = Delivery { id: Id::Serial(id), token };
        lab.apply(&Op::Fail { delivery, error: None, how: Failure::Throttled(2_000) });
        let text = served(&lab);
        for part in [
            r#""concurrency":1,"#,
            r#""throttled":1,"throttled-until":1000002000,"held":"throttled","held-by":"group","held-until":1000002000}"#,
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        lab.apply(&Op::Resume { scope: Scope::Group(NAME) });
        let rate = Rate { count: 1, period: 500, burst: 1 };
        let patch = GroupPatch {
            rate: Some(Some(Some(rate))),
            concurrency: Some(Some(None)),
            ordered: Some(Some(true)),
            ..GroupPatch::default()
        };
        lab.apply(&Op::SetGroup { name: NAME, patch });
        let text = json(&group_with_settings(lab.seen(), lab.queue.group(NAME).unwrap()));
        let end = r#""held":null,"held-by":null,"held-until":null,"settings":{"concurrency":"none","rate":[1,500,1],"backoff":[5000,3600000],"ordered":"yes"},"own":{"concurrency":"none","rate":[1,500,1],"ordered":"yes"}}"#;
        assert!(text.ends_with(end), "{text}");
        lab.apply(&Op::Pause { scope: Scope::Tenant(b"t"), length: Some(1_000) });
        let text = served(&lab);
        let held = r#""held":"paused","held-by":"tenant","held-until":1000001000}"#;
        assert!(text.ends_with(held) && text.contains(r#""paused":0"#), "{text}");
        assert_eq!(
            json(&tenant(lab.seen(), lab.queue.tenant(b"t").unwrap())),
            r#"{"tenant":"t","weight":1,"concurrency":"none","rate":"none","groups":1,"active":0,"paused":1,"paused-until":1000001000,"held":"paused","held-by":"tenant","held-until":1000001000}"#
        );
        // The nameless group has nothing to hand out.
        let nameless = lab.queue.group(GroupName::default()).unwrap();
        let text = json(&group(lab.seen(), nameless));
        assert!(text.starts_with(r#"{"group":null,"tenant":null,"#), "{text}");
        assert!(text.ends_with(r#""held":"empty","held-by":null,"held-until":null}"#), "{text}");
    }

    #[test]
    fn some_settings() {
        assert_eq!(
            json(&settings(&Settings::default())),
            r#"{"lease":30000,"attempts":3,"crashes":5,"backoff":[1000,3600000],"ttl":0,"resultttl":3600000,"deadttl":2592000000,"keepdone":"none","keepdead":10000,"maxlen":"none","maxoutput":1048576,"workerttl":300000,"concurrency":"none","rate":"none","group-concurrency":"none","group-rate":"none","group-backoff":[5000,3600000],"group-ordered":"no"}"#
        );
    }
}

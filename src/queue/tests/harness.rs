//! The queue and its model side by side, and all that must hold after every op.

use super::model::{Group, Job, Model, Note, Phase};
use crate::persist;
use crate::queue::{
    Effects, Emitted, Ended, Error, GroupName, Hold, Holder, Id, JobView, Observer, Op, Outcome, Place,
    Queue, SHOWN_BYTES_MAX, Settings, Slot, Slots, Stamp, Start, State,
};

/// The persisted form of a queue, chunk by chunk.
pub type Chunks = Vec<Vec<u8>>;

/// Fails the check with a text that shows both sides.
macro_rules! same {
    ($got:expr, $want:expr, $($what:tt)*) => {{
        let (got, want) = (&$got, &$want);
        if got != want {
            return Err(format!("{}:\n  queue {got:?}\n  model {want:?}", format_args!($($what)*)));
        }
    }};
}

pub fn save(queue: &Queue) -> Chunks {
    let mut chunks = Chunks::new();
    persist::save(queue, &mut |chunk: &[u8]| chunks.push(chunk.to_vec()));
    chunks
}

pub fn load(chunks: &Chunks) -> Result<Queue, String> {
    let mut loader = persist::Loader::default();
    for chunk in chunks {
        loader.push(chunk).map_err(|error| format!("{error:?}"))?;
    }
    loader.finish().map_err(|error| format!("{error:?}"))
}

/// Applies an op to a replica as it gets there: what has a form for it comes as bytes, the rest as the
/// user's own command.
pub fn apply_shipped(replica: &mut Queue, op: &Op<'_>, fx: &mut Effects<'_>) -> Result<(), String> {
    fx.clear();
    let result = match persist::encode_op(op) {
        Some(bytes) => match persist::decode(&bytes) {
            Ok(persist::Message::Op(decoded)) => {
                if decoded != *op {
                    return Err(format!("{op:?} was shipped as {decoded:?}"));
                }
                replica.apply(&decoded, fx)
            }
            other => return Err(format!("{op:?} was shipped as {:?}", other.map(|_| "something else"))),
        },
        None => replica.apply(op, fx),
    };
    match result {
        Ok(_) => replica.audit().map_err(|error| format!("audit of the replica: {error}")),
        Err(error) => Err(format!("the replica refused {op:?}: {error:?}")),
    }
}

/// What came of an op, the same for queue and model.
#[derive(Clone, Debug)]
pub struct Answer {
    pub result: Result<Outcome, Error>,
    /// Whether anything changed that is persisted.
    pub changed: bool,
    /// Whether a replica needs the clock first.
    pub moved_clock: bool,
    /// What a claim handed out.
    pub claimed: Slots,
    /// What ended.
    pub notes: Vec<Note>,
}

/// An op as people can read it: bytes as text, and none of them 512 times.
pub fn show(op: &Op<'_>) -> String {
    let (mut shown, text) = (String::new(), format!("{op:?}"));
    let mut rest = text.as_str();
    while let Some(open) = rest.find('[') {
        let (before, list) = rest.split_at(open);
        shown.push_str(before);
        let inside = &list[1..list.find(']').unwrap_or(list.len())];
        let bytes: Option<Vec<u8>> = inside.split(", ").map(|number| number.parse().ok()).collect();
        match bytes {
            Some(bytes) => {
                let more = if bytes.len() > 20 { format!("...{} bytes", bytes.len()) } else { String::new() };
                shown.push_str(&format!("\"{}\"{more}", bytes[..bytes.len().min(20)].escape_ascii()));
                rest = &list[inside.len() + 2..];
            }
            None => {
                shown.push('[');
                rest = &list[1..];
            }
        }
    }
    shown.push_str(rest);
    shown
}

#[derive(Default)]
struct Recorder(Vec<Note>);

impl Observer for Recorder {
    fn ended(&mut self, ended: &Ended<'_>) {
        let mut buffer = [0; SHOWN_BYTES_MAX];
        self.0.push(Note::Ended {
            id: ended.id.write(&mut buffer).to_vec(),
            run: ended.run,
            state: ended.state,
            value: ended.value.map(<[u8]>::to_vec),
            ttl: ended.ttl,
        });
    }

    fn emitted(&mut self, emitted: &Emitted<'_>) {
        let id = emitted.id.write(&mut [0; SHOWN_BYTES_MAX]).to_vec();
        self.0.push(Note::Emitted { id, place: emitted.place, chunk: emitted.chunk.to_vec() });
    }

    fn restarted(&mut self, id: Id<'_>, run: u64) {
        self.0.push(Note::Restarted { id: id.write(&mut [0; SHOWN_BYTES_MAX]).to_vec(), run });
    }
}

#[derive(Clone)]
pub struct Twin {
    pub queue: Queue,
    pub model: Model,
    /// The saved form of the queue as it stands.
    pub bytes: Chunks,
}

impl Twin {
    pub fn new(settings: Settings, stamp: Stamp) -> Self {
        let queue = Queue::new(settings, stamp);
        let bytes = save(&queue);
        Self { queue, model: Model::new(settings, stamp), bytes }
    }

    /// Applies an op to both. `Err` says where they differ, or which promise is broken.
    pub fn apply(&mut self, op: &Op<'_>) -> Result<Answer, String> {
        self.run(None, op)
    }

    /// The same at the clock of a stamp, as commands do it.
    pub fn apply_at(&mut self, stamp: Stamp, op: &Op<'_>) -> Result<Answer, String> {
        self.run(Some(stamp), op)
    }

    fn run(&mut self, stamp: Option<Stamp>, op: &Op<'_>) -> Result<Answer, String> {
        let mut recorder = Recorder::default();
        let mut fx = Effects { observer: Some(&mut recorder), ..Effects::default() };
        self.queue.take_soonest();
        let due_before = self.queue.next_wakeup().unwrap_or(u64::MAX);
        let got = match stamp {
            Some(stamp) => self.queue.apply_at(stamp, op, &mut fx),
            None => self.queue.apply(op, &mut fx).map(|outcome| (outcome, false)),
        };
        let (changed, claimed) = (fx.changed, fx.claimed);
        let (soonest, due) = (self.queue.take_soonest(), self.queue.next_wakeup().unwrap_or(u64::MAX));
        // What is overdue may be told as any instant that has passed.
        if due.max(self.queue.now()) < due_before.min(soonest) {
            return Err(format!("due at {due}, which is sooner than {due_before} and {soonest}"));
        }

        let before = self.model.clock();
        if let Some(stamp) = stamp {
            self.model
                .apply(&Op::Clock(stamp))
                .map_err(|error| format!("a clock is never refused, but: {error:?}"))?;
        }
        let ticked = self.model.clone();
        let want = self.model.apply(op);
        // While a sweep is still to look at groups after a change of defaults, a claim may move some out of
        // line, and is taken for a change whether it does or not.
        let in_review = ticked.review.is_some() && matches!(op, Op::Claim(_));
        let should_change = in_review || !self.model.is_same_as(&ticked);
        if want.is_err() && !self.model.is_same_as(&ticked) {
            return Err("the model changed in spite of its error".into());
        }
        let should_move = stamp.is_some() && should_change && ticked.clock() != before;
        if stamp.is_some() && !should_change {
            self.model.set_clock(before);
        }

        let moved_clock = matches!(got, Ok((_, true)));
        let got = got.map(|(outcome, _)| outcome);
        same!(got, want, "outcome");
        if got.is_err() && changed {
            return Err("changed in spite of its error".into());
        }
        same!(moved_clock, should_move, "clock moved");
        same!(changed, should_change, "changed");
        let arrivals: Vec<Option<u64>> =
            claimed.iter().map(|&slot| self.queue.job(slot).map(|job| job.arrival().0)).collect();
        same!(arrivals, self.model.claimed.iter().copied().map(Some).collect::<Vec<_>>(), "handed out");
        same!(recorder.0, self.model.notes, "observer was told");

        let bytes = save(&self.queue);
        if (bytes != self.bytes) != changed && !in_review {
            return Err(format!("said changed: {changed}, but the saved bytes say otherwise"));
        }
        self.bytes = bytes;
        self.check()?;
        Ok(Answer { result: got, changed, moved_clock, claimed, notes: recorder.0 })
    }

    /// Saves the queue, loads it again, and goes on with what was loaded.
    pub fn reload(&mut self) -> Result<(), String> {
        self.queue = load(&self.bytes).map_err(|error| format!("own bytes do not load: {error}"))?;
        if save(&self.queue) != self.bytes {
            return Err("other bytes when saved, loaded and saved again".into());
        }
        self.check()
    }

    /// Listings page by page: each job once, in order, whatever the size of the page.
    pub fn check_pages(&self, size: usize) -> Result<(), String> {
        let page_through = |state: State, worker: Option<&[u8]>| {
            let (mut after, mut slots) = (None, Vec::new());
            loop {
                let page = self.queue.list(state, worker, after, size);
                if page.jobs.len() > size || (page.jobs.is_empty() && page.next.is_some()) {
                    return Err(format!(
                        "a page of {} for {size} with next {:?}",
                        page.jobs.len(),
                        page.next
                    ));
                }
                slots.extend(page.jobs);
                match page.next {
                    Some(next) => after = Some(next),
                    None => return Ok(slots),
                }
            }
        };
        for state in State::ALL {
            let whole = self.queue.list(state, None, None, usize::MAX).jobs;
            same!(page_through(state, None)?, whole, "pages of {state:?}");
        }
        for worker in &self.model.workers {
            let whole = self.queue.list(State::Active, Some(&worker.name), None, usize::MAX).jobs;
            same!(page_through(State::Active, Some(&worker.name))?, whole, "pages of a worker");
        }
        Ok(())
    }

    /// Every fact that can be seen of the queue is what the model says, and the audit agrees.
    pub fn check(&self) -> Result<(), String> {
        let (queue, model) = (&self.queue, &self.model);
        queue.audit().map_err(|error| format!("audit: {error}"))?;
        same!(queue.now(), model.now, "now");
        same!(queue.wall(), model.wall, "wall");
        same!(queue.last_serial().0, model.serial, "last serial");
        same!(*queue.settings(), model.settings, "settings");
        same!(*queue.totals(), model.totals, "totals");
        same!(queue.paused_until(), model.paused_until.filter(|&until| until > model.now), "paused until");
        // What is overdue may be told as any instant that has passed.
        let wakeup = |at: Option<u64>| at.map(|at| at.max(model.now));
        same!(wakeup(queue.next_wakeup()), wakeup(model.next_wakeup()), "next wakeup");
        // The clocks may have moved since the last change, the wall clock back or forth.
        for (now, wall) in
            [(model.now + 7, model.wall.saturating_sub(3_600_000)), (model.now, model.wall + 3_600_000)]
        {
            let (got, want) = (queue.next_wakeup_at(now, wall), model.next_wakeup_at(now, wall));
            same!(got.map(|at| at.max(now)), want.map(|at| at.max(now)), "next wakeup at {now}, wall {wall}");
        }

        let mut held = 0;
        for state in State::ALL {
            let order = model.list(state);
            same!(queue.count(state), order.len(), "count of {state:?}");
            held += order.len();
            let page = queue.list(state, None, None, usize::MAX);
            same!(page.next, None, "one page of {state:?}");
            let listed: Vec<_> =
                page.jobs.iter().map(|&slot| queue.job(slot).map(|job| job.arrival().0)).collect();
            let arrivals: Vec<_> = order.iter().map(|&at| Some(model.jobs[at].arrival)).collect();
            same!(listed, arrivals, "order of {state:?}");
            for (&slot, &at) in page.jobs.iter().zip(&order) {
                self.check_job(slot, at)?;
            }
        }
        same!(queue.waiting(), model.waiting(), "waiting");
        let totals = queue.totals();
        same!(
            totals.enqueued,
            held as u64 + totals.removed,
            "I9: all that arrived is somewhere or was removed"
        );

        let ready = model.list(State::Ready);
        same!(queue.oldest_ready(), ready.iter().map(|&at| model.jobs[at].since).min(), "oldest ready");
        let next = model.first_in_line().filter(|_| model.hold_of_queue(model.now).is_none());
        let next = next.map(|at| model.jobs[at].crashes > 0);
        same!(
            queue.next_at(queue.now()).map(|next| next.lapsed_before),
            next,
            "next, and whether it lapsed before"
        );

        self.check_recent()?;
        self.check_groups()?;
        same!(queue.worker_count(), model.workers.len(), "workers");
        for (seen, worker) in queue.workers().zip(&model.workers) {
            let held = model.held_by(&worker.name);
            same!(seen.name, worker.name.as_slice(), "worker");
            same!(seen.first_seen, worker.first_seen, "first seen");
            same!(seen.active, held.len(), "held by {:?}", worker.name);
            same!(
                (seen.done, seen.failed, seen.crashed),
                (worker.done, worker.failed, worker.crashed),
                "done, failed, crashed"
            );
            same!(queue.worker(&worker.name), Some(seen), "the same worker by name");
            let page = queue.list(State::Active, Some(&worker.name), None, usize::MAX);
            let listed: Vec<_> =
                page.jobs.iter().map(|&slot| queue.job(slot).map(|job| job.arrival().0)).collect();
            let arrivals: Vec<_> = held.iter().map(|&at| Some(model.jobs[at].arrival)).collect();
            same!(listed, arrivals, "order of those held by {:?}", worker.name);
        }
        Ok(())
    }

    /// What happened lately, as seen now and later.
    fn check_recent(&self) -> Result<(), String> {
        let (queue, model) = (&self.queue, &self.model);
        for now in [0, 7, 59_999, 70_001, 240_000, 300_000, 900_000].map(|later| model.now + later) {
            for minutes in [1, 5, 15] {
                same!(
                    queue.events_in(now, minutes),
                    model.events_in(now, minutes),
                    "events of {minutes} minutes at {now}"
                );
            }
            let (waits, runs) = queue.waits_and_runs(now);
            for (name, histogram, lengths) in [waits, runs]
                .into_iter()
                .zip(model.waits_and_runs(now))
                .zip(["waits", "runs"])
                .map(|((histogram, lengths), name)| (name, histogram, lengths))
            {
                same!(histogram.count(), lengths.len() as u64, "number of {name} at {now}");
                same!(histogram.max(), lengths.last().copied(), "longest of {name} at {now}");
                for percent in [50, 90, 99] {
                    let rank = (lengths.len() * percent as usize).div_ceil(100).saturating_sub(1);
                    let (got, want) = (histogram.percentile(percent), lengths.get(rank).copied());
                    // All from half a year on share the last range.
                    let is_near = match (got, want) {
                        (Some(got), Some(want)) => {
                            got >= want && (got - want <= want / 8 || want >= 15 << 30)
                        }
                        (got, want) => got == want,
                    };
                    if !is_near {
                        return Err(format!("p{percent} of {name} at {now}: {got:?} for {want:?}"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Groups and tenants, and why they are not served, now and later.
    fn check_groups(&self) -> Result<(), String> {
        let (queue, model) = (&self.queue, &self.model);
        let instants = [model.now, model.now + 7, model.now + 10_000];
        for now in instants {
            same!(queue.hold_at(now), model.hold_of_queue(now), "hold of the queue at {now}");
        }
        same!(queue.group_count(), model.groups.len(), "groups");
        same!(queue.eligible_groups(), model.groups_in_line(), "groups in line");
        for now in instants {
            let census = queue.census(now, usize::MAX);
            let (mut eligible, mut held) = (0, [0; Hold::NAMES.len()]);
            let ready = |group: &&Group| !model.jobs_of(&group.name, State::Ready).is_empty();
            for group in model.groups.iter().filter(ready) {
                match model.hold_of(group, now).filter(|&(_, holder)| holder != Holder::Queue) {
                    None => eligible += 1,
                    Some((hold, _)) => held[hold.index()] += 1,
                }
            }
            let empty = model.groups.len() - model.groups.iter().filter(ready).count();
            same!(census.looked_at, model.groups.len(), "groups looked at");
            same!((census.eligible, census.empty), (eligible, empty), "eligible and empty groups at {now}");
            same!(census.held, held, "held groups at {now}");
            same!(census.oldest_ready, queue.oldest_ready(), "oldest ready of the census");
        }
        for (view, group) in queue.groups_after(None).zip(&model.groups) {
            let name = GroupName { tenant: &group.name.0, group: &group.name.1 };
            same!(view.name(), name, "name of a group");
            same!(view.born(), group.born, "birth of {name:?}");
            same!(*view.own_settings(), group.own, "own settings of {name:?}");
            same!(view.settings(), model.terms(group), "settings of {name:?}");
            same!(view.concurrency(), model.concurrency(group), "concurrency of {name:?}");
            for state in State::ALL {
                same!(
                    view.count(state),
                    model.jobs_of(&group.name, state).len(),
                    "{state:?} jobs of {name:?}"
                );
            }
            let gate = view.gate();
            same!(gate.active as usize, view.count(State::Active), "active jobs of {name:?}");
            same!(gate.paused_until, group.paused_until, "pause of {name:?}");
            same!(gate.bucket, group.bucket, "rate of {name:?}");
            let circuit = view.circuit();
            let probe = Some(circuit.probe.0).filter(|&probe| probe > 0);
            same!(
                (circuit.level, circuit.until, probe),
                (group.circuit.level, group.circuit.until, group.circuit.probe),
                "circuit of {name:?}"
            );
            same!(
                view.throttle().map(|throttle| (throttle.until, throttle.limit, throttle.goal)),
                group.throttle.as_ref().map(|throttle| (throttle.until, throttle.limit, throttle.goal)),
                "throttle of {name:?}"
            );
            let ready = model.jobs_of(&group.name, State::Ready);
            let oldest = ready.iter().map(|&at| model.jobs[at].since).min();
            same!(view.oldest_ready(), oldest, "oldest ready of {name:?}");
            for now in instants {
                same!(view.hold_at(now), model.hold_of(group, now), "hold of {name:?} at {now}");
            }
            same!(queue.group(name).map(|view| view.born()), Some(group.born), "look-up of {name:?}");
        }
        for tenant in &model.tenants {
            let name = tenant.name.as_slice();
            let view = queue.tenant(name).ok_or_else(|| format!("tenant {name:?} is not there"))?;
            same!(view.name(), name, "name of a tenant");
            same!(*view.settings(), tenant.settings, "settings of tenant {name:?}");
            same!(view.gate().active as usize, model.active_of_tenant(name), "active of tenant {name:?}");
            same!(view.gate().paused_until, tenant.paused_until, "pause of tenant {name:?}");
            same!(view.gate().bucket, tenant.bucket, "rate of tenant {name:?}");
            let groups = model.groups.iter().filter(|group| group.name.0 == name).count();
            same!(view.group_count(), groups, "groups of tenant {name:?}");
            for now in instants {
                let hold = view.hold_at(now).filter(|&(_, holder)| holder == Holder::Tenant);
                let hold = hold.map(|(hold, _)| hold);
                same!(hold, model.hold_of_tenant(tenant, now), "hold of tenant {name:?} at {now}");
            }
        }
        same!(queue.tenant_records().count(), model.tenants.len(), "tenants");
        let (mut from, mut names) = (Some(0), Vec::new());
        while let Some(born) = from {
            let (next, page) = queue.list_tenants(born, 2);
            names.extend(page.iter().map(|tenant| tenant.name()));
            from = next;
        }
        same!(names, model.tenants.iter().map(|tenant| &*tenant.name).collect::<Vec<_>>(), "list of tenants");
        Ok(())
    }

    /// What was put out, page by page, from everywhere.
    fn check_output(&self, view: JobView<'_>, job: &Job) -> Result<(), String> {
        let (id, output) = (job.id(), &job.output);
        same!(
            view.output(),
            (output.len(), output.iter().map(Vec::len).sum()),
            "size of the output of {id:?}"
        );
        for (run, ahead) in [(job.run(), false), (job.run() + 1, true), (job.run().saturating_sub(1), true)] {
            for number in 0..output.len() as u64 + 2 {
                let reading = view.read(Start::Place(Place { run, number }), 3);
                let from = if run == job.run() { number } else { 0 };
                let rest = output.get(from as usize..).unwrap_or_default();
                let chunks = &rest[..rest.len().min(3)];
                same!(reading.from, Place { run: job.run(), number: from }, "place in {id:?}");
                same!(reading.chunks, chunks, "output of {id:?} from {from}");
                let next = Place { run: job.run(), number: from + chunks.len() as u64 };
                same!(reading.next(), next, "where to go on in {id:?}");
                let is_end = chunks.len() == rest.len();
                let ended = Some(job.state()).filter(|state| is_end && state.is_final());
                same!(reading.ended, ended, "end of the output of {id:?}");
                let is_news = run != job.run() || !chunks.is_empty() || ended.is_some();
                same!(reading.is_news(Place { run, number }), is_news, "news of {id:?}");
                if ahead {
                    break;
                }
                same!(view.read(Start::Number(number), 3), reading, "output of {id:?} by number");
            }
        }
        Ok(())
    }

    fn check_job(&self, slot: Slot, at: usize) -> Result<(), String> {
        let (queue, model, job) = (&self.queue, &self.model, &self.model.jobs[at]);
        let view = queue.job(slot).ok_or("a listed job is not there")?;
        let id = job.id();
        same!(view.id(), id, "id");
        same!(queue.find(id), Some(slot), "look-up of {id:?}");
        same!(view.arrival().0, job.arrival, "arrival of {id:?}");
        let group = GroupName { tenant: &job.group.0, group: &job.group.1 };
        same!(view.group(), group, "group of {id:?}");
        same!(view.state(), job.state(), "state of {id:?}");
        same!(view.payload(), job.payload.as_slice(), "payload of {id:?}");
        same!(view.priority(), job.priority, "priority of {id:?}");
        same!(view.options(), job.options, "options of {id:?}");
        same!(view.key(), job.unique.as_ref().map(|unique| unique.key.as_slice()), "key of {id:?}");
        same!(
            view.locks_until(),
            job.unique.as_ref().map(|unique| unique.until),
            "end of the lock of {id:?}"
        );
        same!(view.locks_for(), job.window_end(), "window of {id:?}");
        for now in [model.now, model.now + 7, model.now + 10_000] {
            same!(view.locks(now), job.locks(now), "whether {id:?} locks its key at {now}");
        }
        same!(view.token().0, job.token, "token of {id:?}");
        same!(view.deliveries(), job.deliveries, "deliveries of {id:?}");
        same!(view.attempts(), job.attempts, "attempts of {id:?}");
        same!(view.crashes(), job.crashes, "crashes of {id:?}");
        same!(view.attempts_allowed(), model.attempts_allowed(job), "attempts allowed of {id:?}");
        same!(view.crashes_allowed(), model.crashes_allowed(job), "crashes allowed of {id:?}");
        same!(view.enqueued(), job.enqueued, "enqueued of {id:?}");
        same!(view.due(), model.due(job), "due of {id:?}");
        same!(view.deadline(), job.deadline(), "deadline of {id:?}");
        same!(view.is_cancelling(), job.is_cancelling(), "cancelling of {id:?}");
        same!(view.value(), job.value(), "value of {id:?}");
        self.check_output(view, job)?;
        same!(view.error(), job.error.as_deref(), "error of {id:?}");
        same!(view.reason(), job.reason, "reason of {id:?}");
        let last: Vec<u64> = job.failures.iter().rev().take(5).rev().copied().collect();
        same!(view.failures().collect::<Vec<_>>(), last, "failures of {id:?}");
        let (mut since, mut lease_until, mut claimed, mut ended, mut ttl, mut worker) =
            (None, None, None, None, None, None);
        match &job.phase {
            Phase::Delayed { keeps_place: false, .. } => {}
            Phase::Delayed { .. } | Phase::Ready => since = Some(job.since),
            Phase::Active { worker: name, until, claimed: from, .. } => {
                (since, lease_until, claimed) = (Some(job.since), Some(*until), Some(*from));
                worker = Some(name.as_slice());
            }
            Phase::Final { ended: from, until, .. } => {
                ended = Some(*from);
                ttl = until.map(|until| until.saturating_sub(model.now));
                worker = job.last_worker.as_deref();
            }
        }
        same!(view.since(), since, "since of {id:?}");
        same!(view.lease_until(), lease_until, "lease of {id:?}");
        same!(view.claimed(), claimed, "claimed of {id:?}");
        same!(view.ended(), ended, "ended of {id:?}");
        same!(view.ttl(), ttl, "ttl of {id:?}");
        same!(view.worker(), worker, "worker of {id:?}");
        Ok(())
    }
}

//! The independent checker: from what the clients wrote down, and from what the server shows after a crash, it proves that
//! nothing was lost, done twice, or handed to two at once beyond what the set-up allows. It knows no queue but from the
//! documentation, and nothing of how the module works.
//!
//! A crash keeps the calls up to some cut: with each job that shows itself after it, or does not, one more bound of that
//! cut is known. What was answered before the set-up's limit must be on its near side; and the bounds must not contradict
//! each other, whatever the limit.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::load::SHARED;
use super::log::{
    Accepted, Act, Entry, Got, Moment, NEVER, Order, Own, Said, Serial, Span, Tag, What, Who, family, serial,
};
use super::{DEFAULT_LEASE, DEFAULT_RESULT_TTL};

/// Clocks are shown in ms, and go on across a restart by another clock. In µs.
const TOLERANCE: Moment = 6_000;

/// How late a lease or a delay may be settled, in ms; on a machine that does other things too.
const LATE_MS: i64 = 10_000;

/// Most faults that are told of one run.
const TOLD: usize = 12;

/// What a crash may have taken.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// What was answered before this must have been kept.
    pub kept_before: Moment,
    /// Nothing that was sent after this can have been kept.
    pub kept_until: Moment,
}

/// What the server shows, with writes held up so that it shows one moment.
#[derive(Debug)]
pub struct Audit {
    /// When that moment was, at the earliest and at the latest.
    pub from: Moment,
    pub to: Moment,
    /// The server's clock then, Unix ms.
    pub unix_ms: i64,
    pub jobs: Vec<Seen>,
    /// By the first letter of the queue's name.
    pub totals: BTreeMap<char, Totals>,
}

/// A job as `RQ.JOB` shows it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub id: String,
    pub state: String,
    /// Whose payload it has; `None`: nobody's.
    pub tag: Option<Tag>,
    pub deliveries: i64,
    pub attempts: i64,
    pub attempts_allowed: i64,
    pub crashes: i64,
    pub crashes_allowed: i64,
    pub token: Option<Serial>,
    pub cancelling: bool,
    pub reason: Option<String>,
    pub result: Option<String>,
    /// ms until it is forgotten; -1: never.
    pub ttl: i64,
    /// When the lease of an active job ends, or a delayed one comes due, Unix ms.
    pub due: Option<i64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub enqueued: i64,
    pub delivered: i64,
    pub done: i64,
    pub removed: i64,
}

/// One life of a job, from an enqueueing call to its removal.
struct Life {
    queue: char,
    id: Option<String>,
    enqueued: Span,
    /// Whether it is certain that the call made it.
    sure: bool,
    order: Order,
    /// What was seen of it after the last crash, and when.
    base: Option<(Seen, Moment)>,
    /// By token, so in the order in which they were made. Only since the last crash, and the one that was current then.
    deliveries: BTreeMap<Serial, Delivery>,
    cancels: Vec<(Span, Said)>,
    rescheduled: bool,
}

struct Delivery {
    worker: String,
    number: i64,
    span: Span,
    /// In ms.
    lease: u64,
    acts: Vec<(Span, Act, Said)>,
    /// Made before the last crash: its lease ends at this moment, or later.
    carried: Option<Moment>,
}

impl Delivery {
    /// The earliest moment at which its lease can have ended, if only calls before `until` are looked at.
    fn lease_end(&self, life: &Life, until: Moment) -> Moment {
        let begin = self.span.sent.max(life.enqueued.sent);
        let mut end = self.carried.unwrap_or(begin + self.lease * 1_000);
        for (span, act, said) in &self.acts {
            if let Act::Extend { lease } = act
                && span.sent < until
            {
                let extended = span.sent + lease * 1_000;
                match said {
                    Said::Yes(_) => end = extended,
                    Said::NoReply => end = end.min(extended),
                    _ => {}
                }
            }
        }
        end
    }

    /// The calls that may have ended it.
    fn endings(&self) -> impl Iterator<Item = &(Span, Act, Said)> {
        self.acts.iter().filter(|(_, act, said)| act.ends() && said.may_be())
    }
}

/// Who has a serial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Id(Tag),
    /// Given to a client that wrote it down.
    Token(Tag),
    /// Only shown by the server: its client's reply was lost.
    Shown(Tag),
}

/// What is known of the cut that a crash made.
#[derive(Default)]
struct Cut {
    /// The server ran a call that was sent at this moment, and kept it.
    kept: (Moment, String),
    /// It did not keep a call that was answered at this moment.
    lost: Option<(Moment, String)>,
    /// How much of what was answered before the crash was lost, µs.
    oldest_lost: Option<Moment>,
}

impl Cut {
    fn keeps(&mut self, sent: Moment, what: impl Fn() -> String) {
        if sent > self.kept.0 {
            self.kept = (sent, what());
        }
    }

    fn loses(&mut self, answered: Moment, what: impl Fn() -> String) {
        if self.lost.as_ref().is_none_or(|(known, _)| answered < *known) {
            self.lost = Some((answered, what()));
        }
    }
}

/// Counted over a whole run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    pub calls: u64,
    pub jobs: u64,
    pub deliveries: u64,
    pub acknowledged: u64,
    pub rolled_back: u64,
    /// The longest time before a crash from which something answered was lost, µs.
    pub longest_loss: Moment,
}

#[derive(Default)]
pub struct Checker {
    lives: HashMap<Tag, Life>,
    by_id: HashMap<String, Vec<Tag>>,
    serials: HashMap<Serial, Owner>,
    /// The greatest serial that the server showed after the last crash: what it gives out later is greater.
    ceiling: Serial,
    recovers: Vec<(char, Who, Span)>,
    redrives: Vec<(char, Span)>,
    purges: Vec<(char, &'static str, Span, Option<HashSet<String>>)>,
    totals: BTreeMap<char, Totals>,
    pub figures: Figures,
    pub faults: Vec<String>,
}

impl Checker {
    pub fn fault(&mut self, text: String) {
        if self.faults.len() < TOLD {
            self.faults.push(text);
        }
    }

    fn own(&mut self, serial: Serial, owner: Owner) {
        let old = self.serials.insert(serial, owner);
        let fits = match (old, owner) {
            (None, Owner::Shown(_)) => return,
            (None, _) => {
                if serial <= self.ceiling {
                    self.fault(format!("{} was given out below {}", shown(serial), shown(self.ceiling)));
                }
                return;
            }
            (Some(old), new) if old == new => !matches!(new, Owner::Token(_)),
            (Some(Owner::Token(old)), Owner::Shown(new)) => {
                self.serials.insert(serial, Owner::Token(old));
                old == new
            }
            _ => false,
        };
        if !fits {
            self.fault(format!("{} was given out twice: {old:?}, {owner:?}", shown(serial)));
        }
    }

    /// Takes in what the clients wrote down between two crashes.
    pub fn take(&mut self, mut entries: Vec<Entry>) {
        entries.sort_by_key(|entry| entry.span.sent);
        self.figures.calls += u64::try_from(entries.len()).unwrap_or_default();
        // First what makes jobs, then what hands them out, then the rest: no entry is taken before what it speaks of.
        let mut later = Vec::new();
        let mut claims = Vec::new();
        for entry in entries {
            match entry.what {
                What::Enqueue { queue, order, jobs, said } => {
                    self.take_enqueue(entry.span, &queue, &order, &jobs, &said);
                }
                What::Claim { worker, lease, got } => claims.push((entry.span, worker, lease, got)),
                _ => later.push(entry),
            }
        }
        for (span, worker, lease, got) in claims {
            for got in got {
                self.take_delivery(span, &worker, lease, &got);
            }
        }
        let mut results = Vec::new();
        for Entry { span, what } in later {
            match what {
                What::Act { tag, token, act, said } => self.take_act(span, tag, token, act, said),
                What::Cancel { id, said } => {
                    self.each_of(&id, |life| life.cancels.push((span, said.clone())))
                }
                What::Reschedule { id } => self.each_of(&id, |life| life.rescheduled = true),
                What::Recover { queue, who } => self.recovers.push((family(&queue), who, span)),
                What::Redrive { queue } => self.redrives.push((family(&queue), span)),
                What::Purge { queue, state, ids } => {
                    self.purges.push((family(&queue), state, span, ids.map(HashSet::from_iter)));
                }
                What::Result { tag, state, value } => results.push((span, tag, state, value)),
                What::Odd(text) => self.fault(text),
                What::Save | What::Saved { .. } | What::Enqueue { .. } | What::Claim { .. } => {}
            }
        }
        for (span, tag, state, value) in results {
            self.check_result(span, tag, &state, value.as_deref());
        }
        let tags: Vec<Tag> = self.lives.keys().copied().collect();
        for tag in tags {
            if let Some(fault) = self.check_life(tag) {
                self.fault(fault);
            }
        }
    }

    fn each_of(&mut self, id: &str, mut change: impl FnMut(&mut Life)) {
        for tag in self.by_id.get(id).cloned().unwrap_or_default() {
            if let Some(life) = self.lives.get_mut(&tag) {
                change(life);
            }
        }
    }

    fn take_enqueue(&mut self, span: Span, queue: &str, order: &Order, jobs: &[Tag], said: &Accepted) {
        let ids = match said {
            Accepted::Refused => return,
            Accepted::Ids(ids) => ids.iter().map(Some).collect(),
            Accepted::NoReply => vec![None; jobs.len()],
        };
        if ids.len() != jobs.len() {
            self.fault(format!("{} ids for {} jobs", ids.len(), jobs.len()));
        }
        let own = order.own.as_ref();
        for (id, &tag) in ids.into_iter().zip(jobs) {
            if let (Some(id), None) = (id, own) {
                match serial(id) {
                    Some(number) => self.own(number, Owner::Id(tag)),
                    None => self.fault(format!("{id} is no id")),
                }
            }
            // With IFNEW, it may be the job that was there before.
            let sure = id.is_some() && own.is_none_or(|(_, how)| *how != Own::IfNew);
            self.figures.jobs += u64::from(sure);
            let id = own.map(|(id, _)| id.clone()).or(id.cloned());
            if let Some(id) = &id {
                self.by_id.entry(id.clone()).or_default().push(tag);
            }
            let life = Life {
                queue: family(queue),
                id,
                enqueued: span,
                sure,
                order: order.clone(),
                base: None,
                deliveries: BTreeMap::new(),
                cancels: Vec::new(),
                rescheduled: false,
            };
            self.lives.insert(tag, life);
        }
    }

    fn take_delivery(&mut self, span: Span, worker: &str, lease: Option<u64>, got: &Got) {
        self.figures.deliveries += 1;
        self.own(got.token, Owner::Token(got.tag));
        let Some(life) = self.lives.get_mut(&got.tag) else {
            return self.fault(format!("{} was delivered, and was never enqueued, or is long gone", got.id));
        };
        if life.id.as_ref().is_some_and(|id| *id != got.id) || life.queue != family(&got.queue) {
            let text =
                format!("{:?} in {} was delivered as {} from {}", life.id, life.queue, got.id, got.queue);
            return self.fault(text);
        }
        if life.id.is_none() {
            life.id = Some(got.id.clone());
            self.by_id.entry(got.id.clone()).or_default().push(got.tag);
        }
        let lease = lease.or(life.order.lease).unwrap_or(DEFAULT_LEASE);
        let delivery = Delivery {
            worker: worker.into(),
            number: got.number,
            span,
            lease,
            acts: Vec::new(),
            carried: None,
        };
        life.deliveries.insert(got.token, delivery);
    }

    fn take_act(&mut self, span: Span, tag: Tag, token: Serial, act: Act, said: Said) {
        if said.is_yes() && matches!(act, Act::Ack { .. }) {
            self.figures.acknowledged += 1;
        }
        match self.lives.get_mut(&tag).map(|life| life.deliveries.get_mut(&token)) {
            Some(Some(delivery)) => delivery.acts.push((span, act, said)),
            // A delivery from before the last crash, which was not current any more after it.
            _ if said.is_yes() => {
                let why = self.lives.get(&tag).map(|life| (&life.id, &life.base));
                self.fault(format!(
                    "{act:?} with the old token {} was accepted: {said:?}; {why:?}",
                    shown(token)
                ));
            }
            _ => {}
        }
    }

    fn check_result(&mut self, span: Span, tag: Tag, state: &str, value: Option<&str>) {
        let Some(life) = self.lives.get(&tag) else { return };
        let acks = || {
            life.deliveries.iter().flat_map(|(token, delivery)| {
                delivery.acts.iter().filter_map(|(span, act, said)| match act {
                    Act::Ack { value, ttl } if said.may_be() => {
                        Some((*span, value.then(|| shown(*token)), *ttl, said.is_yes()))
                    }
                    _ => None,
                })
            })
        };
        let id = &life.id;
        if state == "done" {
            let fits = acks().any(|(ack, told, _, _)| ack.sent < span.end() && told.as_deref() == value)
                || life
                    .base
                    .as_ref()
                    .is_some_and(|(seen, _)| seen.state == "done" && seen.result.as_deref() == value);
            if !fits {
                self.fault(format!("{id:?} is said to be done with {value:?}, which nobody said"));
            }
        } else if let Some((ack, ..)) = acks().find(|(ack, _, _, sure)| *sure && ack.end() < span.sent)
            && life.cancels.is_empty()
            && !life.base.as_ref().is_some_and(|(seen, _)| seen.cancelling)
        {
            self.fault(format!("{id:?} was acknowledged at {ack:?}, and is {state} at {span:?}"));
        }
    }

    /// What is wrong with what happened to a job between two crashes.
    fn check_life(&self, tag: Tag) -> Option<String> {
        let life = self.lives.get(&tag)?;
        if life.deliveries.is_empty() {
            return None;
        }
        let id = &life.id;
        let base_state = life.base.as_ref().map_or("", |(seen, _)| seen.state.as_str());
        let mut number = life.base.as_ref().map_or(0, |(seen, _)| seen.deliveries);
        let mut acks = 0;
        let mut before: Option<(&Serial, &Delivery)> = None;
        for (token, delivery) in &life.deliveries {
            let text = || format!("{id:?}, delivery {} with {}", delivery.number, shown(*token));
            if delivery.carried.is_none() {
                if delivery.number <= number {
                    return Some(format!("{}: there was a delivery {number} before", text()));
                }
                number = delivery.number;
                let redriven = self.redrives.iter().any(|(queue, _)| *queue == life.queue);
                if base_state == "done" || base_state == "cancelled" || base_state == "dead" && !redriven {
                    return Some(format!("{}: it was {base_state} before", text()));
                }
                if life.base.as_ref().is_some_and(|(seen, _)| seen.cancelling) {
                    return Some(format!("{}: it was to be cancelled", text()));
                }
                let cancelled = life.cancels.iter().find(|(span, said)| {
                    matches!(said, Said::Yes(word) if word == "cancelled" || word == "cancelling")
                        && span.end() < delivery.span.sent
                        && life.order.own.is_none()
                });
                if let Some((span, said)) = cancelled {
                    return Some(format!("{}: {said:?} to its cancel, {span:?}", text()));
                }
                let due = life.enqueued.sent + life.order.delay * 1_000;
                if life.base.is_none() && !life.rescheduled && delivery.span.end() + TOLERANCE < due {
                    return Some(format!("{}: {} µs too early", text(), due - delivery.span.end()));
                }
            }
            if let Some((old_token, old)) = before
                && let Some(fault) = self.check_handover(life, old, delivery)
            {
                return Some(format!("{}: {fault}; before it {} was current", text(), shown(*old_token)));
            }
            acks += delivery.acts.iter().filter(|(_, act, said)| is_ack(act) && said.is_yes()).count();
            if acks > 1 {
                return Some(format!("{}: acknowledged twice", text()));
            }
            if let Some(fault) = self.check_refusals(life, delivery) {
                return Some(format!("{}: {fault}", text()));
            }
            before = Some((token, delivery));
        }
        None
    }

    /// What is wrong with one delivery having followed another.
    fn check_handover(&self, life: &Life, old: &Delivery, new: &Delivery) -> Option<String> {
        for (span, act, said) in &old.acts {
            if is_ack(act) && said.is_yes() {
                return Some(format!("the one before it was acknowledged, {span:?}"));
            }
            if said.is_yes() && span.sent > new.span.end() {
                return Some(format!("{act:?} of the one before it was accepted after it, {span:?}"));
            }
        }
        let ended = old.endings().map(|(span, ..)| span.sent).min().unwrap_or(NEVER);
        let lapsed = old.lease_end(life, NEVER);
        let until = new.span.end();
        if ended.min(lapsed.saturating_sub(TOLERANCE)) > until && !self.was_recovered(life, old, until) {
            let early = lapsed.saturating_sub(until);
            return Some(format!("two were valid at once: the lease of the first had {early} µs to go"));
        }
        None
    }

    fn was_recovered(&self, life: &Life, delivery: &Delivery, until: Moment) -> bool {
        self.recovers.iter().any(|(queue, who, span)| {
            *queue == life.queue
                && who.includes(&delivery.worker)
                && span.sent < until
                && span.end() > delivery.span.sent
        })
    }

    /// A token that was refused although its lease cannot have been over.
    fn check_refusals(&self, life: &Life, delivery: &Delivery) -> Option<String> {
        for (span, act, said) in &delivery.acts {
            if said.may_be() || span.end() + TOLERANCE > delivery.lease_end(life, span.sent) {
                continue;
            }
            let ended = delivery.endings().any(|(ending, ..)| ending.sent < span.end());
            if !ended && !self.was_recovered(life, delivery, span.end()) {
                let left = delivery.lease_end(life, span.sent) - span.end();
                return Some(format!(
                    "{act:?} was refused ({said:?}) with {left} µs of its lease to go, {span:?}"
                ));
            }
        }
        None
    }

    /// Compares what the server shows after a crash with what the clients know, and begins anew from that.
    pub fn audit(&mut self, audit: &Audit, crash: Moment, bounds: Bounds) {
        let mut seen: HashMap<Tag, &Seen> = HashMap::new();
        for job in &audit.jobs {
            self.check_seen(job, audit);
            match job.tag {
                None => self.fault(format!("the payload of {} has changed", job.id)),
                Some(tag) if seen.insert(tag, job).is_some() => {
                    self.fault(format!("{} is there twice", job.id));
                }
                Some(tag) if !self.lives.contains_key(&tag) => {
                    self.fault(format!("{} is here again or was never enqueued: {job:?}", job.id));
                }
                Some(_) => {}
            }
        }
        let mut cut = Cut::default();
        let tags: Vec<Tag> = self.lives.keys().copied().collect();
        for tag in &tags {
            let Some(life) = self.lives.get(tag) else { continue };
            let mut faults = Vec::new();
            match seen.get(tag) {
                Some(job) => self.compare(life, job, &mut cut, bounds, crash, &mut faults),
                None => self.explain_absence(life, audit, &mut cut, bounds, crash, &mut faults),
            }
            for fault in faults {
                self.fault(fault);
            }
        }
        if cut.kept.0 > bounds.kept_until {
            let text = format!(
                "kept, though it was sent {} µs too late: {}",
                cut.kept.0 - bounds.kept_until,
                cut.kept.1
            );
            self.fault(text);
        }
        if let Some((lost, what)) = &cut.lost
            && *lost < cut.kept.0
        {
            self.fault(format!("not a beginning of what happened: kept {}; lost {what}", cut.kept.1));
        }
        if let Some(oldest) = cut.oldest_lost {
            self.figures.rolled_back += 1;
            self.figures.longest_loss = self.figures.longest_loss.max(crash.saturating_sub(oldest));
        }
        self.check_totals(audit, &seen, bounds);
        self.begin_anew(audit, &seen, bounds);
    }

    fn check_seen(&mut self, job: &Seen, audit: &Audit) {
        let dead = job.reason.as_deref();
        if dead == Some("attempts") && job.attempts < job.attempts_allowed
            || dead == Some("crashes") && job.crashes <= job.crashes_allowed
            || (job.state == "dead") != dead.is_some()
        {
            self.fault(format!("dead for no reason: {job:?}"));
        }
        if job.due.is_some_and(|due| due + LATE_MS < audit.unix_ms) {
            self.fault(format!("overdue: {job:?}"));
        }
    }

    /// What of a job's calls was kept, as far as it shows.
    fn compare(
        &self,
        life: &Life,
        job: &Seen,
        cut: &mut Cut,
        bounds: Bounds,
        crash: Moment,
        faults: &mut Vec<String>,
    ) {
        let text = |what: &str| format!("{what} of {:?} ({})", life.id, job.state);
        let mut lost = |span: &Span, what: &str, cut: &mut Cut| {
            let Some(answered) = span.answered else { return };
            cut.loses(answered, || text(what));
            cut.oldest_lost = Some(cut.oldest_lost.map_or(answered, |old| old.min(answered)));
            if span.copied || answered < bounds.kept_before {
                let age = crash.saturating_sub(answered);
                faults.push(format!(
                    "lost, answered {age} µs before the crash: {}; {job:?}; {span:?}",
                    text(what)
                ));
            }
        };
        if life.id.as_ref().is_some_and(|id| *id != job.id) {
            lost(&life.enqueued, "the id", cut);
        }
        if life.base.is_none() {
            cut.keeps(life.enqueued.sent, || text("enqueueing"));
        }
        let waits = matches!(job.state.as_str(), "ready" | "delayed");
        let mut acks = Vec::new();
        let redriven = self.redrives.iter().any(|(queue, _)| *queue == life.queue);
        for (token, delivery) in &life.deliveries {
            // By its token: a number is given again after a delivery to a client that was gone already.
            if delivery.carried.is_none() && job.token.is_some_and(|last| *token <= last) {
                cut.keeps(delivery.span.sent.max(life.enqueued.sent), || text("a delivery"));
            } else if delivery.carried.is_none() {
                lost(&delivery.span, "a delivery", cut);
            }
            let is_current = job.state == "active" && job.token == Some(*token);
            for (span, act, said) in &delivery.acts {
                if is_ack(act) && said.may_be() {
                    acks.push((span, shown(*token), act));
                }
                let undone = match act {
                    Act::Ack { .. } => waits || matches!(job.state.as_str(), "active" | "dead"),
                    Act::Fail { .. } if *said == Said::Yes("dead".into()) => {
                        !redriven && (waits || job.state == "active")
                    }
                    _ => act.ends() && is_current,
                };
                if said.is_yes() && undone {
                    lost(span, &format!("{act:?}"), cut);
                }
            }
        }
        for (span, said) in &life.cancels {
            let Said::Yes(word) = said else { continue };
            let undone = match word.as_str() {
                "cancelled" => job.state != "cancelled",
                "cancelling" => job.state != "cancelled" && !(job.state == "active" && job.cancelling),
                _ => false,
            };
            if undone && life.order.own.is_none() {
                lost(span, &format!("the answer {word:?} to the cancel"), cut);
            }
        }
        let was = life.base.as_ref().map_or("", |(seen, _)| seen.state.as_str());
        if job.state == "done" && was != "done" {
            match acks.as_slice() {
                [(span, ..)] => cut.keeps(span.sent, || text("the acknowledgement")),
                [] => faults.push(format!("done by nobody: {job:?}")),
                _ => {}
            }
            let fits = acks.iter().any(|(_, token, act)| {
                matches!(act, Act::Ack { value, .. } if job.result == value.then(|| token.clone()))
            });
            if !fits {
                faults.push(format!("another result than was given: {job:?}"));
            }
        }
        if let Some((base, _)) = &life.base {
            let is_back = matches!(was, "done" | "cancelled") && job.state != was;
            if is_back
                || job.deliveries < base.deliveries
                || base.state == "done" && job.result != base.result
            {
                faults.push(format!("went back behind the last crash: {base:?}, now {job:?}"));
            }
        }
    }

    /// Why a job is not there any more; if there is no reason, its enqueueing was lost.
    fn explain_absence(
        &self,
        life: &Life,
        audit: &Audit,
        cut: &mut Cut,
        bounds: Bounds,
        crash: Moment,
        faults: &mut Vec<String>,
    ) {
        if !life.sure && life.base.is_none() || self.may_be_removed(life, audit) {
            return;
        }
        let Some(answered) = life.enqueued.answered.filter(|_| life.base.is_none()) else {
            return faults.push(format!("lost, though it was there after the crash before: {:?}", life.base));
        };
        let text = || format!("enqueueing of {:?}, which is gone", life.id);
        cut.loses(answered, text);
        cut.oldest_lost = Some(cut.oldest_lost.map_or(answered, |old| old.min(answered)));
        if life.enqueued.copied || answered < bounds.kept_before {
            let age = crash.saturating_sub(answered);
            faults.push(format!("lost, answered {age} µs before the crash: {}; {:?}", text(), life.enqueued));
        }
    }

    fn may_be_removed(&self, life: &Life, audit: &Audit) -> bool {
        let id = life.id.as_deref().unwrap_or_default();
        let purged = |state: &str, from: Moment| {
            self.purges.iter().any(|(queue, of, span, ids)| {
                *queue == life.queue
                    && *of == state
                    && span.end() > from
                    && ids.as_ref().is_none_or(|ids| ids.contains(id))
            })
        };
        let expired = |from: Moment, ttl: u64| from + ttl * 1_000 <= audit.to + TOLERANCE;
        let base = life.base.as_ref();
        let was = base.map_or("", |(seen, _)| seen.state.as_str());
        if let Some((seen, at)) = base
            && matches!(was, "done" | "cancelled" | "dead")
            && (purged(was, 0) || u64::try_from(seen.ttl).is_ok_and(|ttl| expired(*at, ttl)))
        {
            return true;
        }
        let acked = life.deliveries.values().any(|delivery| {
            delivery.acts.iter().any(|(span, act, said)| match act {
                Act::Ack { value, ttl } if said.may_be() => {
                    let kept = if *value { DEFAULT_RESULT_TTL } else { 0 };
                    expired(span.sent, ttl.or(life.order.ttl).unwrap_or(kept)) || purged("done", span.sent)
                }
                _ => false,
            })
        });
        let to_cancel = base.is_some_and(|(seen, _)| seen.cancelling);
        let cancelled = to_cancel && (purged("cancelled", 0) || expired(0, 0))
            || life.cancels.iter().any(|(span, said)| {
                said.may_be()
                    && (purged("cancelled", span.sent)
                        || expired(span.sent, life.order.ttl.unwrap_or(DEFAULT_RESULT_TTL)))
            });
        let died = purged("dead", life.enqueued.sent);
        // Whether its attempts, crashes or time ran out is not asked: what was purged is known by its id.
        let replaced = life.order.own.is_some()
            && self.by_id.get(id).is_some_and(|tags| {
                tags.iter().filter_map(|tag| self.lives.get(tag)).any(|other| {
                    other.base.is_none()
                        && matches!(&other.order.own, Some((_, Own::Replace)))
                        && other.enqueued.end() > life.enqueued.sent
                })
            });
        acked || cancelled || died || replaced
    }

    /// The server's own counters say the same.
    fn check_totals(&mut self, audit: &Audit, seen: &HashMap<Tag, &Seen>, bounds: Bounds) {
        for queue in SHARED.map(family).into_iter().chain(['m']) {
            let now = audit.totals.get(&queue).copied().unwrap_or_default();
            let then = self.totals.get(&queue).copied().unwrap_or_default();
            let kept = |span: &Span| span.answered.is_some_and(|at| span.copied || at < bounds.kept_before);
            let (mut least, mut most) = (then, then);
            for (tag, life) in self.lives.iter().filter(|(_, life)| life.queue == queue) {
                let (is_new, is_here) = (life.base.is_none(), seen.contains_key(tag));
                let was_kept = life.sure && kept(&life.enqueued) || is_here;
                least.enqueued += i64::from(is_new && was_kept);
                most.enqueued += i64::from(is_new);
                least.removed += i64::from(!is_here && (!is_new || was_kept));
                most.removed += i64::from(!is_here);
                for delivery in life.deliveries.values() {
                    least.delivered += i64::from(delivery.carried.is_none() && kept(&delivery.span));
                    for (span, act, said) in &delivery.acts {
                        let cancelled = life.cancels.iter().any(|(_, said)| said.may_be())
                            || life.base.as_ref().is_some_and(|(seen, _)| seen.cancelling);
                        least.done += i64::from(is_ack(act) && said.is_yes() && kept(span) && !cancelled);
                        most.done += i64::from(is_ack(act) && said.may_be());
                    }
                }
            }
            let fits = (least.enqueued..=most.enqueued).contains(&now.enqueued)
                && (least.removed..=most.removed).contains(&now.removed)
                && (least.done..=most.done).contains(&now.done)
                && least.delivered <= now.delivered;
            if !fits {
                self.fault(format!("the counts of {queue} are {now:?}, but must be {least:?} to {most:?}"));
            }
        }
    }

    fn begin_anew(&mut self, audit: &Audit, seen: &HashMap<Tag, &Seen>, bounds: Bounds) {
        self.lives.retain(|tag, _| seen.contains_key(tag));
        self.by_id.clear();
        self.recovers.clear();
        self.redrives.clear();
        self.purges.clear();
        self.totals.clone_from(&audit.totals);
        self.ceiling = 0;
        let all_kept = bounds.kept_before == NEVER;
        for (tag, job) in seen {
            if serial(&job.id)
                .is_some_and(|id| self.serials.get(&id).is_none_or(|owner| *owner != Owner::Id(*tag)))
            {
                self.own(serial(&job.id).unwrap_or_default(), Owner::Id(*tag));
            }
            if let Some(token) = job.token {
                self.own(token, Owner::Shown(*tag));
            }
        }
        for (tag, job) in seen {
            let ceiling = serial(&job.id).unwrap_or_default().max(job.token.unwrap_or_default());
            self.ceiling = self.ceiling.max(ceiling);
            let Some(life) = self.lives.get_mut(tag) else { continue };
            let current = job.token.filter(|_| job.state == "active");
            let mut deliveries = std::mem::take(&mut life.deliveries);
            if let Some((token, mut delivery)) = current.and_then(|token| deliveries.remove_entry(&token)) {
                let mut end = delivery.lease_end(life, NEVER);
                if !all_kept {
                    // An extension may be lost, in either direction; what was granted first is the least, or what came after.
                    let extended = delivery.acts.iter().filter_map(|(span, act, said)| match act {
                        Act::Extend { lease } if said.may_be() => Some(span.sent + lease * 1_000),
                        _ => None,
                    });
                    let granted = delivery
                        .carried
                        .unwrap_or(delivery.span.sent.max(life.enqueued.sent) + delivery.lease * 1_000);
                    end = extended.fold(end.min(granted), Moment::min);
                }
                delivery.carried = Some(end);
                delivery.acts.clear();
                life.deliveries.insert(token, delivery);
            }
            life.cancels.clear();
            life.rescheduled = false;
            life.sure = true;
            life.id = Some(job.id.clone());
            life.base = Some(((*job).clone(), audit.from));
            self.by_id.entry(job.id.clone()).or_default().push(*tag);
        }
    }

    /// Jobs that are not final yet, by what was last seen of them.
    pub fn unfinished(&self) -> usize {
        let is_open = |life: &&Life| {
            life.base
                .as_ref()
                .is_some_and(|(seen, _)| matches!(seen.state.as_str(), "ready" | "delayed" | "active"))
        };
        self.lives.values().filter(is_open).count()
    }
}

fn is_ack(act: &Act) -> bool {
    matches!(act, Act::Ack { .. })
}

fn shown(serial: Serial) -> String {
    format!("{}-{}", serial >> 20, serial & ((1 << 20) - 1))
}

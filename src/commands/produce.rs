//! Producers: `RQ.ENQUEUE`, `RQ.MENQUEUE`, `RQ.CANCEL`, `RQ.RESCHEDULE`.

use super::args::{self, Options, Range, Source, Wrong};
use super::fields::write_id;
use crate::queue::{Cancel, Enqueue, Id, IfExists, JobOptions, Op, Outcome, Payloads, Serial, When};
use crate::server::call::{Call, Missing};
use crate::server::reply::{Out, Refusal};

/// `RQ.ENQUEUE queue payload [ID id [IFNEW | REPLACE]] [DELAY ms | AT unix-ms] [PRIORITY n] [ATTEMPTS n] [CRASHES n]
/// [BACKOFF base-ms [max-ms]] [LEASE ms] [TTL ms] [DEADLINE ms]`
pub fn enqueue(call: &mut Call<'_>) -> Result<(), Refusal> {
    let args = call.args();
    let payload = args.get(2).ok_or(Wrong::Arity)?;
    let enqueue = single(args, payload)?;
    check_size(payload, call.max_payload())?;
    let given = enqueue.id.map(|(id, _)| id);
    call.write(&Op::Enqueue(enqueue), Missing::Create, |applied, out| {
        match (applied.map(|applied| applied.outcome), given) {
            // Also when it existed.
            (Some(_), Some(id)) => out.bulk(id),
            (Some(Outcome::Enqueued { first, .. }), None) => write_id(Id::Serial(*first), out),
            _ => out.null(),
        }
    })
}

/// `RQ.MENQUEUE queue [the options of RQ.ENQUEUE but ID] JOBS n payload [payload ...]`
pub fn menqueue(call: &mut Call<'_>) -> Result<(), Refusal> {
    let enqueue = many(call.args())?;
    let limit = call.max_payload();
    for payload in enqueue.payloads.as_slice() {
        check_size(payload, limit)?;
    }
    call.write(&Op::Enqueue(enqueue), Missing::Create, |applied, out| {
        match applied.map(|applied| applied.outcome) {
            Some(Outcome::Enqueued { first, count }) => {
                out.array(*count);
                for offset in 0..*count {
                    // Serials of one call are consecutive.
                    let serial = Serial(first.0.saturating_add(u64::try_from(offset).unwrap_or(u64::MAX)));
                    write_id(Id::Serial(serial), out);
                }
            }
            _ => out.array(0),
        }
    })
}

/// `RQ.CANCEL queue id [id ...]`
pub fn cancel(call: &mut Call<'_>) -> Result<(), Refusal> {
    let ids = ids(call.args(), 2)?;
    let count = ids.len();
    call.write(&Op::Cancel { ids }, Missing::Nothing, |applied, out| {
        out.array(count);
        match applied.map(|applied| applied.outcome) {
            Some(Outcome::Cancelled(cancelled)) => {
                for one in cancelled {
                    match one {
                        Cancel::Cancelled => out.word("cancelled"),
                        Cancel::Cancelling => out.word("cancelling"),
                        Cancel::Ended(state) => out.word(state.name()),
                        Cancel::Unknown => out.null(),
                    }
                }
            }
            _ => nulls(count, out),
        }
    })
}

/// `RQ.RESCHEDULE queue id [DELAY ms | AT unix-ms] [PRIORITY n]`
pub fn reschedule(call: &mut Call<'_>) -> Result<(), Refusal> {
    let op = rescheduled(call.args())?;
    call.write(&op, Missing::Refuse, |applied, out| match applied.map(|applied| applied.outcome) {
        Some(Outcome::State(state)) => out.word(state.name()),
        _ => out.null(),
    })
}

const SINGLE: &[&str] = &[
    "ID", "IFNEW", "REPLACE", "DELAY", "AT", "PRIORITY", "ATTEMPTS", "CRASHES", "BACKOFF", "LEASE", "TTL",
    "DEADLINE",
];
const MANY: &[&str] =
    &["DELAY", "AT", "PRIORITY", "ATTEMPTS", "CRASHES", "BACKOFF", "LEASE", "TTL", "DEADLINE", "JOBS"];
const RESCHEDULE: &[&str] = &["DELAY", "AT", "PRIORITY"];

fn single<'a, S: Source<'a>>(args: S, payload: &'a [u8]) -> Result<Enqueue<'a>, Wrong> {
    let mut enqueue = plain(Payloads::One(payload));
    let mut if_exists = None;
    let mut options = Options::new(args, 3, SINGLE);
    while let Some(option) = options.next()? {
        match option {
            "ID" => enqueue.id = Some((args::own_id(options.value()?)?, IfExists::Refuse)),
            "IFNEW" => once(&mut if_exists, (IfExists::Keep, "IFNEW"))?,
            "REPLACE" => once(&mut if_exists, (IfExists::Replace, "REPLACE"))?,
            _ => shared(option, &mut options, &mut enqueue)?,
        }
    }
    match (&mut enqueue.id, if_exists) {
        (Some((_, what)), Some((wanted, _))) => *what = wanted,
        (None, Some((_, word))) => return Err(Wrong::Needs(word, "ID")),
        (_, None) => {}
    }
    Ok(enqueue)
}

fn many<'a, S: Source<'a>>(args: S) -> Result<Enqueue<'a>, Wrong> {
    let mut enqueue = plain(Payloads::Many(Vec::new()));
    let mut options = Options::new(args, 2, MANY);
    while let Some(option) = options.next()? {
        match option {
            "JOBS" => {
                // The last option: all that follows is payload.
                let count = options.count()?;
                let there = options.left();
                if count != there {
                    return Err(Wrong::Listed {
                        of: "JOBS",
                        announced: u64::try_from(count).unwrap_or(0),
                        there,
                    });
                }
                let mut payloads = Vec::with_capacity(count);
                for _ in 0..count {
                    payloads.push(options.value()?);
                }
                enqueue.payloads = Payloads::Many(payloads);
                return Ok(enqueue);
            }
            _ => shared(option, &mut options, &mut enqueue)?,
        }
    }
    Err(Wrong::NoneOf(&["JOBS"]))
}

const fn plain(payloads: Payloads<'_>) -> Enqueue<'_> {
    Enqueue {
        payloads,
        id: None,
        when: None,
        priority: 0,
        options: JobOptions {
            attempts: None,
            crashes: None,
            backoff: None,
            lease: None,
            ttl: None,
            deadline: None,
        },
    }
}

/// The options that `RQ.ENQUEUE` and `RQ.MENQUEUE` share.
fn shared<'a, S: Source<'a>>(
    option: &'static str,
    options: &mut Options<'a, S>,
    enqueue: &mut Enqueue<'a>,
) -> Result<(), Wrong> {
    let own = &mut enqueue.options;
    match option {
        "DELAY" | "AT" => when(option, options, &mut enqueue.when)?,
        "PRIORITY" => enqueue.priority = options.priority()?,
        "ATTEMPTS" => own.attempts = Some(options.budget(Range::ATTEMPTS.or_none())?),
        "CRASHES" => own.crashes = Some(options.budget(Range::CRASHES.or_none())?),
        "BACKOFF" => own.backoff = Some(options.backoff()?),
        "LEASE" => own.lease = Some(options.number(Range::SPAN)?),
        "TTL" => own.ttl = Some(options.number_or_none(Range::DURATION)?),
        "DEADLINE" => own.deadline = Some(options.number(Range::SPAN)?),
        _ => return Err(options.unhandled()),
    }
    Ok(())
}

fn when<'a, S: Source<'a>>(
    option: &'static str,
    options: &mut Options<'a, S>,
    when: &mut Option<When>,
) -> Result<(), Wrong> {
    let value = if option == "AT" {
        When::At(options.number(Range::INSTANT)?)
    } else {
        When::Delay(options.number(Range::DURATION)?)
    };
    match when.replace(value) {
        None => Ok(()),
        Some(_) => Err(Wrong::Exclusive("DELAY", "AT")),
    }
}

fn once(slot: &mut Option<(IfExists, &'static str)>, value: (IfExists, &'static str)) -> Result<(), Wrong> {
    match slot.replace(value) {
        None => Ok(()),
        Some((_, before)) => Err(Wrong::Exclusive(before, value.1)),
    }
}

fn rescheduled<'a, S: Source<'a>>(args: S) -> Result<Op<'a>, Wrong> {
    let id = Id::parse(args.get(2).ok_or(Wrong::Arity)?);
    let (mut instant, mut priority) = (None, None);
    let mut options = Options::new(args, 3, RESCHEDULE);
    while let Some(option) = options.next()? {
        match option {
            "PRIORITY" => priority = Some(options.priority()?),
            _ => when(option, &mut options, &mut instant)?,
        }
    }
    if instant.is_none() && priority.is_none() {
        return Err(Wrong::NoneOf(RESCHEDULE));
    }
    Ok(Op::Reschedule { id, when: instant, priority })
}

/// All arguments from number `from` on, as ids; at least one.
pub(super) fn ids<'a, S: Source<'a>>(args: S, from: usize) -> Result<Vec<Id<'a>>, Wrong> {
    if args.len() <= from {
        return Err(Wrong::Arity);
    }
    let mut ids = Vec::with_capacity(args.len().saturating_sub(from));
    ids.extend((from..args.len()).filter_map(|index| args.get(index)).map(Id::parse));
    Ok(ids)
}

/// As many nulls.
pub(super) fn nulls(count: usize, out: &mut dyn Out) {
    for _ in 0..count {
        out.null();
    }
}

/// Refuses bytes that are longer than the limit of this server.
pub(super) fn check_size(bytes: &[u8], limit: Option<u64>) -> Result<(), Refusal> {
    match limit {
        Some(limit) if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > limit => {
            Err(Refusal::TooBig { limit })
        }
        _ => Ok(()),
    }
}

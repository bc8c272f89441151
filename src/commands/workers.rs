//! Workers: `RQ.CLAIM`, `RQ.MCLAIM`, `RQ.ACK`, `RQ.FAIL`, `RQ.RELEASE`, `RQ.EXTEND`, `RQ.PROGRESS`.

use super::args::{self, Options, Range, Source, Wrong};
use super::fields::write_id;
use super::produce::check_size;
use super::views;
use crate::queue::{Claim, Delivery, Failure, Held, Id, Op, Outcome, Queue, Slot};
use crate::server::call::{Call, ClaimRequest, Missing, Seen};
use crate::server::reply::{Out, Refusal};

/// `RQ.CLAIM queue worker [COUNT n] [BLOCK ms] [LEASE ms] [FULL]`
pub fn claim(call: &mut Call<'_>) -> Result<(), Refusal> {
    let request = parse_claim(call.args(), 1, 1)?;
    call.claim(request)
}

/// `RQ.MCLAIM numkeys queue [queue ...] worker [COUNT n] [BLOCK ms] [LEASE ms] [FULL]`
pub fn mclaim(call: &mut Call<'_>) -> Result<(), Refusal> {
    let args = call.args();
    let queues = args::number("numkeys", args.get(1).ok_or(Wrong::Arity)?, Range::COUNT)?;
    let queues = usize::try_from(queues).map_err(|_| Wrong::Arity)?;
    let request = parse_claim(args, 2, queues)?;
    call.claim(ClaimRequest { named: true, ..request })
}

const CLAIM: &[&str] = &["COUNT", "BLOCK", "LEASE", "FULL"];

fn parse_claim<'a, S: Source<'a>>(
    args: S,
    first_queue: usize,
    queues: usize,
) -> Result<ClaimRequest<'a>, Wrong> {
    let at = first_queue.saturating_add(queues);
    let worker = args::name("worker", args.get(at).ok_or(Wrong::Arity)?)?;
    let claim = Claim { worker, count: 1, lease: None };
    let mut request = ClaimRequest { first_queue, queues, claim, block: None, full: false, named: false };
    let mut options = Options::new(args, at.saturating_add(1), CLAIM);
    while let Some(option) = options.next()? {
        match option {
            "COUNT" => request.claim.count = options.count()?,
            "BLOCK" => request.block = Some(options.number(Range::DURATION)?),
            "LEASE" => request.claim.lease = Some(options.number(Range::SPAN)?),
            "FULL" => request.full = true,
            _ => return Err(options.unhandled()),
        }
    }
    Ok(request)
}

/// Claimed jobs, as `RQ.CLAIM` replies them: `[id, token, payload, delivery]` each, or a map each.
pub fn reply_jobs(queue: &Queue, slots: &[Slot], full: bool, out: &mut dyn Out) {
    let seen = Seen { queue, now: queue.now(), wall: queue.wall() };
    out.array(slots.len());
    for &slot in slots {
        let Some(job) = queue.job(slot) else {
            out.null();
            continue;
        };
        if full {
            views::job(seen, job).write(out);
            continue;
        }
        out.array(4);
        write_id(job.id(), out);
        write_id(Id::Serial(job.token()), out);
        out.bulk(job.payload());
        out.integer(job.deliveries().into());
    }
}

/// `RQ.ACK queue id token [RESULT value] [TTL ms]`
pub fn ack(call: &mut Call<'_>) -> Result<(), Refusal> {
    let args = call.args();
    let delivery = delivery(args, 2)?;
    let (mut result, mut ttl) = (None, None);
    let mut options = Options::new(args, 4, ACK);
    while let Some(option) = options.next()? {
        match option {
            "RESULT" => result = Some(options.value()?),
            "TTL" => ttl = Some(options.number_or_none(Range::DURATION)?),
            _ => return Err(options.unhandled().into()),
        }
    }
    if let Some(result) = result {
        check_size(result, call.max_payload())?;
    }
    call.write(&Op::Ack { delivery, result, ttl }, Missing::Nothing, |applied, out| {
        let acked = matches!(applied.map(|applied| applied.outcome), Some(Outcome::Acked(true)));
        out.integer(acked.into());
    })
}

const ACK: &[&str] = &["RESULT", "TTL"];

/// `RQ.FAIL queue id token [ERROR text] [RETRY ms | DEAD]`
pub fn fail(call: &mut Call<'_>) -> Result<(), Refusal> {
    let op = parse_fail(call.args())?;
    call.write(&op, Missing::Refuse, |applied, out| match applied.map(|applied| applied.outcome) {
        Some(Outcome::State(state)) => out.word(state.name()),
        _ => out.null(),
    })
}

const FAIL: &[&str] = &["ERROR", "RETRY", "DEAD"];

fn parse_fail<'a, S: Source<'a>>(args: S) -> Result<Op<'a>, Wrong> {
    let delivery = delivery(args, 2)?;
    let (mut error, mut how) = (None, None);
    let mut options = Options::new(args, 4, FAIL);
    while let Some(option) = options.next()? {
        let this = match option {
            "ERROR" => {
                error = Some(options.value()?);
                continue;
            }
            "RETRY" => Failure::RetryAfter(options.number(Range::DURATION)?),
            "DEAD" => Failure::Dead,
            _ => return Err(options.unhandled()),
        };
        if let Some((other, _)) = how.replace((option, this)) {
            return Err(Wrong::Exclusive(other, option));
        }
    }
    Ok(Op::Fail { delivery, error, how: how.map_or(Failure::Retry, |(_, how)| how) })
}

/// `RQ.RELEASE queue id token [id token ...]`
pub fn release(call: &mut Call<'_>) -> Result<(), Refusal> {
    let deliveries = deliveries(call.args(), 2)?;
    let count = deliveries.len();
    call.write(&Op::Release { deliveries }, Missing::Nothing, |applied, out| {
        reply_held(applied.map(|applied| applied.outcome), count, out);
    })
}

/// `RQ.EXTEND queue worker LEASE ms id token [id token ...]`
pub fn extend(call: &mut Call<'_>) -> Result<(), Refusal> {
    let args = call.args();
    let worker = args::name("worker", args.get(2).ok_or(Wrong::Arity)?)?;
    args::word("the argument behind worker", args.get(3).ok_or(Wrong::Arity)?, EXTEND)?;
    let lease = args::number("LEASE", args.get(4).ok_or(Wrong::Arity)?, Range::SPAN)?;
    let deliveries = deliveries(args, 5)?;
    let count = deliveries.len();
    call.write(&Op::Extend { worker, lease, deliveries }, Missing::Nothing, |applied, out| {
        reply_held(applied.map(|applied| applied.outcome), count, out);
    })
}

const EXTEND: &[&str] = &["LEASE"];

/// `RQ.PROGRESS queue id token value`
pub fn progress(call: &mut Call<'_>) -> Result<(), Refusal> {
    let args = call.args();
    let (delivery, value) = (delivery(args, 2)?, args.get(4).ok_or(Wrong::Arity)?);
    if args.len() > 5 {
        return Err(Wrong::Arity.into());
    }
    call.write(&Op::Progress { delivery, value }, Missing::Refuse, |applied, out| {
        match applied.map(|applied| applied.outcome) {
            Some(Outcome::Progressed(held)) => out.word(held_word(*held)),
            _ => out.null(),
        }
    })
}

fn delivery<'a, S: Source<'a>>(args: S, at: usize) -> Result<Delivery<'a>, Wrong> {
    let id = args.get(at).ok_or(Wrong::Arity)?;
    let token = args.get(at.saturating_add(1)).ok_or(Wrong::Arity)?;
    Ok(Delivery { id: Id::parse(id), token: args::token(token) })
}

/// All arguments from number `from` on, as pairs of id and token; at least one.
fn deliveries<'a, S: Source<'a>>(args: S, from: usize) -> Result<Vec<Delivery<'a>>, Wrong> {
    let left = args.len().saturating_sub(from);
    if left == 0 {
        return Err(Wrong::Arity);
    }
    if left % 2 != 0 {
        return Err(Wrong::Pairs);
    }
    let mut deliveries = Vec::with_capacity(left / 2);
    for at in (from..args.len()).step_by(2) {
        deliveries.push(delivery(args, at)?);
    }
    Ok(deliveries)
}

const fn held_word(held: Held) -> &'static str {
    match held {
        Held::Ok => "ok",
        Held::Lost => "lost",
        Held::Cancel => "cancel",
    }
}

/// Per delivery what became of it; without a queue, all are lost.
fn reply_held(outcome: Option<&Outcome>, count: usize, out: &mut dyn Out) {
    out.array(count);
    match outcome {
        Some(Outcome::Held(held)) => {
            for &one in held {
                out.word(held_word(one));
            }
        }
        _ => {
            for _ in 0..count {
                out.word(held_word(Held::Lost));
            }
        }
    }
}

//! Workers: `RQ.CLAIM`, `RQ.MCLAIM`, `RQ.ACK`, `RQ.FAIL`, `RQ.RELEASE`, `RQ.EXTEND`, `RQ.PROGRESS`.

use super::args::{self, Options, Range, Source, Wrong};
use super::docs::{self, Arg, Docs};
use super::fields::write_id;
use super::produce::check_size;
use super::views;
use super::{Access, Keys, Row, entry};
use crate::queue::limits::IDS_MAX;
use crate::queue::{Claim, Delivery, Failure, Held, Id, Op, Outcome, Queue, Slot};
use crate::server::call::{Applied, Call, ClaimRequest, Missing, Seen};
use crate::server::reply::{Out, Refusal};

/// The commands of this file.
pub const ROWS: &[Row] = &[
    Row {
        name: c"RQ.CLAIM",
        entry: entry!(claim, c"rq.claim"),
        flags: c"write blocking fast",
        arity: -3,
        keys: Keys::One,
        access: Access::Takes,
        categories: c"write fast blocking",
        docs: &Docs {
            summary: "Hands jobs to a worker, each with a lease and a token; can wait for one.",
            complexity: "O(M log N) with M the jobs handed out and N those ready or active",
            since: "0.1.0",
            reply: "array of [id, token, payload, delivery], with FULL of maps; nil if there is nothing",
            args: &[docs::QUEUE, docs::WORKER, docs::COUNT, BLOCK, docs::LEASE, FULL],
        },
    },
    Row {
        name: c"RQ.MCLAIM",
        entry: entry!(mclaim, c"rq.claim", counted),
        flags: c"write blocking",
        arity: -4,
        keys: Keys::Counted,
        access: Access::Takes,
        categories: c"write blocking",
        docs: &Docs {
            summary: "Hands jobs of the first of several queues that has some to a worker.",
            complexity: "O(K + M log N) with K the queues, M the jobs handed out and N those ready or active",
            since: "0.1.0",
            reply: "[queue, jobs as of RQ.CLAIM]; nil if there is nothing",
            args: &[
                docs::integer("numkeys"),
                docs::QUEUE.multiple(),
                docs::WORKER,
                docs::COUNT,
                BLOCK,
                docs::LEASE,
                FULL,
            ],
        },
    },
    Row {
        name: c"RQ.ACK",
        entry: entry!(ack, c"rq.ack"),
        flags: c"write fast",
        arity: -4,
        keys: Keys::One,
        access: Access::Changes,
        categories: c"write fast",
        docs: &Docs {
            summary: "Ends a job as done, perhaps with a result.",
            complexity: "O(log N) with N the jobs active or done",
            since: "0.1.0",
            reply: "1 if this call ended the job, 0 if there was nothing left to do",
            args: &[
                docs::QUEUE,
                docs::text("id"),
                docs::text("token"),
                docs::option("RESULT", docs::text("value")),
                docs::TTL,
            ],
        },
    },
    Row {
        name: c"RQ.FAIL",
        entry: entry!(fail, c"rq.fail"),
        flags: c"write fast",
        arity: -4,
        keys: Keys::One,
        access: Access::Changes,
        categories: c"write fast",
        docs: &Docs {
            summary: "Reports that a job failed: it is tried again later, or dead; or that its endpoint did.",
            complexity: "O(log N) with N the jobs active, delayed or dead",
            since: "0.1.0",
            reply: "the job's state now",
            args: &[
                docs::QUEUE,
                docs::text("id"),
                docs::text("token"),
                docs::option("ERROR", docs::text("text")),
                docs::one_of(
                    "how",
                    &[
                        docs::integer("ms").after("RETRY"),
                        docs::token("DEAD"),
                        docs::token("UNAVAILABLE"),
                        docs::integer("ms").after("THROTTLED"),
                    ],
                )
                .optional(),
            ],
        },
    },
    Row {
        name: c"RQ.RELEASE",
        entry: entry!(release, c"rq.release"),
        flags: c"write",
        arity: -4,
        keys: Keys::One,
        access: Access::Changes,
        categories: c"write",
        docs: &Docs {
            summary: "Gives jobs back to their place in the queue, unharmed.",
            complexity: "O(M log N) with M the jobs given back and N those active or ready",
            since: "0.1.0",
            reply: "array, per pair: ok or lost",
            args: &[docs::QUEUE, docs::DELIVERIES],
        },
    },
    Row {
        name: c"RQ.EXTEND",
        entry: entry!(extend, c"rq.extend"),
        flags: c"write",
        arity: -7,
        keys: Keys::One,
        access: Access::Changes,
        categories: c"write",
        docs: &Docs {
            summary: "Renews the leases of a worker's jobs; tells which are lost or to be given up.",
            complexity: "O(M log N) with M the jobs named and N those active",
            since: "0.1.0",
            reply: "array, per pair: ok, lost or cancel",
            args: &[docs::QUEUE, docs::WORKER, docs::integer("ms").after("LEASE"), docs::DELIVERIES],
        },
    },
    Row {
        name: c"RQ.PROGRESS",
        entry: entry!(progress, c"rq.progress"),
        flags: c"write fast",
        arity: 5,
        keys: Keys::One,
        access: Access::Changes,
        categories: c"write fast",
        docs: &Docs {
            summary: "Notes how far a job is, for RQ.RESULT and RQ.JOB to show.",
            complexity: "O(1)",
            since: "0.1.0",
            reply: "ok, or cancel if the job is to be given up",
            args: &[docs::QUEUE, docs::text("id"), docs::text("token"), docs::text("value")],
        },
    },
];

const BLOCK: Arg = docs::option("BLOCK", docs::integer("ms"));
const FULL: Arg = docs::token("FULL").optional();

/// `RQ.CLAIM queue worker [COUNT n] [BLOCK ms] [LEASE ms] [FULL]`
pub fn claim(call: &mut Call<'_>) -> Result<(), Refusal> {
    let request = parse_claim(call.args(), 1, 1)?;
    call.claim(request)
}

/// `RQ.MCLAIM numkeys queue [queue ...] worker [COUNT n] [BLOCK ms] [LEASE ms] [FULL]`
pub fn mclaim(call: &mut Call<'_>) -> Result<(), Refusal> {
    let args = call.args();
    let announced = args::number("numkeys", args.get(1).ok_or(Wrong::Arity)?, Range::COUNT)?;
    let queues = usize::try_from(announced).map_err(|_| Wrong::Arity)?;
    // Behind them stands the worker.
    let there = args.len().saturating_sub(3);
    if queues > there {
        return Err(Wrong::Listed { of: "numkeys", announced, there }.into());
    }
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

/// `RQ.FAIL queue id token [ERROR text] [RETRY ms | DEAD | UNAVAILABLE | THROTTLED ms]`
pub fn fail(call: &mut Call<'_>) -> Result<(), Refusal> {
    let op = parse_fail(call.args())?;
    call.write(&op, Missing::Refuse, |applied, out| match applied.map(|applied| applied.outcome) {
        Some(Outcome::State(state)) => out.word(state.name()),
        _ => out.null(),
    })
}

const FAIL: &[&str] = &["ERROR", "RETRY", "DEAD", "UNAVAILABLE", "THROTTLED"];

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
            "UNAVAILABLE" => Failure::Unavailable,
            "THROTTLED" => Failure::Throttled(options.number(Range::DURATION)?),
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
    call.write(&Op::Progress { delivery, value }, Missing::Refuse, reply_progressed)
}

/// `ok` or `cancel`.
pub(super) fn reply_progressed(applied: Option<Applied<'_>>, out: &mut dyn Out) {
    match applied.map(|applied| applied.outcome) {
        Some(Outcome::Progressed(held)) => out.word(held_word(*held)),
        _ => out.null(),
    }
}

/// The job and the token in the arguments from number `at` on.
pub(super) fn delivery<'a, S: Source<'a>>(args: S, at: usize) -> Result<Delivery<'a>, Wrong> {
    let id = args.get(at).ok_or(Wrong::Arity)?;
    let token = args.get(at.saturating_add(1)).ok_or(Wrong::Arity)?;
    Ok(Delivery { id: Id::parse(id), token: args::token(token) })
}

/// All arguments from number `from` on, as pairs of id and token; at least one, at most [`IDS_MAX`].
fn deliveries<'a, S: Source<'a>>(args: S, from: usize) -> Result<Vec<Delivery<'a>>, Wrong> {
    let left = args.len().saturating_sub(from);
    if left == 0 {
        return Err(Wrong::Arity);
    }
    if left % 2 != 0 {
        return Err(Wrong::Pairs);
    }
    if left / 2 > IDS_MAX {
        return Err(Wrong::Many { of: "pairs of id and token", most: IDS_MAX, there: left / 2 });
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::Serial;

    fn of(texts: &[&'static str]) -> &'static [&'static [u8]] {
        texts.iter().map(|text| text.as_bytes()).collect::<Vec<_>>().leak()
    }

    #[test]
    fn words_are_documented() {
        docs::check_words(ROWS, c"RQ.CLAIM", CLAIM);
        docs::check_words(ROWS, c"RQ.MCLAIM", CLAIM);
        docs::check_words(ROWS, c"RQ.ACK", ACK);
        docs::check_words(ROWS, c"RQ.FAIL", FAIL);
        docs::check_words(ROWS, c"RQ.EXTEND", EXTEND);
        docs::check_words(ROWS, c"RQ.RELEASE", &[]);
        docs::check_words(ROWS, c"RQ.PROGRESS", &[]);
    }

    #[test]
    fn claims() {
        let request = parse_claim(of(&["RQ.CLAIM", "q", "w"]), 1, 1).unwrap();
        let claim = Claim { worker: b"w", count: 1, lease: None };
        let plain = ClaimRequest { first_queue: 1, queues: 1, claim, block: None, full: false, named: false };
        assert_eq!(request, plain);
        let words = ["RQ.MCLAIM", "2", "a", "b", "w", "full", "LEASE", "7", "BLOCK", "0", "count", "1000"];
        let request = parse_claim(of(&words), 2, 2).unwrap();
        let claim = Claim { worker: b"w", count: 1000, lease: Some(7) };
        assert_eq!(
            request,
            ClaimRequest { first_queue: 2, queues: 2, claim, block: Some(0), full: true, named: false }
        );
        assert_eq!(parse_claim(of(&["RQ.MCLAIM", "2", "q", "w"]), 2, 2), Err(Wrong::Arity));
        assert!(matches!(
            parse_claim(of(&["RQ.CLAIM", "q", ""]), 1, 1),
            Err(Wrong::Name { of: "worker", .. })
        ));
        for wrong in
            [&["COUNT", "0"][..], &["LEASE", "0"], &["BLOCK", "-1"], &["BLOCK", "none"], &["FULL", "FULL"]]
        {
            let args = [&["RQ.CLAIM", "q", "w"], wrong].concat();
            assert!(parse_claim(of(&args), 1, 1).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn claimed_jobs_are_shown() {
        use crate::queue::{Effects, Enqueue, GroupName, JobOptions, Payloads, Settings, Stamp};
        let stamp = Stamp { now: 0, wall: 0, serial: Serial(5 << 20) };
        let (mut queue, mut fx) = (Queue::new(Settings::default(), stamp), Effects::default());
        let (payloads, options) = (Payloads::Many(vec![b"a", b"b"]), JobOptions::default());
        queue
            .apply(
                &Op::Enqueue(Enqueue {
                    payloads,
                    id: None,
                    unique: None,
                    group: GroupName::default(),
                    when: None,
                    priority: 0,
                    options,
                }),
                &mut fx,
            )
            .unwrap();
        queue.apply(&Op::Claim(Claim { worker: b"w", count: 2, lease: None }), &mut fx).unwrap();
        let shown = |full| {
            let mut json = super::super::json::Json::default();
            reply_jobs(&queue, &fx.claimed, full, &mut json);
            String::from_utf8(json.into_bytes()).unwrap()
        };
        assert_eq!(shown(false), r#"[["5-1","5-3","a",1],["5-2","5-4","b",1]]"#);
        assert!(shown(true).starts_with(r#"[{"id":"5-1","state":"active","#));
    }

    #[test]
    fn fails() {
        let parse = |options: &[&'static str]| {
            let args = [&["RQ.FAIL", "q", "j", "1-1"], options].concat();
            parse_fail(of(&args)).map_err(|wrong| wrong.to_string())
        };
        let op = |error, how| {
            let delivery = Delivery { id: Id::Custom(b"j"), token: Serial(1 << 20 | 1) };
            Ok(Op::Fail { delivery, error, how })
        };
        assert_eq!(parse(&[]), op(None, Failure::Retry));
        assert_eq!(parse(&["dead", "ERROR", "DEAD"]), op(Some(b"DEAD"), Failure::Dead));
        assert_eq!(parse(&["RETRY", "0"]), op(None, Failure::RetryAfter(0)));
        assert_eq!(parse(&["RETRY", "5", "DEAD"]).unwrap_err(), "RETRY and DEAD exclude each other");
        assert_eq!(parse(&["DEAD", "RETRY", "5"]).unwrap_err(), "DEAD and RETRY exclude each other");
        assert_eq!(parse(&["ERROR"]).unwrap_err(), "option ERROR needs a value");
        assert_eq!(parse(&["unavailable"]), op(None, Failure::Unavailable));
        assert_eq!(parse(&["ERROR", "429", "THROTTLED", "0"]), op(Some(b"429"), Failure::Throttled(0)));
        assert_eq!(
            parse(&["UNAVAILABLE", "THROTTLED", "5"]).unwrap_err(),
            "UNAVAILABLE and THROTTLED exclude each other"
        );
        assert_eq!(parse(&["THROTTLED"]).unwrap_err(), "option THROTTLED needs a value");
        assert_eq!(
            parse(&["OFFLINE"]).unwrap_err(),
            "unknown option 'OFFLINE'; there are ERROR, RETRY, DEAD, UNAVAILABLE, THROTTLED"
        );
    }

    #[test]
    fn deliveries_come_in_pairs() {
        let args = of(&["RQ.RELEASE", "q", "a", "1-1", "b", "rubbish"]);
        let expected = [
            Delivery { id: Id::Custom(b"a"), token: Serial(1 << 20 | 1) },
            Delivery { id: Id::Custom(b"b"), token: Serial::NONE },
        ];
        assert_eq!(deliveries(args, 2).unwrap(), expected);
        assert_eq!(deliveries(args, 3), Err(Wrong::Pairs));
        assert_eq!(deliveries(args, 6), Err(Wrong::Arity));
    }
}

//! Recovery: `RQ.RECOVER`, `RQ.WORKERS`.

use super::args::{Options, Range, Source, Wrong};
use super::fields::int;
use super::views;
use crate::queue::limits::COUNT_DEFAULT;
use crate::queue::{Op, Outcome, Recover, Recovered, Who};
use crate::server::call::{Call, Missing};
use crate::server::reply::{Out, Refusal};

/// `RQ.RECOVER queue [WORKERS n name ... | EXCEPT n name ... | IDLE ms] [BEFORE unix-ms] [COUNT n] [UNCOUNTED]`
pub fn recover(call: &mut Call<'_>) -> Result<(), Refusal> {
    match parse_recover(call.args())? {
        Request { recover, idle: None } => {
            call.write(&Op::Recover(recover), Missing::Nothing, |applied, out| {
                reply_recovered(applied.map(|applied| applied.outcome), out);
            })
        }
        // Who is idle is this server's own knowledge: others are told the names.
        Request { recover, idle: Some(idle) } => {
            let names = call.idle_workers(idle)?;
            let who = Who::Named(names.iter().map(|name| &**name).collect());
            let op = Op::Recover(Recover { who, ..recover });
            call.write_resolved(&op, Missing::Nothing, |applied, out| {
                reply_recovered(applied.map(|applied| applied.outcome), out);
            })
        }
    }
}

const RECOVER: &[&str] = &["WORKERS", "EXCEPT", "IDLE", "BEFORE", "COUNT", "UNCOUNTED"];

#[derive(Debug, PartialEq, Eq)]
struct Request<'a> {
    recover: Recover<'a>,
    /// The workers not seen for so many ms, whoever they are.
    idle: Option<u64>,
}

fn parse_recover<'a, S: Source<'a>>(args: S) -> Result<Request<'a>, Wrong> {
    let recover = Recover { who: Who::Lapsed, before: None, count: COUNT_DEFAULT, counted: true };
    let mut request = Request { recover, idle: None };
    let mut selector = None;
    let mut options = Options::new(args, 2, RECOVER);
    while let Some(option) = options.next()? {
        match option {
            "BEFORE" => {
                request.recover.before = Some(options.number(Range::INSTANT)?);
                continue;
            }
            "COUNT" => {
                request.recover.count = options.count()?;
                continue;
            }
            "UNCOUNTED" => {
                request.recover.counted = false;
                continue;
            }
            "WORKERS" => request.recover.who = Who::Named(options.names()?),
            "EXCEPT" => request.recover.who = Who::Except(options.names()?),
            "IDLE" => request.idle = Some(options.number(Range::DURATION)?),
            _ => return Err(options.unhandled()),
        }
        if let Some(other) = selector.replace(option) {
            return Err(Wrong::Exclusive(other, option));
        }
    }
    if selector.is_none() && !request.recover.counted {
        return Err(Wrong::Needs("UNCOUNTED", "WORKERS, EXCEPT or IDLE"));
    }
    Ok(request)
}

fn reply_recovered(outcome: Option<&Outcome>, out: &mut dyn Out) {
    let nothing = Recovered::default();
    let recovered = match outcome {
        Some(Outcome::Recovered(recovered)) => recovered,
        _ => &nothing,
    };
    out.array(3);
    out.integer(int(recovered.taken));
    out.integer(int(recovered.remaining));
    out.map(recovered.by_worker.len());
    for (worker, taken) in &recovered.by_worker {
        out.bulk(worker);
        out.integer(int(*taken));
    }
}

/// `RQ.WORKERS queue`
pub fn workers(call: &mut Call<'_>) -> Result<(), Refusal> {
    if call.args().len() != 2 {
        return Err(Wrong::Arity.into());
    }
    let waiting = call.waiting();
    call.read(|seen, out| match seen {
        None => out.array(0),
        Some(seen) => {
            out.array(seen.queue.worker_count());
            for worker in seen.queue.workers() {
                views::worker(seen, &worker, waiting.get(worker.name).copied()).write(out);
            }
        }
    })
}

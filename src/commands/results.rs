//! `RQ.RESULT`: what became of a job, now or when it has ended.

use super::args::{Options, Range, Wrong};
use super::fields::ms;
use super::views;
use crate::queue::{Ended, Id, JobView, Queue, State};
use crate::server::call::Call;
use crate::server::reply::{Out, Refusal};

/// `RQ.RESULT queue id [BLOCK ms]`
pub fn result(call: &mut Call<'_>) -> Result<(), Refusal> {
    let args = call.args();
    let id = Id::parse(args.get(2).ok_or(Wrong::Arity)?);
    let mut block = None;
    let mut options = Options::new(args, 3, OPTIONS);
    while let Some(option) = options.next()? {
        match option {
            "BLOCK" => block = Some(options.number(Range::DURATION)?),
            _ => return Err(options.unhandled().into()),
        }
    }
    call.wait_result(id, block)
}

const OPTIONS: &[&str] = &["BLOCK"];

/// `[state, value, ttl-ms]` of a job as it stands at `now` (duration clock).
pub fn reply_result(queue: &Queue, job: JobView<'_>, now: u64, out: &mut dyn Out) {
    let state = job.state();
    let ttl = if state.is_final() { views::ttl(queue, job, now) } else { -1 };
    // The progress of a job that was cancelled is no result.
    let value = job.value().filter(|_| state != State::Cancelled);
    write(state, value, ttl, out);
}

/// The same for a job that ends this moment; nil if it is gone without an end.
pub fn reply_ended(ended: &Ended<'_>, out: &mut dyn Out) {
    match ended.state {
        Some(state) => write(state, ended.value, ended.ttl.map_or(-1, ms), out),
        None => out.null(),
    }
}

fn write(state: State, value: Option<&[u8]>, ttl: i64, out: &mut dyn Out) {
    out.array(3);
    out.word(state.name());
    match value {
        Some(value) => out.bulk(value),
        None => out.null(),
    }
    out.integer(ttl);
}

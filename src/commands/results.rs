//! `RQ.RESULT`: what became of a job, now or when it has ended.

use super::args::{Options, Range, Wrong};
use super::docs::{self, Docs};
use super::fields::ms;
use super::views;
use super::{Access, Keys, Row, entry};
use crate::queue::{Ended, Id, JobView, Queue, State};
use crate::server::call::{Call, News};
use crate::server::reply::{Out, Refusal};

/// The commands of this file.
pub const ROWS: &[Row] = &[Row {
    name: c"RQ.RESULT",
    entry: entry!(result, c"rq.result"),
    flags: c"readonly blocking fast",
    arity: -3,
    keys: Keys::One,
    access: Access::Reads,
    categories: c"read fast blocking",
    docs: &Docs {
        summary: "Tells a job's state and result; can wait until it has ended.",
        complexity: "O(1)",
        since: "0.1.0",
        reply: "[state, value, ttl-ms], nil for an unknown job",
        args: &[docs::QUEUE, docs::text("id"), docs::option("BLOCK", docs::integer("ms"))],
    },
}];

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
    call.watch(id, block, |seen, job, out, waits| {
        if waits && !job.state().is_final() {
            return Some(News::End);
        }
        reply_result(seen.queue, job, seen.now, out);
        None
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_documented() {
        docs::check_words(ROWS, c"RQ.RESULT", OPTIONS);
    }
}

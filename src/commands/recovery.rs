//! Recovery: `RQ.RECOVER`, `RQ.WORKERS`.

use super::args::{self, Options, Quoted, Range, Source, Wrong};
use super::docs::{self, Docs};
use super::fields::{begin_page, int};
use super::operators::LIST_COUNT_DEFAULT;
use super::views;
use super::{Access, Keys, Row, entry};
use crate::queue::limits::COUNT_DEFAULT;
use crate::queue::{Op, Outcome, Recover, Recovered, Who};
use crate::server::call::{Call, Missing};
use crate::server::reply::{Out, Refusal};

/// The commands of this file.
pub const ROWS: &[Row] = &[
    Row {
        name: c"RQ.RECOVER",
        entry: entry!(recover, c"rq.recover"),
        flags: c"write",
        arity: -2,
        keys: Keys::One,
        access: Access::Takes,
        categories: c"write",
        docs: &Docs {
            summary: "Takes jobs back from workers that are gone.",
            complexity: "O(W + M log N) with W the workers named or registered, M the jobs taken and N those active",
            since: "0.1.0",
            reply: "[taken, remaining, map of worker to jobs taken]",
            args: &[
                docs::QUEUE,
                docs::one_of(
                    "who",
                    &[
                        docs::block("workers", &[docs::integer("n"), docs::text("name").multiple()])
                            .after("WORKERS"),
                        docs::block("except", &[docs::integer("n"), docs::text("name").multiple()])
                            .after("EXCEPT"),
                        docs::integer("ms").after("IDLE"),
                    ],
                )
                .optional(),
                docs::option("BEFORE", docs::instant("unix-ms")),
                docs::COUNT,
                docs::token("UNCOUNTED").optional(),
            ],
        },
    },
    Row {
        name: c"RQ.WORKERS",
        entry: entry!(workers, c"rq.workers"),
        flags: c"readonly",
        arity: -2,
        keys: Keys::One,
        access: Access::Reads,
        categories: c"read",
        docs: &Docs {
            summary: "Lists the workers of a queue.",
            complexity: "O(COUNT + W) with W those that wait",
            since: "0.1.0",
            reply: "[next cursor, array of maps]; the last page has cursor 0",
            args: &[docs::QUEUE, docs::option("CURSOR", docs::integer("cursor")), docs::COUNT],
        },
    },
];

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
            "WORKERS" => match options.names()? {
                names if names.is_empty() => return Err(Wrong::Nobody(option)),
                names => request.recover.who = Who::Named(names),
            },
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

/// `RQ.WORKERS queue [CURSOR c] [COUNT n]`
pub fn workers(call: &mut Call<'_>) -> Result<(), Refusal> {
    let (from, count) = parse_workers(call.args())?;
    let waiting = call.waiting();
    call.read(|seen, out| {
        let (next, workers) = seen.map_or((None, Vec::new()), |seen| seen.queue.list_workers(from, count));
        begin_page(next.unwrap_or(0), workers.len(), out);
        for worker in workers {
            if let Some(seen) = seen {
                views::worker(seen, &worker, waiting.get(worker.name).copied()).write(out);
            }
        }
    })
}

const WORKERS: &[&str] = &["CURSOR", "COUNT"];

fn parse_workers<'a, S: Source<'a>>(args: S) -> Result<(u64, usize), Wrong> {
    let (mut from, mut count) = (0, LIST_COUNT_DEFAULT);
    let mut options = Options::new(args, 2, WORKERS);
    while let Some(option) = options.next()? {
        match option {
            "CURSOR" => {
                let text = options.value()?;
                from = args::digits(text).ok_or_else(|| Wrong::Cursor(Quoted::new(text)))?;
            }
            "COUNT" => count = options.count()?,
            _ => return Err(options.unhandled()),
        }
    }
    Ok((from, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(options: &[&'static str]) -> Result<Request<'static>, String> {
        let texts = [&["RQ.RECOVER", "q"], options].concat();
        let args: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
        parse_recover(args.leak() as &[_]).map_err(|wrong| wrong.to_string())
    }

    #[test]
    fn words_are_documented() {
        docs::check_words(ROWS, c"RQ.RECOVER", RECOVER);
        docs::check_words(ROWS, c"RQ.WORKERS", WORKERS);
    }

    #[test]
    fn selectors() {
        let lapsed = Recover { who: Who::Lapsed, before: None, count: 1_000, counted: true };
        assert_eq!(parse(&[]), Ok(Request { recover: lapsed.clone(), idle: None }));
        let named = Recover { who: Who::Named(vec![b"a", b"COUNT"]), count: 5, ..lapsed.clone() };
        assert_eq!(
            parse(&["WORKERS", "2", "a", "COUNT", "COUNT", "5"]),
            Ok(Request { recover: named, idle: None })
        );
        let except = Recover { who: Who::Except(vec![]), before: Some(7), counted: false, ..lapsed.clone() };
        assert_eq!(
            parse(&["BEFORE", "7", "EXCEPT", "0", "UNCOUNTED"]),
            Ok(Request { recover: except, idle: None })
        );
        assert_eq!(parse(&["IDLE", "0"]), Ok(Request { recover: lapsed, idle: Some(0) }));
        for (options, text) in [
            (&["WORKERS", "1", "a", "EXCEPT", "1", "b"][..], "WORKERS and EXCEPT exclude each other"),
            (&["IDLE", "1", "WORKERS", "1", "b"], "IDLE and WORKERS exclude each other"),
            (&["WORKERS", "0"], "WORKERS must name one at least"),
            (&["WORKERS", "2", "a"], "WORKERS announces 2, but 1 follow"),
            (&["UNCOUNTED"], "UNCOUNTED can only be given together with WORKERS, EXCEPT or IDLE"),
        ] {
            assert_eq!(parse(options).unwrap_err(), text);
        }
    }
}

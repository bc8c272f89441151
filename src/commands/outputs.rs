//! `RQ.EMIT`, `RQ.READ`: what a worker puts out while it runs a job.

use super::args::{Options, Quoted, Range, Source, Wrong, digits};
use super::docs::{self, Docs};
use super::fields::int;
use super::produce::check_size;
use super::workers::{delivery, reply_progressed};
use super::{Access, Keys, Row, entry};
use crate::queue::limits::READ_COUNT_DEFAULT;
use crate::queue::{Id, Op, Place, Reading, Start};
use crate::server::call::{Call, Missing, News};
use crate::server::reply::{Out, Refusal};

/// The commands of this file.
pub const ROWS: &[Row] = &[
    Row {
        name: c"RQ.EMIT",
        entry: entry!(emit, c"rq.emit"),
        flags: c"write deny-oom fast",
        arity: 5,
        keys: Keys::One,
        access: Access::Changes,
        categories: c"write fast",
        docs: &Docs {
            summary: "Adds a chunk to the output of a running job, for RQ.READ to follow.",
            complexity: "O(1)",
            since: "0.1.0",
            reply: "ok, or cancel if the job is to be given up",
            args: &[docs::QUEUE, docs::text("id"), docs::text("token"), docs::text("chunk")],
        },
    },
    Row {
        name: c"RQ.READ",
        entry: entry!(read, c"rq.read"),
        flags: c"readonly blocking",
        arity: -3,
        keys: Keys::One,
        access: Access::Reads,
        categories: c"read blocking",
        docs: &Docs {
            summary: "Reads the output of a job from a position on; can wait for more.",
            complexity: "O(M) with M the chunks replied",
            since: "0.1.0",
            reply: "[next, chunks, run, ended], nil for an unknown job",
            args: &[
                docs::QUEUE,
                docs::text("id"),
                docs::option("FROM", docs::text("position")),
                docs::COUNT,
                docs::option("BLOCK", docs::integer("ms")),
            ],
        },
    },
];

/// `RQ.EMIT queue id token chunk`
pub fn emit(call: &mut Call<'_>) -> Result<(), Refusal> {
    let args = call.args();
    let (delivery, chunk) = (delivery(args, 2)?, args.get(4).ok_or(Wrong::Arity)?);
    if args.len() > 5 {
        return Err(Wrong::Arity.into());
    }
    check_size(chunk, call.max_payload())?;
    call.write(&Op::Emit { delivery, chunk }, Missing::Refuse, reply_progressed)
}

/// What `RQ.READ` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Request<'a> {
    id: Id<'a>,
    start: Start,
    count: usize,
    block: Option<u64>,
}

/// `RQ.READ queue id [FROM position] [COUNT n] [BLOCK ms]`
pub fn read(call: &mut Call<'_>) -> Result<(), Refusal> {
    let Request { id, start, count, block } = parse_read(call.args())?;
    call.watch(id, block, |_, job, out, waits| {
        let reading = job.read(start, count);
        // A number names no run: whoever gives one stands in the present one.
        let place = if let Start::Place(place) = start { place } else { reading.from };
        if waits && !reading.is_news(place) {
            return Some(News::Output { place, count: u32::try_from(count).unwrap_or(u32::MAX) });
        }
        reply_output(&reading, out);
        None
    })
}

const READ: &[&str] = &["FROM", "COUNT", "BLOCK"];

fn parse_read<'a, S: Source<'a>>(args: S) -> Result<Request<'a>, Wrong> {
    let id = Id::parse(args.get(2).ok_or(Wrong::Arity)?);
    let mut request = Request { id, start: Start::Number(0), count: READ_COUNT_DEFAULT, block: None };
    let mut options = Options::new(args, 3, READ);
    while let Some(option) = options.next()? {
        match option {
            "FROM" => {
                let text = options.value()?;
                request.start = position(text).ok_or_else(|| Wrong::Position(Quoted::new(text)))?;
            }
            "COUNT" => request.count = options.count()?,
            "BLOCK" => request.block = Some(options.number(Range::DURATION)?),
            _ => return Err(options.unhandled()),
        }
    }
    Ok(request)
}

/// `n`, or `run-n`.
fn position(text: &[u8]) -> Option<Start> {
    match text.iter().position(|&byte| byte == b'-') {
        None => digits(text).map(Start::Number),
        Some(at) => {
            let (run, number) = (digits(text.get(..at)?)?, digits(text.get(at.checked_add(1)?..)?)?);
            Some(Start::Place(Place { run, number }))
        }
    }
}

/// `[next, chunks, run, ended]`.
pub fn reply_output(reading: &Reading<'_>, out: &mut dyn Out) {
    let Place { run, number } = reading.next();
    out.array(4);
    out.bulk(format!("{run}-{number}").as_bytes());
    out.array(reading.chunks.len());
    reading.chunks.iter().for_each(|chunk| out.bulk(chunk));
    out.integer(usize::try_from(run).map_or(i64::MAX, int));
    match reading.ended {
        Some(state) => out.word(state.name()),
        None => out.null(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::State;

    fn parse(options: &[&'static str]) -> Result<Request<'static>, String> {
        let texts = [&["RQ.READ", "q", "j"], options].concat();
        let args: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
        parse_read(args.leak() as &[_]).map_err(|wrong| wrong.to_string())
    }

    #[test]
    fn words_are_documented() {
        docs::check_words(ROWS, c"RQ.EMIT", &[]);
        docs::check_words(ROWS, c"RQ.READ", READ);
    }

    #[test]
    fn reads() {
        let (id, place) = (Id::Custom(b"j"), |run, number| Start::Place(Place { run, number }));
        let plain = Request { id, start: Start::Number(0), count: 100, block: None };
        assert_eq!(parse(&[]), Ok(plain));
        assert_eq!(
            parse(&["block", "0", "COUNT", "7", "FROM", "2-17"]),
            Ok(Request { start: place(2, 17), count: 7, block: Some(0), ..plain })
        );
        assert_eq!(parse(&["FROM", "17"]), Ok(Request { start: Start::Number(17), ..plain }));
        let most = u64::MAX.to_string();
        assert_eq!(position(format!("{most}-{most}").as_bytes()), Some(place(u64::MAX, u64::MAX)));
        for wrong in ["", "-", "1-", "-1", "1-2-3", "x", "1-x", "01", "1-01", "+1", " 1", "$", "1 -2"] {
            let error = parse(&["FROM", wrong]).unwrap_err();
            assert!(error.starts_with("FROM must be"), "{wrong}: {error}");
        }
        for (options, text) in [
            (&["FROM"][..], "option FROM needs a value"),
            (&["COUNT", "0"], "COUNT must be an integer from 1 to 1000, not '0'"),
            (&["COUNT", "1001"], "COUNT must be an integer from 1 to 1000, not '1001'"),
            (&["BLOCK", "-1"], "BLOCK must be an integer from 0"),
            (&["LIMIT", "1"], "unknown option 'LIMIT'; there are FROM, COUNT, BLOCK"),
        ] {
            let error = parse(options).unwrap_err();
            assert!(error.starts_with(text), "{options:?}: {error}");
        }
    }

    #[test]
    fn what_was_read_is_shown() {
        let from = Place { run: 2, number: 5 };
        let shown = |chunks, ended| {
            let mut json = super::super::json::Json::default();
            reply_output(&Reading { from, chunks, ended }, &mut json);
            String::from_utf8(json.into_bytes()).unwrap()
        };
        assert_eq!(shown(vec![b"a", b""], None), r#"["2-7",["a",""],2,null]"#);
        assert_eq!(shown(vec![], Some(State::Done)), r#"["2-5",[],2,"done"]"#);
    }
}

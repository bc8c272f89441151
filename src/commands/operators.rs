//! Operators: `RQ.STATS`, `RQ.JOB`, `RQ.LIST`, `RQ.QUEUES`, `RQ.PAUSE`, `RQ.RESUME`, `RQ.REDRIVE`, `RQ.PURGE`.

use super::args::{self, Options, Quoted, Range, Source, Wrong};
use super::docs::{self, Docs};
use super::fields::{begin_page, int};
use super::glob;
use super::produce::{ids, nulls};
use super::views;
use super::{Access, Keys, Row, entry};
use crate::queue::limits::COUNT_DEFAULT;
use crate::queue::{Cursor, Filter, Id, Op, Outcome, Scope, Serial, State};
use crate::server::call::{Call, Missing};
use crate::server::reply::{Out, Refusal};

/// The commands of this file.
pub const ROWS: &[Row] = &[
    Row {
        name: c"RQ.STATS",
        entry: entry!(stats, c"rq.stats"),
        flags: c"readonly fast",
        arity: -2,
        keys: Keys::One,
        access: Access::Reads,
        categories: c"read fast",
        docs: &Docs {
            summary: "Tells the jobs of a queue per state, its totals, and how long the first in line has waited.",
            complexity: "O(G) with G the groups, of which at most 10,000 are looked at",
            since: "0.1.0",
            reply: "map, or with JSON one JSON text",
            args: &[docs::QUEUE, docs::JSON],
        },
    },
    Row {
        name: c"RQ.JOB",
        entry: entry!(job, c"rq.job"),
        flags: c"readonly fast",
        arity: -3,
        keys: Keys::One,
        access: Access::Reads,
        categories: c"read fast",
        docs: &Docs {
            summary: "Tells everything about one job.",
            complexity: "O(1)",
            since: "0.1.0",
            reply: "map, or with JSON one JSON text; nil for an unknown job",
            args: &[docs::QUEUE, docs::text("id"), docs::JSON],
        },
    },
    Row {
        name: c"RQ.LIST",
        entry: entry!(list, c"rq.list"),
        flags: c"readonly",
        arity: -3,
        keys: Keys::One,
        access: Access::Reads,
        categories: c"read",
        docs: &Docs {
            summary: "Lists the jobs in a state, of all, one tenant, one group or one worker, page by page.",
            complexity: "O(M + log N) with M the jobs looked at, at most 10,000, and N those in the state",
            since: "0.1.0",
            reply: "[next cursor, array of maps]; the cursor is 0 on the last page",
            args: &[
                docs::QUEUE,
                docs::STATE,
                docs::GROUP,
                docs::TENANT,
                docs::option("WORKER", docs::text("worker")),
                docs::option("CURSOR", docs::text("cursor")),
                docs::COUNT,
            ],
        },
    },
    Row {
        name: c"RQ.QUEUES",
        entry: entry!(queues, c"rq.queues"),
        flags: c"readonly",
        arity: -1,
        keys: Keys::None,
        access: Access::Reads,
        categories: c"read",
        docs: &Docs {
            summary: "Lists the queues of the selected database, page by page.",
            complexity: "O(M) with M the names looked at",
            since: "0.1.0",
            reply: "[next cursor, array of names]; the cursor is 0 on the last page",
            args: &[
                docs::option("CURSOR", docs::integer("cursor")),
                docs::COUNT,
                docs::option("MATCH", docs::pattern("pattern")),
            ],
        },
    },
    Row {
        name: c"RQ.PAUSE",
        entry: entry!(pause, c"rq.pause"),
        flags: c"write fast",
        arity: -2,
        keys: Keys::One,
        access: Access::Changes,
        categories: c"write fast",
        docs: &Docs {
            summary: "Stops a queue, a tenant or a group from being served, making it if there is none.",
            complexity: "O(log G) with G the groups",
            since: "0.1.0",
            reply: "OK",
            args: &[docs::QUEUE, docs::GROUP, docs::TENANT, docs::option("FOR", docs::integer("ms"))],
        },
    },
    Row {
        name: c"RQ.RESUME",
        entry: entry!(resume, c"rq.resume"),
        flags: c"write fast",
        arity: -2,
        keys: Keys::One,
        access: Access::Changes,
        categories: c"write fast",
        docs: &Docs {
            summary: "Ends a pause; of a group, also its back-off and its throttle.",
            complexity: "O(log G) with G the groups",
            since: "0.1.0",
            reply: "OK",
            args: &[docs::QUEUE, docs::GROUP, docs::TENANT],
        },
    },
    Row {
        name: c"RQ.REDRIVE",
        entry: entry!(redrive, c"rq.redrive"),
        flags: c"write",
        arity: -3,
        keys: Keys::One,
        access: Access::Changes,
        categories: c"write",
        docs: &Docs {
            summary: "Gives dead jobs a new life.",
            complexity: "O(M log N) with M the jobs named or taken and N those dead or ready",
            since: "0.1.0",
            reply: "array, per id: its state now or nil; with ALL: [redriven, remaining]",
            args: &[
                docs::QUEUE,
                docs::one_of(
                    "which",
                    &[docs::text("id").multiple(), docs::block("all", &[docs::token("ALL"), docs::COUNT])],
                ),
            ],
        },
    },
    Row {
        name: c"RQ.PURGE",
        entry: entry!(purge, c"rq.purge"),
        flags: c"write",
        arity: -3,
        keys: Keys::One,
        access: Access::Removes,
        categories: c"write",
        docs: &Docs {
            summary: "Removes jobs in any state but active.",
            complexity: "O(M log N) with M the jobs removed and N those in the state",
            since: "0.1.0",
            reply: "[purged, remaining]",
            args: &[docs::QUEUE, docs::STATE, docs::COUNT],
        },
    },
];

/// `RQ.STATS queue [JSON]`
pub fn stats(call: &mut Call<'_>) -> Result<(), Refusal> {
    let json = wants_json(call.args(), 2)?;
    let waiting = call.waiting();
    call.read(|seen, out| match seen {
        None => Err(Refusal::NoQueue),
        Some(seen) => {
            views::stats(seen, &waiting).reply(json, out);
            Ok(())
        }
    })?
}

/// `RQ.JOB queue id [JSON]`
pub fn job(call: &mut Call<'_>) -> Result<(), Refusal> {
    let args = call.args();
    let id = Id::parse(args.get(2).ok_or(Wrong::Arity)?);
    let json = wants_json(args, 3)?;
    call.read(|seen, out| {
        let found = seen.and_then(|seen| Some((seen, seen.queue.job(seen.queue.find(id)?)?)));
        match found {
            None => out.null(),
            Some((seen, job)) => views::job(seen, job).reply(json, out),
        }
    })
}

/// `RQ.LIST queue state [GROUP g] [TENANT t] [WORKER w] [CURSOR c] [COUNT n]`
pub fn list(call: &mut Call<'_>) -> Result<(), Refusal> {
    let request = parse_list(call.args())?;
    call.read(|seen, out| {
        out.array(2);
        let Some(seen) = seen else {
            out.bulk(b"0");
            out.array(0);
            return;
        };
        let page = seen.queue.list_some(&request.filter, request.after, request.count);
        match page.next {
            None => out.bulk(b"0"),
            Some(cursor) => out.bulk(show_cursor(cursor).as_bytes()),
        }
        out.array(page.jobs.len());
        for slot in page.jobs {
            match seen.queue.job(slot) {
                Some(job) => views::listed(seen, job).write(out),
                None => out.null(),
            }
        }
    })
}

const LIST: &[&str] = &["GROUP", "TENANT", "WORKER", "CURSOR", "COUNT"];
/// As `State::ALL`.
const STATES: &[&str] = &["delayed", "ready", "active", "done", "dead", "cancelled"];
/// Jobs, groups or names in a page unless the call says how many.
pub(super) const LIST_COUNT_DEFAULT: usize = 100;

#[derive(Debug, PartialEq, Eq)]
struct Listing<'a> {
    filter: Filter<'a>,
    after: Option<Cursor>,
    count: usize,
}

fn parse_list<'a, S: Source<'a>>(args: S) -> Result<Listing<'a>, Wrong> {
    let state = state(args.get(2).ok_or(Wrong::Arity)?)?;
    let (mut group, mut tenant, mut worker) = (None, None, None);
    let (mut after, mut count) = (None, LIST_COUNT_DEFAULT);
    let mut options = Options::new(args, 3, LIST);
    while let Some(option) = options.next()? {
        match option {
            "GROUP" => group = Some(options.name()?),
            "TENANT" => tenant = Some(options.name()?),
            "WORKER" => worker = Some(options.name()?),
            "CURSOR" => after = parse_cursor(options.value()?)?,
            "COUNT" => count = options.count()?,
            _ => return Err(options.unhandled()),
        }
    }
    if worker.is_some() && state != State::Active {
        return Err(Wrong::Needs("WORKER", "the state active"));
    }
    Ok(Listing { filter: Filter { state, worker, scope: args::scope(group, tenant) }, after, count })
}

fn state(text: &[u8]) -> Result<State, Wrong> {
    let index = args::word("state", text, STATES)?;
    State::ALL.get(index).copied().ok_or(Wrong::Arity)
}

fn show_cursor(cursor: Cursor) -> String {
    format!("{}.{}.{}.{}", cursor.born, cursor.rank, cursor.at, cursor.serial.0)
}

/// `None`: from the start.
fn parse_cursor(text: &[u8]) -> Result<Option<Cursor>, Wrong> {
    if text == b"0" {
        return Ok(None);
    }
    let malformed = || Wrong::Cursor(Quoted::new(text));
    let mut parts = text.split(|&byte| byte == b'.').map(args::digits);
    match (parts.next(), parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(Some(born)), Some(Some(rank)), Some(Some(at)), Some(Some(serial)), None) => {
            let rank = u8::try_from(rank).map_err(|_| malformed())?;
            Ok(Some(Cursor { born, rank, at, serial: Serial(serial) }))
        }
        _ => Err(malformed()),
    }
}

/// `RQ.QUEUES [CURSOR c] [COUNT n] [MATCH pattern]`
pub fn queues(call: &mut Call<'_>) -> Result<(), Refusal> {
    let (mut cursor, mut count, mut pattern) = (0, LIST_COUNT_DEFAULT, None);
    let mut options = Options::new(call.args(), 1, QUEUES);
    while let Some(option) = options.next()? {
        match option {
            "CURSOR" => {
                let text = options.value()?;
                cursor = args::digits(text).ok_or_else(|| Wrong::Cursor(Quoted::new(text)))?;
            }
            "COUNT" => count = options.count()?,
            "MATCH" => pattern = Some(options.name()?),
            _ => return Err(options.unhandled().into()),
        }
    }
    let (next, names) =
        call.queues(cursor, count, &|name| pattern.is_none_or(|pattern| glob::matches(pattern, name)));
    let out = call.out();
    begin_page(next, names.len(), out);
    for name in &names {
        out.bulk(name);
    }
    Ok(())
}

const QUEUES: &[&str] = &["CURSOR", "COUNT", "MATCH"];

/// `RQ.PAUSE queue [GROUP g] [TENANT t] [FOR ms]`
pub fn pause(call: &mut Call<'_>) -> Result<(), Refusal> {
    let (scope, length) = parse_pause(call.args(), PAUSE)?;
    call.write(&Op::Pause { scope, length }, Missing::Create, |_, out| out.word("OK"))
}

const PAUSE: &[&str] = &["GROUP", "TENANT", "FOR"];

/// `RQ.RESUME queue [GROUP g] [TENANT t]`
pub fn resume(call: &mut Call<'_>) -> Result<(), Refusal> {
    let (scope, _) = parse_pause(call.args(), RESUME)?;
    call.write(&Op::Resume { scope }, Missing::Nothing, |_, out| out.word("OK"))
}

const RESUME: &[&str] = &["GROUP", "TENANT"];

fn parse_pause<'a, S: Source<'a>>(
    args: S,
    known: &'static [&'static str],
) -> Result<(Scope<'a>, Option<u64>), Wrong> {
    let (mut group, mut tenant, mut length) = (None, None, None);
    let mut options = Options::new(args, 2, known);
    while let Some(option) = options.next()? {
        match option {
            "GROUP" => group = Some(options.name()?),
            "TENANT" => tenant = Some(options.name()?),
            "FOR" => length = Some(options.number(Range::SPAN)?),
            _ => return Err(options.unhandled()),
        }
    }
    Ok((args::scope(group, tenant), length))
}

/// `RQ.REDRIVE queue id [id ...]`, `RQ.REDRIVE queue ALL [COUNT n]`
pub fn redrive(call: &mut Call<'_>) -> Result<(), Refusal> {
    let args = call.args();
    if args.get(2).is_some_and(|word| word.eq_ignore_ascii_case(b"ALL")) {
        let count = count(args, 3)?;
        return call.write(&Op::RedriveAll { count }, Missing::Nothing, |applied, out| {
            reply_bulk(applied.map(|applied| applied.outcome), out);
        });
    }
    let ids = ids(args, 2)?;
    let asked = ids.len();
    call.write(&Op::Redrive { ids }, Missing::Nothing, |applied, out| {
        out.array(asked);
        match applied.map(|applied| applied.outcome) {
            Some(Outcome::Redriven(states)) => {
                for state in states {
                    match state {
                        Some(state) => out.word(state.name()),
                        None => out.null(),
                    }
                }
            }
            _ => nulls(asked, out),
        }
    })
}

/// `RQ.PURGE queue state [COUNT n]`
pub fn purge(call: &mut Call<'_>) -> Result<(), Refusal> {
    let args = call.args();
    let state = state(args.get(2).ok_or(Wrong::Arity)?)?;
    let count = count(args, 3)?;
    // The queue would say so too, if there is one.
    if state == State::Active {
        return Err(Refusal::PurgeActive);
    }
    call.write(&Op::Purge { state, count }, Missing::Nothing, |applied, out| {
        reply_bulk(applied.map(|applied| applied.outcome), out);
    })
}

const BULK: &[&str] = &["COUNT"];

/// `[COUNT n]`, and nothing else.
fn count<'a, S: Source<'a>>(args: S, from: usize) -> Result<usize, Wrong> {
    let mut count = COUNT_DEFAULT;
    let mut options = Options::new(args, from, BULK);
    while options.next()?.is_some() {
        count = options.count()?;
    }
    Ok(count)
}

fn reply_bulk(outcome: Option<&Outcome>, out: &mut dyn Out) {
    let (taken, remaining) = match outcome {
        Some(Outcome::Bulk { taken, remaining }) => (*taken, *remaining),
        _ => (0, 0),
    };
    out.array(2);
    out.integer(int(taken));
    out.integer(int(remaining));
}

const AS: &[&str] = &["JSON"];

/// `[JSON]`, and nothing else.
pub(super) fn wants_json<'a, S: Source<'a>>(args: S, from: usize) -> Result<bool, Wrong> {
    let mut json = false;
    let mut options = Options::new(args, from, AS);
    while options.next()?.is_some() {
        json = true;
    }
    Ok(json)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::GroupName;

    fn of(texts: &[&'static str]) -> &'static [&'static [u8]] {
        texts.iter().map(|text| text.as_bytes()).collect::<Vec<_>>().leak()
    }

    #[test]
    fn words_are_documented() {
        docs::check_words(ROWS, c"RQ.STATS", AS);
        docs::check_words(ROWS, c"RQ.JOB", AS);
        docs::check_words(ROWS, c"RQ.LIST", &[LIST, STATES].concat());
        docs::check_words(ROWS, c"RQ.QUEUES", QUEUES);
        docs::check_words(ROWS, c"RQ.PAUSE", PAUSE);
        docs::check_words(ROWS, c"RQ.RESUME", RESUME);
        docs::check_words(ROWS, c"RQ.REDRIVE", &[BULK, &["ALL"]].concat());
        docs::check_words(ROWS, c"RQ.PURGE", &[BULK, STATES].concat());
    }

    #[test]
    fn states_are_those_of_the_queue() {
        assert_eq!(STATES, State::ALL.map(State::name));
        for expected in State::ALL {
            assert_eq!(state(expected.name().to_uppercase().as_bytes()), Ok(expected));
        }
        assert!(state(b"").is_err() && state(b"waiting").is_err());
    }

    #[test]
    fn cursors() {
        for cursor in [
            Cursor { born: 0, rank: 0, at: 0, serial: Serial(0) },
            Cursor { born: u64::MAX, rank: 255, at: u64::MAX, serial: Serial::MAX },
        ] {
            assert_eq!(parse_cursor(show_cursor(cursor).as_bytes()), Ok(Some(cursor)));
        }
        assert_eq!(parse_cursor(b"0"), Ok(None));
        for text in [
            "",
            "1",
            "00",
            "0.0",
            "0.0.0.0.0",
            "256.0.0",
            "-1.0.0",
            "0..0",
            "0.0.18446744073709551616",
            "0.0.x",
            "x y",
        ] {
            assert!(parse_cursor(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn listings() {
        let listing =
            parse_list(of(&["RQ.LIST", "q", "Active", "COUNT", "5", "worker", "w", "CURSOR", "0"])).unwrap();
        let filter = Filter { state: State::Active, worker: Some(b"w"), scope: Scope::Queue };
        assert_eq!(listing, Listing { filter, after: None, count: 5 });
        let scope = |args| parse_list(of(args)).unwrap().filter.scope;
        assert_eq!(scope(&["RQ.LIST", "q", "dead", "TENANT", "t"]), Scope::Tenant(b"t"));
        let text = |args| parse_list(of(args)).unwrap_err().to_string();
        assert_eq!(
            text(&["RQ.LIST", "q", "done", "WORKER", "w"]),
            "WORKER can only be given together with the state active"
        );
        assert!(text(&["RQ.LIST", "q", "ready", "CURSOR", "x"]).starts_with("CURSOR must be 0 or"));
    }

    #[test]
    fn pauses_are_of_queues_tenants_and_groups() {
        let of_group = |tenant, group| Scope::Group(GroupName { tenant, group });
        let parse = |options: &[&'static str]| {
            let args = [&["RQ.PAUSE", "q"], options].concat();
            parse_pause(of(&args), PAUSE).map_err(|wrong| wrong.to_string())
        };
        assert_eq!(parse(&[]), Ok((Scope::Queue, None)));
        assert_eq!(parse(&["FOR", "5", "group", "g"]), Ok((of_group(b"", b"g"), Some(5))));
        assert_eq!(parse(&["TENANT", "t"]), Ok((Scope::Tenant(b"t"), None)));
        assert_eq!(parse(&["GROUP", "g", "TENANT", "t"]), Ok((of_group(b"t", b"g"), None)));
        assert_eq!(parse(&["GROUP", ""]).unwrap_err(), "GROUP must be a name of 1 to 512 bytes; it has 0");
        assert!(parse(&["FOR", "0"]).is_err());
        let resume = parse_pause(of(&["RQ.RESUME", "q", "FOR", "5"]), RESUME).unwrap_err().to_string();
        assert_eq!(resume, "unknown option 'FOR'; there are GROUP, TENANT");
    }

    #[test]
    fn json_and_counts() {
        assert_eq!(wants_json(of(&["RQ.STATS", "q"]), 2), Ok(false));
        assert_eq!(wants_json(of(&["RQ.STATS", "q", "json"]), 2), Ok(true));
        assert!(wants_json(of(&["RQ.STATS", "q", "JSON", "JSON"]), 2).is_err());
        assert!(wants_json(of(&["RQ.STATS", "q", "XML"]), 2).is_err());
        assert_eq!(count(of(&["RQ.PURGE", "q", "ready"]), 3), Ok(1_000));
        assert_eq!(count(of(&["RQ.PURGE", "q", "ready", "COUNT", "7"]), 3), Ok(7));
        assert!(count(of(&["RQ.PURGE", "q", "ready", "7"]), 3).is_err());
    }
}

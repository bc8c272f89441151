//! Producers: `RQ.ENQUEUE`, `RQ.MENQUEUE`, `RQ.CANCEL`, `RQ.RESCHEDULE`.

use super::args::{self, Options, Range, Source, Wrong};
use super::docs::{self, Arg, Docs};
use super::fields::write_id;
use super::{Access, Keys, Row, entry};
use crate::queue::limits::IDS_MAX;
use crate::queue::{
    Cancel, Enqueue, GroupName, Id, IfExists, JobOptions, Op, Outcome, Payloads, Serial, Unique, Until, When,
};
use crate::server::call::{Call, Missing};
use crate::server::reply::{Out, Refusal};

/// The commands of this file.
pub const ROWS: &[Row] = &[
    Row {
        name: c"RQ.ENQUEUE",
        entry: entry!(enqueue, c"rq.enqueue"),
        flags: c"write deny-oom fast",
        arity: -3,
        keys: Keys::One,
        access: Access::Adds,
        categories: c"write fast",
        docs: &Docs {
            summary: "Adds a job to a queue, making the queue if there is none.",
            complexity: "O(log N) with N the jobs in the state that the job begins in",
            since: "0.1.0",
            reply: "the job's id; with UNIQUE an array of the id of the job that has the key, and added, duplicate or replaced",
            args: &[
                docs::QUEUE,
                docs::text("payload"),
                docs::block(
                    "own-id",
                    &[
                        docs::text("id").after("ID"),
                        docs::one_of("if-exists", &[docs::token("IFNEW"), docs::token("REPLACE")]).optional(),
                    ],
                )
                .optional(),
                docs::block(
                    "unique",
                    &[
                        docs::text("key").after("UNIQUE"),
                        docs::one_of("until", &[docs::token("started"), docs::token("finished")])
                            .after("UNTIL")
                            .optional(),
                        docs::option("FOR", docs::integer("ms")),
                        docs::token("DEBOUNCE").optional(),
                    ],
                )
                .optional(),
                docs::WHEN,
                PRIORITY,
                docs::GROUP,
                docs::TENANT,
                ATTEMPTS,
                CRASHES,
                docs::BACKOFF,
                docs::LEASE,
                docs::TTL,
                DEADLINE,
            ],
        },
    },
    Row {
        name: c"RQ.MENQUEUE",
        entry: entry!(menqueue, c"rq.enqueue"),
        flags: c"write deny-oom",
        arity: -5,
        keys: Keys::One,
        access: Access::Adds,
        categories: c"write",
        docs: &Docs {
            summary: "Adds many jobs to a queue, all or none.",
            complexity: "O(M log N) with M the jobs added and N those in the state that they begin in",
            since: "0.1.0",
            reply: "array of the jobs' ids",
            args: &[
                docs::QUEUE,
                docs::WHEN,
                PRIORITY,
                docs::GROUP,
                docs::TENANT,
                ATTEMPTS,
                CRASHES,
                docs::BACKOFF,
                docs::LEASE,
                docs::TTL,
                DEADLINE,
                docs::integer("n").after("JOBS"),
                docs::text("payload").multiple(),
            ],
        },
    },
    Row {
        name: c"RQ.CANCEL",
        entry: entry!(cancel, c"rq.cancel"),
        flags: c"write",
        arity: -3,
        keys: Keys::One,
        access: Access::Changes,
        categories: c"write",
        docs: &Docs {
            summary: "Cancels jobs: waiting ones at once, active ones when their delivery ends.",
            complexity: "O(M log N) with M the ids and N the jobs in a state",
            since: "0.1.0",
            reply: "array, per id: cancelled, cancelling, the final state that it had, or nil",
            args: &[docs::QUEUE, docs::text("id").multiple()],
        },
    },
    Row {
        name: c"RQ.RESCHEDULE",
        entry: entry!(reschedule, c"rq.reschedule"),
        flags: c"write fast",
        arity: -5,
        keys: Keys::One,
        access: Access::Changes,
        categories: c"write fast",
        docs: &Docs {
            summary: "Changes when a waiting job may run, or its priority.",
            complexity: "O(log N) with N the jobs in the states delayed and ready",
            since: "0.1.0",
            reply: "the job's state",
            args: &[docs::QUEUE, docs::text("id"), docs::WHEN, PRIORITY],
        },
    },
];

const PRIORITY: Arg = docs::option("PRIORITY", docs::integer("0-255"));
const ATTEMPTS: Arg = docs::option("ATTEMPTS", docs::N_OR_NONE);
const CRASHES: Arg = docs::option("CRASHES", docs::N_OR_NONE);
const DEADLINE: Arg = docs::option("DEADLINE", docs::integer("ms"));

/// `RQ.ENQUEUE queue payload [ID id [IFNEW | REPLACE]] [UNIQUE key [UNTIL started | finished] [FOR ms] [DEBOUNCE]]
/// [DELAY ms | AT unix-ms] [PRIORITY n] [GROUP name] [TENANT name] [ATTEMPTS n] [CRASHES n] [BACKOFF base-ms [max-ms]] [LEASE ms] [TTL ms] [DEADLINE ms]`
pub fn enqueue(call: &mut Call<'_>) -> Result<(), Refusal> {
    let args = call.args();
    let payload = args.get(2).ok_or(Wrong::Arity)?;
    let mut enqueue = plain(Payloads::One(payload));
    single(args, &mut enqueue)?;
    check_size(payload, call.max_payload())?;
    let (given, is_unique) = (enqueue.id.map(|(id, _)| id), enqueue.unique.is_some());
    call.write(&Op::Enqueue(enqueue), Missing::Create, |applied, out| {
        let outcome = applied.map(|applied| applied.outcome);
        if is_unique {
            out.array(2);
        }
        match (outcome, given) {
            (Some(Outcome::Duplicate { id, .. }), _) => out.bulk(id),
            // Also when it existed.
            (Some(_), Some(id)) => out.bulk(id),
            (Some(Outcome::Enqueued { first, .. }), None) => write_id(Id::Serial(*first), out),
            _ => out.null(),
        }
        if is_unique {
            out.word(match outcome {
                Some(Outcome::Enqueued { .. }) => "added",
                Some(Outcome::Duplicate { replaced: true, .. }) => "replaced",
                _ => "duplicate",
            });
        }
    })
}

/// `RQ.MENQUEUE queue [the options of RQ.ENQUEUE but ID and UNIQUE] JOBS n payload [payload ...]`
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
    "ID", "IFNEW", "REPLACE", "UNIQUE", "UNTIL", "FOR", "DEBOUNCE", "DELAY", "AT", "PRIORITY", "GROUP",
    "TENANT", "ATTEMPTS", "CRASHES", "BACKOFF", "LEASE", "TTL", "DEADLINE",
];
const MANY: &[&str] = &[
    "DELAY", "AT", "PRIORITY", "GROUP", "TENANT", "ATTEMPTS", "CRASHES", "BACKOFF", "LEASE", "TTL",
    "DEADLINE", "JOBS",
];
/// In the order of [`Until::ALL`].
const UNTIL: &[&str] = &[Until::ALL[0].name(), Until::ALL[1].name()];
const RESCHEDULE: &[&str] = &["DELAY", "AT", "PRIORITY"];

/// Reads the options of `RQ.ENQUEUE`.
fn single<'a, S: Source<'a>>(args: S, enqueue: &mut Enqueue<'a>) -> Result<(), Wrong> {
    let mut if_exists = None;
    let (mut key, mut until, mut window, mut debounce) = (None, None, None, false);
    let mut options = Options::new(args, 3, SINGLE);
    while let Some(option) = options.next()? {
        match option {
            "ID" => enqueue.id = Some((args::own_id(options.value()?)?, IfExists::Refuse)),
            "IFNEW" => once(&mut if_exists, (IfExists::Keep, "IFNEW"))?,
            "REPLACE" => once(&mut if_exists, (IfExists::Replace, "REPLACE"))?,
            "UNIQUE" => key = Some(options.name()?),
            "UNTIL" => until = Until::ALL.get(options.word(UNTIL)?).copied(),
            "FOR" => window = Some(options.number(Range::SPAN)?),
            "DEBOUNCE" => debounce = true,
            _ => shared(option, &mut options, enqueue)?,
        }
    }
    let stray = [("UNTIL", until.is_some()), ("FOR", window.is_some()), ("DEBOUNCE", debounce)];
    match (key, stray.into_iter().find(|(_, is_given)| *is_given)) {
        (None, Some((word, _))) => return Err(Wrong::Needs(word, "UNIQUE")),
        (None, None) => {}
        (Some(key), _) => {
            // What is debounced is to run once more after it was started: the newest payload always runs.
            let usual = if debounce { Until::Started } else { Until::Finished };
            enqueue.unique = Some(Box::new(Unique { key, until: until.unwrap_or(usual), window, debounce }));
        }
    }
    match (&mut enqueue.id, if_exists) {
        (Some((_, what)), Some((wanted, _))) => *what = wanted,
        (None, Some((_, word))) => return Err(Wrong::Needs(word, "ID")),
        (_, None) => {}
    }
    Ok(())
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
        unique: None,
        group: GroupName { tenant: b"", group: b"" },
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
        "GROUP" => enqueue.group.group = options.name()?,
        "TENANT" => enqueue.group.tenant = options.name()?,
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

/// All arguments from number `from` on, as ids; at least one, at most [`IDS_MAX`].
pub(super) fn ids<'a, S: Source<'a>>(args: S, from: usize) -> Result<Vec<Id<'a>>, Wrong> {
    match args.len().saturating_sub(from) {
        0 => Err(Wrong::Arity),
        there if there > IDS_MAX => Err(Wrong::Many { of: "ids", most: IDS_MAX, there }),
        _ => Ok((from..args.len()).filter_map(|index| args.get(index)).map(Id::parse).collect()),
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::Backoff;

    fn of(texts: &[&'static str]) -> Vec<&'static [u8]> {
        texts.iter().map(|text| text.as_bytes()).collect()
    }

    fn one(options: &[&'static str]) -> Result<Enqueue<'static>, String> {
        let args = of(&[&["RQ.ENQUEUE", "q", "x"], options].concat());
        let mut enqueue = plain(Payloads::One(b"x"));
        single(args.leak() as &[_], &mut enqueue).map_err(|wrong| wrong.to_string())?;
        Ok(enqueue)
    }

    fn all(options: &[&'static str]) -> Result<Enqueue<'static>, String> {
        let args = of(&[&["RQ.MENQUEUE", "q"], options].concat());
        many(args.leak() as &[_]).map_err(|wrong| wrong.to_string())
    }

    #[test]
    fn words_are_documented() {
        docs::check_words(ROWS, c"RQ.ENQUEUE", SINGLE);
        docs::check_words(ROWS, c"RQ.MENQUEUE", MANY);
        docs::check_words(ROWS, c"RQ.CANCEL", &[]);
        docs::check_words(ROWS, c"RQ.RESCHEDULE", RESCHEDULE);
    }

    #[test]
    fn enqueue_with_nothing() {
        assert_eq!(one(&[]), Ok(plain(Payloads::One(b"x"))));
    }

    #[test]
    fn enqueue_with_everything_in_any_order() {
        let words = [
            "ttl", "none", "PRIORITY", "255", "Lease", "9", "replace", "AT", "17", "ID", "j", "DEADLINE",
            "1", "backoff", "2", "3", "crashes", "0", "ATTEMPTS", "none", "tenant", "t", "Group", "GROUP",
            "debounce", "for", "50", "Until", "FINISHED", "unique", "k",
        ];
        let expected = Enqueue {
            payloads: Payloads::One(b"x"),
            id: Some((b"j", IfExists::Replace)),
            unique: Some(Box::new(Unique {
                key: b"k",
                until: Until::Finished,
                window: Some(50),
                debounce: true,
            })),
            group: GroupName { tenant: b"t", group: b"GROUP" },
            when: Some(When::At(17)),
            priority: 255,
            options: JobOptions {
                attempts: Some(None),
                crashes: Some(Some(0)),
                backoff: Some(Backoff { base: 2, max: 3 }),
                lease: Some(9),
                ttl: Some(None),
                deadline: Some(1),
            },
        };
        assert_eq!(one(&words), Ok(expected));
    }

    #[test]
    fn unique_lasts_until_the_end_or_if_debounced_until_the_start() {
        let terms = |options: &[&'static str]| {
            one(options).unwrap().unique.map(|unique| (unique.until, unique.window))
        };
        assert_eq!(terms(&["UNIQUE", "k"]), Some((Until::Finished, None)));
        assert_eq!(terms(&["FOR", "9", "UNIQUE", "k", "DEBOUNCE"]), Some((Until::Started, Some(9))));
        assert_eq!(terms(&["UNIQUE", "k", "UNTIL", "started"]), Some((Until::Started, None)));
        assert_eq!(terms(&["UNTIL", "finished", "DEBOUNCE", "UNIQUE", "k"]), Some((Until::Finished, None)));
        assert_eq!(
            all(&["UNIQUE", "k", "JOBS", "1", "a"]).unwrap_err().split(';').next(),
            Some("unknown option 'UNIQUE'")
        );
    }

    #[test]
    fn enqueue_refuses() {
        for (options, text) in [
            (&["IFNEW"][..], "IFNEW can only be given together with ID"),
            (&["REPLACE"], "REPLACE can only be given together with ID"),
            (&["ID", "a", "IFNEW", "REPLACE"], "IFNEW and REPLACE exclude each other"),
            (&["DELAY", "1", "AT", "1"], "DELAY and AT exclude each other"),
            (&["AT", "1", "DELAY", "1"], "DELAY and AT exclude each other"),
            (&["ID", "1-1"], "ID must not look like <digits>-<digits>"),
            (&["ID", ""], "ID must be a name of 1 to 512 bytes; it has 0"),
            (&["ID"], "option ID needs a value"),
            (&["UNIQUE", ""], "UNIQUE must be a name of 1 to 512 bytes; it has 0"),
            (&["UNIQUE", "k", "UNTIL", "done"], "UNTIL must be one of started, finished, not 'done'"),
            (
                &["UNIQUE", "k", "UNTIL", "finish"],
                "UNTIL must be one of started, finished, not 'finish'; did you mean finished?",
            ),
            (&["UNIQUE", "k", "FOR", "0"], "FOR must be an integer from 1"),
            (&["UNIQUE", "k", "UNIQUE", "k"], "option UNIQUE is given twice"),
            (&["UNTIL", "started"], "UNTIL can only be given together with UNIQUE"),
            (&["FOR", "5"], "FOR can only be given together with UNIQUE"),
            (&["DEBOUNCE"], "DEBOUNCE can only be given together with UNIQUE"),
            (&["UNIQ", "k"], "unknown option 'UNIQ'; did you mean UNIQUE?"),
            (&["UNIQUE", "k", "DEBOUNSE"], "unknown option 'DEBOUNSE'; did you mean DEBOUNCE?"),
            (&["LEASE", "0"], "LEASE must be an integer from 1"),
            (&["LEASE", "none"], "LEASE must be an integer from 1"),
            (&["DEADLINE", "0"], "DEADLINE must be an integer from 1"),
            (&["GROUP", ""], "GROUP must be a name of 1 to 512 bytes; it has 0"),
            (&["TENANT"], "option TENANT needs a value"),
            (&["GROUP", "a", "GROUP", "b"], "option GROUP is given twice"),
            (&["JOBS", "1"], "unknown option 'JOBS'"),
        ] {
            let error = one(options).unwrap_err();
            assert!(error.starts_with(text), "{options:?}: {error}");
        }
    }

    #[test]
    fn menqueue_takes_all_that_follows_jobs() {
        let enqueue = all(&["PRIORITY", "3", "JOBS", "3", "JOBS", "DELAY", ""]).unwrap();
        assert_eq!(enqueue.payloads.as_slice(), [&b"JOBS"[..], b"DELAY", b""]);
        assert_eq!(enqueue.priority, 3);
        for (options, text) in [
            (&["PRIORITY", "3"][..], "JOBS is missing"),
            (&["JOBS", "0"], "JOBS must be an integer from 1 to 1000, not '0'"),
            (&["JOBS", "1001"], "JOBS must be an integer from 1 to 1000, not '1001'"),
            (&["JOBS", "2", "a"], "JOBS announces 2, but 1 follow"),
            (&["JOBS", "1", "a", "b"], "JOBS announces 1, but 2 follow"),
            (&["ID", "a", "JOBS", "1", "a"], "unknown option 'ID'"),
        ] {
            let error = all(options).unwrap_err();
            assert!(error.starts_with(text), "{options:?}: {error}");
        }
    }

    #[test]
    fn reschedule_needs_something_to_do() {
        let parse = |options: &[&'static str]| {
            let args = of(&[&["RQ.RESCHEDULE", "q", "j"], options].concat());
            rescheduled(args.leak() as &[_]).map_err(|wrong| wrong.to_string())
        };
        let id = Id::Custom(b"j");
        assert_eq!(parse(&["PRIORITY", "0"]), Ok(Op::Reschedule { id, when: None, priority: Some(0) }));
        assert_eq!(
            parse(&["delay", "0"]),
            Ok(Op::Reschedule { id, when: Some(When::Delay(0)), priority: None })
        );
        assert_eq!(parse(&[]).unwrap_err(), "nothing to do; give one of DELAY, AT, PRIORITY");
    }

    #[test]
    fn sizes_are_limited_only_where_there_is_a_limit() {
        assert!(check_size(b"12345", Some(5)).is_ok() && check_size(b"12345", None).is_ok());
        assert_eq!(check_size(b"123456", Some(5)), Err(Refusal::TooBig { limit: 5 }));
    }
}

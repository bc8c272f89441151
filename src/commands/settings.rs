//! `RQ.QUEUE.SET`, `RQ.QUEUE.GET`.

use super::args::{BURST, Options, Range, STRAY_BURST, Source, Wrong};
use super::docs::{self, Docs};
use super::operators::wants_json;
use super::views;
use super::{Access, Keys, Row, entry};
use crate::queue::{Op, SettingsPatch};
use crate::server::call::{Call, Missing};
use crate::server::reply::Refusal;

/// The commands of this file.
pub const ROWS: &[Row] = &[
    Row {
        name: c"RQ.QUEUE.SET",
        entry: entry!(set, c"rq.queue.set"),
        flags: c"write fast",
        arity: -4,
        keys: Keys::One,
        access: Access::Changes,
        categories: c"write fast",
        docs: &Docs {
            summary: "Changes settings of a queue, making the queue if there is none.",
            complexity: "O(1)",
            since: "0.1.0",
            reply: "OK",
            args: &[
                docs::QUEUE,
                docs::LEASE,
                docs::option("ATTEMPTS", docs::N_OR_NONE),
                docs::option("CRASHES", docs::N_OR_NONE),
                docs::BACKOFF,
                docs::TTL,
                docs::option("RESULTTTL", docs::MS_OR_NONE),
                docs::option("DEADTTL", docs::MS_OR_NONE),
                docs::option("KEEPDONE", docs::N_OR_NONE),
                docs::option("KEEPDEAD", docs::N_OR_NONE),
                docs::option("MAXLEN", docs::N_OR_NONE),
                docs::option("MAXOUTPUT", docs::integer("bytes")),
                docs::option("WORKERTTL", docs::MS_OR_NONE),
                docs::CONCURRENCY,
                docs::RATE,
                docs::option("GROUP-CONCURRENCY", docs::N_OR_NONE),
                docs::option("GROUP-RATE", docs::RATE_VALUE),
                docs::option("GROUP-BACKOFF", docs::BACKOFF_VALUE),
                docs::option(
                    "GROUP-ORDERED",
                    docs::one_of("ordered", &[docs::token("yes"), docs::token("no")]),
                ),
            ],
        },
    },
    Row {
        name: c"RQ.QUEUE.GET",
        entry: entry!(get, c"rq.queue.get"),
        flags: c"readonly fast",
        arity: -2,
        keys: Keys::One,
        access: Access::Reads,
        categories: c"read fast",
        docs: &Docs {
            summary: "Tells the settings of a queue.",
            complexity: "O(1)",
            since: "0.1.0",
            reply: "map of settings, or with JSON one JSON text",
            args: &[docs::QUEUE, docs::JSON],
        },
    },
];

/// `RQ.QUEUE.SET queue option value [option value ...]`
pub fn set(call: &mut Call<'_>) -> Result<(), Refusal> {
    let patch = patch(call.args())?;
    call.write(&Op::Set(patch), Missing::Create, |_, out| out.word("OK"))
}

const SET: &[&str] = &[
    "LEASE",
    "ATTEMPTS",
    "CRASHES",
    "BACKOFF",
    "TTL",
    "RESULTTTL",
    "DEADTTL",
    "KEEPDONE",
    "KEEPDEAD",
    "MAXLEN",
    "MAXOUTPUT",
    "WORKERTTL",
    "CONCURRENCY",
    "RATE",
    "GROUP-CONCURRENCY",
    "GROUP-RATE",
    "GROUP-BACKOFF",
    "GROUP-ORDERED",
    BURST,
];

/// All but the word that only follows a rate.
const SETTINGS: &[&str] = match SET {
    [settings @ .., _] => settings,
    [] => &[],
};

fn patch<'a, S: Source<'a>>(args: S) -> Result<SettingsPatch, Wrong> {
    let mut patch = SettingsPatch::default();
    let mut options = Options::new(args, 2, SET);
    while let Some(option) = options.next()? {
        match option {
            "LEASE" => patch.lease = Some(options.number(Range::SPAN)?),
            "ATTEMPTS" => patch.attempts = Some(options.budget(Range::ATTEMPTS)?),
            "CRASHES" => patch.crashes = Some(options.budget(Range::CRASHES)?),
            "BACKOFF" => patch.backoff = Some(options.backoff()?),
            "TTL" => patch.ttl = Some(options.number_or_none(Range::DURATION)?),
            "RESULTTTL" => patch.result_ttl = Some(options.number_or_none(Range::DURATION)?),
            "DEADTTL" => patch.dead_ttl = Some(options.number_or_none(Range::DURATION)?),
            "KEEPDONE" => patch.keep_done = Some(options.number_or_none(Range::KEEP)?),
            "KEEPDEAD" => patch.keep_dead = Some(options.number_or_none(Range::KEEP)?),
            "MAXLEN" => patch.max_len = Some(options.number_or_none(Range::KEEP)?),
            "MAXOUTPUT" => patch.max_output = Some(options.number(Range::OUTPUT)?),
            "WORKERTTL" => patch.worker_ttl = Some(options.number_or_none(Range::DURATION)?),
            "CONCURRENCY" => patch.concurrency = Some(options.concurrency(Range::CONCURRENCY)?),
            "RATE" => patch.rate = Some(options.rate(Range::RATE)?),
            "GROUP-CONCURRENCY" => patch.group_concurrency = Some(options.concurrency(Range::CONCURRENCY)?),
            "GROUP-RATE" => patch.group_rate = Some(options.rate(Range::RATE)?),
            "GROUP-BACKOFF" => patch.group_backoff = Some(options.backoff()?),
            "GROUP-ORDERED" => patch.group_ordered = Some(options.word(ORDERED)? == 0),
            BURST => return Err(STRAY_BURST),
            _ => return Err(options.unhandled()),
        }
    }
    if patch == SettingsPatch::default() { Err(Wrong::NoneOf(SETTINGS)) } else { Ok(patch) }
}

const ORDERED: &[&str] = &["yes", "no"];

/// `RQ.QUEUE.GET queue [JSON]`
pub fn get(call: &mut Call<'_>) -> Result<(), Refusal> {
    let json = wants_json(call.args(), 2)?;
    call.read(|seen, out| match seen {
        None => Err(Refusal::NoQueue),
        Some(seen) => {
            views::settings(seen.queue.settings()).reply(json, out);
            Ok(())
        }
    })?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::{Backoff, Rate};

    fn parse(options: &[&'static str]) -> Result<SettingsPatch, String> {
        let texts = [&["RQ.QUEUE.SET", "q"], options].concat();
        let args: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
        patch(args.as_slice()).map_err(|wrong| wrong.to_string())
    }

    #[test]
    fn words_are_documented() {
        docs::check_words(ROWS, c"RQ.QUEUE.SET", &[SET, ORDERED, &[BURST]].concat());
        docs::check_words(ROWS, c"RQ.QUEUE.GET", &["JSON"]);
    }

    #[test]
    fn what_is_shown_can_be_set() {
        let shown = views::settings(&crate::queue::Settings::default());
        let names: Vec<String> = shown.names().map(str::to_uppercase).collect();
        assert_eq!(names, SETTINGS);
    }

    #[test]
    fn all_settings() {
        let words = [
            "LEASE",
            "1",
            "ATTEMPTS",
            "2",
            "CRASHES",
            "0",
            "BACKOFF",
            "4",
            "5",
            "TTL",
            "0",
            "RESULTTTL",
            "none",
            "DEADTTL",
            "8",
            "KEEPDONE",
            "0",
            "KEEPDEAD",
            "none",
            "MAXLEN",
            "4294967295",
            "MAXOUTPUT",
            "67108864",
            "WORKERTTL",
            "12",
            "concurrency",
            "0",
            "RATE",
            "1000000",
            "4294967295",
            "group-concurrency",
            "none",
            "GROUP-RATE",
            "5",
            "1000",
            "BURST",
            "1",
            "GROUP-BACKOFF",
            "9",
            "9",
            "GROUP-ORDERED",
            "YES",
        ];
        let expected = SettingsPatch {
            lease: Some(1),
            attempts: Some(Some(2)),
            crashes: Some(Some(0)),
            backoff: Some(Backoff { base: 4, max: 5 }),
            ttl: Some(Some(0)),
            result_ttl: Some(None),
            dead_ttl: Some(Some(8)),
            keep_done: Some(Some(0)),
            keep_dead: Some(None),
            max_len: Some(Some(4_294_967_295)),
            max_output: Some(67_108_864),
            worker_ttl: Some(Some(12)),
            concurrency: Some(Some(0)),
            rate: Some(Some(Rate { count: 1_000_000, period: 4_294_967_295, burst: 1_000_000 })),
            group_concurrency: Some(None),
            group_rate: Some(Some(Rate { count: 5, period: 1_000, burst: 1 })),
            group_backoff: Some(Backoff { base: 9, max: 9 }),
            group_ordered: Some(true),
        };
        assert_eq!(parse(&words), Ok(expected));
        for (options, text) in [
            (&["CONCURRENCY", "1000001"][..], "CONCURRENCY must be an integer from 0 to 1000000 or none"),
            (&["MAXOUTPUT", "67108865"], "MAXOUTPUT must be an integer from 0 to 67108864 (bytes), not"),
            (&["MAXOUTPUT", "none"], "MAXOUTPUT must be an integer from 0 to 67108864 (bytes), not"),
            (&["RATE", "0", "1000"], "RATE must be an integer from 1 to 1000000 or none, not '0'"),
            (&["RATE", "1", "0"], "RATE must be an integer from 1 to 4294967295 (ms), not '0'"),
            (&["RATE", "5"], "RATE takes n ms [BURST n]: so many claims in so many ms"),
            (
                &["RATE", "5", "TTL", "0"],
                "RATE takes n ms [BURST n]: so many claims in so many ms, not '5' 'TTL'",
            ),
            (&["RATE", "5", "1000", "BURST"], "option BURST needs a value"),
            (&["RATE", "5", "1000", "BURST", "0"], "BURST must be an integer from 1 to 1000000, not '0'"),
            (&["RATE", "1", "1", "BURST", "1", "BURST", "1"], "BURST can only be given together with"),
            (&["BURST", "1"], "BURST can only be given together with n ms of a rate before it"),
            (&["GROUP-ORDERED", "default"], "GROUP-ORDERED must be one of yes, no, not 'default'"),
            (
                &["GROUP-CONCURENCY", "1"],
                "unknown option 'GROUP-CONCURENCY'; did you mean GROUP-CONCURRENCY?",
            ),
        ] {
            let error = parse(options).unwrap_err();
            assert!(error.starts_with(text), "{options:?}: {error}");
        }
        assert!(
            parse(&["maxlen", "4294967296"]).is_err()
                && parse(&[]).is_err()
                && parse(&["LEASE", "none"]).is_err()
        );
    }
}

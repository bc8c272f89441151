//! `RQ.QUEUE.SET`, `RQ.QUEUE.GET`.

use super::args::{Options, Range, Source, Wrong};
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
        access: Access::Write,
        categories: c"write fast",
        docs: &Docs {
            summary: "Changes settings of a queue, making the queue if there is none.",
            complexity: "O(1)",
            since: "0.1.0",
            reply: "OK",
            args: &[
                docs::QUEUE,
                docs::LEASE,
                docs::option("ATTEMPTS", docs::integer("n")),
                docs::option("CRASHES", docs::integer("n")),
                docs::BACKOFF,
                docs::TTL,
                docs::option("RESULTTTL", docs::integer("ms")),
                docs::option("DEADTTL", docs::integer("ms")),
                docs::option("KEEPDONE", docs::integer("n")),
                docs::option("KEEPDEAD", docs::integer("n")),
                docs::option("MAXLEN", docs::integer("n")),
                docs::option("WORKERTTL", docs::integer("ms")),
            ],
        },
    },
    Row {
        name: c"RQ.QUEUE.GET",
        entry: entry!(get, c"rq.queue.get"),
        flags: c"readonly fast",
        arity: -2,
        keys: Keys::One,
        access: Access::Read,
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

const SETTINGS: &[&str] = &[
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
    "WORKERTTL",
];

fn patch<'a, S: Source<'a>>(args: S) -> Result<SettingsPatch, Wrong> {
    let mut patch = SettingsPatch::default();
    let mut options = Options::new(args, 2, SETTINGS);
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
            "WORKERTTL" => patch.worker_ttl = Some(options.number_or_none(Range::DURATION)?),
            _ => return Err(options.unhandled()),
        }
    }
    if patch == SettingsPatch::default() { Err(Wrong::NoneOf(SETTINGS)) } else { Ok(patch) }
}

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
    use crate::queue::Backoff;

    fn parse(options: &[&'static str]) -> Result<SettingsPatch, String> {
        let texts = [&["RQ.QUEUE.SET", "q"], options].concat();
        let args: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
        patch(args.as_slice()).map_err(|wrong| wrong.to_string())
    }

    #[test]
    fn words_are_documented() {
        docs::check_words(ROWS, c"RQ.QUEUE.SET", SETTINGS);
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
            "WORKERTTL",
            "12",
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
            worker_ttl: Some(Some(12)),
            ..SettingsPatch::default()
        };
        assert_eq!(parse(&words), Ok(expected));
        assert!(
            parse(&["maxlen", "4294967296"]).is_err()
                && parse(&[]).is_err()
                && parse(&["LEASE", "none"]).is_err()
        );
    }
}

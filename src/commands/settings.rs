//! `RQ.QUEUE.SET`, `RQ.QUEUE.GET`.

use super::args::{Options, Range, Source, Wrong};
use super::operators::wants_json;
use super::views;
use crate::queue::{Op, SettingsPatch};
use crate::server::call::{Call, Missing};
use crate::server::reply::Refusal;

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

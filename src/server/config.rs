//! `rq.…` in the server's configuration: the settings that new queues get, and the largest payload.

use std::ffi::CStr;

use super::ffi::{Main, MainCell, MainThread};
use crate::queue::limits::{BACKOFF_MAX_DEFAULT, BUDGET_MAX, DURATION_MS_MAX, KEEP_MAX, OUTPUT_BYTES_MAX};
use crate::queue::{Backoff, Settings};

/// A config that is always a number.
#[derive(Debug)]
pub struct Number {
    /// Behind `rq.`.
    pub name: &'static CStr,
    /// If the configuration does not say.
    pub default: i64,
    /// The least.
    pub min: i64,
    /// The greatest.
    pub max: i64,
    /// Whether it may be written as `64mb`.
    pub is_memory: bool,
}

/// A config that is a number or `none`, or two numbers.
#[derive(Debug)]
pub struct Text {
    /// Behind `rq.`.
    pub name: &'static CStr,
    /// If the configuration does not say.
    pub default: &'static CStr,
    field: Field,
}

#[derive(Clone, Copy, Debug)]
enum Field {
    Attempts,
    Crashes,
    Backoff,
    Ttl,
    ResultTtl,
    DeadTtl,
    KeepDone,
    KeepDead,
    MaxLen,
    WorkerTtl,
}

const LEASE: usize = 0;
const MAX_PAYLOAD: usize = 1;
const MAX_OUTPUT: usize = 2;

const MAX_PAYLOAD_DEFAULT: u64 = 64 * 1024 * 1024;

#[allow(clippy::cast_possible_wrap)] // constants far below 2^63
/// The numeric ones. Their index is how they are referred to.
pub const NUMBERS: &[Number] = &[
    Number { name: c"default-lease", default: 30_000, min: 1, max: DURATION_MS_MAX as i64, is_memory: false },
    Number {
        name: c"max-payload",
        default: MAX_PAYLOAD_DEFAULT as i64,
        min: 1,
        max: 1 << 40,
        is_memory: true,
    },
    Number {
        name: c"default-maxoutput",
        default: 1024 * 1024,
        min: 0,
        max: OUTPUT_BYTES_MAX as i64,
        is_memory: true,
    },
];

/// The others. Their index is how they are referred to.
pub const TEXTS: &[Text] = &[
    Text { name: c"default-attempts", default: c"3", field: Field::Attempts },
    Text { name: c"default-crashes", default: c"5", field: Field::Crashes },
    Text { name: c"default-backoff", default: c"1000 3600000", field: Field::Backoff },
    Text { name: c"default-ttl", default: c"0", field: Field::Ttl },
    Text { name: c"default-resultttl", default: c"3600000", field: Field::ResultTtl },
    Text { name: c"default-deadttl", default: c"2592000000", field: Field::DeadTtl },
    Text { name: c"default-keepdone", default: c"none", field: Field::KeepDone },
    Text { name: c"default-keepdead", default: c"10000", field: Field::KeepDead },
    Text { name: c"default-maxlen", default: c"none", field: Field::MaxLen },
    Text { name: c"default-workerttl", default: c"300000", field: Field::WorkerTtl },
];

static DEFAULTS: MainThread<Settings> = MainThread::new();
static PAYLOAD: MainCell<u64> = MainCell::new(MAX_PAYLOAD_DEFAULT);

/// The settings of a new queue.
pub fn defaults(main: Main) -> Settings {
    DEFAULTS.with(main, |settings| *settings)
}

/// Most bytes in a payload or result.
pub fn max_payload(main: Main) -> u64 {
    PAYLOAD.get(main)
}

/// The value of a numeric one.
pub fn number(main: Main, which: usize) -> u64 {
    match which {
        LEASE => DEFAULTS.with(main, |settings| settings.lease),
        MAX_PAYLOAD => PAYLOAD.get(main),
        MAX_OUTPUT => DEFAULTS.with(main, |settings| settings.max_output),
        _ => 0,
    }
}

/// Sets a numeric one; the server has checked the range.
pub fn set_number(main: Main, which: usize, value: u64) {
    match which {
        LEASE => DEFAULTS.with(main, |settings| settings.lease = value),
        MAX_PAYLOAD => PAYLOAD.set(main, value),
        MAX_OUTPUT => DEFAULTS.with(main, |settings| settings.max_output = value),
        _ => {}
    }
}

/// The value of another one, as it is written.
pub fn text(main: Main, which: usize) -> String {
    let Some(text) = TEXTS.get(which) else { return String::new() };
    DEFAULTS.with(main, |settings| show(settings, text.field))
}

/// Sets another one.
///
/// # Errors
/// What it takes.
pub fn set_text(main: Main, which: usize, value: &[u8]) -> Result<(), String> {
    let text = TEXTS.get(which).ok_or("unknown")?;
    DEFAULTS.with(main, |settings| set(settings, text.field, value))
}

fn show(settings: &Settings, field: Field) -> String {
    let shown = |value: Option<u64>| value.map_or_else(|| String::from("none"), |value| value.to_string());
    match field {
        Field::Attempts => shown(settings.attempts.map(u64::from)),
        Field::Crashes => shown(settings.crashes.map(u64::from)),
        Field::Backoff => format!("{} {}", settings.backoff.base, settings.backoff.max),
        Field::Ttl => shown(settings.ttl),
        Field::ResultTtl => shown(settings.result_ttl),
        Field::DeadTtl => shown(settings.dead_ttl),
        Field::KeepDone => shown(settings.keep_done),
        Field::KeepDead => shown(settings.keep_dead),
        Field::MaxLen => shown(settings.max_len),
        Field::WorkerTtl => shown(settings.worker_ttl),
    }
}

fn set(settings: &mut Settings, field: Field, text: &[u8]) -> Result<(), String> {
    let number = |min: u64, max: u64| number_or_none(text, min, max);
    let budget = |min: u64| {
        let value = number_or_none(text, min, BUDGET_MAX.into())?;
        // Within the range, thus within 32 bits.
        Ok::<_, String>(value.map(|value| u32::try_from(value).unwrap_or(BUDGET_MAX)))
    };
    match field {
        Field::Attempts => settings.attempts = budget(1)?,
        Field::Crashes => settings.crashes = budget(0)?,
        Field::Backoff => settings.backoff = backoff(text)?,
        Field::Ttl => settings.ttl = number(0, DURATION_MS_MAX)?,
        Field::ResultTtl => settings.result_ttl = number(0, DURATION_MS_MAX)?,
        Field::DeadTtl => settings.dead_ttl = number(0, DURATION_MS_MAX)?,
        Field::KeepDone => settings.keep_done = number(0, KEEP_MAX)?,
        Field::KeepDead => settings.keep_dead = number(0, KEEP_MAX)?,
        Field::MaxLen => settings.max_len = number(0, KEEP_MAX)?,
        Field::WorkerTtl => settings.worker_ttl = number(0, DURATION_MS_MAX)?,
    }
    Ok(())
}

/// Strictly decimal.
fn digits(text: &[u8]) -> Option<u64> {
    let is_plain = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| is_plain)?.parse().ok()
}

fn number_or_none(text: &[u8], min: u64, max: u64) -> Result<Option<u64>, String> {
    if text.eq_ignore_ascii_case(b"none") {
        return Ok(None);
    }
    match digits(text) {
        Some(value) if (min..=max).contains(&value) => Ok(Some(value)),
        _ => Err(format!("must be an integer from {min} to {max}, or none")),
    }
}

fn backoff(text: &[u8]) -> Result<Backoff, String> {
    let error = || {
        format!(
            "must be the first wait in ms, and perhaps the longest, as in \"1000 3600000\": integers from 0 to {DURATION_MS_MAX}, the second not smaller"
        )
    };
    let mut parts = text.split(|&byte| byte == b' ').filter(|part| !part.is_empty());
    let (base, max, rest) = (parts.next(), parts.next(), parts.next());
    let Some(base) = base.and_then(digits) else { return Err(error()) };
    // As for the commands: an hour, or the first wait if that is longer.
    let max = match max {
        None => BACKOFF_MAX_DEFAULT.max(base),
        Some(max) => digits(max).ok_or_else(error)?,
    };
    if rest.is_some() {
        return Err(error());
    }
    if base > max || max > DURATION_MS_MAX {
        return Err(error());
    }
    Ok(Backoff { base, max })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_of_configs_and_of_queues_are_the_same() {
        let mut settings = Settings {
            attempts: None,
            crashes: None,
            backoff: Backoff { base: 0, max: 0 },
            ttl: None,
            result_ttl: None,
            dead_ttl: None,
            keep_done: Some(7),
            keep_dead: None,
            max_len: Some(7),
            worker_ttl: None,
            ..Settings::default()
        };
        for text in TEXTS {
            set(&mut settings, text.field, text.default.to_bytes()).unwrap();
            assert_eq!(show(&settings, text.field).as_bytes(), text.default.to_bytes());
        }
        assert_eq!(settings, Settings::default());
        assert_eq!(NUMBERS[LEASE].default, i64::try_from(settings.lease).unwrap());
        assert_eq!(NUMBERS[MAX_OUTPUT].default, i64::try_from(settings.max_output).unwrap());
    }

    #[test]
    fn what_is_wrong_changes_nothing_and_names_the_range() {
        let mut settings = Settings::default();
        for (field, text) in [
            (Field::Attempts, "0"),
            (Field::Attempts, "-1"),
            (Field::Attempts, "1000000001"),
            (Field::Ttl, ""),
            (Field::Ttl, "1.5"),
            (Field::Ttl, "99999999999999999999"),
            (Field::KeepDead, "4294967296"),
            (Field::Backoff, ""),
            (Field::Backoff, "x"),
            (Field::Backoff, "5 x"),
            (Field::Backoff, "5 4"),
            (Field::Backoff, "1 2 3"),
            (Field::Backoff, "none"),
        ] {
            let error = set(&mut settings, field, text.as_bytes()).unwrap_err();
            assert!(error.contains("from 0 to") || error.contains("from 1 to"), "{error}");
        }
        assert_eq!(settings, Settings::default());
        for (text, max) in [("5", 3_600_000), ("4000000", 4_000_000), ("5 7", 7)] {
            set(&mut settings, Field::Backoff, text.as_bytes()).unwrap();
            assert_eq!(settings.backoff.max, max);
        }
    }
}

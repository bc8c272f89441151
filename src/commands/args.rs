//! Reading arguments: the rules that all commands share, and nothing of Redis.
//!
//! Options may come in any order and in any case. An unknown option, a repeated one, a missing
//! value, and a number that is malformed or out of range are errors that name the option and say
//! what it takes. Numbers are strictly decimal: no sign, no blanks, no leading zeros, no exponent;
//! they are never wrapped or clamped. Nothing here allocates unless a call is wrong.

use std::fmt;

use crate::queue::limits::{
    BACKOFF_MAX_DEFAULT, BUDGET_MAX, CONCURRENCY_MAX, COUNT_MAX, DURATION_MS_MAX, KEEP_MAX, NAME_BYTES_MAX,
    NAMES_MAX, OUTPUT_BYTES_MAX, RATE_COUNT_MAX, RATE_PERIOD_MAX,
};
use crate::queue::{Backoff, GroupName, Id, Rate, Scope, Serial};

/// What may follow the numbers of a rate.
pub const BURST: &str = "BURST";

/// `BURST` where it follows no rate.
pub const STRAY_BURST: Wrong = Wrong::Needs(BURST, "n ms of a rate before it");

/// What `GROUP` and `TENANT` name: one group, a tenant, or the whole queue.
#[must_use]
pub fn scope<'a>(group: Option<&'a [u8]>, tenant: Option<&'a [u8]>) -> Scope<'a> {
    match (group, tenant) {
        (Some(group), tenant) => Scope::Group(GroupName { tenant: tenant.unwrap_or_default(), group }),
        (None, Some(tenant)) => Scope::Tenant(tenant),
        (None, None) => Scope::Queue,
    }
}

/// The arguments of one call; number 0 is the name of the command.
#[allow(clippy::len_without_is_empty)] // a call is never without its name
pub trait Source<'a>: Copy {
    /// How many there are.
    fn len(&self) -> usize;
    /// One of them.
    fn get(&self, index: usize) -> Option<&'a [u8]>;
}

impl<'a> Source<'a> for &'a [&'a [u8]] {
    fn len(&self) -> usize {
        <[_]>::len(self)
    }

    fn get(&self, index: usize) -> Option<&'a [u8]> {
        <[_]>::get(self, index).copied()
    }
}

/// The numbers that an option takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The least.
    pub min: u64,
    /// The greatest.
    pub max: u64,
    /// What is counted, as a word for people; may be empty.
    pub unit: &'static str,
    /// Whether the word `none` is taken too.
    pub none: bool,
    /// Whether the word `default` is taken too.
    pub default: bool,
}

impl Range {
    const fn new(min: u64, max: u64, unit: &'static str) -> Self {
        Self { min, max, unit, none: false, default: false }
    }

    /// The same numbers, or the word `none`.
    #[must_use]
    pub const fn or_none(self) -> Self {
        Self { none: true, ..self }
    }

    /// The same numbers, or the word `default`.
    #[must_use]
    pub const fn or_default(self) -> Self {
        Self { default: true, ..self }
    }

    /// A duration; 0 means at once.
    pub const DURATION: Self = Self::new(0, DURATION_MS_MAX, "ms");
    /// A duration that must not be empty.
    pub const SPAN: Self = Self::new(1, DURATION_MS_MAX, "ms");
    /// An instant. As far as a duration may reach, which is exact in every language.
    pub const INSTANT: Self = Self::new(0, DURATION_MS_MAX, "Unix ms");
    /// How many jobs a call is about.
    pub const COUNT: Self = Self::new(1, COUNT_MAX as u64, "");
    /// Failures allowed.
    pub const ATTEMPTS: Self = Self::new(1, BUDGET_MAX as u64, "");
    /// Lapses forgiven.
    pub const CRASHES: Self = Self::new(0, BUDGET_MAX as u64, "");
    /// How much a job may put out.
    pub const OUTPUT: Self = Self::new(0, OUTPUT_BYTES_MAX, "bytes");
    /// Priority.
    pub const PRIORITY: Self = Self::new(0, u8::MAX as u64, "");
    /// How many jobs a queue keeps or takes.
    pub const KEEP: Self = Self::new(0, KEEP_MAX, "");
    /// Jobs active at once.
    pub const CONCURRENCY: Self = Self::new(0, CONCURRENCY_MAX as u64, "");
    /// A share beside others.
    pub const WEIGHT: Self = Self::new(1, CONCURRENCY_MAX as u64, "");
    /// Claims per period, and claims saved up.
    pub const RATE: Self = Self::new(1, RATE_COUNT_MAX, "");
    /// The period of a rate.
    pub const PERIOD: Self = Self::new(1, RATE_PERIOD_MAX, "ms");
    /// How many names follow.
    pub const NAMES: Self = Self::new(0, NAMES_MAX as u64, "");
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an integer from {} to {}", self.min, self.max)?;
        if !self.unit.is_empty() {
            write!(f, " ({})", self.unit)?;
        }
        f.write_str(match (self.none, self.default) {
            (false, false) => "",
            (true, false) => " or none",
            (false, true) => " or default",
            (true, true) => ", none or default",
        })
    }
}

/// What is wrong with a call. Shown as the text for people, without the first word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// There is no such option.
    Unknown {
        /// As given.
        given: Quoted,
        /// What was probably meant.
        nearest: Option<&'static str>,
        /// What there is.
        known: &'static [&'static str],
    },
    /// An option was given twice.
    Repeated(&'static str),
    /// An option is the last word, but takes a value.
    Missing(&'static str),
    /// A number that is none, or is out of range.
    Number {
        /// The option or argument.
        of: &'static str,
        /// What it takes.
        range: Range,
        /// As given.
        given: Quoted,
    },
    /// A name that is empty or too long.
    Name {
        /// The option or argument.
        of: &'static str,
        /// Bytes given.
        length: usize,
    },
    /// An id that a client may not give.
    Id(Quoted),
    /// The longest back-off is shorter than the first.
    Backoff {
        /// The first.
        base: u64,
        /// The longest.
        max: u64,
    },
    /// A rate of which a number is missing: the option, and what follows it.
    Rate(&'static str, Vec<Quoted>),
    /// Two options that exclude each other.
    Exclusive(&'static str, &'static str),
    /// An option that makes sense only with another.
    Needs(&'static str, &'static str),
    /// One of these must be given.
    NoneOf(&'static [&'static str]),
    /// An argument that must be one of some words.
    Word {
        /// The argument.
        of: &'static str,
        /// The words.
        known: &'static [&'static str],
        /// As given.
        given: Quoted,
        /// What was probably meant.
        nearest: Option<&'static str>,
    },
    /// Fewer or more values follow than were announced.
    Listed {
        /// The option.
        of: &'static str,
        /// Announced.
        announced: u64,
        /// There.
        there: usize,
    },
    /// More ids, or pairs, than one call takes.
    Many {
        /// What there are too many of.
        of: &'static str,
        /// So many are taken.
        most: usize,
        /// There.
        there: usize,
    },
    /// A list of names that must not be empty.
    Nobody(&'static str),
    /// Not a cursor that a listing replied.
    Cursor(Quoted),
    /// Not a position in an output.
    Position(Quoted),
    /// An id without a token.
    Pairs,
    /// The number of arguments does not fit.
    Arity,
}

/// The beginning of an argument, made fit for an error text: printable, on one line, short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quoted(String);

impl Quoted {
    /// Characters shown at most.
    const LENGTH_MAX: usize = 48;

    /// Quotes `bytes`.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        let mut text = String::from("'");
        for (index, byte) in bytes.iter().enumerate() {
            if index == Self::LENGTH_MAX {
                text.push_str("...");
                break;
            }
            text.extend(byte.escape_ascii().map(char::from));
        }
        text.push('\'');
        Self(text)
    }
}

impl fmt::Display for Quoted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { given, nearest: Some(nearest), .. } => {
                write!(f, "unknown option {given}; did you mean {nearest}?")
            }
            Self::Unknown { given, known: [], .. } => write!(f, "unexpected argument {given}"),
            Self::Unknown { given, known, .. } => {
                write!(f, "unknown option {given}; there are {}", known.join(", "))
            }
            Self::Repeated(option) => write!(f, "option {option} is given twice"),
            Self::Missing(option) => write!(f, "option {option} needs a value"),
            Self::Number { of, range, given } => write!(f, "{of} must be {range}, not {given}"),
            Self::Name { of, length } => {
                write!(f, "{of} must be a name of 1 to {NAME_BYTES_MAX} bytes; it has {length}")
            }
            Self::Id(given) => write!(
                f,
                "ID must not look like <digits>-<digits>, which are the server's own ids; it is {given}"
            ),
            Self::Backoff { base, max } => {
                write!(f, "BACKOFF's max-ms must not be less than its base-ms; {max} is less than {base}")
            }
            Self::Rate(of, given) => {
                write!(f, "{of} takes n ms [BURST n]: so many claims in so many ms")?;
                if !given.is_empty() {
                    f.write_str(", not")?;
                }
                given.iter().try_for_each(|text| write!(f, " {text}"))
            }
            Self::Exclusive(one, other) => write!(f, "{one} and {other} exclude each other"),
            Self::Needs(one, other) => write!(f, "{one} can only be given together with {other}"),
            Self::NoneOf([word]) => write!(f, "{word} is missing"),
            Self::NoneOf(words) => write!(f, "nothing to do; give one of {}", words.join(", ")),
            Self::Word { of, known: [word], given, .. } => write!(f, "{of} must be {word}, not {given}"),
            Self::Word { of, known, given, nearest } => {
                write!(f, "{of} must be one of {}, not {given}", known.join(", "))?;
                nearest.map_or(Ok(()), |word| write!(f, "; did you mean {word}?"))
            }
            Self::Listed { of, announced, there } => {
                write!(f, "{of} announces {announced}, but {there} follow")
            }
            Self::Many { of, most, there } => {
                write!(f, "at most {most} {of} in one call, not {there}")
            }
            Self::Nobody(of) => write!(f, "{of} must name one at least"),
            Self::Cursor(given) => {
                write!(f, "CURSOR must be 0 or what the call before replied, not {given}")
            }
            Self::Position(given) => write!(
                f,
                "FROM must be the number of a chunk, or the position that the call before replied, not {given}"
            ),
            Self::Pairs => f.write_str("every id needs the token of its delivery behind it"),
            Self::Arity => f.write_str("wrong number of arguments"),
        }
    }
}

/// A decimal number as written, before it is known to be in range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decimal {
    Is(u64),
    /// Below zero, or above 64 bits.
    OutOfRange,
    Malformed,
}

fn decimal(text: &[u8]) -> Decimal {
    let (digits, negative) = match text {
        [b'-', rest @ ..] => (rest, true),
        all => (all, false),
    };
    let leading_zero = matches!(digits, [b'0', _, ..]);
    if digits.is_empty()
        || leading_zero
        || !digits.iter().all(u8::is_ascii_digit)
        || (negative && digits == b"0")
    {
        return Decimal::Malformed;
    }
    if negative {
        return Decimal::OutOfRange;
    }
    digits
        .iter()
        .try_fold(0u64, |value, digit| {
            value.checked_mul(10)?.checked_add(u64::from(digit.wrapping_sub(b'0')))
        })
        .map_or(Decimal::OutOfRange, Decimal::Is)
}

/// A strictly decimal number, if it is one.
#[must_use]
pub fn digits(text: &[u8]) -> Option<u64> {
    match decimal(text) {
        Decimal::Is(value) => Some(value),
        _ => None,
    }
}

/// Reads a number for `of`.
///
/// # Errors
/// Anything but a strictly decimal number within the range.
pub fn number(of: &'static str, text: &[u8], range: Range) -> Result<u64, Wrong> {
    match decimal(text) {
        Decimal::Is(value) if (range.min..=range.max).contains(&value) => Ok(value),
        _ => Err(Wrong::Number { of, range, given: Quoted::new(text) }),
    }
}

/// Reads a number for `of`, or the word `none`.
///
/// # Errors
/// As [`number`].
pub fn number_or_none(of: &'static str, text: &[u8], range: Range) -> Result<Option<u64>, Wrong> {
    if text.eq_ignore_ascii_case(b"none") { Ok(None) } else { number(of, text, range.or_none()).map(Some) }
}

/// Reads a name for `of`: 1 to 512 bytes of any kind.
///
/// # Errors
/// It is empty or longer.
pub fn name<'a>(of: &'static str, text: &'a [u8]) -> Result<&'a [u8], Wrong> {
    if (1..=NAME_BYTES_MAX).contains(&text.len()) {
        Ok(text)
    } else {
        Err(Wrong::Name { of, length: text.len() })
    }
}

/// Reads an id that a client gives to a new job.
///
/// # Errors
/// It is not allowed to.
pub fn own_id(text: &[u8]) -> Result<&[u8], Wrong> {
    name("ID", text)?;
    if Id::is_allowed(text) { Ok(text) } else { Err(Wrong::Id(Quoted::new(text))) }
}

/// Reads a token. What is none is read as one that fits no delivery, so that it is as good as an
/// old one: the caller has lost the job either way.
#[must_use]
pub fn token(text: &[u8]) -> Serial {
    Serial::parse(text).unwrap_or(Serial::NONE)
}

/// Reads one of some words, in any case, for `of`; the answer is its index.
///
/// # Errors
/// It is none of them.
pub fn word(of: &'static str, text: &[u8], known: &'static [&'static str]) -> Result<usize, Wrong> {
    known.iter().position(|word| word.as_bytes().eq_ignore_ascii_case(text)).ok_or_else(|| Wrong::Word {
        of,
        known,
        given: Quoted::new(text),
        nearest: nearest(text, known),
    })
}

/// Goes through the options of a call.
#[derive(Debug)]
pub struct Options<'a, S> {
    source: S,
    /// The next argument to read.
    at: usize,
    known: &'static [&'static str],
    /// A bit for each option of `known` that was read.
    seen: u64,
    /// The option read last.
    current: &'static str,
    argument: std::marker::PhantomData<&'a [u8]>,
}

impl<'a, S: Source<'a>> Options<'a, S> {
    /// The options in the arguments from number `from` on. At most 64 can be `known`.
    pub const fn new(source: S, from: usize, known: &'static [&'static str]) -> Self {
        Self { source, at: from, known, seen: 0, current: "", argument: std::marker::PhantomData }
    }

    /// The next option.
    ///
    /// # Errors
    /// It is unknown, or was there before.
    #[allow(clippy::should_implement_trait)] // an iterator cannot lend `self` to read the values
    pub fn next(&mut self) -> Result<Option<&'static str>, Wrong> {
        let Some(text) = self.source.get(self.at) else { return Ok(None) };
        let Some((index, word)) =
            self.known.iter().enumerate().find(|(_, word)| word.as_bytes().eq_ignore_ascii_case(text))
        else {
            return Err(self.unknown(text));
        };
        let bit = u32::try_from(index).ok().and_then(|index| 1u64.checked_shl(index)).unwrap_or(0);
        if self.seen & bit != 0 {
            return Err(Wrong::Repeated(word));
        }
        self.seen |= bit;
        self.at = self.at.saturating_add(1);
        self.current = word;
        Ok(Some(word))
    }

    fn unknown(&self, text: &[u8]) -> Wrong {
        Wrong::Unknown { given: Quoted::new(text), nearest: nearest(text, self.known), known: self.known }
    }

    /// For an option that the caller does not handle, though it is among the known.
    pub fn unhandled(&self) -> Wrong {
        self.unknown(self.current.as_bytes())
    }

    /// The number of the next argument to read.
    pub const fn position(&self) -> usize {
        self.at
    }

    /// How many arguments are left.
    pub fn left(&self) -> usize {
        self.source.len().saturating_sub(self.at)
    }

    /// The value of the current option.
    ///
    /// # Errors
    /// There is none. The same goes for all that follow.
    pub fn value(&mut self) -> Result<&'a [u8], Wrong> {
        let text = self.source.get(self.at).ok_or(Wrong::Missing(self.current))?;
        self.at = self.at.saturating_add(1);
        Ok(text)
    }

    /// A number.
    ///
    /// # Errors
    /// As [`number`].
    pub fn number(&mut self, range: Range) -> Result<u64, Wrong> {
        number(self.current, self.value()?, range)
    }

    /// A number, or `none`.
    ///
    /// # Errors
    /// As [`number`].
    pub fn number_or_none(&mut self, range: Range) -> Result<Option<u64>, Wrong> {
        number_or_none(self.current, self.value()?, range)
    }

    /// A number of jobs.
    ///
    /// # Errors
    /// As [`number`].
    pub fn count(&mut self) -> Result<usize, Wrong> {
        let value = self.number(Range::COUNT)?;
        // The range ends far below what fits.
        Ok(usize::try_from(value).unwrap_or(COUNT_MAX))
    }

    /// A number of failures or lapses, or `none`.
    ///
    /// # Errors
    /// As [`number`].
    pub fn budget(&mut self, range: Range) -> Result<Option<u32>, Wrong> {
        // The range ends at a limit that fits.
        Ok(self.number_or_none(range)?.map(|value| u32::try_from(value).unwrap_or(BUDGET_MAX)))
    }

    /// A priority.
    ///
    /// # Errors
    /// As [`number`].
    pub fn priority(&mut self) -> Result<u8, Wrong> {
        Ok(u8::try_from(self.number(Range::PRIORITY)?).unwrap_or(u8::MAX))
    }

    /// A first wait, and perhaps the longest; without it, an hour, or the first if that is longer.
    ///
    /// # Errors
    /// As [`number`], or the longest is shorter than the first.
    pub fn backoff(&mut self) -> Result<Backoff, Wrong> {
        let base = self.number(Range::DURATION)?;
        let has_max = self.source.get(self.at).and_then(<[u8]>::first).is_some_and(|byte| {
            // No option begins like this, so it can only be meant as a number.
            byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.')
        });
        let max = if has_max { self.number(Range::DURATION)? } else { BACKOFF_MAX_DEFAULT.max(base) };
        if max < base { Err(Wrong::Backoff { base, max }) } else { Ok(Backoff { base, max }) }
    }

    /// One of some words; the answer is its index.
    ///
    /// # Errors
    /// As [`word`].
    pub fn word(&mut self, known: &'static [&'static str]) -> Result<usize, Wrong> {
        word(self.current, self.value()?, known)
    }

    /// Whether the word `default` is next; then it is read.
    pub fn is_default(&mut self) -> bool {
        self.is_next("DEFAULT")
    }

    fn is_next(&mut self, word: &'static str) -> bool {
        let is_next = self.source.get(self.at).is_some_and(|text| text.eq_ignore_ascii_case(word.as_bytes()));
        if is_next {
            self.at = self.at.saturating_add(1);
        }
        is_next
    }

    /// How many jobs may be active at once, or `none`.
    ///
    /// # Errors
    /// As [`number`].
    pub fn concurrency(&mut self, range: Range) -> Result<Option<u32>, Wrong> {
        // The range ends at a limit that fits.
        Ok(self.number_or_none(range)?.map(|value| u32::try_from(value).unwrap_or(CONCURRENCY_MAX)))
    }

    /// A share beside others.
    ///
    /// # Errors
    /// As [`number`].
    pub fn weight(&mut self) -> Result<u32, Wrong> {
        Ok(u32::try_from(self.number(Range::WEIGHT)?).unwrap_or(CONCURRENCY_MAX))
    }

    /// `n ms [BURST n]`, or `none`. Without `BURST`, n.
    ///
    /// # Errors
    /// As [`number`].
    pub fn rate(&mut self, range: Range) -> Result<Option<Rate>, Wrong> {
        let Some(count) = self.number_or_none(range)? else { return Ok(None) };
        let period = match self.source.get(self.at) {
            Some(text) if decimal(text) != Decimal::Malformed => self.number(Range::PERIOD)?,
            next => {
                let before = self.source.get(self.at.saturating_sub(1)).filter(|_| next.is_some());
                let given = before.into_iter().chain(next).map(Quoted::new).collect();
                return Err(Wrong::Rate(self.current, given));
            }
        };
        let mut burst = count;
        if self.is_next(BURST) {
            let text = self.source.get(self.at).ok_or(Wrong::Missing(BURST))?;
            burst = number(BURST, text, Range::RATE)?;
            self.at = self.at.saturating_add(1);
        }
        Ok(Some(Rate { count, period, burst }))
    }

    /// A name.
    ///
    /// # Errors
    /// As [`name`].
    pub fn name(&mut self) -> Result<&'a [u8], Wrong> {
        name(self.current, self.value()?)
    }

    /// `n name …`.
    ///
    /// # Errors
    /// Fewer names follow than announced, or one is no name.
    pub fn names(&mut self) -> Result<Vec<&'a [u8]>, Wrong> {
        let announced = self.number(Range::NAMES)?;
        let there = self.left();
        let count = usize::try_from(announced).ok().filter(|&count| count <= there).ok_or(Wrong::Listed {
            of: self.current,
            announced,
            there,
        })?;
        let mut names = Vec::with_capacity(count);
        for _ in 0..count {
            names.push(self.name()?);
        }
        Ok(names)
    }
}

/// The known word that `text` was probably meant to be: the rest of what it begins, or the one
/// that it differs least from, if only by a letter or two.
fn nearest(text: &[u8], known: &'static [&'static str]) -> Option<&'static str> {
    const LONGEST: usize = 24;
    if text.len() < 2 || text.len() > LONGEST {
        return None;
    }
    let begun = |word: &&&str| {
        text.len() >= 3
            && word.as_bytes().get(..text.len()).is_some_and(|start| start.eq_ignore_ascii_case(text))
    };
    let closest = || {
        let allowed = if text.len() < 4 { 1 } else { 2 };
        known
            .iter()
            .map(|word| (distance(text, word.as_bytes()), word))
            .filter(|(distance, word)| *distance <= allowed && *distance < word.len())
            .min_by_key(|(distance, _)| *distance)
            .map(|(_, word)| word)
    };
    known.iter().find(begun).or_else(closest).copied()
}

/// How many letters must be inserted, removed, replaced, or exchanged with their neighbours to make one
/// word of the other, whatever their case (optimal string alignment).
fn distance(one: &[u8], other: &[u8]) -> usize {
    // The distances from the part of `one` read so far to every beginning of `other`; before that, the
    // same of the parts that are one and two letters shorter.
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=other.len()).collect();
    let mut last: Option<u8> = None;
    let same = |one: u8, other: Option<&u8>| other.is_some_and(|other| one.eq_ignore_ascii_case(other));
    for (index, &letter) in one.iter().enumerate() {
        let mut row = Vec::with_capacity(above.len());
        let mut left = index.saturating_add(1);
        row.push(left);
        for (at, candidate) in other.iter().enumerate() {
            let of = |row: &[usize], at: usize| row.get(at).copied().unwrap_or(usize::MAX);
            let is_other = usize::from(!same(letter, Some(candidate)));
            let replaced = of(&above, at).saturating_add(is_other);
            let next = at.saturating_add(1);
            let mut least = replaced.min(of(&above, next).min(left).saturating_add(1));
            let two_back = at.checked_sub(1);
            if let (Some(back), Some(last)) = (two_back, last)
                && same(letter, other.get(back))
                && same(last, Some(candidate))
            {
                least = least.min(of(&before, back).saturating_add(1));
            }
            left = least;
            row.push(left);
        }
        before = std::mem::replace(&mut above, row);
        last = Some(letter);
    }
    above.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[&str] = &["DELAY", "AT", "PRIORITY", "BACKOFF", "COUNT", "WORKERS", "FULL", "ATTEMPTS"];

    fn bytes<'a>(texts: &[&'a str]) -> Vec<&'a [u8]> {
        texts.iter().map(|text| text.as_bytes()).collect()
    }

    /// Runs through the arguments, all behind a command's name, and returns the first error.
    fn read(texts: &[&str]) -> Result<Vec<(&'static str, Option<u64>)>, Wrong> {
        let all: Vec<&[u8]> =
            std::iter::once("RQ.TEST").chain(texts.iter().copied()).map(str::as_bytes).collect();
        let mut options = Options::new(all.as_slice(), 1, KNOWN);
        let mut read = Vec::new();
        while let Some(option) = options.next()? {
            let value = match option {
                "DELAY" => Some(options.number(Range::DURATION)?),
                "AT" => Some(options.number(Range::INSTANT)?),
                "PRIORITY" => Some(options.priority()?.into()),
                "BACKOFF" => Some(options.backoff()?.max),
                "COUNT" => Some(options.count()? as u64),
                "ATTEMPTS" => options.budget(Range::ATTEMPTS)?.map(u64::from),
                "WORKERS" => Some(options.names()?.len() as u64),
                "FULL" => None,
                _ => return Err(options.unhandled()),
            };
            read.push((option, value));
        }
        Ok(read)
    }

    #[test]
    fn any_order_any_case() {
        assert_eq!(read(&[]).unwrap(), []);
        assert_eq!(read(&["delay", "5", "FULL"]).unwrap(), [("DELAY", Some(5)), ("FULL", None)]);
        assert_eq!(read(&["fuLL", "Delay", "5"]).unwrap(), [("FULL", None), ("DELAY", Some(5))]);
    }

    #[test]
    fn numbers_are_strictly_decimal() {
        for (text, value) in [("0", 0), ("1", 1), ("10", 10), ("18446744073709551615", u64::MAX)] {
            assert_eq!(decimal(text.as_bytes()), Decimal::Is(value), "{text}");
        }
        for text in [
            "", "-", "+1", " 1", "1 ", "1e9", "0x1", "1.0", ".5", "00", "01", "-0", "--1", "1_000", "1,000",
            "\u{0661}", "NaN", "inf", "1\0", "1\n",
        ] {
            assert_eq!(decimal(text.as_bytes()), Decimal::Malformed, "{text:?}");
        }
        for text in [
            "-1",
            "-9223372036854775808",
            "18446744073709551616",
            "99999999999999999999999999999999999999999",
        ] {
            assert_eq!(decimal(text.as_bytes()), Decimal::OutOfRange, "{text}");
        }
        assert_eq!(decimal(&[b'9'; 100_000]), Decimal::OutOfRange);
        assert_eq!(decimal(&[0xff; 3]), Decimal::Malformed);
    }

    #[test]
    fn numbers_out_of_range_name_the_option_and_the_range() {
        let cases: [(&[&str], &str); 10] = [
            (&["DELAY", "-1"], "DELAY must be an integer from 0 to 9007199254740991 (ms), not '-1'"),
            (
                &["delay", "9007199254740992"],
                "DELAY must be an integer from 0 to 9007199254740991 (ms), not '9007199254740992'",
            ),
            (
                &["DELAY", "9223372036854775808"],
                "DELAY must be an integer from 0 to 9007199254740991 (ms), not '9223372036854775808'",
            ),
            (&["DELAY", ""], "DELAY must be an integer from 0 to 9007199254740991 (ms), not ''"),
            (&["COUNT", "0"], "COUNT must be an integer from 1 to 1000, not '0'"),
            (&["COUNT", "1001"], "COUNT must be an integer from 1 to 1000, not '1001'"),
            (&["PRIORITY", "256"], "PRIORITY must be an integer from 0 to 255, not '256'"),
            (&["ATTEMPTS", "0"], "ATTEMPTS must be an integer from 1 to 1000000000 or none, not '0'"),
            (
                &["ATTEMPTS", "4294967297"],
                "ATTEMPTS must be an integer from 1 to 1000000000 or none, not '4294967297'",
            ),
            (
                &["AT", "9007199254740992"],
                "AT must be an integer from 0 to 9007199254740991 (Unix ms), not '9007199254740992'",
            ),
        ];
        for (args, text) in cases {
            assert_eq!(read(args).unwrap_err().to_string(), text);
        }
        assert_eq!(read(&["DELAY", "9007199254740991"]).unwrap(), [("DELAY", Some(DURATION_MS_MAX))]);
        assert_eq!(read(&["COUNT", "1000"]).unwrap(), [("COUNT", Some(1000))]);
        assert_eq!(read(&["PRIORITY", "255"]).unwrap(), [("PRIORITY", Some(255))]);
    }

    #[test]
    fn none_only_where_there_is_a_limit() {
        assert_eq!(read(&["ATTEMPTS", "NONE"]).unwrap(), [("ATTEMPTS", None)]);
        assert!(matches!(read(&["DELAY", "none"]), Err(Wrong::Number { of: "DELAY", .. })));
        assert!(matches!(read(&["COUNT", "none"]), Err(Wrong::Number { of: "COUNT", .. })));
    }

    #[test]
    fn repeated_missing_unknown() {
        assert_eq!(
            read(&["DELAY", "1", "delay", "1"]).unwrap_err().to_string(),
            "option DELAY is given twice"
        );
        assert_eq!(read(&["FULL", "FULL"]).unwrap_err(), Wrong::Repeated("FULL"));
        assert_eq!(read(&["FULL", "DELAY"]).unwrap_err().to_string(), "option DELAY needs a value");
        assert_eq!(
            read(&["DELY", "1"]).unwrap_err().to_string(),
            "unknown option 'DELY'; did you mean DELAY?"
        );
        assert_eq!(
            read(&["PRIO", "1"]).unwrap_err().to_string(),
            "unknown option 'PRIO'; did you mean PRIORITY?"
        );
        assert_eq!(
            read(&["\r\n\0elephant"]).unwrap_err().to_string(),
            "unknown option '\\r\\n\\x00elephant'; there are DELAY, AT, PRIORITY, BACKOFF, COUNT, WORKERS, FULL, ATTEMPTS"
        );
        // A value that looks like an option is a value, and never an option.
        assert!(matches!(read(&["DELAY", "FULL"]), Err(Wrong::Number { of: "DELAY", .. })));
        assert!(matches!(read(&[""]), Err(Wrong::Unknown { nearest: None, .. })));
    }

    #[test]
    fn nearest_word() {
        let near = |text: &str| nearest(text.as_bytes(), KNOWN);
        for (text, word) in [
            ("delya", "DELAY"),
            ("DELAYS", "DELAY"),
            ("atempts", "ATTEMPTS"),
            ("workr", "WORKERS"),
            ("BACK", "BACKOFF"),
            ("CONT", "COUNT"),
            ("ful", "FULL"),
        ] {
            assert_eq!(near(text), Some(word), "{text}");
        }
        for text in ["", "x", "xy", "elephant", "QQQQQ", "DELAYDELAYDELAYDELAYDELAYDELAY"] {
            assert_eq!(near(text), None, "{text}");
        }
        assert_eq!(distance(b"", b""), 0);
        assert_eq!(distance(b"abc", b""), 3);
        assert_eq!(distance(b"", b"abc"), 3);
        assert_eq!(distance(b"kitten", b"SITTING"), 3);
        assert_eq!(
            (distance(b"tlt", b"TTL"), distance(b"delya", b"DELAY"), distance(b"ab", b"BA")),
            (1, 1, 1)
        );
        assert_eq!(distance(b"ca", b"abc"), 3);
        assert_eq!(nearest(b"tlt", &["TTL", "LEASE"]), Some("TTL"));
    }

    #[test]
    fn backoff_has_one_or_two_numbers() {
        let one = |texts: &[&str]| read(texts).map(|read| read[0].1.unwrap());
        assert_eq!(one(&["BACKOFF", "5"]).unwrap(), 3_600_000);
        assert_eq!(one(&["BACKOFF", "0"]).unwrap(), 3_600_000);
        assert_eq!(one(&["BACKOFF", "4000000"]).unwrap(), 4_000_000);
        assert_eq!(one(&["BACKOFF", "5", "5"]).unwrap(), 5);
        assert_eq!(one(&["BACKOFF", "0", "0"]).unwrap(), 0);
        assert_eq!(one(&["BACKOFF", "5", "FULL"]).unwrap(), 3_600_000);
        assert_eq!(read(&["BACKOFF", "5", "4"]).unwrap_err(), Wrong::Backoff { base: 5, max: 4 });
        for wrong in ["-1", "+7", "1e3", ".5", "9007199254740992"] {
            assert!(
                matches!(read(&["BACKOFF", "5", wrong]), Err(Wrong::Number { of: "BACKOFF", .. })),
                "{wrong}"
            );
        }
        assert!(matches!(read(&["BACKOFF", "5", "x"]), Err(Wrong::Unknown { .. })));
        assert_eq!(read(&["BACKOFF"]).unwrap_err(), Wrong::Missing("BACKOFF"));
    }

    #[test]
    fn names_are_counted() {
        assert_eq!(
            read(&["WORKERS", "2", "a", "FULL", "FULL"]).unwrap(),
            [("WORKERS", Some(2)), ("FULL", None)]
        );
        assert_eq!(read(&["WORKERS", "0"]).unwrap(), [("WORKERS", Some(0))]);
        assert_eq!(
            read(&["WORKERS", "2", "a"]).unwrap_err().to_string(),
            "WORKERS announces 2, but 1 follow"
        );
        assert!(matches!(read(&["WORKERS", "10000", "a"]), Err(Wrong::Listed { .. })));
        assert!(matches!(read(&["WORKERS", "10001", "a"]), Err(Wrong::Number { .. })));
        assert_eq!(read(&["WORKERS", "1", ""]).unwrap_err(), Wrong::Name { of: "WORKERS", length: 0 });
    }

    #[test]
    fn names_have_1_to_512_bytes_of_any_kind() {
        assert!(name("worker", &[0; 512]).is_ok() && name("worker", &[0xff]).is_ok());
        assert_eq!(
            name("worker", &[0; 513]).unwrap_err().to_string(),
            "worker must be a name of 1 to 512 bytes; it has 513"
        );
        assert!(name("worker", b"").is_err());
    }

    #[test]
    fn ids_and_tokens() {
        assert!(own_id(b"order-17").is_ok());
        assert!(own_id(b"").is_err() && own_id(b"1-1").is_err() && own_id(&[b'x'; 513]).is_err());
        assert_eq!(token(b"5-1"), Serial(5 << 20 | 1));
        for malformed in ["", "x", "5", "5-", "05-1", " 5-1"] {
            assert_eq!(token(malformed.as_bytes()), Serial::NONE);
        }
    }

    #[test]
    fn quotes_are_short_and_on_one_line() {
        for text in [&[b'x'; 1_000][..], &[0; 1_000], b"\r\n'\\", &[0xff; 3]] {
            let quoted = Quoted::new(text).to_string();
            assert!(
                quoted.len() < 4 * 60 && quoted.bytes().all(|byte| (32..127).contains(&byte)),
                "{quoted}"
            );
        }
    }

    #[test]
    fn words() {
        assert_eq!(word("state", b"READY", &["delayed", "ready"]), Ok(1));
        assert_eq!(
            word("state", b"raedy", &["delayed", "ready"]).unwrap_err().to_string(),
            "state must be one of delayed, ready, not 'raedy'; did you mean ready?"
        );
    }

    #[test]
    fn sources() {
        let all = bytes(&["a", "b"]);
        let source = all.as_slice();
        assert_eq!(
            (Source::len(&source), Source::get(&source, 1), Source::get(&source, 2)),
            (2, Some(&b"b"[..]), None)
        );
    }
}

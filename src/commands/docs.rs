//! What a command says about itself, as data: `COMMAND DOCS`, redis-cli's hints, and `RQ.HELP`.
//!
//! Types and small constructors; the values stand next to the handlers.

use std::fmt;

/// What `COMMAND DOCS` tells of a command, beyond name, arity and keys.
#[derive(Clone, Copy, Debug)]
pub struct Docs {
    /// One line.
    pub summary: &'static str,
    /// Big O, and in what.
    pub complexity: &'static str,
    /// The version of this module that had it first.
    pub since: &'static str,
    /// What the command replies.
    pub reply: &'static str,
    /// Arguments behind the name.
    pub args: &'static [Arg],
}

/// One argument, or a group of them.
#[derive(Clone, Copy, Debug)]
pub struct Arg {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// The word that stands before it (of [`Kind::Token`]: the word that it is).
    pub token: Option<&'static str>,
    /// Whether it may be left out.
    pub is_optional: bool,
    /// Whether it may be repeated.
    pub is_multiple: bool,
}

/// What an argument is.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// The name of a key.
    Key,
    /// Any bytes.
    Text,
    /// A decimal number.
    Integer,
    /// A Unix time.
    Instant,
    /// A glob-style pattern.
    Pattern,
    /// A fixed word.
    Token,
    /// One of these.
    OneOf(&'static [Arg]),
    /// All of these, in this order.
    Block(&'static [Arg]),
}

impl Arg {
    const fn new(name: &'static str, kind: Kind) -> Self {
        Self { name, kind, token: None, is_optional: false, is_multiple: false }
    }

    /// It may be left out.
    #[must_use]
    pub const fn optional(self) -> Self {
        Self { is_optional: true, ..self }
    }

    /// It may be repeated.
    #[must_use]
    pub const fn multiple(self) -> Self {
        Self { is_multiple: true, ..self }
    }

    /// The word `token` stands before it.
    #[must_use]
    pub const fn after(self, token: &'static str) -> Self {
        Self { token: Some(token), ..self }
    }

    /// The arguments in it.
    #[must_use]
    pub const fn parts(&self) -> &'static [Self] {
        match self.kind {
            Kind::OneOf(parts) | Kind::Block(parts) => parts,
            _ => &[],
        }
    }
}

/// The queue.
pub const QUEUE: Arg = Arg::new("queue", Kind::Key);
/// A worker's name.
pub const WORKER: Arg = text("worker");
/// A job and the token of its delivery, once or more.
pub const DELIVERIES: Arg = block("delivery", &[text("id"), text("token")]).multiple();
/// `JSON`.
pub const JSON: Arg = token("JSON").optional();
/// `BACKOFF base-ms [max-ms]`.
pub const BACKOFF: Arg = option("BACKOFF", BACKOFF_VALUE);
/// What follows `BACKOFF`.
pub const BACKOFF_VALUE: Arg = block("backoff", &[integer("base-ms"), integer("max-ms").optional()]);
/// `LEASE ms`.
pub const LEASE: Arg = option("LEASE", integer("ms"));
/// `TTL ms | none`.
pub const TTL: Arg = option("TTL", MS_OR_NONE);
/// A state of jobs.
pub const STATE: Arg = one_of(
    "state",
    &[token("delayed"), token("ready"), token("active"), token("done"), token("dead"), token("cancelled")],
);
/// `GROUP name`.
pub const GROUP: Arg = option("GROUP", text("name"));
/// `TENANT name`.
pub const TENANT: Arg = option("TENANT", text("name"));
/// The word that takes a limit away.
pub const NONE: Arg = token("none");
/// The word that leaves it to the queue.
pub const DEFAULT: Arg = token("default");
/// A number that there may be none of.
pub const N_OR_NONE: Arg = one_of("limit", &[integer("n"), NONE]);
/// A duration that there may be none of.
pub const MS_OR_NONE: Arg = one_of("limit", &[integer("ms"), NONE]);
/// `CONCURRENCY n | none`.
pub const CONCURRENCY: Arg = option("CONCURRENCY", N_OR_NONE);
/// `RATE n ms [BURST n] | none`.
pub const RATE: Arg = option("RATE", RATE_VALUE);
/// What follows `RATE`.
pub const RATE_VALUE: Arg = one_of("limit", &[CLAIMS, NONE]);
/// A rate.
pub const CLAIMS: Arg = block("rate", &[integer("n"), integer("ms"), integer("n").after("BURST").optional()]);
/// `COUNT n`.
pub const COUNT: Arg = option("COUNT", integer("n"));
/// `DELAY ms | AT unix-ms`.
pub const WHEN: Arg =
    one_of("when", &[integer("ms").after("DELAY"), instant("unix-ms").after("AT")]).optional();

/// Any bytes.
#[must_use]
pub const fn text(name: &'static str) -> Arg {
    Arg::new(name, Kind::Text)
}

/// A decimal number.
#[must_use]
pub const fn integer(name: &'static str) -> Arg {
    Arg::new(name, Kind::Integer)
}

/// A Unix time.
#[must_use]
pub const fn instant(name: &'static str) -> Arg {
    Arg::new(name, Kind::Instant)
}

/// A glob-style pattern.
#[must_use]
pub const fn pattern(name: &'static str) -> Arg {
    Arg::new(name, Kind::Pattern)
}

/// A fixed word.
#[must_use]
pub const fn token(word: &'static str) -> Arg {
    Arg::new(word, Kind::Token).after(word)
}

/// A fixed word and what follows it; may be left out.
#[must_use]
pub const fn option(word: &'static str, value: Arg) -> Arg {
    value.after(word).optional()
}

/// One of these.
#[must_use]
pub const fn one_of(name: &'static str, parts: &'static [Arg]) -> Arg {
    Arg::new(name, Kind::OneOf(parts))
}

/// All of these, in this order.
#[must_use]
pub const fn block(name: &'static str, parts: &'static [Arg]) -> Arg {
    Arg::new(name, Kind::Block(parts))
}

/// Shows an argument as syntax: `[DELAY ms | AT unix-ms]`.
impl fmt::Display for Arg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A choice that must be made needs brackets too, or it would seem to reach further.
        let (open, close) = match (self.is_optional, self.kind) {
            (true, _) => ("[", "]"),
            (false, Kind::OneOf(_)) => ("<", ">"),
            (false, _) => ("", ""),
        };
        f.write_str(open)?;
        self.write_once(f)?;
        if self.is_multiple {
            f.write_str(" [")?;
            self.write_once(f)?;
            f.write_str(" ...]")?;
        }
        f.write_str(close)
    }
}

impl Arg {
    fn write_once(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(token) = self.token {
            f.write_str(token)?;
            if !matches!(self.kind, Kind::Token) {
                f.write_str(" ")?;
            }
        }
        let separator = match self.kind {
            Kind::Token => return Ok(()),
            Kind::OneOf(_) => " | ",
            Kind::Block(_) => " ",
            _ => return f.write_str(self.name),
        };
        for (index, part) in self.parts().iter().enumerate() {
            if index > 0 {
                f.write_str(separator)?;
            }
            write!(f, "{part}")?;
        }
        Ok(())
    }
}

/// The words in some arguments: for the tests, which hold them against what the parsers know.
#[cfg(test)]
pub fn words(args: &[Arg]) -> Vec<&'static str> {
    args.iter().flat_map(|arg| arg.token.into_iter().chain(words(arg.parts()))).collect()
}

/// Fails unless the command's arguments have exactly these words.
#[cfg(test)]
pub fn check_words(rows: &[super::Row], name: &std::ffi::CStr, known: &[&str]) {
    let row = rows.iter().find(|row| row.name == name).unwrap();
    let (mut shown, mut known) = (words(row.docs.args), known.to_vec());
    // Words in small letters are values, and for the reader of the value to know.
    for words in [&mut shown, &mut known] {
        words.retain(|word| word.to_uppercase() == *word);
    }
    shown.sort_unstable();
    known.sort_unstable();
    assert_eq!(shown, known, "{name:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syntax_is_shown() {
        const CHOICE: Arg = one_of("choice", &[token("A"), text("b").after("B")]);
        assert_eq!(QUEUE.to_string(), "queue");
        assert_eq!(CHOICE.to_string(), "<A | B b>");
        assert_eq!(WHEN.to_string(), "[DELAY ms | AT unix-ms]");
        assert_eq!(JSON.to_string(), "[JSON]");
        assert_eq!(COUNT.to_string(), "[COUNT n]");
        assert_eq!(BACKOFF.to_string(), "[BACKOFF base-ms [max-ms]]");
        assert_eq!(RATE.to_string(), "[RATE n ms [BURST n] | none]");
        assert_eq!(TTL.to_string(), "[TTL ms | none]");
        assert_eq!(GROUP.to_string(), "[GROUP name]");
        assert_eq!(DELIVERIES.to_string(), "id token [id token ...]");
    }
}

//! The commands: parse, run, reply; one file per family. And the table of them.

pub mod args;
pub mod docs;
pub mod fields;
pub mod glob;
pub mod help;
pub mod json;
pub mod operators;
pub mod produce;
pub mod recovery;
pub mod results;
pub mod settings;
pub mod views;
pub mod workers;

use crate::server::call::{Args, Call};
use crate::server::reply::Refusal;
use std::ffi::CStr;

/// All commands, by family.
pub const TABLE: &[&[Row]] = &[
    produce::ROWS,
    workers::ROWS,
    results::ROWS,
    recovery::ROWS,
    operators::ROWS,
    settings::ROWS,
    help::ROWS,
];

impl<'a> args::Source<'a> for Args<'a> {
    fn len(&self) -> usize {
        Args::len(self)
    }

    fn get(&self, index: usize) -> Option<&'a [u8]> {
        Args::get(self, index)
    }
}

impl From<args::Wrong> for Refusal {
    fn from(wrong: args::Wrong) -> Self {
        match wrong {
            args::Wrong::Arity => Self::Arity,
            wrong => Self::Syntax(wrong.to_string()),
        }
    }
}

/// A row of the command table. One `const ROWS: &[Row]` per family file, next to its handlers:
/// `Row { name: c"RQ.ACK", entry: entry!(ack, c"rq.ack"), flags: c"write fast", arity: -4, keys:
/// Keys::One, access: Access::Write, categories: c"write fast", docs: &Docs {..} }`.
#[derive(Clone, Copy)]
pub struct Row {
    /// As clients write it.
    pub name: &'static CStr,
    /// What runs it: `entry!(handler, event)`.
    pub entry: Entry,
    /// Flags for the server, separated by blanks.
    pub flags: &'static CStr,
    /// Number of arguments with the name; negative: at least so many.
    pub arity: i32,
    /// Where its keys stand.
    pub keys: Keys,
    /// What it does with them.
    pub access: Access,
    /// ACL categories, separated by blanks, without `@`.
    pub categories: &'static CStr,
    /// For `COMMAND DOCS`.
    pub docs: &'static docs::Docs,
}

/// Where the keys of a command stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// It has none.
    None,
    /// The first argument.
    One,
    /// The first argument says how many follow.
    Counted,
}

/// What a command does with its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Looks.
    Read,
    /// Looks and changes.
    Write,
}

/// A handler with its key event (see [`entry!`]).
#[derive(Clone, Copy)]
pub struct Entry {
    /// The handler.
    pub run: fn(&mut Call<'_>) -> Result<(), Refusal>,
    /// Name of the key event raised when it changed something.
    pub event: &'static CStr,
}

/// Makes an [`Entry`] of a handler and the name of its key event.
#[macro_export]
macro_rules! entry {
    ($run:path, $event:expr) => {
        $crate::commands::Entry { run: $run, event: $event }
    };
}
pub use entry;

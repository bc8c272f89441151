//! The commands: parse, run, reply; one file per family. And the table of them.

mod apply;
pub mod args;
pub mod docs;
pub mod fields;
pub mod glob;
pub mod groups;
pub mod help;
pub mod json;
pub mod metrics;
pub mod operators;
pub mod outputs;
pub mod produce;
pub mod recovery;
pub mod results;
pub mod settings;
pub mod views;
pub mod workers;

use std::ffi::CStr;

use crate::server::call::{Args, Renderers};
use crate::server::ffi::{self, Ctx};
use crate::server::reply::Refusal;

pub use crate::server::ffi::{Entry, entry};

/// All commands, by family.
pub const TABLE: &[&[Row]] = &[
    produce::ROWS,
    workers::ROWS,
    outputs::ROWS,
    results::ROWS,
    recovery::ROWS,
    operators::ROWS,
    settings::ROWS,
    groups::ROWS,
    metrics::ROWS,
    help::ROWS,
    apply::ROWS,
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
/// Keys::One, access: Access::Changes, categories: c"write fast", docs: &Docs {..} }`.
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

pub use crate::server::ffi::KeyUse as Access;

/// Registers all commands. Only while the module is loaded.
///
/// # Errors
/// What the server does not take.
pub fn register(ctx: Ctx<'_>) -> Result<(), String> {
    for row in TABLE.iter().copied().flatten() {
        ffi::register(
            ctx,
            &ffi::Command {
                name: row.name,
                entry: row.entry,
                flags: row.flags,
                arity: row.arity,
                keys: match row.keys {
                    Keys::None => ffi::Keys::None,
                    Keys::One => ffi::Keys::One,
                    Keys::Counted => ffi::Keys::Counted,
                },
                access: row.access,
                categories: row.categories,
                summary: row.docs.summary,
                complexity: row.docs.complexity,
                since: row.docs.since,
                args: row.docs.args.iter().map(arg).collect(),
            },
        )?;
    }
    Ok(())
}

fn arg(arg: &'static docs::Arg) -> ffi::Arg<'static> {
    use docs::Kind;
    use ffi::ArgKind;
    ffi::Arg {
        name: arg.name,
        kind: match arg.kind {
            Kind::Key => ArgKind::Key,
            Kind::Text => ArgKind::Text,
            Kind::Integer => ArgKind::Integer,
            Kind::Instant => ArgKind::Instant,
            Kind::Pattern => ArgKind::Pattern,
            Kind::Token => ArgKind::Token,
            Kind::OneOf(_) => ArgKind::OneOf,
            Kind::Block(_) => ArgKind::Block,
        },
        token: arg.token,
        is_optional: arg.is_optional,
        is_multiple: arg.is_multiple,
        parts: arg.parts().iter().map(self::arg).collect(),
    }
}

/// How the shell writes the replies that it gives later than the call.
pub const RENDERERS: Renderers = Renderers {
    jobs: workers::reply_jobs,
    result: results::reply_result,
    ended: results::reply_ended,
    output: outputs::reply_output,
    usage: help::usage,
};

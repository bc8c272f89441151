//! `RQ.APPLY`: how changes that are no user command reach replicas and the AOF.

use super::args::Wrong;
use super::docs::{self, Docs};
use super::{Access, Keys, Row, entry};
use crate::persist;
use crate::server::call::Call;
use crate::server::ffi::log;
use crate::server::reply::Refusal;

/// The commands of this file.
pub const ROWS: &[Row] = &[Row {
    name: c"RQ.APPLY",
    // No event of its own: on a replica too, what it does has.
    entry: entry!(apply, c""),
    // Not `deny-oom`: replicas refuse that too, and would differ from their primary.
    flags: c"write",
    arity: -3,
    keys: Keys::One,
    access: Access::Takes,
    categories: c"write dangerous",
    docs: &Docs {
        summary: "Carries what a primary decided to its replicas and its AOF. Not for clients.",
        complexity: "Depends on the message",
        since: "0.1.0",
        reply: "OK",
        args: &[docs::QUEUE, docs::text("message").multiple()],
    },
}];

/// `RQ.APPLY queue message [message ...]`
pub fn apply(call: &mut Call<'_>) -> Result<(), Refusal> {
    if !call.obeys() {
        return Err(Refusal::NotForClients);
    }
    // Whatever comes of it here: the AOF and the replicas of this server see what it saw.
    call.pass_on();
    let args = call.args();
    // When an AOF is loaded, nobody has counted the arguments.
    if args.len() < 3 {
        return Err(Wrong::Arity.into());
    }
    let mut wrong = None;
    for at in 2..args.len() {
        let message = args.get(at).unwrap_or_default();
        let result = match persist::decode(message) {
            Ok(message) => call.execute(message),
            Err(corrupt) => Err(corrupt.to_string()),
        };
        if let Err(text) = result {
            // The others may still fit.
            call.count_refused();
            log(c"warning", &format!("a message of the primary or the AOF was refused: {text}"));
            wrong = Some(text);
        }
    }
    if wrong.is_some() && call.loads_aof() {
        // The server would go on without the queue, and say so in one line of its log. As with any other
        // damaged file, it is better not to start.
        log(c"warning", "the AOF is damaged: not starting, rather than losing a queue");
        std::process::exit(1);
    }
    match wrong {
        Some(text) => Err(Refusal::Syntax(format!("a message was refused: {text}"))),
        None => {
            call.out().word("OK");
            Ok(())
        }
    }
}

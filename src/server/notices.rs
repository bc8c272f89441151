//! Key events: what the change of a queue at hand did to its jobs, for clients that listen.
//!
//! It is collected while ops are applied, on a primary, a replica and by the timer alike, and raised when
//! the key is closed: other modules may act on an event at once. However many jobs a change moves, each
//! event is raised once. Nobody listening, it costs one look at the server's configuration.

use std::ffi::CStr;

use super::ffi::{Ctx, MainCell, Str};
use crate::queue::{Queue, State, Totals};

/// The events, in the order of [`Totals::named`]; and, last, that there are more ready jobs than before.
pub const EVENTS: [&CStr; 13] = [
    c"rq.enqueued",
    c"rq.claimed",
    c"rq.done",
    c"rq.failed",
    c"rq.lapsed",
    c"rq.recovered",
    c"rq.released",
    c"rq.dead",
    c"rq.cancelled",
    c"rq.redriven",
    c"rq.refused",
    c"rq.removed",
    c"rq.ready",
];

const READY: u32 = EVENTS.len() as u32 - 1;
/// Something changed, whatever it was.
const CHANGED: u32 = 1 << 31;

/// What was not raised yet: bits by number of the event.
static PENDING: MainCell<u32> = MainCell::new(0);

/// A queue before a change, if somebody listens.
#[derive(Debug)]
pub struct Before(Option<(Totals, usize)>);

impl Before {
    /// To be called before the change.
    #[inline]
    #[must_use]
    pub fn look(ctx: Ctx<'_>, queue: &Queue) -> Self {
        Self(ctx.tells_events().then(|| (*queue.totals(), queue.count(State::Ready))))
    }

    /// As [`Self::look`], of a queue that is about to be made.
    #[must_use]
    pub fn nothing(ctx: Ctx<'_>) -> Self {
        Self(ctx.tells_events().then(|| (Totals::default(), 0)))
    }

    /// To be called after the change.
    #[inline]
    pub fn note(&self, ctx: Ctx<'_>, queue: &Queue) {
        if let Some((totals, ready)) = &self.0 {
            collect(ctx, totals, *ready, queue);
        }
    }
}

#[cold]
fn collect(ctx: Ctx<'_>, before: &Totals, ready: usize, queue: &Queue) {
    let main = ctx.main();
    let mut bits = PENDING.get(main) | CHANGED;
    let after = queue.totals().named();
    for (number, ((_, old), (_, new))) in (0u32..).zip(before.named().into_iter().zip(after)) {
        // An undone grant makes one smaller.
        let grew = new.wrapping_sub(old).wrapping_sub(1) < u64::MAX / 2;
        bits |= u32::from(grew) << number;
    }
    bits |= u32::from(queue.count(State::Ready) > ready) << READY;
    PENDING.set(main, bits);
}

/// Raises what was collected, under the name of the queue that it was collected of: the command's own
/// event first, if it was a command.
#[inline]
pub fn raise(ctx: Ctx<'_>, name: Str<'_>, command: Option<&CStr>) {
    let bits = PENDING.get(ctx.main());
    if bits != 0 {
        raise_all(ctx, name, command, bits);
    }
}

#[cold]
fn raise_all(ctx: Ctx<'_>, name: Str<'_>, command: Option<&CStr>, bits: u32) {
    PENDING.set(ctx.main(), 0);
    if let Some(command) = command {
        ctx.notify(command, name);
    }
    for (number, event) in (0u32..).zip(EVENTS) {
        if bits >> number & 1 == 1 {
            ctx.notify(event, name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_named_as_the_totals() {
        for ((total, _), event) in Totals::default().named().into_iter().zip(EVENTS) {
            let event = event.to_str().unwrap();
            assert!(event == format!("rq.{total}") || (total, event) == ("delivered", "rq.claimed"));
        }
        assert_eq!(Totals::default().named().len() + 1, EVENTS.len());
    }
}

//! The one way in which a queue is changed on this server: the queue's clock is brought up to date
//! if it is behind, the op is applied, and if that changed anything it is propagated.

use super::ffi::{Ctx, Str, changing, log};
use super::value::{self, Value};
use super::{clock, config};
use crate::persist;
use crate::queue::{Effects, Error, Op, Outcome, Queue, Serial, Stamp};

/// How a change is told to replicas and the AOF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Travel {
    /// As the command that the client sent, under the queue's clock.
    Command,
    /// As the op itself, in `RQ.APPLY`.
    Op,
}

/// Applies an op on a primary, and propagates it if it changed anything.
///
/// # Errors
/// The queue's; nothing has changed then.
pub fn apply(
    ctx: Ctx<'_>,
    name: Str<'_>,
    value: &mut Value,
    op: &Op<'_>,
    travel: Travel,
    fx: &mut Effects<'_>,
) -> Result<Outcome, Error> {
    let main = ctx.main();
    value.prepare(main);
    let stamp = value.stamp(main, op);
    changing(true);
    let result = match stamp {
        Some(stamp) => value.queue.apply_at(stamp, op, fx),
        None => value.queue.apply(op, fx).map(|outcome| (outcome, false)),
    };
    if let Ok((_, moved)) = result {
        if fx.changed {
            value::raise_serial(main, value.queue.last_serial());
            propagate(ctx, name, op, travel, stamp.filter(|_| moved));
        }
    }
    changing(false);
    result.map(|(outcome, _)| outcome)
}

/// Makes a queue with the configured defaults and applies its first op. The queue is not stored yet.
///
/// # Errors
/// The queue's; then there is none.
pub fn make(ctx: Ctx<'_>, op: &Op<'_>, fx: &mut Effects<'_>) -> Result<(Box<Value>, Outcome, Stamp), Error> {
    let main = ctx.main();
    let wall = clock::wall_ms();
    // A new queue's duration clock begins at the wall clock.
    let stamp = Stamp { now: wall, wall, serial: Serial(value::SERIAL.get(main)) };
    let mut queue = Queue::new(config::defaults(main), stamp);
    let outcome = queue.apply(op, fx)?;
    value::raise_serial(main, queue.last_serial());
    Ok((Box::new(Value::made(main, queue)), outcome, stamp))
}

/// Propagates the making of a queue.
pub fn propagate_creation(ctx: Ctx<'_>, name: Str<'_>, stamp: Stamp) {
    let message = persist::encode_create(&config::defaults(ctx.main()), stamp);
    ctx.replicate_apply(name, &message, None);
}

/// Propagates an op, and before it the clock at which it was applied, if that moved.
pub fn propagate(ctx: Ctx<'_>, name: Str<'_>, op: &Op<'_>, travel: Travel, moved: Option<Stamp>) {
    let clock = moved.and_then(|stamp| persist::encode_op(&Op::Clock(stamp)));
    match travel {
        Travel::Command => {
            if let Some(clock) = clock {
                ctx.replicate_apply(name, &clock, None);
            }
            ctx.replicate_verbatim();
        }
        Travel::Op => match (clock, persist::encode_op(op)) {
            (Some(clock), Some(op)) => ctx.replicate_apply(name, &clock, Some(&op)),
            (None, Some(op)) => ctx.replicate_apply(name, &op, None),
            (_, None) => log(c"warning", "an op that has no form to travel in was not propagated"),
        },
    }
}

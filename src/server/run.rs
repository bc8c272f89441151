//! The one way in which a queue is changed on this server: the queue's clock is brought up to date
//! if it is behind, the op is applied, and if that changed anything it is propagated. Those who wait
//! for news of a job are answered in the middle of that, while its result, or what it put out, is at hand.

use super::ffi::{Ctx, Str, changing, log};
use super::notices::Before;
use super::value::{self, Value};
use super::{clock, config, waiters, warnings};
use crate::persist;
use crate::queue::{Effects, Error, Op, Outcome, Queue, Serial, Slots, Stamp};

/// How a change is told to replicas and the AOF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Travel {
    /// As the command that the client sent, under the queue's clock.
    Command,
    /// As the op itself, in `RQ.APPLY`.
    Op,
}

/// An op that was applied.
pub struct Done {
    /// What came of it.
    pub outcome: Outcome,
    /// Whether it changed anything.
    pub changed: bool,
    /// The jobs of a claim, valid until the next op.
    pub claimed: Slots,
}

/// Runs an op with somebody listening for what jobs do, if somebody waits for one.
#[inline]
fn listening<R>(
    ctx: Ctx<'_>,
    name: Str<'_>,
    run: impl FnOnce(&mut Effects<'_>) -> Result<(Outcome, R), Error>,
) -> Result<(Done, R), Error> {
    let mut watch = waiters::watch(ctx, name);
    let mut fx = Effects::default();
    if let Some(watch) = &mut watch {
        fx.observer = Some(watch);
    }
    let (outcome, rest) = run(&mut fx)?;
    Ok((Done { outcome, changed: fx.changed, claimed: fx.claimed }, rest))
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
) -> Result<Done, Error> {
    let main = ctx.main();
    value.prepare(main);
    let stamp = value.stamp(main, op);
    let before = Before::look(ctx, &value.queue);
    changing(true);
    let result = listening(ctx, name, |fx| match stamp {
        Some(stamp) => value.queue.apply_at(stamp, op, fx),
        None => value.queue.apply(op, fx).map(|outcome| (outcome, false)),
    });
    if let Ok((done, moved)) = &result
        && done.changed
    {
        before.note(ctx, &value.queue);
        value::raise_serial(main, value.queue.last_serial(), value.queue.wall());
        propagate(ctx, name, op, travel, stamp.filter(|_| *moved));
        warnings::count_dead(main, name, &mut value.told, &value.queue);
    }
    changing(false);
    if matches!(result, Err(Error::Full)) {
        warnings::queue_is_full(main, name, &mut value.told, &value.queue);
    }
    result.map(|(done, _)| done)
}

/// Applies an op as it was decided elsewhere, at the queue's clock.
///
/// # Errors
/// The queue's; nothing has changed then.
pub fn obey(ctx: Ctx<'_>, name: Str<'_>, value: &mut Value, op: &Op<'_>) -> Result<Done, Error> {
    let before = Before::look(ctx, &value.queue);
    changing(true);
    let result = listening(ctx, name, |fx| Ok((value.queue.apply(op, fx)?, ())));
    if let Ok((done, ())) = &result {
        if done.changed {
            before.note(ctx, &value.queue);
        }
        value::raise_serial(ctx.main(), value.queue.last_serial(), value.queue.wall());
    }
    changing(false);
    result.map(|(done, ())| done)
}

/// Makes a queue with the configured defaults and applies its first op. The queue is not stored yet.
///
/// # Errors
/// The queue's; then there is none.
pub fn make(ctx: Ctx<'_>, op: &Op<'_>) -> Result<(Box<Value>, Done, Stamp), Error> {
    let main = ctx.main();
    let boot = clock::boot_ms();
    let wall = clock::wall_at(boot);
    // A new queue's duration clock begins at the wall clock.
    let stamp = Stamp { now: wall, wall, serial: Serial(value::SERIAL.get(main)) };
    let mut queue = Queue::new(config::defaults(main), stamp);
    let mut fx = Effects::default();
    let outcome = queue.apply(op, &mut fx)?;
    Before::nothing(ctx).note(ctx, &queue);
    value::raise_serial(main, queue.last_serial(), wall);
    // That there is a queue now is a change in any case.
    let done = Done { outcome, changed: true, claimed: fx.claimed };
    Ok((Box::new(Value::made(main, queue, boot)), done, stamp))
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

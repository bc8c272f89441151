//! One call of a command: its arguments, and the ways a command may work on queues.
//!
//! INTERFACE (signatures are settled, bodies follow):
//! - `read` hands out [`Seen`]: the queue with the time as it is now. The queue's own clock is that
//!   of its last change and may lie behind; reads must not move it. So anything that "is left" or
//!   "has lasted" is reckoned from `Seen::now`, and shown instants go through `Seen::to_wall`.
//! - What `WORKERS` and `RECOVER … IDLE` need beyond the queue: `waiting()`, `idle_workers(ms)`.
//! - `write_resolved` is `write` for ops made from what only this server knows: the op travels, not
//!   the command.

use std::collections::HashMap;

use super::reply::{Out, Refusal};
use crate::queue::{Claim, Ended, Id, JobView, Op, Outcome, Queue, Slot};

/// A call in progress.
pub struct Call<'a> {
    marker: std::marker::PhantomData<&'a ()>,
}

/// The arguments; number 0 is the name of the command.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    marker: std::marker::PhantomData<&'a ()>,
}

/// What a write does without a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Makes it, with the `rq.default-…` settings.
    Create,
    /// Changes nothing; the reply is told `None`.
    Nothing,
    /// Answers `NOQUEUE`.
    Refuse,
}

/// What a write did, while its slots are valid.
#[derive(Clone, Copy)]
pub struct Applied<'q> {
    /// The queue.
    pub queue: &'q Queue,
    /// What came of the op.
    pub outcome: &'q Outcome,
    /// The jobs of a claim.
    pub claimed: &'q [Slot],
}

/// A queue as a reader sees it.
#[derive(Clone, Copy)]
pub struct Seen<'q> {
    /// The queue. Its own clock may lie behind.
    pub queue: &'q Queue,
    /// The duration clock as it is now, ms; never behind `queue.now()`.
    pub now: u64,
    /// The wall clock as it is now, Unix ms.
    pub wall: u64,
}

impl Seen<'_> {
    /// An instant of the duration clock as Unix ms, as the clocks stand now.
    #[must_use]
    pub fn to_wall(&self, instant: u64) -> u64 {
        if instant == u64::MAX {
            return u64::MAX;
        }
        self.wall.saturating_add(instant).saturating_sub(self.now)
    }
}

/// A claim that may wait, for one of several queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimRequest<'a> {
    /// Number of the argument that names the first queue.
    pub first_queue: usize,
    /// How many queues there are, one behind the other.
    pub queues: usize,
    /// What is claimed of the first of them that has something.
    pub claim: Claim<'a>,
    /// How long to wait, ms, when there is nothing; 0: for ever; `None`: not at all.
    pub block: Option<u64>,
    /// Whether the reply shows each job as a map.
    pub full: bool,
    /// Whether the reply is `[queue, jobs]` (`RQ.MCLAIM`) or only the jobs.
    pub named: bool,
}

/// How replies are written that are given later than the call, by the shell. Set once at load.
#[derive(Clone, Copy)]
pub struct Renderers {
    /// `commands::workers::reply_jobs(queue, slots, full, out)`.
    pub jobs: fn(&Queue, &[Slot], bool, &mut dyn Out),
    /// `commands::results::reply_result(queue, job, now, out)`.
    pub result: fn(&Queue, JobView<'_>, u64, &mut dyn Out),
    /// `commands::results::reply_ended(ended, out)`.
    pub ended: fn(&Ended<'_>, &mut dyn Out),
}

/// The workers that wait for a queue now: name, and for how many ms they have.
pub type Waiting = HashMap<Box<[u8]>, u64>;

impl<'a> Args<'a> {
    /// How many there are, the name of the command included.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // a call is never without its name
    pub fn len(&self) -> usize {
        0
    }

    /// One of them.
    #[must_use]
    pub fn get(&self, _index: usize) -> Option<&'a [u8]> {
        None
    }
}

impl<'a> Call<'a> {
    /// The arguments.
    #[must_use]
    pub fn args(&self) -> Args<'a> {
        Args { marker: std::marker::PhantomData }
    }

    /// Whether this executes what a primary or the AOF decided: no limits, no blocking, no stamping.
    #[must_use]
    pub fn obeys(&self) -> bool {
        false
    }

    /// Most bytes in a payload or result; `None` when obeying.
    #[must_use]
    pub fn max_payload(&self) -> Option<u64> {
        None
    }

    /// Where a reply goes that needs no queue.
    pub fn out(&mut self) -> &mut dyn Out {
        unimplemented!()
    }

    /// The one write path, on the queue that the first argument names.
    ///
    /// # Errors
    /// See [`Refusal`]; nothing has changed then.
    pub fn write(
        &mut self,
        _op: &Op<'_>,
        _missing: Missing,
        _reply: impl FnOnce(Option<Applied<'_>>, &mut dyn Out),
    ) -> Result<(), Refusal> {
        Err(Refusal::Internal)
    }

    /// As `write`, for an op made from what only this server knows: the op travels, not the command.
    ///
    /// # Errors
    /// See [`Refusal`]; nothing has changed then.
    pub fn write_resolved(
        &mut self,
        _op: &Op<'_>,
        _missing: Missing,
        _reply: impl FnOnce(Option<Applied<'_>>, &mut dyn Out),
    ) -> Result<(), Refusal> {
        Err(Refusal::Internal)
    }

    /// Looks at the queue that the first argument names.
    ///
    /// # Errors
    /// `WRONGTYPE`.
    pub fn read<R>(&mut self, _f: impl FnOnce(Option<Seen<'_>>, &mut dyn Out) -> R) -> Result<R, Refusal> {
        Err(Refusal::Internal)
    }

    /// `RQ.CLAIM` and `RQ.MCLAIM`: claims, waits if asked to and allowed, and replies.
    ///
    /// # Errors
    /// See [`Refusal`]; nothing has changed then.
    pub fn claim(&mut self, _request: ClaimRequest<'_>) -> Result<(), Refusal> {
        Err(Refusal::Internal)
    }

    /// `RQ.RESULT` on the queue that the first argument names; waits if asked to and allowed.
    ///
    /// # Errors
    /// See [`Refusal`]; nothing has changed then.
    pub fn wait_result(&mut self, _id: Id<'_>, _block: Option<u64>) -> Result<(), Refusal> {
        Err(Refusal::Internal)
    }

    /// The workers that wait for the queue that the first argument names.
    #[must_use]
    pub fn waiting(&self) -> Waiting {
        Waiting::new()
    }

    /// Workers of the queue that the first argument names that neither wait now nor gave a sign of
    /// life for at least `ms`.
    ///
    /// # Errors
    /// `WRONGTYPE`.
    pub fn idle_workers(&mut self, _ms: u64) -> Result<Vec<Box<[u8]>>, Refusal> {
        Err(Refusal::Internal)
    }

    /// Names of the queues of the selected database behind `cursor` (0: from the start), and the
    /// next cursor (0: that was the last). Looks at up to `count` names and gives those that match.
    #[must_use]
    pub fn queues(&mut self, _cursor: u64, _count: usize, _matches: &dyn Fn(&[u8]) -> bool) -> (u64, Vec<Box<[u8]>>) {
        (0, Vec::new())
    }
}

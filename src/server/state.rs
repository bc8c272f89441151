//! What the module knows beside the queues themselves. Main thread only.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::call::Renderers;
use super::ffi::{Blocked, BlockedId, ClientId, MainCell, MainThread};
use super::index::Index;
use super::moves::Moves;
use super::timer::Timers;
use super::waiters::Grant;
use super::waitlist::WaitList;
use crate::persist::Loader;

/// See the fields. Borrowed for moments only, never while the server may call back.
pub static STATE: MainThread<State> = MainThread::new();

/// How late replies are written; set at load.
pub static RENDERERS: MainCell<Option<Renderers>> = MainCell::new(None);

/// How many clients wait. 0 means that nobody need be looked for.
pub static WAITING: MainCell<usize> = MainCell::new(0);

/// See [`STATE`].
#[derive(Default)]
pub struct State {
    /// The live queues.
    pub index: Index,
    /// The clients that wait.
    pub waits: WaitList<BlockedId, Blocked>,
    /// Queues at which something happened that concerns those who wait, to be looked at by the
    /// timer: they came, went, or changed inside of a transaction.
    pub pending: BTreeSet<(i32, Box<[u8]>)>,
    /// Awaited names of which it is still to be seen whether they live on another node of the cluster.
    pub unchecked: Vec<(i32, Box<[u8]>)>,
    /// Grants whose clients were gone before the reply could be written.
    pub undo: VecDeque<Grant>,
    /// Where queues went meanwhile.
    pub moves: Moves,
    /// Clients that may have been left without an answer: see `waiters::unanswered`.
    pub unanswered: Vec<ClientId>,
    /// Queues of an AOF rewrite that are not complete yet.
    pub loaders: BTreeMap<(i32, Box<[u8]>), Loader>,
    /// The timer.
    pub timers: Timers,
    /// For INFO.
    pub stats: Stats,
}

/// Counted since the server was started.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    /// Runs of the timer.
    pub ticks: u64,
    /// Sweeps that settled something.
    pub sweeps: u64,
    /// Jobs handed to clients that waited for them.
    pub granted: u64,
    /// Grants taken back because the client was gone.
    pub undone: u64,
    /// Waits that ended without a job or result.
    pub timeouts: u64,
    /// Workers forgotten.
    pub forgotten: u64,
    /// Messages of `RQ.APPLY` that were refused.
    pub refused: u64,
}

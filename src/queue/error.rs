//! Why an op was refused. An error changes nothing.

use super::State;

/// The reasons for which [`super::Queue::apply`] refuses an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// No job has this id.
    NoJob,
    /// The token is not the one of the job's current delivery.
    Stale,
    /// `MAXLEN` waiting jobs are there already.
    Full,
    /// The job's run has put out as much as `MAXOUTPUT` allows, or as many chunks as there may be.
    OutputFull,
    /// A job with this custom id exists, in this state.
    Exists(State),
    /// The job, or the state named, does not allow this.
    BadState(State),
    /// A delay is not shorter than the job's deadline, which is this many ms away.
    BeyondDeadline(u64),
    /// The queue holds as many jobs, groups or tenants as it can address.
    TooMany,
}

//! The module's section of `INFO`, and the same figures for metrics.

use std::ffi::CStr;

use super::ffi::{Info, Main};
use super::state::{STATE, WAITING};

/// One figure.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name in `INFO`; the section's, `rq_`, comes before it.
    pub name: &'static CStr,
    /// Its name as a metric. One that only grows ends with `_total`.
    pub metric: &'static str,
    /// What it is.
    pub help: &'static str,
    /// Its value.
    pub value: u64,
}

/// All of them.
pub fn fields(main: Main) -> Vec<Field> {
    let (queues, stats) = STATE.with(main, |state| (state.index.len(), state.stats));
    let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    let field = |name, metric, help, value| Field { name, metric, help, value };
    vec![
        field(c"queues", "rq_server_queues", "Queues in all databases.", number(queues)),
        field(
            c"waiting_clients",
            "rq_waiting_clients",
            "Clients that wait for a job or a result.",
            number(WAITING.get(main)),
        ),
        field(
            c"granted_jobs",
            "rq_granted_jobs_total",
            "Jobs handed to clients that waited for them.",
            stats.granted,
        ),
        field(
            c"undone_grants",
            "rq_undone_grants_total",
            "Grants taken back because the client was gone.",
            stats.undone,
        ),
        field(
            c"ended_waits",
            "rq_ended_waits_total",
            "Waits that ended without a job or a result.",
            stats.timeouts,
        ),
        field(c"timer_runs", "rq_timer_runs_total", "Runs of the timer.", stats.ticks),
        field(c"sweeps", "rq_sweeps_total", "Runs of the timer that settled something.", stats.sweeps),
        field(
            c"forgotten_workers",
            "rq_forgotten_workers_total",
            "Workers forgotten after WORKERTTL.",
            stats.forgotten,
        ),
        field(
            c"refused_messages",
            "rq_refused_messages_total",
            "Messages of RQ.APPLY that did not fit their queue.",
            stats.refused,
        ),
    ]
}

/// Writes them. Without a name of its own, the section gets that of the module.
pub fn write(main: Main, info: &mut Info) {
    if !info.section(c"") {
        return;
    }
    for field in fields(main) {
        info.field(field.name, field.value);
    }
}

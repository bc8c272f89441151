//! The module's section of `INFO`.

use super::ffi::{Info, Main};
use super::state::{STATE, WAITING};

/// Writes it. Without a name of its own, the section gets that of the module.
pub fn write(main: Main, info: &mut Info) {
    if !info.section(c"") {
        return;
    }
    let (queues, stats) = STATE.with(main, |state| (state.index.len(), state.stats));
    info.field(c"queues", u64::try_from(queues).unwrap_or(u64::MAX));
    info.field(c"waiting_clients", u64::try_from(WAITING.get(main)).unwrap_or(u64::MAX));
    info.field(c"granted_jobs", stats.granted);
    info.field(c"undone_grants", stats.undone);
    info.field(c"ended_waits", stats.timeouts);
    info.field(c"timer_runs", stats.ticks);
    info.field(c"sweeps", stats.sweeps);
    info.field(c"forgotten_workers", stats.forgotten);
    info.field(c"refused_messages", stats.refused);
}

//! The shell: all that touches Redis.

pub mod call;
mod clock;
pub mod config;
mod events;
pub mod ffi;
mod index;
mod info;
mod key_type;
mod moves;
mod notices;
pub mod reply;
mod run;
pub mod state;
mod timer;
mod torn;
mod value;
mod waiters;
mod waitlist;
mod warnings;

use ffi::Ctx;

/// Prepares the shell while the module is loaded.
pub fn start(ctx: Ctx<'_>, renderers: call::Renderers) {
    let main = ctx.main();
    state::RENDERERS.set(main, Some(renderers));
    let flags = ctx.flags();
    timer::IS_CLUSTER.set(main, flags.is_cluster());
    warnings::look_at_server(ctx);
}

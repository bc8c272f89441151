//! Reliable job queues inside Redis: a server module. See `README.md`.
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

pub mod commands;
pub mod persist;
pub mod queue;
pub mod server;

/// Called by the server when it loads the module.
///
/// # Safety
/// Called by the server, once, on its main thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn RedisModule_OnLoad(
    ctx: *mut redis_module::raw::RedisModuleCtx,
    _argv: *mut *mut redis_module::raw::RedisModuleString,
    argc: std::ffi::c_int,
) -> std::ffi::c_int {
    // SAFETY: as the caller says.
    unsafe {
        server::ffi::load(ctx, argc, |ctx| {
            commands::register(ctx)?;
            server::start(ctx, commands::RENDERERS);
            Ok(())
        })
    }
}

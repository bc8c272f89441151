//! A module that keeps nothing. Its commands open a key, reply as much as ours do, and pass themselves on: what they
//! take, the server takes for any module's. `make bench` shows it beside ours.

use std::ffi::{CStr, c_char, c_int};

use redis_module::raw as api;

const ID: &[u8] = b"1700000000000-0";
const PAYLOAD: &[u8] = &[b'x'; 100];

/// Calls a function of the server, if it has it.
macro_rules! rm {
    ($name:ident($($arg:expr),*)) => {
        // SAFETY: the table of functions is filled first, and the arguments are what the server gave or constants.
        unsafe { api::$name.map(|function| function($($arg),*)) }
    };
}

type Context = *mut api::RedisModuleCtx;
type Arguments = *mut *mut api::RedisModuleString;

/// `FLOOR.ENQUEUE key payload`
extern "C" fn enqueue(ctx: Context, argv: Arguments, argc: c_int) -> c_int {
    command(ctx, argv, argc, || bulk(ctx, ID))
}

/// `FLOOR.CLAIM key worker`
extern "C" fn claim(ctx: Context, argv: Arguments, argc: c_int) -> c_int {
    command(ctx, argv, argc, || {
        rm!(RedisModule_ReplyWithArray(ctx, 1));
        rm!(RedisModule_ReplyWithArray(ctx, 4));
        bulk(ctx, ID);
        bulk(ctx, ID);
        bulk(ctx, PAYLOAD);
        rm!(RedisModule_ReplyWithLongLong(ctx, 1));
    })
}

/// `FLOOR.ACK key id token`
extern "C" fn ack(ctx: Context, argv: Arguments, argc: c_int) -> c_int {
    command(ctx, argv, argc, || {
        rm!(RedisModule_ReplyWithLongLong(ctx, 1));
    })
}

fn command(ctx: Context, argv: Arguments, argc: c_int, reply: impl FnOnce()) -> c_int {
    if argc < 2 {
        return rm!(RedisModule_WrongArity(ctx)).unwrap_or_default();
    }
    // SAFETY: there are `argc` arguments.
    let name = unsafe { *argv.add(1) };
    let mode = (api::REDISMODULE_READ | api::REDISMODULE_WRITE) as c_int;
    let Some(key) = rm!(RedisModule_OpenKey(ctx, name, mode)) else { return api::REDISMODULE_ERR as c_int };
    rm!(RedisModule_KeyType(key));
    reply();
    rm!(RedisModule_ReplicateVerbatim(ctx));
    rm!(RedisModule_CloseKey(key));
    rm!(RedisModule_SignalModifiedKey(ctx, name));
    api::REDISMODULE_OK as c_int
}

fn bulk(ctx: Context, bytes: &[u8]) {
    rm!(RedisModule_ReplyWithStringBuffer(ctx, bytes.as_ptr().cast::<c_char>(), bytes.len()));
}

/// What the server calls to load it.
///
/// # Safety
/// For the server alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn RedisModule_OnLoad(ctx: Context, _argv: Arguments, _argc: c_int) -> c_int {
    // SAFETY: as ours; fills the table of functions.
    let mut result = unsafe { api::Export_RedisModule_Init(ctx, c"floor".as_ptr(), 1, 1) };
    rm!(RedisModule_SetModuleOptions(ctx, api::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED as c_int));
    let commands: [(&CStr, api::RedisModuleCmdFunc); 3] =
        [(c"floor.enqueue", Some(enqueue)), (c"floor.claim", Some(claim)), (c"floor.ack", Some(ack))];
    for (name, function) in commands {
        let flags = c"write fast".as_ptr();
        result |= rm!(RedisModule_CreateCommand(ctx, name.as_ptr(), function, flags, 1, 1, 1)).unwrap_or(1);
    }
    result
}

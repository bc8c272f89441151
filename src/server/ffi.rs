//! The border to the server: every `unsafe` and every `extern "C"` (but for the clock).
//!
//! What crosses it is made safe by types:
//! - [`Main`] proves that the code runs on the server's main thread, or in a forked child, which
//!   has but one. All module state is reached through it ([`MainThread`], [`MainCell`]).
//! - [`Ctx`], [`Str`], [`Key`] live no longer than the callback that got or made them.
//! - [`Blocked`] is owned: a client that waits. The server keeps the handle alive until it was
//!   handed back by [`Blocked::unblock`], which consumes it.
//!
//! Every entry is guarded: a panic must not reach the server's C code. While nothing was changed it
//! becomes an error reply (or nothing); in the middle of a change it ends the process, because a
//! half-made change must not be replicated or saved. See [`changing`].

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char, c_int, c_longlong, c_uint, c_void};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use redis_module::raw as api;

use super::call::Call;
use super::reply::{Out, Refusal};
use super::state::RENDERERS;
use super::value::Value;
use super::{config, events, key_type, timer, torn, waiters, warnings};

/// Calls a function of the module API that every supported server has. On one that lacks it (which
/// the load has checked for) nothing happens and the result is the default.
macro_rules! rm {
    ($name:ident ( $($arg:expr),* $(,)? )) => {
        rm!($name ( $($arg),* ) or Default::default())
    };
    ($name:ident ( $($arg:expr),* $(,)? ) or $default:expr) => {
        // SAFETY: the table of functions is filled once, before anything of this module runs, and
        // never changes. The arguments are as the API wants them: see where they are made.
        unsafe {
            match api::$name {
                Some(function) => function($($arg),*),
                None => $default,
            }
        }
    };
}

// ---------------------------------------------------------------------------------------------
// Threads

/// Proof of being on the main thread (or in a forked child, which has only one).
#[derive(Clone, Copy)]
pub struct Main(PhantomData<*const ()>);

impl Main {
    /// # Safety
    /// Only where the server calls on its main thread or in a forked child.
    const unsafe fn here() -> Self {
        Self(PhantomData)
    }

    /// For unit tests, each of which uses its own values.
    #[cfg(test)]
    pub const fn for_test() -> Self {
        Self(PhantomData)
    }
}

/// State of the main thread. Borrowed only for as long as no server function that may call back is
/// called.
pub struct MainThread<T>(RefCell<Option<T>>);

// SAFETY: reached only with a `Main`, thus from one thread.
unsafe impl<T> Sync for MainThread<T> {}

#[allow(clippy::new_without_default)] // it is for statics, thus const
impl<T: Default> MainThread<T> {
    /// Holds a default value, made when it is first needed.
    pub const fn new() -> Self {
        Self(RefCell::new(None))
    }

    /// Works on the value. Must not be nested.
    pub fn with<R>(&self, _: Main, f: impl FnOnce(&mut T) -> R) -> R {
        f(self.0.borrow_mut().get_or_insert_default())
    }
}

/// A small value of the main thread.
pub struct MainCell<T>(Cell<T>);

// SAFETY: reached only with a `Main`, thus from one thread.
unsafe impl<T> Sync for MainCell<T> {}

impl<T: Copy> MainCell<T> {
    /// Holds `value`.
    pub const fn new(value: T) -> Self {
        Self(Cell::new(value))
    }

    /// The value.
    pub fn get(&self, _: Main) -> T {
        self.0.get()
    }

    /// Replaces the value.
    pub fn set(&self, _: Main, value: T) {
        self.0.set(value);
    }
}

// ---------------------------------------------------------------------------------------------
// Panics and the log

static CHANGING: AtomicBool = AtomicBool::new(false);

/// While `true`, a panic ends the process: a change is half made, or made and not yet propagated.
pub fn changing(is: bool) {
    CHANGING.store(is, Ordering::Relaxed);
}

fn guarded<R>(what: &'static CStr, otherwise: impl FnOnce() -> R, f: impl FnOnce() -> R) -> R {
    if let Ok(result) = catch_unwind(AssertUnwindSafe(f)) {
        return result;
    }
    if CHANGING.load(Ordering::Relaxed) {
        log(
            c"warning",
            &format!(
                "a fault in {what:?} left a change half made; ending, so that it is neither saved nor replicated"
            ),
        );
        std::process::abort();
    }
    otherwise()
}

/// Saving must not go on after a fault: what was written so far is no queue. In a forked child this
/// ends the child, and the save fails.
fn guarded_save(what: &'static CStr, f: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(f)).is_err() {
        log(c"warning", &format!("a fault in {what:?} left a queue half saved; ending"));
        std::process::abort();
    }
}

/// Writes to the server's log. Works on every thread.
pub fn log(level: &CStr, text: &str) {
    // Never as the format itself, and without NUL: the text may hold bytes of clients.
    let clean: Vec<u8> = text.bytes().map(|byte| if byte < b' ' { b' ' } else { byte }).collect();
    let clean = CString::new(clean).unwrap_or_default();
    rm!(RedisModule_Log(LASTING.load(Ordering::Relaxed), level.as_ptr(), c"%s".as_ptr(), clean.as_ptr()));
}

fn log_panics() {
    std::panic::set_hook(Box::new(|info| log(c"warning", &format!("fault: {info}"))));
}

// ---------------------------------------------------------------------------------------------
// Memory

/// All of the module's memory comes from the server, so that it counts it and can refuse writes at
/// `maxmemory`.
#[cfg(not(test))]
mod memory {
    use super::{api, ptr};
    use std::alloc::{GlobalAlloc, Layout};

    /// What the server's allocator surely aligns to. Not 16: Redis builds jemalloc with size classes
    /// of 8 bytes (blocks of 24 or 40 bytes are aligned to 8), and without one it puts a word of its
    /// own before each block. Hash tables need 16.
    const ALIGNED_TO: usize = align_of::<usize>();

    struct ServerMemory;

    #[global_allocator]
    static MEMORY: ServerMemory = ServerMemory;

    // SAFETY: the server's functions behave as malloc and friends. Before the table of functions is
    // filled nothing may allocate; `RedisModule_OnLoad` fills it first.
    unsafe impl GlobalAlloc for ServerMemory {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            if layout.align() > ALIGNED_TO {
                // SAFETY: as `alloc`'s.
                return unsafe { over_aligned(layout) };
            }
            rm!(RedisModule_Alloc(layout.size()) or ptr::null_mut()).cast()
        }

        unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
            if layout.align() > ALIGNED_TO {
                // SAFETY: as `alloc`'s; what was got has `size` bytes.
                unsafe {
                    let memory = over_aligned(layout);
                    if !memory.is_null() {
                        memory.write_bytes(0, layout.size());
                    }
                    return memory;
                }
            }
            rm!(RedisModule_Calloc(1, layout.size()) or ptr::null_mut()).cast()
        }

        unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
            let start = if layout.align() > ALIGNED_TO {
                // SAFETY: `over_aligned` stored it there.
                unsafe { memory.cast::<*mut u8>().sub(1).read_unaligned() }
            } else {
                memory
            };
            rm!(RedisModule_Free(start.cast()));
        }

        unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
            if layout.align() > ALIGNED_TO {
                // SAFETY: the caller promises that `size`, rounded up, does not overflow.
                unsafe {
                    let fresh = over_aligned(Layout::from_size_align_unchecked(size, layout.align()));
                    if !fresh.is_null() {
                        fresh.copy_from_nonoverlapping(memory, layout.size().min(size));
                        self.dealloc(memory, layout);
                    }
                    return fresh;
                }
            }
            rm!(RedisModule_Realloc(memory.cast(), size) or ptr::null_mut()).cast()
        }
    }

    /// Gets more, aligns inside, and keeps the true start just before what is handed out.
    unsafe fn over_aligned(layout: Layout) -> *mut u8 {
        let room = layout.align().wrapping_add(size_of::<usize>());
        let start: *mut u8 =
            rm!(RedisModule_Alloc(layout.size().wrapping_add(room)) or ptr::null_mut()).cast();
        if start.is_null() {
            return start;
        }
        // SAFETY: at most `room` bytes are skipped, at least a pointer's size.
        unsafe {
            let first = start.add(size_of::<usize>());
            let aligned = first.add(first.align_offset(layout.align()));
            aligned.cast::<*mut u8>().sub(1).write_unaligned(start);
            aligned
        }
    }
}

// ---------------------------------------------------------------------------------------------
// Strings

/// A string of the server, alive for `'a`.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Str<'a>(*mut api::RedisModuleString, PhantomData<&'a [u8]>);

impl<'a> Str<'a> {
    /// Its bytes.
    #[must_use]
    #[inline]
    pub fn bytes(self) -> &'a [u8] {
        // SAFETY: alive for `'a`, and the server does not change strings that a module sees.
        unsafe { string_bytes(self.0) }
    }
}

/// # Safety
/// `string` is null or a string that stays alive and unchanged for `'a`.
#[inline]
unsafe fn string_bytes<'a>(string: *const api::RedisModuleString) -> &'a [u8] {
    if string.is_null() {
        return &[];
    }
    let mut len = 0;
    let start = rm!(RedisModule_StringPtrLen(string, &raw mut len) or ptr::null());
    // SAFETY: the caller's promise.
    unsafe { bytes(start, len) }
}

/// # Safety
/// `start` is null or points to `len` bytes that stay alive and unchanged for `'a`.
#[inline]
unsafe fn bytes<'a>(start: *const c_char, len: usize) -> &'a [u8] {
    if start.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(start.cast(), len) }
}

/// A string of the server that is ours.
pub struct OwnStr(*mut api::RedisModuleString);

impl OwnStr {
    /// Copies bytes into a string of the server.
    #[must_use]
    pub fn new(_: Main, bytes: &[u8]) -> Self {
        let start = bytes.as_ptr().cast();
        Self(rm!(RedisModule_CreateString(ptr::null_mut(), start, bytes.len()) or ptr::null_mut()))
    }

    /// For use.
    #[must_use]
    pub const fn get(&self) -> Str<'_> {
        Str(self.0, PhantomData)
    }

    /// For the server, which frees it.
    const fn give(self) -> *mut api::RedisModuleString {
        let raw = self.0;
        std::mem::forget(self);
        raw
    }
}

impl Drop for OwnStr {
    fn drop(&mut self) {
        if !self.0.is_null() {
            rm!(RedisModule_FreeString(ptr::null_mut(), self.0));
        }
    }
}

// ---------------------------------------------------------------------------------------------
// Contexts

/// A context of the server: who calls, in which database.
#[derive(Clone, Copy)]
pub struct Ctx<'c> {
    raw: *mut api::RedisModuleCtx,
    life: PhantomData<&'c ()>,
}

/// What a context is, in which the server calls.
#[derive(Clone, Copy, Debug)]
pub struct Flags(u32);

impl Flags {
    const fn any(self, flags: u32) -> bool {
        self.0 & flags != 0
    }

    /// The call comes from the primary (or from a slot that moves here), or the AOF is loaded.
    #[must_use]
    pub const fn is_obeying(self) -> bool {
        self.any(api::REDISMODULE_CTX_FLAGS_REPLICATED | api::REDISMODULE_CTX_FLAGS_LOADING)
    }

    /// The AOF, or an RDB file, is loaded.
    #[must_use]
    pub const fn is_loading(self) -> bool {
        self.any(api::REDISMODULE_CTX_FLAGS_LOADING)
    }

    /// The call is part of a larger unit, or its caller cannot wait.
    #[must_use]
    pub const fn is_inside_unit(self) -> bool {
        self.any(
            api::REDISMODULE_CTX_FLAGS_MULTI
                | api::REDISMODULE_CTX_FLAGS_LUA
                | api::REDISMODULE_CTX_FLAGS_DENY_BLOCKING,
        )
    }

    /// This server is a primary.
    #[must_use]
    pub const fn is_primary(self) -> bool {
        self.any(api::REDISMODULE_CTX_FLAGS_MASTER)
    }

    /// This server is part of a cluster.
    #[must_use]
    pub const fn is_cluster(self) -> bool {
        self.any(api::REDISMODULE_CTX_FLAGS_CLUSTER)
    }

    /// The AOF is written.
    #[must_use]
    pub const fn has_aof(self) -> bool {
        self.any(api::REDISMODULE_CTX_FLAGS_AOF)
    }

    /// The `maxmemory-policy` may drop keys.
    #[must_use]
    pub const fn may_evict(self) -> bool {
        self.any(api::REDISMODULE_CTX_FLAGS_EVICT)
    }
}

/// The client by which the AOF is loaded has this id.
const AOF_CLIENT: u64 = u64::MAX;

impl<'c> Ctx<'c> {
    /// # Safety
    /// A context that the server gave, for at least `'c`, on its main thread.
    const unsafe fn new(raw: *mut api::RedisModuleCtx) -> Self {
        Self { raw, life: PhantomData }
    }

    /// Contexts exist on the main thread only (but for those of [`Blocked::reply`], which are not
    /// handed out).
    #[must_use]
    #[inline]
    pub const fn main(self) -> Main {
        Main(PhantomData)
    }

    /// What this context is.
    #[must_use]
    pub fn flags(self) -> Flags {
        let flags = rm!(RedisModule_GetContextFlags(self.raw));
        #[allow(clippy::cast_sign_loss)] // bits
        Flags(flags as u32)
    }

    /// Whether the AOF is loaded by this client.
    #[must_use]
    pub fn is_aof(self) -> bool {
        rm!(RedisModule_GetClientId(self.raw)) == AOF_CLIENT
    }

    /// The selected database.
    #[must_use]
    pub fn db(self) -> i32 {
        rm!(RedisModule_GetSelectedDb(self.raw))
    }

    /// Selects a database for what this context does.
    pub fn select(self, db: i32) {
        rm!(RedisModule_SelectDb(self.raw, db));
    }

    /// Whether writes outside of commands must wait: a failover, or clients are paused.
    #[must_use]
    pub fn must_not_write(self) -> bool {
        rm!(RedisModule_AvoidReplicaTraffic()) != 0
    }

    /// Sends messages for a queue to replicas and the AOF, as one `RQ.APPLY`.
    pub fn replicate_apply(self, name: Str<'_>, first: &[u8], second: Option<&[u8]>) {
        let command = c"RQ.APPLY".as_ptr();
        let one = first.as_ptr().cast::<c_char>();
        let result = match second {
            None => rm!(RedisModule_Replicate(self.raw, command, c"sb".as_ptr(), name.0, one, first.len())),
            Some(second) => {
                let two = second.as_ptr().cast::<c_char>();
                rm!(RedisModule_Replicate(
                    self.raw,
                    command,
                    c"sbb".as_ptr(),
                    name.0,
                    one,
                    first.len(),
                    two,
                    second.len()
                ))
            }
        };
        if result != OK {
            log(c"warning", "a change could not be propagated");
        }
    }

    /// Sends the command itself to replicas and the AOF.
    #[inline]
    pub fn replicate_verbatim(self) {
        rm!(RedisModule_ReplicateVerbatim(self.raw));
    }

    /// A key changed: clients that watch or track it are told.
    #[inline]
    pub fn signal_modified(self, name: Str<'_>) {
        rm!(RedisModule_SignalModifiedKey(self.raw, name.0));
    }

    /// Whether the server is configured to tell clients of the key events of modules.
    #[inline]
    #[must_use]
    pub fn tells_events(self) -> bool {
        let told = rm!(RedisModule_GetNotifyKeyspaceEvents());
        u32::try_from(told).is_ok_and(|told| told & api::REDISMODULE_NOTIFY_MODULE as u32 != 0)
    }

    /// Raises a key event. Other modules may act on it at once, so nothing may be borrowed.
    pub fn notify(self, event: &CStr, name: Str<'_>) {
        rm!(RedisModule_NotifyKeyspaceEvent(
            self.raw,
            api::REDISMODULE_NOTIFY_MODULE,
            event.as_ptr(),
            name.0
        ));
    }

    /// Replies with an error.
    pub fn refuse(self, refusal: &Refusal) {
        let text = CString::new(refusal.to_string()).unwrap_or_default();
        rm!(RedisModule_ReplyWithError(self.raw, text.as_ptr()));
    }

    /// Where replies go.
    #[must_use]
    pub const fn out(self) -> CtxOut<'c> {
        CtxOut(self)
    }

    /// Whether this server may change the key by itself. Not while a slot moves: since Redis 8.4 its
    /// keys are on both sides for a while.
    #[must_use]
    pub fn may_settle(self, name: Str<'_>) -> bool {
        let slot = rm!(RedisModule_ClusterKeySlot(name.0) or 0);
        rm!(RedisModule_ClusterCanAccessKeysInSlot(c_int::try_from(slot).unwrap_or(0)) or 1) != 0
    }

    /// Whether a cluster sends requests for this key elsewhere, for good or for the moment.
    #[must_use]
    pub fn is_elsewhere(self, name: &[u8]) -> bool {
        let start = name.as_ptr().cast::<c_char>();
        let reply = rm!(RedisModule_Call(
            self.raw,
            c"EXISTS".as_ptr(),
            c"b".as_ptr(),
            start,
            name.len()
        ) or ptr::null_mut());
        if reply.is_null() {
            // The other codes mean that the cluster is down; then its clients go on waiting.
            return std::io::Error::last_os_error().raw_os_error() == Some(libc::EPERM);
        }
        rm!(RedisModule_FreeCallReply(reply));
        false
    }

    /// What the server is set to, if it has such a setting and its value is text.
    #[must_use]
    pub fn setting(self, name: &CStr) -> Option<String> {
        let reply = rm!(RedisModule_Call(
            self.raw,
            c"CONFIG".as_ptr(),
            c"cc".as_ptr(),
            c"GET".as_ptr(),
            name.as_ptr()
        ) or ptr::null_mut());
        if reply.is_null() {
            return None;
        }
        // The name, and the value.
        let value = rm!(RedisModule_CallReplyArrayElement(reply, 1) or ptr::null_mut());
        let mut length = 0;
        let start = if value.is_null() {
            ptr::null()
        } else {
            rm!(RedisModule_CallReplyStringPtr(value, &raw mut length) or ptr::null())
        };
        let text = (!start.is_null()).then(|| {
            // SAFETY: the server gave the start and the length of a string that lives as long as the reply.
            let bytes = unsafe { std::slice::from_raw_parts(start.cast::<u8>(), length) };
            String::from_utf8_lossy(bytes).into_owned()
        });
        rm!(RedisModule_FreeCallReply(reply));
        text
    }

    /// Has the AOF written anew, in the background.
    pub fn rewrite_aof(self) {
        let reply = rm!(RedisModule_Call(
            self.raw,
            c"BGREWRITEAOF".as_ptr(),
            c"".as_ptr()
        ) or ptr::null_mut());
        if !reply.is_null() {
            rm!(RedisModule_FreeCallReply(reply));
        }
    }

    /// Closes the connection of a client, if it is still there.
    pub fn close(self, client: ClientId) {
        let reply = rm!(RedisModule_Call(
            self.raw,
            c"CLIENT".as_ptr(),
            c"ccl".as_ptr(),
            c"KILL".as_ptr(),
            c"ID".as_ptr(),
            client.0
        ) or ptr::null_mut());
        if !reply.is_null() {
            rm!(RedisModule_FreeCallReply(reply));
        }
    }
}

const OK: c_int = 0;
const ERR: c_int = 1;

/// A reply, written straight into the client's buffer.
pub struct CtxOut<'c>(Ctx<'c>);

/// Longest word that is written as a simple string.
const WORD_BYTES_MAX: usize = 63;

impl Out for CtxOut<'_> {
    fn null(&mut self) {
        rm!(RedisModule_ReplyWithNull(self.0.raw));
    }

    fn integer(&mut self, value: i64) {
        rm!(RedisModule_ReplyWithLongLong(self.0.raw, value));
    }

    fn bulk(&mut self, value: &[u8]) {
        rm!(RedisModule_ReplyWithStringBuffer(self.0.raw, value.as_ptr().cast(), value.len()));
    }

    fn word(&mut self, value: &str) {
        // The server wants a NUL behind it.
        let mut buffer = [0; WORD_BYTES_MAX.saturating_add(1)];
        match buffer.get_mut(..value.len()) {
            Some(place) if value.len() <= WORD_BYTES_MAX => place.copy_from_slice(value.as_bytes()),
            _ => return self.bulk(value.as_bytes()),
        }
        rm!(RedisModule_ReplyWithSimpleString(self.0.raw, buffer.as_ptr().cast()));
    }

    fn array(&mut self, len: usize) {
        rm!(RedisModule_ReplyWithArray(self.0.raw, i64::try_from(len).unwrap_or(i64::MAX)));
    }

    fn map(&mut self, pairs: usize) {
        rm!(RedisModule_ReplyWithMap(self.0.raw, i64::try_from(pairs).unwrap_or(i64::MAX)));
    }
}

// ---------------------------------------------------------------------------------------------
// Keys

static TYPE: AtomicPtr<api::RedisModuleType> = AtomicPtr::new(ptr::null_mut());

/// An open key.
pub struct Key<'c> {
    raw: *mut api::RedisModuleKey,
    life: PhantomData<&'c ()>,
}

/// What a key holds.
pub enum Held<'k> {
    /// Nothing.
    Nothing,
    /// A queue.
    Queue(&'k mut Value),
    /// Something else.
    Other,
}

impl<'c> Key<'c> {
    /// Opens a key. An expired one is deleted by that (on a primary), so nothing may be borrowed.
    #[must_use]
    #[inline]
    pub fn open(ctx: Ctx<'c>, name: Str<'_>, access: Access) -> Self {
        let mode = match access {
            Access::Read => api::REDISMODULE_READ,
            Access::Peek => api::REDISMODULE_READ | api::REDISMODULE_OPEN_KEY_NOTOUCH,
            Access::Write => api::REDISMODULE_READ | api::REDISMODULE_WRITE,
            Access::Settle => {
                api::REDISMODULE_READ | api::REDISMODULE_WRITE | api::REDISMODULE_OPEN_KEY_NOTOUCH
            }
        };
        #[allow(clippy::cast_possible_wrap)] // bits
        let raw = rm!(RedisModule_OpenKey(ctx.raw, name.0, mode as c_int) or ptr::null_mut());
        Self { raw, life: PhantomData }
    }

    /// What it holds.
    #[inline]
    pub fn held(&mut self) -> Held<'_> {
        // Null: opened for reading, and not there.
        if self.raw.is_null() {
            return Held::Nothing;
        }
        let found = rm!(RedisModule_ModuleTypeGetType(self.raw) or ptr::null_mut());
        if found.is_null() || found != TYPE.load(Ordering::Relaxed) {
            let kind = rm!(RedisModule_KeyType(self.raw));
            return if kind as isize == api::REDISMODULE_KEYTYPE_EMPTY { Held::Nothing } else { Held::Other };
        }
        let value = rm!(RedisModule_ModuleTypeGetValue(self.raw) or ptr::null_mut()).cast::<Value>();
        // SAFETY: values of our type are boxes of `Value` (see `put` and `on_rdb_load`). The key
        // keeps it alive, commands run one at a time, and `self` is borrowed as long as the value.
        match unsafe { value.as_mut() } {
            Some(value) => Held::Queue(value),
            None => Held::Other,
        }
    }

    /// Stores a queue in place of what was there. Opened for writing.
    pub fn put(&mut self, value: Box<Value>) {
        let raw = Box::into_raw(value);
        if rm!(RedisModule_ModuleTypeSetValue(self.raw, TYPE.load(Ordering::Relaxed), raw.cast()) or ERR)
            != OK
        {
            // Not opened for writing: a fault of ours. Better a lost box than a crash here.
            log(c"warning", "a queue could not be stored");
        }
    }
}

impl Drop for Key<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.raw.is_null() {
            rm!(RedisModule_CloseKey(self.raw));
        }
    }
}

/// For what a key is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To look.
    Read,
    /// To look by ourselves; counts as no access.
    Peek,
    /// To look and change.
    Write,
    /// To settle what is due; counts as no access.
    Settle,
}

// ---------------------------------------------------------------------------------------------
// Waiting clients

/// A client that waits. The handle is valid as long as this exists.
#[derive(Debug)]
pub struct Blocked {
    raw: *mut api::RedisModuleBlockedClient,
    client: ClientId,
}

/// The server's number for a connection, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientId(u64);

/// What is known of a wait that was answered, until the answer is written.
struct Answered {
    client: ClientId,
    /// To be taken back if the answer could not be written.
    grant: Option<waiters::Grant>,
}

/// Tells waiting clients apart while they wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockedId(usize);

impl Blocked {
    /// Makes the client of a call wait. `None` if the server does not let it; then the reply may
    /// have been given.
    #[must_use]
    pub fn new(ctx: Ctx<'_>) -> Option<Self> {
        // No timeout: the waits end by our own clock. The callback is for CLIENT UNBLOCK.
        let raw = rm!(RedisModule_BlockClient(
            ctx.raw,
            None,
            Some(on_unblock_timeout),
            Some(on_served),
            0
        ) or ptr::null_mut());
        if raw.is_null() {
            return None;
        }
        rm!(RedisModule_SetDisconnectCallback(raw, Some(on_disconnect)));
        Some(Self { raw, client: ClientId(rm!(RedisModule_GetClientId(ctx.raw))) })
    }

    /// Its identity.
    #[must_use]
    pub fn id(&self) -> BlockedId {
        BlockedId(self.raw.addr())
    }

    /// Writes the reply that the client will get once it is unblocked.
    pub fn reply(&self, _: Main, f: impl FnOnce(&mut dyn Out)) {
        let raw = rm!(RedisModule_GetThreadSafeContext(self.raw) or ptr::null_mut());
        // SAFETY: made for this handle, freed below; used for replies only.
        let ctx = unsafe { Ctx::new(raw) };
        f(&mut ctx.out());
        rm!(RedisModule_FreeThreadSafeContext(raw));
    }

    /// Writes an error as that reply.
    pub fn refuse(&self, _: Main, refusal: &Refusal) {
        let raw = rm!(RedisModule_GetThreadSafeContext(self.raw) or ptr::null_mut());
        // SAFETY: as in `reply`.
        unsafe { Ctx::new(raw) }.refuse(refusal);
        rm!(RedisModule_FreeThreadSafeContext(raw));
    }

    /// Ends the wait of a client that was given its answer by [`Self::reply`]. `grant`: what is to be taken back
    /// if the client is gone before the answer could be written.
    pub fn unblock(self, _: Main, grant: Option<waiters::Grant>) {
        let answered = Box::new(Answered { client: self.client, grant });
        rm!(RedisModule_UnblockClient(self.raw, Box::into_raw(answered).cast()));
    }

    /// Ends the wait of a client that the server itself answers, or that is gone.
    pub fn let_go(self, _: Main) {
        rm!(RedisModule_UnblockClient(self.raw, ptr::null_mut()));
    }
}

/// `CLIENT UNBLOCK id TIMEOUT`.
unsafe extern "C" fn on_unblock_timeout(
    ctx: *mut api::RedisModuleCtx,
    _argv: *mut *mut api::RedisModuleString,
    _argc: c_int,
) -> c_int {
    // SAFETY: called by the server on its main thread.
    let ctx = unsafe { Ctx::new(ctx) };
    guarded(
        c"a timeout",
        || (),
        || {
            let handle = rm!(RedisModule_GetBlockedClientHandle(ctx.raw) or ptr::null_mut());
            waiters::ended(ctx.main(), BlockedId(handle.addr()), Some(&mut ctx.out()));
        },
    );
    OK
}

/// The client is gone, or `CLIENT UNBLOCK id ERROR`, or this server became a replica.
unsafe extern "C" fn on_disconnect(
    ctx: *mut api::RedisModuleCtx,
    handle: *mut api::RedisModuleBlockedClient,
) {
    // SAFETY: called by the server on its main thread.
    let main = unsafe { Ctx::new(ctx) }.main();
    guarded(c"a disconnect", || (), || waiters::ended(main, BlockedId(handle.addr()), None));
}

/// An answered client got its reply, or is gone.
unsafe extern "C" fn on_served(ctx: *mut api::RedisModuleCtx, privdata: *mut c_void) {
    // SAFETY: made by `Blocked::unblock`, and given back once.
    let answered = unsafe { Box::from_raw(privdata.cast::<Answered>()) };
    // SAFETY: called by the server on its main thread.
    let main = unsafe { Ctx::new(ctx) }.main();
    let is_gone = rm!(RedisModule_BlockedClientDisconnected(ctx)) != 0;
    guarded(
        c"the end of a wait",
        || (),
        || {
            if is_gone && FORGETS_ANSWERS.get(main) {
                waiters::unanswered(main, answered.client);
            }
            match answered.grant {
                Some(grant) if is_gone => waiters::vanished(main, grant),
                Some(_) => waiters::arrived(main),
                None => {}
            }
        },
    );
}

/// Whether this server may forget to answer: before Redis 7.4, when a client is unblocked by `CLIENT UNBLOCK` after the
/// module has answered it and before the server has written that, the answer is dropped, and `TIMEOUT` gives no other.
static FORGETS_ANSWERS: MainCell<bool> = MainCell::new(false);
const REDIS_7_4: c_int = 0x0007_0400;

// ---------------------------------------------------------------------------------------------
// Timers

/// A context that lives as long as the module, for timers that are set where there is no other.
static LASTING: AtomicPtr<api::RedisModuleCtx> = AtomicPtr::new(ptr::null_mut());

/// A timer that was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerId(u64);

/// Sets a timer, in ms from now. Its callback is `timer::tick`, which is told `number`.
pub fn set_timer(_: Main, ms: u64, number: usize) -> TimerId {
    let ctx = LASTING.load(Ordering::Relaxed);
    // Never at once: what is due already is run in the same pass of the server's loop, however often.
    let period = i64::try_from(ms.max(1)).unwrap_or(i64::MAX / 2_000_000);
    TimerId(rm!(RedisModule_CreateTimer(ctx, period, Some(on_timer), ptr::without_provenance_mut(number))))
}

/// Takes a timer back. Never one whose callback runs.
pub fn stop_timer(_: Main, id: TimerId) {
    let ctx = LASTING.load(Ordering::Relaxed);
    rm!(RedisModule_StopTimer(ctx, id.0, ptr::null_mut()));
}

unsafe extern "C" fn on_timer(ctx: *mut api::RedisModuleCtx, data: *mut c_void) {
    // SAFETY: called by the server on its main thread.
    let ctx = unsafe { Ctx::new(ctx) };
    guarded(c"the timer", || (), || timer::tick(ctx, data.addr()));
}

// ---------------------------------------------------------------------------------------------
// Commands

/// What the server calls for a command.
pub type CommandFn =
    unsafe extern "C" fn(*mut api::RedisModuleCtx, *mut *mut api::RedisModuleString, c_int) -> c_int;

/// A handler with its key event, as the server calls it. Made by [`entry!`](crate::entry).
#[derive(Clone, Copy)]
pub struct Entry {
    #[doc(hidden)]
    pub function: CommandFn,
    /// Whether the server may also ask it where the keys of a call stand.
    #[doc(hidden)]
    pub tells_keys: bool,
}

/// Makes an [`Entry`] of a handler and the name of the key event raised when it changed something.
#[macro_export]
macro_rules! entry {
    ($run:path, $event:expr) => {{
        unsafe extern "C" fn entry(
            ctx: *mut redis_module::raw::RedisModuleCtx,
            argv: *mut *mut redis_module::raw::RedisModuleString,
            argc: std::ffi::c_int,
        ) -> std::ffi::c_int {
            let (event, run) = ($event, $run);
            // SAFETY: called by the server with what it calls commands with.
            unsafe { $crate::server::ffi::run_command(ctx, argv, argc, event, run) }
        }
        $crate::server::ffi::Entry { function: entry, tells_keys: false }
    }};
    // For commands whose first argument says how many keys follow.
    ($run:path, $event:expr, counted) => {{
        unsafe extern "C" fn entry(
            ctx: *mut redis_module::raw::RedisModuleCtx,
            argv: *mut *mut redis_module::raw::RedisModuleString,
            argc: std::ffi::c_int,
        ) -> std::ffi::c_int {
            let (event, run) = ($event, $run);
            // SAFETY: called by the server with what it calls commands with.
            unsafe {
                if $crate::server::ffi::tell_keys(ctx, argv, argc) {
                    return 0;
                }
                $crate::server::ffi::run_command(ctx, argv, argc, event, run)
            }
        }
        $crate::server::ffi::Entry { function: entry, tells_keys: true }
    }};
}
pub use entry;

/// If the server only asks where the keys of a call stand (it does not look at key specs for that),
/// tells it.
///
/// # Safety
/// Called by the server, as a command, on its main thread.
#[doc(hidden)]
pub unsafe fn tell_keys(
    ctx: *mut api::RedisModuleCtx,
    argv: *mut *mut api::RedisModuleString,
    argc: c_int,
) -> bool {
    if rm!(RedisModule_IsKeysPositionRequest(ctx)) == 0 {
        return false;
    }
    let count = usize::try_from(argc).unwrap_or(0);
    // SAFETY: the server keeps the arguments as long as the command runs.
    let args: &[Str<'_>] = unsafe { std::slice::from_raw_parts(argv.cast(), count) };
    let keys = args.get(1).and_then(|text| std::str::from_utf8(text.bytes()).ok()?.parse::<usize>().ok());
    // Behind the keys there is more. If not, the call is malformed, and refused when it runs.
    let keys = keys.filter(|&keys| keys <= count.saturating_sub(3));
    for at in (2..count).take(keys.unwrap_or(0)) {
        rm!(RedisModule_KeyAtPos(ctx, c_int::try_from(at).unwrap_or(c_int::MAX)));
    }
    true
}

/// Runs a command.
///
/// # Safety
/// Called by the server, as a command, on its main thread.
#[doc(hidden)]
#[inline]
pub unsafe fn run_command(
    ctx: *mut api::RedisModuleCtx,
    argv: *mut *mut api::RedisModuleString,
    argc: c_int,
    event: &'static CStr,
    run: impl FnOnce(&mut Call<'_>) -> Result<(), Refusal>,
) -> c_int {
    // SAFETY: the server keeps context and arguments as long as the command runs.
    let ctx = unsafe { Ctx::new(ctx) };
    let count = usize::try_from(argc).unwrap_or(0);
    // SAFETY: as above; `Str` is a transparent pointer to a string.
    let args: &[Str<'_>] = unsafe { std::slice::from_raw_parts(argv.cast(), count) };
    let result = guarded(c"a command", || Err(Refusal::Internal), || run(&mut Call::new(ctx, args, event)));
    match result {
        Ok(()) => {}
        Err(Refusal::Arity) => ctx.refuse(&wrong_arity(ctx, args)),
        Err(refusal) => ctx.refuse(&refusal),
    }
    OK
}

/// In the words in which the server itself refuses a number of arguments, and how it is done right.
#[cold]
fn wrong_arity(ctx: Ctx<'_>, args: &[Str<'_>]) -> Refusal {
    let name = args.first().map_or(&[][..], |name| name.bytes());
    let usage = RENDERERS.get(ctx.main()).and_then(|renderers| (renderers.usage)(name));
    let name = String::from_utf8_lossy(name).to_lowercase();
    let mut text = format!("wrong number of arguments for '{name}' command");
    if let Some(usage) = usage {
        text.push_str("; it is ");
        text.push_str(&usage);
    }
    Refusal::Syntax(text)
}

// ---------------------------------------------------------------------------------------------
// The data type

/// Where a saved queue is read from or written to.
pub struct Io(*mut api::RedisModuleIO);

impl Io {
    /// Writes some bytes.
    pub fn write(&mut self, bytes: &[u8]) {
        rm!(RedisModule_SaveStringBuffer(self.0, bytes.as_ptr().cast(), bytes.len()));
    }

    /// Reads what one [`Self::write`] wrote, and gives it to `f`. `None`: nothing more can be read.
    pub fn read<R>(&mut self, f: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let mut len = 0;
        let start = rm!(RedisModule_LoadStringBuffer(self.0, &raw mut len) or ptr::null_mut());
        if start.is_null() || rm!(RedisModule_IsIOError(self.0)) != 0 {
            rm!(RedisModule_Free(start.cast()));
            return None;
        }
        // SAFETY: the server says that `len` bytes are there; they are ours until freed below.
        let result = f(unsafe { bytes(start, len) });
        rm!(RedisModule_Free(start.cast()));
        Some(result)
    }

    /// Under which name the queue is loaded, if that is known.
    fn name(&self) -> Option<(i32, &[u8])> {
        let name = rm!(RedisModule_GetKeyNameFromIO(self.0) or ptr::null());
        let db = rm!(RedisModule_GetDbIdFromIO(self.0) or -1);
        if name.is_null() || db < 0 {
            return None;
        }
        // SAFETY: alive as long as the load runs. Not retained: it may lie on the server's stack.
        Some((db, unsafe { string_bytes(name) }))
    }
}

unsafe extern "C" fn on_rdb_load(io: *mut api::RedisModuleIO, version: c_int) -> *mut c_void {
    guarded(c"the load of a queue", ptr::null_mut, || {
        // SAFETY: called by the server on its main thread.
        let main = unsafe { Main::here() };
        let mut io = Io(io);
        let Some(value) = key_type::load(main, &mut io, version) else { return ptr::null_mut() };
        if let Some((db, name)) = io.name() {
            events::loaded(main, db, name);
        }
        Box::into_raw(Box::new(value)).cast()
    })
}

unsafe extern "C" fn on_rdb_save(io: *mut api::RedisModuleIO, value: *mut c_void) {
    // SAFETY: a value of our type; nothing changes it meanwhile.
    let value = unsafe { &*value.cast::<Value>() };
    guarded_save(c"a save", || key_type::save(value, &mut Io(io)));
}

unsafe extern "C" fn on_aof_rewrite(
    aof: *mut api::RedisModuleIO,
    name: *mut api::RedisModuleString,
    value: *mut c_void,
) {
    // SAFETY: a value of our type; nothing changes it meanwhile.
    let value = unsafe { &*value.cast::<Value>() };
    guarded_save(c"an AOF rewrite", || {
        key_type::rewrite(value, &mut |message| {
            let start = message.as_ptr().cast::<c_char>();
            let command = c"RQ.APPLY".as_ptr();
            rm!(RedisModule_EmitAOF(aof, command, c"sb".as_ptr(), name, start, message.len()));
        });
    });
}

unsafe extern "C" fn on_memory(
    _: *mut api::RedisModuleKeyOptCtx,
    value: *const c_void,
    _samples: usize,
) -> usize {
    // SAFETY: a value of our type.
    let value = unsafe { &*value.cast::<Value>() };
    guarded(c"a measurement", || 0, || value.memory())
}

unsafe extern "C" fn on_digest(digest: *mut api::RedisModuleDigest, value: *mut c_void) {
    // SAFETY: a value of our type.
    let value = unsafe { &*value.cast::<Value>() };
    guarded(
        c"a digest",
        || (),
        || {
            key_type::digest(value, &mut |chunk| {
                rm!(RedisModule_DigestAddStringBuffer(digest, chunk.as_ptr().cast(), chunk.len()));
            });
            rm!(RedisModule_DigestEndSequence(digest));
        },
    );
}

/// On any thread.
unsafe extern "C" fn on_free(value: *mut c_void) {
    // SAFETY: a value of our type, made by `Box::into_raw`, given back once. It is `Send`.
    let value = unsafe { Box::from_raw(value.cast::<Value>()) };
    guarded(c"a removal", || (), || drop(value));
}

unsafe extern "C" fn on_free_effort(_: *mut api::RedisModuleKeyOptCtx, value: *const c_void) -> usize {
    // SAFETY: a value of our type.
    let value = unsafe { &*value.cast::<Value>() };
    guarded(c"a measurement", || 1, || value.queue.free_effort())
}

unsafe extern "C" fn on_unlink(ctx: *mut api::RedisModuleKeyOptCtx, _value: *const c_void) {
    let name = rm!(RedisModule_GetKeyNameFromOptCtx(ctx) or ptr::null());
    let db = rm!(RedisModule_GetDbIdFromOptCtx(ctx) or -1);
    // SAFETY: alive as long as this callback runs.
    let name = unsafe { string_bytes(name) };
    // SAFETY: called by the server on its main thread.
    let main = unsafe { Main::here() };
    guarded(c"a removal", || (), || events::unlinked(main, db, name));
}

unsafe extern "C" fn on_copy(_: *mut api::RedisModuleKeyOptCtx, value: *const c_void) -> *mut c_void {
    // SAFETY: a value of our type.
    let value = unsafe { &*value.cast::<Value>() };
    guarded(c"a copy", ptr::null_mut, || Box::into_raw(Box::new(value.duplicate())).cast())
}

fn create_type(ctx: Ctx<'_>) -> Result<(), &'static str> {
    let mut methods = api::RedisModuleTypeMethods {
        version: api::REDISMODULE_TYPE_METHOD_VERSION.into(),
        rdb_load: Some(on_rdb_load),
        rdb_save: Some(on_rdb_save),
        aof_rewrite: Some(on_aof_rewrite),
        mem_usage: None,
        digest: Some(on_digest),
        free: Some(on_free),
        aux_load: None,
        aux_save: None,
        aux_save_triggers: 0,
        free_effort: None,
        unlink: None,
        copy: None,
        // Without it the server moves its own small wrapper, and leaves the queue where it is.
        defrag: None,
        mem_usage2: Some(on_memory),
        free_effort2: Some(on_free_effort),
        unlink2: Some(on_unlink),
        copy2: Some(on_copy),
        aux_save2: None,
    };
    let made = rm!(RedisModule_CreateDataType(
        ctx.raw,
        key_type::NAME.as_ptr(),
        key_type::VERSION,
        &raw mut methods
    ) or ptr::null_mut());
    if made.is_null() {
        return Err("the data type could not be made");
    }
    TYPE.store(made, Ordering::Relaxed);
    Ok(())
}

// ---------------------------------------------------------------------------------------------
// Events

unsafe extern "C" fn on_key_event(
    ctx: *mut api::RedisModuleCtx,
    _kind: c_int,
    event: *const c_char,
    name: *mut api::RedisModuleString,
) -> c_int {
    // SAFETY: called by the server on its main thread; event and name are alive meanwhile.
    let (ctx, event, name) = unsafe { (Ctx::new(ctx), CStr::from_ptr(event), string_bytes(name)) };
    // These are raised for the keys of everybody: leave early.
    if matches!(event.to_bytes(), b"rename_from" | b"move_from") {
        guarded(c"a key event", || (), || events::leaves(ctx.main(), ctx.db(), name));
    } else if matches!(event.to_bytes(), b"rename_to" | b"move_to" | b"copy_to" | b"restore") {
        guarded(
            c"a key event",
            || (),
            || {
                let main = ctx.main();
                // A string of our own: the server's may lie on its stack, and must not be opened then.
                let own = OwnStr::new(main, name);
                let is_queue = matches!(Key::open(ctx, own.get(), Access::Peek).held(), Held::Queue(_));
                if is_queue {
                    let has_moved = matches!(event.to_bytes(), b"rename_to" | b"move_to");
                    events::appeared(main, ctx.db(), name, has_moved);
                }
            },
        );
    }
    OK
}

unsafe extern "C" fn on_server_event(
    ctx: *mut api::RedisModuleCtx,
    event: api::RedisModuleEvent,
    subevent: u64,
    data: *mut c_void,
) {
    // SAFETY: called by the server on its main thread.
    let ctx = unsafe { Ctx::new(ctx) };
    let main = ctx.main();
    guarded(
        c"an event",
        || (),
        || match (event.id, subevent) {
            (api::REDISMODULE_EVENT_CRON_LOOP, _) => timer::cron(main),
            (
                api::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED,
                api::REDISMODULE_EVENT_REPLROLECHANGED_NOW_MASTER,
            ) => events::promoted(main),
            (api::REDISMODULE_EVENT_LOADING, sub) => {
                let is_over = sub == api::REDISMODULE_SUBEVENT_LOADING_ENDED
                    || sub == api::REDISMODULE_SUBEVENT_LOADING_FAILED;
                events::loading(main, !is_over);
                if sub == api::REDISMODULE_SUBEVENT_LOADING_AOF_START {
                    torn::loaded(main);
                }
            }
            (api::REDISMODULE_EVENT_FLUSHDB, api::REDISMODULE_SUBEVENT_FLUSHDB_END) => {
                // SAFETY: this event comes with this struct.
                let db = unsafe { data.cast::<api::RedisModuleFlushInfo>().as_ref() }
                    .map_or(-1, |info| info.dbnum);
                events::flushed(main, (db >= 0).then_some(db));
            }
            (api::REDISMODULE_EVENT_SWAPDB, _) => {
                // SAFETY: this event comes with this struct.
                if let Some(info) = unsafe { data.cast::<api::RedisModuleSwapDbInfo>().as_ref() } {
                    events::swapped(main, info.dbnum_first, info.dbnum_second);
                }
            }
            (api::REDISMODULE_EVENT_CONFIG, _) => warnings::look_at_server(ctx),
            _ => {}
        },
    );
}

fn subscribe(ctx: Ctx<'_>) -> Result<(), &'static str> {
    // Each event's data has its version, 1 for all of these (as in the header's constants).
    for (id, dataver) in [
        (api::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED, 1),
        (api::REDISMODULE_EVENT_LOADING, 1),
        (api::REDISMODULE_EVENT_FLUSHDB, 1),
        (api::REDISMODULE_EVENT_SWAPDB, 1),
        (api::REDISMODULE_EVENT_CRON_LOOP, 1),
        (api::REDISMODULE_EVENT_CONFIG, 1),
    ] {
        let event = api::RedisModuleEvent { id, dataver };
        if rm!(RedisModule_SubscribeToServerEvent(ctx.raw, event, Some(on_server_event)) or ERR) != OK {
            return Err("the server's events could not be subscribed to");
        }
    }
    let kinds = api::REDISMODULE_NOTIFY_GENERIC;
    if rm!(RedisModule_SubscribeToKeyspaceEvents(ctx.raw, kinds, Some(on_key_event)) or ERR) != OK {
        return Err("key events could not be subscribed to");
    }
    Ok(())
}

// ---------------------------------------------------------------------------------------------
// Configuration

unsafe extern "C" fn on_get_number(_name: *const c_char, which: *mut c_void) -> c_longlong {
    // SAFETY: called by the server on its main thread.
    let main = unsafe { Main::here() };
    guarded(c"a config", || 0, || i64::try_from(config::number(main, which.addr())).unwrap_or(i64::MAX))
}

unsafe extern "C" fn on_set_number(
    _name: *const c_char,
    value: c_longlong,
    which: *mut c_void,
    _error: *mut *mut api::RedisModuleString,
) -> c_int {
    // SAFETY: called by the server on its main thread.
    let main = unsafe { Main::here() };
    guarded(
        c"a config",
        || ERR,
        || {
            config::set_number(main, which.addr(), u64::try_from(value).unwrap_or(0));
            OK
        },
    )
}

unsafe extern "C" fn on_get_text(_name: *const c_char, which: *mut c_void) -> *mut api::RedisModuleString {
    // SAFETY: called by the server on its main thread.
    let main = unsafe { Main::here() };
    // The server copies it; it stays ours until the next one is asked for.
    static LAST: MainThread<Option<OwnStr>> = MainThread::new();
    guarded(c"a config", ptr::null_mut, || {
        let text = OwnStr::new(main, config::text(main, which.addr()).as_bytes());
        LAST.with(main, |last| last.insert(text).0)
    })
}

unsafe extern "C" fn on_set_text(
    _name: *const c_char,
    value: *mut api::RedisModuleString,
    which: *mut c_void,
    error: *mut *mut api::RedisModuleString,
) -> c_int {
    // SAFETY: called by the server on its main thread, with a string that lives meanwhile.
    let (main, value) = unsafe { (Main::here(), string_bytes(value)) };
    guarded(
        c"a config",
        || ERR,
        || match config::set_text(main, which.addr(), value) {
            Ok(()) => OK,
            Err(text) => {
                // SAFETY: null, or a place for a string that the server frees.
                if let Some(place) = unsafe { error.as_mut() } {
                    *place = OwnStr::new(main, text.as_bytes()).give();
                }
                ERR
            }
        },
    )
}

fn configure(ctx: Ctx<'_>) -> Result<(), &'static str> {
    let failed = "the configuration could not be registered";
    for (which, number) in config::NUMBERS.iter().enumerate() {
        let flags =
            if number.is_memory { api::REDISMODULE_CONFIG_MEMORY } else { api::REDISMODULE_CONFIG_DEFAULT };
        let result = rm!(RedisModule_RegisterNumericConfig(
            ctx.raw,
            number.name.as_ptr(),
            number.default,
            flags as c_uint,
            number.min,
            number.max,
            Some(on_get_number),
            Some(on_set_number),
            None,
            ptr::without_provenance_mut(which)
        ) or ERR);
        if result != OK {
            return Err(failed);
        }
    }
    for (which, text) in config::TEXTS.iter().enumerate() {
        let result = rm!(RedisModule_RegisterStringConfig(
            ctx.raw,
            text.name.as_ptr(),
            text.default.as_ptr(),
            api::REDISMODULE_CONFIG_DEFAULT as c_uint,
            Some(on_get_text),
            Some(on_set_text),
            None,
            ptr::without_provenance_mut(which)
        ) or ERR);
        if result != OK {
            return Err(failed);
        }
    }
    if rm!(RedisModule_LoadConfigs(ctx.raw) or ERR) != OK {
        return Err("an rq.… line of the configuration is wrong");
    }
    Ok(())
}

// ---------------------------------------------------------------------------------------------
// INFO

/// Where a section of `INFO` is written to.
pub struct Info(*mut api::RedisModuleInfoCtx);

impl Info {
    /// Begins a section. `false`: not asked for.
    #[must_use]
    pub fn section(&mut self, name: &CStr) -> bool {
        rm!(RedisModule_InfoAddSection(self.0, name.as_ptr()) or ERR) == OK
    }

    /// Adds a field.
    pub fn field(&mut self, name: &CStr, value: u64) {
        rm!(RedisModule_InfoAddFieldULongLong(self.0, name.as_ptr(), value));
    }
}

unsafe extern "C" fn on_info(info: *mut api::RedisModuleInfoCtx, for_crash_report: c_int) {
    // In a crash nothing is certain, not even that this is the main thread.
    if for_crash_report != 0 {
        return;
    }
    // SAFETY: called by the server on its main thread.
    let main = unsafe { Main::here() };
    guarded(c"INFO", || (), || super::info::write(main, &mut Info(info)));
}

// ---------------------------------------------------------------------------------------------
// Registration of commands

/// A command for the server, with what it says about itself.
pub struct Command<'a> {
    /// As clients write it.
    pub name: &'a CStr,
    /// What runs it.
    pub entry: Entry,
    /// Flags, separated by blanks.
    pub flags: &'a CStr,
    /// Number of arguments with the name; negative: at least so many.
    pub arity: i32,
    /// Where its keys stand.
    pub keys: Keys,
    /// What it does with them.
    pub access: KeyUse,
    /// ACL categories, separated by blanks.
    pub categories: &'a CStr,
    /// One line.
    pub summary: &'a str,
    /// Big O, and in what.
    pub complexity: &'a str,
    /// The version that had it first.
    pub since: &'a str,
    /// Its arguments.
    pub args: Vec<Arg<'a>>,
}

/// What a command does with the keys that it names. Access control goes by it: who may only read a key
/// (`%R~`) can call what reads, who may only write it (`%W~`) what tells nothing of what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyUse {
    /// Tells what is in them.
    Reads,
    /// Adds to them; tells nothing but what the caller gave.
    Adds,
    /// Changes what is in them; tells states of jobs, not what clients put there.
    Changes,
    /// Removes from them, and tells how much.
    Removes,
    /// Changes them, and tells what is in them.
    Takes,
}

/// Where the keys of a command stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// It has none.
    None,
    /// The first argument.
    One,
    /// The first argument says how many follow.
    Counted,
}

/// An argument for `COMMAND DOCS`.
pub struct Arg<'a> {
    /// Its name.
    pub name: &'a str,
    /// What it is.
    pub kind: ArgKind,
    /// The word before it.
    pub token: Option<&'a str>,
    /// Whether it may be left out.
    pub is_optional: bool,
    /// Whether it may be repeated.
    pub is_multiple: bool,
    /// What is in it.
    pub parts: Vec<Arg<'a>>,
}

/// What an argument is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // as in `COMMAND DOCS`
pub enum ArgKind {
    Key,
    Text,
    Integer,
    Instant,
    Pattern,
    Token,
    OneOf,
    Block,
}

/// Owns what the server's structs point to, until it has copied them.
#[derive(Default)]
struct Arena {
    texts: Vec<CString>,
    lists: Vec<Box<[api::RedisModuleCommandArg]>>,
}

impl Arena {
    fn text(&mut self, text: &str) -> *const c_char {
        let text = CString::new(text).unwrap_or_default();
        let start = text.as_ptr();
        self.texts.push(text);
        start
    }

    fn args(&mut self, args: &[Arg<'_>]) -> *mut api::RedisModuleCommandArg {
        if args.is_empty() {
            return ptr::null_mut();
        }
        let mut list = Vec::with_capacity(args.len().saturating_add(1));
        for arg in args {
            let mut flags = api::REDISMODULE_CMD_ARG_NONE;
            if arg.is_optional {
                flags |= api::REDISMODULE_CMD_ARG_OPTIONAL;
            }
            if arg.is_multiple {
                flags |= api::REDISMODULE_CMD_ARG_MULTIPLE;
            }
            use api::*;
            let kind = match arg.kind {
                ArgKind::Key => RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY,
                ArgKind::Text => RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING,
                ArgKind::Integer => RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER,
                ArgKind::Instant => RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_UNIX_TIME,
                ArgKind::Pattern => RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PATTERN,
                ArgKind::Token => RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN,
                ArgKind::OneOf => RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF,
                ArgKind::Block => RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK,
            };
            #[allow(clippy::cast_possible_wrap)] // bits
            list.push(RedisModuleCommandArg {
                name: self.text(arg.name),
                type_: kind,
                key_spec_index: if arg.kind == ArgKind::Key { 0 } else { -1 },
                token: arg.token.map_or(ptr::null(), |token| self.text(token)),
                summary: ptr::null(),
                since: ptr::null(),
                flags: flags as c_int,
                deprecated_since: ptr::null(),
                subargs: self.args(&arg.parts),
                display_text: ptr::null(),
            });
        }
        // SAFETY: all fields are numbers and pointers; zeroes mark the end of the list.
        list.push(unsafe { std::mem::zeroed() });
        self.lists.push(list.into_boxed_slice());
        self.lists.last_mut().map_or(ptr::null_mut(), |list| list.as_mut_ptr())
    }
}

/// Registers a command. Only while the module is loaded.
///
/// # Errors
/// What went wrong.
pub fn register(ctx: Ctx<'_>, command: &Command<'_>) -> Result<(), String> {
    let name = command.name;
    if command.entry.tells_keys != (command.keys == Keys::Counted) {
        return Err(format!("the entry of {name:?} does not go with its keys"));
    }
    let (first, last, step) = if command.keys == Keys::One { (1, 1, 1) } else { (0, 0, 0) };
    let flags = [command.flags.to_bytes(), if command.keys == Keys::Counted { b" getkeys-api" } else { b"" }];
    let flags = CString::new(flags.concat()).unwrap_or_default();
    let created = rm!(RedisModule_CreateCommand(
        ctx.raw,
        name.as_ptr(),
        Some(command.entry.function),
        flags.as_ptr(),
        first,
        last,
        step
    ) or ERR);
    let handle = rm!(RedisModule_GetCommand(ctx.raw, name.as_ptr()) or ptr::null_mut());
    if created != OK || handle.is_null() {
        return Err(format!("the command {name:?} could not be registered"));
    }

    let mut arena = Arena::default();
    #[allow(clippy::cast_possible_wrap)] // sizes of small structs
    let version = api::RedisModuleCommandInfoVersion {
        version: 1,
        sizeof_historyentry: size_of::<api::RedisModuleCommandHistoryEntry>(),
        sizeof_keyspec: size_of::<api::RedisModuleCommandKeySpec>(),
        sizeof_arg: size_of::<api::RedisModuleCommandArg>(),
    };
    let access = match command.access {
        KeyUse::Reads => api::REDISMODULE_CMD_KEY_RO | api::REDISMODULE_CMD_KEY_ACCESS,
        KeyUse::Adds => api::REDISMODULE_CMD_KEY_RW | api::REDISMODULE_CMD_KEY_INSERT,
        KeyUse::Changes => api::REDISMODULE_CMD_KEY_RW | api::REDISMODULE_CMD_KEY_UPDATE,
        KeyUse::Removes => api::REDISMODULE_CMD_KEY_RW | api::REDISMODULE_CMD_KEY_DELETE,
        KeyUse::Takes => {
            api::REDISMODULE_CMD_KEY_RW | api::REDISMODULE_CMD_KEY_ACCESS | api::REDISMODULE_CMD_KEY_UPDATE
        }
    };
    // SAFETY: all fields are numbers, pointers, and unions of such; zeroes mark the end of the list.
    let mut specs: [api::RedisModuleCommandKeySpec; 2] = unsafe { std::mem::zeroed() };
    let [spec, _] = &mut specs;
    spec.flags = access.into();
    spec.begin_search_type = api::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX;
    spec.bs.index.pos = 1;
    if command.keys == Keys::Counted {
        spec.find_keys_type = api::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_KEYNUM;
        spec.fk.keynum.keynumidx = 0;
        spec.fk.keynum.firstkey = 1;
        spec.fk.keynum.keystep = 1;
    } else {
        spec.find_keys_type = api::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE;
        spec.fk.range.lastkey = 0;
        spec.fk.range.keystep = 1;
        spec.fk.range.limit = 0;
    }
    let info = api::RedisModuleCommandInfo {
        version: &raw const version,
        summary: arena.text(command.summary),
        complexity: arena.text(command.complexity),
        since: arena.text(command.since),
        history: ptr::null_mut(),
        tips: ptr::null(),
        arity: command.arity,
        key_specs: if command.keys == Keys::None { ptr::null_mut() } else { specs.as_mut_ptr() },
        args: arena.args(&command.args),
    };
    // The server copies all of it.
    if rm!(RedisModule_SetCommandInfo(handle, &raw const info) or ERR) != OK {
        return Err(format!("the server does not take what {name:?} says about itself"));
    }
    // Since Redis 7.2.
    rm!(RedisModule_SetCommandACLCategories(handle, command.categories.as_ptr()) or OK);
    Ok(())
}

// ---------------------------------------------------------------------------------------------
// Loading

/// Loads the module; to be called by `RedisModule_OnLoad` and by nothing else.
///
/// # Safety
/// `ctx` is what the server gave.
pub unsafe fn load(
    ctx: *mut api::RedisModuleCtx,
    argc: c_int,
    start: impl FnOnce(Ctx<'_>) -> Result<(), String>,
) -> c_int {
    // SAFETY: as the caller says. Fills the table of functions, first of all: memory comes from it.
    if unsafe { api::Export_RedisModule_Init(ctx, c"rq".as_ptr(), 1, 1) } != OK {
        return ERR;
    }
    log_panics();
    // SAFETY: as above, on the main thread.
    let ctx = unsafe { Ctx::new(ctx) };
    let loaded = guarded(
        c"the load",
        || Err(String::from("a fault")),
        || {
            if argc > 0 {
                return Err("the module takes no arguments; set rq.… in the configuration".into());
            }
            let options = api::REDISMODULE_OPTIONS_HANDLE_IO_ERRORS
                | api::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED;
            rm!(RedisModule_SetModuleOptions(ctx.raw, options as c_int));
            // First: if a line of the configuration is wrong, nothing else was made yet.
            configure(ctx)?;
            let lasting = rm!(RedisModule_GetDetachedThreadSafeContext(ctx.raw) or ptr::null_mut());
            if lasting.is_null() {
                return Err("no lasting context".into());
            }
            LASTING.store(lasting, Ordering::Relaxed);
            FORGETS_ANSWERS.set(ctx.main(), rm!(RedisModule_GetServerVersion() or REDIS_7_4) < REDIS_7_4);
            start(ctx)?;
            create_type(ctx)?;
            subscribe(ctx)?;
            if rm!(RedisModule_RegisterInfoFunc(ctx.raw, Some(on_info)) or ERR) != OK {
                return Err("INFO could not be extended".into());
            }
            Ok(())
        },
    );
    match loaded {
        Ok(()) => OK,
        Err(text) => {
            log(c"warning", &format!("rq was not loaded: {text}"));
            ERR
        }
    }
}

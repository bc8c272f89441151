//! What the server says happened: the index and those who wait are told. Nothing is written here,
//! because that would stand before the event itself in the stream of changes.

use super::ffi::{Main, MainCell, log};
use super::state::STATE;
use super::{timer, value, waiters};

static LOADING: MainCell<bool> = MainCell::new(false);

/// Whether an RDB or AOF file is being loaded.
pub fn is_loading(main: Main) -> bool {
    LOADING.get(main)
}

/// A load begins or is over.
pub fn loading(main: Main, begins: bool) {
    LOADING.set(main, begins);
    if begins {
        return;
    }
    // Queues whose chunks are not complete: an AOF that was cut off.
    let incomplete = STATE.with(main, |state| std::mem::take(&mut state.loaders));
    for (db, name) in incomplete.keys() {
        let name = name.escape_ascii();
        log(
            c"warning",
            &format!("the AOF ends in the middle of a queue, which was left out: {name} in db {db}"),
        );
    }
    value::restarted(main);
    waiters::look_at_all_later(main, None);
    timer::arm(main, 0);
}

/// A queue is read from a file or by RESTORE. It may yet be refused; then the index heals itself.
pub fn loaded(main: Main, db: i32, name: &[u8]) {
    STATE.with(main, |state| state.index.set(db, name, 0));
    timer::arm(main, 0);
}

/// A key, of whatever type, leaves this name by RENAME or MOVE. Where it went is told next.
pub fn leaves(main: Main, db: i32, name: &[u8]) {
    STATE.with(main, |state| state.moves.leaves(db, name));
}

/// A queue is there now under this name: it came by RENAME or MOVE (`has_moved`), COPY or RESTORE.
pub fn appeared(main: Main, db: i32, name: &[u8], has_moved: bool) {
    STATE.with(main, |state| {
        state.index.set(db, name, 0);
        if has_moved {
            state.moves.came(db, name);
        }
    });
    waiters::look_later(main, db, name);
    timer::arm(main, 0);
}

/// A queue has left the keyspace under this name. It may live on under another.
pub fn unlinked(main: Main, db: i32, name: &[u8]) {
    STATE.with(main, |state| state.index.remove(db, name));
    waiters::look_later(main, db, name);
}

/// A database, or all, is empty.
pub fn flushed(main: Main, db: Option<i32>) {
    STATE.with(main, |state| state.index.clear(db));
    waiters::look_at_all_later(main, db);
}

/// Two databases changed places.
pub fn swapped(main: Main, first: i32, second: i32) {
    STATE.with(main, |state| {
        state.index.swap(first, second);
        state.moves.swapped(first, second);
    });
    waiters::look_at_all_later(main, Some(first));
    waiters::look_at_all_later(main, Some(second));
    timer::arm(main, 0);
}

/// This server became a primary.
pub fn promoted(main: Main) {
    value::promoted(main);
    STATE.with(main, |state| state.index.all_due());
    timer::arm(main, 0);
}

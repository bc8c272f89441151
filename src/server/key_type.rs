//! The data type: how a queue is saved, loaded, rewritten and compared. What is written here is a
//! contract with every file and every replica.

use std::ffi::CStr;

use super::ffi::{Io, Main, log};
use super::value::Value;
use crate::persist::{self, Loader};

/// Name of the type. Frozen.
pub const NAME: &CStr = c"redis-rq1";

/// Version of the frame around the chunks; the chunks have their own. Frozen.
pub const VERSION: i32 = 0;

/// Reads a queue: chunks, and an empty one that ends them. `None`: this is no queue.
#[must_use]
pub fn load(main: Main, io: &mut Io, version: i32) -> Option<Value> {
    if version > VERSION {
        log(c"warning", "a queue was saved by a later version of this module; load that");
        return None;
    }
    let mut loader = Loader::default();
    loop {
        // Nothing can be read: the data ends too early. The server tells of it.
        let result =
            io.read(|chunk| if chunk.is_empty() { Ok(false) } else { loader.push(chunk).map(|()| true) })?;
        match result {
            Ok(true) => {}
            Ok(false) => break,
            Err(corrupt) => {
                log(c"warning", &format!("a queue could not be read: {corrupt}"));
                return None;
            }
        }
    }
    match loader.finish() {
        Ok(queue) => Some(Value::loaded(main, queue)),
        Err(corrupt) => {
            log(c"warning", &format!("a queue could not be read: {corrupt}"));
            None
        }
    }
}

/// Writes a queue. Also in a forked child.
pub fn save(value: &Value, io: &mut Io) {
    persist::save(&value.queue, &mut |chunk| io.write(chunk));
    io.write(&[]);
}

/// Gives the messages that make the queue when an AOF is loaded. In a forked child.
pub fn rewrite(value: &Value, emit: &mut dyn FnMut(&[u8])) {
    persist::save(&value.queue, &mut |chunk| emit(&persist::encode_chunk(chunk)));
    emit(&persist::encode_end());
}

/// Gives everything by which two queues may differ: what is saved.
pub fn digest(value: &Value, add: &mut dyn FnMut(&[u8])) {
    persist::save(&value.queue, add);
}

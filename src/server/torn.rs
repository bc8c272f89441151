//! Mends what Redis (7.0 to 8.2) leaves of an AOF that ends inside of a command of a transaction: it cuts the file behind
//! the last whole command, in the middle of the transaction, and goes on writing there. At the next start half of the
//! transaction would be executed with what was written behind it. Almost all that a queue writes are transactions, as the
//! clock travels with the command; and with one more job, say, later claims would hand out others.
//!
//! So, after an AOF was loaded, its end is looked at, and the file is written anew if a transaction is open there.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use super::ffi::{Ctx, Main, MainCell, log};

/// An AOF was loaded, and its end was not looked at yet.
static UNSEEN: MainCell<bool> = MainCell::new(false);

/// How much of the end is looked at, in bytes. A longer transaction is not found.
const TAIL_BYTES: u64 = 16 << 20;

const MULTI: &[u8] = b"*1\r\n$5\r\nMULTI\r\n";
const EXEC: &[u8] = b"*1\r\n$4\r\nEXEC\r\n";

/// An AOF was loaded.
pub fn loaded(main: Main) {
    UNSEEN.set(main, true);
}

/// Looks at the end of the AOF if that is to be done.
pub fn mend(ctx: Ctx<'_>) {
    let main = ctx.main();
    if !UNSEEN.get(main) {
        return;
    }
    UNSEEN.set(main, false);
    let (Some(folder), Some(name)) = (ctx.setting(c"appenddirname"), ctx.setting(c"appendfilename")) else {
        return;
    };
    // The server works in the folder of its data.
    if is_torn(Path::new(&folder), &name).unwrap_or(false) {
        log(c"warning", "the AOF ends in the middle of a transaction: writing it anew");
        ctx.rewrite_aof();
    }
}

/// Whether a transaction is open at the end of the file that is written to. `None`: there is no such file.
fn is_torn(folder: &Path, name: &str) -> Option<bool> {
    let manifest = std::fs::read_to_string(folder.join(format!("{name}.manifest"))).ok()?;
    let last = manifest.lines().rev().find(|line| line.contains(" type i"))?;
    let mut file = File::open(folder.join(last.split(' ').nth(1)?)).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES))).ok()?;
    let mut tail = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut tail).ok()?;
    Some(is_open(&tail))
}

/// Whether the last that begins or ends a transaction begins one. Payloads may hold such bytes too; then the file is
/// written anew in vain.
fn is_open(tail: &[u8]) -> bool {
    let mut rests = (0..tail.len()).rev().filter_map(|at| tail.get(at..));
    rests
        .find(|rest| rest.starts_with(MULTI) || rest.starts_with(EXEC))
        .is_some_and(|rest| rest.starts_with(MULTI))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_transaction_is_seen() {
        let set = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n";
        assert!(!is_open(b""));
        assert!(!is_open(set));
        assert!(!is_open(&[MULTI, set, EXEC].concat()));
        assert!(!is_open(&[MULTI, set, EXEC, set].concat()));
        assert!(is_open(&[MULTI].concat()));
        assert!(is_open(&[set, MULTI, set].concat()));
        assert!(is_open(&[MULTI, set, EXEC, MULTI, set].concat()));
    }
}

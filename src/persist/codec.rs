//! The one place that names bincode. To replace it, write these two functions anew so that they
//! make and read the same bytes; the golden files will tell.

use bincode::config::{self, Config};
use bincode::serde::{BorrowCompat, encode_into_std_write};
use serde::{Deserialize, Serialize};

use super::Corrupt;

/// Little endian, variable-length integers. Frozen.
const fn config() -> impl Config {
    config::standard()
}

/// Appends a value.
pub(super) fn encode<T: Serialize>(value: &T, bytes: &mut Vec<u8>) {
    // Writing into memory fails only for types that do not know their length; ours all do.
    let written = encode_into_std_write(value, bytes, config());
    debug_assert!(written.is_ok(), "{written:?}");
}

/// Reads a value from the front of `bytes` and moves on behind it. Lengths are checked against
/// what is there: byte strings are borrowed, so a false length cannot make it allocate.
pub(super) fn decode<'a, T: Deserialize<'a>>(bytes: &mut &'a [u8]) -> Result<T, Corrupt> {
    let (BorrowCompat(value), read) = bincode::borrow_decode_from_slice(bytes, config())
        .map_err(|error| Corrupt(format!("malformed: {error}")))?;
    *bytes = bytes.get(read..).unwrap_or_default();
    Ok(value)
}

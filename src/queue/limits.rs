//! Every fixed limit, with its unit, in one place.

/// Longest duration a caller may give, in ms (about 285,000 years). Small enough that the sum
/// of any instant and any duration stays far inside 64 bits, and exact in every language.
pub const DURATION_MS_MAX: u64 = (1 << 53) - 1;

/// Largest value of a queue's clocks, in ms (the year 2109). What comes from bytes is checked
/// against it.
pub const CLOCK_MS_MAX: u64 = 1 << 42;

/// Largest instant in a queue, in ms: any clock and any duration added up.
pub const INSTANT_MS_MAX: u64 = CLOCK_MS_MAX + DURATION_MS_MAX;

/// Longest name of a worker and longest custom id, in bytes.
pub const NAME_BYTES_MAX: usize = 512;

/// Longest error or progress text kept, in bytes; longer text is cut and marked.
pub const TEXT_BYTES_MAX: usize = 64 * 1024;

/// Largest `MAXOUTPUT`, in bytes.
pub const OUTPUT_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Most chunks in the output of a job.
pub const OUTPUT_CHUNKS_MAX: usize = 65_536;

/// Bytes of chunks after which one reply of `READ` ends. A single larger chunk makes a larger reply.
pub const READ_BYTES_MAX: usize = 1024 * 1024;

/// Default `COUNT` of `READ`.
pub const READ_COUNT_DEFAULT: usize = 100;

/// Instants of failures kept of a job.
pub const FAILURES_KEPT: usize = 5;

/// Longest error text shown in a listing, in bytes.
pub const LISTED_TEXT_BYTES_MAX: usize = 256;

/// Largest `COUNT` and `JOBS`.
pub const COUNT_MAX: usize = 1_000;

/// Default `COUNT` of the commands that take many jobs at once.
pub const COUNT_DEFAULT: usize = 1_000;

/// Most ids, or pairs of id and token, in one call.
pub const IDS_MAX: usize = 1_000;

/// Most names of workers in one call of `RECOVER`. As many take about a millisecond.
pub const NAMES_MAX: usize = 10_000;

/// Workers that one queue registers for claims of clients. To look at all of them takes half a millisecond.
pub const WORKERS_MAX: usize = 50_000;

/// The longest back-off where only the first wait is given, ms. Commands are replicated as they were
/// given, so this is part of their meaning and frozen.
pub const BACKOFF_MAX_DEFAULT: u64 = 3_600_000;

/// Largest `ATTEMPTS` and `CRASHES`.
pub const BUDGET_MAX: u32 = 1_000_000_000;

/// Largest count setting (`MAXLEN`, `KEEPDONE`, `KEEPDEAD`).
pub const KEEP_MAX: u64 = u32::MAX as u64;

/// Largest `CONCURRENCY` and `WEIGHT`.
pub const CONCURRENCY_MAX: u32 = 1_000_000;

/// Largest `n` and `BURST` of a `RATE`.
pub const RATE_COUNT_MAX: u64 = 1_000_000;

/// Longest period of a `RATE`, ms (about 49 days).
pub const RATE_PERIOD_MAX: u64 = u32::MAX as u64;

/// Due items that one sweep may settle. A slice of this size takes well under a millisecond.
pub const SWEEP_SLICE: usize = 1_000;

/// Jobs that a listing looks at for one page.
pub const LIST_SCAN_MAX: usize = 10_000;

/// Jobs in one chunk of the persisted form, and the bytes after which a chunk is closed.
pub const CHUNK_JOBS_MAX: usize = 1_000;
/// See [`CHUNK_JOBS_MAX`]. A single larger payload makes a larger chunk.
pub const CHUNK_BYTES_TARGET: usize = 256 * 1024;

/// Jobs that one queue can hold: slots are 32 bits wide.
pub const JOBS_MAX: usize = u32::MAX as usize;

const _: () = assert!(INSTANT_MS_MAX < u64::MAX / 4);
// A bucket counts in units of 1/count ms: clock, and a full burst of tokens, must fit.
const _: () = assert!(CLOCK_MS_MAX.leading_zeros() > 20 && RATE_COUNT_MAX <= 1 << 20);
const _: () = assert!(RATE_COUNT_MAX * RATE_PERIOD_MAX < u64::MAX / 4);
const _: () = assert!(COUNT_DEFAULT <= COUNT_MAX);
const _: () = assert!(READ_COUNT_DEFAULT <= COUNT_MAX);
const _: () = assert!(COUNT_MAX <= LIST_SCAN_MAX);
// Where chunks end is kept in 32 bits.
const _: () = assert!(OUTPUT_BYTES_MAX <= u32::MAX as u64);
const _: () = assert!(NAMES_MAX <= WORKERS_MAX);
const _: () = assert!(NAME_BYTES_MAX < TEXT_BYTES_MAX);
// Twice the largest clock still fits in a serial's 44 bits of milliseconds.
const _: () = assert!(CLOCK_MS_MAX <= u64::MAX >> 21);

/// Cuts `text` to [`TEXT_BYTES_MAX`] at a UTF-8 safe place and marks the cut.
#[must_use]
pub fn clip(text: &[u8]) -> Box<[u8]> {
    const MARK: &[u8] = b"... [cut]";
    if text.len() <= TEXT_BYTES_MAX {
        return text.into();
    }
    let kept = beginning(text, TEXT_BYTES_MAX.saturating_sub(MARK.len()));
    [kept, MARK].concat().into()
}

/// At most so many bytes from the beginning of `text`, cut at a UTF-8 safe place.
#[must_use]
pub fn beginning(text: &[u8], most: usize) -> &[u8] {
    let mut end = most.min(text.len());
    // A byte 10xxxxxx continues a character: step back to where one starts, at most three bytes.
    for _ in 0..3 {
        match text.get(end) {
            Some(byte) if byte & 0xC0 == 0x80 => end = end.saturating_sub(1),
            _ => break,
        }
    }
    text.get(..end).unwrap_or(text)
}

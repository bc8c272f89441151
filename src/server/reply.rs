//! What a client is told: the shapes of a reply, and every refusal with its words.

use std::fmt::{self, Write};

use crate::queue::Error;
use crate::queue::limits::{OUTPUT_CHUNKS_MAX, WORKERS_MAX};

/// Where a reply is written to, part by part. Lengths are announced before their parts.
///
/// Strings are never interpreted. In RESP2 a map is a flat array of keys and values.
pub trait Out {
    /// Nothing, none, unknown.
    fn null(&mut self);
    /// A number.
    fn integer(&mut self, value: i64);
    /// Bytes of a client.
    fn bulk(&mut self, value: &[u8]);
    /// A word of ours (a simple string).
    fn word(&mut self, value: &str);
    /// `len` parts follow.
    fn array(&mut self, len: usize);
    /// `pairs` times a key and a value follow.
    fn map(&mut self, pairs: usize);
}

/// Why a call is refused. Nothing has changed then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The queue refuses.
    Core(Error),
    /// The key holds something else.
    WrongType,
    /// There is no queue of that name, and the call needs one.
    NoQueue,
    /// Malformed, and why. The text stands behind `ERR`.
    Syntax(String),
    /// Too few or too many arguments.
    Arity,
    /// The queue knows too many workers to register another.
    WorkersFull,
    /// A payload or result is longer than `rq.max-payload`.
    TooBig {
        /// Most bytes taken.
        limit: u64,
    },
    /// `RQ.PURGE` of active jobs.
    PurgeActive,
    /// `RQ.APPLY` called by somebody who is neither the primary nor the AOF.
    NotForClients,
    /// The queue is on another node of the cluster now, or on its way there.
    Elsewhere,
    /// A fault of ours. Nothing was changed, and the log tells more.
    Internal,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Core(error)
    }
}

/// The whole text of the error; its first word is for programs and frozen.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Core(error) => write_error(*error, f),
            Self::WrongType => f.write_str("WRONGTYPE the key holds something that is not a queue"),
            Self::NoQueue => f.write_str("NOQUEUE there is no queue of this name; RQ.ENQUEUE makes one"),
            Self::Syntax(text) => write!(OneLine(f), "ERR {text}"),
            Self::Arity => f.write_str("ERR wrong number of arguments"),
            Self::WorkersFull => write!(
                f,
                "FULL the queue knows {WORKERS_MAX} workers; use names again, or have it forget them sooner with WORKERTTL"
            ),
            Self::TooBig { limit } => {
                write!(f, "TOOBIG more than {limit} bytes; store it elsewhere and enqueue where, or raise rq.max-payload")
            }
            Self::PurgeActive => f.write_str(
                "BADSTATE active jobs are with their workers: RQ.CANCEL tells these to stop, RQ.RECOVER takes the jobs back",
            ),
            Self::NotForClients => {
                f.write_str("ERR RQ.APPLY carries what a primary decided to its replicas and its AOF; clients cannot call it")
            }
            // Cluster clients know this word, and ask again.
            Self::Elsewhere => f.write_str("TRYAGAIN the queue moves to another node of the cluster; ask again"),
            Self::Internal => f.write_str("ERR internal error of the module rq; nothing was changed, see the server's log"),
        }
    }
}

fn write_error(error: Error, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match error {
        Error::NoJob => f.write_str("NOJOB there is no job with this id in the queue"),
        Error::Stale => {
            f.write_str("STALE this delivery is over; drop the work, the job may be somebody else's by now")
        }
        Error::Full => f.write_str(
            "FULL the queue has MAXLEN waiting jobs; enqueue later, or raise it with RQ.QUEUE.SET",
        ),
        Error::OutputFull => write!(
            f,
            "FULL this chunk goes beyond the MAXOUTPUT bytes (RQ.QUEUE.SET) or the {OUTPUT_CHUNKS_MAX} chunks of a run's output; go on without"
        ),
        // The state is the second word: programs read it.
        Error::Exists(state) => {
            write!(
                f,
                "EXISTS {} is the state of the job that has this id; IFNEW replies the id instead, REPLACE drops a final job",
                state.name()
            )
        }
        Error::BadState(state) => write!(f, "BADSTATE not possible for a job that is {}", state.name()),
        Error::BeyondDeadline(left) => {
            write!(f, "ERR the delay must be shorter than the deadline, which is {left} ms away")
        }
        Error::TooMany => f.write_str("FULL the queue holds as many jobs as it can address"),
    }
}

/// A line of the protocol must not contain line ends, whatever a client's bytes in it are.
struct OneLine<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl Write for OneLine<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for part in text.split_inclusive(char::is_control) {
            let clean = part.trim_end_matches(char::is_control);
            self.0.write_str(clean)?;
            if clean.len() < part.len() {
                self.0.write_char(' ')?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::State;

    #[test]
    fn an_error_is_one_line() {
        let text = Refusal::Syntax("a\r\nb\0c".into()).to_string();
        assert_eq!(text, "ERR a  b c");
    }

    #[test]
    fn the_state_is_the_second_word_of_exists() {
        let text = Refusal::Core(Error::Exists(State::Dead)).to_string();
        assert!(text.starts_with("EXISTS dead "), "{text}");
    }
}

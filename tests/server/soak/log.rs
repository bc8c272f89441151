//! What the clients of a soak write down: each call, when it was sent, when it was answered, and what was said.
//!
//! The checker knows nothing else of a run but this and what it reads from the server after a crash.

/// Microseconds since the run began.
pub type Moment = u64;

/// Later than everything.
pub const NEVER: Moment = Moment::MAX;

/// A job as the clients call it; its payload tells it. No two calls ever enqueue the same.
pub type Tag = u64;

/// An id or a token that the server gave, as one number that orders them.
pub type Serial = u64;

/// From `<unix-ms>-<number>`; `None` for an id of the client's own.
pub fn serial(text: &str) -> Option<Serial> {
    let (millis, number) = text.split_once('-')?;
    Some(millis.parse::<u64>().ok()? << 20 | number.parse::<u64>().ok()?)
}

/// From when to when a call ran.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub sent: Moment,
    /// `None`: the connection broke before.
    pub answered: Option<Moment>,
    /// `WAIT` said afterwards that a replica has it.
    pub copied: bool,
}

impl Span {
    /// The last moment at which the server may have run it.
    pub fn end(&self) -> Moment {
        self.answered.unwrap_or(NEVER)
    }
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub span: Span,
    pub what: What,
}

#[derive(Clone, Debug)]
pub enum What {
    Enqueue {
        queue: String,
        order: Order,
        jobs: Vec<Tag>,
        said: Accepted,
    },
    Claim {
        worker: String,
        lease: Option<u64>,
        got: Vec<Got>,
    },
    Act {
        tag: Tag,
        token: Serial,
        act: Act,
        said: Said,
    },
    Cancel {
        id: String,
        said: Said,
    },
    Reschedule {
        id: String,
    },
    Recover {
        queue: String,
        who: Who,
    },
    Redrive {
        queue: String,
    },
    /// `ids`: what was there to be purged, if that is known.
    Purge {
        queue: String,
        state: &'static str,
        ids: Option<Vec<String>>,
    },
    /// What `RQ.RESULT` said.
    Result {
        tag: Tag,
        state: String,
        value: Option<String>,
    },
    /// A save began; its end is in `Saved`.
    Save,
    /// The save that was asked for at that moment is on the disk.
    Saved {
        asked: Moment,
    },
    /// Something that must not be.
    Odd(String),
}

/// The options of an enqueueing call that matter to the checker, durations in ms.
#[derive(Clone, Debug, Default)]
pub struct Order {
    pub own: Option<(String, Own)>,
    pub delay: u64,
    pub deadline: Option<u64>,
    pub attempts: Option<u64>,
    pub crashes: Option<u64>,
    pub lease: Option<u64>,
    pub ttl: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Own {
    Plain,
    IfNew,
    Replace,
}

#[derive(Clone, Debug)]
pub enum Accepted {
    Ids(Vec<String>),
    Refused,
    NoReply,
}

/// One delivery.
#[derive(Clone, Debug)]
pub struct Got {
    pub queue: String,
    pub tag: Tag,
    pub id: String,
    pub token: Serial,
    pub number: i64,
}

/// What is done with a token.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// The value, if there is one, is the token; so no two are the same.
    Ack {
        value: bool,
        ttl: Option<u64>,
    },
    /// `counted`: an attempt is used up.
    Fail {
        counted: bool,
    },
    Release,
    Extend {
        lease: u64,
    },
    Progress,
}

impl Act {
    pub fn ends(&self) -> bool {
        matches!(self, Act::Ack { .. } | Act::Fail { .. } | Act::Release)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    /// Done; with the word that was replied.
    Yes(String),
    /// The token is not the current one.
    Stale,
    /// There is no such job, or nothing left to do.
    Nothing,
    NoReply,
}

impl Said {
    pub fn is_yes(&self) -> bool {
        matches!(self, Said::Yes(_))
    }

    /// Whether it was, or may have been, done.
    pub fn may_be(&self) -> bool {
        matches!(self, Said::Yes(_) | Said::NoReply)
    }
}

#[derive(Clone, Debug)]
pub enum Who {
    Anybody,
    Worker(String),
    Except(String),
}

impl Who {
    pub fn includes(&self, worker: &str) -> bool {
        match self {
            Who::Anybody => true,
            Who::Worker(name) => name == worker,
            Who::Except(name) => name != worker,
        }
    }
}

/// Which family of names a queue belongs to: the queue of the mover changes its name, but not its first letter.
pub fn family(queue: &str) -> char {
    queue.chars().next().unwrap_or('?')
}

//! What can be asked of the server: the words of a command, and what its reply says.

use redis::Value;

use crate::data::{self, Bytes, Group, Map, State, Stats};

/// Names that a call of `RQ.QUEUES` looks at: some 0.3 ms of the server.
const NAMES: u64 = 1000;
/// Workers, groups and jobs in a page: some 0.1 ms of the server.
pub const PAGE: u64 = 50;
/// Jobs that one redrive takes.
pub const REDRIVEN: u64 = 1000;

/// Something to ask, or to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    Time,
    Names { cursor: Bytes },
    Stats(Bytes),
    Workers { queue: Bytes, cursor: Bytes },
    Groups { queue: Bytes, cursor: Bytes },
    Jobs { queue: Bytes, state: State, cursor: Bytes },
    Job { queue: Bytes, id: Bytes },
    Do(Action),
}

/// What changes something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Pause {
        queue: Bytes,
        group: Option<Group>,
    },
    Resume {
        queue: Bytes,
        group: Option<Group>,
    },
    /// One dead job, or as many as one call takes.
    Redrive {
        queue: Bytes,
        id: Option<Bytes>,
    },
}

/// What was answered.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Unix ms.
    Time(u64),
    Names {
        next: Bytes,
        names: Vec<Bytes>,
    },
    Stats(Box<Stats>),
    /// Workers, groups or jobs.
    Page {
        next: Bytes,
        items: Vec<Map>,
    },
    /// `None`: there is no such job any more.
    Job(Option<Map>),
    /// What was done, for people.
    Done(String),
    /// An error reply: its first word, all of it.
    Refused(String, String),
}

impl Ask {
    pub fn words(&self) -> Vec<Bytes> {
        let words = |words: &[&[u8]]| words.iter().map(|word| word.to_vec()).collect();
        let page = PAGE.to_string();
        match self {
            Self::Time => words(&[b"TIME"]),
            Self::Names { cursor } => {
                words(&[b"RQ.QUEUES", b"CURSOR", cursor, b"COUNT", NAMES.to_string().as_bytes()])
            }
            Self::Stats(queue) => words(&[b"RQ.STATS", queue]),
            Self::Workers { queue, cursor } => {
                words(&[b"RQ.WORKERS", queue, b"CURSOR", cursor, b"COUNT", page.as_bytes()])
            }
            Self::Groups { queue, cursor } => {
                words(&[b"RQ.GROUP.LIST", queue, b"CURSOR", cursor, b"COUNT", page.as_bytes()])
            }
            Self::Jobs { queue, state, cursor } => {
                let state = state.name().as_bytes();
                words(&[b"RQ.LIST", queue, state, b"CURSOR", cursor, b"COUNT", page.as_bytes()])
            }
            Self::Job { queue, id } => words(&[b"RQ.JOB", queue, id]),
            Self::Do(action) => action.words(),
        }
    }

    /// What a reply to it says.
    pub fn read(&self, reply: &Value) -> Answer {
        if let Value::ServerError(error) = reply {
            let text = format!("{} {}", error.code(), error.details().unwrap_or_default());
            return Answer::Refused(error.code().to_string(), crate::text::line(&text));
        }
        self.understand(reply).unwrap_or_else(|| {
            let command = self.words().first().map(|word| crate::text::name(word)).unwrap_or_default();
            Answer::Refused("REPLY".to_string(), format!("the reply to {command} is not understood"))
        })
    }

    fn understand(&self, reply: &Value) -> Option<Answer> {
        let maps = |items: &[Value]| items.iter().map(Map::read).collect::<Option<Vec<_>>>();
        Some(match self {
            Self::Time => match data::list(reply)? {
                [seconds, micros] => {
                    let ms = data::number(seconds)?.saturating_mul(1000);
                    Answer::Time(ms.saturating_add(data::number(micros)? / 1000))
                }
                _ => return None,
            },
            Self::Names { .. } => {
                let (next, names) = data::page(reply)?;
                Answer::Names { next, names: names.iter().filter_map(data::bytes).collect() }
            }
            Self::Stats(_) => Answer::Stats(Box::new(Stats::read(reply)?)),
            Self::Workers { .. } | Self::Groups { .. } | Self::Jobs { .. } => {
                let (next, items) = data::page(reply)?;
                Answer::Page { next, items: maps(items)? }
            }
            Self::Job { .. } if *reply == Value::Nil => Answer::Job(None),
            Self::Job { .. } => Answer::Job(Some(Map::read(reply)?)),
            Self::Do(action) => Answer::Done(action.done(reply)),
        })
    }
}

impl Action {
    fn words(&self) -> Vec<Bytes> {
        let mut words: Vec<Bytes> = Vec::new();
        let mut say = |word: &[u8]| words.push(word.to_vec());
        match self {
            Self::Pause { queue, group } | Self::Resume { queue, group } => {
                say(if matches!(self, Self::Pause { .. }) { b"RQ.PAUSE" } else { b"RQ.RESUME" });
                say(queue);
                if let Some(Group { group, tenant }) = group {
                    if !group.is_empty() {
                        say(b"GROUP");
                        say(group);
                    }
                    if !tenant.is_empty() {
                        say(b"TENANT");
                        say(tenant);
                    }
                }
            }
            Self::Redrive { queue, id: Some(id) } => {
                say(b"RQ.REDRIVE");
                say(queue);
                if id.eq_ignore_ascii_case(b"ALL") {
                    say(b"0-0"); // named first, that id would mean all
                }
                say(id);
            }
            Self::Redrive { queue, id: None } => {
                say(b"RQ.REDRIVE");
                say(queue);
                say(b"ALL");
                say(b"COUNT");
                say(REDRIVEN.to_string().as_bytes());
            }
        }
        words
    }

    /// What it would do, or does: `pause mail`.
    pub fn shown(&self) -> String {
        let of = |queue: &[u8], group: &Option<Group>| match group {
            Some(group) if group.group.is_empty() => {
                format!("tenant {} of {}", crate::text::name(&group.tenant), crate::text::name(queue))
            }
            Some(group) => format!("group {} of {}", group.shown(), crate::text::name(queue)),
            None => crate::text::name(queue),
        };
        match self {
            Self::Pause { queue, group } => format!("pause {}", of(queue, group)),
            Self::Resume { queue, group } => format!("resume {}", of(queue, group)),
            Self::Redrive { queue, id: Some(id) } => {
                format!("redrive {} of {}", crate::text::name(id), crate::text::name(queue))
            }
            Self::Redrive { queue, id: None } => {
                format!("redrive the dead jobs of {}", crate::text::name(queue))
            }
        }
    }

    /// What came of it.
    fn done(&self, reply: &Value) -> String {
        let came = match (self, data::list(reply)) {
            (Self::Redrive { id: None, .. }, Some([redriven, left])) => {
                let shown = |value| data::number(value).map(crate::text::count).unwrap_or_default();
                format!("{} redriven, {} left", shown(redriven), shown(left))
            }
            (Self::Redrive { id: Some(_), .. }, Some(states)) => states
                .last()
                .and_then(data::text)
                .unwrap_or_else(|| "there is no such job any more".to_string()),
            _ => "done".to_string(),
        };
        format!("{}: {came}", self.shown())
    }
}

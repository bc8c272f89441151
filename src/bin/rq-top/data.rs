//! What the server tells, as plain values. What it does not tell, being older or newer, is simply not there.

use redis::Value;

/// Names, ids and payloads: bytes of any value.
pub type Bytes = Vec<u8>;

/// States of jobs, in the order in which they are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Ready,
    Active,
    Delayed,
    Dead,
    Done,
    Cancelled,
}

impl State {
    pub const ALL: [Self; 6] =
        [Self::Ready, Self::Active, Self::Delayed, Self::Dead, Self::Done, Self::Cancelled];

    pub fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Active => "active",
            Self::Delayed => "delayed",
            Self::Dead => "dead",
            Self::Done => "done",
            Self::Cancelled => "cancelled",
        }
    }

    /// The one that comes after it; the first after the last.
    pub fn next(self) -> Self {
        let mut others = Self::ALL.iter().copied().cycle().skip_while(|state| *state != self);
        others.nth(1).unwrap_or(self)
    }
}

/// A map of a reply, in RESP2 or RESP3.
#[derive(Clone, Debug, Default)]
pub struct Map(Vec<(String, Value)>);

impl Map {
    pub fn read(value: &Value) -> Option<Self> {
        let name = |key: &Value| text(key).unwrap_or_default();
        match value {
            Value::Map(entries) => {
                Some(Self(entries.iter().map(|(key, value)| (name(key), value.clone())).collect()))
            }
            Value::Array(items) => {
                let (pairs, rest) = items.as_chunks::<2>();
                rest.is_empty()
                    .then(|| Self(pairs.iter().map(|[key, value]| (name(key), value.clone())).collect()))
            }
            _ => None,
        }
    }

    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    pub fn number(&self, key: &str) -> Option<u64> {
        self.get(key).and_then(number)
    }

    pub fn count(&self, key: &str) -> u64 {
        self.number(key).unwrap_or_default()
    }

    pub fn bytes(&self, key: &str) -> Option<Bytes> {
        self.get(key).and_then(bytes)
    }

    pub fn text(&self, key: &str) -> Option<String> {
        self.get(key).and_then(text)
    }

    pub fn is_set(&self, key: &str) -> bool {
        self.number(key) == Some(1)
    }

    pub fn map(&self, key: &str) -> Option<Self> {
        self.get(key).and_then(Self::read)
    }

    pub fn entries(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// Those entries that are numbers.
    pub fn numbers(&self) -> Vec<(String, u64)> {
        self.entries().filter_map(|(key, value)| Some((key.to_string(), number(value)?))).collect()
    }
}

pub fn bytes(value: &Value) -> Option<Bytes> {
    match value {
        Value::BulkString(bytes) => Some(bytes.clone()),
        Value::SimpleString(text) => Some(text.clone().into_bytes()),
        Value::VerbatimString { text, .. } => Some(text.clone().into_bytes()),
        Value::Okay => Some(b"OK".to_vec()),
        Value::Int(number) => Some(number.to_string().into_bytes()),
        Value::Double(number) => Some(number.to_string().into_bytes()),
        _ => None,
    }
}

pub fn text(value: &Value) -> Option<String> {
    bytes(value).map(|bytes| crate::text::name(&bytes))
}

/// A number that is not negative.
pub fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        Value::Boolean(flag) => Some(u64::from(*flag)),
        _ => std::str::from_utf8(&bytes(value)?).ok()?.parse().ok(),
    }
}

pub fn list(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Array(items) | Value::Set(items) => Some(items),
        _ => None,
    }
}

/// `RQ.STATS`
#[derive(Clone, Debug, Default)]
pub struct Stats {
    pub fields: Map,
    pub totals: Map,
}

impl Stats {
    pub fn read(value: &Value) -> Option<Self> {
        let fields = Map::read(value)?;
        let totals = fields.map("totals").unwrap_or_default();
        Some(Self { fields, totals })
    }

    pub fn count(&self, state: State) -> u64 {
        self.fields.count(state.name())
    }

    pub fn is_paused(&self) -> bool {
        self.fields.is_set("paused")
    }

    /// A word for why nothing is handed out: `paused`, `concurrency`, `rate`.
    pub fn held(&self) -> Option<String> {
        self.fields.text("held").or_else(|| self.is_paused().then(|| "paused".to_string()))
    }
}

/// A group: its tenant, its name; empty: the nameless one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    pub group: Bytes,
    pub tenant: Bytes,
}

impl Group {
    pub fn read(fields: &Map) -> Self {
        let named = |key| fields.bytes(key).unwrap_or_default();
        Self { group: named("group"), tenant: named("tenant") }
    }

    pub fn is_nameless(&self) -> bool {
        self.group.is_empty() && self.tenant.is_empty()
    }

    /// `tenant/group`, with `-` for the nameless.
    pub fn shown(&self) -> String {
        let shown = |name: &[u8]| if name.is_empty() { "-".to_string() } else { crate::text::name(name) };
        if self.tenant.is_empty() {
            shown(&self.group)
        } else {
            format!("{}/{}", shown(&self.tenant), shown(&self.group))
        }
    }
}

/// A page of a listing and the cursor of the next; cursor `0`: there is none.
pub fn page(value: &Value) -> Option<(Bytes, &[Value])> {
    match list(value)? {
        [next, items] => Some((bytes(next)?, list(items)?)),
        _ => None,
    }
}

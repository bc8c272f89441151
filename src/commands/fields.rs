//! A map that is put together before it is written: replies announce their length first.

use super::json::Json;
use crate::queue::{Id, SHOWN_BYTES_MAX, Serial};
use crate::server::reply::Out;

/// Begins the reply of a listing: the cursor to go on with, 0 at the end, and how many entries follow.
pub fn begin_page(next: u64, entries: usize, out: &mut dyn Out) {
    out.array(2);
    out.bulk(next.to_string().as_bytes());
    out.array(entries);
}

/// A value in a map.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    /// Does not apply.
    Null,
    /// A number.
    Integer(i64),
    /// Bytes of a client.
    Bytes(&'a [u8]),
    /// A word of ours.
    Word(&'static str),
    /// A token, or an id of ours.
    Serial(Serial),
    /// Some numbers.
    Integers(Vec<i64>),
    /// A map.
    Map(Fields<'a>),
}

/// Names and values, in the order in which they were added.
#[derive(Clone, Debug, Default)]
pub struct Fields<'a>(Vec<(&'static str, Value<'a>)>);

impl<'a> Fields<'a> {
    /// No fields, and room for some.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self(Vec::with_capacity(capacity))
    }

    /// Adds a field.
    pub fn add(&mut self, name: &'static str, value: impl Into<Value<'a>>) {
        self.0.push((name, value.into()));
    }

    /// The names, in order.
    #[cfg(test)]
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|(name, _)| *name)
    }

    /// Replies them as a map, or as one JSON text.
    pub fn reply(&self, as_json: bool, out: &mut dyn Out) {
        if as_json {
            let mut json = Json::default();
            self.write(&mut json);
            out.bulk(&json.into_bytes());
        } else {
            self.write(out);
        }
    }

    /// Writes them as a map.
    pub fn write(&self, out: &mut dyn Out) {
        out.map(self.0.len());
        for (name, value) in &self.0 {
            out.word(name);
            value.write(out);
        }
    }
}

impl Value<'_> {
    fn write(&self, out: &mut dyn Out) {
        match self {
            Self::Null => out.null(),
            Self::Integer(value) => out.integer(*value),
            Self::Bytes(bytes) => out.bulk(bytes),
            Self::Word(word) => out.word(word),
            Self::Serial(serial) => write_id(Id::Serial(*serial), out),
            Self::Integers(values) => {
                out.array(values.len());
                for value in values {
                    out.integer(*value);
                }
            }
            Self::Map(fields) => fields.write(out),
        }
    }

    /// A limit: a number, or the word for that there is none.
    #[must_use]
    pub fn limit(limit: Option<impl Into<u64>>) -> Self {
        limit.map_or(Self::Word("none"), |limit| limit.into().into())
    }
}

/// Writes an id, or a token, without allocating.
pub fn write_id(id: Id<'_>, out: &mut dyn Out) {
    out.bulk(id.write(&mut [0; SHOWN_BYTES_MAX]));
}

/// A count as a reply's integer. What does not fit does not occur.
#[must_use]
pub fn int(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Milliseconds as a reply's integer.
#[must_use]
pub fn ms(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

impl From<u64> for Value<'_> {
    fn from(value: u64) -> Self {
        Self::Integer(ms(value))
    }
}

impl From<u32> for Value<'_> {
    fn from(value: u32) -> Self {
        Self::Integer(value.into())
    }
}

impl From<u8> for Value<'_> {
    fn from(value: u8) -> Self {
        Self::Integer(value.into())
    }
}

impl From<usize> for Value<'_> {
    fn from(value: usize) -> Self {
        Self::Integer(int(value))
    }
}

impl From<i64> for Value<'_> {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}

impl From<bool> for Value<'_> {
    fn from(value: bool) -> Self {
        Self::Integer(value.into())
    }
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(value: &'a [u8]) -> Self {
        Self::Bytes(value)
    }
}

impl<'a> From<Fields<'a>> for Value<'a> {
    fn from(value: Fields<'a>) -> Self {
        Self::Map(value)
    }
}

impl<'a> From<Id<'a>> for Value<'a> {
    fn from(value: Id<'a>) -> Self {
        match value {
            Id::Serial(serial) => Self::Serial(serial),
            Id::Custom(bytes) => Self::Bytes(bytes),
        }
    }
}

impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

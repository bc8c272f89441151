//! Bytes and values: the persisted form of queues and of the ops that travel.
//!
//! Frozen, versioned structs (`v1.rs`), apart from the live types and converted to and from them.
//! A released version never changes; what changes gets a version of its own, and the old one is
//! still read. `codec.rs` is the one place that names bincode.
//!
//! A queue is a sequence of chunks: a header, then tenants, then groups, then jobs. Each chunk begins with one byte that says
//! what it is and in which version.

mod codec;
mod v1;

use crate::queue::limits::{CHUNK_BYTES_TARGET, CHUNK_JOBS_MAX};
use serde::Serialize;

use crate::queue::snapshot::Builder;
use crate::queue::{Op, Queue, Settings, Stamp};

/// First byte of a chunk or message. Frozen.
mod tag {
    pub const HEADER_V1: u8 = 1;
    pub const JOBS_V1: u8 = 2;
    pub const TENANTS_V1: u8 = 3;
    pub const GROUPS_V1: u8 = 4;
    pub const OP_V1: u8 = 16;
    pub const CREATE_V1: u8 = 17;
    pub const CHUNK: u8 = 18;
    pub const END: u8 = 19;
}

/// Why bytes are not a queue, a chunk, or a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corrupt(pub String);

impl std::fmt::Display for Corrupt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<String> for Corrupt {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Corrupt {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

/// Gives a queue as chunks, header first. The same queue gives the same bytes.
///
/// A chunk holds many jobs, and is closed when it has a fixed number of them or of bytes; a single
/// large payload makes a larger one.
pub fn save(queue: &Queue, write: &mut dyn FnMut(&[u8])) {
    let mut chunk = vec![tag::HEADER_V1];
    codec::encode(&v1::Header::from(&queue.header()), &mut chunk);
    write(&chunk);
    save_all(tag::TENANTS_V1, queue.tenant_records().map(|record| v1::Tenant::from(&record)), write);
    save_all(tag::GROUPS_V1, queue.group_records().map(|record| v1::Group::from(&record)), write);
    save_all(tag::JOBS_V1, queue.records().map(|record| v1::Job::from(&record)), write);
}

/// Gives records of one kind as chunks.
fn save_all<T: Serialize>(kind: u8, records: impl Iterator<Item = T>, write: &mut dyn FnMut(&[u8])) {
    let mut chunk = Vec::new();
    let mut count: usize = 0;
    for record in records {
        if count == 0 {
            chunk.push(kind);
        }
        codec::encode(&record, &mut chunk);
        count = count.saturating_add(1);
        if count == CHUNK_JOBS_MAX || chunk.len() >= CHUNK_BYTES_TARGET {
            write(&chunk);
            chunk.clear();
            // A huge payload must not keep its room until the end.
            chunk.shrink_to(CHUNK_BYTES_TARGET.saturating_mul(2));
            count = 0;
        }
    }
    if count > 0 {
        write(&chunk);
    }
}

/// Takes chunks and makes the queue of them.
#[derive(Debug, Default)]
pub struct Loader {
    builder: Option<Builder>,
}

impl Loader {
    /// Takes the next chunk.
    ///
    /// # Errors
    /// What is wrong with it. The loader is of no use then.
    pub fn push(&mut self, chunk: &[u8]) -> Result<(), Corrupt> {
        let (&tag, mut rest) = chunk.split_first().ok_or("an empty chunk")?;
        match (tag, &mut self.builder) {
            (tag::HEADER_V1, builder @ None) => {
                let header: v1::Header = codec::decode(&mut rest)?;
                *builder = Some(Builder::new(header.try_into()?)?);
            }
            (tag::TENANTS_V1, Some(builder)) => {
                while !rest.is_empty() {
                    builder.push_tenant(&codec::decode::<v1::Tenant<'_>>(&mut rest)?.try_into()?)?;
                }
            }
            (tag::GROUPS_V1, Some(builder)) => {
                while !rest.is_empty() {
                    builder.push_group(&codec::decode::<v1::Group<'_>>(&mut rest)?.try_into()?)?;
                }
            }
            (tag::JOBS_V1, Some(builder)) => {
                while !rest.is_empty() {
                    let job: v1::Job<'_> = codec::decode(&mut rest)?;
                    builder.push(&(&job).try_into()?)?;
                }
            }
            _ => return Err(format!("a chunk of kind {tag} is not expected here").into()),
        }
        if rest.is_empty() { Ok(()) } else { Err("bytes are left over".into()) }
    }

    /// The queue, when all chunks were taken.
    ///
    /// # Errors
    /// What is missing, or does not agree.
    pub fn finish(self) -> Result<Queue, Corrupt> {
        Ok(self.builder.ok_or("no header")?.finish()?)
    }
}

/// What `RQ.APPLY` carries.
#[derive(Debug)]
pub enum Message<'a> {
    /// An op that is not a user command.
    Op(Op<'a>),
    /// A queue begins.
    Create {
        /// Its settings, resolved by the primary.
        settings: Settings,
        /// Its clock.
        stamp: Stamp,
    },
    /// A chunk of a queue that an AOF rewrite wrote.
    Chunk(&'a [u8]),
    /// That was the last chunk.
    End,
}

/// An op as a message; `None` for the ops that travel as the user's own command.
#[must_use]
pub fn encode_op(op: &Op<'_>) -> Option<Vec<u8>> {
    let op = v1::Op::of(op)?;
    let mut bytes = vec![tag::OP_V1];
    codec::encode(&op, &mut bytes);
    Some(bytes)
}

/// A creation as a message.
#[must_use]
pub fn encode_create(settings: &Settings, stamp: Stamp) -> Vec<u8> {
    let mut bytes = vec![tag::CREATE_V1];
    codec::encode(&v1::Create { settings: settings.into(), clock: stamp.into() }, &mut bytes);
    bytes
}

/// A chunk as a message.
#[must_use]
pub fn encode_chunk(chunk: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(chunk.len().saturating_add(1));
    bytes.push(tag::CHUNK);
    bytes.extend_from_slice(chunk);
    bytes
}

/// The end of a sequence of chunks as a message.
#[must_use]
pub fn encode_end() -> Vec<u8> {
    vec![tag::END]
}

/// Reads a message.
///
/// # Errors
/// What is wrong with it.
pub fn decode(bytes: &[u8]) -> Result<Message<'_>, Corrupt> {
    let (&tag, mut rest) = bytes.split_first().ok_or("an empty message")?;
    let message = match tag {
        tag::CHUNK => return Ok(Message::Chunk(rest)),
        tag::END => Message::End,
        tag::OP_V1 => Message::Op(codec::decode::<v1::Op<'_>>(&mut rest)?.try_into()?),
        tag::CREATE_V1 => {
            let create: v1::Create = codec::decode(&mut rest)?;
            Message::Create { settings: create.settings.try_into()?, stamp: create.clock.try_into()? }
        }
        _ => return Err(format!("a message of kind {tag} is unknown").into()),
    };
    if rest.is_empty() { Ok(message) } else { Err("bytes are left over".into()) }
}

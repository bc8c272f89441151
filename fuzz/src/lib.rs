//! The core of the module and the targets, compiled for libFuzzer.
//!
//! The module itself is a `cdylib` that only a server can load; its core needs no server, so it is taken in as source.
#![allow(missing_docs, dead_code)]

#[path = "../../src/persist/mod.rs"]
pub mod persist;
#[path = "../../src/queue/mod.rs"]
pub mod queue;

#[path = "../../src/queue/tests/memory.rs"]
mod memory;
#[path = "../../src/queue/tests/targets.rs"]
pub mod targets;

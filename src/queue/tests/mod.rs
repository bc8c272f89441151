//! Tests of the whole queue, from many and fast to few and slow.
//!
//! Each of them drives a [`harness::Twin`]: the queue and a second, obvious one side by side,
//! compared after every op. `scenarios` are stories for people, `worlds` tries all short
//! histories of a small world, `simulation` tries random long ones, `formats` is about bytes,
//! `bounds` about memory and work, `paging` about listings under change, `targets` and `corpus` are what
//! the fuzzer uses and found.

mod bounds;
mod corpus;
mod extremes;
mod formats;
mod groups;
mod harness;
mod memory;
mod model;
mod paging;
mod random;
mod scenarios;
mod simulation;
mod targets;
mod worlds;

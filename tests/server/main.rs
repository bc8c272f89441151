//! The module as a client sees it: black-box tests against real servers. See `tests/common` for how they are run.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]

#[path = "../common/mod.rs"]
mod common;

mod blocking;
mod bytes;
mod clocks;
mod cluster;
mod errors;
mod formats;
mod groups;
mod hostile;
mod keys;
mod monitoring;
mod moves;
mod operators;
mod outputs;
mod persistence;
mod producers;
mod races;
mod readme;
mod recovery;
mod replication;
mod results;
mod security;
mod server_settings;
mod soak;
mod time;
mod trials;
mod unique;
mod workers;
mod write_safety;

use std::process::ExitCode;

fn main() -> ExitCode {
    common::run(&[
        ("producers", producers::TESTS),
        ("unique", unique::TESTS),
        ("workers", workers::TESTS),
        ("blocking", blocking::TESTS),
        ("recovery", recovery::TESTS),
        ("results", results::TESTS),
        ("outputs", outputs::TESTS),
        ("operators", operators::TESTS),
        ("monitoring", monitoring::TESTS),
        ("groups", groups::TESTS),
        ("errors", errors::TESTS),
        ("bytes", bytes::TESTS),
        ("hostile", hostile::TESTS),
        ("formats", formats::TESTS),
        ("races", races::TESTS),
        ("time", time::TESTS),
        ("clocks", clocks::TESTS),
        ("cluster", cluster::TESTS),
        ("keys", keys::TESTS),
        ("moves", moves::TESTS),
        ("persistence", persistence::TESTS),
        ("replication", replication::TESTS),
        ("server_settings", server_settings::TESTS),
        ("security", security::TESTS),
        ("trials", trials::TESTS),
        ("write_safety", write_safety::TESTS),
        ("soak", soak::TESTS),
        ("readme", readme::TESTS),
    ])
}

//! A server's clocks, to be set by a test: a small library that is preloaded into the server shifts them.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::unix_ms;

/// The clocks of the servers that are started with it.
pub struct Clock {
    library: PathBuf,
    file: PathBuf,
}

impl Clock {
    /// Clocks that go right. Makes the library, in `dir`.
    pub fn new(dir: &Path, number: usize) -> Self {
        let library = dir.join(format!("clock-{number}.so"));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/clock.c");
        let status =
            Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).status();
        assert!(status.is_ok_and(|status| status.success()), "cc {source}");
        let file = dir.join(format!("clock-{number}"));
        fs::write(&file, [0; 16]).expect("a file for the clock");
        Self { library, file }
    }

    /// What a server needs in its environment.
    pub fn environment(&self) -> Vec<(String, String)> {
        vec![
            ("LD_PRELOAD".into(), self.library.display().to_string()),
            ("RQ_TEST_CLOCK".into(), self.file.display().to_string()),
        ]
    }

    /// The wall clock steps: from now on it differs by so many ms from this machine's.
    pub fn set_wall(&self, shift_ms: i64) {
        self.write(0, shift_ms);
    }

    /// So many ms pass in a suspend: for both clocks, but not for the server.
    pub fn suspend(&self, ms: i64) {
        self.write(0, self.wall() + ms);
        self.write(8, ms);
    }

    /// Unix ms by this wall clock.
    pub fn unix_ms(&self) -> u64 {
        unix_ms().saturating_add_signed(self.wall())
    }

    fn wall(&self) -> i64 {
        let bytes = fs::read(&self.file).expect("the file of the clock");
        i64::from_ne_bytes(bytes[..8].try_into().expect("8 bytes")) / 1_000_000
    }

    fn write(&self, at: u64, ms: i64) {
        let file = File::options().write(true).open(&self.file).expect("the file of the clock");
        file.write_all_at(&(ms * 1_000_000).to_ne_bytes(), at).expect("the clock can be set");
    }
}

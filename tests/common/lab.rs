//! Runs every test against every server binary and tells which one failed, with the servers' logs.

use std::cell::Cell;
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};
use tempfile::TempDir;

use super::server::crash_in;
use super::{Clock, Server};

/// A test and its name, as the macro `tests!` lists them.
pub type Test = (&'static str, fn(&Lab));

/// Tests wait far more than they compute, so more of them than cores run at once.
const THREADS: usize = 4;

/// Where a test gets its servers from. They all end with it, and their logs are read when it fails.
pub struct Lab {
    binary: PathBuf,
    module: PathBuf,
    dir: TempDir,
    started: Cell<usize>,
}

impl Lab {
    /// A server that keeps everything in memory only.
    #[track_caller]
    pub fn server(&self) -> Server {
        self.server_with(&[])
    }

    /// A server with more lines of configuration.
    #[track_caller]
    pub fn server_with(&self, config: &[(&str, &str)]) -> Server {
        Server::start(&self.binary, Some(&self.module), self.next_dir(), config)
    }

    /// Clocks to be set, for [`Self::server_by`].
    pub fn clock(&self) -> Clock {
        let number = self.started.get();
        Clock::new(self.dir.path(), number)
    }

    /// A server that goes by these clocks.
    #[track_caller]
    pub fn server_by(&self, clock: &Clock, config: &[(&str, &str)]) -> Server {
        Server::start_in(&self.binary, Some(&self.module), self.next_dir(), config, clock.environment())
    }

    /// A server that has never heard of the module.
    #[track_caller]
    pub fn plain_server(&self) -> Server {
        Server::start(&self.binary, None, self.next_dir(), &[])
    }

    /// A replica, in step with its primary.
    #[track_caller]
    pub fn replica_of(&self, primary: &Server) -> Server {
        self.replica_with(primary, &[])
    }

    #[track_caller]
    pub fn replica_with(&self, primary: &Server, config: &[(&str, &str)]) -> Server {
        let source = format!("127.0.0.1 {}", primary.port);
        let mut lines = vec![("replicaof", source.as_str())];
        lines.extend_from_slice(config);
        let replica = self.server_with(&lines);
        primary.wait_for_sync(&replica);
        replica
    }

    /// The module file under test.
    pub fn module(&self) -> &Path {
        &self.module
    }

    fn next_dir(&self) -> PathBuf {
        let number = self.started.get();
        self.started.set(number + 1);
        self.dir.path().join(format!("server-{number}"))
    }

    fn logs(&self) -> Vec<(String, String)> {
        let mut logs = Vec::new();
        for number in 0..self.started.get() {
            let name = format!("server-{number}");
            logs.push((
                name.clone(),
                fs::read_to_string(self.dir.path().join(&name).join("log")).unwrap_or_default(),
            ));
        }
        logs
    }
}

/// Whether the long versions of the tests were asked for.
pub fn soak() -> bool {
    env::var("RQ_SOAK").is_ok_and(|value| !value.is_empty() && value != "0")
}

/// The `main` of a test binary.
pub fn run(modules: &[(&str, &[Test])]) -> ExitCode {
    let module = match find_module() {
        Ok(module) => module,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::FAILURE;
        }
    };
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(THREADS);
    let mut trials = Vec::new();
    for binary in find_servers() {
        let Some(version) = version_of(&binary) else {
            eprintln!("{} does not answer to --version as a redis-server does", binary.display());
            return ExitCode::FAILURE;
        };
        println!("redis-{}.{}.{} is {}", version.0, version.1, version.2, binary.display());
        for (theme, tests) in modules {
            for (name, test) in *tests {
                let name = format!("redis-{}.{}.{}::{theme}::{name}", version.0, version.1, version.2);
                let (binary, module, test) = (binary.clone(), module.clone(), *test);
                trials.push(Trial::test(name, move || run_one(binary, module, test)));
            }
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn run_one(binary: PathBuf, module: PathBuf, test: fn(&Lab)) -> Result<(), Failed> {
    let dir = tempfile::Builder::new().prefix("rq-").tempdir()?;
    let lab = Lab { binary, module, dir, started: Cell::new(0) };
    let outcome = catch_unwind(AssertUnwindSafe(|| test(&lab)));
    let mut report = match outcome {
        Ok(()) => String::new(),
        Err(payload) => {
            let text = payload.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or_default();
            format!("it panicked: {text}")
        }
    };
    for (server, log) in lab.logs() {
        if let Some(line) = crash_in(&log) {
            let _ = write!(report, "\n{server} crashed: {line}");
        }
    }
    if report.is_empty() {
        return Ok(());
    }
    for (server, log) in lab.logs() {
        let lines: Vec<&str> = log.lines().collect();
        // The beginning of a crash report tells where; else the end of the log is what matters.
        let crash = lines.iter().position(|line| crash_in(line).is_some());
        let from = crash.unwrap_or(lines.len().saturating_sub(40));
        let _ = write!(report, "\n--- log of {server}, from line {from}:");
        for line in lines.iter().skip(from.saturating_sub(10)).take(70) {
            let _ = write!(report, "\n    {line}");
        }
    }
    if env::var_os("RQ_KEEP").is_some() {
        let _ = write!(report, "\nkept, because of RQ_KEEP: {}", lab.dir.keep().display());
    }
    Err(report.into())
}

/// `RQ_MODULE`, else the module that cargo built together with this test: the one that cannot be out of date.
fn find_module() -> Result<PathBuf, String> {
    let path = match env::var_os("RQ_MODULE") {
        Some(path) => PathBuf::from(path),
        None => {
            let test = env::current_exe().map_err(|error| error.to_string())?;
            let profile = test.parent().and_then(Path::parent).unwrap_or(Path::new("."));
            profile.join(format!("libredis_rq.{}", env::consts::DLL_EXTENSION))
        }
    };
    path.canonicalize()
        .map_err(|error| format!("no module at {}: {error}; `cargo build` makes it", path.display()))
}

/// `RQ_SERVERS`, paths separated by colons, else the redis-server on the search path.
fn find_servers() -> Vec<PathBuf> {
    let list = env::var("RQ_SERVERS").unwrap_or_default();
    let list = if list.is_empty() { "redis-server".to_string() } else { list };
    list.split(':').filter(|path| !path.is_empty()).map(PathBuf::from).collect()
}

/// From `Redis server v=7.0.15 sha=…`.
fn version_of(binary: &Path) -> Option<(u32, u32, u32)> {
    let output = Command::new(binary).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut numbers = text.split("v=").nth(1)?.split_whitespace().next()?.split('.').map(str::parse::<u32>);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?))
}

//! One real redis-server process with the module loaded, in a folder of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use super::{Client, Reply, eventually, until};

/// Ports below the range from which Linux takes the local ports of outgoing connections, so that only another test
/// server can be in the way; then the start is tried again with the next one.
const PORTS: std::ops::Range<u16> = 12_000..32_000;
static NEXT_PORT: AtomicU16 = AtomicU16::new(0);

/// What a log must never hold, however a test ends.
const CRASHES: [&str; 5] =
    ["REDIS BUG REPORT", "ASSERTION FAILED", "rq: panic", "panicked at", "Guru Meditation"];

pub struct Server {
    binary: PathBuf,
    child: Option<Child>,
    pub port: u16,
    pub dir: PathBuf,
    config: Vec<(String, String)>,
    environment: Vec<(String, String)>,
}

impl Server {
    /// Starts a server in `dir`. `config` holds lines of redis.conf, as name and value; later ones win.
    #[track_caller]
    pub fn start(binary: &Path, module: Option<&Path>, dir: PathBuf, config: &[(&str, &str)]) -> Self {
        Self::start_in(binary, module, dir, config, Vec::new())
    }

    /// The same with more variables in its environment.
    #[track_caller]
    pub fn start_in(
        binary: &Path,
        module: Option<&Path>,
        dir: PathBuf,
        config: &[(&str, &str)],
        environment: Vec<(String, String)>,
    ) -> Self {
        fs::create_dir_all(&dir).expect("a folder for the server");
        let mut lines: Vec<(String, String)> = [
            ("bind", "127.0.0.1"),
            ("save", "\"\""),
            ("appendonly", "no"),
            ("enable-debug-command", "yes"),
            // A replica or an AOF loader that cannot apply what it was given is a fault of ours: let it end the server.
            ("propagation-error-behavior", "panic"),
            // A replica gets its copy without a wait for others that might also want one.
            ("repl-diskless-sync-delay", "0"),
            ("repl-ping-replica-period", "1"),
            ("logfile", "log"),
        ]
        .iter()
        .chain(config)
        .map(|(name, value)| ((*name).to_string(), (*value).to_string()))
        .collect();
        if let Some(module) = module {
            lines.push(("loadmodule".into(), module.display().to_string()));
        }
        let mut server =
            Self { binary: binary.to_path_buf(), child: None, port: 0, dir, config: lines, environment };
        loop {
            server.port = free_port();
            match server.launch() {
                Ok(()) => return server,
                Err(log) if log.contains("Address already in use") => {}
                Err(log) => panic!("the server did not start:\n{log}"),
            }
        }
    }

    /// Starts the process and waits until it answers; the log, if it ends instead.
    fn launch(&mut self) -> Result<(), String> {
        let mut text = String::new();
        for (name, value) in &self.config {
            text.push_str(&format!("{name} {value}\n"));
        }
        let file = self.dir.join("redis.conf");
        fs::write(&file, text).expect("the configuration can be written");
        let mut command = Command::new(&self.binary);
        ends_with_us(&mut command);
        let child = command
            .arg(&file)
            .args(["--port", &self.port.to_string(), "--dir"])
            .arg(&self.dir)
            .current_dir(&self.dir)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", self.binary.display()));
        let pid = child.id();
        self.child = Some(child);
        eventually("the server answers", || {
            if !self.is_running() {
                self.child = None;
                return Some(Err(self.log()));
            }
            let mut client = Client::try_connect(self.port)?;
            client.try_send(crate::args!["INFO"]).ok()?;
            let Reply::Bulk(info) = client.try_read_within(super::PATIENCE).ok()?? else { return None };
            let info = String::from_utf8_lossy(&info);
            // Another server may have this port; and this one may still be loading.
            let is_ready = info.contains(&format!("process_id:{pid}\r")) && info.contains("\nloading:0\r");
            is_ready.then_some(Ok(()))
        })
    }

    /// Starts it again after it ended, in the same folder, on the same port.
    #[track_caller]
    pub fn restart(&mut self) {
        assert!(self.child.is_none(), "it is still running");
        self.launch().unwrap_or_else(|log| panic!("the server did not start again:\n{log}"));
    }

    /// Starts it again; the log, if it refuses to.
    pub fn try_restart(&mut self) -> Result<(), String> {
        assert!(self.child.is_none(), "it is still running");
        self.launch()
    }

    /// The most memory that the process had since [`Self::forget_peak`], and what it has now, bytes; on Linux. What the
    /// server itself tells as its peak is what it saw ten times a second. Not with AddressSanitizer, which holds freed memory
    /// back.
    pub fn resident(&self) -> Option<(i64, i64)> {
        if std::env::var_os("RQ_SANITIZED").is_some() {
            return None;
        }
        let pid = self.child.as_ref()?.id();
        let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let number = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.trim().strip_suffix(" kB")?.parse::<i64>().ok()? * 1024)
        };
        Some((number("VmHWM:")?, number("VmRSS:")?))
    }

    /// Lets the peak of [`Self::resident`] begin anew.
    pub fn forget_peak(&self) {
        if let Some(child) = &self.child {
            let _ = fs::write(format!("/proc/{}/clear_refs", child.id()), "5");
        }
    }

    /// The program that it runs.
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// Starts it again and expects that it refuses to.
    #[track_caller]
    pub fn restart_refused(&mut self) {
        assert!(self.launch().is_err(), "the server should have refused to start");
    }

    /// Sets a line of the configuration for the next start.
    pub fn configure(&mut self, name: &str, value: &str) {
        self.config.retain(|(known, _)| known != name);
        self.config.push((name.to_string(), value.to_string()));
    }

    pub fn without_module(&mut self) {
        self.config.retain(|(name, _)| name != "loadmodule");
    }

    /// A new connection, RESP2.
    #[track_caller]
    pub fn client(&self) -> Client {
        Client::connect(self.port)
    }

    /// A new connection, RESP3.
    #[track_caller]
    pub fn client3(&self) -> Client {
        self.client().resp3()
    }

    pub fn is_running(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Ends it as a crash of the machine's process would: SIGKILL.
    pub fn kill9(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// An orderly end; what the configuration says about saving is done.
    #[track_caller]
    pub fn shutdown(&mut self) {
        self.client().send(crate::args!["SHUTDOWN"]);
        self.wait_for_exit();
    }

    /// An orderly end that writes an RDB file first.
    #[track_caller]
    pub fn shutdown_saving(&mut self) {
        self.client().send(crate::args!["SHUTDOWN", "SAVE"]);
        self.wait_for_exit();
    }

    #[track_caller]
    fn wait_for_exit(&mut self) {
        until("the server ends", || !self.is_running());
        self.child = None;
    }

    /// Sends a signal by its name, for instance `STOP` and `CONT`.
    pub fn signal(&self, name: &str) {
        let pid = self.child.as_ref().expect("a running server").id();
        let status = Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status();
        assert!(status.is_ok_and(|status| status.success()), "kill -{name}");
    }

    /// One line of `INFO`.
    #[track_caller]
    pub fn info(&self, name: &str) -> String {
        let reply = self.client().run(crate::args!["INFO", "everything"]);
        let text = String::from_utf8_lossy(reply.bytes()).into_owned();
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        let value = lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value);
        value.unwrap_or_else(|| panic!("no {name} in INFO")).trim().to_string()
    }

    #[track_caller]
    pub fn info_number(&self, name: &str) -> i64 {
        let text = self.info(name);
        text.parse().unwrap_or_else(|_| panic!("{name} is {text}"))
    }

    /// Waits until a replica has everything that the primary has written so far.
    #[track_caller]
    pub fn wait_for_sync(&self, replica: &Server) {
        until("the replica is up to date", || {
            replica.info("role") == "slave"
                && replica.info("master_link_status") == "up"
                && replica.info_number("slave_repl_offset") >= self.info_number("master_repl_offset")
        });
    }

    /// The digest of a key's whole content.
    #[track_caller]
    pub fn digest(&self, key: &str) -> String {
        self.client().run(crate::args!["DEBUG", "DIGEST-VALUE", key]).texts()[0].clone()
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill9();
    }
}

/// However this process ends, its servers end too.
#[cfg(target_os = "linux")]
fn ends_with_us(command: &mut Command) {
    use std::os::unix::process::CommandExt;

    // SAFETY: between fork and exec only a system call is made, which touches no memory.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
}

#[cfg(not(target_os = "linux"))]
fn ends_with_us(_: &mut Command) {}

/// Why the server whose log this is must be called crashed, if it must.
pub fn crash_in(log: &str) -> Option<&str> {
    log.lines().find(|line| CRASHES.iter().any(|crash| line.contains(crash)))
}

fn free_port() -> u16 {
    let span = PORTS.end - PORTS.start;
    // Different test processes begin at different places.
    let begin = u16::try_from(std::process::id() * 61 % u32::from(span)).unwrap_or_default();
    loop {
        let step = NEXT_PORT.fetch_add(1, Ordering::Relaxed);
        let port = PORTS.start + (begin.wrapping_add(step)) % span;
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

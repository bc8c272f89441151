//! Settings of a queue and the options of a job that override them.

/// What a queue goes by. `None` means "no limit". Durations in ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How long a delivery may be held without a sign of life.
    pub lease: u64,
    /// The n-th failure is the last.
    pub attempts: Option<u32>,
    /// So many lapses are forgiven.
    pub crashes: Option<u32>,
    /// Wait after a failure, or after a lapse beyond the first.
    pub backoff: Backoff,
    /// How long a done job without a result stays.
    pub ttl: Option<u64>,
    /// How long a done job with a result, or a cancelled job, stays.
    pub result_ttl: Option<u64>,
    /// How long a dead job stays.
    pub dead_ttl: Option<u64>,
    /// Most done and cancelled jobs kept, together.
    pub keep_done: Option<u64>,
    /// Most dead jobs kept.
    pub keep_dead: Option<u64>,
    /// Most waiting jobs (delayed and ready).
    pub max_len: Option<u64>,
    /// How long a worker that holds nothing is remembered after its last sign of life.
    pub worker_ttl: Option<u64>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lease: 30_000,
            attempts: Some(3),
            crashes: Some(5),
            backoff: Backoff { base: 1_000, max: 3_600_000 },
            ttl: Some(0),
            result_ttl: Some(3_600_000),
            dead_ttl: Some(2_592_000_000),
            keep_done: None,
            keep_dead: Some(10_000),
            max_len: None,
            worker_ttl: Some(300_000),
        }
    }
}

/// Exponential back-off, in ms. See [`super::backoff`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The first wait.
    pub base: u64,
    /// No wait is longer.
    pub max: u64,
}

/// A change of some settings: `None` leaves one as it is, `Some(None)` takes a limit away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // named as in `Settings`
pub struct SettingsPatch {
    pub lease: Option<u64>,
    pub attempts: Option<Option<u32>>,
    pub crashes: Option<Option<u32>>,
    pub backoff: Option<Backoff>,
    pub ttl: Option<Option<u64>>,
    pub result_ttl: Option<Option<u64>>,
    pub dead_ttl: Option<Option<u64>>,
    pub keep_done: Option<Option<u64>>,
    pub keep_dead: Option<Option<u64>>,
    pub max_len: Option<Option<u64>>,
    pub worker_ttl: Option<Option<u64>>,
}

impl Settings {
    /// These settings with the patch laid over them.
    #[must_use]
    pub fn patched(&self, patch: &SettingsPatch) -> Self {
        Self {
            lease: patch.lease.unwrap_or(self.lease),
            attempts: patch.attempts.unwrap_or(self.attempts),
            crashes: patch.crashes.unwrap_or(self.crashes),
            backoff: patch.backoff.unwrap_or(self.backoff),
            ttl: patch.ttl.unwrap_or(self.ttl),
            result_ttl: patch.result_ttl.unwrap_or(self.result_ttl),
            dead_ttl: patch.dead_ttl.unwrap_or(self.dead_ttl),
            keep_done: patch.keep_done.unwrap_or(self.keep_done),
            keep_dead: patch.keep_dead.unwrap_or(self.keep_dead),
            max_len: patch.max_len.unwrap_or(self.max_len),
            worker_ttl: patch.worker_ttl.unwrap_or(self.worker_ttl),
        }
    }
}

/// What `RQ.ENQUEUE` said for one job; `None` means "as the queue says when it matters".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobOptions {
    /// The n-th failure is the last (`Some(None)`: never).
    pub attempts: Option<Option<u32>>,
    /// So many lapses are forgiven (`Some(None)`: all).
    pub crashes: Option<Option<u32>>,
    /// Wait after a failure or a further lapse.
    pub backoff: Option<Backoff>,
    /// Lease of its deliveries, ms.
    pub lease: Option<u64>,
    /// How long it stays when done or cancelled, ms (`Some(None)`: for ever).
    pub ttl: Option<Option<u64>>,
    /// Time within which it must be claimed first, ms since it was enqueued or redriven.
    pub deadline: Option<u64>,
}

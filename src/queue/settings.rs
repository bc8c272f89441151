//! Settings of queues, tenants and groups, and the options of a job.

use super::rate::Rate;

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
    /// Most bytes in the output of a job.
    pub max_output: u64,
    /// How long a worker that holds nothing is remembered after its last sign of life.
    pub worker_ttl: Option<u64>,
    /// Most jobs active at once.
    pub concurrency: Option<u32>,
    /// Claims per time.
    pub rate: Option<Rate>,
    /// What groups go by that have nothing of their own.
    pub group: GroupDefaults,
}

/// What a group goes by; `None` means "no limit". Durations in ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupDefaults {
    /// Most of its jobs active at once.
    pub concurrency: Option<u32>,
    /// Claims per time.
    pub rate: Option<Rate>,
    /// How long its circuit stays open.
    pub backoff: Backoff,
    /// One at a time, in order of arrival; a job that waits for its retry holds up the others.
    pub ordered: bool,
}

impl Default for GroupDefaults {
    fn default() -> Self {
        Self {
            concurrency: None,
            rate: None,
            backoff: Backoff { base: 5_000, max: 3_600_000 },
            ordered: false,
        }
    }
}

/// What was set on a group itself; `None`: as the queue's defaults say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // named as in `GroupDefaults`
pub struct GroupSettings {
    pub concurrency: Option<Option<u32>>,
    pub rate: Option<Option<Rate>>,
    pub backoff: Option<Backoff>,
    pub ordered: Option<bool>,
}

impl GroupSettings {
    /// What the group goes by.
    #[must_use]
    pub fn over(&self, defaults: &GroupDefaults) -> GroupDefaults {
        GroupDefaults {
            concurrency: self.concurrency.unwrap_or(defaults.concurrency),
            rate: self.rate.unwrap_or(defaults.rate),
            backoff: self.backoff.unwrap_or(defaults.backoff),
            ordered: self.ordered.unwrap_or(defaults.ordered),
        }
    }

    /// These settings with the patch laid over them.
    #[must_use]
    pub fn patched(&self, patch: &GroupPatch) -> Self {
        Self {
            concurrency: patch.concurrency.unwrap_or(self.concurrency),
            rate: patch.rate.unwrap_or(self.rate),
            backoff: patch.backoff.unwrap_or(self.backoff),
            ordered: patch.ordered.unwrap_or(self.ordered),
        }
    }
}

/// A change of a group's settings: `None` leaves one as it is, `Some(None)` gives it back to the
/// queue's defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, clippy::option_option)] // named as in `GroupDefaults`
pub struct GroupPatch {
    pub concurrency: Option<Option<Option<u32>>>,
    pub rate: Option<Option<Option<Rate>>>,
    pub backoff: Option<Option<Backoff>>,
    pub ordered: Option<Option<bool>>,
}

/// What a tenant goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantSettings {
    /// Its share of the claims beside other tenants, at least 1.
    pub weight: u32,
    /// Most of its jobs active at once.
    pub concurrency: Option<u32>,
    /// Claims per time.
    pub rate: Option<Rate>,
}

impl Default for TenantSettings {
    fn default() -> Self {
        Self { weight: 1, concurrency: None, rate: None }
    }
}

impl TenantSettings {
    /// These settings with the patch laid over them.
    #[must_use]
    pub fn patched(&self, patch: &TenantPatch) -> Self {
        Self {
            weight: patch.weight.unwrap_or(self.weight),
            concurrency: patch.concurrency.unwrap_or(self.concurrency),
            rate: patch.rate.unwrap_or(self.rate),
        }
    }
}

/// A change of a tenant's settings: `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // named as in `TenantSettings`
pub struct TenantPatch {
    pub weight: Option<u32>,
    pub concurrency: Option<Option<u32>>,
    pub rate: Option<Option<Rate>>,
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
            max_output: 1024 * 1024,
            worker_ttl: Some(300_000),
            concurrency: None,
            rate: None,
            group: GroupDefaults::default(),
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
    pub max_output: Option<u64>,
    pub worker_ttl: Option<Option<u64>>,
    pub concurrency: Option<Option<u32>>,
    pub rate: Option<Option<Rate>>,
    pub group_concurrency: Option<Option<u32>>,
    pub group_rate: Option<Option<Rate>>,
    pub group_backoff: Option<Backoff>,
    pub group_ordered: Option<bool>,
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
            max_output: patch.max_output.unwrap_or(self.max_output),
            worker_ttl: patch.worker_ttl.unwrap_or(self.worker_ttl),
            concurrency: patch.concurrency.unwrap_or(self.concurrency),
            rate: patch.rate.unwrap_or(self.rate),
            group: GroupDefaults {
                concurrency: patch.group_concurrency.unwrap_or(self.group.concurrency),
                rate: patch.group_rate.unwrap_or(self.group.rate),
                backoff: patch.group_backoff.unwrap_or(self.group.backoff),
                ordered: patch.group_ordered.unwrap_or(self.group.ordered),
            },
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

//! `RQ.METRICS`: the queues of a database as OpenMetrics text, for Prometheus and what reads the same.
//!
//! Bounded in three ways: so many queues, so many groups and workers looked at in all, and so many groups
//! shown. What is left out is counted in series of its own, so that nobody takes a part for the whole.

use std::fmt::Write;

use super::docs::{self, Docs};
use super::views::living_and_stale;
use super::{Access, Keys, Row, entry};
use crate::queue::limits::LIST_SCAN_MAX;
use crate::queue::{Census, Hold, Holder, State};
use crate::server::call::{Call, Seen, Waiting};
use crate::server::reply::Refusal;

/// The commands of this file.
pub const ROWS: &[Row] = &[Row {
    name: c"RQ.METRICS",
    entry: entry!(metrics, c"rq.metrics"),
    flags: c"readonly",
    arity: -1,
    keys: Keys::None,
    access: Access::Reads,
    categories: c"read slow dangerous",
    docs: &Docs {
        summary: "Tells the figures of the queues of the selected database as OpenMetrics text.",
        complexity: "O(Q + G + W) with Q the queues, at most 200, and G and W their groups and workers, of which 10,000 are looked at in all",
        since: "0.1.0",
        reply: "text in the OpenMetrics format",
        args: &[docs::text("queue").optional().multiple(), docs::token("GROUPS").optional()],
    },
}];

/// Most queues in one reply.
pub const QUEUES_MAX: usize = 200;
/// Most groups in one reply.
pub const GROUPS_MAX: usize = 1_000;

/// `RQ.METRICS [queue ...] [GROUPS]`
pub fn metrics(call: &mut Call<'_>) -> Result<(), Refusal> {
    let args = call.args();
    let with_groups = args.len() > 1
        && args.get(args.len().saturating_sub(1)).is_some_and(|word| word.eq_ignore_ascii_case(GROUPS));
    let end = if with_groups { args.len().saturating_sub(1) } else { args.len() };
    let names: Vec<&[u8]> = (1..end).filter_map(|at| args.get(at)).collect();
    let mut page = Page { groups_left: if with_groups { GROUPS_MAX } else { 0 }, ..Page::default() };
    let db = call.db();
    let total = call.look_at(&names, QUEUES_MAX, |name, seen, waiting, queues_left| {
        page.add(db, name, seen, waiting, queues_left);
    });
    let text = page.text(db, total, with_groups, &call.counted());
    call.out().bulk(text.as_bytes());
    Ok(())
}

const GROUPS: &[u8] = b"GROUPS";

/// What the server counted by itself: name, help, and how often since it was started.
pub type Counted = (&'static str, &'static str, u64);

/// What is shown.
struct Page {
    queues: Vec<Facts>,
    groups: Vec<GroupFacts>,
    groups_left: usize,
    groups_omitted: usize,
    /// Groups and workers that may still be looked at.
    looks_left: usize,
}

impl Default for Page {
    fn default() -> Self {
        Self {
            queues: Vec::new(),
            groups: Vec::new(),
            groups_left: 0,
            groups_omitted: 0,
            looks_left: LIST_SCAN_MAX,
        }
    }
}

/// Figures of one queue.
struct Facts {
    /// `db="0",queue="name"`
    labels: String,
    jobs: [usize; State::ALL.len()],
    /// ms.
    oldest: Option<u64>,
    /// p50, p90, p99, max, ms.
    waits: [Option<u64>; 4],
    runs: [Option<u64>; 4],
    totals: [(&'static str, u64); 12],
    bytes: usize,
    paused: bool,
    max_len: Option<u64>,
    living: usize,
    stale: usize,
    /// Workers not looked at.
    unknown: usize,
    waiting: usize,
    census: Census,
}

/// Figures of one group.
struct GroupFacts {
    labels: String,
    jobs: [usize; State::ALL.len()],
    oldest: Option<u64>,
    held: Option<(Hold, Holder)>,
}

const QUANTILES: [&str; 4] = ["0.5", "0.9", "0.99", "1"];

impl Page {
    /// Adds a queue; `queues_left` are still to come, this one included. What one does not look at is
    /// left for the others, so that none hides them.
    fn add(&mut self, db: i32, name: &[u8], seen: Seen<'_>, waiting: &Waiting, queues_left: usize) {
        let queue = seen.queue;
        let age = |since: Option<u64>| since.map(|since| seen.now.saturating_sub(since));
        let share = self.looks_left.checked_div(queues_left).unwrap_or(0);
        let census = queue.census(seen.now, share);
        // Of all of them, not only of those looked at.
        let census = Census { eligible: queue.eligible_groups(), ..census };
        let looked = queue.worker_count().min(share.saturating_sub(census.looked_at));
        let (living, stale) = living_and_stale(seen, waiting, looked);
        self.looks_left = self.looks_left.saturating_sub(census.looked_at).saturating_sub(looked);
        let (waits, runs) = queue.waits_and_runs(seen.now);
        let quantiles = |histogram: &crate::queue::Histogram| {
            [histogram.percentile(50), histogram.percentile(90), histogram.percentile(99), histogram.max()]
        };
        let labels = format!("db=\"{db}\",queue=\"{}\"", label(name));
        if self.groups_left > 0 || self.groups_omitted > 0 {
            let shown = queue.groups_after(None).take(self.groups_left);
            let before = self.groups.len();
            self.groups.extend(shown.map(|group| {
                let name = group.name();
                GroupFacts {
                    labels: format!(
                        "{labels},tenant=\"{}\",group=\"{}\"",
                        label(name.tenant),
                        label(name.group)
                    ),
                    jobs: State::ALL.map(|state| group.count(state)),
                    oldest: age(group.oldest_ready()),
                    held: group.hold_at(seen.now).filter(|_| group.count(State::Ready) > 0),
                }
            }));
            let shown = self.groups.len().saturating_sub(before);
            self.groups_left = self.groups_left.saturating_sub(shown);
            let left_out = queue.group_count().saturating_sub(shown);
            self.groups_omitted = self.groups_omitted.saturating_add(left_out);
        }
        self.queues.push(Facts {
            labels,
            jobs: State::ALL.map(|state| queue.count(state)),
            oldest: age(census.oldest_ready),
            waits: quantiles(&waits),
            runs: quantiles(&runs),
            totals: queue.totals().named(),
            bytes: queue.memory(),
            paused: queue.paused_until().is_some_and(|until| until > seen.now),
            max_len: queue.settings().max_len,
            living,
            stale,
            unknown: queue.worker_count().saturating_sub(looked),
            waiting: waiting.len(),
            census,
        });
    }

    fn text(&self, db: i32, total: usize, with_groups: bool, counted: &[Counted]) -> String {
        let mut text = Text(String::with_capacity(4_096));
        text.family(
            "rq_queues",
            "gauge",
            "Queues asked for, or all of this database; a name of no queue does not count.",
        );
        text.sample("rq_queues", &format!("db=\"{db}\""), "", total);
        text.family("rq_queues_omitted", "gauge", "Queues of these that are not shown: 0 but for very many.");
        text.sample(
            "rq_queues_omitted",
            &format!("db=\"{db}\""),
            "",
            total.saturating_sub(self.queues.len()),
        );
        self.write_jobs(&mut text);
        self.write_times(&mut text);
        self.write_rest(&mut text);
        if with_groups {
            self.write_groups(&mut text, db);
        }
        for (name, help, count) in counted {
            let family = name.strip_suffix("_total");
            text.family(family.unwrap_or(name), if family.is_some() { "counter" } else { "gauge" }, help);
            text.sample(name, "", "", count);
        }
        text.0.push_str("# EOF\n");
        text.0
    }

    fn write_jobs(&self, text: &mut Text) {
        text.family("rq_jobs", "gauge", "Jobs by state.");
        for queue in &self.queues {
            for (state, count) in State::ALL.iter().zip(queue.jobs) {
                text.sample("rq_jobs", &queue.labels, &format!("state=\"{}\"", state.name()), count);
            }
        }
        text.family(
            "rq_max_waiting_jobs",
            "gauge",
            "MAXLEN, if there is one: delayed and ready jobs are no more.",
        );
        for queue in &self.queues {
            if let Some(limit) = queue.max_len {
                text.sample("rq_max_waiting_jobs", &queue.labels, "", limit);
            }
        }
        text.family("rq_events", "counter", "What happened to jobs since the queue was made.");
        for queue in &self.queues {
            for (event, count) in queue.totals {
                text.sample("rq_events_total", &queue.labels, &format!("event=\"{event}\""), count);
            }
        }
    }

    fn write_times(&self, text: &mut Text) {
        let name = "rq_oldest_ready_age_seconds";
        text.family(
            name,
            "gauge",
            "For how long the ready job that waits longest could have run; 0: none waits.",
        );
        for queue in &self.queues {
            text.sample(name, &queue.labels, "", Seconds(queue.oldest.unwrap_or(0)));
        }
        let of_waits: fn(&Facts) -> [Option<u64>; 4] = |queue| queue.waits;
        let waits = ("rq_wait_seconds", "From ready to claimed, of the last minutes.", of_waits);
        let of_runs: fn(&Facts) -> [Option<u64>; 4] = |queue| queue.runs;
        let runs =
            ("rq_run_seconds", "From claimed to acknowledged or failed, of the last minutes.", of_runs);
        for (name, help, of) in [waits, runs] {
            text.family(name, "gauge", help);
            for queue in &self.queues {
                for (quantile, value) in QUANTILES.iter().zip(of(queue)) {
                    if let Some(value) = value {
                        let quantile = format!("quantile=\"{quantile}\"");
                        text.sample(name, &queue.labels, &quantile, Seconds(value));
                    }
                }
            }
        }
    }

    fn write_rest(&self, text: &mut Text) {
        text.family("rq_paused", "gauge", "1 if the queue is paused.");
        for queue in &self.queues {
            text.sample("rq_paused", &queue.labels, "", u8::from(queue.paused));
        }
        text.family("rq_memory_bytes", "gauge", "Memory of the queue, approximately.");
        for queue in &self.queues {
            text.sample("rq_memory_bytes", &queue.labels, "", queue.bytes);
        }
        text.family("rq_workers", "gauge", "Registered workers: heard of within WORKERTTL, or not.");
        for queue in &self.queues {
            text.sample("rq_workers", &queue.labels, "state=\"live\"", queue.living);
            text.sample("rq_workers", &queue.labels, "state=\"stale\"", queue.stale);
            text.sample("rq_workers", &queue.labels, "state=\"unknown\"", queue.unknown);
        }
        text.family("rq_waiting_workers", "gauge", "Workers that wait for a job now.");
        for queue in &self.queues {
            text.sample("rq_waiting_workers", &queue.labels, "", queue.waiting);
        }
        text.family("rq_groups", "gauge", "Groups: served, empty, or by what holds them back.");
        for queue in &self.queues {
            text.sample("rq_groups", &queue.labels, "state=\"eligible\"", queue.census.eligible);
            text.sample("rq_groups", &queue.labels, "state=\"empty\"", queue.census.empty);
            for (hold, count) in Hold::NAMES.iter().zip(queue.census.held) {
                text.sample("rq_groups", &queue.labels, &format!("state=\"{hold}\""), count);
            }
        }
    }

    fn write_groups(&self, text: &mut Text, db: i32) {
        text.family("rq_groups_omitted", "gauge", "Groups of these queues that are not shown.");
        text.sample("rq_groups_omitted", &format!("db=\"{db}\""), "", self.groups_omitted);
        text.family("rq_group_jobs", "gauge", "Jobs of a group by state.");
        for group in &self.groups {
            for (state, count) in State::ALL.iter().zip(group.jobs) {
                text.sample("rq_group_jobs", &group.labels, &format!("state=\"{}\"", state.name()), count);
            }
        }
        let name = "rq_group_oldest_ready_age_seconds";
        text.family(name, "gauge", "For how long the group's ready job that waits longest could have run.");
        for group in &self.groups {
            text.sample(name, &group.labels, "", Seconds(group.oldest.unwrap_or(0)));
        }
        text.family("rq_group_held", "gauge", "1: ready jobs of the group are held back, why and by whom.");
        for group in &self.groups {
            if let Some((hold, holder)) = group.held {
                let why = format!("reason=\"{}\",by=\"{}\"", hold.name(), holder.name());
                text.sample("rq_group_held", &group.labels, &why, 1);
            }
        }
    }
}

/// Milliseconds, shown as seconds.
struct Seconds(u64);

impl std::fmt::Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1_000, self.0 % 1_000)
    }
}

struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "# TYPE {name} {kind}");
        for unit in ["seconds", "bytes"] {
            if name.ends_with(unit) {
                let _ = writeln!(self.0, "# UNIT {name} {unit}");
            }
        }
        let _ = writeln!(self.0, "# HELP {name} {help}");
    }

    fn sample(&mut self, name: &str, labels: &str, more: &str, value: impl std::fmt::Display) {
        let comma = if labels.is_empty() || more.is_empty() { "" } else { "," };
        let _ = if labels.is_empty() && more.is_empty() {
            writeln!(self.0, "{name} {value}")
        } else {
            writeln!(self.0, "{name}{{{labels}{comma}{more}}} {value}")
        };
    }
}

/// A name as the value of a label. Different names give different values: what is not plain text is
/// shown as `bytes:` and its bytes escaped, and so is what looks like that.
fn label(name: &[u8]) -> String {
    const MARK: &str = "bytes:";
    let plain = std::str::from_utf8(name).ok();
    let plain = plain.filter(|text| !text.starts_with(MARK) && !text.chars().any(char::is_control));
    let text = plain.map_or_else(|| format!("{MARK}{}", name.escape_ascii()), String::from);
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::{
        Effects, Enqueue, GroupName, JobOptions, Op, Payloads, Queue, Scope, Settings, Stamp,
    };
    use crate::server::call::Waiting;

    fn queue(groups: usize) -> Queue {
        let now = 1_700_000_000_000;
        let stamp = Stamp { now, wall: now, ..Stamp::default() };
        let mut queue = Queue::new(Settings::default(), stamp);
        for number in 0..groups {
            let name = format!("g{number}");
            let enqueue = Enqueue {
                payloads: Payloads::One(b"p"),
                id: None,
                unique: None,
                group: GroupName { tenant: b"t", group: name.as_bytes() },
                when: None,
                priority: 0,
                options: JobOptions::default(),
            };
            queue.apply(&Op::Enqueue(enqueue), &mut Effects::default()).unwrap();
        }
        queue
    }

    fn seen(queue: &Queue) -> Seen<'_> {
        Seen { queue, now: queue.now() + 1_500, wall: queue.wall() + 1_500 }
    }

    #[test]
    fn different_names_have_different_labels() {
        let names: [&[u8]; 9] = [
            b"mail",
            b"\xff",
            b"\\xff",
            b"bytes:\\xff",
            b"a\nb",
            b"a\\nb",
            b"a\"b",
            b"a\\\"b",
            "\u{fffd}".as_bytes(),
        ];
        let labels: std::collections::BTreeSet<String> = names.iter().map(|name| label(name)).collect();
        assert_eq!(labels.len(), names.len());
        assert!(labels.iter().all(|label| !label.contains('\n')));
        assert_eq!(label(b"a\"b\\"), "a\\\"b\\\\");
    }

    #[test]
    fn a_page_is_bounded_and_says_what_it_leaves_out() {
        let crowded = queue(LIST_SCAN_MAX + 5);
        let mut page = Page { groups_left: GROUPS_MAX, ..Page::default() };
        page.add(0, b"crowded", seen(&crowded), &Waiting::new(), 1);
        assert_eq!(page.looks_left, 0);
        let text = page.text(
            0,
            7,
            true,
            &[("rq_waiting_clients", "Clients.", 3), ("rq_sweeps_total", "Sweeps.", 4)],
        );
        for line in [
            "rq_queues{db=\"0\"} 7",
            "rq_queues_omitted{db=\"0\"} 6",
            "rq_jobs{db=\"0\",queue=\"crowded\",state=\"ready\"} 10005",
            "rq_oldest_ready_age_seconds{db=\"0\",queue=\"crowded\"} 1.500",
            "rq_groups{db=\"0\",queue=\"crowded\",state=\"eligible\"} 10005",
            "rq_groups_omitted{db=\"0\"} 9006",
            "rq_group_jobs{db=\"0\",queue=\"crowded\",tenant=\"t\",group=\"g7\",state=\"ready\"} 1",
            "# TYPE rq_sweeps counter",
            "rq_sweeps_total 4",
            "rq_waiting_clients 3",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}");
        }
        assert_eq!(text.lines().filter(|line| line.starts_with("rq_group_jobs{")).count(), GROUPS_MAX * 6);
        assert!(text.ends_with("\n# EOF\n"));
    }

    #[test]
    fn no_queue_hides_another() {
        let (crowded, small) = (queue(LIST_SCAN_MAX + 5), queue(3));
        let mut page = Page::default();
        page.add(0, b"crowded", seen(&crowded), &Waiting::new(), 2);
        page.add(0, b"small", seen(&small), &Waiting::new(), 1);
        let looked_at: Vec<usize> = page.queues.iter().map(|queue| queue.census.looked_at).collect();
        assert_eq!(looked_at, [LIST_SCAN_MAX / 2, small.group_count()]);
    }

    #[test]
    fn held_groups_say_why() {
        let mut queue = queue(1);
        queue
            .apply(&Op::Pause { scope: Scope::Tenant(b"t"), length: None }, &mut Effects::default())
            .unwrap();
        let mut page = Page { groups_left: GROUPS_MAX, ..Page::default() };
        page.add(3, b"q", seen(&queue), &Waiting::new(), 1);
        let text = page.text(3, 1, true, &[]);
        let line = "rq_group_held{db=\"3\",queue=\"q\",tenant=\"t\",group=\"g0\",reason=\"paused\",by=\"tenant\"} 1\n";
        assert!(text.contains(line), "{text}");
        assert!(text.contains("rq_groups{db=\"3\",queue=\"q\",state=\"paused\"} 1\n"));
    }
}

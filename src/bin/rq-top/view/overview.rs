//! A queue as a whole: what there is, how fast it goes, how long it takes.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};

use super::{BAD, GOOD, ODD, QUIET, rate, spark};
use crate::data::{self, Map, State};
use crate::history::History;
use crate::model::{Model, Queue};
use crate::text;

/// Width of the names before the values.
const KEY: usize = 14;

pub fn draw(frame: &mut Frame, area: Rect, model: &Model, queue: &Queue) {
    let fields = &queue.stats.fields;
    let mut lines = vec![counts(queue)];
    lines.push(match queue.stats.held() {
        Some(held) => {
            let until = fields.number("held-until").or_else(|| fields.number("paused-until"));
            let until =
                until.map(|until| format!(", until {}", text::until(until, model.now))).unwrap_or_default();
            pair("handed out", Span::from(format!("nothing: {held}{until}")).style(ODD))
        }
        None => pair("handed out", Span::from("yes")),
    });
    let oldest = fields.number("oldest-ready-age").map_or("none is ready".to_string(), text::duration);
    lines.push(pair("oldest ready", Span::from(oldest)));
    lines.push(pair("workers", Span::from(workers(fields))));
    lines.push(pair("groups", Span::from(groups(fields))));
    let wakeup = fields.number("next-wakeup").map_or("nothing".to_string(), |at| text::until(at, model.now));
    let memory = format!("{}, next due {wakeup}", text::bytes(fields.count("bytes")));
    lines.push(pair("memory", Span::from(memory)));
    lines.push(Line::default());
    lines.extend(rates(area, queue));
    lines.push(Line::default());
    lines.extend(times(fields));
    let totals: Vec<String> = queue
        .stats
        .totals
        .numbers()
        .into_iter()
        .map(|(key, count)| format!("{key} {}", text::count(count)))
        .collect();
    lines.push(pair("in all", Span::from(totals.join(", "))));
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }), area);
}

/// `4: 3 live, 1 stale, 2 waiting`
fn workers(fields: &Map) -> String {
    let part =
        |key: &str, name: &str| fields.number(key).map(|count| format!("{} {name}", text::count(count)));
    let parts =
        [part("live-workers", "live"), part("stale-workers", "stale"), part("waiting-workers", "waiting")];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    format!("{}: {}", text::count(fields.count("workers")), parts.join(", "))
}

/// `10: 3 eligible, 6 empty, 1 backoff`. What holds the others is told of the first alone, if there are many.
fn groups(fields: &Map) -> String {
    let Some(groups) = fields.map("groups") else { return String::new() };
    let (count, eligible) = (groups.count("count"), groups.count("eligible"));
    let others: Vec<String> = groups
        .numbers()
        .into_iter()
        .filter(|(key, number)| *number > 0 && !["count", "looked-at", "eligible"].contains(&key.as_str()))
        .map(|(key, number)| format!("{} {key}", text::count(number)))
        .collect();
    let part = groups.number("looked-at").filter(|looked_at| *looked_at < count);
    let of = match part {
        Some(part) => format!("; of the first {}: ", text::count(part)),
        None if others.is_empty() => String::new(),
        None => ", ".to_string(),
    };
    format!("{}: {} eligible{of}{}", text::count(count), text::count(eligible), others.join(", "))
}

fn counts(queue: &Queue) -> Line<'static> {
    let mut spans = Vec::new();
    for state in State::ALL {
        let count = queue.stats.count(state);
        let style = if state == State::Dead && count > 0 { BAD } else { Style::new() };
        spans.push(Span::from(format!("{} ", state.name())).style(QUIET));
        spans.push(Span::from(format!("{}   ", text::count(count))).style(style));
    }
    Line::from(spans)
}

fn pair(key: &str, value: Span<'static>) -> Line<'static> {
    Line::from(vec![Span::from(format!("{key:KEY$}")).style(QUIET), value])
}

/// What happened each second, and in the last minutes.
fn rates(area: Rect, queue: &Queue) -> Vec<Line<'static>> {
    let lately = queue.stats.fields.map("rates").unwrap_or_default();
    let row = |key: &str, history: Option<&History>, style: Style| {
        let minutes = lately.get(key).and_then(data::list).unwrap_or_default();
        let mut text = format!("{:>8}", history.map(rate).unwrap_or_default());
        for at in 0..3 {
            let count = minutes.get(at).and_then(data::number).map(text::short).unwrap_or_default();
            text.push_str(&format!("{count:>8}"));
        }
        let width = usize::from(area.width).saturating_sub(KEY + 8 * 4 + 2);
        let course = history.map(|history| spark(history, width)).unwrap_or_default();
        Line::from(vec![
            Span::from(format!("{key:KEY$}")).style(QUIET),
            Span::from(text + "  "),
            Span::from(course).style(style),
        ])
    };
    vec![
        head("", &["per s", "1 min", "5 min", "15 min"]),
        row("enqueued", Some(&queue.enqueued), Style::new()),
        row("done", Some(&queue.done), GOOD),
        row("failed", Some(&queue.failed), BAD),
        row("lapsed", None, Style::new()),
        row("refused", None, Style::new()),
    ]
}

/// How long jobs waited and ran in the last minutes; nothing from a server that does not tell.
fn times(fields: &Map) -> Vec<Line<'static>> {
    let Some((waits, runs)) = fields.map("wait-time").zip(fields.map("run-time")) else { return Vec::new() };
    let row = |key: &str, times: &Map| {
        let mut text = String::new();
        for part in ["p50", "p90", "p99", "max"] {
            text.push_str(&format!("{:>8}", times.number(part).map(text::age).unwrap_or_default()));
        }
        text.push_str(&format!("{:>8}", text::short(times.count("count"))));
        Line::from(vec![Span::from(format!("{key:KEY$}")).style(QUIET), Span::from(text)])
    };
    vec![
        head("last minutes", &["p50", "p90", "p99", "max", "jobs"]),
        row("waited", &waits),
        row("ran", &runs),
    ]
}

fn head(key: &str, titles: &[&str]) -> Line<'static> {
    let titles: String = titles.iter().map(|title| format!("{title:>8}")).collect();
    Line::from(format!("{key:KEY$}{titles}")).style(QUIET)
}

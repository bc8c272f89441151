//! Everything about one job.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};
use redis::Value;

use super::{BAD, QUIET};
use crate::data::{self, Map};
use crate::model::{Job, Model};
use crate::text;

/// Of bytes that anybody chose, so many are shown.
const SHOWN: usize = 4096;

pub fn draw(frame: &mut Frame, area: Rect, model: &Model, job: &Job) {
    let Some(fields) = &job.fields else {
        let text = if job.is_gone { "There is no such job any more." } else { "" };
        frame.render_widget(Line::from(text), area);
        return;
    };
    let mut lines = Vec::new();
    if job.is_gone {
        lines.push(Line::from("There is no such job any more; this was its last state.").style(BAD));
    } else if job.is_large() {
        lines.push(Line::from("It is large, and not asked for each second; g asks again.").style(QUIET));
    }
    for (key, value) in fields.entries() {
        if let Some(shown) = shown(key, value, model.now) {
            lines.push(Line::from(vec![Span::from(format!("{key:17} ")).style(QUIET), Span::from(shown)]));
        }
    }
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }).scroll((job.scroll, 0)), area);
}

/// A value for people; nothing for what does not apply.
fn shown(key: &str, value: &Value, now: u64) -> Option<String> {
    let time = |instant: u64| {
        if instant > now { text::until(instant, now) } else { text::since(instant, now) }
    };
    match key {
        "enqueued" | "due" | "since" | "claimed" | "lease-until" | "deadline" | "ended" => {
            data::number(value).map(time)
        }
        "failed-at" => {
            let times: Vec<String> = data::list(value)?.iter().filter_map(data::number).map(time).collect();
            Some(times.join(", ")).filter(|times| !times.is_empty())
        }
        "ttl" => Some(data::number(value).map_or("for ever".to_string(), text::duration))
            .filter(|_| *value != Value::Nil),
        "cancelling" => {
            data::number(value).filter(|flag| *flag == 1).map(|_| "its worker is to give it up".to_string())
        }
        "options" => {
            let options = Map::read(value)?;
            let shown: Vec<String> =
                options.entries().map(|(key, value)| format!("{key} {}", option(value))).collect();
            Some(shown.join(", ")).filter(|options| !options.is_empty())
        }
        "payload" | "result" | "progress" | "error" => data::bytes(value).map(|bytes| beginning(&bytes)),
        _ => data::bytes(value).map(|bytes| beginning(&bytes)),
    }
}

fn option(value: &Value) -> String {
    match data::list(value) {
        Some(items) => items.iter().filter_map(data::text).collect::<Vec<_>>().join(" "),
        None => data::text(value).unwrap_or_default(),
    }
}

fn beginning(bytes: &[u8]) -> String {
    let shown = text::name(bytes.get(..SHOWN).unwrap_or(bytes));
    if bytes.len() > SHOWN {
        format!("{shown}… ({} in all)", text::bytes(bytes.len() as u64))
    } else {
        shown
    }
}

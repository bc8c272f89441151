//! What is shown of what is known. Pure: a model and a frame, nothing else.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph, Wrap};

use crate::data::{Group, Map, State};
use crate::history::History;
use crate::model::{Link, Model, Open, Page, Pick, Queue, Tab};
use crate::text;

mod job;
mod overview;
mod table;

use table::{Column, draw_table};

type QueueColumn<'a> = Column<'a, (&'a Vec<u8>, &'a Queue)>;
type MapColumn<'a> = Column<'a, &'a Map>;

const GOOD: Style = Style::new().fg(Color::Green);
const BAD: Style = Style::new().fg(Color::Red);
const ODD: Style = Style::new().fg(Color::Yellow);
const QUIET: Style = Style::new().add_modifier(Modifier::DIM);
const SELECTED: Style = Style::new().add_modifier(Modifier::REVERSED);

pub fn draw(frame: &mut Frame, model: &Model) {
    let area = frame.area();
    // What there is no room for goes: the keys, then what is told, then what is shown.
    let tabs = u16::from(model.open.is_some());
    let mut left = area.height;
    let mut take = |wanted: u16| {
        let taken = wanted.min(left);
        left = left.saturating_sub(taken);
        Constraint::Length(taken)
    };
    let (head, tabs, rows, status, foot) = (take(1), take(tabs), take(2), take(1), take(1));
    let rows = match rows {
        Constraint::Length(rows) => Constraint::Min(rows),
        other => other,
    };
    let [head, tabs, body, status, foot] = Layout::vertical([head, tabs, rows, status, foot]).areas(area);
    draw_head(frame, head, model);
    draw_body(frame, tabs, body, model);
    draw_status(frame, status, model);
    frame.render_widget(Line::from(keys(model)).style(QUIET), foot);
    if model.help {
        draw_help(frame, area);
    }
}

fn draw_head(frame: &mut Frame, area: Rect, model: &Model) {
    let mut left = vec![Span::from("rq-top").bold(), Span::from(format!("  {}", model.address))];
    if !model.version.is_empty() {
        left.push(Span::from(format!("  {}", model.version)).style(QUIET));
    }
    let count = model.names.len() as u64;
    let more = if model.is_complete { "" } else { " or more" };
    let right = match (&model.link, count) {
        (Link::Connecting, 0) => "connecting".to_string(),
        (Link::Up, 1) if model.is_complete => "1 queue".to_string(),
        (Link::Up, _) => format!("{}{more} queues", text::count(count)),
        _ => "no data".to_string(),
    };
    frame.render_widget(Line::from(left), area);
    // It may cover the address, but not the name of the program.
    let width = u16::try_from(right.len()).unwrap_or(u16::MAX).saturating_add(2);
    if area.width.saturating_sub(6) >= width {
        let place = Rect { x: area.right().saturating_sub(width), width, ..area };
        frame.render_widget(Line::from(format!("  {right}")), place);
    }
}

fn draw_body(frame: &mut Frame, tabs: Rect, body: Rect, model: &Model) {
    if let Some(text) = why_nothing(model) {
        frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), body);
        return;
    }
    match &model.open {
        None => draw_queues(frame, body, model),
        Some(open) => {
            frame.render_widget(tab_line(open), tabs);
            draw_open(frame, body, model, open);
        }
    }
}

/// Why there is nothing to be seen, if so.
fn why_nothing(model: &Model) -> Option<String> {
    match &model.link {
        Link::NoModule => Some(
            "This server does not have the module rq, which job queues live in. Start it with it:\n\n  redis-server --loadmodule \
             /path/to/libredis_rq.so\n\nIt is looked for each second."
                .to_string(),
        ),
        Link::Refused(text) if model.names.is_empty() => Some(refusal(text)),
        Link::Down(_) | Link::Connecting if model.names.is_empty() => Some(String::new()),
        _ if model.open.is_some() => None,
        _ if model.names.is_empty() && model.is_complete => {
            Some("There is no queue in this database. RQ.ENQUEUE makes one.".to_string())
        }
        _ if model.shown_names().is_empty() && !model.filter.is_empty() => {
            let so_far = if model.is_complete { "" } else { " of those seen so far" };
            Some(format!("No queue{so_far} has {} in its name.", text::name(model.filter.as_bytes())))
        }
        _ => None,
    }
}

/// What to do about an error of the server.
fn refusal(error: &str) -> String {
    let advice = match error.split(' ').next() {
        Some("NOAUTH") => {
            "It wants a password: -a, or REDISCLI_AUTH in the environment, and --user if it is not the default one."
        }
        Some("NOPERM") => {
            "This user may not ask for it: it needs RQ.QUEUES, RQ.STATS, RQ.WORKERS, RQ.GROUP.LIST, RQ.LIST, RQ.JOB, TIME."
        }
        Some("LOADING") => "It reads its data. It is asked again each second.",
        _ => "It is asked again each second.",
    };
    format!("The server refuses: {error}\n\n{advice}")
}

/// What is asked, or what came of it, or what is wrong.
fn draw_status(frame: &mut Frame, area: Rect, model: &Model) {
    let line = if let Some(question) = model.asked() {
        Line::from(question).style(ODD.add_modifier(Modifier::BOLD))
    } else if model.is_filtering || !model.filter.is_empty() && model.open.is_none() {
        let cursor = if model.is_filtering { "_" } else { "" };
        Line::from(format!("/{}{cursor}", text::name(model.filter.as_bytes())))
    } else if let Link::Down(reason) = &model.link {
        Line::from(format!("no connection, trying again each second: {reason}")).style(BAD)
    } else if let Link::Refused(error) = &model.link {
        Line::from(format!("the server refuses: {error}")).style(BAD)
    } else if model.late() >= 2 {
        Line::from(format!("no answer for {} s", model.late())).style(BAD)
    } else if let Some(note) = &model.note {
        Line::from(note.as_str()).style(ODD)
    } else {
        Line::default()
    };
    frame.render_widget(line, area);
}

fn keys(model: &Model) -> &'static str {
    if model.question.is_some() {
        return "y yes  any other key: no";
    }
    if model.is_filtering {
        return "a part of the name  enter done  esc all";
    }
    match &model.open {
        None => "↑↓ enter open  j jobs  p pause  r resume  R redrive  / find  ? help  q quit",
        Some(open) if open.job.is_some() => "← back  ↑↓ scroll  g ask again  R redrive  ? help  q quit",
        Some(open) => match open.tab {
            Tab::Overview | Tab::Workers => {
                "← back  tab next  j jobs  p pause  r resume  R redrive  ? help  q quit"
            }
            Tab::Groups => "← back  tab next  p pause group  r resume group  n b page  ? help  q quit",
            Tab::Jobs => "← back  enter open  s state  n b page  R redrive  p r  ? help  q quit",
        },
    }
}

/// All keys, over everything.
fn draw_help(frame: &mut Frame, area: Rect) {
    let lines = [
        "",
        " ↑ ↓  page up, down  home end   select",
        " enter →     open the queue, or the job",
        " ← esc       back",
        " tab 1 2 3 4 overview, workers, groups, jobs",
        " /           find queues by a part of their name",
        " j           the jobs of the queue; there: open one",
        " s           jobs in the next state",
        " n b         next page, back to the first",
        " g           ask for the job again",
        " p r         pause, resume the queue or the group",
        " R           redrive the dead jobs, or the dead job",
        " q ctrl-c    quit",
        "",
        " What changes something is asked for first.",
        " Rates are those of the last second.",
        " Any key goes on.",
    ];
    let height = u16::try_from(lines.len()).unwrap_or(u16::MAX).min(area.height);
    let place = Rect { height, ..area };
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(lines.map(Line::from).to_vec()), place);
}

fn tab_line(open: &Open) -> Line<'static> {
    let mut spans = vec![Span::from(text::name(&open.name)).bold(), Span::from("  ")];
    for tab in Tab::ALL {
        let title = match tab {
            Tab::Overview => " overview ",
            Tab::Workers => " workers ",
            Tab::Groups => " groups ",
            Tab::Jobs => " jobs ",
        };
        spans.push(if tab == open.tab { Span::from(title).style(SELECTED) } else { Span::from(title) });
    }
    let page = match open.tab {
        _ if open.job.is_some() => None,
        Tab::Groups => Some(&open.groups),
        Tab::Jobs => Some(&open.jobs),
        Tab::Workers => Some(&open.workers),
        Tab::Overview => None,
    };
    if let Some(page) = page.filter(|page| page.has_next() || page.number > 1) {
        let more = if page.has_next() { ", n for more" } else { "" };
        spans.push(Span::from(format!("  page {}{more}", page.number)).style(ODD));
    }
    if open.is_gone {
        spans.push(Span::from("  there is no such queue any more").style(BAD));
    }
    Line::from(spans)
}

fn draw_queues(frame: &mut Frame, area: Rect, model: &Model) {
    let unknown = Queue::default();
    let columns = vec![
        QueueColumn::fill("queue", |(name, _)| text::name(name)),
        QueueColumn::count("ready", 0, |(_, queue)| queue.stats.fields.number("ready")),
        QueueColumn::count("active", 1, |(_, queue)| queue.stats.fields.number("active")),
        QueueColumn::count("delayed", 7, |(_, queue)| queue.stats.fields.number("delayed")),
        QueueColumn::count("dead", 2, |(_, queue)| queue.stats.fields.number("dead"))
            .style(|(_, queue)| if queue.stats.count(State::Dead) > 0 { BAD } else { Style::new() }),
        QueueColumn::count("done", 10, |(_, queue)| queue.stats.fields.number("done")),
        QueueColumn::right("oldest", 6, 3, |(_, queue)| {
            queue.stats.fields.number("oldest-ready-age").map(text::age).unwrap_or_default()
        }),
        QueueColumn::right("in/s", 6, 5, |(_, queue)| rate(&queue.enqueued)),
        QueueColumn::right("done/s", 6, 4, |(_, queue)| rate(&queue.done)),
        QueueColumn::right("fail/s", 6, 9, |(_, queue)| rate(&queue.failed)),
        QueueColumn::right("workers", 7, 8, |(_, queue)| {
            queue.stats.fields.number("workers").map(text::short).unwrap_or_default()
        }),
        QueueColumn::right("wait p99", 8, 12, |(_, queue)| percentile(queue, "wait-time")),
        QueueColumn::right("run p99", 8, 13, |(_, queue)| percentile(queue, "run-time")),
        QueueColumn::left("held", 11, 6, |(_, queue)| queue.stats.held().unwrap_or_default()).style(|_| ODD),
        QueueColumn::left("last seconds", 16, 11, |(_, queue)| spark(&queue.done, 16)).style(|_| GOOD),
    ];
    let names = model.shown_names();
    let rows: Vec<(&Vec<u8>, &Queue)> =
        names.iter().map(|name| (*name, model.queues.get(*name).unwrap_or(&unknown))).collect();
    draw_table(frame, area, &columns, &rows, model.pick);
}

fn draw_open(frame: &mut Frame, area: Rect, model: &Model, open: &Open) {
    let unknown = Queue::default();
    let queue = model.queues.get(&open.name).unwrap_or(&unknown);
    if let Some(job) = &open.job {
        job::draw(frame, area, model, job);
        return;
    }
    match open.tab {
        Tab::Overview => overview::draw(frame, area, model, queue),
        Tab::Workers => draw_workers(frame, area, model, &open.workers),
        Tab::Groups => draw_groups(frame, area, model, &open.groups),
        Tab::Jobs => draw_jobs(frame, area, model, open),
    }
}

fn draw_workers(frame: &mut Frame, area: Rect, model: &Model, page: &Page) {
    let now = model.now;
    let columns = vec![
        MapColumn::fill("worker", |worker| worker.text("name").unwrap_or_default()),
        MapColumn::count("active", 0, |worker| worker.number("active")),
        MapColumn::count("done", 3, |worker| worker.number("done")),
        MapColumn::count("failed", 5, |worker| worker.number("failed")),
        MapColumn::count("crashed", 4, |worker| worker.number("crashed")),
        MapColumn::right("last seen", 13, 2, move |worker| ago(worker, "last-seen", now)),
        MapColumn::left("", 20, 1, move |worker| {
            let waiting =
                worker.number("waiting-since").map(|since| text::duration(now.saturating_sub(since)));
            match waiting {
                _ if worker.is_set("stale") => "stale".to_string(),
                Some(time) => format!("waiting {time}"),
                None if worker.count("active") > 0 => "working".to_string(),
                None => String::new(),
            }
        })
        .style(|worker| if worker.is_set("stale") { BAD } else { GOOD }),
        MapColumn::right("first seen", 13, 6, move |worker| ago(worker, "first-seen", now)),
    ];
    draw_paged(frame, area, &columns, page, "No worker is known.");
}

fn draw_groups(frame: &mut Frame, area: Rect, model: &Model, page: &Page) {
    let now = model.now;
    let columns = vec![
        MapColumn::fill("tenant/group", |group| Group::read(group).shown()),
        MapColumn::count("ready", 0, |group| group.number("ready")),
        MapColumn::count("active", 1, |group| group.number("active")),
        MapColumn::count("delayed", 6, |group| group.number("delayed")),
        MapColumn::count("dead", 4, |group| group.number("dead")),
        MapColumn::right("oldest", 6, 5, |group| {
            group.number("oldest-ready-age").map(text::age).unwrap_or_default()
        }),
        MapColumn::left("not served because", 22, 2, |group| why_held(group))
            .style(|group| if group.text("held").is_some_and(|held| held != "empty") { ODD } else { QUIET }),
        MapColumn::left("until", 13, 3, move |group| {
            group.number("held-until").map(|until| text::until(until, now)).unwrap_or_default()
        }),
        MapColumn::right("limit", 6, 7, |group| {
            group.text("concurrency").filter(|limit| limit != "none").unwrap_or_default()
        }),
    ];
    draw_paged(frame, area, &columns, page, "No group is known.");
}

/// `rate of the tenant`; nothing if it is served.
fn why_held(group: &Map) -> String {
    match (group.text("held"), group.text("held-by")) {
        (Some(held), Some(by)) if by != "group" => format!("{held} of {by}"),
        (Some(held), _) => held,
        (None, _) => String::new(),
    }
}

fn draw_jobs(frame: &mut Frame, area: Rect, model: &Model, open: &Open) {
    let now = model.now;
    let state = open.state;
    let mut columns = vec![
        MapColumn::fill("id", |job| job.text("id").unwrap_or_default()),
        MapColumn::left("tenant/group", 16, 5, |job| {
            let group = Group::read(job);
            if group.is_nameless() { String::new() } else { group.shown() }
        }),
        MapColumn::count("prio", 6, |job| job.number("priority")),
        MapColumn::count("given", 3, |job| job.number("deliveries")),
        MapColumn::count("failed", 2, |job| job.number("attempts")),
        MapColumn::count("crashed", 4, |job| job.number("crashes")),
    ];
    let when = match state {
        State::Delayed => MapColumn::right("due", 13, 0, move |job| {
            job.number("due").map(|due| text::until(due, now)).unwrap_or_default()
        }),
        State::Ready => MapColumn::right("since", 13, 0, move |job| ago(job, "since", now)),
        State::Active => MapColumn::right("claimed", 13, 0, move |job| ago(job, "claimed", now)),
        _ => MapColumn::right("ended", 13, 0, move |job| ago(job, "ended", now)),
    };
    columns.push(when);
    match state {
        State::Active => {
            columns.push(MapColumn::right("lease ends", 13, 1, move |job| {
                job.number("lease-until").map(|until| text::until(until, now)).unwrap_or_default()
            }));
            columns.push(MapColumn::left("worker", 30, 7, |job| job.text("worker").unwrap_or_default()));
        }
        State::Dead => {
            columns.push(
                MapColumn::left("reason", 8, 1, |job| job.text("reason").unwrap_or_default()).style(|_| BAD),
            );
            columns.push(MapColumn::left("error", 40, 7, |job| job.text("error").unwrap_or_default()));
        }
        _ => {}
    }
    let [title, rest] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    let mut spans = Vec::new();
    for each in State::ALL {
        let count = model.queues.get(&open.name).map_or(0, |queue| queue.stats.count(each));
        let label = format!(" {} {} ", each.name(), text::short(count));
        spans.push(if each == state {
            Span::from(label).style(SELECTED)
        } else {
            Span::from(label).style(QUIET)
        });
    }
    frame.render_widget(Line::from(spans), title);
    draw_paged(frame, rest, &columns, &open.jobs, "No job is in this state.");
}

fn draw_paged<'p>(frame: &mut Frame, area: Rect, columns: &[MapColumn<'p>], page: &'p Page, nothing: &str) {
    if page.items.is_empty() {
        frame.render_widget(Line::from(nothing).style(QUIET), area);
        return;
    }
    draw_table(frame, area, columns, &page.items.iter().collect::<Vec<_>>(), page.pick);
}

fn ago(fields: &Map, key: &str, now: u64) -> String {
    fields.number(key).map(|instant| text::since(instant, now)).unwrap_or_default()
}

fn percentile(queue: &Queue, key: &str) -> String {
    queue.stats.fields.map(key).and_then(|times| times.number("p99")).map(text::age).unwrap_or_default()
}

fn rate(history: &History) -> String {
    history.rate().map(text::rate).unwrap_or_default()
}

/// The course of a history in `width` characters, the last at the right.
fn spark(history: &History, width: usize) -> String {
    const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let course = history.course(width);
    let most = course.iter().copied().max().unwrap_or_default().max(1);
    let bar = |value: u64| {
        let height = usize::try_from(value.saturating_mul(8).div_ceil(most)).unwrap_or(8);
        BARS.get(height).copied().unwrap_or('█')
    };
    let bars: String = course.iter().map(|value| bar(*value)).collect();
    format!("{bars:>width$}")
}

//! What is known of the server, what is looked at, and what keys do. Pure: what is to be asked is returned.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::ask::{Action, Answer, Ask, REDRIVEN};
use crate::data::{Bytes, Group, Map, State, Stats};
use crate::history::History;
use crate::server::News;
use crate::text;

/// What the statistics of the queues on the screen may cost the server per second, µs.
const STATS_BUDGET: u64 = 600;
/// What those of one queue cost it, µs: at least, and more for each 10 of its groups and workers.
const STATS_COST: u64 = 15;
/// Queues of which statistics are kept.
const KEPT: usize = 500;
/// A job whose payload or result is larger, bytes, is not asked for again and again.
const LARGE_JOB: usize = 16 * 1024;
/// Calls for names per refresh until all names were seen once; then one.
const FIRST_PAGES: u64 = 2;
/// The first cursor and the last.
const NO_CURSOR: &[u8] = b"0";

/// Whether the server can be seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Link {
    Connecting,
    Up,
    /// No connection, and why.
    Down(String),
    /// It answers, but has no such commands.
    NoModule,
    /// It answers, and refuses.
    Refused(String),
}

/// Which row of a list is selected, and which is the first that is shown.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pick {
    pub row: usize,
    pub first: usize,
}

impl Pick {
    /// Keeps both within a list of `length`, of which `height` rows are shown.
    fn settle(&mut self, length: usize, height: usize) {
        self.row = self.row.min(length.saturating_sub(1));
        let last_first = length.saturating_sub(height);
        let least = self.row.saturating_add(1).saturating_sub(height);
        self.first =
            self.first.clamp(least.min(last_first), self.row.min(last_first).max(least.min(last_first)));
    }

    /// Whether the key moves it.
    fn moves(&mut self, key: KeyCode, height: usize) -> bool {
        self.row = match key {
            KeyCode::Up | KeyCode::Char('k') => self.row.saturating_sub(1),
            KeyCode::Down => self.row.saturating_add(1),
            KeyCode::PageUp => self.row.saturating_sub(height),
            KeyCode::PageDown => self.row.saturating_add(height),
            KeyCode::Home => 0,
            KeyCode::End => usize::MAX,
            _ => return false,
        };
        true
    }
}

/// A queue that was looked at.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    pub stats: Stats,
    pub enqueued: History,
    pub done: History,
    pub failed: History,
    /// The tick in which it was last asked for.
    asked: u64,
}

impl Queue {
    /// What its statistics cost the server, µs, more or less.
    fn cost(&self) -> u64 {
        let groups = self.stats.fields.map("groups").map_or(0, |groups| groups.count("count"));
        let looked_at = groups.saturating_add(self.stats.fields.count("workers"));
        STATS_COST.saturating_add(looked_at / 10)
    }
}

/// What is shown of an open queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tab {
    Overview,
    Workers,
    Groups,
    Jobs,
}

impl Tab {
    pub const ALL: [Self; 4] = [Self::Overview, Self::Workers, Self::Groups, Self::Jobs];

    fn step(self, steps: usize) -> Self {
        let mut from_here = Self::ALL.iter().copied().cycle().skip_while(|tab| *tab != self);
        from_here.nth(steps).unwrap_or(self)
    }
}

/// A list that comes in pages.
#[derive(Clone, Debug)]
pub struct Page {
    pub items: Vec<Map>,
    pub cursor: Bytes,
    pub next: Bytes,
    pub number: u64,
    pub pick: Pick,
}

impl Default for Page {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            cursor: NO_CURSOR.to_vec(),
            next: NO_CURSOR.to_vec(),
            number: 1,
            pick: Pick::default(),
        }
    }
}

impl Page {
    pub fn has_next(&self) -> bool {
        self.next != NO_CURSOR
    }

    fn turn(&mut self) {
        if self.has_next() {
            let number = self.number.saturating_add(1);
            *self = Self { cursor: self.next.clone(), number, ..Self::default() };
        }
    }

    fn selected(&self) -> Option<&Map> {
        self.items.get(self.pick.row)
    }
}

/// A job that is open.
#[derive(Clone, Debug, Default)]
pub struct Job {
    pub id: Bytes,
    /// Nothing before it was answered.
    pub fields: Option<Map>,
    pub is_gone: bool,
    /// First line that is shown.
    pub scroll: u16,
}

impl Job {
    /// Whether it is too large to be asked for each second.
    pub fn is_large(&self) -> bool {
        let Some(fields) = &self.fields else { return false };
        let size = |key| fields.bytes(key).map_or(0, |bytes| bytes.len());
        size("payload").max(size("result")) > LARGE_JOB
    }
}

/// The queue that is open.
#[derive(Clone, Debug)]
pub struct Open {
    pub name: Bytes,
    pub tab: Tab,
    pub is_gone: bool,
    pub workers: Page,
    pub groups: Page,
    pub jobs: Page,
    pub state: State,
    pub job: Option<Job>,
}

#[derive(Debug)]
pub struct Model {
    pub address: String,
    pub version: String,
    pub link: Link,
    /// The server's clock, Unix ms.
    pub now: u64,
    pub names: BTreeSet<Bytes>,
    /// Whether all names were seen once.
    pub is_complete: bool,
    pub queues: HashMap<Bytes, Queue>,
    pub filter: String,
    pub is_filtering: bool,
    pub selected: Option<Bytes>,
    pub pick: Pick,
    pub open: Option<Open>,
    pub question: Option<Action>,
    pub note: Option<String>,
    pub help: bool,
    pub width: u16,
    pub height: u16,
    /// What the listing of names has found since it began anew, and where it stands.
    sweep: BTreeSet<Bytes>,
    cursor: Bytes,
    /// Pages of names since the last refresh.
    pages: u64,
    ticks: u64,
    /// Batches that are not answered, and the tick in which the first of them was sent.
    pending: u64,
    pending_since: u64,
    /// Whether to ask again as soon as all is answered.
    is_stale: bool,
    quit: bool,
}

impl Model {
    pub fn new(address: String) -> Self {
        Self {
            address,
            version: String::new(),
            link: Link::Connecting,
            now: 0,
            names: BTreeSet::new(),
            is_complete: false,
            queues: HashMap::new(),
            filter: String::new(),
            is_filtering: false,
            selected: None,
            pick: Pick::default(),
            open: None,
            question: None,
            note: None,
            help: false,
            width: 80,
            height: 24,
            sweep: BTreeSet::new(),
            cursor: NO_CURSOR.to_vec(),
            pages: 0,
            ticks: 0,
            pending: 0,
            pending_since: 0,
            is_stale: false,
            quit: false,
        }
    }

    pub fn has_quit(&self) -> bool {
        self.quit
    }

    pub fn resize(&mut self, width: u16, height: u16) {
        (self.width, self.height) = (width, height);
        self.settle();
    }

    /// Rows of a list: all but the header, the head of the table, and the foot.
    pub fn rows(&self) -> usize {
        let others = if self.open.is_some() { 5 } else { 4 };
        usize::from(self.height).saturating_sub(others).max(1)
    }

    /// For how many seconds the server has owed an answer.
    pub fn late(&self) -> u64 {
        if self.pending == 0 { 0 } else { self.ticks.saturating_sub(self.pending_since) }
    }

    /// The names that pass the filter, in order.
    pub fn shown_names(&self) -> Vec<&Bytes> {
        let filter = self.filter.to_lowercase();
        let passes = |name: &&Bytes| filter.is_empty() || text::name(name).to_lowercase().contains(&filter);
        self.names.iter().filter(passes).collect()
    }

    /// The queue that is open or selected.
    pub fn current(&self) -> Option<&Bytes> {
        self.open.as_ref().map(|open| &open.name).or(self.selected.as_ref())
    }

    /// A second has passed.
    pub fn tick(&mut self) -> Vec<Ask> {
        self.ticks = self.ticks.saturating_add(1);
        if self.pending > 0 { Vec::new() } else { self.refresh() }
    }

    fn send(&mut self, asks: Vec<Ask>) -> Vec<Ask> {
        if !asks.is_empty() {
            if self.pending == 0 {
                self.pending_since = self.ticks;
            }
            self.pending = self.pending.saturating_add(1);
        }
        asks
    }

    /// Asks for what is shown, now or as soon as what was asked is answered.
    fn refresh_soon(&mut self) -> Vec<Ask> {
        self.settle();
        if self.pending > 0 {
            self.is_stale = true;
            return Vec::new();
        }
        self.refresh()
    }

    /// Asks for what is shown.
    fn refresh(&mut self) -> Vec<Ask> {
        self.is_stale = false;
        self.pages = 0;
        let mut asks = vec![Ask::Time];
        if let Some(open) = &self.open {
            let queue = open.name.clone();
            asks.push(Ask::Stats(queue.clone()));
            match (&open.job, open.tab) {
                (Some(job), _) => {
                    if !job.is_gone && !job.is_large() {
                        asks.push(Ask::Job { queue, id: job.id.clone() });
                    }
                }
                (None, Tab::Overview) => {}
                (None, Tab::Workers) => {
                    asks.push(Ask::Workers { queue, cursor: open.workers.cursor.clone() })
                }
                (None, Tab::Groups) => asks.push(Ask::Groups { queue, cursor: open.groups.cursor.clone() }),
                (None, Tab::Jobs) => {
                    asks.push(Ask::Jobs { queue, state: open.state, cursor: open.jobs.cursor.clone() });
                }
            }
        } else {
            asks.push(Ask::Names { cursor: self.cursor.clone() });
            asks.extend(self.stats_of_visible());
        }
        self.send(asks)
    }

    /// Of the queues on the screen those that were not asked for longest, as many as may be; one at least.
    fn stats_of_visible(&mut self) -> Vec<Ask> {
        let names = self.shown_names();
        let visible = names.iter().skip(self.pick.first).take(self.rows());
        let mut waiting: Vec<(u64, u64, Bytes)> = visible
            .map(|name| {
                let known = self.queues.get(*name);
                (known.map_or(0, |queue| queue.asked), known.map_or(STATS_COST, Queue::cost), (*name).clone())
            })
            .collect();
        waiting.sort_by_key(|(asked, _, _)| *asked);
        self.forget_old();
        let mut left = STATS_BUDGET;
        let mut asks = Vec::new();
        for (_, cost, name) in waiting {
            if cost > left && !asks.is_empty() {
                break;
            }
            left = left.saturating_sub(cost);
            self.queues.entry(name.clone()).or_default().asked = self.ticks;
            asks.push(Ask::Stats(name));
        }
        asks
    }

    fn forget_old(&mut self) {
        if self.queues.len() > KEPT {
            let mut asked: Vec<u64> = self.queues.values().map(|queue| queue.asked).collect();
            asked.sort_unstable();
            let oldest_kept = asked.get(asked.len().saturating_sub(KEPT / 2)).copied().unwrap_or_default();
            self.queues.retain(|_, queue| queue.asked >= oldest_kept);
        }
    }

    /// Takes what the server thread tells, `at` after the start.
    pub fn news(&mut self, news: News, at: Duration) -> Vec<Ask> {
        match news {
            News::Up(version) => {
                self.version = version;
                return Vec::new();
            }
            News::Down(reason, asks) => {
                self.link = Link::Down(reason);
                for queue in self.queues.values_mut() {
                    queue.enqueued.interrupt();
                    queue.done.interrupt();
                    queue.failed.interrupt();
                }
                for ask in asks {
                    if let Ask::Do(action) = ask {
                        self.note = Some(format!("{}: nobody knows whether it was done", action.shown()));
                    }
                }
            }
            News::Answers(answers) => {
                for (ask, answer) in answers {
                    self.answer(ask, answer, at);
                }
            }
        }
        self.pending = self.pending.saturating_sub(1);
        self.settle();
        if self.pending > 0 || self.link != Link::Up {
            return Vec::new();
        }
        if self.is_stale || self.is_first_page() {
            return self.refresh();
        }
        if !self.is_complete && self.open.is_none() && self.pages < FIRST_PAGES {
            return self.send(vec![Ask::Names { cursor: self.cursor.clone() }]);
        }
        Vec::new()
    }

    fn answer(&mut self, ask: Ask, answer: Answer, at: Duration) {
        match (ask, answer) {
            (Ask::Stats(queue), Answer::Refused(word, _)) if word == "NOQUEUE" || word == "WRONGTYPE" => {
                self.names.remove(&queue);
                self.queues.remove(&queue);
                if let Some(open) = self.open.as_mut().filter(|open| open.name == queue) {
                    open.is_gone = true;
                }
            }
            (Ask::Do(action), Answer::Refused(_, text)) => {
                self.note = Some(format!("{}: {text}", action.shown()))
            }
            (_, Answer::Refused(word, text)) => {
                let is_unknown = word == "ERR" && text.contains("unknown command");
                self.link = if is_unknown { Link::NoModule } else { Link::Refused(text) };
            }
            (Ask::Do(_), Answer::Done(text)) => {
                self.note = Some(text);
                self.is_stale = true;
            }
            (_, Answer::Time(now)) => {
                self.now = now;
                self.link = Link::Up;
            }
            (_, Answer::Names { next, names }) => self.take_names(next, names),
            (Ask::Stats(name), Answer::Stats(stats)) => {
                let queue = self.queues.entry(name.clone()).or_default();
                queue.enqueued.note(at, stats.totals.count("enqueued"));
                queue.done.note(at, stats.totals.count("done"));
                queue.failed.note(at, stats.totals.count("failed"));
                queue.stats = *stats;
                if let Some(open) = self.open.as_mut().filter(|open| open.name == name) {
                    open.is_gone = false;
                }
            }
            (ask, answer) => self.answer_open(ask, answer),
        }
    }

    /// What was answered about the open queue, unless another is open by now.
    fn answer_open(&mut self, ask: Ask, answer: Answer) {
        let Some(open) = &mut self.open else { return };
        match (ask, answer) {
            (Ask::Workers { queue, cursor }, Answer::Page { next, items })
                if queue == open.name && cursor == open.workers.cursor =>
            {
                (open.workers.items, open.workers.next) = (items, next);
            }
            (Ask::Groups { queue, cursor }, Answer::Page { next, items })
                if queue == open.name && cursor == open.groups.cursor =>
            {
                (open.groups.items, open.groups.next) = (items, next);
            }
            (Ask::Jobs { queue, state, cursor }, Answer::Page { next, items })
                if (&queue, state, &cursor) == (&open.name, open.state, &open.jobs.cursor) =>
            {
                // A page may be empty and not the last.
                if items.is_empty() && next != NO_CURSOR {
                    open.jobs.cursor = next;
                } else {
                    (open.jobs.items, open.jobs.next) = (items, next);
                }
            }
            (Ask::Job { queue, id }, Answer::Job(fields)) if queue == open.name => {
                if let Some(job) = open.job.as_mut().filter(|job| job.id == id) {
                    job.is_gone = fields.is_none();
                    job.fields = fields.or_else(|| job.fields.take());
                }
            }
            _ => {}
        }
    }

    /// Names are listed page by page over and over: those that a whole listing did not show are gone.
    fn take_names(&mut self, next: Bytes, names: Vec<Bytes>) {
        self.names.extend(names.iter().cloned());
        self.sweep.extend(names);
        if next == NO_CURSOR {
            self.names = std::mem::take(&mut self.sweep);
            self.is_complete = true;
            let known: HashSet<&Bytes> = self.names.iter().collect();
            let open = self.open.as_ref().map(|open| &open.name);
            self.queues.retain(|name, _| known.contains(name) || open == Some(name));
        }
        self.cursor = next;
        self.pages = self.pages.saturating_add(1);
    }

    /// Whether names are known now, and nothing of the queues yet.
    fn is_first_page(&self) -> bool {
        self.open.is_none() && self.queues.is_empty() && !self.shown_names().is_empty()
    }

    /// Keeps selections within what there is.
    fn settle(&mut self) {
        let rows = self.rows();
        if let Some(open) = &mut self.open {
            open.workers.pick.settle(open.workers.items.len(), rows);
            open.groups.pick.settle(open.groups.items.len(), rows);
            open.jobs.pick.settle(open.jobs.items.len(), rows);
        } else {
            let mut pick = self.pick;
            let names = self.shown_names();
            // The selection stays with its name while others come and go.
            let place = self.selected.as_ref().and_then(|selected| names.binary_search(&selected).ok());
            pick.row = place.unwrap_or(pick.row);
            pick.settle(names.len(), rows);
            let selected = names.get(pick.row).map(|name| (*name).clone());
            (self.pick, self.selected) = (pick, selected);
        }
    }

    /// A key was pressed.
    pub fn key(&mut self, key: KeyEvent) -> Vec<Ask> {
        let is_ctrl = key.modifiers.contains(KeyModifiers::CONTROL);
        if is_ctrl && matches!(key.code, KeyCode::Char('c' | 'd')) {
            self.quit = true;
            return Vec::new();
        }
        if is_ctrl {
            return Vec::new();
        }
        if let Some(action) = self.question.take() {
            if matches!(key.code, KeyCode::Char('y' | 'Y')) {
                return self.send(vec![Ask::Do(action)]);
            }
            self.note = Some(format!("{}: not done", action.shown()));
            return Vec::new();
        }
        self.note = None;
        if self.help {
            self.help = false;
            return Vec::new();
        }
        if self.is_filtering {
            return self.filter_key(key.code);
        }
        match key.code {
            KeyCode::Char('q') => {
                self.quit = true;
                return Vec::new();
            }
            KeyCode::Char('?') => {
                self.help = true;
                return Vec::new();
            }
            KeyCode::Char('p') => return self.ask_pause(),
            KeyCode::Char('r') => return self.ask_resume(),
            KeyCode::Char('R') => return self.ask_redrive(),
            _ => {}
        }
        let rows = self.rows();
        match &self.open {
            None => self.list_key(key.code, rows),
            Some(open) if open.job.is_some() => self.job_key(key.code, rows),
            Some(_) => self.queue_key(key.code, rows),
        }
    }

    fn filter_key(&mut self, key: KeyCode) -> Vec<Ask> {
        match key {
            KeyCode::Enter => self.is_filtering = false,
            KeyCode::Esc => {
                self.is_filtering = false;
                self.filter.clear();
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(character) => self.filter.push(character),
            _ => {}
        }
        self.refresh_soon()
    }

    fn list_key(&mut self, key: KeyCode, rows: usize) -> Vec<Ask> {
        if self.pick.moves(key, rows) {
            let names = self.shown_names();
            let row = self.pick.row.min(names.len().saturating_sub(1));
            self.selected = names.get(row).map(|name| (*name).clone());
            let before = self.pick.first;
            self.settle();
            return if self.pick.first == before { Vec::new() } else { self.refresh_soon() };
        }
        match key {
            KeyCode::Enter | KeyCode::Right => self.open_selected(Tab::Overview),
            KeyCode::Char('j') => self.open_selected(Tab::Jobs),
            KeyCode::Char('/') => {
                self.is_filtering = true;
                Vec::new()
            }
            KeyCode::Esc => {
                self.filter.clear();
                self.refresh_soon()
            }
            _ => Vec::new(),
        }
    }

    fn open_selected(&mut self, tab: Tab) -> Vec<Ask> {
        let Some(name) = self.selected.clone() else { return Vec::new() };
        self.open = Some(Open {
            name,
            tab,
            is_gone: false,
            workers: Page::default(),
            groups: Page::default(),
            jobs: Page::default(),
            state: State::Dead,
            job: None,
        });
        self.open_state();
        self.refresh_soon()
    }

    /// Jobs are shown first in the state in which there are some: the dead ones before all.
    fn open_state(&mut self) {
        let Some(open) = &mut self.open else { return };
        let Some(queue) = self.queues.get(&open.name) else { return };
        let order = [State::Dead, State::Active, State::Ready, State::Delayed, State::Done, State::Cancelled];
        let state = order.into_iter().find(|state| queue.stats.count(*state) > 0);
        open.state = state.unwrap_or(State::Dead);
    }

    fn queue_key(&mut self, key: KeyCode, rows: usize) -> Vec<Ask> {
        let Some(open) = &mut self.open else { return Vec::new() };
        let pick = match open.tab {
            Tab::Overview => None,
            Tab::Workers => Some(&mut open.workers.pick),
            Tab::Groups => Some(&mut open.groups.pick),
            Tab::Jobs => Some(&mut open.jobs.pick),
        };
        if pick.is_some_and(|pick| pick.moves(key, rows)) {
            self.settle();
            return Vec::new();
        }
        match key {
            KeyCode::Esc | KeyCode::Left | KeyCode::Backspace => self.open = None,
            KeyCode::Tab | KeyCode::Right => open.tab = open.tab.step(1),
            KeyCode::BackTab => open.tab = open.tab.step(3),
            KeyCode::Char('1') => open.tab = Tab::Overview,
            KeyCode::Char('2') => open.tab = Tab::Workers,
            KeyCode::Char('3') => open.tab = Tab::Groups,
            KeyCode::Char('4') => open.tab = Tab::Jobs,
            KeyCode::Char('j') if open.tab != Tab::Jobs => open.tab = Tab::Jobs,
            KeyCode::Char('s') if open.tab == Tab::Jobs => {
                open.state = open.state.next();
                open.jobs = Page::default();
            }
            KeyCode::Char('n') if open.tab == Tab::Jobs => open.jobs.turn(),
            KeyCode::Char('n') if open.tab == Tab::Workers => open.workers.turn(),
            KeyCode::Char('n') if open.tab == Tab::Groups => open.groups.turn(),
            KeyCode::Char('b') if open.tab == Tab::Jobs => open.jobs = Page::default(),
            KeyCode::Char('b') if open.tab == Tab::Workers => open.workers = Page::default(),
            KeyCode::Char('b') if open.tab == Tab::Groups => open.groups = Page::default(),
            KeyCode::Enter | KeyCode::Char('j') if open.tab == Tab::Jobs => {
                let id = open.jobs.selected().and_then(|job| job.bytes("id"));
                open.job = id.map(|id| Job { id, ..Job::default() });
            }
            _ => return Vec::new(),
        }
        let is_empty = |open: &Open| {
            let queue = self.queues.get(&open.name);
            open.tab == Tab::Jobs
                && key != KeyCode::Char('s')
                && queue.is_some_and(|queue| queue.stats.count(open.state) == 0)
        };
        if self.open.as_ref().is_some_and(is_empty) {
            self.open_state();
        }
        self.refresh_soon()
    }

    fn job_key(&mut self, key: KeyCode, rows: usize) -> Vec<Ask> {
        let Some(open) = &mut self.open else { return Vec::new() };
        let Some(job) = &mut open.job else { return Vec::new() };
        let page = u16::try_from(rows).unwrap_or(u16::MAX);
        match key {
            KeyCode::Esc | KeyCode::Left | KeyCode::Backspace => {
                open.job = None;
                return self.refresh_soon();
            }
            KeyCode::Char('g') => {
                let ask = Ask::Job { queue: open.name.clone(), id: job.id.clone() };
                return self.send(vec![ask]);
            }
            KeyCode::Up | KeyCode::Char('k') => job.scroll = job.scroll.saturating_sub(1),
            KeyCode::Down => job.scroll = job.scroll.saturating_add(1),
            KeyCode::PageUp => job.scroll = job.scroll.saturating_sub(page),
            KeyCode::PageDown => job.scroll = job.scroll.saturating_add(page),
            KeyCode::Home => job.scroll = 0,
            _ => {}
        }
        Vec::new()
    }

    /// The group that is selected, with what is known of it.
    fn selected_group(&self) -> Option<(Group, &Map)> {
        let open = self.open.as_ref().filter(|open| open.tab == Tab::Groups && open.job.is_none())?;
        let fields = open.groups.selected()?;
        Some((Group::read(fields), fields)).filter(|(group, _)| !group.is_nameless())
    }

    fn ask_pause(&mut self) -> Vec<Ask> {
        let Some(queue) = self.current().cloned() else { return Vec::new() };
        let (group, is_paused) = match self.selected_group() {
            Some((group, fields)) => (Some(group), fields.is_set("paused")),
            None => (None, self.queues.get(&queue).is_some_and(|queue| queue.stats.is_paused())),
        };
        let action = Action::Pause { queue, group };
        if is_paused {
            self.note = Some(format!("{}: it is paused already", action.shown()));
        } else {
            self.question = Some(action);
        }
        Vec::new()
    }

    fn ask_resume(&mut self) -> Vec<Ask> {
        let Some(queue) = self.current().cloned() else { return Vec::new() };
        let (group, has_effect) = match self.selected_group() {
            // It ends a back-off and a throttle too.
            Some((group, fields)) => {
                let is_held = fields.is_set("paused")
                    || fields.count("circuit-level") > 0
                    || fields.is_set("throttled");
                (Some(group), is_held)
            }
            None => (None, self.queues.get(&queue).is_some_and(|queue| queue.stats.is_paused())),
        };
        let action = Action::Resume { queue, group };
        if has_effect {
            self.question = Some(action);
        } else {
            self.note = Some(format!("{}: it is not paused", action.shown()));
        }
        Vec::new()
    }

    fn ask_redrive(&mut self) -> Vec<Ask> {
        let Some(queue) = self.current().cloned() else { return Vec::new() };
        let dead = self.queues.get(&queue).map_or(0, |queue| queue.stats.count(State::Dead));
        let of_open = self.open.as_ref().and_then(|open| match &open.job {
            Some(job) => {
                let is_dead = job
                    .fields
                    .as_ref()
                    .and_then(|job| job.text("state"))
                    .is_some_and(|state| state == "dead");
                Some(job.id.clone()).filter(|_| is_dead)
            }
            None if open.tab == Tab::Jobs && open.state == State::Dead => open.jobs.selected()?.bytes("id"),
            None => None,
        });
        let is_job = self.open.as_ref().is_some_and(|open| open.job.is_some());
        match of_open {
            Some(id) => self.question = Some(Action::Redrive { queue, id: Some(id) }),
            None if is_job => self.note = Some("only a dead job can be redriven".to_string()),
            None if dead == 0 => self.note = Some(format!("{} has no dead jobs", text::name(&queue))),
            None => self.question = Some(Action::Redrive { queue, id: None }),
        }
        Vec::new()
    }

    /// What is asked of the user, if anything.
    pub fn asked(&self) -> Option<String> {
        let action = self.question.as_ref()?;
        let more = match action {
            Action::Redrive { queue, id: None } => {
                let dead = self.queues.get(queue).map_or(0, |queue| queue.stats.count(State::Dead));
                format!(", {} of them,", text::count(dead.min(REDRIVEN)))
            }
            _ => String::new(),
        };
        Some(format!("{}{more}? y/n", action.shown()))
    }
}

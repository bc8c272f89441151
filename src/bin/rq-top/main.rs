//! A terminal view of the job queues of a server, refreshed each second.
//!
//! `model` and `view` are pure: what is known, what a key does, what is shown. `server` speaks to the server in a thread of its
//! own, so that the view goes on when the server does not answer. This file holds the three together.

mod ask;
mod data;
mod history;
mod model;
mod options;
mod server;
mod text;
mod view;

#[cfg(test)]
mod tests;

use std::io;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use ask::Ask;
use model::Model;
use options::Options;

/// How often the server is asked.
const PERIOD: Duration = Duration::from_secs(1);

/// What happens to the view.
enum Happening {
    Terminal(Event),
    Server(server::News),
    /// The terminal cannot be read any more.
    End,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let client = match options.client() {
        Ok(client) => client,
        Err(error) => {
            eprintln!("rq-top: {error}");
            return ExitCode::FAILURE;
        }
    };
    let (happenings_in, happenings) = mpsc::channel();
    let (asks, asks_out) = mpsc::channel();
    let from_server = happenings_in.clone();
    thread::spawn(move || {
        server::serve(&client, &asks_out, |news| from_server.send(Happening::Server(news)).is_ok());
    });
    thread::spawn(move || read_terminal(&happenings_in));
    let mut terminal = ratatui::init();
    let result = run(&mut terminal, Model::new(options.shown()), &happenings, &asks);
    ratatui::restore();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rq-top: {error}");
            ExitCode::FAILURE
        }
    }
}

fn read_terminal(happenings: &Sender<Happening>) {
    while let Ok(event) = event::read() {
        if happenings.send(Happening::Terminal(event)).is_err() {
            return;
        }
    }
    let _ = happenings.send(Happening::End);
}

fn run(
    terminal: &mut DefaultTerminal,
    mut model: Model,
    happenings: &Receiver<Happening>,
    asks: &Sender<Vec<Ask>>,
) -> io::Result<()> {
    let start = Instant::now();
    let mut next_tick = start;
    while !model.has_quit() {
        let size = terminal.size()?;
        model.resize(size.width, size.height);
        terminal.draw(|frame| view::draw(frame, &model))?;
        let wanted = match happenings.recv_timeout(next_tick.saturating_duration_since(Instant::now())) {
            Ok(Happening::Terminal(Event::Key(key))) if key.kind != KeyEventKind::Release => model.key(key),
            Ok(Happening::Terminal(_)) => Vec::new(),
            Ok(Happening::Server(news)) => model.news(news, start.elapsed()),
            Ok(Happening::End) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {
                next_tick = Instant::now().checked_add(PERIOD).unwrap_or(next_tick);
                model.tick()
            }
        };
        if !wanted.is_empty() && asks.send(wanted).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

//! Screens, drawn from replies as a server gives them, and what keys ask for. The expected screens are in `screens/`;
//! `RQ_TOP_REWRITE=1` writes them anew.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]

use std::path::Path;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use redis::Value;

use crate::ask::{Action, Ask};
use crate::data::Group;
use crate::model::{Link, Model};
use crate::server::News;
use crate::view;

/// Server's clock when it begins, Unix ms.
const NOW: u64 = 1_764_425_650_000;

fn bulk(bytes: impl AsRef<[u8]>) -> Value {
    Value::BulkString(bytes.as_ref().to_vec())
}

fn int(number: u64) -> Value {
    Value::Int(i64::try_from(number).unwrap())
}

/// A map as RESP2 has it. Numbers are numbers, `-` is nil.
fn map(text: &str) -> Value {
    let words: Vec<&str> = text.split_whitespace().collect();
    Value::Array(words.iter().map(|word| word_value(word)).collect())
}

fn word_value(word: &str) -> Value {
    match word.parse::<u64>() {
        Ok(number) => int(number),
        Err(_) if word == "-" => Value::Nil,
        Err(_) => bulk(word),
    }
}

fn with(map: Value, key: &str, value: Value) -> Value {
    let Value::Array(mut items) = map else { panic!("not a map") };
    items.extend([bulk(key), value]);
    Value::Array(items)
}

fn page(cursor: &str, items: Vec<Value>) -> Value {
    Value::Array(vec![bulk(cursor), Value::Array(items)])
}

fn error(text: &str) -> Value {
    redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).unwrap()
}

/// A model before a server that the test plays.
struct Play {
    model: Model,
    asked: Vec<Vec<Ask>>,
    seconds: u64,
}

impl Play {
    fn new(width: u16, height: u16) -> Self {
        let mut model = Model::new("127.0.0.1:6379".to_string());
        model.resize(width, height);
        Self { model, asked: Vec::new(), seconds: 0 }
    }

    /// A second passes; all is answered.
    fn second(&mut self, server: &dyn Fn(&Ask, u64) -> Value) {
        self.seconds += 1;
        let asks = self.model.tick();
        self.note(asks);
        self.answer(server);
    }

    fn note(&mut self, asks: Vec<Ask>) {
        if !asks.is_empty() {
            self.asked.push(asks);
        }
    }

    fn answer(&mut self, server: &dyn Fn(&Ask, u64) -> Value) {
        while let Some(asks) = (!self.asked.is_empty()).then(|| self.asked.remove(0)) {
            let answers = asks
                .into_iter()
                .map(|ask| {
                    let reply = match &ask {
                        Ask::Time => {
                            Value::Array(vec![bulk((NOW / 1000 + self.seconds).to_string()), bulk("0")])
                        }
                        _ => server(&ask, self.seconds),
                    };
                    let answer = ask.read(&reply);
                    (ask, answer)
                })
                .collect();
            let more = self.model.news(News::Answers(answers), Duration::from_secs(self.seconds));
            self.note(more);
        }
    }

    fn down(&mut self, reason: &str) {
        self.seconds += 1;
        let asks = self.model.tick();
        let more = self.model.news(News::Down(reason.to_string(), asks), Duration::from_secs(self.seconds));
        assert!(more.is_empty(), "it waits for the next second");
    }

    fn press(&mut self, code: KeyCode) -> &mut Self {
        let asks = self.model.key(KeyEvent::new(code, KeyModifiers::NONE));
        self.note(asks);
        self
    }

    fn type_in(&mut self, text: &str) -> &mut Self {
        text.chars().for_each(|character| {
            self.press(KeyCode::Char(character));
        });
        self
    }

    /// All that is to be asked or done, without answering it.
    fn takes(&mut self) -> Vec<Ask> {
        self.asked.drain(..).flatten().collect()
    }

    fn screen(&mut self) -> String {
        let mut terminal = Terminal::new(TestBackend::new(self.model.width, self.model.height)).unwrap();
        terminal.draw(|frame| view::draw(frame, &self.model)).unwrap();
        let buffer = terminal.backend().buffer();
        let lines: Vec<String> = buffer
            .content()
            .chunks(usize::from(self.model.width))
            .map(|cells| cells.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_string())
            .collect();
        lines.join("\n") + "\n"
    }

    #[track_caller]
    fn shows(&mut self, name: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bin/rq-top/screens").join(name);
        let screen = self.screen();
        if std::env::var_os("RQ_TOP_REWRITE").is_some() {
            std::fs::write(&path, &screen).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(screen == expected, "{name} is not as expected, but\n{screen}");
    }
}

fn stats(second: u64) -> Value {
    let flat = map("delayed 12 ready 1234 active 5 done 1000000 dead 2 cancelled 0 oldest-ready-age 3200 paused 0 paused-until -
        held - held-until - workers 4 waiting-workers 2 bytes 1268000");
    let flat = with(flat, "next-wakeup", int(NOW + 65_000));
    let flat = with(
        flat,
        "groups",
        map("count 20000 looked-at 10000 eligible 3 empty 9990 paused 0 backoff 6 ordered 1"),
    );
    let flat = with(flat, "live-workers", int(3));
    let flat = with(flat, "stale-workers", int(1));
    let flat = with(flat, "wait-time", map("count 1000 p50 12 p90 1100 p99 61000 max 70000"));
    let flat = with(flat, "run-time", map("count 0 p50 - p90 - p99 - max -"));
    let per_minutes = |counts: [u64; 3]| Value::Array(counts.map(int).to_vec());
    let rates = with(map(""), "enqueued", per_minutes([3000, 15_000, 45_000]));
    let flat = with(flat, "rates", with(rates, "done", per_minutes([2900, 14_900, 1_234_567])));
    let done = 1_000_000 + second * second;
    let enqueued = 1_001_253 + second * 50;
    with(
        flat,
        "totals",
        map(&format!("enqueued {enqueued} delivered 0 done {done} failed {second} dead 2 removed 0")),
    )
}

fn worker(name: &[u8], rest: &str) -> Value {
    let map = with(map(rest), "first-seen", int(NOW - 60_000));
    with(with(map, "last-seen", int(NOW - 500)), "name", bulk(name))
}

/// A server with three queues, one of them with a name that is no text.
fn server(ask: &Ask, second: u64) -> Value {
    match ask {
        Ask::Names { .. } => page("0", vec![bulk("mail"), bulk(b"\xff\x1b[2Jodd"), bulk("empty")]),
        Ask::Stats(queue) if queue == b"mail" => stats(second),
        Ask::Stats(queue) if queue == b"empty" => {
            with(map("delayed 0 ready 0 active 0 done 0 dead 0 cancelled 0 paused 1 held paused workers 0"), "totals", map("enqueued 0"))
        }
        Ask::Stats(_) => map("delayed 0 ready 7"), // of an older server
        Ask::Workers { .. } => page("0", vec![
            with(worker(b"host-1", "active 1 done 10 failed 0 crashed 0 stale 0"), "waiting-since", Value::Nil),
            with(worker(b"host-2\xfe", "active 0 done 7 failed 1 crashed 2 stale 0"), "waiting-since", int(NOW - 2000)),
            with(worker(b"host-3", "active 1 done 0 failed 0 crashed 0 stale 1"), "waiting-since", Value::Nil),
        ]),
        Ask::Groups { .. } => page(
            "17",
            vec![
                map("group - tenant - delayed 0 ready 0 active 0 dead 0 concurrency none held empty held-by -"),
                with(
                    map("group example.com tenant acme delayed 0 ready 9 active 2 dead 1 oldest-ready-age 61000 concurrency 2
                        paused 0 circuit-level 3 throttled 0 held backoff held-by group"),
                    "held-until",
                    int(NOW + 30_000),
                ),
                map("group g tenant - delayed 0 ready 9 active 2 dead 0 concurrency none paused 0 held rate held-by tenant"),
                map("group served tenant - delayed 0 ready 1 active 0 dead 0 concurrency none paused 0 held - held-by -"),
            ],
        ),
        Ask::Jobs { .. } => page(
            "0",
            vec![with(
                map("id order-17 state dead priority 3 group - tenant - deliveries 4 attempts 3 crashes 0 worker host-1
                    reason attempts error timeout"),
                "ended",
                int(NOW - 5000),
            )],
        ),
        Ask::Job { .. } => {
            let job = map("id order-17 state dead priority 3 group - tenant - claimed - deliveries 4 attempts 3 attempts-allowed 3
                crashes 0 crashes-allowed 5 cancelling 0 worker host-1 reason attempts error timeout progress - result -");
            let job = with(job, "ended", int(NOW - 5000));
            let job = with(with(job, "ttl", Value::Int(-1)), "options", with(map("attempts 3"), "backoff", Value::Array(vec![int(1), int(2)])));
            with(job, "payload", bulk(b"to: ada\n\xff"))
        }
        _ => Value::Okay,
    }
}

fn looking_at_queues(width: u16, height: u16) -> Play {
    let mut play = Play::new(width, height);
    for _ in 0..4 {
        play.second(&server);
    }
    play
}

#[test]
fn queues() {
    looking_at_queues(80, 24).shows("queues-80x24.txt");
    looking_at_queues(120, 40).shows("queues-120x40.txt");
    looking_at_queues(40, 8).shows("queues-40x8.txt");
}

#[test]
fn a_queue() {
    for (key, name) in [('1', "overview"), ('2', "workers"), ('3', "groups"), ('4', "jobs")] {
        let mut play = looking_at_queues(80, 24);
        play.type_in("/mail").press(KeyCode::Enter).press(KeyCode::Enter).type_in(&key.to_string());
        play.answer(&server);
        play.second(&server);
        play.shows(&format!("{name}-80x24.txt"));
        play.model.resize(120, 40);
        play.shows(&format!("{name}-120x40.txt"));
        if name == "jobs" {
            play.press(KeyCode::Enter);
            play.answer(&server);
            play.shows("job-120x40.txt");
        }
    }
}

#[test]
fn help() {
    let mut play = looking_at_queues(80, 24);
    play.type_in("?").shows("help-80x24.txt");
    play.type_in("q");
    assert!(!play.model.has_quit(), "that key closed the help");
}

#[test]
fn every_size_can_be_drawn() {
    for width in [1, 2, 9, 15, 16, 17, 33, 79, 300] {
        for height in [1, 2, 3, 4, 5, 6, 10, 100] {
            let mut play = looking_at_queues(width, height);
            play.screen();
            for keys in ["?", " 1", "2", "3", "4"] {
                play.press(KeyCode::Enter).type_in(keys);
                play.answer(&server);
                play.screen();
            }
            play.press(KeyCode::Enter);
            play.answer(&server);
            play.screen();
        }
    }
}

#[test]
fn no_queue() {
    let mut play = Play::new(80, 24);
    play.second(&|_, _| page("0", vec![]));
    assert!(play.screen().contains("There is no queue in this database."));
    play.press(KeyCode::Enter).type_in("prR");
    assert_eq!(play.takes(), []);
}

#[test]
fn ten_thousand_queues_are_looked_at_page_by_page() {
    let names = |ask: &Ask, _: u64| match ask {
        Ask::Names { cursor } => {
            let from: u64 = std::str::from_utf8(cursor).unwrap().parse().unwrap();
            let next = if from + 1000 == 10_000 { 0 } else { from + 1000 };
            page(
                &next.to_string(),
                (from..from + 1000).map(|number| bulk(format!("queue-{number:04}"))).collect(),
            )
        }
        Ask::Stats(_) => map("ready 1"),
        _ => panic!("{ask:?}"),
    };
    let mut play = Play::new(80, 24);
    let mut most = 0;
    for _ in 0..6 {
        play.seconds += 1;
        let asks = play.model.tick();
        most = most.max(asks.len());
        play.note(asks);
        play.answer(&names);
    }
    assert!(play.model.is_complete);
    assert_eq!(play.model.names.len(), 10_000);
    assert_eq!(most, 22, "the time, a page of names, and the 20 queues on the screen");
    play.press(KeyCode::End);
    play.answer(&names);
    let screen = play.screen();
    assert!(
        screen.contains("10,000 queues") && screen.contains("queue-9999") && screen.contains("queue-9980"),
        "{screen}"
    );
    play.model.resize(80, 300);
    let asks = play.model.tick();
    assert_eq!(asks.len(), 42, "not more than 40 queues a second");
    let first: Vec<Ask> = asks.clone();
    play.note(asks);
    play.answer(&names);
    let second = play.model.tick();
    assert!(second.iter().skip(2).all(|ask| !first.contains(ask)), "others are next");
}

#[test]
fn costly_queues_take_turns() {
    let costly = |ask: &Ask, _: u64| match ask {
        Ask::Names { .. } => page("0", (0..10).map(|number| bulk(format!("q{number}"))).collect()),
        _ => with(map("ready 1"), "groups", map("count 10000")),
    };
    let mut play = Play::new(80, 24);
    play.second(&costly);
    play.second(&costly);
    let mut asked: Vec<Ask> = Vec::new();
    for _ in 0..10 {
        let asks = play.model.tick();
        assert_eq!(asks.len(), 3, "the time, names, and one queue");
        asked.extend(asks.iter().filter(|ask| matches!(ask, Ask::Stats(_))).cloned());
        play.note(asks);
        play.answer(&costly);
    }
    asked.sort_by_key(|ask| format!("{ask:?}"));
    asked.dedup();
    assert_eq!(asked.len(), 10, "all get their turn");
}

#[test]
fn names_that_are_gone_go_and_the_selection_stays() {
    let mut play = looking_at_queues(80, 24);
    play.press(KeyCode::Down);
    assert_eq!(play.model.selected.as_deref(), Some(&b"mail"[..]));
    let fewer = |ask: &Ask, second: u64| match ask {
        Ask::Names { .. } => page("0", vec![bulk("mail"), bulk("a"), bulk("b")]),
        _ => server(ask, second),
    };
    play.second(&fewer);
    assert_eq!(play.model.selected.as_deref(), Some(&b"mail"[..]));
    assert_eq!((play.model.names.len(), play.model.pick.row), (3, 2));
    let gone = |ask: &Ask, _: u64| match ask {
        Ask::Names { .. } => page("0", vec![bulk("mail")]),
        _ => error("NOQUEUE there is no queue of this name"),
    };
    play.press(KeyCode::Enter);
    play.answer(&gone);
    assert!(play.screen().contains("there is no such queue any more"));
}

#[test]
fn what_changes_something_is_asked_for() {
    let mut play = looking_at_queues(80, 24);
    play.press(KeyCode::Down).type_in("p");
    assert_eq!(play.takes(), []);
    assert!(play.screen().contains("pause mail? y/n"));
    play.type_in("n");
    assert_eq!(play.takes(), []);
    assert!(play.screen().contains("pause mail: not done"));
    let mail = || b"mail".to_vec();
    play.type_in("py");
    assert_eq!(play.takes(), [Ask::Do(Action::Pause { queue: mail(), group: None })]);
    play.type_in("r");
    assert!(play.screen().contains("resume mail: it is not paused"));
    play.type_in("Ry");
    assert_eq!(play.takes(), [Ask::Do(Action::Redrive { queue: mail(), id: None })]);
    play.press(KeyCode::Up).type_in("p");
    assert!(play.screen().contains("pause empty: it is paused already"));
    play.type_in("ry");
    assert_eq!(play.takes(), [Ask::Do(Action::Resume { queue: b"empty".to_vec(), group: None })]);
    play.type_in("R");
    assert!(play.screen().contains("empty has no dead jobs"));
}

#[test]
fn a_group_and_a_job_are_changed_alone() {
    let mut play = looking_at_queues(80, 24);
    play.press(KeyCode::Down).press(KeyCode::Enter).type_in("3");
    play.answer(&server);
    let acme = Group { group: b"example.com".to_vec(), tenant: b"acme".to_vec() };
    play.press(KeyCode::Down).type_in("r");
    assert!(play.screen().contains("resume group acme/example.com of mail? y/n"), "it ends the back-off");
    play.type_in("y");
    let asked = play.takes();
    assert_eq!(asked, [Ask::Do(Action::Resume { queue: b"mail".to_vec(), group: Some(acme) })]);
    let words: Vec<String> = asked[0].words().iter().map(|word| crate::text::name(word)).collect();
    assert_eq!(words, ["RQ.RESUME", "mail", "GROUP", "example.com", "TENANT", "acme"]);
    let done = asked.into_iter().map(|ask| (ask.clone(), ask.read(&Value::Okay))).collect();
    let more = play.model.news(News::Answers(done), Duration::from_secs(9));
    assert!(!more.is_empty(), "what came of it is looked at at once");
    play.note(more);
    play.answer(&server);
    assert!(play.screen().contains("resume group acme/example.com of mail: done"));
    play.type_in("jR");
    play.answer(&server);
    play.type_in("nR");
    assert!(play.screen().contains("redrive order-17 of mail? y/n"), "{}", play.screen());
    play.type_in("y");
    let id = Some(b"order-17".to_vec());
    assert_eq!(play.takes(), [Ask::Do(Action::Redrive { queue: b"mail".to_vec(), id })]);
}

#[test]
fn the_server_goes_and_comes_back() {
    let mut play = looking_at_queues(80, 24);
    play.down("Connection refused (os error 111)");
    let screen = play.screen();
    assert!(screen.contains("no connection, trying again each second: Connection refused"), "{screen}");
    assert!(screen.contains("1,234"), "what was seen last stays");
    play.press(KeyCode::Down).type_in("py");
    let lost = play.takes();
    play.model.news(News::Down("closed".to_string(), lost), Duration::from_secs(9));
    play.second(&server);
    let screen = play.screen();
    assert!(screen.contains("pause mail: nobody knows whether it was done"), "{screen}");
    assert!(screen.contains("3 queues"), "{screen}");
}

#[test]
fn a_server_that_does_not_answer_is_not_asked_again() {
    let mut play = looking_at_queues(80, 24);
    assert!(!play.model.tick().is_empty());
    assert!(play.model.tick().is_empty() && play.model.tick().is_empty());
    assert!(play.screen().contains("no answer for 2 s"));
}

#[test]
fn what_the_server_refuses_is_explained() {
    let refuse = |text: &'static str| {
        let mut play = Play::new(80, 24);
        play.second(&|_, _| error(text));
        (play.model.link.clone(), play.screen())
    };
    let (link, screen) = refuse("ERR unknown command 'RQ.QUEUES', with args beginning with: 'CURSOR'");
    assert_eq!(link, Link::NoModule);
    assert!(screen.contains("This server does not have the module rq"), "{screen}");
    let (_, screen) = refuse("NOPERM this user has no permissions to run the 'rq.queues' command");
    assert!(screen.contains("This user may not ask for it"), "{screen}");
    let mut play = Play::new(80, 24);
    let asks = play.model.tick();
    let all_refused = asks
        .into_iter()
        .map(|ask| (ask.clone(), ask.read(&error("NOAUTH Authentication required."))))
        .collect();
    play.model.news(News::Answers(all_refused), Duration::from_secs(1));
    assert!(play.screen().contains("It wants a password"), "{}", play.screen());
}

#[test]
fn a_large_job_is_asked_for_once() {
    let large = |ask: &Ask, second: u64| match ask {
        Ask::Job { .. } => with(map("id order-17 state ready"), "payload", bulk(vec![b'x'; 1 << 20])),
        _ => server(ask, second),
    };
    let mut play = looking_at_queues(80, 24);
    play.press(KeyCode::Down).type_in("j");
    play.answer(&large);
    play.press(KeyCode::Enter);
    play.answer(&large);
    let is_job = |ask: &Ask| matches!(ask, Ask::Job { .. });
    assert!(!play.model.tick().iter().any(is_job));
    let screen = play.screen();
    assert!(screen.contains("g asks again"), "{screen}");
    play.type_in("g");
    assert!(play.takes().iter().any(is_job));
}

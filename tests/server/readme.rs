//! The transcript in the README, and those about `UNIQUE` and `RQ.READ` in the reference, executed as they stand there: each command as redis-cli reads it, each reply as redis-cli
//! shows it. Ids and tokens are other ones each time, and so are durations: what the README calls an id stands for the id
//! that came in its place.

use std::collections::HashMap;
use std::io::Write;
use std::process::{Command, Stdio};

use crate::common::*;
use crate::tests;

pub const TESTS: &[Test] = tests![
    the_transcript_is_true,
    what_the_reference_shows_of_keys_is_true,
    what_the_reference_shows_of_outputs_is_true,
];

const README: &str = include_str!("../../README.md");
const REFERENCE: &str = include_str!("../../docs/commands.md");
const PROMPT: &str = "127.0.0.1:6379> ";

/// Numbers from here on are durations and instants, which differ a little.
const TIME_MIN: u64 = 1_000;

fn the_transcript_is_true(lab: &Lab) {
    let steps = transcript(README, PROMPT);
    assert!(steps.len() >= 8, "only {} commands were found", steps.len());
    check(lab, steps);
}

fn what_the_reference_shows_of_keys_is_true(lab: &Lab) {
    let section = REFERENCE.split("\n### One job at a time").nth(1).expect("its section");
    let steps = transcript(section, "> ");
    assert!(steps.len() == 4, "{} commands were found", steps.len());
    check(lab, steps);
}

fn what_the_reference_shows_of_outputs_is_true(lab: &Lab) {
    let section = REFERENCE.split("\n## RQ.READ\n").nth(1).expect("its section");
    let steps = transcript(section, "> ");
    assert!(steps.len() == 7, "{} commands were found", steps.len());
    check(lab, steps);
}

fn check(lab: &Lab, steps: Vec<(String, String)>) {
    let server = lab.server();
    let mut ids = HashMap::new();
    for (command, expected) in steps {
        let command = replaced(&command, &ids);
        let shown = redis_cli(server.port, &command);
        for (of_readme, of_server) in words(&expected).zip(words(&shown)) {
            if is_id(of_readme) && is_id(of_server) {
                ids.insert(of_readme.to_string(), of_server.to_string());
            }
        }
        assert_eq!(without_times(&shown), without_times(&replaced(&expected, &ids)), "after {command}");
    }
}

/// The commands of the first console block, each with the reply that is shown below it.
fn transcript(text: &str, prompt: &str) -> Vec<(String, String)> {
    let block = text.split("```console\n").nth(1).expect("a console block");
    let block = block.split("```").next().expect("its end");
    block
        .split(prompt)
        .skip(1)
        .map(|step| {
            let (command, reply) = step.split_once('\n').expect("a reply");
            (command.to_string(), reply.trim_end().to_string())
        })
        .collect()
}

fn redis_cli(port: u16, command: &str) -> String {
    let mut child = Command::new("redis-cli")
        .args(["--no-raw", "-p", &port.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("redis-cli starts");
    let mut input = child.stdin.take().expect("its input");
    writeln!(input, "{command}").expect("it reads");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    String::from_utf8_lossy(&output.stdout).trim_end().to_string()
}

/// The words of a reply, without the quotes around them.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_whitespace().map(|word| word.trim_matches('"'))
}

fn is_id(word: &str) -> bool {
    word.split_once('-').is_some_and(|(ms, number)| {
        ms.len() >= 13 && [ms, number].iter().all(|part| part.bytes().all(|byte| byte.is_ascii_digit()))
    })
}

fn replaced(text: &str, ids: &HashMap<String, String>) -> String {
    ids.iter().fold(text.to_string(), |text, (of_readme, of_server)| text.replace(of_readme, of_server))
}

fn without_times(text: &str) -> String {
    let words = text.split(' ').map(|word| {
        let is_time = word.parse::<u64>().is_ok_and(|number| number >= TIME_MIN);
        if is_time { "<time>" } else { word }
    });
    words.collect::<Vec<_>>().join(" ")
}

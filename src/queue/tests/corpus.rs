//! The corpus of the fuzzer, `tests/corpus`: every file in it goes through its target whenever the tests run. `make fuzz`
//! begins with it; what was found stays in it.

use std::fs;
use std::panic::catch_unwind;
use std::path::PathBuf;

use super::targets;
use crate::persist;

/// Most bytes for each target: this is to stay a sample.
const BYTES_MAX: usize = 72_000;

fn dir(target: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "corpus", target].iter().collect()
}

/// The files for a target, by name.
fn files(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let dir = dir(target);
    let entries = fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// What a target says of each file.
fn run(target: &str, run: fn(&[u8]) -> usize) -> Vec<usize> {
    let files = files(target);
    let bytes = files.iter().map(|(_, file)| file.len()).sum::<usize>();
    assert!(bytes <= BYTES_MAX, "{target}: {bytes} bytes are too many");
    let run = |(path, file): &(PathBuf, Vec<u8>)| {
        catch_unwind(|| run(file)).unwrap_or_else(|_| panic!("{}: see above", path.display()))
    };
    files.iter().map(run).collect()
}

/// With `RQ_GOLDEN=1`: small queues of today's format, where all scripts of the corpus end, for `make fuzz` to go on from.
#[test]
fn queues_to_begin_with() {
    if std::env::var_os("RQ_GOLDEN").is_none() {
        return;
    }
    for (path, script) in files("ops") {
        let mut chunks = Vec::new();
        persist::save(&targets::play(&script).0, &mut |chunk: &[u8]| chunks.push(chunk.to_vec()));
        let file = targets::join(chunks.iter().map(Vec::as_slice));
        if file.len() <= 500 {
            fs::write(dir("value").join(path.file_name().unwrap()), file).unwrap();
        }
    }
}

#[test]
fn values_are_refused_or_harmless() {
    let answers = run("value", |file| usize::from(targets::value(file)));
    let loaded = answers.iter().sum::<usize>();
    assert!(loaded > 20 && answers.len() > 2 * loaded, "{loaded} of {} are queues", answers.len());
}

#[test]
fn messages_are_refused_or_harmless() {
    let answers = run("messages", targets::messages);
    let taken = answers.iter().filter(|&&taken| taken > 0).count();
    assert!(taken > 10 && answers.len() > 2 * taken, "{taken} of {} change something", answers.len());
}

#[test]
fn calls_keep_what_must_hold() {
    let answers = run("ops", targets::ops);
    let taken = answers.iter().sum::<usize>();
    assert!(taken > 5 * answers.len() && answers.len() > 20, "{taken} changes by {} files", answers.len());
}

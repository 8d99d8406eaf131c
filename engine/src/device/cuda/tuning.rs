//! Which of several kernels is the fastest for a step, as it was measured: found out once and kept.
//!
//! A step names its problem: shapes, strides, precision and epilogue. What was chosen for a problem holds for this GPU,
//! this driver and these kernels; the file of it is named after all three.

use super::binaries::{Binaries, write_whole};
use super::context::Context;
use super::kernels::sources;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

/// The hash of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Problem(u128);

/// The hash of a way to solve it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way(u64);

impl Problem {
    /// By all that matters of it.
    pub(super) fn of(what: &str) -> Problem {
        Problem(xxh3_128(what.as_bytes()))
    }
}

impl Way {
    /// By all that tells it from the others.
    pub(super) fn of(what: &str) -> Way {
        Way(xxh3_64(what.as_bytes()))
    }
}

/// So many choices are kept: whoever may ask for any shape makes problems without end.
const MOST: usize = 1 << 16;

/// What has been found out.
#[derive(Default)]
pub(super) struct Tuned {
    /// Where it is kept; nowhere without a folder.
    file: Option<PathBuf>,
    known: Mutex<BTreeMap<Problem, Way>>,
}

impl Tuned {
    /// What was kept for this GPU, if anything.
    pub(super) fn open(context: &Context, binaries: &Binaries) -> Tuned {
        let capability = context.gpu.capability;
        let mut made_for = format!("{} {capability} {}", context.name, context.driver);
        for source in sources(capability) {
            made_for.push_str(&source.text());
        }
        let name = format!("tuned-{:016x}.txt", xxh3_64(made_for.as_bytes()));
        let file = binaries.keep.as_ref().map(|folder| folder.join(name));
        let text = file.as_ref().and_then(|file| fs::read_to_string(file).ok()).unwrap_or_default();
        Tuned { file, known: Mutex::new(parse(&text)) }
    }

    /// What was chosen for a problem.
    pub(super) fn get(&self, problem: Problem) -> Option<Way> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&problem).copied()
    }

    /// Adds a choice, unless another was made meanwhile or there are very many; returns what holds.
    pub(super) fn note(&self, problem: Problem, way: Way) -> Way {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST && !known.contains_key(&problem) {
            return way;
        }
        *known.entry(problem).or_insert(way)
    }

    /// Writes all choices down. Where that fails they are found out again at the next start.
    pub(super) fn write(&self) {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &self.file {
            let _ = write_whole(file, print(&known).as_bytes());
        }
    }
}

fn print(known: &BTreeMap<Problem, Way>) -> String {
    let mut text = String::new();
    for (Problem(problem), Way(way)) in known {
        let _ = writeln!(text, "{problem:032x} {way:016x}");
    }
    text
}

/// Lines that are none are left out: what they were about is found out again.
fn parse(text: &str) -> BTreeMap<Problem, Way> {
    let line = |line: &str| {
        let (problem, way) = line.split_once(' ')?;
        let whole = problem.len() == 32 && way.len() == 16;
        let problem = u128::from_str_radix(problem, 16).ok().filter(|_| whole)?;
        Some((Problem(problem), Way(u64::from_str_radix(way, 16).ok()?)))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_found_again_and_torn_lines_are_not() {
        let folder = temp_dir::TempDir::new().unwrap();
        let file = folder.path().join("sub/tuned.txt");
        let tuned = Tuned { file: Some(file.clone()), known: Mutex::default() };
        let (first, second) = (Problem::of("first"), Problem::of("second"));
        assert_eq!(tuned.note(first, Way::of("a")), Way::of("a"));
        tuned.note(second, Way::of("b"));
        assert_eq!(tuned.note(first, Way::of("c")), Way::of("a"), "who came first");
        tuned.write();
        let text = fs::read_to_string(file).unwrap();
        let known = parse(&text);
        assert_eq!((known.get(&first), known.len()), (Some(&Way::of("a")), 2));
        assert_eq!(parse(&text[..text.len() - 2]).len(), 1);
        assert_eq!(parse("nothing\n\n0 1\n").len(), 0);
    }
}

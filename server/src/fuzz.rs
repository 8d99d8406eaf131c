//! Fuzz targets: what comes from outside, mutated, must be read or refused, in time and without a panic.
//!
//! With the other tests each target has a second; `FUZZ_SECONDS=60 cargo test --release fuzz::` gives it more, as
//! `tests/run` does, and `FUZZ_SEED` another beginning. The input at hand lies in `target/fuzz` while it is tried, so that
//! it is there after a crash or a hang: it goes into the corpus, `tests/fuzz`, once what it found is fixed. No coverage
//! guides it, which would have all dependencies compiled once more; the corpus is what leads into the depth.

use crate::command::Random;
use crate::config::{self, Flags};
use crate::http::decode_request;
use crate::repository::ModelSettings;
use bytes::Bytes;
use plimsoll_engine::arena::{Arena, Lines};
use plimsoll_engine::import::{Dim, Port, Signature};
use plimsoll_engine::model::{Limits, Model, Source};
use plimsoll_engine::slab::{Fixed, Terms};
use plimsoll_engine::tensor::{DType, Shape};
use std::env;
use std::fs::{self, File};
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// An input that takes longer is as bad as one that panics.
const SLOW: Duration = Duration::from_secs(10);

/// What is put in here and there: ends of ranges, and pieces that mean something to one reader or another.
const WORDS: [&[u8]; 16] = [
    b"\0",
    b"\xff",
    b"\x7f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"-1",
    b"18446744073709551616",
    b"1e999",
    b"null",
    b"[[[[",
    b"{}",
    b"\"",
    b"\\ud800",
    b"binary_data_size",
    b"BYTES",
    b"\n[server]\n",
    b"= [",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn number(variable: &str, default: u64) -> u64 {
    env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A number below `end`, or 0 where there is none.
fn below(random: &mut Random, end: usize) -> usize {
    random.bits() as usize % end.max(1)
}

/// Tries the corpus as it is, then mutations of it until the time is over.
fn fuzz(target: &str, seeds: &[&str], try_one: impl Fn(&Path, &[u8])) {
    let mut files: Vec<PathBuf> = seeds.iter().map(|seed| root().join(seed)).collect();
    let corpus = fs::read_dir(root().join("tests/fuzz").join(target)).unwrap();
    files.extend(corpus.map(|entry| entry.unwrap().path()));
    files.sort();
    let corpus: Vec<Vec<u8>> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    let at_hand = root().join("target/fuzz").join(target);
    fs::create_dir_all(at_hand.parent().unwrap()).unwrap();
    let mut kept = File::create(&at_hand).unwrap();
    let mut run = |input: &[u8]| {
        // In place: file systems bring a file to the disk that is emptied and written anew, which takes milliseconds.
        kept.rewind().unwrap();
        kept.write_all(input).unwrap();
        kept.set_len(input.len() as u64).unwrap();
        let begun = Instant::now();
        try_one(&at_hand, input);
        assert!(begun.elapsed() < SLOW, "{} took {:?}", at_hand.display(), begun.elapsed());
    };
    corpus.iter().for_each(|input| run(input));
    let mut random = Random::new(number("FUZZ_SEED", 1));
    let (begun, seconds, mut tried) = (Instant::now(), number("FUZZ_SECONDS", 1), corpus.len());
    while begun.elapsed() < Duration::from_secs(seconds) {
        run(&mutated(&corpus, &mut random));
        tried += 1;
    }
    fs::remove_file(&at_hand).unwrap();
    println!("{target}: {tried} inputs");
}

/// One of the corpus with a few changes, most often one.
fn mutated(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut input = corpus[below(random, corpus.len())].clone();
    for _ in 0..1 << below(random, 4) {
        let (at, len) = (below(random, input.len()), 1 + below(random, 16));
        let end = (at + len).min(input.len());
        match below(random, 6) {
            0 if !input.is_empty() => input[at] ^= 1 << below(random, 8),
            1 => drop(input.drain(at..end)),
            2 => input.truncate(at),
            3 => drop(input.splice(at..at, WORDS[below(random, WORDS.len())].iter().copied())),
            4 => drop(input.splice(at..end, WORDS[below(random, WORDS.len())].iter().copied())),
            _ => {
                // Another's piece, which has a form of its own.
                let other = &corpus[below(random, corpus.len())];
                let from = below(random, other.len());
                let to = (from + 1 + below(random, 256)).min(other.len());
                input.splice(at..at, other[from..to].iter().copied());
            }
        }
    }
    input
}

/// `image` FP32 [batch, 1, 8, 8] and `label` BYTES [batch] in, as of the sample model and of one with texts.
fn signature() -> Signature {
    let port = |name: &str, dtype, dims: &[Dim]| Port { name: name.into(), dtype, dims: Some(dims.to_vec()) };
    let batch = || Dim::Named("batch".into());
    let pixels = [batch(), Dim::Fixed(1), Dim::Fixed(8), Dim::Fixed(8)];
    Signature {
        inputs: vec![port("image", DType::F32, &pixels), port("label", DType::Bytes, &[batch()])],
        outputs: vec![port("probabilities", DType::F32, &[batch(), Dim::Fixed(10)])],
    }
}

/// No request may take more than this of memory beside its body.
fn claims() -> impl FnMut(usize) -> bool {
    let mut left = 1 << 24;
    move |bytes| {
        let fits = bytes <= left;
        left -= if fits { bytes } else { 0 };
        fits
    }
}

#[test]
fn json_bodies() {
    fuzz("json", &["models/digits/one.json"], |_, input| {
        let _ = decode_request(Bytes::copy_from_slice(input), None, &signature(), &mut claims());
    });
}

/// The first two bytes of an input are the length of its JSON.
#[test]
fn binary_bodies() {
    fuzz("binary", &[], |_, input| {
        let Some((length, body)) = input.split_first_chunk() else { return };
        let length = usize::from(u16::from_le_bytes(*length));
        let _ = decode_request(Bytes::copy_from_slice(body), Some(length), &signature(), &mut claims());
    });
}

#[test]
fn configurations() {
    let seeds = ["config/plimsoll.toml", "config/jetson-orin-nano-4gb.toml", "models/digits/model.toml"];
    fuzz("config", &seeds, |file, input| {
        let _ = config::load(Some(file), [], &Flags::default());
        let _ = ModelSettings::read(&String::from_utf8_lossy(input), file);
    });
}

/// Imported, planned and made a program of under a ceiling, each time in the same slab, which must be as empty after it.
#[test]
fn models() {
    let fixed = Fixed { ceiling: 192 << 20, headroom: 128 << 20, ..Fixed::default() };
    let lines = Lines { fixed, lanes: 1, workspace: Some(1 << 20), threads: 1, ..Lines::default() };
    let arena = Arena::take(&lines, || 0).unwrap();
    fuzz("onnx", &["models/digits/model.onnx"], |file, _| {
        let model = Model::load(&Source::file(file), "fuzz", Limits::default(), Terms::default(), &arena);
        if let Ok(model) = model {
            let size = |dim: &Dim| if let Dim::Fixed(size) = dim { *size } else { 2 };
            let of_port = |port: &Port| -> Shape { port.dims.iter().flatten().map(size).collect() };
            let shapes: Vec<Shape> = model.signature().inputs.iter().map(of_port).collect();
            let _ = model.program(&shapes);
        }
        assert_eq!(arena.held_by("fuzz"), 0, "{}", file.display());
    });
}

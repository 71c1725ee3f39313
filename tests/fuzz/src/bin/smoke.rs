//! Runs each target on its corpus and on a number of mutations of it, without a fuzzer: `smoke
//! [MUTATIONS [SEED]]`. The same numbers make the same inputs, and the input of a failure is
//! printed.

use std::panic::catch_unwind;
use std::path::Path;
use std::process::ExitCode;

use fastrand::Rng;
use weir_fuzz::TARGETS;

fn main() -> ExitCode {
    let mut numbers = std::env::args().skip(1).map(|word| word.parse().expect("a number"));
    let mutations = numbers.next().unwrap_or(20_000);
    let mut rng = Rng::with_seed(numbers.next().unwrap_or(1));
    let mut failed = false;
    for (name, target) in TARGETS {
        let corpus = corpus(name);
        assert!(!corpus.is_empty(), "no corpus for {name}");
        let seeds = corpus.len() as u64;
        for number in 0..seeds + mutations {
            let input = match corpus.get(number as usize) {
                Some(input) => input.clone(),
                None => mutated(&corpus, &mut rng),
            };
            if catch_unwind(|| target(&input)).is_err() {
                println!("{name} fails for {:?}", String::from_utf8_lossy(&input));
                failed = true;
                break;
            }
        }
        println!("{name}: {seeds} seeds, {mutations} mutations");
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Returns the files of a target in the order of their names.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let files = std::fs::read_dir(directory).expect("a corpus");
    let mut files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    files.sort();
    files.into_iter().map(|file| std::fs::read(file).expect("a file")).collect()
}

fn mutated(corpus: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut input = corpus[rng.usize(..corpus.len())].clone();
    for _ in 0..rng.usize(1..6) {
        let at = rng.usize(..=input.len());
        let end = (at + rng.usize(..8)).min(input.len());
        match rng.u8(..6) {
            0 => input.insert(at, rng.u8(..)),
            1 => drop(input.drain(at..end)),
            2 if at < input.len() => input[at] ^= 1 << rng.u8(..8),
            3 => {
                let word = WORDS[rng.usize(..WORDS.len())];
                input.splice(at..end, word.iter().copied());
            }
            4 => {
                let other = &corpus[rng.usize(..corpus.len())];
                let from = rng.usize(..=other.len());
                input.splice(at.., other[from..].iter().copied());
            }
            _ => {
                let copy = input[at..end].to_vec();
                input.splice(at..at, copy);
            }
        }
    }
    input
}

/// Tokens of the grammars and the encodings.
const WORDS: [&[u8]; 28] = [
    b"&",
    b"=",
    b"%",
    b"%2f",
    b"+",
    b";",
    b"/",
    b"..",
    b",",
    b"!",
    b"(",
    b")",
    b" in ",
    b" notin ",
    b"\n",
    b"\"",
    b"\\",
    b"{",
    b"}",
    b"[",
    b"null",
    b"*/*",
    b";q=0.5",
    b"18446744073709551615",
    b"k8s\0",
    b"\x0a\0",
    b"\x12\0",
    b"\x1a\0\x22\0",
];

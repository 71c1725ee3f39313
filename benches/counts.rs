//! How many instructions and allocations the main paths take: figures that no load of the machine changes, so that CI can hold them to bounds.
//!
//! `cargo bench --bench counts` runs itself under valgrind's callgrind, which counts what happens within [`measured_from_here`], one dump a
//! case. CI does so in the build that `counts/run` makes, and compares with `counts/bounds.tsv`, which `counts/run --write` takes anew.
//!
//! A count is not a time: a cache miss costs a hundred instructions, and a system call is one. What a change does to times is for the other
//! benches to tell; this one notices what nobody meant to change.

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a bench prints, and stops where something fails"
)]

#[path = "counts/bounds.rs"]
mod bounds;
#[path = "support/caches.rs"]
#[expect(dead_code, reason = "other benches use more of it")]
mod caches;
#[path = "counts/cases.rs"]
mod cases;
#[path = "support/lists.rs"]
#[expect(dead_code, reason = "other benches use more of it")]
mod lists;
#[path = "support/pods.rs"]
#[expect(dead_code, reason = "other benches use more of it")]
mod pods;
#[path = "counts/valgrind.rs"]
mod valgrind;

use std::process::ExitCode;

use crate::bounds::Bounds;
use crate::cases::Case;

/// What is asked on the command line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// To be counted: the cases, one after the other. For valgrind.
    Run,
    /// To count and compare.
    Check,
    /// To count and write the bounds anew.
    Write,
}

fn main() -> ExitCode {
    let has = |word: &str| std::env::args().any(|it| it == word);
    let role = match (has("--run"), has("--write")) {
        (true, _) => Role::Run,
        (_, true) => Role::Write,
        _ => Role::Check,
    };
    if role == Role::Run {
        for case in cases::all() {
            println!("{}\t{}", case.name, case.times);
            let Case { mut run, .. } = case;
            set_up_until_here();
            measured_from_here(&mut *run);
        }
        return ExitCode::SUCCESS;
    }
    if !valgrind::is_here() {
        println!("skipped: valgrind is not installed");
        return ExitCode::SUCCESS;
    }
    let counted = valgrind::count();
    if role == Role::Write {
        bounds::write(&counted);
        return ExitCode::SUCCESS;
    }
    Bounds::read().compare(&counted)
}

/// By this name, and the next one, callgrind knows where to begin and where to end.
#[inline(never)]
fn set_up_until_here() {
    std::hint::black_box(());
}

/// See [`set_up_until_here`].
#[inline(never)]
fn measured_from_here(run: &mut dyn FnMut()) {
    run();
}

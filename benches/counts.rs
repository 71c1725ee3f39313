//! Counts the instructions and allocations of the main paths. The load of the machine does not
//! change these counts, so CI can check them against bounds.
//!
//! `cargo bench --bench counts` runs itself under valgrind's callgrind, which counts what happens
//! in [`measured_from_here`] and writes one dump per case. CI uses the build of `counts/run` and
//! compares with `counts/bounds.tsv`; `counts/run --write` writes new bounds.
//!
//! A count is not a time: a cache miss costs as much as a hundred instructions, and a system call
//! counts as one. The other benches measure times. This one detects unintended changes.

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
#[path = "counts/flow_control.rs"]
mod flow_control;
#[path = "support/lists.rs"]
#[expect(dead_code, reason = "other benches use more of it")]
mod lists;
#[path = "support/pods.rs"]
#[expect(dead_code, reason = "other benches use more of it")]
mod pods;
#[path = "support/queues.rs"]
mod queues;
#[path = "counts/valgrind.rs"]
mod valgrind;

use std::process::ExitCode;

use crate::bounds::Bounds;
use crate::cases::Case;

/// The mode that the command line selects.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Runs all cases. The other modes start this one under valgrind.
    Run,
    /// Counts, and compares with the bounds.
    Check,
    /// Counts, and writes new bounds.
    Write,
}

fn main() -> ExitCode {
    let has = |word: &str| std::env::args().any(|argument| argument == word);
    let mode = match (has("--run"), has("--write")) {
        (true, _) => Mode::Run,
        (_, true) => Mode::Write,
        _ => Mode::Check,
    };
    if mode == Mode::Run {
        for case in cases::every_case() {
            println!("{}\t{}", case.name, case.times);
            let Case { mut run, .. } = case;
            set_up_until_here();
            measured_from_here(&mut *run);
        }
        return ExitCode::SUCCESS;
    }
    if !valgrind::is_installed() {
        println!("skipped: valgrind is not installed");
        return ExitCode::SUCCESS;
    }
    let counts = valgrind::count();
    if mode == Mode::Write {
        bounds::write(&counts);
        return ExitCode::SUCCESS;
    }
    Bounds::read().compare(&counts)
}

/// Marks the end of a case's set-up. Callgrind writes a dump when a function with this name
/// returns, and another after [`measured_from_here`].
#[inline(never)]
fn set_up_until_here() {
    std::hint::black_box(());
}

/// Runs the measured part of a case, which ends with a dump.
#[inline(never)]
fn measured_from_here(run: &mut dyn FnMut()) {
    run();
}

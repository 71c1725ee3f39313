//! The upper bounds of the counts of each case.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::valgrind::CaseCounts;
use crate::{cases, flow_control};

/// The allowed excess, as a fraction of the bound. Counts of the same source and compiler differ by
/// a few hundredths of a percent, because hashes are seeded at random. Another C library copies and
/// allocates slightly differently.
const SLACK: f64 = 0.1;
/// The excess that is always allowed, because one more is a large fraction of a small count.
const INSTRUCTIONS_LEAST: f64 = 50.0;
const ALLOCATIONS_LEAST: f64 = 0.1;

/// Returns whether this build and processor are like those of the bounds. Other counts are not
/// comparable, since libraries select their code by the processor's features.
fn is_comparable() -> bool {
    #[cfg(all(debug_assertions, target_arch = "x86_64", target_env = "gnu"))]
    let is_comparable = std::is_x86_feature_detected!("avx2");
    #[cfg(not(all(debug_assertions, target_arch = "x86_64", target_env = "gnu")))]
    let is_comparable = false;
    is_comparable
}

/// The contents of `bounds.tsv`.
pub(crate) struct Bounds {
    cases: Vec<(String, f64, f64)>,
}

impl Bounds {
    pub(crate) fn read() -> Self {
        let text = fs::read_to_string(file()).unwrap_or_default();
        let line = |line: &str| {
            let mut words = line.split('\t');
            let name = words.next()?.to_owned();
            let mut number = || words.next()?.parse().ok();
            Some((name, number()?, number()?))
        };
        Self { cases: text.lines().filter_map(line).collect() }
    }

    /// Prints all counts. Fails if one exceeds its bound or has no bound.
    pub(crate) fn compare(&self, counts: &[CaseCounts]) -> ExitCode {
        println!("{:40} {:>14} {:>8} {:>12}", "per operation", "instructions", "", "allocations");
        let mut failures = Vec::new();
        for case in counts {
            let bound = self.cases.iter().find(|(name, ..)| *name == case.name);
            let bound = bound.filter(|_| is_comparable());
            let share = bound.map_or(f64::NAN, |bound| case.instructions / bound.1 * 100.0);
            println!(
                "{:40} {:>14.0} {share:>7.1}% {:>12.2}",
                case.name, case.instructions, case.allocations
            );
            match bound {
                Some(bound) => failures.extend(case.exceeded_bounds(bound.1, bound.2)),
                None => failures.push(format!("{}: no bound", case.name)),
            }
        }
        if !is_comparable() {
            println!(
                "\nnot compared: the bounds require benches/counts/run on x86-64 with AVX2 and glibc"
            );
            return exit_code(cfg!(debug_assertions) || meets_targets(counts));
        }
        let is_missing = |name: &str| counts.iter().all(|case| case.name != name);
        let missing = self.cases.iter().filter(|(name, ..)| is_missing(name));
        failures.extend(missing.map(|(name, ..)| format!("{name}: a bound without a case")));
        if failures.is_empty() {
            return ExitCode::SUCCESS;
        }
        println!("\n{}", failures.join("\n"));
        println!(
            "\nIf this is intended, run benches/counts/run --write and explain it in the commit"
        );
        ExitCode::FAILURE
    }
}

/// Returns whether an optimized build meets the targets of flow control.
fn meets_targets(counts: &[CaseCounts]) -> bool {
    println!("\nthe most instructions of an optimized build");
    let mut meets = true;
    for (name, most) in cases::TARGETS.into_iter().chain(flow_control::TARGETS) {
        let Some(case) = counts.iter().find(|case| case.name == name) else { continue };
        let is_met = case.instructions <= most;
        let word = if is_met { "met" } else { "missed" };
        println!("{name:38} {:>10.0} {most:>8.0} {word}", case.instructions);
        meets &= is_met;
    }
    meets
}

fn exit_code(is_success: bool) -> ExitCode {
    if is_success { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl CaseCounts {
    fn exceeded_bounds(&self, instructions: f64, allocations: f64) -> Vec<String> {
        let mut failures = Vec::new();
        let mut check = |what: &str, is: f64, bound: f64, least: f64| {
            if is > (bound * (1.0 + SLACK)).max(bound + least) {
                let more = (is / bound - 1.0) * 100.0;
                failures.push(format!(
                    "{}: {is:.1} {what}, {more:.0} % above the bound of {bound} in benches/counts/bounds.tsv",
                    self.name
                ));
            }
        };
        check("instructions", self.instructions, instructions, INSTRUCTIONS_LEAST);
        check("allocations", self.allocations, allocations, ALLOCATIONS_LEAST);
        failures
    }
}

/// Writes the counts as the new bounds.
pub(crate) fn write(counts: &[CaseCounts]) {
    assert!(is_comparable(), "bounds require benches/counts/run on x86-64 with AVX2 and glibc");
    let mut text = "case\tinstructions\tallocations\n".to_owned();
    for case in counts {
        let line = format!("{}\t{:.0}\t{:.2}\n", case.name, case.instructions, case.allocations);
        text.push_str(&line);
    }
    fs::write(file(), &text).expect("a file");
    println!("{text}");
}

fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("benches/counts/bounds.tsv")
}

//! What each case may take.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::valgrind::Counted;

/// In hundredths. The same source and compiler count the same to a few in ten thousand (hashes are seeded anew each time); another C
/// library copies and allocates a little otherwise.
const SLACK: f64 = 0.1;
/// So many more are never too many: of few, one is many hundredths.
const INSTRUCTIONS_LEAST: f64 = 50.0;
const ALLOCATIONS_LEAST: f64 = 0.1;

/// Counts mean nothing beyond the build and the kind of processor that they were taken on: libraries choose their code by what it has.
fn is_comparable() -> bool {
    #[cfg(all(debug_assertions, target_arch = "x86_64", target_env = "gnu"))]
    let is_alike = std::is_x86_feature_detected!("avx2");
    #[cfg(not(all(debug_assertions, target_arch = "x86_64", target_env = "gnu")))]
    let is_alike = false;
    is_alike
}

/// The file's lines.
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

    /// Prints all, and fails if one is above its bound or has none.
    pub(crate) fn compare(&self, counted: &[Counted]) -> ExitCode {
        println!("{:34} {:>14} {:>8} {:>12}", "each", "instructions", "", "allocations");
        let mut complaints = Vec::new();
        for case in counted {
            let bound = self.cases.iter().find(|(name, ..)| *name == case.name);
            let bound = bound.filter(|_| is_comparable());
            let share = bound.map_or(f64::NAN, |bound| case.instructions / bound.1 * 100.0);
            println!(
                "{:34} {:>14.0} {share:>7.1}% {:>12.2}",
                case.name, case.instructions, case.allocations
            );
            match bound {
                Some(bound) => complaints.extend(case.beyond(bound.1, bound.2)),
                None => complaints.push(format!("{}: has no bound", case.name)),
            }
        }
        if !is_comparable() {
            println!(
                "\nnot compared: the bounds are of benches/counts/run on x86-64 with AVX2 and glibc"
            );
            return ExitCode::SUCCESS;
        }
        let gone = |name: &str| counted.iter().all(|case| case.name != name);
        let gone = self.cases.iter().filter(|(name, ..)| gone(name));
        complaints.extend(gone.map(|(name, ..)| format!("{name}: has a bound, but is no case")));
        if complaints.is_empty() {
            return ExitCode::SUCCESS;
        }
        println!("\n{}", complaints.join("\n"));
        println!(
            "\nIf that is meant, take the bounds anew and say why in the commit: benches/counts/run --write"
        );
        ExitCode::FAILURE
    }
}

impl Counted {
    fn beyond(&self, instructions: f64, allocations: f64) -> Vec<String> {
        let mut complaints = Vec::new();
        let mut check = |what: &str, is: f64, bound: f64, least: f64| {
            if is > (bound * (1.0 + SLACK)).max(bound + least) {
                let more = (is / bound - 1.0) * 100.0;
                complaints.push(format!(
                    "{}: {is:.1} {what}, {more:.0} % more than the {bound} of benches/counts/bounds.tsv",
                    self.name
                ));
            }
        };
        check("instructions", self.instructions, instructions, INSTRUCTIONS_LEAST);
        check("allocations", self.allocations, allocations, ALLOCATIONS_LEAST);
        complaints
    }
}

/// Takes what was counted for the bounds from now on.
pub(crate) fn write(counted: &[Counted]) {
    assert!(is_comparable(), "by benches/counts/run, on x86-64 with AVX2 and glibc");
    let mut text = "case\tinstructions\tallocations\n".to_owned();
    for case in counted {
        let line = format!("{}\t{:.0}\t{:.2}\n", case.name, case.instructions, case.allocations);
        text.push_str(&line);
    }
    fs::write(file(), &text).expect("a file");
    println!("{text}");
}

fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("benches/counts/bounds.tsv")
}

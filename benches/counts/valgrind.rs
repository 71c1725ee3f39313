//! Runs this program under callgrind and parses callgrind's output.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// The counts of one operation of a case.
pub(crate) struct CaseCounts {
    pub(crate) name: String,
    pub(crate) instructions: f64,
    pub(crate) allocations: f64,
}

/// The allocation functions of a C library.
const ALLOCATORS: [&str; 5] = ["malloc", "calloc", "realloc", "posix_memalign", "aligned_alloc"];

/// Callgrind writes a dump when each of these functions returns: the first dump of a case contains
/// its set-up, the second one the measured part. (Toggling the collection at the second function
/// writes no dumps with valgrind 3.19.)
const DUMP_AFTER: [&str; 2] = ["*set_up_until_here*", "*measured_from_here*"];

pub(crate) fn is_installed() -> bool {
    let version = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

/// Runs all cases and returns their counts.
pub(crate) fn count() -> Vec<CaseCounts> {
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().join("out");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet"])
        // Full names, so that each line can be parsed by itself.
        .args(["--compress-strings=no", "--compress-pos=no"])
        .args(DUMP_AFTER.map(|function| format!("--dump-after={function}")))
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(std::env::current_exe().expect("this program"))
        .arg("--run")
        .stderr(Stdio::inherit())
        .output()
        .expect("valgrind runs");
    assert!(output.status.success(), "under valgrind: {}", output.status);
    let cases = String::from_utf8(output.stdout).expect("names");
    let case = |(index, line): (usize, &str)| {
        let (name, times) = line.split_once('\t').expect("a name and a number of operations");
        let times: f64 = times.parse().expect("a number");
        let dump = dir.path().join(format!("out.{}", (index + 1) * DUMP_AFTER.len()));
        let (instructions, allocations) = read(&dump);
        CaseCounts {
            name: name.to_owned(),
            instructions: instructions / times,
            allocations: allocations / times,
        }
    };
    cases.lines().enumerate().map(case).collect()
}

/// Returns the number of instructions and of allocations of a dump.
fn read(dump: &Path) -> (f64, f64) {
    let text = fs::read_to_string(dump).expect("a dump of each case");
    let (mut instructions, mut allocations, mut called) = (None, 0.0, false);
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("cfn=") {
            called = ALLOCATORS.contains(&name);
        } else if let Some(calls) = line.strip_prefix("calls=")
            && called
        {
            allocations += number(calls);
        } else if let Some(total) = line.strip_prefix("totals:") {
            instructions = Some(number(total.trim()));
        }
    }
    (instructions.expect("a total"), allocations)
}

fn number(text: &str) -> f64 {
    let first = text.split(' ').next().and_then(|number| number.parse().ok());
    first.expect("a number")
}

//! The tests against several versions of kube-apiserver, one after another.
//!
//! `$KUBEBUILDER_ASSETS` may name several directories, separated as in `$PATH`, the oldest version
//! first. Each version is tested by a process of its own, since a test takes its binaries from the
//! environment. The last lines have the results of all versions.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use crate::control_plane::{UPGRADE, version_of};

/// Runs this program again for each directory, with the same arguments.
pub(crate) fn test_each(dirs: &[PathBuf]) -> ExitCode {
    let mut results = Vec::new();
    for (n, dir) in dirs.iter().enumerate() {
        let version = version_of(dir).unwrap_or_else(|| format!("no version in {}", dir.display()));
        println!("\nkube-apiserver {version}");
        results.push((version, test_one(dir, dirs.get(n + 1))));
    }
    println!();
    for (version, (succeeded, result)) in &results {
        println!("kube-apiserver {version:<10} {}", if *succeeded { result } else { "FAILED" });
    }
    let all = results.iter().all(|(_, (succeeded, _))| *succeeded);
    if all { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Tests one version, and prints what its process prints. Returns whether all tests passed, and
/// the line with their counts.
fn test_one(dir: &Path, next: Option<&PathBuf>) -> (bool, String) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(std::env::args_os().skip(1)).env("KUBEBUILDER_ASSETS", dir);
    match next {
        Some(next) => command.env(UPGRADE, next),
        None => command.env_remove(UPGRADE),
    };
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut result = String::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        println!("{line}");
        if let Some(counts) = line.strip_prefix("test result: ") {
            counts.clone_into(&mut result);
        }
    }
    (child.wait().unwrap().success(), result)
}

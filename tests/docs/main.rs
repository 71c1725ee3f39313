//! The commands in the documentation: each ```` ```console ```` block of README.md and docs/ is run
//! by bash before `weir demo`, one demo for each page. A command must succeed, and what it prints
//! must match the lines below it in the block, in which `...` stands for any text, and a line of
//! only `...` for any lines.
//!
//! Addresses and directories of the pages are replaced by those of the test's demo. `weir demo` is
//! that demo; `weir serve` and `weir shadow` run in the background until they are ready. A command
//! whose program is not installed is skipped, and the test says so. Blocks marked `sh` need a
//! cluster and are not run.

#![expect(clippy::unwrap_used, reason = "it reads the repository itself")]
#![expect(clippy::print_stderr, reason = "skipped commands are named")]
#![expect(clippy::disallowed_methods, reason = "the processes that it waits for take real time")]

mod links;
mod page;
mod reference;
mod session;
mod ways;

use std::fs;
use std::path::{Path, PathBuf};

use std::thread;

use parking_lot::Mutex;

use crate::page::{Step, steps};
use crate::session::Session;

#[test]
fn every_command_succeeds_and_prints_what_the_page_says() {
    let pages = pages(&root().join("docs")).into_iter().chain([root().join("README.md")]);
    let sessions = Mutex::new(pages.filter_map(|path| {
        let steps = steps(&fs::read_to_string(&path).unwrap());
        let has_command = steps.iter().any(|step| matches!(step, Step::Command(_)));
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        has_command.then_some((name, steps))
    }));
    // Sessions wait most of their time: for a demo, or for what a command prints.
    let reader = || {
        let (mut run, mut failures) = (0, Vec::new());
        loop {
            let next = sessions.lock().next();
            let Some((name, steps)) = next else {
                break (run, failures);
            };
            let mut session = Session::start(&name);
            steps.iter().for_each(|step| session.take(step));
            run += session.run;
            failures.append(&mut session.failures);
        }
    };
    let (mut run, mut failures) = (0, Vec::new());
    thread::scope(|scope| {
        for reader in [scope.spawn(reader), scope.spawn(reader), scope.spawn(reader)] {
            let (commands, mut failed) = reader.join().unwrap();
            run += commands;
            failures.append(&mut failed);
        }
    });
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(run > 20, "only {run} commands were run");
}

/// Each kind of page stands in its own directory, and says its kind first.
#[test]
fn each_page_is_of_one_kind_and_the_entry_links_it() {
    let entry = fs::read_to_string(root().join("docs/README.md")).unwrap();
    for (directory, kind) in [
        ("tutorial", "Tutorial."),
        ("how-to", "How-to."),
        ("reference", "Reference."),
        ("explanation", "Explanation."),
        ("runbooks", "Runbook."),
    ] {
        for path in pages(&root().join("docs").join(directory)) {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let text = fs::read_to_string(&path).unwrap();
            let first = first_line(&text);
            let is_generated = first.starts_with("This page is generated") || name == "README.md";
            assert!(is_generated || first.starts_with(kind), "{directory}/{name}: not {kind:?}");
            let is_linked = entry.contains(&format!("({directory}/{name})"));
            let is_runbook = directory == "runbooks";
            assert!(is_generated || is_runbook || is_linked, "{directory}/{name}: no link");
        }
    }
    for path in pages(&root().join("docs")) {
        let text = fs::read_to_string(&path).unwrap();
        let name = path.strip_prefix(root().join("docs")).unwrap().display().to_string();
        let is_exempt = LONG.iter().any(|(exempt, _)| *exempt == name);
        let lines = text.lines().count();
        assert!(is_exempt || lines <= PAGE_LINES_MAX, "{name}: {lines} lines");
        let kinds = ["Reference.", "Explanation."];
        let is_of_a_kind = kinds.iter().any(|kind| first_line(&text).starts_with(kind));
        let is_entry = name == "README.md" || name.contains('/');
        assert!(is_entry || is_of_a_kind, "{name}: it does not say which kind of page it is");
    }
}

/// The first line after the title.
fn first_line(page: &str) -> &str {
    page.lines().skip(1).find(|line| !line.is_empty()).unwrap_or_default()
}

/// A reader finds what he looks for in a page of this length.
const PAGE_LINES_MAX: usize = 200;

/// Longer pages, and why.
const LONG: [(&str, &str); 2] = [
    ("semantics.md", "the code cites its sections by number"),
    ("reference/metrics.md", "one line for each metric, written by the code"),
];

/// The Markdown files below a directory, without the decisions.
fn pages(directory: &Path) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("decisions") {
            paths.extend(pages(&path));
        } else if path.extension().is_some_and(|end| end == "md") {
            paths.push(path);
        }
    }
    paths.sort();
    paths
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

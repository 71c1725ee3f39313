//! The commands in the documentation: each ```` ```console ```` block of README.md and docs/ is run
//! by bash before `weir demo`, one demo for each page. A command must succeed, and what it prints
//! must match the lines below it in the block, in which `...` stands for any text, and a line of
//! only `...` for any lines.
//!
//! Addresses and directories of the pages are replaced by those of the test's demo. `weir demo` is
//! that demo; `weir serve` runs in the background until it is ready. A command whose program is not
//! installed is skipped, and the test says so. Blocks marked `sh` need a cluster and are not run.

#![expect(clippy::unwrap_used, reason = "it reads the repository itself")]
#![expect(clippy::print_stderr, reason = "skipped commands are named")]
#![expect(clippy::disallowed_methods, reason = "the processes that it waits for take real time")]

mod links;
mod page;
mod session;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::page::{Step, steps};
use crate::session::Session;

#[test]
fn every_command_succeeds_and_prints_what_the_page_says() {
    let (mut run, mut failures) = (0, Vec::new());
    for path in pages(&root().join("docs")).into_iter().chain([root().join("README.md")]) {
        let steps = steps(&fs::read_to_string(&path).unwrap());
        if !steps.iter().any(|step| matches!(step, Step::Command(_))) {
            continue;
        }
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        let mut session = Session::start(&name);
        for step in &steps {
            session.take(step);
        }
        run += session.run;
        failures.append(&mut session.failures);
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(run > 20, "only {run} commands were run");
}

/// The values that the code can give are in the reference, and no others.
#[test]
fn the_reasons_are_those_of_the_code() {
    let page = fs::read_to_string(root().join("docs/reference/headers.md")).unwrap();
    let (_, table) = page.split_once("## Reasons").unwrap();
    let (table, _) = table.split_once("\n## ").unwrap();
    let described: BTreeSet<&str> =
        table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let sources = ["src/server/delegate/reason.rs", "src/cache/refusal.rs"];
    let sources = sources.map(|file| fs::read_to_string(root().join(file)).unwrap());
    let known: BTreeSet<&str> = sources
        .iter()
        .flat_map(|text| text.lines())
        .filter_map(|line| line.trim().strip_prefix("Self::")?.split_once(" => \""))
        .filter_map(|(_, value)| value.split('"').next())
        .collect();
    assert_eq!(described, known);
}

/// `WEIR_WRITE=1 cargo test --test docs configuration` writes it.
#[test]
fn the_reference_of_the_configuration_is_fresh() {
    let mut fresh = CONFIGURATION.to_owned();
    for (path, description) in weir::config::schema::settings() {
        let description = description.replace('|', "\\|");
        fresh.push_str(&format!("| `{path}` | {description} |\n"));
    }
    let path = root().join("docs/reference/configuration.md");
    if std::env::var_os("WEIR_WRITE").is_some() {
        fs::write(&path, &fresh).unwrap();
    }
    let text = fs::read_to_string(&path).unwrap_or_default();
    assert!(text == fresh, "{} is stale: see this test", path.display());
}

const CONFIGURATION: &str = "# Every setting

Reference. Written from the structs that read the file and from the comments of config/weir.yaml and
config/gateway.yaml, which have the defaults. A setting within a list has the list's path.

| setting | what it is |
|---|---|
";

/// Each kind of page stands in its own directory, and says its kind first.
#[test]
fn each_page_is_of_one_kind_and_the_entry_links_it() {
    let entry = fs::read_to_string(root().join("docs/README.md")).unwrap();
    for (directory, kind) in [
        ("tutorial", "Tutorial."),
        ("how-to", "How-to."),
        ("reference", "Reference."),
        ("explanation", "Explanation."),
    ] {
        for path in pages(&root().join("docs").join(directory)) {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let text = fs::read_to_string(&path).unwrap();
            let first = text.lines().skip(1).find(|line| !line.is_empty()).unwrap_or_default();
            let is_generated = first.starts_with("This page is generated");
            assert!(is_generated || first.starts_with(kind), "{directory}/{name}: not {kind:?}");
            let is_linked = entry.contains(&format!("({directory}/{name})"));
            assert!(is_generated || is_linked, "{directory}/{name}: no link");
        }
    }
}

/// The Markdown files below a directory, without the decisions.
fn pages(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("decisions") {
            found.extend(pages(&path));
        } else if path.extension().is_some_and(|end| end == "md") {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

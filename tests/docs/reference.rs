//! Pages of the reference that list what the code can say: they have all of it, and nothing else.

use std::collections::BTreeSet;
use std::fs;

use clap::{Arg, Command, CommandFactory};

use crate::root;

/// The values that the code can give are in the reference, and no others.
#[test]
fn the_reasons_are_those_of_the_code() {
    let mut expected = texts("src/server/delegate/reason.rs");
    expected.extend(texts("src/cache/refusal.rs"));
    assert_eq!(table("headers.md", "## Reasons"), expected);
}

#[test]
fn the_values_of_the_shed_header_are_those_of_the_code() {
    let mut expected = texts("src/flow/schedule/request.rs");
    expected.extend(texts("src/server/flow_control/rules.rs"));
    // The refusals that are 429, of a table that is written from the code.
    let page = fs::read_to_string(root().join("docs/reference/headers.md")).unwrap();
    let limits = page.lines().filter(|line| line.contains(" (429). |"));
    expected.extend(limits.filter_map(|line| Some(line.split('`').nth(1)?.to_owned())));
    expected.insert(constant("src/server/open_watches.rs", "WATCHES"));
    expected.insert("overload".to_owned());
    // The row of a cache's own reasons, which have a table of their own.
    expected.extend(["not-ready", "over-budget"].map(str::to_owned));
    let mut described = table("headers.md", "## X-Weir-Shed");
    described.remove("X-Weir-Cache");
    assert_eq!(described, expected);
}

#[test]
fn the_findings_are_those_of_the_code() {
    let expected = texts("src/flow/doctor/rule.rs");
    assert_eq!(table("findings.md", "# What"), expected);
}

#[test]
fn the_kinds_of_events_are_those_of_the_code() {
    let expected = texts("src/telemetry/events/kind.rs");
    assert_eq!(table("admin.md", "## Events"), expected);
}

/// `WEIR_WRITE=1 cargo test --test docs configuration` writes it.
#[test]
fn the_reference_of_the_configuration_is_fresh() {
    let mut fresh = CONFIGURATION.to_owned();
    for setting in weir::config::schema::settings() {
        let about = setting.about.replace('|', "\\|");
        let default = match &*setting.default {
            "" => String::new(),
            default => format!("`{default}`"),
        };
        let effect = match (setting.is_live, setting.is_section) {
            (true, _) => "at once",
            (false, false) => "restart",
            (false, true) => "",
        };
        fresh.push_str(&format!("| `{}` | {default} | {effect} | {about} |\n", setting.path));
    }
    is_fresh("configuration.md", &fresh);
}

/// `WEIR_WRITE=1 cargo test --test docs command_line` writes it.
#[test]
fn the_reference_of_the_command_line_is_fresh() {
    let mut fresh = COMMAND_LINE.to_owned();
    let mut weir = weir::cli::Cli::command();
    weir.build();
    let mut tables: Vec<(&str, String)> = Vec::new();
    for command in weir.get_subcommands().filter(|command| command.get_name() != "help") {
        let (name, table) = (command.get_name(), arguments(command));
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        fresh.push_str(&format!("\n## weir {name}\n\n{}.\n", cell(&about)));
        let is_same = |(_, earlier): &&(&str, String)| *earlier == table && !table.is_empty();
        match tables.iter().find(is_same) {
            Some((earlier, _)) => {
                fresh.push_str(&format!("\nThe arguments are those of `weir {earlier}`.\n"));
            }
            None => fresh.push_str(&table),
        }
        tables.push((name, table));
    }
    is_fresh("cli.md", &fresh);
}

/// The table of a command's arguments.
fn arguments(command: &Command) -> String {
    let mut text = String::new();
    let common = ["help", "version"];
    let arguments: Vec<_> = command
        .get_arguments()
        .filter(|argument| !common.contains(&argument.get_id().as_str()))
        .collect();
    if !arguments.is_empty() {
        text.push_str("\n| argument | what it is |\n|---|---|\n");
    }
    for argument in arguments {
        let short = argument.get_short().map(|short| format!("`-{short}`, ")).unwrap_or_default();
        text.push_str(&format!("| {short}`{argument}` | {} |\n", meaning(argument)));
    }
    text
}

/// The help of an argument, with its values, default and variable.
fn meaning(argument: &Arg) -> String {
    let mut text = cell(&argument.get_help().map(ToString::to_string).unwrap_or_default());
    if argument.get_action().takes_values() {
        let values = argument.get_possible_values();
        let values: Vec<_> = values.iter().map(|value| format!("`{}`", value.get_name())).collect();
        if !values.is_empty() {
            text.push_str(&format!(": {}", values.join(", ")));
        }
        for value in argument.get_default_values() {
            text.push_str(&format!("; default: `{}`", value.to_string_lossy()));
        }
    }
    if let Some(variable) = argument.get_env() {
        text.push_str(&format!("; or `${}`", variable.to_string_lossy()));
    }
    text
}

/// Text of one line, as it may stand in a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ").trim_end_matches('.').to_owned()
}

fn is_fresh(page: &str, fresh: &str) {
    let path = root().join("docs/reference").join(page);
    if std::env::var_os("WEIR_WRITE").is_some() {
        fs::write(&path, fresh).unwrap();
    }
    let text = fs::read_to_string(&path).unwrap_or_default();
    assert!(text == fresh, "{} is stale: see this test", path.display());
}

/// The words in backticks in the first column of the first table after a heading.
fn table(page: &str, heading: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(root().join("docs/reference").join(page)).unwrap();
    let (_, rest) = text.split_once(heading).unwrap();
    let rows = rest.lines().skip_while(|line| !line.starts_with('|'));
    let rows = rows.take_while(|line| line.starts_with('|'));
    rows.filter_map(|row| row.split('|').nth(1))
        .flat_map(|column| column.split('`').skip(1).step_by(2))
        .filter(|word| !word.starts_with("X-Weir-Shed"))
        .map(str::to_owned)
        .collect()
}

/// The texts of the first enum of a file that has some: after `labels!`, or in `as_str`.
fn texts(file: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(root().join(file)).unwrap();
    let (_, rest) = text.split_once("labels! {").or_else(|| text.split_once("fn as_str")).unwrap();
    let value = |line: &str| {
        let (_, value) = line.split_once(" => \"").or_else(|| line.split_once(" = \""))?;
        Some(value.split('"').next()?.to_owned())
    };
    rest.lines().take_while(|line| line.trim() != "}").filter_map(value).collect()
}

fn constant(file: &str, name: &str) -> String {
    let text = fs::read_to_string(root().join(file)).unwrap();
    let (_, value) = text.split_once(&format!("const {name}: &str = \"")).unwrap();
    value.split('"').next().unwrap().to_owned()
}

const CONFIGURATION: &str = "# Every setting

Reference. [Ten settings](ten-settings.md) matter to most deployments: begin there. This page is
written from the structs that read the file. A file begins with `apiVersion: weir.dev/v1alpha1` and
`kind: WeirConfiguration`. A setting within a list has the list's path. A change takes effect at once
or with a restart ([reload](../how-to/reload.md)).

| setting | default | a change | what it is |
|---|---|---|---|
";

const COMMAND_LINE: &str = "# The command line

Reference. Written from the program's own definitions, as `weir man` and `--help` are. Each command has `--help`. `weir --version`
prints the version.

| exit code | means |
|---|---|
| 0 | a clean end |
| 1 | a failure at run time |
| 2 | a wrong command or configuration |
| 3 | `weir doctor`: a finding is worth a warning. `weir check --diff`: a field needs a restart |
| 130 | a second signal ended the process before its graceful shutdown was complete |
";

//! Rules, alerts and dashboards: `promtool` accepts them and their unit tests pass, each alert has
//! tests and a runbook, each metric exists, and what is written by `deploy/grafana/dashboards.py`
//! is fresh.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::{deploy, documents, root};

const TESTS: [&str; 4] = [
    "tests/deploy/alerts.yaml",
    "tests/deploy/alerts-caches.yaml",
    "tests/deploy/alerts-days.yaml",
    "tests/deploy/objectives.yaml",
];
const DASHBOARDS: [&str; 3] = ["overview.json", "caches.json", "upstream.json"];
const HEADINGS: [&str; 4] = ["## Meaning\n", "## Impact\n", "## Diagnosis\n", "## Mitigation\n"];
/// Where no Weir answers.
const SILENT: [&str; 2] = ["WeirDown", "WeirInstanceUnreachable"];
const RUNBOOKS: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/runbooks/");

#[test]
fn promtool_accepts_the_rules_and_their_unit_tests_pass() {
    run("promtool", &["check", "rules", "--lint=all", "deploy/prometheus/rules.yaml"]);
    run("promtool", &[&["test", "rules"], &TESTS[..]].concat());
}

#[test]
fn the_dashboards_and_the_charts_files_are_what_the_script_writes() {
    run("python3", &["-B", "deploy/grafana/dashboards.py", "--check"]);
    let rules = fs::read_to_string(deploy("prometheus/rules.yaml")).unwrap();
    assert_eq!(fs::read_to_string(deploy("helm/weir/files/rules/rules.yaml")).unwrap(), rules);
    for name in DASHBOARDS {
        let written = fs::read_to_string(deploy("grafana").join(name)).unwrap();
        let chart = deploy("helm/weir/files/dashboards").join(name);
        assert!(fs::read_to_string(chart).unwrap() == written, "{name}");
    }
}

/// A test of an alert is an expression with its name that has a result, and one that has none.
#[test]
fn each_alert_is_seen_to_fire_and_to_clear() {
    let mut checks = Vec::new();
    for file in TESTS {
        for test in documents(&root().join(file)).remove(0)["tests"].as_array().unwrap() {
            checks.extend(test["promql_expr_test"].as_array().into_iter().flatten().cloned());
        }
    }
    for name in alerts() {
        let is_of = |check: &&Value| check["expr"].as_str().unwrap().contains(&format!("{name:?}"));
        let (fires, clear): (Vec<&Value>, Vec<&Value>) =
            checks.iter().filter(is_of).partition(|check| check["exp_samples"].is_array());
        assert!(!fires.is_empty() && clear.len() >= 2, "{name}: it has no test in {TESTS:?}");
    }
}

#[test]
fn each_alert_has_a_runbook() {
    let alerts = alerts();
    for name in &alerts {
        let path = root().join("docs/runbooks").join(format!("{name}.md"));
        let text = fs::read_to_string(&path).unwrap_or_default();
        assert!(text.starts_with(&format!("# {name}\n")), "{} has no title", path.display());
        let mut rest = text.as_str();
        for heading in HEADINGS {
            let (_, after) = rest.split_once(heading).unwrap_or_default();
            assert!(!after.trim().is_empty(), "{}: {heading:?} is missing", path.display());
            rest = after;
        }
    }
    for rule in rules().iter().filter(|rule| rule["alert"].is_string()) {
        let name = rule["alert"].as_str().unwrap();
        assert_eq!(rule["annotations"]["runbook_url"], format!("{RUNBOOKS}{name}.md"));
        for part in ["summary", "description"] {
            assert!(rule["annotations"][part].is_string(), "{name}: {part}");
        }
    }
    for file in fs::read_dir(root().join("docs/runbooks")).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        let name = name.trim_end_matches(".md");
        assert!(name == "README" || alerts.contains(name), "docs/runbooks/{name}.md has no alert");
    }
}

/// Each Diagnosis has what to ask Prometheus, what to ask the Weir of the alert, and which that is:
/// `kubectl logs deploy/NAME` takes any pod.
#[test]
fn each_runbook_asks_prometheus_and_the_weir_of_its_alert() {
    for name in alerts() {
        let path = root().join("docs/runbooks").join(format!("{name}.md"));
        let text = fs::read_to_string(path).unwrap();
        for verb in ["logs", "port-forward", "exec"] {
            assert!(!text.contains(&format!("{verb} deploy/")), "{name}: {verb} of any pod");
        }
        let says_which = !text.contains("POD") || text.contains("`POD` is ");
        assert!(says_which, "{name}: it does not say which POD is");
        let (_, diagnosis) = text.split_once("## Diagnosis\n").unwrap();
        let (diagnosis, _) = diagnosis.split_once("## Mitigation\n").unwrap();
        assert!(diagnosis.contains("```promql\n"), "{name}: its diagnosis has no query");
        let asks_weir = diagnosis.contains("\n$ weir top");
        assert_eq!(asks_weir, !SILENT.contains(&name.as_str()), "{name}: weir top");
    }
}

/// A runbook fits where an alert has a metric of the panel in its expression.
#[test]
fn each_panel_says_what_is_bad_and_links_a_runbook_where_one_fits() {
    let (alerts, records): (Vec<Value>, Vec<Value>) =
        rules().into_iter().partition(|rule| rule["alert"].is_string());
    let mut linked = BTreeSet::new();
    for panel in panels() {
        let title = panel["title"].as_str().unwrap();
        let description = panel["description"].as_str().unwrap();
        let bad = description.split_once("Bad: ").unwrap_or_default().1;
        assert!(!bad.trim().is_empty(), "{title}: its description does not say what is bad");
        let urls: BTreeSet<&str> = panel["links"].as_array().unwrap().iter().map(url).collect();
        let plotted: BTreeSet<String> =
            panel["targets"].as_array().unwrap().iter().flat_map(metrics).collect();
        // Also of the records that the alert reads.
        let reads = |rule: &Value| {
            let mut read = metrics(rule);
            let is_read = |record: &&Value| read.contains(record["record"].as_str().unwrap());
            let more: Vec<String> = records.iter().filter(is_read).flat_map(metrics).collect();
            read.extend(more);
            read
        };
        let is_fit = |rule: &&Value| !reads(rule).is_disjoint(&plotted);
        let mut fit = alerts.iter().filter(is_fit).map(runbook).peekable();
        let is_linked = fit.peek().is_none() || fit.any(|url| urls.contains(url));
        assert!(is_linked, "{title}: it has no link to the runbook of an alert on {plotted:?}");
        linked.extend(urls.into_iter().map(str::to_owned));
    }
    let runbooks: BTreeSet<String> = alerts.iter().map(runbook).map(str::to_owned).collect();
    assert_eq!(linked, runbooks, "the runbooks to which panels link, and those of alerts");
}

/// In docs/reference/metrics.md, which a test compares with the registry.
#[test]
fn each_metric_of_rules_dashboards_and_runbooks_exists() {
    let page = fs::read_to_string(root().join("docs/reference/metrics.md")).unwrap();
    let documented = names(&page);
    assert!(documented.len() > 50, "{documented:?}");
    let records: BTreeSet<String> =
        rules().iter().filter_map(|rule| rule["record"].as_str()).map(str::to_owned).collect();
    let mut files = vec![deploy("prometheus/rules.yaml")];
    for directory in [deploy("grafana"), root().join("docs/runbooks"), root().join("docs/how-to")] {
        let entries = fs::read_dir(directory).into_iter().flatten();
        files.extend(entries.map(|entry| entry.unwrap().path()));
    }
    for file in files.iter().filter(|file| is_text(file)) {
        let text = fs::read_to_string(file).unwrap();
        for name in names(&text) {
            let family =
                ["_bucket", "_count", "_sum"].iter().find_map(|end| name.strip_suffix(end));
            let exists =
                documented.contains(&name) || family.is_some_and(|name| documented.contains(name));
            assert!(exists, "{}: there is no metric {name}", file.display());
        }
        // `weir:0.1.0` is an image.
        let is_rule = |word: &&str| {
            let name = word.strip_prefix("weir:").unwrap_or_default();
            name.starts_with(|letter: char| letter.is_ascii_lowercase())
        };
        for name in words(&text).filter(is_rule) {
            assert!(records.contains(name), "{}: there is no rule {name}", file.display());
        }
    }
}

fn panels() -> Vec<Value> {
    let file = |name| fs::read_to_string(deploy("grafana").join(name)).unwrap();
    let dashboards = DASHBOARDS.map(|name| serde_json::from_str::<Value>(&file(name)).unwrap());
    let panels = dashboards.iter().flat_map(|one| one["panels"].as_array().unwrap().clone());
    panels.filter(|panel| panel["type"] != "row").collect()
}

/// The metrics and records in the expression of an alert or of a panel's target.
fn metrics(rule: &Value) -> BTreeSet<String> {
    named(rule["expr"].as_str().unwrap(), &["weir_", "weir:", "process_"])
}

fn runbook(rule: &Value) -> &str {
    rule["annotations"]["runbook_url"].as_str().unwrap()
}

fn url(link: &Value) -> &str {
    link["url"].as_str().unwrap()
}

fn alerts() -> BTreeSet<String> {
    rules().iter().filter_map(|rule| rule["alert"].as_str()).map(str::to_owned).collect()
}

fn rules() -> Vec<Value> {
    let file = documents(&deploy("prometheus/rules.yaml")).remove(0);
    let groups = file["groups"].as_array().unwrap();
    groups.iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

/// The names of Weir's and of the process's metrics in a text.
fn names(text: &str) -> BTreeSet<String> {
    named(text, &["weir_", "process_"])
}

/// The words of a text that begin with one of the prefixes.
fn named(text: &str, prefixes: &[&str]) -> BTreeSet<String> {
    let is_named = |word: &&str| prefixes.iter().any(|prefix| word.starts_with(prefix));
    words(text).filter(is_named).map(str::to_owned).collect()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !(letter.is_ascii_alphanumeric() || matches!(letter, '_' | ':')))
        .map(|word| word.trim_end_matches(':'))
}

fn is_text(path: &Path) -> bool {
    path.extension()
        .is_some_and(|end| ["json", "md", "yaml"].iter().any(|extension| end == *extension))
}

/// Runs a tool in the repository; says so where it is not installed.
fn run(tool: &str, arguments: &[&str]) {
    let output = match Command::new(tool).args(arguments).current_dir(root()).output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("skipped: {tool} {arguments:?} ({tool} is not installed)");
            return;
        }
        Err(error) => panic!("{tool}: {error}"),
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{tool} {arguments:?}:\n{out}\n{err}");
}

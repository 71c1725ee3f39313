//! An API server that is newer than the newest version that Weir knows.
//!
//! All tests run against it. A test that fails is reported as a difference. The report also
//! names what such a server knows and `known.txt` does not have: feature gates with their stage and
//! default, the parameters of reads, and the media types of their responses. The page
//! docs/reference/versions.md says how to run it.

use std::collections::BTreeSet;
use std::process::ExitCode;

use libtest_mimic::Conclusion;
use serde_json::Value;

use crate::control_plane::{ControlPlane, assets, minor, version_of};

/// The newest minor version whose differences are in docs/semantics.md: `known.txt` is of it.
const NEWEST: u32 = 36;

/// Returns the exit code of a run: failures are differences where the API server is newer.
pub(crate) fn exit_code(conclusion: &Conclusion) -> ExitCode {
    if minor().is_none_or(|minor| minor <= NEWEST) {
        return conclusion.exit_code();
    }
    let version = assets().and_then(|dir| version_of(&dir)).unwrap_or_default();
    println!(
        "kube-apiserver {version} is newer than 1.{NEWEST}, the newest version that Weir knows: {} \
         of {} tests differ",
        conclusion.num_failed,
        conclusion.num_failed + conclusion.num_passed
    );
    ExitCode::SUCCESS
}

/// Whether the API server is older than what `known.txt` describes.
pub(crate) fn is_older() -> bool {
    minor().is_some_and(|minor| minor < NEWEST)
}

/// Compares what the API server knows with `known.txt`.
pub(crate) fn gates_and_parameters() {
    let plane = ControlPlane::start();
    let metrics = plane.get("/metrics").expect("the API server has metrics");
    let mut now: BTreeSet<String> = metrics.lines().filter_map(gate).collect();
    for path in ["/openapi/v3/api/v1", "/openapi/v3/apis/apps/v1"] {
        let document = plane.get(path).and_then(|text| serde_json::from_str::<Value>(&text).ok());
        let document = document.unwrap_or_else(|| panic!("{path} is no OpenAPI document"));
        reads(&document).for_each(|read| now.extend(parameters_and_types(read)));
    }
    let known: BTreeSet<String> = KNOWN.lines().map(str::to_owned).collect();
    let new: Vec<_> = now.difference(&known).collect();
    let gone: Vec<_> = known.difference(&now).collect();
    new.iter().for_each(|line| println!("new:  {line}"));
    gone.iter().for_each(|line| println!("gone: {line}"));
    // A distribution may have gates of its own.
    let is_newer = minor().is_some_and(|minor| minor > NEWEST);
    let is_known = |line: &str| line.starts_with("gate ") && !is_newer;
    assert!(
        gone.is_empty() && new.iter().all(|line| is_known(line)),
        "the API server is not as tests/real/next/known.txt says: see the lines above"
    );
}

/// Returns the line of a gate: `gate WatchList BETA on`.
fn gate(line: &str) -> Option<String> {
    let rest = line.strip_prefix("kubernetes_feature_enabled{name=\"")?;
    let (name, rest) = rest.split_once("\",stage=\"")?;
    let (stage, value) = rest.split_once("\"} ")?;
    let stage = if stage.is_empty() { "GA" } else { stage };
    Some(format!("gate {name} {stage} {}", if value == "1" { "on" } else { "off" }))
}

/// Returns each path of a document that can be read.
fn reads(document: &Value) -> impl Iterator<Item = &Value> {
    let paths = document["paths"].as_object().into_iter().flatten();
    paths.map(|(_, path)| path).filter(|path| path["get"].is_object())
}

/// Returns a line for each parameter of a read, and for each media type of its response.
fn parameters_and_types(path: &Value) -> BTreeSet<String> {
    let of_path = path["parameters"].as_array().into_iter().flatten();
    let of_get = path["get"]["parameters"].as_array().into_iter().flatten();
    let parameters = of_path.chain(of_get).filter(|parameter| parameter["in"] == "query");
    let parameters = parameters.filter_map(|parameter| parameter["name"].as_str());
    let types = path["get"]["responses"]["200"]["content"].as_object().into_iter().flatten();
    let lines = parameters.map(|name| format!("parameter {name}"));
    lines.chain(types.map(|(name, _)| format!("type {name}"))).collect()
}

const KNOWN: &str = include_str!("next/known.txt");

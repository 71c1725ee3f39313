//! Layers point one way, and pure layers touch nothing outside.

use crate::files;
use crate::finish;
use crate::imports::{Library, is_within};

/// The layers from the lowest to the highest; a file may use its own layer and those below. The
/// longest prefix that fits decides, so that `cache::core` is a layer of its own.
const LAYERS: [&str; 12] = [
    "api",
    "codec",
    "cache::core",
    "upstream",
    "cache",
    "flow",
    "auth",
    "server",
    "admin",
    "simulator",
    "app",
    "cli",
];

/// May be used by all but [`PURE`], and use only each other and `api`; `config` also `flow`, of
/// which it compiles the rules.
const LEAVES: [&str; 4] = ["config", "streams", "tasks", "telemetry"];

/// No I/O, no clock, no configuration.
const PURE: [&str; 4] = ["api", "codec", "cache::core", "flow"];

/// Never in a pure layer: what reads the clock, spawns or does I/O. `api` and `codec` are free of
/// it by nature; the rule is written for `cache::core`, where time is an argument.
const IMPURE: [&str; 6] =
    ["Instant::now", "SystemTime::now", "tokio::spawn", "tokio::net", "std::net::Tcp", "std::fs"];

#[test]
fn layers_point_one_way() {
    let library = Library::parse(&files::rust());
    let mut complaints = Vec::new();
    for from in library.modules() {
        for import in library.imports(from) {
            if !may_use(from, &import.module) {
                let (line, to) = (import.line, import.module);
                complaints.push(format!("{from}, line {line}: {from} may not use {to}"));
            }
        }
    }
    finish("layers point one way", &complaints);
}

#[test]
fn pure_layers_touch_nothing_outside() {
    let mut complaints = Vec::new();
    for file in files::rust() {
        let Ok(path) = file.path.strip_prefix("src") else { continue };
        let module = path.with_extension("").display().to_string().replace('/', "::");
        let Some(layer) = layer(&module).filter(|layer| PURE.contains(layer)) else { continue };
        for (index, line) in file.text.lines().enumerate() {
            for word in IMPURE {
                if line.contains(word) && !line.trim_start().starts_with("//") {
                    complaints.push(file.complaint(index + 1, &format!("{word} in {layer}")));
                }
            }
        }
    }
    finish("api, codec, cache::core and flow do no I/O and read no clock", &complaints);
}

fn may_use(from: &str, to: &str) -> bool {
    // The binary and the library's root see everything; the rules are about the parts.
    if matches!(from, "main" | "lib" | "") {
        return true;
    }
    let leaf = |module: &str| LEAVES.into_iter().find(|leaf| is_within(module, leaf));
    match (leaf(from), leaf(to)) {
        (_, Some(_)) => layer(from).is_none_or(|layer| !PURE.contains(&layer)),
        (Some(leaf), None) => match layer(to) {
            Some("api") => true,
            Some("flow") => leaf == "config",
            _ => false,
        },
        (None, None) => match (rank(from), rank(to)) {
            (Some(from), Some(to)) => to <= from,
            _ => false,
        },
    }
}

fn layer(module: &str) -> Option<&'static str> {
    LAYERS.into_iter().filter(|layer| is_within(module, layer)).max_by_key(|layer| layer.len())
}

fn rank(module: &str) -> Option<usize> {
    let layer = layer(module)?;
    LAYERS.iter().position(|other| *other == layer)
}

#[test]
fn the_layer_rule_itself() {
    assert!(may_use("server::get", "cache::handle"));
    assert!(may_use("cache::reflector", "cache::core::store"));
    assert!(may_use("cache::core::store", "codec::object"));
    assert!(may_use("upstream::discovery", "cache::core"));
    assert!(may_use("server", "config"));
    assert!(may_use("config::parse", "api::resource"));
    assert!(may_use("config::resolve", "flow::rules"));
    assert!(!may_use("telemetry", "flow::rules"));
    assert!(!may_use("config", "server"));
    assert!(!may_use("cache::core::store", "cache::handle"));
    assert!(!may_use("cache::core::store", "config"));
    assert!(!may_use("api::resource", "codec"));
    assert!(!may_use("upstream", "cache::registry"));
    assert!(!may_use("telemetry", "upstream"));
    assert!(!may_use("server", "somewhere_new"));
}

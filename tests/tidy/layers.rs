//! Layers point one way, and the watch cache touches nothing outside.

use crate::files;
use crate::finish;
use crate::imports::{Library, is_within};

/// The layers from the lowest to the highest; a file may use its own layer and those below. The
/// longest prefix that fits decides, so that `cache::core` is a layer of its own.
const LAYERS: [&str; 9] =
    ["cache::core", "upstream", "cache", "auth", "server", "admin", "simulator", "app", "cli"];

/// May be used by all but [`PURE`], and use only each other and [`CRATES`].
const LEAVES: [&str; 4] = ["config", "streams", "tasks", "telemetry"];

/// Crates of their own, which any file may use; Cargo keeps what they may use.
const CRATES: [&str; 3] = ["api", "codec", "flow"];

/// No I/O, no clock, no configuration.
const PURE: &str = "cache::core";

/// Never in [`PURE`], where time is an argument: what reads the clock, spawns or does I/O.
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
fn the_watch_cache_touches_nothing_outside() {
    let mut complaints = Vec::new();
    for file in files::rust() {
        let Ok(path) = file.path.strip_prefix("src") else { continue };
        let module = path.with_extension("").display().to_string().replace('/', "::");
        if layer(&module) != Some(PURE) {
            continue;
        }
        for (index, line) in file.text.lines().enumerate() {
            for word in IMPURE {
                if line.contains(word) && !line.trim_start().starts_with("//") {
                    complaints.push(file.complaint(index + 1, &format!("{word} in {PURE}")));
                }
            }
        }
    }
    finish("cache::core does no I/O and reads no clock", &complaints);
}

fn may_use(from: &str, to: &str) -> bool {
    let is_crate = |module: &str| CRATES.iter().any(|name| is_within(module, name));
    // The binary and the library's root see everything; the rules are about the parts.
    if matches!(from, "main" | "lib" | "") || is_crate(from) || is_crate(to) {
        return true;
    }
    let is_leaf = |module: &str| LEAVES.iter().any(|leaf| is_within(module, leaf));
    match (is_leaf(from), is_leaf(to)) {
        (_, true) => layer(from) != Some(PURE),
        (true, false) => false,
        (false, false) => match (rank(from), rank(to)) {
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
    assert!(!may_use("config", "server"));
    assert!(!may_use("cache::core::store", "cache::handle"));
    assert!(!may_use("cache::core::store", "config"));
    assert!(!may_use("upstream", "cache::registry"));
    assert!(!may_use("telemetry", "upstream"));
    assert!(!may_use("server", "somewhere_new"));
}

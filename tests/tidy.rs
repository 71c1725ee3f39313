//! The repository's own rules, as a test: layers point one way, every file says what it is, files stay small, and nothing
//! unfinished is left behind. A failure names the rule, the file and the line.

#![expect(clippy::unwrap_used, clippy::string_slice, reason = "it reads the repository itself")]

use std::fs;
use std::path::{Path, PathBuf};

/// The layers from the lowest to the highest; a file may use its own layer and those below. The longest prefix that fits
/// decides, so that `cache::core` is a layer of its own.
const LAYERS: [&str; 11] = [
    "api",
    "codec",
    "cache::core",
    "upstream",
    "cache",
    "auth",
    "server",
    "admin",
    "simulator",
    "app",
    "cli",
];

/// May be used by all but [`PURE`], and use only each other and `api`.
const LEAVES: [&str; 3] = ["config", "streams", "telemetry"];

/// No I/O, no clock, no configuration.
const PURE: [&str; 3] = ["api", "codec", "cache::core"];

/// Never in a pure layer: what reads the clock, spawns or does I/O. `api` and `codec` are free of it by nature; the rule is
/// written for `cache::core`, where time is an argument.
const IMPURE: [&str; 6] =
    ["Instant::now", "SystemTime::now", "tokio::spawn", "tokio::net", "std::net::Tcp", "std::fs"];

/// Longer files are hard to hold in mind. Beyond the soft limit a file is worth splitting; beyond the hard one it must be.
const LINES_MAX: usize = 600;
const LINES_SOFT_MAX: usize = 400;

/// Left behind by unfinished or debugging work.
const UNFINISHED: [&str; 3] = ["todo!(", "unimplemented!(", "dbg!("];

#[test]
fn layers_point_one_way() {
    let mut complaints = Vec::new();
    for source in sources() {
        let from = source.module();
        for (number, line) in source.code_lines() {
            for to in used_modules(line) {
                if !may_use(&from, &to) {
                    complaints.push(source.complaint(number, &format!("{from} may not use {to}")));
                }
            }
        }
    }
    finish("layers point one way", &complaints);
}

#[test]
fn pure_layers_touch_nothing_outside() {
    let mut complaints = Vec::new();
    for source in sources() {
        let Some(layer) = layer(&source.module()).filter(|layer| PURE.contains(layer)) else {
            continue;
        };
        for (number, line) in source.code_lines() {
            for word in IMPURE {
                if line.contains(word) && !line.trim_start().starts_with("//") {
                    complaints.push(source.complaint(number, &format!("{word} in {layer}")));
                }
            }
        }
    }
    finish("api, codec and cache::core do no I/O and read no clock", &complaints);
}

#[test]
fn every_file_says_what_it_is() {
    let mut complaints = Vec::new();
    for source in sources() {
        if !source.text.starts_with("//! ") {
            complaints.push(source.complaint(1, "must open with //!"));
        }
        if source.path.ends_with("mod.rs") {
            complaints.push(source.complaint(1, "must be foo.rs beside foo/, not foo/mod.rs"));
        }
    }
    finish("every file opens with its module's documentation", &complaints);
}

#[test]
fn files_stay_small() {
    let mut complaints = Vec::new();
    for source in sources() {
        let lines = source.text.lines().count();
        if lines > LINES_MAX {
            complaints.push(source.complaint(lines, &format!("more than {LINES_MAX} lines")));
        } else if lines > LINES_SOFT_MAX {
            eprintln!("{}: {lines} lines, worth splitting", source.path.display());
        }
    }
    finish("files stay small", &complaints);
}

#[test]
fn nothing_unfinished_is_left() {
    let mut complaints = Vec::new();
    for source in sources() {
        for (number, line) in source.text.lines().enumerate() {
            for word in UNFINISHED {
                if line.contains(word) && !line.trim_start().starts_with("//") {
                    complaints.push(source.complaint(number + 1, word));
                }
            }
        }
    }
    finish("nothing unfinished is left", &complaints);
}

#[test]
fn the_changelog_has_a_place_for_what_comes() {
    let text = fs::read_to_string(root().join("CHANGELOG.md")).unwrap();
    assert!(
        text.lines().any(|line| line.trim() == "## Unreleased"),
        "CHANGELOG.md: needs a section \"## Unreleased\""
    );
}

#[test]
fn the_layer_rule_itself() {
    assert!(may_use("server::get", "cache::handle"));
    assert!(may_use("cache::reflector", "cache::core::store"));
    assert!(may_use("cache::core::store", "codec::object"));
    assert!(may_use("upstream::discovery", "cache::core"));
    assert!(may_use("server", "config"));
    assert!(may_use("config::words", "api::resource"));
    assert!(!may_use("cache::core::store", "cache::handle"));
    assert!(!may_use("cache::core::store", "config"));
    assert!(!may_use("api::resource", "codec"));
    assert!(!may_use("upstream", "cache::registry"));
    assert!(!may_use("telemetry", "upstream"));
    assert!(!may_use("server", "somewhere_new"));
    assert_eq!(
        used_modules("use crate::{api::resource::Scope, codec};"),
        ["api::resource::Scope", "codec"]
    );
    assert_eq!(used_modules("let x: crate::cache::core::Y = z;"), ["cache::core::Y"]);
    assert!(used_modules("use serde::Deserialize;").is_empty());
}

struct Source {
    /// From `src/`.
    path: PathBuf,
    text: String,
}

impl Source {
    /// `cache::core::store` for `cache/core/store.rs`.
    fn module(&self) -> String {
        let path = self.path.with_extension("");
        path.components()
            .map(|part| part.as_os_str().to_string_lossy().into_owned())
            .collect::<Vec<_>>()
            .join("::")
    }

    /// Numbered from 1, without comments.
    fn code_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().enumerate().map(|(index, line)| (index + 1, line));
        lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
    }

    fn complaint(&self, line: usize, message: &str) -> String {
        format!("src/{}:{line}: {message}", self.path.display())
    }
}

fn may_use(from: &str, to: &str) -> bool {
    // The binary and the library's root see everything; the rules are about the parts.
    if matches!(from, "main" | "lib") {
        return true;
    }
    let leaf = |module: &str| LEAVES.into_iter().find(|leaf| within(module, leaf));
    match (leaf(from), leaf(to)) {
        (_, Some(_)) => layer(from).is_none_or(|layer| !PURE.contains(&layer)),
        (Some(_), None) => layer(to) == Some("api"),
        (None, None) => match (rank(from), rank(to)) {
            (Some(from), Some(to)) => to <= from,
            _ => false,
        },
    }
}

fn layer(module: &str) -> Option<&'static str> {
    LAYERS.into_iter().filter(|layer| within(module, layer)).max_by_key(|layer| layer.len())
}

fn rank(module: &str) -> Option<usize> {
    let layer = layer(module)?;
    LAYERS.iter().position(|other| *other == layer)
}

fn within(module: &str, layer: &str) -> bool {
    module.strip_prefix(layer).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// The paths after `crate::` on a line; those in braces one by one.
fn used_modules(line: &str) -> Vec<String> {
    let path_end = |text: &str| {
        text.find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':').unwrap_or(text.len())
    };
    let mut modules = Vec::new();
    for rest in line.split("crate::").skip(1) {
        let paths = match rest.strip_prefix('{') {
            Some(list) => {
                list.split('}').next().unwrap_or(list).split(',').map(str::trim).collect()
            }
            None => vec![rest],
        };
        for path in paths {
            let path = path[..path_end(path)].trim_end_matches(':');
            if !path.is_empty() {
                modules.push(path.to_owned());
            }
        }
    }
    modules
}

fn sources() -> Vec<Source> {
    let src = root().join("src");
    let mut sources = Vec::new();
    let mut directories = vec![src.clone()];
    while let Some(directory) = directories.pop() {
        for file in fs::read_dir(directory).unwrap() {
            let path = file.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                let path = path.strip_prefix(&src).unwrap().to_path_buf();
                sources.push(Source { path, text });
            }
        }
    }
    assert!(!sources.is_empty(), "found no sources");
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    sources
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn finish(rule: &str, complaints: &[String]) {
    assert!(complaints.is_empty(), "rule: {rule}\n{}", complaints.join("\n"));
}

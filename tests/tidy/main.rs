//! The rules of the repository, as tests: layers, import cycles, file sizes, module documentation,
//! the width of comments, cited files.
//!
//! A failure names the rule, the file and the line. Each rule is a function from text to
//! complaints, and has a test of its own that breaks it.

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "it reads the repository itself"
)]

mod comments;
mod cycles;
mod files;
mod imports;
mod layers;
mod shape;

use std::path::Path;

/// The root of the repository.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Fails with all complaints about one rule.
fn finish(rule: &str, complaints: &[String]) {
    assert!(complaints.is_empty(), "rule: {rule}\n{}", complaints.join("\n"));
}

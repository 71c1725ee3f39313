//! Copies Weir's lock-free parts with loom's atomics in place of std's.

use std::path::Path;
use std::{env, fs};

/// The parts, from the root of the repository.
const PARTS: [&str; 3] = [
    "src/cache/core/cursor/marks.rs",
    "src/cache/core/cursor/wake_slot.rs",
    "src/streams/deferred_waker.rs",
];

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let out = env::var("OUT_DIR").expect("cargo sets it");
    for part in PARTS {
        let source = root.join(part);
        println!("cargo::rerun-if-changed={}", source.display());
        let text = fs::read_to_string(&source).expect("the part is there");
        // A file that is included may not document its module, and its own tests use std's threads.
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let code: Vec<&str> = code.lines().filter(|line| !line.starts_with("//!")).collect();
        let code = code.join("\n");
        assert!(code.contains("std::sync::atomic"), "{part} uses no atomics");
        let code = code.replace("std::sync::atomic", "loom::sync::atomic");
        // The names that the part has from futures-util, with the waker that loom knows.
        let code = code
            .replace("futures_util::task::AtomicWaker", "crate::atomic_waker::AtomicWaker")
            .replace("{ArcWake, AtomicWaker,", "{ArcWake,")
            .replace("pub(super) ", "pub(crate) ");
        let name = source.file_name().expect("a part is a file");
        fs::write(Path::new(&out).join(name), code).expect("the copy is written");
    }
}

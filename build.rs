//! Passes the name of the Cargo profile to the crate, for `weir version` and `weir_build_info`.
//!
//! Cargo's own variable `PROFILE` only distinguishes debug from release, so the name comes from the
//! output directory, `target/PROFILE/build/weir-HASH/out`.

use std::env;
use std::path::Path;

fn main() {
    let directory = env::var("OUT_DIR").unwrap_or_default();
    let profile = Path::new(&directory)
        .ancestors()
        .find(|path| path.file_name().is_some_and(|name| name == "build"))
        .and_then(|build| build.parent()?.file_name()?.to_str())
        .unwrap_or("unknown");
    println!("cargo::rustc-env=WEIR_PROFILE={profile}");
    println!("cargo::rerun-if-changed=build.rs");
}

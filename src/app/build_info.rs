//! The version of this binary, and the Cargo profile that it was built with.

/// The version in `Cargo.toml`.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The Cargo profile: `dist` for what is shipped, `release` or `debug` for development. Set by
/// `build.rs`.
pub const PROFILE: &str = env!("WEIR_PROFILE");

/// Whether this is the build for production, which is optimized as one unit.
pub fn is_dist() -> bool {
    PROFILE == "dist"
}

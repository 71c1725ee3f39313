//! Bearer tokens.

/// Returns a token with the length and the form of a service account's. Its claims are filler that
/// contains `name`.
pub(crate) fn token(name: &str) -> String {
    format!("{}.{name}{}.{}", "h".repeat(100), "c".repeat(550), "s".repeat(342))
}

//! The origin of a response, as a label value.

/// The cache status of a response: its origin.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) enum CacheStatus {
    /// A cache.
    Hit,
    /// The upstream.
    Forward,
    /// An error of Weir's own.
    Error,
}

impl CacheStatus {
    /// Returns the label value.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Forward => "forward",
            Self::Error => "error",
        }
    }
}

//! The purpose of a request to the upstream.

/// The purpose of a request to the upstream, by which bytes are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum RequestPurpose {
    /// A client's request.
    Forward,
    /// A list, watch or probe of a cache.
    Cache,
    /// A review of a credential or a permission.
    Review,
    /// Discovery, versions, health checks and settings.
    #[default]
    Other,
}

impl RequestPurpose {
    /// All purposes.
    pub(crate) const ALL: [Self; 4] = [Self::Forward, Self::Cache, Self::Review, Self::Other];

    /// Returns the label value.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Cache => "cache",
            Self::Review => "review",
            Self::Other => "other",
        }
    }
}

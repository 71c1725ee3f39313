//! The reasons for which another Weir gets nothing (`docs/decisions/seeding-from-siblings.md`).

/// Why a sibling gets nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SeedRefusal {
    /// It stores objects in another form.
    Version,
    /// It asks for something else than a whole collection.
    Options,
    /// There is no such cache.
    Absent,
    /// The cache is not complete, or its watch is closed.
    Unready,
    /// The cache was filled from a sibling, and was neither listed nor compared since; or its state
    /// went through many Weirs; or a comparison found a difference.
    Unverified,
    /// The cache has objects that it cannot read, or had some at the requested state.
    Unreadable,
    /// The cache is too large to be sent in time.
    Large,
    /// The cache was proved wrong.
    Quarantined,
    /// Other siblings are being served.
    Busy,
    /// The cluster or the release of its API server is not known.
    Unidentified,
    /// Weir is stopping.
    Stopping,
}

impl SeedRefusal {
    /// Returns the value of the `outcome` label.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Version => "version",
            Self::Options => "options",
            Self::Absent => "absent",
            Self::Unready => "unready",
            Self::Unverified => "unverified",
            Self::Unreadable => "unreadable",
            Self::Large => "large",
            Self::Quarantined => "quarantined",
            Self::Busy => "busy",
            Self::Unidentified => "unidentified",
            Self::Stopping => "stopping",
        }
    }
}

//! The kinds of notable events.

/// The kind of a notable event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The reflector of a cache lists again.
    Relist,
    /// The reflector of a cache failed, and waits.
    BackOff,
    /// A cache stopped, or was refused.
    CacheStopped,
    /// A cache exceeds a byte budget, or fits again.
    Budget,
    /// A cache was quarantined, or answers again.
    Quarantine,
    /// A cache has objects that it cannot read, or has none any more.
    Unreadable,
    /// The definition of a resource changed.
    Definition,
    /// The upstream's history was rewound.
    Rewind,
    /// The upstream went away, or came back.
    Upstream,
    /// The version of the upstream changed.
    Version,
    /// The configuration was read again, or could not be.
    Reload,
    /// The stage of Weir's own overload changed.
    Overload,
    /// Weir's own identity lacks a permission, or has it again.
    Rights,
    /// A certificate expires soon, or was renewed.
    Certificate,
    /// The upstream refuses Weir's credentials, or accepts them again.
    Credentials,
    /// An operator changed something by the admin listener.
    Operator,
    /// Weir stops.
    Stop,
}

impl EventKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 17] = [
        Self::Relist,
        Self::BackOff,
        Self::CacheStopped,
        Self::Budget,
        Self::Quarantine,
        Self::Unreadable,
        Self::Definition,
        Self::Rewind,
        Self::Upstream,
        Self::Version,
        Self::Reload,
        Self::Overload,
        Self::Rights,
        Self::Certificate,
        Self::Credentials,
        Self::Operator,
        Self::Stop,
    ];

    /// Returns the value of the `kind` label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Relist => "relist",
            Self::BackOff => "back-off",
            Self::CacheStopped => "cache-stopped",
            Self::Budget => "budget",
            Self::Quarantine => "quarantine",
            Self::Unreadable => "unreadable",
            Self::Definition => "definition",
            Self::Rewind => "rewind",
            Self::Upstream => "upstream",
            Self::Version => "version",
            Self::Reload => "reload",
            Self::Overload => "overload",
            Self::Rights => "rights",
            Self::Certificate => "certificate",
            Self::Credentials => "credentials",
            Self::Operator => "operator",
            Self::Stop => "stop",
        }
    }
}

//! The kinds of notable events.

crate::api::labels! {
    /// The kind of a notable event.
    pub enum EventKind {
        /// The reflector of a cache lists again.
        Relist = "relist",
        /// The reflector of a cache failed, and waits.
        BackOff = "back-off",
        /// A cache stopped, or was refused.
        CacheStopped = "cache-stopped",
        /// A cache exceeds a byte budget, or fits again.
        Budget = "budget",
        /// A cache was quarantined, or answers again.
        Quarantine = "quarantine",
        /// A cache has objects that it cannot read, or has none any more.
        Unreadable = "unreadable",
        /// The definition of a resource changed.
        Definition = "definition",
        /// The upstream's history was rewound.
        Rewind = "rewind",
        /// The upstream went away, or came back.
        Upstream = "upstream",
        /// The version of the upstream changed.
        Version = "version",
        /// The configuration was read again, or could not be.
        Reload = "reload",
        /// The stage of Weir's own overload changed.
        Overload = "overload",
        /// Weir's own identity lacks a permission, or has it again.
        Rights = "rights",
        /// A certificate expires soon, or was renewed.
        Certificate = "certificate",
        /// The upstream refuses Weir's credentials, or accepts them again.
        Credentials = "credentials",
        /// An operator changed something by the admin listener.
        Operator = "operator",
        /// Weir stops.
        Stop = "stop",
    }
}

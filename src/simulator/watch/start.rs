//! The start of a watch.

use crate::request::{Options, parse_revision};

/// The position at which a watch begins.
#[derive(Clone, Copy, Debug)]
pub(super) enum WatchStart {
    /// The watch begins with the state, after the cache has reached a revision; `None` means the
    /// latest.
    State(Option<u64>),
    /// The watch begins after a resourceVersion.
    After(u64),
    /// The watch begins with the events from now on. If `consistent`, that means from the store's
    /// revision, otherwise from the cache's.
    Now { consistent: bool },
}

impl WatchStart {
    /// Reads the start from the options of a request; an error is the message of a `Status`.
    pub(super) fn from_options(options: &Options) -> Result<Self, String> {
        let version = options.resource_version.as_str();
        let revision = if version.is_empty() { 0 } else { parse_revision(version)? };
        Ok(match (options.initial_events, version, revision) {
            (Some(true), "", _) => Self::State(None),
            (Some(false), "", _) => Self::Now { consistent: true },
            (Some(false), _, 0) => Self::Now { consistent: false },
            (None, "", _) | (None | Some(true), _, 0) => Self::State(Some(0)),
            (Some(true), _, revision) => Self::State(Some(revision)),
            (_, _, revision) => Self::After(revision),
        })
    }
}

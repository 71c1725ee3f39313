//! The states of a reflector.

use std::time::Duration;

use crate::cache::reflector::running_watch::RunningWatch;
use crate::cache::refusal::Refusal;

/// The state of a reflector.
pub(super) enum State {
    /// No watch can be resumed: the whole state is listed. The old state is served until the new
    /// one is complete.
    Listing(ListCause),
    /// The upstream failed. The next state is entered after the wait.
    BackingOff(Duration, Box<Self>),
    /// The upstream has refused the resource for long. Access reviews decide whether the reflector
    /// ends or backs off before the next state.
    Reviewing(Refusal, Box<Self>),
    /// A complete state is held. A watch from its resourceVersion is opened, and then verified.
    Resuming(Verify),
    /// A watch is open. Its events are applied after the verification.
    Verifying(RunningWatch, Verify),
    /// A watch is open, and its events are applied as they arrive.
    Watching(RunningWatch),
}

impl State {
    /// Returns the value of the `state` label of the metrics.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Listing(_) => "listing",
            Self::BackingOff(..) => "backing-off",
            Self::Reviewing(..) => "reviewing",
            Self::Resuming(_) => "resuming",
            Self::Verifying(..) => "verifying",
            Self::Watching(_) => "watching",
        }
    }
}

/// The checks before the events of a new watch are applied, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verify {
    /// The watch follows a list that was just taken, but another cluster may answer it.
    Cluster,
    /// The history may have been rewound while no watch was open. A probe shows it.
    History,
    /// The definition of a custom resource may have changed too, so that the upstream writes the
    /// objects in other bytes now. A list of the held state shows it.
    Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListCause {
    /// The cache is new.
    Start,
    /// The upstream no longer has the events after the held resourceVersion.
    Expired,
    /// The upstream's history was rewound.
    Rewound,
    /// The upstream may write the same objects in other bytes now: its version or the definition of
    /// a custom resource has changed.
    Changed,
    /// Watch after watch ended at its start.
    ShortWatches,
    /// The previous list failed.
    Retry,
}

impl ListCause {
    /// Returns the value of the `cause` label of the metrics.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Expired => "expired",
            Self::Rewound => "rewound",
            Self::Changed => "changed",
            Self::ShortWatches => "short-watches",
            Self::Retry => "retry",
        }
    }
}

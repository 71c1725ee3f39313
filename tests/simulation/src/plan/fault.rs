//! The kinds of faults.

use serde::{Deserialize, Serialize};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub(crate) enum Fault {
    /// A connection of a client is cut.
    CutClient,
    /// A connection of a Weir to its upstream is cut.
    CutUpstream,
    /// Such a connection stops for some seconds, without an error.
    FreezeUpstream,
    /// Such a connection loses what is sent for minutes: both ends believe that it is open.
    BlackHole,
    /// The API server's end of such a connection sends no more, and still reads.
    HalfClose,
    /// The API server ends connections after their running requests: GOAWAY.
    GoAway,
    /// The API server ends connections, and one is cut before its running requests end.
    GoAwayLost,
    /// The heads of the next answers come late.
    LateHeads,
    /// The next watches send what is not JSON.
    Garbage,
    /// All watches of one resource end, in one of three ways.
    CutWatches,
    /// etcd forgets its history.
    Compact,
    /// One API server is away for some seconds, and has no history then.
    Restart,
    /// All API servers are.
    RestartAll,
    /// The watch caches of one API server stay where they are for up to a minute.
    Lag,
    /// The next lists or watches are refused with 429, 500 or 503; with 500 the creations of a
    /// crowd, too.
    Refuse,
    /// All requests for a resource are refused with 403, for less than ten seconds.
    Forbid,
    /// The next watches get 410.
    Gone,
    /// The next lists get 410, also between two pages.
    GoneList,
    /// The definition of the custom resource changes.
    Redefine,
    /// A Weir crashes, and another one starts in its place.
    Crash,
    /// A Weir is asked to stop, and another one starts in its place.
    Drain,
    /// The wall clock jumps.
    Clock,
    /// etcd is restored from a backup of some seconds before, at the revision of the backup or at a
    /// higher one.
    Restore,
    /// Another cluster answers at the address.
    Swap,
    /// The objects of priority and fairness change.
    ChangePlan,
    /// The Weirs may not read the whole cluster for some minutes, only its namespaces.
    Revoke,
}

/// The kinds that a seed draws from. `Revoke` is only for plans whose Weirs have such permissions,
/// `ChangePlan` for those whose API servers have such objects.
pub(crate) const FAULTS: [Fault; 24] = [
    Fault::CutClient,
    Fault::CutUpstream,
    Fault::FreezeUpstream,
    Fault::BlackHole,
    Fault::HalfClose,
    Fault::GoAway,
    Fault::GoAwayLost,
    Fault::LateHeads,
    Fault::Garbage,
    Fault::CutWatches,
    Fault::Compact,
    Fault::Restart,
    Fault::RestartAll,
    Fault::Lag,
    Fault::Refuse,
    Fault::Forbid,
    Fault::Gone,
    Fault::GoneList,
    Fault::Redefine,
    Fault::Crash,
    Fault::Drain,
    Fault::Clock,
    Fault::Restore,
    Fault::Swap,
];

/// The kinds that a seed with a crowd draws from: a connection that carries nothing for a while is
/// none of them. Its requests would arrive long after Weir has given up their seats.
pub(crate) const CROWD_FAULTS: [Fault; 11] = [
    Fault::CutClient,
    Fault::CutUpstream,
    Fault::GoAway,
    Fault::GoAwayLost,
    Fault::CutWatches,
    Fault::Compact,
    Fault::Restart,
    Fault::RestartAll,
    Fault::Refuse,
    Fault::Crash,
    Fault::Drain,
];

impl Fault {
    /// Whether it strikes clients of the API servers themselves. They do not survive garbage, and
    /// cannot notice a history that was lost once its revisions are reached again: only Weir does.
    pub(crate) fn is_direct(self) -> bool {
        !self.is_of_weir() && !matches!(self, Self::Garbage | Self::Restore | Self::Swap)
    }

    /// Whether it strikes the connections or the process of a Weir.
    pub(crate) fn is_of_weir(self) -> bool {
        matches!(
            self,
            Self::CutUpstream
                | Self::FreezeUpstream
                | Self::BlackHole
                | Self::HalfClose
                | Self::GoAwayLost
                | Self::Crash
                | Self::Drain
                | Self::Revoke
        )
    }

    /// Whether a cache can lose its place in the history by it, so that its streams get the
    /// difference of two states.
    pub(crate) fn loses_history(self) -> bool {
        matches!(
            self,
            Self::FreezeUpstream
                | Self::BlackHole
                | Self::Compact
                | Self::Restart
                | Self::RestartAll
                | Self::Lag
                | Self::LateHeads
                | Self::Refuse
                | Self::Forbid
                | Self::Gone
                | Self::GoneList
                | Self::Garbage
                | Self::Redefine
                | Self::Restore
                | Self::Swap
        )
    }
}

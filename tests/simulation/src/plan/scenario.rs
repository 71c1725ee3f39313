//! The short scenarios in which a connection is cut at each point in turn.

use std::time::Duration;

use super::{Fault, Plan, Strike};

/// The event in the middle of a short run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Scenario {
    /// Clients begin, and caches with them.
    ColdStart,
    /// The watches of the caches end.
    Resume,
    /// The caches lose their place in the history.
    Relist,
    /// etcd is restored.
    Rewind,
    /// The definition of a custom resource changes.
    Definition,
    /// The API server has no watch-lists, so that freshness is proved by lists.
    ProofByList,
    /// The bookmarks are rare, so that freshness is proved by short watches.
    ProofByWatch,
    /// Lists have pages of three objects.
    Paging,
    /// Weir drains, and another one starts.
    Drain,
}

impl Scenario {
    /// Returns the faults of a run of this length.
    pub(super) fn strikes(self, duration: Duration, seed: u64) -> Vec<Strike> {
        let faults: &[Fault] = match self {
            Self::ColdStart | Self::ProofByList | Self::ProofByWatch | Self::Paging => &[],
            Self::Resume => &[Fault::CutWatches, Fault::CutWatches, Fault::CutWatches],
            Self::Relist => &[Fault::Compact, Fault::CutWatches, Fault::CutWatches],
            Self::Rewind => &[Fault::Restore],
            Self::Definition => &[Fault::Redefine],
            Self::Drain => &[Fault::Drain],
        };
        let at_ms = duration.as_millis() as u64 / 2;
        let strike = |(number, fault): (u64, &Fault)| {
            let seed = seed.wrapping_add(number);
            Strike { at_ms: at_ms + number * 100, fault: *fault, seed }
        };
        (0..).zip(faults).map(strike).collect()
    }

    /// Sets what the scenario needs.
    pub(super) fn settings(self, plan: Plan) -> Plan {
        match self {
            Self::ProofByList => Plan { minor: 33, ..plan },
            Self::ProofByWatch => Plan { bookmark_interval: Duration::from_secs(60), ..plan },
            Self::Paging => Plan { page_size: 3, ..plan },
            _ => plan,
        }
    }
}

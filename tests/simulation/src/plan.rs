//! What a seed decides before the run: the hosts, the settings, and the kinds of faults.
//!
//! Each seed has only some kinds of faults (swarm testing): a rare state is reached where others do
//! not disturb it.

use std::time::Duration;

use weir::config::OnRelist;

/// The plan of a run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// How long faults and writes last.
    pub(crate) duration: Duration,
    /// The number of Weirs; 0 for clients of the API server itself.
    pub(crate) weirs: usize,
    /// The second Weir reads from the first.
    pub(crate) in_a_row: bool,
    pub(crate) informers: usize,
    pub(crate) readers: usize,
    pub(crate) writers: usize,
    /// The mean time between two writes of the background.
    pub(crate) write_interval: Duration,
    /// Events of each resource that the API server keeps.
    pub(crate) history_events: usize,
    pub(crate) bookmark_interval: Duration,
    pub(crate) http2: bool,
    pub(crate) on_relist: OnRelist,
    pub(crate) page_size: u32,
    pub(crate) faults: Vec<Fault>,
    /// The mean time between two faults.
    pub(crate) fault_interval: Duration,
}

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A connection of a client is cut.
    CutClient,
    /// A connection of a Weir to its upstream is cut.
    CutUpstream,
    /// Such a connection stops for some seconds, without an error.
    FreezeUpstream,
    /// All watches of one resource end, in one of three ways.
    CutWatches,
    /// The API server forgets its history.
    Compact,
    /// The API server is away for some seconds.
    Restart,
    /// The next lists or watches are refused with 429, 500 or 503.
    Refuse,
    /// The next watches get 410.
    Gone,
    /// A Weir crashes, and another one starts in its place.
    Crash,
    /// The wall clock jumps.
    Clock,
    /// etcd is restored from a backup of some seconds before.
    Restore,
    /// The next lists or watches are refused with 403.
    Forbid,
}

/// The kinds that Weir must stand today. README.md says what is known of the others.
pub(crate) const FAULTS: [Fault; 10] = [
    Fault::CutClient,
    Fault::CutUpstream,
    Fault::FreezeUpstream,
    Fault::CutWatches,
    Fault::Compact,
    Fault::Restart,
    Fault::Refuse,
    Fault::Gone,
    Fault::Crash,
    Fault::Clock,
];

/// All kinds.
pub(crate) const ALL_FAULTS: [Fault; 12] = [
    Fault::CutClient,
    Fault::CutUpstream,
    Fault::FreezeUpstream,
    Fault::CutWatches,
    Fault::Compact,
    Fault::Restart,
    Fault::Refuse,
    Fault::Gone,
    Fault::Crash,
    Fault::Clock,
    Fault::Restore,
    Fault::Forbid,
];

impl Plan {
    /// Makes the plan of a seed.
    pub(crate) fn new(seed: u64, minutes: f64, direct: bool, kinds: &[Fault]) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let drawn = kinds.iter().filter(|_| rng.u8(..3) == 0).copied().collect::<Vec<_>>();
        let faults = if direct {
            let own = [Fault::CutUpstream, Fault::FreezeUpstream, Fault::Crash];
            drawn.into_iter().filter(|fault| !own.contains(fault)).collect()
        } else {
            drawn
        };
        let weirs = if direct { 0 } else { 1 + usize::from(rng.u8(..2) == 0) };
        Self {
            seed,
            duration: Duration::from_secs_f64(minutes * 60.0),
            weirs,
            in_a_row: weirs == 2 && rng.u8(..3) == 0,
            informers: rng.usize(4..10),
            readers: rng.usize(2..6),
            writers: rng.usize(1..3),
            write_interval: Duration::from_millis(rng.u64(200..2000)),
            history_events: rng.usize(20..400),
            bookmark_interval: Duration::from_secs(rng.u64(2..60)),
            http2: rng.u8(..4) > 0,
            on_relist: if rng.bool() { OnRelist::KeepStreams } else { OnRelist::EndStreams },
            page_size: rng.u32(3..500),
            faults,
            fault_interval: Duration::from_secs(rng.u64(3..30)),
        }
    }

    /// Returns a small plan without random faults, for cuts at each point in turn.
    pub(crate) fn short(seed: u64, minutes: f64) -> Self {
        let plan = Self::new(seed, minutes, false, &[]);
        Self { weirs: 1, in_a_row: false, informers: 3, readers: 2, writers: 1, ..plan }
    }

    /// Whether a cache can lose its place in the history, so that its streams get the difference of
    /// two states.
    pub(crate) fn relists(&self) -> bool {
        let loses = [
            Fault::Compact,
            Fault::Gone,
            Fault::Restore,
            Fault::Restart,
            Fault::FreezeUpstream,
            Fault::Refuse,
            Fault::Forbid,
        ];
        self.on_relist == OnRelist::KeepStreams
            && self.faults.iter().any(|fault| loses.contains(fault))
    }
}

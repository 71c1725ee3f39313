//! The short watches of one cache that are in progress.
//!
//! A request joins a watch whose API server has reached the resourceVersion that the request needs.
//! A request that needs a later resourceVersion starts another watch, which serves all requests
//! that came until then. At most one watch starts in each [`INTERVAL`].
//!
//! No locks but that of the latest watch.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::api::resource_version::ResourceVersion;

/// The short watches of one cache.
#[derive(Debug, Default)]
pub(crate) struct ShortWatches {
    planned: Mutex<Planned>,
}

#[derive(Debug, Default)]
struct Planned {
    /// The highest resourceVersion that a waiting request needs.
    needed: ResourceVersion,
    latest: Option<ShortWatch>,
}

#[derive(Debug)]
struct ShortWatch {
    started: Instant,
    /// The resourceVersion that its API server has reached.
    at: ResourceVersion,
    /// The generation of the upstream's history.
    generation: u64,
    /// Whether a bookmark arrived, once that is known.
    outcome: watch::Receiver<Option<bool>>,
}

/// The next step of a request that needs a short watch.
pub(super) enum Next {
    /// It waits for the outcome of a watch.
    Join(watch::Receiver<Option<bool>>),
    /// It starts a watch at an API server that has reached this resourceVersion, and sends its
    /// outcome.
    Start(ResourceVersion, watch::Sender<Option<bool>>, watch::Receiver<Option<bool>>),
    /// It asks again then.
    Wait(Instant),
}

impl ShortWatches {
    /// Plans what a request does that needs `needed` in `generation`.
    pub(super) fn plan(&self, needed: ResourceVersion, generation: u64) -> Next {
        let mut planned = self.planned.lock();
        if planned.latest.as_ref().is_some_and(|latest| latest.generation != generation) {
            *planned = Planned::default();
        }
        planned.needed = planned.needed.max(needed);
        let now = Instant::now();
        if let Some(latest) = &planned.latest {
            if latest.at >= needed && latest.is_running() {
                return Next::Join(latest.outcome.clone());
            }
            let next = latest.started + INTERVAL;
            if now < next {
                return Next::Wait(next);
            }
        }
        let (sender, outcome) = watch::channel(None);
        let (started, at) = (now, planned.needed);
        planned.latest = Some(ShortWatch { started, at, generation, outcome: outcome.clone() });
        Next::Start(at, sender, outcome)
    }
}

impl ShortWatch {
    fn is_running(&self) -> bool {
        self.outcome.borrow().is_none() && self.outcome.has_changed().is_ok()
    }
}

/// The time between the starts of two short watches of a cache. A request waits at most this long
/// before its watch starts, and up to 2.3 s for its bookmark.
const INTERVAL: Duration = Duration::from_millis(250);

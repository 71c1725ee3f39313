//! The open watches of the flows of operators' rules.
//!
//! A watch counts until its [`OpenWatch`] is dropped. One that is refused learns when a watch of
//! its flow will probably have ended, as with a user's open watches
//! (`docs/decisions/limits-by-user.md`).
//!
//! Invariant: no flow without an open watch is held.
//!
//! Lock: that of the map's shard.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dashmap::{DashMap, Entry};
use tokio::time::Instant;

use crate::flow::departures::{Departures, WAIT_MAX};

/// The open watches of all flows.
pub(super) struct WatchesByFlow {
    flows: DashMap<u64, WatchesOfFlow>,
    began: Instant,
}

#[derive(Debug, Default)]
struct WatchesOfFlow {
    open: u32,
    departures: Departures,
}

/// A watch that counts for its flow until this is dropped.
pub(super) struct OpenWatch {
    watches: Arc<WatchesByFlow>,
    flow: u64,
}

impl Default for WatchesByFlow {
    fn default() -> Self {
        Self { flows: DashMap::new(), began: Instant::now() }
    }
}

impl WatchesByFlow {
    /// Counts a watch of a flow that may have `most`. An error is the time after which one of the
    /// flow's watches will probably have ended.
    pub(super) fn open(self: &Arc<Self>, flow: u64, most: u32) -> Result<OpenWatch, Duration> {
        let now = self.began.elapsed();
        match self.flows.entry(flow) {
            Entry::Occupied(mut of_flow) => {
                let WatchesOfFlow { open, departures } = of_flow.get_mut();
                if *open >= most {
                    return Err(departures.wait(now));
                }
                *open += 1;
            }
            // No watch is allowed.
            Entry::Vacant(_) if most == 0 => return Err(WAIT_MAX),
            Entry::Vacant(of_flow) => {
                of_flow.insert(WatchesOfFlow { open: 1, departures: Departures::default() });
            }
        }
        Ok(OpenWatch { watches: Arc::clone(self), flow })
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        let now = self.watches.began.elapsed();
        if let Entry::Occupied(mut of_flow) = self.watches.flows.entry(self.flow) {
            let WatchesOfFlow { open, departures } = of_flow.get_mut();
            *open = open.saturating_sub(1);
            departures.leave(now);
            if *open == 0 {
                of_flow.remove();
            }
        }
    }
}

impl fmt::Debug for WatchesByFlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchesByFlow").field("flows", &self.flows.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_flow_has_so_many_and_others_theirs() {
        let watches = Arc::new(WatchesByFlow::default());
        let first = watches.open(1, 1).ok();
        assert!(first.is_some());
        assert_eq!(watches.open(1, 1).err(), Some(WAIT_MAX), "none has ended yet");
        let other = watches.open(2, 1).ok();
        assert!(other.is_some());
        assert_eq!(watches.open(3, 0).err(), Some(WAIT_MAX));
        drop(first);
        let again = watches.open(1, 1).ok();
        assert!(again.is_some());
        drop((other, again));
        assert!(watches.flows.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_refused_comes_back_when_watches_have_ended() {
        let watches = Arc::new(WatchesByFlow::default());
        let open = || watches.open(1, 10);
        let mut opened: Vec<OpenWatch> = (0..10).filter_map(|_| open().ok()).collect();
        for _ in 0..20 {
            tokio::time::sleep(SECOND).await;
            opened.remove(0);
            opened.extend(open().ok());
        }
        assert_eq!(opened.len(), 10);
        let waits: Vec<Duration> = (0..3).filter_map(|_| open().err()).collect();
        let [first, second, third] = waits[..] else { panic!("{waits:?}") };
        // One ends each second.
        assert!(first <= 2 * SECOND, "{first:?}");
        assert!(second - first <= 2 * SECOND && third - second <= 2 * SECOND, "{waits:?}");
    }
}

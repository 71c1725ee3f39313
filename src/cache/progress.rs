//! Shared probes of the upstream's present resourceVersion.
//!
//! A probe is a consistent `LIST limit=1` of the same group, resource and scope. Its
//! resourceVersion P is at least that of every write acknowledged before the probe was sent. So a
//! request may use the result of a probe only if the probe was sent *after* the request arrived. A
//! request that arrives while a probe is in flight waits for the next one, which it shares with all
//! requests that arrive until that one is sent. However many requests wait, at most one probe is in
//! flight and one is due. A caller may ask for a gap between the sending of two probes; a probe
//! that waits for it takes further callers meanwhile.
//!
//! Locks: the map of the [`SingleFlight`], and that of `pace`, each held for a few instructions.

mod pace;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::cache::metrics::CacheMetrics;
use crate::cache::probe::probe;
use crate::cache::progress::pace::Pace;
use crate::codec::list::ListPage;
use crate::tasks::single_flight::{InFlightGuard, SingleFlight};
use crate::tasks::single_permit::SinglePermit;
use crate::upstream::error::UpstreamError;
use crate::upstream::lister_watcher::ListWatch;

/// The probes of one cache.
pub(crate) struct Probes {
    upstream: Arc<dyn ListWatch>,
    tasks: TaskTracker,
    metrics: CacheMetrics,
    /// The next probe to be sent.
    due: SingleFlight<(), ProbeResult>,
    /// One probe is in flight at a time.
    in_flight: SinglePermit,
    /// When probes were sent, and how long they took.
    pace: parking_lot::Mutex<Pace>,
}

type ProbeResult = Result<Arc<Probed>, UpstreamError>;

/// The response to a probe.
#[derive(Debug)]
pub(crate) struct Probed {
    /// The first page of the collection. Its resourceVersion is at least that of every write
    /// acknowledged before the probe was sent.
    pub(crate) page: ListPage,
    /// Whether the API server itself has sent it, once somebody has asked.
    pub(crate) is_local: OnceCell<bool>,
}

impl Probes {
    /// Creates the probes of one cache. They run as tasks of `tasks`.
    pub(crate) fn new(
        upstream: Arc<dyn ListWatch>,
        tasks: TaskTracker,
        metrics: CacheMetrics,
    ) -> Self {
        Self {
            upstream,
            tasks,
            metrics,
            due: SingleFlight::default(),
            in_flight: SinglePermit::default(),
            pace: parking_lot::Mutex::default(),
        }
    }

    /// Returns the response to a probe that was sent after this call. If this call is the first to
    /// ask for that probe, the probe is sent at least `gap` after the one before it. Cancel safe:
    /// the probe continues for the other callers.
    pub(crate) async fn probed(self: &Arc<Self>, gap: Duration) -> ProbeResult {
        let (outcome, guard) = self.due.join(&());
        if let Some(guard) = guard {
            self.tasks.spawn(Arc::clone(self).run(guard, gap));
        }
        outcome.wait().await.unwrap_or_else(|lost| Err(UpstreamError::Lost(lost.to_string())))
    }

    /// Returns how long [`Self::probed`] is expected to take.
    pub(crate) fn expected_wait(&self, gap: Duration) -> Duration {
        let (pace, now) = (self.pace.lock(), Instant::now());
        pace.left(now, gap) + pace.duration(now)
    }

    /// Sends a probe once no other is in flight and the gap has passed. Requests that arrive after
    /// that wait for the next one.
    async fn run(self: Arc<Self>, mut guard: InFlightGuard<(), ProbeResult>, gap: Duration) {
        let _in_flight = self.in_flight.acquire().await;
        let left = self.pace.lock().left(Instant::now(), gap);
        if !left.is_zero() {
            tokio::time::sleep(left).await;
        }
        guard.close();
        // A probe whose requests have all gone is not sent.
        if !guard.is_abandoned() {
            guard.complete(self.send().await);
        }
    }

    async fn send(&self) -> ProbeResult {
        let sent = Instant::now();
        self.pace.lock().sent(sent);
        match tokio::time::timeout(PROBE_TIMEOUT, probe(&*self.upstream)).await {
            Ok(Ok(probed)) => {
                let now = Instant::now();
                self.pace.lock().answered(now, now.duration_since(sent));
                self.metrics.probe("success");
                Ok(Arc::new(Probed { page: probed, is_local: OnceCell::new() }))
            }
            Ok(Err(error)) => {
                self.metrics.probe("error");
                tracing::debug!(%error, "probe failed");
                Err(error)
            }
            Err(_elapsed) => {
                self.metrics.probe("timeout");
                Err(UpstreamError::Timeout(PROBE_TIMEOUT))
            }
        }
    }
}

/// How long to wait for an event or bookmark that brings the cache to the resourceVersion of a
/// probe. An event arrives within a few milliseconds. If none has arrived by then, only the next
/// bookmark brings the cache there, up to a minute later.
pub(crate) const CATCH_UP_TIMEOUT: Duration = Duration::from_millis(50);

/// The longest wait for a probe, or for a list for a proof. The upstream waits at most three
/// seconds before a consistent read falls back to etcd (`docs/semantics.md` §2.3). The requests
/// that wait for a slower one have timed out.
pub(crate) const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;

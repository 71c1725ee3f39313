//! The load of one API server, as Weir sees it: requests in progress, the time until a response's
//! head, and whether the server refused a request for its own load.
//!
//! The latency is a peak EWMA: a slow response counts at once, and is forgotten over
//! [`DECAY`]. So one server that stalls gets fewer requests after the first slow response, and is
//! tried again some seconds later. Requests update it without a lock; where two do so at the same
//! time, one of them may be lost, which a moving average tolerates.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// The load of one API server.
#[derive(Debug)]
pub(crate) struct Load {
    in_use: AtomicUsize,
    created: Instant,
    /// The peak EWMA in seconds, as the bits of an `f64`; 0 before the first response.
    latency_bits: AtomicU64,
    /// When the latency was updated, in nanoseconds after `created`.
    updated_nanos: AtomicU64,
    /// The time until which other servers are preferred, in nanoseconds after `created`.
    avoid_until_nanos: AtomicU64,
}

impl Load {
    /// Creates the load of a server that has had no request.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            in_use: AtomicUsize::new(0),
            created: now,
            latency_bits: AtomicU64::new(0),
            updated_nanos: AtomicU64::new(0),
            avoid_until_nanos: AtomicU64::new(0),
        }
    }

    /// Counts a request as in progress until the guard is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> InUse {
        self.in_use.fetch_add(1, Ordering::Relaxed);
        InUse(self.clone())
    }

    /// Returns the number of requests in progress.
    pub(crate) fn in_use(&self) -> usize {
        self.in_use.load(Ordering::Relaxed)
    }

    /// Notes the time from a request to the head of its response.
    pub(crate) fn observe(&self, head_latency: Duration, now: Instant) {
        let new = head_latency.as_secs_f64();
        let kept = self.kept_share(now);
        let old = f64::from_bits(self.latency_bits.load(Ordering::Relaxed));
        let latency = if old == 0.0 || new >= old { new } else { old * kept + new * (1.0 - kept) };
        self.latency_bits.store(latency.to_bits(), Ordering::Relaxed);
        self.updated_nanos.store(self.nanos(now), Ordering::Relaxed);
    }

    /// Returns the latency in seconds, which falls while there are no responses; `None` before the
    /// first response.
    pub(crate) fn latency(&self, now: Instant) -> Option<f64> {
        let latency = f64::from_bits(self.latency_bits.load(Ordering::Relaxed));
        (latency > 0.0).then(|| latency * self.kept_share(now))
    }

    /// Notes a 429: other servers are preferred for its `Retry-After`, or for [`AVOID`].
    pub(crate) fn too_many_requests(&self, retry_after: Option<Duration>, now: Instant) {
        let until = now + retry_after.unwrap_or(AVOID).min(AVOID_MAX);
        self.avoid_until_nanos.fetch_max(self.nanos(until), Ordering::Relaxed);
    }

    /// Returns whether other servers are preferred because of a 429.
    pub(crate) fn is_avoided(&self, now: Instant) -> bool {
        self.nanos(now) < self.avoid_until_nanos.load(Ordering::Relaxed)
    }

    /// The share of the latency that counts after the time without a response.
    fn kept_share(&self, now: Instant) -> f64 {
        let idle = self.nanos(now).saturating_sub(self.updated_nanos.load(Ordering::Relaxed));
        (-Duration::from_nanos(idle).as_secs_f64() / DECAY.as_secs_f64()).exp()
    }

    /// A time as nanoseconds after `created`; they overflow after 584 years.
    fn nanos(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.created).as_nanos()).unwrap_or(u64::MAX)
    }
}

/// A request in progress at a server.
#[derive(Debug)]
pub(crate) struct InUse(Arc<Load>);

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.in_use.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The time in which the weight of a response falls to 37 %.
const DECAY: Duration = Duration::from_secs(10);
/// How long other servers are preferred after a 429 without `Retry-After`.
const AVOID: Duration = Duration::from_secs(5);
/// The largest `Retry-After` that is followed: one header must not idle a server for a day.
const AVOID_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_slow_response_counts_at_once_and_is_forgotten() {
        let start = Instant::now();
        let load = Load::new(start);
        assert_eq!(load.latency(start), None);
        load.observe(Duration::from_millis(10), start);
        load.observe(SECOND, start + SECOND);
        assert_eq!(load.latency(start + SECOND), Some(1.0));
        // Fast responses lower it gradually, and so does silence.
        load.observe(Duration::from_millis(10), start + 2 * SECOND);
        let after_fast = load.latency(start + 2 * SECOND).unwrap();
        assert!((0.9..0.92).contains(&after_fast), "{after_fast}");
        let after_silence = load.latency(start + 22 * SECOND).unwrap();
        assert!((0.12..0.13).contains(&after_silence), "{after_silence}");
    }

    #[test]
    fn requests_in_progress_are_counted_until_they_end() {
        let load = Arc::new(Load::new(Instant::now()));
        let (first, second) = (load.begin(), load.begin());
        assert_eq!(load.in_use(), 2);
        drop((first, second));
        assert_eq!(load.in_use(), 0);
    }

    #[test]
    fn a_429_is_remembered_for_its_retry_after_within_a_bound() {
        let start = Instant::now();
        let load = Load::new(start);
        assert!(!load.is_avoided(start));
        load.too_many_requests(None, start);
        assert!(load.is_avoided(start + 4 * SECOND) && !load.is_avoided(start + 5 * SECOND));
        load.too_many_requests(Some(86_400 * SECOND), start + 5 * SECOND);
        // A later and shorter one takes nothing back.
        load.too_many_requests(Some(SECOND), start + 6 * SECOND);
        assert!(load.is_avoided(start + 64 * SECOND) && !load.is_avoided(start + 65 * SECOND));
    }
}

//! How long requests wait before they are answered, by what they wait for.
//!
//! Only a request that has to wait is observed. One that finds what it needs reads no clock.

use std::time::Duration;

use prometheus::{Histogram, Registry};

use crate::telemetry::metrics::{Labelled, histogram_vec};

crate::api::labels! {
    /// The cause of a wait.
    pub(crate) enum WaitCause {
        /// Until a cache has its first state.
        Warmup = "warmup",
        /// Until a cache is proved to be as fresh as the request requires.
        Freshness = "freshness",
        /// Until a review of its credential or its permission is answered.
        Review = "review",
    }
}

/// The histograms of the causes.
#[derive(Debug)]
pub(super) struct Waits(Labelled<WaitCause, Histogram>);

impl Waits {
    pub(super) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let family = histogram_vec(
            registry,
            "weir_request_wait_seconds",
            "How long requests waited that had to, by cause: warmup (the cache has no state yet), freshness (it is not proved fresh enough) or review (of a token or a permission).",
            &["cause"],
            WAIT_BUCKETS_SECONDS,
        )?;
        Ok(Self(Labelled::new(&family)))
    }

    pub(super) fn observe(&self, cause: WaitCause, waited: Duration) {
        self.0.get(cause).observe(waited.as_secs_f64());
    }
}

/// From a review or a probe (a millisecond) to the longest wait for a cold cache.
const WAIT_BUCKETS_SECONDS: &[f64] =
    &[0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

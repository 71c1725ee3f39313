//! The end of streams when Weir drains.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// When the streams of a server end if it drains.
#[derive(Clone, Debug)]
pub(crate) struct Drain {
    /// Cancelled when the drain starts.
    pub(crate) started: CancellationToken,
    /// The interval after the start over which the ends are spread.
    pub(crate) spread: Duration,
}

impl Drain {
    /// Chooses when a stream ends, after the drain has started. The ends are random, so that not
    /// all clients connect to the next Weir at the same moment.
    pub(crate) fn random_end(&self) -> Instant {
        Instant::now() + self.spread.mul_f64(fastrand::f64())
    }
}

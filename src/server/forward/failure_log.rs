//! The log of failed forwards, limited to one line a second.

use std::time::Duration;

use crate::telemetry::log_throttle::LogThrottle;
use crate::upstream::error::UpstreamError;

/// Logs upstream failures, at most one line per interval.
#[derive(Debug)]
pub(crate) struct FailureLog {
    throttle: LogThrottle,
}

impl FailureLog {
    /// Creates a log that has logged nothing yet.
    pub(crate) fn new() -> Self {
        Self { throttle: LogThrottle::new(LOG_INTERVAL) }
    }

    /// Logs `error`, or counts it for the next line.
    pub(super) fn log(&self, error: &UpstreamError) {
        if let Some(suppressed) = self.throttle.try_acquire() {
            tracing::warn!(%error, suppressed, "a request could not be forwarded");
        }
    }
}

/// One line a second informs an operator as well as a thousand.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

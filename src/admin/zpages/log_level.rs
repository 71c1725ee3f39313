//! The filter of the log at run time: replaced for a while, and then as configured again, so that a
//! forgotten debug log does not fill disks.
//!
//! Lock: that of the present replacement, for a few instructions.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::telemetry::logging::LogFilter;

/// The filter of the log.
pub(super) struct LogLevel {
    filter: LogFilter,
    /// Returns the configured filter.
    configured: Box<dyn Fn() -> String + Send + Sync>,
    replaced: Mutex<Option<Replaced>>,
}

/// A replacement of the filter.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Replaced {
    filter: String,
    until: Instant,
}

impl LogLevel {
    pub(super) fn new(
        filter: LogFilter,
        configured: impl Fn() -> String + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self { filter, configured: Box::new(configured), replaced: Mutex::default() })
    }

    /// Returns the present filter, and until when it holds if it was replaced.
    pub(super) fn shown(&self) -> Value {
        let replaced = self.replaced.lock().clone();
        match replaced {
            Some(Replaced { filter, until }) => {
                let left = until.saturating_duration_since(Instant::now());
                json!({ "filter": filter, "secondsLeft": left.as_secs(), "configured": (self.configured)() })
            }
            None => json!({ "filter": (self.configured)(), "secondsLeft": null }),
        }
    }

    /// Replaces the filter for `duration`, at most [`DURATION_MAX`]. Fails if it cannot be parsed.
    pub(super) fn replace(
        self: &Arc<Self>,
        filter: &str,
        duration: Option<Duration>,
    ) -> Result<(), String> {
        self.filter.set(filter)?;
        let duration = duration.unwrap_or(DURATION_MAX).min(DURATION_MAX);
        let replaced = Replaced { filter: filter.to_owned(), until: Instant::now() + duration };
        *self.replaced.lock() = Some(replaced.clone());
        tracing::warn!(filter, ?duration, "the log filter was replaced for a while");
        let this = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep_until(replaced.until).await;
            // A later replacement has a time of its own.
            if *this.replaced.lock() == Some(replaced) {
                this.reset();
            }
        });
        Ok(())
    }

    /// Sets the configured filter again.
    pub(super) fn reset(&self) {
        self.replaced.lock().take();
        let configured = (self.configured)();
        match self.filter.set(&configured) {
            Ok(()) => tracing::warn!(filter = configured, "the log filter is as configured again"),
            Err(error) => tracing::error!(error, "the configured log filter cannot be set"),
        }
    }
}

/// Long enough to look at something.
const DURATION_MAX: Duration = Duration::from_secs(15 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    fn level() -> (Arc<LogLevel>, Arc<Mutex<Vec<String>>>) {
        let (filter, set) = LogFilter::recorded();
        (LogLevel::new(filter, || "info".to_owned()), set)
    }

    #[tokio::test(start_paused = true)]
    async fn a_replaced_filter_holds_for_a_while() {
        let (level, set) = level();
        level.replace("weir=debug", Some(Duration::from_secs(60))).unwrap();
        assert_eq!(level.shown()["secondsLeft"], 60);
        tokio::time::sleep(Duration::from_secs(61)).await;
        assert_eq!(*set.lock(), ["weir=debug", "info"]);
        assert_eq!(level.shown(), json!({ "filter": "info", "secondsLeft": null }));
        // No longer than the longest time.
        level.replace("debug", Some(Duration::from_secs(86_400))).unwrap();
        assert_eq!(level.shown()["secondsLeft"], DURATION_MAX.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_later_filter_has_a_time_of_its_own() {
        let (level, set) = level();
        level.replace("debug", Some(Duration::from_secs(60))).unwrap();
        tokio::time::sleep(Duration::from_secs(30)).await;
        level.replace("trace", Some(Duration::from_secs(60))).unwrap();
        tokio::time::sleep(Duration::from_secs(40)).await;
        assert_eq!(level.shown()["filter"], "trace");
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(*set.lock(), ["debug", "trace", "info"]);
    }

    #[tokio::test]
    async fn a_wrong_filter_changes_nothing() {
        let (level, set) = level();
        assert!(level.replace("weir=loud", None).is_err());
        assert!(set.lock().is_empty());
        assert_eq!(level.shown()["filter"], "info");
    }
}

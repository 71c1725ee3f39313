//! The filter of the process's log: as configured, or replaced for a while, so that a forgotten
//! debug log does not fill disks.
//!
//! A reload of the configuration does not end a replacement: the filter that it brings holds once
//! the replacement ends. The configured filter, the replacement and the logger's filter change
//! together, under one lock.
//!
//! Lock order: the state, then the logger's own locks. No line is logged under the state's lock.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::Level;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::reload::Handle;

/// The filter of the process's log. Cheap to clone: all clones share it.
#[derive(Clone)]
pub struct LogFilter {
    inner: Arc<Inner>,
}

struct Inner {
    set: Box<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>,
    state: Mutex<FilterState>,
}

/// The filter of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FilterState {
    /// The configured filter.
    pub(crate) configured: String,
    /// The filter that is used in its place.
    pub(crate) replaced: Option<Replaced>,
}

/// A replacement of the filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Replaced {
    pub(crate) filter: String,
    pub(crate) until: Instant,
}

impl LogFilter {
    /// Returns what replaces the filter of a logger that has the configured one now.
    pub(super) fn new<S: 'static>(handle: Handle<EnvFilter, S>, configured: &str) -> Self {
        let set = move |filter| handle.reload(filter).map_err(|error| error.to_string());
        Self::with_set(Box::new(set), configured)
    }

    fn with_set(
        set: Box<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>,
        configured: &str,
    ) -> Self {
        let state = FilterState { configured: configured.to_owned(), replaced: None };
        Self { inner: Arc::new(Inner { set, state: Mutex::new(state) }) }
    }

    /// Returns the present state.
    pub(crate) fn state(&self) -> FilterState {
        self.inner.state.lock().clone()
    }

    /// Sets the configured filter. While another one holds for a while, it has no effect yet. Fails
    /// if it cannot be parsed.
    pub fn configure(&self, directives: &str) -> Result<(), String> {
        let filter = parse(directives).map_err(|error| error.to_string())?;
        let mut state = self.inner.state.lock();
        if state.replaced.is_none() {
            (self.inner.set)(filter)?;
        }
        directives.clone_into(&mut state.configured);
        Ok(())
    }

    /// Replaces the filter for `duration`, at most [`DURATION_MAX`]. Fails if it cannot be parsed.
    /// Must be called within a tokio runtime.
    pub(crate) fn replace(
        &self,
        directives: &str,
        duration: Option<Duration>,
    ) -> Result<(), String> {
        let filter = parse(directives).map_err(|error| error.to_string())?;
        let duration = duration.unwrap_or(DURATION_MAX).min(DURATION_MAX);
        let until = Instant::now() + duration;
        let replaced = Replaced { filter: directives.to_owned(), until };
        let announce = || {
            tracing::warn!(
                filter = directives,
                ?duration,
                "the log filter is replaced for a while"
            );
        };
        around(announce, || {
            let mut state = self.inner.state.lock();
            (self.inner.set)(filter)?;
            state.replaced = Some(replaced.clone());
            Ok(())
        })?;
        let this = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep_until(until).await;
            // A later replacement has a time of its own.
            this.reset_if(|present| *present == replaced);
        });
        Ok(())
    }

    /// Sets the configured filter again.
    pub(crate) fn reset(&self) {
        self.reset_if(|_| true);
    }

    fn reset_if(&self, condition: impl Fn(&Replaced) -> bool) {
        let configured = {
            let state = self.inner.state.lock();
            if !state.replaced.as_ref().is_some_and(&condition) {
                return;
            }
            state.configured.clone()
        };
        let announce =
            || tracing::warn!(filter = configured, "the log filter is as configured again");
        let result = around(announce, || {
            let mut state = self.inner.state.lock();
            if state.replaced.as_ref().is_some_and(&condition) {
                let filter = parse(&state.configured).map_err(|error| error.to_string())?;
                (self.inner.set)(filter)?;
                state.replaced = None;
            }
            Ok(())
        });
        if let Err(error) = result {
            tracing::error!(error, "the configured log filter cannot be set");
        }
    }

    /// Returns a filter without a logger, configured as `info`, and the directives that are set.
    #[cfg(test)]
    pub(crate) fn recorded() -> (Self, Arc<Mutex<Vec<String>>>) {
        let set = Arc::<Mutex<Vec<String>>>::default();
        let recorded = Arc::clone(&set);
        let replace = move |filter: EnvFilter| {
            let printed = filter.to_string();
            let configured = printed.split(',').filter(|directive| !FIXED.contains(directive));
            recorded.lock().push(configured.collect::<Vec<_>>().join(","));
            Ok(())
        };
        (Self::with_set(Box::new(replace), "info"), set)
    }
}

/// Logs a change of the filter before it or, if the present filter hides that line, after it.
fn around(announce: impl Fn(), change: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    let is_shown = tracing::enabled!(Level::WARN);
    if is_shown {
        announce();
    }
    change()?;
    if !is_shown {
        announce();
    }
    Ok(())
}

/// Returns the filter of these directives and of those that Weir adds to each.
pub(super) fn parse(directives: &str) -> Result<EnvFilter, ParseError> {
    let filter = EnvFilter::try_new(directives)?;
    FIXED.iter().try_fold(filter, |filter, fixed| Ok(filter.add_directive(fixed.parse()?)))
}

/// Long enough to look at something.
pub(crate) const DURATION_MAX: Duration = Duration::from_secs(15 * 60);

/// The span of a sampled request adds `trace_id` to the lines of any module; `off`, since it adds
/// no line. rustls warns of each client that connects to an IP address and sends it as a server
/// name; it ignores the name, as it should (RFC 6066 §3).
const FIXED: [&str; 2] =
    ["weir::server::router[request{trace_id}]=off", "rustls::msgs::handshake=error"];

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt;
    use tracing_subscriber::reload;

    use super::*;
    use crate::telemetry::logging::recording;
    use crate::telemetry::recent_lines::RecentLines;

    #[tokio::test(start_paused = true)]
    async fn a_replaced_filter_holds_for_a_while() {
        let (filter, set) = LogFilter::recorded();
        filter.replace("weir=debug", Some(Duration::from_secs(60))).unwrap();
        let state = filter.state();
        let until = Instant::now() + Duration::from_secs(60);
        assert_eq!(state.replaced, Some(Replaced { filter: "weir=debug".to_owned(), until }));
        tokio::time::sleep(Duration::from_secs(61)).await;
        assert_eq!(*set.lock(), ["weir=debug", "info"]);
        let configured = "info".to_owned();
        assert_eq!(filter.state(), FilterState { configured, replaced: None });
        // No longer than the longest time.
        filter.replace("debug", Some(Duration::from_secs(86_400))).unwrap();
        assert_eq!(filter.state().replaced.unwrap().until, Instant::now() + DURATION_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn a_later_filter_has_a_time_of_its_own() {
        let (filter, set) = LogFilter::recorded();
        filter.replace("debug", Some(Duration::from_secs(60))).unwrap();
        tokio::time::sleep(Duration::from_secs(30)).await;
        filter.replace("trace", Some(Duration::from_secs(60))).unwrap();
        tokio::time::sleep(Duration::from_secs(40)).await;
        assert_eq!(filter.state().replaced.unwrap().filter, "trace");
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(*set.lock(), ["debug", "trace", "info"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_newly_configured_filter_waits_for_the_end_of_a_replacement() {
        let (filter, set) = LogFilter::recorded();
        filter.configure("error").unwrap();
        filter.replace("debug", Some(Duration::from_secs(60))).unwrap();
        filter.configure("warn").unwrap();
        assert!(filter.configure("weir=loud").is_err());
        assert_eq!(*set.lock(), ["error", "debug"]);
        assert_eq!(filter.state().configured, "warn");
        tokio::time::sleep(Duration::from_secs(61)).await;
        assert_eq!(*set.lock(), ["error", "debug", "warn"]);
        filter.configure("info").unwrap();
        assert_eq!(*set.lock(), ["error", "debug", "warn", "info"]);
    }

    #[tokio::test]
    async fn a_wrong_filter_changes_nothing() {
        let (filter, set) = LogFilter::recorded();
        assert!(filter.replace("weir=loud", None).is_err());
        assert!(set.lock().is_empty());
        assert_eq!(filter.state().replaced, None);
    }

    #[test]
    fn clients_that_connect_to_an_ip_address_are_no_warning() {
        let lines = RecentLines::default();
        let subscriber = tracing_subscriber::registry()
            .with(parse("info").unwrap())
            .with(recording(lines.clone()));
        let _default = tracing::subscriber::set_default(subscriber);
        tracing::warn!(target: "rustls::msgs::handshake", "Illegal SNI extension");
        tracing::warn!(target: "rustls::conn", "another warning");
        assert_eq!(lines.text().lines().count(), 1, "{}", lines.text());
    }

    #[tokio::test]
    async fn a_filter_that_hides_warnings_is_announced() {
        let (layer, handle) = reload::Layer::new(parse("info").unwrap());
        let filter = LogFilter::new(handle, "info");
        let lines = RecentLines::default();
        let subscriber = tracing_subscriber::registry().with(layer).with(recording(lines.clone()));
        let _default = tracing::subscriber::set_default(subscriber);
        let count = || lines.text().lines().count();
        filter.replace("off", None).unwrap();
        assert_eq!(count(), 1, "{}", lines.text());
        filter.reset();
        assert_eq!(count(), 2, "{}", lines.text());
        filter.replace("debug", None).unwrap();
        assert_eq!(count(), 3, "{}", lines.text());
    }

    /// The span of a sampled request names it in the lines of any module.
    #[test]
    fn lines_of_any_module_have_the_trace_id_of_their_request() {
        let lines = RecentLines::default();
        let subscriber = tracing_subscriber::registry()
            .with(parse("weir::cache=debug").unwrap())
            .with(recording(lines.clone()));
        tracing::subscriber::with_default(subscriber, || {
            let span =
                tracing::error_span!(target: "weir::server::router", "request", trace_id = "4bf9");
            let _in = span.entered();
            tracing::debug!(target: "weir::cache::registry", "shown");
            tracing::error!(target: "weir::server", "hidden");
            let other = tracing::debug_span!(target: "weir::server::router", "request", path = "/");
            assert!(other.is_disabled());
        });
        let text = lines.text();
        assert_eq!(text.lines().count(), 1, "{text}");
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["span"]["trace_id"], "4bf9", "{line}");
    }
}

//! The filter of the process's log. A reload of the configuration replaces it.

use std::sync::Arc;

use parking_lot::Mutex;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::reload::Handle;

/// The filter of the process's log. Cheap to clone: all clones share it.
#[derive(Clone)]
pub struct LogFilter {
    set: Arc<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>,
    /// The directives in force. They change with the logger's filter, under this lock.
    directives: Arc<Mutex<String>>,
}

impl LogFilter {
    /// Returns what replaces the filter of a logger that has these directives now.
    pub(crate) fn new<S: 'static>(handle: Handle<EnvFilter, S>, directives: &str) -> Self {
        let set = move |filter| handle.reload(filter).map_err(|error| error.to_string());
        Self { set: Arc::new(set), directives: Arc::new(Mutex::new(directives.to_owned())) }
    }

    /// Returns the directives in force.
    pub(crate) fn directives(&self) -> String {
        self.directives.lock().clone()
    }

    /// Replaces the filter. Fails if it cannot be parsed, and then changes nothing.
    pub fn configure(&self, directives: &str) -> Result<(), String> {
        let filter = parse(directives).map_err(|error| error.to_string())?;
        let mut present = self.directives.lock();
        (self.set)(filter)?;
        directives.clone_into(&mut present);
        Ok(())
    }
}

/// Returns the filter of these directives and of those that Weir adds to each.
pub(super) fn parse(directives: &str) -> Result<EnvFilter, ParseError> {
    let filter = EnvFilter::try_new(directives)?;
    FIXED.iter().try_fold(filter, |filter, fixed| Ok(filter.add_directive(fixed.parse()?)))
}

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

    #[test]
    fn a_filter_is_replaced_unless_it_is_wrong() {
        let (layer, handle) = reload::Layer::new(parse("info").unwrap());
        let filter = LogFilter::new(handle, "info");
        let lines = RecentLines::default();
        let subscriber = tracing_subscriber::registry().with(layer).with(recording(lines.clone()));
        let _default = tracing::subscriber::set_default(subscriber);
        filter.configure("error").unwrap();
        tracing::warn!("hidden");
        assert!(filter.configure("weir=loud").is_err());
        tracing::warn!("hidden");
        assert_eq!((filter.directives().as_str(), lines.text().lines().count()), ("error", 0));
        filter.configure("warn").unwrap();
        tracing::warn!("shown");
        assert_eq!((filter.directives().as_str(), lines.text().lines().count()), ("warn", 1));
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

//! Logging: tracing events as text, or as JSON of Weir's own or of Kubernetes' kind, on standard
//! error. Request spans are at debug level.
//!
//! Standard output is reserved for results, so that the output of `weir check` can be piped. The
//! filter is a set of directives, parsed when it is set, so that a disabled event costs almost
//! nothing.

use std::io::{self, IsTerminal};

use tracing::Subscriber;
use tracing_subscriber::fmt::format::{DefaultFields, Format, Json, JsonFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

use crate::config::{LogFormat, LoggingConfig};
use crate::telemetry::kubernetes_format::KubernetesFormat;
use crate::telemetry::log_filter::{self, LogFilter};
use crate::telemetry::recent_lines::RecentLines;

/// The error of [`install`].
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    /// The filter cannot be parsed.
    #[error("the log filter {filter:?} is not valid: {cause}")]
    Filter {
        /// The configured filter.
        filter: String,
        /// The parser's message.
        cause: String,
    },
    /// The process already has a logger.
    #[error("a logger is already installed: {0}")]
    Installed(String),
}

/// The process's log. Cheap to clone.
#[derive(Clone)]
pub struct Log {
    /// Replaces its filter.
    pub filter: LogFilter,
    /// Its last lines.
    pub recent: RecentLines,
}

/// Installs the process's logger. Can be called once.
pub fn install(config: &LoggingConfig) -> Result<Log, LoggingError> {
    let filter = log_filter::parse(&config.filter).map_err(|error| LoggingError::Filter {
        filter: config.filter.clone(),
        cause: error.to_string(),
    })?;
    let (filter, handle) = reload::Layer::new(filter);
    let lines = fmt::layer().with_writer(io::stderr);
    let lines = match config.format {
        LogFormat::Text => lines.with_ansi(io::stderr().is_terminal()).boxed(),
        LogFormat::Json => as_json(lines).boxed(),
        LogFormat::Kubernetes => {
            let lines = lines.with_ansi(false).fmt_fields(JsonFields::new());
            lines.event_format(KubernetesFormat).boxed()
        }
    };
    let recent = RecentLines::default();
    let subscriber =
        tracing_subscriber::registry().with(filter).with(lines).with(recording(recent.clone()));
    subscriber.try_init().map_err(|error| LoggingError::Installed(error.to_string()))?;
    Ok(Log { filter: LogFilter::new(handle, &config.filter), recent })
}

/// Returns what keeps the last lines, each with its place in the sources: a support bundle has no
/// messages.
pub(crate) fn recording<S>(recent: RecentLines) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    as_json(fmt::layer().with_writer(recent)).with_file(true).with_line_number(true)
}

/// Makes a line a JSON object.
fn as_json<S, W>(
    layer: fmt::Layer<S, DefaultFields, Format, W>,
) -> fmt::Layer<S, JsonFields, Format<Json>, W> {
    layer.json().flatten_event(true).with_span_list(false).with_ansi(false)
}

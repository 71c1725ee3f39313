//! Logging: tracing events as text or JSON, on standard error. Request spans are at debug level.
//!
//! Standard output is reserved for results, so that the output of `weir check` can be piped. The
//! filter is a set of directives, parsed when it is set, so that a disabled event costs almost
//! nothing.

use std::io::{self, IsTerminal};
use std::sync::Arc;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::SubscriberBuilder;
use tracing_subscriber::reload::Handle;

use crate::config::{LogFormat, LoggingConfig};

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

/// Replaces the filter of the process's logger. Cheap to clone.
#[derive(Clone)]
pub struct LogFilter {
    replace: Arc<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>,
}

impl LogFilter {
    fn new<S: 'static>(handle: Handle<EnvFilter, S>) -> Self {
        let replace = move |filter| handle.reload(filter).map_err(|error| error.to_string());
        Self { replace: Arc::new(replace) }
    }

    /// Returns a filter without a logger, and the directives that are set.
    #[cfg(test)]
    pub(crate) fn recorded() -> (Self, Arc<parking_lot::Mutex<Vec<String>>>) {
        let set = Arc::<parking_lot::Mutex<Vec<String>>>::default();
        let recorded = Arc::clone(&set);
        let replace = move |filter: EnvFilter| {
            // The directive for tungstenite is Weir's own.
            let shown = filter.to_string();
            let own = shown.split(',').filter(|directive| *directive != TUNGSTENITE_DIRECTIVE);
            recorded.lock().push(own.collect::<Vec<_>>().join(","));
            Ok(())
        };
        (Self { replace: Arc::new(replace) }, set)
    }

    /// Replaces the filter. Fails if it cannot be parsed.
    pub fn set(&self, directives: &str) -> Result<(), String> {
        (self.replace)(filter(directives).map_err(|error| error.to_string())?)
    }
}

/// Installs the process's logger. Can be called once.
pub fn install(config: &LoggingConfig) -> Result<LogFilter, LoggingError> {
    let filter = filter(&config.filter).map_err(|error| LoggingError::Filter {
        filter: config.filter.clone(),
        cause: error.to_string(),
    })?;
    let builder = SubscriberBuilder::default().with_env_filter(filter).with_writer(io::stderr);
    let (installed, log_filter) = match config.format {
        LogFormat::Text => {
            let ansi = io::stderr().is_terminal();
            let builder = builder.with_ansi(ansi).with_filter_reloading();
            let log_filter = LogFilter::new(builder.reload_handle());
            (builder.try_init(), log_filter)
        }
        LogFormat::Json => {
            let builder = builder.json().flatten_event(true).with_span_list(false);
            let builder = builder.with_ansi(false).with_filter_reloading();
            let log_filter = LogFilter::new(builder.reload_handle());
            (builder.try_init(), log_filter)
        }
    };
    installed.map_err(|error| LoggingError::Installed(error.to_string()))?;
    Ok(log_filter)
}

fn filter(directives: &str) -> Result<EnvFilter, ParseError> {
    Ok(EnvFilter::try_new(directives)?.add_directive(TUNGSTENITE_DIRECTIVE.parse()?))
}

/// tungstenite traces whole frames, which contain the bodies of objects.
const TUNGSTENITE_DIRECTIVE: &str = "tungstenite=info";

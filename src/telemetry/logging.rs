//! Logging: tracing events as text or JSON, on standard error. Request spans are at debug level.
//!
//! Standard output is reserved for results, so that the output of `weir check` can be piped. The
//! filter is a static set of directives, parsed once, so that a disabled event costs almost
//! nothing.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::SubscriberBuilder;

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

/// Installs the process's logger. Can be called once.
pub fn install(config: &LoggingConfig) -> Result<(), LoggingError> {
    let filter = filter(&config.filter).map_err(|error| LoggingError::Filter {
        filter: config.filter.clone(),
        cause: error.to_string(),
    })?;
    let builder = SubscriberBuilder::default().with_env_filter(filter).with_writer(io::stderr);
    let installed = match config.format {
        LogFormat::Text => builder.with_ansi(io::stderr().is_terminal()).try_init(),
        LogFormat::Json => {
            builder.json().flatten_event(true).with_span_list(false).with_ansi(false).try_init()
        }
    };
    installed.map_err(|error| LoggingError::Installed(error.to_string()))
}

fn filter(directives: &str) -> Result<EnvFilter, ParseError> {
    Ok(EnvFilter::try_new(directives)?.add_directive(TUNGSTENITE_DIRECTIVE.parse()?))
}

/// tungstenite traces whole frames, which contain the bodies of objects.
const TUNGSTENITE_DIRECTIVE: &str = "tungstenite=info";

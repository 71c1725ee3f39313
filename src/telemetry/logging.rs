//! Logs: tracing, as text or JSON, to standard error; request spans at debug.
//!
//! Standard output is for results, so that `weir check` can be piped. The filter is one static set of directives, read once:
//! what the filter shuts out at start costs next to nothing later.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::SubscriberBuilder;

use crate::config::{LogFormat, LoggingConfig};

/// Why there are no logs.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    /// The filter can't be read.
    #[error("the log filter {filter:?} cannot be read: {cause}")]
    Filter {
        /// As given.
        filter: String,
        /// What is wrong with it.
        cause: String,
    },
    /// Another part of the process collects them already.
    #[error("logs are collected already: {0}")]
    Installed(String),
}

/// Begins to log. Once for a process.
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
    Ok(EnvFilter::try_new(directives)?.add_directive(QUIET.parse()?))
}

/// It traces whole frames, and with them the bodies of objects.
const QUIET: &str = "tungstenite=info";

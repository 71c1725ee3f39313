//! Logging, the last lines of the log, notable events, and the helpers with which components register metrics.

pub mod events;
pub(crate) mod log_throttle;
pub mod logging;
pub mod metrics;
pub mod recent_lines;

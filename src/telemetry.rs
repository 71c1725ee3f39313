//! Logging with its last lines, notable events, spans and their export, and the
//! helpers with which components register metrics.

pub mod events;
pub(crate) mod kubernetes_format;
pub mod log_filter;
pub(crate) mod log_throttle;
pub mod logging;
pub mod metrics;
pub(crate) mod process;
pub mod recent_lines;
pub mod trace;

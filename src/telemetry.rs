//! Logging, and the helpers with which components register metrics.

pub(crate) mod log_throttle;
pub mod logging;
pub mod metrics;

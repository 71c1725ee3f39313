//! What Weir tells of itself: metrics in Prometheus' conventions, and logs.

pub mod auth_metrics;
pub mod cache_metrics;
pub mod gzip_metrics;
pub mod logging;
pub mod metrics;
pub mod server_metrics;
pub mod upstream_metrics;

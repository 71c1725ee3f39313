//! The metrics of the bytes that responses hold.

use std::sync::{Arc, OnceLock};

use prometheus::{PullingGauge, Registry};

use crate::codec::held_bytes::HeldBytes;
use crate::telemetry::metrics::register;

/// Registers the gauges of the bytes that responses hold, which are read at each scrape.
pub(super) fn held_gauges(
    registry: &Registry,
) -> Result<Arc<OnceLock<HeldBytes>>, prometheus::Error> {
    let held = Arc::<OnceLock<HeldBytes>>::default();
    let gauge = |name: &str, help: &str, value: fn(&HeldBytes) -> usize| {
        let held = Arc::clone(&held);
        // Exact up to nine petabytes.
        let read = move || held.get().map_or(0.0, |held| value(held) as f64);
        register(registry, PullingGauge::new(name, help, Box::new(read))?)
    };
    gauge(
        "weir_response_memory_bytes",
        "Bytes in memory that were copied or rendered for clients, which have not read them yet.",
        HeldBytes::bytes,
    )?;
    gauge(
        "weir_response_memory_bytes_limit",
        "Limit of the bytes in memory that wait for clients.",
        HeldBytes::bytes_max,
    )?;
    Ok(held)
}

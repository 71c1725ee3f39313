//! Spans, and their export to a collector by OTLP over HTTP (`docs/decisions/tracing.md`).
//!
//! [`Tracer`] samples, and takes finished spans. They wait in a bounded queue for one task, which
//! sends them in batches (`exporter`, `collector`). So no request waits for a collector, whatever
//! that does: spans that find the queue full are dropped and counted.
//!
//! The code that makes a span chooses its attributes. Spans never name users, objects, namespaces
//! or selectors.
//!
//! Invariant: each span that is recorded counts once, as exported, dropped or failed.
//!
//! Lock order: the queue's, with no other lock.

mod collector;
mod exporter;
pub mod metrics;
pub mod otlp;
mod queue;
mod tracer;

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::config::tracing::TracingConfig;
use crate::telemetry::trace::collector::CollectorClient;
pub use crate::telemetry::trace::collector::CollectorError;
use crate::telemetry::trace::exporter::Exporter;
use crate::telemetry::trace::metrics::{FailureCause, TracingMetrics};
use crate::telemetry::trace::tracer::Shared;
pub use crate::telemetry::trace::tracer::Tracer;
pub(crate) use crate::telemetry::trace::tracer::{SpanClock, new_span_id, new_trace_id};

/// The export of spans. It ends when this is dropped.
#[derive(Debug)]
pub struct SpanExport {
    shared: Arc<Shared>,
    task: JoinSet<()>,
    /// Cancelled to have the rest exported.
    stop: CancellationToken,
}

/// Starts the export, if the configuration names a collector. Must be called within a tokio
/// runtime. Fails if its CA cannot be read.
pub fn start(
    config: &TracingConfig,
    metrics: TracingMetrics,
) -> Result<(Tracer, Option<SpanExport>), CollectorError> {
    let Some(endpoint) = &config.endpoint else { return Ok((Tracer::default(), None)) };
    let collector = CollectorClient::new(endpoint.clone(), config.ca_file.clone())?;
    let (tracer, shared) = Tracer::new(config.sampling_rate_per_million, metrics);
    let stop = CancellationToken::new();
    let mut task = JoinSet::new();
    task.spawn(Exporter::new(collector, Arc::clone(&shared)).run(stop.clone()));
    tracing::info!(collector = endpoint.authority, "spans are exported");
    Ok((tracer, Some(SpanExport { shared, task, stop })))
}

impl SpanExport {
    /// Exports the rest, for at most [`FLUSH_TIMEOUT`]. Must be called when no more spans come.
    pub async fn close(mut self) {
        self.stop.cancel();
        match tokio::time::timeout(FLUSH_TIMEOUT, self.task.join_next()).await {
            Ok(Some(Err(error))) => tracing::error!(%error, "the export of spans failed"),
            Ok(_) => {}
            Err(_) => self.task.shutdown().await,
        }
        let lost = self.shared.queue.clear();
        if lost > 0 {
            self.shared.metrics.failed(FailureCause::Stopped, lost);
            tracing::warn!(spans = lost, "the collector did not take the last spans in time");
        }
    }
}

/// How long the end of Weir waits for the collector. As long as for the audit log, with which it
/// runs at the same time.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

//! The task that exports spans in batches.
//!
//! A batch is sent again as OTLP asks: after 429, 502, 503, 504 or a lost connection, with growing
//! pauses, or the one that the collector asks for. After [`ATTEMPTS_MAX`] it is given up, so that
//! newer spans, which an operator looks for, get their turn. Meanwhile the queue fills and drops.
//!
//! Once Weir stops, no pause is waited for, and each batch has one attempt.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use tokio_util::sync::CancellationToken;

use crate::telemetry::log_throttle::LogThrottle;
use crate::telemetry::trace::collector::{Attempt, Collect};
use crate::telemetry::trace::metrics::FailureCause;
use crate::telemetry::trace::otlp::{
    ExportTraceServiceRequest, InstrumentationScope, KeyValue, Resource, ResourceSpans, ScopeSpans,
    Span,
};
use crate::telemetry::trace::tracer::Shared;

/// Exports the spans of a queue.
pub(super) struct Exporter<C> {
    collector: C,
    shared: Arc<Shared>,
    /// This process.
    resource: Resource,
    failures: LogThrottle,
}

impl<C: Collect> Exporter<C> {
    pub(super) fn new(collector: C, shared: Arc<Shared>) -> Self {
        let failures = LogThrottle::new(FAILURE_LOG_INTERVAL);
        Self { collector, shared, resource: this_process(), failures }
    }

    /// Exports until `stop` is cancelled, and then the rest.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        let gather = async |queue: &Shared| {
            queue.queue.wait_for(1).await;
            // A batch waits a moment for others, unless it is whole.
            drop(tokio::time::timeout(GATHER_DURATION, queue.queue.wait_for(BATCH_SPANS)).await);
        };
        while stop.run_until_cancelled(gather(&self.shared)).await.is_some() {
            self.export_batch(&stop).await;
        }
        while self.export_batch(&stop).await {}
    }

    /// Exports the oldest spans. Returns false if there are none.
    async fn export_batch(&mut self, stop: &CancellationToken) -> bool {
        let spans = self.shared.queue.take(BATCH_SPANS);
        if spans.is_empty() {
            return false;
        }
        let count = spans.len();
        let batch = Bytes::from(self.request(spans).encode_to_vec());
        self.send(batch, count, stop).await;
        self.shared.queue.settle();
        true
    }

    async fn send(&mut self, batch: Bytes, count: usize, stop: &CancellationToken) {
        let mut pause = FIRST_PAUSE;
        let mut attempts = 1;
        loop {
            let sent = self.collector.post(batch.clone());
            let sent = tokio::time::timeout(ATTEMPT_TIMEOUT, sent).await;
            let (cause, after) = match sent {
                Ok(Attempt::Accepted { rejected, message }) => {
                    return self.accepted(count, rejected.min(count), &message);
                }
                Ok(Attempt::Refused(cause)) => {
                    return self.failed(FailureCause::Refused, count, &cause);
                }
                Ok(Attempt::Retry { cause, after }) => (cause, after),
                Err(_) => (format!("no response within {ATTEMPT_TIMEOUT:?}"), None),
            };
            if attempts >= ATTEMPTS_MAX || stop.is_cancelled() {
                return self.failed(FailureCause::Unavailable, count, &cause);
            }
            tracing::debug!(
                cause,
                attempts,
                "the collector did not take spans; sending them again"
            );
            // Collectors that come back are not met by all Weirs at the same moment.
            let jittered = pause.mul_f64(0.5 + fastrand::f64());
            let wait = after.map_or(jittered, |after| after.max(jittered)).min(PAUSE_MAX);
            let _stopped = stop.run_until_cancelled(tokio::time::sleep(wait)).await;
            pause = (2 * pause).min(PAUSE_MAX);
            attempts += 1;
        }
    }

    fn accepted(&self, count: usize, rejected: usize, message: &str) {
        self.shared.metrics.exported(count - rejected);
        self.shared.metrics.failed(FailureCause::Rejected, rejected);
        if (rejected > 0 || !message.is_empty())
            && let Some(suppressed) = self.failures.try_acquire()
        {
            let answer = message;
            tracing::warn!(rejected, ?answer, suppressed, "the collector rejects spans, or warns");
        }
    }

    fn failed(&self, why: FailureCause, count: usize, cause: &str) {
        self.shared.metrics.failed(why, count);
        if let Some(suppressed) = self.failures.try_acquire() {
            tracing::warn!(spans = count, cause, suppressed, "the collector did not take spans");
        }
    }

    fn request(&self, spans: Vec<Span>) -> ExportTraceServiceRequest {
        let scope = InstrumentationScope { name: NAME.to_owned(), version: VERSION.to_owned() };
        let scope_spans = vec![ScopeSpans { scope: Some(scope), spans }];
        let resource = Some(self.resource.clone());
        ExportTraceServiceRequest { resource_spans: vec![ResourceSpans { resource, scope_spans }] }
    }
}

/// Describes this process. A container's `HOSTNAME` is the name of its pod.
fn this_process() -> Resource {
    let instance = uuid::Uuid::new_v4().to_string();
    let mut attributes = vec![
        KeyValue::new("service.name", NAME),
        KeyValue::new("service.version", VERSION),
        KeyValue::new("service.instance.id", instance),
    ];
    if let Ok(host) = std::env::var("HOSTNAME") {
        attributes.push(KeyValue::new("host.name", host));
    }
    Resource { attributes }
}

const NAME: &str = "weir";
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The most spans of a batch: as in OpenTelemetry's batch processors.
const BATCH_SPANS: usize = 512;
/// How long a batch waits for more spans. A trace is found a second later.
const GATHER_DURATION: Duration = Duration::from_secs(1);
/// The time-out of an attempt: the default of OpenTelemetry's exporters.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
/// The most attempts for a batch. The pauses between five take 8 to 22 s, or the
/// collector's `Retry-After`.
const ATTEMPTS_MAX: u32 = 5;
/// The pause after the first attempt, but for the jitter. It doubles.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause, whatever the collector asks for.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// A collector that is away is logged once in this interval.
const FAILURE_LOG_INTERVAL: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests;

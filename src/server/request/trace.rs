//! The trace of a request: whether it is sampled, its span with those of its stages, and the
//! context that goes upstream with it (`docs/decisions/tracing.md`).
//!
//! A request that is not sampled has none: only its `traceparent` is parsed, and without a
//! collector not even that.
//!
//! Whether the client's context counts as the parent is known once the client is. Until then the
//! stages are recorded, and forgotten if the request turns out not to be sampled.
//!
//! Invariants: spans name no user, object, namespace or selector. A stranger's `sampled` flag
//! exports nothing. Where the parent counts, its trace and flags go upstream with Weir's span;
//! otherwise the headers of the client are not touched.
//!
//! Lock order: the steps of one trace, and no other lock with them.

mod spans;

use http::header::HeaderName;
use http::request::Parts;
use http::{HeaderMap, HeaderValue};
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::Span as LogSpan;

use crate::api::request_info::RequestInfo;
use crate::api::trace_context::{SAMPLED, SpanId, TraceContext, TraceId};
use crate::server::metrics::CacheStatus;
use crate::telemetry::trace::otlp::KeyValue;
use crate::telemetry::trace::{SpanClock, Tracer, new_span_id, new_trace_id};

#[derive(Clone, Debug)]
pub(crate) struct RequestTracer {
    pub(crate) tracer: Tracer,
    /// Whether each client's context counts: in a sidecar.
    pub(crate) trusts_all: bool,
}

#[derive(Debug)]
pub(crate) struct RequestTrace {
    tracer: Tracer,
    clock: SpanClock,
    started: Instant,
    span_id: SpanId,
    method: &'static str,
    name: String,
    /// The attributes that follow from the head of the request.
    attributes: Vec<KeyValue>,
    /// Whether discovery knew the resource at the start.
    is_known: bool,
    client: Option<TraceContext>,
    trace_state: String,
    /// Whether the sampling rate chose it.
    is_chosen: bool,
    /// The client's id in the audit log, if it chose one.
    audit_id: Option<String>,
    /// The span of the log, which gets the id of the trace.
    log: LogSpan,
    steps: Mutex<Steps>,
}

#[derive(Debug)]
struct Steps {
    sampling: Sampling,
    last: Instant,
    stages: Vec<Stage>,
    /// The span of the reflector's list for which it waited.
    list: Option<(TraceId, SpanId)>,
    is_finished: bool,
}

#[derive(Clone, Copy, Debug)]
enum Sampling {
    /// It depends on the client, who is not known yet.
    Undecided,
    No,
    Yes(TracePosition),
}

#[derive(Clone, Copy, Debug)]
struct TracePosition {
    trace_id: TraceId,
    parent: Option<SpanId>,
    flags: u8,
    /// The context of a client that does not count as the parent.
    link: Option<TraceContext>,
}

#[derive(Debug)]
struct Stage {
    name: &'static str,
    span_id: SpanId,
    started: Instant,
    ended: Option<Instant>,
    kind: StageKind,
}

#[derive(Debug)]
enum StageKind {
    Own,
    /// A wait, with its cause.
    Wait(&'static str),
    /// A call of the API server, with the status of the response if there was one.
    Upstream(Option<u16>),
}

/// A call of the API server that lasts.
#[derive(Debug)]
#[must_use]
pub(crate) struct UpstreamCall(SpanId);

pub(crate) struct AnswerSummary<'a> {
    pub(crate) code: u16,
    pub(crate) status: CacheStatus,
    pub(crate) reason: &'static str,
    pub(crate) headers: &'a HeaderMap,
}

impl RequestTracer {
    /// Begins the trace of a request that is sampled, or will be if its client's parent counts.
    #[inline]
    pub(crate) fn begin(
        &self,
        parts: &Parts,
        info: &RequestInfo,
        is_known: bool,
        started: Instant,
    ) -> Option<Box<RequestTrace>> {
        if !self.tracer.is_on() {
            return None;
        }
        let client = context_of(&parts.headers);
        let is_asked = client.is_some_and(|client| client.is_sampled());
        // A parent that counts decides alone, as in kube-apiserver.
        let is_settled = self.trusts_all || client.is_none();
        let is_chosen = (!self.trusts_all || client.is_none()) && self.tracer.samples();
        if !is_asked && !is_chosen {
            return None;
        }
        let mut trace = RequestTrace::new(self.tracer.clone(), parts, info, is_known, started);
        (trace.client, trace.is_chosen) = (client, is_chosen);
        if is_settled {
            trace.settle(&mut trace.steps.lock(), true);
        }
        Some(Box::new(trace))
    }
}

impl RequestTrace {
    /// Returns the span of the log in which a request is handled: with the trace's id, whatever
    /// the log's filter is.
    pub(crate) fn log_span(trace: Option<&Self>, parts: &Parts) -> LogSpan {
        match trace {
            None => {
                tracing::debug_span!(target: LOG_TARGET, "request", method = %parts.method, path = parts.uri.path())
            }
            Some(trace) => trace.log.clone(),
        }
    }

    /// Notes that a stage has ended which began with the end of the last one.
    pub(crate) fn ended(&self, name: &'static str) {
        self.add(name, StageKind::Own);
    }

    pub(crate) fn waited(&self, cause: &'static str) {
        self.add("wait", StageKind::Wait(cause));
    }

    /// Notes that a stage has ended which is not worth a span.
    pub(crate) fn skip(&self) {
        self.steps.lock().last = Instant::now();
    }

    fn add(&self, name: &'static str, kind: StageKind) {
        let mut steps = self.steps.lock();
        let now = Instant::now();
        let started = std::mem::replace(&mut steps.last, now);
        steps.add(Stage { name, span_id: new_span_id(), started, ended: Some(now), kind });
    }

    /// Links the list of the reflector for which the request waited, if it did. `list` returns the
    /// reflector's list of a given moment.
    pub(crate) fn link_list(&self, list: impl FnOnce(Instant) -> Option<(TraceId, SpanId)>) {
        let since = {
            let steps = self.steps.lock();
            let waits = steps.stages.iter().filter(|stage| stage.is_wait_for_cache());
            waits.map(|stage| stage.started).min()
        };
        if let Some(list) = since.and_then(list) {
            self.steps.lock().list = Some(list);
        }
    }

    /// Decides whether the request is sampled, now that its client is known. `is_trusted` is
    /// whether the client's context counts.
    pub(crate) fn settle_for(&self, is_trusted: bool) {
        self.settle(&mut self.steps.lock(), is_trusted);
    }

    /// Begins a call of the API server, and has its headers carry the trace, if the request is
    /// sampled. `is_trusted` is whether the client's context counts.
    pub(crate) fn call(&self, is_trusted: bool, headers: &mut HeaderMap) -> Option<UpstreamCall> {
        let mut steps = self.steps.lock();
        self.settle(&mut steps, is_trusted);
        let Sampling::Yes(TracePosition { trace_id, flags, link, .. }) = steps.sampling else {
            return None;
        };
        let (span_id, started) = (new_span_id(), Instant::now());
        if link.is_none() && (is_trusted || !headers.contains_key(&TRACEPARENT)) {
            let context = TraceContext { trace_id, span_id, flags };
            if self.client.is_none() {
                // It belongs to the header that was not valid, or is without one.
                headers.remove(&TRACESTATE);
            }
            if let Ok(context) = HeaderValue::from_str(&context.to_string()) {
                headers.insert(TRACEPARENT, context);
            }
        }
        let kind = StageKind::Upstream(None);
        steps.add(Stage { name: "upstream", span_id, started, ended: None, kind });
        Some(UpstreamCall(span_id))
    }

    pub(crate) fn called(&self, UpstreamCall(span_id): UpstreamCall, status: Option<u16>) {
        let mut steps = self.steps.lock();
        let now = Instant::now();
        steps.last = now;
        if let Some(stage) = steps.stages.iter_mut().find(|stage| stage.span_id == span_id) {
            stage.ended = Some(now);
            stage.kind = StageKind::Upstream(status);
        }
    }

    /// Decides whether the request is sampled, once.
    fn settle(&self, steps: &mut Steps, is_trusted: bool) {
        if !matches!(steps.sampling, Sampling::Undecided) {
            return;
        }
        let client = self.client.filter(|_| is_trusted);
        steps.sampling = match client {
            Some(client) if client.is_sampled() => {
                let parent = Some(client.span_id);
                let TraceContext { trace_id, flags, .. } = client;
                Sampling::Yes(TracePosition { trace_id, parent, flags, link: None })
            }
            None if self.is_chosen => {
                let (trace_id, link) = (new_trace_id(), self.client);
                Sampling::Yes(TracePosition { trace_id, parent: None, flags: SAMPLED, link })
            }
            _ => {
                steps.stages = Vec::new();
                Sampling::No
            }
        };
        if let Sampling::Yes(TracePosition { trace_id, .. }) = steps.sampling {
            self.log.record("trace_id", tracing::field::display(trace_id));
        }
    }
}

/// A request that its client gave up has a span, too: an operator may look for it.
impl Drop for RequestTrace {
    fn drop(&mut self) {
        self.export(false, None, None);
    }
}

impl Steps {
    fn add(&mut self, stage: Stage) {
        if matches!(self.sampling, Sampling::No) {
            return;
        }
        // The id of a call goes upstream, where a missing span would leave a gap.
        let is_call = matches!(stage.kind, StageKind::Upstream(_));
        if self.stages.len() < if is_call { STAGES_MAX + CALLS_MAX } else { STAGES_MAX } {
            self.stages.push(stage);
        }
    }
}

impl Stage {
    fn is_wait_for_cache(&self) -> bool {
        matches!(self.kind, StageKind::Wait("warmup" | "freshness"))
    }
}

/// Returns the client's context. One that is given twice is none.
fn context_of(headers: &HeaderMap) -> Option<TraceContext> {
    let mut values = headers.get_all(&TRACEPARENT).iter();
    let value = values.next()?;
    if values.next().is_some() { None } else { TraceContext::parse(value.as_bytes()) }
}

/// Filters of the log name the place where requests are handled.
const LOG_TARGET: &str = "weir::server::router";
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
/// A request goes through no more.
const STAGES_MAX: usize = 16;
/// A request is sent upstream no more often.
const CALLS_MAX: usize = 8;

#[cfg(test)]
mod tests;

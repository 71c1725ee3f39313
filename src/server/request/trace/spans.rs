//! The spans of a finished trace, as they are exported.

use http::HeaderMap;
use http::header::HeaderName;
use http::request::Parts;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    AnswerSummary, LOG_TARGET, RequestTrace, Sampling, Stage, StageKind, Steps, TRACESTATE,
    TracePosition,
};
use crate::api::request_info::RequestInfo;
use crate::api::trace_context::{SpanId, TraceId};
use crate::server::http::audit_id::AUDIT_ID;
use crate::server::http::headers::SHED_HEADER;
use crate::server::request::route::route;
use crate::telemetry::trace::otlp::{KeyValue, Link, Span, SpanKind, Status, StatusCode};
use crate::telemetry::trace::{SpanClock, Tracer, new_span_id};

impl RequestTrace {
    /// Returns the trace of a request of which the rest is to be filled in.
    pub(super) fn new(
        tracer: Tracer,
        parts: &Parts,
        info: &RequestInfo,
        is_known: bool,
        started: Instant,
    ) -> Self {
        let method = method(parts.method.as_str());
        let (name, attributes) = name_and_attributes(method, info, is_known);
        // The level debug shows the path of requests without a trace, too.
        let log = match tracing::enabled!(target: LOG_TARGET, tracing::Level::DEBUG) {
            true => tracing::error_span!(
                target: LOG_TARGET,
                "request",
                method = %parts.method,
                path = parts.uri.path(),
                trace_id = tracing::field::Empty
            ),
            false => tracing::error_span!(
                target: LOG_TARGET,
                "request",
                trace_id = tracing::field::Empty
            ),
        };
        let stages = Vec::with_capacity(4);
        let steps = Steps {
            sampling: Sampling::Undecided,
            last: started,
            stages,
            list: None,
            is_finished: false,
        };
        Self {
            tracer,
            clock: SpanClock::new(started),
            started,
            span_id: new_span_id(),
            method,
            name,
            attributes,
            is_known,
            client: None,
            trace_state: trace_state(&parts.headers),
            is_chosen: false,
            audit_id: text(&parts.headers, &AUDIT_ID).filter(|id| !id.is_empty()),
            log,
            steps: Mutex::new(steps),
        }
    }

    /// Exports the spans, once, if the request is sampled. `info` is that of a request whose
    /// resource discovery knows by now. Without an answer its client gave it up.
    pub(crate) fn export(
        &self,
        is_trusted: bool,
        info: Option<&RequestInfo>,
        answer: Option<&AnswerSummary<'_>>,
    ) {
        let mut steps = self.steps.lock();
        if std::mem::replace(&mut steps.is_finished, true) {
            return;
        }
        self.settle(&mut steps, is_trusted);
        let Sampling::Yes(position) = steps.sampling else { return };
        let mut spans = Vec::with_capacity(steps.stages.len() + 1);
        spans.push(self.server_span(&position, steps.list, info, answer));
        spans.extend(steps.stages.iter().map(|stage| self.stage_span(&position, stage)));
        drop(steps);
        self.tracer.record(spans);
    }

    fn server_span(
        &self,
        position: &TracePosition,
        list: Option<(TraceId, SpanId)>,
        info: Option<&RequestInfo>,
        answer: Option<&AnswerSummary<'_>>,
    ) -> Span {
        // The requests of a cold Weir wait for discovery.
        let (name, mut attributes) = match info.filter(|_| !self.is_known) {
            Some(info) => name_and_attributes(self.method, info, true),
            None => (self.name.clone(), self.attributes.clone()),
        };
        match answer {
            Some(answer) => describe(answer, &mut attributes),
            None => {
                attributes.push(KeyValue::new("weir.cancelled", true));
                attributes.extend(self.audit_id.clone().map(|id| KeyValue::new("audit-id", id)));
            }
        }
        let client = position.link.map(|link| (link.trace_id, link.span_id));
        let links =
            client.into_iter().chain(list).map(|(trace_id, span_id)| link(trace_id, span_id));
        let has_failed = answer.is_some_and(|answer| answer.code >= 500);
        let parent = position.parent.map(SpanId::to_bytes).unwrap_or_default();
        Span {
            parent_span_id: parent,
            name,
            attributes,
            links: links.collect(),
            status: failed(has_failed),
            // It belongs to the client's trace.
            trace_state: position.parent.map(|_| self.trace_state.clone()).unwrap_or_default(),
            ..self.span(position, self.span_id, SpanKind::Server, (self.started, Instant::now()))
        }
    }

    fn stage_span(&self, position: &TracePosition, stage: &Stage) -> Span {
        let (kind, attribute, has_failed) = match stage.kind {
            StageKind::Own => (SpanKind::Internal, None, false),
            StageKind::Wait(cause) => {
                (SpanKind::Internal, Some(KeyValue::new("weir.wait.cause", cause)), false)
            }
            StageKind::Upstream(status) => {
                let attribute =
                    status.map(|status| KeyValue::new("http.response.status_code", status));
                (SpanKind::Client, attribute, status.is_none_or(|status| status >= 400))
            }
        };
        let ended = stage.ended.unwrap_or_else(Instant::now);
        Span {
            parent_span_id: self.span_id.to_bytes(),
            name: stage.name.to_owned(),
            attributes: attribute.into_iter().collect(),
            status: failed(has_failed),
            ..self.span(position, stage.span_id, kind, (stage.started, ended))
        }
    }

    fn span(
        &self,
        position: &TracePosition,
        span_id: SpanId,
        kind: SpanKind,
        (started, ended): (Instant, Instant),
    ) -> Span {
        Span {
            trace_id: position.trace_id.to_bytes(),
            span_id: span_id.to_bytes(),
            kind: kind.into(),
            start_time_unix_nano: self.clock.unix_nanos(started),
            end_time_unix_nano: self.clock.unix_nanos(ended),
            ..Span::default()
        }
    }
}

/// Returns the name of a request's span, and the attributes that follow from the request.
fn name_and_attributes(
    method: &str,
    info: &RequestInfo,
    is_known: bool,
) -> (String, Vec<KeyValue>) {
    let route = route(info, is_known);
    let name = format!("{method} {route}");
    let mut attributes = vec![
        KeyValue::new("http.request.method", method),
        KeyValue::new("http.route", route),
        KeyValue::new("weir.verb", info.verb_label()),
    ];
    if let Some(resource) = info.resource.as_ref().filter(|_| is_known) {
        let gvr = &resource.gvr;
        let named = gvr.to_string();
        attributes.push(KeyValue::new("weir.resource", named));
    }
    (name, attributes)
}

fn describe(answer: &AnswerSummary<'_>, attributes: &mut Vec<KeyValue>) {
    attributes.push(KeyValue::new("http.response.status_code", answer.code));
    attributes.push(KeyValue::new("weir.cache", answer.status.as_str()));
    if !answer.reason.is_empty() {
        attributes.push(KeyValue::new("weir.reason", answer.reason));
    }
    for (name, header) in [("weir.shed", &SHED_HEADER), ("audit-id", &AUDIT_ID)] {
        attributes.extend(text(answer.headers, header).map(|text| KeyValue::new(name, text)));
    }
}

/// Returns the beginning of a header, if that is ASCII.
fn text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let text = headers.get(name)?.to_str().ok()?;
    Some(text.get(..VALUE_BYTES_MAX).unwrap_or(text).to_owned())
}

/// Returns a method that every client may use; others are the client's own words.
fn method(method: &str) -> &'static str {
    METHODS.into_iter().find(|standard| *standard == method).unwrap_or("_OTHER")
}

/// Returns the `tracestate`, if it is text and not too long. Several headers are one list.
fn trace_state(headers: &HeaderMap) -> String {
    let mut list = String::new();
    for value in headers.get_all(&TRACESTATE) {
        let Ok(text) = value.to_str() else { return String::new() };
        if !list.is_empty() {
            list.push(',');
        }
        if list.len() + text.len() > TRACESTATE_BYTES_MAX {
            return String::new();
        }
        list.push_str(text);
    }
    list
}

fn link(trace_id: TraceId, span_id: SpanId) -> Link {
    Link { trace_id: trace_id.to_bytes(), span_id: span_id.to_bytes() }
}

fn failed(has_failed: bool) -> Option<Status> {
    has_failed.then(|| Status { code: StatusCode::Error.into() })
}

/// The methods of HTTP that OpenTelemetry's conventions know.
const METHODS: [&str; 9] =
    ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"];
/// A client may choose its audit id.
const VALUE_BYTES_MAX: usize = 256;
/// The length that the Recommendation asks everyone to pass on.
const TRACESTATE_BYTES_MAX: usize = 512;

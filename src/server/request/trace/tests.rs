//! Sampling, the parents of spans, and the headers that go upstream.

use std::time::Duration;

use http::Request;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;

use super::*;
use crate::telemetry::logging::recording;
use crate::telemetry::recent_lines::RecentLines;
use crate::telemetry::trace::otlp::{Span, SpanKind, StatusCode, Value};

const CLIENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const UNSAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
const POD: &str = "/api/v1/namespaces/shop/pods/web";

fn tracer(per_million: u32, trusts_all: bool) -> RequestTracer {
    RequestTracer { tracer: Tracer::unexported(per_million), trusts_all }
}

fn parts(path: &str, traceparent: &[&str]) -> Parts {
    let mut request = Request::get(path).header("tracestate", "a=1");
    for value in traceparent {
        request = request.header("traceparent", *value);
    }
    request.body(()).unwrap().into_parts().0
}

fn begin(tracer: &RequestTracer, parts: &Parts) -> Option<Box<RequestTrace>> {
    let path = parts.uri.path();
    let info = RequestInfo::parse(&parts.method, path, parts.uri.query().unwrap_or_default());
    tracer.begin(parts, &info, true, Instant::now())
}

fn finish(trace: &RequestTrace, is_trusted: bool) {
    let headers = HeaderMap::from_iter([(
        HeaderName::from_static("audit-id"),
        HeaderValue::from_static("an-id"),
    )]);
    let (code, status, reason) = (503, CacheStatus::Forward, "write");
    trace.export(
        is_trusted,
        None,
        Some(&AnswerSummary { code, status, reason, headers: &headers }),
    );
}

/// Forwards a request. Returns its spans, and the headers that went upstream.
fn forwarded(
    tracer: &RequestTracer,
    traceparent: &[&str],
    is_trusted: bool,
) -> (Vec<Span>, HeaderMap) {
    let mut parts = parts(POD, traceparent);
    if let Some(trace) = begin(tracer, &parts) {
        trace.ended("identify");
        if let Some(call) = trace.call(is_trusted, &mut parts.headers) {
            trace.called(call, Some(200));
        }
        finish(&trace, is_trusted);
    }
    (tracer.tracer.take(), parts.headers)
}

fn id(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn attribute<'a>(span: &'a Span, name: &str) -> Option<&'a Value> {
    let attribute = span.attributes.iter().find(|attribute| attribute.key == name);
    attribute?.value.as_ref()?.value.as_ref()
}

#[test]
fn without_a_collector_there_are_no_traces() {
    let tracer = RequestTracer { tracer: Tracer::default(), trusts_all: true };
    assert!(begin(&tracer, &parts(POD, &[CLIENT])).is_none());
}

#[test]
fn a_parent_that_counts_decides_and_its_trace_goes_on() {
    for (rate, trusts_all) in [(0, true), (1_000_000, true), (0, false), (1_000_000, false)] {
        let tracer = tracer(rate, trusts_all);
        let (spans, headers) = forwarded(&tracer, &[CLIENT], true);
        let [server, identify, upstream] = &spans[..] else { panic!("{spans:#?}") };
        for span in &spans {
            assert_eq!(id(&span.trace_id), "0af7651916cd43dd8448eb211c80319c");
        }
        assert_eq!(id(&server.parent_span_id), "b7ad6b7169203331");
        assert_eq!(server.trace_state, "a=1");
        assert_eq!((server.kind(), upstream.kind()), (SpanKind::Server, SpanKind::Client));
        assert_eq!(server.links, []);
        for child in [identify, upstream] {
            assert_eq!(child.parent_span_id, server.span_id);
        }
        let sent = headers["traceparent"].to_str().unwrap();
        let span_id = id(&upstream.span_id);
        assert_eq!(sent, format!("00-0af7651916cd43dd8448eb211c80319c-{span_id}-01"));
        assert_eq!(headers["tracestate"], "a=1");

        let (spans, headers) = forwarded(&tracer, &[UNSAMPLED], true);
        assert_eq!(spans, []);
        assert_eq!(headers["traceparent"], UNSAMPLED);
    }
}

#[test]
fn a_strangers_context_is_linked_and_goes_upstream_unchanged() {
    for context in [CLIENT, UNSAMPLED] {
        let (spans, headers) = forwarded(&tracer(0, false), &[context], false);
        assert_eq!(spans, [], "its flag exports nothing");
        assert_eq!((headers.len(), &headers["traceparent"]), (2, &context.parse().unwrap()));

        let (spans, headers) = forwarded(&tracer(1_000_000, false), &[context], false);
        let server = &spans[0];
        assert_ne!(id(&server.trace_id), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!((&*server.parent_span_id, &*server.trace_state), (&b""[..], ""));
        assert_eq!(id(&server.links[0].trace_id), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(id(&server.links[0].span_id), "b7ad6b7169203331");
        assert_eq!((headers.len(), &headers["traceparent"]), (2, &context.parse().unwrap()));
    }
}

#[test]
fn a_request_without_a_valid_context_begins_a_trace() {
    for traceparent in [&[][..], &["what"], &[CLIENT, CLIENT]] {
        for trusts_all in [true, false] {
            let (spans, headers) = forwarded(&tracer(0, trusts_all), traceparent, trusts_all);
            assert_eq!(spans, []);
            assert_eq!(headers.get_all("traceparent").iter().count(), traceparent.len());

            let (spans, headers) =
                forwarded(&tracer(1_000_000, trusts_all), traceparent, trusts_all);
            let (server, upstream) = (&spans[0], &spans[2]);
            assert_eq!((&*server.parent_span_id, server.links.len()), (&b""[..], 0));
            if trusts_all || traceparent.is_empty() {
                let (trace_id, span_id) = (id(&server.trace_id), id(&upstream.span_id));
                assert_eq!(headers["traceparent"], format!("00-{trace_id}-{span_id}-01"));
                assert!(!headers.contains_key("tracestate"), "it belongs to no trace");
            } else {
                assert_eq!(headers["traceparent"], traceparent[0], "a stranger's header stays");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn spans_say_what_happened_and_how_long_it_took() {
    let tracer = tracer(1_000_000, true);
    let parts = parts(POD, &[]);
    let trace = begin(&tracer, &parts).unwrap();
    for (stage, is_wait) in [("identify", false), ("freshness", true), ("splice", false)] {
        tokio::time::advance(Duration::from_millis(2)).await;
        if is_wait { trace.waited(stage) } else { trace.ended(stage) }
    }
    tokio::time::advance(Duration::from_millis(5)).await;
    trace.skip();
    let mut headers = HeaderMap::new();
    let call = trace.call(true, &mut headers).unwrap();
    tokio::time::advance(Duration::from_millis(3)).await;
    trace.called(call, None);
    let list = (new_trace_id(), new_span_id());
    trace.link_list(|_| Some(list));
    finish(&trace, true);
    drop(trace);

    let spans = tracer.tracer.take();
    let took = |span: &Span| (span.end_time_unix_nano - span.start_time_unix_nano) / 1_000_000;
    let named: Vec<_> = spans.iter().map(|span| (&*span.name, took(span))).collect();
    assert_eq!(
        named,
        [
            ("GET /api/v1/namespaces/{namespace}/pods/{name}", 14),
            ("identify", 2),
            ("wait", 2),
            ("splice", 2),
            ("upstream", 3)
        ]
    );
    let [server, _, wait, _, upstream] = &spans[..] else { unreachable!() };
    let text = |text: &str| Some(Value::Text(text.to_owned()));
    for (name, value) in [
        ("http.request.method", text("GET")),
        ("http.route", text("/api/v1/namespaces/{namespace}/pods/{name}")),
        ("http.response.status_code", Some(Value::Int(503))),
        ("weir.verb", text("get")),
        ("weir.resource", text("v1/pods")),
        ("weir.cache", text("forward")),
        ("weir.reason", text("write")),
        ("audit-id", text("an-id")),
        ("weir.shed", None),
        ("weir.cancelled", None),
    ] {
        assert_eq!(attribute(server, name), value.as_ref(), "{name}");
    }
    assert_eq!(attribute(wait, "weir.wait.cause"), text("freshness").as_ref());
    let has_failed = |span: &Span| span.status.as_ref().map(|status| status.code());
    assert_eq!(has_failed(server), Some(StatusCode::Error));
    assert_eq!(has_failed(upstream), Some(StatusCode::Error), "it has no response");
    assert_eq!(has_failed(wait), None);
    assert_eq!(id(&server.links[0].trace_id), list.0.to_string());
    assert!(!format!("{spans:?}").contains("shop"), "{spans:?}");
}

/// A log that shows neither requests nor their paths shows the trace of one that is sampled.
#[test]
fn log_lines_of_a_sampled_request_have_its_trace() {
    let lines = RecentLines::default();
    let subscriber =
        tracing_subscriber::registry().with(EnvFilter::new("info")).with(recording(lines.clone()));
    tracing::subscriber::with_default(subscriber, || {
        for (tracer, traceparent, is_trusted) in [
            (tracer(0, true), CLIENT, true),
            (tracer(0, false), CLIENT, true),
            (tracer(0, false), CLIENT, false),
            (tracer(0, true), UNSAMPLED, true),
        ] {
            let parts = parts(POD, &[traceparent]);
            let trace = begin(&tracer, &parts);
            let span = RequestTrace::log_span(trace.as_deref(), &parts);
            if let Some(trace) = &trace {
                trace.settle_for(is_trusted);
            }
            // Before the request is answered.
            span.in_scope(|| tracing::warn!("something happened"));
        }
    });
    let text = lines.text();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let traces: Vec<_> = lines.iter().map(|line| line["span"]["trace_id"].as_str()).collect();
    let trace_id = Some("0af7651916cd43dd8448eb211c80319c");
    assert_eq!(traces, [trace_id, trace_id, None, None]);
    assert!(!text.contains("shop"), "{text}");
}

/// The first requests of a cold Weir come before discovery.
#[test]
fn a_resource_that_became_known_names_the_span() {
    for is_known in [true, false] {
        let tracer = tracer(1_000_000, true);
        let parts = parts(POD, &[]);
        let info = RequestInfo::parse(&parts.method, POD, "");
        let trace = tracer.begin(&parts, &info, false, Instant::now()).unwrap();
        let headers = HeaderMap::new();
        let (code, status, reason) = (200, CacheStatus::Hit, "");
        let answer = AnswerSummary { code, status, reason, headers: &headers };
        trace.export(true, is_known.then_some(&info), Some(&answer));
        let spans = tracer.tracer.take();
        let (name, resource) = match is_known {
            true => ("GET /api/v1/namespaces/{namespace}/pods/{name}", Some("v1/pods".into())),
            false => ("GET /api/{version}/namespaces/{namespace}/{resource}/{name}", None),
        };
        assert_eq!(spans[0].name, name);
        assert_eq!(attribute(&spans[0], "weir.resource"), resource.as_ref());
    }
}

/// A stranger's flag holds nothing once its sender is known.
#[test]
fn a_request_that_turns_out_not_to_be_sampled_keeps_no_stages() {
    let tracer = tracer(0, false);
    let trace = begin(&tracer, &parts(POD, &[CLIENT])).unwrap();
    trace.ended("identify");
    assert_eq!(trace.steps.lock().stages.len(), 1);
    trace.settle_for(false);
    trace.ended("authorize");
    assert_eq!(trace.steps.lock().stages.capacity(), 0);
}

/// As for any header that is a list (RFC 9110, section 5.3).
#[test]
fn several_tracestates_are_one_list() {
    for (values, expected) in [
        (&["b=2"][..], "a=1,b=2"),
        (&["b=2", "c=3"], "a=1,b=2,c=3"),
        (&[&*"x".repeat(508)], &*format!("a=1,{}", "x".repeat(508))),
        (&[&*"x".repeat(509)], ""),
    ] {
        let tracer = tracer(0, true);
        let mut parts = parts(POD, &[CLIENT]);
        for value in values {
            parts.headers.append("tracestate", value.parse().unwrap());
        }
        finish(&begin(&tracer, &parts).unwrap(), true);
        assert_eq!(tracer.tracer.take()[0].trace_state, expected);
    }
}

#[test]
fn a_request_that_did_not_wait_links_no_list() {
    let tracer = tracer(1_000_000, true);
    let trace = begin(&tracer, &parts(POD, &[])).unwrap();
    trace.waited("seats");
    trace.link_list(|_| panic!("it waited for no cache"));
    finish(&trace, true);
    assert_eq!(tracer.tracer.take()[0].links, []);
}

#[test]
fn a_request_that_was_given_up_has_a_span_and_its_open_call() {
    let tracer = tracer(1_000_000, true);
    let mut parts = parts(POD, &[CLIENT]);
    let trace = begin(&tracer, &parts).unwrap();
    let _lasts = trace.call(true, &mut parts.headers);
    drop(trace);
    let spans = tracer.tracer.take();
    assert_eq!(spans.len(), 2);
    assert_eq!(attribute(&spans[0], "weir.cancelled"), Some(&Value::Bool(true)));

    // That of a client who was known before.
    let tracer = RequestTracer { tracer: Tracer::unexported(0), trusts_all: false };
    let trace = begin(&tracer, &parts).unwrap();
    trace.settle_for(true);
    drop(trace);
    let spans = tracer.tracer.take();
    assert_eq!(id(&spans[0].trace_id), "0af7651916cd43dd8448eb211c80319c");

    // A stranger's, of whom nothing was known yet.
    let tracer = RequestTracer { tracer: Tracer::unexported(0), trusts_all: false };
    drop(begin(&tracer, &parts).unwrap());
    assert_eq!(tracer.tracer.take(), []);
}

#[test]
fn what_clients_choose_is_bounded() {
    let tracer = tracer(1_000_000, true);
    let long = "x".repeat(9_000);
    let mut request = parts(POD, &[CLIENT]);
    request.method = http::Method::from_bytes(b"SECRETIVE").unwrap();
    request.headers.insert("tracestate", long.parse().unwrap());
    let trace = begin(&tracer, &request).unwrap();
    for _ in 0..100 {
        trace.ended("identify");
    }
    let headers = HeaderMap::from_iter([(
        HeaderName::from_static("audit-id"),
        HeaderValue::from_str(&long).unwrap(),
    )]);
    let (code, status, reason) = (200, CacheStatus::Hit, "");
    trace.export(true, None, Some(&AnswerSummary { code, status, reason, headers: &headers }));
    let spans = tracer.tracer.take();
    assert_eq!(spans.len(), STAGES_MAX + 1);
    assert_eq!(spans[0].trace_state, "");
    let audit_id = Value::Text("x".repeat(256));
    assert_eq!(attribute(&spans[0], "audit-id"), Some(&audit_id));
    assert_eq!(attribute(&spans[0], "http.request.method"), Some(&"_OTHER".into()));
}

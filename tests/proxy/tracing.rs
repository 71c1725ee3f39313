//! Spans of requests and of reflectors; whose trace they belong to, and what goes upstream with
//! them (`docs/decisions/tracing.md`).

mod export;

use std::time::Duration;

use http::Method;
use weir::config::Config;
use weir::simulator::{Action, LoggedRequest, Rule, Simulator, SimulatorOptions, User};
use weir::telemetry::trace::otlp::{Span, SpanKind};

use crate::client::{self, Answer, Call};
use crate::collector::{Collector, attribute, hex};
use crate::costs::gateway_of_readers;
use crate::flow_rules::section;
use crate::harness::{Proxy, as_gateway, configmap, seed, upstream_of};
use crate::wait::eventually;

const LIST: &str = "/api/v1/namespaces/ns1/configmaps?resourceVersion=0";
const ROUTE: &str = "/api/v1/namespaces/{namespace}/configmaps";
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";
const EVERYTHING: u32 = 1_000_000;

/// The context of a client that records its span, or not.
fn context(is_sampled: bool) -> String {
    format!("00-{TRACE}-{PARENT}-0{}", u8::from(is_sampled))
}

fn traced(call: Call, is_sampled: bool) -> Call {
    call.header("traceparent", &context(is_sampled)).header("tracestate", "congo=t61rcWkgMzE")
}

/// Starts a sidecar that exports to this collector.
async fn sidecar(collector: &Collector, per_million: u32) -> Proxy {
    let upstream = Simulator::start(SimulatorOptions::default()).await.unwrap();
    seed(&upstream);
    Proxy::before(upstream, "", |config| collector.configure(per_million, config)).await
}

/// Starts a gateway that exports to this collector, for alice, whom the API server trusts with
/// nothing, and for monitoring.
async fn gateway(collector: &Collector, per_million: u32) -> Proxy {
    let read = || vec![Rule::new(&["*"], &["configmaps"], &["ns1"])];
    let mut prober = User::with_rules("probers", "prober", read());
    prober.groups = vec!["system:monitoring".to_owned()];
    let users =
        vec![User::admin("weirs-own", "weir"), User::with_rules("alices", "alice", read()), prober];
    let upstream = upstream_of(users).await;
    let adjust = |config: &mut Config| {
        as_gateway(config);
        collector.configure(per_million, config);
    };
    Proxy::before(upstream, "weirs-own", adjust).await
}

fn call_as(token: &str, call: Call) -> Call {
    call.header("authorization", &format!("Bearer {token}"))
}

fn create(name: &str) -> Call {
    let body = configmap("ns1", name, 1);
    Call::new(Method::POST, "/api/v1/namespaces/ns1/configmaps").json(&body)
}

/// Returns the last request for a path that the API server received.
fn received(proxy: &Proxy, verb: &Method, path: &str) -> LoggedRequest {
    let recent = proxy.upstream.requests().recent();
    let logged =
        recent.into_iter().rfind(|request| request.path == path && request.method == verb.as_str());
    logged.unwrap()
}

fn names(spans: &[Span]) -> Vec<&str> {
    spans.iter().map(|span| &*span.name).collect()
}

/// Ensures that the span shows an answer with its status, origin and audit id.
fn assert_shows(span: &Span, answer: &Answer) {
    assert_eq!(span.kind(), SpanKind::Server);
    assert_eq!(attribute(span, "http.response.status_code"), answer.status.as_u16().to_string());
    assert_eq!(attribute(span, "audit-id"), answer.headers["audit-id"]);
    assert!(span.end_time_unix_nano >= span.start_time_unix_nano);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cached_list_has_a_span_in_the_clients_trace() {
    let collector = Collector::start(&[]).await;
    let proxy = sidecar(&collector, 0).await;
    proxy.warm("/api/v1/configmaps").await;
    let answer = proxy.call(&traced(Call::get(LIST), true)).await;
    assert_eq!((answer.status.as_u16(), answer.cache()), (200, "hit"));
    let (span, children) = collector.request(ROUTE).await;
    assert_eq!(span.name, format!("GET {ROUTE}"));
    assert_eq!((&*hex(&span.trace_id), &*hex(&span.parent_span_id)), (TRACE, PARENT));
    assert_eq!(span.trace_state, "congo=t61rcWkgMzE");
    assert_eq!(names(&children), ["identify", "authorize", "list"]);
    assert_shows(&span, &answer);
    for (name, value) in [
        ("weir.verb", "list"),
        ("weir.resource", "v1/configmaps"),
        ("weir.cache", "hit"),
        ("weir.reason", ""),
        ("weir.shed", ""),
    ] {
        assert_eq!(attribute(&span, name), value, "{name}");
    }
    for child in &children {
        assert_eq!((child.kind(), &child.trace_id), (SpanKind::Internal, &span.trace_id));
        assert!(child.start_time_unix_nano >= span.start_time_unix_nano);
        assert!(child.end_time_unix_nano <= span.end_time_unix_nano);
    }
    // Only reflectors have other spans: the client's own sampling decides.
    let selected = format!("{LIST}&labelSelector=app%3Deven");
    for call in [Call::get(&selected), traced(Call::get(&selected), false)] {
        assert_eq!(proxy.call(&call).await.cache(), "hit");
    }
    proxy.call(&traced(Call::get("/version"), true)).await;
    collector.request("/version").await;
    let spans = collector.spans();
    assert_eq!(spans.iter().filter(|span| span.name.ends_with(ROUTE)).count(), 1);
    let exported = format!("{spans:?}");
    assert!(!exported.contains("ns1") && !exported.contains("even"), "{exported}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forwarded_write_carries_the_span_of_its_call() {
    let collector = Collector::start(&[]).await;
    let proxy = sidecar(&collector, 0).await;
    let path = "/api/v1/namespaces/ns1/configmaps";
    let answer = proxy.call(&traced(create("one"), true)).await;
    assert_eq!((answer.status.as_u16(), answer.cache()), (201, "forward; reason=write"));
    let (span, children) = collector.request(ROUTE).await;
    assert_eq!(span.name, format!("POST {ROUTE}"));
    assert_shows(&span, &answer);
    assert_eq!(attribute(&span, "weir.cache"), "forward");
    assert_eq!(attribute(&span, "weir.reason"), "write");
    let upstream = children.iter().find(|child| child.name == "upstream").unwrap();
    assert_eq!(upstream.kind(), SpanKind::Client);
    assert_eq!(attribute(upstream, "http.response.status_code"), "201");
    // There were seats.
    assert!(children.iter().all(|child| child.name != "wait"));

    let seen = received(&proxy, &Method::POST, path);
    let parent = hex(&upstream.span_id);
    assert_eq!(seen.headers["traceparent"], format!("00-{TRACE}-{parent}-01"));
    assert_eq!(seen.headers["tracestate"], "congo=t61rcWkgMzE");
    assert_eq!(seen.headers.get_all("traceparent").iter().count(), 1);

    // One that is not sampled passes byte for byte.
    assert_eq!(proxy.call(&traced(create("two"), false)).await.status, 201);
    let seen = received(&proxy, &Method::POST, path);
    assert_eq!(seen.headers["traceparent"], context(false));
    assert_eq!(seen.headers["tracestate"], "congo=t61rcWkgMzE");
    assert_eq!(proxy.call(&create("three")).await.status, 201);
    assert!(!received(&proxy, &Method::POST, path).headers.contains_key("traceparent"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sampling_rate_begins_traces_and_changes_with_a_reload() {
    let collector = Collector::start(&[]).await;
    let proxy = sidecar(&collector, 0).await;
    assert_eq!(proxy.call(&create("none")).await.status, 201);
    let mut config = proxy.config.clone();
    config.tracing.sampling_rate_per_million = EVERYTHING;
    let text = config.to_yaml();
    std::fs::write(proxy.config_file(), text).unwrap();
    proxy.hangup.notify_one();
    let success = ["result=\"success\""];
    eventually("the file was read", async || {
        proxy.metric("weir_config_reloads_total", &success).await > 0.0
    })
    .await;
    assert_eq!(proxy.metric("weir_config_pending_fields", &[]).await, 0.0);
    assert_eq!(proxy.call(&create("one")).await.status, 201);
    let (span, children) = collector.request(ROUTE).await;
    assert!(span.parent_span_id.is_empty());
    let upstream = children.iter().find(|child| child.name == "upstream").unwrap();
    let (trace, parent) = (hex(&span.trace_id), hex(&upstream.span_id));
    let seen = received(&proxy, &Method::POST, "/api/v1/namespaces/ns1/configmaps");
    assert_eq!(seen.headers["traceparent"], format!("00-{trace}-{parent}-01"));
    let spans = collector.spans();
    assert_eq!(spans.iter().filter(|span| span.name.ends_with(ROUTE)).count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_has_a_span_until_its_head_with_the_list_it_waited_for() {
    let collector = Collector::start(&[]).await;
    let proxy = sidecar(&collector, 0).await;
    for verb in ["list", "watch"] {
        let delay = Action::Delay(Duration::from_millis(300));
        proxy.upstream.faults().add(verb, "configmaps", 1, delay);
    }
    let path = "/api/v1/namespaces/ns1/configmaps?watch=1&resourceVersion=0";
    let call = traced(Call::get(path), true);
    let mut watch = client::Watch::open(proxy.plain(), &call).await;
    assert_eq!((watch.status.as_u16(), watch.cache()), (200, "hit"));
    watch.event().await;
    let (span, children) = collector.request(ROUTE).await;
    assert_eq!(attribute(&span, "weir.verb"), "watch");
    assert_eq!(names(&children), ["identify", "authorize", "wait", "splice"]);
    assert_eq!(attribute(&children[2], "weir.wait.cause"), "warmup");
    let list = || collector.spans().into_iter().find(|span| span.name == "reflector list");
    eventually("the reflector's span arrives", async || list().is_some()).await;
    let list = list().unwrap();
    assert_eq!(attribute(&list, "weir.resource"), "v1/configmaps");
    assert_eq!(attribute(&list, "weir.list.cause"), "start");
    assert_eq!((list.kind(), &list.status), (SpanKind::Internal, &None));
    let [link] = &span.links[..] else { panic!("{:?}", span.links) };
    assert_eq!((&link.trace_id, &link.span_id), (&list.trace_id, &list.span_id));

    // The watch goes on, and who comes now waits for nothing and has no link.
    let call = traced(Call::get(&path.replace("ns1", "ns2")), true);
    client::Watch::open(proxy.plain(), &call).await.event().await;
    let watches = || collector.spans().into_iter().filter(|span| span.name.ends_with(ROUTE));
    eventually("the second span arrives", async || watches().count() == 2).await;
    assert!(watches().any(|span| span.links.is_empty()));
    proxy.upstream.store().create(configmap("ns1", "new", 1)).unwrap();
    watch.until("\"new\"").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_has_a_span_with_its_reason_and_without_its_user() {
    let collector = Collector::start(&[]).await;
    let rules = "flowControl:\n  mode: enforce\n  rules:\n  - name: my-rule\n    limits: {requestsPerSecond: 1, burst: 1}\n";
    let proxy = gateway_of_readers(|config| {
        config.flow_control = section(rules);
        collector.configure(EVERYTHING, config);
    })
    .await;
    let path = "/api/v1/namespaces/ns1/configmaps";
    let mut refused = None;
    eventually("one is refused", async || {
        let answer = proxy.call(&call_as("alices", Call::get(path))).await;
        refused = (answer.status == 429).then_some(answer);
        refused.is_some()
    })
    .await;
    let refused = refused.unwrap();
    let audit_id = refused.headers["audit-id"].to_str().unwrap();
    let find_span =
        || collector.spans().into_iter().find(|span| attribute(span, "audit-id") == audit_id);
    eventually("its span arrives", async || find_span().is_some()).await;
    let span = find_span().unwrap();
    assert_shows(&span, &refused);
    assert_eq!(attribute(&span, "weir.cache"), "error");
    assert_eq!(attribute(&span, "weir.reason"), "shed");
    assert_eq!(attribute(&span, "weir.shed"), refused.headers["x-weir-shed"]);
    let exported = format!("{:?}", collector.spans());
    assert!(!exported.contains("alice") && !exported.contains("ns1"), "{exported}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_adopts_the_parents_of_those_whom_the_api_server_trusts() {
    let collector = Collector::start(&[]).await;
    let proxy = gateway(&collector, 0).await;
    let path = "/api/v1/namespaces/ns1/configmaps";
    let warm = call_as("alices", Call::get(LIST));
    eventually("the cache is warm", async || proxy.call(&warm).await.cache() == "hit").await;
    // A stranger's flag exports nothing, whether a cache answers or not, and goes on unchanged.
    for call in [Call::get(LIST), create("one"), Call::get("/version")] {
        let answer = proxy.call(&call_as("alices", traced(call, true))).await;
        assert!(answer.status.is_success() || answer.status == 403, "{}", answer.text());
    }
    let seen = received(&proxy, &Method::POST, path);
    assert_eq!(
        (&*seen.user, &seen.headers["traceparent"]),
        ("alice", &context(true).parse().unwrap())
    );
    for token in ["probers", "weirs-own"] {
        let call = call_as(token, traced(create(&format!("by-{token}")), true));
        assert_eq!(proxy.call(&call).await.status, 201);
        let seen = received(&proxy, &Method::POST, path);
        let find_span = || {
            let mut spans = collector.spans().into_iter();
            spans.find(|span| {
                seen.headers["traceparent"].to_str().unwrap().contains(&hex(&span.span_id))
            })
        };
        eventually("the span of its call arrives", async || find_span().is_some()).await;
        let call = find_span().unwrap();
        assert_eq!((&*call.name, &*hex(&call.trace_id)), ("upstream", TRACE));
    }
    // The same holds for an answer of the cache.
    let answer = proxy.call(&call_as("probers", traced(Call::get(LIST), true))).await;
    assert_eq!(answer.cache(), "hit");
    let find_span =
        || collector.spans().into_iter().find(|span| attribute(span, "weir.cache") == "hit");
    eventually("its span arrives", async || find_span().is_some()).await;
    let span = find_span().unwrap();
    assert_eq!((&*hex(&span.trace_id), &*hex(&span.parent_span_id)), (TRACE, PARENT));
    let of_requests = collector.spans().into_iter().filter(|span| span.kind() == SpanKind::Server);
    assert_eq!(of_requests.count(), 3, "the stranger has none");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_strangers_request_has_a_trace_of_its_own_with_a_link() {
    let collector = Collector::start(&[]).await;
    let proxy = gateway(&collector, EVERYTHING).await;
    let answer = proxy.call(&call_as("alices", traced(create("one"), true))).await;
    assert_eq!(answer.status, 201);
    let (span, children) = collector.request(ROUTE).await;
    assert_ne!(hex(&span.trace_id), TRACE);
    assert!(span.parent_span_id.is_empty() && span.trace_state.is_empty(), "{span:?}");
    let [link] = &span.links[..] else { panic!("{:?}", span.links) };
    assert_eq!((&*hex(&link.trace_id), &*hex(&link.span_id)), (TRACE, PARENT));
    assert!(names(&children).contains(&"upstream"));
    let seen = received(&proxy, &Method::POST, "/api/v1/namespaces/ns1/configmaps");
    assert_eq!(seen.headers["traceparent"], context(true));
    assert_eq!(seen.headers["tracestate"], "congo=t61rcWkgMzE");
}

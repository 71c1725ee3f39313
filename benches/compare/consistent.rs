//! Measures lists without a resourceVersion, which Weir forwards or, with `consistentLists: auto`,
//! answers from its cache once that is proved fresh. For each setting a Weir is started, and gets
//! the same lists at a steady rate. The figures are those of the API server and Weir together.
//!
//! Lists to be forwarded come at a lower rate, which an API server on two processors can answer: a
//! queue that grows would measure the queue. The figures are those of one list.
//!
//! The writes beside them matter: an event of the collection itself proves the cache fresh, while
//! writes of other resources leave it behind.

use std::time::Duration;

use futures_util::future::join_all;
use http::Method;
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::changes::{Watchable, Writer};
use crate::client::{Connection, JSON, PreparedRequest, Protocol};
use crate::pods;
use crate::results::{Results, percentile, sorted};
use crate::server::{Server, UPSTREAM, WEIR};
use crate::testbed::Testbed;

/// A row: lists of one collection.
pub(crate) struct ConsistentRow {
    pub(crate) name: &'static str,
    path: &'static str,
    /// The plural name of the resource.
    resource: &'static str,
    /// Lists per second.
    rate: f64,
    /// Lists per second that are forwarded.
    forwarded_rate: f64,
    /// The objects that are written meanwhile, and the writes per second.
    writes: Option<(Watchable, f64)>,
}

const PODS: (&str, &str) = ("/api/v1/pods", "pods");
const FEW: (&str, &str) = (FEW_PATH, "podtemplates");
const FEW_PATH: &str = "/api/v1/namespaces/weir-compare-0/podtemplates";

pub(crate) const ROWS: [ConsistentRow; 4] = [
    row("consistent-5000", PODS, [20.0, 1.0], Some((Watchable::Pods, 20.0))),
    row("consistent-5000-quiet", PODS, [20.0, 1.0], Some((Watchable::ConfigMaps, 20.0))),
    row("consistent-50", FEW, [1_000.0, 100.0], None),
    row("consistent-50-busy", FEW, [1_000.0, 100.0], Some((Watchable::ConfigMaps, 20.0))),
];

const fn row(
    name: &'static str,
    (path, resource): (&'static str, &'static str),
    [rate, forwarded_rate]: [f64; 2],
    writes: Option<(Watchable, f64)>,
) -> ConsistentRow {
    ConsistentRow { name, path, resource, rate, forwarded_rate, writes }
}

/// The objects of the small collection.
const FEW_OBJECTS: usize = 50;
const CONNECTIONS: usize = 8;
/// The lists before the measurement, as many as can be forwarded: Weir measures one, and fills its
/// cache.
const WARM_UP: Duration = Duration::from_secs(4);

pub(crate) async fn compare(
    row: &ConsistentRow,
    testbed: &mut Testbed,
    time: Duration,
    results: &mut Results,
) {
    if row.path == FEW_PATH {
        fill(&testbed.upstream).await;
    }
    for (setting, rate) in [("forward", row.forwarded_rate), ("auto", row.rate)] {
        if !testbed.restart_with(json!({"consistentLists": setting})).await {
            return;
        }
        let sent = measure(row, rate, testbed, time).await;
        let mut set = |server, what: &str, value| {
            results.set(row.name, server, &format!("{setting}_{what}"), value);
        };
        let lists = sent.latency.len() as f64;
        set(WEIR, "lists", lists);
        set(WEIR, "lists_per_s", lists / sent.seconds);
        set(WEIR, "hits", sent.hits as f64);
        set(WEIR, "cpu_ms", sent.weir_cpu * 1e3 / lists);
        set(UPSTREAM, "cpu_ms", sent.upstream_cpu * 1e3 / lists);
        set(UPSTREAM, "lists_per_s", sent.upstream_lists / sent.seconds);
        let latency = sorted(sent.latency);
        set(WEIR, "p50_ms", percentile(&latency, 50));
        set(WEIR, "p99_ms", percentile(&latency, 99));
    }
}

/// The requests that were sent, and their costs.
struct Sent {
    latency: Vec<f64>,
    hits: usize,
    seconds: f64,
    weir_cpu: f64,
    upstream_cpu: f64,
    upstream_lists: f64,
}

async fn measure(row: &ConsistentRow, rate: f64, testbed: &Testbed, time: Duration) -> Sent {
    let (upstream, weir) = (&testbed.upstream, &testbed.weir);
    let request = PreparedRequest::get(weir, row.path, JSON, false);
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(Connection::open(weir, Protocol::Http2).await);
    }
    let writing = async {
        if let Some((resource, rate)) = row.writes {
            let writer = Writer::new(upstream, resource).await;
            writer.write(rate, WARM_UP + time).await;
        }
    };
    let listing = async {
        drop(lists(row.forwarded_rate.min(20.0), &connections, &request, WARM_UP).await);
        let lists_warm = lists_of(upstream, row.resource).await;
        let before = (upstream.usage.sample().await, weir.usage.sample().await);
        let start = Instant::now();
        let sent = lists(rate, &connections, &request, time).await;
        let seconds = start.elapsed().as_secs_f64();
        let after = (upstream.usage.sample().await, weir.usage.sample().await);
        let upstream_lists = lists_of(upstream, row.resource).await - lists_warm;
        Sent {
            hits: sent.iter().filter(|(_, hit)| *hit).count(),
            latency: sent.into_iter().map(|(latency, _)| latency).collect(),
            seconds,
            upstream_cpu: after.0.cpu - before.0.cpu,
            weir_cpu: after.1.cpu - before.1.cpu,
            upstream_lists,
        }
    };
    let (sent, ()) = tokio::join!(listing, writing);
    sent
}

/// Sends `rate` lists a second for `time`, without waiting for the answers. Returns the latency of
/// each in milliseconds, and whether it came from the cache.
async fn lists(
    rate: f64,
    connections: &[Connection],
    request: &PreparedRequest,
    time: Duration,
) -> Vec<(f64, bool)> {
    let mut ticks = interval(Duration::from_secs_f64(1.0 / rate));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (start, mut tasks) = (Instant::now(), Vec::new());
    for connection in connections.iter().cycle() {
        ticks.tick().await;
        if start.elapsed() >= time {
            break;
        }
        let (connection, request) = (connection.clone(), request.clone());
        tasks.push(tokio::spawn(async move {
            let start = Instant::now();
            let summary = connection.count(&request).await;
            assert!(summary.code.is_success(), "{}", summary.code);
            let is_hit = summary.cache.is_some() && summary.is_hit();
            (start.elapsed().as_secs_f64() * 1e3, is_hit)
        }));
    }
    join_all(tasks).await.into_iter().map(|sent| sent.expect("the list ends")).collect()
}

/// Returns the lists of a resource that the API server has answered, by its metrics; NaN for the
/// simulator.
async fn lists_of(upstream: &Server, resource: &str) -> f64 {
    let connection = Connection::open(upstream, Protocol::Http1).await;
    let metrics = PreparedRequest::get(upstream, "/metrics", "text/plain", false);
    let (code, body) = connection.collect(&metrics).await;
    if !code.is_success() {
        return f64::NAN;
    }
    let resource = format!("resource=\"{resource}\"");
    let text = String::from_utf8_lossy(&body).into_owned();
    let lists = text.lines().filter(|line| {
        line.starts_with("apiserver_request_total{")
            && line.contains(&resource)
            && line.contains("verb=\"LIST\"")
    });
    lists.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// Creates the small collection.
async fn fill(upstream: &Server) {
    let connection = Connection::open(upstream, Protocol::Http2).await;
    for number in 0..FEW_OBJECTS {
        let body = json!({"apiVersion": "v1", "kind": "PodTemplate",
            "metadata": {"name": format!("few-{number}"), "annotations": {pods::PADDING: "x".repeat(500)}},
            "template": {"metadata": {"labels": {"app": "few"}},
                "spec": {"containers": [{"name": "main", "image": "none"}]}}});
        let post = PreparedRequest::with_body(
            upstream,
            Method::POST,
            FEW_PATH,
            Some(JSON),
            body.to_string().into(),
        );
        let code = connection.count(&post).await.code;
        assert!(code.is_success() || code == http::StatusCode::CONFLICT, "{code}");
    }
}

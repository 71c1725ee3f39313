//! Measures the filling of a cache: its time in comparison with the upstream's time to send the
//! same objects, and the memory of the cached objects.
//!
//! The upstream's time is that of a list from its cache or of a watch-list, whichever is shorter.
//! Weir's time is from the first request until the cache answers. The measurements alternate, and
//! Weir is restarted for each.

use std::time::Duration;

use http_body_util::BodyExt as _;
use memchr::memmem;
use tokio::time::{Instant, sleep};

use crate::client::{Connection, JSON, PROTOBUF, PreparedRequest, Protocol};
use crate::pods;
use crate::reads::warm;
use crate::results::Results;
use crate::server::{Server, UPSTREAM, WEIR};
use crate::testbed::Testbed;

/// A row: a number of pods in one encoding.
pub(crate) struct Sync {
    pub(crate) name: &'static str,
    accept: &'static str,
    pub(crate) pods: usize,
}

pub(crate) const ROWS: [Sync; 4] = [
    Sync { name: "sync-5k", accept: JSON, pods: pods::PODS },
    Sync { name: "sync-5k-protobuf", accept: PROTOBUF, pods: pods::PODS },
    Sync { name: "sync-50k", accept: JSON, pods: pods::MANY },
    Sync { name: "sync-50k-protobuf", accept: PROTOBUF, pods: pods::MANY },
];

/// The pause before memory is read, in which the allocator returns freed memory.
const SETTLE_TIME: Duration = Duration::from_secs(2);

/// The interval of requests until the cache answers. They read one object, which costs the upstream
/// little.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Measures a row `times` times and stores the shortest times and the least memory. After any
/// write, including one of a Lease, a consistent list or watch-list may wait up to 100 ms at the
/// API server until its cache is known to be fresh.
pub(crate) async fn compare(
    row: &Sync,
    testbed: &mut Testbed,
    times: usize,
    results: &mut Results,
) {
    let mut least = [f64::INFINITY; 5];
    for _ in 0..times {
        let (list_s, bytes) = time_list(&testbed.upstream, row.accept).await;
        let watch_list_s = time_watch_list(&testbed.upstream, row.accept).await;
        let (sync_s, memory) = if testbed.restart().await {
            fill_cold(&testbed.weir, row).await
        } else {
            (f64::INFINITY, f64::INFINITY)
        };
        let new = [list_s, watch_list_s, bytes as f64, sync_s, memory];
        for (least, new) in least.iter_mut().zip(new) {
            *least = least.min(new);
        }
    }
    let [list_s, watch_list_s, bytes, sync_s, memory] = least;
    let pods = row.pods as f64;
    for (name, value) in [
        ("list_s", list_s),
        ("watch_list_s", watch_list_s),
        ("sync_s", list_s.min(watch_list_s)),
        ("object_bytes", bytes / pods),
    ] {
        results.set(row.name, UPSTREAM, name, value);
    }
    results.set(row.name, WEIR, "sync_s", sync_s);
    results.set(row.name, WEIR, "memory_per_object_bytes", memory / pods);
}

/// Returns the seconds from the first request until the cache answers, and the increase of resident
/// memory in bytes.
async fn fill_cold(weir: &Server, row: &Sync) -> (f64, f64) {
    let connection = Connection::open(weir, Protocol::Http2).await;
    // The very first request needs discovery and a token review, which are not measured.
    connection
        .count(&PreparedRequest::get(weir, "/api/v1/namespaces/default", row.accept, false))
        .await;
    sleep(SETTLE_TIME / 2).await;
    let before = weir.usage.sample().await;
    let start = Instant::now();
    let path = format!("{}?resourceVersion=0", pods::path(0));
    let request = PreparedRequest::get(weir, &path, row.accept, false);
    warm(row.name, weir, &connection, &request, POLL_INTERVAL).await.expect("the pod exists");
    let seconds = start.elapsed().as_secs_f64();
    sleep(SETTLE_TIME).await;
    let after = weir.usage.sample().await;
    (seconds, after.resident - before.resident)
}

/// Returns the seconds and the length of a list from the upstream's cache.
async fn time_list(upstream: &Server, accept: &str) -> (f64, usize) {
    let connection = Connection::open(upstream, Protocol::Http2).await;
    let start = Instant::now();
    let request = PreparedRequest::get(upstream, "/api/v1/pods?resourceVersion=0", accept, false);
    let summary = connection.count(&request).await;
    assert!(summary.code.is_success(), "{}", summary.code);
    (start.elapsed().as_secs_f64(), summary.bytes)
}

/// Returns the seconds until the bookmark that ends the initial events. Returns infinity if the
/// upstream has no watch-lists.
async fn time_watch_list(upstream: &Server, accept: &str) -> f64 {
    let connection = Connection::open(upstream, Protocol::Http2).await;
    let start = Instant::now();
    let path = "/api/v1/pods?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
        &allowWatchBookmarks=true&timeoutSeconds=300";
    let mut response = connection.send(&PreparedRequest::get(upstream, path, accept, false)).await;
    if !response.status().is_success() {
        return f64::INFINITY;
    }
    while let Some(frame) = response.body_mut().frame().await {
        let data = frame.expect("the watch continues").into_data().unwrap_or_default();
        if memmem::find(&data, b"k8s.io/initial-events-end").is_some() {
            return start.elapsed().as_secs_f64();
        }
    }
    f64::INFINITY
}

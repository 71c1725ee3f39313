//! How a cache is filled: how long that takes, beside what the upstream takes to send the same, and the memory of what is cached.
//!
//! The upstream's time is that of a list from its cache or of a watch-list, whichever is shorter, taken by turns with Weir's, which is from
//! the first request on until the cache answers. For this, Weir is started anew each time.

use std::time::Duration;

use http_body_util::BodyExt as _;
use memchr::memmem;
use tokio::time::{Instant, sleep};

use crate::client::{Ask, Connection, JSON, PROTOBUF, Protocol};
use crate::pods;
use crate::reads::warm;
use crate::results::Results;
use crate::server::{Server, UPSTREAM, WEIR};
use crate::stage::Stage;

/// A row: so many pods in one representation.
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

/// What was freed is given back by then, or never.
const QUIET: Duration = Duration::from_secs(2);

/// Whether the cache answers is asked so often: a request of one object, which costs the upstream little.
const ASKED: Duration = Duration::from_millis(20);

/// So many times; the shortest counts, and the least memory. A consistent list or watch-list may wait up to 100 ms at the API server until its cache is known
/// to be fresh, if anything was written since it was last told, Leases too.
pub(crate) async fn compare(row: &Sync, stage: &mut Stage, times: usize, results: &mut Results) {
    let mut least = [f64::INFINITY; 5];
    for _ in 0..times {
        let (list_s, bytes) = take_list(&stage.upstream, row.accept).await;
        let watch_list_s = take_watch_list(&stage.upstream, row.accept).await;
        let (sync_s, memory) = if stage.fresh().await {
            fill_cold(&stage.weir, row).await
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

/// From the first request on until the cache answers one, and what memory came with it.
async fn fill_cold(weir: &Server, row: &Sync) -> (f64, f64) {
    let connection = Connection::open(weir, Protocol::Http2).await;
    // What the first request of all needs: discovery, a review of the token.
    connection.count(&Ask::get(weir, "/api/v1/namespaces/default", row.accept, false)).await;
    sleep(QUIET / 2).await;
    let before = weir.usage.used().await;
    let start = Instant::now();
    let path = format!("{}?resourceVersion=0", pods::path(0));
    let ask = Ask::get(weir, &path, row.accept, false);
    warm(row.name, weir, &connection, &ask, ASKED).await.expect("it is there");
    let seconds = start.elapsed().as_secs_f64();
    sleep(QUIET).await;
    let after = weir.usage.used().await;
    (seconds, after.resident - before.resident)
}

/// How long, and how many bytes.
async fn take_list(upstream: &Server, accept: &str) -> (f64, usize) {
    let connection = Connection::open(upstream, Protocol::Http2).await;
    let start = Instant::now();
    let ask = Ask::get(upstream, "/api/v1/pods?resourceVersion=0", accept, false);
    let counted = connection.count(&ask).await;
    assert!(counted.code.is_success(), "{}", counted.code);
    (start.elapsed().as_secs_f64(), counted.bytes)
}

/// Until the bookmark that ends the state; without end where there are no watch-lists.
async fn take_watch_list(upstream: &Server, accept: &str) -> f64 {
    let connection = Connection::open(upstream, Protocol::Http2).await;
    let start = Instant::now();
    let path = "/api/v1/pods?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
        &allowWatchBookmarks=true&timeoutSeconds=300";
    let mut response = connection.send(&Ask::get(upstream, path, accept, false)).await;
    if !response.status().is_success() {
        return f64::INFINITY;
    }
    while let Some(frame) = response.body_mut().frame().await {
        let data = frame.expect("it goes on").into_data().unwrap_or_default();
        if memmem::find(&data, b"k8s.io/initial-events-end").is_some() {
            return start.elapsed().as_secs_f64();
        }
    }
    f64::INFINITY
}

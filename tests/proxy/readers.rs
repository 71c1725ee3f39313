//! Watches of clients that differ in selection, speed and version of the upstream.

use std::time::Duration;

use http_body_util::BodyExt;
use weir::simulator::{Simulator, SimulatorOptions};

use crate::client::{Call, Watch, send};
use crate::harness::{Proxy, configmap, pod, seed};
use crate::wait::eventually;

const CONFIGMAPS: &str = "/api/v1/configmaps";

/// Before watch-lists, no bookmark came unrequested at the end, and `sendInitialEvents` was invalid
/// (docs/semantics.md §0.2, §1.5).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_equal_those_of_an_upstream_without_watch_lists() {
    let options = SimulatorOptions { minor: 31, ..SimulatorOptions::default() };
    let upstream = Simulator::start(options).await.unwrap();
    seed(&upstream);
    let proxy = Proxy::before(upstream, "", |_| {}).await;
    proxy.warm(CONFIGMAPS).await;
    let now = proxy.upstream.store().revision();
    let mut pairs = Vec::new();
    for query in [
        "resourceVersion=0&allowWatchBookmarks=true",
        "allowWatchBookmarks=true",
        &format!("resourceVersion={now}"),
    ] {
        let path = format!("{CONFIGMAPS}?watch=1&{query}");
        let through = proxy.watch(&path).await;
        assert!(
            query.starts_with("allow") || through.cache() == "hit",
            "{path}: {}",
            through.cache()
        );
        pairs.push((path.clone(), through, proxy.watch_direct(&path).await));
    }
    proxy.upstream.store().create(configmap("ns1", "the-last-one", 1)).unwrap();
    for (path, mut through, mut direct) in pairs {
        let frames = through.until("the-last-one").await;
        assert!(!frames.concat().contains("BOOKMARK"), "{path}");
        assert_eq!(frames, direct.until("the-last-one").await, "{path}");
    }
    let refused = Call::get(&format!(
        "{CONFIGMAPS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0"
    ));
    let (through, direct) = (proxy.call(&refused).await, proxy.direct(&refused).await);
    assert_eq!(direct.status, 422);
    assert_eq!((through.status, through.text()), (direct.status, direct.text()));
}

/// Writes of other resources move the upstream's revision past the cache's; the response stays
/// consistent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consistent_watch_sees_every_write_before_it() {
    let proxy = Proxy::seeded().await;
    proxy.warm(CONFIGMAPS).await;
    for number in 0..30 {
        let name = format!("n-{number}");
        if number % 2 == 0 {
            proxy.upstream.store().create(pod("ns1", &name, "n")).unwrap();
        }
        proxy.upstream.store().create(configmap("ns1", &name, number)).unwrap();
        let path = format!("{CONFIGMAPS}?watch=1&allowWatchBookmarks=true");
        let mut through = proxy.watch(&path).await;
        let is_expected = ["hit", "forward; reason=not-fresh"].contains(&through.cache());
        assert!(is_expected, "{}", through.cache());
        let frames = through.until("initial-events-end").await;
        assert!(frames.concat().contains(&format!("\"name\":\"{name}\"")), "{name} is missing");
        assert_eq!(frames.len(), 12 + number + 2);
    }
}

/// A client that does not read affects only itself: its watch ends when the history no longer has
/// its position, and its next watch gets 410.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_read_is_disconnected() {
    let upstream = Simulator::start(SimulatorOptions::default()).await.unwrap();
    seed(&upstream);
    let proxy =
        Proxy::before(upstream, "", |config| config.cache.history_bytes_max = 1 << 20).await;
    proxy.warm(CONFIGMAPS).await;
    let first = proxy.upstream.store().revision();
    let call = Call::get(&format!("{CONFIGMAPS}?watch=1&resourceVersion={first}"));
    let slow = send(proxy.plain(), &call).await;
    let mut quick = Watch::open(proxy.plain(), &call).await;
    let ended = async || proxy.metric("weir_watchers_ended_total", &[r#"cause="slow""#]).await;
    // A few events at a time, which the history holds, until they exceed the sockets' buffers. The
    // reading client misses none.
    let mut written = 0;
    while written < 160 && ended().await == 0.0 {
        for _ in 0..5 {
            let mut object = configmap("ns2", &format!("large-{}", written % 5), written);
            object["data"]["text"] = "x".repeat(100_000).into();
            let api = proxy.upstream.store();
            if written < 5 { api.create(object) } else { api.update(object) }.unwrap();
            written += 1;
        }
        for number in written - 5..written {
            let event = quick.event().await;
            assert_eq!(event["object"]["data"]["n"], number.to_string());
        }
    }
    // The events in the slow client's buffers are in order, and then the stream ends cleanly.
    let mut slow = Watch::new(slow);
    let mut last = first;
    for frame in slow.rest().await {
        let event: serde_json::Value = serde_json::from_str(&frame).unwrap();
        let (_, at) = crate::informer::key(&event["object"]);
        assert!(at == last + 1, "{at} after {last}");
        last = at;
    }
    assert!(last < proxy.upstream.store().revision(), "it did not get everything");
    let again = proxy.get(&format!("{CONFIGMAPS}?watch=1&resourceVersion={last}")).await;
    assert!(again.text().contains("too old resource version"), "{}", again.text());
}

/// The upstream makes Tables, also as streams.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_of_tables_are_forwarded() {
    let proxy = Proxy::seeded().await;
    proxy.warm(CONFIGMAPS).await;
    let now = proxy.upstream.store().revision();
    let path = format!("{CONFIGMAPS}?watch=1&resourceVersion={now}");
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let call = Call::get(&path).header("accept", table);
    let mut through = Watch::open(proxy.plain(), &call).await;
    assert_eq!(through.cache(), "forward; reason=form");
    let mut direct = Watch::open(proxy.upstream.address(), &call).await;
    proxy.upstream.store().create(configmap("ns1", "new", 1)).unwrap();
    let frames = through.until(r#""new""#).await;
    assert!(frames.iter().all(|frame| frame.contains(r#""kind":"Table""#)));
    assert_eq!(frames.len(), direct.until(r#""new""#).await.len());
}

/// Clients that connect and disconnect leave nothing behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_disconnect_leave_nothing_open() {
    let proxy = Proxy::seeded().await;
    proxy.warm(CONFIGMAPS).await;
    // The cache's watch, and those of CRDs and API services, which may start after it.
    eventually("weir's own watches are open", async || {
        proxy.upstream.requests().watches_open() == 3
    })
    .await;
    let before = 3;
    let path = format!("{CONFIGMAPS}?watch=1&resourceVersion=0");
    let mut watches = Vec::new();
    for number in 0..40 {
        let call = Call::get(&path);
        // Half of them are forwarded.
        let call = if number % 2 == 0 { call } else { call.header("x-weir-cache", "bypass") };
        let mut body = send(proxy.plain(), &call).await.into_body();
        assert!(body.frame().await.unwrap().is_ok());
        watches.push(body);
    }
    assert_eq!(proxy.metric("weir_watchers", &[]).await, 20.0);
    assert_eq!(proxy.upstream.requests().watches_open(), before + 20);
    drop(watches);
    eventually("all are forgotten", async || {
        let forwarded = proxy.metric("weir_upstream_streams", &[r#"traffic_class="stream""#]).await;
        proxy.metric("weir_watchers", &[]).await == 0.0
            && proxy.metric("weir_connections", &[]).await == 0.0
            && proxy.upstream.requests().watches_open() == before
            && forwarded <= before as f64
    })
    .await;
    tokio::time::timeout(Duration::from_secs(5), proxy.get("/version")).await.unwrap();
}

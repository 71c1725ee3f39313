//! Consistent starts of watches: the first watch of an informer of client-go since 0.35 is answered
//! from the cache, with proof that it is fresh.

use weir::simulator::{Balancing, Simulator, SimulatorOptions};

use crate::client::Watch;
use crate::harness::{Proxy, configmap, pod, seed};
use crate::wait::eventually;

const CONFIGMAPS: &str = "/api/v1/configmaps";
const WATCH_LIST: &str = "/api/v1/configmaps?watch=1&allowWatchBookmarks=true&sendInitialEvents=true\
    &resourceVersionMatch=NotOlderThan";

async fn proofs(proxy: &Proxy, step: &str) -> f64 {
    let labels = [r#"resource="configmaps""#, &format!("step=\"{step}\"")];
    proxy.metric("weir_freshness_proofs_total", &labels).await
}

/// Both get the same events from their start on.
async fn assert_same(proxy: &Proxy, through: &mut Watch, direct: &mut Watch, start: &str) {
    let frames = through.until(start).await;
    assert_eq!(frames, direct.until(start).await);
    let api = proxy.upstream.store();
    api.create(configmap("ns1", "after", 1)).unwrap();
    api.delete("v1", "configmaps", "ns1", "after").unwrap();
    // The time of bookmarks is not defined.
    let events = |mut frames: Vec<String>| {
        frames.retain(|frame| !frame.contains("BOOKMARK"));
        frames
    };
    assert_eq!(events(through.until("DELETED").await), events(direct.until("DELETED").await));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_informer_starts_on_a_small_quiet_resource() {
    let proxy = Proxy::seeded().await;
    proxy.warm(CONFIGMAPS).await;
    proxy.upstream.store().create(pod("ns1", "elsewhere", "n")).unwrap();
    let mut through = proxy.watch(WATCH_LIST).await;
    assert_eq!(through.cache(), "hit");
    let mut direct = proxy.watch_direct(WATCH_LIST).await;
    assert_eq!(proofs(&proxy, "list").await, 1.0);
    assert_same(&proxy, &mut through, &mut direct, "initial-events-end").await;

    // At the resourceVersion of another resource.
    proxy.upstream.store().create(pod("ns1", "again", "n")).unwrap();
    let at = format!("{WATCH_LIST}&resourceVersion={}", proxy.upstream.store().revision());
    let mut through = proxy.watch(&at).await;
    assert_eq!(through.cache(), "hit");
    let mut direct = proxy.watch_direct(&at).await;
    assert_eq!(through.until("end").await, direct.until("end").await);
    assert_eq!(proofs(&proxy, "list").await, 2.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_informer_starts_on_a_large_quiet_resource() {
    let upstream = Simulator::start(SimulatorOptions::default()).await.unwrap();
    let proxy = before_a_large_quiet_resource(upstream).await;
    let mut through = proxy.watch(WATCH_LIST).await;
    assert_eq!(through.cache(), "hit");
    let mut direct = proxy.watch_direct(WATCH_LIST).await;
    // Either bookmark may be first: one of the cache's own young watch, or the requested one.
    let counted = proofs(&proxy, "short-watch").await + proofs(&proxy, "event").await;
    assert_eq!(counted, 1.0);
    assert_same(&proxy, &mut through, &mut direct, "initial-events-end").await;
}

/// For an older upstream the second list has parameters that it knows, and no bookmark ends the
/// initial events.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consistent_watch_starts_without_watch_lists() {
    let options = SimulatorOptions { minor: 30, ..SimulatorOptions::default() };
    let upstream = Simulator::start(options).await.unwrap();
    seed(&upstream);
    let proxy = Proxy::before(upstream, "", |_| {}).await;
    proxy.warm(CONFIGMAPS).await;
    proxy.upstream.store().create(pod("ns1", "elsewhere", "n")).unwrap();
    let path = format!("{CONFIGMAPS}?watch=1&allowWatchBookmarks=true");
    let mut through = proxy.watch(&path).await;
    assert_eq!(through.cache(), "hit");
    let mut direct = proxy.watch_direct(&path).await;
    assert_eq!(proofs(&proxy, "list").await, 1.0);
    let last = r#""name":"cm-d.x","namespace":"ns2""#;
    assert_same(&proxy, &mut through, &mut direct, last).await;
}

/// The first list of a cold cache answers the watch that started it, whatever is written meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_list_of_a_cold_cache_proves_it_fresh() {
    let proxy = Proxy::seeded().await;
    let mut through = proxy.watch(WATCH_LIST).await;
    assert_eq!(through.cache(), "hit");
    through.until("initial-events-end").await;
    assert_eq!(proofs(&proxy, "held").await, 1.0);
    assert_eq!(proxy.metric("weir_probes_total", &[]).await, 0.0);
}

/// The watch cache behind Weir's stream is at another API server than the one that Weir's requests
/// move.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn informers_start_from_the_cache_whichever_api_server_sends_the_stream() {
    const STARTS: usize = 20;
    let options = SimulatorOptions { servers: 2, ..SimulatorOptions::default() };
    let upstream = Simulator::start(options).await.unwrap();
    upstream.balance(Balancing::WatchesApart);
    let proxy = before_a_large_quiet_resource(upstream).await;
    let starts = (0..STARTS).map(|_| async {
        let mut watch = proxy.watch(WATCH_LIST).await;
        assert_eq!(watch.cache(), "hit");
        watch.until("initial-events-end").await;
    });
    futures_util::future::join_all(starts).await;
    assert_eq!(proofs(&proxy, "forwarded").await, 0.0);
    let checks = ["resource=\"configmaps\"", "outcome=\"equal\""];
    eventually("the number of objects is compared", async || {
        proxy.metric("weir_cache_checks_total", &checks).await >= 1.0
    })
    .await;
}

/// A consistent start shows a state that was listed beside the cache's stream.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_a_start_showed_is_taken_back() {
    let proxy = Proxy::seeded().await;
    proxy.warm(CONFIGMAPS).await;
    proxy.upstream.store().create(pod("ns1", "elsewhere", "n")).unwrap();
    let revision = proxy.upstream.store().revision();
    let mut through = proxy.watch(WATCH_LIST).await;
    assert_eq!(through.cache(), "hit");
    through.until("initial-events-end").await;
    assert_eq!(proofs(&proxy, "list").await, 1.0);
    let list = proxy.get(&format!("{CONFIGMAPS}?resourceVersion=0")).await;
    assert_eq!(list.cache(), "hit");
    let list: serde_json::Value = serde_json::from_str(&list.text()).unwrap();
    let read: u64 = list["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    assert!(read >= revision, "{read} after {revision}");
    let mut watch = proxy.watch(&format!("{WATCH_LIST}&resourceVersion=0")).await;
    let end = watch.until("initial-events-end").await;
    assert!(end.concat().contains(&format!("\"resourceVersion\":\"{read}\"")), "{end:?}");
}

/// Starts Weir before an upstream with more config maps than a proof lists. They do not change; one
/// later change is that of another resource.
async fn before_a_large_quiet_resource(upstream: Simulator) -> Proxy {
    seed(&upstream);
    for number in 0..1100 {
        upstream.store().create(configmap("ns2", &format!("n-{number}"), number)).unwrap();
    }
    let proxy = Proxy::before(upstream, "", |_| {}).await;
    proxy.warm(CONFIGMAPS).await;
    proxy.upstream.store().create(pod("ns1", "elsewhere", "n")).unwrap();
    proxy
}

//! When a byte budget is reached, requests are forwarded and metrics show it; idle caches stop.

use std::time::Duration;

use weir::config::seams::Seams;
use weir::simulator::{Simulator, SimulatorOptions};

use crate::client::{Call, Watch};
use crate::harness::{Proxy, configmap, seed};
use crate::informer::Informer;
use crate::wait::eventually;

const LIST: &str = "/api/v1/configmaps?resourceVersion=0";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resource_larger_than_its_budget_is_forwarded() {
    let proxy = with(|cache| cache.resource_bytes_max = 2_000).await;
    eventually("the budget binds", async || {
        proxy.get(LIST).await.cache() == "forward; reason=over-budget"
    })
    .await;
    let through = proxy.get(LIST).await;
    assert_eq!(through.text(), proxy.direct(&Call::get(LIST)).await.text());
    let refusals =
        proxy.metric("weir_cache_budget_refusals_total", &[r#"budget="resource""#]).await;
    assert!(refusals >= 1.0);
    // A small resource still fits.
    proxy.warm("/api/v1/nodes").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_informers_of_a_resource_larger_than_its_budget_all_run() {
    let proxy = with(|cache| cache.resource_bytes_max = 2_000).await;
    let collection = "/api/v1/configmaps";
    let informers: Vec<_> =
        (0..500).map(|_| Informer::start(proxy.plain(), collection, "")).collect();
    eventually("all of them watch", async || {
        informers.iter().all(|informer| informer.seen().watches > 0)
    })
    .await;
    proxy.upstream.store().create(configmap("ns1", "for-all", 1)).unwrap();
    eventually("all of them get an event", async || {
        informers.iter().all(|informer| informer.seen().objects.contains_key("ns1/for-all"))
    })
    .await;
    for informer in &informers {
        let seen = informer.seen();
        assert!(seen.complaints.is_empty(), "{:?}", seen.complaints);
    }
    let alarm = proxy.metric("weir_cache_over_budget", &[r#"resource="configmaps""#]).await;
    assert_eq!(alarm, 1.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_of_a_resource_larger_than_its_budget_counts_until_it_has_begun() {
    let seams = Seams { over_budget_forwards: 1, ..Seams::default() };
    let proxy = with_seams(seams, |cache| cache.resource_bytes_max = 2_000).await;
    eventually("the budget binds", async || {
        proxy.get(LIST).await.cache() == "forward; reason=over-budget"
    })
    .await;
    let now = proxy.upstream.store().revision();
    let mut open = Vec::new();
    for path in [
        format!("/api/v1/configmaps?watch=1&resourceVersion={now}"),
        "/api/v1/configmaps?watch=1&resourceVersion=0&allowWatchBookmarks=1".to_owned(),
        format!("/api/v1/configmaps?watch=1&resourceVersion={now}"),
    ] {
        // The permit of the one before is released a moment after its first data.
        eventually("the watch is forwarded", async || {
            let mut watch = Watch::open(proxy.plain(), &Call::get(&path)).await;
            let forwarded = watch.status == 200;
            if forwarded && path.contains("Bookmarks") {
                watch.until("initial-events-end").await;
            }
            open.extend(forwarded.then_some(watch));
            forwarded
        })
        .await;
    }
    assert_eq!(open.len(), 3);
    // A list counts until its end, and another resource has a bound of its own.
    proxy.upstream.faults().add("list", "configmaps", 1, weir::simulator::Action::Hang);
    proxy.upstream.requests().reset();
    let plain = proxy.plain();
    let hanging = tokio::spawn(async move { Watch::open(plain, &Call::get(LIST)).await.status });
    eventually("the list hangs", async || {
        proxy.upstream.requests().count("list", "configmaps") == 1
    })
    .await;
    assert_eq!(proxy.get(LIST).await.status, 429);
    let one = "/api/v1/namespaces/ns1/configmaps/cm-a?resourceVersion=0";
    assert_eq!(proxy.get(one).await.status, 200, "GETs do not count");
    hanging.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cache_that_outgrows_its_budget_stops_and_its_watches_end() {
    let proxy = with(|cache| cache.resource_bytes_max = 200_000).await;
    proxy.warm("/api/v1/configmaps").await;
    let mut watch = proxy.watch("/api/v1/configmaps?watch=1&resourceVersion=0").await;
    for number in 0..60 {
        let mut object = configmap("ns2", &format!("large-{number}"), number);
        object["data"]["text"] = "x".repeat(10_000).into();
        proxy.upstream.store().create(object).unwrap();
    }
    watch.rest().await;
    assert_eq!(proxy.get(LIST).await.cache(), "forward; reason=over-budget");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_caches_together_stay_within_the_total_budget() {
    let total = 60_000;
    let proxy = with(|cache| {
        cache.total_bytes_max = total;
        cache.resource_bytes_max = total;
    })
    .await;
    for resource in
        ["configmaps", "pods", "nodes", "namespaces", "endpoints", "secrets", "services"]
    {
        let path = format!("/api/v1/{resource}?resourceVersion=0");
        for _ in 0..3 {
            let answer = proxy.get(&path).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
    }
    let weight = async || proxy.metric("weir_cache_total_bytes", &[]).await;
    eventually("the total is kept", async || weight().await <= total as f64).await;
    let limit = proxy.metric("weir_cache_total_bytes_limit", &[]).await;
    assert_eq!(limit, total as f64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_cache_stops_and_starts_again() {
    let seams = Seams { idle_timeout: Duration::from_millis(100), ..Seams::default() };
    let proxy = with_seams(seams, |_| {}).await;
    proxy.warm("/api/v1/configmaps").await;
    let caches = async || proxy.metric("weir_caches", &[]).await;
    eventually("the idle cache is gone", async || caches().await == 0.0).await;
    eventually("the upstream's watch is closed", async || {
        let open = proxy.metric("weir_reflector_state", &[]).await;
        open == 0.0
    })
    .await;
    proxy.warm("/api/v1/configmaps").await;
}

async fn with(adjust: impl FnOnce(&mut weir::config::CacheConfig)) -> Proxy {
    with_seams(Seams::default(), adjust).await
}

async fn with_seams(seams: Seams, adjust: impl FnOnce(&mut weir::config::CacheConfig)) -> Proxy {
    let upstream = Simulator::start(SimulatorOptions::default()).await.unwrap();
    seed(&upstream);
    Proxy::before_with(seams, upstream, "", |config| adjust(&mut config.cache)).await
}

//! The requests that a sibling refuses.

use std::time::Duration;

use serde_json::Value;
use weir::config::{Config, ShadowMode, VerifyMode};
use weir::simulator::{Action, Damage, Simulator, SimulatorOptions};

use super::{ANY, CONFIGMAPS, SEED, adjusted, beside, first, without_configmaps};
use crate::client::{self, Call};
use crate::harness::{Proxy, configmap, pod, seed};
use crate::wait::eventually;

/// Each client that may list a resource can leave its lists unread. Siblings must get theirs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_do_not_read_keep_no_sibling_from_its_list() {
    let upstream = without_configmaps().await;
    for number in 0..200 {
        let mut object = configmap("ns1", &format!("cm-{number:05}"), number);
        object["data"]["text"] = Value::String("x".repeat(100_000));
        upstream.store().create(object).unwrap();
    }
    let first = Proxy::before(upstream, "", |_| {}).await;
    first.warm(CONFIGMAPS).await;
    first.until_watching(1).await;
    let call = Call::get(ANY).header(SEED, "codec=1");
    let mut unread = Vec::new();
    for _ in 0..3 {
        let response = client::send(first.plain(), &call).await;
        assert_eq!(response.status(), http::StatusCode::OK);
        unread.push(response);
    }
    assert_eq!(first.call(&call).await.status, 200);
    assert_eq!(first.seeds_served("sent").await, 4.0);
    drop(unread);
}

/// A list that is too large to be sent in time is not read for its digest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_that_is_too_large_is_refused() {
    let upstream = Simulator::start(SimulatorOptions::default()).await.unwrap();
    seed(&upstream);
    let first = Proxy::before(upstream, "", |config| {
        config.cache.siblings.list_bytes_max = 1024;
    })
    .await;
    first.warm(CONFIGMAPS).await;
    first.until_watching(1).await;
    let second = beside(&first, &[first.plain()]).await;
    assert_eq!(second.get(ANY).await.cache(), "hit");
    assert_eq!((second.seeds("refused").await, first.seeds_served("large").await), (1.0, 1.0));
}

/// The pages of caches that are too large together are compared by their metadata, after which
/// such a cache is sent on. Other caches are compared byte by byte.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_cache_that_came_from_a_sibling_is_sent_on_after_its_comparison() {
    let upstream = without_configmaps().await;
    for number in 0..100 {
        let mut object = configmap("ns1", &format!("cm-{number:05}"), number);
        object["data"]["text"] = Value::String("x".repeat(4_000));
        upstream.store().create(object).unwrap();
    }
    let mut last = Proxy::before(upstream, "", |_| {}).await;
    last.warm(CONFIGMAPS).await;
    last.until_watching(1).await;
    for (whole_bytes, generation) in [(1, 1), (1, 2), (usize::MAX, 0)] {
        let adjust = |config: &mut Config| config.cache.verify_whole_bytes = whole_bytes;
        let next = adjusted(&last, &[last.plain()], adjust).await;
        assert_eq!(next.get(ANY).await.cache(), "hit");
        next.has_adopted(1).await;
        next.until_watching(1).await;
        let sent = async || next.seed(ANY, "codec=1").await;
        eventually("the cache is sent on", async || sent().await.status == 200).await;
        let answer = sent().await;
        let manifest = answer.headers[SEED].to_str().unwrap();
        assert!(manifest.contains(&format!("; generation={generation};")), "{manifest}");
        last = next;
    }
}

/// Etcd has proved the cache of the sibling wrong, and its successor takes a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quarantined_cache_is_not_sent() {
    let upstream = Simulator::start(SimulatorOptions::default()).await.unwrap();
    seed(&upstream);
    let first = Proxy::before(upstream, "", |config| {
        config.cache.verify = VerifyMode::Enforce;
        config.cache.verify_round = Duration::from_secs(1);
    })
    .await;
    first.warm(CONFIGMAPS).await;
    first.until_watching(1).await;
    let faults = first.upstream.faults();
    faults.damage("configmaps", "ns1/cm-b", Damage::LostEvent);
    faults.add("watch", "configmaps", 1, Action::Delay(Duration::from_secs(3)));
    first.upstream.store().update(configmap("ns1", "cm-b", 77)).unwrap();
    first.upstream.store().update(configmap("ns2", "cm-a", 78)).unwrap();
    eventually("it is quarantined", async || {
        first.seed(ANY, "codec=1").await.status == 503
            && first.seeds_served("quarantined").await > 0.0
    })
    .await;
    eventually("its successor is sent", async || first.seed(ANY, "codec=1").await.status == 200)
        .await;
}

/// Each refusal counts, also before a cache is looked for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_refusal_is_counted_by_its_reason() {
    let first = first().await;
    for (path, header, outcome, count) in [
        (ANY, "codec=2", "version", 1.0),
        (
            "/api/v1/configmaps?resourceVersion=0&labelSelector=app%3Deven",
            "codec=1",
            "options",
            1.0,
        ),
        ("/version", "codec=1", "options", 2.0),
        ("/api/v1/namespaces/ns1/configmaps/cm-a", "codec=1", "options", 3.0),
        ("/api/v1/configmaps?labelSelector=!!", "codec=1", "options", 4.0),
        ("/api/v1/events?resourceVersion=0", "codec=1", "absent", 1.0),
    ] {
        assert_eq!(first.seed(path, header).await.status, 503, "{path}");
        assert_eq!(first.seeds_served(outcome).await, count, "{path}");
    }
    let shadow = Proxy::before(first.upstream.clone(), "", |config| {
        config.shadow.mode = ShadowMode::Compare;
    })
    .await;
    assert_eq!(shadow.seed(ANY, "codec=1").await.status, 503);
    assert_eq!(shadow.seeds_served("shadow").await, 1.0);
}

/// A Weir that is about to drain sends nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sibling_that_stops_refuses() {
    let upstream = Simulator::start(SimulatorOptions::default()).await.unwrap();
    seed(&upstream);
    upstream.store().create(pod("ns1", "more", "node-9")).unwrap();
    let first = Proxy::before(upstream, "", |config| {
        config.server.shutdown_delay = Duration::from_secs(20);
    })
    .await;
    first.warm(CONFIGMAPS).await;
    first.until_watching(1).await;
    first.stop.cancel();
    eventually("it refuses", async || {
        first.seed(ANY, "codec=1").await.status == 503 && first.seeds_served("stopping").await > 0.0
    })
    .await;
    let second = beside(&first, &[first.plain()]).await;
    assert_eq!(second.get(ANY).await.cache(), "hit");
    assert_eq!(second.seeds("refused").await, 1.0);
}

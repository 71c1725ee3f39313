//! An API server that starts, or that lags behind, refuses what it allows a moment later.

use serde_json::json;
use weir::simulator::{Action, Cut};

use crate::harness::{Proxy, configmap, widget};
use crate::wait::eventually;

const CONFIGMAPS: &str = "/api/v1/configmaps";
const WIDGETS: &str = "/apis/example.com/v1/widgets";
/// Watches of definitions, on which the caches of custom resources depend.
const DEFINITIONS: &str = "customresourcedefinitions";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_for_seconds_costs_no_cache_and_no_watch() {
    tokio::join!(outlives(401), outlives(403), outlives(404), outlives(429), outlives(503));
}

/// Answers every request with `code` until each reflector was refused twice.
async fn outlives(code: u16) {
    let proxy = Proxy::seeded().await;
    let mut watches = Vec::new();
    for path in [CONFIGMAPS, WIDGETS] {
        proxy.warm(path).await;
        let watch = format!("{path}?watch=1&resourceVersion=0&labelSelector=new%3Dyes");
        watches.push(proxy.watch(&watch).await);
    }
    let requests = proxy.upstream.requests();
    eventually("all watches are open", async || {
        ["configmaps", "widgets", DEFINITIONS]
            .iter()
            .all(|resource| requests.count("watch", resource) > 0)
    })
    .await;
    requests.reset();
    proxy.upstream.faults().add("*", "*", u32::MAX, Action::Status(code));
    proxy.upstream.faults().cut_watches(None, Cut::Reset);
    eventually("each was refused twice", async || {
        ["configmaps", "widgets", DEFINITIONS]
            .iter()
            .all(|resource| requests.count("watch", resource) > 1)
    })
    .await;
    for path in [CONFIGMAPS, WIDGETS] {
        // The second refusal may still be on its way.
        eventually("the cache says how old it is", async || {
            let list = proxy.get(&format!("{path}?resourceVersion=0")).await;
            assert_eq!(list.status.as_u16(), 200, "{code} {path}");
            list.cache().starts_with("hit; age=")
        })
        .await;
    }
    proxy.upstream.faults().clear();

    let labels = json!({"new": "yes"});
    for (watch, mut object) in
        watches.iter_mut().zip([configmap("ns1", "late", 0), widget("ns1", "late", "red")])
    {
        assert_eq!(watch.cache(), "hit");
        object["metadata"]["labels"] = labels.clone();
        proxy.upstream.store().create(object).unwrap();
        assert_eq!(watch.event().await["object"]["metadata"]["name"], "late", "{code}");
    }
    assert!(proxy.metric("weir_cache_stops_total", &[]).await < 1.0, "{code}");
}

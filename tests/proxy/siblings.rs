//! A new Weir fills its caches from another one, proves what it got, and costs the API server no
//! list. A wrong sibling costs one list and harms nothing.

mod discovery;
mod impostors;
mod refusals;
mod restart;

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;
use weir::config::Config;
use weir::simulator::{Damage, LoggedRequest, Simulator, SimulatorOptions};

use crate::client::{Answer, Call};
use crate::harness::{Proxy, configmap};
use crate::wait::eventually;

const CONFIGMAPS: &str = "/api/v1/configmaps";
const ANY: &str = "/api/v1/configmaps?resourceVersion=0";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const SEED: &str = "x-weir-seed";

/// A Weir with a warm cache of config maps, before a seeded upstream.
async fn first() -> Proxy {
    let proxy = Proxy::seeded().await;
    proxy.warm(CONFIGMAPS).await;
    proxy.until_watching(1).await;
    proxy
}

/// Starts another Weir before the upstream of `first`, which may ask these siblings.
async fn beside(first: &Proxy, siblings: &[SocketAddr]) -> Proxy {
    adjusted(first, siblings, |_| {}).await
}

/// The same with another time limit.
async fn within(first: &Proxy, siblings: &[SocketAddr], timeout: Duration) -> Proxy {
    adjusted(first, siblings, |config| config.cache.siblings.timeout = timeout).await
}

/// The same with other settings.
async fn adjusted(
    first: &Proxy,
    siblings: &[SocketAddr],
    adjust: impl FnOnce(&mut Config),
) -> Proxy {
    let urls = siblings.iter().map(|address| format!("http://{address}")).collect();
    let adjust = |config: &mut Config| {
        config.cache.siblings.addresses = urls;
        // The tests assert the outcome, however slow the machine is.
        config.cache.siblings.timeout = Duration::from_secs(60);
        adjust(config);
    };
    Proxy::before(first.upstream.clone(), "", adjust).await
}

/// An upstream with an empty namespace.
async fn without_configmaps() -> Simulator {
    let upstream = Simulator::start(SimulatorOptions::default()).await.unwrap();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns1"}});
    upstream.store().create(namespace).unwrap();
    upstream
}

impl Proxy {
    /// Returns how many caches were or were not filled from a sibling, by outcome.
    async fn seeds(&self, outcome: &str) -> f64 {
        self.metric("weir_seeds_total", &[&format!("outcome=\"{outcome}\"")]).await
    }

    /// Waits until this number of caches were filled from a sibling: a cache answers a moment
    /// before it is counted.
    async fn has_adopted(&self, caches: u32) {
        eventually("caches are filled from a sibling", async || {
            self.seeds("adopted").await == f64::from(caches)
        })
        .await;
    }

    async fn seeds_served(&self, outcome: &str) -> f64 {
        self.metric("weir_seeds_served_total", &[&format!("outcome=\"{outcome}\"")]).await
    }

    /// Asks for the state of a cache, as a sibling does.
    async fn seed(&self, path: &str, header: &str) -> Answer {
        self.call(&Call::get(path).header(SEED, header)).await
    }

    /// Waits until this number of caches of config maps have an open watch. Before, no sibling gets
    /// them.
    async fn until_watching(&self, caches: u32) {
        let labels = ["resource=\"configmaps\"", "state=\"watching\""];
        eventually("the watches are open", async || {
            self.metric("weir_reflector_state", &labels).await == f64::from(caches)
        })
        .await;
    }

    /// Waits until a list from the cache equals the upstream's.
    async fn has_it_all(&self) {
        eventually("the cache equals the upstream", async || {
            let answer = self.get(ANY).await;
            let direct = self.direct(&Call::get(ANY)).await;
            answer.cache() == "hit" && answer.json()["items"] == direct.json()["items"]
        })
        .await;
    }
}

/// Returns the requests since the last reset that read a whole collection of a resource.
fn lists_of(upstream: &Simulator, resource: &str) -> Vec<String> {
    let is_whole = |it: &LoggedRequest| {
        let has = |text: &str| it.query.contains(text);
        match it.verb.as_str() {
            // A page at one resourceVersion compares, and one object is a probe.
            "list" => {
                !has("resourceVersionMatch=Exact")
                    && !has("continue=")
                    && !has("limit=1&")
                    && !it.query.ends_with("limit=1")
            }
            "watch" => has("sendInitialEvents=true") && !has("labelSelector"),
            _ => false,
        }
    };
    let recent = upstream.requests().recent();
    let lists = recent.iter().filter(|it| it.resource == resource && is_whole(it));
    lists.map(|it| format!("{} {}?{}", it.verb, it.path, it.query)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_weir_fills_from_a_sibling_and_lists_nothing() {
    let first = first().await;
    let protobuf = |path: &str| Call::get(path).header("accept", PROTOBUF);
    first.call(&protobuf(ANY)).await;
    first.until_watching(2).await;
    first.upstream.requests().reset();
    let second = beside(&first, &[first.plain()]).await;
    let answer = second.get(ANY).await;
    assert_eq!(answer.cache(), "hit");
    let direct = second.direct(&Call::get(ANY)).await;
    assert_eq!(answer.json()["items"], direct.json()["items"]);
    let answer = second.call(&protobuf(ANY)).await;
    assert_eq!(answer.cache(), "hit");
    let of_first = first.call(&protobuf(ANY)).await;
    assert_eq!(answer.body.len(), of_first.body.len());
    // The list of `direct` is the only one.
    assert_eq!(
        lists_of(&first.upstream, "configmaps"),
        ["list /api/v1/configmaps?resourceVersion=0"]
    );
    second.has_adopted(2).await;
    assert_eq!(first.seeds_served("sent").await, 2.0);
    assert!(second.metric("weir_seed_bytes_total", &[]).await > 1000.0);
    assert_eq!(
        second.metric("weir_reflector_relists_total", &["resource=\"configmaps\""]).await,
        0.0
    );

    // It goes on by its own watch.
    first.upstream.store().create(configmap("ns2", "later", 1)).unwrap();
    second.catch_up(CONFIGMAPS).await;
    second.has_it_all().await;
}

/// A watch that ended at the sibling goes on at the new Weir, although its resourceVersion is older
/// than the sibling's newest state.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_from_an_older_resource_version_gets_every_event() {
    let first = first().await;
    let at =
        first.get(ANY).await.json()["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    for number in 0..5 {
        first.upstream.store().update(configmap("ns1", "cm-b", 100 + number)).unwrap();
    }
    first.catch_up(CONFIGMAPS).await;
    first.upstream.requests().reset();
    let second = beside(&first, &[first.plain()]).await;
    let path = format!("{CONFIGMAPS}?watch=1&resourceVersion={at}&timeoutSeconds=60");
    let mut watch = second.watch(&path).await;
    assert_eq!(watch.cache(), "hit");
    for number in 0..5 {
        let event = watch.event().await;
        assert_eq!(event["object"]["data"]["n"], (100 + number).to_string());
    }
    second.has_adopted(1).await;
    assert_eq!(lists_of(&first.upstream, "configmaps"), [""; 0]);
}

/// A sibling answers from a cache that it has, and starts none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_sibling_does_not_have_is_listed_and_costs_the_sibling_nothing() {
    let first = first().await;
    first.upstream.requests().reset();
    let second = beside(&first, &[first.plain()]).await;
    let pods = "/api/v1/pods?resourceVersion=0";
    assert_eq!(second.get(pods).await.cache(), "hit");
    assert_eq!(lists_of(&first.upstream, "pods").len(), 1);
    assert_eq!((second.seeds("refused").await, first.seeds_served("absent").await), (1.0, 1.0));
    assert_eq!(first.metric("weir_cache_objects", &["resource=\"pods\""]).await, 0.0);
    let refused = first.seed(pods, "codec=1").await;
    assert_eq!((refused.status.as_u16(), refused.cache()), (503, ""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_whole_collections_of_the_same_form_are_sent() {
    let first = first().await;
    let sent = first.seed(ANY, "codec=1").await;
    assert_eq!((sent.status.as_u16(), sent.cache()), (200, "hit"));
    assert!(sent.headers[SEED].to_str().unwrap().contains("; objects=12; digest="));
    first.upstream.requests().reset();
    for (path, header) in [
        (ANY, "codec=2"),
        (ANY, ""),
        ("/api/v1/configmaps?resourceVersion=0&labelSelector=app%3Deven", "codec=1"),
        ("/api/v1/configmaps?resourceVersion=0&fieldSelector=metadata.name%3Dcm-a", "codec=1"),
        ("/api/v1/configmaps", "codec=1"),
        ("/api/v1/configmaps?limit=2", "codec=1"),
        ("/api/v1/configmaps?watch=1&resourceVersion=0", "codec=1"),
        ("/api/v1/namespaces/ns1/configmaps/cm-a", "codec=1"),
        ("/version", "codec=1"),
    ] {
        let refused = first.seed(path, header).await;
        assert!(!refused.headers.contains_key(SEED), "{path}");
        assert_eq!(refused.status, 503, "{path}: {}", refused.text());
    }
    assert_eq!(lists_of(&first.upstream, "configmaps"), [""; 0], "nothing is forwarded");
}

/// A sibling that lost an event has an old object, which the API server contradicts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sibling_with_a_wrong_state_costs_one_list() {
    for damage in [Damage::LostEvent, Damage::OldBody] {
        let first = first().await;
        first.upstream.faults().damage("configmaps", "ns1/cm-b", damage);
        first.upstream.store().update(configmap("ns1", "cm-b", 77)).unwrap();
        first.upstream.store().update(configmap("ns2", "cm-a", 78)).unwrap();
        first.catch_up(CONFIGMAPS).await;
        first.upstream.requests().reset();
        let second = beside(&first, &[first.plain()]).await;
        let answer = second.get(ANY).await;
        assert_eq!(second.seeds("different").await, 1.0, "{damage:?}");
        assert_eq!(lists_of(&first.upstream, "configmaps").len(), 1, "{damage:?}");
        let direct = second.direct(&Call::get(ANY)).await;
        assert_eq!(answer.json()["items"], direct.json()["items"], "{damage:?}");
    }
}

/// An object that exists no more at the API server, and one that the sibling never saw.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sibling_with_other_objects_costs_one_list() {
    for is_missing in [true, false] {
        let first = first().await;
        let api = first.upstream.store();
        let key = if is_missing { "ns1/new" } else { "ns1/cm-b" };
        first.upstream.faults().damage("configmaps", key, Damage::LostEvent);
        if is_missing {
            api.create(configmap("ns1", "new", 1)).unwrap();
        } else {
            let call = Call::new(http::Method::DELETE, "/api/v1/namespaces/ns1/configmaps/cm-b");
            first.direct(&call).await;
        }
        api.update(configmap("ns2", "cm-a", 78)).unwrap();
        first.catch_up(CONFIGMAPS).await;
        first.upstream.requests().reset();
        let second = beside(&first, &[first.plain()]).await;
        second.get(ANY).await;
        assert_eq!(second.seeds("different").await, 1.0, "missing: {is_missing}");
        assert_eq!(lists_of(&first.upstream, "configmaps").len(), 1);
        second.has_it_all().await;
    }
}

/// The comparison finds damage that the pages before adoption do not show.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_seed_that_is_wrong_is_replaced() {
    let upstream = without_configmaps().await;
    for number in 0..2500 {
        upstream.store().create(configmap("ns1", &format!("cm-{number:05}"), number)).unwrap();
    }
    let first = Proxy::before(upstream, "", |_| {}).await;
    first.warm(CONFIGMAPS).await;
    first.until_watching(1).await;
    first.upstream.faults().damage("configmaps", "ns1/cm-01200", Damage::LostEvent);
    first.upstream.store().update(configmap("ns1", "cm-01200", 7)).unwrap();
    first.upstream.store().update(configmap("ns1", "cm-00001", 7)).unwrap();
    first.catch_up(CONFIGMAPS).await;
    let second = beside(&first, &[first.plain()]).await;
    let at =
        second.get(ANY).await.json()["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let path = format!("{CONFIGMAPS}?watch=1&resourceVersion={at}&timeoutSeconds=60");
    let mut watch = second.watch(&path).await;
    // One page of five holds the object, and may be the one that is compared first.
    if second.seeds("different").await == 0.0 {
        second.has_adopted(1).await;
        let last = watch.event().await;
        assert_eq!(last["object"]["code"], 410, "{last}");
        eventually("it was found", async || second.seeds("wrong").await == 1.0).await;
    }
    second.has_it_all().await;
}

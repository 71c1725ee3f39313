//! Caches are compared with the upstream. One that is wrong is replaced, and its clients list.

use std::time::Duration;

use weir::config::VerifyMode;
use weir::config::seams::Seams;
use weir::simulator::{Damage, Simulator, SimulatorOptions};

use crate::client::Call;
use crate::harness::{Proxy, configmap, seed};
use crate::wait::eventually;

const CONFIGMAPS: &str = "/api/v1/configmaps";
const DAMAGED: &str = "ns1/cm-b";

/// Starts a Weir that compares all objects each second, byte by byte, with a warm cache of config
/// maps.
async fn verified(mode: VerifyMode) -> Proxy {
    verified_by(mode, usize::MAX).await
}

/// The same for a number of bytes, about, that are compared each second.
async fn verified_by(mode: VerifyMode, whole_bytes: usize) -> Proxy {
    let upstream = Simulator::start(SimulatorOptions::default()).await.unwrap();
    seed(&upstream);
    let seams = Seams {
        verify_round: Duration::from_secs(1),
        verify_whole_bytes: whole_bytes,
        ..Seams::default()
    };
    let adjust = |config: &mut weir::config::Config| config.cache.verify = mode;
    let proxy = Proxy::before_with(seams, upstream, "", adjust).await;
    proxy.warm(CONFIGMAPS).await;
    proxy
}

impl Proxy {
    /// Damages the next event of an object, and changes the object.
    fn change_damaged(&self, damage: Damage) {
        self.upstream.faults().damage("configmaps", DAMAGED, damage);
        self.upstream.store().update(configmap("ns1", "cm-b", 77)).unwrap();
        // A later change shows that the watch has passed the damaged one.
        self.upstream.store().update(configmap("ns2", "cm-a", 78)).unwrap();
    }

    /// Lists from the cache, and returns the path of a watch from there.
    async fn path_after_list(&self) -> String {
        let list = self.get(&format!("{CONFIGMAPS}?resourceVersion=0")).await.json();
        let at = list["metadata"]["resourceVersion"].as_str().unwrap();
        format!("{CONFIGMAPS}?watch=1&resourceVersion={at}&timeoutSeconds=60")
    }

    async fn checks(&self, outcome: &str) -> f64 {
        let outcome = format!("outcome=\"{outcome}\"");
        let labels = [outcome.as_str(), "resource=\"configmaps\""];
        let total = self.metric("weir_cache_checks_total", &labels).await;
        let count = ["check=\"count\"", labels[0], labels[1]];
        total - self.metric("weir_cache_checks_total", &count).await
    }

    async fn quarantines(&self) -> f64 {
        self.metric("weir_notable_events_total", &["kind=\"quarantine\""]).await
    }

    /// Waits until a list from the cache equals the upstream's.
    async fn equals_upstream(&self) {
        let list = format!("{CONFIGMAPS}?resourceVersion=0");
        eventually("the cache answers again, and rightly", async || {
            let answer = self.get(&list).await;
            let direct = self.direct(&Call::get(&list)).await;
            answer.cache() == "hit" && answer.json()["items"] == direct.json()["items"]
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cache_that_lost_an_event_is_replaced_and_its_clients_list() {
    let proxy = verified(VerifyMode::Enforce).await;
    let path = proxy.path_after_list().await;
    let mut watch = proxy.watch(&path).await;
    assert_eq!(watch.cache(), "hit");
    proxy.change_damaged(Damage::LostEvent);
    let first = watch.event().await;
    assert_eq!(first["object"]["metadata"]["name"], "cm-a", "the event of cm-b was lost");
    let last = watch.event().await;
    assert_eq!(last["type"], "ERROR", "{last}");
    assert_eq!(last["object"]["code"], 410);
    assert!(watch.rest().await.is_empty());
    // A client that received something wrong may not resume, from whichever server.
    let mut resumed = proxy.watch(&path).await;
    assert_eq!(resumed.event().await["object"]["code"], 410);
    proxy.equals_upstream().await;
    let mut resumed = proxy.watch(&path).await;
    assert_eq!(resumed.cache(), "hit");
    assert_eq!(resumed.event().await["object"]["code"], 410);
    assert_eq!(proxy.quarantines().await, 2.0, "one begin and one end");
    assert_eq!(proxy.metric("weir_cache_quarantined", &[]).await, 0.0);
    let caches = proxy.admin("/api/caches").await.json();
    let mut caches = caches["items"].as_array().unwrap().iter();
    let configmaps = caches.find(|cache| cache["resource"] == "configmaps").unwrap();
    assert_eq!(configmaps["lastDifference"]["wrong"], "cache");
    assert_eq!(configmaps["lastDifference"]["objects"][0]["key"], DAMAGED);
    assert!(!configmaps["lastDifference"].to_string().contains("text"), "no values");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_body_under_a_new_resource_version_is_found() {
    let proxy = verified(VerifyMode::Enforce).await;
    proxy.change_damaged(Damage::OldBody);
    eventually("the cache is replaced", async || proxy.quarantines().await >= 2.0).await;
    proxy.equals_upstream().await;
}

/// The collection has several pages, whose metadata are right.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_body_in_a_large_collection_is_found() {
    let proxy = verified(VerifyMode::Enforce).await;
    for number in 0..1200 {
        proxy.upstream.store().create(configmap("ns1", &format!("n-{number}"), number)).unwrap();
    }
    proxy.change_damaged(Damage::OldBody);
    eventually("the cache is replaced", async || proxy.quarantines().await >= 2.0).await;
    proxy.equals_upstream().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_is_there_again_after_its_deletion_is_found() {
    let proxy = verified(VerifyMode::Enforce).await;
    proxy.upstream.faults().damage("configmaps", DAMAGED, Damage::OldBody);
    let call = Call::new(http::Method::DELETE, "/api/v1/namespaces/ns1/configmaps/cm-b");
    assert_eq!(proxy.direct(&call).await.status, 200);
    eventually("the cache is replaced", async || proxy.quarantines().await >= 2.0).await;
    proxy.equals_upstream().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_in_another_namespace_is_found() {
    let proxy = verified(VerifyMode::Enforce).await;
    proxy.change_damaged(Damage::OtherNamespace);
    let elsewhere = "/api/v1/namespaces/elsewhere/configmaps?resourceVersion=0";
    eventually("the cache is replaced", async || proxy.quarantines().await >= 2.0).await;
    proxy.equals_upstream().await;
    assert_eq!(proxy.get(elsewhere).await.json()["items"], serde_json::json!([]));
}

/// The cache ignores it, and is compared.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_comes_too_late_is_found() {
    let proxy = verified(VerifyMode::Enforce).await;
    let mut watch = proxy.watch(&proxy.path_after_list().await).await;
    proxy.change_damaged(Damage::LateEvent);
    assert_eq!(watch.event().await["object"]["metadata"]["name"], "cm-a", "cm-b is late");
    let last = watch.event().await;
    assert_eq!((&last["type"], &last["object"]["code"]), (&"ERROR".into(), &410.into()), "{last}");
    proxy.equals_upstream().await;
    let observed = verified(VerifyMode::Observe).await;
    observed.change_damaged(Damage::LateEvent);
    eventually("it is counted", async || {
        observed.metric("weir_cache_checks_total", &["check=\"order\""]).await == 1.0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_doubled_event_changes_nothing() {
    let proxy = verified(VerifyMode::Enforce).await;
    let mut watch = proxy.watch(&proxy.path_after_list().await).await;
    proxy.change_damaged(Damage::DoubledEvent);
    for name in ["cm-b", "cm-a"] {
        assert_eq!(watch.event().await["object"]["metadata"]["name"], name);
    }
    let compared = proxy.checks("equal").await;
    eventually("it was compared", async || proxy.checks("equal").await > compared + 1.0).await;
    assert_eq!(proxy.checks("different").await + proxy.quarantines().await, 0.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_cache_is_only_reported_by_default() {
    let proxy = verified(VerifyMode::Observe).await;
    proxy.change_damaged(Damage::LostEvent);
    eventually("it is reported", async || proxy.checks("different").await >= 1.0).await;
    assert_eq!(proxy.get(&format!("{CONFIGMAPS}?resourceVersion=0")).await.cache(), "hit");
    assert_eq!(proxy.quarantines().await, 0.0);
}

/// The watch cache of the API server has lost an object that etcd has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_whose_cache_is_wrong_is_reported_and_weirs_is_kept() {
    let proxy = verified(VerifyMode::Enforce).await;
    proxy.upstream.faults().damage("configmaps", DAMAGED, Damage::Hidden);
    eventually("it is reported", async || proxy.checks("upstream").await >= 1.0).await;
    let list = proxy.get(&format!("{CONFIGMAPS}?resourceVersion=0")).await;
    assert!(list.cache() == "hit" && list.text().contains("\"cm-b\""), "{}", list.text());
    assert_eq!(proxy.quarantines().await + proxy.checks("different").await, 0.0);
}

/// Metadata in protobuf, of a custom resource too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn right_caches_of_every_kind_are_equal() {
    let proxy = verified_by(VerifyMode::Enforce, 1024).await;
    for number in 0..1200 {
        proxy.upstream.store().create(configmap("ns2", &format!("n-{number}"), number)).unwrap();
    }
    for path in ["/apis/example.com/v1/widgets", "/api/v1/pods", "/api/v1/nodes"] {
        proxy.warm(path).await;
    }
    for resource in ["configmaps", "widgets", "pods", "nodes"] {
        eventually("it was compared", async || {
            let resource = format!("resource=\"{resource}\"");
            let labels = [resource.as_str(), "outcome=\"equal\""];
            proxy.metric("weir_cache_checks_total", &labels).await >= 3.0
        })
        .await;
    }
    let labels = ["resource=\"configmaps\"", "check=\"page\"", "outcome=\"equal\""];
    assert!(proxy.metric("weir_cache_checks_total", &labels).await >= 1.0);
    for outcome in ["different", "upstream", "malformed", "refused"] {
        assert_eq!(proxy.checks(outcome).await, 0.0, "{outcome}");
    }
    assert_eq!(proxy.quarantines().await, 0.0);
}

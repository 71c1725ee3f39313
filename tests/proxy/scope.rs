//! An identity with permissions in one namespace: a cache of that namespace serves it, and the
//! upstream answers the rest with 403.

use weir::simulator::{Rule, User};

use crate::client::Call;
use crate::harness::{Proxy, configmap, upstream_of};
use crate::wait::eventually;

const TOKEN: &str = "only-ns1";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permissions_in_one_namespace_are_enough_for_its_cache() {
    let proxy = restricted().await;
    let path = "/api/v1/namespaces/ns1/configmaps";
    proxy.warm(path).await;
    let list = format!("{path}?resourceVersion=0");
    assert_eq!(proxy.get(&list).await.text(), direct(&proxy, &list).await.text());
    let get = format!("{path}/cm-a?resourceVersion=0");
    assert_eq!(proxy.get(&get).await.cache(), "hit");
    let mut watch = proxy.watch(&format!("{path}?watch=1&resourceVersion=0")).await;
    assert_eq!(watch.cache(), "hit");
    proxy.upstream.store().create(configmap("ns2", "elsewhere", 1)).unwrap();
    proxy.upstream.store().create(configmap("ns1", "here", 1)).unwrap();
    let frames = watch.until("here").await;
    assert!(!frames.concat().contains("elsewhere"));

    let watches = proxy.upstream.requests().recent();
    let narrow =
        watches.iter().filter(|seen| seen.verb == "watch" && seen.resource == "configmaps");
    let paths: Vec<_> = narrow.map(|seen| seen.path.as_str()).collect();
    assert!(paths.contains(&path), "{paths:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forbidden_requests_get_the_upstreams_403() {
    let proxy = restricted().await;
    proxy.warm("/api/v1/namespaces/ns1/configmaps").await;
    for path in [
        "/api/v1/configmaps",
        "/api/v1/configmaps?resourceVersion=0",
        "/api/v1/configmaps?watch=1&resourceVersion=0",
        "/api/v1/configmaps?resourceVersion=0&fieldSelector=metadata.namespace%3Dns1",
        "/api/v1/namespaces/ns2/configmaps?resourceVersion=0",
        "/api/v1/namespaces/ns2/configmaps/cm-a?resourceVersion=0",
        "/api/v1/namespaces/ns1/pods?resourceVersion=0",
        "/api/v1/nodes?resourceVersion=0",
    ] {
        let (through, direct) = (proxy.get(path).await, direct(&proxy, path).await);
        assert_eq!(direct.status, 403, "{path}");
        assert_eq!((through.status, through.text()), (direct.status, direct.text()), "{path}");
        assert_eq!(through.headers["x-content-type-options"], "nosniff");
        assert!(through.cache().starts_with("forward; reason="), "{path}: {}", through.cache());
    }
    let forbidden = proxy.get("/api/v1/configmaps?resourceVersion=0").await;
    assert_eq!(forbidden.cache(), "forward; reason=forbidden");
}

/// Such an identity may not read the namespace kube-system, which identifies the cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rewind_is_noticed_although_the_cluster_cannot_be_identified() {
    let proxy = restricted().await;
    let path = "/api/v1/namespaces/ns1/configmaps";
    proxy.warm(path).await;
    assert_eq!(proxy.metric("weir_upstream_cluster_identified", &[]).await, 0.0);
    let before = proxy.upstream.snapshot();
    for number in 0..5 {
        proxy.upstream.store().create(configmap("ns1", &format!("lost-{number}"), 1)).unwrap();
    }
    proxy.catch_up(path).await;
    proxy.upstream.rewind(&before);
    proxy.upstream.store().create(configmap("ns1", "kept", 1)).unwrap();
    eventually("the restored objects", async || {
        let list = proxy.get(&format!("{path}?resourceVersion=0")).await;
        list.cache() == "hit" && list.text().contains("kept") && !list.text().contains("lost")
    })
    .await;
    assert!(proxy.metric("weir_history_rewinds_total", &[]).await >= 1.0);
}

async fn restricted() -> Proxy {
    let rule = Rule::new(&["get", "list", "watch"], &["configmaps"], &["ns1"]);
    let users = vec![User::with_rules(TOKEN, "narrow", vec![rule])];
    let upstream = upstream_of(users).await;
    Proxy::before(upstream, TOKEN, |_| {}).await
}

async fn direct(proxy: &Proxy, path: &str) -> crate::client::Answer {
    proxy.direct(&Call::get(path).header("authorization", &format!("Bearer {TOKEN}"))).await
}

//! A reflector that moves to another API server: nothing that a client was shown is taken back, and
//! no client gets a 410 because of a server that lags.

use serde_json::Value;
use weir::simulator::LoggedRequest;

use crate::harness::configmap;
use crate::servers::Rig;
use crate::wait::eventually;

const CONFIGMAPS: &str = "/api/v1/configmaps";

fn resource_version(list: &Value) -> u64 {
    list["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

fn is_reflectors_watch(request: &&LoggedRequest) -> bool {
    request.path == CONFIGMAPS && request.verb == "watch"
}

/// Returns the API server of the reflector's latest watch.
async fn server(rig: &Rig) -> usize {
    let latest = || {
        let recent = rig.proxy.upstream.requests().recent();
        recent.iter().rfind(is_reflectors_watch).map(|watch| watch.server)
    };
    eventually("the reflector's watch begins", async || latest().is_some()).await;
    latest().unwrap()
}

/// The reflector's server stops while the others lag behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reflector_that_moves_waits_for_servers_that_lag_and_takes_nothing_back() {
    let rig = Rig::new().await;
    let upstream = &rig.proxy.upstream;
    rig.proxy.warm(CONFIGMAPS).await;
    rig.proxy.catch_up(CONFIGMAPS).await;
    let home = server(&rig).await;
    let others: Vec<usize> = (0..3).filter(|server| *server != home).collect();
    others.iter().for_each(|server| upstream.pause_caches(*server));
    upstream.store().create(configmap("ns1", "ahead", 1)).unwrap();
    rig.proxy.catch_up(CONFIGMAPS).await;
    let newer = rig.proxy.get(&format!("{CONFIGMAPS}?resourceVersion=0")).await;
    assert!(newer.text().contains("ahead"));
    let floor = resource_version(&newer.json());
    let path = format!("{CONFIGMAPS}?watch=1&resourceVersion={floor}");
    let mut watch = rig.proxy.watch(&path).await;
    let lists = upstream.requests().count("list", "configmaps");

    upstream.stop_server(home);
    let left =
        async || rig.proxy.metric("weir_reflector_watches_total", &[r#"result="lagging""#]).await;
    eventually("servers that lag are left", async || {
        let list = rig.proxy.get(&format!("{CONFIGMAPS}?resourceVersion=0")).await;
        assert!(resource_version(&list.json()) >= floor && list.text().contains("ahead"));
        left().await >= 2.0
    })
    .await;
    // Only probes and questions for one object, no list of all.
    assert!(upstream.requests().count("list", "configmaps") >= lists);
    upstream.store().create(configmap("ns1", "behind", 1)).unwrap();
    upstream.resume_caches(others[1]);
    // The next event of the client's watch is the next event.
    assert_eq!(watch.event().await["object"]["metadata"]["name"], "behind");
    assert_eq!(server(&rig).await, others[1]);
    let relists = rig.proxy.metric("weir_reflector_relists_total", &[]).await;
    let starts = rig.proxy.metric("weir_reflector_relists_total", &[r#"cause="start""#]).await;
    assert_eq!(relists, starts, "no list but the first ones");
    assert_eq!(rig.proxy.metric("weir_history_rewinds_total", &[]).await, 0.0);
}

/// The watch caches of the servers that do not send the reflector's watch lag, and still have an
/// object whose deletion the cache has shown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_object_is_not_shown_again_by_a_server_that_lags() {
    let rig = Rig::new().await;
    let upstream = &rig.proxy.upstream;
    upstream.store().create(configmap("ns1", "doomed", 1)).unwrap();
    rig.proxy.warm(CONFIGMAPS).await;
    rig.proxy.catch_up(CONFIGMAPS).await;
    let home = server(&rig).await;
    (0..3).filter(|server| *server != home).for_each(|server| upstream.pause_caches(server));
    upstream.store().delete("v1", "configmaps", "ns1", "doomed").unwrap();
    rig.proxy.catch_up(CONFIGMAPS).await;
    let list = rig.proxy.get(&format!("{CONFIGMAPS}?resourceVersion=0")).await;
    assert!(!list.text().contains("doomed") && list.cache() == "hit", "{}", list.cache());
    let not_older = resource_version(&list.json());
    for version in [0, not_older] {
        let path = format!("/api/v1/namespaces/ns1/configmaps/doomed?resourceVersion={version}");
        let gone = rig.proxy.get(&path).await;
        assert_eq!((gone.status.as_u16(), gone.cache()), (404, "hit"), "{}", gone.text());
        assert_eq!(gone.json()["details"]["name"], "doomed");
    }
}

/// All servers agree on a state below what was shown: etcd was restored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_history_is_rewound_when_all_servers_agree() {
    let rig = Rig::new().await;
    let upstream = &rig.proxy.upstream;
    let saved = upstream.snapshot();
    upstream.store().create(configmap("ns1", "lost", 1)).unwrap();
    rig.proxy.warm(CONFIGMAPS).await;
    rig.proxy.catch_up(CONFIGMAPS).await;
    upstream.rewind(&saved);
    // A reflector that backs off asks again early when a read needs a proof of freshness.
    let start = format!(
        "{CONFIGMAPS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
         &allowWatchBookmarks=true&timeoutSeconds=1"
    );
    eventually("the rewind is detected", async || {
        rig.proxy.get(&start).await;
        rig.proxy.metric("weir_history_rewinds_total", &[]).await >= 1.0
    })
    .await;
    eventually("the old state is listed", async || {
        let list = rig.proxy.get(&format!("{CONFIGMAPS}?resourceVersion=0")).await;
        list.status == 200 && !list.text().contains("lost")
    })
    .await;
}

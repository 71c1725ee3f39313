//! Events and states after a restore of etcd are never joined with the history that the caches
//! still hold.

use weir::simulator::Action;

use crate::harness::{Proxy, configmap};
use crate::wait::eventually;

const CONFIGMAPS: &str = "/api/v1/configmaps";

/// Etcd goes back by ten objects and gets five others. The reflector cannot open a watch, so that
/// it does not notice that.
async fn restored() -> Proxy {
    let proxy = Proxy::seeded().await;
    let upstream = &proxy.upstream;
    proxy.warm(CONFIGMAPS).await;
    let saved = upstream.snapshot();
    for number in 0..10 {
        let lost = configmap("ns1", &format!("lost-{number}"), 1);
        upstream.store().create(lost).unwrap();
    }
    proxy.catch_up(CONFIGMAPS).await;
    upstream.faults().add("watch", "configmaps", u32::MAX, Action::Status(500));
    upstream.rewind(&saved);
    for number in 0..5 {
        let kept = configmap("ns1", &format!("kept-{number}"), 1);
        upstream.store().create(kept).unwrap();
    }
    proxy
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pages_of_a_list_are_of_one_history() {
    let proxy = restored().await;
    let (mut token, mut pages) = (String::new(), String::new());
    loop {
        let path = format!("{CONFIGMAPS}?limit=3&continue={token}");
        let page = proxy.get(&path).await;
        assert_eq!(page.status, 200, "{}", page.text());
        pages.push_str(&page.text());
        token = page.json()["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
        if token.is_empty() {
            break;
        }
    }
    assert!(!pages.contains("lost-"), "{pages}");
    for number in 0..5 {
        assert!(pages.contains(&format!("kept-{number}")), "{pages}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_does_not_go_on_in_the_lost_history() {
    let proxy = restored().await;
    let list = proxy.get(&format!("{CONFIGMAPS}?limit=1")).await.json();
    let listed_version = list["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let path = format!("{CONFIGMAPS}?watch=1&resourceVersion={listed_version}&timeoutSeconds=30");
    let opened = proxy.watch(&path);
    let returned = async {
        eventually("the reflector has tried", async || {
            proxy.metric("weir_reflector_watches_total", &[r#"result="error""#]).await >= 1.0
        })
        .await;
        proxy.upstream.faults().clear();
    };
    let (mut watch, ()) = tokio::join!(opened, returned);
    eventually("the rewind is detected", async || {
        proxy.metric("weir_history_rewinds_total", &[]).await >= 1.0
    })
    .await;
    proxy.upstream.store().create(configmap("ns1", "kept-5", 1)).unwrap();
    let first = watch.event().await;
    let is_expired = first["type"] == "ERROR" && first["object"]["code"] == 410;
    assert!(is_expired || first["object"]["metadata"]["name"] == "kept-5", "{first}");
}

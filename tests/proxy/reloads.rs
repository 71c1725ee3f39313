//! A configuration that changes while Weir runs (`docs/decisions/configuration.md`).

use std::os::unix::fs::symlink;

use weir::config::{CacheConfig, Config, OnRelist, ResourcePattern};
use weir::simulator::{Simulator, SimulatorOptions};

use crate::harness::{POD, Proxy, pod, seed};
use crate::wait::eventually;

const PODS: &str = "/api/v1/pods?resourceVersion=0";

fn yaml(proxy: &Proxy, change: impl FnOnce(&mut Config)) -> String {
    let mut config = proxy.config.clone();
    change(&mut config);
    config.to_yaml()
}

fn exclude_pods(config: &mut Config) {
    let pods = ResourcePattern { group: Some(String::new()), resource: Some("pods".to_owned()) };
    config.cache.exclude.push(pods);
}

/// Writes a file, and has it read again.
async fn reload(proxy: &Proxy, text: &str, result: &str) {
    let label = format!("result=\"{result}\"");
    let count = async || proxy.metric("weir_config_reloads_total", &[&label]).await;
    let before = count().await;
    std::fs::write(proxy.config_file(), text).unwrap();
    proxy.hangup.notify_one();
    eventually("the file was read", async || count().await > before).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resource_that_is_excluded_is_forwarded_and_cached_again_later() {
    let proxy = Proxy::seeded().await;
    proxy.warm("/api/v1/pods").await;
    let mut watch = proxy.watch("/api/v1/pods?watch=1&resourceVersion=0").await;
    watch.event().await;
    reload(&proxy, &yaml(&proxy, exclude_pods), "success").await;
    // The watch ends, so that its client resumes it at the API server.
    watch.rest().await;
    let list = proxy.get(PODS).await;
    assert_eq!((list.status.as_u16(), list.cache()), (200, "forward; reason=excluded"));
    reload(&proxy, &yaml(&proxy, |_| {}), "success").await;
    proxy.warm("/api/v1/pods").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_larger_budget_lets_a_resource_be_cached_at_once() {
    let upstream = Simulator::start(SimulatorOptions::default()).await.unwrap();
    seed(&upstream);
    let small = |config: &mut Config| config.cache.resource_bytes_max = 1 << 10;
    let proxy = Proxy::before(upstream, "", small).await;
    eventually("pods exceed their budget", async || {
        proxy.get(PODS).await.cache() == "forward; reason=over-budget"
    })
    .await;
    let large = yaml(&proxy, |config| config.cache = CacheConfig::default());
    reload(&proxy, &large, "success").await;
    proxy.warm("/api/v1/pods").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_for_a_restart_is_shown() {
    let proxy = Proxy::seeded().await;
    let pending = async || proxy.admin("/configz").await.json()["pending"].clone();
    assert_eq!(pending().await, serde_json::json!({}));
    let changed = yaml(&proxy, |config| config.cache.forward_budget = 3);
    reload(&proxy, &changed, "success").await;
    assert_eq!(pending().await, serde_json::json!({ "cache.forwardBudget": 3 }));
    reload(&proxy, &yaml(&proxy, |_| {}), "success").await;
    assert_eq!(pending().await, serde_json::json!({}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_file_changes_nothing() {
    let proxy = Proxy::seeded().await;
    proxy.warm("/api/v1/pods").await;
    let wrong = yaml(&proxy, exclude_pods).replace("maxStaleness: ", "maxStaleness: x");
    for text in [wrong.as_str(), "a: [", ""] {
        reload(&proxy, text, "failure").await;
        assert_eq!(proxy.get(PODS).await.cache(), "hit");
        assert_eq!(proxy.admin("/readyz").await.status, 200);
        assert_eq!(proxy.metric("weir_config_last_reload_successful", &[]).await, 0.0);
    }
}

/// The kubelet updates a ConfigMap by moving the link `..data` to another directory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_config_map_that_changes_is_read_without_a_signal() {
    let proxy = Proxy::seeded().await;
    let dir = proxy.dir.path();
    let publish = |version: &str, text: &str| {
        std::fs::create_dir(dir.join(version)).unwrap();
        std::fs::write(dir.join(version).join("weir.yaml"), text).unwrap();
        symlink(version, dir.join("..data_tmp")).unwrap();
        std::fs::rename(dir.join("..data_tmp"), dir.join("..data")).unwrap();
    };
    publish("..1", &yaml(&proxy, |_| {}));
    std::fs::remove_file(proxy.config_file()).unwrap();
    symlink("..data/weir.yaml", proxy.config_file()).unwrap();
    proxy.warm("/api/v1/pods").await;
    publish("..2", &yaml(&proxy, exclude_pods));
    eventually("the change is taken over", async || {
        proxy.get(PODS).await.cache() == "forward; reason=excluded"
    })
    .await;
}

/// Nobody sends a signal: the file is read again by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_missing_is_reported_until_it_is_back_although_it_is_the_same() {
    let proxy = Proxy::seeded().await;
    let state = async || {
        let result = async |result| {
            let label = format!("result=\"{result}\"");
            proxy.metric("weir_config_reloads_total", &[&label]).await
        };
        let successful = proxy.metric("weir_config_last_reload_successful", &[]).await;
        (result("success").await, result("failure").await, successful)
    };
    // Both are shown before the first reload.
    let text = proxy.admin("/metrics").await.text();
    assert_eq!(text.matches("\nweir_config_reloads_total{").count(), 2, "{text}");
    let text = std::fs::read(proxy.config_file()).unwrap();
    std::fs::remove_file(proxy.config_file()).unwrap();
    eventually("it is reported once", async || state().await == (0.0, 1.0, 0.0)).await;
    assert_eq!(proxy.admin("/readyz").await.status, 200);
    // Another error: it is not UTF-8.
    std::fs::write(proxy.config_file(), [0xff]).unwrap();
    eventually("the other error is reported", async || state().await == (0.0, 2.0, 0.0)).await;
    std::fs::write(proxy.config_file(), text).unwrap();
    eventually("the same file is taken over", async || state().await == (1.0, 2.0, 1.0)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_and_watches_go_on_during_a_thousand_reloads() {
    let proxy = Proxy::seeded().await;
    proxy.warm("/api/v1/pods").await;
    let mut watch = proxy.watch("/api/v1/pods?watch=1&resourceVersion=0").await;
    let reloads =
        async || proxy.metric("weir_config_reloads_total", &[r#"result="success""#]).await;
    let [one, other] = [OnRelist::EndStreams, OnRelist::KeepStreams]
        .map(|on_relist| yaml(&proxy, |config| config.cache.on_relist = on_relist));
    let wrong = one.replace("maxStaleness: ", "maxStaleness: x");
    let texts = [one, wrong, other];
    let mut sent = 0;
    while reloads().await < 1000.0 {
        for text in &texts {
            // Replaced as a whole, as editors and the kubelet do.
            std::fs::write(proxy.dir.path().join("new"), text).unwrap();
            std::fs::rename(proxy.dir.path().join("new"), proxy.config_file()).unwrap();
            for _ in 0..5 {
                proxy.hangup.notify_one();
                for path in [PODS, POD, "/api/v1/namespaces/ns1/pods"] {
                    assert_eq!(proxy.get(path).await.status, 200, "{path}");
                    sent += 1;
                }
            }
        }
    }
    assert!(sent > 1000, "{sent}");
    assert!(proxy.metric("weir_config_reloads_total", &[r#"result="failure""#]).await > 100.0);
    proxy.upstream.store().create(pod("ns1", "late", "node-0")).unwrap();
    watch.until("late").await;
}

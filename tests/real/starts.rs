//! Watches that must begin with the present state, like those of informers of client-go since 0.35
//! and of kube-rs, on resources without writes while others are written: they come from the cache,
//! with a proof that it is fresh.

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::runtime::Runtime;

use crate::churn::client;
use crate::control_plane::{ADMIN, ControlPlane};
use crate::support::Weir;
use crate::wait::eventually;

/// A small resource is listed a second time; for a large one, a short watch shows that there is
/// nothing new.
pub(crate) fn consistent() {
    let plane = ControlPlane::start_with_watch_list();
    let weir = Weir::start(&plane.kubeconfig(ADMIN), "");
    Runtime::new().unwrap().block_on(async {
        let direct = client(&plane.kubeconfig(ADMIN)).await;
        let through = client(&weir.kubeconfig()).await;
        for (count, step) in [(3, "list"), (LARGE, "short-watch")] {
            fill(&direct, count).await;
            let configmaps: Api<ConfigMap> = Api::all(through.clone());
            let api: Api<ConfigMap> = Api::all(direct.clone());
            let expected = names(api.list(&ListParams::default()).await.unwrap().items);
            eventually("the cache has them all", async || {
                let list = configmaps.list(&ListParams::default().match_any()).await;
                list.is_ok_and(|list| names(list.items) == expected)
            })
            .await;
            let proofs = |step: &str| {
                let labels = [r#"resource="configmaps""#, &format!("step=\"{step}\"")];
                weir.metric("weir_freshness_proofs_total", &labels)
            };
            let before = proofs(step);
            for start in 0..STARTS {
                let written = write_elsewhere(&direct, &format!("s-{count}-{start}")).await;
                let (seen, at) = state(&configmaps).await;
                assert_eq!(seen, expected);
                assert!(at >= written, "a state of {at} for one who wrote {written}");
            }
            assert!(proofs(step) > before, "no {step} in {}", weir.admin("/metrics").unwrap().1);
            assert_eq!(proofs("forwarded"), 0.0);

            // kube-rs' own way, which begins at any resourceVersion, reaches the same state.
            let informer = watcher(configmaps, watcher::Config::default().streaming_lists());
            let mut informer = std::pin::pin!(informer);
            let mut seen = Vec::new();
            while let Some(event) = informer.try_next().await.unwrap() {
                match event {
                    watcher::Event::InitApply(object) => seen.push(object),
                    watcher::Event::InitDone => break,
                    _ => {}
                }
            }
            assert_eq!(names(seen), expected);
        }
        let labels = [r#"verb="watch""#, r#"resource="configmaps""#];
        let watches =
            |answer| weir.metric("weir_requests_total", &[&labels[..], &[answer]].concat());
        assert_eq!(watches(r#"cache_status="forward""#), 0.0);
    });
}

/// Lists without a resourceVersion come from the cache, and show what was just written.
pub(crate) fn own_writes() {
    let plane = ControlPlane::start();
    for setting in ["always", "auto"] {
        let config = format!("cache: {{consistentLists: {setting}}}\n");
        let weir = Weir::start(&plane.kubeconfig(ADMIN), &config);
        Runtime::new().unwrap().block_on(async {
            let direct = client(&plane.kubeconfig(ADMIN)).await;
            let through = client(&weir.kubeconfig()).await;
            let configmaps: Api<ConfigMap> = Api::namespaced(through, "default");
            eventually("the cache is ready", async || {
                drop(configmaps.list(&ListParams::default().match_any()).await.unwrap());
                weir.metric("weir_requests_total", &[r#"verb="list""#, r#"cache_status="hit""#])
                    > 0.0
            })
            .await;
            let writers = (0..WRITERS).map(|writer| {
                let (direct, configmaps) = (direct.clone(), configmaps.clone());
                async move {
                    for number in 0..WRITES {
                        let name = format!("own-{setting}-{writer}-{number}");
                        let config_maps: Api<ConfigMap> =
                            Api::namespaced(direct.clone(), "default");
                        let object = json!({"metadata": {"name": name}});
                        let object = serde_json::from_value(object).unwrap();
                        config_maps.create(&PostParams::default(), &object).await.unwrap();
                        // Writes of others leave the cache behind.
                        write_elsewhere(&direct, &name).await;
                        let seen = configmaps.list(&ListParams::default()).await.unwrap();
                        assert!(names(seen.items).contains(&name), "{name} is missing");
                        config_maps.delete(&name, &DeleteParams::default()).await.unwrap();
                    }
                }
            });
            futures::future::join_all(writers).await;
            let labels = [r#"resource="configmaps""#, r#"verb="list""#, r#"cache_status="hit""#];
            let hits = weir.metric("weir_requests_total", &labels);
            eprintln!("{setting}: {hits} of {} lists from the cache", WRITERS * WRITES);
            assert!(setting == "auto" || hits > (WRITERS * WRITES) as f64 / 2.0);
        });
    }
}

/// Returns the initial objects of a consistent watch, and its resourceVersion.
async fn state(configmaps: &Api<ConfigMap>) -> (Vec<String>, u64) {
    let params = WatchParams::default().initial_events();
    let stream = configmaps.watch(&params, "").await.unwrap();
    let mut stream = std::pin::pin!(stream);
    let mut seen = Vec::new();
    while let Some(event) = stream.try_next().await.unwrap() {
        match event {
            WatchEvent::Added(object) => seen.push(object),
            WatchEvent::Bookmark(bookmark) => {
                let metadata = bookmark.metadata;
                assert!(metadata.annotations.contains_key("k8s.io/initial-events-end"));
                return (names(seen), metadata.resource_version.parse().unwrap());
            }
            other => panic!("{other:?} in the initial state"),
        }
    }
    panic!("the initial state never ended");
}

fn names(objects: Vec<ConfigMap>) -> Vec<String> {
    let mut names: Vec<_> = objects.iter().map(ResourceExt::name_any).collect();
    names.sort_unstable();
    names
}

/// Creates config maps, many at once.
async fn fill(direct: &Client, count: usize) {
    let configmaps: Api<ConfigMap> = Api::namespaced(direct.clone(), "default");
    let numbers: Vec<_> = (0..count).collect();
    for part in numbers.chunks(50) {
        let creates = part.iter().map(|number| {
            let object = json!({"metadata": {"name": format!("c-{count}-{number}")}});
            let object = serde_json::from_value(object).unwrap();
            let configmaps = configmaps.clone();
            async move { configmaps.create(&PostParams::default(), &object).await.unwrap() }
        });
        futures::future::join_all(creates).await;
    }
}

/// Writes to another resource, and returns the resourceVersion.
async fn write_elsewhere(direct: &Client, name: &str) -> u64 {
    let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> =
        Api::namespaced(direct.clone(), "default");
    let account = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    let made = accounts.create(&PostParams::default(), &account).await.unwrap();
    made.resource_version().unwrap().parse().unwrap()
}

/// More objects than are listed a second time.
const LARGE: usize = 1100;
const WRITERS: usize = 6;
const WRITES: usize = 40;
const STARTS: usize = 5;

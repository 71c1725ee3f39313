//! kube-rs through Weir: lists, pages, watches and informers of both kinds, compared with kube-rs
//! without Weir.
//!
//! Uses a simulator of its own, or the servers of `WEIR_CLIENTS_KUBECONFIG` and
//! `WEIR_CLIENTS_DIRECT`, which `tests/clients/run` sets. `tests/real/churn.rs` tests informers
//! under churn and failures.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "this is a test")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{DeleteParams, ListParams, ObjectList, Patch, PatchParams, PostParams};
use kube::api::{WatchEvent, WatchParams};
use kube::runtime::reflector::store::Writer;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Config, ResourceExt};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use weir::app::App;
use weir::config::seams::Seams;
use weir::config::{CertificateConfig, ListenerConfig, ProxyNetworks};
use weir::simulator::{Simulator, SimulatorOptions};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kube_rs_sees_through_weir_what_it_sees_without() {
    let dir = tempfile::tempdir().unwrap();
    let stop = CancellationToken::new();
    let _stopped = stop.clone().drop_guard();
    let given = |name| std::env::var_os(name).filter(|file| !file.is_empty()).map(PathBuf::from);
    let (_simulator, weir, direct) = match given("WEIR_CLIENTS_KUBECONFIG") {
        Some(weir) => (None, weir.clone(), given("WEIR_CLIENTS_DIRECT").unwrap_or(weir)),
        None => {
            let (simulator, weir, direct) = start(dir.path(), stop).await;
            (Some(simulator), weir, direct)
        }
    };
    let (weir, direct) = (client(&weir).await, client(&direct).await);
    let name = format!("weir-clients-kube-rs-{}", std::process::id());
    let namespaces: Api<Namespace> = Api::all(weir.clone());
    let namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();

    let cluster_wide = (Api::all(weir.clone()), Api::all(direct.clone()));
    let ours = (Api::namespaced(weir, &name), Api::namespaced(direct, &name));
    // A failed test leaves the namespace behind for inspection.
    for name in ["a", "b", "c", "d"] {
        create(&ours.0, name).await;
    }
    lists(&cluster_wide.0, &cluster_wide.1).await;
    pages(&cluster_wide.0, &cluster_wide.1).await;
    watches(&ours.0).await;
    informs(&ours.0, &ours.1).await;
    namespaces.delete(&name, &DeleteParams::default()).await.unwrap();
}

async fn lists(through: &Api<ConfigMap>, direct: &Api<ConfigMap>) {
    for params in [ListParams::default().match_any(), ListParams::default()] {
        let seen = through.list(&params).await.unwrap();
        assert_eq!(versions(&seen.items), versions(&at(direct, &seen).await.items));
    }
}

/// Through Weir alone, then alternating: each server accepts the tokens of the other.
async fn pages(through: &Api<ConfigMap>, direct: &Api<ConfigMap>) {
    for turns in [[through, through], [through, direct], [direct, through]] {
        let params = ListParams::default().limit(3);
        let first = turns[0].list(&params).await.unwrap();
        let (mut items, mut number, mut page) = (first.items.clone(), 0, first.clone());
        while let Some(token) = page.metadata.continue_.filter(|token| !token.is_empty()) {
            number += 1;
            page = turns[number % 2].list(&params.clone().continue_token(&token)).await.unwrap();
            assert_eq!(page.metadata.resource_version, first.metadata.resource_version);
            items.extend(page.items);
        }
        assert_eq!(versions(&items), versions(&at(direct, &first).await.items));
        assert!(number > 0, "there is more than one page");
    }
}

async fn watches(api: &Api<ConfigMap>) {
    let start = api.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let mut events = pin!(api.watch(&WatchParams::default(), &start).await.unwrap());
    create(api, "watched").await;
    change(api, "watched").await;
    delete(api, "watched").await;
    let mut seen = Vec::new();
    while seen.last() != Some(&"deleted") {
        let event = tokio::time::timeout(EVENT_TIMEOUT, events.try_next()).await.unwrap();
        let (word, object) = match event.unwrap().expect("the watch goes on") {
            WatchEvent::Added(object) => ("added", object),
            WatchEvent::Modified(object) => ("modified", object),
            WatchEvent::Deleted(object) => ("deleted", object),
            WatchEvent::Bookmark(_) => continue,
            WatchEvent::Error(status) => panic!("{status:?}"),
        };
        if object.name_any() == "watched" {
            seen.push(word);
        }
    }
    assert_eq!(seen, ["added", "modified", "deleted"]);
    // The history from the beginning exists, or the error says that it is gone.
    let mut first = pin!(api.watch(&WatchParams::default(), "1").await.unwrap());
    let event = tokio::time::timeout(EVENT_TIMEOUT, first.try_next()).await.unwrap().unwrap();
    match event.expect("an event or an error") {
        WatchEvent::Error(status) => assert_eq!(status.code, 410, "{status:?}"),
        event => assert!(matches!(event, WatchEvent::Added(_)), "{event:?}"),
    }
}

async fn informs(through: &Api<ConfigMap>, direct: &Api<ConfigMap>) {
    let list_watch = watcher::Config::default();
    let configs = [
        list_watch.clone(),
        list_watch.any_semantic(),
        watcher::Config::default().streaming_lists(),
    ];
    let mut informers = tokio::task::JoinSet::new();
    let mut stores = Vec::new();
    for config in configs {
        let writer = Writer::<ConfigMap>::default();
        stores.push(writer.as_reader());
        let stream = watcher(through.clone(), config).default_backoff().reflect(writer);
        informers.spawn(stream.for_each(|_| async {}));
    }
    for name in ["one", "two"] {
        create(through, name).await;
    }
    change(through, "one").await;
    delete(through, "two").await;
    for store in stores {
        tokio::time::timeout(EVENT_TIMEOUT, async {
            loop {
                let seen: Vec<_> = store.state().iter().map(|object| (**object).clone()).collect();
                let expected = direct.list(&ListParams::default()).await.unwrap();
                if versions(&seen) == versions(&expected.items) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .await
        .expect("the informer holds what is there");
        assert!(store.state().iter().any(|object| object.name_any() == "one"));
    }
}

/// A simulator with Weir in front of it, and the kubeconfigs of both.
async fn start(dir: &Path, stop: CancellationToken) -> (Simulator, PathBuf, PathBuf) {
    let options = SimulatorOptions { tls: true, ..SimulatorOptions::default() };
    let simulator = Simulator::start(options).await.unwrap();
    let (weir, direct) = (dir.join("kubeconfig"), dir.join("upstream.kubeconfig"));
    std::fs::write(&direct, simulator.kubeconfig("")).unwrap();
    let mut config = weir::config::Config::default();
    config.upstream.kubeconfig = Some(direct.clone());
    config.admin.listen = None;
    config.server.listeners = vec![ListenerConfig::Tls {
        address: ([127, 0, 0, 1], 0).into(),
        certificate: CertificateConfig::Generated { names: Vec::new() },
        proxies: ProxyNetworks::default(),
    }];
    let app = App::start(config, Seams::default()).await.unwrap();
    app.write_kubeconfig(&weir).unwrap();
    tokio::spawn(app.run(stop));
    (simulator, weir, direct)
}

async fn client(kubeconfig: &Path) -> Client {
    let kubeconfig = kube::config::Kubeconfig::read_from(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

/// Lists at the exact resourceVersion of another list.
async fn at(api: &Api<ConfigMap>, seen: &ObjectList<ConfigMap>) -> ObjectList<ConfigMap> {
    let version = seen.metadata.resource_version.as_deref().unwrap();
    let params = ListParams::default().at(version).matching(kube::api::VersionMatch::Exact);
    api.list(&params).await.unwrap()
}

/// Namespace and name to resourceVersion.
fn versions(objects: &[ConfigMap]) -> BTreeMap<(Option<String>, String), Option<String>> {
    let version =
        |object: &ConfigMap| ((object.namespace(), object.name_any()), object.resource_version());
    objects.iter().map(version).collect()
}

async fn create(api: &Api<ConfigMap>, name: &str) {
    let object = serde_json::from_value(json!({"metadata": {"name": name}, "data": {"k": "v"}}));
    api.create(&PostParams::default(), &object.unwrap()).await.unwrap();
}

async fn change(api: &Api<ConfigMap>, name: &str) {
    let patch = Patch::Merge(json!({"metadata": {"labels": {"changed": "yes"}}}));
    api.patch(name, &PatchParams::default(), &patch).await.unwrap();
}

async fn delete(api: &Api<ConfigMap>, name: &str) {
    api.delete(name, &DeleteParams::default()).await.unwrap();
}

/// Longer than any step takes on a busy machine.
const EVENT_TIMEOUT: Duration = Duration::from_secs(60);

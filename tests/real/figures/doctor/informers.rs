//! Informers of kube-rs, which name their program.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::StreamExt;
use http::header::USER_AGENT;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::reflector::store::Writer;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Config};

/// Starts a program with an informer of each resource. Returns the count of its events.
pub(super) async fn start(
    kubeconfig: &Path,
    agent: &'static str,
    config: &watcher::Config,
) -> Arc<AtomicUsize> {
    let kubeconfig = kube::config::Kubeconfig::read_from(kubeconfig).unwrap();
    let options = kube::config::KubeConfigOptions::default();
    let mut http = Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    http.headers.push((USER_AGENT, agent.parse().unwrap()));
    let client = Client::try_from(http).unwrap();
    let events = Arc::new(AtomicUsize::new(0));
    for (group, kind) in KINDS {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        let api = Api::<DynamicObject>::all_with(client.clone(), &resource);
        let writer = Writer::<DynamicObject>::new(resource);
        let stream = watcher(api, config.clone()).default_backoff().reflect(writer);
        let events = Arc::clone(&events);
        tokio::spawn(stream.for_each(move |_| {
            events.fetch_add(1, Ordering::Relaxed);
            async {}
        }));
    }
    events
}

const KINDS: [(&str, &str); 6] = [
    ("", "ConfigMap"),
    ("", "Pod"),
    ("", "Node"),
    ("", "Service"),
    ("apps", "Deployment"),
    ("apps", "ReplicaSet"),
];

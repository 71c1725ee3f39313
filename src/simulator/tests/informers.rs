//! kube-rs' watcher, with both of its strategies, stays equal to the store through cuts, a
//! compaction and a restart.

use std::collections::BTreeMap;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, Client, Config, ResourceExt};
use serde_json::json;

use super::client::{create, start};
use crate::{Cut, Simulator};

#[tokio::test]
async fn list_watch_stays_equal_to_the_store() {
    stays_equal(watcher::Config::default()).await;
}

#[tokio::test]
async fn streaming_lists_stay_equal_to_the_store() {
    stays_equal(watcher::Config::default().streaming_lists()).await;
}

async fn stays_equal(config: watcher::Config) {
    let simulator = start().await;
    create(&simulator, "default", "a");
    let kubeconfig = serde_json::from_str(&simulator.kubeconfig("")).unwrap();
    let client = Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.unwrap();
    let api: Api<ConfigMap> = Api::all(Client::try_from(client).unwrap());
    let mut events = watch(api, config).default_backoff().boxed();
    let mut seen = BTreeMap::new();
    let mut until = async |simulator: &Simulator| {
        let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(20);
        while seen != stored_revisions(simulator) {
            let event = tokio::time::timeout_at(deadline, events.next()).await;
            match event.expect("the watcher falls behind").unwrap() {
                Ok(Event::Init) => seen.clear(),
                Ok(Event::InitApply(object) | Event::Apply(object)) => {
                    seen.insert(object.name_any(), object.resource_version().unwrap());
                }
                Ok(Event::Delete(object)) => drop(seen.remove(&object.name_any())),
                Ok(Event::InitDone) | Err(_) => {}
            }
        }
    };
    until(&simulator).await;
    create(&simulator, "default", "b");
    until(&simulator).await;
    simulator.faults().cut_watches(None, Cut::MidFrame);
    let patch = json!({"data": {"k": "new"}});
    simulator.store().patch("v1", "configmaps", "default", "a", &patch).unwrap();
    until(&simulator).await;
    simulator.stop();
    simulator.store().delete("v1", "configmaps", "default", "b").unwrap();
    create(&simulator, "default", "c");
    simulator.compact();
    simulator.restart().await.unwrap();
    until(&simulator).await;
    assert_eq!(simulator.store().count("v1", "configmaps"), 2);
}

fn stored_revisions(simulator: &Simulator) -> BTreeMap<String, String> {
    let objects = simulator.store().list("v1", "configmaps");
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let pairs = objects.iter().map(|object| {
        (text(&object["metadata"]["name"]), text(&object["metadata"]["resourceVersion"]))
    });
    pairs.collect()
}

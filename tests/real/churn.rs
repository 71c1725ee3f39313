//! Real informers (kube-rs' watcher and reflector) through Weir stay equal to the true state,
//! whatever happens to the upstream.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use futures::StreamExt;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::reflector::Store;
use kube::runtime::reflector::store::Writer;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Config};
use serde_json::json;
use tokio::runtime::Runtime;

use crate::control_plane::{ADMIN, ControlPlane};
use crate::support::Weir;
use crate::wait::eventually;

/// Name to resourceVersion.
type Seen = BTreeMap<String, String>;

pub(crate) fn while_objects_churn() {
    let plane = ControlPlane::start();
    let mut weir = Weir::start(&plane.kubeconfig(ADMIN), "");
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let world = World::new(&plane, &weir).await;
        world.churn(0, 300).await;
        world.converges().await;
        world.churn(1000, 300).await;
        world.converges().await;
    });
    assert!(
        weir.metric("weir_requests_total", &[r#"verb="watch""#, r#"cache_status="hit""#]) >= 1.0
    );
    assert_eq!(weir.stop(), Some(0));
}

pub(crate) fn killed_upstream() {
    let (mut plane, _weir, runtime, world) = converged(100);

    plane.kill_apiserver();
    // Reads at any resourceVersion work without the upstream.
    let cached = runtime.block_on(async {
        let list = ListParams::default().match_any();
        world.through.0.list(&list).await.map(|list| list.items.len())
    });
    assert!(cached.unwrap() > 0, "reads at any resourceVersion survive the upstream");
    plane.start_apiserver();
    runtime.block_on(world.churn(1000, 100));
    runtime.block_on(world.converges());
}

pub(crate) fn compaction() {
    let (mut plane, weir, runtime, world) = converged(100);

    // Weir is disconnected and stopped while the history moves past it and is compacted, and the
    // upstream loses its own window. Disconnected first: otherwise it would still get the events in
    // the buffers of an open connection.
    plane.kill_apiserver();
    weir.signal("STOP");
    plane.start_apiserver();
    runtime.block_on(world.churn(1000, 150));
    plane.compact();
    plane.kill_apiserver();
    plane.start_apiserver();
    weir.signal("CONT");
    runtime.block_on(world.converges());
    let relists = weir.metric("weir_reflector_relists_total", &[r#"cause="expired""#]);
    assert!(relists >= 1.0, "it had to list again");
    runtime.block_on(world.churn(2000, 50));
    runtime.block_on(world.converges());
}

pub(crate) fn restored_etcd() {
    let (mut plane, weir, runtime, world) = converged(50);

    plane.kill_apiserver();
    plane.kill_etcd();
    plane.save_etcd("saved");
    plane.start_etcd();
    plane.start_apiserver();
    runtime.block_on(world.churn(1000, 200));
    runtime.block_on(world.converges());
    plane.kill_apiserver();
    plane.kill_etcd();
    plane.restore_etcd("saved");
    plane.start_etcd();
    plane.start_apiserver();
    // The old state is true again, with lower resourceVersions.
    runtime.block_on(world.converges());
    runtime.block_on(world.churn(2000, 20));
    runtime.block_on(world.converges());
    assert!(weir.metric("weir_history_rewinds_total", &[]) >= 1.0, "the alarm was raised");
}

/// Starts a control plane, a Weir in front of it and informers, and waits until they have the
/// result of some churn.
fn converged(churn: usize) -> (ControlPlane, Weir, Runtime, World) {
    let plane = ControlPlane::start();
    let weir = Weir::start(&plane.kubeconfig(ADMIN), "");
    let runtime = Runtime::new().unwrap();
    let world = runtime.block_on(World::new(&plane, &weir));
    runtime.block_on(world.churn(0, churn));
    runtime.block_on(world.converges());
    (plane, weir, runtime, world)
}

/// Three resources, seen directly and through Weir, with informers of both kinds on each as far as
/// the upstream supports them.
struct World {
    direct: Vec<Api<DynamicObject>>,
    through: (Api<DynamicObject>, Vec<Api<DynamicObject>>),
    informers: Vec<(usize, Store<DynamicObject>)>,
}

impl World {
    async fn new(plane: &ControlPlane, weir: &Weir) -> Self {
        let direct = client(&plane.kubeconfig(ADMIN)).await;
        let through = client(&weir.kubeconfig()).await;
        create_widgets(&direct).await;
        let apis = |client: &Client| -> Vec<_> {
            resources()
                .iter()
                .map(|resource| Api::default_namespaced_with(client.clone(), resource))
                .collect()
        };
        let mut world = Self {
            direct: apis(&direct),
            through: (apis(&through).remove(0), apis(&through)),
            informers: Vec::new(),
        };
        let mut configs = vec![watcher::Config::default().any_semantic()];
        if plane.has_watch_list() {
            configs.push(watcher::Config::default().streaming_lists());
        }
        for (n, (api, resource)) in world.through.1.iter().zip(resources()).enumerate() {
            for config in configs.clone() {
                world.informers.push((n, inform(api.clone(), resource.clone(), config)));
            }
        }
        world
    }

    /// Creates, changes and deletes objects of every resource, directly.
    async fn churn(&self, first: usize, count: usize) {
        for n in first..first + count {
            for (api, resource) in self.direct.iter().zip(resources()) {
                let name = format!("o{n}");
                let object: DynamicObject = serde_json::from_value(body(&resource, &name)).unwrap();
                api.create(&PostParams::default(), &object).await.unwrap();
                if n % 2 == 0 {
                    let patch = json!({"metadata": {"labels": {"n": n.to_string()}}});
                    api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
                }
                if n % 3 == 0 {
                    api.delete(&name, &kube::api::DeleteParams::default().grace_period(0))
                        .await
                        .unwrap();
                }
            }
        }
    }

    /// Waits until every informer holds exactly the objects of a consistent list of the upstream.
    async fn converges(&self) {
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            let differs = self.difference().await;
            let Some(differs) = differs else { return };
            assert!(Instant::now() < deadline, "an informer did not converge: {differs}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    async fn difference(&self) -> Option<String> {
        for (n, store) in &self.informers {
            let expected = state_of(&self.direct[*n]).await;
            let seen: Seen = store.state().iter().map(|object| named(object)).collect();
            if expected != seen {
                let kind = &resources()[*n].kind;
                let missing =
                    expected.iter().filter(|pair| seen.get(pair.0) != Some(pair.1)).count();
                let extra = seen.keys().filter(|name| !expected.contains_key(*name)).count();
                return Some(format!("{kind}: {missing} missing or old, {extra} too many"));
            }
        }
        None
    }
}

fn inform(
    api: Api<DynamicObject>,
    resource: ApiResource,
    config: watcher::Config,
) -> Store<DynamicObject> {
    let writer = Writer::<DynamicObject>::new(resource);
    let store = writer.as_reader();
    let stream = watcher(api, config).default_backoff().reflect(writer);
    tokio::spawn(stream.for_each(|_| async {}));
    store
}

async fn state_of(api: &Api<DynamicObject>) -> Seen {
    let list = api.list(&ListParams::default()).await.unwrap();
    list.items.iter().map(named).collect()
}

fn named(object: &DynamicObject) -> (String, String) {
    let metadata = &object.metadata;
    (
        metadata.name.clone().unwrap_or_default(),
        metadata.resource_version.clone().unwrap_or_default(),
    )
}

pub(crate) async fn client(kubeconfig: &Path) -> Client {
    let kubeconfig = kube::config::Kubeconfig::read_from(kubeconfig).unwrap();
    let options = kube::config::KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    Client::try_from(config).unwrap()
}

fn resources() -> Vec<ApiResource> {
    let resource = |group: &str, kind: &str, plural: &str| ApiResource {
        group: group.to_owned(),
        version: "v1".to_owned(),
        api_version: if group.is_empty() { "v1".to_owned() } else { format!("{group}/v1") },
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    };
    vec![
        resource("", "ConfigMap", "configmaps"),
        resource("", "Pod", "pods"),
        resource("example.com", "Widget", "widgets"),
    ]
}

fn body(resource: &ApiResource, name: &str) -> serde_json::Value {
    let mut body = json!({
        "apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name, "namespace": "default"},
    });
    match &*resource.kind {
        "Pod" => body["spec"] = json!({"containers": [{"name": "c", "image": "none"}]}),
        "Widget" => body["spec"] = json!({"color": "red"}),
        _ => body["data"] = json!({"k": "v"}),
    }
    body
}

/// Creates the CRD and waits until the upstream serves it.
async fn create_widgets(client: &Client) {
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    });
    let resource = ApiResource {
        group: "apiextensions.k8s.io".into(),
        version: "v1".into(),
        api_version: "apiextensions.k8s.io/v1".into(),
        kind: "CustomResourceDefinition".into(),
        plural: "customresourcedefinitions".into(),
    };
    let crds: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    crds.create(&PostParams::default(), &serde_json::from_value(crd).unwrap()).await.unwrap();
    let widgets: Api<DynamicObject> = Api::all_with(client.clone(), &resources()[2]);
    eventually("the upstream serves the widgets", async || {
        widgets.list(&ListParams::default()).await.is_ok()
    })
    .await;
}

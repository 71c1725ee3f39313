//! Fills the API server, and then writes config maps and services, and scales a deployment up and
//! down.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::client::Client;
use crate::suite::objects::create;
use crate::suite::wire::{Call, Endpoint};

/// Creates what is read.
pub(super) async fn fill(admin: &Endpoint) {
    let mut connection = admin.connection();
    let mut add = async |path: &str, object: Value| create(&mut connection, path, &object).await;
    for name in ["large", "changing"] {
        add("/api/v1/namespaces", json!({"metadata": {"name": name}})).await;
    }
    for n in 0..10 {
        add("/api/v1/namespaces/default/configmaps", config_map(&format!("small-{n}"), 100)).await;
        add("/api/v1/namespaces/large/configmaps", config_map(&format!("large-{n}"), 30_000)).await;
    }
    add(CHANGING, config_map("changing", LARGE_BYTES)).await;
    for n in 0..20 {
        let template = json!({"metadata": {"name": format!("template-{n}"),
            "annotations": {"text": text(90_000)}}, "template": {"spec": pod_spec()}});
        add("/api/v1/namespaces/default/podtemplates", template).await;
    }
    let resources = json!({"cpu": "64", "memory": "256Gi", "pods": "500"});
    add(
        "/api/v1/nodes",
        json!({"metadata": {"name": "node-1"},
        "status": {"capacity": resources, "allocatable": resources}}),
    )
    .await;
    let labels = json!({"app": "web"});
    add(
        "/apis/apps/v1/namespaces/default/deployments",
        json!({"metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod_spec()}}}),
    )
    .await;
    // Its budget has no status without a controller of budgets, and so allows no eviction yet.
    let labels = json!({"app": "guarded"});
    let mut spec = pod_spec();
    spec["nodeName"] = "node-1".into();
    add(
        "/api/v1/namespaces/default/pods",
        json!({"metadata": {"name": "guarded", "labels": labels}, "spec": spec}),
    )
    .await;
    add(
        "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
        json!({"metadata": {"name": "guarded"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}}}),
    )
    .await;
    // A kubelet would do this.
    patch(admin, "/api/v1/nodes/node-1", json!({"spec": {"taints": null}})).await;
    let running = json!({"status": {"phase": "Running"}});
    patch(admin, "/api/v1/namespaces/default/pods/guarded/status", running).await;
}

async fn patch(admin: &Endpoint, path: &str, change: Value) {
    let answer = admin.send(&Call::json(Method::PATCH, path, &change)).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.json());
}

/// Writes through the gateway, as a well-behaved client.
pub(super) async fn change(mut client: Client) {
    for n in 0_u64.. {
        let changing = config_map("changing", LARGE_BYTES).to_string();
        client.call(Method::PUT, &format!("{CHANGING}/changing"), changing).await;
        let path = "/api/v1/namespaces/default/configmaps";
        let name = format!("small-{}", n % 10);
        let small = config_map(&name, 100).to_string();
        client.call(Method::PUT, &format!("{path}/{name}"), small).await;
        if n % 8 == 0 {
            let replicas = if n % 16 == 0 { 8 } else { 2 };
            let scale = json!({"spec": {"replicas": replicas}}).to_string();
            let path = "/apis/apps/v1/namespaces/default/deployments/web/scale";
            client.call(Method::PATCH, path, scale).await;
        }
        if n < 6 {
            let service = json!({"metadata": {"name": format!("web-{n}")},
                "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}});
            let path = "/api/v1/namespaces/default/services";
            client.call(Method::POST, path, service.to_string()).await;
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}

fn config_map(name: &str, bytes: usize) -> Value {
    json!({"metadata": {"name": name}, "data": {"text": text(bytes)}})
}

fn pod_spec() -> Value {
    json!({"terminationGracePeriodSeconds": 0, "containers": [{"name": "web", "image": "web"}]})
}

/// Returns a text that hardly gets smaller when it is compressed.
fn text(bytes: usize) -> String {
    (0..bytes).map(|_| fastrand::alphanumeric()).collect()
}

const CHANGING: &str = "/api/v1/namespaces/changing/configmaps";
const LARGE_BYTES: usize = 100_000;

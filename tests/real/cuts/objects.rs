//! The objects that are written and watched: three resources in two namespaces, and collections
//! with selectors whose results change.

use std::time::Duration;

use fastrand::Rng;
use kube::Client;
use serde_json::{Value, json};

use super::requests::{json_request, send};

/// Namespaces and a definition.
pub(crate) async fn prepare(client: &Client) {
    for namespace in NAMESPACES {
        let body = json!({"metadata": {"name": namespace}});
        client.send(json_request("POST", "/api/v1/namespaces", &body)).await.unwrap();
    }
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "selectableFields": [{"jsonPath": ".spec.color"}],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    "properties": {"color": {"type": "string"}}}}}}}],
        },
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let response = client.send(json_request("POST", path, &crd)).await.unwrap();
    assert!(response.status().is_success());
    while send(client, "/apis/example.com/v1/widgets", &[]).await.unwrap().status() != 200 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

pub(super) fn new_object(kind: usize, name: &str, n: u32, rng: &mut Rng) -> Value {
    let mut object = json!({"metadata": {"name": name, "labels": labels(rng)}});
    if let Some(labels) = object["metadata"]["labels"].as_object_mut() {
        labels.retain(|_, value| !value.is_null());
    }
    match kind {
        0 => object["data"] = json!({"n": n.to_string(), "t": "<&>\u{2028}\u{e9}\"\\\n"}),
        1 => {
            object["spec"] = json!({
                "nodeName": rng.choice(&["n1", "n2"]).unwrap(),
                "containers": [{"name": "c", "image": "i"}],
            });
        }
        _ => {
            object["apiVersion"] = json!("example.com/v1");
            object["kind"] = json!("Widget");
            object["spec"] = json!({
                "color": rng.choice(&["red", "blue"]).unwrap(), "n": n, "big": 1e21, "small": -0.0, "deep": {"a\u{2029}": [{}, [], null]},
            });
        }
    }
    object
}

pub(super) fn change(kind: usize, n: u32, rng: &mut Rng) -> Value {
    let mut patch =
        json!({"metadata": {"labels": labels(rng), "annotations": {"n": n.to_string()}}});
    if kind == 2 && rng.bool() {
        patch["spec"] = json!({"color": rng.choice(&["red", "blue"]).unwrap()});
    }
    patch
}

/// Two labels that appear, change and disappear; a patch removes those that are null.
pub(super) fn labels(rng: &mut Rng) -> Value {
    let mut value = || match rng.u8(..3) {
        0 => Value::Null,
        n => json!(n.to_string()),
    };
    json!({"a": value(), "b": value()})
}

/// The byte order of these names is not the order of the paths: `a-b/` sorts before `a/`.
pub(super) const NAMESPACES: [&str; 2] = ["a", "a-b"];

pub(super) const RESOURCES: [(&str, &str); 3] =
    [("/api/v1", "configmaps"), ("/api/v1", "pods"), ("/apis/example.com/v1", "widgets")];

pub(super) const COLLECTIONS: [(usize, &str, &str); 15] = [
    (0, "/api/v1/configmaps", ""),
    (0, "/api/v1/configmaps", "&labelSelector=a%3D1"),
    (0, "/api/v1/namespaces/a/configmaps", "&labelSelector=a%20in%20(1,2),b!%3D1"),
    (0, "/api/v1/namespaces/a/configmaps", "&fieldSelector=metadata.name%3Do0"),
    (0, "/api/v1/configmaps", "&fieldSelector=metadata.name%3Do0"),
    (0, "/api/v1/configmaps", "&fieldSelector=metadata.namespace%3Da,metadata.name!%3Do1"),
    (1, "/api/v1/pods", ""),
    (1, "/api/v1/pods", "&fieldSelector=spec.nodeName%3Dn1"),
    (1, "/api/v1/namespaces/a/pods", "&fieldSelector=spec.nodeName%3Dn2&labelSelector=b"),
    (1, "/api/v1/pods", "&fieldSelector=status.phase%3DRunning"),
    (
        1,
        "/api/v1/pods",
        "&fieldSelector=status.phase!%3DRunning,spec.nodeName%3Dn1&labelSelector=!a",
    ),
    (2, "/apis/example.com/v1/widgets", ""),
    (2, "/apis/example.com/v1/widgets", "&fieldSelector=spec.color%3Dred"),
    (2, "/apis/example.com/v1/namespaces/a/widgets", "&labelSelector=a%3E1"),
    (
        2,
        "/apis/example.com/v1/namespaces/a-b/widgets",
        "&fieldSelector=spec.color!%3Dred,metadata.name!%3Do3",
    ),
];

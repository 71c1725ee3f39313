//! Writes, patches, reviews and authorization.

use http::Method;
use serde_json::{Value, json};

use super::client::{Reply, config_map, create, get, request, start, start_with};
use crate::{Rule, Simulator, SimulatorOptions, User};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Returns a CustomResourceDefinition with two versions, a column and a selectable field.
pub(super) fn definition() -> Value {
    let version = |name: &str, storage: bool| {
        json!({"name": name, "served": true, "storage": storage,
            "schema": {"openAPIV3Schema": {"type": "object"}},
            "selectableFields": [{"jsonPath": ".spec.color"}], "subresources": {"status": {}},
            "additionalPrinterColumns": [
                {"name": "Color", "type": "string", "jsonPath": ".spec.color"}]})
    };
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [version("v1", true), version("v2", false)]}})
}

async fn send(simulator: &Simulator, method: Method, path: &str, body: Value) -> Reply {
    request(simulator, method, path, &[], body).await.unwrap()
}

#[tokio::test]
async fn creates_updates_and_deletes_by_the_rules() {
    let simulator = start().await;
    let created = send(&simulator, Method::POST, MAPS, config_map("default", "a", "1")).await;
    assert_eq!(created.code, 201);
    let again = send(&simulator, Method::POST, MAPS, config_map("default", "a", "1")).await;
    assert_eq!(
        (again.code.as_u16(), again.message().as_str()),
        (409, "configmaps \"a\" already exists")
    );
    let nowhere = "/api/v1/namespaces/none/configmaps";
    let nowhere = send(&simulator, Method::POST, nowhere, config_map("none", "a", "1")).await;
    assert_eq!(nowhere.message(), "namespaces \"none\" not found");
    let generated = json!({"metadata": {"generateName": "g-"}});
    let generated = send(&simulator, Method::POST, MAPS, generated).await.json();
    assert!(generated["metadata"]["name"].as_str().unwrap().starts_with("g-"));

    let path = format!("{MAPS}/a");
    let same = send(&simulator, Method::PUT, &path, created.json()).await;
    assert_eq!(
        same.json(),
        created.json(),
        "a write that changes nothing keeps the resourceVersion"
    );
    let mut changed = created.json();
    changed["data"]["k"] = json!("w");
    assert_eq!(send(&simulator, Method::PUT, &path, changed.clone()).await.code, 200);
    let stale = send(&simulator, Method::PUT, &path, changed).await;
    assert_eq!(stale.code, 409);
    assert!(
        stale.message().ends_with("please apply your changes to the latest version and try again")
    );

    let uid = created.json()["metadata"]["uid"].clone();
    let wrong = json!({"preconditions": {"uid": "other"}});
    assert_eq!(send(&simulator, Method::DELETE, &path, wrong).await.code, 409);
    let deleted = send(&simulator, Method::DELETE, &path, Value::Null).await.json();
    let details = json!({"name": "a", "kind": "configmaps", "uid": uid});
    assert_eq!((&deleted["status"], &deleted["details"]), (&json!("Success"), &details));
    assert_eq!(get(&simulator, &path).await.code, 404);
}

#[tokio::test]
async fn three_kinds_of_patches_apply() {
    let simulator = start().await;
    create(&simulator, "default", "a");
    let patch = async |media: &str, body: Value| {
        let headers = [("content-type", media)];
        request(&simulator, Method::PATCH, &format!("{MAPS}/a"), &headers, body).await.unwrap()
    };
    let merged =
        patch("application/merge-patch+json", json!({"data": {"k": null, "m": "1"}})).await;
    assert_eq!(merged.json()["data"], json!({"m": "1"}));
    let body = json!([{"op": "add", "path": "/data/j", "value": "2"}]);
    let patched = patch("application/json-patch+json", body).await;
    assert_eq!(patched.json()["data"], json!({"j": "2", "m": "1"}));
    let body = json!({"data": {"s": "3"}});
    let patched = patch("application/strategic-merge-patch+json", body).await;
    assert_eq!(patched.json()["data"], json!({"j": "2", "m": "1", "s": "3"}));
    assert_eq!(patch("application/apply-patch+yaml", json!({})).await.code, 415);
}

#[tokio::test]
async fn finalizers_namespaces_and_owners() {
    let simulator = start().await;
    let api = simulator.store();
    let mut held = config_map("default", "a", "1");
    held["metadata"]["finalizers"] = json!(["x/y"]);
    api.create(held).unwrap();
    api.delete("v1", "configmaps", "default", "a").unwrap();
    let marked = api.get("v1", "configmaps", "default", "a").unwrap();
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    let free = json!({"metadata": {"finalizers": null}});
    api.patch("v1", "configmaps", "default", "a", &free).unwrap();
    assert_eq!(api.get("v1", "configmaps", "default", "a"), None);

    let owner = api.create(config_map("default", "owner", "1")).unwrap();
    let mut owned = config_map("default", "owned", "1");
    owned["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap",
        "name": "owner", "uid": owner["metadata"]["uid"]}]);
    api.create(owned).unwrap();
    api.delete("v1", "configmaps", "default", "owner").unwrap();
    assert_eq!(api.count("v1", "configmaps"), 0);

    create(&simulator, "kube-public", "x");
    api.delete("v1", "namespaces", "", "kube-public").unwrap();
    assert_eq!(api.count("v1", "configmaps"), 0);
}

#[tokio::test]
async fn definitions_are_registered_and_removed() {
    let simulator = start().await;
    let api = simulator.store();
    let crd = api.create(definition()).unwrap();
    assert_eq!(crd["status"]["conditions"][1]["type"], "Established");
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"name": "w", "namespace": "default"}, "spec": {"color": "red"}});
    let widget = api.create(widget).unwrap();
    assert_eq!(widget["metadata"]["generation"], 1);
    let path = "/apis/example.com/v1/namespaces/default/widgets/w/status";
    let mut status = widget.clone();
    status["status"] = json!({"ok": true});
    status["spec"] = json!({});
    let updated = send(&simulator, Method::PUT, path, status).await.json();
    assert_eq!((&updated["status"], &updated["spec"]), (&json!({"ok": true}), &widget["spec"]));
    let discovery = get(&simulator, "/apis/example.com/v1").await.json();
    assert_eq!(discovery["resources"][0]["name"], "widgets");
    let services = ("apiregistration.k8s.io/v1", "apiservices");
    assert!(api.get(services.0, services.1, "", "v2.example.com").is_some());
    api.delete("apiextensions.k8s.io/v1", "customresourcedefinitions", "", "widgets.example.com")
        .unwrap();
    assert_eq!(get(&simulator, "/apis/example.com/v1").await.code, 404);
    assert_eq!(api.get(services.0, services.1, "", "v2.example.com"), None);
}

#[tokio::test]
async fn aggregated_apis_appear_in_discovery() {
    let simulator = start().await;
    let resource = json!({"name": "nodes", "singularName": "", "namespaced": false,
        "kind": "NodeMetrics", "verbs": ["get", "list"]});
    let list = json!({"kind": "APIResourceList", "apiVersion": "v1",
        "groupVersion": "metrics.k8s.io/v1beta1", "resources": [resource]});
    simulator.add_aggregated("/apis/metrics.k8s.io/v1beta1", list);
    simulator.add_aggregated("/apis/metrics.k8s.io/v1beta1/nodes", json!({"items": []}));
    let groups = get(&simulator, "/apis").await.json();
    let last = groups["groups"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["name"], "metrics.k8s.io");
    let nodes = get(&simulator, "/apis/metrics.k8s.io/v1beta1/nodes").await.json();
    assert_eq!(nodes, json!({"items": []}));
    let name = "v1beta1.metrics.k8s.io";
    let service = simulator.store().get("apiregistration.k8s.io/v1", "apiservices", "", name);
    assert_eq!(service.unwrap()["spec"]["service"]["name"], "aggregated");
}

#[tokio::test]
async fn aggregated_discovery_is_revalidated() {
    let simulator = start().await;
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let first = request(&simulator, Method::GET, "/apis", &[("accept", accept)], Value::Null)
        .await
        .unwrap();
    assert_eq!(first.headers["content-type"], accept);
    let etag = first.headers["etag"].to_str().unwrap();
    assert_eq!(etag.len(), 130);
    let headers = [("accept", accept), ("if-none-match", etag)];
    let again = request(&simulator, Method::GET, "/apis", &headers, Value::Null).await.unwrap();
    assert_eq!((again.code.as_u16(), again.body.len()), (304, 0));
    simulator.store().create(definition()).unwrap();
    let changed = request(&simulator, Method::GET, "/apis", &headers, Value::Null).await.unwrap();
    assert_eq!(changed.code, 200);
}

#[tokio::test]
async fn users_are_limited_to_their_rules() {
    let reader = Rule::new(&["get", "list", "watch"], &["configmaps"], &["default"]);
    let users = vec![User::admin("root", "admin"), User::with_rules("r", "reader", vec![reader])];
    let simulator = start_with(SimulatorOptions { users, ..SimulatorOptions::default() }).await;
    let as_user = async |token: &str, path: &str| {
        let authorization = format!("Bearer {token}");
        let headers = [("authorization", authorization.as_str())];
        request(&simulator, Method::GET, path, &headers, Value::Null).await.unwrap()
    };
    assert_eq!(as_user("r", MAPS).await.code, 200);
    assert_eq!(as_user("root", "/api/v1/secrets").await.code, 200);
    let forbidden = as_user("r", "/api/v1/configmaps").await;
    assert_eq!(
        (forbidden.code.as_u16(), forbidden.message().as_str()),
        (
            403,
            "configmaps is forbidden: User \"reader\" cannot list resource \"configmaps\" in API group \"\" at the cluster scope"
        )
    );
    assert_eq!(forbidden.headers["x-content-type-options"], "nosniff");
    assert_eq!(as_user("nobody", MAPS).await.code, 401);
    assert_eq!(get(&simulator, MAPS).await.code, 403, "anonymous");
    assert_eq!(get(&simulator, "/version").await.code, 200);

    let headers = [("authorization", "Bearer root")];
    let review = json!({"spec": {"user": "reader",
        "resourceAttributes": {"verb": "list", "resource": "configmaps", "namespace": "default"}}});
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let review = request(&simulator, Method::POST, path, &headers, review).await.unwrap().json();
    assert_eq!(review["status"]["allowed"], true);
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let token = json!({"spec": {"token": "r"}});
    let review = request(&simulator, Method::POST, path, &headers, token).await.unwrap().json();
    assert_eq!(review["status"]["user"]["username"], "reader");
}

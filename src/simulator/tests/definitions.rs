//! Custom resources and their watches when their definition changes.

use serde_json::{Value, json};

use super::client::{Watch, get, revision, start};
use super::writes::definition;
use crate::Simulator;

const WIDGETS: &str = "/apis/example.com/v1/widgets";
const CRDS: (&str, &str) = ("apiextensions.k8s.io/v1", "customresourcedefinitions");

fn widget(simulator: &Simulator, name: &str) -> u64 {
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"name": name, "namespace": "default"}, "spec": {"size": 3}});
    revision(&simulator.store().create(widget).unwrap())
}

#[tokio::test]
async fn a_changed_definition_ends_watches_and_resets_history() {
    let simulator = start().await;
    let api = simulator.store();
    api.create(definition()).unwrap();
    let created = widget(&simulator, "w");
    let mut watch = Watch::open(&simulator, WIDGETS, &format!("resourceVersion={created}")).await;
    let mut changed = definition();
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties":
        {"color": {"type": "string", "default": "red"}, "size": {"type": "integer"}}}}});
    for version in changed["spec"]["versions"].as_array_mut().unwrap() {
        version["schema"]["openAPIV3Schema"] = schema.clone();
        let fields = version["selectableFields"].as_array_mut().unwrap();
        fields.push(json!({"jsonPath": ".spec.size"}));
    }
    api.update(changed).unwrap();
    watch.ends().await;
    let mut late = Watch::open(&simulator, WIDGETS, &format!("resourceVersion={created}")).await;
    assert_eq!(late.next().await["object"]["code"], 410);

    let path = format!("{WIDGETS}?fieldSelector=spec.size%3D3,spec.color%3Dred");
    let item = get(&simulator, &path).await.json()["items"][0].clone();
    assert_eq!(item["spec"], json!({"color": "red", "size": 3}), "defaults are filled in");
    assert_eq!(revision(&item), created);
    let other = get(&simulator, "/apis/example.com/v2/namespaces/default/widgets/w").await;
    let expected = "{\"apiVersion\":\"example.com/v2\",\"kind\":\"Widget\",\"metadata\":";
    assert!(other.text().starts_with(expected));
    let mut watch = Watch::open(&simulator, WIDGETS, "resourceVersion=0").await;
    assert_eq!(watch.next().await["object"]["spec"]["color"], "red");
    // A change of only its labels does not end watches.
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    api.patch(CRDS.0, CRDS.1, "", "widgets.example.com", &labels).unwrap();
    let next = widget(&simulator, "x");
    assert_eq!(watch.events(1).await, [format!("ADDED x@{next}")]);
}

#[tokio::test]
async fn a_held_definition_has_no_effect_before_its_release() {
    let simulator = start().await;
    let api = simulator.store();
    api.create(definition()).unwrap();
    let created = widget(&simulator, "w");
    simulator.hold_definitions();
    let mut changed = definition();
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object",
        "properties": {"color": {"type": "string", "default": "red"}}}}});
    for version in changed["spec"]["versions"].as_array_mut().unwrap() {
        version["schema"]["openAPIV3Schema"] = schema.clone();
        version.as_object_mut().unwrap().remove("selectableFields");
    }
    api.update(changed).unwrap();
    let mut watch = Watch::open(&simulator, WIDGETS, &format!("resourceVersion={created}")).await;
    let last = widget(&simulator, "x");
    assert_eq!(watch.events(1).await, [format!("ADDED x@{last}")]);
    simulator.release_definitions();
    watch.ends().await;
    // The last write is of this resource, so that nothing is missing after it.
    let mut watch = Watch::open(&simulator, WIDGETS, &format!("resourceVersion={last}")).await;
    widget(&simulator, "y");
    assert_eq!(watch.next().await["object"]["spec"]["color"], "red");
}

#[tokio::test]
async fn watches_see_the_deletions_by_a_deleted_definition() {
    let simulator = start().await;
    let api = simulator.store();
    api.create(definition()).unwrap();
    let rv = widget(&simulator, "w");
    let mut watch = Watch::open(&simulator, WIDGETS, &format!("resourceVersion={rv}")).await;
    api.delete(CRDS.0, CRDS.1, "", "widgets.example.com").unwrap();
    let event = watch.next().await;
    assert_eq!(
        (&event["type"], &event["object"]["metadata"]["name"]),
        (&json!("DELETED"), &json!("w"))
    );
    assert!(revision(&event["object"]) > rv);
    watch.ends().await;
    let gone = get(&simulator, WIDGETS).await;
    assert_eq!((gone.code.as_u16(), gone.text()), (404, "404 page not found\n"));
    api.create(definition()).unwrap();
    let list = get(&simulator, WIDGETS).await.json();
    assert_eq!(list["items"], Value::Array(Vec::new()));
}

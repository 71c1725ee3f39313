//! APIService objects: one for each group and version that is served, as the upstream's aggregator keeps them. Those of
//! an aggregated API server name a service; that is how a client tells them apart.

use serde_json::{Value, json};

use super::defaults::now;
use super::{Preconditions, create, delete};
use crate::simulator::kinds::{array, text};
use crate::simulator::store::Store;

/// Registers a group and version, if it is not yet; `service` is the namespace and name of an aggregated API server.
pub(crate) fn register(store: &Store, group: &str, version: &str, service: Option<(&str, &str)>) {
    let reason = if service.is_some() { "Passed" } else { "Local" };
    let condition = json!({"type": "Available", "status": "True", "lastTransitionTime": now(),
        "reason": reason, "message": "Local APIServices are always available"});
    let mut spec = json!({"group": group, "version": version, "groupPriorityMinimum": 1000,
        "versionPriority": 100});
    if let (Some(map), Some((namespace, name))) = (spec.as_object_mut(), service) {
        map.insert(
            "service".to_owned(),
            json!({"namespace": namespace, "name": name, "port": 443}),
        );
    }
    let object = json!({"metadata": {"name": format!("{version}.{group}")}, "spec": spec,
        "status": {"conditions": [condition]}});
    let kind = store.registry().find("apiregistration.k8s.io", "v1", "apiservices");
    // One that exists already is as good.
    drop(kind.map(|kind| create(store, &kind, "", object, false)));
}

/// Registers what a CustomResourceDefinition serves.
pub(super) fn register_definition(store: &Store, definition: &Value) {
    for version in served(definition) {
        register(store, text(definition, "/spec/group"), version, None);
    }
}

/// Removes what a removed CustomResourceDefinition served and no other does.
pub(super) fn unregister_definition(store: &Store, definition: &Value) {
    let registry = store.registry();
    let Some(kind) = registry.find("apiregistration.k8s.io", "v1", "apiservices") else { return };
    let group = text(definition, "/spec/group");
    for version in served(definition).filter(|version| !registry.has_version(group, version)) {
        // Somebody else may have removed it.
        let name = format!("{version}.{group}");
        drop(delete(store, &kind, "", &name, &Preconditions::default()));
    }
}

fn served(definition: &Value) -> impl Iterator<Item = &str> {
    let versions = array(definition, "/spec/versions").iter();
    let served = versions.filter(|version| version.get("served") == Some(&Value::Bool(true)));
    served.map(|version| text(version, "/name"))
}

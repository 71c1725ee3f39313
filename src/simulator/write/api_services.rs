//! APIService objects: one for each group and version that is served, as the upstream's aggregator
//! keeps them. Those of an aggregated API server name a service; clients distinguish them by it.

use serde_json::{Value, json};

use super::defaults::now;
use crate::json::{array, text};
use weir_api::built_in_groups::is_built_in_group;

/// Returns the APIService of a group and version; `service` is the namespace and name of an
/// aggregated API server.
pub(super) fn api_service(group: &str, version: &str, service: Option<(&str, &str)>) -> Value {
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
    let labels = match service {
        Some(_) => json!({}),
        None => {
            let manager = if is_built_in_group(group) { "onstart" } else { "true" };
            json!({"kube-aggregator.kubernetes.io/automanaged": manager})
        }
    };
    json!({"metadata": {"name": format!("{version}.{group}"), "labels": labels}, "spec": spec,
        "status": {"conditions": [condition]}})
}

/// Returns the versions that a CustomResourceDefinition serves.
pub(super) fn served(definition: &Value) -> impl Iterator<Item = &str> {
    let versions = array(definition, "/spec/versions").iter();
    let served = versions.filter(|version| version.get("served") == Some(&Value::Bool(true)));
    served.map(|version| text(version, "/name"))
}

//! The minimum of defaulting that kubectl and informers rely on.

use base64::Engine;
use serde_json::{Map, Value, json};

use crate::json::text;
use crate::kinds::Kind;

/// Returns the present time in the API's format.
pub(crate) fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Returns five letters, as `generateName` appends them.
pub(crate) fn random_suffix() -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    (0..5).filter_map(|_| fastrand::choice(LETTERS)).map(|&byte| char::from(byte)).collect()
}

/// Adds the defaults of absent fields.
pub(super) fn apply(kind: &Kind, object: &mut Value) {
    let name = text(object, "/metadata/name").to_owned();
    match kind.resource.as_str() {
        _ if kind.custom => {}
        "namespaces" => namespace(object, &name),
        "pods" => {
            pod_spec(section(object, "spec"));
            put(section(object, "status"), "phase", || "Pending".into());
            put(section(object, "status"), "qosClass", || "BestEffort".into());
        }
        "deployments" => deployment(object),
        "replicasets" | "statefulsets" => {
            put(section(object, "spec"), "replicas", || 1.into());
            put(section(object, "status"), "replicas", || 0.into());
            template(object);
        }
        "daemonsets" => template(object),
        "services" => service(object),
        "secrets" => secret(object),
        "customresourcedefinitions" => definition(object),
        _ => {}
    }
}

fn namespace(object: &mut Value, name: &str) {
    put(section(object, "spec"), "finalizers", || json!(["kubernetes"]));
    put(section(object, "status"), "phase", || "Active".into());
    let Some(metadata) = object.get_mut("metadata") else { return };
    put(section(metadata, "labels"), "kubernetes.io/metadata.name", || name.into());
}

fn deployment(object: &mut Value) {
    let spec = section(object, "spec");
    put(spec, "replicas", || 1.into());
    put(spec, "revisionHistoryLimit", || 10.into());
    put(spec, "progressDeadlineSeconds", || 600.into());
    let rolling = json!({"maxUnavailable": "25%", "maxSurge": "25%"});
    put(spec, "strategy", || json!({}));
    if let Some(strategy) = spec.get_mut("strategy").and_then(Value::as_object_mut) {
        put(strategy, "type", || "RollingUpdate".into());
        if strategy.get("type").and_then(Value::as_str) == Some("RollingUpdate") {
            put(strategy, "rollingUpdate", || rolling);
        }
    }
    section(object, "status");
    template(object);
}

fn template(object: &mut Value) {
    let Some(template) = object.pointer_mut("/spec/template") else { return };
    pod_spec(section(template, "spec"));
}

fn pod_spec(spec: &mut Map<String, Value>) {
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for container in containers.filter_map(Value::as_object_mut) {
            let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
            let tag = image.rsplit('/').next().and_then(|last| last.split_once(':'));
            let latest = tag.is_none_or(|(_, tag)| tag == "latest");
            put(container, "resources", || json!({}));
            put(container, "terminationMessagePath", || "/dev/termination-log".into());
            put(container, "terminationMessagePolicy", || "File".into());
            let policy = if latest { "Always" } else { "IfNotPresent" };
            put(container, "imagePullPolicy", || policy.into());
            let ports = container.get_mut("ports").and_then(Value::as_array_mut);
            for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
                put(port, "protocol", || "TCP".into());
            }
        }
    }
    put(spec, "restartPolicy", || "Always".into());
    put(spec, "terminationGracePeriodSeconds", || 30.into());
    put(spec, "dnsPolicy", || "ClusterFirst".into());
    put(spec, "securityContext", || json!({}));
    put(spec, "schedulerName", || "default-scheduler".into());
}

fn service(object: &mut Value) {
    let spec = section(object, "spec");
    put(spec, "type", || "ClusterIP".into());
    put(spec, "sessionAffinity", || "None".into());
    let external = spec.get("type").and_then(Value::as_str) == Some("ExternalName");
    if !external {
        let ip = format!("10.96.{}.{}", fastrand::u8(1..250), fastrand::u8(1..250));
        put(spec, "clusterIP", || ip.into());
        let ip = spec.get("clusterIP").cloned().unwrap_or_default();
        put(spec, "clusterIPs", || json!([ip]));
        put(spec, "ipFamilies", || json!(["IPv4"]));
        put(spec, "ipFamilyPolicy", || "SingleStack".into());
        put(spec, "internalTrafficPolicy", || "Cluster".into());
    }
    let ports = spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten();
    for port in ports.filter_map(Value::as_object_mut) {
        put(port, "protocol", || "TCP".into());
        let container_port = port.get("port").cloned().unwrap_or_default();
        put(port, "targetPort", || container_port);
    }
    put(section(object, "status"), "loadBalancer", || json!({}));
}

fn secret(object: &mut Value) {
    let Some(map) = object.as_object_mut() else { return };
    put(map, "type", || "Opaque".into());
    let Some(Value::Object(texts)) = map.shift_remove("stringData") else { return };
    let data = section(object, "data");
    for (name, value) in texts {
        let bytes = value.as_str().unwrap_or_default();
        data.insert(name, base64::engine::general_purpose::STANDARD.encode(bytes).into());
    }
}

fn definition(object: &mut Value) {
    let names = object.pointer("/spec/names").cloned().unwrap_or_default();
    let mut kind_names = names;
    let kind = text(&kind_names, "/kind").to_owned();
    if let Some(names) = kind_names.as_object_mut() {
        put(names, "listKind", || format!("{kind}List").into());
        put(names, "singular", || kind.to_lowercase().into());
    }
    let versions = object.pointer("/spec/versions").and_then(Value::as_array);
    let stored = versions.into_iter().flatten();
    let stored: Vec<Value> = stored
        .filter(|version| version.get("storage") == Some(&Value::Bool(true)))
        .filter_map(|version| version.get("name").cloned())
        .collect();
    let condition = |kind: &str, reason: &str, message: &str| {
        json!({"type": kind, "status": "True", "reason": reason, "message": message,
            "lastTransitionTime": now()})
    };
    let spec = section(object, "spec");
    spec.insert("names".to_owned(), kind_names.clone());
    put(spec, "conversion", || json!({"strategy": "None"}));
    let status = section(object, "status");
    status.insert("acceptedNames".to_owned(), kind_names);
    status.insert("storedVersions".to_owned(), stored.into());
    put(status, "conditions", || {
        json!([
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition(
                "Established",
                "InitialNamesAccepted",
                "the initial names have been accepted"
            ),
        ])
    });
}

/// Returns the object at a key, and creates it if it is absent.
fn section<'a>(value: &'a mut Value, name: &str) -> &'a mut Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    let is_object = value.get(name).is_some_and(Value::is_object);
    if let (false, Some(map)) = (is_object, value.as_object_mut()) {
        map.insert(name.to_owned(), json!({}));
    }
    value.get_mut(name).and_then(Value::as_object_mut).unwrap_or_else(|| unreachable!())
}

/// Sets a key that is absent or null.
fn put(map: &mut Map<String, Value>, name: &str, value: impl FnOnce() -> Value) {
    if map.get(name).is_none_or(Value::is_null) {
        map.insert(name.to_owned(), value());
    }
}

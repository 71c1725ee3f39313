//! The cells of workloads and of the other kinds with elaborate printers.

use serde_json::{Value, json};

use super::age::age as age_of;
use crate::json::{array, number, text, texts};

/// Returns the cells of a pod.
pub(super) fn pod(object: &Value, age: &str) -> Value {
    let statuses = array(object, "/status/containerStatuses");
    let ready = statuses.iter().filter(|status| status.get("ready") == Some(&Value::Bool(true)));
    let total = array(object, "/spec/containers").len();
    let restarts: i64 = statuses
        .iter()
        .filter_map(|status| status.get("restartCount").and_then(Value::as_i64))
        .sum();
    let waiting = statuses
        .iter()
        .map(|status| text(status, "/state/waiting/reason"))
        .find(|reason| !reason.is_empty());
    let status = if object.pointer("/metadata/deletionTimestamp").is_some() {
        "Terminating"
    } else {
        waiting.unwrap_or_else(|| text(object, "/status/phase"))
    };
    let or_none = |value: &'_ str| if value.is_empty() { "<none>" } else { value }.to_owned();
    json!([
        text(object, "/metadata/name"),
        format!("{}/{total}", ready.count()),
        status,
        restarts.to_string(),
        age,
        or_none(text(object, "/status/podIPs/0/ip")),
        or_none(text(object, "/spec/nodeName")),
        or_none(text(object, "/status/nominatedNodeName")),
        "<none>",
    ])
}

/// Returns the cells of a node.
pub(super) fn node(object: &Value, age: &str) -> Value {
    let conditions = array(object, "/status/conditions").iter();
    let ready = conditions.clone().find(|condition| text(condition, "/type") == "Ready");
    let mut status = match ready.map(|condition| text(condition, "/status")) {
        Some("True") => "Ready",
        Some("False") => "NotReady",
        _ => "Unknown",
    }
    .to_owned();
    if object.pointer("/spec/unschedulable") == Some(&Value::Bool(true)) {
        status.push_str(",SchedulingDisabled");
    }
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    let roles: Vec<&str> = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, _)| key.strip_prefix("node-role.kubernetes.io/"))
        .collect();
    let roles = if roles.is_empty() { "<none>".to_owned() } else { roles.join(",") };
    let address = |kind: &str| {
        let mut addresses = array(object, "/status/addresses").iter();
        let address_entry = addresses.find(|address| text(address, "/type") == kind);
        address_entry.map_or("<none>", |address| text(address, "/address")).to_owned()
    };
    let info = |name: &str| {
        let value = text(object, &format!("/status/nodeInfo/{name}"));
        if value.is_empty() { "<unknown>" } else { value }.to_owned()
    };
    json!([
        text(object, "/metadata/name"),
        status,
        roles,
        age,
        text(object, "/status/nodeInfo/kubeletVersion"),
        address("InternalIP"),
        address("ExternalIP"),
        info("osImage"),
        info("kernelVersion"),
        info("containerRuntimeVersion"),
    ])
}

/// Returns the cells of a service.
pub(super) fn service(object: &Value, age: &str) -> Value {
    let ports: Vec<String> = array(object, "/spec/ports")
        .iter()
        .map(|port| {
            let number = port.get("port").and_then(Value::as_i64).unwrap_or(0);
            let node = port.get("nodePort").and_then(Value::as_i64);
            let node = node.map(|node| format!(":{node}")).unwrap_or_default();
            format!("{number}{node}/{}", text(port, "/protocol"))
        })
        .collect();
    let ports = if ports.is_empty() { "<none>".to_owned() } else { ports.join(",") };
    let ip = match text(object, "/spec/clusterIP") {
        "" => "<none>",
        ip => ip,
    };
    let external = match text(object, "/spec/type") {
        "" => "<unknown>",
        "LoadBalancer" => "<pending>",
        _ => "<none>",
    };
    json!([
        text(object, "/metadata/name"),
        text(object, "/spec/type"),
        ip,
        external,
        ports,
        age,
        pairs(object, "/spec/selector")
    ])
}

/// Returns the cells of an event.
pub(super) fn event(object: &Value) -> Value {
    let involved = format!(
        "{}/{}",
        text(object, "/involvedObject/kind").to_lowercase(),
        text(object, "/involvedObject/name")
    );
    let count = object.get("count").and_then(Value::as_i64).unwrap_or(1);
    json!([
        age_of(text(object, "/lastTimestamp")),
        text(object, "/type"),
        text(object, "/reason"),
        involved,
        text(object, "/involvedObject/fieldPath"),
        text(object, "/source/component"),
        text(object, "/message").trim(),
        age_of(text(object, "/firstTimestamp")),
        count,
        text(object, "/metadata/name"),
    ])
}

/// Returns the cells of a deployment.
pub(super) fn deployment(object: &Value, age: &str) -> Value {
    let (names, images) = containers(object, "/spec/template/spec/containers");
    let ready =
        format!("{}/{}", number(object, "/status/readyReplicas"), number(object, "/spec/replicas"));
    json!([
        text(object, "/metadata/name"),
        ready,
        number(object, "/status/updatedReplicas"),
        number(object, "/status/availableReplicas"),
        age,
        names,
        images,
        selector(object, "")
    ])
}

/// Returns the cells of a replica set.
pub(super) fn replica_set(object: &Value, age: &str) -> Value {
    let (names, images) = containers(object, "/spec/template/spec/containers");
    json!([
        text(object, "/metadata/name"),
        number(object, "/spec/replicas"),
        number(object, "/status/replicas"),
        number(object, "/status/readyReplicas"),
        age,
        names,
        images,
        selector(object, "<none>"),
    ])
}

/// Returns the cells of a stateful set.
pub(super) fn stateful_set(object: &Value, age: &str) -> Value {
    let (names, images) = containers(object, "/spec/template/spec/containers");
    let ready =
        format!("{}/{}", number(object, "/status/readyReplicas"), number(object, "/spec/replicas"));
    json!([text(object, "/metadata/name"), ready, age, names, images])
}

/// Returns the cells of an endpoint slice.
pub(super) fn endpoint_slice(object: &Value, age: &str) -> Value {
    let ports: Vec<String> =
        array(object, "/ports").iter().map(|port| number(port, "/port").to_string()).collect();
    let ports = if ports.is_empty() { "<unset>".to_owned() } else { ports.join(",") };
    let endpoints: Vec<String> =
        array(object, "/endpoints").iter().map(|endpoint| joined(endpoint, "/addresses")).collect();
    let more = endpoints.len().saturating_sub(3);
    let mut listed = endpoints.into_iter().take(3).collect::<Vec<_>>().join(",");
    if more > 0 {
        listed = format!("{listed} + {more} more...");
    }
    if listed.is_empty() {
        "<unset>".clone_into(&mut listed);
    }
    json!([text(object, "/metadata/name"), text(object, "/addressType"), ports, listed, age])
}

fn selector(object: &Value, empty: &str) -> String {
    match pairs(object, "/spec/selector/matchLabels").as_str() {
        "<none>" => empty.to_owned(),
        value => value.to_owned(),
    }
}

/// Returns the names of an array of containers, and their images.
fn containers(object: &Value, pointer: &str) -> (String, String) {
    let containers = array(object, pointer).iter();
    let names: Vec<&str> = containers.clone().map(|container| text(container, "/name")).collect();
    let images: Vec<&str> = containers.map(|container| text(container, "/image")).collect();
    (names.join(","), images.join(","))
}

/// Returns a map as `a=b,c=d`; `<none>` if it is empty.
fn pairs(object: &Value, pointer: &str) -> String {
    let map = object.pointer(pointer).and_then(Value::as_object);
    let pairs = map.into_iter().flatten();
    let pairs: Vec<String> =
        pairs.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    if pairs.is_empty() { "<none>".to_owned() } else { pairs.join(",") }
}

/// Returns the strings of an array, joined; `<none>` if there are none.
fn joined(object: &Value, pointer: &str) -> String {
    let values = texts(object, pointer);
    if values.is_empty() { "<none>".to_owned() } else { values.join(",") }
}

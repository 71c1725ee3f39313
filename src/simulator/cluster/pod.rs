//! Pods as they look after a kubelet has started them: about 5 KB of JSON, as real ones have, half
//! of it `managedFields`.

use fastrand::Rng;
use serde_json::{Map, Value, json};

use super::node::{node_ip, node_name};
use crate::json::{array, text};
use crate::write::{now, random_suffix};

/// Returns a new pod of a replica set, without a node.
pub(super) fn from_replica_set(replica_set: &Value) -> Value {
    let meta = |name: &str| text(replica_set, &format!("/metadata/{name}"));
    let template = replica_set.pointer("/spec/template").cloned().unwrap_or_default();
    let mut labels = template.pointer("/metadata/labels").cloned().unwrap_or_default();
    let hash = text(replica_set, "/metadata/labels/pod-template-hash");
    if let Some(labels) = labels.as_object_mut() {
        labels.insert("pod-template-hash".to_owned(), hash.into());
    }
    let mut metadata = json!({
        "name": format!("{}-{}", meta("name"), random_suffix()),
        "generateName": format!("{}-", meta("name")),
        "namespace": meta("namespace"),
        "labels": labels,
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": meta("name"),
            "uid": meta("uid"), "controller": true, "blockOwnerDeletion": true}]});
    if let Some(annotations) = template.pointer("/metadata/annotations") {
        metadata["annotations"] = annotations.clone();
    }
    let spec = template.get("spec").cloned().unwrap_or_else(|| json!({}));
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}

/// Assigns a pod to a random node, and adds the fields that admission and the scheduler add.
pub(super) fn placed(mut pod: Value, nodes: usize, rng: &mut Rng) -> Value {
    let node = rng.usize(0..nodes);
    let volume = format!("kube-api-access-{}", random_suffix());
    let toleration = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return pod };
    spec.insert("nodeName".to_owned(), node_name(node).into());
    put(spec, "serviceAccountName", "default".into());
    put(spec, "serviceAccount", "default".into());
    put(spec, "preemptionPolicy", "PreemptLowerPriority".into());
    put(spec, "priority", 0.into());
    put(spec, "enableServiceLinks", true.into());
    let tolerations = json!([
        toleration("node.kubernetes.io/not-ready"),
        toleration("node.kubernetes.io/unreachable")
    ]);
    put(spec, "tolerations", tolerations);
    let sources = json!([
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace",
            "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}}]);
    let volumes = json!([{"name": volume, "projected": {"sources": sources, "defaultMode": 420}}]);
    put(spec, "volumes", volumes);
    let mount = json!([{"name": volume, "readOnly": true,
        "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}]);
    let containers = spec.get_mut("containers").and_then(Value::as_array_mut);
    for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
        put(container, "volumeMounts", mount.clone());
    }
    pod
}

/// Returns the pod with the status of a running one, on its node.
pub(super) fn running(mut pod: Value, rng: &mut Rng) -> Value {
    let time = now();
    let node = text(&pod, "/spec/nodeName").rsplit('-').next().and_then(|n| n.parse().ok());
    let host = node_ip(node.unwrap_or(1_usize).saturating_sub(1));
    let ip = format!("10.{}.{}.{}", rng.u8(100..200), rng.u8(..), rng.u8(1..255));
    let statuses: Vec<Value> = array(&pod, "/spec/containers")
        .iter()
        .map(|container| {
            let image = text(container, "/image");
            json!({"name": text(container, "/name"), "state": {"running": {"startedAt": time}},
                "lastState": {}, "ready": true, "restartCount": 0, "image": image,
                "imageID": format!("{image}@sha256:{}", digest(rng)),
                "containerID": format!("containerd://{}", digest(rng)), "started": true,
                "resources": {}})
        })
        .collect();
    let generation = pod.pointer("/metadata/generation").cloned().unwrap_or_else(|| 1.into());
    let conditions: Vec<Value> =
        ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]
            .iter()
            .map(|kind| {
                json!({"type": kind, "observedGeneration": generation, "status": "True",
                    "lastProbeTime": null, "lastTransitionTime": time})
            })
            .collect();
    let status = json!({"observedGeneration": generation, "phase": "Running",
        "conditions": conditions, "hostIP": host, "hostIPs": [{"ip": host}], "podIP": ip,
        "podIPs": [{"ip": ip}], "startTime": time, "containerStatuses": statuses,
        "qosClass": "Burstable"});
    pod["status"] = status;
    let managed = managed_fields(&pod, &time);
    if let Some(metadata) = pod.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("managedFields".to_owned(), managed);
    }
    pod
}

/// Returns the pod after another restart of its first container.
pub(super) fn restarted(mut pod: Value) -> Value {
    let time = now();
    if let Some(status) =
        pod.pointer_mut("/status/containerStatuses/0").and_then(Value::as_object_mut)
    {
        let count = status.get("restartCount").and_then(Value::as_i64).unwrap_or(0);
        status.insert("restartCount".to_owned(), (count + 1).into());
        status.insert("state".to_owned(), json!({"running": {"startedAt": time}}));
    }
    pod
}

/// Returns the owners of a pod's fields: the controller manager owns its spec, the kubelet its
/// status.
fn managed_fields(pod: &Value, time: &str) -> Value {
    let labels = pod.pointer("/metadata/labels").and_then(Value::as_object);
    let owned = |map: Option<&Map<String, Value>>| -> Map<String, Value> {
        let names = map.into_iter().flatten();
        std::iter::once((".".to_owned(), json!({})))
            .chain(names.map(|(name, _)| (format!("f:{name}"), json!({}))))
            .collect()
    };
    let containers: Map<String, Value> = array(pod, "/spec/containers")
        .iter()
        .map(|container| {
            let key = format!("k:{{\"name\":\"{}\"}}", text(container, "/name"));
            (key, Value::Object(owned(container.as_object())))
        })
        .collect();
    let uid = text(pod, "/metadata/ownerReferences/0/uid");
    let owner = format!("k:{{\"uid\":\"{uid}\"}}");
    let mut references = json!({".": {}});
    if !uid.is_empty() {
        references[owner] = json!({});
    }
    let spec = json!({"f:containers": containers, "f:dnsPolicy": {}, "f:enableServiceLinks": {},
        "f:restartPolicy": {}, "f:schedulerName": {}, "f:securityContext": {},
        "f:terminationGracePeriodSeconds": {}});
    let created = json!({"f:metadata": {"f:generateName": {}, "f:labels": owned(labels),
        "f:ownerReferences": references}, "f:spec": spec});
    let condition = json!({".": {}, "f:lastProbeTime": {}, "f:lastTransitionTime": {},
        "f:observedGeneration": {}, "f:status": {}, "f:type": {}});
    let conditions: Map<String, Value> =
        ["ContainersReady", "Initialized", "PodReadyToStartContainers", "Ready"]
            .iter()
            .map(|kind| (format!("k:{{\"type\":\"{kind}\"}}"), condition.clone()))
            .collect();
    let ip = format!("k:{{\"ip\":\"{}\"}}", text(pod, "/status/podIP"));
    let ips = Map::from_iter([(".".to_owned(), json!({})), (ip, json!({".": {}, "f:ip": {}}))]);
    let status = json!({"f:status": {"f:conditions": conditions, "f:containerStatuses": {},
        "f:hostIP": {}, "f:hostIPs": {}, "f:observedGeneration": {}, "f:phase": {}, "f:podIP": {},
        "f:podIPs": ips, "f:startTime": {}}});
    json!([
        {"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1",
            "time": time, "fieldsType": "FieldsV1", "fieldsV1": created},
        {"manager": "kubelet", "operation": "Update", "apiVersion": "v1", "time": time,
            "fieldsType": "FieldsV1", "fieldsV1": status, "subresource": "status"}])
}

fn digest(rng: &mut Rng) -> String {
    format!("{:032x}{:032x}", rng.u128(..), rng.u128(..))
}

fn put(map: &mut Map<String, Value>, name: &str, value: Value) {
    map.entry(name.to_owned()).or_insert(value);
}

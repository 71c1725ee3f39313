//! Pods as an API server sends them, with 4.9 KB in JSON and 3.4 KB in protobuf.
//!
//! A template is read from a simulator in either encoding. All pods are copies of it with other
//! digits in their names. The number of digits is the same, so that the length prefixes of protobuf
//! stay valid.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use weir::api::resource::{ApiResource, GroupVersionResource, Representation, Shape};
use weir::api::resource_version::ResourceVersion;
use weir::api::selectable::SelectableFields;
use weir::codec::object::Object;
use weir::codec::{ingest, splice};
use weir::simulator::{Simulator, SimulatorOptions};

/// The intended size of a pod in JSON.
const BYTES: usize = 4_900;
/// A placeholder in the template. Nothing else in a pod contains these digits.
const INDEX: &str = "424242";
const NAMESPACE: &str = "team-5353";
const NODE: &str = "node-6464";
const HALF: &str = "half-7";
const RESOURCE_VERSION: &str = "818181818";

/// Identifies a pod and its version.
#[derive(Clone, Copy, Default)]
pub(crate) struct PodId {
    pub(crate) index: usize,
    pub(crate) namespace: usize,
    pub(crate) node: usize,
    /// Counted from the first one that [`Pods`] uses, so that all have the same number of digits.
    pub(crate) resource_version: u64,
}

impl PodId {
    /// Returns pod `index` of a cluster with ten namespaces and a hundred nodes.
    pub(crate) fn nth(index: usize) -> Self {
        Self { index, namespace: index % 10, node: index / 10 % 100, resource_version: 0 }
    }

    /// Returns a later version of the same pod.
    pub(crate) fn at(self, resource_version: u64) -> Self {
        Self { resource_version, ..self }
    }
}

pub(crate) fn namespace(number: usize) -> String {
    format!("team-{number:04}")
}

pub(crate) fn node(number: usize) -> String {
    format!("node-{number:04}")
}

/// Converts a version number of [`PodId`] to a resourceVersion.
pub(crate) fn resource_version(number: u64) -> ResourceVersion {
    ResourceVersion(100_000_000 + number)
}

/// The template of all pods in one encoding.
pub(crate) struct Pods {
    pub(crate) resource: Arc<ApiResource>,
    pub(crate) representation: Representation,
    body: Vec<u8>,
    /// The offsets of each placeholder.
    offsets: [(Vec<usize>, &'static str); 5],
    /// The offset of the value of [`CHANGED`] in JSON.
    changed_at: usize,
}

impl Pods {
    pub(crate) fn json() -> Self {
        Self::new(Representation::Json, "application/json")
    }

    pub(crate) fn protobuf() -> Self {
        Self::new(Representation::Protobuf, "application/vnd.kubernetes.protobuf")
    }

    fn new(representation: Representation, accept: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let fetched = runtime.expect("a runtime").block_on(fetch(accept));
        let gvr = GroupVersionResource::new("", "v1", "pods");
        let resource = ApiResource {
            kind: "Pod".into(),
            list_kind: "PodList".into(),
            namespaced: true,
            list_watchable: true,
            shape: Shape::BuiltIn,
            aggregated: false,
            revision: 0,
            selectable: Arc::new(SelectableFields::built_in(&gvr)),
            gvr,
        };
        let decoded = ingest::object(fetched.trim_ascii_end(), &resource, representation);
        let decoded = decoded.expect("a pod");
        let number = ResourceVersion(RESOURCE_VERSION.parse().expect("a number"));
        let (body, _) = splice::with_resource_version(decoded.body(), decoded.layout, number);
        let offset = |placeholder: &'static str| {
            let places: Vec<_> = memchr::memmem::find_iter(&body, placeholder).collect();
            assert!(!places.is_empty(), "{placeholder}");
            (places, placeholder)
        };
        let offsets = [INDEX, NAMESPACE, NODE, HALF, RESOURCE_VERSION].map(offset);
        let changed =
            memchr::memmem::find(&body, CHANGED.as_bytes()).expect("the pod has the annotation");
        let changed_at = changed + CHANGED.len() + r#"":""#.len();
        Self { resource: Arc::new(resource), representation, body, offsets, changed_at }
    }

    /// Returns the pod as GET and WATCH send it.
    pub(crate) fn bytes(&self, id: PodId) -> Vec<u8> {
        let names = [
            format!("{:06}", id.index),
            namespace(id.namespace),
            node(id.node),
            format!("half-{}", id.index % 2),
            resource_version(id.resource_version).to_string(),
        ];
        let mut body = self.body.clone();
        for ((offsets, placeholder), name) in self.offsets.iter().zip(&names) {
            assert_eq!(placeholder.len(), name.len(), "{name}");
            for offset in offsets {
                let part = body
                    .get_mut(*offset..offset + name.len())
                    .expect("the offset is inside the body");
                part.copy_from_slice(name.as_bytes());
            }
        }
        body
    }

    /// Returns the pod in JSON with the time of its last change, in microseconds.
    pub(crate) fn changed(&self, id: PodId, micros: u128) -> Vec<u8> {
        let mut body = self.bytes(id);
        let at = self.changed_at;
        let digits = format!("{micros:0CHANGED_DIGITS$}");
        body.get_mut(at..at + digits.len())
            .expect("the annotation is inside the body")
            .copy_from_slice(digits.as_bytes());
        body
    }

    pub(crate) fn object(&self, id: PodId) -> Object {
        ingest::object(&self.bytes(id), &self.resource, self.representation).expect("a pod")
    }

    /// Returns the first `count` pods.
    pub(crate) fn objects(&self, count: usize) -> Vec<Object> {
        (0..count).map(|index| self.object(PodId::nth(index))).collect()
    }
}

/// Returns a pod to be created in a simulator.
pub(crate) fn pod(index: &str, namespace: &str, node: &str, half: &str) -> Value {
    let (spec, status) = (spec(node), status());
    let manager = |name: &str, fields: Value| {
        json!({"manager": name, "operation": "Update", "apiVersion": "v1",
            "time": "2026-01-05T08:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": fields})
    };
    let managed = [
        manager("kube-controller-manager", json!({"f:spec": fields(&spec)})),
        manager("kubelet", json!({"f:status": fields(&status)})),
    ];
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("{NAME}{index}"), "namespace": namespace,
            "labels": {"app.kubernetes.io/name": "service", "app.kubernetes.io/part-of": "shop",
                "half": half, "pod-template-hash": "5d4f8c7b9"},
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "9090",
                CHANGED: "0".repeat(CHANGED_DIGITS),
                "checksum/config": "x".repeat(PADDING)},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "service-5d4f8c7b9",
                "uid": "0da57b8d-9045-4653-aa5e-7ee52be0dccd", "controller": true,
                "blockOwnerDeletion": true}],
            "managedFields": managed},
        "spec": spec, "status": status})
}

/// The prefix of every pod's name.
pub(crate) const NAME: &str = "service-5d4f8c7b9-";
/// The length of an annotation that fills the pod up to [`BYTES`].
const PADDING: usize = 121;
/// An annotation whose value has a fixed length.
pub(crate) const CHANGED: &str = "weir.dev/changed";
pub(crate) const CHANGED_DIGITS: usize = 16;

/// Returns the `fieldsV1` of `managedFields`, which is a third of a real pod.
fn fields(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            map.iter().map(|(key, value)| (format!("f:{key}"), fields(value))).collect()
        }
        Value::Array(items) => {
            let key = |item: &Value| match item.get("name").or_else(|| item.get("type")) {
                Some(name) => format!(r#"k:{{"name":{name}}}"#),
                None => "v:".to_owned(),
            };
            items.iter().map(|item| (key(item), fields(item))).collect()
        }
        _ => json!({}),
    }
}

fn spec(node: &str) -> Value {
    let probe = |path: &str| {
        json!({"httpGet": {"path": path, "port": "http", "scheme": "HTTP"},
            "initialDelaySeconds": 5, "timeoutSeconds": 1, "periodSeconds": 10,
            "successThreshold": 1, "failureThreshold": 3})
    };
    let container = json!({"name": "main", "image": "registry.example.com/shop/service:v1.27.3",
        "imagePullPolicy": "IfNotPresent",
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "env": [{"name": "LOG_LEVEL", "value": "info"},
            {"name": "DATABASE_HOST", "value": "service-db.shop.svc.cluster.local"}],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
        "volumeMounts": [{"name": "config", "mountPath": "/etc/service", "readOnly": true}],
        "livenessProbe": probe("/livez"),
        "securityContext": {"runAsNonRoot": true}});
    json!({"nodeName": node, "containers": [container], "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30, "serviceAccountName": "default",
        "volumes": [{"name": "config", "configMap": {"name": "service-config", "defaultMode": 420}}]})
}

fn status() -> Value {
    let start = "2026-01-05T08:00:00Z";
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": start});
    let conditions = ["Initialized", "Ready", "ContainersReady", "PodScheduled"];
    json!({"phase": "Running", "hostIP": "10.0.0.1", "hostIPs": [{"ip": "10.0.0.1"}],
        "podIP": "10.64.3.9", "podIPs": [{"ip": "10.64.3.9"}], "startTime": start,
        "qosClass": "Burstable", "conditions": conditions.map(condition),
        "containerStatuses": [{"name": "main", "ready": true, "started": true, "restartCount": 0,
            "image": "registry.example.com/shop/service:v1.27.3",
            "imageID": "registry.example.com/shop/service@sha256:7cc4b5aefd1d0cadf8d97d4350462ba51c694ebca145b08d7d41b41acc8db5aa",
            "containerID": "containerd://25cb1efcf9dc4f6ad1f4e4d8f3c6a2b0917e5d3c8b6a4f2e0d1c3b5a79688e7d",
            "state": {"running": {"startedAt": start}}, "lastState": {}}]})
}

async fn fetch(accept: &str) -> Bytes {
    let upstream = Simulator::start(SimulatorOptions::default()).await.expect("a simulator");
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    upstream.store().create(namespace).expect("the namespace is created");
    let created =
        upstream.store().create(pod(INDEX, NAMESPACE, NODE, HALF)).expect("the pod is created");
    let name =
        created.pointer("/metadata/name").and_then(Value::as_str).expect("the pod has a name");
    let mut connection =
        TcpStream::connect(upstream.address()).await.expect("the simulator listens");
    let request = format!(
        "GET /api/v1/namespaces/{NAMESPACE}/pods/{name} HTTP/1.1\r\nhost: localhost\r\naccept: {accept}\r\nconnection: close\r\n\r\n"
    );
    connection.write_all(request.as_bytes()).await.expect("the request is sent");
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer).await.expect("a response");
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    let body = memchr::memmem::find(&answer, b"\r\n\r\n").expect("a response head") + 4;
    let body = Bytes::from(answer).split_off(body);
    if accept == "application/json" {
        let short = BYTES.abs_diff(body.len());
        assert!(short < 20, "a pod has {} bytes: change PADDING", body.len());
    }
    body
}

//! Pods as an API server sends them, of 4.9 KB in JSON and 3.4 in protobuf.
//!
//! One is asked of a simulator in both encodings; all others are it with other digits in its names, as many as the first one has, so that every
//! length in protobuf holds.

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

/// In bytes of JSON.
const BYTES: usize = 4_900;
/// Nothing else in a pod has these digits.
const INDEX: &str = "424242";
const NAMESPACE: &str = "team-5353";
const NODE: &str = "node-6464";
const HALF: &str = "half-7";
const RESOURCE_VERSION: &str = "818181818";

/// Which pod.
#[derive(Clone, Copy, Default)]
pub(crate) struct Which {
    pub(crate) index: usize,
    pub(crate) namespace: usize,
    pub(crate) node: usize,
    /// Counted from the first that [`Pods`] gives, so that all have as many digits.
    pub(crate) resource_version: u64,
}

impl Which {
    /// One of five thousand or so: in ten namespaces, on a hundred nodes.
    pub(crate) fn nth(index: usize) -> Self {
        Self { index, namespace: index % 10, node: index / 10 % 100, resource_version: 0 }
    }

    /// The same, later.
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

/// The resourceVersion of a number, as [`Which`] counts.
pub(crate) fn resource_version(number: u64) -> ResourceVersion {
    ResourceVersion(100_000_000 + number)
}

/// See the module.
pub(crate) struct Pods {
    pub(crate) resource: Arc<ApiResource>,
    pub(crate) representation: Representation,
    body: Vec<u8>,
    /// Where the digits of each name stand.
    places: [(Vec<usize>, &'static str); 5],
    /// Where the digits of [`CHANGED`] stand in JSON.
    changed_at: usize,
}

impl Pods {
    pub(crate) fn json() -> Self {
        Self::of(Representation::Json, "application/json")
    }

    pub(crate) fn protobuf() -> Self {
        Self::of(Representation::Protobuf, "application/vnd.kubernetes.protobuf")
    }

    fn of(representation: Representation, accept: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let sent = runtime.expect("a runtime").block_on(ask(accept));
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
        let read = ingest::object(sent.trim_ascii_end(), &resource, representation);
        let read = read.expect("a pod");
        let number = ResourceVersion(RESOURCE_VERSION.parse().expect("a number"));
        let (body, _) = splice::with_resource_version(&read.body, read.layout, number);
        let place = |mark: &'static str| {
            let found: Vec<_> = memchr::memmem::find_iter(&body, mark).collect();
            assert!(!found.is_empty(), "{mark}");
            (found, mark)
        };
        let places = [INDEX, NAMESPACE, NODE, HALF, RESOURCE_VERSION].map(place);
        let changed = memchr::memmem::find(&body, CHANGED.as_bytes()).expect("it is there");
        let changed_at = changed + CHANGED.len() + r#"":""#.len();
        Self { resource: Arc::new(resource), representation, body, places, changed_at }
    }

    /// As GET and WATCH show it.
    pub(crate) fn bytes(&self, which: Which) -> Vec<u8> {
        let words = [
            format!("{:06}", which.index),
            namespace(which.namespace),
            node(which.node),
            format!("half-{}", which.index % 2),
            resource_version(which.resource_version).to_string(),
        ];
        let mut body = self.body.clone();
        for ((places, mark), word) in self.places.iter().zip(&words) {
            assert_eq!(mark.len(), word.len(), "{word}");
            for place in places {
                let part = body.get_mut(*place..place + word.len()).expect("it was found there");
                part.copy_from_slice(word.as_bytes());
            }
        }
        body
    }

    /// The same in JSON, with the time of the last change.
    pub(crate) fn changed(&self, which: Which, micros: u128) -> Vec<u8> {
        let mut body = self.bytes(which);
        let at = self.changed_at;
        let digits = format!("{micros:0CHANGED_DIGITS$}");
        body.get_mut(at..at + digits.len())
            .expect("it is there")
            .copy_from_slice(digits.as_bytes());
        body
    }

    pub(crate) fn object(&self, which: Which) -> Object {
        ingest::object(&self.bytes(which), &self.resource, self.representation).expect("a pod")
    }

    /// The first so many.
    pub(crate) fn objects(&self, count: usize) -> Vec<Object> {
        (0..count).map(|index| self.object(Which::nth(index))).collect()
    }
}

/// What a simulator has at first of the pod that all are made of.
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

/// With what its name begins.
pub(crate) const NAME: &str = "service-5d4f8c7b9-";
/// What makes it as long as it should be.
const PADDING: usize = 121;
/// An annotation that can be changed without another length.
pub(crate) const CHANGED: &str = "weir.dev/changed";
pub(crate) const CHANGED_DIGITS: usize = 16;

/// Who manages what, as `managedFields` tell: a third of a real pod.
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

async fn ask(accept: &str) -> Bytes {
    let upstream = Simulator::start(SimulatorOptions::default()).await.expect("a simulator");
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    upstream.store().create(namespace).expect("it is created");
    let made = upstream.store().create(pod(INDEX, NAMESPACE, NODE, HALF)).expect("it is created");
    let name = made.pointer("/metadata/name").and_then(Value::as_str).expect("it has one");
    let mut connection = TcpStream::connect(upstream.address()).await.expect("it listens");
    let request = format!(
        "GET /api/v1/namespaces/{NAMESPACE}/pods/{name} HTTP/1.1\r\nhost: localhost\r\naccept: {accept}\r\nconnection: close\r\n\r\n"
    );
    connection.write_all(request.as_bytes()).await.expect("it is taken");
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer).await.expect("an answer");
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    let body = memchr::memmem::find(&answer, b"\r\n\r\n").expect("a head") + 4;
    let body = Bytes::from(answer).split_off(body);
    if accept == "application/json" {
        let short = BYTES.abs_diff(body.len());
        assert!(short < 20, "pods of {} bytes: adapt PADDING", body.len());
    }
    body
}

//! A pod as a Deployment creates it, except that it is bound to its node from the start.

use serde_json::{Value, json};

use crate::changes::{SENT, SENT_DIGITS};
use crate::pods::{PADDING, namespace, node_of};

/// The number of Deployments per namespace. Pods of one Deployment are adjacent in a list, as in a
/// real cluster.
const DEPLOYMENTS: usize = 25;

pub(crate) fn name(index: usize) -> String {
    let deployment = index / 10 % DEPLOYMENTS;
    format!("service-{deployment:02}-{:x}-{index:05}", 0x5d4f_8c7b ^ deployment)
}

/// Returns a pod with an annotation of `padding` bytes.
pub(crate) fn pod(index: usize, padding: usize) -> Value {
    let name = name(index);
    let (replica_set, _) = name.rsplit_once('-').expect("a name with an index");
    let (app, hash) = replica_set.rsplit_once('-').expect("a name with a hash");
    let half = if index.is_multiple_of(2) { "first" } else { "second" };
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace(index),
            "labels": {"app.kubernetes.io/name": app, "app.kubernetes.io/part-of": "shop",
                "pod-template-hash": hash, "half": half},
            "annotations": {SENT: "0".repeat(SENT_DIGITS),
                "prometheus.io/scrape": "true", "prometheus.io/port": "9090",
                PADDING: "x".repeat(padding)},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": replica_set,
                "uid": "0da57b8d-9045-4653-aa5e-7ee52be0dccd", "controller": true,
                "blockOwnerDeletion": true}]},
        "spec": {"nodeName": node_of(index), "containers": [container(app)],
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 30,
            "serviceAccountName": "default", "automountServiceAccountToken": false,
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}],
            "volumes": [{"name": "config", "configMap": {"name": format!("{app}-config")}},
                {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}}]}})
}

fn container(app: &str) -> Value {
    let probe = |path: &str| json!({"httpGet": {"path": path, "port": "http"}, "initialDelaySeconds": 5, "periodSeconds": 10});
    json!({"name": "main", "image": format!("registry.example.com/shop/{app}:v1.27.3"),
        "imagePullPolicy": "IfNotPresent",
        "ports": [{"name": "http", "containerPort": 8080}, {"name": "metrics", "containerPort": 9090}],
        "env": [{"name": "LOG_LEVEL", "value": "info"},
            {"name": "DATABASE_HOST", "value": format!("{app}-db.shop.svc.cluster.local")}],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
        "volumeMounts": [{"name": "config", "mountPath": "/etc/service", "readOnly": true},
            {"name": "tmp", "mountPath": "/tmp"}],
        "livenessProbe": probe("/livez"), "readinessProbe": probe("/readyz"),
        "securityContext": {"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
            "runAsNonRoot": true, "capabilities": {"drop": ["ALL"]}}})
}

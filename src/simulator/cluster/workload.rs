//! The workloads of a populated cluster: deployments with their replica sets, pods, services and
//! configuration.

use fastrand::Rng;
use serde_json::{Value, json};

use super::controller::{deployment_status, replica_set_of, replica_set_status};
use super::pod;
use crate::json::text;
use crate::{Api, WriteError};

pub(super) const NAMESPACES: [&str; 6] =
    ["payments", "search", "shop", "media", "monitoring", "identity"];

const WORDS: [&str; 12] = [
    "api", "cart", "catalog", "checkout", "frontend", "gateway", "index", "ledger", "orders",
    "sessions", "worker", "notify",
];

/// Creates deployments until they own `pods` pods.
pub(super) fn populate(
    api: &Api,
    nodes: usize,
    pods: usize,
    rng: &mut Rng,
) -> Result<(), WriteError> {
    let mut left = pods;
    let mut number = 0;
    while left > 0 {
        let namespace = NAMESPACES.get(number % NAMESPACES.len()).copied().unwrap_or("shop");
        let round = number / NAMESPACES.len();
        let word = WORDS.get(round % WORDS.len()).copied().unwrap_or("api");
        let name = match round / WORDS.len() {
            0 => word.to_owned(),
            more => format!("{word}-{more}"),
        };
        // Large clusters have large deployments.
        let most = (pods / 60).clamp(4, 40);
        let replicas = rng.usize(2..=most).min(left);
        deploy(api, nodes, namespace, &name, replicas, rng)?;
        left -= replicas;
        number += 1;
    }
    Ok(())
}

fn deploy(
    api: &Api,
    nodes: usize,
    namespace: &str,
    name: &str,
    replicas: usize,
    rng: &mut Rng,
) -> Result<(), WriteError> {
    let deployment = api.create(deployment(namespace, name, replicas, rng))?;
    let replica_set = api.create(replica_set_of(&deployment))?;
    let mut pods = Vec::new();
    for _ in 0..replicas {
        let placed = pod::placed(pod::from_replica_set(&replica_set), nodes, rng);
        pods.push(api.create(pod::running(placed, rng))?);
    }
    let status = replica_set_status(&replica_set, replicas, replicas);
    let replica_set = api.update_status(with_status(replica_set, status))?;
    let status = deployment_status(&deployment, std::slice::from_ref(&replica_set));
    api.update_status(with_status(deployment, status))?;
    companions(api, namespace, name, &pods)
}

/// Creates the service, the endpoint slice, the ConfigMap and the secret of a deployment.
fn companions(api: &Api, namespace: &str, name: &str, pods: &[Value]) -> Result<(), WriteError> {
    let labels = json!({"app.kubernetes.io/name": name});
    let service = api.create(json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"selector": labels,
            "ports": [{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}]}}))?;
    let endpoints: Vec<Value> = pods
        .iter()
        .map(|pod| {
            json!({"addresses": [text(pod, "/status/podIP")],
                "conditions": {"ready": true, "serving": true, "terminating": false},
                "targetRef": {"kind": "Pod", "namespace": namespace,
                    "name": text(pod, "/metadata/name"), "uid": text(pod, "/metadata/uid")},
                "nodeName": text(pod, "/spec/nodeName")})
        })
        .collect();
    api.create(json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"generateName": format!("{name}-"), "namespace": namespace,
            "labels": {"endpointslice.kubernetes.io/managed-by":
                "endpointslice-controller.k8s.io", "kubernetes.io/service-name": name},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": name,
                "uid": text(&service, "/metadata/uid"), "controller": true,
                "blockOwnerDeletion": true}]},
        "addressType": "IPv4", "endpoints": endpoints,
        "ports": [{"name": "http", "protocol": "TCP", "port": 8080}]}))?;
    api.create(json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": format!("{name}-config"), "namespace": namespace, "labels": labels},
        "data": {"LOG_LEVEL": "info", "UPSTREAM": format!("http://{name}.{namespace}.svc"),
            "application.yaml": "server:\n  port: 8080\n  timeout: 30s\ncache:\n  size: 1024\n"}}))?;
    api.create(json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": format!("{name}-credentials"), "namespace": namespace,
            "labels": labels},
        "stringData": {"username": name, "password": uuid::Uuid::new_v4().to_string()}}))?;
    Ok(())
}

fn deployment(namespace: &str, name: &str, replicas: usize, rng: &mut Rng) -> Value {
    let labels = json!({"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": namespace});
    let selector = json!({"app.kubernetes.io/name": name});
    let image = format!(
        "registry.example.com/{namespace}/{name}:v{}.{}.{}",
        rng.u8(1..4),
        rng.u8(0..20),
        rng.u8(0..30)
    );
    let probe = |path: &str| {
        json!({"httpGet": {"path": path, "port": "http", "scheme": "HTTP"},
            "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3})
    };
    let container = json!({"name": name, "image": image,
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "envFrom": [{"configMapRef": {"name": format!("{name}-config")}},
            {"secretRef": {"name": format!("{name}-credentials")}}],
        "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef":
                {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
            {"name": "REGION", "value": "eu-central-1"}],
        "resources": {"limits": {"memory": "512Mi"},
            "requests": {"cpu": "100m", "memory": "256Mi"}},
        "livenessProbe": probe("/livez"), "readinessProbe": probe("/readyz"),
        "securityContext": {"readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false}});
    let annotations = json!({"prometheus.io/scrape": "true", "prometheus.io/port": "8080"});
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "labels": labels,
            "annotations": {"deployment.kubernetes.io/revision": "1"}},
        "spec": {"replicas": replicas, "selector": {"matchLabels": selector},
            "template": {"metadata": {"labels": labels, "annotations": annotations},
                "spec": {"containers": [container]}}}})
}

fn with_status(mut object: Value, status: Value) -> Value {
    object["status"] = status;
    object
}

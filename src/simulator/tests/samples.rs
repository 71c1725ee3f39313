//! One object of each built-in kind that a populated cluster does not have.

use serde_json::{Value, json};

/// Returns the samples.
#[expect(clippy::too_many_lines, reason = "a table")]
pub(super) fn samples() -> Vec<Value> {
    let meta = json!({"name": "sample", "namespace": "default"});
    let labels = json!({"app": "x"});
    let selector = json!({"matchLabels": labels,
        "matchExpressions": [{"key": "tier", "operator": "In", "values": ["a", "b"]}]});
    let container = json!({"name": "c", "image": "example.com/c:1", "command": ["run"],
        "resources": {"limits": {"cpu": 2, "memory": "1Gi"}},
        "lifecycle": {"preStop": {"exec": {"command": ["stop"]}}},
        "securityContext": {"capabilities": {"drop": ["ALL"]}, "runAsUser": 0}});
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [container],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "Exists"}]}]}}},
        "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "csi": {"driver": "d"}}]}});
    let claim =
        json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let backend = json!({"service": {"name": "s", "port": {"number": 80}}});
    let subject = json!([{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "u"}]);
    let role =
        |kind: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "r"});
    let rules = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]);
    let webhooks = json!([{"name": "w.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": {"url": "https://x.example.com/", "caBundle": "Y2E="},
        "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}]}]);
    let job = json!({"completions": 1, "parallelism": 0, "template": template});
    let sample = |api_version: &str, kind: &str, rest: Value| {
        let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": meta});
        for (name, value) in rest.as_object().unwrap() {
            object[name] = value.clone();
        }
        object
    };
    let (rbac, networking) = ("rbac.authorization.k8s.io/v1", "networking.k8s.io/v1");
    let admission = "admissionregistration.k8s.io/v1";
    vec![
        sample(
            "v1",
            "Endpoints",
            json!({"subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}]}),
        ),
        sample(
            "v1",
            "Event",
            json!({"involvedObject": {"kind": "Pod", "name": "p"}, "reason": "R", "message": "m",
            "type": "Normal", "count": 1, "firstTimestamp": "2026-01-01T00:00:00Z",
            "eventTime": "2026-01-01T00:00:00.123456Z"}),
        ),
        sample(
            "v1",
            "LimitRange",
            json!({"spec": {"limits": [{"type": "Pod", "max": {"cpu": "1"}}]}}),
        ),
        sample("v1", "PersistentVolumeClaim", json!({"spec": claim})),
        sample(
            "v1",
            "PersistentVolume",
            json!({"spec": {"capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"], "nfs": {"server": "s", "path": "/"}}}),
        ),
        sample(
            "v1",
            "ReplicationController",
            json!({"spec": {"replicas": 1, "selector": labels, "template": template}}),
        ),
        sample("v1", "ResourceQuota", json!({"spec": {"hard": {"pods": "10"}}})),
        sample("apps/v1", "ControllerRevision", json!({"data": {"b": 1, "a": {}}, "revision": 3})),
        sample(
            "apps/v1",
            "DaemonSet",
            json!({"spec": {"selector": selector, "template": template,
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": "10%"}}}}),
        ),
        sample(
            "apps/v1",
            "StatefulSet",
            json!({"spec": {"selector": selector, "template": template,
            "serviceName": "s", "volumeClaimTemplates": [{"metadata": {"name": "v"}, "spec": claim}]}}),
        ),
        sample(
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            json!({"spec": {"maxReplicas": 3,
            "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"},
            "metrics": [{"type": "Resource", "resource": {"name": "cpu",
                "target": {"type": "Utilization", "averageUtilization": 80}}}]}}),
        ),
        sample(
            "batch/v1",
            "CronJob",
            json!({"spec": {"schedule": "* * * * *", "suspend": false,
            "jobTemplate": {"spec": job}}}),
        ),
        sample(
            "batch/v1",
            "Job",
            json!({"spec": job, "status": {"startTime": "2026-01-01T00:00:00Z", "succeeded": 1}}),
        ),
        sample(networking, "IngressClass", json!({"spec": {"controller": "x"}})),
        sample(
            networking,
            "Ingress",
            json!({"spec": {"defaultBackend": backend, "rules": [{"host": "h",
            "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}]}}),
        ),
        sample(
            networking,
            "NetworkPolicy",
            json!({"spec": {"podSelector": {}, "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}], "ports": [{"port": "http"}]}]}}),
        ),
        sample(
            "policy/v1",
            "PodDisruptionBudget",
            json!({"spec": {"minAvailable": "50%", "selector": selector}}),
        ),
        sample(
            rbac,
            "ClusterRoleBinding",
            json!({"subjects": subject, "roleRef": role("ClusterRole")}),
        ),
        sample(rbac, "RoleBinding", json!({"subjects": subject, "roleRef": role("Role")})),
        sample(rbac, "Role", json!({"rules": rules})),
        sample(
            "storage.k8s.io/v1",
            "CSINode",
            json!({"spec": {"drivers": [{"name": "d", "nodeID": "n", "topologyKeys": null}]}}),
        ),
        sample(
            "storage.k8s.io/v1",
            "StorageClass",
            json!({"provisioner": "p", "parameters": {"b": "1", "a": "2"},
            "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}),
        ),
        sample(admission, "MutatingWebhookConfiguration", json!({"webhooks": webhooks})),
        sample(admission, "ValidatingWebhookConfiguration", json!({"webhooks": webhooks})),
        sample(
            "scheduling.k8s.io/v1",
            "PriorityClass",
            json!({"value": -5, "preemptionPolicy": "Never"}),
        ),
    ]
}

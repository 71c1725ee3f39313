//! The simulated cluster's `Node` objects, and the `Lease` objects with which their kubelets report
//! that they are alive.

use serde_json::{Value, json};

use crate::write::now;

/// The `apiVersion` and the resource name of `Lease` objects.
pub(super) const LEASES: (&str, &str) = ("coordination.k8s.io/v1", "leases");

pub(super) fn node_name(index: usize) -> String {
    format!("node-{:04}", index + 1)
}

/// Returns a node's address on the simulated network.
pub(super) fn node_ip(index: usize) -> String {
    format!("10.0.{}.{}", index / 250, index % 250 + 1)
}

/// Returns the present time in the format of Kubernetes' `MicroTime`.
pub(super) fn micro_time() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

pub(super) fn lease(node: &str) -> Value {
    json!({"apiVersion": LEASES.0, "kind": "Lease",
        "metadata": {"name": node, "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": micro_time()}})
}

pub(super) fn node(index: usize) -> Value {
    let name = node_name(index);
    let zone = ["a", "b", "c"].get(index % 3).copied().unwrap_or("a");
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        json!({"type": kind, "status": status, "lastHeartbeatTime": now(),
            "lastTransitionTime": now(), "reason": reason, "message": message})
    };
    let resources = |cpu: &str, memory: &str| {
        json!({"cpu": cpu, "ephemeral-storage": "103079844Ki", "hugepages-1Gi": "0",
            "hugepages-2Mi": "0", "memory": memory, "pods": "110"})
    };
    json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name,
            "labels": {"beta.kubernetes.io/arch": "amd64", "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
                "node.kubernetes.io/instance-type": "m6i.2xlarge",
                "topology.kubernetes.io/region": "eu-central-1",
                "topology.kubernetes.io/zone": format!("eu-central-1{zone}")},
            "annotations": {"node.alpha.kubernetes.io/ttl": "0",
                "volumes.kubernetes.io/controller-managed-attach-detach": "true"}},
        "spec": {"podCIDR": format!("10.{}.{}.0/24", 100 + index / 250, index % 250),
            "providerID": format!("simulator:///{name}")},
        "status": {"capacity": resources("8", "32614156Ki"),
            "allocatable": resources("7910m", "31482636Ki"),
            "conditions": [
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory",
                    "kubelet has sufficient memory available"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure",
                    "kubelet has no disk pressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID",
                    "kubelet has sufficient PID available"),
                condition("Ready", "True", "KubeletReady", "kubelet is posting ready status")],
            "addresses": [{"type": "InternalIP", "address": node_ip(index)},
                {"type": "Hostname", "address": name}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {"machineID": uuid::Uuid::new_v4().simple().to_string(),
                "systemUUID": uuid::Uuid::new_v4().to_string(),
                "bootID": uuid::Uuid::new_v4().to_string(), "kernelVersion": "6.12.30",
                "osImage": "Simulated Linux 12", "containerRuntimeVersion": "containerd://2.1.3",
                "kubeletVersion": "v1.36.2", "kubeProxyVersion": "", "operatingSystem": "linux",
                "architecture": "amd64"}}})
}

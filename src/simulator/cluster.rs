//! A living cluster inside a simulator, for the demo and for load: nodes, workloads and what belongs to them, a
//! controller that runs deployments and pods, and churn.
//!
//! The same numbers make the same cluster: its random choices come from a fixed seed.

mod controller;
mod pod;
mod workload;

use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::kinds::text;
use super::write::now;
use super::{Api, Refused, Simulator};

/// How often churn makes its changes; a rate is spread over these ticks.
const CHURN_TICK: Duration = Duration::from_millis(50);

/// A populated cluster.
#[derive(Clone, Debug)]
pub struct Cluster {
    api: Api,
    nodes: usize,
}

impl Cluster {
    /// Fills a simulator with nodes, and with deployments that own about so many pods, all of them running.
    pub fn populate(simulator: &Simulator, nodes: usize, pods: usize) -> Result<Self, Refused> {
        let cluster = Self { api: simulator.store(), nodes: nodes.max(1) };
        let mut rng = Rng::with_seed(7);
        for index in 0..cluster.nodes {
            cluster.api.create(node(index))?;
            cluster.api.create(lease(&node_name(index)))?;
        }
        for namespace in workload::NAMESPACES {
            let labels = json!({"team": namespace});
            cluster.api.create(json!({"apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": namespace, "labels": labels}}))?;
        }
        workload::populate(&cluster.api, cluster.nodes, pods, &mut rng)?;
        Ok(cluster)
    }

    /// Runs the controllers of deployments, replica sets and pods until it is cancelled: what is created by kubectl comes
    /// to life within a second or so.
    pub async fn control(&self, cancel: CancellationToken) {
        controller::run(&self.api, self.nodes, cancel).await;
    }

    /// Changes so many objects a second until it is cancelled: pods change their status or are replaced, nodes renew their
    /// leases. Replacement needs [`control`](Self::control) to run, too.
    pub async fn churn(&self, rate: f64, cancel: CancellationToken) {
        let mut rng = Rng::with_seed(11);
        let mut ticks = tokio::time::interval(CHURN_TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let mut due = 0.0;
        loop {
            tokio::select! {
                () = cancel.cancelled() => return,
                _ = ticks.tick() => {}
            }
            due += rate.max(0.0) * CHURN_TICK.as_secs_f64();
            while due >= 1.0 {
                due -= 1.0;
                // What was chosen may just have gone.
                drop(self.change_something(&mut rng));
            }
        }
    }

    fn change_something(&self, rng: &mut Rng) -> Result<(), Refused> {
        match rng.u8(0..10) {
            0..3 => {
                let name = node_name(rng.usize(0..self.nodes));
                let renewed = json!({"spec": {"renewTime": micro_time()}});
                self.api.patch(LEASES.0, LEASES.1, "kube-node-lease", &name, &renewed)?;
            }
            3..8 => {
                let Some(pod) = self.api.pick("v1", "pods", rng) else { return Ok(()) };
                self.api.update_status(pod::restarted(pod))?;
            }
            _ => {
                let Some(pod) = self.api.pick("v1", "pods", rng) else { return Ok(()) };
                let owned = pod.pointer("/metadata/ownerReferences/0").is_some();
                // A pod that somebody made by hand would not come back.
                if owned {
                    let (namespace, name) =
                        (text(&pod, "/metadata/namespace"), text(&pod, "/metadata/name"));
                    self.api.delete("v1", "pods", namespace, name)?;
                }
            }
        }
        Ok(())
    }
}

const LEASES: (&str, &str) = ("coordination.k8s.io/v1", "leases");

fn node_name(index: usize) -> String {
    format!("node-{:04}", index + 1)
}

/// A node's address on the pretended network.
fn node_ip(index: usize) -> String {
    format!("10.0.{}.{}", index / 250, index % 250 + 1)
}

fn micro_time() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

fn lease(node: &str) -> Value {
    json!({"apiVersion": LEASES.0, "kind": "Lease",
        "metadata": {"name": node, "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": micro_time()}})
}

fn node(index: usize) -> Value {
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

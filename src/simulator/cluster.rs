//! A simulated cluster for the demo and for load tests: nodes, workloads and their objects, a
//! controller that runs deployments and pods, and churn.
//!
//! The same parameters produce the same cluster: its random choices use a fixed seed.

mod controller;
mod node;
mod pod;
mod workload;

use std::time::Duration;

use fastrand::Rng;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use self::node::{LEASES, lease, micro_time, node, node_name};
use super::json::text;
use super::{Api, WriteError};

/// The interval at which churn makes its changes; a rate is spread over these ticks.
const CHURN_TICK: Duration = Duration::from_millis(50);

/// A populated cluster.
#[derive(Clone, Debug)]
pub struct Cluster {
    api: Api,
    nodes: usize,
}

impl Cluster {
    /// Creates `nodes` nodes, and deployments that own about `pods` running pods.
    pub fn populate(api: &Api, nodes: usize, pods: usize) -> Result<Self, WriteError> {
        let cluster = Self { api: api.clone(), nodes: nodes.max(1) };
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

    /// Runs the controllers of deployments, replica sets and pods until `cancel` is cancelled.
    /// Objects that kubectl creates become ready within about a second.
    pub async fn control(&self, cancel: CancellationToken) {
        controller::run(&self.api, self.nodes, cancel).await;
    }

    /// Changes `rate` objects per second until `cancel` is cancelled: pods change their status or
    /// are replaced, nodes renew their leases. Replacement needs [`control`](Self::control) to run
    /// as well.
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
                // The chosen object may be deleted already.
                drop(self.change_something(&mut rng));
            }
        }
    }

    fn change_something(&self, rng: &mut Rng) -> Result<(), WriteError> {
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
                // Only a pod that has an owner is recreated.
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

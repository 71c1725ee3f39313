//! A living cluster inside a simulator, for the demo and for load: nodes, workloads and what belongs to them, a
//! controller that runs deployments and pods, and churn.
//!
//! The same numbers make the same cluster: its random choices come from a fixed seed.

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
use super::{Api, Refused};

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
    pub fn populate(api: &Api, nodes: usize, pods: usize) -> Result<Self, Refused> {
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

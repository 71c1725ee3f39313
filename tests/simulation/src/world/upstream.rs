//! The API servers of a run, the balancer before them, and what they hold.

use std::sync::Arc;

use weir::simulator::{Simulator, SimulatorOptions};

use crate::network::Network;
use crate::plan::Plan;
use crate::resources::{self, NAMESPACES, RESOURCES};

/// The host name of the balancer before the API servers.
pub(crate) const API: &str = "api";

/// Returns the host name of one API server.
pub(super) fn host(server: usize) -> String {
    format!("{API}-{server}")
}

/// Returns a cluster with some objects.
pub(super) fn simulator(plan: &Plan, rng: &mut fastrand::Rng) -> Simulator {
    let options = SimulatorOptions {
        servers: plan.servers,
        minor: plan.minor,
        history_events_max: plan.history_events,
        bookmark_interval: plan.bookmark_interval,
        records_writes: true,
        ..SimulatorOptions::default()
    };
    let simulator = Simulator::without_listener(options).expect("a simulator without TLS starts");
    let api = simulator.store();
    for namespace in NAMESPACES {
        let object = serde_json::json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": namespace}});
        api.create(object).expect("a namespace is created");
    }
    api.create(resources::definition(0)).expect("a definition is created");
    for resource in &RESOURCES {
        for _ in 0..rng.usize(..30) {
            // The name may exist already.
            drop(api.create(resource.object(rng)));
        }
    }
    simulator
}

/// Lets the API servers accept connections, and a balancer give them to them.
pub(super) fn listen(network: &Network, simulator: &Arc<Simulator>, plan: &Plan) {
    (0..plan.servers).for_each(|server| listen_at(network, simulator, server));
    network.balance(API, (0..plan.servers).map(host).collect(), plan.balancing);
}

/// Lets one API server accept connections.
pub(super) fn listen_at(network: &Network, simulator: &Arc<Simulator>, server: usize) {
    let simulator = Arc::clone(simulator);
    network.listen(&host(server), move |pipe| {
        simulator.accept(pipe, server);
        true
    });
}

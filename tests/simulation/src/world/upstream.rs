//! The API servers of a run, the balancer before them, and what they hold.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use weir::simulator::{Api, Rule, Simulator, SimulatorOptions, User};

use crate::crowd::{self, Crowd};
use crate::guests;
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
        users: users(plan),
        records_writes: true,
        records_requests: plan.crowd.is_some(),
        service_time: plan.crowd.as_ref().map_or(Duration::ZERO, Crowd::service_time),
        requests_max: plan.crowd.as_ref().and_then(|crowd| crowd.requests_max),
        ..SimulatorOptions::default()
    };
    let simulator = Simulator::without_listener(options).expect("a simulator without TLS starts");
    let api = simulator.store();
    for namespace in NAMESPACES {
        let object = serde_json::json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": namespace}});
        api.create(object).expect("a namespace is created");
    }
    if plan.narrow {
        permit(&api);
    }
    if plan.crowd.as_ref().is_some_and(|crowd| crowd.has_plan) {
        crowd::store_plan(&api);
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

/// Returns the users of a gateway; none where everybody may do everything.
fn users(plan: &Plan) -> Vec<User> {
    let mut users = if plan.gateway { guests::users() } else { Vec::new() };
    if plan.gateway && plan.crowd.is_some() {
        users.extend(crowd::users());
    }
    if plan.narrow {
        let rule = Rule::new(&["*"], &["*"], &NAMESPACES);
        users.push(User::with_rules(WEIR, WEIR, vec![rule]));
    }
    users
}

/// Gives a Weir whose permissions are not those of an administrator what it always needs.
fn permit(api: &Api) {
    let rules = json!([
        {"nonResourceURLs": ["*"], "verbs": ["*"]},
        {"apiGroups": ["authentication.k8s.io", "authorization.k8s.io"], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": ["", "apiextensions.k8s.io", "apiregistration.k8s.io"],
            "resources": ["namespaces", "customresourcedefinitions", "apiservices"], "verbs": ["*"]},
    ]);
    create(api, role("base", &rules));
    create(api, binding("base"));
    let rules =
        json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}]);
    create(api, role("wide", &rules));
    grant(api);
}

/// Gives the Weirs the permission to read the whole cluster.
pub(super) fn grant(api: &Api) {
    create(api, binding("wide"));
}

/// Takes it back.
pub(super) fn revoke(api: &Api) {
    drop(api.delete(RBAC, "clusterrolebindings", "", "wide"));
}

/// Creates an object, if it does not exist.
fn create(api: &Api, object: Value) {
    drop(api.create(object));
}

fn role(name: &str, rules: &Value) -> Value {
    json!({"apiVersion": RBAC, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules})
}

fn binding(role: &str) -> Value {
    json!({
        "apiVersion": RBAC, "kind": "ClusterRoleBinding", "metadata": {"name": role},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": WEIR}],
    })
}

/// The token and the name of Weirs that are no administrators.
pub(super) const WEIR: &str = "weir";
const RBAC: &str = "rbac.authorization.k8s.io/v1";

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

//! More load than the API servers carry: the settings of such a run, its users, and the objects of
//! priority and fairness that change meanwhile.
//!
//! The Weirs have few seats, and the API servers take their time, so that requests wait.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use weir::simulator::{Api, Rule, User};

/// The settings of a run with more load than the API servers carry.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Crowd {
    /// The seats of one API server, of each Weir.
    pub(crate) seats: u64,
    /// How long an API server takes for a request that is no watch.
    pub(crate) service_ms: u64,
    /// The requests of users that one API server takes at once; it answers 429 to more.
    pub(crate) requests_max: Option<usize>,
    /// Whether flow control is on; else a sidecar has its limit of seats alone.
    pub(crate) enforces: bool,
    /// Whether the API servers have objects of priority and fairness, which change. Else Weir uses
    /// kube-apiserver's own.
    pub(crate) has_plan: bool,
}

impl Crowd {
    /// Whether the run of a seed has a crowd.
    pub(crate) fn is_of(seed: u64) -> bool {
        matches!(seed % 11, 0 | 5 | 7 | 9)
    }

    /// Draws the settings. Only a gateway knows users, so that a plan and the limit of an API
    /// server have no effect elsewhere.
    pub(crate) fn draw(seed: u64, is_gateway: bool) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed ^ 0xc0fd);
        let has_own_limit = rng.u8(..4) == 0;
        Self {
            seats: rng.u64(10..25),
            service_ms: rng.u64(50..400),
            requests_max: (is_gateway && has_own_limit).then(|| rng.usize(2..10)),
            enforces: is_gateway || rng.bool(),
            has_plan: is_gateway && rng.bool(),
        }
    }

    pub(crate) fn service_time(&self) -> Duration {
        Duration::from_millis(self.service_ms)
    }

    /// Returns the seats that all requests together may take: those of `servers` for each of the
    /// Weirs, without the reserve.
    pub(crate) fn seats_of(&self, servers: usize, weirs: usize) -> usize {
        let seats = self.seats * servers as u64;
        (seats - (seats / 10).max(RESERVE_MIN)).max(1) as usize * weirs
    }
}

/// Returns the users of a crowd, who may do everything and are not exempt.
pub(crate) fn users() -> Vec<User> {
    let names = (0..FLOODS).map(|number| name(FLOOD, number));
    let names = names.chain((0..NEIGHBOURS).map(|number| name(NEIGHBOUR, number)));
    let rule = || Rule::new(&["*"], &["*"], &["*"]);
    names.map(|name| User::with_rules(&name, &name, vec![rule()])).collect()
}

/// Returns the name of one of a crowd, which is its token, too.
pub(crate) fn name(kind: &str, number: usize) -> String {
    format!("{kind}-{number}")
}

/// Whether a client is one of a crowd.
pub(crate) fn is_member(client: &str) -> bool {
    [FLOOD, NEIGHBOUR].iter().any(|kind| client.starts_with(kind))
}

/// Stores the first plan of priority and fairness.
pub(crate) fn store_plan(api: &Api) {
    for (plural, kind) in [(SCHEMAS, "FlowSchema"), (LEVELS, "PriorityLevelConfiguration")] {
        api.create(definition(plural, kind)).expect("a definition is created");
    }
    api.create(level("everybody", 30, 0)).expect("a level is created");
    api.create(schema("everybody", 1000, "system:authenticated")).expect("a schema is created");
}

/// Changes the plan while requests wait: the shares of the level, and whether the neighbours have
/// one of their own.
pub(crate) fn change_plan(api: &Api, rng: &mut fastrand::Rng) {
    let changed = level("everybody", rng.u64(1..100), rng.u64(..90));
    // A creation may find its object, and a deletion none.
    drop(api.update(changed));
    match rng.u8(..3) {
        0 => {
            drop(api.create(level("neighbours", rng.u64(1..50), 0)));
            for number in 0..NEIGHBOURS {
                let name = name(NEIGHBOUR, number);
                drop(api.create(schema_of_user(&name, "neighbours")));
            }
        }
        1 => {
            for number in 0..NEIGHBOURS {
                drop(api.delete(VERSION, SCHEMAS, "", &name(NEIGHBOUR, number)));
            }
            drop(api.delete(VERSION, LEVELS, "", "neighbours"));
        }
        _ => {}
    }
}

fn definition(plural: &str, kind: &str) -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": "Cluster",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(),
                "listKind": format!("{kind}List")},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

fn level(name: &str, shares: u64, lendable: u64) -> Value {
    let queuing = json!({"queues": 64, "handSize": 6, "queueLengthLimit": 50});
    json!({
        "apiVersion": VERSION, "kind": "PriorityLevelConfiguration", "metadata": {"name": name},
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": shares, "lendablePercent": lendable,
            "limitResponse": {"type": "Queue", "queuing": queuing},
        }},
    })
}

fn schema(name: &str, precedence: u64, group: &str) -> Value {
    let subject = json!({"kind": "Group", "group": {"name": group}});
    schema_for(name, name, precedence, &subject)
}

fn schema_of_user(name: &str, level: &str) -> Value {
    schema_for(name, level, 500, &json!({"kind": "User", "user": {"name": name}}))
}

fn schema_for(name: &str, level: &str, precedence: u64, subject: &Value) -> Value {
    let everything = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"],
        "clusterScope": true});
    json!({
        "apiVersion": VERSION, "kind": "FlowSchema", "metadata": {"name": name},
        "spec": {
            "priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence,
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [{"subjects": [subject], "resourceRules": [everything]}],
        },
    })
}

/// The kind of clients that send more than a fair part.
pub(crate) const FLOOD: &str = "flood";
/// The kind of clients that send one request after the other, beside a flood.
pub(crate) const NEIGHBOUR: &str = "neighbour";
/// How many there are of each.
pub(crate) const FLOODS: usize = 2;
pub(crate) const NEIGHBOURS: usize = 3;

/// The seats that stay free for exempt requests and Weir's own
/// (docs/decisions/fair-queueing.md).
const RESERVE_MIN: u64 = 8;
const GROUP: &str = "flowcontrol.apiserver.k8s.io";
const VERSION: &str = "flowcontrol.apiserver.k8s.io/v1";
const SCHEMAS: &str = "flowschemas";
const LEVELS: &str = "prioritylevelconfigurations";

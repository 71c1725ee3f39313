//! Users of a gateway with few permissions, and what these are.

use serde_json::json;
use weir::simulator::{Api, Rule, User};

use crate::crowd;
use crate::resources::Resource;

/// A permission of one guest.
struct Grant {
    guest: usize,
    verbs: &'static [&'static str],
    resource: &'static str,
    namespace: &'static str,
}

/// All permissions. Each guest has another verb for what the others may read.
const GRANTS: [Grant; 5] = [
    Grant { guest: 0, verbs: &["list"], resource: "configmaps", namespace: "ns1" },
    Grant { guest: 0, verbs: &["watch", "get"], resource: "pods", namespace: "ns1-a" },
    Grant { guest: 1, verbs: &["watch"], resource: "configmaps", namespace: "ns1" },
    Grant { guest: 1, verbs: &["list"], resource: "pods", namespace: "*" },
    Grant { guest: 1, verbs: &["get", "list"], resource: "widgets", namespace: "ns2" },
];

/// The number of guests.
pub(crate) const GUESTS: usize = 2;

/// Returns all users of a gateway: the guests, one whose permission comes and goes, and an
/// administrator with another token.
pub(crate) fn users() -> Vec<User> {
    let guest = |number| {
        let grants = GRANTS.iter().filter(|grant| grant.guest == number);
        let rules =
            grants.map(|grant| Rule::new(grant.verbs, &[grant.resource], &[grant.namespace]));
        let name = name(number);
        User::with_rules(&name, &name, rules.collect())
    };
    (0..=GUESTS).map(guest).chain([User::admin(ADMINISTRATOR, ADMINISTRATOR)]).collect()
}

/// Gives the last guest the permission to watch, which it does not always have.
pub(crate) fn permit(api: &Api) {
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["watch"]}]);
    let role = json!({"apiVersion": RBAC, "kind": "ClusterRole", "metadata": {"name": ROLE},
        "rules": rules});
    let subject = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User",
        "name": name(GUESTS)});
    let binding = json!({"apiVersion": RBAC, "kind": "ClusterRoleBinding",
        "metadata": {"name": ROLE}, "subjects": [subject],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ROLE}});
    // They may exist.
    drop(api.create(role));
    drop(api.create(binding));
}

/// Takes it back.
pub(crate) fn revoke(api: &Api) {
    drop(api.delete(RBAC, "clusterrolebindings", "", ROLE));
}

/// Returns the name of a guest, which is the name of its client and its token, too.
pub(crate) fn name(number: usize) -> String {
    format!("{GUEST}-{number}")
}

/// Returns the token of a client.
pub(crate) fn token(client: &str) -> &str {
    if client.starts_with(GUEST) || crowd::is_member(client) { client } else { ADMINISTRATOR }
}

/// Whether a guest may do this; `None` as the namespace means all.
pub(crate) fn allows(
    number: usize,
    verb: &str,
    resource: &Resource,
    namespace: Option<&str>,
) -> bool {
    GRANTS.iter().any(|grant| {
        grant.guest == number
            && grant.verbs.contains(&verb)
            && grant.resource == resource.plural
            && (grant.namespace == "*" || namespace == Some(grant.namespace))
    })
}

/// The watch of the last guest.
pub(crate) const REVOKED_PATH: &str = "/api/v1/configmaps?watch=true&allowWatchBookmarks=true\
    &resourceVersion=0&timeoutSeconds=600";
const ROLE: &str = "watch-config-maps";
const RBAC: &str = "rbac.authorization.k8s.io/v1";
const GUEST: &str = "guest";
/// The token of Weir and of all other clients.
pub(crate) const ADMINISTRATOR: &str = "anyone";

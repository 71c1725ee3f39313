//! Role-based access control over the stored roles and bindings: read anew for each question, in the plainest way, since it is
//! what Weir's own evaluation is held against.

use std::sync::Arc;

use serde_json::{Value, json};

use super::attributes::Attributes;
use super::decision::Decision;
use crate::simulator::identity::Identity;
use crate::simulator::json::{array, text, texts};
use crate::simulator::object::key;
use crate::simulator::store::Store;

const GROUP: &str = "rbac.authorization.k8s.io";

/// The rules that one binding gives a user.
struct Grant {
    /// In the upstream's words: which binding of which role to whom.
    description: String,
    rules: Vec<Value>,
}

/// Whether some rule of some binding allows it.
pub(super) fn authorize(store: &Store, who: &Identity, what: &Attributes) -> Decision {
    let (grants, errors) = grants(store, who, &what.namespace);
    for grant in grants {
        if grant.rules.iter().any(|rule| allows(rule, what)) {
            let reason = format!("RBAC: allowed by {}", grant.description);
            return Decision { allowed: true, reason };
        }
    }
    let reason = match errors.as_slice() {
        [] => String::new(),
        [one] => format!("RBAC: {one}"),
        many => format!("RBAC: [{}]", many.join(", ")),
    };
    Decision { allowed: false, reason }
}

/// All that a user may do in a namespace: rules about resources, and about paths (authorization.k8s.io/v1).
pub(crate) fn rules(store: &Store, who: &Identity, namespace: &str) -> (Vec<Value>, Vec<Value>) {
    let (grants, _) = grants(store, who, namespace);
    let all: Vec<Value> = grants.into_iter().flat_map(|grant| grant.rules).collect();
    let (paths, resources): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|rule| rule.get("nonResourceURLs").is_some());
    let path = |rule: Value| json!({"verbs": rule.get("verbs"), "nonResourceURLs": rule.get("nonResourceURLs")});
    (resources, paths.into_iter().map(path).collect())
}

/// What the bindings of the cluster and those of the namespace give a user, and what could not be found.
fn grants(store: &Store, who: &Identity, namespace: &str) -> (Vec<Grant>, Vec<String>) {
    let (mut grants, mut errors) = (Vec::new(), Vec::new());
    let mut bindings = stored(store, "clusterrolebindings", "");
    if !namespace.is_empty() {
        bindings.extend(stored(store, "rolebindings", namespace));
    }
    for binding in bindings {
        let own = text(&binding, "/metadata/namespace");
        let subjects = array(&binding, "/subjects");
        let Some(subject) = subjects.iter().find(|subject| is_of(subject, who, own)) else {
            continue;
        };
        let (kind, role) = (text(&binding, "/roleRef/kind"), text(&binding, "/roleRef/name"));
        let (resource, place) = match kind {
            "ClusterRole" => ("clusterroles", ""),
            _ => ("roles", own),
        };
        let Some(found) = get(store, resource, place, role) else {
            let error = format!("{}.{GROUP} \"{role}\" not found", kind.to_lowercase());
            if !errors.contains(&error) {
                errors.push(error);
            }
            continue;
        };
        let name = text(&binding, "/metadata/name");
        let binding = match own {
            "" => format!("ClusterRoleBinding \"{name}\""),
            own => format!("RoleBinding \"{name}/{own}\""),
        };
        let description = format!("{binding} of {kind} \"{role}\" to {}", described(subject));
        grants.push(Grant { description, rules: array(&found, "/rules").to_vec() });
    }
    (grants, errors)
}

/// Whether a binding's subject is the user; `namespace` is the binding's.
fn is_of(subject: &Value, who: &Identity, namespace: &str) -> bool {
    let name = text(subject, "/name");
    match text(subject, "/kind") {
        "User" => name == who.name,
        "Group" => who.groups.iter().any(|group| group == name),
        "ServiceAccount" => {
            let given = text(subject, "/namespace");
            let namespace = if given.is_empty() { namespace } else { given };
            !namespace.is_empty() && who.name == format!("system:serviceaccount:{namespace}:{name}")
        }
        _ => false,
    }
}

fn described(subject: &Value) -> String {
    let (kind, name) = (text(subject, "/kind"), text(subject, "/name"));
    match kind {
        "ServiceAccount" => format!("{kind} \"{name}/{}\"", text(subject, "/namespace")),
        _ => format!("{kind} \"{name}\""),
    }
}

/// Whether a rule covers a request.
fn allows(rule: &Value, what: &Attributes) -> bool {
    let has = |list: &str, word: &str| {
        texts(rule, list).iter().any(|known| known == "*" || known == word)
    };
    if !has("/verbs", &what.verb) {
        return false;
    }
    if let Some(path) = &what.path {
        return texts(rule, "/nonResourceURLs").iter().any(|known| covers(known, path));
    }
    let any_sub = format!("*/{}", what.subresource);
    let resource = has("/resources", &what.combined())
        || (!what.subresource.is_empty() && texts(rule, "/resources").contains(&any_sub));
    let names = texts(rule, "/resourceNames");
    resource && has("/apiGroups", &what.group) && (names.is_empty() || names.contains(&what.name))
}

/// Whether a rule's path, perhaps with a `*` at its end, covers a request's.
fn covers(known: &str, path: &str) -> bool {
    known == "*"
        || known == path
        || (known.ends_with('*') && path.starts_with(known.trim_end_matches('*')))
}

/// The objects of a resource in a namespace, or all.
fn stored(store: &Store, resource: &str, namespace: &str) -> Vec<Arc<Value>> {
    let Some(kind) = store.registry().find(GROUP, "v1", resource) else { return Vec::new() };
    let objects = store.read(&kind, |collection, _| {
        let objects = collection.objects.values();
        objects.filter(|object| *object.namespace == *namespace).cloned().collect::<Vec<_>>()
    });
    objects.iter().map(|object| object.decoded()).collect()
}

fn get(store: &Store, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
    let kind = store.registry().find(GROUP, "v1", resource)?;
    Some(store.get(&kind, &key(namespace, name))?.decoded())
}

//! Role-based access control over the stored roles and bindings. It reads them for every decision
//! and uses no index: the tests compare Weir's own evaluation with this one, so this one has to be
//! simple.

use std::sync::Arc;

use serde_json::{Value, json};

use super::attributes::{Attributes, Decision};
use crate::identity::Identity;
use crate::json::{array, text, texts};
use crate::object::key;
use crate::store::Store;

const GROUP: &str = "rbac.authorization.k8s.io";

/// The rules that one binding gives a user.
struct Grant {
    /// The binding, the role and the subject, in the upstream's words.
    description: String,
    rules: Vec<Value>,
}

/// Decides whether a rule of a binding allows a request.
pub(super) fn authorize(store: &Store, user: &Identity, attributes: &Attributes) -> Decision {
    let (grants, errors) = grants(store, user, &attributes.namespace);
    for grant in grants {
        if grant.rules.iter().any(|rule| allows(rule, attributes)) {
            let reason = format!("RBAC: allowed by {}", grant.description);
            return Decision { allowed: true, reason };
        }
    }
    let reason = match errors.as_slice() {
        [] => String::new(),
        [binding] => format!("RBAC: {binding}"),
        many => format!("RBAC: [{}]", many.join(", ")),
    };
    Decision { allowed: false, reason }
}

/// Returns all rules of a user in a namespace: those about resources, and those about paths
/// (authorization.k8s.io/v1).
pub(crate) fn rules(store: &Store, user: &Identity, namespace: &str) -> (Vec<Value>, Vec<Value>) {
    let (grants, _) = grants(store, user, namespace);
    let rules: Vec<Value> = grants.into_iter().flat_map(|grant| grant.rules).collect();
    let (paths, resources): (Vec<_>, Vec<_>) =
        rules.into_iter().partition(|rule| rule.get("nonResourceURLs").is_some());
    let path = |rule: Value| json!({"verbs": rule.get("verbs"), "nonResourceURLs": rule.get("nonResourceURLs")});
    (resources, paths.into_iter().map(path).collect())
}

/// Returns the grants of a user by the bindings of the cluster and of a namespace, and the errors
/// for missing roles.
fn grants(store: &Store, user: &Identity, namespace: &str) -> (Vec<Grant>, Vec<String>) {
    let (mut grants, mut errors) = (Vec::new(), Vec::new());
    let mut bindings = stored(store, "clusterrolebindings", "");
    if !namespace.is_empty() {
        bindings.extend(stored(store, "rolebindings", namespace));
    }
    for binding in bindings {
        let binding_namespace = text(&binding, "/metadata/namespace");
        let subjects = array(&binding, "/subjects");
        let Some(subject) =
            subjects.iter().find(|subject| is_subject(subject, user, binding_namespace))
        else {
            continue;
        };
        let (kind, role) = (text(&binding, "/roleRef/kind"), text(&binding, "/roleRef/name"));
        let (resource, place) = match kind {
            "ClusterRole" => ("clusterroles", ""),
            _ => ("roles", binding_namespace),
        };
        let Some(role_object) = get(store, resource, place, role) else {
            let error = format!("{}.{GROUP} \"{role}\" not found", kind.to_lowercase());
            if !errors.contains(&error) {
                errors.push(error);
            }
            continue;
        };
        let name = text(&binding, "/metadata/name");
        let binding = match binding_namespace {
            "" => format!("ClusterRoleBinding \"{name}\""),
            binding_namespace => format!("RoleBinding \"{name}/{binding_namespace}\""),
        };
        let description = format!("{binding} of {kind} \"{role}\" to {}", describe(subject));
        grants.push(Grant { description, rules: array(&role_object, "/rules").to_vec() });
    }
    (grants, errors)
}

/// Returns whether the subject of a binding is the user. `namespace` is that of the binding.
fn is_subject(subject: &Value, user: &Identity, namespace: &str) -> bool {
    let name = text(subject, "/name");
    match text(subject, "/kind") {
        "User" => name == user.name,
        "Group" => user.groups.iter().any(|group| group == name),
        "ServiceAccount" => {
            let given = text(subject, "/namespace");
            let namespace = if given.is_empty() { namespace } else { given };
            !namespace.is_empty()
                && user.name == format!("system:serviceaccount:{namespace}:{name}")
        }
        _ => false,
    }
}

fn describe(subject: &Value) -> String {
    let (kind, name) = (text(subject, "/kind"), text(subject, "/name"));
    match kind {
        "ServiceAccount" => format!("{kind} \"{name}/{}\"", text(subject, "/namespace")),
        _ => format!("{kind} \"{name}\""),
    }
}

/// Returns whether a rule covers a request.
fn allows(rule: &Value, attributes: &Attributes) -> bool {
    let has = |list: &str, word: &str| {
        texts(rule, list).iter().any(|pattern| pattern == "*" || pattern == word)
    };
    if !has("/verbs", &attributes.verb) {
        return false;
    }
    if let Some(path) = &attributes.path {
        return texts(rule, "/nonResourceURLs").iter().any(|pattern| covers(pattern, path));
    }
    let any_sub = format!("*/{}", attributes.subresource);
    let resource = has("/resources", &attributes.combined())
        || (!attributes.subresource.is_empty() && texts(rule, "/resources").contains(&any_sub));
    let names = texts(rule, "/resourceNames");
    resource
        && has("/apiGroups", &attributes.group)
        && (names.is_empty() || names.contains(&attributes.name))
}

/// Returns whether the path of a rule, which may end with `*`, covers the path of a request.
fn covers(pattern: &str, path: &str) -> bool {
    pattern == "*"
        || pattern == path
        || (pattern.ends_with('*') && path.starts_with(pattern.trim_end_matches('*')))
}

/// Returns the objects of a resource in a namespace; an empty namespace means the cluster scope.
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

//! A model of kube-apiserver's RBAC authorizer that evaluates every binding for every request.

use serde_json::Value;

use super::Objects;
use crate::auth::rbac::rule::Action;
use crate::auth::user::User;

/// Returns the reasons that the API server may give for allowing the action; none if RBAC does not
/// allow it.
pub(super) fn reasons(objects: &Objects, user: &User, action: &Action<'_>) -> Vec<String> {
    let namespace = match action {
        Action::Resource { namespace, .. } => *namespace,
        Action::NonResource { .. } => "",
    };
    let of_scope = |plural: &str, namespace: &str| {
        let bindings = objects.iter().filter(|((object_plural, object_namespace, _), _)| {
            *object_plural == plural && *object_namespace == namespace
        });
        let reasons = bindings.filter_map(|((.., name), binding)| {
            let subjects = list(binding, "subjects");
            let subject = subjects.iter().find(|subject| applies(user, subject, namespace))?;
            let rules = rules(objects, binding, namespace);
            let allows = rules.iter().any(|rule| rule_allows(action, rule));
            allows.then(|| reason(name, namespace, binding, subject))
        });
        reasons.collect::<Vec<_>>()
    };
    let reasons = of_scope("clusterrolebindings", "");
    if namespace.is_empty() || !reasons.is_empty() {
        return reasons;
    }
    of_scope("rolebindings", namespace)
}

fn reason(name: &str, namespace: &str, binding: &Value, subject: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let (kind, name) = match namespace {
        "" => ("ClusterRoleBinding", name.to_owned()),
        _ => ("RoleBinding", format!("{name}/{namespace}")),
    };
    let (role_kind, role) = (text(&binding["roleRef"]["kind"]), text(&binding["roleRef"]["name"]));
    let (subject_kind, mut of) = (text(&subject["kind"]), text(&subject["name"]));
    if subject_kind == "ServiceAccount" {
        let own = text(&subject["namespace"]);
        of = format!("{of}/{}", if own.is_empty() { namespace } else { &own });
    }
    format!("RBAC: allowed by {kind} {name:?} of {role_kind} {role:?} to {subject_kind} {of:?}")
}

fn applies(user: &User, subject: &Value, namespace: &str) -> bool {
    let text = |field: &str| subject[field].as_str().unwrap_or("");
    match text("kind") {
        "User" => user.name == text("name"),
        "Group" => user.groups.iter().any(|group| group == text("name")),
        "ServiceAccount" => {
            let subject_namespace = text("namespace");
            let subject_namespace =
                if subject_namespace.is_empty() { namespace } else { subject_namespace };
            !subject_namespace.is_empty()
                && user.name
                    == format!("system:serviceaccount:{subject_namespace}:{}", text("name"))
        }
        _ => false,
    }
}

fn rules(objects: &Objects, binding: &Value, namespace: &str) -> Vec<Value> {
    let text = |field: &str| binding["roleRef"][field].as_str().unwrap_or("");
    let key = match text("kind") {
        "Role" => ("roles", namespace.to_owned(), text("name").to_owned()),
        "ClusterRole" => ("clusterroles", String::new(), text("name").to_owned()),
        _ => return Vec::new(),
    };
    objects.get(&key).map(|role| list(role, "rules")).unwrap_or_default()
}

fn rule_allows(action: &Action<'_>, rule: &Value) -> bool {
    let has = |field: &str, matches: &dyn Fn(&str) -> bool| {
        list(rule, field).iter().any(|word| matches(word.as_str().unwrap()))
    };
    match *action {
        Action::Resource { verb, group, resource, subresource, name, .. } => {
            let combined = if subresource.is_empty() {
                resource.to_owned()
            } else {
                format!("{resource}/{subresource}")
            };
            has("verbs", &|word| word == "*" || word == verb)
                && has("apiGroups", &|word| word == "*" || word == group)
                && has("resources", &|word| {
                    word == "*"
                        || word == combined
                        || (!subresource.is_empty() && word == format!("*/{subresource}"))
                })
                && (list(rule, "resourceNames").is_empty()
                    || has("resourceNames", &|word| word == name))
        }
        Action::NonResource { verb, path } => {
            has("verbs", &|word| word == "*" || word == verb)
                && has("nonResourceURLs", &|word| {
                    word == "*"
                        || word == path
                        || (word.ends_with('*') && path.starts_with(word.trim_end_matches('*')))
                })
        }
    }
}

fn list(object: &Value, field: &str) -> Vec<Value> {
    object[field].as_array().cloned().unwrap_or_default()
}

//! A model of kube-apiserver's RBAC authorizer that evaluates every binding for every request.

use serde_json::Value;

use super::Objects;
use crate::auth::rbac::rule::Action;
use crate::auth::user::User;

pub(super) fn allows(objects: &Objects, user: &User, action: &Action<'_>) -> bool {
    let bindings = |plural: &'static str, namespace: String| {
        let bindings_of_namespace =
            objects.iter().filter(move |((object_plural, object_namespace, _), _)| {
                *object_plural == plural && *object_namespace == namespace
            });
        bindings_of_namespace.map(|(_, binding)| binding)
    };
    let allows = |binding: &Value, namespace: &str| {
        let applies =
            list(binding, "subjects").iter().any(|subject| applies(user, subject, namespace));
        applies && rules(objects, binding, namespace).iter().any(|rule| rule_allows(action, rule))
    };
    let namespace = match action {
        Action::Resource { namespace, .. } => *namespace,
        Action::NonResource { .. } => "",
    };
    bindings("clusterrolebindings", String::new()).any(|binding| allows(binding, ""))
        || (!namespace.is_empty()
            && bindings("rolebindings", namespace.to_owned())
                .any(|binding| allows(binding, namespace)))
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

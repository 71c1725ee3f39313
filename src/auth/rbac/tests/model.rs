//! RBAC as kube-apiserver's authorizer has it, written down line by line: every binding is looked at for every question.

use serde_json::Value;

use super::Objects;
use crate::auth::rbac::rule::Question;
use crate::auth::user::User;

pub(super) fn allows(objects: &Objects, user: &User, question: &Question<'_>) -> bool {
    let bindings = |plural: &'static str, namespace: String| {
        let all =
            objects.iter().filter(move |((own, of, _), _)| *own == plural && *of == namespace);
        all.map(|(_, binding)| binding)
    };
    let gives = |binding: &Value, namespace: &str| {
        let applies =
            list(binding, "subjects").iter().any(|subject| applies(user, subject, namespace));
        applies && rules(objects, binding, namespace).iter().any(|rule| rule_allows(question, rule))
    };
    let namespace = match question {
        Question::Resource { namespace, .. } => *namespace,
        Question::NonResource { .. } => "",
    };
    bindings("clusterrolebindings", String::new()).any(|binding| gives(binding, ""))
        || (!namespace.is_empty()
            && bindings("rolebindings", namespace.to_owned())
                .any(|binding| gives(binding, namespace)))
}

fn applies(user: &User, subject: &Value, namespace: &str) -> bool {
    let text = |field: &str| subject[field].as_str().unwrap_or("");
    match text("kind") {
        "User" => user.name == text("name"),
        "Group" => user.groups.iter().any(|group| group == text("name")),
        "ServiceAccount" => {
            let own = text("namespace");
            let own = if own.is_empty() { namespace } else { own };
            !own.is_empty() && user.name == format!("system:serviceaccount:{own}:{}", text("name"))
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

fn rule_allows(question: &Question<'_>, rule: &Value) -> bool {
    let has = |field: &str, matches: &dyn Fn(&str) -> bool| {
        list(rule, field).iter().any(|word| matches(word.as_str().unwrap()))
    };
    match *question {
        Question::Resource { verb, group, resource, subresource, name, .. } => {
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
        Question::NonResource { verb, path } => {
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

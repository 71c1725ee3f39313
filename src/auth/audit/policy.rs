//! Which requests are told: the policy of kube-apiserver, rule by rule (k8s.io/apiserver `pkg/audit/policy/checker.go`).

use crate::api::request_info::ResourceRequest;
use crate::auth::audit::event::AuditSubject;
use crate::config::{AuditLevel, AuditResources, AuditRule};

/// Whether a request is told. The first rule that matches decides; without one it is not.
pub(super) fn should_log(rules: &[AuditRule], subject: &AuditSubject<'_>) -> bool {
    let rule = rules.iter().find(|rule| matches(rule, subject));
    rule.is_some_and(|rule| rule.level != AuditLevel::None)
}

/// Whether a rule speaks of a request. Who names users or groups does not speak of nobody.
fn matches(rule: &AuditRule, subject: &AuditSubject<'_>) -> bool {
    let user = subject.user;
    let by_name = || user.is_some_and(|user| rule.users.contains(&user.name));
    let by_group =
        || user.is_some_and(|user| user.groups.iter().any(|g| rule.user_groups.contains(g)));
    (rule.users.is_empty() || by_name())
        && (rule.user_groups.is_empty() || by_group())
        && (rule.verbs.is_empty() || contains(&rule.verbs, &subject.verb()))
        && matches_target(rule, subject)
}

/// Whether it speaks of what is asked for. Resources come before paths: a rule with both never matches a path.
fn matches_target(rule: &AuditRule, subject: &AuditSubject<'_>) -> bool {
    if !rule.namespaces.is_empty() || !rule.resources.is_empty() {
        let Some(resource) = &subject.info.resource else {
            return false;
        };
        return (rule.namespaces.is_empty() || contains(&rule.namespaces, &resource.namespace))
            && (rule.resources.is_empty()
                || rule.resources.iter().any(|resources| matches_resource(resources, resource)));
    }
    if rule.non_resource_urls.is_empty() {
        return true;
    }
    subject.info.resource.is_none() && {
        let path = subject.path();
        rule.non_resource_urls.iter().any(|pattern| matches_path(pattern, &path))
    }
}

/// Names count only where resources are listed, as upstream. No group is called `*`, so that it may stand for all.
fn matches_resource(resources: &AuditResources, asked: &ResourceRequest) -> bool {
    if resources.group != *asked.gvr.group && resources.group != "*" {
        return false;
    }
    if resources.resources.is_empty() {
        return true;
    }
    (resources.resource_names.is_empty() || contains(&resources.resource_names, &asked.name))
        && resources.resources.iter().any(|pattern| matches_pattern(pattern, asked))
}

/// `*` is everything; a word without a slash is no subresource.
fn matches_pattern(pattern: &str, asked: &ResourceRequest) -> bool {
    let (resource, subresource) = (&*asked.gvr.resource, asked.subresource.as_str());
    if pattern == "*" {
        return true;
    }
    match pattern.split_once('/') {
        None => pattern == resource && subresource.is_empty(),
        Some((one, "*")) if one == resource => true,
        Some((one, two)) => {
            !subresource.is_empty() && two == subresource && (one == "*" || one == resource)
        }
    }
}

/// Stars at the end stand for any rest, none included.
fn matches_path(pattern: &str, path: &str) -> bool {
    pattern == path || (pattern.ends_with('*') && path.starts_with(pattern.trim_end_matches('*')))
}

fn contains(words: &[String], word: &str) -> bool {
    words.iter().any(|other| other == word)
}

#[cfg(test)]
mod tests;

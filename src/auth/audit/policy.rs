//! The audit policy: it selects the requests to log. Rules match as in kube-apiserver
//! (k8s.io/apiserver `pkg/audit/policy/checker.go`).

use crate::api::request_info::ResourceRequest;
use crate::auth::audit::event::AuditSubject;
use crate::config::{AuditLevel, AuditResources, AuditRule};

/// Returns whether a request is logged. The first rule that matches decides. If no rule matches,
/// the request is not logged.
pub(super) fn should_log(rules: &[AuditRule], subject: &AuditSubject<'_>) -> bool {
    let rule = rules.iter().find(|rule| matches(rule, subject));
    rule.is_some_and(|rule| rule.level != AuditLevel::None)
}

/// Returns whether a rule matches a request. An empty list of a rule matches every request. A rule
/// with users or groups does not match a request whose authentication failed.
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

/// Returns whether a rule matches the requested resource or path. A rule with namespaces or
/// resources matches only requests for resources, even if it has `nonResourceURLs` too.
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

/// Returns whether a rule's group, resources and names match a request. As in kube-apiserver, the
/// names are ignored if the rule lists no resources. The group `*` matches all groups; no group has
/// this name.
fn matches_resource(resources: &AuditResources, request: &ResourceRequest) -> bool {
    if resources.group != *request.gvr.group && resources.group != "*" {
        return false;
    }
    if resources.resources.is_empty() {
        return true;
    }
    (resources.resource_names.is_empty() || contains(&resources.resource_names, &request.name))
        && resources.resources.iter().any(|pattern| matches_pattern(pattern, request))
}

/// Returns whether a pattern matches the requested resource. `*` matches every resource and
/// subresource. Any other pattern without a slash matches no subresource.
fn matches_pattern(pattern: &str, request: &ResourceRequest) -> bool {
    let (resource, subresource) = (&*request.gvr.resource, request.subresource.as_str());
    if pattern == "*" {
        return true;
    }
    match pattern.split_once('/') {
        None => pattern == resource && subresource.is_empty(),
        Some((name, "*")) if name == resource => true,
        Some((name, sub)) => {
            !subresource.is_empty() && sub == subresource && (name == "*" || name == resource)
        }
    }
}

/// Returns whether a pattern matches a path. `*` at the end matches any suffix, including an empty
/// one.
fn matches_path(pattern: &str, path: &str) -> bool {
    pattern == path || (pattern.ends_with('*') && path.starts_with(pattern.trim_end_matches('*')))
}

fn contains(words: &[String], word: &str) -> bool {
    words.iter().any(|other| other == word)
}

#[cfg(test)]
mod tests;

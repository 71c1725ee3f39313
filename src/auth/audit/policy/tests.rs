//! Compares the policy with the table in kube-apiserver's documentation, and with a simple model of
//! its checker.

use std::collections::BTreeMap;

use http::{Method, Request};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::*;
use crate::api::request_info::RequestInfo;
use crate::auth::user::User;

fn with_subject<T>(
    method: &str,
    uri: &str,
    user: Option<(&str, &[&str])>,
    check: impl FnOnce(&AuditSubject<'_>) -> T,
) -> T {
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    let (parts, ()) = Request::builder().method(method).uri(uri).body(()).unwrap().into_parts();
    let query = parts.uri.query().unwrap_or_default();
    let info = RequestInfo::parse(&parts.method, parts.uri.path(), query);
    let user = user.map(|(name, groups)| {
        let groups = groups.iter().map(|&group| group.to_owned()).collect();
        User::new(name.to_owned(), String::new(), groups, BTreeMap::new())
    });
    check(&AuditSubject { parts: &parts, info: &info, user: user.as_ref() })
}

fn strings(strings: &[&str]) -> Vec<String> {
    strings.iter().map(|&string| string.to_owned()).collect()
}

fn resources(group: &str, resources: &[&str], names: &[&str]) -> AuditRule {
    let resources = AuditResources {
        group: group.to_owned(),
        resources: strings(resources),
        resource_names: strings(names),
    };
    AuditRule { resources: vec![resources], ..AuditRule::default() }
}

#[test]
fn the_first_rule_decides() {
    let none = |verbs: &[&str]| AuditRule {
        level: AuditLevel::None,
        verbs: strings(verbs),
        ..AuditRule::default()
    };
    let rules = [none(&["watch"]), AuditRule::default(), none(&[])];
    let is_logged = |rules: &[AuditRule], uri| {
        with_subject("GET", uri, None, |subject| should_log(rules, subject))
    };
    assert!(!is_logged(&rules, "/api/v1/pods?watch=1"));
    assert!(is_logged(&rules, "/api/v1/pods"));
    assert!(!is_logged(&[], "/api/v1/pods"));
    assert!(!is_logged(&rules[..1], "/api/v1/pods"));
}

#[test]
fn rules_with_users_match_no_other_user() {
    let rule = AuditRule { user_groups: strings(&["ops"]), ..AuditRule::default() };
    let is_logged = |user| {
        with_subject("GET", "/version", user, |subject| {
            should_log(std::slice::from_ref(&rule), subject)
        })
    };
    assert!(is_logged(Some(("a", &["dev", "ops"]))));
    assert!(!is_logged(Some(("ops", &["dev"]))));
    assert!(!is_logged(None));
}

#[test]
fn resources_are_matched_as_upstream() {
    let is_logged = |rule: &AuditRule, uri: &str| {
        with_subject("GET", uri, None, |subject| should_log(std::slice::from_ref(rule), subject))
    };
    let (pod, log) = ("/api/v1/namespaces/a/pods/x", "/api/v1/namespaces/a/pods/x/log");
    let status = "/apis/apps/v1/namespaces/a/deployments/x/status";
    let rows: &[(AuditRule, &[&str], &[&str])] = &[
        (resources("", &["pods"], &[]), &[pod, "/api/v1/pods"], &[log, status, "/version"]),
        (resources("", &["pods/*"], &[]), &[pod, log], &["/api/v1/nodes"]),
        (resources("", &["pods/log"], &[]), &[log], &[pod]),
        (resources("*", &["*/status"], &[]), &[status], &[pod, log]),
        (resources("", &["*"], &["x"]), &[pod, log], &["/api/v1/pods", status]),
        (resources("apps", &[], &[]), &[status, "/apis/apps/v1/deployments"], &[pod]),
        (
            AuditRule { namespaces: strings(&["a", ""]), ..AuditRule::default() },
            &[pod, "/api/v1/nodes", "/api/v1/namespaces/a"],
            &["/api/v1/namespaces/b", "/version"],
        ),
        (
            AuditRule {
                non_resource_urls: strings(&["/healthz*", "/version"]),
                ..AuditRule::default()
            },
            &["/healthz", "/healthz/etcd", "/version", "/%76ersion"],
            &["/version/", "/livez", pod],
        ),
    ];
    for (rule, yes, no) in rows {
        for uri in *yes {
            assert!(is_logged(rule, uri), "{rule:?} {uri}");
        }
        for uri in *no {
            assert!(!is_logged(rule, uri), "{rule:?} {uri}");
        }
    }
}

/// The upstream's checker as its documentation describes it: each condition on its own, and
/// patterns expanded to the strings that they match.
fn model(rules: &[AuditRule], subject: &AuditSubject<'_>) -> bool {
    for rule in rules {
        let mut matches = true;
        let groups = subject.user.map(|user| user.groups.clone()).unwrap_or_default();
        let name = subject.user.map(|user| user.name.clone());
        matches &= rule.users.is_empty() || name.is_some_and(|name| rule.users.contains(&name));
        matches &= rule.user_groups.is_empty()
            || rule.user_groups.iter().any(|group| groups.contains(group));
        matches &= rule.verbs.is_empty() || rule.verbs.contains(&subject.verb().into_owned());
        let by_resource = !rule.namespaces.is_empty() || !rule.resources.is_empty();
        match &subject.info.resource {
            Some(request) => {
                let (resource, sub) =
                    (request.gvr.resource.to_string(), request.subresource.clone());
                let mut fitting = vec!["*".to_owned(), format!("{resource}/*")];
                if sub.is_empty() {
                    fitting.push(resource);
                } else {
                    fitting.extend([format!("{resource}/{sub}"), format!("*/{sub}")]);
                }
                let fits = |rule: &AuditResources| {
                    let group = [&*request.gvr.group, "*"].contains(&rule.group.as_str());
                    let named = rule.resource_names.is_empty()
                        || rule.resource_names.iter().any(|name| **name == *request.name);
                    let listed = rule.resources.iter().any(|word| fitting.contains(word));
                    group && (rule.resources.is_empty() || named && listed)
                };
                let in_namespace = rule.namespaces.iter().any(|name| **name == *request.namespace);
                matches &= rule.namespaces.is_empty() || in_namespace;
                matches &= rule.resources.is_empty() || rule.resources.iter().any(fits);
                matches &= by_resource || rule.non_resource_urls.is_empty();
            }
            None => {
                let path = subject.path().into_owned();
                let fits = |pattern: &String| {
                    let stem = pattern.trim_end_matches('*');
                    if stem == pattern { path == *pattern } else { path.starts_with(stem) }
                };
                matches &= !by_resource;
                matches &=
                    rule.non_resource_urls.is_empty() || rule.non_resource_urls.iter().any(fits);
            }
        }
        if matches {
            return rule.level == AuditLevel::Metadata;
        }
    }
    false
}

const USERS: [&str; 2] = ["alice", "bob"];
const GROUPS: [&str; 3] = ["dev", "ops", "system:authenticated"];
const VERBS: [&str; 4] = ["get", "list", "watch", "options"];
const NAMESPACES: [&str; 3] = ["", "a", "b"];
const PATTERNS: [&str; 8] =
    ["*", "pods", "pods/*", "pods/log", "*/log", "*/status", "deployments", "*/*"];
const URLS: [&str; 5] = ["*", "/version", "/healthz*", "/healthz/*", "/api"];
const URIS: [&str; 11] = [
    "/api/v1/pods",
    "/api/v1/pods?watch=1",
    "/api/v1/namespaces/a/pods/x",
    "/api/v1/namespaces/b/pods/y/log",
    "/api/v1/namespaces/a",
    "/api/v1/nodes/x",
    "/apis/apps/v1/namespaces/a/deployments/x/status",
    "/apis/apps/v1/deployments",
    "/version",
    "/healthz",
    "/healthz/etcd",
];

fn some(values: &'static [&'static str]) -> impl Strategy<Value = Vec<String>> {
    let some = subsequence(values, 0..=2.min(values.len()));
    prop_oneof![Just(Vec::new()), some]
        .prop_map(|values| values.into_iter().map(str::to_owned).collect())
}

fn any_rule() -> impl Strategy<Value = AuditRule> {
    let resources = (select(&["", "apps", "*"][..]), some(&PATTERNS), some(&["x", "y"])).prop_map(
        |(group, resources, resource_names)| AuditResources {
            group: group.to_owned(),
            resources,
            resource_names,
        },
    );
    (
        prop_oneof![Just(AuditLevel::None), Just(AuditLevel::Metadata)],
        (some(&USERS), some(&GROUPS), some(&VERBS), some(&NAMESPACES)),
        prop::collection::vec(resources, 0..2),
        some(&URLS),
    )
        .prop_map(|(level, (users, user_groups, verbs, namespaces), resources, urls)| {
            AuditRule {
                level,
                users,
                user_groups,
                verbs,
                namespaces,
                resources,
                non_resource_urls: urls,
            }
        })
}

proptest! {
    #[test]
    fn the_policy_decides_as_the_model(
        rules in prop::collection::vec(any_rule(), 0..4),
        method in select(&["GET", "OPTIONS"][..]),
        uri in select(&URIS[..]),
        user in prop::option::of((select(&USERS[..]), subsequence(&GROUPS[..], 0..=3))),
    ) {
        let user = user.as_ref().map(|(name, groups)| (*name, groups.as_slice()));
        with_subject(method, uri, user, |subject| {
            prop_assert_eq!(should_log(&rules, subject), model(&rules, subject));
            Ok(())
        })?;
    }
}

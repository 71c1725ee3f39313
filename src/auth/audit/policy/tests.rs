//! The policy against the table of kube-apiserver's documentation, and against a plain model of its checker.

use std::collections::BTreeMap;

use http::{Method, Request};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::*;
use crate::api::request_info::RequestInfo;
use crate::auth::user::User;

fn ask<T>(
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

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

fn resources(group: &str, resources: &[&str], names: &[&str]) -> AuditRule {
    let resources = AuditResources {
        group: group.to_owned(),
        resources: words(resources),
        resource_names: words(names),
    };
    AuditRule { resources: vec![resources], ..AuditRule::default() }
}

#[test]
fn the_first_rule_decides() {
    let none = |verbs: &[&str]| AuditRule {
        level: AuditLevel::None,
        verbs: words(verbs),
        ..AuditRule::default()
    };
    let rules = [none(&["watch"]), AuditRule::default(), none(&[])];
    let wanted =
        |rules: &[AuditRule], uri| ask("GET", uri, None, |subject| should_log(rules, subject));
    assert!(!wanted(&rules, "/api/v1/pods?watch=1"));
    assert!(wanted(&rules, "/api/v1/pods"));
    assert!(!wanted(&[], "/api/v1/pods"));
    assert!(!wanted(&rules[..1], "/api/v1/pods"));
}

#[test]
fn rules_by_user_speak_of_nobody_else() {
    let rule = AuditRule { user_groups: words(&["ops"]), ..AuditRule::default() };
    let told = |user| {
        ask("GET", "/version", user, |subject| should_log(std::slice::from_ref(&rule), subject))
    };
    assert!(told(Some(("a", &["dev", "ops"]))));
    assert!(!told(Some(("ops", &["dev"]))));
    assert!(!told(None));
}

#[test]
fn resources_are_read_as_upstream() {
    let told = |rule: &AuditRule, uri: &str| {
        ask("GET", uri, None, |subject| should_log(std::slice::from_ref(rule), subject))
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
            AuditRule { namespaces: words(&["a", ""]), ..AuditRule::default() },
            &[pod, "/api/v1/nodes", "/api/v1/namespaces/a"],
            &["/api/v1/namespaces/b", "/version"],
        ),
        (
            AuditRule {
                non_resource_urls: words(&["/healthz*", "/version"]),
                ..AuditRule::default()
            },
            &["/healthz", "/healthz/etcd", "/version", "/%76ersion"],
            &["/version/", "/livez", pod],
        ),
    ];
    for (rule, yes, no) in rows {
        for uri in *yes {
            assert!(told(rule, uri), "{rule:?} {uri}");
        }
        for uri in *no {
            assert!(!told(rule, uri), "{rule:?} {uri}");
        }
    }
}

/// The upstream's checker, written as it is described: each condition on its own, patterns by what they expand to.
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
            Some(asked) => {
                let (resource, sub) = (asked.gvr.resource.to_string(), asked.subresource.clone());
                let mut fitting = vec!["*".to_owned(), format!("{resource}/*")];
                if sub.is_empty() {
                    fitting.push(resource);
                } else {
                    fitting.extend([format!("{resource}/{sub}"), format!("*/{sub}")]);
                }
                let fits = |entry: &AuditResources| {
                    let group = [&*asked.gvr.group, "*"].contains(&entry.group.as_str());
                    let named = entry.resource_names.is_empty()
                        || entry.resource_names.iter().any(|name| **name == *asked.name);
                    let listed = entry.resources.iter().any(|word| fitting.contains(word));
                    group && (entry.resources.is_empty() || named && listed)
                };
                let in_namespace = rule.namespaces.iter().any(|name| **name == *asked.namespace);
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
const WORDS: [&str; 8] =
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

fn some(words: &'static [&'static str]) -> impl Strategy<Value = Vec<String>> {
    let some = subsequence(words, 0..=2.min(words.len()));
    prop_oneof![Just(Vec::new()), some]
        .prop_map(|words| words.into_iter().map(str::to_owned).collect())
}

fn any_rule() -> impl Strategy<Value = AuditRule> {
    let resources = (select(&["", "apps", "*"][..]), some(&WORDS), some(&["x", "y"])).prop_map(
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
    fn it_decides_as_the_model(
        rules in prop::collection::vec(any_rule(), 0..4),
        method in select(&["GET", "OPTIONS"][..]),
        uri in select(&URIS[..]),
        user in prop::option::of((select(&USERS[..]), subsequence(&GROUPS[..], 0..=3))),
    ) {
        let user = user.as_ref().map(|(name, groups)| (*name, groups.as_slice()));
        ask(method, uri, user, |subject| {
            prop_assert_eq!(should_log(&rules, subject), model(&rules, subject));
            Ok(())
        })?;
    }
}

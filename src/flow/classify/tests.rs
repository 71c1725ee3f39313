//! Classification against a table, and against a plain transcription of kube-apiserver's rules.

use http::Method;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::level::PriorityLevel;
use weir_api::request_info::{NonResourceRequest, ResourceRequest};

fn request(method: &str, path: &str) -> RequestInfo {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    RequestInfo::parse(&Method::from_bytes(method.as_bytes()).unwrap(), path, query)
}

fn class<'a>(plan: &'a Plan, user: &str, groups: &[&str], info: &RequestInfo) -> &'a FlowSchema {
    let groups: Vec<_> = groups.iter().map(|&group| group.to_owned()).collect();
    &plan.schemas()[plan.classify(&plan.candidates(user, &groups), info)]
}

#[test]
fn the_built_in_schemas_classify_as_in_kube_apiserver() {
    let plan = Plan::built_in();
    let authenticated = "system:authenticated";
    for (user, group, method, path, expected, flow) in [
        ("admin", "system:masters", "GET", "/api/v1/pods", "exempt", ""),
        ("system:anonymous", "system:unauthenticated", "GET", "/livez", "probes", ""),
        ("jane", authenticated, "GET", "/livez/ping", "probes", ""),
        ("jane", authenticated, "POST", "/livez", "global-default", "jane"),
        ("jane", authenticated, "GET", "/livezz", "global-default", "jane"),
        (
            "system:kube-scheduler",
            authenticated,
            "PUT",
            "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler",
            "system-leader-election",
            "system:kube-scheduler",
        ),
        (
            "system:kube-scheduler",
            authenticated,
            "PATCH",
            "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler",
            "kube-scheduler",
            "kube-system",
        ),
        (
            "system:node:a",
            "system:nodes",
            "PATCH",
            "/api/v1/nodes/a/status",
            "system-node-high",
            "system:node:a",
        ),
        (
            "system:node:a",
            "system:nodes",
            "GET",
            "/api/v1/nodes/a/proxy",
            "system-nodes",
            "system:node:a",
        ),
        ("system:node:a", "system:nodes", "GET", "/api/v1/pods", "system-nodes", "system:node:a"),
        (
            "system:serviceaccount:kube-system:a",
            "system:serviceaccounts",
            "GET",
            "/api/v1/namespaces/b/pods",
            "kube-system-service-accounts",
            "b",
        ),
        (
            "system:serviceaccount:kube-system-2:a",
            "system:serviceaccounts",
            "GET",
            "/api/v1/pods",
            "service-accounts",
            "system:serviceaccount:kube-system-2:a",
        ),
        ("jane", "nobody", "GET", "/api/v1/pods", "catch-all", "jane"),
    ] {
        let info = request(method, path);
        let level = class(&plan, user, &[group], &info);
        let name = &*level.name;
        assert_eq!((name, level.flow(user, &info)), (expected, flow), "{user} {method} {path}");
    }
}

#[test]
fn ties_go_by_name_and_a_schema_without_its_level_is_left_out() {
    let plan = plan(&[schema("b", 7, "l", everybody()), schema("a", 7, "l", everybody())]);
    assert_eq!(&*class(&plan, "jane", &[], &request("GET", "/api")).name, "a");
    let plan = Plan::new(
        vec![
            parsed(&schema("a", 7, "gone", everybody())),
            parsed(&schema("b", 8, "l", everybody())),
        ],
        levels(),
    );
    assert_eq!(&*class(&plan, "jane", &[], &request("GET", "/api")).name, "b");
    let names: Vec<_> = plan.schemas().iter().map(|schema| &*schema.name).collect();
    assert_eq!(names, ["exempt", "b", "catch-all"]);
}

#[test]
fn users_whom_the_same_policies_name_share_their_candidates() {
    let plan = Plan::built_in();
    let groups = ["system:authenticated".to_owned()];
    let one = plan.candidates("jane", &groups);
    assert!(Arc::ptr_eq(&one, &plan.candidates("joe", &groups)));
    assert!(!Arc::ptr_eq(&one, &plan.candidates("system:kube-scheduler", &groups)));
}

fn everybody() -> Value {
    json!([{
        "subjects": [{"kind": "User", "user": {"name": "*"}}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    }])
}

fn schema(name: &str, precedence: i32, level: &str, rules: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "priorityLevelConfiguration": {"name": level},
        "matchingPrecedence": precedence,
        "rules": rules,
    }})
}

fn parsed(schema: &Value) -> FlowSchema {
    FlowSchema::parse(schema.to_string().as_bytes()).unwrap()
}

fn levels() -> Vec<PriorityLevel> {
    let level = json!({"metadata": {"name": "l"}, "spec": {"type": "Limited", "limited":
        {"nominalConcurrencyShares": 1, "limitResponse": {"type": "Reject"}}}});
    vec![PriorityLevel::parse(level.to_string().as_bytes()).unwrap()]
}

fn plan(schemas: &[Value]) -> Plan {
    Plan::new(schemas.iter().map(parsed).collect(), levels())
}

/// The rules of `util/flowcontrol/rule.go`, word for word, on the objects as JSON.
mod model {
    use super::*;

    pub(super) fn matches(
        schema: &Value,
        user: &str,
        groups: &[String],
        info: &RequestInfo,
    ) -> bool {
        items(&schema["spec"]["rules"]).iter().any(|rule| {
            items(&rule["subjects"]).iter().any(|candidate| subject(candidate, user, groups))
                && match &info.resource {
                    Some(request) => items(&rule["resourceRules"])
                        .iter()
                        .any(|rule| resource(rule, info.verb.as_str(), request)),
                    None => {
                        let request = info.non_resource.as_ref().unwrap();
                        items(&rule["nonResourceRules"]).iter().any(|rule| path(rule, request))
                    }
                }
        })
    }

    fn items(list: &Value) -> Vec<Value> {
        list.as_array().cloned().unwrap_or_default()
    }

    fn subject(subject: &Value, user: &str, groups: &[String]) -> bool {
        let name = |kind: &str| subject[kind]["name"].as_str().unwrap().to_owned();
        match subject["kind"].as_str().unwrap() {
            "User" => name("user") == "*" || name("user") == user,
            "Group" => name("group") == "*" || groups.contains(&name("group")),
            _ => {
                let namespace = subject["serviceAccount"]["namespace"].as_str().unwrap();
                match &*name("serviceAccount") {
                    "*" => user.starts_with(&format!("system:serviceaccount:{namespace}:")),
                    name => user == format!("system:serviceaccount:{namespace}:{name}"),
                }
            }
        }
    }

    fn contains(list: &Value, name: &str) -> bool {
        let list = items(list);
        list == [json!("*")] || list.contains(&json!(name))
    }

    fn resource(rule: &Value, verb: &str, request: &ResourceRequest) -> bool {
        let mut joined = request.gvr.resource.to_string();
        if !request.subresource.is_empty() {
            joined = format!("{joined}/{}", request.subresource);
        }
        contains(&rule["verbs"], verb)
            && contains(&rule["resources"], &joined)
            && contains(&rule["apiGroups"], &request.gvr.group)
            && match &*request.namespace {
                "" => rule["clusterScope"] == json!(true),
                namespace => contains(&rule["namespaces"], namespace),
            }
    }

    fn path(rule: &Value, request: &NonResourceRequest) -> bool {
        contains(&rule["verbs"], &request.verb)
            && items(&rule["nonResourceURLs"]).iter().any(|path| {
                let path = path.as_str().unwrap();
                let mut prefix = path.strip_suffix('*').unwrap_or(path).to_owned();
                if !prefix.ends_with('/') {
                    prefix.push('/');
                }
                path == "*" || path == request.path || request.path.starts_with(&prefix)
            })
    }
}

fn listed(words: &'static [&'static str]) -> impl Strategy<Value = Value> {
    let some = prop::sample::subsequence(words, 1..=words.len().min(3));
    prop_oneof![1 => Just(json!(["*"])), 3 => some.prop_map(|words| json!(words))]
}

fn subjects() -> impl Strategy<Value = Value> {
    let user = prop::sample::select(&["*", "jane", "joe", "system:serviceaccount:a:x"][..])
        .prop_map(|name| json!({"kind": "User", "user": {"name": name}}));
    let group = prop::sample::select(&["*", "devs", "ops"][..])
        .prop_map(|name| json!({"kind": "Group", "group": {"name": name}}));
    let account = (prop::sample::select(&["a", "b"][..]), prop::sample::select(&["*", "x"][..]));
    let account = account.prop_map(|(namespace, name)| {
        json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": namespace, "name": name}})
    });
    prop::collection::vec(prop_oneof![user, group, account], 1..3).prop_map(Value::from)
}

fn rules() -> impl Strategy<Value = Value> {
    let resource = (
        listed(&["get", "list", "watch", "create", "update", "patch", "delete", "proxy"]),
        listed(&["", "apps", "x.io"]),
        listed(&["pods", "pods/log", "pods/status", "deployments", "namespaces", "nodes"]),
        prop_oneof![2 => listed(&["a", "b"]), 1 => Just(json!([]))],
        any::<bool>(),
    );
    let resource = resource.prop_map(|(verbs, groups, resources, namespaces, cluster)| {
        let cluster = cluster || namespaces == json!([]);
        json!({"verbs": verbs, "apiGroups": groups, "resources": resources,
            "namespaces": namespaces, "clusterScope": cluster})
    });
    let path = (
        listed(&["get", "update", "delete", "patch"]),
        listed(&["/", "/healthz", "/healthz/*", "/version/", "/apis/*", "/apis/apps"]),
    );
    let path = path.prop_map(|(verbs, paths)| json!({"verbs": verbs, "nonResourceURLs": paths}));
    let rule =
        (subjects(), prop::collection::vec(resource, 0..3), prop::collection::vec(path, 1..3));
    let rule = rule.prop_map(|(subjects, resources, paths)| {
        json!({"subjects": subjects, "resourceRules": resources, "nonResourceRules": paths})
    });
    prop::collection::vec(rule, 1..3).prop_map(Value::from)
}

fn requests() -> impl Strategy<Value = (&'static str, &'static str)> {
    let methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "FOO"];
    let paths = [
        "/api/v1/pods",
        "/api/v1/pods?watch=1",
        "/api/v1/namespaces/a/pods/p",
        "/api/v1/namespaces/a/pods/p/log",
        "/api/v1/namespaces/b/pods/p/status",
        "/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dp",
        "/api/v1/namespaces/a",
        "/api/v1/namespaces/a/finalize",
        "/api/v1/namespaces",
        "/api/v1/nodes/n/proxy/x",
        "/api/v1/proxy/nodes/n",
        "/api/v1/watch/namespaces/b/pods",
        "/apis/apps/v1/namespaces/b/deployments",
        "/apis/apps/v1/deployments",
        "/apis/x.io/v1/namespaces/c/deployments/d",
        "/apis/apps/v1",
        "/apis/apps",
        "/apis",
        "/healthz",
        "/healthz/ping",
        "/healthzz",
        "/version",
        "/version/",
        "/",
    ];
    (prop::sample::select(methods.to_vec()), prop::sample::select(paths.to_vec()))
}

proptest! {
    #[test]
    fn classification_equals_the_rules_of_kube_apiserver(
        rules_of_schemas in prop::collection::vec((2..6_i32, rules()), 0..6),
        user in prop::sample::select(&["jane", "joe", "system:serviceaccount:a:x",
            "system:serviceaccount:a:xy", "system:serviceaccount:b:y"][..]),
        groups in prop::sample::subsequence(&["devs", "ops", "system:authenticated"][..], 0..=3),
        sent in prop::collection::vec(requests(), 1..20),
    ) {
        let names = ["c", "a", "f", "b", "e", "d"];
        let schemas: Vec<_> = rules_of_schemas.into_iter().zip(names)
            .map(|((precedence, rules), name)| schema(name, precedence, "l", rules)).collect();
        let plan = plan(&schemas);
        let owned: Vec<_> = groups.iter().map(|&group| group.to_owned()).collect();
        for (method, path) in sent {
            let info = request(method, path);
            let matching = schemas.iter().filter(|schema| model::matches(schema, user, &owned, &info));
            let order = |schema: &&Value| {
                let name = schema["metadata"]["name"].as_str().unwrap().to_owned();
                (schema["spec"]["matchingPrecedence"].as_i64().unwrap(), name)
            };
            let expected = matching.map(|schema| order(&schema)).min()
                .map_or_else(|| "catch-all".to_owned(), |(_, name)| name);
            let level = &*class(&plan, user, &groups, &info).name;
            prop_assert_eq!(level, expected, "{} {} {}", user, method, path);
        }
    }
}

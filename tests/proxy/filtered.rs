//! Lists and watches of all namespaces for users who may read some: filtered where roles allow a
//! part, refused as by the API server otherwise.

use std::num::Wrapping;

use http::StatusCode;
use serde_json::{Value, json};
use weir::config::{Config, FilteredLists};
use weir::simulator::User;

use crate::client::{Answer, Call, Next, Watch};
use crate::harness::{Proxy, as_gateway, configmap, upstream_of};
use crate::wait::eventually;

const RBAC: &str = "rbac.authorization.k8s.io";
const ALL: &str = "/api/v1/configmaps";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

async fn gateway(adjust: impl FnOnce(&mut Config)) -> Proxy {
    let names = ["alice", "bob"];
    let mut users: Vec<_> =
        names.iter().map(|name| User::with_rules(name, name, Vec::new())).collect();
    users.push(User::admin("weirs-own", "weir"));
    let upstream = upstream_of(users).await;
    Proxy::before(upstream, "weirs-own", |config| {
        as_gateway(config);
        config.authorization.rbac.enabled = true;
        config.authorization.filtered_lists = FilteredLists::Namespaces;
        adjust(config);
    })
    .await
}

/// Gives alice a role of the cluster: in one namespace, or (empty) in the cluster.
fn bind(proxy: &Proxy, namespace: &str, role: &str) {
    let kind = if namespace.is_empty() { "ClusterRoleBinding" } else { "RoleBinding" };
    let object = json!({"apiVersion": format!("{RBAC}/v1"), "kind": kind,
        "metadata": {"namespace": namespace, "name": role},
        "subjects": [{"kind": "User", "apiGroup": RBAC, "name": "alice"}],
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role}});
    proxy.upstream.store().create(object).unwrap();
}

fn unbind(proxy: &Proxy, namespace: &str, role: &str) {
    let api = format!("{RBAC}/v1");
    proxy.upstream.store().delete(&api, "rolebindings", namespace, role).unwrap();
}

fn role(proxy: &Proxy, name: &str, rules: &Value) {
    let object = json!({"apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole",
        "metadata": {"name": name}, "rules": rules});
    proxy.upstream.store().create(object).unwrap();
}

/// A role that may read config maps.
fn reader(proxy: &Proxy) {
    let verbs = ["get", "list", "watch"];
    role(
        proxy,
        "reader",
        &json!([{"verbs": verbs, "apiGroups": ["", "example.com"], "resources": ["configmaps", "widgets"]}]),
    );
}

fn by(user: &str, path: &str) -> Call {
    Call::get(path).header("authorization", &format!("Bearer {user}"))
}

fn is_filtered(answer: &Answer) -> bool {
    answer.headers.get("x-weir-filtered").is_some_and(|by| by == "namespaces")
}

fn keys(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().unwrap().iter();
    let text = |object: &Value, field: &str| {
        object["metadata"][field].as_str().unwrap_or_default().to_owned()
    };
    items.map(|object| text(object, "namespace") + "/" + &text(object, "name")).collect()
}

/// Waits until alice sees objects of exactly these namespaces.
async fn until_visible(proxy: &Proxy, namespaces: &[&str]) -> Answer {
    let mut last = None;
    eventually("alice sees what roles allow", async || {
        let answer = proxy.call(&by("alice", ALL)).await;
        let list = answer.json();
        let mut seen: Vec<_> = match answer.status {
            StatusCode::OK => keys(&list).iter().map(|key| prefix(key)).collect(),
            _ => Vec::new(),
        };
        seen.dedup();
        let is_seen = seen == namespaces;
        last = Some(answer);
        is_seen
    })
    .await;
    last.unwrap()
}

fn prefix(key: &str) -> String {
    key.split_once('/').unwrap().0.to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_has_the_objects_of_the_namespaces_that_roles_allow() {
    let proxy = gateway(|_| {}).await;
    reader(&proxy);
    bind(&proxy, "ns1", "reader");
    bind(&proxy, "ns1-a", "reader");
    // Namespaces come in the order of keys.
    let answer = until_visible(&proxy, &["ns1-a", "ns1"]).await;
    assert!(is_filtered(&answer));
    // The items are those of the whole list.
    let whole = proxy.direct(&by("weirs-own", ALL)).await.json();
    let mut expected = whole["items"].as_array().unwrap().clone();
    expected.retain(|object| object["metadata"]["namespace"] != "ns2");
    assert_eq!(answer.json()["items"], json!(expected));
    // Pages count the visible objects alone.
    let mut pages = Vec::new();
    let (mut token, mut remaining) = (String::new(), Vec::new());
    loop {
        let path = format!("{ALL}?limit=3&continue={token}");
        let page = proxy.call(&by("alice", &path)).await;
        assert!(page.status == StatusCode::OK && is_filtered(&page), "{}", page.text());
        let page = page.json();
        pages.extend(page["items"].as_array().unwrap().clone());
        remaining.push(page["metadata"]["remainingItemCount"].as_u64());
        match page["metadata"]["continue"].as_str() {
            Some(next) => token = next.to_owned(),
            None => break,
        }
    }
    assert_eq!((pages, remaining), (expected, vec![Some(5), Some(2), None]));
    // Selectors, metadata, gzip and a whole-cluster list of one namespace.
    let odd = proxy.call(&by("alice", &format!("{ALL}?labelSelector=app%3Dodd"))).await;
    assert_eq!(keys(&odd.json()).len(), 4);
    let accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let metadata = proxy.call(&by("alice", ALL).header("accept", accept)).await;
    assert_eq!(metadata.json()["kind"], "PartialObjectMetadataList");
    assert_eq!(keys(&metadata.json()).len(), 8);
    // Metadata of custom resources has a cache of its own.
    let widgets = by("alice", "/apis/example.com/v1/widgets").header("accept", accept);
    let metadata = proxy.call(&widgets).await;
    assert_eq!((metadata.status, keys(&metadata.json()).len()), (StatusCode::OK, 2));
    for (namespace, count) in [("ns1", 4), ("ns2", 0), ("none", 0)] {
        let path = format!("{ALL}?fieldSelector=metadata.namespace%3D{namespace}&limit=9");
        let one = proxy.call(&by("alice", &path)).await.json();
        assert_eq!(keys(&one).len(), count, "{namespace}");
        assert_eq!(one["metadata"]["remainingItemCount"], Value::Null);
    }
    let zero = proxy.call(&by("alice", &format!("{ALL}?resourceVersion=0"))).await;
    assert_eq!(keys(&zero.json()).len(), 8);
    // kubectl asks for a Table first. What it falls back to is filtered.
    let table = proxy.call(&by("alice", ALL).header("accept", TABLE)).await;
    assert_eq!(table.json()["kind"], "ConfigMapList");
    let requests = proxy.upstream.requests().recent();
    assert!(!requests.iter().any(|request| request.user == "alice"), "nothing is forwarded");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_is_refused_is_filtered() {
    let proxy = gateway(|config| config.authorization.filtered_lists = FilteredLists::Off).await;
    reader(&proxy);
    bind(&proxy, "ns1", "reader");
    let asked = by("alice", ALL).header("x-weir-filter", "namespaces");
    eventually("a client may ask for it", async || {
        proxy.call(&asked).await.status == StatusCode::OK
    })
    .await;
    assert!(is_filtered(&proxy.call(&asked).await));
    let refused = |through: Answer, direct: Answer| {
        assert_eq!((through.status, through.text()), (StatusCode::FORBIDDEN, direct.text()));
        assert!(!is_filtered(&through));
    };
    for call in [
        by("alice", ALL),
        by("alice", ALL).header("x-weir-filter", "off"),
        asked.clone().header("x-weir-cache", "bypass"),
        by("bob", ALL).header("x-weir-filter", "namespaces"),
        by("alice", "/api/v1/secrets").header("x-weir-filter", "namespaces"),
        by("alice", "/api/v1/namespaces/ns2/configmaps").header("x-weir-filter", "namespaces"),
        by("alice", &format!("{ALL}?watch=1")).header("x-weir-cache", "bypass"),
        asked.clone().header("impersonate-user", "bob"),
        asked
            .clone()
            .header("impersonate-user", "system:node:n")
            .header("impersonate-group", "system:nodes"),
    ] {
        refused(proxy.call(&call).await, proxy.direct(&call).await);
    }
    let wrong = proxy.call(&by("alice", ALL).header("x-weir-filter", "pods")).await;
    assert_eq!(wrong.status, StatusCode::BAD_REQUEST);
    // What is allowed is whole.
    let own = by("alice", "/api/v1/namespaces/ns1/configmaps?resourceVersion=0");
    assert!(!is_filtered(&proxy.call(&own.header("x-weir-filter", "namespaces")).await));
    let admin = by("weirs-own", &format!("{ALL}?resourceVersion=0"));
    let whole = proxy.call(&admin.header("x-weir-filter", "namespaces")).await;
    assert!(!is_filtered(&whole) && keys(&whole.json()).len() == 12);
    bind(&proxy, "", "reader");
    eventually("the whole list is allowed", async || {
        let answer = proxy.call(&asked).await;
        // A list during which permissions changed is refused with a 429.
        answer.status == StatusCode::OK && !is_filtered(&answer) && keys(&answer.json()).len() == 12
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_has_the_events_of_what_is_visible_until_that_changes() {
    let proxy = gateway(|_| {}).await;
    reader(&proxy);
    bind(&proxy, "ns1", "reader");
    let list = until_visible(&proxy, &["ns1"]).await;
    let version = list.json()["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let watch = |query: &str| by("alice", &format!("{ALL}?watch=1&allowWatchBookmarks=1&{query}"));
    let open = async |query: &str| Watch::open(proxy.plain(), &watch(query)).await;
    let mut after = open(&format!("resourceVersion={version}")).await;
    assert!(after.headers.contains_key("x-weir-filtered"));
    let initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let mut whole = open(initial).await;
    let begun = whole.until("k8s.io/initial-events-end").await;
    assert_eq!(begun.len(), 5, "{begun:?}");
    let api = proxy.upstream.store();
    for namespace in ["ns2", "ns1-a", "ns1"] {
        api.create(configmap(namespace, "new", 0)).unwrap();
    }
    for watch in [&mut after, &mut whole] {
        let event = watch.event().await;
        assert_eq!(event["object"]["metadata"]["namespace"], "ns1", "{event}");
    }
    // Whoever may see more must list again: the watch has no events of what was there before.
    bind(&proxy, "ns2", "reader");
    for watch in [&mut after, &mut whole] {
        let event = watch.event().await;
        assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)));
        assert_eq!(watch.next().await, Next::End);
    }
    let mut old = open(&format!("resourceVersion={version}")).await;
    assert_eq!(old.event().await["object"]["code"], 410);
    let list = until_visible(&proxy, &["ns1", "ns2"]).await;
    let version = list.json()["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let mut after = open(&format!("resourceVersion={version}")).await;
    // A change of other permissions ends nothing.
    role(&proxy, "other", &json!([]));
    bind(&proxy, "ns2", "other");
    api.create(configmap("ns2", "newer", 0)).unwrap();
    assert_eq!(after.event().await["object"]["metadata"]["name"], "newer");
    // Nor is anything shown after a revocation.
    unbind(&proxy, "ns2", "reader");
    assert_eq!(after.event().await["object"]["code"], 410);
    assert_eq!(after.next().await, Next::End);
    // Nor does a client go on from a part as if it were the whole.
    let list = until_visible(&proxy, &["ns1"]).await;
    let version = list.json()["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let mut part = open(&format!("resourceVersion={version}")).await;
    bind(&proxy, "", "reader");
    assert_eq!(part.event().await["object"]["code"], 410);
    let resumed = open(&format!("resourceVersion={version}")).await;
    assert_eq!(resumed.status, StatusCode::GONE);
    let whole = until_visible(&proxy, &["ns1-a", "ns1", "ns2"]).await;
    assert!(!is_filtered(&whole));
    // Nor from the whole as if it had been the part.
    let version = whole.json()["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let api = format!("{RBAC}/v1");
    proxy.upstream.store().delete(&api, "clusterrolebindings", "", "reader").unwrap();
    until_visible(&proxy, &["ns1"]).await;
    let mut resumed = open(&format!("resourceVersion={version}")).await;
    assert_eq!(resumed.event().await["object"]["code"], 410);
    unbind(&proxy, "ns1", "reader");
    let refused = by("alice", ALL);
    eventually("nothing is visible", async || {
        proxy.call(&refused).await.status == StatusCode::FORBIDDEN
    })
    .await;
    assert_eq!(proxy.call(&refused).await.text(), proxy.direct(&refused).await.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_the_cluster_are_visible_by_name() {
    let proxy = gateway(|_| {}).await;
    let rules = |resource: &str, names: &[&str]| {
        json!([{"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": [resource],
            "resourceNames": names}])
    };
    role(&proxy, "one-node", &rules("nodes", &["node-1", "none"]));
    bind(&proxy, "", "one-node");
    role(
        &proxy,
        "any",
        &json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["namespaces", "nodes"]}]),
    );
    bind(&proxy, "ns1-a", "any");
    role(&proxy, "one-namespace", &rules("namespaces", &["ns2"]));
    bind(&proxy, "", "one-namespace");
    let list = async |resource: &str| {
        let answer = proxy.call(&by("alice", &format!("/api/v1/{resource}"))).await;
        if is_filtered(&answer) { keys(&answer.json()) } else { Vec::new() }
    };
    eventually("a node is visible", async || list("nodes").await == ["/node-1"]).await;
    eventually("namespaces are visible", async || list("namespaces").await == ["/ns1-a", "/ns2"])
        .await;
    // Who may get any namespace sees all; who may get any node must know its name.
    bind(&proxy, "", "any");
    eventually("all namespaces are visible", async || {
        let seen = list("namespaces").await;
        seen.len() > 2 && seen.contains(&"/ns1".to_owned())
    })
    .await;
    assert_eq!(list("nodes").await, ["/node-1"]);
}

/// For random roles: the answer is the union of the lists of single namespaces.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_filtered_list_is_the_union_of_the_lists_by_namespace() {
    let proxy = gateway(|_| {}).await;
    let (verbs, resources) = (["get", "list", "watch"], ["configmaps", "pods", "*"]);
    let mut random = Wrapping(0x2545_f491_4f6c_dd1d_u64);
    let mut next = move |below: usize| {
        random = (random ^ (random << 13)) ^ ((random ^ (random << 13)) >> 7);
        (random.0 >> 11) as usize % below
    };
    for number in 0..8 {
        let mut chosen: Vec<_> = verbs.iter().filter(|_| next(3) > 0).collect();
        chosen.truncate(3);
        let rules =
            json!([{"verbs": chosen, "apiGroups": [""], "resources": [resources[next(3)]]}]);
        role(&proxy, &format!("role-{number}"), &rules);
    }
    for step in 0..40 {
        let (namespace, role) = (["ns1", "ns1-a", "ns2"][next(3)], format!("role-{}", next(8)));
        let api = proxy.upstream.store();
        let bindings = format!("{RBAC}/v1");
        if api.delete(&bindings, "rolebindings", namespace, &role).is_err() {
            bind(&proxy, namespace, &role);
        }
        let resource = ["configmaps", "pods"][next(2)];
        eventually(&format!("the lists agree after step {step}"), async || {
            let mut union = Vec::new();
            for namespace in ["ns1-a", "ns1", "ns2"] {
                let path = format!("/api/v1/namespaces/{namespace}/{resource}");
                let answer = proxy.direct(&by("alice", &path)).await.json();
                union.extend(answer["items"].as_array().cloned().unwrap_or_default());
            }
            let all = proxy.call(&by("alice", &format!("/api/v1/{resource}"))).await;
            let seen = all.json()["items"].as_array().cloned();
            let is_allowed = all.status == StatusCode::OK;
            is_allowed == is_filtered(&all) && seen.unwrap_or_default() == union
        })
        .await;
    }
}

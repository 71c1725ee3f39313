//! An aggregated API server that takes over what a CustomResourceDefinition has served, and has an
//! answer of its own for each user: each user gets what they get directly, and never what another
//! one gets, nor what Weir's identity gets.

use serde_json::{Value, json};
use weir::simulator::{Action, Cut, Rule, Simulator, User};

use crate::client::{Answer, Call, Next, Watch};
use crate::harness::{Proxy, as_gateway, upstream_of};
use crate::wait::eventually;

const WIDGETS: &str = "/apis/example.com/v1/widgets";
const ONE: &str = "/apis/example.com/v1/namespaces/ns1/widgets/w1";
const SERVICES: &str = "apiservices";

/// Alice and bob may read widgets, and Weir everything.
async fn upstream(weir: User) -> Simulator {
    let read =
        || Rule::new(&["get", "list", "watch"], &["widgets", "deployments", "configmaps"], &["*"]);
    let users = vec![
        weir,
        User::with_rules("alices", "alice", vec![read()]),
        User::with_rules("bobs", "bob", vec![read()]),
    ];
    let upstream = upstream_of(users).await;
    for (version, kind) in [("example.com/v1", "Widget"), ("apps/v1", "Deployment")] {
        let (group, _) = version.split_once('/').unwrap();
        upstream.aggregate(group, "v1", move |user, path| {
            let object_with = |metadata: Value| json!({"apiVersion": version, "kind": kind, "metadata": metadata});
            let object = object_with(json!({"name": format!("of-{user}"), "namespace": "ns1", "resourceVersion": "7"}));
            match path.rsplit('/').next()? {
                "widgets" | "deployments" => Some(json!({"apiVersion": version, "kind": format!("{kind}List"),
                    "metadata": {"resourceVersion": "7"}, "items": [object]})),
                name => (name == format!("of-{user}")).then_some(object),
            }
        });
    }
    upstream
}

fn administrator() -> User {
    User::admin("weirs-own", "weir")
}

/// Gives the APIService of a group a service, or takes it away. The label is gone.
fn set_service(upstream: &Simulator, group: &str, is_aggregated: bool) {
    let mut object = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": format!("v1.{group}")},
        "spec": {"group": group, "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100},
    });
    if is_aggregated {
        object["spec"]["service"] = json!({"name": "own", "namespace": "default", "port": 443});
    }
    upstream.store().update(object).unwrap();
}

fn as_user(path: &str, token: &str) -> Call {
    Call::get(path).header("authorization", &format!("Bearer {token}"))
}

/// Waits until each user gets what they get directly, checks that it stays so, and that nobody ever
/// gets what is another one's.
async fn agree(when: &str, proxy: &Proxy, tokens: &[&str]) {
    for token in tokens {
        for path in
            [&format!("{WIDGETS}?resourceVersion=0"), WIDGETS, &format!("{ONE}?resourceVersion=0")]
        {
            let call = as_user(path, token);
            let is_same = async || {
                let (direct, through) = (proxy.direct(&call).await, proxy.call(&call).await);
                assert_nobody_elses(&through, token);
                content(&direct) == content(&through)
            };
            eventually(&format!("{when}: {token} gets the same for {path}"), &is_same).await;
            for _ in 0..10 {
                assert!(is_same().await, "{when}: {token} gets something else for {path} later");
            }
        }
    }
}

fn assert_nobody_elses(answer: &Answer, token: &str) {
    for (other, name) in [("alices", "of-alice"), ("bobs", "of-bob"), ("weirs-own", "of-weir")] {
        let text = answer.text();
        assert!(other == token || !text.contains(name), "{token} ({}): {text}", answer.cache());
    }
}

/// The status, and the body without the resourceVersion of a list.
fn content(answer: &Answer) -> (u16, Value) {
    let mut body = answer.json();
    if body["items"].is_array() {
        body["metadata"] = Value::Null;
    }
    (answer.status.as_u16(), body)
}

async fn warm(proxy: &Proxy, token: &str) {
    let call = as_user(&format!("{WIDGETS}?resourceVersion=0"), token);
    eventually("the cache is warm", async || proxy.call(&call).await.cache() == "hit").await;
}

async fn open_watch(proxy: &Proxy, token: &str) -> Watch {
    let path = format!("{WIDGETS}?watch=1&resourceVersion=0");
    let mut watch = Watch::open(proxy.plain(), &as_user(&path, token)).await;
    assert_eq!(watch.cache(), "hit");
    for _ in 0..2 {
        assert!(matches!(watch.next().await, Next::Frame(_)));
    }
    watch
}

async fn ends_expired(mut watch: Watch) {
    let rest = watch.rest().await;
    let last: Value = serde_json::from_str(rest.last().unwrap()).unwrap();
    assert_eq!(
        (&last["type"], &last["object"]["code"]),
        (&json!("ERROR"), &json!(410)),
        "{rest:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_sees_what_an_aggregated_api_server_shows_another_user() {
    let gateway = Proxy::before(upstream(administrator()).await, "weirs-own", as_gateway).await;
    let sidecar = Proxy::before(gateway.upstream.clone(), "weirs-own", |_| {}).await;
    warm(&gateway, "alices").await;
    warm(&sidecar, "weirs-own").await;
    let mut watches =
        vec![open_watch(&gateway, "alices").await, open_watch(&gateway, "bobs").await];
    watches.push(open_watch(&sidecar, "weirs-own").await);

    set_service(&gateway.upstream, "example.com", true);
    agree("taken over", &gateway, &["alices", "bobs"]).await;
    agree("taken over", &sidecar, &["weirs-own"]).await;
    for watch in watches {
        ends_expired(watch).await;
    }
    let list = as_user(&format!("{WIDGETS}?resourceVersion=0"), "alices");
    let listed = gateway.call(&list).await;
    assert_eq!(listed.cache(), "forward; reason=aggregated");
    assert!(listed.text().contains("of-alice"), "{}", listed.text());
    let watch = as_user(&format!("{WIDGETS}?watch=1&resourceVersion=0"), "bobs");
    let event = Watch::open(gateway.plain(), &watch).await.event().await;
    assert_eq!(event["object"]["metadata"]["name"], "of-bob");

    let later = Proxy::before(gateway.upstream.clone(), "weirs-own", as_gateway).await;
    agree("taken over before the start", &later, &["alices", "bobs"]).await;
    set_service(&gateway.upstream, "example.com", false);
    for proxy in [&gateway, &later] {
        agree("given back", proxy, &["alices", "bobs"]).await;
    }
    agree("given back", &sidecar, &["weirs-own"]).await;
}

/// A cache that starts, and one that lists again, ask for the APIService before anything counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_takeover_that_no_watch_shows_is_noticed_before_a_list_counts() {
    let gateway = Proxy::before(upstream(administrator()).await, "weirs-own", as_gateway).await;
    let requests = gateway.upstream.requests();
    eventually("APIServices are watched", async || requests.count("watch", SERVICES) > 0).await;
    let faults = gateway.upstream.faults();
    faults.add("watch", SERVICES, u32::MAX, Action::Status(503));
    faults.cut_watches(Some(SERVICES), Cut::Reset);
    eventually("no watch opens", async || requests.count("watch", SERVICES) > 1).await;
    set_service(&gateway.upstream, "example.com", true);
    agree("no watch of APIServices", &gateway, &["alices", "bobs"]).await;

    // Nor does anything count while APIServices cannot be listed either.
    let gateway = Proxy::before(upstream(administrator()).await, "weirs-own", as_gateway).await;
    let requests = gateway.upstream.requests();
    eventually("APIServices are watched", async || requests.count("watch", SERVICES) > 0).await;
    let faults = gateway.upstream.faults();
    faults.add("*", SERVICES, u32::MAX, Action::Status(503));
    faults.cut_watches(Some(SERVICES), Cut::Reset);
    eventually("no watch opens", async || requests.count("watch", SERVICES) > 1).await;
    set_service(&gateway.upstream, "example.com", true);
    agree("APIServices cannot be read", &gateway, &["alices", "bobs"]).await;
    faults.clear();
    agree("APIServices can be read again", &gateway, &["alices", "bobs"]).await;
}

/// Where APIServices may not be listed, any group may be an aggregated API server's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_may_not_list_apiservices_caches_nothing() {
    let readable = ["widgets", "deployments", "configmaps", "customresourcedefinitions"];
    let rules = || {
        let reviews = ["tokenreviews", "subjectaccessreviews"];
        let read = Rule::new(&["get", "list", "watch"], &readable, &["*"]);
        vec![read, Rule::new(&["create"], &reviews, &["*"])]
    };
    let upstream = upstream(User::with_rules("weirs-own", "weir", rules())).await;
    let gateway = Proxy::before(upstream, "weirs-own", as_gateway).await;
    let sidecar = Proxy::before(gateway.upstream.clone(), "weirs-own", |_| {}).await;
    let deployments = "/apis/apps/v1/deployments?resourceVersion=0";
    set_service(&gateway.upstream, "apps", true);
    for (token, name) in [("alices", "of-alice"), ("bobs", "of-bob")] {
        let answer = gateway.call(&as_user(deployments, token)).await;
        assert_eq!(answer.cache(), "forward; reason=aggregated");
        assert!(answer.text().contains(name), "{}", answer.text());
        for path in
            ["/api/v1/configmaps?resourceVersion=0", &format!("{WIDGETS}?resourceVersion=0")]
        {
            let answer = gateway.call(&as_user(path, token)).await;
            assert_eq!(answer.cache(), "forward; reason=aggregated", "{path}");
        }
    }
    // All who read there have one identity.
    sidecar.warm("/api/v1/configmaps").await;
    let widgets = sidecar.get(&format!("{WIDGETS}?resourceVersion=0")).await;
    assert_eq!(widgets.cache(), "forward; reason=aggregated");
}

//! The limit on the open watches of a user, from caches and forwarded ones together. Each refusal
//! says why, and as what the request was classified.

use http::HeaderValue;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Error;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::client::{Answer, Call, Watch};
use crate::costs::{gateway_of_readers, upstream_of_readers};
use crate::flow_rules::section;
use crate::harness::{Proxy, as_gateway};
use crate::wait::eventually;

const WATCH: &str = "/api/v1/namespaces/ns1/configmaps?watch=1&resourceVersion=0";
/// Only the API server writes it.
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// Starts a gateway whose users may have two open watches, and whose cluster has one FlowSchema for
/// all who are authenticated.
async fn gateway() -> Proxy {
    let upstream = upstream_of_readers().await;
    for (plural, kind, object) in priority_and_fairness() {
        upstream.store().create(definition(plural, kind)).unwrap();
        upstream.store().create(object).unwrap();
    }
    let proxy = Proxy::before(upstream, "weirs-own", |config| {
        as_gateway(config);
        config.server.watches_per_user_max = 2;
    })
    .await;
    eventually("the cluster's FlowSchemas are in use", async || {
        proxy.metric("weir_flowcontrol_config_source", &["source=\"cluster\""]).await == 1.0
    })
    .await;
    proxy
}

fn priority_and_fairness() -> [(&'static str, &'static str, Value); 2] {
    let everything = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"],
        "clusterScope": true});
    let authenticated = json!({"kind": "Group", "group": {"name": "system:authenticated"}});
    let schema = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
        "metadata": {"name": "everybody"},
        "spec": {
            "priorityLevelConfiguration": {"name": "everything"}, "matchingPrecedence": 100,
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [{"subjects": [authenticated], "resourceRules": [everything]}],
        },
    });
    let level = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
        "metadata": {"name": "everything"},
        "spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": 30,
            "limitResponse": {"type": "Reject"}}},
    });
    [
        ("flowschemas", "FlowSchema", schema),
        ("prioritylevelconfigurations", "PriorityLevelConfiguration", level),
    ]
}

fn definition(plural: &str, kind: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.flowcontrol.apiserver.k8s.io")},
        "spec": {
            "group": "flowcontrol.apiserver.k8s.io", "scope": "Cluster",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(),
                "listKind": format!("{kind}List")},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object",
                    "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    })
}

fn watch(token: &str) -> Call {
    Call::get(WATCH).header("authorization", &format!("Bearer {token}"))
}

fn table(token: &str) -> Call {
    watch(token).header("accept", TABLE)
}

async fn uid(proxy: &Proxy, plural: &str, name: &str) -> String {
    let path = format!("/apis/flowcontrol.apiserver.k8s.io/v1/{plural}/{name}");
    let object = proxy.direct(&Call::get(&path).header("authorization", "Bearer weirs-own")).await;
    object.json()["metadata"]["uid"].as_str().unwrap().to_owned()
}

fn assert_refused(answer: &Answer) {
    assert_eq!(answer.status, 429, "{}", answer.text());
    assert_eq!(answer.headers["x-weir-shed"], "watches");
    let seconds: u32 = answer.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=30).contains(&seconds), "{seconds}");
    assert_eq!(answer.json()["details"]["retryAfterSeconds"], seconds);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_has_so_many_open_watches_and_others_have_theirs() {
    let proxy = gateway().await;
    let cached = Watch::open(proxy.plain(), &watch("alices")).await;
    let forwarded = Watch::open(proxy.plain(), &table("alices")).await;
    assert_refused(&proxy.call(&watch("alices")).await);
    assert_refused(&proxy.call(&table("alices")).await);
    let others = [
        Watch::open(proxy.plain(), &watch("bobs")).await,
        Watch::open(proxy.plain(), &watch("bobs")).await,
    ];
    assert_refused(&proxy.call(&watch("bobs")).await);
    assert_eq!(proxy.metric("weir_user_watches_refused_total", &[]).await, 3.0);
    // Requests that are no watches go on.
    let list = WATCH.replace("watch=1&", "");
    let list = proxy.call(&Call::get(&list).header("authorization", "Bearer alices")).await;
    assert_eq!(list.status, 200);

    // A watch that ends leaves its place, whatever answered it.
    let mut open = Vec::new();
    for ended in [forwarded, cached] {
        drop(ended);
        eventually("a place is free", async || {
            let next = Watch::open(proxy.plain(), &watch("alices")).await;
            let is_open = next.status == 200;
            open.push(next);
            is_open
        })
        .await;
        assert_refused(&proxy.call(&watch("alices")).await);
    }
    drop(others);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_names_the_flow_schema_and_the_level_by_uid() {
    let proxy = gateway().await;
    let _open = [
        Watch::open(proxy.plain(), &watch("alices")).await,
        Watch::open(proxy.plain(), &watch("alices")).await,
    ];
    let refused = proxy.call(&watch("alices")).await;
    assert_refused(&refused);
    for (header, plural, name) in [
        ("x-kubernetes-pf-flowschema-uid", "flowschemas", "everybody"),
        ("x-kubernetes-pf-prioritylevel-uid", "prioritylevelconfigurations", "everything"),
    ] {
        assert_eq!(refused.headers[header], uid(&proxy, plural, name).await, "{header}");
        assert!(!refused.text().contains(name), "{}", refused.text());
    }
}

/// Opens a watch over a WebSocket, or returns the code of its refusal.
async fn websocket(proxy: &Proxy, accept: &str) -> Result<WebSocketStream<TcpStream>, u16> {
    let mut request = format!("ws://localhost{WATCH}").into_client_request().unwrap();
    for (name, value) in
        [("origin", "http://localhost"), ("authorization", "Bearer alices"), ("accept", accept)]
    {
        request.headers_mut().insert(name, HeaderValue::from_str(value).unwrap());
    }
    let stream = TcpStream::connect(proxy.plain()).await.unwrap();
    match client_async(request, stream).await {
        Ok((socket, _)) => Ok(socket),
        Err(Error::Http(refused)) => Err(refused.status().as_u16()),
        Err(error) => panic!("{error}"),
    }
}

/// A watch over a WebSocket counts until the WebSocket is closed, for the limit of a user and for
/// that of a rule, whoever answers it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_over_a_websocket_counts_until_it_is_closed() {
    let by_rule = gateway_of_readers(|config| {
        config.flow_control = section(
            "flowControl:\n  mode: enforce\n  rules: [{name: two, limits: {watches: 2}}]\n",
        );
    });
    for proxy in [gateway().await, by_rule.await] {
        let list = WATCH.replace("watch=1&", "");
        let list = Call::get(&list).header("authorization", "Bearer alices");
        eventually("the cache is warm", async || proxy.call(&list).await.cache() == "hit").await;
        for accept in ["application/json", TABLE] {
            let mut open = Vec::new();
            eventually("two are open", async || {
                open.extend(websocket(&proxy, accept).await.ok());
                open.len() == 2
            })
            .await;
            assert_eq!(websocket(&proxy, accept).await.err(), Some(429), "{accept}");
            drop(open);
            eventually("their places are free", async || websocket(&proxy, accept).await.is_ok())
                .await;
        }
    }
}

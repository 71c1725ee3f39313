//! The pods that are read: 5,000 in ten namespaces, fifty for each of 100 nodes, 4.9 KB of JSON each; and 45,000 more for the rows that want
//! many, which stay until the next run.
//!
//! They are made as clients make them, through the API. Whatever an API server adds (managedFields, defaults) belongs to their size, so
//! the first one is looked at, and an annotation fills the rest up.

use std::ops::Range;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::client::{Ask, Connection, JSON, Protocol};
use crate::pod;
use crate::server::Server;

pub(crate) const PODS: usize = 5_000;
/// With those of [`fill_more`].
pub(crate) const MANY: usize = 50_000;
pub(crate) const NODES: usize = 100;
const NAMESPACES: usize = 10;
const BYTES: usize = 4_900;

/// Writes at once: an API server takes some hundreds from one user, and gains nothing beyond these.
const AT_ONCE: usize = 32;
/// Whoever waits wants to see that it goes on.
const TOLD: usize = 5_000;

pub(crate) const PADDING: &str = "checksum/config";

pub(crate) fn namespace(index: usize) -> String {
    let more = if index < PODS { "" } else { "more-" };
    format!("weir-compare-{more}{}", index % NAMESPACES)
}

/// The path of one of them.
pub(crate) fn path(index: usize) -> String {
    format!("/api/v1/namespaces/{}/pods/{}", namespace(index), pod::name(index))
}

/// A node's name; pods are of the first [`NODES`].
pub(crate) fn node(index: usize) -> String {
    format!("weir-compare-node-{index}")
}

/// Where a pod is: neighbours in a namespace are of different nodes.
pub(crate) fn node_of(pod: usize) -> String {
    node(pod / NAMESPACES % NODES)
}

/// Creates what is missing of the first ones.
pub(crate) async fn fill(upstream: &Server) {
    let connection = Connection::open(upstream, Protocol::Http2).await;
    remove_more(upstream).await;
    for index in 0..NODES {
        let body = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node(index)}});
        post(upstream, &connection, "/api/v1/nodes", &body).await;
    }
    create(upstream, &connection, 0..PODS).await;
    let path = format!("/api/v1/namespaces/{}/configmaps", namespace(0));
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "weir-compare"},
        "data": {"text": "x".repeat(BYTES)}});
    post(upstream, &connection, &path, &body).await;
}

/// Creates the others, which stay.
pub(crate) async fn fill_more(upstream: &Server) {
    let connection = Connection::open(upstream, Protocol::Http2).await;
    create(upstream, &connection, PODS..MANY).await;
}

/// Deletes the others, which an earlier run left: now, since another may never come.
async fn remove_more(upstream: &Server) {
    let connection = Connection::open(upstream, Protocol::Http2).await;
    for index in PODS..PODS + NAMESPACES {
        let collection = format!("/api/v1/namespaces/{}/pods", namespace(index));
        let some = Ask::get(upstream, &format!("{collection}?limit=500"), JSON, false);
        // One by one: an API server ends what takes it more than a minute, and so the deletion of a collection.
        loop {
            let names = names(&connection.collect(&some).await.1);
            if names.is_empty() {
                break;
            }
            println!("{} pods of an earlier run are deleted", names.len());
            let all = names.iter().map(async |name| {
                let code =
                    connection.count(&delete(upstream, &format!("{collection}/{name}"))).await.code;
                assert!(code.is_success(), "{name}: {code}");
            });
            stream::iter(all).for_each_concurrent(AT_ONCE, |it| it).await;
        }
    }
}

fn names(list: &[u8]) -> Vec<String> {
    let list: Value = serde_json::from_slice(list).expect("a list");
    let items = list.get("items").and_then(Value::as_array).into_iter().flatten();
    let names = items.map(|it| it.pointer("/metadata/name").and_then(Value::as_str));
    names.map(|it| it.expect("it has one").to_owned()).collect()
}

async fn create(upstream: &Server, connection: &Connection, pods: Range<usize>) {
    for index in pods.start..pods.start + NAMESPACES {
        let body = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": namespace(index)}});
        post(upstream, connection, "/api/v1/namespaces", &body).await;
    }
    let padding = padding(upstream, connection).await;
    let all = pods.map(async |index| {
        let path = format!("/api/v1/namespaces/{}/pods", namespace(index));
        let new = post(upstream, connection, &path, &pod::pod(index, padding)).await;
        if new && (index + 1).is_multiple_of(TOLD) {
            println!("{} pods are created", index + 1);
        }
    });
    stream::iter(all).for_each_concurrent(AT_ONCE, |it| it).await;
}

/// What is missing of a pod: as the first one has it, or as one without it shows, which is then deleted.
async fn padding(upstream: &Server, connection: &Connection) -> usize {
    let collection = format!("/api/v1/namespaces/{}/pods", namespace(0));
    let new = post(upstream, connection, &collection, &pod::pod(0, 0)).await;
    let get = Ask::get(upstream, &path(0), JSON, false);
    let (_, bytes) = connection.collect(&get).await;
    if new {
        let code = connection.count(&delete(upstream, &path(0))).await.code;
        assert!(code.is_success(), "{code}");
        return BYTES.saturating_sub(bytes.len());
    }
    let pod: Value = serde_json::from_slice(&bytes).expect("a pod");
    let value =
        |it: &Value| it.get("metadata")?.get("annotations")?.get(PADDING)?.as_str().map(str::len);
    value(&pod).expect("it is padded")
}

fn delete(upstream: &Server, path: &str) -> Ask {
    let body =
        Bytes::from_static(br#"{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0}"#);
    Ask::with_body(upstream, Method::DELETE, path, Some(JSON), body)
}

/// Whether it is new.
async fn post(upstream: &Server, connection: &Connection, path: &str, body: &Value) -> bool {
    let ask = Ask::with_body(upstream, Method::POST, path, Some(JSON), body.to_string().into());
    let (code, body) = connection.collect(&ask).await;
    let told = || String::from_utf8_lossy(&body);
    assert!(code.is_success() || code == StatusCode::CONFLICT, "{path}: {code} {}", told());
    code.is_success()
}

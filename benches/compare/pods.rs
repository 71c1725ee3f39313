//! Creates the pods: 5,000 in ten namespaces, fifty on each of 100 nodes, with 4.9 KB of JSON each.
//! Rows with many pods need 45,000 more, which remain until the next run with `--fill`.
//!
//! They are created through the API, so their size includes the fields that an API server adds
//! (managedFields, defaults). An annotation pads each to the intended size; the required length is
//! found from the first pod.

use std::ops::Range;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::client::{Connection, JSON, PreparedRequest, Protocol};
use crate::pod;
use crate::server::Server;

pub(crate) const PODS: usize = 5_000;
/// The number of pods including those of [`fill_more`].
pub(crate) const MANY: usize = 50_000;
pub(crate) const NODES: usize = 100;
const NAMESPACES: usize = 10;
/// The intended size of a pod in JSON.
const BYTES: usize = 4_900;

/// The number of concurrent writes. An API server accepts some hundreds from one user, but more of
/// them do not make it faster.
const CONCURRENCY: usize = 32;
/// Progress is printed after this number of pods.
const PROGRESS_INTERVAL: usize = 5_000;

pub(crate) const PADDING: &str = "checksum/config";

pub(crate) fn namespace(index: usize) -> String {
    let more = if index < PODS { "" } else { "more-" };
    format!("weir-compare-{more}{}", index % NAMESPACES)
}

/// Returns the path of pod `index`.
pub(crate) fn path(index: usize) -> String {
    format!("/api/v1/namespaces/{}/pods/{}", namespace(index), pod::name(index))
}

/// Returns the name of a node. Pods are on the first [`NODES`] nodes.
pub(crate) fn node(index: usize) -> String {
    format!("weir-compare-node-{index}")
}

/// Returns the name of a pod's node. Adjacent pods of a namespace are on different nodes.
pub(crate) fn node_of(pod: usize) -> String {
    node(pod / NAMESPACES % NODES)
}

/// Creates nodes, namespaces, a config map and the first [`PODS`] pods where they are missing.
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

/// Creates the other pods, which are not deleted at the end of the run.
pub(crate) async fn fill_more(upstream: &Server) {
    let connection = Connection::open(upstream, Protocol::Http2).await;
    create(upstream, &connection, PODS..MANY).await;
}

/// Deletes the pods that an earlier run created with [`fill_more`].
async fn remove_more(upstream: &Server) {
    let connection = Connection::open(upstream, Protocol::Http2).await;
    for index in PODS..PODS + NAMESPACES {
        let collection = format!("/api/v1/namespaces/{}/pods", namespace(index));
        let some = PreparedRequest::get(upstream, &format!("{collection}?limit=500"), JSON, false);
        // Pods are deleted one by one. Deleting the collection would take longer than a minute,
        // after which an API server aborts a request.
        loop {
            let names = names(&connection.collect(&some).await.1);
            if names.is_empty() {
                break;
            }
            println!("deleting {} pods of an earlier run", names.len());
            let deletions = names.iter().map(async |name| {
                let code =
                    connection.count(&delete(upstream, &format!("{collection}/{name}"))).await.code;
                assert!(code.is_success(), "{name}: {code}");
            });
            stream::iter(deletions).for_each_concurrent(CONCURRENCY, |write| write).await;
        }
    }
}

fn names(list: &[u8]) -> Vec<String> {
    let list: Value = serde_json::from_slice(list).expect("a list");
    let items = list.get("items").and_then(Value::as_array).into_iter().flatten();
    let names = items.map(|pod| pod.pointer("/metadata/name").and_then(Value::as_str));
    names.map(|name| name.expect("a pod has a name").to_owned()).collect()
}

async fn create(upstream: &Server, connection: &Connection, pods: Range<usize>) {
    for index in pods.start..pods.start + NAMESPACES {
        let body = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": namespace(index)}});
        post(upstream, connection, "/api/v1/namespaces", &body).await;
    }
    let padding = padding(upstream, connection).await;
    let creations = pods.map(async |index| {
        let path = format!("/api/v1/namespaces/{}/pods", namespace(index));
        let new = post(upstream, connection, &path, &pod::pod(index, padding)).await;
        if new && (index + 1).is_multiple_of(PROGRESS_INTERVAL) {
            println!("created {} pods", index + 1);
        }
    });
    stream::iter(creations).for_each_concurrent(CONCURRENCY, |write| write).await;
}

/// Returns the length of the padding. If the first pod exists, this is the length of its
/// annotation. Otherwise it is computed from a pod without padding, which is created and deleted.
async fn padding(upstream: &Server, connection: &Connection) -> usize {
    let collection = format!("/api/v1/namespaces/{}/pods", namespace(0));
    let new = post(upstream, connection, &collection, &pod::pod(0, 0)).await;
    let get = PreparedRequest::get(upstream, &path(0), JSON, false);
    let (_, bytes) = connection.collect(&get).await;
    if new {
        let code = connection.count(&delete(upstream, &path(0))).await.code;
        assert!(code.is_success(), "{code}");
        return BYTES.saturating_sub(bytes.len());
    }
    let pod: Value = serde_json::from_slice(&bytes).expect("a pod");
    let value =
        |pod: &Value| pod.get("metadata")?.get("annotations")?.get(PADDING)?.as_str().map(str::len);
    value(&pod).expect("the pod has the annotation")
}

fn delete(upstream: &Server, path: &str) -> PreparedRequest {
    let body =
        Bytes::from_static(br#"{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0}"#);
    PreparedRequest::with_body(upstream, Method::DELETE, path, Some(JSON), body)
}

/// Creates an object. Returns whether it did not exist before.
async fn post(upstream: &Server, connection: &Connection, path: &str, body: &Value) -> bool {
    let request = PreparedRequest::with_body(
        upstream,
        Method::POST,
        path,
        Some(JSON),
        body.to_string().into(),
    );
    let (code, body) = connection.collect(&request).await;
    let message = || String::from_utf8_lossy(&body);
    assert!(code.is_success() || code == StatusCode::CONFLICT, "{path}: {code} {}", message());
    code.is_success()
}

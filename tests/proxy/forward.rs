//! Forwarded requests and responses pass through unchanged, and without buffering.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;
use serde_json::json;

use crate::client::{Call, fetch, send};
use crate::harness::{POD, Proxy, configmap, over_tls};
use crate::wait::eventually;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_reach_the_upstream_and_its_refusals_the_client() {
    let proxy = Proxy::seeded().await;
    let collection = "/api/v1/namespaces/ns1/configmaps";
    let object = format!("{collection}/mine");
    let create = Call::new(Method::POST, collection).json(&configmap("ns1", "mine", 1));
    let created = proxy.call(&create).await;
    assert_eq!((created.status.as_u16(), created.cache()), (201, "forward; reason=write"));
    assert_eq!(proxy.call(&create).await.status, 409, "already there");
    let mut stale = created.json();
    let mut changed = stale.clone();
    changed["data"]["n"] = "2".into();
    let updated = proxy.call(&Call::new(Method::PUT, &object).json(&changed)).await;
    assert_eq!(updated.json()["data"]["n"], "2");
    stale["data"]["n"] = "3".into();
    let conflict = proxy.call(&Call::new(Method::PUT, &object).json(&stale)).await;
    assert_eq!(conflict.json()["reason"], "Conflict");
    let mut patch =
        Call::new(Method::PATCH, &object).header("content-type", "application/merge-patch+json");
    patch.body = Bytes::from_static(br#"{"data":{"n":"4"}}"#);
    assert_eq!(proxy.call(&patch).await.json()["data"]["n"], "4");
    // Read your writes: by the resourceVersion of the response, and consistently.
    let at = proxy.upstream.store().revision();
    let read = proxy.get(&format!("{object}?resourceVersion={at}")).await;
    assert_eq!(read.json()["data"]["n"], "4");
    let read = proxy.get(&object).await;
    assert_eq!(
        (read.cache(), &read.json()["data"]["n"]),
        ("forward; reason=consistent", &json!("4"))
    );
    let status = proxy.get(&format!("{POD}/status")).await;
    assert_eq!((status.status.as_u16(), status.cache()), (200, "forward; reason=subresource"));
    assert_eq!(proxy.call(&Call::new(Method::DELETE, &object)).await.status, 200);
    assert_eq!(proxy.get(&object).await.status, 404);
    let deletion = Call::new(Method::DELETE, &format!("{collection}?labelSelector=app%3Dodd"));
    assert_eq!(proxy.call(&deletion).await.status, 200);
    assert_eq!(proxy.get(collection).await.json()["items"].as_array().unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_followed_log_streams_and_ends_with_its_client() {
    let proxy = over_tls().await;
    let open = async || proxy.metric("weir_upstream_streams", &[r#"traffic_class="stream""#]).await;
    let before = open().await;
    let call = Call::get(&format!("{POD}/log?follow=true&tailLines=2"));
    let mut log = send(proxy.plain(), &call).await.into_body();
    let first = log.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(String::from_utf8_lossy(&first).lines().count(), 2);
    let other = send(proxy.plain(), &call).await;
    assert_eq!(open().await, before + 2.0);
    // Logs last as long as their clients read: they are none of the reads that objectives count.
    for (verb, count) in [("log", 2.0), ("get", 0.0)] {
        let label = format!("verb=\"{verb}\"");
        assert_eq!(proxy.metric("weir_requests_total", &[&label]).await, count, "{verb}");
    }
    let connections = proxy.upstream.requests().connections();
    drop(log);
    eventually("the first stream upstream is cancelled", async || open().await == before + 1.0)
        .await;
    // The other request continues on the same connection.
    let mut other = other.into_body();
    for _ in 0..2 {
        assert!(other.frame().await.unwrap().is_ok());
    }
    drop(other);
    eventually("both are cancelled", async || open().await == before).await;
    assert_eq!(proxy.get("/version").await.status, 200);
    assert_eq!(proxy.upstream.requests().connections(), connections, "no connection was lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_bodies_pass_both_ways() {
    for proxy in [Proxy::seeded().await, over_tls().await] {
        let mut large = configmap("ns1", "large", 1);
        large["data"]["text"] = "é".repeat(1_000_000).into();
        let collection = "/api/v1/namespaces/ns1/configmaps";
        let created = proxy.call(&Call::new(Method::POST, collection).json(&large)).await;
        assert_eq!(created.status, 201);
        let read = proxy.get(&format!("{collection}/large")).await;
        assert_eq!(read.json()["data"]["text"], large["data"]["text"]);
        large["data"]["text"] = "x".repeat(3_500_000).into();
        let refused = proxy.call(&Call::new(Method::POST, collection).json(&large)).await;
        assert_eq!(refused.status, 413);
        assert_eq!(proxy.get("/version").await.status, 200);
    }
}

/// Weir and the upstream must never parse a path differently: unusual paths are forwarded
/// unchanged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unusual_paths_are_forwarded_unchanged() {
    let proxy = Proxy::seeded().await;
    proxy.warm("/api/v1/configmaps").await;
    proxy.warm("/api/v1/namespaces").await;
    for path in [
        "//api/v1/configmaps",
        "/api//v1/configmaps",
        "/api/v1//configmaps",
        "/api/v1/namespaces//configmaps",
        "/api/v1/namespaces/ns1//configmaps",
        "/api/v1/./configmaps",
        "/api/v1/namespaces/ns1/../ns2/configmaps",
        "/api/v1/namespaces/ns1/configmaps/..",
        "/api/v1/namespaces/ns1%2fconfigmaps",
        "/api/v1/namespaces/ns1%2Fconfigmaps/cm-a",
        "/api/v1/namespaces/ns1/configmaps%2Fcm-a",
        "/api/v1/namespaces/ns1/configmaps/cm%2Da",
        "/api/v1/%63onfigmaps",
        "/api/v1/namespaces/ns1/configmaps/%2e%2e",
        "/api/v1/configmaps;x=y",
        "/api/v1;x/configmaps",
        "/api/v1/namespaces/ns1;/configmaps",
        "/api/v1/namespaces/ns1/configmaps/cm-a%00",
        "/API/v1/configmaps",
    ] {
        // None of Weir's own requests has this query.
        let query = "resourceVersion=0&timeoutSeconds=1";
        let path = format!("{path}?{query}");
        let call = Call::get(&path);
        let (through, direct) = (fetch(proxy.plain(), &call).await, proxy.direct(&call).await);
        assert_eq!((through.status, through.text()), (direct.status, direct.text()), "{path}");
        assert!(through.cache().starts_with("forward; reason="), "{path}: {}", through.cache());
        let recent = proxy.upstream.requests().recent();
        let seen: Vec<_> = recent.iter().rev().filter(|seen| seen.query == query).take(2).collect();
        assert_eq!(seen[0].path, seen[1].path, "{path}");
    }
    // The trailing slash of a collection is harmless, and the bytes are the same either way.
    let (slash, plain) =
        ("/api/v1/configmaps/?resourceVersion=0", "/api/v1/configmaps?resourceVersion=0");
    assert_eq!(proxy.get(slash).await.text(), proxy.get(plain).await.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_connection_is_a_502_and_an_absent_upstream_a_503() {
    let proxy = Proxy::seeded().await;
    proxy.upstream.faults().add("create", "configmaps", 1, weir::simulator::Action::Reset);
    let create = Call::new(Method::POST, "/api/v1/namespaces/ns1/configmaps")
        .json(&configmap("ns1", "lost", 1));
    let count = proxy.upstream.requests().count("create", "configmaps");
    let lost = proxy.call(&create).await;
    assert_eq!((lost.status.as_u16(), lost.json()["kind"].clone()), (502, json!("Status")));
    assert_eq!(
        proxy.upstream.requests().count("create", "configmaps"),
        count + 1,
        "never replayed"
    );
    proxy.upstream.stop();
    eventually("the upstream is away", async || proxy.get("/version").await.status == 503).await;
    let absent = proxy.call(&create).await;
    assert_eq!(absent.status, 503);
    assert!(absent.headers.contains_key("retry-after"));
    tokio::time::timeout(Duration::from_secs(20), proxy.upstream.restart()).await.unwrap().unwrap();
    eventually("the upstream is back", async || proxy.get("/version").await.status == 200).await;
}

/// The object would be shown as metadata in JSON, but the error is negotiated without conversions,
/// and gives YAML, which only the API server writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_404_in_yaml_is_forwarded() {
    let proxy = Proxy::seeded().await;
    let collection = "/api/v1/namespaces/ns1/configmaps";
    proxy.warm(collection).await;
    let metadata = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    for (other, cache) in
        [("application/json", "hit"), ("application/yaml", "forward; reason=not-found")]
    {
        let call = Call::get(&format!("{collection}/missing?resourceVersion=0"));
        let answer = proxy.call(&call.header("accept", &format!("{metadata},{other}"))).await;
        assert_eq!((answer.status.as_u16(), answer.cache()), (404, cache), "{other}");
    }
}

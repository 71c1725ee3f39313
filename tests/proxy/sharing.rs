//! Clients share the connections to the API server, and none of them takes these from the others.

use std::collections::BTreeSet;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Empty;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use weir::simulator::{Action, Simulator, SimulatorOptions, User};

use crate::client::{Call, send};
use crate::harness::{POD, Proxy, as_gateway, configmap, over_tls, seed};
use crate::wait::eventually;

const COLLECTION: &str = "/api/v1/namespaces/ns1/configmaps";

/// Alice may do everything, bob nothing. The upstream speaks HTTP/2.
async fn gateway() -> Proxy {
    let users = vec![
        User::admin("weirs-own", "weir"),
        User::admin("alices", "alice"),
        User::with_rules("bobs", "bob", Vec::new()),
    ];
    let options = SimulatorOptions { users, tls: true, ..SimulatorOptions::default() };
    let upstream = Simulator::start(options).await.unwrap();
    seed(&upstream);
    Proxy::before(upstream, "weirs-own", as_gateway).await
}

fn as_user(call: Call, token: &str) -> Call {
    if token.is_empty() {
        return call;
    }
    call.header("authorization", &format!("Bearer {token}"))
}

fn create(token: &str, name: &str) -> Call {
    as_user(Call::new(Method::POST, COLLECTION).json(&configmap("ns1", name, 1)), token)
}

/// The API server ends an HTTP/2 connection with each response to a request that it does not
/// authenticate. A write that it overtakes is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_without_a_good_credential_do_not_end_the_connections_of_others() {
    let proxy = gateway().await;
    let log = as_user(Call::get(&format!("{POD}/log?follow=true&tailLines=2")), "alices");
    let log = send(proxy.plain(), &log).await;
    assert_eq!(log.status(), 200);
    for number in 0..10 {
        let created = proxy.call(&create("alices", &format!("mine-{number}"))).await;
        assert_eq!(created.status, 201);
        for (token, code) in [("wrong", 401), ("", 403), ("bobs", 403)] {
            assert_eq!(proxy.call(&create(token, "theirs")).await.status, code, "{token}");
        }
    }
    let recent = proxy.upstream.requests().recent();
    let connections = |user: &str| -> BTreeSet<u64> {
        let created = recent
            .iter()
            .filter(|request| request.verb == "create" && request.resource == "configmaps");
        created.filter(|request| request.user == user).map(|request| request.connection).collect()
    };
    assert_eq!(connections("alice").len(), 1, "her connection lives");
    assert_eq!(connections("bob"), connections("alice"), "his token is good");
    for user in ["", "system:anonymous"] {
        assert!(connections(user).is_disjoint(&connections("alice")), "{user:?}");
        assert!(!connections(user).is_empty(), "{user:?}");
    }
    drop(log);
}

/// Sends GETs that get no answer, and cancels them when they have arrived. Returns the status of
/// one that Weir answered, if any.
async fn cancel(proxy: &Proxy, token: &str, requests: usize) -> Option<u16> {
    let tcp = TcpStream::connect(proxy.plain()).await.unwrap();
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(tcp))
            .await
            .unwrap();
    let connection = tokio::spawn(connection);
    let arrived = || proxy.upstream.requests().count("get", "secrets");
    let before = arrived();
    let sent: Vec<_> = (0..requests)
        .map(|_| {
            let request = Request::get("http://localhost/api/v1/namespaces/ns1/secrets/x")
                .header("authorization", format!("Bearer {token}"))
                .body(Empty::<Bytes>::new());
            let mut sender = sender.clone();
            tokio::spawn(async move { sender.send_request(request.unwrap()).await })
        })
        .collect();
    eventually("every request has arrived or was refused", async || {
        let refused = sent.iter().filter(|task| task.is_finished()).count();
        arrived() - before + refused as u64 >= requests as u64
    })
    .await;
    let mut status = None;
    for sent in sent {
        if sent.is_finished() {
            status = Some(sent.await.unwrap().unwrap().status().as_u16());
        } else {
            sent.abort();
        }
    }
    connection.abort();
    status
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_cancels_without_end_is_refused_and_others_are_served() {
    let proxy = gateway().await;
    proxy.upstream.faults().add("get", "secrets", u32::MAX, Action::Hang);
    let mut refused = None;
    // Half of what wears all connections out within half a minute is 1,600.
    for _ in 0..60 {
        refused = cancel(&proxy, "bobs", 50).await;
        if refused.is_some() {
            break;
        }
    }
    assert_eq!(refused, Some(429));
    assert_eq!(proxy.call(&create("alices", "mine")).await.status, 201);
    let read = as_user(Call::get(&format!("{COLLECTION}/mine")), "alices");
    assert_eq!(proxy.call(&read).await.status, 200);
    let refused = proxy.call(&create("bobs", "theirs")).await;
    assert_eq!(refused.status, 429);
    assert!(refused.headers.contains_key("retry-after"));
}

/// Behind a load balancer, another connection may lead to an API server that lags.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forwarded_reads_from_any_resourceversion_use_one_connection() {
    let proxy = over_tls().await;
    let object = format!("{COLLECTION}/cm-a");
    let stale = Call::get(&format!("{object}?resourceVersion=0")).header("x-weir-cache", "bypass");
    for _ in 0..30 {
        assert_eq!(proxy.call(&stale).await.cache(), "forward; reason=bypass");
        assert_eq!(proxy.get(&object).await.cache(), "forward; reason=consistent");
    }
    let recent = proxy.upstream.requests().recent();
    let seen = recent
        .iter()
        .filter(|request| request.path == object && request.query == "resourceVersion=0");
    let connections: BTreeSet<u64> = seen.map(|request| request.connection).collect();
    assert_eq!(connections.len(), 1, "{connections:?}");
}

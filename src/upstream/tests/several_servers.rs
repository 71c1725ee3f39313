//! Tests with several API servers: which one gets a request, and what happens when one ends.

use std::collections::HashMap;
use std::time::Duration;

use super::*;
use crate::config::endpoints::EndpointsConfig;
use crate::upstream::endpoints::health::{Outcome, ProbeResult};
use crate::upstream::endpoints::{Admission, ApiServer};
use crate::upstream::version::cluster_uid;

/// Starts servers that answer with their number.
async fn servers(count: usize) -> Vec<TestServer> {
    let start = |number: usize| {
        TestServer::start(ServerOptions::http2(), move |_| async move {
            answer(200, number.to_string())
        })
    };
    futures_util::future::join_all((0..count).map(start)).await
}

async fn upstream_of(servers: &[TestServer]) -> Upstream {
    let static_urls = servers.iter().map(|server| format!("http://{}", server.address)).collect();
    let endpoints = EndpointsConfig { static_urls, ..EndpointsConfig::default() };
    let config = UpstreamConfig { endpoints, ..config(None, None, true) };
    Upstream::new(&config, metrics()).await.unwrap()
}

async fn ask(upstream: &Upstream, choice: Choice) -> String {
    let options = SendOptions { choice, ..SendOptions::default() };
    text(upstream.send_with(TrafficClass::Request, get("/x"), &options).await.unwrap()).await
}

fn post() -> Request<RequestBody> {
    Request::post("/x").body(full_body("write")).unwrap()
}

fn client_read() -> SendOptions {
    SendOptions { is_read: true, purpose: RequestPurpose::Forward, ..SendOptions::default() }
}

/// Lets a server be ejected.
fn fail(server: &ApiServer) {
    for _ in 0..3 {
        server.note(Outcome::TransportFailure, Instant::now());
    }
}

#[tokio::test]
async fn requests_are_spread_and_those_of_a_client_stay() {
    let servers = servers(3).await;
    let upstream = upstream_of(&servers).await;
    let mut counts = HashMap::<String, usize>::new();
    for _ in 0..200 {
        *counts.entry(ask(&upstream, Choice::Spread).await).or_default() += 1;
    }
    assert_eq!(counts.len(), 3, "{counts:?}");
    let mut used = HashMap::<String, usize>::new();
    for client in 1..40 {
        let home = ask(&upstream, Choice::Sticky(client)).await;
        for _ in 0..5 {
            assert_eq!(ask(&upstream, Choice::Sticky(client)).await, home, "client {client}");
        }
        *used.entry(home).or_default() += 1;
    }
    assert_eq!(used.len(), 3, "{used:?}");
}

#[tokio::test]
async fn writes_go_on_when_one_of_three_servers_is_stopped() {
    let mut servers = servers(3).await;
    let upstream = upstream_of(&servers).await;
    while upstream.inner.metrics.open_connections() < 3 {
        upstream.send(TrafficClass::Request, post()).await.unwrap();
    }
    drop(servers.remove(0));
    let has_ended = || upstream.inner.metrics.open_connections() == 2;
    eventually("the pool notices the end", has_ended).await;
    for number in 0..60 {
        let sent = upstream.send(TrafficClass::Request, post()).await;
        let response = sent.unwrap_or_else(|error| panic!("{number}: {error}"));
        assert_ne!(text(response).await, "0");
    }
}

/// A server that breaks the connection may have processed the request.
#[tokio::test]
async fn a_write_that_was_lost_is_not_sent_to_another_server() {
    let received = Arc::new(AtomicUsize::new(0));
    let mut servers = Vec::new();
    for _ in 0..2 {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        servers.push(format!("http://{}", listener.local_addr().unwrap()));
        let received = received.clone();
        tokio::spawn(async move {
            while let Ok((mut tcp, _)) = listener.accept().await {
                let mut head = [0; 1024];
                if tcp.read(&mut head).await.unwrap() > 0 {
                    received.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
    }
    let endpoints = EndpointsConfig { static_urls: servers, ..EndpointsConfig::default() };
    let config = UpstreamConfig { endpoints, ..config(None, None, false) };
    let upstream = Upstream::new(&config, metrics()).await.unwrap();
    let sent = upstream.send(TrafficClass::Request, post()).await;
    assert!(matches!(sent, Err(UpstreamError::Lost(_))), "{sent:?}");
    assert_eq!(received.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn the_connections_of_a_server_that_left_the_set_are_closed() {
    let servers = servers(2).await;
    let upstream = upstream_of(&servers[..1]).await;
    let address = servers[1].address;
    upstream.endpoints().set_found(&[(address.ip().to_string(), address.port())]);
    let server = upstream.endpoints().servers()[0].clone();
    assert_eq!(server.endpoint.port, address.port());
    for _ in 0..20 {
        assert_eq!(ask(&upstream, Choice::Spread).await, "0", "the other is not known yet");
    }
    server.admit(Admission::SameCluster);
    server.probed(ProbeResult::Ready);
    fail(&upstream.endpoints().servers()[1]);
    assert_eq!(ask(&upstream, Choice::Spread).await, "1");
    assert_eq!(upstream.inner.metrics.open_connections(), 2);
    upstream.endpoints().set_found(&[]);
    assert_eq!(ask(&upstream, Choice::Spread).await, "0", "it is the only one again");
    eventually("its connection is closed", || upstream.inner.metrics.open_connections() == 1).await;
}

/// The one server has begun to shut down: it refuses requests on the connections that it has
/// (`apiserver/pkg/server/filters/waitgroup.go`).
#[tokio::test]
async fn reads_leave_a_server_that_refuses_them_while_it_shuts_down() {
    let refused = Arc::new(AtomicUsize::new(0));
    let mut servers = servers(1).await;
    let stopping = TestServer::start(ServerOptions::http2(), {
        let refused = refused.clone();
        move |_| {
            refused.fetch_add(1, Ordering::SeqCst);
            let mut refusal = answer(503, "apiserver is shutting down");
            refusal.headers_mut().insert("retry-after", http::HeaderValue::from_static("1"));
            async move { refusal }
        }
    })
    .await;
    servers.push(stopping);
    let upstream = upstream_of(&servers).await;
    // A client stays with its server, so that some begin at this one.
    for client in 1..200 {
        if refused.load(Ordering::SeqCst) == 3 {
            return;
        }
        let options = SendOptions { choice: Choice::Sticky(client), ..client_read() };
        let read = get("/apis/apps/v1/deployments");
        let response = upstream.send_with(TrafficClass::Request, read, &options).await.unwrap();
        assert_eq!(text(response).await, "0");
    }
    panic!("no read was sent to the server that shuts down");
}

/// The one server accepts connections and never answers. Its probe has no answer either.
#[tokio::test]
async fn reads_leave_a_server_that_hangs_and_writes_wait_there() {
    let answering = servers(1).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = listener.local_addr().unwrap();
    let static_urls = vec![format!("http://{silent}"), format!("http://{}", answering[0].address)];
    let endpoints = EndpointsConfig { static_urls, ..EndpointsConfig::default() };
    let config = UpstreamConfig { endpoints, ..config(None, None, true) };
    let upstream = Upstream::new(&config, metrics()).await.unwrap();
    let servers = upstream.endpoints().servers();
    let hung = servers.iter().find(|one| one.endpoint.port == silent.port()).unwrap();

    let mut writes = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let upstream = upstream.clone();
        writes.spawn(async move { upstream.send(TrafficClass::Request, post()).await });
    }
    let options = client_read();
    let reads =
        (0..8).map(|_| upstream.send_with(TrafficClass::Request, get("/api/v1/pods"), &options));
    let probe = async {
        hung.suspected.notified().await;
        hung.probed(ProbeResult::Failed);
    };
    let reads_and_probe = async { tokio::join!(futures_util::future::join_all(reads), probe).0 };
    let answers = tokio::time::timeout(Duration::from_secs(60), reads_and_probe).await.unwrap();
    for answer in answers {
        assert_eq!(text(answer.unwrap()).await, "0");
    }
    while let Some(written) = writes.try_join_next() {
        written.unwrap().unwrap();
    }
    assert!(!writes.is_empty(), "a write at the server that hangs may be processed");
}

/// The connections to a server that is ready may lead to another cluster: what came over them
/// waits until it answers. One that hangs is not in use.
#[tokio::test]
async fn the_cluster_is_identified_without_a_server_that_hangs() {
    let namespace = r#"{"metadata":{},"items":[{"metadata":{"uid":"u"}}]}"#;
    let start = |_| {
        TestServer::start(ServerOptions::http1(), move |_| async move { answer(200, namespace) })
    };
    let answering = futures_util::future::join_all((0..2).map(start)).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = listener.local_addr().unwrap();
    let addresses = answering.iter().map(|server| server.address).chain([silent]);
    let static_urls = addresses.map(|address| format!("http://{address}")).collect();
    let endpoints = EndpointsConfig { static_urls, ..EndpointsConfig::default() };
    let config = UpstreamConfig { endpoints, ..config(None, None, true) };
    let upstream = Upstream::new(&config, metrics()).await.unwrap();
    let servers = upstream.endpoints().servers();
    let hung = servers.iter().find(|one| one.endpoint.port == silent.port()).unwrap();

    let mut identified = std::pin::pin!(cluster_uid(&upstream));
    for result in [ProbeResult::Ready, ProbeResult::Failed] {
        let suspected = async {
            tokio::select! {
                uid = &mut identified => panic!("identified before a probe failed: {uid:?}"),
                () = hung.suspected.notified() => hung.probed(result),
            }
        };
        tokio::time::timeout(Duration::from_secs(30), suspected).await.unwrap();
    }
    let uid = tokio::time::timeout(Duration::from_secs(30), identified).await.unwrap();
    assert_eq!(uid.unwrap().as_deref(), Some("u"));
}

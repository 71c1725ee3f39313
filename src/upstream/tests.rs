//! Tests of requests to the upstream, against servers in the test's process.

mod balancer;
mod counted_bytes;
mod identities;
mod placement;
mod refused;
mod replay;
mod several_servers;
mod silent;
mod silent_http1;
mod truncated;
mod waiting;
mod wear;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::testing::{Ca, ServerOptions, TestServer, answer, channel_body, config, metrics};
use super::*;
use crate::testing::eventually;
use crate::upstream::pools::Route;
use crate::upstream::send_options::ResetObserver;

fn get(path: &str) -> Request<RequestBody> {
    Request::get(path).body(empty_body()).unwrap()
}

/// Returns the route to the only API server.
fn route(upstream: &Upstream) -> Arc<Route> {
    upstream.inner.pools.routes().by_server.clone().remove(0)
}

async fn text(response: Response<pool::Body>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

async fn echo(request: Request<hyper::body::Incoming>) -> testing::Answer {
    let head = format!(
        "{:?} {} {} host={:?}",
        request.version(),
        request.method(),
        request.uri(),
        request.headers().get("host").map(|host| host.to_str().unwrap().to_owned()),
    );
    let body = request.into_body().collect().await.unwrap().to_bytes();
    answer(200, format!("{head} {}", String::from_utf8_lossy(&body)))
}

#[tokio::test]
async fn http1_is_reused_once_the_body_was_read() {
    let server = TestServer::start(ServerOptions::http1(), echo).await;
    let upstream = server.upstream(false).await;
    for _ in 0..3 {
        let response =
            upstream.send(TrafficClass::Request, get("/api/v1/pods?x=%2F")).await.unwrap();
        let host = format!("host=Some({:?})", server.address.to_string());
        assert_eq!(text(response).await, format!("HTTP/1.1 GET /api/v1/pods?x=%2F {host} "));
    }
    assert_eq!(server.accepted(), 1);
}

#[tokio::test]
async fn http2_carries_bodies_both_ways() {
    let server = TestServer::start(ServerOptions::http2(), echo).await;
    let upstream = server.upstream(true).await;
    let request = Request::post("/api").body(full_body("hello")).unwrap();
    let response = upstream.send(TrafficClass::Request, request).await.unwrap();
    let head = format!("HTTP/2.0 POST http://{}/api host=None", server.address);
    assert_eq!(text(response).await, format!("{head} hello"));
}

#[tokio::test]
async fn tls_negotiates_the_protocol() {
    for (alpn, http2) in [(vec!["h2", "http/1.1"], true), (vec!["http/1.1"], false)] {
        let ca = Ca::new();
        let tls = Some(ca.server(&["127.0.0.1"], &alpn));
        let server = TestServer::start(ServerOptions { http2, tls, max_streams: 100 }, echo).await;
        let directory = tempfile::tempdir().unwrap();
        let kubeconfig = kubeconfig(directory.path(), &server, &ca, "token: secret");
        let upstream =
            Upstream::new(&config(None, Some(kubeconfig), true), metrics()).await.unwrap();
        for _ in 0..2 {
            let response = upstream.send(TrafficClass::Request, get("/x")).await.unwrap();
            assert_eq!(text(response).await.starts_with("HTTP/2"), http2);
        }
        assert_eq!(server.accepted(), 1, "both requests on one connection");
    }
}

pub(super) fn kubeconfig(
    directory: &std::path::Path,
    server: &TestServer,
    ca: &Ca,
    user: &str,
) -> std::path::PathBuf {
    std::fs::write(directory.join("ca.crt"), &ca.pem).unwrap();
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         contexts: [{{name: c, context: {{cluster: k, user: u, namespace: team}}}}]\n\
         clusters: [{{name: k, cluster: {{server: 'https://{}', certificate-authority: ca.crt}}}}]\n\
         users: [{{name: u, user: {{{user}}}}}]\n",
        server.address
    );
    let path = directory.join("config");
    std::fs::write(&path, text).unwrap();
    path
}

type Senders = Arc<parking_lot::Mutex<Vec<tokio::sync::mpsc::Sender<Bytes>>>>;

/// Starts a server whose response bodies stay open, and returns it with the senders of the bodies.
async fn open_ended(options: ServerOptions) -> (TestServer, Senders) {
    let senders = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let kept = senders.clone();
    let server = TestServer::start(options, move |_| {
        let (sender, body) = channel_body();
        kept.lock().push(sender);
        async move { Response::new(body) }
    })
    .await;
    (server, senders)
}

#[tokio::test]
async fn the_65th_stream_opens_a_second_connection_and_requests_have_their_own() {
    let (server, _senders) = open_ended(ServerOptions::http2()).await;
    let upstream = server.upstream(true).await;
    let mut streams = Vec::new();
    for _ in 0..64 {
        streams.push(upstream.send(TrafficClass::Stream, get("/watch")).await.unwrap());
    }
    assert_eq!(server.accepted(), 1);
    streams.push(upstream.send(TrafficClass::Stream, get("/watch")).await.unwrap());
    assert_eq!(server.accepted(), 2);
    let request = upstream.send(TrafficClass::Request, get("/x")).await.unwrap();
    assert_eq!(server.accepted(), 3);
    // A free stream is used before another connection is opened.
    streams.remove(0);
    streams.push(upstream.send(TrafficClass::Stream, get("/watch")).await.unwrap());
    assert_eq!(server.accepted(), 3);
    drop(request);
}

#[tokio::test]
async fn a_peer_that_allows_few_streams_gets_more_connections() {
    let options = ServerOptions { max_streams: 10, ..ServerOptions::http2() };
    let (server, _senders) = open_ended(options).await;
    let upstream = server.upstream(true).await;
    let sends = (0..35).map(|_| upstream.send(TrafficClass::Request, get("/x")));
    let responses = futures_util::future::try_join_all(sends).await.unwrap();
    assert_eq!((responses.len(), server.accepted()), (35, 4));
}

#[tokio::test]
async fn cancelled_bodies_never_cost_other_streams() {
    let (server, senders) = open_ended(ServerOptions::http2()).await;
    let upstream = server.upstream(true).await;
    let kept = upstream.send(TrafficClass::Stream, get("/watch")).await.unwrap();
    for _ in 0..3000 {
        drop(upstream.send(TrafficClass::Stream, get("/watch")).await.unwrap());
    }
    // Three thousand resets are spread over connections: a worn one is spared.
    assert!((3..=5).contains(&server.accepted()), "{}", server.accepted());
    // The first connection still carries its stream.
    let mut body = kept.into_body();
    let sender = senders.lock()[0].clone();
    sender.send("still here".into()).await.unwrap();
    let frame = body.frame().await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), "still here");
}

#[tokio::test]
async fn a_short_unread_body_is_drained_without_a_reset() {
    let server = TestServer::start(ServerOptions::http2(), |_| async {
        answer(200, Bytes::from(vec![0; 100_000]))
    })
    .await;
    let upstream = server.upstream(true).await;
    for _ in 0..5 {
        for _ in 0..50 {
            drop(upstream.send(TrafficClass::Request, get("/x")).await.unwrap());
        }
        eventually("all are drained", || route(&upstream).pool.resets_and_in_use().1 == 0).await;
    }
    assert_eq!((route(&upstream).pool.resets_and_in_use().0, server.accepted()), (0, 1));

    let server = TestServer::start(ServerOptions::http1(), |_| async {
        answer(200, Bytes::from(vec![0; 100_000]))
    })
    .await;
    let upstream = server.upstream(false).await;
    drop(upstream.send(TrafficClass::Request, get("/x")).await.unwrap());
    // The connection is reused when the rest of the body was read. Until then, another is opened.
    let mut reused = false;
    for _ in 0..50 {
        let before = server.accepted();
        let response = upstream.send(TrafficClass::Request, get("/x")).await.unwrap();
        response.into_body().collect().await.unwrap();
        reused |= server.accepted() == before;
    }
    assert!(reused);
}

/// Starts a server without hyper: it reads a request head, writes `answer`, then echoes all bytes.
async fn raw_server(
    answer: &'static str,
) -> (std::net::SocketAddr, Arc<parking_lot::Mutex<String>>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let head = Arc::new(parking_lot::Mutex::new(String::new()));
    let seen = head.clone();
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            let mut bytes = Vec::new();
            while !bytes.ends_with(b"\r\n\r\n") {
                let Ok(byte) = tcp.read_u8().await else { break };
                bytes.push(byte);
            }
            *seen.lock() = String::from_utf8(bytes).unwrap();
            tcp.write_all(answer.as_bytes()).await.unwrap();
            let (mut read, mut write) = tcp.split();
            drop(tokio::io::copy(&mut read, &mut write).await);
        }
    });
    (address, head)
}

fn upgrade() -> Request<RequestBody> {
    Request::post("/exec?command=sh&command=-c")
        .header("connection", "Upgrade")
        .header("upgrade", "SPDY/3.1")
        .header("x-stream-protocol-version", "v4.channel.k8s.io")
        .header("x-stream-protocol-version", "channel.k8s.io")
        .body(empty_body())
        .unwrap()
}

#[tokio::test]
async fn an_upgrade_keeps_the_bytes_after_its_response() {
    let (address, head) = raw_server(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\nhi ",
    )
    .await;
    let config = config(Some(format!("http://{address}")), None, true);
    let upstream = Upstream::new(&config, metrics()).await.unwrap();
    let mut response = upstream.send(TrafficClass::Upgrade, upgrade()).await.unwrap();
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    let upgraded = hyper::upgrade::on(&mut response).await.unwrap();
    drop(response);
    let mut stream = hyper_util::rt::TokioIo::new(upgraded);
    stream.write_all(b"there").await.unwrap();
    let mut echoed = [0; 8];
    stream.read_exact(&mut echoed).await.unwrap();
    assert_eq!(&echoed, b"hi there");
    let head = head.lock().to_lowercase();
    assert!(head.starts_with("post /exec?command=sh&command=-c http/1.1\r\n"), "{head}");
    assert!(head.contains("connection: upgrade\r\nupgrade: spdy/3.1\r\n"), "{head}");
    assert_eq!(head.matches("x-stream-protocol-version").count(), 2);
    assert_eq!(upstream.connections_opened(), 0, "nothing that comes over an upgrade is kept");
}

#[tokio::test]
async fn a_refused_upgrade_is_relayed_and_its_connection_closed() {
    let server = TestServer::start(ServerOptions::http1(), |_| async { answer(403, "no") }).await;
    let upstream = server.upstream(false).await;
    for connections in 1..=2 {
        let response = upstream.send(TrafficClass::Upgrade, upgrade()).await.unwrap();
        assert_eq!(response.status(), StatusCode::FORBIDDEN);
        assert_eq!(text(response).await, "no");
        assert_eq!(server.accepted(), connections);
    }
}

#[tokio::test]
async fn a_request_that_may_have_been_processed_is_not_repeated() {
    for options in [ServerOptions::http1(), ServerOptions::http2()] {
        let http2 = options.http2;
        let seen = Arc::new(AtomicUsize::new(0));
        let count = seen.clone();
        let server = TestServer::start(options, move |_| {
            count.fetch_add(1, Ordering::SeqCst);
            std::future::pending::<testing::Answer>()
        })
        .await;
        let upstream = server.upstream(http2).await;
        let sent = tokio::spawn({
            let upstream = upstream.clone();
            async move { upstream.send(TrafficClass::Request, get("/x")).await.map(drop) }
        });
        eventually("the request arrives", || seen.load(Ordering::SeqCst) == 1).await;
        server.close_connections();
        let error = sent.await.unwrap().unwrap_err();
        assert!(matches!(error, UpstreamError::Lost(_)), "{error}");
        assert!(!error.is_not_sent());
        assert_eq!(seen.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test]
async fn a_connection_that_died_idle_is_replaced() {
    for options in [ServerOptions::http1(), ServerOptions::http2()] {
        let http2 = options.http2;
        let server = TestServer::start(options, echo).await;
        let upstream = server.upstream(http2).await;
        for connections in 1..=3 {
            let response = upstream.send(TrafficClass::Request, get("/x")).await.unwrap();
            text(response).await;
            assert_eq!(server.accepted(), connections);
            server.close_connections();
            eventually("the pool notices the end", || {
                upstream.inner.metrics.open_connections() == 0
            })
            .await;
        }
    }
}

#[tokio::test]
async fn an_unreachable_upstream_is_an_error_of_its_own() {
    let (_socket, address) = testing::refusing_address();
    for http2 in [false, true] {
        let config = config(Some(format!("http://{address}")), None, http2);
        let upstream = Upstream::new(&config, metrics()).await.unwrap();
        let error = upstream.send(TrafficClass::Request, get("/x")).await.unwrap_err();
        assert!(error.is_not_sent());
        let text = error.to_string();
        assert!(text.contains(&address.to_string()) && text.contains("refused"), "{text}");
    }
}

#[tokio::test]
async fn http1_instead_of_http2_without_tls_is_a_clear_error() {
    let server = TestServer::start(ServerOptions::http1(), echo).await;
    let upstream = server.upstream(true).await;
    let error = upstream.send(TrafficClass::Request, get("/x")).await.unwrap_err();
    assert!(error.is_not_sent());
    assert!(error.to_string().contains("upstream.http2"), "{error}");
}

#[tokio::test]
async fn tls_errors_name_what_to_check() {
    let ca = Ca::new();
    for (names, trusted, hint) in [
        (["127.0.0.1"], Ca::new(), "certificate-authority"),
        (["other.example"], ca, "tls-server-name"),
    ] {
        let signer = if hint == "tls-server-name" { &trusted } else { &Ca::new() };
        let tls = Some(signer.server(&names, &["h2"]));
        let options = ServerOptions { tls, ..ServerOptions::http2() };
        let server = TestServer::start(options, echo).await;
        let directory = tempfile::tempdir().unwrap();
        let path = kubeconfig(directory.path(), &server, &trusted, "token: secret");
        let upstream = Upstream::new(&config(None, Some(path), true), metrics()).await.unwrap();
        let error = upstream.send(TrafficClass::Request, get("/x")).await.unwrap_err().to_string();
        assert!(error.contains(hint) && !error.contains("secret"), "{error}");
    }
}

//! A graceful shutdown: unready first, no new connection, watches end cleanly, connections get
//! GOAWAY, all within the deadline.

use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::time::Instant;
use weir::simulator::{Simulator, SimulatorOptions};

use crate::client::{Call, Next, send};
use crate::harness::{Proxy, seed};
use crate::wait::eventually;

/// Long enough for a busy machine.
const DEADLINE: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_ends_watches_cleanly_and_everything_by_the_deadline() {
    let mut proxy = before_deadline().await;
    proxy.warm("/api/v1/pods").await;
    let mut watches = Vec::new();
    for _ in 0..20 {
        let mut watch = proxy.watch("/api/v1/pods?watch=1&resourceVersion=0").await;
        for _ in 0..9 {
            assert!(matches!(watch.next().await, Next::Frame(_)));
        }
        watches.push(watch);
    }
    // This request never ends by itself, and so delays the drain until the deadline.
    let log = Call::get("/api/v1/namespaces/ns1/pods/pod-0/log?follow=true");
    let log = send(proxy.plain(), &log).await;

    let (plain, admin) = (proxy.plain(), proxy.admin_address());
    let begun = Instant::now();
    proxy.stop.cancel();
    eventually("readyz fails", async || proxy.admin("/readyz").await.status == 500).await;
    assert!(proxy.admin("/readyz?verbose").await.text().contains("[-]shutdown"));
    assert_eq!(proxy.admin("/livez").await.status, 200, "but weir lives");
    eventually("nobody new comes in", async || TcpStream::connect(plain).await.is_err()).await;
    for watch in &mut watches {
        assert_eq!(watch.next().await, Next::End, "a clean end");
    }
    assert!(begun.elapsed() < DEADLINE, "watches end long before the deadline");
    proxy.stop().await;
    let took = begun.elapsed();
    assert!(took >= DEADLINE && took < DEADLINE * 3, "{took:?}");
    assert!(log.into_body().collect().await.is_err(), "cut at the deadline, not ended");
    assert!(TcpStream::connect(admin).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http2_connections_receive_goaway_at_shutdown() {
    let mut proxy = before_deadline().await;
    proxy.warm("/api/v1/pods").await;
    let stream = TcpStream::connect(proxy.plain()).await.unwrap();
    let handshake =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.unwrap();
    let connection = tokio::spawn(connection);
    let request = |path: &str| {
        http::Request::get(format!("http://localhost{path}"))
            .body(Empty::<bytes::Bytes>::new())
            .unwrap()
    };
    let answer = sender.send_request(request("/api/v1/pods?watch=1&resourceVersion=0")).await;
    let mut body = answer.unwrap().into_body();
    assert!(body.frame().await.unwrap().is_ok());
    let begun = Instant::now();
    proxy.stop.cancel();
    while let Some(frame) = body.frame().await {
        frame.expect("END_STREAM, not a reset");
    }
    connection.await.unwrap().expect("GOAWAY, not a broken connection");
    assert!(sender.send_request(request("/version")).await.is_err());
    proxy.stop().await;
    assert!(begun.elapsed() < DEADLINE, "nothing was left to wait for");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_in_progress_is_finished_at_shutdown() {
    let mut proxy = before_deadline().await;
    let slow = weir::simulator::Action::Delay(Duration::from_millis(500));
    proxy.upstream.faults().add("get", "pods", 1, slow);
    let plain = proxy.plain();
    let call = Call::get("/api/v1/namespaces/ns1/pods/pod-0");
    let answer = tokio::spawn(async move { crate::client::fetch(plain, &call).await });
    eventually("it is under way", async || proxy.upstream.requests().count("get", "pods") == 1)
        .await;
    proxy.stop().await;
    let answer = answer.await.unwrap();
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["metadata"]["name"], "pod-0");
}

async fn before_deadline() -> Proxy {
    let upstream = Simulator::start(SimulatorOptions::default()).await.unwrap();
    seed(&upstream);
    Proxy::before(upstream, "", |config| config.server.shutdown_timeout = DEADLINE).await
}

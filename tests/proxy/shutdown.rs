//! A graceful shutdown: unready first, then no new connection, watches end cleanly after a last
//! bookmark, connections get GOAWAY, all within the deadline.

use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::time::Instant;
use weir::simulator::{Simulator, SimulatorOptions};

use crate::client::{Call, Next, send};
use crate::harness::{Proxy, configmap, pod, seed};
use crate::wait::eventually;

/// Long enough for a busy machine.
const DEADLINE: Duration = Duration::from_secs(5);
/// Long enough for a few requests on a busy machine.
const DELAY: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_ends_watches_cleanly_and_everything_by_the_deadline() {
    let mut proxy = before_deadline().await;
    proxy.warm("/api/v1/pods").await;
    let mut watches = Vec::new();
    for _ in 0..4 {
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
    proxy.stop().await;
    let took = begun.elapsed();
    assert!(took >= DEADLINE && took < DEADLINE * 3, "{took:?}");
    assert!(log.into_body().collect().await.is_err(), "cut at the deadline, not ended");
    assert!(TcpStream::connect(admin).await.is_err());
}

/// Endpoints still name a Weir that has got SIGTERM, and load balancers send it connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_still_come_in_until_the_delay_has_passed() {
    let upstream = Simulator::start(SimulatorOptions::default()).await.unwrap();
    seed(&upstream);
    let mut proxy = Proxy::before(upstream, "", |config| {
        config.server.shutdown_delay = DELAY;
        config.server.shutdown_timeout = DEADLINE;
    })
    .await;
    proxy.warm("/api/v1/pods").await;
    proxy.stop.cancel();
    eventually("readyz fails", async || proxy.admin("/readyz").await.status == 500).await;
    let mut watch = proxy.watch("/api/v1/pods?watch=1&resourceVersion=0").await;
    for _ in 0..9 {
        assert!(matches!(watch.next().await, Next::Frame(_)));
    }
    proxy.upstream.store().create(pod("ns1", "new", "node-0")).unwrap();
    assert!(matches!(watch.next().await, Next::Frame(_)), "events go on");
    assert_eq!(proxy.get("/api/v1/pods?resourceVersion=0").await.status, 200);
    let plain = proxy.plain();
    eventually("nobody new comes in", async || TcpStream::connect(plain).await.is_err()).await;
    assert_eq!(watch.next().await, Next::End, "a clean end");
    proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_do_not_all_end_at_once() {
    let upstream = Simulator::start(SimulatorOptions::default()).await.unwrap();
    seed(&upstream);
    let mut proxy = Proxy::before(upstream, "", |config| {
        config.server.shutdown_timeout = DEADLINE;
    })
    .await;
    proxy.warm("/api/v1/pods").await;
    let mut watches = Vec::new();
    for _ in 0..2 {
        let mut watch = proxy.watch("/api/v1/pods?watch=1&resourceVersion=0").await;
        for _ in 0..9 {
            assert!(matches!(watch.next().await, Next::Frame(_)));
        }
        watches.push(watch);
    }
    let begun = Instant::now();
    proxy.stop.cancel();
    let [one, other] = &mut watches[..] else { panic!("two") };
    let (ended, open) = tokio::select! {
        ended = one.next() => (ended, other),
        ended = other.next() => (ended, one),
    };
    assert_eq!(ended, Next::End);
    proxy.upstream.store().create(pod("ns1", "late", "node-0")).unwrap();
    assert!(matches!(open.next().await, Next::Frame(_)), "it is served until its own end");
    assert_eq!(open.next().await, Next::End);
    let served = begun.elapsed();
    assert!(served >= DEADLINE * 2 / 5, "only a part of the deadline was used: {served:?}");
    proxy.stop().await;
}

/// Without it, a watch whose selector matches nothing resumes a minute back, or lists again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_filtered_watch_resumes_from_a_last_bookmark() {
    let mut proxy = before_deadline().await;
    proxy.warm("/api/v1/configmaps").await;
    let from = proxy.upstream.store().revision();
    let path = format!(
        "/api/v1/configmaps?watch=1&allowWatchBookmarks=true&labelSelector=none&resourceVersion={from}"
    );
    let mut watch = proxy.watch(&path).await;
    for number in 0..3 {
        let one = configmap("ns1", &format!("new-{number}"), 0);
        proxy.upstream.store().create(one).unwrap();
    }
    let last = proxy.upstream.store().revision();
    proxy.catch_up("/api/v1/configmaps").await;
    proxy.stop.cancel();
    let frame = watch.event().await;
    assert_eq!(frame["type"], "BOOKMARK");
    let at: u64 = frame["object"]["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    assert!(at >= last, "{at}, {last}");
    assert_eq!(watch.next().await, Next::End);
    proxy.stop().await;
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

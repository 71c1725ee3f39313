//! Tests of the HTTP/1.1 connections for GETs.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use http::Version;

use super::*;

pub(super) async fn upstream_of(server: &TestServer, ca: &Ca) -> Upstream {
    let directory = tempfile::tempdir().unwrap();
    let path = kubeconfig(directory.path(), server, ca, "token: secret");
    Upstream::new(&config(None, Some(path), true), metrics()).await.unwrap()
}

pub(super) fn server_options(ca: &Ca, alpn: &[&str]) -> ServerOptions {
    ServerOptions { tls: Some(ca.server(&["127.0.0.1"], alpn)), ..ServerOptions::http2() }
}

async fn read(upstream: &Upstream) -> Response<pool::Body> {
    upstream.send(TrafficClass::Read, get("/x")).await.unwrap()
}

/// Sends GETs until one uses HTTP/1.1.
async fn warm_up(upstream: &Upstream) {
    for _ in 0..5_000 {
        if text(read(upstream).await).await.starts_with("HTTP/1.1") {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    panic!("no GET used HTTP/1.1 within 5 s");
}

#[tokio::test]
async fn only_gets_use_an_idle_http1_connection() {
    let ca = Ca::new();
    let server = TestServer::start(server_options(&ca, &["h2", "http/1.1"]), echo).await;
    let upstream = upstream_of(&server, &ca).await;
    assert!(
        text(read(&upstream).await).await.starts_with("HTTP/2"),
        "the first GET does not wait for HTTP/1.1"
    );
    warm_up(&upstream).await;
    assert_eq!(server.accepted(), 2);
    let host = format!("host=Some({:?})", server.address.to_string());
    eventually("the HTTP/1.1 connection is idle", || {
        route(&upstream).pool.has_idle_read_connection()
    })
    .await;
    let held = read(&upstream).await;
    assert!(
        text(read(&upstream).await).await.starts_with("HTTP/2"),
        "the HTTP/1.1 connection is in use"
    );
    assert_eq!(text(held).await, format!("HTTP/1.1 GET /x {host} "));
    for method in ["POST", "HEAD", "DELETE"] {
        eventually("the HTTP/1.1 connection is idle", || {
            route(&upstream).pool.has_idle_read_connection()
        })
        .await;
        let request = Request::builder().method(method).uri("/x").body(empty_body()).unwrap();
        let response = upstream.send(TrafficClass::Read, request).await.unwrap();
        assert_eq!(response.version(), Version::HTTP_2, "{method}");
    }
    eventually("the HTTP/1.1 connection is idle", || {
        route(&upstream).pool.has_idle_read_connection()
    })
    .await;
    let response = upstream.send(TrafficClass::Request, get("/x")).await.unwrap();
    assert_eq!(response.version(), Version::HTTP_2, "another class of traffic");
    let request = Request::get("/x").body(full_body("hello")).unwrap();
    let response = upstream.send(TrafficClass::Read, request).await.unwrap();
    assert_eq!(response.version(), Version::HTTP_2, "a GET with a body");
}

#[tokio::test]
async fn a_get_that_is_lost_is_sent_again_over_http2() {
    let ca = Ca::new();
    let (breaks, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (broken, count) = (Arc::clone(&breaks), Arc::clone(&asked));
    let server = TestServer::start(server_options(&ca, &["h2", "http/1.1"]), move |request| {
        count.fetch_add(1, Ordering::Relaxed);
        let breaks = broken.load(Ordering::Relaxed) && request.version() == Version::HTTP_11;
        async move {
            // A panic closes the connection.
            assert!(!breaks, "a test error");
            echo(request).await
        }
    })
    .await;
    let upstream = upstream_of(&server, &ca).await;
    warm_up(&upstream).await;
    eventually("the HTTP/1.1 connection is idle", || {
        route(&upstream).pool.has_idle_read_connection()
    })
    .await;
    breaks.store(true, Ordering::Relaxed);
    let before = asked.load(Ordering::Relaxed);
    assert!(text(read(&upstream).await).await.starts_with("HTTP/2"));
    assert_eq!(asked.load(Ordering::Relaxed) - before, 2);
}

#[tokio::test]
async fn a_get_with_a_large_response_head_is_sent_again_over_http2() {
    let ca = Ca::new();
    let large = Arc::new(AtomicBool::new(false));
    let is_large = Arc::clone(&large);
    let server = TestServer::start(server_options(&ca, &["h2", "http/1.1"]), move |request| {
        let large = is_large.load(Ordering::Relaxed);
        async move {
            let mut answer = echo(request).await;
            for _ in 0..if large { 10 } else { 0 } {
                let value = http::HeaderValue::try_from("x".repeat(10_000)).unwrap();
                answer.headers_mut().append("x-large", value);
            }
            answer
        }
    })
    .await;
    let upstream = upstream_of(&server, &ca).await;
    warm_up(&upstream).await;
    eventually("the HTTP/1.1 connection is idle", || {
        route(&upstream).pool.has_idle_read_connection()
    })
    .await;
    large.store(true, Ordering::Relaxed);
    let answer = read(&upstream).await;
    assert_eq!(answer.headers().get_all("x-large").iter().count(), 10);
    assert_eq!(answer.version(), Version::HTTP_2);
}

#[tokio::test]
async fn a_large_body_is_received_whole_over_http1() {
    let ca = Ca::new();
    let (chunks, given) = (64_u8, 10_000);
    let server =
        TestServer::start(server_options(&ca, &["h2", "http/1.1"]), move |request| async move {
            if request.uri() != "/large" {
                return echo(request).await;
            }
            let (sender, body) = channel_body();
            tokio::spawn(async move {
                for number in 0..chunks {
                    sender.send(vec![number; given].into()).await.unwrap();
                }
            });
            testing::Answer::new(body)
        })
        .await;
    let upstream = upstream_of(&server, &ca).await;
    warm_up(&upstream).await;
    eventually("the HTTP/1.1 connection is idle", || {
        route(&upstream).pool.has_idle_read_connection()
    })
    .await;
    let answer = upstream.send(TrafficClass::Read, get("/large")).await.unwrap();
    assert_eq!(answer.version(), Version::HTTP_11);
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let expected: Vec<_> = (0..chunks).flat_map(|number| vec![number; given]).collect();
    assert!(body == expected);
    eventually("the HTTP/1.1 connection is idle", || {
        route(&upstream).pool.has_idle_read_connection()
    })
    .await;
    assert_eq!(server.accepted(), 2);
}

#[tokio::test]
async fn a_list_of_a_collection_has_its_own_connection() {
    let ca = Ca::new();
    let server = TestServer::start(server_options(&ca, &["h2", "http/1.1"]), echo).await;
    let upstream = upstream_of(&server, &ca).await;
    assert!(text(read(&upstream).await).await.starts_with("HTTP/2"));
    for connections in 2..5 {
        let answer = upstream.send(TrafficClass::List, get("/x")).await.unwrap();
        assert!(text(answer).await.starts_with("HTTP/1.1"));
        assert_eq!(server.accepted(), connections);
    }
}

#[tokio::test]
async fn the_number_of_http1_connections_is_limited() {
    let ca = Ca::new();
    let (server, _senders) = open_ended(server_options(&ca, &["h2", "http/1.1"])).await;
    let upstream = upstream_of(&server, &ca).await;
    let mut held = Vec::new();
    for _ in 0..5_000 {
        held.push(read(&upstream).await);
        let http1 = held.iter().filter(|answer| answer.version() == Version::HTTP_11).count();
        if http1 == 8 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    for _ in 0..50 {
        let answer = read(&upstream).await;
        assert_eq!(answer.version(), Version::HTTP_2);
        held.push(answer);
    }
    // Each HTTP/2 connection carries 90 requests.
    let http2 = (held.len() - 8).div_ceil(90);
    assert_eq!(server.accepted(), 8 + http2, "{} requests", held.len());
}

#[tokio::test]
async fn a_failed_dial_is_not_repeated_at_once() {
    let ca = Ca::new();
    let server = TestServer::start(server_options(&ca, &["h2"]), echo).await;
    let upstream = upstream_of(&server, &ca).await;
    for _ in 0..3 {
        assert!(text(read(&upstream).await).await.starts_with("HTTP/2"));
    }
    eventually("HTTP/1.1 was tried", || server.accepted() == 2).await;
    for _ in 0..200 {
        assert!(text(read(&upstream).await).await.starts_with("HTTP/2"));
    }
    assert_eq!(server.accepted(), 2);
}

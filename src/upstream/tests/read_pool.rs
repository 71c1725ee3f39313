//! GETs over HTTP/1.1 beside HTTP/2.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use http::Version;

use super::*;

async fn upstream_of(server: &TestServer, ca: &Ca) -> Upstream {
    let directory = tempfile::tempdir().unwrap();
    let path = kubeconfig(directory.path(), server, ca, "token: secret");
    Upstream::new(&config(None, Some(path), true), metrics()).await.unwrap()
}

fn speaks(ca: &Ca, alpn: &[&str]) -> Speaks {
    Speaks { tls: Some(ca.server(&["127.0.0.1"], alpn)), ..Speaks::http2() }
}

async fn ask(upstream: &Upstream) -> Response<pool::Body> {
    upstream.send(TrafficClass::Read, get("/x")).await.unwrap()
}

/// Asks until an answer comes over HTTP/1.1.
async fn warm_up(upstream: &Upstream) {
    for _ in 0..5_000 {
        if text(ask(upstream).await).await.starts_with("HTTP/1.1") {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    panic!("no GET ever goes over HTTP/1.1");
}

#[tokio::test]
async fn gets_that_find_an_idle_connection_go_over_http1_and_all_else_over_http2() {
    let ca = Ca::new();
    let server = TestServer::start(speaks(&ca, &["h2", "http/1.1"]), echo).await;
    let upstream = upstream_of(&server, &ca).await;
    assert!(text(ask(&upstream).await).await.starts_with("HTTP/2"), "the first waits for none");
    warm_up(&upstream).await;
    assert_eq!(server.accepted(), 2);
    let host = format!("host=Some({:?})", server.address.to_string());
    eventually("it is idle again", || upstream.inner.pool.has_idle_read_connection()).await;
    let held = ask(&upstream).await;
    assert!(text(ask(&upstream).await).await.starts_with("HTTP/2"), "the only one is in use");
    assert_eq!(text(held).await, format!("HTTP/1.1 GET /x {host} "));
    for method in ["POST", "HEAD", "DELETE"] {
        eventually("it is idle again", || upstream.inner.pool.has_idle_read_connection()).await;
        let request = Request::builder().method(method).uri("/x").body(empty_body()).unwrap();
        let response = upstream.send(TrafficClass::Read, request).await.unwrap();
        assert_eq!(response.version(), Version::HTTP_2, "{method}");
    }
    eventually("it is idle again", || upstream.inner.pool.has_idle_read_connection()).await;
    let response = upstream.send(TrafficClass::Request, get("/x")).await.unwrap();
    assert_eq!(response.version(), Version::HTTP_2, "who knows what it does");
    let request = Request::get("/x").body(full_body("hello")).unwrap();
    let response = upstream.send(TrafficClass::Read, request).await.unwrap();
    assert_eq!(response.version(), Version::HTTP_2, "with a body");
}

#[tokio::test]
async fn a_get_that_is_lost_there_is_sent_again_over_http2() {
    let ca = Ca::new();
    let (breaks, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (broken, count) = (Arc::clone(&breaks), Arc::clone(&asked));
    let server = TestServer::start(speaks(&ca, &["h2", "http/1.1"]), move |request| {
        count.fetch_add(1, Ordering::Relaxed);
        let breaks = broken.load(Ordering::Relaxed) && request.version() == Version::HTTP_11;
        async move {
            // Its connection goes with it.
            assert!(!breaks, "of a test");
            echo(request).await
        }
    })
    .await;
    let upstream = upstream_of(&server, &ca).await;
    warm_up(&upstream).await;
    eventually("it is idle again", || upstream.inner.pool.has_idle_read_connection()).await;
    breaks.store(true, Ordering::Relaxed);
    let before = asked.load(Ordering::Relaxed);
    assert!(text(ask(&upstream).await).await.starts_with("HTTP/2"));
    assert_eq!(asked.load(Ordering::Relaxed) - before, 2);
}

#[tokio::test]
async fn an_answer_too_large_of_head_for_it_is_asked_for_again_over_http2() {
    let ca = Ca::new();
    let large = Arc::new(AtomicBool::new(false));
    let is_large = Arc::clone(&large);
    let server = TestServer::start(speaks(&ca, &["h2", "http/1.1"]), move |request| {
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
    eventually("it is idle again", || upstream.inner.pool.has_idle_read_connection()).await;
    large.store(true, Ordering::Relaxed);
    let answer = ask(&upstream).await;
    assert_eq!(answer.headers().get_all("x-large").iter().count(), 10);
    assert_eq!(answer.version(), Version::HTTP_2);
}

#[tokio::test]
async fn what_is_not_small_comes_whole_there_too() {
    let ca = Ca::new();
    let (chunks, given) = (64_u8, 10_000);
    let server = TestServer::start(speaks(&ca, &["h2", "http/1.1"]), move |request| async move {
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
    eventually("it is idle again", || upstream.inner.pool.has_idle_read_connection()).await;
    let answer = upstream.send(TrafficClass::Read, get("/large")).await.unwrap();
    assert_eq!(answer.version(), Version::HTTP_11);
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let expected: Vec<_> = (0..chunks).flat_map(|number| vec![number; given]).collect();
    assert!(body == expected);
    eventually("it is idle again", || upstream.inner.pool.has_idle_read_connection()).await;
    assert_eq!(server.accepted(), 2);
}

#[tokio::test]
async fn a_whole_list_has_a_connection_of_its_own() {
    let ca = Ca::new();
    let server = TestServer::start(speaks(&ca, &["h2", "http/1.1"]), echo).await;
    let upstream = upstream_of(&server, &ca).await;
    assert!(text(ask(&upstream).await).await.starts_with("HTTP/2"));
    for connections in 2..5 {
        let answer = upstream.send(TrafficClass::List, get("/x")).await.unwrap();
        assert!(text(answer).await.starts_with("HTTP/1.1"));
        assert_eq!(server.accepted(), connections);
    }
}

#[tokio::test]
async fn there_are_few_of_them() {
    let ca = Ca::new();
    let (server, _senders) = open_ended(speaks(&ca, &["h2", "http/1.1"])).await;
    let upstream = upstream_of(&server, &ca).await;
    let mut held = Vec::new();
    for _ in 0..5_000 {
        held.push(ask(&upstream).await);
        let http1 = held.iter().filter(|answer| answer.version() == Version::HTTP_11).count();
        if http1 == 8 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    for _ in 0..50 {
        let answer = ask(&upstream).await;
        assert_eq!(answer.version(), Version::HTTP_2);
        held.push(answer);
    }
    // Ninety requests on each connection of HTTP/2.
    let http2 = (held.len() - 8).div_ceil(90);
    assert_eq!(server.accepted(), 8 + http2, "{} requests", held.len());
}

#[tokio::test]
async fn an_upstream_without_http1_is_not_asked_for_it_again_and_again() {
    let ca = Ca::new();
    let server = TestServer::start(speaks(&ca, &["h2"]), echo).await;
    let upstream = upstream_of(&server, &ca).await;
    for _ in 0..3 {
        assert!(text(ask(&upstream).await).await.starts_with("HTTP/2"));
    }
    eventually("it was tried", || server.accepted() == 2).await;
    for _ in 0..200 {
        assert!(text(ask(&upstream).await).await.starts_with("HTTP/2"));
    }
    assert_eq!(server.accepted(), 2);
}

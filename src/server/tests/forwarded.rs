//! Requests and responses that are forwarded arrive unchanged.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;

use super::harness::{Settings, Weir, echo, empty, get, http2_on, whole};
use crate::telemetry::logging::recording;
use crate::telemetry::recent_lines::RecentLines;
use crate::testing::eventually;
use crate::upstream::testing::{answer, channel_body};

#[tokio::test]
async fn path_query_headers_and_body_pass_unchanged() {
    let weir = Weir::start(echo).await;
    let path = "/api/v1/namespaces/a/services/x:80/proxy//b/%2F..;c/?q=%zz&&y=1;2&";
    let request = Request::post(path)
        .header("host", "localhost")
        .header("content-type", "application/json")
        .header("x-stream-protocol-version", "v4")
        .header("x-stream-protocol-version", "v3")
        .header("x-forwarded-for", "10.0.0.1")
        .header("connection", "x-hop")
        .header("x-hop", "1")
        .header("te", "trailers")
        .header("authorization", "Bearer secret")
        .header("x-remote-user", "admin")
        .header("impersonate-user", "jane")
        .body(Full::from("a body"))
        .unwrap();
    let got = weir.send(request).await;
    assert_eq!(got.code, 200);
    let address = weir.plain();
    let text = got.text();
    let (via, seen): (Vec<&str>, Vec<&str>) = text
        .lines()
        .filter(|line| !line.starts_with("host: "))
        .partition(|line| line.starts_with("x-weir-via: "));
    assert_eq!(via.len(), 1, "one header is added: {via:?}");
    assert_eq!(
        seen,
        [
            &format!("POST {path}"),
            "content-length: 6",
            "content-type: application/json",
            "impersonate-user: jane",
            "x-forwarded-for: 10.0.0.1, 127.0.0.1",
            "x-stream-protocol-version: v3",
            "x-stream-protocol-version: v4",
            "a body",
        ]
    );
    assert!(!text.contains(address), "the upstream is addressed by its own name");
    assert_eq!(got.header("x-upstream"), "yes");
    assert_eq!(got.header("x-weir-cache"), "forward; reason=write");
}

#[tokio::test]
async fn the_absolute_form_is_forwarded_as_a_path() {
    let weir = Weir::start(echo).await;
    let mut tcp = weir.tcp().await;
    tcp.write_all(
        b"GET http://localhost/version?x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    )
    .await
    .unwrap();
    let mut answer = String::new();
    tcp.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains("GET /version?x\n"), "{answer}");
}

#[tokio::test]
async fn a_slow_request_is_logged_with_its_stages_and_without_names() {
    let lines = RecentLines::default();
    let subscriber =
        tracing_subscriber::registry().with(EnvFilter::new("warn")).with(recording(lines.clone()));
    let _default = tracing::subscriber::set_default(subscriber);
    let settings = Settings { slow_request: Some(Duration::ZERO), ..Settings::default() };
    let weir = Weir::start_with(settings, echo).await;
    let answer = weir.get("/api/v1/namespaces/a-name/services/a-name/status").await;
    assert_eq!(answer.header("server-timing"), "", "the client did not ask");
    let text = lines.text();
    let line = text.lines().find(|line| line.contains("a request was slow")).unwrap();
    assert!(!line.contains("a-name"), "{line}");
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!((&line["verb"], &line["code"]), (&"get".into(), &200.into()), "{line}");
    assert_eq!(line["cache_status"], "forward", "{line}");
    let stages = line["stages"].as_str().unwrap();
    assert!(stages.starts_with("identify;dur=") && stages.contains("upstream;dur="), "{line}");
}

#[tokio::test]
async fn responses_without_a_body_stay_without_one() {
    let weir = Weir::start(|request| async move {
        let mut plain = answer(if request.uri() == "/none" { 204 } else { 200 }, "");
        if request.method() == Method::HEAD {
            plain.headers_mut().insert("content-length", HeaderValue::from_static("1234"));
        }
        if request.uri() == "/same" {
            *plain.status_mut() = http::StatusCode::NOT_MODIFIED;
            plain.headers_mut().insert("etag", HeaderValue::from_static("\"x\""));
        }
        plain
    })
    .await;
    let mut client = weir.http1().await;
    for (method, path, code) in
        [(Method::HEAD, "/head", 200), (Method::GET, "/none", 204), (Method::GET, "/same", 304)]
    {
        let mut request = get(path);
        *request.method_mut() = method.clone();
        let got = whole(client.send_request(request).await.unwrap()).await;
        assert_eq!((got.code, got.body.len()), (code, 0), "{path}");
        assert_eq!(got.header("content-length") == "1234", method == Method::HEAD, "{path}");
        client.ready().await.unwrap();
    }
    let mut client = http2_on(weir.tcp().await).await;
    let head = Request::head("http://localhost/head").body(Full::default()).unwrap();
    let got = whole(client.send_request(head).await.unwrap()).await;
    assert_eq!((got.code, got.header("content-length")), (200, "1234"));
}

#[tokio::test]
async fn bodies_stream_both_ways_at_once() {
    // The upstream echoes each chunk as it arrives.
    let weir = Weir::start(|request| async move {
        Response::new(request.into_body().map_err(|error| panic!("{error}")).boxed_unsync())
    })
    .await;
    let mut tcp = weir.tcp().await;
    tcp.write_all(b"POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        .await
        .unwrap();
    let mut seen = Vec::new();
    for chunk in ["first", "later"] {
        tcp.write_all(format!("5\r\n{chunk}\r\n").as_bytes()).await.unwrap();
        while !String::from_utf8_lossy(&seen).contains(chunk) {
            assert_ne!(tcp.read_buf(&mut seen).await.unwrap(), 0, "closed before {chunk}");
        }
    }
}

#[tokio::test]
async fn a_length_beside_chunks_is_not_passed_on() {
    let weir = Weir::start(echo).await;
    let mut tcp = weir.tcp().await;
    tcp.write_all(b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
        .await
        .unwrap();
    let mut answer = String::new();
    tcp.read_to_string(&mut answer).await.unwrap();
    let forwarded = answer.contains("transfer-encoding: chunked\n") && answer.contains("\nhello");
    assert!(answer.starts_with("HTTP/1.1 400") || forwarded, "{answer}");
    assert!(!answer.contains("content-length: 3"), "{answer}");
}

#[tokio::test]
async fn an_unreachable_upstream_is_a_503() {
    let weir = Weir::before(Settings::default(), "http://127.0.0.1:1".to_owned(), None).await;
    let got = weir.get("/version").await;
    assert_eq!(got.code, 503);
    assert!((1..=5).contains(&got.header("retry-after").parse::<u32>().unwrap()));
    assert_eq!(got.header("content-type"), "application/json");
    assert!(got.text().starts_with(r#"{"kind":"Status","apiVersion":"v1""#), "{}", got.text());
    assert!(got.text().ends_with("}\n"));
    assert!(!got.header("audit-id").is_empty());
    assert!(weir.scrape().contains(r#"cache_status="error",code="503""#));
}

#[tokio::test]
async fn a_lost_upstream_connection_is_a_502() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let requests = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let seen = Arc::clone(&requests);
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            let mut buffer = [0; 4096];
            if tcp.read(&mut buffer).await.is_ok_and(|read| read > 0) {
                seen.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    let weir = Weir::before(Settings::default(), address, None).await;
    let request = Request::post("/x").header("host", "localhost").body(Full::from("once")).unwrap();
    let got = weir.send(request).await;
    assert_eq!(got.code, 502, "{}", got.text());
    assert_eq!(
        requests.load(Ordering::SeqCst),
        1,
        "a request that may have been executed is not repeated"
    );
}

#[tokio::test]
async fn a_client_that_disconnects_ends_the_upstream_stream() {
    let gone = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&gone);
    let weir = Weir::start(move |_| {
        let (sender, body) = channel_body();
        let seen = Arc::clone(&seen);
        tokio::spawn(async move {
            sender.send(Bytes::from_static(b"log line\n")).await.unwrap();
            sender.closed().await;
            seen.store(true, Ordering::SeqCst);
        });
        async move { Response::new(body) }
    })
    .await;
    let mut client = weir.http1().await;
    let path = "/api/v1/namespaces/a/pods/p/log?follow=true";
    let mut response = client.send_request(get(path)).await.unwrap();
    response.body_mut().frame().await.unwrap().unwrap();
    drop((response, client));
    eventually("the upstream sees the client leave", || gone.load(Ordering::SeqCst)).await;
}

#[tokio::test]
async fn connect_is_refused() {
    let weir = Weir::start(|_| async { Response::new(empty()) }).await;
    let mut tcp = weir.tcp().await;
    tcp.write_all(
        b"CONNECT localhost:443 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    )
    .await
    .unwrap();
    let mut answer = String::new();
    tcp.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 405"), "{answer}");
}

#[tokio::test]
async fn connection_must_not_name_an_identity() {
    let weir = Weir::start(echo).await;
    let mut request = get("/version");
    request.headers_mut().insert("connection", HeaderValue::from_static("impersonate-user"));
    request.headers_mut().insert("impersonate-user", HeaderValue::from_static("jane"));
    assert_eq!(weir.send(request).await.code, 400);
}

type Ready = futures_util::future::BoxFuture<'static, crate::upstream::testing::Answer>;
type Seen = Arc<parking_lot::Mutex<Vec<bool>>>;

/// Returns the bodies that an upstream received, each with whether it ended, and the handler that
/// records them.
fn bodies() -> (Seen, impl Fn(Request<hyper::body::Incoming>) -> Ready) {
    let seen = Seen::default();
    let kept = Arc::clone(&seen);
    let handler = move |request: Request<hyper::body::Incoming>| {
        let kept = Arc::clone(&kept);
        let answered: Ready = Box::pin(async move {
            let whole = request.into_body().collect().await.is_ok();
            kept.lock().push(whole);
            answer(200, "")
        });
        answered
    };
    (seen, handler)
}

#[tokio::test]
async fn a_partial_upload_never_looks_whole() {
    for reason in [h2::Reason::NO_ERROR, h2::Reason::CANCEL] {
        let (seen, handler) = bodies();
        let weir = Weir::start(handler).await;
        let (sender, connection) = h2::client::handshake(weir.tcp().await).await.unwrap();
        tokio::spawn(connection);
        let mut sender = sender.ready().await.unwrap();
        let request = Request::post("http://localhost/api/v1/namespaces").body(()).unwrap();
        let (_answer, mut body) = sender.send_request(request, false).unwrap();
        body.send_data(Bytes::from_static(b"{\"kind\":"), false).unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        body.send_reset(reason);
        eventually("the upstream gets the request", || !seen.lock().is_empty()).await;
        assert_eq!(*seen.lock(), [false], "{reason:?}");
    }
}

#[tokio::test]
async fn a_body_that_cannot_be_read_is_a_client_error() {
    for http2 in [false, true] {
        let (seen, handler) = bodies();
        let weir = Weir::start_with(Settings { http2, ..Settings::default() }, handler).await;
        let mut tcp = weir.tcp().await;
        tcp.write_all(
            b"POST /api HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n",
        )
        .await
        .unwrap();
        let mut answer = String::new();
        tcp.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 "), "http2: {http2}: {answer}");
        assert!(!seen.lock().contains(&true));
    }
}

//! Every protocol on every listener, and misbehaving clients.

use std::time::Duration;

use http::{Request, Version};
use http_body_util::Full;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use super::harness::{SOON, Settings, Weir, echo, get, http1_on, http2_on, whole};
use crate::server::ListenerKind;

pub(super) fn tls(weir: &Weir, alpn: &[&str]) -> tokio_rustls::TlsConnector {
    let ca = weir.listeners[1].ca_pem.as_ref().unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap()).unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    std::sync::Arc::new(config).into()
}

#[tokio::test]
async fn both_protocols_on_every_listener() {
    let weir = Weir::start(echo).await;
    let kinds: Vec<_> = weir.listeners.iter().map(|listener| listener.kind).collect();
    assert_eq!(kinds, [ListenerKind::Plain, ListenerKind::Tls, ListenerKind::Unix]);
    let absolute = || Request::get("http://localhost/version").body(Full::default()).unwrap();

    let got = whole(weir.http1().await.send_request(get("/version")).await.unwrap()).await;
    assert_eq!(got.code, 200);
    let response = http2_on(weir.tcp().await).await.send_request(absolute()).await.unwrap();
    assert_eq!((response.status().as_u16(), response.version()), (200, Version::HTTP_2));

    for (name, alpn) in [("localhost", "h2"), ("127.0.0.1", "http/1.1"), ("weir.example", "")] {
        let offered = if alpn.is_empty() { vec![] } else { vec![alpn] };
        let tcp = TcpStream::connect(&weir.listeners[1].address).await.unwrap();
        let name = ServerName::try_from(name).unwrap();
        let stream = tls(&weir, &offered).connect(name, tcp).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol().unwrap_or_default(), alpn.as_bytes());
        let response = if alpn == "h2" {
            http2_on(stream).await.send_request(absolute()).await.unwrap()
        } else {
            http1_on(stream).await.send_request(get("/version")).await.unwrap()
        };
        assert_eq!(response.status(), 200);
    }

    // A Unix socket has no origin to protect: any Host is accepted.
    let path = &weir.listeners[2].address;
    let mut request = get("/version");
    request.headers_mut().insert("host", http::HeaderValue::from_static("anything"));
    let unix = UnixStream::connect(path).await.unwrap();
    let got = whole(http1_on(unix).await.send_request(request).await.unwrap()).await;
    assert_eq!(got.code, 200);
    assert!(!got.text().contains("x-forwarded-for"), "a Unix socket has no client address");
    let unix = UnixStream::connect(path).await.unwrap();
    assert_eq!(http2_on(unix).await.send_request(absolute()).await.unwrap().status(), 200);
}

#[tokio::test]
async fn an_unknown_host_is_refused_with_a_hint() {
    let settings = Settings {
        allowed_hosts: vec!["kubernetes.default.svc".to_owned()],
        ..Settings::default()
    };
    let weir = Weir::start_with(settings, echo).await;
    for (host, code) in [
        ("localhost", 200),
        ("weir.example", 200),
        ("Kubernetes.default.svc:443", 200),
        ("evil.example", 403),
    ] {
        let mut request = get("/version");
        request.headers_mut().insert("host", http::HeaderValue::from_static(host));
        let got = weir.send(request).await;
        assert_eq!(got.code, code, "{host}");
        if code == 403 {
            assert!(got.text().contains("server.allowedHosts"), "{}", got.text());
        }
    }
    let mut client = http2_on(weir.tcp().await).await;
    let evil = Request::get("http://evil.example/version").body(Full::default()).unwrap();
    assert_eq!(client.send_request(evil).await.unwrap().status(), 403);
}

async fn raw(weir: &Weir, request: &[u8]) -> String {
    let mut tcp = weir.tcp().await;
    // The server may close the connection before it has read the whole request.
    drop(tcp.write_all(request).await);
    let mut answer = Vec::new();
    drop(timeout(SOON, tcp.read_to_end(&mut answer)).await.expect("the connection stays open"));
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn malformed_requests_are_refused_and_weir_goes_on() {
    let weir = Weir::start(echo).await;
    for (request, code) in [
        (&b"GET /version HTTP/1.1\r\nConnection: close\r\n\r\n"[..], "400"),
        (b"GET /version HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\nConnection: close\r\n\r\n", "400"),
        (b"GET /ver sion HTTP/1.1\r\nHost: localhost\r\n\r\n", "400"),
        (b"\x16\x03\x01\x02\x00 a TLS hello on the plain port", "400"),
        (b"GET /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1, 2\r\n\r\n", "400"),
    ] {
        let answer = raw(&weir, request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {code}")), "{answer}");
    }
    assert_eq!(weir.get("/version").await.code, 200);
}

#[tokio::test]
async fn headers_up_to_a_mebibyte_pass_and_larger_ones_are_a_431() {
    let weir = Weir::start(|_| async { crate::upstream::testing::answer(200, "") }).await;
    let with = |bytes: usize| {
        let mut request = get("/version");
        let value = http::HeaderValue::from_bytes(&vec![b'x'; bytes]).unwrap();
        request.headers_mut().insert("x-large", value);
        request
    };
    // The fake upstream accepts at most hyper's own 400 KiB.
    assert_eq!(weir.send(with(300 << 10)).await.code, 200);
    let mut head = b"GET /version HTTP/1.1\r\nHost: localhost\r\nX-Large: ".to_vec();
    head.extend(vec![b'x'; 1200 << 10]);
    let answer = raw(&weir, &head).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");

    let mut client = http2_on(weir.tcp().await).await;
    let mut large = Request::get("http://localhost/version").body(Full::default()).unwrap();
    let value = http::HeaderValue::from_bytes(&vec![b'x'; 1100 << 10]).unwrap();
    large.headers_mut().insert("x-large", value);
    let refused = client.send_request(large).await;
    assert!(refused.is_err() || refused.is_ok_and(|answer| answer.status() == 431));
    assert_eq!(weir.get("/version").await.code, 200);
}

#[tokio::test]
async fn an_incomplete_head_is_timed_out() {
    let settings =
        Settings { header_read_timeout: Duration::from_millis(200), ..Settings::default() };
    let weir = Weir::start_with(settings, echo).await;
    // The first byte of the third request could also start HTTP/2's preface.
    for begun in [&b""[..], b"GET /version HTTP/1.1\r\nHost: local", b"P"] {
        raw(&weir, begun).await;
    }
    // The time-out also applies to the next head of a connection.
    let answer = raw(&weir, b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\nGET /ver").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn a_connection_may_be_idle_for_longer_than_a_head_may_take() {
    let settings =
        Settings { header_read_timeout: Duration::from_millis(100), ..Settings::default() };
    let weir = Weir::start_with(settings, echo).await;
    let mut client = weir.http1().await;
    for _ in 0..2 {
        assert_eq!(whole(client.send_request(get("/version")).await.unwrap()).await.code, 200);
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

#[tokio::test]
async fn a_user_with_many_groups_can_be_impersonated() {
    let weir = Weir::start(|_| async { crate::upstream::testing::answer(200, "") }).await;
    let mut head = b"GET /version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n".to_vec();
    for group in 0..90 {
        head.extend(format!("Impersonate-Group: group-{group}\r\n").into_bytes());
    }
    for key in 0..400 {
        head.extend(format!("X-Other-{key}: 1\r\n").into_bytes());
    }
    head.extend(b"\r\n");
    // The fake upstream accepts a hundred headers. That it was asked shows that Weir accepted all
    // of them.
    let answer = raw(&weir, &head).await;
    assert!(answer.contains("x-weir-cache: forward"), "{answer}");
}

#[tokio::test]
async fn a_web_page_of_another_origin_is_refused() {
    let settings =
        Settings { allowed_hosts: vec!["dashboard.example".to_owned()], ..Settings::default() };
    let weir = Weir::start_with(settings, echo).await;
    for (origin, code) in [
        ("http://localhost:3000", 200),
        ("http://127.0.0.1:8001", 200),
        ("https://dashboard.example", 200),
        ("https://evil.example", 403),
        ("null", 403),
        ("https://localhost.evil.example", 403),
        ("localhost", 403),
    ] {
        let mut request = get("/api/v1/namespaces/default/pods/a/exec?command=sh");
        request.headers_mut().insert("origin", http::HeaderValue::from_static(origin));
        request.headers_mut().insert("connection", http::HeaderValue::from_static("Upgrade"));
        request.headers_mut().insert("upgrade", http::HeaderValue::from_static("websocket"));
        let got = weir.send(request).await;
        assert_eq!(got.code, code, "{origin}");
        assert_eq!(got.text().contains("server.allowedHosts"), code == 403, "{}", got.text());
    }
}

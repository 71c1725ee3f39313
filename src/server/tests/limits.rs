//! Clients that exhaust resources: floods of streams and frames, incomplete bodies, responses that
//! are not read.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Request;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::harness::{SOON, Settings, Weir, echo, get, http2_on, whole};
use crate::testing::eventually;
use crate::upstream::testing::answer;

/// Below a test's time-out, and longer than the pauses of a busy machine.
const STALL: Duration = Duration::from_millis(500);

#[tokio::test]
async fn an_incomplete_body_is_timed_out() {
    let settings = Settings { stall_timeout: STALL, ..Settings::default() };
    let weir = Weir::start_with(settings, echo).await;
    let mut client = weir.tcp().await;
    let head = b"POST /api/v1/namespaces/a/pods HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhal";
    client.write_all(head).await.unwrap();
    let mut answer = Vec::new();
    // The connection ends by itself, with or without a response.
    drop(timeout(SOON, client.read_to_end(&mut answer)).await.expect("the connection did not end"));
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert_eq!(weir.get("/version").await.code, 200);
}

#[tokio::test]
async fn an_unread_response_ends_its_connection() {
    let settings = Settings { stall_timeout: STALL, ..Settings::default() };
    // The response is larger than all buffers between upstream and client.
    let weir = Weir::start_with(settings, |_| async { answer(200, vec![b'x'; 64 << 20]) }).await;
    let mut client = weir.tcp().await;
    client.write_all(b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    eventually("every connection is closed", || {
        weir.scrape().contains("weir_connections{listener=\"plain\"} 0")
    })
    .await;
}

/// Tests the same where several responses share the connection.
#[tokio::test]
async fn unread_responses_end_their_shared_connection() {
    let settings = Settings { stall_timeout: STALL, ..Settings::default() };
    let weir = Weir::start_with(settings, |_| async { answer(200, vec![b'x'; 64 << 20]) }).await;
    let mut client = weir.tcp().await;
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    // The windows are as large as possible, so that only the socket can be full.
    bytes.extend(frame(4, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]));
    bytes.extend(frame(8, 0, 0, &0x7fff_0000_u32.to_be_bytes()));
    for stream in [1, 3, 5] {
        bytes.extend(frame(1, 0x4 | 0x1, stream, &version_head()));
    }
    client.write_all(&bytes).await.unwrap();
    eventually("every connection is closed", || {
        weir.scrape().contains("weir_connections{listener=\"plain\"} 0")
    })
    .await;
}

/// Tests CVE-2023-44487: requests that a client resets at once must not reach the upstream in large
/// numbers.
#[tokio::test]
async fn a_flood_of_streams_that_are_reset_ends_the_connection() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let weir = Weir::start(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        std::future::pending()
    })
    .await;
    let mut client = weir.tcp().await;
    let mut flood = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    flood.extend(frame(4, 0, 0, &[]));
    for index in 0..5000_u32 {
        let stream = index * 2 + 1;
        flood.extend(frame(1, 0x4 | 0x1, stream, &version_head()));
        flood.extend(frame(3, 0, stream, &8_u32.to_be_bytes()));
    }
    drop(client.write_all(&flood).await);
    assert_eq!(goaway_code(&mut client).await, Some(ENHANCE_YOUR_CALM));
    let asked = asked.load(Ordering::Relaxed);
    assert!(asked <= 300, "{asked} requests went upstream");
}

/// Tests CVE-2024-27316: a head without an end.
#[tokio::test]
async fn a_flood_of_continuations_ends_the_connection() {
    let weir = Weir::start(echo).await;
    let mut client = weir.tcp().await;
    let mut flood = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    flood.extend(frame(4, 0, 0, &[]));
    flood.extend(frame(1, 0x1, 1, &[0x82, 0x86]));
    for _ in 0..10_000 {
        flood.extend(frame(9, 0, 1, &[]));
    }
    drop(client.write_all(&flood).await);
    assert_eq!(goaway_code(&mut client).await, Some(PROTOCOL_ERROR));
    assert_eq!(weir.get("/version").await.code, 200);
}

/// Distinct names can fill a header map, and another insertion then panics. On the way upstream the
/// panic would hit the task of a connection that all clients share.
#[tokio::test]
async fn requests_with_too_many_headers_are_refused() {
    let settings = Settings { http2: true, ..Settings::default() };
    let weir = Weir::start_with(settings, echo).await;
    let post = |count: usize| {
        let mut request = Request::post("http://localhost/api/v1/namespaces/a/pods");
        for number in 0..count {
            request = request.header(format!("x{number:x}"), "");
        }
        request.body(http_body_util::Full::default()).unwrap()
    };
    // With a few more headers, the client itself could not send the request.
    for count in [20_000, 16_385] {
        let mut client = http2_on(weir.tcp().await).await;
        let got = whole(client.send_request(post(count)).await.unwrap()).await;
        assert_eq!(got.code, 431, "{count}: {}", got.text());
    }
    for count in [300, 1025, 16_000] {
        let mut client = http2_on(weir.tcp().await).await;
        let got = whole(client.send_request(post(count)).await.unwrap()).await;
        assert_eq!(got.code, 200, "{count}: {}", got.text());
    }
}

/// The window of one stream stays closed, while the connection is alive.
#[tokio::test]
async fn a_response_with_a_closed_window_is_dropped_and_its_connection_stays_open() {
    let settings = Settings { stall_timeout: STALL, ..Settings::default() };
    let weir = Weir::start_with(settings, |_| async { answer(200, vec![b'x'; 1 << 20]) }).await;
    let mut client = weir.tcp().await;
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    // Sets SETTINGS_INITIAL_WINDOW_SIZE to one byte.
    bytes.extend(frame(4, 0, 0, &[0, 4, 0, 0, 0, 1]));
    bytes.extend(frame(1, 0x4 | 0x1, 1, &version_head()));
    client.write_all(&bytes).await.unwrap();
    eventually("a stalled response is dropped", || {
        weir.scrape().contains("weir_responses_stalled_total 1")
    })
    .await;
    assert!(weir.scrape().contains("weir_connections{listener=\"plain\"} 1"));
    client.write_all(&frame(6, 0, 0, b"pingpong")).await.unwrap();
    let pong = async {
        loop {
            let mut head = [0; 9];
            client.read_exact(&mut head).await.unwrap();
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; usize::try_from(length).unwrap()];
            client.read_exact(&mut payload).await.unwrap();
            if head[3] == 6 && payload == b"pingpong" {
                return;
            }
        }
    };
    timeout(SOON, pong).await.expect("the connection does not respond");
}

#[tokio::test]
async fn connections_of_one_address_are_limited() {
    let settings = Settings { connections_per_address_max: 2, ..Settings::default() };
    let weir = Weir::start_with(settings, echo).await;
    let mut first = weir.http1().await;
    let mut second = weir.http1().await;
    for client in [&mut first, &mut second] {
        let request = Request::get("/version").header("host", "localhost");
        let request = request.body(http_body_util::Full::default()).unwrap();
        assert_eq!(whole(client.send_request(request).await.unwrap()).await.code, 200);
    }
    let mut third = weir.tcp().await;
    assert!(
        matches!(third.read(&mut [0; 1]).await, Ok(0) | Err(_)),
        "the connection must be closed at once"
    );
    assert_eq!(whole(first.send_request(get("/version")).await.unwrap()).await.code, 200);
    drop(second);
    eventually("one connection is left", || {
        weir.scrape().contains("weir_connections{listener=\"plain\"} 1")
    })
    .await;
    assert_eq!(weir.get("/version").await.code, 200);
}

/// Encodes `:method` GET, `:scheme` http, `:path` /version, `:authority` localhost.
fn version_head() -> Vec<u8> {
    let mut head = vec![0x82, 0x86, 0x04, 8];
    head.extend(b"/version");
    head.extend([0x01, 9]);
    head.extend(b"localhost");
    head
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Returns the error code of the GOAWAY with which the server ends a connection, or `None` if it
/// ends without one.
async fn goaway_code(client: &mut tokio::net::TcpStream) -> Option<u32> {
    let read = async {
        loop {
            let mut head = [0; 9];
            client.read_exact(&mut head).await.ok()?;
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; usize::try_from(length).unwrap()];
            client.read_exact(&mut payload).await.ok()?;
            if head[3] == 7 {
                return Some(u32::from_be_bytes(payload[4..8].try_into().unwrap()));
            }
        }
    };
    timeout(SOON, read).await.expect("the connection did not end")
}

const ENHANCE_YOUR_CALM: u32 = 11;
const PROTOCOL_ERROR: u32 = 1;

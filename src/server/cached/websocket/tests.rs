//! The handshake, the splitting of chunks, and the exchange with a client.

use futures_util::stream;
use http::Request;
use tokio::io::{AsyncReadExt, DuplexStream};

use super::*;
use crate::server::http::body::FixedFrames;

/// Parses the usual handshake with `changes` to its headers. An empty value removes a header.
fn accepted(changes: &[(&str, &str)]) -> Option<Handshake> {
    accepted_with(changes, false)
}

fn accepted_with(changes: &[(&str, &str)], by_token: bool) -> Option<Handshake> {
    let mut headers = vec![
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("origin", "http://localhost"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    headers.retain(|(name, _)| changes.iter().all(|(changed, _)| changed != name));
    headers.extend(changes.iter().filter(|(_, value)| !value.is_empty()));
    let mut request = Request::builder().uri("/api/v1/pods?watch=1");
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let mut request = request.body(()).unwrap();
    let upgrade = hyper::upgrade::on(&mut request);
    let (mut parts, ()) = request.into_parts();
    parts.extensions.insert(upgrade);
    Handshake::parse(&parts, by_token)
}

#[test]
fn only_a_plain_handshake_is_answered_here() {
    let answer = accepted(&[]).unwrap().response();
    assert_eq!(answer.status(), 101);
    let mut names: Vec<_> = answer.headers().keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["connection", "sec-websocket-accept", "upgrade"]);
    assert_eq!(answer.headers()[SEC_WEBSOCKET_ACCEPT], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    let answer = accepted(&[("sec-websocket-protocol", "v4.channel.k8s.io")]).unwrap().response();
    assert_eq!(answer.headers()[SEC_WEBSOCKET_PROTOCOL], "v4.channel.k8s.io");
    assert!(accepted(&[("upgrade", "WebSocket"), ("connection", "keep-alive, upgrade")]).is_some());
    for changes in [
        &[("origin", "")][..],
        &[("origin", "http://localhost"), ("origin", "http://localhost")],
        &[("upgrade", "SPDY/3.1")],
        &[("sec-websocket-version", "8")],
        &[("sec-websocket-key", "")],
        &[("sec-websocket-protocol", "a, b")],
        &[("sec-websocket-protocol", "a"), ("sec-websocket-protocol", "b")],
        &[("sec-websocket-protocol", "base64url.bearer.authorization.k8s.io.eA")],
        &[("connection", "upgrade"), ("connection", "keep-alive")],
    ] {
        assert!(accepted(changes).is_none(), "{changes:?}");
    }
}

#[test]
fn a_token_among_the_sub_protocols_is_never_sent_back() {
    let token = "base64url.bearer.authorization.k8s.io.eA";
    let answered = |offered: &str| {
        let handshake = accepted_with(&[("sec-websocket-protocol", offered)], true)?;
        handshake.response().headers().get(SEC_WEBSOCKET_PROTOCOL).cloned()
    };
    for offered in [format!("{token}, v4.channel.k8s.io"), format!("v4.channel.k8s.io,{token}")] {
        assert_eq!(answered(&offered).unwrap(), "v4.channel.k8s.io", "{offered}");
        let without_token = accepted(&[("sec-websocket-protocol", &offered)]);
        assert!(
            without_token.is_none(),
            "two sub-protocols are left, which the upstream may refuse"
        );
    }
    for offered in
        [token, &format!("{token}, a, b"), &format!("{token}, "), &format!("{token}, a b")]
    {
        assert_eq!(answered(offered), None, "{offered}");
    }
}

fn events(chunk: &'static [u8], encoding: Encoding) -> Vec<Bytes> {
    let mut chunk = Bytes::from_static(chunk);
    std::iter::from_fn(|| take_event(&mut chunk, encoding)).collect()
}

#[test]
fn a_chunk_is_split_into_its_events() {
    assert_eq!(events(b"{}\n{\"a\":1}\n", Encoding::Json), ["{}\n", "{\"a\":1}\n"]);
    assert!(events(b"", Encoding::Json).is_empty());
    let frames = b"\0\0\0\x02ab\0\0\0\0\0\0\0\x01c";
    assert_eq!(events(frames, Encoding::Protobuf), ["ab", "", "c"]);
    assert_eq!(events(b"\0\0\0\x02ab\0\0\0\x09c", Encoding::Protobuf), ["ab"]);
    assert_eq!(events(b"\0\0", Encoding::Protobuf), [""; 0]);
}

/// Serves a watch of `chunks` to the returned client. If `open`, the watch does not end after them.
fn serve_chunks(chunks: Vec<&'static [u8]>, encoding: Encoding, open: bool) -> DuplexStream {
    let (client, server) = tokio::io::duplex(1 << 10);
    let chunks = stream::iter(chunks.into_iter().map(Bytes::from_static).map(Rope::from));
    let frames: Frames = if open {
        Box::pin(FixedFrames(chunks.chain(stream::pending())))
    } else {
        Box::pin(FixedFrames(chunks))
    };
    tokio::spawn(send_watch(server, frames, encoding, HeldBytes::new(usize::MAX)));
    client
}

#[tokio::test(start_paused = true)]
async fn frames_are_unfragmented_and_unmasked_and_the_close_code_is_1000() {
    let mut client = serve_chunks(vec![b"{}\n[]\n"], Encoding::Json, false);
    let mut seen = Vec::new();
    client.read_to_end(&mut seen).await.unwrap();
    assert_eq!(seen, b"\x81\x03{}\n\x81\x03[]\n\x88\x02\x03\xe8");
    let mut client = serve_chunks(vec![b"\0\0\0\x01a\0\0\0\x01b"], Encoding::Protobuf, false);
    let mut seen = Vec::new();
    client.read_to_end(&mut seen).await.unwrap();
    assert_eq!(seen, b"\x82\x01a\x82\x01b\x88\x02\x03\xe8");
}

#[tokio::test(start_paused = true)]
async fn pings_are_answered_and_data_is_discarded() {
    let client = serve_chunks(vec![b"{}\n"], Encoding::Json, true);
    let mut socket = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
    assert_eq!(socket.next().await.unwrap().unwrap(), Message::text("{}\n"));
    socket.send(Message::text("hello")).await.unwrap();
    socket.send(Message::binary(vec![0; 1000])).await.unwrap();
    socket.send(Message::Ping("p".into())).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), Message::Pong("p".into()));
    socket.close(None).await.unwrap();
    assert!(matches!(socket.next().await, Some(Ok(Message::Close(_)))));
    assert!(socket.next().await.is_none(), "the connection did not end cleanly");
}

#[tokio::test(start_paused = true)]
async fn oversized_messages_and_invalid_frames_end_the_watch() {
    for sent in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\x82\xff\0\0\0\0\0\x10\0\0abcd"] {
        let mut client = serve_chunks(Vec::new(), Encoding::Json, true);
        client.write_all(sent).await.unwrap();
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).await.unwrap();
        assert!(rest.is_empty());
    }
}

/// A watch is not read ahead of its client.
#[tokio::test(start_paused = true)]
async fn the_watch_is_not_read_ahead_of_a_slow_client() {
    let (_client, server) = tokio::io::duplex(1 << 10);
    let taken = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = std::sync::Arc::clone(&taken);
    let frames = stream::repeat_with(move || {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Rope::from(Bytes::from_static(b"{\"type\":\"ADDED\"}\n"))
    });
    let held = HeldBytes::new(usize::MAX);
    tokio::spawn(send_watch(server, Box::pin(FixedFrames(frames)), Encoding::Json, held));
    tokio::time::sleep(Duration::from_secs(60)).await;
    let taken = taken.load(std::sync::atomic::Ordering::Relaxed);
    assert!((10..200).contains(&taken), "{taken}");
}

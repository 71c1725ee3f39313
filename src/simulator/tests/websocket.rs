//! Watches over WebSocket (`docs/semantics.md` §6.3), with a client written by hand.

use std::time::Duration;

use base64::Engine;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::client::{create, start, start_with};
use crate::{Simulator, SimulatorOptions, User};

const PATH: &str =
    "/api/v1/namespaces/default/configmaps?watch=1&resourceVersion=0&timeoutSeconds=1";

/// Sends an upgrade request, and reads all bytes until the connection ends.
async fn upgrade(simulator: &Simulator, path: &str, headers: &str) -> Vec<u8> {
    let mut stream = TcpStream::connect(simulator.address()).await.unwrap();
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut received = Vec::new();
    let read = async {
        let mut chunk = vec![0; 4096];
        loop {
            let count = stream.read(&mut chunk).await.unwrap();
            received.extend_from_slice(&chunk[..count]);
            let refused = !received.starts_with(b"HTTP/1.1 101");
            if count == 0 || refused && received.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), read).await.unwrap();
    received
}

fn split(received: &[u8]) -> (String, &[u8]) {
    let end = received.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
    (String::from_utf8(received[..end].to_vec()).unwrap().to_lowercase(), &received[end + 4..])
}

#[tokio::test]
async fn events_are_text_messages_and_the_end_is_a_close_frame() {
    let simulator = start().await;
    create(&simulator, "default", "a");
    let received =
        upgrade(&simulator, PATH, "Origin: http://x\r\nSec-WebSocket-Protocol: p\r\n").await;
    let (head, frames) = split(&received);
    assert!(head.starts_with("http/1.1 101"), "{head}");
    assert!(head.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="));
    assert!(head.contains("sec-websocket-protocol: p") && !head.contains("audit-id"));
    assert_eq!(frames[..2], [0x81, 126]);
    let length = usize::from(u16::from_be_bytes([frames[2], frames[3]]));
    let (event, rest) = frames[4..].split_at(length);
    assert!(event.starts_with(b"{\"type\":\"ADDED\"") && event.ends_with(b"}\n"));
    assert_eq!(rest, [0x88, 2, 0x03, 0xe8]);
    let accept = "Accept: application/vnd.kubernetes.protobuf\r\nOrigin: http://x\r\n";
    let received = upgrade(&simulator, PATH, accept).await;
    let (_, frames) = split(&received);
    assert_eq!((frames[0], frames[1], &frames[4..11]), (0x82, 126, &b"\n\x05ADDED"[..]));
}

#[tokio::test]
async fn rejected_upgrades_have_no_body() {
    let simulator = start().await;
    for (headers, code) in [
        ("", "403"),
        ("Origin: x\r\n", "403"),
        ("Origin: http://x\r\nSec-WebSocket-Protocol: a, b\r\n", "400"),
    ] {
        let received = upgrade(&simulator, PATH, headers).await;
        let (head, _) = split(&received);
        assert!(head.starts_with(&format!("http/1.1 {code}")), "{headers} {head}");
    }
    let list = "/api/v1/namespaces/default/configmaps";
    let received = upgrade(&simulator, list, "").await;
    assert!(split(&received).0.starts_with("http/1.1 200"), "no watch, no upgrade");
}

#[tokio::test]
async fn a_token_may_come_as_a_sub_protocol() {
    let users = vec![User::admin("secret", "root")];
    let simulator = start_with(SimulatorOptions { users, ..SimulatorOptions::default() }).await;
    let token = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode("secret");
    let token = format!("base64url.bearer.authorization.k8s.io.{token}");
    let cases =
        [(format!("{token}, p"), "101"), (token.clone(), "401"), (format!("{token}x, p"), "401")];
    for (protocols, code) in cases {
        let headers = format!("Origin: http://x\r\nSec-WebSocket-Protocol: {protocols}\r\n");
        let received = upgrade(&simulator, PATH, &headers).await;
        let (head, _) = split(&received);
        assert!(head.starts_with(&format!("http/1.1 {code}")), "{protocols} {head}");
        assert!(!head.contains("bearer"));
    }
}

//! The handshake and the frames of WebSocket (RFC 6455), to the extent that a server needs which
//! only sends: watches over WebSocket (`docs/semantics.md` §6.3), and the handshake of pod
//! upgrades.

use std::convert::Infallible;
use std::io;

use aws_lc_rs::digest;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, Version, header};
use http_body_util::{BodyExt, Empty};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

use super::answer::{self, Body};
use super::request::Request;

/// The prefix of a sub-protocol that carries a bearer token.
const BEARER: &str = "base64url.bearer.authorization.k8s.io.";

/// Returns whether a request asks for a WebSocket.
pub(super) fn is_upgrade(request: &Request) -> bool {
    request.version == Version::HTTP_11
        && request.header("connection").to_ascii_lowercase().contains("upgrade")
        && request.header("upgrade").eq_ignore_ascii_case("websocket")
}

/// Returns the bearer token among the sub-protocols; empty for an invalid one. A token is invalid
/// if it is the only sub-protocol or if there are two of them.
pub(super) fn token(headers: &HeaderMap) -> Option<String> {
    let offered = protocols(headers);
    let mut tokens = offered.iter().filter_map(|word| word.strip_prefix(BEARER));
    let given = tokens.next()?;
    let two = tokens.next().is_some();
    let bytes = URL_SAFE_NO_PAD.decode(given).ok();
    let token = bytes.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
    Some(if offered.len() > 1 && !two { token } else { String::new() })
}

/// Returns the offered sub-protocols.
fn protocols(headers: &HeaderMap) -> Vec<&str> {
    let lines = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    let words = lines.filter_map(|line| line.to_str().ok()).flat_map(|line| line.split(','));
    words.map(str::trim).filter(|word| !word.is_empty()).collect()
}

/// Returns the sub-protocols that remain after authentication, which removes the token unless the
/// request also has an `Authorization` header.
pub(super) fn remaining_protocols(headers: &HeaderMap) -> Vec<&str> {
    let credential = headers.contains_key(header::AUTHORIZATION);
    let offered = protocols(headers).into_iter();
    offered.filter(|word| credential || !word.starts_with(BEARER)).collect()
}

/// Returns the response that switches protocols, or the status code of the [`bare`] response that
/// rejects the upgrade.
pub(super) fn handshake(request: &Request) -> Result<Response<Body>, StatusCode> {
    let left = remaining_protocols(&request.headers);
    if !is_uri(request.header("origin")) {
        return Err(StatusCode::FORBIDDEN);
    }
    if left.len() > 1 {
        return Err(StatusCode::BAD_REQUEST);
    }
    let mut response = bare(StatusCode::SWITCHING_PROTOCOLS);
    let headers = response.headers_mut();
    answer::set(headers, header::UPGRADE, "websocket");
    answer::set(headers, header::CONNECTION, "Upgrade");
    let accept = accept(request.header("sec-websocket-key"));
    answer::set(headers, header::SEC_WEBSOCKET_ACCEPT, &accept);
    if let Some(protocol) = left.first() {
        answer::set(headers, header::SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    Ok(response)
}

/// Sends each frame as a message until the channel closes, then sends a close frame. It discards
/// the bytes that the client sends.
pub(super) async fn serve(
    upgrade: OnUpgrade,
    mut frames: mpsc::Receiver<Result<Bytes, io::Error>>,
    text: bool,
) {
    const CLOSE_NORMALLY: [u8; 4] = [0x88, 2, 0x03, 0xe8];
    let Ok(upgraded) = upgrade.await else { return };
    let (mut read, mut write) = tokio::io::split(TokioIo::new(upgraded));
    let send = async {
        let opcode = if text { 1 } else { 2 };
        while let Some(frame) = frames.recv().await {
            // A cut: the connection breaks without a close frame.
            let Ok(frame) = frame else { return };
            if write.write_all(&message(opcode, &frame)).await.is_err() {
                return;
            }
            drop(write.flush().await);
        }
        drop(write.write_all(&CLOSE_NORMALLY).await);
        drop(write.shutdown().await);
    };
    let mut nowhere = tokio::io::sink();
    tokio::select! {
        () = send => {}
        _ = tokio::io::copy(&mut read, &mut nowhere) => {}
    }
}

/// Returns whether Go's `url.ParseRequestURI` accepts the origin: a path, or a URI with a scheme.
/// The upstream accepts every such origin and rejects a missing one.
fn is_uri(origin: &str) -> bool {
    let scheme = origin.split_once(':').map_or("", |(scheme, _)| scheme);
    let letters = scheme.starts_with(|ch: char| ch.is_ascii_alphabetic());
    let rest = |ch: char| ch.is_ascii_alphanumeric() || matches!(ch, '+' | '-' | '.');
    origin.starts_with('/') || (letters && scheme.chars().all(rest))
}

/// Encodes one unmasked, unfragmented message.
fn message(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(payload.len() + 10);
    out.push(0x80 | opcode);
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(length), _) if length < 126 => out.push(length),
        (_, Ok(length)) => {
            out.push(126);
            out.extend_from_slice(&length.to_be_bytes());
        }
        _ => {
            out.push(127);
            out.extend_from_slice(&(payload.len() as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(payload);
    out
}

/// Returns a response without a body.
pub(super) fn bare(code: StatusCode) -> Response<Body> {
    let body = Empty::new().map_err(|never: Infallible| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response
}

/// Computes `Sec-WebSocket-Accept` (RFC 6455, section 4.2.2).
pub(super) fn accept(key: &str) -> String {
    let text = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    let digest = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
    base64::engine::general_purpose::STANDARD.encode(digest)
}

#[cfg(test)]
mod tests {
    #[test]
    fn accepts_the_key_of_the_rfc() {
        let accept = super::accept("dGhlIHNhbXBsZSBub25jZQ==");
        assert_eq!(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}

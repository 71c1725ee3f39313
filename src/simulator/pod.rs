//! The streaming subresources of pods: logs, and upgrades that echo all bytes, so that tests can
//! check spliced streams.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

use super::answer::{self, Body};
use super::kinds::Kind;
use super::object::key;
use super::request::{Request, Target, truthy};
use super::shared::Shared;
use super::status::ApiError;
use super::websocket;

/// The number of lines that a pod has logged at the time of a request.
const LINES: usize = 10;

/// The size of the read buffer of an echoing upgrade, in bytes.
const ECHO_BYTES: usize = 16 << 10;

/// Answers a GET of a pod's log, to which `follow` adds a line every second.
pub(super) fn log(
    shared: &Shared,
    request: &Request,
    kind: &Kind,
    target: &Target,
) -> Result<Response<Body>, ApiError> {
    find(shared, kind, target)?;
    let tail = request.param("tailLines").and_then(|text| text.parse().ok()).unwrap_or(LINES);
    let name = target.name.clone();
    let first = LINES.saturating_sub(tail);
    let past: String = (first..LINES).map(|number| line(&name, number)).collect();
    if !truthy(request.param("follow")) {
        return Ok(answer::plain(200, &past));
    }
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        let mut text = past;
        for number in LINES.. {
            if sender.send(Ok(Frame::data(Bytes::from(text)))).await.is_err() {
                return;
            }
            text = line(&name, number);
            tokio::select! {
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
                () = sender.closed() => return,
            }
        }
    });
    let stream = futures_util::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|frame| (frame, receiver))
    });
    let mut response = Response::new(StreamBody::new(stream).boxed_unsync());
    answer::set(response.headers_mut(), header::CONTENT_TYPE, "text/plain");
    Ok(response)
}

/// Answers exec, attach and port-forward: an upgrade whose stream echoes all bytes, or the
/// upstream's error for a request without one (`docs/semantics.md` §11).
pub(super) fn upgrade(
    shared: &Shared,
    request: &Request,
    kind: &Kind,
    target: &Target,
    upgrade: OnUpgrade,
) -> Result<Response<Body>, ApiError> {
    find(shared, kind, target)?;
    let wanted = request.header("upgrade").to_owned();
    let upgrades = request.header("connection").to_ascii_lowercase().contains("upgrade");
    if !upgrades || wanted.is_empty() {
        return Err(ApiError::bad_request("Upgrade request required"));
    }
    tokio::spawn(async move {
        let Ok(upgraded) = upgrade.await else { return };
        let (read, mut write) = tokio::io::split(TokioIo::new(upgraded));
        let mut read = tokio::io::BufReader::with_capacity(ECHO_BYTES, read);
        // Either side may close at any time.
        drop(tokio::io::copy_buf(&mut read, &mut write).await);
        drop(write.shutdown().await);
    });
    let body = Empty::new().map_err(|never: Infallible| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    answer::set(headers, header::CONNECTION, "Upgrade");
    answer::set(headers, header::UPGRADE, &wanted);
    if wanted.eq_ignore_ascii_case("websocket") {
        let accept = websocket::accept(request.header("sec-websocket-key"));
        answer::set(headers, header::SEC_WEBSOCKET_ACCEPT, &accept);
        if let Some(protocol) = websocket::remaining_protocols(&request.headers).first() {
            answer::set(headers, header::SEC_WEBSOCKET_PROTOCOL, protocol);
        }
    } else if let Some(protocol) = request.headers.get("x-stream-protocol-version") {
        headers.insert(HeaderName::from_static("x-stream-protocol-version"), protocol.clone());
    }
    Ok(response)
}

fn find(shared: &Shared, kind: &Kind, target: &Target) -> Result<(), ApiError> {
    let stored = shared.store.get(kind, &key(&target.namespace, &target.name));
    let not_found = || ApiError::not_found(&kind.group, &kind.resource, &target.name);
    stored.map(drop).ok_or_else(not_found)
}

fn line(name: &str, number: usize) -> String {
    format!("{} {name}: line {number}\n", jiff::Timestamp::now())
}

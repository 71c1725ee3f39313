//! Probes one API server: `/readyz` about every five seconds, on a connection of its own.
//!
//! A connection of its own, since a probe must neither wait behind clients' requests nor be
//! answered by another server. It is kept while the server is ready and accepts the credential.
//! Behind a load balancer the next connection may lead to another server, so a connection to one
//! that is not ready is closed.
//!
//! The probe carries Weir's own credential. A response that refuses it shows that the server
//! answers, and so does a 429 without a word about shutting down.

use std::sync::Arc;
use std::time::Duration;

use http::header::{ACCEPT, CONNECTION, USER_AGENT};
use http::{HeaderMap, Request, StatusCode};
use tokio::time::Instant;

use super::ApiServer;
use super::health::ProbeResult;
use crate::upstream::bounded::{read_body, with_timeout};
use crate::upstream::error::{UpstreamError, chain};
use crate::upstream::fetch::WEIR_USER_AGENT;
use crate::upstream::one_server::OneServer;
use crate::upstream::{RequestPurpose, TrafficClass, Upstream, empty_body};

/// An API server that is checked, with the connections to it.
pub(super) struct Checked {
    pub(super) upstream: Upstream,
    pub(super) server: Arc<ApiServer>,
}

impl Checked {
    /// Opens a connection of its own to this server.
    pub(super) async fn connect(&self) -> Result<OneServer, UpstreamError> {
        OneServer::connect_to(&self.upstream, &self.server).await
    }
}

/// Probes a server until the future is dropped.
pub(super) async fn run(checked: &Checked) {
    let (mut connection, server) = (None, &checked.server);
    loop {
        server.probed(probe(checked, &mut connection).await);
        let last = Instant::now();
        let interval = INTERVAL.mul_f64(0.8 + 0.4 * fastrand::f64());
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(server.next_probe(last, interval)) => break,
                () = server.suspected.notified() => {}
            }
        }
    }
}

/// Sends one probe, on the connection of the last one if there is one.
async fn probe(checked: &Checked, connection: &mut Option<OneServer>) -> ProbeResult {
    let attempts = async {
        if let Some(mut kept) = connection.take()
            && let Ok(answer) = ask(&mut kept).await
        {
            return Ok((kept, answer));
        }
        // The server may have closed the connection while it was idle.
        let mut opened = checked.connect().await?;
        let answer = ask(&mut opened).await?;
        Ok((opened, answer))
    };
    match with_timeout(TIMEOUT, attempts).await {
        Ok((open, (result, is_closing))) => {
            if result == ProbeResult::Ready && !is_closing {
                *connection = Some(open);
            }
            result
        }
        Err(error) => {
            tracing::debug!(%error, "a probe of an API server failed");
            ProbeResult::Failed
        }
    }
}

/// Sends the request, and returns whether the connection is of no more use.
async fn ask(server: &mut OneServer) -> Result<(ProbeResult, bool), UpstreamError> {
    let request = Request::get("/readyz")
        .header(ACCEPT, "text/plain, */*")
        .header(USER_AGENT, WEIR_USER_AGENT)
        .body(empty_body())
        .map_err(|error| UpstreamError::Malformed(chain(&error)))?;
    let (head, body) =
        server.send(TrafficClass::Request, RequestPurpose::Other, request).await?.into_parts();
    let body = read_body(body, BODY_MAX_BYTES).await?;
    let is_closing = closes(&head.headers);
    // The certificate of the connection may have expired, and been renewed since.
    let is_refused = head.status == StatusCode::UNAUTHORIZED;
    Ok((result(head.status, is_closing, &body), is_closing || is_refused))
}

/// Reads a response to `/readyz`. `is_closing` is the GOAWAY of HTTP/1.1.
fn result(status: StatusCode, is_closing: bool, body: &[u8]) -> ProbeResult {
    let is_failure = status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
    if says_shutting_down(status, body) {
        ProbeResult::ShuttingDown
    } else if !is_failure || status == StatusCode::TOO_MANY_REQUESTS {
        ProbeResult::Ready
    } else if is_closing {
        ProbeResult::ShuttingDown
    } else {
        ProbeResult::NotReady
    }
}

/// Returns whether a response says that its server is shutting down: the text of a 429 or 503, or
/// the failed check `shutdown` of `/readyz`.
pub(crate) fn says_shutting_down(status: StatusCode, body: &[u8]) -> bool {
    let contains = |text: &[u8]| memchr::memmem::find(body, text).is_some();
    match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            contains(b"shutting down") || contains(b"[-]shutdown")
        }
        _ => status.is_server_error() && contains(b"[-]shutdown"),
    }
}

/// Returns whether the server closes the connection after this response.
fn closes(headers: &HeaderMap) -> bool {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|token| token.trim() == "close")
}

/// The mean time between two probes.
const INTERVAL: Duration = Duration::from_secs(5);
/// The longest time of a probe, connection included.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The largest response: the list of all checks has a few kilobytes.
const BODY_MAX_BYTES: usize = 64 * 1024;

#[cfg(test)]
pub(super) mod tests;

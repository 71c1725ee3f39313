//! Upgraded connections (exec, attach, port-forward, WebSockets): after the upstream's 101, bytes
//! are copied both ways without being parsed (`docs/semantics.md` §11).
//!
//! There is no idle time-out: a shell may be silent for hours. When one side shuts down its sending
//! half, the shutdown is passed on, and the other side may continue to send.

use http::header::{CONNECTION, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode, Version};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional_with_sizes;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::server::http::body::Body;
use crate::server::http::headers;
use crate::server::metrics::ServerMetrics;
use crate::upstream::pool;

/// Connects both sides of upgraded connections.
#[derive(Debug)]
pub(crate) struct Splicer {
    pub(crate) metrics: ServerMetrics,
    /// The open connections, for which a drain waits.
    pub(crate) tasks: TaskTracker,
    /// Aborts all open connections.
    pub(crate) abort: CancellationToken,
}

impl Splicer {
    /// Relays a 101, then copies bytes both ways. `guards` are held until the connection ends.
    /// Returns `None` if one of the sides cannot be upgraded.
    pub(crate) fn splice(
        &self,
        client: Option<OnUpgrade>,
        mut answer: Response<pool::Body>,
        guards: impl Send + 'static,
    ) -> Option<Response<Body>> {
        let client = client?;
        let upstream = answer.extensions_mut().remove::<OnUpgrade>()?;
        let protocol = answer.headers().get(UPGRADE).cloned();
        let guard = self.metrics.upgraded();
        let abort = self.abort.clone();
        self.tasks.spawn(async move {
            let joined = abort.run_until_cancelled(join(client, upstream)).await;
            if let Some(Err(error)) = joined {
                tracing::debug!(%error, "an upgraded connection ended");
            }
            drop((guard, guards));
        });

        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let mut relayed = std::mem::take(answer.headers_mut());
        let connection = relayed.get(CONNECTION).cloned();
        let _kept = headers::remove_hop_by_hop(&mut relayed);
        if let Some(connection) = connection {
            relayed.insert(CONNECTION, connection);
        }
        if let Some(protocol) = protocol {
            relayed.insert(UPGRADE, protocol);
        }
        *response.headers_mut() = relayed;
        Some(response)
    }
}

/// Returns the protocol of the upgrade that a request asks for. HTTP/2 has no upgrades, and
/// HTTP/1.0 ignores the header.
pub(crate) fn requested_upgrade(request: &Parts) -> Option<HeaderValue> {
    (request.version == Version::HTTP_11).then(|| headers::upgrade(&request.headers)).flatten()
}

/// Asks the upstream for the upgrade to `protocol` that a request with these headers asks for.
/// `golang.org/x/net/websocket` reads the first line of `Connection`, and refuses the handshake if
/// only a later one names the upgrade.
pub(crate) fn ask_for_upgrade(headers: &mut HeaderMap, protocol: HeaderValue, given: &HeaderMap) {
    if !given.get(CONNECTION).is_some_and(headers::names_upgrade) {
        headers.append(CONNECTION, HeaderValue::from_static("keep-alive"));
    }
    headers.append(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, protocol);
}

/// Makes hyper close the client's connection if a requested upgrade failed.
pub(crate) fn close_if_not_upgraded(upgrade_requested: bool, response: &mut Response<Body>) {
    if upgrade_requested && response.status() != StatusCode::SWITCHING_PROTOCOLS {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
}

async fn join(client: OnUpgrade, upstream: OnUpgrade) -> std::io::Result<()> {
    let (client, upstream) = tokio::try_join!(client, upstream).map_err(std::io::Error::other)?;
    let (mut client, mut upstream) = (TokioIo::new(client), TokioIo::new(upstream));
    copy_bidirectional_with_sizes(&mut client, &mut upstream, BUFFER_BYTES, BUFFER_BYTES).await?;
    Ok(())
}

/// Buffer of one direction: a few frames of a terminal, a large piece of `kubectl cp`.
const BUFFER_BYTES: usize = 32 << 10;

//! Upgraded connections (exec, attach, port-forward, WebSockets): after the upstream's 101, bytes
//! are copied both ways without being parsed (`docs/semantics.md` §11).
//!
//! There is no idle time-out: a shell may be silent for hours. When one side shuts down its sending
//! half, the shutdown is passed on, and the other side may continue to send.

use std::pin::pin;
use std::time::Duration;

use http::header::{CONNECTION, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode, Version};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, ReadHalf, WriteHalf};
use tokio::time::timeout;
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
    copy_both_ways(TokioIo::new(client), TokioIo::new(upstream)).await
}

/// Copies both ways until both directions have ended or one has failed. An upstream that takes no
/// more bytes may have said why, such as the exit status of an exec whose input still comes: its
/// last bytes are relayed.
async fn copy_both_ways<C, U>(client: C, upstream: U) -> std::io::Result<()>
where
    C: AsyncRead + AsyncWrite,
    U: AsyncRead + AsyncWrite,
{
    let (from_client, to_client) = tokio::io::split(client);
    let (from_upstream, to_upstream) = tokio::io::split(upstream);
    let mut sent = pin!(copy(from_client, to_upstream));
    let mut received = pin!(copy(from_upstream, to_client));
    tokio::select! {
        ended = &mut received => {
            ended?;
            sent.await
        }
        ended = &mut sent => {
            if ended.is_ok() {
                return received.await;
            }
            drop(timeout(LAST_BYTES_WAIT_MAX, received).await);
            ended
        }
    }
}

/// Copies one direction, and ends the half of the other side.
async fn copy<R: AsyncRead, W: AsyncWrite>(
    reader: ReadHalf<R>,
    mut writer: WriteHalf<W>,
) -> std::io::Result<()> {
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, reader);
    tokio::io::copy_buf(&mut reader, &mut writer).await?;
    writer.shutdown().await
}

const LAST_BYTES_WAIT_MAX: Duration = Duration::from_secs(5);
/// Buffer of one direction: a few frames of a terminal, a large piece of `kubectl cp`.
const BUFFER_BYTES: usize = 32 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    #[tokio::test]
    async fn what_one_side_says_arrives_though_that_side_reads_no_more() {
        let (mut user, client) = tokio::io::duplex(64);
        user.write_all(b"input").await.unwrap();
        // A pipe whose other end is closed fails each write.
        let (closed, _) = tokio::io::duplex(64);
        let upstream = tokio::io::join(&b"exit status 1"[..], closed);
        assert!(copy_both_ways(client, upstream).await.is_err());
        let mut last_words = String::new();
        user.read_to_string(&mut last_words).await.unwrap();
        assert_eq!(last_words, "exit status 1");
    }
}

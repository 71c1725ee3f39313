//! Starts HTTP/2 on a connection and runs it.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper::client::conn::http2::{self, Builder, SendRequest};
use hyper_util::rt::TokioIo;

use super::live_io::LiveIo;
use super::liveness::{Liveness, PING_BUSY};
use super::ping_timer::PingTimer;
use crate::streams::{ConnectionTasks, Spawner, Stopped};
use crate::upstream::connect::Io;
use crate::upstream::error::{UpstreamError, chain};
use crate::upstream::pool::limits::{HEADERS_MAX_BYTES, Http2Limits};
use crate::upstream::recent_count::RECENT;
use crate::upstream::request_body::RequestBody;

/// The bytes of one body that a peer may send before they are read. A larger window makes large
/// lists slightly faster, and costs memory when many clients are slow.
const STREAM_WINDOW_BYTES: u32 = 1024 * 1024;
/// The least window of a connection. h2 ends a connection whose small unread frames exceed half of
/// its window, and a watch is many small frames.
const CONNECTION_WINDOW_MIN_BYTES: u32 = 4 * 1024 * 1024;
/// A connection is checked by its bytes ([`Liveness`]), and not by hyper's time-out.
const PONG_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);
/// The bytes of a request body that are buffered for each stream.
const SEND_BUFFER_BYTES: usize = 256 * 1024;
/// Futures that hyper may spawn on a connection before they run. There are two for a request (its
/// response, its body) and one for the connection, far fewer than this.
const SPAWN_QUEUE_MAX: usize = 1024;
/// How often a new connection is checked for the peer's SETTINGS.
const SETTINGS_POLL_INTERVAL: Duration = Duration::from_millis(1);
/// An initial stream limit that no peer can send. It shows whether the SETTINGS have arrived.
const SETTINGS_UNKNOWN: usize = usize::MAX - 1;

pub(super) type Sender = SendRequest<RequestBody>;
type Handshake = Pin<Box<dyn Future<Output = hyper::Result<(Sender, Box<dyn Driver>)>> + Send>>;

/// Runs a connection.
pub(super) struct ConnectionDriver {
    driver: Box<dyn Driver>,
    tasks: ConnectionTasks<Infallible>,
}

/// hyper's future that runs a connection.
trait Driver: Future<Output = hyper::Result<()>> + Send + Unpin {
    /// Returns how many streams the peer allows, or [`SETTINGS_UNKNOWN`].
    fn peer_streams_max(&self) -> usize;
}

impl Driver for http2::Connection<TokioIo<LiveIo>, RequestBody, Spawner> {
    fn peer_streams_max(&self) -> usize {
        self.current_max_send_streams()
    }
}

/// Starts HTTP/2 on a connection. Returns when the peer's SETTINGS have arrived.
pub(super) async fn handshake(
    io: Io,
    limits: Http2Limits,
    address: &str,
    liveness: Arc<Liveness>,
) -> Result<(Sender, ConnectionDriver), UpstreamError> {
    let mut tasks = ConnectionTasks::new(SPAWN_QUEUE_MAX);
    let (sender, mut driver) = start(io, limits, tasks.spawner(), liveness)
        .await
        .map_err(|error| not_http2(address, &chain(&error)))?;
    while driver.peer_streams_max() == SETTINGS_UNKNOWN {
        tokio::select! {
            Stopped::Ended(ended) = tasks.run(&mut driver) => {
                let cause = ended.map_or_else(|error| chain(&error), |()| "closed".to_owned());
                return Err(not_http2(address, &cause));
            }
            () = tokio::time::sleep(SETTINGS_POLL_INTERVAL) => {}
        }
    }
    Ok((sender, ConnectionDriver { driver, tasks }))
}

/// h2 remembers the streams that Weir reset for [`RECENT`], up to a number, and ignores frames that
/// are still on their way to them. Such a frame of an older stream is answered with another reset.
/// h2 would end a connection with many of these (`too_many_internal_resets`), and with it the
/// exchanges of other clients. That limit protects servers from clients, and is off.
///
/// Not an `async fn`, in whose future the compiler cannot see that hyper's types are `Send`.
fn start(io: Io, limits: Http2Limits, spawner: Spawner, liveness: Arc<Liveness>) -> Handshake {
    let window = STREAM_WINDOW_BYTES.saturating_mul(limits.connection_streams_max as u32);
    let handshake = Builder::new(spawner)
        .timer(PingTimer(Arc::clone(&liveness)))
        .adaptive_window(false)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(window.max(CONNECTION_WINDOW_MIN_BYTES))
        .initial_max_send_streams(SETTINGS_UNKNOWN)
        .max_header_list_size(HEADERS_MAX_BYTES)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .max_concurrent_reset_streams(limits.resets_max * 2)
        .reset_stream_duration(RECENT)
        .max_local_error_reset_streams(None)
        .keep_alive_interval(PING_BUSY)
        .keep_alive_timeout(PONG_TIMEOUT)
        .keep_alive_while_idle(true)
        .handshake(TokioIo::new(LiveIo::new(io, liveness)));
    Box::pin(async {
        let (sender, driver) = handshake.await?;
        Ok((sender, Box::new(driver) as Box<dyn Driver>))
    })
}

impl ConnectionDriver {
    /// Returns how many streams the peer allows.
    pub(super) fn peer_streams_max(&self) -> usize {
        self.driver.peer_streams_max()
    }

    /// Runs the connection to its end, and stores the peer's current limit in `peer_streams_max`.
    /// Drops `accepting` when the connection accepts no more requests; responses in progress are
    /// still completed.
    pub(super) async fn run(self, peer_streams_max: &AtomicUsize, accepting: impl Send) {
        let Self { mut driver, mut tasks } = self;
        let mut driven = std::future::poll_fn(|context| {
            let polled = Pin::new(&mut driver).poll(context);
            peer_streams_max.store(driver.peer_streams_max(), Ordering::Relaxed);
            polled
        });
        let Stopped::Ended(ended) = tasks.run(&mut driven).await;
        if let Err(error) = ended {
            tracing::debug!(error = chain(&error), "an HTTP/2 connection to the upstream ended");
        }
        // The driver returns the requests that it has not sent, and must not keep them until the
        // last response has ended.
        drop(driver);
        drop(accepting);
        tasks.finish().await;
    }
}

/// Returns the error of a peer that does not complete the handshake.
pub(super) fn not_http2(address: &str, cause: &str) -> UpstreamError {
    UpstreamError::Connect {
        address: address.to_owned(),
        cause: format!(
            "it did not respond as HTTP/2 ({cause}); upstream.http2 can be set to false"
        ),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{Request, Response};
    use http_body_util::BodyExt as _;

    use super::*;
    use crate::testing::eventually;
    use crate::upstream::pool::limits::HTTP2_REQUESTS;
    use crate::upstream::request_body::empty_body;

    /// Answers the first request with a body that stays open, after a GOAWAY.
    async fn drains(io: tokio::io::DuplexStream) {
        let mut connection = h2::server::handshake(io).await.unwrap();
        let mut held = Vec::new();
        while let Some(Ok((_, mut respond))) = connection.accept().await {
            let mut body = respond.send_response(Response::new(()), false).unwrap();
            body.send_data(Bytes::from_static(b"held"), false).unwrap();
            held.push(body);
            connection.graceful_shutdown();
        }
    }

    fn request() -> Request<RequestBody> {
        Request::get("http://api/").body(empty_body()).unwrap()
    }

    /// It would wait in hyper's channel until the last response of the connection has ended.
    #[tokio::test]
    async fn a_connection_that_drains_gives_back_a_request_that_comes_too_late() {
        let (io, peer) = tokio::io::duplex(64 * 1024);
        tokio::spawn(drains(peer));
        let io = Io::http2_over(io);
        let liveness = Arc::new(Liveness::new(Duration::ZERO, Arc::default()));
        let (mut sender, driver) = handshake(io, HTTP2_REQUESTS, "", liveness).await.unwrap();
        let accepting = Arc::new(());
        let accepts = Arc::downgrade(&accepting);
        tokio::spawn(async move { driver.run(&AtomicUsize::new(0), accepting).await });
        let response = sender.send_request(request()).await.unwrap();
        let mut body = response.into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "held");
        eventually("the GOAWAY arrives", || accepts.strong_count() == 0).await;
        let late = sender.try_send_request(request()).await;
        assert!(late.unwrap_err().take_message().is_some(), "it was not sent");
        assert!(futures::FutureExt::now_or_never(body.frame()).is_none(), "the other goes on");
    }
}

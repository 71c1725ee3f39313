//! Serving one client connection: HTTP/1.1 or HTTP/2, with time-outs, and a graceful end when Weir
//! drains.
//!
//! A watch never ends by itself, and neither does a graceful shutdown that waits for it. When Weir
//! drains, each connection starts to drain at a moment of its own ([`crate::server::drain`]): it
//! sends GOAWAY, and its watches end. Everything that is left at the deadline is aborted.
//!
//! [`wire`] reads the bytes of a client before hyper reads them. [`http_limits`] has the limits
//! that hyper enforces. The time-outs are those of [`activity`] (request heads and idle
//! connections), [`send_timeouts`] (stalled response bodies) and [`permitted_io`] (stalled
//! sockets). [`cork`] coalesces writes, [`permits`] limits connections per client, and
//! [`large_heads`] limits the memory for the heads of a connection.

pub(crate) mod activity;
pub(crate) mod client;
pub(crate) mod client_id;
pub(crate) mod cork;
pub(crate) mod eviction;
pub(crate) mod guarded_body;
mod http_limits;
pub(crate) mod large_heads;
pub(crate) mod list;
pub(crate) mod permits;
pub(crate) mod permitted_io;
pub(crate) mod send_timeouts;
pub(crate) mod wire;

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Request, Version};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::seams::Seams;
use crate::server::connection::activity::ConnActivity;
use crate::server::connection::client::Client;
use crate::server::connection::cork::{Cork, TlsWriter};
use crate::server::connection::http_limits::{HEAD_BYTES_MAX, IDLE_TIMEOUT, SPAWN_QUEUE_MAX};
use crate::server::connection::large_heads::LargeHeads;
use crate::server::connection::list::ConnectionList;
use crate::server::connection::send_timeouts::SendTimeouts;
use crate::server::lanes;
use crate::server::overload::Overload;
use crate::server::router::Router;
use crate::streams::{ConnectionTasks, Stopped};

/// Serves connections of all listeners. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ConnectionServer {
    router: Arc<Router>,
    header_read_timeout: Duration,
    stall_timeout: Duration,
    list: ConnectionList,
    abort: CancellationToken,
}

pub(crate) enum Protocol<I> {
    /// HTTP/1.1, selected by ALPN.
    Http1,
    /// HTTP/2, selected by ALPN.
    Http2(TlsWriter<I>),
    /// Detected from the first bytes: only HTTP/2 begins with its preface.
    Detect,
}

impl ConnectionServer {
    /// Creates a server. Cancelling `abort` ends connections that are draining.
    pub(crate) fn new(
        router: Arc<Router>,
        seams: &Seams,
        list: ConnectionList,
        abort: CancellationToken,
    ) -> Self {
        let &Seams { header_read_timeout, stall_timeout, .. } = seams;
        Self { router, header_read_timeout, stall_timeout, list, abort }
    }

    /// Spawns the task of one connection, which serves it to its end. The task that accepted the
    /// connection, with the state of its handshake, ends meanwhile: that state would take memory,
    /// and would lie beside the state that every event touches. Errors are logged at debug level,
    /// since they concern only the client.
    ///
    /// A protocol that ALPN selected is not detected again. Detection puts the first bytes back in
    /// front of the others, so that hyper would read a head of HTTP/1.1 in two steps and keep a
    /// buffer of 16 KiB for it instead of 8, and HTTP/2 would pass through another layer
    /// (`docs/decisions/client-connections.md`).
    pub(crate) fn serve<I>(
        self,
        io: I,
        mut client: Client,
        protocol: Protocol<I>,
        tasks: &TaskTracker,
    ) where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let activity = ConnActivity::new();
        let address = client.peer.address;
        let listed = self.list.add(client.number, client.listener, address, activity.clone());
        client.listed = Some(listed);
        let client = Arc::new(client);
        client.standing.serve(&activity);
        let cork = Cork::new(io, activity.clone(), HEAD_BYTES_MAX);
        let io = TokioIo::new(cork.clone());
        let router = Arc::clone(&self.router);
        let draining = client.drain.started().clone();
        let send_timeouts = SendTimeouts::new(self.stall_timeout, router.metrics.clone());
        let (requests, timeouts) = (activity.clone(), send_timeouts.clone());
        let overload = Arc::clone(&router.caches.overload);
        let large_heads = LargeHeads::default();
        let service = service_fn(move |mut request: Request<Incoming>| {
            if let Some(aside) = requests.next_aside() {
                aside.add_to(&mut request);
            }
            let large = large_heads.enter(&mut request);
            let guard = requests.begin_request();
            let timeouts = (request.version() == Version::HTTP_2).then(|| timeouts.clone());
            let part = (guard, timeouts, large);
            Box::pin(Arc::clone(&router).handle(Arc::clone(&client), request, part))
        });
        let Self { header_read_timeout, abort, .. } = self;
        let mut streams = ConnectionTasks::new(SPAWN_QUEUE_MAX);
        spawn_timeouts(
            &mut streams,
            header_read_timeout,
            (send_timeouts, overload),
            activity,
            draining,
        );
        match protocol {
            Protocol::Http1 => {
                let connection = http_limits::http1().serve_connection(io, service);
                let connection = Box::pin(connection.with_upgrades());
                let graceful_shutdown = http1::UpgradeableConnection::graceful_shutdown;
                tasks.spawn(ConnectionTask { connection, streams, cork, graceful_shutdown, abort });
            }
            Protocol::Http2(writer) => {
                cork.set_tls_writer(writer);
                let builder = http_limits::http2(streams.spawner());
                let connection = Box::pin(builder.serve_connection(io, service));
                let graceful_shutdown = http2::Connection::graceful_shutdown;
                tasks.spawn(ConnectionTask { connection, streams, cork, graceful_shutdown, abort });
            }
            Protocol::Detect => {
                let builder = http_limits::detecting(streams.spawner());
                let connection = builder.serve_connection_with_upgrades(io, service).into_owned();
                let connection = Box::pin(connection);
                let graceful_shutdown = auto::UpgradeableConnection::graceful_shutdown;
                tasks.spawn(ConnectionTask { connection, streams, cork, graceful_shutdown, abort });
            }
        }
    }
}

/// Runs the time-outs of a connection, and its drain, beside its streams.
fn spawn_timeouts(
    streams: &mut ConnectionTasks<CloseReason>,
    header_read_timeout: Duration,
    (send_timeouts, overload): (SendTimeouts, Arc<Overload>),
    activity: ConnActivity,
    draining: CancellationToken,
) {
    streams.spawn_aux(async move { match send_timeouts.sweep(&overload).await {} });
    let heads = activity.clone();
    streams.spawn_aux(async move {
        heads.header_timeout(header_read_timeout).await;
        CloseReason::HeaderTimeout
    });
    streams.spawn_aux(async move {
        tokio::select! {
            () = draining.cancelled() => {}
            () = activity.idle_timeout(IDLE_TIMEOUT) => {}
        }
        CloseReason::Graceful
    });
}

/// The task of a connection: polls the connection and its streams until it ends or is closed. After
/// the handshake this is one flat future, so that an event touches few cache lines of a connection
/// (`docs/decisions/event-delivery.md`).
struct ConnectionTask<I, C> {
    /// Dropped before its streams.
    connection: Pin<Box<C>>,
    streams: ConnectionTasks<CloseReason>,
    cork: Cork<I>,
    graceful_shutdown: fn(Pin<&mut C>),
    abort: CancellationToken,
}

impl<I, C, E> Future for ConnectionTask<I, C>
where
    I: AsyncRead + AsyncWrite + Unpin,
    C: Future<Output = Result<(), E>>,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let polled = this.poll_streams(context);
        let written = this.cork.end_poll(polled, context);
        lanes::end_poll();
        let ended = match written {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(ended)) => ended.map_err(Into::into),
            Poll::Ready(Err(error)) => Err(error.into()),
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a client connection ended");
        }
        Poll::Ready(())
    }
}

impl<I, C, E> ConnectionTask<I, C>
where
    I: AsyncRead + AsyncWrite + Unpin,
    C: Future<Output = Result<(), E>>,
{
    /// Polls the connection and its streams, and closes it where there is a reason to.
    fn poll_streams(&mut self, context: &Context<'_>) -> Poll<Result<(), E>> {
        let Self { connection, streams, cork, graceful_shutdown, abort } = self;
        loop {
            let set_shared = |open| cork.set_shared(open > 1);
            match ready!(streams.poll(connection, set_shared, context)) {
                Stopped::Ended(ended) => return Poll::Ready(ended),
                Stopped::Event(CloseReason::HeaderTimeout) => {
                    tracing::debug!("a client did not send the head of its request in time");
                    return Poll::Ready(Ok(()));
                }
                Stopped::Event(CloseReason::Graceful) => {
                    graceful_shutdown(connection.as_mut());
                    let abort = abort.clone();
                    streams.spawn_aux(async move {
                        abort.cancelled().await;
                        CloseReason::Abort
                    });
                }
                Stopped::Event(CloseReason::Abort) => return Poll::Ready(Ok(())),
            }
        }
    }
}

enum CloseReason {
    /// The head of a request took too long.
    HeaderTimeout,
    /// Weir drains, or the connection was idle for too long, or has too many of its requests
    /// refused. A client of HTTP/2 gets a GOAWAY, as from Go's server (`IdleTimeout`).
    Graceful,
    Abort,
}

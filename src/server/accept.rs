//! Accepting client connections: listeners, TLS and serving certificates, limits on connections.

pub(crate) mod bind_error;
pub(crate) mod certificate;
pub(crate) mod inherited;
pub(crate) mod listener;
#[cfg(feature = "simulation")]
pub(crate) mod pipe;
pub(crate) mod tls;
pub(crate) mod unix_socket;

use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::auth::peer::Peer;
use crate::server::accept::listener::{ListenerKind, Socket};
use crate::server::accept::tls::TlsAcceptors;
use crate::server::accept::unix_socket::is_trusted;
use crate::server::connection::client::{Client, next_number};
use crate::server::connection::permits::{ConnectionPermit, PerClientLimiter};
use crate::server::connection::permitted_io::PermittedIo;
use crate::server::connection::{ConnectionServer, Protocol};
use crate::server::drain::Drain;
use crate::server::flow_control::memo::FlowMemo;
use crate::server::metrics::ServerMetrics;
use crate::telemetry::metrics::GaugeGuard;

/// Accepts connections of all listeners and has them served. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Acceptor {
    pub(crate) connections: ConnectionServer,
    pub(crate) metrics: ServerMetrics,
    /// The open connections and splices.
    pub(crate) tasks: TaskTracker,
    /// Drains the connections.
    pub(crate) drain: Drain,
    /// Cancelled at the shutdown's deadline.
    pub(crate) abort: CancellationToken,
    pub(crate) limiter: PerClientLimiter,
    pub(crate) connections_per_address_max: usize,
    pub(crate) stall_timeout: Duration,
}

/// The permits that a connection's socket holds.
type Permits = (ConnectionPermit, GaugeGuard);

impl Acceptor {
    /// Spawns the accept loop of a listener, and the task that reloads its certificate, onto
    /// `loops`. They end when `stop` is cancelled.
    pub(crate) fn spawn_loop(&self, socket: Socket, loops: &TaskTracker, stop: CancellationToken) {
        let acceptor = self.clone();
        match socket {
            Socket::Plain(listener) => loops.spawn(acceptor.accept_plain(listener, stop)),
            Socket::Unix(listener, file) => loops.spawn(async move {
                acceptor.accept_unix(listener, stop).await;
                drop(file);
            }),
            Socket::Tls(listener, tls) => {
                if let Some(reloader) = tls.reloader {
                    loops.spawn(reloader.run(stop.clone()));
                }
                loops.spawn(acceptor.accept_tls(listener, tls.acceptors, stop))
            }
        };
    }

    async fn accept_plain(self, listener: TcpListener, stop: CancellationToken) {
        let slots = connection_slots();
        while let Some((stream, peer, slot)) = self.next(&stop, &slots, || listener.accept()).await
        {
            set_options(&stream, self.stall_timeout);
            let Some(io) = self.try_permit(stream, ListenerKind::Plain, Some(peer), slot) else {
                continue;
            };
            let peer = Peer::new(None, Some(peer.ip()));
            self.spawn(ListenerKind::Plain, async { Some((io, peer, Protocol::Detect)) });
        }
    }

    async fn accept_unix(&self, listener: UnixListener, stop: CancellationToken) {
        let slots = connection_slots();
        while let Some((stream, _, slot)) = self.next(&stop, &slots, || listener.accept()).await {
            if !is_trusted(&stream) {
                self.metrics.connection_refused("user");
                tracing::warn!("refused a Unix socket connection from a process of another user");
                continue;
            }
            let Some(io) = self.try_permit(stream, ListenerKind::Unix, None, slot) else {
                continue;
            };
            self.spawn(ListenerKind::Unix, async { Some((io, Peer::default(), Protocol::Detect)) });
        }
    }

    async fn accept_tls(
        self,
        listener: TcpListener,
        mut acceptors: TlsAcceptors,
        stop: CancellationToken,
    ) {
        let slots = connection_slots();
        while let Some((stream, peer, slot)) = self.next(&stop, &slots, || listener.accept()).await
        {
            set_options(&stream, self.stall_timeout);
            let Some(io) = self.try_permit(stream, ListenerKind::Tls, Some(peer), slot) else {
                continue;
            };
            self.spawn(ListenerKind::Tls, handshake(acceptors.current(), io, peer));
        }
    }

    /// Acquires a permit for the client's address, and wraps the socket. Returns `None` if the
    /// address is at its limit; the caller closes the connection.
    fn try_permit<I>(
        &self,
        io: I,
        listener: ListenerKind,
        peer: Option<SocketAddr>,
        slot: OwnedSemaphorePermit,
    ) -> Option<PermittedIo<I, Permits>> {
        let (address, max) = (peer.map(|peer| peer.ip()), self.connections_per_address_max);
        let Some(permit) = self.limiter.try_acquire(address, max, slot) else {
            self.metrics.connection_refused("address");
            return None;
        };
        let open = self.metrics.connection(listener.as_str());
        Some(PermittedIo::new(io, (permit, open), self.stall_timeout))
    }

    /// Returns the next connection, or `None` once `stop` is cancelled. Errors never end the loop:
    /// they concern one client (it disconnected), or are temporary (no file descriptors left).
    async fn next<S, A, F>(
        &self,
        stop: &CancellationToken,
        slots: &Arc<Semaphore>,
        accept: impl Fn() -> F,
    ) -> Option<(S, A, OwnedSemaphorePermit)>
    where
        F: Future<Output = std::io::Result<(S, A)>>,
    {
        let slot = stop.run_until_cancelled(Arc::clone(slots).acquire_owned()).await?.ok()?;
        loop {
            match stop.run_until_cancelled(accept()).await? {
                Ok((stream, peer)) => return Some((stream, peer, slot)),
                Err(error) if is_client_error(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection; trying again");
                    stop.run_until_cancelled(tokio::time::sleep(ACCEPT_BACKOFF)).await?;
                }
            }
        }
    }

    /// Serves a connection once it is `ready`, after its handshake if it has one.
    fn spawn<I>(
        &self,
        listener: ListenerKind,
        ready: impl Future<Output = Option<(I, Peer, Protocol)>> + Send + 'static,
    ) where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let connections = self.connections.clone();
        let drain = self.drain.connect();
        let tasks = self.tasks.clone();
        self.tasks.spawn(async move {
            // A handshake that has not ended when Weir drains is not waited for.
            let ready = drain.started().run_until_cancelled(ready).await.flatten();
            if let Some((io, peer, protocol)) = ready {
                let (held, flows) = (OnceLock::new(), FlowMemo::default());
                let client = Client { number: next_number(), listener, peer, held, flows, drain };
                connections.serve(io, client, protocol, &tasks);
            }
        });
    }

    /// Closes all connections gracefully, spread over nine tenths of `timeout`, and aborts those
    /// that remain after all of it. Returns when all have ended.
    pub(crate) async fn drain(self, timeout: Duration) {
        self.tasks.close();
        let draining = async {
            self.drain.run(timeout * 9 / 10).await;
            std::future::pending::<Infallible>().await
        };
        let ended = async {
            tokio::select! {
                () = self.tasks.wait() => {}
                never = draining => match never {}
            }
        };
        if tokio::time::timeout(timeout, ended).await.is_ok() {
            return;
        }
        tracing::warn!(
            connections = self.tasks.len(),
            "the shutdown's deadline has passed; aborting the remaining connections"
        );
        self.abort.cancel();
        self.tasks.wait().await;
    }
}

/// Returns the connection limit of one listener. Each listener has its own, so that the clients of
/// one cannot exhaust another's.
fn connection_slots() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(CONNECTIONS_MAX))
}

/// Performs a TLS handshake. Returns the stream with the client's certificates and the protocol
/// that ALPN selected.
pub(super) async fn handshake<I>(
    tls: TlsAcceptor,
    stream: I,
    address: SocketAddr,
) -> Option<(TlsStream<I>, Peer, Protocol)>
where
    I: AsyncRead + AsyncWrite + Unpin,
{
    match tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
        Ok(Ok(stream)) => {
            let tls = stream.get_ref().1;
            let peer = Peer::new(tls.peer_certificates(), Some(address.ip()));
            let protocol = match tls.alpn_protocol() {
                Some(b"h2") => Protocol::Http2,
                Some(b"http/1.1") => Protocol::Http1,
                _ => Protocol::Detect,
            };
            Some((stream, peer, protocol))
        }
        Ok(Err(error)) => {
            tracing::debug!(peer = %address, %error, "a TLS handshake failed");
            None
        }
        Err(_) => None,
    }
}

/// Sets the options of a client's socket. Events are small and must not wait for an
/// acknowledgement. Keep-alive detects a client whose machine is gone while nothing is sent, and
/// the user time-out while something is; it also covers a window that stays shut.
fn set_options(stream: &TcpStream, stall_timeout: Duration) {
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_PROBES);
    let set = || {
        stream.set_nodelay(true)?;
        let socket = SockRef::from(stream);
        socket.set_tcp_keepalive(&keepalive)?;
        #[cfg(target_os = "linux")]
        socket.set_tcp_user_timeout(Some(stall_timeout))?;
        std::io::Result::Ok(())
    };
    if let Err(error) = set() {
        tracing::debug!(%error, ?stall_timeout, "cannot set the options of a socket");
    }
}

/// Whether an error of `accept` concerns one client only.
fn is_client_error(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset | ErrorKind::ConnectionRefused
    )
}

/// The first keep-alive probe is sent after 30 s, since a watch may be silent for minutes. With
/// three probes 10 s apart, a dead peer is detected after a minute. HTTP/2 keep-alive pings are
/// off: like kube-apiserver, Weir does not drop a client that is alive but too busy to answer a
/// ping.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 3;
/// Connections of one listener. This exceeds the usual limits on file descriptors; further clients
/// wait in the backlog.
const CONNECTIONS_MAX: usize = 65_536;
/// A handshake takes two round trips.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Long enough not to spin while no file descriptor is left, and short enough to go unnoticed
/// afterwards.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

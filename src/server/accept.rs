//! Accepting client connections: listeners, TLS and serving certificates, limits on connections.

pub(crate) mod bind_error;
pub(crate) mod certificate;
pub(super) mod handshake;
pub(crate) mod inherited;
pub(crate) mod listener;
#[cfg(feature = "simulation")]
pub(crate) mod pipe;
mod proxied;
mod proxy_protocol;
pub(crate) mod tls;
pub(crate) mod unix_socket;

use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::auth::peer::Peer;
use crate::config::ProxyNetworks;
use crate::server::accept::handshake::{GateFull, HandshakeGate, handshake};
use crate::server::accept::listener::{ListenerKind, Socket};
use crate::server::accept::proxied::ProxiedError;
use crate::server::accept::tls::TlsAcceptors;
use crate::server::accept::unix_socket::is_trusted;
use crate::server::connection::client::{Client, ConnectionStanding, next_number};
use crate::server::connection::permits::{
    Acquired, AddressAtLimit, ConnectionCounts, ConnectionPermit,
};
use crate::server::connection::permitted_io::PermittedIo;
use crate::server::connection::{ConnectionServer, Protocol};
use crate::server::drain::Drain;
use crate::server::flow_control::memo::FlowMemo;
use crate::server::metrics::ServerMetrics;
use crate::server::overload::Overload;
use crate::telemetry::log_throttle::LogThrottle;
use crate::telemetry::metrics::GaugeGuard;

/// Accepts connections of all listeners and has them served. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Acceptor {
    pub(crate) connections: ConnectionServer,
    pub(crate) metrics: ServerMetrics,
    pub(crate) overload: Arc<Overload>,
    /// The open connections and splices.
    pub(crate) tasks: TaskTracker,
    pub(crate) drain: Drain,
    /// Cancelled at the shutdown's deadline.
    pub(crate) abort: CancellationToken,
    pub(crate) counts: ConnectionCounts,
    pub(crate) stall_timeout: Duration,
    /// Limits the log lines of connections that proxies named wrongly.
    pub(crate) misnamed: Arc<LogThrottle>,
}

/// A connection that was accepted, with the address of its peer and its place among the listener's.
type Accepted<S, A> = (S, A, OwnedSemaphorePermit);

struct Ready<I> {
    io: I,
    peer: Peer,
    protocol: Protocol<I>,
    permit: Weak<ConnectionPermit>,
}

type Permits = (Arc<ConnectionPermit>, GaugeGuard);

impl Acceptor {
    /// Spawns the accept loop of a listener, and the task that reloads its certificate, onto
    /// `loops`. They end when `stop` is cancelled.
    pub(crate) fn spawn_loop(&self, socket: Socket, loops: &TaskTracker, stop: CancellationToken) {
        let acceptor = self.clone();
        match socket {
            Socket::Plain(listener, proxies) => {
                loops.spawn(acceptor.accept_plain(listener, proxies, stop))
            }
            Socket::Unix(listener, file) => loops.spawn(async move {
                acceptor.accept_unix(listener, stop).await;
                drop(file);
            }),
            Socket::Tls(listener, proxies, tls) => {
                if let Some(reloader) = tls.reloader {
                    loops.spawn(reloader.run(stop.clone()));
                }
                loops.spawn(acceptor.accept_tls(listener, proxies, tls.acceptors, stop))
            }
        };
    }

    async fn accept_plain(
        self,
        listener: TcpListener,
        proxies: Arc<ProxyNetworks>,
        stop: CancellationToken,
    ) {
        let slots = connection_slots();
        while let Some(accepted) = self.next(&stop, &slots, || listener.accept()).await {
            let (acceptor, proxies) = (self.clone(), Arc::clone(&proxies));
            self.spawn(ListenerKind::Plain, async move {
                let admitted = acceptor.admit(accepted, &proxies, ListenerKind::Plain);
                let (io, permit, client) = admitted.await?;
                let peer = Peer::new(None, client.map(|client| client.ip()));
                Some(Ready { io, peer, protocol: Protocol::Detect, permit })
            });
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
            self.spawn_admitted(stream, ListenerKind::Unix, None, slot);
        }
    }

    async fn accept_tls(
        self,
        listener: TcpListener,
        proxies: Arc<ProxyNetworks>,
        mut acceptors: TlsAcceptors,
        stop: CancellationToken,
    ) {
        let slots = connection_slots();
        let gate = HandshakeGate::new(Arc::clone(&self.overload), self.metrics.clone());
        while stop.run_until_cancelled(gate.until_calm()).await.is_some()
            && let Some(accepted) = self.next(&stop, &slots, || listener.accept()).await
        {
            let (acceptor, proxies) = (self.clone(), Arc::clone(&proxies));
            let (tls, gate) = (acceptors.current(), gate.clone());
            self.spawn(ListenerKind::Tls, async move {
                let admitted = acceptor.admit(accepted, &proxies, ListenerKind::Tls);
                let (io, permit, client) = admitted.await?;
                let shaken = handshake(&tls, io, client, &gate).await;
                acceptor.metrics.handshake(match &shaken {
                    Ok(Some(_)) => "completed",
                    Ok(None) => "failed",
                    Err(GateFull) => "refused",
                });
                let (io, peer, protocol) = shaken
                    .inspect_err(|GateFull| acceptor.metrics.connection_refused("handshakes"))
                    .ok()
                    .flatten()?;
                Some(Ready { io, peer, protocol, permit })
            });
        }
    }

    /// Finds the client of a connection, whose proxy may name another address than the peer's, and
    /// acquires a permit for it. Returns `None` if the connection is refused.
    async fn admit(
        &self,
        (mut stream, peer, slot): Accepted<TcpStream, SocketAddr>,
        proxies: &ProxyNetworks,
        listener: ListenerKind,
    ) -> Option<(PermittedIo<TcpStream, Permits>, Weak<ConnectionPermit>, Option<SocketAddr>)> {
        set_options(&stream, self.stall_timeout);
        if proxied::is_trusted(peer.ip(), proxies) {
            let client = proxied::read_client(&mut stream, peer).await;
            let client = client.inspect_err(|error| self.misnamed(peer, error)).ok()?;
            let address = client.map(|client| client.ip());
            let (io, permit) = self.try_permit((stream, unlimit), listener, address, slot)?;
            return Some((io, permit, client));
        }
        let (io, permit) = self.try_permit((stream, unlimit), listener, Some(peer.ip()), slot)?;
        if !proxies.0.is_empty() {
            let checked = tokio::select! {
                checked = proxied::check_direct(io.get_ref()) => checked,
                () = io.evicted() => return None,
            };
            checked.inspect_err(|error| self.misnamed(peer, error)).ok()?;
        }
        Some((io, permit, Some(peer)))
    }

    /// Counts and logs a connection that is refused for its PROXY header.
    fn misnamed(&self, peer: SocketAddr, error: &ProxiedError) {
        if matches!(error, ProxiedError::Closed) {
            return;
        }
        self.metrics.connection_refused("proxy-header");
        if let Some(suppressed) = self.misnamed.try_acquire() {
            tracing::warn!(%peer, %error, suppressed, "refused a connection");
        }
    }

    /// Acquires a permit for the client's address, and wraps the socket. Returns `None` if the
    /// address is at its limit; the caller closes the connection.
    /// `unlimit` removes the time-outs that the socket itself has.
    fn try_permit<I>(
        &self,
        (io, unlimit): (I, fn(&I)),
        listener: ListenerKind,
        address: Option<IpAddr>,
        slot: OwnedSemaphorePermit,
    ) -> Option<(PermittedIo<I, Permits>, Weak<ConnectionPermit>)> {
        let acquired = self.counts.try_acquire(address, slot);
        let refused = |AddressAtLimit: &_| self.metrics.connection_refused("address");
        let Acquired { permit, made_room } = acquired.inspect_err(refused).ok()?;
        if made_room {
            self.metrics.connection_refused("evicted");
        }
        let (permit, open) = (Arc::new(permit), self.metrics.connection(listener.as_str()));
        let eviction = Arc::clone(permit.eviction());
        let of_client = Arc::downgrade(&permit);
        let limits = (self.stall_timeout, unlimit);
        Some((PermittedIo::new(io, (permit, open), eviction, limits), of_client))
    }

    /// Serves a connection without TLS of a client that is known by its listener. Returns whether
    /// there was a permit for it.
    fn spawn_admitted<I>(
        &self,
        io: I,
        listener: ListenerKind,
        address: Option<IpAddr>,
        slot: OwnedSemaphorePermit,
    ) -> bool
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Some((io, permit)) = self.try_permit((io, |_| {}), listener, address, slot) else {
            return false;
        };
        let peer = Peer::new(None, address);
        self.spawn(listener, async move {
            Some(Ready { io, peer, protocol: Protocol::Detect, permit })
        });
        true
    }

    /// Returns the next connection, or `None` once `stop` is cancelled. Errors never end the loop:
    /// they concern one client (it disconnected), or are temporary (no file descriptors left).
    async fn next<S, A, F>(
        &self,
        stop: &CancellationToken,
        slots: &Arc<Semaphore>,
        accept: impl Fn() -> F,
    ) -> Option<Accepted<S, A>>
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
        ready: impl Future<Output = Option<Ready<I>>> + Send + 'static,
    ) where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let connections = self.connections.clone();
        let drain = self.drain.connect();
        let tasks = self.tasks.clone();
        self.tasks.spawn(async move {
            // A handshake that has not ended when Weir drains is not waited for.
            let ready = drain.started().run_until_cancelled(ready).await.flatten();
            if let Some(Ready { io, peer, protocol, permit }) = ready {
                let (standing, flows) = (ConnectionStanding::new(permit), FlowMemo::default());
                let number = next_number();
                let client =
                    Client { number, listener, peer, standing, flows, drain, listed: None };
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

/// Sets the options of a client's socket. Events are small and must not wait for an
/// acknowledgement. A large answer leaves little in the kernel that is not sent yet. Keep-alive
/// detects a client whose machine is gone while nothing is sent, and the user time-out while
/// something is; it also covers a window that stays shut.
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
        {
            socket.set_tcp_user_timeout(Some(stall_timeout))?;
            socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX)?;
        }
        std::io::Result::Ok(())
    };
    if let Err(error) = set() {
        tracing::debug!(%error, ?stall_timeout, "cannot set the options of a socket");
    }
}

/// Lets the client of a spliced connection read nothing for as long as it likes.
fn unlimit(stream: &TcpStream) {
    #[cfg(target_os = "linux")]
    if let Err(error) = SockRef::from(stream).set_tcp_user_timeout(None) {
        tracing::debug!(%error, "cannot set the options of a socket");
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
/// The bytes of one connection that the kernel takes ahead of what it may send. Without this option
/// it takes up to 4 MiB (`net.ipv4.tcp_wmem`). Hundreds of clients that read slowly then fill the
/// memory that it has for all TCP connections (`net.ipv4.tcp_mem`), and it drops segments of every
/// client; they also fill a control group of version 2, which counts this memory. Bytes that are
/// sent and not yet acknowledged do not count, so that a distant client is served as fast.
#[cfg(target_os = "linux")]
const UNSENT_BYTES_MAX: u32 = 128 << 10;
/// Connections of one listener. This exceeds the usual limits on file descriptors; further clients
/// wait in the backlog.
const CONNECTIONS_MAX: usize = 65_536;
/// Long enough not to spin while no file descriptor is left, and short enough to go unnoticed
/// afterwards.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_kernel_takes_little_ahead_of_what_it_may_send() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        set_options(&client, Duration::from_secs(60));
        assert_eq!(SockRef::from(&client).tcp_notsent_lowat().unwrap(), UNSENT_BYTES_MAX);
    }
}

//! Where clients come in and get their answers.
//!
//! In the order of a request's way: [`accept`] takes connections, [`connection`] serves HTTP on them,
//! [`router`] parses each request and has it checked ([`request`]), [`delegate`] decides between the
//! cache ([`cached`]) and the upstream ([`forward`]). [`http`] holds what both share.
//!
//! Shutdown: stop accepting; say GOAWAY; end watches spread out over a part of the deadline; at the deadline, abort.

pub mod accept;
mod cached;
pub(crate) mod connection;
pub mod delegate;
mod forward;
mod http;
pub mod metrics;
mod request;
mod router;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::auth::audit::AuditLog;
use crate::auth::peer::Peer;
use crate::cache::registry::Registry;
use crate::config::{CertificateConfig, ListenerConfig, Mode, ServerConfig};
pub use crate::server::accept::listener::{BindError, BoundListener, ListenerKind};
use crate::server::accept::listener::{Listener, Socket, is_trusted};
use crate::server::accept::tls::Accepting;
pub use crate::server::cached::compress::Compressor;
pub use crate::server::cached::compress::metrics::GzipMetrics;
use crate::server::cached::websocket::Sockets;
use crate::server::connection::permits::{Addresses, Seat, Seated};
use crate::server::connection::{Client, Connections, Spoken};
use crate::server::forward::documents::Documents;
pub use crate::server::forward::identity::Upstreams;
use crate::server::forward::quota::Shares;
use crate::server::forward::upgrade::Splicer;
use crate::server::forward::{FailureLog, Forwarder};
pub use crate::server::metrics::ServerMetrics;
pub use crate::server::request::access::{Access, Gateway, Vouching};
use crate::server::request::audit::Auditor;
use crate::server::request::host::HostPolicy;
use crate::server::router::{Limits, Router};
use crate::telemetry::metrics::GaugeGuard;

/// What requests are answered from.
pub struct Services {
    /// The caches.
    pub registry: Registry,
    /// The ways to the upstream.
    pub upstreams: Upstreams,
    /// What judges clients.
    pub access: Access,
    /// What compresses answers.
    pub compressor: Compressor,
    /// What is told of answers from the caches; `None` for nothing.
    pub audit: Option<Arc<AuditLog>>,
    /// What is counted.
    pub metrics: ServerMetrics,
}

/// All listeners, bound, and what serves on them.
pub struct Server {
    listeners: Vec<Listener>,
    acceptor: Acceptor,
    shutdown_timeout: Duration,
}

impl Server {
    /// Binds every listener; clients may connect from then on, and wait until [`Server::serve`]. Needs a tokio runtime
    /// around it.
    ///
    /// In gateway mode TLS clients are asked for their certificates.
    pub fn bind(config: &ServerConfig, services: Services) -> Result<Self, BindError> {
        let hints = services.access.hints();
        let mode = if hints.is_some() { Mode::Gateway } else { Mode::Sidecar };
        let bind = |listener| Listener::bind(listener, mode, hints.as_ref());
        let listeners = config.listeners.iter().map(bind).collect::<Result<Vec<_>, _>>()?;
        let tasks = TaskTracker::new();
        let abort = CancellationToken::new();
        let splicer = Splicer {
            metrics: services.metrics.clone(),
            tasks: tasks.clone(),
            abort: abort.clone(),
        };
        let router = Router {
            registry: services.registry,
            forwarder: Forwarder {
                upstreams: services.upstreams,
                names: services.access.identity_names(),
                shares: match mode {
                    Mode::Sidecar => None,
                    Mode::Gateway => Some(Shares::new()),
                },
                splicer,
                failures: FailureLog::new(),
                drain: config.shutdown_timeout / DRAIN_PART,
                stall_timeout: config.stall_timeout,
            },
            sockets: Sockets::new(tasks.clone(), abort.clone()),
            documents: Documents::new(services.metrics.clone()),
            metrics: services.metrics.clone(),
            hosts: match mode {
                Mode::Sidecar => HostPolicy::new(hosts(config)),
                Mode::Gateway => HostPolicy::any(),
            },
            access: services.access,
            auditor: Auditor::new(services.audit),
            compressor: services.compressor,
            limits: Limits {
                freshness: config.freshness_timeout,
                warmup: config.warmup_timeout,
                drain: config.shutdown_timeout / DRAIN_PART,
            },
            cache_header: config.cache_header,
        };
        let acceptor = Acceptor {
            connections: Connections::new(Arc::new(router), config, abort.clone()),
            metrics: services.metrics,
            tasks,
            draining: CancellationToken::new(),
            abort,
            addresses: Addresses::new("connections"),
            connections_per_address_max: config.connections_per_address_max,
            stall_timeout: config.stall_timeout,
        };
        Ok(Self { listeners, acceptor, shutdown_timeout: config.shutdown_timeout })
    }

    /// Where clients come in, in the order of the configuration.
    pub fn local_addresses(&self) -> Vec<BoundListener> {
        self.listeners.iter().map(|listener| listener.bound.clone()).collect()
    }

    /// Serves until `shutdown` is cancelled, then drains; returns when every connection has ended or was aborted.
    pub async fn serve(self, shutdown: CancellationToken) {
        let Self { listeners, acceptor, shutdown_timeout } = self;
        let accepting = TaskTracker::new();
        for Listener { bound, socket } in listeners {
            tracing::info!(listener = %bound, "listening");
            let (acceptor, stop) = (acceptor.clone(), shutdown.clone());
            match socket {
                Socket::Plain(listener) => accepting.spawn(acceptor.plain(listener, stop)),
                Socket::Unix(listener, file) => accepting.spawn(async move {
                    acceptor.unix(listener, stop).await;
                    drop(file);
                }),
                Socket::Tls(listener, serving) => {
                    if let Some(reloader) = serving.reloader {
                        accepting.spawn(reloader.run(stop.clone()));
                    }
                    accepting.spawn(acceptor.tls(listener, serving.accepting, stop))
                }
            };
        }
        accepting.close();
        accepting.wait().await;
        shutdown.cancelled().await;
        acceptor.drain(shutdown_timeout).await;
    }
}

/// What every accept loop needs. Cheap to clone.
#[derive(Clone)]
struct Acceptor {
    connections: Connections,
    metrics: ServerMetrics,
    /// Connections and splices that are under way.
    tasks: TaskTracker,
    draining: CancellationToken,
    abort: CancellationToken,
    addresses: Addresses,
    connections_per_address_max: usize,
    stall_timeout: Duration,
}

impl Acceptor {
    async fn plain(self, listener: TcpListener, stop: CancellationToken) {
        let room = room();
        while let Some((stream, peer, room)) = self.next(&stop, &room, || listener.accept()).await {
            set_options(&stream, self.stall_timeout);
            let Some(stream) = self.seat(stream, ListenerKind::Plain, Some(peer), room) else {
                continue;
            };
            let who = Peer::new(None, Some(peer.ip()));
            self.spawn(ListenerKind::Plain, Some(peer), async {
                Some((stream, who, Spoken::Unknown))
            });
        }
    }

    async fn unix(&self, listener: UnixListener, stop: CancellationToken) {
        let room = room();
        while let Some((stream, _, room)) = self.next(&stop, &room, || listener.accept()).await {
            if !is_trusted(&stream) {
                self.metrics.connection_refused("user");
                tracing::warn!("a process of another user came in by the Unix socket; refused");
                continue;
            }
            let Some(stream) = self.seat(stream, ListenerKind::Unix, None, room) else { continue };
            self.spawn(ListenerKind::Unix, None, async {
                Some((stream, Peer::default(), Spoken::Unknown))
            });
        }
    }

    async fn tls(self, listener: TcpListener, mut tls: Accepting, stop: CancellationToken) {
        let room = room();
        while let Some((stream, peer, room)) = self.next(&stop, &room, || listener.accept()).await {
            set_options(&stream, self.stall_timeout);
            let Some(stream) = self.seat(stream, ListenerKind::Tls, Some(peer), room) else {
                continue;
            };
            let handshake = handshake(tls.acceptor(), stream, peer);
            self.spawn(ListenerKind::Tls, Some(peer), handshake);
        }
    }

    /// Gives a connection its place; `None` if its address has too many, and it is closed at once.
    fn seat<I>(
        &self,
        io: I,
        listener: ListenerKind,
        peer: Option<SocketAddr>,
        room: OwnedSemaphorePermit,
    ) -> Option<Seated<I, (Seat<OwnedSemaphorePermit>, GaugeGuard)>> {
        let (address, most) = (peer.map(|peer| peer.ip()), self.connections_per_address_max);
        let Some(seat) = self.addresses.seat(address, most, room) else {
            self.metrics.connection_refused("address");
            return None;
        };
        let open = self.metrics.connection(listener.as_str());
        Some(Seated::new(io, (seat, open), self.stall_timeout))
    }

    /// The next connection; `None` when it is time to stop. Errors never end the loop: they are one client's (it went away), or
    /// pass (no file descriptors left).
    async fn next<S, A, F>(
        &self,
        stop: &CancellationToken,
        room: &Arc<Semaphore>,
        accept: impl Fn() -> F,
    ) -> Option<(S, A, OwnedSemaphorePermit)>
    where
        F: Future<Output = std::io::Result<(S, A)>>,
    {
        let room = stop.run_until_cancelled(Arc::clone(room).acquire_owned()).await?.ok()?;
        loop {
            match stop.run_until_cancelled(accept()).await? {
                Ok((stream, peer)) => return Some((stream, peer, room)),
                Err(error) if is_clients(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection; trying again");
                    stop.run_until_cancelled(tokio::time::sleep(ACCEPT_BACKOFF)).await?;
                }
            }
        }
    }

    fn spawn<I>(
        &self,
        listener: ListenerKind,
        peer: Option<SocketAddr>,
        ready: impl Future<Output = Option<(I, Peer, Spoken)>> + Send + 'static,
    ) where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let connections = self.connections.clone();
        let address = peer.map(|peer| peer.ip());
        let draining = self.draining.child_token();
        let tasks = self.tasks.clone();
        self.tasks.spawn(async move {
            // A handshake that is under way when Weir drains is not waited for.
            let ready = draining.run_until_cancelled(ready).await.flatten();
            if let Some((io, peer, spoken)) = ready {
                let client = Client { listener, address, peer, draining };
                connections.serve(io, client, spoken, &tasks);
            }
        });
    }

    async fn drain(self, timeout: Duration) {
        self.tasks.close();
        self.draining.cancel();
        if tokio::time::timeout(timeout, self.tasks.wait()).await.is_ok() {
            return;
        }
        tracing::warn!(
            connections = self.tasks.len(),
            "the shutdown's deadline has passed; aborting what is left"
        );
        self.abort.cancel();
        self.tasks.wait().await;
    }
}

/// The room of one listener: those of one cannot keep out who comes by another.
fn room() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(CONNECTIONS_MAX))
}

/// The names that clients may use besides the loopback ones.
fn hosts(config: &ServerConfig) -> impl Iterator<Item = &str> {
    let generated = config.listeners.iter().filter_map(|listener| match listener {
        ListenerConfig::Tls { certificate: CertificateConfig::Generated { names }, .. } => {
            Some(names)
        }
        _ => None,
    });
    generated.flatten().chain(&config.allowed_hosts).map(String::as_str)
}

/// Makes TLS of a connection; what the client showed of itself comes with it.
async fn handshake<I>(
    tls: TlsAcceptor,
    stream: I,
    address: SocketAddr,
) -> Option<(TlsStream<I>, Peer, Spoken)>
where
    I: AsyncRead + AsyncWrite + Unpin,
{
    match tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
        Ok(Ok(stream)) => {
            let tls = stream.get_ref().1;
            let peer = Peer::new(tls.peer_certificates(), Some(address.ip()));
            let spoken = match tls.alpn_protocol() {
                Some(b"h2") => Spoken::Http2,
                Some(b"http/1.1") => Spoken::Http1,
                _ => Spoken::Unknown,
            };
            Some((stream, peer, spoken))
        }
        Ok(Err(error)) => {
            tracing::debug!(peer = %address, %error, "a TLS handshake failed");
            None
        }
        Err(_) => None,
    }
}

/// Events are small and must not wait for an acknowledgement. A client whose machine is gone is found out though nothing is sent
/// (keep-alive), and though something is (the user time-out; a window that stays shut counts as well).
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
        tracing::debug!(%error, ?stall_timeout, "a socket's options cannot be set");
    }
}

fn is_clients(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset | ErrorKind::ConnectionRefused
    )
}

/// Watches end within the first quarter of the shutdown's deadline.
const DRAIN_PART: u32 = 4;
/// A watch may be silent for minutes. 30 s, then three probes 10 s apart: a dead peer is known after a minute. HTTP/2 is not pinged: as little as
/// kube-apiserver does Weir part with a client that is there but has no time for an answer.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 3;
/// Of a listener. Above any system's usual limit of file descriptors; further clients wait in the backlog.
const CONNECTIONS_MAX: usize = 65_536;
/// A handshake is two round trips on one machine.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Long enough not to spin while no file descriptor is left, short enough not to be felt afterwards.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests;

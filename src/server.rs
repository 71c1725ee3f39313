//! Where clients come in and get their answers.
//!
//! In the order of a request's way: [`listener`] and [`tls`] accept, [`connection`] speaks HTTP, [`router`] parses and judges
//! ([`host`], [`delegate`]), [`get`], [`list`] and [`watch`] (with [`websocket`]) answer from the cache, [`documents`] from what the upstream confirms, [`forward`] and [`upgrade`] from the
//! upstream; [`response`] and [`headers`] serve both.
//!
//! Shutdown: stop accepting; say GOAWAY; end watches spread out over a part of the deadline; at the deadline, abort.

pub mod delegate;
pub mod listener;
pub mod tls;

mod connection;
mod documents;
mod forward;
mod forwarded_watch;
mod get;
mod headers;
mod host;
mod list;
mod page;
pub(crate) mod patience;
mod response;
mod router;
mod upgrade;
mod watch;
mod watch_stream;
mod websocket;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cache::registry::Registry;
use crate::config::{CertificateConfig, ListenerConfig, ServerConfig};
use crate::server::connection::{Client, Connections};
use crate::server::documents::Documents;
use crate::server::forward::{FailureLog, Forwarder};
use crate::server::host::HostPolicy;
pub use crate::server::listener::{BindError, BoundListener, ListenerKind};
use crate::server::listener::{Listener, Socket};
use crate::server::router::{Limits, Router};
use crate::server::upgrade::Splicer;
use crate::server::websocket::Sockets;
use crate::telemetry::server_metrics::ServerMetrics;
use crate::upstream::Upstream;

/// What requests are answered from.
pub struct Services {
    /// The caches.
    pub registry: Registry,
    /// The way to the upstream.
    pub upstream: Upstream,
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
    pub fn bind(config: &ServerConfig, services: Services) -> Result<Self, BindError> {
        let listeners =
            config.listeners.iter().map(Listener::bind).collect::<Result<Vec<_>, _>>()?;
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
                upstream: services.upstream,
                splicer,
                failures: FailureLog::new(),
                drain: config.shutdown_timeout / DRAIN_PART,
            },
            sockets: Sockets::new(tasks.clone(), abort.clone()),
            documents: Documents::new(services.metrics.clone()),
            metrics: services.metrics.clone(),
            hosts: HostPolicy::new(hosts(config)),
            limits: Limits {
                freshness: config.freshness_timeout,
                warmup: config.warmup_timeout,
                drain: config.shutdown_timeout / DRAIN_PART,
            },
            cache_header: config.cache_header,
        };
        let timeout = config.header_read_timeout;
        let acceptor = Acceptor {
            connections: Connections::new(Arc::new(router), timeout, abort.clone()),
            metrics: services.metrics,
            tasks,
            draining: CancellationToken::new(),
            abort,
            room: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
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
                    let tls = TlsAcceptor::from(serving.config);
                    accepting.spawn(acceptor.tls(listener, tls, stop))
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
    room: Arc<Semaphore>,
}

impl Acceptor {
    async fn plain(self, listener: TcpListener, stop: CancellationToken) {
        while let Some((stream, peer, room)) = self.next(&stop, || listener.accept()).await {
            self.serve(stream, room, ListenerKind::Plain, Some(peer));
        }
    }

    async fn unix(&self, listener: UnixListener, stop: CancellationToken) {
        while let Some((stream, _peer, room)) = self.next(&stop, || listener.accept()).await {
            self.spawn(room, ListenerKind::Unix, None, async { Some(stream) });
        }
    }

    async fn tls(self, listener: TcpListener, tls: TlsAcceptor, stop: CancellationToken) {
        while let Some((stream, peer, room)) = self.next(&stop, || listener.accept()).await {
            let tls = tls.clone();
            let handshake = async move {
                set_nodelay(&stream);
                match tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
                    Ok(Ok(stream)) => Some(stream),
                    Ok(Err(error)) => {
                        tracing::debug!(%peer, %error, "a TLS handshake failed");
                        None
                    }
                    Err(_) => None,
                }
            };
            self.spawn(room, ListenerKind::Tls, Some(peer), handshake);
        }
    }

    fn serve(
        &self,
        stream: TcpStream,
        room: OwnedSemaphorePermit,
        kind: ListenerKind,
        peer: Option<SocketAddr>,
    ) {
        set_nodelay(&stream);
        self.spawn(room, kind, peer, async { Some(stream) });
    }

    /// The next connection; `None` when it is time to stop. Errors never end the loop: they are one client's (it went away), or
    /// pass (no file descriptors left).
    async fn next<S, A, F>(
        &self,
        stop: &CancellationToken,
        accept: impl Fn() -> F,
    ) -> Option<(S, A, OwnedSemaphorePermit)>
    where
        F: Future<Output = std::io::Result<(S, A)>>,
    {
        let room = Arc::clone(&self.room);
        let room = stop.run_until_cancelled(room.acquire_owned()).await?.ok()?;
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
        room: OwnedSemaphorePermit,
        listener: ListenerKind,
        peer: Option<SocketAddr>,
        ready: impl Future<Output = Option<I>> + Send + 'static,
    ) where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let connections = self.connections.clone();
        let open = self.metrics.connection(listener.as_str());
        let address = peer.map(|peer| peer.ip());
        let client = Client { listener, address, draining: self.draining.child_token() };
        self.tasks.spawn(async move {
            // A handshake that is under way when Weir drains is not waited for.
            let draining = client.draining.clone();
            if let Some(io) = draining.run_until_cancelled(ready).await.flatten() {
                connections.serve(io, client).await;
            }
            drop((open, room));
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

/// Events are small and must not wait for an acknowledgement.
fn set_nodelay(stream: &TcpStream) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY cannot be set");
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
/// Above any system's usual limit of file descriptors; further clients wait in the backlog.
const CONNECTIONS_MAX: usize = 65_536;
/// A handshake is two round trips on one machine.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Long enough not to spin while no file descriptor is left, short enough not to be felt afterwards.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests;

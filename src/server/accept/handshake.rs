//! The TLS handshakes of client connections: at most a few of a listener are computed at once
//! (`docs/decisions/accepted-connections.md`).
//!
//! A handshake holds its place while Weir computes keys and signatures, not while it waits for the
//! client, so that clients that do not go on keep nobody out. Beyond [`BUSY_AT`] waiting ones the
//! listener leaves further connections in the kernel's backlog; beyond [`WAITING_MAX`], further
//! handshakes are refused.
//!
//! From the stage of overload on at which Weir refuses watches that begin with a state, new
//! connections have a quarter of the places: their first requests would be such watches and lists.
use crate::auth::peer::Peer;
use crate::flow::overload::Stage;
use crate::server::connection::Protocol;
use crate::server::connection::cork::{RECORDS_BYTES_MAX, write_records};
use crate::server::metrics::ServerMetrics;
use crate::server::overload::Overload;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::thread::available_parallelism;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{LazyConfigAcceptor, TlsAcceptor};

/// Performs a TLS handshake in its turn. Returns the stream with the client's certificates and the
/// protocol that ALPN selected; `None` if the handshake fails or takes too long.
pub(in crate::server) async fn handshake<I>(
    tls: &TlsAcceptor,
    stream: I,
    client: Option<SocketAddr>,
    gate: &HandshakeGate,
) -> Result<Option<(TlsStream<I>, Peer, Protocol<TlsStream<I>>)>, GateFull>
where
    I: AsyncRead + AsyncWrite + Unpin,
{
    let shaken = match tokio::time::timeout(TIMEOUT, in_turn(tls, stream, gate)).await {
        Ok(shaken) => shaken?,
        Err(_) => return Ok(None),
    };
    let address = client.map(|client| client.ip());
    Ok(match shaken {
        Ok(mut stream) => {
            let tls = stream.get_mut().1;
            let peer = Peer::new(tls.peer_certificates(), address);
            let protocol = match tls.alpn_protocol() {
                Some(b"h2") => {
                    tls.set_buffer_limit(Some(RECORDS_BYTES_MAX));
                    Protocol::Http2(write_records)
                }
                Some(b"http/1.1") => Protocol::Http1,
                _ => Protocol::Detect,
            };
            Some((stream, peer, protocol))
        }
        Err(error) => {
            tracing::debug!(?address, %error, "a TLS handshake failed");
            None
        }
    })
}

/// Waits for the client's first message before its turn, so that whoever sends none takes no place.
async fn in_turn<I>(
    tls: &TlsAcceptor,
    stream: I,
    gate: &HandshakeGate,
) -> Result<io::Result<TlsStream<I>>, GateFull>
where
    I: AsyncRead + AsyncWrite + Unpin,
{
    let start = match LazyConfigAcceptor::new(rustls::server::Acceptor::default(), stream).await {
        Ok(start) => start,
        Err(error) => return Ok(Err(error)),
    };
    let place = gate.enter().await?;
    // Between the handshakes of two turns, everything else that is ready runs.
    tokio::task::yield_now().await;
    let mut accept = pin!(start.into_stream(Arc::clone(tls.config())));
    // The first poll computes the keys and the signature, and sends them.
    let first = std::future::poll_fn(|context| Poll::Ready(accept.as_mut().poll(context))).await;
    drop(place);
    Ok(match first {
        Poll::Ready(ended) => ended,
        Poll::Pending => accept.await,
    })
}

/// The gate of one listener. Cheap to clone.
#[derive(Clone)]
pub(in crate::server) struct HandshakeGate(Arc<Gate>);

struct Gate {
    /// A permit for each handshake that may be computed at once.
    places: Arc<Semaphore>,
    /// The permits of a handshake while Weir is overloaded: a quarter are computed, but always one.
    paced_permits: u32,
    waiting: AtomicUsize,
    /// Wakes the accept loop once few handshakes wait.
    calm: Notify,
    overload: Arc<Overload>,
    metrics: ServerMetrics,
}

/// Error: too many handshakes wait.
#[derive(Debug)]
pub(in crate::server) struct GateFull;

struct Waiting<'a>(&'a Gate);

impl HandshakeGate {
    /// Creates a gate with two places for each processor.
    pub(in crate::server) fn new(overload: Arc<Overload>, metrics: ServerMetrics) -> Self {
        let processors = available_parallelism().map_or(1, usize::from);
        Self::with_places(PLACES_PER_PROCESSOR * processors, overload, metrics)
    }

    fn with_places(places: usize, overload: Arc<Overload>, metrics: ServerMetrics) -> Self {
        let paced_permits = places.min(PACED_PART) as u32;
        let (places, waiting) = (Arc::new(Semaphore::new(places)), AtomicUsize::new(0));
        let calm = Notify::new();
        Self(Arc::new(Gate { places, paced_permits, waiting, calm, overload, metrics }))
    }

    /// Waits for a place, which is free again once it is dropped. Cancel safe.
    pub(in crate::server) async fn enter(&self) -> Result<OwnedSemaphorePermit, GateFull> {
        let gate = &*self.0;
        let permits = if gate.is_paced() { gate.paced_permits } else { 1 };
        if let Ok(place) = Arc::clone(&gate.places).try_acquire_many_owned(permits) {
            return Ok(place);
        }
        let before = gate.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = (Waiting(gate), gate.metrics.handshake_waiting());
        if before >= WAITING_MAX {
            return Err(GateFull);
        }
        Arc::clone(&gate.places).acquire_many_owned(permits).await.map_err(|_| GateFull)
    }

    /// Waits until few handshakes wait. Only one task may call this.
    pub(in crate::server) async fn until_calm(&self) {
        while !self.0.is_calm() {
            self.0.calm.notified().await;
        }
    }
}

impl Gate {
    /// Whether the present stage of overload leaves a part of the limits to new connections.
    fn is_paced(&self) -> bool {
        self.overload.stage() >= Stage::InitialStates
    }

    fn is_calm(&self) -> bool {
        let busy_at = if self.is_paced() { BUSY_AT / PACED_PART } else { BUSY_AT };
        self.waiting.load(Ordering::Relaxed) < busy_at
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
        if self.0.is_calm() {
            self.0.calm.notify_one();
        }
    }
}

/// A handshake takes two round trips.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The part of the limits that new connections have while Weir is overloaded.
const PACED_PART: usize = 4;
/// One that computes, and one that is ready when it ends.
const PLACES_PER_PROCESSOR: usize = 2;
/// From this number of waiting handshakes on, no further connection is accepted: some tens of
/// milliseconds of work.
const BUSY_AT: usize = 64;
/// Limit of the handshakes that wait. Connections that were accepted before the gate was busy may
/// be more than [`BUSY_AT`], since their first bytes arrive later.
const WAITING_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use tokio::task::{JoinHandle, yield_now};

    use super::*;
    use crate::flow::overload::Signals;
    use crate::server::overload::Stages;

    fn gate(places: usize) -> HandshakeGate {
        let metrics = ServerMetrics::register(&prometheus::Registry::new()).unwrap();
        HandshakeGate::with_places(places, Overload::calm(), metrics)
    }

    /// Starts handshakes that end as soon as they have a place, and waits until `count` wait.
    async fn pass(gate: &HandshakeGate, count: usize) -> Vec<JoinHandle<Result<(), GateFull>>> {
        let pass = || {
            let gate = gate.clone();
            tokio::spawn(async move { gate.enter().await.map(drop) })
        };
        let passing = (0..count).map(|_| pass()).collect();
        while gate.0.waiting.load(Ordering::Relaxed) < count {
            yield_now().await;
        }
        passing
    }

    #[tokio::test]
    async fn while_weir_is_overloaded_few_handshakes_are_computed() {
        for (usual, paced) in [(8, 2), (4, 1), (2, 1)] {
            let gate = gate(usual);
            let places = async || {
                let mut places = Vec::new();
                while let Poll::Ready(place) = futures_util::poll!(pin!(gate.enter())) {
                    places.push(place.unwrap());
                }
                places.len()
            };
            assert_eq!(places().await, usual);
            let stages = Stages { overall: Stage::InitialStates, space: Stage::Calm };
            gate.0.overload.set(stages, &Signals::default());
            assert_eq!(places().await, paced);
            assert_eq!(gate.0.waiting.load(Ordering::Relaxed), 0);
        }
    }

    #[tokio::test]
    async fn the_newest_is_refused_and_the_loop_pauses() {
        let gate = gate(1);
        let place = gate.enter().await.unwrap();
        let waiting = pass(&gate, WAITING_MAX).await;
        assert!(gate.enter().await.is_err());
        let mut calm = pin!(gate.until_calm());
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(calm.as_mut().poll(&mut context), Poll::Pending);
        drop(place);
        for passed in waiting {
            passed.await.unwrap().unwrap();
        }
        calm.await;
    }

    #[tokio::test]
    async fn a_client_that_is_gone_leaves_its_turn() {
        let gate = gate(1);
        let place = gate.enter().await.unwrap();
        let [gone, next] = pass(&gate, 2).await.try_into().unwrap();
        gone.abort();
        drop(place);
        next.await.unwrap().unwrap();
        assert_eq!(gate.0.waiting.load(Ordering::Relaxed), 0);
    }
}

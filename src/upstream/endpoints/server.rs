//! One API server of the upstream: its address, where it was found, its health and its load.
//!
//! Every request to one of several API servers asks whether it is usable, and notes its outcome.
//! Therefore the state is published in atomics, and a response takes the lock of the health only
//! while something is wrong with the server ([`ApiServer::note`]).
//!
//! Locks: those of the health and of the uid, held for a few instructions and never together.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

use super::catch_up::CatchUps;
use super::choice;
use super::health::{Health, Outcome, ProbeResult, State};
use super::load::Load;
use super::metrics::ServerMetrics;
use crate::upstream::credentials::Endpoint;

/// The origin of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The server of the kubeconfig or of the service account. If there are other API servers, it
    /// is the last resort.
    Configured,
    /// `upstream.endpoints.static`.
    Static,
    /// DNS or an EndpointSlice. It is used once it is known to serve the same cluster.
    Discovery,
}

/// Whether a server may be used at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Admission {
    /// It is not known yet which cluster it serves.
    Unknown,
    /// It serves the cluster of the upstream.
    SameCluster,
    /// It serves another cluster.
    OtherCluster,
    /// It is this Weir.
    Loop,
}

pub(crate) struct ApiServer {
    /// A hash of the address, which is the same in all Weirs.
    pub(crate) key: u64,
    pub(crate) endpoint: Endpoint,
    pub(crate) origin: Origin,
    /// The load of requests. Its latencies count for streams, too.
    pub(crate) requests: Arc<Load>,
    /// The watches and other streams in progress.
    pub(crate) streams: Arc<Load>,
    /// Notified when the server should be probed at once.
    pub(crate) suspected: Notify,
    pub(crate) metrics: ServerMetrics,
    /// The progress of its watch caches.
    pub(crate) catch_ups: CatchUps,
    health: Mutex<HealthRecord>,
    /// One permit for each watch of a reflector that may leave the draining server now.
    departures: Semaphore,
    state: AtomicU8,
    /// Whether each outcome must be noted in `health`.
    is_observed: AtomicBool,
    admission: AtomicU8,
    /// The uid of its kube-system, once it answered.
    pub(super) uid: Mutex<Option<String>>,
    /// Whether it was found, and Weir may not read which cluster it serves.
    is_unverified: AtomicBool,
    is_lagging: AtomicBool,
    /// The part of its seats that it may have, as the bits of an `f32`.
    seats_bits: AtomicU32,
    /// Notified when the state changes.
    changed: Notify,
}

/// The health, and the state that the log and the metrics show.
struct HealthRecord {
    health: Health,
    word: &'static str,
}

/// A [`State`] for an atomic.
const USABLE: u8 = 0;
const DRAINING: u8 = 1;
const OUT: u8 = 2;
const UNREACHABLE: u8 = 3;

impl ApiServer {
    pub(super) fn new(
        endpoint: Endpoint,
        origin: Origin,
        metrics: ServerMetrics,
        now: Instant,
    ) -> Self {
        let health = match origin {
            Origin::Configured | Origin::Static => Health::configured(),
            Origin::Discovery => Health::unprobed(now),
        };
        let state = health.state(now);
        metrics.state(state);
        metrics.admitted(origin != Origin::Discovery);
        let server = Self {
            key: choice::key(&endpoint.to_string()),
            endpoint,
            origin,
            requests: Arc::new(Load::new(now)),
            streams: Arc::new(Load::new(now)),
            suspected: Notify::new(),
            metrics,
            catch_ups: CatchUps::default(),
            health: Mutex::new(HealthRecord { health, word: state.as_str() }),
            departures: Semaphore::new(0),
            state: AtomicU8::new(USABLE),
            is_observed: AtomicBool::new(false),
            admission: AtomicU8::new(Admission::Unknown as u8),
            uid: Mutex::default(),
            is_unverified: AtomicBool::new(false),
            is_lagging: AtomicBool::new(false),
            seats_bits: AtomicU32::new(1.0_f32.to_bits()),
            changed: Notify::new(),
        };
        server.publish(&server.health.lock().health, state);
        server
    }

    /// Returns whether requests may be sent to it, whatever its health.
    pub(crate) fn is_admitted(&self) -> bool {
        match self.admission() {
            Admission::SameCluster => true,
            Admission::Unknown => self.origin != Origin::Discovery,
            Admission::OtherCluster | Admission::Loop => false,
        }
    }

    pub(crate) fn is_usable(&self) -> bool {
        self.state.load(Ordering::Relaxed) == USABLE
    }

    /// Returns whether it may get a request that another server has refused for its own load.
    pub(crate) fn is_calm(&self) -> bool {
        self.is_admitted() && self.is_usable() && !self.requests.is_avoided(Instant::now())
    }

    /// Returns whether it shuts down: what is in progress there goes on.
    pub(crate) fn is_draining(&self) -> bool {
        self.state.load(Ordering::Relaxed) == DRAINING
    }

    /// Returns whether it was ever reached.
    pub(crate) fn was_reached(&self) -> bool {
        self.state.load(Ordering::Relaxed) != UNREACHABLE
    }

    /// Returns whether its watch cache lags too far for reads that may show an older state.
    pub(super) fn is_lagging(&self) -> bool {
        self.is_lagging.load(Ordering::Relaxed)
    }

    pub(super) fn set_lagging(&self, is_lagging: bool) {
        if self.is_lagging.swap(is_lagging, Ordering::Relaxed) != is_lagging {
            tracing::warn!(server = %self.endpoint, is_lagging, "the lag of an API server changed");
        }
    }

    /// Sets the part of its seats that forwarded requests may take
    /// (`docs/decisions/adaptive-limits.md`).
    pub(crate) fn set_seats_part(&self, part: f32) {
        self.seats_bits.store(part.to_bits(), Ordering::Relaxed);
    }

    /// Returns the part of its seats that forwarded requests may take.
    pub(super) fn seats_part(&self) -> f64 {
        f64::from(f32::from_bits(self.seats_bits.load(Ordering::Relaxed)))
    }

    /// Returns whether it is not used because Weir may not read which cluster it serves.
    pub(super) fn is_unverified(&self) -> bool {
        self.is_unverified.load(Ordering::Relaxed)
    }

    pub(super) fn set_unverified(&self) {
        self.is_unverified.store(true, Ordering::Relaxed);
    }

    /// Returns which cluster it serves.
    pub(crate) fn admission(&self) -> Admission {
        let admissions = [Admission::SameCluster, Admission::OtherCluster, Admission::Loop];
        let value = self.admission.load(Ordering::Relaxed);
        admissions
            .into_iter()
            .find(|admission| *admission as u8 == value)
            .unwrap_or(Admission::Unknown)
    }

    /// Sets which cluster it serves.
    pub(crate) fn admit(&self, admission: Admission) {
        let before = self.admission();
        self.admission.store(admission as u8, Ordering::Relaxed);
        self.is_unverified.store(false, Ordering::Relaxed);
        if before == admission {
            return;
        }
        let server = &self.endpoint;
        match admission {
            Admission::OtherCluster => {
                tracing::error!(%server, "an API server serves another cluster; it is not used");
            }
            Admission::Loop => {
                tracing::error!(%server, "the address of an API server leads back to this Weir; it is not used");
            }
            Admission::SameCluster | Admission::Unknown => {
                tracing::info!(%server, "an API server serves the cluster of the upstream");
            }
        }
        self.metrics.admitted(self.is_admitted());
    }

    /// Notes the outcome of a request that began at `started`.
    pub(crate) fn note(&self, outcome: Outcome, started: Instant) {
        let is_failure = outcome == Outcome::TransportFailure;
        if !is_failure && !self.is_observed.load(Ordering::Relaxed) {
            return;
        }
        if is_failure {
            self.metrics.failed();
            self.suspected.notify_one();
        }
        self.update(|health, now| health.record(outcome, started, now));
        if is_failure {
            self.is_observed.store(true, Ordering::Relaxed);
        }
    }

    /// Notes the result of a probe of `/readyz`.
    pub(crate) fn probed(&self, result: ProbeResult) {
        self.update(|health, now| health.probe(result, now));
        if result == ProbeResult::Ready && self.is_usable() {
            self.is_observed.store(false, Ordering::Relaxed);
        }
    }

    /// Notes that a response said that the server is shutting down.
    pub(crate) fn shutting_down(&self) {
        self.update(|health, _| health.shutting_down());
    }

    /// Notes that the server sent a GOAWAY.
    pub(crate) fn goaway(&self) {
        self.update(Health::goaway);
    }

    /// Notes that a request waits for long. A probe is sent soon, and if it gets no answer either,
    /// the server is out.
    pub(crate) fn suspect(&self) {
        self.update(|health, _| health.suspect());
        self.suspected.notify_one();
    }

    /// Returns whether the server neither is usable nor drains.
    pub(crate) fn is_out(&self) -> bool {
        !self.is_usable() && !self.is_draining()
    }

    /// Waits until the server neither is usable nor drains.
    pub(crate) async fn until_out(&self) {
        loop {
            let changed = self.changed.notified();
            if self.is_out() {
                return;
            }
            changed.await;
        }
    }

    /// Publishes what time alone changes: the end of an ejection. While the server drains, lets a
    /// tenth of its watches leave, those of reflectors first.
    pub(crate) fn refresh(&self) {
        self.update(|_, _| {});
        self.departures.forget_permits(self.departures.available_permits());
        if self.is_draining() {
            self.departures.add_permits(self.streams.in_use().div_ceil(10));
        }
    }

    /// Waits until the watch of a reflector should move to another server, since this one shuts
    /// down. One after the other moves, so that they do not resume all at once.
    pub(crate) async fn until_departed(&self) {
        match self.departures.acquire().await {
            Ok(permit) => permit.forget(),
            // The semaphore is never closed.
            Err(_) => std::future::pending().await,
        }
    }

    /// Returns when the next probe is due ([`Health::next_probe`]).
    pub(crate) fn next_probe(&self, last: Instant, interval: Duration) -> Instant {
        self.health.lock().health.next_probe(last, interval)
    }

    fn update(&self, change: impl FnOnce(&mut Health, Instant)) {
        let now = Instant::now();
        let mut published = self.health.lock();
        let ejections = published.health.ejections;
        change(&mut published.health, now);
        let state = published.health.state(now);
        self.publish(&published.health, state);
        let ejections = published.health.ejections.saturating_sub(ejections);
        let before = std::mem::replace(&mut published.word, state.as_str());
        drop(published);
        self.metrics.ejected(ejections);
        if before != state.as_str() {
            self.metrics.state(state);
            self.changed.notify_waiters();
            let (server, to) = (&self.endpoint, state.as_str());
            tracing::info!(%server, from = before, to, "the state of an API server changed");
        }
    }

    /// Publishes the state. Called under the lock of the health, so that the latest one wins.
    fn publish(&self, health: &Health, state: State) {
        let word = match state {
            _ if !health.was_reached() => UNREACHABLE,
            State::Usable => USABLE,
            State::Draining => DRAINING,
            State::Ejected | State::HalfOpen => OUT,
            State::Unreachable => UNREACHABLE,
        };
        self.state.store(word, Ordering::Relaxed);
        if state != State::Usable {
            self.is_observed.store(true, Ordering::Relaxed);
        }
    }
}

impl std::fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiServer").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

//! Whether the upstream is away: no API server was usable for a second
//! (`docs/decisions/upstream-away.md`).
//!
//! Only checks decide ([`Availability::note_check`]). The outcome of a client's request asks for a
//! check at most: a failed dial may be the fault of one identity's certificate, a lost connection
//! that of a load balancer, and a late response that of a slow webhook. A second without any
//! response while requests wait asks for a check too, since a frozen API server accepts connections
//! and never answers.
//!
//! The state is "usable" until the first failed check. Requests read it with one atomic load.
//!
//! Invariant: `is_usable` follows `state`, and both change under the lock of `state`.

mod metrics;
#[cfg(test)]
mod tests;
mod traffic;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use http::StatusCode;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

pub use self::metrics::AvailabilityMetrics;
use self::traffic::Traffic;
pub(crate) use self::traffic::Waiting;
use crate::telemetry::events::EventKind;

/// The availability of the upstream, for all identities. Cheap to clone.
#[derive(Clone)]
pub struct Availability {
    inner: Arc<Inner>,
}

struct Inner {
    is_usable: AtomicBool,
    /// The number of times that the upstream became usable again.
    returns: AtomicU64,
    state: watch::Sender<State>,
    /// Notified when the outcome of a request asks for a check.
    suspected: Notify,
    traffic: Traffic,
    metrics: AvailabilityMetrics,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// An API server answered something that was sent at this time; `None` before the first check.
    Usable(Option<Instant>),
    /// No API server answers since this time.
    Unusable(Instant),
}

impl Availability {
    /// Creates the availability of an upstream that was not checked yet. It counts as usable.
    pub(crate) fn new(metrics: AvailabilityMetrics) -> Self {
        let inner = Inner {
            is_usable: AtomicBool::new(true),
            returns: AtomicU64::new(0),
            state: watch::Sender::new(State::Usable(None)),
            suspected: Notify::new(),
            traffic: Traffic::default(),
            metrics,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Returns whether the last check was answered.
    pub fn is_usable(&self) -> bool {
        self.inner.is_usable.load(Ordering::Relaxed)
    }

    /// Returns how often an API server was usable again after none was. A failure before
    /// the last return says nothing about the time after it.
    pub(crate) fn returns(&self) -> u64 {
        self.inner.returns.load(Ordering::Relaxed)
    }

    /// Returns whether no API server was usable for [`AWAY_AFTER`].
    pub fn is_away(&self) -> bool {
        self.away_since().is_some()
    }

    /// Returns since when no API server is usable, if the upstream is away.
    pub fn away_since(&self) -> Option<Instant> {
        self.unusable_since().filter(|since| since.elapsed() >= AWAY_AFTER)
    }

    /// Returns since when no API server is usable; `None` while one is.
    pub fn unusable_since(&self) -> Option<Instant> {
        if self.is_usable() {
            return None;
        }
        match *self.inner.state.borrow() {
            State::Usable(_) => None,
            State::Unusable(since) => Some(since),
        }
    }

    /// Returns the metrics of the upstream's absence.
    pub(crate) fn metrics(&self) -> &AvailabilityMetrics {
        &self.inner.metrics
    }

    /// Notes the result of a check that was sent at `sent`.
    pub(crate) fn note_check(&self, sent: Instant, is_answered: bool) {
        self.set(if is_answered { State::Usable(Some(sent)) } else { State::Unusable(sent) });
    }

    /// Notes the head of a response to a request that was sent at `sent`. It ends an absence at
    /// once. The gateway errors are those of a load balancer without an API server.
    pub(crate) fn note_response(&self, sent: Instant, status: StatusCode) {
        if !self.is_usable() && !is_gateway_error(status) {
            self.note_check(sent, true);
        }
    }

    /// Asks for a check, because a request failed.
    pub(crate) fn suspect(&self) {
        self.inner.suspected.notify_one();
    }

    /// Counts a request that waits for its response until the guard is dropped.
    pub(crate) fn waiting(&self) -> Waiting<'_> {
        self.inner.traffic.begin()
    }

    /// Waits until the check after the one that began at `last` is due.
    pub(crate) async fn next_check(&self, last: Instant) -> CheckCause {
        if !self.is_usable() {
            let pause = if self.is_away() { AWAY_PAUSE } else { FAILING_PAUSE };
            sleep_until(last + jittered(pause)).await;
            return CheckCause::Suspicion;
        }
        tokio::select! {
            biased;
            () = self.inner.suspected.notified() => {
                sleep_until(last + SUSPICION_PAUSE).await;
                CheckCause::Suspicion
            }
            () = self.until_silent(last + SILENCE_PAUSE) => CheckCause::Suspicion,
            () = sleep_until(last + jittered(INTERVAL)) => CheckCause::Interval,
        }
    }

    /// Waits until requests wait and nothing arrives, at or after `earliest`.
    async fn until_silent(&self, earliest: Instant) {
        sleep_until(earliest).await;
        while !self.inner.traffic.is_silent() {
            sleep(SILENCE_POLL_INTERVAL).await;
        }
    }

    /// Waits until an API server is usable, or until `deadline`. Returns whether one is.
    pub(crate) async fn usable_by(&self, deadline: Instant) -> bool {
        self.is_usable() || self.wait_by(deadline, |state| matches!(state, State::Usable(_))).await
    }

    /// Waits until an API server has answered something that was sent after `moment`, or until
    /// `deadline`. Returns whether one did.
    pub(crate) async fn answered_after(&self, moment: Instant, deadline: Instant) -> bool {
        let answered = |state: &State| matches!(state, State::Usable(Some(at)) if *at >= moment);
        self.wait_by(deadline, answered).await
    }

    /// Waits until no API server is usable, at or after `earliest`.
    pub(crate) async fn until_unusable(&self, earliest: Instant) {
        sleep_until(earliest).await;
        self.wait_for(|state| matches!(state, State::Unusable(_))).await;
    }

    /// Waits until the upstream comes back. Never ends if it is not away and does not go away.
    pub(crate) async fn until_returned(&self) {
        self.until_away().await;
        self.wait_for(|state| matches!(state, State::Usable(_))).await;
    }

    /// Waits until the upstream is away.
    pub(crate) async fn until_away(&self) {
        loop {
            self.wait_for(|state| matches!(state, State::Unusable(_))).await;
            let since = match *self.inner.state.borrow() {
                State::Unusable(since) => since,
                State::Usable(_) => continue,
            };
            let usable =
                self.wait_by(since + AWAY_AFTER, |state| matches!(state, State::Usable(_)));
            if !usable.await {
                return;
            }
        }
    }

    /// Reports each absence in the log and in the metrics, until cancelled.
    pub(crate) async fn report(self, cancel: CancellationToken) {
        let report = async {
            loop {
                self.until_away().await;
                self.report_absence().await;
            }
        };
        cancel.run_until_cancelled(report).await;
    }

    async fn report_absence(&self) {
        let Some(since) = self.away_since() else { return };
        let events = self.inner.metrics.events();
        let text = "The upstream is away; caches answer what they can.";
        events.notable_begin(EventKind::Upstream, "", text, |left_out| {
            tracing::warn!(left_out, "the upstream is away; caches answer what they can");
        });
        let _away = self.inner.metrics.away();
        let mut counted = since;
        let is_back = |state: &State| matches!(state, State::Usable(_));
        while !self.wait_by(counted + REPORT_INTERVAL, is_back).await {
            let now = Instant::now();
            self.inner.metrics.away_for(now - counted);
            counted = now;
        }
        self.inner.metrics.away_for(counted.elapsed());
        let after = since.elapsed();
        let text = format!("The upstream is back after {} s.", after.as_secs().max(1));
        events.notable_end(EventKind::Upstream, "", text, |left_out| {
            tracing::info!(?after, left_out, "the upstream is back");
        });
    }

    fn set(&self, next: State) {
        self.inner.state.send_if_modified(|state| {
            let next = match (*state, next) {
                // The time of the first failed check is kept, and the latest answer.
                (State::Unusable(_), State::Unusable(_)) => *state,
                (State::Usable(Some(last_return)), State::Usable(Some(at))) => {
                    State::Usable(Some(last_return.max(at)))
                }
                // A check that was sent before the last answer says nothing about the time after.
                (State::Usable(Some(answered)), State::Unusable(sent)) if answered > sent => *state,
                (_, State::Unusable(_)) => State::Unusable(Instant::now()),
                (_, usable) => usable,
            };
            let is_usable = matches!(next, State::Usable(_));
            if is_usable && matches!(state, State::Unusable(_)) {
                self.inner.returns.fetch_add(1, Ordering::Relaxed);
            }
            self.inner.is_usable.store(is_usable, Ordering::Relaxed);
            std::mem::replace(state, next) != next
        });
    }

    async fn wait_by(&self, deadline: Instant, is_met: impl FnMut(&State) -> bool) -> bool {
        tokio::time::timeout_at(deadline, self.wait_for(is_met)).await.is_ok()
    }

    async fn wait_for(&self, is_met: impl FnMut(&State) -> bool) {
        // The sender is a part of `self`, so that the wait cannot fail.
        let _met = self.inner.state.subscribe().wait_for(is_met).await.is_ok();
    }
}

impl fmt::Debug for Availability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Availability").field(&*self.inner.state.borrow()).finish()
    }
}

/// Whether a load balancer answers in place of an API server.
pub(crate) fn is_gateway_error(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT
    )
}

/// The upstream is away when no API server was usable for this time. A failover is shorter.
pub(crate) const AWAY_AFTER: Duration = Duration::from_secs(1);
/// The interval of adding the time of an absence to its metric.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Why a check is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckCause {
    /// The interval has passed, and nothing indicates a failure.
    Interval,
    /// A request failed or waits for long, or the last check failed.
    Suspicion,
}

/// Returns the duration, less or more by up to a fifth: many Weirs must not check at once.
fn jittered(duration: Duration) -> Duration {
    duration.mul_f64(0.8 + 0.4 * fastrand::f64())
}

/// The interval of checks while nothing indicates a failure: long enough to cost nothing, short
/// enough that `/readyz` is right within two probe periods of the kubelet.
const INTERVAL: Duration = Duration::from_secs(10);
/// The pause between the starts of two checks while the upstream fails, and is not away yet.
const FAILING_PAUSE: Duration = Duration::from_millis(200);
/// The pause between the starts of two checks while the upstream is away.
const AWAY_PAUSE: Duration = Duration::from_secs(1);
/// The pause before a check that a failed request asks for.
const SUSPICION_PAUSE: Duration = Duration::from_millis(200);
/// The pause before a check because nothing arrives. A slow webhook looks the same.
const SILENCE_PAUSE: Duration = Duration::from_secs(2);
const SILENCE_POLL_INTERVAL: Duration = Duration::from_secs(1);

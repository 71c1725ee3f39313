//! Shadow mode: every read is answered by the upstream, and compared with what the cache would have
//! answered at the same state (`docs/decisions/shadow-mode.md`).
//!
//! [`selection`] says which reads are compared, [`copy`] copies an answer while it is relayed,
//! [`request`] is what is kept of the read, and [`beside`] has the cache answer it again, for which
//! [`answer`] and [`watch`] wait. The comparison is pure: [`body`] and [`version`] for bodies,
//! [`events`] for watches, [`path`] for the place of a difference. [`ledger`] counts, [`report`]
//! shows, [`outcome`] names the outcomes.
//!
//! Invariants: the client's answer is the upstream's, and does not wait for a comparison. Copies
//! have a bound in bytes, comparisons a share of the CPU; beyond them reads are counted and not
//! compared. Nothing of a body is kept after its comparison.
//!
//! Locks: the pace, the ledger, each alone.

mod answer;
pub(crate) mod beside;
pub(crate) mod body;
pub(crate) mod copy;
pub(crate) mod events;
pub(crate) mod ledger;
pub(crate) mod outcome;
mod path;
pub(crate) mod report;
pub(crate) mod request;
pub(crate) mod selection;
pub(crate) mod version;
mod watch;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;

use crate::codec::held_bytes::{Claim, HeldBytes};
use crate::config::ShadowConfig;
use crate::server::shadow::ledger::{Difference, DifferingPart, Ledger, Measured};
use crate::server::shadow::outcome::{Cause, Outcome, ShadowMetrics};
use crate::server::shadow::request::{
    Comparison, ReadKind, ShadowRequest, report_target, shown_form,
};
use crate::telemetry::log_throttle::LogThrottle;

/// The comparisons of shadow mode, and their results.
pub struct Shadow {
    /// Counts copies.
    held: HeldBytes,
    /// Counts the pieces of the cache's answers. Never full: an answer that is not
    /// compressed would differ.
    made: HeldBytes,
    began: Instant,
    pace: Mutex<Pace>,
    ledger: Mutex<Ledger>,
    log: LogThrottle,
    metrics: ShadowMetrics,
    comparisons: mpsc::Sender<Comparison>,
    /// Taken by the task that compares.
    pub(crate) queue: Mutex<Option<mpsc::Receiver<Comparison>>>,
    /// Comparisons that were submitted and have not ended.
    open: AtomicUsize,
    /// Permits to ask the upstream whether a quiet cache has everything.
    pub(crate) short_watches: Semaphore,
    pub(crate) confirmations: Semaphore,
}

impl Shadow {
    /// Creates the state of shadow mode.
    pub fn new(config: &ShadowConfig, metrics: ShadowMetrics) -> Arc<Self> {
        let (comparisons, queue) = mpsc::channel(WAITING_MAX);
        Arc::new(Self {
            held: HeldBytes::new(HELD_BYTES_MAX),
            made: HeldBytes::new(usize::MAX),
            began: Instant::now(),
            pace: Mutex::new(Pace::new(config.cpu_share.fraction())),
            ledger: Mutex::default(),
            log: LogThrottle::new(LOG_INTERVAL),
            metrics,
            comparisons,
            queue: Mutex::new(Some(queue)),
            open: AtomicUsize::new(0),
            short_watches: Semaphore::new(SHORT_WATCHES_MAX),
            confirmations: Semaphore::new(CONFIRMATIONS_MAX),
        })
    }

    /// Returns the report as JSON.
    pub fn report(&self) -> Map<String, Value> {
        report::json(&self.ledger.lock(), self.began.elapsed())
    }

    /// Returns the report as text.
    pub fn text(&self) -> String {
        report::text(&self.ledger.lock(), self.began.elapsed())
    }

    /// Waits until no comparison is open, but not longer than `timeout`.
    pub async fn settle(&self, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        while self.open.load(Ordering::Acquire) > 0 && Instant::now() < deadline {
            tokio::time::sleep(SETTLE_STEP).await;
        }
    }

    /// Counts bytes of a copy; `None` if there is no room for them.
    pub(crate) fn claim(&self, bytes: usize) -> Option<Claim> {
        let fits = self.held.bytes() + bytes <= HELD_BYTES_MAX;
        fits.then(|| self.held.claim(bytes))
    }

    pub(crate) fn made(&self) -> &HeldBytes {
        &self.made
    }

    /// Begins a comparison, or counts it as not made.
    pub(crate) fn submit(&self, comparison: Comparison) {
        let rejected = if self.pace.lock().is_spent(self.began.elapsed()) {
            Some(comparison)
        } else {
            self.open.fetch_add(1, Ordering::AcqRel);
            let sent = self.comparisons.try_send(comparison);
            sent.err().map(|error| {
                self.end_comparison();
                error.into_inner()
            })
        };
        if let Some(comparison) = rejected {
            self.count(&comparison.request, Cause::Busy.into());
        }
    }

    pub(crate) fn end_comparison(&self) {
        self.open.fetch_sub(1, Ordering::AcqRel);
    }

    /// Counts a read of which nothing was measured.
    pub(crate) fn count(&self, request: &ShadowRequest, outcome: Outcome) {
        let measured = Measured { forwards: request.forwards, ..Measured::default() };
        self.record(&request.kind, outcome, &measured);
    }

    /// Counts a read that is not compared.
    pub(crate) fn record(&self, kind: &ReadKind, outcome: Outcome, measured: &Measured) {
        self.metrics.count(kind.verb, outcome);
        self.ledger.lock().count(kind, outcome, measured);
    }

    pub(crate) fn record_events(&self, kind: &ReadKind, events: u64) {
        if events > 0 {
            self.ledger.lock().count_events(kind, events);
        }
    }

    pub(crate) fn keep(&self, request: &ShadowRequest, outcome: Outcome, what: DifferingPart) {
        if let Some(suppressed) = self.log.try_acquire() {
            tracing::warn!(
                client = &*request.kind.agent,
                verb = request.kind.verb,
                resource = &*request.kind.resource,
                outcome = outcome.as_str(),
                suppressed,
                "an answer of the upstream differs from the cache's: see /api/shadow"
            );
        }
        self.ledger.lock().keep(Difference {
            time: SystemTime::now(),
            kind: request.kind.clone(),
            request: report_target(&request.parts),
            form: shown_form(&request.parts.headers),
            outcome,
            what,
        });
    }

    fn spend(&self, busy: Duration) {
        self.pace.lock().spend(self.began.elapsed(), busy);
    }
}

/// A comparison, whose time counts against the share of the CPU.
pub(crate) struct Charged<F> {
    shadow: Arc<Shadow>,
    comparison: Pin<Box<F>>,
}

impl<F> Charged<F> {
    pub(crate) fn new(shadow: Arc<Shadow>, comparison: F) -> Self {
        Self { shadow, comparison: Box::pin(comparison) }
    }
}

impl<F: Future> Future for Charged<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let began = Instant::now();
        let polled = self.comparison.as_mut().poll(context);
        self.shadow.spend(began.elapsed());
        polled
    }
}

impl<F> Drop for Charged<F> {
    fn drop(&mut self) {
        self.shadow.end_comparison();
    }
}

/// The CPU time of comparisons, as far as their share has not paid for it yet: a bucket that leaks
/// at the share, and fills with the time for which comparisons ran. While it is full, no comparison
/// begins. Pure: the time is an argument.
#[derive(Debug)]
struct Pace {
    share: f64,
    /// Seconds that are not paid for.
    level: f64,
    at: Duration,
}

impl Pace {
    fn new(share: f64) -> Self {
        Self { share, level: 0.0, at: Duration::ZERO }
    }

    fn spend(&mut self, now: Duration, busy: Duration) {
        self.leak(now);
        self.level += busy.as_secs_f64();
    }

    fn is_spent(&mut self, now: Duration) -> bool {
        self.leak(now);
        self.level > BURST_SECONDS
    }

    fn leak(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.level = (self.level - passed * self.share).max(0.0);
        self.at = self.at.max(now);
    }
}

/// The bound of all copies, with the pieces that they are joined to.
pub(crate) const HELD_BYTES_MAX: usize = 64 << 20;
/// Comparisons that wait for the task that begins them.
const WAITING_MAX: usize = 1_024;
/// A comparison with a quiet cache costs the API server a short watch.
const SHORT_WATCHES_MAX: usize = 4;
const CONFIRMATIONS_MAX: usize = 2;
/// Each difference is in the report.
const LOG_INTERVAL: Duration = Duration::from_secs(1);
const SETTLE_STEP: Duration = Duration::from_millis(20);
/// A start of many clients at once is compared without a pause: some hundred lists.
const BURST_SECONDS: f64 = 1.0;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_burst_is_paid_for_over_time() {
        let mut pace = Pace::new(0.1);
        pace.spend(Duration::ZERO, Duration::from_millis(1500));
        assert!(pace.is_spent(Duration::ZERO));
        assert!(pace.is_spent(Duration::from_secs(4)));
        assert!(!pace.is_spent(Duration::from_secs(6)));
    }

    proptest! {
        /// No more is spent than the share, the burst and one comparison, whatever arrives.
        #[test]
        fn the_share_bounds_what_is_spent(
            share in 0.01..1.0_f64,
            steps in prop::collection::vec((0..5_000_u64, 0..2_000_u64), 1..200),
        ) {
            let (mut pace, mut now, mut spent) = (Pace::new(share), Duration::ZERO, 0.0);
            let mut longest = 0.0_f64;
            for (pause, busy) in steps {
                now += Duration::from_millis(pause);
                if !pace.is_spent(now) {
                    let busy = Duration::from_millis(busy);
                    pace.spend(now, busy);
                    spent += busy.as_secs_f64();
                    longest = longest.max(busy.as_secs_f64());
                }
            }
            let most = share * now.as_secs_f64() + BURST_SECONDS + longest + 1e-6;
            prop_assert!(spent <= most, "{spent} of {most}");
        }
    }
}

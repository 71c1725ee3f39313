//! The state that all watchers of a run share: the number of open watches, and their observations.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use crate::testbed::UNKNOWN;

/// The shared part of all watchers.
pub(crate) struct Crowd {
    watchers: usize,
    open: AtomicUsize,
    seen: Mutex<Seen>,
    /// Events that a watcher did not get, or got twice.
    wrong_events: AtomicU64,
    /// The last change of each resource that each watcher has, by its number.
    ticks: Vec<AtomicU64>,
    stopped: AtomicBool,
}

/// The observations of the watchers since the start of a phase.
#[derive(Default)]
pub(crate) struct Seen {
    started: Option<Instant>,
    /// Watches that ended.
    pub(crate) ended: usize,
    /// Lists after a 410.
    pub(crate) relists: usize,
    /// Watches that the API server answered.
    pub(crate) forwarded: usize,
    /// Responses by status.
    pub(crate) codes: BTreeMap<u16, usize>,
    /// Attempts without a response.
    pub(crate) broken: usize,
    /// The longest `Retry-After`.
    pub(crate) retry_after_max: u64,
    /// How long after the start of the phase watches were open.
    pub(crate) resumed: Vec<Duration>,
}

impl Crowd {
    pub(crate) fn new(watchers: usize) -> Self {
        Self {
            watchers,
            open: AtomicUsize::new(0),
            seen: Mutex::default(),
            wrong_events: AtomicU64::new(0),
            ticks: (0..watchers).map(|_| AtomicU64::new(0)).collect(),
            stopped: AtomicBool::new(false),
        }
    }

    /// Starts a phase: forgets what was seen.
    pub(crate) fn start_phase(&self) {
        *self.seen.lock() = Seen { started: Some(Instant::now()), ..Seen::default() };
    }

    /// Lets times count from now on.
    pub(crate) fn start_clock(&self) {
        self.seen.lock().started = Some(Instant::now());
    }

    /// Returns what was seen in the phase.
    pub(crate) fn take_seen(&self) -> Seen {
        std::mem::take(&mut self.seen.lock())
    }

    pub(crate) fn note(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut self.seen.lock());
    }

    pub(crate) fn opened(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
        self.note(|seen| {
            if let Some(started) = seen.started {
                seen.resumed.push(started.elapsed());
            }
        });
    }

    pub(crate) fn closed(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        self.note(|seen| seen.ended += 1);
    }

    /// Notes the change `tick` of watcher `number`, which must follow the last one.
    pub(crate) fn ticked(&self, number: usize, tick: u64) {
        let Some(last) = self.ticks.get(number) else { return };
        let last = last.swap(tick, Ordering::Relaxed);
        if last != UNKNOWN && last + 1 != tick {
            self.wrong_events.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes the state that watcher `number` has listed.
    pub(crate) fn listed(&self, number: usize, tick: u64) {
        if let Some(last) = self.ticks.get(number) {
            last.store(tick, Ordering::Relaxed);
        }
    }

    pub(crate) fn wrong_events(&self) -> u64 {
        self.wrong_events.load(Ordering::Relaxed)
    }

    /// Ends all watchers.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Waits until all watches are open. Returns whether they are within `timeout`.
    pub(crate) async fn all_open(&self, timeout: Duration) -> bool {
        until(timeout, || self.open.load(Ordering::Relaxed) == self.watchers).await
    }

    /// Waits until all watches are closed.
    pub(crate) async fn all_closed(&self) {
        let closed = until(Duration::from_secs(20), || self.open.load(Ordering::Relaxed) == 0);
        assert!(closed.await, "the watches of a dead Weir are still open");
    }

    /// Waits until each watcher has the change that `newest` returns for its number; `None` for one
    /// that gets no changes.
    pub(crate) async fn all_have(
        &self,
        timeout: Duration,
        newest: impl Fn(usize) -> Option<u64>,
    ) -> bool {
        let has = |(number, tick): (usize, &AtomicU64)| {
            let tick = tick.load(Ordering::Relaxed);
            newest(number).is_none_or(|newest| tick != UNKNOWN && tick >= newest)
        };
        until(timeout, || self.ticks.iter().enumerate().all(has)).await
    }
}

async fn until(timeout: Duration, condition: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + timeout;
    while !condition() {
        if Instant::now() > deadline {
            return false;
        }
        sleep(Duration::from_millis(10)).await;
    }
    true
}

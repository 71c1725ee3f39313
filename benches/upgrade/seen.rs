//! The observations of the clients since the start of the upgrade.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use crate::objects::RESOURCES;
use crate::requester::Kind;

/// The shared part of all clients.
pub(crate) struct Seen {
    watchers: usize,
    open: AtomicUsize,
    pub(crate) events: AtomicUsize,
    /// Events that a watcher did not get, or got twice.
    pub(crate) wrong_events: AtomicUsize,
    /// The last change that each watcher has.
    have: Vec<AtomicU64>,
    /// The last change of each resource that the writer knows to be written.
    pub(crate) written: [AtomicU64; RESOURCES.len()],
    requests_stopped: AtomicBool,
    pub(crate) figures: Mutex<Figures>,
}

/// The counts.
pub(crate) struct Figures {
    started: Instant,
    /// Watches that ended, by the way.
    pub(crate) ended: BTreeMap<&'static str, usize>,
    /// Watches that were opened again, and when.
    pub(crate) resumed: Vec<Duration>,
    /// How long watchers were without a watch, in seconds.
    pub(crate) without: Vec<f64>,
    /// Watches that were refused in a way that client-go repeats: 429 and 500.
    pub(crate) retried: usize,
    /// Lists of watchers, by their causes.
    pub(crate) lists: BTreeMap<String, usize>,
    /// Watches that the API server answered.
    pub(crate) forwarded: usize,
    /// Latencies of requests in milliseconds.
    pub(crate) answered: BTreeMap<Kind, Vec<f64>>,
    /// Requests without a good answer.
    pub(crate) failed: Vec<String>,
    /// Requests that were sent on a second connection, since the first did not take them.
    pub(crate) repeated: usize,
}

impl Figures {
    fn new() -> Self {
        Self {
            started: Instant::now(),
            ended: BTreeMap::new(),
            resumed: Vec::new(),
            without: Vec::new(),
            retried: 0,
            lists: BTreeMap::new(),
            forwarded: 0,
            answered: BTreeMap::new(),
            failed: Vec::new(),
            repeated: 0,
        }
    }
}

impl Seen {
    pub(crate) fn new(watchers: usize) -> Self {
        Self {
            watchers,
            open: AtomicUsize::new(0),
            events: AtomicUsize::new(0),
            wrong_events: AtomicUsize::new(0),
            have: (0..watchers).map(|_| AtomicU64::new(0)).collect(),
            written: [0; RESOURCES.len()].map(AtomicU64::new),
            requests_stopped: AtomicBool::new(false),
            figures: Mutex::new(Figures::new()),
        }
    }

    pub(crate) fn watchers(&self) -> usize {
        self.watchers
    }

    /// Forgets what was seen before the upgrade, but for wrong events.
    pub(crate) fn start(&self) {
        *self.figures.lock() = Figures::new();
        self.events.store(0, Ordering::Relaxed);
    }

    pub(crate) fn note(&self, change: impl FnOnce(&mut Figures)) {
        change(&mut self.figures.lock());
    }

    pub(crate) fn opened(&self, without: Duration) {
        self.open.fetch_add(1, Ordering::Relaxed);
        self.note(|figures| {
            figures.resumed.push(figures.started.elapsed());
            figures.without.push(without.as_secs_f64());
        });
    }

    pub(crate) fn closed(&self, how: &'static str) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        self.note(|figures| *figures.ended.entry(how).or_default() += 1);
    }

    /// Notes the change `tick` that watcher `number` got, which must follow its last one.
    pub(crate) fn ticked(&self, number: usize, tick: u64) {
        let Some(last) = self.have.get(number) else { return };
        self.events.fetch_add(1, Ordering::Relaxed);
        if last.swap(tick, Ordering::Relaxed) + 1 != tick {
            self.wrong_events.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes the state that watcher `number` has listed.
    pub(crate) fn listed(&self, number: usize, tick: u64) {
        if let Some(last) = self.have.get(number) {
            last.store(tick, Ordering::Relaxed);
        }
    }

    /// Lets readers and the writer end.
    pub(crate) fn stop_requests(&self) {
        self.requests_stopped.store(true, Ordering::Relaxed);
    }

    pub(crate) fn are_requests_stopped(&self) -> bool {
        self.requests_stopped.load(Ordering::Relaxed)
    }

    /// Waits until all watches are open.
    pub(crate) async fn all_open(&self, timeout: Duration) -> bool {
        until(timeout, || self.open.load(Ordering::Relaxed) == self.watchers).await
    }

    /// Waits until all watches are open, and each watcher has the last change.
    pub(crate) async fn all_complete(&self, timeout: Duration) -> bool {
        let has = |(number, have): (usize, &AtomicU64)| {
            let written = self.written.get(number % RESOURCES.len());
            let written = written.map_or(0, |count| count.load(Ordering::Relaxed));
            is_quiet(number) || have.load(Ordering::Relaxed) >= written
        };
        let is_open = || self.open.load(Ordering::Relaxed) == self.watchers;
        until(timeout, || is_open() && self.have.iter().enumerate().all(has)).await
    }
}

/// Whether a watcher watches one object that does not change.
pub(crate) fn is_quiet(number: usize) -> bool {
    number / RESOURCES.len() % 5 == 4
}

async fn until(timeout: Duration, condition: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + timeout;
    while !condition() {
        if Instant::now() > deadline {
            return false;
        }
        sleep(Duration::from_millis(20)).await;
    }
    true
}

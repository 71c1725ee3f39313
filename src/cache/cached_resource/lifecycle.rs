//! The life of a cache: from its creation to the end of its reflector.
//!
//! A cache is asked to end in one of two ways. [`Lifecycle::stop`] ends the reflector at once.
//! [`Lifecycle::retire`] lets it apply the rest of its present watch first.
//!
//! Invariant: `ended` is set once, after the registry has stored the reason.
//!
//! Lock order: `stop_reason`, with no other lock; the value of `watching`, then `unwatched_since`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::resource_version::ResourceVersion;
use crate::cache::refusal::Refusal;

/// The state of a cache's life.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    pub(crate) created: Instant,
    /// The lowest resourceVersion from which a watcher wants to start; `u64::MAX` if there is none.
    lowest_start: AtomicU64,
    /// Whether an earlier cache of the same key exceeded a byte budget. If so, requests do not wait
    /// for this one.
    pub(crate) was_over_budget: bool,
    ready: AtomicBool,
    watching: watch::Sender<bool>,
    /// The time at which the watch was closed, if it was open or the first list is complete.
    unwatched_since: Mutex<Option<Instant>>,
    /// Whether the reflector has failed since the watch was last open.
    has_failed: AtomicBool,
    retiring: watch::Sender<bool>,
    /// Ends the reflector and the other tasks of the cache.
    pub(crate) cancel: CancellationToken,
    stop_reason: Mutex<Option<Refusal>>,
    ended: watch::Sender<Option<Refusal>>,
}

impl Lifecycle {
    /// Starts the life of a cache whose reflector ends with `cancel`.
    pub(crate) fn new(cancel: CancellationToken, was_over_budget: bool) -> Self {
        Self {
            created: Instant::now(),
            lowest_start: AtomicU64::new(u64::MAX),
            was_over_budget,
            ready: AtomicBool::new(false),
            watching: watch::Sender::new(false),
            unwatched_since: Mutex::new(None),
            has_failed: AtomicBool::new(false),
            retiring: watch::Sender::new(false),
            cancel,
            stop_reason: Mutex::new(None),
            ended: watch::Sender::new(None),
        }
    }

    /// Notes that a watcher wants to start at `after`.
    pub(crate) fn ask_start(&self, after: ResourceVersion) {
        self.lowest_start.fetch_min(after.0, Ordering::Relaxed);
    }

    /// Returns the lowest resourceVersion from which a watcher wants to start.
    pub(crate) fn lowest_start(&self) -> ResourceVersion {
        ResourceVersion(self.lowest_start.load(Ordering::Relaxed))
    }

    /// Notes that the cache has its first state. Returns true the first time.
    pub(crate) fn mark_ready(&self) -> bool {
        let is_first = !self.ready.swap(true, Ordering::Relaxed);
        if is_first && !*self.watching.borrow() {
            self.unwatched_since.lock().get_or_insert_with(Instant::now);
        }
        is_first
    }

    /// Whether the cache has had a state.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }

    /// Sets whether the upstream's watch is open and its events are applied as they arrive.
    pub(crate) fn set_watching(&self, watching: bool) {
        self.watching.send_if_modified(|was| {
            let has_changed = std::mem::replace(was, watching) != watching;
            if has_changed {
                *self.unwatched_since.lock() = (!watching).then(Instant::now);
                self.has_failed.store(false, Ordering::Relaxed);
            }
            has_changed
        });
    }

    /// Notes that the reflector has failed, and waits before it tries again.
    pub(crate) fn note_failure(&self) {
        self.has_failed.store(true, Ordering::Relaxed);
    }

    /// Whether the reflector has failed since the watch was last open.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Returns since when the upstream's watch is closed; `None` while it is open, and before the
    /// first state.
    pub(crate) fn unwatched_since(&self) -> Option<Instant> {
        *self.unwatched_since.lock()
    }

    /// Whether the upstream's watch is open.
    pub(crate) fn is_watching(&self) -> bool {
        *self.watching.borrow()
    }

    /// Returns a receiver of whether the upstream's watch is open.
    pub(crate) fn watching(&self) -> watch::Receiver<bool> {
        self.watching.subscribe()
    }

    /// Ends the reflector. The first reason is kept.
    pub(crate) fn stop(&self, reason: Refusal) {
        self.stop_reason.lock().get_or_insert(reason);
        self.cancel.cancel();
    }

    /// Ends the reflector when its present watch ends, because the upstream is about to end that
    /// watch. The watchers of the cache get the rest of its events; the registry hands the cache to
    /// no new client.
    pub(crate) fn retire(&self, reason: Refusal) {
        self.stop_reason.lock().get_or_insert(reason);
        self.retiring.send_replace(true);
    }

    /// Whether the cache was retired.
    pub(crate) fn is_retiring(&self) -> bool {
        *self.retiring.borrow()
    }

    /// Waits until the cache is retired. Cancel safe.
    pub(crate) async fn until_retired(&self) {
        // Cannot fail: the sender lives as long as `self`.
        drop(self.retiring.subscribe().wait_for(|retiring| *retiring).await);
    }

    /// Returns why the cache ends. A shutdown cancels it without a reason.
    pub(crate) fn stop_reason(&self) -> Refusal {
        self.stop_reason.lock().unwrap_or(Refusal::Stopping)
    }

    /// Notes that the reflector has ended, and wakes the requests that wait for the cache.
    pub(crate) fn mark_ended(&self, reason: Refusal) {
        self.ended.send_replace(Some(reason));
    }

    /// Waits until the reflector has ended, and returns the reason. Cancel safe.
    pub(crate) async fn ended(&self) -> Option<Refusal> {
        let mut ended = self.ended.subscribe();
        ended.wait_for(Option::is_some).await.ok().and_then(|reason| *reason)
    }
}

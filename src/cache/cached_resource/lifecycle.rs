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
    created: Instant,
    /// Whether the state is only for watches that start at a resourceVersion.
    behind: watch::Sender<Behind>,
    /// The lowest resourceVersion from which a watcher wants to start; `u64::MAX` if there is none.
    lowest_start: AtomicU64,
    /// Whether an earlier cache of the same key exceeded a byte budget.
    was_over_budget: AtomicBool,
    ready: AtomicBool,
    watching: watch::Sender<bool>,
    /// Since when the watch is closed, if it was open or the first list is complete.
    unwatched_since: Mutex<Option<Instant>>,
    /// Whether the reflector has failed since the watch was last open.
    has_failed: AtomicBool,
    retiring: watch::Sender<bool>,
    cancel: CancellationToken,
    stop_reason: Mutex<Option<Refusal>>,
    ended: watch::Sender<Option<Refusal>>,
}

/// Whether a state is only for watches that start at a resourceVersion, since clients may know a
/// later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behind {
    /// All reads may use it.
    No,
    /// It is from before the cache was created, and nobody has asked the upstream since.
    Unknown,
    /// Another cache of the resource, or a probe, has shown this resourceVersion.
    Until { needed: ResourceVersion, generation: u64 },
}

impl Lifecycle {
    /// Starts the life of a cache whose reflector ends with `cancel`.
    pub(crate) fn new(cancel: CancellationToken) -> Self {
        Self {
            created: Instant::now(),
            behind: watch::Sender::new(Behind::No),
            lowest_start: AtomicU64::new(u64::MAX),
            was_over_budget: AtomicBool::new(false),
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

    /// Notes that the state will be one from before the cache was created: it is listed at a
    /// resourceVersion that a watcher requested.
    pub(crate) fn begin_in_the_past(&self) {
        self.behind.send_replace(Behind::Unknown);
    }

    /// Closes the state to reads until the cache has come to `needed`, in a generation of the
    /// upstream's history. Returns whether it was open.
    pub(crate) fn hold_until(&self, needed: ResourceVersion, generation: u64) -> bool {
        let mut was_open = false;
        self.behind.send_if_modified(|behind| {
            was_open = *behind == Behind::No;
            let until = Behind::Until { needed, generation };
            let rises = match *behind {
                Behind::No => true,
                // A later probe sets the target, and compares it with the floor.
                Behind::Unknown => false,
                Behind::Until { needed: target, generation: target_generation } => {
                    (target_generation, target) < (generation, needed)
                }
            };
            if rises {
                *behind = until;
            }
            rises
        });
        was_open
    }

    /// Notes how far a cache that began in the past has to come. Returns whether that was unknown,
    /// or nothing held the cache.
    pub(crate) fn know_target(&self, needed: ResourceVersion, generation: u64) -> bool {
        let was_unknown = self.behind.send_if_modified(|behind| {
            let was_unknown = *behind == Behind::Unknown;
            if was_unknown {
                *behind = Behind::Until { needed, generation };
            }
            was_unknown
        });
        was_unknown || self.hold_until(needed, generation)
    }

    /// Opens the state to all reads, if it is at `state_version` in `generation` and nothing later
    /// is needed. `is_present` says that the upstream listed it after the cache was created.
    /// Returns whether it is open.
    pub(crate) fn open_at(
        &self,
        state_version: Option<ResourceVersion>,
        generation: u64,
        is_present: bool,
    ) -> bool {
        let mut is_open = true;
        self.behind.send_if_modified(|behind| {
            let opens = match *behind {
                Behind::No => return false,
                Behind::Unknown => is_present,
                // A target of another history has no meaning in this one.
                Behind::Until { needed, generation: target_generation } => {
                    target_generation != generation || Some(needed) <= state_version
                }
            };
            if opens {
                *behind = Behind::No;
            }
            is_open = opens;
            opens
        });
        is_open
    }

    /// Returns what the cache has to come to before all reads may use its state, if that is known.
    pub(crate) fn needed(&self) -> Option<ResourceVersion> {
        match *self.behind.borrow() {
            Behind::Until { needed, .. } => Some(needed),
            Behind::No | Behind::Unknown => None,
        }
    }

    /// Whether the state is only for watches that start at a resourceVersion.
    pub(crate) fn is_behind(&self) -> bool {
        *self.behind.borrow() != Behind::No
    }

    /// Waits until all reads may use the state. Cancel safe.
    pub(crate) async fn opened(&self) -> bool {
        self.behind.subscribe().wait_for(|behind| *behind == Behind::No).await.is_ok()
    }

    /// Notes that a watcher wants to start at `after`.
    pub(crate) fn ask_start(&self, after: ResourceVersion) {
        self.lowest_start.fetch_min(after.0, Ordering::Relaxed);
    }

    /// Returns the lowest resourceVersion from which a watcher wants to start.
    pub(crate) fn lowest_start(&self) -> ResourceVersion {
        ResourceVersion(self.lowest_start.load(Ordering::Relaxed))
    }

    /// Notes that an earlier cache of the same key exceeded a byte budget. Requests do not wait for
    /// this one.
    pub(crate) fn set_was_over_budget(&self) {
        self.was_over_budget.store(true, Ordering::Relaxed);
    }

    /// Whether an earlier cache of the same key exceeded a byte budget.
    pub(crate) fn was_over_budget(&self) -> bool {
        self.was_over_budget.load(Ordering::Relaxed)
    }

    /// Returns when the cache was created.
    pub(crate) fn created(&self) -> Instant {
        self.created
    }

    /// Whether every state of the cache is one from after `moment`.
    pub(crate) fn is_listed_since(&self, moment: Instant) -> bool {
        self.created >= moment && !self.is_behind()
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

    /// Returns the token that ends the reflector and the cache's other tasks.
    pub(crate) fn cancel(&self) -> &CancellationToken {
        &self.cancel
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

#[cfg(test)]
mod tests {
    use super::*;

    fn rv(number: u64) -> Option<ResourceVersion> {
        Some(ResourceVersion(number))
    }

    fn lifecycle() -> Lifecycle {
        Lifecycle::new(CancellationToken::new())
    }

    #[test]
    fn a_held_state_opens_at_the_highest_that_is_needed() {
        let lifecycle = lifecycle();
        assert!(lifecycle.hold_until(ResourceVersion(10), 0), "it was open");
        assert!(!lifecycle.hold_until(ResourceVersion(20), 0));
        assert!(!lifecycle.hold_until(ResourceVersion(15), 0));
        assert!(!lifecycle.open_at(rv(19), 0, true) && lifecycle.needed() == rv(20));
        assert!(lifecycle.open_at(rv(20), 0, false) && !lifecycle.is_behind());
        assert!(lifecycle.open_at(None, 0, false), "it is open already");
    }

    #[test]
    fn a_cache_from_the_past_opens_at_its_probe_or_with_a_list() {
        let lifecycle = lifecycle();
        lifecycle.begin_in_the_past();
        assert!(!lifecycle.hold_until(ResourceVersion(10), 0) && lifecycle.needed().is_none());
        assert!(!lifecycle.open_at(rv(30), 0, false), "nobody knows how far it has to come");
        assert!(lifecycle.know_target(ResourceVersion(40), 0));
        assert!(!lifecycle.know_target(ResourceVersion(41), 0), "it is caught up with already");
        assert!(!lifecycle.open_at(rv(40), 0, false) && lifecycle.open_at(rv(41), 0, false));
        lifecycle.begin_in_the_past();
        assert!(lifecycle.open_at(rv(1), 0, true));
    }

    #[test]
    fn what_was_needed_in_a_lost_history_is_not_waited_for() {
        let lifecycle = lifecycle();
        lifecycle.hold_until(ResourceVersion(100), 0);
        assert!(!lifecycle.hold_until(ResourceVersion(30), 1) && lifecycle.needed() == rv(30));
        lifecycle.hold_until(ResourceVersion(200), 0);
        assert_eq!(lifecycle.needed(), rv(30));
        assert!(lifecycle.open_at(rv(1), 2, false));
    }
}

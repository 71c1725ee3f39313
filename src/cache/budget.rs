//! The byte budgets: of each cache and of all together.
//!
//! What is counted is [`State::weight`](crate::cache::core::watch_cache::State::weight) as each state is published,
//! and what a list under way has gathered so far: while a relist runs, the old state and the new one both take
//! memory. Only counting happens here; who must go is the registry's decision.
//!
//! Invariant: the total is the sum of what the living [`Account`]s and [`Claim`]s claim. No locks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// What all caches together weigh, and may weigh. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    used: AtomicUsize,
    total_bytes_max: usize,
    resource_bytes_max: usize,
    exceeded: Notify,
}

impl Budget {
    /// An empty one with the two limits, in bytes.
    pub(crate) fn new(resource_bytes_max: usize, total_bytes_max: usize) -> Self {
        Self {
            shared: Arc::new(Shared {
                used: AtomicUsize::new(0),
                total_bytes_max,
                resource_bytes_max,
                exceeded: Notify::new(),
            }),
        }
    }

    /// Opens the account of one cache.
    pub(crate) fn account(&self) -> Account {
        Account { budget: self.clone(), state: AtomicUsize::new(0), listing: AtomicUsize::new(0) }
    }

    /// Claims what belongs to no account, in bytes, until the claim is dropped.
    pub(crate) fn claim(&self, bytes: usize) -> Claim {
        self.shift(0, bytes);
        Claim { budget: self.clone(), bytes }
    }

    /// What is claimed, in bytes.
    pub(crate) fn used(&self) -> usize {
        self.shared.used.load(Ordering::Relaxed)
    }

    /// By how many bytes the total is exceeded; zero if it is not.
    pub(crate) fn excess(&self) -> usize {
        self.used().saturating_sub(self.shared.total_bytes_max)
    }

    /// Whether nothing more may begin.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.used() >= self.shared.total_bytes_max
    }

    /// Completes when the total has come to be exceeded since the last call. Cancel safe.
    pub(crate) async fn exceeded(&self) {
        self.shared.exceeded.notified().await;
    }

    fn shift(&self, before: usize, after: usize) {
        if after >= before {
            let used = self.shared.used.fetch_add(after - before, Ordering::Relaxed);
            let limit = self.shared.total_bytes_max;
            if used <= limit && used + (after - before) > limit {
                self.shared.exceeded.notify_one();
            }
        } else {
            self.shared.used.fetch_sub(before - after, Ordering::Relaxed);
        }
    }
}

/// What one cache claims of the budget. Dropping it gives everything back.
#[derive(Debug)]
pub(crate) struct Account {
    budget: Budget,
    state: AtomicUsize,
    listing: AtomicUsize,
}

impl Account {
    /// Claims what the published state weighs, instead of what it weighed before; in bytes.
    pub(crate) fn set_state(&self, bytes: usize) {
        self.budget.shift(self.state.swap(bytes, Ordering::Relaxed), bytes);
    }

    /// Claims what a list under way has gathered; zero when it is over. In bytes.
    pub(crate) fn set_listing(&self, bytes: usize) {
        self.budget.shift(self.listing.swap(bytes, Ordering::Relaxed), bytes);
    }

    /// What the published state weighs, in bytes.
    pub(crate) fn state(&self) -> usize {
        self.state.load(Ordering::Relaxed)
    }

    /// Whether one cache of this weight is too heavy by itself.
    pub(crate) fn is_too_heavy(&self, bytes: usize) -> bool {
        bytes > self.budget.shared.resource_bytes_max
    }

    /// Gives everything back.
    pub(crate) fn close(&self) {
        self.set_state(0);
        self.set_listing(0);
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.close();
    }
}

/// A part of the budget that is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    budget: Budget,
    bytes: usize,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.budget.shift(self.bytes, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_the_sum_of_living_accounts() {
        let budget = Budget::new(10, 100);
        let pods = budget.account();
        let nodes = budget.account();
        pods.set_state(40);
        pods.set_listing(5);
        nodes.set_state(50);
        assert_eq!(budget.used(), 95);
        assert!(!budget.is_exhausted());
        pods.set_state(50);
        assert_eq!(budget.excess(), 5);
        pods.set_listing(0);
        nodes.set_state(1);
        assert_eq!(budget.used(), 51);
        drop(pods);
        let claim = budget.claim(7);
        assert_eq!(budget.used(), 8);
        drop(claim);
        assert_eq!(budget.used(), 1);
        assert!(nodes.is_too_heavy(11));
        assert!(!nodes.is_too_heavy(10));
    }

    #[tokio::test(start_paused = true)]
    async fn crossing_the_limit_wakes_whoever_watches_it() {
        let budget = Budget::new(10, 100);
        let account = budget.account();
        account.set_state(100);
        let quiet = tokio::time::timeout(std::time::Duration::from_secs(1), budget.exceeded());
        assert!(quiet.await.is_err());
        account.set_state(101);
        budget.exceeded().await;
    }
}

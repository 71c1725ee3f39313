//! The byte budgets: of each cache and of all together.
//!
//! The budgets count the weight of each published state
//! ([`State::weight`](crate::cache::core::watch_cache::State::weight)) and of the objects of each
//! list in progress, because the old state and the new one both take memory during a relist. This
//! module only counts; the registry decides which caches to stop.
//!
//! Invariant: the total is the sum of all [`Account`]s and [`Claim`]s.
//!
//! A reload may change the limits. No locks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// The weight of all caches, and its limit. Cheap to clone: all clones share the counters.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    shared: Arc<BudgetState>,
}

#[derive(Debug)]
struct BudgetState {
    used: AtomicUsize,
    total_bytes_max: AtomicUsize,
    resource_bytes_max: AtomicUsize,
    exceeded: Notify,
}

impl Budget {
    /// Creates a budget with the limits of one cache and of all caches, in bytes.
    pub(crate) fn new(resource_bytes_max: usize, total_bytes_max: usize) -> Self {
        Self {
            shared: Arc::new(BudgetState {
                used: AtomicUsize::new(0),
                total_bytes_max: AtomicUsize::new(total_bytes_max),
                resource_bytes_max: AtomicUsize::new(resource_bytes_max),
                exceeded: Notify::new(),
            }),
        }
    }

    /// Replaces the limits of one cache and of all caches, in bytes.
    pub(crate) fn set_limits(&self, resource_bytes_max: usize, total_bytes_max: usize) {
        self.shared.resource_bytes_max.store(resource_bytes_max, Ordering::Relaxed);
        self.shared.total_bytes_max.store(total_bytes_max, Ordering::Relaxed);
        if self.excess() > 0 {
            self.shared.exceeded.notify_one();
        }
    }

    /// Returns the limit of one cache, in bytes.
    pub(crate) fn resource_bytes_max(&self) -> usize {
        self.shared.resource_bytes_max.load(Ordering::Relaxed)
    }

    fn total_bytes_max(&self) -> usize {
        self.shared.total_bytes_max.load(Ordering::Relaxed)
    }

    /// Opens the account of one cache.
    pub(crate) fn account(&self) -> Account {
        Account { budget: self.clone(), state: AtomicUsize::new(0), listing: AtomicUsize::new(0) }
    }

    /// Claims bytes that belong to no account, until the claim is dropped.
    pub(crate) fn claim(&self, bytes: usize) -> Claim {
        self.shift(0, bytes);
        Claim { budget: self.clone(), bytes }
    }

    /// Returns the total of all claims, in bytes.
    pub(crate) fn used(&self) -> usize {
        self.shared.used.load(Ordering::Relaxed)
    }

    /// Returns by how many bytes the total exceeds its limit, or zero.
    pub(crate) fn excess(&self) -> usize {
        self.used().saturating_sub(self.total_bytes_max())
    }

    /// Whether the total has reached its limit, so that no cache may be started.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.used() >= self.total_bytes_max()
    }

    /// Waits until the total exceeds its limit, or returns at once if it did so since the last
    /// call. Cancel safe.
    pub(crate) async fn until_exceeded(&self) {
        self.shared.exceeded.notified().await;
    }

    /// Changes a claim from `before` to `after`, in bytes.
    fn shift(&self, before: usize, after: usize) {
        if after >= before {
            let used = self.shared.used.fetch_add(after - before, Ordering::Relaxed);
            let limit = self.total_bytes_max();
            if used <= limit && used + (after - before) > limit {
                self.shared.exceeded.notify_one();
            }
        } else {
            self.shared.used.fetch_sub(before - after, Ordering::Relaxed);
        }
    }
}

/// The claims of one cache. Dropping it releases them.
#[derive(Debug)]
pub(crate) struct Account {
    budget: Budget,
    state: AtomicUsize,
    listing: AtomicUsize,
}

impl Account {
    /// Sets the claim for the published state, in bytes.
    pub(crate) fn set_state(&self, bytes: usize) {
        self.budget.shift(self.state.swap(bytes, Ordering::Relaxed), bytes);
    }

    /// Sets the claim for the list in progress, in bytes. Zero when there is none.
    pub(crate) fn set_listing(&self, bytes: usize) {
        self.budget.shift(self.listing.swap(bytes, Ordering::Relaxed), bytes);
    }

    /// Returns the claim for the published state, in bytes.
    pub(crate) fn state(&self) -> usize {
        self.state.load(Ordering::Relaxed)
    }

    /// Whether `bytes` exceed the limit of one cache.
    pub(crate) fn is_too_heavy(&self, bytes: usize) -> bool {
        bytes > self.budget.resource_bytes_max()
    }

    /// Returns how many bytes the history of a state may have for watchers that read slowly. Both
    /// weights are the present ones, of the state and of its history. It is half of what the limits
    /// leave, since a cache beyond them is stopped.
    pub(crate) fn room_for_history(&self, state: usize, history: usize) -> usize {
        let budget = &self.budget;
        let objects = state.saturating_sub(history);
        let of_cache = budget.resource_bytes_max().saturating_sub(objects);
        let others = budget.used().saturating_sub(history);
        of_cache.min(budget.total_bytes_max().saturating_sub(others)) / 2
    }

    /// Releases all claims.
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

/// A claim that belongs to no account. Dropping it releases the bytes.
#[derive(Debug)]
pub(crate) struct Claim {
    budget: Budget,
    bytes: usize,
}

impl Claim {
    /// Changes the claim to `bytes`.
    pub(crate) fn set(&mut self, bytes: usize) {
        self.budget.shift(self.bytes, bytes);
        self.bytes = bytes;
    }
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
    fn the_total_is_the_sum_of_accounts_and_claims() {
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
        let mut claim = budget.claim(7);
        assert_eq!(budget.used(), 8);
        claim.set(9);
        assert_eq!(budget.used(), 10);
        drop(claim);
        assert_eq!(budget.used(), 1);
        assert!(nodes.is_too_heavy(11));
        assert!(!nodes.is_too_heavy(10));
    }

    #[tokio::test(start_paused = true)]
    async fn exceeding_the_limit_wakes_the_waiter() {
        let budget = Budget::new(10, 100);
        let account = budget.account();
        account.set_state(100);
        let quiet =
            tokio::time::timeout(std::time::Duration::from_secs(1), budget.until_exceeded());
        assert!(quiet.await.is_err());
        account.set_state(101);
        budget.until_exceeded().await;
    }
}

//! Limits the reviews that run and wait, in total and for one flow, so that a client which floods
//! Weir with bad tokens or with questions neither overloads the upstream nor delays the reviews of
//! others (`docs/decisions/authentication.md`).
//!
//! A review first acquires a permit of its flow, then one of the total. Permits are granted in the
//! order of the requests. A flow waits for the total with no more reviews than it may run, so a
//! newcomer waits behind a few reviews of each flow, not behind all of them.
//!
//! Exempt flows have permits of their own and wait in neither queue: unknown clients do not slow
//! down known ones, even behind the same address.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::tasks::keyed_counter::{Before, Counted, KeyedCounter};

/// The limiter of one kind of review. `F` is whom a review counts for.
#[derive(Debug)]
pub(in crate::auth) struct Admission<F> {
    total: Arc<Semaphore>,
    /// The most reviews that run and wait, without exempt flows.
    slots_max: usize,
    flows: KeyedCounter<F, FlowPermits>,
    exempt: KeyedCounter<F, FlowPermits>,
}

/// The permits of a flow, from its first review on.
type FlowPermits = Option<Arc<Semaphore>>;

/// The limits of one flow.
#[derive(Clone, Copy, Debug)]
pub(in crate::auth) struct FlowLimits {
    /// The most reviews that run.
    pub(in crate::auth) running_max: usize,
    /// The most reviews that run and wait.
    pub(in crate::auth) slots_max: usize,
    /// Whether the flow does not count towards the total.
    pub(in crate::auth) is_exempt: bool,
}

/// Error: too many reviews run and wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::auth) enum QueueFull {
    /// The limit of this flow is reached.
    Flow,
    /// A limit that this flow shares with others is reached.
    Total,
}

/// Allows one review to wait for its permit.
pub(in crate::auth) struct QueueSlot<F: Eq + Hash> {
    permits: Arc<Semaphore>,
    /// `None` for an exempt flow.
    total: Option<Arc<Semaphore>>,
    _counted: Counted<F, FlowPermits>,
}

/// Allows one review to run.
#[derive(Debug)]
pub(in crate::auth) struct Permit {
    _flow: Option<OwnedSemaphorePermit>,
    _total: Option<OwnedSemaphorePermit>,
}

impl<F: Clone + Eq + Hash> Admission<F> {
    /// Lets [`REVIEWS_MAX`] reviews run, and `slots_max` run or wait.
    pub(in crate::auth) fn new(slots_max: usize) -> Self {
        let (flows, exempt) = (KeyedCounter::default(), KeyedCounter::default());
        Self { total: Arc::new(Semaphore::new(REVIEWS_MAX)), slots_max, flows, exempt }
    }

    /// Takes a slot for one review.
    pub(in crate::auth) fn enqueue(
        &self,
        flow: F,
        limits: FlowLimits,
    ) -> Result<QueueSlot<F>, QueueFull> {
        let FlowLimits { running_max, slots_max, is_exempt } = limits;
        let admit = |before: Before<'_, FlowPermits>| {
            if !is_exempt && before.total >= self.slots_max {
                return Err(QueueFull::Total);
            }
            if before.count >= slots_max {
                // An exempt flow is shared by many clients.
                return Err(if is_exempt { QueueFull::Total } else { QueueFull::Flow });
            }
            let permits = before.note.get_or_insert_with(|| Arc::new(Semaphore::new(running_max)));
            Ok(Arc::clone(permits))
        };
        let flows = if is_exempt { &self.exempt } else { &self.flows };
        let (_counted, permits) = flows.try_add(flow, admit)?;
        let total = (!is_exempt).then(|| Arc::clone(&self.total));
        Ok(QueueSlot { permits, total, _counted })
    }

    /// Returns the number of reviews that run or wait, without exempt flows.
    pub(in crate::auth) fn pending(&self) -> usize {
        self.flows.total()
    }

    /// Returns the number of flows that have reviews.
    #[cfg(test)]
    pub(in crate::auth) fn flow_count(&self) -> usize {
        self.flows.keys() + self.exempt.keys()
    }
}

impl<F: Eq + Hash> QueueSlot<F> {
    /// Waits until the review may run.
    pub(in crate::auth) async fn acquire(&self) -> Permit {
        // The semaphores are never closed.
        let flow = self.permits.clone().acquire_owned().await.ok();
        let total = match self.total.clone() {
            None => None,
            Some(total) => total.acquire_owned().await.ok(),
        };
        Permit { _flow: flow, _total: total }
    }
}

impl<F: Eq + Hash> fmt::Debug for QueueSlot<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueSlot").finish_non_exhaustive()
    }
}

/// The reviews of one kind that run at once, without exempt flows: below the 100 streams that
/// kube-apiserver allows on an HTTP/2 connection, so that some are left for Weir's other requests,
/// and a small part of the requests that it admits (400 reads and 200 others by default,
/// `--max-requests-inflight`). At a few milliseconds each, this is about ten thousand reviews a
/// second; more would only queue in the upstream.
pub(in crate::auth) const REVIEWS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_flow_has_a_limit_and_is_removed_with_its_last_review() {
        let admission = Admission::new(7);
        let limits = FlowLimits { running_max: 2, slots_max: 5, is_exempt: false };
        let slots: Vec<_> = (0..5).map(|_| admission.enqueue("a", limits).unwrap()).collect();
        assert_eq!(admission.enqueue("a", limits).err(), Some(QueueFull::Flow));
        let mut permits = Vec::new();
        for slot in &slots[..2] {
            permits.push(slot.acquire().await);
        }
        assert!(slots[2].acquire().now_or_never().is_none());
        let other = admission.enqueue("b", limits).unwrap();
        drop(other.acquire().now_or_never().unwrap());
        let last = admission.enqueue("c", limits).unwrap();
        assert_eq!(admission.enqueue("d", limits).err(), Some(QueueFull::Total));
        assert_eq!(admission.pending(), 7);
        let exempt = FlowLimits { slots_max: 1, is_exempt: true, ..limits };
        let exempt_slot = admission.enqueue("d", exempt).unwrap();
        assert_eq!(admission.enqueue("d", exempt).err(), Some(QueueFull::Total));
        drop((permits, slots, other, last, exempt_slot));
        assert_eq!((admission.flow_count(), admission.pending()), (0, 0));
    }
}

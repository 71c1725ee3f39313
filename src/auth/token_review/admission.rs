//! Limits the reviews that run and wait, in total and for one client address, so that a client
//! which floods Weir with bad tokens neither overloads the upstream nor delays the reviews of
//! others (`docs/decisions/authentication.md`).
//!
//! A review first acquires a permit of its flow (its client address), then one of the total.
//! Permits are granted in the order of the requests. A flow waits for the total with no more
//! reviews than it may run, so a newcomer waits behind a few reviews of each address, not behind
//! all of them.
//!
//! Tokens that were good not long ago have permits of their own and wait in neither queue: unknown
//! clients do not slow down known ones, even behind the same address. The same holds for open
//! watches, whose tokens are reviewed again without a waiting request: a flood must not keep the
//! watch of a revoked token open.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::auth::peer::client_key;

/// The limiter of reviews.
#[derive(Debug)]
pub(super) struct Admission {
    total: Arc<Semaphore>,
    flows: Mutex<Flows>,
}

#[derive(Debug, Default)]
struct Flows {
    by_key: HashMap<FlowKey, Flow>,
    /// Slots taken by all flows that are not exempt.
    slots: usize,
}

/// Error: too many reviews run and wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueFull {
    /// The limit of this flow is reached.
    Flow,
    /// A limit that this flow shares with others is reached.
    Total,
}

/// The client that a review counts for. Each flow has its own limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum FlowKey {
    /// Clients at an address, as mapped by [`FlowKey::from_address`].
    Address(IpAddr),
    /// Clients on Unix sockets.
    Socket,
    /// Clients at any address whose token was good not long ago.
    KnownToken,
    /// Open watches of all clients.
    Watches,
}

/// The state of one flow that has reviews.
#[derive(Debug)]
struct Flow {
    permits: Arc<Semaphore>,
    /// Reviews that run or wait.
    slots: usize,
}

/// Allows one review to wait for its permit.
#[derive(Debug)]
pub(super) struct QueueSlot {
    admission: Arc<Admission>,
    flow: FlowKey,
    permits: Arc<Semaphore>,
}

/// Allows one review to run.
#[derive(Debug)]
pub(super) struct Permit {
    _flow: Option<OwnedSemaphorePermit>,
    _total: Option<OwnedSemaphorePermit>,
}

impl Default for Admission {
    fn default() -> Self {
        Self { total: Arc::new(Semaphore::new(REVIEWS_MAX)), flows: Mutex::default() }
    }
}

impl Admission {
    /// Takes a slot for one review.
    pub(super) fn enqueue(self: &Arc<Self>, key: FlowKey) -> Result<QueueSlot, QueueFull> {
        let (reviews_max, slots_max) = match key {
            FlowKey::Address(_) | FlowKey::Socket => (ADDRESS_REVIEWS_MAX, ADDRESS_SLOTS_MAX),
            FlowKey::KnownToken | FlowKey::Watches => (EXEMPT_REVIEWS_MAX, EXEMPT_SLOTS_MAX),
        };
        let mut flows = self.flows.lock();
        let is_exempt = key.is_exempt();
        if !is_exempt && flows.slots >= SLOTS_MAX {
            return Err(QueueFull::Total);
        }
        let flow = flows
            .by_key
            .entry(key)
            .or_insert_with(|| Flow { permits: Arc::new(Semaphore::new(reviews_max)), slots: 0 });
        if flow.slots >= slots_max {
            // An exempt flow is shared by many clients.
            return Err(if is_exempt { QueueFull::Total } else { QueueFull::Flow });
        }
        flow.slots += 1;
        let permits = flow.permits.clone();
        flows.slots += usize::from(!is_exempt);
        Ok(QueueSlot { admission: self.clone(), flow: key, permits })
    }

    /// Returns the number of flows that have reviews.
    #[cfg(test)]
    pub(super) fn flow_count(&self) -> usize {
        self.flows.lock().by_key.len()
    }
}

impl FlowKey {
    /// Returns whether the flow has its own limit and does not count towards the total.
    pub(super) fn is_exempt(self) -> bool {
        matches!(self, Self::KnownToken | Self::Watches)
    }

    /// Returns the flow of a client at this address; `None` means a Unix socket.
    pub(crate) fn from_address(address: Option<IpAddr>) -> Self {
        address.map_or(Self::Socket, |address| Self::Address(client_key(address)))
    }
}

impl QueueSlot {
    /// Waits until the review may run.
    pub(super) async fn acquire(&self) -> Permit {
        // The semaphores are never closed.
        let flow = self.permits.clone().acquire_owned().await.ok();
        let total = match self.flow.is_exempt() {
            true => None,
            false => self.admission.total.clone().acquire_owned().await.ok(),
        };
        Permit { _flow: flow, _total: total }
    }
}

impl Drop for QueueSlot {
    fn drop(&mut self) {
        let mut flows = self.admission.flows.lock();
        flows.slots -= usize::from(!self.flow.is_exempt());
        if let Some(flow) = flows.by_key.get_mut(&self.flow) {
            flow.slots -= 1;
            if flow.slots == 0 {
                flows.by_key.remove(&self.flow);
            }
        }
    }
}

/// The maximum number of reviews that run at once, without exempt flows. At a few milliseconds
/// each, this allows about ten thousand new tokens a second, and it is a small part of the requests
/// that kube-apiserver admits (400 read requests and 200 others by default,
/// `--max-requests-inflight`).
pub(super) const REVIEWS_MAX: usize = 64;
/// The maximum number of running reviews of one address: a quarter of the total, since the clients
/// of a whole network may share an address.
pub(super) const ADDRESS_REVIEWS_MAX: usize = 16;
/// The maximum number of running and waiting reviews of one address: a quarter of the total.
pub(super) const ADDRESS_SLOTS_MAX: usize = 256;
/// The maximum number of running and waiting reviews, without exempt flows.
pub(super) const SLOTS_MAX: usize = 1024;
/// The maximum number of running reviews of known tokens, and of open watches, whose reviews are
/// spread over their interval. At a few milliseconds each, this allows some hundred thousand tokens
/// a minute.
const EXEMPT_REVIEWS_MAX: usize = 32;
/// The maximum number of running and waiting reviews of each exempt flow: as many as get their
/// permit within the time that a review may wait.
const EXEMPT_SLOTS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn an_ipv6_network_is_one_flow() {
        let flow = |text: &str| FlowKey::from_address(Some(text.parse().unwrap()));
        assert_eq!(flow("2001:db8::1"), flow("2001:db8::ffff:1"));
        assert_ne!(flow("2001:db8::1"), flow("2001:db8:0:1::1"));
        assert_eq!(flow("::ffff:10.0.0.1"), flow("10.0.0.1"));
        assert_ne!(flow("10.0.0.1"), flow("10.0.0.2"));
    }

    #[tokio::test]
    async fn a_flow_has_a_limit_and_is_removed_with_its_last_review() {
        let admission = Arc::new(Admission::default());
        let one = FlowKey::from_address(Some(IpAddr::from([10, 0, 0, 1])));
        let slots: Vec<_> =
            (0..ADDRESS_SLOTS_MAX).map(|_| admission.enqueue(one).unwrap()).collect();
        assert_eq!(admission.enqueue(one).err(), Some(QueueFull::Flow));
        let mut permits = Vec::new();
        for slot in &slots[..ADDRESS_REVIEWS_MAX] {
            permits.push(slot.acquire().await);
        }
        assert!(slots[ADDRESS_REVIEWS_MAX].acquire().now_or_never().is_none());
        let other = FlowKey::from_address(Some(IpAddr::from([10, 0, 0, 2])));
        let other = admission.enqueue(other).unwrap();
        drop(other.acquire().now_or_never().unwrap());
        drop((permits, slots, other));
        assert_eq!(admission.flow_count(), 0);
    }
}

//! How many reviews run and wait, in all and for one client address, so that whoever floods Weir with bad tokens neither overloads the
//! upstream nor keeps others' new tokens from being looked at.
//!
//! A review first needs one of its address' turns, then one of all. Turns are given in the order of asking, and an address stands in
//! the second queue with no more than its own turns: a newcomer waits behind a few of each address, not behind all that an address asks.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// See the module.
#[derive(Debug)]
pub(super) struct Admission {
    reviews: Arc<Semaphore>,
    addresses: Mutex<HashMap<Option<IpAddr>, Address>>,
}

/// One address, while it has reviews.
#[derive(Debug)]
struct Address {
    turns: Arc<Semaphore>,
    /// Those that run and wait.
    places: usize,
}

/// The right of one review to wait for its turn.
#[derive(Debug)]
pub(super) struct Place {
    admission: Arc<Admission>,
    address: Option<IpAddr>,
    turns: Arc<Semaphore>,
}

/// The right of one review to run.
#[derive(Debug)]
pub(super) struct Turn {
    _own: Option<OwnedSemaphorePermit>,
    _of_all: Option<OwnedSemaphorePermit>,
}

impl Default for Admission {
    fn default() -> Self {
        Self { reviews: Arc::new(Semaphore::new(REVIEWS_MAX)), addresses: Mutex::default() }
    }
}

impl Admission {
    /// A place for one review; `None` if its address has too many.
    pub(super) fn place(self: &Arc<Self>, address: Option<IpAddr>) -> Option<Place> {
        let address = address.map(network);
        let mut addresses = self.addresses.lock();
        let state = addresses.entry(address).or_insert_with(|| Address {
            turns: Arc::new(Semaphore::new(ADDRESS_REVIEWS_MAX)),
            places: 0,
        });
        if state.places >= ADDRESS_PLACES_MAX {
            return None;
        }
        state.places += 1;
        Some(Place { admission: self.clone(), address, turns: state.turns.clone() })
    }

    /// Addresses that have reviews.
    #[cfg(test)]
    pub(super) fn addresses(&self) -> usize {
        self.addresses.lock().len()
    }
}

impl Place {
    /// Waits for the turn.
    pub(super) async fn enter(&self) -> Turn {
        // No semaphore is ever closed.
        let own = self.turns.clone().acquire_owned().await.ok();
        let of_all = self.admission.reviews.clone().acquire_owned().await.ok();
        Turn { _own: own, _of_all: of_all }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut addresses = self.admission.addresses.lock();
        if let Some(state) = addresses.get_mut(&self.address) {
            state.places -= 1;
            if state.places == 0 {
                addresses.remove(&self.address);
            }
        }
    }
}

/// What counts as one address: of IPv6 the network, in which one host has as many as it likes.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !0 << 64)),
        address => address,
    }
}

/// Reviews under way at once: at a few milliseconds each, some ten thousand new tokens a second, and a small part of what kube-apiserver lets
/// in (400 read requests and 200 others by default, by `--max-requests-inflight`).
pub(super) const REVIEWS_MAX: usize = 64;
/// Those of one address: a quarter, since behind one address there may be a whole network's clients.
pub(super) const ADDRESS_REVIEWS_MAX: usize = 16;
/// Those of one address that run and wait: a quarter of all that may.
pub(super) const ADDRESS_PLACES_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_network_is_one_address() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }

    #[tokio::test]
    async fn an_address_has_no_more_than_its_turns_and_leaves_nothing_behind() {
        let admission = Arc::new(Admission::default());
        let one = Some(IpAddr::from([10, 0, 0, 1]));
        let places: Vec<_> =
            (0..ADDRESS_PLACES_MAX).map(|_| admission.place(one).unwrap()).collect();
        assert!(admission.place(one).is_none());
        let mut turns = Vec::new();
        for place in &places[..ADDRESS_REVIEWS_MAX] {
            turns.push(place.enter().await);
        }
        assert!(futures::FutureExt::now_or_never(places[ADDRESS_REVIEWS_MAX].enter()).is_none());
        let other = admission.place(Some(IpAddr::from([10, 0, 0, 2]))).unwrap();
        drop(futures::FutureExt::now_or_never(other.enter()).unwrap());
        drop((turns, places, other));
        assert_eq!(admission.addresses(), 0);
    }
}

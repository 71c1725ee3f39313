//! How many reviews run and wait, in all and for one client address, so that whoever floods Weir with bad tokens neither overloads the
//! upstream nor keeps others' new tokens from being looked at.
//!
//! A review first needs one of its address' turns, then one of all. Turns are given in the order of asking, and an address stands in
//! the second queue with no more than its own turns: a newcomer waits behind a few of each address, not behind all that an address asks.
//!
//! Tokens that were good a while ago have turns of their own, in neither queue: who is known is not slowed by who is not, be it behind the same
//! address. So have open watches, whose tokens are looked at again without anybody at the other end: whoever floods Weir must not keep a revoked
//! token's watch open.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::auth::peer::client_key;

/// See the module.
#[derive(Debug)]
pub(super) struct Admission {
    reviews: Arc<Semaphore>,
    askers: Mutex<Askers>,
}

#[derive(Debug, Default)]
struct Askers {
    queues: HashMap<Asker, Queue>,
    /// Places in all queues but those apart.
    places: usize,
}

/// There are too many reviews.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// The asker's own.
    Asker,
    /// Those of others.
    Others,
}

/// For whom a review is: each has turns of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Asker {
    /// Clients at an address, as [`Asker::at`] makes it.
    Address(IpAddr),
    /// Those on Unix sockets.
    Socket,
    /// Clients whose token was good a while ago, wherever they are.
    Known,
    /// Open watches, wherever from.
    Watches,
}

/// One asker, while it has reviews.
#[derive(Debug)]
struct Queue {
    turns: Arc<Semaphore>,
    /// Those that run and wait.
    places: usize,
}

/// The right of one review to wait for its turn.
#[derive(Debug)]
pub(super) struct Place {
    admission: Arc<Admission>,
    asker: Asker,
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
        Self { reviews: Arc::new(Semaphore::new(REVIEWS_MAX)), askers: Mutex::default() }
    }
}

impl Admission {
    /// A place for one review.
    pub(super) fn place(self: &Arc<Self>, asker: Asker) -> Result<Place, Full> {
        let (turns_max, places_max) = match asker {
            Asker::Address(_) | Asker::Socket => (ADDRESS_REVIEWS_MAX, ADDRESS_PLACES_MAX),
            Asker::Known | Asker::Watches => (APART_REVIEWS_MAX, APART_PLACES_MAX),
        };
        let mut askers = self.askers.lock();
        let apart = asker.is_apart();
        if !apart && askers.places >= PLACES_MAX {
            return Err(Full::Others);
        }
        let queue = askers
            .queues
            .entry(asker)
            .or_insert_with(|| Queue { turns: Arc::new(Semaphore::new(turns_max)), places: 0 });
        if queue.places >= places_max {
            // Known tokens and watches are of many.
            return Err(if apart { Full::Others } else { Full::Asker });
        }
        queue.places += 1;
        let turns = queue.turns.clone();
        askers.places += usize::from(!apart);
        Ok(Place { admission: self.clone(), asker, turns })
    }

    /// Askers that have reviews.
    #[cfg(test)]
    pub(super) fn askers(&self) -> usize {
        self.askers.lock().queues.len()
    }
}

impl Asker {
    /// Whether its turns are its own, beyond those of all others.
    pub(super) fn is_apart(self) -> bool {
        matches!(self, Self::Known | Self::Watches)
    }

    /// A client at this address; `None` on a Unix socket.
    pub(crate) fn at(address: Option<IpAddr>) -> Self {
        address.map_or(Self::Socket, |address| Self::Address(client_key(address)))
    }
}

impl Place {
    /// Waits for the turn.
    pub(super) async fn enter(&self) -> Turn {
        // No semaphore is ever closed.
        let own = self.turns.clone().acquire_owned().await.ok();
        let of_all = match self.asker.is_apart() {
            true => None,
            false => self.admission.reviews.clone().acquire_owned().await.ok(),
        };
        Turn { _own: own, _of_all: of_all }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut askers = self.admission.askers.lock();
        askers.places -= usize::from(!self.asker.is_apart());
        if let Some(queue) = askers.queues.get_mut(&self.asker) {
            queue.places -= 1;
            if queue.places == 0 {
                askers.queues.remove(&self.asker);
            }
        }
    }
}

/// Reviews under way at once, but for those apart: at a few milliseconds each, some ten thousand new tokens a second, and a small part of what kube-apiserver lets
/// in (400 read requests and 200 others by default, by `--max-requests-inflight`).
pub(super) const REVIEWS_MAX: usize = 64;
/// Those of one address: a quarter, since behind one address there may be a whole network's clients.
pub(super) const ADDRESS_REVIEWS_MAX: usize = 16;
/// Those of one address that run and wait: a quarter of all that may.
pub(super) const ADDRESS_PLACES_MAX: usize = 256;
/// Those that run and wait, but for those apart.
pub(super) const PLACES_MAX: usize = 1024;
/// Those of known tokens, and as many of open watches, whose looks are spread over their interval: with a few milliseconds a review this is enough
/// for some hundred thousand tokens a minute.
const APART_REVIEWS_MAX: usize = 32;
/// Those of each that run and wait: as many as have their turn within the time that a review may wait for it.
const APART_PLACES_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_network_is_one_address() {
        let of = |text: &str| Asker::at(Some(text.parse().unwrap()));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }

    #[tokio::test]
    async fn an_address_has_no_more_than_its_turns_and_leaves_nothing_behind() {
        let admission = Arc::new(Admission::default());
        let one = Asker::at(Some(IpAddr::from([10, 0, 0, 1])));
        let places: Vec<_> =
            (0..ADDRESS_PLACES_MAX).map(|_| admission.place(one).unwrap()).collect();
        assert_eq!(admission.place(one).err(), Some(Full::Asker));
        let mut turns = Vec::new();
        for place in &places[..ADDRESS_REVIEWS_MAX] {
            turns.push(place.enter().await);
        }
        assert!(futures::FutureExt::now_or_never(places[ADDRESS_REVIEWS_MAX].enter()).is_none());
        let other = admission.place(Asker::at(Some(IpAddr::from([10, 0, 0, 2])))).unwrap();
        drop(futures::FutureExt::now_or_never(other.enter()).unwrap());
        drop((turns, places, other));
        assert_eq!(admission.askers(), 0);
    }
}

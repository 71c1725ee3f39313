//! Which server each client's stale reads go to.
//!
//! A client stays at its server while that is usable, even if the load of the others changes: each
//! move may take it back in time. The table has a fixed size and no lock. A set of four places is
//! shared by the clients with the same hash; a fifth one takes a place at random. The client that
//! lost it is placed by rendezvous hashing again, as a new one is.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::{Duration, Instant};

/// The servers of clients.
#[derive(Debug)]
pub(super) struct StickyTable {
    created: Instant,
    /// Allocated when there is a choice: most Weirs have one server.
    sets: OnceLock<Box<[Set]>>,
}

type Set = [Place; PLACES];

#[derive(Debug, Default)]
struct Place {
    /// One more than the client, so that a place of zeros is free.
    client: AtomicU64,
    server: AtomicU64,
    /// When the client was given the server, in nanoseconds after `created`.
    since_nanos: AtomicU64,
}

/// The server of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stay {
    /// The key of the server.
    pub(super) server: u64,
    /// When the client was given it.
    pub(super) since: Instant,
}

impl StickyTable {
    pub(super) fn new(now: Instant) -> Self {
        Self { created: now, sets: OnceLock::new() }
    }

    /// Returns the server of a client.
    pub(super) fn get(&self, client: u64) -> Option<Stay> {
        let place = self.place(client)?;
        let server = place.server.load(Ordering::SeqCst);
        let since = Duration::from_nanos(place.since_nanos.load(Ordering::SeqCst));
        // Another client may have taken the place meanwhile.
        let is_clients = place.client.load(Ordering::SeqCst) == mark(client);
        is_clients.then_some(Stay { server, since: self.created + since })
    }

    /// Notes that a client is given a server, by its key, at `now`.
    pub(super) fn set(&self, client: u64, server: u64, now: Instant) {
        let set = self.set_of(client);
        let is_free = |place: &&Place| place.client.load(Ordering::SeqCst) == NO_CLIENT;
        let place = self.place(client).or_else(|| set?.iter().find(is_free));
        let Some(place) = place.or_else(|| set?.get(fastrand::usize(..PLACES))) else { return };
        let since = now.saturating_duration_since(self.created);
        place.client.store(NO_CLIENT, Ordering::SeqCst);
        place.server.store(server, Ordering::SeqCst);
        let nanos = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        place.since_nanos.store(nanos, Ordering::SeqCst);
        place.client.store(mark(client), Ordering::SeqCst);
    }

    fn place(&self, client: u64) -> Option<&Place> {
        let is_clients = |place: &&Place| place.client.load(Ordering::SeqCst) == mark(client);
        self.set_of(client)?.iter().find(is_clients)
    }

    fn set_of(&self, client: u64) -> Option<&Set> {
        let new = || (0..SETS).map(|_| Set::default()).collect();
        self.sets.get_or_init(new).get(usize::try_from(client % SETS).ok()?)
    }
}

/// Returns the mark of a client's place. A client's number is a hash, or 0 for all clients of a
/// sidecar. The two largest hashes have the same mark.
fn mark(client: u64) -> u64 {
    client.saturating_add(1)
}

/// The mark of a place without a client.
const NO_CLIENT: u64 = 0;
const PLACES: usize = 4;
/// There are 16,384 places, in 384 KiB.
const SETS: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_keeps_its_server_while_few_share_its_set() {
        let start = Instant::now();
        let table = StickyTable::new(start);
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!((table.get(0), table.get(7)), (None, None));
        for number in 0..4 {
            table.set(7 + number * SETS, 100 + number, at(number));
        }
        for number in 0..4 {
            let stay = Stay { server: 100 + number, since: at(number) };
            assert_eq!(table.get(7 + number * SETS), Some(stay));
        }
        table.set(7, 200, at(9));
        assert_eq!(table.get(7), Some(Stay { server: 200, since: at(9) }));
        table.set(7 + 4 * SETS, 300, at(10));
        let kept = (0..5).filter(|number| table.get(7 + number * SETS).is_some()).count();
        assert_eq!((kept, table.get(7 + 4 * SETS).unwrap().server), (4, 300));
    }
}

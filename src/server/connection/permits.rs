//! The limits on open connections: of an address, as long as they have proved no user, and of a
//! user (`docs/decisions/limits-by-user.md`). `server::forward::quota` limits requests to the
//! upstream.
//!
//! A connection counts for its address when it is accepted. The first request that proves a user
//! moves it to this user, for as long as it is open. So the many users behind a load balancer do
//! not share the limit of its address, and what has proved nobody stays within it. In gateway mode
//! the oldest idle one of those makes room for the next ([`mod@super::eviction`]).
//!
//! Invariant: a connection counts for its address, or for its user and for its user at this
//! address, or it is evicted and counts for nothing.
//!
//! Locks: that of a permit's user, then that of the table, then that of the counter of users, held
//! for a look-up only.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;

use crate::auth::peer::client_key;
use crate::auth::user::UserKey;
use crate::server::connection::eviction::{Eviction, Unproven};
use crate::tasks::keyed_counter::{Counted, KeyedCounter};
use crate::telemetry::log_throttle::LogThrottle;

#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    /// Those of one address that have proved no user, and those of one user at one address. All
    /// Unix sockets count as one address.
    pub(crate) per_address_max: usize,
    /// Those of one user at all addresses.
    pub(crate) per_user_max: usize,
    /// Whether a connection that has proved no user makes room for the next one.
    pub(crate) evicts: bool,
}

/// Counts open connections by address and by user. Cheap to clone: clones share the counts.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionCounts {
    table: Arc<Mutex<Table>>,
    proven: KeyedCounter<ProvenKey>,
    limits: ConnectionLimits,
}

#[derive(Debug)]
struct Table {
    /// Those of each address. Never holds zero. Bounded by the number of permits.
    unproven: HashMap<Option<IpAddr>, Unproven>,
    refusals: LogThrottle,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ProvenKey {
    User(UserKey),
    UserAt(UserKey, Option<IpAddr>),
}

/// The permit of a connection, with its slot of the listener. It travels with the socket, below TLS
/// and HTTP, so that a connection still counts after an upgrade. Released when dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    counts: ConnectionCounts,
    address: Option<IpAddr>,
    /// Counts the connection for the user that it was moved to, and for this user at the address.
    user: Mutex<Option<Box<[Counted<ProvenKey>; 2]>>>,
    eviction: Arc<Eviction>,
    _slot: OwnedSemaphorePermit,
}

/// The permit of a new connection.
#[derive(Debug)]
pub(crate) struct Acquired {
    pub(crate) permit: ConnectionPermit,
    /// Whether another connection was closed for it.
    pub(crate) made_room: bool,
}

/// Error: the address has as many connections open as allowed, and none of them can make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AddressAtLimit;

/// Error: the user has as many connections open as allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UserAtLimit;

impl ConnectionCounts {
    pub(crate) fn new(limits: ConnectionLimits) -> Self {
        let table = Table { unproven: HashMap::new(), refusals: LogThrottle::new(LOG_INTERVAL) };
        Self { table: Arc::new(Mutex::new(table)), proven: KeyedCounter::default(), limits }
    }

    /// Acquires a permit for a connection from `address` (`None`: a Unix socket). The permit also
    /// holds `slot`, its share of a limit on all clients. Fails if the address is at its limit and
    /// no connection of it can make room.
    pub(crate) fn try_acquire(
        &self,
        address: Option<IpAddr>,
        slot: OwnedSemaphorePermit,
    ) -> Result<Acquired, AddressAtLimit> {
        let key = address.map(client_key);
        let mut table = self.table.lock();
        let unproven = table.unproven.entry(key).or_default();
        let mut evicted = None;
        if unproven.count >= self.limits.per_address_max {
            evicted = self.limits.evicts.then(|| unproven.evict()).flatten();
            if evicted.is_none() {
                let refusal = table.refusals.try_acquire();
                drop(table);
                self.log(refusal, "a client has too many connections open; refusing more", address);
                return Err(AddressAtLimit);
            }
        }
        let eviction = Arc::<Eviction>::default();
        if self.limits.evicts {
            unproven.push(&eviction);
        } else {
            eviction.keep();
            unproven.count += 1;
        }
        drop(table);
        if let Some(evicted) = &evicted {
            evicted.wake();
        }
        let (counts, user) = (self.clone(), Mutex::default());
        let permit = ConnectionPermit { counts, address: key, user, eviction, _slot: slot };
        Ok(Acquired { permit, made_room: evicted.is_some() })
    }

    /// Logs a refusal, with the number of those that were not logged before.
    fn log(&self, refusal: Option<u64>, message: &'static str, address: Option<IpAddr>) {
        let Some(suppressed) = refusal else { return };
        let address = address.map_or_else(|| "unix".to_owned(), |address| address.to_string());
        let max = self.limits.per_address_max;
        tracing::warn!(address, max, suppressed, "{message}");
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.proven.keys() + self.table.lock().unproven.len()
    }
}

impl Table {
    /// Counts a connection of an address no more, unless it was evicted.
    fn remove_unproven(&mut self, address: Option<IpAddr>, eviction: &Eviction) {
        if eviction.is_evicted() {
            return;
        }
        if let Entry::Occupied(mut unproven) = self.unproven.entry(address) {
            unproven.get_mut().count -= 1;
            if unproven.get().count == 0 {
                unproven.remove();
            }
        }
    }
}

impl ConnectionPermit {
    /// Returns whether the connection may be closed to make room for others.
    pub(crate) fn eviction(&self) -> &Arc<Eviction> {
        &self.eviction
    }

    /// Moves the connection from its address to the user that its request has proved. Does nothing
    /// if it was moved before: a connection of several users stays with the first. Fails if the
    /// user is at a limit; the caller then closes the connection, which must not take the place of
    /// others behind its address.
    pub(crate) fn move_to(&self, user: UserKey) -> Result<(), UserAtLimit> {
        let mut moved_to = self.user.lock();
        if moved_to.is_some() {
            return Ok(());
        }
        let ConnectionCounts { table, proven, limits } = &self.counts;
        let mut table = table.lock();
        if self.eviction.is_evicted() {
            // It is just being closed.
            return Ok(());
        }
        let here = ProvenKey::UserAt(user, self.address);
        let here = proven.try_add_below(here, limits.per_address_max);
        let everywhere = proven.try_add_below(ProvenKey::User(user), limits.per_user_max);
        let Some(counted) = here.zip(everywhere) else {
            let refusal = table.refusals.try_acquire();
            drop(table);
            self.counts.log(
                refusal,
                "a user has too many connections open; closing more",
                self.address,
            );
            return Err(UserAtLimit);
        };
        table.remove_unproven(self.address, &self.eviction);
        self.eviction.keep();
        *moved_to = Some(Box::new(counted.into()));
        Ok(())
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        if self.user.get_mut().is_none() {
            self.counts.table.lock().remove_unproven(self.address, &self.eviction);
        }
    }
}

/// A flood of refusals is logged once in this interval.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;

    use super::*;
    use crate::auth::user::User;

    struct Listener {
        slots: Arc<Semaphore>,
        counts: ConnectionCounts,
    }

    impl Listener {
        fn new(per_address_max: usize, per_user_max: usize, evicts: bool) -> Self {
            let limits = ConnectionLimits { per_address_max, per_user_max, evicts };
            let counts = ConnectionCounts::new(limits);
            Self { slots: Arc::new(Semaphore::new(100)), counts }
        }

        fn accept(&self, address: Option<&str>) -> Option<ConnectionPermit> {
            let slot = Arc::clone(&self.slots).try_acquire_owned().unwrap();
            let acquired =
                self.counts.try_acquire(address.map(|address| address.parse().unwrap()), slot);
            acquired.ok().map(|acquired| acquired.permit)
        }

        fn has_forgotten_all(&self) -> bool {
            (self.counts.len(), self.slots.available_permits()) == (0, 100)
        }
    }

    fn user(name: &str) -> UserKey {
        User::new(name.to_owned(), String::new(), Vec::new(), [].into()).name_key()
    }

    #[tokio::test]
    async fn an_address_is_limited_and_released_permits_are_free_again() {
        let listener = Listener::new(2, 100, false);
        let accept = |address| listener.accept(address);
        let first = accept(Some("192.0.2.1"));
        let mapped = accept(Some("::ffff:192.0.2.1"));
        assert!(first.is_some() && mapped.is_some());
        assert!(accept(Some("192.0.2.1")).is_none());
        let (one, two) = (accept(Some("2001:db8::1")), accept(Some("2001:db8::2")));
        assert!(one.is_some() && two.is_some());
        assert!(accept(Some("2001:db8::3")).is_none(), "a /64 is one client");
        let others = [accept(Some("2001:db8:0:1::1")), accept(None), accept(None)];
        assert!(others.iter().all(Option::is_some));
        assert!(accept(None).is_none(), "all Unix sockets are one client");
        drop(first);
        assert!(accept(Some("192.0.2.1")).is_some());
        drop((mapped, one, two, others));
        assert!(listener.has_forgotten_all());
    }

    #[tokio::test]
    async fn users_behind_one_address_do_not_share_its_limit() {
        let listener = Listener::new(2, 3, false);
        let balancer = || listener.accept(Some("192.0.2.1"));
        let mut open = Vec::new();
        for name in ["a", "b", "c", "d", "a"] {
            let connection = balancer().unwrap();
            assert_eq!(connection.move_to(user(name)), Ok(()));
            assert_eq!(connection.move_to(user("e")), Ok(()), "it stays with the first user");
            open.push(connection);
        }
        let third = balancer().unwrap();
        assert_eq!(third.move_to(user("a")), Err(UserAtLimit));
        let unproven = balancer().unwrap();
        assert!(balancer().is_none(), "what has proved no user has the limit of the address");
        drop(third);
        let elsewhere = listener.accept(Some("192.0.2.2")).unwrap();
        assert_eq!(elsewhere.move_to(user("a")), Ok(()), "two at each address");
        let beyond = listener.accept(Some("192.0.2.3")).unwrap();
        assert_eq!(beyond.move_to(user("a")), Err(UserAtLimit), "three at all of them");
        open.pop();
        assert_eq!(beyond.move_to(user("a")), Ok(()));
        drop((open, unproven, elsewhere, beyond));
        assert!(listener.has_forgotten_all());
    }

    #[tokio::test]
    async fn what_has_proved_no_user_makes_room() {
        let listener = Listener::new(2, 100, true);
        let silent: Vec<_> = (0..5).map(|_| listener.accept(Some("192.0.2.1")).unwrap()).collect();
        let evicted = || {
            silent.iter().map(|connection| connection.eviction().is_evicted()).collect::<Vec<_>>()
        };
        assert_eq!(evicted(), [true, true, true, false, false]);
        assert_eq!(silent[3].move_to(user("a")), Ok(()));
        let next = [(); 2].map(|()| listener.accept(Some("192.0.2.1")).unwrap());
        assert_eq!(evicted(), [true, true, true, false, true]);
        assert_eq!(silent[0].move_to(user("b")), Ok(()), "it is being closed");
        drop((silent, next));
        assert!(listener.has_forgotten_all());
    }
}

//! The limit on the connections that one client has open at once. `server::forward::quota` limits
//! its requests to the upstream.
//!
//! A permit belongs to the client's address, and is released when it is dropped.
//!
//! Lock: that of the table of addresses, held for a look-up only.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;

use crate::auth::peer::client_key;
use crate::telemetry::log_throttle::LogThrottle;

/// Counts by client address how many permits are held. Cheap to clone: clones share the counts.
#[derive(Clone, Debug)]
pub(crate) struct PerClientLimiter {
    table: Arc<Mutex<Table>>,
    /// The name of the limited resource in the log.
    resource: &'static str,
}

#[derive(Debug)]
struct Table {
    /// Never holds zero: an address without permits is not in the table. Bounded by the number of
    /// permits.
    held: HashMap<Option<IpAddr>, usize>,
    refusals: LogThrottle,
}

impl PerClientLimiter {
    /// Creates a limiter. `resource` names what it limits in the log.
    pub(crate) fn new(resource: &'static str) -> Self {
        let table = Table { held: HashMap::new(), refusals: LogThrottle::new(LOG_INTERVAL) };
        Self { table: Arc::new(Mutex::new(table)), resource }
    }

    /// Acquires a permit for `address`, which holds at most `max` (`None`: all Unix sockets
    /// together). The permit also holds `slot`, its share of a limit on all clients. Returns `None`
    /// if the address is at its limit.
    pub(crate) fn try_acquire<S>(
        &self,
        address: Option<IpAddr>,
        max: usize,
        slot: S,
    ) -> Option<ClientPermit<S>> {
        let key = address.map(client_key);
        let mut table = self.table.lock();
        let held = table.held.entry(key).or_default();
        if *held >= max {
            if let Some(suppressed) = table.refusals.try_acquire() {
                drop(table);
                let address = address.map_or_else(|| "unix".to_owned(), |it| it.to_string());
                tracing::warn!(
                    address,
                    resource = self.resource,
                    max,
                    suppressed,
                    "a client is at its limit; refusing more"
                );
            }
            return None;
        }
        *held += 1;
        drop(table);
        Some(ClientPermit { limiter: self.clone(), key, _slot: slot })
    }

    #[cfg(test)]
    fn addresses(&self) -> usize {
        self.table.lock().held.len()
    }
}

/// A permit of one client, released when dropped.
#[derive(Debug)]
pub(crate) struct ClientPermit<S = ()> {
    limiter: PerClientLimiter,
    key: Option<IpAddr>,
    _slot: S,
}

/// The permit of a connection, with its slot of the listener. It travels with the socket, below TLS
/// and HTTP, so that a connection still counts after an upgrade.
pub(crate) type ConnectionPermit = ClientPermit<OwnedSemaphorePermit>;

impl<S> Drop for ClientPermit<S> {
    fn drop(&mut self) {
        let mut table = self.limiter.table.lock();
        if let Entry::Occupied(mut held) = table.held.entry(self.key) {
            if *held.get() > 1 {
                *held.get_mut() -= 1;
            } else {
                held.remove();
            }
        }
    }
}

/// A flood of refusals is logged once in this interval.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test]
    async fn an_address_is_limited_and_released_permits_are_free_again() {
        let slots = Arc::new(Semaphore::new(100));
        let limiter = PerClientLimiter::new("connections");
        let acquire = |address: Option<&str>| {
            let slot = Arc::clone(&slots).try_acquire_owned().unwrap();
            limiter.try_acquire(address.map(|it| it.parse().unwrap()), 2, slot)
        };
        let first = acquire(Some("192.0.2.1"));
        let mapped = acquire(Some("::ffff:192.0.2.1"));
        assert!(first.is_some() && mapped.is_some());
        assert!(acquire(Some("192.0.2.1")).is_none());
        let (one, two) = (acquire(Some("2001:db8::1")), acquire(Some("2001:db8::2")));
        assert!(one.is_some() && two.is_some());
        assert!(acquire(Some("2001:db8::3")).is_none(), "a /64 is one client");
        let others = [acquire(Some("2001:db8:0:1::1")), acquire(None), acquire(None)];
        assert!(others.iter().all(Option::is_some));
        assert!(acquire(None).is_none(), "all Unix sockets are one client");
        drop(first);
        assert!(acquire(Some("192.0.2.1")).is_some());
        drop((mapped, one, two, others));
        assert_eq!((limiter.addresses(), slots.available_permits()), (0, 100));
    }
}

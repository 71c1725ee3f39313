//! The upstream quota: the limit of one client on upstream concurrency, and on cancelled requests.
//!
//! Each client of kube-apiserver has connections of its own. Behind Weir all clients share
//! connections, so that a client with all of their streams would keep the others out, and one that
//! cancels many requests would wear the connections out. One client therefore gets at most half of
//! each (`docs/decisions/limits-by-user.md`).
//!
//! In gateway mode a client is a user, whatever the address, or an address while the user is not
//! known (`docs/decisions/limits-by-user.md`). In sidecar mode all requests have one identity, and
//! a client is a connection.
//!
//! Lock order: the counter of open requests, then the table of cancelled ones, both for a look-up
//! only.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::auth::user::UserKey;
use crate::server::connection::client_id::ClientId;
use crate::tasks::keyed_counter::{Counted, KeyedCounter};
use crate::telemetry::log_throttle::LogThrottle;
use crate::upstream::TrafficClass;
use crate::upstream::recent_count::RecentCount;
use crate::upstream::send_options::ResetObserver;

/// Limits the open upstream requests of each client, and how many they cancel. Cheap to clone:
/// clones share the counts.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamQuota {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    open: KeyedCounter<CountedAs>,
    cancelled: Mutex<Cancelled>,
    refusals: LogThrottle,
    hasher: RandomState,
}

type CountedAs = (ClientId, Kind);

#[derive(Debug, Default)]
struct Cancelled {
    counts: HashMap<CountedAs, RecentCount>,
    /// The size of `counts` at which clients are removed that cancelled nothing lately.
    sweep_at: usize,
}

#[derive(Clone, Copy, Debug, Hash)]
pub(crate) struct ClientIds {
    /// The address, or the connection.
    first: ClientId,
    user: Option<ClientId>,
}

impl ClientIds {
    /// Returns the client of a gateway. `user` is the key of a user's name.
    pub(crate) fn from_address(address: Option<IpAddr>, user: Option<UserKey>) -> Self {
        Self { first: ClientId::from_address(address), user: user.map(ClientId::User) }
    }

    pub(crate) fn from_connection(number: u64) -> Self {
        Self { first: ClientId::Connection(number), user: None }
    }

    /// Returns the id under which requests count. It is the user, if known: the address may be
    /// that of a load balancer, and its other users have no part in them.
    fn counted(self) -> ClientId {
        self.user.unwrap_or(self.first)
    }
}

crate::api::labels! {
    /// A kind of request. Each has a limit of its own.
    enum Kind {
        Requests = "forwarded requests",
        Streams = "forwarded streams",
        Upgrades = "upgrades",
        UnprovenRequests = "forwarded requests without a proven credential",
        UnprovenStreams = "forwarded streams without a proven credential",
    }
}

impl Kind {
    fn new(class: TrafficClass, unproven: bool) -> Self {
        match class {
            TrafficClass::Request | TrafficClass::List if unproven => Self::UnprovenRequests,
            TrafficClass::Request | TrafficClass::List => Self::Requests,
            TrafficClass::Stream if unproven => Self::UnprovenStreams,
            TrafficClass::Stream => Self::Streams,
            TrafficClass::Upgrade => Self::Upgrades,
        }
    }
}

/// The capacity that all clients have together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Capacity {
    /// The requests that can be open.
    pub(crate) streams_max: usize,
    /// The requests that can be cancelled within half a minute.
    pub(crate) resets_max: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtLimit {
    Open,
    Cancelled,
}

/// The permission of a client to one open upstream request, released when dropped.
#[derive(Debug)]
pub(crate) struct QuotaPermit {
    quota: UpstreamQuota,
    open: Counted<CountedAs>,
}

impl UpstreamQuota {
    pub(crate) fn new() -> Self {
        let inner = Inner {
            open: KeyedCounter::default(),
            cancelled: Mutex::default(),
            refusals: LogThrottle::new(LOG_INTERVAL),
            hasher: RandomState::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Acquires a permit for `client`, who gets at most half of what all clients have. `unproven`
    /// is whether the request goes by the connections of unproven credentials.
    pub(crate) fn try_acquire(
        &self,
        client: ClientIds,
        class: TrafficClass,
        unproven: bool,
        capacity: Capacity,
    ) -> Result<QuotaPermit, AtLimit> {
        let kind = Kind::new(class, unproven);
        let counted_as = (client.counted(), kind);
        let opened = self.inner.open.try_add(counted_as, |before| {
            if before.count >= capacity.streams_max / 2 {
                return Err(AtLimit::Open);
            }
            let cancelled = self.inner.cancelled.lock().count(counted_as, Instant::now());
            if cancelled >= capacity.resets_max / 2 { Err(AtLimit::Cancelled) } else { Ok(()) }
        });
        match opened {
            Ok((open, ())) => Ok(QuotaPermit { quota: self.clone(), open }),
            Err(limit) => {
                self.log(client, kind, limit);
                Err(limit)
            }
        }
    }

    /// Returns the client as a number, for what the upstream keeps apart by client: a user at an
    /// address, whatever the connection. One user may be the pods of many nodes.
    pub(crate) fn pin(&self, client: ClientIds) -> u64 {
        match client.first {
            // A sidecar's clients are one pod's. Its tools open a connection for each request.
            ClientId::Connection(_) => 0,
            _ => self.inner.hasher.hash_one(client),
        }
    }

    fn log(&self, client: ClientIds, kind: Kind, limit: AtLimit) {
        if let Some(suppressed) = self.inner.refusals.try_acquire() {
            let address = match client.first {
                ClientId::Address(Some(address)) => address.to_string(),
                ClientId::Address(None) | ClientId::Connection(_) | ClientId::User(_) => {
                    "local".to_owned()
                }
            };
            let resource = kind.as_str();
            tracing::warn!(
                address,
                resource,
                ?limit,
                suppressed,
                "a client is at its limit; refusing more"
            );
        }
    }
}

impl Cancelled {
    fn count(&mut self, counted_as: CountedAs, now: Instant) -> usize {
        self.counts.get_mut(&counted_as).map_or(0, |count| count.get(now))
    }

    /// Counts a cancelled request. The table is bounded by the requests that are cancelled within
    /// half a minute.
    fn add(&mut self, counted_as: CountedAs, now: Instant) {
        if self.counts.len() >= self.sweep_at.max(SWEEP_MIN) {
            self.counts.retain(|_, count| count.get(now) > 0);
            self.sweep_at = self.counts.len() * 2;
        }
        self.counts.entry(counted_as).or_insert_with(|| RecentCount::new(now)).add(now);
    }
}

impl QuotaPermit {
    pub(crate) fn client(&self) -> ClientId {
        let (client, _) = self.open.key();
        *client
    }
}

impl ResetObserver for QuotaPermit {
    fn stream_was_reset(&self) {
        self.quota.inner.cancelled.lock().add(*self.open.key(), Instant::now());
    }
}

/// Below this size the table is not searched for clients to remove.
const SWEEP_MIN: usize = 1024;
/// A flood of refusals is logged once in this interval.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::user::User;

    const CAPACITY: Capacity = Capacity { streams_max: 9, resets_max: 21 };

    fn address(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([192, 0, 2, last]))
    }

    fn acquire(quota: &UpstreamQuota, client: ClientIds) -> Result<QuotaPermit, AtLimit> {
        quota.try_acquire(client, TrafficClass::Request, false, CAPACITY)
    }

    #[test]
    fn one_client_gets_at_most_half() {
        let [greedy, other] = [1, 2].map(|last| ClientIds::from_address(address(last), None));
        let quota = UpstreamQuota::new();
        for class in [TrafficClass::Request, TrafficClass::Stream, TrafficClass::Upgrade] {
            for unproven in [false, true] {
                let acquire = |client| quota.try_acquire(client, class, unproven, CAPACITY);
                let mut permits = Vec::new();
                while let Ok(permit) = acquire(greedy) {
                    permits.push(permit);
                }
                assert_eq!(permits.len(), 4);
                assert!(acquire(other).is_ok());
                permits.pop();
                assert!(acquire(greedy).is_ok());
            }
        }
    }

    #[test]
    fn a_user_with_many_addresses_gets_at_most_half() {
        let quota = UpstreamQuota::new();
        let user = |name: &str| {
            let user = User::new(name.to_owned(), String::new(), Vec::new(), [].into());
            Some(user.name_key())
        };
        let mut permits = Vec::new();
        for last in 0..9 {
            permits.extend(acquire(&quota, ClientIds::from_address(address(last), user("a"))));
        }
        assert_eq!(permits.len(), 4);
        assert!(acquire(&quota, ClientIds::from_address(address(0), user("b"))).is_ok());
        drop(permits);
        assert!(acquire(&quota, ClientIds::from_address(address(0), user("a"))).is_ok());
    }

    #[test]
    fn users_behind_one_address_do_not_share_its_half() {
        let quota = UpstreamQuota::new();
        let behind = |name: Option<&str>| {
            let user = name.map(|name| {
                User::new(name.to_owned(), String::new(), Vec::new(), [].into()).name_key()
            });
            ClientIds::from_address(address(1), user)
        };
        let fill = |client| {
            let mut permits = Vec::new();
            while let Ok(permit) = acquire(&quota, client) {
                permits.push(permit);
            }
            permits
        };
        let hostile = fill(behind(Some("hostile")));
        let unknown = fill(behind(None));
        assert_eq!((hostile.len(), unknown.len()), (4, 4));
        assert!(acquire(&quota, behind(Some("other"))).is_ok());
        for _ in 0..10 {
            hostile[0].stream_was_reset();
        }
        drop(hostile);
        assert_eq!(acquire(&quota, behind(Some("hostile"))).err(), Some(AtLimit::Cancelled));
        assert!(acquire(&quota, behind(Some("other"))).is_ok());
    }

    #[test]
    fn a_user_is_another_client_at_another_address() {
        let quota = UpstreamQuota::new();
        let user = User::new("a".to_owned(), String::new(), Vec::new(), [].into());
        let pin = |last, user: Option<&User>| {
            quota.pin(ClientIds::from_address(address(last), user.map(User::name_key)))
        };
        assert_eq!(pin(1, Some(&user)), pin(1, Some(&user)));
        assert_ne!(pin(1, Some(&user)), pin(2, Some(&user)));
        assert_ne!(pin(1, Some(&user)), pin(1, None));
        let connections = [1, 2].map(|number| quota.pin(ClientIds::from_connection(number)));
        assert_eq!(connections, [0, 0], "they are one pod's");
    }

    #[tokio::test(start_paused = true)]
    async fn cancelled_requests_are_charged_to_the_client_that_cancelled_them() {
        let quota = UpstreamQuota::new();
        let canceller = ClientIds::from_connection(1);
        for _ in 0..10 {
            acquire(&quota, canceller).unwrap().stream_was_reset();
        }
        assert_eq!(acquire(&quota, canceller).err(), Some(AtLimit::Cancelled));
        assert!(acquire(&quota, ClientIds::from_connection(2)).is_ok());
        let streams = quota.try_acquire(canceller, TrafficClass::Stream, false, CAPACITY);
        assert!(streams.is_ok(), "another kind of request");
        tokio::time::advance(Duration::from_secs(31)).await;
        assert!(acquire(&quota, canceller).is_ok(), "they are forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_without_requests_takes_no_memory() {
        let quota = UpstreamQuota::new();
        for number in 0..20_000 {
            let permit = acquire(&quota, ClientIds::from_connection(number)).unwrap();
            if number % 2 == 0 {
                permit.stream_was_reset();
            }
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        assert!(quota.inner.open.keys() + quota.inner.cancelled.lock().counts.len() < 2_000);
    }
}

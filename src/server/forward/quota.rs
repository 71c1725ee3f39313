//! The upstream quota: the limit of one client on upstream concurrency.
//!
//! Each client of kube-apiserver has connections of its own. Behind Weir all clients share
//! connections, so that a client with all of their streams would keep the others out. One address
//! therefore gets at most half of each kind of stream. The key is the client's address and not its
//! user, since Weir does not authenticate forwarded requests, and one user may have any number of
//! tokens (`docs/decisions/upstream-quota.md`).
//!
//! In sidecar mode all clients are one client, and there is no quota.

use std::net::IpAddr;

use crate::server::connection::permits::{ClientPermit, PerClientLimiter};
use crate::upstream::TrafficClass;

/// Limits the open upstream requests of each client.
#[derive(Debug)]
pub(crate) struct UpstreamQuota {
    requests: PerClientLimiter,
    streams: PerClientLimiter,
    upgrades: PerClientLimiter,
}

/// The permission of a client to one open upstream request, released when dropped.
pub(crate) type QuotaPermit = ClientPermit;

impl UpstreamQuota {
    /// Creates a quota that no client has used.
    pub(crate) fn new() -> Self {
        Self {
            requests: PerClientLimiter::new("forwarded requests"),
            streams: PerClientLimiter::new("forwarded streams"),
            upgrades: PerClientLimiter::new("upgrades"),
        }
    }

    /// Acquires a permit for `address`, where `streams_max` are available to all clients. Returns
    /// `None` if the client has half of them.
    pub(crate) fn try_acquire(
        &self,
        address: Option<IpAddr>,
        class: TrafficClass,
        streams_max: usize,
    ) -> Option<QuotaPermit> {
        let limiter = match class {
            TrafficClass::Request | TrafficClass::Read | TrafficClass::List => &self.requests,
            TrafficClass::Stream => &self.streams,
            TrafficClass::Upgrade => &self.upgrades,
        };
        limiter.try_acquire(address, streams_max / 2, ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_gets_at_most_half() {
        let [greedy, other] = [1, 2].map(|last| Some(IpAddr::from([192, 0, 2, last])));
        let quota = UpstreamQuota::new();
        for class in [TrafficClass::Request, TrafficClass::Stream, TrafficClass::Upgrade] {
            let mut permits = Vec::new();
            while let Some(permit) = quota.try_acquire(greedy, class, 9) {
                permits.push(permit);
            }
            assert_eq!(permits.len(), 4);
            assert!(quota.try_acquire(other, class, 9).is_some());
            permits.pop();
            assert!(quota.try_acquire(greedy, class, 9).is_some());
        }
    }
}

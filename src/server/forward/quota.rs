//! How much of the ways to the upstream one client may take up at once.
//!
//! Before kube-apiserver itself each client has connections of its own; behind Weir all share the same, and whoever held every place on them would
//! keep all others out. So one address has at most half of each kind. It is told by its address and not by its user, since of what is
//! forwarded nobody asks here whose it is, and one user may have any number of tokens.
//!
//! In sidecar mode all clients are one, and have all of it.

use crate::server::connection::Client;
use crate::server::connection::permits::{Addresses, Seat};
use crate::upstream::TrafficClass;

/// See the module.
#[derive(Debug)]
pub(crate) struct Shares {
    requests: Addresses,
    streams: Addresses,
    upgrades: Addresses,
}

/// A place on the way to the upstream, given back when dropped.
pub(crate) type Share = Seat;

impl Shares {
    /// Nobody has anything yet.
    pub(crate) fn new() -> Self {
        Self {
            requests: Addresses::new("forwarded requests"),
            streams: Addresses::new("forwarded streams"),
            upgrades: Addresses::new("upgrades"),
        }
    }

    /// One more of a client, where there are so many for all; `None` if it has half of them already.
    pub(crate) fn take(&self, client: &Client, class: TrafficClass, all: usize) -> Option<Share> {
        let addresses = match class {
            TrafficClass::Request | TrafficClass::Read | TrafficClass::List => &self.requests,
            TrafficClass::Stream => &self.streams,
            TrafficClass::Upgrade => &self.upgrades,
        };
        addresses.seat(client.address, all / 2, ())
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::auth::peer::Peer;
    use crate::server::accept::listener::ListenerKind;

    #[test]
    fn one_client_leaves_half_to_the_others() {
        let client = |address: [u8; 4]| Client {
            listener: ListenerKind::Tls,
            address: Some(IpAddr::from(address)),
            peer: Peer::default(),
            draining: CancellationToken::new(),
        };
        let (greedy, other) = (client([192, 0, 2, 1]), client([192, 0, 2, 2]));
        let shares = Shares::new();
        for class in [TrafficClass::Request, TrafficClass::Stream, TrafficClass::Upgrade] {
            let mut taken = Vec::new();
            while let Some(share) = shares.take(&greedy, class, 9) {
                taken.push(share);
            }
            assert_eq!(taken.len(), 4);
            assert!(shares.take(&other, class, 9).is_some());
            taken.pop();
            assert!(shares.take(&greedy, class, 9).is_some());
        }
    }
}

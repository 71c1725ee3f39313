//! The client that a token review counts for, and its limits.
//!
//! Tokens that were good not long ago have permits of their own: unknown clients do not slow down
//! known ones, even behind the same address. The same holds for open watches, whose tokens are
//! reviewed again without a waiting request: a flood must not keep the watch of a revoked token
//! open.

use std::net::IpAddr;

use crate::auth::peer::client_key;
use crate::auth::reviewer::admission::FlowLimits;

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

impl FlowKey {
    /// Returns the limits of the flow.
    pub(super) fn limits(self) -> FlowLimits {
        match self {
            Self::Address(_) | Self::Socket => FlowLimits {
                running_max: ADDRESS_REVIEWS_MAX,
                slots_max: ADDRESS_SLOTS_MAX,
                is_exempt: false,
            },
            Self::KnownToken | Self::Watches => FlowLimits {
                running_max: EXEMPT_REVIEWS_MAX,
                slots_max: EXEMPT_SLOTS_MAX,
                is_exempt: true,
            },
        }
    }

    /// Returns the flow of a client at this address; `None` means a Unix socket.
    pub(crate) fn from_address(address: Option<IpAddr>) -> Self {
        address.map_or(Self::Socket, |address| Self::Address(client_key(address)))
    }
}

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
    use super::*;

    #[test]
    fn an_ipv6_network_is_one_flow() {
        let flow = |text: &str| FlowKey::from_address(Some(text.parse().unwrap()));
        assert_eq!(flow("2001:db8::1"), flow("2001:db8::ffff:1"));
        assert_ne!(flow("2001:db8::1"), flow("2001:db8:0:1::1"));
        assert_eq!(flow("::ffff:10.0.0.1"), flow("10.0.0.1"));
        assert_ne!(flow("10.0.0.1"), flow("10.0.0.2"));
    }
}

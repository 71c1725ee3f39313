//! The client that a forwarded request counts for, and the kind of request as which it does.

use std::net::IpAddr;

use crate::auth::user::UserKey;
use crate::server::connection::client_id::ClientId;
use crate::upstream::TrafficClass;

/// The client of a request.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) struct ClientIds {
    /// The address, or the connection.
    pub(super) first: ClientId,
    user: Option<ClientId>,
}

impl ClientIds {
    /// Returns the client of a gateway. `user` is the key of a user's name.
    pub(crate) fn from_address(address: Option<IpAddr>, user: Option<UserKey>) -> Self {
        Self { first: ClientId::from_address(address), user: user.map(ClientId::User) }
    }

    /// Returns the client of a sidecar.
    pub(crate) fn from_connection(number: u64) -> Self {
        Self { first: ClientId::Connection(number), user: None }
    }

    /// Returns the id under which requests count. It is the user, if known: the address may be
    /// that of a load balancer, and its other users have no part in them.
    pub(super) fn counted(self) -> ClientId {
        self.user.unwrap_or(self.first)
    }
}

crate::api::labels! {
    /// A kind of request. Each has a limit of its own.
    pub(super) enum Kind {
        Requests = "forwarded requests",
        Streams = "forwarded streams",
        Upgrades = "upgrades",
        UnprovenRequests = "forwarded requests without a proven credential",
        UnprovenStreams = "forwarded streams without a proven credential",
    }
}

impl Kind {
    pub(super) fn new(class: TrafficClass, unproven: bool) -> Self {
        match class {
            TrafficClass::Request | TrafficClass::List if unproven => Self::UnprovenRequests,
            TrafficClass::Request | TrafficClass::List => Self::Requests,
            TrafficClass::Stream if unproven => Self::UnprovenStreams,
            TrafficClass::Stream => Self::Streams,
            TrafficClass::Upgrade => Self::Upgrades,
        }
    }
}

//! The client that a forwarded request counts for.

use std::net::IpAddr;

use crate::auth::peer::client_key;
use crate::auth::user::UserKey;

/// Whom a request counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ClientId {
    /// An address; `None` for all Unix sockets together.
    Address(Option<IpAddr>),
    /// A user, whatever the address and the token.
    User(UserKey),
    /// A connection of a client, by its number.
    Connection(u64),
}

/// The client of a request.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) struct ClientIds {
    /// The address, or the connection.
    pub(super) first: ClientId,
    user: Option<ClientId>,
}

impl ClientIds {
    /// Returns the client of a gateway. `user` is the key of a user's name.
    pub(crate) fn of_address(address: Option<IpAddr>, user: Option<UserKey>) -> Self {
        let first = ClientId::Address(address.map(client_key));
        Self { first, user: user.map(ClientId::User) }
    }

    /// Returns the client of a sidecar.
    pub(crate) fn of_connection(number: u64) -> Self {
        Self { first: ClientId::Connection(number), user: None }
    }

    /// Returns the ids under which an open request counts.
    pub(super) fn all(self) -> impl Iterator<Item = ClientId> {
        std::iter::once(self.first).chain(self.user)
    }

    /// Returns the id under which a cancelled request counts. It is the user, if known: an
    /// address may be that of a load balancer, and its other users cancelled nothing.
    pub(super) fn canceller(self) -> ClientId {
        self.user.unwrap_or(self.first)
    }
}

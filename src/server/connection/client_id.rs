//! The client for whom the limits count a request (`docs/decisions/limits-by-user.md`).
//!
//! A user is a name, whatever the token and the address: all users behind a load balancer have its
//! address. A request whose user is not known, or who is nobody (`system:anonymous`), counts for
//! its address. In sidecar mode there are no users, and some limits count a connection.

use std::net::IpAddr;

use crate::auth::peer::client_key;
use crate::auth::user::{User, UserKey};

/// The client for whom a request counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ClientId {
    /// An address; `None` for all Unix sockets together.
    Address(Option<IpAddr>),
    User(UserKey),
    Connection(u64),
}

impl ClientId {
    /// Returns the client at an address. An IPv6 network of /64 is one client.
    pub(crate) fn from_address(address: Option<IpAddr>) -> Self {
        Self::Address(address.map(client_key))
    }

    pub(crate) fn from_user_or_address(user: Option<&User>, address: Option<IpAddr>) -> Self {
        match user {
            Some(user) if !user.is_anonymous() => Self::User(user.name_key()),
            _ => Self::from_address(address),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_counts_for_the_address() {
        let address = Some(IpAddr::from([192, 0, 2, 1]));
        let client = |user: &User| ClientId::from_user_or_address(Some(user), address);
        assert_eq!(client(&User::anonymous()), ClientId::from_address(address));
        let jane = User::new("jane".to_owned(), String::new(), Vec::new(), [].into());
        assert_eq!(client(&jane), ClientId::User(jane.name_key()));
        assert_eq!(ClientId::from_user_or_address(None, None), ClientId::Address(None));
    }
}

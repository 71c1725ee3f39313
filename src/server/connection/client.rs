//! The client of a connection, as its requests see it.

use tokio_util::sync::CancellationToken;

use crate::auth::peer::Peer;
use crate::server::accept::listener::ListenerKind;

/// The client of a connection.
#[derive(Debug)]
pub(crate) struct Client {
    /// The kind of listener that accepted the connection.
    pub(crate) listener: ListenerKind,
    /// The client's address and certificates.
    pub(crate) peer: Peer,
    /// Cancelled when Weir begins to drain. Each connection has a token of its own, so that its
    /// watches contend with those of no other connection.
    pub(crate) draining: CancellationToken,
}

//! The client of a connection, as its requests see it.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio_util::sync::CancellationToken;

use crate::auth::peer::Peer;
use crate::server::accept::listener::ListenerKind;

/// The client of a connection.
#[derive(Debug)]
pub(crate) struct Client {
    /// The number of the connection in this process.
    pub(crate) number: u64,
    /// The kind of listener that accepted the connection.
    pub(crate) listener: ListenerKind,
    /// The client's address and certificates.
    pub(crate) peer: Peer,
    /// Cancelled when Weir begins to drain. Each connection has a token of its own, so that its
    /// watches contend with those of no other connection.
    pub(crate) draining: CancellationToken,
}

/// Returns the number of the next connection.
pub(crate) fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

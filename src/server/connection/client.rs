//! The client of a connection, as its requests see it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::auth::peer::Peer;
use crate::codec::held_bytes::HeldBytes;
use crate::server::accept::listener::ListenerKind;
use crate::server::drain::ConnectionDrain;
use crate::server::flow_control::memo::FlowMemo;

/// The client of a connection.
#[derive(Debug)]
pub(crate) struct Client {
    /// The number of the connection in this process.
    pub(crate) number: u64,
    /// The kind of listener that accepted the connection.
    pub(crate) listener: ListenerKind,
    /// The client's address and certificates.
    pub(crate) peer: Peer,
    /// Counts what responses hold in memory for the client's address. Set by its first request to
    /// a cache.
    pub(crate) held: OnceLock<HeldBytes>,
    /// The last user of the connection, for classification.
    pub(crate) flows: FlowMemo,
    /// When the connection and its watches end if Weir drains.
    pub(crate) drain: ConnectionDrain,
}

/// Returns the number of the next connection.
pub(crate) fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

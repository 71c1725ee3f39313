//! Client connections of the simulation, which are not sockets.

use std::net::IpAddr;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;

use crate::server::accept::listener::ListenerKind;
use crate::server::accept::{Acceptor, connection_slots};

/// Serves connections that did not come from a listener, as the plain listener would. Cheap to
/// clone.
#[derive(Clone)]
pub struct PipeListener {
    acceptor: Acceptor,
    slots: Arc<Semaphore>,
}

impl PipeListener {
    pub(crate) fn new(acceptor: Acceptor) -> Self {
        Self { acceptor, slots: connection_slots() }
    }

    /// Serves a connection of a client at `address`. Returns whether it was accepted: Weir refuses
    /// it when it drains, and when a limit on connections is reached.
    pub fn accept<I>(&self, stream: I, address: IpAddr) -> bool
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        if self.acceptor.tasks.is_closed() {
            return false;
        }
        let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() else { return false };
        self.acceptor.spawn_admitted(stream, ListenerKind::Plain, Some(address), slot)
    }
}

//! API servers with an address of their own, besides the one behind the balancer.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// The API servers that have an address of their own.
#[derive(Debug, Default)]
pub(super) struct Servers {
    by_server: Mutex<HashMap<usize, ServerState>>,
}

#[derive(Debug)]
struct ServerState {
    address: SocketAddr,
    stop: CancellationToken,
    is_draining: bool,
}

impl Servers {
    /// Binds the address of a server, the same one each time, and returns the token that stops it.
    pub(super) async fn bind(
        &self,
        server: usize,
    ) -> io::Result<(TcpListener, SocketAddr, CancellationToken)> {
        let last_address =
            self.by_server.lock().get(&server).map(|server_state| server_state.address);
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = TcpListener::bind(last_address.unwrap_or(any)).await?;
        let (address, stop) = (listener.local_addr()?, CancellationToken::new());
        let server_state = ServerState { address, stop: stop.clone(), is_draining: false };
        self.by_server.lock().insert(server, server_state);
        Ok((listener, address, stop))
    }

    /// Stops a server: it drops all connections and no longer listens.
    pub(super) fn stop(&self, server: usize) {
        if let Some(server_state) = self.by_server.lock().get(&server) {
            server_state.stop.cancel();
        }
    }

    pub(super) fn stop_all(&self) {
        self.by_server.lock().values().for_each(|server_state| server_state.stop.cancel());
    }

    /// Lets `/readyz` of a server say that it shuts down.
    pub(super) fn drain(&self, server: usize) {
        if let Some(server_state) = self.by_server.lock().get_mut(&server) {
            server_state.is_draining = true;
        }
    }

    /// Returns whether a server shuts down.
    pub(super) fn is_draining(&self, server: usize) -> bool {
        self.by_server.lock().get(&server).is_some_and(|server_state| server_state.is_draining)
    }
}

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
    own: Mutex<HashMap<usize, Own>>,
}

#[derive(Debug)]
struct Own {
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
        let last_address = self.own.lock().get(&server).map(|server_state| server_state.address);
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = TcpListener::bind(last_address.unwrap_or(any)).await?;
        let (address, stop) = (listener.local_addr()?, CancellationToken::new());
        let server_state = Own { address, stop: stop.clone(), is_draining: false };
        self.own.lock().insert(server, server_state);
        Ok((listener, address, stop))
    }

    /// Stops a server: it drops all connections and no longer listens.
    pub(super) fn stop(&self, server: usize) {
        if let Some(server_state) = self.own.lock().get(&server) {
            server_state.stop.cancel();
        }
    }

    /// Stops all servers.
    pub(super) fn stop_all(&self) {
        self.own.lock().values().for_each(|server_state| server_state.stop.cancel());
    }

    /// Lets `/readyz` of a server say that it shuts down.
    pub(super) fn drain(&self, server: usize) {
        if let Some(server_state) = self.own.lock().get_mut(&server) {
            server_state.is_draining = true;
        }
    }

    /// Returns whether a server shuts down.
    pub(super) fn is_draining(&self, server: usize) -> bool {
        self.own.lock().get(&server).is_some_and(|server_state| server_state.is_draining)
    }
}

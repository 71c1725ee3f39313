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
        let known = self.own.lock().get(&server).map(|own| own.address);
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = TcpListener::bind(known.unwrap_or(any)).await?;
        let (address, stop) = (listener.local_addr()?, CancellationToken::new());
        let own = Own { address, stop: stop.clone(), is_draining: false };
        self.own.lock().insert(server, own);
        Ok((listener, address, stop))
    }

    /// Stops a server: it drops all connections and no longer listens.
    pub(super) fn stop(&self, server: usize) {
        if let Some(own) = self.own.lock().get(&server) {
            own.stop.cancel();
        }
    }

    /// Stops all servers.
    pub(super) fn stop_all(&self) {
        self.own.lock().values().for_each(|own| own.stop.cancel());
    }

    /// Lets `/readyz` of a server say that it shuts down.
    pub(super) fn drain(&self, server: usize) {
        if let Some(own) = self.own.lock().get_mut(&server) {
            own.is_draining = true;
        }
    }

    /// Returns whether a server shuts down.
    pub(super) fn is_draining(&self, server: usize) -> bool {
        self.own.lock().get(&server).is_some_and(|own| own.is_draining)
    }
}

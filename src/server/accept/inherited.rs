//! Sockets that a service manager opened for Weir: systemd's socket activation.
//!
//! Clients that connect while Weir restarts wait in such a socket, and none is refused. A socket
//! belongs to the listener with its address, so that the configuration alone says what is served
//! there. A socket without a listener fails the start, since its clients would wait for ever
//! (docs/decisions/accepted-connections.md).

use std::net::{SocketAddr, TcpListener};

use listenfd::ListenFd;

use crate::server::accept::bind_error::BindError;

/// The sockets that no listener has taken yet.
#[derive(Debug, Default)]
pub struct InheritedSockets(Vec<(SocketAddr, TcpListener)>);

impl InheritedSockets {
    /// Takes the sockets that `LISTEN_FDS` names, if `LISTEN_PID` is this process. Removes both
    /// variables, so it must be called before there is a second thread.
    pub fn from_environment() -> Result<Self, BindError> {
        let mut passed = ListenFd::from_env();
        let mut sockets = Vec::new();
        for index in 0..passed.len() {
            let listener = passed.take_tcp_listener(index).map_err(BindError::NotTcp)?;
            if let Some(listener) = listener {
                let address = listener.local_addr().map_err(BindError::NotTcp)?;
                sockets.push((address, listener));
            }
        }
        Ok(Self(sockets))
    }

    /// Returns the socket with this address, once.
    pub(super) fn take(&mut self, address: SocketAddr) -> Option<TcpListener> {
        let index = self.0.iter().position(|(inherited, _)| *inherited == address)?;
        Some(self.0.swap_remove(index).1)
    }

    /// Fails if a socket is left.
    pub(crate) fn finish(self) -> Result<(), BindError> {
        match self.0.first() {
            None => Ok(()),
            Some((address, _)) => Err(BindError::NoListener(*address)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_taken_once_and_by_its_address_only() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut sockets = InheritedSockets(vec![(address, listener)]);
        assert!(sockets.take("127.0.0.1:1".parse().unwrap()).is_none());
        assert!(sockets.take(address).is_some());
        assert!(sockets.take(address).is_none());
        assert!(sockets.finish().is_ok());
    }

    #[test]
    fn a_socket_without_a_listener_is_an_error_that_names_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let error = InheritedSockets(vec![(address, listener)]).finish().unwrap_err();
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }
}

//! The Unix socket of the admin listener, for commands on the same host.
//!
//! Only root and Weir's own user may connect, and so all of them may see details.

use std::future;
use std::io;
use std::path::Path;

use tokio::net::{UnixListener, UnixStream};

use crate::server::accept::bind_error::BindError;
use crate::server::accept::unix_socket::{self, SocketFile};

/// The bound socket.
pub(super) struct LocalSocket {
    listener: UnixListener,
    _file: SocketFile,
}

impl LocalSocket {
    pub(super) fn bind(path: &Path) -> Result<Self, BindError> {
        let (listener, file) = unix_socket::bind(path)?;
        Ok(Self { listener, _file: file })
    }
}

/// Accepts a connection of a process that may connect. Waits for ever without a socket.
pub(super) async fn accept(socket: Option<&LocalSocket>) -> io::Result<UnixStream> {
    let Some(socket) = socket else { return future::pending().await };
    loop {
        let (stream, _) = socket.listener.accept().await?;
        if unix_socket::is_trusted(&stream) {
            return Ok(stream);
        }
        tracing::warn!("a process of another user connected to the admin socket, and was refused");
    }
}

crate::api::opaque!(LocalSocket);

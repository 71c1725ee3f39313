//! The Unix socket of the admin listener, for commands on the same host.
//!
//! Only root and Weir's own user may connect, and so all of them may see details.

use std::fmt;
use std::future;
use std::io;
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

use crate::server::accept::bind_error::BindError;
use crate::server::accept::unix_socket::{self, SocketFile};

/// The bound socket.
pub(super) struct LocalSocket {
    path: PathBuf,
    listener: UnixListener,
    _file: SocketFile,
}

impl LocalSocket {
    pub(super) fn bind(path: &Path) -> Result<Self, BindError> {
        let (listener, file) = unix_socket::bind(path)?;
        Ok(Self { path: path.to_owned(), listener, _file: file })
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

impl fmt::Debug for LocalSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalSocket").field("path", &self.path).finish_non_exhaustive()
    }
}

//! Errors of binding a listener.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::server::accept::certificate::CertificateError;

/// Why a listener cannot be bound. Each message names what to check.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Other machines could connect in sidecar mode.
    #[error(
        "refusing to listen on {0}: in sidecar mode clients are not authenticated, so only loopback addresses (127.0.0.1, [::1]) and Unix sockets are allowed; authentication.mode gateway lets other machines in"
    )]
    NotLoopback(SocketAddr),
    /// Other machines would send their credentials unencrypted.
    #[error(
        "refusing to listen on {0} without TLS: clients would send their credentials in the clear; only loopback addresses and https:// are allowed"
    )]
    NotTls(SocketAddr),
    /// Another process listens on the address.
    #[error("cannot listen on {0}: the address is in use by another process")]
    InUse(String),
    /// Any user could replace Weir's socket by another one.
    #[error(
        "refusing to listen on {0}: everybody may write to its directory; make the directory its owner's alone, or sticky"
    )]
    OpenDirectory(PathBuf),
    /// The path exists and is not a socket.
    #[error("cannot listen on {0}: the file is not a socket, and is left alone")]
    NotASocket(PathBuf),
    /// A service manager opened a socket for which there is no listener.
    #[error(
        "the service manager passed a socket for {0}, and no listener has this address: make server.listeners and ListenStream= of the socket unit the same"
    )]
    NoListener(SocketAddr),
    /// A service manager passed something else.
    #[error("the service manager passed a descriptor that is not a listening TCP socket")]
    NotTcp(#[source] std::io::Error),
    /// The operating system refused.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address or path.
        address: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The listener's certificate is unusable.
    #[error("cannot serve TLS on {address}")]
    Certificate {
        /// The address.
        address: SocketAddr,
        /// The fault of the certificate.
        source: CertificateError,
    },
}

impl BindError {
    /// Wraps an error of the operating system.
    pub(super) fn listen(address: String, source: std::io::Error) -> Self {
        if source.kind() == std::io::ErrorKind::AddrInUse {
            Self::InUse(address)
        } else {
            Self::Listen { address, source }
        }
    }
}

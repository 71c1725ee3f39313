//! Where clients come in: TCP with or without TLS, and Unix sockets.
//!
//! In sidecar mode every client acts with Weir's own identity, so that nobody from another machine may come in: any
//! address but loopback is refused (design, section 9).

use std::fmt;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::{TcpListener, TcpSocket, UnixListener};

use crate::config::ListenerConfig;
use crate::server::tls::{CertificateError, Serving};

/// Why a listener can't be had. Each names what to check.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Other machines could come in.
    #[error(
        "refusing to listen on {0}: clients are not authenticated yet, so only loopback addresses (127.0.0.1, [::1]) and Unix sockets are allowed"
    )]
    NotLoopback(SocketAddr),
    /// Somebody else listens there.
    #[error("cannot listen on {0}: the address is in use by another process")]
    InUse(String),
    /// The path is taken by something that is no socket.
    #[error("cannot listen on {0}: the file is not a socket, and is left alone")]
    NotASocket(PathBuf),
    /// The system refuses.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address or path.
        address: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The listener's certificate is unusable.
    #[error("cannot serve TLS on {address}")]
    Certificate {
        /// The address.
        address: SocketAddr,
        /// What is wrong with it.
        source: CertificateError,
    },
}

/// What kind of listener a client came in by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ListenerKind {
    /// TLS on TCP.
    Tls,
    /// Plain HTTP on TCP.
    Plain,
    /// Plain HTTP on a Unix socket.
    Unix,
}

impl ListenerKind {
    /// The word in logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tls => "tls",
            Self::Plain => "plain",
            Self::Unix => "unix",
        }
    }
}

/// A listener that is bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundListener {
    /// Its kind.
    pub kind: ListenerKind,
    /// The address with the port that was really taken, or the socket's path.
    pub address: String,
    /// What clients must trust, in PEM; only for TLS.
    pub ca_pem: Option<String>,
}

/// As in logs: `https://127.0.0.1:6443`, `http://127.0.0.1:8001`, `unix:/run/weir.sock`.
impl fmt::Display for BoundListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            ListenerKind::Tls => write!(f, "https://{}", self.address),
            ListenerKind::Plain => write!(f, "http://{}", self.address),
            ListenerKind::Unix => write!(f, "unix:{}", self.address),
        }
    }
}

/// A bound socket and how to serve on it.
pub(crate) struct Listener {
    pub(crate) bound: BoundListener,
    pub(crate) socket: Socket,
}

/// What is accepted from.
pub(crate) enum Socket {
    Tls(TcpListener, Box<Serving>),
    Plain(TcpListener),
    Unix(UnixListener, SocketFile),
}

impl Listener {
    /// Binds one. Needs a tokio runtime around it.
    pub(crate) fn bind(config: &ListenerConfig) -> Result<Self, BindError> {
        match config {
            ListenerConfig::Tls { address, certificate } => {
                let (listener, bound) = tcp(*address)?;
                let serving = Serving::new(certificate)
                    .map_err(|source| BindError::Certificate { address: *address, source })?;
                let ca_pem = Some(serving.ca_pem.clone());
                let bound = BoundListener { kind: ListenerKind::Tls, address: bound, ca_pem };
                Ok(Self { bound, socket: Socket::Tls(listener, Box::new(serving)) })
            }
            ListenerConfig::Plain { address } => {
                let (listener, bound) = tcp(*address)?;
                let bound =
                    BoundListener { kind: ListenerKind::Plain, address: bound, ca_pem: None };
                Ok(Self { bound, socket: Socket::Plain(listener) })
            }
            ListenerConfig::Unix { path } => {
                let (listener, file) = unix(path)?;
                let address = path.display().to_string();
                let bound = BoundListener { kind: ListenerKind::Unix, address, ca_pem: None };
                Ok(Self { bound, socket: Socket::Unix(listener, file) })
            }
        }
    }
}

fn tcp(address: SocketAddr) -> Result<(TcpListener, String), BindError> {
    if !address.ip().to_canonical().is_loopback() {
        return Err(BindError::NotLoopback(address));
    }
    let bind = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // A restarted Weir must not wait for the connections of the one before to time out.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let listener = socket.listen(BACKLOG)?;
        let bound = listener.local_addr()?.to_string();
        Ok((listener, bound))
    };
    bind().map_err(|source| listen_error(address.to_string(), source))
}

fn unix(path: &Path) -> Result<(UnixListener, SocketFile), BindError> {
    let address = path.display().to_string();
    if let Ok(metadata) = std::fs::symlink_metadata(path) {
        if !metadata.file_type().is_socket() {
            return Err(BindError::NotASocket(path.to_owned()));
        }
        // Only a refused connection proves that nobody listens any more.
        match std::os::unix::net::UnixStream::connect(path) {
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {}
            _ => return Err(BindError::InUse(address)),
        }
        std::fs::remove_file(path).map_err(|source| listen_error(address.clone(), source))?;
    }
    let bind = || {
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        let inode = std::fs::symlink_metadata(path)?.ino();
        Ok((listener, SocketFile { path: path.to_owned(), inode }))
    };
    bind().map_err(|source| listen_error(address, source))
}

fn listen_error(address: String, source: std::io::Error) -> BindError {
    if source.kind() == std::io::ErrorKind::AddrInUse {
        BindError::InUse(address)
    } else {
        BindError::Listen { address, source }
    }
}

/// Removes the socket's file at the end, if it is still the one that was made.
pub(crate) struct SocketFile {
    path: PathBuf,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let ours = std::fs::symlink_metadata(&self.path)
            .is_ok_and(|metadata| metadata.ino() == self.inode);
        if ours && let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(path = %self.path.display(), %error, "the socket's file stays");
        }
    }
}

/// A thousand clients that all come at once (a restarted Weir) must not have to retry their SYN.
const BACKLOG: u32 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(address: &str) -> ListenerConfig {
        ListenerConfig::Plain { address: address.parse().unwrap() }
    }

    fn error(config: &ListenerConfig) -> String {
        match Listener::bind(config) {
            Ok(listener) => panic!("bound {}", listener.bound),
            Err(error) => error.to_string(),
        }
    }

    #[tokio::test]
    async fn other_machines_cannot_come_in() {
        for address in ["0.0.0.0:0", "192.0.2.1:0", "[::]:0", "[::ffff:192.0.2.1]:0"] {
            assert!(error(&plain(address)).starts_with("refusing to listen on"));
            let certificate = crate::config::CertificateConfig::Generated { names: Vec::new() };
            let tls = ListenerConfig::Tls { address: address.parse().unwrap(), certificate };
            assert!(error(&tls).starts_with("refusing to listen on"));
        }
    }

    #[tokio::test]
    async fn loopback_written_as_ipv6_is_loopback() {
        // A machine without IPv6 may not bind it; refused for where it leads it must not be.
        if let Err(error) = Listener::bind(&plain("[::ffff:127.0.0.1]:0")) {
            assert!(!error.to_string().starts_with("refusing to listen on"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_port_in_use_is_named() {
        let first = Listener::bind(&plain("127.0.0.1:0")).unwrap();
        let address = &first.bound.address;
        assert_eq!(
            error(&plain(address)),
            format!("cannot listen on {address}: the address is in use by another process")
        );
    }

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("weir.sock");
        let config = ListenerConfig::Unix { path: path.clone() };
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "std leaves the file behind");

        let first = Listener::bind(&config).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(error(&config).contains("in use by another process"));
        drop(first);
        assert!(!path.exists(), "the file goes with its listener");

        std::fs::write(&path, "precious").unwrap();
        assert!(error(&config).contains("not a socket"));
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    }
}

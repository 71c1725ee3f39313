//! Where clients come in: TCP with or without TLS, and Unix sockets.
//!
//! In sidecar mode every client acts with Weir's own identity, so that nobody from another machine may come in: any
//! address but loopback is refused (design, section 9). In gateway mode other machines may, by TLS.

use std::fmt;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::{TcpListener, TcpSocket, UnixListener, UnixStream};

use crate::auth::x509::handshake::Hints;
use crate::config::listen::is_loopback;
use crate::config::{ListenerConfig, Mode};
use crate::server::accept::tls::{CertificateError, Serving};

/// Why a listener can't be had. Each names what to check.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Other machines could come in.
    #[error(
        "refusing to listen on {0}: in sidecar mode clients are not authenticated, so only loopback addresses (127.0.0.1, [::1]) and Unix sockets are allowed; authentication.mode gateway lets other machines in"
    )]
    NotLoopback(SocketAddr),
    /// Other machines would send their credentials in the clear.
    #[error(
        "refusing to listen on {0} without TLS: clients would send their credentials in the clear; only loopback addresses and https:// are allowed"
    )]
    NotTls(SocketAddr),
    /// Somebody else listens there.
    #[error("cannot listen on {0}: the address is in use by another process")]
    InUse(String),
    /// Anybody could put a socket of their own in the place of Weir's.
    #[error(
        "refusing to listen on {0}: everybody may write to its directory; make the directory its owner's alone, or sticky"
    )]
    OpenDirectory(PathBuf),
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
    /// Binds one, where the mode allows it. With `hints`, TLS clients are asked for their certificates. Needs a tokio runtime around it.
    pub(crate) fn bind(
        config: &ListenerConfig,
        mode: Mode,
        hints: Option<&Hints>,
    ) -> Result<Self, BindError> {
        admit(config, mode)?;
        match config {
            ListenerConfig::Tls { address, certificate } => {
                let (listener, bound) = tcp(*address)?;
                let serving = Serving::new(certificate, hints.cloned())
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

/// The configuration is judged alike ([`crate::config::listen`]); here nothing goes past.
fn admit(config: &ListenerConfig, mode: Mode) -> Result<(), BindError> {
    match (config, mode) {
        (ListenerConfig::Unix { .. }, _) | (ListenerConfig::Tls { .. }, Mode::Gateway) => Ok(()),
        (ListenerConfig::Tls { address, .. } | ListenerConfig::Plain { address }, _)
            if is_loopback(*address) =>
        {
            Ok(())
        }
        (ListenerConfig::Plain { address }, Mode::Gateway) => Err(BindError::NotTls(*address)),
        (
            ListenerConfig::Tls { address, .. } | ListenerConfig::Plain { address },
            Mode::Sidecar,
        ) => Err(BindError::NotLoopback(*address)),
    }
}

fn tcp(address: SocketAddr) -> Result<(TcpListener, String), BindError> {
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

/// Whether the process at the other end is root's or of Weir's own user. The socket's mode says the same, but only from shortly after it was
/// bound, and only where the file system keeps modes.
pub(crate) fn is_trusted(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| trusts(own, peer.uid()))
}

fn trusts(own: u32, peer: u32) -> bool {
    peer == 0 || peer == own
}

/// Refuses a directory in which everybody may replace the socket, and warns of one in which its owner may.
fn check_directory(path: &Path) -> Result<(), BindError> {
    let Some(Ok(directory)) = path.parent().map(std::fs::metadata) else {
        // What is wrong with it is what binding says.
        return Ok(());
    };
    if directory.mode() & WORLD_WRITABLE != 0 && directory.mode() & STICKY == 0 {
        return Err(BindError::OpenDirectory(path.to_owned()));
    }
    let own = rustix::process::geteuid().as_raw();
    if !trusts(own, directory.uid()) {
        let (path, owner) = (path.display(), directory.uid());
        tracing::warn!(%path, owner, "the Unix socket's directory is another user's, who may replace the socket");
    }
    Ok(())
}

fn unix(path: &Path) -> Result<(UnixListener, SocketFile), BindError> {
    check_directory(path)?;
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

/// `S_IWOTH` and `S_ISVTX` of POSIX.
const WORLD_WRITABLE: u32 = 0o002;
const STICKY: u32 = 0o1000;
/// A thousand clients that all come at once (a restarted Weir) must not have to retry their SYN.
const BACKLOG: u32 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(address: &str) -> ListenerConfig {
        ListenerConfig::Plain { address: address.parse().unwrap() }
    }

    fn error(config: &ListenerConfig) -> String {
        match Listener::bind(config, Mode::Sidecar, None) {
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
    async fn in_gateway_mode_they_come_in_by_tls() {
        let certificate = crate::config::CertificateConfig::Generated { names: Vec::new() };
        let tls = ListenerConfig::Tls { address: "0.0.0.0:0".parse().unwrap(), certificate };
        assert!(Listener::bind(&tls, Mode::Gateway, None).is_ok());
        let refused = Listener::bind(&plain("0.0.0.0:0"), Mode::Gateway, None).err().unwrap();
        assert!(refused.to_string().contains("without TLS"), "{refused}");
        assert!(Listener::bind(&plain("127.0.0.1:0"), Mode::Gateway, None).is_ok());
    }

    #[tokio::test]
    async fn loopback_written_as_ipv6_is_loopback() {
        // A machine without IPv6 may not bind it; refused for where it leads it must not be.
        if let Err(error) = Listener::bind(&plain("[::ffff:127.0.0.1]:0"), Mode::Sidecar, None) {
            assert!(!error.to_string().starts_with("refusing to listen on"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_port_in_use_is_named() {
        let first = Listener::bind(&plain("127.0.0.1:0"), Mode::Sidecar, None).unwrap();
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

        let first = Listener::bind(&config, Mode::Sidecar, None).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(error(&config).contains("in use by another process"));
        drop(first);
        assert!(!path.exists(), "the file goes with its listener");

        std::fs::write(&path, "precious").unwrap();
        assert!(error(&config).contains("not a socket"));
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    }

    #[tokio::test]
    async fn a_directory_of_everybody_is_refused_unless_sticky() {
        let directory = tempfile::tempdir().unwrap();
        let config = ListenerConfig::Unix { path: directory.path().join("weir.sock") };
        let mode = |mode| {
            std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(mode))
        };
        mode(0o777).unwrap();
        assert!(error(&config).contains("everybody may write to its directory"));
        mode(0o1777).unwrap();
        assert!(Listener::bind(&config, Mode::Sidecar, None).is_ok());
    }

    #[tokio::test]
    async fn only_root_and_the_own_user_come_in_by_a_unix_socket() {
        assert!(trusts(1000, 1000) && trusts(1000, 0) && trusts(0, 0));
        assert!(!trusts(1000, 1001) && !trusts(0, 1000));
        let (one, _other) = UnixStream::pair().unwrap();
        assert!(is_trusted(&one));
    }
}

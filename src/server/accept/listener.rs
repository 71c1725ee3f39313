//! The listeners: TCP with or without TLS, and Unix sockets.
//!
//! In sidecar mode every client acts with Weir's own identity, so that no client of another machine
//! may connect: any address but loopback is refused. In gateway mode clients of other machines may
//! connect, by TLS.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpSocket, UnixListener};

use crate::auth::x509::handshake::Hints;
use crate::config::listen::is_loopback;
use crate::config::{ListenerConfig, Mode, ProxyNetworks};
use crate::server::accept::bind_error::BindError;
use crate::server::accept::inherited::InheritedSockets;
use crate::server::accept::tls::TlsSetup;
use crate::server::accept::unix_socket::{self, SocketFile};

crate::api::labels! {
    /// The kind of a listener.
    pub enum ListenerKind {
        /// TLS on TCP.
        Tls = "tls",
        /// Plain HTTP on TCP.
        Plain = "plain",
        /// Plain HTTP on a Unix socket.
        Unix = "unix",
    }
}

/// The address of a listener that is bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundListener {
    /// Its kind.
    pub kind: ListenerKind,
    /// The address with the port that was really bound, or the path of the socket.
    pub address: String,
    /// The CA that clients must trust, in PEM; only for TLS.
    pub ca_pem: Option<String>,
}

/// Formats the address for logs: `https://127.0.0.1:6443`, `http://127.0.0.1:8001`,
/// `unix:/run/weir.sock`.
impl fmt::Display for BoundListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            ListenerKind::Tls => write!(f, "https://{}", self.address),
            ListenerKind::Plain => write!(f, "http://{}", self.address),
            ListenerKind::Unix => write!(f, "unix:{}", self.address),
        }
    }
}

pub(crate) struct Listener {
    pub(crate) bound: BoundListener,
    pub(crate) socket: Socket,
}

pub(crate) enum Socket {
    Tls(TcpListener, Arc<ProxyNetworks>, Box<TlsSetup>),
    Plain(TcpListener, Arc<ProxyNetworks>),
    Unix(UnixListener, SocketFile),
}

impl Listener {
    /// Binds a listener, or takes its socket from `sockets`, if `mode` allows it. Weir asks TLS
    /// clients for certificates if there are `hints`. Must be called in a tokio runtime.
    pub(crate) fn bind(
        config: &ListenerConfig,
        mode: Mode,
        hints: Option<&Hints>,
        sockets: &mut InheritedSockets,
    ) -> Result<Self, BindError> {
        check_address(config, mode)?;
        match config {
            ListenerConfig::Tls { address, certificate, proxies } => {
                let (listener, bound) = bind_tcp(*address, sockets)?;
                let tls = TlsSetup::new(certificate, hints.cloned())
                    .map_err(|source| BindError::Certificate { address: *address, source })?;
                let ca_pem = Some(tls.ca_pem.clone());
                let bound = BoundListener { kind: ListenerKind::Tls, address: bound, ca_pem };
                let socket = Socket::Tls(listener, Arc::new(proxies.clone()), Box::new(tls));
                Ok(Self { bound, socket })
            }
            ListenerConfig::Plain { address, proxies } => {
                let (listener, bound) = bind_tcp(*address, sockets)?;
                let bound =
                    BoundListener { kind: ListenerKind::Plain, address: bound, ca_pem: None };
                Ok(Self { bound, socket: Socket::Plain(listener, Arc::new(proxies.clone())) })
            }
            ListenerConfig::Unix { path } => {
                let (listener, file) = unix_socket::bind(path)?;
                let address = path.display().to_string();
                let bound = BoundListener { kind: ListenerKind::Unix, address, ca_pem: None };
                Ok(Self { bound, socket: Socket::Unix(listener, file) })
            }
        }
    }
}

/// Refuses an address that `mode` does not allow. The configuration is checked by the same rule
/// ([`crate::config::listen`]); this check has the last word.
fn check_address(config: &ListenerConfig, mode: Mode) -> Result<(), BindError> {
    match (config, mode) {
        (ListenerConfig::Unix { .. }, _) | (ListenerConfig::Tls { .. }, Mode::Gateway) => Ok(()),
        (ListenerConfig::Tls { address, .. } | ListenerConfig::Plain { address, .. }, _)
            if is_loopback(*address) =>
        {
            Ok(())
        }
        (ListenerConfig::Plain { address, .. }, Mode::Gateway) => Err(BindError::NotTls(*address)),
        (
            ListenerConfig::Tls { address, .. } | ListenerConfig::Plain { address, .. },
            Mode::Sidecar,
        ) => Err(BindError::NotLoopback(*address)),
    }
}

fn bind_tcp(
    address: SocketAddr,
    sockets: &mut InheritedSockets,
) -> Result<(TcpListener, String), BindError> {
    let inherited = sockets.take(address);
    let bind = || {
        if let Some(listener) = inherited {
            listener.set_nonblocking(true)?;
            return Ok((TcpListener::from_std(listener)?, address.to_string()));
        }
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // A restarted Weir must not wait until the connections of its predecessor have timed out.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let listener = socket.listen(BACKLOG)?;
        let bound = listener.local_addr()?.to_string();
        Ok((listener, bound))
    };
    bind().map_err(|source| BindError::listen(address.to_string(), source))
}

/// A thousand clients that connect at once, after a restart of Weir, must not have to retry their
/// SYN.
const BACKLOG: u32 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(address: &str) -> ListenerConfig {
        ListenerConfig::Plain {
            address: address.parse().unwrap(),
            proxies: ProxyNetworks::default(),
        }
    }

    fn bind(config: &ListenerConfig, mode: Mode) -> Result<Listener, BindError> {
        Listener::bind(config, mode, None, &mut InheritedSockets::default())
    }

    fn error(config: &ListenerConfig) -> String {
        match bind(config, Mode::Sidecar) {
            Ok(listener) => panic!("bound {}", listener.bound),
            Err(error) => error.to_string(),
        }
    }

    #[tokio::test]
    async fn other_machines_cannot_connect_in_sidecar_mode() {
        for address in ["0.0.0.0:0", "192.0.2.1:0", "[::]:0", "[::ffff:192.0.2.1]:0"] {
            assert!(error(&plain(address)).starts_with("refusing to listen on"));
            let certificate = crate::config::CertificateConfig::Generated { names: Vec::new() };
            let (address, proxies) = (address.parse().unwrap(), ProxyNetworks::default());
            let tls = ListenerConfig::Tls { address, certificate, proxies };
            assert!(error(&tls).starts_with("refusing to listen on"));
        }
    }

    #[tokio::test]
    async fn other_machines_connect_by_tls_in_gateway_mode() {
        let certificate = crate::config::CertificateConfig::Generated { names: Vec::new() };
        let (address, proxies) = ("0.0.0.0:0".parse().unwrap(), ProxyNetworks::default());
        let tls = ListenerConfig::Tls { address, certificate, proxies };
        assert!(bind(&tls, Mode::Gateway).is_ok());
        let refused = bind(&plain("0.0.0.0:0"), Mode::Gateway).err().unwrap();
        assert!(refused.to_string().contains("without TLS"), "{refused}");
        assert!(bind(&plain("127.0.0.1:0"), Mode::Gateway).is_ok());
    }

    #[tokio::test]
    async fn loopback_written_as_ipv6_is_loopback() {
        // A machine without IPv6 cannot bind this address, but the refusal must not be Weir's own.
        if let Err(error) = bind(&plain("[::ffff:127.0.0.1]:0"), Mode::Sidecar) {
            assert!(!error.to_string().starts_with("refusing to listen on"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_port_in_use_is_named() {
        let first = bind(&plain("127.0.0.1:0"), Mode::Sidecar).unwrap();
        let address = &first.bound.address;
        assert_eq!(
            error(&plain(address)),
            format!("cannot listen on {address}: the address is in use by another process")
        );
    }
}

//! The servers of the comparison, and connections to them as plain streams of bytes.

use std::net::SocketAddr;
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::h2_tls::connector_for;

/// A connection: TCP, or TLS on it.
pub(crate) trait Io: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

pub(crate) type Stream = Box<dyn Io>;

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

impl Protocol {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Http1 => "HTTP/1.1",
            Self::Http2 => "HTTP/2",
        }
    }
}

/// One server, and the namespace that its cases read and change.
#[derive(Clone)]
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    pub(crate) namespace: &'static str,
    address: SocketAddr,
    /// One connector for each protocol; `None` for clear text.
    tls: Option<[TlsConnector; 2]>,
}

impl Peer {
    /// A server with TLS, whose certificate is of this CA, PEM.
    pub(crate) fn tls(
        name: &'static str,
        namespace: &'static str,
        address: SocketAddr,
        ca: &str,
    ) -> Self {
        let connector = |protocol: &[u8]| connector_for(ca.as_bytes(), protocol);
        let tls = Some([connector(b"http/1.1"), connector(b"h2")]);
        Self { name, namespace, address, tls }
    }

    /// A server in clear text.
    pub(crate) fn plain(name: &'static str, namespace: &'static str, address: SocketAddr) -> Self {
        Self { name, namespace, address, tls: None }
    }

    /// Opens a connection for one protocol.
    pub(crate) async fn open(&self, protocol: Protocol) -> std::io::Result<Stream> {
        let stream = tokio::time::timeout(OPEN_MAX, TcpStream::connect(self.address)).await??;
        stream.set_nodelay(true)?;
        let Some([http1, http2]) = &self.tls else { return Ok(Box::new(stream)) };
        let connector = match protocol {
            Protocol::Http1 => http1,
            Protocol::Http2 => http2,
        };
        let name = ServerName::IpAddress(self.address.ip().into());
        let secured = tokio::time::timeout(OPEN_MAX, connector.connect(name, stream)).await??;
        Ok(Box::new(secured))
    }

    /// Writes this server's namespace in place of the placeholder.
    pub(crate) fn placed(&self, bytes: &[u8]) -> Vec<u8> {
        replaced(bytes, PLACEHOLDER.as_bytes(), self.namespace.as_bytes())
    }
}

/// Replaces each occurrence of one text by another.
pub(crate) fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut made = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(at) = memchr::memmem::find(rest, from) {
        made.extend_from_slice(&rest[..at]);
        made.extend_from_slice(to);
        rest = &rest[at + from.len()..];
    }
    made.extend_from_slice(rest);
    made
}

/// The namespace in the bytes of a case, as long as each server's own.
pub(crate) const PLACEHOLDER: &str = "wire-x";
/// Longer than a handshake takes on a busy machine.
const OPEN_MAX: Duration = Duration::from_secs(30);

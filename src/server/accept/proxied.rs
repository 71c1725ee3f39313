//! Reads the header of the PROXY protocol from a connection, so that the address of the client
//! stands where that of the proxy would (`docs/decisions/accepted-connections.md`).
//!
//! A peer of a trusted network must send a header; of others it is refused, since it could name any
//! address. A listener without trusted networks looks at no byte here.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::config::ProxyNetworks;
use crate::server::accept::proxy_protocol::{HEAD_BYTES, Head, HeaderError, Source, is_header};

/// Why a connection is closed before its first byte is served.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProxiedError {
    /// The header is wrong or missing.
    #[error("{0}")]
    Header(#[from] HeaderError),
    /// A peer that may not name another address does so.
    #[error("it sends a PROXY header and is not in proxyProtocol.trustedNetworks")]
    Untrusted,
    /// The header did not arrive in time.
    #[error("its PROXY header did not arrive within {} s", HEADER_TIMEOUT.as_secs())]
    Timeout,
    /// The peer closed the connection, as health checks of TCP do. No fault.
    #[error("the peer closed the connection")]
    Closed,
}

/// Whether a peer must name its clients. A listener without trusted networks has none.
pub(super) fn is_trusted(peer: IpAddr, ProxyNetworks(trusted): &ProxyNetworks) -> bool {
    trusted.iter().any(|network| network.contains(peer))
}

/// Returns the address of the client that a trusted `peer` names; `None` if the client is on a Unix
/// socket of the proxy. Reads no byte behind the header.
pub(super) async fn read_client(
    stream: &mut TcpStream,
    peer: SocketAddr,
) -> Result<Option<SocketAddr>, ProxiedError> {
    let source = timeout(HEADER_TIMEOUT, read_header(stream));
    match source.await.map_err(|_| ProxiedError::Timeout)?? {
        Source::Peer => Ok(Some(peer)),
        Source::Address(client) => Ok(Some(client)),
        Source::Socket => Ok(None),
    }
}

/// Refuses a header of a peer that is not trusted. Without one, nothing is read.
pub(super) async fn check_direct(stream: &TcpStream) -> Result<(), ProxiedError> {
    let mut first = [0; HEAD_BYTES];
    // A peer that sends nothing has the time-outs of TLS and HTTP.
    match timeout(HEADER_TIMEOUT, stream.peek(&mut first)).await {
        Ok(Ok(bytes)) if is_header(first.get(..bytes).unwrap_or_default()) => {
            Err(ProxiedError::Untrusted)
        }
        Ok(Err(_)) => Err(ProxiedError::Closed),
        Ok(Ok(_)) | Err(_) => Ok(()),
    }
}

async fn read_header(stream: &mut TcpStream) -> Result<Source, ProxiedError> {
    let mut head = [0; HEAD_BYTES];
    let read = stream.read_exact(&mut head).await;
    read.map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof if head != [0; HEAD_BYTES] => HeaderError::Missing.into(),
        _ => ProxiedError::Closed,
    })?;
    let head = Head::parse(head)?;
    let mut rest = vec![0; head.rest_bytes()];
    stream.read_exact(&mut rest).await.map_err(|_| HeaderError::Truncated)?;
    Ok(head.source(&rest)?)
}

/// A proxy sends the header with its first segment. The specification asks for at least 3 s, the
/// time after which a lost segment is sent again.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);

//! The TLS handshake of a client connection.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{LazyConfigAcceptor, TlsAcceptor};

use crate::auth::peer::Peer;
use crate::server::accept::handshake_gate::{GateFull, HandshakeGate};
use crate::server::connection::Protocol;

/// Performs a TLS handshake in its turn. Returns the stream with the client's certificates and the
/// protocol that ALPN selected; `None` if the handshake fails or takes too long.
pub(in crate::server) async fn handshake<I>(
    tls: &TlsAcceptor,
    stream: I,
    client: Option<SocketAddr>,
    gate: &HandshakeGate,
) -> Result<Option<(TlsStream<I>, Peer, Protocol)>, GateFull>
where
    I: AsyncRead + AsyncWrite + Unpin,
{
    let shaken = match tokio::time::timeout(TIMEOUT, in_turn(tls, stream, gate)).await {
        Ok(shaken) => shaken?,
        Err(_) => return Ok(None),
    };
    let address = client.map(|client| client.ip());
    Ok(match shaken {
        Ok(stream) => {
            let tls = stream.get_ref().1;
            let peer = Peer::new(tls.peer_certificates(), address);
            let protocol = match tls.alpn_protocol() {
                Some(b"h2") => Protocol::Http2,
                Some(b"http/1.1") => Protocol::Http1,
                _ => Protocol::Detect,
            };
            Some((stream, peer, protocol))
        }
        Err(error) => {
            tracing::debug!(?address, %error, "a TLS handshake failed");
            None
        }
    })
}

/// Waits for the client's first message before its turn, so that whoever sends none takes no place.
async fn in_turn<I>(
    tls: &TlsAcceptor,
    stream: I,
    gate: &HandshakeGate,
) -> Result<std::io::Result<TlsStream<I>>, GateFull>
where
    I: AsyncRead + AsyncWrite + Unpin,
{
    let start = match LazyConfigAcceptor::new(rustls::server::Acceptor::default(), stream).await {
        Ok(start) => start,
        Err(error) => return Ok(Err(error)),
    };
    let place = gate.enter().await?;
    // Between the handshakes of two turns, everything else that is ready runs.
    tokio::task::yield_now().await;
    let mut accept = pin!(start.into_stream(Arc::clone(tls.config())));
    // The first poll computes the keys and the signature, and sends them.
    let first = std::future::poll_fn(|context| Poll::Ready(accept.as_mut().poll(context))).await;
    drop(place);
    Ok(match first {
        Poll::Ready(ended) => ended,
        Poll::Pending => accept.await,
    })
}

/// A handshake takes two round trips.
const TIMEOUT: Duration = Duration::from_secs(10);

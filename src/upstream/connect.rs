//! Opens one connection to the upstream: TCP or a tunnel through a proxy, the options, TLS.
//!
//! A silent watch is a healthy watch, so that there is no read time-out. A peer that is gone is
//! detected by TCP keep-alive. One that is alive and passes nothing, such as a balancer, is
//! detected by HTTP/2 pings, which the pool configures.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::select_ok;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, BufReader, ReadBuf};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use crate::config::seams::{Connection, Dial};
use crate::upstream::credentials::{Endpoint, Identity};
use crate::upstream::error::{UpstreamError, chain};

/// rustls reads 4 KiB at a time. With this buffer below it, a large list takes a sixteenth of the
/// system calls.
const READ_BUFFER_BYTES: usize = 64 * 1024;
/// An HTTP/1.1 watch may be silent for minutes. Keep-alive sends its first probe after 15 s, and
/// two more 5 s apart, so that a dead peer is detected after half a minute.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES: u32 = 3;
/// How long written bytes may stay unacknowledged. Keep-alive does not probe in this case. Linux
/// also ends a connection after this time whose peer lives and reads nothing. An API server reads
/// nothing of a large body while its request waits in a queue of priority and fairness, for up to
/// 15 s; the peer of an upgrade may do so for long, so that upgrades have no such limit.
const UNACKNOWLEDGED_TIMEOUT: Duration = Duration::from_secs(30);

/// A handshake usually takes some milliseconds, and less than a second with an API server that
/// starts or is far away.
const STALLED_AFTER: Duration = Duration::from_secs(2);

/// Time-out for opening a connection, including its TLS handshake: a lost SYN is sent again after
/// 1, 3 and 7 s; a server that has not answered then is down.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The time of each address but the last.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(1);

/// The protocols that are offered to the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offer {
    /// HTTP/2, or HTTP/1.1 if the upstream does not support HTTP/2. Negotiated by ALPN over TLS;
    /// without TLS, HTTP/2 with prior knowledge.
    Http2,
    /// HTTP/1.1 only.
    Http1,
    /// HTTP/1.1 for an upgrade.
    Upgrade,
}

/// An open connection, on which HTTP can start.
pub(super) struct Io {
    stream: Box<dyn Connection>,
    /// Whether the connection speaks HTTP/2.
    pub(super) http2: bool,
    /// Guards that live as long as the socket, also after an upgrade.
    guards: Vec<Box<dyn Send + Sync>>,
}

impl Io {
    /// Wraps a stream whose peer speaks HTTP/2.
    #[cfg(test)]
    pub(super) fn http2_over(stream: impl Connection + 'static) -> Self {
        Self { stream: Box::new(stream), http2: true, guards: Vec::new() }
    }

    /// Holds `guard` as long as the connection is open.
    pub(super) fn hold(&mut self, guard: impl Send + Sync + 'static) {
        self.guards.push(Box::new(guard));
    }
}

/// Connects to `endpoint` within [`CONNECT_TIMEOUT`], TLS handshake included. An attempt that is
/// not through after [`STALLED_AFTER`] gets a second one beside it: what freezes open connections
/// also freezes those that are being opened, and new ones may work.
pub(super) async fn connect(
    identity: &Identity,
    endpoint: &Endpoint,
    offer: Offer,
    dial: Option<&Dial>,
) -> Result<Io, UpstreamError> {
    let refuse = |cause: String| UpstreamError::Connect { address: endpoint.to_string(), cause };
    let attempt = || establish(identity, endpoint, offer, dial);
    let connecting = async {
        // On the heap: each request that may open a connection would hold both.
        let mut first = Box::pin(attempt());
        match timeout(STALLED_AFTER, &mut first).await {
            Ok(connected) => connected,
            Err(_) => select_ok([first, Box::pin(attempt())]).await.map(|(io, _)| io),
        }
    };
    match timeout(CONNECT_TIMEOUT, connecting).await {
        Ok(Ok(io)) => Ok(io),
        Ok(Err(cause)) => Err(refuse(cause)),
        Err(_) => Err(refuse(format!("no connection within {CONNECT_TIMEOUT:?}"))),
    }
}

async fn establish(
    identity: &Identity,
    endpoint: &Endpoint,
    offer: Offer,
    dial: Option<&Dial>,
) -> Result<Io, String> {
    if let Some(dial) = dial {
        let opened = dial.open(&endpoint.host, endpoint.port).await;
        let opened = opened.map_err(|error| error.to_string())?;
        return secure(opened, identity, endpoint, offer).await;
    }
    let (host, port) = (endpoint.host.as_str(), endpoint.port);
    let Some(proxy) = identity.proxies.select(endpoint.https, host, port) else {
        return secure(open_tcp(host, port, offer).await?, identity, endpoint, offer).await;
    };
    let tcp = open_tcp(&proxy.host, proxy.port, offer).await;
    let tcp = tcp.map_err(|problem| format!("the proxy {proxy}: {problem}"))?;
    let tunnel = proxy.tunnel(tcp, host, port, identity.tls_http1.as_ref()).await?;
    secure(tunnel, identity, endpoint, offer).await
}

async fn open_tcp(host: &str, port: u16, offer: Offer) -> Result<TcpStream, String> {
    let tcp = connect_any(host, port).await.map_err(|error| error.to_string())?;
    set_options(&tcp, offer).map_err(|error| format!("cannot set the socket options: {error}"))?;
    Ok(tcp)
}

/// Connects to the first address of a host that answers. One that drops packets must not use up the
/// time of the others, nor that of a probe.
async fn connect_any(host: &str, port: u16) -> io::Result<TcpStream> {
    let addresses: Vec<_> = lookup_host((host, port)).await?.collect();
    let mut failure = io::Error::other("the name has no address");
    for (number, address) in addresses.iter().enumerate() {
        let is_last = number + 1 == addresses.len();
        let patience = if is_last { CONNECT_TIMEOUT } else { ADDRESS_TIMEOUT };
        match timeout(patience, TcpStream::connect(address)).await {
            Ok(Ok(tcp)) => return Ok(tcp),
            Ok(Err(error)) => failure = error,
            Err(_) => failure = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(failure)
}

/// Adds the buffer and TLS, if the upstream speaks it.
async fn secure<C>(
    connection: C,
    identity: &Identity,
    endpoint: &Endpoint,
    offer: Offer,
) -> Result<Io, String>
where
    C: Connection + 'static,
{
    let tls = match offer {
        Offer::Http2 => &identity.tls_http2,
        Offer::Http1 | Offer::Upgrade => &identity.tls_http1,
    };
    let connection = BufReader::with_capacity(READ_BUFFER_BYTES, connection);
    let Some(tls) = tls else {
        let http2 = offer == Offer::Http2;
        return Ok(Io { stream: Box::new(connection), http2, guards: Vec::new() });
    };
    let stream = tokio_rustls::TlsConnector::from(tls.clone())
        .connect(endpoint.server_name.clone(), connection)
        .await
        .map_err(|error| tls_error(endpoint, &error))?;
    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    Ok(Io { stream: Box::new(stream), http2, guards: Vec::new() })
}

/// Returns the message of a TLS error, with a hint at what to check.
fn tls_error(endpoint: &Endpoint, error: &io::Error) -> String {
    use rustls::{CertificateError, Error};
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    let hint = match inner {
        // Another cluster's CA of the same name causes a bad signature; kubeadm names every CA
        // "kubernetes".
        Some(Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        )) => "; check that certificate-authority belongs to this cluster",
        Some(Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        )) => "; tls-server-name can be set to a name in the certificate",
        Some(Error::InvalidMessage(_)) => "; check that the upstream speaks TLS",
        Some(Error::AlertReceived(_)) => "; check that the upstream accepts the client certificate",
        _ => "",
    };
    let name = endpoint.server_name.to_str();
    format!("TLS with {name:?}: {}{hint}", chain(error))
}

fn set_options(tcp: &TcpStream, offer: Offer) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_PROBES);
    let socket = SockRef::from(tcp);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(target_os = "linux")]
    if offer != Offer::Upgrade {
        socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED_TIMEOUT))?;
    }
    Ok(())
}

impl AsyncRead for Io {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

/// Implements [`AsyncWrite`] by calls to a field. The caller imports what its methods name.
macro_rules! delegate_writes {
    ($field:ident, $type:ty) => {
        impl AsyncWrite for $type {
            fn poll_write(
                mut self: Pin<&mut Self>,
                context: &mut Context<'_>,
                buffer: &[u8],
            ) -> Poll<io::Result<usize>> {
                Pin::new(&mut self.$field).poll_write(context, buffer)
            }

            fn poll_flush(
                mut self: Pin<&mut Self>,
                context: &mut Context<'_>,
            ) -> Poll<io::Result<()>> {
                Pin::new(&mut self.$field).poll_flush(context)
            }

            fn poll_shutdown(
                mut self: Pin<&mut Self>,
                context: &mut Context<'_>,
            ) -> Poll<io::Result<()>> {
                Pin::new(&mut self.$field).poll_shutdown(context)
            }

            fn poll_write_vectored(
                mut self: Pin<&mut Self>,
                context: &mut Context<'_>,
                buffers: &[io::IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                Pin::new(&mut self.$field).poll_write_vectored(context, buffers)
            }

            fn is_write_vectored(&self) -> bool {
                self.$field.is_write_vectored()
            }
        }
    };
}
pub(super) use delegate_writes;

delegate_writes!(stream, Io);

#[cfg(test)]
mod tests {
    use super::*;

    /// `kubectl exec` with a process that reads nothing for a minute was cut.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn only_an_upgrade_may_have_a_peer_that_reads_nothing_for_long() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        for (offer, expected) in [
            (Offer::Http2, Some(UNACKNOWLEDGED_TIMEOUT)),
            (Offer::Http1, Some(UNACKNOWLEDGED_TIMEOUT)),
            (Offer::Upgrade, None),
        ] {
            let tcp = open_tcp("127.0.0.1", port, offer).await.unwrap();
            let timeout = SockRef::from(&tcp).tcp_user_timeout().unwrap();
            assert_eq!(timeout.filter(|timeout| !timeout.is_zero()), expected, "{offer:?}");
            assert!(SockRef::from(&tcp).keepalive().unwrap());
        }
    }
}

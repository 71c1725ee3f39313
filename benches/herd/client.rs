//! Connections of bare clients, and the responses that they read: HTTP/1.1, plain or over TLS,
//! parsed no further than a herd needs.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio_rustls::TlsConnector;

/// Where clients connect, and how.
#[derive(Clone)]
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    /// The settings of TLS; `None` for plain HTTP.
    pub(crate) tls: Option<Arc<rustls::ClientConfig>>,
    /// The number of addresses of clients.
    pub(crate) addresses: u8,
}

/// A stream of either kind.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// An open connection with the part of the response that was read and not yet returned.
pub(crate) struct Connection {
    stream: Box<dyn Stream>,
    read: Vec<u8>,
}

/// The head of a response.
pub(crate) struct Head {
    pub(crate) code: u16,
    /// Whether a cache of Weir answered.
    pub(crate) hit: bool,
    /// `Retry-After`, in seconds.
    pub(crate) retry_after: Option<u64>,
    /// The length of the body; `None` for a chunked one.
    length: Option<usize>,
}

impl Connection {
    /// Connects as client `number`.
    pub(crate) async fn open(endpoint: &Endpoint, number: usize) -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        if endpoint.addresses > 1 {
            let host = 1 + u8::try_from(number % usize::from(endpoint.addresses)).unwrap_or(0);
            socket.bind(SocketAddr::from((IpAddr::from(Ipv4Addr::new(127, 0, 1, host)), 0)))?;
        }
        let tcp = socket.connect(endpoint.address).await?;
        tcp.set_nodelay(true)?;
        let stream: Box<dyn Stream> = match &endpoint.tls {
            None => Box::new(tcp),
            Some(config) => {
                let name = ServerName::from(endpoint.address.ip());
                Box::new(TlsConnector::from(Arc::clone(config)).connect(name, tcp).await?)
            }
        };
        Ok(Self { stream, read: Vec::new() })
    }

    /// Sends a GET and reads the head of its response.
    pub(crate) async fn get(&mut self, path: &str, token: &str) -> io::Result<Head> {
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\r\n"
        );
        self.stream.write_all(request.as_bytes()).await?;
        loop {
            if let Some(end) = self.read.windows(4).position(|four| four == b"\r\n\r\n") {
                let rest = self.read.split_off(end + 4);
                let head = std::mem::replace(&mut self.read, rest);
                return Head::parse(&head).ok_or_else(|| io::Error::other("no head"));
            }
            self.fill().await?;
        }
    }

    /// Reads the next chunk of a chunked body. `None` is its end.
    pub(crate) async fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(end) = self.read.windows(2).position(|two| two == b"\r\n") {
                let size = self.read.get(..end).and_then(|text| std::str::from_utf8(text).ok());
                let size = size.and_then(|text| usize::from_str_radix(text, 16).ok());
                let size = size.ok_or_else(|| io::Error::other("no length of a chunk"))?;
                let whole = end + 2 + size + 2;
                if self.read.len() >= whole {
                    let rest = self.read.split_off(whole);
                    let mut chunk = std::mem::replace(&mut self.read, rest);
                    chunk.drain(..end + 2);
                    chunk.truncate(size);
                    return Ok((size > 0).then_some(chunk));
                }
            }
            self.fill().await?;
        }
    }

    /// Reads a body that does not stay open.
    pub(crate) async fn body(&mut self, head: &Head) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        let Some(length) = head.length else {
            while let Some(chunk) = self.chunk().await? {
                body.extend(chunk);
            }
            return Ok(body);
        };
        while self.read.len() < length {
            self.fill().await?;
        }
        body.append(&mut self.read);
        Ok(body)
    }

    async fn fill(&mut self) -> io::Result<()> {
        match self.stream.read_buf(&mut self.read).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

impl Head {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let code = text.split(' ').nth(1)?.parse().ok()?;
        let value = |name: &str| {
            let fields = text.lines().filter_map(|line| line.split_once(": "));
            fields.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
        };
        Some(Self {
            code,
            hit: value("x-weir-cache").is_some_and(|value| value.starts_with("hit")),
            retry_after: value("retry-after").and_then(|value| value.parse().ok()),
            length: value("content-length").and_then(|value| value.parse().ok()),
        })
    }
}

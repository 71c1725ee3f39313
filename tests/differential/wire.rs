//! A small HTTP client without abstractions: it sends the exact bytes of path and headers, and
//! returns the response with the way it ended. One connection is reused, as by most clients;
//! HTTP/1.1, where every difference in framing shows.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// An address with its TLS and token.
#[derive(Clone)]
pub(crate) struct Endpoint {
    address: SocketAddr,
    tls: Option<TlsConnector>,
    token: String,
}

impl Endpoint {
    /// Plain HTTP, without a credential.
    pub(crate) fn plain(address: SocketAddr) -> Self {
        Self { address, tls: None, token: String::new() }
    }

    /// TLS with a certificate of this CA, and a token.
    pub(crate) fn tls(address: SocketAddr, ca_pem: &str, token: &str) -> Self {
        Self::tls_with(address, ca_pem, None, token)
    }

    /// TLS with a client certificate and key too, PEM.
    pub(crate) fn tls_with(
        address: SocketAddr,
        ca_pem: &str,
        client: Option<(&str, &str)>,
        token: &str,
    ) -> Self {
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(ca_pem.as_bytes()) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match client {
            None => config.with_no_client_auth(),
            Some((chain, key)) => {
                let chain = CertificateDer::pem_slice_iter(chain.as_bytes());
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                config.with_client_auth_cert(chain.map(Result::unwrap).collect(), key).unwrap()
            }
        };
        Self { address, tls: Some(Arc::new(config).into()), token: token.to_owned() }
    }

    /// Returns a connection that opens with its first request.
    pub(crate) fn connection(&self) -> Connection {
        Connection { endpoint: self.clone(), sender: None }
    }

    /// Sends one request on a connection of its own.
    pub(crate) async fn send(&self, call: &Call) -> Answer {
        self.connection().send(call).await
    }

    /// Returns the response before its body is read, on a connection of its own; `None` if no
    /// connection opens.
    pub(crate) async fn open(&self, call: &Call) -> Option<Response<Incoming>> {
        let mut sender = self.connect().await?;
        tokio::time::timeout(STEP_TIMEOUT, sender.send_request(self.request(call))).await.ok()?.ok()
    }

    async fn connect(&self) -> Option<SendRequest<Full<Bytes>>> {
        let stream = TcpStream::connect(self.address).await.ok()?;
        stream.set_nodelay(true).ok()?;
        let Some(tls) = &self.tls else { return hello(stream).await };
        let name = ServerName::IpAddress(self.address.ip().into());
        hello(tls.connect(name, stream).await.ok()?).await
    }

    fn request(&self, call: &Call) -> Request<Full<Bytes>> {
        let mut request = Request::builder().method(call.method.clone()).uri(&call.path);
        request = request.header("host", "localhost");
        if !self.token.is_empty() {
            request = request.header("authorization", format!("Bearer {}", self.token));
        }
        for (name, value) in &call.headers {
            request = request.header(*name, value);
        }
        request.body(Full::new(call.body.clone())).unwrap()
    }
}

async fn hello<S>(io: S) -> Option<SendRequest<Full<Bytes>>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = handshake(TokioIo::new(io)).await.ok()?;
    tokio::spawn(connection.with_upgrades());
    Some(sender)
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Bytes,
}

impl Call {
    pub(crate) fn new(method: Method, path: impl Into<String>) -> Self {
        Self { method, path: path.into(), headers: Vec::new(), body: Bytes::new() }
    }

    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    /// A write.
    pub(crate) fn json(method: Method, path: &str, body: &serde_json::Value) -> Self {
        let patch = method == Method::PATCH;
        let form = if patch { "application/merge-patch+json" } else { "application/json" };
        let mut call = Self::new(method, path).header("content-type", form);
        call.body = body.to_string().into();
        call
    }

    fn upgrades(&self) -> bool {
        self.headers.iter().any(|(name, _)| *name == "upgrade")
    }
}

/// A request as one would type it, for messages.
impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.method, self.path)?;
        self.headers.iter().try_for_each(|(name, value)| write!(f, "  {name}: {value}"))
    }
}

/// A whole response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Sorted by name.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Bytes,
    /// How it ended, if not cleanly.
    pub(crate) broken: Option<&'static str>,
}

impl Answer {
    /// Returns the value of a header; empty if there is none.
    pub(crate) fn header(&self, name: &str) -> &str {
        let field = self.headers.iter().find(|(header, _)| header == name);
        field.map_or("", |(_, value)| value)
    }

    /// Returns Weir's `X-Weir-Cache`.
    pub(crate) fn cache(&self) -> &str {
        self.header("x-weir-cache")
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    fn broken(why: &'static str) -> Self {
        Self { broken: Some(why), ..Self::default() }
    }
}

/// A connection that is opened with the first request and reused.
pub(crate) struct Connection {
    endpoint: Endpoint,
    sender: Option<SendRequest<Full<Bytes>>>,
}

impl Connection {
    /// Sends a request and reads the whole response.
    pub(crate) async fn send(&mut self, call: &Call) -> Answer {
        let asked = tokio::time::timeout(STEP_TIMEOUT, self.try_ask(call)).await;
        if !matches!(asked, Ok(Answer { broken: None, .. })) {
            self.sender = None;
        }
        asked.unwrap_or_else(|_| Answer::broken("it never ended"))
    }

    async fn try_ask(&mut self, call: &Call) -> Answer {
        for _ in 0..STALE_TRIES {
            let ready = match &mut self.sender {
                Some(sender) => sender.ready().await.is_ok(),
                None => false,
            };
            if !ready {
                self.sender = self.endpoint.connect().await;
            }
            let Some(sender) = &mut self.sender else { return Answer::broken("no connection") };
            if let Ok(response) = sender.send_request(self.endpoint.request(call)).await {
                if response.status() == 101 && call.upgrades() {
                    self.sender = None;
                    return upgraded(response).await;
                }
                return whole(response).await;
            }
            // The server may have closed it after its last response.
            self.sender = None;
        }
        Answer::broken("no answer")
    }
}

async fn whole(response: Response<Incoming>) -> Answer {
    let mut answer = head(&response);
    let mut body = response.into_body();
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => bytes.extend_from_slice(frame.data_ref().unwrap_or(&Bytes::new())),
            Err(_) => {
                answer.broken = Some("in the middle");
                break;
            }
        }
    }
    answer.body = bytes.into();
    answer
}

/// Returns all bytes after a 101 until the end. The server's WebSocket frames are not masked, so
/// they can be compared as they are.
async fn upgraded(response: Response<Incoming>) -> Answer {
    let mut answer = head(&response);
    let Ok(io) = hyper::upgrade::on(response).await else { return Answer::broken("no upgrade") };
    let mut bytes = Vec::new();
    let read = TokioIo::new(io).read_to_end(&mut bytes).await;
    // It does not matter which side closes the connection after the last frame.
    drop(read);
    answer.body = bytes.into();
    answer
}

fn head(response: &Response<Incoming>) -> Answer {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let mut headers: Vec<_> = response
        .headers()
        .iter()
        .map(|(name, value)| (name.as_str().to_owned(), text(value)))
        .collect();
    headers.sort();
    Answer { status: response.status().as_u16(), headers, ..Answer::default() }
}

/// Longer than any step takes on a busy machine.
pub(crate) const STEP_TIMEOUT: Duration = Duration::from_secs(60);
const STALE_TRIES: u32 = 3;

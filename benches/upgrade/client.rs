//! A client over TLS and HTTP/2 that repeats what Go's client repeats: a request that its
//! connection did not take, and one that the server did not begin, as a GOAWAY or REFUSED_STREAM
//! says.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::h2_errors::is_unprocessed;
use crate::h2_tls::connector;
use crate::tracked_body::{SentMark, TrackedBody};

/// Requests that a closed connection never took, and that were sent again on another one.
pub(crate) static LEFT_IN_QUEUE: AtomicUsize = AtomicUsize::new(0);

/// Where clients connect.
#[derive(Clone)]
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    pub(crate) tls: TlsConnector,
}

/// A client with at most one connection, which others may share.
pub(crate) struct Client {
    endpoint: Endpoint,
    authorization: String,
    connection: Arc<Mutex<Connection>>,
    /// Requests that were sent a second time, on another connection.
    pub(crate) repeated: usize,
}

/// The open connection, and how many there were before it.
#[derive(Default)]
struct Connection {
    number: usize,
    sender: Option<Sender>,
}

type Sender = SendRequest<TrackedBody>;

/// A request without its credential.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) content_type: &'static str,
    pub(crate) body: Bytes,
}

impl Call {
    pub(crate) fn get(path: String) -> Self {
        Self { method: Method::GET, path, content_type: "", body: Bytes::new() }
    }
}

impl Endpoint {
    /// Returns an endpoint that is trusted by a CA, PEM.
    pub(crate) fn new(address: SocketAddr, ca: &str) -> Self {
        Self { address, tls: connector(ca.as_bytes()) }
    }

    async fn connect(&self) -> io::Result<Sender> {
        let tcp = TcpStream::connect(self.address).await?;
        tcp.set_nodelay(true)?;
        let tls = self.tls.connect(ServerName::from(self.address.ip()), tcp).await?;
        let handshake = Builder::new(TokioExecutor::new()).handshake(TokioIo::new(tls));
        let (sender, connection) = handshake.await.map_err(io::Error::other)?;
        // Its errors also reach the sender.
        tokio::spawn(async move { drop(connection.await) });
        Ok(sender)
    }
}

impl Client {
    pub(crate) fn new(endpoint: Endpoint, token: &str) -> Self {
        let authorization = format!("Bearer {token}");
        Self { endpoint, authorization, connection: Arc::default(), repeated: 0 }
    }

    /// Returns another client with the same credential and the same connection.
    pub(crate) fn share(&self) -> Self {
        Self {
            endpoint: self.endpoint.clone(),
            authorization: self.authorization.clone(),
            connection: Arc::clone(&self.connection),
            repeated: 0,
        }
    }

    /// Sends a request, and returns the head of the response. A late one is an error of the kind
    /// [`io::ErrorKind::TimedOut`].
    pub(crate) async fn send(&mut self, call: &Call) -> io::Result<Response<Incoming>> {
        for _ in 0..ATTEMPTS {
            let (number, mut sender) = self.connected().await?;
            if sender.ready().await.is_err() {
                self.forget(number).await;
                continue;
            }
            let taken = SentMark::default();
            let request = self.request(call, &taken);
            let answer = timeout(HEAD_TIMEOUT, sender.try_send_request(request)).await;
            match answer {
                Ok(Ok(response)) => return Ok(response),
                // It is left in hyper's queue, so that Weir never had it. One that Weir had fails,
                // also if its connection was closed meanwhile: it hangs in a drain.
                Err(_) if sender.is_closed() && !taken.get() => {
                    LEFT_IN_QUEUE.fetch_add(1, Ordering::Relaxed);
                    self.forget(number).await;
                }
                Err(elapsed) => return Err(elapsed.into()),
                Ok(Err(mut error)) => {
                    self.forget(number).await;
                    let is_unsent = error.take_message().is_some();
                    let error = error.into_error();
                    if !is_unsent && !is_unprocessed(&error) {
                        return Err(io::Error::other(error));
                    }
                    self.repeated += 1;
                }
            }
        }
        Err(io::Error::other("no connection takes the request"))
    }

    /// Returns the open connection with its number, or opens one.
    #[expect(clippy::await_holding_invalid_type, reason = "the others wait for this connection")]
    async fn connected(&self) -> io::Result<(usize, Sender)> {
        let mut connection = self.connection.lock().await;
        if let Some(sender) = connection.sender.as_ref().filter(|sender| !sender.is_closed()) {
            return Ok((connection.number, sender.clone()));
        }
        let sender = self.endpoint.connect().await?;
        let number = connection.number + 1;
        *connection = Connection { number, sender: Some(sender.clone()) };
        Ok((number, sender))
    }

    /// Lets the next request open a connection, unless another one did.
    async fn forget(&self, number: usize) {
        let mut connection = self.connection.lock().await;
        if connection.number == number {
            connection.sender = None;
        }
    }

    /// Sends a request, and returns the status and the body.
    pub(crate) async fn fetch(&mut self, call: &Call) -> io::Result<(StatusCode, Bytes)> {
        let (parts, body) = self.send(call).await?.into_parts();
        let body = body.collect().await.map_err(io::Error::other)?;
        Ok((parts.status, body.to_bytes()))
    }

    fn request(&self, call: &Call, taken: &SentMark) -> Request<TrackedBody> {
        let mut request = Request::builder()
            .method(&call.method)
            .uri(format!("https://{}{}", self.endpoint.address, call.path))
            .header(header::AUTHORIZATION, &self.authorization)
            .header(header::USER_AGENT, "upgrade/1.0");
        if !call.content_type.is_empty() {
            request = request.header(header::CONTENT_TYPE, call.content_type);
        }
        request.body(TrackedBody::new(call.body.clone(), taken)).expect("a request")
    }
}

const ATTEMPTS: usize = 3;
/// When the head of a response is late.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

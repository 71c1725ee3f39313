//! A client over TLS and HTTP/2 with one connection at a time, to any replica that the load
//! balancer names. It repeats what Go's client repeats: what a connection did not take, and what
//! the server did not begin, as a GOAWAY or REFUSED_STREAM says.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::replicas::Balanced;
use crate::control_plane::ADMIN;
use crate::h2_tls::{LEFT_IN_QUEUE, connector, is_unprocessed};
use crate::tracked_body::{SentMark, TrackedBody};

type Sender = SendRequest<TrackedBody>;

pub(super) struct Client {
    tls: TlsConnector,
    balanced: Balanced,
    connection: Mutex<Option<(usize, Sender)>>,
    /// Connections that were opened.
    pub(super) connections: AtomicUsize,
}

impl Client {
    /// Returns a client that trusts the CA in a directory.
    pub(super) fn new(credentials: &Path, balanced: &Balanced) -> Self {
        let ca = std::fs::read(credentials.join("ca.crt")).unwrap();
        Self {
            tls: connector(&ca),
            balanced: Arc::clone(balanced),
            connection: Mutex::new(None),
            connections: AtomicUsize::new(0),
        }
    }

    pub(super) async fn get(&self, path: &str) -> Result<Response<Incoming>, String> {
        self.send(&Method::GET, path, "").await
    }

    /// Sends a request, and returns the status and the whole body.
    pub(super) async fn fetch(
        &self,
        method: &Method,
        path: &str,
        body: &str,
    ) -> Result<(u16, Bytes), String> {
        let (head, body) = self.send(method, path, body).await?.into_parts();
        let body = timeout(ANSWER_TIMEOUT, body.collect()).await.map_err(|_| "no end in time")?;
        let body = body.map_err(|error| format!("in the body: {error:?}"))?;
        Ok((head.status.as_u16(), body.to_bytes()))
    }

    /// Returns the head of the response.
    pub(super) async fn send(
        &self,
        method: &Method,
        path: &str,
        body: &str,
    ) -> Result<Response<Incoming>, String> {
        for _ in 0..ATTEMPTS {
            let (number, mut sender) = self.connected().await?;
            if sender.ready().await.is_err() {
                self.forget(number).await;
                continue;
            }
            let taken = SentMark::default();
            let request = request(method, path, TrackedBody::new(body.to_owned().into(), &taken));
            let answer = timeout(ANSWER_TIMEOUT, sender.try_send_request(request)).await;
            let is_closed = sender.is_closed();
            let mut error = match answer {
                Ok(Ok(response)) => return Ok(response),
                Ok(Err(error)) => error,
                // It is left in hyper's queue, so that Weir never had it. One that Weir had fails,
                // also if its connection was closed meanwhile: it hangs in a drain.
                Err(_) if is_closed && !taken.get() => {
                    LEFT_IN_QUEUE.fetch_add(1, Ordering::Relaxed);
                    self.forget(number).await;
                    continue;
                }
                Err(_) => return Err("no answer in time".to_owned()),
            };
            self.forget(number).await;
            let is_unsent = error.take_message().is_some();
            let error = error.into_error();
            if !is_unsent && !is_unprocessed(&error) {
                return Err(format!("{error:?}"));
            }
        }
        Err("no connection takes the request".to_owned())
    }

    /// Returns the open connection with its number, or opens one.
    #[expect(clippy::await_holding_invalid_type, reason = "the others wait for this connection")]
    async fn connected(&self) -> Result<(usize, Sender), String> {
        let mut connection = self.connection.lock().await;
        if let Some((number, sender)) = &*connection
            && !sender.is_closed()
        {
            return Ok((*number, sender.clone()));
        }
        let port = fastrand::choice(self.balanced.lock().iter().copied()).ok_or("no replica")?;
        let tcp = TcpStream::connect(("127.0.0.1", port)).await;
        let tcp = tcp.map_err(|error| format!("no connection: {error}"))?;
        tcp.set_nodelay(true).map_err(|error| error.to_string())?;
        let name = ServerName::try_from("127.0.0.1").expect("an address");
        let tls = self.tls.connect(name, tcp).await;
        let tls = TokioIo::new(tls.map_err(|error| format!("no TLS: {error}"))?);
        let (sender, driver) =
            handshake(TokioExecutor::new(), tls).await.map_err(|error| format!("{error:?}"))?;
        // Its errors also reach the sender.
        tokio::spawn(async move { drop(driver.await) });
        let number = self.connections.fetch_add(1, Ordering::Relaxed);
        *connection = Some((number, sender.clone()));
        Ok((number, sender))
    }

    /// Lets the next request open a connection, unless another one was opened already.
    async fn forget(&self, number: usize) {
        let mut connection = self.connection.lock().await;
        if connection.as_ref().is_some_and(|(open, _)| *open == number) {
            *connection = None;
        }
    }
}

fn request(method: &Method, path: &str, body: TrackedBody) -> Request<TrackedBody> {
    let form = match *method {
        Method::PATCH => "application/merge-patch+json",
        _ => "application/json",
    };
    Request::builder()
        .method(method)
        .uri(format!("https://127.0.0.1{path}"))
        .header("authorization", format!("Bearer {ADMIN}"))
        .header("user-agent", "informer/1.0")
        .header("content-type", form)
        .body(body)
        .unwrap()
}

const ATTEMPTS: usize = 3;
/// When the head of a response is late, and then the end of its body.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

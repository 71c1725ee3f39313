//! A client of the gateway over TLS and HTTP/2, with one connection at a time.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::ServerName;
use tokio::net::TcpSocket;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::h2_tls::connector;

/// The gateway's address.
#[derive(Clone)]
pub(super) struct Gateway {
    tls: TlsConnector,
    port: u16,
}

/// How a client introduces itself, and what it accepts.
#[derive(Clone)]
pub(super) struct Who {
    /// The user, which is also its token.
    pub(super) user: &'static str,
    /// Empty for none.
    pub(super) agent: String,
    pub(super) accept: &'static str,
    pub(super) takes_gzip: bool,
}

#[derive(Clone)]
pub(super) struct Client {
    gateway: Gateway,
    pub(super) who: Who,
    from: [u8; 4],
    sender: Option<SendRequest<Full<Bytes>>>,
}

impl Gateway {
    /// Returns the gateway at a port of 127.0.0.1, which has a certificate of this CA.
    pub(super) fn new(ca: &Path, port: u16) -> Self {
        let ca = std::fs::read(ca).unwrap();
        Self { tls: connector(&ca), port }
    }

    pub(super) fn client(&self, who: &Who) -> Client {
        Client { gateway: self.clone(), who: who.clone(), from: LOCAL, sender: None }
    }

    async fn connect(&self, from: [u8; 4]) -> Option<SendRequest<Full<Bytes>>> {
        let socket = TcpSocket::new_v4().ok()?;
        socket.bind((from, 0).into()).ok()?;
        let tcp = socket.connect((LOCAL, self.port).into()).await.ok()?;
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let tls = TokioIo::new(self.tls.connect(name, tcp).await.ok()?);
        let (sender, driver) = handshake(TokioExecutor::new(), tls).await.ok()?;
        // Its errors also reach the sender.
        tokio::spawn(async move { drop(driver.await) });
        Some(sender)
    }
}

impl Who {
    /// A client with a name that asks as it should.
    pub(super) fn named(user: &'static str) -> Self {
        let agent = format!("{user}/1.0");
        Self { user, agent, accept: "application/json", takes_gzip: true }
    }
}

impl Client {
    /// Returns the same client on another host, with no connection yet.
    pub(super) fn on(&self, from: [u8; 4]) -> Self {
        Self { from, sender: None, ..self.clone() }
    }

    /// Returns the same client with no connection yet.
    pub(super) fn reconnected(&self) -> Self {
        self.on(LOCAL)
    }

    /// Sends a GET and returns the response as soon as its head is there.
    pub(super) async fn get(&mut self, path: &str) -> Option<Response<Incoming>> {
        self.send(Method::GET, path, String::new()).await
    }

    /// Sends a request and reads the whole response. Returns its status.
    pub(super) async fn call(&mut self, method: Method, path: &str, body: String) -> Option<u16> {
        let response = self.send(method, path, body).await?;
        let status = response.status().as_u16();
        read(response).await;
        Some(status)
    }

    /// Returns the response as soon as its head is there; none if the connection broke, which is
    /// opened again for the next request.
    async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: String,
    ) -> Option<Response<Incoming>> {
        if self.sender.as_ref().is_none_or(SendRequest::is_closed) {
            self.sender = timeout(TIMEOUT, self.gateway.connect(self.from)).await.ok()?;
        }
        let request = self.request(method, path, body);
        let response = timeout(TIMEOUT, self.sender.as_mut()?.send_request(request)).await;
        let response = response.ok().and_then(Result::ok);
        if response.is_none() {
            self.sender = None;
        }
        response
    }

    fn request(&self, method: Method, path: &str, body: String) -> Request<Full<Bytes>> {
        let form = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let mut request = Request::builder()
            .method(method)
            .uri(format!("https://127.0.0.1{path}"))
            .header("authorization", format!("Bearer {}", self.who.user))
            .header("accept", self.who.accept)
            .header("content-type", form);
        if !self.who.agent.is_empty() {
            request = request.header("user-agent", &self.who.agent);
        }
        if self.who.takes_gzip {
            request = request.header("accept-encoding", "gzip");
        }
        request.body(Full::new(body.into())).unwrap()
    }
}

/// Reads a response to its end.
pub(super) async fn read(response: Response<Incoming>) {
    let mut body = response.into_body();
    while let Some(Ok(_)) = body.frame().await {}
}

const LOCAL: [u8; 4] = [127, 0, 0, 1];
/// Each connection, and the head of each response, may take this time.
const TIMEOUT: Duration = Duration::from_secs(30);

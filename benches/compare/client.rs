//! A cheap client over TLS with HTTP/2 or HTTP/1.1. It reads bodies to their end and discards them
//! frame by frame.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio_rustls::TlsConnector;

use crate::server::Server;

pub(crate) const JSON: &str = "application/json";
pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The size of the read buffer below TLS. rustls reads 4 KiB at a time, so a buffer saves system
/// calls.
const READ_BYTES: usize = 64 << 10;

/// Large enough that no server waits for window updates; the default of h2load.
const WINDOW_BYTES: u32 = (1 << 30) - 1;

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Protocol {
    /// Only one request at a time, and none after a watch.
    Http1,
    Http2,
}

/// A request that can be sent repeatedly.
#[derive(Clone)]
pub(crate) struct PreparedRequest {
    head: Request<()>,
    body: Bytes,
}

impl PreparedRequest {
    pub(crate) fn get(server: &Server, path: &str, accept: &str, gzip: bool) -> Self {
        let mut request = Self::with_body(server, Method::GET, path, None, Bytes::new());
        let headers = request.head.headers_mut();
        headers.insert(header::ACCEPT, HeaderValue::from_str(accept).expect("a media type"));
        if gzip {
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        }
        request
    }

    pub(crate) fn with_body(
        server: &Server,
        method: Method,
        path: &str,
        content_type: Option<&'static str>,
        body: Bytes,
    ) -> Self {
        let mut parts = server.url.clone().into_parts();
        parts.path_and_query = Some(path.parse().expect("a path"));
        let mut request = Request::new(());
        *request.method_mut() = method;
        *request.uri_mut() = Uri::from_parts(parts).expect("a URI");
        let headers = request.headers_mut();
        headers.insert(header::AUTHORIZATION, server.authorization.clone());
        headers.insert(header::USER_AGENT, HeaderValue::from_static("weir-compare"));
        if let Some(content_type) = content_type {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        Self { head: request, body }
    }

    fn http2_request(&self) -> Request<Full<Bytes>> {
        let (parts, ()) = self.head.clone().into_parts();
        Request::from_parts(parts, Full::new(self.body.clone()))
    }

    /// Returns the request for HTTP/1.1, which has the authority in a header and only the path in
    /// the request line.
    fn http1_request(&self) -> Request<Full<Bytes>> {
        let mut request = self.http2_request();
        let authority = request.uri().authority().expect("the URI has one").as_str();
        let host = HeaderValue::from_str(authority).expect("a host");
        let path = request.uri().path_and_query().cloned().expect("the URI has a path");
        request.headers_mut().insert(header::HOST, host);
        *request.uri_mut() = path.into();
        request
    }
}

/// A connection. Clones share it.
#[derive(Clone)]
pub(crate) enum Connection {
    Http1(Arc<Mutex<http1::SendRequest<Full<Bytes>>>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Connection {
    pub(crate) async fn open(server: &Server, protocol: Protocol) -> Self {
        let tcp =
            TcpStream::connect((server.host(), server.port())).await.expect("the server listens");
        tcp.set_nodelay(true).expect("a socket");
        let Some(tls) = server.tls(protocol) else { return Self::over(tcp, protocol).await };
        let name = ServerName::try_from(server.host().to_owned()).expect("a name");
        let tcp = BufReader::with_capacity(READ_BYTES, tcp);
        let connect = TlsConnector::from(tls).connect(name, tcp);
        Self::over(connect.await.expect("TLS"), protocol).await
    }

    async fn over(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        protocol: Protocol,
    ) -> Self {
        // The connection ends with its last sender. Its errors also reach the sender.
        match protocol {
            Protocol::Http1 => {
                let handshake = http1::handshake(TokioIo::new(stream)).await;
                let (sender, connection) = handshake.expect("HTTP/1.1");
                tokio::spawn(async move { drop(connection.await) });
                Self::Http1(Arc::new(Mutex::new(sender)))
            }
            Protocol::Http2 => {
                let handshake = http2::Builder::new(TokioExecutor::new())
                    .initial_stream_window_size(WINDOW_BYTES)
                    .initial_connection_window_size(WINDOW_BYTES)
                    .handshake(TokioIo::new(stream));
                let (sender, connection) = handshake.await.expect("HTTP/2");
                tokio::spawn(async move { drop(connection.await) });
                Self::Http2(sender)
            }
        }
    }

    /// Sends a request and returns the response when its head has arrived.
    #[expect(
        clippy::await_holding_invalid_type,
        reason = "a connection of HTTP/1.1 takes one request after another"
    )]
    pub(crate) async fn send(&self, request: &PreparedRequest) -> Response<Incoming> {
        let response = match self {
            Self::Http1(sender) => {
                let mut sender = sender.lock().await;
                sender.ready().await.expect("a connection");
                sender.send_request(request.http1_request()).await
            }
            Self::Http2(sender) => sender.clone().send_request(request.http2_request()).await,
        };
        response.expect("a response")
    }

    /// Sends a request and returns the status, Weir's cache header and the length of the body.
    pub(crate) async fn count(&self, request: &PreparedRequest) -> ResponseSummary {
        let mut response = self.send(request).await;
        let mut summary =
            ResponseSummary { code: response.status(), cache: cache(response.headers()), bytes: 0 };
        while let Some(frame) = response.body_mut().frame().await {
            summary.bytes += frame.expect("a complete body").data_ref().map_or(0, Bytes::len);
        }
        summary
    }

    /// Sends a request and returns the status and the body.
    pub(crate) async fn collect(&self, request: &PreparedRequest) -> (StatusCode, Bytes) {
        let (parts, body) = self.send(request).await.into_parts();
        (parts.status, body.collect().await.expect("a complete body").to_bytes())
    }
}

/// The status, the cache header and the body's length of a response.
pub(crate) struct ResponseSummary {
    pub(crate) code: StatusCode,
    /// The header X-Weir-Cache, which only Weir sends.
    pub(crate) cache: Option<HeaderValue>,
    pub(crate) bytes: usize,
}

impl ResponseSummary {
    /// Returns whether the cache answered. Servers other than Weir count as a cache.
    pub(crate) fn is_hit(&self) -> bool {
        self.cache.as_ref().is_none_or(|status| status.as_bytes().starts_with(b"hit"))
    }
}

pub(crate) fn cache(headers: &HeaderMap) -> Option<HeaderValue> {
    headers.get("x-weir-cache").cloned()
}

//! A client that costs little: over TLS, HTTP/2 or, where it is asked for, HTTP/1.1; bodies are read to their end, frame by frame, and dropped.

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

/// rustls reads 4 KiB at a time; this makes few system calls of it.
const READ_BYTES: usize = 64 << 10;

/// No server should have to wait for window updates; as h2load's default.
const WINDOW_BYTES: u32 = (1 << 30) - 1;

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Protocol {
    /// One request at a time, and nothing after a watch.
    Http1,
    Http2,
}

/// A request that can be sent again and again.
#[derive(Clone)]
pub(crate) struct Ask {
    request: Request<()>,
    body: Bytes,
}

impl Ask {
    pub(crate) fn get(server: &Server, path: &str, accept: &str, gzip: bool) -> Self {
        let mut ask = Self::with_body(server, Method::GET, path, None, Bytes::new());
        let headers = ask.request.headers_mut();
        headers.insert(header::ACCEPT, HeaderValue::from_str(accept).expect("a media type"));
        if gzip {
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        }
        ask
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
        Self { request, body }
    }

    fn request(&self) -> Request<Full<Bytes>> {
        let (parts, ()) = self.request.clone().into_parts();
        Request::from_parts(parts, Full::new(self.body.clone()))
    }

    /// HTTP/1.1 has the authority in a header, and the path alone in the first line.
    fn http1_request(&self) -> Request<Full<Bytes>> {
        let mut request = self.request();
        let authority = request.uri().authority().expect("it has one").as_str();
        let host = HeaderValue::from_str(authority).expect("a host");
        let path = request.uri().path_and_query().cloned().expect("it has one");
        request.headers_mut().insert(header::HOST, host);
        *request.uri_mut() = path.into();
        request
    }
}

/// One connection, over which many may ask at once.
#[derive(Clone)]
pub(crate) enum Connection {
    Http1(Arc<Mutex<http1::SendRequest<Full<Bytes>>>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Connection {
    pub(crate) async fn open(server: &Server, protocol: Protocol) -> Self {
        let tcp = TcpStream::connect((server.host(), server.port())).await.expect("it listens");
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
        // A connection ends with its last sender; what fails, fails there.
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

    /// The answer as soon as its head is there.
    pub(crate) async fn send(&self, ask: &Ask) -> Response<Incoming> {
        let response = match self {
            Self::Http1(sender) => {
                let mut sender = sender.lock().await;
                sender.ready().await.expect("a connection");
                sender.send_request(ask.http1_request()).await
            }
            Self::Http2(sender) => sender.clone().send_request(ask.request()).await,
        };
        response.expect("an answer")
    }

    /// Asks and counts: the status, whether Weir says that its cache answered, and the bytes of the body.
    pub(crate) async fn count(&self, ask: &Ask) -> Counted {
        let mut response = self.send(ask).await;
        let mut counted =
            Counted { code: response.status(), cache: cache(response.headers()), bytes: 0 };
        while let Some(frame) = response.body_mut().frame().await {
            counted.bytes += frame.expect("a whole body").data_ref().map_or(0, Bytes::len);
        }
        counted
    }

    /// Asks and keeps the body.
    pub(crate) async fn collect(&self, ask: &Ask) -> (StatusCode, Bytes) {
        let (parts, body) = self.send(ask).await.into_parts();
        (parts.status, body.collect().await.expect("a whole body").to_bytes())
    }
}

/// What is told of an answer.
pub(crate) struct Counted {
    pub(crate) code: StatusCode,
    /// Weir's X-Weir-Cache; of others, nothing.
    pub(crate) cache: Option<HeaderValue>,
    pub(crate) bytes: usize,
}

impl Counted {
    /// Whether the cache answered, or nobody says.
    pub(crate) fn hit(&self) -> bool {
        self.cache.as_ref().is_none_or(|it| it.as_bytes().starts_with(b"hit"))
    }
}

pub(crate) fn cache(headers: &HeaderMap) -> Option<HeaderValue> {
    headers.get("x-weir-cache").cloned()
}

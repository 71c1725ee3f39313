//! HTTP of a simulated client: requests on a kept connection, and a connection for each watch.

use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};

use crate::checker::Form;
use crate::guests;
use crate::network::Network;
use crate::resources;

/// The HTTP client of one simulated client.
pub(crate) struct Caller {
    network: Network,
    name: String,
    target: String,
    is_http2: bool,
    kept: Option<Sender>,
}

/// A whole response.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) cache: String,
    pub(crate) headers: HeaderMap,
    /// The body without the fields that a definition adds by default.
    pub(crate) body: Bytes,
    /// The body as it was received.
    pub(crate) whole: Bytes,
}

/// A response whose frames come one by one.
pub(crate) struct Frames {
    pub(crate) status: u16,
    pub(crate) cache: String,
    pub(crate) content_type: String,
    form: Form,
    body: Incoming,
    buffer: BytesMut,
    /// Keeps the connection open.
    _sender: Sender,
}

/// A request that got no response.
struct Unanswered {
    why: String,
    /// The request, if its connection never took it.
    unsent: Option<Request<Full<Bytes>>>,
}

enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Caller {
    pub(crate) fn new(network: Network, name: &str, target: &str, is_http2: bool) -> Self {
        let (name, target) = (name.to_owned(), target.to_owned());
        Self { network, name, target, is_http2, kept: None }
    }

    /// Opens an HTTP/2 connection for this caller and its twins, if none is open.
    pub(crate) async fn dial_shared(&mut self) -> Result<(), String> {
        self.is_http2 = true;
        let is_open =
            self.kept.as_ref().and_then(Sender::shared).is_some_and(|kept| kept.is_open());
        if !is_open {
            self.kept = Some(self.dial().await?);
        }
        Ok(())
    }

    /// Returns another caller on the same HTTP/2 connection.
    pub(crate) fn twin(&self) -> Self {
        let kept = self.kept.as_ref().and_then(Sender::shared);
        let (network, name, target) =
            (self.network.clone(), self.name.clone(), self.target.clone());
        Self { network, name, target, is_http2: self.is_http2, kept }
    }

    /// Returns the name of the host that it calls.
    pub(crate) fn target(&self) -> &str {
        &self.target
    }

    /// Sends later requests to another host.
    pub(crate) fn retarget(&mut self, target: &str) {
        if self.target != target {
            self.target = target.to_owned();
            self.kept = None;
        }
    }

    /// Sends a GET, and collects the response. An error is a message.
    pub(crate) async fn get(&mut self, path: &str) -> Result<Answer, String> {
        self.call(Method::GET, path, Bytes::new()).await
    }

    /// Sends a GET that asks for a form, and collects the response. An error is a message.
    pub(crate) async fn get_as(
        &mut self,
        path: &str,
        accept: &'static str,
    ) -> Result<Answer, String> {
        let request = self.request(Method::GET, path, Bytes::new(), accept);
        self.exchange(request).await
    }

    /// Sends a request, and collects the response. An error is a message.
    pub(crate) async fn call(
        &mut self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Answer, String> {
        self.exchange(self.request(method, path, body, Form::Json.accept())).await
    }

    /// Sends a request with this `Audit-ID`, and collects the response. An error is a message. A
    /// call that is given up leaves a connection of HTTP/2 open.
    pub(crate) async fn call_as(
        &mut self,
        audit_id: &str,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Answer, String> {
        let mut request = self.request(method, path, body, Form::Json.accept());
        let id = HeaderValue::from_str(audit_id).map_err(|error| error.to_string())?;
        request.headers_mut().insert("audit-id", id);
        let shared = self.kept.as_ref().and_then(Sender::shared);
        let kept = match shared {
            Some(shared) => self.kept.replace(shared),
            None => self.kept.take(),
        };
        let answer = self.exchange_on(kept, request).await;
        if answer.is_err() {
            self.kept = None;
        }
        answer
    }

    async fn exchange(&mut self, request: Request<Full<Bytes>>) -> Result<Answer, String> {
        let kept = self.kept.take();
        self.exchange_on(kept, request).await
    }

    async fn exchange_on(
        &mut self,
        kept: Option<Sender>,
        request: Request<Full<Bytes>>,
    ) -> Result<Answer, String> {
        let mut sender = match kept.filter(Sender::is_open) {
            Some(sender) => sender,
            None => self.dial().await?,
        };
        let exchange = async {
            let response = self.send_on(&mut sender, request).await?;
            let (status, cache) = head(&response);
            let headers = response.headers().clone();
            let body = response.into_body().collect().await.map_err(|error| error.to_string())?;
            let whole = body.to_bytes();
            let body = resources::without_defaults(whole.clone());
            Ok(Answer { status, cache, headers, body, whole })
        };
        let answer = match tokio::time::timeout(RESPONSE_TIMEOUT, exchange).await {
            Ok(answer) => answer,
            Err(_) => Err(NO_RESPONSE.to_owned()),
        };
        if answer.is_ok() {
            self.kept = Some(sender);
        }
        answer
    }

    /// Sends a GET on a connection of its own, and returns the response when its head is there.
    pub(crate) async fn open(&self, path: &str, form: Form) -> Result<Frames, String> {
        let mut sender = self.dial().await?;
        let request = self.request(Method::GET, path, Bytes::new(), form.accept_one());
        let sent = self.send_on(&mut sender, request);
        let response = match tokio::time::timeout(RESPONSE_TIMEOUT, sent).await {
            Ok(response) => response?,
            Err(_) => return Err(NO_RESPONSE.to_owned()),
        };
        let (status, cache) = head(&response);
        let content_type = response.headers().get(http::header::CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok()).unwrap_or_default();
        let content_type = content_type.to_owned();
        let (body, buffer) = (response.into_body(), BytesMut::new());
        Ok(Frames { status, cache, content_type, form, body, buffer, _sender: sender })
    }

    /// Sends a request, and once more on a new connection if the first one closed before it took
    /// the request, as Go's client does.
    async fn send_on(
        &self,
        sender: &mut Sender,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, String> {
        let unsent = match sender.send(request).await {
            Ok(response) => return Ok(response),
            Err(Unanswered { why, unsent: None }) => return Err(why),
            Err(Unanswered { unsent: Some(unsent), .. }) => unsent,
        };
        *sender = self.dial().await?;
        sender.send(unsent).await.map_err(|unanswered| unanswered.why)
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        accept: &'static str,
    ) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = format!("http://localhost{path}").parse().unwrap_or_default();
        let headers = request.headers_mut();
        headers.insert(http::header::HOST, HeaderValue::from_static("localhost"));
        headers.insert(http::header::ACCEPT, HeaderValue::from_static(accept));
        let token = format!("Bearer {}", guests::token(&self.name));
        headers.insert(http::header::AUTHORIZATION, token.parse().expect("a token is a header"));
        headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        request
    }

    async fn dial(&self) -> Result<Sender, String> {
        let pipe = self.network.connect(&self.name, &self.target).await;
        let io = TokioIo::new(pipe.map_err(|error| error.to_string())?);
        if self.is_http2 {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder.timer(TokioTimer::new());
            let (sender, connection) =
                builder.handshake(io).await.map_err(|error| error.to_string())?;
            tokio::spawn(connection);
            return Ok(Sender::Http2(sender));
        }
        let handshake = http1::handshake(io).await;
        let (sender, connection) = handshake.map_err(|error| error.to_string())?;
        tokio::spawn(connection);
        Ok(Sender::Http1(sender))
    }
}

impl Sender {
    /// Returns another sender on the same connection, if it is one of HTTP/2.
    fn shared(&self) -> Option<Self> {
        match self {
            Self::Http1(_) => None,
            Self::Http2(sender) => Some(Self::Http2(sender.clone())),
        }
    }

    fn is_open(&self) -> bool {
        match self {
            Self::Http1(sender) => sender.is_ready(),
            Self::Http2(sender) => sender.is_ready(),
        }
    }

    async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, Unanswered> {
        let sent = match self {
            Self::Http1(sender) => {
                let (mut parts, body) = request.into_parts();
                // HTTP/1.1 has the path only.
                parts.uri = parts.uri.path_and_query().map_or_else(
                    || http::Uri::from_static("/"),
                    |path| http::Uri::from(path.clone()),
                );
                sender.try_send_request(Request::from_parts(parts, body)).await
            }
            Self::Http2(sender) => sender.try_send_request(request).await,
        };
        sent.map_err(|mut error| Unanswered {
            unsent: error.take_message(),
            why: error.into_error().to_string(),
        })
    }
}

impl Frames {
    /// Whether a cache answers.
    pub(crate) fn is_hit(&self) -> bool {
        self.cache.starts_with("hit")
    }

    /// Returns the next frame, without the fields that a definition adds by default; `None` at a
    /// clean end. An error is a message.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, String> {
        loop {
            if let Some(frame) = self.take_frame() {
                return Ok(Some(frame));
            }
            match self.body.frame().await {
                None if self.buffer.is_empty() => return Ok(None),
                None => return Err("the stream ended within a frame".to_owned()),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
                Some(Err(error)) => return Err(error.to_string()),
            }
        }
    }

    /// Takes a whole frame from the buffer: a line, or in protobuf a message after its length.
    fn take_frame(&mut self) -> Option<Bytes> {
        if self.form == Form::Protobuf {
            let length = u32::from_be_bytes(*self.buffer.first_chunk()?) as usize;
            if length > FRAME_BYTES_MAX {
                // It is the garbage of a fault.
                return Some(self.buffer.split().freeze());
            }
            if self.buffer.len() < PREFIX_BYTES + length {
                return None;
            }
            self.buffer.advance(PREFIX_BYTES);
            return Some(self.buffer.split_to(length).freeze());
        }
        let end = self.buffer.iter().position(|byte| *byte == b'\n')?;
        let line = self.buffer.split_to(end).freeze();
        self.buffer.advance(1);
        Some(resources::without_defaults(line))
    }
}

impl Answer {
    /// Whether a cache answered.
    pub(crate) fn is_hit(&self) -> bool {
        self.cache.starts_with("hit")
    }

    /// Returns the beginning of the body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body[..self.body.len().min(300)]).into_owned()
    }
}

fn head(response: &Response<Incoming>) -> (u16, String) {
    let cache = response.headers().get("x-weir-cache").and_then(|value| value.to_str().ok());
    (response.status().as_u16(), cache.unwrap_or_default().to_owned())
}

/// The length of a frame in protobuf.
const PREFIX_BYTES: usize = 4;
/// Far more than any object has.
const FRAME_BYTES_MAX: usize = 1 << 20;
/// How long a client waits for a response, and for the head of a stream (Q2). A connection that is
/// dead ends after 9 s, an API server may take 20 s for a head, and Weirs may be in a row.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(45);
/// Why a request that took longer failed.
pub(crate) const NO_RESPONSE: &str = "no response in time";

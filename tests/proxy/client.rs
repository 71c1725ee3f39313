//! A small HTTP client without abstractions: one connection for each request, the exact bytes of
//! path and headers, streams that can be read frame by frame or abandoned.

use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Bytes,
}

impl Call {
    pub(crate) fn new(method: Method, path: &str) -> Self {
        Self { method, path: path.to_owned(), headers: Vec::new(), body: Bytes::new() }
    }

    pub(crate) fn get(path: &str) -> Self {
        Self::new(Method::GET, path)
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn json(mut self, body: &Value) -> Self {
        self.body = body.to_string().into();
        self.header("content-type", "application/json")
    }

    fn request(&self, authority: Option<&str>) -> Request<Full<Bytes>> {
        let uri: Uri = match authority {
            Some(authority) => format!("http://{authority}{}", self.path).parse().unwrap(),
            None => self.path.parse().unwrap(),
        };
        let mut request = Request::builder().method(self.method.clone()).uri(uri);
        if authority.is_none() && !self.has("host") {
            request = request.header("host", "localhost");
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        request.body(Full::new(self.body.clone())).unwrap()
    }

    fn has(&self, name: &str) -> bool {
        self.headers.iter().any(|(header, _)| header.eq_ignore_ascii_case(name))
    }
}

/// A whole response.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// Returns the value of `X-Weir-Cache`; empty for the upstream's own response and for Weir's
    /// errors.
    pub(crate) fn cache(&self) -> &str {
        cache_header(&self.headers)
    }

    /// Collects the body of a response.
    pub(crate) async fn collect(response: Response<Incoming>) -> Result<Self, hyper::Error> {
        let (parts, body) = response.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(Self { status: parts.status, headers: parts.headers, body })
    }
}

pub(crate) fn cache_header(headers: &HeaderMap) -> &str {
    headers.get("x-weir-cache").map_or("", |value| value.to_str().unwrap())
}

/// Sends a request on a new HTTP/1.1 connection and waits for the head of the response.
pub(crate) async fn send(address: SocketAddr, call: &Call) -> Response<Incoming> {
    let stream = TcpStream::connect(address).await.unwrap();
    try_send(stream, call).await.unwrap()
}

/// Sends a request on any connection and waits for the head of the response.
pub(crate) async fn try_send<S>(io: S, call: &Call) -> Result<Response<Incoming>, hyper::Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(io)).await?;
    tokio::spawn(connection.with_upgrades());
    let sent = sender.send_request(call.request(None));
    within("a response arrives", sent).await
}

/// Sends a request on a new HTTP/2 connection with prior knowledge.
pub(crate) async fn send_h2<S>(io: S, call: &Call) -> Result<Response<Incoming>, hyper::Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(io));
    let (mut sender, connection) = handshake.await?;
    tokio::spawn(connection);
    sender.send_request(call.request(Some("localhost"))).await
}

/// Sends a request and reads the whole response.
pub(crate) async fn fetch(address: SocketAddr, call: &Call) -> Answer {
    let response = send(address, call).await;
    let whole = Answer::collect(response);
    within("a whole response arrives", whole).await.unwrap()
}

/// The frames of a watch.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    body: Incoming,
    /// Set if the body is compressed.
    members: Option<MultiGzDecoder<Vec<u8>>>,
    buffer: Vec<u8>,
}

/// The next read of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A frame, without its newline.
    Frame(String),
    /// A clean end.
    End,
    /// The connection broke or the stream was reset.
    Broken,
}

impl Watch {
    pub(crate) async fn open(address: SocketAddr, call: &Call) -> Self {
        Self::new(send(address, call).await)
    }

    pub(crate) fn new(response: Response<Incoming>) -> Self {
        let (parts, body) = response.into_parts();
        let is_gzip = parts.headers.get(CONTENT_ENCODING).is_some_and(|coding| coding == "gzip");
        let members = is_gzip.then(|| MultiGzDecoder::new(Vec::new()));
        Self { status: parts.status, headers: parts.headers, body, members, buffer: Vec::new() }
    }

    pub(crate) fn cache(&self) -> &str {
        cache_header(&self.headers)
    }

    /// Returns the next frame or the end; fails the test if neither arrives.
    pub(crate) async fn next(&mut self) -> Next {
        within("a frame or an end arrives", self.read()).await
    }

    /// Returns the next frame, parsed.
    pub(crate) async fn event(&mut self) -> Value {
        match self.next().await {
            Next::Frame(line) => serde_json::from_str(&line).unwrap(),
            other => panic!("expected an event, not {other:?}"),
        }
    }

    /// Returns all frames up to the first that contains `text`, inclusive.
    pub(crate) async fn until(&mut self, text: &str) -> Vec<String> {
        within(&format!("a frame with {text:?} arrives"), self.read_until(text)).await
    }

    async fn read_until(&mut self, text: &str) -> Vec<String> {
        let mut frames = Vec::new();
        loop {
            match self.read().await {
                Next::Frame(line) => {
                    let last = line.contains(text);
                    frames.push(line);
                    if last {
                        return frames;
                    }
                }
                other => panic!("{other:?} before {text:?}; frames: {frames:#?}"),
            }
        }
    }

    /// Returns all frames up to the clean end.
    pub(crate) async fn rest(&mut self) -> Vec<String> {
        within("the stream ends", self.read_rest()).await
    }

    async fn read_rest(&mut self) -> Vec<String> {
        let mut frames = Vec::new();
        loop {
            match self.read().await {
                Next::Frame(line) => frames.push(line),
                Next::End => return frames,
                Next::Broken => panic!("the stream broke after {frames:#?}"),
            }
        }
    }

    /// Waits for the next frame or the end without a time-out. The caller needs one.
    pub(crate) async fn read(&mut self) -> Next {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Next::Frame(String::from_utf8(line[..end].to_vec()).unwrap());
            }
            match self.body.frame().await {
                None if self.buffer.is_empty() => return Next::End,
                None | Some(Err(_)) => return Next::Broken,
                Some(Ok(frame)) => {
                    let data = frame.into_data().unwrap_or_default();
                    match &mut self.members {
                        None => self.buffer.extend_from_slice(&data),
                        Some(members) => {
                            members.write_all(&data).unwrap();
                            members.flush().unwrap();
                            self.buffer.append(members.get_mut());
                        }
                    }
                }
            }
        }
    }
}

/// Waits for `step`, and fails the test with `what` if it takes longer than [`STEP_TIMEOUT`].
pub(crate) async fn within<T>(what: &str, step: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(STEP_TIMEOUT, step).await;
    done.unwrap_or_else(|_| panic!("not within {STEP_TIMEOUT:?}: {what}"))
}

/// Longer than any step takes on a busy machine.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);

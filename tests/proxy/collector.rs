//! A collector of spans that speaks OTLP over HTTP, and reacts as a test wants.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use weir::config::Config;
use weir::telemetry::trace::otlp::{ExportTraceServiceRequest, Span, Value};

use crate::wait::eventually;

/// A reaction to a request.
#[derive(Clone, Debug)]
pub(crate) enum Reaction {
    /// Stores the spans, and answers with this message.
    Accept(Bytes),
    /// Answers this status, with `Retry-After: 1` if it may be tried again.
    Status(u16),
    /// Never answers.
    Hang,
}

/// A running collector. It stops when it is dropped.
pub(crate) struct Collector {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
    _task: JoinSet<()>,
}

#[derive(Default)]
struct State {
    /// The reactions to the next requests; the last one stays.
    reactions: VecDeque<Reaction>,
    spans: Vec<Span>,
    requests: usize,
}

impl Collector {
    /// Starts a collector with these reactions; without any it accepts everything.
    pub(crate) async fn start(reactions: &[Reaction]) -> Self {
        Self::with_tls(reactions, None).await
    }

    pub(crate) async fn with_tls(reactions: &[Reaction], tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let reactions = reactions.iter().cloned().collect();
        let state = Arc::new(Mutex::new(State { reactions, ..State::default() }));
        let mut task = JoinSet::new();
        let shared = Arc::clone(&state);
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((tcp, _)) = listener.accept().await {
                let (shared, tls) = (Arc::clone(&shared), tls.clone());
                connections.spawn(async move {
                    match tls {
                        None => serve(tcp, shared).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(tcp).await {
                                serve(stream, shared).await;
                            }
                        }
                    }
                });
            }
        });
        Self { address, state, _task: task }
    }

    /// Sets this collector and this sampling rate in a configuration.
    pub(crate) fn configure(&self, per_million: u32, config: &mut Config) {
        let url = format!("http://{}/v1/traces", self.address);
        config.tracing.endpoint = Some(url.parse().unwrap());
        config.tracing.sampling_rate_per_million = per_million;
    }

    /// Returns all spans that have arrived.
    pub(crate) fn spans(&self) -> Vec<Span> {
        self.state.lock().spans.clone()
    }

    /// Returns the number of requests that have arrived.
    pub(crate) fn requests(&self) -> usize {
        self.state.lock().requests
    }

    /// Waits for a server span whose name ends so, and returns it with its children in the order
    /// in which they were made.
    pub(crate) async fn request(&self, route: &str) -> (Span, Vec<Span>) {
        let span = || self.spans().into_iter().rfind(|span| span.name.ends_with(route));
        eventually(&format!("a span of {route} arrives"), async || span().is_some()).await;
        let server = span().unwrap();
        let mut children = self.spans();
        children.retain(|span| span.parent_span_id == server.span_id);
        (server, children)
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(io: S, state: Arc<Mutex<State>>) {
    let service = service_fn(|request| answer(request, Arc::clone(&state)));
    // Ends when Weir closes it.
    drop(
        hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(io), service)
            .await,
    );
}

async fn answer(
    request: Request<Incoming>,
    state: Arc<Mutex<State>>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    assert_eq!((request.method().as_str(), request.uri().path()), ("POST", "/v1/traces"));
    assert_eq!(request.headers()["content-type"], "application/x-protobuf");
    let body = request.into_body().collect().await?.to_bytes();
    let reaction = {
        let mut state = state.lock();
        state.requests += 1;
        let last = state.reactions.len() <= 1;
        let next =
            if last { state.reactions.front().cloned() } else { state.reactions.pop_front() };
        next.unwrap_or(Reaction::Accept(Bytes::new()))
    };
    match reaction {
        Reaction::Accept(message) => {
            let export = ExportTraceServiceRequest::decode(body).unwrap();
            for resource in export.resource_spans {
                let named = resource.resource.unwrap().attributes;
                assert!(named.iter().any(|attribute| attribute.key == "service.name"), "{named:?}");
                let spans = resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
                state.lock().spans.extend(spans);
            }
            Ok(Response::new(Full::new(message)))
        }
        Reaction::Status(status) => {
            let mut response = Response::new(Full::default());
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            response.headers_mut().insert("retry-after", 1.into());
            Ok(response)
        }
        Reaction::Hang => std::future::pending().await,
    }
}

/// Returns an attribute as text; empty if there is none.
pub(crate) fn attribute(span: &Span, name: &str) -> String {
    let attribute = span.attributes.iter().find(|attribute| attribute.key == name);
    match attribute.and_then(|attribute| attribute.value.as_ref()?.value.as_ref()) {
        None => String::new(),
        Some(Value::Text(text)) => text.clone(),
        Some(Value::Int(number)) => number.to_string(),
        Some(Value::Bool(value)) => value.to_string(),
    }
}

/// Returns an id in the form of a `traceparent`.
pub(crate) fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

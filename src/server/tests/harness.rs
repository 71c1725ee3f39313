//! Starts a server with a fake upstream for forwarded requests and a scripted one for the caches,
//! and clients of it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::cache::metrics::CacheMetrics;
use crate::cache::registry::Registry;
use crate::cache::script::{
    Feed, Script, ScriptedSource, bookmark, config as cache_config, seams as cache_seams, upsert,
};
use crate::codec::held_bytes::HeldBytes;
use crate::config::seams::Seams;
use crate::config::{
    CacheConfig, CertificateConfig, FlowControlMode, ListenerConfig, ProxyNetworks, ServerConfig,
};
use crate::server::{
    Access, Compressor, FlowControl, InheritedSockets, Overload, OverloadMetrics, Upstreams,
};
use crate::server::{BoundListener, GzipMetrics, Server, ServerMetrics, Services};
use crate::telemetry::trace::Tracer;
use crate::testing::config_maps;
use crate::upstream::Upstream;
use crate::upstream::testing::{
    Answer, ServerOptions, TestServer, config as upstream_config, metrics,
};
use crate::upstream::version::UpstreamVersion;

/// The time-out of every wait. It is generous, since only a failing test reaches it.
pub(super) const SOON: Duration = Duration::from_secs(20);

pub(super) struct Weir {
    pub(super) listeners: Vec<BoundListener>,
    pub(super) shutdown: CancellationToken,
    pub(super) served: JoinHandle<()>,
    /// The script of the caches' upstream, which has config maps.
    pub(super) script: Arc<Script>,
    /// The source of discovery.
    pub(super) source: Arc<ScriptedSource>,
    pub(super) metrics: prometheus::Registry,
    /// Has the stage of overload.
    pub(super) overload: Arc<Overload>,
    /// Counts the memory of responses.
    pub(super) held: HeldBytes,
    _directory: tempfile::TempDir,
    _upstream: Option<TestServer>,
}

/// The settings that a test may change.
pub(super) struct Settings {
    pub(super) header_read_timeout: Duration,
    pub(super) shutdown_timeout: Duration,
    pub(super) warmup_timeout: Duration,
    pub(super) allowed_hosts: Vec<String>,
    pub(super) slow_request: Option<Duration>,
    pub(super) connections_per_address_max: usize,
    /// The proxies before the plain and the TLS listener.
    pub(super) proxies: ProxyNetworks,
    pub(super) stall_timeout: Duration,
    pub(super) response_bytes_max: usize,
    /// Whether the upstream speaks HTTP/2.
    pub(super) http2: bool,
    /// The flow control, which adds up clients' costs.
    pub(super) flow_control: Option<Arc<FlowControl>>,
    /// Decides whether the stages of overload are acted upon.
    pub(super) flow_control_mode: FlowControlMode,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            header_read_timeout: Duration::from_secs(10),
            shutdown_timeout: Duration::from_secs(10),
            warmup_timeout: Duration::from_secs(10),
            allowed_hosts: Vec::new(),
            slow_request: None,
            connections_per_address_max: 100,
            proxies: ProxyNetworks::default(),
            stall_timeout: Duration::from_secs(60),
            response_bytes_max: 64 << 20,
            http2: false,
            flow_control: None,
            flow_control_mode: FlowControlMode::Enforce,
        }
    }
}

impl Weir {
    /// Starts a server with an upstream that answers with `handler`.
    pub(super) async fn start<F, R>(handler: F) -> Self
    where
        F: Fn(Request<Incoming>) -> R + Send + Sync + 'static,
        R: Future<Output = Answer> + Send + 'static,
    {
        Self::start_with(Settings::default(), handler).await
    }

    pub(super) async fn start_with<F, R>(settings: Settings, handler: F) -> Self
    where
        F: Fn(Request<Incoming>) -> R + Send + Sync + 'static,
        R: Future<Output = Answer> + Send + 'static,
    {
        let speaks = if settings.http2 { ServerOptions::http2() } else { ServerOptions::http1() };
        let upstream = TestServer::start(speaks, handler).await;
        let address = format!("http://{}", upstream.address);
        Self::before(settings, address, Some(upstream)).await
    }

    /// Starts a server with an upstream at `address`. `running` is kept until the server is
    /// dropped.
    pub(super) async fn before(
        settings: Settings,
        address: String,
        running: Option<TestServer>,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = upstream_config(Some(address), None, settings.http2);
        let upstream = Upstream::new(&config, metrics()).await.unwrap();
        let script = Arc::new(Script::default());
        let shared = Arc::clone(&script);
        let source = ScriptedSource::new(vec![config_maps()], move |_, _| Arc::clone(&shared));
        source.version.send_replace(Some(release(36)));
        let cache_metrics = CacheMetrics::register(&prometheus::Registry::new()).unwrap();
        let registry = Registry::with_source(
            Arc::new(CacheConfig { resource_bytes_max: 64 << 20, ..cache_config() }),
            cache_seams(),
            Box::new(source.clone()),
            cache_metrics,
        );
        let metric_registry = prometheus::Registry::new();
        let held = HeldBytes::new(settings.response_bytes_max);
        let gzip = GzipMetrics::register(&metric_registry).unwrap();
        let overload_metrics = OverloadMetrics::register(&metric_registry).unwrap();
        let overload = Overload::new(settings.flow_control_mode, overload_metrics);
        let services = Services {
            slow_request: settings.slow_request,
            registry,
            upstreams: Upstreams::with_own_identity(upstream),
            access: Access::sidecar(),
            compressor: Compressor::new(1 << 20, held.clone(), gzip),
            held: held.clone(),
            overload: Arc::clone(&overload),
            audit: None,
            flow_control: settings.flow_control.clone(),
            shadow: None,
            tracer: Tracer::default(),
            metrics: ServerMetrics::register(&metric_registry).unwrap(),
            seams: Seams {
                header_read_timeout: settings.header_read_timeout,
                warmup_timeout: settings.warmup_timeout,
                stall_timeout: settings.stall_timeout,
                ..Seams::default()
            },
        };
        let config = server_config(settings, &directory);
        let server = Server::bind(&config, services, InheritedSockets::default()).unwrap();
        let shutdown = CancellationToken::new();
        Self {
            listeners: server.local_addresses(),
            served: tokio::spawn(server.serve(shutdown.clone())),
            shutdown,
            script,
            source,
            metrics: metric_registry,
            overload,
            held,
            _directory: directory,
            _upstream: running,
        }
    }

    /// Fills the cache of config maps, up to resourceVersion 7. Returns the feed of later events.
    pub(super) fn fill(&self, objects: impl IntoIterator<Item = (String, u64)>) -> Feed {
        let feed = self.script.on_watch();
        let mut events: Vec<_> = objects.into_iter().map(|(name, at)| upsert(&name, at)).collect();
        events.push(bookmark(7, true));
        feed.send(events);
        self.script.on_probe(7);
        feed
    }

    /// Returns the address of the plain listener.
    pub(super) fn plain(&self) -> &str {
        &self.listeners[0].address
    }

    pub(super) async fn tcp(&self) -> TcpStream {
        TcpStream::connect(self.plain()).await.unwrap()
    }

    pub(super) async fn http1(&self) -> Http1 {
        http1_on(self.tcp().await).await
    }

    /// Sends a GET, and returns the whole response.
    pub(super) async fn get(&self, path: &str) -> Got {
        self.send(get(path)).await
    }

    pub(super) async fn send(&self, request: Request<Full<Bytes>>) -> Got {
        whole(self.http1().await.send_request(request).await.unwrap()).await
    }

    pub(super) fn scrape(&self) -> String {
        prometheus::TextEncoder::new().encode_to_string(&self.metrics.gather()).unwrap()
    }
}

fn server_config(settings: Settings, directory: &tempfile::TempDir) -> ServerConfig {
    let loopback = "127.0.0.1:0".parse().unwrap();
    let certificate = CertificateConfig::Generated { names: vec!["weir.example".to_owned()] };
    ServerConfig {
        listeners: vec![
            ListenerConfig::Plain { address: loopback, proxies: settings.proxies.clone() },
            ListenerConfig::Tls { address: loopback, certificate, proxies: settings.proxies },
            ListenerConfig::Unix { path: directory.path().join("weir.sock") },
        ],
        allowed_hosts: settings.allowed_hosts,
        shutdown_delay: Duration::ZERO,
        shutdown_timeout: settings.shutdown_timeout,
        connections_per_address_max: settings.connections_per_address_max,
        connections_per_user_max: settings.connections_per_address_max,
        watches_per_user_max: 100,
        response_bytes_max: settings.response_bytes_max,
    }
}

pub(super) type Http1 = http1::SendRequest<Full<Bytes>>;
pub(super) type Http2 = http2::SendRequest<Full<Bytes>>;

pub(super) async fn http1_on<I>(io: I) -> Http1
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(io)).await.unwrap();
    tokio::spawn(connection.with_upgrades());
    sender
}

pub(super) async fn http2_on<I>(io: I) -> Http2
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(io)).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// Returns a GET as a local client sends it.
pub(super) fn get(path: &str) -> Request<Full<Bytes>> {
    Request::get(path).header("host", "localhost").body(Full::default()).unwrap()
}

/// A response with its whole body.
pub(super) struct Got {
    pub(super) code: u16,
    pub(super) headers: http::HeaderMap,
    pub(super) body: Bytes,
}

impl Got {
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub(super) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

pub(super) async fn whole(answer: Response<Incoming>) -> Got {
    let (parts, body) = answer.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Got { code: parts.status.as_u16(), headers: parts.headers, body }
}

/// Answers with the request that arrived: method, path, headers by name, body.
pub(super) async fn echo(request: Request<Incoming>) -> Answer {
    let (parts, body) = request.into_parts();
    let mut lines = vec![format!("{} {}", parts.method, parts.uri)];
    let mut headers: Vec<String> = parts
        .headers
        .iter()
        .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
        .collect();
    headers.sort_unstable();
    lines.extend(headers);
    let body = body.collect().await.unwrap().to_bytes();
    lines.push(String::from_utf8(body.to_vec()).unwrap());
    let mut answer = crate::upstream::testing::answer(200, lines.join("\n"));
    answer.headers_mut().insert("x-upstream", http::HeaderValue::from_static("yes"));
    answer
}

pub(super) fn empty() -> http_body_util::combinators::UnsyncBoxBody<Bytes, std::convert::Infallible>
{
    Empty::new().boxed_unsync()
}

/// Returns a version of the upstream by its minor number.
pub(super) fn release(minor: u32) -> UpstreamVersion {
    UpstreamVersion { major: 1, minor, git_version: format!("v1.{minor}.0"), is_mixed: false }
}

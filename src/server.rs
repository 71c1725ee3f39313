//! The server: accepts clients, and answers their requests from the caches or the upstream.
//!
//! The modules in the order of a request's way: [`accept`] takes connections, [`connection`] serves
//! HTTP on them, [`mod@router`] resolves each request ([`request`]), [`delegate`] decides between
//! the caches ([`cached`]) and the upstream ([`forward`]), and [`admission`] has the limits.
//! [`http`] holds what both share. [`reviews`] are access reviews that roles answer. In [`shadow`]
//! mode every read is forwarded, and compared with the caches.
//!
//! A shutdown stops accepting, ends connections gracefully (GOAWAY) together with their watches,
//! spread over nine tenths of the deadline, and aborts what remains at the deadline.

pub(crate) mod accept;
mod admission;
mod appointments;
mod cached;
pub(crate) mod connection;
pub(crate) mod delegate;
mod drain;
pub(crate) mod flow_control;
mod forward;
pub(crate) mod http;
pub(crate) mod lanes;
mod live;
pub(crate) mod metrics;
mod open_watches;
mod overload;
pub(crate) mod request;
mod reviews;
mod router;
pub(crate) mod shadow;

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::auth::audit::AuditLog;
use crate::cache::registry::Registry;
use crate::codec::held_bytes::HeldBytes;
use crate::config::seams::Seams;
use crate::config::{Mode, ServerConfig};
use crate::server::accept::Acceptor;
pub use crate::server::accept::bind_error::BindError;
pub use crate::server::accept::certificate::CertificateError;
pub use crate::server::accept::inherited::InheritedSockets;
pub use crate::server::accept::listener::{BoundListener, ListenerKind};
use crate::server::accept::listener::{Listener, Socket};
#[cfg(feature = "simulation")]
pub use crate::server::accept::pipe::PipeListener;
pub use crate::server::cached::compress::{Compressor, GzipMetrics};
use crate::server::cached::drop_rules::DropRules;
use crate::server::cached::read::CacheServices;
use crate::server::cached::response_budget::ResponseBudget;
use crate::server::cached::websocket::Sockets;
use crate::server::connection::ConnectionServer;
pub use crate::server::connection::list::ConnectionList;
use crate::server::connection::permits::{ConnectionCounts, ConnectionLimits};
use crate::server::drain::Drain;
pub use crate::server::flow_control::FlowControl;
pub use crate::server::flow_control::metrics::{FlowFigures, FlowMetrics};
pub use crate::server::flow_control::sample::{SampleClient, SampleRequest};
pub use crate::server::flow_control::source::start as follow_flow_control;
use crate::server::forward::documents::Documents;
use crate::server::forward::forwarder::{FAILURE_LOG_INTERVAL, Forwarder};
pub use crate::server::forward::identity::Upstreams;
use crate::server::forward::list_times::ListTimes;
use crate::server::forward::quota::UpstreamQuota;
use crate::server::forward::share::ForwardShares;
use crate::server::forward::upgrade::Splicer;
pub use crate::server::live::ServerReload;
use crate::server::live::{LiveSettings, Settings};
pub use crate::server::metrics::{RequestCount, ServerFigures, ServerMetrics};
use crate::server::open_watches::OpenWatches;
pub use crate::server::overload::{Overload, OverloadFigures, OverloadMetrics, Stages};
pub use crate::server::request::access::{Access, Gateway, UserAssertion};
use crate::server::request::audit::Auditor;
use crate::server::request::trace::RequestTracer;
use crate::server::router::Router;
pub use crate::server::shadow::Shadow;
use crate::server::shadow::beside;
pub use crate::server::shadow::outcome::ShadowMetrics;
use crate::tasks::keyed_counter::KeyedCounter;
use crate::telemetry::log_throttle::LogThrottle;
use crate::telemetry::trace::Tracer;

/// The parts of Weir that a server uses.
pub struct Services {
    /// The caches.
    pub registry: Registry,
    /// The connections to the upstream.
    pub upstreams: Upstreams,
    /// Authenticates and authorizes clients.
    pub access: Access,
    /// Compresses responses.
    pub compressor: Compressor,
    /// Counts what responses hold in memory for their clients, and has its limit.
    pub held: HeldBytes,
    /// Knows what must be refused while Weir is overloaded.
    pub overload: Arc<Overload>,
    /// The log has a line for each request that takes longer; `None` for no line.
    pub slow_request: Option<Duration>,
    /// The audit log of responses from the caches; `None` for no log.
    pub audit: Option<Arc<AuditLog>>,
    /// Adds up what clients cost; `None` if flow control is off.
    pub flow_control: Option<Arc<FlowControl>>,
    /// Compares reads with the caches; `None` unless in shadow mode.
    pub shadow: Option<Arc<Shadow>>,
    /// Takes the spans of requests.
    pub tracer: Tracer,
    /// The server's metrics.
    pub metrics: ServerMetrics,
    /// Constants of the server.
    pub seams: Seams,
}

/// A server whose listeners are bound.
pub struct Server {
    listeners: Vec<Listener>,
    acceptor: Acceptor,
    reload: ServerReload,
    connections: ConnectionList,
    /// Compares reads with the caches until it is dropped.
    comparing: JoinSet<()>,
    shadow: Option<Arc<Shadow>>,
}

impl Server {
    /// Binds every listener. Clients may connect afterwards, but wait until [`Server::serve`]. Must
    /// be called in a tokio runtime. In gateway mode TLS clients are asked for certificates.
    pub fn bind(
        config: &ServerConfig,
        services: Services,
        mut sockets: InheritedSockets,
    ) -> Result<Self, BindError> {
        let hints = services.access.hints();
        let mode = if hints.is_some() { Mode::Gateway } else { Mode::Sidecar };
        let bind = |listener| Listener::bind(listener, mode, hints.as_ref(), &mut sockets);
        let listeners = config.listeners.iter().map(bind).collect::<Result<Vec<_>, _>>()?;
        sockets.finish()?;
        let tasks = TaskTracker::new();
        let abort = CancellationToken::new();
        let (metrics, overload) = (services.metrics.clone(), Arc::clone(&services.overload));
        let reload = ServerReload {
            live: Arc::new(LiveSettings::from_pointee(Settings::new(
                config,
                services.slow_request,
                mode,
            ))),
            list_times: Arc::new(ListTimes::new(services.registry.config().consistent_lists)),
            flow_control: services.flow_control.clone(),
            tracer: services.tracer.clone(),
        };
        let (shadow, seams) = (services.shadow.clone(), services.seams.clone());
        let router = Arc::new(router(config, mode, services, &reload, (&tasks, &abort)));
        let mut comparing = JoinSet::new();
        if let Some(shadow) = &shadow
            && let Some(queue) = shadow.queue.lock().take()
        {
            comparing.spawn(beside::run(Arc::clone(&router), Arc::clone(shadow), queue));
        }
        let connections = ConnectionList::default();
        let acceptor = Acceptor {
            connections: ConnectionServer::new(router, &seams, connections.clone(), abort.clone()),
            metrics,
            overload,
            tasks,
            drain: Drain::default(),
            abort,
            counts: ConnectionCounts::new(ConnectionLimits {
                per_address_max: config.connections_per_address_max,
                per_user_max: config.connections_per_user_max,
                evicts: mode == Mode::Gateway,
            }),
            stall_timeout: seams.stall_timeout,
            misnamed: Arc::new(LogThrottle::new(REFUSAL_LOG_INTERVAL)),
        };
        Ok(Self { listeners, acceptor, reload, connections, comparing, shadow })
    }

    /// Returns the addresses of the listeners, in the order of the configuration.
    pub fn local_addresses(&self) -> Vec<BoundListener> {
        self.listeners.iter().map(|listener| listener.bound.clone()).collect()
    }

    /// Returns what says when the first serving certificate expires, in seconds since 1970.
    pub fn serving_expiry(&self) -> impl Fn() -> Option<i64> + Send + Sync + use<> {
        let serving = self.listeners.iter().filter_map(|listener| match &listener.socket {
            Socket::Tls(_, _, tls) => Some(Arc::clone(tls.acceptors.serving())),
            Socket::Plain(..) | Socket::Unix(..) => None,
        });
        let serving: Vec<_> = serving.collect();
        move || serving.iter().filter_map(|certificate| certificate.expiry()).min()
    }

    /// Returns the open connections of clients.
    pub fn connections(&self) -> ConnectionList {
        self.connections.clone()
    }

    /// Returns what replaces the settings of this server while it runs.
    pub fn reload(&self) -> ServerReload {
        self.reload.clone()
    }

    /// Returns a listener without a socket, for connections of this process.
    #[cfg(feature = "simulation")]
    pub fn pipe_listener(&self) -> PipeListener {
        PipeListener::new(self.acceptor.clone())
    }

    /// Serves until `shutdown` is cancelled, then drains. Returns when every connection has ended
    /// or was aborted.
    pub async fn serve(self, shutdown: CancellationToken) {
        let Self { listeners, acceptor, reload, comparing, shadow, .. } = self;
        let loops = TaskTracker::new();
        for Listener { bound, socket } in listeners {
            tracing::info!(listener = %bound, "listening");
            acceptor.spawn_loop(socket, &loops, shutdown.clone());
        }
        loops.close();
        loops.wait().await;
        shutdown.cancelled().await;
        let deadline = reload.live.load().shutdown_timeout;
        acceptor.drain(deadline).await;
        if let Some(shadow) = shadow {
            shadow.settle(SETTLE_TIMEOUT).await;
        }
        drop(comparing);
    }
}

/// Builds the router. `tasks` are waited for when Weir drains, and `abort` ends them.
fn router(
    config: &ServerConfig,
    mode: Mode,
    services: Services,
    reload: &ServerReload,
    (tasks, abort): (&TaskTracker, &CancellationToken),
) -> Router {
    services.metrics.set_held(services.held.clone());
    let ServerReload { live, list_times, .. } = reload;
    let registry = services.registry.clone();
    let watches = (mode == Mode::Gateway)
        .then(|| OpenWatches::new(config.watches_per_user_max, services.metrics.clone()));
    let splicer =
        Splicer { metrics: services.metrics.clone(), tasks: tasks.clone(), abort: abort.clone() };
    Router {
        caches: CacheServices {
            registry: services.registry,
            compressor: services.compressor,
            responses: ResponseBudget::new(services.held.clone(), mode),
            live: Arc::clone(live),
            seams: services.seams.clone(),
            list_times: Arc::clone(list_times),
            overload: services.overload,
            herd: services.metrics.appointments().clone(),
            drop_rules: DropRules::default(),
        },
        forwarder: Forwarder {
            upstreams: services.upstreams,
            names: services.access.identity_names(),
            quota: UpstreamQuota::new(),
            shares: ForwardShares::default(),
            shares_identity: mode == Mode::Sidecar,
            splicer,
            stall_timeout: services.seams.stall_timeout,
            failures: LogThrottle::new(FAILURE_LOG_INTERVAL),
            list_times: Arc::clone(list_times),
        },
        documents: Documents::new(services.held, services.metrics.clone(), registry),
        sockets: Sockets::new(tasks.clone(), abort.clone()),
        metrics: services.metrics,
        access: services.access,
        auditor: Auditor::new(services.audit),
        tracer: RequestTracer { tracer: services.tracer, trusts_all: mode == Mode::Sidecar },
        flow_control: services.flow_control,
        watches,
        shadow: services.shadow,
        review_bodies: KeyedCounter::default(),
    }
}

/// The wait for the last comparisons of shadow mode.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(6);
/// A flood of refused connections is logged once in this interval.
const REFUSAL_LOG_INTERVAL: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;

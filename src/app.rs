//! Builds the components, starts them in order, stops them in reverse.
//!
//! The order follows the dependencies: metrics, connections, discovery, caches, listeners, then the
//! kubeconfig and readiness, which bring clients. Stopping reverses it: `/readyz` fails while all
//! else goes on for a while, so that clients are sent elsewhere; then Weir accepts no connection,
//! drains the open ones, ends its caches, and answers probes until the end.
//!
//! Weir starts although the upstream is unreachable: it reports that (log, `/readyz`) and keeps
//! trying, as it does when the upstream fails later. Weir does not start with credentials that
//! cannot be read or that the upstream rejects at the first request.

mod announcement;
pub mod build_info;
mod certificates;
pub(crate) mod cgroup;
mod files;
mod gateway;
pub mod introspection;
pub mod kubeconfig;
pub mod metrics;
mod overload;
mod probe;
mod readiness;
pub mod reload;
pub mod service_manager;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use arc_swap::ArcSwap;
use futures_util::future::OptionFuture;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::admin::health::Checks;
use crate::admin::{Admin, Details};
use crate::app::announcement::Announcement;
use crate::app::certificates::Expiries;
use crate::app::cgroup::Limits;
use crate::app::gateway::Identities;
use crate::app::introspection::{Given, show};
use crate::app::metrics::Metrics;
use crate::app::overload::Measured;
use crate::app::probe::Probe;
use crate::app::readiness::checks;
use crate::app::reload::{ConfigSource, ReloadParts, Reloader};
use crate::auth::audit::AuditLog;
use crate::cache::registry::Registry;
use crate::codec::held_bytes::HeldBytes;
use crate::config::seams::Seams;
use crate::config::{AdminDetail, Config, FlowControlMode, Mode, ShadowMode};
use crate::server::{
    BoundListener, Compressor, FlowControl, InheritedSockets, Overload, Server, Services, Shadow,
    follow_flow_control,
};
use crate::telemetry::events::EventKind;
use crate::telemetry::log_filter::LogFilter;
use crate::telemetry::trace::{self, SpanExport, Tracer};
use crate::upstream::Upstream;
use crate::upstream::discovery::{Discovery, Readers};
use crate::upstream::endpoints::monitor;

/// A Weir whose listeners are bound; clients that connect wait until it [runs](App::run).
pub struct App {
    server: Server,
    compressor: Compressor,
    listeners: Vec<BoundListener>,
    mode: Mode,
    admin: Option<RunningAdmin>,
    registry: Registry,
    /// Finds and checks the API servers.
    _endpoints: JoinSet<()>,
    probe: JoinHandle<()>,
    announcement: Announcement,
    audit: Option<Arc<AuditLog>>,
    /// Exports spans until it is dropped.
    spans: Option<SpanExport>,
    /// Follows the cluster's FlowSchemas until it is dropped.
    _following: Option<DropGuard>,
    /// Measures this process's overload.
    _measuring: JoinSet<Infallible>,
    metrics: Metrics,
    /// The comparisons of shadow mode.
    shadow: Option<Arc<Shadow>>,
    /// The configuration that the parts use.
    running: Arc<ArcSwap<Config>>,
    /// Cancelled when Weir serves: `/readyz` fails until then.
    started: CancellationToken,
    /// Cancelled when Weir begins to stop: `/readyz` fails from then on.
    stopping: CancellationToken,
    /// Cancelled when everything else has ended.
    ended: CancellationToken,
}

struct RunningAdmin {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl App {
    /// Builds everything. Errors are final and say what to check: credentials, certificates,
    /// addresses in use.
    pub async fn start(config: Config, seams: Seams) -> Result<Self> {
        let given = Given { seams, ..Given::default() };
        Self::start_with(config, InheritedSockets::default(), given).await
    }

    /// The same, with sockets that a service manager opened for the listeners, and with what the
    /// process was given beside its configuration.
    pub async fn start_with(
        config: Config,
        sockets: InheritedSockets,
        given: Given,
    ) -> Result<Self> {
        files::raise_limit();
        let lookup = given.seams.resolver.clone();
        let metrics = Metrics::new().context("cannot register metrics")?;
        metrics.reload.started(&config);
        let (tracer, spans) = trace::start(&config.tracing, metrics.tracing.clone())?;
        let (upstream, probe) = Box::pin(probed(&config, &given, &metrics)).await?;
        let discovery = Discovery::start(upstream.clone(), readers(config.authentication.mode));
        let registry = registry(&config, &given, (&upstream, &discovery), (&metrics, &tracer));
        let Identities { access, upstreams, permissions } =
            gateway::build(&config, &upstream, &registry, &metrics).await?;
        let front_proxy = upstreams.front_proxy.clone();
        let audit = AuditLog::start(&config.audit, metrics.auth.audit.clone())?;
        let (flow_control, following) = flow_control(&config, &registry, &metrics);
        let held = HeldBytes::new(config.server.response_bytes_max);
        let gzip_bytes_max = config.cache.gzip_bytes_max;
        let compressor = Compressor::new(gzip_bytes_max, held.clone(), metrics.gzip.clone());
        let overload = Overload::new(config.flow_control.mode, metrics.overload.clone());
        let shadow = shadow(&config, &metrics);
        let services = Services {
            slow_request: config.logging.slow_request,
            registry: registry.clone(),
            upstreams,
            access,
            compressor: compressor.clone(),
            held,
            overload: Arc::clone(&overload),
            audit: audit.clone(),
            flow_control: flow_control.clone(),
            shadow: shadow.clone(),
            tracer,
            metrics: metrics.server.clone(),
            seams: given.seams.clone(),
        };
        let server = Server::bind(&config.server, services, sockets)?;
        let listeners = server.local_addresses();
        let expiries = certificates::expiries(&metrics.registry, &upstream, front_proxy, &server)?;
        let mut endpoints = JoinSet::new();
        let [started, stopping, ended] = [(); 3].map(|()| CancellationToken::new());
        let checks = checks((&probe, &discovery, &registry), [&started, &stopping]);
        let sources = (flow_control.clone(), registry.clone(), shadow.clone());
        let details = details(&config, sources, &metrics, &server, expiries.clone());
        let running = Arc::new(ArcSwap::from_pointee(config.clone()));
        let admin = bind_admin(&config, checks, metrics.registry.clone(), details).await?;
        let admin = admin.map(|(admin, address)| {
            show(&admin, given, &running, server.connections(), (registry.clone(), &metrics));
            run_admin(admin, address, ended.clone())
        });
        registry.start_warm();
        if let Some(flow_control) = flow_control.clone() {
            endpoints.spawn(flow_control.run_limits(upstream.clone()));
        }
        let measuring = measure(overload, &registry, &compressor, flow_control);
        endpoints.spawn(monitor::run(upstream.clone(), config.upstream.endpoints.clone(), lookup));
        endpoints.spawn(certificates::run(expiries, metrics.events.clone()));
        let served = (upstream, &registry);
        let announcement = Announcement::new(&probe, served, permissions, &running, &listeners);
        let probe = tokio::spawn(probe.run());
        Ok(Self {
            server,
            compressor,
            listeners,
            mode: config.authentication.mode,
            admin,
            registry,
            probe,
            announcement,
            _endpoints: endpoints,
            _following: following,
            _measuring: measuring,
            audit,
            spans,
            metrics,
            shadow,
            running,
            started,
            stopping,
            ended,
        })
    }

    /// Returns the listeners in the order of the configuration.
    pub fn listeners(&self) -> &[BoundListener] {
        &self.listeners
    }

    /// Returns a listener without a socket, for connections of this process.
    #[cfg(feature = "simulation")]
    pub fn pipe_listener(&self) -> crate::server::PipeListener {
        self.server.pipe_listener()
    }

    /// Returns the address of health checks and metrics.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(|admin| admin.address)
    }

    /// Returns the metrics of this Weir. Cheap to clone.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Returns the comparisons of shadow mode, if Weir runs in it.
    pub fn shadow(&self) -> Option<&Arc<Shadow>> {
        self.shadow.as_ref()
    }

    /// Returns what reads the configuration again. `log` replaces the filter of the log, if that is
    /// this process's.
    pub fn reloader(&self, source: ConfigSource, log: Option<LogFilter>) -> Reloader {
        let (registry, server) = (self.registry.clone(), self.server.reload());
        let parts = ReloadParts { registry, server, log };
        Reloader::new(source, parts, Arc::clone(&self.running), self.metrics.reload.clone())
    }

    /// Writes a kubeconfig for the first TLS listener, or else the first plain one.
    pub fn write_kubeconfig(&self, path: &Path) -> Result<()> {
        let text = kubeconfig::render(&self.listeners, self.mode)?;
        kubeconfig::write(path, &text)
            .with_context(|| format!("cannot write the kubeconfig {}", path.display()))?;
        tracing::info!(file = %path.display(), "kubeconfig for clients written");
        Ok(())
    }

    /// Serves until `stop` is cancelled and for the configured delay after it, then drains within
    /// the configured deadline. Returns when everything has ended.
    pub async fn run(self, stop: CancellationToken) {
        let Self { server, compressor, admin, registry, probe, running, .. } = self;
        let Self { started, stopping, ended, audit, spans, metrics, announcement, .. } = self;
        started.cancel();
        let draining = CancellationToken::new();
        let stopped = async {
            stop.cancelled().await;
            let delay = running.load().server.shutdown_delay;
            metrics.events.notable(EventKind::Stop, "", "Weir stops.", |_| {
                tracing::info!(?delay, "stopping");
            });
            stopping.cancel();
            tokio::time::sleep(delay).await;
            draining.cancel();
            std::future::pending::<Infallible>().await
        };
        tokio::select! {
            // It ends only when cancelled; if it ever ends by itself, the process must not
            // linger.
            () = server.serve(draining.clone()) => {}
            never = stopped => match never {},
            never = compressor.report_size() => match never {},
            never = announcement.run() => match never {},
        }
        if !draining.is_cancelled() {
            tracing::error!("the server ended by itself");
        }
        registry.shutdown().await;
        let audited = OptionFuture::from(audit.as_ref().map(|audit| audit.close()));
        tokio::join!(audited, OptionFuture::from(spans.map(SpanExport::close)));
        probe.abort();
        ended.cancel();
        if let Some(admin) = admin
            && let Err(error) = admin.task.await
        {
            tracing::error!(%error, "the admin listener failed");
        }
        tracing::info!("stopped");
    }
}

/// In a sidecar, all clients read with Weir's own identity.
fn readers(mode: Mode) -> Readers {
    match mode {
        Mode::Sidecar => Readers::One,
        Mode::Gateway => Readers::Many,
    }
}

/// Starts to measure this process's overload. The simulation has one thread and its own time, so
/// that there is nothing to measure.
fn measure(
    overload: Arc<Overload>,
    registry: &Registry,
    compressor: &Compressor,
    flow_control: Option<Arc<FlowControl>>,
) -> JoinSet<Infallible> {
    let (registry, compressor) = (registry.clone(), compressor.clone());
    let measured = Measured { overload, registry, compressor, flow_control };
    let mut measuring = JoinSet::new();
    if cfg!(not(feature = "simulation")) {
        measuring.spawn(measured.run(Limits::from_current_process()));
    }
    measuring
}

/// Binds the admin listener, and its Unix socket, as far as the configuration wants them.
async fn bind_admin(
    config: &Config,
    checks: Checks,
    registry: prometheus::Registry,
    details: Option<Details>,
) -> Result<Option<(Admin, SocketAddr)>> {
    let Some(address) = config.admin.listen else { return Ok(None) };
    let bound = Admin::bind(address, checks, registry, details).await;
    let mut admin = bound.with_context(|| format!("cannot listen on {address} (admin)"))?;
    if let Some(path) = &config.admin.socket {
        admin.bind_socket(path).context("admin.socket")?;
    }
    Ok(Some((admin, address)))
}

/// Runs the admin listener, which was bound to `address`, until `ended` is cancelled.
fn run_admin(admin: Admin, address: SocketAddr, ended: CancellationToken) -> RunningAdmin {
    let address = admin.local_address().unwrap_or(address);
    tracing::info!(%address, "admin listening");
    RunningAdmin { address, task: tokio::spawn(admin.run(ended)) }
}

/// Starts flow control. A gateway follows the cluster's FlowSchemas, unless it is off. A sidecar
/// has one user, whose requests need no class; its seats are limited in any mode.
fn flow_control(
    config: &Config,
    registry: &Registry,
    metrics: &Metrics,
) -> (Option<Arc<FlowControl>>, Option<DropGuard>) {
    let by_user = config.authentication.mode == Mode::Gateway;
    if config.flow_control.mode == FlowControlMode::Off && by_user {
        return (None, None);
    }
    let flow_control = FlowControl::new(by_user, &config.flow_control, metrics.flow.clone());
    let following = by_user.then(|| follow_flow_control(&flow_control, registry));
    (Some(flow_control), following)
}

/// Returns the comparison of reads with the caches, if the configuration asks for it.
fn shadow(config: &Config, metrics: &Metrics) -> Option<Arc<Shadow>> {
    (config.shadow.mode == ShadowMode::Compare)
        .then(|| Shadow::new(&config.shadow, metrics.shadow.clone()))
}

/// Returns the upstream, and what asks it whether it is there, once that has asked.
async fn probed(config: &Config, given: &Given, metrics: &Metrics) -> Result<(Upstream, Probe)> {
    let (dial, figures) = (given.seams.dial.clone(), metrics.upstream.clone());
    let upstream = Upstream::with_dial(&config.upstream, dial, figures).await?;
    let probe = Probe::new(upstream.clone(), metrics.events.clone());
    Box::pin(probe.first(FIRST_PROBE_TIMEOUT)).await?;
    Ok((upstream, probe))
}

/// Returns the caches.
fn registry(
    config: &Config,
    given: &Given,
    (upstream, discovery): (&Upstream, &Discovery),
    (metrics, tracer): (&Metrics, &Tracer),
) -> Registry {
    let metrics = metrics.cache.clone().with_tracer(tracer);
    let config = Arc::new(config.cache.clone());
    Registry::new(config, given.seams.clone(), upstream.clone(), discovery.clone(), metrics)
}

/// Returns what the admin listener shows to local clients; `None` if it shows nothing to them.
fn details(
    config: &Config,
    (flow_control, registry, shadow): (Option<Arc<FlowControl>>, Registry, Option<Arc<Shadow>>),
    metrics: &Metrics,
    server: &Server,
    expiries: Expiries,
) -> Option<Details> {
    let figures = metrics.clone();
    (config.admin.detail == AdminDetail::Local).then(|| Details {
        version: build_info::VERSION,
        figures: Box::new(move || figures.figures(&expiries)),
        clients: flow_control.filter(|flow| flow.charges()),
        caches: registry,
        events: metrics.events.clone(),
        connections: server.connections(),
        shadow,
    })
}

/// How long an upstream that does not answer delays the start.
const FIRST_PROBE_TIMEOUT: Duration = Duration::from_secs(3);

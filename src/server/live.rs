//! The settings of the server that a reload replaces (`docs/decisions/configuration.md`).
//!
//! They are replaced as a whole. Invariant: each use sees one set of them. No locks.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::config::{CertificateConfig, Config, ListenerConfig, Mode, ServerConfig};
use crate::server::flow_control::FlowControl;
use crate::server::forward::list_times::ListTimes;
use crate::server::request::host::HostPolicy;
use crate::telemetry::trace::Tracer;

pub(crate) type LiveSettings = ArcSwap<Settings>;

#[derive(Debug)]
pub(crate) struct Settings {
    /// The log has a line for each request that takes longer; `None` for no line.
    pub(crate) slow_request: Option<Duration>,
    pub(crate) shutdown_timeout: Duration,
    pub(crate) hosts: HostPolicy,
}

impl Settings {
    pub(crate) fn new(config: &ServerConfig, slow_request: Option<Duration>, mode: Mode) -> Self {
        Self {
            slow_request,
            shutdown_timeout: config.shutdown_timeout,
            hosts: match mode {
                Mode::Sidecar => HostPolicy::new(host_names(config)),
                Mode::Gateway => HostPolicy::any(),
            },
        }
    }
}

/// Replaces the settings of a running server.
#[derive(Clone)]
pub struct ServerReload {
    pub(super) live: Arc<LiveSettings>,
    pub(super) list_times: Arc<ListTimes>,
    pub(super) flow_control: Option<Arc<FlowControl>>,
    pub(super) tracer: Tracer,
}

impl ServerReload {
    /// Applies what can change at run time.
    pub fn apply(&self, config: &Config) {
        let slow_request = config.logging.slow_request;
        let mode = config.authentication.mode;
        let settings = Settings::new(&config.server, slow_request, mode);
        self.live.store(Arc::new(settings));
        self.list_times.set(config.cache.consistent_lists);
        self.tracer.set_sampling_rate(config.tracing.sampling_rate_per_million);
        if let Some(flow_control) = &self.flow_control {
            flow_control.set_rules(config.flow_control.compiled_rules());
        }
    }
}

/// Returns the host names that clients may use besides the loopback ones.
fn host_names(config: &ServerConfig) -> impl Iterator<Item = &str> {
    let generated = config.listeners.iter().filter_map(|listener| match listener {
        ListenerConfig::Tls { certificate: CertificateConfig::Generated { names }, .. } => {
            Some(names)
        }
        _ => None,
    });
    generated.flatten().chain(&config.allowed_hosts).map(String::as_str)
}

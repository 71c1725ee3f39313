//! Validates the file, with the flags applied, and returns the [`Config`] that the components use.
//!
//! All values are checked and all problems reported together, each with the path of its field, so
//! that an operator does not need three attempts to find three mistakes.

mod audit;
mod cache;
mod flow_control;
mod identity;
mod problems;
mod server;
mod tracing;
mod upstream;

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::config::defaults::{ADMIN_DETAIL, READY_WHEN_AWAY, SHADOW};
use crate::config::file::{ConfigFile, LoggingSection, ShadowSection};
use crate::config::listen::{ListenAddress, parse_address};
use crate::config::resolve::problems::Collector;
pub use crate::config::resolve::problems::{Problem, Problems};
use crate::config::resolve::server::{generated, listener_of};
use crate::config::{
    Config, ListenerConfig, LogFormat, LoggingConfig, ProxyNetworks, ShadowConfig, ShadowMode,
    UpstreamConfig,
};

/// The values of flags; each replaces the file's.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// `--kubeconfig`.
    pub kubeconfig: Option<PathBuf>,
    /// `--context`.
    pub context: Option<String>,
    /// `--listen`; replaces all listeners if not empty. TLS ones take the certificate of the file's
    /// first TLS listener.
    pub listen: Vec<ListenAddress>,
    /// `--admin-listen`.
    pub admin_listen: Option<AdminListen>,
    /// `--log-format`.
    pub log_format: Option<LogFormat>,
    /// `--log-filter`.
    pub log_filter: Option<String>,
    /// The mode of `weir shadow`.
    pub shadow: Option<ShadowMode>,
    /// The limit of this process's memory in bytes, by which the byte budgets are reduced that the
    /// file does not set. No flag has it.
    pub memory_limit: Option<u64>,
}

/// An address for the admin listener, or `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdminListen(pub Option<SocketAddr>);

impl FromStr for AdminListen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" { Ok(Self(None)) } else { parse_address(text).map(|a| Self(Some(a))) }
    }
}

impl Config {
    /// Validates a file after the flags replaced its values.
    pub fn resolve(file: ConfigFile, overrides: Overrides) -> Result<Self, Problems> {
        let mut problems = Collector::default();
        let mode = identity::mode(&file.authentication, &mut problems);
        let http2 = file.upstream.http2.unwrap_or(UpstreamConfig::default().http2);
        let mut config = Self {
            server: server::server(file.server, mode, overrides.memory_limit, &mut problems),
            admin_listen: Self::default().admin_listen,
            admin_socket: file.admin.socket,
            admin_detail: ADMIN_DETAIL,
            ready_when_away: file.admin.ready_when_away.unwrap_or(READY_WHEN_AWAY),
            upstream: upstream::upstream(file.upstream, &mut problems),
            cache: cache::cache(file.cache, overrides.memory_limit, &mut problems),
            authentication: identity::authentication(file.authentication, mode, &mut problems),
            authorization: identity::authorization(file.authorization, mode, &mut problems),
            audit: audit::audit(file.audit, mode, &mut problems),
            flow_control: flow_control::flow_control(file.flow_control, mode, http2, &mut problems),
            shadow: shadow(file.shadow, &mut problems),
            tracing: tracing::tracing(file.tracing, &mut problems),
            logging: LoggingConfig::default(),
        };
        logging(file.logging, &mut config, &mut problems);
        problems.parsed("admin.detail", file.admin.detail, &mut config.admin_detail);
        problems.take(
            "admin.listen",
            file.admin.listen,
            |text| text.parse(),
            |AdminListen(a)| {
                config.admin_listen = a;
            },
        );
        config.apply(overrides, &mut problems);
        check_distinct(&config, &mut problems);
        check_filter(&config.logging.filter, &mut problems);
        if problems.0.is_empty() { Ok(config) } else { Err(Problems(problems.0)) }
    }

    fn apply(&mut self, overrides: Overrides, problems: &mut Collector) {
        if !overrides.listen.is_empty() {
            let certificate = self.server.listeners.iter().find_map(|listener| match listener {
                ListenerConfig::Tls { certificate, .. } => Some(certificate.clone()),
                ListenerConfig::Plain { .. } | ListenerConfig::Unix { .. } => None,
            });
            let certificate = certificate.unwrap_or_else(generated);
            let mode = self.authentication.mode;
            self.server.listeners = problems
                .list("--listen", overrides.listen, |address| address.check(mode))
                .into_iter()
                .map(|address| listener_of(address, certificate.clone(), ProxyNetworks::default()))
                .collect();
        }
        if let Some(AdminListen(address)) = overrides.admin_listen {
            self.admin_listen = address;
        }
        self.upstream.kubeconfig = overrides.kubeconfig.or(self.upstream.kubeconfig.take());
        self.upstream.context = overrides.context.or(self.upstream.context.take());
        self.shadow.mode = overrides.shadow.unwrap_or(self.shadow.mode);
        self.logging.format = overrides.log_format.unwrap_or(self.logging.format);
        if let Some(filter) = overrides.log_filter {
            self.logging.filter = filter;
        }
    }
}

fn shadow(section: ShadowSection, problems: &mut Collector) -> ShadowConfig {
    let mut config = SHADOW;
    problems.parsed("shadow.mode", section.mode, &mut config.mode);
    problems.parsed("shadow.cpuShare", section.cpu_share, &mut config.cpu_share);
    config
}

fn logging(section: LoggingSection, config: &mut Config, problems: &mut Collector) {
    problems.parsed("logging.format", section.format, &mut config.logging.format);
    if let Some(filter) = section.filter {
        config.logging.filter = filter;
    }
    let slow = &mut config.server.slow_request;
    problems.duration_or_never("logging.slowRequest", section.slow_request, SLOW_REQUEST, slow);
}

/// A lower limit would log most requests; only requests such as reads of logs take longer than the
/// upper one.
const SLOW_REQUEST: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(600);

/// Reports listeners with the same address. Port 0 is a different port each time.
fn check_distinct(config: &Config, problems: &mut Collector) {
    let mut seen: Vec<ListenAddress> = Vec::new();
    for (index, listener) in config.server.listeners.iter().enumerate() {
        let address = listener.address();
        if seen.iter().any(|other| other.clashes_with(&address)) {
            let path = format!("server.listeners[{index}].listen");
            problems.add(path, format!("{address} is taken by another listener"));
        }
        seen.push(address);
    }
    if let Some(admin) = config.admin_listen
        && seen.iter().any(|other| other.clashes_with(&ListenAddress::Plain(admin)))
    {
        problems.add("admin.listen", format!("{admin} is taken by a listener of the server"));
    }
}

fn check_filter(filter: &str, problems: &mut Collector) {
    if let Err(error) = tracing_subscriber::EnvFilter::try_new(filter) {
        problems.add("logging.filter", format!("cannot be parsed: {error}"));
    }
}

impl ListenAddress {
    fn clashes_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Unix(one), Self::Unix(other)) => one == other,
            (Self::Unix(_), _) | (_, Self::Unix(_)) => false,
            (Self::Tls(one) | Self::Plain(one), Self::Tls(other) | Self::Plain(other)) => {
                one.port() != 0 && one == other
            }
        }
    }
}

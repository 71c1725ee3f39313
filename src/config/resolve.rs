//! From the file as written, with the flags laid over it, to the [`Config`] that the parts use.
//!
//! Every value is looked at, and all that is wrong is reported together, each with the path of its field: somebody who
//! rolls out a configuration should not learn of three mistakes in three attempts.

mod audit;
mod cache;
mod collector;
mod identity;
mod server;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use crate::config::file::{ConfigFile, LoggingSection, UpstreamSection};
use crate::config::listen::{ListenAddress, parse_address};
use crate::config::resolve::collector::Collector;
use crate::config::resolve::server::{generated, listener_of};
use crate::config::words::upstream_url;
use crate::config::{Config, ListenerConfig, LogFormat, LoggingConfig, UpstreamConfig};

/// What flags say; each replaces what the file says.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// `--kubeconfig`.
    pub kubeconfig: Option<PathBuf>,
    /// `--context`.
    pub context: Option<String>,
    /// `--listen`; replaces all listeners if not empty. TLS ones take the certificate of the file's first TLS listener.
    pub listen: Vec<ListenAddress>,
    /// `--admin-listen`.
    pub admin_listen: Option<AdminListen>,
    /// `--log-format`.
    pub log_format: Option<LogFormat>,
    /// `--log-filter`.
    pub log_filter: Option<String>,
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

/// Everything that is wrong with a configuration; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The field, such as `server.listeners[0].listen`.
    pub path: String,
    /// What is wrong with it.
    pub message: String,
}

impl std::error::Error for Problems {}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{}: {}", problem.path, problem.message)?;
        }
        Ok(())
    }
}

impl Config {
    /// Judges a file with the flags laid over it.
    pub fn resolve(file: ConfigFile, overrides: Overrides) -> Result<Self, Problems> {
        let mut problems = Collector::default();
        let mode = identity::mode(&file.authentication, &mut problems);
        let mut config = Self {
            server: server::server(file.server, mode, &mut problems),
            admin_listen: Self::default().admin_listen,
            upstream: upstream(file.upstream, &mut problems),
            cache: cache::cache(file.cache, &mut problems),
            authentication: identity::authentication(file.authentication, mode, &mut problems),
            authorization: identity::authorization(file.authorization, mode, &mut problems),
            audit: audit::audit(file.audit, mode, &mut problems),
            logging: logging(file.logging, &mut problems),
        };
        problems.take(
            "admin.listen",
            file.admin.listen,
            |text| text.parse(),
            |AdminListen(a)| {
                config.admin_listen = a;
            },
        );
        config.lay_over(overrides, &mut problems);
        check_distinct(&config, &mut problems);
        check_filter(&config.logging.filter, &mut problems);
        if problems.0.is_empty() { Ok(config) } else { Err(Problems(problems.0)) }
    }

    fn lay_over(&mut self, overrides: Overrides, problems: &mut Collector) {
        if !overrides.listen.is_empty() {
            let certificate = self.server.listeners.iter().find_map(|listener| match listener {
                ListenerConfig::Tls { certificate, .. } => Some(certificate.clone()),
                ListenerConfig::Plain { .. } | ListenerConfig::Unix { .. } => None,
            });
            let certificate = certificate.unwrap_or_else(generated);
            let mode = self.authentication.mode;
            self.server.listeners = problems
                .list("--listen", overrides.listen, |address| address.admit(mode))
                .into_iter()
                .map(|address| listener_of(address, certificate.clone()))
                .collect();
        }
        if let Some(AdminListen(address)) = overrides.admin_listen {
            self.admin_listen = address;
        }
        self.upstream.kubeconfig = overrides.kubeconfig.or(self.upstream.kubeconfig.take());
        self.upstream.context = overrides.context.or(self.upstream.context.take());
        self.logging.format = overrides.log_format.unwrap_or(self.logging.format);
        if let Some(filter) = overrides.log_filter {
            self.logging.filter = filter;
        }
    }
}

fn upstream(section: UpstreamSection, problems: &mut Collector) -> UpstreamConfig {
    let mut config = UpstreamConfig {
        kubeconfig: section.kubeconfig,
        context: section.context,
        ..UpstreamConfig::default()
    };
    if let Some(addresses) = section.addresses {
        if addresses.len() > 1 {
            problems.add("upstream.addresses", "only one address is used so far");
        }
        config.addresses = problems.list("upstream.addresses", addresses, upstream_url);
    }
    problems.duration(
        "upstream.connectTimeout",
        section.connect_timeout,
        &mut config.connect_timeout,
    );
    config.http2 = section.http2.unwrap_or(config.http2);
    config
}

fn logging(section: LoggingSection, problems: &mut Collector) -> LoggingConfig {
    let mut config = LoggingConfig::default();
    problems.take(
        "logging.format",
        section.format,
        |text| text.parse(),
        |format| {
            config.format = format;
        },
    );
    config.filter = section.filter.unwrap_or(config.filter);
    config
}

/// No two listeners on one address. Port 0 means a port of its own each time.
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
        problems.add("logging.filter", format!("cannot be read: {error}"));
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

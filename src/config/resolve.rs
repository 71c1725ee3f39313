//! From the file as written, with the flags laid over it, to the [`Config`] that the parts use.
//!
//! Every value is looked at, and all that is wrong is reported together, each with the path of its field: somebody who
//! rolls out a configuration should not learn of three mistakes in three attempts.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::config::file::{
    CacheSection, CertificateSection, ConfigFile, ListenerSection, LoggingSection, ServerSection,
    UpstreamSection,
};
use crate::config::listen::{ListenAddress, parse_address};
use crate::config::units::{parse_bytes, parse_duration};
use crate::config::words::{host_name, upstream_url, warm_resource};
use crate::config::{
    CacheConfig, CertificateConfig, Config, ListenerConfig, LogFormat, LoggingConfig,
    ResourcePattern, ServerConfig, UpstreamConfig,
};

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
        let mut config = Self {
            server: server(file.server, &mut problems),
            admin_listen: Self::default().admin_listen,
            upstream: upstream(file.upstream, &mut problems),
            cache: cache(file.cache, &mut problems),
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
        config.lay_over(overrides);
        check_distinct(&config, &mut problems);
        check_filter(&config.logging.filter, &mut problems);
        if problems.0.is_empty() { Ok(config) } else { Err(Problems(problems.0)) }
    }

    fn lay_over(&mut self, overrides: Overrides) {
        if !overrides.listen.is_empty() {
            let certificate = self.server.listeners.iter().find_map(|listener| match listener {
                ListenerConfig::Tls { certificate, .. } => Some(certificate.clone()),
                ListenerConfig::Plain { .. } | ListenerConfig::Unix { .. } => None,
            });
            let certificate = certificate.unwrap_or_else(generated);
            let listeners = overrides.listen.into_iter();
            self.server.listeners =
                listeners.map(|address| listener_of(address, certificate.clone())).collect();
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

#[derive(Default)]
struct Collector(Vec<Problem>);

impl Collector {
    fn add(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.0.push(Problem { path: path.into(), message: message.into() });
    }

    /// Parses a value that is there and hands it on, or notes why it can't be.
    fn take<A, B>(
        &mut self,
        path: &str,
        value: Option<A>,
        parse: impl FnOnce(A) -> Result<B, String>,
        set: impl FnOnce(B),
    ) {
        match value.map(parse) {
            Some(Ok(value)) => set(value),
            Some(Err(message)) => self.add(path, message),
            None => {}
        }
    }

    fn duration(&mut self, path: &str, value: Option<String>, set: &mut Duration) {
        let parse = |text: String| match parse_duration(&text)? {
            Duration::ZERO => Err("must be more than zero".to_owned()),
            duration if duration > DURATION_MAX => Err("must be at most 168h".to_owned()),
            duration => Ok(duration),
        };
        self.take(path, value, parse, |duration| *set = duration);
    }

    fn bytes(&mut self, path: &str, value: Option<String>) -> Option<usize> {
        let parse = |text: String| match parse_bytes(&text)? {
            0 => Err("must be more than zero".to_owned()),
            bytes => Ok(bytes),
        };
        let mut taken = None;
        self.take(path, value, parse, |bytes| taken = Some(bytes));
        taken
    }

    /// Parses every element of a list; what can't be parsed is noted and left out.
    fn list<A, B>(
        &mut self,
        path: &str,
        values: Vec<A>,
        parse: impl Fn(A) -> Result<B, String>,
    ) -> Vec<B> {
        let mut parsed = Vec::with_capacity(values.len());
        for (index, value) in values.into_iter().enumerate() {
            match parse(value) {
                Ok(value) => parsed.push(value),
                Err(message) => self.add(format!("{path}[{index}]"), message),
            }
        }
        parsed
    }
}

fn server(section: ServerSection, problems: &mut Collector) -> ServerConfig {
    let mut config = ServerConfig::default();
    if let Some(listeners) = section.listeners {
        if listeners.is_empty() {
            problems.add("server.listeners", "needs at least one listener");
        }
        config.listeners.clear();
        for (index, section) in listeners.into_iter().enumerate() {
            let path = format!("server.listeners[{index}]");
            config.listeners.extend(listener(&path, section, problems));
        }
    }
    if let Some(hosts) = section.allowed_hosts {
        config.allowed_hosts = problems.list("server.allowedHosts", hosts, host_name);
    }
    config.cache_header = section.cache_header.unwrap_or(config.cache_header);
    for (path, value, set) in [
        ("server.headerReadTimeout", section.header_read_timeout, &mut config.header_read_timeout),
        ("server.freshnessTimeout", section.freshness_timeout, &mut config.freshness_timeout),
        ("server.warmupTimeout", section.warmup_timeout, &mut config.warmup_timeout),
        ("server.shutdownTimeout", section.shutdown_timeout, &mut config.shutdown_timeout),
    ] {
        problems.duration(path, value, set);
    }
    config
}

fn listener(
    path: &str,
    section: ListenerSection,
    problems: &mut Collector,
) -> Option<ListenerConfig> {
    let certificate_path = format!("{path}.certificate");
    let certificate = section.certificate.map(|it| certificate(&certificate_path, it, problems));
    match section.listen.parse::<ListenAddress>() {
        Ok(address) => {
            if certificate.is_some() && !matches!(address, ListenAddress::Tls(_)) {
                problems.add(certificate_path, "only an https:// listener has a certificate");
            }
            Some(listener_of(address, certificate.unwrap_or_else(generated)))
        }
        Err(message) => {
            problems.add(format!("{path}.listen"), message);
            None
        }
    }
}

fn listener_of(address: ListenAddress, certificate: CertificateConfig) -> ListenerConfig {
    match address {
        ListenAddress::Tls(address) => ListenerConfig::Tls { address, certificate },
        ListenAddress::Plain(address) => ListenerConfig::Plain { address },
        ListenAddress::Unix(path) => ListenerConfig::Unix { path },
    }
}

fn certificate(
    path: &str,
    section: CertificateSection,
    problems: &mut Collector,
) -> CertificateConfig {
    let CertificateSection { certificate_file, private_key_file, ca_file, generated_names } =
        section;
    match (certificate_file, private_key_file) {
        (Some(certificate), Some(key)) => {
            if generated_names.is_some() {
                problems.add(
                    format!("{path}.generatedNames"),
                    "belongs to a generated certificate; this one comes from files",
                );
            }
            CertificateConfig::Files { certificate, key, ca: ca_file }
        }
        (None, None) => {
            if ca_file.is_some() {
                problems.add(
                    format!("{path}.caFile"),
                    "needs certificateFile and privateKeyFile; a generated certificate has its own CA",
                );
            }
            let names = generated_names.unwrap_or_default();
            let names = problems.list(&format!("{path}.generatedNames"), names, host_name);
            CertificateConfig::Generated { names }
        }
        (Some(_), None) => {
            problems.add(format!("{path}.privateKeyFile"), "is missing beside certificateFile");
            generated()
        }
        (None, Some(_)) => {
            problems.add(format!("{path}.certificateFile"), "is missing beside privateKeyFile");
            generated()
        }
    }
}

fn generated() -> CertificateConfig {
    CertificateConfig::Generated { names: Vec::new() }
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

fn cache(section: CacheSection, problems: &mut Collector) -> CacheConfig {
    let mut config = CacheConfig::default();
    let pattern = |text: String| text.parse::<ResourcePattern>();
    if let Some(include) = section.include {
        config.include = problems.list("cache.include", include, pattern);
    }
    if let Some(exclude) = section.exclude {
        config.exclude = problems.list("cache.exclude", exclude, pattern);
    }
    if let Some(warm) = section.warm {
        config.warm = problems.list("cache.warm", warm, |text| warm_resource(&text));
    }
    for (index, gvr) in config.warm.iter().enumerate() {
        let path = || format!("cache.warm[{index}]");
        if config.exclude.iter().any(|pattern| pattern.matches(gvr)) {
            problems.add(path(), format!("{gvr} is excluded by cache.exclude"));
        } else if !config.include.is_empty() && !config.include.iter().any(|it| it.matches(gvr)) {
            problems.add(path(), format!("{gvr} is not among cache.include"));
        }
    }
    problems.duration("cache.idleTimeout", section.idle_timeout, &mut config.idle_timeout);
    budgets(
        problems.bytes("cache.totalBytesMax", section.total_bytes_max),
        problems.bytes("cache.resourceBytesMax", section.resource_bytes_max),
        problems.bytes("cache.historyBytesMax", section.history_bytes_max),
        &mut config,
        problems,
    );
    problems.take(
        "cache.onRelist",
        section.on_relist,
        |text| text.parse(),
        |on_relist| config.on_relist = on_relist,
    );
    config.forward_budget = section.forward_budget.unwrap_or(config.forward_budget);
    config.page_size = section.page_size.unwrap_or(config.page_size);
    for (path, zero) in [
        ("cache.forwardBudget", config.forward_budget == 0),
        ("cache.pageSize", config.page_size == 0),
    ] {
        if zero {
            problems.add(path, "must be more than zero");
        }
    }
    config
}

/// Each budget lies within the next larger one: a default shrinks to fit what was set, two that were set must agree.
fn budgets(
    total: Option<usize>,
    resource: Option<usize>,
    history: Option<usize>,
    config: &mut CacheConfig,
    problems: &mut Collector,
) {
    let defaults = CacheConfig::default();
    let least = resource.max(history).unwrap_or(0);
    let total_bytes = total.unwrap_or_else(|| defaults.total_bytes_max.max(least));
    let resource_bytes = resource
        .unwrap_or_else(|| defaults.resource_bytes_max.max(history.unwrap_or(0)).min(total_bytes));
    let history_bytes = history.unwrap_or_else(|| defaults.history_bytes_max.min(resource_bytes));
    if resource_bytes > total_bytes {
        problems.add("cache.resourceBytesMax", "must not be more than cache.totalBytesMax");
    }
    if history_bytes > resource_bytes {
        problems.add("cache.historyBytesMax", "must not be more than cache.resourceBytesMax");
    }
    config.total_bytes_max = total_bytes;
    config.resource_bytes_max = resource_bytes;
    config.history_bytes_max = history_bytes;
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

/// A week: what is longer is a slip of the pen, and would overflow sums of times.
const DURATION_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

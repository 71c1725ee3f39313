//! Reads the file, with the flags applied, into the [`Config`] that the components use, and checks
//! what settings mean together. All problems are reported at once, in the order of the file.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use crate::config::file::ConfigFile;
use crate::config::flow_control::GATEWAY_FLOW_CONTROL;
use crate::config::identity::DENY_TTL;
use crate::config::kinds::read_section;
use crate::config::listen::{ListenAddress, parse_address};
use crate::config::reader::Reader;
pub use crate::config::reader::{Problem, Problems};
use crate::config::scalars::Words;
use crate::config::server::{
    CONNECTIONS_FACTOR, GATEWAY_SHUTDOWN_DELAY, GATEWAY_SHUTDOWN_TIMEOUT, WATCHES_FACTOR,
};
use crate::config::{
    CertificateConfig, Config, GATEWAY_ONLY, ListenerConfig, LogFormat, Mode, ProxyNetworks,
    ShadowMode,
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
    /// Returns what an empty file means in a mode, and with this much memory.
    pub fn default_for(mode: Mode, memory_limit: Option<u64>) -> Self {
        let mut config = Self::default();
        config.authentication.mode = mode;
        if mode == Mode::Gateway {
            config.server.shutdown_delay = GATEWAY_SHUTDOWN_DELAY;
            config.server.shutdown_timeout = GATEWAY_SHUTDOWN_TIMEOUT;
            config.flow_control.mode = GATEWAY_FLOW_CONTROL;
        }
        if let Some(limit) = memory_limit {
            config.fit_memory(limit);
        }
        config
    }

    /// Validates a file after the flags replaced its values.
    pub fn resolve(file: ConfigFile, overrides: Overrides) -> Result<Self, Problems> {
        let ConfigFile { root } = file;
        let mode = root.get("authentication.mode").and_then(|node| Mode::from_word(node.text()?));
        let mode = mode.unwrap_or_default();
        let mut config = Self::default_for(mode, overrides.memory_limit);
        let mut reader = Reader::new(&root, mode == Mode::Gateway);
        read_section(&mut config, &root, &mut reader);
        reader.end_reading();
        config.derive(&mut reader);
        config.check(&mut reader);
        config.apply(overrides, &mut reader);
        config.check_addresses(&mut reader);
        let problems = reader.finish();
        if problems.is_empty() { Ok(config) } else { Err(Problems(problems)) }
    }

    /// Sets what follows from settings.
    fn derive(&mut self, reader: &mut Reader<'_>) {
        self.cache.fit_budgets(reader);
        self.authorization.deny_ttl = self.authorization.allow_ttl.min(DENY_TTL);
        let connections = self.server.connections_per_address_max;
        self.server.connections_per_user_max = connections.saturating_mul(CONNECTIONS_FACTOR);
        self.server.watches_per_user_max = connections.saturating_mul(WATCHES_FACTOR);
    }

    /// Refuses values that contradict one another.
    fn check(&mut self, reader: &mut Reader<'_>) {
        if self.server.listeners.is_empty() && reader.count() == 0 {
            reader.refuse("server.listeners", "needs at least one listener");
        }
        match Mode::from_gateway_flag(reader.is_gateway) {
            Mode::Sidecar => {
                for path in
                    GATEWAY_ONLY.into_iter().filter(|path| reader.has(path)).collect::<Vec<_>>()
                {
                    let text = "is for authentication.mode gateway; in sidecar mode clients are not authenticated";
                    reader.refuse(path, text);
                }
            }
            Mode::Gateway => {
                if !self.server.allowed_hosts.is_empty() {
                    let text = "is for sidecar mode; in gateway mode every Host is accepted";
                    reader.refuse("server.allowedHosts", text);
                }
            }
        }
        if self.authentication.impersonate && self.authentication.front_proxy.is_some() {
            let text = "excludes authentication.frontProxy: a user is asserted in one way only";
            reader.refuse("authentication.impersonate", text);
        }
        self.upstream.endpoints.check(reader);
        self.cache.check_warm(reader);
        self.audit.check(reader);
        self.flow_control.check(self.upstream.http2, reader);
        self.tracing.check(reader);
    }

    fn apply(&mut self, overrides: Overrides, reader: &mut Reader<'_>) {
        if !overrides.listen.is_empty() {
            let certificate = self.server.listeners.iter().find_map(|listener| match listener {
                ListenerConfig::Tls { certificate, .. } => Some(certificate.clone()),
                ListenerConfig::Plain { .. } | ListenerConfig::Unix { .. } => None,
            });
            let certificate =
                certificate.unwrap_or_else(|| CertificateConfig::Generated { names: Vec::new() });
            self.server.listeners.clear();
            for (index, address) in overrides.listen.into_iter().enumerate() {
                match address.check(self.authentication.mode) {
                    Ok(address) => self.server.listeners.push(ListenerConfig::new(
                        address,
                        certificate.clone(),
                        ProxyNetworks::default(),
                    )),
                    Err(message) => reader.refuse(format!("--listen[{index}]"), message),
                }
            }
        }
        if let Some(AdminListen(address)) = overrides.admin_listen {
            self.admin.listen = address;
        }
        self.upstream.kubeconfig = overrides.kubeconfig.or(self.upstream.kubeconfig.take());
        self.upstream.context = overrides.context;
        self.shadow.mode = overrides.shadow.unwrap_or(self.shadow.mode);
        self.logging.format = overrides.log_format.unwrap_or(self.logging.format);
        if let Some(filter) = overrides.log_filter {
            self.logging.filter = filter;
        }
        if let Err(error) = tracing_subscriber::EnvFilter::try_new(&self.logging.filter) {
            reader.refuse("logging.filter", format!("cannot be parsed: {error}"));
        }
    }

    /// Refuses listeners with the same address. Port 0 is a different port each time.
    fn check_addresses(&self, reader: &mut Reader<'_>) {
        let mut seen: Vec<ListenAddress> = Vec::new();
        for (index, listener) in self.server.listeners.iter().enumerate() {
            let address = listener.address();
            if seen.iter().any(|other| other.clashes_with(&address)) {
                let path = format!("server.listeners[{index}].listen");
                reader.refuse(path, format!("{address} is taken by another listener"));
            }
            seen.push(address);
        }
        if let Some(admin) = self.admin.listen
            && seen.iter().any(|other| other.clashes_with(&ListenAddress::Plain(admin)))
        {
            reader.refuse("admin.listen", format!("{admin} is taken by a listener of the server"));
        }
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

//! The configuration: typed, validated, each setting stated once.
//!
//! Each section is a struct made by the macro of `section`: comment, name, type, kind and default
//! of each setting, and whether a running Weir takes it over. [`mod@file`] is the YAML file as it
//! stands; [`resolve`] reads it into a [`Config`], applies the flags, and checks what settings mean
//! together. [`schema`] writes the schema, the reference and config/weir.yaml.

mod audit;
mod cache;
pub mod endpoints;
pub mod file;
mod flow_control;
mod identity;
mod kinds;
pub mod listen;
mod memory;
pub mod network;
mod reader;
pub mod reload;
pub mod resolve;
mod scalars;
pub mod schema;
pub mod seams;
mod section;
mod server;
pub mod shadow;
pub mod tracing;
pub mod units;
mod warnings;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde_json::{Map, Value};

pub use crate::config::audit::{
    AuditBuffer, AuditConfig, AuditLevel, AuditOutput, AuditPolicy, AuditResources, AuditRule,
};
pub use crate::config::cache::{
    CacheConfig, ConsistentLists, OnRelist, ResourcePattern, VerifyMode,
};
pub use crate::config::endpoints::UpstreamConfig;
use crate::config::file::{API_VERSION, KIND};
pub use crate::config::flow_control::{
    FlowControlConfig, FlowControlMode, GATEWAY_FLOW_CONTROL, HTTP1_SEATS_MAX, SEATS_MAX,
    SEATS_PER_SERVER,
};
pub use crate::config::identity::{
    Anonymous, AuthenticationConfig, AuthorizationConfig, FRONT_PROXY_HEADERS, FilteredLists,
    FrontProxyConfig, Mode, RbacConfig, RequestHeaderConfig, TokensConfig,
};
use crate::config::kinds::{Kind, Maybe, Part, Section, Shape};
use crate::config::listen::{loopback, parse_address};
use crate::config::scalars::{Plain, TimeOrNever, Word, Words, expected, words};
use crate::config::section::section;
pub use crate::config::server::{
    CertificateConfig, LISTEN, ListenerConfig, ProxyNetworks, ServerConfig,
};
pub use crate::config::shadow::{Fraction, ShadowConfig, ShadowMode};
use crate::config::tracing::TracingConfig;

section! {
    /// The whole configuration, validated.
    pub struct Config {
        /// Listeners, and limits of clients.
        restart server: ServerConfig = ServerConfig::default(), Part;

        /// Health (/livez, /readyz) and metrics (/metrics). This listener serves no data of the
        /// cluster.
        restart admin: AdminConfig = AdminConfig::default(), Part;

        /// The API server.
        restart upstream: UpstreamConfig = UpstreamConfig::default(), Part;

        /// Caches.
        restart cache: CacheConfig = CacheConfig::default(), Part;

        /// The identity of clients' requests. sidecar: Weir's own for every client. gateway: each
        /// client's own, with the settings of this section and of authorization and audit.
        restart authentication: AuthenticationConfig = AuthenticationConfig::default(), Part;

        /// What clients may do (gateway).
        restart authorization: AuthorizationConfig = AuthorizationConfig::default(), Part;

        /// The API server's audit log does not contain the requests that Weir answers itself. Weir
        /// logs them here, as one audit.k8s.io/v1 Event on each line, at level Metadata (gateway).
        restart audit: AuditConfig = AuditConfig::default(), Part;

        /// The costs of clients (docs/how-to/costly-client.md), and the queues of their requests.
        restart flow_control: FlowControlConfig = FlowControlConfig::default(), Part;

        /// Shadow mode (docs/how-to/adoption.md): the API server's answers are compared, byte for
        /// byte, with those that the caches would have given. The results are at /api/shadow of the
        /// admin listener. `weir shadow` is `weir serve` in this mode.
        restart shadow: ShadowConfig = ShadowConfig::default(), Part;

        /// The export of spans (docs/how-to/tracing.md). Without an endpoint there are none, and
        /// the trace context of clients passes to the API server unchanged in any case.
        restart tracing: TracingConfig = TracingConfig::default(), Part;

        /// The log, on standard error.
        restart logging: LoggingConfig = LoggingConfig::default(), Part;
    }
}

section! {
    /// Health and metrics.
    pub struct AdminConfig {
        /// ADDRESS:PORT of health and metrics, or none. Any address is accepted.
        // The port after that of the listener, which is easy to guess.
        restart listen: Option<SocketAddr> = Some(ADMIN_LISTEN), AddressOrNone;

        /// A Unix socket beside it, for weir top, weir doctor and weir support-bundle on this host.
        /// Only root and Weir's own user may connect. Its clients may see details.
        restart socket: Option<PathBuf> = None, Maybe(Plain);

        /// The clients that may see details, which name users: the live page and /api/. local:
        /// those on 127.0.0.1 and ::1, such as kubectl port-forward, with localhost as the Host.
        /// none: nobody. With hostNetwork every process of the node is local.
        // The login is the cluster's RBAC on `kubectl port-forward`.
        restart detail: AdminDetail = AdminDetail::Local, Word;
    }
}

section! {
    /// Format and filter of the log.
    pub struct LoggingConfig {
        /// text, json, or kubernetes (JSON with the fields of Kubernetes' components).
        // Text, for people at a terminal; log collectors need `json`.
        restart format: LogFormat = LogFormat::Text, Word;

        /// In the syntax of Rust's tracing: info, weir=debug, info,weir::upstream=debug.
        // Logs start, stop, failures and recoveries, and nothing for each request.
        live filter: String = "info".to_owned(), Plain;

        /// A line for each request that takes longer (1ms to 10m) until the head of its response,
        /// with the times of its stages; never for none.
        live slow_request: Option<Duration> = None,
            TimeOrNever(Duration::from_millis(1), Duration::from_secs(600));
    }
}

/// ADDRESS:PORT, or `none`.
struct AddressOrNone;

impl Kind<Option<SocketAddr>> for AddressOrNone {
    fn shape(&self) -> Option<Shape> {
        Some(Shape::Text)
    }

    fn parse(&self, scalar: &Value) -> Result<Option<SocketAddr>, String> {
        match scalar.as_str().unwrap_or_default() {
            "none" => Ok(None),
            text => parse_address(text).map(Some),
        }
    }

    fn write(&self, value: &Option<SocketAddr>) -> Value {
        value.map_or_else(|| "none".to_owned(), |address| address.to_string()).into()
    }
}

impl Config {
    /// Returns the effective configuration as a file: every setting with its value, without those
    /// of a gateway in a sidecar, which would be refused there.
    pub fn to_value(&self) -> Value {
        let mut file = Map::new();
        file.insert("apiVersion".to_owned(), API_VERSION.into());
        file.insert("kind".to_owned(), KIND.into());
        file.extend(self.write());
        let mut file = Value::Object(file);
        if self.authentication.mode == Mode::Sidecar {
            for path in GATEWAY_ONLY {
                let (section, name) = path.split_once('.').unwrap_or(("", path));
                let parent =
                    if section.is_empty() { Some(&mut file) } else { file.get_mut(section) };
                if let Some(fields) = parent.and_then(Value::as_object_mut) {
                    fields.shift_remove(name);
                }
            }
        }
        file
    }

    /// Returns the same as YAML, which `weir check` prints.
    pub fn to_yaml(&self) -> String {
        serde_saphyr::to_string(&self.to_value()).unwrap_or_default()
    }
}

/// The clients that may see the details of the admin listener, which name users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminDetail {
    /// Clients on 127.0.0.1 and ::1, such as `kubectl port-forward`.
    Local,
    /// Nobody.
    None,
}

words!(AdminDetail { Local: "local", None: "none" });

/// How a log line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Text for people.
    Text,
    /// One JSON object on each line.
    Json,
    /// The same, with the fields of Kubernetes' components.
    Kubernetes,
}

words!(LogFormat { Text: "text", Json: "json", Kubernetes: "kubernetes" });

/// Reads the flag `--log-format`.
impl FromStr for LogFormat {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        Self::from_word(word).ok_or_else(|| expected(Self::WORDS, word))
    }
}

/// The settings that have no effect in a sidecar, whose clients are not authenticated. They are
/// refused there, so that no operator relies on them.
const GATEWAY_ONLY: [&str; 8] = [
    "authentication.clientCAFile",
    "authentication.requestHeader",
    "authentication.anonymous",
    "authentication.tokens",
    "authentication.frontProxy",
    "authentication.impersonate",
    "authorization",
    "audit",
];

/// Health and metrics.
pub const ADMIN_LISTEN: SocketAddr = loopback(6441);

/// Plain HTTP for curl and browsers, in `weir demo`: the port of kubectl proxy.
pub const PLAIN_LISTEN: SocketAddr = loopback(8001);

//! The configuration: typed, validated, every default a named constant with its reason ([`defaults`]).
//!
//! The YAML as written is [`mod@file`]; flags are laid over it and the whole is judged once ([`resolve`]), into the [`Config`] that
//! the parts use. [`write`](mod@write) goes the other way, for `weir check`.

pub mod defaults;
pub mod file;
mod identity;
pub mod listen;
pub mod resolve;
pub mod units;
mod words;
pub mod write;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::api::resource::GroupVersionResource;
pub use crate::config::identity::{
    Anonymous, AuditBuffer, AuditConfig, AuditLevel, AuditOutput, AuditResources, AuditRule,
    AuthenticationConfig, AuthorizationConfig, FrontProxyConfig, Mode, RbacConfig,
    RequestHeaderConfig,
};

/// Everything Weir can be told, validated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Where clients come in.
    pub server: ServerConfig,
    /// Where health and metrics are served; `None` for nowhere.
    pub admin_listen: Option<SocketAddr>,
    /// The API server behind.
    pub upstream: UpstreamConfig,
    /// What is cached, and how much.
    pub cache: CacheConfig,
    /// Who clients are.
    pub authentication: AuthenticationConfig,
    /// What they may do.
    pub authorization: AuthorizationConfig,
    /// What is told of the reads answered here.
    pub audit: AuditConfig,
    /// What is logged.
    pub logging: LoggingConfig,
}

/// Where clients come in, and what they may do there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// The listeners; at least one.
    pub listeners: Vec<ListenerConfig>,
    /// Names that a request's Host may carry besides `localhost`, loopback addresses and the listeners' own (DNS
    /// rebinding, design section 9).
    pub allowed_hosts: Vec<String>,
    /// Whether answers carry `X-Weir-Cache`.
    pub cache_header: bool,
    /// How long a request's head may take to arrive.
    pub header_read_timeout: Duration,
    /// How long a freshness wait may last before it ends in forwarding.
    pub freshness_timeout: Duration,
    /// How long a request may wait for a cache that is warming.
    pub warmup_timeout: Duration,
    /// The deadline of a graceful shutdown.
    pub shutdown_timeout: Duration,
    /// How many connections one client address may have open; Unix sockets count as one address.
    pub connections_per_address_max: usize,
    /// How long a client may take none of the bytes that wait for it, or send none of a body that it owes, before its connection is closed.
    pub stall_timeout: Duration,
}

/// One listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenerConfig {
    /// TLS on a TCP address.
    Tls {
        /// The address; port 0 lets the system choose.
        address: SocketAddr,
        /// Where the certificate comes from.
        certificate: CertificateConfig,
    },
    /// Plain HTTP on a loopback address.
    Plain {
        /// The address.
        address: SocketAddr,
    },
    /// Plain HTTP on a Unix socket, mode 0600.
    Unix {
        /// The socket's path.
        path: PathBuf,
    },
}

/// Where a serving certificate comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateConfig {
    /// PEM files, read again when their content changes.
    Files {
        /// The chain.
        certificate: PathBuf,
        /// The private key.
        key: PathBuf,
        /// The CA that clients must trust, for `--write-kubeconfig`; `None` to use the chain itself.
        ca: Option<PathBuf>,
    },
    /// A CA and certificate that Weir makes at start for these DNS names and IP addresses (besides `localhost` and loopback).
    Generated {
        /// The names and addresses.
        names: Vec<String>,
    },
}

/// The API server behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamConfig {
    /// The kubeconfig; `None` for `$KUBECONFIG`, `~/.kube/config`, or the pod's service account, in that order.
    pub kubeconfig: Option<PathBuf>,
    /// The context in it; `None` for the current one.
    pub context: Option<String>,
    /// Addresses that replace the kubeconfig's server; empty to use that one. Only the first is used so far.
    pub addresses: Vec<String>,
    /// How long a connection may take to be made, TLS included.
    pub connect_timeout: Duration,
    /// Whether HTTP/2 may be used (crates.md section 5).
    pub http2: bool,
}

/// What is cached, and how much.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheConfig {
    /// Only these are cached, if not empty. A pattern's group or resource may be `*`.
    pub include: Vec<ResourcePattern>,
    /// These are never cached; stronger than `include`. Holds `events` of both groups by default.
    pub exclude: Vec<ResourcePattern>,
    /// These are kept warm from the start, and never stopped for being idle.
    pub warm: Vec<GroupVersionResource>,
    /// A cache that nobody used for so long is stopped.
    pub idle_timeout: Duration,
    /// The most that one cache may weigh, in bytes.
    pub resource_bytes_max: usize,
    /// The most that all caches together may weigh, in bytes.
    pub total_bytes_max: usize,
    /// The most that one cache's history may weigh, in bytes.
    pub history_bytes_max: usize,
    /// The most that the compressed parts of lists which are kept may weigh, in bytes; beside all other budgets.
    pub gzip_bytes_max: usize,
    /// What becomes of watches when a cache is listed anew, and the upstream cannot tell what came between.
    pub on_relist: OnRelist,
    /// How many lists and watches of one resource may be under way upstream for want of a cache (design, section 7).
    pub forward_budget: usize,
    /// Objects per page when the upstream has no watch-list.
    pub page_size: u32,
}

/// What becomes of the watches of a cache when the upstream has lost the events after what it holds (design, section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnRelist {
    /// They live on, and get what changed in between as events.
    KeepStreams,
    /// They end, as the upstream's own would; their clients list anew.
    EndStreams,
}

/// Names resources in the configuration: `group/resource`, `resource` for the core group, `*` for any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourcePattern {
    /// The group; `None` for any.
    pub group: Option<String>,
    /// The plural name; `None` for any.
    pub resource: Option<String>,
}

impl ResourcePattern {
    /// Whether it names this resource, of whatever version.
    pub fn matches(&self, gvr: &GroupVersionResource) -> bool {
        self.group.as_deref().is_none_or(|group| group == &*gvr.group)
            && self.resource.as_deref().is_none_or(|resource| resource == &*gvr.resource)
    }
}

/// What is logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggingConfig {
    /// Text or JSON.
    pub format: LogFormat,
    /// A filter in `tracing`'s syntax, such as `info` or `weir=debug`.
    pub filter: String,
}

/// How a log line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

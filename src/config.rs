//! The configuration: typed, validated, every default a named constant with its reason
//! ([`defaults`]).
//!
//! [`mod@file`] is the YAML file as written. [`resolve`] applies the flags, validates the result
//! once and returns the [`Config`] that the components use. [`write`](mod@write) turns a [`Config`]
//! back into a file, for `weir check`.

pub mod defaults;
pub mod dial;
pub mod endpoints;
pub mod faults;
pub mod file;
mod identity;
pub mod listen;
mod memory;
pub mod network;
mod parse;
pub mod reload;
pub mod resolve;
pub mod schema;
pub mod shadow;
pub mod tracing;
pub mod units;
mod warnings;
pub mod write;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::api::resource::GroupVersionResource;
use crate::config::dial::Dial;
use crate::config::endpoints::EndpointsConfig;
use crate::config::file::{FlowLevelSection, FlowRuleSection};
pub use crate::config::identity::{
    Anonymous, AuditBuffer, AuditConfig, AuditLevel, AuditOutput, AuditResources, AuditRule,
    AuthenticationConfig, AuthorizationConfig, FrontProxyConfig, Mode, RbacConfig,
    RequestHeaderConfig,
};
use crate::config::network::Network;
pub use crate::config::shadow::{Fraction, ShadowConfig, ShadowMode};
use crate::config::tracing::TracingConfig;
use crate::flow::rules::{AgentPattern, RankedLevel, Rule, product};

/// The whole configuration, validated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Listeners, and the limits of their clients.
    pub server: ServerConfig,
    /// The address of health checks and metrics; `None` for no admin listener.
    pub admin_listen: Option<SocketAddr>,
    /// The Unix socket beside it, whose clients may see the details.
    pub admin_socket: Option<PathBuf>,
    /// The clients that may see the details of the admin listener.
    pub admin_detail: AdminDetail,
    /// Whether `/readyz` passes while the upstream is away and caches can answer.
    pub ready_when_away: bool,
    /// The API server that Weir reads from and forwards to.
    pub upstream: UpstreamConfig,
    /// Which resources are cached, and limits of memory.
    pub cache: CacheConfig,
    /// How clients are authenticated.
    pub authentication: AuthenticationConfig,
    /// How clients are authorized.
    pub authorization: AuthorizationConfig,
    /// The audit log of the reads that Weir answers itself.
    pub audit: AuditConfig,
    /// The classes of requests, and what follows from them.
    pub flow_control: FlowControlConfig,
    /// The comparison of the caches with the upstream.
    pub shadow: ShadowConfig,
    /// The export of spans.
    pub tracing: TracingConfig,
    /// Format and filter of the log.
    pub logging: LoggingConfig,
}

/// Who may see the details of the admin listener, which name users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminDetail {
    /// Clients on 127.0.0.1 and ::1, such as `kubectl port-forward`.
    Local,
    /// Nobody.
    None,
}

/// The classes of requests, and what follows from them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowControlConfig {
    /// The mode.
    pub mode: FlowControlMode,
    /// The seats of one API server that forwarded requests may take.
    pub seats_per_server: u64,
    /// Whether fewer seats are used of an API server that is slow or refuses requests. In the mode
    /// `observe` only refusals count, and what latency would do is shown.
    pub adaptive: FlowControlMode,
    /// Operators' own levels and rules.
    pub overlay: FlowOverlay,
}

/// Levels and rules beside the cluster's FlowSchemas and priority levels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowOverlay {
    /// The levels.
    pub levels: Vec<RankedLevel>,
    /// The rules, in order.
    pub rules: Vec<Rule>,
    /// The levels as written.
    pub written_levels: Vec<FlowLevelSection>,
    /// The rules as written.
    pub written_rules: Vec<FlowRuleSection>,
}

/// The mode of flow control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowControlMode {
    /// Nothing.
    Off,
    /// Requests are classified, and their costs added up. None is delayed or refused.
    Observe,
    /// And forwarded requests wait for seats of the API server, or are refused.
    Enforce,
}

/// Listeners, and the time-outs and limits of their clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// The listeners; at least one.
    pub listeners: Vec<ListenerConfig>,
    /// Names that a request's Host may have besides `localhost`, loopback addresses and the
    /// listeners' own addresses. Protects a sidecar from DNS rebinding.
    pub allowed_hosts: Vec<String>,
    /// The log has a line for each request that takes longer; `None` for no line.
    pub slow_request: Option<Duration>,
    /// Time-out for reading the head of a request.
    pub header_read_timeout: Duration,
    /// How long a request waits for the cache to become fresh before it is forwarded.
    pub freshness_timeout: Duration,
    /// How long a request waits for the first state of a cache before it is forwarded.
    pub warmup_timeout: Duration,
    /// How long Weir goes on to serve, and to accept connections, after SIGTERM. `/readyz` fails
    /// meanwhile.
    pub shutdown_delay: Duration,
    /// The deadline of the drain that follows, in which connections and watches end.
    pub shutdown_timeout: Duration,
    /// Open connections of one client address that have proved no user, and of one user at one
    /// address; all Unix sockets count as one address.
    pub connections_per_address_max: usize,
    /// Open connections of one user at all addresses.
    pub connections_per_user_max: usize,
    /// The most open watches of one user, and of one address for what has proved no user. Only in
    /// gateway mode.
    pub watches_per_user_max: usize,
    /// How long a client may stall before its connection is closed: it neither reads the bytes that
    /// wait for it, nor sends the rest of a request body.
    pub stall_timeout: Duration,
    /// Limit on what responses hold in memory for clients that have not read them yet, in bytes.
    pub response_bytes_max: usize,
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
        /// The proxies that name their clients.
        proxies: ProxyNetworks,
    },
    /// Plain HTTP on a loopback address.
    Plain {
        /// The address.
        address: SocketAddr,
        /// The proxies that name their clients.
        proxies: ProxyNetworks,
    },
    /// Plain HTTP on a Unix socket, mode 0600.
    Unix {
        /// The socket's path.
        path: PathBuf,
    },
}

/// The networks of the proxies that begin each connection with a header of the PROXY protocol;
/// empty where none does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyNetworks(pub Vec<Network>);

/// Where a serving certificate comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateConfig {
    /// PEM files, read again when their content changes.
    Files {
        /// The chain.
        certificate: PathBuf,
        /// The private key.
        key: PathBuf,
        /// The CA that clients must trust, for `--write-kubeconfig`; `None` to use the chain
        /// itself.
        ca: Option<PathBuf>,
    },
    /// A CA and a certificate that Weir generates at start for these DNS names and IP addresses
    /// (besides `localhost` and loopback).
    Generated {
        /// The names and addresses.
        names: Vec<String>,
    },
}

/// The API server that Weir reads from and forwards to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamConfig {
    /// The kubeconfig; `None` for `$KUBECONFIG`, `~/.kube/config`, or the pod's service account, in
    /// that order.
    pub kubeconfig: Option<PathBuf>,
    /// The context in it; `None` for the current one.
    pub context: Option<String>,
    /// Where the addresses of the API servers come from, besides the kubeconfig's server.
    pub endpoints: EndpointsConfig,
    /// Time-out for opening a connection, including its TLS handshake.
    pub connect_timeout: Duration,
    /// Whether HTTP/2 may be used.
    pub http2: bool,
    /// Opens the connections; `None` for TCP. No setting of the YAML file.
    pub dial: Option<Dial>,
}

/// Which resources are cached, and limits of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheConfig {
    /// If not empty, only these resources are cached. A pattern's group or resource may be `*`.
    pub include: Vec<ResourcePattern>,
    /// Resources that are never cached, even if `include` has them. The default is `events` of both
    /// groups.
    pub exclude: Vec<ResourcePattern>,
    /// Resources whose caches start with Weir and are never stopped for being idle.
    pub warm: Vec<GroupVersionResource>,
    /// A cache without any use for this time is stopped.
    pub idle_timeout: Duration,
    /// Limit of one cache, in bytes.
    pub resource_bytes_max: usize,
    /// Limit of all caches together, in bytes.
    pub total_bytes_max: usize,
    /// Limit of the history of one cache, in bytes.
    pub history_bytes_max: usize,
    /// Limit of the compressed list segments that are kept, in bytes, in addition to the other
    /// limits.
    pub gzip_bytes_max: usize,
    /// The behaviour of watches when a relist replaces the state of a cache.
    pub on_relist: OnRelist,
    /// Lists and watches of one resource that may be forwarded at once because its cache cannot
    /// answer.
    pub forward_budget: usize,
    /// Lists and watches of one resource that may be forwarded at once because its cache exceeds a
    /// byte budget. A watch counts until it has begun.
    pub over_budget_forwards: usize,
    /// Objects on a page when the reflector lists in pages.
    pub page_size: u32,
    /// Beyond this age a cache that may lack events answers nothing; `None` for no limit.
    pub max_staleness: Option<Duration>,
    /// The answering server of lists whose resourceVersion is unset.
    pub consistent_lists: ConsistentLists,
    /// Whether caches are compared with the upstream, and what follows from a difference.
    pub verify: VerifyMode,
    /// The clients whose lists and watches lack managed fields.
    pub drop_managed_fields: Vec<DropRule>,
    /// The time in which all objects of a cache are compared once. Shorter in tests; there is no
    /// setting for it.
    pub verify_round: Duration,
    /// The bytes of whole objects that are compared in a round, over all caches, as a rough limit.
    /// Fewer in tests; there is no setting for it.
    pub verify_whole_bytes: usize,
}

/// Clients that get objects without `metadata.managedFields` in lists and watches from a cache,
/// although they do not ask for that (`docs/decisions/managed-fields.md`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropRule {
    /// Their user agents; at least one.
    pub agents: Vec<AgentPattern>,
    /// The resources; none for all.
    pub resources: Vec<ResourcePattern>,
}

impl DropRule {
    /// Whether it is about this resource and a client with this User-Agent.
    pub fn matches(&self, agent: &str, gvr: &GroupVersionResource) -> bool {
        let product = product(agent);
        self.agents.iter().any(|pattern| pattern.matches(product))
            && (self.resources.is_empty() || self.resources.iter().any(|rule| rule.matches(gvr)))
    }
}

/// The mode of the comparison of caches with the upstream (`docs/decisions/verified-caches.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerifyMode {
    /// Nothing is compared.
    Off,
    /// Differences are reported.
    Observe,
    /// A cache that is proved wrong is replaced as well.
    Enforce,
}

/// The answering server of consistent lists, whose resourceVersion is unset
/// (`docs/decisions/proofs-of-freshness.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsistentLists {
    /// The API server.
    Forward,
    /// The cache, if a proof of freshness costs less than the list and arrives soon.
    Auto,
    /// The cache, if a proof of freshness arrives within `freshness_timeout`. For tests: a single
    /// list waits longer than it would if it were forwarded.
    Always,
}

/// The behaviour of a cache's watches when the upstream no longer has the events after the
/// cache's resourceVersion, so that the cache lists again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnRelist {
    /// They continue, and get the differences between both states as events.
    KeepStreams,
    /// They end, as the upstream's own watches would; their clients list again.
    EndStreams,
}

/// Names resources in the configuration: `group/resource`, `resource` for the core group, `*` for
/// any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourcePattern {
    /// The group; `None` for any.
    pub group: Option<String>,
    /// The plural name; `None` for any.
    pub resource: Option<String>,
}

impl CacheConfig {
    /// Whether a resource may have a cache.
    pub fn admits(&self, gvr: &GroupVersionResource) -> bool {
        let matches = |pattern: &ResourcePattern| pattern.matches(gvr);
        let is_included = self.include.is_empty() || self.include.iter().any(matches);
        is_included && !self.exclude.iter().any(matches)
    }
}

impl ResourcePattern {
    /// Whether the pattern matches this resource, in any version.
    pub fn matches(&self, gvr: &GroupVersionResource) -> bool {
        self.group.as_deref().is_none_or(|group| group == &*gvr.group)
            && self.resource.as_deref().is_none_or(|resource| resource == &*gvr.resource)
    }
}

/// Format and filter of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggingConfig {
    /// How a line is written.
    pub format: LogFormat,
    /// A filter in `tracing`'s syntax, such as `info` or `weir=debug`.
    pub filter: String,
}

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

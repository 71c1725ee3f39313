//! The defaults, each with its reason. What the configuration leaves out is taken from here, and nowhere else in the tree
//! does a setting have a second default.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::config::{
    Anonymous, AuditBuffer, AuditConfig, AuthenticationConfig, AuthorizationConfig, CacheConfig,
    CertificateConfig, Config, ListenerConfig, LogFormat, LoggingConfig, Mode, OnRelist,
    ResourcePattern, ServerConfig, UpstreamConfig,
};

/// Where clients come in: TLS, since client-go in a pod insists on it; loopback, since clients are not authenticated; one off
/// kube-apiserver's 6443, so that both fit on one machine.
pub const LISTEN: SocketAddr = loopback(6440);

/// Health and metrics: next to [`LISTEN`], so that it is guessed rightly.
pub const ADMIN_LISTEN: SocketAddr = loopback(6441);

/// Plain HTTP for curl and browsers, where it is asked for (`weir demo`, the sidecar's example): kubectl proxy's port.
pub const PLAIN_LISTEN: SocketAddr = loopback(8001);

/// Answers say where they came from: the first question of everybody who puts a cache in front of something.
pub const CACHE_HEADER: bool = true;

/// A request's head: what kube-apiserver allows (`ReadHeaderTimeout`, apiserver `pkg/server/secure_serving.go`).
pub const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(32);

/// A freshness wait, after which Weir forwards rather than answering 504: as long as kube-apiserver waits (`blockTimeout`, semantics.md §2.1).
/// The slowest proof, a short watch of a large and quiet resource, takes up to 2.3 s.
pub const FRESHNESS_TIMEOUT: Duration = Duration::from_secs(3);

/// A cold cache: long enough for the first list of some ten thousand objects, short enough that a client with the common time-out
/// of 30 s still gets the forwarded answer.
pub const WARMUP_TIMEOUT: Duration = Duration::from_secs(10);

/// A graceful shutdown: within the 30 s that the kubelet gives a pod by default.
pub const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(25);

/// Connections of one address: more than a node's kubelet, proxy and pods behind one address open (client-go has one for everything), and
/// few enough that one machine cannot take all file descriptors.
pub const CONNECTIONS_PER_ADDRESS_MAX: usize = 2048;

/// A client that neither takes nor sends what it owes: longer than TCP needs to recover from a loss of some seconds, as long as a kubelet's
/// node may be paused before it counts as gone.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// A token that was authenticated: what delegated API servers believe (semantics.md §12.2).
pub const TOKEN_TTL: Duration = Duration::from_secs(10);

/// A token that was refused: the same.
pub const TOKEN_FAILURE_TTL: Duration = Duration::from_secs(10);

/// An allowed access: what delegated API servers believe (semantics.md §12.3).
pub const ALLOW_TTL: Duration = Duration::from_secs(10);

/// A denied access: the same.
pub const DENY_TTL: Duration = Duration::from_secs(10);

/// The right to an open watch: who lost it reads no longer than a minute, at a cost of one review a minute for each user and question.
pub const WATCH_RECHECK: Duration = Duration::from_secs(60);

/// Of the allows by RBAC, so many are one that is checked: a thousandth of the reviews that RBAC saves, and a busy gateway still checks some
/// every second.
pub const RBAC_CHECK_ONE_IN: u32 = 1000;

/// The headers in which front proxies say who a user is: the names that the Kubernetes documentation and its installers use.
pub const USERNAME_HEADER: &str = "X-Remote-User";
/// See [`USERNAME_HEADER`].
pub const UID_HEADER: &str = "X-Remote-Uid";
/// See [`USERNAME_HEADER`].
pub const GROUP_HEADER: &str = "X-Remote-Group";
/// See [`USERNAME_HEADER`].
pub const EXTRA_HEADER_PREFIX: &str = "X-Remote-Extra-";

/// A new upstream connection: a lost SYN is sent again after 1, 3 and 7 s; who has not answered then is down.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// HTTP/2 to the upstream where it offers it: one TLS connection carries many watches.
pub const UPSTREAM_HTTP2: bool = true;

/// An unused cache: longer than the pauses of controllers that resync every few minutes, short enough that a client that once
/// listed everything does not fill the memory for good.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// All caches together: holds the JSON of some 200,000 pods of 10 KiB, and fits on a small machine.
pub const TOTAL_BYTES_MAX: usize = 2 << 30;

/// One cache: half of [`TOTAL_BYTES_MAX`], so that one resource can't take everything from the others.
pub const RESOURCE_BYTES_MAX: usize = 1 << 30;

/// One cache's history: the upstream keeps at least 75 s of events (semantics.md §5.9); this holds them at 150 events of 10 KiB
/// a second.
pub const HISTORY_BYTES_MAX: usize = 128 << 20;

/// Compressed parts of lists: lists of 600 MB compress to about as much, which is more than most clusters have of what is listed whole. What does
/// not fit is compressed again, no worse than without.
pub const GZIP_BYTES_MAX: usize = 64 << 20;

/// Watches live through a relist: a thousand informers that list anew at once are what a cache is there to prevent.
pub const ON_RELIST: OnRelist = OnRelist::KeepStreams;

/// Lists and watches forwarded at once for one resource for want of a cache: enough for the controllers of one cluster, too few
/// for a herd.
pub const FORWARD_BUDGET: usize = 64;

/// Objects a page: what client-go's pager asks for.
pub const PAGE_SIZE: u32 = 500;

/// What is logged: start, stop, failures and recoveries; nothing for each request.
pub const LOG_FILTER: &str = "info";

/// Written by people who look at a terminal; collectors ask for JSON.
pub const LOG_FORMAT: LogFormat = LogFormat::Text;

/// Never cached: kube-apiserver doesn't either, since they change all the time and hardly anybody reads them twice.
pub fn exclude() -> Vec<ResourcePattern> {
    ["", "events.k8s.io"]
        .into_iter()
        .map(|group| ResourcePattern {
            group: Some(group.to_owned()),
            resource: Some("events".to_owned()),
        })
        .collect()
}

impl Default for Config {
    fn default() -> Self {
        Self {
            server: ServerConfig::default(),
            admin_listen: Some(ADMIN_LISTEN),
            upstream: UpstreamConfig::default(),
            cache: CacheConfig::default(),
            authentication: AuthenticationConfig::default(),
            authorization: AuthorizationConfig::default(),
            audit: AuditConfig::default(),
            logging: LoggingConfig::default(),
        }
    }
}

impl Default for ServerConfig {
    fn default() -> Self {
        let certificate = CertificateConfig::Generated { names: Vec::new() };
        Self {
            listeners: vec![ListenerConfig::Tls { address: LISTEN, certificate }],
            allowed_hosts: Vec::new(),
            cache_header: CACHE_HEADER,
            header_read_timeout: HEADER_READ_TIMEOUT,
            freshness_timeout: FRESHNESS_TIMEOUT,
            warmup_timeout: WARMUP_TIMEOUT,
            shutdown_timeout: SHUTDOWN_TIMEOUT,
            connections_per_address_max: CONNECTIONS_PER_ADDRESS_MAX,
            stall_timeout: STALL_TIMEOUT,
        }
    }
}

impl Default for UpstreamConfig {
    fn default() -> Self {
        Self {
            kubeconfig: None,
            context: None,
            addresses: Vec::new(),
            connect_timeout: CONNECT_TIMEOUT,
            http2: UPSTREAM_HTTP2,
        }
    }
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self {
            include: Vec::new(),
            exclude: exclude(),
            warm: Vec::new(),
            idle_timeout: IDLE_TIMEOUT,
            resource_bytes_max: RESOURCE_BYTES_MAX,
            total_bytes_max: TOTAL_BYTES_MAX,
            history_bytes_max: HISTORY_BYTES_MAX,
            gzip_bytes_max: GZIP_BYTES_MAX,
            on_relist: ON_RELIST,
            forward_budget: FORWARD_BUDGET,
            page_size: PAGE_SIZE,
        }
    }
}

impl Default for AuthenticationConfig {
    fn default() -> Self {
        Self {
            mode: Mode::Sidecar,
            client_ca: None,
            request_header: None,
            anonymous: Anonymous::Forward,
            token_audiences: Vec::new(),
            token_ttl: TOKEN_TTL,
            token_failure_ttl: TOKEN_FAILURE_TTL,
            front_proxy: None,
            impersonate: false,
        }
    }
}

impl Default for AuthorizationConfig {
    fn default() -> Self {
        Self {
            allow_ttl: ALLOW_TTL,
            deny_ttl: DENY_TTL,
            watch_recheck: Some(WATCH_RECHECK),
            stale_decision_grace: Duration::ZERO,
            rbac: None,
        }
    }
}

impl Default for AuditConfig {
    fn default() -> Self {
        Self { output: None, buffer: AuditBuffer::Blocking, rules: Vec::new() }
    }
}

impl Default for LoggingConfig {
    fn default() -> Self {
        Self { format: LOG_FORMAT, filter: LOG_FILTER.to_owned() }
    }
}

const fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

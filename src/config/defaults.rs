//! The defaults, each with its reason. A setting that the configuration omits gets its value here,
//! and has no other default anywhere in the tree. Some are no settings: only tests have other
//! values.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::config::endpoints::EndpointsConfig;
use crate::config::tracing::TracingConfig;
use crate::config::{
    AdminDetail, Anonymous, AuditBuffer, AuditConfig, AuthenticationConfig, AuthorizationConfig,
    CacheConfig, CertificateConfig, Config, ConsistentLists, FlowControlConfig, FlowControlMode,
    FlowOverlay, Fraction, ListenerConfig, LogFormat, LoggingConfig, Mode, OnRelist, ProxyNetworks,
    ResourcePattern, ServerConfig, ShadowConfig, ShadowMode, UpstreamConfig, VerifyMode,
};

/// The listener: TLS, because client-go in a pod insists on it; loopback, because clients are not
/// authenticated; a port near kube-apiserver's 6443 that leaves 6443 free on the same machine.
pub const LISTEN: SocketAddr = loopback(6440);

/// Health and metrics: the port after [`LISTEN`], which is easy to guess.
pub const ADMIN_LISTEN: SocketAddr = loopback(6441);

/// Plain HTTP for curl and browsers, in `weir demo` and the sidecar example: the port of kubectl
/// proxy.
pub const PLAIN_LISTEN: SocketAddr = loopback(8001);

/// The head of a request: kube-apiserver's `ReadHeaderTimeout` (apiserver
/// `pkg/server/secure_serving.go`).
pub const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(32);

/// A freshness wait, after which Weir forwards instead of answering 504: kube-apiserver's
/// `blockTimeout` (docs/semantics.md §2.1). The slowest proof, a short watch of a large and quiet
/// resource, takes up to 2.3 s.
pub const FRESHNESS_TIMEOUT: Duration = Duration::from_secs(3);

/// A cold cache: long enough for the first list of ten thousand objects, short enough that a client
/// with the common time-out of 30 s still gets the forwarded response.
pub const WARMUP_TIMEOUT: Duration = Duration::from_secs(10);

/// A sidecar does not wait before it drains: its clients are the containers beside it, and nothing
/// else sends it a connection.
pub const SHUTDOWN_DELAY: Duration = Duration::ZERO;

/// The drain of a sidecar: within the 30 s that the kubelet gives a pod by default.
pub const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(25);

/// A gateway goes on for the time that a deleted pod needs to leave the endpoints of its Service,
/// and these to reach every node and load balancer: seconds in most clusters.
pub const GATEWAY_SHUTDOWN_DELAY: Duration = Duration::from_secs(10);

/// The drain of a gateway: with [`GATEWAY_SHUTDOWN_DELAY`] as long as a sidecar's, so that both fit
/// the kubelet's 30 s. A pod with a longer terminationGracePeriodSeconds should set more, because
/// thousands of watches are opened again within this time.
pub const GATEWAY_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(15);

/// Connections of one address: more than the kubelet, kube-proxy and pods of a node open behind one
/// address (client-go opens one for everything), and few enough that one machine cannot use all
/// file descriptors.
pub const CONNECTIONS_PER_ADDRESS_MAX: usize = 2048;

/// Connections of one user, at all addresses: more than a service account has whose pods run on
/// each of ten thousand nodes, and a quarter of what a listener accepts.
pub const CONNECTIONS_PER_USER_MAX: usize = 16_384;

/// Open watches of one user: more than a service account has whose pods watch six resources from
/// each of ten thousand nodes, and few enough that one user cannot fill the memory with them.
pub const WATCHES_PER_USER_MAX: usize = 65_536;

/// A stalled client: longer than TCP needs to recover from a few seconds of loss, and as long as a
/// node may be paused before Kubernetes treats it as gone.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Unread responses: 4,000 pieces of 64 KiB, for more clients than one machine serves at once on
/// slow networks, and an eighth of [`TOTAL_BYTES_MAX`].
pub const RESPONSE_BYTES_MAX: usize = 256 << 20;

/// An authenticated token: half as long as delegated API servers cache it (docs/semantics.md
/// §12.2). The API server that reviews it has a cache of its own, of 10 s, which adds to this one:
/// a review just before that cache expires is answered from it. So a revoked token reads for at
/// most 15 s (docs/decisions/authentication.md).
pub const TOKEN_TTL: Duration = Duration::from_secs(5);

/// A rejected token: as long as delegated API servers cache it.
pub const TOKEN_FAILURE_TTL: Duration = Duration::from_secs(10);

/// An allowed access: as long as delegated API servers cache it (docs/semantics.md §12.3).
pub const ALLOW_TTL: Duration = Duration::from_secs(10);

/// A denied access: the same time, or as long as an allowed one if that is less.
pub const DENY_TTL: Duration = Duration::from_secs(10);

/// Re-authorization of an open watch: a user who lost the permission reads for at most a minute
/// longer, at a cost of one review a minute for each user and kind of access.
pub const WATCH_RECHECK: Duration = Duration::from_secs(60);

/// Reviews that checks of open watches may cause, a second: enough for 3,000 tokens and permissions
/// a minute, and little for an API server, which answers one in about a millisecond.
pub const WATCH_REVIEWS_PER_SECOND: u32 = 50;

/// One of this number of RBAC allows is compared with an access review: a thousandth of the reviews
/// that RBAC saves, and still some every second on a busy gateway.
pub const RBAC_CHECK_ONE_IN: u32 = 1000;

/// The header of a user's name from a front proxy: the name that the Kubernetes documentation and
/// its installers use.
pub const USERNAME_HEADER: &str = "X-Remote-User";
/// The header of a user's uid from a front proxy.
pub const UID_HEADER: &str = "X-Remote-Uid";
/// The header of a user's groups from a front proxy.
pub const GROUP_HEADER: &str = "X-Remote-Group";
/// The prefix of headers with a user's extra fields from a front proxy.
pub const EXTRA_HEADER_PREFIX: &str = "X-Remote-Extra-";

/// A new upstream connection: a lost SYN is sent again after 1, 3 and 7 s; a server that has not
/// answered then is down.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// On: one TLS connection carries many watches, where the upstream offers HTTP/2.
pub const UPSTREAM_HTTP2: bool = true;

/// An unused cache: longer than the pauses of controllers that resync every few minutes, short
/// enough that a client that listed everything once does not fill the memory permanently.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// All caches together: about 200,000 pods of 10 KiB in JSON; fits on a small machine.
pub const TOTAL_BYTES_MAX: usize = 2 << 30;

/// One cache: half of [`TOTAL_BYTES_MAX`], so that one resource cannot displace all others.
pub const RESOURCE_BYTES_MAX: usize = 1 << 30;

/// The history of one cache: the upstream keeps at least 75 s of events (docs/semantics.md §5.9),
/// which fit at 150 events of 10 KiB a second.
pub const HISTORY_BYTES_MAX: usize = 128 << 20;

/// Compressed list segments: enough for lists of about 600 MB, more than most clusters have of
/// resources that clients list whole. A segment that does not fit is compressed again for each
/// list.
pub const GZIP_BYTES_MAX: usize = 64 << 20;

/// Watches continue through a relist: a cache has to prevent that a thousand informers list at
/// once.
pub const ON_RELIST: OnRelist = OnRelist::KeepStreams;

/// Lists and watches of one resource forwarded at once because its cache cannot answer: enough for
/// the controllers of one cluster, too few for a herd.
pub const FORWARD_BUDGET: usize = 64;

/// Lists and watches of one resource forwarded at once because its cache exceeds a byte budget.
/// This may last, so that there must be enough for all clients. A watch counts only until it has
/// begun, as in kube-apiserver, which by default runs 400 reads at once.
pub const OVER_BUDGET_FORWARDS: usize = 256;

/// Objects on a page: the page size of client-go's pager.
pub const PAGE_SIZE: u32 = 500;

/// Ready while the upstream is away: without its endpoints, clients would lose the cache as well.
pub const READY_WHEN_AWAY: bool = true;

/// Only from the pod itself, as through `kubectl port-forward`: the cluster's RBAC on that is the
/// login.
pub const ADMIN_DETAIL: AdminDetail = AdminDetail::Local;

/// A sidecar has one user, and its few clients are known to whoever runs it. Its forwarded requests
/// take no more seats than [`SEATS_PER_SERVER`] in any mode, so that a runaway client leaves the
/// API server to others.
pub const FLOW_CONTROL: FlowControlMode = FlowControlMode::Off;

/// A gateway has many users, of whom one must not take the API server from the others. Nobody waits
/// while there are seats, so that this costs nothing before it is needed.
pub const GATEWAY_FLOW_CONTROL: FlowControlMode = FlowControlMode::Enforce;

/// kube-apiserver's `--max-requests-inflight` and `--max-mutating-requests-inflight` together.
pub const SEATS_PER_SERVER: u64 = 600;

/// An API server that refuses requests gets fewer. That reads take longer than usual may have
/// reasons that fewer requests do not help against, so that operators look at it first.
pub const ADAPTIVE: FlowControlMode = FlowControlMode::Observe;

/// Fewer leave no part to the smallest priority level.
pub const SEATS_MIN: u64 = 20;

/// More than 8 of 10 places for requests on the connections to one API server (1,440) would make
/// the pool of connections the queue, which is not fair.
pub const SEATS_MAX: u64 = 1150;

/// The same for HTTP/1.1, whose connections have 256 places.
pub const HTTP1_SEATS_MAX: u64 = 204;

/// Caches answer. In shadow mode every read is compared, as far as a tenth of a processor allows
/// it.
pub const SHADOW: ShadowConfig =
    ShadowConfig { mode: ShadowMode::Off, cpu_share: Fraction::percent(10) };

/// No request is sampled but those whose parent counts, as in kube-apiserver: an operator chooses a
/// rate for which there is room.
pub const SAMPLING_RATE_PER_MILLION: u32 = 0;

/// The API server answers consistent lists: a proof of freshness saves its load, not the client's
/// time.
pub const CONSISTENT_LISTS: ConsistentLists = ConsistentLists::Forward;

/// Differences are reported first. An operator who trusts the reports lets Weir act on them.
pub const VERIFY: VerifyMode = VerifyMode::Observe;

/// 100,000 objects are 200 pages of metadata: one each 3 seconds.
pub const VERIFY_ROUND: Duration = Duration::from_secs(600);

/// A megabyte of whole objects costs kube-apiserver some 3 ms more than its metadata. 128 MiB in a
/// round cost less than a tenth of a percent of a core (`docs/decisions/verified-caches.md`).
pub const VERIFY_WHOLE_BYTES: usize = 128 * 1024 * 1024;

/// Logs start, stop, failures and recoveries, and nothing for each request.
pub const LOG_FILTER: &str = "info";

/// Text, for people at a terminal; log collectors need `json`.
pub const LOG_FORMAT: LogFormat = LogFormat::Text;

/// Events are not cached, as in kube-apiserver: they change all the time, and clients rarely read
/// them twice.
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
            admin_socket: None,
            admin_detail: ADMIN_DETAIL,
            ready_when_away: READY_WHEN_AWAY,
            upstream: UpstreamConfig::default(),
            cache: CacheConfig::default(),
            authentication: AuthenticationConfig::default(),
            authorization: AuthorizationConfig::default(),
            audit: AuditConfig::default(),
            flow_control: FlowControlConfig {
                mode: FLOW_CONTROL,
                seats_per_server: SEATS_PER_SERVER,
                adaptive: ADAPTIVE,
                overlay: FlowOverlay::default(),
            },
            shadow: SHADOW,
            tracing: TracingConfig::default(),
            logging: LoggingConfig::default(),
        }
    }
}

impl Default for ServerConfig {
    fn default() -> Self {
        let certificate = CertificateConfig::Generated { names: Vec::new() };
        let proxies = ProxyNetworks::default();
        Self {
            listeners: vec![ListenerConfig::Tls { address: LISTEN, certificate, proxies }],
            allowed_hosts: Vec::new(),
            slow_request: None,
            header_read_timeout: HEADER_READ_TIMEOUT,
            freshness_timeout: FRESHNESS_TIMEOUT,
            warmup_timeout: WARMUP_TIMEOUT,
            shutdown_delay: SHUTDOWN_DELAY,
            shutdown_timeout: SHUTDOWN_TIMEOUT,
            connections_per_address_max: CONNECTIONS_PER_ADDRESS_MAX,
            connections_per_user_max: CONNECTIONS_PER_USER_MAX,
            watches_per_user_max: WATCHES_PER_USER_MAX,
            stall_timeout: STALL_TIMEOUT,
            response_bytes_max: RESPONSE_BYTES_MAX,
        }
    }
}

impl Default for TracingConfig {
    fn default() -> Self {
        Self { endpoint: None, sampling_rate_per_million: SAMPLING_RATE_PER_MILLION }
    }
}

impl Default for UpstreamConfig {
    fn default() -> Self {
        Self {
            kubeconfig: None,
            context: None,
            endpoints: EndpointsConfig::default(),
            connect_timeout: CONNECT_TIMEOUT,
            http2: UPSTREAM_HTTP2,
            dial: None,
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
            over_budget_forwards: OVER_BUDGET_FORWARDS,
            page_size: PAGE_SIZE,
            max_staleness: None,
            consistent_lists: CONSISTENT_LISTS,
            verify: VERIFY,
            verify_round: VERIFY_ROUND,
            verify_whole_bytes: VERIFY_WHOLE_BYTES,
            drop_managed_fields: Vec::new(),
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
            watch_reviews_per_second: WATCH_REVIEWS_PER_SECOND,
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

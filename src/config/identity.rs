//! The typed settings of `authentication`, `authorization` and `audit`.

use std::path::PathBuf;
use std::time::Duration;

/// The identity that a client's request has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Every client acts with Weir's own identity; listeners are on loopback and Unix sockets only.
    #[default]
    Sidecar,
    /// Each client is authenticated and authorized as by the API server, and acts with its own
    /// identity.
    Gateway,
}

/// How clients are authenticated; all but `mode` is for [`Mode::Gateway`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthenticationConfig {
    /// Sidecar or gateway.
    pub mode: Mode,
    /// The CA of client certificates, PEM, read again when its content changes; `None` for the
    /// cluster's own (`kube-system/extension-apiserver-authentication`).
    pub client_ca: Option<PathBuf>,
    /// The front proxies that may assert users; `None` for the cluster's own setting (as above).
    pub request_header: Option<RequestHeaderConfig>,
    /// How requests without a credential are handled.
    pub anonymous: Anonymous,
    /// A token must be for one of these audiences; empty for the API server's own.
    pub token_audiences: Vec<String>,
    /// How long an authenticated token is cached; never beyond its own expiry.
    pub token_ttl: Duration,
    /// How long a rejected token is cached.
    pub token_failure_ttl: Duration,
    /// The certificate with which Weir asserts users of certificates to the API server, by
    /// X-Remote-* headers.
    pub front_proxy: Option<FrontProxyConfig>,
    /// Whether requests of users of certificates are forwarded by impersonation with Weir's own
    /// identity; only without `front_proxy`.
    pub impersonate: bool,
}

/// How requests without a credential are handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Anonymous {
    /// Weir forwards them without a credential, and the API server's own setting decides.
    #[default]
    Forward,
    /// Weir authorizes them as `system:anonymous` and may answer them from the cache; for an API
    /// server that accepts them.
    Authorize,
    /// Weir rejects them with 401; for an API server that does so.
    Refuse,
}

/// Which front proxies are trusted, and their headers (`--requestheader-*` of kube-apiserver).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHeaderConfig {
    /// The CA of the front proxies' certificates, PEM, read again when its content changes.
    pub ca: PathBuf,
    /// Common names that such a certificate may have; empty for any.
    pub allowed_names: Vec<String>,
    /// The headers of the user's name; the first that is not empty counts.
    pub username_headers: Vec<String>,
    /// The headers of the uid.
    pub uid_headers: Vec<String>,
    /// The headers whose values are groups.
    pub group_headers: Vec<String>,
    /// The prefixes of headers with extra fields.
    pub extra_header_prefixes: Vec<String>,
}

/// A client certificate of Weir's that kube-apiserver trusts as a front proxy's, PEM, read again
/// when its content changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrontProxyConfig {
    /// The chain.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// How clients are authorized; for [`Mode::Gateway`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizationConfig {
    /// How long an allowed access is cached.
    pub allow_ttl: Duration,
    /// How long a denied access is cached.
    pub deny_ttl: Duration,
    /// The interval at which open watches are re-authorized; `None` for never, as the API server
    /// does.
    pub watch_recheck: Option<Duration>,
    /// The most reviews in a second that checks of open watches cause.
    pub watch_reviews_per_second: u32,
    /// How long expired decisions of the API server may be used while it is unreachable; zero for
    /// never.
    pub stale_decision_grace: Duration,
    /// Decisions by the cluster's roles and bindings; `None` for access reviews only.
    pub rbac: Option<RbacConfig>,
}

/// RBAC decisions from Weir's own caches of roles and bindings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RbacConfig {
    /// One of this number of allows is compared with an access review; a difference turns RBAC off.
    pub check_one_in: u32,
}

/// The audit log of the reads that Weir answers itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditConfig {
    /// The destination; `None` for no audit log.
    pub output: Option<AuditOutput>,
    /// The behaviour when events arrive faster than they are written.
    pub buffer: AuditBuffer,
    /// The first rule that matches decides; without a match a request is not logged, as in
    /// kube-apiserver's policy.
    pub rules: Vec<AuditRule>,
}

/// The destination of audit events, one JSON object on each line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditOutput {
    /// Standard output.
    Stdout,
    /// A file, appended to, mode 0600; opened again after a rotation moved it.
    File(PathBuf),
}

/// The behaviour when audit events arrive faster than they are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuditBuffer {
    /// Requests wait, and nothing is lost (kube-apiserver's default for log files).
    #[default]
    Blocking,
    /// Events are dropped, and counted.
    Dropping,
}

/// A rule of the audit policy (audit.k8s.io/v1 Policy). An empty list matches everything. A rule
/// with `namespaces` or `resources` matches only resource requests, one with `non_resource_urls`
/// only other requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditRule {
    /// Whether a matching request is logged.
    pub level: AuditLevel,
    /// User names.
    pub users: Vec<String>,
    /// Groups; the user must be in one of them.
    pub user_groups: Vec<String>,
    /// Verbs.
    pub verbs: Vec<String>,
    /// Namespaces; an empty name stands for the cluster scope.
    pub namespaces: Vec<String>,
    /// Resources by group.
    pub resources: Vec<AuditResources>,
    /// Paths; a final `*` matches any rest.
    pub non_resource_urls: Vec<String>,
}

/// The resources of one group (audit.k8s.io/v1 GroupResources).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditResources {
    /// The group; empty for the core one.
    pub group: String,
    /// `resource`, `resource/subresource`, `*/subresource`, `resource/*`; empty for all of the
    /// group.
    pub resources: Vec<String>,
    /// Names; empty for all.
    pub resource_names: Vec<String>,
}

/// Whether a request is logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuditLevel {
    /// Not logged.
    None,
    /// User, request, time, source address and response code; never a body.
    #[default]
    Metadata,
}

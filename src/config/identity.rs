//! Who clients are, what they may do, and what is told of it: the typed settings of `authentication`, `authorization` and `audit`.

use std::path::PathBuf;
use std::time::Duration;

/// Whose name a client's request carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Everybody who reaches a listener acts with Weir's own identity: loopback and Unix sockets only (design, section 9).
    #[default]
    Sidecar,
    /// Each client is authenticated and authorized as the API server would, and acts in its own name.
    Gateway,
}

/// Who clients are; all but `mode` is for [`Mode::Gateway`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthenticationConfig {
    /// See [`Mode`].
    pub mode: Mode,
    /// The CA of client certificates, PEM, read again when its content changes; `None` for the cluster's own
    /// (`kube-system/extension-apiserver-authentication`).
    pub client_ca: Option<PathBuf>,
    /// The front proxies that may tell who a user is; `None` for the cluster's own setting (as above).
    pub request_header: Option<RequestHeaderConfig>,
    /// What becomes of requests without a credential.
    pub anonymous: Anonymous,
    /// The audiences of which a token must be for one; empty for the API server's own.
    pub token_audiences: Vec<String>,
    /// How long an authenticated token is believed without asking again; never beyond its own expiry.
    pub token_ttl: Duration,
    /// How long a refused token is refused without asking again.
    pub token_failure_ttl: Duration,
    /// The certificate with which Weir may tell the API server who a certificate's user is, by X-Remote-* headers.
    pub front_proxy: Option<FrontProxyConfig>,
    /// Whether requests of certificates' users are forwarded by impersonation with Weir's own identity; only without `front_proxy`.
    pub impersonate: bool,
}

/// What becomes of requests without a credential.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Anonymous {
    /// They are forwarded without a credential, and the API server's own setting decides.
    #[default]
    Forward,
    /// They are authorized as `system:anonymous`, and may be answered from the cache; for an API server that does so.
    Authorize,
    /// They are refused with 401; for an API server that does so.
    Refuse,
}

/// A front proxy's rights (`--requestheader-*` of kube-apiserver).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHeaderConfig {
    /// The CA of the front proxies' certificates, PEM, read again when its content changes.
    pub ca: PathBuf,
    /// Common names that such a certificate may have; empty for any.
    pub allowed_names: Vec<String>,
    /// The headers that may carry the user's name; the first that is not empty counts.
    pub username_headers: Vec<String>,
    /// The headers that may carry the uid.
    pub uid_headers: Vec<String>,
    /// The headers whose values are groups.
    pub group_headers: Vec<String>,
    /// What headers with extra fields begin with.
    pub extra_header_prefixes: Vec<String>,
}

/// A client certificate of Weir's that kube-apiserver knows as a front proxy's, PEM, read again when its content changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrontProxyConfig {
    /// The chain.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// What clients may do; for [`Mode::Gateway`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizationConfig {
    /// How long an allowed access is believed without asking again.
    pub allow_ttl: Duration,
    /// How long a denied one is.
    pub deny_ttl: Duration,
    /// How often the right to an open watch is looked at again; `None` for never, as the API server does.
    pub watch_recheck: Option<Duration>,
    /// How long answers of the API server that have expired may still be used while it cannot be asked; zero for not at all.
    pub stale_decision_grace: Duration,
    /// Deciding by the cluster's roles and bindings here, if so.
    pub rbac: Option<RbacConfig>,
}

/// RBAC from Weir's own cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RbacConfig {
    /// Of so many of its allows one is checked against an access review; a difference turns it off.
    pub check_one_in: u32,
}

/// What is told of the reads answered here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditConfig {
    /// Where to; `None` for nowhere.
    pub output: Option<AuditOutput>,
    /// What happens when events come faster than they are written.
    pub buffer: AuditBuffer,
    /// Judged in order, the first that matches decides; without a match nothing is told, as in kube-apiserver's policy.
    pub rules: Vec<AuditRule>,
}

/// Where audit events go, one JSON object a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditOutput {
    /// Standard output.
    Stdout,
    /// A file, appended to, mode 0600; opened again when it was moved away.
    File(PathBuf),
}

/// What happens when audit events come faster than they are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuditBuffer {
    /// Requests wait, and nothing is lost (kube-apiserver's default for log files).
    #[default]
    Blocking,
    /// Events are dropped, and counted.
    Dropping,
}

/// A rule of the audit policy (audit.k8s.io/v1 Policy). An empty list matches everything; in a rule with `namespaces` or `resources`
/// only resource requests match, with `non_resource_urls` only others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditRule {
    /// Whether it is told.
    pub level: AuditLevel,
    /// User names.
    pub users: Vec<String>,
    /// Groups, of which the user must be in one.
    pub user_groups: Vec<String>,
    /// Verbs.
    pub verbs: Vec<String>,
    /// Namespaces; an empty name stands for the cluster scope.
    pub namespaces: Vec<String>,
    /// Resources by group.
    pub resources: Vec<AuditResources>,
    /// Paths; `*` at the end stands for any rest.
    pub non_resource_urls: Vec<String>,
}

/// The resources of one group (audit.k8s.io/v1 GroupResources).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditResources {
    /// The group; empty for the core one.
    pub group: String,
    /// `resource`, `resource/subresource`, `*/subresource`, `resource/*`; empty for all of the group.
    pub resources: Vec<String>,
    /// Names; empty for all.
    pub resource_names: Vec<String>,
}

/// Whether a request is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuditLevel {
    /// Not at all.
    None,
    /// Who, what, when, from where, and how it was answered; never what was in it.
    #[default]
    Metadata,
}

//! How a simulator is set up.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// The settings of a [`Simulator`](super::Simulator). The default is one for tests and the demo: plain HTTP on a free
/// port of the loopback interface, everybody an administrator, the behaviour of Kubernetes 1.36.
#[derive(Clone, Debug)]
pub struct SimulatorOptions {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Whether it speaks TLS, with a certificate of a CA of its own unless one is given.
    pub tls: bool,
    /// With what it serves TLS; `None` for a certificate made at start.
    pub server_certificate: Option<ServerCertificate>,
    /// Whose client certificates it knows; only with TLS.
    pub client_certificates: Option<ClientCertificates>,
    /// Who may come, by bearer token. Empty, and without client certificates: anyone, as an administrator.
    pub users: Vec<User>,
    /// Whether a request without a credential is one of `system:anonymous`; otherwise it gets 401.
    pub anonymous: bool,
    /// The minor version whose behaviour it shows: before 34 there are no watch-lists and no unasked end bookmarks.
    pub minor: u32,
    /// How many events of each resource are kept for watches and exact lists.
    pub history_events_max: usize,
    /// The time between bookmarks of a watch; the upstream's is a minute.
    pub bookmark_interval: Duration,
    /// How long a request waits for a resourceVersion; the upstream's is three seconds.
    pub freshness_timeout: Duration,
    /// Streams on one HTTP/2 connection; kube-apiserver allows 100.
    pub http2_streams_max: u32,
}

impl Default for SimulatorOptions {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            tls: false,
            server_certificate: None,
            client_certificates: None,
            users: Vec::new(),
            anonymous: true,
            minor: 36,
            history_events_max: 4096,
            bookmark_interval: Duration::from_secs(60),
            freshness_timeout: Duration::from_secs(3),
            http2_streams_max: 100,
        }
    }
}

impl SimulatorOptions {
    /// Whether anyone is an administrator, whatever they show.
    pub(super) fn open(&self) -> bool {
        self.users.is_empty() && self.client_certificates.is_none()
    }

    /// Whether lists of the latest state, and with them continue tokens, come from the watch cache (semantics.md §3.4).
    pub(super) fn lists_from_cache(&self) -> bool {
        self.minor >= 31
    }

    /// Whether zero metadata shows `creationTimestamp` as null (semantics.md §3.6).
    pub(super) fn shows_zero_time(&self) -> bool {
        self.minor < 34
    }

    /// Whether watches can begin with the state and end it by a bookmark (semantics.md §1.4).
    pub(super) fn watch_list(&self) -> bool {
        self.minor >= 34
    }
}

/// A serving certificate, PEM.
#[derive(Clone)]
pub struct ServerCertificate {
    /// The chain.
    pub chain: String,
    /// The private key, PKCS #8.
    pub key: String,
    /// The certificate of the CA that clients trust.
    pub ca: String,
}

/// Without the key.
impl std::fmt::Debug for ServerCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerCertificate").finish_non_exhaustive()
    }
}

/// Whose client certificates are believed (semantics.md §12.1). What is not of these CAs, or has expired, is wrong.
#[derive(Clone, Debug)]
pub struct ClientCertificates {
    /// The CA of users' certificates, PEM (`--client-ca-file`).
    pub ca: String,
    /// The CA of front proxies' certificates, PEM (`--requestheader-client-ca-file`); `None` for no front proxy.
    pub request_header_ca: Option<String>,
    /// Common names that such a certificate may have; empty for any.
    pub request_header_allowed_names: Vec<String>,
}

/// Someone who may use the simulator.
#[derive(Clone, Debug, Default)]
pub struct User {
    /// The bearer token; empty for one who has none, as the holder of a certificate.
    pub token: String,
    /// The user's name.
    pub name: String,
    /// The user's uid; empty for none.
    pub uid: String,
    /// The user's groups, besides `system:authenticated`. A member of `system:masters` may do everything.
    pub groups: Vec<String>,
    /// What the user may do, besides what stored roles and bindings grant.
    pub rules: Vec<Rule>,
}

impl User {
    /// A user who may do everything.
    pub fn admin(token: &str, name: &str) -> Self {
        let groups = vec!["system:masters".to_owned()];
        Self { token: token.to_owned(), name: name.to_owned(), groups, ..Self::default() }
    }

    /// A user with these rules only.
    pub fn with_rules(token: &str, name: &str, rules: Vec<Rule>) -> Self {
        Self { token: token.to_owned(), name: name.to_owned(), rules, ..Self::default() }
    }
}

/// A permission. In each list `*` stands for everything, but of the verbs it does not stand for `impersonate`;
/// `namespaces` without it never covers a request at the cluster scope.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Verbs such as `list`.
    pub verbs: Vec<String>,
    /// API groups; the core group is `""`.
    pub groups: Vec<String>,
    /// Resources, with a subresource as `pods/log`.
    pub resources: Vec<String>,
    /// Namespaces.
    pub namespaces: Vec<String>,
}

impl Rule {
    /// A rule over all API groups.
    pub fn new(verbs: &[&str], resources: &[&str], namespaces: &[&str]) -> Self {
        let owned = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        Self {
            verbs: owned(verbs),
            groups: owned(&["*"]),
            resources: owned(resources),
            namespaces: owned(namespaces),
        }
    }
}

//! The settings of a simulator.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// The settings of a [`Simulator`](super::Simulator). The default suits tests and the demo: plain
/// HTTP on a free port of the loopback interface, every user an administrator, and the behaviour of
/// Kubernetes 1.36.
#[derive(Clone, Debug)]
pub struct SimulatorOptions {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// Whether it serves TLS. Its certificate is generated with a CA of its own.
    pub tls: bool,
    /// The CAs of client certificates; only with TLS.
    pub client_certificates: Option<ClientCertificates>,
    /// The users, by bearer token. If it is empty and there are no client certificates, every
    /// request is allowed as an administrator.
    pub users: Vec<User>,
    /// Whether a request without a credential is authenticated as `system:anonymous`; otherwise it
    /// gets 401.
    pub anonymous: bool,
    /// The minor version of Kubernetes to imitate. Before 34 there are no watch-lists and no
    /// unrequested end bookmarks; from 37 on watch-lists are compressed. From 38 on the 404 of an
    /// unknown path below `/apis` is a Status.
    pub minor: u32,
    /// Whether the feature gate `ShardedListAndWatch` is on.
    pub shard_selectors: bool,
    /// The number of API servers before the one store. A balancer behind the one address gives each
    /// connection to one of them.
    pub servers: usize,
    /// The number of events of each resource that are available to watches and exact lists.
    pub history_events_max: usize,
    /// Whether the store records all writes, for a checker. The record grows without a bound.
    pub records_writes: bool,
    /// Whether all received requests are recorded, for a checker. The record grows without a bound.
    pub records_requests: bool,
    /// How long an API server takes for a request that is no watch.
    pub service_time: Duration,
    /// The requests that one API server has in flight; it answers 429 to more, as priority and
    /// fairness does. Watches and those of `system:masters` do not count. `None` for no limit.
    pub requests_max: Option<usize>,
    /// The interval between bookmarks of a watch; the upstream's is a minute.
    pub bookmark_interval: Duration,
    /// The limit on a request's wait for a resourceVersion; the upstream's is three seconds.
    pub freshness_timeout: Duration,
}

impl Default for SimulatorOptions {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            tls: false,
            client_certificates: None,
            users: Vec::new(),
            anonymous: true,
            minor: 36,
            shard_selectors: false,
            servers: 1,
            history_events_max: 4096,
            records_writes: false,
            records_requests: false,
            service_time: Duration::ZERO,
            requests_max: None,
            bookmark_interval: Duration::from_secs(60),
            freshness_timeout: Duration::from_secs(3),
        }
    }
}

impl SimulatorOptions {
    /// Returns whether every request is allowed as an administrator, whatever its credential.
    pub(super) fn open(&self) -> bool {
        self.users.is_empty() && self.client_certificates.is_none()
    }

    /// Returns whether lists of the latest state, and with them continue tokens, come from the
    /// watch cache (`docs/semantics.md` §3.4).
    pub(super) fn lists_from_cache(&self) -> bool {
        self.minor >= 31
    }

    /// Returns whether zero metadata has `creationTimestamp` as null (`docs/semantics.md` §3.6).
    pub(super) fn shows_zero_time(&self) -> bool {
        self.minor < 34
    }

    /// Returns whether watches can begin with the state and mark its end by a bookmark
    /// (`docs/semantics.md` §1.4).
    pub(super) fn watch_list(&self) -> bool {
        self.minor >= 34
    }

    /// Returns whether watch-lists are compressed (`docs/semantics.md` §5.13).
    pub(super) fn compresses_watch_lists(&self) -> bool {
        self.minor >= 37
    }
}

/// The CAs of client certificates (`docs/semantics.md` §12.1). An expired certificate, or one of
/// another CA, is an invalid credential.
#[derive(Clone, Debug)]
pub struct ClientCertificates {
    /// The CA of users' certificates, in PEM (`--client-ca-file`).
    pub ca: String,
    /// The CA of front proxies' certificates, in PEM (`--requestheader-client-ca-file`); `None` for
    /// no front proxy.
    pub request_header_ca: Option<String>,
    /// The allowed common names of a front proxy's certificate; empty for any.
    pub request_header_allowed_names: Vec<String>,
}

/// A user of the simulator.
#[derive(Clone, Debug, Default)]
pub struct User {
    /// The bearer token; empty for a user without one, such as the holder of a certificate.
    pub token: String,
    /// The user's name.
    pub name: String,
    /// The user's uid; empty for none.
    pub uid: String,
    /// The user's groups, besides `system:authenticated`. A member of `system:masters` may do
    /// everything.
    pub groups: Vec<String>,
    /// The user's rules, besides those of stored roles and bindings.
    pub rules: Vec<Rule>,
}

impl User {
    /// Returns a user who may do everything.
    pub fn admin(token: &str, name: &str) -> Self {
        let groups = vec!["system:masters".to_owned()];
        Self { token: token.to_owned(), name: name.to_owned(), groups, ..Self::default() }
    }

    /// Returns a user with only these rules.
    pub fn with_rules(token: &str, name: &str, rules: Vec<Rule>) -> Self {
        Self { token: token.to_owned(), name: name.to_owned(), rules, ..Self::default() }
    }
}

/// A permission. In each list `*` means everything, except that among the verbs it does not include
/// `impersonate`. A rule whose `namespaces` lack `*` never covers a request at the cluster scope.
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
    /// Returns a rule over all API groups.
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

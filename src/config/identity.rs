//! `authentication` and `authorization`.

use std::path::PathBuf;
use std::time::Duration;

use crate::config::kinds::{Derived, List, Maybe, Part, Required};
use crate::config::scalars::{
    COUNT, DAY, Flag, Number, Parsed, Plain, Time, TimeOrNever, WEEK, Word, words,
};
use crate::config::section::section;

section! {
    /// How clients are authenticated; all but `mode` is for [`Mode::Gateway`].
    pub struct AuthenticationConfig {
        /// sidecar: clients are not authenticated. gateway: each request is.
        restart mode: Mode = Mode::Sidecar, Word;

        /// The CA of client certificates, in PEM, read again when its content changes. The default
        /// is the API server's own setting, from the config map
        /// kube-system/extension-apiserver-authentication.
        restart client_ca["clientCAFile"]: Option<PathBuf> = None, Maybe(Plain);

        /// Front proxies, in place of the cluster's own setting in that config map. They name users
        /// with X-Remote-User, X-Remote-Uid, X-Remote-Group and X-Remote-Extra-. Weir asserts users
        /// to the API server with the same headers (frontProxy), and removes them from clients'
        /// requests.
        restart request_header: Option<RequestHeaderConfig> = None, Maybe(Part);

        /// Requests without a credential. forward: the API server decides. authorize: Weir answers
        /// them as system:anonymous; use this only where the API server accepts anonymous requests
        /// at every path (no conditions in its AuthenticationConfiguration). refuse: 401.
        restart anonymous: Anonymous = Anonymous::Forward, Word;

        /// Bearer tokens, which the API server reviews (TokenReview). They are forwarded unchanged.
        restart tokens: TokensConfig = TokensConfig::default(), Part;

        /// The client certificate with which requests of users with a client certificate are
        /// forwarded, whose TLS connection ends at Weir. The API server must trust it as a front
        /// proxy's (docs/how-to/certificates.md). Without it and without impersonate such users get
        /// 403 for requests that Weir does not answer itself.
        restart front_proxy: Option<FrontProxyConfig> = None, Maybe(Part);

        /// Whether requests of users with a client certificate are forwarded with Weir's own
        /// identity and Impersonate-* headers, where there is no frontProxy. Weir needs the
        /// permission to impersonate them.
        restart impersonate: bool = false, Flag;
    }
}

section! {
    /// Which front proxies are trusted (`--requestheader-*` of kube-apiserver).
    pub struct RequestHeaderConfig {
        /// The CA of front proxies' client certificates, in PEM. Without it every client could act
        /// as a front proxy.
        restart ca["clientCAFile"]: PathBuf = PathBuf::new(), Required(Plain);

        /// Common names that such a certificate may have; empty for every certificate of the CA.
        restart allowed_names: Vec<String> = Vec::new(), List(Parsed(not_empty));
    }
}

section! {
    /// Bearer tokens.
    pub struct TokensConfig {
        /// A token must be for one of these; empty for the API server's own audiences. With others,
        /// a token for an audience that is not the API server's gets answers from the cache, and
        /// 401 for every forwarded request.
        restart audiences: Vec<String> = Vec::new(), List(Parsed(not_empty));

        /// How long an accepted token is cached, never beyond its own expiry (0 to 1h; 0 asks every
        /// time); a rejected one is for 10s. A revoked token can read for at most ttl and 10s
        /// longer, since the API server caches its answers, too.
        // Half as long as delegated API servers cache it (docs/semantics.md §12.2), since the cache
        // of the API server that reviews it adds to this one (docs/decisions/authentication.md).
        restart ttl: Duration = Duration::from_secs(5), Time(Duration::ZERO, HOUR);
    }
}

section! {
    /// A client certificate of Weir's that kube-apiserver trusts as a front proxy's, PEM, read
    /// again when its content changes.
    pub struct FrontProxyConfig {
        /// The client certificate that the API server trusts as a front proxy's, in PEM.
        restart certificate["certificateFile"]: PathBuf = PathBuf::new(), Required(Plain);

        /// The key of certificateFile, in PEM.
        restart key["privateKeyFile"]: PathBuf = PathBuf::new(), Required(Plain);
    }
}

section! {
    /// How clients are authorized; for [`Mode::Gateway`].
    pub struct AuthorizationConfig {
        /// How long an access decision of the API server (SubjectAccessReview) is cached (0 to 1h;
        /// 0 asks every time). A user who loses a permission can read for at most allowTTL longer.
        /// A denial is cached as long, and for 10s at most.
        // As long as delegated API servers cache it (docs/semantics.md §12.3).
        restart allow_ttl["allowTTL"]: Duration = Duration::from_secs(10), Time(Duration::ZERO, HOUR);

        /// The interval at which open watches are re-authorized (1s or more), or never, as in the
        /// API server.
        // A user who lost the permission reads for at most a minute longer, at a cost of one review
        // a minute for each user and kind of access.
        restart watch_recheck: Option<Duration> = Some(Duration::from_secs(60)),
            TimeOrNever(Duration::from_secs(1), WEEK);

        /// The most reviews in a second (1 to 10000) that these re-authorizations cause. Each
        /// distinct token and permission of a user costs one in an interval, which grows where that
        /// is more: with the default, from 3,000 of them on. weir_watch_recheck_interval_seconds
        /// shows it, and SECURITY.md what follows.
        // Little for an API server, which answers one in about a millisecond.
        restart watch_reviews_per_second: u32 = 50, Number(1, 10_000);

        /// How long expired decisions are used while the API server is unreachable (at most 24h).
        /// Responses that rest on one are marked. 0 for never.
        restart stale_decision_grace: Duration = Duration::ZERO, Time(Duration::ZERO, DAY);

        /// Decisions by the cluster's roles and bindings, which Weir watches: they take
        /// microseconds, need no review, and a revocation takes effect with its event. Use this
        /// only where no authorizer before RBAC denies (a webhook may).
        restart rbac: RbacConfig = RbacConfig::default(), Part;

        /// What Weir answers to a list or watch of all namespaces that the API server refuses.
        /// off: its 403. namespaces: the objects of those namespaces in which roles allow the user
        /// the same, for all clients; for one request the header X-Weir-Filter says so too. Needs
        /// rbac (docs/decisions/filtered-lists.md).
        restart filtered_lists: FilteredLists = FilteredLists::Off, Word;

        /// How long a denied access is cached: as long as an allowed one, and 10 s at most.
        restart deny_ttl: Duration = DENY_TTL, Derived;
    }
}

section! {
    /// RBAC decisions from Weir's own caches of roles and bindings.
    pub struct RbacConfig {
        /// Whether Weir decides by the cluster's roles and bindings.
        restart enabled: bool = false, Flag;

        /// The API server is asked too for one of so many decisions by roles, and both are
        /// compared. A difference turns rbac off, and is logged and counted.
        // A thousandth of the reviews that RBAC saves, and still some every second on a busy
        // gateway.
        restart check_one_in: u32 = 1000, COUNT;
    }
}

/// What a list or watch of all namespaces shows to a user who may not read all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FilteredLists {
    /// Nothing: it is refused.
    #[default]
    Off,
    /// The objects of the namespaces in which roles allow the user the same.
    Namespaces,
}

words!(FilteredLists { Off: "off", Namespaces: "namespaces" });

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

impl Mode {
    /// Returns the mode of a gateway, or of a sidecar.
    pub(super) fn from_gateway_flag(is_gateway: bool) -> Self {
        if is_gateway { Self::Gateway } else { Self::Sidecar }
    }
}

words!(Mode { Sidecar: "sidecar", Gateway: "gateway" });

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

words!(Anonymous { Forward: "forward", Authorize: "authorize", Refuse: "refuse" });

fn not_empty(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("must not be empty".to_owned()) } else { Ok(text.to_owned()) }
}

/// Decisions of the API server are cached for at most an hour.
const HOUR: Duration = Duration::from_secs(3600);
/// The time for which delegated API servers cache a denial.
pub(super) const DENY_TTL: Duration = Duration::from_secs(10);

/// The headers of a file's front proxies: the names that the Kubernetes documentation and its
/// installers use, for the user's name, uid, groups and extra fields.
pub const FRONT_PROXY_HEADERS: [&str; 4] =
    ["X-Remote-User", "X-Remote-Uid", "X-Remote-Group", "X-Remote-Extra-"];

//! The users: every kind of credential, valid, invalid and combined, and every way to have a
//! permission or to lack it.

use super::credentials::{Certificate, LONG, PROXY, Pki};
use super::world::{ForwardedIdentity, World};

/// A user with its credentials.
#[derive(Clone)]
pub(crate) struct User {
    /// The name in messages.
    pub(crate) name: &'static str,
    pub(crate) certificate: Option<Certificate>,
    /// The token; empty for none.
    pub(crate) token: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    /// Whether the cache must answer the allowed requests that it can answer.
    pub(crate) hits: bool,
    /// Whether the user may read some Secret.
    pub(crate) secrets: bool,
}

/// A holder of a static token: the user's name, and a group.
pub(crate) const HOLDERS: [(&str, &str); 17] = [
    (ADMIN, "system:masters"),
    (WEIR, ""),
    ("tom", "readers"),
    ("dora", "devs"),
    ("nina", ""),
    ("noah", ""),
    ("sven", ""),
    ("sue", ""),
    ("nora", ""),
    ("gus", ""),
    ("mia", ""),
    ("ida", ""),
    ("dan", ""),
    ("rita", ""),
    ("otto", ""),
    ("zoe", ""),
    ("<&>\"", ""),
];

/// Users with other credentials, or outside the matrix.
const APART: [&str; 5] = [ADMIN, WEIR, "sven", "otto", "zoe"];
/// The user with all permissions.
pub(crate) const ADMIN: &str = "admin";
/// Weir's own identity.
pub(crate) const WEIR: &str = "weir";

/// The tokens of this run. Each contains a text that appears nowhere else.
#[derive(Clone)]
pub(crate) struct Tokens {
    /// The marker in every secret text of this run.
    pub(crate) canary: String,
    /// The token of the service account `a/robot`.
    pub(crate) robot: String,
}

impl Tokens {
    /// Returns the static token of a user.
    pub(crate) fn token_of(&self, name: &str) -> String {
        let number = HOLDERS.iter().position(|(holder, _)| *holder == name).unwrap();
        format!("t{number}-{}", self.canary)
    }
}

/// All users. With `authorization.rbac` Weir decides about impersonation, else it forwards it.
pub(crate) fn users(World { pki, tokens, setting, .. }: &World) -> Vec<User> {
    let rbac = setting.rbac();
    let nobody = User {
        name: "nobody",
        certificate: None,
        token: String::new(),
        headers: Vec::new(),
        hits: true,
        secrets: false,
    };
    let holder = |name: &'static str| User { name, token: tokens.token_of(name), ..nobody.clone() };
    let shows = |name: &'static str, certificate: Certificate| User {
        name,
        certificate: Some(certificate),
        ..nobody.clone()
    };
    let dev = pki.clients.client("carl", "devs", LONG);
    let proxy = pki.proxies.client(PROXY, "", LONG);
    let with = |user: User, name: &'static str, headers: &[(&'static str, &str)]| User {
        name,
        headers: headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(),
        ..user
    };
    let mixed = |name, certificate: &Certificate, token: String| User {
        name,
        certificate: Some(certificate.clone()),
        token,
        ..nobody.clone()
    };
    let other = pki.others.client("carl", "system:masters", LONG);
    let wrong = || format!("wrong-{}", tokens.canary);
    let remote = [("x-remote-user", ADMIN), ("x-remote-group", "system:masters")];
    let asserted =
        [("x-remote-user", "tom"), ("x-remote-group", "readers"), ("x-remote-extra-a%2fb", "c")];
    let as_tom = [("impersonate-user", "tom")];
    // Further headers that clients may send, and that must have no effect.
    let (cookie, basic) =
        (format!("session={}", tokens.canary), format!("Basic {}", tokens.canary));
    let further = [remote[0], remote[1], ("cookie", &cookie), ("proxy-authorization", &basic)];
    let as_tom_and_more = [as_tom[0], ("impersonate-extra-scopes", tokens.canary.as_str())];
    let forwarded = |user: User| User { hits: false, ..user };
    let mut users = vec![
        User { secrets: true, ..holder(ADMIN) },
        User {
            secrets: true,
            ..shows("masters certificate", pki.clients.client("root", "system:masters", LONG))
        },
        User { secrets: true, ..holder("sven") },
        shows("dev certificate", dev.clone()),
        shows("certificate without permissions", pki.clients.client("nils", "", LONG)),
        shows("expired certificate", pki.clients.expired("carl", "devs")),
        shows("expired masters certificate", pki.clients.expired("root", "system:masters")),
        shows("another CA's certificate", other.clone()),
        User { name: "service account", token: tokens.robot.clone(), ..nobody.clone() },
        User { name: "wrong token", token: wrong(), ..nobody.clone() },
        mixed("wrong token, good certificate", &dev, wrong()),
        mixed("good token, wrong certificate", &other, tokens.token_of("tom")),
        mixed("both wrong", &other, wrong()),
        mixed("token and certificate", &dev, tokens.token_of("tom")),
        forwarded(nobody.clone()),
        forwarded(with(nobody.clone(), "basic", &[("authorization", "Basic YWRtaW46YWRtaW4=")])),
        forwarded(with(nobody.clone(), "empty bearer", &[("authorization", "Bearer ")])),
        forwarded(with(nobody.clone(), "asserted by nobody", &remote)),
        with(holder("noah"), "asserted by a token", &further),
        with(shows("", dev.clone()), "asserted by a certificate", &remote),
        shows("front proxy, silent", proxy.clone()),
        mixed("front proxy with a token", &proxy, tokens.token_of("tom")),
        with(shows("", proxy), "asserted by a front proxy", &asserted),
        with(shows("", pki.proxies.client("other", "", LONG)), "asserted by another name", &remote),
        forwarded(with(holder("noah"), "impersonates without", &as_tom_and_more)),
    ];
    for (name, hits, headers) in impersonations() {
        users.push(User { hits: hits && rbac, ..with(holder("ida"), name, headers) });
    }
    // With Weir's own impersonation it cannot forward these.
    if setting.forwarded_identity == ForwardedIdentity::FrontProxy {
        let ida = shows("", pki.clients.client("ida", "", LONG));
        let asserted = [("x-remote-user", "ida"), as_tom[0]];
        users.push(User { hits: rbac, ..with(ida, "a certificate impersonates", &as_tom) });
        let proxy = shows("", pki.proxies.client(PROXY, "", LONG));
        users.push(User {
            hits: rbac,
            ..with(proxy, "a front proxy's user impersonates", &asserted)
        });
    }
    let rest = HOLDERS.iter().map(|(name, _)| *name).filter(|name| !APART.contains(name));
    users.extend(rest.map(holder));
    let certificates = users.iter().filter_map(|user| user.certificate.as_ref());
    certificates.for_each(|certificate| pki.remember(certificate));
    users
}

/// What `ida` sends: a name, whether all of it is allowed and decided by Weir, and the headers.
fn impersonations() -> [(&'static str, bool, &'static [(&'static str, &'static str)]); 11] {
    const TOM: (&str, &str) = ("impersonate-user", "tom");
    [
        ("impersonates by permission", true, &[TOM]),
        ("impersonates groups", true, &[TOM, GROUP, ("impersonate-group", "readers")]),
        ("impersonates all parts", true, &[TOM, GROUP, UID, EXTRA]),
        ("impersonates an account", true, &[ROBOT]),
        ("impersonates the anonymous user", true, &[("impersonate-user", "system:anonymous")]),
        (
            "impersonates another account",
            false,
            &[("impersonate-user", "system:serviceaccount:b:robot")],
        ),
        ("impersonates a node", false, &[("impersonate-user", "system:node:x")]),
        ("impersonates too much", false, &[TOM, ("impersonate-group", "system:masters")]),
        ("impersonates a group alone", false, &[GROUP]),
        (
            "impersonates many groups",
            false,
            &[
                TOM, GROUP, GROUP, GROUP, GROUP, GROUP, GROUP, GROUP, GROUP, GROUP, GROUP, GROUP,
                GROUP, GROUP, GROUP, GROUP, GROUP, GROUP,
            ],
        ),
        ("impersonates another extra", false, &[TOM, ("impersonate-extra-other", "view")]),
    ]
}

const GROUP: (&str, &str) = ("impersonate-group", "devs");
const UID: (&str, &str) = ("impersonate-uid", "u-1");
const EXTRA: (&str, &str) = ("impersonate-extra-a%2fscope", "view");
/// The header of who acts as the service account `a/robot`.
pub(crate) const ROBOT: (&str, &str) = ("impersonate-user", "system:serviceaccount:a:robot");

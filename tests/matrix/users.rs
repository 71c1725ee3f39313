//! The users: every kind of credential, valid, invalid and combined, and every way to have a
//! permission or to lack it.

use super::credentials::{Certificate, LONG, PROXY};
use super::impersonators::impersonators;
use super::world::World;

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

/// A user without a credential.
pub(super) fn nobody() -> User {
    User {
        name: "nobody",
        certificate: None,
        token: String::new(),
        headers: Vec::new(),
        hits: true,
        secrets: false,
    }
}

/// All users.
pub(crate) fn users(world: &World) -> Vec<User> {
    let World { pki, tokens, .. } = world;
    let nobody = nobody();
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
    users.extend(impersonators(world));
    let rest = HOLDERS.iter().map(|(name, _)| *name).filter(|name| !APART.contains(name));
    users.extend(rest.map(holder));
    let certificates = users.iter().filter_map(|user| user.certificate.as_ref());
    certificates.for_each(|certificate| pki.remember(certificate));
    users
}

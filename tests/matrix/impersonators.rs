//! The users who act as others: `ida` may act as some. With `authorization.rbac` Weir decides about
//! them, else it forwards them.

use super::credentials::{LONG, PROXY};
use super::users::{User, nobody};
use super::world::{ForwardedIdentity, World};

type Header = (&'static str, &'static str);

pub(super) fn impersonators(World { pki, tokens, setting, .. }: &World) -> Vec<User> {
    let hits = setting.rbac();
    let with = |headers: &[Header]| {
        headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()
    };
    let ida = User { token: tokens.token_of("ida"), ..nobody() };
    let allowed =
        ALLOWED.map(|(name, headers)| User { name, headers: with(headers), hits, ..ida.clone() });
    let forwarded = FORWARDED.map(|(name, headers)| User {
        name,
        headers: with(headers),
        hits: false,
        ..ida.clone()
    });
    let mut users = [&allowed[..], &forwarded[..]].concat();
    let groups = with(&[&[TOM][..], &[GROUP; 17]].concat());
    users.push(User { name: "impersonates many groups", headers: groups, hits: false, ..ida });
    // With Weir's own impersonation it cannot forward these.
    if setting.forwarded_identity == ForwardedIdentity::FrontProxy {
        let by = |name, headers: &[Header], certificate| User {
            name,
            certificate: Some(certificate),
            headers: with(headers),
            hits,
            ..nobody()
        };
        let certificate = pki.clients.client("ida", "", LONG);
        users.push(by("a certificate impersonates", &[TOM], certificate));
        let asserted = [("x-remote-user", "ida"), TOM];
        let proxy = pki.proxies.client(PROXY, "", LONG);
        users.push(by("a front proxy's user impersonates", &asserted, proxy));
    }
    users
}

/// What `ida` may do.
const ALLOWED: [(&str, &[Header]); 5] = [
    ("impersonates by permission", &[TOM]),
    ("impersonates groups", &[TOM, GROUP, ("impersonate-group", "readers")]),
    (
        "impersonates all parts",
        &[TOM, GROUP, ("impersonate-uid", "u-1"), ("impersonate-extra-a%2fscope", "view")],
    ),
    ("impersonates an account", &[ROBOT]),
    ("impersonates the anonymous user", &[("impersonate-user", "system:anonymous")]),
];
/// What `ida` may not do, or what Weir does not decide.
const FORWARDED: [(&str, &[Header]); 5] = [
    ("impersonates another account", &[("impersonate-user", "system:serviceaccount:b:robot")]),
    ("impersonates a node", &[("impersonate-user", "system:node:x")]),
    ("impersonates too much", &[TOM, ("impersonate-group", "system:masters")]),
    ("impersonates a group alone", &[GROUP]),
    ("impersonates another extra", &[TOM, ("impersonate-extra-other", "view")]),
];

const TOM: Header = ("impersonate-user", "tom");
const GROUP: Header = ("impersonate-group", "devs");
/// The header of whoever acts as the service account `a/robot`.
pub(super) const ROBOT: Header = ("impersonate-user", "system:serviceaccount:a:robot");

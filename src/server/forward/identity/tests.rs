//! The exact headers that are forwarded for each identity.

use std::collections::BTreeMap;
use std::net::IpAddr;

use http::{HeaderName, HeaderValue};

use super::*;
use crate::auth::request_header::RequestHeaderNames;
use crate::auth::trust::{ProxyHeaderNames, ProxyHeaders, Setting};
use crate::testing::headers;

fn user(name: &str, groups: &[&str]) -> Arc<User> {
    let groups = groups.iter().map(|group| (*group).to_owned()).collect();
    Arc::new(User::new(name.to_owned(), String::new(), groups, BTreeMap::new()))
}

fn jane() -> Arc<User> {
    let extra = BTreeMap::from([
        ("acme.com/x y%".to_owned(), vec!["1".to_owned(), "zwei ü".to_owned()]),
        ("scopes".to_owned(), vec!["all".to_owned()]),
    ]);
    let groups =
        vec!["dev".to_owned(), "Köche, alle".to_owned(), "system:authenticated".to_owned()];
    Arc::new(User::new("jane".to_owned(), "u-1".to_owned(), groups, extra))
}

fn apply(identity: &ForwardedIdentity, given: HeaderMap) -> Result<HeaderMap, Status> {
    // The usual headers are removed whatever the settings list.
    apply_with(&IdentityNames::set(listed(&["X-Proxy-"])), identity, given)
}

/// Returns the settings of a cluster that lists headers with these prefixes.
fn listed(heads: &[&str]) -> RequestHeaderNames {
    let names_of_heads =
        |name: &str| heads.iter().map(|head| format!(" {head}{name} ")).collect::<Vec<_>>();
    let prefixes = [names_of_heads("Extra-"), vec![String::new()]].concat();
    RequestHeaderNames::new(
        Vec::new(),
        &names_of_heads("User"),
        &names_of_heads("Uid"),
        &names_of_heads("Group"),
        &prefixes,
    )
}

fn apply_with(
    names: &IdentityNames,
    identity: &ForwardedIdentity,
    given: HeaderMap,
) -> Result<HeaderMap, Status> {
    let address = Some(IpAddr::from([10, 0, 0, 1]));
    let mut given = given;
    identity.apply(names, address, &mut given).map(|()| given)
}

/// Returns a request with identity headers that a client may try to send.
fn given() -> HeaderMap {
    headers(&[
        ("accept", "application/json"),
        ("authorization", "Bearer theirs"),
        ("proxy-authorization", "Basic x"),
        ("sec-websocket-protocol", "base64url.bearer.authorization.k8s.io.eA, v5.channel.k8s.io"),
        ("x-remote-user", "admin"),
        ("x-remote-group", "system:masters"),
        ("x-remote-uid", "0"),
        ("x-remote-extra-scopes", "none"),
        ("x-proxy-user", "admin"),
        ("x-proxy-group", "system:masters"),
        ("x-proxy-uid", "0"),
        ("x-proxy-extra-a", "b"),
        ("connection", "keep-alive, x-hop"),
        ("x-hop", "1"),
    ])
}

fn expect(forwarded: &[(&'static str, &'static str)]) -> HeaderMap {
    let mut expected = headers(&[("accept", "application/json"), ("x-forwarded-for", "10.0.0.1")]);
    for (name, value) in forwarded {
        expected.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    expected
}

const WITHOUT_TOKEN: (&str, &str) = ("sec-websocket-protocol", "v5.channel.k8s.io");

#[test]
fn weirs_identity_removes_the_clients_identity_headers() {
    assert_eq!(apply(&ForwardedIdentity::Weir, given()).unwrap(), expect(&[WITHOUT_TOKEN]));
}

#[test]
fn as_is_keeps_credentials_and_removes_front_proxy_headers() {
    let forwarded = apply(&ForwardedIdentity::AsIs, given()).unwrap();
    assert_eq!(
        forwarded,
        expect(&[
            ("authorization", "Bearer theirs"),
            (
                "sec-websocket-protocol",
                "base64url.bearer.authorization.k8s.io.eA, v5.channel.k8s.io"
            ),
        ])
    );
    assert!(forwarded["authorization"].is_sensitive(), "never indexed by HPACK");
}

#[test]
fn a_front_proxy_sends_the_user_and_no_identity_header_of_the_client() {
    let names = IdentityNames::set(listed(&["X-Remote-", "x-remote-"]));
    let mut claimed = given();
    for name in ["user", "group", "uid", "extra-a"] {
        claimed.remove(format!("x-proxy-{name}"));
    }
    let forwarded = apply_with(&names, &ForwardedIdentity::FrontProxy(jane()), claimed).unwrap();
    assert_eq!(forwarded, expect(&[&[WITHOUT_TOKEN], &remote_user("x-remote")[..]].concat()));
}

/// Returns Jane's identity in headers with this prefix.
fn remote_user(prefix: &str) -> Vec<(&'static str, &'static str)> {
    let pairs = [
        ("user", "jane"),
        ("uid", "u-1"),
        ("group", "dev"),
        ("group", "Köche, alle"),
        ("group", "system:authenticated"),
        ("extra-acme.com%2fx%20y%25", "1"),
        ("extra-acme.com%2fx%20y%25", "zwei ü"),
        ("extra-scopes", "all"),
    ];
    pairs.map(|(name, value)| (&*format!("{prefix}-{name}").leak(), value)).to_vec()
}

#[test]
fn a_front_proxy_sends_all_headers_that_the_upstream_reads() {
    for heads in [&["X-Proxy-"][..], &["X-Proxy-", "X-Other-", "X-Remote-"]] {
        let names = IdentityNames::set(listed(heads));
        let mut claimed = given();
        if heads.len() > 1 {
            claimed.insert("x-other-user", HeaderValue::from_static("admin"));
        }
        let forwarded =
            apply_with(&names, &ForwardedIdentity::FrontProxy(jane()), claimed).unwrap();
        let mut expected = vec![WITHOUT_TOKEN];
        expected.extend(
            heads.iter().flat_map(|head| remote_user(head.to_lowercase().trim_end_matches('-'))),
        );
        assert_eq!(forwarded, expect(&expected));
    }
    // These are kube-apiserver's default headers: none is for the uid.
    let (name, group) = (["X-Remote-User".to_owned()], ["X-Remote-Group".to_owned()]);
    let names = IdentityNames::set(RequestHeaderNames::new(Vec::new(), &name, &[], &group, &[]));
    let forwarded = apply_with(&names, &ForwardedIdentity::FrontProxy(jane()), given()).unwrap();
    let sent: Vec<_> = forwarded.keys().filter(|name| name.as_str().starts_with("x-r")).collect();
    assert_eq!(sent, ["x-remote-user", "x-remote-group"]);
    // A user without its groups would have other permissions, and without its name would be Weir
    // itself.
    let alone = RequestHeaderNames::new(Vec::new(), &name, &[], &[], &[]);
    let refused = |names, who| {
        let names = IdentityNames::set(names);
        apply_with(&names, &ForwardedIdentity::FrontProxy(who), given())
            .map_err(|status| status.code.as_u16())
    };
    let plain = user("jane", &["system:authenticated"]);
    assert!(refused(alone.clone(), plain.clone()).is_ok());
    assert_eq!(refused(alone, jane()), Err(403));
    assert_eq!(
        refused(RequestHeaderNames::new(Vec::new(), &[], &[], &group, &[]), plain),
        Err(403)
    );
}

#[test]
fn names_follow_the_settings() {
    let settings = ProxyHeaders::default();
    let names = IdentityNames::new(settings.clone());
    let claims = || headers(&[("x-corp-user", "admin"), ("x-remote-user", "admin")]);
    let sent = |identity: &ForwardedIdentity| {
        let forwarded =
            apply_with(&names, identity, claims()).map_err(|status| status.code.as_u16())?;
        let names = forwarded.keys().map(HeaderName::as_str).filter(|name| name.ends_with("-user"));
        Ok(names.map(str::to_owned).collect::<Vec<_>>())
    };
    let ways = [
        ForwardedIdentity::AsIs,
        ForwardedIdentity::FrontProxy(jane()),
        ForwardedIdentity::Impersonate(jane()),
    ];
    // The settings are unknown: only the usual headers are recognized. Any other passes only where
    // the upstream trusts none.
    let words = |words: &[&str]| Ok(words.iter().map(|&word| word.to_owned()).collect());
    assert_eq!(ways.each_ref().map(sent), [words(&["x-corp-user"]), Err(503), Err(503)]);
    // The cluster has no front proxy.
    settings.store(ProxyHeaderNames::only(Setting::Unset));
    let impersonated = words(&["x-corp-user", "impersonate-user"]);
    assert_eq!(ways.each_ref().map(sent), [words(&["x-corp-user"]), Err(403), impersonated]);
    // The cluster has a front proxy, and later a different one.
    let set = |names: &[&str]| Setting::Set(Arc::new(listed(names)));
    settings.store(ProxyHeaderNames::only(set(&["X-Remote-", "X-Corp-"])));
    let both = words(&["x-remote-user", "x-corp-user"]);
    assert_eq!(ways.each_ref().map(sent), [words(&[]), both, words(&["impersonate-user"])]);
    settings.store(ProxyHeaderNames::only(set(&["X-Corp-"])));
    let other = [words(&[]), words(&["x-corp-user"]), words(&["impersonate-user"])];
    assert_eq!(ways.each_ref().map(sent), other);
    // A file names the headers, and the cluster has others.
    let (trusted, cluster) = (set(&["X-Remote-"]), Setting::Unknown);
    settings.store(ProxyHeaderNames { trusted: trusted.clone(), cluster });
    assert_eq!(ways.each_ref().map(sent), [words(&["x-corp-user"]), Err(503), Err(503)]);
    settings.store(ProxyHeaderNames { trusted, cluster: set(&["X-Corp-"]) });
    let file = [words(&[]), words(&["x-remote-user"]), words(&["impersonate-user"])];
    assert_eq!(ways.each_ref().map(sent), file);
}

#[test]
fn impersonation_omits_groups_that_the_upstream_adds() {
    let forwarded = apply(&ForwardedIdentity::Impersonate(jane()), given()).unwrap();
    assert_eq!(
        forwarded,
        expect(&[
            WITHOUT_TOKEN,
            ("impersonate-user", "jane"),
            ("impersonate-uid", "u-1"),
            ("impersonate-group", "dev"),
            ("impersonate-group", "Köche, alle"),
            ("impersonate-extra-acme.com%2fx%20y%25", "1"),
            ("impersonate-extra-acme.com%2fx%20y%25", "zwei ü"),
            ("impersonate-extra-scopes", "all"),
        ])
    );
    // Without groups, the API server would give this account those of its namespace.
    let account = user("system:serviceaccount:a:b", &["system:authenticated"]);
    let forwarded = apply(&ForwardedIdentity::Impersonate(account), HeaderMap::new()).unwrap();
    assert_eq!(forwarded["impersonate-group"], "system:authenticated");
}

#[test]
fn a_clients_impersonation_is_forwarded_or_refused() {
    let name = ("impersonate-user", "root");
    for identity in
        [ForwardedIdentity::Weir, ForwardedIdentity::AsIs, ForwardedIdentity::FrontProxy(jane())]
    {
        let forwarded = apply(&identity, headers(&[name])).unwrap();
        assert_eq!(forwarded.get_all("impersonate-user").iter().count(), 1);
        assert_eq!(forwarded["impersonate-user"], "root");
    }
    for header in [name, ("impersonate-group", "g"), ("impersonate-extra-x", "y")] {
        let refused =
            apply(&ForwardedIdentity::Impersonate(jane()), headers(&[header])).unwrap_err();
        assert_eq!((refused.code.as_u16(), refused.reason), (403, "Forbidden"));
        assert!(refused.message.contains("cannot be combined"), "{}", refused.message);
    }
}

#[test]
fn connection_may_not_name_an_identity_header() {
    for identity in [
        ForwardedIdentity::Weir,
        ForwardedIdentity::AsIs,
        ForwardedIdentity::FrontProxy(jane()),
        ForwardedIdentity::Impersonate(jane()),
    ] {
        for name in [
            "X-Remote-User",
            "authorization",
            "Impersonate-Group",
            "X-Proxy-User",
            "x-proxy-extra-a",
            "close, x-remote-extra-a",
        ] {
            let mut given = HeaderMap::new();
            given.insert("connection", HeaderValue::from_str(name).unwrap());
            let refused = apply(&identity, given).unwrap_err();
            assert_eq!(refused.code.as_u16(), 400, "{identity:?} {name}");
        }
    }
}

#[test]
fn users_that_would_be_read_as_another_user_are_refused() {
    for odd in [
        user("", &[]),
        user("jane\r\nx-remote-group: system:masters", &[]),
        user("jane\0", &[]),
        user(" admin", &[]),
        user("admin\t", &[]),
        user("jane", &["dev\n"]),
        user("jane", &[" system:masters"]),
        user("jane", &["system:masters\t"]),
        user("jane", &["\u{7f}"]),
    ] {
        for identity in [
            ForwardedIdentity::FrontProxy(odd.clone()),
            ForwardedIdentity::Impersonate(odd.clone()),
        ] {
            let refused = apply(&identity, HeaderMap::new()).unwrap_err();
            assert_eq!((refused.code.as_u16(), refused.reason), (403, "Forbidden"), "{odd:?}");
            assert!(!refused.message.contains("masters"));
        }
    }
}

#[test]
fn a_full_header_map_does_not_panic() {
    let mut given = HeaderMap::new();
    let mut number = 0;
    while given
        .try_append(HeaderName::try_from(format!("n{number}")).unwrap(), HeaderValue::from(number))
        .is_ok()
    {
        number += 1;
    }
    assert!(apply(&ForwardedIdentity::AsIs, given.clone()).is_ok());
    assert!(apply(&ForwardedIdentity::FrontProxy(jane()), given).is_err());
}

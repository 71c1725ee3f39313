//! Tests of the headers that ask for impersonation.

use http::HeaderName;

use super::*;
use crate::auth::user::AUTHENTICATED;

fn impersonation(headers: &[(&str, &[u8])]) -> Option<Impersonation> {
    let mut given = HeaderMap::new();
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        given.append(name, HeaderValue::from_bytes(value).unwrap());
    }
    Impersonation::from_headers(&given)
}

/// Returns what the sender must be allowed, as `resource/subresource namespace/name`.
fn permissions(impersonation: &Impersonation) -> Vec<String> {
    let words = impersonation.permissions.iter().map(|attributes| match attributes {
        Attributes::Resource(at) => {
            format!("{}/{} {}/{}", at.gvr.resource, at.subresource, at.namespace, at.name)
        }
        Attributes::NonResource(_) => unreachable!("only resources are impersonated"),
    });
    words.collect()
}

#[test]
fn each_part_needs_a_permission() {
    let all = impersonation(&[
        ("impersonate-user", b"jane"),
        ("impersonate-group", b"devs"),
        ("impersonate-group", b"ops"),
        ("impersonate-extra-acme.com%2fscope", b"view"),
        ("impersonate-extra-acme.com%2fscope", b"edit"),
        ("impersonate-uid", b"u-1"),
    ])
    .unwrap();
    let expected = [
        "users/ /jane",
        "groups/ /devs",
        "groups/ /ops",
        "userextras/acme.com/scope /view",
        "userextras/acme.com/scope /edit",
        "uids/ /u-1",
    ];
    assert_eq!(permissions(&all), expected);
    let User { name, uid, groups, extra, .. } = &*all.user;
    assert_eq!((name.as_str(), uid.as_str()), ("jane", "u-1"));
    assert_eq!(groups[..], ["devs", "ops", AUTHENTICATED]);
    assert_eq!(extra["acme.com/scope"], ["view", "edit"]);
}

#[test]
fn a_user_has_the_groups_of_the_api_server() {
    let groups = |headers: &[(&str, &[u8])]| impersonation(headers).unwrap().user.groups.clone();
    let user = |name: &'static str| ("impersonate-user", name.as_bytes());
    let group = |name: &'static str| ("impersonate-group", name.as_bytes());
    assert_eq!(groups(&[user("jane")]), [AUTHENTICATED]);
    assert_eq!(groups(&[user(ANONYMOUS)]), [UNAUTHENTICATED]);
    assert_eq!(groups(&[user("jane"), group(UNAUTHENTICATED)]), [UNAUTHENTICATED]);
    assert_eq!(groups(&[user(ANONYMOUS), group("a")]), ["a", UNAUTHENTICATED]);
    let robot = user("system:serviceaccount:a:robot");
    let of_robot = ["system:serviceaccounts", "system:serviceaccounts:a", AUTHENTICATED];
    assert_eq!(groups(&[robot]), of_robot);
    assert_eq!(groups(&[robot, group("a")]), ["a", AUTHENTICATED]);
    assert_eq!(permissions(&impersonation(&[robot]).unwrap()), ["serviceaccounts/ a/robot"]);
}

/// The API server refuses these headers, reads them in another way, or decides by other rules.
#[test]
fn what_is_not_plain_is_left_to_the_api_server() {
    let jane = ("impersonate-user", &b"jane"[..]);
    for headers in [
        &[("impersonate-group", &b"devs"[..])][..],
        &[("impersonate-user", b"")],
        &[jane, ("impersonate-user", b"joe")],
        &[("impersonate-user", b"\xff")],
        &[("impersonate-user", b"system:node:n1")],
        &[("impersonate-user", b"system:serviceaccount:a")],
        &[("impersonate-user", b"system:serviceaccount:a:b:c")],
        &[("impersonate-user", b"system:serviceaccount::b")],
        &[jane, ("impersonate-group", b"")],
        &[jane, ("impersonate-uid", b"1"), ("impersonate-uid", b"2")],
        &[jane, ("impersonate-role", b"admin")],
        &[jane, ("impersonate-extra-", b"x")],
        &[jane, ("impersonate-extra-a%2", b"x")],
        &[jane, ("impersonate-extra-a%zz", b"x")],
        &[jane, ("impersonate-extra-a%ff", b"x")],
        &[jane, ("impersonate-extra-%41", b"x")],
        &[jane, ("impersonate-extra-a", b"x"), ("impersonate-extra-%61", b"y")],
    ] {
        assert!(impersonation(headers).is_none(), "{headers:?}");
    }
    let groups = |count: usize| {
        let mut headers = vec![jane];
        headers.extend((0..count).map(|_| ("impersonate-group", &b"g"[..])));
        impersonation(&headers)
    };
    assert!(groups(PARTS_MAX).is_some());
    assert!(groups(PARTS_MAX + 1).is_none());
    let long = vec![b'g'; BYTES_MAX];
    assert!(impersonation(&[jane, ("impersonate-group", &long)]).is_none());
}

//! The decision as a table, a line for each row of semantics.md §1.4 to §1.6 and of the design, section 9.

use http::HeaderValue;

use super::*;
use crate::api::resource::{GroupVersionResource, built_in};

fn decide_with(method: &Method, uri: &str, given: &[(&'static str, &'static str)]) -> Decision {
    let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        headers.append(*name, HeaderValue::from_static(value));
    }
    let info = RequestInfo::parse(method, path, query);
    decide(method, path, &headers, false, &info)
}

fn decision(uri: &str) -> Decision {
    decide_with(&Method::GET, uri, &[])
}

#[track_caller]
fn forwarded(uri: &str, reason: Reason) {
    assert_eq!(decision(uri), Decision::Forward(reason), "{uri}");
}

fn list_freshness(query: &str) -> Result<(Freshness, bool), Reason> {
    match decision(&format!("/api/v1/namespaces/a/pods?{query}")) {
        Decision::List { freshness, single, .. } => Ok((freshness, single)),
        Decision::Forward(reason) => Err(reason),
        other => panic!("{query}: {other:?}"),
    }
}

fn watch_start(query: &str) -> Result<(Start, bool), Reason> {
    match decision(&format!("/api/v1/pods?watch=1&{query}")) {
        Decision::Watch(plan, _) => Ok((plan.start, plan.bookmarks)),
        Decision::Forward(reason) => Err(reason),
        other => panic!("{query}: {other:?}"),
    }
}

const ANY: Freshness = Freshness::Any;
const AT_7: Freshness = Freshness::NotOlderThan(ResourceVersion(7));
const ALL: bool = false;
const SINGLE: bool = true;

#[test]
fn gets() {
    let at = |query: &str| decision(&format!("/api/v1/namespaces/a/pods/p{query}"));
    assert_eq!(at("?resourceVersion=0"), Decision::Get(ANY));
    assert_eq!(at("?resourceVersion=7"), Decision::Get(AT_7));
    assert_eq!(at("?resourceVersion=7&watch=1&limit=5"), Decision::Get(AT_7));
    assert_eq!(at(""), Decision::Forward(Reason::Consistent));
    assert_eq!(at("?resourceVersion="), Decision::Forward(Reason::Consistent));
    for garbage in ["abc", "-1", "00", "07", "%2B5", "18446744073709551616"] {
        let query = format!("?resourceVersion={garbage}");
        assert_eq!(at(&query), Decision::Forward(Reason::Options), "{garbage}");
    }
    assert_eq!(at("?resourceVersion=0&export=true"), Decision::Forward(Reason::Request));
}

#[test]
fn lists() {
    use Reason::{Consistent, Exact, Options, Paging};
    for (query, expected) in [
        ("", Err(Consistent)),
        ("limit=500", Err(Consistent)),
        ("resourceVersion=0", Ok((ANY, ALL))),
        ("resourceVersion=0&limit=500", Ok((ANY, ALL))),
        ("resourceVersion=0&resourceVersionMatch=NotOlderThan&limit=500", Ok((ANY, ALL))),
        ("resourceVersion=7", Ok((AT_7, ALL))),
        ("resourceVersion=7&limit=-1", Ok((AT_7, ALL))),
        ("resourceVersion=7&limit=5", Err(Exact)),
        ("resourceVersion=7&resourceVersionMatch=NotOlderThan", Ok((AT_7, ALL))),
        ("resourceVersion=7&resourceVersionMatch=NotOlderThan&limit=5", Err(Paging)),
        ("resourceVersion=7&resourceVersionMatch=Exact", Err(Exact)),
        ("resourceVersion=0&resourceVersionMatch=Exact", Err(Exact)),
        ("resourceVersion=7&resourceVersionMatch=Foo", Err(Options)),
        ("resourceVersionMatch=NotOlderThan", Err(Options)),
        ("resourceVersion=0&continue=abc", Err(Paging)),
        ("continue=abc", Err(Paging)),
        ("resourceVersion=abc", Err(Options)),
        ("resourceVersion=00", Err(Options)),
        ("resourceVersion=0&sendInitialEvents=false", Err(Options)),
        ("resourceVersion=0&limit=abc", Err(Options)),
        ("resourceVersion=0&timeout=30s", Ok((ANY, ALL))),
        ("resourceVersion=0&timeout=1m30s", Ok((ANY, ALL))),
        ("resourceVersion=0&timeout=abc", Err(Options)),
        ("resourceVersion=0&timeout=", Err(Options)),
        ("resourceVersion=0&timeout=5", Err(Options)),
    ] {
        assert_eq!(list_freshness(query), expected, "{query}");
    }
}

#[test]
fn lists_of_one_name() {
    let name = "fieldSelector=metadata.name%3Dp";
    for (query, expected) in [
        ("resourceVersion=0&limit=5", Ok((ANY, ALL))),
        ("resourceVersion=7", Ok((AT_7, ALL))),
        ("resourceVersion=7&limit=5", Err(Reason::Exact)),
        ("resourceVersion=7&limit=5&resourceVersionMatch=NotOlderThan", Ok((AT_7, SINGLE))),
    ] {
        assert_eq!(list_freshness(&format!("{name}&{query}")), expected, "{query}");
    }
}

#[test]
fn watches() {
    use Reason::{Consistent, Options};
    let state = |freshness| Ok((Start::State(freshness), true));
    let after = Ok((Start::After(ResourceVersion(7)), true));
    for (query, expected) in [
        ("", state(Freshness::Consistent)),
        ("resourceVersion=0", state(ANY)),
        ("resourceVersion=7", after),
        ("resourceVersion=abc", Err(Options)),
        ("resourceVersion=00", Err(Options)),
        ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan", state(Freshness::Consistent)),
        ("sendInitialEvents=&resourceVersionMatch=NotOlderThan&resourceVersion=0", state(ANY)),
        ("sendInitialEvents=1&resourceVersionMatch=NotOlderThan&resourceVersion=7", state(AT_7)),
        ("sendInitialEvents=false&resourceVersionMatch=NotOlderThan", Err(Consistent)),
        (
            "sendInitialEvents=0&resourceVersionMatch=NotOlderThan&resourceVersion=0",
            Ok((Start::Now, true)),
        ),
        ("sendInitialEvents=0&resourceVersionMatch=NotOlderThan&resourceVersion=7", after),
        ("resourceVersionMatch=NotOlderThan", Err(Options)),
        ("resourceVersion=7&resourceVersionMatch=Exact", Err(Options)),
        ("sendInitialEvents=true", Err(Options)),
        ("sendInitialEvents=true&resourceVersionMatch=Exact", Err(Options)),
        ("resourceVersion=7&limit=5", after),
        ("resourceVersion=7&continue=abc", Err(Options)),
        ("resourceVersion=7&timeoutSeconds=-1", Err(Options)),
        ("resourceVersion=7&timeoutSeconds=abc", Err(Options)),
        ("resourceVersion=7&timeout=abc", after),
    ] {
        assert_eq!(watch_start(&format!("allowWatchBookmarks=1&{query}")), expected, "{query}");
    }
}

#[test]
fn a_watch_keeps_its_time_out() {
    let timeout = |query: &str| match decision(&format!("/api/v1/pods?watch=1&{query}")) {
        Decision::Watch(plan, _) => plan.timeout,
        other => panic!("{other:?}"),
    };
    assert_eq!(timeout(""), None);
    assert_eq!(timeout("timeoutSeconds=0"), None);
    assert_eq!(timeout("timeoutSeconds=9"), Some(Duration::from_secs(9)));
}

#[test]
fn what_is_no_plain_read_is_forwarded() {
    for (uri, reason) in [
        ("/version", Reason::NonResource),
        ("/api", Reason::NonResource),
        ("/apis/apps/v1", Reason::NonResource),
        ("/api/v1/namespaces/a/pods/p/status?resourceVersion=0", Reason::Subresource),
        ("/api/v1/namespaces/a/pods/p/log?follow=true", Reason::Subresource),
        ("/api/v1/watch/pods?resourceVersion=0", Reason::WatchPrefix),
        ("/api/v1//pods?resourceVersion=0", Reason::Path),
        ("/api/v1/pods/?resourceVersion=0", Reason::Path),
        ("/api/v1/namespaces/%61/pods?resourceVersion=0", Reason::Path),
        ("/api/v1/pods?resourceVersion=0&shardSelector=x", Reason::Request),
    ] {
        forwarded(uri, reason);
    }
    for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
        let decided = decide_with(&method, "/api/v1/namespaces/a/pods/p?resourceVersion=0", &[]);
        assert_eq!(decided, Decision::Forward(Reason::Write), "{method}");
    }
    let head = decide_with(&Method::HEAD, "/api/v1/namespaces/a/pods/p?resourceVersion=0", &[]);
    assert_eq!(head, Decision::Forward(Reason::Request));
}

#[test]
fn headers_that_ask_for_the_upstream() {
    let uri = "/api/v1/pods?resourceVersion=0";
    let websocket = [("connection", "Upgrade"), ("upgrade", "websocket")];
    for (headers, reason) in [
        (&[("x-weir-cache", "bypass")][..], Reason::Bypass),
        (&[("impersonate-user", "jane")], Reason::Impersonation),
        (&[("impersonate-extra-a", "b")], Reason::Impersonation),
        (&websocket, Reason::Upgrade),
        (&[("range", "bytes=0-1")], Reason::Request),
        (&[("if-none-match", "x")], Reason::Request),
    ] {
        assert_eq!(decide_with(&Method::GET, uri, headers), Decision::Forward(reason));
    }
    for headers in [
        &[("connection", "Upgrade"), ("upgrade", "h2c")][..],
        &[("cache-control", "no-cache")],
        &[("x-weir-cache", "hit")],
        &[("authorization", "Bearer x")],
    ] {
        assert!(matches!(decide_with(&Method::GET, uri, headers), Decision::List { .. }));
    }
}

#[test]
fn a_body_is_forwarded() {
    let info = RequestInfo::parse(&Method::GET, "/api/v1/pods", "resourceVersion=0");
    let decided = decide(&Method::GET, "/api/v1/pods", &HeaderMap::new(), true, &info);
    assert_eq!(decided, Decision::Forward(Reason::Request));
}

fn resource(gvr: (&str, &str, &str), namespaced: bool) -> ApiResource {
    let gvr = GroupVersionResource::new(gvr.0, gvr.1, gvr.2);
    ApiResource { namespaced, ..built_in(gvr, "Kind") }
}

fn resolve(uri: &str, resource: &ApiResource) -> Result<Target, Reason> {
    let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
    let info = RequestInfo::parse(&Method::GET, path, query);
    let options = match info.verb {
        Verb::Get => None,
        _ => Some(ListOptions::decode(&info.query).unwrap()),
    };
    let request = info.resource.as_ref().unwrap();
    Target::resolve(path, &HeaderMap::new(), &info, request, options.as_ref(), resource)
}

#[test]
fn only_the_canonical_path_is_served() {
    let pods = resource(("", "v1", "pods"), true);
    let nodes = resource(("", "v1", "nodes"), false);
    let namespaces = resource(("", "v1", "namespaces"), false);
    let deployments = resource(("apps", "v1", "deployments"), true);
    for (uri, resource) in [
        ("/api/v1/pods", &pods),
        ("/api/v1/namespaces/a/pods", &pods),
        ("/api/v1/namespaces/a/pods/p", &pods),
        ("/api/v1/pods?fieldSelector=metadata.name%3Dp", &pods),
        ("/api/v1/nodes/n", &nodes),
        ("/api/v1/namespaces", &namespaces),
        ("/api/v1/namespaces/a", &namespaces),
        ("/apis/apps/v1/deployments", &deployments),
    ] {
        assert!(resolve(uri, resource).is_ok(), "{uri}");
    }
    for (uri, resource) in [
        ("/api/v1/pods/p", &pods),
        ("/api/v1/namespaces/a/nodes", &nodes),
        ("/api/v1/namespaces/a/nodes/n", &nodes),
        ("/api/v1/namespaces/a/namespaces/a", &namespaces),
    ] {
        assert_eq!(resolve(uri, resource).unwrap_err(), Reason::Path, "{uri}");
    }
}

#[test]
fn selectors_narrow_the_filter() {
    let pods = resource(("", "v1", "pods"), true);
    let nodes = resource(("", "v1", "nodes"), false);
    let filter = |uri: &str, resource| resolve(uri, resource).unwrap().filter;

    let all = filter("/api/v1/pods?fieldSelector=metadata.namespace%3Da", &pods);
    assert_eq!(all.namespace.as_deref(), Some("a"));
    let within = filter("/api/v1/namespaces/b/pods?fieldSelector=metadata.namespace%3Da", &pods);
    assert_eq!(within.namespace.as_deref(), Some("b"));
    assert!(!within.fields.is_empty(), "the contradiction still has to match nothing");
    let volumes = resource(("", "v1", "persistentvolumes"), false);
    let cluster =
        filter("/api/v1/persistentvolumes?fieldSelector=metadata.namespace%3Da", &volumes);
    assert_eq!(cluster.namespace, None);

    let name = "fieldSelector=metadata.name%3Dp";
    let single = |uri: &str, resource| resolve(uri, resource).unwrap().is_single(resource);
    assert!(single(&format!("/api/v1/namespaces/a/pods?{name}"), &pods));
    assert!(single(&format!("/api/v1/nodes?{name}"), &nodes));
    assert!(!single(&format!("/api/v1/pods?{name}"), &pods));

    for bad in ["labelSelector=a%3D%3D%3Db", "fieldSelector=spec.nope%3Dx"] {
        let uri = format!("/api/v1/pods?{bad}");
        assert_eq!(resolve(&uri, &pods).unwrap_err(), Reason::Selector, "{bad}");
    }
}

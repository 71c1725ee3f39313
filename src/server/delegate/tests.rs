//! The decision as a table, with a line for each row of `docs/semantics.md` §1.4 to §1.6, and for
//! each other reason to forward.

use std::time::Duration;

use http::{HeaderValue, Request};

use super::*;
use crate::api::resource_version::ResourceVersion;

fn decide_with(
    method: &Method,
    uri: &str,
    given: &[(&'static str, &'static str)],
) -> Result<CachedDecision, Reason> {
    let mut request = Request::builder().method(method).uri(uri);
    for (name, value) in given {
        request = request.header(*name, HeaderValue::from_static(value));
    }
    let (parts, ()) = request.body(()).unwrap().into_parts();
    decide_alone(&parts, false, ConsistentLists::Forward)
}

fn decide_alone(
    parts: &Parts,
    has_body: bool,
    lists: ConsistentLists,
) -> Result<CachedDecision, Reason> {
    let head = (has_body, headers::are_plain(&parts.headers));
    decide(parts, head, &info_of(parts), || lists, false)
}

fn info_of(parts: &Parts) -> RequestInfo {
    RequestInfo::parse(&parts.method, parts.uri.path(), parts.uri.query().unwrap_or_default())
}

fn decision(uri: &str) -> Result<CachedDecision, Reason> {
    decide_with(&Method::GET, uri, &[])
}

#[track_caller]
fn forwarded(uri: &str, reason: Reason) {
    assert_eq!(decision(uri), Err(reason), "{uri}");
}

/// Asserts the plan or the reason for a URI. `P` is the plan of a list, a GET or a watch of config
/// maps.
#[track_caller]
fn row<P: PartialEq + std::fmt::Debug>(
    uri: &str,
    plan: impl Fn(CachedDecision) -> Option<P>,
    expected: &Result<P, Reason>,
) {
    let decided = decision(uri).map(|decision| plan(decision).expect("a decision of another verb"));
    assert_eq!(&decided, expected, "{uri}");
}

/// Returns a token that the upstream's cache or etcd path writes, at resourceVersion `at` or, if
/// that is -1, at the newest.
fn token(at: i64) -> String {
    use base64::Engine;
    let json = format!(r#"{{"v":"meta.k8s.io/v1","rv":{at},"start":"/a/p\u0000"}}"#);
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(json)
}

const ANY: Freshness = Freshness::Any;
const AT_7: Freshness = Freshness::NotOlderThan(ResourceVersion(7));
const SEVEN: ResourceVersion = ResourceVersion(7);

#[test]
fn get_parameters_choose_cache_or_upstream() {
    use Reason::{Consistent, Options, Request};
    for (query, expected) in [
        ("", Err(Consistent)),
        ("resourceVersion=", Err(Consistent)),
        ("resourceVersion=0", Ok(ANY)),
        ("resourceVersion=7", Ok(AT_7)),
        // A GET reads no other option.
        ("resourceVersion=7&watch=1&limit=x&resourceVersionMatch=Foo&labelSelector==", Ok(AT_7)),
        ("resourceVersion=abc", Err(Options)),
        ("resourceVersion=-1", Err(Options)),
        ("resourceVersion=00", Err(Options)),
        ("resourceVersion=07", Err(Options)),
        ("resourceVersion=%2B5", Err(Options)),
        ("resourceVersion=18446744073709551616", Err(Options)),
        ("resourceVersion=0&export=true", Err(Request)),
        ("resourceVersion=0&export=", Err(Request)),
    ] {
        let plan = |decision| match decision {
            CachedDecision::Get(freshness) => Some(freshness),
            _ => None,
        };
        row(&format!("/api/v1/namespaces/a/pods/p?{query}"), plan, &expected);
    }
}

/// The plan of a list: the state, the effective limit (0 for none), whether it has a start key, and
/// whether a single object is forwarded.
type Listed = (ReadAt, usize, bool, bool);

#[test]
fn list_parameters_choose_cache_or_upstream() {
    use Reason::{Consistent, Options, Request, Token};
    let any = ReadAt::Newest(ANY);
    let at_7 = ReadAt::Newest(AT_7);
    let exact = ReadAt::Exact(SEVEN);
    let (next, newest) = (format!("continue={}", token(7)), format!("continue={}", token(-1)));
    let rows: &[(&str, &[&str], Result<Listed, Reason>)] = &[
        ("L1", &[""], Err(Consistent)),
        ("L1", &["resourceVersion="], Err(Consistent)),
        ("L2", &["limit=5"], Err(Consistent)),
        ("L3", &["resourceVersion=0"], Ok((any, 0, false, false))),
        ("L3", &["resourceVersion=0&limit=5"], Ok((any, 0, false, false))),
        ("L3", &["resourceVersion=0&limit=5", NOT_OLDER], Ok((any, 0, false, false))),
        ("L4", &["resourceVersion=7"], Ok((at_7, 0, false, false))),
        ("L4", &["resourceVersion=7&limit=0"], Ok((at_7, 0, false, false))),
        ("L4", &["resourceVersion=7&limit=-1"], Ok((at_7, 0, false, false))),
        ("L5", &["resourceVersion=7&limit=5"], Ok((exact, 5, false, true))),
        ("L6", &["resourceVersion=7", NOT_OLDER], Ok((at_7, 0, false, false))),
        ("L7", &["resourceVersion=7&limit=5", NOT_OLDER], Ok((at_7, 5, false, false))),
        ("L8", &["resourceVersion=7", EXACT], Ok((exact, 0, false, false))),
        ("L8", &["resourceVersion=7&limit=5", EXACT], Ok((exact, 5, false, false))),
        ("L9", &[&next], Ok((exact, 0, true, false))),
        ("L9", &[&next, "limit=5"], Ok((exact, 5, true, false))),
        ("L9", &[&next, "limit=5&resourceVersion=0"], Ok((exact, 0, true, false))),
        ("L10", &[&newest], Err(Consistent)),
        ("L10", &[&newest, "resourceVersion=0&limit=5"], Err(Consistent)),
        ("L11", &[&next, "resourceVersion=7"], Err(Options)),
        ("L12", &["continue=abc"], Err(Token)),
        ("L12", &["continue=abc&resourceVersion=0"], Err(Token)),
        (
            "a token that is dropped",
            &["continue=%%%&resourceVersion=0"],
            Ok((any, 0, false, false)),
        ),
        ("L13", &["resourceVersion=abc"], Err(Options)),
        ("L13", &["resourceVersion=abc", EXACT], Err(Options)),
        ("L13", &["resourceVersion=%2B5"], Err(Options)),
        ("L13", &["resourceVersion=1.5"], Err(Options)),
        ("L14", &["resourceVersion=00"], Err(Options)),
        ("422: match without resourceVersion", &[NOT_OLDER], Err(Options)),
        ("422: match without resourceVersion", &[EXACT], Err(Options)),
        ("422: match with continue", &[&next, NOT_OLDER], Err(Options)),
        ("422: match with continue", &[&next, "resourceVersion=0", NOT_OLDER], Err(Options)),
        ("422: unknown match", &["resourceVersion=7&resourceVersionMatch=Foo"], Err(Options)),
        ("422: unknown match", &["resourceVersion=7&resourceVersionMatch=exact"], Err(Options)),
        ("422: exactly 0", &["resourceVersion=0", EXACT], Err(Options)),
        ("422: for watches only", &["resourceVersion=0&sendInitialEvents=false"], Err(Options)),
        ("422: for watches only", &["resourceVersion=0&sendInitialEvents="], Err(Options)),
        ("400: no number", &["resourceVersion=0&limit=abc"], Err(Options)),
        ("400: no number", &["resourceVersion=0&limit="], Err(Options)),
        ("400: no number", &["resourceVersion=0&timeoutSeconds=x"], Err(Options)),
        (
            "the first value counts",
            &["resourceVersion=0&resourceVersion=x"],
            Ok((any, 0, false, false)),
        ),
        ("no watch", &["resourceVersion=0&watch=0"], Ok((any, 0, false, false))),
        ("no watch", &["resourceVersion=0&watch=FALSE&x;Watch=1"], Ok((any, 0, false, false))),
        ("unknown", &["resourceVersion=0&nonsense=1&x;y=1"], Err(Request)),
        ("ignored", &["resourceVersion=0&_=1&x;y=1"], Ok((any, 0, false, false))),
    ];
    for (name, query, expected) in rows {
        let plan = |decision| match decision {
            CachedDecision::List(plan, _) => {
                let limit = plan.limit.map_or(0, std::num::NonZero::get);
                assert!(plan.start_key.as_deref().is_none_or(|key| key == "a/p\0"), "{name}");
                Some((plan.read_at, limit, plan.start_key.is_some(), plan.collection_only))
            }
            _ => None,
        };
        row(&format!("/api/v1/pods?{}", query.join("&")), plan, expected);
    }
}

/// With `auto`, only lists differ: those whose resourceVersion is unset, but for next pages.
#[test]
fn consistent_lists_may_come_from_the_cache() {
    let at_newest = format!("continue={}", token(-1));
    let rows: &[(&str, Result<usize, Reason>)] = &[
        ("", Ok(0)),
        ("resourceVersion=", Ok(0)),
        ("limit=5", Ok(5)),
        ("limit=0&labelSelector=a", Ok(0)),
        (&at_newest, Err(Reason::Consistent)),
        ("resourceVersionMatch=NotOlderThan", Err(Reason::Options)),
        ("limit=abc", Err(Reason::Options)),
    ];
    for (query, expected) in rows {
        let uri = format!("/api/v1/pods?{query}");
        let (parts, ()) = Request::get(&uri).body(()).unwrap().into_parts();
        let decided = decide_alone(&parts, false, ConsistentLists::Auto);
        let is_consistent = decided.as_ref().is_ok_and(CachedDecision::is_consistent_list);
        assert_eq!(is_consistent, expected.is_ok(), "{uri}");
        let decided = match decided {
            Ok(CachedDecision::List(plan, _)) => Ok(plan.limit.map_or(0, std::num::NonZero::get)),
            Err(reason) => Err(reason),
            other => panic!("{uri}: {other:?}"),
        };
        assert_eq!(&decided, expected, "{uri}");
    }
    let (parts, ()) = Request::get("/api/v1/nodes/n").body(()).unwrap().into_parts();
    let decided = decide_alone(&parts, false, ConsistentLists::Auto);
    assert_eq!(decided, Err(Reason::Consistent));
}

#[test]
fn a_time_out_of_a_list_must_be_a_duration_of_go() {
    let rows = [
        ("30s", true),
        ("1m30s", true),
        ("500ms", true),
        ("1.5s", true),
        ("0", true),
        ("", true),
        ("abc", false),
        ("5", false),
        ("-1s", false),
        ("+1s", false),
        (".", false),
        ("1.s.", false),
        ("9999999h", false),
        ("s", false),
    ];
    for (text, served) in rows {
        let decided = decision(&format!("/api/v1/pods?resourceVersion=0&timeout={text}"));
        assert_eq!(matches!(decided, Ok(CachedDecision::List(..))), served, "{text}: {decided:?}");
    }
    // The time-out of a watch is a different parameter.
    let watch = decision("/api/v1/pods?resourceVersion=0&watch=1&timeout=abc");
    assert!(matches!(watch, Ok(CachedDecision::Watch(..))));
}

const NOT_OLDER: &str = "resourceVersionMatch=NotOlderThan";
const EXACT: &str = "resourceVersionMatch=Exact";

/// The start of a watch, and whether a bookmark may mark the end of its initial events.
type Started = (Start, bool);

#[track_caller]
fn watch_rows(path: &str, rows: &[(&[&str], Result<Started, Reason>)]) {
    for (query, expected) in rows {
        let plan = |decision| match decision {
            CachedDecision::Watch(plan, _) => {
                assert!(plan.bookmarks);
                Some((plan.start, plan.marks_initial_end))
            }
            _ => None,
        };
        row(&format!("{path}allowWatchBookmarks=1&{}", query.join("&")), plan, expected);
    }
}

#[test]
fn watch_parameters_choose_cache_or_upstream() {
    use Reason::Options;
    let state = |freshness| Ok((Start::State(freshness), true));
    let after = Ok((Start::After(SEVEN), false));
    let consistent = Ok((Start::ConsistentState, true));
    let (yes, no) = ("sendInitialEvents=true", "sendInitialEvents=false");
    watch_rows(
        "/api/v1/pods?watch=1&",
        &[
            (&[""], consistent),
            (&["resourceVersion=0"], state(ANY)),
            (&["resourceVersion=7"], after),
            (&["resourceVersion=abc"], Err(Options)),
            (&["resourceVersion=00"], Err(Options)),
            (&[yes, NOT_OLDER], consistent),
            (&[yes, NOT_OLDER, "resourceVersion=0"], state(ANY)),
            (&[yes, NOT_OLDER, "resourceVersion=7"], state(AT_7)),
            (&["sendInitialEvents=", NOT_OLDER, "resourceVersion=0"], state(ANY)),
            (&["sendInitialEvents=1", NOT_OLDER, "resourceVersion=7"], state(AT_7)),
            (&[no, NOT_OLDER], Ok((Start::ConsistentNow, false))),
            (&[no, NOT_OLDER, "resourceVersion=0"], Ok((Start::Now, false))),
            (&[no, NOT_OLDER, "resourceVersion=7"], after),
            (&["sendInitialEvents=0", NOT_OLDER, "resourceVersion=7"], after),
            (&[NOT_OLDER], Err(Options)),
            (&[NOT_OLDER, "resourceVersion=0"], Err(Options)),
            (&[EXACT, "resourceVersion=7"], Err(Options)),
            (&[yes], Err(Options)),
            (&[yes, EXACT], Err(Options)),
            (&[no, "resourceVersion=7"], Err(Options)),
            (&[yes, NOT_OLDER, "continue=abc"], Err(Options)),
            (&["limit=5&resourceVersion=7"], after),
            (&["limit=x&resourceVersion=7"], Err(Options)),
            (&["continue=abc&resourceVersion=7"], after),
            (&["continue=abc"], Err(Options)),
            (&["continue=abc&resourceVersion=0"], Err(Options)),
            (&["timeoutSeconds=-1&resourceVersion=7"], Err(Options)),
            (&["timeoutSeconds=abc&resourceVersion=7"], Err(Options)),
        ],
    );
}

/// Without `watch` in the query a watch is validated as a list, and not rewritten
/// (`docs/semantics.md` §6.2).
#[test]
fn watches_by_path_prefix() {
    use Reason::Options;
    let state = Ok((Start::State(ANY), false));
    let after = Ok((Start::After(SEVEN), false));
    let rows: &[(&[&str], Result<Started, Reason>)] = &[
        (&[""], state),
        (&["watch=0"], state),
        (&["resourceVersion=0"], state),
        (&["resourceVersion=0", NOT_OLDER], state),
        (&["resourceVersion=0", EXACT], Err(Options)),
        (&["resourceVersion=7"], after),
        (&["resourceVersion=7", EXACT], after),
        (&["resourceVersion=7", NOT_OLDER], after),
        (&["resourceVersion=7&resourceVersionMatch=Foo"], Err(Options)),
        (&["resourceVersion=abc"], Err(Options)),
        (&[NOT_OLDER], Err(Options)),
        (&["continue=abc"], state),
        (&["continue=abc&resourceVersion=7"], after),
        (&["continue=abc&resourceVersion=7", EXACT], Err(Options)),
        (&["sendInitialEvents=true", NOT_OLDER], Err(Options)),
        (&["sendInitialEvents=true"], Err(Options)),
        (&["limit=5"], state),
        (&["watch=1"], Ok((Start::ConsistentState, true))),
        (&["watch=1&resourceVersion=0"], Ok((Start::State(ANY), true))),
    ];
    watch_rows("/api/v1/watch/pods?", rows);
    watch_rows("/api/v1/watch/namespaces/a/pods/p?", rows);
}

/// `time.Duration(seconds) * time.Second` of Go wraps around, so that a client that asks for three
/// centuries gets an end at once, and one that asks for six gets 290 ms.
#[test]
fn a_watch_has_the_time_out_that_the_upstream_makes_of_its_seconds() {
    let timeout = |seconds: i64| {
        let query = format!("/api/v1/pods?watch=1&resourceVersion=7&timeoutSeconds={seconds}");
        match decision(&query) {
            Ok(CachedDecision::Watch(plan, _)) => Ok(plan.timeout),
            Err(reason) => Err(reason),
            other => panic!("{other:?}"),
        }
    };
    let nanoseconds = |count| Ok(Some(Duration::from_nanos(count)));
    for (seconds, expected) in [
        (0, Ok(None)),
        (1, nanoseconds(1_000_000_000)),
        (9, nanoseconds(9_000_000_000)),
        (-1, Err(Reason::Options)),
        // The largest number of seconds before the sign changes, and the next.
        (9_223_372_036, nanoseconds(9_223_372_036_000_000_000)),
        (9_223_372_037, Err(Reason::Options)),
        (-9_223_372_036, Err(Reason::Options)),
        (-9_223_372_037, nanoseconds(9_223_372_036_709_551_616)),
        // The last of a negative result, one of less than a second, and one of more.
        (18_446_744_073, Err(Reason::Options)),
        (18_446_744_074, Err(Reason::Options)),
        (18_446_744_075, nanoseconds(1_290_448_384)),
        (27_670_116_110, nanoseconds(9_223_372_036_290_448_384)),
        (27_670_116_111, Err(Reason::Options)),
        // Nothing is left, which means the upstream's own time-out.
        (1 << 55, Ok(None)),
        (-(1 << 55), Ok(None)),
        ((1 << 55) + 9, nanoseconds(9_000_000_000)),
        (i64::MAX, Err(Reason::Options)),
        (i64::MIN, Ok(None)),
    ] {
        assert_eq!(timeout(seconds), expected, "timeoutSeconds={seconds}");
    }
}

#[test]
fn requests_that_are_not_plain_reads_are_forwarded() {
    for (uri, reason) in [
        ("/version", Reason::NonResource),
        ("/api", Reason::NonResource),
        ("/apis/apps/v1", Reason::NonResource),
        ("/api/v1/namespaces/a/pods/p/status?resourceVersion=0", Reason::Subresource),
        ("/api/v1/namespaces/a/pods/p/log?follow=true", Reason::Subresource),
        ("/api/v1//pods?resourceVersion=0", Reason::Path),
        ("/api/v1/pods//?resourceVersion=0", Reason::Path),
        ("/api/v1/pods;x/?resourceVersion=0", Reason::Path),
        ("/api/v1/watch/namespaces/a/pods/p/log", Reason::Subresource),
        ("/api/v1/namespaces/%61/pods?resourceVersion=0", Reason::Path),
    ] {
        forwarded(uri, reason);
    }
    for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
        let decided = decide_with(&method, "/api/v1/namespaces/a/pods/p?resourceVersion=0", &[]);
        assert_eq!(decided, Err(Reason::Write), "{method}");
    }
    let head = decide_with(&Method::HEAD, "/api/v1/namespaces/a/pods/p?resourceVersion=0", &[]);
    assert_eq!(head, Err(Reason::Request));
}

#[test]
fn headers_that_require_the_upstream() {
    let uri = "/api/v1/pods?resourceVersion=0";
    let websocket = [("connection", "Upgrade"), ("upgrade", "websocket")];
    for (headers, reason) in [
        (&[("x-weir-cache", "bypass")][..], Reason::Bypass),
        (&[("impersonate-user", "jane")], Reason::Impersonation),
        (&[("impersonate-extra-a", "b")], Reason::Impersonation),
        (&websocket, Reason::Upgrade),
        (&[("range", "bytes=0-1")], Reason::Request),
        (&[("if-none-match", "x")], Reason::Request),
        (&[("origin", "https://ui.example")], Reason::Request),
        (&[("origin", "https://ui.example"), ("sec-fetch-site", "same-site")], Reason::Request),
    ] {
        assert_eq!(decide_with(&Method::GET, uri, headers), Err(reason));
    }
    for headers in [
        &[("connection", "Upgrade"), ("upgrade", "h2c")][..],
        &[("cache-control", "no-cache")],
        &[("origin", "https://ui.example"), ("sec-fetch-site", "same-origin")],
        &[("x-weir-cache", "hit")],
        &[("authorization", "Bearer x")],
    ] {
        assert!(matches!(decide_with(&Method::GET, uri, headers), Ok(CachedDecision::List(..))));
    }
}

#[test]
fn a_request_with_a_body_is_forwarded() {
    let request = Request::get("/api/v1/pods?resourceVersion=0").body(()).unwrap();
    let (parts, ()) = request.into_parts();
    let decided = decide_alone(&parts, true, ConsistentLists::Forward);
    assert_eq!(decided, Err(Reason::Request));
}

#[test]
fn no_plain_header_decides_anything() {
    let value = HeaderValue::from_static("bypass, upgrade");
    let plain: HeaderMap =
        headers::PLAIN.iter().map(|name| (name.clone(), value.clone())).collect();
    assert!(!plain.contains_key(headers::CACHE_HEADER) && !plain.contains_key(header::CONNECTION));
    assert!(!has_condition(&plain) && !plain.contains_key(header::ORIGIN));
    assert!(!headers::impersonates(&plain));
}

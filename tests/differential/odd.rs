//! Requests outside the tables: other paths, other methods, discovery and OpenAPI.

use http::Method;

use super::expected::Expect::{self, Cache, Either, Upstream};
use super::wire::Call;

/// The requests, each with the server that must answer.
pub(crate) fn odd() -> Vec<(Call, Expect)> {
    let mut calls = Vec::new();
    for (path, expect) in PATHS {
        calls.push((Call::get(path), expect));
    }
    for method in [Method::HEAD, Method::OPTIONS, Method::PUT, Method::TRACE] {
        calls.push((Call::new(method.clone(), "/api/v1/namespaces/a/configmaps"), Upstream));
        if method != Method::PUT {
            let widget = "/apis/example.com/v1/namespaces/a/widgets/x?resourceVersion=0";
            calls.push((Call::new(method, widget), Upstream));
        }
    }
    let list = "/api/v1/namespaces/a/configmaps?resourceVersion=0";
    for (name, value, expect) in HEADERS {
        calls.push((Call::get(list).header(name, value), expect));
    }
    calls
}

/// Discovery and OpenAPI, with the forms that have an ETag (docs/semantics.md §10); each is
/// requested again with the ETag that it came with.
pub(crate) fn documents() -> Vec<Call> {
    let mut calls = Vec::new();
    for path in ["/api", "/apis"] {
        for accept in DISCOVERY {
            calls.push(Call::get(path).header("accept", accept));
        }
    }
    for accept in OPENAPI_V2 {
        for packing in ["", "gzip"] {
            let call = Call::get("/openapi/v2").header("accept", accept);
            calls.push(if packing.is_empty() {
                call
            } else {
                call.header("accept-encoding", packing)
            });
        }
    }
    for accept in ["application/json", "*/*", "application/yaml"] {
        calls.push(Call::get("/openapi/v3").header("accept", accept));
    }
    calls
}

/// Accept headers for one group-version of `/openapi/v3`, whose path has its hash.
pub(crate) const OPENAPI_V3: [&str; 4] = [
    "application/json",
    "application/com.github.proto-openapi.spec.v3@v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v3.v1.0+protobuf",
    "application/yaml",
];

const DISCOVERY: [&str; 8] = [
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer",
    "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json",
];

const OPENAPI_V2: [&str; 4] = [
    "application/json",
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
    "application/yaml",
];

const HEADERS: [(&str, &str, Expect); 12] = [
    ("if-none-match", "*", Either),
    ("if-modified-since", "Mon, 01 Jan 2024 00:00:00 GMT", Either),
    ("range", "bytes=0-10", Either),
    ("x-weir-cache", "bypass", Upstream),
    ("accept-language", "de", Cache),
    ("cache-control", "no-cache", Cache),
    ("x-remote-user", "mallory", Cache),
    ("cookie", "a=b", Cache),
    ("te", "trailers", Cache),
    ("accept-encoding", "identity", Cache),
    // Over a WebSocket only a watch is served.
    ("upgrade", "websocket", Either),
    ("content-type", "application/json", Cache),
];

const PATHS: [(&str, Expect); 53] = [
    ("/", Upstream),
    ("/nowhere", Upstream),
    ("/version", Upstream),
    ("/version/", Upstream),
    ("/healthz", Upstream),
    ("/readyz", Upstream),
    ("/livez?verbose", Upstream),
    ("/livez/etcd", Upstream),
    ("/api/", Either),
    ("/api/v1", Upstream),
    ("/api/v1/", Upstream),
    ("/api/v2", Upstream),
    ("/apis/apps", Upstream),
    ("/apis/apps/v1", Upstream),
    ("/apis/example.com", Upstream),
    ("/apis/example.com/v1", Upstream),
    ("/apis/no.such/v1", Upstream),
    ("/apis/no.such/v1/things?resourceVersion=0", Upstream),
    ("/apis/example.com/v2/widgets?resourceVersion=0", Upstream),
    ("/api/v1/nonsense?resourceVersion=0", Upstream),
    ("/api/v1/watch", Upstream),
    ("/api/v1/watch/", Upstream),
    ("/api/v1/watch/nonsense", Upstream),
    ("/api/v1/watch/namespaces/a?resourceVersion=0&timeoutSeconds=1", Either),
    ("/api/v1/watch/namespaces/a/configmaps/x?resourceVersion=0&timeoutSeconds=1", Either),
    (
        "/api/v1/watch/namespaces/a/configmaps/x?watch=1&allowWatchBookmarks=1&timeoutSeconds=1",
        Either,
    ),
    (
        "/api/v1/watch/namespaces/a/configmaps/x?fieldSelector=metadata.name%3Dz&timeoutSeconds=1",
        Upstream,
    ),
    ("/api/v1/watch/namespaces/a/configmaps?sendInitialEvents=true&timeoutSeconds=1", Upstream),
    (
        "/api/v1/watch/namespaces/a/configmaps?resourceVersionMatch=Exact&resourceVersion=3&timeoutSeconds=1",
        Either,
    ),
    ("/apis/example.com/v1/widgets/x?resourceVersion=0", Upstream),
    ("/apis/example.com/v1/namespaces/a/gadgets?resourceVersion=0", Upstream),
    ("/api/v1/namespaces/a/nodes?resourceVersion=0", Upstream),
    ("/api/v1/configmaps/x?resourceVersion=0", Upstream),
    ("/api/v1/namespaces//configmaps?resourceVersion=0", Either),
    ("/api/v1/namespaces/a//configmaps?resourceVersion=0", Upstream),
    ("//api/v1/namespaces/a/configmaps?resourceVersion=0", Either),
    ("/api//v1/namespaces/a/configmaps?resourceVersion=0", Upstream),
    ("/api/v1/namespaces/a/configmaps//x?resourceVersion=0", Upstream),
    ("/api/v1/namespaces/a/../a/configmaps?resourceVersion=0", Upstream),
    ("/api/v1/namespaces/a/./configmaps?resourceVersion=0", Upstream),
    ("/api/v1/namespaces/a/configmaps/..?resourceVersion=0", Upstream),
    ("/api/v1/namespaces/a%2Fconfigmaps?resourceVersion=0", Either),
    ("/api/v1/namespaces/%61/configmaps?resourceVersion=0", Either),
    ("/api/v1/namespaces/a;x/configmaps?resourceVersion=0", Either),
    ("/api/v1/namespaces/a/configmaps/x/status?resourceVersion=0", Upstream),
    ("/api/v1/namespaces/a/configmaps/x/nonsense?resourceVersion=0", Upstream),
    ("/api/v1/namespaces/a/pods/x/status?resourceVersion=0", Upstream),
    ("/api/v1/namespaces/a/status?resourceVersion=0", Upstream),
    ("/api/v1/namespaces/a/configmaps/x?resourceVersion=0&export=true", Upstream),
    ("/api/v1/namespaces/a/configmaps?resourceVersion=0&includeObject=None", Upstream),
    ("/api/v1/namespaces/a/configmaps?timeout=abc&resourceVersion=0", Upstream),
    ("/api/v1/namespaces/a/configmaps?timeoutSeconds=abc&resourceVersion=0", Upstream),
    ("/api/v1/namespaces/UPPER/configmaps?resourceVersion=0", Either),
];

//! Lists and gets that are served from a cache, and those that are forwarded without one.

use std::sync::Arc;

use http::HeaderValue;

use super::harness::{Weir, echo, get, release};
use crate::api::resource::ApiResource;
use crate::cache::script::{Feed, upsert};

/// Starts a server whose cache of config maps holds two objects at resourceVersion 7.
pub(super) async fn warm() -> (Weir, Feed) {
    let weir = Weir::start(echo).await;
    let feed = weir.fill([("x".to_owned(), 3), ("y".to_owned(), 5)]);
    (weir, feed)
}

pub(super) const X: &str = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x","namespace":"ns","resourceVersion":"3"}}"#;

/// A changed definition may order its selectable fields differently. A selector that is bound to
/// one definition would then read other values from the other's objects.
#[tokio::test]
async fn a_cache_of_an_older_definition_does_not_answer() {
    let (weir, _feed) = warm().await;
    let paths = [
        "/api/v1/configmaps?resourceVersion=0",
        "/api/v1/namespaces/ns/configmaps/x?resourceVersion=0",
        "/api/v1/configmaps?resourceVersion=0&watch=1&timeoutSeconds=1",
    ];
    for path in paths {
        assert_eq!(weir.get(path).await.header("x-weir-cache"), "hit", "{path}");
    }
    for resource in weir.source.resources.lock().iter_mut() {
        *resource = Arc::new(ApiResource { revision: 1, ..(**resource).clone() });
    }
    for path in paths {
        assert_eq!(
            weir.get(path).await.header("x-weir-cache"),
            "forward; reason=not-ready",
            "{path}"
        );
    }
}

#[tokio::test]
async fn lists_and_gets_are_served_like_the_upstreams() {
    let (weir, feed) = warm().await;
    let list = weir.get("/api/v1/configmaps?resourceVersion=0").await;
    assert_eq!((list.code, list.header("x-weir-cache")), (200, "hit"));
    assert_eq!(list.header("content-type"), "application/json");
    assert_eq!(list.header("cache-control"), "no-cache, private");
    let head =
        r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":["#;
    assert!(list.text().starts_with(head), "{}", list.text());
    assert!(list.text().ends_with("]}\n"));

    let mut request = get("/api/v1/namespaces/ns/configmaps/x?resourceVersion=0");
    request.headers_mut().insert("audit-id", HeaderValue::from_static("mine"));
    let one = weir.send(request).await;
    assert_eq!((one.header("x-weir-cache"), one.header("audit-id")), ("hit", "mine"));
    assert_eq!(one.text(), format!("{X}\n"));

    let path = "/api/v1/configmaps?resourceVersion=0&pretty=1&fieldSelector=metadata.name%3Dx";
    let pretty = weir.get(path).await;
    assert!(pretty.text().starts_with("{\n  \"kind\": \"ConfigMapList\""), "{}", pretty.text());

    let missing = weir.get("/api/v1/namespaces/ns/configmaps/nope?resourceVersion=0").await;
    assert_eq!((missing.code, missing.header("x-weir-cache")), (404, "hit"));
    assert_eq!(missing.header("content-type"), "application/json");
    assert_eq!(missing.header("cache-control"), "no-cache, private");
    assert_eq!(
        missing.text(),
        format!(
            "{}\n",
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"configmaps \"nope\" not found","reason":"NotFound","details":{"name":"nope","kind":"configmaps"},"code":404}"#
        )
    );
    // Only the upstream writes the error of such a name.
    let odd = weir.get("/api/v1/namespaces/ns/configmaps/a%25b?resourceVersion=0").await;
    assert!(odd.header("x-weir-cache").starts_with("forward; reason="));

    let bypass = |reason| (reason, format!("forward; reason={reason}"));
    for (path, (reason, header)) in [
        ("/api/v1/configmaps", bypass("consistent")),
        ("/api/v1/nodes?resourceVersion=0", bypass("unknown")),
        ("/api/v1/configmaps?resourceVersion=0&labelSelector=%3D%3D", bypass("selector")),
    ] {
        assert_eq!(weir.get(path).await.header("x-weir-cache"), header, "{reason}");
    }

    feed.send(vec![upsert("z", 9)]);
    let fresh = weir.get("/api/v1/namespaces/ns/configmaps/z?resourceVersion=9").await;
    assert_eq!(fresh.header("x-weir-cache"), "hit", "the list waits for its resourceVersion");
    let text = weir.scrape();
    assert!(text.contains(r#"weir_requests_total{cache_status="hit",code="200",group="",reason="",resource="configmaps",verb="list",version="v1"} 2"#), "{text}");
    assert!(text.contains(r#"resource="other""#), "nodes are unknown here");
}

/// Tests the tables of `docs/semantics.md` §1.6.1 and §1.6.2 on a cache that was listed at 7 and is
/// at 9.
#[tokio::test]
async fn pages_and_exact_lists() {
    use crate::api::continue_token::ContinueToken;
    use crate::api::resource_version::ResourceVersion;

    let (weir, feed) = warm().await;
    feed.send(vec![upsert("z", 9)]);
    let newest = weir.get("/api/v1/configmaps?resourceVersion=9").await;
    assert_eq!(newest.header("x-weir-cache"), "hit");
    let token = |at, last| ContinueToken::encode(ResourceVersion(at), last);
    // Shows the metadata of the list, and the names of its objects.
    let show = |text: &str| {
        let list: serde_json::Value = serde_json::from_str(text).unwrap();
        let names = list["items"].as_array().unwrap().iter();
        let names: String =
            names.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect();
        (list["metadata"].to_string(), names)
    };
    let at = |at: u64| format!(r#"{{"resourceVersion":"{at}"}}"#);
    let cut = |at: u64, last, remaining: &str| {
        format!(r#"{{"resourceVersion":"{at}","continue":"{}"{remaining}}}"#, token(at, last))
    };
    let (one, two) = (r#","remainingItemCount":1"#, r#","remainingItemCount":2"#);
    let cluster = "/api/v1/configmaps?";
    let namespace = "/api/v1/namespaces/ns/configmaps?";
    for (path, query, metadata, names) in [
        (cluster, "resourceVersion=7&limit=1".to_owned(), cut(7, "ns/x", one), "x"),
        (namespace, "resourceVersion=7&limit=1".to_owned(), cut(7, "x", one), "x"),
        (namespace, "resourceVersion=8&limit=2".to_owned(), at(8), "xy"),
        (cluster, "resourceVersion=7&resourceVersionMatch=Exact".to_owned(), at(7), "xy"),
        (cluster, "resourceVersion=9&resourceVersionMatch=Exact".to_owned(), at(9), "xyz"),
        (
            cluster,
            "resourceVersion=7&resourceVersionMatch=NotOlderThan&limit=1".to_owned(),
            cut(9, "ns/x", two),
            "x",
        ),
        (cluster, format!("continue={}", token(7, "ns/x")), at(7), "y"),
        (cluster, format!("continue={}", token(9, "ns/x")), at(9), "yz"),
        (cluster, format!("limit=1&continue={}", token(9, "ns/x")), cut(9, "ns/y", one), "y"),
        (namespace, format!("limit=1&continue={}", token(9, "x")), cut(9, "y", one), "y"),
        (cluster, format!("limit=1&resourceVersion=0&continue={}", token(9, "ns/x")), at(9), "yz"),
        (
            cluster,
            "resourceVersion=9&limit=1&resourceVersionMatch=Exact&fieldSelector=metadata.name!%3Dy"
                .to_owned(),
            cut(9, "ns/x", ""),
            "x",
        ),
        (
            namespace,
            "resourceVersion=7&resourceVersionMatch=Exact&limit=1&fieldSelector=metadata.name%3Dx"
                .to_owned(),
            at(7),
            "x",
        ),
        ("/api/v1/configmaps/?", "resourceVersion=0&limit=1".to_owned(), at(9), "xyz"),
    ] {
        let list = weir.get(&format!("{path}{query}")).await;
        assert_eq!(list.header("x-weir-cache"), "hit", "{path}{query}");
        assert_eq!(show(list.text()), (metadata, names.to_owned()), "{path}{query}");
    }

    let selector = "fieldSelector=metadata.name%3Dx";
    for (path, query, reason) in [
        (cluster, "resourceVersion=5&resourceVersionMatch=Exact".to_owned(), "exact"),
        (cluster, "resourceVersion=5&limit=1".to_owned(), "exact"),
        (cluster, "resourceVersion=10&limit=1".to_owned(), "exact"),
        (cluster, format!("continue={}", token(5, "ns/x")), "continue"),
        (cluster, format!("continue={}", token(10, "ns/x")), "continue"),
        (cluster, "continue=abc".to_owned(), "token"),
        (namespace, format!("resourceVersion=7&limit=1&{selector}"), "latest"),
    ] {
        let list = weir.get(&format!("{path}{query}")).await;
        let expected = format!("forward; reason={reason}");
        assert_eq!(list.header("x-weir-cache"), expected, "{path}{query}");
    }
    let list = weir.get(&format!("{cluster}resourceVersion=7&limit=1&{selector}")).await;
    assert_eq!(list.header("x-weir-cache"), "hit", "one name in all namespaces is a list");
}

/// Such an upstream reads pages from etcd, and its tokens differ from a cache's.
#[tokio::test]
async fn pages_are_forwarded_if_the_upstream_has_no_snapshots() {
    use crate::api::continue_token::ContinueToken;
    use crate::api::resource_version::ResourceVersion;

    let (weir, _feed) = warm().await;
    weir.source.version.send_replace(Some(release(33)));
    let watch = "watch=1&resourceVersion=0&timeoutSeconds=1";
    let token = ContinueToken::encode(ResourceVersion(7), "ns/x");
    for (query, answer) in [
        ("resourceVersion=7&limit=1", "forward; reason=exact"),
        ("resourceVersion=7&limit=1&resourceVersionMatch=NotOlderThan", "forward; reason=exact"),
        ("resourceVersion=7&limit=1&resourceVersionMatch=Exact", "forward; reason=exact"),
        (&format!("continue={token}"), "forward; reason=continue"),
        (&format!("resourceVersion=0&limit=1&continue={token}"), "forward; reason=continue"),
        ("resourceVersion=0&limit=1", "hit"),
        ("resourceVersion=7", "hit"),
        ("resourceVersion=7&resourceVersionMatch=Exact", "hit"),
        // The upstream looks for an object without a namespace, and finds none.
        (&format!("{watch}&fieldSelector=metadata.name%3Dx"), "forward; reason=selector"),
        (&format!("{watch}&fieldSelector=metadata.name%3Dx,metadata.namespace%3Dns"), "hit"),
    ] {
        let list = weir.get(&format!("/api/v1/configmaps?{query}")).await;
        assert_eq!(list.header("x-weir-cache"), answer, "{query}");
    }
}

#[tokio::test]
async fn watches_by_path_prefix_are_served() {
    let (weir, _feed) = warm().await;
    for path in [
        "/api/v1/watch/configmaps?timeoutSeconds=1",
        "/api/v1/watch/namespaces/ns/configmaps/?timeoutSeconds=1&resourceVersion=0",
        "/api/v1/watch/namespaces/ns/configmaps/x?timeoutSeconds=1",
    ] {
        let watch = weir.get(path).await;
        assert_eq!((watch.code, watch.header("x-weir-cache")), (200, "hit"), "{path}");
        let text = watch.text();
        assert!(text.contains(r#""name":"x""#), "{text}");
        assert_eq!(text.contains(r#""name":"y""#), !path.contains("/x"), "{text}");
    }
    let other = "/api/v1/watch/namespaces/ns/configmaps/x?fieldSelector=metadata.name%3Dy";
    assert_eq!(weir.get(other).await.header("x-weir-cache"), "forward; reason=selector");
}

const PARTIAL_X: &str = r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"x","namespace":"ns","resourceVersion":"3"}}"#;

#[tokio::test]
async fn metadata_only_views() {
    let (weir, _feed) = warm().await;
    let ask = |path: &str, kind: &str| {
        let mut request = get(path);
        let accept = format!("application/json;as={kind};g=meta.k8s.io;v=v1,application/json");
        request.headers_mut().insert("accept", HeaderValue::from_str(&accept).unwrap());
        weir.send(request)
    };
    let path = "/api/v1/configmaps?resourceVersion=0&fieldSelector=metadata.name%3Dx";
    let list = ask(path, "PartialObjectMetadataList").await;
    let expected = format!(
        "{{\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":{{\"resourceVersion\":\"7\"}},\"items\":[{PARTIAL_X}]}}\n"
    );
    assert_eq!((list.header("x-weir-cache"), list.text()), ("hit", &*expected));
    // A list in the kind of a single object is a 406, whose message the upstream writes.
    let other = ask(path, "PartialObjectMetadata").await;
    assert_eq!(other.header("x-weir-cache"), "forward; reason=form");
    // A GET does not wait for a cold cache. The cache is ready by now.
    let path = "/api/v1/namespaces/ns/configmaps/x?resourceVersion=0";
    let one = ask(path, "PartialObjectMetadata").await;
    assert_eq!((one.header("x-weir-cache"), one.text()), ("hit", &*format!("{PARTIAL_X}\n")));
    let path = "/api/v1/configmaps?resourceVersion=0&watch=1&timeoutSeconds=1\
                &fieldSelector=metadata.name%3Dx";
    let watch = ask(path, "PartialObjectMetadata").await;
    assert_eq!(watch.header("x-weir-cache"), "hit");
    assert_eq!(watch.text(), format!("{{\"type\":\"ADDED\",\"object\":{PARTIAL_X}}}\n"));
}

#[tokio::test]
async fn metadata_of_v1beta1_is_forwarded() {
    let (weir, _feed) = warm().await;
    let object = "/api/v1/namespaces/ns/configmaps/x?resourceVersion=0";
    let list = "/api/v1/configmaps?resourceVersion=0";
    let watch = "/api/v1/configmaps?resourceVersion=0&watch=1&timeoutSeconds=1";
    for encoding in ["json", "vnd.kubernetes.protobuf"] {
        for (path, kind) in [
            (object, "PartialObjectMetadata"),
            (list, "PartialObjectMetadataList"),
            (watch, "PartialObjectMetadata"),
        ] {
            let accept = format!(
                "application/{encoding};as={kind};g=meta.k8s.io;v=v1beta1,application/json"
            );
            let mut request = get(path);
            request.headers_mut().insert("accept", HeaderValue::from_str(&accept).unwrap());
            let response = weir.send(request).await;
            assert_eq!(response.header("x-weir-cache"), "forward; reason=form", "{accept}");
        }
    }
}

#[tokio::test]
async fn long_lists_are_compressed_for_clients_that_accept_gzip() {
    let weir = Weir::start(echo).await;
    let _feed = weir.fill((0..2000).map(|n| (format!("name-{n:06}"), 3)));
    let plain = weir.get("/api/v1/configmaps?resourceVersion=0").await;
    assert_eq!(plain.header("content-encoding"), "");
    assert!(plain.body.len() > 131_072);
    // The first response is compressed, the second one is joined from cached segments.
    for _ in 0..2 {
        let mut request = get("/api/v1/configmaps?resourceVersion=0");
        request.headers_mut().insert("accept-encoding", HeaderValue::from_static("gzip"));
        let small = weir.send(request).await;
        assert_eq!(
            (small.header("content-encoding"), small.header("vary")),
            ("gzip", "Accept-Encoding")
        );
        let mut decoder = flate2::bufread::GzDecoder::new(&small.body[..]);
        let mut unpacked = Vec::new();
        std::io::Read::read_to_end(&mut decoder, &mut unpacked).unwrap();
        assert_eq!(unpacked, plain.body);
        assert!(decoder.into_inner().is_empty());
    }
    let scraped = weir.scrape();
    let count = |name: &str| {
        let line = scraped.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().trim().parse::<u64>().unwrap()
    };
    let segments = count("weir_gzip_segments ");
    assert!(segments > 0);
    assert_eq!(count("weir_gzip_segment_misses_total "), segments);
    assert_eq!(count("weir_gzip_segment_hits_total "), segments);
}

#[tokio::test]
async fn the_bytes_of_responses_are_counted_by_origin() {
    let (weir, _feed) = warm().await;
    let list = weir.get("/api/v1/configmaps?resourceVersion=0").await;
    let one = weir.get("/api/v1/namespaces/ns/configmaps/x?resourceVersion=0").await;
    let forwarded = weir.get("/api/v1/namespaces/ns/configmaps/x").await;
    let text = weir.scrape();
    let resource = r#"group="",resource="configmaps""#;
    for (verb, status, got) in
        [("get", "hit", &one), ("list", "hit", &list), ("get", "forward", &forwarded)]
    {
        let labels =
            format!(r#"{{cache_status="{status}",{resource},verb="{verb}",version="v1"}}"#);
        let line = format!("weir_response_bytes_total{labels} {}", got.text().len());
        assert!(text.contains(&line), "{line} is missing in\n{text}");
    }
    for line in [
        r#"weir_request_duration_seconds_count{cache_status="hit",scope="resource",verb="get"} 1"#,
        r#"weir_request_duration_seconds_count{cache_status="hit",scope="cluster",verb="list"} 1"#,
        r#"weir_forward_overhead_seconds_count 1"#,
        r#"weir_list_objects_scanned_total{group="",index="none",resource="configmaps",version="v1"} 2"#,
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
}

#[tokio::test]
async fn only_who_asks_gets_an_explanation() {
    let (weir, _feed) = warm().await;
    let explained = async |path: &str| {
        let mut request = get(path);
        request.headers_mut().insert("x-weir-explain", HeaderValue::from_static("1"));
        weir.send(request).await
    };
    let hit = explained("/api/v1/configmaps?resourceVersion=0").await;
    assert_eq!(
        hit.header("x-weir-explain"),
        "answer=hit; cache=cluster; form=json; resource-version=7; state=current"
    );
    let timing = hit.header("server-timing");
    for stage in ["identify;dur=", "authorize;dur=", "cache;dur="] {
        assert!(timing.contains(stage), "{timing}");
    }
    let forwarded = explained("/api/v1/configmaps/x/status").await;
    let text = forwarded.header("x-weir-explain");
    assert!(text.starts_with("answer=forward; reason="), "{text}");
    assert!(forwarded.header("server-timing").contains("upstream;dur="));
    assert!(!forwarded.text().contains("x-weir-explain"), "the upstream got it");
    let silent = weir.get("/api/v1/configmaps?resourceVersion=0").await;
    assert_eq!((silent.header("x-weir-explain"), silent.header("server-timing")), ("", ""));
}

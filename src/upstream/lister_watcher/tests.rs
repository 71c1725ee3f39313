//! Tests of lists and watches, against servers in the test's process.

mod links;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;

use super::*;
use crate::api::resource::{Representation, Scope};
use crate::api::resource_version::ResourceVersion;
use crate::config::UpstreamConfig;
use crate::config::endpoints::EndpointsConfig;
use crate::testing::config_maps;
use crate::upstream::Upstream;
use crate::upstream::endpoints::health::ProbeResult;
use crate::upstream::error::UpstreamError;
use crate::upstream::fetch::MATCH_NOTHING;
use crate::upstream::testing::{
    Answer, ServerOptions, TestServer, answer, channel_body, config, metrics,
};
use crate::upstream::version::UpstreamVersion;

async fn lister(server: &TestServer, max_list_bytes: usize) -> HttpListWatch {
    lister_of(server.upstream(true).await, max_list_bytes)
}

fn lister_of(upstream: Upstream, max_list_bytes: usize) -> HttpListWatch {
    let scope = Scope::Namespace("team".into());
    let (_, version) = tokio::sync::watch::channel(None);
    let representation = Representation::Json;
    HttpListWatch::new(
        upstream,
        Arc::new(config_maps()),
        &scope,
        representation,
        move || max_list_bytes,
        version,
    )
}

fn object(name: &str, resource_version: u64) -> String {
    format!(
        r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"team","resourceVersion":"{resource_version}"}}}}"#
    )
}

fn frame(event: &str, object: &str) -> String {
    format!("{{\"type\":\"{event}\",\"object\":{object}}}\n")
}

#[tokio::test]
async fn a_list_requests_a_page_and_returns_warnings() {
    let asked = Arc::new(Mutex::new(String::new()));
    let seen = asked.clone();
    let server = TestServer::start(ServerOptions::http2(), move |request| {
        let path = request.uri().path_and_query().unwrap().to_string();
        assert_eq!(request.headers()["accept"], "application/json");
        assert!(request.headers()["user-agent"].to_str().unwrap().starts_with("weir/"));
        assert!(!request.headers().contains_key("accept-encoding"));
        *seen.lock() = path;
        let body = r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":"t/2"},"items":[{"metadata":{"name":"a","namespace":"team","resourceVersion":"5"}}]}"#;
        let mut answer = answer(200, body);
        answer.headers_mut().append("warning", "299 - \"old\"".parse().unwrap());
        async move { answer }
    })
    .await;
    let lister = lister(&server, 1 << 20).await;
    let request = ListRequest {
        limit: Some(500),
        continue_token: "a/b+c=".to_owned(),
        resource_version: Some(ResourceVersion(3)),
        resource_version_match: "NotOlderThan",
    };
    let page = lister.list(request).await.unwrap();
    assert_eq!((page.resource_version.0, page.continue_token.as_str()), (7, "t/2"));
    assert_eq!(page.objects.len(), 1);
    assert_eq!(
        *asked.lock(),
        "/api/v1/namespaces/team/configmaps?limit=500&continue=a%2Fb%2Bc%3D\
         &resourceVersion=3&resourceVersionMatch=NotOlderThan"
    );
    assert_eq!(lister.warnings(), ["299 - \"old\""]);
}

#[tokio::test]
async fn a_list_that_is_too_long_or_broken_is_an_error() {
    let server =
        TestServer::start(ServerOptions::http2(), |_| async { answer(200, "{\"kind\":") }).await;
    let error = lister(&server, 1 << 20).await.list(ListRequest::default()).await.unwrap_err();
    assert!(matches!(error, UpstreamError::Malformed(_)), "{error}");
    let error = lister(&server, 3).await.list(ListRequest::default()).await.unwrap_err();
    assert!(matches!(error, UpstreamError::TooLong(3)), "{error}");
}

/// A reload may change how long a list may be.
#[tokio::test]
async fn each_list_has_the_limit_of_its_time() {
    let body = r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a","namespace":"team","resourceVersion":"5"}}]}"#;
    let length = body.len();
    let server =
        TestServer::start(ServerOptions::http2(), move |_| async move { answer(200, body) }).await;
    let limit = Arc::new(AtomicUsize::new(length - 1));
    let (present, scope) = (Arc::clone(&limit), Scope::Namespace("team".into()));
    let lister = HttpListWatch::new(
        server.upstream(true).await,
        Arc::new(config_maps()),
        &scope,
        Representation::Json,
        move || present.load(Ordering::Relaxed),
        tokio::sync::watch::channel(None).1,
    );
    let error = lister.list(ListRequest::default()).await.unwrap_err();
    assert!(matches!(error, UpstreamError::TooLong(_)), "{error}");
    limit.store(length, Ordering::Relaxed);
    assert_eq!(lister.list(ListRequest::default()).await.unwrap().objects.len(), 1);
}

#[tokio::test]
async fn a_failure_status_is_decoded() {
    let server = TestServer::start(ServerOptions::http2(), |_| async {
        let body = r#"{"kind":"Status","message":"nobody may","reason":"Forbidden","code":403}"#;
        let mut answer = answer(403, body);
        answer.headers_mut().insert("retry-after", "4".parse().unwrap());
        answer
    })
    .await;
    let watched = lister(&server, 1 << 20).await.watch(WatchRequest::default()).await;
    let Err(UpstreamError::Status { code, reason, message, retry_after }) = watched else {
        panic!("not a status")
    };
    assert_eq!((code.as_u16(), &*reason, &*message), (403, "Forbidden", "nobody may"));
    assert_eq!(retry_after, Some(Duration::from_secs(4)));
}

/// Starts a server whose only watch sends the chunks that the test writes. Also returns the query
/// of the request.
async fn watch_server(
    options: ServerOptions,
) -> (TestServer, tokio::sync::mpsc::Sender<Bytes>, Arc<Mutex<String>>) {
    let (sender, body) = channel_body();
    let body = Mutex::new(Some(body));
    let asked = Arc::new(Mutex::new(String::new()));
    let seen = asked.clone();
    let server = TestServer::start(options, move |request| {
        *seen.lock() = request.uri().query().unwrap_or_default().to_owned();
        let body = body.lock().take().unwrap();
        async move { Answer::new(body) }
    })
    .await;
    (server, sender, asked)
}

#[tokio::test]
async fn a_watch_is_read_as_events_to_its_clean_end() {
    let (server, sender, asked) = watch_server(ServerOptions::http2()).await;
    let request = WatchRequest {
        resource_version: Some(ResourceVersion(7)),
        send_initial_events: true,
        timeout_seconds: 300,
        ..WatchRequest::default()
    };
    let mut watch = lister(&server, 1).await.watch(request).await.unwrap();
    assert_eq!(
        *asked.lock(),
        "watch=true&allowWatchBookmarks=true&timeoutSeconds=300&resourceVersion=7\
         &sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    );
    let bookmark = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}"#;
    let text = [
        frame("ADDED", &object("a", 8)),
        frame("DELETED", &object("b", 9)),
        frame("BOOKMARK", bookmark),
        frame("ERROR", r#"{"kind":"Status","message":"too old","reason":"Expired","code":410}"#),
    ]
    .concat();
    for chunk in text.as_bytes().chunks(37) {
        sender.send(Bytes::copy_from_slice(chunk)).await.unwrap();
    }
    drop(sender);
    let mut events = Vec::new();
    while let Some(batch) = watch.next().await.unwrap() {
        assert!(!batch.is_empty());
        events.extend(batch);
    }
    assert!(matches!(&events[0], UpstreamEvent::Upsert(object) if object.key.name() == "a"));
    assert!(matches!(&events[1], UpstreamEvent::Delete(object) if object.resource_version.0 == 9));
    let end = ResourceVersion(9);
    assert!(
        matches!(&events[2], UpstreamEvent::Bookmark { resource_version, initial_events_end: true, .. } if *resource_version == end)
    );
    assert!(
        matches!(&events[3], UpstreamEvent::Error(UpstreamError::Status { code, .. }) if code.as_u16() == 410)
    );
    assert_eq!(events.len(), 4);
    assert!(watch.next().await.unwrap().is_none(), "an ended watch stays ended");
}

/// A balancer gives each connection to an API server. The probe may have moved another one than
/// that of the watch.
#[tokio::test]
async fn the_server_of_a_watch_catches_up_on_the_same_connection() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = asked.clone();
    let server = TestServer::start(ServerOptions::http1(), move |request| {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let is_watch = query.starts_with("watch");
        let mut seen = seen.lock();
        seen.push(query);
        // The first API server lags.
        let (status, body) = match seen.len() {
            1 => (504, r#"{"kind":"Status","message":"Too large resource version"}"#.to_owned()),
            _ if is_watch => (200, frame("MODIFIED", &object("a", 10))),
            _ => (200, r#"{"metadata":{"resourceVersion":"9"},"items":[]}"#.to_owned()),
        };
        async move { answer(status, body) }
    })
    .await;
    let request = WatchRequest {
        resource_version: Some(ResourceVersion(7)),
        timeout_seconds: 3,
        after_reaching: Some(ResourceVersion(9)),
        ..WatchRequest::default()
    };
    let mut watch = lister(&server, 1 << 20).await.watch(request).await.unwrap();
    assert_eq!(watch.next().await.unwrap().unwrap().len(), 1);
    let catch_up = format!("resourceVersion=9&resourceVersionMatch=NotOlderThan{MATCH_NOTHING}");
    let watch = "watch=true&allowWatchBookmarks=true&timeoutSeconds=3&resourceVersion=7";
    assert_eq!(*asked.lock(), [&*catch_up, &*catch_up, watch]);
    assert_eq!(server.accepted(), 2, "one connection for each API server");
}

/// Streams a list. Returns the names of its objects, and its end.
async fn stream_list(text: &str) -> (Vec<String>, Result<Option<ResourceVersion>, UpstreamError>) {
    let (server, sender, asked) = watch_server(ServerOptions::http1()).await;
    let request = ListRequest::not_older(Some(ResourceVersion(7)));
    let mut list = lister(&server, 1).await.stream_list(request).await.unwrap();
    assert_eq!(*asked.lock(), "resourceVersion=7&resourceVersionMatch=NotOlderThan");
    for chunk in text.as_bytes().chunks(37) {
        sender.send(Bytes::copy_from_slice(chunk)).await.unwrap();
    }
    drop(sender);
    let (mut names, mut end) = (Vec::new(), None);
    loop {
        match list.next().await {
            Ok(Some(events)) => {
                for event in events {
                    match event {
                        UpstreamEvent::Upsert(object) => names.push(object.key.name().to_owned()),
                        UpstreamEvent::Bookmark { resource_version, .. } => {
                            end = Some(resource_version)
                        }
                        other => panic!("{other:?}"),
                    }
                }
            }
            Ok(None) => return (names, Ok(end)),
            Err(error) => return (names, Err(error)),
        }
    }
}

#[tokio::test]
async fn a_streamed_list_ends_with_its_resource_version() {
    let list = |meta: &str| {
        format!(
            r#"{{"kind":"ConfigMapList","apiVersion":"v1","metadata":{{"resourceVersion":"9"{meta}}},"items":[{{"metadata":{{"name":"a","namespace":"team","resourceVersion":"8"}}}},{{"metadata":{{"name":"b","namespace":"team","resourceVersion":"9"}}}}]}}"#
        )
    };
    let (names, end) = stream_list(&list("")).await;
    assert_eq!((names, end.unwrap()), (vec!["a".into(), "b".into()], Some(ResourceVersion(9))));
    let page = list(r#","continue":"t""#);
    for text in [page, list("").replace("items", "others")] {
        let (_, end) = stream_list(&text).await;
        assert!(matches!(end, Err(UpstreamError::Malformed(_))), "{text}: {end:?}");
    }
    let whole = list("");
    for length in [0, 1, 40, whole.len() - 30, whole.len() - 2, whole.len() - 1] {
        let (cut, _) = whole.split_at(length);
        let (_, end) = stream_list(cut).await;
        assert!(matches!(end, Err(UpstreamError::Lost(_))), "{length}: {end:?}");
    }
}

#[tokio::test]
async fn lists_are_streamed_in_json_since_1_34() {
    let server = TestServer::start(ServerOptions::http2(), |_| async { answer(200, "") }).await;
    let upstream = server.upstream(true).await;
    let version_of =
        |minor| UpstreamVersion { major: 1, minor, git_version: String::new(), is_mixed: false };
    let (json, protobuf) = (Representation::Json, Representation::Protobuf);
    for (representation, version, streamed) in [
        (json, Some(version_of(34)), true),
        (json, Some(version_of(33)), false),
        (json, None, false),
        (protobuf, Some(version_of(36)), false),
        (Representation::MetadataJson, Some(version_of(36)), false),
    ] {
        let (_, version) = tokio::sync::watch::channel(version);
        let (upstream, scope) = (upstream.clone(), Scope::Cluster);
        let lister = HttpListWatch::new(
            upstream,
            Arc::new(config_maps()),
            &scope,
            representation,
            || 1,
            version,
        );
        assert_eq!(lister.streams_lists(), streamed, "{representation:?}");
    }
}

#[tokio::test]
async fn events_before_a_broken_frame_are_delivered() {
    let (server, sender, _) = watch_server(ServerOptions::http2()).await;
    let mut watch = lister(&server, 1).await.watch(WatchRequest::default()).await.unwrap();
    let text = frame("ADDED", &object("a", 8)) + &frame("SURPRISE", &object("a", 9));
    sender.send(text.into()).await.unwrap();
    assert_eq!(watch.next().await.unwrap().unwrap().len(), 1);
    assert!(matches!(watch.next().await, Err(UpstreamError::Malformed(_))));
}

#[tokio::test]
async fn a_watch_that_breaks_off_in_mid_frame_is_lost_and_not_unreadable() {
    let (server, sender, _) = watch_server(ServerOptions::http2()).await;
    let mut watch = lister(&server, 1).await.watch(WatchRequest::default()).await.unwrap();
    sender.send(frame("ADDED", &object("a", 8)).into()).await.unwrap();
    assert_eq!(watch.next().await.unwrap().unwrap().len(), 1);
    server.close_connections();
    assert!(matches!(watch.next().await, Err(UpstreamError::Lost(_))));

    let (server, sender, _) = watch_server(ServerOptions::http2()).await;
    let mut watch = lister(&server, 1).await.watch(WatchRequest::default()).await.unwrap();
    sender.send("{\"type\":".into()).await.unwrap();
    drop(sender);
    assert!(matches!(watch.next().await, Err(UpstreamError::Lost(_))));
}

#[tokio::test]
async fn a_dropped_watch_is_cancelled_upstream() {
    let (server, sender, _) = watch_server(ServerOptions::http2()).await;
    let watch = lister(&server, 1).await.watch(WatchRequest::default()).await.unwrap();
    drop(watch);
    sender.closed().await;
}

#[tokio::test]
async fn many_small_unread_frames_do_not_end_the_watch() {
    let (server, sender, _) = watch_server(ServerOptions::http2()).await;
    let mut watch = lister(&server, 1).await.watch(WatchRequest::default()).await.unwrap();
    const COUNT: u64 = 20_000;
    for resource_version in 1..=COUNT {
        sender.send(frame("MODIFIED", &object("a", resource_version)).into()).await.unwrap();
    }
    drop(sender);
    let mut seen = 0;
    while let Some(events) = watch.next().await.unwrap() {
        seen += events.len() as u64;
    }
    assert_eq!(seen, COUNT);
}

/// Requests wait for the answer, and the API server may be silent for long.
#[tokio::test]
async fn a_probe_leaves_a_server_that_hangs() {
    let (hangs, asked) = (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(None)));
    let mut servers = Vec::new();
    for number in 0..2 {
        let (hangs, asked) = (hangs.clone(), asked.clone());
        let server = TestServer::start(ServerOptions::http2(), move |_| {
            let (hangs, asked) = (hangs.clone(), asked.clone());
            async move {
                if *hangs.lock() == Some(number) {
                    std::future::pending::<()>().await;
                }
                *asked.lock() = Some(number);
                let revision = number + 7;
                answer(
                    200,
                    format!(r#"{{"metadata":{{"resourceVersion":"{revision}"}},"items":[]}}"#),
                )
            }
        });
        servers.push(server.await);
    }
    let upstream = upstream_of(&servers, true).await;
    let (_, version) = tokio::sync::watch::channel(None);
    let (json, scope) = (Representation::Json, Scope::Namespace("team".into()));
    let resource = Arc::new(config_maps());
    let lister = HttpListWatch::new(upstream.clone(), resource, &scope, json, || 1 << 20, version);
    Box::pin(lister.list(one())).await.unwrap();
    let first: u64 = asked.lock().unwrap();

    *hangs.lock() = Some(first);
    let port = servers[usize::from(first == 1)].address.port();
    let set = upstream.endpoints().servers();
    let hung = set.iter().find(|server| server.endpoint.port == port).unwrap();
    let suspicion = async {
        hung.suspected.notified().await;
        hung.probed(ProbeResult::Failed);
    };
    let both = async { tokio::join!(lister.list(one()), suspicion).0 };
    let page = tokio::time::timeout(Duration::from_secs(60), Box::pin(both)).await.unwrap();
    assert_eq!(page.unwrap().resource_version.0, 1 - first + 7);
}

/// A probe moves the reflector's pin to another server while the watch waits for its head.
#[tokio::test]
async fn the_server_that_sends_the_watch_is_asked_whether_it_lags() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let opens = Arc::new(tokio::sync::Notify::new());
    let mut servers = Vec::new();
    for number in 0..2 {
        let (asked, opens) = (asked.clone(), opens.clone());
        let server = TestServer::start(ServerOptions::http1(), move |request| {
            let (asked, opens) = (asked.clone(), opens.clone());
            async move {
                let query = request.uri().query().unwrap_or_default().to_owned();
                let is_watch = query.starts_with("watch");
                let is_held = is_watch && query.contains("timeoutSeconds=7");
                asked.lock().push((number, query));
                if is_held {
                    opens.notified().await;
                }
                if is_watch {
                    let (sender, body) = channel_body();
                    tokio::spawn(async move { sender.closed().await });
                    return Answer::new(body);
                }
                answer(200, r#"{"metadata":{"resourceVersion":"9"},"items":[]}"#)
            }
        });
        servers.push(server.await);
    }
    let upstream = upstream_of(&servers, false).await;
    let (_, version) = tokio::sync::watch::channel(None);
    let (json, scope) = (Representation::Json, Scope::Namespace("team".into()));
    let resource = Arc::new(config_maps());
    let lister = HttpListWatch::new(upstream.clone(), resource, &scope, json, || 1 << 20, version);
    let watch = |timeout_seconds| {
        let resource_version = Some(ResourceVersion(7));
        let request = WatchRequest { resource_version, timeout_seconds, ..WatchRequest::default() };
        Box::pin(lister.watch(request))
    };
    let first = watch(3).await.unwrap();
    // The first server is left, so that the second one has to be confirmed.
    assert!(lister.leave_server());
    let mut held = watch(7);
    let arrived = || asked.lock().iter().any(|(_, query)| query.contains("timeoutSeconds=7"));
    let mut held = tokio::select! {
        _ = &mut held => panic!("the head is held"),
        () = crate::testing::eventually("the watch arrives", arrived) => held,
    };
    let second = asked.lock().last().unwrap().0;
    // The probe goes back to the first server, and moves the pin.
    assert!(lister.leave_server());
    Box::pin(lister.list(one())).await.unwrap();
    assert_ne!(asked.lock().last().unwrap().0, second);
    opens.notify_one();
    let watch = (&mut held).await.unwrap();
    assert!(lister.has_reached(ResourceVersion(9)).await.unwrap());
    assert_eq!(asked.lock().last().unwrap().0, second, "the server that sends the watch");
    drop((first, watch));
}

/// The request of a probe.
fn one() -> ListRequest {
    ListRequest { limit: Some(1), ..ListRequest::default() }
}

async fn upstream_of(servers: &[TestServer], http2: bool) -> Upstream {
    let static_urls = servers.iter().map(|server| format!("http://{}", server.address)).collect();
    let endpoints = EndpointsConfig { static_urls, ..EndpointsConfig::default() };
    let config = UpstreamConfig { endpoints, ..config(None, None, http2) };
    Upstream::new(&config, metrics()).await.unwrap()
}

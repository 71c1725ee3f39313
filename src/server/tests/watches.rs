//! Watches that are served from a cache, and those that are forwarded without one.

use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::cached::{X, warm};
use super::harness::{Settings, Weir, echo, get};
use crate::cache::script::{object, page, status, upsert};
use crate::testing::eventually;
use crate::upstream::error::UpstreamError;
use crate::upstream::testing::channel_body;

async fn line(body: &mut Incoming, seen: &mut Vec<u8>) -> String {
    loop {
        if let Some(end) = seen.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = seen.drain(..=end).collect();
            return String::from_utf8(line).unwrap();
        }
        let frame = body.frame().await.expect("the watch ended").unwrap();
        seen.extend_from_slice(&frame.into_data().unwrap());
    }
}

#[tokio::test]
async fn a_watch_receives_events_at_once() {
    let (weir, feed) = warm().await;
    let mut client = weir.http1().await;
    let path = "/api/v1/configmaps?watch=1";
    let response = client.send_request(get(path)).await.unwrap();
    assert_eq!(response.headers()["x-weir-cache"], "hit");
    assert_eq!(response.headers()["transfer-encoding"], "chunked");
    let (mut body, mut seen) = (response.into_body(), Vec::new());
    assert_eq!(
        line(&mut body, &mut seen).await,
        format!("{{\"type\":\"ADDED\",\"object\":{X}}}\n")
    );
    assert!(line(&mut body, &mut seen).await.contains(r#""name":"y""#));
    feed.send(vec![upsert("x", 9)]);
    assert!(line(&mut body, &mut seen).await.starts_with(r#"{"type":"MODIFIED""#));
    assert!(
        weir.scrape().contains(r#"weir_watchers{group="",resource="configmaps",version="v1"} 1"#)
    );
    drop((body, client));
    eventually("the watcher is gone", || {
        weir.scrape().contains(r#"weir_watchers{group="",resource="configmaps",version="v1"} 0"#)
    })
    .await;
    assert!(weir.scrape().contains(r#"weir_watchers_ended_total{cause="client""#));

    // The history starts after this resourceVersion, and the upstream does not show the events.
    weir.script.on_watch_fail(status(503, "down"));
    let mut client = weir.http1().await;
    let old = client.send_request(get(&format!("{path}&resourceVersion=2"))).await.unwrap();
    assert_eq!(old.headers()["x-weir-cache"], "forward; reason=before-cache");
}

#[tokio::test]
async fn a_bookmark_ends_initial_events_even_if_not_requested() {
    let (weir, _feed) = warm().await;
    let mut client = weir.http1().await;
    let path = "/api/v1/configmaps?watch=1&allowWatchBookmarks=1&resourceVersion=0";
    let response = client.send_request(get(path)).await.unwrap();
    let (mut body, mut seen) = (response.into_body(), Vec::new());
    for expected in ["ADDED", "ADDED", "BOOKMARK"] {
        let line = line(&mut body, &mut seen).await;
        assert!(line.starts_with(&format!(r#"{{"type":"{expected}""#)), "{line}");
        assert_eq!(line.contains("k8s.io/initial-events-end"), expected == "BOOKMARK", "{line}");
    }
}

#[tokio::test]
async fn a_watch_without_events_has_its_head_at_once() {
    let (weir, _feed) = warm().await;
    // Fills the cache first. A cache that was started by the watch would be listed at the watch's
    // resourceVersion.
    assert_eq!(
        weir.get("/api/v1/configmaps?resourceVersion=0").await.header("x-weir-cache"),
        "hit"
    );
    let mut client = weir.http1().await;
    let path = "/api/v1/configmaps?watch=1&resourceVersion=7";
    let answered = tokio::time::timeout(Duration::from_secs(5), client.send_request(get(path)));
    assert_eq!(answered.await.unwrap().unwrap().status(), 200);
}

#[tokio::test]
async fn a_watch_from_now_on_needs_the_revision_and_not_the_state() {
    let (weir, feed) = warm().await;
    weir.script.on_probe(9);
    let path =
        "/api/v1/configmaps?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
    let response = weir.http1().await.send_request(get(path)).await.unwrap();
    assert_eq!(response.headers()["x-weir-cache"], "hit");
    // Events up to the upstream's resourceVersion are not sent.
    feed.send(vec![upsert("x", 8), upsert("x", 9), upsert("y", 10)]);
    let (mut body, mut seen) = (response.into_body(), Vec::new());
    let line = line(&mut body, &mut seen).await;
    assert!(line.contains(r#""name":"y""#), "{line}");
}

#[tokio::test]
async fn the_number_of_forwarded_watches_without_a_cache_is_limited() {
    let settings = Settings { warmup_timeout: Duration::from_millis(50), ..Settings::default() };
    let weir = Weir::start_with(settings, |_| {
        let (sender, body) = channel_body();
        tokio::spawn(async move {
            drop(sender.send(Bytes::from_static(b"{}\n")).await);
            sender.closed().await;
        });
        async move { Response::new(body) }
    })
    .await;
    let path = "/api/v1/configmaps?watch=1&resourceVersion=0";
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut client = weir.http1().await;
        let response = client.send_request(get(path)).await.unwrap();
        assert_eq!(response.headers()["x-weir-cache"], "forward; reason=not-ready");
        held.push((client, response));
    }
    let refused = weir.get(path).await;
    assert_eq!((refused.code, refused.header("retry-after")), (429, "1"));
    assert!(refused.text().contains("storage is (re)initializing"), "{}", refused.text());
    // A stream that ends releases its permit. A GET needs no permit.
    drop(held.pop());
    let mut client = weir.http1().await;
    let mut code = 429;
    while code == 429 {
        let response = client.send_request(get(path)).await.unwrap();
        code = response.status().as_u16();
        client = weir.http1().await;
    }
    assert_eq!(code, 200);
    let one = "/api/v1/namespaces/ns/configmaps/x?resourceVersion=0";
    let response = weir.http1().await.send_request(get(one)).await.unwrap();
    assert_eq!(response.headers()["x-weir-cache"], "forward; reason=not-ready");
}

#[tokio::test]
async fn after_a_rewind_a_watch_from_the_lost_history_is_expired() {
    let settings = Settings { warmup_timeout: Duration::from_secs(1), ..Settings::default() };
    let weir = Weir::start_with(settings, echo).await;
    let feed = weir.fill([("x".to_owned(), 3)]);
    feed.send(vec![upsert("x", 90)]);
    let fresh = weir.get("/api/v1/configmaps?resourceVersion=90").await;
    assert_eq!(fresh.header("x-weir-cache"), "hit");
    let begin =
        |at: u64| format!("/api/v1/configmaps?watch=1&resourceVersion={at}&timeoutSeconds=1");
    let endless = "/api/v1/configmaps?watch=1&resourceVersion=90";
    let running = weir.http1().await.send_request(get(endless)).await.unwrap();

    weir.script.on_probe(7);
    weir.script.keep(weir.script.on_watch());
    feed.fail(UpstreamError::Lost("reset".to_owned()));
    running.into_body().collect().await.unwrap();
    // The cache is not ready yet. A forwarded watch would be silent, or lack the events until 90
    // of a history that has passed it.
    assert!(weir.get(&begin(90)).await.text().contains(r#""code":410"#));
    weir.script.on_probe(95);
    assert!(weir.get(&begin(90)).await.text().contains(r#""code":410"#));
    weir.script.on_probe(7);
    weir.script.keep(weir.script.on_watch_at(7));
    for at in [6, 8, 90, 200] {
        let answer = weir.get(&begin(at)).await;
        assert_eq!((answer.code, answer.header("x-weir-cache")), (200, "hit"), "{at}");
        let expected = format!("too old resource version: {at} (7)");
        assert!(answer.text().contains(&expected), "{}", answer.text());
        assert!(answer.text().starts_with(r#"{"type":"ERROR""#));
    }
    // The new history has passed the cache's resourceVersion, so that these watches are valid.
    weir.script.on_probe(8);
    assert_eq!(weir.get(&begin(8)).await.text(), "");
    assert_eq!(weir.get(&begin(7)).await.text(), "");
}

#[tokio::test]
async fn watch_lists_are_forwarded_if_the_upstream_has_none() {
    let weir = Weir::start(echo).await;
    weir.script.on_watch_fail(status(422, "sendInitialEvents is forbidden"));
    weir.script.on_list(Ok(page(7, "", vec![object("x", 3)])));
    weir.script.keep(weir.script.on_watch());
    weir.script.on_probe(7);
    let watch = "/api/v1/configmaps?watch=1&timeoutSeconds=1&allowWatchBookmarks=1";
    for asked in ["true&resourceVersion=0", "true", "false&resourceVersion=7"] {
        let path = format!("{watch}&resourceVersionMatch=NotOlderThan&sendInitialEvents={asked}");
        let answer = weir.get(&path).await;
        assert_eq!(answer.header("x-weir-cache"), "forward; reason=options", "{asked}");
    }
    // Its other watches begin with the state, and no bookmark ends the initial events.
    for unset in ["", "&resourceVersion=0"] {
        let answer = weir.get(&format!("{watch}{unset}")).await;
        assert_eq!(answer.header("x-weir-cache"), "hit");
        assert_eq!(answer.text(), format!("{{\"type\":\"ADDED\",\"object\":{X}}}\n"));
    }
}

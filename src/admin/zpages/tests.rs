//! The z-pages, to the byte.

use std::io::Write;

use tracing_subscriber::fmt::MakeWriter;

use std::time::Duration;

use super::*;
use crate::testing::headers;

/// A Weir that started at 2026-11-24 12:00:00 UTC.
fn pages() -> ZPages {
    let flags = vec![
        ("log-filter".to_owned(), "weir=debug".to_owned()),
        ("config".to_owned(), "/etc/weir/weir.yaml".to_owned()),
    ];
    let pages = ZPages::new("0.1.0", flags, || json!({ "kind": "Configz" }));
    ZPages { started: SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_521_600), ..pages }
}

fn get(pages: &ZPages, path: &str, accept: &'static str) -> ZAnswer {
    ask(pages, &Method::GET, path, &headers(&[("accept", accept)]))
}

fn ask(pages: &ZPages, method: &Method, path: &str, headers: &HeaderMap) -> ZAnswer {
    let uri: Uri = path.parse().unwrap();
    pages.answer(ZPage::from_path(uri.path()).unwrap(), method, &uri, headers)
}

/// Replaces the line that depends on the present time.
fn text(answer: &ZAnswer) -> String {
    let text = String::from_utf8(answer.body.to_vec()).unwrap();
    let fixed = text.lines().map(|line| match line.trim_start().split_once(':') {
        Some(("Up", _)) => "Up: ...",
        Some(("\"uptimeSeconds\"", _)) => "  \"uptimeSeconds\": ...,",
        _ => line,
    });
    fixed.collect::<Vec<_>>().join("\n")
}

#[test]
fn statusz_is_text_by_default_and_json_if_asked_for() {
    let pages = pages();
    let answer = get(&pages, "/statusz", "*/*");
    assert_eq!((answer.status, answer.content_type), (StatusCode::OK, "text/plain; charset=utf-8"));
    assert_eq!(
        text(&answer),
        "
weir statusz
Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.

Started: Tue Nov 24 12:00:00 UTC 2026
Up: ...
Binary version: 0.1.0
Paths: / /api/caches /api/clients /api/events /api/findings /api/limits /api/overview /api/reasons /api/shadow /configz /debug/caches /debug/connections /debug/log /debug/log/lines /debug/memory /debug/relist /flagz /healthz /livez /metrics /metrics/slis /readyz /statusz"
    );
    let answer = get(&pages, "/statusz", "application/json;as=Statusz;v=v1beta1;g=config.k8s.io");
    assert_eq!((answer.status, answer.content_type), (StatusCode::OK, "application/json"));
    let page: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(page["kind"], "Statusz");
    assert_eq!(page["apiVersion"], "config.k8s.io/v1beta1");
    assert_eq!(page["metadata"], json!({ "name": "weir" }));
    assert_eq!(page["startTime"], "2026-11-24T12:00:00Z");
    assert_eq!(page["binaryVersion"], "0.1.0");
    assert!(page["uptimeSeconds"].is_u64());
    assert_eq!(page["paths"].as_array().unwrap().len(), PATHS.len());
    let refused = get(&pages, "/statusz", "application/json");
    assert_eq!(refused.status, StatusCode::NOT_ACCEPTABLE);
}

#[test]
fn flagz_shows_the_given_flags() {
    let pages = pages();
    assert_eq!(
        text(&get(&pages, "/flagz", "")),
        "
weir flags
Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.

config=/etc/weir/weir.yaml
log-filter=weir=debug"
    );
    let answer = get(&pages, "/flagz", "application/json;as=Flagz;v=v1alpha1;g=config.k8s.io");
    assert_eq!(
        serde_json::from_slice::<Value>(&answer.body).unwrap(),
        json!({
            "kind": "Flagz",
            "apiVersion": "config.k8s.io/v1alpha1",
            "metadata": { "name": "weir" },
            "flags": { "config": "/etc/weir/weir.yaml", "log-filter": "weir=debug" },
        })
    );
}

#[test]
fn a_list_is_requested_by_a_post_with_a_header_alone() {
    let pages = pages();
    let change = headers(&[("x-weir-change", "1")]);
    let ask_path = |path| ask(&pages, &Method::POST, path, &change).status;
    let ask =
        |method, headers: &HeaderMap| ask(&pages, &method, "/debug/relist/v1/pods", headers).status;
    assert_eq!(ask(Method::GET, &change), StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(ask(Method::POST, &HeaderMap::new()), StatusCode::FORBIDDEN);
    assert_eq!(ask_path("/statusz"), StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(ask_path("/debug/log"), StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(ask_path("/debug/caches/v1/pods"), StatusCode::METHOD_NOT_ALLOWED);
    // There are no caches.
    assert_eq!(ask(Method::POST, &change), StatusCode::NOT_FOUND);
    assert_eq!(ZPage::Relist.methods(), "POST");
}

#[test]
fn the_last_lines_of_the_log_are_shown() {
    let recent = RecentLines::default();
    let filter = tracing_subscriber::EnvFilter::new("info");
    let (_layer, handle) =
        tracing_subscriber::reload::Layer::<_, tracing_subscriber::Registry>::new(filter);
    let log = Log { filter: LogFilter::new(handle, "info"), recent: recent.clone() };
    let pages = pages().with_log(Some(log));
    assert_eq!(get(&pages, "/debug/log", "").body, "{\n  \"filter\": \"info\"\n}\n");
    assert_eq!(get(&pages, "/debug/log/lines", "").body, "");
    writeln!(recent.make_writer(), r#"{{"message":"a cache is ready"}}"#).unwrap();
    let answer = get(&pages, "/debug/log/lines", "");
    assert_eq!((answer.status, answer.content_type), (StatusCode::OK, "text/plain; charset=utf-8"));
    assert_eq!(answer.body, "{\"message\":\"a cache is ready\"}\n");
    let change = headers(&[("x-weir-change", "1")]);
    let posted = ask(&pages, &Method::POST, "/debug/log/lines", &change);
    assert_eq!(posted.status, StatusCode::METHOD_NOT_ALLOWED);
}

#[test]
fn without_weirs_own_log_there_is_no_filter() {
    assert_eq!(get(&pages(), "/debug/log", "").status, StatusCode::NOT_FOUND);
    assert_eq!(get(&pages(), "/debug/log/lines", "").status, StatusCode::NOT_FOUND);
    assert_eq!(get(&pages(), "/configz", "").body, "{\n  \"kind\": \"Configz\"\n}\n");
    assert_eq!(get(&pages(), "/debug/memory", "").status, StatusCode::OK);
    assert_eq!(ZPage::from_path("/debug/other"), None);
}

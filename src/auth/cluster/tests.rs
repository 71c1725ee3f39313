//! Settings that change, and what is remembered of certificates meanwhile.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex as Lock;
use prometheus::Registry;
use serde_json::json;

use super::*;
use crate::auth::peer::Peer;
use crate::auth::x509::testing::{END, START, TestCa, ca_params, user_params};
use crate::config::{Anonymous, AuthenticationConfig, Mode, RequestHeaderConfig};
use crate::upstream::testing::{Speaks, TestServer, answer};

const NOON: i64 = START + 43_200;

fn settings() -> Arc<Settings> {
    Arc::new(Settings::new(AuthenticationMetrics::register(&Registry::new()).unwrap()))
}

fn bundle(ca: &TestCa) -> Setting<Bundle> {
    Setting::Set(Arc::new(Bundle::parse(ca.pem().as_bytes()).unwrap()))
}

/// Who a peer is, in a word.
fn who(settings: &Settings, peer: &Peer, now: i64) -> String {
    match &peer.verdict(&settings.load(), now).unwrap().certified {
        Certified::User(user, _) => user.name.clone(),
        Certified::Nobody => "(nobody)".to_owned(),
        Certified::Wrong => "(wrong)".to_owned(),
        Certified::Unknown => "(unknown)".to_owned(),
    }
}

/// Whether a header is one of the front proxies'.
fn lists(settings: &Settings, name: &'static str) -> bool {
    match &**settings.proxy_headers().load() {
        Setting::Set(names) => names.contain(&http::HeaderName::from_static(name)),
        Setting::Unknown | Setting::Unset => false,
    }
}

fn is_front_proxy(settings: &Settings, peer: &Peer) -> bool {
    peer.verdict(&settings.load(), NOON).unwrap().front_proxy.is_some()
}

fn config(client_ca: Option<PathBuf>, request_header: Option<PathBuf>) -> AuthenticationConfig {
    let words = |word: &str| vec![word.to_owned()];
    AuthenticationConfig {
        mode: Mode::Gateway,
        client_ca,
        request_header: request_header.map(|ca| RequestHeaderConfig {
            ca,
            allowed_names: words("proxy"),
            username_headers: words("X-Remote-User"),
            uid_headers: words("X-Remote-Uid"),
            group_headers: words("X-Remote-Group"),
            extra_header_prefixes: words("X-Remote-Extra-"),
        }),
        anonymous: Anonymous::Forward,
        token_audiences: Vec::new(),
        token_ttl: Duration::from_secs(10),
        token_failure_ttl: Duration::from_secs(10),
        front_proxy: None,
        impersonate: false,
    }
}

#[test]
fn a_verdict_is_remembered_until_settings_or_time_change_it() {
    let (one, two) = (TestCa::new("one"), TestCa::new("two"));
    let peer = Peer::new(Some(&one.user("jane").chain), None);
    let settings = settings();
    assert_eq!(who(&settings, &peer, NOON), "(unknown)");
    settings.set_front_proxy(Setting::Unset);
    assert_eq!(who(&settings, &peer, NOON), "(unknown)");
    settings.set_client(bundle(&one));
    assert_eq!(who(&settings, &peer, NOON), "jane");

    let remembered = peer.verdict(&settings.load(), NOON).unwrap();
    let again = peer.verdict(&settings.load(), NOON + 5).unwrap();
    assert!(Arc::ptr_eq(&remembered, &again), "the same verdict, and no signature checked");
    assert_eq!(who(&settings, &peer, END + 1), "(wrong)", "an open connection outlives it");
    assert_eq!(who(&settings, &peer, START - 1), "(wrong)");
    assert_eq!(who(&settings, &peer, START), "jane");

    settings.set_client(bundle(&two));
    assert_eq!(who(&settings, &peer, NOON), "(wrong)");
    settings.set_client(bundle(&one));
    assert_eq!(who(&settings, &peer, NOON), "jane");
    settings.set_client(Setting::Unset);
    assert_eq!(who(&settings, &peer, NOON), "(nobody)", "the cluster asks for no certificates");
}

#[test]
fn one_complaint_is_enough_where_nobody_knows_a_user() {
    let (clients, proxies) = (TestCa::new("clients"), TestCa::new("proxies"));
    let mut nameless = user_params("x");
    nameless.distinguished_name = rcgen::DistinguishedName::new();
    let peer = Peer::new(Some(&clients.sign(&nameless).chain), None);
    let settings = settings();
    settings.set_front_proxy(Setting::Unset);
    settings.set_client(bundle(&clients));
    assert_eq!(who(&settings, &peer, NOON), "(nobody)");
    let rights = RequestHeader {
        bundle: Bundle::parse(proxies.pem().as_bytes()).unwrap(),
        names: crate::auth::request_header::Names::default(),
    };
    settings.set_front_proxy(Setting::Set(Arc::new(rights)));
    assert_eq!(who(&settings, &peer, NOON), "(wrong)", "it is no front proxy's, as upstream says");
}

#[tokio::test]
async fn files_are_followed_and_bad_ones_are_not() {
    let (one, two) = (TestCa::new("one"), TestCa::new("two"));
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("client.crt"), one.pem()).unwrap();
    std::fs::write(path("proxy.crt"), two.pem()).unwrap();
    let server = TestServer::start(Speaks::http1(), async |_| answer(404, "")).await;
    let upstream = server.upstream(false).await;
    let settings = settings();
    let no_file = config(Some(path("no")), None);
    let config = config(Some(path("client.crt")), Some(path("proxy.crt")));
    let mut follower = Follower::new(&config, settings.clone(), upstream.clone()).unwrap();

    let jane = Peer::new(Some(&one.user("jane").chain), None);
    let proxy = Peer::new(Some(&two.user("proxy").chain), None);
    let other = Peer::new(Some(&two.user("other").chain), None);
    assert_eq!(who(&settings, &jane, NOON), "jane");
    assert!(is_front_proxy(&settings, &proxy));
    assert!(!is_front_proxy(&settings, &other) && !is_front_proxy(&settings, &jane));
    assert_eq!(settings.hints().load().len(), 2);

    let before = settings.load().generation;
    follower.poll_files();
    std::fs::write(path("client.crt"), "broken").unwrap();
    follower.poll_files();
    std::fs::remove_file(path("client.crt")).unwrap();
    follower.poll_files();
    assert_eq!(settings.load().generation, before, "what was is kept");
    std::fs::write(path("client.crt"), two.pem()).unwrap();
    follower.poll_files();
    assert_eq!(who(&settings, &jane, NOON), "(wrong)");
    assert_eq!(who(&settings, &other, NOON), "other");

    let missing = Follower::new(&no_file, settings, upstream);
    let Err(error) = missing else { panic!("took a missing file") };
    assert!(error.to_string().contains("no: it cannot be read"), "{error}");
}

#[tokio::test]
async fn the_clusters_settings_are_followed() {
    let (one, two) = (TestCa::new("one"), TestCa::new("two"));
    let content = Arc::new(Lock::new((404, Bytes::new())));
    let shared = content.clone();
    let server = TestServer::start(Speaks::http1(), move |request| {
        assert_eq!(request.uri().path(), config_map::PATH);
        let (code, body) = shared.lock().clone();
        async move { answer(code, body) }
    })
    .await;
    let settings = settings();
    let upstream = server.upstream(false).await;
    let mut follower = Follower::new(&config(None, None), settings.clone(), upstream).unwrap();
    let set = |data: serde_json::Value| {
        *content.lock() = (200, json!({"kind": "ConfigMap", "data": data}).to_string().into());
    };
    let jane = Peer::new(Some(&one.user("jane").chain), None);
    let proxy = Peer::new(Some(&two.user("proxy").chain), None);

    assert!(follower.poll_map().await < Duration::from_secs(2), "asked again soon");
    assert!(matches!(**settings.proxy_headers().load(), Setting::Unknown));
    assert_eq!(who(&settings, &jane, NOON), "(unknown)");
    set(json!({"client-ca-file": one.pem()}));
    assert!(follower.poll_map().await >= Duration::from_secs(60));
    assert_eq!(who(&settings, &jane, NOON), "jane");
    assert!(!is_front_proxy(&settings, &proxy));
    assert!(matches!(**settings.proxy_headers().load(), Setting::Unset));

    set(json!({
        "client-ca-file": "broken",
        "requestheader-client-ca-file": two.pem(),
        "requestheader-allowed-names": "[\"proxy\"]",
        "requestheader-username-headers": "[\"X-Remote-User\"]",
        "requestheader-group-headers": "null",
    }));
    follower.poll_map().await;
    assert_eq!(who(&settings, &jane, NOON), "jane", "one broken part keeps what was");
    assert!(is_front_proxy(&settings, &proxy));
    assert!(lists(&settings, "x-remote-user") && !lists(&settings, "x-remote-uid"));
    assert!(!is_front_proxy(&settings, &Peer::new(Some(&two.user("x").chain), None)));

    // Other headers, of the same CA.
    set(json!({
        "client-ca-file": one.pem(),
        "requestheader-client-ca-file": two.pem(),
        "requestheader-username-headers": "[\"X-Corp-User\", \"X-Remote-User\"]",
        "requestheader-uid-headers": "[\"X-Corp-Uid\"]",
        "requestheader-group-headers": "[\"X-Corp-Group\"]",
        "requestheader-extra-headers-prefix": "[\"X-Corp-Extra-\"]",
    }));
    follower.poll_map().await;
    for name in ["x-corp-user", "x-remote-user", "x-corp-uid", "x-corp-group", "x-corp-extra-a"] {
        assert!(lists(&settings, name), "{name}");
    }
    assert!(!lists(&settings, "x-remote-group") && !lists(&settings, "x-corp"));

    let generation = settings.load().generation;
    *content.lock() = (500, Bytes::new());
    follower.poll_map().await;
    *content.lock() = (200, "[]".into());
    follower.poll_map().await;
    assert_eq!(settings.load().generation, generation);
    assert!(lists(&settings, "x-corp-user"), "what was is kept");
    set(json!({"client-ca-file": two.pem()}));
    follower.poll_map().await;
    assert_eq!(who(&settings, &jane, NOON), "(wrong)");
    assert!(!is_front_proxy(&settings, &proxy), "the cluster has none any more");
}

#[tokio::test]
async fn a_part_from_a_file_and_one_from_the_cluster() {
    let (one, two) = (TestCa::new("one"), TestCa::new("two"));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ca.crt");
    std::fs::write(&path, one.pem()).unwrap();
    let body = json!({"kind": "ConfigMap", "data": {"client-ca-file": two.pem()}}).to_string();
    let server = TestServer::start(Speaks::http1(), move |_| {
        let body = body.clone();
        async move { answer(200, body) }
    })
    .await;
    let settings = settings();
    let upstream = server.upstream(false).await;
    let mut follower =
        Follower::new(&config(Some(path), None), settings.clone(), upstream).unwrap();
    let jane = Peer::new(Some(&one.user("jane").chain), None);
    assert_eq!(who(&settings, &jane, NOON), "(unknown)", "whether it is a front proxy's is not");
    follower.poll_map().await;
    assert_eq!(who(&settings, &jane, NOON), "jane", "the file counts");
}

#[test]
fn an_intermediate_that_ends_ends_the_verdict() {
    let ca = TestCa::new("ca");
    let mut short = ca_params("between");
    short.not_after = rcgen::date_time_ymd(2026, 6, 1);
    let between = ca.intermediate(short);
    let mut chain = between.user("jane").chain;
    chain.push(between.issuer.der().clone());
    let settings = settings();
    settings.set_front_proxy(Setting::Unset);
    settings.set_client(bundle(&ca));
    let verdict = settings.load().judge(&chain, NOON);
    let june = 1_780_272_000;
    assert!(matches!(&verdict.certified, Certified::User(_, ends) if *ends == june + 1));
    assert!(verdict.holds(&settings.load(), june) && !verdict.holds(&settings.load(), june + 1));
}

//! Settings change, and cached verdicts on certificates follow.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex as Lock;
use prometheus::Registry;
use serde_json::json;

use super::*;
use crate::auth::authenticator::metrics::AuthenticationMetrics;
use crate::auth::peer::Peer;
use crate::auth::request_header::RequestHeaderRules;
use crate::auth::x509::Bundle;
use crate::auth::x509::testing::{END, START, TestCa, ca_params, user_params};
use crate::config::{Anonymous, AuthenticationConfig, Mode, RequestHeaderConfig};
use crate::upstream::error::UpstreamError;
use crate::upstream::testing::{ServerOptions, TestServer, answer};

const NOON: i64 = START + 43_200;

fn store() -> Arc<TrustStore> {
    Arc::new(TrustStore::new(AuthenticationMetrics::register(&Registry::new()).unwrap()))
}

fn bundle(ca: &TestCa) -> Setting<Bundle> {
    Setting::Set(Arc::new(Bundle::parse(ca.pem().as_bytes()).unwrap()))
}

/// Returns the user of a peer's certificates as text.
fn identity(store: &TrustStore, peer: &Peer, now: i64) -> String {
    match &peer.verdict(&store.load(), now).unwrap().identity {
        CertificateIdentity::User { user, .. } => user.name.clone(),
        CertificateIdentity::None => "(none)".to_owned(),
        CertificateIdentity::Invalid => "(invalid)".to_owned(),
        CertificateIdentity::Unknown => "(unknown)".to_owned(),
    }
}

/// Returns whether front proxies may send a header.
fn is_proxy_header(store: &TrustStore, name: &'static str) -> bool {
    store.proxy_headers().load().contain(&http::HeaderName::from_static(name))
}

/// Returns whether all headers of front proxies are known.
fn headers_are_known(store: &TrustStore) -> bool {
    store.proxy_headers().load().are_known()
}

fn is_front_proxy(store: &TrustStore, peer: &Peer) -> bool {
    peer.verdict(&store.load(), NOON).unwrap().front_proxy.is_some()
}

/// Returns the settings of a gateway with these CA files: of clients and of front proxies.
pub(crate) fn gateway_config(
    client_ca: Option<PathBuf>,
    request_header: Option<PathBuf>,
) -> AuthenticationConfig {
    let list = |name: &str| vec![name.to_owned()];
    AuthenticationConfig {
        mode: Mode::Gateway,
        client_ca,
        request_header: request_header
            .map(|ca| RequestHeaderConfig { ca, allowed_names: list("proxy") }),
        anonymous: Anonymous::Forward,
        ..AuthenticationConfig::default()
    }
}

#[test]
fn a_verdict_is_cached_until_the_settings_or_the_validity_change() {
    let (one, two) = (TestCa::new("one"), TestCa::new("two"));
    let peer = Peer::new(Some(&one.user("jane").chain), None);
    let store = store();
    assert_eq!(identity(&store, &peer, NOON), "(unknown)");
    store.set_front_proxy(Setting::Unset);
    assert_eq!(identity(&store, &peer, NOON), "(unknown)");
    store.set_client_ca(bundle(&one));
    assert_eq!(identity(&store, &peer, NOON), "jane");

    let cached = peer.verdict(&store.load(), NOON).unwrap();
    let again = peer.verdict(&store.load(), NOON + 5).unwrap();
    assert!(Arc::ptr_eq(&cached, &again), "the same verdict, and no signature is verified");
    assert_eq!(
        identity(&store, &peer, END + 1),
        "(invalid)",
        "an open connection outlives the certificate"
    );
    assert_eq!(identity(&store, &peer, START - 1), "(invalid)");
    assert_eq!(identity(&store, &peer, START), "jane");

    store.set_client_ca(bundle(&two));
    assert_eq!(identity(&store, &peer, NOON), "(invalid)");
    store.set_client_ca(bundle(&one));
    assert_eq!(identity(&store, &peer, NOON), "jane");
    store.set_client_ca(Setting::Unset);
    assert_eq!(identity(&store, &peer, NOON), "(none)", "the cluster has no client CA");
}

#[test]
fn one_refusal_makes_a_certificate_without_a_user_invalid() {
    let (clients, proxies) = (TestCa::new("clients"), TestCa::new("proxies"));
    let mut nameless = user_params("x");
    nameless.distinguished_name = rcgen::DistinguishedName::new();
    let peer = Peer::new(Some(&clients.sign(&nameless).chain), None);
    let store = store();
    store.set_front_proxy(Setting::Unset);
    store.set_client_ca(bundle(&clients));
    assert_eq!(identity(&store, &peer, NOON), "(none)");
    let rules = RequestHeaderRules {
        ca: Bundle::parse(proxies.pem().as_bytes()).unwrap(),
        names: crate::auth::request_header::RequestHeaderNames::default(),
    };
    store.set_front_proxy(Setting::Set(Arc::new(rules)));
    assert_eq!(identity(&store, &peer, NOON), "(invalid)", "upstream refuses it as a front proxy");
}

#[tokio::test]
async fn files_are_reloaded_and_invalid_ones_are_not() {
    let (one, two) = (TestCa::new("one"), TestCa::new("two"));
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("client.crt"), one.pem()).unwrap();
    std::fs::write(path("proxy.crt"), two.pem()).unwrap();
    let server = TestServer::start(ServerOptions::http1(), async |_| answer(404, "")).await;
    let upstream = server.upstream(false).await;
    let store = store();
    let no_file = gateway_config(Some(path("no")), None);
    let config = gateway_config(Some(path("client.crt")), Some(path("proxy.crt")));
    let mut reloader = Reloader::new(&config, store.clone(), upstream.clone()).unwrap();

    let jane = Peer::new(Some(&one.user("jane").chain), None);
    let proxy = Peer::new(Some(&two.user("proxy").chain), None);
    let other = Peer::new(Some(&two.user("other").chain), None);
    assert_eq!(identity(&store, &jane, NOON), "jane");
    assert!(is_front_proxy(&store, &proxy));
    assert!(!is_front_proxy(&store, &other) && !is_front_proxy(&store, &jane));
    assert_eq!(store.hints().load().len(), 2);

    let before = store.load().generation;
    reloader.poll_files();
    std::fs::write(path("client.crt"), "broken").unwrap();
    reloader.poll_files();
    std::fs::remove_file(path("client.crt")).unwrap();
    reloader.poll_files();
    assert_eq!(store.load().generation, before, "the old settings stay in use");
    std::fs::write(path("client.crt"), two.pem()).unwrap();
    reloader.poll_files();
    assert_eq!(identity(&store, &jane, NOON), "(invalid)");
    assert_eq!(identity(&store, &other, NOON), "other");

    let missing = Reloader::new(&no_file, store, upstream);
    let Err(error) = missing else { panic!("loaded a missing file") };
    assert!(error.to_string().contains("no: it cannot be read"), "{error}");
}

#[tokio::test]
async fn the_clusters_settings_are_reloaded() {
    let (one, two) = (TestCa::new("one"), TestCa::new("two"));
    let content = Arc::new(Lock::new((404, Bytes::new())));
    let shared = content.clone();
    let server = TestServer::start(ServerOptions::http1(), move |request| {
        assert_eq!(request.uri().path(), config_map::PATH);
        let (code, body) = shared.lock().clone();
        async move { answer(code, body) }
    })
    .await;
    let store = store();
    let upstream = server.upstream(false).await;
    let mut reloader = Reloader::new(&gateway_config(None, None), store.clone(), upstream).unwrap();
    let set = |data: serde_json::Value| {
        *content.lock() = (200, json!({"kind": "ConfigMap", "data": data}).to_string().into());
    };
    let jane = Peer::new(Some(&one.user("jane").chain), None);
    let proxy = Peer::new(Some(&two.user("proxy").chain), None);

    assert!(reloader.poll_map().await < Duration::from_secs(2), "the next attempt is soon");
    assert!(!headers_are_known(&store));
    assert_eq!(identity(&store, &jane, NOON), "(unknown)");
    set(json!({"client-ca-file": one.pem()}));
    assert!(reloader.poll_map().await >= Duration::from_secs(60));
    assert_eq!(identity(&store, &jane, NOON), "jane");
    assert!(!is_front_proxy(&store, &proxy));
    assert!(headers_are_known(&store) && !is_proxy_header(&store, "x-remote-user"));

    set(json!({
        "client-ca-file": "broken",
        "requestheader-client-ca-file": two.pem(),
        "requestheader-allowed-names": "[\"proxy\"]",
        "requestheader-username-headers": "[\"X-Remote-User\"]",
        "requestheader-group-headers": "null",
    }));
    reloader.poll_map().await;
    assert_eq!(identity(&store, &jane, NOON), "jane", "an invalid part keeps its old value");
    assert!(is_front_proxy(&store, &proxy));
    assert!(is_proxy_header(&store, "x-remote-user") && !is_proxy_header(&store, "x-remote-uid"));
    assert!(!is_front_proxy(&store, &Peer::new(Some(&two.user("x").chain), None)));

    // Other headers, with the same CA.
    set(json!({
        "client-ca-file": one.pem(),
        "requestheader-client-ca-file": two.pem(),
        "requestheader-username-headers": "[\"X-Corp-User\", \"X-Remote-User\"]",
        "requestheader-uid-headers": "[\"X-Corp-Uid\"]",
        "requestheader-group-headers": "[\"X-Corp-Group\"]",
        "requestheader-extra-headers-prefix": "[\"X-Corp-Extra-\"]",
    }));
    reloader.poll_map().await;
    for name in ["x-corp-user", "x-remote-user", "x-corp-uid", "x-corp-group", "x-corp-extra-a"] {
        assert!(is_proxy_header(&store, name), "{name}");
    }
    assert!(!is_proxy_header(&store, "x-remote-group") && !is_proxy_header(&store, "x-corp"));

    let generation = store.load().generation;
    *content.lock() = (500, Bytes::new());
    reloader.poll_map().await;
    *content.lock() = (200, "[]".into());
    reloader.poll_map().await;
    assert_eq!(store.load().generation, generation);
    assert!(is_proxy_header(&store, "x-corp-user"), "the old settings stay in use");
    set(json!({"client-ca-file": two.pem()}));
    reloader.poll_map().await;
    assert_eq!(identity(&store, &jane, NOON), "(invalid)");
    assert!(!is_front_proxy(&store, &proxy), "the cluster has no front-proxy CA any more");
}

/// The API server reads the cluster's headers, whatever Weir's own configuration says.
#[tokio::test]
async fn the_clusters_headers_are_removed_beside_those_of_the_file() {
    let (one, two) = (TestCa::new("one"), TestCa::new("two"));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ca.crt");
    std::fs::write(&path, one.pem()).unwrap();
    let content = Arc::new(Lock::new((503, Bytes::new())));
    let shared = content.clone();
    let server = TestServer::start(ServerOptions::http1(), move |_| {
        let (code, body) = shared.lock().clone();
        async move { answer(code, body) }
    })
    .await;
    let store = store();
    let upstream = server.upstream(false).await;
    let config = gateway_config(Some(path.clone()), Some(path));
    let mut reloader = Reloader::new(&config, store.clone(), upstream).unwrap();
    assert!(is_proxy_header(&store, "x-remote-user"), "the file's");
    reloader.poll_map().await;
    assert!(!headers_are_known(&store), "the cluster's own are not known");
    let set = |data: serde_json::Value| {
        *content.lock() = (200, json!({"kind": "ConfigMap", "data": data}).to_string().into());
    };
    set(json!({
        // Weir cannot read this CA. The API server may be able to.
        "requestheader-client-ca-file": "odd",
        "requestheader-username-headers": "[\"X-Corp-User\"]",
        "requestheader-extra-headers-prefix": "[\"X-Corp-Extra-\"]",
    }));
    reloader.poll_map().await;
    assert!(headers_are_known(&store));
    for name in ["x-remote-user", "x-remote-group", "x-corp-user", "x-corp-extra-a"] {
        assert!(is_proxy_header(&store, name), "{name}");
    }
    let named = {
        let headers = store.proxy_headers().load();
        headers.remote_user_headers().unwrap().username.to_vec()
    };
    assert_eq!(named, ["x-remote-user"], "users are named by the file's headers");
    set(json!({"requestheader-client-ca-file": two.pem(), "requestheader-username-headers": "{"}));
    reloader.poll_map().await;
    assert!(is_proxy_header(&store, "x-corp-user"), "what was known stays");
    reloader.poll_files();
    assert!(is_proxy_header(&store, "x-corp-user"));
}

#[tokio::test]
async fn a_lasting_refusal_leaves_the_headers_of_the_file() {
    let ca = TestCa::new("ca");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ca.crt");
    std::fs::write(&path, ca.pem()).unwrap();
    let server = TestServer::start(ServerOptions::http1(), async |_| answer(403, "")).await;
    let store = store();
    let upstream = server.upstream(false).await;
    let config = gateway_config(Some(path.clone()), Some(path));
    let mut reloader = Reloader::new(&config, store.clone(), upstream).unwrap();
    tokio::time::pause();
    let error = |code| UpstreamError::Status {
        code: http::StatusCode::from_u16(code).unwrap(),
        reason: String::new(),
        message: String::new(),
        retry_after: None,
    };
    // An API server that starts refuses everything for a moment.
    for (code, after) in [(403, 0), (403, 29), (503, 1), (403, 5), (404, 29)] {
        tokio::time::advance(Duration::from_secs(after)).await;
        reloader.map_failed(&error(code));
        assert!(!headers_are_known(&store), "{code}");
    }
    tokio::time::advance(Duration::from_secs(1)).await;
    reloader.map_failed(&error(403));
    assert!(headers_are_known(&store));
    assert!(is_proxy_header(&store, "x-remote-user"));
}

#[tokio::test]
async fn a_part_may_come_from_a_file_and_one_from_the_cluster() {
    let (one, two) = (TestCa::new("one"), TestCa::new("two"));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ca.crt");
    std::fs::write(&path, one.pem()).unwrap();
    let body = json!({"kind": "ConfigMap", "data": {"client-ca-file": two.pem()}}).to_string();
    let server = TestServer::start(ServerOptions::http1(), move |_| {
        let body = body.clone();
        async move { answer(200, body) }
    })
    .await;
    let store = store();
    let upstream = server.upstream(false).await;
    let mut reloader =
        Reloader::new(&gateway_config(Some(path), None), store.clone(), upstream).unwrap();
    let jane = Peer::new(Some(&one.user("jane").chain), None);
    assert_eq!(identity(&store, &jane, NOON), "(unknown)", "the front-proxy CA is not known yet");
    reloader.poll_map().await;
    assert_eq!(identity(&store, &jane, NOON), "jane", "the file takes precedence");
}

#[test]
fn the_end_of_an_intermediate_ends_the_verdict() {
    let ca = TestCa::new("ca");
    let mut short = ca_params("between");
    short.not_after = rcgen::date_time_ymd(2026, 6, 1);
    let between = ca.intermediate(short);
    let mut chain = between.user("jane").chain;
    chain.push(between.issuer.der().clone());
    let store = store();
    store.set_front_proxy(Setting::Unset);
    store.set_client_ca(bundle(&ca));
    let verdict = store.load().verify(&chain, NOON);
    let june = 1_780_272_000;
    let CertificateIdentity::User { trusted_until, .. } = &verdict.identity else {
        panic!("{:?}", verdict.identity)
    };
    assert_eq!(*trusted_until, june + 1);
    assert!(verdict.holds(&store.load(), june) && !verdict.holds(&store.load(), june + 1));
}

//! The order of credentials, as upstream's.

use std::path::Path;

use http::HeaderValue;
use prometheus::Registry;

use super::*;
use crate::auth::x509::testing::TestCa;
use crate::config::{Mode, RequestHeaderConfig};
use crate::upstream::testing::{Speaks, TestServer, answer};

struct Fixture {
    authenticator: Arc<Authenticator>,
    clients: TestCa,
    proxies: TestCa,
    _directory: tempfile::TempDir,
    _server: TestServer,
}

fn config(directory: &Path) -> AuthenticationConfig {
    let words = |word: &str| vec![word.to_owned()];
    AuthenticationConfig {
        mode: Mode::Gateway,
        client_ca: Some(directory.join("client.crt")),
        request_header: Some(RequestHeaderConfig {
            ca: directory.join("proxy.crt"),
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

async fn fixture(change: impl FnOnce(&mut AuthenticationConfig)) -> Fixture {
    let (clients, proxies) = (TestCa::new("clients"), TestCa::new("proxies"));
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("client.crt"), clients.pem()).unwrap();
    std::fs::write(directory.path().join("proxy.crt"), proxies.pem()).unwrap();
    let server = TestServer::start(Speaks::http1(), async |_| answer(404, "")).await;
    let mut config = config(directory.path());
    change(&mut config);
    let metrics = AuthMetrics::register(&Registry::new()).unwrap();
    let upstream = server.upstream(false).await;
    let authenticator =
        Authenticator::start(&config, Duration::ZERO, upstream, &metrics).await.unwrap();
    Fixture { authenticator, clients, proxies, _directory: directory, _server: server }
}

fn headers(all: &[(&'static str, &'static str)]) -> HeaderMap {
    all.iter()
        .map(|(name, value)| {
            (name.parse::<http::HeaderName>().unwrap(), HeaderValue::from_static(value))
        })
        .collect()
}

fn peer(client: &crate::auth::x509::testing::Client) -> Peer {
    Peer::new(Some(&client.chain), None)
}

/// What is presented, in words.
fn word(presented: &PresentedCredential) -> String {
    match presented {
        PresentedCredential::None => "nothing".to_owned(),
        PresentedCredential::Token(_) => "token".to_owned(),
        PresentedCredential::User(identity) => {
            format!("{} by {}", identity.user.name, identity.credential.as_str())
        }
        PresentedCredential::Invalid => "wrong".to_owned(),
        PresentedCredential::Ambiguous => "unclear".to_owned(),
        PresentedCredential::Unknown => "unknown".to_owned(),
    }
}

#[tokio::test]
async fn the_first_who_knows_a_user_is_right() {
    let test = fixture(|_| {}).await;
    let says = |peer: &Peer, all: &[_]| {
        word(&test.authenticator.presented_credential(peer, &headers(all)))
    };
    let jane = peer(&test.clients.user("jane"));
    let proxy = peer(&test.proxies.user("proxy"));
    let wrong = peer(&TestCa::new("clients").user("jane"));
    let claim = ("x-remote-user", "root");

    assert_eq!(says(&Peer::default(), &[]), "nothing");
    assert_eq!(says(&jane, &[]), "jane by certificate");
    assert_eq!(says(&wrong, &[]), "wrong");
    assert_eq!(says(&proxy, &[claim]), "root by front-proxy");
    assert_eq!(says(&proxy, &[]), "wrong", "its certificate is no client's");
    // A token decides where no certificate does.
    let (token, odd) = (("authorization", "Bearer abc"), ("authorization", "Bearer  abc"));
    assert_eq!(says(&Peer::default(), &[token]), "token");
    assert_eq!(says(&wrong, &[token]), "token");
    assert_eq!(says(&jane, &[token]), "jane by certificate");
    assert_eq!(says(&proxy, &[claim, token]), "root by front-proxy");
    assert_eq!(says(&Peer::default(), &[odd]), "unclear");
    assert_eq!(says(&wrong, &[odd]), "wrong");
    // Nobody else is believed.
    assert_eq!(says(&jane, &[claim]), "jane by certificate");
    assert_eq!(says(&wrong, &[claim]), "wrong");
    assert_eq!(says(&Peer::default(), &[claim]), "nothing");
    assert_eq!(says(&peer(&test.proxies.user("other")), &[claim]), "wrong");
    assert_eq!(says(&peer(&test.clients.user("proxy")), &[claim]), "proxy by certificate");
}

#[tokio::test]
async fn those_without_a_credential_are_as_configured() {
    for (anonymous, expected) in [
        (Anonymous::Forward, Err(AuthenticationError::Unavailable)),
        (Anonymous::Refuse, Err(AuthenticationError::Unauthorized)),
        (Anonymous::Authorize, Ok("system:anonymous".to_owned())),
    ] {
        let test = fixture(|config| config.anonymous = anonymous).await;
        let found = test.authenticator.authenticate(&PresentedCredential::None).await;
        assert_eq!(found.map(|identity| identity.user.name.clone()), expected);
    }
}

#[tokio::test]
async fn a_wrong_certificate_is_never_anonymous() {
    let test = fixture(|config| config.anonymous = Anonymous::Authorize).await;
    let wrong = peer(&TestCa::new("clients").user("jane"));
    let presented = test.authenticator.presented_credential(&wrong, &HeaderMap::new());
    let found = test.authenticator.authenticate(&presented).await;
    assert_eq!(found.unwrap_err(), AuthenticationError::Unauthorized);
}

#[tokio::test]
async fn what_is_not_known_yet_is_not_told() {
    let test = fixture(|config| config.client_ca = None).await;
    let presented = test
        .authenticator
        .presented_credential(&peer(&test.clients.user("jane")), &HeaderMap::new());
    assert_eq!(word(&presented), "unknown");
    let found = test.authenticator.authenticate(&presented).await;
    assert_eq!(found.unwrap_err(), AuthenticationError::Unavailable);
}

#[tokio::test]
async fn a_user_is_good_until_the_certificate_ends() {
    let test = fixture(|_| {}).await;
    let jane = test
        .authenticator
        .presented_credential(&peer(&test.clients.user("jane")), &HeaderMap::new());
    let identity = test.authenticator.authenticate(&jane).await.unwrap();
    let end = UNIX_EPOCH + Duration::from_secs(crate::auth::x509::testing::END.unsigned_abs() + 1);
    assert_eq!(identity.not_after, Some(end));
    let over = Identity { not_after: Some(UNIX_EPOCH), ..identity };
    let found = test.authenticator.authenticate(&PresentedCredential::User(over)).await;
    assert_eq!(found.unwrap_err(), AuthenticationError::Unauthorized);
}

/// Looks at open watches are not turned away for what clients ask.
#[tokio::test]
async fn an_open_watch_has_its_own_part_of_the_reviews() {
    let (release, held) = tokio::sync::watch::channel(false);
    let server = TestServer::start(Speaks::http1(), move |request| {
        let mut held = held.clone();
        async move {
            if request.method() == http::Method::GET {
                return answer(404, "");
            }
            held.wait_for(|released| *released).await.unwrap();
            let status = r#"{"authenticated":true,"user":{"username":"jane"}}"#;
            answer(201, format!(r#"{{"kind":"TokenReview","status":{status}}}"#))
        }
    })
    .await;
    let metrics = AuthMetrics::register(&Registry::new()).unwrap();
    let (config, upstream) = (AuthenticationConfig::default(), server.upstream(false).await);
    let start = Authenticator::start(&config, Duration::ZERO, upstream, &metrics);
    let authenticator = start.await.unwrap();
    let token = |name: &str| PresentedCredential::Token(name.to_owned().into());
    for n in 0..256 {
        let (authenticator, client) = (Arc::clone(&authenticator), token(&format!("client{n}")));
        tokio::spawn(async move { authenticator.authenticate_from(&client, None).await });
    }
    tokio::task::yield_now().await;
    let client = authenticator.authenticate_from(&token("client"), None).await;
    assert_eq!(client.unwrap_err(), AuthenticationError::Unavailable);
    let watch = {
        let (authenticator, watch) = (Arc::clone(&authenticator), token("watch"));
        tokio::spawn(async move { authenticator.authenticate(&watch).await })
    };
    tokio::task::yield_now().await;
    release.send(true).unwrap();
    assert_eq!(watch.await.unwrap().unwrap().user.name, "jane");
}

#[tokio::test]
async fn following_ends_with_the_last_authenticator() {
    let test = fixture(|_| {}).await;
    let settings = Arc::downgrade(&test.authenticator.settings);
    drop(test.authenticator);
    while settings.strong_count() > 0 {
        tokio::task::yield_now().await;
    }
}

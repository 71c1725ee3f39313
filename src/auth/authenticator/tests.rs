//! The order of credentials is that of upstream.

use prometheus::Registry;

use super::*;
use crate::auth::trust::tests::gateway_config;
use crate::auth::x509::testing::TestCa;
use crate::testing::{eventually, headers};
use crate::upstream::testing::{ServerOptions, TestServer, answer};

struct Fixture {
    authenticator: Arc<Authenticator>,
    clients: TestCa,
    proxies: TestCa,
    _directory: tempfile::TempDir,
    _server: TestServer,
}

async fn fixture(change: impl FnOnce(&mut AuthenticationConfig)) -> Fixture {
    let (clients, proxies) = (TestCa::new("clients"), TestCa::new("proxies"));
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    std::fs::write(file("client.crt"), clients.pem()).unwrap();
    std::fs::write(file("proxy.crt"), proxies.pem()).unwrap();
    let server = TestServer::start(ServerOptions::http1(), async |_| answer(404, "")).await;
    let mut config = gateway_config(Some(file("client.crt")), Some(file("proxy.crt")));
    change(&mut config);
    let metrics = AuthMetrics::register(&Registry::new()).unwrap();
    let upstream = server.upstream(false).await;
    let authenticator =
        Authenticator::start(&config, Duration::ZERO, upstream, &metrics).await.unwrap();
    Fixture { authenticator, clients, proxies, _directory: directory, _server: server }
}

fn peer(client: &crate::auth::x509::testing::Client) -> Peer {
    Peer::new(Some(&client.chain), None)
}

/// Describes a credential.
fn describe(presented: &PresentedCredential) -> String {
    match presented {
        PresentedCredential::None => "none".to_owned(),
        PresentedCredential::Token(_) => "token".to_owned(),
        PresentedCredential::User(identity) => {
            format!("{} by {}", identity.user.name, identity.credential.as_str())
        }
        PresentedCredential::Invalid(credential) => format!("invalid {}", credential.as_str()),
        PresentedCredential::Ambiguous => "ambiguous".to_owned(),
        PresentedCredential::Unknown => "unknown".to_owned(),
    }
}

#[tokio::test]
async fn the_first_credential_that_names_a_user_counts() {
    let test = fixture(|_| {}).await;
    let credential = |peer: &Peer, pairs: &[_]| {
        describe(&test.authenticator.presented_credential(peer, &headers(pairs)))
    };
    let jane = peer(&test.clients.user("jane"));
    let proxy = peer(&test.proxies.user("proxy"));
    let invalid = peer(&TestCa::new("clients").user("jane"));
    let claim = ("x-remote-user", "root");

    assert_eq!(credential(&Peer::default(), &[]), "none");
    assert_eq!(credential(&jane, &[]), "jane by certificate");
    assert_eq!(credential(&invalid, &[]), "invalid certificate");
    assert_eq!(credential(&proxy, &[claim]), "root by front-proxy");
    let alone = credential(&proxy, &[]);
    assert_eq!(alone, "invalid certificate", "its certificate is not of the client CA");
    // A token decides if no certificate names a user.
    let (token, odd) = (("authorization", "Bearer abc"), ("authorization", "Bearer  abc"));
    assert_eq!(credential(&Peer::default(), &[token]), "token");
    assert_eq!(credential(&invalid, &[token]), "token");
    assert_eq!(credential(&jane, &[token]), "jane by certificate");
    assert_eq!(credential(&proxy, &[claim, token]), "root by front-proxy");
    assert_eq!(credential(&Peer::default(), &[odd]), "ambiguous");
    assert_eq!(credential(&invalid, &[odd]), "invalid certificate");
    // The headers of other peers are ignored.
    assert_eq!(credential(&jane, &[claim]), "jane by certificate");
    assert_eq!(credential(&invalid, &[claim]), "invalid certificate");
    assert_eq!(credential(&Peer::default(), &[claim]), "none");
    assert_eq!(credential(&peer(&test.proxies.user("other")), &[claim]), "invalid certificate");
    assert_eq!(credential(&peer(&test.clients.user("proxy")), &[claim]), "proxy by certificate");
}

/// A malformed token counts as one, also where the client has no certificate.
#[tokio::test]
async fn an_invalid_credential_is_counted_as_what_it_is() {
    let test = fixture(|_| {}).await;
    let malformed = [
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-protocol", "base64url.bearer.authorization.k8s.io.!!!, other"),
    ];
    let invalid = peer(&TestCa::new("clients").user("jane"));
    for (peer, pairs, expected) in [
        (Peer::default(), &malformed[..], [1, 0]),
        (invalid.clone(), &malformed[..], [2, 0]),
        (invalid, &[], [2, 1]),
    ] {
        let presented = test.authenticator.presented_credential(&peer, &headers(pairs));
        let identity = test.authenticator.authenticate_from(&presented, &peer).await;
        assert_eq!(identity.unwrap_err(), AuthenticationError::Unauthorized);
        let counts = [Credential::Token, Credential::Certificate]
            .map(|credential| test.authenticator.metrics.unauthorized(credential));
        assert_eq!(counts, expected, "{presented:?}");
    }
}

#[tokio::test]
async fn requests_without_a_credential_are_handled_as_configured() {
    for (anonymous, expected) in [
        (Anonymous::Forward, Err(AuthenticationError::Unavailable)),
        (Anonymous::Refuse, Err(AuthenticationError::Unauthorized)),
        (Anonymous::Authorize, Ok("system:anonymous".to_owned())),
    ] {
        let test = fixture(|config| config.anonymous = anonymous).await;
        let identity = test.authenticator.authenticate(&PresentedCredential::None).await;
        assert_eq!(identity.map(|identity| identity.user.name.clone()), expected);
    }
}

#[tokio::test]
async fn an_invalid_certificate_is_never_anonymous() {
    let test = fixture(|config| config.anonymous = Anonymous::Authorize).await;
    let invalid = peer(&TestCa::new("clients").user("jane"));
    let presented = test.authenticator.presented_credential(&invalid, &HeaderMap::new());
    let identity = test.authenticator.authenticate(&presented).await;
    assert_eq!(identity.unwrap_err(), AuthenticationError::Unauthorized);
}

#[tokio::test]
async fn a_certificate_is_unknown_until_the_settings_are_known() {
    let test = fixture(|config| config.client_ca = None).await;
    let presented = test
        .authenticator
        .presented_credential(&peer(&test.clients.user("jane")), &HeaderMap::new());
    assert_eq!(describe(&presented), "unknown");
    let identity = test.authenticator.authenticate(&presented).await;
    assert_eq!(identity.unwrap_err(), AuthenticationError::Unavailable);
}

#[tokio::test]
async fn an_identity_expires_with_its_certificate() {
    let test = fixture(|_| {}).await;
    let jane = test
        .authenticator
        .presented_credential(&peer(&test.clients.user("jane")), &HeaderMap::new());
    let identity = test.authenticator.authenticate(&jane).await.unwrap();
    let end = UNIX_EPOCH + Duration::from_secs(crate::auth::x509::testing::END.unsigned_abs() + 1);
    assert_eq!(identity.not_after, Some(end));
    let expired = Identity { not_after: Some(UNIX_EPOCH), ..identity };
    let identity = test.authenticator.authenticate(&PresentedCredential::User(expired)).await;
    assert_eq!(identity.unwrap_err(), AuthenticationError::Unauthorized);
}

/// Requests of clients do not use up the reviews for open watches.
#[tokio::test]
async fn open_watches_have_their_own_limit_of_reviews() {
    let (release, held) = tokio::sync::watch::channel(false);
    let server = TestServer::start(ServerOptions::http1(), move |request| {
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
        tokio::spawn(
            async move { authenticator.authenticate_from(&client, &Peer::default()).await },
        );
    }
    tokio::task::yield_now().await;
    let client = authenticator.authenticate_from(&token("client"), &Peer::default()).await;
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
async fn reloading_ends_with_the_last_authenticator() {
    let test = fixture(|_| {}).await;
    let trust = Arc::downgrade(&test.authenticator.trust);
    drop(test.authenticator);
    eventually("the end of reloading", || trust.strong_count() == 0).await;
}

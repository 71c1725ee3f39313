//! Open watches and the rights to them.

use std::path::Path;

use prometheus::Registry;
use tokio::task::JoinHandle;

use super::*;
use crate::auth::access_review::testing::{Reply, Script, attributes, config, pass, user};
use crate::auth::metrics::AuthMetrics;
use crate::auth::user::Credential;
use crate::auth::x509::testing::TestCa;
use crate::config::{Anonymous, AuthenticationConfig, Mode, RequestHeaderConfig};
use crate::upstream::Upstream;
use crate::upstream::testing::{config as upstream, metrics};

const INTERVAL: Duration = Duration::from_secs(60);
const CLIENTS: &str = "clients.crt";
const PROXIES: &str = "proxies.crt";
const PODS: &str = "/api/v1/pods?watch=1";

/// With the CAs of clients and front proxies in files of this directory; without, what they are is never known.
async fn authenticator(directory: Option<&Path>) -> Arc<Authenticator> {
    let words = |word: &str| vec![word.to_owned()];
    let config = AuthenticationConfig {
        mode: Mode::Gateway,
        client_ca: directory.map(|directory| directory.join(CLIENTS)),
        request_header: directory.map(|directory| RequestHeaderConfig {
            ca: directory.join(PROXIES),
            allowed_names: Vec::new(),
            username_headers: words("X-Remote-User"),
            uid_headers: Vec::new(),
            group_headers: words("X-Remote-Group"),
            extra_header_prefixes: Vec::new(),
        }),
        anonymous: Anonymous::Authorize,
        token_audiences: Vec::new(),
        token_ttl: Duration::from_secs(10),
        token_failure_ttl: Duration::from_secs(10),
        front_proxy: None,
        impersonate: false,
    };
    let upstream = upstream(Some("http://127.0.0.1:1".to_owned()), None, false);
    let upstream = Upstream::new(&upstream, metrics()).await.unwrap();
    let metrics = AuthMetrics::register(&Registry::new()).unwrap();
    Authenticator::start(&config, Duration::ZERO, upstream, &metrics).await.unwrap()
}

fn identity(not_after: Option<SystemTime>) -> Identity {
    let user = user("alice", &["g"]);
    Identity { user, credential: Credential::Certificate, not_after, stale: false }
}

async fn watch(
    script: &Script,
    not_after: Option<SystemTime>,
    interval: Duration,
) -> Reauthorization {
    let identity = identity(not_after);
    Reauthorization {
        presented: Presented::User(identity.clone()),
        peer: Peer::new(Some(&TestCa::new("clients").user("alice").chain), None),
        identity,
        attributes: attributes(PODS),
        interval,
        authenticator: authenticator(None).await,
        authorizer: Arc::clone(&script.authorizer),
    }
}

/// Lets time pass second by second until a condition holds, and tells how much.
async fn pass_until(mut condition: impl FnMut() -> bool) -> Duration {
    let started = Instant::now();
    while !condition() {
        pass(Duration::from_secs(1)).await;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    started.elapsed()
}

#[tokio::test]
async fn a_right_that_is_taken_away_ends_the_watch() {
    let script = Script::start(&config(0), Reply::Allow).await;
    let lost: JoinHandle<()> = tokio::spawn(watch(&script, None, INTERVAL).await.until_revoked());
    pass_until(|| script.asked() == 2).await;
    assert!(!lost.is_finished());
    script.reply(Reply::Deny);
    let took = pass_until(|| lost.is_finished()).await;
    assert!(took < INTERVAL + Duration::from_secs(15), "{took:?}");
}

#[tokio::test]
async fn an_upstream_that_is_away_ends_nothing() {
    let script = Script::start(&config(0), Reply::Code(503)).await;
    let lost = tokio::spawn(watch(&script, None, INTERVAL).await.until_revoked());
    pass_until(|| script.asked() == 3).await;
    assert!(!lost.is_finished());
    lost.abort();
}

#[tokio::test]
async fn many_watches_of_one_question_share_their_reviews() {
    let script = Script::start(&config(0), Reply::Allow).await;
    let mut watches = Vec::new();
    for _ in 0..50 {
        watches.push(tokio::spawn(watch(&script, None, INTERVAL).await.until_revoked()));
    }
    pass_until(|| script.asked() == 1).await;
    let took = pass_until(|| script.asked() >= 3).await;
    assert!(took >= 2 * INTERVAL - Duration::from_secs(15), "{took:?}");
    script.reply(Reply::Deny);
    pass_until(|| watches.iter().all(JoinHandle::is_finished)).await;
    assert_eq!(script.asked(), 4);
}

#[tokio::test]
async fn what_was_just_asked_is_not_the_look() {
    let script = Script::start(&config(0), Reply::Allow).await;
    let lost = tokio::spawn(watch(&script, None, INTERVAL).await.until_revoked());
    pass_until(|| script.asked() == 2).await;
    // Requests keep the memory of the old right warm; the look waits for its end.
    let alice = user("alice", &["g"]);
    let mut asked = script.authorizer.authorize(&alice, &attributes(PODS)).await.is_ok();
    script.reply(Reply::Deny);
    pass_until(|| lost.is_finished()).await;
    asked &= script.asked() >= 3;
    assert!(asked);
}

#[tokio::test]
async fn a_ca_that_is_not_trusted_any_more_ends_its_watches() {
    let (clients, proxies) = (TestCa::new("clients"), TestCa::new("proxies"));
    for (file, credential) in [(CLIENTS, "certificate"), (PROXIES, "front-proxy")] {
        let directory = tempfile::tempdir().unwrap();
        let write = |file: &str, ca: &TestCa| {
            std::fs::write(directory.path().join(file), ca.pem()).unwrap();
        };
        write(CLIENTS, &clients);
        write(PROXIES, &proxies);
        let script = Script::start(&config(0), Reply::Allow).await;
        let authenticator = authenticator(Some(directory.path())).await;
        let ca = if file == CLIENTS { &clients } else { &proxies };
        let peer = Peer::new(Some(&ca.user("alice").chain), None);
        let said = [("x-remote-user", "alice")].map(|(name, value)| {
            (http::HeaderName::from_static(name), http::HeaderValue::from_static(value))
        });
        let presented = authenticator.present(&peer, &said.into_iter().collect());
        let Presented::User(identity) = presented.clone() else { panic!("{presented:?}") };
        assert_eq!(identity.credential.as_str(), credential);
        let recheck = Reauthorization {
            presented,
            peer,
            identity,
            attributes: attributes(PODS),
            interval: INTERVAL,
            authenticator,
            authorizer: Arc::clone(&script.authorizer),
        };
        let lost = tokio::spawn(recheck.until_revoked());
        pass_until(|| script.asked() >= 2).await;
        assert!(!lost.is_finished(), "{credential}");
        write(file, &TestCa::new("another"));
        let asked = script.asked();
        let took = pass_until(|| lost.is_finished()).await;
        assert!(took <= 2 * INTERVAL, "{credential}: {took:?}");
        assert!(
            script.asked() <= asked + 1,
            "no right is asked about in a name that is not proved"
        );
    }
}

#[tokio::test]
async fn a_credential_ends_at_its_time() {
    let script = Script::start(&config(0), Reply::Allow).await;
    let end = SystemTime::now() + Duration::from_secs(30);
    let lost = watch(&script, Some(end), Duration::from_secs(3600)).await.until_revoked();
    let lost = tokio::spawn(lost);
    let took = pass_until(|| lost.is_finished()).await;
    assert!(took > Duration::from_secs(28) && took < Duration::from_secs(40), "{took:?}");
    assert_eq!(script.asked(), 0);
    let past = SystemTime::now() - Duration::from_secs(1);
    watch(&script, Some(past), INTERVAL).await.until_revoked().await;
}

#[test]
fn looks_are_an_interval_apart_whenever_a_watch_began() {
    let start = Instant::now();
    let phase = Duration::from_secs(70);
    for passed in [0, 5, 9, 11, 69, 70, 71, 129, 500] {
        let now = start + Duration::from_secs(passed);
        let next = look_after(start, phase, INTERVAL, now);
        assert!(next > now && next <= now + INTERVAL, "{passed}");
        let since = (next + INTERVAL).duration_since(start + phase).as_nanos();
        assert_eq!(since % INTERVAL.as_nanos(), 0, "{passed}");
    }
}

//! Re-authorization of open watches.

use std::path::Path;

use prometheus::Registry;
use tokio::task::JoinHandle;

use super::*;
use crate::auth::access_review::testing::{Reply, ReviewServer, attributes, config, pass, user};
use crate::auth::metrics::AuthMetrics;
use crate::auth::rbac::testing::TestRbac;
use crate::auth::reauthorization::schedule::RecheckMetrics;
use crate::auth::user::Credential;
use crate::auth::x509::testing::TestCa;
use crate::config::{Anonymous, AuthenticationConfig, Mode, RequestHeaderConfig};
use crate::upstream::Upstream;
use crate::upstream::testing::{config as upstream, metrics};

const INTERVAL: Duration = Duration::from_secs(60);
const CLIENTS: &str = "clients.crt";
const PROXIES: &str = "proxies.crt";
const PODS: &str = "/api/v1/pods?watch=1";

/// Returns an authenticator that reads the CAs of clients and front proxies from files in
/// `directory`. Without a directory it never has any CA.
async fn authenticator(directory: Option<&Path>) -> Arc<Authenticator> {
    let config = AuthenticationConfig {
        mode: Mode::Gateway,
        client_ca: directory.map(|directory| directory.join(CLIENTS)),
        request_header: directory.map(|directory| RequestHeaderConfig {
            ca: directory.join(PROXIES),
            allowed_names: Vec::new(),
        }),
        anonymous: Anonymous::Authorize,
        ..AuthenticationConfig::default()
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

fn schedule(interval: Duration) -> Arc<RecheckSchedule> {
    RecheckSchedule::new(interval, 50, RecheckMetrics::register(&Registry::new()).unwrap())
}

async fn watch(
    server: &ReviewServer,
    not_after: Option<SystemTime>,
    schedule: &Arc<RecheckSchedule>,
) -> Reauthorization {
    let identity = identity(not_after);
    Reauthorization {
        presented: PresentedCredential::User(identity.clone()),
        peer: Peer::new(Some(&TestCa::new("clients").user("alice").chain), None),
        identity,
        impersonation: None,
        attributes: Some(attributes(PODS)),
        schedule: Arc::clone(schedule),
        authenticator: authenticator(None).await,
        authorizer: Arc::clone(&server.authorizer),
    }
}

/// Advances the clock by seconds until a condition holds, at most an hour. Returns the time passed.
async fn pass_until(what: &str, mut condition: impl FnMut() -> bool) -> Duration {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(3600), "not within an hour: {what}");
        pass(Duration::from_secs(1)).await;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    started.elapsed()
}

#[tokio::test]
async fn a_revocation_ends_the_watch() {
    let schedule = schedule(INTERVAL);
    let server = ReviewServer::start(&config(0), Reply::Allow).await;
    let revoked: JoinHandle<()> =
        tokio::spawn(watch(&server, None, &schedule).await.until_revoked());
    pass_until("review 2", || server.review_count() == 2).await;
    assert!(!revoked.is_finished());
    server.reply(Reply::Deny);
    let took = pass_until("the end of the watch", || revoked.is_finished()).await;
    assert!(took < INTERVAL + Duration::from_secs(15), "{took:?}");
}

#[tokio::test]
async fn an_outage_does_not_end_the_watch() {
    let schedule = schedule(INTERVAL);
    let server = ReviewServer::start(&config(0), Reply::Code(503)).await;
    let revoked = tokio::spawn(watch(&server, None, &schedule).await.until_revoked());
    pass_until("review 3", || server.review_count() == 3).await;
    assert!(!revoked.is_finished());
    revoked.abort();
}

#[tokio::test]
async fn equal_watches_share_their_reviews() {
    let schedule = schedule(INTERVAL);
    let server = ReviewServer::start(&config(0), Reply::Allow).await;
    // On a busy machine a review is seen late, so time counts from before the first one.
    let began = Instant::now();
    let mut watches = Vec::new();
    for _ in 0..50 {
        watches.push(tokio::spawn(watch(&server, None, &schedule).await.until_revoked()));
    }
    pass_until("review 1", || server.review_count() == 1).await;
    pass_until("review 3", || server.review_count() >= 3).await;
    let took = began.elapsed();
    assert!(took >= 2 * INTERVAL - Duration::from_secs(15), "{took:?}");
    // On a busy machine a later one may have been answered meanwhile.
    let before = server.review_count();
    server.reply(Reply::Deny);
    pass_until("the end of all watches", || watches.iter().all(JoinHandle::is_finished)).await;
    let refused = server.review_count() - before;
    assert!((1..=2).contains(&refused), "{refused} refusals ended 50 watches");
}

#[tokio::test]
async fn a_check_does_not_use_a_cached_decision() {
    let schedule = schedule(INTERVAL);
    let server = ReviewServer::start(&config(0), Reply::Allow).await;
    let revoked = tokio::spawn(watch(&server, None, &schedule).await.until_revoked());
    pass_until("review 2", || server.review_count() == 2).await;
    // A request has the decision cached; the check waits until it expires.
    let alice = user("alice", &["g"]);
    assert!(server.authorizer.authorize(&alice, &attributes(PODS)).await.is_ok());
    server.reply(Reply::Deny);
    pass_until("the end of the watch", || revoked.is_finished()).await;
    assert!(server.review_count() >= 3);
}

/// The user as whom alice watches may still read, but she may no longer act as that user.
#[tokio::test]
async fn a_lost_right_to_impersonate_ends_the_watch() {
    let server = ReviewServer::start(&config(0), Reply::Allow).await;
    let headers = [("impersonate-user", "bob")].map(|(name, value)| {
        (http::HeaderName::from_static(name), http::HeaderValue::from_static(value))
    });
    let impersonation = Impersonation::from_headers(&headers.into_iter().collect());
    assert!(impersonation.is_some());
    let watch = watch(&server, None, &schedule(INTERVAL)).await;
    let watch = Reauthorization { impersonation, ..watch };
    let revoked = tokio::spawn(watch.until_revoked());
    pass_until("the reviews of one check", || server.review_count() == 2).await;
    assert!(!revoked.is_finished());
    server.reply(Reply::AllowOnly("bob"));
    let took = pass_until("the end of the watch", || revoked.is_finished()).await;
    assert!(took <= 2 * INTERVAL, "{took:?}");
}

#[tokio::test]
async fn removing_a_ca_ends_the_watches_of_its_clients() {
    let (clients, proxies) = (TestCa::new("clients"), TestCa::new("proxies"));
    for (file, credential) in [(CLIENTS, "certificate"), (PROXIES, "front-proxy")] {
        let directory = tempfile::tempdir().unwrap();
        let write = |file: &str, ca: &TestCa| {
            std::fs::write(directory.path().join(file), ca.pem()).unwrap();
        };
        write(CLIENTS, &clients);
        write(PROXIES, &proxies);
        let server = ReviewServer::start(&config(0), Reply::Allow).await;
        let authenticator = authenticator(Some(directory.path())).await;
        let ca = if file == CLIENTS { &clients } else { &proxies };
        let peer = Peer::new(Some(&ca.user("alice").chain), None);
        let headers = [("x-remote-user", "alice")].map(|(name, value)| {
            (http::HeaderName::from_static(name), http::HeaderValue::from_static(value))
        });
        let presented = authenticator.presented_credential(&peer, &headers.into_iter().collect());
        let PresentedCredential::User(identity) = presented.clone() else {
            panic!("{presented:?}")
        };
        assert_eq!(identity.credential.as_str(), credential);
        let reauthorization = Reauthorization {
            presented,
            peer,
            identity,
            impersonation: None,
            attributes: Some(attributes(PODS)),
            schedule: schedule(INTERVAL),
            authenticator,
            authorizer: Arc::clone(&server.authorizer),
        };
        let revoked = tokio::spawn(reauthorization.until_revoked());
        pass_until("review 2", || server.review_count() >= 2).await;
        assert!(!revoked.is_finished(), "{credential}");
        write(file, &TestCa::new("another"));
        let reviews = server.review_count();
        let took = pass_until("the end of the watch", || revoked.is_finished()).await;
        assert!(took <= 2 * INTERVAL, "{credential}: {took:?}");
        assert!(
            server.review_count() <= reviews + 1,
            "no review for a user who is not authenticated"
        );
    }
}

#[tokio::test]
async fn an_expired_credential_ends_the_watch() {
    let server = ReviewServer::start(&config(0), Reply::Allow).await;
    let end = SystemTime::now() + Duration::from_secs(30);
    let schedule = schedule(Duration::from_secs(3600));
    let revoked = watch(&server, Some(end), &schedule).await.until_revoked();
    let revoked = tokio::spawn(revoked);
    let took = pass_until("the end of the watch", || revoked.is_finished()).await;
    assert!(took > Duration::from_secs(28) && took < Duration::from_secs(40), "{took:?}");
    assert_eq!(server.review_count(), 0);
    let past = SystemTime::now() - Duration::from_secs(1);
    watch(&server, Some(past), &schedule).await.until_revoked().await;
}

/// A gateway with many users: all their questions together exceed the budget of reviews.
#[tokio::test]
async fn more_users_than_the_budget_allows_are_checked_less_often() {
    let server = ReviewServer::start(&config(0), Reply::Allow).await;
    let metrics = RecheckMetrics::register(&Registry::new()).unwrap();
    let schedule = RecheckSchedule::new(Duration::from_secs(10), 1, metrics);
    let mut watches = Vec::new();
    for number in 0..20 {
        let mut watch = watch(&server, None, &schedule).await;
        watch.identity.user = user(&format!("user{number}"), &["g"]);
        watches.push(tokio::spawn(watch.until_revoked()));
    }
    let took = pass_until("40 reviews", || server.review_count() >= 40).await;
    assert!(took >= Duration::from_secs(39), "{took:?}");
    let shown = || schedule.shown_interval();
    assert!(shown() > 15.0, "{}", shown());
    watches.drain(5..).for_each(|watch| watch.abort());
    pass_until("most watches have ended", || shown() == 10.0).await;
    server.reply(Reply::Deny);
    pass_until("the end of all watches", || watches.iter().all(JoinHandle::is_finished)).await;
}

/// A permission that roles allowed is reviewed at once if they allow it no more, and within the
/// budget while they are not known. 300 questions wait before it.
#[tokio::test]
async fn only_a_revocation_by_roles_does_not_wait_for_the_budget() {
    for (is_known, ends_after) in [(true, 0..=15), (false, 200..=330)] {
        let rbac = TestRbac::new();
        let server = ReviewServer::with_rbac(&config(0), Reply::Allow, &rbac).await;
        rbac.list();
        rbac.grant("alice");
        let metrics = RecheckMetrics::register(&Registry::new()).unwrap();
        let schedule = RecheckSchedule::new(Duration::from_secs(10), 1, metrics);
        let revoked = tokio::spawn(watch(&server, None, &schedule).await.until_revoked());
        pass(Duration::from_secs(16)).await;
        let (key, asked) = (user("bob", &["g"]).key(), Arc::clone(&schedule));
        let others = (0..300).map(move |number| {
            let asked = Arc::clone(&asked);
            async move { asked.place(Some(question(key, &number))).await }
        });
        let others = tokio::spawn(future::join_all(others));
        pass_until("the others wait", || schedule.waiting() >= 290).await;
        // Nothing waits for what roles allow.
        assert!(schedule.waiting() <= 300);
        assert!(!revoked.is_finished());
        if is_known {
            rbac.revoke("alice");
        } else {
            rbac.invalidate();
        }
        server.reply(Reply::Deny);
        let took = pass_until("the end of the watch", || revoked.is_finished()).await;
        assert!(ends_after.contains(&took.as_secs()), "{is_known}: {took:?}");
        others.abort();
    }
}

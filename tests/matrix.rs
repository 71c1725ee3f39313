//! A gateway allows exactly the requests that the upstream allows, with the same bodies: a matrix
//! of users, verbs, resources and encodings, sent both ways. Here against the simulator;
//! `tests/real` runs the same against a real kube-apiserver with RBAC.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::indexing_slicing,
    reason = "this is a test"
)]
#![expect(clippy::disallowed_methods, reason = "waits for processes, whose clock is the system's")]

#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "matrix/suite.rs"]
mod matrix;
#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "differential/suite.rs"]
mod suite;
#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "support/weir.rs"]
mod support;
#[path = "support/wait.rs"]
mod wait;

use std::time::Duration;

use weir::simulator::{ClientCertificates, Simulator, SimulatorOptions, User};

use crate::matrix::credentials::PROXY;
use crate::matrix::users::HOLDERS;
use crate::matrix::world::{Credentials, ForwardedIdentity, Setting, Side, World};
use crate::matrix::{confusion, revocation, run, secrecy};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_user_gets_the_upstreams_answers() {
    let (_upstream, world) = world(SETTING).await;
    run::matrix(&world, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_user_gets_the_upstreams_answers_by_impersonation() {
    let (_upstream, world) =
        world(Setting { forwarded_identity: ForwardedIdentity::Impersonation, ..SETTING }).await;
    run::matrix(&world, 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_user_gets_the_upstreams_answers_by_local_rbac() {
    let authorization = ", rbac: {enabled: true, checkOneIn: 2}";
    let (_upstream, world) = world(Setting { authorization, ..SETTING }).await;
    run::matrix(&world, 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_spelling_of_a_path_reveals_a_secret() {
    let (_upstream, world) = world(SETTING).await;
    confusion::paths(&world).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_permission_or_credential_is_refused_in_time() {
    let (_upstream, world) =
        world(Setting { cache_ttl: SHORT_PERIOD, watch_recheck: SHORT_PERIOD, ..SETTING }).await;
    tokio::join!(
        revocation::revoked_binding(&world),
        revocation::deleted_service_account(&world),
        revocation::expired_certificate(&world),
        revocation::given_binding(&world),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn local_rbac_refuses_a_revoked_permission_with_the_event() {
    let (_upstream, world) = world(BY_ROLES).await;
    tokio::join!(
        revocation::revoked_binding(&world),
        revocation::given_binding(&world),
        revocation::revoked_impersonation(&world),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_and_metrics_contain_no_secret() {
    let (_upstream, world) = world(Setting { log: "trace", ..SETTING }).await;
    run::matrix(&world, 11).await;
    confusion::paths_of(&world, &["nina", "dev certificate"]).await;
    secrecy::assert_no_secret_in_logs_and_metrics(&world).await;
}

/// A simulator that knows the certificates and tokens, and a Weir in front of it.
async fn world(setting: Setting) -> (Simulator, World) {
    let credentials = Credentials::new();
    let holder = |(number, (name, group)): (usize, &(&str, &str))| User {
        token: credentials.tokens.token_of(name),
        name: (*name).to_owned(),
        uid: format!("uid-{number}"),
        groups: if group.is_empty() { Vec::new() } else { vec![(*group).to_owned()] },
        ..User::default()
    };
    let options = SimulatorOptions {
        tls: true,
        users: HOLDERS.iter().enumerate().map(holder).collect(),
        client_certificates: Some(ClientCertificates {
            ca: credentials.pki.clients.pem(),
            request_header_ca: Some(credentials.pki.proxies.pem()),
            request_header_allowed_names: vec![PROXY.to_owned()],
        }),
        // Short time-outs: some requests wait for a state that never comes, and Weir's caches learn
        // of progress soon.
        freshness_timeout: Duration::from_millis(50),
        bookmark_interval: Duration::from_secs(3),
        ..SimulatorOptions::default()
    };
    let upstream = Simulator::start(options).await.unwrap();
    let side = Side { address: upstream.address(), ca: upstream.ca_pem().unwrap().to_owned() };
    let world = World::start(credentials, side, setting).await;
    (upstream, world)
}

const SETTING: Setting = Setting {
    forwarded_identity: ForwardedIdentity::FrontProxy,
    cache_ttl: Duration::from_secs(10),
    watch_recheck: Duration::from_secs(10),
    log: "info,weir=debug",
    authorization: "",
};

/// The length of TTLs and intervals that a test waits for.
const SHORT_PERIOD: Duration = Duration::from_secs(2);

/// RBAC decisions by Weir, with every allow checked, and TTLs longer than any test.
const BY_ROLES: Setting = Setting {
    cache_ttl: Duration::from_secs(60),
    watch_recheck: SHORT_PERIOD,
    authorization: ", rbac: {enabled: true, checkOneIn: 1}",
    ..SETTING
};

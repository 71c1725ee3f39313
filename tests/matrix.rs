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
use crate::matrix::world::{Carry, Credentials, Setting, Side, World};
use crate::matrix::{confusion, revocation, run, secrecy};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everybody_gets_what_the_upstream_gives() {
    let (_upstream, world) = world(SETTING).await;
    run::matrix(&world, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everybody_gets_it_by_impersonation_too() {
    let (_upstream, world) = world(Setting { carry: Carry::Impersonation, ..SETTING }).await;
    run::matrix(&world, 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everybody_gets_it_by_roles_kept_here() {
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
async fn who_loses_a_right_loses_it_here() {
    let (_upstream, world) = world(Setting { belief: SHORT, recheck: SHORT, ..SETTING }).await;
    tokio::join!(
        revocation::revoked_binding(&world),
        revocation::deleted_service_account(&world),
        revocation::expired_certificate(&world),
        revocation::given_binding(&world),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_right_by_roles_kept_here_ends_with_the_event() {
    let (_upstream, world) = world(BY_ROLES).await;
    tokio::join!(revocation::revoked_binding(&world), revocation::given_binding(&world));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_secret_is_told() {
    let (_upstream, world) = world(Setting { log: "trace", ..SETTING }).await;
    run::matrix(&world, 11).await;
    confusion::paths_of(&world, &["nina", "dev certificate"]).await;
    secrecy::nothing_is_told(&world).await;
}

/// A simulator that knows the certificates and tokens, and a Weir in front of it.
async fn world(setting: Setting) -> (Simulator, World) {
    let credentials = Credentials::new();
    let holder = |(number, (name, group)): (usize, &(&str, &str))| User {
        token: credentials.tokens.of(name),
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
    carry: Carry::FrontProxy,
    belief: Duration::from_secs(10),
    recheck: Duration::from_secs(10),
    log: "info,weir=debug",
    authorization: "",
};

/// Settings with short TTLs.
const SHORT: Duration = Duration::from_secs(2);

/// RBAC decisions by Weir, with every allow checked, and TTLs longer than any test.
const BY_ROLES: Setting = Setting {
    belief: Duration::from_secs(60),
    recheck: SHORT,
    authorization: ", rbac: {enabled: true, checkOneIn: 1}",
    ..SETTING
};

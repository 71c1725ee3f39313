//! The matrix against a real kube-apiserver with RBAC; see `tests/matrix.rs`.

use std::time::Duration;

use tokio::runtime::Runtime;

use crate::control_plane::{ADMIN, ControlPlane};
use crate::matrix_suite::world::{Credentials, ForwardedIdentity, Setting, World};
use crate::matrix_suite::{confusion, revocation, run, secrecy};

pub(crate) fn everybody() {
    with(SETTING, async |world| run::matrix(&world, 1).await);
}

pub(crate) fn by_impersonation() {
    let setting = Setting { forwarded_identity: ForwardedIdentity::Impersonation, ..SETTING };
    with(setting, async |world| run::matrix(&world, 3).await);
}

pub(crate) fn by_roles() {
    let setting = Setting { authorization: ", rbac: {enabled: true, checkOneIn: 2}", ..SETTING };
    with(setting, async |world| run::matrix(&world, 3).await);
}

pub(crate) fn paths() {
    with(SETTING, async |world| confusion::paths(&world).await);
}

pub(crate) fn revoked() {
    let setting = Setting { cache_ttl: SHORT_PERIOD, watch_recheck: SHORT_PERIOD, ..SETTING };
    with(setting, async |world| {
        tokio::join!(
            revocation::revoked_binding(&world),
            revocation::deleted_service_account(&world),
            revocation::expired_certificate(&world),
            revocation::given_binding(&world),
        );
    });
}

pub(crate) fn revoked_by_roles() {
    with(BY_ROLES, async |world| {
        tokio::join!(revocation::revoked_binding(&world), revocation::given_binding(&world));
    });
}

pub(crate) fn secrets() {
    with(Setting { log: "trace", ..SETTING }, async |world| {
        run::matrix(&world, 11).await;
        confusion::paths_of(&world, &["nina", "dev certificate"]).await;
        secrecy::assert_no_secret_in_logs_and_metrics(&world).await;
    });
}

fn with(setting: Setting, test: impl AsyncFnOnce(World)) {
    let credentials = Credentials::new();
    let arguments = credentials.arguments(&format!("{ADMIN},plane,0,\"system:masters\"\n"));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let plane = ControlPlane::start_with(&arguments);
    Runtime::new().unwrap().block_on(async {
        test(World::start(credentials, plane.side(), setting).await).await;
    });
}

const SETTING: Setting = Setting {
    forwarded_identity: ForwardedIdentity::FrontProxy,
    cache_ttl: Duration::from_secs(10),
    watch_recheck: Duration::from_secs(10),
    log: "info,weir=debug",
    authorization: "",
};

/// For TTLs and intervals that a test waits for.
const SHORT_PERIOD: Duration = Duration::from_secs(2);

/// RBAC decisions by Weir, with every allow checked, and TTLs longer than any test.
const BY_ROLES: Setting = Setting {
    cache_ttl: Duration::from_secs(60),
    watch_recheck: SHORT_PERIOD,
    authorization: ", rbac: {enabled: true, checkOneIn: 1}",
    ..SETTING
};

//! The matrix against a real kube-apiserver with RBAC; see `tests/matrix.rs`.

use std::time::Duration;

use tokio::runtime::Runtime;

use crate::control_plane::{ADMIN, ControlPlane};
use crate::matrix_suite::credentials::LONG;
use crate::matrix_suite::world::{Credentials, ForwardedIdentity, Setting, Side, World};
use crate::matrix_suite::{confusion, revocation, run, secrecy};
use crate::suite::wire::{Answer, Call, Endpoint};

pub(crate) fn everybody() {
    with(SETTING, async |world| run::matrix(&world, 1).await);
}

pub(crate) fn by_impersonation() {
    let setting = Setting { forwarded_identity: ForwardedIdentity::Impersonation, ..SETTING };
    with(setting, async |world| run::matrix(&world, 3).await);
}

pub(crate) fn by_roles() {
    let setting = Setting { authorization: ", rbac: {enabled: true, checkOneIn: 2}", ..SETTING };
    with(setting, async |world| run::matrix(&world, 1).await);
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
        tokio::join!(
            revocation::revoked_binding(&world),
            revocation::given_binding(&world),
            revocation::revoked_impersonation(&world),
        );
    });
}

pub(crate) fn secrets() {
    with(Setting { log: "trace", ..SETTING }, async |world| {
        run::matrix(&world, 11).await;
        confusion::paths_of(&world, &["nina", "dev certificate"]).await;
        secrecy::assert_no_secret_in_logs_and_metrics(&world).await;
    });
}

/// Weir's own 401 and 403 equal the upstream's in every form that errors have.
pub(crate) fn refusals() {
    with(SETTING, async |world| {
        let stranger = world.pki.others.client("eve", "devs", LONG);
        let stranger = Some((stranger.chain.as_str(), stranger.key.as_str()));
        let endpoint = |side: &Side| Endpoint::tls_with(side.address, &side.ca, stranger, "");
        let mut pairs =
            vec![("a wrong certificate", endpoint(&world.direct), endpoint(&world.through))];
        for name in ["nina", "<&>\""] {
            let token = world.tokens.token_of(name);
            pairs.push((name, world.direct.as_token(&token), world.through.as_token(&token)));
        }
        let mut answered_by_weir = 0;
        for (who, direct, through) in &pairs {
            for accept in ERROR_FORMS {
                for path in REFUSED {
                    let call = Call::get(path).header("accept", accept);
                    let (expected, actual) = (direct.send(&call).await, through.send(&call).await);
                    assert!(matches!(expected.status, 401 | 403), "{who}: {call}");
                    let comparable = |answer: &Answer| {
                        let body = String::from_utf8_lossy(&answer.body).into_owned();
                        (answer.status, answer.header("content-type").to_owned(), body)
                    };
                    assert_eq!(comparable(&actual), comparable(&expected), "{who}: {call}");
                    answered_by_weir += usize::from(actual.cache().is_empty());
                }
            }
        }
        assert!(answered_by_weir > 60, "most are Weir's own: {answered_by_weir}");
    });
}

pub(crate) fn with(setting: Setting, test: impl AsyncFnOnce(World)) {
    with_arguments(&[], setting, test);
}

/// Runs a test with further arguments of the API server.
pub(crate) fn with_arguments(more: &[&str], setting: Setting, test: impl AsyncFnOnce(World)) {
    let credentials = Credentials::new();
    let arguments = credentials.arguments(&format!("{ADMIN},plane,0,\"system:masters\"\n"));
    let arguments = arguments.iter().map(String::as_str).chain(more.iter().copied());
    let plane = ControlPlane::start_with(&arguments.collect::<Vec<_>>());
    Runtime::new().unwrap().block_on(async {
        test(World::start(credentials, plane.side(), setting).await).await;
    });
}

/// Every encoding that Weir writes, alone and after a clause that errors do not have.
const ERROR_FORMS: [&str; 8] = [
    "",
    "application/json",
    "application/json;pretty=1",
    "application/vnd.kubernetes.protobuf",
    "application/*",
    "text/html",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json",
];

/// Nobody in [`refusals`] may read these; the last three differ in how `pretty` is written.
const REFUSED: [&str; 5] = [
    "/api/v1/namespaces/kube-system/configmaps?resourceVersion=0",
    "/api/v1/nodes?resourceVersion=0",
    "/api/v1/nodes?resourceVersion=0&pretty=1",
    "/api/v1/nodes?resourceVersion=0&p%72etty=1",
    "/api/v1/nodes?resourceVersion=0&p%72etty=1&x=pretty",
];

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
pub(crate) const BY_ROLES: Setting = Setting {
    cache_ttl: Duration::from_secs(60),
    watch_recheck: SHORT_PERIOD,
    authorization: ", rbac: {enabled: true, checkOneIn: 1}",
    ..SETTING
};

//! A user who loses a permission loses it at Weir too, for get, for list, and for an open watch,
//! within the times in SECURITY.md ("Revocation latency"), counted from the upstream's own refusal.
//! A new permission takes effect too.

use std::time::{Duration, Instant};

use http::Method;
use http_body_util::BodyExt;
use serde_json::json;

use super::credentials::Certificate;
use super::impersonators::ROBOT;
use super::users::User;
use super::world::{Setting, World, mint};
use crate::suite::objects::create;
use crate::suite::run::HIT;
use crate::suite::wire::{Call, Connection, Endpoint};
use crate::wait::eventually;

const GET: &str = "/api/v1/namespaces/a/configmaps/x?resourceVersion=0";
const LIST: &str = "/api/v1/namespaces/a/configmaps?resourceVersion=0";
const WATCH: &str = "/api/v1/namespaces/a/configmaps?resourceVersion=0&watch=1";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/a/rolebindings";

/// A binding is deleted: 403.
pub(crate) async fn revoked_binding(world: &World) {
    let admin = world.admin();
    bind(&admin, "User", "rita", "devs").await;
    let user = holder("rita", world.tokens.token_of("rita"));
    let held = Held::open(world, &user).await;
    delete(&admin, &format!("{BINDINGS}/rita")).await;
    let bounds = if world.setting.rbac() {
        Bounds::without_cache_ttl(world.setting)
    } else {
        Bounds::with_cache_ttl(world.setting)
    };
    held.lost(403, "a revoked binding", bounds).await;
}

/// A binding that allows an impersonation is deleted: 403, with the event of `authorization.rbac`.
pub(crate) async fn revoked_impersonation(world: &World) {
    let admin = world.admin();
    bind(&admin, "User", "zoe", "as-robot").await;
    let headers = vec![(ROBOT.0, ROBOT.1.to_owned())];
    let user = User { headers, ..holder("zoe", world.tokens.token_of("zoe")) };
    let held = Held::open(world, &user).await;
    delete(&admin, &format!("{BINDINGS}/zoe")).await;
    let bounds = Bounds::without_cache_ttl(world.setting);
    held.lost(403, "a revoked impersonation", bounds).await;
}

/// A binding is created: the request is allowed once the cached denial has expired, and with
/// `authorization.rbac` with the event.
pub(crate) async fn given_binding(world: &World) {
    let user = holder("otto", world.tokens.token_of("otto"));
    let (mut through, mut direct) = (
        world.through.endpoint_of(&user).connection(),
        world.direct.endpoint_of(&user).connection(),
    );
    assert_eq!(through.send(&Call::get(GET)).await.status, 403);
    bind(&world.admin(), "User", "otto", "devs").await;
    eventually("the upstream allows", async || direct.send(&Call::get(GET)).await.status == 200)
        .await;
    let given = Instant::now();
    eventually("a permission given is seen", async || {
        through.send(&Call::get(GET)).await.cache() == HIT
    })
    .await;
    let cache_ttl = if world.setting.rbac() { Duration::ZERO } else { world.setting.cache_ttl };
    within("a permission given is seen", given.elapsed(), cache_ttl + SLACK);
}

/// A service account is deleted: 401.
pub(crate) async fn deleted_service_account(world: &World) {
    let admin = world.admin();
    let accounts = "/api/v1/namespaces/a/serviceaccounts";
    create(&mut admin.connection(), accounts, &json!({"metadata": {"name": "brief"}})).await;
    bind(&admin, "ServiceAccount", "brief", "devs").await;
    let user = holder("brief", mint(&admin, "a", "brief").await);
    let held = Held::open(world, &user).await;
    delete(&admin, &format!("{accounts}/brief")).await;
    held.lost(401, "a deleted service account", Bounds::with_cache_ttl(world.setting)).await;
}

/// A certificate expires while its connections stay open: 401.
pub(crate) async fn expired_certificate(world: &World) {
    let certificate = world.pki.client("carl", "devs", CERTIFICATE_LIFE);
    let user = User { certificate: Some(certificate), ..holder("carl", String::new()) };
    let bounds = Bounds { read: SLACK, watch: SLACK };
    Held::open(world, &user).await.lost(401, "an expired certificate", bounds).await;
}

/// The times for which a revoked permission may still work.
#[derive(Clone, Copy)]
struct Bounds {
    /// The bound for a get and a list from the cache.
    read: Duration,
    /// The bound for an open watch.
    watch: Duration,
}

impl Bounds {
    /// Returns the bounds where Weir caches decisions. A watch is re-authorized every
    /// `watchRecheck`, the first time after up to half an interval more.
    fn with_cache_ttl(Setting { cache_ttl, watch_recheck, .. }: Setting) -> Self {
        Self { read: cache_ttl + SLACK, watch: watch_recheck.mul_f64(1.5) + cache_ttl + SLACK }
    }

    /// Where a watch event revokes the permission.
    fn without_cache_ttl(Setting { watch_recheck, .. }: Setting) -> Self {
        Self { read: SLACK, watch: watch_recheck.mul_f64(1.5) + SLACK }
    }
}

fn within(what: &str, took: Duration, bound: Duration) {
    assert!(took <= bound, "{what} after {took:?}, which must be within {bound:?}");
}

fn holder(name: &'static str, token: String) -> User {
    let certificate: Option<Certificate> = None;
    User { name, certificate, token, headers: Vec::new(), hits: true, secrets: false }
}

/// Three ways to read, on connections that stay open; the watch is the task that ends with it.
struct Held {
    connection: Connection,
    watch: tokio::task::JoinHandle<Instant>,
    direct: Endpoint,
    user: User,
}

impl Held {
    /// Waits until all three are allowed and come from the cache.
    async fn open(world: &World, user: &User) -> Self {
        let (through, direct) = (world.through.endpoint_of(user), world.direct.endpoint_of(user));
        let mut connection = through.connection();
        for path in [GET, LIST] {
            eventually(&format!("{} may {path}", user.name), async || {
                connection.send(&call(user, path)).await.cache() == HIT
            })
            .await;
        }
        let mut response = through.open(&call(user, WATCH)).await.unwrap();
        assert_eq!(
            (response.status().as_u16(), &response.headers()["x-weir-cache"]),
            (200, &HIT.parse().unwrap())
        );
        let first = response.body_mut().frame().await.unwrap().unwrap();
        assert!(first.is_data());
        let watch = tokio::spawn(async move {
            while let Some(Ok(_)) = response.body_mut().frame().await {}
            Instant::now()
        });
        Self { connection, watch, direct, user: user.clone() }
    }

    /// Waits until the upstream refuses, then until Weir does.
    async fn lost(mut self, status: u16, why: &str, bounds: Bounds) {
        let mut direct = self.direct.connection();
        eventually("the upstream refuses", async || {
            direct.send(&call(&self.user, GET)).await.status == status
        })
        .await;
        let lost = Instant::now();
        let mut times = Vec::new();
        for path in [GET, LIST] {
            eventually(&format!("{why}: {path} is lost"), async || {
                let answer = self.connection.send(&call(&self.user, path)).await;
                if answer.status != status {
                    assert_eq!(answer.status, 200, "{why}: neither allowed nor refused");
                }
                answer.status == status
            })
            .await;
            times.push(lost.elapsed());
        }
        let ended = tokio::time::timeout(DEADLINE, self.watch).await;
        let ended = ended.unwrap_or_else(|_| panic!("{why}: the watch goes on")).unwrap();
        eprintln!(
            "{why}, after the upstream refuses: get {:?}, list {:?}, watch {:?}",
            times[0],
            times[1],
            ended.saturating_duration_since(lost)
        );
        for (verb, took) in ["get", "list"].into_iter().zip(times) {
            within(&format!("{why}: {verb} is lost"), took, bounds.read);
        }
        let took = ended.saturating_duration_since(lost);
        within(&format!("{why}: the watch ends"), took, bounds.watch);
        let get = call(&self.user, GET);
        let (seen, expected) = (self.connection.send(&get).await, direct.send(&get).await);
        assert_eq!((seen.status, &seen.body), (expected.status, &expected.body), "{why}");
    }
}

fn call(user: &User, path: &str) -> Call {
    let mut call = Call::get(path);
    call.headers.extend(user.headers.iter().cloned());
    call
}

async fn bind(admin: &Endpoint, kind: &str, name: &str, role: &str) {
    let group = "rbac.authorization.k8s.io";
    let subject = match kind {
        "ServiceAccount" => json!({"kind": kind, "name": name, "namespace": "a"}),
        kind => json!({"kind": kind, "name": name, "apiGroup": group}),
    };
    let binding = json!({"metadata": {"name": name}, "subjects": [subject],
        "roleRef": {"apiGroup": group, "kind": "Role", "name": role}});
    create(&mut admin.connection(), BINDINGS, &binding).await;
}

async fn delete(admin: &Endpoint, path: &str) {
    let answer = admin.send(&Call::new(Method::DELETE, path)).await;
    assert_eq!(answer.status, 200, "{path}");
}

/// Long enough to read with it first.
const CERTIFICATE_LIFE: Duration = Duration::from_secs(20);
/// The delay that a busy machine adds to each time; less than the default settings, so that a
/// setting without effect shows.
const SLACK: Duration = Duration::from_secs(7);
/// A generous bound; the documented times are much shorter.
const DEADLINE: Duration = Duration::from_secs(60);

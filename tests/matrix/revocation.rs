//! Who loses a right loses it here, too: to get, to list, and to an open watch; each within the time for which Weir believes what it was told.

use std::time::{Duration, Instant};

use http::Method;
use http_body_util::BodyExt;
use serde_json::json;

use super::credentials::Certificate;
use super::users::User;
use super::world::{World, mint, until};
use crate::suite::objects::create;
use crate::suite::run::HIT;
use crate::suite::wire::{Call, Connection, Endpoint};

const GET: &str = "/api/v1/namespaces/a/configmaps/x?resourceVersion=0";
const LIST: &str = "/api/v1/namespaces/a/configmaps?resourceVersion=0";
const WATCH: &str = "/api/v1/namespaces/a/configmaps?resourceVersion=0&watch=1";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/a/rolebindings";

/// A binding goes: 403.
pub(crate) async fn revoked_binding(world: &World) {
    let admin = world.admin();
    bind(&admin, "User", "rita").await;
    let user = holder("rita", world.tokens.of("rita"));
    let held = Held::all(world, &user).await;
    delete(&admin, &format!("{BINDINGS}/rita")).await;
    held.lost(403, "a revoked binding").await;
}

/// A service account goes: 401.
pub(crate) async fn deleted_service_account(world: &World) {
    let admin = world.admin();
    let accounts = "/api/v1/namespaces/a/serviceaccounts";
    create(&mut admin.connection(), accounts, &json!({"metadata": {"name": "brief"}})).await;
    bind(&admin, "ServiceAccount", "brief").await;
    let user = holder("brief", mint(&admin, "a", "brief").await);
    let held = Held::all(world, &user).await;
    delete(&admin, &format!("{accounts}/brief")).await;
    held.lost(401, "a deleted service account").await;
}

/// A certificate's time is over, while its connections stay: 401.
pub(crate) async fn expired_certificate(world: &World) {
    let certificate = world.pki.clients.client("carl", "devs", CERTIFICATE_LIFE);
    let user = User { certificate: Some(certificate), ..holder("carl", String::new()) };
    Held::all(world, &user).await.lost(401, "an expired certificate").await;
}

fn holder(name: &'static str, token: String) -> User {
    let certificate: Option<Certificate> = None;
    User { name, certificate, token, headers: Vec::new(), hits: true, secrets: false }
}

/// Three ways to read, on connections that stay open; the watch as the task that ends with it.
struct Held {
    connection: Connection,
    watch: tokio::task::JoinHandle<Instant>,
    direct: Endpoint,
}

impl Held {
    /// Waits until all three are allowed, and come from the cache.
    async fn all(world: &World, user: &User) -> Self {
        let (through, direct) = (world.through.of(user), world.direct.of(user));
        let mut connection = through.connection();
        for path in [GET, LIST] {
            until(&format!("{} may {path}", user.name), async || {
                connection.ask(&Call::get(path)).await.cache() == HIT
            })
            .await;
        }
        let mut response = through.open(&Call::get(WATCH)).await.unwrap();
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
        Self { connection, watch, direct }
    }

    /// Waits until the upstream refuses, then until Weir does.
    async fn lost(mut self, status: u16, why: &str) {
        let lost = Instant::now();
        let direct = self.direct.connection();
        let mut direct = direct;
        until("the upstream refuses", async || direct.ask(&Call::get(GET)).await.status == status)
            .await;
        let upstream = lost.elapsed();
        let mut times = Vec::new();
        for path in [GET, LIST] {
            until(&format!("{why}: {path} is lost"), async || {
                let answer = self.connection.ask(&Call::get(path)).await;
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
            "{why}: upstream {upstream:?}, get {:?}, list {:?}, watch {:?}",
            times[0],
            times[1],
            ended.saturating_duration_since(lost)
        );
        let (seen, expected) =
            (self.connection.ask(&Call::get(GET)).await, direct.ask(&Call::get(GET)).await);
        assert_eq!((seen.status, &seen.body), (expected.status, &expected.body), "{why}");
    }
}

async fn bind(admin: &Endpoint, kind: &str, name: &str) {
    let group = "rbac.authorization.k8s.io";
    let subject = match kind {
        "ServiceAccount" => json!({"kind": kind, "name": name, "namespace": "a"}),
        kind => json!({"kind": kind, "name": name, "apiGroup": group}),
    };
    let binding = json!({"metadata": {"name": name}, "subjects": [subject],
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "devs"}});
    create(&mut admin.connection(), BINDINGS, &binding).await;
}

async fn delete(admin: &Endpoint, path: &str) {
    let answer = admin.ask(&Call::new(Method::DELETE, path)).await;
    assert_eq!(answer.status, 200, "{path}");
}

/// Long enough to read with it first.
const CERTIFICATE_LIFE: Duration = Duration::from_secs(20);
/// Generous: what is documented is much less.
const DEADLINE: Duration = Duration::from_secs(60);

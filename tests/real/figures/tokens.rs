//! Writes of one user beside wrong tokens of others, and how long a revoked token still works.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Method;
use parking_lot::Mutex;
use serde_json::json;
use tokio::task::JoinSet;

use crate::matrix::with;
use crate::matrix_suite::world::{ForwardedIdentity, Setting, World, mint};
use crate::suite::objects::create;
use crate::suite::wire::{Call, Endpoint};

/// Writes of 200 KB, while a hundred requests a second have wrong tokens.
pub(super) fn writes_beside_wrong_tokens() {
    with_world(async |world| {
        let floods = Arc::new(Mutex::new(BTreeMap::<u16, usize>::new()));
        let mut tasks = JoinSet::new();
        for n in 0..FLOODERS {
            let endpoint = world.through.as_token("");
            tasks.spawn(flood(endpoint, n, Arc::clone(&floods)));
        }
        let mut connection = world.through.as_token(&world.tokens.token_of("admin")).connection();
        let path = "/api/v1/namespaces/a/configmaps";
        let mut writes = BTreeMap::<String, usize>::new();
        let began = Instant::now();
        for n in 0.. {
            if began.elapsed() > WRITES_DURATION {
                break;
            }
            let text = "x".repeat(200_000);
            let object = json!({"metadata": {"name": format!("large-{}", n % 20)},
                "data": {"text": text, "n": n.to_string()}});
            let call = if n < 20 {
                Call::json(Method::POST, path, &object)
            } else {
                Call::json(Method::PUT, &format!("{path}/large-{}", n % 20), &object)
            };
            let answer = connection.send(&call).await;
            let outcome = answer.broken.map_or(answer.status.to_string(), str::to_owned);
            *writes.entry(outcome).or_default() += 1;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        tasks.abort_all();
        eprintln!(
            "writes of 200 KB by outcome: {writes:?}; requests with wrong tokens by status: {:?} \
             in {:.0?}",
            floods.lock(),
            began.elapsed()
        );
    });
}

async fn flood(endpoint: Endpoint, number: u32, counts: Arc<Mutex<BTreeMap<u16, usize>>>) {
    let mut connection = endpoint.connection();
    let mut ticks = tokio::time::interval(FLOOD_INTERVAL);
    for n in 0.. {
        ticks.tick().await;
        let token = format!("Bearer wrong-{number}-{n}");
        let call = Call::get("/api/v1/namespaces/a/configmaps/x").header("authorization", &token);
        let answer = connection.send(&call).await;
        *counts.lock().entry(answer.status).or_default() += 1;
    }
}

/// Tokens of service accounts that are deleted.
pub(super) fn revoked() {
    with_world(async |world| {
        let world = Arc::new(world);
        let mut tasks = JoinSet::new();
        for n in 0..ACCOUNTS {
            tasks.spawn(revoke_one(Arc::clone(&world), n));
        }
        for (direct, through) in tasks.join_all().await {
            eprintln!(
                "a token of a deleted service account: the API server refuses it after \
                 {direct:.1?}, Weir after {through:.1?}"
            );
        }
    });
}

async fn revoke_one(world: Arc<World>, number: u32) -> (Duration, Duration) {
    let admin = world.admin();
    let name = format!("leaving-{number}");
    let token = account(&admin, &name).await;
    let sides = [world.direct.as_token(&token), world.through.as_token(&token)];
    let get = Call::get("/api/v1/namespaces/a/configmaps/x?resourceVersion=0");
    for side in &sides {
        while side.send(&get).await.status != 200 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    // The two caches of the token are out of phase by any time.
    tokio::time::sleep(Duration::from_millis(fastrand::u64(..10_000))).await;
    for side in &sides {
        assert_eq!(side.send(&get).await.status, 200);
    }
    let began = Instant::now();
    let deleted = admin.send(&Call::new(Method::DELETE, format!("{ACCOUNTS_PATH}/{name}"))).await;
    assert_eq!(deleted.status, 200);
    let refused = async |side: &Endpoint| {
        let mut connection = side.connection();
        while connection.send(&get).await.status != 401 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        began.elapsed()
    };
    tokio::join!(refused(&sides[0]), refused(&sides[1]))
}

/// Creates a service account that may do everything in its namespace; returns its token.
pub(super) async fn account(admin: &Endpoint, name: &str) -> String {
    create(&mut admin.connection(), ACCOUNTS_PATH, &json!({"metadata": {"name": name}})).await;
    let binding = json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
            "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "a"}],
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/a/rolebindings";
    create(&mut admin.connection(), bindings, &binding).await;
    mint(admin, "a", name).await
}

/// Runs with a gateway that has the default times.
pub(super) fn with_world(test: impl AsyncFnOnce(World)) {
    with(SETTING, test);
}

pub(crate) const SETTING: Setting = Setting {
    forwarded_identity: ForwardedIdentity::FrontProxy,
    // The default of `tokens.ttl`.
    cache_ttl: Duration::from_secs(5),
    watch_recheck: Duration::from_secs(10),
    log: "info",
    authorization: "",
};

const ACCOUNTS_PATH: &str = "/api/v1/namespaces/a/serviceaccounts";
const FLOODERS: u32 = 20;
/// Twenty of these are a hundred requests a second.
const FLOOD_INTERVAL: Duration = Duration::from_millis(200);
const WRITES_DURATION: Duration = Duration::from_secs(30);
const ACCOUNTS: u32 = 12;

//! Damage between Weir and a real kube-apiserver: a relay loses, changes, repeats or delays one
//! event of a watch. The comparison of caches must find the damage and replace the cache; an event
//! that comes twice must do nothing. The test prints how long it takes.
//!
//! Each kind of damage has a Weir with a relay of its own, before one API server.

mod relay;

use std::time::{Duration, Instant};

use http::Method;
use serde_json::json;
use tokio::runtime::Runtime;

use self::relay::{Damage, Relay};
use crate::churn::client;
use crate::control_plane::{ADMIN, ControlPlane};
use crate::suite::objects::create;
use crate::suite::wire::{Call, Connection, Endpoint};
use crate::support::Weir;
use crate::wait::eventually;

/// All kinds at once. `WEIR_CLIENT=1` has a client that lists consistently each second, so that
/// Weir also compares the number of objects.
pub(super) fn planted() {
    let plane = ControlPlane::start_with_watch_list();
    let runtime = Runtime::new().unwrap();
    let cases = runtime.block_on(async {
        let mut direct = plane.endpoint(ADMIN).connection();
        for number in 0..OBJECTS {
            put(&mut direct, &format!("o{number}"), BEFORE).await;
        }
        let mut cases = Vec::new();
        for damage in Damage::ALL {
            if damage != Damage::LostCreation {
                put(&mut direct, damage.victim(), BEFORE).await;
            }
            cases.push(Case::start(&plane, damage).await);
        }
        cases
    });
    let (direct, has_client) = (plane.endpoint(ADMIN), std::env::var_os("WEIR_CLIENT").is_some());
    runtime.block_on(async {
        let outcomes = cases.iter().map(|case| case.run(&direct, has_client));
        for (case, [replaced, right]) in cases.iter().zip(futures::future::join_all(outcomes).await)
        {
            eprintln!(
                "{:?}: the cache is out of use after {replaced:.1?}, and again in use and right \
                 after {right:.1?}; a consistent list each second: {has_client}",
                case.damage
            );
        }
    });
}

struct Case {
    damage: Damage,
    relay: Relay,
    weir: Weir,
}

impl Case {
    async fn start(plane: &ControlPlane, damage: Damage) -> Self {
        let upstream = client(&plane.kubeconfig(ADMIN)).await;
        let relay = Relay::start(upstream, damage).await;
        let weir = Weir::start(&relay.kubeconfig(), CONFIG);
        let case = Self { damage, relay, weir };
        let mut through = case.through().connection();
        eventually("the cache answers", async || {
            through.send(&Call::get(CACHED)).await.cache().starts_with("hit")
        })
        .await;
        case
    }

    /// Damages the event of a change. Returns the time until the cache answers nothing any more,
    /// and until it answers again, as the API server does.
    async fn run(&self, direct: &Endpoint, has_client: bool) -> [Duration; 2] {
        let (mut direct, mut through) = (direct.connection(), self.through().connection());
        let victim = format!("{CONFIGMAPS}/{}", self.damage.victim());
        self.relay.arm();
        match self.damage {
            Damage::LostDeletion | Damage::Undeleted => {
                assert_eq!(
                    direct.send(&Call::new(Method::DELETE, victim.clone())).await.status,
                    200
                );
            }
            Damage::LostCreation => put(&mut direct, self.damage.victim(), AFTER).await,
            _ => {
                let patch = json!({"data": {"k": AFTER}});
                let call = Call::json(Method::PATCH, &victim, &patch);
                assert_eq!(direct.send(&call).await.status, 200);
            }
        }
        let began = Instant::now();
        let marker = format!("after-{}", self.damage.victim());
        put(&mut direct, &marker, AFTER).await;
        let marker = Call::get(format!("{CONFIGMAPS}/{marker}?resourceVersion=0"));
        eventually("the watch has passed the damage", async || {
            through.send(&marker).await.status == 200
        })
        .await;
        let victim = Call::get(format!("{victim}?resourceVersion=0"));
        let expected = direct.send(&victim).await;
        let mut times = [Duration::ZERO; 2];
        let cached = through.send(&victim).await;
        assert!(cached.cache().starts_with("hit"), "the cache is in use: {cached:?}");
        let is_wrong = content(&cached.body) != content(&expected.body);
        assert_eq!(is_wrong, self.damage.is_harmful(), "the cache is wrong");
        if !is_wrong {
            return times;
        }
        for (time, hit) in times.iter_mut().zip([false, true]) {
            loop {
                let answer = through.send(&victim).await;
                let is_right = content(&answer.body) == content(&expected.body);
                if is_right && answer.cache().starts_with("hit") == hit {
                    break;
                }
                assert!(began.elapsed() < FOUND_MAX, "not found: {:?}", self.damage);
                if has_client {
                    through.send(&Call::get(CONFIGMAPS)).await;
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            *time = began.elapsed();
        }
        assert_eq!(self.weir.metric("weir_cache_quarantined", &[]), 0.0);
        times
    }

    fn through(&self) -> Endpoint {
        Endpoint::plain(([127, 0, 0, 1], self.weir.plain_port()).into())
    }
}

async fn put(connection: &mut Connection, name: &str, value: &str) {
    let object = json!({"metadata": {"name": name}, "data": {"k": value}});
    create(connection, CONFIGMAPS, &object).await;
}

/// The data of an object; null where there is none.
fn content(body: &[u8]) -> serde_json::Value {
    let mut object: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    object["data"].take()
}

const CONFIG: &str = "cache: {verify: enforce, consistentLists: auto, warm: [v1/configmaps]}\n";
const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
const CACHED: &str = "/api/v1/namespaces/default/configmaps?resourceVersion=0";
/// So few that a page of whole objects weighs little.
const OBJECTS: usize = 50;
/// The two values have the same length.
const BEFORE: &str = "value-before";
const AFTER: &str = "value-behind";
/// A round takes ten minutes, and changed bytes count after a minute.
const FOUND_MAX: Duration = Duration::from_secs(1_500);

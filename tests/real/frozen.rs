//! A balancer freezes the open connections between Weir and the API server under load: they stay
//! open, take bytes and pass none. New connections work.
//!
//! New requests succeed soon, those that were in progress are answered or fail soon, and the caches
//! go on (`docs/decisions/dead-connections.md`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Method;
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::control_plane::{ADMIN, ControlPlane};
use crate::cuts::relay::Relay;
use crate::suite::objects::create;
use crate::suite::wire::{Call, Endpoint};
use crate::support::Weir;

pub(crate) fn connections() {
    let plane = ControlPlane::start();
    Runtime::new().unwrap().block_on(async {
        let relay = Relay::start(&plane.kubeconfig(ADMIN)).await;
        let weir = Weir::start(&relay.kubeconfig, "");
        let mut direct = plane.endpoint(ADMIN).connection();
        for number in 0..OBJECTS {
            let object = json!({"metadata": {"name": format!("o{number}")}});
            create(&mut direct, COLLECTION, &object).await;
        }
        let plain = Endpoint::plain(([127, 0, 0, 1], weir.plain_port()).into());
        while plain.send(&Call::get(format!("{COLLECTION}?resourceVersion=0"))).await.cache()
            != "hit"
        {}
        let load = Load { plain: plain.clone(), samples: Samples::default() };
        let mut tasks = JoinSet::new();
        for kind in KINDS {
            for client in 0..CLIENTS {
                tasks.spawn(load.clone().repeat(kind, client));
            }
        }
        tokio::time::sleep(STEADY).await;
        let frozen = Instant::now();
        relay.freeze();
        for number in 0..NEW_REQUESTS {
            for kind in KINDS {
                let load = load.clone();
                tasks.spawn(async move { load.send(kind, number).await });
            }
            tokio::time::sleep(NEW_INTERVAL).await;
        }
        let seen = cache_follows(&plane, &plain, frozen).await;
        tokio::time::sleep(OLD_MAX.saturating_sub(frozen.elapsed())).await;
        tasks.abort_all();
        while tasks.join_next().await.is_some() {}
        report(&load.samples.lock(), frozen, seen);
        weir
    });
}

/// Writes directly, and returns when the cache shows it.
async fn cache_follows(plane: &ControlPlane, plain: &Endpoint, frozen: Instant) -> Duration {
    let object = json!({"metadata": {"name": "after-the-freeze"}});
    create(&mut plane.endpoint(ADMIN).connection(), COLLECTION, &object).await;
    let cached = Call::get(format!("{COLLECTION}/after-the-freeze?resourceVersion=0"));
    while plain.send(&cached).await.status != 200 {
        assert!(frozen.elapsed() < OLD_MAX, "the cache does not follow");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    frozen.elapsed()
}

/// Prints the figures, and checks the bounds.
fn report(samples: &[Sample], frozen: Instant, seen: Duration) {
    for kind in KINDS {
        let of_kind = || samples.iter().filter(|sample| sample.kind == kind);
        let old: Vec<_> = of_kind().filter(|it| it.at < frozen && it.end() > frozen).collect();
        let new: Vec<_> = of_kind().filter(|it| it.at >= frozen).collect();
        let ends = |of: &[&Sample]| of.iter().map(|it| it.end() - frozen).max().unwrap_or_default();
        let outcomes = |of: &[&Sample]| {
            let mut counts: BTreeMap<u16, usize> = BTreeMap::new();
            of.iter().for_each(|it| *counts.entry(it.status).or_default() += 1);
            counts
        };
        let succeeded = new.iter().filter(|it| it.status / 100 == 2);
        let first = succeeded.map(|it| it.end() - frozen).min();
        let longest = new.iter().map(|it| it.took).max().unwrap_or_default();
        eprintln!(
            "{kind}: {} in progress at the freeze, ended {:?} within {:.2?}; {} later ones {:?}, \
             the first success after {first:.2?}, the longest took {longest:.2?}",
            old.len(),
            outcomes(&old),
            ends(&old),
            new.len(),
            outcomes(&new),
        );
        assert!(ends(&old) < OLD_MAX && longest < OLD_MAX, "{kind}");
        assert!(first.is_some_and(|first| first < NEW_MAX), "{kind}: {first:?}");
        let reads = old.iter().chain(&new).filter(|it| it.kind != "patch");
        assert!(reads.clone().all(|it| it.status == 200), "a read was not sent again");
    }
    eprintln!("the cache shows a write after {seen:.2?}");
}

#[derive(Clone)]
struct Load {
    plain: Endpoint,
    samples: Samples,
}

type Samples = Arc<Mutex<Vec<Sample>>>;

struct Sample {
    kind: &'static str,
    at: Instant,
    took: Duration,
    /// 0 if there was no whole answer.
    status: u16,
}

impl Sample {
    fn end(&self) -> Instant {
        self.at + self.took
    }
}

impl Load {
    async fn repeat(self, kind: &'static str, client: usize) {
        for number in client.. {
            self.send(kind, number).await;
        }
    }

    async fn send(&self, kind: &'static str, number: usize) {
        let object = format!("{COLLECTION}/o{}", number % OBJECTS);
        let at = Instant::now();
        let status = match kind {
            "get" => self.plain.send(&Call::get(object)).await.status,
            "list" => self.plain.send(&Call::get(COLLECTION)).await.status,
            "watch" => self.watch().await,
            _ => {
                let change = json!({"data": {"number": number.to_string()}});
                self.plain.send(&Call::json(Method::PATCH, &object, &change)).await.status
            }
        };
        self.samples.lock().push(Sample { kind, at, took: at.elapsed(), status });
    }

    /// Opens a watch of events, which have no cache, until its head is there.
    async fn watch(&self) -> u16 {
        let call = Call::get("/api/v1/namespaces/default/events?watch=1&timeoutSeconds=1");
        let Some(response) = self.plain.open(&call).await else { return 0 };
        let status = response.status().as_u16();
        drop(response.into_body().frame());
        status
    }
}

const COLLECTION: &str = "/api/v1/namespaces/default/configmaps";
const KINDS: [&str; 4] = ["get", "list", "patch", "watch"];
const OBJECTS: usize = 50;
const CLIENTS: usize = 4;
const STEADY: Duration = Duration::from_secs(3);
/// The requests of each kind that follow the freeze, with connections of their own.
const NEW_REQUESTS: usize = 40;
const NEW_INTERVAL: Duration = Duration::from_millis(100);
/// Far above the second that it takes: the machine may be busy.
const NEW_MAX: Duration = Duration::from_secs(5);
const OLD_MAX: Duration = Duration::from_secs(15);

//! The cost of the comparison of a cache with the API server for the API server.
//!
//! `WEIR_OBJECTS` is the number of config maps (100,000), `WEIR_SECONDS` how long Weir compares
//! them at its usual pace (600).

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::control_plane::{ADMIN, ControlPlane};
use crate::suite::objects::create;
use crate::suite::wire::{Call, Endpoint};
use crate::support::{Weir, sum_metric};
use crate::wait::eventually;

pub(super) fn cost() {
    let objects = number("WEIR_OBJECTS", 100_000);
    let seconds = Duration::from_secs(number("WEIR_SECONDS", 600));
    let plane = ControlPlane::start();
    let direct = plane.endpoint(ADMIN);
    let runtime = Runtime::new().unwrap();
    let began = Instant::now();
    runtime.block_on(fill(&direct, objects));
    eprintln!("{objects} config maps of 200 bytes, created in {:.0?}", began.elapsed());
    // Weir reads as many.
    let usual = (objects / 50).clamp(500, 5_000);
    for (what, limit) in
        [("metadata", 500), ("metadata", usual), ("whole objects", 500), ("whole objects", usual)]
    {
        let page = MiddlePage { objects, limit, is_whole: what != "metadata" };
        let per_page = runtime.block_on(page.cost(&plane, &direct));
        let share = per_page * objects as f64 / limit as f64 / 600.0 * 100.0;
        eprintln!(
            "a page of {limit} objects in the middle, {what}: {:.2} ms of the API server; all pages in ten minutes {share:.3} % of a core",
            per_page * 1e3
        );
    }
    for mode in ["off", "observe"] {
        let config = format!("cache: {{verify: {mode}, warm: [v1/configmaps]}}\n");
        let mut weir = Weir::start(&plane.kubeconfig(ADMIN), &config);
        runtime.block_on(async {
            let plain = Endpoint::plain(([127, 0, 0, 1], weir.plain_port()).into());
            let list = Call::get("/api/v1/configmaps?resourceVersion=0");
            eventually("the cache is warm", async || plain.send(&list).await.cache() == "hit")
                .await;
            tokio::time::sleep(Duration::from_secs(5)).await;
        });
        let (before, weir_before) = (api_server_cpu(&plane), weir_cpu(&weir));
        let began = Instant::now();
        std::thread::sleep(seconds);
        let took = began.elapsed().as_secs_f64();
        let (after, own_after) = (api_server_cpu(&plane), weir_cpu(&weir));
        let checks = |label: &str| weir.metric("weir_cache_checks_total", &[label]);
        eprintln!(
            "verify: {mode}, {took:.0} s: API server {:.3} % of a core, Weir {:.3} %; pages equal {}, different {}, upstream {}, inconclusive {}",
            (after - before) / took * 100.0,
            (own_after - weir_before) / took * 100.0,
            checks("outcome=\"equal\""),
            checks("outcome=\"different\""),
            checks("outcome=\"upstream\""),
            checks("outcome=\"inconclusive\""),
        );
        weir.stop();
    }
}

/// Creates the config maps over several connections.
async fn fill(direct: &Endpoint, objects: u64) {
    let mut tasks = JoinSet::new();
    for part in 0..CONNECTIONS {
        let mut connection = direct.connection();
        tasks.spawn(async move {
            for n in (part..objects).step_by(CONNECTIONS as usize) {
                let object = json!({"metadata": {"name": format!("o{n:06}")},
                    "data": {"k": "x".repeat(200)}});
                create(&mut connection, "/api/v1/namespaces/default/configmaps", &object).await;
            }
        });
    }
    tasks.join_all().await;
}

/// A page that begins in the middle of the collection: an API server reads all objects behind the
/// first key, half of the collection on average.
struct MiddlePage {
    objects: u64,
    limit: u64,
    is_whole: bool,
}

impl MiddlePage {
    /// Reads it again and again, as Weir does. Returns the CPU time of each in seconds.
    async fn cost(&self, plane: &ControlPlane, direct: &Endpoint) -> f64 {
        let accept = match self.is_whole {
            true => "application/json",
            false => {
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
            }
        };
        let path = "/api/v1/configmaps";
        let half = self.objects / 2;
        let first = direct.send(&Call::get(format!("{path}?limit={half}"))).await.json();
        let token = first["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
        let page = Call::get(format!("{path}?limit={}&continue={token}", self.limit));
        let page = page.header("accept", accept);
        let mut connection = direct.connection();
        let before = api_server_cpu(plane);
        for _ in 0..PAGES {
            let answer = connection.send(&page).await;
            assert_eq!(answer.status, 200);
        }
        (api_server_cpu(plane) - before) / f64::from(PAGES)
    }
}

fn api_server_cpu(plane: &ControlPlane) -> f64 {
    let metrics = plane.get("/metrics").expect("metrics are served");
    sum_metric(&metrics, "process_cpu_seconds_total", &[])
}

fn weir_cpu(weir: &Weir) -> f64 {
    weir.metric("process_cpu_seconds_total", &[])
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

const CONNECTIONS: u64 = 16;
const PAGES: u32 = 100;

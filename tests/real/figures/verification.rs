//! What the comparison of a cache with the API server costs the API server.
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
    for (what, is_whole) in [("metadata", false), ("whole objects", true)] {
        let (pages, cpu) = runtime.block_on(read_pages(&plane, &direct, is_whole));
        let per_page = cpu / f64::from(pages);
        eprintln!("a page of 500 objects, {what}: {:.2} ms of the API server", per_page * 1e3);
        if !is_whole {
            let share = per_page * objects as f64 / 500.0 / 600.0 * 100.0;
            eprintln!("all of them once in ten minutes: {share:.3} % of a core");
        }
    }
    for mode in ["off", "observe"] {
        let config = format!("cache: {{verify: {mode}, warm: [v1/configmaps]}}\n");
        let mut weir = Weir::start(&plane.kubeconfig(ADMIN), &config);
        runtime.block_on(async {
            let plain = Endpoint::plain(([127, 0, 0, 1], weir.plain_port()).into());
            let list = Call::get("/api/v1/configmaps?resourceVersion=0&limit=1");
            eventually("the cache is warm", async || plain.send(&list).await.cache() == "hit")
                .await;
            tokio::time::sleep(Duration::from_secs(5)).await;
        });
        let (before, own) = (api_server_cpu(&plane), weir_cpu(&weir));
        let began = Instant::now();
        std::thread::sleep(seconds);
        let took = began.elapsed().as_secs_f64();
        let (after, own_after) = (api_server_cpu(&plane), weir_cpu(&weir));
        let checks = |label: &str| weir.metric("weir_cache_checks_total", &[label]);
        eprintln!(
            "verify: {mode}, {took:.0} s: API server {:.3} % of a core, Weir {:.3} %; pages equal {}, different {}, upstream {}, inconclusive {}",
            (after - before) / took * 100.0,
            (own_after - own) / took * 100.0,
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

/// Reads pages as Weir does, one after the other. Returns their number and the CPU time.
async fn read_pages(plane: &ControlPlane, direct: &Endpoint, is_whole: bool) -> (u32, f64) {
    let accept = if is_whole {
        "application/json"
    } else {
        "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    };
    let path = "/api/v1/configmaps?limit=500";
    let first = direct.send(&Call::get(path)).await.json();
    let token = first["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
    let page = Call::get(format!("{path}&continue={token}")).header("accept", accept);
    let mut connection = direct.connection();
    let before = api_server_cpu(plane);
    for _ in 0..PAGES {
        let answer = connection.send(&page).await;
        assert_eq!(answer.status, 200);
    }
    (PAGES, api_server_cpu(plane) - before)
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
const PAGES: u32 = 400;

//! The corpus of the differential suite through `weir shadow` before a real kube-apiserver: its own
//! report finds no difference. A client always gets the API server's answer.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::control_plane::{ADMIN, ControlPlane};
use crate::suite::corpus::{cases, document_cases};
use crate::suite::expected::Expect;
use crate::suite::read_request::Marks;
use crate::suite::run::{Case, Sides, prepare_with, run_by, warming_lists};
use crate::suite::wire::{Call, Endpoint};
use crate::support::Weir;
use crate::wait::eventually;

pub(crate) fn corpus() {
    let plane = ControlPlane::start();
    let weir = Weir::spawn_command("shadow", &plane.kubeconfig(ADMIN), CONFIG);
    weir.wait_until_ready();
    Runtime::new().unwrap().block_on(async {
        let through = Endpoint::plain(([127, 0, 0, 1], weir.plain_port()).into());
        let sides = Sides { direct: plane.endpoint(ADMIN), through, moves: true };
        let marks =
            prepare_with(&sides.direct, async |marks| warm(&weir, &sides.through, marks).await)
                .await;
        let mut relayed_cases = cases(&marks, SAMPLED);
        relayed_cases.extend(document_cases(&sides).await);
        let relayed_cases = relayed_cases
            .into_iter()
            .map(|case| Case { expect: Expect::Upstream, ..case })
            .collect();
        run_by(&sides, relayed_cases, WORKERS).await.finish("relayed answers");
        settle(&weir).await;
    });
    let report = report(&weir);
    let total = &report["total"];
    eprintln!(
        "shadow: {} reads; equal {}, and {} events; different {}, upstream inconsistent {}; not \
         comparable {}; not held {}",
        total["seen"],
        total["equal"],
        total["equalEvents"],
        total["different"],
        total["upstreamInconsistent"],
        total["notComparable"],
        total["notHeld"]
    );
    assert_eq!(total["different"], 0, "{:#}", report["differences"]);
    assert_eq!(total["upstreamInconsistent"], 0, "{:#}", report["differences"]);
    assert!(total["notComparable"]["unconfirmed"].is_null(), "{:#}", report["differences"]);
    assert!(total["equal"].as_u64() > Some(1000), "hardly anything was compared: {total:#}");
    assert!(total["equalEvents"].as_u64() > Some(50), "hardly any event was compared: {total:#}");
}

/// Reads every collection until its cache is compared: the first reads come before it has begun.
async fn warm(weir: &Weir, through: &Endpoint, marks: Option<&Marks>) {
    eventually("every list is compared", async || {
        let before = equal(&report(weir));
        let mut lists = warming_lists(marks);
        let wanted = before + u64::try_from(lists.len()).unwrap();
        let mut workers = JoinSet::new();
        while !lists.is_empty() {
            let part = lists.split_off(lists.len().saturating_sub(LISTS_OF_WORKER));
            workers.spawn(send(through.clone(), part));
        }
        workers.join_all().await;
        settle(weir).await;
        equal(&report(weir)) >= wanted
    })
    .await;
}

async fn send(through: Endpoint, calls: Vec<Call>) {
    let mut connection = through.connection();
    for call in calls {
        // An API server answers 429 for a definition that it has just begun to serve.
        drop(connection.send(&call).await);
    }
}

/// Waits until no comparison ends any more: none takes longer than the time for a late cache.
async fn settle(weir: &Weir) {
    let mut last = BTreeMap::new();
    eventually("all comparisons end", async || {
        tokio::time::sleep(LONGER_THAN_A_COMPARISON).await;
        let total = report(weir)["total"].clone();
        let counts = ["seen", "equalEvents"].map(|name| (name, total[name].as_u64()));
        let counts = BTreeMap::from(counts);
        std::mem::replace(&mut last, counts.clone()) == counts
    })
    .await;
}

fn report(weir: &Weir) -> Value {
    let (_, report) = weir.admin("/api/shadow").unwrap();
    serde_json::from_str(&report).unwrap()
}

fn equal(report: &Value) -> u64 {
    report["total"]["equal"].as_u64().unwrap()
}

/// Comparisons may take a whole processor: as few as possible are to be skipped.
const CONFIG: &str = "cache: {forwardBudget: 4096}\nshadow: {cpuShare: 100%}\n";
const SAMPLED: usize = 2500;
/// Slow and quick requests at a time: fewer than elsewhere, so that comparisons keep up.
const WORKERS: [usize; 2] = [60, 4];
const LISTS_OF_WORKER: usize = 8;
/// A cache has 5 s to reach a state.
const LONGER_THAN_A_COMPARISON: Duration = Duration::from_secs(6);

//! One user's GETs beside another's unpaged lists, before an API server with 40 seats: without
//! Weir, and through a gateway that observes, and one that enforces fair queueing. The lists are of
//! config maps, or of 5,000 pods by one who asks for 50 times his share, as objects and as Tables.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::task::JoinSet;

use super::tokens::{SETTING, account};
use crate::matrix::with_arguments;
use crate::matrix_suite::world::{Setting, World};
use crate::suite::objects::create;
use crate::suite::wire::{Call, Endpoint};

/// Measures all of them.
pub(super) fn fair_queueing() {
    let observe = "}\nflowControl: {mode: observe, seatsPerServer: 40";
    let enforce = "}\nflowControl: {mode: enforce, seatsPerServer: 40";
    for (name, authorization) in [("observe", observe), ("enforce", enforce)] {
        let inflight = ["--max-requests-inflight=20", "--max-mutating-requests-inflight=20"];
        let setting = Setting { authorization, ..SETTING };
        with_arguments(&inflight, setting, async |world| measure(name, &world).await);
    }
}

/// Measures with lists of 5,000 pods, which are forwarded.
pub(super) fn runaway_lists() {
    let authorization = "}\nflowControl: {mode: enforce, seatsPerServer: 40";
    let inflight = ["--max-requests-inflight=20", "--max-mutating-requests-inflight=20"];
    let setting = Setting { authorization, ..SETTING };
    with_arguments(&inflight, setting, async |world| {
        let mut connection = world.admin().connection();
        for n in 0..PODS {
            let pod = json!({"metadata": {"name": format!("large-{n}"),
                    "annotations": {"padding": "x".repeat(700)}},
                "spec": {"containers": [{"name": "main", "image": "none"}]}});
            create(&mut connection, PODS_LIST, &pod).await;
        }
        let objects = Lists { path: PODS_LIST, accept: "application/json", at_once: RUNAWAYS };
        let tables = Lists { accept: TABLE, ..objects };
        let tokens = users(&world).await;
        for lists in [objects, tables] {
            beside(&format!("enforce, {}", lists.accept), &world, &tokens, lists).await;
        }
    });
}

/// The lists of one user.
#[derive(Clone, Copy)]
struct Lists {
    path: &'static str,
    accept: &'static str,
    at_once: usize,
}

async fn measure(mode: &str, world: &World) {
    let mut connection = world.admin().connection();
    for n in 0..OBJECTS {
        let object = json!({"metadata": {"name": format!("large-{n}")},
            "data": {"text": "x".repeat(1500)}});
        create(&mut connection, LIST, &object).await;
    }
    let tokens = users(world).await;
    beside(mode, world, &tokens, Lists { path: LIST, accept: "application/json", at_once: CROWD })
        .await;
}

/// Creates the two users, and returns their tokens.
async fn users(world: &World) -> [String; 2] {
    let admin = world.admin();
    [account(&admin, "victim").await, account(&admin, "runaway").await]
}

async fn beside(mode: &str, world: &World, tokens: &[String; 2], lists: Lists) {
    for (name, side) in [("without Weir", &world.direct), ("through Weir", &world.through)] {
        let [victim, runaway] = tokens.each_ref().map(|token| side.as_token(token));
        let path = format!("{}/large-0", lists.path);
        while victim.send(&Call::get(&path)).await.status != 200 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let alone = reads(&victim, &path).await;
        let mut crowd = JoinSet::new();
        let counts = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        for _ in 0..lists.at_once {
            crowd.spawn(list(runaway.clone(), lists, Arc::clone(&counts)));
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        let before: Vec<usize> = counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let beside = reads(&victim, &path).await;
        let done: Vec<usize> = counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        crowd.abort_all();
        eprintln!(
            "{mode}, {name}: GETs alone {alone}; beside {} lists at once {beside}; lists \
             answered meanwhile: {}, refused: {}",
            lists.at_once,
            done[0] - before[0],
            done[1] - before[1],
        );
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
}

/// Sends a GET every 50 ms for a while; returns how long they took, and how many failed.
async fn reads(endpoint: &Endpoint, path: &str) -> String {
    let mut tasks = JoinSet::new();
    let mut ticks = tokio::time::interval(Duration::from_millis(50));
    for _ in 0..READS {
        ticks.tick().await;
        let (endpoint, call) = (endpoint.clone(), Call::get(path));
        tasks.spawn(async move {
            let began = Instant::now();
            (endpoint.send(&call).await.status, began.elapsed())
        });
    }
    let mut taken = tasks.join_all().await;
    taken.sort_by_key(|(_, time)| *time);
    let failed = taken.iter().filter(|(status, _)| *status != 200).count();
    let at = |part: f64| taken[((taken.len() - 1) as f64 * part) as usize].1;
    format!("p50 {:.1?}, p99 {:.1?}, {failed} failed", at(0.5), at(0.99))
}

async fn list(endpoint: Endpoint, lists: Lists, counts: Arc<[AtomicUsize; 2]>) {
    let mut connection = endpoint.connection();
    let call = Call::get(lists.path).header("accept", lists.accept);
    loop {
        let answer = connection.send(&call).await;
        let is_refused = answer.status != 200;
        counts[usize::from(is_refused)].fetch_add(1, Ordering::Relaxed);
        if is_refused {
            // A client waits for as long as it is asked to; here one second, to press harder.
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

const LIST: &str = "/api/v1/namespaces/a/configmaps";
const OBJECTS: usize = 3000;
const CROWD: usize = 30;
const PODS_LIST: &str = "/api/v1/namespaces/a/pods";
const PODS: usize = 5000;
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
/// A list takes three seats at most, and a share is half of a level of 16: fifty times as many.
const RUNAWAYS: usize = 133;
/// Twenty seconds.
const READS: usize = 400;

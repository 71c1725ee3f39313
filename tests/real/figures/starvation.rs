//! Two flows of one priority level, of which one has eighteen times as many requests as the other:
//! the experiment of kubernetes' `test/integration/apiserver/flowcontrol/concurrency_test.go`,
//! through priority and fairness, through Weir, and through both.
//!
//! A webhook authorizes, and takes 100 ms for the two users. So a seat's time is known, and the
//! processor is no factor.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::tokens::{SETTING, account};
use crate::matrix::with_arguments;
use crate::matrix_suite::world::{Setting, Side, World};
use crate::shedding::permit;
use crate::suite::objects::create;
use crate::suite::wire::Call;
use crate::webhook::Webhook;

/// Measures all of them.
pub(super) fn two_flows() {
    let webhook = Webhook::start(authorize);
    let mut common = vec!["--authorization-mode=Webhook".to_owned()];
    common.extend(webhook.arguments());
    let common: Vec<&str> = common.iter().map(String::as_str).collect();
    // The levels share 20 seats in both: Weir keeps a reserve of 8.
    let authorization = "}\nflowControl: {mode: enforce, seatsPerServer: 28";
    let setting = Setting { authorization, ..SETTING };
    let limited = ["--max-requests-inflight=10", "--max-mutating-requests-inflight=10"];
    let with_both: Vec<&str> = common.iter().chain(&limited).copied().collect();
    with_arguments(&with_both, setting, async |world| {
        let tokens = prepare(&world).await;
        for _ in 0..RUNS {
            run("A: priority and fairness alone", &world.direct, &tokens).await;
            run("C: priority and fairness behind Weir", &world.through, &tokens).await;
        }
    });
    let unlimited = ["--enable-priority-and-fairness=false", "--max-requests-inflight=400"];
    let without: Vec<&str> = common.iter().chain(&unlimited).copied().collect();
    with_arguments(&without, setting, async |world| {
        let tokens = prepare(&world).await;
        for _ in 0..RUNS {
            run("B: Weir alone", &world.through, &tokens).await;
        }
    });
}

/// Creates the two users, and a level of ten seats for them. Returns their tokens.
async fn prepare(world: &World) -> [String; 2] {
    let admin = world.admin();
    let mut connection = admin.connection();
    permit(&admin).await;
    let level = json!({"metadata": {"name": "starvation"}, "spec": {"type": "Limited", "limited": {
        // All others together have as many.
        "nominalConcurrencyShares": 245, "borrowingLimitPercent": 0,
        "limitResponse": {"type": "Queue",
            "queuing": {"queues": 100, "handSize": 1, "queueLengthLimit": 50}}}}});
    create(&mut connection, &format!("{GROUP}/prioritylevelconfigurations"), &level).await;
    let subject = |name: &str| json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": "a", "name": name}});
    let schema = json!({"metadata": {"name": "starvation"}, "spec": {"matchingPrecedence": 50,
        "priorityLevelConfiguration": {"name": "starvation"},
        "distinguisherMethod": {"type": "ByUser"},
        "rules": [{"subjects": [subject("elephant"), subject("mouse")],
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"],
                "namespaces": ["*"]}]}]}});
    create(&mut connection, &format!("{GROUP}/flowschemas"), &schema).await;
    let tokens = [account(&admin, "elephant").await, account(&admin, "mouse").await];
    // Both sides follow the objects by watches.
    tokio::time::sleep(Duration::from_secs(3)).await;
    tokens
}

async fn run(name: &str, side: &Side, tokens: &[String; 2]) {
    let [mut elephant, mut mouse] = [JoinSet::new(), JoinSet::new()];
    let end = Instant::now() + DURATION;
    (0..55).for_each(|_| drop(elephant.spawn(work(side.clone(), tokens[0].clone(), end))));
    (0..3).for_each(|_| drop(mouse.spawn(work(side.clone(), tokens[1].clone(), end))));
    let [elephant, mouse] = [sum(elephant).await, sum(mouse).await];
    eprintln!("{name}: elephant {elephant}; mouse {mouse}");
}

/// Adds up the results of a user's workers.
async fn sum(workers: JoinSet<(Vec<Duration>, usize)>) -> String {
    let (mut times_of_all, mut refused) = (Vec::new(), 0);
    for (times, refusals) in workers.join_all().await {
        times_of_all.extend(times);
        refused += refusals;
    }
    times_of_all.sort();
    let at = |part: f64| {
        times_of_all.get((times_of_all.len().saturating_sub(1) as f64 * part) as usize).copied()
    };
    format!(
        "{:.1}/s, p50 {:.0?}, p99 {:.0?}, {refused} refused",
        times_of_all.len() as f64 / DURATION.as_secs_f64(),
        at(0.5).unwrap_or_default(),
        at(0.99).unwrap_or_default()
    )
}

/// Sends one request after the other. Returns how long each took, and how many were refused.
async fn work(side: Side, token: String, end: Instant) -> (Vec<Duration>, usize) {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let mut connection = side.as_token(&token).connection();
    let (mut times, mut refused) = (Vec::new(), 0);
    while Instant::now() < end {
        // No two are the same, so that no decision is remembered.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = format!("/api/v1/namespaces/default/configmaps/none-{number}");
        let began = Instant::now();
        match connection.send(&Call::get(path)).await.status {
            200 | 404 => times.push(began.elapsed()),
            429 => {
                refused += 1;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            other => panic!("{other}"),
        }
    }
    (times, refused)
}

async fn authorize(spec: Value) -> Value {
    let user = spec["user"].as_str().unwrap_or_default();
    if user.ends_with(":elephant") || user.ends_with(":mouse") {
        tokio::time::sleep(SEAT_TIME).await;
    }
    json!({"allowed": true})
}

const GROUP: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";
const SEAT_TIME: Duration = Duration::from_millis(100);
const RUNS: usize = 3;
const DURATION: Duration = Duration::from_secs(20);

//! The loads, each with what it must show.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::Target;
use crate::load::{Connection, Crowd, Latencies, steady};
use crate::upstream::{GET, LIST, SEATS, SERVICE, USERS, Upstream, user_name, user_token};
use crate::weir_process::Weir;

const TIME: Duration = Duration::from_secs(20);
/// The requests of the one who is watched, in a second.
const RATE: f64 = 50.0;
/// The same beside 20 others. Their level has nine seats, so that a part of 21 is 21 requests a
/// second: who asks for more is one of those who ask for too much.
const RATE_BESIDE_MANY: f64 = 15.0;
/// The requests of a runaway client, in multiples of its share.
const TIMES: usize = 50;
/// Those of the API server and a reserve, so that levels have 20.
const SEATS_PER_SERVER: usize = SEATS + 8;

pub(crate) async fn gateway(upstream: &Upstream, mode: &str, flow: Value) -> Weir {
    let mut flow_control = json!({"mode": mode, "seatsPerServer": SEATS_PER_SERVER});
    if let (Some(settings), Value::Object(flow)) = (flow_control.as_object_mut(), flow) {
        settings.extend(flow);
    }
    let sections = json!({"authentication": {"mode": "gateway"}, "flowControl": flow_control});
    Weir::start(&upstream.kubeconfig(), sections).await
}

/// One client beside one that has 50 times its share of requests open: half of the seats.
pub(crate) async fn runaway(upstream: &Upstream) -> Vec<Target> {
    let one = beside(upstream, "one runaway", RATE, GET, 1, TIMES * SEATS / 2).await;
    one.targets([
        "row 1: p99 beside a runaway, of alone",
        "row 1: refused requests of the others",
        "row 3: most requests at the API server",
    ])
}

/// One client beside 20 of them: a seat for each.
pub(crate) async fn runaways(upstream: &Upstream) -> Vec<Target> {
    let many = beside(upstream, "20 runaways", RATE_BESIDE_MANY, GET, 20, TIMES).await;
    many.targets([
        "row 1: p99 beside 20 runaways, of alone",
        "row 1: refused requests of the others beside 20",
        "row 3: most requests at the API server beside 20",
    ])
}

/// One client's GETs beside another one's lists of 5 MiB.
pub(crate) async fn lists(upstream: &Upstream) -> Vec<Target> {
    let beside = beside(upstream, "lists of 5 MiB", RATE, LIST, 1, 60).await;
    beside.targets([
        "row 1: p99 of GETs beside lists of 5 MiB, of alone",
        "row 1: refused GETs beside them",
        "row 3: most requests at the API server beside them",
    ])
}

struct Beside {
    /// p99 beside the others, of p99 alone.
    ratio: f64,
    refused: f64,
    highest: f64,
}

impl Beside {
    fn targets(&self, [ratio, refused, highest]: [&'static str; 3]) -> Vec<Target> {
        vec![
            Target { what: ratio, is: self.ratio, most: 1.5 },
            Target { what: refused, is: self.refused, most: 0.0 },
            Target { what: highest, is: self.highest, most: SEATS as f64 },
        ]
    }
}

async fn beside(
    upstream: &Upstream,
    name: &str,
    rate: f64,
    path: &'static str,
    users: usize,
    at_once: usize,
) -> Beside {
    let mut enforced = Beside { ratio: f64::NAN, refused: f64::NAN, highest: f64::NAN };
    for mode in ["observe", "enforce"] {
        let weir = gateway(upstream, mode, json!({})).await;
        let token = user_token(0);
        let victim = async |time| steady(weir.address, GET, &token, rate, time).await;
        drop(victim(Duration::from_secs(2)).await);
        let alone = victim(TIME).await;
        let tokens: Vec<String> = (1..=users).map(user_token).collect();
        let crowd = Crowd::start(weir.address, path, &tokens, at_once);
        // The row `lender` shows that the others return borrowed seats when their requests end.
        drop(victim(Duration::from_secs(3)).await);
        let _before = upstream.work.take_highest();
        let before: usize = crowd.counts().iter().sum();
        let cpu = weir.cpu();
        let beside = victim(TIME).await;
        let cpu = weir.cpu().saturating_sub(cpu).as_secs_f64();
        let served = crowd.counts().iter().sum::<usize>() - before;
        let highest = upstream.work.take_highest();
        let refused = crowd.refused.load(Ordering::Relaxed);
        drop(crowd);
        println!(
            "{name}, {mode}: alone {}; beside {users} x {at_once} {}; the others: {:.0}/s, {refused} \
             refused; at most {highest} at the API server; {cpu:.1} s of Weir's CPU time",
            show(&alone),
            show(&beside),
            served as f64 / TIME.as_secs_f64(),
        );
        enforced = Beside {
            ratio: beside.at(99.0) / alone.at(99.0),
            refused: beside.refused as f64,
            highest: highest as f64,
        };
        settle(upstream).await;
    }
    enforced
}

fn show(latencies: &Latencies) -> String {
    let (p50, p99) = (latencies.at(50.0), latencies.at(99.0));
    format!("p50 {p50:.1} p99 {p99:.1} ms, {} refused", latencies.refused)
}

/// Waits until the API server has nothing to do.
async fn settle(upstream: &Upstream) {
    while upstream.work.take_highest() > 0 {
        sleep(Duration::from_millis(100)).await;
    }
}

/// A level that was idle asks for its seats, all of which another one has borrowed.
pub(crate) async fn lender(upstream: &Upstream) -> Vec<Target> {
    let level = |name: &str, lendable: u32| {
        json!({"name": name, "limited": {"nominalConcurrencyShares": 1_000_000,
            "lendablePercent": lendable, "limitResponse": {"type": "Queue",
                "queuing": {"queues": 64, "handSize": 6, "queueLengthLimit": 50}}}})
    };
    let rule = |user: usize, level: &str| {
        json!({"name": format!("to-{level}"), "level": level, "match": [{
            "subjects": [{"kind": "User", "user": {"name": user_name(user)}}],
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"],
                "namespaces": ["*"]}]}]})
    };
    let flow = json!({"levels": [level("lender", 90), level("borrower", 0)],
        "rules": [rule(0, "lender"), rule(1, "borrower")]});
    let weir = gateway(upstream, "enforce", flow).await;
    let (lender, borrower) = (user_token(0), user_token(1));
    // Half of the seats.
    let nominal = SEATS / 2 - 1;
    let mut connections = Vec::new();
    for _ in 0..nominal {
        connections.push(Connection::open(weir.address).await);
    }
    let mut alone = Vec::new();
    for _ in 0..20 {
        alone.extend(burst(&mut connections, &lender).await);
    }
    let crowd = Crowd::start(weir.address, GET, &[borrower], 200);
    sleep(Duration::from_secs(3)).await;
    let mut waits = Vec::new();
    for _ in 0..40 {
        waits.extend(burst(&mut connections, &lender).await);
        sleep(Duration::from_millis(500)).await;
    }
    drop(crowd);
    settle(upstream).await;
    let at = |latencies: &mut Vec<f64>, percent: usize| {
        latencies.sort_by(f64::total_cmp);
        latencies.get((latencies.len() - 1) * percent / 100).copied().unwrap_or(f64::NAN)
    };
    let (base, p50, p99) = (at(&mut alone, 99), at(&mut waits, 50), at(&mut waits, 99));
    let service = SERVICE.as_secs_f64() * 1e3;
    println!(
        "lender: bursts of {nominal}: alone p99 {base:.1} ms; while all is lent p50 {p50:.1} p99 {p99:.1} ms"
    );
    let what = "row 4: a lender's wait for its seats (p99), of a service time";
    vec![Target { what, is: (p99 - base) / service, most: 1.0 }]
}

/// Sends one request over each connection at once. Returns the latencies in milliseconds.
async fn burst(connections: &mut [Connection], token: &str) -> Vec<f64> {
    let sent = connections.iter_mut().map(|connection| async move {
        let began = Instant::now();
        assert_eq!(connection.get(GET, token).await, 200, "of a lender");
        began.elapsed().as_secs_f64() * 1e3
    });
    futures_util::future::join_all(sent).await
}

/// A hundred users ask for more than there is.
pub(crate) async fn fairness(upstream: &Upstream) -> Vec<Target> {
    let weir = gateway(upstream, "enforce", json!({})).await;
    let tokens: Vec<String> = (0..USERS).map(user_token).collect();
    let crowd = Crowd::start(weir.address, GET, &tokens, 4);
    sleep(Duration::from_secs(5)).await;
    let before = crowd.counts();
    sleep(Duration::from_secs(10)).await;
    let counts = crowd.counts().into_iter().zip(before);
    let served: Vec<f64> = counts.map(|(after, before)| (after - before) as f64).collect();
    drop(crowd);
    settle(upstream).await;
    let (sum, squares) = served
        .iter()
        .fold((0.0, 0.0), |(sum, squares), share| (sum + share, squares + share * share));
    let jain = sum * sum / (served.len() as f64 * squares);
    println!("fairness: {USERS} users, {sum} requests in 10 s, Jain's index {jain:.4}");
    vec![Target { what: "row 12: 1 - Jain's index of 100 users", is: 1.0 - jain, most: 0.01 }]
}

/// Sends GETs of all users once, so that their tokens are reviewed.
pub(crate) async fn introduce(weir: &Weir) {
    let mut requests = JoinSet::new();
    let address = weir.address;
    for user in 0..USERS {
        requests.spawn(async move {
            let mut connection = Connection::open(address).await;
            let path = "/api/v1/namespaces/default/configmaps/none";
            connection.get(path, &user_token(user)).await
        });
    }
    drop(requests.join_all().await);
}

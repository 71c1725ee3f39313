//! A hundred watchers at random resourceVersions come to a Weir that has just started.

use std::time::{Duration, Instant};

use fastrand::Rng;
use http_body_util::BodyExt;
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::control_plane::{ADMIN, ControlPlane};
use crate::h2c::H2c;
use crate::suite::objects::create;
use crate::suite::wire::Endpoint;
use crate::support::{Weir, sum_metric};

pub(super) fn after_a_restart() {
    let plane = ControlPlane::start_with_watch_list();
    let direct = plane.endpoint(ADMIN);
    let runtime = Runtime::new().unwrap();
    let (first, last) = runtime.block_on(fill(&direct));
    let mut weir = Weir::start(&plane.kubeconfig(ADMIN), "");
    let list = runtime.block_on(async {
        let connection = H2c::connect(weir.plain_port()).await;
        connection.get_all("/api/v1/configmaps").await.0.status()
    });
    assert_eq!(list, 200);
    weir.stop();
    let weir = Weir::start(&plane.kubeconfig(ADMIN), "");
    let before = requests(&plane);
    let watches = runtime.block_on(watch_all(&weir, first, last));
    let heads = quantiles(watches.iter().map(|watch| watch.head).collect());
    let complete = quantiles(watches.iter().map(|watch| watch.complete).collect());
    let refused: usize = watches.iter().map(|watch| watch.refused).sum();
    eprintln!(
        "{WATCHERS} watchers at random resourceVersions in [{first}, {last}]: \
         response after {heads}, last event after {complete}; {refused} requests were refused; \
         {} requests of config maps upstream",
        requests(&plane) - before
    );
}

/// Creates and changes objects, and returns the first and the last resourceVersion.
async fn fill(direct: &Endpoint) -> (u64, u64) {
    let mut connection = direct.connection();
    let mut versions = Vec::new();
    for n in 0..CHANGES {
        let name = if n + 1 == CHANGES { "the-last".to_owned() } else { format!("o{n}") };
        let object = json!({"metadata": {"name": name}, "data": {"k": "x".repeat(500)}});
        create(&mut connection, "/api/v1/namespaces/default/configmaps", &object).await;
        let path = format!("/api/v1/namespaces/default/configmaps/{name}");
        let made = connection.send(&crate::suite::wire::Call::get(path)).await.json();
        versions.push(made["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap());
    }
    (versions[0], versions[CHANGES - 1])
}

struct WatchTimes {
    /// Until the head of a response that streams.
    head: Duration,
    /// Until the last event.
    complete: Duration,
    /// How often it was refused before.
    refused: usize,
}

async fn watch_all(weir: &Weir, first: u64, last: u64) -> Vec<WatchTimes> {
    let connections =
        [H2c::connect(weir.plain_port()).await, H2c::connect(weir.plain_port()).await];
    let mut rng = Rng::with_seed(13);
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for n in 0..WATCHERS {
        let connection = connections[n % 2].clone();
        let at = rng.u64(first..last);
        tasks.spawn(watch(connection, at, began));
    }
    tasks.join_all().await
}

async fn watch(connection: H2c, at: u64, began: Instant) -> WatchTimes {
    let path = format!("/api/v1/configmaps?watch=1&resourceVersion={at}&timeoutSeconds=300");
    for refused in 0.. {
        let response = connection.get(&path).await;
        if response.status() != 200 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            continue;
        }
        let head = began.elapsed();
        let (mut body, mut seen) = (response.into_body(), Vec::new());
        while let Some(Ok(frame)) = body.frame().await {
            seen.extend_from_slice(frame.data_ref().unwrap());
            if memchr::memmem::find(&seen, b"the-last").is_some() {
                return WatchTimes { head, complete: began.elapsed(), refused };
            }
        }
    }
    unreachable!("it tries for ever");
}

/// Returns the lists and watches of config maps that the API server ever had.
fn requests(plane: &ControlPlane) -> f64 {
    let metrics = plane.get("/metrics").unwrap();
    let labels = [r#"resource="configmaps""#, r#"scope="cluster""#];
    sum_metric(&metrics, "apiserver_request_total", &labels)
        + sum_metric(&metrics, "apiserver_longrunning_requests", &labels)
}

fn quantiles(mut durations: Vec<Duration>) -> String {
    durations.sort();
    let at = |n: usize| durations[(durations.len() - 1) * n / 100];
    format!("{:.2?} (half), {:.2?} (all)", at(50), at(100))
}

const WATCHERS: usize = 100;
const CHANGES: usize = 400;

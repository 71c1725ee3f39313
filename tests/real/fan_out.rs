//! The cost of a thousand clients for the upstream, by the upstream's own metrics.

use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::runtime::Runtime;

use crate::control_plane::{ADMIN, ControlPlane};
use crate::h2c::H2c;
use crate::support::{Weir, eventually_blocking, sum_metric};

const CLIENTS: usize = 1_000;
/// kube-apiserver's own limit of streams on a connection, so a likely number for a client.
const PER_CONNECTION: usize = 100;
const WATCH: &str =
    "/api/v1/configmaps?watch=1&resourceVersion=0&allowWatchBookmarks=true&timeoutSeconds=300";

pub(crate) fn warm() {
    let plane = ControlPlane::start();
    let weir = Weir::start(&plane.kubeconfig(ADMIN), "cache:\n  warm: [v1/configmaps]\n");
    let before = Cost::read(&plane);
    Runtime::new().unwrap().block_on(async {
        let watches = open(&weir).await;
        // Warming is a part of the cost: one watch-list and no list.
        let cost = Cost::read(&plane);
        assert_eq!(cost.watches, 1.0, "watches of configmaps upstream");
        assert!(cost.lists - before.lists <= 1.0, "{} lists upstream", cost.lists - before.lists);
        everyone_sees_a_change(&plane, watches).await;
    });
}

pub(crate) fn cold() {
    let plane = ControlPlane::start();
    let weir = Weir::start(&plane.kubeconfig(ADMIN), "");
    // Without watch-list it takes a list, and one of a single object, which shows the form of the
    // upstream's bookmarks.
    let lists_max = if plane.has_watch_list() { 1.0 } else { 2.0 };
    let before = Cost::read(&plane);
    Runtime::new().unwrap().block_on(async {
        let watches = open(&weir).await;
        let cost = Cost::read(&plane);
        assert_eq!(cost.watches, 1.0, "watches of configmaps upstream");
        let lists = cost.lists - before.lists;
        assert!(lists <= lists_max, "{lists} lists upstream");
        everyone_sees_a_change(&plane, watches).await;
    });
}

/// Opens all watches at once; none may be forwarded.
async fn open(weir: &Weir) -> Vec<Incoming> {
    let mut connections = Vec::new();
    for _ in 0..CLIENTS / PER_CONNECTION {
        connections.push(H2c::connect(weir.plain_port()).await);
    }
    let requests = (0..CLIENTS).map(|n| connections[n % connections.len()].get(WATCH));
    let responses = futures::future::join_all(requests).await;
    for response in &responses {
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["x-weir-cache"], "hit");
    }
    responses.into_iter().map(http::Response::into_body).collect()
}

async fn everyone_sees_a_change(plane: &ControlPlane, watches: Vec<Incoming>) {
    let client = crate::churn::client(&plane.kubeconfig(ADMIN)).await;
    let request = http::Request::post("/api/v1/namespaces/default/configmaps")
        .header("content-type", "application/json")
        .body(br#"{"metadata":{"name":"the-news"}}"#.to_vec())
        .unwrap();
    client.request_text(request).await.unwrap();
    let reads = watches.into_iter().map(|mut body| async move {
        let mut seen = String::new();
        while let Some(frame) = body.frame().await {
            seen.push_str(&String::from_utf8_lossy(frame.unwrap().data_ref().unwrap()));
            if seen.contains("the-news") {
                return true;
            }
        }
        false
    });
    let seen = futures::future::join_all(reads).await;
    assert!(seen.iter().all(|seen| *seen), "every watch delivered the event");
}

/// The upstream's counts for config maps.
pub(crate) struct Cost {
    pub(crate) watches: f64,
    lists: f64,
}

impl Cost {
    pub(crate) fn read(plane: &ControlPlane) -> Self {
        let mut metrics = String::new();
        eventually_blocking("the upstream's metrics", || {
            metrics = plane.get("/metrics").unwrap_or_default();
            metrics.contains("apiserver_longrunning_requests")
        });
        // The API server's own informers watch config maps of kube-system; only Weir watches all of
        // them.
        let of_cluster = [r#"resource="configmaps""#, r#"scope="cluster""#];
        let sum = |name: &str, verb: &str| {
            let labels: Vec<&str> = of_cluster.into_iter().chain([verb]).collect();
            sum_metric(&metrics, name, &labels)
        };
        Self {
            watches: sum("apiserver_longrunning_requests", r#"verb="WATCH""#),
            lists: sum("apiserver_request_total", r#"verb="LIST""#),
        }
    }
}

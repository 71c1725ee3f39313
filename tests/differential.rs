//! While nothing changes, a response through Weir equals the upstream's, and comes from the cache
//! where the tables say so. During changes, streams and pages are compared. Here against the
//! simulator; `tests/real` runs the same against a real kube-apiserver.
//!
//! `DIFFERENTIAL_SEED` is the seed of the sampled requests.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::indexing_slicing,
    reason = "this is a test"
)]
#![expect(clippy::disallowed_methods, reason = "waits for processes, whose clock is the system's")]

#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "differential/suite.rs"]
mod suite;
#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "support/weir.rs"]
mod support;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tempfile::TempDir;
use weir::simulator::{Simulator, SimulatorOptions};

use crate::suite::churn::{Plan, churn};
use crate::suite::corpus::{cases, consistent_lists, document_cases, seed, some_cases};
use crate::suite::paging::walks;
use crate::suite::run::{Sides, prepare, run};
use crate::suite::wire::Endpoint;
use crate::support::Weir;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn responses_equal_the_upstreams() {
    let world = World::start(1).await;
    let sides = world.sides(0);
    let marks = prepare(&sides.direct, std::slice::from_ref(&sides.through), false).await;
    let report = run(&sides, cases(&marks, SAMPLED)).await;
    // The corpus reaches the cases that it is made for.
    for (status, cache) in [
        (200, true),
        (200, false),
        (400, false),
        (404, false),
        (406, false),
        (422, false),
        (500, false),
        (504, false),
    ] {
        assert!(report.count(status, cache) > 10, "{status} {cache} hardly ever came up");
    }
    report.finish("answers");
    let documents = document_cases(&sides).await;
    run(&sides, documents).await.finish("documents");
}

/// The same corpus, and the lists without a resourceVersion come from the cache.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consistent_lists_from_the_cache_equal_the_upstreams() {
    let world = World::start_with(1, CONSISTENT).await;
    let sides = world.sides(0);
    let marks = prepare(&sides.direct, std::slice::from_ref(&sides.through), false).await;
    let report = run(&sides, consistent_lists(&marks, SAMPLED)).await;
    assert!(report.count(200, true) > 500, "hardly any list comes from the cache");
    report.finish("consistent lists");
    run(&sides, some_cases(&marks, SAMPLED_IN_CHAIN)).await.finish("answers");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn responses_through_two_weirs_equal_the_upstreams() {
    let world = World::chain().await;
    // The bookmark that brings the outer Weir to the same resourceVersion comes from the inner one,
    // once a minute.
    let sides = Sides { moves: true, ..world.sides(1) };
    let weirs = [world.sides(0).through, sides.through.clone()];
    let marks = prepare(&sides.direct, &weirs, true).await;
    run(&sides, some_cases(&marks, SAMPLED_IN_CHAIN)).await.finish("a chain");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_through_weir_equal_direct_ones_while_objects_churn() {
    let world = World::start(1).await;
    churn(world.every_endpoint(), plan(), |_| {}).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_through_two_weirs_equal_direct_ones_while_objects_churn() {
    let world = World::chain().await;
    churn(world.every_endpoint(), plan(), |_| {}).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paged_list_may_alternate_between_weir_and_the_upstream() {
    let world = World::start(2).await;
    let sides = world.every_endpoint();
    prepare(&sides[0], &sides[1..], true).await;
    walks(&sides, &PAGED, seed(), WALKS).await;
}

/// Enough requests of each kind for an error of order to show; the upstream's streams are counted,
/// not its time.
fn plan() -> Plan {
    Plan { seed: seed(), writers: 3, writes: 300, clients: 74 }
}

const PAGED: [&str; 4] = [
    "/api/v1/configmaps",
    "/api/v1/namespaces/a/configmaps",
    "/apis/example.com/v1/widgets",
    "/apis/example.com/v1/namespaces/a/widgets",
];

/// A simulator and Weirs in front of it.
struct World {
    upstream: Simulator,
    weirs: Vec<Weir>,
    _dir: TempDir,
}

impl World {
    /// Starts `count` Weirs beside each other.
    async fn start(count: usize) -> Self {
        Self::start_with(count, CONFIG).await
    }

    async fn start_with(count: usize, config: &str) -> Self {
        let (upstream, dir) = upstream().await;
        let kubeconfig = dir.path().join("upstream.kubeconfig");
        let weirs = (0..count).map(|_| Weir::spawn(&kubeconfig, config)).collect::<Vec<_>>();
        let weirs = ready(weirs).await;
        Self { upstream, weirs, _dir: dir }
    }

    /// Starts one Weir in front of another; the outer one is the last.
    async fn chain() -> Self {
        let mut world = Self::start(1).await;
        let outer = Weir::spawn(&world.weirs[0].kubeconfig(), CONFIG);
        world.weirs.extend(ready(vec![outer]).await);
        world
    }

    /// Returns the upstream, then every Weir.
    fn every_endpoint(&self) -> Vec<Endpoint> {
        let mut sides = vec![self.sides(0).direct];
        sides.extend((0..self.weirs.len()).map(|weir| self.sides(weir).through));
        sides
    }

    fn sides(&self, weir: usize) -> Sides {
        let port = self.weirs[weir].plain_port();
        let through = Endpoint::plain(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        Sides { direct: Endpoint::plain(self.upstream.address()), through, moves: false }
    }
}

async fn upstream() -> (Simulator, TempDir) {
    let options = SimulatorOptions {
        // A short time-out: some requests wait for a state that never comes.
        freshness_timeout: Duration::from_millis(50),
        // Weir's caches learn of progress soon; no watch of the corpus lasts longer.
        bookmark_interval: Duration::from_secs(3),
        ..SimulatorOptions::default()
    };
    let upstream = Simulator::start(options).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("upstream.kubeconfig"), upstream.kubeconfig("")).unwrap();
    (upstream, dir)
}

/// Waits while the simulator runs in this process.
async fn ready(weirs: Vec<Weir>) -> Vec<Weir> {
    let wait = move || {
        weirs.iter().for_each(Weir::wait_until_ready);
        weirs
    };
    tokio::task::spawn_blocking(wait).await.unwrap()
}

/// Room for hundreds of forwarded watches at once.
const CONFIG: &str = "cache: {forwardBudget: 4096}\n";

/// The same, with consistent lists from the cache.
const CONSISTENT: &str = "cache: {forwardBudget: 4096, consistentLists: always}\n";

const SAMPLED: usize = 2500;
const SAMPLED_IN_CHAIN: usize = 1000;
const WALKS: usize = 120;

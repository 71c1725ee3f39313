//! While nothing changes, an answer through Weir is the upstream's own, and comes from the cache where the tables give it to one; while
//! something does, streams and pages are. Here against the simulator; `tests/real` runs the same against a real kube-apiserver.
//!
//! A seed picks what is sampled: `DIFFERENTIAL_SEED`.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::indexing_slicing,
    reason = "this is a test"
)]

#[path = "differential/suite.rs"]
mod suite;
#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "support/weir.rs"]
mod support;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tempfile::TempDir;
use weir::simulator::{Simulator, SimulatorOptions};

use crate::suite::corpus::{cases, document_cases, some_cases};
use crate::suite::run::{Sides, prepare, run};
use crate::suite::wire::Endpoint;
use crate::support::Weir;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_equal_the_upstreams() {
    let world = World::start(1).await;
    let sides = world.sides(0);
    let marks = prepare(&sides.direct, std::slice::from_ref(&sides.through)).await;
    let report = run(&sides, cases(&marks, SAMPLED)).await;
    // The corpus reaches what it is meant to reach.
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_through_two_weirs_equal_the_upstreams() {
    let world = World::chain().await;
    let sides = world.sides(1);
    let weirs = [world.sides(0).through, sides.through.clone()];
    let marks = prepare(&sides.direct, &weirs).await;
    run(&sides, some_cases(&marks, SAMPLED_IN_CHAIN)).await.finish("a chain");
}

/// A simulator and Weirs before it.
struct World {
    upstream: Simulator,
    weirs: Vec<Weir>,
    _dir: TempDir,
}

impl World {
    /// So many Weirs, side by side.
    async fn start(count: usize) -> Self {
        let (upstream, dir) = upstream().await;
        let kubeconfig = dir.path().join("upstream.kubeconfig");
        let weirs = (0..count).map(|_| Weir::spawn(&kubeconfig, CONFIG)).collect::<Vec<_>>();
        let weirs = ready(weirs).await;
        Self { upstream, weirs, _dir: dir }
    }

    /// One before the other before the simulator; the outer one is the last.
    async fn chain() -> Self {
        let mut world = Self::start(1).await;
        let outer = Weir::spawn(&world.weirs[0].kubeconfig(), CONFIG);
        world.weirs.extend(ready(vec![outer]).await);
        world
    }

    fn sides(&self, weir: usize) -> Sides {
        let port = self.weirs[weir].plain_port();
        let through = Endpoint::plain(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        Sides { direct: Endpoint::plain(self.upstream.address()), through, moves: false }
    }
}

async fn upstream() -> (Simulator, TempDir) {
    let options = SimulatorOptions {
        // A wait for what will never come need not take long.
        freshness_timeout: Duration::from_millis(50),
        ..SimulatorOptions::default()
    };
    let upstream = Simulator::start(options).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("upstream.kubeconfig"), upstream.kubeconfig("")).unwrap();
    (upstream, dir)
}

/// Waits, while the simulator goes on in this very process.
async fn ready(weirs: Vec<Weir>) -> Vec<Weir> {
    let wait = move || {
        weirs.iter().for_each(Weir::wait_until_ready);
        weirs
    };
    tokio::task::spawn_blocking(wait).await.unwrap()
}

/// Hundreds of watches at once want what only the upstream has; and what never comes is not waited for long.
const CONFIG: &str = "cache: {forwardBudget: 4096}\nserver: {freshnessTimeout: 200ms}\n";

const SAMPLED: usize = 2500;
const SAMPLED_IN_CHAIN: usize = 1000;

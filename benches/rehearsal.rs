//! A rehearsal of a large cluster: clients that behave as kubelets do, a gateway, and an upstream.
//! Run `cargo bench --bench rehearsal -- --nodes 400`, or with more nodes on a larger machine.
//!
//! Each node has a certificate and a connection: a watch of its ten pods and of itself, twenty
//! watches of single secrets and config maps by name, and its lease, which it writes every ten
//! seconds. Pods change, a fiftieth of the nodes' number a second. Weir is a process of its own;
//! its CPU time and memory are the figures. The upstream is the simulator, in this process, so that
//! requests can be counted.
//!
//! After a while Weir is killed and started, then the upstream: what each costs is shown.
//!
//! The law: what Weir does for a node is independent of the other nodes (a cache finds the watches
//! that want an event by an index), so CPU time and memory are those of an idle Weir and a constant
//! for each node. The run measures half of the nodes first and then all, and prints what a line
//! through both says of 5,000 nodes with 50,000 pods and 100 changes a second.

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a bench prints, and stops where something fails"
)]

#[path = "support/cpu.rs"]
mod cpu;
#[path = "rehearsal/node.rs"]
mod node;
#[path = "rehearsal/testbed.rs"]
mod testbed;
#[path = "support/weir_process.rs"]
#[expect(dead_code, reason = "other benches use more of it")]
mod weir_process;

use std::time::Duration;

use tokio::time::Instant;

use crate::testbed::{Steady, Testbed};

/// The nodes to which the figures are extrapolated.
const CLUSTER: f64 = 5_000.0;
const MEASURED: Duration = Duration::from_secs(30);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let mut words = std::env::args().skip_while(|word| word != "--nodes").skip(1);
    let nodes = words.next().map_or(200, |word| word.parse().expect("a number of nodes"));
    let mut testbed = Testbed::start(nodes).await;
    let idle = testbed.resident();
    println!("{nodes} nodes, {} watches each; Weir's memory before: {idle:.1} MiB", node::WATCHES);
    let mut figures = Vec::new();
    for part in [nodes / 2, nodes] {
        let began = Instant::now();
        testbed.connect(part).await;
        println!("\n{part} nodes: connected after {:.1} s", began.elapsed().as_secs_f64());
        let steady = testbed.measure(MEASURED).await;
        println!("{steady}");
        figures.push((part as f64, steady));
    }
    if let [(few, one), (many, other)] = figures.as_slice() {
        let extrapolated = |get: fn(&Steady) -> f64| {
            let slope = (get(other) - get(one)) / (many - few);
            get(one) + slope * (CLUSTER - few)
        };
        println!(
            "\na line through both, at {CLUSTER} nodes: {:.2} cores, {:.0} MiB, {:.0} requests/s upstream",
            extrapolated(|steady| steady.cores),
            extrapolated(|steady| steady.mebibytes),
            extrapolated(|steady| steady.upstream)
        );
    }
    println!("\nWeir is killed and started:");
    testbed.restart_weir().await;
    println!("\nthe upstream is stopped for two seconds:");
    testbed.restart_upstream().await;
}

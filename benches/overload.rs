//! Measures what protects Weir itself: lanes, stages, slow readers, and budgets of memory. Run
//! `cargo bench --bench overload`, with names of rows as arguments for some of them.
//!
//! Weir is a separate process in front of a simulator in this one. Clients, simulator and Weir
//! share the machine, so that a latency is compared with the one of the same client alone, a moment
//! before. The row `memory` puts Weir into a control group of 512 MiB and half a processor, which
//! only root may do. Without that, the row says so and runs without the limits.

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a bench prints, and stops where something fails"
)]

#[path = "overload/client.rs"]
mod client;
#[path = "support/cpu.rs"]
mod cpu;
#[path = "overload/crowd.rs"]
mod crowd;
#[path = "support/floor.rs"]
mod floor;
#[path = "overload/group.rs"]
mod group;
#[path = "overload/rows.rs"]
mod rows;
#[path = "support/token.rs"]
mod token;
#[path = "support/weir_process.rs"]
#[expect(dead_code, reason = "each bench uses a part of it")]
mod weir_process;

use std::path::PathBuf;

use serde_json::json;
use weir::simulator::{Rule, Simulator, SimulatorOptions, User};

use crate::token::token;
use crate::weir_process::{Limits, Weir, free_address};

const WEIRS_OWN: &str = "weirs-own";
const PODS: usize = 5_000;
/// The users of a row.
const USERS: usize = 40;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let asked: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    if let [crowd::CROWD, address] = *asked.iter().map(String::as_str).collect::<Vec<_>>() {
        return crowd::run(address.parse().expect("an address")).await;
    }
    if asked.first().is_some_and(|argument| argument == floor::FLOOR) {
        rows::run_floor().await;
    }
    let is_asked = |row: &str| asked.is_empty() || asked.iter().any(|argument| argument == row);
    let upstream = upstream().await;
    if is_asked("lists") {
        rows::lists(&upstream).await;
    }
    if is_asked("refusals") {
        rows::refusals(&upstream).await;
    }
    if is_asked("readers") {
        rows::readers(&upstream).await;
    }
    if is_asked("memory") {
        rows::memory(&upstream).await;
    }
}

/// Starts the simulator, with pods of 5 KB, and a lease.
async fn upstream() -> Simulator {
    // Not members of `system:masters`, to whom nothing is refused.
    let everything = vec![Rule::new(&["*"], &["*"], &["*"])];
    let user = |number| User::with_rules(&token(&name(number)), &name(number), everything.clone());
    let mut users: Vec<_> = (0..USERS).map(user).collect();
    users.push(User::admin(WEIRS_OWN, "weir"));
    let options = SimulatorOptions { users, ..SimulatorOptions::default() };
    let upstream = Simulator::start(options).await.expect("a simulator");
    for number in 0..PODS {
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("pod-{number:05}"), "namespace": "default",
                "annotations": {"padding": "x".repeat(4_400)}},
            "spec": {"nodeName": format!("node-{}", number % 100),
                "containers": [{"name": "main", "image": "example.com/image:1"}]}});
        upstream.store().create(pod).expect("a pod is created");
    }
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "node", "namespace": "default"}, "spec": {"holderIdentity": "node"}});
    upstream.store().create(lease).expect("a lease is created");
    upstream
}

/// Starts Weir as a gateway that enforces flow control, in control groups and with a limit of file
/// descriptors, if given.
async fn weir(upstream: &Simulator, groups: &[PathBuf], descriptors: Option<usize>) -> Weir {
    let gateway =
        json!({"authentication": {"mode": "gateway"}, "flowControl": {"mode": "enforce"}});
    let limits = Limits { groups, descriptors };
    Weir::start_within(&limits, free_address(), &upstream.kubeconfig(WEIRS_OWN), gateway).await
}

/// Returns the name of a user.
fn name(number: usize) -> String {
    format!("user{number}.")
}

//! Measures what load shedding is for: a client beside others who ask for far more than their
//! share, the number of requests that reach the API server, and the memory of those that wait. Run
//! `cargo bench --bench shedding`, or `-- runaway lender` for some of it.
//!
//! Weir is a process of its own, a gateway in front of an upstream in this one ([`upstream`]): an
//! API server with 20 seats, which serves requests of a namespace in 15 to 25 ms each, first come,
//! first served. Each figure compares runs of the same sitting: without enforcement, with it, and
//! alone. Latencies are those of an open loop, from the time at which a request was due.

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a bench prints, and stops where something fails"
)]

#[path = "support/cpu.rs"]
mod cpu;
#[path = "support/floor.rs"]
mod floor;
#[path = "shedding/load.rs"]
mod load;
#[path = "shedding/memory.rs"]
mod memory;
#[path = "shedding/rows.rs"]
mod rows;
#[path = "support/token.rs"]
mod token;
#[path = "shedding/upstream.rs"]
mod upstream;
#[path = "support/weir_process.rs"]
#[expect(dead_code, reason = "each bench uses a part of it")]
mod weir_process;

use crate::upstream::Upstream;

/// A figure and its bound.
pub(crate) struct Target {
    pub(crate) what: &'static str,
    pub(crate) is: f64,
    pub(crate) most: f64,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let words: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    if words.first().is_some_and(|word| word == floor::FLOOR) {
        memory::run_floor().await;
    }
    let is_wanted = |name: &str| words.is_empty() || words.iter().any(|word| word == name);
    let upstream = Upstream::start().await;
    let mut targets = Vec::new();
    if is_wanted("runaway") {
        targets.extend(rows::runaway(&upstream).await);
    }
    if is_wanted("runaways") {
        targets.extend(rows::runaways(&upstream).await);
    }
    if is_wanted("lists") {
        targets.extend(rows::lists(&upstream).await);
    }
    if is_wanted("lender") {
        targets.extend(rows::lender(&upstream).await);
    }
    if is_wanted("fairness") {
        targets.extend(rows::fairness(&upstream).await);
    }
    if is_wanted("memory") {
        targets.extend(memory::waiting(&upstream).await);
        targets.extend(memory::idle(&upstream).await);
    }
    println!("\n{:64} {:>10} {:>10}", "", "is", "at most");
    for Target { what, is, most } in targets {
        let verdict = if is <= most { "met" } else { "MISSED" };
        println!("{what:64} {is:>10.2} {most:>10.2}  {verdict}");
    }
}

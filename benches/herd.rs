//! Herds: thousands of watchers, each on a connection of its own, when Weir restarts, when the API
//! server does, and when both do; and thousands of clients that list for the first time. Counts
//! what reaches the API server, and measures how long it takes until all have what they asked for.
//! Run `cargo bench --bench herd -- --help`.
//!
//! Weir is a process of its own, as a gateway. The API server is a simulator in this process, which
//! counts its requests. The watchers are bare clients in this process. Four of five watch a
//! collection. One object of it changes all the time, and each change has a number, so that the
//! bench notices a lost or repeated event. The fifth watches one quiet object by its name, and so
//! holds an old resourceVersion. A Weir that restarts is killed, and its watchers try to connect
//! ten times a second, sooner than client-go's, so that they arrive together.
//!
//! Watchers, simulator and Weir share the machine: the times are upper bounds. The bench fails if a
//! restart costs more than [`bounds::Bounds`] allow. With `--quiet`, it also counts the reviews of
//! each second while nothing happens but checks of open watches.

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a bench prints, and stops where something fails"
)]

#[path = "herd/args.rs"]
mod args;
#[path = "herd/bounds.rs"]
mod bounds;
#[path = "herd/client.rs"]
mod client;
#[path = "support/cpu.rs"]
mod cpu;
#[path = "herd/crowd.rs"]
mod crowd;
#[path = "herd/lists.rs"]
mod lists;
#[path = "herd/quiet.rs"]
mod quiet;
#[path = "herd/report.rs"]
mod report;
#[path = "support/scrape.rs"]
mod scrape;
#[path = "herd/testbed.rs"]
mod testbed;
#[path = "support/token.rs"]
mod token;
#[path = "herd/watcher.rs"]
mod watcher;
#[expect(dead_code, reason = "this bench chooses the address, the same for each Weir")]
#[path = "support/weir_process.rs"]
mod weir_process;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser as _;

use crate::args::Args;
use crate::bounds::Bounds;
use crate::testbed::Testbed;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let mut testbed = Testbed::start(Args::parse()).await;
    if testbed.runs("lists") {
        lists::run(&mut testbed).await;
    }
    if ["weir", "server", "forgetful", "both", "quiet"].iter().any(|phase| testbed.runs(phase)) {
        testbed.open_watches().await;
        restarts(&mut testbed).await;
        if testbed.runs("quiet") {
            quiet::run(&mut testbed).await;
        }
    }
    testbed.end().await
}

async fn restarts(testbed: &mut Testbed) {
    let outage = Duration::from_secs(testbed.args.outage);
    if testbed.runs("weir") {
        testbed.kill_weir().await;
        testbed.start_weir().await;
        testbed.finish("restart of Weir", Bounds::of_weir()).await;
    }
    if testbed.runs("server") {
        testbed.stop_server(outage).await;
        testbed.start_server(false).await;
        testbed.finish("restart of the API server", Bounds::of_server()).await;
    }
    if testbed.runs("forgetful") {
        testbed.stop_server(outage).await;
        testbed.start_server(true).await;
        let title = "restart of the API server, which loses its history";
        testbed.finish(title, Bounds::of_forgetful_server()).await;
    }
    if testbed.runs("both") {
        testbed.kill_weir().await;
        testbed.stop_server(outage).await;
        testbed.start_weir().await;
        tokio::time::sleep(outage).await;
        testbed.start_server(false).await;
        testbed.finish("restart of both, Weir first", Bounds::of_weir()).await;
    }
}

//! Compares Weir with a Kubernetes API server and with a lower bound, the floor, under the same
//! load in one run: CPU time, rates, latencies and memory. Run `cargo bench --bench compare`; `--
//! --help` lists the options.
//!
//! Without arguments the simulator is the upstream. This gives a first impression only, since the
//! simulator is no kube-apiserver. The comparison in benches/README.md uses `--upstream` with a
//! throwaway control plane. The floor is hyper and rustls, which serve the same bytes as the
//! upstream from memory; it needs no installation. `--nginx` adds an nginx that serves them from
//! files.
//!
//! All requests use TLS and a bearer token, and HTTP/2 unless a row names HTTP/1.1. Each server is
//! a separate process. Reads alternate among all servers, so that other load affects all of them
//! alike. The client shares the machine, so CPU times are more reliable than rates.

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a bench prints, and stops where something fails"
)]

#[path = "compare/args.rs"]
mod args;
#[path = "compare/changes.rs"]
mod changes;
#[path = "compare/child.rs"]
mod child;
#[path = "compare/client.rs"]
mod client;
#[path = "compare/consistent.rs"]
mod consistent;
#[path = "support/cpu.rs"]
mod cpu;
#[path = "compare/events.rs"]
mod events;
#[path = "compare/fan_out.rs"]
mod fan_out;
#[path = "compare/floor.rs"]
mod floor;
#[path = "compare/forwarded.rs"]
mod forwarded;
#[path = "compare/lag.rs"]
mod lag;
#[path = "compare/nginx.rs"]
mod nginx;
#[path = "compare/own_weir.rs"]
mod own_weir;
#[path = "compare/pod.rs"]
mod pod;
#[path = "compare/pods.rs"]
mod pods;
#[path = "compare/reads.rs"]
mod reads;
#[path = "compare/report.rs"]
mod report;
#[path = "compare/results.rs"]
mod results;
#[path = "compare/server.rs"]
mod server;
#[path = "compare/sync.rs"]
mod sync;
#[path = "compare/table.rs"]
mod table;
#[path = "compare/targets.rs"]
mod targets;
#[path = "compare/testbed.rs"]
mod testbed;
#[path = "compare/usage.rs"]
mod usage;
#[path = "compare/watch_cost.rs"]
mod watch_cost;
#[path = "compare/watches.rs"]
mod watches;
#[path = "support/weir_process.rs"]
#[expect(dead_code, reason = "other benches use more of it")]
mod weir_process;

use std::future::pending;
use std::time::Duration;

use clap::Parser as _;
use rustix::process::{
    Resource, Rlimit, getpriority_process, getrlimit, setpriority_process, setrlimit,
};
use tokio::runtime::{Builder, Handle};
use weir::simulator::{Simulator, SimulatorOptions, User};

use crate::args::{Cli, Compare, ServerCommand};
use crate::child::Endpoint;
use crate::reads::{Pace, Read};
use crate::results::Results;
use crate::server::WEIR;
use crate::testbed::Testbed;
use crate::watch_cost::MeasureOptions;

/// The nice value of the background threads. They get a third of the CPU time that other threads
/// get, so they also make progress on a busy machine.
const NICE: i32 = 5;

fn main() {
    let cli = Cli::parse();
    // The client and the floor have a thousand connections each.
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
        .expect("a limit of open files");
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        match cli.server {
            Some(ServerCommand::Floor { directory }) => floor::serve(&directory).await,
            Some(ServerCommand::Simulator { token }) => simulate(&token).await,
            None => Box::pin(compare(&cli.compare)).await,
        }
    });
}

/// Starts a runtime with threads of lower priority, which runs until the process ends.
fn background_runtime() -> Handle {
    let priority = getpriority_process(None).expect("the priority of this process") + NICE;
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .on_thread_start(move || {
            setpriority_process(None, priority).expect("lowering the priority is permitted")
        })
        .build()
        .expect("a runtime");
    let handle = runtime.handle().clone();
    std::thread::spawn(move || runtime.block_on(pending::<()>()));
    handle
}

async fn simulate(token: &str) {
    let users = vec![User::admin(token, "admin")];
    // The first version that compresses watches.
    let options = SimulatorOptions { tls: true, users, minor: 37, ..SimulatorOptions::default() };
    let simulator = Simulator::start(options).await.expect("a simulator");
    let ca = simulator.ca_pem().expect("the simulator has TLS").to_owned();
    child::serve_until_stdin_closes(&Endpoint { url: simulator.url(), ca }).await;
}

async fn compare(args: &Compare) {
    let mut results = Results::default();
    report::describe(args, &mut results);
    let reads = reads::reads();
    let mut testbed = Testbed::start(args, &reads).await;
    read(args, &testbed, &reads, &mut results).await;
    if args.wants(forwarded::ROW) {
        let times = if args.quick { 1_000 } else { 10_000 };
        let upstream = (!args.alone).then_some(&testbed.upstream);
        forwarded::compare(upstream, &testbed.weir, times, &mut results).await;
        report::row(args, forwarded::ROW, &results);
    }
    watch(args, &mut testbed, &mut results).await;
    consistent(args, &mut testbed, &mut results).await;
    sync(args, &mut testbed, &mut results).await;
    report::finish(args, &mut results);
}

async fn read(args: &Compare, testbed: &Testbed, reads: &[Read], results: &mut Results) {
    let (round, rounds) = if args.quick { (400, 2) } else { (2_000, 5) };
    let pace = Pace { round: Duration::from_millis(round), rounds };
    for read in reads.iter().filter(|read| args.wants(read.name)) {
        let servers = if args.alone { vec![&testbed.weir] } else { testbed.readable() };
        reads::compare(read, &servers, pace, results).await;
        report::row(args, read.name, results);
    }
}

async fn watch(args: &Compare, testbed: &mut Testbed, results: &mut Results) {
    let (changing, quiet) = if args.quick { (1_500, 300) } else { (12_000, 2_000) };
    let (changing, quiet) = (Duration::from_millis(changing), Duration::from_millis(quiet));
    let options = MeasureOptions { background: background_runtime(), changing, quiet };
    let rows = watches::rows(args.quick);
    for row in rows.iter().filter(|row| args.wants(row.name)) {
        testbed.restart().await;
        let servers = [&testbed.upstream, &testbed.weir, &testbed.floor];
        let measured = servers.into_iter().skip(usize::from(!row.upstream));
        for server in measured.filter(|server| !args.alone || server.name == WEIR) {
            watch_cost::measure(row, &testbed.upstream, server, &options, results).await;
        }
        report::row(args, row.name, results);
    }
    if let Some(like) = rows.first().filter(|_| args.wants(lag::ROW)) {
        testbed.restart().await;
        let servers = [&testbed.weir, &testbed.floor];
        lag::compare(like, &testbed.upstream, &servers, &options, results).await;
        report::row(args, lag::ROW, results);
    }
}

async fn consistent(args: &Compare, testbed: &mut Testbed, results: &mut Results) {
    let time = Duration::from_secs(if args.quick { 3 } else { 20 });
    for row in consistent::ROWS.iter().filter(|row| args.wants(row.name)) {
        consistent::compare(row, testbed, time, results).await;
        report::row(args, row.name, results);
    }
    if consistent::ROWS.iter().any(|row| args.wants(row.name)) {
        testbed.restart().await;
    }
}

async fn sync(args: &Compare, testbed: &mut Testbed, results: &mut Results) {
    let times = if args.quick { 1 } else { 5 };
    let filled = args.fill || args.upstream.is_none();
    let (few, many): (Vec<_>, Vec<_>) = sync::ROWS
        .iter()
        .filter(|row| args.wants(row.name))
        .partition(|row| row.pods == pods::PODS);
    for row in few {
        sync::compare(row, testbed, times, results).await;
        report::row(args, row.name, results);
    }
    if many.is_empty() || args.quick || !filled {
        return;
    }
    pods::fill_more(&testbed.upstream).await;
    for row in many {
        sync::compare(row, testbed, times, results).await;
        report::row(args, row.name, results);
    }
}

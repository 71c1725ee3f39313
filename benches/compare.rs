//! Weir beside a Kubernetes API server and beside the floor, all loaded in the same way in one run: CPU, rates, latencies and memory.
//! `cargo bench --bench compare`, with `-- --help` for what can be given.
//!
//! Without arguments the simulator is the upstream, which is good for a look only: it is no kube-apiserver. With `--upstream` and a throwaway
//! control plane it is the comparison that benches/README.md shows. The floor is hyper and rustls serving the very bytes that the upstream
//! answered, from memory, so that nothing need be installed; an nginx that serves them may be given beside it.
//!
//! All over TLS and HTTP/2, authenticated by token; each server is a process of its own, and by turns each row is asked of all of them, so
//! that what else the machine does falls on all alike. The client shares the machine: CPU time holds better than rates do.

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
#[path = "support/cpu.rs"]
mod cpu;
#[path = "compare/events.rs"]
mod events;
#[path = "compare/fan_out.rs"]
mod fan_out;
#[path = "compare/fanned.rs"]
mod fanned;
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
#[path = "compare/stage.rs"]
mod stage;
#[path = "compare/sync.rs"]
mod sync;
#[path = "compare/table.rs"]
mod table;
#[path = "compare/targets.rs"]
mod targets;
#[path = "compare/usage.rs"]
mod usage;
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

use crate::args::{Cli, Compare, Role};
use crate::child::Place;
use crate::fanned::Manner;
use crate::reads::{Pace, Read};
use crate::results::Results;
use crate::server::WEIR;
use crate::stage::Stage;

/// How much less the crowd's priority is: it gets a third of what others get, and so lives on a busy machine too.
const NICE: i32 = 5;

fn main() {
    let cli = Cli::parse();
    // A thousand connections, and their other ends.
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).expect("a limit");
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        match cli.role {
            Some(Role::Floor { directory }) => floor::serve(&directory).await,
            Some(Role::Simulator { token }) => simulate(&token).await,
            None => Box::pin(compare(&cli.compare)).await,
        }
    });
}

/// A runtime whose threads give way to others, until the end.
fn crowd() -> Handle {
    let priority = getpriority_process(None).expect("it is known") + NICE;
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .on_thread_start(move || setpriority_process(None, priority).expect("less is allowed"))
        .build()
        .expect("a runtime");
    let handle = runtime.handle().clone();
    std::thread::spawn(move || runtime.block_on(pending::<()>()));
    handle
}

async fn simulate(token: &str) {
    let users = vec![User::admin(token, "admin")];
    let options = SimulatorOptions { tls: true, users, ..SimulatorOptions::default() };
    let simulator = Simulator::start(options).await.expect("a simulator");
    let ca = simulator.ca_pem().expect("it has TLS").to_owned();
    child::serve_until_told(&Place { url: simulator.url(), ca }).await;
}

async fn compare(args: &Compare) {
    let mut results = Results::default();
    report::describe(args, &mut results);
    let reads = reads::reads();
    let mut stage = Stage::set(args, &reads).await;
    read(args, &stage, &reads, &mut results).await;
    if args.wants(forwarded::ROW) {
        let times = if args.quick { 1_000 } else { 10_000 };
        let upstream = (!args.alone).then_some(&stage.upstream);
        forwarded::compare(upstream, &stage.weir, times, &mut results).await;
        report::row(args, forwarded::ROW, &results);
    }
    watch(args, &mut stage, &mut results).await;
    sync(args, &mut stage, &mut results).await;
    report::all(args, &mut results);
}

async fn read(args: &Compare, stage: &Stage, reads: &[Read], results: &mut Results) {
    let (turn, turns) = if args.quick { (400, 2) } else { (2_000, 5) };
    let pace = Pace { turn: Duration::from_millis(turn), turns };
    for read in reads.iter().filter(|read| args.wants(read.name)) {
        let servers = if args.alone { vec![&stage.weir] } else { stage.readable() };
        reads::compare(read, &servers, pace, results).await;
        report::row(args, read.name, results);
    }
}

async fn watch(args: &Compare, stage: &mut Stage, results: &mut Results) {
    let (changing, quiet) = if args.quick { (1_500, 300) } else { (12_000, 2_000) };
    let (changing, quiet) = (Duration::from_millis(changing), Duration::from_millis(quiet));
    let manner = Manner { crowd: crowd(), changing, quiet };
    let rows = watches::rows(args.quick);
    for row in rows.iter().filter(|row| args.wants(row.name)) {
        stage.fresh().await;
        let servers = [&stage.upstream, &stage.weir, &stage.floor];
        let measured = servers.into_iter().skip(usize::from(!row.upstream));
        for server in measured.filter(|server| !args.alone || server.name == WEIR) {
            fanned::measure(row, &stage.upstream, server, &manner, results).await;
        }
        report::row(args, row.name, results);
    }
    if let Some(like) = rows.first().filter(|_| args.wants(lag::ROW)) {
        stage.fresh().await;
        let servers = [&stage.weir, &stage.floor];
        lag::compare(like, &stage.upstream, &servers, &manner, results).await;
        report::row(args, lag::ROW, results);
    }
}

async fn sync(args: &Compare, stage: &mut Stage, results: &mut Results) {
    let times = if args.quick { 1 } else { 5 };
    let filled = args.fill || args.upstream.is_none();
    let (few, many): (Vec<_>, Vec<_>) = sync::ROWS
        .iter()
        .filter(|row| args.wants(row.name))
        .partition(|row| row.pods == pods::PODS);
    for row in few {
        sync::compare(row, stage, times, results).await;
        report::row(args, row.name, results);
    }
    if many.is_empty() || args.quick || !filled {
        return;
    }
    pods::fill_more(&stage.upstream).await;
    for row in many {
        sync::compare(row, stage, times, results).await;
        report::row(args, row.name, results);
    }
}

//! A rolling upgrade of two Weirs before thousands of watchers, readers and a writer. Run
//! `cargo bench --bench upgrade -- --help`.
//!
//! The Weirs are processes of their own, gateways with the time-outs of deploy/. Clients reach them
//! through a balancer in this process, which does what a Service does: it gives each connection to
//! a Weir whose `/readyz` passes, learns of a change some seconds late, and does not try another
//! Weir if one refuses. The API server is a simulator in this process, or a real one.
//!
//! As a Deployment with `maxSurge: 1` and `maxUnavailable: 0` does, the bench starts a new Weir,
//! waits until it is ready and for `minReadySeconds`, sends SIGTERM to an old one, and goes on with
//! the next.
//!
//! Each watcher has a connection of its own over TLS and HTTP/2, or shares one with others, and
//! goes on as client-go's reflector does: see `upgrade/watcher.rs`. The objects that change carry a
//! number, so that each watcher notices a lost or repeated event. The bench fails if the upgrade
//! exceeds [`report::exceeded`].

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a bench prints, and stops where something fails"
)]

#[path = "upgrade/api_server.rs"]
mod api_server;
#[path = "upgrade/args.rs"]
mod args;
#[path = "upgrade/balancer.rs"]
mod balancer;
#[path = "upgrade/client.rs"]
mod client;
#[path = "support/cpu.rs"]
mod cpu;
#[path = "upgrade/h2_errors.rs"]
mod h2_errors;
#[path = "../tests/support/h2_tls.rs"]
mod h2_tls;
#[path = "upgrade/objects.rs"]
mod objects;
#[path = "upgrade/replicas.rs"]
mod replicas;
#[path = "upgrade/report.rs"]
mod report;
#[path = "upgrade/requester.rs"]
mod requester;
#[path = "support/scrape.rs"]
mod scrape;
#[path = "upgrade/seen.rs"]
mod seen;
#[path = "upgrade/tracked_body.rs"]
mod tracked_body;
#[path = "upgrade/watcher.rs"]
mod watcher;
#[expect(dead_code, reason = "other benches use more of it")]
#[path = "support/weir_process.rs"]
mod weir_process;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser as _;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::api_server::ApiServer;
use crate::args::Args;
use crate::client::Client;
use crate::objects::RESOURCES;
use crate::replicas::Replicas;
use crate::requester::{Kind, Requester};
use crate::seen::Seen;
use crate::watcher::Watcher;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let args = Args::parse();
    let api_server = ApiServer::start(&args).await;
    let tokens = api_server.fill(args.users, args.objects).await;
    let seen = Arc::new(Seen::new(args.watchers));
    let mut replicas = Replicas::start(&args, &api_server).await;

    let mut clients = JoinSet::new();
    let opening = Arc::new(Semaphore::new(OPENING_MAX));
    let client = |number: usize| {
        let token = tokens.get(number % tokens.len()).expect("a token");
        Client::new(replicas.endpoint(), token)
    };
    let mut shared = client(0);
    for number in 0..args.watchers {
        if number % args.per_connection == 0 {
            shared = client(number / args.per_connection);
        }
        let watcher = Watcher::new(number, shared.share(), Arc::clone(&seen));
        let opening = Arc::clone(&opening);
        clients.spawn(async move {
            let permit = opening.acquire().await.expect("it stays open");
            watcher.run(permit).await;
        });
    }
    assert!(seen.all_open(args.longest_opening()).await, "not all watches are open");
    let mut requesters = JoinSet::new();
    let kinds = (0..args.readers).map(|number| match number % 2 {
        0 => Kind::CachedRead,
        _ => Kind::ForwardedRead,
    });
    for (number, kind) in kinds.chain([Kind::Write]).enumerate() {
        requesters.spawn(Requester::new(kind, client(number), args.interval(), &seen).run());
    }
    sleep(BEFORE).await;

    seen.start();
    let before = api_server.counts().await;
    replicas.replace_all().await;
    sleep(CALM).await;
    seen.stop_requests();
    requesters.join_all().await;
    let complete = seen.all_complete(args.longest_completion()).await;
    let after = api_server.counts().await;
    let costs = RESOURCES.map(|resource| after.since(&before, resource.plural));
    report::print(&args, &seen, &replicas, &costs).await;
    if args.requests {
        api_server.print_requests();
    }
    let mut exceeded = report::exceeded(&seen, &replicas, &costs);
    if !complete {
        exceeded.push("not all watchers have all events".to_owned());
    }
    exceeded.iter().for_each(|text| println!("EXCEEDED {text}"));
    clients.shutdown().await;
    if exceeded.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Watchers that list and connect at the same time before the upgrade begins.
const OPENING_MAX: usize = 50;
/// The time of the load alone, before the upgrade. An old Weir is older than a minute, so that the
/// watches of its caches have brought bookmarks.
const BEFORE: Duration = Duration::from_secs(70);
/// The time of the load alone, after the upgrade.
const CALM: Duration = Duration::from_secs(5);

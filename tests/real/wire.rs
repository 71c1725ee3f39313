//! A byte-level differential: the same raw requests to the API server, a gateway and a sidecar,
//! over HTTP/1.1 and HTTP/2.
//!
//! Compared are the status, the meaning of the body, the headers, whether the connection stays
//! usable, and what is left in the namespace, of which each server has one with the same objects.
//! A seed decides everything; `WIRE_CASE` of a difference sends that case alone.

mod allowed;
mod case;
mod compare;
mod fields;
mod generate;
mod http1;
mod http2;
mod meaning;
mod outcome;
mod peer;
mod run;
mod shrink;
mod sockets;
mod world;

use tokio::runtime::Runtime;

use self::case::Case;
use self::compare::differences;
use self::run::{WAIT, observe, run};
use self::world::World;

/// A few hundred requests.
pub(crate) fn requests() {
    run_seeds(500, generate::case);
}

/// A hundred thousand requests, or `WIRE_CASES`, with `WIRE_SEED`.
pub(crate) fn many_requests() {
    run_seeds(number("WIRE_CASES").unwrap_or(100_000), generate::case);
}

/// Some watches over WebSockets.
pub(crate) fn sockets() {
    run_seeds(200, sockets::case);
}

/// Ten thousand watches over WebSockets, or `WIRE_CASES`, with `WIRE_SEED`.
pub(crate) fn many_sockets() {
    run_seeds(number("WIRE_CASES").unwrap_or(10_000), sockets::case);
}

fn run_seeds(count: u64, generate: fn(u64) -> Case) {
    let seed = number("WIRE_SEED").unwrap_or(1);
    eprintln!("WIRE_SEED={seed} WIRE_CASES={count}");
    let first = seed << 32;
    Runtime::new().unwrap().block_on(Box::pin(async {
        let mut world = Box::pin(World::start()).await;
        match number("WIRE_CASE") {
            Some(seed) => show(&mut world, &generate(seed)).await,
            None => run(&mut world, first..first + count, generate).await.finish(),
        }
    }));
}

/// Prints what all servers do with one case.
async fn show(world: &mut World, case: &Case) {
    eprintln!("{case}");
    let seen = observe(world, case, WAIT).await;
    for (peer, one) in world.peers.iter().zip(&seen) {
        eprintln!("  {}: {}", peer.name, one.summary());
        for difference in differences(&seen[0], one) {
            eprintln!("    {}", difference.kind);
        }
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

//! The deterministic simulation: see README.md.

mod caller;
mod checker;
mod clients;
mod crowd;
mod determinism;
mod guests;
mod network;
mod pipe;
mod plan;
mod resources;
mod runs;
mod shrink;
mod trace;
mod world;
mod write_log;

use clap::Parser;

fn main() -> std::process::ExitCode {
    match runs::Arguments::parse().run() {
        true => std::process::ExitCode::SUCCESS,
        false => std::process::ExitCode::FAILURE,
    }
}

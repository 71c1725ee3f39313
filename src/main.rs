//! The `weir` command: allocator, arguments, exit codes; nothing is wired here.
//!
//! The allocator is mimalloc, chosen by measurement (ARCHITECTURE.md, where it differs from the design).

use std::process::ExitCode;

use clap::Parser;
use weir::cli::Cli;
use weir::cli::failure::Failure;
use weir::cli::screen::complain;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Causes are chained on one line: that is what a log collector and a person at a terminal can both read.
            complain(&format!("weir: {failure}"));
            failure.exit_code()
        }
    }
}

fn run(cli: Cli) -> Result<(), Failure> {
    // One process, one cryptography library; a dependency that brought a second would otherwise panic at the first handshake.
    if rustls::crypto::aws_lc_rs::default_provider().install_default().is_err() {
        return Err(Failure::runtime(anyhow::anyhow!(
            "a cryptography provider is already installed"
        )));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("weir")
        .build()
        .map_err(|error| Failure::runtime(anyhow::Error::new(error).context("cannot start")))?;
    let result = runtime.block_on(cli.run());
    // What still blocks a thread (a name lookup, a plugin) must not hold up the end.
    runtime.shutdown_background();
    result
}

//! The `weir` command: allocator, arguments, exit codes. [`weir::app`] builds everything else.
//!
//! The allocator is mimalloc, chosen by measurement (docs/decisions/build-and-runtime.md). One
//! work-stealing runtime serves all connections (docs/decisions/build-and-runtime.md).

use std::process::ExitCode;

use weir::cli::Cli;
use weir::cli::failure::Failure;
use weir::cli::screen::print_error;
use weir::server::InheritedSockets;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match run(Cli::from_process()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // One line with all causes suits both a log collector and a person at a terminal.
            print_error(&format!("weir: {failure}"));
            failure.exit_code()
        }
    }
}

fn run(cli: Cli) -> Result<(), Failure> {
    // The process has one cryptography library. If a dependency brought a second one, the first
    // handshake would panic.
    if rustls::crypto::aws_lc_rs::default_provider().install_default().is_err() {
        return Err(Failure::runtime(anyhow::anyhow!(
            "a cryptography provider is already installed"
        )));
    }
    let sockets = InheritedSockets::from_environment().map_err(Failure::runtime)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("weir")
        .event_interval(EVENT_INTERVAL)
        .build()
        .map_err(|error| Failure::runtime(anyhow::Error::new(error).context("cannot start")))?;
    let result = runtime.block_on(cli.run(sockets));
    // A thread that is still blocked (a name lookup, a plugin) must not delay the end.
    runtime.shutdown_background();
    result
}

/// The tasks that a busy thread polls before it looks for sockets that are ready. tokio's default
/// is 61: while many lists are written, a GET's bytes would wait for 61 of their pieces.
const EVENT_INTERVAL: u32 = 8;

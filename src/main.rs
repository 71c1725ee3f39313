//! The `weir` command: allocator, arguments, exit codes. [`weir::app`] builds everything else.
//!
//! The allocator is mimalloc, chosen by measurement (docs/decisions/build-and-runtime.md).

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
    cli.run(sockets)
}

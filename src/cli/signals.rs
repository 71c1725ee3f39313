//! SIGTERM and SIGINT: the first starts a graceful shutdown, the second ends the process at once.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::cli::failure::Failure;

/// The signals of the process, received from construction on.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Replaces the default action, which kills the process.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => tracing::info!("SIGTERM"),
            _ = self.interrupt.recv() => tracing::info!("SIGINT"),
        }
    }

    /// Runs `task` until it ends. Cancels `stop` at the first signal, and drops the task at the
    /// second.
    pub async fn govern(
        &mut self,
        stop: CancellationToken,
        running: impl Future<Output = ()>,
    ) -> Result<(), Failure> {
        tokio::pin!(running);
        tokio::select! {
            () = running.as_mut() => return Ok(()),
            () = self.next() => stop.cancel(),
        }
        tokio::select! {
            () = running => Ok(()),
            () = self.next() => Err(Failure::interrupted()),
        }
    }
}

//! SIGTERM and SIGINT: the first starts a graceful shutdown, the second ends the process at once.
//!
//! SIGHUP does not end `weir serve`. Operators send it to have files read again, and Weir reads
//! certificates and credentials again by itself. `weir demo` belongs to its terminal and ends with
//! it.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::cli::failure::Failure;

/// The signals of the process, received from construction on.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// `None` where SIGHUP has its default action, which ends the process.
    hangup: Option<Signal>,
}

impl Signals {
    /// Replaces the default action of SIGTERM and SIGINT, which kills the process.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: None,
        })
    }

    /// Replaces the default action of SIGHUP too, and ignores it.
    pub fn ignore_hangup(mut self) -> io::Result<Self> {
        self.hangup = Some(signal(SignalKind::hangup())?);
        Ok(self)
    }

    /// Waits for the next signal that ends the process.
    pub async fn next(&mut self) {
        let Self { terminate, interrupt, hangup } = self;
        loop {
            tokio::select! {
                _ = terminate.recv() => return tracing::info!("SIGTERM"),
                _ = interrupt.recv() => return tracing::info!("SIGINT"),
                () = received(hangup) => tracing::warn!(
                    "SIGHUP is ignored: the configuration is read at start only, and certificates and credentials \
                     are read again when they change"
                ),
            }
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

/// Waits for a signal; for ever if it is not listened to.
async fn received(signal: &mut Option<Signal>) {
    let is_received = match signal {
        Some(signal) => signal.recv().await.is_some(),
        None => false,
    };
    if !is_received {
        std::future::pending().await
    }
}

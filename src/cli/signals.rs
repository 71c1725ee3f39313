//! SIGTERM and SIGINT: the first starts a graceful shutdown, the second ends the process at once.
//!
//! SIGHUP has `weir serve` read its configuration again. `weir demo` belongs to its terminal and
//! ends with it.

use std::io;
use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::cli::failure::Failure;

/// The signals of the process, received from construction on.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// And what it notifies; `None` where SIGHUP has its default action, which ends the process.
    hangup: Option<(Signal, Arc<Notify>)>,
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

    /// Replaces the default action of SIGHUP too: it sends a notification.
    pub fn on_hangup(mut self, notify: Arc<Notify>) -> io::Result<Self> {
        self.hangup = Some((signal(SignalKind::hangup())?, notify));
        Ok(self)
    }

    /// Waits for the next signal that ends the process.
    pub async fn next(&mut self) {
        let Self { terminate, interrupt, hangup } = self;
        loop {
            tokio::select! {
                _ = terminate.recv() => return tracing::info!("SIGTERM"),
                _ = interrupt.recv() => return tracing::info!("SIGINT"),
                notify = received(hangup) => {
                    tracing::info!("SIGHUP");
                    notify.notify_one();
                }
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

/// Waits for a signal, and returns what it notifies; for ever if it is not listened to.
async fn received(signal: &mut Option<(Signal, Arc<Notify>)>) -> &Notify {
    if let Some((signal, notify)) = signal
        && signal.recv().await.is_some()
    {
        return notify;
    }
    std::future::pending().await
}

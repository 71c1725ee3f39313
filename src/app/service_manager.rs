//! Reports to the service manager that started Weir: systemd with `Type=notify`.
//!
//! Ready means that Weir accepts connections, not that `/readyz` passes: while the API server is
//! away Weir serves what it can, and must not be ended for that. Without `NOTIFY_SOCKET` in the
//! environment nothing is sent (docs/decisions/accepted-connections.md).

use std::convert::Infallible;
use std::time::Duration;

use sd_notify::NotifyState;
use tokio_util::sync::CancellationToken;

/// Reports that Weir is ready, with a `status` for people; from then on, as often as the service
/// manager asks for, that it is alive; and, when `stop` is cancelled, that it is stopping.
pub async fn report(status: &str, stop: &CancellationToken) -> Infallible {
    send(&[NotifyState::Ready, NotifyState::Status(status)]);
    // Half of the time after which the service manager counts Weir as dead, as sd_watchdog_enabled
    // advises.
    let period = sd_notify::watchdog_enabled().map(|timeout| timeout / 2);
    let period = period.filter(|period| !period.is_zero());
    let mut is_stopping = false;
    loop {
        tokio::select! {
            () = stop.cancelled(), if !is_stopping => {
                is_stopping = true;
                send(&[NotifyState::Stopping, NotifyState::Status("stopping: connections drain")]);
            }
            () = until_alive(period) => send(&[NotifyState::Watchdog]),
        }
    }
}

/// Reports that the configuration is read again, as a service manager with `Type=notify-reload`
/// requires: it waits for the message with its time, and then for [`reloaded`].
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => send(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!(%error, "the monotonic clock cannot be read"),
    }
}

/// Reports that the reload is over, whether or not the file was taken over: the log and
/// `weir_config_last_reload_successful` say which. A failed one is no reason to end Weir.
pub fn reloaded() {
    send(&[NotifyState::Ready]);
}

/// Returns after `period` and after a task has run on the runtime: if its threads are all blocked,
/// the process is as good as dead.
async fn until_alive(period: Option<Duration>) {
    match period {
        Some(period) => tokio::time::sleep(period).await,
        None => std::future::pending().await,
    }
    if let Err(error) = tokio::spawn(std::future::ready(())).await {
        tracing::debug!(%error, "a task did not run");
    }
}

/// Sends one datagram, which the service manager reads at once.
fn send(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "cannot reach the service manager ($NOTIFY_SOCKET)");
    }
}

//! Helpers for asynchronous tasks that every layer may use.

pub(crate) mod keyed_counter;
pub(crate) mod single_flight;
pub(crate) mod single_permit;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::JoinHandle;

/// Runs `work`, which would occupy its thread for too long, on a thread of its own.
#[cfg(not(feature = "simulation"))]
pub(crate) fn spawn_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    tokio::task::spawn_blocking(work)
}

/// Runs `work` in a task of this thread, after the caller has returned to the runtime: a simulation
/// is repeatable only if one thread does everything (`docs/decisions/deterministic-simulation.md`).
#[cfg(feature = "simulation")]
pub(crate) fn spawn_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    tokio::spawn(async move { work() })
}

/// Runs `work`, which would occupy its thread for too long, here and now, and lets another thread
/// run the other tasks meanwhile. Unlike with [`spawn_blocking`], nothing happens between the call
/// and the work, and it cannot outlive its caller.
pub(crate) fn run_in_place<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

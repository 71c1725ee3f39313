//! Work that would occupy its thread for too long, on a thread of its own.
//!
//! With the feature `simulation` it runs on the caller's thread: a run is repeatable only if one
//! thread does everything (`docs/decisions/deterministic-simulation.md`).

use tokio::task::JoinHandle;

/// Runs `work` on a blocking thread.
#[cfg(not(feature = "simulation"))]
pub(crate) fn spawn_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    tokio::task::spawn_blocking(work)
}

/// Runs `work` in a task of this thread, after the caller has returned to the runtime.
#[cfg(feature = "simulation")]
pub(crate) fn spawn_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    tokio::spawn(async move { work() })
}

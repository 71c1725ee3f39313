//! Single-flight: concurrent callers that want the same result share one run of the work.
//!
//! [`SingleFlight::join`] returns the [`SharedOutcome`] of the run for a key. The first caller also
//! gets the [`InFlightGuard`], starts the work as a task of its own and completes the guard with
//! the result. So a caller that is cancelled does not cancel the work for the others. A caller that
//! shares only one kind of work uses the key `()`.
//!
//! Invariants:
//!
//! * At most one run is in flight for a key.
//! * [`InFlightGuard::complete`] removes a run from the map before it wakes the callers. A later
//!   caller starts a new run, and never gets a result that was already delivered.
//! * A guard that is dropped without a result, by a panic or because its task was cancelled, wakes
//!   the callers with [`RunLost`].
//!
//! The number of runs is bounded by the caller: `join` takes a function that may refuse a new run.
//!
//! Lock order: the map, then the locks that the `admit` function of a caller takes. The map is
//! never locked across an await.

use std::collections::HashMap;
use std::convert::Infallible;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

/// The runs in flight, by key.
#[derive(Debug)]
pub(crate) struct SingleFlight<K, T> {
    runs: Runs<K, T>,
}

type Runs<K, T> = Arc<Mutex<HashMap<K, watch::Sender<Option<T>>>>>;

/// The result of a run that is in flight.
#[derive(Debug)]
pub(crate) struct SharedOutcome<T> {
    receiver: watch::Receiver<Option<T>>,
}

/// The run ended without a result: its task panicked or was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the shared work ended without a result")]
pub(crate) struct RunLost;

/// A run in flight. The task that does the work owns it.
#[derive(Debug)]
pub(crate) struct InFlightGuard<K: Hash + Eq, T> {
    runs: Runs<K, T>,
    key: K,
    sender: watch::Sender<Option<T>>,
    /// Whether callers can still join this run.
    is_joinable: bool,
}

impl<K, T> Default for SingleFlight<K, T> {
    fn default() -> Self {
        Self { runs: Arc::default() }
    }
}

impl<K: Hash + Eq + Clone, T> SingleFlight<K, T> {
    /// Joins the run for `key`. If there is none, starts one: the caller gets its guard and must do
    /// the work.
    pub(crate) fn join(&self, key: &K) -> (SharedOutcome<T>, Option<InFlightGuard<K, T>>) {
        let admitted = self.try_join(key, || Ok::<_, Infallible>(()));
        let Ok((outcome, run)) = admitted;
        (outcome, run.map(|(guard, ())| guard))
    }

    /// Joins the run for `key`. If there is none, calls `admit` for a permit and starts a run with
    /// it; the error of `admit` refuses the run. `admit` is called under the lock of the map, so
    /// that no two callers ask for a permit for the same key.
    #[expect(clippy::type_complexity, reason = "each part is used by name at once")]
    pub(crate) fn try_join<P, E>(
        &self,
        key: &K,
        admit: impl FnOnce() -> Result<P, E>,
    ) -> Result<(SharedOutcome<T>, Option<(InFlightGuard<K, T>, P)>), E> {
        let mut runs = self.runs.lock();
        if let Some(sender) = runs.get(key) {
            return Ok((SharedOutcome { receiver: sender.subscribe() }, None));
        }
        let permit = admit()?;
        let (sender, receiver) = watch::channel(None);
        runs.insert(key.clone(), sender.clone());
        drop(runs);
        let runs = Arc::clone(&self.runs);
        let guard = InFlightGuard { runs, key: key.clone(), sender, is_joinable: true };
        Ok((SharedOutcome { receiver }, Some((guard, permit))))
    }

    /// Returns the number of runs that callers can join.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.runs.lock().len()
    }

    /// Returns whether there is no run that callers can join.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.lock().is_empty()
    }
}

impl<T: Clone> SharedOutcome<T> {
    /// Waits for the result of the run. Cancel safe.
    pub(crate) async fn wait(mut self) -> Result<T, RunLost> {
        let outcome = self.receiver.wait_for(Option::is_some).await;
        outcome.ok().and_then(|outcome| outcome.clone()).ok_or(RunLost)
    }
}

impl<K: Hash + Eq, T> InFlightGuard<K, T> {
    /// Delivers the result to the callers. A later caller starts a new run.
    pub(crate) fn complete(mut self, result: T) {
        self.close();
        self.sender.send_replace(Some(result));
    }

    /// Delivers the result like [`complete`](Self::complete), but removes the run from the map only
    /// afterwards. A caller then finds either the run or its result, and gets a failure instead of
    /// starting a new run.
    pub(crate) fn complete_then_close(mut self, result: T) {
        self.sender.send_replace(Some(result));
        self.close();
    }

    /// Removes the run from the map: the next caller starts a new run while this one goes on.
    pub(crate) fn close(&mut self) {
        if self.is_joinable {
            self.is_joinable = false;
            // The sender in the map is dropped after the lock is released.
            let _sender = self.runs.lock().remove(&self.key);
        }
    }

    /// Returns whether no caller waits for the result any more. A run that is not closed may get
    /// new callers at any time.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.sender.receiver_count() == 0
    }

    /// Waits until no caller waits for the result any more, and closes the run. Cancel safe.
    pub(crate) async fn until_abandoned(&mut self) {
        loop {
            self.sender.closed().await;
            let mut runs = self.runs.lock();
            // Callers join under the lock, so none can come between this check and the removal.
            if self.sender.receiver_count() == 0 {
                if std::mem::take(&mut self.is_joinable) {
                    runs.remove(&self.key);
                }
                return;
            }
        }
    }
}

impl<K: Hash + Eq, T> Drop for InFlightGuard<K, T> {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests;

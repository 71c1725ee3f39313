//! One piece of work at a time, shared by all who want its outcome.
//!
//! Lock order: the slot, alone and never across an await.

use std::future::Future;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::cache::cached_resource::CachedResource;

type SharedOutcome<T> = watch::Receiver<Option<T>>;

/// See the module.
pub(super) struct SingleFlight<T> {
    slot: Arc<Mutex<Option<SharedOutcome<T>>>>,
}

impl<T: Send + Sync + 'static> SingleFlight<T> {
    /// Nothing under way.
    pub(super) fn new() -> Self {
        Self { slot: Arc::default() }
    }

    /// Joins the work under way, or begins it as a task that ends with the cache. The outcome is `None` until it is there; the channel closes without one
    /// if the work was given up.
    pub(super) fn join<F>(
        &self,
        cached: &CachedResource,
        begin: impl FnOnce() -> F,
    ) -> SharedOutcome<T>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let mut slot = self.slot.lock();
        if let Some(receiver) = &*slot {
            return receiver.clone();
        }
        let (outcome, receiver) = watch::channel(None);
        *slot = Some(receiver.clone());
        let guard = InFlightGuard(Arc::clone(&self.slot));
        let (work, cancel) = (begin(), cached.cancel.clone());
        cached.context.tasks.spawn(async move {
            let done = cancel.run_until_cancelled(work).await;
            // Whoever comes from now on begins anew, and nothing is kept here of what this one brought.
            drop(guard);
            if done.is_some() {
                outcome.send_replace(done);
            }
        });
        receiver
    }
}

/// Empties the slot when the work is over, even by a panic.
struct InFlightGuard<T>(Arc<Mutex<Option<SharedOutcome<T>>>>);

impl<T> Drop for InFlightGuard<T> {
    fn drop(&mut self) {
        let receiver = self.0.lock().take();
        drop(receiver);
    }
}

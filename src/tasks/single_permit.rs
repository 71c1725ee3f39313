//! A semaphore with one permit: one caller at a time does what takes an await, such as a request to
//! the upstream.
//!
//! It is no lock. It guards no data, so that others read and change what is known meanwhile, each
//! for a few instructions under a lock of its own.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The permit of those who do the same thing. The first to ask is the first to get it.
#[derive(Debug)]
pub(crate) struct SinglePermit(Arc<Semaphore>);

/// The permit, in the hands of one caller. Dropping it lets the next one have it.
#[derive(Debug)]
pub(crate) struct Permit {
    _permit: OwnedSemaphorePermit,
}

impl Default for SinglePermit {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

impl SinglePermit {
    /// Waits for the permit. Cancel safe.
    pub(crate) async fn acquire(&self) -> Permit {
        match Arc::clone(&self.0).acquire_owned().await {
            Ok(permit) => Permit { _permit: permit },
            // The semaphore is never closed.
            Err(_) => std::future::pending().await,
        }
    }

    /// Returns the permit if nobody has it or waits for it.
    pub(crate) fn try_acquire(&self) -> Option<Permit> {
        let permit = Arc::clone(&self.0).try_acquire_owned().ok()?;
        Some(Permit { _permit: permit })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn callers_get_the_permit_one_at_a_time_in_the_order_of_their_calls() {
        let single = SinglePermit::default();
        let permit = single.try_acquire().unwrap();
        assert!(single.try_acquire().is_none());
        let (mut first, mut second) = (Box::pin(single.acquire()), Box::pin(single.acquire()));
        assert!((&mut first).now_or_never().is_none() && (&mut second).now_or_never().is_none());
        drop(permit);
        assert!((&mut second).now_or_never().is_none());
        let permit = (&mut first).now_or_never().unwrap();
        // One that is cancelled costs the others nothing.
        drop(second);
        assert!(single.try_acquire().is_none());
        drop(permit);
        assert!(single.try_acquire().is_some());
    }
}

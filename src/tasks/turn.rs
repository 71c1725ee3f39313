//! Turns: one caller at a time does what takes an await, such as a request to the upstream.
//!
//! A turn is no lock. It guards no data, so that others read and change what is known meanwhile,
//! each for a few instructions under a lock of its own.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The turns of those who do the same thing. The first to ask is the first to get one.
#[derive(Debug)]
pub(crate) struct Turns(Arc<Semaphore>);

/// The turn of one caller. Dropping it gives the next one its turn.
#[derive(Debug)]
pub(crate) struct Turn {
    _permit: OwnedSemaphorePermit,
}

impl Default for Turns {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

impl Turns {
    /// Waits for a turn. Cancel safe.
    pub(crate) async fn wait(&self) -> Turn {
        match Arc::clone(&self.0).acquire_owned().await {
            Ok(permit) => Turn { _permit: permit },
            // The semaphore is never closed.
            Err(_) => std::future::pending().await,
        }
    }

    /// Returns a turn if nobody has one or waits for one.
    pub(crate) fn try_take(&self) -> Option<Turn> {
        let permit = Arc::clone(&self.0).try_acquire_owned().ok()?;
        Some(Turn { _permit: permit })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn one_caller_at_a_time_has_a_turn_in_the_order_of_their_calls() {
        let turns = Turns::default();
        let turn = turns.try_take().unwrap();
        assert!(turns.try_take().is_none());
        let (mut first, mut second) = (Box::pin(turns.wait()), Box::pin(turns.wait()));
        assert!((&mut first).now_or_never().is_none() && (&mut second).now_or_never().is_none());
        drop(turn);
        assert!((&mut second).now_or_never().is_none());
        let turn = (&mut first).now_or_never().unwrap();
        // One that is cancelled costs the others nothing.
        drop(second);
        assert!(turns.try_take().is_none());
        drop(turn);
        assert!(turns.try_take().is_some());
    }
}

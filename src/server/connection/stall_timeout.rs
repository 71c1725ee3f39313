//! Time-out for a peer that stalls.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Sleep;

/// Time-out for a stalled peer. The timer runs only while the operation is `Pending`; progress
/// resets it.
#[derive(Debug)]
pub(crate) struct StallTimeout {
    timeout: Duration,
    /// `None` while the operation makes progress.
    sleep: Option<Pin<Box<Sleep>>>,
}

/// The client stalled for longer than the time-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the client neither read nor sent any data within the stall time-out")]
pub(crate) struct Stalled;

impl StallTimeout {
    /// Creates a time-out for an operation that may be `Pending` for at most `timeout`.
    pub(crate) fn new(timeout: Duration) -> Self {
        Self { timeout, sleep: None }
    }

    /// Returns `polled`, or an error once the operation has been `Pending` for too long. The task
    /// is woken at that moment.
    pub(crate) fn check_timeout<T>(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<T>,
    ) -> Result<Poll<T>, Stalled> {
        if polled.is_ready() {
            self.sleep = None;
            return Ok(polled);
        }
        let timeout = self.timeout;
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        match sleep.as_mut().poll(context) {
            Poll::Ready(()) => Err(Stalled),
            Poll::Pending => Ok(Poll::Pending),
        }
    }
}

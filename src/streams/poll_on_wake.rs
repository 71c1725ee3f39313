//! Polls the inner future only after its own waker fired, not on every poll of the enclosing task.
//!
//! A task that handles an event every few milliseconds may also wait for rare events: its
//! cancellation, a deadline. In a `select!` these would be polled with every event, each at the
//! cost of one or two locks and some cache misses.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

/// A future that is polled only after its own waker fired. After it completed, it stays pending.
#[derive(Debug)]
pub(crate) struct PollOnWake<F>(FuturesUnordered<F>);

impl<F: Future> PollOnWake<F> {
    pub(crate) fn new(future: F) -> Self {
        Self([future].into_iter().collect())
    }
}

impl<F: Future> Future for PollOnWake<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        match self.0.poll_next_unpin(context) {
            Poll::Ready(Some(output)) => Poll::Ready(output),
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::poll_fn;

    use futures_util::{FutureExt, poll};
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_future_is_polled_only_after_its_own_wake_up() {
        let (polls, (sender, mut receiver)) = (Cell::new(0), oneshot::channel());
        let mut future = PollOnWake::new(poll_fn(|context| {
            polls.set(polls.get() + 1);
            receiver.poll_unpin(context)
        }));
        for _ in 0..5 {
            assert!(poll!(&mut future).is_pending());
        }
        assert_eq!(polls.get(), 1);
        sender.send(7).unwrap();
        assert_eq!(poll!(&mut future), Poll::Ready(Ok(7)));
        assert_eq!(polls.get(), 2);
        assert!(poll!(&mut future).is_pending(), "a completed future stays pending");
    }
}

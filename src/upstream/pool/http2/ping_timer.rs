//! hyper's timer for the pings of one connection.
//!
//! hyper pings a connection that was quiet for a fixed interval. Here, the interval is the shortest
//! one, and the timer ends it later where no ping is due yet ([`Liveness::ping_due`]): a connection
//! that owes nothing is pinged rarely.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::{Sleep, Timer};
use tokio::time::Instant;

use super::liveness::Liveness;

/// The timer of one connection.
pub(super) struct PingTimer(pub(super) Arc<Liveness>);

/// Ends at `deadline`, or later, when a ping is due.
struct PingSleep {
    liveness: Arc<Liveness>,
    deadline: Instant,
    sleep: Pin<Box<tokio::time::Sleep>>,
}

impl Timer for PingTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(self.now() + duration)
    }

    fn sleep_until(&self, deadline: std::time::Instant) -> Pin<Box<dyn Sleep>> {
        let deadline = Instant::from_std(deadline);
        let sleep = Box::pin(tokio::time::sleep_until(deadline));
        Box::pin(PingSleep { liveness: Arc::clone(&self.0), deadline, sleep })
    }

    fn now(&self) -> std::time::Instant {
        Instant::now().into_std()
    }
}

impl Sleep for PingSleep {}

impl Future for PingSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        loop {
            let due = this.liveness.ping_due().max(this.deadline);
            if due < this.sleep.deadline() {
                this.sleep.as_mut().reset(due);
            }
            ready!(this.sleep.as_mut().poll(context));
            if Instant::now() >= due {
                this.liveness.pinged();
                return Poll::Ready(());
            }
            this.sleep.as_mut().reset(due);
        }
    }
}

//! The streams of an HTTP/2 connection, run by the connection's own task.
//!
//! hyper passes every request of an HTTP/2 connection to an executor, as a future that lives until
//! the response is sent. For a connection to the upstream, it passes the connection itself as well.
//! If these futures were tasks, an event for the fifty watches of one connection would schedule
//! fifty tasks on all threads. They would contend for the one lock of their connection, and the
//! first of them would wake the connection, which would write that one frame before the others are
//! ready. A forwarded request would go through four tasks, on any thread. Here, an event marks the
//! streams as ready and schedules only the connection's task. That task polls the streams first and
//! then the connection, which finds all their frames (`docs/decisions/event-delivery.md`).
//!
//! As a consequence, the work that the requests of one connection do inside their polls runs on one
//! thread at a time. This work is small: long work (lists of thousands of objects, deflating) runs
//! on other threads, and the one socket was written by one thread before, too. One poll of the task
//! is called a *turn*. A turn is bounded ([`TURN_MAX`], [`ROUNDS_MAX`]), and different connections
//! run in parallel.
//!
//! Streams and connection wake each other while they are polled. Such a notification is handled in
//! the same turn and wakes no task ([`deferred_waker`]). Everything else that a connection waits
//! for, such as a time-out or the shutdown of Weir, runs as an auxiliary future
//! ([`ConnectionTasks::spawn_aux`]), so that it is polled only after its own wake-up and not with
//! every event.
//!
//! A stream that panics ends alone, as a task would; hyper then resets it.
//!
//! Lock: that of the [`SpawnQueue`], held while a future is added or some are removed.

mod deferred_waker;

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::CatchUnwind;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use hyper::rt::Executor;
use parking_lot::Mutex;

use self::deferred_waker::{DeferredWaker, WakerState};

type Stream = Pin<Box<dyn Future<Output = ()> + Send>>;

/// hyper's executor for the streams of a connection. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Spawner(Arc<WakerState<Mutex<SpawnQueue>>>);

/// Futures that hyper spawned and that were not polled yet.
struct SpawnQueue {
    streams: Vec<Stream>,
    queued_max: usize,
    /// Set when the [`ConnectionTasks`] are dropped: later futures are dropped at once.
    closed: bool,
}

crate::api::opaque!(SpawnQueue);

/// Wakes no task. Only hyper's handshake, connection and streams call it, either before
/// [`ConnectionTasks::run`] or while that polls them; it takes the queue's futures afterwards.
impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Spawner {
    fn execute(&self, stream: F) {
        let stream = Box::pin(stream);
        let mut queue = self.0.data.lock();
        if !queue.closed && queue.streams.len() < queue.queued_max {
            queue.streams.push(stream);
        }
    }
}

/// The running streams of a connection, and its auxiliary futures, whose output is a `T`. Dropping
/// it drops them.
pub(crate) struct ConnectionTasks<T> {
    /// The number of streams.
    open: usize,
    /// Whether to poll everything without a notification: after streams were added, and after a
    /// turn that did not finish.
    poll_all: bool,
    set_waker: DeferredWaker,
    /// Its data is the queue that hyper fills while the connection is polled.
    connection_waker: DeferredWaker<Mutex<SpawnQueue>>,
    set: FuturesUnordered<Running<T>>,
}

/// A stream whose panic is caught.
type UnwindSafeStream = CatchUnwind<AssertUnwindSafe<Stream>>;

enum Running<T> {
    Stream(UnwindSafeStream),
    Aux(Pin<Box<dyn Future<Output = T> + Send>>),
}

/// Why [`ConnectionTasks::run`] stopped.
pub(crate) enum Stopped<C, T> {
    /// The connection has ended.
    Ended(C),
    /// An auxiliary future completed with this output.
    Event(T),
}

impl<T> std::fmt::Debug for ConnectionTasks<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnectionTasks").field("open", &self.open).finish_non_exhaustive()
    }
}

impl<T> Future for Running<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        match self.get_mut() {
            Self::Stream(stream) => stream.poll_unpin(context).map(|_| None),
            Self::Aux(future) => future.as_mut().poll(context).map(Some),
        }
    }
}

/// The work that is left for the current turn.
struct Budget {
    starts: usize,
    ends: usize,
    rounds: usize,
}

impl Budget {
    fn is_spent(&self) -> bool {
        self.starts == 0 || self.ends == 0 || self.rounds == 0
    }
}

impl<T> ConnectionTasks<T> {
    /// Creates the tasks of a new connection. The spawn queue holds at most `queued_max` futures;
    /// more are dropped.
    pub(crate) fn new(queued_max: usize) -> Self {
        let queue = SpawnQueue { streams: Vec::new(), queued_max, closed: false };
        Self {
            open: 0,
            poll_all: false,
            set_waker: DeferredWaker::new(()),
            connection_waker: DeferredWaker::new(Mutex::new(queue)),
            set: FuturesUnordered::new(),
        }
    }

    /// Returns the executor to pass to hyper.
    pub(crate) fn spawner(&self) -> Spawner {
        Spawner(self.connection_waker.state())
    }

    /// Spawns an auxiliary future. Its output stops [`Self::run`].
    pub(crate) fn spawn_aux(&mut self, future: impl Future<Output = T> + Send + 'static) {
        self.set.push(Running::Aux(Box::pin(future)));
        self.poll_all = true;
    }

    /// Runs a connection and its streams until the connection ends or an auxiliary future
    /// completes. Cancel safe.
    pub(crate) async fn run<C: Future + Unpin>(
        &mut self,
        connection: &mut C,
    ) -> Stopped<C::Output, T> {
        poll_fn(|context| self.poll(connection, |_open| {}, context)).await
    }

    /// Runs the remaining streams after the connection stopped accepting new ones, until they and
    /// the auxiliary futures have completed.
    pub(crate) async fn finish(&mut self) {
        while {
            self.admit(usize::MAX);
            self.set.next().await.is_some()
        } {}
    }

    /// Runs one turn of [`Self::run`]. Calls `report_open` with the number of streams each time
    /// before the connection is polled.
    pub(crate) fn poll<C: Future + Unpin>(
        &mut self,
        connection: &mut C,
        mut report_open: impl FnMut(usize),
        context: &Context<'_>,
    ) -> Poll<Stopped<C::Output, T>> {
        self.set_waker.register(context.waker());
        self.connection_waker.register(context.waker());
        // The connection is polled in any case, after streams that may notify it.
        self.connection_waker.take_notified();
        let mut budget = Budget { starts: TURN_MAX, ends: TURN_MAX, rounds: ROUNDS_MAX };
        loop {
            if let Some(event) = self.poll_streams(&mut budget) {
                return Poll::Ready(Stopped::Event(event));
            }
            report_open(self.open);
            // Clear the flag here, so that a frame which a stream passes on now is written in this
            // turn.
            self.connection_waker.take_notified();
            let waker = self.connection_waker.waker();
            let polled = Pin::new(&mut *connection).poll(&mut Context::from_waker(&waker));
            if let Poll::Ready(ended) = polled {
                return Poll::Ready(Stopped::Ended(ended));
            }
            if budget.is_spent() {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            let admitted = self.admit(budget.starts);
            budget.starts -= admitted;
            if admitted == 0 && self.try_idle() {
                return Poll::Pending;
            }
        }
    }

    /// Ends a turn unless a notification arrived meanwhile. A waker that is idle while the turn
    /// goes on would wake the task.
    fn try_idle(&self) -> bool {
        !self.set_waker.is_notified()
            && self.connection_waker.try_idle()
            && self.set_waker.try_idle()
    }

    /// Moves at most `spawned_max` futures from the queue to the streams. Returns how many were
    /// moved.
    fn admit(&mut self, spawned_max: usize) -> usize {
        let streams = &mut self.connection_waker.data().lock().streams;
        let count = streams.len().min(spawned_max);
        let admitted = streams.drain(..count);
        self.set.extend(
            admitted.map(|stream| Running::Stream(AssertUnwindSafe(stream).catch_unwind())),
        );
        self.open += count;
        self.poll_all |= count > 0;
        count
    }

    /// Polls the streams that are ready, and those that become ready meanwhile, within the budget.
    fn poll_streams(&mut self, budget: &mut Budget) -> Option<T> {
        while budget.rounds > 0 {
            budget.rounds -= 1;
            let polls_all = std::mem::take(&mut self.poll_all);
            if (self.set_waker.take_notified() || polls_all)
                && let Some(event) = self.poll_set(budget)
            {
                return Some(event);
            }
            // Another round also follows when the set only yielded after polling each of its
            // futures once.
            if self.poll_all || !self.set_waker.is_notified() {
                break;
            }
        }
        None
    }

    fn poll_set(&mut self, budget: &mut Budget) -> Option<T> {
        let waker = self.set_waker.waker();
        let mut context = Context::from_waker(&waker);
        while budget.ends > 0 {
            match self.set.poll_next_unpin(&mut context) {
                Poll::Ready(Some(None)) => {
                    self.open -= 1;
                    budget.ends -= 1;
                }
                Poll::Ready(Some(event)) => {
                    self.poll_all = true;
                    return event;
                }
                Poll::Ready(None) | Poll::Pending => return None,
            }
        }
        self.poll_all = true;
        None
    }
}

/// The most streams that may begin, and that may end, in one turn. Without this limit a client that
/// sends requests without waiting for responses would occupy the thread for as long as it likes.
const TURN_MAX: usize = 32;

/// The most polls of the streams in one turn. While the socket accepts everything, a large response
/// makes its stream ready again and again. An event takes two rounds.
const ROUNDS_MAX: usize = 8;

/// A queued future holds a [`Spawner`], so the queue would keep itself alive if it were not
/// emptied.
impl<T> Drop for ConnectionTasks<T> {
    fn drop(&mut self) {
        let dropped = {
            let mut queue = self.connection_waker.data().lock();
            queue.closed = true;
            std::mem::take(&mut queue.streams)
        };
        drop(dropped);
    }
}

#[cfg(test)]
mod tests;

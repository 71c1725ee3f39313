//! The streams of an HTTP/2 connection, run by the connection's own task.
//!
//! hyper hands every request of such a connection to an executor, as a future that lives until its answer is sent; of a connection to the upstream also the
//! connection itself. Run as tasks of their own, the fifty watches of a connection that get one event are scheduled one by one on all threads, contend
//! there for the one lock of their connection, and the first of them wakes the connection, which writes its frame while the others have not made
//! theirs; and a request that is sent on goes through four tasks, on whichever thread. Here an event makes them ready without scheduling
//! anything but the connection's task, and that polls first them and then the connection, which finds all their frames.
//!
//! So what the requests of one connection do in their own polls is done by one thread at a time. That is little: what takes long (lists of
//! thousands, deflating) is done on threads for it, and writing to the one socket was one thread's work before. A turn is bounded ([`TURN_MAX`],
//! [`ROUNDS_MAX`]), and connections run beside each other as ever.
//!
//! ConnectionTasks and connection wake each other while they are polled; that is heard in the same turn and wakes nobody ([`deferred_waker`]). What else a connection waits
//! for, a time-out or the end of Weir, is run beside them ([`ConnectionTasks::spawn_aux`]), so that it is polled when it has something to say, and not
//! with every event.
//!
//! Most connections have one stream. It stands outside the set of the others, of whose memory an event for a thousand connections would have to fetch
//! some lines more for each ([`ConnectionTasks::poll`] polls either only if it rang).
//!
//! A stream that panics ends alone, as a task would; hyper then resets it.
//!
//! Lock: that of the arrivals, held while a future is put there or some are taken out.

mod deferred_waker;
pub(crate) mod poll_on_wake;

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

/// Where hyper puts the streams of a connection. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Spawner(Arc<WakerState<Mutex<SpawnQueue>>>);

struct SpawnQueue {
    /// Not run yet.
    streams: Vec<Stream>,
    queued_max: usize,
    /// Nobody will run any more.
    closed: bool,
}

impl std::fmt::Debug for SpawnQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SpawnQueue").field("streams", &self.streams.len()).finish_non_exhaustive()
    }
}

/// Only hyper's handshake, connection and its streams call it, before [`ConnectionTasks::run`] or while they are polled by it, which looks here after that; so
/// nobody need be woken.
impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Spawner {
    fn execute(&self, stream: F) {
        let stream = Box::pin(stream);
        let mut queue = self.0.data.lock();
        if !queue.closed && queue.streams.len() < queue.queued_max {
            queue.streams.push(stream);
        }
    }
}

/// The streams that are under way, and what is run beside them, which tells a `T` in the end. Dropping it drops them.
pub(crate) struct ConnectionTasks<T> {
    /// One of the streams: most connections have no other, and what an event needs there has mostly left the processor's caches. So it stands
    /// outside the set, which would need as much again.
    single: Option<UnwindSafeStream>,
    /// How many streams there are, in the set or not.
    open: usize,
    /// Whether all are to be polled though no bell rang: what has just come, and what a turn left over.
    poll_all: bool,
    single_waker: DeferredWaker,
    set_waker: DeferredWaker,
    /// What it carries hyper fills while the connection is polled.
    connection_waker: DeferredWaker<Mutex<SpawnQueue>>,
    set: FuturesUnordered<Running<T>>,
}

/// One that panics alone.
type UnwindSafeStream = CatchUnwind<AssertUnwindSafe<Stream>>;

enum Running<T> {
    Stream(UnwindSafeStream),
    Aux(Pin<Box<dyn Future<Output = T> + Send>>),
}

/// Why [`ConnectionTasks::run`] stopped.
pub(crate) enum Stopped<C, T> {
    /// The connection has ended.
    Ended(C),
    /// What was run beside it told this.
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

/// What a turn may still do.
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
    /// Of a new connection; so many may wait for their first turn, more are dropped.
    pub(crate) fn new(queued_max: usize) -> Self {
        let queue = SpawnQueue { streams: Vec::new(), queued_max, closed: false };
        Self {
            single: None,
            open: 0,
            poll_all: false,
            single_waker: DeferredWaker::new(()),
            set_waker: DeferredWaker::new(()),
            connection_waker: DeferredWaker::new(Mutex::new(queue)),
            set: FuturesUnordered::new(),
        }
    }

    /// For the connection.
    pub(crate) fn spawner(&self) -> Spawner {
        Spawner(self.connection_waker.state())
    }

    /// Runs this too, until it tells something, which stops [`Self::run`].
    pub(crate) fn spawn_aux(&mut self, future: impl Future<Output = T> + Send + 'static) {
        self.set.push(Running::Aux(Box::pin(future)));
        self.poll_all = true;
    }

    /// Runs a connection and its streams until the connection ends, or something beside it has. Cancel safe.
    pub(crate) async fn run<C: Future + Unpin>(
        &mut self,
        connection: &mut C,
    ) -> Stopped<C::Output, T> {
        poll_fn(|context| self.poll(connection, |_open| {}, context)).await
    }

    /// Runs what is left when the connection takes no more, until that and what is beside it have ended too.
    pub(crate) async fn finish(&mut self) {
        while {
            self.admit(usize::MAX);
            self.set.extend(self.single.take().map(Running::Stream));
            self.set.next().await.is_some()
        } {}
    }

    /// One turn of [`Self::run`]. The connection is told how many streams there are each time before it is polled.
    pub(crate) fn poll<C: Future + Unpin>(
        &mut self,
        connection: &mut C,
        mut report_open: impl FnMut(usize),
        context: &Context<'_>,
    ) -> Poll<Stopped<C::Output, T>> {
        self.single_waker.register(context.waker());
        self.set_waker.register(context.waker());
        self.connection_waker.register(context.waker());
        // It is polled in any case, after streams that may ring it.
        self.connection_waker.take_notified();
        let mut budget = Budget { starts: TURN_MAX, ends: TURN_MAX, rounds: ROUNDS_MAX };
        loop {
            if let Some(event) = self.poll_streams(&mut budget) {
                return Poll::Ready(Stopped::Event(event));
            }
            report_open(self.open);
            // What a stream has to say at once is written in this turn.
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

    /// Ends a turn, unless something rang meanwhile. Whichever rests while the turn goes on would wake the task.
    fn try_idle(&self) -> bool {
        let is_idle = !self.single_waker.is_notified() && !self.set_waker.is_notified();
        is_idle
            && self.connection_waker.try_idle()
            && self.single_waker.try_idle()
            && self.set_waker.try_idle()
    }

    /// Takes in so many of what arrived at most, and tells how many.
    fn admit(&mut self, spawned_max: usize) -> usize {
        let spawned: Vec<_> = {
            let streams = &mut self.connection_waker.data().lock().streams;
            let count = streams.len().min(spawned_max);
            streams.drain(..count).collect()
        };
        let count = spawned.len();
        let mut streams = spawned.into_iter().map(|it| AssertUnwindSafe(it).catch_unwind());
        if self.single.is_none() {
            self.single = streams.next();
        }
        self.set.extend(streams.map(Running::Stream));
        self.open += count;
        self.poll_all |= count > 0;
        count
    }

    /// Polls those that are ready, and those that these make ready, within the budget.
    fn poll_streams(&mut self, budget: &mut Budget) -> Option<T> {
        while budget.rounds > 0 {
            budget.rounds -= 1;
            let all = std::mem::take(&mut self.poll_all);
            if self.single_waker.take_notified() || all {
                self.poll_single(budget);
            }
            if (self.set_waker.take_notified() || all)
                && let Some(event) = self.poll_set(budget)
            {
                return Some(event);
            }
            // Also where the set only says that it has polled each of them once.
            if self.poll_all || !self.single_waker.is_notified() && !self.set_waker.is_notified() {
                break;
            }
        }
        None
    }

    fn poll_single(&mut self, budget: &mut Budget) {
        let waker = self.single_waker.waker();
        let mut context = Context::from_waker(&waker);
        if self.single.as_mut().is_some_and(|single| single.poll_unpin(&mut context).is_ready()) {
            self.single = None;
            self.open -= 1;
            budget.ends -= 1;
        }
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

/// So many streams may begin or end in one turn: a client that asks on without waiting for answers would otherwise hold the thread for as
/// long as it likes.
const TURN_MAX: usize = 32;

/// So often may streams be polled in one turn: as long as the socket takes what it is given, a large answer makes its stream ready
/// again and again. Two are what an event takes.
const ROUNDS_MAX: usize = 8;

/// Streams know where they came from, so what has arrived and never ran would keep itself alive.
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

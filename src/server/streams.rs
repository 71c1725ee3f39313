//! The streams of an HTTP/2 connection, run by the connection's own task.
//!
//! hyper hands every request of such a connection to an executor, as a future that lives until its answer is sent. Run as tasks of their own, the
//! fifty watches of a connection that get one event are scheduled one by one on all threads, contend there for the one lock of their
//! connection, and the first of them wakes the connection, which writes its frame while the others have not made theirs. Here an event makes
//! them ready without scheduling anything but the connection's task, and that polls first them and then the connection, which finds all their
//! frames.
//!
//! So what the requests of one connection do in their own polls is done by one thread at a time. That is little: what takes long (lists of
//! thousands, deflating) is done on threads for it, and writing to the one socket was one thread's work before. A turn is bounded ([`TURN_MAX`]), and
//! connections run beside each other as ever.
//!
//! A stream that panics ends alone, as a task would; hyper then resets it.
//!
//! Lock: that of the arrivals, held while a future is put there or some are taken out.

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use hyper::rt::Executor;
use parking_lot::Mutex;

use crate::server::connection::STREAMS_MAX;

type Stream = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where hyper puts the streams of a connection. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Arrivals(Arc<Mutex<Arrived>>);

#[derive(Default)]
struct Arrived {
    /// Not run yet; at most [`ARRIVED_MAX`].
    streams: Vec<Stream>,
    /// Nobody will run any more.
    closed: bool,
}

impl std::fmt::Debug for Arrived {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arrived").field("streams", &self.streams.len()).finish_non_exhaustive()
    }
}

/// Only hyper's connection and its streams call it, while they are polled by [`Streams::run`], which looks here after that; so nobody need be woken.
impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Arrivals {
    fn execute(&self, stream: F) {
        let stream = Box::pin(stream);
        let mut arrived = self.0.lock();
        if !arrived.closed && arrived.streams.len() < ARRIVED_MAX {
            arrived.streams.push(stream);
        }
    }
}

/// The streams that are under way. Dropping it drops them.
#[derive(Debug)]
pub(crate) struct Streams {
    arrivals: Arrivals,
    running: FuturesUnordered<Caught>,
}

type Caught = futures_util::future::CatchUnwind<AssertUnwindSafe<Stream>>;

impl Streams {
    /// Of a new connection.
    pub(crate) fn new() -> Self {
        Self { arrivals: Arrivals(Arc::default()), running: FuturesUnordered::new() }
    }

    /// For the connection.
    pub(crate) fn arrivals(&self) -> Arrivals {
        self.arrivals.clone()
    }

    /// Runs a connection and its streams until the connection ends. Cancel safe.
    pub(crate) async fn run<C: Future + Unpin>(&mut self, connection: &mut C) -> C::Output {
        poll_fn(|context| self.poll(connection, context)).await
    }

    fn poll<C: Future + Unpin>(
        &mut self,
        connection: &mut C,
        context: &mut Context<'_>,
    ) -> Poll<C::Output> {
        let mut ended = 0;
        let mut busy = self.poll_streams(context, &mut ended);
        loop {
            // What a stream has to say at once is written in this turn.
            if let Poll::Ready(ended) = Pin::new(&mut *connection).poll(context) {
                return Poll::Ready(ended);
            }
            if busy {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            match self.admit() {
                0 => return Poll::Pending,
                admitted => ended += admitted,
            }
            busy = self.poll_streams(context, &mut ended) || ended >= TURN_MAX;
        }
    }

    /// Takes in some of what arrived, and tells how many.
    fn admit(&mut self) -> usize {
        let arrived: Vec<_> = {
            let streams = &mut self.arrivals.0.lock().streams;
            let count = streams.len().min(TURN_MAX);
            streams.drain(..count).collect()
        };
        let count = arrived.len();
        self.running.extend(arrived.into_iter().map(|it| AssertUnwindSafe(it).catch_unwind()));
        count
    }

    /// Polls those that are ready. Whether it stopped because so many of them ended.
    fn poll_streams(&mut self, context: &mut Context<'_>, ended: &mut usize) -> bool {
        while let Poll::Ready(Some(_)) = self.running.poll_next_unpin(context) {
            *ended += 1;
            if *ended >= TURN_MAX {
                return true;
            }
        }
        false
    }
}

/// So many streams may begin or end in one turn: a client that asks on without waiting for answers would otherwise hold the thread for as
/// long as it likes.
const TURN_MAX: usize = 32;

/// So many streams may wait for their first turn; more are reset. A client may have half as many open, but those that it reset itself count no more
/// while they still wait here.
const ARRIVED_MAX: usize = 2 * STREAMS_MAX as usize;

/// Streams know where they came from, so what has arrived and never ran would keep itself alive.
impl Drop for Streams {
    fn drop(&mut self) {
        let arrived = {
            let mut arrived = self.arrivals.0.lock();
            arrived.closed = true;
            std::mem::take(&mut arrived.streams)
        };
        drop(arrived);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    use tokio::sync::oneshot;

    use super::*;

    /// A connection that hands over these streams in its first turn, and ends when told.
    fn connection(
        arrivals: Arrivals,
        mut streams: Vec<Stream>,
        mut end: oneshot::Receiver<()>,
    ) -> impl Future<Output = ()> + Unpin {
        poll_fn(move |context| {
            streams.drain(..).for_each(|stream| arrivals.execute(stream));
            end.poll_unpin(context).map(drop)
        })
    }

    #[tokio::test]
    async fn what_arrives_is_run_in_the_same_turn_and_a_panic_ends_its_own_stream_alone() {
        let mut streams = Streams::new();
        let done = Arc::new(AtomicUsize::new(0));
        let count = |by: usize| -> Stream {
            let done = Arc::clone(&done);
            Box::pin(async move {
                done.fetch_add(by, Ordering::Relaxed);
            })
        };
        let (wake, woken) = oneshot::channel::<()>();
        let late = count(100);
        let late = Box::pin(async move {
            woken.await.unwrap();
            late.await;
        });
        let panics = Box::pin(async { panic!("of a test") });
        let (stop, end) = oneshot::channel();
        let arriving: Vec<Stream> = vec![count(1), panics, late, count(10)];
        let mut connection = connection(streams.arrivals(), arriving, end);
        assert!(streams.run(&mut connection).now_or_never().is_none());
        assert_eq!(done.load(Ordering::Relaxed), 11);
        wake.send(()).unwrap();
        assert!(streams.run(&mut connection).now_or_never().is_none());
        assert_eq!(done.load(Ordering::Relaxed), 111);
        assert!(streams.running.is_empty());
        stop.send(()).unwrap();
        streams.run(&mut connection).await;
    }

    #[test]
    fn a_client_that_asks_on_does_not_hold_the_thread() {
        let mut streams = Streams::new();
        let arrivals = streams.arrivals();
        let done = Arc::new(AtomicUsize::new(0));
        let (ended, mut begun) = (Arc::clone(&done), 0);
        // As soon as one ends there is another.
        let mut connection = poll_fn(move |_| {
            while begun < ended.load(Ordering::Relaxed) + 250 {
                let ended = Arc::clone(&ended);
                arrivals.execute(async move {
                    ended.fetch_add(1, Ordering::Relaxed);
                });
                begun += 1;
            }
            Poll::<()>::Pending
        });
        let woken = Arc::new(Woken(AtomicBool::new(false)));
        let waker = Waker::from(Arc::clone(&woken));
        for turn in 1..9 {
            let mut context = Context::from_waker(&waker);
            assert!(streams.poll(&mut connection, &mut context).is_pending());
            assert!(woken.0.swap(false, Ordering::Relaxed), "it goes on");
            let done = done.load(Ordering::Relaxed);
            assert!((turn..=2 * TURN_MAX * turn).contains(&done), "{done} in {turn} turns");
        }
    }

    #[test]
    fn what_arrives_is_bounded() {
        let streams = Streams::new();
        let held = Arc::new(());
        for _ in 0..2 * ARRIVED_MAX {
            let held = Arc::clone(&held);
            streams.arrivals().execute(async move { drop(held) });
        }
        assert_eq!(Arc::strong_count(&held), 1 + ARRIVED_MAX);
    }

    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn with_the_connection_go_its_streams_even_those_that_never_ran() {
        let held = Arc::new(());
        for runs in [false, true] {
            let mut streams = Streams::new();
            let (arrivals, held) = (streams.arrivals(), Arc::clone(&held));
            let inner = arrivals.clone();
            arrivals.execute(async move {
                std::future::pending::<()>().await;
                drop((inner, held));
            });
            if runs {
                let mut never = std::future::pending::<()>();
                assert!(streams.run(&mut never).now_or_never().is_none());
                assert_eq!(streams.running.len(), 1);
            }
            drop(streams);
            arrivals.execute(std::future::pending());
            assert!(arrivals.0.lock().streams.is_empty());
        }
        assert_eq!(Arc::strong_count(&held), 1);
    }
}

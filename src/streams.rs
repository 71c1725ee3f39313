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
//! Streams and connection wake each other while they are polled; that is heard in the same turn and wakes nobody ([`bell`]). What else a connection waits
//! for, a time-out or the end of Weir, is run beside them ([`Streams::beside`]), so that it is polled when it has something to say, and not
//! with every event.
//!
//! A stream that panics ends alone, as a task would; hyper then resets it.
//!
//! Lock: that of the arrivals, held while a future is put there or some are taken out.

mod bell;

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

use self::bell::Bell;

type Stream = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where hyper puts the streams of a connection. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Arrivals(Arc<Mutex<Arrived>>);

struct Arrived {
    /// Not run yet.
    streams: Vec<Stream>,
    streams_max: usize,
    /// Nobody will run any more.
    closed: bool,
}

impl std::fmt::Debug for Arrived {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arrived").field("streams", &self.streams.len()).finish_non_exhaustive()
    }
}

/// Only hyper's handshake, connection and its streams call it, before [`Streams::run`] or while they are polled by it, which looks here after that; so
/// nobody need be woken.
impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Arrivals {
    fn execute(&self, stream: F) {
        let stream = Box::pin(stream);
        let mut arrived = self.0.lock();
        if !arrived.closed && arrived.streams.len() < arrived.streams_max {
            arrived.streams.push(stream);
        }
    }
}

/// The streams that are under way, and what is run beside them, which tells a `T` in the end. Dropping it drops them.
#[derive(Debug)]
pub(crate) struct Streams<T> {
    arrivals: Arrivals,
    running: FuturesUnordered<Running<T>>,
    for_streams: Bell,
    for_connection: Bell,
}

enum Running<T> {
    Stream(CatchUnwind<AssertUnwindSafe<Stream>>),
    Beside(Pin<Box<dyn Future<Output = T> + Send>>),
}

/// Why [`Streams::run`] stopped.
pub(crate) enum Stopped<C, T> {
    /// The connection has ended.
    Ended(C),
    /// What was run beside it told this.
    Told(T),
}

impl<T> Future for Running<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        match self.get_mut() {
            Self::Stream(stream) => stream.poll_unpin(context).map(|_| None),
            Self::Beside(beside) => beside.as_mut().poll(context).map(Some),
        }
    }
}

/// What a turn may still do.
struct Budget {
    begin: usize,
    end: usize,
    rounds: usize,
}

impl Budget {
    fn is_spent(&self) -> bool {
        self.begin == 0 || self.end == 0 || self.rounds == 0
    }
}

impl<T> Streams<T> {
    /// Of a new connection; so many may wait for their first turn, more are dropped.
    pub(crate) fn new(arrived_max: usize) -> Self {
        let arrived = Arrived { streams: Vec::new(), streams_max: arrived_max, closed: false };
        Self {
            arrivals: Arrivals(Arc::new(Mutex::new(arrived))),
            running: FuturesUnordered::new(),
            for_streams: Bell::new(),
            for_connection: Bell::new(),
        }
    }

    /// For the connection.
    pub(crate) fn arrivals(&self) -> Arrivals {
        self.arrivals.clone()
    }

    /// Runs this too, until it tells something, which stops [`Self::run`].
    pub(crate) fn beside(&self, future: impl Future<Output = T> + Send + 'static) {
        self.running.push(Running::Beside(Box::pin(future)));
    }

    /// Runs a connection and its streams until the connection ends, or something beside it has. Cancel safe.
    pub(crate) async fn run<C: Future + Unpin>(
        &mut self,
        connection: &mut C,
    ) -> Stopped<C::Output, T> {
        poll_fn(|context| self.poll(connection, context)).await
    }

    /// Runs what is left when the connection takes no more, until that and what is beside it have ended too.
    pub(crate) async fn finish(&mut self) {
        while {
            self.admit(usize::MAX);
            self.running.next().await.is_some()
        } {}
    }

    fn poll<C: Future + Unpin>(
        &mut self,
        connection: &mut C,
        context: &Context<'_>,
    ) -> Poll<Stopped<C::Output, T>> {
        self.for_streams.serve(context.waker());
        self.for_connection.serve(context.waker());
        // It is polled in any case, after streams that may ring it.
        self.for_connection.hear();
        let mut budget = Budget { begin: TURN_MAX, end: TURN_MAX, rounds: ROUNDS_MAX };
        loop {
            if let Some(told) = self.poll_streams(&mut budget) {
                return Poll::Ready(Stopped::Told(told));
            }
            // What a stream has to say at once is written in this turn.
            self.for_connection.hear();
            let polled = Pin::new(&mut *connection).poll(&mut self.for_connection.context());
            if let Poll::Ready(ended) = polled {
                return Poll::Ready(Stopped::Ended(ended));
            }
            if budget.is_spent() {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            let admitted = self.admit(budget.begin);
            budget.begin -= admitted;
            // Whichever rests while the turn goes on would wake the task.
            let quiet = admitted == 0 && !self.for_streams.is_rung();
            if quiet && self.for_connection.rest() && self.for_streams.rest() {
                return Poll::Pending;
            }
        }
    }

    /// Takes in so many of what arrived at most, and tells how many.
    fn admit(&mut self, most: usize) -> usize {
        let arrived: Vec<_> = {
            let streams = &mut self.arrivals.0.lock().streams;
            let count = streams.len().min(most);
            streams.drain(..count).collect()
        };
        let count = arrived.len();
        let streams = arrived.into_iter().map(|it| AssertUnwindSafe(it).catch_unwind());
        self.running.extend(streams.map(Running::Stream));
        count
    }

    /// Polls those that are ready, and those that these make ready, within the budget.
    fn poll_streams(&mut self, budget: &mut Budget) -> Option<T> {
        while budget.rounds > 0 {
            budget.rounds -= 1;
            self.for_streams.hear();
            let mut context = self.for_streams.context();
            while let Poll::Ready(Some(ended)) = self.running.poll_next_unpin(&mut context) {
                if ended.is_some() {
                    return ended;
                }
                budget.end -= 1;
                if budget.end == 0 {
                    return None;
                }
            }
            // Also where it only says that it has polled each of them once.
            if !self.for_streams.is_rung() {
                break;
            }
        }
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
impl<T> Drop for Streams<T> {
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

    use futures_util::task::AtomicWaker;
    use tokio::sync::oneshot;

    use super::*;

    const ARRIVED_MAX: usize = 500;

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
        let mut streams = Streams::<()>::new(ARRIVED_MAX);
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
        let mut streams = Streams::<()>::new(ARRIVED_MAX);
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
            let context = Context::from_waker(&waker);
            assert!(streams.poll(&mut connection, &context).is_pending());
            assert!(woken.0.swap(false, Ordering::Relaxed), "it goes on");
            let done = done.load(Ordering::Relaxed);
            assert!((turn..=2 * TURN_MAX * turn).contains(&done), "{done} in {turn} turns");
        }
    }

    #[test]
    fn what_arrives_is_bounded() {
        let streams = Streams::<()>::new(ARRIVED_MAX);
        let held = Arc::new(());
        for _ in 0..2 * ARRIVED_MAX {
            let held = Arc::clone(&held);
            streams.arrivals().execute(async move { drop(held) });
        }
        assert_eq!(Arc::strong_count(&held), 1 + ARRIVED_MAX);
    }

    /// As h2 does: a stream that has a frame wakes the connection, and the connection a stream for which there is room.
    #[test]
    fn what_stream_and_connection_say_to_each_other_in_a_turn_wakes_nobody() {
        let mut streams = Streams::<()>::new(ARRIVED_MAX);
        let (to_connection, to_stream) =
            (Arc::new(AtomicWaker::new()), Arc::new(AtomicWaker::new()));
        let rounds = Arc::new(AtomicUsize::new(0));
        let (wakes, own, round) = (to_connection.clone(), to_stream.clone(), rounds.clone());
        streams.arrivals().execute(poll_fn(move |context: &mut Context<'_>| {
            own.register(context.waker());
            if round.fetch_add(1, Ordering::Relaxed) < 3 {
                wakes.wake();
            }
            Poll::Pending
        }));
        let polls = rounds.clone();
        let event = to_stream.clone();
        let mut connection = poll_fn(move |context: &mut Context<'_>| {
            to_connection.register(context.waker());
            if polls.load(Ordering::Relaxed) < 2 {
                to_stream.wake();
            }
            Poll::<()>::Pending
        });
        let woken = Arc::new(Woken(AtomicBool::new(false)));
        let waker = Waker::from(Arc::clone(&woken));
        let context = Context::from_waker(&waker);
        assert!(streams.poll(&mut connection, &context).is_pending());
        assert_eq!(rounds.load(Ordering::Relaxed), 2, "in the same turn");
        assert!(!woken.0.load(Ordering::Relaxed));
        // In a later turn too, which begins with the stream.
        event.wake();
        assert!(woken.0.swap(false, Ordering::Relaxed));
        assert!(streams.poll(&mut connection, &context).is_pending());
        assert_eq!(rounds.load(Ordering::Relaxed), 3);
        assert!(!woken.0.load(Ordering::Relaxed), "by what the stream said in the turn");
    }

    #[tokio::test]
    async fn what_is_beside_is_polled_for_itself_and_stops_the_run() {
        let mut streams = Streams::new(ARRIVED_MAX);
        let polls = Arc::new(AtomicUsize::new(0));
        let (tell, told) = oneshot::channel();
        let (count, mut told) = (Arc::clone(&polls), told);
        streams.beside(poll_fn(move |context| {
            count.fetch_add(1, Ordering::Relaxed);
            told.poll_unpin(context).map(Result::unwrap)
        }));
        let mut never = std::future::pending::<()>();
        for _ in 0..5 {
            assert!(streams.run(&mut never).now_or_never().is_none());
        }
        assert_eq!(polls.load(Ordering::Relaxed), 1, "not with every turn");
        tell.send(7).unwrap();
        assert!(matches!(streams.run(&mut never).await, Stopped::Told(7)));
        assert!(streams.run(&mut never).now_or_never().is_none(), "and it goes on");
    }

    /// A stream that always has more to write, into a socket that takes it all, does not hold the thread.
    #[test]
    fn a_turn_ends_though_stream_and_connection_go_on() {
        let mut streams = Streams::<()>::new(ARRIVED_MAX);
        let (stream, polls) = (Arc::new(AtomicWaker::new()), Arc::new(AtomicUsize::new(0)));
        let (own, count) = (Arc::clone(&stream), Arc::clone(&polls));
        streams.arrivals().execute(poll_fn(move |context: &mut Context<'_>| {
            own.register(context.waker());
            count.fetch_add(1, Ordering::Relaxed);
            Poll::Pending
        }));
        let mut connection = poll_fn(move |context: &mut Context<'_>| {
            stream.wake();
            context.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        let woken = Arc::new(Woken(AtomicBool::new(false)));
        let waker = Waker::from(Arc::clone(&woken));
        for turn in 1..5 {
            let context = Context::from_waker(&waker);
            assert!(streams.poll(&mut connection, &context).is_pending());
            assert!(woken.0.swap(false, Ordering::Relaxed), "it goes on");
            assert!((turn..=turn * ROUNDS_MAX).contains(&polls.load(Ordering::Relaxed)));
        }
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
            let mut streams = Streams::<()>::new(ARRIVED_MAX);
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

//! Tests that poll the streams and their connection by hand.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Wake, Waker};

use futures_util::task::AtomicWaker;
use tokio::sync::{Notify, oneshot};

use super::*;

const QUEUED_MAX: usize = 500;

/// A connection that spawns `streams` in its first turn and ends when `end` receives a message.
fn connection(
    spawner: Spawner,
    mut streams: Vec<Stream>,
    mut end: oneshot::Receiver<()>,
) -> impl Future<Output = ()> + Unpin {
    poll_fn(move |context| {
        streams.drain(..).for_each(|stream| spawner.execute(stream));
        end.poll_unpin(context).map(drop)
    })
}

#[tokio::test]
async fn spawned_streams_run_in_the_same_turn_and_a_panic_ends_only_its_own_stream() {
    let mut tasks = ConnectionTasks::<()>::new(QUEUED_MAX);
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
    let mut connection = connection(tasks.spawner(), arriving, end);
    assert!(tasks.run(&mut connection).now_or_never().is_none());
    assert_eq!(done.load(Ordering::Relaxed), 11);
    wake.send(()).unwrap();
    assert!(tasks.run(&mut connection).now_or_never().is_none());
    assert_eq!(done.load(Ordering::Relaxed), 111);
    assert_eq!((tasks.open, tasks.set.len()), (0, 0));
    stop.send(()).unwrap();
    tasks.run(&mut connection).await;
}

#[test]
fn a_client_that_never_stops_sending_does_not_occupy_the_thread() {
    let mut tasks = ConnectionTasks::<()>::new(QUEUED_MAX);
    let spawner = tasks.spawner();
    let done = Arc::new(AtomicUsize::new(0));
    let (ended, mut begun) = (Arc::clone(&done), 0);
    // Spawns another stream as soon as one has ended.
    let mut connection = poll_fn(move |_| {
        while begun < ended.load(Ordering::Relaxed) + 250 {
            let ended = Arc::clone(&ended);
            spawner.execute(async move {
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
        assert!(tasks.poll(&mut connection, |_| {}, &context).is_pending());
        assert!(woken.0.swap(false, Ordering::Relaxed), "the task wakes itself");
        let done = done.load(Ordering::Relaxed);
        assert!((turn..=2 * TURN_MAX * turn).contains(&done), "{done} in {turn} turns");
    }
}

/// More streams become ready than one turn may end. The others follow in the next turns without
/// another event.
#[test]
fn tasks_left_over_from_one_turn_run_in_the_next() {
    let mut tasks = ConnectionTasks::<()>::new(QUEUED_MAX);
    let (event, is_over) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    for _ in 0..3 * TURN_MAX {
        let (event, is_over) = (Arc::clone(&event), Arc::clone(&is_over));
        tasks.spawner().execute(async move {
            event.notified().await;
            is_over.fetch_add(1, Ordering::Relaxed);
        });
    }
    let woken = Arc::new(Woken(AtomicBool::new(true)));
    let waker = Waker::from(Arc::clone(&woken));
    let context = Context::from_waker(&waker);
    let mut turns = || {
        let mut turns = 0;
        while woken.0.swap(false, Ordering::Relaxed) {
            let mut never = std::future::pending::<()>();
            assert!(tasks.poll(&mut never, |_| {}, &context).is_pending());
            turns += 1;
        }
        (turns, tasks.open)
    };
    assert_eq!(turns().1, 3 * TURN_MAX);
    event.notify_waiters();
    let (turns, open) = turns();
    assert_eq!((open, is_over.load(Ordering::Relaxed)), (0, 3 * TURN_MAX));
    assert!((3..=4).contains(&turns), "{turns}");
}

#[tokio::test]
async fn finish_runs_started_and_queued_streams_to_their_end() {
    let mut tasks = ConnectionTasks::<()>::new(QUEUED_MAX);
    let (event, done) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    let stream = || {
        let (event, done) = (Arc::clone(&event), Arc::clone(&done));
        async move {
            event.notified().await;
            done.fetch_add(1, Ordering::Relaxed);
        }
    };
    for _ in 0..3 {
        tasks.spawner().execute(stream());
    }
    let mut never = std::future::pending::<()>();
    assert!(tasks.run(&mut never).now_or_never().is_none());
    tasks.spawner().execute(stream());
    let mut finished = std::pin::pin!(tasks.finish());
    assert!(futures_util::poll!(finished.as_mut()).is_pending());
    event.notify_waiters();
    finished.await;
    assert_eq!(done.load(Ordering::Relaxed), 4);
}

#[test]
fn the_spawn_queue_is_bounded() {
    let tasks = ConnectionTasks::<()>::new(QUEUED_MAX);
    let held = Arc::new(());
    for _ in 0..2 * QUEUED_MAX {
        let held = Arc::clone(&held);
        tasks.spawner().execute(async move { drop(held) });
    }
    assert_eq!(Arc::strong_count(&held), 1 + QUEUED_MAX);
}

/// Wakes as h2 does: a stream that has a frame wakes the connection, and the connection wakes a
/// stream for which there is capacity.
#[test]
fn notifications_between_stream_and_connection_in_a_turn_do_not_wake_the_task() {
    let mut tasks = ConnectionTasks::<()>::new(QUEUED_MAX);
    let (to_connection, to_stream) = (Arc::new(AtomicWaker::new()), Arc::new(AtomicWaker::new()));
    let rounds = Arc::new(AtomicUsize::new(0));
    let (wakes, waker, round) = (to_connection.clone(), to_stream.clone(), rounds.clone());
    tasks.spawner().execute(poll_fn(move |context: &mut Context<'_>| {
        waker.register(context.waker());
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
    assert!(tasks.poll(&mut connection, |_| {}, &context).is_pending());
    assert_eq!(rounds.load(Ordering::Relaxed), 2, "in the same turn");
    assert!(!woken.0.load(Ordering::Relaxed));
    // The same holds for a later turn, which begins with the stream.
    event.wake();
    assert!(woken.0.swap(false, Ordering::Relaxed));
    assert!(tasks.poll(&mut connection, |_| {}, &context).is_pending());
    assert_eq!(rounds.load(Ordering::Relaxed), 3);
    assert!(!woken.0.load(Ordering::Relaxed), "by the stream's wake-up in the turn");
}

#[tokio::test]
async fn an_auxiliary_future_is_polled_after_its_own_wake_up_and_stops_the_run() {
    let mut tasks = ConnectionTasks::new(QUEUED_MAX);
    let polls = Arc::new(AtomicUsize::new(0));
    let (sender, receiver) = oneshot::channel();
    let (count, mut receiver) = (Arc::clone(&polls), receiver);
    tasks.spawn_aux(poll_fn(move |context| {
        count.fetch_add(1, Ordering::Relaxed);
        receiver.poll_unpin(context).map(Result::unwrap)
    }));
    let mut never = std::future::pending::<()>();
    for _ in 0..5 {
        assert!(tasks.run(&mut never).now_or_never().is_none());
    }
    assert_eq!(polls.load(Ordering::Relaxed), 1, "not with every turn");
    sender.send(7).unwrap();
    assert!(matches!(tasks.run(&mut never).await, Stopped::Event(7)));
    assert!(tasks.run(&mut never).now_or_never().is_none(), "the run continues");
}

/// A stream that always has more to write to a socket that accepts everything does not occupy the
/// thread.
#[test]
fn a_turn_ends_while_stream_and_connection_are_always_ready() {
    let mut tasks = ConnectionTasks::<()>::new(QUEUED_MAX);
    let (stream, polls) = (Arc::new(AtomicWaker::new()), Arc::new(AtomicUsize::new(0)));
    let (waker, count) = (Arc::clone(&stream), Arc::clone(&polls));
    tasks.spawner().execute(poll_fn(move |context: &mut Context<'_>| {
        waker.register(context.waker());
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
        assert!(tasks.poll(&mut connection, |_| {}, &context).is_pending());
        assert!(woken.0.swap(false, Ordering::Relaxed), "the task wakes itself");
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
async fn dropping_the_tasks_drops_all_streams_even_queued_ones() {
    let held = Arc::new(());
    for runs in [false, true] {
        let mut tasks = ConnectionTasks::<()>::new(QUEUED_MAX);
        let (spawner, held) = (tasks.spawner(), Arc::clone(&held));
        let inner = spawner.clone();
        spawner.execute(async move {
            std::future::pending::<()>().await;
            drop((inner, held));
        });
        if runs {
            let mut never = std::future::pending::<()>();
            assert!(tasks.run(&mut never).now_or_never().is_none());
            assert_eq!(tasks.open, 1);
        }
        drop(tasks);
        spawner.execute(std::future::pending());
        assert!(spawner.0.data.lock().streams.is_empty());
    }
    assert_eq!(Arc::strong_count(&held), 1);
}

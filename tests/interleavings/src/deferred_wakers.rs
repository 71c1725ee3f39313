//! The task of a connection, and those who notify its parts.

use std::future::poll_fn;
use std::task::{Poll, Waker};

use loom::future::block_on;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use crate::parts::deferred_waker::DeferredWaker;
use crate::{model, must_fail};

/// Notifies `count` times; the work is counted before each.
fn notify(waker: &Waker, work: &AtomicUsize, count: usize) {
    for _ in 0..count {
        work.fetch_add(1, Ordering::Release);
        waker.wake_by_ref();
    }
}

/// Runs a task with one part, which is notified twice. `look` clears the flag, and returns how much
/// work there is.
fn run_one_part(look: fn(&DeferredWaker<()>, &AtomicUsize) -> usize) {
    let deferred = DeferredWaker::new(());
    let work = Arc::new(AtomicUsize::new(0));
    let (waker, added) = (deferred.waker().clone(), Arc::clone(&work));
    let notifying = thread::spawn(move || notify(&waker, &added, 2));
    block_on(poll_fn(|context| {
        deferred.register(context.waker());
        loop {
            if look(&deferred, &work) == 2 {
                return Poll::Ready(());
            }
            if deferred.try_idle() {
                return Poll::Pending;
            }
        }
    }));
    notifying.join().unwrap();
}

#[test]
fn a_notification_is_seen_in_the_turn_or_wakes_the_task() {
    model(|| {
        run_one_part(|deferred, work| {
            deferred.take_notified();
            work.load(Ordering::Acquire)
        });
    });
}

/// The turn has two parts, and ends as in `ConnectionTasks`. If the first is idle and the second is
/// not, the turn goes on, and a notification of the first may wake the task for nothing.
#[test]
fn two_parts_of_a_task_lose_no_notification() {
    model(|| {
        let (streams, connection) = (DeferredWaker::new(()), DeferredWaker::new(()));
        let work = [Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0))];
        let wakers = [streams.waker().clone(), connection.waker().clone()];
        let notifying: Vec<_> = wakers
            .into_iter()
            .zip(work.clone())
            .map(|(waker, work)| thread::spawn(move || notify(&waker, &work, 1)))
            .collect();
        block_on(poll_fn(|context| {
            streams.register(context.waker());
            connection.register(context.waker());
            loop {
                streams.take_notified();
                let first = work[0].load(Ordering::Acquire);
                connection.take_notified();
                if first + work[1].load(Ordering::Acquire) == 2 {
                    return Poll::Ready(());
                }
                if !streams.is_notified() && connection.try_idle() && streams.try_idle() {
                    return Poll::Pending;
                }
            }
        }));
        notifying.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// Cleared after the work was looked for, a notification in between is lost.
#[test]
fn a_look_before_the_flag_is_cleared_is_wrong() {
    must_fail("deferred_wakers::a_look_before_the_flag_is_cleared_is_wrong", || {
        model(|| {
            run_one_part(|deferred, work| {
                let done = work.load(Ordering::Acquire);
                deferred.take_notified();
                done
            });
        })
    });
}

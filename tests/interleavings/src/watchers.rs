//! A watcher and the writer of its cache.

use std::future::poll_fn;
use std::task::Poll;

use loom::future::block_on;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use crate::parts::marks::Marks;
use crate::parts::wake_slot::WakeSlot;
use crate::{model, must_fail};

/// A cache with one watcher. Its events have the numbers from 1 on.
struct Cache {
    marks: Marks,
    wake_slot: WakeSlot,
    /// The end of the history of the published state.
    published: AtomicU64,
}

/// A step of the writer.
#[derive(Clone, Copy)]
enum Step {
    Mark,
    Publish,
    Wake,
}

/// The order of `WatchCache::apply`.
const ORDER: [Step; 3] = [Step::Mark, Step::Publish, Step::Wake];

impl Cache {
    fn new() -> Self {
        Self {
            marks: Marks::new((1, 1)),
            wake_slot: WakeSlot::default(),
            published: AtomicU64::new(1),
        }
    }

    /// Applies the batches of events, each up to but not including a number. The watcher is marked
    /// for those of which `is_marked`.
    fn write(&self, ends: &[u64], is_marked: impl Fn(u64) -> bool, order: [Step; 3]) {
        let mut from = 1;
        for end in ends {
            let marked: Vec<u64> = (from..*end).filter(|event| is_marked(*event)).collect();
            for step in order {
                match (step, marked.as_slice()) {
                    (Step::Mark, [first, .., last]) => self.marks.mark((*first, *last)),
                    (Step::Mark, [only]) => self.marks.mark((*only, *only)),
                    (Step::Publish, _) => self.published.store(*end, Ordering::Release),
                    (Step::Wake, [_, ..]) => self.wake_slot.wake(),
                    (_, []) => {}
                }
            }
            from = *end;
        }
    }

    /// Reads until every event before `end` is claimed. Returns the events that were read.
    fn read(&self, end: u64, is_marked: impl Fn(u64) -> bool) -> Vec<u64> {
        let mut read = Vec::new();
        block_on(poll_fn(|context| {
            self.wake_slot.register(context.waker());
            loop {
                let state = self.published.load(Ordering::Acquire);
                let Some((from, to)) = self.marks.pending(state) else {
                    // Now a bookmark may claim the state.
                    let missing = (1..state).filter(|event| is_marked(*event));
                    assert!(missing.eq(read.iter().copied()), "{read:?} at {state}");
                    let last_marked = (1..end).rev().find(|event| is_marked(*event));
                    let is_done = last_marked.is_none_or(|last| read.contains(&last));
                    return if is_done { Poll::Ready(()) } else { Poll::Pending };
                };
                read.extend((from..to).filter(|event| is_marked(*event)));
                self.marks.set_position(to);
            }
        }));
        read
    }
}

fn run(ends: &'static [u64], is_marked: fn(u64) -> bool, order: [Step; 3]) {
    model(move || {
        let cache = Arc::new(Cache::new());
        let writer = Arc::clone(&cache);
        let writing = thread::spawn(move || writer.write(ends, is_marked, order));
        let end = ends.iter().copied().max().unwrap_or(1);
        let read = cache.read(end, is_marked);
        assert!(read.into_iter().eq((1..end).filter(|event| is_marked(*event))));
        writing.join().unwrap();
    });
}

#[test]
fn a_watcher_reads_each_event_once_and_claims_none_that_it_has_not_read() {
    run(&[2, 3], |_| true, ORDER);
    run(&[3, 4], |_| true, ORDER);
}

#[test]
fn events_that_do_not_match_are_passed_over() {
    run(&[2, 3, 4], |event| event != 2, ORDER);
}

/// A bookmark could claim a state that has an event which was not read.
#[test]
fn a_mark_after_publishing_is_wrong() {
    must_fail("watchers::a_mark_after_publishing_is_wrong", || {
        run(&[2, 3], |_| true, [Step::Publish, Step::Mark, Step::Wake]);
    });
}

/// The watcher looks in between, and sleeps for ever.
#[test]
fn a_wake_up_before_publishing_is_lost() {
    must_fail("watchers::a_wake_up_before_publishing_is_lost", || {
        run(&[2], |_| true, [Step::Mark, Step::Wake, Step::Publish]);
    });
}

#[test]
fn a_timer_that_fires_is_seen() {
    model(|| {
        let slot = Arc::new(WakeSlot::default());
        let timer = Arc::clone(&slot);
        let firing = thread::spawn(move || timer.fire_timer());
        block_on(poll_fn(|context| {
            slot.register(context.waker());
            if slot.take_timer_fired() { Poll::Ready(()) } else { Poll::Pending }
        }));
        assert!(!slot.take_timer_fired(), "it fired once");
        firing.join().unwrap();
    });
}

/// Registered after the look, the wake-up in between is lost.
#[test]
fn a_look_before_registering_is_wrong() {
    must_fail("watchers::a_look_before_registering_is_wrong", || {
        model(|| {
            let slot = Arc::new(WakeSlot::default());
            let timer = Arc::clone(&slot);
            let firing = thread::spawn(move || timer.fire_timer());
            block_on(poll_fn(|context| {
                if slot.take_timer_fired() {
                    return Poll::Ready(());
                }
                slot.register(context.waker());
                Poll::Pending
            }));
            firing.join().unwrap();
        })
    });
}

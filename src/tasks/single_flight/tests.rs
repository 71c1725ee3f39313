//! Tests of single-flight: sharing, cancelled callers, lost runs, and refused runs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::time::sleep;

use super::*;

/// How long the work of these tests takes.
const WORK: Duration = Duration::from_millis(50);

/// Work that counts its runs, shared by key.
#[derive(Clone, Default)]
struct Counting {
    flights: Arc<SingleFlight<&'static str, usize>>,
    runs: Arc<AtomicUsize>,
}

impl Counting {
    /// Returns the number of the run that answered this caller.
    async fn get(&self, key: &'static str) -> Result<usize, RunLost> {
        let (outcome, guard) = self.flights.join(&key);
        if let Some(guard) = guard {
            let run = self.runs.fetch_add(1, Ordering::SeqCst) + 1;
            tokio::spawn(async move {
                sleep(WORK).await;
                guard.complete(run);
            });
        }
        outcome.wait().await
    }
}

#[tokio::test(start_paused = true)]
async fn callers_of_one_key_share_a_run() {
    let work = Counting::default();
    let results = join_all((0..100).map(|_| work.get("a"))).await;
    assert!(results.iter().all(|result| *result == Ok(1)));
    let (a, b) = tokio::join!(work.get("a"), work.get("b"));
    assert_eq!((a, b), (Ok(2), Ok(3)), "keys do not share, and a finished run is not joined");
    assert!(work.flights.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_caller_does_not_cancel_the_run_for_others() {
    let work = Counting::default();
    let mut first = Box::pin(work.get("a"));
    assert!(first.as_mut().now_or_never().is_none());
    let mut second = Box::pin(work.get("a"));
    assert!(second.as_mut().now_or_never().is_none());
    drop(first);
    assert_eq!(second.await, Ok(1));
    assert_eq!(work.runs.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_panics_wakes_its_callers_and_frees_the_key() {
    let flights = SingleFlight::<&str, ()>::default();
    let (outcome, guard) = flights.join(&"a");
    let guard = guard.unwrap();
    let (joined, none) = flights.join(&"a");
    assert!(none.is_none());
    let panicked = tokio::spawn(async move {
        let _guard = guard;
        panic!("the work fails");
    });
    assert_eq!((outcome.wait().await, joined.wait().await), (Err(RunLost), Err(RunLost)));
    assert!(panicked.await.unwrap_err().is_panic());
    assert!(flights.is_empty());
    assert!(flights.join(&"a").1.is_some());
}

#[tokio::test]
async fn a_dropped_guard_wakes_its_callers() {
    let flights = SingleFlight::<(), usize>::default();
    let (outcome, guard) = flights.join(&());
    drop(guard);
    assert_eq!(outcome.wait().await, Err(RunLost));
    assert!(flights.is_empty());
}

#[tokio::test]
async fn a_refused_run_leaves_no_trace_and_joins_stay_allowed() {
    const RUNS_MAX: usize = 2;
    let flights = SingleFlight::<usize, usize>::default();
    let running = AtomicUsize::new(0);
    let admit = || {
        let admitted = running.load(Ordering::SeqCst) < RUNS_MAX;
        admitted.then(|| running.fetch_add(1, Ordering::SeqCst)).ok_or("too many")
    };
    let mut guards = Vec::new();
    for key in 0..RUNS_MAX {
        let (_, run) = flights.try_join(&key, admit).unwrap();
        guards.push(run.unwrap().0);
    }
    assert_eq!(flights.try_join(&RUNS_MAX, admit).err(), Some("too many"));
    assert_eq!(flights.len(), RUNS_MAX);
    let (outcome, run) = flights.try_join(&0, admit).unwrap();
    assert!(run.is_none(), "joining needs no permit");
    guards.remove(0).complete(7);
    assert_eq!(outcome.wait().await, Ok(7));
}

#[tokio::test]
async fn callers_after_close_start_a_new_run() {
    let flights = SingleFlight::<(), usize>::default();
    let (first, guard) = flights.join(&());
    let mut guard = guard.unwrap();
    guard.close();
    let (second, next) = flights.join(&());
    guard.complete(1);
    assert_eq!(flights.len(), 1, "the first run does not remove the second");
    next.unwrap().complete(2);
    assert_eq!((first.wait().await, second.wait().await), (Ok(1), Ok(2)));
}

#[tokio::test]
async fn a_completed_run_is_not_joined_again() {
    let flights = SingleFlight::<(), usize>::default();
    let (first, guard) = flights.join(&());
    guard.unwrap().complete_then_close(1);
    assert_eq!(first.wait().await, Ok(1));
    assert!(flights.join(&()).1.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_run_that_nobody_waits_for_is_detected() {
    let flights = Arc::new(SingleFlight::<(), usize>::default());
    let (first, guard) = flights.join(&());
    let mut guard = guard.unwrap();
    assert!(guard.until_abandoned().now_or_never().is_none());
    let (second, _) = flights.join(&());
    drop(first);
    assert!(!guard.is_abandoned());
    assert!(guard.until_abandoned().now_or_never().is_none());
    drop(second);
    assert!(guard.is_abandoned());
    guard.until_abandoned().await;
    assert!(flights.is_empty());
}

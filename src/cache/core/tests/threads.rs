//! One writer and several watchers on their own threads: no event is lost, no resourceVersion is
//! claimed before its events are delivered, and no wake-up is missed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::*;
use crate::cache::core::watch_cache::Change;
use crate::cache::core::watcher::WatchStart;

/// Large enough that threads meet in every step of the protocol, small enough to take about a
/// second in a debug build. The last event matches every waiting watcher: the pod moves from `n1`
/// to `n2` and from `b` to `a`.
const EVENTS: u64 = 20_000;

/// A pod that moves between three nodes and two apps.
fn pod(at: u64) -> Pod {
    Pod::new("ns1", "a", at)
        .node(["n0", "n1", "n2"][(at % 3) as usize])
        .app(["a", "b"][(at % 2) as usize])
}

/// Returns whether the event at resourceVersion `at` is for a watcher whose filter is `matches`.
fn is_relevant(matches: &dyn Fn(&Pod) -> bool, at: u64) -> bool {
    matches(&pod(at)) || (at > 1 && matches(&pod(at - 1)))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    Woken,
    /// Polls all the time, for a watcher that no event wakes, so that it reads every published
    /// state.
    Spin,
}

fn read_to_the_end(
    cache: &WatchCache,
    filter: WatchFilter,
    wait: Wait,
    matches: &dyn Fn(&Pod) -> bool,
) {
    let mut watcher = cache.watch(filter, WatchStart::After(ResourceVersion(0))).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let (mut events, mut checked, mut sum) = (0, 0, 0);
    loop {
        match watcher.next_batch(1 << 12) {
            Batch::Frames { events: more, .. } => events += more,
            Batch::Idle => {
                let claimed = watcher.resource_version().0;
                sum += (checked + 1..=claimed).filter(|at| is_relevant(matches, *at)).count();
                checked = claimed;
                assert_eq!(events, sum, "claimed {claimed}");
                if claimed == EVENTS {
                    return;
                }
                if wait == Wait::Spin {
                    thread::yield_now();
                    continue;
                }
                runtime.block_on(async {
                    let woken =
                        tokio::time::timeout(Duration::from_secs(60), watcher.until_woken());
                    woken.await.expect("a wake-up was missed");
                });
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn bookmarks_never_claim_undelivered_events() {
    let cache =
        cache_of(usize::try_from(EVENTS).unwrap(), usize::try_from(EVENTS).unwrap(), usize::MAX);
    cache.replace(Vec::new(), ResourceVersion(0));
    let one = WatchFilter { name: Some("a".into()), ..in_namespace("ns1") };
    thread::scope(|scope| {
        let cache = &cache;
        let read = |filter: WatchFilter, wait, matches: fn(&Pod) -> bool| {
            scope.spawn(move || read_to_the_end(cache, filter, wait, &matches));
        };
        read(on_node("n1"), Wait::Spin, |pod| pod.node == "n1");
        read(on_node("n2"), Wait::Woken, |pod| pod.node == "n2");
        read(by_app("b"), Wait::Woken, |pod| pod.app == "b");
        read(one, Wait::Woken, |_| true);
        read(in_namespace("ns2"), Wait::Spin, |_| false);
        let mut random = fastrand::Rng::with_seed(1);
        let mut next = 1;
        while next <= EVENTS {
            let end = (next + random.u64(1..4)).min(EVENTS + 1);
            let mut changes: Vec<Change> =
                (next..end).map(|at| Change::Upsert(pod(at).object())).collect();
            if end > EVENTS {
                changes.push(Change::Progress(ResourceVersion(EVENTS)));
            }
            cache.apply(changes, at(0));
            next = end;
        }
    });
}

/// Lists are at multiples of ten, and the one event after each list is five before the next. A
/// watch must end before the next list and must never claim a resourceVersion of it.
#[test]
fn a_watch_never_sees_past_the_list_that_ends_it() {
    const LISTS: u64 = 5_000;
    let cache = cache_of(10, 10, usize::MAX);
    cache.replace(Vec::new(), ResourceVersion(0));
    let stopping = AtomicBool::new(false);
    let read = || {
        loop {
            let Ok(mut watcher) = cache.watch(WatchFilter::default(), WatchStart::Now) else {
                return assert!(
                    stopping.load(Ordering::SeqCst),
                    "the cache was not ready between two lists"
                );
            };
            let list = watcher.resource_version().0 / 10;
            let cause = loop {
                match watcher.next_batch(1) {
                    Batch::Ended(cause) => break cause,
                    Batch::Idle => assert_eq!(watcher.resource_version().0 / 10, list),
                    _ => {}
                }
            };
            if cause != EndCause::Relist {
                return assert!(stopping.load(Ordering::SeqCst), "{cause:?}");
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(read);
        scope.spawn(read);
        for list in 1..LISTS {
            let pod = Pod::new("ns1", "a", list * 10 - 5);
            cache.apply(vec![Change::Upsert(pod.object())], at(0));
            cache.replace(Vec::new(), ResourceVersion(list * 10));
        }
        stopping.store(true, Ordering::SeqCst);
        cache.invalidate(EndCause::Stopped);
    });
}

//! Tests of the sharing of probes.

use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use super::*;
use crate::api::resource_version::ResourceVersion;
use crate::cache::script::page;
use crate::codec::list::ListPage;
use crate::upstream::lister_watcher::{Answer, ListRequest};

/// Returns the number of its calls as the resourceVersion, after [`PROBE_DURATION`].
#[derive(Default)]
struct Counting {
    calls: AtomicU64,
}

const PROBE_DURATION: Duration = Duration::from_millis(100);

impl ListWatch for Counting {
    fn list(&self, _: ListRequest) -> Answer<'_, ListPage> {
        let at = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        sleep(PROBE_DURATION).map(move |()| Ok(page(at, "", Vec::new()))).boxed()
    }
}

fn probes<L: ListWatch>(upstream: &Arc<L>) -> Arc<Probes> {
    let metrics = CacheMetrics::register(&prometheus::Registry::new()).unwrap();
    Arc::new(Probes::new(Arc::clone(upstream) as Arc<dyn ListWatch>, TaskTracker::new(), metrics))
}

async fn revision(probes: &Arc<Probes>) -> Option<ResourceVersion> {
    probes.probed(Duration::ZERO).await.ok().map(|probed| probed.page.resource_version)
}

#[tokio::test(start_paused = true)]
async fn a_thousand_concurrent_callers_cost_two_probes() {
    let counting = Arc::new(Counting::default());
    let probes = probes(&counting);
    let probed = join_all((0..1000).map(|_| revision(&probes))).await;
    assert!(probed.iter().all(Option::is_some));
    assert!(counting.calls.load(Ordering::Relaxed) <= 2);
}

#[tokio::test(start_paused = true)]
async fn no_caller_uses_a_probe_that_was_sent_before_its_call() {
    let counting = Arc::new(Counting::default());
    let probes = probes(&counting);
    let first = async { (revision(&probes).await, Instant::now()) };
    let late = |after| {
        let probes = &probes;
        async move {
            sleep(after).await;
            (revision(probes).await, Instant::now())
        }
    };
    let begin = Instant::now();
    let millis = Duration::from_millis;
    let (first, second, third) = tokio::join!(first, late(millis(10)), late(millis(90)));
    assert_eq!(first, (Some(ResourceVersion(1)), begin + PROBE_DURATION));
    assert_eq!(second, (Some(ResourceVersion(2)), begin + PROBE_DURATION * 2));
    assert_eq!(third, second);
    assert_eq!(revision(&probes).await, Some(ResourceVersion(3)));
}

#[tokio::test(start_paused = true)]
async fn a_probe_without_callers_is_not_sent() {
    let counting = Arc::new(Counting::default());
    let probes = probes(&counting);
    let first = revision(&probes);
    let cancelled = async {
        sleep(PROBE_DURATION / 2).await;
        tokio::time::timeout(PROBE_DURATION / 4, revision(&probes)).await.unwrap_err();
    };
    let (first, ()) = tokio::join!(first, cancelled);
    assert_eq!(first, Some(ResourceVersion(1)));
    sleep(PROBE_DURATION * 3).await;
    assert_eq!(counting.calls.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_is_cancelled_does_not_cancel_the_probe() {
    let counting = Arc::new(Counting::default());
    let probes = probes(&counting);
    let cancelled = tokio::time::timeout(PROBE_DURATION / 2, revision(&probes));
    let waiting = async {
        sleep(PROBE_DURATION / 4).await;
        revision(&probes).await
    };
    let (cancelled, waiting) = tokio::join!(cancelled, waiting);
    assert!(cancelled.is_err());
    assert_eq!(waiting, Some(ResourceVersion(2)));
}

/// Never responds.
struct Stuck;

impl ListWatch for Stuck {
    fn list(&self, _: ListRequest) -> Answer<'_, ListPage> {
        std::future::pending().boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_stuck_probe_fails_and_the_next_is_sent() {
    let probes = probes(&Arc::new(Stuck));
    assert_eq!(revision(&probes).await, None);
    assert_eq!(revision(&probes).await, None);
}

/// All calls within a gap share the probe after it, and each probe is sent after all of its calls.
#[tokio::test(start_paused = true)]
async fn the_calls_of_a_gap_share_the_next_probe() {
    const GAP: Duration = Duration::from_millis(150);
    const CALLS: u32 = 400;
    let counting = Arc::new(Counting::default());
    let probes = probes(&counting);
    let begin = Instant::now();
    let calls = (0..CALLS).map(|number| {
        let probes = &probes;
        async move {
            sleep(Duration::from_millis(1) * number).await;
            let called = Instant::now();
            let probed = probes.probed(GAP).await.unwrap();
            let number = u32::try_from(probed.page.resource_version.0).unwrap() - 1;
            let sent = begin + GAP * number;
            assert!(sent >= called, "the probe was sent before the call");
            assert_eq!(Instant::now(), sent + PROBE_DURATION);
        }
    });
    join_all(calls).await;
    // At 0, 150, 300 and 450 ms.
    assert_eq!(counting.calls.load(Ordering::Relaxed), 4);
}

#[tokio::test(start_paused = true)]
async fn a_single_call_waits_for_no_gap() {
    let probes = probes(&Arc::new(Counting::default()));
    let gap = Duration::from_millis(150);
    probes.probed(gap).await.unwrap();
    assert_eq!(probes.expected_wait(gap), gap);
    sleep(gap).await;
    assert_eq!(probes.expected_wait(gap), PROBE_DURATION);
    let called = Instant::now();
    probes.probed(gap).await.unwrap();
    assert_eq!(called.elapsed(), PROBE_DURATION);
}

//! Tests of the sharing of probes.

use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use super::*;

/// Learns the count of its calls, after a while.
#[derive(Default)]
struct Counting {
    calls: AtomicU64,
}

const FLIGHT: Duration = Duration::from_millis(100);

impl Probe for Counting {
    fn probe(&self) -> BoxFuture<'_, Result<ResourceVersion, UpstreamError>> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        sleep(FLIGHT).map(move |()| Ok(ResourceVersion(call))).boxed()
    }
}

fn probes<P: Probe>(probe: &Arc<P>) -> Arc<Probes> {
    let metrics = CacheMetrics::register(&prometheus::Registry::new()).unwrap();
    Arc::new(Probes::new(Arc::clone(probe) as Arc<dyn Probe>, TaskTracker::new(), metrics))
}

#[tokio::test(start_paused = true)]
async fn a_thousand_at_once_cost_two_probes() {
    let counting = Arc::new(Counting::default());
    let probes = probes(&counting);
    let learnt = join_all((0..1000).map(|_| probes.resource_version())).await;
    assert!(learnt.iter().all(Result::is_ok));
    assert!(counting.calls.load(Ordering::Relaxed) <= 2);
}

#[tokio::test(start_paused = true)]
async fn nobody_uses_a_probe_sent_before_they_came() {
    let counting = Arc::new(Counting::default());
    let probes = probes(&counting);
    let first = async { (probes.resource_version().await, Instant::now()) };
    let late = |after| {
        let probes = &probes;
        async move {
            sleep(after).await;
            (probes.resource_version().await, Instant::now())
        }
    };
    let begin = Instant::now();
    let millis = Duration::from_millis;
    let (first, second, third) = tokio::join!(first, late(millis(10)), late(millis(90)));
    assert_eq!(first, (Ok(ResourceVersion(1)), begin + FLIGHT));
    assert_eq!(second, (Ok(ResourceVersion(2)), begin + FLIGHT * 2));
    assert_eq!(third, second);
    assert_eq!(probes.resource_version().await, Ok(ResourceVersion(3)));
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_nobody_awaits_any_more_is_not_sent() {
    let counting = Arc::new(Counting::default());
    let probes = probes(&counting);
    let first = probes.resource_version();
    let given_up = async {
        sleep(FLIGHT / 2).await;
        tokio::time::timeout(FLIGHT / 4, probes.resource_version()).await.unwrap_err();
    };
    let (first, ()) = tokio::join!(first, given_up);
    assert_eq!(first, Ok(ResourceVersion(1)));
    sleep(FLIGHT * 3).await;
    assert_eq!(counting.calls.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn one_who_gives_up_takes_nobody_along() {
    let counting = Arc::new(Counting::default());
    let probes = probes(&counting);
    let impatient = tokio::time::timeout(FLIGHT / 2, probes.resource_version());
    let patient = async {
        sleep(FLIGHT / 4).await;
        probes.resource_version().await
    };
    let (impatient, patient) = tokio::join!(impatient, patient);
    assert!(impatient.is_err());
    assert_eq!(patient, Ok(ResourceVersion(2)));
}

/// Never answers.
struct Stuck;

impl Probe for Stuck {
    fn probe(&self) -> BoxFuture<'_, Result<ResourceVersion, UpstreamError>> {
        std::future::pending().boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_stuck_probe_fails_and_the_next_is_sent() {
    let probes = probes(&Arc::new(Stuck));
    assert_eq!(probes.resource_version().await, Err(ProbeFailed));
    assert_eq!(probes.resource_version().await, Err(ProbeFailed));
}

//! Consistent lists: each finds a proof by a probe that was sent after it arrived, or is forwarded
//! while that is still quick.

use tokio::time::sleep;

use super::*;
use crate::cache::proof::consistent_list::NoProof;

const MS: Duration = Duration::from_millis(1);
/// How long it takes to forward a list of a large collection.
const LONG: Duration = Duration::from_millis(300);

impl Rig {
    async fn list(&self, forwarding: Option<Duration>) -> Result<u64, NoProof> {
        let handle = CacheHandle::new(self.cached.clone());
        let state = handle.consistent_state(Instant::now(), forwarding, WITHIN).await;
        state.map(|state| state.resource_version().0)
    }

    /// Sends lists at intervals of `every` for a second.
    async fn lists_every(
        &self,
        every: Duration,
        forwarding: Duration,
    ) -> Vec<Result<u64, NoProof>> {
        let count = u32::try_from(1000 / every.as_millis()).unwrap();
        join_all((0..count).map(|number| async move {
            sleep(every * number).await;
            self.list(Some(forwarding)).await
        }))
        .await
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_alone_waits_for_a_probe_if_forwarding_takes_longer() {
    let rig = Rig::with(2, ConsistentLists::Auto).await;
    rig.script.on_probe(2000);
    sleep(MS).await;
    assert_eq!(rig.list(Some(LONG)).await, Ok(2000));
    assert_eq!(rig.script.probes(), 1);
    sleep(LONG).await;
    // Not measured yet, or as cheap as a proof.
    assert_eq!(rig.list(None).await, Err(NoProof::NotTried));
    assert_eq!(rig.list(Some(3 * MS)).await, Err(NoProof::NotTried));
    assert_eq!(rig.script.probes(), 1);
    rig.assert_steps(&[("held", 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_alone_is_forwarded_after_half_the_time_that_takes() {
    let rig = Rig::with(2, ConsistentLists::Auto).await;
    sleep(MS).await;
    let began = Instant::now();
    assert_eq!(rig.list(Some(LONG)).await, Err(NoProof::Late));
    assert!(began.elapsed() <= LONG / 2 + MS, "{:?}", began.elapsed());
    // It asked for nothing but a probe: the collection would be as dear as the list itself.
    assert!(rig.lists().is_empty());
    assert_eq!(rig.script.watches.lock().len(), 1);
    rig.assert_steps(&[("forwarded", 1)]);
    // An event in time is the proof.
    let event = async {
        sleep(100 * MS).await;
        rig.feed.send(vec![upsert("new", 2006)]);
    };
    let (list, ()) = tokio::join!(rig.list(Some(LONG)), event);
    assert_eq!(list, Ok(2006));
    rig.assert_steps(&[("event", 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_small_lists_a_second_cost_fifty_probes() {
    let rig = Rig::with(50, ConsistentLists::Auto).await;
    rig.script.on_probe(2000);
    sleep(MS).await;
    let lists = rig.lists_every(MS, 3 * MS).await;
    let proved = lists.iter().filter(|list| **list == Ok(2000)).count();
    // The first ones show no crowd yet.
    assert!(proved >= 900, "{proved}");
    assert!(rig.script.probes() <= 51, "{}", rig.script.probes());
}

/// While other resources are written, a quiet one never reaches a probe's resourceVersion alone.
#[tokio::test(start_paused = true)]
async fn a_crowd_shares_lists_of_a_small_quiet_collection() {
    let rig = Rig::with(50, ConsistentLists::Auto).await;
    sleep(MS).await;
    let upstream = async {
        let mut answered = 0;
        for number in 1..=1200 {
            sleep(MS).await;
            let at = 2005 + number / 20;
            rig.script.on_probe(at);
            while answered < rig.lists().len() {
                rig.script.on_list(Ok(page(at, "", vec![object("1", 1)])));
                answered += 1;
            }
        }
    };
    let lists = rig.lists_every(MS, 3 * MS);
    let (lists, ()) = tokio::join!(lists, upstream);
    let proved = lists.iter().filter(|list| list.is_ok()).count();
    assert!(proved >= 900, "{proved}");
    let probes = rig.script.probes();
    assert!(probes <= 51 && (10..=probes).contains(&rig.lists().len()), "{probes}");
}

#[tokio::test(start_paused = true)]
async fn a_crowd_waits_for_a_short_watch_of_a_large_quiet_collection() {
    let rig = Rig::with(1100, ConsistentLists::Auto).await;
    sleep(MS).await;
    let watches: Vec<_> = (0..8).map(|_| rig.script.on_watch()).collect();
    let bookmarks = async {
        sleep(1100 * MS).await;
        for (number, watch) in (0..).zip(&watches) {
            watch.send(vec![bookmark(2005 + number, false)]);
            sleep(250 * MS).await;
        }
    };
    let lists = rig.lists_every(20 * MS, LONG);
    let (lists, ()) = tokio::join!(lists, bookmarks);
    let proved = lists.iter().filter(|list| list.is_ok()).count();
    assert!(proved >= 40, "{proved} of {}", lists.len());
    assert!(rig.lists().is_empty());
}

#[tokio::test(start_paused = true)]
async fn no_list_uses_a_probe_that_was_sent_before_it_arrived() {
    let rig = Rig::with(2, ConsistentLists::Auto).await;
    rig.script.on_probe(2000);
    sleep(MS).await;
    // Each write happens between the arrival of two lists.
    for written in 2001..2020 {
        rig.script.on_probe(written);
        rig.feed.send(vec![upsert("1", written)]);
        let lists = join_all((0..5).map(|_| rig.list(Some(LONG)))).await;
        assert!(
            lists.iter().all(|list| list.is_ok_and(|at| at >= written)),
            "{lists:?} at {written}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_probe_forwards_at_once() {
    let rig = Rig::with(2, ConsistentLists::Auto).await;
    sleep(MS).await;
    rig.script.refuse(Some(status(500, "no")), None);
    let began = Instant::now();
    assert_eq!(rig.list(Some(LONG)).await, Err(NoProof::Late));
    assert_eq!(began.elapsed(), Duration::ZERO);
    // After some failures lists that are alone do not try.
    for _ in 0..2 {
        sleep(LONG).await;
        assert_eq!(rig.list(Some(LONG)).await, Err(NoProof::Late));
    }
    sleep(LONG).await;
    assert_eq!(rig.list(Some(LONG)).await, Err(NoProof::NotTried));
}

#[tokio::test(start_paused = true)]
async fn a_listed_state_of_a_lost_history_is_not_shown() {
    let rig = Rig::with(2, ConsistentLists::Always).await;
    sleep(MS).await;
    rig.script.on_list(Ok(page(2007, "", vec![object("1", 1)])));
    assert_eq!(rig.list(None).await, Ok(2007));
    rig.cached.context.history.rewind();
    rig.script.on_list(Ok(page(2008, "", vec![object("1", 1)])));
    assert!(rig.list(None).await.is_err());
}

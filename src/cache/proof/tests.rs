//! Proofs against scripted upstreams, in paused time.

mod consistent_lists;

use bytes::Buf as _;
use futures_util::future::join_all;
use tokio::task::JoinHandle;

use super::*;
use crate::api::resource::{Representation, Scope};
use crate::cache::context::CacheContext;
use crate::cache::core::watch_cache::WatchRefusal;
use crate::cache::core::watcher::{Batch, WatchFilter, WatchStart, Watcher};
use crate::cache::handle::CacheHandle;
use crate::cache::key::CacheKey;
use crate::cache::metrics::CacheMetrics;
use crate::cache::reflector::{self, StartOptions};
use crate::cache::script::{Feed, Script, bookmark, config, object, page, seams, status, upsert};
use crate::config::{CacheConfig, ConsistentLists};
use crate::testing::config_maps;
use crate::upstream::lister_watcher::{ListRequest, UpstreamEvent};
use crate::upstream::testing::availability;

const WITHIN: Duration = Duration::from_secs(3);

struct Rig {
    script: Arc<Script>,
    cached: Arc<CachedResource>,
    feed: Feed,
    metrics: prometheus::Registry,
    _task: JoinHandle<Refusal>,
}

impl Rig {
    /// Starts a cache with `objects` objects at resourceVersion 2000. Its upstream is at 2005.
    async fn new(objects: u64) -> Self {
        Self::with(objects, ConsistentLists::Forward).await
    }

    async fn with(objects: u64, consistent_lists: ConsistentLists) -> Self {
        let metrics = prometheus::Registry::new();
        let families = CacheMetrics::register(&metrics).unwrap();
        let config = Arc::new(CacheConfig { consistent_lists, ..config() });
        let context = Arc::new(CacheContext::new(config, seams(), families, availability()));
        let (script, resource) = (Arc::new(Script::default()), Arc::new(config_maps()));
        let (gvr, representation) = (resource.gvr.clone(), Representation::Json);
        let key = CacheKey { gvr, representation, scope: Scope::Cluster };
        let cached = Arc::new(CachedResource::new(key, resource, script.clone(), context, false));
        let running = reflector::run(cached.clone(), StartOptions::default());
        let feed = script.on_watch();
        let initial = (1..=objects).map(|number| upsert(&number.to_string(), number));
        feed.send(initial.chain([bookmark(2000, true)]).collect());
        let task = tokio::spawn(running);
        cached.watch_cache.progress().wait_for(Option::is_some).await.unwrap();
        script.on_probe(2005);
        Self { script, cached, feed, metrics, _task: task }
    }

    async fn fresh(&self, requested: Option<u64>) -> Result<FreshState, Refusal> {
        fresh_state(&self.cached, requested.map(ResourceVersion), WITHIN).await
    }

    fn held(&self) -> u64 {
        self.cached.watch_cache.state().unwrap().resource_version().0
    }

    fn watch(&self, state: &FreshState) -> Result<Watcher, WatchRefusal> {
        CacheHandle::new(self.cached.clone()).watch_from(WatchFilter::default(), state)
    }

    /// Returns the lists without the probes.
    fn lists(&self) -> Vec<ListRequest> {
        let lists = self.script.lists.lock();
        lists.iter().filter(|list| list.limit != Some(1)).cloned().collect()
    }

    fn assert_steps(&self, expected: &[(&str, u64)]) {
        let text = prometheus::TextEncoder::new().encode_to_string(&self.metrics.gather()).unwrap();
        for (step, count) in expected {
            let label = format!("step=\"{step}\"");
            let counted = text
                .lines()
                .filter(|line| line.starts_with("weir_freshness_proofs_total{"))
                .filter(|line| line.contains(&label))
                .any(|line| line.ends_with(&format!(" {count}")));
            assert!(counted, "{step} {count}: {text}");
        }
    }
}

fn drain(watcher: &mut Watcher) -> String {
    let mut text = String::new();
    loop {
        match watcher.next_batch(1 << 20) {
            Batch::Frames { chunks, .. } => text += std::str::from_utf8(&chunks.concat()).unwrap(),
            Batch::InitialEvents { mut frames, .. } => {
                let frames = frames.copy_to_bytes(frames.remaining());
                text += std::str::from_utf8(&frames).unwrap();
            }
            Batch::InitialEventsEnd(at) => text += &format!("END {at}\n"),
            Batch::Yield => {}
            Batch::Idle | Batch::Ended(_) => return text,
        }
    }
}

fn names(text: &str) -> Vec<String> {
    let short = |line: &str| match serde_json::from_str::<serde_json::Value>(line) {
        Ok(event) => format!(
            "{} {}",
            event["type"].as_str().unwrap(),
            event["object"]["metadata"]["name"].as_str().unwrap()
        ),
        Err(_) => line.to_owned(),
    };
    text.lines().map(short).collect()
}

#[tokio::test(start_paused = true)]
async fn a_held_state_is_proved_fresh_by_the_probe_alone() {
    let rig = Rig::new(2).await;
    rig.script.on_probe(2000);
    assert!(matches!(rig.fresh(None).await, Ok(FreshState::Held)));
    assert!(matches!(rig.fresh(Some(1999)).await, Ok(FreshState::Held)));
    assert_eq!(rig.script.probes(), 1);
    rig.script.on_probe(2003);
    let event = async {
        tokio::time::sleep(Duration::from_millis(2)).await;
        rig.feed.send(vec![upsert("new", 2003)]);
    };
    let (fresh, ()) = tokio::join!(rig.fresh(None), event);
    assert!(matches!(fresh, Ok(FreshState::Held)));
    assert!(rig.lists().is_empty());
    rig.assert_steps(&[("held", 2), ("event", 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_small_quiet_collection_is_listed_once_for_all_waiting_requests() {
    let rig = Rig::new(2).await;
    rig.script.on_list(Ok(page(2007, "", vec![object("1", 1), object("3", 2006)])));
    let proofs = join_all((0..500).map(|_| rig.fresh(None))).await;
    let lists = rig.lists();
    assert_eq!(lists.len(), 1);
    // The probe has brought the upstream's own cache to it.
    assert_eq!(lists[0].resource_version, Some(ResourceVersion(2005)));
    assert_eq!(lists[0].resource_version_match, "NotOlderThan");
    let mut watchers: Vec<_> =
        proofs.iter().map(|state| rig.watch(state.as_ref().unwrap()).unwrap()).collect();
    // The cache's own state has not changed. The present watcher gets the events from the stream.
    assert_eq!(rig.held(), 2000);
    let mut present = rig.watch(&FreshState::Held).unwrap();
    assert_eq!(names(&drain(&mut present)), ["ADDED 1", "ADDED 2", "END 2000"]);
    for watcher in &mut watchers {
        assert_eq!(names(&drain(watcher)), ["ADDED 1", "ADDED 3", "END 2007"]);
    }
    rig.feed.send(vec![
        UpstreamEvent::Delete(object("2", 2005)),
        upsert("3", 2006),
        bookmark(2007, false),
        upsert("3", 2008),
    ]);
    rig.cached.watch_cache.progress().wait_for(|held| held.unwrap().0 == 2008).await.unwrap();
    assert_eq!(names(&drain(&mut present)), ["DELETED 2", "ADDED 3", "MODIFIED 3"]);
    for watcher in &mut watchers {
        assert_eq!(names(&drain(watcher)), ["MODIFIED 3"]);
    }
    rig.assert_steps(&[("list", 500)]);
    drop(proofs);
    rig.cached.gate.drop_overtaken();
    assert_eq!(rig.cached.context.budget.used(), rig.cached.account.state());
}

#[tokio::test(start_paused = true)]
async fn a_failed_older_or_partial_list_is_not_used_as_proof() {
    let failures = [
        Err(status(504, "too large")),
        Ok(page(2004, "", Vec::new())),
        Ok(page(2006, "more", Vec::new())),
    ];
    for answer in failures {
        let rig = Rig::new(2).await;
        rig.script.on_list(answer);
        assert_eq!(rig.fresh(None).await.unwrap_err(), Refusal::NotFresh);
        rig.assert_steps(&[("forwarded", 1)]);
    }
    // A resourceVersion that the upstream has not reached is not waited for.
    let rig = Rig::new(2).await;
    assert_eq!(rig.fresh(Some(2006)).await.unwrap_err(), Refusal::NotFresh);
    assert!(rig.lists().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_watch_never_starts_from_a_lost_history() {
    let rig = Rig::new(2).await;
    rig.script.on_list(Ok(page(2007, "", Vec::new())));
    let state = rig.fresh(None).await.unwrap();
    rig.cached.context.history.rewind();
    assert_eq!(rig.watch(&state).unwrap_err(), WatchRefusal::NotReady);
}

#[tokio::test(start_paused = true)]
async fn one_short_watch_proves_that_a_large_collection_is_quiet() {
    let rig = Rig::new(1100).await;
    let short = rig.script.on_watch();
    let began = Instant::now();
    let bookmark_later = async {
        tokio::time::sleep(Duration::from_millis(1200)).await;
        short.send(vec![bookmark(2006, false)]);
    };
    let proofs = join_all((0..500).map(|_| rig.fresh(None)));
    let (proofs, ()) = tokio::join!(proofs, bookmark_later);
    assert!(proofs.iter().all(|state| matches!(state, Ok(FreshState::Held))));
    assert!(began.elapsed() < WITHIN);
    assert_eq!(rig.held(), 2006);
    assert!(rig.lists().is_empty());
    let watches = rig.script.watches.lock();
    assert_eq!(watches.len(), 2);
    assert_eq!(watches[1].resource_version, Some(ResourceVersion(2000)));
    assert_eq!((watches[1].timeout_seconds, watches[1].send_initial_events), (3, false));
    rig.assert_steps(&[("short-watch", 500)]);
    assert!(!short.is_held());
}

/// Otherwise the present watchers would miss the event that the short watch received.
#[tokio::test(start_paused = true)]
async fn a_short_watch_proves_nothing_before_the_stream_has_its_events() {
    let rig = Rig::new(1100).await;
    let mut present = rig.watch(&FreshState::Held).unwrap();
    drain(&mut present);
    let short = rig.script.on_watch();
    short.send(vec![upsert("new", 2003), bookmark(2006, false)]);
    let stream = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(rig.held(), 2000);
        rig.feed.send(vec![upsert("new", 2003)]);
    };
    let (fresh, ()) = tokio::join!(rig.fresh(None), stream);
    assert!(matches!(fresh, Ok(FreshState::Held)));
    assert_eq!(rig.held(), 2006);
    assert_eq!(names(&drain(&mut present)), ["ADDED new"]);
}

#[tokio::test(start_paused = true)]
async fn a_short_watch_without_a_new_bookmark_is_no_proof() {
    let rig = Rig::new(1100).await;
    rig.script.on_watch_fail(status(500, "no"));
    assert_eq!(rig.fresh(None).await.unwrap_err(), Refusal::NotFresh);
    // The watch ends without a bookmark.
    drop(rig.script.on_watch());
    assert_eq!(rig.fresh(None).await.unwrap_err(), Refusal::NotFresh);
    assert_eq!(rig.script.watches.lock().len(), 3);
    // The watch reaches an instance that lags, and the next watch is silent.
    let lagging = rig.script.on_watch();
    lagging.send(vec![bookmark(2004, false)]);
    assert_eq!(rig.fresh(None).await.unwrap_err(), Refusal::NotFresh);
    assert_eq!(rig.held(), 2004);
    rig.assert_steps(&[("forwarded", 3)]);
}

#[tokio::test(start_paused = true)]
async fn a_cache_started_for_the_request_needs_no_probe() {
    let since = Instant::now();
    let rig = Rig::new(2).await;
    let handle = CacheHandle::new(rig.cached.clone());
    let fresh = handle.fresh_state(None, since, WITHIN).await;
    assert!(matches!(fresh, Ok(FreshState::Held)));
    assert_eq!(rig.script.probes(), 0);
    let later = since + Duration::from_millis(1);
    rig.script.on_probe(2000);
    handle.fresh_state(None, later, WITHIN).await.unwrap();
    assert_eq!(rig.script.probes(), 1);
}

/// Otherwise a client that read what the watch began with would see it taken back.
#[tokio::test(start_paused = true)]
async fn no_read_after_a_consistent_start_shows_an_older_state() {
    let rig = Rig::new(2).await;
    let handle = CacheHandle::new(rig.cached.clone());
    let newest = || handle.newest_state().unwrap().resource_version().0;
    assert_eq!(newest(), 2000);
    rig.script.on_list(Ok(page(2007, "", vec![object("1", 1), object("3", 2006)])));
    let listed = rig.fresh(None).await.unwrap();
    assert!(matches!(listed, FreshState::Listed(_)));
    drop(listed);
    assert_eq!((rig.held(), newest()), (2000, 2007));
    assert!(handle.newest_state().unwrap().get(&object("3", 0).key).is_some());
    // Neither does a start that the held state would satisfy, or a watch of the events to come.
    assert!(matches!(rig.fresh(Some(1999)).await, Ok(FreshState::Listed(_))));
    assert!(matches!(handle.newest_start(), FreshState::Listed(_)));
    assert_eq!(handle.start_now(), WatchStart::After(ResourceVersion(2007)));
    handle.wait_until_fresh(ResourceVersion(2007), Duration::ZERO).await.unwrap();
    let gvr = &rig.cached.key.gvr;
    assert_eq!(rig.cached.context.floors.get(gvr, 0), Some(ResourceVersion(2007)));
    // The cache's own stream comes further.
    rig.feed.send(vec![bookmark(2008, false)]);
    rig.cached.watch_cache.progress().wait_for(|held| held.unwrap().0 == 2008).await.unwrap();
    assert_eq!(newest(), 2008);
    rig.cached.gate.drop_overtaken();
    assert_eq!(rig.cached.context.budget.used(), rig.cached.account.state());
}

/// The cache overtakes listed states while others read.
#[tokio::test]
async fn reads_beside_proofs_never_go_back() {
    let rig = Rig::new(2).await;
    let (cached, first) = (&rig.cached, rig.held());
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut last = ResourceVersion(0);
            while !is_over.load(Ordering::Relaxed) {
                let resource_version = cached.gate.state().unwrap().resource_version();
                assert!(last <= resource_version, "{resource_version} after {last}");
                last = resource_version;
            }
        });
        for round in 1..=20_000 {
            let listed = ResourceVersion(first + round * 2 - 1);
            let (state, _) = cached.watch_cache.state().unwrap().with_list(Vec::new(), listed);
            let claim = cached.context.budget.claim(0);
            let listed = ListedState { state: Arc::new(state), generation: 0, _claim: claim };
            cached.gate.show(&Arc::new(listed));
            cached.apply_progress(0, ResourceVersion(first + round * 2));
        }
        is_over.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
}

#[tokio::test(start_paused = true)]
async fn a_request_that_comes_during_a_short_watch_does_not_wait_for_its_end() {
    let rig = Rig::new(1100).await;
    rig.cached.context.watch_list.set_supported(Some(false));
    let (first, second) = (rig.script.on_watch(), rig.script.on_watch());
    let began = Instant::now();
    let later = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        rig.script.on_probe(2009);
        let fresh = rig.fresh(None).await;
        (fresh, began.elapsed())
    };
    let bookmarks = async {
        tokio::time::sleep(Duration::from_millis(1200)).await;
        first.send(vec![bookmark(2005, false)]);
        tokio::time::sleep(Duration::from_millis(300)).await;
        second.send(vec![bookmark(2009, false)]);
    };
    let (early, (late, elapsed), ()) = tokio::join!(rig.fresh(None), later, bookmarks);
    assert!(early.is_ok() && late.is_ok());
    assert!(elapsed < Duration::from_millis(1600), "{elapsed:?}");
    let watches = rig.script.watches.lock();
    let reached: Vec<_> = watches.iter().filter_map(|watch| watch.after_reaching).collect();
    assert_eq!(reached, [ResourceVersion(2005), ResourceVersion(2009)]);
}

#[tokio::test(start_paused = true)]
async fn a_list_of_another_cluster_is_no_proof() {
    let rig = Rig::new(2).await;
    // A refusal is not repeated at once.
    tokio::time::sleep(Duration::from_secs(31)).await;
    *rig.script.cluster.lock() = Some("a".to_owned());
    rig.script.connections.fetch_add(1, Ordering::Relaxed);
    assert!(rig.cached.is_same_cluster(0).await);
    *rig.script.cluster.lock() = Some("b".to_owned());
    rig.script.connections.fetch_add(1, Ordering::Relaxed);
    rig.script.on_list(Ok(page(2007, "", Vec::new())));
    assert_eq!(rig.fresh(None).await.unwrap_err(), Refusal::NotFresh);
    assert_eq!(rig.cached.context.history.generation(), 1);
}

#[tokio::test(start_paused = true)]
async fn each_probe_compares_the_number_of_objects() {
    let rig = Rig::new(2).await;
    let checked = |outcome: &str| {
        let text = prometheus::TextEncoder::new().encode_to_string(&rig.metrics.gather()).unwrap();
        let label = format!("outcome=\"{outcome}\"");
        let line =
            |line: &&str| line.starts_with("weir_cache_checks_total{") && line.contains(&label);
        text.lines()
            .find(line)
            .map_or(0, |line| line.split(' ').next_back().unwrap().parse().unwrap())
    };
    rig.script.on_probe(2000);
    *rig.script.probed_objects.lock() = Some(2);
    rig.fresh(None).await.unwrap();
    assert_eq!((checked("equal"), checked("different")), (1, 0));
    // The number waits until the cache has come that far, and counts back what is newer.
    rig.script.on_probe(2003);
    *rig.script.probed_objects.lock() = Some(3);
    let events = async {
        tokio::time::sleep(Duration::from_millis(2)).await;
        rig.feed.send(vec![upsert("3", 2003), upsert("4", 2004)]);
    };
    let (fresh, ()) = tokio::join!(rig.fresh(None), events);
    fresh.unwrap();
    rig.cached.counts.settle(&rig.cached.counted());
    assert_eq!((checked("equal"), checked("different")), (2, 0));
    // An event was lost.
    rig.script.on_probe(2004);
    *rig.script.probed_objects.lock() = Some(5);
    rig.fresh(None).await.unwrap();
    assert_eq!((checked("equal"), checked("different")), (2, 1));
    // A number of another history says nothing.
    rig.cached.context.history.rewind();
    rig.cached.counts.observe(&rig.cached.counted(), 0, &page(2004, "", Vec::new()));
    assert_eq!((checked("equal"), checked("different")), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_list_of_an_aggregated_api_server_is_no_proof() {
    let rig = Rig::new(2).await;
    rig.script.is_aggregated.store(true, Ordering::Relaxed);
    rig.script.on_list(Ok(page(2007, "", Vec::new())));
    assert_eq!(rig.fresh(None).await.unwrap_err(), Refusal::NotFresh);
    assert!(rig.cached.gate.listed().is_none());
}

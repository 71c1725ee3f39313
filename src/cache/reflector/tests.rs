//! Tests of the reflector against scripted upstreams, in paused time.

mod bookmarks;
mod clusters;
mod definitions;
mod disorder;
mod lists;
mod model;
mod refusals;
mod returns;
mod waits;

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::*;
use crate::api::resource::{ApiResource, Representation, Scope};
use crate::api::resource_version::ResourceVersion;
use crate::cache::context::CacheContext;
use crate::cache::core::watch_cache::EndCause;
use crate::cache::core::watcher::{Batch, WatchFilter, WatchStart};
use crate::cache::key::CacheKey;
use crate::cache::metrics::CacheMetrics;
use crate::cache::script::{
    Feed, Script, bookmark, config, listed, object, page, rewritten, seams, status, upsert,
};
use crate::config::{CacheConfig, OnRelist};
use crate::testing::eventually;
use crate::testing::{config_maps, widgets};
use crate::upstream::error::UpstreamError;
use crate::upstream::lister_watcher::UpstreamEvent;
use crate::upstream::testing::availability;

struct Rig {
    script: Arc<Script>,
    cached: Arc<CachedResource>,
    task: JoinHandle<Refusal>,
}

impl Rig {
    fn new() -> Self {
        Self::with(context(config()), None)
    }

    fn with(context: Arc<CacheContext>, first_at: Option<u64>) -> Self {
        let list_at = first_at.map(ResourceVersion);
        let options = StartOptions { list_at, ..StartOptions::default() };
        Self::with_options(config_maps(), context, options)
    }

    fn with_options(
        resource: ApiResource,
        context: Arc<CacheContext>,
        options: StartOptions,
    ) -> Self {
        let script = Arc::new(Script::default());
        let resource = Arc::new(resource);
        let key = CacheKey {
            gvr: resource.gvr.clone(),
            representation: Representation::Json,
            scope: Scope::Cluster,
        };
        let cached = Arc::new(CachedResource::new(key, resource, script.clone(), context, false));
        let running = run(cached.clone(), options);
        Self { script, cached, task: tokio::spawn(running) }
    }

    /// Creates a reflector whose state is `a` at 10, from a watch list that continues with the
    /// feed.
    async fn established(context: Arc<CacheContext>) -> (Self, Feed) {
        Self::established_with(config_maps(), context).await
    }

    async fn established_with(resource: ApiResource, context: Arc<CacheContext>) -> (Self, Feed) {
        let rig = Self::with_options(resource, context, StartOptions::default());
        let feed = rig.script.on_watch();
        feed.send(vec![upsert("a", 9), bookmark(10, true)]);
        rig.reaches(10).await;
        (rig, feed)
    }

    fn held(&self) -> Option<u64> {
        self.cached.watch_cache.state().map(|state| state.resource_version().0)
    }

    fn names(&self) -> Vec<String> {
        let state = self.cached.watch_cache.state().unwrap();
        let objects = state.select(&WatchFilter::default());
        objects.iter().map(|object| object.key.name().to_owned()).collect()
    }

    async fn reaches(&self, resource_version: u64) {
        let what = format!("resourceVersion {resource_version}");
        eventually(&what, || self.held() == Some(resource_version)).await;
    }
}

pub(super) fn context(config: CacheConfig) -> Arc<CacheContext> {
    let metrics = CacheMetrics::register(&prometheus::Registry::new()).unwrap();
    Arc::new(CacheContext::new(Arc::new(config), seams(), metrics, availability()))
}

#[tokio::test(start_paused = true)]
async fn a_clean_end_resumes_at_once_and_events_wait_for_the_probe() {
    let (rig, feed) = Rig::established(context(config())).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    let next = rig.script.on_watch();
    next.send(vec![upsert("b", 11)]);
    let begin = Instant::now();
    drop(feed);
    eventually("the probe", || rig.script.probes() == 1).await;
    assert!(begin.elapsed() < Duration::from_millis(100));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(rig.held(), Some(10));
    rig.script.on_list(Ok(page(11, "", Vec::new())));
    rig.reaches(11).await;
    let asked = rig.script.watches.lock().last().cloned().unwrap();
    assert_eq!(
        (asked.resource_version, asked.send_initial_events),
        (Some(ResourceVersion(10)), false)
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_without_events_backs_off() {
    let (rig, feed) = Rig::established(context(config())).await;
    rig.script.on_probe(10);
    for _ in 0..3 {
        drop(rig.script.on_watch());
    }
    let begin = Instant::now();
    drop(feed);
    eventually("the fifth watch", || rig.script.watches.lock().len() == 5).await;
    assert!(begin.elapsed() >= Duration::from_millis(800 + 1600 + 3200), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_watch_past_its_deadline_is_reopened() {
    let (rig, feed) = Rig::established(context(config())).await;
    rig.script.on_probe(10);
    let begin = Instant::now();
    let next = rig.script.on_watch();
    next.send(vec![upsert("b", 11)]);
    rig.reaches(11).await;
    assert!(!feed.is_held());
    assert!(begin.elapsed() >= Duration::from_secs(300));
    assert!(begin.elapsed() <= Duration::from_secs(620));
}

#[tokio::test(start_paused = true)]
async fn a_rewound_history_drops_every_cache() {
    let context = context(config());
    let (rig, feed) = Rig::established(context.clone()).await;
    let (other, _other_feed) = Rig::established(context.clone()).await;
    let mut watcher =
        rig.cached.watch_cache.watch(WatchFilter::default(), WatchStart::Now).unwrap();
    let poisoned = rig.script.on_watch();
    poisoned.send(vec![upsert("poison", 11)]);
    rig.script.on_probe(4);
    feed.fail(UpstreamError::Lost("reset".to_owned()));
    eventually("both caches to be dropped", || rig.held().is_none() && other.held().is_none())
        .await;
    assert!(matches!(watcher.next_batch(1 << 20), Batch::Ended(_)));
    for rig in [&rig, &other] {
        let relisted = rig.script.on_watch();
        relisted.send(vec![upsert("old", 3), bookmark(4, true)]);
        rig.reaches(4).await;
        assert_eq!(rig.names(), ["old"]);
        assert_eq!(rig.script.watches.lock().last().unwrap().resource_version, None);
    }
    assert_eq!(context.history.generation(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_requested_verification_probes_during_the_open_watch() {
    let (rig, feed) = Rig::established(context(config())).await;
    rig.script.on_probe(10);
    rig.cached.requests.verify.notify_one();
    eventually("the probe", || rig.script.probes() == 1).await;
    feed.send(vec![upsert("b", 11)]);
    rig.reaches(11).await;
    rig.script.on_probe(5);
    rig.cached.requests.verify.notify_one();
    eventually("the cache to be dropped", || rig.held().is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_stays_behind_counts_as_rewound() {
    let (rig, feed) = Rig::established(context(config())).await;
    // A probe would show it sooner.
    rig.script.refuse(Some(status(500, "no lists")), None);
    feed.send(vec![UpstreamEvent::Error(status(410, "too old"))]);
    let begin = Instant::now();
    let behind = || status(504, "Timeout: Too large resource version: 10, current: 4");
    while rig.script.watches.lock().last().unwrap().resource_version.is_some()
        || rig.script.watches.lock().len() < 3
    {
        rig.script.on_watch_fail(behind());
        let asked = rig.script.watches.lock().len();
        eventually("the next watch", || rig.script.watches.lock().len() > asked).await;
    }
    assert!(begin.elapsed() >= Duration::from_secs(30));
    assert_eq!(rig.held(), Some(10));
    rig.script.refuse(None, None);
    rig.script.on_probe(4);
    // The response that is still queued fails too. The next one is the list of the old history.
    let relisted = rig.script.on_watch();
    relisted.send(vec![upsert("old", 3), bookmark(4, true)]);
    eventually("the report of the rewind", || rig.cached.context.history.generation() == 1).await;
    eventually("the cache to be dropped", || rig.held() != Some(10)).await;
}

#[tokio::test(start_paused = true)]
async fn a_requested_relist_compares_bytes() {
    let (rig, feed) = Rig::established(context(config())).await;
    let mut watcher =
        rig.cached.watch_cache.watch(WatchFilter::default(), WatchStart::Now).unwrap();
    for (listed, at) in [(object("a", 9), 20), (rewritten(&object("a", 9)), 30)] {
        let next = rig.script.on_watch();
        rig.cached.requests.relist.notify_one();
        next.send(vec![UpstreamEvent::Upsert(listed), bookmark(at, true)]);
        rig.reaches(at).await;
        let ended = matches!(watcher.next_batch(1 << 20), Batch::Ended(EndCause::Relist));
        assert_eq!(ended, at == 30);
        rig.script.keep(next);
    }
    assert!(!feed.is_held());
}

#[tokio::test(start_paused = true)]
async fn watches_end_on_a_relist_if_so_configured() {
    let config = CacheConfig { on_relist: OnRelist::EndStreams, ..config() };
    let (rig, feed) = Rig::established(context(config)).await;
    let mut watcher =
        rig.cached.watch_cache.watch(WatchFilter::default(), WatchStart::Now).unwrap();
    let next = rig.script.on_watch();
    next.send(vec![upsert("a", 9), bookmark(20, true)]);
    feed.send(vec![UpstreamEvent::Error(status(410, "too old"))]);
    rig.reaches(20).await;
    assert!(matches!(watcher.next_batch(1 << 20), Batch::Ended(EndCause::Relist)));
}

#[tokio::test(start_paused = true)]
async fn a_retired_cache_applies_the_remaining_events_of_its_watch() {
    let (rig, feed) = Rig::established(context(config())).await;
    rig.cached.lifecycle.retire(Refusal::Unknown);
    feed.send(vec![UpstreamEvent::Delete(object("a", 11))]);
    rig.reaches(11).await;
    drop(feed);
    assert_eq!(rig.task.await.unwrap(), Refusal::Unknown);
    assert_eq!(rig.script.watches.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_outgrows_its_budget_stops() {
    let context = context(CacheConfig { resource_bytes_max: 2000, ..config() });
    let (rig, feed) = Rig::established(context).await;
    feed.send((0..100).map(|n| upsert(&n.to_string(), 11 + n)).collect());
    assert_eq!(rig.task.await.unwrap(), Refusal::OverBudget);
}

#[tokio::test(start_paused = true)]
async fn stop_ends_the_reflector_with_the_first_refusal() {
    let (rig, feed) = Rig::established(context(config())).await;
    rig.cached.lifecycle.stop(Refusal::NotReady);
    rig.cached.lifecycle.stop(Refusal::OverBudget);
    assert_eq!(rig.task.await.unwrap(), Refusal::NotReady);
    assert!(!feed.is_held());
}

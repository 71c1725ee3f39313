//! Extending the history backwards, against scripted upstreams, in paused time.

use futures_util::future::join_all;
use tokio::task::JoinHandle;

use super::*;
use crate::api::resource::{Representation, Scope};
use crate::cache::context::CacheContext;
use crate::cache::core::watch_cache::WatchRefusal;
use crate::cache::core::watcher::{Batch, WatchFilter, Watcher};
use crate::cache::handle::CacheHandle;
use crate::cache::key::CacheKey;
use crate::cache::metrics::CacheMetrics;
use crate::cache::reflector::{self, StartOptions};
use crate::cache::refusal::Refusal;
use crate::cache::script::{Feed, Script, bookmark, config, object, page, seams, status, upsert};
use crate::testing::config_maps;
use crate::upstream::testing::availability;

const WITHIN: Duration = Duration::from_secs(10);

struct Rig {
    script: Arc<Script>,
    cached: Arc<CachedResource>,
    _feed: Feed,
    _task: JoinHandle<Refusal>,
}

impl Rig {
    /// Starts a cache that lists `a` at 90 and `b` at 95, at resourceVersion 100.
    async fn new() -> Self {
        let families = CacheMetrics::register(&prometheus::Registry::new()).unwrap();
        let context =
            Arc::new(CacheContext::new(Arc::new(config()), seams(), families, availability()));
        let (script, resource) = (Arc::new(Script::default()), Arc::new(config_maps()));
        let (gvr, representation) = (resource.gvr.clone(), Representation::Json);
        let key = CacheKey { gvr, representation, scope: Scope::Cluster };
        let cached = Arc::new(CachedResource::new(key, resource, script.clone(), context, false));
        let running = reflector::run(cached.clone(), StartOptions::default());
        let feed = script.on_watch();
        feed.send(vec![upsert("a", 90), upsert("b", 95), bookmark(100, true)]);
        let task = tokio::spawn(running);
        cached.watch_cache.progress().wait_for(Option::is_some).await.unwrap();
        Self { script, cached, _feed: feed, _task: task }
    }

    async fn watch(&self, after: u64) -> Result<Watcher, WatchRefusal> {
        let handle = CacheHandle::new(self.cached.clone());
        handle.watch_after(WatchFilter::default(), ResourceVersion(after), WITHIN).await
    }

    /// Returns from where the watches after the first one, that of the reflector, started.
    fn watched(&self) -> Vec<u64> {
        let watches = self.script.watches.lock();
        watches.iter().skip(1).map(|watch| watch.resource_version.unwrap().0).collect()
    }
}

fn events(watcher: &mut Watcher) -> usize {
    match watcher.next_batch(1 << 20) {
        Batch::Frames { events, .. } => events,
        _ => 0,
    }
}

fn refusal(begun: Result<Watcher, WatchRefusal>) -> bool {
    match begun {
        Err(WatchRefusal::Expired { began_after, .. }) => began_after,
        other => panic!("expected a refusal, not {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_crowd_of_older_watches_costs_one_watch_and_one_list() {
    let rig = Rig::new().await;
    let feed = rig.script.on_watch();
    // `a` was changed, `b` created. Another write follows what the cache has.
    feed.send(vec![upsert("a", 90), upsert("b", 95), upsert("a", 101)]);
    rig.script.on_list(Ok(page(80, "", vec![object("a", 70)])));
    let watches = join_all((80..100).map(|after| rig.watch(after))).await;
    for (after, watch) in (80..100).zip(watches) {
        let mut watch = watch.unwrap();
        assert_eq!(events(&mut watch), if after < 90 { 2 } else { usize::from(after < 95) });
        assert_eq!(events(&mut watch), 0);
    }
    assert_eq!(rig.watched(), [80]);
    let exact = rig.script.lists.lock().last().cloned().unwrap();
    assert_eq!(exact.resource_version, Some(ResourceVersion(80)));
    assert_eq!(exact.resource_version_match, "Exact");
    assert!(!feed.is_held());
    // The next one needs nothing.
    rig.watch(85).await.unwrap();
    assert_eq!(rig.watched(), [80]);
}

#[tokio::test(start_paused = true)]
async fn in_a_quiet_collection_a_bookmark_is_enough() {
    let rig = Rig::new().await;
    // The first watch ends before the upstream has a bookmark for it.
    drop(rig.script.on_watch());
    let feed = rig.script.on_watch();
    feed.send(vec![bookmark(99, false)]);
    feed.send(vec![bookmark(100, false)]);
    assert_eq!(events(&mut rig.watch(97).await.unwrap()), 0);
    assert_eq!(rig.watched(), [97, 97]);
    assert!(rig.script.lists.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_the_upstream_no_longer_has_is_expired_and_the_rest_streams() {
    let rig = Rig::new().await;
    let gone = rig.script.on_watch();
    let message = "too old resource version: 10 (92)";
    gone.send(vec![UpstreamEvent::Error(status(410, message))]);
    let feed = rig.script.on_watch();
    feed.send(vec![upsert("b", 95), bookmark(100, false)]);
    rig.script.on_list(Ok(page(94, "", vec![object("a", 90)])));
    let (old, edge, new) = tokio::join!(rig.watch(10), rig.watch(91), rig.watch(94));
    assert!(!refusal(old) && !refusal(edge));
    assert_eq!(events(&mut new.unwrap()), 1);
    assert_eq!(rig.watched(), [10, 94]);
    // It is known now.
    assert!(!refusal(rig.watch(50).await));
    assert_eq!(rig.watched(), [10, 94]);
}

#[tokio::test(start_paused = true)]
async fn an_exact_list_that_is_gone_is_a_410_too() {
    let rig = Rig::new().await;
    rig.script.on_watch().send(vec![upsert("a", 90), upsert("b", 95), bookmark(100, false)]);
    rig.script.on_list(Err(status(410, "The resourceVersion for the provided list is too old.")));
    assert!(!refusal(rig.watch(80).await));
}

#[tokio::test(start_paused = true)]
async fn a_failed_upstream_decides_itself_and_is_asked_again() {
    let rig = Rig::new().await;
    rig.script.on_watch_fail(status(503, "down"));
    assert!(refusal(rig.watch(97).await), "forwarded");
    rig.script.on_watch().send(vec![bookmark(100, false)]);
    rig.watch(97).await.unwrap();
    // A watch that never comes to its end does not hold up its client.
    let _silent = rig.script.on_watch();
    assert!(refusal(rig.watch(50).await));
}

#[tokio::test(start_paused = true)]
async fn events_of_a_lost_history_are_not_used() {
    let rig = Rig::new().await;
    let feed = rig.script.on_watch();
    let rewind = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        rig.script.keep(rig.script.on_watch_at(40));
        rig.cached.context.history.observe(ResourceVersion(100));
        rig.cached.context.history.rewind();
        rig.cached
            .watch_cache
            .progress()
            .wait_for(|at| at.is_some_and(|at| at.0 == 40))
            .await
            .unwrap();
        feed.send(vec![bookmark(100, false)]);
    };
    let (watch, ()) = tokio::join!(rig.watch(97), rewind);
    // It is ahead of the new history; whether it is lost is another check.
    assert_eq!(events(&mut watch.unwrap()), 0);
    assert_eq!(rig.cached.watch_cache.state().unwrap().history().joins_at().unwrap().0, 40);
}

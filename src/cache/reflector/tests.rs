//! Tests of the reflector against scripted upstreams, in paused time.

use tokio::task::JoinHandle;

use super::*;
use crate::api::resource::{ApiResource, Representation, Scope, Shape};
use crate::cache::core::watch_cache::EndCause;
use crate::cache::core::watcher::{Taken, WatchFilter, WatchStart};
use crate::cache::live::{CacheKey, Shared};
use crate::cache::script::{
    Feed, Script, bookmark, config, config_maps, listed, object, page, rewritten, status, upsert,
};
use crate::config::CacheConfig;
use crate::telemetry::cache_metrics::CacheMetrics;
use crate::upstream::lister_watcher::UpstreamEvent;

struct Rig {
    script: Arc<Script>,
    live: Arc<LiveCache>,
    task: JoinHandle<Refusal>,
}

impl Rig {
    fn new() -> Self {
        Self::with(shared(config()), None)
    }

    fn with(shared: Arc<Shared>, first_at: Option<u64>) -> Self {
        Self::of(config_maps(), shared, first_at)
    }

    fn of(resource: ApiResource, shared: Arc<Shared>, first_at: Option<u64>) -> Self {
        let script = Arc::new(Script::default());
        let resource = Arc::new(resource);
        let key = CacheKey {
            gvr: resource.gvr.clone(),
            representation: Representation::Json,
            scope: Scope::Cluster,
        };
        let live = Arc::new(LiveCache::new(key, resource, script.clone(), shared));
        let begin = Begin { at: first_at.map(ResourceVersion), floor: None };
        let reflector = Reflector::new(script.clone(), live.clone(), begin);
        Self { script, live, task: tokio::spawn(reflector.run()) }
    }

    /// One whose state is `a` at 10, over a watch-list that the feed goes on with.
    async fn established(shared: Arc<Shared>) -> (Self, Feed) {
        Self::established_of(config_maps(), shared).await
    }

    async fn established_of(resource: ApiResource, shared: Arc<Shared>) -> (Self, Feed) {
        let rig = Self::of(resource, shared, None);
        let feed = rig.script.on_watch();
        feed.send(vec![upsert("a", 9), bookmark(10, true)]);
        rig.reaches(10).await;
        (rig, feed)
    }

    fn held(&self) -> Option<u64> {
        self.live.cache.state().map(|state| state.resource_version().0)
    }

    fn names(&self) -> Vec<String> {
        let state = self.live.cache.state().unwrap();
        let objects = state.select(&WatchFilter::default());
        objects.iter().map(|object| object.key.name().to_owned()).collect()
    }

    async fn reaches(&self, resource_version: u64) {
        until(|| self.held() == Some(resource_version)).await;
    }
}

fn shared(config: CacheConfig) -> Arc<Shared> {
    let metrics = CacheMetrics::register(&prometheus::Registry::new()).unwrap();
    Arc::new(Shared::new(Arc::new(config), metrics))
}

/// Waits in virtual time, with an end.
async fn until(condition: impl Fn() -> bool) {
    for _ in 0..100_000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the condition never came true");
}

#[tokio::test(start_paused = true)]
async fn a_watch_list_gives_the_state_and_goes_on_as_the_watch() {
    let rig = Rig::new();
    let feed = rig.script.on_watch();
    feed.send(vec![upsert("a", 9)]);
    feed.send(vec![upsert("b", 7), bookmark(10, true), upsert("c", 11)]);
    rig.reaches(11).await;
    assert_eq!(rig.names(), ["a", "b", "c"]);
    let asked = rig.script.watches.lock().first().cloned().unwrap();
    assert!(asked.send_initial_events);
    assert_eq!(asked.resource_version, None);
    assert!((300..=600).contains(&asked.timeout_seconds));
    assert!(rig.live.shared.watch_list.is_known_to_work());
    assert!(rig.live.template.load().is_some());
    assert!(rig.script.lists.lock().is_empty());
    feed.send(vec![UpstreamEvent::Delete(object("a", 12)), bookmark(20, false)]);
    rig.reaches(20).await;
    assert_eq!(rig.names(), ["b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn where_lists_are_streamed_one_gives_the_state_and_a_watch_of_nothing_the_bookmark() {
    let rig = Rig::new();
    rig.script.stream_lists();
    let list = rig.script.on_watch();
    list.send(vec![upsert("a", 9)]);
    list.send(vec![upsert("b", 7), listed(10)]);
    let nothing = rig.script.on_watch_at(10);
    let feed = rig.script.on_watch();
    rig.reaches(10).await;
    assert_eq!(rig.names(), ["a", "b"]);
    feed.send(vec![upsert("c", 11)]);
    rig.reaches(11).await;
    assert!(rig.live.shared.watch_list.is_known_to_work());
    assert!(rig.live.template.load().is_some());
    assert!(!nothing.is_held());
    let lists = rig.script.lists.lock().clone();
    let [list] = lists.as_slice() else { panic!("{lists:?}") };
    assert_eq!((list.limit, list.resource_version, list.resource_version_match), (None, None, ""));
    let watches = rig.script.watches.lock().clone();
    let [nothing, watch] = watches.as_slice() else { panic!("{watches:?}") };
    assert!(nothing.of_nothing && nothing.send_initial_events);
    assert_eq!(
        (watch.resource_version, watch.send_initial_events),
        (Some(ResourceVersion(10)), false)
    );
    assert!(watch.timeout_seconds >= 300);
}

#[tokio::test(start_paused = true)]
async fn a_relist_by_a_streamed_list_asks_for_not_older_and_no_bookmark() {
    let (rig, feed) = Rig::established(shared(config())).await;
    rig.script.stream_lists();
    feed.send(vec![UpstreamEvent::Error(status(410, "too old"))]);
    let list = rig.script.on_watch();
    list.send(vec![upsert("b", 19), listed(20)]);
    let feed = rig.script.on_watch();
    feed.send(vec![upsert("c", 21)]);
    rig.reaches(21).await;
    assert_eq!(rig.names(), ["b", "c"]);
    let asked = rig.script.lists.lock().first().cloned().unwrap();
    assert_eq!(asked.resource_version, Some(ResourceVersion(10)));
    assert_eq!(asked.resource_version_match, "NotOlderThan");
}

#[tokio::test(start_paused = true)]
async fn a_streamed_list_that_breaks_wipes_nothing_and_is_followed_by_a_watch_list() {
    let (rig, feed) = Rig::established(shared(config())).await;
    rig.script.stream_lists();
    feed.send(vec![UpstreamEvent::Error(status(410, "too old"))]);
    let list = rig.script.on_watch();
    list.send(vec![upsert("b", 19)]);
    drop(list);
    until(|| rig.script.lists.lock().len() == 1).await;
    let again = rig.script.on_watch();
    until(|| rig.script.watches.lock().len() == 2).await;
    assert_eq!((rig.held(), rig.names()), (Some(10), vec!["a".to_owned()]));
    assert!(rig.script.watches.lock().last().unwrap().send_initial_events);
    again.send(vec![upsert("c", 19), bookmark(20, true)]);
    rig.reaches(20).await;
    assert_eq!(rig.names(), ["c"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_a_proof_of_freshness_overtook_is_no_rewound_history() {
    let (rig, feed) = Rig::established(shared(config())).await;
    feed.send(vec![UpstreamEvent::Error(status(410, "too old"))]);
    let list = rig.script.on_watch();
    until(|| rig.script.watches.lock().len() == 2).await;
    rig.live.progressed(rig.live.history(), ResourceVersion(20));
    list.send(vec![upsert("a", 9), bookmark(15, true)]);
    let again = rig.script.on_watch();
    until(|| rig.script.watches.lock().len() == 3).await;
    let asked = rig.script.watches.lock().last().cloned().unwrap();
    assert_eq!(asked.resource_version, Some(ResourceVersion(20)));
    again.send(vec![upsert("a", 9), upsert("b", 19), bookmark(25, true)]);
    rig.reaches(25).await;
    assert_eq!(rig.names(), ["a", "b"]);
    assert_eq!(rig.live.shared.lost(), None, "no alarm");
}

#[tokio::test(start_paused = true)]
async fn without_watch_list_it_pages_and_learns_the_bookmark_by_a_short_watch() {
    let rig = Rig::new();
    rig.script.on_watch_fail(status(422, "sendInitialEvents is forbidden"));
    rig.script.on_list(Ok(page(10, "next", vec![object("a", 3), object("b", 9)])));
    rig.script.on_list(Ok(page(10, "", vec![object("c", 5)])));
    rig.script.on_probe(10);
    let feed = rig.script.on_watch();
    rig.reaches(10).await;
    assert_eq!(rig.names(), ["a", "b", "c"]);
    assert!(!rig.live.shared.watch_list.is_worth_trying());
    until(|| rig.script.watches.lock().len() == 2).await;
    let asked = rig.script.watches.lock().last().cloned().unwrap();
    assert_eq!(asked.resource_version, Some(ResourceVersion(10)));
    assert!(!asked.send_initial_events);
    assert_eq!(asked.timeout_seconds, 3);
    feed.send(vec![bookmark(11, false)]);
    rig.reaches(11).await;
    drop(feed);
    until(|| rig.script.watches.lock().len() == 3).await;
    assert!(rig.script.watches.lock().last().unwrap().timeout_seconds >= 300);
    let lists = rig.script.lists.lock().clone();
    let pages: Vec<_> = lists.iter().filter(|list| list.limit == Some(2)).collect();
    let [first, second] = pages.as_slice() else { panic!("{pages:?}") };
    assert_eq!((first.resource_version, first.resource_version_match), (None, ""));
    assert_eq!(second.continue_token, "next");
}

#[tokio::test(start_paused = true)]
async fn a_broken_relist_leaves_the_old_state() {
    let (rig, feed) = Rig::established(shared(config())).await;
    let mut watcher = rig.live.cache.watch(WatchFilter::default(), WatchStart::Now).unwrap();
    let broken = rig.script.on_watch();
    broken.send(vec![upsert("x", 15)]);
    feed.send(vec![upsert("b", 12), UpstreamEvent::Error(status(410, "too old"))]);
    until(|| rig.script.watches.lock().len() == 2).await;
    broken.fail(UpstreamError::Lost("reset".to_owned()));
    until(|| rig.script.watches.lock().len() == 3).await;
    assert_eq!(rig.held(), Some(12));
    assert!(matches!(watcher.take(1 << 20), Taken::Frames { events: 1, .. }));
    assert!(matches!(watcher.take(1 << 20), Taken::Idle));
    let again = rig.script.on_watch();
    again.send(vec![upsert("y", 19), bookmark(20, true)]);
    rig.reaches(20).await;
    assert_eq!(rig.names(), ["y"]);
    // `a` and `b` are gone, `y` is new.
    assert!(matches!(watcher.take(1 << 20), Taken::Frames { events: 3, .. }));
    assert!(matches!(watcher.take(1 << 20), Taken::Idle));
    assert!(watcher.owes_bookmark());
    for asked in rig.script.watches.lock().iter().skip(1) {
        assert!(asked.send_initial_events);
        assert_eq!(asked.resource_version, Some(ResourceVersion(12)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_expires_between_pages_is_fetched_at_once() {
    let rig = Rig::new();
    rig.script.on_watch_fail(status(400, "unknown"));
    rig.script.on_list(Ok(page(10, "next", vec![object("a", 3)])));
    rig.script.on_list(Err(status(410, "continue")));
    rig.script.on_list(Ok(page(30, "", vec![object("b", 29)])));
    rig.reaches(30).await;
    assert_eq!(rig.names(), ["b"]);
    assert_eq!(rig.script.lists.lock().get(2).unwrap().limit, None);
}

#[tokio::test(start_paused = true)]
async fn a_clean_end_resumes_at_once_and_events_wait_for_the_probe() {
    let (rig, feed) = Rig::established(shared(config())).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    let next = rig.script.on_watch();
    next.send(vec![upsert("b", 11)]);
    let begin = Instant::now();
    drop(feed);
    until(|| rig.script.probes() == 1).await;
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
async fn a_watch_that_ends_at_birth_backs_off() {
    let (rig, feed) = Rig::established(shared(config())).await;
    rig.script.on_probe(10);
    for _ in 0..3 {
        drop(rig.script.on_watch());
    }
    let begin = Instant::now();
    drop(feed);
    until(|| rig.script.watches.lock().len() == 5).await;
    assert!(begin.elapsed() >= Duration::from_millis(800 + 1600 + 3200), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_dead_connection_is_left_after_the_watch_is_overdue() {
    let (rig, feed) = Rig::established(shared(config())).await;
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
    let shared = shared(config());
    let (rig, feed) = Rig::established(shared.clone()).await;
    let (other, _other_feed) = Rig::established(shared.clone()).await;
    let mut watcher = rig.live.cache.watch(WatchFilter::default(), WatchStart::Now).unwrap();
    let poisoned = rig.script.on_watch();
    poisoned.send(vec![upsert("poison", 11)]);
    rig.script.on_probe(4);
    feed.fail(UpstreamError::Lost("reset".to_owned()));
    until(|| rig.held().is_none() && other.held().is_none()).await;
    assert!(matches!(watcher.take(1 << 20), Taken::Ended(_)));
    for rig in [&rig, &other] {
        let anew = rig.script.on_watch();
        anew.send(vec![upsert("old", 3), bookmark(4, true)]);
        rig.reaches(4).await;
        assert_eq!(rig.names(), ["old"]);
        assert_eq!(rig.script.watches.lock().last().unwrap().resource_version, None);
    }
    assert_eq!(*shared.rewound.borrow(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_doubt_raised_by_a_reader_is_checked_on_the_open_watch() {
    let (rig, feed) = Rig::established(shared(config())).await;
    rig.script.on_probe(10);
    rig.live.recheck.notify_one();
    until(|| rig.script.probes() == 1).await;
    feed.send(vec![upsert("b", 11)]);
    rig.reaches(11).await;
    rig.script.on_probe(5);
    rig.live.recheck.notify_one();
    until(|| rig.held().is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_stays_behind_is_found_rewound() {
    let (rig, feed) = Rig::established(shared(config())).await;
    feed.send(vec![UpstreamEvent::Error(status(410, "too old"))]);
    let begin = Instant::now();
    let behind = || status(504, "Timeout: Too large resource version: 10, current: 4");
    while rig.script.watches.lock().last().unwrap().resource_version.is_some()
        || rig.script.watches.lock().len() < 3
    {
        rig.script.on_watch_fail(behind());
        let asked = rig.script.watches.lock().len();
        until(|| rig.script.watches.lock().len() > asked).await;
    }
    assert!(begin.elapsed() >= Duration::from_secs(30));
    assert_eq!(rig.held(), Some(10));
    // The one answer still queued fails too, and the next is the old history's list.
    let anew = rig.script.on_watch();
    anew.send(vec![upsert("old", 3), bookmark(4, true)]);
    until(|| *rig.live.shared.rewound.borrow() == 1).await;
    until(|| rig.held().is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_list_is_given_up_for_pages() {
    let rig = Rig::new();
    let _silent = [rig.script.on_watch(), rig.script.on_watch()];
    rig.script.on_list(Ok(page(10, "", vec![object("a", 3)])));
    rig.reaches(10).await;
    assert!(!rig.live.shared.watch_list.is_worth_trying());
}

#[tokio::test(start_paused = true)]
async fn a_first_watcher_gets_its_resource_version_into_the_history() {
    let shared = shared(config());
    shared.watch_list.works();
    let rig = Rig::with(shared, Some(5));
    rig.script.on_list(Ok(page(5, "", vec![object("a", 3)])));
    rig.script.on_probe(8);
    let feed = rig.script.on_watch();
    rig.reaches(5).await;
    let exact = rig.script.lists.lock().first().cloned().unwrap();
    assert_eq!(exact.resource_version, Some(ResourceVersion(5)));
    assert_eq!(exact.resource_version_match, "Exact");
    let after = WatchStart::After(ResourceVersion(5));
    let mut watcher = rig.live.cache.watch(WatchFilter::default(), after).unwrap();
    feed.send(vec![upsert("b", 8)]);
    rig.reaches(8).await;
    assert!(matches!(watcher.take(1 << 20), Taken::Frames { events: 1, .. }));
}

#[tokio::test(start_paused = true)]
async fn where_the_exact_list_is_gone_it_starts_as_usual() {
    let shared = shared(config());
    shared.watch_list.works();
    let rig = Rig::with(shared, Some(5));
    rig.script.on_list(Err(status(410, "too old")));
    let feed = rig.script.on_watch();
    feed.send(vec![bookmark(50, true)]);
    rig.reaches(50).await;
    assert!(rig.script.watches.lock().first().unwrap().send_initial_events);
}

#[tokio::test(start_paused = true)]
async fn the_first_cache_of_all_begins_there_too_and_then_finds_out_about_watch_lists() {
    let rig = Rig::with(shared(config()), Some(5));
    rig.script.on_list(Ok(page(5, "", vec![object("a", 3)])));
    rig.script.on_probe(8);
    rig.reaches(5).await;
    assert_eq!(rig.script.lists.lock()[0].resource_version_match, "Exact");
    assert!(!rig.live.shared.watch_list.is_known());
    let nothing = rig.script.on_watch();
    nothing.send(vec![bookmark(7, true)]);
    let feed = rig.script.on_watch();
    feed.send(vec![upsert("b", 8)]);
    rig.reaches(8).await;
    assert!(rig.live.shared.watch_list.is_known_to_work());
    assert!(rig.live.template.load().is_some());
    assert!(!nothing.is_held());
    let asked: Vec<_> = rig.script.watches.lock().iter().map(|asked| asked.of_nothing).collect();
    assert_eq!(asked, [true, false]);
}

#[tokio::test(start_paused = true)]
async fn the_first_cache_without_watch_lists_still_begins_where_its_watcher_does() {
    let rig = Rig::with(shared(config()), Some(5));
    rig.script.on_watch_fail(status(422, "sendInitialEvents is forbidden"));
    rig.script.on_list(Ok(page(5, "", vec![object("a", 3)])));
    rig.reaches(5).await;
    let exact = rig.script.lists.lock().first().cloned().unwrap();
    assert_eq!(exact.resource_version_match, "Exact");
    until(|| !rig.live.shared.watch_list.is_worth_trying()).await;
}

fn widgets() -> ApiResource {
    ApiResource { shape: Shape::Custom, ..config_maps() }
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_a_custom_resource_that_breaks_may_have_ended_with_its_definition() {
    let (rig, feed) = Rig::established_of(widgets(), shared(config())).await;
    let mut watcher = rig.live.cache.watch(WatchFilter::default(), WatchStart::Now).unwrap();
    rig.script.on_probe(40);
    tokio::time::sleep(Duration::from_secs(60)).await;

    // Still the same: no state in between is lost, and nothing is told before it is known.
    let same = rig.script.on_watch();
    same.send(vec![upsert("a", 15), upsert("a", 20)]);
    drop(feed);
    until(|| rig.script.lists.lock().len() == 2).await;
    assert_eq!(rig.held(), Some(10));
    let exact = rig.script.lists.lock()[1].clone();
    assert_eq!(exact.resource_version_match, "Exact");
    assert_eq!(exact.resource_version, Some(ResourceVersion(10)));
    rig.script.on_list(Ok(page(10, "", vec![object("a", 9)])));
    rig.reaches(20).await;
    assert!(matches!(watcher.take(1 << 20), Taken::Frames { events: 2, .. }));

    // Other bytes under the same resourceVersion; the watch that broke had an error this time.
    let dropped = rig.script.on_watch();
    rig.script.on_list(Ok(page(20, "", vec![rewritten(object("a", 20))])));
    let other = rig.script.on_watch();
    other.send(vec![UpstreamEvent::Upsert(rewritten(object("a", 20))), bookmark(30, true)]);
    same.fail(UpstreamError::Lost("reset".to_owned()));
    rig.reaches(30).await;
    assert!(matches!(watcher.take(1 << 20), Taken::Ended(EndCause::Relist)));
    assert!(!dropped.is_held());
    let old = WatchStart::After(ResourceVersion(20));
    rig.live.cache.watch(WatchFilter::default(), old).unwrap_err();
    let asked: Vec<_> =
        rig.script.watches.lock().iter().map(|asked| asked.send_initial_events).collect();
    assert_eq!(asked, [true, false, false, true]);

    // At its own time-out it is resumed, as any other.
    let lists = rig.script.lists.lock().len();
    let timeout_seconds = rig.script.watches.lock()[3].timeout_seconds;
    tokio::time::sleep(Duration::from_secs(timeout_seconds.into())).await;
    let resumed = rig.script.on_watch();
    resumed.send(vec![upsert("a", 35)]);
    drop(other);
    rig.reaches(35).await;
    assert_eq!(rig.script.lists.lock().len(), lists + 1, "a probe");
}

#[tokio::test(start_paused = true)]
async fn another_release_is_listed_and_compared() {
    let (rig, feed) = Rig::established(shared(config())).await;
    let mut watcher = rig.live.cache.watch(WatchFilter::default(), WatchStart::Now).unwrap();
    for (listed, at) in [(object("a", 9), 20), (rewritten(object("a", 9)), 30)] {
        let next = rig.script.on_watch();
        rig.live.changed.notify_one();
        next.send(vec![UpstreamEvent::Upsert(listed), bookmark(at, true)]);
        rig.reaches(at).await;
        let ended = matches!(watcher.take(1 << 20), Taken::Ended(EndCause::Relist));
        assert_eq!(ended, at == 30);
        rig.script.keep(next);
    }
    assert!(!feed.is_held());
}

#[tokio::test(start_paused = true)]
async fn streams_end_where_the_configuration_says_so() {
    let config = CacheConfig { on_relist: OnRelist::EndStreams, ..config() };
    let (rig, feed) = Rig::established(shared(config)).await;
    let mut watcher = rig.live.cache.watch(WatchFilter::default(), WatchStart::Now).unwrap();
    let next = rig.script.on_watch();
    next.send(vec![upsert("a", 9), bookmark(20, true)]);
    feed.send(vec![UpstreamEvent::Error(status(410, "too old"))]);
    rig.reaches(20).await;
    assert!(matches!(watcher.take(1 << 20), Taken::Ended(EndCause::Relist)));
}

#[tokio::test(start_paused = true)]
async fn one_that_leaves_takes_what_its_watch_still_brings() {
    let (rig, feed) = Rig::established(shared(config())).await;
    rig.live.leave(Refusal::Unknown);
    feed.send(vec![UpstreamEvent::Delete(object("a", 11))]);
    rig.reaches(11).await;
    drop(feed);
    assert_eq!(rig.task.await.unwrap(), Refusal::Unknown);
    assert_eq!(rig.script.watches.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn answers_without_hope_end_it() {
    for (code, refusal) in
        [(403, Refusal::Forbidden), (404, Refusal::Unknown), (405, Refusal::NotWatchable)]
    {
        let rig = Rig::new();
        rig.script.on_watch_fail(status(code, "no"));
        assert_eq!(rig.task.await.unwrap(), refusal);
    }
    let rig = Rig::new();
    for _ in 0..2 {
        rig.script.on_watch_fail(UpstreamError::Malformed("resourceVersion".to_owned()));
    }
    assert_eq!(rig.task.await.unwrap(), Refusal::Unreadable);
}

#[tokio::test(start_paused = true)]
async fn a_list_over_budget_is_given_up_as_it_comes() {
    let shared = shared(CacheConfig { resource_bytes_max: 1000, ..config() });
    let rig = Rig::with(shared.clone(), None);
    let feed = rig.script.on_watch();
    feed.send((0..100).map(|n| upsert(&n.to_string(), 9)).collect());
    assert_eq!(rig.task.await.unwrap(), Refusal::OverBudget);
    assert_eq!(shared.budget.used(), 0);
    assert!(rig.live.cache.state().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_longer_than_the_budget_is_over_it() {
    let rig = Rig::new();
    rig.script.on_watch_fail(status(422, "sendInitialEvents is forbidden"));
    rig.script.on_list(Err(UpstreamError::TooLong(1000)));
    assert_eq!(rig.task.await.unwrap(), Refusal::OverBudget);
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_outgrows_its_budget_ends() {
    let shared = shared(CacheConfig { resource_bytes_max: 2000, ..config() });
    let (rig, feed) = Rig::established(shared).await;
    feed.send((0..100).map(|n| upsert(&n.to_string(), 11 + n)).collect());
    assert_eq!(rig.task.await.unwrap(), Refusal::OverBudget);
}

#[tokio::test(start_paused = true)]
async fn it_stops_when_told_and_says_why() {
    let (rig, feed) = Rig::established(shared(config())).await;
    rig.live.stop(Refusal::NotReady);
    rig.live.stop(Refusal::OverBudget);
    assert_eq!(rig.task.await.unwrap(), Refusal::NotReady);
    assert!(!feed.is_held());
}

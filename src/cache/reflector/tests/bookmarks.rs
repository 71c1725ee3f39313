//! Tests of how it becomes known whether the upstream has watch-lists: by an attempt when somebody
//! needs it, and not before (`docs/decisions/filling-caches.md`).

use futures_util::future::join_all;

use super::*;
use crate::cache::handle::CacheHandle;

/// A rig whose cache has `a` at 10 from a streamed list, which shows nothing else. The feed is that
/// of the reflector's own watch.
async fn streamed() -> (Rig, Feed) {
    let rig = Rig::new();
    rig.script.stream_lists();
    let list = rig.script.on_watch();
    list.send(vec![upsert("a", 9), listed(10)]);
    let feed = rig.script.on_watch();
    rig.reaches(10).await;
    eventually("the watch", || rig.script.watches.lock().len() == 1).await;
    (rig, feed)
}

impl Rig {
    fn handle(&self) -> CacheHandle {
        CacheHandle::new(self.cached.clone())
    }

    async fn learn(&self) {
        self.handle().upstream_has_watch_list(Duration::from_secs(3)).await;
    }

    /// Returns whether each watch was an attempt.
    fn attempts(&self) -> Vec<bool> {
        let watches = self.script.watches.lock();
        watches.iter().map(|asked| asked.match_nothing && asked.send_initial_events).collect()
    }

    fn answer(&self) -> (Option<bool>, bool) {
        (self.cached.context.watch_list.last_answer(), self.cached.learned.has_bookmark())
    }
}

#[tokio::test(start_paused = true)]
async fn a_streamed_list_provides_the_state_and_costs_one_watch() {
    let (rig, feed) = streamed().await;
    feed.send(vec![upsert("b", 11)]);
    rig.reaches(11).await;
    assert_eq!(rig.names(), ["a", "b"]);
    let lists = rig.script.lists.lock().clone();
    let [list] = lists.as_slice() else { panic!("{lists:?}") };
    assert_eq!((list.limit, list.resource_version, list.resource_version_match), (None, None, ""));
    let watches = rig.script.watches.lock().clone();
    let [watch] = watches.as_slice() else { panic!("{watches:?}") };
    assert_eq!(
        (watch.resource_version, watch.send_initial_events),
        (Some(ResourceVersion(10)), false)
    );
    assert!(watch.timeout_seconds >= 300, "it need not be short for the sake of a bookmark");
}

#[tokio::test(start_paused = true)]
async fn all_clients_that_need_it_share_one_attempt() {
    let (rig, _feed) = streamed().await;
    let nothing = rig.script.on_watch();
    let answer = async {
        eventually("the attempt", || rig.attempts() == [false, true]).await;
        nothing.send(vec![bookmark(10, true)]);
    };
    tokio::join!(join_all((0..100).map(|_| rig.learn())), answer);
    assert_eq!(rig.answer(), (Some(true), true));
    rig.learn().await;
    eventually("its end", || !nothing.is_held()).await;
    assert_eq!(rig.attempts(), [false, true]);
}

/// Otherwise an upstream that fails gets a watch for each watch of its clients.
#[tokio::test(start_paused = true)]
async fn an_attempt_without_an_answer_is_repeated_only_after_a_pause() {
    let (rig, _feed) = streamed().await;
    rig.script.on_watch_fail(status(500, "no"));
    join_all((0..100).map(|_| rig.learn())).await;
    rig.learn().await;
    assert_eq!(rig.attempts(), [false, true]);
    assert_eq!(rig.answer(), (None, false));
    tokio::time::sleep(Duration::from_secs(10)).await;
    let _nothing = rig.script.on_watch_at(10);
    rig.learn().await;
    assert_eq!(rig.answer(), (Some(true), true));
}

#[tokio::test(start_paused = true)]
async fn a_client_does_not_wait_longer_than_it_wants() {
    let (rig, _feed) = streamed().await;
    let _silent = rig.script.on_watch();
    let began = Instant::now();
    rig.learn().await;
    assert_eq!(began.elapsed(), Duration::from_secs(3));
    assert_eq!(rig.answer(), (None, false));
}

#[tokio::test(start_paused = true)]
async fn an_upstream_without_watch_lists_is_asked_once() {
    let (rig, _feed) = streamed().await;
    rig.script.on_watch_fail(status(422, "sendInitialEvents is forbidden"));
    rig.learn().await;
    rig.learn().await;
    assert_eq!(rig.answer(), (Some(false), false));
    assert_eq!(rig.attempts(), [false, true]);
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_is_filled_by_a_watch_list_needs_no_attempt() {
    let rig = Rig::new();
    let feed = rig.script.on_watch();
    feed.send(vec![upsert("a", 9), bookmark(10, true)]);
    rig.reaches(10).await;
    rig.learn().await;
    assert_eq!(rig.answer(), (Some(true), true));
    assert_eq!(rig.attempts(), [false]);
}

/// A list at the resourceVersion of a watcher shows no more than another list.
#[tokio::test(start_paused = true)]
async fn the_very_first_cache_lists_exactly_and_costs_one_watch() {
    let rig = Rig::with(context(config()), Some(5));
    rig.script.on_list(Ok(page(5, "", vec![object("a", 3)])));
    rig.script.on_probe(8);
    let feed = rig.script.on_watch();
    feed.send(vec![upsert("b", 8)]);
    rig.reaches(8).await;
    assert_eq!(rig.script.lists.lock()[0].resource_version_match, "Exact");
    assert_eq!((rig.answer(), rig.attempts()), ((None, false), vec![false]));
}

//! Tests that refusals which pass cost no cache and no watch, and that others end the reflector.

use super::*;

/// The state of a reflector when the refusals begin.
#[derive(Clone, Copy, Debug)]
enum At {
    /// It opens a watch again.
    Resuming,
    /// Its new watch is open, and is verified by a list.
    Verifying,
    /// Its history is gone, and it lists again.
    Listing,
    /// Its open watch ends with the refusal.
    Watching,
    /// It was asked for a new list.
    Changed,
}

#[tokio::test(start_paused = true)]
async fn refusals_shorter_than_ten_seconds_cost_no_cache_and_no_watch() {
    for code in [401, 403, 404, 429, 503] {
        for at in [At::Resuming, At::Verifying, At::Listing, At::Watching, At::Changed] {
            outlives_refusals(code, at, config_maps()).await;
        }
        outlives_refusals(code, At::Watching, widgets()).await;
    }
}

async fn outlives_refusals(code: u16, at: At, resource: ApiResource) {
    let what = format!("{code} {at:?}");
    let (rig, feed) = Rig::established_with(resource, context(config())).await;
    let mut watcher =
        rig.cached.watch_cache.watch(WatchFilter::default(), WatchStart::Now).unwrap();
    rig.script.on_probe(10);
    let refusal = || status(code, "not now");
    let watches = (!matches!(at, At::Verifying)).then(refusal);
    rig.script.refuse(Some(refusal()), watches);
    match at {
        At::Resuming | At::Verifying => feed.fail(UpstreamError::Lost("reset".to_owned())),
        At::Listing => feed.send(vec![UpstreamEvent::Error(status(410, "too old"))]),
        At::Watching => feed.send(vec![UpstreamEvent::Error(refusal())]),
        At::Changed => rig.cached.requests.relist.notify_one(),
    }
    let mut opened = rig.script.watches.lock().len();
    for _ in 0..99 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let asked = rig.script.watches.lock().len();
        if matches!(at, At::Verifying) && asked > opened {
            opened = asked;
            rig.script.keep(rig.script.on_watch());
        }
    }
    assert!(!rig.task.is_finished(), "{what}");
    assert_eq!((rig.held(), rig.names()), (Some(10), vec!["a".to_owned()]), "{what}");

    rig.script.refuse(None, None);
    rig.script.on_list(Ok(page(10, "", vec![object("a", 9)])));
    let ended = Instant::now();
    let feed = rig.script.on_watch();
    if matches!(at, At::Listing | At::Changed) {
        feed.send(vec![upsert("a", 9), upsert("b", 20), bookmark(20, true)]);
    } else {
        feed.send(vec![upsert("b", 20)]);
    }
    rig.reaches(20).await;
    if code == 403 || code == 404 {
        assert!(ended.elapsed() <= Duration::from_secs(6), "{what}: {:?}", ended.elapsed());
    }
    assert!(matches!(watcher.next_batch(1 << 20), Batch::Frames { events: 1, .. }), "{what}");
    assert!(!matches!(watcher.next_batch(1 << 20), Batch::Ended(_)), "{what}");
}

/// An API server was seen to answer 403 for 0.35 s while it started.
#[tokio::test(start_paused = true)]
async fn a_new_cache_survives_the_refusals_of_an_api_server_that_starts() {
    for code in [401, 403, 404, 429, 503] {
        let options = StartOptions { is_patient: true, ..StartOptions::default() };
        let rig = Rig::with_options(config_maps(), context(config()), options);
        let refusal = || Some(status(code, "not now"));
        rig.script.refuse(refusal(), refusal());
        tokio::time::sleep(Duration::from_millis(350)).await;
        rig.script.refuse(None, None);
        let _feed = rig.script.on_watch_at(10);
        rig.reaches(10).await;
        assert!(!rig.task.is_finished(), "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_cache_that_stays_refused_ends_within_two_seconds() {
    for (code, refusal) in [
        (403, Refusal::Forbidden),
        (404, Refusal::Unknown),
        (405, Refusal::NotWatchable),
        (406, Refusal::Unreadable),
    ] {
        for is_patient in [false, true] {
            let options = StartOptions { is_patient, ..StartOptions::default() };
            let began = Instant::now();
            let rig = Rig::with_options(config_maps(), context(config()), options);
            rig.script.refuse(Some(status(code, "no")), Some(status(code, "no")));
            assert_eq!(rig.task.await.unwrap(), refusal);
            assert!(began.elapsed() <= Duration::from_secs(2));
            assert_eq!(rig.script.watches.lock().len() > 1, is_patient && code < 405);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_right_ends_the_cache_after_half_a_minute() {
    let (rig, feed) = Rig::established(context(config())).await;
    rig.script.forbid();
    let began = Instant::now();
    feed.fail(UpstreamError::Lost("reset".to_owned()));
    assert_eq!(rig.task.await.unwrap(), Refusal::Forbidden);
    let lasted = began.elapsed();
    assert!(lasted >= Duration::from_secs(30) && lasted <= Duration::from_secs(40), "{lasted:?}");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_access_reviews_do_not_confirm_ends_no_cache() {
    let (rig, feed) = Rig::established(context(config())).await;
    rig.script.refuse(Some(status(403, "no")), Some(status(403, "no")));
    feed.fail(UpstreamError::Lost("reset".to_owned()));
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!((rig.held(), rig.task.is_finished()), (Some(10), false));
    rig.script.refuse(None, None);
    rig.script.on_probe(10);
    rig.script.on_watch().send(vec![upsert("b", 20)]);
    rig.reaches(20).await;
}

/// Refusals that are far apart are not one that lasts.
#[tokio::test(start_paused = true)]
async fn an_open_watch_ends_a_streak_of_refusals() {
    let (rig, mut feed) = Rig::established(context(config())).await;
    rig.script.on_probe(20);
    for at in 11..20 {
        rig.script.forbid();
        feed.fail(UpstreamError::Lost("reset".to_owned()));
        tokio::time::sleep(Duration::from_secs(9)).await;
        rig.script.refuse(None, None);
        feed = rig.script.on_watch();
        feed.send(vec![upsert("b", at)]);
        rig.reaches(at).await;
    }
    assert!(!rig.task.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_cannot_be_parsed_ends_the_reflector() {
    let rig = Rig::new();
    for _ in 0..2 {
        rig.script.on_watch_fail(UpstreamError::Malformed("resourceVersion".to_owned()));
    }
    assert_eq!(rig.task.await.unwrap(), Refusal::Unreadable);
}

/// A proxy before an API server may answer for it for a while.
#[tokio::test(start_paused = true)]
async fn a_cache_with_a_state_outlives_a_few_malformed_responses() {
    let (rig, feed) = Rig::established(context(config())).await;
    rig.script.on_probe(10);
    let malformed = || UpstreamError::Malformed("not a watch event".to_owned());
    for _ in 0..4 {
        rig.script.on_watch_fail(malformed());
    }
    feed.fail(malformed());
    let feed = rig.script.on_watch();
    feed.send(vec![upsert("b", 20)]);
    rig.reaches(20).await;
}

/// Once they have lasted, the resource itself is considered unreadable.
#[tokio::test(start_paused = true)]
async fn malformed_responses_that_last_end_a_cache_with_a_state() {
    let (rig, feed) = Rig::established(context(config())).await;
    rig.script.on_probe(10);
    let malformed = || UpstreamError::Malformed("not a watch event".to_owned());
    for _ in 0..9 {
        rig.script.on_watch_fail(malformed());
    }
    feed.fail(malformed());
    assert_eq!(rig.task.await.unwrap(), Refusal::Unreadable);
}

/// A deleted definition retires its cache. The cache ends at once, although it waits to try again.
#[tokio::test(start_paused = true)]
async fn a_retired_cache_does_not_wait_for_a_refusal_to_end() {
    let (rig, feed) = Rig::established(context(config())).await;
    rig.script.refuse(Some(status(404, "gone")), Some(status(404, "gone")));
    feed.fail(UpstreamError::Lost("reset".to_owned()));
    eventually("refusals", || rig.script.watches.lock().len() >= 4).await;
    let retired = Instant::now();
    rig.cached.lifecycle.retire(Refusal::Unknown);
    assert_eq!(rig.task.await.unwrap(), Refusal::Unknown);
    assert!(retired.elapsed() < Duration::from_millis(100));
}

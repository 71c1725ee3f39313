//! Caches that begin in the past, and further attempts of caches that did not fit.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_cold_cache_begins_at_the_lowest_of_its_first_watches() {
    let (script, rig) = scripted();
    rig.registry.inner.context.watch_list.set_supported(Some(false));
    script.on_list(Ok(page(300, "", Vec::new())));
    script.on_probe(350);
    let feed = script.on_watch();
    let gvr = config_maps().gvr;
    let at = |at| {
        let first_at = Some(ResourceVersion(at));
        rig.registry.ready_at(&gvr, "", Representation::Json, first_at, WAIT)
    };
    let (first, lowest, other) = tokio::join!(at(500), at(300), at(400));
    for handle in [&first, &lowest, &other] {
        let state = handle.as_ref().unwrap().cache().state().unwrap();
        assert_eq!(state.resource_version(), ResourceVersion(300));
    }
    let exact = script.lists.lock().first().cloned().unwrap();
    assert_eq!(exact.resource_version, Some(ResourceVersion(300)));

    // Other reads wait until the cache has reached what the upstream returned after it began.
    let handle = lowest.unwrap();
    assert!(!handle.is_ready());
    let read = rig.ready("configmaps", "");
    let event = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!handle.is_ready());
        feed.send(vec![upsert("a", 350)]);
    };
    let (read, ()) = tokio::join!(read, event);
    let state = read.unwrap().cache().state().unwrap();
    assert_eq!(state.resource_version(), ResourceVersion(350));
    assert!(handle.is_ready());
}

#[tokio::test(start_paused = true)]
async fn requests_do_not_wait_for_another_attempt_of_a_cache_that_did_not_fit() {
    let script = Arc::new(Script::default());
    let rig = Rig::new(CacheConfig { resource_bytes_max: 1000, ..config() }, one(&script));
    let _large = full(&script, 100);
    let refused = async || rig.ready("configmaps", "").await.err() == Some(Refusal::OverBudget);
    assert!(refused().await);
    let alarm = r#"weir_cache_over_budget{group="",namespace="",representation="json",resource="configmaps",version="v1"} 1"#;
    assert!(rig.metric(alarm));
    assert_eq!(rig.registry.suspended().over_budget, [("configmaps".into(), "".into())]);
    assert_eq!(script.watches.lock().len(), 1);

    tokio::time::sleep(Duration::from_secs(61)).await;
    let begun = Instant::now();
    assert!(refused().await);
    tokio::task::yield_now().await;
    assert!(refused().await);
    assert_eq!(begun.elapsed(), Duration::ZERO, "nobody waits for the second attempt");
    let _large = full(&script, 100);
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert!(refused().await);
    assert_eq!(script.watches.lock().len(), 2, "the third attempt is two minutes later");

    tokio::time::sleep(Duration::from_secs(61)).await;
    let _small = full(&script, 1);
    assert!(refused().await);
    // The housekeeping clears the alarm.
    tokio::time::sleep(Duration::from_secs(3)).await;
    rig.ready("configmaps", "").await.unwrap();
    assert!(!rig.metric(alarm));
}

//! A cache that may be filled from siblings.

use std::sync::atomic::Ordering;

use super::*;

/// Returns how long a new cache takes to get its first state.
async fn start(has_silent_sibling: bool) -> Duration {
    let options = StartOptions { may_seed: true, ..StartOptions::default() };
    let rig = Rig::with_options(config_maps(), context(config()), options);
    rig.script.has_silent_sibling.store(has_silent_sibling, Ordering::Relaxed);
    let began = Instant::now();
    let feed = rig.script.on_watch();
    feed.send(vec![upsert("a", 9), bookmark(10, true)]);
    rig.reaches(10).await;
    assert!(!rig.cached.lifecycle.is_seeded() && rig.cached.is_ready());
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_silent_sibling_delays_a_start_by_two_seconds() {
    let (without, with) = (start(false).await, start(true).await);
    assert!(without < Duration::from_millis(200), "{without:?}");
    assert!((Duration::from_secs(2)..=Duration::from_millis(2200)).contains(&with), "{with:?}");
}

//! Verification of the history while a reflector waits, without a read that needs a proof.

use super::*;

/// The longest time in which a restored etcd may go unnoticed.
const NOTICED_WITHIN: Duration = Duration::from_secs(10);

/// Lets a reflector fail for two minutes, so that its waits have grown to the longest ones.
async fn waits_for_long(rig: &Rig) {
    rig.script.on_probe(10);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!((rig.held(), rig.cached.context.history.generation()), (Some(10), 0));
}

async fn notices_a_rewind(rig: &Rig) {
    rig.script.on_probe(4);
    let rewound = Instant::now();
    eventually("the rewind", || rig.cached.context.history.generation() == 1).await;
    assert!(rewound.elapsed() <= NOTICED_WITHIN, "{:?}", rewound.elapsed());
    eventually("the cache to be dropped", || rig.held().is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_rewind_is_noticed_soon_while_no_watch_can_be_opened() {
    for _ in 0..10 {
        let (rig, feed) = Rig::established(context(config())).await;
        rig.script.refuse(None, Some(status(500, "broken")));
        feed.fail(UpstreamError::Lost("reset".to_owned()));
        waits_for_long(&rig).await;
        notices_a_rewind(&rig).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_rewind_is_noticed_soon_while_lists_fail() {
    let (rig, feed) = Rig::established(context(config())).await;
    rig.script.refuse(None, Some(status(500, "broken")));
    feed.send(vec![UpstreamEvent::Error(status(410, "too old"))]);
    waits_for_long(&rig).await;
    notices_a_rewind(&rig).await;
}

#[tokio::test(start_paused = true)]
async fn another_cluster_is_noticed_soon_while_no_watch_can_be_opened() {
    let (rig, feed) = Rig::established(context(config())).await;
    *rig.script.cluster.lock() = Some("one".to_owned());
    rig.script.connections.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    rig.script.refuse(None, Some(status(500, "broken")));
    feed.fail(UpstreamError::Lost("reset".to_owned()));
    waits_for_long(&rig).await;
    *rig.script.cluster.lock() = Some("another".to_owned());
    rig.script.connections.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let replaced = Instant::now();
    eventually("the other cluster", || rig.cached.context.history.generation() == 1).await;
    assert!(replaced.elapsed() <= NOTICED_WITHIN, "{:?}", replaced.elapsed());
}

/// The upstream asked for no request.
#[tokio::test(start_paused = true)]
async fn nothing_is_verified_before_retry_after() {
    let (rig, feed) = Rig::established(context(config())).await;
    rig.script.on_probe(10);
    let busy = UpstreamError::Status {
        code: http::StatusCode::TOO_MANY_REQUESTS,
        reason: String::new(),
        message: "busy".to_owned(),
        retry_after: Some(Duration::from_secs(60)),
    };
    rig.script.refuse(None, Some(busy));
    feed.fail(UpstreamError::Lost("reset".to_owned()));
    eventually("the second watch", || rig.script.watches.lock().len() == 2).await;
    let (watches, probes) = (rig.script.watches.lock().len(), rig.script.probes());
    tokio::time::sleep(Duration::from_secs(59)).await;
    assert_eq!((rig.script.watches.lock().len(), rig.script.probes()), (watches, probes));
}

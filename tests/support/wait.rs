//! Bounded waits of tests.

use std::time::Duration;

use tokio::time::Instant;

/// Waits until `condition` holds, and fails the test with `what` if it does not within a minute.
pub(crate) async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !condition().await {
        assert!(started.elapsed() < Duration::from_secs(60), "not within a minute: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

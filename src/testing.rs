//! Helpers of unit tests in all modules.

use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderValue};

/// Waits until `condition` holds, and fails the test with `what` if it does not within a minute.
///
/// The condition is checked every [`STEP`] of tokio's clock, so that paused time advances. The
/// minute is real time: under paused time any number of steps may pass.
pub(crate) async fn eventually(what: &str, condition: impl FnMut() -> bool) {
    eventually_every(STEP, what, condition).await;
}

/// The same, checked every `step` of tokio's clock: for hours of paused time.
#[expect(clippy::disallowed_methods, reason = "the bound is real time, also where time is paused")]
pub(crate) async fn eventually_every(
    step: Duration,
    what: &str,
    mut condition: impl FnMut() -> bool,
) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(60), "not within a minute: {what}");
        tokio::time::sleep(step).await;
    }
}

/// Returns headers of these names and values. A name may occur more than once.
pub(crate) fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(*name, HeaderValue::from_static(value));
    }
    headers
}

const STEP: Duration = Duration::from_millis(2);

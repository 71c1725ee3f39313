//! When the next check is due.

use std::time::Duration;

/// Why a check is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckCause {
    /// The interval has passed, and nothing indicates a failure.
    Interval,
    /// A request failed or waits for long, or the last check failed.
    Suspicion,
}

/// Returns the duration, less or more by up to a fifth: many Weirs must not check at once.
pub(super) fn jittered(duration: Duration) -> Duration {
    duration.mul_f64(0.8 + 0.4 * fastrand::f64())
}

/// The interval of checks while nothing indicates a failure: long enough to cost nothing, short
/// enough that `/readyz` is right within two probe periods of the kubelet.
pub(super) const INTERVAL: Duration = Duration::from_secs(10);
/// The pause between the starts of two checks while the upstream fails, and is not away yet.
pub(super) const FAILING_PAUSE: Duration = Duration::from_millis(200);
/// The pause between the starts of two checks while the upstream is away.
pub(super) const AWAY_PAUSE: Duration = Duration::from_secs(1);
/// The pause before a check that a failed request asks for.
pub(super) const SUSPICION_PAUSE: Duration = Duration::from_millis(200);
/// The pause before a check because nothing arrives. A slow webhook looks the same.
pub(super) const SILENCE_PAUSE: Duration = Duration::from_secs(2);
pub(super) const SILENCE_POLL_INTERVAL: Duration = Duration::from_secs(1);

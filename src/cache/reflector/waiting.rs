//! The times of a reflector's waits: when a wait may end early, and when the history must be
//! verified ([`pause`](super::pause)).

use std::time::Duration;

use tokio::time::Instant;

use crate::cache::reflector::backoff::RETRY_AFTER_MAX;
use crate::cache::reflector::failure::Failure;

/// The waits since a watch was last open.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waiting {
    /// When the present wait may end early; `None` for never.
    pub(super) early_resume_at: Option<Instant>,
    /// When a wait last ended early.
    pub(super) resumed_early: Option<Instant>,
    /// The time until which the upstream asked for no request.
    pub(super) quiet_until: Option<Instant>,
    /// When the history must be verified; `None` if no wait has begun.
    pub(super) verify_at: Option<Instant>,
}

impl Waiting {
    /// Notes the failure after which the reflector waits.
    pub(super) fn note_failure(&mut self, failure: &Failure) {
        let now = Instant::now();
        self.quiet_until = match failure {
            Failure::Retry(_, Some(retry_after)) => Some(now + RETRY_AFTER_MAX.min(*retry_after)),
            _ => None,
        };
        self.early_resume_at = match failure {
            // How long a refusal lasts counts, not how often it is repeated.
            Failure::Retry(..) | Failure::Refused(..) => Some(self.quiet_until.unwrap_or(now)),
            _ => None,
        };
    }

    /// Notes that a watch is open, and was verified.
    pub(super) fn end(&mut self) {
        self.verify_at = None;
    }

    /// Sets when the history must be verified next.
    pub(super) fn set_verification(&mut self) {
        let interval = VERIFY_INTERVAL.mul_f64(1.0 - 0.25 * fastrand::f64());
        self.verify_at = Some(Instant::now() + interval);
    }
}

/// The longest time without a verification of the history while a reflector waits. One small list
/// in that time is less than its watch costs the upstream.
const VERIFY_INTERVAL: Duration = Duration::from_secs(8);

//! What reviews tell of the upstream beside their answers: that it is away, or that it throttles.

use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::decisions::UNANSWERED_TTL;
use super::{Question, Unanswered};
use crate::auth::outage::OutageDetector;
use crate::upstream::error::UpstreamError;

/// See the module.
#[derive(Default)]
pub(super) struct Health {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    outage: OutageDetector<Question>,
    /// Nothing is asked until then.
    paused_until: Option<Instant>,
}

impl Health {
    /// Whether it was away a moment ago, whatever it was asked.
    pub(super) fn is_away(&self) -> bool {
        self.state.lock().outage.is_down()
    }

    /// Whether it is to be left alone.
    pub(super) fn is_paused(&self) -> bool {
        self.state.lock().paused_until.is_some_and(|until| Instant::now() < until)
    }

    /// A review was answered.
    pub(super) fn answered(&self) {
        self.state.lock().outage.answered();
    }

    /// One that was asked then was not, for this reason. Who waited long for nothing tells it for as long: the next may wait as long.
    pub(super) fn failed(
        &self,
        question: &Question,
        asked: Instant,
        error: &UpstreamError,
        why: Unanswered,
    ) {
        let now = Instant::now();
        let mut state = self.state.lock();
        if why == Unanswered::Away {
            let certain = matches!(error, UpstreamError::Connect { .. });
            let news = UNANSWERED_TTL.max(now.duration_since(asked));
            state.outage.failed(question.clone(), certain, now + news);
        } else {
            state.outage.answered();
        }
        if let Some(pause) = pause_after(error) {
            state.paused_until = state.paused_until.max(Some(now + pause));
        }
    }
}

/// How long nothing is asked: whoever throttles does not mean this question alone.
fn pause_after(error: &UpstreamError) -> Option<Duration> {
    match error {
        UpstreamError::Status { code: StatusCode::TOO_MANY_REQUESTS, retry_after, .. } => {
            Some(retry_after.unwrap_or(PAUSE).clamp(PAUSE, PAUSE_MAX))
        }
        _ => None,
    }
}

/// How long an upstream that throttles is left alone if it says nothing itself.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest `Retry-After` that is heeded: until then whatever is not remembered is forwarded.
const PAUSE_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retry_after_is_heeded_within_reason() {
        let pause = |code, seconds: Option<u64>| {
            pause_after(&UpstreamError::Status {
                code,
                reason: String::new(),
                message: String::new(),
                retry_after: seconds.map(Duration::from_secs),
            })
        };
        for (told, heeded) in [(None, 1), (Some(0), 1), (Some(5), 5), (Some(3600), 10)] {
            let heeded = Some(Duration::from_secs(heeded));
            assert_eq!(pause(StatusCode::TOO_MANY_REQUESTS, told), heeded, "{told:?}");
        }
        assert_eq!(pause(StatusCode::FORBIDDEN, Some(5)), None);
    }
}

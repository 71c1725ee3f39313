//! What reviews tell of the upstream beside their answers: that it is away.

use parking_lot::Mutex;
use tokio::time::Instant;

use super::decisions::UNANSWERED_TTL;
use super::{Question, Unanswered};
use crate::auth::away::Away;
use crate::upstream::error::UpstreamError;

/// See the module.
#[derive(Default)]
pub(super) struct Health {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    away: Away<Question>,
}

impl Health {
    /// Whether it was away a moment ago, whatever it was asked.
    pub(super) fn is_away(&self) -> bool {
        self.state.lock().away.is_now()
    }

    /// A review was answered.
    pub(super) fn answered(&self) {
        self.state.lock().away.answered();
    }

    /// One was not, for this reason.
    pub(super) fn failed(&self, question: &Question, error: &UpstreamError, why: Unanswered) {
        let now = Instant::now();
        let mut state = self.state.lock();
        if why == Unanswered::Away {
            let certain = matches!(error, UpstreamError::Connect { .. });
            state.away.failed(question.clone(), certain, now + UNANSWERED_TTL);
        } else {
            state.away.answered();
        }
    }
}

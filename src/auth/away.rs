//! Whether the upstream is away for all, as reviews find: one that failed tells it, the next that is answered takes it back.
//!
//! What failed as the upstream's own failure (no connection) is believed at once. Anything else may be the doing of one question that the upstream
//! chokes on, so it is believed when another question fails as well, and none is answered between. Either is news for a moment only: nobody
//! may have asked since, and a decision that has expired is not used on the word of long ago.

use tokio::time::Instant;

/// See the module. `Q` is what is asked about.
#[derive(Debug)]
pub(super) struct Away<Q> {
    until: Option<Instant>,
    /// What failed last, if nothing was answered since.
    suspect: Option<Q>,
}

impl<Q> Default for Away<Q> {
    fn default() -> Self {
        Self { until: None, suspect: None }
    }
}

impl<Q: PartialEq> Away<Q> {
    /// Whether it was, a moment ago.
    pub(super) fn is_now(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() < until)
    }

    /// The upstream said something.
    pub(super) fn answered(&mut self) {
        *self = Self::default();
    }

    /// It did not, when asked about this. It is believed to be away until then, if that is `certain` or nobody else was answered either.
    pub(super) fn failed(&mut self, question: Q, certain: bool, until: Instant) {
        let alone = self.suspect.as_ref().is_none_or(|suspect| *suspect == question);
        if certain || !alone {
            self.until = self.until.max(Some(until));
        }
        self.suspect = Some(question);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MOMENT: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_lost_connection_is_news_for_a_moment() {
        let mut away = Away::default();
        away.failed("a", true, Instant::now() + MOMENT);
        assert!(away.is_now());
        tokio::time::advance(MOMENT).await;
        assert!(!away.is_now());
        away.failed("a", true, Instant::now() + MOMENT);
        away.answered();
        assert!(!away.is_now());
    }

    #[tokio::test(start_paused = true)]
    async fn one_question_alone_is_not_believed() {
        let mut away = Away::default();
        let failed = |away: &mut Away<_>, question| {
            away.failed(question, false, Instant::now() + MOMENT);
            away.is_now()
        };
        assert!(!failed(&mut away, "a"));
        assert!(!failed(&mut away, "a"));
        assert!(failed(&mut away, "b"));
        away.answered();
        assert!(!failed(&mut away, "b"));
        away.answered();
        assert!(!failed(&mut away, "a"));
    }
}

//! Limits the log lines of one kind of event: a burst, and then one a minute with the number of
//! those that were left out.

use std::time::Duration;

use tokio::time::Instant;

/// A token bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineLimit {
    tokens: u32,
    /// The time up to which tokens were added; `None` before the first line.
    filled: Option<Instant>,
    left_out: u64,
}

impl Default for LineLimit {
    fn default() -> Self {
        Self { tokens: BURST, filled: None, left_out: 0 }
    }
}

impl LineLimit {
    /// Returns the number of lines that were left out since the last one, if one may be logged now.
    /// Otherwise counts this one as left out. A line that is logged `always` takes a token, if
    /// there is one.
    pub(super) fn take(&mut self, now: Instant, always: bool) -> Option<u64> {
        let filled = *self.filled.get_or_insert(now);
        let minutes = now.saturating_duration_since(filled).as_secs() / INTERVAL.as_secs();
        let minutes = u32::try_from(minutes).unwrap_or(u32::MAX);
        self.tokens = self.tokens.saturating_add(minutes).min(BURST);
        // A full bucket begins to fill with the next token that is taken.
        self.filled = Some(if self.tokens == BURST { now } else { filled + INTERVAL * minutes });
        if self.tokens == 0 && !always {
            self.left_out += 1;
            return None;
        }
        self.tokens = self.tokens.saturating_sub(1);
        Some(std::mem::take(&mut self.left_out))
    }
}

/// Enough for what a person can still read.
const BURST: u32 = 10;
const INTERVAL: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_burst_there_is_a_line_a_minute() {
        let start = Instant::now();
        let mut limit = LineLimit::default();
        let mut take = |seconds: u64| limit.take(start + Duration::from_secs(seconds), false);
        for _ in 0..10 {
            assert_eq!(take(5), Some(0));
        }
        assert_eq!([take(5), take(64), take(65), take(66)], [None, None, Some(2), None]);
        // Ten tokens at most, however long nothing happened.
        let later: Vec<_> = (0..12).map(|_| take(100_000)).collect();
        assert_eq!(later[0], Some(1));
        assert_eq!(later.iter().flatten().count(), 10);
    }

    #[test]
    fn what_is_always_logged_takes_tokens_too() {
        let now = Instant::now();
        let mut limit = LineLimit::default();
        for _ in 0..12 {
            assert_eq!(limit.take(now, true), Some(0));
        }
        assert_eq!(limit.take(now, false), None);
        assert_eq!(limit.take(now, true), Some(1));
    }
}

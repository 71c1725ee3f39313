//! When the probes of a cache were sent, and how long they took. No I/O, no clock.

use std::time::Duration;

use tokio::time::Instant;

/// The pace of the probes of a cache.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// The time of the last probe.
    sent: Option<Instant>,
    /// The mean duration of the last probes, and when the last one was answered.
    answered: Option<(Duration, Instant)>,
}

impl Pace {
    /// Notes that a probe is sent.
    pub(super) fn sent(&mut self, now: Instant) {
        self.sent = Some(now);
    }

    /// Notes that a probe was answered after `took`.
    pub(super) fn answered(&mut self, now: Instant, took: Duration) {
        let mean = self.recent_mean(now).map_or(took, |mean| (mean * 3 + took) / 4);
        self.answered = Some((mean, now));
    }

    /// Returns how much is left of the gap after the last probe.
    pub(super) fn left(&self, now: Instant, gap: Duration) -> Duration {
        self.sent.map_or(Duration::ZERO, |sent| (sent + gap).saturating_duration_since(now))
    }

    /// Returns how long the next probe is expected to take.
    pub(super) fn duration(&self, now: Instant) -> Duration {
        self.recent_mean(now).unwrap_or(DURATION_UNKNOWN)
    }

    fn recent_mean(&self, now: Instant) -> Option<Duration> {
        let is_recent = |answered: Instant| now.duration_since(answered) <= DURATION_AGE_MAX;
        self.answered.filter(|(_, at)| is_recent(*at)).map(|(mean, _)| mean)
    }
}

/// The expected duration of a probe while none was answered lately: that of a short one, so that
/// the next request finds out.
const DURATION_UNKNOWN: Duration = Duration::from_millis(1);
/// After this time the durations of earlier probes say nothing about the next one.
const DURATION_AGE_MAX: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_gap_counts_from_the_last_probe() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        assert_eq!(pace.left(now, 20 * MS), Duration::ZERO);
        pace.sent(now);
        assert_eq!(pace.left(now + 5 * MS, 20 * MS), 15 * MS);
        assert_eq!(pace.left(now + 25 * MS, 20 * MS), Duration::ZERO);
        assert_eq!(pace.left(now, Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn the_duration_is_a_mean_that_is_forgotten() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        assert_eq!(pace.duration(now), DURATION_UNKNOWN);
        pace.answered(now, 8 * MS);
        assert_eq!(pace.duration(now), 8 * MS);
        pace.answered(now, 4 * MS);
        assert_eq!(pace.duration(now), 7 * MS);
        let later = now + DURATION_AGE_MAX + MS;
        assert_eq!(pace.duration(later), DURATION_UNKNOWN);
        pace.answered(later, 3 * MS);
        assert_eq!(pace.duration(later), 3 * MS);
    }
}

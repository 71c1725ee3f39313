//! Counts the events of the last half minute, such as streams that were reset.

use std::time::Duration;

use tokio::time::Instant;

/// The longest time for which an event counts. It counts for at least half of this.
pub(crate) const RECENT: Duration = Duration::from_secs(30);

/// Counts recent events, in two halves of [`RECENT`], so that it needs no time of each event.
#[derive(Debug)]
pub(crate) struct RecentCount {
    /// The events of the current half and of the one before it.
    halves: [usize; 2],
    half_started: Instant,
}

impl RecentCount {
    /// Creates a count of no events.
    pub(crate) fn new(now: Instant) -> Self {
        Self { halves: [0; 2], half_started: now }
    }

    /// Counts an event.
    pub(crate) fn add(&mut self, now: Instant) {
        self.forget(now);
        let [current, _] = &mut self.halves;
        *current += 1;
    }

    /// Returns the number of recent events.
    pub(crate) fn get(&mut self, now: Instant) -> usize {
        self.forget(now);
        self.halves.iter().sum()
    }

    /// Forgets the events that are no longer recent.
    fn forget(&mut self, now: Instant) {
        let [current, _] = self.halves;
        let elapsed = now.saturating_duration_since(self.half_started);
        if elapsed >= RECENT {
            *self = Self::new(now);
        } else if elapsed >= RECENT / 2 {
            *self = Self { halves: [0, current], half_started: self.half_started + RECENT / 2 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_forgotten_after_half_a_minute() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut count = RecentCount::new(start);
        for second in 0..14 {
            count.add(at(second));
        }
        assert_eq!(count.get(at(14)), 14);
        count.add(at(16));
        assert_eq!(count.get(at(29)), 15);
        assert_eq!(count.get(at(31)), 1);
        assert_eq!(count.get(at(60)), 0);
        // A pause does not make older events recent again.
        count.add(at(100));
        assert_eq!((count.get(at(100)), count.get(at(1000))), (1, 0));
    }
}

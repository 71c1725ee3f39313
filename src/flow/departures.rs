//! When a place becomes free, where places are held for an unknown time, such as by open watches.
//!
//! Nobody knows when a watch ends. But the number of places that were left lately says how many
//! will be, and each one who is refused gets a time of its own, one place after the other. So
//! those who are refused together do not come back together for one place.
//!
//! Invariant: the times that were given are apart by the present interval between two departures,
//! as far as [`WAIT_MAX`] allows.

use std::time::Duration;

/// The departures of the last seconds, and the times that were given to those who were refused.
#[derive(Clone, Copy, Debug, Default)]
pub struct Departures {
    /// The number of the present window.
    window: u64,
    /// The departures in it, and in the one before.
    counts: [u32; 2],
    /// The last time that was given.
    given: Duration,
}

impl Departures {
    /// Notes that a place was left at `now`, a time since any fixed instant.
    pub fn leave(&mut self, now: Duration) {
        self.turn(now);
        let [count, _] = &mut self.counts;
        *count = count.saturating_add(1);
    }

    /// Returns how long one who is refused at `now` should wait.
    pub fn wait(&mut self, now: Duration) -> Duration {
        self.turn(now);
        let interval = self.interval(now).unwrap_or(WAIT_MAX);
        self.given = (self.given.max(now) + interval).min(now + WAIT_MAX);
        self.given - now
    }

    /// Returns the interval between two departures; `None` if there were none lately.
    fn interval(&self, now: Duration) -> Option<Duration> {
        let [present, before] = self.counts.map(f64::from);
        let elapsed = now.as_secs_f64() / WINDOW.as_secs_f64() - self.window as f64;
        // The departure that begins the time is the end of no interval in it.
        let intervals = present + before * (1.0 - elapsed.clamp(0.0, 1.0)) - 1.0;
        (intervals > 0.0).then(|| WINDOW.div_f64(intervals.max(INTERVALS_MIN)))
    }

    /// Begins the window of `now`.
    fn turn(&mut self, now: Duration) {
        let window = now.as_secs() / WINDOW.as_secs();
        let [present, _] = self.counts;
        match window.saturating_sub(self.window) {
            0 => return,
            1 => self.counts = [0, present],
            _ => self.counts = [0, 0],
        }
        self.window = window;
    }
}

/// Departures are counted in windows of this length.
const WINDOW: Duration = Duration::from_secs(10);
/// Departures that are almost forgotten say no more than none.
const INTERVALS_MIN: f64 = 0.1;
/// The longest wait. A later estimate is worth little, and a client that waits longer may have
/// another place meanwhile.
pub const WAIT_MAX: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn without_departures_the_wait_is_the_longest() {
        let mut departures = Departures::default();
        assert_eq!(departures.wait(SECOND), WAIT_MAX);
        assert_eq!(departures.wait(SECOND), WAIT_MAX);
    }

    #[test]
    fn departures_are_forgotten_after_two_windows() {
        let mut departures = Departures::default();
        (0..100).for_each(|_| departures.leave(9 * SECOND));
        assert!(departures.wait(9 * SECOND) < SECOND);
        assert_eq!(departures.wait(30 * SECOND), WAIT_MAX);
    }

    proptest! {
        /// A crowd is refused at once while places are left at a steady rate. A client that comes
        /// back at its time, in whole seconds as of a Retry-After, is taken in by the second
        /// attempt.
        #[test]
        fn who_comes_back_at_its_time_finds_a_place(per_second in 1_u32..50, seconds in 1_u32..25) {
            let mut departures = Departures::default();
            let interval = SECOND / per_second;
            let warm = 20 * per_second;
            (1..=warm).for_each(|number| departures.leave(interval * number));
            let began = interval * warm;
            let mut waiting: Vec<(Duration, u32)> =
                (0..per_second * seconds).map(|_| (began, 0)).collect();
            let (mut left, mut taken) = (0, 0);
            while !waiting.is_empty() {
                waiting.sort();
                let (now, refusals) = waiting.remove(0);
                while began + interval * (left + 1) <= now {
                    left += 1;
                    departures.leave(began + interval * left);
                }
                if taken < left {
                    taken += 1;
                } else {
                    prop_assert!(refusals < 1, "refused {} times", refusals + 1);
                    let wait = departures.wait(now).as_secs_f64().ceil().max(1.0);
                    waiting.push((now + Duration::from_secs_f64(wait), refusals + 1));
                }
            }
        }
    }
}

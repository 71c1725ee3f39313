//! How late the last events came to the demo's clients: from the change of an object in the
//! simulated API server to its arrival at a client.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;

/// The delays of the last events.
#[derive(Debug, Default)]
pub(super) struct Delays(Mutex<VecDeque<Duration>>);

impl Delays {
    /// Adds the delay of an event.
    pub(super) fn add(&self, delay: Duration) {
        let mut delays = self.0.lock();
        if delays.len() == DELAYS_MAX {
            delays.pop_front();
        }
        delays.push_back(delay);
    }

    /// Returns the median and the 99th percentile; `None` before the first event.
    pub(super) fn percentiles(&self) -> Option<[Duration; 2]> {
        let mut sorted: Vec<_> = self.0.lock().iter().copied().collect();
        sorted.sort_unstable();
        let at = |percent: usize| sorted.get((sorted.len() * percent / 100).min(sorted.len() - 1));
        if sorted.is_empty() {
            return None;
        }
        Some([*at(50)?, *at(99)?])
    }
}

/// A few minutes of the usual churn.
const DELAYS_MAX: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_last_delays() {
        let delays = Delays::default();
        assert_eq!(delays.percentiles(), None);
        delays.add(Duration::from_secs(9));
        assert_eq!(delays.percentiles(), Some([Duration::from_secs(9); 2]));
        (0..500).for_each(|millis| delays.add(Duration::from_millis(millis)));
        assert_eq!(delays.percentiles(), Some([250, 495].map(Duration::from_millis)));
    }
}

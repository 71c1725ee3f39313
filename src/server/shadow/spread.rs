//! The spread of times, in a fixed number of places: each is for times up to a fourth longer than
//! the one before.

use std::time::Duration;

/// How many times of each length there were.
#[derive(Clone, Debug)]
pub(crate) struct Spread {
    places: [u64; PLACES],
}

impl Default for Spread {
    fn default() -> Self {
        Self { places: [0; PLACES] }
    }
}

impl Spread {
    pub(crate) fn add(&mut self, time: Duration) {
        let micros = time.as_micros().max(1) as f64;
        let place = (micros.ln() / STEP.ln()).ceil() as usize;
        if let Some(count) = self.places.get_mut(place.min(PLACES - 1)) {
            *count += 1;
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.places.iter_mut().zip(&other.places).for_each(|(count, more)| *count += more);
    }

    /// Returns the time that this part of all did not exceed, in seconds; `None` if there is none.
    pub(crate) fn quantile(&self, part: f64) -> Option<f64> {
        let total: u64 = self.places.iter().sum();
        let mut left = (total as f64 * part).ceil().max(1.0) as u64;
        for (place, count) in self.places.iter().enumerate().filter(|_| total > 0) {
            if *count >= left {
                return Some(STEP.powf(place as f64) * 1e-6);
            }
            left -= count;
        }
        None
    }
}

/// Up to about a quarter of an hour.
const PLACES: usize = 96;
const STEP: f64 = 1.25;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_near() {
        let mut spread = Spread::default();
        assert_eq!(spread.quantile(0.5), None);
        (1..=100).for_each(|ms| spread.add(Duration::from_millis(ms)));
        for (part, expected) in [(0.5, 0.050), (0.99, 0.099)] {
            let estimate = spread.quantile(part).unwrap();
            assert!((expected..expected * 1.26).contains(&estimate), "{part}: {estimate}");
        }
        spread.add(Duration::from_secs(1 << 30));
        spread.add(Duration::ZERO);
        assert!(spread.quantile(0.0).unwrap() <= 1e-5);
    }
}

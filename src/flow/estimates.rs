//! Estimates of forwarded requests, learned by kind of request: for how long they hold their seats,
//! and the bytes of their responses.
//!
//! The table has a fixed size. If two kinds have the same place, the later one begins without an
//! estimate: no kind has that of another one.

use std::time::Duration;

/// The estimates.
#[derive(Debug)]
pub struct Estimates {
    places: Box<[Estimate]>,
}

/// The estimate of one kind; zero where nothing is known.
#[derive(Clone, Copy, Debug, Default)]
struct Estimate {
    kind: u64,
    seconds: f32,
    bytes: f32,
}

impl Default for Estimates {
    fn default() -> Self {
        Self { places: vec![Estimate::default(); PLACES].into() }
    }
}

impl Estimates {
    /// Returns the time that a request of a kind is expected to take. `kind` is a hash.
    pub fn duration(&self, kind: u64, seats: u64) -> Duration {
        let seconds = self.of(kind).map_or(0.0, |estimate| estimate.seconds);
        if seconds > 0.0 {
            return Duration::from_secs_f32(seconds);
        }
        if seats > 1 { FIRST_OF_SEAT * u32::try_from(seats).unwrap_or(1) } else { FIRST }
    }

    /// Returns the bytes of the responses to a kind of request; `None` before the first one.
    pub fn bytes(&self, kind: u64) -> Option<u64> {
        let bytes = self.of(kind).map_or(0.0, |estimate| estimate.bytes);
        (bytes > 0.0).then_some(bytes as u64)
    }

    fn of(&self, kind: u64) -> Option<&Estimate> {
        self.places.get(place(kind)).filter(|estimate| estimate.kind == kind)
    }

    /// Notes how long a request took, and the bytes of its objects if all were read.
    pub fn add(&mut self, kind: u64, taken: Duration, bytes: Option<u64>) {
        let Some(estimate) = self.places.get_mut(place(kind)) else { return };
        if estimate.kind != kind {
            *estimate = Estimate { kind, ..Estimate::default() };
        }
        move_to(&mut estimate.seconds, taken.clamp(LEAST, MOST).as_secs_f32());
        if let Some(bytes) = bytes {
            let bytes = bytes.max(1) as f32;
            // A collection that has grown counts at once: its lists are the expensive ones.
            estimate.bytes = estimate.bytes.max(bytes);
            move_to(&mut estimate.bytes, bytes);
        }
    }
}

fn move_to(estimate: &mut f32, value: f32) {
    let before = if *estimate > 0.0 { *estimate } else { value };
    *estimate = before + (value - before) * WEIGHT;
}

fn place(kind: u64) -> usize {
    usize::try_from(kind % PLACES as u64).unwrap_or(0)
}

const PLACES: usize = 4096;
const WEIGHT: f32 = 1.0 / 16.0;
/// Before the first request of a kind.
const FIRST: Duration = Duration::from_millis(3);
/// Before the first list of a kind, for each seat.
const FIRST_OF_SEAT: Duration = Duration::from_millis(50);
const LEAST: Duration = Duration::from_millis(1);
const MOST: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collection_is_as_large_as_it_was_lately() {
        let mut estimates = Estimates::default();
        assert_eq!(estimates.bytes(7), None);
        estimates.add(7, LEAST, Some(1_000));
        estimates.add(7, LEAST, None);
        assert_eq!(estimates.bytes(7), Some(1_000));
        estimates.add(7, LEAST, Some(5_000_000));
        assert_eq!(estimates.bytes(7), Some(5_000_000));
        for _ in 0..100 {
            estimates.add(7, LEAST, Some(1_000));
        }
        assert!(estimates.bytes(7).unwrap() < 20_000);
        let other = 7 + PLACES as u64;
        assert_eq!(estimates.bytes(other), None);
        estimates.add(other, LEAST, None);
        assert_eq!(estimates.bytes(7), None, "its place was taken");
    }
}

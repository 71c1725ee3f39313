//! How long forwarded requests hold their seats, learned by kind of request.
//!
//! A table of a fixed size: kinds that share a place share an estimate.

use std::time::Duration;

/// The estimates.
#[derive(Debug)]
pub struct Durations {
    /// The estimates in seconds; zero where none is known.
    seconds: Box<[f32]>,
}

impl Default for Durations {
    fn default() -> Self {
        Self { seconds: vec![0.0; PLACES].into() }
    }
}

impl Durations {
    /// Returns the time that a request of a kind is expected to take. `kind` is a hash.
    pub fn expected(&self, kind: u64, seats: u64) -> Duration {
        let seconds = self.seconds.get(place(kind)).copied().unwrap_or(0.0);
        if seconds > 0.0 {
            return Duration::from_secs_f32(seconds);
        }
        if seats > 1 { FIRST_OF_SEAT * u32::try_from(seats).unwrap_or(1) } else { FIRST }
    }

    /// Notes how long a request took.
    pub fn add(&mut self, kind: u64, taken: Duration) {
        let taken = taken.clamp(LEAST, MOST).as_secs_f32();
        if let Some(seconds) = self.seconds.get_mut(place(kind)) {
            let before = if *seconds > 0.0 { *seconds } else { taken };
            *seconds = before + (taken - before) * WEIGHT;
        }
    }
}

fn place(kind: u64) -> usize {
    usize::try_from(kind % PLACES as u64).unwrap_or(0)
}

const PLACES: usize = 2048;
const WEIGHT: f32 = 1.0 / 16.0;
/// Before the first request of a kind.
const FIRST: Duration = Duration::from_millis(3);
/// Before the first list of a kind, for each seat.
const FIRST_OF_SEAT: Duration = Duration::from_millis(50);
const LEAST: Duration = Duration::from_millis(1);
const MOST: Duration = Duration::from_secs(10);

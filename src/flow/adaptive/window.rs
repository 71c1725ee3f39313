//! The counts of an API server between two evaluations, and the effect of a lower limit.

use std::time::Duration;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outcomes {
    pub(super) answers: u32,
    /// The seats of all answers.
    pub(super) seats: u64,
    pub(super) errors: u32,
    /// Requests without an answer.
    pub(super) lost: u32,
}

#[derive(Debug)]
pub(super) struct Window {
    pub(super) began: Duration,
    /// The time until which `seat_seconds` are counted.
    pub(super) counted: Duration,
    pub(super) seat_seconds: f64,
    pub(super) peak: u64,
    pub(super) outcomes: Outcomes,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// The mean of the seats in use.
    pub(super) in_use: f64,
    pub(super) peak: f64,
    pub(super) answers: u32,
    /// Seats whose answers came, in a second.
    pub(super) rate: f64,
}

/// The state before the limit was lowered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    pub(super) at: Duration,
    pub(super) limit: f64,
    pub(super) seen: Seen,
}

impl Window {
    pub(super) fn new(began: Duration, in_use: u64) -> Self {
        let outcomes = Outcomes::default();
        Self { began, counted: began, seat_seconds: 0.0, peak: in_use, outcomes }
    }

    pub(super) fn count(&mut self, now: Duration, in_use: u64) {
        let passed = now.saturating_sub(self.counted).as_secs_f64();
        self.seat_seconds += in_use as f64 * passed;
        self.counted = self.counted.max(now);
    }
}

impl Seen {
    /// Returns the standard deviation of the rate, in parts of it, of answers at random times.
    fn noise(&self) -> f64 {
        1.0 / f64::from(self.answers.max(1)).sqrt()
    }
}

impl Cut {
    pub(super) fn is_recent(&self, now: Duration) -> bool {
        now.saturating_sub(self.at) < CUT_FOR
    }

    /// Returns by how much more the server answered in a second before, if that is no chance.
    pub(super) fn gain(&self, seen: &Seen) -> Option<f64> {
        let is_enough = seen.answers.min(self.seen.answers) >= ANSWERS_MIN;
        let gain = self.seen.rate / seen.rate.max(1.0);
        let least = GAIN_MIN + 2.0 * self.seen.noise().hypot(seen.noise());
        (is_enough && gain >= least).then_some(gain)
    }

    /// Whether a limit that binds has taken answers with the seats: nothing waits in the server.
    /// If there is a queue, the number of answers stays, and only that of seats falls.
    pub(super) fn took_answers(&self, seen: &Seen) -> bool {
        let is_enough = seen.answers.min(self.seen.answers) >= ANSWERS_MIN;
        let left = seen.in_use / self.seen.in_use.max(1.0);
        // Halfway between as many and as many fewer, and not by chance.
        let halfway = left.sqrt() - self.seen.noise().hypot(seen.noise());
        is_enough && left <= CUT_MIN && seen.rate < self.seen.rate * halfway
    }
}

/// How long the window before a cut shows the capacity of the server.
const CUT_FOR: Duration = Duration::from_secs(10);
/// A cut is checked once at most this part of the seats is in use, if there were this number of
/// answers.
const CUT_MIN: f64 = 0.7;
const ANSWERS_MIN: u32 = 100;
/// Answers that are a little more, beyond chance, are no reason to change the limit.
const GAIN_MIN: f64 = 1.05;

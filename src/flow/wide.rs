//! How many wide requests, those of several seats, one API server can do at once: lists without a
//! limit, and large pages.
//!
//! Seats do not show it. A list that an API server encodes keeps one of its processors busy, and
//! beyond as many lists as it has processors, each short request waits behind them. So wide
//! requests begin with one at a time. While several run or wait, short requests of Weir's own
//! measure how long the server lets them wait. As long as they take little more than the least that
//! one took, the limit doubles where it is used; if they take longer, it returns to the half, where
//! it stays for a while.
//!
//! Pure: no I/O, no clock. Time is an argument, and may not go back.
//!
//! The design is that of `docs/decisions/adaptive-limits.md`.

use std::time::Duration;

/// The limit of one API server.
#[derive(Debug)]
pub struct WideLimit {
    seats: u64,
    /// The latencies of the short requests since the last verdict.
    samples: Vec<Duration>,
    /// Whether the limit was used while they were taken.
    is_used: bool,
    /// The least latency of this period, and of the one before.
    least: [Option<Duration>; 2],
    least_since: Duration,
    /// The time until which the limit does not grow, and for how long it was held.
    held_until: Duration,
    held_for: Duration,
    /// Whether it has grown since it was held.
    has_grown: bool,
}

impl WideLimit {
    /// Begins with one request.
    pub fn new(now: Duration) -> Self {
        Self {
            seats: 1,
            samples: Vec::with_capacity(SAMPLES),
            is_used: false,
            least: [None; 2],
            least_since: now,
            held_until: now,
            held_for: Duration::ZERO,
            has_grown: false,
        }
    }

    /// Returns the most seats of wide requests. One request may always run.
    pub fn seats(&self) -> u64 {
        self.seats
    }

    /// Notes how long a short request took; `None` if it got no answer, or a refusal. `is_used` is
    /// whether wide requests took much of the limit meanwhile.
    pub fn note(&mut self, now: Duration, latency: Option<Duration>, is_used: bool) {
        if let Some(latency) = latency {
            self.note_least(now, latency);
        }
        self.samples.push(latency.unwrap_or(Duration::MAX));
        self.is_used |= is_used;
        if self.samples.len() < SAMPLES {
            return;
        }
        let latency = self.samples.iter().max().copied().unwrap_or_default();
        self.samples.clear();
        let is_used = std::mem::take(&mut self.is_used);
        let least = self.least.iter().flatten().min().copied().unwrap_or_default();
        if latency > (least * SLOW).saturating_add(PAUSE) {
            self.shrink(now);
        } else if now >= self.held_until && is_used {
            self.has_grown = true;
            self.seats = (self.seats * 2).clamp(SEATS_FIRST, SEATS_MAX);
        }
    }

    fn note_least(&mut self, now: Duration, latency: Duration) {
        if now.saturating_sub(self.least_since) >= PERIOD {
            self.least = [None, self.least[0]];
            self.least_since = now;
        }
        self.least[0] = Some(self.least[0].map_or(latency, |least| least.min(latency)));
    }

    fn shrink(&mut self, now: Duration) {
        if std::mem::take(&mut self.has_grown) {
            self.held_for = (self.held_for * 2).clamp(HELD_MIN, HELD_MAX);
        } else if now >= self.held_until {
            self.held_for = HELD_MIN;
        }
        self.held_until = now + self.held_for;
        self.seats = if self.seats <= SEATS_FIRST { 1 } else { self.seats / 2 };
    }
}

/// The latencies of which the longest counts: a limit that stays too low for a minute costs less
/// than one that is too high.
const SAMPLES: usize = 5;
/// The first limit beyond one request: two lists of ten seats, the most of a list that a watch
/// cache answers.
const SEATS_FIRST: u64 = 20;
/// More than all seats of an API server.
const SEATS_MAX: u64 = 1 << 20;
/// A server is slow if short requests take this many times as long as the least one...
const SLOW: u32 = 2;
/// ...and longer by this, which is nearly the time that Go lets a goroutine run.
const PAUSE: Duration = Duration::from_millis(8);
/// The least latency is that of the last two periods.
const PERIOD: Duration = Duration::from_secs(600);
/// How long the limit stays after a growth that was too much. Each further one doubles the time.
const HELD_MIN: Duration = Duration::from_secs(60);
const HELD_MAX: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Notes the latencies of a server with this many processors, each of which does one list of
    /// ten seats at a time, for some seconds. Returns the seats in each second.
    fn run(limit: &mut WideLimit, began: u64, seconds: u64, processors: u64) -> Vec<u64> {
        let second = |second: u64| {
            let now = SECOND * u32::try_from(began + second).unwrap();
            for _ in 0..SAMPLES {
                let lists = limit.seats().div_ceil(10);
                let waits = Duration::from_millis(30) * u32::from(lists > processors);
                limit.note(now, Some(Duration::from_millis(2) + waits), true);
            }
            limit.seats()
        };
        (0..seconds).map(second).collect()
    }

    #[test]
    fn a_large_server_is_soon_used() {
        let seats = run(&mut WideLimit::new(Duration::ZERO), 0, 5, 64);
        assert_eq!(seats, [20, 40, 80, 160, 320]);
    }

    #[test]
    fn a_small_server_gets_one_list_at_a_time_but_for_rare_attempts() {
        let mut limit = WideLimit::new(Duration::ZERO);
        let seats = run(&mut limit, 0, 1000, 1);
        let beyond = seats.iter().filter(|seats| **seats > 10).count();
        assert_eq!(limit.seats(), 1);
        assert!((2..=5).contains(&beyond), "{beyond} of 1000 seconds");
    }

    #[test]
    fn a_server_that_becomes_slow_gets_fewer_at_once() {
        let mut limit = WideLimit::new(Duration::ZERO);
        run(&mut limit, 0, 5, 64);
        let seats = run(&mut limit, 5, 6, 2);
        assert_eq!(seats, [160, 80, 40, 20, 20, 20]);
        assert_eq!(limit.held_for, HELD_MIN, "it is one lesson");
    }

    #[test]
    fn without_answers_it_does_not_grow() {
        let mut limit = WideLimit::new(Duration::ZERO);
        (0..20).for_each(|_| limit.note(SECOND, None, true));
        assert_eq!(limit.seats(), 1);
    }

    #[test]
    fn a_limit_that_is_not_used_stays() {
        let mut limit = WideLimit::new(Duration::ZERO);
        let quick = Some(Duration::from_millis(2));
        (0..20).for_each(|_| limit.note(SECOND, quick, false));
        assert_eq!(limit.seats(), 1);
    }
}

//! How many wide requests, those of several seats, one API server can do at once: lists without a
//! limit, and large pages.
//!
//! Seats do not show it. A list that an API server encodes keeps one of its processors busy, and
//! beyond as many lists as it has processors, each short request waits behind them. So wide
//! requests begin with one at a time. While others wait for their turn, short requests of Weir's
//! own measure how long the server lets them wait. As long as they take what they usually take,
//! the limit doubles; if they take longer, it returns to the half, where it stays for a while.
//!
//! Pure: no I/O, no clock. Time is an argument, and may not go back.
//!
//! The design is that of `docs/decisions/adaptive-limits.md`.

use std::time::Duration;

/// The limit of one API server.
#[derive(Debug)]
pub struct WideLimit {
    seats: u64,
    /// The latencies of the short requests since the last change.
    samples: Vec<Duration>,
    /// The least latency that counted in this period, and in the one before.
    usual: [Option<Duration>; 2],
    usual_since: Duration,
    /// The time until which the limit does not grow, and for how long it was held.
    held_until: Duration,
    held_for: Duration,
}

impl WideLimit {
    /// Begins with one request.
    pub fn new(now: Duration) -> Self {
        Self {
            seats: 1,
            samples: Vec::with_capacity(SAMPLES),
            usual: [None; 2],
            usual_since: now,
            held_until: now,
            held_for: Duration::ZERO,
        }
    }

    /// Returns the most seats of wide requests. One request may always run.
    pub fn seats(&self) -> u64 {
        self.seats
    }

    /// Notes how long a short request took while wide ones waited for their turn.
    pub fn note(&mut self, now: Duration, latency: Duration) {
        self.samples.push(latency);
        if self.samples.len() < SAMPLES {
            return;
        }
        self.samples.sort_unstable();
        let latency = self.samples.get(SAMPLES - 2).copied().unwrap_or_default();
        self.samples.clear();
        if self.is_slow(now, latency) {
            self.shrink(now);
        } else if now >= self.held_until {
            // It took more for as long as it was held before: that verdict is out of date.
            if now >= self.held_until + self.held_for {
                self.held_for = Duration::ZERO;
            }
            self.seats = self.seats.max(SEATS_FIRST / 2).saturating_mul(2).min(SEATS_MAX);
        }
    }

    /// Whether short requests take much longer than usual.
    fn is_slow(&mut self, now: Duration, latency: Duration) -> bool {
        if now.saturating_sub(self.usual_since) >= PERIOD {
            self.usual = [None, self.usual[0]];
            self.usual_since = now;
        }
        let least = self.usual[0].map_or(latency, |usual| usual.min(latency));
        self.usual[0] = Some(least);
        let usual = self.usual[1].map_or(least, |before| before.min(least));
        latency > (usual * SLOW).max(FAST)
    }

    fn shrink(&mut self, now: Duration) {
        if self.seats > 1 {
            self.held_for = (self.held_for * 2).clamp(HELD_MIN, HELD_MAX);
            self.seats = if self.seats <= SEATS_FIRST { 1 } else { self.seats / 2 };
        }
        self.held_until = now + self.held_for;
    }
}

/// The latencies of which the second longest counts: one pause does not tell a busy server.
const SAMPLES: usize = 5;
/// The first limit beyond one request: two lists of ten seats, the most of a list that a watch
/// cache answers.
const SEATS_FIRST: u64 = 20;
/// More than all seats of an API server.
const SEATS_MAX: u64 = 1 << 20;
/// A server is slow if short requests take this many times as long as usual...
const SLOW: u32 = 3;
/// ...and longer than this, which is the time that Go lets a goroutine run.
const FAST: Duration = Duration::from_millis(10);
/// The usual latency is the least of the last two periods.
const PERIOD: Duration = Duration::from_secs(300);
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
                limit.note(now, Duration::from_millis(2) + waits);
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
    }
}

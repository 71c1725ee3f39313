//! When requests of one kind came: the last time, and in which parts of the last hour.

use std::time::Duration;

/// The times at which requests of one kind came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    last: Duration,
    /// The number of the part that the lowest bit of `begins` stands for.
    part: u64,
    /// The parts in which requests came, the latest in the lowest bit.
    begins: u16,
}

impl Seen {
    /// Nothing came yet.
    pub fn new(now: Duration) -> Self {
        Self { last: now, part: part_of(now), begins: 0 }
    }

    /// Notes that something came at `now`. `begins` is whether it was a request, and not more of
    /// the response to an earlier one.
    pub fn note(&mut self, now: Duration, begins: bool) {
        self.begins = self.parts(now) | u16::from(begins);
        self.part = part_of(now);
        self.last = now;
    }

    /// Returns the parts of the last hour in which requests came, of five minutes each, as bits.
    pub fn parts(&self, now: Duration) -> u16 {
        let past = part_of(now).saturating_sub(self.part);
        let begins = u32::try_from(past).ok().and_then(|past| self.begins.checked_shl(past));
        begins.unwrap_or(0) & PARTS
    }

    /// Returns how long ago something came last.
    pub fn age(&self, now: Duration) -> Duration {
        now.saturating_sub(self.last)
    }
}

fn part_of(now: Duration) -> u64 {
    now.as_secs() / PART_SECONDS
}

const PART_SECONDS: u64 = 300;
/// Those of an hour.
const PARTS: u16 = (1 << 12) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_those_of_the_last_hour() {
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        let mut seen = Seen::new(minutes(3));
        assert_eq!(seen.parts(minutes(3)), 0);
        for minute in [3, 4, 11, 12] {
            seen.note(minutes(minute), true);
        }
        assert_eq!(seen.parts(minutes(13)), 0b101);
        seen.note(minutes(20), false);
        assert_eq!(seen.parts(minutes(20)), 0b10100);
        assert_eq!(seen.age(minutes(21)), minutes(1));
        assert_eq!(seen.parts(minutes(65)).count_ones(), 1, "the first one is too old");
        assert_eq!(seen.parts(minutes(1_000_000)), 0);
    }
}

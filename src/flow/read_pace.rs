//! How fast the client of a forwarded response reads it.
//!
//! A client is slow if it reads less than [`RATE_BYTES_MIN`] a second for [`SLOW_AFTER`], while the
//! API server has more to send. Its response takes no time of the API server any more. After
//! [`STALLED_AFTER`] it is stalled.
//!
//! Pure: no clock, no I/O. Time is an argument, since any fixed instant.

use std::time::Duration;

/// The pace at which a client reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pace {
    /// It reads all that the API server sends.
    Reads,
    /// It reads slowly.
    Slow,
    /// It has read slowly for a long time.
    Stalled,
}

/// The observation of how fast a client reads.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadPace {
    /// The begin of a window of slow reading, and the bytes that were read before.
    window: Option<(Duration, u64)>,
    slow_since: Option<Duration>,
}

impl ReadPace {
    /// Returns the pace. `read` are the bytes that the client has read in all, and
    /// `waits_for_client` is whether it is the client for which the response waits. Call this about
    /// once a second.
    pub fn observe(&mut self, now: Duration, read: u64, waits_for_client: bool) -> Pace {
        let (since, before) = *self.window.get_or_insert((now, read));
        let time = now.saturating_sub(since);
        if !waits_for_client || read.saturating_sub(before) >= WINDOW_BYTES {
            *self = Self { window: Some((now, read)), slow_since: None };
            return Pace::Reads;
        }
        if time >= SLOW_AFTER {
            self.window = Some((now, read));
            self.slow_since = self.slow_since.or(Some(since));
        }
        match self.slow_since {
            None => Pace::Reads,
            Some(since) if now.saturating_sub(since) < STALLED_AFTER => Pace::Slow,
            Some(_) => Pace::Stalled,
        }
    }
}

/// The bytes a second below which a client is slow: less than networks carry where clients list
/// much.
pub const RATE_BYTES_MIN: u64 = 16 << 10;
/// The time of reading less after which a client is slow.
pub const SLOW_AFTER: Duration = Duration::from_secs(10);
/// The time of being slow after which a client is stalled.
pub const STALLED_AFTER: Duration = Duration::from_secs(30);
const WINDOW_BYTES: u64 = RATE_BYTES_MIN * SLOW_AFTER.as_secs();

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the pace of a client in each second. `reads` are the arguments of
    /// [`ReadPace::observe`].
    fn paces(reads: impl IntoIterator<Item = (u64, bool)>) -> Vec<Pace> {
        let mut pace = ReadPace::default();
        let mut read = 0;
        let observe = |(second, (bytes, waits)): (u64, (u64, bool))| {
            read += bytes;
            pace.observe(Duration::from_secs(second), read, waits)
        };
        (0..).zip(reads).map(observe).collect()
    }

    #[test]
    fn a_client_that_reads_nothing_is_slow_and_then_stalled() {
        let paces = paces([(0, true); 40]);
        assert!(paces[..10].iter().all(|pace| *pace == Pace::Reads));
        assert!(paces[10..30].iter().all(|pace| *pace == Pace::Slow));
        assert!(paces[30..].iter().all(|pace| *pace == Pace::Stalled));
    }

    #[test]
    fn a_steady_client_is_not_slow() {
        let steady = paces([(RATE_BYTES_MIN, true); 60]);
        assert!(steady.iter().all(|pace| *pace == Pace::Reads));
        // One that reads in steps neither.
        let steps = (0..60).map(|second| (if second % 9 == 0 { WINDOW_BYTES } else { 0 }, true));
        assert!(paces(steps).iter().all(|pace| *pace == Pace::Reads));
        let slower = paces([(RATE_BYTES_MIN / 2, true); 40]);
        assert_eq!((slower[9], slower[11], slower[39]), (Pace::Reads, Pace::Slow, Pace::Stalled));
    }

    #[test]
    fn the_api_servers_slowness_does_not_count() {
        assert!(paces([(0, false); 90]).iter().all(|pace| *pace == Pace::Reads));
        let after_a_pause = [(0, true); 9].into_iter().chain([(0, false)]).chain([(0, true); 9]);
        assert!(paces(after_a_pause).iter().all(|pace| *pace == Pace::Reads));
    }

    #[test]
    fn a_client_that_reads_again_is_not_slow_any_more() {
        let reads = [(0, true); 15].into_iter().chain([(WINDOW_BYTES, true); 3]);
        let paces = paces(reads);
        assert_eq!((paces[14], paces[15]), (Pace::Slow, Pace::Reads));
    }
}

//! The outcomes of the latest requests to a server.

use std::time::Duration;

use tokio::time::Instant;

/// Successful and failed requests of the last ten seconds, by second.
#[derive(Debug, Default)]
pub(super) struct Window {
    buckets: [Bucket; BUCKETS],
    /// The time of the newest bucket, which is the last one; `None` before the first request.
    newest: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    successes: u32,
    failures: u32,
}

impl Window {
    /// Counts a request.
    pub(super) fn add(&mut self, succeeded: bool, now: Instant) {
        self.forget(now);
        let [.., newest] = &mut self.buckets;
        let count = if succeeded { &mut newest.successes } else { &mut newest.failures };
        *count = count.saturating_add(1);
    }

    /// Returns whether less than half of enough requests were successful.
    pub(super) fn mostly_failed(&mut self, now: Instant) -> bool {
        self.forget(now);
        let sum = |count: fn(&Bucket) -> u32| -> u64 {
            self.buckets.iter().map(|bucket| u64::from(count(bucket))).sum()
        };
        let (successes, failures) = (sum(|bucket| bucket.successes), sum(|bucket| bucket.failures));
        successes + failures >= WINDOW_MIN && successes < failures
    }

    /// Drops the buckets that are too old.
    fn forget(&mut self, now: Instant) {
        let newest = *self.newest.get_or_insert(now);
        let seconds = now.saturating_duration_since(newest).as_secs();
        if seconds == 0 {
            return;
        }
        let passed = usize::try_from(seconds).unwrap_or(BUCKETS).min(BUCKETS);
        self.buckets.rotate_left(passed % BUCKETS);
        for bucket in self.buckets.iter_mut().rev().take(passed) {
            *bucket = Bucket::default();
        }
        self.newest = Some(newest + Duration::from_secs(seconds));
    }
}

/// The latest reads of built-in resources: a bit for each, set if it failed.
#[derive(Debug, Default)]
pub(super) struct CoreReads {
    failed: u32,
    count: u32,
}

impl CoreReads {
    /// Notes a read.
    pub(super) fn add(&mut self, failed: bool) {
        self.failed = ((self.failed << 1) | u32::from(failed)) & ((1 << CORE_READS) - 1);
        self.count = (self.count + 1).min(CORE_READS);
    }

    /// Returns whether most of the latest reads failed.
    pub(super) fn mostly_failed(&self) -> bool {
        self.count == CORE_READS && self.failed.count_ones() * 2 > CORE_READS
    }
}

/// The seconds that count.
const BUCKETS: usize = 10;
/// The least number of requests from which a share is judged.
pub(super) const WINDOW_MIN: u64 = 20;
/// The reads of built-in resources that are remembered.
pub(super) const CORE_READS: u32 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_count_for_ten_seconds() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut window = Window::default();
        for _ in 0..19 {
            window.add(false, at(0));
        }
        assert!(!window.mostly_failed(at(0)), "too few");
        window.add(false, at(500));
        assert!(window.mostly_failed(at(9_900)));
        assert!(!window.mostly_failed(at(10_000)));
        // The first bucket begins with the first request, also after a long pause.
        for _ in 0..20 {
            window.add(true, at(1_000_000));
            window.add(false, at(1_000_500));
        }
        assert!(!window.mostly_failed(at(1_001_000)), "half of them failed");
        window.add(false, at(1_001_000));
        assert!(window.mostly_failed(at(1_001_000)));
    }

    #[test]
    fn most_of_twenty_reads_must_fail() {
        let mut reads = CoreReads::default();
        for index in 0..20 {
            assert!(!reads.mostly_failed());
            reads.add(index % 2 == 0);
        }
        assert!(!reads.mostly_failed(), "half of them failed");
        reads.add(true);
        assert!(!reads.mostly_failed(), "the oldest failure is forgotten");
        reads.add(true);
        assert!(reads.mostly_failed());
    }
}

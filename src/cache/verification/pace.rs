//! When which cache is checked. Pure: time is an argument, as the duration since any start.
//!
//! Each cache is due once in a round divided by its pages, so that all its objects are compared
//! once in a round. Over all caches there is at most one page in [`PAGE_GAP`]; caches that are too
//! large for that together take longer rounds. A check that proved nothing is repeated later and
//! later. While the upstream refuses requests, nothing is checked, for longer and longer.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

/// The end of a check, as far as the pace depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckEnd {
    /// It proved something.
    Conclusive,
    /// It proved nothing.
    Inconclusive,
    /// The upstream refused it, or is away.
    Refused,
}

/// A cache that can be checked.
#[derive(Clone, Debug)]
pub(crate) struct Candidate<K> {
    pub(crate) key: K,
    /// The number of pages of its round, at least one.
    pub(crate) pages: u32,
    /// Whether it waits to be checked whole.
    pub(crate) is_urgent: bool,
}

/// The times at which caches are due.
#[derive(Debug)]
pub(crate) struct Pace<K> {
    caches: HashMap<K, CachePace>,
    /// Nothing is checked before.
    next: Duration,
    /// The refusals in a row.
    refusals: u32,
}

#[derive(Clone, Copy, Debug)]
struct CachePace {
    due: Duration,
    /// The checks in a row that proved nothing.
    failures: u32,
}

impl<K: Clone + Eq + Hash> Pace<K> {
    /// Nothing is due yet.
    pub(crate) fn new() -> Self {
        Self { caches: HashMap::new(), next: Duration::ZERO, refusals: 0 }
    }

    /// Whether a page may be requested at all.
    pub(crate) fn is_open(&self, now: Duration) -> bool {
        now >= self.next
    }

    /// Lets no page be requested for a while.
    pub(crate) fn pause(&mut self, until: Duration) {
        self.next = self.next.max(until);
    }

    /// Returns the cache that has been due for the longest time, if a page may be requested. A
    /// cache that is new is first due after a part of its interval, between a half and the whole,
    /// which `spread` in 0..1 chooses: it was listed a moment ago. Forgets those that are not among
    /// the candidates.
    pub(crate) fn choose(
        &mut self,
        candidates: &[Candidate<K>],
        round: Duration,
        now: Duration,
        mut spread: impl FnMut() -> f64,
    ) -> Option<K> {
        let mut due: Option<(Duration, &K)> = None;
        let mut kept = HashMap::with_capacity(candidates.len());
        for candidate in candidates {
            let new = || {
                let part = f64::midpoint(1.0, spread().clamp(0.0, 1.0));
                let due = now + interval(candidate, round).mul_f64(part);
                CachePace { due, failures: 0 }
            };
            let mut pace = self.caches.remove(&candidate.key).unwrap_or_else(new);
            if candidate.is_urgent && pace.failures == 0 {
                pace.due = pace.due.min(now);
            }
            kept.insert(candidate.key.clone(), pace);
            if pace.due <= now && due.is_none_or(|(earliest, _)| pace.due < earliest) {
                due = Some((pace.due, &candidate.key));
            }
        }
        self.caches = kept;
        due.map(|(_, key)| key.clone()).filter(|_| self.is_open(now))
    }

    /// Notes that a page of a cache was checked. `gap` is the least time until the next page of any
    /// cache.
    pub(crate) fn checked(
        &mut self,
        candidate: &Candidate<K>,
        end: CheckEnd,
        round: Duration,
        gap: Duration,
        now: Duration,
    ) {
        self.next = now + gap;
        let last = self.caches.get(&candidate.key);
        let failures = last.map_or(0, |last| last.failures);
        let (wait, failures) = match end {
            CheckEnd::Conclusive => {
                self.refusals = 0;
                (interval(candidate, round), 0)
            }
            CheckEnd::Inconclusive => (back_off(round, failures), failures.saturating_add(1)),
            CheckEnd::Refused => {
                self.pause(now + back_off(round, self.refusals));
                self.refusals = self.refusals.saturating_add(1);
                (interval(candidate, round), failures)
            }
        };
        self.caches.insert(candidate.key.clone(), CachePace { due: now + wait, failures });
    }
}

/// Returns the time between two pages of a cache.
fn interval<K>(candidate: &Candidate<K>, round: Duration) -> Duration {
    if candidate.is_urgent { Duration::ZERO } else { round / candidate.pages.max(1) }
}

/// Returns the wait after a number of failures: a twentieth of a round, doubled up to a whole one.
fn back_off(round: Duration, failures: u32) -> Duration {
    (round / BACK_OFF_PARTS).saturating_mul(1 << failures.min(BACK_OFF_DOUBLINGS)).min(round)
}

/// The least time between two pages, over all caches.
pub(crate) const PAGE_GAP: Duration = Duration::from_secs(1);
/// The same before an API server that reads exact pages from etcd.
pub(crate) const ETCD_PAGE_GAP: Duration = Duration::from_secs(600);
const BACK_OFF_PARTS: u32 = 20;
const BACK_OFF_DOUBLINGS: u32 = 5;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ROUND: Duration = Duration::from_secs(600);

    fn candidate(key: u32, pages: u32) -> Candidate<u32> {
        Candidate { key, pages, is_urgent: false }
    }

    /// Returns the seconds at which the pages of each cache were checked.
    fn run(candidates: &[Candidate<u32>], seconds: u64) -> HashMap<u32, Vec<u64>> {
        let mut pace = Pace::new();
        let mut checked: HashMap<u32, Vec<u64>> = HashMap::new();
        for second in 0..seconds {
            let now = Duration::from_secs(second);
            let Some(key) = pace.choose(candidates, ROUND, now, || 0.5) else { continue };
            checked.entry(key).or_default().push(second);
            let candidate = candidates.iter().find(|candidate| candidate.key == key).unwrap();
            pace.checked(candidate, CheckEnd::Conclusive, ROUND, PAGE_GAP, now);
        }
        checked
    }

    #[test]
    fn a_hundred_thousand_objects_are_checked_once_in_ten_minutes() {
        let checked = run(&[candidate(1, 200), candidate(2, 1)], 1200);
        let later = |key: u32| checked[&key].iter().filter(|second| **second >= 600).count();
        assert!((195..=200).contains(&later(1)), "{}", later(1));
        assert_eq!(later(2), 1);
    }

    #[test]
    fn caches_that_are_too_large_together_take_turns() {
        let checked = run(&[candidate(1, 900), candidate(2, 900), candidate(3, 1)], 3600);
        let count = |key: u32| checked[&key].len();
        assert!(count(1).abs_diff(count(2)) <= 2 && count(1) > 1700, "{} {}", count(1), count(2));
        assert!(count(3) >= 5);
    }

    #[test]
    fn a_refusal_stops_all_checks_for_longer_and_longer() {
        let (mut pace, one) = (Pace::new(), candidate(1, 600));
        let mut times = Vec::new();
        for second in 0..2000 {
            let now = Duration::from_secs(second);
            if pace.choose(std::slice::from_ref(&one), ROUND, now, || 0.0).is_some() {
                times.push(second);
                pace.checked(&one, CheckEnd::Refused, ROUND, PAGE_GAP, now);
            }
        }
        let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(gaps, [30, 60, 120, 240, 480, 600]);
    }

    #[test]
    fn an_urgent_cache_is_checked_page_by_page() {
        let urgent = Candidate { is_urgent: true, ..candidate(1, 10) };
        let checked = run(&[urgent, candidate(2, 1)], 20);
        assert_eq!(checked[&1].len(), 20);
    }

    proptest! {
        /// Never more than one page a second, whatever the caches and the ends of checks.
        #[test]
        fn the_pages_of_all_caches_are_bounded(
            pages in prop::collection::vec((1u32..2000, any::<bool>()), 1..8),
            ends in prop::collection::vec(0u8..3, 1..50),
        ) {
            let candidates: Vec<_> = pages
                .iter()
                .zip(0..)
                .map(|((pages, is_urgent), key)| Candidate { key, pages: *pages, is_urgent: *is_urgent })
                .collect();
            let (mut pace, mut last) = (Pace::new(), None::<Duration>);
            let mut ends = ends.iter().cycle();
            for tick in 0..2000u64 {
                let now = Duration::from_millis(tick * 300);
                let Some(key) = pace.choose(&candidates, ROUND, now, || 0.3) else { continue };
                prop_assert!(last.is_none_or(|last| now - last >= PAGE_GAP));
                last = Some(now);
                let end = [CheckEnd::Conclusive, CheckEnd::Inconclusive, CheckEnd::Refused];
                let end = end[usize::from(*ends.next().unwrap())];
                pace.checked(&candidates[key], end, ROUND, PAGE_GAP, now);
            }
        }
    }
}

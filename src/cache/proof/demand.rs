//! The demand for consistent lists of one cache, and how long each of them waits for its proof
//! (`docs/decisions/proofs-of-freshness.md`). No I/O, no clock.
//!
//! A list that is alone waits at most half as long as it would take to forward it. While one list
//! is forwarded, others may arrive; the number of these is the *crowd*. A crowd may wait longer,
//! since one proof serves all of it, and forwarding all of it would take longer, too.

use std::time::Duration;

use tokio::time::Instant;

/// The demand for consistent lists of one cache.
#[derive(Debug, Default)]
pub(crate) struct Demand {
    /// The start of the present interval.
    began: Option<Instant>,
    /// The lists that arrived in the present interval.
    arrived: u32,
    /// The lists that arrived in the interval before.
    arrived_before: u32,
    /// The lists in a row that found no proof in time.
    misses: u32,
    /// The end of the pause in which a list that is alone does not try.
    paused_until: Option<Instant>,
}

/// The cost of a list if it were forwarded, and the expected cost of its proof.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Costs {
    /// The time that the same list took when it was forwarded; `None` if that is not known.
    pub(crate) forwarding: Option<Duration>,
    /// The time that the next probe takes, with the gap before it.
    pub(crate) probe: Duration,
    /// The gap between two probes.
    pub(crate) gap: Duration,
}

impl Demand {
    /// Notes that a list arrived.
    pub(crate) fn arrive(&mut self, now: Instant) {
        self.turn(now);
        self.arrived = self.arrived.saturating_add(1);
    }

    /// Returns how long a list waits for its proof; `None` if it does not try.
    pub(crate) fn wait_max(&mut self, now: Instant, costs: Costs) -> Option<Duration> {
        let forwarding = costs.forwarding.unwrap_or_default();
        let crowd = self.arriving(now, forwarding.max(costs.gap));
        let wait_max = (forwarding / 2 * crowd.clamp(1, CROWD_MAX)).min(WAIT_MAX);
        if crowd >= CROWD_MIN {
            // Enough for a probe and for a list of a small collection.
            let least = (costs.gap + costs.probe) * 2;
            return Some(wait_max.max(least).min(WAIT_MAX));
        }
        let is_paused = self.paused_until.is_some_and(|until| now < until);
        (!is_paused && wait_max >= costs.probe.max(WAIT_MIN)).then_some(wait_max)
    }

    /// Whether enough lists arrive that a proof may ask the upstream for more than a probe.
    pub(crate) fn is_crowd(&mut self, now: Instant, costs: Costs) -> bool {
        let during = costs.forwarding.unwrap_or_default().max(costs.gap);
        self.arriving(now, during) >= CROWD_MIN
    }

    /// Notes that a list had its proof in time.
    pub(crate) fn proved(&mut self) {
        self.misses = 0;
        self.paused_until = None;
    }

    /// Notes that a list found no proof in time. After some in a row, lists that are alone do not
    /// try for a while.
    pub(crate) fn missed(&mut self, now: Instant) {
        self.misses = self.misses.saturating_add(1);
        if let Some(beyond) = self.misses.checked_sub(MISSES_MAX) {
            let pause = PAUSE_FIRST.saturating_mul(1 << beyond.min(PAUSE_DOUBLINGS)).min(PAUSE_MAX);
            self.paused_until = Some(now + pause);
        }
    }

    /// Returns how many lists arrive in the time `during`, by the present rate.
    fn arriving(&mut self, now: Instant, during: Duration) -> u32 {
        self.turn(now);
        let lists = u64::from(self.arrived.max(self.arrived_before));
        let during = u64::try_from(during.as_micros()).unwrap_or(u64::MAX);
        let arriving = lists.saturating_mul(during) / INTERVAL_MICROS;
        u32::try_from(arriving).unwrap_or(u32::MAX)
    }

    /// Begins another interval if the present one is over.
    fn turn(&mut self, now: Instant) {
        let age = self.began.map_or(Duration::MAX, |began| now.saturating_duration_since(began));
        if age >= INTERVAL {
            self.arrived_before = if age < 2 * INTERVAL { self.arrived } else { 0 };
            self.arrived = 0;
            self.began = Some(now);
        }
    }
}

/// The interval in which arriving lists are counted.
const INTERVAL: Duration = Duration::from_micros(INTERVAL_MICROS);
const INTERVAL_MICROS: u64 = 250_000;
/// The lists that arrive while one is forwarded, or between two probes, from which on a proof costs
/// the upstream less than they do.
const CROWD_MIN: u32 = 4;
/// The crowd beyond which the wait does not grow.
const CROWD_MAX: u32 = 8;
/// The timers count milliseconds, so that a shorter wait would be a longer one.
const WAIT_MIN: Duration = Duration::from_millis(2);
/// The longest wait of a list: about that of a short watch.
const WAIT_MAX: Duration = Duration::from_millis(1500);
/// The misses in a row after which lists that are alone pause.
const MISSES_MAX: u32 = 3;
/// The first pause. Each further miss doubles it.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_DOUBLINGS: u32 = 6;
const PAUSE_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn costs(forwarding: Option<u32>) -> Costs {
        Costs { forwarding: forwarding.map(|ms| MS * ms), probe: 2 * MS, gap: 20 * MS }
    }

    /// Returns the demand after lists that arrived at this interval for a second, and the time.
    fn arriving(every: Duration) -> (Demand, Instant) {
        let (mut demand, mut now) = (Demand::default(), Instant::now());
        let end = now + 1000 * MS;
        while now < end {
            now += every;
            demand.arrive(now);
        }
        (demand, now)
    }

    #[test]
    fn a_list_that_is_alone_waits_half_as_long_as_it_takes_to_forward_it() {
        let (mut demand, now) = (Demand::default(), Instant::now());
        demand.arrive(now);
        for (forwarding, expected) in [
            (None, None),
            // Forwarding is as cheap as the proof.
            (Some(3), None),
            (Some(10), Some(5)),
            (Some(300), Some(150)),
            (Some(10_000), Some(1500)),
        ] {
            let wait_max = demand.wait_max(now, costs(forwarding));
            assert_eq!(wait_max, expected.map(|ms: u32| MS * ms), "{forwarding:?}");
        }
        assert!(!demand.is_crowd(now, costs(Some(300))));
    }

    /// A thousand lists a second of a small collection.
    #[test]
    fn a_crowd_waits_for_the_next_probe_even_if_forwarding_is_quick() {
        let (mut demand, now) = arriving(MS);
        for forwarding in [None, Some(1), Some(3)] {
            assert!(demand.is_crowd(now, costs(forwarding)));
            assert_eq!(demand.wait_max(now, costs(forwarding)), Some(44 * MS));
        }
        let later = now + 2 * INTERVAL;
        assert_eq!(demand.wait_max(later, costs(Some(3))), None);
    }

    /// Twenty a second of a large one: while one is forwarded, six others arrive.
    #[test]
    fn the_wait_grows_with_the_crowd() {
        let (mut demand, now) = arriving(50 * MS);
        assert_eq!(demand.wait_max(now, costs(Some(300))), Some(900 * MS));
        let (mut demand, now) = arriving(MS);
        assert_eq!(demand.wait_max(now, costs(Some(300))), Some(1200 * MS));
    }

    #[test]
    fn lists_without_a_proof_pause_those_that_are_alone() {
        let (mut demand, mut now) = (Demand::default(), Instant::now());
        let mut pauses = Vec::new();
        for _ in 0..MISSES_MAX + 8 {
            demand.missed(now);
            let from = now;
            while demand.wait_max(now, costs(Some(300))).is_none() {
                now += 1000 * MS;
            }
            pauses.push(now.duration_since(from).as_secs());
        }
        assert_eq!(pauses, [0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60]);
        demand.missed(now);
        demand.proved();
        assert!(demand.wait_max(now, costs(Some(300))).is_some());
        // A crowd is not paused.
        let (mut demand, now) = arriving(MS);
        (0..20).for_each(|_| demand.missed(now));
        assert!(demand.wait_max(now, costs(Some(300))).is_some());
    }
}

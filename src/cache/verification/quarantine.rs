//! The caches that were proved wrong. Pure: time is an argument, as the duration since any start.
//!
//! A cache that was proved wrong answers nothing. It is listed again and checked whole, and only
//! then another cache of its key answers again. If that happens twice within a day, the resource is
//! forwarded for six hours first.
//!
//! Which wrong events clients received is not known. So a watch from a resourceVersion up to
//! that of the wrong cache is refused with 410, and its client lists.

use std::time::Duration;

use crate::api::resource_version::ResourceVersion;

/// Whether a quarantined cache may be listed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It may, and is checked whole before it answers.
    Refilling,
    /// Not before this time.
    Barred(Duration),
    /// It was checked whole, and answers.
    Released,
}

/// The history of a key whose cache was proved wrong.
#[derive(Clone, Debug)]
pub(crate) struct Quarantine {
    phase: Phase,
    /// The times at which caches of the key were proved wrong.
    proofs: Vec<Duration>,
    /// The resourceVersion of the last wrong state, up to which clients may have seen one.
    pub(crate) through: ResourceVersion,
}

impl Quarantine {
    /// Begins when a cache was proved wrong.
    pub(crate) fn begin(earlier: Option<Self>, through: ResourceVersion, now: Duration) -> Self {
        let earlier = earlier.map(|quarantine| (quarantine.proofs, quarantine.through));
        let (mut proofs, before) = earlier.unwrap_or_default();
        proofs.retain(|at| now.saturating_sub(*at) < DAY);
        proofs.push(now);
        // More are never needed.
        let surplus = proofs.len().saturating_sub(PROOFS_MAX);
        proofs.drain(..surplus);
        let phase =
            if proofs.len() >= PROOFS_MAX { Phase::Barred(now + BARRED) } else { Phase::Refilling };
        Self { phase, proofs, through: through.max(before) }
    }

    /// Returns the phase, after time has passed.
    pub(crate) fn phase(&mut self, now: Duration) -> Phase {
        if matches!(self.phase, Phase::Barred(until) if now >= until) {
            self.phase = Phase::Refilling;
        }
        self.phase
    }

    /// Lets the cache answer again.
    pub(crate) fn release(&mut self) {
        self.phase = Phase::Released;
    }

    /// Whether requests are forwarded.
    pub(crate) fn is_closed(&self) -> bool {
        self.phase != Phase::Released
    }

    /// Whether nothing of it matters any more.
    pub(crate) fn is_over(&self, now: Duration) -> bool {
        let last = self.proofs.last().copied().unwrap_or_default();
        !self.is_closed() && now.saturating_sub(last) >= DAY
    }
}

/// The number of proofs within a day that bars the resource.
const PROOFS_MAX: usize = 2;
const DAY: Duration = Duration::from_secs(24 * 3600);
/// How long it is forwarded then.
const BARRED: Duration = Duration::from_secs(6 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn the_second_proof_within_a_day_bars_the_resource_for_six_hours() {
        let mut first = Quarantine::begin(None, ResourceVersion(7), HOUR);
        assert_eq!(first.phase(HOUR), Phase::Refilling);
        first.release();
        assert!(!first.is_closed() && !first.is_over(24 * HOUR) && first.is_over(25 * HOUR));
        let mut second = Quarantine::begin(Some(first), ResourceVersion(5), 20 * HOUR);
        assert_eq!(second.phase(25 * HOUR), Phase::Barred(26 * HOUR));
        assert!(second.is_closed());
        assert_eq!(second.through, ResourceVersion(7));
        assert_eq!(second.phase(26 * HOUR), Phase::Refilling);
        second.release();
        let mut later = Quarantine::begin(Some(second), ResourceVersion(9), 50 * HOUR);
        assert_eq!(later.phase(50 * HOUR), Phase::Refilling, "both are more than a day ago");
    }
}

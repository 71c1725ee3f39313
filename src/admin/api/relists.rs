//! How often each cache has listed again, in all and in the last hour.
//!
//! Pure: the numbers and their times are arguments.
//!
//! Memory: [`SAMPLES_MAX`] samples, of the caches that have listed again.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::admin::numbers::{Labels, Numbers};

/// The labels of a cache, as in its metrics.
pub(super) type CacheLabels = [Box<str>; 5];

/// The lists of caches after their first one.
pub(super) type Relists = HashMap<CacheLabels, f64>;

/// The relists of the last hour.
#[derive(Debug, Default)]
pub(super) struct RelistSamples {
    /// The latest is last.
    kept: VecDeque<(Duration, Relists)>,
}

impl RelistSamples {
    /// Adds a sample, if the last one is old enough.
    pub(super) fn add(&mut self, at: Duration, relists: &Relists) {
        if self.kept.back().is_some_and(|(last, _)| at.saturating_sub(*last) < SPACING) {
            return;
        }
        if self.kept.len() >= SAMPLES_MAX {
            self.kept.pop_front();
        }
        self.kept.push_back((at, relists.clone()));
    }

    /// Returns how often the caches listed again in about the last hour, or since the first sample.
    pub(super) fn in_last_hour(&self, relists: &Relists) -> Relists {
        let before = self.kept.front();
        let before = |cache: &CacheLabels| {
            before.and_then(|(_, of_then)| of_then.get(cache)).copied().unwrap_or(0.0)
        };
        // A cache that ended and began again counts from 0.
        let added = |(cache, count): (&CacheLabels, &f64)| {
            let before = before(cache);
            (cache.clone(), if *count < before { *count } else { *count - before })
        };
        relists.iter().map(added).collect()
    }
}

/// Reads the relists of all caches that have any.
pub(super) fn relists(numbers: &Numbers) -> Relists {
    let mut relists = Relists::new();
    for (labels, count) in numbers.each("weir_reflector_relists_total") {
        // The first list of a cache is none.
        if labels.get("cause") != "start" && count > 0.0 {
            *relists.entry(cache_labels(labels)).or_default() += count;
        }
    }
    relists
}

/// Returns the labels of a cache.
pub(super) fn cache_labels(labels: Labels<'_>) -> CacheLabels {
    LABELS.map(|name| labels.get(name).into())
}

const LABELS: [&str; 5] = ["group", "version", "resource", "namespace", "representation"];
/// An hour, and a part of the next one.
const SAMPLES_MAX: usize = 13;
const SPACING: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_is_remembered() {
        let cache: CacheLabels = ["", "v1", "pods", "", "json"].map(Box::from);
        let count = |count: f64| Relists::from([(cache.clone(), count)]);
        let mut samples = RelistSamples::default();
        samples.add(Duration::ZERO, &Relists::new());
        assert_eq!(samples.in_last_hour(&count(2.0)), count(2.0));
        for second in (0..=7200_u32).step_by(10) {
            // One each ten minutes.
            samples.add(Duration::from_secs(second.into()), &count(f64::from(second / 600)));
        }
        assert_eq!(samples.kept.len(), SAMPLES_MAX);
        assert_eq!(samples.in_last_hour(&count(12.0)), count(6.0));
        assert_eq!(samples.in_last_hour(&count(1.0)), count(1.0), "it began again");
    }
}

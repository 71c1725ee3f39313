//! When a client of a herd that finds no place is to come again (`docs/decisions/herds.md`).
//!
//! There are two places that a herd can fill: the forward budget of a resource whose cache is cold
//! or fails, and the access reviews that may be pending. A `Retry-After` that is the same for all
//! would bring all of them back at once, so a part of each is random.

use prometheus::{IntCounter, Registry};

use crate::telemetry::metrics::counter_vec;

/// Makes the appointments, and counts them. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct HerdAppointments {
    cache: IntCounter,
    review: IntCounter,
}

impl HerdAppointments {
    pub(crate) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let appointments = counter_vec(
            registry,
            "weir_herd_appointments_total",
            "Lists and watches that got 429 and a time to come again, by what there was no place for.",
            &["place"],
        )?;
        let [cache, review] =
            ["cache", "review"].map(|name| appointments.with_label_values(&[name]));
        Ok(Self { cache, review })
    }

    /// Returns the `Retry-After` of a list or watch that cannot be forwarded, while `waiting`
    /// requests wait for its cache.
    pub(crate) fn for_cache(&self, waiting: usize) -> u32 {
        self.cache.inc();
        seconds_behind(waiting, fastrand::f64())
    }

    /// Returns the `Retry-After` of a list or watch whose access review found no place behind
    /// `waiting` others.
    pub(crate) fn for_review(&self, waiting: usize) -> u32 {
        self.review.inc();
        seconds_behind(waiting, fastrand::f64())
    }
}

/// Returns the seconds after which a client comes again that finds `waiting` others before it.
/// `random` is between 0 and 1.
fn seconds_behind(waiting: usize, random: f64) -> u32 {
    let seconds = (waiting as f64 / SERVED_PER_SECOND).clamp(1.0, LONGEST_SECONDS);
    (seconds * (1.0 + JITTER * random)).round() as u32
}

/// The clients that count as served in a second: by `benches/herd`, 5,000 watchers have resumed
/// after 20 s, handshakes included. A client that comes too early is refused again, for little.
const SERVED_PER_SECOND: f64 = 200.0;
/// The longest time without the part at random: kube-apiserver's longest is 30 s.
const LONGEST_SECONDS: f64 = 32.0;
/// Up to this part is added at random.
const JITTER: f64 = 0.25;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_grows_with_those_who_wait_and_is_bounded() {
        let least = [0, 256, 1_000, 4_096, usize::MAX].map(|waiting| seconds_behind(waiting, 0.0));
        assert_eq!(least, [1, 1, 5, 20, 32]);
        let most = [0, 256, 1_000, 4_096, usize::MAX].map(|waiting| seconds_behind(waiting, 1.0));
        assert_eq!(most, [1, 2, 6, 26, 40]);
    }
}

//! How long a 403 or 404 of CRDs or APIServices is not believed.
//!
//! An API server that starts answers 403 until it has read roles and bindings. If Weir believed it,
//! all custom resources would count as aggregated, and their caches would stop. The same rule as
//! for the caches of resources holds (`docs/decisions/reflector-failures.md`).

use std::time::Duration;

use tokio::time::Instant;

/// The refusals since a watch was last open.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// When the list was first refused.
    since: Option<Instant>,
    /// The last delay; zero if there was none.
    delay: Duration,
}

impl Refusals {
    /// Returns the delay before the next attempt. `is_known` is whether the collection is known.
    pub(super) fn next_delay(&mut self, is_known: bool) -> Duration {
        self.since.get_or_insert_with(Instant::now);
        let is_waiting = is_known && !self.are_believed(true);
        let max = if is_waiting { KNOWN_DELAY_MAX } else { DELAY_MAX };
        self.delay = self.delay.saturating_mul(2).clamp(DELAY_MIN, max);
        self.delay
    }

    /// Whether the refusals have lasted for long enough to be believed. Where nothing is known, the
    /// first one is.
    pub(super) fn are_believed(&self, is_known: bool) -> bool {
        self.since.is_some_and(|since| !is_known || since.elapsed() >= BELIEVED_AFTER)
    }

    /// Notes that the list was allowed.
    pub(super) fn note_list(&mut self) {
        self.since = None;
    }

    /// Notes that the watch was allowed, too.
    pub(super) fn note_watch(&mut self) {
        *self = Self::default();
    }
}

/// How long a refusal must have lasted before a known collection is given up.
const BELIEVED_AFTER: Duration = Duration::from_secs(30);
/// The first delay after a refusal.
const DELAY_MIN: Duration = Duration::from_secs(1);
/// The longest delay until a refusal of a known collection is believed.
const KNOWN_DELAY_MAX: Duration = Duration::from_secs(5);
/// The longest delay. Permissions change rarely, and each attempt appears in the upstream's audit
/// log.
const DELAY_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_known_collection_is_given_up_after_half_a_minute_of_refusals() {
        let mut refusals = Refusals::default();
        let began = Instant::now();
        let mut delays = Vec::new();
        loop {
            let delay = refusals.next_delay(true);
            if refusals.are_believed(true) {
                break;
            }
            delays.push(delay.as_secs());
            tokio::time::advance(delay).await;
        }
        assert_eq!(delays, [1, 2, 4, 5, 5, 5, 5, 5]);
        assert_eq!(began.elapsed(), Duration::from_secs(32));
        refusals.note_list();
        refusals.next_delay(true);
        assert!(!refusals.are_believed(true));
    }

    #[tokio::test(start_paused = true)]
    async fn an_unknown_collection_is_tried_again_soon_and_then_rarely() {
        let mut refusals = Refusals::default();
        assert!(!refusals.are_believed(false));
        let delays: Vec<_> = (0..8).map(|_| refusals.next_delay(false).as_secs()).collect();
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert!(refusals.are_believed(false));
        refusals.note_watch();
        assert_eq!(refusals.next_delay(false), DELAY_MIN);
    }
}

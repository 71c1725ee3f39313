//! How old what a cache holds may be.

use std::time::Duration;

use tokio::time::Instant;

use super::CacheHandle;

impl CacheHandle {
    /// Returns how long ago the cache was last known to have every event. `None` while its watch is
    /// open and an API server is usable.
    pub fn age(&self) -> Option<Duration> {
        self.cached().outdated_since().map(|since| since.elapsed())
    }

    /// Waits until [`Self::age`] is more than `max`.
    pub async fn until_older_than(&self, max: Duration) {
        let cached = self.cached();
        let mut watching = self.watching();
        loop {
            match cached.outdated_since() {
                None => tokio::select! {
                    _ = watching.wait_for(|watching| !watching) => {}
                    () = cached.context.availability.unusable_from(Instant::now()) => {}
                },
                Some(since) if since.elapsed() > max => return,
                Some(since) => tokio::time::sleep_until(since + max + AGE_STEP).await,
            }
        }
    }

    /// Whether the cache was created after `moment`, so that it never knew what was absent before.
    pub(crate) fn began_after(&self, moment: Instant) -> bool {
        self.cached().lifecycle.created() >= moment
    }
}

/// The clock of the timers counts milliseconds.
const AGE_STEP: Duration = Duration::from_millis(1);

//! Replaces the configuration of running caches (`docs/decisions/configuration.md`).
//!
//! A cache whose resource is excluded now stops, and its watches end, so that clients resume them
//! at the API server. Refused resources are tried again, since a larger budget may have been the
//! reason for the reload. Histories are trimmed to a smaller limit at once; a watch that has not
//! read the trimmed events ends like a slow one. All else applies from its next use on, such as
//! the length of pages and lists.

use std::sync::Arc;

use crate::cache::refusal::Refusal;
use crate::cache::registry::inner::Inner;
use crate::config::CacheConfig;

impl Inner {
    /// Replaces the configuration of the caches.
    pub(super) fn reconfigure(&self, config: Arc<CacheConfig>) {
        let history_bytes_max = config.history_bytes_max;
        // First, so that the freed bytes count before a smaller total limit applies.
        for cached in self.caches.to_vec() {
            cached.writer.limit_history(history_bytes_max);
            if !cached.lifecycle.cancel.is_cancelled() {
                cached.note_weight();
            }
        }
        self.context.reconfigure(config);
        self.negative_cache.clear();
        for cached in self.caches.to_vec() {
            // A cache may have started with the former limit meanwhile.
            cached.writer.limit_history(history_bytes_max);
            if self.is_excluded(&cached.key.gvr) {
                self.caches.stop_if(&cached, Refusal::Excluded, |_| true);
            }
        }
    }
}

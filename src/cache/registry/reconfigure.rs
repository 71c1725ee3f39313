//! Replaces the configuration of running caches (`docs/decisions/reload.md`).
//!
//! A cache whose resource is excluded now stops, and its watches end, so that clients resume them
//! at the API server. Refused resources are tried again, since a larger budget may have been the
//! reason for the reload. All else applies from its next use on: the length of pages and of
//! histories to caches that start later.

use std::sync::Arc;

use crate::cache::refusal::Refusal;
use crate::cache::registry::inner::Inner;
use crate::config::CacheConfig;

impl Inner {
    /// Replaces the configuration of the caches.
    pub(super) fn reconfigure(&self, config: Arc<CacheConfig>) {
        self.context.reconfigure(config);
        self.negative_cache.clear();
        for cached in self.caches.all() {
            if self.is_excluded(&cached.key.gvr) {
                self.caches.stop_if(&cached, Refusal::Excluded, |_| true);
            }
        }
    }
}

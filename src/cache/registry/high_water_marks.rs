//! The high-water marks of caches that are gone: a new cache must not show an older state than an
//! earlier cache of the same key.
//!
//! A consistent first list is older only if the upstream's history was rewound while no cache was
//! running. A list at exactly the resourceVersion that a watcher requested can be older, and is
//! then not used.

use dashmap::DashMap;

use crate::api::resource_version::ResourceVersion;
use crate::cache::key::CacheKey;

/// The highest resourceVersions of caches that are gone.
#[derive(Default)]
pub(crate) struct HighWaterMarks {
    /// Each with the generation of the upstream's history in which it was reached. It has no
    /// meaning in another generation.
    marks: DashMap<CacheKey, (ResourceVersion, u64)>,
}

impl HighWaterMarks {
    /// Stores the resourceVersion that a cache reached in `generation`.
    pub(crate) fn raise(&self, key: &CacheKey, reached: ResourceVersion, generation: u64) {
        if self.marks.len() >= MARKS_MAX && !self.marks.contains_key(key) {
            return;
        }
        let mut known = self.marks.entry(key.clone()).or_insert((reached, generation));
        if known.1 != generation || known.0 < reached {
            *known = (reached, generation);
        }
    }

    /// Returns the resourceVersion that caches of `key` reached in `generation`.
    pub(crate) fn get(&self, key: &CacheKey, generation: u64) -> Option<ResourceVersion> {
        self.marks.get(key).filter(|known| known.1 == generation).map(|known| known.0)
    }

    /// Whether a cache may start at `at`. Once [`MARKS_MAX`] marks are stored, no other cache may.
    pub(crate) fn allows(&self, key: &CacheKey, at: ResourceVersion, generation: u64) -> bool {
        match self.get(key, generation) {
            Some(reached) => at >= reached,
            None => self.marks.len() < MARKS_MAX || self.marks.contains_key(key),
        }
    }
}

/// The largest number of marks. Clients choose the namespaces in requests, so the number must be
/// bounded.
const MARKS_MAX: usize = 10_000;

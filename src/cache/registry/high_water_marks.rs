//! How far caches that are gone had come: a cache that begins again must not show an older state than was served before (design, section 1.2).
//!
//! A consistent first list is older only if the upstream's history was rewound while no cache was there to notice. A list at a
//! watcher's own resourceVersion could be, and is refused by this.

use dashmap::DashMap;

use crate::api::resource_version::ResourceVersion;
use crate::cache::key::CacheKey;

/// See the module.
#[derive(Default)]
pub(crate) struct HighWaterMarks {
    /// With the count of rewound histories under which each was reached: in another history it means nothing.
    marks: DashMap<CacheKey, (ResourceVersion, u64)>,
}

impl HighWaterMarks {
    /// Remembers how far a cache came in the present history.
    pub(crate) fn raise(&self, key: &CacheKey, reached: ResourceVersion, generation: u64) {
        if self.marks.len() >= MARKS_MAX && !self.marks.contains_key(key) {
            return;
        }
        let mut known = self.marks.entry(key.clone()).or_insert((reached, generation));
        if known.1 != generation || known.0 < reached {
            *known = (reached, generation);
        }
    }

    /// How far caches of this key came in the present history.
    pub(crate) fn get(&self, key: &CacheKey, generation: u64) -> Option<ResourceVersion> {
        self.marks.get(key).filter(|known| known.1 == generation).map(|known| known.0)
    }

    /// Whether a cache may begin at this resourceVersion. Once more caches are gone than can be remembered, none may.
    pub(crate) fn allows(&self, key: &CacheKey, at: ResourceVersion, generation: u64) -> bool {
        match self.get(key, generation) {
            Some(reached) => at >= reached,
            None => self.marks.len() < MARKS_MAX || self.marks.contains_key(key),
        }
    }
}

/// Namespaces in requests are the clients' choice; so many caches are remembered.
const MARKS_MAX: usize = 10_000;

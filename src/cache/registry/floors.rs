//! How far caches that are gone had come: a cache that begins again must not show an older state than was served before (design, section 1.2).
//!
//! A consistent first list is older only if the upstream's history was rewound while no cache was there to notice. A list at a
//! watcher's own resourceVersion could be, and is refused by this.

use dashmap::DashMap;

use crate::api::resource_version::ResourceVersion;
use crate::cache::cached_resource::CacheKey;

/// See the module.
#[derive(Default)]
pub(crate) struct Floors {
    /// With the count of rewound histories under which each was reached: in another history it means nothing.
    reached: DashMap<CacheKey, (ResourceVersion, u64)>,
}

impl Floors {
    /// Remembers how far a cache came in the present history.
    pub(crate) fn raise(&self, key: &CacheKey, reached: ResourceVersion, history: u64) {
        if self.reached.len() >= REMEMBERED_MAX && !self.reached.contains_key(key) {
            return;
        }
        let mut known = self.reached.entry(key.clone()).or_insert((reached, history));
        if known.1 != history || known.0 < reached {
            *known = (reached, history);
        }
    }

    /// How far caches of this key came in the present history.
    pub(crate) fn reached(&self, key: &CacheKey, history: u64) -> Option<ResourceVersion> {
        self.reached.get(key).filter(|known| known.1 == history).map(|known| known.0)
    }

    /// Whether a cache may begin at this resourceVersion. Once more caches are gone than can be remembered, none may.
    pub(crate) fn allow(&self, key: &CacheKey, at: ResourceVersion, history: u64) -> bool {
        match self.reached(key, history) {
            Some(reached) => at >= reached,
            None => self.reached.len() < REMEMBERED_MAX || self.reached.contains_key(key),
        }
    }
}

/// Namespaces in requests are the clients' choice; so many caches are remembered.
const REMEMBERED_MAX: usize = 10_000;

//! How far a reader of an older state has fallen behind its cache.
//!
//! A reader of a state keeps its objects in memory. The cache holds most of them too, or its
//! history does, until their replacements leave the history. Then the reader alone keeps them. A
//! client that reads a long list slowly enough could keep any number of old objects in this way. It
//! has the bound of a slow watch, by bytes: of all that the cache has dropped, it may keep as much
//! as a full history has. All slow readers of a cache together keep no more than the slowest of
//! them, since they share the objects.

use std::sync::Arc;

use crate::cache::core::inner::CacheInner;
use crate::cache::core::state::State;

/// The lag of a reader of one state.
pub struct StateLag {
    cache: Arc<CacheInner>,
    /// The bytes that the cache has dropped when it first drops an event after that state.
    end_bytes: u64,
    /// The size in bytes of that state's objects.
    weight: u64,
}

impl StateLag {
    pub(super) fn new(cache: Arc<CacheInner>, state: &State) -> Self {
        let (end_bytes, weight) = (state.history().end_bytes(), state.store().weight() as u64);
        Self { cache, end_bytes, weight }
    }

    /// Whether the reader keeps too much in memory that its cache has dropped.
    pub fn is_exceeded(&self) -> bool {
        match &*self.cache.load() {
            Some(current) => self.cache.is_outrun(current, self.end_bytes),
            // The cache has dropped everything.
            None => self.weight > self.cache.history_bytes_max() as u64,
        }
    }
}

crate::api::opaque!(StateLag);

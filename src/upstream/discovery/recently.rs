//! What was noted a moment ago.
//!
//! API servers learn of a change one after another. Their informers follow within a second; a
//! process that was stopped or cut off catches up within seconds. Until then, one of them may still
//! answer as before the change.
//!
//! Lock order: the map, with no other lock.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The keys that were noted, each with the time at which it was noted last.
#[derive(Debug)]
pub(super) struct Recently<K>(Mutex<HashMap<K, Instant>>);

impl<K: Eq + Hash> Recently<K> {
    /// Notes keys, and forgets those that were not noted for a while.
    pub(super) fn note(&self, keys: impl IntoIterator<Item = K>) {
        let now = Instant::now();
        let mut noted = self.0.lock();
        noted.extend(keys.into_iter().map(|key| (key, now)));
        noted.retain(|_, at| now.duration_since(*at) < LAG_MAX);
    }

    /// Whether a key was noted a moment ago.
    pub(super) fn contains(&self, key: &K) -> bool {
        self.0.lock().get(key).is_some_and(|at| at.elapsed() < LAG_MAX)
    }
}

impl<K> Default for Recently<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

/// How long API servers may lag behind a change.
const LAG_MAX: Duration = Duration::from_secs(60);

//! Counts what is open by key, such as the watches of a client. The one table behind all limits on
//! what a single client, user or flow may have at a time.
//!
//! [`KeyedCounter::try_add`] asks its caller whether one more may be counted. So the limits, for a
//! key or for all, stay where they belong, and are decided under the lock that counts. Dropping a
//! [`Counted`] gives its count back.
//!
//! Invariant: a key without a count is not held. So the memory is bounded by what is open.
//!
//! One lock: it is held for a look-up, and what is counted is a connection, a watch, a review or a
//! request to the upstream, each of which takes a hundred times longer. The function of a caller
//! runs under it, and may take a lock of its own, but never another counter's.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;

/// Counts by key. Cheap to clone: clones share the counts. `N` is the note that a key has for as
/// long as it has a count.
pub(crate) struct KeyedCounter<K, N = ()>(Arc<Mutex<Counts<K, N>>>);

struct Counts<K, N> {
    by_key: HashMap<K, KeyCount<N>>,
    total: usize,
}

#[derive(Default)]
struct KeyCount<N> {
    count: usize,
    note: N,
}

/// The counts before one more is added.
#[derive(Debug)]
pub(crate) struct Before<'a, N> {
    pub(crate) count: usize,
    /// The counts of all keys together.
    pub(crate) total: usize,
    /// The number of keys that have a count.
    pub(crate) keys: usize,
    /// The note of the key; new if the key has no count, and then kept only if one is added.
    pub(crate) note: &'a mut N,
}

/// One that counts for its key until it is dropped.
pub(crate) struct Counted<K: Eq + Hash, N = ()> {
    counter: KeyedCounter<K, N>,
    key: K,
}

impl<K: Clone + Eq + Hash, N: Default> KeyedCounter<K, N> {
    /// Counts one more for a key, if `admit` allows it. Returns it with what `admit` returns, or
    /// the error of `admit`.
    pub(crate) fn try_add<T, E>(
        &self,
        key: K,
        admit: impl FnOnce(Before<'_, N>) -> Result<T, E>,
    ) -> Result<(Counted<K, N>, T), E> {
        let mut counts = self.0.lock();
        let Counts { by_key, total } = &mut *counts;
        let keys = by_key.len();
        let admitted = match by_key.entry(key.clone()) {
            Entry::Occupied(mut entry) => {
                let KeyCount { count, note } = entry.get_mut();
                let admitted = admit(Before { count: *count, total: *total, keys, note })?;
                *count += 1;
                admitted
            }
            Entry::Vacant(entry) => {
                let mut note = N::default();
                let admitted = admit(Before { count: 0, total: *total, keys, note: &mut note })?;
                entry.insert(KeyCount { count: 1, note });
                admitted
            }
        };
        *total += 1;
        drop(counts);
        Ok((Counted { counter: self.clone(), key }, admitted))
    }

    /// Counts one more for a key that has fewer than `most`.
    pub(crate) fn try_add_below(&self, key: K, most: usize) -> Option<Counted<K, N>> {
        let admit = |before: Before<'_, N>| (before.count < most).then_some(()).ok_or(());
        self.try_add(key, admit).ok().map(|(counted, ())| counted)
    }
}

impl<K, N> KeyedCounter<K, N> {
    /// Returns the counts of all keys together.
    pub(crate) fn total(&self) -> usize {
        self.0.lock().total
    }

    /// Returns the number of keys that have a count.
    #[cfg(test)]
    pub(crate) fn keys(&self) -> usize {
        self.0.lock().by_key.len()
    }
}

impl<K: Eq + Hash, N> Counted<K, N> {
    /// Returns the key that this counts for.
    pub(crate) fn key(&self) -> &K {
        &self.key
    }
}

impl<K: Eq + Hash, N> Drop for Counted<K, N> {
    fn drop(&mut self) {
        let mut counts = self.counter.0.lock();
        counts.total = counts.total.saturating_sub(1);
        let Some(KeyCount { count, .. }) = counts.by_key.get_mut(&self.key) else { return };
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.by_key.remove(&self.key);
        }
    }
}

impl<K, N> Default for KeyedCounter<K, N> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Counts { by_key: HashMap::new(), total: 0 })))
    }
}

impl<K, N> Clone for KeyedCounter<K, N> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K, N> fmt::Debug for KeyedCounter<K, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedCounter").field("total", &self.total()).finish_non_exhaustive()
    }
}

impl<K: Eq + Hash + fmt::Debug, N> fmt::Debug for Counted<K, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counted").field("key", &self.key).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_caller_decides_by_the_key_by_all_and_by_the_number_of_keys() {
        let counter = KeyedCounter::<&str, u32>::default();
        let add = |key, admit: fn(&Before<'_, u32>) -> bool| {
            let added = counter.try_add(key, |before| {
                *before.note += 1;
                if admit(&before) { Ok(*before.note) } else { Err(*before.note) }
            });
            added.map(|(counted, note)| {
                assert_eq!(counted.key(), &key);
                (counted, note)
            })
        };
        let first = add("a", |before| before.count < 2).unwrap();
        let second = add("a", |before| before.count < 2).unwrap();
        assert_eq!((first.1, second.1), (1, 2));
        assert_eq!(add("a", |before| before.count < 2).unwrap_err(), 3, "two of them");
        assert_eq!(add("b", |before| before.total < 2).unwrap_err(), 1, "two of all");
        assert_eq!(add("b", |before| before.keys < 1).unwrap_err(), 1, "one key");
        assert_eq!(counter.keys(), 1, "a refusal keeps nothing");
        drop(first);
        assert_eq!(add("a", |before| before.count < 2).unwrap().1, 4, "what is noted stays");
        drop(second);
        assert_eq!((counter.keys(), counter.total()), (0, 0));
    }

    proptest! {
        /// The model is the list of what is open.
        #[test]
        fn it_counts_as_the_model(
            steps in proptest::collection::vec((0_usize..5, 0_usize..4, 0_usize..20), 0..200)
        ) {
            let counter = KeyedCounter::<usize>::default();
            let mut open: Vec<Counted<usize>> = Vec::new();
            for (step, key, place) in steps {
                if step < 3 {
                    let count = open.iter().filter(|counted| *counted.key() == key).count();
                    let added = counter.try_add_below(key, 3);
                    prop_assert_eq!(added.is_some(), count < 3);
                    open.extend(added);
                } else if !open.is_empty() {
                    drop(open.remove(place % open.len()));
                }
                let keys: BTreeMap<usize, ()> = open.iter().map(|counted| (*counted.key(), ())).collect();
                prop_assert_eq!((counter.total(), counter.keys()), (open.len(), keys.len()));
            }
        }
    }
}

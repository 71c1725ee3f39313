//! An immutable view of a watch cache: store, history and resourceVersion, which change together.
//!
//! The next state is made from the present one and a batch of changes; they share what did not change.

use std::collections::HashSet;
use std::sync::Arc;

use crate::api::resource_version::ResourceVersion;
use crate::cache::core::change::Change;
use crate::cache::core::event::Event;
use crate::cache::core::filter::WatchFilter;
use crate::cache::core::history::{History, HistoryBaseline};
use crate::cache::core::limits::WindowLimits;
use crate::cache::core::now::Now;
use crate::cache::core::relist::{self, Difference, Discontinuity};
use crate::cache::core::store::Store;
use crate::codec::object::{Key, Object};

/// An immutable view of the cache at one resourceVersion.
#[derive(Clone, Debug)]
pub struct State {
    resource_version: ResourceVersion,
    store: Store,
    history: History,
}

impl State {
    /// The state that a complete list gives.
    pub(super) fn from_list(
        store: Store,
        resource_version: ResourceVersion,
        baseline: HistoryBaseline,
    ) -> Self {
        Self { resource_version, store, history: History::new(baseline, resource_version) }
    }

    /// The state after a batch; `None` if nothing in it was new. What is not newer than the resourceVersion that
    /// was reached before it is dropped, also within the batch.
    pub(super) fn after_changes(
        &self,
        changes: Vec<Change>,
        now: Now,
        limits: &WindowLimits,
    ) -> Option<Self> {
        let mut next = self.clone();
        let keep_from = self.history.end_seq();
        for change in changes {
            next.apply(change, keep_from, now, limits);
        }
        next.history.trim(keep_from, limits);
        (next.resource_version > self.resource_version).then_some(next)
    }

    /// The state after a list that takes the place of events that were not told; see [`relist`].
    pub(super) fn after_relist(
        &self,
        listed: &Store,
        resource_version: ResourceVersion,
        now: Now,
        limits: &WindowLimits,
    ) -> Result<Self, Discontinuity> {
        let from = self.resource_version;
        let difference = Difference::between((&self.store, from), (listed, resource_version))?;
        // What did not change stays the object that it was, so that its bytes are not held twice.
        let mut next = self.clone();
        let batch = difference.apply(&mut next.store, from, now);
        relist::check_weight(&batch, limits)?;
        next.history.relist(batch, (from, resource_version), limits);
        next.resource_version = resource_version;
        Ok(next)
    }

    /// The state that a complete list besides the stream gives at its resourceVersion, and what it weighs beyond this one, in bytes: what is
    /// equal here is shared. Its history is empty.
    pub fn with_list(
        &self,
        objects: Vec<Object>,
        resource_version: ResourceVersion,
    ) -> (Self, usize) {
        let mut store = self.store.clone();
        let mut weight = 0;
        let mut listed = HashSet::with_capacity(objects.len());
        for object in objects {
            listed.insert(object.key.clone());
            let is_equal = store.get(object.key.as_str()).is_some_and(|present| {
                present.resource_version == object.resource_version && present.body == object.body
            });
            if !is_equal {
                weight += object.weight();
                store.put(Arc::new(object));
            }
        }
        let everything = WatchFilter::default();
        let gone: Vec<Arc<Object>> = store
            .scan(&everything, None)
            .filter(|object| !listed.contains(&object.key))
            .cloned()
            .collect();
        for object in gone {
            store.remove(object.key.as_str());
        }
        (Self::from_list(store, resource_version, self.history.baseline()), weight)
    }

    /// The resourceVersion of the view: everything up to it is in, nothing after it.
    pub fn resource_version(&self) -> ResourceVersion {
        self.resource_version
    }

    /// The oldest resourceVersion whose state can be had by undoing the history from here: that of the last list, or what the last
    /// evicted event left. What lies before a list is not to be had, since a list does not tell what came between.
    pub fn exact_from(&self) -> ResourceVersion {
        self.history.exact_from()
    }

    /// One object.
    pub fn get(&self, key: &Key) -> Option<Arc<Object>> {
        self.store.get(key.as_str()).cloned()
    }

    /// The objects that a filter matches, in key order; a namespace in it narrows the walk to its range, a value of the indexed field to
    /// those that have it, a name to one look-up.
    pub fn select(&self, filter: &WatchFilter) -> Vec<Arc<Object>> {
        self.store.select(filter).cloned().collect()
    }

    /// No more objects than this are looked at to list those of a filter: how long that may take, known before it is done.
    pub fn scan_max(&self, filter: &WatchFilter) -> usize {
        self.store.scan_max(filter)
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.store.is_empty()
    }

    /// What the objects and the history weigh, in bytes.
    pub fn weight(&self) -> usize {
        self.store.weight().saturating_add(self.history.weight())
    }

    /// The present objects.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The recent events.
    pub fn history(&self) -> &History {
        &self.history
    }

    fn apply(&mut self, change: Change, keep_from: u64, now: Now, limits: &WindowLimits) {
        let resource_version = match &change {
            Change::Upsert(object) | Change::Delete(object) => object.resource_version,
            Change::Progress(resource_version) => *resource_version,
        };
        if resource_version <= self.resource_version {
            return;
        }
        self.resource_version = resource_version;
        let event = match change {
            Change::Upsert(object) => {
                let object = Arc::new(object);
                let previous = self.store.put(Arc::clone(&object));
                Event::upserted(object, previous, now)
            }
            Change::Delete(object) => {
                // A deletion of what is not there changes nothing that a watcher could know of.
                let Some(previous) = self.store.remove(object.key.as_str()) else { return };
                Event::deleted(Arc::new(object), previous, now)
            }
            Change::Progress(_) => return,
        };
        self.history.push(event, keep_from, limits);
    }
}

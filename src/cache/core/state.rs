//! An immutable state of a watch cache: objects, history and resourceVersion, which change
//! together, as do the objects that cannot be read.
//!
//! Each state is built from the previous one and a batch of changes. The two share everything that
//! did not change.

use std::collections::HashSet;
use std::sync::Arc;

use crate::api::resource_version::ResourceVersion;
use crate::cache::core::change::Change;
use crate::cache::core::event::{Event, Now};
use crate::cache::core::filter::WatchFilter;
use crate::cache::core::history::{History, HistoryBaseline};
use crate::cache::core::limits::WindowLimits;
use crate::cache::core::relist::{self, Difference, Discontinuity};
use crate::cache::core::store::Store;
use crate::cache::core::unreadable::UnreadableObjects;
use crate::codec::list::ListedObjects;
use crate::codec::object::{Key, Object};
use crate::codec::unreadable::UnreadableObject;

/// The state of a cache at one resourceVersion.
#[derive(Clone, Debug)]
pub struct State {
    resource_version: ResourceVersion,
    store: Store,
    history: History,
    unreadable: UnreadableObjects,
    /// The number of the first event of the last read, whose events all stay until the next one:
    /// watchers that read would else miss some.
    read_from: u64,
}

impl State {
    /// Creates the state from a complete list.
    pub(super) fn from_list(
        (store, unreadable): Listed,
        resource_version: ResourceVersion,
        baseline: HistoryBaseline,
    ) -> Self {
        let history = History::new(baseline, resource_version);
        let read_from = history.end_seq();
        Self { resource_version, store, history, unreadable, read_from }
    }

    /// Returns the state after a batch of changes, or `None` if none of them was new. A change is
    /// dropped if it is not newer than the resourceVersion reached before it, also within the
    /// batch. `continues` is whether they came with the changes before them, in one read.
    pub(super) fn after_changes(
        &self,
        changes: Vec<Change>,
        (now, continues): (Now, bool),
        limits: &WindowLimits,
    ) -> Option<Self> {
        let mut next = self.clone();
        let keep_from = if continues { self.read_from } else { self.history.end_seq() };
        next.read_from = keep_from;
        for change in changes {
            next.apply(change, keep_from, now, limits);
        }
        (next.resource_version > self.resource_version).then_some(next)
    }

    /// Returns the state after a list that replaces events which the upstream no longer has; see
    /// `relist.rs`.
    pub(super) fn after_relist(
        &self,
        (listed, unreadable): &Listed,
        resource_version: ResourceVersion,
        now: Now,
        limits: &WindowLimits,
    ) -> Result<Self, Discontinuity> {
        let from = self.resource_version;
        let difference = Difference::between((&self.store, from), (listed, resource_version))?;
        // Unchanged objects keep their allocation, so that their bytes are not held twice.
        let mut next = self.clone();
        let batch = difference.apply(&mut next.store, from, now);
        relist::check_weight(&batch, limits)?;
        next.history.relist(batch, (from, resource_version), limits);
        next.unreadable = self.unreadable.relisted(unreadable, resource_version);
        next.resource_version = resource_version;
        Ok(next)
    }

    /// Returns the state with earlier events before its history: all after `from`, up to `through`.
    /// Returns `None` if the history does not begin at `through`. Drops the oldest of the events if
    /// the state would become heavier than `weight_max`.
    pub(super) fn with_earlier(
        &self,
        earlier: Vec<Event>,
        (from, through): (ResourceVersion, ResourceVersion),
        weight_max: usize,
        limits: &WindowLimits,
    ) -> Option<Self> {
        if self.history.joins_at() != Some(through) {
            return None;
        }
        let bytes_max = limits.bytes_max.min(weight_max.saturating_sub(self.store.weight()));
        let mut next = self.clone();
        next.history.prepend(earlier, from, &WindowLimits { bytes_max, ..*limits });
        Some(next)
    }

    /// Returns the state with a history within `limits`.
    pub(super) fn with_shorter_history(&self, limits: &WindowLimits) -> Self {
        let mut next = self.clone();
        let end = next.history.end_seq();
        next.history.trim(end, limits);
        next
    }

    /// Returns the state of a complete list that was fetched outside the watch stream, and the size
    /// in bytes that it adds to this state. Objects that are equal in both are shared. Its history
    /// is empty.
    pub fn with_list(
        &self,
        listed: impl Into<ListedObjects>,
        resource_version: ResourceVersion,
    ) -> (Self, usize) {
        let ListedObjects { objects, unreadable } = listed.into();
        let mut store = self.store.clone();
        let mut weight = 0;
        let mut listed = HashSet::with_capacity(objects.len());
        for object in objects {
            listed.insert(object.key.clone());
            if store.equal(&object).is_none() {
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
            store.remove(&object.key);
        }
        let unreadable = UnreadableObjects::new(unreadable);
        let weight = weight.saturating_add(unreadable.weight());
        let listed = (store, unreadable);
        (Self::from_list(listed, resource_version, self.history.baseline()), weight)
    }

    /// Returns the history and the resourceVersion without the objects, for a watch that ends here:
    /// its client may read the last events much later.
    pub(super) fn without_objects(&self) -> Arc<Self> {
        let (store, unreadable) = Listed::default();
        Arc::new(Self { store, unreadable, ..self.clone() })
    }

    /// Returns the objects and the resourceVersion without the history, for a watch that begins
    /// here: its client may read the objects for minutes.
    pub(crate) fn without_events(&self) -> Arc<Self> {
        let history = History::new(self.history.baseline(), self.resource_version);
        Arc::new(Self { history, ..self.clone() })
    }

    /// Returns the resourceVersion of the state: it includes every change up to it and none after
    /// it.
    pub fn resource_version(&self) -> ResourceVersion {
        self.resource_version
    }

    /// Returns the oldest resourceVersion whose state can be computed by undoing the history: that
    /// of the last list or, after an eviction, that of the last evicted event. A list does not
    /// contain the changes before it, so no earlier state is available.
    pub fn exact_from(&self) -> ResourceVersion {
        self.history.exact_from()
    }

    /// Returns one object.
    pub fn get(&self, key: &Key) -> Option<Arc<Object>> {
        self.store.get(key.as_bytes()).cloned()
    }

    /// Returns the object of a name in a namespace, without a key.
    pub fn find(&self, namespace: &str, name: &str) -> Option<Arc<Object>> {
        Key::with_joined(namespace, name, |key| self.store.get(key).cloned())
    }

    /// Returns the matching objects in key order. A namespace narrows the scan to its range, a
    /// value of the indexed field to the objects with that value, and a name to one look-up.
    pub fn select(&self, filter: &WatchFilter) -> Vec<Arc<Object>> {
        self.store.select(filter).cloned().collect()
    }

    /// Returns an upper bound of the objects that a list with this filter reads. Cheap, so that a
    /// caller can estimate the time before listing.
    pub fn scan_max(&self, filter: &WatchFilter) -> usize {
        self.store.scan_max(filter)
    }

    /// Returns whether everything that a filter may match can be read.
    pub fn covers(&self, filter: &WatchFilter) -> bool {
        !self.unreadable.may_match(filter)
    }

    /// Returns whether everything that a filter may match could be read at `at`, and at all times
    /// since.
    pub fn covers_since(&self, filter: &WatchFilter, at: ResourceVersion) -> bool {
        self.covers(filter) && !self.unreadable.changed_after(filter, at)
    }

    /// Returns the objects that cannot be read.
    pub fn unreadable(&self) -> &UnreadableObjects {
        &self.unreadable
    }

    /// Returns the number of objects that can be read.
    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// Returns whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.store.is_empty()
    }

    /// Returns the size in bytes of the objects and the history.
    pub fn weight(&self) -> usize {
        let readable = self.store.weight().saturating_add(self.history.weight());
        readable.saturating_add(self.unreadable.weight())
    }

    /// Returns the objects.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the recent events.
    pub fn history(&self) -> &History {
        &self.history
    }

    fn apply(&mut self, change: Change, keep_from: u64, now: Now, limits: &WindowLimits) {
        let resource_version = change.resource_version();
        if resource_version <= self.resource_version {
            return;
        }
        self.resource_version = resource_version;
        let event = match change {
            Change::Upsert(object) => {
                self.unreadable.remove_key(&object.key, resource_version);
                let object = Arc::new(object);
                let previous = self.store.put(Arc::clone(&object));
                Event::upserted(object, previous, now)
            }
            Change::Delete(object) => {
                self.unreadable.remove_key(&object.key, resource_version);
                // Watchers never saw the object, so there is no event for its deletion.
                let Some(previous) = self.store.remove(&object.key) else { return };
                Event::deleted(Arc::new(object), previous, now)
            }
            Change::Unreadable { object, is_deletion } => {
                let key = Key::new(&object.namespace, &object.name);
                match is_deletion {
                    true => self.unreadable.remove(&object),
                    false => self.unreadable.put(object),
                }
                // An object that could be read before. The watches that could see it end.
                let Some(previous) = self.store.remove(&key) else { return };
                Event::deleted_by_relist(previous, resource_version, now)
            }
            Change::Progress(_) => return,
        };
        self.history.push(event, keep_from, limits);
    }
}

/// A complete list. Objects that the cache holds already may be shared with it.
#[derive(Debug, Default)]
pub struct CompleteList {
    /// Those that can be read.
    pub objects: Vec<Arc<Object>>,
    /// Those that cannot.
    pub unreadable: Vec<UnreadableObject>,
}

impl From<ListedObjects> for CompleteList {
    fn from(ListedObjects { objects, unreadable }: ListedObjects) -> Self {
        Self { objects: objects.into_iter().map(Arc::new).collect(), unreadable }
    }
}

impl From<Vec<Object>> for CompleteList {
    fn from(objects: Vec<Object>) -> Self {
        ListedObjects::from(objects).into()
    }
}

/// The objects of a list: those that can be read, and the others.
pub(super) type Listed = (Store, UnreadableObjects);

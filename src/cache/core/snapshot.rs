//! The objects as they were at one resourceVersion, and pages of them (`docs/semantics.md` §1.6.1,
//! §3.3).
//!
//! An older state is computed by undoing history from the latest state. For each object with an
//! event after the requested resourceVersion, it contains the object before the first such event.
//! This takes time in proportion to the number of undone events. The result shares all unchanged
//! objects with the latest state. It works only if the history has every later event
//! ([`State::exact_from`]); requests for any older state are forwarded to the upstream.

use std::borrow::Cow;
use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::ops::Bound;
use std::sync::Arc;

use crate::api::resource_version::ResourceVersion;
use crate::cache::core::filter::WatchFilter;
use crate::cache::core::state::State;
use crate::cache::core::store::{ScanIndex, Store};
use crate::codec::object::Object;

/// The objects at one resourceVersion. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Snapshot {
    store: Store,
    resource_version: ResourceVersion,
}

/// The part of a list that a page contains.
#[derive(Clone, Copy, Debug, Default)]
pub struct PageRange<'a> {
    /// The first key of the page, relative to the list's root (the filter's path namespace, or
    /// nothing). Empty for the first page.
    pub from: &'a str,
    /// The maximum number of objects.
    pub limit: Option<NonZeroUsize>,
    /// The number of the field that the upstream's cache indexes. If a list of the newest state
    /// requires a value of that field, then only the objects with that value count as remaining
    /// objects.
    pub indexed: Option<usize>,
    /// Whether the upstream counts the remaining objects of a list by a shard selector alone.
    pub counts_shard: bool,
}

/// A page of a list.
#[derive(Debug)]
pub struct Page {
    /// The objects in key order.
    pub objects: Vec<Arc<Object>>,
    /// The number of objects that were read to find them.
    pub scanned: usize,
    /// The index that narrowed the scan.
    pub index: ScanIndex,
    /// Set if the limit cut the list short.
    pub next: Option<Continuation>,
}

/// The start of the next page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Continuation {
    /// The key of the page's last object, relative to the list's root.
    pub last: String,
    /// The number of objects from the start of the page, less its limit: those that follow.
    /// Known only without selectors, and perhaps with a shard selector, which leaves objects out.
    pub remaining: Option<u64>,
}

impl Snapshot {
    /// Returns the latest state.
    pub fn latest(state: &State) -> Self {
        Self { store: state.store().clone(), resource_version: state.resource_version() }
    }

    /// Returns the state at a resourceVersion, or `None` if the history does not reach it.
    pub fn at(state: &State, resource_version: ResourceVersion) -> Option<Self> {
        if resource_version > state.resource_version() || resource_version < state.exact_from() {
            return None;
        }
        let history = state.history();
        // An error means that the version is before the oldest event in the window. All events are
        // undone then.
        let from = history.resume(resource_version).unwrap_or_else(|_| history.first_seq());
        let mut store = state.store().clone();
        let mut undone = HashSet::new();
        for (_, event) in history.events(from, history.end_seq()) {
            let key = &event.object().key;
            if !undone.insert(key) {
                continue;
            }
            match event.previous() {
                // An event between the two is missing. The history's invariants rule this out.
                Some(previous) if previous.resource_version > resource_version => return None,
                Some(previous) => drop(store.put(Arc::clone(previous))),
                None => drop(store.remove(key)),
            }
        }
        Some(Self { store, resource_version })
    }

    /// Returns the resourceVersion of the snapshot.
    pub fn resource_version(&self) -> ResourceVersion {
        self.resource_version
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// Returns whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.store.is_empty()
    }

    #[cfg(test)]
    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the matching objects in the range. As in kube-apiserver, the selectors do not affect
    /// whether more objects follow, so the last page may be empty.
    pub fn page(&self, filter: &WatchFilter, range: &PageRange<'_>) -> Page {
        let first = match filter.path_namespace() {
            Some(namespace) => Cow::Owned(format!("{namespace}/{}", range.from)),
            None => Cow::Borrowed(range.from),
        };
        let (mut scanned, index) = (0, self.store.narrowed_by(filter));
        let read = self.store.scan_from(filter, Bound::Included(&first));
        let matching =
            read.inspect(|_| scanned += 1).filter(|object| filter.matches(object)).cloned();
        let limit = range.limit.map_or(usize::MAX, NonZeroUsize::get);
        let objects: Vec<_> = matching.take(limit).collect();
        let Some(last) = objects.last().filter(|_| objects.len() == limit) else {
            return Page { objects, scanned, index, next: None };
        };
        let required = range.indexed.and_then(|field| {
            let value = filter.fields.required_value_of(field)?;
            Some((field, value))
        });
        let mut rest = self.store.all_after(filter, required, last.key.as_str());
        let selects = !filter.labels.is_empty()
            || !filter.fields.is_empty()
            || (filter.shard.is_some() && !range.counts_shard);
        let following = if selects { usize::from(rest.next().is_some()) } else { rest.count() };
        let remaining = scanned.saturating_sub(limit) + following;
        let next = (following > 0).then(|| Continuation {
            last: match filter.path_namespace() {
                Some(_) => last.key.name().to_owned(),
                None => last.key.as_str().to_owned(),
            },
            remaining: (!selects).then_some(remaining as u64),
        });
        Page { objects, scanned, index, next }
    }
}

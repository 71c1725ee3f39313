//! The objects as they were at one resourceVersion, and pages of them (semantics.md §1.6.1, §3.3).
//!
//! An older state is had by undoing the history from the present one: of each object that an event after the wanted
//! resourceVersion touched, what was there before the first such event. That takes time in proportion to the events undone,
//! and the result shares with the present state all that did not change. Only a state of which every later event is held can be
//! had so ([`State::exact_from`]); for any other the upstream is asked.

use std::borrow::Cow;
use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::ops::Bound;
use std::sync::Arc;

use crate::api::resource_version::ResourceVersion;
use crate::cache::core::filter::WatchFilter;
use crate::cache::core::state::State;
use crate::cache::core::store::Store;
use crate::codec::object::Object;

/// See the module. A clone costs nothing.
#[derive(Clone, Debug)]
pub struct Snapshot {
    store: Store,
    resource_version: ResourceVersion,
}

/// What of a list a page holds.
#[derive(Clone, Copy, Debug, Default)]
pub struct PageRange<'a> {
    /// The first key it may hold, relative to the list's root (the filter's own namespace, or nothing); empty to begin with the first.
    pub from: &'a str,
    /// The most objects it may hold.
    pub limit: Option<NonZeroUsize>,
    /// The field, by its index, over which the upstream's cache has an index: where a list of its newest state requires a value of
    /// that field, only the objects with that value count when it is asked whether more follow.
    pub indexed: Option<usize>,
}

/// The objects of a page, and what follows it.
#[derive(Debug)]
pub struct Page {
    /// The objects in key order.
    pub objects: Vec<Arc<Object>>,
    /// Set if the limit cut the list short.
    pub next: Option<Continuation>,
}

/// What follows a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Continuation {
    /// The key of the page's last object, relative to the list's root.
    pub last: String,
    /// How many objects follow; only known without selectors.
    pub remaining: Option<u64>,
}

impl Snapshot {
    /// The present state.
    pub fn latest(state: &State) -> Self {
        Self { store: state.store().clone(), resource_version: state.resource_version() }
    }

    /// The state as it was at a resourceVersion; `None` if that can't be shown from here.
    pub fn at(state: &State, resource_version: ResourceVersion) -> Option<Self> {
        if resource_version > state.resource_version() || resource_version < state.exact_from() {
            return None;
        }
        let history = state.history();
        // Before the oldest event that is held: all of them are undone.
        let from = history.resume(resource_version).unwrap_or_else(|_| history.first_seq());
        let mut store = state.store().clone();
        let mut undone = HashSet::new();
        for (_, event) in history.events(from, history.end_seq()) {
            let key = event.object().key.as_str();
            if !undone.insert(key) {
                continue;
            }
            match event.previous() {
                // An event is missing between: never so while the history keeps its word.
                Some(previous) if previous.resource_version > resource_version => return None,
                Some(previous) => drop(store.put(Arc::clone(previous))),
                None => drop(store.remove(key)),
            }
        }
        Some(Self { store, resource_version })
    }

    /// The resourceVersion that it is the state of.
    pub fn resource_version(&self) -> ResourceVersion {
        self.resource_version
    }

    /// The objects themselves.
    #[cfg(test)]
    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    /// The objects that a filter matches, as far as they are in the range. As upstream, whether more follow is decided before the
    /// selectors have their say: the last page may be empty.
    pub fn page(&self, filter: &WatchFilter, range: &PageRange<'_>) -> Page {
        let first = match filter.path_namespace() {
            Some(namespace) => Cow::Owned(format!("{namespace}/{}", range.from)),
            None => Cow::Borrowed(range.from),
        };
        let found = self.store.scan_from(filter, Bound::Included(&first));
        let found = found.filter(|object| filter.matches(object)).cloned();
        let Some(limit) = range.limit else {
            return Page { objects: found.collect(), next: None };
        };
        let objects: Vec<_> = found.take(limit.get()).collect();
        let Some(last) = objects.last().filter(|_| objects.len() == limit.get()) else {
            return Page { objects, next: None };
        };
        let required = range.indexed.and_then(|field| {
            let value = filter.fields.required_value_of(field)?;
            Some((field, value))
        });
        let mut rest = self.store.all_after(filter.path_namespace(), required, last.key.as_str());
        let selects = !filter.labels.is_empty() || !filter.fields.is_empty();
        let remaining = if selects { usize::from(rest.next().is_some()) } else { rest.count() };
        let next = (remaining > 0).then(|| Continuation {
            last: match filter.path_namespace() {
                Some(_) => last.key.name().to_owned(),
                None => last.key.as_str().to_owned(),
            },
            remaining: (!selects).then_some(remaining as u64),
        });
        Page { objects, next }
    }
}

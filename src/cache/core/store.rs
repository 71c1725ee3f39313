//! The present objects in key order (semantics.md §3.1).
//!
//! An `imbl` map, so that a published state and the next one share all but the nodes that changed, and a
//! clone costs nothing. Its keys are those of the objects, shared and not the objects themselves: inner nodes keep clones of keys as
//! separators, which must neither cost an allocation each nor keep an object alive that was replaced.
//! `OrdMap::diff` is not used (it lost updates in earlier releases of imbl).
//!
//! Beside it may stand an [`FieldIndex`] over one selectable field, which holds the very same objects: who asks for a value of that
//! field is shown those that have it and no other.

use std::ops::Bound;
use std::sync::Arc;

use crate::cache::core::field_index::FieldIndex;
use crate::cache::core::filter::WatchFilter;
use crate::cache::core::objects::{Objects, is_above, range};
use crate::codec::object::{Key, Object};

/// See the module. The default is empty and has no index.
#[derive(Clone, Debug, Default)]
pub struct Store {
    objects: Objects,
    index: Option<FieldIndex>,
    weight: usize,
}

impl Store {
    /// One that holds these objects; of two of one key the later. With an index over the selectable field of this number, if one is given.
    pub fn new(objects: Vec<Object>, indexed: Option<usize>) -> Self {
        let mut store = Self { index: indexed.map(FieldIndex::new), ..Self::default() };
        if !objects.is_sorted_by(|one, next| one.key < next.key) {
            objects.into_iter().for_each(|object| drop(store.put(Arc::new(object))));
            return store;
        }
        // A node that is full is split in halves. What comes in order would leave all behind it half full; every second first, and
        // the others between them, leaves them full.
        let mut others = Vec::with_capacity(objects.len() / 2);
        for (number, object) in objects.into_iter().enumerate() {
            if number % 2 == 0 {
                store.put(Arc::new(object));
            } else {
                others.push(object);
            }
        }
        others.into_iter().for_each(|object| drop(store.put(Arc::new(object))));
        store
    }

    /// The object of a key.
    pub fn get(&self, key: &str) -> Option<&Arc<Object>> {
        self.objects.get(key)
    }

    /// Puts an object in its place; returns the one that was there.
    pub fn put(&mut self, object: Arc<Object>) -> Option<Arc<Object>> {
        self.weight = self.weight.saturating_add(object.weight());
        let key = Arc::clone(object.key.shared());
        let previous = self.objects.insert(key, Arc::clone(&object));
        if let Some(index) = &mut self.index {
            index.put(object, previous.as_deref());
        }
        self.subtract_weight(previous.as_deref());
        previous
    }

    /// Removes the object of a key and returns it.
    pub fn remove(&mut self, key: &str) -> Option<Arc<Object>> {
        let previous = self.objects.remove(key)?;
        if let Some(index) = &mut self.index {
            index.remove(&previous);
        }
        self.subtract_weight(Some(&previous));
        Some(previous)
    }

    /// The objects that a filter matches, in key order.
    pub fn select<'a>(&'a self, filter: &'a WatchFilter) -> impl Iterator<Item = &'a Arc<Object>> {
        self.scan(filter, None).filter(|object| filter.matches(object))
    }

    /// The objects that have to be looked at to find those of a filter whose key is above `after`, in key order. A required namespace
    /// narrows them to its range, a required value of the indexed field to those that have it, a required name to one look-up.
    pub fn scan<'a>(
        &'a self,
        filter: &WatchFilter,
        after: Option<&str>,
    ) -> impl Iterator<Item = &'a Arc<Object>> + use<'a> {
        self.scan_from(filter, after.map_or(Bound::Unbounded, Bound::Excluded))
    }

    /// The same from a lower bound of the keys on.
    pub fn scan_from<'a>(
        &'a self,
        filter: &WatchFilter,
        low: Bound<&str>,
    ) -> impl Iterator<Item = &'a Arc<Object>> + use<'a> {
        let (single, range) = match self.single_key(filter) {
            Some(key) => {
                let found = self.get(key.as_str());
                (found.filter(|_| is_above(key.as_str(), low)), None)
            }
            None => {
                let objects = self.candidates(filter);
                (None, objects.map(|objects| range(objects, filter.required_namespace(), low)))
            }
        };
        single.into_iter().chain(range.into_iter().flatten())
    }

    /// No more objects than this are looked at to find those of a filter. Known without looking at any.
    pub fn scan_max(&self, filter: &WatchFilter) -> usize {
        match self.single_key(filter) {
            Some(_) => 1,
            None => self.candidates(filter).map_or(0, Objects::len),
        }
    }

    /// All objects of a namespace, or of all, whose key is above `after`, in key order; of these, if `field` names a selectable field by its
    /// number, those with that value.
    pub fn all_after<'a>(
        &'a self,
        namespace: Option<&str>,
        field: Option<(usize, &'a str)>,
        after: &str,
    ) -> impl Iterator<Item = &'a Arc<Object>> + use<'a> {
        let indexed = field.and_then(|(number, value)| self.index_over(number)?.get(value));
        let is_indexed = field.is_some_and(|(number, _)| self.index_over(number).is_some());
        let objects = if is_indexed { indexed } else { Some(&self.objects) };
        let objects = objects.map(|objects| range(objects, namespace, Bound::Excluded(after)));
        objects.into_iter().flatten().filter(move |object| {
            field.is_none_or(|(number, value)| object.attrs.field(number) == value)
        })
    }

    /// All objects, in key order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.objects.values()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// What the objects weigh, in bytes.
    pub fn weight(&self) -> usize {
        self.weight + self.index.as_ref().map_or(0, FieldIndex::weight)
    }

    /// Whether the index holds exactly the objects that the map holds.
    #[cfg(test)]
    pub(super) fn is_index_consistent(&self) -> bool {
        let Some(index) = &self.index else { return true };
        let is_indexed = |object: &Arc<Object>| {
            let held = index.get(object.attrs.field(index.field()));
            let held = held.and_then(|objects| objects.get(object.key.as_str()));
            held.is_some_and(|held| Arc::ptr_eq(held, object))
        };
        index.len() == self.len() && self.iter().all(is_indexed)
    }

    /// The fewest objects at hand among which are all that a filter matches; `None` if it matches none.
    fn candidates(&self, filter: &WatchFilter) -> Option<&Objects> {
        let Some(index) = &self.index else { return Some(&self.objects) };
        match filter.fields.required_value_of(index.field()) {
            Some(value) => index.get(value),
            None => Some(&self.objects),
        }
    }

    fn index_over(&self, field: usize) -> Option<&FieldIndex> {
        self.index.as_ref().filter(|index| index.field() == field)
    }

    /// The only key that can match, if the filter leaves but one. A name alone does so in a cluster-scoped
    /// resource, which one shows by any of its keys: no two of a resource differ in scope.
    fn single_key(&self, filter: &WatchFilter) -> Option<Key> {
        let name = filter.required_name()?;
        match filter.required_namespace() {
            Some(namespace) => Some(Key::new(namespace, name)),
            None => {
                let (_, any) = self.objects.get_min()?;
                any.key.namespace().is_empty().then(|| Key::new("", name))
            }
        }
    }

    fn subtract_weight(&mut self, removed: Option<&Object>) {
        self.weight = self.weight.saturating_sub(removed.map_or(0, Object::weight));
    }
}

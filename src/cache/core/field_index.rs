//! The objects of a store by the value of one selectable field, so that a list by it (`spec.nodeName=` of every kubelet) looks at those that
//! have the value and not at all that there are.
//!
//! For each value a map like the store's own, in the same key order: a namespace or the place where a page begins narrows it further.
//! It holds the objects themselves, so that a list takes no look-up for each; the price is that each change of an object is made in
//! both maps. It shares the store's keys, and its nodes with the states before and after.
//!
//! Only the field over which the upstream keeps an index is worth one (`SelectableFields::indexed`): a further one costs some 55 bytes an object, half a KB a value and a
//! microsecond a change, and most other fields have few values with many objects each, for which a walk is no worse.
//!
//! Invariants: an object is under its own value exactly, once; no value is without objects.

use std::sync::Arc;

use imbl::OrdMap;

use crate::cache::core::objects::Objects;
use crate::codec::object::Object;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct FieldIndex {
    field: usize,
    by_value: OrdMap<Arc<str>, Objects>,
}

impl FieldIndex {
    /// An empty one over the selectable field of this number.
    pub(super) fn new(field: usize) -> Self {
        Self { field, by_value: OrdMap::new() }
    }

    /// The number of the field.
    pub(super) fn field(&self) -> usize {
        self.field
    }

    /// The objects with a value.
    pub(super) fn get(&self, value: &str) -> Option<&Objects> {
        self.by_value.get(value)
    }

    /// Takes an object in, in place of the one that the store held under its key before.
    pub(super) fn put(&mut self, object: Arc<Object>, previous: Option<&Object>) {
        let key = Arc::clone(object.key.shared());
        let value = object.attrs.field(self.field);
        if let Some(previous) = previous
            && previous.attrs.field(self.field) != value
        {
            self.remove(previous);
        }
        match self.by_value.get_mut(value) {
            Some(objects) => drop(objects.insert(key, object)),
            None => {
                let value = value.into();
                self.by_value.insert(value, Objects::unit(key, object));
            }
        }
    }

    /// Lets an object go that the store held.
    pub(super) fn remove(&mut self, object: &Object) {
        let value = object.attrs.field(self.field);
        if let Some(objects) = self.by_value.get_mut(value) {
            objects.remove(object.key.as_str());
            if objects.is_empty() {
                self.by_value.remove(value);
            }
        }
    }

    /// What it holds besides the objects' own share of it, which they count themselves, in bytes.
    pub(super) fn weight(&self) -> usize {
        self.by_value.len().saturating_mul(VALUE_BYTES)
    }

    /// How many objects there are under all values, each of which has at least one.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        assert!(self.by_value.values().all(|objects| !objects.is_empty()));
        self.by_value.values().map(Objects::len).sum()
    }
}

/// What a value costs: a map of its own, of which the first node has room for sixteen objects, and its text. Measured generously, since whoever makes
/// objects can make values.
pub(super) const VALUE_BYTES: usize = 640;

//! An index of a store's objects by the value of one selectable field. A list by that field
//! (`spec.nodeName=`, as every kubelet sends) reads only the objects with the value.
//!
//! Each value has a map like the store's own, in the same key order, so a namespace or the start of
//! a page narrows it further. The maps hold the objects themselves, so a list needs no look-up for
//! each object. In return each change of an object updates two maps. The index shares the store's
//! keys, and shares its nodes with earlier and later states.
//!
//! Only the field that the upstream indexes too is worth an index (`SelectableFields::indexed`).
//! Another one would cost about 55 bytes an object, half a kilobyte a value and a microsecond a
//! change. Most other fields have few values with many objects each, for which a scan is no slower.
//!
//! Invariants: each object is exactly once in the index, under its own value; no value has an empty
//! map.

use std::sync::Arc;

use imbl::OrdMap;

use crate::cache::core::objects::Objects;
use crate::codec::object::{Key, Object};

/// An index by the value of one selectable field.
#[derive(Clone, Debug)]
pub(super) struct FieldIndex {
    field: usize,
    by_value: OrdMap<Arc<[u8]>, Objects>,
}

impl FieldIndex {
    /// Creates an empty index of the selectable field number `field`.
    pub(super) fn new(field: usize) -> Self {
        Self { field, by_value: OrdMap::new() }
    }

    /// Returns the number of the field.
    pub(super) fn field(&self) -> usize {
        self.field
    }

    pub(super) fn get(&self, value: &[u8]) -> Option<&Objects> {
        self.by_value.get(value)
    }

    /// Adds an object under its key for a tree, and removes `previous`, which the store held under
    /// the same key.
    pub(super) fn put(&mut self, (key, object): (Key, Arc<Object>), previous: Option<&Object>) {
        let value = object.attrs().field(self.field);
        if let Some(previous) = previous
            && previous.attrs().field(self.field) != value
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

    /// Removes an object.
    pub(super) fn remove(&mut self, object: &Object) {
        let value = object.attrs().field(self.field);
        if let Some(objects) = self.by_value.get_mut(value) {
            objects.remove(&object.key);
            if objects.is_empty() {
                self.by_value.remove(value);
            }
        }
    }

    /// Returns the size in bytes, without the part that each object already counts itself.
    pub(super) fn weight(&self) -> usize {
        self.by_value.len().saturating_mul(VALUE_BYTES)
    }

    /// Returns the number of objects. Panics if a value has none.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        assert!(self.by_value.values().all(|objects| !objects.is_empty()));
        self.by_value.values().map(Objects::len).sum()
    }
}

/// The size of a value in bytes: its text, and its own map, whose first node has space for sixteen
/// objects. An overestimate, since clients that create objects can create values.
pub(super) const VALUE_BYTES: usize = 640;

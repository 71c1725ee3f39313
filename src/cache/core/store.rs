//! The current objects in key order (`docs/semantics.md` §3.1).
//!
//! The store is an `imbl` map, so that a published state and the next one share all nodes that did
//! not change, and a clone is cheap. A key of the map is the begin of its object's record. Inner
//! nodes hold clones of keys as separators, which keep the records of replaced objects: of one
//! object in 32 at the most, and of no large one ([`Key::for_tree`]). `OrdMap::diff` is not used:
//! it lost updates in earlier releases of imbl.
//!
//! The store may have a [`FieldIndex`] of one selectable field, which holds the same objects. A
//! list that requires a value of that field reads only the objects with that value.

use std::ops::Bound;
use std::sync::Arc;

use crate::cache::core::field_index::FieldIndex;
use crate::cache::core::filter::WatchFilter;
use crate::cache::core::objects::{Objects, is_above, range};
use crate::codec::object::{Key, Object};

/// The index that narrows the scan of a list, the narrowest first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScanIndex {
    /// A name: one look-up.
    Name,
    /// A value of the indexed field.
    Field,
    /// A namespace: its range of keys.
    Namespace,
    /// Nothing: all objects are read.
    None,
}

/// An ordered map of objects with an optional index. The default is empty and has no index.
#[derive(Clone, Debug, Default)]
pub struct Store {
    objects: Objects,
    index: Option<FieldIndex>,
    weight: usize,
}

impl Store {
    /// Creates a store. If two objects have the same key, the later one is kept. `indexed` is the
    /// number of the selectable field to index.
    pub fn new(objects: Vec<Arc<Object>>, indexed: Option<usize>) -> Self {
        let mut store = Self { index: indexed.map(FieldIndex::new), ..Self::default() };
        if !objects.is_sorted_by(|one, next| one.key < next.key) {
            objects.into_iter().for_each(|object| drop(store.put(object)));
            return store;
        }
        // A full node is split in halves. Inserting in key order would leave all nodes but the last
        // half full. Inserting every second object first, and the others between them, fills the
        // nodes.
        let mut second_half = Vec::with_capacity(objects.len() / 2);
        for (number, object) in objects.into_iter().enumerate() {
            if number % 2 == 0 {
                store.put(object);
            } else {
                second_half.push(object);
            }
        }
        second_half.into_iter().for_each(|object| drop(store.put(object)));
        store
    }

    /// Returns the object with a key.
    pub fn get(&self, key: &[u8]) -> Option<&Arc<Object>> {
        self.objects.get(key)
    }

    /// Returns the object with the same key, resourceVersion and bytes as `object`.
    pub fn equal(&self, object: &Object) -> Option<&Arc<Object>> {
        self.get(object.key.as_bytes()).filter(|held| {
            held.resource_version == object.resource_version && held.body() == object.body()
        })
    }

    /// Inserts an object and returns the one that it replaces.
    pub fn put(&mut self, object: Arc<Object>) -> Option<Arc<Object>> {
        self.weight = self.weight.saturating_add(object.weight());
        let key = object.key.for_tree();
        let previous = self.objects.insert(key.clone(), Arc::clone(&object));
        if let Some(index) = &mut self.index {
            index.put((key, object), previous.as_deref());
        }
        self.subtract_weight(previous.as_deref());
        previous
    }

    /// Removes the object with a key and returns it.
    pub fn remove(&mut self, key: &Key) -> Option<Arc<Object>> {
        let previous = self.objects.remove(key)?;
        if let Some(index) = &mut self.index {
            index.remove(&previous);
        }
        self.subtract_weight(Some(&previous));
        Some(previous)
    }

    /// Returns the objects that match the filter, in key order.
    pub fn select<'a>(&'a self, filter: &'a WatchFilter) -> impl Iterator<Item = &'a Arc<Object>> {
        self.scan(filter, None).filter(|object| filter.matches(object))
    }

    /// Returns, in key order, the objects that must be checked to find those that match the filter
    /// and whose key is above `after`. A required namespace narrows them to its range, a required
    /// value of the indexed field to the objects with that value, and a required name to one
    /// look-up.
    pub fn scan<'a>(
        &'a self,
        filter: &WatchFilter,
        after: Option<&str>,
    ) -> impl Iterator<Item = &'a Arc<Object>> + use<'a> {
        self.scan_from(filter, after.map_or(Bound::Unbounded, Bound::Excluded))
    }

    /// Works like [`Self::scan`], with a lower bound for the keys.
    pub fn scan_from<'a>(
        &'a self,
        filter: &WatchFilter,
        low: Bound<&str>,
    ) -> impl Iterator<Item = &'a Arc<Object>> + use<'a> {
        let (single, range) = match self.single_key(filter) {
            Some(key) => {
                let object = self.get(key.as_bytes());
                (object.filter(|_| is_above(key.as_str(), low)), None)
            }
            None => {
                let objects = self.candidates(filter);
                let namespace = filter.required_namespace();
                let visible = filter.visible.as_ref();
                (None, objects.map(|objects| range(objects, namespace, visible, low)))
            }
        };
        single.into_iter().chain(range.into_iter().flatten())
    }

    /// Returns an upper bound of the objects that a scan with this filter reads, without reading
    /// any.
    pub fn scan_max(&self, filter: &WatchFilter) -> usize {
        match self.single_key(filter) {
            Some(_) => 1,
            None => self.candidates(filter).map_or(0, Objects::len),
        }
    }

    /// Returns the index that narrows a scan with this filter.
    pub fn narrowed_by(&self, filter: &WatchFilter) -> ScanIndex {
        if self.single_key(filter).is_some() {
            return ScanIndex::Name;
        }
        let index = self.index.as_ref();
        if index.is_some_and(|index| filter.fields.required_value_of(index.field()).is_some()) {
            return ScanIndex::Field;
        }
        match filter.required_namespace() {
            Some(_) => ScanIndex::Namespace,
            None => ScanIndex::None,
        }
    }

    /// Returns all objects that the filter's path and user may see and whose key is above `after`,
    /// in key order. `field` restricts them to the objects with a value of the selectable field
    /// with that number.
    pub fn all_after<'a>(
        &'a self,
        filter: &WatchFilter,
        field: Option<(usize, &'a str)>,
        after: &str,
    ) -> impl Iterator<Item = &'a Arc<Object>> + use<'a> {
        let indexed =
            field.and_then(|(number, value)| self.index_over(number)?.get(value.as_bytes()));
        let is_indexed = field.is_some_and(|(number, _)| self.index_over(number).is_some());
        let objects = if is_indexed { indexed } else { Some(&self.objects) };
        let (namespace, visible) = (filter.path_namespace(), filter.visible.as_ref());
        let low = Bound::Excluded(after);
        let objects = objects.map(|objects| range(objects, namespace, visible, low));
        objects.into_iter().flatten().filter(move |object| {
            field.is_none_or(|(number, value)| object.attrs().field(number) == value.as_bytes())
        })
    }

    /// Returns all objects in key order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.objects.values()
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Returns whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Returns the size of the objects in bytes.
    pub fn weight(&self) -> usize {
        self.weight + self.index.as_ref().map_or(0, FieldIndex::weight)
    }

    /// Returns whether the index holds exactly the objects of the map.
    #[cfg(test)]
    pub(super) fn is_index_consistent(&self) -> bool {
        let Some(index) = &self.index else { return true };
        let is_indexed = |object: &Arc<Object>| {
            let held = index.get(object.attrs().field(index.field()));
            let held = held.and_then(|objects| objects.get(&object.key));
            held.is_some_and(|held| Arc::ptr_eq(held, object))
        };
        index.len() == self.len() && self.iter().all(is_indexed)
    }

    /// Returns the smallest available map that contains all objects that match the filter, or
    /// `None` if no object matches.
    fn candidates(&self, filter: &WatchFilter) -> Option<&Objects> {
        let Some(index) = &self.index else { return Some(&self.objects) };
        match filter.fields.required_value_of(index.field()) {
            Some(value) => index.get(value.as_bytes()),
            None => Some(&self.objects),
        }
    }

    fn index_over(&self, field: usize) -> Option<&FieldIndex> {
        self.index.as_ref().filter(|index| index.field() == field)
    }

    /// Returns the only key that can match, if the filter leaves one. In a cluster-scoped resource
    /// a name alone is enough. Any key shows the scope, since it is the same for all objects of a
    /// resource.
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

//! The present objects in key order (semantics.md §3.1).
//!
//! An `imbl` map, so that a published state and the next one share all but the nodes that changed, and a
//! clone costs nothing. Its keys are `Arc<str>` beside the object's own: inner nodes keep clones of keys as
//! separators, which must neither cost an allocation each nor keep an object alive that was replaced.
//! `OrdMap::diff` is not used (it lost updates in earlier releases of imbl).

use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdMap;

use crate::cache::core::filter::WatchFilter;
use crate::codec::object::{Key, Object};

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Store {
    objects: OrdMap<Arc<str>, Arc<Object>>,
    weight: usize,
}

impl Store {
    /// The object of a key.
    pub fn get(&self, key: &str) -> Option<&Arc<Object>> {
        self.objects.get(key)
    }

    /// Puts an object in its place; returns the one that was there.
    pub fn put(&mut self, object: Arc<Object>) -> Option<Arc<Object>> {
        self.weight = self.weight.saturating_add(object.weight());
        let previous = match self.objects.get_mut(object.key.as_str()) {
            Some(present) => Some(std::mem::replace(present, object)),
            None => {
                let key: Arc<str> = object.key.as_str().into();
                self.objects.insert(key, object)
            }
        };
        self.lighten(previous.as_deref());
        previous
    }

    /// Removes the object of a key and returns it.
    pub fn remove(&mut self, key: &str) -> Option<Arc<Object>> {
        let previous = self.objects.remove(key);
        self.lighten(previous.as_deref());
        previous
    }

    /// The objects that a filter matches, in key order.
    pub fn walk<'a>(&'a self, filter: &'a WatchFilter) -> impl Iterator<Item = &'a Arc<Object>> {
        self.scan(filter, None).filter(|object| filter.matches(object))
    }

    /// The objects that have to be looked at to find those of a filter whose key is above `after`, in key order. A required namespace
    /// narrows them to its range, a required name to one look-up.
    pub fn scan<'a>(
        &'a self,
        filter: &WatchFilter,
        after: Option<&str>,
    ) -> impl Iterator<Item = &'a Arc<Object>> + use<'a> {
        let (single, range) = match self.single_key(filter) {
            Some(key) => {
                let found = self.get(key.as_str());
                (found.filter(|_| after.is_none_or(|after| key.as_str() > after)), None)
            }
            None => (None, Some(self.range(filter.required_namespace(), after))),
        };
        single.into_iter().chain(range.into_iter().flatten())
    }

    /// All objects of a namespace, or of all, whose key is not below `from`, in key order. Within a namespace `from` is relative to it.
    pub fn from_key<'a>(
        &'a self,
        namespace: Option<&str>,
        from: &str,
    ) -> impl Iterator<Item = &'a Arc<Object>> + use<'a> {
        let (low, high) = match namespace {
            Some(namespace) => (format!("{namespace}/{from}"), Some(format!("{namespace}0"))),
            None => (from.to_owned(), None),
        };
        let high = high.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let range = (Bound::Included(low.as_str()), high);
        self.objects.range::<_, str>(range).map(|(_, object)| object)
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
        self.weight
    }

    fn range<'a>(
        &'a self,
        namespace: Option<&str>,
        after: Option<&str>,
    ) -> impl Iterator<Item = &'a Arc<Object>> + use<'a> {
        // `0` is the byte after `/`: the range holds exactly the keys that begin with `namespace/`.
        let ends = namespace.map(|namespace| (format!("{namespace}/"), format!("{namespace}0")));
        let (low, high) = match &ends {
            Some((low, high)) => (Bound::Included(low.as_str()), Bound::Excluded(high.as_str())),
            None => (Bound::Unbounded, Bound::Unbounded),
        };
        // A walk goes on where it stopped, so `after` lies within the range.
        let low = after.map_or(low, Bound::Excluded);
        self.objects.range::<_, str>((low, high)).map(|(_, object)| object)
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

    fn lighten(&mut self, removed: Option<&Object>) {
        self.weight = self.weight.saturating_sub(removed.map_or(0, Object::weight));
    }
}

impl FromIterator<Object> for Store {
    /// Of two objects of one key the later stays.
    fn from_iter<I: IntoIterator<Item = Object>>(objects: I) -> Self {
        let mut store = Self::default();
        for object in objects {
            store.put(Arc::new(object));
        }
        store
    }
}

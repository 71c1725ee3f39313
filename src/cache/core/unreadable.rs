//! The objects that a cache cannot read, and leaves to the API server
//! (`docs/decisions/unreadable-objects.md`).
//!
//! They are a part of the cache's state, and change together with it. The cache knows the namespace
//! of each and, as far as it is text, its name. A read that could show one of them is not answered;
//! all others are. The history has no events of them either, so that a watch must not start before
//! the last change of one that it could match.
//!
//! Clients can create such objects, so there is no limit on their number: they weigh as much as
//! they take, and count against the byte budgets as other objects do. Only the namespaces are
//! limited whose last change is remembered one by one.

use std::ops::Bound;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};

use crate::api::resource_version::ResourceVersion;
use crate::cache::core::filter::WatchFilter;
use crate::codec::object::Key;
use crate::codec::unreadable::UnreadableObject;

/// The objects of one state that cannot be read, and the last changes of such objects.
#[derive(Clone, Debug, Default)]
pub struct UnreadableObjects {
    objects: OrdSet<ObjectId>,
    weight: usize,
    /// The last change in each namespace since the list with which the history begins.
    changed: OrdMap<Arc<str>, ResourceVersion>,
    /// The last change of all; zero if there was none.
    last_change: ResourceVersion,
    /// The last change in a namespace that is no longer in `changed`.
    forgotten: ResourceVersion,
}

/// Namespace, name and uid. The first two are empty if they are unknown.
type ObjectId = (Arc<str>, Arc<str>, Arc<str>);

impl UnreadableObjects {
    /// Creates those of a list with which a history begins.
    pub(super) fn new(listed: Vec<UnreadableObject>) -> Self {
        let mut objects = Self::default();
        for object in listed {
            objects.insert(object);
        }
        objects
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Returns their number.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Returns their size in bytes.
    pub(super) fn weight(&self) -> usize {
        self.weight
    }

    /// Returns whether one of them may match a filter. Labels and fields are not known.
    pub(super) fn may_match(&self, filter: &WatchFilter) -> bool {
        if self.objects.is_empty() {
            return false;
        }
        let (namespace, name) = (filter.required_namespace(), filter.required_name());
        // Whether another user's objects can be read must not show.
        if let Some(visible) = &filter.visible {
            return visible.parts().any(|part| match part.strip_suffix('/') {
                Some(namespace) => self.has(namespace, None),
                None => self.has("", Some(part)),
            });
        }
        match (namespace, name) {
            (None, None) => true,
            (None, Some(name)) => {
                let mut entries = self.iter();
                self.len() > SEARCHED_MAX
                    || entries.any(|(_, unreadable_name)| {
                        unreadable_name == name || unreadable_name.is_empty()
                    })
            }
            (Some(namespace), name) => self.has(namespace, name),
        }
    }

    /// Returns whether one of them may have this key.
    pub fn may_have(&self, key: &Key) -> bool {
        !self.objects.is_empty() && self.has(key.namespace(), Some(key.name()))
    }

    /// Returns whether an object that may match a filter has changed after `at`, as far as the
    /// history reaches.
    pub(super) fn changed_after(&self, filter: &WatchFilter, at: ResourceVersion) -> bool {
        if self.last_change <= at {
            return false;
        }
        if let Some(visible) = &filter.visible {
            let mut changed = self.changed.iter().filter(|(_, changed)| **changed > at);
            return self.forgotten > at || changed.any(|(place, _)| visible.may_have(place, ""));
        }
        let Some(namespace) = filter.required_namespace() else { return true };
        let changed_at = |namespace: &str| self.changed.get(namespace).copied().unwrap_or_default();
        changed_at(namespace).max(changed_at("")).max(self.forgotten) > at
    }

    /// Returns whether any has changed after `at`.
    pub fn any_changed_after(&self, at: ResourceVersion) -> bool {
        self.last_change > at
    }

    /// Adds or changes an object.
    pub(super) fn put(&mut self, object: UnreadableObject) {
        self.note_change(&object.namespace, object.resource_version);
        self.insert(object);
    }

    /// Removes an object.
    pub(super) fn remove(&mut self, object: &UnreadableObject) {
        self.note_change(&object.namespace, object.resource_version);
        self.discard(&id(object));
    }

    /// Removes what had the key of an object that can be read, whose change was at `at`.
    pub(super) fn remove_key(&mut self, key: &Key, at: ResourceVersion) {
        if self.objects.is_empty() {
            return;
        }
        let (namespace, name) = (Arc::from(key.namespace()), Arc::from(key.name()));
        let replaced: Vec<_> = self.range(&namespace, Some(&name)).cloned().collect();
        for object in replaced {
            self.note_change(&namespace, at);
            self.discard(&object);
        }
    }

    /// Returns the state after a list at `at`, which continues the history. Every object that is or
    /// was unreadable may have changed since.
    pub(super) fn relisted(&self, listed: &Self, at: ResourceVersion) -> Self {
        let (objects, weight) = (listed.objects.clone(), listed.weight);
        let mut next = Self { objects, weight, ..self.clone() };
        for (namespace, ..) in self.objects.iter().chain(&listed.objects) {
            next.note_change(namespace, at);
        }
        next
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.objects.iter().map(|(namespace, name, _)| (&**namespace, &**name))
    }

    fn insert(&mut self, object: UnreadableObject) {
        let id = id(&object);
        let weight = weight(&id);
        if self.objects.insert(id).is_none() {
            self.weight = self.weight.saturating_add(weight);
        }
    }

    fn discard(&mut self, id: &ObjectId) {
        if self.objects.remove(id).is_some() {
            self.weight = self.weight.saturating_sub(weight(id));
        }
    }

    fn note_change(&mut self, namespace: &Arc<str>, at: ResourceVersion) {
        if self.changed.len() >= NAMESPACES_MAX && !self.changed.contains_key(namespace) {
            self.forgotten = self.last_change;
            self.changed.clear();
        }
        self.changed.insert(Arc::clone(namespace), at);
        self.last_change = self.last_change.max(at);
    }

    /// Whether an object may be in a namespace, and have a name.
    fn has(&self, namespace: &str, name: Option<&str>) -> bool {
        let namespaces = [namespace, ""].map(Arc::from);
        match name.map(|name| [name, ""].map(Arc::from)) {
            None => namespaces.iter().any(|namespace| self.range(namespace, None).next().is_some()),
            Some(names) => namespaces.iter().any(|namespace| {
                names.iter().any(|name| self.range(namespace, Some(name)).next().is_some())
            }),
        }
    }

    /// Returns the objects with exactly this namespace and, if given, this name.
    fn range(
        &self,
        namespace: &Arc<str>,
        name: Option<&Arc<str>>,
    ) -> impl Iterator<Item = &ObjectId> {
        let empty = || Arc::from("");
        let first = (Arc::clone(namespace), name.map_or_else(empty, Arc::clone), empty());
        let (namespace, name) = (Arc::clone(namespace), name.cloned());
        let objects = self.objects.range((Bound::Included(first), Bound::Unbounded));
        objects.take_while(move |(object_namespace, own_name, _)| {
            *object_namespace == namespace && name.as_ref().is_none_or(|name| own_name == name)
        })
    }
}

fn id(object: &UnreadableObject) -> ObjectId {
    let UnreadableObject { namespace, name, uid, .. } = object;
    (Arc::clone(namespace), Arc::clone(name), Arc::clone(uid))
}

fn weight((namespace, name, uid): &ObjectId) -> usize {
    OVERHEAD_BYTES + namespace.len() + name.len() + uid.len()
}

/// The cost of an object besides its strings: three allocations with two reference counts each, and
/// its place in the set. An overestimate.
const OVERHEAD_BYTES: usize = 192;
/// The most objects that are searched for a name in all namespaces. If there are more, it counts as
/// the name of one.
const SEARCHED_MAX: usize = 1_000;
/// The namespaces whose last change is remembered. When there are more, all of them count as
/// changed.
const NAMESPACES_MAX: usize = 256;

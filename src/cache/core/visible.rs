//! The objects of a collection that a user may see who may not read all of it
//! (`docs/decisions/filtered-lists.md`).
//!
//! A filter that has them reads, counts and shows no other object: neither the pages of a list nor
//! the number of its remaining objects depend on what is not visible. The cache does not know why
//! they are visible.

use crate::codec::object::Key;

/// Namespaces of a resource, or names of a cluster-scoped one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct VisibleObjects {
    /// The beginnings of keys: a namespace and a slash, or a whole name. In the order of the keys,
    /// which is not that of the namespaces: `a-b/` comes before `a/`.
    parts: Box<[Box<str>]>,
}

impl VisibleObjects {
    /// All objects of these namespaces.
    pub fn in_namespaces<'a>(namespaces: impl IntoIterator<Item = &'a str>) -> Self {
        Self::new(namespaces.into_iter().map(|namespace| format!("{namespace}/").into()))
    }

    /// The cluster-scoped objects with these names.
    pub fn with_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        Self::new(names.into_iter().map(Box::from))
    }

    fn new(parts: impl Iterator<Item = Box<str>>) -> Self {
        let mut parts: Vec<_> = parts.collect();
        parts.sort_unstable();
        parts.dedup();
        Self { parts: parts.into() }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The memory in bytes.
    pub fn weight_bytes(&self) -> usize {
        let bytes = self.parts.iter().map(|part| size_of::<Box<str>>() + part.len());
        size_of::<Self>() + bytes.sum::<usize>()
    }

    /// Whether an object with this key is one of them.
    pub fn has(&self, key: &Key) -> bool {
        let key = key.as_str();
        let end = key.find('/').map_or(key.len(), |slash| slash + 1);
        key.get(..end).is_some_and(|part| self.has_part(part))
    }

    /// Whether the objects of a namespace are among them.
    pub(super) fn has_namespace(&self, namespace: &str) -> bool {
        self.has_part(&format!("{namespace}/"))
    }

    /// Whether an object may be one of them of which only these names are known; an empty one is
    /// unknown, or the namespace of a cluster-scoped object.
    pub(super) fn may_have(&self, namespace: &str, name: &str) -> bool {
        if !namespace.is_empty() {
            return self.has_namespace(namespace);
        }
        name.is_empty() || self.are_namespaces() || self.has_part(name)
    }

    fn are_namespaces(&self) -> bool {
        self.parts.first().is_some_and(|part| part.ends_with('/'))
    }

    /// The beginnings of the keys, in their order: a namespace and a slash, or a whole name.
    pub fn parts(&self) -> impl ExactSizeIterator<Item = &str> {
        self.parts.iter().map(|part| &**part)
    }

    /// The part with this number in the order of keys.
    pub(super) fn part(&self, number: usize) -> Option<&str> {
        self.parts.get(number).map(|part| &**part)
    }

    /// The number of the first part that may have a key at or above `key`.
    pub(super) fn first_from(&self, key: &str) -> usize {
        let end = key.find('/').map_or(key.len(), |slash| slash + 1);
        let part = key.get(..end).unwrap_or_default();
        self.parts.partition_point(|visible| **visible < *part)
    }

    fn has_part(&self, part: &str) -> bool {
        self.parts.binary_search_by(|visible| (**visible).cmp(part)).is_ok()
    }
}

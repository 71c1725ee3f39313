//! One object as the cache keeps it: the upstream's bytes and the little that was read out of them.

use std::fmt;

use bytes::Bytes;

use crate::api::resource_version::ResourceVersion;

/// `namespace/name`, or `name` for a cluster-scoped object. Its byte order is the order of every list
/// (semantics.md §3.1: `-` and `.` sort before `/`, so this is not the order of the tuple).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Box<str>);

impl Key {
    /// Joins the two; an empty namespace stands for none.
    pub fn new(namespace: &str, name: &str) -> Self {
        if namespace.is_empty() {
            Self(name.into())
        } else {
            Self(format!("{namespace}/{name}").into())
        }
    }

    /// The joined form.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The namespace; empty for a cluster-scoped object.
    pub fn namespace(&self) -> &str {
        self.0.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or(&*self.0, |(_, name)| name)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An object, immutable once made. `Debug` shows no part of the body.
#[derive(Clone)]
pub struct Object {
    /// Its place in the store.
    pub key: Key,
    /// Its `metadata.resourceVersion`.
    pub resource_version: ResourceVersion,
    /// Its labels, sorted by key.
    pub labels: Box<[(Box<str>, Box<str>)]>,
    /// The values of its kind's selectable fields, in the order of [`crate::api::selectable::SelectableFields`].
    pub fields: Box<[Box<str>]>,
    /// The object as GET and WATCH show it (with `kind` and `apiVersion`), without the trailing newline. An
    /// allocation of its own: a slice of a list's body would pin the whole list.
    pub body: Bytes,
    /// How many bytes at the front of `body` a list item lacks: `{"kind":"Pod","apiVersion":"v1",` is
    /// replaced by `{`. Zero for custom resources, whose list items are whole.
    pub list_item_skip: u32,
    /// Where the digits of `metadata.resourceVersion` stand in `body`: offset and length.
    pub resource_version_at: (u32, u8),
}

impl Object {
    /// What it weighs against a byte budget: the body and everything kept beside it, in bytes.
    pub fn weight(&self) -> usize {
        let labels: usize =
            self.labels.iter().map(|(key, value)| key.len() + value.len() + PAIR).sum();
        let fields: usize =
            self.fields.iter().map(|value| value.len() + size_of::<Box<str>>()).sum();
        OVERHEAD_BYTES + self.body.len() + self.key.as_str().len() + labels + fields
    }

    /// The body as a list shows it, in the two pieces it is made of.
    pub fn list_item(&self) -> (&'static [u8], &[u8]) {
        match self.list_item_skip {
            0 => (b"", &self.body),
            skip => (b"{", self.body.get(skip as usize..).unwrap_or_default()),
        }
    }

    /// The body with another resourceVersion in place of its own, for a DELETED event of an object
    /// that left a selector (semantics.md §5.5).
    pub fn body_with_resource_version(&self, resource_version: ResourceVersion) -> Vec<u8> {
        let (offset, length) = self.resource_version_at;
        let (start, end) = (offset as usize, offset as usize + usize::from(length));
        let digits = resource_version.to_string();
        let mut body = Vec::with_capacity(self.body.len() + digits.len());
        body.extend_from_slice(self.body.get(..start).unwrap_or_default());
        body.extend_from_slice(digits.as_bytes());
        body.extend_from_slice(self.body.get(end..).unwrap_or_default());
        body
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Object")
            .field("key", &self.key)
            .field("resource_version", &self.resource_version)
            .finish_non_exhaustive()
    }
}

/// One pair of labels: two boxed strings.
const PAIR: usize = 2 * size_of::<Box<str>>();

/// What an object costs besides its strings: itself, two reference counts, the body's shared header, its place in the
/// ordered map and the allocator's rounding. Measured generously, since a budget that is too low is kept and one that is too high is not.
const OVERHEAD_BYTES: usize = size_of::<Object>() + 160;

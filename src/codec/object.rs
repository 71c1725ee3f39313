//! One object as the cache keeps it: the upstream's bytes and the little that was read out of them.

use std::fmt;

use bytes::Bytes;

use crate::api::media_type::{Encoding, View};
use crate::api::resource_version::ResourceVersion;
use crate::codec::splice::Splice;

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
            let mut joined = String::with_capacity(namespace.len() + 1 + name.len());
            joined.extend([namespace, "/", name]);
            Self(joined.into())
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
    /// The object as GET and WATCH show it: in JSON with `kind` and `apiVersion` and without the trailing newline, in protobuf with its
    /// envelope. An allocation of its own: a slice of a list's body would pin the whole list.
    pub body: Bytes,
    /// Where the parts of `body` stand.
    pub layout: Layout,
}

/// Where the parts of an object's bytes stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// What the bytes are.
    pub encoding: Encoding,
    /// What a list item is made of. In JSON the rest after `{"kind":"Pod","apiVersion":"v1",`, to be led by `{`, or all of a custom
    /// resource; in protobuf the object within its envelope.
    pub item: Span,
    /// The value of `metadata`: an object in JSON, an `ObjectMeta` in protobuf.
    pub metadata: Span,
    /// The digits of `metadata.resourceVersion`.
    pub resource_version: Span,
}

/// A part of an object's bytes. Neither number is above 4 GiB, which no object comes near.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Where it begins, in bytes.
    pub start: u32,
    /// How long it is, in bytes.
    pub length: u32,
}

impl Span {
    /// `None` if a number is too large.
    pub fn new(start: usize, length: usize) -> Option<Self> {
        Some(Self { start: u32::try_from(start).ok()?, length: u32::try_from(length).ok()? })
    }

    /// The part of these bytes; empty if it is none.
    pub fn of(self, bytes: &[u8]) -> &[u8] {
        bytes.get(self.start as usize..self.end()).unwrap_or_default()
    }

    /// Where it ends.
    pub fn end(self) -> usize {
        self.start as usize + self.length as usize
    }
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

    /// The value of the selectable field of this number; one that it lacks counts as empty.
    pub fn field(&self, number: usize) -> &str {
        self.fields.get(number).map_or("", |value| value)
    }

    /// As GET and WATCH show it in a view.
    pub fn shown(&self, view: View) -> Splice<'_> {
        Splice::shown(&self.body, self.layout, view)
    }

    /// As a LIST shows it in a view.
    pub fn list_item(&self, view: View) -> Splice<'_> {
        Splice::list_item(&self.body, self.layout, view)
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

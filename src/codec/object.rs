//! One object as the cache keeps it: the upstream's bytes and the little that was read out of them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use smallvec::SmallVec;

use crate::api::media_type::{Encoding, View};
use crate::api::resource_version::ResourceVersion;
use crate::codec::attrs::Attrs;
use crate::codec::splice::Splice;

/// `namespace/name`, or `name` for a cluster-scoped object. Its byte order is the order of every list
/// (semantics.md §3.1: `-` and `.` sort before `/`, so this is not the order of the tuple). A clone shares it, as the
/// store's maps do.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Arc<str>);

impl Key {
    /// Joins the two; an empty namespace stands for none.
    pub fn new(namespace: &str, name: &str) -> Self {
        if namespace.is_empty() {
            Self(name.into())
        } else {
            // On the stack, so that the key is the only allocation.
            let mut joined = SmallVec::<[u8; JOINED_BYTES]>::new();
            joined.extend_from_slice(namespace.as_bytes());
            joined.push(b'/');
            joined.extend_from_slice(name.as_bytes());
            // What is joined of strings is one.
            Self(std::str::from_utf8(&joined).unwrap_or_default().into())
        }
    }

    /// The joined form, shared.
    pub fn shared(&self) -> &Arc<str> {
        &self.0
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

/// An object, immutable once made. `Debug` shows no part of the body. A clone is another object, with a number of its own.
pub struct Object {
    /// Its place in the store.
    pub key: Key,
    /// Its `metadata.resourceVersion`.
    pub resource_version: ResourceVersion,
    /// Its labels and the values of its kind's selectable fields.
    pub attrs: Attrs,
    /// The object as GET and WATCH show it: in JSON with `kind` and `apiVersion` and without the trailing newline, in protobuf with its
    /// envelope. An allocation of its own: a slice of a list's body would pin the whole list.
    pub body: Bytes,
    /// Where the parts of `body` stand.
    pub layout: Layout,
    key_hash: u32,
    id: u64,
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
    pub fn slice(self, bytes: &[u8]) -> &[u8] {
        bytes.get(self.start as usize..self.end()).unwrap_or_default()
    }

    /// Where it ends.
    pub fn end(self) -> usize {
        self.start as usize + self.length as usize
    }
}

impl Object {
    /// Made of its parts.
    pub fn new(
        key: Key,
        resource_version: ResourceVersion,
        attrs: Attrs,
        body: Bytes,
        layout: Layout,
    ) -> Self {
        let key_hash = hash(key.as_str().as_bytes());
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Self { key, resource_version, attrs, body, layout, key_hash, id }
    }

    /// What tells it from every other object that this process ever made, others of its key among them.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// A hash of the key: the same for all objects of the key, in every process.
    pub fn key_hash(&self) -> u32 {
        self.key_hash
    }

    /// What it weighs against a byte budget: the body and everything kept beside it, in bytes.
    pub fn weight(&self) -> usize {
        OVERHEAD_BYTES + self.body.len() + self.key.as_str().len() + self.attrs.len()
    }

    /// As GET and WATCH show it in a view.
    pub fn in_view(&self, view: View) -> Splice<'_> {
        Splice::in_view(&self.body, self.layout, view)
    }

    /// As a LIST shows it in a view.
    pub fn list_item(&self, view: View) -> Splice<'_> {
        Splice::list_item(&self.body, self.layout, view)
    }
}

impl Clone for Object {
    fn clone(&self) -> Self {
        Self::new(
            self.key.clone(),
            self.resource_version,
            self.attrs.clone(),
            self.body.clone(),
            self.layout,
        )
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

/// A namespace of up to 63 bytes and a name of the usual length; the longest has 253.
const JOINED_BYTES: usize = 256;
/// FNV-1a, and murmur3's end to spread it over all bits. Whoever chooses names can choose hashes: nothing here depends on their being
/// unlike.
fn hash(bytes: &[u8]) -> u32 {
    let mut hash = bytes
        .iter()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}

/// Of the next object.
static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// What an object costs besides its strings: itself, two reference counts, the body's shared header, its place in the
/// ordered map and the allocator's rounding. Measured generously, since a budget that is too low is kept and one that is too high is not.
const OVERHEAD_BYTES: usize = size_of::<Object>() + 160;

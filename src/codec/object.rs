//! One object as the cache keeps it: the upstream's bytes and the little that was read out of them.

mod key;
mod layout;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

pub use self::key::Key;
pub use self::layout::{Layout, Span};
use crate::api::media_type::View;
use crate::api::resource_version::ResourceVersion;
use crate::codec::attrs::Attrs;
use crate::codec::splice::Splice;

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

//! An object as a cache stores it: the API server's bytes and the few values extracted from them.

mod key;
mod layout;

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;

pub use self::key::Key;
pub use self::layout::{Layout, Span};
use crate::attrs::Attrs;
use crate::managed_fields;
use crate::splice::Splice;
use crate::uid;
use weir_api::media_type::{Encoding, View};
use weir_api::resource_version::ResourceVersion;
use weir_api::selector::shard::{self, ShardField};

/// An immutable object. `Debug` shows no part of the body. A clone is another object with its own
/// id.
pub struct Object {
    /// Its key in the store, which holds its record: the key, the attributes and the body.
    pub key: Key,
    /// Its `metadata.resourceVersion`.
    pub resource_version: ResourceVersion,
    /// The positions of the parts of the body.
    pub layout: Layout,
    /// The offset of the body in the record.
    body_start: u32,
    /// Found when a client first asks for the object without them.
    managed_fields: OnceLock<Span>,
    /// The hash of its uid, once a shard selector needed it; 0 if it is not known.
    uid_hash: AtomicU64,
    key_hash: u32,
    id: u64,
}

impl Object {
    /// Creates an object from its namespace and name and its other parts, which are copied into its
    /// own record: a slice of a list's body would keep the whole list in memory.
    pub fn new(
        names: (&str, &str),
        resource_version: ResourceVersion,
        attrs: Attrs<'_>,
        body: &[u8],
        layout: Layout,
    ) -> Self {
        let key = Key::with_rest(names, [attrs.as_bytes(), body]);
        // Objects are far smaller than 4 GiB.
        let body_start = u32::try_from(key.record().len() - body.len()).unwrap_or(u32::MAX);
        Self::of_record(key, resource_version, layout, body_start)
    }

    fn of_record(
        key: Key,
        resource_version: ResourceVersion,
        layout: Layout,
        body_start: u32,
    ) -> Self {
        Self {
            managed_fields: OnceLock::new(),
            uid_hash: AtomicU64::new(0),
            key_hash: hash(key.as_bytes()),
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            key,
            resource_version,
            layout,
            body_start,
        }
    }

    /// Returns the object in the form of GET and WATCH: in JSON with `kind` and `apiVersion` and
    /// without the trailing newline, in protobuf with its envelope.
    pub fn body(&self) -> &[u8] {
        self.record().get(self.body_start as usize..).unwrap_or_default()
    }

    /// Returns its labels and the values of its kind's selectable fields.
    pub fn attrs(&self) -> Attrs<'_> {
        let encoded = self.record().get(self.key.end()..self.body_start as usize);
        Attrs::new(encoded.unwrap_or_default())
    }

    /// Returns the allocation of which key, attributes and body are parts.
    pub fn record(&self) -> &Arc<[u8]> {
        self.key.record()
    }

    /// Returns a number that no other object of this process has, not even one with the same key.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns a hash of the key, which is the same in every process.
    pub fn key_hash(&self) -> u32 {
        self.key_hash
    }

    /// Returns its `metadata.uid`, which is read from the metadata each time; `None` if it has none
    /// or if it cannot be read.
    pub fn uid(&self) -> Option<Cow<'_, str>> {
        uid::read(self.layout.metadata.slice(self.body()), self.layout.encoding)
    }

    /// Returns the hash by which shard selectors choose it: that of its uid, or of its namespace.
    pub fn shard_hash(&self, field: ShardField) -> u64 {
        if field == ShardField::Namespace {
            return shard::hash(self.key.namespace().as_bytes());
        }
        if self.has_shard_hash(field) {
            return self.uid_hash.load(Ordering::Relaxed);
        }
        let hash = shard::hash(self.uid().unwrap_or_default().as_bytes());
        self.uid_hash.store(hash, Ordering::Relaxed);
        hash
    }

    /// Whether [`shard_hash`](Self::shard_hash) need not read the metadata.
    pub fn has_shard_hash(&self, field: ShardField) -> bool {
        field == ShardField::Namespace || self.uid_hash.load(Ordering::Relaxed) != 0
    }

    /// Returns its weight for a byte budget, in bytes: the body and everything stored with it.
    pub fn weight(&self) -> usize {
        OVERHEAD_BYTES + self.record().len()
    }

    /// Returns the object in a view, in the form of GET and WATCH.
    pub fn in_view(&self, view: View) -> Splice<'_> {
        Splice::in_view(self.body(), self.layout, view, self.dropped(view))
    }

    /// Returns the object in a view, in the form of a LIST.
    pub fn list_item(&self, view: View) -> Splice<'_> {
        Splice::list_item(self.body(), self.layout, view, self.dropped(view))
    }

    /// Returns whether kube-apiserver takes the object for a list, and fails to answer a GET of it.
    pub fn resembles_list(&self) -> bool {
        has_root_items(self.body(), self.layout)
    }

    /// Returns the part of the body that a view drops; empty if it shows everything.
    pub fn dropped(&self, view: View) -> Span {
        if !view.drops_managed_fields() {
            return Span::default();
        }
        *self.managed_fields.get_or_init(|| managed_fields::find(self.body(), self.layout))
    }
}

impl Clone for Object {
    fn clone(&self) -> Self {
        Self::of_record(self.key.clone(), self.resource_version, self.layout, self.body_start)
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

/// FNV-1a, with murmur3's finalizer to distribute it over all bits. Not collision resistant: users
/// choose names. Collisions only affect the boundaries of compressed runs.
fn hash(bytes: &[u8]) -> u32 {
    let mut hash = bytes
        .iter()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// The cost of an object besides its record: itself, the reference counts of both, its node in the
/// ordered map, and the allocator's rounding. An overestimate, as measured: overestimating wastes
/// some budget, underestimating exceeds it.
const OVERHEAD_BYTES: usize = size_of::<Object>() + 160;

/// Whether the root field `items` of an object is an array, for which kube-apiserver takes a custom
/// resource for a list (`docs/semantics.md` §4.1).
fn has_root_items(body: &[u8], layout: Layout) -> bool {
    #[derive(Deserialize)]
    struct Root<'a> {
        #[serde(borrow)]
        items: Option<&'a RawValue>,
    }
    // The keys of a custom resource are in order, so that the field is before the metadata.
    let before_metadata = body.get(..layout.metadata.start as usize).unwrap_or_default();
    if layout.encoding != Encoding::Json || memmem::find(before_metadata, ROOT_ITEMS).is_none() {
        return false;
    }
    match serde_json::from_slice::<Root<'_>>(body) {
        Ok(root) => root.items.is_some_and(|items| items.get().starts_with('[')),
        Err(_) => true,
    }
}

const ROOT_ITEMS: &[u8] = br#""items":["#;

//! The contents of a list that was read, and the metadata of one to be written.

use crate::ingest::{IngestError, Ingested};
use crate::object::Object;
use crate::unreadable::UnreadableObject;
use weir_api::resource_version::ResourceVersion;

/// Why reading a list failed. Never contains any of its bytes.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ListError {
    /// The bytes are not a list, or an item is not an object.
    #[error(transparent)]
    Ingest(#[from] IngestError),
    /// An item, or the part around the items, is longer than the limit, in bytes.
    #[error("the upstream sent a list item of more than {0} bytes")]
    TooLong(usize),
}

/// The objects of a list.
#[derive(Debug, Default)]
pub struct ListedObjects {
    /// Those that can be read, each in its own allocation.
    pub objects: Vec<Object>,
    /// Those that cannot.
    pub unreadable: Vec<UnreadableObject>,
}

impl ListedObjects {
    /// Adds an object.
    pub fn push(&mut self, object: Ingested) {
        match object {
            Ingested::Object(object) => self.objects.push(object),
            Ingested::Unreadable(object) => self.unreadable.push(object),
        }
    }

    /// Returns all objects, those that can be read first.
    pub fn into_items(self) -> impl Iterator<Item = Ingested> {
        let unreadable = self.unreadable.into_iter().map(Ingested::Unreadable);
        self.objects.into_iter().map(Ingested::Object).chain(unreadable)
    }
}

impl From<Vec<Object>> for ListedObjects {
    fn from(objects: Vec<Object>) -> Self {
        Self { objects, unreadable: Vec::new() }
    }
}

/// A list's metadata and its objects.
#[derive(Debug)]
pub struct ListPage {
    /// The list's resourceVersion.
    pub resource_version: ResourceVersion,
    /// The token for the next page; empty on the last.
    pub continue_token: String,
    /// How many objects follow this page, if the API server says so.
    pub remaining_item_count: Option<u64>,
    /// The objects that can be read, each in its own allocation.
    pub objects: Vec<Object>,
    /// The objects that cannot be read.
    pub unreadable: Vec<UnreadableObject>,
}

impl ListPage {
    /// Returns the number of objects of the whole collection, if this is the first page of a list
    /// without selectors.
    pub fn total(&self) -> Option<u64> {
        let remaining = if self.continue_token.is_empty() { 0 } else { self.remaining_item_count? };
        let here = self.objects.len() + self.unreadable.len();
        Some(remaining.saturating_add(here as u64))
    }

    /// Returns the objects.
    pub fn into_objects(self) -> ListedObjects {
        ListedObjects { objects: self.objects, unreadable: self.unreadable }
    }
}

/// The metadata of a list (`docs/semantics.md` §3.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListMeta {
    /// The list's resourceVersion.
    pub resource_version: ResourceVersion,
    /// The token for the next page; empty on the last.
    pub continue_token: String,
    /// How many objects follow this page; present only with a token and without selectors.
    pub remaining_item_count: Option<u64>,
    /// The shard selector of the list, as the API server writes it; empty for none.
    pub shard_selector: String,
}

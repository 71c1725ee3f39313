//! The contents of a list that was read, and the metadata of one to be written.

use crate::api::resource_version::ResourceVersion;
use crate::codec::object::Object;

/// A list's metadata and its objects.
#[derive(Debug)]
pub struct ListPage {
    /// The list's resourceVersion.
    pub resource_version: ResourceVersion,
    /// The token for the next page; empty on the last.
    pub continue_token: String,
    /// How many objects follow this page, if the API server says so.
    pub remaining_item_count: Option<u64>,
    /// The objects, each in its own allocation.
    pub objects: Vec<Object>,
}

impl ListPage {
    /// Returns the number of objects of the whole collection, if this is the first page of a list
    /// without selectors.
    pub fn total(&self) -> Option<u64> {
        let remaining = if self.continue_token.is_empty() { 0 } else { self.remaining_item_count? };
        Some(remaining.saturating_add(self.objects.len() as u64))
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
}

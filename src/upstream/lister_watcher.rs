//! The pair of upstream calls that a reflector uses (client-go's `ListerWatcher`).

mod http;
mod stream;
#[cfg(test)]
mod tests;

use std::future::Future;

use bytes::Bytes;

pub use self::http::HttpListWatch;
pub use self::stream::HttpWatch;
use crate::api::resource_version::ResourceVersion;
use crate::codec::list::ListPage;
use crate::codec::object::Object;
use crate::upstream::error::UpstreamError;

/// One page of a list.
#[derive(Clone, Debug, Default)]
pub struct ListRequest {
    /// Page size; `None` for no limit.
    pub limit: Option<u32>,
    /// The continue token of the page before; empty on the first.
    pub continue_token: String,
    /// `resourceVersion`; `None` for a consistent list.
    pub resource_version: Option<ResourceVersion>,
    /// `resourceVersionMatch`; empty for none.
    pub resource_version_match: &'static str,
}

impl ListRequest {
    /// All at once: the state as it is at this resourceVersion or later, or a consistent one.
    pub fn not_older(resource_version: Option<ResourceVersion>) -> Self {
        let resource_version_match = if resource_version.is_some() { "NotOlderThan" } else { "" };
        Self { resource_version, resource_version_match, ..Self::default() }
    }
}

/// A watch.
#[derive(Clone, Debug, Default)]
pub struct WatchRequest {
    /// `resourceVersion`; `None` for unset.
    pub resource_version: Option<ResourceVersion>,
    /// Ask for a watch-list: `sendInitialEvents=true&resourceVersionMatch=NotOlderThan`.
    pub send_initial_events: bool,
    /// Ask for objects of which there are none, by a label selector: what is wanted is how the upstream begins a watch.
    pub of_nothing: bool,
    /// `timeoutSeconds`.
    pub timeout_seconds: u32,
}

/// One event of an upstream watch, ingested.
#[derive(Debug)]
pub enum UpstreamEvent {
    /// ADDED or MODIFIED.
    Upsert(Object),
    /// DELETED.
    Delete(Object),
    /// BOOKMARK.
    Bookmark {
        /// Its resourceVersion.
        resource_version: ResourceVersion,
        /// Whether it ends the initial events.
        initial_events_end: bool,
        /// Its object's bytes, to learn the template from; empty where it is a list that ends.
        object: Bytes,
    },
    /// ERROR: the Status it carried, as an [`UpstreamError::Status`].
    Error(UpstreamError),
}

/// A running upstream watch. Dropping it cancels it.
pub trait WatchStream: Send {
    /// The next events, all that are there (at least one); `None` at a clean end. Cancel safe.
    fn next(
        &mut self,
    ) -> impl Future<Output = Result<Option<Vec<UpstreamEvent>>, UpstreamError>> + Send;
}

/// What a reflector needs of an upstream, for one resource, representation and scope. A trait, so that reflectors
/// are tested against scripts.
pub trait ListWatch: Send + Sync + 'static {
    /// The watch's type.
    type Watch: WatchStream;

    /// Fetches one page.
    fn list(
        &self,
        request: ListRequest,
    ) -> impl Future<Output = Result<ListPage, UpstreamError>> + Send;

    /// Whether the upstream sends a list without pages object by object, and sooner than a watch-list.
    fn streams_lists(&self) -> bool {
        false
    }

    /// Asks for such a list; resolves when the response's head is there. What it gives is like the initial events of a watch, and ends with them.
    fn stream_list(
        &self,
        request: ListRequest,
    ) -> impl Future<Output = Result<Self::Watch, UpstreamError>> + Send;

    /// Opens a watch; resolves when the response's head is there.
    fn watch(
        &self,
        request: WatchRequest,
    ) -> impl Future<Output = Result<Self::Watch, UpstreamError>> + Send;

    /// The values of the `Warning` headers of the last answer, as they came: served lists and watches must carry
    /// them too (semantics.md §8.8).
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}

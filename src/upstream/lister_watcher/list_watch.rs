//! The boundary between a cache and the upstream, with the requests and events.

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::HeaderValue;
use tokio::time::Instant;

use crate::api::resource_version::ResourceVersion;
use crate::codec::ingest::Ingested;
use crate::codec::list::ListPage;
use crate::codec::object::{Key, Object};
use crate::codec::unreadable::UnreadableObject;
use crate::upstream::error::UpstreamError;

/// The request of a list or of a page of it.
#[derive(Clone, Debug, Default)]
pub struct ListRequest {
    /// Page size; `None` for no limit.
    pub limit: Option<u32>,
    /// The continue token of the previous page; empty for the first page.
    pub continue_token: String,
    /// `resourceVersion`; `None` for a consistent list.
    pub resource_version: Option<ResourceVersion>,
    /// `resourceVersionMatch`; empty for none.
    pub resource_version_match: &'static str,
}

impl ListRequest {
    /// Requests the whole list: the state at `resource_version` or later, or a consistent list.
    pub fn not_older(resource_version: Option<ResourceVersion>) -> Self {
        let resource_version_match = if resource_version.is_some() { "NotOlderThan" } else { "" };
        Self { resource_version, resource_version_match, ..Self::default() }
    }
}

/// The request of a part of a collection at exactly one resourceVersion, to check a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExactRequest {
    /// The resourceVersion.
    pub at: ResourceVersion,
    /// The part of the collection.
    pub part: ExactPart,
    /// Whether to request whole objects, in the representation of the cache. Otherwise only their
    /// metadata is requested, in protobuf.
    pub is_whole: bool,
    /// The API server to ask.
    pub server: ExactServer,
}

/// The API server of an [`ExactRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExactServer {
    /// That of the lists and watches of the cache.
    Own,
    /// Another one, if several are known.
    OtherIfKnown,
    /// Another one, or any one over a new connection if there is one address, behind which there
    /// may be several.
    Elsewhere,
}

/// A part of a collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExactPart {
    /// A page.
    Page {
        /// The key after which it begins; `None` for the first page.
        after: Option<Key>,
        /// Its size.
        limit: u32,
    },
    /// One object. The API server reads it from etcd itself, not from its watch cache.
    Object(Key),
}

/// The request of a watch.
#[derive(Clone, Debug, Default)]
pub struct WatchRequest {
    /// `resourceVersion`; `None` for unset.
    pub resource_version: Option<ResourceVersion>,
    /// Whether to request a watch-list: `sendInitialEvents=true&resourceVersionMatch=NotOlderThan`.
    pub send_initial_events: bool,
    /// Whether to add a label selector that no object matches. The caller wants only the bookmarks
    /// of the watch.
    pub match_nothing: bool,
    /// `timeoutSeconds`.
    pub timeout_seconds: u32,
    /// A resourceVersion that the watch cache of the API server which sends the watch must reach
    /// first. A request on the same connection makes it catch up.
    pub after_reaching: Option<ResourceVersion>,
}

/// An event of an upstream watch, with its object ingested.
#[derive(Debug)]
pub enum UpstreamEvent {
    /// ADDED or MODIFIED.
    Upsert(Object),
    /// DELETED.
    Delete(Object),
    /// ADDED, MODIFIED or DELETED of an object that cannot be read.
    Unreadable {
        /// The identity and the resourceVersion of the object.
        object: UnreadableObject,
        /// Whether it was deleted.
        is_deletion: bool,
    },
    /// BOOKMARK.
    Bookmark {
        /// Its resourceVersion.
        resource_version: ResourceVersion,
        /// Whether the bookmark ends the initial events.
        initial_events_end: bool,
        /// The bytes of its object, which serve as the template of Weir's own bookmarks; empty at
        /// the end of a list.
        object: Bytes,
    },
    /// ERROR: its Status, as an [`UpstreamError::Status`].
    Error(UpstreamError),
}

impl UpstreamEvent {
    /// Returns the event that adds or changes an object.
    pub(crate) fn upsert(object: Ingested) -> Self {
        match object {
            Ingested::Object(object) => Self::Upsert(object),
            Ingested::Unreadable(object) => Self::Unreadable { object, is_deletion: false },
        }
    }

    /// Returns the event that deletes an object.
    pub(crate) fn delete(object: Ingested) -> Self {
        match object {
            Ingested::Object(object) => Self::Delete(object),
            Ingested::Unreadable(object) => Self::Unreadable { object, is_deletion: true },
        }
    }
}

/// The answer of an upstream call.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, UpstreamError>>;

/// A running upstream watch. Dropping the stream cancels the watch.
pub trait WatchStream: Send {
    /// Returns all events that have arrived, at least one; `None` at a clean end. Cancel safe.
    fn next(&mut self) -> Answer<'_, Option<Vec<UpstreamEvent>>>;

    /// Returns when the first of the events that were returned last was read from the connection;
    /// `None` if that is unknown.
    fn received(&self) -> Option<Instant> {
        None
    }

    /// Returns whether the upstream compresses the watch; `None` if it was not asked for.
    fn is_compressed(&self) -> Option<bool> {
        None
    }
}

/// The upstream calls of a cache, for one resource, representation and scope. A trait, so that
/// tests can replace the upstream by a script; what a script does not have fails.
pub trait ListWatch: Send + Sync + 'static {
    /// Fetches a list or one page of it.
    fn list(&self, _request: ListRequest) -> Answer<'_, ListPage> {
        unsupported()
    }

    /// Fetches a list from other API servers than the one that lists and watches use, or over a new
    /// connection if there is one address, behind which there may be several. Returns the newest
    /// one of several lists.
    fn list_elsewhere(&self, request: ListRequest) -> Answer<'_, ListPage> {
        self.list(request)
    }

    /// Fetches a part of the collection at exactly one resourceVersion. If that fails, a check
    /// proves nothing.
    fn exact(&self, _request: ExactRequest) -> Answer<'_, ListPage> {
        unsupported()
    }

    /// Returns the uid of the namespace kube-system, over a new connection; `None` if Weir's
    /// identity may not read it.
    fn cluster_uid(&self) -> Answer<'_, Option<String>> {
        unsupported()
    }

    /// Returns the number of connections to the upstream that were ever opened, without those of
    /// [`Self::cluster_uid`].
    fn connections_opened(&self) -> u64 {
        0
    }

    /// Returns whether the API server itself answers for the resource, as of this call. If not, an
    /// aggregated API server may have sent what was received, and the cache is about to end.
    fn is_local(&self) -> BoxFuture<'_, bool> {
        std::future::ready(true).boxed()
    }

    /// Returns whether the upstream sends a list without pages object by object, and faster than a
    /// watch-list.
    fn streams_lists(&self) -> bool {
        false
    }

    /// Starts such a list; resolves when the response's head has arrived. The stream has the form
    /// of a watch's initial events, and ends after them.
    fn stream_list(&self, _request: ListRequest) -> Answer<'_, Box<dyn WatchStream>> {
        unsupported()
    }

    /// Starts a watch; resolves when the response's head has arrived.
    fn watch(&self, _request: WatchRequest) -> Answer<'_, Box<dyn WatchStream>> {
        unsupported()
    }

    /// Returns whether the API server that sent the last watch has reached `resource_version`, for
    /// which it has some seconds. Asks it only if the watch before came from another one.
    fn has_reached(&self, _resource_version: ResourceVersion) -> Answer<'_, bool> {
        std::future::ready(Ok(true)).boxed()
    }

    /// Makes lists and watches use another API server than the last one for a while. Returns
    /// whether there is one.
    fn leave_server(&self) -> bool {
        false
    }

    /// Makes lists and watches use another API server than that of the last watch for a while.
    /// Returns whether there is one.
    fn leave_server_of_watch(&self) -> bool {
        self.leave_server()
    }

    /// Returns whether Weir's identity may list and watch the resource, by access reviews.
    fn is_allowed(&self) -> Answer<'_, bool> {
        std::future::ready(Ok(true)).boxed()
    }

    /// Returns the values of the `Warning` headers of the last response. Lists and watches that are
    /// served from the cache must have them, too (`docs/semantics.md` §8.8).
    fn warnings(&self) -> Vec<HeaderValue> {
        Vec::new()
    }
}

fn unsupported<T: Send + 'static>() -> Answer<'static, T> {
    let error = UpstreamError::Request("the call is not supported".to_owned());
    std::future::ready(Err(error)).boxed()
}

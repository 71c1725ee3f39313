//! A probe: the request that reads the upstream's present resourceVersion, and with it the number
//! of objects and the first of them.

use std::time::Duration;

use crate::codec::list::ListPage;
use crate::upstream::bounded::with_timeout;
use crate::upstream::error::UpstreamError;
use crate::upstream::lister_watcher::{ListRequest, ListWatch};

/// Returns the request of a probe: a consistent `LIST limit=1`.
pub(crate) fn request() -> ListRequest {
    ListRequest { limit: Some(1), ..ListRequest::default() }
}

/// Sends a probe. The resourceVersion of its response is at least that of every write that was
/// acknowledged before.
pub(crate) async fn probe(upstream: &dyn ListWatch) -> Result<ListPage, UpstreamError> {
    with_timeout(RESPONSE_TIMEOUT, upstream.list(request())).await
}

/// The longest wait for a page of a list, or for the start of a streamed list or watch. The
/// upstream ends a list after 60 s itself (`--request-timeout`), so a request that takes longer is
/// stuck.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(90);

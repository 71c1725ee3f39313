//! A probe: the request that reads the upstream's present resourceVersion, and with it the number
//! of objects.

use std::time::Duration;

use crate::api::resource_version::ResourceVersion;
use crate::upstream::bounded::with_timeout;
use crate::upstream::error::UpstreamError;
use crate::upstream::lister_watcher::{ListRequest, ListWatch};

/// The response to a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Probed {
    /// The list's resourceVersion, which is at least that of every write acknowledged before the
    /// probe was sent.
    pub(crate) resource_version: ResourceVersion,
    /// The number of objects at that resourceVersion, if the upstream says it.
    pub(crate) objects: Option<u64>,
}

/// Returns the request of a probe: a consistent `LIST limit=1`.
pub(crate) fn request() -> ListRequest {
    ListRequest { limit: Some(1), ..ListRequest::default() }
}

/// Sends a probe.
pub(crate) async fn probe(upstream: &dyn ListWatch) -> Result<Probed, UpstreamError> {
    let page = with_timeout(RESPONSE_TIMEOUT, upstream.list(request())).await?;
    Ok(Probed { resource_version: page.resource_version, objects: page.total() })
}

/// The longest wait for a page of a list, or for the start of a streamed list or watch. The
/// upstream ends a list after 60 s itself (`--request-timeout`), so a request that takes longer is
/// stuck.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(90);

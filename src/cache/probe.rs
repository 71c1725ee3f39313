//! A probe: the request that reads the upstream's present resourceVersion.

use std::time::Duration;

use crate::api::resource_version::ResourceVersion;
use crate::upstream::bounded::with_timeout;
use crate::upstream::error::UpstreamError;
use crate::upstream::lister_watcher::{ListRequest, ListWatch};

/// Sends a consistent `LIST limit=1` and returns its resourceVersion, which is at least that of
/// every write acknowledged before the call.
pub(crate) async fn probe<L: ListWatch>(upstream: &L) -> Result<ResourceVersion, UpstreamError> {
    let request = ListRequest { limit: Some(1), ..ListRequest::default() };
    let page = with_timeout(RESPONSE_TIMEOUT, upstream.list(request)).await?;
    Ok(page.resource_version)
}

/// The longest wait for a page of a list, or for the start of a streamed list or watch. The
/// upstream ends a list after 60 s itself (`--request-timeout`), so a request that takes longer is
/// stuck.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(90);

//! Parts of the responses to lists.

use http::{HeaderMap, HeaderValue};

use crate::codec::list::ListPage;
use crate::upstream::error::UpstreamError;

/// Returns the newest of several lists. An API server that does not answer does not count, unless
/// none does.
pub(super) fn newest(
    lists: Vec<Result<ListPage, UpstreamError>>,
) -> Result<ListPage, UpstreamError> {
    let mut failure = None;
    let answered = lists.into_iter().filter_map(|list| match list {
        Ok(list) => Some(list),
        Err(error) => {
            failure = Some(error);
            None
        }
    });
    let newest = answered.max_by_key(|list| list.resource_version);
    newest.ok_or_else(|| failure.unwrap_or_else(|| UpstreamError::Lost("no answer".to_owned())))
}

/// Returns the values of the `Warning` headers, as the API server sent them: a CRD's author may
/// have written its `deprecationWarning` in any language.
pub(super) fn warnings_of(headers: &HeaderMap) -> Vec<HeaderValue> {
    headers.get_all(http::header::WARNING).iter().cloned().collect()
}

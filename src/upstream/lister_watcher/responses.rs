//! Parts of the responses to lists.

use http::HeaderMap;

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

/// Returns the values of the `Warning` headers.
pub(super) fn warnings_of(headers: &HeaderMap) -> Vec<String> {
    let mut warnings = Vec::new();
    for value in headers.get_all(http::header::WARNING) {
        if let Ok(text) = value.to_str()
            && warnings.len() < WARNINGS_MAX
            && !warnings.iter().any(|known| known == text)
        {
            warnings.push(text.to_owned());
        }
    }
    warnings
}

/// The most warnings that are kept of a response. The upstream sends one for a deprecated API.
const WARNINGS_MAX: usize = 16;

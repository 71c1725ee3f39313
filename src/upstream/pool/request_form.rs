//! The two forms of a request: with its authority in the URI, and in `Host`.

use http::header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::uri::PathAndQuery;
use http::{HeaderValue, Request, Uri, Version};
use http_body::Body as _;

use crate::upstream::request_body::RequestBody;

/// Converts a request for HTTP/2, which has the authority in a pseudo-header.
pub(super) fn http2_form(mut request: Request<RequestBody>) -> Request<RequestBody> {
    *request.version_mut() = Version::HTTP_2;
    request.headers_mut().remove(HOST);
    request
}

/// Converts a request for HTTP/1.1, which has only the path in the request line, and the authority
/// in `Host`.
pub(super) fn http1_form(mut request: Request<RequestBody>) -> Request<RequestBody> {
    *request.version_mut() = Version::HTTP_11;
    let uri = std::mem::take(request.uri_mut()).into_parts();
    if let Some(authority) = &uri.authority
        && let Ok(host) = HeaderValue::try_from(authority.as_str())
    {
        request.headers_mut().insert(HOST, host);
    }
    let path = uri.path_and_query.unwrap_or_else(|| PathAndQuery::from_static("/"));
    *request.uri_mut() = Uri::from(path);
    // hyper sends a GET or HEAD without its body, unless the headers say that it has one.
    let body = request.body();
    let has_length = request.headers().contains_key(CONTENT_LENGTH);
    if !body.is_end_stream() && body.size_hint().exact().is_none() && !has_length {
        request.headers_mut().insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    request
}

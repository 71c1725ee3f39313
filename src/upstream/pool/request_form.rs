//! The two forms of a request: with its authority in the URI, and in `Host`.

use http::header::HOST;
use http::uri::PathAndQuery;
use http::{HeaderValue, Request, Uri, Version};

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
    request
}

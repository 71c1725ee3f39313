//! The responses of reads from a cache: their heads, and the compression of bodies in memory.

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, VARY};
use http::{HeaderValue, Response};

use crate::api::media_type;
use crate::cache::handle::CacheHandle;
use crate::codec::gzip;
use crate::server::cached::compress;
use crate::server::cached::read::CachedRead;
use crate::server::delegate::Reason;
use crate::server::http::body::Body;
use crate::server::http::response;

/// Returns a 200 with `body`, compressed if it is long and the client accepts gzip.
pub(super) async fn respond(
    read: &CachedRead<'_>,
    handle: &CacheHandle,
    body: Vec<Bytes>,
) -> Result<Response<Body>, Reason> {
    let length: usize = body.iter().map(Bytes::len).sum();
    if length > gzip::THRESHOLD_BYTES && accepts_gzip(read) {
        return Ok(compressed(read, handle, compress::compress(body).await?));
    }
    Ok(plain(read, handle, Body::chunks(body)))
}

/// Whether the client accepts gzip.
pub(super) fn accepts_gzip(read: &CachedRead<'_>) -> bool {
    media_type::accepts_gzip(&read.context.parts.headers)
}

/// Returns a 200 with an uncompressed body.
pub(super) fn plain(read: &CachedRead<'_>, handle: &CacheHandle, body: Body) -> Response<Body> {
    let content_type = read.target.form.encoding.content_type(false);
    response::ok(&read.context.parts.headers, content_type, body, &handle.warnings())
}

/// Returns a 200 whose body is `member`, a gzip member.
pub(super) fn compressed(
    read: &CachedRead<'_>,
    handle: &CacheHandle,
    member: Vec<Bytes>,
) -> Response<Body> {
    let mut response = plain(read, handle, Body::chunks(member));
    response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    response.headers_mut().insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    response
}

//! The responses of reads from a cache: their heads, and whether their bodies are compressed.

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, VARY};
use http::{HeaderValue, Response};

use crate::api::media_type::{self, ErrorForm};
use crate::api::resource::Shape;
use crate::api::status::Status;
use crate::cache::handle::CacheHandle;
use crate::cache::refusal::Refusal;
use crate::codec::gzip;
use crate::server::cached::read::CachedRead;
use crate::server::delegate::Reason;
use crate::server::http::body::Body;
use crate::server::http::headers::{DROPPED_HEADER, FILTERED_HEADER};
use crate::server::http::rendered::{Rendered, Source};
use crate::server::http::response;

/// Returns a 200 with `body`, compressed if it is long and the client accepts gzip. It is indented
/// if the client asks for that.
pub(super) fn respond(
    read: &CachedRead<'_>,
    handle: &CacheHandle,
    body: Vec<Bytes>,
) -> Result<Response<Body>, Reason> {
    let length: usize = body.iter().map(Bytes::len).sum();
    let is_compressed = length > gzip::THRESHOLD_BYTES && accepts_gzip(read);
    if read.target.form.pretty || is_compressed {
        return rendered(read, handle, body.into());
    }
    Ok(plain(read, handle, Body::chunks(body)))
}

/// Works like [`respond`] for a body that is rendered while it is sent.
pub(super) fn rendered(
    read: &CachedRead<'_>,
    handle: &CacheHandle,
    source: Source,
) -> Result<Response<Body>, Reason> {
    let length = source.len();
    let mut body = Rendered::new(source, read.target.form.pretty, read.held.clone());
    // A compressor takes much memory and time. When either is short, nothing is compressed.
    if accepts_gzip(read) && !read.held.is_full() && !read.services.overload.is_saving() {
        // An indented body is longer than its compact form.
        let is_long = length > gzip::THRESHOLD_BYTES
            || body.render(gzip::THRESHOLD_BYTES + 1).map_err(|_| LOST)? > gzip::THRESHOLD_BYTES;
        if is_long {
            return Ok(compressed(read, handle, Body::rendered(body.compressed())));
        }
    }
    body.render(1).map_err(|_| LOST)?;
    Ok(plain(read, handle, Body::rendered(body)))
}

pub(super) fn accepts_gzip(read: &CachedRead<'_>) -> bool {
    media_type::accepts_gzip(&read.context.parts.headers)
}

/// Returns a 200 with an uncompressed body.
pub(super) fn plain(read: &CachedRead<'_>, handle: &CacheHandle, body: Body) -> Response<Body> {
    let content_type = read.target.form.encoding.content_type(false);
    let headers = &read.context.parts.headers;
    let mut response = response::ok(headers, content_type, body, &handle.warnings());
    name_dropped(read, &mut response);
    describe(read, handle, &mut response);
    response
}

/// Notes the cache for a client that asks why, and shows its age while it does not follow.
pub(super) fn describe(read: &CachedRead<'_>, handle: &CacheHandle, response: &mut Response<Body>) {
    read.explain(handle);
    if let Some(age) = read.shown_age(handle) {
        response.extensions_mut().insert(age);
    }
}

/// Names what a response and its objects lack, by headers.
pub(super) fn name_dropped(read: &CachedRead<'_>, response: &mut Response<Body>) {
    if read.target.form.view.drops_managed_fields() {
        let dropped = HeaderValue::from_static(media_type::MANAGED_FIELDS);
        response.headers_mut().insert(DROPPED_HEADER, dropped);
    }
    if read.filtered.is_some() {
        response.headers_mut().insert(FILTERED_HEADER, HeaderValue::from_static("namespaces"));
    }
}

/// Returns the API server's 404 for the object of a GET. The reason to forward the request is a
/// name whose error only the API server writes, an error in YAML, or one in protobuf for a custom
/// resource, which has no objects in protobuf.
pub(super) fn not_found(
    read: &CachedRead<'_>,
    handle: &CacheHandle,
) -> Result<Response<Body>, Reason> {
    let (headers, query) = (&read.context.parts.headers, &read.context.info.query);
    let is_odd = match media_type::error_form(headers, query) {
        ErrorForm::Json { .. } => false,
        ErrorForm::Yaml => true,
        ErrorForm::Protobuf => read.resource.shape == Shape::Custom,
    };
    let gvr = &read.resource.gvr;
    let status = Status::not_found(&gvr.group, &gvr.resource, &read.request.name);
    let status = status.filter(|_| !is_odd).ok_or(Reason::NotFound)?;
    let mut response = response::error_response(headers, query, &status);
    response::add_warnings(response.headers_mut(), &handle.warnings());
    describe(read, handle, &mut response);
    Ok(response)
}

pub(super) fn compressed(
    read: &CachedRead<'_>,
    handle: &CacheHandle,
    member: Body,
) -> Response<Body> {
    let mut response = plain(read, handle, member);
    set_gzip_headers(&mut response);
    response
}

/// Adds the headers of a body that is compressed because its client accepts that.
pub(super) fn set_gzip_headers(response: &mut Response<Body>) {
    response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    response.headers_mut().insert(VARY, HeaderValue::from_static("Accept-Encoding"));
}

/// The reason if the state of a list was lost before its first piece: the upstream answers.
const LOST: Reason = Reason::Refused(Refusal::NotReady);

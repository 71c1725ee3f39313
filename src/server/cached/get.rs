//! GET from the cache (`docs/semantics.md` §4.1, §4.2). A GET never waits for a cold cache
//! (`docs/decisions/herds.md`).
//!
//! An object that the cache does not hold is answered with 404, too. Another API server, whose
//! watch cache lags, may still show an object whose deletion this cache has shown, and its client
//! would go back in time (`docs/decisions/shown-states.md`).

use bytes::Bytes;
use http::Response;

use crate::api::media_type::{Encoding, Form, View};
use crate::api::resource::Shape;
use crate::cache::handle::CacheHandle;
use crate::cache::refusal::Refusal;
use crate::codec::object::{Key, Object};
use crate::codec::rope::share;
use crate::server::cached::read::CachedRead;
use crate::server::cached::respond::{not_found, respond};
use crate::server::delegate::{Freshness, Reason};
use crate::server::http::body::Body;

/// Returns the response, or the reason to forward the request.
///
/// A cold cache is started but not waited for: the wait would cost the client more than one object
/// costs the upstream.
pub(crate) async fn serve(
    read: &CachedRead<'_>,
    freshness: Freshness,
) -> Result<Response<Body>, Reason> {
    let handle = read.cache().await?;
    let newest = || handle.newest_state().ok_or(Reason::Refused(Refusal::NotReady));
    if handle.cached_resource().gate.is_behind() {
        return Err(Reason::Refused(Refusal::NotReady));
    }
    if freshness != Freshness::Any {
        newest()?;
        read.wait_until_fresh(&handle, freshness).await?;
    }
    let state = newest()?;
    let namespace = read.target.filter.namespace.as_deref().unwrap_or_default();
    let name = &read.request.name;
    match state.find(namespace, name) {
        Some(object) => respond_with(read, &handle, &object),
        None if state.unreadable().may_have(&Key::new(namespace, name)) => Err(Reason::Unreadable),
        // Only the upstream knows whether it exists by now.
        None if handle.failing_for().is_some() => Err(Reason::Refused(Refusal::NotFresh)),
        None => not_found(read, &handle),
    }
}

pub(super) fn respond_with(
    read: &CachedRead<'_>,
    handle: &CacheHandle,
    object: &Object,
) -> Result<Response<Body>, Reason> {
    // No built-in kind has a field `items` at its root.
    if read.resource.shape == Shape::Custom && object.resembles_list() {
        return Err(Reason::Form);
    }
    let Form { encoding, view, .. } = read.target.form;
    let mut body = Vec::with_capacity(4);
    match view {
        View::Full => body.push(share(object.record(), object.body())),
        View::Metadata | View::MetadataWithoutManagers => {
            body.push(read.held.hold(object.in_view(view).to_vec()));
        }
        View::FullWithoutManagers => {
            let splice = object.in_view(view);
            if !splice.head().is_empty() {
                body.push(read.held.hold(splice.head().to_vec()));
            }
            let parts = splice.object_parts().into_iter().filter(|part| !part.is_empty());
            body.extend(parts.map(|part| share(object.record(), part)));
        }
    }
    if encoding == Encoding::Json {
        body.push(Bytes::from_static(b"\n"));
    }
    read.context.metrics.dropped(object.dropped(view).length as usize);
    respond(read, handle, body)
}

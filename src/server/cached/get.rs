//! GET from the cache (semantics.md §4.1). A missing object is the upstream's 404 to word.

use bytes::Bytes;
use http::Response;

use crate::api::media_type::{Encoding, Form, View};
use crate::cache::refusal::Refusal;
use crate::codec::object::Key;
use crate::codec::pretty;
use crate::server::cached::list::respond;
use crate::server::delegate::{Freshness, Reason};
use crate::server::http::response::Body;
use crate::server::router::Read;

/// Answers, or tells why not.
///
/// A cold cache is started but not waited for: one object costs the upstream less than the wait costs the client.
pub(crate) async fn serve(read: &Read<'_>, freshness: Freshness) -> Result<Response<Body>, Reason> {
    let request = read.request;
    let namespace = read.target.filter.namespace.as_deref().unwrap_or_default();
    let handle = read
        .registry
        .get(&request.gvr, namespace, read.representation())
        .await
        .map_err(Reason::Refused)?;
    let handle = read.check(handle)?;
    if handle.cache().state().is_none() {
        return Err(Reason::Refused(Refusal::NotReady));
    }
    read.wait_until(&handle, freshness).await?;
    let state = handle.cache().state().ok_or(Reason::Refused(Refusal::NotReady))?;
    let object = state.get(&Key::new(namespace, &request.name)).ok_or(Reason::NotFound)?;
    let Form { encoding, view, pretty } = read.target.form;
    let shown = match view {
        View::Full => object.body.clone(),
        View::Metadata => object.in_view(view).to_vec().into(),
    };
    let body = match encoding {
        Encoding::Protobuf => vec![shown],
        Encoding::Json if pretty => vec![Bytes::from(pretty::indent(&shown))],
        Encoding::Json => vec![shown, Bytes::from_static(b"\n")],
    };
    respond(read, &handle, body).await
}

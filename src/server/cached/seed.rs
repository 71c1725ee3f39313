//! The list that fills the cache of another Weir (`docs/decisions/seeding-from-siblings.md`).
//!
//! It is an ordinary list of a whole collection, with a header that describes it. The client is
//! authenticated and authorized as for any list. Instead of being forwarded, a request that no
//! cache can answer is refused: the API server is asked by the one that needs it.

use std::sync::Arc;

use http::{HeaderValue, Response, StatusCode};

use crate::api::resource::Representation;
use crate::api::seed::{CODEC_VERSION, SEED_HEADER, SeedManifest, SeedRequest};
use crate::cache::core::watch_cache::State;
use crate::cache::registry::seed_refusal::SeedRefusal;
use crate::cache::registry::seeding::SeedSource;
use crate::cache::seed::digest::digest;
use crate::server::cached::list::{self, encode_plain};
use crate::server::cached::page::select;
use crate::server::cached::read::CachedRead;
use crate::server::cached::respond::plain;
use crate::server::delegate::{Freshness, ListPlan, ReadAt};
use crate::server::http::body::Body;
use crate::server::http::list_body::ListBody;
use crate::server::http::refusal::refusal;
use crate::server::request::bypass::{Bypass, Rejection};
use crate::server::request::refusal_reason::RefusalReason;
use crate::tasks::blocking::spawn_blocking;

/// Returns a list from a cache, for a client or for a sibling.
pub(crate) async fn serve_list(
    read: &CachedRead<'_>,
    plan: ListPlan,
) -> Result<Response<Body>, Bypass> {
    if SeedRequest::is_in(&read.context.parts.headers) {
        return Ok(serve(read, &plan).await?);
    }
    Ok(list::serve(read, plan).await?)
}

/// Returns the list for a sibling, or the refusal.
async fn serve(read: &CachedRead<'_>, plan: &ListPlan) -> Result<Response<Body>, Rejection> {
    let registry = &read.services.registry;
    let sent = send(read, plan).await;
    registry.note_seed(sent.as_ref().map_or_else(|refusal| refusal.as_str(), |_| "sent"));
    sent.map_err(|reason| rejection(reason.as_str()))
}

/// Returns the refusal of a request for the state of a cache.
pub(crate) fn rejection(reason: &'static str) -> Rejection {
    let message = format!("weir: no cache is sent to a sibling: {reason}");
    let status = refusal(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message);
    Rejection::new(status, RefusalReason::Seed)
}

async fn send(read: &CachedRead<'_>, plan: &ListPlan) -> Result<Response<Body>, SeedRefusal> {
    let request = SeedRequest::from_headers(&read.context.parts.headers);
    let request = request.ok_or(SeedRefusal::Options)?;
    if request.codec != CODEC_VERSION {
        return Err(SeedRefusal::Version);
    }
    if !is_whole(read, plan) {
        return Err(SeedRefusal::Options);
    }
    let (gvr, namespace) = (&read.request.gvr, &read.request.namespace);
    let source = read.services.registry.seed_source(gvr, namespace, read.representation()).await?;
    let SeedSource { handle, cluster, release, permit } = source;
    let handle = read.check(handle).map_err(|_| SeedRefusal::Unready)?;
    let state = handle.cache().state().ok_or(SeedRefusal::Unready)?;
    let lag = handle.cache().lag(&state);
    let plan = ListPlan { read_at: read_at(&state, &request), ..plan.clone() };
    let is_covered = match plan.read_at {
        ReadAt::Exact(at) => state.covers_since(&read.target.filter, at),
        ReadAt::Newest(_) | ReadAt::Consistent => state.covers(&read.target.filter),
    };
    if !is_covered {
        return Err(SeedRefusal::Unreadable);
    }
    let (resource, filter) = (Arc::clone(handle.resource()), read.target.filter.clone());
    let form = read.target.form;
    let encode = move || {
        // Also if the client is gone meanwhile.
        let _permit = permit;
        let selected = select(&resource, &state, &filter, &plan)?;
        let objects = selected.objects.len() as u64;
        let digest = digest(selected.objects.iter().map(|object| &**object));
        Some((objects, digest, encode_plain(&resource, selected, form)))
    };
    let encoded = spawn_blocking(encode).await.ok().flatten();
    let (objects, digest, list) = encoded.ok_or(SeedRefusal::Unready)?;
    let definition = handle.resource().revision;
    let generation = handle.cached_resource().lifecycle.seed_generation();
    let codec = CODEC_VERSION;
    let manifest =
        SeedManifest { codec, cluster, release, definition, generation, objects, digest };
    let header = HeaderValue::try_from(manifest.to_string());
    let header = header.map_err(|_| SeedRefusal::Unidentified)?;
    let metrics = Arc::clone(&read.context.metrics);
    let body = ListBody::new(list, lag, read.held, metrics);
    let mut response = plain(read, &handle, Body::list(body));
    response.headers_mut().insert(SEED_HEADER, header);
    Ok(response)
}

/// Whether a request is for the whole collection as it is stored.
fn is_whole(read: &CachedRead<'_>, plan: &ListPlan) -> bool {
    let (target, form) = (&read.target, read.target.form);
    let stores_metadata = matches!(
        read.representation(),
        Representation::MetadataJson | Representation::MetadataProtobuf
    );
    plan.read_at == ReadAt::Newest(Freshness::Any)
        && !plan.is_page()
        && target.filter.terms() == 0
        && target.filter.name.is_none()
        && !form.pretty
        && !form.view.drops_managed_fields()
        && form.view.is_metadata() == stores_metadata
}

/// Returns the state that is sent: the requested one, if the history reaches back to it.
fn read_at(state: &State, request: &SeedRequest) -> ReadAt {
    let held = state.exact_from()..=state.resource_version();
    match request.at.filter(|at| held.contains(at)) {
        Some(at) => ReadAt::Exact(at),
        None => ReadAt::Newest(Freshness::Any),
    }
}

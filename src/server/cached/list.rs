//! LIST from the cache: spliced from the cached bytes, indented or compressed as asked (semantics.md §3.6, §8.6, §8.7).
//!
//! A list of whole objects is not copied: plain, it shares the objects' own bytes; compressed, the segments that are kept. So what clients that
//! ask for the same list hold together is one list. One of metadata alone is copied, lest it keep whole bodies for a little of each.

use std::sync::Arc;

use bytes::{Buf as _, Bytes};
use http::header::{CONTENT_ENCODING, VARY};
use http::{HeaderValue, Response};

use crate::api::media_type::{self, Form, View};
use crate::api::resource::{ApiResource, Representation};
use crate::api::resource_version::ResourceVersion;
use crate::cache::handle::CacheHandle;
use crate::cache::progress::CATCH_UP_TIMEOUT;
use crate::cache::refusal::Refusal;
use crate::codec::gzip::segment_cache::PendingList;
use crate::codec::list::{self, SplicedList};
use crate::codec::{gzip, pretty};
use crate::server::cached::compress::{self, Compressor};
use crate::server::cached::page::{Selected, select};
use crate::server::delegate::{At, Freshness, ListPlan, Reason};
use crate::server::http::response::{self, Body};
use crate::server::router::Read;

/// Answers, or tells why not.
pub(crate) async fn serve(read: &Read<'_>, plan: ListPlan) -> Result<Response<Body>, Reason> {
    let plan = plan.of_target(&read.target, read.resource)?;
    if plan.is_page() && !read.registry.upstream_has_snapshots() {
        return Err(plan.not_held());
    }
    let (handle, state) = match plan.at {
        At::Newest(freshness) => {
            let handle = read.ready_cache(None).await?;
            read.wait_until(&handle, freshness).await?;
            let state = handle.cache().state().ok_or(Reason::Refused(Refusal::NotReady))?;
            (handle, state)
        }
        At::Exact(at) => read.holding(at).await?.ok_or(plan.not_held())?,
    };
    let not_held = plan.not_held();
    let gzip = takes_gzip(read).then_some(read.compressor);
    let filter = &read.target.filter;
    let looked_at = match plan.at {
        At::Newest(_) => state.scan_max(filter),
        // The state as it was is made first, by undoing events.
        At::Exact(_) => state.len() + state.history().len(),
    };
    let looks = looked_at.saturating_mul(1 + filter.terms());
    let form = read.target.form;
    let made = if looks > LOOKS_IN_PLACE_MAX || form.pretty {
        let (resource, filter, gzip) =
            (Arc::clone(handle.resource()), filter.clone(), gzip.cloned());
        let make = move || {
            let selected = select(&resource, &state, &filter, &plan)?;
            Some(make(&resource, selected, form, gzip.as_ref()))
        };
        // A task that panics or a runtime that stops: the upstream answers.
        let made = tokio::task::spawn_blocking(make).await;
        made.map_err(|_| Reason::Refused(Refusal::Stopping))?.ok_or(not_held)?
    } else {
        let resource = handle.resource();
        let selected = select(resource, &state, filter, &plan).ok_or(not_held)?;
        make(resource, selected, form, gzip)
    };
    match made {
        EncodedList::Spliced(list) if form.view == View::Full => {
            Ok(plain(read, &handle, Body::list(list)))
        }
        // While it waits for a client, a list of references would keep whole bodies for a little of each.
        EncodedList::Spliced(list) if list.len() > COPIED_IN_PLACE_MAX => {
            let copied = tokio::task::spawn_blocking(move || copied(list)).await;
            let copied = copied.map_err(|_| Reason::Refused(Refusal::Stopping))?;
            Ok(plain(read, &handle, Body::chunks(copied)))
        }
        EncodedList::Spliced(list) => Ok(plain(read, &handle, Body::chunks(copied(list)))),
        EncodedList::Copied(body) => respond(read, &handle, body).await,
        EncodedList::Compressed(pending) => {
            let member = read.compressor.end(pending).await?;
            Ok(compressed(read, &handle, member))
        }
    }
}

/// A list, nearly an answer.
enum EncodedList {
    Spliced(SplicedList),
    Copied(Vec<Bytes>),
    Compressed(PendingList),
}

fn make(
    resource: &ApiResource,
    selected: Selected,
    form: Form,
    gzip: Option<&Compressor>,
) -> EncodedList {
    let list = list::encode(resource, form, &selected.meta, selected.objects);
    match gzip.filter(|_| list.len() > gzip::THRESHOLD_BYTES) {
        _ if form.pretty => EncodedList::Copied(vec![pretty::indent(&list.concat()).into()]),
        Some(compressor) => EncodedList::Compressed(compressor.begin(list)),
        None => EncodedList::Spliced(list),
    }
}

fn copied(list: SplicedList) -> Vec<Bytes> {
    list.into_iter().map(|mut piece| piece.copy_to_bytes(piece.remaining())).collect()
}

impl Read<'_> {
    /// What the answer is made from.
    pub(crate) fn representation(&self) -> Representation {
        self.resource.representation(self.target.form)
    }

    /// The cache of a collection once it has a state. `first_at` is where a watch begins, if it does not begin with the state.
    pub(crate) async fn ready_cache(
        &self,
        first_at: Option<ResourceVersion>,
    ) -> Result<CacheHandle, Reason> {
        let (gvr, namespace) = (&self.request.gvr, &self.request.namespace);
        let (representation, timeout) = (self.representation(), self.limits.warmup);
        let ready = self.registry.ready_at(gvr, namespace, representation, first_at, timeout);
        self.check(ready.await.map_err(Reason::Refused)?)
    }

    /// Makes sure that a cache is of the very definition to which the request's target is bound. While a changed one spreads they
    /// differ for a moment, and a field selector of the one would read other fields of the other's objects.
    pub(crate) fn check(&self, handle: CacheHandle) -> Result<CacheHandle, Reason> {
        // Until discovery learns something new both are its one `Arc`; the fields are compared only where the pointers differ.
        let same = handle.resource() == self.resource;
        if same { Ok(handle) } else { Err(Reason::Refused(Refusal::NotReady)) }
    }

    /// Waits until a cache is as fresh as asked, but not for long: what is not on its way comes sooner from the upstream.
    pub(crate) async fn wait_until(
        &self,
        handle: &CacheHandle,
        freshness: Freshness,
    ) -> Result<(), Reason> {
        let timeout = self.limits.freshness.min(CATCH_UP_TIMEOUT);
        match freshness {
            Freshness::Any => Ok(()),
            Freshness::NotOlderThan(asked) => {
                handle.wait_until_fresh(asked, timeout).await.map_err(Reason::Refused)
            }
        }
    }
}

/// A 200 with this body, compressed if it is long and the client takes gzip.
pub(crate) async fn respond(
    read: &Read<'_>,
    handle: &CacheHandle,
    body: Vec<Bytes>,
) -> Result<Response<Body>, Reason> {
    let length: usize = body.iter().map(Bytes::len).sum();
    if length > gzip::THRESHOLD_BYTES && takes_gzip(read) {
        return Ok(compressed(read, handle, compress::chunks(body).await?));
    }
    Ok(plain(read, handle, Body::chunks(body)))
}

fn takes_gzip(read: &Read<'_>) -> bool {
    media_type::accepts_gzip(&read.parts.headers)
}

fn plain(read: &Read<'_>, handle: &CacheHandle, body: Body) -> Response<Body> {
    let content_type = read.target.form.encoding.content_type(false);
    response::ok(&read.parts.headers, content_type, body, &handle.warnings())
}

fn compressed(read: &Read<'_>, handle: &CacheHandle, member: Vec<Bytes>) -> Response<Body> {
    let mut response = plain(read, handle, Body::chunks(member));
    response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    response.headers_mut().insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    response
}

/// So many looks at an object, by one term of a selector each, are taken on the connection's own worker: some tens of microseconds. More must
/// not hold up others there, of whom one connection may ask for hundreds of lists at once.
const LOOKS_IN_PLACE_MAX: usize = 1_000;
/// So many bytes are copied there, in some tens of microseconds.
const COPIED_IN_PLACE_MAX: usize = 256 << 10;

//! LIST from the cache: spliced from the cached bytes, indented or compressed as asked (semantics.md §3.6, §8.6, §8.7).

use std::sync::Arc;

use bytes::{Buf, Bytes};
use http::header::{CONTENT_ENCODING, VARY};
use http::{HeaderValue, Response};

use crate::api::media_type::{self, Form};
use crate::api::resource::{ApiResource, Representation};
use crate::api::resource_version::ResourceVersion;
use crate::cache::handle::{CacheHandle, Refusal};
use crate::cache::progress::CATCH_UP;
use crate::codec::list;
use crate::codec::{gzip, pretty};
use crate::server::delegate::{At, Freshness, ListPlan, Reason};
use crate::server::page::{Selected, select};
use crate::server::response::{self, Body};
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
    let resource = Arc::clone(handle.resource());
    let form = read.target.form;
    let made = if state.len() > OBJECTS_IN_PLACE_MAX {
        let filter = read.target.filter.clone();
        let not_held = plan.not_held();
        let make = move || Some(make(&resource, select(&resource, &state, &filter, &plan)?, form));
        // A task that panics or a runtime that stops: the upstream answers.
        let made = tokio::task::spawn_blocking(make).await;
        made.map_err(|_| Reason::Refused(Refusal::Stopping))?.ok_or(not_held)?
    } else {
        let selected = select(&resource, &state, &read.target.filter, &plan);
        make(&resource, selected.ok_or(plan.not_held())?, form)
    };
    match made {
        Made::Indented(body) => respond(read, &handle, vec![body]).await,
        Made::Spliced(list) if list.len() > gzip::THRESHOLD_BYTES && takes_gzip(read) => {
            compressed(read, &handle, list).await
        }
        Made::Spliced(list) => Ok(plain(read, &handle, Body::List(Box::new(list)))),
    }
}

/// A list, before it is compressed.
enum Made {
    Spliced(list::Spliced),
    Indented(Bytes),
}

fn make(resource: &ApiResource, selected: Selected, form: Form) -> Made {
    let list = list::encode(resource, form, &selected.meta, selected.objects);
    if form.pretty {
        Made::Indented(pretty::indent(&list.concat()).into())
    } else {
        Made::Spliced(list)
    }
}

impl Read<'_> {
    /// What the answer is made from.
    pub(crate) fn representation(&self) -> Representation {
        Representation::of(self.target.form, self.resource)
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
        let timeout = self.limits.freshness.min(CATCH_UP);
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
        return compressed(read, handle, body).await;
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

async fn compressed<C>(
    read: &Read<'_>,
    handle: &CacheHandle,
    chunks: C,
) -> Result<Response<Body>, Reason>
where
    C: IntoIterator<Item: Buf> + Send + 'static,
{
    let compressed = tokio::task::spawn_blocking(move || gzip::compress(chunks)).await;
    let Ok(Ok(compressed)) = compressed else { return Err(Reason::Refused(Refusal::Stopping)) };
    let mut response = plain(read, handle, Body::chunks(compressed));
    response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    response.headers_mut().insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    Ok(response)
}

/// Up to here a list is built in a millisecond or so, on the connection's own worker; longer ones must not hold up others there.
const OBJECTS_IN_PLACE_MAX: usize = 1000;

//! LIST from the cache: spliced from the cached bytes, indented or compressed as requested
//! (`docs/semantics.md` §3.6, §8.6, §8.7).
//!
//! A list is not copied. An uncompressed list shares the objects' own bytes, a compressed one the
//! cached segments, so that the same list for many clients is in memory once. Small objects,
//! metadata alone and indented lists are copied or rendered piece by piece, while the list is sent
//! (`docs/decisions/response-bodies.md`).
//!
//! A list whose resourceVersion is unset is consistent, and worth a proof of freshness only if it
//! takes long to forward it, or if many arrive (`docs/decisions/proofs-of-freshness.md`). The time
//! is measured with each one that is forwarded ([`ListTimes`]). So the first list of its kind is
//! forwarded, and starts no cache: who lists everything once fills no caches. A list without a
//! proof is forwarded as it would be without a cache: it draws on no forward budget, and never
//! becomes an error.
//!
//! A list of the first object is what a probe is, and gets the response of a shared one while the
//! cache is new: Weirs behind this one send such lists to verify watches that they resume, all at
//! once after a restart of this one (`docs/decisions/herds.md`).
//!
//! [`ListTimes`]: crate::server::forward::list_times::ListTimes

use std::num::NonZeroUsize;
use std::pin::pin;
use std::sync::Arc;

use http::Response;

use crate::api::continue_token::ContinueToken;
use crate::api::media_type::{Form, View};
use crate::api::resource::ApiResource;
use crate::cache::core::snapshot::{PageRange, Snapshot};
use crate::cache::core::store::ScanIndex;
use crate::cache::core::watch_cache::State;
use crate::cache::core::watcher::WatchFilter;
use crate::cache::handle::CacheHandle;
use crate::cache::proof::consistent_list::NoProof;
use crate::cache::refusal::Refusal;
use crate::codec::gzip;
use crate::codec::gzip::segment_cache::PendingList;
use crate::codec::list::{self, ListMeta, SplicedList};
use crate::codec::object::Object;
use crate::config::ConsistentLists;
use crate::server::cached::compress::Compressor;
use crate::server::cached::read::CachedRead;
use crate::server::cached::respond::{accepts_gzip, compressed, plain, rendered, respond};
use crate::server::delegate::{ListPlan, ReadAt, Reason, Target};
use crate::server::http::body::Body;
use crate::server::http::rendered::ListBody;
use crate::server::lanes::Slot;
use crate::server::metrics::{ResourceMetrics, WaitCause};
use crate::tasks::spawn_blocking;

/// Returns the response, or the reason to forward the request.
pub(crate) async fn serve(read: &CachedRead<'_>, plan: ListPlan) -> Result<Response<Body>, Reason> {
    let CachedRead { services, target, .. } = read;
    let plan = plan.for_target(target, read.resource)?;
    if let Some(response) = first_page(read, &plan).await? {
        return Ok(response);
    }
    if plan.is_page() && read.filtered.is_none() && !services.registry.upstream_has_snapshots() {
        return Err(plan.unavailable());
    }
    if let ReadAt::Exact(at) = plan.read_at
        && !read.was_seen_at(at)
    {
        return Err(plan.unavailable());
    }
    let counts_shard = read.counts_shard().await?;
    let (handle, state) = state_of(read, &plan).await?;
    let unavailable = plan.unavailable();
    let lag = handle.cache().lag(&state);
    let gzip = accepts_gzip(read).then_some(&services.compressor);
    let is_saving = services.overload.is_saving();
    let filter = &target.filter;
    let objects = match plan.read_at {
        ReadAt::Newest(_) | ReadAt::Consistent => state.scan_max(filter),
        // The earlier state is reconstructed first, by undoing events.
        ReadAt::Exact(_) => state.len() + state.history().len(),
    };
    let scans = objects.saturating_mul(1 + filter.terms());
    let form = target.form;
    let encoded = if scans > INLINE_SCANS_MAX {
        let _slot = slot(read).await;
        let (resource, filter, gzip) =
            (Arc::clone(handle.resource()), filter.clone(), gzip.cloned());
        let metrics = Arc::clone(&read.context.metrics);
        let encode = move || {
            let selected = select(&resource, &state, &filter, &plan, counts_shard)?;
            count(&metrics, &selected, form.view);
            Some(encode(&resource, selected, form, gzip.as_ref(), is_saving))
        };
        // If the task panics or the runtime stops, the upstream answers.
        let encoded = spawn_blocking(encode).await;
        encoded.map_err(|_| Reason::Refused(Refusal::Stopping))?.ok_or(unavailable)?
    } else {
        let resource = handle.resource();
        let selected = select(resource, &state, filter, &plan, counts_shard).ok_or(unavailable)?;
        count(&read.context.metrics, &selected, form.view);
        encode(resource, selected, form, gzip, is_saving)
    };
    // The waits above may take long.
    CachedRead::ensure_open(&handle)?;
    match encoded {
        EncodedList::Spliced(list) => {
            let metrics = Arc::clone(&read.context.metrics);
            if form.pretty {
                let compact = ListBody::new(list, lag, read.held.state_account(), metrics);
                return rendered(read, &handle, compact.into());
            }
            let body = ListBody::new(list, lag, read.held, metrics);
            Ok(plain(read, &handle, Body::list(body)))
        }
        EncodedList::Compressed(pending) => {
            let (_, missing) = pending.segment_counts();
            let _slot = if missing > 0 { slot(read).await } else { None };
            let member = services.compressor.complete(pending).await?;
            CachedRead::ensure_open(&handle)?;
            let body = Body::long_chunks(member, read.held.clone());
            Ok(compressed(read, &handle, body))
        }
    }
}

/// Returns the response to a list that equals a probe, by a shared one that is sent after this
/// call; `None` for any other list, and if no new cache runs. This needs no state, which may still
/// be on its way.
async fn first_page(
    read: &CachedRead<'_>,
    plan: &ListPlan,
) -> Result<Option<Response<Body>>, Reason> {
    let is_probe = plan.read_at == ReadAt::Consistent
        && plan.limit == NonZeroUsize::new(1)
        && read.services.registry.availability().is_usable();
    let running = is_probe.then(|| read.running_cache().ok().flatten()).flatten();
    let running = running.filter(|handle| handle.is_new() && is_of_all(read, handle));
    let Some(handle) = running else { return Ok(None) };
    let probed = {
        let probed = pin!(handle.first_page(read.services.seams.freshness_timeout));
        read.waiting(WaitCause::Freshness, probed).await
    };
    let probed = probed.map_err(|_| Reason::Unproved)?;
    let page = &probed.page;
    if !page.unreadable.is_empty() {
        return Err(Reason::Unreadable);
    }
    let meta = ListMeta {
        resource_version: page.resource_version,
        continue_token: page.continue_token.clone(),
        remaining_item_count: page.remaining_item_count,
        ..ListMeta::default()
    };
    let objects = page.objects.iter().cloned().map(Arc::new).collect();
    let list = list::encode(handle.resource(), read.target.form, &meta, objects);
    CachedRead::ensure_open(&handle)?;
    respond(read, &handle, vec![read.held.hold(list.concat())]).map(Some)
}

/// Whether all objects of the cache match.
fn is_of_all(read: &CachedRead<'_>, handle: &CacheHandle) -> bool {
    let namespace = read.target.filter.namespace.clone();
    handle.is_namespaced() == namespace.is_some()
        && read.target.filter == WatchFilter { namespace, ..WatchFilter::default() }
        && read.filtered.is_none()
}

/// Returns the cache, and the state that a list shows.
async fn state_of(
    read: &CachedRead<'_>,
    plan: &ListPlan,
) -> Result<(CacheHandle, Arc<State>), Reason> {
    let (handle, state) = match plan.read_at {
        ReadAt::Newest(freshness) => {
            let handle = read.ready_cache().await?;
            read.wait_until_fresh(&handle, freshness).await?;
            let state = handle.newest_state().ok_or(Reason::Refused(Refusal::NotReady))?;
            let at = state.resource_version();
            match read.filtered.as_ref().is_none_or(|filtered| filtered.is_start(at)) {
                true => (handle, state),
                false => proved_state(read).await?,
            }
        }
        ReadAt::Consistent => proved_state(read).await?,
        ReadAt::Exact(at) => read.cache_holding(at).await?.ok_or(plan.unavailable())?,
    };
    if let Some(filtered) = &read.filtered {
        filtered.ensure_seen()?;
    }
    let is_covered = match plan.read_at {
        ReadAt::Newest(_) | ReadAt::Consistent => state.covers(&read.target.filter),
        ReadAt::Exact(at) => state.covers_since(&read.target.filter, at),
    };
    if is_covered { Ok((handle, state)) } else { Err(Reason::Unreadable) }
}

/// Returns the cache, and a state of it that is not older than the request.
async fn proved_state(read: &CachedRead<'_>) -> Result<(CacheHandle, Arc<State>), Reason> {
    let services = read.services;
    if !services.registry.availability().is_usable() {
        return Err(Reason::Consistent);
    }
    if read.filtered.is_some() {
        // There is nothing to weigh: it cannot be forwarded.
        let handle = read.ready_cache().await?;
        let fresh = read.fresh_state(&handle, None, read.context.started).await?;
        let state = handle.state_of(&fresh).ok_or(Reason::Unproved)?;
        return Ok((handle, state));
    }
    let forwarding = services.list_times.expected(read.context.parts);
    let starts_cache = forwarding.is_some()
        || services.registry.config().consistent_lists == ConsistentLists::Always;
    let handle = match starts_cache {
        true => read.cache().await.map(Some),
        false => read.running_cache(),
    };
    let handle = handle.map_err(without_budget)?;
    let handle = handle.filter(CacheHandle::is_ready).ok_or(Reason::Consistent)?;
    let (since, timeout) = (read.context.started, services.seams.freshness_timeout);
    let fresh = {
        let fresh = pin!(handle.consistent_state(since, forwarding, timeout));
        read.waiting(WaitCause::Freshness, fresh).await
    };
    match fresh {
        Ok(state) => Ok((handle, state)),
        Err(NoProof::NotTried) => Err(Reason::Consistent),
        Err(NoProof::Late) => Err(Reason::Unproved),
    }
}

/// Returns the reason to forward a consistent list. It draws on no forward budget.
fn without_budget(reason: Reason) -> Reason {
    if reason.wants_cache() { Reason::Consistent } else { reason }
}

fn count(metrics: &ResourceMetrics, selected: &Selected, view: View) {
    let (index, scanned) = selected.scan;
    metrics.listed(index, scanned, selected.objects.len());
    if view.drops_managed_fields() {
        let dropped = selected.objects.iter().map(|object| object.dropped(view).length as usize);
        metrics.dropped(dropped.sum());
    }
}

/// Waits for the lane of the response, for work on another thread.
async fn slot(read: &CachedRead<'_>) -> Option<Slot> {
    match read.lane {
        Some(lane) => Some(lane.slot().await),
        None => None,
    }
}

enum EncodedList {
    Spliced(SplicedList),
    /// A compressed list, of which segments may be missing.
    Compressed(PendingList),
}

/// `is_saving` is whether a list is left uncompressed of which most segments are missing. To send
/// cached segments takes less time than to send the list.
fn encode(
    resource: &ApiResource,
    selected: Selected,
    form: Form,
    gzip: Option<&Compressor>,
    is_saving: bool,
) -> EncodedList {
    let list = list::encode(resource, form, &selected.meta, selected.objects);
    let Some(compressor) = gzip.filter(|_| !form.pretty && list.len() > gzip::THRESHOLD_BYTES)
    else {
        return EncodedList::Spliced(list);
    };
    let pending = compressor.look_up(list);
    let (segments, missing) = pending.segment_counts();
    if is_saving && missing > segments / 2 {
        return EncodedList::Spliced(pending.into_list());
    }
    EncodedList::Compressed(pending)
}

struct Selected {
    meta: ListMeta,
    /// The index that narrowed the scan, and the number of objects that it read.
    scan: (ScanIndex, usize),
    objects: Vec<Arc<Object>>,
}

/// Selects the objects of a list (`docs/semantics.md` §3.1 to §3.4). Returns `None` if the plan
/// needs a state that the cache cannot reconstruct. `counts_shard` is [`PageRange::counts_shard`].
fn select(
    resource: &ApiResource,
    state: &State,
    filter: &WatchFilter,
    plan: &ListPlan,
    counts_shard: bool,
) -> Option<Selected> {
    let (snapshot, indexed) = match plan.read_at {
        ReadAt::Newest(_) | ReadAt::Consistent => {
            (Snapshot::latest(state), resource.selectable.indexed())
        }
        ReadAt::Exact(at) => (Snapshot::at(state, at)?, None),
    };
    let from = plan.start_key.as_deref().unwrap_or_default();
    let range = PageRange { from, limit: plan.limit, indexed, counts_shard };
    let page = snapshot.page(filter, &range);
    let resource_version = snapshot.resource_version();
    let mut meta = ListMeta { resource_version, ..ListMeta::default() };
    if let Some(shard) = &filter.shard {
        meta.shard_selector = shard.to_string();
    }
    if let Some(next) = page.next {
        meta.continue_token = ContinueToken::encode(resource_version, &next.last);
        meta.remaining_item_count = next.remaining;
    }
    Some(Selected { meta, scan: (page.index, page.scanned), objects: page.objects })
}

impl ListPlan {
    /// Adapts the plan to its target. A list of a single object has no pages, and row L5 differs
    /// for it (`docs/semantics.md` §1.6.2). A continue token makes it an ordinary list again.
    pub(super) fn for_target(
        self,
        target: &Target,
        resource: &ApiResource,
    ) -> Result<Self, Reason> {
        if self.start_key.is_some() || !target.is_single(resource) {
            return Ok(self);
        }
        if target.filter.visible.is_some() {
            let read_at = if self.collection_only { ReadAt::Consistent } else { self.read_at };
            return Ok(Self { limit: None, read_at, ..self });
        }
        if self.collection_only {
            return Err(Reason::Latest);
        }
        // It costs the upstream no more than a proof.
        if self.read_at == ReadAt::Consistent {
            return Err(Reason::Consistent);
        }
        Ok(Self { limit: None, ..self })
    }
}

/// The scans of an object, one for each term of a selector, that are done on the connection's own
/// worker. They take some tens of microseconds. More would delay other requests there, and one
/// connection may ask for hundreds of lists at once.
const INLINE_SCANS_MAX: usize = 1_000;

#[cfg(test)]
mod tests;

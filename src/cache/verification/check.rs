//! One comparison of a page, with its requests.
//!
//! A page at the resourceVersion of the cache's present state is compared with that state, which is
//! kept meanwhile, so that nothing is undone and no history must last. Where they differ, the same
//! page is read elsewhere, and then each object that differs, which etcd itself answers. Only if
//! etcd and both pages agree is the cache wrong. Before that counts, the cluster and its history
//! must be the known ones, and the cache's own watch must be open.
//!
//! Bytes may differ under one resourceVersion for a moment: a definition or the release of an API
//! server has changed, and the cache is about to list again. Such a difference counts only once it
//! has lasted.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use crate::api::resource_version::ResourceVersion;
use crate::cache::cached_resource::CachedResource;
use crate::cache::core::filter::WatchFilter;
use crate::cache::core::page_comparison::{
    ExactPage, KeyDifference, PageComparison, compare, is_same,
};
use crate::cache::core::state::State;
use crate::cache::verification::findings::WrongSide;
use crate::cache::verification::walk::{RoundPages, Walk, WholePages};
use crate::codec::list::ListPage;
use crate::codec::object::{Key, Object};
use crate::upstream::error::UpstreamError;
use crate::upstream::lister_watcher::{ExactPart, ExactRequest, ExactServer};

/// The end of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Checked {
    /// The page and the cache have the same objects.
    Equal(PageComparison),
    /// They differ.
    Different(WrongSide, PageComparison),
    /// Only bytes differ, which may pass.
    Unsettled(PageComparison),
    /// The upstream's page is damaged.
    Malformed,
    /// The check proved nothing.
    Inconclusive,
    /// The upstream refuses requests, or is away.
    Refused,
}

impl Checked {
    /// Returns the value of the `outcome` label.
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            Self::Equal(_) => "equal",
            Self::Different(WrongSide::Cache, _) => "different",
            Self::Different(WrongSide::ApiServer, _) => "upstream",
            Self::Different(WrongSide::Unknown, _) | Self::Unsettled(_) | Self::Inconclusive => {
                "inconclusive"
            }
            Self::Malformed => "malformed",
            Self::Refused => "refused",
        }
    }
}

/// The condition under which a page has whole objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WholeObjects {
    /// Always.
    Always,
    /// If the objects are so few bytes that they cost hardly more than their metadata.
    IfSmall,
    /// Never: their bytes prove nothing now.
    Never,
}

/// A page of a state that is to be compared.
#[derive(Debug)]
pub(crate) struct PagePlan {
    state: Arc<State>,
    after: Option<Key>,
    limit: u32,
    /// Whether whole objects are compared.
    pub(crate) is_whole: bool,
    server: ExactServer,
}

impl PagePlan {
    /// Plans the next page of a walk through the present state. `bytes` says when it has whole
    /// objects.
    pub(crate) fn new(
        state: Arc<State>,
        walk: &Walk,
        bytes: WholeObjects,
        server: ExactServer,
    ) -> Self {
        let after = walk.after().cloned();
        let is_whole_due = bytes == WholeObjects::Always;
        let most = page_objects(state.len());
        let (mut limit, mut weight, mut is_small, mut is_cut) = (0, 0_usize, true, false);
        let low = after.as_ref().map_or(Bound::Unbounded, |key| Bound::Excluded(key.as_str()));
        let everything = WatchFilter::default();
        for object in state.store().scan_from(&everything, low).take(most as usize) {
            weight = weight.saturating_add(object.weight());
            is_small &= weight <= SMALL_BYTES;
            is_cut = (is_whole_due && limit > 0 && weight > WHOLE_BYTES_MAX)
                || (limit >= PAGE_OBJECTS && weight > PAGE_BYTES_MAX);
            if is_cut {
                break;
            }
            limit += 1;
        }
        let is_whole = is_whole_due || (is_small && bytes == WholeObjects::IfSmall);
        // Where the cache has few objects left, the upstream may have more.
        let limit = if is_cut { limit.max(1) } else { most };
        Self { state, after, limit, is_whole, server }
    }

    /// Returns the resourceVersion at which the page is compared.
    pub(crate) fn at(&self) -> ResourceVersion {
        self.state.resource_version()
    }

    fn request(&self, server: ExactServer) -> ExactRequest {
        let part = ExactPart::Page { after: self.after.clone(), limit: self.limit };
        ExactRequest { at: self.at(), part, is_whole: self.is_whole, server }
    }

    fn compare(&self, page: &ListPage) -> Option<PageComparison> {
        let exact = ExactPage {
            after: self.after.as_ref(),
            objects: &page.objects,
            has_more: !page.continue_token.is_empty(),
            has_unreadable: !page.unreadable.is_empty(),
            is_whole: self.is_whole,
        };
        let compared = compare(&self.state, exact);
        compared
            .inspect_err(|error| tracing::error!(%error, "the API server's page is damaged"))
            .ok()
    }
}

/// Compares a page. `is_settled` says that a difference of bytes counts.
pub(crate) async fn check(cached: &CachedResource, plan: &PagePlan, is_settled: bool) -> Checked {
    match try_check(cached, plan, is_settled).await {
        Ok(checked) => checked,
        Err(error) => {
            tracing::debug!(resource = %cached.key.gvr, %error, "a check proved nothing");
            if is_refusal(&error) { Checked::Refused } else { Checked::Inconclusive }
        }
    }
}

async fn try_check(
    cached: &CachedResource,
    plan: &PagePlan,
    is_settled: bool,
) -> Result<Checked, UpstreamError> {
    let generation = cached.writer.generation();
    let first = read(cached, plan, plan.request(plan.server)).await?;
    let Some(first) = first else { return Ok(Checked::Inconclusive) };
    let Some(compared) = plan.compare(&first) else { return Ok(Checked::Malformed) };
    if compared.count == 0 {
        let is_current = cached.context.history.generation() == generation;
        return Ok(if is_current { Checked::Equal(compared) } else { Checked::Inconclusive });
    }
    if !is_settled && compared.differences.iter().all(KeyDifference::is_within_version) {
        return Ok(Checked::Unsettled(compared));
    }
    let server = match plan.server {
        ExactServer::Own => ExactServer::Elsewhere,
        ExactServer::OtherIfKnown | ExactServer::Elsewhere => ExactServer::Own,
    };
    let second = read(cached, plan, plan.request(server)).await?;
    let Some(second) = second else { return Ok(Checked::Inconclusive) };
    let Some(confirmed) = plan.compare(&second) else { return Ok(Checked::Malformed) };
    let wrong = find_wrong(cached, plan, &first, (&compared, &confirmed)).await?;
    if !is_undisturbed(cached, generation).await {
        return Ok(Checked::Inconclusive);
    }
    if wrong == WrongSide::ApiServer && plan.server == ExactServer::Own {
        cached.upstream.leave_server();
    }
    Ok(Checked::Different(wrong, compared))
}

/// Reads a part of the collection. Returns `None` if it is of another resourceVersion.
async fn read(
    cached: &CachedResource,
    plan: &PagePlan,
    request: ExactRequest,
) -> Result<Option<ListPage>, UpstreamError> {
    let page = cached.upstream.exact(request).await?;
    Ok((page.resource_version == plan.at()).then_some(page))
}

/// Asks etcd for each object that differs, and returns who is wrong. `compared` are the differences
/// of the first page and of the second one.
async fn find_wrong(
    cached: &CachedResource,
    plan: &PagePlan,
    first: &ListPage,
    (compared, confirmed): (&PageComparison, &PageComparison),
) -> Result<WrongSide, UpstreamError> {
    let mut wrong = WrongSide::Unknown;
    for difference in &compared.differences {
        let key = &difference.key;
        let part = ExactPart::Object(key.clone());
        let (at, is_whole, server) = (plan.at(), plan.is_whole, ExactServer::Own);
        let request = ExactRequest { at, part, is_whole, server };
        let Some(read_by_name) = read(cached, plan, request).await? else {
            return Ok(WrongSide::Unknown);
        };
        let read_by_name = read_by_name.objects.iter().find(|object| object.key == *key);
        let held = plan.state.get(key);
        let listed = first.objects.iter().find(|object| object.key == *key);
        let agrees = |side: Option<&Object>| is_same(side, read_by_name, is_whole);
        match (agrees(held.as_deref()), agrees(listed)) {
            (false, true) if confirmed.differences.contains(difference) => {
                return Ok(WrongSide::Cache);
            }
            (true, false) => wrong = WrongSide::ApiServer,
            _ => {}
        }
    }
    Ok(wrong)
}

/// Whether the cache's watch is open, the cluster and its history are the known ones, and no other
/// state is about to replace the cache's.
async fn is_undisturbed(cached: &CachedResource, generation: u64) -> bool {
    let joined = tokio::time::timeout(JOIN_TIMEOUT, cached.is_joined()).await;
    let lifecycle = &cached.lifecycle;
    joined.unwrap_or(false)
        && cached.writer.generation() == generation
        && cached.context.history.generation() == generation
        && cached.context.availability.is_usable()
        && lifecycle.is_watching()
        && !lifecycle.is_retiring()
        && !lifecycle.cancel.is_cancelled()
}

fn is_refusal(error: &UpstreamError) -> bool {
    match error {
        UpstreamError::Status { code, .. } => {
            matches!(*code, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
        }
        UpstreamError::Connect { .. } | UpstreamError::Exhausted { .. } => true,
        _ => false,
    }
}

/// Returns the objects of a page of a collection. An API server reads all objects behind the first
/// key of a page from its watch cache, whatever the limit of the page. So the pages of a large
/// collection are larger, and not more.
pub(crate) fn page_objects(collection: usize) -> u32 {
    let part = u32::try_from(collection).unwrap_or(u32::MAX) / PAGES_USUAL;
    part.clamp(PAGE_OBJECTS, PAGE_OBJECTS_MAX)
}

/// Returns the pages of a round through a collection. A `whole_every`th part of its bytes is
/// compared in each round, so that all of them are in `whole_every` rounds; `None` if none is.
pub(crate) fn pages(objects: usize, weight: usize, whole_every: Option<u32>) -> RoundPages {
    let parts = |whole: usize, part: usize| u32::try_from(whole / part).unwrap_or(u32::MAX);
    let least = parts(objects, page_objects(objects) as usize);
    let by_weight = parts(weight, PAGE_BYTES_MAX).min(parts(objects, PAGE_OBJECTS as usize));
    let of_metadata = least.max(by_weight).saturating_add(1);
    let of_objects = least.max(parts(weight, WHOLE_BYTES_MAX)).saturating_add(1);
    match whole_every {
        None => RoundPages { total: of_metadata, whole: WholePages::None },
        Some(1) => RoundPages { total: of_objects, whole: WholePages::All },
        // Small pages have whole objects anyway.
        Some(_) if weight <= SMALL_BYTES => {
            RoundPages { total: of_metadata, whole: WholePages::Run(0) }
        }
        Some(every) => {
            let run = of_objects.div_ceil(every.max(1));
            let replaced = of_metadata.div_ceil(every.max(1));
            let total = of_metadata.saturating_sub(replaced).saturating_add(run);
            RoundPages { total, whole: WholePages::Run(run) }
        }
    }
}

/// Returns in how many rounds all bytes are compared, if all caches together weigh `weight` bytes,
/// and `most` of them are compared in a round.
pub(crate) fn whole_every(weight: usize, most: usize) -> u32 {
    let parts = u32::try_from(weight.div_ceil(most.max(1))).unwrap_or(u32::MAX);
    parts.clamp(1, WHOLE_EVERY_MAX)
}

/// The objects of a page, if a round has few.
pub(crate) const PAGE_OBJECTS: u32 = 500;
/// The most objects of a page.
const PAGE_OBJECTS_MAX: u32 = 5_000;
/// The pages of a round, if they have more than [`PAGE_OBJECTS`] and fewer than
/// [`PAGE_OBJECTS_MAX`].
const PAGES_USUAL: u32 = 50;
/// Beyond these bytes of whole objects a page has only [`PAGE_OBJECTS`].
const PAGE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The most bytes of a page of whole objects, which has at least one object.
const WHOLE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The most runs of a collection. Two rounds more compare all bytes: at most 50.
pub(crate) const WHOLE_EVERY_MAX: u32 = 48;
/// Pages of so few bytes always have whole objects, which then cost hardly more than metadata.
const SMALL_BYTES: usize = 64 * 1024;
/// How long the cache's watch and the cluster may take to be confirmed.
const JOIN_TIMEOUT: Duration = Duration::from_secs(5);

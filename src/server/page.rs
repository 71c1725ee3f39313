//! Which objects a list shows, of which state, and what the list says of itself (semantics.md §3.1 to §3.4).

use std::sync::Arc;
use std::time::Duration;

use crate::api::continue_token::ContinueToken;
use crate::api::resource::ApiResource;
use crate::api::resource_version::ResourceVersion;
use crate::cache::core::snapshot::{PageRange, Snapshot};
use crate::cache::core::watch_cache::State;
use crate::cache::core::watcher::WatchFilter;
use crate::cache::handle::CacheHandle;
use crate::codec::list::ListMeta;
use crate::codec::object::Object;
use crate::server::delegate::{At, ListPlan, Reason, Target};
use crate::server::router::Read;

/// What a list shows.
pub(crate) struct Selected {
    pub(crate) meta: ListMeta,
    pub(crate) objects: Vec<Arc<Object>>,
}

/// Chooses it; `None` if the plan is of a state that can't be had from here.
pub(crate) fn select(
    resource: &ApiResource,
    state: &State,
    filter: &WatchFilter,
    plan: &ListPlan,
) -> Option<Selected> {
    let (snapshot, indexed) = match plan.at {
        At::Newest(_) => (Snapshot::present(state), resource.selectable.indexed()),
        At::Exact(at) => (Snapshot::at(state, at)?, None),
    };
    let from = plan.from.as_deref().unwrap_or_default();
    let page = snapshot.page(filter, &PageRange { from, limit: plan.limit, indexed });
    let resource_version = snapshot.resource_version();
    let mut meta = ListMeta { resource_version, ..ListMeta::default() };
    if let Some(next) = page.next {
        meta.continue_token = ContinueToken::mint(resource_version, &next.last);
        meta.remaining_item_count = next.remaining;
    }
    Some(Selected { meta, objects: page.objects })
}

impl ListPlan {
    /// The plan for what the request turned out to mean: of a single object there are no pages, and L5 is another row (semantics.md
    /// §1.6.2). A continue token makes a list of it again.
    pub(crate) fn of_target(self, target: &Target, resource: &ApiResource) -> Result<Self, Reason> {
        if self.from.is_some() || !target.is_single(resource) {
            return Ok(self);
        }
        if self.collection_only {
            return Err(Reason::Latest);
        }
        Ok(Self { limit: None, ..self })
    }
}

impl Read<'_> {
    /// A cache that holds everything up to a resourceVersion and can go back to it; `None` if it can't be had soon.
    ///
    /// A cold cache is started but not waited for, since it will begin after that resourceVersion; one that lags is given only a moment,
    /// since the upstream is there already and answers faster than the wait would.
    pub(crate) async fn holding(
        &self,
        at: ResourceVersion,
    ) -> Result<Option<(CacheHandle, Arc<State>)>, Reason> {
        let (gvr, namespace) = (&self.request.gvr, &self.request.namespace);
        let found = self.registry.get(gvr, namespace, self.representation()).await;
        let handle = self.check(found.map_err(Reason::Refused)?)?;
        if handle.cache().state().is_none() {
            return Ok(None);
        }
        let patience = CATCH_UP.min(self.limits.freshness);
        if handle.wait_until_fresh(at, patience).await.is_err() {
            return Ok(None);
        }
        let state = handle
            .cache()
            .state()
            .filter(|state| (state.exact_from()..=state.resource_version()).contains(&at));
        Ok(state.map(|state| (handle, state)))
    }
}

/// How long a cache may take to come to a resourceVersion that the upstream already has.
const CATCH_UP: Duration = Duration::from_millis(50);

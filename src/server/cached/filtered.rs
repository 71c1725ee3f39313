//! A list or watch of which the user may see a part (`docs/decisions/filtered-lists.md`).

use std::sync::Arc;

use crate::api::resource::GroupVersionResource;
use crate::api::resource_version::ResourceVersion;
use crate::auth::rbac::resource::RbacResource;
use crate::auth::visibility::{Newest, UserView, Visible};
use crate::cache::refusal::Refusal;
use crate::cache::registry::Registry;
use crate::server::cached::read::CachedRead;
use crate::server::cached::watch_stream::WatchEnd;
use crate::server::delegate::Reason;

/// What the user of a read may see.
pub(crate) struct Filtered {
    view: UserView,
    visible: Arc<Visible>,
    /// Whether it was known what the user saw before.
    is_remembered: bool,
}

impl CachedRead<'_> {
    /// Restricts the read to what its user may see. Call this before a state is read, and only for
    /// a user who may see something: it starts the cache.
    pub(crate) async fn filtered(mut self, view: UserView) -> Result<Self, Reason> {
        self.ready_cache().await?;
        let newest = newest(&self.services.registry, &self.request.gvr);
        let newest = newest.ok_or(Reason::Refused(Refusal::NotReady))?;
        let (visible, is_remembered) = view.visible(Some(newest)).ok_or(Reason::Authorization)?;
        let objects = view.seen(&visible);
        if objects.as_ref().is_some_and(|objects| objects.is_empty()) {
            return Err(Reason::Authorization);
        }
        self.target.filter.visible.clone_from(objects);
        self.filtered = Some(Filtered { view, visible, is_remembered });
        Ok(self)
    }

    /// Whether a client that has read the state at `at` saw then what it would see now.
    pub(super) fn was_seen_at(&self, at: ResourceVersion) -> bool {
        let of_filtered = self.filtered.as_ref();
        of_filtered
            .is_none_or(|filtered| filtered.is_remembered && filtered.visible.was_seen_at(at))
    }

    /// Whether a list at `at` is one from which its client can go on.
    pub(super) fn is_start(&self, at: ResourceVersion) -> bool {
        self.filtered.as_ref().is_none_or(|filtered| filtered.visible.was_seen_at(at))
    }

    /// Ensures that the user still sees the same, once a state was chosen. A change during the wait
    /// for it would be missed by a watch from there.
    pub(super) fn ensure_seen(&self) -> Result<(), Reason> {
        let Some(Filtered { view, visible, .. }) = &self.filtered else { return Ok(()) };
        let newest = newest(&self.services.registry, &self.request.gvr);
        let now = view.visible(newest).ok_or(Reason::Authorization)?.0;
        if view.shows(visible, &now) { Ok(()) } else { Err(Reason::Refused(Refusal::NotReady)) }
    }

    /// Returns when the user sees more or less than this watch shows.
    pub(super) fn view_end(&self) -> Option<WatchEnd> {
        let Filtered { view, visible, .. } = self.filtered.as_ref()?;
        let (registry, gvr) = (self.services.registry.clone(), self.request.gvr.clone());
        let availability = self.services.registry.availability().clone();
        let end = view.clone().until_changed(
            Arc::clone(visible),
            move || newest(&registry, &gvr),
            move || availability.is_usable(),
        );
        Some(Box::pin(end))
    }
}

fn newest(registry: &Registry, gvr: &GroupVersionResource) -> Option<Newest> {
    let roles = RbacResource::ALL.into_iter();
    let roles = roles.filter_map(|resource| registry.newest_version(&resource.gvr())).max();
    Some(Newest { collection: registry.newest_version(gvr)?, roles: roles? })
}

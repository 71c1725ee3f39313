//! The part of a list or watch that its user may see (`docs/decisions/filtered-lists.md`).

use std::sync::Arc;

use crate::api::resource::GroupVersionResource;
use crate::api::resource_version::ResourceVersion;
use crate::auth::rbac::resource::RbacResource;
use crate::auth::visibility::{Newest, UserView, Visible};
use crate::cache::core::visible::VisibleObjects;
use crate::cache::refusal::Refusal;
use crate::cache::registry::Registry;
use crate::server::cached::watch_stream::WatchEnd;
use crate::server::delegate::Reason;

/// The part of a collection that the user of a read may see.
pub(crate) struct Filtered {
    view: UserView,
    visible: Arc<Visible>,
    /// Whether the user saw the same before.
    is_remembered: bool,
    registry: Registry,
    gvr: GroupVersionResource,
}

impl Filtered {
    /// Looks what the user may see, if that is anything. Call this before a state is read, and once
    /// the collection has a cache that is ready.
    pub(super) fn new(
        view: UserView,
        registry: &Registry,
        gvr: &GroupVersionResource,
    ) -> Result<Self, Reason> {
        newest(registry, gvr).ok_or(Reason::Refused(Refusal::NotReady))?;
        let seen = view.visible(|| newest(registry, gvr));
        let (visible, is_remembered) = seen.ok_or(Reason::Authorization)?;
        let objects = view.seen(&visible);
        if objects.as_ref().is_some_and(|objects| objects.is_empty()) {
            return Err(Reason::Authorization);
        }
        Ok(Self { view, visible, is_remembered, registry: registry.clone(), gvr: gvr.clone() })
    }

    /// Returns the objects; `None` for all.
    pub(super) fn objects(&self) -> Option<Arc<VisibleObjects>> {
        self.view.seen(&self.visible).clone()
    }

    /// Whether a client that has read the state at `at` saw then what it would see now.
    pub(super) fn was_seen_at(&self, at: ResourceVersion) -> bool {
        self.is_remembered && self.is_start(at)
    }

    /// Whether a list at `at` is one from which its client can go on.
    pub(super) fn is_start(&self, at: ResourceVersion) -> bool {
        self.visible.was_seen_at(at)
    }

    /// Ensures that the user still sees the same, once a state was chosen. A change during the wait
    /// for it would be missed by a watch from there.
    pub(super) fn ensure_seen(&self) -> Result<(), Reason> {
        let now = self.view.visible(|| newest(&self.registry, &self.gvr));
        let (now, _) = now.ok_or(Reason::Authorization)?;
        let is_same = self.view.shows(&self.visible, &now);
        if is_same { Ok(()) } else { Err(Reason::Refused(Refusal::NotReady)) }
    }

    /// Returns when the user sees more or less than this.
    pub(super) fn end(&self) -> WatchEnd {
        let (registry, gvr) = (self.registry.clone(), self.gvr.clone());
        let availability = registry.availability().clone();
        let end = self.view.clone().until_changed(
            Arc::clone(&self.visible),
            move || newest(&registry, &gvr),
            move || availability.is_usable(),
        );
        Box::pin(end)
    }
}

fn newest(registry: &Registry, gvr: &GroupVersionResource) -> Option<Newest> {
    let roles = RbacResource::ALL.into_iter();
    let roles = roles.filter_map(|resource| registry.newest_version(&resource.gvr())).max();
    Some(Newest { collection: registry.newest_version(gvr)?, roles: roles? })
}

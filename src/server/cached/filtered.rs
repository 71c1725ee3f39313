//! A list or watch of which the user may see a part (`docs/decisions/filtered-lists.md`).

use std::sync::Arc;

use crate::api::resource_version::ResourceVersion;
use crate::auth::visibility::{UserView, Visible};
use crate::cache::refusal::Refusal;
use crate::cache::registry::Registry;
use crate::server::cached::read::CachedRead;
use crate::server::cached::watch_stream::WatchEnd;
use crate::server::delegate::{ReadAt, Reason, Start};

/// What the user of a read may see.
pub(crate) struct Filtered {
    view: UserView,
    visible: Arc<Visible>,
}

impl CachedRead<'_> {
    /// Restricts the read to what its user may see. Call this before a state is read, and only for
    /// a user who may see something: it starts the cache.
    pub(crate) async fn filtered(mut self, view: UserView) -> Result<Self, Reason> {
        self.ready_cache().await?;
        let newest = self.services.registry.newest_version(&self.request.gvr);
        let newest = newest.ok_or(Reason::Refused(Refusal::NotReady))?;
        let visible = view.visible(Some(newest)).ok_or(Reason::Authorization)?;
        let objects = view.seen(&visible);
        if objects.as_ref().is_some_and(|objects| objects.is_empty()) {
            return Err(Reason::Authorization);
        }
        self.target.filter.visible.clone_from(objects);
        self.filtered = Some(Filtered { view, visible });
        Ok(self)
    }

    /// Whether a list of the state at `read_at` shows what its user sees now. Another page of it
    /// may have shown something else.
    pub(super) fn is_seen_at(&self, read_at: ReadAt) -> bool {
        match (&self.filtered, read_at) {
            (Some(Filtered { visible, .. }), ReadAt::Exact(at)) => at >= visible.oldest,
            _ => true,
        }
    }

    /// Whether the client of a watch has seen, at its start, what it would see now.
    pub(super) fn is_seen_after(&self, start: Start) -> bool {
        match (&self.filtered, start) {
            (Some(Filtered { visible, .. }), Start::After(after)) => after >= visible.oldest,
            _ => true,
        }
    }

    /// Returns when the user sees more or less than this watch shows.
    pub(super) fn view_end(&self) -> Option<WatchEnd> {
        let Filtered { view, visible } = self.filtered.as_ref()?;
        let newest = newest(self.services.registry.clone(), self);
        Some(Box::pin(view.clone().until_changed(Arc::clone(visible), newest)))
    }
}

fn newest(registry: Registry, read: &CachedRead<'_>) -> impl Fn() -> ResourceVersion + use<> {
    let gvr = read.request.gvr.clone();
    // A watch has a cache, which has a state.
    move || registry.newest_version(&gvr).unwrap_or_default()
}

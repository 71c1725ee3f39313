//! The properties of a resource that its cache learns from upstream responses.
//!
//! No locks.

use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use bytes::Bytes;
use http::HeaderValue;

use crate::api::media_type::View;
use crate::api::resource_version::ResourceVersion;
use crate::codec::bookmark::BookmarkTemplate;

/// The learned properties of a resource.
#[derive(Default)]
pub(crate) struct LearnedTraits {
    bookmark_template: ArcSwapOption<BookmarkTemplate>,
    warnings: ArcSwap<Vec<HeaderValue>>,
}

impl LearnedTraits {
    /// Learns how the upstream writes a bookmark of this resource from the object of one. The
    /// newest form is kept: an upgraded upstream may write its bookmarks differently.
    pub(crate) fn learn_bookmark(&self, object: &[u8]) {
        let Some(template) = BookmarkTemplate::from_bookmark(object) else { return };
        if self.bookmark_template.load().as_deref() != Some(&template) {
            self.bookmark_template.store(Some(Arc::new(template)));
        }
    }

    /// Whether the form of a bookmark is known.
    pub(crate) fn has_bookmark(&self) -> bool {
        self.bookmark_template.load().is_some()
    }

    /// Returns a BOOKMARK frame in `view`, once the form of a bookmark is known.
    pub(crate) fn bookmark(
        &self,
        resource_version: ResourceVersion,
        initial_events_end: bool,
        view: View,
    ) -> Option<Bytes> {
        let template = self.bookmark_template.load();
        template.as_ref().map(|template| template.frame(resource_version, initial_events_end, view))
    }

    /// Sets the `Warning` headers to those of the upstream's last response (`docs/semantics.md`
    /// §8.8).
    pub(crate) fn set_warnings(&self, values: Vec<HeaderValue>) {
        if **self.warnings.load() != values {
            self.warnings.store(Arc::new(values));
        }
    }

    /// Returns the `Warning` headers that the upstream sends with this resource.
    pub(crate) fn warnings(&self) -> Arc<Vec<HeaderValue>> {
        self.warnings.load_full()
    }
}

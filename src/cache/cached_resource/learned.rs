//! The properties of a resource that its cache learns from upstream responses.
//!
//! No locks.

use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use bytes::Bytes;
use http::HeaderValue;

use crate::api::media_type::View;
use crate::api::resource::{ApiResource, Representation};
use crate::api::resource_version::ResourceVersion;
use crate::codec::bookmark::BookmarkTemplate;

/// The learned properties of a resource.
pub(crate) struct LearnedTraits {
    /// The template of the bookmarks until the first one was seen.
    minimal_bookmark: Option<BookmarkTemplate>,
    bookmark_template: ArcSwapOption<BookmarkTemplate>,
    warnings: ArcSwap<Vec<HeaderValue>>,
}

impl LearnedTraits {
    /// Nothing is learned yet.
    pub(crate) fn new(resource: &ApiResource, representation: Representation) -> Self {
        Self {
            minimal_bookmark: BookmarkTemplate::minimal(resource, representation),
            bookmark_template: ArcSwapOption::empty(),
            warnings: ArcSwap::default(),
        }
    }

    /// Learns how the upstream writes a bookmark of this resource from the object of one. The
    /// newest form is kept: an upgraded upstream may write its bookmarks differently.
    pub(crate) fn learn_bookmark(&self, object: &[u8]) {
        let known = self.bookmark_template.load();
        if let Some(template) = BookmarkTemplate::learned(known.as_deref(), object) {
            self.bookmark_template.store(Some(Arc::new(template)));
        }
    }

    /// Forgets the form of bookmarks, because the version of the upstream changed.
    pub(crate) fn forget_bookmark(&self) {
        self.bookmark_template.store(None);
    }

    /// Whether a bookmark of the upstream was seen.
    pub(crate) fn has_bookmark(&self) -> bool {
        self.bookmark_template.load().is_some()
    }

    /// Returns a BOOKMARK frame in `view`. `None` only if the definition of the resource names no
    /// valid kind.
    pub(crate) fn bookmark(
        &self,
        resource_version: ResourceVersion,
        initial_events_end: bool,
        view: View,
    ) -> Option<Bytes> {
        let learned = self.bookmark_template.load();
        let template = learned.as_deref().or(self.minimal_bookmark.as_ref());
        template.map(|template| template.frame(resource_version, initial_events_end, view))
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
